"""DLPack capsules: address, data type, shape and strides of an array of another library.

The struct is read here because NumPy's ``from_dlpack`` does not support bfloat16. Its layout is that of dlpack.h,
versions 0.8 and 1.x. A capsule of version 1 has a read-only flag. An older capsule has none: as in NumPy, its memory is
taken as read-only, unless the exporter is a torch tensor or is writable according to its ``__array_interface__`` or the
buffer protocol.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import contiguous_strides

_CPU_DEVICES = (1, 3)  # kDLCPU and host memory pinned by CUDA

_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_BY_CODE_AND_BITS = {
    (0, 8): DataType.INT8,
    (0, 16): DataType.INT16,
    (0, 32): DataType.INT32,
    (0, 64): DataType.INT64,
    (1, 8): DataType.UINT8,
    (1, 16): DataType.UINT16,
    (1, 32): DataType.UINT32,
    (1, 64): DataType.UINT64,
    (2, 16): DataType.FLOAT16,
    (2, 32): DataType.FLOAT,
    (2, 64): DataType.DOUBLE,
    (4, 16): DataType.BF16,
    (5, 64): DataType.COMPLEX64,
    (5, 128): DataType.COMPLEX128,
    (6, 8): DataType.BOOL,
}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


class Exported(NamedTuple):
    """Contents of a capsule. The capsule keeps the memory alive and must outlive every use of the address."""

    dtype: DataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    capsule: object


def read(array: Any, writable: bool = False) -> Exported:
    """Export an array on the CPU by ``__dlpack__``, without a copy.

    Raises:
        TypeError: the array is on another device, does not share its memory (such as a torch tensor that requires
            grad), has no memory (such as a tensor inside torch.func), has a data type that ACL lacks, or is not known
            to be writable although ``writable`` is set.
    """
    try:
        device, number = map(int, array.__dlpack_device__())
        capsule = _export(array) if device in _CPU_DEVICES else None
    except Exception as error:  # other libraries raise errors of any type
        text = f"expected an array on the CPU that shares its memory ({error}), got {type_name(array)}"
        raise TypeError(text) from None
    if device not in _CPU_DEVICES:
        raise TypeError(f"expected an array on the CPU, got one on DLPack device {device}:{number}")
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, flags = versioned.tensor, versioned.flags
    elif _is_valid(capsule, b"dltensor"):
        tensor, flags = _DLTensor.from_address(_pointer_of(capsule, b"dltensor")), None
    else:
        raise TypeError(
            f"expected an array that exports a DLPack capsule, got {type_name(array)}, which gave {capsule!r}"
        )
    dtype = _BY_CODE_AND_BITS.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise TypeError(f"expected a data type that ACL has, got DLPack code {tensor.code} with {tensor.bits} bits")
    shape = tuple(tensor.shape[: tensor.ndim])
    if min(shape, default=0) < 0:
        raise TypeError(f"expected extents of at least 0, got {list(shape)}")
    if writable and flags is None and not _known_writable(array):
        raise TypeError(f"expected a writable array, got {type_name(array)}, which does not state that it is writable")
    if writable and flags and flags & _READ_ONLY:
        raise TypeError("expected a writable array, got a read-only one")
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous_strides(shape)
    if not tensor.data and 0 not in shape:
        raise TypeError(f"expected an array with memory, got a null address for shape {list(shape)}")
    return Exported(dtype, shape, strides, (tensor.data or 0) + tensor.byte_offset, capsule)


def type_name(value: object) -> str:
    """Return the full name of a value's type, such as ``builtins.list``."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def is_torch(kind: type) -> bool:
    """Return true for ``torch.Tensor`` and its subclasses, without importing PyTorch."""
    return kind.__name__ == "Tensor" and kind.__module__ == "torch"


def _known_writable(exporter: Any) -> bool:
    """Return true if an exporter is known to be writable although its capsule has no flag."""
    if any(map(is_torch, type(exporter).__mro__)):
        return True
    try:
        if (interface := getattr(exporter, "__array_interface__", None)) is not None:
            return not interface["data"][1]
        with memoryview(exporter) as buffer:
            return not buffer.readonly
    except (TypeError, ValueError, LookupError, BufferError):
        return False


def _export(array: Any) -> object:
    if getattr(array, "is_neg", bool)():  # torch exports its memory, which holds negated values
        raise BufferError("Can't export tensors with the negative bit set, use tensor.resolve_neg()")
    try:
        return array.__dlpack__(max_version=(1, 0), copy=False)
    except TypeError:  # a producer older than DLPack 1.0
        return array.__dlpack__()
