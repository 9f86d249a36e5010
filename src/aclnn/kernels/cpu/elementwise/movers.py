"""How tiles come into a buffer and back, whatever the distances between their elements."""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import (
    load_one_int64,
    load_one_uint16,
    load_one_uint32,
    store_one_int64,
    store_one_uint16,
    store_one_uint32,
)
from aclnn.kernels.cpu.chunks import Loop
from aclnn.kernels.cpu.ends import copy_in, copy_out
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import load_float32, store_float32, transpose_16, transpose_32
from aclnn.kernels.cpu.prefetching import prefetch
from aclnn.kernels.cpu.vector import LANES

_LINE = 64


@register_jitable
def _bring_row(buffer: int, source: int, nbytes: int, ahead: int) -> None:
    """Copy a row; what is in the buffer behind it may be overwritten."""
    for at in range(0, nbytes, _LINE):
        prefetch(source + ahead + at)
        if at + _LINE <= nbytes:
            store_float32(buffer + at, load_float32(source + at))
        else:
            copy_in(source + at, nbytes - at, buffer + at)


@register_jitable
def _return_row(destination: int, buffer: int, nbytes: int, ahead: int) -> None:
    """Copy a row to where it belongs."""
    for at in range(0, nbytes, _LINE):
        prefetch(destination + ahead + at)
        if at + _LINE <= nbytes:
            store_float32(destination + at, load_float32(buffer + at))
        else:
            copy_out(buffer + at, nbytes - at, destination + at)


def _movers(size: int, load: Any, store: Any, transpose: Any) -> tuple[Any, Any]:
    """How tiles of elements of one size come into a buffer and back."""

    @register_jitable
    def transposed(to: int, pitch: int, source: int, step: int, rows: int, columns: int, ahead: int, back: int) -> None:
        """``columns`` runs of ``rows`` neighbours, ``step`` apart, become rows that are ``pitch`` apart."""
        for c in range(0, columns, LANES):
            for r in range(0, rows, LANES):
                corner, origin = to + r * pitch + c * size, source + r * size + c * step
                outside, distance = (corner, pitch) if back else (origin, step)
                for i in range(LANES):  # the same block of the next tile
                    prefetch(outside + i * distance + ahead)
                if c + LANES <= columns and r + LANES <= rows:
                    transpose(corner, pitch, origin, step)
                else:
                    for i in range(min(LANES, columns - c)):
                        for k in range(min(LANES, rows - r)):
                            store(corner + k * pitch + i * size, load(origin + k * size + i * step))

    @register_jitable
    def gather(buffer: int, source: int, rows: int, columns: int, row: int, column: int, ahead: int) -> None:
        """A tile into a buffer, row by row without gaps."""
        pitch = columns * size
        if row == size and column != size and column != 0:
            transposed(buffer, pitch, source, column, rows, columns, ahead, 0)
        elif column == size:
            for r in range(rows):
                _bring_row(buffer + r * pitch, source + r * row, pitch, ahead)
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
    def scatter(destination: int, buffer: int, rows: int, columns: int, row: int, column: int, ahead: int) -> None:
        """The reverse, each row in logical order: where elements coincide, the last one stays."""
        if row == size and column != size:
            transposed(destination, column, buffer, columns * size, columns, rows, ahead, 1)
            return
        if column == size:
            for r in range(rows):
                _return_row(destination + r * row, buffer + r * columns * size, columns * size, ahead)
            return
        for r in range(rows):
            for c in range(columns):
                store(destination + r * row + c * column, load(buffer + (r * columns + c) * size))

    return gather, scatter


@register_jitable
def _transpose_64(corner: int, pitch: int, origin: int, step: int) -> None:
    """As ``transpose_32``, element by element."""
    for i in range(LANES):
        for k in range(LANES):
            store_one_int64(corner + k * pitch + 8 * i, load_one_int64(origin + i * step + 8 * k))


_MOVERS = {
    8: _movers(8, load_one_int64, store_one_int64, _transpose_64),
    4: _movers(4, load_one_uint32, store_one_uint32, transpose_32),
    2: _movers(2, load_one_uint16, store_one_uint16, transpose_16),
}


def mover(size: int) -> Loop:
    """How tiles of elements of a size come into a buffer and back; the next tile is ``ahead`` bytes further."""
    gather, scatter = _MOVERS[size]

    def move(back: int, buffer: int, address: int, rows: int, columns: int, row: int, column: int, ahead: int) -> None:
        if back:
            scatter(address, buffer, rows, columns, row, column, ahead)
        else:
            gather(buffer, address, rows, columns, row, column, ahead)

    return move
