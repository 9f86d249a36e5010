"""The loop over tiles into which each formula is plugged."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels import Formula, Plan
from aclnn.kernels.cpu.geometry import simplify
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.elementwise.formulas import fast, narrow_to_odd, on_float64, widen
from aclnn.kernels.cuda.launch import TYPES, entry_at, entry_or, tl, triton
from aclnn.kernels.sixteen_bit import all_inputs, evaluate, round_to_odd
from aclnn.kernels.trace import trace

WARPS = 4
TILE, TILE_16_BIT = 512, 2048
"""Elements of a program: for each thread one 16-byte access of float32, whose formulas need most of the registers that
let nine programs run on a multiprocessor, or two where all tensors have 16 bits."""
NARROW = 64
"""Columns of a tile where neighbours lie apart: 16 rows share the memory sectors that one row touches."""

_LARGEST = tl.constexpr((2.0 - 2.0**-23) * 2.0**127)
_TINY = tl.constexpr(2.0**-100)
_STEP = tl.constexpr(2.0**-75)
_PATTERNS = tl.constexpr(65536)


@triton.jit
def _times_entry(dy, entry, at):
    """dy times an entry found at an address.

    Where a tiny entry meets a dy above 1 the product is taken from the second table, because the entry's own digits do
    not fit into a float32. An infinite dy is multiplied with the entry that does.
    """
    size = tl.abs(dy)
    tiny = (tl.abs(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
    lifted = entry_or(at + _PATTERNS, tiny, 0.0)
    finite = ((dy * _STEP) * lifted) * _STEP
    infinite = dy * ((lifted * _STEP) * _STEP)
    return tl.where(tiny, tl.where(size <= _LARGEST, finite, infinite), dy * entry)


@triton.jit
def _of_16_bit(x, dy, table, VERSION: tl.constexpr, BOUND: tl.constexpr):
    """dy·f(x): by the entries of x, or within its bound by the fitted version."""
    at = table + (x.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF)
    if VERSION is None:
        entry = entry_at(at)
    else:
        value = x.to(tl.float32)
        entry = VERSION(value, table + 2 * _PATTERNS)
        if BOUND is not None:
            entry = entry_or(at, (tl.abs(value) <= BOUND) == 0, entry)
    product = dy * entry
    if tl.min(tl.abs(entry)) < _TINY:
        product = _times_entry(dy, entry, at)
    return product


@triton.jit
def _of_float32(x, dy, table, FORMULA: tl.constexpr, VERSION: tl.constexpr, BOUND: tl.constexpr):
    """dy·f(x): within its bound by the fitted version, beyond it in float64.

    An infinite dy is multiplied with the derivative that float32 has: with 0 where that rounds to it.
    """
    product = dy * VERSION(x, table)
    if BOUND is not None:
        outside = (tl.abs(x) <= BOUND) == 0
        if tl.max(outside.to(tl.int32)) > 0:
            exact = FORMULA(widen(x))
            finite = (widen(dy) * exact).to(tl.float32)
            beyond = tl.where(tl.abs(dy) <= _LARGEST, finite, dy * exact.to(tl.float32))
            product = tl.where(outside, beyond, product)
    return product


@triton.jit
def _evaluate(values, numbers, FORMULA: tl.constexpr, RESULTS: tl.constexpr):
    """The formula's results in float64."""
    arguments = values[:0]
    for i in tl.static_range(len(values)):
        arguments = arguments + (widen(values[i]),)
    for i in tl.static_range(0, len(numbers), 2):
        high, low = (numbers[i] >> 1) << 32, (numbers[i + 1] >> 1) & 0xFFFFFFFF
        arguments = arguments + ((high | low).to(tl.float64, bitcast=True),)
    results = FORMULA(*arguments)
    return (results,) if RESULTS == 1 else results


@triton.jit
def _rounded(value, TYPE: tl.constexpr):
    """A number in a tensor's type, rounded once if it is a float64."""
    if tl.float32 == TYPE:
        return value.to(tl.float32)
    elif value.dtype == tl.float64:  # noqa: RET505 - decided when the kernel is compiled, as the first
        return narrow_to_odd(value).to(TYPE)
    else:
        return value.to(TYPE)


@triton.jit
def _read(pointers, valid):
    """The tiles at these pointers, whole ones where ``valid`` is None."""
    values = pointers[:0]
    for i in tl.static_range(len(pointers)):
        if i > 0:
            # Left alone, ptxas waits for the last before it asks for the first.
            tl.debug_barrier()
        if valid is None:
            values = values + (tl.load(pointers[i]),)
        else:
            values = values + (tl.load(pointers[i], mask=valid, other=0.0),)
    return values


@triton.jit
def _multiple(number, POWER: tl.constexpr):
    """A multiple of 2^POWER, in a form that shows it."""
    return (number >> POWER) << POWER


@triton.jit
def _inside(row, rows, column, columns, FILLED: tl.constexpr):
    return (row < rows)[:, None] & (column < _multiple(columns, FILLED))[None, :]


@triton.jit
def walk(
    operands, table, numbers, axes, rows, columns, steps,
    DTYPES: tl.constexpr, RESULTS: tl.constexpr, FORMULA: tl.constexpr,
    ALONE: tl.constexpr, VERSION: tl.constexpr, BOUND: tl.constexpr,
    OUTER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, ALIGNED: tl.constexpr, FILLED: tl.constexpr,
):  # fmt: skip
    """One tile of the last operands, the RESULTS of FORMULA of the others and of numbers (see ``_halves``).

    ALONE: FORMULA is a function of the last input alone, whose result is multiplied with the first of two. VERSION is
    its fitted version, ``table`` has its entries for every 16-bit x (see ``entries``) and then the rows of the version.
    ``axes`` describes the dimensions outside the rows, innermost first: extent (of the last any number) and the strides
    of each operand. Steps are in elements along a row. EVEN when tiles have no part outside; rows start at multiples of
    2^ALIGNED elements and have a multiple of 2^FILLED.
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
    starts = (tl.zeros((ROWS, 1), tl.int64),) * len(operands)
    rest = row
    for axis in tl.static_range(OUTER):
        describes = axes.to(tl.pointer_type(tl.int64)) + (1 + len(operands)) * axis
        index = rest[:, None]
        if axis < OUTER - 1:
            extent = tl.load(describes)
            index = (rest % extent)[:, None]
            rest = rest // extent
        moved = starts[:0]
        for i in tl.static_range(len(operands)):
            moved = moved + (starts[i] + index * tl.load(describes + 1 + i),)
        starts = moved
    pointers = operands[:0]
    for i in tl.static_range(len(operands)):
        start, along = _multiple(starts[i], ALIGNED), (column * steps[i])[None, :]
        pointers = pointers + (operands[i].to(tl.pointer_type(DTYPES[i])) + (start + along),)
    inputs, outputs = pointers[:-RESULTS], pointers[-RESULTS:]
    # A mask that ends anywhere narrows accesses to single elements: only tiles with a part outside have one, made where
    # it is needed because it would take registers in between.
    whole = (first + COLUMNS <= columns) & (first_row + ROWS <= rows)
    if EVEN:  # noqa: SIM114 - this is decided when the kernel is compiled, the next when it runs
        values = _read(inputs, None)
    elif whole:
        values = _read(inputs, None)
    else:
        values = _read(inputs, _inside(row, rows, column, columns, FILLED))
    if ALONE:
        x = values[-1]
        dy = values[0].to(tl.float32) if len(inputs) == 2 else tl.full(x.shape, 1.0, tl.float32)
        table = table.to(tl.pointer_type(tl.float32))
        if x.dtype == tl.float32:
            results = (_of_float32(x, dy, table, FORMULA, VERSION, BOUND),)
        else:
            results = (_of_16_bit(x, dy, table, VERSION, BOUND),)
    else:
        results = _evaluate(values, numbers, FORMULA, RESULTS)
    for i in tl.static_range(RESULTS):
        result = _rounded(results[i], outputs[i].dtype.element_ty)
        if EVEN:  # noqa: SIM114 - as above
            tl.store(outputs[i], result)
        elif whole:
            tl.store(outputs[i], result)
        else:
            tl.store(outputs[i], result, mask=_inside(row, rows, column, columns, FILLED))


def _halves(number: float) -> tuple[int, int]:
    """A float64 as two integers of one kind to Triton, which compiles anew for 1, multiples of 16 and 32 bits."""
    (pattern,) = struct.unpack("<Q", struct.pack("<d", number))
    high, low = ((1 << 40) + 2 * half + 1 for half in divmod(pattern, 1 << 32))
    return high, low


_tables: dict[Any, dict[Any, Any]] = {}


@lru_cache(maxsize=64)
def _entries(formula: Formula, dtype: DataType) -> NDArray[np.float32] | None:
    """Return two tables of a function of every 16-bit input, by bit pattern, rounded to odd (see ``sixteen_bit``).

    The second holds the values times 2^150, for those that are too small for all of their digits to fit into a float32.
    None where a value exceeds float32: a small dy may bring its product back.
    """
    values = evaluate(formula, all_inputs(dtype))
    if (np.abs(values[np.isfinite(values)]) > np.finfo(np.float32).max).any():
        return None
    with np.errstate(over="ignore"):
        return round_to_odd(np.stack([values, np.ldexp(values, 150)]))


class _Evaluator:
    """How ``walk`` computes: constants, and the table that it looks up."""

    def __init__(
        self, formula: Formula, inputs: Sequence[Layout], outputs: Sequence[Layout], numbers: tuple[float, ...]
    ) -> None:
        dtypes = [operand.dtype for operand in (*inputs, *outputs)]
        if unknown := set(dtypes) - set(TYPES):
            raise NotImplementedError(
                f"{formula.__name__}: expected float32, float16 or bfloat16 on a GPU, got {unknown.pop().name}"
            )
        self._entries = self._version = None
        x, function = dtypes[-1], formula.derivative if isinstance(formula, Gradient) else formula
        alone = len(outputs) == len(set(dtypes)) == 1 and len(inputs) == 1 + isinstance(formula, Gradient)
        alone = alone and not numbers
        if alone:
            self._version = fast(formula, x)
            self._entries = None if x == DataType.FLOAT else _entries(function, x)
            alone = (self._version if x == DataType.FLOAT else self._entries) is not None
        evaluated, arity = (function, 1) if alone else (formula, len(inputs))
        self._on = launch.kept(_tables, (trace(function, 1).digest, self._version, x), dict) if alone else None
        self.numbers = () if alone else tuple(chain.from_iterable(map(_halves, numbers)))
        self.constants: dict[str, Any] = {
            "DTYPES": tuple(TYPES[dtype] for dtype in dtypes),
            "RESULTS": len(outputs),
            "FORMULA": on_float64(evaluated, arity + len(numbers)),
            "ALONE": alone,
            "VERSION": self._version and self._version.function,
            "BOUND": None if self._version is None or self._version.bound == math.inf else self._version.bound,
        }

    @property
    def table(self) -> Any:
        """The table on the current device, as a kernel's argument."""
        if self._on is None:
            return launch.pointer(0, DataType.FLOAT)
        return launch.uploaded(self._on, self._table, DataType.FLOAT)

    def _table(self) -> Any:
        parts = (self._entries, self._version and self._version.rows, 0.0)
        return np.concatenate([np.ravel(part).astype(np.float32) for part in parts if part is not None])


class Elementwise:
    """Tensors that share no memory, or an output in an input's place."""

    workspace_bytes = 0

    def __init__(
        self,
        formula: Formula,
        numbers: tuple[float, ...],
        inputs: tuple[Layout, ...],
        outputs: tuple[Layout, ...],
    ) -> None:
        operands = (*inputs, *outputs)
        self._evaluator = _Evaluator(formula, inputs, outputs, numbers)
        geometry = simplify(operands)
        assert not geometry.ordered, "such an output is scattered to"
        self._dtypes = [operand.dtype for operand in operands]
        sizes = [dtype.itemsize for dtype in self._dtypes]
        self._starts = geometry.starts
        axes = [
            [axis.extent, *(step // size for step, size in zip(axis.steps, sizes, strict=True))]
            for axis in reversed(geometry.axes)
        ] or [[1] * (1 + len(operands))]
        (columns, *steps), *outer = axes
        rows = math.prod(axis[0] for axis in outer)
        near = all(step in (0, 1) for step in steps)
        tile = TILE if max(sizes) > 2 else TILE_16_BIT
        wide = min(launch.power_of_two(columns), tile if near else NARROW)
        tall = min(launch.power_of_two(rows), tile // wide)
        self._outer = list(chain(*outer))
        if outer:
            self._outer[-len(outer[0])] = 0  # as in ``launch.described``
        self._axes = launch.on_devices(self._outer)
        self._grid = (-(-rows // tall) * -(-columns // wide),)
        access = 2 if min(sizes) == 4 else 3  # elements of 16 bytes, as a power of two
        self._sizes = rows, columns, tuple(steps)
        self._constants = self._evaluator.constants | {
            "OUTER": len(outer),
            "ROWS": tall,
            "COLUMNS": wide,
            "EVEN": rows % tall == 0 and columns % wide == 0,
            "ALIGNED": access if not any(step % 2**access for axis in outer for step in axis[1:]) else 0,
            "FILLED": access if columns % 2**access == 0 else 0,
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        places = zip((*inputs, *outputs), self._starts, self._dtypes, strict=True)
        walk[self._grid](
            tuple(launch.pointer(address + start, dtype) for address, start, dtype in places),
            self._evaluator.table,
            self._evaluator.numbers,
            launch.uploaded(self._axes, lambda: self._outer) if self._outer else launch.pointer(0, DataType.INT64),
            *self._sizes,
            **self._constants,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )


class Nothing:
    """An empty result."""

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
    """Copies contiguous elements to a tensor whose elements coincide: of those in one place the last is written."""

    workspace_bytes = 0

    def __init__(self, output: Layout) -> None:
        self._dtype = output.dtype
        offsets: Any = np.zeros((), np.int64)
        for extent, stride in zip(output.shape, output.strides, strict=True):
            offsets = np.add.outer(offsets, stride * np.arange(extent))
        offsets = offsets.reshape(-1)
        _, from_end = np.unique(offsets[::-1], return_index=True)
        last = offsets.size - 1 - from_end
        self._places = np.stack([last, offsets[last]], axis=1)
        self._on: dict[Any, Any] = {}

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        scatter[(-(-len(self._places) // TILE),)](
            launch.pointer(inputs[0], self._dtype),
            launch.pointer(outputs[0], self._dtype),
            launch.uploaded(self._on, lambda: self._places),
            len(self._places),
            DTYPE=TYPES[self._dtype],
            BLOCK=TILE,
        )


def _same(x: float) -> float:
    return x


def copying(source: Layout, target: Layout) -> Plan:
    """Plan to copy the elements of a contiguous tensor to another, or of any tensor to a contiguous one."""
    if 0 in target.shape:
        return Nothing()
    return _Scattered(target) if simplify((target,)).ordered else Elementwise(_same, (), (source,), (target,))
