"""An aclnn program in Python, in the steps of CANN's sample programs: device memory, tensors, the two phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from aclnn import capi
from aclnn.core.dtypes import DataType, Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.status import AclnnError
from aclnn.typing import Array


class Program:
    """Context manager for a program from ``aclInit`` to ``aclFinalize``, on device 0 with one stream."""

    def __init__(self) -> None:
        self.calls = 0
        """Number of operator calls so far."""
        self._stream = 0

    def __enter__(self) -> Program:
        with ExitStack() as undone:
            _expect(capi.aclInit(None))
            undone.callback(capi.aclFinalize)
            _expect(capi.aclrtSetDevice(0))
            undone.callback(capi.aclrtResetDevice, 0)
            self._stream = _expect(capi.aclrtCreateStream())
            undone.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        capi.aclrtDestroyStream(self._stream)
        capi.aclrtResetDevice(0)
        capi.aclFinalize()

    def call(self, operator: Operator, arguments: Mapping[str, Any]) -> None:
        """Copy the arguments to the device, run both phases, synchronize, and copy the outputs back into their arrays.

        Args:
            operator: the operator.
            arguments: all arguments by C name: contiguous arrays for tensors, tuples and strings for attributes, None
                for null.

        Raises:
            AclnnError: a call fails; the error has its status and message.
        """
        releases: list[tuple[Callable[[int], int], int]] = []
        with _cleanup(releases):
            addresses, handles = {}, []
            for parameter in operator.parameters:
                value = arguments[parameter.name]
                if isinstance(value, np.ndarray):
                    address = addresses[parameter.name] = self._upload(value, releases)
                    handles.append(_tensor(value, address, releases))
                else:
                    handles.append(_attribute(parameter.kind, value, releases))
            size, executor = _expect(getattr(capi, operator.phase_one)(*handles))
            workspace = _malloc(size, releases) if size else 0
            _expect(getattr(capi, operator.function)(workspace, size, executor, self._stream))
            _expect(capi.aclrtSynchronizeStream(self._stream))
            for parameter in (*operator.outputs, *(p for p in operator.inputs if p.updated)):
                if (array := arguments[parameter.name]) is not None:
                    _copy(_address(array), addresses[parameter.name], array.nbytes, capi.ACL_MEMCPY_DEVICE_TO_HOST)
        self.calls += 1

    def _upload(self, array: Array, releases: list[tuple[Callable[[int], int], int]]) -> int:
        address = _malloc(array.nbytes, releases)
        _copy(address, _address(array), array.nbytes, capi.ACL_MEMCPY_HOST_TO_DEVICE)
        return address


@contextmanager
def _cleanup(releases: list[tuple[Callable[[int], int], int]]) -> Iterator[None]:
    try:
        yield
    finally:
        for release, handle in reversed(releases):
            release(handle)


def _expect(result: Any) -> Any:
    """Require status 0 and return the other results of a C function."""
    status, *values = result if isinstance(result, tuple) else (result,)
    if status:
        raise AclnnError(status, capi.aclGetRecentErrMsg() or "no text")
    return values[0] if len(values) == 1 else tuple(values)


def _address(array: Array) -> int:
    return int(array.ctypes.data)


def _malloc(nbytes: int, releases: list[tuple[Callable[[int], int], int]]) -> int:
    address: int = _expect(capi.aclrtMalloc(nbytes, capi.ACL_MEM_MALLOC_HUGE_FIRST))
    releases.append((capi.aclrtFree, address))
    return address


def _copy(destination: int, source: int, nbytes: int, kind: int) -> None:
    _expect(capi.aclrtMemcpy(destination, nbytes, source, nbytes, kind))


def _tensor(array: Array, address: int, releases: list[tuple[Callable[[int], int], int]]) -> int:
    dtype, shape = DataType.of_numpy(array.dtype), array.shape
    strides = tuple(stride // array.itemsize for stride in array.strides)
    handle: int = capi.aclCreateTensor(
        shape, len(shape), dtype, strides, 0, Format.FORMAT_ND, shape, len(shape), address
    )
    releases.append((capi.aclDestroyTensor, handle))
    return handle


def _attribute(kind: Kind, value: Any, releases: list[tuple[Callable[[int], int], int]]) -> Any:
    makers = {
        Kind.INT_ARRAY: (capi.aclCreateIntArray, capi.aclDestroyIntArray),
        Kind.BOOL_ARRAY: (capi.aclCreateBoolArray, capi.aclDestroyBoolArray),
    }
    if kind not in makers:
        return value
    create, destroy = makers[kind]
    handle = create(value, len(value))
    releases.append((destroy, handle))
    return handle
