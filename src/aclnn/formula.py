"""The vocabulary of scalar formulas.

An operator writes its formula once, as a plain function of elements and attributes over ``+ - * /``, comparisons,
``& | ~`` of comparisons, and the words below. The formula then runs on Python floats and on balls (``flint.arb``),
whose methods the words call; ``aclnn.kernels.trace`` records its operations, which kernels compile for a processor.

A formula over rows also uses ``row_sum``, ``row_max`` and ``row_mean``, whose argument is any term of the elements;
for floats a row is one element.

On floats no word raises: what exceeds the largest float is infinite, a logarithm or root of a negative number NaN.
A constant that is no float64, such as π or 0.044715, is a ``Constant``, which balls take exactly.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Literal

Real = Any
"""An operand of a formula: a float, a ball, or a variable of a program."""


class Constant(float):
    """A real number: the nearest float64, and the exact value for balls.

    Sums, products, quotients and square roots of constants and floats are constants.
    """

    exact: Callable[[Any], Any]
    """The number as a ball, of flint's class ``arb``."""

    def __new__(cls, value: float, exact: Callable[[Any], Any]) -> Constant:
        """Create a constant from a float64 accurate to a few units in the last place."""
        constant = super().__new__(cls, value)
        constant.exact = exact
        return constant

    def sqrt(self) -> Constant:
        """Return the square root."""
        return Constant(math.sqrt(self), lambda ball: self.exact(ball).sqrt())


def _arithmetic(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Constant, Any], Any]:
    def operation(self: Constant, other: Any) -> Any:
        if not isinstance(other, (float, int)):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)

        def exact(ball: Any) -> Any:
            return function(*(item.exact(ball) if isinstance(item, Constant) else ball(item) for item in pair))

        return Constant(function(*map(float, pair)), exact)

    return operation


for _method in ("add", "sub", "mul", "truediv"):
    setattr(Constant, f"__{_method}__", _arithmetic(getattr(operator, _method), reflected=False))
    setattr(Constant, f"__r{_method}__", _arithmetic(getattr(operator, _method), reflected=True))
Constant.__neg__ = lambda self: self * -1.0  # type: ignore[method-assign]

PI = Constant(math.pi, lambda ball: ball.pi())


def decimal(text: str) -> Constant:
    """Return the number with these decimal digits, such as ``"1.702"``."""
    return Constant(float(text), lambda ball: ball(text))


def _apply(function: Callable[[float], float], x: Real, pole: float = math.nan) -> Real:
    if not isinstance(x, (float, int)):
        return getattr(x, function.__name__)()
    try:
        return function(x)
    except OverflowError:
        return math.inf
    except ValueError:  # outside the domain
        return -math.inf if x == pole else math.nan


def exp(x: Real) -> Real:
    """Exponential function, e^x."""
    return _apply(math.exp, x)


def expm1(x: Real) -> Real:
    """e^x - 1 without cancellation."""
    return _apply(math.expm1, x)


def log(x: Real) -> Real:
    """Natural logarithm."""
    return _apply(math.log, x, pole=0.0)


def log1p(x: Real) -> Real:
    """Natural logarithm of 1 + x without cancellation."""
    return _apply(math.log1p, x, pole=-1.0)


def tanh(x: Real) -> Real:
    """Hyperbolic tangent."""
    return _apply(math.tanh, x)


def erf(x: Real) -> Real:
    """Error function."""
    return _apply(math.erf, x)


def erfc(x: Real) -> Real:
    """1 - erf(x) without cancellation."""
    return _apply(math.erfc, x)


def sqrt(x: Real) -> Real:
    """Square root."""
    return x.sqrt() if isinstance(x, Constant) else _apply(math.sqrt, x)


def sigmoid(x: Real) -> Real:
    """1 / (1 + e^(-x))."""
    return 1.0 / (1.0 + exp(-x))


def absolute(x: Real) -> Real:
    """Absolute value."""
    return abs(x)


def where(condition: Any, chosen: Real, otherwise: Real) -> Real:
    """``chosen`` where the condition holds, else ``otherwise``; both are evaluated."""
    if hasattr(condition, "where"):
        return condition.where(chosen, otherwise)
    return chosen if condition else otherwise


def minimum(x: Real, y: Real) -> Real:
    """Return the smaller of two numbers, NaN if either is NaN."""
    return where((x <= y) | (x != x), x, y)


def maximum(x: Real, y: Real) -> Real:
    """Return the larger of two numbers, NaN if either is NaN."""
    return where((x >= y) | (x != x), x, y)


def row_sum(term: Real) -> Real:
    """Sum of a term over a row's elements."""
    return term.row_sum() if hasattr(term, "row_sum") else term


def row_max(term: Real) -> Real:
    """Return the largest value of a term over a row's elements, NaN if any is NaN."""
    return term.row_max() if hasattr(term, "row_max") else term


def row_mean(term: Real) -> Real:
    """Mean of a term over a row's elements."""
    return term.row_mean() if hasattr(term, "row_mean") else term


_LARGEST_ZERO = 2.0**-150
"""Largest magnitude that float32 rounds to zero."""


def log1pexp(x: Real) -> Real:
    """Natural logarithm of 1 + e^x, without overflow for large x."""
    if hasattr(x, "log1pexp"):
        return x.log1pexp()
    return maximum(x, 0.0) + log1p(exp(-absolute(x)))


def times(dy: Real, factor: Real) -> Real:
    """Return dy·factor; NaN for an infinite dy and a factor that rounds to 0 in float32, as in the vendor's kernels."""
    if hasattr(dy, "times"):
        return dy.times(factor)
    return where((absolute(dy) < math.inf) | (absolute(factor) > _LARGEST_ZERO), factor, 0.0) * dy


class Gradient:
    """The function ``dy·derivative(x, *numbers)`` of (dy, x, *numbers), by ``times``.

    Kernels have a fast path for this class: a table of the derivative for 16-bit x, and the derivative's fitted float32
    version if there is one.
    """

    def __init__(self, derivative: Callable[..., Any]) -> None:
        self.derivative = derivative
        self.__name__ = derivative.__name__

    def __call__(self, dy: Real, x: Real, *numbers: Real) -> Real:
        """Multiply dy by the derivative."""
        return times(dy, self.derivative(x, *numbers))


Symmetry = Literal["1-f", "x+f", "odd", "even", "linear", "neither", "x*neither"]
"""Relation between f(x) and f(-x), in order: f(x) = 1 - f(-x); x + f(-x); -f(-x); f(-x); f(x) = f(1)·x above 0, with a
limit far below; no relation; no relation, for f(x)/x."""


class Fitted:
    """A function that kernels can compute in float32.

    A function of one variable has versions in ``aclnn.kernels.fitted``; outside their range it is evaluated in float64.
    With functions of elements and values of their row, a formula over rows may be computed in float32.
    """

    __name__: str

    def __init__(
        self, function: Callable[..., Any], symmetry: Symmetry | None, mirrored: Fitted | None, negated: bool
    ) -> None:
        self.function, self.symmetry, self.mirrored, self.negated = function, symmetry, mirrored, negated
        update_wrapper(self, function)

    def __call__(self, x: Real, *others: Real) -> Real:
        """Evaluate the function."""
        return x.fitted(self, *others) if hasattr(x, "fitted") else self.function(x, *others)


def fitted(
    symmetry: Symmetry | None = None, mirrored: Fitted | None = None, negated: bool = False
) -> Callable[[Callable[..., Any]], Fitted]:
    """Request fitted versions of the decorated function.

    Args:
        symmetry: the relation that gives the function for positive x; None if no segments are fitted.
        mirrored: the function h if the decorated function is h(-x), which the versions of h then compute.
        negated: the decorated function is -h(-x) instead.
    """
    return lambda function: Fitted(function, symmetry, mirrored, negated)
