"""The derivatives of the activations in float64, each with a bound on its own error.

A function here writes (value, bound) for every x: the exact derivative lies within value ± bound. The bounds assume
that the C library's exp and erfc are within 16 units of the last place (glibc documents 1 and 5; a test measures them)
and count every rounding generously, so they are a few times what really happens. Where a bound is too wide to decide a
rounding, aclnn.verify.certified decides.

Below a negative x (chosen where every derivative is under 1e-98) the value is "some negative number under 1e-90": times
the largest float32 that is still below half of the smallest, so all such numbers round alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.verify.compiled import compiled

Array = np.ndarray[Any, Any]

# Each of the terms below has at most 12 roundings of 2^-53 and one library call of 16 ulps (2^-48).
_TERM = 2.0**-47
# exp(v) and erfc(v) pass on the relative error of v multiplied by about |v| and 2·v².
_ARGUMENT = 2.0**-50

_VANISHES_BELOW = -240.0  # e^-240·240 is 2e-102
_ERF_VANISHES_BELOW = -22.0  # e^(-22²/2)·22 is 2e-104
_VANISHING = -1e-100

_SQRT_HALF = math.sqrt(0.5)
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


@compiled
def _sigmoid_product(y: float, amplified: float) -> tuple[float, float]:
    """s(y)·(1 + y·(1 - s(y))), s the logistic function, for |y| known to ``amplified`` relative error units."""
    e = math.exp(-abs(y))
    larger, smaller = 1.0 / (1.0 + e), e / (1.0 + e)
    s, complement = (larger, smaller) if y >= 0.0 else (smaller, larger)
    product = s * complement * y
    return s + product, (s + abs(product)) * _TERM + (smaller + abs(product)) * amplified * abs(y) * _ARGUMENT


@compiled
def silu(x: Array, value: Array, bound: Array) -> None:
    """s·(1 + x·(1 - s)), s = 1 / (1 + e^-x); NaN at ±inf."""
    for i in range(x.size):
        if x[i] == 0.0:
            value[i], bound[i] = 0.5, 0.0
        elif not math.isfinite(x[i]):
            value[i], bound[i] = math.nan, 0.0
        elif x[i] < _VANISHES_BELOW:
            value[i], bound[i] = _VANISHING, 0.0
        else:
            value[i], bound[i] = _sigmoid_product(x[i], 0.0)


@compiled
def fast_gelu(x: Array, value: Array, bound: Array) -> None:
    """As silu's with 1.702·x in place of x; NaN at ±inf."""
    for i in range(x.size):
        y = 1.702 * x[i]
        if y == 0.0:
            value[i], bound[i] = 0.5, 0.0
        elif not math.isfinite(x[i]):
            value[i], bound[i] = math.nan, 0.0
        elif y < _VANISHES_BELOW:
            value[i], bound[i] = _VANISHING, 0.0
        else:
            value[i], bound[i] = _sigmoid_product(y, 1.0)


@compiled
def gelu_erf(x: Array, value: Array, bound: Array) -> None:
    """½·erfc(-x / √2) + x·e^(-x²/2) / √(2π); NaN at ±inf."""
    for i in range(x.size):
        v = x[i]
        if v == 0.0:
            value[i], bound[i] = 0.5, 0.0
        elif not math.isfinite(v):
            value[i], bound[i] = math.nan, 0.0
        elif v < _ERF_VANISHES_BELOW:
            value[i], bound[i] = _VANISHING, 0.0
        else:
            half_square = 0.5 * v * v  # exact: x has at most 24 bits
            area = 0.5 * math.erfc(-v * _SQRT_HALF)
            density = v * _DENSITY_AT_ZERO * math.exp(-half_square)
            value[i] = area + density
            # For x > 0 erfc's error shrinks with e^(-x²/2) while its value does not.
            amplified = 2.0 * half_square * _ARGUMENT if v < 0.0 else 4.0 * _ARGUMENT
            bound[i] = area * (_TERM + amplified) + abs(density) * _TERM


@compiled
def gelu_tanh(x: Array, value: Array, bound: Array) -> None:
    """s + 2·x·s·(1 - s)·u' with s = ½·(1 + tanh u), u = √(2/π)·(x + 0.044715·x³); 1 and 0 at ±inf."""
    for i in range(x.size):
        v = x[i]
        if v == 0.0:
            value[i], bound[i] = 0.5, 0.0
        elif math.isnan(v):
            value[i], bound[i] = math.nan, 0.0
        elif math.isinf(v):
            value[i], bound[i] = (1.0 if v > 0.0 else 0.0), 0.0
        else:
            w = 2.0 * _SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)
            if w < _VANISHES_BELOW:
                value[i], bound[i] = _VANISHING, 0.0
                continue
            e = math.exp(-abs(w))
            larger, smaller = 1.0 / (1.0 + e), e / (1.0 + e)
            s, complement = (larger, smaller) if v >= 0.0 else (smaller, larger)
            product = 2.0 * v * s * complement * _SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * v * v)
            value[i] = s + product
            bound[i] = (s + abs(product)) * _TERM + (smaller + abs(product)) * 4.0 * abs(w) * _ARGUMENT


@compiled
def hardswish(x: Array, value: Array, bound: Array) -> None:
    """(2·x + 3) / 6 for |x| <= 3, both ends included; 0 below, 1 above, also at ±inf."""
    for i in range(x.size):
        v = x[i]
        if math.isnan(v):
            value[i], bound[i] = v, 0.0
        elif v < -3.0:
            value[i], bound[i] = 0.0, 0.0
        elif v > 3.0:
            value[i], bound[i] = 1.0, 0.0
        else:
            doubled = 2.0 * v
            total = doubled + 3.0
            lost = (3.0 - (total - doubled)) + (doubled - (total - (total - doubled)))
            value[i] = total / 6.0
            head = _head(value[i])
            exact = lost == 0.0 and head == value[i] and 6.0 * head == total
            bound[i] = 0.0 if exact else abs(lost) / 5.0 + abs(total) * 2.0**-54


@compiled
def _head(value: float) -> float:
    """The leading 26 bits; the value itself when it has no more, and then its product with a float32 is exact."""
    scaled = value * 134217729.0  # 2^27 + 1
    return scaled - (scaled - value)


Slopes = Callable[[Array, Array, Array], None]

SLOPES: dict[str, Slopes] = {
    "silu": silu,
    "fast_gelu": fast_gelu,
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "hardswish": hardswish,
}


SLOPE_NAMES = {
    ("silu_backward", None): "silu",
    ("fast_gelu_backward", None): "fast_gelu",
    ("hardswish_backward", None): "hardswish",
    ("gelu_backward_v2", "none"): "gelu_erf",
    ("gelu_backward_v2", "tanh"): "gelu_tanh",
}
"""Which derivative an elementwise operator, in its mode, multiplies with."""


@compiled
def bracket(dy: Array, value: Array, bound: Array, lower: Array, upper: Array) -> None:
    """Turn slopes into products dy·slope in place, and write an interval [lower, upper] around each exact one.

    A zero bound means that the slope is exact and short, so that the product is exact too; so is one with a dy of ±0,
    whose sign an interval around it would lose. An infinite dy takes the slope as rounded to float32 (0 makes a NaN).
    """
    for i in range(value.size):
        g = dy[i]
        product = g * np.float32(value[i]) if math.isinf(g) else g * value[i]
        value[i], lower[i], upper[i] = product, product, product
        if bound[i] != 0.0 and g != 0.0 and math.isfinite(g):
            bound[i] = abs(g) * bound[i] + abs(product) * 2.0**-51
            lower[i] -= bound[i]
            upper[i] += bound[i]
