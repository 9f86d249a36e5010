"""The float32 derivatives over sixteen lanes: less than 1 ULP from the exact value for every finite input.

Each is a function of x and dy that gives dy·f(x), because far out f(x) alone may be too small for a float32 where the
product is not. docs/numerics.md derives each step. Products and sums are fused exactly where ``fma`` is written: the
differences that look redundant recover roundings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aclnn.kernels.cpu.elementwise import coefficients, slopes_coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Exponential, Segments
from aclnn.kernels.cpu.elementwise.pieces import (
    LARGEST,
    LOWEST,
    by_segments_of,
    power_of_two_of,
    scaled,
    small,
    tail_value,
    tanh_exponent,
)
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.vector import absolute, any_lane, bits, fma, select, where_negative

#: A gradient: sixteen x and sixteen dy to sixteen dy·f(x). Numba's vectors have no Python type.
Gradient = Callable[[Any, Any], Any]


@register_jitable
def _far_tail_gradient(x: Any, dy: Any, k: Any, value: Any) -> Any:
    """dy·f(x) where 2^k·value may be below the normal numbers: for negative x the product with dy comes first.

    An infinite dy is multiplied with the rounded slope.
    """
    size = absolute(dy)
    large = size >= 1.0
    lifted = select(large, k + 64, k)
    product = scaled(value * select(large, dy * 2.0**-64, dy), select(lifted < LOWEST, LOWEST, lifted))
    g = scaled(value, select(k < LOWEST, LOWEST, k))
    f = select(bits(x) < 0, g, 1.0 - g)
    return select((bits(x) < 0) & (size <= LARGEST), product, dy * f)


@register_jitable
def _tail_gradient(x: Any, dy: Any, k: Any, value: Any) -> Any:
    """dy·f(x) from g = value·2^k, the size of value being 2^-20 … 2^20."""
    g = small(k, value)
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


class Near(NamedTuple):
    """A slope of any number of lanes for x up to a bound: f(x), where it is a normal number.

    ``tail(x, dy)`` gives sixteen dy·f(x) beyond the bound, and for NaN; None where slopes come from a table there.
    """

    slope: Any
    bound: float
    tail: Any = None


def _near(segments: Segments, tail: Gradient) -> Near:
    by_segments = by_segments_of(segments)

    def slope(x: Any) -> Any:
        g = by_segments(absolute(x))
        return where_negative(x, g, 1.0 - g)

    inlined = register_jitable(forceinline=True)
    return Near(inlined(slope), segments.bound, inlined(tail))


def _gradient(near: Near) -> Gradient:
    """By segments up to the bound, beyond it by the tail."""
    slope, bound, tail = near

    def gradient(x: Any, dy: Any) -> Any:
        product = dy * slope(x)
        inside = absolute(x) <= bound
        if any_lane(~inside):
            product = select(inside, product, tail(x, dy))
        return product

    return gradient


def _sigmoid_tail(kappa: Exponential, scale: float, scale_low: float, end: float) -> Any:
    """g(a) = e·(1 + e - κa)/(1 + e)², e = e^(-κa), κ = scale + scale_low; from ``end`` on nothing is left of dy·g."""
    power_of_two = power_of_two_of(kappa)

    def tail(x: Any, dy: Any) -> Any:
        a = absolute(x)
        bounded = select(a < end, a, end)
        k, high, low, q = power_of_two(bounded, 0.0)
        e = small(k, fma(high, q, high))
        leading = fma(bounded, -scale, 1.0)
        leading_low = fma(bounded, -scale_low, fma(bounded, -scale, -leading) + 1.0)
        value = tail_value(high, low, q, leading, _logistic_rest(e, leading, leading_low))
        return select(a <= LARGEST, _tail_gradient(x, dy, k, value), x - x)

    return tail


def _gelu_erf_tail() -> Any:
    """g(a) = -φ(a)·(a - M(a)) with the Mills ratio M; from 20 on nothing is left of dy·g."""
    power_of_two = power_of_two_of(coefficients.GELU_ERF_EXPONENTIAL)
    v0, v1, v2, v3, v4, v5, v6, v7, v8 = coefficients.GELU_ERF_MILLS

    def tail(x: Any, dy: Any) -> Any:
        a = absolute(x)
        bounded = select(a < 20.0, a, 20.0)
        square = bounded * bounded
        square_low = fma(bounded, bounded, -square)
        k, high, low, q = power_of_two(square, square_low)
        y = 1.0 / bounded
        z = y * y
        series = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, v8, v7), v6), v5), v4), v3), v2), v1), v0)
        mills = fma(y * z, series, y)
        value = tail_value(high, low, q, -bounded, mills)
        return select(a <= LARGEST, _tail_gradient(x, dy, k, value), x - x)

    return tail


def _gelu_tanh_tail() -> Any:
    """g(a) = e·(1 + e - a·w'(a))/(1 + e)² with e = e^(-w(a)); from 14 on nothing is left of dy·g."""
    power_of_two = power_of_two_of(coefficients.GELU_TANH_EXPONENTIAL)
    exponent = tanh_exponent()
    twice_k1, twice_k1_low = 2.0 * coefficients.GELU_TANH_K1, 2.0 * coefficients.GELU_TANH_K1_LOW

    def tail(x: Any, dy: Any) -> Any:
        a = absolute(x)
        bounded = select(a < 14.0, a, 14.0)
        w, w_low = exponent(bounded)
        k, high, low, q = power_of_two(w, w_low)
        e = small(k, fma(high, q, high))
        # leading + rest = 1 - a·w' = 1 + 2·k1·a - 3·w
        linear = bounded * twice_k1
        linear_low = fma(bounded, twice_k1_low, fma(bounded, twice_k1, -linear))
        triple = w * 3.0
        triple_low = fma(w_low, 3.0, fma(w, 3.0, -triple))
        leading = linear - triple
        rest = (((linear - (leading + triple)) + linear_low) - triple_low) + 1.0
        value = tail_value(high, low, q, leading, _logistic_rest(e, leading, rest))
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


#: By the name of the formula that f is: float32 slopes that a wide vector evaluates.
NEAR: dict[str, Near] = {
    "silu_slope": _near(slopes_coefficients.SILU, _sigmoid_tail(coefficients.SILU_EXPONENTIAL, 1.0, 0.0, end=200.0)),
    "fast_gelu_slope": _near(
        slopes_coefficients.FAST_GELU,
        _sigmoid_tail(
            coefficients.FAST_GELU_EXPONENTIAL,
            coefficients.FAST_GELU_SCALE,
            coefficients.FAST_GELU_SCALE_LOW,
            end=118.0,
        ),
    ),
    "gelu_erf_slope": _near(slopes_coefficients.GELU_ERF, _gelu_erf_tail()),
    "gelu_tanh_slope": _near(slopes_coefficients.GELU_TANH, _gelu_tanh_tail()),
}

silu = _gradient(NEAR["silu_slope"])
fast_gelu = _gradient(NEAR["fast_gelu_slope"])
gelu_erf = _gradient(NEAR["gelu_erf_slope"])
gelu_tanh = _gradient(NEAR["gelu_tanh_slope"])

#: By the name of the formula that f is.
GRADIENTS: dict[str, Gradient] = {
    "silu_slope": silu,
    "fast_gelu_slope": fast_gelu,
    "gelu_erf_slope": gelu_erf,
    "gelu_tanh_slope": gelu_tanh,
    "hardswish_slope": hardswish,
}
