"""How tiles come into a buffer and back, whatever the distances between their elements."""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import load_one_uint16, load_one_uint32, store_one_uint16, store_one_uint32
from aclnn.kernels.cpu.chunks import Loop
from aclnn.kernels.cpu.ends import copy
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import transpose_16, transpose_32
from aclnn.kernels.cpu.prefetching import prefetch
from aclnn.kernels.cpu.vector import LANES


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
        elif column == size:
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
        if column == size:
            for r in range(rows):
                copy(destination + r * row, buffer + r * columns * size, columns * size)
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
