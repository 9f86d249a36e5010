"""Plans of elementwise operators on the CPU: which loop runs, over which chunks, on how many threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Formula, Plan
from aclnn.kernels.cpu import pool
from aclnn.kernels.cpu.chunks import Loop
from aclnn.kernels.cpu.compiler import Kernel, address_of, kernel
from aclnn.kernels.cpu.elementwise import contiguous, entries, formulas, movers, rows, tiles, tiling
from aclnn.kernels.cpu.elementwise.kinds import KINDS
from aclnn.kernels.cpu.geometry import Geometry, simplify
from aclnn.kernels.cpu.overlaps import Overlaps, same_elements
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.tensor import Layout

CHUNK = 1 << 14
"""Elements that a thread takes at a time: 4 to 10 µs of work."""
PER_US = 3000
"""Elements in a microsecond, about."""

ALONE = 1 << 15
"""Up to this many elements the calling thread does everything: sharing costs 3 µs."""


def plan(formula: Formula, inputs: tuple[Layout, ...], output: Layout) -> Plan:
    """See ``aclnn.kernels.elementwise``."""
    if 0 in output.shape:
        return _Nothing()
    geometry = simplify((*inputs, output))
    # A 16-bit result from x of its own type takes its slopes from a table; any other evaluates the float32 slope.
    x = inputs[-1]
    table = entries.table(formula, x.dtype) if x.dtype == output.dtype != DataType.FLOAT else None
    if len({operand.dtype for operand in (*inputs, output)}) == 1 and _is_contiguous(geometry, output.dtype.itemsize):
        return _Contiguous(formula, len(inputs), output, geometry, table)
    return _Strided(formula, inputs, output, geometry, table)


def _is_contiguous(geometry: Geometry, itemsize: int) -> bool:
    if any(geometry.starts) or geometry.ordered or len(geometry.axes) > 1:
        return False
    return all(step == itemsize for axis in geometry.axes for step in axis.steps)


class _Nothing:
    """An empty result."""

    workspace_bytes = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """There is nothing to do."""


class _Contiguous:
    """All operands contiguous and of one data type."""

    __slots__ = ("_bytes", "_itemsize", "_kernel", "_size", "_table", "_table_address", "workspace_bytes")

    def __init__(
        self, formula: Formula, arity: int, output: Layout, geometry: Geometry, table: NDArray[np.float32] | None
    ) -> None:
        self.workspace_bytes = 0
        self._size = math.prod(axis.extent for axis in geometry.axes)
        self._itemsize = output.dtype.itemsize
        self._bytes = self._size * self._itemsize
        self._table = table  # keeps the address valid
        self._table_address = 0 if table is None else table.ctypes.data
        self._kernel = _contiguous_kernel(formula, arity == 2, output.dtype)
        pool.prepare(1 if self._size <= ALONE else -(-self._size // CHUNK))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        dy, x, out = inputs[0], inputs[-1], outputs[0]
        reach = self._bytes
        if (out != dy and abs(out - dy) < reach) or (out != x and abs(out - x) < reach):
            (dy, x), _copies = Overlaps(((0, reach),) * 2, ((0, reach),), alike=(0, 1)).apart((dy, x), (out,))
        run, table, size = self._kernel, self._table_address, self._size
        if size <= ALONE:
            run(0, dy, x, out, table, 0, size, size)
        else:
            streamed = reach >= STREAM_BYTES and out % self._itemsize == 0
            pool.sweep(run, (streamed, dy, x, out, table), CHUNK, size, size // PER_US)


def _contiguous_kernel(formula: Formula, binary: bool, dtype: DataType) -> Kernel:
    form, kind = "binary" if binary else "unary", KINDS[dtype]
    near = formulas.near(formula, dtype) if binary else None
    if dtype != DataType.FLOAT and near is None:
        return kernel(f"contiguous-{dtype.name}-{form}", (), lambda: contiguous.loop(None, kind, binary))

    def made() -> Loop:
        return contiguous.loop(formulas.gradient(formula) if dtype == DataType.FLOAT else None, kind, binary, near)

    return kernel(f"contiguous-{formula.__name__}-{dtype.name}-{form}", (formulas.fingerprint(formula),), made)


class _Strided:
    """Any layouts and data types."""

    __slots__ = (
        "_description", "_kernel", "_overlaps", "_per_chunk", "_starts", "_table", "_tiles", "_work_us",
        "workspace_bytes",
    )  # fmt: skip

    def __init__(
        self,
        formula: Formula,
        inputs: tuple[Layout, ...],
        output: Layout,
        geometry: Geometry,
        table: NDArray[np.float32] | None,
    ) -> None:
        self.workspace_bytes = 0
        binary, itemsize = len(inputs) == 2, output.dtype.itemsize
        if len({operand.dtype for operand in (*inputs, output)}) == 1 and tiling.in_rows(geometry, itemsize):
            by_row = address_of(_contiguous_kernel(formula, binary, output.dtype))
            found = tiling.rows(geometry, itemsize, by_row, STREAM_BYTES)
            self._kernel = kernel("rows", (), rows.loop)
        else:
            found = tiling.tile(geometry, [KINDS[operand.dtype] for operand in (*inputs, output)], _mover)
            self._kernel = _tiles_kernel(None if table is not None else formula, binary)
        self._description = found.description
        self._tiles = found.tiles
        self._per_chunk = found.tiles if geometry.ordered else max(1, CHUNK // found.tile_elements)
        pool.prepare(-(-self._tiles // self._per_chunk))
        self._work_us = found.tiles * found.tile_elements // PER_US
        self._starts = geometry.starts
        self._table = table
        # Reading and writing the same element is harmless only where nothing is written twice.
        alone = not geometry.ordered and all(stride for extent, stride in zip(*output[1:], strict=True) if extent > 1)
        alike = {i for i, layout in enumerate(inputs) if alone and same_elements(layout, output)}
        self._overlaps = Overlaps([layout.span for layout in inputs], (output.span,), alike)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        addresses, _copies = self._overlaps.apart(inputs, outputs)
        dy, x, out = (
            address + start
            for address, start in zip(
                (addresses[0], addresses[-1], outputs[0]), (self._starts[0], *self._starts[-2:]), strict=True
            )
        )
        run, tiles, step = self._kernel, self._tiles, self._per_chunk
        layout, table = self._description.ctypes.data, 0 if self._table is None else self._table.ctypes.data
        pool.sweep(run, (layout, dy, x, out, table), step, tiles, self._work_us)


def _mover(size: int) -> int:
    """The address of the kernel that moves tiles of elements of this many bytes."""
    return address_of(kernel(f"mover-{size}", (), lambda: movers.mover(size)))


def _tiles_kernel(formula: Formula | None, binary: bool) -> Kernel:
    """The loop over tiles for a formula, or for slopes from a table."""
    form = "binary" if binary else "unary"
    if formula is None:
        return kernel(f"tiles-entries-{form}", (), lambda: tiles.loop(None, binary))
    return kernel(
        f"tiles-{formula.__name__}-{form}",
        (formulas.fingerprint(formula),),
        lambda: tiles.loop(formulas.gradient(formula), binary),
    )
