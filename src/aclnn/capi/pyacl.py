"""The runtime under pyACL's names and conventions: ``from aclnn import acl`` replaces ``import acl``.

Every call returns its status last: ``ret``, or ``(result, …, ret)``. Addresses and handles are integers, the same as
those of ``aclnn.capi``, whose functions are called.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from aclnn import capi
from aclnn.capi.prototype import FUNCTIONS
from aclnn.runtime import memory

__all__ = [
    "create_data_buffer",
    "create_tensor_desc",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "finalize",
    "get_data_buffer_addr",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "get_version",
    "init",
    "op",
    "rt",
    "set_tensor_const",
    "set_tensor_desc_name",
    "set_tensor_format",
    "set_tensor_shape",
    "update_data_buffer",
    "util",
]

#: C function of each name in ``rt``.
_RT_C_NAMES = {
    "set_device": "aclrtSetDevice",
    "reset_device": "aclrtResetDevice",
    "get_device": "aclrtGetDevice",
    "get_device_count": "aclrtGetDeviceCount",
    "get_run_mode": "aclrtGetRunMode",
    "create_context": "aclrtCreateContext",
    "destroy_context": "aclrtDestroyContext",
    "set_context": "aclrtSetCurrentContext",
    "get_context": "aclrtGetCurrentContext",
    "create_stream": "aclrtCreateStream",
    "destroy_stream": "aclrtDestroyStream",
    "set_stream_failure_mode": "aclrtSetStreamFailureMode",
    "synchronize_stream": "aclrtSynchronizeStream",
    "synchronize_device": "aclrtSynchronizeDevice",
    "create_event": "aclrtCreateEvent",
    "create_event_with_flag": "aclrtCreateEventWithFlag",
    "record_event": "aclrtRecordEvent",
    "synchronize_event": "aclrtSynchronizeEvent",
    "destroy_event": "aclrtDestroyEvent",
    "stream_wait_event": "aclrtStreamWaitEvent",
    "reset_event": "aclrtResetEvent",
    "query_event_status": "aclrtQueryEventStatus",
    "event_elapsed_time": "aclrtEventElapsedTime",
    "malloc": "aclrtMalloc",
    "free": "aclrtFree",
    "malloc_host": "aclrtMallocHost",
    "free_host": "aclrtFreeHost",
    "memcpy": "aclrtMemcpy",
    "memcpy_async": "aclrtMemcpyAsync",
    "memset": "aclrtMemset",
    "memset_async": "aclrtMemsetAsync",
    "get_mem_info": "aclrtGetMemInfo",
}


_OP_C_NAMES = {"create_attr": "aclopCreateAttr", "destroy_attr": "aclopDestroyAttr", "execute_v2": "aclopExecuteV2"} | {
    f"set_attr_{word}": f"aclopSetAttr{word.title().replace('_', '')}"
    for word in ("bool", "int", "float", "string", "data_type", "list_bool", "list_int", "list_float")
}


def _status_last(c_name: str) -> Callable[..., Any]:
    """Return a C function with its status last and without element counts, which pyACL derives."""
    call: Callable[..., Any] = getattr(capi, c_name)
    function = FUNCTIONS[c_name]
    names = {p.name for p in function.inputs}
    arrays: dict[str, list[str]] = {}
    for p in function.inputs:
        if p.counted_by in names:
            arrays.setdefault(p.counted_by, []).append(p.name)
    turns = function.returns_status and function.outputs
    if not arrays and not turns:
        return call
    signature = inspect.signature(call)
    taken = signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in arrays])

    @functools.wraps(call)
    def turned(*args: Any, **kwargs: Any) -> Any:
        if arrays:
            args, kwargs = (), taken.bind(*args, **kwargs).arguments
            kwargs |= {count: _length(c_name, {name: kwargs[name] for name in of}) for count, of in arrays.items()}
        result = call(*args, **kwargs)
        if not turns:
            return result
        status, *results = result
        return (*results, status)

    if turns:
        results = ", ".join(p.name for p in function.outputs)
        turned.__doc__ = f"{inspect.getdoc(function.implementation)}\n\nReturns ``({results}, ret)``."
        types = (*(p.python_type for p in function.outputs), int)
        taken = taken.replace(return_annotation=GenericAlias(tuple, types))
    turned.__signature__ = taken  # type: ignore[attr-defined]  # inspect honours it
    return turned


def _length(function: str, arrays: Mapping[str, Sequence[Any] | None]) -> int:
    """Return the common length of arrays that share a C element count; null arrays fit any length.

    Raises:
        ValueError: they differ.
    """
    lengths = {name: len(array) for name, array in arrays.items() if array is not None}
    if len({*lengths.values()}) > 1:
        got = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise ValueError(f"{function}: {', '.join(lengths)}: expected equally many elements, got {got}")
    return next(iter(lengths.values()), 0)


# NumPy's type numbers, which pyACL's constants use.
_NUMPY_TYPES = {
    0: np.bool_,
    1: np.int8,
    2: np.uint8,
    3: np.int16,
    4: np.uint16,
    5: np.int32,
    6: np.uint32,
    7: np.int64,
    8: np.uint64,
    11: np.float32,
    12: np.float64,
    23: np.float16,
}


def bytes_to_ptr(data: bytes) -> int:
    """Return the address of a bytes object's content, valid as long as the object lives.

    Raises:
        TypeError: not a bytes object.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"acl.util.bytes_to_ptr: data: expected bytes, got {data!r}")
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """Return a copy of ``size`` bytes at an address.

    Raises:
        ValueError: null, or a negative size.
        AclnnError: 107000, device memory that is not entirely allocated.
    """
    _check_address("ptr_to_bytes", ptr, size)
    return ctypes.string_at(ptr, size)


def numpy_contiguous_to_ptr(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element, valid as long as the array lives.

    Raises:
        ValueError: the array is not C-contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError(
            f"acl.util.numpy_contiguous_to_ptr: array: expected a C-contiguous array, "
            f"got shape {array.shape} with strides {array.strides} in bytes"
        )
    return numpy_to_ptr(array)


def numpy_to_ptr(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element, whatever its strides (deprecated by pyACL)."""
    address: int = array.__array_interface__["data"][0]
    return address


def ptr_to_numpy(ptr: int, shape: Sequence[int], npy_type: int) -> npt.NDArray[Any]:
    """Return an array over memory at an address, kept alive by the caller (deprecated by pyACL).

    Raises:
        ValueError: null, an unknown type number or a negative dimension.
        AclnnError: 107000, device memory that is not entirely allocated.
    """
    if npy_type not in _NUMPY_TYPES:
        raise ValueError(f"acl.util.ptr_to_numpy: npy_type: expected one of {sorted(_NUMPY_TYPES)}, got {npy_type!r}")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"acl.util.ptr_to_numpy: shape: expected dimensions of 0 or more, got {tuple(shape)}")
    dtype: np.dtype[Any] = np.dtype(_NUMPY_TYPES[npy_type])
    nbytes = math.prod(shape) * dtype.itemsize
    _check_address("ptr_to_numpy", ptr, nbytes)
    buffer = (ctypes.c_char * nbytes).from_address(ptr)
    found: npt.NDArray[Any] = np.ndarray(tuple(shape), dtype, memoryview(buffer))
    return found


def _check_address(function: str, ptr: int, nbytes: int) -> None:
    if not ptr or nbytes < 0:
        raise ValueError(f"acl.util.{function}: expected the address of 0 bytes or more, got {nbytes} at {ptr!r}")
    memory.check_range(ptr, nbytes, f"acl.util.{function}: ptr")


rt = SimpleNamespace(**{name: _status_last(c_name) for name, c_name in _RT_C_NAMES.items()})
util = SimpleNamespace(
    bytes_to_ptr=bytes_to_ptr,
    ptr_to_bytes=ptr_to_bytes,
    numpy_to_ptr=numpy_to_ptr,
    numpy_contiguous_to_ptr=numpy_contiguous_to_ptr,
    ptr_to_numpy=ptr_to_numpy,
)
op = SimpleNamespace(**{name: _status_last(c_name) for name, c_name in _OP_C_NAMES.items()})
init = _status_last("aclInit")
finalize = _status_last("aclFinalize")
get_soc_name = _status_last("aclrtGetSocName")
get_version = _status_last("aclrtGetVersion")
get_recent_err_msg = _status_last("aclGetRecentErrMsg")
create_tensor_desc = _status_last("aclCreateTensorDesc")
destroy_tensor_desc = _status_last("aclDestroyTensorDesc")
get_tensor_desc_type = _status_last("aclGetTensorDescType")
get_tensor_desc_format = _status_last("aclGetTensorDescFormat")
get_tensor_desc_element_count = _status_last("aclGetTensorDescElementCount")
get_tensor_desc_size = _status_last("aclGetTensorDescSize")
get_tensor_desc_num_dims = _status_last("aclGetTensorDescNumDims")
get_tensor_desc_dim_v2 = _status_last("aclGetTensorDescDimV2")
get_tensor_desc_name = _status_last("aclGetTensorDescName")
set_tensor_desc_name = _status_last("aclSetTensorDescName")
set_tensor_format = _status_last("aclSetTensorFormat")
set_tensor_shape = _status_last("aclSetTensorShape")
set_tensor_const = _status_last("aclSetTensorConst")
create_data_buffer = _status_last("aclCreateDataBuffer")
destroy_data_buffer = _status_last("aclDestroyDataBuffer")
update_data_buffer = _status_last("aclUpdateDataBuffer")
get_data_buffer_addr = _status_last("aclGetDataBufferAddr")
get_data_buffer_size_v2 = _status_last("aclGetDataBufferSizeV2")
