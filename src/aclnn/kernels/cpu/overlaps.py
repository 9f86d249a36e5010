"""Inputs that a result overwrites before they are read are copied first."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from aclnn.tensor import Layout

Span = tuple[int, int]
"""First byte and end, from a tensor's address."""


def same_elements(first: Layout, second: Layout) -> bool:
    """From the same address both put the same elements in the same places."""
    return first.strides == second.strides and first.dtype.itemsize == second.dtype.itemsize


def apart(
    inputs: Sequence[int],
    read: Sequence[Span | None],
    outputs: Sequence[int],
    written: Sequence[Span | None],
    alike: Collection[int],
) -> tuple[list[int], list[NDArray[np.uint8]]]:
    """Each input's address, or its copy's where an output overlaps it, and the copies.

    Args:
        inputs: addresses.
        read: what is read of each input; None for an absent one.
        outputs: addresses.
        written: what is written of each output; None for an absent one.
        alike: inputs that may be just where the first output is: each element is read before it is written.
    """
    addresses, copies = list(inputs), []
    for i, (address, span) in enumerate(zip(inputs, read, strict=True)):
        if span is None:
            continue
        begin, end = address + span[0], address + span[1]
        for place, (target, reach) in enumerate(zip(outputs, written, strict=True)):
            if reach is None or (place == 0 and i in alike and address == target):
                continue
            if begin < target + reach[1] and target + reach[0] < end:
                copy = np.empty(end - begin, np.uint8)
                ctypes.memmove(copy.ctypes.data, begin, end - begin)
                copies.append(copy)
                addresses[i] = copy.ctypes.data - span[0]
                break
    return addresses, copies
