"""Products dy·f(x) rounded for certain: exact rationals where f is rational, else intervals, ever narrower.

The intervals are Arb's (python-flint), which prove themselves. Where only mpmath is installed its functions, correct to
a few units of the working precision, are widened by 2^10 such units.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import cache
from typing import Any, Protocol, cast

from aclnn.extras import require
from aclnn.kernels.locks import lock_across_forks
from aclnn.verify.number_formats import NumberFormat

_MAX_BITS = 8192


class UndecidedError(ArithmeticError):
    """A rounding that even the widest working precision could not decide."""


class _Reals(Protocol):
    """What the definitions below are written in."""

    def number(self, value: Fraction) -> Any:
        """A rational as a real."""

    def exp(self, value: Any) -> Any:
        """e^value."""

    def erfc(self, value: Any) -> Any:
        """1 - erf(value)."""

    def sqrt(self, value: Any) -> Any:
        """The square root."""

    @property
    def pi(self) -> Any:
        """π."""


def _logistic_slope(m: _Reals, y: Any) -> Any:
    s = 1 / (1 + m.exp(-y))
    return s + s * y / (1 + m.exp(y))


def _silu(m: _Reals, x: Any) -> Any:
    return _logistic_slope(m, x)


def _fast_gelu(m: _Reals, x: Any) -> Any:
    return _logistic_slope(m, m.number(Fraction(1702, 1000)) * x)


def _gelu_erf(m: _Reals, x: Any) -> Any:
    return m.erfc(-x / m.sqrt(m.number(Fraction(2)))) / 2 + x * m.exp(-x * x / 2) / m.sqrt(2 * m.pi)


def _gelu_tanh(m: _Reals, x: Any) -> Any:
    cubic, root = m.number(Fraction(44715, 1_000_000)), m.sqrt(2 / m.pi)
    w = 2 * root * (x + cubic * x * x * x)
    s = 1 / (1 + m.exp(-w))
    return s + 2 * x * s / (1 + m.exp(w)) * root * (1 + 3 * cubic * x * x)


DEFINITIONS: dict[str, Callable[[_Reals, Any], Any]] = {
    "silu": _silu,
    "fast_gelu": _fast_gelu,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
}


_ONE_BEYOND = {"silu": 100.0, "fast_gelu": 60.0, "gelu_erf": 40.0, "gelu_tanh": 20.0}
"""From there on a derivative is 1 and less than 2^-100 more: its exact digits decide nothing and fill the memory."""


class _Arb:
    """Arb's balls."""

    def __init__(self, bits: int) -> None:
        flint = require("flint", "verify")
        self._ball, self._ratio, self._context, self._bits = flint.arb, flint.fmpq, flint.ctx, bits
        with self.precision():
            self.pi = flint.arb.pi()

    def precision(self) -> AbstractContextManager[Any]:
        """Set the process's precision, and at the end back to the user's."""
        return cast(AbstractContextManager[Any], self._context.workprec(self._bits))

    def number(self, value: Fraction) -> Any:
        return self._ball(self._ratio(value.numerator, value.denominator))

    def exp(self, value: Any) -> Any:
        return value.exp()

    def erfc(self, value: Any) -> Any:
        return value.erfc()

    def sqrt(self, value: Any) -> Any:
        return value.sqrt()

    def ends(self, value: Any, scale: Any) -> tuple[Fraction, Fraction]:
        return _dyadic(*value.lower().mid().man_exp()), _dyadic(*value.upper().mid().man_exp())


class _MultiplePrecision:
    """mpmath's numbers, with a margin for what its functions may be off."""

    def __init__(self, bits: int) -> None:
        mpmath = require("mpmath", "verify")
        self._context, self._bits = mpmath.mp.clone(), bits
        self._context.prec = bits
        self.exp, self.erfc, self.sqrt = self._context.exp, self._context.erfc, self._context.sqrt
        self.pi = +self._context.pi

    def precision(self) -> AbstractContextManager[Any]:
        """Nothing: the context is a clone with this precision."""
        return nullcontext()

    def number(self, value: Fraction) -> Any:
        return self._context.mpf(value.numerator) / value.denominator

    def ends(self, value: Any, scale: Any) -> tuple[Fraction, Fraction]:
        sign, mantissa, exponent, _ = value._mpf_
        middle = _dyadic(-mantissa if sign else mantissa, exponent)
        margin = (abs(middle) + scale) * Fraction(2) ** (10 - self._bits)
        return middle - margin, middle + margin


def _dyadic(mantissa: Any, exponent: Any) -> Fraction:
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


#: Of the precision, which python-flint and a context of mpmath have one of for all threads.
_lock = lock_across_forks()


@cache
def _reals(backend: str, bits: int) -> Any:
    return _Arb(bits) if backend == "python-flint" else _MultiplePrecision(bits)


def backend() -> str:
    """Which library decides: python-flint where it is installed, else mpmath."""
    return "python-flint" if importlib.util.find_spec("flint") else "mpmath"


def interval(name: str, x: float, bits: int, library: str | None = None) -> tuple[Fraction, Fraction]:
    """An interval that contains the exact derivative at a finite x; that at _ONE_BEYOND for a larger one."""
    x = min(x, _ONE_BEYOND[name])
    with _lock:
        reals = _reals(library or backend(), bits)
        with reals.precision():
            value = DEFINITIONS[name](reals, reals.number(Fraction(x)))
            # Terms of the formulas are at most about 1 + |x|; near their cancellation that is the scale of an error.
            ends: tuple[Fraction, Fraction] = reals.ends(value, 1 + abs(Fraction(x)))
    return ends


def slope(name: str, x: float, library: str | None = None) -> tuple[float, float]:
    """The derivative at a finite x as a sum hi + lo of float64 numbers, within 2**-100 of its magnitude.

    Raises:
        UndecidedError: not even with 8,192 bits.
        MissingExtraError: neither python-flint nor mpmath is installed.
    """
    bits = 160
    while bits <= _MAX_BITS:
        lower, upper = interval(name, x, bits, library)
        if (upper - lower) * 2**102 < min(abs(lower), abs(upper)):
            hi = float(lower)
            return hi, float(lower - Fraction(hi))
        bits *= 2
    raise UndecidedError(f"{name}: the derivative at {x!r} is not known with {_MAX_BITS} bits")


def product(name: str, dy: float, x: float, target: NumberFormat, library: str | None = None) -> tuple[float, float]:
    """dy·f(x) for finite dy and x: rounded to the target format for certain, and as the nearest float64.

    Raises:
        UndecidedError: not even with 8,192 bits.
        MissingExtraError: neither python-flint nor mpmath is installed.
    """
    if name == "hardswish":
        exact = Fraction(dy) * (2 * Fraction(x) + 3) / 6
        return target.round_exact(exact), float(exact)
    bits = 160
    while bits <= _MAX_BITS:
        lower, upper = sorted(Fraction(dy) * end for end in interval(name, x, bits, library))
        rounded = target.round_exact(lower)
        if rounded == target.round_exact(upper) and lower * upper > 0:
            return rounded, float(lower)
        bits *= 2
    raise UndecidedError(f"{name}: dy = {dy!r}, x = {x!r} is not decided with {_MAX_BITS} bits")
