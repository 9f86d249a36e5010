"""aclCreateTensor … aclGetScalarListSize: tensors, scalars, arrays and lists, their getters and setters.

Null is accepted where the tables say so; a handle of no live object of the right kind is an error like null.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence, Sized
from typing import Any, TypeVar

from aclnn.capi.prototype import c_function, c_value_function
from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import ACLNN_ERR_INNER, ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.core.tensor import Scalar, Tensor, contiguous_strides
from aclnn.runtime import handles, memory

T = TypeVar("T")


#: Data types that scalars may have.
SCALARS = frozenset(
    (
        *(DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64),
        *(DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64, DataType.BOOL),
        *(DataType.FLOAT16, DataType.BF16, DataType.FLOAT, DataType.DOUBLE, DataType.COMPLEX64, DataType.COMPLEX128),
    )
)


class IntArray(tuple[int, ...]):
    """``aclIntArray``."""

    __slots__ = ()


class FloatArray(tuple[float, ...]):
    """``aclFloatArray``: float32 values."""

    __slots__ = ()


class BoolArray(tuple[bool, ...]):
    """``aclBoolArray``."""

    __slots__ = ()


class TensorList(tuple[int, ...]):
    """``aclTensorList``: handles of the tensors."""

    __slots__ = ()


class ScalarList(tuple[int, ...]):
    """``aclScalarList``: handles of the scalars."""

    __slots__ = ()


def live(handle: int, kind: type[T], argument: str, code: int = ACLNN_ERR_PARAM_NULLPTR) -> T:
    """Return the object of a handle.

    Raises:
        AclnnError: null, or not a live object of that kind.
    """
    item = handles.get(handle, kind)
    if item is None:
        raise _no_such(handle, kind, argument, code)
    return item


def take(handle: int, kind: type[T], argument: str, code: int = ACLNN_ERR_PARAM_NULLPTR) -> T:
    """Return the object of a handle and remove it from the table; of two concurrent callers, one fails.

    Raises:
        AclnnError: null, or not a live object of that kind.
    """
    item = handles.pop(handle, kind)
    if item is None:
        raise _no_such(handle, kind, argument, code)
    return item


def _no_such(handle: int, kind: type[Any], argument: str, code: int) -> AclnnError:
    gone = getattr(kind, "GONE", handles.GONE)
    return AclnnError(code, f"{argument}: expected a live {kind.__name__}, got {handles.describe(handle, gone)}")


def release(handle: int | None, kind: type[T], argument: str, code: int = ACLNN_ERR_PARAM_NULLPTR) -> T | None:
    """Remove an object from the table; null is accepted."""
    return take(handle, kind, argument, code) if handle else None


@c_value_function(
    "aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, "
    "const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum, "
    "void *tensorData)",
    arrays={"viewDims": "viewDimsNum", "stride": "viewDimsNum", "storageDims": "storageDimsNum"},
)
def aclCreateTensor(
    viewDims: Sequence[int] | None,
    viewDimsNum: int,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    storageDimsNum: int,
    tensorData: int | None,
) -> int:
    """Create a tensor: a view of memory owned by the caller. Only missing dimensions are errors here."""
    for name, dims, count in (("viewDims", viewDims, viewDimsNum), ("storageDims", storageDims, storageDimsNum)):
        if dims is None and count > 0:
            raise AclnnError(ACLNN_ERR_PARAM_NULLPTR, f"{name}: expected {count} dimensions, got null")
    tensor = Tensor(
        DataType(dataType), viewDims or (), stride, offset, Format(format), storageDims or (), tensorData or 0
    )
    return handles.insert(tensor)


@c_function(
    "aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, "
    "const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum, "
    "void *tensorDataAddr)",
    arrays={"viewDims": "viewDimsNum", "stride": "viewDimsNum", "storageDims": "storageDimsNum"},
)
def aclInitTensor(
    tensor: int,
    viewDims: Sequence[int] | None,
    viewDimsNum: int,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    storageDimsNum: int,
    tensorDataAddr: int | None,
) -> None:
    """Redefine a tensor; dimensions and address that are not given stay unchanged."""
    found = live(tensor, Tensor, "tensor")
    found.shape = tuple(viewDims or found.shape)
    found.strides = contiguous_strides(found.shape) if stride is None else tuple(stride)
    found.storage_shape = tuple(storageDims or found.storage_shape)
    found.dtype, found.offset, found.format = DataType(dataType), offset, Format(format)
    found.address = tensorDataAddr or found.address


@c_function("aclnnStatus aclDestroyTensor(const aclTensor *tensor)")
def aclDestroyTensor(tensor: int | None) -> None:
    """Destroy a tensor; the memory stays."""
    release(tensor, Tensor, "tensor")


@c_function(
    "aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum)",
    arrays={"viewDims": "viewDimsNum"},
)
def aclGetViewShape(tensor: int) -> tuple[list[int], int]:
    """Return the view's dimensions and their number."""
    shape = live(tensor, Tensor, "tensor").shape
    return list(shape), len(shape)


@c_function(
    "aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum)",
    arrays={"stridesValue": "stridesNum"},
)
def aclGetViewStrides(tensor: int) -> tuple[list[int], int]:
    """Return the view's strides in elements, and their number."""
    strides = live(tensor, Tensor, "tensor").strides
    # Strides of absurd dimensions exceed int64_t; C's products wrap.
    return [ctypes.c_int64(stride).value for stride in strides], len(strides)


@c_function(
    "aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum)",
    arrays={"storageDims": "storageDimsNum"},
)
def aclGetStorageShape(tensor: int) -> tuple[list[int], int]:
    """Return the storage's dimensions and their number."""
    shape = live(tensor, Tensor, "tensor").storage_shape
    return list(shape), len(shape)


@c_function("aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset)")
def aclGetViewOffset(tensor: int) -> int:
    """Return the view's offset in elements from the start of the storage."""
    return live(tensor, Tensor, "tensor").offset


@c_function("aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format)")
def aclGetFormat(tensor: int) -> int:
    """Return the view's format."""
    return live(tensor, Tensor, "tensor").format


@c_function("aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType)")
def aclGetDataType(tensor: int) -> int:
    """Return the data type."""
    return live(tensor, Tensor, "tensor").dtype


@c_function("aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr)")
def aclGetRawTensorAddr(tensor: int) -> int:
    """Return the storage's address, without the offset."""
    return live(tensor, Tensor, "tensor").address


@c_function("aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr)")
def aclSetRawTensorAddr(tensor: int, addr: int | None) -> None:
    """Set the storage's address."""
    live(tensor, Tensor, "tensor").address = addr or 0


@c_value_function("aclScalar *aclCreateScalar(void *value, aclDataType dataType)")
def aclCreateScalar(value: int, dataType: int) -> int:
    """Create a scalar from the value at a host address; null for a data type that scalars cannot have."""
    memory.expect_address(value, "value", ACLNN_ERR_PARAM_NULLPTR)
    dtype = DataType(dataType)
    if dtype not in SCALARS:
        raise AclnnError(ACLNN_ERR_INNER, f"dataType: expected one that scalars have, got {dtype.c_name}")
    memory.check_range(value, dtype.itemsize, "value")
    return handles.insert(Scalar(dtype, ctypes.string_at(value, dtype.itemsize)))


@c_function("aclnnStatus aclDestroyScalar(const aclScalar *scalar)")
def aclDestroyScalar(scalar: int | None) -> None:
    """Destroy a scalar."""
    release(scalar, Scalar, "scalar")


def _array_functions(kind: type[Sized], element: str, copied: Callable[[Sequence[Any]], Sized]) -> None:
    """Declare the functions of a C array type; ``copied`` creates the array from its elements."""
    name = kind.__name__

    @c_value_function(f"acl{name} *aclCreate{name}(const {element} *value, uint64_t size)", arrays={"value": "size"})
    def create(value: Sequence[Any] | None, size: int) -> int:
        """Create an array with a copy of the values; null or size 0 gives an empty array."""
        return handles.insert(copied(value or ()))

    @c_function(f"aclnnStatus aclDestroy{name}(const acl{name} *array)")
    def destroy(array: int | None) -> None:
        """Destroy an array."""
        release(array, kind, "array")

    @c_function(f"aclnnStatus aclGet{name}Size(const acl{name} *array, uint64_t *size)")
    def size(array: int) -> int:
        """Return the number of elements."""
        return len(live(array, kind, "array"))


_array_functions(IntArray, "int64_t", IntArray)
_array_functions(FloatArray, "float", lambda values: FloatArray(array("f", values)))
_array_functions(BoolArray, "bool", lambda values: BoolArray(map(bool, values)))


@c_value_function(
    "aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size)", arrays={"value": "size"}
)
def aclCreateTensorList(value: Sequence[int | None] | None, size: int) -> int:
    """Create a list that owns the tensors; null or size 0 gives an empty list."""
    return handles.insert(TensorList(handle or 0 for handle in value or ()))


@c_value_function(
    "aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size)", arrays={"value": "size"}
)
def aclCreateScalarList(value: Sequence[int | None] | None, size: int) -> int:
    """Create a list that owns the scalars; null or size 0 gives an empty list."""
    return handles.insert(ScalarList(handle or 0 for handle in value or ()))


def _destroy_elements(elements: Sequence[int], kind: type[object], argument: str) -> None:
    gone = [handle for handle in dict.fromkeys(elements) if handle and handles.pop(handle, kind) is None]
    if gone:
        raise AclnnError(
            ACLNN_ERR_PARAM_NULLPTR,
            f"{argument}: expected live elements, which a list owns, got {handles.describe(gone[0])}",
        )


@c_function("aclnnStatus aclDestroyTensorList(const aclTensorList *array)")
def aclDestroyTensorList(array: int | None) -> None:
    """Destroy a list and every tensor in it."""
    _destroy_elements(release(array, TensorList, "array") or (), Tensor, "array")


@c_function("aclnnStatus aclDestroyScalarList(const aclScalarList *array)")
def aclDestroyScalarList(array: int | None) -> None:
    """Destroy a list and every scalar in it."""
    _destroy_elements(release(array, ScalarList, "array") or (), Scalar, "array")


@c_function("aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size)")
def aclGetTensorListSize(tensorList: int) -> int:
    """Return the number of tensors."""
    return len(live(tensorList, TensorList, "tensorList"))


@c_function("aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size)")
def aclGetScalarListSize(scalarList: int) -> int:
    """Return the number of scalars."""
    return len(live(scalarList, ScalarList, "scalarList"))
