"""16-bit derivatives and activations in Triton: float32 estimates, and a table for the few inputs where one might err.

A look-up for every element would touch as many lines of the first-level cache as a warp has lanes; an estimate takes at
most two of the GPU's quick instructions, 2^x and 1/sqrt(x). Rounded to 16 bits it is right wherever it is not within
``_DOUBT`` of such a number or of the middle between two, and not so small that cancellation or the exponent's range
could tell: there the entry of the table counts. Estimates are good to ``_DOUBT`` with the quick instructions as bad as
2^-21.9, NVIDIA's two units in the last place; ``tests/triton_interpreted.py`` makes them so and judges every input.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from aclnn.kernels.cuda.launch import tl, triton

_DOUBT = tl.constexpr(64)
"""Units in the last place of a float32."""

_LOG2_E = tl.constexpr(math.log2(math.e))
_QUICK = tl.constexpr(1.702)
_K1, _K3 = (tl.constexpr(2.0 * math.sqrt(2.0 / math.pi) * factor) for factor in (1.0, 0.044715))
_K1_LOG2, _K3_LOG2 = (tl.constexpr(-k.value * _LOG2_E.value) for k in (_K1, _K3))
_THREE_K3 = tl.constexpr(3.0 * _K3.value)
_HALF_LOG2 = tl.constexpr(-0.5 * _LOG2_E.value)
_DENSITY_LOG2 = tl.constexpr(-0.5 * math.log2(2.0 * math.pi))
# Weighted least-squares fits. Phi(-a)/phi(a) - a = s0 + a·(s1 + …) to a few ulp of the slope for a up to 5.6, and
# Phi(-a)/phi(a) = z·(m0 + z·(m1 + …)), z = 1/(1 + 0.34·a), to 2^-23.6 for a up to 4.3.
_SLOPE = tl.constexpr(
    (1.2533121, -1.9998965, 0.62566417, -0.32930437, 0.14778644, -0.05472247, 0.015581253, -0.0030925075,
     0.00037111840, -1.9928596e-05)
)  # fmt: skip
_MILLS_SCALE = tl.constexpr(0.34)
_MILLS = tl.constexpr((0.34141091, 0.32083949, 0.40966995, -0.11188651, 0.70073698, -0.52515052, 0.11769395))
_THIRD, _SIXTH = tl.constexpr(1.0 / 3.0), tl.constexpr(1.0 / 6.0)


@triton.jit
def _reciprocal(d):
    """1/d for d ≥ 1: a quick 1/sqrt(d), squared, and Newton's step."""
    root = tl.rsqrt(d)
    y = root * root
    return tl.fma(y, tl.fma(-d, y, 1.0), y)


@triton.jit
def silu_slope(x):
    """s·(1 + x·e·s), e = exp(-x), s = 1/(1 + e): NaN, and so doubtful, where e overflows."""
    e = tl.exp2(x * -_LOG2_E)
    s = _reciprocal(1.0 + e)
    return s * tl.fma(x, e * s, 1.0)


@triton.jit
def fast_gelu_slope(x):
    """As ``silu_slope``, of 1.702·x."""
    return silu_slope(x * _QUICK)


@triton.jit
def gelu_tanh_slope(x):
    """s·(1 + x·w'·e·s), e = exp(-w), s = 1/(1 + e), w = K1·x + K3·x³."""
    square = x * x
    e = tl.exp2(x * tl.fma(square, _K3_LOG2, _K1_LOG2))
    s = _reciprocal(1.0 + e)
    return s * tl.fma(x * tl.fma(square, _THREE_K3, _K1), e * s, 1.0)


@triton.jit
def _mirrored(x, g):
    """f(x) from g(abs(x)) = f(-abs(x))."""
    return tl.where(x < 0.0, g, 1.0 - g)


@triton.jit
def _density(a):
    return tl.exp2(tl.fma(a * a, _HALF_LOG2, _DENSITY_LOG2))


@triton.jit
def gelu_erf_slope(x):
    """Phi(-a) - a·phi(a) for x = -a."""
    a = tl.abs(x)
    series = tl.fma(a, _SLOPE[9], _SLOPE[8])
    for i in tl.static_range(8):
        series = tl.fma(a, series, _SLOPE[7 - i])
    return _mirrored(x, _density(a) * series)


@triton.jit
def hardswish_slope(x):
    """0 below -3, 1 above 3, (x + 1.5)/3 in between."""
    return tl.where(x < -3.0, 0.0, tl.where(x > 3.0, 1.0, (x + 1.5) * _THIRD))


@triton.jit
def silu_value(x):
    """x/(1 + exp(-x))."""
    return x * _reciprocal(1.0 + tl.exp2(x * -_LOG2_E))


@triton.jit
def fast_gelu_value(x):
    """x/(1 + exp(-1.702·x))."""
    return x * _reciprocal(1.0 + tl.exp2(x * (-_LOG2_E * _QUICK)))


@triton.jit
def gelu_tanh_value(x):
    """x/(1 + exp(-w)), w = K1·x + K3·x³."""
    return x * _reciprocal(1.0 + tl.exp2(x * tl.fma(x * x, _K3_LOG2, _K1_LOG2)))


@triton.jit
def gelu_erf_value(x):
    """x·Phi(x)."""
    a = tl.abs(x)
    z = _reciprocal(tl.fma(a, _MILLS_SCALE, 1.0))
    series = tl.fma(z, _MILLS[6], _MILLS[5])
    for i in tl.static_range(5):
        series = tl.fma(z, series, _MILLS[4 - i])
    return x * _mirrored(x, _density(a) * z * series)


@triton.jit
def hardswish_value(x):
    """x times (x + 3)/6, that between 0 and 1."""
    return x * (tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) * _SIXTH)


@triton.jit
def doubtful(estimate, DROPPED: tl.constexpr, TRAITS: tl.constexpr):
    """Whether the entry counts when so many digits are rounded off.

    Near a 16-bit number it counts too: what an exact 0.5 makes of a dy may itself be in the middle between two.
    """
    half: tl.constexpr = 1 << (DROPPED - 1)
    modulus: tl.constexpr = 2 * half if TRAITS[1] else half
    middle: tl.constexpr = half if TRAITS[1] else 0
    beside = (estimate.to(tl.int32, bitcast=True) + (_DOUBT - middle)) & (modulus - 1)
    return (beside <= 2 * _DOUBT) | ((tl.abs(estimate) >= TRAITS[0]) == 0)


class Traits(NamedTuple):
    """What is known of an estimate."""

    small: float
    """The size below which the entry counts: slopes lose digits around their zeros, and float16 below 2^-14."""
    exact: bool
    """Where the function is a 16-bit number the estimate is that number."""
    tiny: bool
    """There may be entries whose digits do not fit into a float32."""


_SLOPE_TRAITS, _VALUE_TRAITS = Traits(2.0**-6, False, True), Traits(2.0**-14, False, False)
_HARDSWISH_TRAITS = Traits(2.0**-14, True, False)

#: The estimate of each formula, by its name.
ESTIMATES: dict[str, tuple[Any, Traits]] = {
    "silu_slope": (silu_slope, _SLOPE_TRAITS),
    "fast_gelu_slope": (fast_gelu_slope, _SLOPE_TRAITS),
    "gelu_erf_slope": (gelu_erf_slope, _SLOPE_TRAITS),
    "gelu_tanh_slope": (gelu_tanh_slope, _SLOPE_TRAITS),
    "hardswish_slope": (hardswish_slope, _HARDSWISH_TRAITS),
    "silu_value": (silu_value, _VALUE_TRAITS),
    "fast_gelu_value": (fast_gelu_value, _VALUE_TRAITS),
    "gelu_erf_value": (gelu_erf_value, _VALUE_TRAITS),
    "gelu_tanh_value": (gelu_tanh_value, _VALUE_TRAITS),
    "hardswish_value": (hardswish_value, _VALUE_TRAITS),
}
