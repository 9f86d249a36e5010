"""Tiles of any layouts and data types.

A plan reduces layouts to rows × columns and outer dimensions, cuts these into tiles, and describes that to the loop in
an array of int64 (see ``tiling.tile``). What does not lie in rows comes through buffers.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import invoke, load_one_int64, scratch
from aclnn.kernels.cpu.chunks import Loop, shared
from aclnn.kernels.cpu.elementwise.kinds import FLOAT16, FLOAT32, size_of
from aclnn.kernels.cpu.elementwise.products import by_entries
from aclnn.kernels.cpu.elementwise.rows import places
from aclnn.kernels.cpu.elementwise.slopes import Gradient
from aclnn.kernels.cpu.ends import copy
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import (
    load_bfloat16,
    load_float16,
    load_float32,
    store_bfloat16,
    store_float16,
    store_float32,
)
from aclnn.kernels.cpu.prefetching import prefetch
from aclnn.kernels.cpu.vector import LANES, splat

_FARTHEST = 1024
"""How many bytes ahead of a tile's rows memory is asked for, at most."""

TILE = 1024
"""Elements of a tile: three buffers of it, 12 KiB, leave room in an L1 cache of 32 KiB for what they come from."""

BUFFER = 4 * TILE
_REST = 3 * 64

(
    MOVER_2, MOVER_4, ROWS, COLUMNS, TILE_ROWS, TILE_COLUMNS, BAND,
    DY_KIND, DY_DIRECT, DY_ROW, DY_COLUMN,
    X_KIND, X_DIRECT, X_ROW, X_COLUMN,
    OUT_KIND, OUT_DIRECT, OUT_ROW, OUT_COLUMN,
    OUTER,
) = range(20)  # fmt: skip
"""Places in the description. MOVER: addresses of the kernels ``mover``, where one is needed. BAND: tiles side by side
that are done before the tiles below. Kinds: see ``kinds``; direct: rows are used where they are, without a buffer.
OUTER: the number of outer dimensions, followed by extent and distances of dy, x and out for each, last one first."""


@register_jitable
def _move(
    layout: int, back: int, buffer: int, address: int, rows: int, columns: int, steps: tuple[int, int], size: int
) -> None:
    move = load_one_int64(layout + 8 * (MOVER_4 if size == 4 else MOVER_2))
    invoke(move, back, buffer, address, rows, columns, steps[0], steps[1], 0)


@register_jitable
def _load(kind: int, address: int) -> Any:
    if kind == FLOAT32:
        return load_float32(address)
    return load_float16(address) if kind == FLOAT16 else load_bfloat16(address)


@register_jitable(forceinline=True)
def _by_entries_of_kind(kind: int, table: int, x: int, dy: Any) -> Any:
    return by_entries(table, x, dy)


@register_jitable
def _store(kind: int, address: int, value: Any) -> None:
    if kind == FLOAT32:
        store_float32(address, value)
    elif kind == FLOAT16:
        store_float16(address, value)
    else:
        store_bfloat16(address, value)


def loop(gradient: Gradient | None, binary: bool) -> Loop:
    """Tiles of any layouts and kinds, in the order that the description gives them; the job is its address.

    Without a gradient x is of 16 bits and slopes come from a table.
    """
    if gradient is None:
        product = _by_entries_of_kind
    else:
        gradient = register_jitable(forceinline=True)(gradient)

        @register_jitable(forceinline=True)
        def product(kind: int, table: int, x: int, dy: Any) -> Any:
            return gradient(_load(kind, x), dy)

    @register_jitable
    def block(layout: int, dy: int, x: int, out: int, table: int, rows: int, columns: int, steps: Any) -> None:
        """rows × columns with unit distance between columns; ``steps`` are the distances between rows."""
        dy_kind, x_kind, out_kind = (
            load_one_int64(layout + 8 * DY_KIND),
            load_one_int64(layout + 8 * X_KIND),
            load_one_int64(layout + 8 * OUT_KIND),
        )
        dy_size, x_size, out_size = size_of(dy_kind), size_of(x_kind), size_of(out_kind)
        rest, ahead = scratch(_REST), min(_FARTHEST, columns * 4)
        for r in range(rows):
            c = 0
            while c < columns:
                count = min(LANES, columns - c)
                dy_at = dy + r * steps[0] + c * dy_size
                x_at = x + r * steps[1] + c * x_size
                out_at = out + r * steps[2] + c * out_size
                written = out_at
                prefetch(dy_at + ahead)
                prefetch(x_at + ahead)
                prefetch(out_at + ahead)
                if count < LANES:
                    if binary:
                        copy(rest, dy_at, count * dy_size)
                        dy_at = rest
                    copy(rest + 64, x_at, count * x_size)
                    x_at, written = rest + 64, rest + 128
                value = product(x_kind, table, x_at, _load(dy_kind, dy_at) if binary else splat(1.0))
                _store(out_kind, written, value)
                if count < LANES:
                    copy(out_at, written, count * out_size)
                c += count

    def part(layout: int, dy: int, x: int, out: int, table: int, first: int, last: int) -> None:
        rows, columns = load_one_int64(layout + 8 * ROWS), load_one_int64(layout + 8 * COLUMNS)
        tile_rows, tile_columns = load_one_int64(layout + 8 * TILE_ROWS), load_one_int64(layout + 8 * TILE_COLUMNS)
        dy_row, dy_column = load_one_int64(layout + 8 * DY_ROW), load_one_int64(layout + 8 * DY_COLUMN)
        x_row, x_column = load_one_int64(layout + 8 * X_ROW), load_one_int64(layout + 8 * X_COLUMN)
        out_row, out_column = load_one_int64(layout + 8 * OUT_ROW), load_one_int64(layout + 8 * OUT_COLUMN)
        dy_direct = load_one_int64(layout + 8 * DY_DIRECT)
        x_direct, out_direct = load_one_int64(layout + 8 * X_DIRECT), load_one_int64(layout + 8 * OUT_DIRECT)
        dy_size = size_of(load_one_int64(layout + 8 * DY_KIND))
        x_size, out_size = size_of(load_one_int64(layout + 8 * X_KIND)), size_of(load_one_int64(layout + 8 * OUT_KIND))
        band = load_one_int64(layout + 8 * BAND)
        across, down = (columns + tile_columns - 1) // tile_columns, (rows + tile_rows - 1) // tile_rows
        dy_buffer, x_buffer, out_buffer = scratch(BUFFER), scratch(BUFFER), scratch(BUFFER)
        for tile in range(first, last):
            position, within = tile // (across * down), tile % (across * down)
            left = within // (band * down) * band
            width = min(band, across - left)
            within -= left * down
            r, c = within // width * tile_rows, (left + within % width) * tile_columns
            height, width = min(tile_rows, rows - r), min(tile_columns, columns - c)
            dy_at, x_at = dy + r * dy_row + c * dy_column, x + r * x_row + c * x_column
            out_at = out + r * out_row + c * out_column
            dy_at, x_at, out_at = places(layout + 8 * OUTER, position, dy_at, x_at, out_at)
            dy_step, x_step, out_step, written = dy_row, x_row, out_row, out_at
            if binary and not dy_direct:
                _move(layout, 0, dy_buffer, dy_at, height, width, (dy_row, dy_column), dy_size)
                dy_at, dy_step = dy_buffer, width * dy_size
            if not x_direct:
                _move(layout, 0, x_buffer, x_at, height, width, (x_row, x_column), x_size)
                x_at, x_step = x_buffer, width * x_size
            if not out_direct:
                written, out_step = out_buffer, width * out_size
            block_rows, block_columns = height, width
            if not (dy_direct or x_direct or out_direct):
                block_rows, block_columns = 1, height * width  # without gaps a tile is one long row
            block(layout, dy_at, x_at, written, table, block_rows, block_columns, (dy_step, x_step, out_step))
            if not out_direct:
                _move(layout, 1, out_buffer, out_at, height, width, (out_row, out_column), out_size)

    return shared(part)
