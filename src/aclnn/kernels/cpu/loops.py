"""The loops that every elementwise kernel runs in, written once and compiled for each formula.

All parameters are int64, addresses and distances in bytes. A binary loop computes out = dy·f(x), a unary one
out = f(x) and ignores dy. Any of them may work in place, the output being exactly an input.

Threads that share a loop take chunks of ``step`` from it until ``end``: ``begun`` is the address of their common
counter (see ``pool.sweep``), or 0 for a thread that does everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from aclnn.dtypes import DataType
from aclnn.kernels.cpu.atomics import fetch_add, finish_streams
from aclnn.kernels.cpu.ends import copy
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import (
    again,
    count_lanes,
    invoke,
    load_bfloat16,
    load_chosen,
    load_entries,
    load_float16,
    load_float32,
    load_one_int64,
    load_one_uint16,
    load_one_uint32,
    scratch,
    store_bfloat16,
    store_chosen,
    store_float16,
    store_float32,
    store_one_uint16,
    store_one_uint32,
    stream_bfloat16,
    stream_float16,
    stream_float32,
    transpose_16,
    transpose_32,
)
from aclnn.kernels.cpu.prefetching import prefetch, prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.slopes import Gradient, Near
from aclnn.kernels.cpu.vector import LANES, WIDE, absolute, any_lane, in_one_register, select, splat
from aclnn.kernels.cpu.wide import (
    any_above_16,
    any_above_32,
    any_tiny_bfloat16,
    load_wide_bfloat16,
    load_wide_float16,
    load_wide_float32,
    store_wide_bfloat16,
    store_wide_float16,
    store_wide_float32,
    stream_wide_bfloat16,
    stream_wide_float16,
    stream_wide_float32,
)

Loop = Callable[..., None]

#: How an operand is stored.
FLOAT32, FLOAT16, BFLOAT16 = range(3)
KINDS = {DataType.FLOAT: FLOAT32, DataType.FLOAT16: FLOAT16, DataType.BF16: BFLOAT16}

SECOND_TABLE = 4 * 65536
"""Bytes from the first table of slopes to the second (see ``entries``)."""

_AHEAD = {FLOAT32: prefetch_ahead_32, FLOAT16: prefetch_ahead_16, BFLOAT16: prefetch_ahead_16}
"""Without prefetching these loops take a third longer."""

_FARTHEST = 1024
"""How many bytes ahead of a tile's rows memory is asked for, at most."""

TILE = 1024
"""Elements of a tile: three buffers of it, 12 KiB, leave room in an L1 cache of 32 KiB for what they come from."""


_LINE = 64
"""Bytes that go to and from memory together."""

_BUFFER = 4 * TILE
_REST = 3 * _LINE


_MANY = 3
"""Of 64 x beyond the bound, from which on their tile is packed. GELU takes, on Zen 4, for sixteen: with σ = 2, 2 in 64,
10.3 ns instead of 12.3; with σ = 3, 10 in 64, 11.6 instead of 17.4; with σ = 1.5, 1 in 200, packing is no gain."""

_LOADS = {FLOAT32: load_float32, FLOAT16: load_float16, BFLOAT16: load_bfloat16}
_STORES = {FLOAT32: store_float32, FLOAT16: store_float16, BFLOAT16: store_bfloat16}
_STREAMS = {FLOAT32: stream_float32, FLOAT16: stream_float16, BFLOAT16: stream_bfloat16}


_WIDE_LOADS = {FLOAT32: load_wide_float32, FLOAT16: load_wide_float16, BFLOAT16: load_wide_bfloat16}
_WIDE_STORES = {FLOAT32: store_wide_float32, FLOAT16: store_wide_float16, BFLOAT16: store_wide_bfloat16}
_WIDE_STREAMS = {FLOAT32: stream_wide_float32, FLOAT16: stream_wide_float16, BFLOAT16: stream_wide_bfloat16}
_ABOVE = {FLOAT32: any_above_32, FLOAT16: any_above_16, BFLOAT16: any_above_16}
_PATTERNS = {FLOAT32: (np.float32, np.uint32), FLOAT16: (np.float16, np.uint16), BFLOAT16: (bfloat16, np.uint16)}

_TINY = 2.0**-100
"""Entries below this are also in the second table, times 2^150."""
_TINY_STEP = 2.0**-75
_LARGEST = (2.0 - 2.0**-23) * 2.0**127


@register_jitable(forceinline=True)
def _by_entries(table: int, x: int, dy: Any) -> Any:
    """dy times the entries for the sixteen 16-bit x at an address.

    Where a tiny slope meets a dy above 1 the product is taken from the second table, because the slope's own digits do
    not fit into a float32. An infinite dy is multiplied with the slope that does.
    """
    entry = load_entries(table, x)
    product = entry * dy
    size = absolute(dy)
    tiny = (absolute(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
    if any_lane(tiny):
        lifted = load_entries(table + SECOND_TABLE, again(x))
        finite = ((dy * _TINY_STEP) * lifted) * _TINY_STEP
        infinite = dy * ((lifted * _TINY_STEP) * _TINY_STEP)
        product = select(tiny, select(size <= _LARGEST, finite, infinite), product)
    return product


def _by_gradient(gradient: Gradient, load: Any) -> Any:
    gradient = register_jitable(forceinline=True)(gradient)

    @register_jitable(forceinline=True)
    def product(table: int, x: int, dy: Any) -> Any:
        return gradient(load(x), dy)

    return product


def _times(slope: Any) -> Gradient:
    def gradient(x: Any, dy: Any) -> Any:
        return dy * slope(x)

    return gradient


def entries(near: Near, kind: int) -> Loop:
    """A kernel that writes the slopes of the 65,536 x of a 16-bit kind at one address to another."""
    slope, load = near.slope, _LOADS[kind]

    def evaluate(x: int, out: int) -> None:
        for i in range(0, 65536, LANES):
            store_float32(out + 4 * i, slope(load(x + 2 * i)))

    return evaluate


def shared(part: Any) -> Loop:
    """The loop that takes chunks, for a function that does the chunk [first, last)."""
    part = register_jitable(part)

    def loop(job: int, dy: int, x: int, out: int, table: int, begun: int, step: int, end: int) -> None:
        first = fetch_add(begun, step) if begun else 0
        while first < end:
            part(job, dy, x, out, table, first, min(end, first + step))
            first = fetch_add(begun, step) if begun else end

    return loop


def _never(around: int, dy: int, x: int, out: int) -> bool:
    return False


def _safe(dy: int) -> bool:
    return False


def _tails_of(near: Near) -> tuple[Any, Any]:
    """Whether many x of a wide vector of float32 are beyond the bound, and what does whole wide vectors of such data.

    Those x are brought side by side before their tails are computed: with σ = 3, 16 % of GELU's are, some of nearly
    every sixteen.
    """
    slope, bound, tail = near
    vector, wide, prefetch_ahead = 4 * LANES, 4 * LANES * WIDE, _AHEAD[FLOAT32]

    @register_jitable(forceinline=True)
    def beyond(x: int) -> Any:
        return ~(absolute(load_float32(x)) <= bound)

    @register_jitable
    def many(x: int) -> bool:
        count = 0
        for at in range(0, wide, vector):
            count += count_lanes(beyond(x + at))
        return count >= _MANY

    @register_jitable
    def with_tails(around: int, dy: int, x: int, out: int, size: int) -> None:
        products, packed_x, packed_dy = scratch(_BUFFER), scratch(_BUFFER), scratch(_BUFFER)
        end = 0
        for at in range(0, size, vector):
            prefetch_ahead(x + at)
            prefetch_ahead(dy + at)
            store_float32(products + at, load_float32(dy + at) * slope(load_float32(x + at)))
            chosen = beyond(x + at)
            store_chosen(packed_x + end, load_float32(x + at), chosen)
            store_chosen(packed_dy + end, load_float32(dy + at), chosen)
            end += 4 * count_lanes(chosen)
        for at in range(0, end, vector):
            store_float32(packed_dy + at, tail(load_float32(packed_x + at), load_float32(packed_dy + at)))
        end = 0
        for at in range(0, size, vector):
            chosen = beyond(x + at)
            product = load_chosen(packed_dy + end, chosen, load_float32(products + at))
            end += 4 * count_lanes(chosen)
            if around:
                stream_float32(out + at, product)
            else:
                store_float32(out + at, product)

    return many, with_tails


def _few(x: int) -> bool:
    return False


def _without_tails(around: int, dy: int, x: int, out: int, size: int) -> None:
    pass


def _wide_of(near: Near, kind: int) -> Any:
    """A function that does a wide vector and says so, unless some of it is not near.

    Only where a vector is one register: elsewhere a wide one would not fit into the registers.
    """
    load, store, stream = _WIDE_LOADS[kind], _WIDE_STORES[kind], _WIDE_STREAMS[kind]
    slope, any_above = near.slope, _ABOVE[kind]
    unsafe = any_tiny_bfloat16 if kind == BFLOAT16 else register_jitable(_safe)
    form, pattern = _PATTERNS[kind]
    bound, bounded = int(np.array(near.bound).astype(form).view(pattern)), near.bound != math.inf

    @register_jitable(forceinline=True)
    def wide(around: int, dy: int, x: int, out: int) -> bool:
        if not in_one_register() or (bounded and any_above(x, bound)) or unsafe(dy):
            return False
        values = load(dy) * slope(load(x))
        if around:
            stream(out, values)
        else:
            store(out, values)
        return True

    return wide


def contiguous(gradient: Gradient | None, kind: int, binary: bool, near: Near | None = None) -> Loop:
    """Contiguous elements of one kind: by a gradient or, without one, of 16 bits by a table.

    The job is 0, or 1 to write around the cache, which wants ``out`` to be a multiple of the element's size; 2 is the
    same for a caller that finishes streams. ``near`` gives the same results, where it gives any.
    """
    load, store, stream = _LOADS[kind], _STORES[kind], _STREAMS[kind]
    if gradient is None and near is not None and near.bound == math.inf:
        gradient = _times(near.slope)
    product = _by_entries if gradient is None else _by_gradient(gradient, load)
    wide = register_jitable(_never) if near is None else _wide_of(near, kind)
    many, with_tails = register_jitable(_few), register_jitable(_without_tails)
    if near is not None and near.tail is not None:
        many, with_tails = _tails_of(near)
    size = 4 if kind == FLOAT32 else 2
    vector, vectors, prefetch_ahead = LANES * size, _LINE // (LANES * size), _AHEAD[kind]
    most = 1 if near is None else WIDE * vector // _LINE

    def part(streamed: int, dy: int, x: int, out: int, table: int, first: int, last: int) -> None:
        dy, x, out, left = dy + first * size, x + first * size, out + first * size, (last - first) * size
        rest = scratch(_REST)
        while left > 0:
            # Up to the output's first whole line, whole lines, what is left: parts of lines go through a buffer.
            head = -out & (_LINE - 1) if streamed else 0
            if head == 0 and left >= _LINE:
                here, around = left & -_LINE, streamed
                dy_at, x_at, out_at = dy, x, out
            else:
                here, around = min(left, head) if head else left, 0
                copy(rest, dy, here)
                copy(rest + _LINE, x, here)
                dy_at, x_at, out_at = rest, rest + _LINE, rest + 2 * _LINE
            at, count = 0, (here + _LINE - 1) // _LINE
            while count > 0:
                while count >= most and wide(around, dy_at + at, x_at + at, out_at + at):
                    for _ in range(most):
                        prefetch_ahead(x_at + at)
                        prefetch_ahead(dy_at + at)
                        at += _LINE
                    count -= most
                if in_one_register() and count >= most and many(x_at + at):
                    lines = min(count, TILE // LANES) & -most
                    with_tails(around, dy_at + at, x_at + at, out_at + at, lines * _LINE)
                    at += lines * _LINE
                    count -= lines
                    continue
                for _ in range(min(count, most)):
                    prefetch_ahead(x_at + at)
                    if binary:
                        prefetch_ahead(dy_at + at)
                    for _ in range(vectors):
                        value = product(table, x_at + at, load(dy_at + at) if binary else splat(1.0))
                        if around:
                            stream(out_at + at, value)
                        else:
                            store(out_at + at, value)
                        at += vector
                    count -= 1
            if out_at != out:
                copy(out, out_at, here)
            dy, x, out, left = dy + here, x + here, out + here, left - here
        if streamed == 1:
            finish_streams()

    return shared(part)


# --- rows ------------------------------------------------------------------------------------------------------------

LOOP, STREAMED, LENGTH, PIECE, PIECES, ITEMSIZE, ROW_AXES = range(7)
"""Places in the description of rows whose elements lie side by side. LOOP: the address of a kernel ``contiguous``.
LENGTH, PIECE: elements of a row, and of what is done at a time; PIECES: how many of these a row has. ROW_AXES: the
number of other dimensions, followed by extent and distances of dy, x and out for each, the last dimension first."""


@register_jitable
def _places(axes: int, position: int, dy: int, x: int, out: int) -> tuple[int, int, int]:
    """Where dy, x and out are at a position in the dimensions that a description has from an address on."""
    for axis in range(load_one_int64(axes)):
        entry = axes + 8 + 32 * axis
        extent = load_one_int64(entry)
        index, position = position % extent, position // extent
        dy += index * load_one_int64(entry + 8)
        x += index * load_one_int64(entry + 16)
        out += index * load_one_int64(entry + 24)
    return dy, x, out


def rows() -> Loop:
    """Rows of any formula and kind, a piece at a time; the job is the address of their description."""

    def part(layout: int, dy: int, x: int, out: int, table: int, first: int, last: int) -> None:
        loop, streamed = load_one_int64(layout + 8 * LOOP), load_one_int64(layout + 8 * STREAMED)
        length, piece = load_one_int64(layout + 8 * LENGTH), load_one_int64(layout + 8 * PIECE)
        pieces, size = load_one_int64(layout + 8 * PIECES), load_one_int64(layout + 8 * ITEMSIZE)
        if out & (size - 1):
            streamed = 0
        for number in range(first, last):
            begin = number % pieces * piece
            dy_at, x_at, out_at = _places(layout + 8 * ROW_AXES, number // pieces, dy, x, out)
            count, at = min(piece, length - begin), begin * size
            invoke(loop, streamed, dy_at + at, x_at + at, out_at + at, table, 0, count, count)
        if streamed:
            finish_streams()

    return shared(part)


# --- any layout ------------------------------------------------------------------------------------------------------
#
# A plan reduces a layout to rows × columns and outer dimensions, and describes that to the loop in an array of int64.

(
    MOVER_2, MOVER_4, ROWS, COLUMNS, TILE_ROWS, TILE_COLUMNS, BAND,
    DY_KIND, DY_DIRECT, DY_ROW, DY_COLUMN,
    X_KIND, X_DIRECT, X_ROW, X_COLUMN,
    OUT_KIND, OUT_DIRECT, OUT_ROW, OUT_COLUMN,
    OUTER,
) = range(20)  # fmt: skip
"""Places in the description. MOVER: addresses of the kernels ``mover``, where one is needed. BAND: tiles side by side
that are done before the tiles below. Kinds as above; direct: rows are used where they are, without a buffer. OUTER: the
number of outer dimensions, followed by extent and distances of dy, x and out for each, the last dimension first."""


@register_jitable
def _size(kind: int) -> int:
    return 4 if kind == FLOAT32 else 2


def _movers(size: int, load: Any, store: Any, transpose: Any) -> tuple[Any, Any]:
    """How tiles of elements of one size come into a buffer and back."""

    @register_jitable
    def transposed(to: int, pitch: int, source: int, step: int, rows: int, columns: int) -> None:
        """``columns`` runs of ``rows`` neighbours, ``step`` apart, become rows that are ``pitch`` apart."""
        for c in range(0, columns, LANES):
            for r in range(0, rows, LANES):
                corner, origin = to + r * pitch + c * size, source + r * size + c * step
                for i in range(LANES):  # the same block of the tile to the right
                    prefetch(origin + (columns + i) * step)
                if c + LANES <= columns and r + LANES <= rows:
                    transpose(corner, pitch, origin, step)
                else:
                    for i in range(min(LANES, columns - c)):
                        for k in range(min(LANES, rows - r)):
                            store(corner + k * pitch + i * size, load(origin + k * size + i * step))

    @register_jitable
    def gather(buffer: int, source: int, rows: int, columns: int, row: int, column: int) -> None:
        """A tile into a buffer, row by row without gaps."""
        pitch = columns * size
        if row == size and column != size and column != 0:
            transposed(buffer, pitch, source, column, rows, columns)
        elif column == size and pitch >= 4 * _LINE:
            for r in range(rows):
                copy(buffer + r * pitch, source + r * row, pitch)
        else:
            for r in range(rows):
                to, origin = buffer + r * pitch, source + r * row
                if column == 0:
                    value = load(origin)
                    for c in range(columns):
                        store(to + c * size, value)
                else:
                    for c in range(columns):
                        store(to + c * size, load(origin + c * column))

    @register_jitable
    def scatter(destination: int, buffer: int, rows: int, columns: int, row: int, column: int) -> None:
        """The reverse, each row in logical order: where elements coincide, the last one stays."""
        if row == size and column != size:
            transposed(destination, column, buffer, columns * size, columns, rows)
            return
        for r in range(rows):
            for c in range(columns):
                store(destination + r * row + c * column, load(buffer + (r * columns + c) * size))

    return gather, scatter


_MOVERS = {
    4: _movers(4, load_one_uint32, store_one_uint32, transpose_32),
    2: _movers(2, load_one_uint16, store_one_uint16, transpose_16),
}


def mover(size: int) -> Loop:
    """How tiles of elements of a size come into a buffer and back: a kernel that all kernels over tiles call.

    Compiled into each of them it took four fifths of their compilation, 5.7 s in all.
    """
    gather, scatter = _MOVERS[size]

    def move(back: int, buffer: int, address: int, rows: int, columns: int, row: int, column: int, unused: int) -> None:
        if back:
            scatter(address, buffer, rows, columns, row, column)
        else:
            gather(buffer, address, rows, columns, row, column)

    return move


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
    return _by_entries(table, x, dy)


@register_jitable
def _store(kind: int, address: int, value: Any) -> None:
    if kind == FLOAT32:
        store_float32(address, value)
    elif kind == FLOAT16:
        store_float16(address, value)
    else:
        store_bfloat16(address, value)


def tiles(gradient: Gradient | None, binary: bool) -> Loop:
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
        dy_size, x_size, out_size = _size(dy_kind), _size(x_kind), _size(out_kind)
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
        dy_size = _size(load_one_int64(layout + 8 * DY_KIND))
        x_size, out_size = _size(load_one_int64(layout + 8 * X_KIND)), _size(load_one_int64(layout + 8 * OUT_KIND))
        band = load_one_int64(layout + 8 * BAND)
        across, down = (columns + tile_columns - 1) // tile_columns, (rows + tile_rows - 1) // tile_rows
        dy_buffer, x_buffer, out_buffer = scratch(_BUFFER), scratch(_BUFFER), scratch(_BUFFER)
        for tile in range(first, last):
            position, within = tile // (across * down), tile % (across * down)
            left = within // (band * down) * band
            width = min(band, across - left)
            within -= left * down
            r, c = within // width * tile_rows, (left + within % width) * tile_columns
            height, width = min(tile_rows, rows - r), min(tile_columns, columns - c)
            dy_at, x_at = dy + r * dy_row + c * dy_column, x + r * x_row + c * x_column
            out_at = out + r * out_row + c * out_column
            dy_at, x_at, out_at = _places(layout + 8 * OUTER, position, dy_at, x_at, out_at)
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
