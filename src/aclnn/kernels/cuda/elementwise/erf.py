"""The exact GELU in float32: x times the normal distribution."""

from __future__ import annotations

from aclnn.kernels.cuda.elementwise import coefficients
from aclnn.kernels.cuda.elementwise.pieces import (
    any_lane,
    exponential_of,
    gradient,
    power_of_two,
    scaled,
    segments_of,
    tail_value,
)
from aclnn.kernels.cuda.launch import tl, triton

_ERF, _ERF_KAPPA = segments_of(coefficients.GELU_ERF), exponential_of(coefficients.GELU_ERF_EXPONENTIAL)
_ERF_BOUND = tl.constexpr(coefficients.GELU_ERF.bound)
_ERF_END = tl.constexpr(20.0)
_V = tl.constexpr(coefficients.GELU_ERF_MILLS)


@triton.jit
def _normal_density(a, table):
    """φ(a) = 2^k·(h + l)·(1 + q)."""
    square = a * a
    return power_of_two(square, tl.fma(a, a, -square), table, _ERF_KAPPA)


@triton.jit
def _mills(a):
    """(y, z, s): the Mills ratio is y + y·z·s, y = 1/a, z = y²."""
    y = tl.math.div_rn(tl.full(a.shape, 1.0, tl.float32), a)
    z = y * y
    series = tl.fma(z, _V[8], _V[7])
    for i in tl.static_range(7):
        series = tl.fma(z, series, _V[6 - i])
    return y, z, series


@triton.jit
def _gelu_erf_tail(a, table):
    """g(a) = -φ(a)·(a - M(a)) with the Mills ratio M."""
    k, high, low, q = _normal_density(a, table)
    y, z, series = _mills(a)
    return k, tail_value(high, low, q, -a, tl.fma(y * z, series, y))


@triton.jit
def gelu_erf_slope(x, dy, table):
    """dy·(Phi(x) + x·phi(x))."""
    return gradient(x, dy, table, _ERF, _gelu_erf_tail, _ERF_END, False)


@triton.jit
def gelu_erf_value(x, dy, table):
    """dy·x·Phi(x), in float64: near 0 by erf, in the tail by -φ(a)·a·M(a) with the Mills ratio M."""
    a = tl.abs(x)
    wide = x.to(tl.float64)
    erf = tl.math.erf(wide * 0.7071067811865476)
    f = (0.5 * wide * (1.0 + erf)).to(tl.float32)
    far = (x < 0.0) & (a > _ERF_BOUND)
    if any_lane(far):
        bounded = tl.where(a < _ERF_END, a, _ERF_END)
        k, high, low, q = _normal_density(bounded, table)
        _, z, series = _mills(bounded)
        g = scaled(tail_value(high, low, q, -1.0, -(z * series)), k)
        f = tl.where(far, tl.fma(x, 0.0, g), f)
    return dy * f
