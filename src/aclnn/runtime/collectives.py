"""Messages of a communicator's ranks in each collective function, and the order in which reductions add up.

A reduction's elements are divided among the ranks; each collects its part of every rank, reduces it in the order of
the ranks, 16-bit types in float32 with one rounding at the end, and hands it to whoever wants it. So every rank gets
the same bits, on every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from aclnn.runtime.communicators import POINT_TO_POINT, Communicator, Message

Bytes = memoryview
Array = npt.NDArray[Any]

SUM, PROD, MAX, MIN = range(4)
_FUNCTIONS: dict[int, np.ufunc] = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum}


class Reduction:
    """An operation on elements of a type."""

    def __init__(self, operation: int, dtype: np.dtype[np.generic]) -> None:
        self._function, self._dtype = _FUNCTIONS[operation], dtype
        # NumPy knows bfloat16 as no number, float16 as one that it would round after each step.
        self._wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype

    def __call__(self, parts: Sequence[Bytes]) -> Bytes:
        """Reduce parts in their order."""
        with np.errstate(all="ignore"):
            total = self._array(parts[0]).astype(self._wide)
            for part in parts[1:]:
                self._function(total, self._array(part).astype(self._wide, copy=False), out=total)
            return total.astype(self._dtype, copy=False).view(np.uint8).data

    def _array(self, part: Bytes) -> npt.NDArray[np.generic]:
        return np.asarray(part).view(self._dtype)

    def shares(self, size: int, whole: Bytes) -> list[Bytes]:
        """Divide elements among so many ranks."""
        unit = self._dtype.itemsize
        count = len(whole) // unit
        bounds = [unit * (count * rank // size) for rank in range(size + 1)]
        return [whole[first:last] for first, last in pairwise(bounds)]


def equal_parts(size: int, whole: Bytes) -> list[Bytes]:
    """Divide memory into one part for each rank."""
    each = len(whole) // size
    return [whole[rank * each : (rank + 1) * each] for rank in range(size)]


def reduced_part(comm: Communicator, function: str, reduction: Reduction, parts: Sequence[Bytes]) -> Bytes:
    """This rank's part, reduced; ``parts`` are this rank's operands for each of them."""
    own = parts[comm.rank]
    received = [Bytes(bytearray(len(own))) for _ in range(comm.size)]
    comm.exchange(function, enumerate(parts), enumerate(received))
    return reduction(received)


def all_reduce(comm: Communicator, function: str, reduction: Reduction, source: Bytes, target: Bytes) -> None:
    """Everybody gets the reduction of all sources."""
    part = reduced_part(comm, function, reduction, reduction.shares(comm.size, source))
    all_gather(comm, function, part, reduction.shares(comm.size, target))


def reduce(
    comm: Communicator, function: str, reduction: Reduction, source: Bytes, target: Bytes | None, root: int
) -> None:
    """The root gets the reduction of all sources."""
    part = reduced_part(comm, function, reduction, reduction.shares(comm.size, source))
    receives = [] if target is None else enumerate(reduction.shares(comm.size, target))
    comm.exchange(function, [(root, part)], receives)


def all_gather(comm: Communicator, function: str, source: Bytes, targets: Sequence[Bytes]) -> None:
    """Everybody gets every rank's source."""
    comm.exchange(function, ((rank, source) for rank in range(comm.size)), enumerate(targets))


def broadcast(comm: Communicator, function: str, data: Bytes, root: int) -> None:
    """Everybody gets the root's data."""
    others = [rank for rank in range(comm.size) if rank != root]
    if comm.rank == root:
        comm.exchange(function, ((rank, data) for rank in others), ())
    else:
        comm.exchange(function, (), [(root, data)])


def scatter(comm: Communicator, function: str, source: Bytes | None, target: Bytes, root: int) -> None:
    """Each rank gets its part of the root's source."""
    sends = () if source is None else enumerate(equal_parts(comm.size, source))
    comm.exchange(function, sends, [(root, target)])


def all_to_all(comm: Communicator, function: str, sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
    """Each rank gets from each other the part that is meant for it."""
    comm.exchange(function, enumerate(sources), enumerate(targets))


def barrier(comm: Communicator, function: str) -> None:
    """Nobody goes on before all have come."""
    empty = [Bytes(b"")] * comm.size
    comm.exchange(function, enumerate(empty), enumerate(empty))


def send_and_receive(comm: Communicator, sends: Sequence[Message], receives: Sequence[Message]) -> None:
    """Messages between two ranks, whichever functions the other calls for them."""
    comm.exchange(POINT_TO_POINT, sends, receives)


def _bytes(values: Array) -> Bytes:
    """The memory of a C-contiguous array."""
    return values.reshape(-1).view(np.uint8).data


class Ranks:
    """What a function exchanges, as arrays, with the other ranks of its communicator, which call it too."""

    def __init__(self, comm: Communicator, function: str) -> None:
        self.size, self.rank = comm.size, comm.rank
        self._comm, self._function = comm, function

    def total(self, values: Array) -> Array:
        """Return the sum of all ranks' arrays, which have one shape."""
        values = np.ascontiguousarray(values)
        found = np.empty_like(values)
        all_reduce(self._comm, self._function, Reduction(SUM, values.dtype), _bytes(values), _bytes(found))
        return found

    def total_of_own(self, parts: Array) -> Array:
        """Return the sum of all ranks' parts for this one; ``parts`` has one for each rank."""
        parts = np.ascontiguousarray(parts)
        found = reduced_part(self._comm, self._function, Reduction(SUM, parts.dtype), [*map(_bytes, parts)])
        return np.asarray(found).view(parts.dtype).reshape(parts.shape[1:])

    def gathered(self, values: Array) -> Array:
        """Return all ranks' arrays, which have one shape, along a new first dimension."""
        found = np.empty((self.size, *values.shape), values.dtype)
        all_gather(self._comm, self._function, _bytes(np.ascontiguousarray(values)), [*map(_bytes, found)])
        return found

    def exchange(self, parts: Iterable[Array], received: Iterable[Array]) -> None:
        """Send each rank its part, and receive every rank's for this one into C-contiguous arrays of any shapes."""
        sent = [_bytes(np.ascontiguousarray(part)) for part in parts]
        all_to_all(self._comm, self._function, sent, [*map(_bytes, received)])
