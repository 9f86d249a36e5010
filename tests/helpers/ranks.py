"""Ranks of a communicator as threads of this process, each with a device and a stream of its own."""

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
from aclnn.core.status import AclnnError, HcclResult
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.runtime import communicators, devices
from aclnn.runtime.communicators import Communicator
from tests.helpers.library import BY_NAME, Array


class Rank(NamedTuple):
    """A rank with its communicator, the communicator's name, and a stream."""

    number: int
    comm: int
    stream: int
    name: str = ""

    @classmethod
    def of(cls, number: int, comm: int, stream: int) -> Rank:
        """Make a rank with its communicator's name."""
        name = ctypes.create_string_buffer(128)
        assert cann.HcclGetCommName(comm, ctypes.addressof(name)) == 0
        return cls(number, comm, stream, name.value.decode())

    def device(self, data: Any) -> int:
        """Allocate device memory with these values; return its address."""
        array = np.ascontiguousarray(data)
        status, address = cann.aclrtMalloc(max(array.nbytes, 1))
        assert status == 0
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        return address

    def result(self, address: int, count: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        """Synchronize the stream, and return the elements at an address."""
        assert cann.aclrtSynchronizeStream(self.stream) == 0, cann.aclGetRecentErrMsg()
        return np.frombuffer(ctypes.string_at(address, count * np.dtype(dtype).itemsize), dtype)


def on_devices(work: Callable[[Rank], Any], size: int = 2) -> list[Any]:
    """Run a function on each rank, in a thread and on a device of its own; return the results."""
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
    """A rank of a communicator whose other ranks never send anything."""

    def exchange(self, *given: Any) -> None:
        """Receive nothing."""


def _stand_in(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    assert cann.aclrtSetDevice(0) == 0
    monkeypatch.setattr(communicators._live, "current", {})
    _Alone(size, 0, GROUP, {}, devices.current().device)


@pytest.fixture
def a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a communicator of two ranks named GROUP, for calls whose results are not checked."""
    _stand_in(monkeypatch, 2)


@pytest.fixture
def a_group_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a communicator of eight ranks named GROUP, for calls whose results are not checked."""
    _stand_in(monkeypatch, 8)


def called(
    rank: Rank,
    name: str,
    arguments: Mapping[str, Any],
    product: Product,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, Array]:
    """Run an operator on a rank's stream, on copies of arrays in its device's memory; return these afterwards.

    Each copy has the memory order of the array in NumPy.
    """
    arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
    turned = {key for key, value in arrays.items() if value.ndim == 2 and not value.flags.c_contiguous}
    bases = {key: value.T if key in turned else value for key, value in arrays.items()}
    addresses = {key: rank.device(base) for key, base in bases.items()}
    tensors = {
        key: Tensor(
            DataType.of_numpy(value.dtype),
            value.shape,
            [stride // value.itemsize for stride in value.strides],
            address=addresses[key],
        )
        for key, value in arrays.items()
    }
    stream = devices.stream_of(rank.stream)
    prepare(BY_NAME[name], {**arguments, **tensors}, product).run(stream=stream, memory=stream.context.device)
    meanwhile()
    found = {key: rank.result(addresses[key], base.size, base.dtype).reshape(base.shape) for key, base in bases.items()}
    return {key: array.T if key in turned else array for key, array in found.items()}


def computed_by_ranks(
    name: str, calls: list[Mapping[str, Any]], product: Product = Product.ATLAS_A2
) -> list[dict[str, Array]]:
    """Run an operator with one rank for each call, as ``called`` does; ``group`` is the communicator's name."""

    def work(rank: Rank) -> dict[str, Array]:
        return called(rank, name, {**calls[rank.number], "group": rank.name}, product)

    return on_devices(work, len(calls))


class Silent:
    """A communicator whose other ranks never answer."""

    size, rank, device = 8, 1, None

    def exchange(self, function: str, sends: Any, receives: Any) -> None:
        raise AclnnError(HcclResult.HCCL_E_REMOTE, "no rank answers")


def only_group(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Define a single group, with this name: eight ranks, of which this is number 1."""
    monkeypatch.setattr(communicators, "named", lambda given: [Silent()] if given == name else [])
