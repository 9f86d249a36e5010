"""aclopCompileAndExecute and aclopExecuteV2: the older interface, which calls operators by type.

Tensors are passed as descriptions and buffers, attributes by name. ``capi.op_types`` has the types.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from aclnn.capi.constants import ENUMS
from aclnn.capi.objects import live, release, take
from aclnn.capi.op_types import TYPES
from aclnn.capi.prototype import c_function, c_value_function
from aclnn.capi.typed_calls import Given
from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, CODES, AclnnError
from aclnn.core.tensor import Tensor, contiguous_strides
from aclnn.execution.executor import prepare
from aclnn.runtime import devices, handles, memory

#: Extent that marks an unknown rank in a description, and the dimension count that C programs get for it.
_UNKNOWN_EXTENT, UNKNOWN_RANK = -2, 2**64 - 2
_UNREGISTERED = ENUMS["aclopCompileType"]["ACL_COMPILE_UNREGISTERED"]
_HOST = tuple(number for name, number in ENUMS["aclMemType"].items() if name.startswith("ACL_MEMTYPE_HOST"))


class TensorDesc:
    """``aclTensorDesc``."""

    __slots__ = ("constant", "dtype", "format", "name", "on_host", "shape")

    def __init__(self, dtype: DataType, shape: tuple[int, ...], format: Format) -> None:
        self.dtype, self.shape, self.format = dtype, shape, format
        self.name, self.on_host = "", False
        self.constant: bytes | None = None

    @property
    def elements(self) -> int:
        """Number of elements; 0 if a dimension is unknown.

        Raises:
            AclnnError: the number exceeds C's size_t.
        """
        return _size(math.prod(self.shape)) if min(self.shape, default=0) >= 0 else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the elements.

        Raises:
            AclnnError: the number exceeds C's size_t.
        """
        return _size(-(-self.elements * self.dtype.bits // 8))


def _size(number: int) -> int:
    if number >= 1 << 64:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"desc: expected a size below 2^64, got {number}")
    return number


class DataBuffer:
    """``aclDataBuffer``: memory that is owned elsewhere."""

    __slots__ = ("address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes


class OpAttr(dict[str, Any]):
    """``aclopAttr``: attribute values by name."""


def _desc(handle: int, argument: str = "desc") -> TensorDesc:
    return live(handle, TensorDesc, argument, ACL_ERROR_INVALID_PARAM)


def _buffer(handle: int, argument: str = "dataBuffer") -> DataBuffer:
    return live(handle, DataBuffer, argument, ACL_ERROR_INVALID_PARAM)


@c_value_function(
    "aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims, aclFormat format)",
    arrays={"dims": "numDims"},
)
def aclCreateTensorDesc(dataType: int, numDims: int, dims: Sequence[int] | None, format: int) -> int:
    """Create a description of a contiguous tensor."""
    if numDims < 0 or (dims is None and numDims > 0):
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"dims: expected {max(0, numDims)} dimensions, got null")
    return handles.insert(TensorDesc(DataType(dataType), tuple(dims or ()), Format(format)))


@c_value_function("void aclDestroyTensorDesc(const aclTensorDesc *desc)")
def aclDestroyTensorDesc(desc: int | None) -> int:
    """Destroy a description; null is accepted."""
    release(desc, TensorDesc, "desc", ACL_ERROR_INVALID_PARAM)
    return 0


@c_value_function("aclDataType aclGetTensorDescType(const aclTensorDesc *desc)", null=-1)
def aclGetTensorDescType(desc: int) -> int:
    """Return the data type."""
    return _desc(desc).dtype


@c_value_function("aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc)", null=-1)
def aclGetTensorDescFormat(desc: int) -> int:
    """Return the format."""
    return _desc(desc).format


@c_value_function("size_t aclGetTensorDescElementCount(const aclTensorDesc *desc)")
def aclGetTensorDescElementCount(desc: int) -> int:
    """Return the number of elements."""
    return _desc(desc).elements


@c_value_function("size_t aclGetTensorDescSize(const aclTensorDesc *desc)")
def aclGetTensorDescSize(desc: int) -> int:
    """Return the bytes of the elements."""
    return _desc(desc).nbytes


@c_value_function("size_t aclGetTensorDescNumDims(const aclTensorDesc *desc)")
def aclGetTensorDescNumDims(desc: int) -> int:
    """Return the number of dimensions; ACL_UNKNOWN_RANK if the first is -2."""
    shape = _desc(desc).shape
    return UNKNOWN_RANK if shape[:1] == (_UNKNOWN_EXTENT,) else len(shape)


@c_value_function("int64_t aclGetTensorDescDim(const aclTensorDesc *desc, size_t index)", null=-1)
def aclGetTensorDescDim(desc: int, index: int) -> int:
    """Return the extent of a dimension."""
    return _extent(desc, index)


@c_function("aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize)")
def aclGetTensorDescDimV2(desc: int, index: int) -> int:
    """Return the extent of a dimension."""
    return _extent(desc, index)


def _extent(desc: int, index: int) -> int:
    shape = _desc(desc).shape
    if index >= len(shape):
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"index: expected less than the {len(shape)} dimensions, got {index}")
    return shape[index]


@c_value_function("void aclSetTensorDescName(aclTensorDesc *desc, const char *name)")
def aclSetTensorDescName(desc: int, name: str | None) -> int:
    """Set a tensor's name, which operators ignore: they use the position."""
    _desc(desc).name = name or ""
    return 0


@c_value_function("const char *aclGetTensorDescName(aclTensorDesc *desc)", null="")
def aclGetTensorDescName(desc: int) -> str:
    """Return a tensor's name."""
    return _desc(desc).name


@c_function("aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format)")
def aclSetTensorFormat(desc: int, format: int) -> None:
    """Set the storage format."""
    _desc(desc).format = Format(format)


@c_function(
    "aclError aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims)", arrays={"dims": "numDims"}
)
def aclSetTensorShape(desc: int, numDims: int, dims: Sequence[int] | None) -> None:
    """Accept storage dimensions, without effect: in all supported formats they equal the tensor's own."""
    _desc(desc)


@c_function("aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType)")
def aclSetTensorPlaceMent(desc: int, memType: int) -> None:
    """Set the memory type: device memory, or host memory, which is copied to the device."""
    _desc(desc).on_host = memType in _HOST


@c_function("aclError aclSetTensorConst(aclTensorDesc *desc, void *dataBuffer, size_t length)")
def aclSetTensorConst(desc: int, dataBuffer: int, length: int) -> None:
    """Set a tensor's values from host memory, which is copied."""
    if not dataBuffer or not length:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"dataBuffer: expected {max(1, length)} bytes, got null or none")
    memory.check_range(dataBuffer, length, "dataBuffer")
    _desc(desc).constant = ctypes.string_at(dataBuffer, length)


@c_value_function("aclDataBuffer *aclCreateDataBuffer(void *data, size_t size)")
def aclCreateDataBuffer(data: int | None, size: int) -> int:
    """Create a description of memory."""
    return handles.insert(DataBuffer(data or 0, size))


@c_function("aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer)")
def aclDestroyDataBuffer(dataBuffer: int) -> None:
    """Destroy a description of memory; the memory stays."""
    take(dataBuffer, DataBuffer, "dataBuffer", ACL_ERROR_INVALID_PARAM)


@c_function("aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size)")
def aclUpdateDataBuffer(dataBuffer: int, data: int | None, size: int) -> None:
    """Change the memory that a buffer describes."""
    found = _buffer(dataBuffer)
    found.address, found.nbytes = data or 0, size


@c_value_function("void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer)")
def aclGetDataBufferAddr(dataBuffer: int) -> int:
    """Return the address of the memory."""
    return _buffer(dataBuffer).address


@c_value_function("uint32_t aclGetDataBufferSize(const aclDataBuffer *dataBuffer)")
def aclGetDataBufferSize(dataBuffer: int) -> int:
    """Return the low 32 bits of the memory's size, as this older call does."""
    return _buffer(dataBuffer).nbytes & 0xFFFFFFFF


@c_value_function("size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer)")
def aclGetDataBufferSizeV2(dataBuffer: int) -> int:
    """Return the size of the memory in bytes."""
    return _buffer(dataBuffer).nbytes


@c_value_function("aclopAttr *aclopCreateAttr()")
def aclopCreateAttr() -> int:
    """Create an empty set of attributes."""
    return handles.insert(OpAttr())


@c_value_function("void aclopDestroyAttr(const aclopAttr *attr)")
def aclopDestroyAttr(attr: int | None) -> int:
    """Destroy a set of attributes; null is accepted."""
    release(attr, OpAttr, "attr", ACL_ERROR_INVALID_PARAM)
    return 0


def _set(attr: int, name: str | None, value: Any) -> None:
    if not name:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "attrName: expected a name, got none")
    live(attr, OpAttr, "attr", ACL_ERROR_INVALID_PARAM)[name] = value


def _setter(word: str, c_type: str, convert: Callable[[Any], Any]) -> None:
    """Declare the function that sets an attribute of a type."""

    @c_function(f"aclError aclopSetAttr{word}(aclopAttr *attr, const char *attrName, {c_type}attrValue)")
    def set_value(attr: int, attrName: str | None, attrValue: Any) -> None:
        """Set an attribute."""
        if attrValue is None:
            raise AclnnError(ACL_ERROR_INVALID_PARAM, "attrValue: expected a string, got null")
        _set(attr, attrName, convert(attrValue))


def _given(values: Sequence[Any] | None, count: int, name: str) -> Sequence[Any]:
    """Return the values of a list; the list may be null if it is empty."""
    if values is None and count > 0:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{name}: expected {count}, got null")
    return values or ()


def _list_setter(word: str, c_type: str, convert: Callable[[Any], Any]) -> None:
    """Declare the function that sets an attribute to a list of a type."""

    @c_function(
        f"aclError aclopSetAttrList{word}(aclopAttr *attr, const char *attrName, int numValues, {c_type} *values)",
        arrays={"values": "numValues"},
    )
    def set_values(attr: int, attrName: str | None, numValues: int, values: Sequence[Any] | None) -> None:
        """Set an attribute to a list."""
        _set(attr, attrName, tuple(map(convert, _given(values, numValues, "values"))))


_setter("Bool", "uint8_t ", bool)
_setter("Int", "int64_t ", int)
_setter("Float", "float ", float)
_setter("String", "const char *", str)
_setter("DataType", "aclDataType ", DataType)
_list_setter("Bool", "const uint8_t", bool)
_list_setter("Int", "const int64_t", int)
_list_setter("Float", "const float", float)


@c_function(
    "aclError aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists, const int *numValues, "
    "const int64_t *const *values)",
    arrays={"numValues": "numLists", "values": "numLists"},
)
def aclopSetAttrListListInt(
    attr: int, attrName: str | None, numLists: int, numValues: Sequence[int] | None, values: Sequence[int | None] | None
) -> None:
    """Set an attribute to a list of lists."""
    lists = []
    numbers, addresses = _given(numValues, numLists, "numValues"), _given(values, numLists, "values")
    for count, address in zip(numbers, addresses, strict=False):
        if count < 0:
            raise AclnnError(ACL_ERROR_INVALID_PARAM, f"numValues: expected numbers of at least 0, got {count}")
        if count:
            if not address:
                raise AclnnError(ACL_ERROR_INVALID_PARAM, f"values: expected {count} numbers, got null")
            memory.check_range(address, 8 * count, "values")
        lists.append(tuple((ctypes.c_int64 * count).from_address(address or 0)))
    _set(attr, attrName, tuple(lists))


class _Operand:
    """A tensor of a call: description and memory."""

    def __init__(self, desc: int | None, buffer: int | None, what: str, at: int) -> None:
        self.name = f"{what}s[{at}]"
        self.desc, self.buffer = _desc(desc or 0, f"{what}Desc[{at}]"), _buffer(buffer or 0, self.name)
        shape = self.desc.shape
        if not self.buffer.address and self.buffer.nbytes:
            text = f"{self.name}: expected {self.buffer.nbytes} bytes at an address, got null"
            raise AclnnError(ACL_ERROR_INVALID_PARAM, text)
        if min(shape, default=0) < 0:
            text = f"{what}Desc[{at}]: expected extents of at least 0, got {list(shape)}"
            raise AclnnError(ACL_ERROR_INVALID_PARAM, text)
        nowhere = not self.buffer.address and self.desc.constant is None and self.desc.elements
        self.tensor = None
        if self.desc.dtype != DataType.DT_UNDEFINED and not nowhere:
            nbytes, constant = self.desc.nbytes, self.desc.constant
            got = self.buffer.nbytes if constant is None else len(constant)
            if got < nbytes:
                raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{self.name}: expected {nbytes} bytes, got {got}")
            strides = contiguous_strides(shape)
            self.tensor = Tensor(self.desc.dtype, shape, strides, 0, Format.FORMAT_ND, shape, self.buffer.address)

    @property
    def is_on_host(self) -> bool:
        """True if the values are in host memory."""
        return self.tensor is not None and (self.desc.on_host or self.desc.constant is not None)


def _operands(descs: Sequence[int | None] | None, buffers: Sequence[int | None] | None, what: str) -> list[_Operand]:
    if (descs is None) != (buffers is None):
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{what}Desc: expected it and {what}s, got one and null")
    pairs = zip(descs or (), buffers or (), strict=True)
    return [_Operand(desc, buffer, what, at) for at, (desc, buffer) in enumerate(pairs)]


def _on_device(operand: _Operand, tensor: Tensor, budget: memory.Budget) -> np.ndarray[Any, Any] | None:
    """Copy a tensor from the host to the device; return its values, None for a type that NumPy lacks."""
    desc, address = operand.desc, operand.buffer.address
    nbytes, data = desc.nbytes, desc.constant
    if data is None:
        if nbytes:
            memory.check_range(address, nbytes, operand.name)
        data = ctypes.string_at(address, nbytes)
    tensor.address = memory.allocate(max(1, nbytes), budget).address
    ctypes.memmove(tensor.address, data, nbytes)
    return np.frombuffer(data, desc.dtype.numpy, desc.elements).reshape(desc.shape) if desc.dtype.has_numpy else None


def _execute(
    op_type: str | None,
    input_descs: Sequence[int | None] | None,
    inputs: Sequence[int | None] | None,
    output_descs: Sequence[int | None] | None,
    outputs: Sequence[int | None] | None,
    attr: int | None,
    stream: int | None,
) -> None:
    if op_type is None:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "opType: expected a string, got null")
    read, written = _operands(input_descs, inputs, "input"), _operands(output_descs, outputs, "output")
    if written and all(0 in operand.desc.shape for operand in written):
        return
    queue = devices.stream_of(stream)
    device = queue.context.device
    known = TYPES.get(op_type)
    if known is None:
        text = f"opType: expected a type of the list in docs/c-functions.md, got {op_type}"
        raise AclnnError(CODES["ACL_ERROR_API_NOT_SUPPORT"], text)
    attributes = live(attr, OpAttr, "attr", ACL_ERROR_INVALID_PARAM) if attr else {}
    values: list[np.ndarray[Any, Any] | None] = []
    with ExitStack() as done:
        for operand in read:
            found = None
            if operand.tensor is not None and operand.is_on_host:
                found = _on_device(operand, operand.tensor, device.budget)
                done.callback(memory.free, operand.tensor.address, operand.name)
            values.append(found)
        given = Given([each.tensor for each in read], [each.tensor for each in written], attributes, values)
        try:
            executor = prepare(known.operator, known.arguments(given))
            nbytes = executor.asked_bytes
            workspace = memory.allocate(nbytes, device.budget).address if nbytes else 0
            if workspace:
                done.callback(memory.free, workspace, "workspace")
            executor.run(workspace, nbytes, queue, device)
            for operand in written:  # an operator that finds the shape has set it
                if operand.tensor is not None:
                    operand.desc.shape = operand.tensor.shape
        except AclnnError as error:
            text = error.message if error.function == op_type else f"{op_type}: {error.message}"
            raise AclnnError(error.code, text) from None


def _tensors(desc: str, read: str) -> str:
    """Return the tensor parameters of a prototype, given the C types of descriptions and inputs."""
    inputs = f"int numInputs, {desc}inputDesc, {read}inputs"
    return f"{inputs}, int numOutputs, {desc}outputDesc, aclDataBuffer *const *outputs"


_CONSTANT = _tensors("const aclTensorDesc *const *", "const aclDataBuffer *const *")
_VARIABLE = _tensors("aclTensorDesc **", "aclDataBuffer **")
_COUNTED = dict.fromkeys(("inputDesc", "inputs"), "numInputs") | dict.fromkeys(("outputDesc", "outputs"), "numOutputs")


def _compiling(version: str, tensors: str, constant: str) -> None:
    """Declare a function that executes an operator by type; its two versions differ in ``const``."""

    @c_function(
        f"aclError aclopCompileAndExecute{version}(const char *opType, {tensors}, {constant}aclopAttr *attr, "
        "aclopEngineType engineType, aclopCompileType compileFlag, const char *opPath, aclrtStream stream)",
        arrays=_COUNTED,
    )
    def execute(
        opType: str | None,
        numInputs: int,
        inputDesc: Sequence[int | None] | None,
        inputs: Sequence[int | None] | None,
        numOutputs: int,
        outputDesc: Sequence[int | None] | None,
        outputs: Sequence[int | None] | None,
        attr: int | None,
        engineType: int,
        compileFlag: int,
        opPath: str | None,
        stream: int | None,
    ) -> None:
        """Queue an operator given by its type."""
        if compileFlag not in ENUMS["aclopCompileType"].values():
            raise AclnnError(CODES["ACL_ERROR_API_NOT_SUPPORT"], f"compileFlag: expected 0 or 1, got {compileFlag}")
        if compileFlag == _UNREGISTERED and opPath is None:
            raise AclnnError(ACL_ERROR_INVALID_PARAM, "opPath: expected a string with compileFlag 1, got null")
        _execute(opType, inputDesc, inputs, outputDesc, outputs, attr, stream)


_compiling("", _CONSTANT, "const ")
_compiling("V2", _VARIABLE, "")


@c_function(
    f"aclError aclopExecuteV2(const char *opType, {_VARIABLE}, const aclopAttr *attr, aclrtStream stream)",
    arrays=_COUNTED,
)
def aclopExecuteV2(
    opType: str | None,
    numInputs: int,
    inputDesc: Sequence[int | None] | None,
    inputs: Sequence[int | None] | None,
    numOutputs: int,
    outputDesc: Sequence[int | None] | None,
    outputs: Sequence[int | None] | None,
    attr: int | None,
    stream: int | None,
) -> None:
    """Queue an operator given by its type."""
    _execute(opType, inputDesc, inputs, outputDesc, outputs, attr, stream)
