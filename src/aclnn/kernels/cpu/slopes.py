"""The float32 derivatives over sixteen lanes: at most 1.1 ULP from the exact value for every finite input.

Each is a function of x and dy that gives dy·f(x), because far out f(x) alone may be too small for a float32 where the
product is not. docs/numerics.md derives each step. Products and sums are fused exactly where ``fma`` is written: the
differences that look redundant recover roundings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

from aclnn.kernels.cpu import coefficients
from aclnn.kernels.cpu.coefficients import Exponential, Segments
from aclnn.kernels.cpu.vector import (
    Table,
    Tables,
    absolute,
    any_lane,
    bits,
    fma,
    from_bits,
    horner,
    lookup,
    select,
    sixteen_at_once,
)

#: A gradient: sixteen x and sixteen dy to sixteen dy·f(x). Numba's vectors have no Python type.
Gradient = Callable[[Any, Any], Any]

_ROUND = 1.5 * 2.0**23
"""Added to a small float32 it leaves the nearest integer in the low bits."""

_OFFSET = 512
"""Added to exponents, which go down to -290, to shift them as natural numbers."""

_LOWEST = -250
"""Powers of two below this make zero of every product that occurs; down to it, halves of them are normal numbers."""

_LARGEST = (2.0 - 2.0**-23) * 2.0**127


def _power_of_two(kappa: Exponential) -> Any:
    """A function of t giving (k, h, l, q): e^(-κt) = 2^k·(h + l)·(1 + q), for t given as high + low."""
    per_unit, step, step_low = -kappa.per_unit, kappa.step, kappa.step_low
    power, power_low = Table(*kappa.power), Table(*kappa.power_low)
    q0, q1, q2, q3 = kappa.q
    shift = _ROUND + _OFFSET * 8

    @register_jitable
    def power_of_two(high: Any, low: Any) -> Any:
        j = fma(high, per_unit, shift)
        n = j - shift
        k = ((bits(j) & 0x3FFFFF) >> 3) - _OFFSET
        r = fma(n, step, high) + fma(n, step_low, low)
        q = r * fma(r, fma(r, fma(r, q3, q2), q1), q0)
        return k, lookup(power, bits(j)), lookup(power_low, bits(j)), q

    return power_of_two


@register_jitable
def _small(k: Any, mantissa: Any) -> Any:
    """2^k·mantissa where a number below 2^-126 may be anything small."""
    return mantissa * from_bits((select(k < -126, -126, k) + 127) << 23)


@register_jitable
def _tail_value(high: Any, low: Any, q: Any, leading: Any, rest: Any) -> Any:
    """(high + low)·(1 + q)·(leading + rest); only the last sum rounds."""
    correction = fma(q, leading + rest, rest)
    product = high * leading
    return product + fma(high, correction, fma(low, leading, fma(high, leading, -product)))


@register_jitable
def _scaled(value: Any, k: Any) -> Any:
    """value·2^k, k not below _LOWEST, rounded at most once where the result is normal."""
    half = ((k + _OFFSET) >> 1) - _OFFSET // 2
    return (value * from_bits((half + 127) << 23)) * from_bits((k - half + 127) << 23)


@register_jitable
def _far_tail_gradient(x: Any, dy: Any, k: Any, value: Any) -> Any:
    """dy·f(x) where 2^k·value may be below the normal numbers: for negative x the product with dy comes first.

    An infinite dy is multiplied with the rounded slope.
    """
    size = absolute(dy)
    large = size >= 1.0
    lifted = select(large, k + 64, k)
    product = _scaled(value * select(large, dy * 2.0**-64, dy), select(lifted < _LOWEST, _LOWEST, lifted))
    g = _scaled(value, select(k < _LOWEST, _LOWEST, k))
    f = select(bits(x) < 0, g, 1.0 - g)
    return select((bits(x) < 0) & (size <= _LARGEST), product, dy * f)


@register_jitable
def _tail_gradient(x: Any, dy: Any, k: Any, value: Any) -> Any:
    """dy·f(x) from g = value·2^k, the size of value being 2^-20 … 2^20."""
    g = _small(k, value)
    product = dy * select(bits(x) < 0, g, 1.0 - g)
    far = k < -106
    if any_lane(far):
        product = select(far, _far_tail_gradient(x, dy, k, value), product)
    return product


@register_jitable
def _logistic_rest(e: Any, leading: Any, low: Any) -> Any:
    """What (e + leading + low)/(1 + e)² exceeds ``leading`` by, to fourth order in e; e is below 0.008."""
    series = fma(e, fma(e, fma(e, 5.0, -4.0), 3.0), -2.0)
    return fma(e, fma(leading + low + e, series, 1.0), low)


def _polynomials(segments: Segments, first: int, last: int) -> Any:
    """g(a) by the segments first … last - 1, for the lanes that lie in one of them."""
    centre, c0, p0, *others = (Table(*row[first:last]) for row in (segments.centre, segments.c0, *segments.p))
    rest = Tables(*(table.rows[0] for table in reversed(others)))

    @register_jitable(forceinline=True)
    def polynomial(a: Any, i: Any) -> Any:
        r = a - lookup(centre, i)
        upper = horner(rest, i, r)
        p = fma(upper, r, lookup(p0, i))
        lost = fma(upper, r, lookup(p0, i) - p)
        return fma(r, p, fma(r, lost, lookup(c0, i)))

    return polynomial


def _by_segments(segments: Segments) -> Any:
    """g(a) for 0 ≤ a ≤ bound. Where a look-up has eight entries, lanes beyond the eighth segment take a second turn."""
    count = len(segments.centre)
    near, whole = _polynomials(segments, 0, 8), _polynomials(segments, 0, count)
    far = _polynomials(segments, count - 8, count)
    per_unit, twice = segments.per_unit, count == 16

    @register_jitable(forceinline=True)
    def by_segments(a: Any) -> Any:
        i = bits(fma(a, per_unit, _ROUND))
        if sixteen_at_once():
            return whole(a, i)
        g = near(a, i)
        if twice:
            beyond = (i & 8) != 0
            if any_lane(beyond):
                g = select(beyond, far(a, i), g)
        return g

    return by_segments


def _gradient(segments: Segments, tail: Any) -> Gradient:
    """By segments up to the bound; beyond it, and for NaN and infinities, ``tail(x, a, dy)``."""
    bound, by_segments = segments.bound, _by_segments(segments)

    def gradient(x: Any, dy: Any) -> Any:
        a = absolute(x)
        g = by_segments(a)
        product = dy * select(bits(x) < 0, g, 1.0 - g)
        inside = a <= bound
        if any_lane(~inside):
            product = select(inside, product, tail(x, a, dy))
        return product

    return gradient


def _sigmoid_tail(kappa: Exponential, scale: float, scale_low: float, end: float) -> Any:
    """g(a) = e·(1 + e - κa)/(1 + e)², e = e^(-κa), κ = scale + scale_low; from ``end`` on nothing is left of dy·g."""
    power_of_two = _power_of_two(kappa)

    @register_jitable
    def tail(x: Any, a: Any, dy: Any) -> Any:
        bounded = select(a < end, a, end)
        k, high, low, q = power_of_two(bounded, 0.0)
        e = _small(k, fma(high, q, high))
        leading = fma(bounded, -scale, 1.0)
        leading_low = fma(bounded, -scale_low, fma(bounded, -scale, -leading) + 1.0)
        value = _tail_value(high, low, q, leading, _logistic_rest(e, leading, leading_low))
        return select(a <= _LARGEST, _tail_gradient(x, dy, k, value), x - x)

    return tail


def _gelu_erf_tail() -> Any:
    """g(a) = -φ(a)·(a - M(a)) with the Mills ratio M; from 20 on nothing is left of dy·g."""
    power_of_two = _power_of_two(coefficients.GELU_ERF_EXPONENTIAL)
    v0, v1, v2, v3, v4, v5, v6, v7, v8 = coefficients.GELU_ERF_MILLS

    @register_jitable
    def tail(x: Any, a: Any, dy: Any) -> Any:
        bounded = select(a < 20.0, a, 20.0)
        square = bounded * bounded
        square_low = fma(bounded, bounded, -square)
        k, high, low, q = power_of_two(square, square_low)
        y = 1.0 / bounded
        z = y * y
        series = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, v8, v7), v6), v5), v4), v3), v2), v1), v0)
        mills = fma(y * z, series, y)
        value = _tail_value(high, low, q, -bounded, mills)
        return select(a <= _LARGEST, _tail_gradient(x, dy, k, value), x - x)

    return tail


def _gelu_tanh_tail() -> Any:
    """g(a) = e·(1 + e - a·w'(a))/(1 + e)² with e = e^(-w(a)); from 14 on nothing is left of dy·g."""
    power_of_two = _power_of_two(coefficients.GELU_TANH_EXPONENTIAL)
    k1, k1_low = coefficients.GELU_TANH_K1, coefficients.GELU_TANH_K1_LOW
    k3, k3_low = coefficients.GELU_TANH_K3, coefficients.GELU_TANH_K3_LOW
    twice_k1, twice_k1_low = 2.0 * k1, 2.0 * k1_low

    @register_jitable
    def tail(x: Any, a: Any, dy: Any) -> Any:
        bounded = select(a < 14.0, a, 14.0)
        square = bounded * bounded
        square_low = fma(bounded, bounded, -square)
        # u + u_low = k1 + k3·a², the larger sum by an exact two-sum.
        cubic = square * k3
        cubic_low = fma(square, k3, -cubic)
        u = cubic + k1
        back = u - cubic
        two_sum = (cubic - (u - back)) + (k1 - back)
        u_low = (fma(square_low, k3, fma(square, k3_low, k1_low)) + cubic_low) + two_sum
        w = bounded * u
        w_low = fma(bounded, u_low, fma(bounded, u, -w))
        k, high, low, q = power_of_two(w, w_low)
        e = _small(k, fma(high, q, high))
        # leading + rest = 1 - a·w' = 1 + 2·k1·a - 3·w
        linear = bounded * twice_k1
        linear_low = fma(bounded, twice_k1_low, fma(bounded, twice_k1, -linear))
        triple = w * 3.0
        triple_low = fma(w_low, 3.0, fma(w, 3.0, -triple))
        leading = linear - triple
        rest = (((linear - (leading + triple)) + linear_low) - triple_low) + 1.0
        value = _tail_value(high, low, q, leading, _logistic_rest(e, leading, rest))
        return select(x == x, _tail_gradient(x, dy, k, value), x)

    return tail


_THIRD = float.fromhex("0x1.555556p-2")


def hardswish(x: Any, dy: Any) -> Any:
    """0 below -3, 1 above 3, (x + 1.5)/3 in between, both ends included; NaN for NaN."""
    numerator = x + 1.5
    lost = x - (numerator - 1.5)
    quotient = numerator * _THIRD
    remainder = fma(quotient, -3.0, numerator) + lost
    return dy * select(x < -3.0, 0.0, select(x > 3.0, 1.0, fma(remainder, _THIRD, quotient)))


silu = _gradient(coefficients.SILU, _sigmoid_tail(coefficients.SILU_EXPONENTIAL, 1.0, 0.0, end=200.0))
fast_gelu = _gradient(
    coefficients.FAST_GELU,
    _sigmoid_tail(
        coefficients.FAST_GELU_EXPONENTIAL, coefficients.FAST_GELU_SCALE, coefficients.FAST_GELU_SCALE_LOW, end=118.0
    ),
)
gelu_erf = _gradient(coefficients.GELU_ERF, _gelu_erf_tail())
gelu_tanh = _gradient(coefficients.GELU_TANH, _gelu_tanh_tail())

#: By the name of the formula that f is.
GRADIENTS: dict[str, Gradient] = {
    "silu_slope": silu,
    "fast_gelu_slope": fast_gelu,
    "gelu_erf_slope": gelu_erf,
    "gelu_tanh_slope": gelu_tanh,
    "hardswish_slope": hardswish,
}
