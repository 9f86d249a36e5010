"""How a walk through several layouts is cut into tiles, as the description that ``tiles.loop`` reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclnn.kernels.cpu.elementwise.kinds import FLOAT32, size_of
from aclnn.kernels.cpu.elementwise.tiles import TILE
from aclnn.kernels.cpu.geometry import Axis, Geometry

_SQUARE = 32
"""Edge of the tiles of transpositions: 128 bytes of float32 in either direction."""

_BAND = 512
"""Columns of a transposition that are walked downwards together: a page of each is found in the second-level TLB."""

_DIRECT = 32
"""Rows at least this long are used in place; shorter ones are gathered, so that vectors are filled across them."""


LONG, PIECE = 512, 1 << 14
"""Elements of the shortest row that is taken by itself, and of what is taken of longer ones at a time."""
STREAMED_ROW = 4096
"""Bytes of the shortest row that is written around the cache. On Zen 4, of rows 2, 4 and 8 KiB long with gaps, 16 MiB
take 1.24 ms through the cache and 1.67 ms around it, 1.86 and 1.71, 1.63 and 1.56."""


class Tiling(NamedTuple):
    """The description and what a plan needs to know of it; rows may be what is called tiles here."""

    description: NDArray[np.int64]
    tiles: int
    tile_elements: int


def _entries(axes: Sequence[Axis]) -> list[int]:
    """Dimensions in a description, the last one first."""
    entries = [len(axes)]
    for axis in reversed(axes):
        entries += [axis.extent, *((0,) if len(axis.steps) == 2 else ()), *axis.steps]
    return entries


def in_rows(geometry: Geometry, itemsize: int) -> bool:
    """Whether a walk goes along rows, long enough and side by side in every operand, all of one data type."""
    if geometry.ordered or not geometry.axes:
        return False
    *_, columns = geometry.axes
    return columns.extent >= LONG and all(step == itemsize for step in columns.steps)


def rows(geometry: Geometry, itemsize: int, loop: int, stream_bytes: int) -> Tiling:
    """Describe rows for ``rows.loop``; long ones of results of at least so many bytes go around the cache."""
    *outer, columns = geometry.axes
    count = math.prod(axis.extent for axis in outer)
    row_bytes = columns.extent * itemsize
    streamed = 2 * (row_bytes >= STREAMED_ROW and count * row_bytes >= stream_bytes)
    pieces = -(-columns.extent // PIECE)
    description = [loop, streamed, columns.extent, PIECE, pieces, itemsize, *_entries(outer)]
    return Tiling(np.array(description, np.int64), count * pieces, min(columns.extent, PIECE))


def _densest(axes: Sequence[Axis], operand: int) -> int | None:
    """The axis along which an operand's elements lie closest together, if it moves at all."""
    steps = [abs(axis.steps[operand]) or math.inf for axis in axes]
    return None if min(steps) == math.inf else steps.index(min(steps))


def _rows_and_columns(axes: Sequence[Axis], ordered: bool) -> tuple[int | None, int | None]:
    """The axes that become a tile's sides; the others stay outside.

    Columns run along the axis that is densest for most operands, for the output in doubt; rows along the one that is
    for another operand, so that each is read or written along its own lines.
    """
    last = len(axes) - 1
    if ordered or last < 1:
        return (last - 1 if last > 0 else None), (last if last >= 0 else None)
    votes = [_densest(axes, operand) for operand in range(len(axes[0].steps))]
    columns = max(range(len(axes)), key=lambda axis: (votes.count(axis), votes[-1] == axis))
    others = [axis for axis in votes if axis not in (None, columns)]
    return (others[-1] if others else max(axis for axis in range(len(axes)) if axis != columns)), columns


def _tile_shape(rows: int, columns: int, transposed: bool) -> tuple[int, int]:
    if not transposed:
        width = min(columns, TILE)
    elif rows < _SQUARE:
        width = min(columns, TILE // rows)
    else:
        width = min(columns, _SQUARE)
    return min(rows, max(1, TILE // width)), width


def tile(geometry: Geometry, kinds: Sequence[int], mover: Callable[[int], int]) -> Tiling:
    """Cut a walk into tiles; ``kinds`` says how each operand is stored, the output last.

    ``mover`` gives the address of the kernel ``movers.mover`` for a size of elements.
    """
    unit = Axis(1, (0,) * len(kinds))
    chosen = _rows_and_columns(geometry.axes, geometry.ordered)
    rows, columns = (unit if axis is None else geometry.axes[axis] for axis in chosen)
    outer = [axis for i, axis in enumerate(geometry.axes) if i not in chosen]
    sizes = [size_of(kind) for kind in kinds]
    operands = list(zip(kinds, sizes, rows.steps, columns.steps, strict=True))
    transposed = not geometry.ordered and any(0 < abs(row) < abs(column) for _, _, row, column in operands)
    height, width = (
        (1, min(columns.extent, TILE)) if geometry.ordered else _tile_shape(rows.extent, columns.extent, transposed)
    )
    across, down = -(-columns.extent // width), -(-rows.extent // height)
    band = max(1, _BAND // width) if transposed else across
    description = [*(mover(size) if size in sizes else 0 for size in (2, 4))]
    description += [rows.extent, columns.extent, height, width, band]
    if len(kinds) == 2:
        description += [FLOAT32, 0, 0, 0]  # no dy
    for kind, size, row, column in operands:
        description += [kind, int(column == size and (width >= _DIRECT or rows is unit)), row, column]
    description += _entries(outer)
    tiles = across * down * math.prod(axis.extent for axis in outer)
    return Tiling(np.array(description, np.int64), tiles, height * width)
