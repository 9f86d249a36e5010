"""Message patterns of the collective functions, and the order of their reductions.

The elements of a reduction are divided among the ranks. Each rank receives its part from all ranks, reduces it in rank
order, 16-bit types in float32 with one rounding at the end, and sends the result to the ranks that need it. So all
ranks get the same bits, in every run.
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
    """A reduction operation on elements of one data type."""

    def __init__(self, operation: int, dtype: np.dtype[np.generic]) -> None:
        self._function, self._dtype = _FUNCTIONS[operation], dtype
        # NumPy has no arithmetic for bfloat16, and rounds float16 after each step.
        self._wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype

    def __call__(self, parts: Sequence[Bytes]) -> Bytes:
        """Reduce the parts in the given order."""
        with np.errstate(all="ignore"):
            total = self._array(parts[0]).astype(self._wide)
            for part in parts[1:]:
                self._function(total, self._array(part).astype(self._wide, copy=False), out=total)
            return total.astype(self._dtype, copy=False).view(np.uint8).data

    def _array(self, part: Bytes) -> npt.NDArray[np.generic]:
        return np.asarray(part).view(self._dtype)

    def shares(self, size: int, whole: Bytes) -> list[Bytes]:
        """Divide the elements among ``size`` ranks."""
        unit = self._dtype.itemsize
        count = len(whole) // unit
        bounds = [unit * (count * rank // size) for rank in range(size + 1)]
        return [whole[first:last] for first, last in pairwise(bounds)]


def equal_parts(size: int, whole: Bytes) -> list[Bytes]:
    """Divide memory into equal parts, one per rank."""
    each = len(whole) // size
    return [whole[rank * each : (rank + 1) * each] for rank in range(size)]


def reduced_part(comm: Communicator, function: str, reduction: Reduction, parts: Sequence[Bytes]) -> Bytes:
    """Return this rank's part of the reduction; ``parts`` holds this rank's operand for each rank's part."""
    own = parts[comm.rank]
    received = [Bytes(bytearray(len(own))) for _ in range(comm.size)]
    comm.exchange(function, enumerate(parts), enumerate(received))
    return reduction(received)


def all_reduce(comm: Communicator, function: str, reduction: Reduction, source: Bytes, target: Bytes) -> None:
    """Reduce all sources into every rank's target."""
    part = reduced_part(comm, function, reduction, reduction.shares(comm.size, source))
    all_gather(comm, function, part, reduction.shares(comm.size, target))


def reduce(
    comm: Communicator, function: str, reduction: Reduction, source: Bytes, target: Bytes | None, root: int
) -> None:
    """Reduce all sources into the root's target."""
    part = reduced_part(comm, function, reduction, reduction.shares(comm.size, source))
    receives = [] if target is None else enumerate(reduction.shares(comm.size, target))
    comm.exchange(function, [(root, part)], receives)


def all_gather(comm: Communicator, function: str, source: Bytes, targets: Sequence[Bytes]) -> None:
    """Collect every rank's source on every rank."""
    comm.exchange(function, ((rank, source) for rank in range(comm.size)), enumerate(targets))


def broadcast(comm: Communicator, function: str, data: Bytes, root: int) -> None:
    """Send the root's data to every rank."""
    others = [rank for rank in range(comm.size) if rank != root]
    if comm.rank == root:
        comm.exchange(function, ((rank, data) for rank in others), ())
    else:
        comm.exchange(function, (), [(root, data)])


def scatter(comm: Communicator, function: str, source: Bytes | None, target: Bytes, root: int) -> None:
    """Send each rank its part of the root's source."""
    sends = () if source is None else enumerate(equal_parts(comm.size, source))
    comm.exchange(function, sends, [(root, target)])


def all_to_all(comm: Communicator, function: str, sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
    """Exchange parts between all pairs of ranks."""
    comm.exchange(function, enumerate(sources), enumerate(targets))


def barrier(comm: Communicator, function: str) -> None:
    """Wait until all ranks have called this."""
    empty = [Bytes(b"")] * comm.size
    comm.exchange(function, enumerate(empty), enumerate(empty))


def send_and_receive(comm: Communicator, sends: Sequence[Message], receives: Sequence[Message]) -> None:
    """Exchange messages between pairs of ranks; the peer may use a different point-to-point function."""
    comm.exchange(POINT_TO_POINT, sends, receives)


def _bytes(values: Array) -> Bytes:
    """Return the memory of a C-contiguous array."""
    return values.reshape(-1).view(np.uint8).data


class Ranks:
    """Exchange of arrays with the other ranks of a communicator, all of which call the same function."""

    def __init__(self, comm: Communicator, function: str) -> None:
        self.size, self.rank = comm.size, comm.rank
        self._comm, self._function = comm, function

    def total(self, values: Array) -> Array:
        """Return the sum of all ranks' arrays, which have equal shapes."""
        values = np.ascontiguousarray(values)
        found = np.empty_like(values)
        all_reduce(self._comm, self._function, Reduction(SUM, values.dtype), _bytes(values), _bytes(found))
        return found

    def total_of_own(self, parts: Array) -> Array:
        """Return this rank's part of the sum over ranks (reduce-scatter); ``parts`` has one part per rank."""
        parts = np.ascontiguousarray(parts)
        found = reduced_part(self._comm, self._function, Reduction(SUM, parts.dtype), [*map(_bytes, parts)])
        return np.asarray(found).view(parts.dtype).reshape(parts.shape[1:])

    def gathered(self, values: Array) -> Array:
        """Return all ranks' arrays, which have equal shapes, stacked along a new first dimension."""
        found = np.empty((self.size, *values.shape), values.dtype)
        all_gather(self._comm, self._function, _bytes(np.ascontiguousarray(values)), [*map(_bytes, found)])
        return found

    def exchange(self, parts: Iterable[Array], received: Iterable[Array]) -> None:
        """Send a part to each rank and receive one from each into C-contiguous arrays of any shapes."""
        sent = [_bytes(np.ascontiguousarray(part)) for part in parts]
        all_to_all(self._comm, self._function, sent, [*map(_bytes, received)])
