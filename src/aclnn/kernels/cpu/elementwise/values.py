"""The activations themselves in float32 over sixteen lanes: less than 1 ULP from the exact value for finite inputs.

The four smooth ones are x·s(x) with s(x) + s(-x) = 1, so x·s(x) = max(x, 0) - h(a) with h(a) = a·s(-a) for a = abs(x):
the negative side is -h, and on the positive one h is less than half of x. docs/numerics.md derives each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.kernels.cpu.elementwise import coefficients, values_coefficients
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
from aclnn.kernels.cpu.vector import absolute, any_lane, bits, fma, select

#: Sixteen x to sixteen values. Numba's vectors have no Python type.
Value = Callable[[Any], Any]


def _value(segments: Segments, tail: Any) -> Value:
    """By segments up to the bound; beyond it, and for NaN and infinities, h is ``tail(a)``."""
    bound, by_segments = segments.bound, by_segments_of(segments)

    def value(x: Any) -> Any:
        a = absolute(x)
        h = by_segments(a)
        inside = a <= bound
        if any_lane(~inside):
            # A positive infinity keeps its tail, which is 0: infinity less that is infinity.
            h = select(inside, h, select((a <= LARGEST) | (x > 0.0), tail(a), x - x))
        return select(bits(x) < 0, -0.0, x) - h

    return value


@register_jitable
def _tail(a: Any, exponential: Any, rest: Any) -> Any:
    """e^(-w)·(a + rest) from (k, h, l, q), e^(-w) = 2^k·(h + l)·(1 + q)."""
    k, high, low, q = exponential
    return scaled(tail_value(high, low, q, a, rest), select(k < LOWEST, LOWEST, k))


@register_jitable
def _logistic(a: Any, exponential: Any) -> Any:
    """a·e/(1 + e), to fourth order in e, which is below 0.008."""
    k, high, _, q = exponential
    e = small(k, fma(high, q, high))
    return _tail(a, exponential, a * (e * fma(e, 1.0 - e, -1.0)))


def _sigmoid_tail(kappa: Exponential, end: float) -> Any:
    """h(a) = a·e/(1 + e), e = e^(-κa); from ``end`` on it rounds to zero."""
    power_of_two = power_of_two_of(kappa)

    @register_jitable
    def tail(a: Any) -> Any:
        bounded = select(a < end, a, end)
        return _logistic(bounded, power_of_two(bounded, 0.0))

    return tail


def _gelu_erf_tail() -> Any:
    """h(a) = φ(a)·a·M(a) with the Mills ratio M, a·M(a) = 1 + a small rest; from 20 on it rounds to zero."""
    power_of_two = power_of_two_of(coefficients.GELU_ERF_EXPONENTIAL)
    v0, v1, v2, v3, v4, v5, v6, v7, v8 = coefficients.GELU_ERF_MILLS

    @register_jitable
    def tail(a: Any) -> Any:
        bounded = select(a < 20.0, a, 20.0)
        square = bounded * bounded
        z = 1.0 / square
        series = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, v8, v7), v6), v5), v4), v3), v2), v1), v0)
        return _tail(1.0, power_of_two(square, fma(bounded, bounded, -square)), z * series)

    return tail


def _gelu_tanh_tail() -> Any:
    """h(a) = a·e/(1 + e) with e = e^(-w(a)); from 14 on it rounds to zero."""
    power_of_two = power_of_two_of(coefficients.GELU_TANH_EXPONENTIAL)
    exponent = tanh_exponent()

    @register_jitable
    def tail(a: Any) -> Any:
        bounded = select(a < 14.0, a, 14.0)
        w, w_low = exponent(bounded)
        return _logistic(bounded, power_of_two(w, w_low))

    return tail


_SIXTH = float.fromhex("0x1.555556p-3")


def hardswish(x: Any) -> Any:
    """0 up to -3, x from 3 on, x·(x + 3)/6 in between; NaN for NaN."""
    total = x + 3.0
    lost = x - (total - 3.0)
    product = x * total
    product_low = fma(x, lost, fma(x, total, -product))
    quotient = product * _SIXTH
    excess = fma(quotient, 6.0, -product) - product_low
    return select(x <= -3.0, 0.0, select(x >= 3.0, x, fma(excess, -_SIXTH, quotient)))


silu = _value(values_coefficients.SILU, _sigmoid_tail(coefficients.SILU_EXPONENTIAL, end=200.0))
fast_gelu = _value(values_coefficients.FAST_GELU, _sigmoid_tail(coefficients.FAST_GELU_EXPONENTIAL, end=118.0))
gelu_erf = _value(values_coefficients.GELU_ERF, _gelu_erf_tail())
gelu_tanh = _value(values_coefficients.GELU_TANH, _gelu_tanh_tail())

#: By the name of the formula.
VALUES: dict[str, Value] = {
    "silu_value": silu,
    "fast_gelu_value": fast_gelu,
    "gelu_erf_value": gelu_erf,
    "gelu_tanh_value": gelu_tanh,
    "hardswish_value": hardswish,
}
