"""Ranks of a communicator that are threads of this process, each with a device and a stream of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from aclnn import cann
from aclnn.core.dtypes import DataType
from aclnn.core.products import Product
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.runtime import communicators, devices
from aclnn.runtime.communicators import Communicator
from tests.helpers.library import BY_NAME


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


GROUP = "stand-in"


class _Alone(Communicator):
    """A rank of two, of which the other never says a thing."""

    def exchange(self, *given: Any) -> None:
        """Receive nothing."""


@pytest.fixture
def a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A communicator of two ranks by the name of GROUP, for calls whose results nobody looks at."""
    assert cann.aclrtSetDevice(0) == 0
    monkeypatch.setattr(communicators._live, "current", {})
    _Alone(2, 0, GROUP, {}, devices.current().device)


def computed_by_ranks(
    name: str, calls: list[Mapping[str, Any]], product: Product = Product.ATLAS_A2
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Run an operator on a rank for each call, of arrays in the place of tensors; return these as they are then.

    Each array lies in device memory in the order in which NumPy has it; None stands for the rank's group.
    """

    def work(rank: Rank) -> dict[str, np.ndarray[Any, Any]]:
        arguments, placed = dict(calls[rank.number]), {}
        arguments["group"] = rank.name
        for key, value in arguments.items():
            if isinstance(value, np.ndarray):
                base = value.T if value.ndim == 2 and not value.flags.c_contiguous else value
                placed[key] = rank.device(base), base, base is not value
                strides = [stride // value.itemsize for stride in value.strides]
                arguments[key] = Tensor(
                    DataType.of_numpy(value.dtype), value.shape, strides, address=placed[key][0], owner=base
                )
        stream = devices.stream_of(rank.stream)
        prepare(BY_NAME[name], arguments, product).run(stream=stream, memory=stream.context.device)
        found = {}
        for key, (address, base, turned) in placed.items():
            array = rank.result(address, base.size, base.dtype).reshape(base.shape)
            found[key] = array.T if turned else array
        return found

    return on_devices(work, len(calls))
