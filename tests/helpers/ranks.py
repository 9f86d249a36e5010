"""Ranks of a communicator that are threads of this process, each with a device and a stream of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from aclnn import cann


class Rank(NamedTuple):
    """A rank: its communicator, of that name, and its stream."""

    number: int
    comm: int
    stream: int
    name: str = ""

    @classmethod
    def of(cls, number: int, comm: int, stream: int) -> Rank:
        """A rank that knows its communicator's name."""
        name = ctypes.create_string_buffer(128)
        assert cann.HcclGetCommName(comm, ctypes.addressof(name)) == 0
        return cls(number, comm, stream, name.value.decode())

    def device(self, data: Any) -> int:
        """Memory of the device with these values."""
        array = np.ascontiguousarray(data)
        status, address = cann.aclrtMalloc(max(array.nbytes, 1))
        assert status == 0
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return address

    def result(self, address: int, count: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        """Wait, and return what lies there."""
        assert cann.aclrtSynchronizeStream(self.stream) == 0, cann.aclGetRecentErrMsg()
        return np.frombuffer(ctypes.string_at(address, count * np.dtype(dtype).itemsize), dtype)


def on_devices(work: Callable[[Rank], Any], size: int = 2) -> list[Any]:
    """Run a function on each rank, a thread; the runtime has as many devices."""
    comms = (ctypes.c_uint64 * size)()
    assert cann.HcclCommInitAll(size, list(range(size)), ctypes.addressof(comms)) == 0, cann.aclGetRecentErrMsg()

    def run(number: int) -> Any:
        assert cann.aclrtSetDevice(number) == 0
        _, stream = cann.aclrtCreateStream()
        try:
            return work(Rank.of(number, comms[number], stream))
        finally:
            cann.aclrtDestroyStream(stream)
            cann.HcclCommDestroy(comms[number])

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
