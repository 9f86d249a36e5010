"""SiLU, FastGELU and GELU by tanh in float32: x times the logistic function of x, 1.702·x and w(x)."""

from __future__ import annotations

from aclnn.kernels.cuda.elementwise import coefficients
from aclnn.kernels.cuda.elementwise.pieces import (
    exponential_of,
    gradient,
    power_of_two,
    scaled,
    segments_of,
    small,
    tail_value,
)
from aclnn.kernels.cuda.launch import tl, triton

_SILU, _SILU_KAPPA = segments_of(coefficients.SILU), exponential_of(coefficients.SILU_EXPONENTIAL)
_SILU_END = tl.constexpr(200.0)
_FAST, _FAST_KAPPA = segments_of(coefficients.FAST_GELU), exponential_of(coefficients.FAST_GELU_EXPONENTIAL)
_FAST_END = tl.constexpr(118.0)
_FAST_SCALE = tl.constexpr(coefficients.FAST_GELU_SCALE)
_FAST_SCALE_LOW = tl.constexpr(coefficients.FAST_GELU_SCALE_LOW)
_TANH, _TANH_KAPPA = segments_of(coefficients.GELU_TANH), exponential_of(coefficients.GELU_TANH_EXPONENTIAL)
_TANH_END = tl.constexpr(14.0)
_K1, _K1_LOW, _K3, _K3_LOW = (
    tl.constexpr(v)
    for v in (
        coefficients.GELU_TANH_K1,
        coefficients.GELU_TANH_K1_LOW,
        coefficients.GELU_TANH_K3,
        coefficients.GELU_TANH_K3_LOW,
    )
)
_TWICE_K1, _TWICE_K1_LOW = (tl.constexpr(2.0 * v) for v in (coefficients.GELU_TANH_K1, coefficients.GELU_TANH_K1_LOW))


@triton.jit
def _logistic_tail(leading, leading_low, k, high, low, q):
    """(k, value): e·(e + leading + leading_low)/(1 + e)² = value·2^k, to fourth order in e, which is below 0.008."""
    e = small(k, tl.fma(high, q, high))
    series = tl.fma(e, tl.fma(e, tl.fma(e, 5.0, -4.0), 3.0), -2.0)
    rest = tl.fma(e, tl.fma(leading + leading_low + e, series, 1.0), leading_low)
    return k, tail_value(high, low, q, leading, rest)


@triton.jit
def _sigmoid_tail(a, table, SCALE: tl.constexpr, SCALE_LOW: tl.constexpr, KAPPA: tl.constexpr):
    """g(a) = e·(1 + e - κa)/(1 + e)², e = e^(-κa), κ = SCALE + SCALE_LOW."""
    k, high, low, q = power_of_two(a, a * 0.0, table, KAPPA)
    leading = tl.fma(a, -SCALE, 1.0)
    leading_low = tl.fma(a, -SCALE_LOW, tl.fma(a, -SCALE, -leading) + 1.0)
    return _logistic_tail(leading, leading_low, k, high, low, q)


@triton.jit
def _silu_tail(a, table):
    return _sigmoid_tail(a, table, 1.0, 0.0, _SILU_KAPPA)


@triton.jit
def _fast_gelu_tail(a, table):
    return _sigmoid_tail(a, table, _FAST_SCALE, _FAST_SCALE_LOW, _FAST_KAPPA)


@triton.jit
def _tanh_argument(a):
    """w(a) = 2·sqrt(2/π)·(a + 0.044715·a³) as w + w_low."""
    square = a * a
    square_low = tl.fma(a, a, -square)
    cubic = square * _K3
    cubic_low = tl.fma(square, _K3, -cubic)
    u = cubic + _K1
    back = u - cubic
    two_sum = (cubic - (u - back)) + (_K1 - back)
    u_low = (tl.fma(square_low, _K3, tl.fma(square, _K3_LOW, _K1_LOW)) + cubic_low) + two_sum
    w = a * u
    return w, tl.fma(a, u_low, tl.fma(a, u, -w))


@triton.jit
def _gelu_tanh_tail(a, table):
    """g(a) = e·(1 + e - a·w'(a))/(1 + e)² with e = e^(-w(a)); 1 - a·w' = 1 + 2·k1·a - 3·w."""
    w, w_low = _tanh_argument(a)
    k, high, low, q = power_of_two(w, w_low, table, _TANH_KAPPA)
    linear = a * _TWICE_K1
    linear_low = tl.fma(a, _TWICE_K1_LOW, tl.fma(a, _TWICE_K1, -linear))
    triple = w * 3.0
    triple_low = tl.fma(w_low, 3.0, tl.fma(w, 3.0, -triple))
    leading = linear - triple
    rest = (((linear - (leading + triple)) + linear_low) - triple_low) + 1.0
    return _logistic_tail(leading, rest, k, high, low, q)


@triton.jit
def silu_slope(x, dy, table):
    """dy·s·(1 + x·(1 - s))."""
    return gradient(x, dy, table, _SILU, _silu_tail, _SILU_END, False)


@triton.jit
def fast_gelu_slope(x, dy, table):
    """dy·((s - 1)·(-1.702·x) + 1)·s."""
    return gradient(x, dy, table, _FAST, _fast_gelu_tail, _FAST_END, False)


@triton.jit
def gelu_tanh_slope(x, dy, table):
    """dy·((1 + tanh u)/2 + x·(1 - tanh² u)·u'/2)."""
    return gradient(x, dy, table, _TANH, _gelu_tanh_tail, _TANH_END, True)


@triton.jit
def _alone(a):
    return a, a * 0.0


@triton.jit
def _logistic_value(x, table, ARGUMENT: tl.constexpr, KAPPA: tl.constexpr, END: tl.constexpr):
    """x/(1 + e) for x ≥ 0, x·e/(1 + e) for x < 0, e = e^(-κt) with t = ARGUMENT(abs(x)) in two parts."""
    a = tl.abs(x)
    bounded = tl.where(a < END, a, END)
    argument, argument_low = ARGUMENT(bounded)
    k, high, low, q = power_of_two(argument, argument_low, table, KAPPA)
    correction = tl.fma(high, q, low)
    e_high = high + correction
    e_low = (high - e_high) + correction
    e = small(k, e_high)
    whole = 1.0 + e
    rest = ((1.0 - whole) + e) + small(k, e_low)
    negative = x < 0.0
    numerator = tl.where(negative, -bounded * e_high, bounded)
    numerator_low = tl.where(negative, tl.fma(-bounded, e_high, -numerator) - bounded * e_low, 0.0)
    inverse = tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), whole)
    t = numerator * inverse
    t = tl.fma(tl.fma(-t, whole, numerator) + numerator_low - t * rest, inverse, t)
    t = tl.where(negative, scaled(t, k), t)
    # Far up the value is x itself, and at ±0; NaN for NaN and -inf.
    return tl.where((x >= END) | (x == 0.0), x, tl.fma(x, 0.0, t))


@triton.jit
def silu_value(x, dy, table):
    """dy·x / (1 + e^(-x))."""
    return dy * _logistic_value(x, table, _alone, _SILU_KAPPA, _SILU_END)


@triton.jit
def fast_gelu_value(x, dy, table):
    """dy·x / (1 + e^(-1.702·x))."""
    return dy * _logistic_value(x, table, _alone, _FAST_KAPPA, _FAST_END)


@triton.jit
def gelu_tanh_value(x, dy, table):
    """dy·x / (1 + e^(-w))."""
    return dy * _logistic_value(x, table, _tanh_argument, _TANH_KAPPA, _TANH_END)
