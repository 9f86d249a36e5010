"""Tiles of any layouts: gathered, computed by a kernel over contiguous elements, scattered.

A plan reduces layouts to rows × columns and outer dimensions, cuts these into tiles, and describes that to the loop in
an array of int64. What lies side by side in a tile is used where it is; the rest comes through buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclnn.kernels.cpu.addresses import invoke, load_one_int64, scratch, store_one_int64
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.chunks import Loop, shared
from aclnn.kernels.cpu.geometry import Axis, Geometry
from aclnn.kernels.cpu.inner import register_jitable

TILE = 1024
"""Elements of a tile, half as many where some have eight bytes: three buffers of it, 12 KiB, leave room in an L1 cache
of 32 KiB for what they come from."""

BUFFER = 4 * TILE

DIRECT = 3
"""Up to so many operands are arguments of a kernel over contiguous elements; more come by the address of theirs."""

_SQUARE = 32
"""Edge of the tiles of transpositions: 128 bytes of float32 in either direction."""

_BAND = 512
"""Columns of a transposition that are walked downwards together: a page of each is found in the second-level TLB."""

LONG, PIECE = 512, 1 << 14
"""Elements of the shortest row that is taken by itself, and of what is taken of longer ones at a time."""

_ROWS_AHEAD = 8

STREAMED_ROW = 4096
"""Bytes of the shortest row that is written around the cache. On Zen 4, of rows 2, 4 and 8 KiB long with gaps, 16 MiB
take 1.24 ms through the cache and 1.67 ms around it, 1.86 and 1.71, 1.63 and 1.56."""

(LOOP, CONSTANTS, STREAMED, MOVERS, _, _, ROWS, COLUMNS, TILE_ROWS, TILE_COLUMNS, BAND, OPERANDS) = range(12)
"""Places in the description. LOOP: the address of a kernel over contiguous elements (see ``general.loop``), CONSTANTS:
that of its table. MOVERS: addresses of the kernels ``mover`` for 2, 4 and 8 bytes. BAND: tiles side by side that are
done before those below. From OPERANDS on, of each operand: size of an element, distance between rows, between columns;
then the number of outer dimensions, followed by extent and each operand's distance, the last dimension first."""


class Tiling(NamedTuple):
    """The description and what a plan needs to know of it."""

    description: NDArray[np.int64]
    tiles: int
    tile_elements: int


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


def _tile_shape(rows: int, columns: int, most: int, transposed: bool) -> tuple[int, int]:
    """Rows and columns of a tile of ``most`` elements."""
    if not transposed:
        width = min(columns, most)
    elif rows < _SQUARE:
        width = min(columns, most // rows)
    else:
        width = min(columns, _SQUARE)
    return min(rows, max(1, most // width)), width


def tile(
    geometry: Geometry,
    sizes: Sequence[int],
    outputs: int,
    evaluator: tuple[int, int],
    mover: Callable[[int], int],
    stream_bytes: int,
) -> Tiling:
    """Cut a walk into tiles.

    Args:
        geometry: the walk.
        sizes: bytes of each operand's elements, the outputs last.
        outputs: how many of the operands are outputs.
        evaluator: addresses of the kernel over contiguous elements and of its constants.
        mover: gives the address of the kernel ``movers.mover`` for a size of elements.
        stream_bytes: long rows of results at least this large go around the cache.
    """
    unit = Axis(1, (0,) * len(sizes))
    chosen = _rows_and_columns(geometry.axes, geometry.ordered)
    rows, columns = (unit if axis is None else geometry.axes[axis] for axis in chosen)
    outer = [axis for i, axis in enumerate(geometry.axes) if i not in chosen]
    streamed, most = 0, BUFFER // max(4, *sizes)
    if not geometry.ordered and columns.extent >= LONG and columns.steps == tuple(sizes):
        height, width = 1, min(columns.extent, PIECE)
        row_bytes = columns.extent * sizes[-1]
        count = rows.extent * math.prod(axis.extent for axis in outer)
        alike = len(set(sizes[-outputs:])) == 1
        streamed = int(alike and row_bytes >= STREAMED_ROW and count * row_bytes >= stream_bytes)
        transposed = False
    elif geometry.ordered:
        height, width, transposed = 1, min(columns.extent, most), False
    else:
        transposed = any(0 < abs(row) < abs(column) for row, column in zip(rows.steps, columns.steps, strict=True))
        height, width = _tile_shape(rows.extent, columns.extent, most, transposed)
    across, down = -(-columns.extent // width), -(-rows.extent // height)
    band = max(1, _BAND // width) if transposed else across
    description = [*evaluator, streamed, *(mover(size) if size in sizes else 0 for size in (2, 4, 8))]
    description += [rows.extent, columns.extent, height, width, band]
    for operand in zip(sizes, rows.steps, columns.steps, strict=True):
        description += operand
    description.append(len(outer))
    for axis in reversed(outer):
        description += [axis.extent, *axis.steps]
    tiles = across * down * math.prod(axis.extent for axis in outer)
    return Tiling(np.array(description, np.int64), tiles, height * width)


def _evaluation(operands: int) -> Any:
    """A function that computes ``count`` contiguous elements at the addresses in memory."""
    if operands > DIRECT:

        @register_jitable
        def evaluate(kernel: int, streamed: int, at: int, constants: int, count: int) -> None:
            invoke(kernel, at, streamed, 0, 0, constants, 0, count, count)

    else:
        first, second, third = (8 * max(0, operands - back) for back in (3, 2, 1))

        @register_jitable
        def evaluate(kernel: int, streamed: int, at: int, constants: int, count: int) -> None:
            a, b, c = load_one_int64(at + first), load_one_int64(at + second), load_one_int64(at + third)
            invoke(kernel, streamed, a, b, c, constants, 0, count, count)

    return evaluate


def loop(inputs: int, outputs: int) -> Loop:
    """Tiles in the order of a description; the job is the address of int64: the description's, each operand's."""
    operands = inputs + outputs
    addresses, tiles = 8 * operands, BUFFER * operands
    outer_at, last_size_at = 8 * (OPERANDS + 3 * operands), 8 * (OPERANDS + 3 * operands - 3)
    evaluate = _evaluation(operands)

    @register_jitable
    def locate(job: int, layout: int, tile: int, places: int) -> tuple[int, int]:
        """Write where a tile begins in each operand to ``places``; its height and width."""
        band = load_one_int64(layout + 8 * BAND)
        rows, columns = load_one_int64(layout + 8 * ROWS), load_one_int64(layout + 8 * COLUMNS)
        tile_rows, tile_columns = load_one_int64(layout + 8 * TILE_ROWS), load_one_int64(layout + 8 * TILE_COLUMNS)
        across, down = (columns + tile_columns - 1) // tile_columns, (rows + tile_rows - 1) // tile_rows
        position, within = tile // (across * down), tile % (across * down)
        left = within // (band * down) * band
        width = min(band, across - left)
        within -= left * down
        r, c = within // width * tile_rows, (left + within % width) * tile_columns
        for k in range(operands):
            steps = layout + 8 * (OPERANDS + 3 * k)
            address = load_one_int64(job + 8 + 8 * k)
            address += r * load_one_int64(steps + 8) + c * load_one_int64(steps + 16)
            store_one_int64(places + 8 * k, address)
        for axis in range(load_one_int64(layout + outer_at)):
            entry = layout + outer_at + 8 + 8 * (1 + operands) * axis
            extent = load_one_int64(entry)
            index, position = position % extent, position // extent
            for k in range(operands):
                moved = load_one_int64(places + 8 * k) + index * load_one_int64(entry + 8 + 8 * k)
                store_one_int64(places + 8 * k, moved)
        return min(tile_rows, rows - r), min(tile_columns, columns - c)

    @register_jitable
    def move(layout: int, k: int, back: int, buffer: int, place: int, height: int, width: int, after: int) -> None:
        """Gather an operand's tile, or scatter it, and prefetch the next one, which begins at ``after``.

        Of tiles of whole rows, prefetch a few rows ahead.
        """
        steps = layout + 8 * (OPERANDS + 3 * k)
        mover = load_one_int64(layout + 8 * (MOVERS + (load_one_int64(steps) >> 2)))
        row, column = load_one_int64(steps + 8), load_one_int64(steps + 16)
        ahead = _ROWS_AHEAD * row if width == load_one_int64(layout + 8 * COLUMNS) else after - place
        invoke(mover, back, buffer, place, height, width, row, column, ahead)

    def part(job: int, a: int, b: int, c: int, d: int, first: int, last: int) -> None:
        layout = load_one_int64(job)
        kernel, constants = load_one_int64(layout + 8 * LOOP), load_one_int64(layout + 8 * CONSTANTS)
        streams, output_size = load_one_int64(layout + 8 * STREAMED), load_one_int64(layout + last_size_at)
        places, coming, used = scratch(addresses), scratch(addresses), scratch(addresses)
        buffers = scratch(tiles)
        height, width = locate(job, layout, first, places)
        for tile in range(first, last):
            next_height, next_width = locate(job, layout, min(tile + 1, last - 1), coming)
            for k in range(operands):
                steps, place = layout + 8 * (OPERANDS + 3 * k), load_one_int64(places + 8 * k)
                size, row, column = load_one_int64(steps), load_one_int64(steps + 8), load_one_int64(steps + 16)
                address = place
                if column != size or (height > 1 and row != width * size):
                    address = buffers + BUFFER * k
                    if k < inputs:
                        move(layout, k, 0, address, place, height, width, load_one_int64(coming + 8 * k))
                store_one_int64(used + 8 * k, address)
            # Around the cache go elements that do not cross lines, and several outputs that lie alike within them.
            streamed = 2 if streams else 0
            for k in range(inputs, operands):
                address, other = load_one_int64(used + 8 * k), load_one_int64(used + 8 * inputs)
                if address & (output_size - 1) or (address - other) & 63:
                    streamed = 0
            evaluate(kernel, streamed, used, constants, height * width)
            for k in range(inputs, operands):
                place, address = load_one_int64(places + 8 * k), load_one_int64(used + 8 * k)
                if address != place:
                    move(layout, k, 1, address, place, height, width, load_one_int64(coming + 8 * k))
            for k in range(operands):
                store_one_int64(places + 8 * k, load_one_int64(coming + 8 * k))
            height, width = next_height, next_width
        if streams:
            finish_streams()

    return shared(part)
