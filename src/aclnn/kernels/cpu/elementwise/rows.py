"""Rows whose elements lie side by side, with gaps between them, by the loop over contiguous elements."""

from __future__ import annotations

from aclnn.kernels.cpu.addresses import invoke, load_one_int64
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.chunks import Loop, shared
from aclnn.kernels.cpu.inner import register_jitable

LOOP, STREAMED, LENGTH, PIECE, PIECES, ITEMSIZE, ROW_AXES = range(7)
"""Places in the description of rows (see ``tiling.rows``). LOOP: the address of a kernel ``contiguous``.
LENGTH, PIECE: elements of a row, and of what is done at a time; PIECES: how many of these a row has. ROW_AXES: the
number of other dimensions, followed by extent and distances of dy, x and out for each, the last dimension first."""


@register_jitable
def places(axes: int, position: int, dy: int, x: int, out: int) -> tuple[int, int, int]:
    """Where dy, x and out are at a position in the dimensions that a description has from an address on."""
    for axis in range(load_one_int64(axes)):
        entry = axes + 8 + 32 * axis
        extent = load_one_int64(entry)
        index, position = position % extent, position // extent
        dy += index * load_one_int64(entry + 8)
        x += index * load_one_int64(entry + 16)
        out += index * load_one_int64(entry + 24)
    return dy, x, out


def loop() -> Loop:
    """Rows of any formula and kind, a piece at a time; the job is the address of their description."""

    def part(layout: int, dy: int, x: int, out: int, table: int, first: int, last: int) -> None:
        loop, streamed = load_one_int64(layout + 8 * LOOP), load_one_int64(layout + 8 * STREAMED)
        length, piece = load_one_int64(layout + 8 * LENGTH), load_one_int64(layout + 8 * PIECE)
        pieces, size = load_one_int64(layout + 8 * PIECES), load_one_int64(layout + 8 * ITEMSIZE)
        if out & (size - 1):
            streamed = 0
        for number in range(first, last):
            begin = number % pieces * piece
            dy_at, x_at, out_at = places(layout + 8 * ROW_AXES, number // pieces, dy, x, out)
            count, at = min(piece, length - begin), begin * size
            invoke(loop, streamed, dy_at + at, x_at + at, out_at + at, table, 0, count, count)
        if streamed:
            finish_streams()

    return shared(part)
