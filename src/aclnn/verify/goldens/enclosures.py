"""Enclosures of a formula's exact result: float64 intervals, which are fast, and balls of any precision.

Formulas run on them unchanged. Intervals are widened by each operation's possible error; Arb's balls (python-flint)
have rigorous bounds. Both keep the sign of results too small for a float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cached_property, partial, partialmethod, reduce
from typing import Any, cast

import numpy as np

from aclnn.formula import Constant
from aclnn.typing import Array
from aclnn.verify.compiled import compiled
from aclnn.verify.goldens.expansions import two_sum

ROUNDED = 1.5 * 2.0**-52
"""More than the relative error of one rounding, plus that of the widened end."""
LIBRARY = 2.0**-48
"""16 ULP: exceeds the error of every function of NumPy and of the C library, as a test checks."""
COMPOSED = 2.0**-50
"""Relative error of constants, which are a few operations away from the intended values."""
LEAST, LARGEST = 2.0**-1000, math.ldexp(1.0, 1023)
"""Exponentials outside this range are only known to lie outside it."""


class Truth:
    """Result of comparing enclosures: true, false, or undecided (``maybe`` but not ``sure``)."""

    def __init__(self, kind: type[Interval | Ball], sure: Any, maybe: Any) -> None:
        self.kind, self.sure, self.maybe = kind, sure, maybe

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.kind, self.sure & other.sure, self.maybe & other.maybe)

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.kind, self.sure | other.sure, self.maybe | other.maybe)

    def __invert__(self) -> Truth:
        return Truth(self.kind, np.logical_not(self.maybe), np.logical_not(self.sure))

    def where(self, chosen: Any, otherwise: Any) -> Any:
        """Choose elementwise; the hull of both if undecided."""
        kind: Any = self.kind
        return kind.choose(self, kind.of(chosen), kind.of(otherwise))


class Interval:
    """Arrays of numbers between two float64 ends; exact numbers have one object as ``low`` and ``high``."""

    __array_ufunc__ = None

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(cls, value: Any) -> Interval:
        """Return an interval unchanged, a float64 as an exact number, and a constant with its error."""
        if isinstance(value, Interval):
            return value
        point = np.float64(value)
        return _widened(point, point, COMPOSED) if isinstance(value, Constant) else cls(point, point)

    @staticmethod
    def choose(truth: Truth, chosen: Interval, otherwise: Interval) -> Interval:
        """Choose elementwise; the hull of both if undecided."""
        low = np.where(truth.sure, chosen.low, otherwise.low)
        one = chosen.low is chosen.high and otherwise.low is otherwise.high
        high = low if one else np.where(truth.sure, chosen.high, otherwise.high)
        if truth.sure is not truth.maybe and np.any(unknown := truth.sure != truth.maybe):
            low = np.where(unknown, np.minimum(chosen.low, otherwise.low), low)
            high = np.where(unknown, np.maximum(chosen.high, otherwise.high), high)
        return Interval(low, high)

    def _compared(self, other: Any, sure: Callable[..., Any], swapped: Callable[..., Any]) -> Truth:
        """Compare: sure if ``sure(low, high)`` holds for the other's ends, impossible if ``swapped`` does."""
        b = Interval.of(other)
        certain = sure(self.high, b.low)
        if self.low is self.high and b.low is b.high:
            return Truth(Interval, certain, certain)
        return Truth(Interval, certain, np.logical_not(swapped(self.low, b.high)))

    def __lt__(self, other: Any) -> Truth:
        return self._compared(other, operator.lt, operator.ge)

    def __le__(self, other: Any) -> Truth:
        return self._compared(other, operator.le, operator.gt)

    def __gt__(self, other: Any) -> Truth:
        return Interval.of(other).__lt__(self)

    def __ge__(self, other: Any) -> Truth:
        return Interval.of(other).__le__(self)

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]  # as NumPy's
        b = Interval.of(other)
        points = (self.low == self.high) & (b.low == b.high) & (self.low == b.low)
        return Truth(Interval, points | (self is b), (self.low <= b.high) & (b.low <= self.high))

    def __ne__(self, other: Any) -> Truth:  # type: ignore[override]
        return self.__eq__(other).__invert__()

    __hash__ = object.__hash__

    def __neg__(self) -> Interval:
        low = -self.high
        return Interval(low, low if self.low is self.high else -self.low)

    def __abs__(self) -> Interval:
        if self.low is self.high:
            point = np.abs(self.low)
            return Interval(point, point)
        return Interval(np.maximum(np.maximum(self.low, -self.high), 0.0), np.maximum(-self.low, self.high))

    def __add__(self, other: Any) -> Interval:
        return _of_ends(_add, self, Interval.of(other))

    def __sub__(self, other: Any) -> Interval:
        if isinstance(other, _Mean) and self.low is self.high:
            difference, error = _exact_sum(self.low, -other.near)
            return Interval(difference, difference) + (Interval(error, error) - other.rest)
        return self + -Interval.of(other)

    def __rsub__(self, other: Any) -> Interval:
        return self.__neg__().__add__(other)

    def __mul__(self, other: Any) -> Interval:
        return self._scaled(_multiply, operator.mul, Interval.of(other))

    def _scaled(self, operation: Callable[..., None], exact: Callable[..., Any], b: Interval) -> Interval:
        if np.ndim(b.low) == 0 and b.low is b.high and math.frexp(abs(b.low))[0] == 0.5:  # a power of two
            low = exact(self.low, b.low)
            high = low if self.low is self.high else exact(self.high, b.low)
            return Interval(low, high) if b.low > 0.0 else Interval(high, low)
        return _of_ends(operation, self, b)

    def __truediv__(self, other: Any) -> Interval:
        b = Interval.of(other)
        quotient = self._scaled(_divide, operator.truediv, b)
        if b.low is not b.high and np.any(around_zero := (b.low <= 0.0) & (b.high >= 0.0)):
            return Interval(*(np.where(around_zero, np.nan, end) for end in (quotient.low, quotient.high)))
        return quotient

    def __rtruediv__(self, other: Any) -> Interval:
        return Interval.of(other).__truediv__(self)

    __radd__ = __add__
    __rmul__ = __mul__

    def _rising(self, function: Callable[[Any], Any], lost: float = LIBRARY) -> Interval:
        low = function(self.low)
        return _widened(low, low if self.low is self.high else function(self.high), lost)

    def exp(self) -> Interval:
        """e^x."""
        return _of_any_size(self._rising(np.exp))

    def expm1(self) -> Interval:
        """e^x - 1."""
        wide = self._rising(np.expm1)
        return Interval(np.fmin(wide.low, LARGEST), wide.high)

    def log(self) -> Interval:
        """Natural logarithm."""
        return self._rising(np.log)

    def log1p(self) -> Interval:
        """Natural logarithm of 1 + x."""
        return self._rising(np.log1p)

    def tanh(self) -> Interval:
        """Hyperbolic tangent."""
        wide = self._rising(np.tanh)
        return Interval(np.maximum(wide.low, -1.0), np.minimum(wide.high, 1.0))

    def sqrt(self) -> Interval:
        """Square root."""
        return self._rising(np.sqrt, ROUNDED)

    def erf(self) -> Interval:
        """Error function."""
        wide = self._rising(_erf)
        return Interval(np.maximum(wide.low, -1.0), np.minimum(wide.high, 1.0))

    def erfc(self) -> Interval:
        """1 - erf(x)."""
        return _of_any_size((-self)._rising(lambda x: _erfc(-x)))

    def row_sum(self) -> Interval:
        """Sum along the last dimension, broadcast to its elements."""
        ends, sums = [], _row_sums(self.low)
        for outwards in (-math.inf, math.inf):
            total, low, dropped = sums if outwards < 0.0 or self.low is self.high else _row_sums(self.high)
            lost = (np.abs(low) + dropped) * 1.0000001
            moved = np.where(lost > 0.0, np.nextafter(total + np.copysign(lost, outwards), outwards), total)
            ends.append(np.broadcast_to(moved, self.low.shape))
        return Interval(*ends)

    def row_max(self) -> Interval:
        """Return the maximum along the last dimension, broadcast to its elements."""
        return Interval(*(_along_rows(np.max, end) for end in (self.low, self.high)))

    def row_mean(self) -> Interval:
        """Return the sum divided by the number of elements."""
        mean = self.row_sum() / float(self.low.shape[-1])
        return _Mean(mean, self.low) if self.low is self.high else mean


class _Mean(Interval):
    """Mean of numbers of 24 bits, split into such a number and a rest, so that subtracting it loses no digits."""

    def __init__(self, mean: Interval, rows: Array) -> None:
        super().__init__(mean.low, mean.high)
        count = float(rows.shape[-1])
        total, low, dropped = _row_sums(rows)
        near = (total / count).astype(np.float32).astype(np.float64)
        left = total - near * count  # exact: a product of 24 and 29 bits, and the difference of neighbours
        rest = (Interval(left, left) + Interval(low - dropped, low + dropped)) / count
        self.near = np.broadcast_to(near, rows.shape)
        self.rest = Interval(*(np.broadcast_to(end, rows.shape) for end in (rest.low, rest.high)))


def once_a_row(function: Callable[..., Array], rows: Array) -> Array:
    """Apply a function elementwise, only once to values that a row repeats."""
    return np.broadcast_to(function(rows[..., :1]), rows.shape) if _repeats(rows) else function(rows)


def in_float64(rows: Array) -> Array:
    """Return elements in float64."""
    return once_a_row(lambda x: x.astype(np.float64), rows)


def _repeats(rows: Any) -> bool:
    return np.ndim(rows) > 1 and rows.shape[-1] > 1 and rows.strides[-1] == 0


def _shared_by_rows(operation: Callable[..., Interval]) -> Callable[..., Interval]:
    """Compute values that are constant within a row once per row."""

    def first(given: Any) -> Any:
        if not isinstance(given, Interval) or np.ndim(given.low) == 0:
            return given
        low = given.low[..., :1]
        return Interval(low, low if given.low is given.high else given.high[..., :1])

    def applied(self: Interval, *others: Any) -> Interval:
        of_rows = [given for given in (self, *others) if isinstance(given, Interval) and np.ndim(given.low)]
        if not of_rows or not all(_repeats(given.low) and _repeats(given.high) for given in of_rows):
            return operation(self, *others)
        found, shape = operation(*map(first, (self, *others))), of_rows[0].low.shape
        low = np.broadcast_to(found.low, shape)
        return Interval(low, low if found.low is found.high else np.broadcast_to(found.high, shape))

    return applied


for _name in (
    *("__neg__", "__abs__", "__add__", "__radd__", "__mul__", "__rmul__", "__truediv__"),
    *("exp", "expm1", "log", "log1p", "tanh", "sqrt", "erf", "erfc"),
):
    setattr(Interval, _name, _shared_by_rows(getattr(Interval, _name)))


def _widened(low: Any, high: Any, lost: float = ROUNDED) -> Interval:
    """Move the ends outwards by a relative error, keeping zeros and signs."""
    return Interval(low - np.abs(low) * lost, high - (0.0 - np.abs(high) * lost))  # -0.0 - 0.0 is -0.0


def _of_any_size(wide: Interval) -> Interval:
    """Widen positive results that float64 may have turned into zero, subnormal numbers or infinity."""
    low = np.fmin(wide.low, LARGEST)  # not the NaN of inf - inf
    return Interval(low * (low >= LEAST), np.maximum(wide.high, LEAST))


def _of_ends(operation: Callable[..., None], a: Interval, b: Interval) -> Interval:
    """Return the interval of results of a rounded operation on the ends of its operands."""
    shape = np.broadcast_shapes(np.shape(a.low), np.shape(b.low))
    low, high = np.empty(shape), np.empty(shape)
    operation(*_flat_ends(a, shape), *_flat_ends(b, shape), low.reshape(-1), high.reshape(-1))
    return Interval(low[()], high[()])


def _flat_ends(of: Interval, shape: tuple[int, ...]) -> tuple[Array, Array]:
    def flat(end: Any) -> Array:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(end, np.float64), shape)).reshape(-1)

    low = flat(of.low)
    return low, low if of.low is of.high else flat(of.high)


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sums of elements, and their rounding errors."""
    found: tuple[Array, Array] = cast(Any, two_sum).py_func(a, b)
    return found


@compiled
def least(a: float, b: float) -> float:
    """Return the minimum of two numbers, NaN if either is."""
    return a if a < b or a != a else b


@compiled
def greatest(a: float, b: float) -> float:
    """Return the maximum of two numbers, NaN if either is."""
    return a if a > b or a != a else b


@compiled
def _down(end: float) -> float:
    return end - abs(end) * ROUNDED


@compiled
def _up(end: float) -> float:
    return end - (0.0 - abs(end) * ROUNDED)


@compiled
def _add(al: Array, ah: Array, bl: Array, bh: Array, low: Array, high: Array) -> None:
    for i in range(low.size):
        low[i], high[i] = _down(al[i] + bl[i]), _up(ah[i] + bh[i])


@compiled
def _multiply(al: Array, ah: Array, bl: Array, bh: Array, low: Array, high: Array) -> None:
    for i in range(low.size):
        a, b, c, d = al[i] * bl[i], al[i] * bh[i], ah[i] * bl[i], ah[i] * bh[i]
        low[i], high[i] = _down(least(least(a, b), least(c, d))), _up(greatest(greatest(a, b), greatest(c, d)))


@compiled
def _divide(al: Array, ah: Array, bl: Array, bh: Array, low: Array, high: Array) -> None:
    for i in range(low.size):
        a, b, c, d = al[i] / bl[i], al[i] / bh[i], ah[i] / bl[i], ah[i] / bh[i]
        low[i], high[i] = _down(least(least(a, b), least(c, d))), _up(greatest(greatest(a, b), greatest(c, d)))


def _along_rows(function: Callable[..., Any], rows: Any) -> Any:
    return np.broadcast_to(function(rows, axis=-1, keepdims=True), rows.shape)


def _row_sums(rows: Any) -> Array:
    """Return sums of rows as hi, lo and a bound on the error of hi + lo; non-finite sums follow IEEE arithmetic."""
    found = np.empty((3, len(rows), 1))
    _sum_rows(np.ascontiguousarray(rows), found)
    return found


@compiled
def _sum_rows(rows: Array, found: Array) -> None:
    for i in range(rows.shape[0]):
        plain, total, low, lost = 0.0, 0.0, 0.0, 0.0
        for j in range(rows.shape[1]):
            plain += rows[i, j]
            total, more = two_sum(total, rows[i, j])
            low, dropped = two_sum(low, more)
            lost += abs(dropped)
        total, low = two_sum(total, low)
        lost *= 1.0000001
        found[0, i, 0], found[1, i, 0], found[2, i, 0] = (
            (total, low, lost) if math.isfinite(plain) else (plain, 0.0, 0.0)
        )


@compiled
def add_to_sums(terms: Array, places: Array, sums: Array) -> None:
    """Add terms to sums at given places: ``sums`` (4, n) holds hi, lo, the plain sum and that of magnitudes."""
    for i in range(terms.size):
        k = places[i]
        sums[2, k] += terms[i]
        sums[3, k] += abs(terms[i])
        if math.isfinite(terms[i]):
            sums[0, k], low = two_sum(sums[0, k], terms[i])
            sums[1, k] += low


@compiled
def _erf_of(x: Array, result: Array) -> None:
    for i in range(x.size):
        result[i] = math.erf(x[i])


@compiled
def _erfc_of(x: Array, result: Array) -> None:
    for i in range(x.size):
        result[i] = math.erfc(x[i])


def _erf(x: Any) -> Any:
    result = np.empty(x.size)
    _erf_of(x.reshape(-1), result)
    return result.reshape(x.shape)


def _erfc(x: Any) -> Any:
    result = np.empty(x.size)
    _erfc_of(x.reshape(-1), result)
    return result.reshape(x.shape)


class Ball:
    """Arb ball with comparisons that may be undecided."""

    def __init__(self, ball: Any) -> None:
        self.ball = ball

    @classmethod
    def of(cls, value: Any) -> Ball:
        """Return a ball unchanged, a float64 as an exact ball, and a constant at the current precision."""
        if isinstance(value, Ball):
            return value
        import flint

        return cls(value.exact(flint.arb) if isinstance(value, Constant) else flint.arb(float(value)))

    @staticmethod
    def choose(truth: Truth, chosen: Ball, otherwise: Ball) -> Ball:
        """Choose one of two; the hull of both if undecided."""
        if truth.sure:
            return chosen
        return Ball(chosen.ball.union(otherwise.ball)) if truth.maybe else otherwise

    def __lt__(self, other: Any) -> Truth:
        b = Ball.of(other).ball
        return Truth(Ball, self.ball < b, not self.ball >= b)

    def __le__(self, other: Any) -> Truth:
        b = Ball.of(other).ball
        return Truth(Ball, self.ball <= b, not self.ball > b)

    def __gt__(self, other: Any) -> Truth:
        return Ball.of(other).__lt__(self)

    def __ge__(self, other: Any) -> Truth:
        return Ball.of(other).__le__(self)

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]
        b = Ball.of(other)
        return Truth(Ball, self is b or self.ball == b.ball, self.ball.overlaps(b.ball))

    def __ne__(self, other: Any) -> Truth:  # type: ignore[override]
        return self.__eq__(other).__invert__()

    __hash__ = object.__hash__

    def ends(self) -> tuple[float, float]:
        """Return two float64 that round to any format of at most 51 bits as the ball's ends do."""
        return _odd(self.ball.lower()), _odd(self.ball.upper())


def _odd(end: Any) -> float:
    """Round an exact ball to float64, to odd if inexact, so that rounding it again is harmless."""
    nearest = float(end)
    if nearest == end or not math.isfinite(nearest) or math.frexp(nearest)[0] * 2.0**53 % 2.0:
        return nearest
    return math.nextafter(nearest, math.inf if nearest < end else -math.inf)


def _define(method: str, function: Callable[..., Any]) -> None:
    def applied(self: Ball, *others: Any) -> Ball:
        return Ball(function(self.ball, *(Ball.of(other).ball for other in others)))

    setattr(Ball, method, applied)


for _name in ("add", "sub", "mul", "truediv"):
    _define(f"__{_name}__", getattr(operator, _name))
    _define(f"__r{_name}__", partial(lambda of, a, b: of(b, a), getattr(operator, _name)))
_define("__neg__", operator.neg)
_define("__abs__", abs)
for _name in ("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt"):
    _define(_name, operator.methodcaller(_name))


class Balls:
    """Arb balls of a row's elements, or one for the whole row; without a ``Ball`` object for each, for speed."""

    def __init__(self, balls: list[Any]) -> None:
        self.balls = balls

    @classmethod
    def of(cls, value: Any) -> Balls:
        """Return balls unchanged, or a single ball for the whole row."""
        return value if isinstance(value, Balls) else cls([Ball.of(value).ball])

    @classmethod
    def of_row(cls, values: Array) -> Balls:
        """Return exact balls of the numbers."""
        import flint

        return cls(list(map(flint.arb, values.tolist())))

    def row_sum(self) -> Balls:
        """Sum of the elements."""
        return Balls([sum(self.balls)] * len(self.balls))

    def row_max(self) -> Balls:
        """Return the maximum of the elements."""
        return Balls([reduce(lambda a, b: a.max(b), self.balls)] * len(self.balls))

    def row_mean(self) -> Balls:
        """Return the sum divided by the number of elements."""
        return Balls([sum(self.balls) / len(self.balls)] * len(self.balls))


class _Truths:
    """Comparisons of a row's elements."""

    def __init__(self, truths: list[Truth]) -> None:
        self.truths = truths

    def __and__(self, other: _Truths) -> _Truths:
        return _Truths(_each(operator.and_, self.truths, other.truths))

    def __or__(self, other: _Truths) -> _Truths:
        return _Truths(_each(operator.or_, self.truths, other.truths))

    def __invert__(self) -> _Truths:
        return _Truths([~truth for truth in self.truths])

    def where(self, chosen: Any, otherwise: Any) -> Balls:
        """Choose by element."""
        choices = ([Ball(ball) for ball in Balls.of(value).balls] for value in (chosen, otherwise))
        return Balls([ball.ball for ball in _each(Truth.where, self.truths, *choices)])


def _each(function: Callable[..., Any], *rows: list[Any]) -> list[Any]:
    """Apply a function elementwise to rows, where a row of one item is constant."""
    size = max(map(len, rows))
    return list(map(function, *(row if len(row) == size else row * size for row in rows)))


def _of_rows(method: str, function: Callable[..., Any]) -> None:
    def applied(self: Balls, *others: Any) -> Any:
        return Balls(_each(function, self.balls, *(Balls.of(other).balls for other in others)))

    setattr(Balls, method, applied)


def _compare_rows(method: str) -> None:
    def compared(self: Balls, other: Any) -> _Truths:
        return _Truths(_each(lambda a, b: getattr(Ball(a), method)(Ball(b)), self.balls, Balls.of(other).balls))

    setattr(Balls, method, compared)


for _name in ("add", "sub", "mul", "truediv"):
    _of_rows(f"__{_name}__", getattr(operator, _name))
    _of_rows(f"__r{_name}__", partial(lambda of, a, b: of(b, a), getattr(operator, _name)))
_of_rows("__neg__", operator.neg)
_of_rows("__abs__", abs)
for _name in ("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt"):
    _of_rows(_name, operator.methodcaller(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _compare_rows(f"__{_name}__")


class RowLength:
    """Divisor of a mean of Points: the number of elements in a row, known only with the sum."""

    __array_ufunc__ = None

    def __rtruediv__(self, total: Any) -> Any:
        return total / float(total.shape[-1])


class Points(np.ndarray):
    """Float64 arrays on which formulas run, with IEEE infinities and NaN."""

    of = np.float64

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [one.view(np.ndarray) if isinstance(one, Points) else one for one in inputs]
        rows = [one for one in arrays if np.ndim(one)]
        if method == "__call__" and not kwargs and all(map(_repeats, rows)):
            found = ufunc(*(one[..., :1] if np.ndim(one) else one for one in arrays))
            return np.broadcast_to(found, np.broadcast_shapes(*(one.shape for one in rows))).view(Points)
        found = getattr(ufunc, method)(*arrays, **kwargs)
        return found.view(Points) if isinstance(found, np.ndarray) else found

    def where(self, chosen: Any, otherwise: Any) -> Any:
        """Choose by element."""
        return np.where(self, chosen, otherwise).view(Points)

    def erf(self) -> Any:
        """Error function."""
        return _erf(self).view(Points)

    def erfc(self) -> Any:
        """1 - erf(x)."""
        return _erfc(self).view(Points)

    def row_sum(self) -> Any:
        """Sum along the last dimension, broadcast to its elements."""
        rows = np.asarray(self)
        return np.broadcast_to(_row_sums(rows)[0], rows.shape).view(Points)

    def row_max(self) -> Any:
        """Return the maximum along the last dimension, broadcast to its elements; NaN if one is."""
        return _along_rows(np.max, np.asarray(self)).view(Points)

    def row_mean(self) -> Any:
        """Return the sum divided by the number of elements."""
        return self.row_sum() / float(self.shape[-1])


for _name in ("exp", "expm1", "log", "log1p", "tanh", "sqrt"):
    setattr(Points, _name, partialmethod(lambda self, of: of(self), getattr(np, _name)))


class Later:
    """Lazy operation on intervals or points: unused results of a formula cost nothing.

    Args:
        operation: function that computes the result.
        operands: its arguments, each a value or lazy too.
    """

    def __init__(self, operation: Callable[..., Any], *operands: Any) -> None:
        self._operation, self._operands = operation, operands

    @cached_property
    def value(self) -> Any:
        """Result."""
        return self._operation(*(one.value if isinstance(one, Later) else one for one in self._operands))


def _wait(method: str, operation: Callable[..., Any]) -> None:
    setattr(Later, method, lambda *operands: Later(operation, *operands))


for _name in ("add", "sub", "mul", "truediv", "lt", "le", "gt", "ge", "eq", "ne"):
    _wait(f"__{_name}__", getattr(operator, _name))
for _name in ("add", "sub", "mul", "truediv"):
    _wait(f"__r{_name}__", partial(lambda of, a, b: of(b, a), getattr(operator, _name)))
for _name, _operation in (("and", operator.and_), ("or", operator.or_), ("neg", operator.neg), ("abs", abs)):
    _wait(f"__{_name}__", _operation)
_wait("__invert__", lambda truth: ~truth)
for _name in (*("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt"), *("row_sum", "row_max", "row_mean")):
    _wait(_name, operator.methodcaller(_name))
_wait("where", lambda condition, chosen, otherwise: condition.where(chosen, otherwise))
