"""Tiles of any layouts: gather, compute by a kernel over contiguous elements, scatter.

A plan reduces layouts to rows × columns and outer dimensions, divides these into tiles, and describes them to the loop
in a ``Tiling``. Tiles that are contiguous in a tensor are used in place; others go through buffers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Sequence
from typing import Annotated, Any, NamedTuple

from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.jit import address_of, kernel, register_jitable
from aclnn.kernels.cpu.simd.memory import (
    copy_in,
    copy_out,
    gather_pairs_16,
    gather_pairs_32,
    load_float32,
    scatter_pairs_16,
    store_float32,
    transpose_16,
    transpose_32,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.structs import Address, Int64, To, address, call_pointer, declared, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.layouts import Axis, Geometry

TILE = 1024
"""Elements of a tile, half as many if any have eight bytes: three buffers, 12 KiB, leave room in an L1 cache of 32 KiB
for the tensors' own lines."""

BUFFER = 4 * TILE

_SQUARE = 32
"""Edge of the tiles of transpositions: 128 bytes of float32 in both directions."""

_BAND = 512
"""Columns of a transposition that are traversed downwards together: the second-level TLB holds a page of each."""

LONG, PIECE = 512, 1 << 14
"""Length of the shortest row processed individually, and of the pieces of longer rows."""

_ROWS_AHEAD = 8

STREAMED_ROW = 4096
"""Bytes of the shortest row written with non-temporal stores (docs/tuning.md)."""

_LINE = 64

CACHED, NONTEMPORAL, NONTEMPORAL_UNFENCED = range(3)
"""Store policies: through the cache; non-temporal, visible to other threads when the kernel returns; non-temporal,
visible when the caller has fenced. For non-temporal stores each output must be aligned to its elements, and several
outputs must have the same offset within cache lines."""


@declared
class Operands(ctypes.Structure):
    """Arguments of a kernel over contiguous elements."""

    policy: Int64
    constants: Address
    """Address of a table of values at 16-bit x, or of float64 numbers."""
    addresses: Annotated[Any, ctypes.c_void_p * 3]
    """Addresses of the outputs, then of the inputs; as many as the kernel has."""


@declared
class Steps(ctypes.Structure):
    """Size of an operand's element, and strides between rows and columns, in bytes."""

    size: Int64
    row: Int64
    column: Int64


@declared
class Tiling(ctypes.Structure):
    """Tiles of a plan; outputs precede inputs."""

    kernel: Int64
    """Address of a kernel over contiguous elements."""
    constants: Address
    policy: Int64
    movers: Annotated[Any, ctypes.c_int64 * 3]
    """Addresses of the kernels ``mover`` for 2, 4 and 8 bytes."""
    rows: Int64
    columns: Int64
    tile_rows: Int64
    tile_columns: Int64
    band: Int64
    """Number of horizontally adjacent tiles processed before those below."""
    steps: Annotated[int, ctypes.c_int64, To(Steps)]
    """Steps of each operand."""
    outer: Int64
    """Number of dimensions outside rows and columns."""
    axes: Annotated[int, ctypes.c_int64, To(ctypes.c_int64)]
    """Extent of each outer dimension and every operand's stride in bytes, innermost dimension first."""


@declared
class Strided(ctypes.Structure):
    """Arguments of the loop over tiles."""

    tiling: Annotated[int, ctypes.c_int64, To(Tiling)]
    addresses: Annotated[Any, ctypes.c_void_p * 1]
    """Address of each operand."""


@register_jitable
def move_along(places: Any, operands: int, axis: Any, axes: int, position: int) -> None:
    """Advance every operand's address along axes, innermost first, to a position in their product."""
    for _ in range(axes):
        above = position // axis[0] if position >= axis[0] else 0  # usually 0, without a division
        index, position = position - above * axis[0], above
        for k in range(operands):
            places[k] = places[k] + index * axis[1 + k]
        axis = axis + (1 + operands)


@declared
class Block(ctypes.Structure):
    """Rows and columns to copy between a contiguous tile and a tensor."""

    target: Address
    target_row: Int64
    target_column: Int64
    source: Address
    row: Int64
    column: Int64
    rows: Int64
    columns: Int64
    scatters: Int64
    """1 if the target is the tensor, where elements may alias; 0 if the source is."""
    ahead: Int64
    """Distance in the tensor from this block to the next, in bytes."""


_operands_at, _strided_at, _block_at = pointer_to(Operands), pointer_to(Strided), pointer_to(Block)
_addresses_at = pointer_to(ctypes.c_void_p)
_BLOCK_BYTES = ctypes.sizeof(Block)


@register_jitable
def move_tile(
    mover: int, scatters: int, tile: Any, tile_row: int, tile_column: int, place: Any, row: int, column: int,
    rows: int, columns: int, ahead: int,
) -> None:  # fmt: skip
    """Gather rows and columns of a tensor into a tile, or scatter them, with the kernel ``mover``."""
    block = _block_at(stack_alloc(_BLOCK_BYTES))
    block.rows, block.columns, block.scatters, block.ahead = rows, columns, scatters, ahead
    if scatters:
        block.target, block.target_row, block.target_column = place, row, column
        block.source, block.row, block.column = tile, tile_row, tile_column
    else:
        block.target, block.target_row, block.target_column = tile, tile_row, tile_column
        block.source, block.row, block.column = place, row, column
    call_pointer(mover, block, 0, 1, 1)


class Tiles(NamedTuple):
    """Description of tiles, and what a plan needs to know of them."""

    tiling: Tiling
    arrays: tuple[Any, ...]
    """Arrays to which the description refers."""
    total: int
    elements: int
    """Number of elements of each tile."""


def _densest(axes: Sequence[Axis], operand: int) -> int | None:
    """Return the axis with the smallest stride of an operand, None if all are zero."""
    steps = [abs(axis.steps[operand]) or math.inf for axis in axes]
    return None if min(steps) == math.inf else steps.index(min(steps))


def _rows_and_columns(axes: Sequence[Axis], ordered: bool) -> tuple[int | None, int | None]:
    """Return the axes that become a tile's sides; the others are outer dimensions.

    Columns run along the axis that is densest for most operands, or in case of a tie for the output; rows run along
    the axis that is densest for another operand, so that each is accessed along its own cache lines.
    """
    last = len(axes) - 1
    if ordered or last < 1:
        return (last - 1 if last > 0 else None), (last if last >= 0 else None)
    votes = [_densest(axes, operand) for operand in range(len(axes[0].steps))]
    columns = max(range(len(axes)), key=lambda axis: (votes.count(axis), votes[-1] == axis))
    others = [axis for axis in votes if axis not in (None, columns)]
    return (others[-1] if others else max(axis for axis in range(len(axes)) if axis != columns)), columns


def _tile_shape(rows: int, columns: int, most: int, transposed: bool) -> tuple[int, int]:
    """Return rows and columns of a tile of ``most`` elements."""
    if not transposed:
        width = min(columns, most)
    elif rows < _SQUARE:
        width = min(columns, most // rows)
    else:
        width = min(columns, _SQUARE)
    return min(rows, max(1, most // width)), width


def tile(
    geometry: Geometry, sizes: Sequence[int], outputs: int, evaluator: tuple[int, int], stream_bytes: int
) -> Tiles:
    """Divide an iteration space into tiles.

    Args:
        geometry: the iteration space.
        sizes: element size of each operand in bytes, outputs last.
        outputs: number of operands that are outputs.
        evaluator: addresses of the kernel over contiguous elements and of its constants.
        stream_bytes: minimum size of results whose long rows use non-temporal stores.
    """
    unit = Axis(1, (0,) * len(sizes))
    chosen = _rows_and_columns(geometry.axes, geometry.ordered)
    rows, columns = (unit if axis is None else geometry.axes[axis] for axis in chosen)
    outer = [axis for i, axis in enumerate(geometry.axes) if i not in chosen]
    most, above = BUFFER // max(4, *sizes), math.prod(axis.extent for axis in outer)
    streamed = transposed = False
    if geometry.ordered:
        height, width = 1, min(columns.extent, most)
    elif columns.extent >= LONG and columns.steps == tuple(sizes):
        height, width = 1, min(columns.extent, PIECE)
        row_bytes, alike = columns.extent * sizes[-1], len(set(sizes[-outputs:])) == 1
        streamed = alike and row_bytes >= STREAMED_ROW and above * rows.extent * row_bytes >= stream_bytes
    else:
        transposed = any(0 < abs(row) < abs(column) for row, column in zip(rows.steps, columns.steps, strict=True))
        height, width = _tile_shape(rows.extent, columns.extent, most, transposed)
    across, down = -(-columns.extent // width), -(-rows.extent // height)
    order = [*range(len(sizes) - outputs, len(sizes)), *range(len(sizes) - outputs)]
    steps = (Steps * len(sizes))(*(Steps(sizes[k], rows.steps[k], columns.steps[k]) for k in order))
    numbers = [number for axis in reversed(outer) for number in (axis.extent, *(axis.steps[k] for k in order))]
    axes = (ctypes.c_int64 * len(numbers))(*numbers)
    tiling = Tiling(
        *evaluator, NONTEMPORAL_UNFENCED if streamed else CACHED, movers(sizes), rows.extent, columns.extent,
        height, width, max(1, _BAND // width) if transposed else across,
        ctypes.addressof(steps), len(outer), ctypes.addressof(axes),
    )  # fmt: skip
    return Tiles(tiling, (steps, axes), across * down * above, height * width)


def loop(inputs: int, outputs: int) -> Loop:
    """Make the kernel that processes tiles in the order of a description (see ``Strided``)."""
    operands = inputs + outputs
    pointers, buffer_bytes = 8 * operands, BUFFER * operands
    operand_bytes = Operands.addresses.offset + pointers

    @register_jitable
    def locate(arguments: Any, tile: int, places: Any) -> tuple[int, int]:
        """Write each operand's address at the beginning of a tile to ``places``; return the tile's height and width."""
        tiling = arguments.tiling
        rows, columns, tile_rows, tile_columns = tiling.rows, tiling.columns, tiling.tile_rows, tiling.tile_columns
        across, down = (columns + tile_columns - 1) // tile_columns, (rows + tile_rows - 1) // tile_rows
        position, within = tile // (across * down), tile % (across * down)
        left = within // (tiling.band * down) * tiling.band
        width = min(tiling.band, across - left)
        within -= left * down
        r, c = within // width * tile_rows, (left + within % width) * tile_columns
        for k in range(operands):
            steps = tiling.steps[k]
            places[k] = arguments.addresses[k] + (r * steps.row + c * steps.column)
        move_along(places, operands, tiling.axes, tiling.outer, position)
        return min(tile_rows, rows - r), min(tile_columns, columns - c)

    @register_jitable
    def move(
        tiling: Any, k: int, scatters: int, tile: Any, place: Any, height: int, width: int, following: Any
    ) -> None:
        """Gather or scatter an operand's tile, and prefetch the next one, which begins at ``following``.

        For tiles of whole rows, prefetch a few rows ahead.
        """
        steps = tiling.steps[k]
        ahead = _ROWS_AHEAD * steps.row if width == tiling.columns else address(following) - address(place)
        mover, row = tiling.movers[steps.size >> 2], width * steps.size
        move_tile(mover, scatters, tile, row, steps.size, place, steps.row, steps.column, height, width, ahead)

    def part(at: int, first: int, last: int) -> None:
        arguments = _strided_at(at)
        tiling = arguments.tiling
        places, coming = _addresses_at(stack_alloc(pointers)), _addresses_at(stack_alloc(pointers))
        used, buffers = _operands_at(stack_alloc(operand_bytes)), stack_alloc(buffer_bytes)
        used.constants = tiling.constants
        height, width = locate(arguments, first, places)
        for tile in range(first, last):
            next_height, next_width = locate(arguments, min(tile + 1, last - 1), coming)
            for k in range(operands):
                steps, place = tiling.steps[k], places[k]
                if steps.column != steps.size or (height > 1 and steps.row != width * steps.size):
                    place = buffers + BUFFER * k
                    if k >= outputs:
                        move(tiling, k, 0, place, places[k], height, width, coming[k])
                used.addresses[k] = place
            used.policy = tiling.policy
            for k in range(outputs):
                output = address(used.addresses[k])
                if output & (tiling.steps[0].size - 1) or (output - address(used.addresses[0])) & (_LINE - 1):
                    used.policy = CACHED
            call_pointer(tiling.kernel, used, 0, height * width, height * width)
            for k in range(outputs):
                if address(used.addresses[k]) != address(places[k]):
                    move(tiling, k, 1, used.addresses[k], places[k], height, width, coming[k])
            for k in range(operands):
                places[k] = coming[k]
            height, width = next_height, next_width
        if tiling.policy:
            finish_streams()

    return chunked(part)


@register_jitable
def _copy_row(target: Any, source: Any, nbytes: int, scatters: int, ahead: Any) -> None:
    """Copy a row; bytes behind it in a tile may be overwritten. Prefetch as much at ``ahead``."""
    whole = nbytes & -_LINE
    for at in range(0, whole, _LINE):
        prefetch(ahead + at)
        store_float32(target + at, load_float32(source + at))
    if whole < nbytes:
        prefetch(ahead + whole)
        if scatters:
            copy_out(source + whole, nbytes - whole, target + whole)
        else:
            copy_in(source + whole, nbytes - whole, target + whole)


def mover(size: int) -> Loop:
    """Make the kernel that copies a ``Block`` of elements of a size; among aliasing targets the last one wins."""
    element = {8: ctypes.c_int64, 4: ctypes.c_uint32, 2: ctypes.c_uint16}[size]
    elements_at, whole = pointer_to(element), size < 8
    transpose: Any = transpose_16 if size == 2 else transpose_32
    gather_pairs: Any = gather_pairs_16 if size == 2 else gather_pairs_32

    @register_jitable
    def copy_one(target: Any, source: Any) -> None:
        elements_at(target)[0] = elements_at(source)[0]

    @register_jitable
    def transposed(to: Any, pitch: int, source: Any, step: int, rows: int, columns: int, block: Any) -> None:
        """Write ``columns`` runs of ``rows`` contiguous elements, ``step`` apart, as rows ``pitch`` apart."""
        in_blocks = whole and columns >= LANES and rows >= LANES
        for left in range(0, columns, LANES):
            for top in range(0, rows, LANES):
                c, r = left, top
                if in_blocks:  # the last blocks overlap earlier ones instead of copying a remainder one by one
                    c, r = min(left, columns - LANES), min(top, rows - LANES)
                corner, origin = to + (r * pitch + c * size), source + (r * size + c * step)
                outside, distance = (corner, pitch) if block.scatters else (origin, step)
                for i in range(LANES):  # the same block of the next tile
                    prefetch(outside + (i * distance + block.ahead))
                if in_blocks:
                    transpose(corner, pitch, origin, step)
                else:
                    for i in range(min(LANES, columns - c)):
                        for k in range(min(LANES, rows - r)):
                            copy_one(corner + (k * pitch + i * size), origin + (k * size + i * step))

    def move(at: int, counter: int, step: int, end: int) -> None:
        block = _block_at(at)
        rows, columns, target, source = block.rows, block.columns, block.target, block.source
        target_row, target_column, row, column = block.target_row, block.target_column, block.row, block.column
        if row == size and target_column == size and column not in (0, size):
            transposed(target, target_row, source, column, rows, columns, block)
        elif target_row == size and column == size and target_column != size:
            transposed(target, target_column, source, row, columns, rows, block)
        elif column == 0:
            for r in range(rows):
                value = elements_at(source + r * row)[0]
                for c in range(columns):
                    elements_at(target + (r * target_row + c * target_column))[0] = value
        elif column == size and target_column == size:
            nbytes, scatters = columns * size, block.scatters
            ahead, distance = (target, target_row) if scatters else (source, row)
            ahead = ahead + block.ahead
            for _ in range(rows):
                _copy_row(target, source, nbytes, scatters, ahead)
                target, source, ahead = target + target_row, source + row, ahead + distance
        else:
            gathers = whole and target_column == size and column == 2 * size
            scatters = size == 2 and target_column == 2 * size and column == size  # 4 bytes are faster singly
            vectors = (columns - 1) & -LANES if gathers or scatters else 0  # one more element may be read
            for r in range(rows):
                to, origin = target + r * target_row, source + r * row
                for c in range(0, vectors, LANES):
                    if gathers:
                        gather_pairs(to + c * size, origin + c * column)
                    else:
                        scatter_pairs_16(to + c * target_column, origin + c * size)
                for c in range(vectors, columns):
                    copy_one(to + c * target_column, origin + c * column)

    return move


def mover_address(size: int) -> int:
    """Return the address of the kernel ``mover`` for an element size in bytes."""
    return address_of(kernel(f"mover-{size}", (), lambda: mover(size)))


def movers(sizes: Collection[int]) -> Any:
    """Return the addresses of ``mover`` for 2, 4 and 8 bytes, 0 for sizes that are not given."""
    return (ctypes.c_int64 * 3)(*(mover_address(size) if size in sizes else 0 for size in (2, 4, 8)))
