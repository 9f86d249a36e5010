"""The runtime under pyACL's names and return habits: ``from aclnn import acl`` where a program has ``import acl``.

Every call returns its status last: ``ret``, or ``(result, …, ret)``. Addresses and handles are integers; they are the
same as in ``aclnn.capi``, whose functions these are.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from aclnn import capi
from aclnn.capi.prototype import FUNCTIONS
from aclnn.runtime import memory

__all__ = ["finalize", "get_recent_err_msg", "get_soc_name", "get_version", "init", "rt", "util"]

#: The C function behind each name of ``rt``.
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


def _status_last(c_name: str) -> Callable[..., Any]:
    call: Callable[..., Any] = getattr(capi, c_name)
    if not FUNCTIONS[c_name].returns_status or not FUNCTIONS[c_name].outputs:
        return call

    def turned(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        status, *results = call(*args, **kwargs)
        return (*results, status)

    turned.__doc__ = call.__doc__
    return turned


# NumPy's type numbers, as pyACL's constants have them.
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
    """Address of a bytes object's content, valid as long as the object lives.

    Raises:
        TypeError: not a bytes object.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"acl.util.bytes_to_ptr: data: expected bytes, got {data!r}")
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of ``size`` bytes at an address.

    Raises:
        ValueError: null, or a negative size.
        AclnnError: 107000, device memory that is not (all) allocated.
    """
    _check_address("ptr_to_bytes", ptr, size)
    return ctypes.string_at(ptr, size)


def numpy_contiguous_to_ptr(array: npt.NDArray[Any]) -> int:
    """Address of an array's first element, valid as long as the array lives.

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
    """Address of an array's first element, whatever its strides (deprecated by pyACL)."""
    address: int = array.__array_interface__["data"][0]
    return address


def ptr_to_numpy(ptr: int, shape: Sequence[int], npy_type: int) -> npt.NDArray[Any]:
    """An array over the memory at an address, which the caller keeps alive (deprecated by pyACL).

    Raises:
        ValueError: null, an unknown type number or a negative dimension.
        AclnnError: 107000, device memory that is not (all) allocated.
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
init = _status_last("aclInit")
finalize = _status_last("aclFinalize")
get_soc_name = _status_last("aclrtGetSocName")
get_version = _status_last("aclrtGetVersion")
get_recent_err_msg = _status_last("aclGetRecentErrMsg")
