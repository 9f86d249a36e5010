"""Golden values: the exact result of the operator's definition, rounded once to the output's type.

Formulas run on float64 intervals, which bound their own errors, and on balls of increasing precision where two
candidates are left. LayerNorm is computed in double-float64 arithmetic, and with rationals where that is undecided. So
``rounded`` is the correctly rounded result of every element, and ``value`` is within 2**-8 ULP of the exact one.
Infinite and NaN inputs follow the operators' "Numerics" tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from aclnn.core import operator
from aclnn.core.operator import Call, Columns, Operator, Part, PerChannel, Shape
from aclnn.formula import Gradient
from aclnn.kernels.cpu import threads
from aclnn.kernels.locks import lock_across_forks
from aclnn.support.optional import import_or_raise
from aclnn.typing import Array
from aclnn.verify.goldens import layer_norm as norm
from aclnn.verify.goldens.enclosures import Ball, Interval, Later, Points
from aclnn.verify.number_formats import NumberFormat, format_of, quiet

T = TypeVar("T")
Places = slice | Array
"""Elements in row-major order: a range, or an array of indices."""

VALUE_BOUND_ULP = 2.0**-8
"""Bound on the error of ``value``, in ULP of the output's type."""


@dataclass(frozen=True)
class Golden:
    """Golden values of some elements, flat."""

    value: Array
    """float64 values within VALUE_BOUND_ULP of the exact results."""
    rounded: Array
    """Exact results rounded once to the output's type: an error of at most half an ULP."""
    resolved: int = 0
    """Number of elements that float64 left undecided, and balls or rationals decided."""
    undecided: int = 0
    """Number of elements with float64 values without bounds, since deciding them takes too long."""


BALL_BITS = (128, 256, 512, 1024)
"""Precisions of balls; elements undecided at the last one keep the float64 value, such as 1 for 1 + e^-1000."""

CACHED_ELEMENTS = 1 << 15
"""Elements per block: temporaries of 256 KB each stay in or near a core's cache."""

#: Guards python-flint's precision, which is global to all threads.
_lock = lock_across_forks()


@contextmanager
def ball_precision(bits: int) -> Iterator[None]:
    """Compute on balls with this many bits."""
    with _lock, import_or_raise("flint", "verify").ctx.workprec(bits):
        yield


@dataclass(frozen=True)
class Function:
    """One result of an operator's formula as a function of its operands."""

    formula: Callable[..., Any]
    """Function made of the functions of ``aclnn.formula``."""
    numbers: tuple[float, ...] = ()
    """The formula's last arguments."""
    result: int = 0
    """Index of the result, for a formula with several."""
    results: int = 1
    """Number of results; if there are several, computations that only the others need are skipped."""

    def __call__(self, *operands: Any) -> Any:
        """Evaluate on enclosures or points."""
        given = [*operands, *map(type(operands[0]).of, self.numbers)]
        if self.results > 1:
            given = [one if isinstance(one, float) else Later(lambda value=one: value) for one in given]
        results = self.formula(*given)
        found = results[self.result] if isinstance(results, tuple) else results
        return found.value if isinstance(found, Later) else found

    def at_points(self, operands: Sequence[Array]) -> Array:
        """Evaluate in float64, without bounds."""
        return np.asarray(self(*(values.view(Points) for values in operands)), np.float64) + np.zeros(operands[0].shape)

    @quiet
    def golden(self, operands: Sequence[Array], target: NumberFormat) -> Golden:
        """Return golden values at flat operands of any of the three types.

        Raises:
            MissingExtraError: intervals leave elements undecided, and python-flint is not installed.
        """
        wide = [operand.astype(np.float64) for operand in operands]
        lower, upper = np.empty(wide[0].size), np.empty(wide[0].size)
        for begin in range(0, lower.size, CACHED_ELEMENTS):
            part = slice(begin, begin + CACHED_ELEMENTS)
            found = Interval.of(self(*(Interval(x[part], x[part]) for x in wide)))
            lower[part], upper[part] = found.low, found.high
        value = 0.5 * (lower + upper)
        finite = np.logical_and.reduce([np.isfinite(x) for x in wide])
        unsure = np.flatnonzero(finite & unsure_of(value, lower, upper, target))
        resolved = unsure.size
        for bits in BALL_BITS:
            if unsure.size:
                lower[unsure], upper[unsure] = self._balls([x[unsure] for x in wide], bits)
                value[unsure] = 0.5 * (lower[unsure] + upper[unsure])
                unsure = unsure[unsure_of(value[unsure], lower[unsure], upper[unsure], target)]
        points = np.concatenate([np.flatnonzero(~finite), unsure])
        value[points] = lower[points] = self.at_points([x[points] for x in wide])
        return Golden(value, target.round(lower), resolved)

    def _balls(self, operands: Sequence[Array], bits: int) -> Array:
        """Return the ends of balls around the results, (2, n); NaN for a zero, whose sign balls lose."""
        tuples, which = np.unique(np.stack(operands), axis=1, return_inverse=True)
        with ball_precision(bits):
            if isinstance(self.formula, Gradient):
                derivative = Function(self.formula.derivative, self.numbers)
                known = cache(lambda x: derivative(Ball.of(x)))
                balls = [Ball.of(dy) * known(x) for dy, x in tuples.T.tolist()]
            else:
                balls = [Ball.of(self(*map(Ball.of, operands))) for operands in tuples.T.tolist()]
            found = np.array([ball.ends() for ball in balls]).T
        found[:, (found == 0.0).all(axis=0)] = np.nan
        ends: Array = found[:, which.reshape(-1)]
        return ends


def unsure_of(value: Array, lower: Array, upper: Array, target: NumberFormat) -> Array:
    """Mark where the ends round differently, are too far apart for errors in ULP, or are not finite."""
    unsure: Array = (upper - lower) * 2.0 ** (target.digits - math.log2(VALUE_BOUND_ULP)) > np.abs(value)
    unsure &= np.abs(value) >= target.smallest_normal * 2.0 ** (-target.digits - 1)
    unsure |= target.bits(target.round(lower)) != target.bits(target.round(upper))
    unsure |= ~np.isfinite(value)
    return unsure


Piece = tuple[Any, Function, dict[str, Array], Callable[[Array], Array]]


@dataclass(frozen=True)
class _Piece:
    """A part of an output that is filled by one result of a formula."""

    part: Columns
    rows: int | None
    """Number of rows that are filled; None for all."""
    function: Function
    operands: Mapping[str, Flat]

    def places(self, at: Places, shape: Shape) -> tuple[Any, Any]:
        """Return which of an output's elements are in the part, and their places in it."""
        chosen = range(self.part.begin, self.part.end, self.part.step)
        count = math.prod(shape[self.part.dim :])
        if chosen == range(count) and self.rows is None:
            return slice(None), at
        every = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        row, column = np.divmod(every, count)
        place, rest = np.divmod(column - chosen.start, chosen.step)
        inside = (rest == 0) & (place >= 0) & (place < len(chosen))
        here = np.flatnonzero(inside if self.rows is None else inside & (row < self.rows))
        return here, (row * len(chosen) + place)[here]


def _as_columns(written: str | Part | Columns, shape: Shape) -> Columns:
    """Return an output's part as columns of the matrix whose rows are the dimensions before the part's."""
    if isinstance(written, Columns):
        return written
    if isinstance(written, str):
        return Columns(written, 0, 0, math.prod(shape))
    inner = math.prod(shape[written.dim + 1 :])
    return Columns(written.tensor, written.dim, written.begin * inner, written.end * inner)


def _shape_of(written: str | Part | Columns, shape: Shape) -> Shape:
    """Return the shape to which inputs broadcast for a part of an output."""
    if isinstance(written, Columns):
        return math.prod(shape[: written.dim]), len(range(written.begin, written.end, written.step))
    if isinstance(written, str):
        return shape
    return (*shape[: written.dim], written.end - written.begin, *shape[written.dim + 1 :])


class Elementwise:
    """Golden values of a formula's output, block by block; inputs broadcast and may exceed memory.

    Args:
        call: valid call of an operator that computes a formula.
        inputs: input tensors by Python name.
        output: C name of the output.
        dtype: data type of the output.
    """

    def __init__(self, call: Call, inputs: Mapping[str, Array], output: str, dtype: np.dtype[Any]) -> None:
        self.target = format_of(dtype)
        self.shape: Shape = call[output].shape
        self.size: int = math.prod(self.shape)
        self._pieces: list[_Piece] = []
        self._fill = 0.0
        work = call.operator.work(call)
        if isinstance(work, operator.Library) and not work.inputs:  # statistics of no elements
            numbers = np.broadcast_to(work.function(), len(work.outputs))
            self._fill = float(numbers[work.outputs.index(output)]) if output in work.outputs else 0.0
        if not isinstance(work, operator.Elementwise):  # nothing to compute
            return
        groups = None if work.groups is None else inputs[call.operator.parameter(work.groups).python_name]
        rows = None if groups is None else sum(groups.reshape(-1).tolist())
        for result, written in enumerate(work.outputs):
            part = _as_columns(written, self.shape)
            if part.tensor == output:
                shape = _shape_of(written, self.shape)
                operands = dict(operand_of(call.operator, inputs, name) for name in work.inputs)
                flat = {name: Flat(np.broadcast_to(array, shape)) for name, array in operands.items()}
                self._pieces.append(
                    _Piece(part, rows, Function(work.formula, work.numbers, result, len(work.outputs)), flat)
                )

    @property
    def function(self) -> Function:
        """Function that computes the first elements."""
        return self._pieces[0].function

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands."""
        return tuple(self._pieces[0].operands) if self._pieces else ()

    shared: tuple[str, ...] = ()
    summed = False
    read = 1
    """Number of operand elements that an output element depends on."""

    @property
    def step(self) -> int:
        """Number of elements in a block."""
        return BLOCK_ELEMENTS

    @property
    def at_once(self) -> int:
        """Number of elements whose operands fit in memory at once."""
        return max(1, self.size)

    def row_by_row(self, positions: Places) -> Places:
        """Return elements given by positions in row-by-row order: the same, since there are no rows."""
        return positions

    def positions(self, at: Array) -> Array:
        """Return the positions of elements in row-by-row order: the same."""
        return at

    def pieces(self, at: Places) -> Iterator[Piece]:
        """Yield, for elements in row-major order: a selection, the function that computes it, its operands by name.

        The last item selects these elements from the function's results.
        """
        for piece in self._pieces:
            here, inside = piece.places(at, self.shape)
            operands = {name: operand[inside] for name, operand in piece.operands.items()}
            yield here, piece.function, operands, np.asarray

    def operands(self, at: Places) -> dict[str, Array]:
        """Return the operands of elements by Python name."""
        found: dict[str, Array] = {}
        for here, _, operands, _ in self.pieces(at):
            for name, values in operands.items():
                found.setdefault(name, np.zeros(count_of(at), values.dtype))[here] = values
        return found

    def block(self, begin: int, end: int) -> Golden:
        """Return the golden values of elements begin to end in row-major order."""
        return self.golden(slice(begin, end))

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        value = np.full(count_of(at), self._fill)
        rounded, resolved = value.astype(self.target.dtype.numpy), 0
        for here, function, operands, _ in self.pieces(at):
            found = function.golden([*operands.values()], self.target)
            value[here], rounded[here] = found.value, found.rounded
            resolved += found.resolved
        return Golden(value, rounded, resolved)


def count_of(at: Places) -> int:
    """Return the number of elements."""
    return at.stop - at.start if isinstance(at, slice) else at.size


def operand_of(
    operator: Operator, inputs: Mapping[str, Array], operand: str | Part | PerChannel | Columns
) -> tuple[str, Array]:
    """Return an operand's name and values; a part's name is the tensor's with the range."""
    if isinstance(operand, str):
        name = operator.parameter(operand).python_name
        return name, inputs[name]
    name = operator.parameter(operand.tensor).python_name
    if isinstance(operand, PerChannel):
        values, rank = inputs[name].reshape(-1), max(array.ndim for array in inputs.values())
        return name, values.reshape(()) if values.size == 1 else values.reshape((1, -1) + (1,) * (rank - 2))
    if isinstance(operand, Columns):
        matrix = inputs[name].reshape(math.prod(inputs[name].shape[: operand.dim]), -1)
        if (operand.begin, operand.end, operand.step) == (0, matrix.shape[1], 1):
            return name, matrix
        step = f":{operand.step}" * (operand.step > 1)
        chosen = slice(operand.begin, operand.end, operand.step)
        return f"{name}[{operand.begin}:{operand.end}{step}]", matrix[:, chosen]
    part = (slice(None),) * operand.dim + (slice(operand.begin, operand.end),)
    return f"{name}[{operand.begin}:{operand.end}]", inputs[name][part]


class Flat:
    """Elements of an array in row-major order, accessed without copying the whole."""

    def __init__(self, array: Array) -> None:
        self._items: Any = array.reshape(-1) if array.flags.c_contiguous else array.flat

    def __getitem__(self, part: slice | Array) -> Array:
        return np.asarray(self._items[part])


class LayerNorm:
    """Golden gradients of LayerNorm, by blocks of rows; dy and x (M·N elements) may exceed memory.

    With ``eps``, mean and rstd are recomputed from x in float64: forward and backward in cascade.
    """

    def __init__(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        columns: int,
        eps: float | None = None,
    ) -> None:
        self.columns = columns
        self.rows = x.size // columns if columns else 0
        self.size = self.rows * columns
        self._dy, self._x = Flat(dy), Flat(x)
        self._mean, self._rstd = (np.asarray(a).reshape(-1).astype(np.float64) for a in (mean, rstd))
        self._weight = np.ones(columns) if weight is None else np.asarray(weight).reshape(-1).astype(np.float64)
        self._eps = eps

    @quiet
    def inputs(self, begin: int, end: int) -> tuple[Array, Array]:
        """Return dy and x of rows begin to end, each (rows, N), in float64."""
        part = slice(begin * self.columns, end * self.columns)
        shape = end - begin, self.columns
        return self._dy[part].reshape(shape).astype(np.float64), self._x[part].reshape(shape).astype(np.float64)

    @quiet
    def _statistics(self, begin: int, end: int, x: Array) -> tuple[Array, Array]:
        if self._eps is None:
            return self._mean[begin:end], self._rstd[begin:end]
        mean = x.mean(axis=1)
        return mean, 1.0 / np.sqrt(np.square(x - mean[:, None]).mean(axis=1) + self._eps)

    @quiet
    def block(self, begin: int, end: int, target: NumberFormat) -> Golden:
        """Return dx of rows begin to end, flat."""
        dy, x = self.inputs(begin, end)
        mean, rstd = self._statistics(begin, end, x)
        value, lower, upper = np.empty(x.shape), np.empty(x.shape), np.empty(x.shape)
        norm.input_gradient(x, dy, mean, rstd, self._weight, value, lower, upper)
        apart = target.bits(target.round(lower)) != target.bits(target.round(upper))
        unsure = np.argwhere(apart & np.isfinite(value))
        for i in np.unique(unsure[:, 0]).tolist():
            at = unsure[unsure[:, 0] == i, 1].tolist()
            exact = norm.exact_dx(x[i], dy[i], float(mean[i]), float(rstd[i]), self._weight, at)
            lower[i, at] = [target.round_exact(item) for item in exact]
            value[i, at] = [float(item) for item in exact]
        return Golden(value.reshape(-1), target.round(lower).reshape(-1), len(unsure))

    def sums(self, begin: int, end: int) -> tuple[Array, Array]:
        """Return the contributions of rows begin to end to dw and db: (4, N) each, for ``columns_golden``."""
        dy, x = self.inputs(begin, end)
        mean, rstd = self._statistics(begin, end, x)
        dw, db = np.zeros((4, self.columns)), np.zeros((4, self.columns))
        norm.column_sums(x, dy, mean, rstd, dw, db)
        return dw, db

    def columns_golden(self, total: Array, target: NumberFormat, bias: bool) -> Golden:
        """Return dw (or db) from the merged sums of all rows."""
        value, lower, upper = np.empty(self.columns), np.empty(self.columns), np.empty(self.columns)
        norm.column_ends(total, value, lower, upper)
        apart = target.bits(target.round(lower)) != target.bits(target.round(upper))
        unsure = np.flatnonzero(apart & np.isfinite(value))
        for j in unsure.tolist():
            exact = self._exact_column(j, bias)
            lower[j], value[j] = target.round_exact(exact), float(exact)
        return Golden(value, target.round(lower), unsure.size)

    @quiet
    def _exact_column(self, j: int, bias: bool) -> Any:
        every = slice(j, self.size, self.columns)
        dy = self._dy[every].astype(np.float64)
        if bias:
            return norm.exact_db(dy)
        x = self._x[every].astype(np.float64)
        mean, rstd = self._mean, self._rstd
        if self._eps is not None:
            parts = [self._statistics(i, i + 1, self.inputs(i, i + 1)[1]) for i in range(self.rows)]
            mean, rstd = (np.concatenate(column) for column in zip(*parts, strict=True))
        return norm.exact_dw(x, dy, mean, rstd)


BLOCK_ELEMENTS = 1 << 18
"""Elements per block. With smaller blocks, threads exchange the interpreter lock more often: 2**15 took half as long
again on two threads."""


def map_blocks(function: Callable[[int, int], T], size: int, step: int) -> Iterator[T]:
    """Yield ``function(begin, end)`` over [0, size) in steps, on as many threads as the kernels use, in order."""
    if 0 < size <= step:  # a single block: starting threads would take longer
        yield function(0, size)
        return
    ranges = ((begin, min(begin + step, size)) for begin in range(0, size, step))
    count = threads.shared().threads
    with ThreadPoolExecutor(count) as workers:
        pending = []
        for begin, end in ranges:
            pending.append(workers.submit(function, begin, end))
            if len(pending) > 2 * count:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()


Progress = Callable[[float], None]


def sub_progress(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Return a progress function for a part of the work."""
    return None if progress is None else lambda done: progress(begin + (end - begin) * done)


def joined(blocks: Sequence[Golden], shape: Sequence[int], dtype: np.dtype[Any]) -> Golden:
    """Concatenate the golden values of blocks."""
    value = np.concatenate([np.empty(0), *(block.value for block in blocks)])
    rounded = np.concatenate([np.empty(0, dtype), *(block.rounded for block in blocks)])
    resolved, undecided = (
        sum(counts) for counts in zip((0, 0), *((b.resolved, b.undecided) for b in blocks), strict=True)
    )
    return Golden(value.reshape(shape), rounded.reshape(shape), resolved, undecided)
