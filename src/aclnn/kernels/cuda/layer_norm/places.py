"""Where LayerNorm's rows and columns are in memory, of any strides, and their elements as float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from aclnn.core.tensor import Layout
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.launch import tl, triton, wide


@triton.jit
def place(index, axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Offset in elements of a row or column by its index; COUNT is 0 for neighbours."""
    offset = index
    if COUNT > 0:
        describes = axes.to(tl.pointer_type(tl.int64)) + START
        offset = index * 0
        for axis in tl.static_range(COUNT - 1):
            extent = tl.load(describes + 2 * axis)
            offset += index % extent * tl.load(describes + 2 * axis + 1)
            index = index // extent
        # A division by 64 bits takes as many instructions as all else that is done to four elements.
        offset += index * tl.load(describes + 2 * COUNT - 1)
    return offset


@triton.jit
def chunks(count, SIZE: tl.constexpr):
    """How many chunks there are, one at least. ``tl.cdiv``, or a loop up to the count, could leave 32 bits."""
    return (count - 1) // SIZE + 1


@triton.jit
def in_chunk(number, SIZE: tl.constexpr):
    """The rows or columns of a chunk by its number."""
    return tl.cast(number, tl.int64) * SIZE + tl.arange(0, SIZE)


@triton.jit
def step_of(axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Elements from one row to the next where that is a single number, read once for all rows."""
    if COUNT == 1:
        return tl.load(axes.to(tl.pointer_type(tl.int64)) + START + 1)
    return tl.full((), 1, tl.int64)


@triton.jit
def place_of(row, step, axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Offset of rows, by ``step_of``."""
    return place(row, axes, START, COUNT) if COUNT > 1 else row * step


@triton.jit
def place_all(columns, axes, START: tl.constexpr, COUNT: tl.constexpr):
    """Offsets of columns of a row that is taken at once: 32 bits will do for neighbours."""
    return place(columns.to(tl.int64), axes, START, COUNT) if COUNT > 0 else columns


@triton.jit
def number(address, DTYPE: tl.constexpr, offset):
    """One element as float32; 0 of an absent tensor, whose DTYPE is None."""
    if DTYPE is None:
        return tl.full((), 0.0, tl.float32)
    else:  # noqa: RET505 - Triton compiles the rest as well otherwise
        return tl.load(address.to(tl.pointer_type(DTYPE)) + offset).to(tl.float32)


@triton.jit
def numbers(address, DTYPE: tl.constexpr, offset, valid):
    """Elements as float32, 0 where not valid and of an absent tensor."""
    if DTYPE is None:
        return tl.zeros(valid.shape, tl.float32)
    else:  # noqa: RET505 - as above
        return wide(tl.load(address.to(tl.pointer_type(DTYPE)) + offset, mask=valid, other=0.0))


@triton.jit
def start(offset, ROWS: tl.constexpr, ALIGNED: tl.constexpr):
    """The offset of each row for all of its columns, in a form that shows it to be a multiple of 2^ALIGNED.

    ``tl.multiple_of`` is forgotten where a function returns or a vector gets a second dimension.
    """
    offset = offset[:, None] if ROWS > 1 else offset
    return (offset >> ALIGNED) << ALIGNED


def alignment(layouts: Sequence[Layout], split: int) -> int:
    """The power of two of elements, 16 bytes, that every row starts on a multiple of and has; 0 where one does not.

    Rows are the dimensions up to ``split``. Triton then accesses 16 bytes at a time.
    """
    power = 2 if all(layout.dtype.itemsize == 4 for layout in layouts) else 3
    shape = layouts[0].shape
    steps = [math.prod(shape[split:]), *(step for layout in layouts for step in layout.strides[:split])]
    return power if split > 0 and all(step % 2**power == 0 for step in steps) else 0


class Axes:
    """The dimensions of every row and column index, one after another as (extent, stride) pairs."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.starts: list[int] = []
        self.counts: list[int] = []

    def add(self, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Append the dimensions of one index."""
        described = launch.described(shape, strides)
        near = len(described) == 2 and described[1] == 1
        self.starts.append(len(self.numbers))
        self.counts.append(0 if near else len(described) // 2)
        self.numbers += described

    def address(self) -> Any:
        """The description in the current device's memory, as a kernel's argument."""
        return launch.uploaded(self._on, lambda: self.numbers)

    @cached_property
    def _on(self) -> dict[Any, Any]:
        return launch.on_devices(self.numbers)
