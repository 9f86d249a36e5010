"""Inputs that a result overwrites before they are read are copied first."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from aclnn.core.tensor import Layout

Span = tuple[int, int]
"""First byte and end, from a tensor's address."""


def same_elements(first: Layout, second: Layout) -> bool:
    """From the same address both put the same elements in the same places."""
    return first.strides == second.strides and first.dtype.itemsize == second.dtype.itemsize


class Overlaps:
    """Which inputs share memory with which outputs, found out for each call's addresses."""

    __slots__ = ("_pairs", "_read")

    def __init__(
        self, read: Sequence[Span | None], written: Sequence[Span | None], alike: Collection[int] = ()
    ) -> None:
        """Prepare.

        Args:
            read: what is read of each input; None for an absent one.
            written: what is written of each output; None for an absent one.
            alike: inputs that may be just where the first output is: each element is read before it is written.
        """
        self._read = read
        # The ranges meet where the output's address less the input's lies between two numbers.
        self._pairs = [
            (i, k, begin - target_end, end - target, k == 0 and i in alike)
            for i, (begin, end) in ((i, span) for i, span in enumerate(read) if span is not None)
            for k, (target, target_end) in ((k, span) for k, span in enumerate(written) if span is not None)
        ]

    def among(self, inputs: Sequence[int], outputs: Sequence[int]) -> Iterator[int]:
        """The inputs that an output overlaps, by their addresses."""
        for i, k, low, high, same in self._pairs:
            distance = outputs[k] - inputs[i]
            if low < distance < high and not (same and distance == 0):
                yield i

    def apart(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Sequence[int], list[NDArray[np.uint8]]]:
        """Each input's address, or its copy's where an output overlaps it, and the copies."""
        which = set(self.among(inputs, outputs))
        return self._copied(inputs, which) if which else (inputs, [])

    def _copied(self, inputs: Sequence[int], which: Collection[int]) -> tuple[list[int], list[NDArray[np.uint8]]]:
        addresses, copies = list(inputs), []
        for i in which:
            span = self._read[i]
            assert span is not None
            copy = np.empty(span[1] - span[0], np.uint8)
            ctypes.memmove(copy.ctypes.data, inputs[i] + span[0], copy.size)
            copies.append(copy)
            addresses[i] = copy.ctypes.data - span[0]
        return addresses, copies
