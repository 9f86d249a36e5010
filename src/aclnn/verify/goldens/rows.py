"""Golden values of formulas over rows, and of sums over elements, computed for whole rows.

A row is computed on float64 intervals, with sums in double-float64 arithmetic; undecided elements are then computed on
balls. Sums add float64 terms in double-float64 arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from threading import Lock
from types import EllipsisType
from typing import Any

import numpy as np

from aclnn.core.operator import Call, LayerNormBackward, Reduction, Shape, Sums, View
from aclnn.formula import Real, row_mean
from aclnn.kernels.trace import trace
from aclnn.operators.normalization import centred_norm_gradients
from aclnn.typing import Array
from aclnn.verify.goldens.enclosures import Ball, Balls, Interval, Points, add_to_sums, in_float64, once_a_row
from aclnn.verify.goldens.values import (
    BALL_BITS,
    BLOCK_ELEMENTS,
    CACHED_ELEMENTS,
    Elementwise,
    Flat,
    Function,
    Golden,
    Piece,
    Places,
    ball_precision,
    count_of,
    joined,
    map_blocks,
    unsure_of,
)
from aclnn.verify.number_formats import format_of, quiet

Pick = tuple[Array, Array] | EllipsisType
"""Elements of some rows, by row and column, or all elements."""

_ROWS_AT_LEAST = 6
"""Minimum number of rows in a block, for outputs with one element per row."""
_BALLS_AT_MOST = 1 << 18
"""Limit on balls, at 40 µs each, for an output in which any row may use them. In larger outputs, rows with many
undecided elements, such as those that cancel entirely, keep their float64 values."""
_MANY = 1.0 / 64.0
"""Share of undecided elements that makes a row such a row."""


def rms_norm_gradients(dy: Real, x: Real, rstd: Real, w: Real) -> tuple[Real, Real]:
    """Return RMSNorm's gradients: dx, and each element's contribution to dw."""
    xhat, g = x * rstd, dy * w
    return (g - xhat * row_mean(g * xhat)) * rstd, dy * xhat


def reduction_of(call: Call, output: str) -> Reduction | None:
    """Return the formula over rows of an output, by C name; None if elements are computed individually."""
    work = call.operator.work(call)
    if isinstance(work, LayerNormBackward):
        return _of_norm(call, work)
    return work if isinstance(work, Reduction) else None


def _of_norm(call: Call, work: LayerNormBackward) -> Reduction:
    dy, x, mean, rstd, weight = (name or "" for name in work.inputs)
    shape = call[x].shape
    split = len(shape) - work.normalized_dims
    rows, dims = shape[:split] + (1,) * work.normalized_dims, tuple(range(split, len(shape)))
    dx, *others = work.outputs
    sums = [None if name is None else Sums(View(name, shape[split:])) for name in others]
    given = View(rstd, rows), View(weight, shape[split:]) if weight else 1.0
    if work.centred:
        return Reduction(centred_norm_gradients, (dy, x, View(mean, rows), *given), (dx, *sums), dims)
    return Reduction(rms_norm_gradients, (dy, x, *given), (dx, sums[0]), dims)


@cache
def _filled(formula: Callable[..., Any], given: tuple[float | None, ...]) -> Callable[..., Any]:
    """Return a formula with numbers bound to some arguments."""
    if all(number is None for number in given):
        return formula

    def filled(*operands: Any) -> Any:
        left = iter(operands)
        return formula(*(next(left) if number is None else number for number in given), *left)

    return filled


@dataclass(frozen=True)
class _RowView:
    """Array broadcast to the common shape without a copy, accessed as (rows, N)."""

    array: Array
    """Array with a row's dimensions last; (rows, N) if strides can express that."""
    kept: int
    """Number of dimensions that index the rows."""

    @classmethod
    def of(cls, array: Array, shape: Shape, dims: Sequence[int]) -> _RowView:
        kept = len(shape) - len(dims)
        whole = np.moveaxis(np.broadcast_to(array, shape), dims, range(kept, len(shape)))
        rows, columns = math.prod(whole.shape[:kept]), math.prod(whole.shape[kept:])
        if rows and columns:
            if _constant(whole, range(kept, len(shape))):
                first = whole[(slice(None),) * kept + (0,) * len(dims)]
                return cls(np.broadcast_to(first.reshape(rows, 1), (rows, columns)), 1)
            if _constant(whole, range(kept)):
                return cls(np.broadcast_to(whole[(0,) * kept].reshape(1, columns), (rows, columns)), 1)
            if whole.flags.c_contiguous:
                return cls(whole.reshape(rows, columns), 1)
        return cls(whole, kept)

    def __getitem__(self, rows: Array | slice) -> Array:
        """Return some rows, without copies of values that are constant over rows or along a row."""
        count, columns = count_of(rows), math.prod(self.array.shape[self.kept :])
        if self.kept != 1:
            every = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            return self.array[np.unravel_index(every, self.array.shape[: self.kept])].reshape(count, columns)
        distinct = self.array[:, :1] if _constant(self.array, range(1, self.array.ndim)) else self.array
        found = distinct[:1] if _constant(self.array, (0,)) else distinct[rows]
        return np.broadcast_to(found.reshape(len(found), -1), (count, columns))


def _constant(array: Array, dims: Iterable[int]) -> bool:
    """Return True if the array is broadcast along these dimensions."""
    return all(array.strides[dim] == 0 or array.shape[dim] == 1 for dim in dims)


class Rows:
    """Golden values of an output of a formula over rows, with the interface of ``Elementwise``.

    Args:
        call: valid call.
        work: the call's formula over rows.
        inputs: input tensors by Python name.
        output: C name of the output.
        dtype: data type of the output.
    """

    def __init__(
        self, call: Call, work: Reduction, inputs: Mapping[str, Array], output: str, dtype: np.dtype[Any]
    ) -> None:
        self.target = format_of(dtype)
        self.shape: Shape = call[output].shape
        self.size = math.prod(self.shape)
        arrays = {}
        for given in work.inputs:
            if isinstance(given, float):
                continue
            c_name, shape = (given.tensor, given.shape) if isinstance(given, View) else (given, None)
            name = call.operator.parameter(c_name).python_name
            arrays[name] = inputs[name] if shape is None else inputs[name].reshape(shape)
        places = {_name(written): at for at, written in enumerate(work.outputs) if written is not None}
        written = work.outputs[places[output]]
        self.summed = isinstance(written, Sums)
        held = written.of if isinstance(written, Sums) else written
        shape = held.shape if isinstance(held, View) else self.shape
        others = [o.of if isinstance(o, Sums) else o for o in work.outputs if o is not None]
        common = np.broadcast_shapes(
            *(array.shape for array in arrays.values()),
            *(o.shape if isinstance(o, View) else call[o].shape for o in others),
        )
        self._common, self._dims = common, tuple(dim % len(common) for dim in work.dims)
        self._shape = (1,) * (len(common) - len(shape)) + tuple(shape)
        self.columns: int = math.prod(common[dim] for dim in self._dims)
        self.rows = math.prod(common) // self.columns if self.columns else 0
        self._arrays = arrays
        self._operands = {name: _RowView.of(array, common, self._dims) for name, array in arrays.items()}
        numbers = tuple(given if isinstance(given, float) else None for given in work.inputs)
        self.function = Function(_filled(work.formula, numbers), work.numbers, places[output], len(work.outputs))
        self.names = () if self.summed and self.takes_rows(places[output]) else tuple(arrays)
        self._one_a_row = not self.summed and all(self._shape[dim] == 1 for dim in self._dims) and self.columns != 1
        trailing = self._dims == tuple(range(len(common) - len(self._dims), len(common)))
        self._at_once = self.summed or not (trailing or self._one_a_row)
        self._lock = Lock()

    @property
    def shared(self) -> tuple[str, ...]:
        """Operands that are constant within a row, such as its statistics."""
        rank = len(self._common)
        inside = [dim - rank for dim in self._dims]
        shapes = {name: (1,) * rank + array.shape for name, array in self._arrays.items()}
        return tuple(name for name, shape in shapes.items() if all(shape[dim] == 1 for dim in inside))

    def takes_rows(self, result: int) -> bool:
        """Return True if an element of this result depends on other elements of its row."""
        return trace(self.function.formula, len(self._operands) + len(self.function.numbers)).takes_rows(result)

    @property
    def read(self) -> int:
        """Number of operand elements that only one output element depends on."""
        return max(1, self.columns) if self._one_a_row else 1

    @property
    def step(self) -> int:
        """Number of elements in a block, which should begin with a row."""
        if self.summed:
            return BLOCK_ELEMENTS
        rows = max(1, BLOCK_ELEMENTS // max(1, self.columns))
        rows *= 1 if self._one_a_row else max(1, self.columns)
        return rows

    def _places(self, at: Places) -> tuple[Array, Array]:
        """Return the rows and columns of elements."""
        every = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        if self._one_a_row:
            return every, np.zeros_like(every)
        return np.divmod(self.positions(every), max(1, self.columns))

    @property
    def _turned(self) -> tuple[int, ...]:
        """Dimensions in order, with a row's dimensions last."""
        return (*(dim for dim in range(len(self._common)) if dim not in self._dims), *self._dims)

    def positions(self, at: Array) -> Array:
        """Return the positions of elements in row-by-row order."""
        if not self._at_once or self.summed:
            return at
        index = np.unravel_index(at, self._common)
        shape = tuple(self._common[dim] for dim in self._turned)
        return np.asarray(np.ravel_multi_index(tuple(index[dim] for dim in self._turned), shape))

    def row_by_row(self, positions: Places) -> Places:
        """Return elements given by positions in row-by-row order."""
        if not self._at_once or self.summed:
            return positions
        every = np.arange(positions.start, positions.stop) if isinstance(positions, slice) else positions
        index = np.unravel_index(every, tuple(self._common[dim] for dim in self._turned))
        return np.asarray(np.ravel_multi_index([index[self._turned.index(k)] for k in range(len(index))], self._common))

    def _rows_of(self, at: Places) -> tuple[Array, Array, Array]:
        """Return the distinct rows of elements, and each element's index among these rows and its column."""
        row, column = self._places(at)
        steps = np.diff(row)
        if row.size and np.all(steps >= 0):
            first = np.concatenate([[True], steps > 0])
            return row[first], np.cumsum(first) - 1, column
        rows, which = np.unique(row, return_inverse=True)
        return rows, which.reshape(-1), column

    def near(self, at: Array, struck: Array, most: int) -> Array:
        """Return elements in a few of the rows that contain struck ones, and in fewer other rows."""
        if self.summed:
            return np.ones(at.size, bool)
        row = self._places(at)[0]
        rows = np.unique(row[struck])
        count = max(_ROWS_AT_LEAST if self._one_a_row else 1, most // max(1, self.columns))
        return np.isin(row, [*evenly(rows, count), *evenly(np.setdiff1d(row, rows), max(1, count // 3))])

    def _are_rows(self, at: slice) -> bool:
        """Return True if the elements are whole rows in memory order."""
        edges = (at.start, at.stop)
        return not (self._at_once or self._one_a_row) and all(edge % max(1, self.columns) == 0 for edge in edges)

    def _chunks(self, at: Places, most: int) -> Iterator[tuple[Any, Array | slice, Pick]]:
        """Yield elements grouped by at most ``most`` rows: their indices, the rows, and their places in these."""
        step = max(1, most // max(1, self.columns))
        if isinstance(at, slice) and self._are_rows(at):
            for begin in range(at.start, at.stop, step * self.columns):
                end = min(begin + step * self.columns, at.stop)
                whole_rows = slice(begin // self.columns, end // self.columns)
                yield slice(begin - at.start, end - at.start), whole_rows, ...
            return
        rows, which, column = self._rows_of(at)
        edges = np.searchsorted(which, np.arange(0, rows.size + step, step)) if np.all(np.diff(which) >= 0) else None
        for number, begin in enumerate(range(0, rows.size, step)):
            if edges is None:
                here: Any = np.flatnonzero((which >= begin) & (which < begin + step))
            else:
                here = slice(edges[number], edges[number + 1])
            yield here, rows[begin : begin + step], (which[here] - begin, column[here])

    def pieces(self, at: Places) -> Iterator[Piece]:
        """Yield pieces as ``Elementwise.pieces`` does, with (rows, N) operands; for sums, those of ``terms``."""
        if self.summed:
            if self.names and count_of(at):
                every = np.arange(at.start, at.stop) if isinstance(at, slice) else at
                yield slice(None), self.function, self._addends(every), partial(np.sum, axis=0)
            return
        for here, rows, pick in self._chunks(at, BLOCK_ELEMENTS):
            operands = {name: operand[rows] for name, operand in self._operands.items()}
            yield here, self.function, operands, partial(_picked, pick)

    @property
    def at_once(self) -> int:
        """Number of elements whose operands fit in memory at once."""
        return max(1, 4 * BLOCK_ELEMENTS // max(1, self.addends)) if self.summed else max(1, self.size)

    @property
    def addends(self) -> int:
        """Number of terms of each sum."""
        addends: int = math.prod(self._common) // max(1, self.size)
        return addends

    def terms(self, at: Array) -> Array:
        """Return the terms of sums, (M, sums), in float64."""
        return self.function.at_points([in_float64(values) for values in self._addends(at).values()])

    def _addends(self, at: Array) -> dict[str, Array]:
        """Return the operands of the terms of sums, (M, sums) each."""
        kept = [dim for dim, extent in enumerate(self._shape) if extent > 1]
        places: tuple[Any, ...] = (..., *(np.unravel_index(at, [self._shape[dim] for dim in kept]) if kept else ()))
        if len(kept) == 1 and np.array_equal(at, np.arange(at[0], at[0] + at.size)):  # a slice halves the reading time
            places = ..., slice(at[0], at[0] + at.size)
        found = {}
        for name, array in self._arrays.items():
            whole = np.moveaxis(np.broadcast_to(array, self._common), kept, range(-len(kept), 0))
            found[name] = whole[places].reshape(-1, at.size)
        return found

    def operands(self, at: Places) -> dict[str, Array]:
        """Return the operands of elements by Python name; none for sums and for one-per-row results."""
        if self.summed or self._one_a_row:
            return {}
        return {name: Flat(np.broadcast_to(array, self._common))[at] for name, array in self._arrays.items()}

    def sizes(self, at: Places) -> Array:
        """Return the change of results per unit change of the operands, to which rounding errors are relative."""
        if self.summed:
            return np.asarray(self._totals[3][at])
        size, share = np.empty(count_of(at)), 2.0**-24

        def around(x: Array) -> Interval:
            return Interval(*(once_a_row(lambda x, s=s: x + np.abs(x) * s, x) for s in (-share, share)))

        for here, rows, pick in self._chunks(at, CACHED_ELEMENTS):
            operands = (in_float64(operand[rows]) for operand in self._operands.values())
            wide = Interval.of(self.function(*map(around, operands)))
            size[here] = _picked(pick, (wide.high - wide.low) * (0.5 / share))
        return np.nan_to_num(size, posinf=0.0)

    def block(self, begin: int, end: int) -> Golden:
        """Return the golden values of elements begin to end in row-major order."""
        return self.golden(slice(begin, end))

    def golden(self, at: Places) -> Golden:
        """Return the golden values of elements."""
        if self._at_once:
            with self._lock:  # cached_property has no lock since Python 3.12
                whole = self.whole
            counted = isinstance(at, slice) and at.start == 0  # count only once, with the first block
            counts = (whole.resolved, whole.undecided) if counted else (0, 0)
            return Golden(whole.value[at], whole.rounded[at], *counts)
        value, rounded = np.empty(count_of(at)), np.empty(count_of(at), self.target.dtype.numpy)
        if not self.columns:
            value[:] = np.nan
            return Golden(value, self.target.round(value))
        resolved = undecided = 0
        for here, rows, pick in self._chunks(at, CACHED_ELEMENTS):
            found = self._enclosed(rows, pick)
            value[here], rounded[here] = found.value, found.rounded
            resolved, undecided = resolved + found.resolved, undecided + found.undecided
        return Golden(value, rounded, resolved, undecided)

    @quiet
    def _enclosed(self, rows: Array | slice, pick: Pick) -> Golden:
        """Return the golden values of elements of some rows."""
        wide = [in_float64(operand[rows]) for operand in self._operands.values()]
        found = Interval.of(self.function(*(Interval(x, x) for x in wide)))
        lower, upper = (np.broadcast_to(end, wide[0].shape) for end in (found.low, found.high))
        low, high = _picked(pick, lower), _picked(pick, upper)
        value = 0.5 * (low + high)
        finite = np.logical_and.reduce([once_a_row(np.isfinite, x).all(axis=1) for x in wide])
        unsure = np.flatnonzero(unsure_of(value, low, high, self.target))
        if finite.all() and not unsure.size:
            return Golden(value, self.target.round(low))
        pick = pick if isinstance(pick, tuple) else np.divmod(np.arange(value.size), self.columns)
        finite, low, high = finite[pick[0]], np.array(low), np.array(high)
        unsure = unsure[finite[unsure]]
        crowded = np.isin(pick[0][unsure], self._crowded(lower, upper, np.unique(pick[0][unsure])))
        left = unsure[~crowded]
        counts = left.size, unsure.size - left.size
        for bits in BALL_BITS:
            if left.size:
                left = self._resolve(wide, pick, left, bits, (value, low, high))
        points = np.concatenate([np.flatnonzero(~finite), unsure[crowded], left])
        if points.size:
            of_rows = np.unique(pick[0][points])
            at = np.searchsorted(of_rows, pick[0][points]), pick[1][points]
            value[points] = low[points] = self.function.at_points([x[of_rows] for x in wide])[at]
        return Golden(value, self.target.round(low), *counts)

    def _crowded(self, low: Array, high: Array, rows: Array) -> Array:
        """Mark rows that would need too many balls; determined from whole rows, whichever elements are requested."""
        if self._one_a_row or self.rows * self.columns <= _BALLS_AT_MOST:
            return rows[:0]
        unsure = unsure_of(0.5 * (low + high)[rows], low[rows], high[rows], self.target)
        return np.asarray(rows[unsure.mean(axis=1) > _MANY])

    def _resolve(
        self, wide: list[Array], pick: tuple[Array, Array], left: Array, bits: int, ends: tuple[Array, Array, Array]
    ) -> Array:
        """Compute undecided elements' rows on balls of a precision; return the elements still undecided."""
        value, low, high = ends
        for row in np.unique(pick[0][left]).tolist():
            mine = left[pick[0][left] == row]
            with ball_precision(bits):
                found = self.function(*(Balls.of_row(x[row]) for x in wide))
                both = np.array([Ball(found.balls[k % len(found.balls)]).ends() for k in pick[1][mine].tolist()])
            low[mine], high[mine] = both.T
            zero = (low[mine] == 0.0) & (high[mine] == 0.0)  # balls lose the sign of zero
            low[mine[zero]] = high[mine[zero]] = np.nan
            value[mine] = 0.5 * (low[mine] + high[mine])
        return left[unsure_of(value[left], low[left], high[left], self.target)]

    @cached_property
    def whole(self) -> Golden:
        """All golden values, for outputs that blocks of rows do not fill contiguously."""
        if self.summed:
            totals = self._totals
            total = np.where(np.isfinite(totals[2]), totals[0] + totals[1], totals[2])
            return Golden(total, self.target.round(total))
        step = max(1, BLOCK_ELEMENTS // max(1, self.columns))
        value, rounded = np.empty(self.shape), np.empty(self.shape, self.target.dtype.numpy)
        views = [np.moveaxis(a.reshape(self._common), self._dims, range(-len(self._dims), 0)) for a in (value, rounded)]
        resolved = undecided = 0
        for begin, found in zip(
            range(0, self.rows, step), map_blocks(self._block_of_rows, self.rows, step), strict=True
        ):
            rows = np.arange(begin, min(begin + step, self.rows))
            kept = views[0].shape[: len(self._common) - len(self._dims)]
            at = np.unravel_index(rows, kept) if kept else ()
            for view, values in zip(views, (found.value, found.rounded), strict=True):
                view[at] = values.reshape(view[at].shape)
            resolved, undecided = resolved + found.resolved, undecided + found.undecided
        return Golden(value.reshape(-1), rounded.reshape(-1), resolved, undecided)

    def _block_of_rows(self, begin: int, end: int) -> Golden:
        rows, parts = np.arange(begin, end), []
        step = max(1, CACHED_ELEMENTS // max(1, self.columns))
        for first in range(0, rows.size, step):
            parts.append(self._enclosed(rows[first : first + step], ...))
        return joined(parts, (rows.size * self.columns,), self.target.dtype.numpy)

    @cached_property
    def _totals(self) -> Array:
        """Sums over all rows, in the form of ``add_to_sums``."""
        totals = np.zeros((4, self.size))
        for part in map_blocks(self._sums, self.rows, max(1, BLOCK_ELEMENTS // max(1, self.columns))):
            plain = totals[2:] + part[2:]
            for more in part[:2]:
                add_to_sums(more, np.arange(self.size), totals)
            totals[2:] = plain
        return totals

    @quiet
    def _sums(self, begin: int, end: int) -> Array:
        """Return the contribution of rows begin to end to the sums."""
        place = _RowView.of(np.arange(self.size).reshape(self._shape), self._common, self._dims)
        sums = np.zeros((4, self.size))
        step = max(1, CACHED_ELEMENTS // max(1, self.columns))
        for first in range(begin, end, step):
            rows = np.arange(first, min(first + step, end))
            wide = [in_float64(operand[rows]).view(Points) for operand in self._operands.values()]
            terms = np.broadcast_to(np.asarray(self.function(*wide), np.float64), (rows.size, self.columns))
            add_to_sums(np.ascontiguousarray(terms).reshape(-1), place[rows].reshape(-1), sums)
        return sums


def evenly(values: Array, count: int) -> Array:
    """Choose ``count`` values evenly from first to last, or all."""
    return np.asarray(values[np.linspace(0, values.size - 1, min(count, values.size)).astype(int)])


def _picked(pick: Pick, values: Array) -> Array:
    return np.asarray(values[pick]).reshape(-1)


def _name(written: str | View | Sums) -> str:
    return written if isinstance(written, str) else written.tensor


def source_of(call: Call, inputs: Mapping[str, Array], output: str, dtype: np.dtype[Any]) -> Elementwise | Rows:
    """Return the source of an output's golden values, by C name: element by element or row by row."""
    work = reduction_of(call, output)
    return Elementwise(call, inputs, output, dtype) if work is None else Rows(call, work, inputs, output, dtype)
