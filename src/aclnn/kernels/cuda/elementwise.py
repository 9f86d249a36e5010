"""Elementwise operators on an NVIDIA GPU: one kernel, parametrised by a formula, and its plan."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import DataType, is_float32
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels import Formula, Nothing, Plan, identity
from aclnn.kernels.cuda import launch
from aclnn.kernels.cuda.formulas import (
    fast,
    fast_products,
    narrow_to_odd,
    on_float64,
    pattern,
    separable,
    tables,
    widen,
)
from aclnn.kernels.cuda.launch import integer, table_entry, table_entry_or, tl, triton
from aclnn.kernels.layouts import simplify
from aclnn.kernels.separable import separate
from aclnn.kernels.sixteen_bit import all_inputs, as_bytes, evaluate, round_to_odd
from aclnn.kernels.trace import trace

WARPS = 4
TILE, TILE_OF_RESULTS, TILE_OF_QUICK = 1024, 512, 2048
"""Elements of a program with one result, with several results, and with 16-bit results that take a look-up or little
arithmetic. The former need more registers (docs/pytorch.md has measurements)."""
REGISTERS, REGISTERS_OF_PRODUCTS = 72, 64
"""Limits per thread: rare code, computed in float64, should spill registers rather than reduce the number of programs
on a multiprocessor."""
NARROW = 64
"""Columns of a tile if neighbours are not adjacent: its 16 rows share the memory sectors that one row touches."""

_LARGEST = tl.constexpr((2.0 - 2.0**-23) * 2.0**127)
_TINY = tl.constexpr(2.0**-100)
_STEP = tl.constexpr(2.0**-75)
_PATTERNS = tl.constexpr(65536)


@triton.jit
def _of_entries(x, dy, table):
    """Return dy·f(x), or f(x) without dy, by the table entries of a 16-bit x.

    Products of a tiny entry and a dy above 1 use the second table, because the entry's digits do not fit into a
    float32. An infinite dy is multiplied by the entry of the first. No branch: deciding whether one is needed would
    synchronize the threads of a program.
    """
    at = table + pattern(x)
    entry = table_entry(at)
    result = entry
    if dy is not None:
        size = tl.abs(dy)
        tiny = (tl.abs(entry) < _TINY) & (entry != 0.0) & (size > 1.0)
        lifted = table_entry_or(at + _PATTERNS, tiny, 0.0)
        finite = ((dy * _STEP) * lifted) * _STEP
        infinite = dy * ((lifted * _STEP) * _STEP)
        result = tl.where(tiny, tl.where(size <= _LARGEST, finite, infinite), dy * entry)
    return result


@triton.jit
def _of_version(x, dy, table, VERSION: tl.constexpr):
    """Return dy·f(x), or f(x) without dy, by the fitted version for a 16-bit x."""
    value = VERSION(x.to(tl.float32), table)
    return value if dy is None else dy * value


@triton.jit
def _of_float32(x, dy, table, FORMULA: tl.constexpr, VERSION: tl.constexpr, BOUND: tl.constexpr):
    """Return dy·f(x): by the fitted version within its bound, in float64 beyond it.

    An infinite dy is multiplied by the derivative rounded to float32, which may be 0.
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
    """Return the formula's results in float64."""
    arguments = values[:0]
    for i in tl.static_range(len(values)):
        arguments = arguments + (widen(values[i]),)
    arguments = arguments + _of_halves(numbers)
    results = FORMULA(*arguments)
    return (results,) if RESULTS == 1 else results


@triton.jit
def _of_halves(numbers):
    """Assemble float64 passed as two integers each."""
    found = numbers[:0]
    for i in tl.static_range(0, len(numbers), 2):
        high, low = integer(numbers[i]) << 32, integer(numbers[i + 1])
        found = found + ((high | low).to(tl.float64, bitcast=True),)
    return found


@triton.jit
def _narrow(value, TYPE: tl.constexpr):
    """Convert a float64 to the float32 that rounds to a type as the float64 itself does."""
    return value.to(tl.float32) if tl.float32 == TYPE else narrow_to_odd(value)


@triton.jit
def _of_products(
    values, numbers, table, FORMULA: tl.constexpr, VERSION: tl.constexpr, RESULTS: tl.constexpr, TYPE: tl.constexpr
):
    """Return the results by a version for products, or by the formula in float64 where that is invalid."""
    arguments = values + _of_halves(numbers)
    results, outside = VERSION(table, *arguments)
    if tl.max(outside.to(tl.int32)) > 0:
        exact = _evaluate(values, numbers, FORMULA, RESULTS)
        chosen = results[:0]
        for i in tl.static_range(RESULTS):
            chosen = chosen + (tl.where(outside, _narrow(exact[i], TYPE), results[i]),)
        results = chosen
    return results


@triton.jit
def _rounded(value, TYPE: tl.constexpr):
    """Convert a number to a tensor's type, rounded once if it is a float64."""
    if value.dtype == tl.float64:
        value = _narrow(value, TYPE)
    return value.to(TYPE)


@triton.jit
def _load(pointers, mask):
    """Load the tiles at these pointers, whole ones if ``mask`` is None."""
    values = pointers[:0]
    for i in tl.static_range(len(pointers)):
        if i > 0:
            # Without the barrier, ptxas waits for the last load before it issues the first.
            tl.debug_barrier()
        if mask is None:
            values = values + (tl.load(pointers[i]),)
        else:
            values = values + (tl.load(pointers[i], mask=mask, other=0.0),)
    return values


@triton.jit
def _multiple(number, POWER: tl.constexpr):
    """Return a multiple of 2^POWER, in a form in which the compiler recognises it."""
    return (number >> POWER) << POWER


@triton.jit
def _valid(row, rows, column, columns, FILLED: tl.constexpr):
    return (row < rows)[:, None] & (column < _multiple(columns, FILLED))[None, :]


@triton.jit
def evaluate_tile(
    operands, table, numbers, axes, rows, columns, steps,
    FORMULA: tl.constexpr, VERSION: tl.constexpr, BOUND: tl.constexpr, RESULTS: tl.constexpr, LOOKUP: tl.constexpr,
    OUTER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, ALIGNED: tl.constexpr, FILLED: tl.constexpr,
):  # fmt: skip
    """Compute a tile of the last operands: the RESULTS of FORMULA of the others and of numbers (see ``_halves``).

    LOOKUP: FORMULA is a function of the last input only, whose result is multiplied by the first of two. VERSION is
    its fitted version and ``table`` holds its rows, or without one, for 16 bits, its entries (see ``_entries``). For
    other formulas VERSION is one for products (see ``_products``), or None. ``axes`` describes the OUTER dimensions
    outside the rows, innermost first: extent and strides of each operand (see ``launch.argument``). Steps are strides
    within a row, in elements. EVEN if tiles are never partial; rows start at multiples of 2^ALIGNED elements and their
    length is a multiple of 2^FILLED.
    """
    first = tl.program_id(0).to(tl.int64) * COLUMNS
    first_row = first * 0
    if OUTER > 0:
        first_row += (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * ROWS
    row = first_row + tl.arange(0, ROWS)
    # Triton recognises 16-byte accesses only after a start that is a multiple of the tile.
    column = tl.multiple_of(first, COLUMNS) + tl.arange(0, COLUMNS)
    starts = (tl.zeros((ROWS, 1), tl.int64),) * len(operands)
    rest = row
    for axis in tl.static_range(OUTER):
        index = rest[:, None]
        if axis < OUTER - 1:
            extent = integer(axes[(1 + len(operands)) * axis])
            index = (rest % extent)[:, None]
            rest = rest // extent
        moved = starts[:0]
        for i in tl.static_range(len(operands)):
            moved = moved + (starts[i] + index * integer(axes[(1 + len(operands)) * axis + 1 + i]),)
        starts = moved
    pointers = operands[:0]
    for i in tl.static_range(len(operands)):
        pointers = pointers + (operands[i] + (_multiple(starts[i], ALIGNED) + (column * steps[i])[None, :]),)
    inputs, outputs = pointers[:-RESULTS], pointers[-RESULTS:]
    # A mask with an arbitrary end narrows accesses to single elements: only partial tiles use one, created where it is
    # needed because it would occupy registers in between.
    if EVEN:
        whole: tl.constexpr = True
    else:
        whole = (first + COLUMNS <= columns) & (first_row + ROWS <= rows)
    if whole:  # noqa: SIM108 - a conditional expression has no tuples as its branches
        values = _load(inputs, None)
    else:
        values = _load(inputs, _valid(row, rows, column, columns, FILLED))
    if LOOKUP:
        x = values[-1]
        if x.dtype == tl.float32:
            dy = values[0] if len(inputs) == 2 else tl.full(x.shape, 1.0, tl.float32)
            results = (_of_float32(x, dy, table, FORMULA, VERSION, BOUND),)
        else:
            dy = values[0].to(tl.float32) if len(inputs) == 2 else None
            results = (_of_entries(x, dy, table) if VERSION is None else _of_version(x, dy, table, VERSION),)
    elif VERSION is not None:
        results = _of_products(values, numbers, table, FORMULA, VERSION, RESULTS, outputs[0].dtype.element_ty)
    else:
        results = _evaluate(values, numbers, FORMULA, RESULTS)
    for i in tl.static_range(RESULTS):
        result = _rounded(results[i], outputs[i].dtype.element_ty)
        if whole:
            tl.store(outputs[i], result)
        else:
            tl.store(outputs[i], result, mask=_valid(row, rows, column, columns, FILLED))


def _halves(number: float) -> tuple[int, int]:
    """Split a float64 into two arguments."""
    (pattern,) = struct.unpack("<Q", struct.pack("<d", number))
    high, low = divmod(pattern, 1 << 32)
    return launch.argument(high), launch.argument(low)


@lru_cache(maxsize=64)
def _entries(function: Formula, dtype: DataType, numbers: bytes, multiplied: bool) -> NDArray[np.float32] | None:
    """Return two tables of a function of every 16-bit input, by bit pattern, rounded to odd (see ``sixteen_bit``).

    The numbers are passed ``as_bytes``.

    The second table holds the values times 2^150, for values too small for all their digits to fit into a float32.
    None if a value to be multiplied by dy exceeds float32: a small dy may bring the product back into range.
    """
    given = np.frombuffer(numbers).tolist()
    values = evaluate(lambda x: function(x, *given), all_inputs(dtype))
    if multiplied and (np.abs(values[np.isfinite(values)]) > np.finfo(np.float32).max).any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # signalling NaN
        return round_to_odd(np.stack([values, np.ldexp(values, 150)]))


_MOST = 64
"""Maximum number of tables of functions with numbers. They are never freed: a CUDA graph keeps reading the memory it
was captured with."""
_tables: dict[Any, launch.Uploaded] = {}
_tables_with_numbers: dict[Any, launch.Uploaded] = {}
_QUICK = {"where", "absolute", "times"}


def _room_for(key: Any, numbers: tuple[float, ...]) -> dict[Any, launch.Uploaded] | None:
    """Return the dict in which a table is cached, None if the limit is reached."""
    kept = _tables_with_numbers if numbers else _tables
    return None if numbers and key not in kept and len(kept) >= _MOST else kept


def _is_quick(formula: Formula, arity: int) -> bool:
    """Return True for a formula as fast as a look-up even in float64: no division, no transcendental function."""
    words = (step.template.partition("(") for step in trace(formula, arity).steps)
    return all("/" not in word if not rest else word in _QUICK for word, _, rest in words)


def _lookup(
    formula: Formula, dtypes: Sequence[DataType], numbers: tuple[float, ...]
) -> tuple[dict[str, Any], launch.Uploaded] | None:
    """Return how to evaluate a function of one variable by a fitted version or a table, None if neither is possible."""
    multiplied = isinstance(formula, Gradient)
    x, function = dtypes[-1], formula.derivative if isinstance(formula, Gradient) else formula
    if len(set(dtypes)) > 1 or len(dtypes) != 2 + multiplied:
        return None
    if not numbers and (version := fast(function, x)) is not None:
        rows = version.rows or (0.0,)
        table = launch.get_or_make(
            _tables, version, lambda: launch.Uploaded(lambda: np.array(rows, np.float32), DataType.FLOAT)
        )
        bound = version.bound if version.bound < math.inf else None
        return {"FORMULA": on_float64(function, 1), "VERSION": version.function, "BOUND": bound}, table
    if x == DataType.FLOAT or _is_quick(function, 1 + len(numbers)):
        return None
    given = as_bytes(numbers)
    key = trace(function, 1 + len(numbers)).digest, x, given, multiplied
    if (kept := _room_for(key, numbers)) is None:
        return None
    if key not in kept:
        if (entries := _entries(function, x, given, multiplied)) is None:
            return None
        kept.setdefault(key, launch.Uploaded(lambda: np.ravel(entries), DataType.FLOAT))
    return {"FORMULA": None, "VERSION": None, "BOUND": None}, kept[key]


def _products(
    formula: Formula, dtypes: Sequence[DataType], inputs: int, numbers: tuple[float, ...]
) -> tuple[dict[str, Any], launch.Uploaded] | None:
    """Return how to evaluate a formula of products by fitted versions or tables, None for any other formula."""
    if len(set(dtypes)) > 1:
        return None
    dtype, arity = dtypes[0], inputs + len(numbers)
    key: Any
    if dtype == DataType.FLOAT:
        if not all(map(is_float32, numbers)) or (found := fast_products(formula, arity)) is None:
            return None
        version, rows = found
        key = version
    else:
        program = trace(formula, arity)
        if (separated := separate(program, numbers)) is None:
            return None
        version, rows = separable(program, separated), partial(tables, program, separated, dtype, numbers)
        key = program.digest, dtype, as_bytes(numbers)
    # Rows of fitted functions do not depend on numbers.
    if (kept := _room_for(key, () if dtype == DataType.FLOAT else numbers)) is None:
        return None
    table = launch.get_or_make(kept, key, lambda: launch.Uploaded(rows, DataType.FLOAT))
    return {"FORMULA": on_float64(formula, arity), "VERSION": version, "BOUND": None}, table


class Elementwise:
    """Plan for tensors that share no memory, or an output that aliases an input."""

    workspace_bytes = 0

    def __init__(
        self,
        formula: Formula,
        numbers: tuple[float, ...],
        inputs: tuple[Layout, ...],
        outputs: tuple[Layout, ...],
    ) -> None:
        operands = (*inputs, *outputs)
        self._dtypes = [operand.dtype for operand in operands]
        if unknown := set(self._dtypes) - launch.FLOATS:
            raise NotImplementedError(
                f"{formula.__name__}: expected float32, float16 or bfloat16 on a GPU, got {unknown.pop().name}"
            )
        self._table: launch.Uploaded | None
        lookup = None if len(outputs) > 1 else _lookup(formula, self._dtypes, numbers)
        self._numbers = () if lookup else tuple(chain.from_iterable(map(_halves, numbers)))
        products = None if lookup else _products(formula, self._dtypes, len(inputs), numbers)
        general = {"FORMULA": on_float64(formula, len(inputs) + len(numbers)), "VERSION": None, "BOUND": None}
        evaluation, self._table = lookup or products or (general, None)
        geometry = simplify(operands)
        assert not geometry.ordered, "aliasing outputs are scattered to"
        sizes = [dtype.itemsize for dtype in self._dtypes]
        self._starts = geometry.starts
        axes = [
            [axis.extent, *(step // size for step, size in zip(axis.steps, sizes, strict=True))]
            for axis in reversed(geometry.axes)
        ] or [[1] * (1 + len(operands))]
        (columns, *steps), *outer = axes
        rows = math.prod(axis[0] for axis in outer)
        tile = TILE if len(outputs) == 1 else TILE_OF_RESULTS
        if max(sizes) == 2 and (lookup or (not products and _is_quick(formula, len(inputs) + len(numbers)))):
            tile = TILE_OF_QUICK
        neighbours = set(steps) <= {0, 1}
        # Otherwise addresses need more registers.
        self._registers = (REGISTERS_OF_PRODUCTS if products else REGISTERS) if neighbours else None
        tile_columns = min(triton.next_power_of_2(columns), tile if neighbours else NARROW)
        tile_rows = min(triton.next_power_of_2(rows), tile // tile_columns)
        self._axes = tuple(map(launch.argument, chain(*outer)))
        row_tiles = triton.cdiv(rows, tile_rows)
        folds = triton.cdiv(row_tiles, launch.MOST_PROGRAMS)
        # Three dimensions, because a division by the number of tiles takes as long as loading one.
        self._grid = triton.cdiv(columns, tile_columns), triton.cdiv(row_tiles, folds), folds
        access = 2 if min(sizes) == 4 else 3  # elements of 16 bytes, as a power of two
        self._sizes = rows, columns, tuple(steps)
        self._launch = launch.Launcher()
        self._constants = {
            **evaluation,
            "RESULTS": len(outputs),
            "LOOKUP": lookup is not None,
            "OUTER": len(outer),
            "ROWS": tile_rows,
            "COLUMNS": tile_columns,
            "EVEN": rows % (tile_rows * folds) == 0 and columns % tile_columns == 0,
            "ALIGNED": access if not any(step % 2**access for axis in outer for step in axis[1:]) else 0,
            "FILLED": access if columns % 2**access == 0 else 0,
        }

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        addresses = list(map(add, (*inputs, *outputs), self._starts))
        self._launch(
            evaluate_tile,
            self._grid,
            tuple(map(launch.pointer, addresses, self._dtypes)),
            launch.pointer(0, DataType.FLOAT) if self._table is None else self._table.pointer(),
            self._numbers,
            self._axes,
            *self._sizes,
            kind=launch.kind(addresses),
            constants=self._constants,
            num_warps=WARPS,
            maxnreg=self._registers,
        )


@triton.jit
def scatter(source, out, pairs, count, BLOCK: tl.constexpr):
    """Copy ``out[pairs[k, 1]] = source[pairs[k, 0]]``."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = k < count
    value = tl.load(source + tl.load(pairs + 2 * k, mask=valid, other=0), mask=valid)
    tl.store(out + tl.load(pairs + 2 * k + 1, mask=valid, other=0), value, mask=valid)


class _Scatter:
    """Copies contiguous elements to a tensor with aliasing elements, of which the last one prevails."""

    workspace_bytes = 0

    def __init__(self, output: Layout) -> None:
        self._dtype = output.dtype
        offsets: Any = np.zeros((), np.int64)
        for extent, stride in zip(output.shape, output.strides, strict=True):
            offsets = np.add.outer(offsets, stride * np.arange(extent))
        offsets = offsets.reshape(-1)
        _, from_end = np.unique(offsets[::-1], return_index=True)
        last = offsets.size - 1 - from_end
        pairs = np.stack([last, offsets[last]], axis=1)
        self._count = len(pairs)
        self._pairs = launch.Uploaded(lambda: pairs, DataType.INT64)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        source, out = (launch.pointer(address, self._dtype) for address in (*inputs, *outputs))
        scatter[(triton.cdiv(self._count, TILE),)](source, out, self._pairs.pointer(), self._count, BLOCK=TILE)


def copy(source: Layout, target: Layout) -> Plan:
    """Plan a copy from a contiguous tensor to another, or from any tensor to a contiguous one."""
    if 0 in target.shape:
        return Nothing()
    return _Scatter(target) if simplify((target,)).ordered else Elementwise(identity, (), (source,), (target,))
