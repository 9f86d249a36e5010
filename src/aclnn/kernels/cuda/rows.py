"""Tensors of rows and columns in the norms' kernels: offsets of elements with any strides, and loads as float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from aclnn.core.tensor import Layout
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.launch import PACKED, integer, tl, triton
from aclnn.kernels.layouts import merged


class Tensor(NamedTuple):
    """A tensor of rows and columns, or a vector of either, as a kernel argument.

    The dimensions of its rows and of its columns begin at ROW_START and COLUMN_START in the kernel's ``axes``, which
    holds an extent and a stride for each, innermost first. Adjacent rows or columns need none.
    """

    address: Any
    """Pointer; None for an absent tensor."""
    ROW_START: Any
    ROW_AXES: Any
    COLUMN_START: Any
    COLUMN_AXES: Any


@triton.jit
def chunk_count(count, SIZE: tl.constexpr):
    """Number of chunks, at least one. ``tl.cdiv``, or a loop up to the count, could overflow 32 bits."""
    return (count - 1) // SIZE + 1


@triton.jit
def chunk_indices(number, SIZE: tl.constexpr):
    """Return the rows or columns of a chunk, given its number."""
    return tl.cast(number, tl.int64) * SIZE + tl.arange(0, SIZE)


@triton.jit
def _offset(index, axes, START, AXES):
    if AXES > 0:
        rest = tl.cast(index, tl.int64)
        index = rest * 0
        for axis in tl.static_range(AXES - 1):
            extent = integer(axes[START + 2 * axis])
            index += rest % extent * integer(axes[START + 2 * axis + 1])
            rest = rest // extent
        # A 64-bit division takes as many instructions as all other operations on four elements.
        index += rest * integer(axes[START + 2 * AXES - 1])
    return index


@triton.jit
def row_step(tensor, axes):
    """Return the stride between rows in elements, if there is a single one."""
    return integer(axes[tensor.ROW_START + 1]) if tensor.ROW_AXES == 1 else tl.full((), 1, tl.int64)


@triton.jit
def row_offset(tensor, row, axes, step=None):
    """Return the offset of rows in elements; ``step`` is from ``row_step``."""
    if step is None or tensor.ROW_AXES > 1:
        return _offset(row, axes, tensor.ROW_START, tensor.ROW_AXES)
    else:  # noqa: RET505 - Triton compiles both branches if both return, unless one is the other's else
        return row * step


@triton.jit
def column_offset(tensor, column, axes):
    """Return the offset of columns in elements."""
    return _offset(column, axes, tensor.COLUMN_START, tensor.COLUMN_AXES)


@triton.jit
def row_start(tensor, row, axes, ROWS: tl.constexpr, ALIGNED: tl.constexpr, step=None):
    """Return the offset of each of ROWS rows for all columns, in a form recognised as a multiple of 2^ALIGNED.

    ``tl.multiple_of`` is lost when a function returns or a vector gets a second dimension.
    """
    offset = row_offset(tensor, row, axes, step)
    return ((offset[:, None] if ROWS > 1 else offset) >> ALIGNED) << ALIGNED


@triton.jit
def _as_float32(x):
    if PACKED and x.dtype == tl.bfloat16 and x.numel > 1:
        # Two at a time: otherwise the upper one is first moved down and then up again.
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], tl.float32, True, 2
        )
    return x.to(tl.float32)


@triton.jit
def load(tensor, offset, mask):
    """Load elements as float32, 0 outside the mask and for an absent tensor."""
    if tensor.address is None:
        return tl.zeros(mask.shape, tl.float32)
    else:  # noqa: RET505 - as above
        return _as_float32(tl.load(tensor.address + offset, mask=mask, other=0.0))


@triton.jit
def load_columns(tensor, column, axes, mask):
    """Load elements of a vector of columns, as ``load`` does."""
    return load(tensor, column_offset(tensor, column, axes), mask)


@triton.jit
def load_rows(tensor, row, axes, mask, ROWS: tl.constexpr, step=None):
    """Load elements of a vector of rows as float32, 0 for an absent one: a column, or a scalar for a single row."""
    offset = row_offset(tensor, row, axes, step)
    if ROWS > 1:
        return load(tensor, offset, mask)[:, None]
    elif tensor.address is None:  # noqa: RET505 - as above
        return tl.full((), 0.0, tl.float32)
    else:
        return tl.load(tensor.address + offset).to(tl.float32)


@triton.jit
def store(tensor, offset, values, mask):
    """Store numbers, rounded to float32 and to the tensor's data type."""
    tl.store(tensor.address + offset, values.to(tl.float32).to(tensor.address.dtype.element_ty), mask=mask)


def _axes(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return (extent, stride) pairs, innermost first; none for adjacent elements."""
    axes = merged(shape, strides)
    return [] if len(axes) == 1 and axes[0][1] == 1 else list(chain.from_iterable(axes))


class Operands:
    """The tensors of a kernel, and the description of their dimensions, for every run."""

    def __init__(self, layouts: Sequence[Layout | None], splits: Sequence[int]) -> None:
        """Describe layouts, each with its number of leading dimensions that are rows, from ``splits``."""
        numbers: list[int] = []
        self._tensors = []
        for layout, split in zip(layouts, splits, strict=True):
            parts: list[Any] = []
            for part in (slice(split), slice(split, None)):
                axes = [] if layout is None else _axes(layout.shape[part], layout.strides[part])
                parts += [len(numbers), len(axes) // 2]
                numbers += axes
            self._tensors.append((layout and layout.dtype, [tl.constexpr(number) for number in parts]))
        self.axes = tuple(map(launch.argument, numbers))

    def at(self, addresses: Sequence[int]) -> list[Tensor]:
        """Return the tensors at these addresses as kernel arguments."""
        return [
            Tensor(None if dtype is None else launch.pointer(address, dtype), *parts)
            for address, (dtype, parts) in zip(addresses, self._tensors, strict=True)
        ]


def alignment(layouts: Sequence[Layout], split: int) -> int:
    """Return the power of two of elements (16 bytes) that divides every row's start and length; else 0.

    Rows are the dimensions up to ``split``. Triton then accesses 16 bytes at a time.
    """
    power = 2 if all(layout.dtype.itemsize == 4 for layout in layouts) else 3
    shape = layouts[0].shape
    steps = [math.prod(shape[split:]), *(step for layout in layouts for step in layout.strides[:split])]
    return power if split > 0 and all(step % 2**power == 0 for step in steps) else 0
