"""Elementwise operators in Triton: one loop over tiles into which each formula is plugged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.kernels import Formula, Plan
from aclnn.kernels.cpu.geometry import simplify
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise import entries
from aclnn.kernels.cuda.elementwise.estimates import ESTIMATES, doubtful
from aclnn.kernels.cuda.elementwise.formulas import FORMULAS
from aclnn.kernels.cuda.elementwise.pieces import LARGEST
from aclnn.kernels.cuda.launch import TYPES, entry_at, entry_or, tl, torch, triton
from aclnn.tensor import Layout, contiguous_strides

WARPS = 4
TILE, TILE_16_BIT = 512, 2048
"""Elements of a program: for each thread one 16-byte access of float32, whose formulas need most of the registers that
let nine programs run on a multiprocessor, or two where all tensors have 16 bits."""
NARROW = 64
"""Columns of a tile where neighbours lie apart: 16 rows share the memory sectors that one row touches."""


_TINY = tl.constexpr(2.0**-100)
_STEP = tl.constexpr(2.0**-75)
_PATTERNS = tl.constexpr(65536)


@triton.jit
def times_entry(dy, entry, at):
    """dy times an entry found at an address.

    Where a tiny entry meets a dy above 1 the product is taken from the second table, because the entry's own digits do
    not fit into a float32. An infinite dy is multiplied with the entry that does.
    """
    size = tl.abs(dy)
    tiny = (tl.abs(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
    lifted = entry_or(at + _PATTERNS, tiny, 0.0)
    finite = ((dy * _STEP) * lifted) * _STEP
    infinite = dy * ((lifted * _STEP) * _STEP)
    return tl.where(tiny, tl.where(size <= LARGEST, finite, infinite), dy * entry)


@triton.jit
def by_entries(x, dy, at, OUT: tl.constexpr, ESTIMATE: tl.constexpr, TRAITS: tl.constexpr):
    """dy times the entry ``at`` each address, or where that rounds alike times the ESTIMATE of x."""
    if ESTIMATE is None:
        product = times_entry(dy, entry_at(at), at)
    else:
        estimate = ESTIMATE(x)
        dropped: tl.constexpr = 23 - OUT.fp_mantissa_width
        entry = entry_or(at, doubtful(estimate, dropped, TRAITS), estimate)
        product = dy * entry
        if TRAITS[2]:  # noqa: SIM102 - this is decided when the kernel is compiled, the next when it runs
            if tl.min(tl.abs(entry)) < _TINY:
                product = times_entry(dy, entry, at)
    return product


@triton.jit
def _read(pointer, valid, WHOLE: tl.constexpr):
    return tl.load(pointer) if WHOLE else tl.load(pointer, mask=valid, other=0.0)


@triton.jit
def _operands(dy_pointer, x_pointer, valid, BINARY: tl.constexpr, WHOLE: tl.constexpr):
    """dy, or 1 unless BINARY, and x."""
    if BINARY:
        gradient = _read(dy_pointer, valid, WHOLE).to(tl.float32)
        # Left alone, ptxas waits for x before it asks for dy.
        tl.debug_barrier()
        value = _read(x_pointer, valid, WHOLE)
    else:
        value = _read(x_pointer, valid, WHOLE)
        gradient = tl.full(value.shape, 1.0, tl.float32)
    return gradient, value


@triton.jit
def _multiple(number, POWER: tl.constexpr):
    """A multiple of 2^POWER, in a form that shows it."""
    return (number >> POWER) << POWER


@triton.jit
def _inside(row, rows, column, columns, FILLED: tl.constexpr):
    return (row < rows)[:, None] & (column < _multiple(columns, FILLED))[None, :]


@triton.jit
def walk(
    dy, x, out, table, axes, rows, columns, dy_step, x_step, out_step,
    DY: tl.constexpr, X: tl.constexpr, OUT: tl.constexpr, FORMULA: tl.constexpr,
    ESTIMATE: tl.constexpr, TRAITS: tl.constexpr, BINARY: tl.constexpr,
    OUTER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, ALIGNED: tl.constexpr, FILLED: tl.constexpr,
):  # fmt: skip
    """One tile of out = FORMULA(x, dy), dy being 1 unless BINARY. Steps are in elements along a row.

    ``axes`` describes the dimensions outside the rows, innermost first: extent (of the last any number) and the three
    strides of each. Without a FORMULA ``table`` has the two tables of ``entries``; for ESTIMATE and its TRAITS see
    ``by_entries``. EVEN when tiles have no part outside; rows start at multiples of 2^ALIGNED elements and have a
    multiple of 2^FILLED.
    """
    program = tl.program_id(0)
    if OUTER > 0:
        tiles = (columns - 1) // COLUMNS + 1  # where ``tl.cdiv`` could leave 32 bits
        first = (program % tiles).to(tl.int64) * COLUMNS
        first_row = (program // tiles).to(tl.int64) * ROWS
    else:  # one row: a division would take as long as the rest
        first = program.to(tl.int64) * COLUMNS
        first_row = first * 0
    row = first_row + tl.arange(0, ROWS)
    # Triton sees 16-byte accesses only behind a start that is a multiple of the tile.
    column = tl.multiple_of(first, COLUMNS) + tl.arange(0, COLUMNS)
    dy_row = tl.zeros((ROWS, 1), tl.int64)
    x_row, out_row = dy_row, dy_row
    rest = row
    for axis in tl.static_range(OUTER):
        describes = axes.to(tl.pointer_type(tl.int64)) + 4 * axis
        index = rest[:, None]
        if axis < OUTER - 1:
            extent = tl.load(describes)
            index = (rest % extent)[:, None]
            rest = rest // extent
        dy_row = dy_row + index * tl.load(describes + 1)
        x_row = x_row + index * tl.load(describes + 2)
        out_row = out_row + index * tl.load(describes + 3)
    dy_pointer = dy.to(tl.pointer_type(DY)) + (_multiple(dy_row, ALIGNED) + (column * dy_step)[None, :])
    x_pointer = x.to(tl.pointer_type(X)) + (_multiple(x_row, ALIGNED) + (column * x_step)[None, :])
    out_pointer = out.to(tl.pointer_type(OUT)) + (_multiple(out_row, ALIGNED) + (column * out_step)[None, :])
    table = table.to(tl.pointer_type(tl.float32))
    # A mask that ends anywhere narrows accesses to single elements: only tiles with a part outside have one, made where
    # it is needed because it would take registers in between.
    whole = (first + COLUMNS <= columns) & (first_row + ROWS <= rows)
    if EVEN:  # noqa: SIM114 - this is decided when the kernel is compiled, the next when it runs
        gradient, value = _operands(dy_pointer, x_pointer, None, BINARY, True)
    elif whole:
        gradient, value = _operands(dy_pointer, x_pointer, None, BINARY, True)
    else:
        valid = _inside(row, rows, column, columns, FILLED)
        gradient, value = _operands(dy_pointer, x_pointer, valid, BINARY, False)
    if FORMULA is None:
        at = table + (value.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF)
        result = by_entries(value.to(tl.float32), gradient, at, OUT, ESTIMATE, TRAITS)
    else:
        result = FORMULA(value.to(tl.float32), gradient, table)
    if EVEN:  # noqa: SIM114 - as above
        tl.store(out_pointer, result.to(OUT))
    elif whole:
        tl.store(out_pointer, result.to(OUT))
    else:
        tl.store(out_pointer, result.to(OUT), mask=_inside(row, rows, column, columns, FILLED))


def _same(x: float) -> float:
    """x itself: the formula that copies."""
    return x


_tables: dict[tuple[Formula, DataType], dict[Any, Any]] = {}


def _table(formula: Formula, dtype: DataType) -> Any:
    """The formula's table on the current device: those of every 16-bit input, or the float32 version's coefficients."""

    def numbers() -> Any:
        return FORMULAS[formula.__name__][1] if dtype == DataType.FLOAT else entries.table(formula, dtype)

    return launch.uploaded(launch.kept(_tables, (formula, dtype), dict), numbers, DataType.FLOAT)


class _Elementwise:
    workspace_bytes = 0

    def __init__(self, formula: Formula, inputs: tuple[Layout, ...], output: Layout) -> None:
        if inputs[-1].dtype == DataType.FLOAT and formula.__name__ not in FORMULAS:
            raise NotImplementedError(
                f"{formula.__name__}: expected a formula with a CUDA version for float32, got none"
            )
        self._formula, self._inputs, self._output = formula, inputs, output
        dy, x = inputs[0], inputs[-1]
        geometry = simplify((dy, x, output))
        assert not geometry.ordered, "such an output is scattered to"
        sizes = [layout.dtype.itemsize for layout in (dy, x, output)]
        self._starts = geometry.starts
        axes = [
            [axis.extent, *(step // size for step, size in zip(axis.steps, sizes, strict=True))]
            for axis in reversed(geometry.axes)
        ] or [[1, 1, 1, 1]]
        (columns, *steps), *outer = axes
        rows = math.prod(axis[0] for axis in outer)
        near = all(step in (0, 1) for step in steps)
        tile = TILE if max(sizes) > 2 else TILE_16_BIT
        wide = min(launch.power_of_two(columns), tile if near else NARROW)
        tall = min(launch.power_of_two(rows), tile // wide)
        self._outer = [number for axis in outer for number in axis]
        if self._outer:
            self._outer[-4] = 0  # as in ``launch.described``
        self._axes = launch.on_devices(self._outer)
        self._grid = (-(-rows // tall) * -(-columns // wide),)
        access = 2 if min(sizes) == 4 else 3  # elements of 16 bytes, as a power of two
        self._sizes = rows, columns, *steps
        # An estimate's doubts are about roundings to x's own type.
        none = None, None
        estimate, traits = ESTIMATES.get(formula.__name__, none) if x.dtype == output.dtype else none
        self._constants = {
            "DY": TYPES[dy.dtype],
            "X": TYPES[x.dtype],
            "OUT": TYPES[output.dtype],
            "FORMULA": FORMULAS[formula.__name__][0] if x.dtype == DataType.FLOAT or formula is _same else None,
            "ESTIMATE": estimate,
            "TRAITS": traits and tuple(traits),
            "BINARY": len(inputs) == 2,
            "OUTER": len(outer),
            "ROWS": tall,
            "COLUMNS": wide,
            "EVEN": rows % tall == 0 and columns % wide == 0,
            "ALIGNED": access if not any(step % 2**access for axis in outer for step in axis[1:]) else 0,
            "FILLED": access if columns % 2**access == 0 else 0,
        }
        self._apart: dict[None, tuple[Plan, Plan]] = {}
        # Of each input its span and whether the output may replace it.
        self._read = [(*layout.span, layout == output) for layout in inputs]
        self._written = output.span

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        out = outputs[0]
        begin, end = (out + edge for edge in self._written)
        for address, (low, high, same) in zip(inputs, self._read, strict=True):
            # Writing could change an input that is still to be read.
            if address + low < end and begin < address + high and not (same and address == out):
                self._run_apart(inputs, out)
                return
        addresses = (inputs[0], inputs[-1], out)
        dtypes = (self._inputs[0].dtype, self._inputs[-1].dtype, self._output.dtype)
        walk[self._grid](
            *(launch.pointer(a + start, d) for a, start, d in zip(addresses, self._starts, dtypes, strict=True)),
            _table(self._formula, self._inputs[-1].dtype),
            launch.uploaded(self._axes, lambda: self._outer) if self._outer else launch.pointer(0, DataType.INT64),
            *self._sizes,
            **self._constants,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )

    def _run_apart(self, inputs: Sequence[int], out: int) -> None:
        between = contiguous(self._output)

        def made() -> tuple[Plan, Plan]:
            return _Elementwise(self._formula, self._inputs, between), copying(between, self._output)

        computing, writing = launch.kept(self._apart, None, made)
        memory = memory_of(between)
        computing.run(inputs, [memory.data_ptr()], 0)
        writing.run([memory.data_ptr()], [out], 0)


def contiguous(layout: Layout) -> Layout:
    """The same elements in a row."""
    return Layout(layout.dtype, layout.shape, contiguous_strides(layout.shape))


def memory_of(layout: Layout) -> Any:
    """Memory of its own for a contiguous tensor, as a PyTorch tensor of bytes."""
    nbytes = math.prod(layout.shape) * layout.dtype.itemsize
    return torch.empty(nbytes, dtype=torch.uint8, device=launch.device())


def copying(source: Layout, target: Layout) -> Plan:
    """What copies the elements of one tensor to another."""
    return plan(_same, (source,), (target,))


class _Nothing:
    workspace_bytes = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """There is nothing to do."""


@triton.jit
def scatter(source, out, places, count, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """out[places[k, 1]] = source[places[k, 0]]."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = k < count
    pairs = places.to(tl.pointer_type(tl.int64)) + 2 * k
    value = tl.load(source.to(tl.pointer_type(DTYPE)) + tl.load(pairs, mask=valid, other=0), mask=valid)
    tl.store(out.to(tl.pointer_type(DTYPE)) + tl.load(pairs + 1, mask=valid, other=0), value, mask=valid)


class _Scattered:
    """For an output whose elements coincide: computed apart, then of those in one place the last is written."""

    workspace_bytes = 0

    def __init__(self, formula: Formula, inputs: tuple[Layout, ...], output: Layout) -> None:
        self._output, self._between = output, contiguous(output)
        self._apart = _Elementwise(formula, inputs, self._between)
        steps = zip(output.shape, output.strides, strict=True)
        offsets: Any = np.zeros((), np.int64)
        for extent, stride in steps:
            offsets = np.add.outer(offsets, stride * np.arange(extent))
        offsets = offsets.reshape(-1)
        _, from_end = np.unique(offsets[::-1], return_index=True)
        last = offsets.size - 1 - from_end
        self._places = np.stack([last, offsets[last]], axis=1)
        self._on: dict[Any, Any] = {}

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        memory = memory_of(self._between)
        self._apart.run(inputs, [memory.data_ptr()], 0)
        scatter[(-(-len(self._places) // TILE),)](
            launch.pointer(memory.data_ptr(), self._output.dtype),
            launch.pointer(outputs[0], self._output.dtype),
            launch.uploaded(self._on, lambda: self._places),
            len(self._places),
            DTYPE=TYPES[self._output.dtype],
            BLOCK=TILE,
        )


def plan(
    formula: Formula, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], numbers: tuple[float, ...] = ()
) -> Plan:
    """See ``aclnn.kernels.elementwise``.

    Raises:
        NotImplementedError: the formula has no version here.
    """
    output, *others = outputs
    if isinstance(formula, Gradient):
        formula = formula.derivative
    elif len(inputs) > 1:
        others.append(output)
    if others or numbers:
        raise NotImplementedError(f"{formula.__name__}: expected a function of one variable for a GPU, got another")
    if 0 in output.shape:
        return _Nothing()
    return (_Scattered if simplify((output,)).ordered else _Elementwise)(formula, inputs, output)
