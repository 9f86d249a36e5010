"""The float32 derivatives and activations in Triton: the CPU's segments and exponentials, lane for lane.

Each is a function of x and dy that gives dy·f(x), because far out f(x) alone may be too small for a float32 where the
product is not. ``docs/numerics.md`` derives each step. Products and sums are fused exactly where ``tl.fma`` is written,
so kernels are launched with ``enable_fp_fusion=False``. ``table`` points to the formula's rows of sixteen float32, see
``rows``; they stay in the L1 cache, where a warp's look-up in one row, half a cache line, costs one access.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.elementwise import coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Exponential, Row, Segments
from aclnn.kernels.cuda.launch import entry_at, tl, triton

_ROUND = tl.constexpr(1.5 * 2.0**23)
_OFFSET = tl.constexpr(512)
_SHIFT = tl.constexpr(1.5 * 2.0**23 + 512 * 8)
_DOWN = tl.constexpr(2.0**-64)
_LOWEST = tl.constexpr(-250)
LARGEST = tl.constexpr((2.0 - 2.0**-23) * 2.0**127)

# Rows of a table. Every slope's polynomials have seven or eight coefficients; the unused row is zero.
_CENTRE, _C0, _P0, _POWER, _POWER_LOW = (tl.constexpr(row) for row in (0, 1, 2, 10, 11))
_DEGREES = 8
_WIDTH = tl.constexpr(16)


def rows(segments: Segments, exponential: Exponential) -> list[Row]:
    """The rows of a slope's table: centre, c0, p0 … p7, then the powers of two and what they lack.

    Those of eight entries stand twice side by side.
    """
    padding = [(0.0,) * 8] * (_DEGREES - len(segments.p))
    given = [segments.centre, segments.c0, *segments.p, *padding, exponential.power, exponential.power_low]
    return [row * (_WIDTH.value // len(row)) for row in given]


def _segments(segments: Segments) -> Any:
    """Segments per unit, their bound, and the number of the last coefficient."""
    return tl.constexpr((segments.per_unit, segments.bound, len(segments.p) - 1))


def _exponential(kappa: Exponential) -> Any:
    """Steps per unit, the step in two parts, and q0 … q3."""
    return tl.constexpr((kappa.per_unit, kappa.step, kappa.step_low, *kappa.q))


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _from_bits(x):
    return x.to(tl.float32, bitcast=True)


@triton.jit
def _lookup(table, ROW: tl.constexpr, i):
    return entry_at(table + ROW * _WIDTH + (i & (_WIDTH - 1)))


@triton.jit
def _main(a, table, PER_UNIT: tl.constexpr, LAST: tl.constexpr):
    """g(a) by segments, for 0 ≤ a ≤ bound."""
    i = _bits(tl.fma(a, PER_UNIT, _ROUND))
    r = a - _lookup(table, _CENTRE, i)
    upper = _lookup(table, _P0 + LAST, i)
    for k in tl.static_range(LAST - 1):
        upper = tl.fma(upper, r, _lookup(table, _P0 + LAST - 1 - k, i))
    p0 = _lookup(table, _P0, i)
    p = tl.fma(upper, r, p0)
    lost = tl.fma(upper, r, p0 - p)
    return tl.fma(r, p, tl.fma(r, lost, _lookup(table, _C0, i)))


@triton.jit
def _power_of_two(high, low, table, KAPPA: tl.constexpr):
    """(k, h, l, q): e^(-κt) = 2^k·(h + l)·(1 + q), for t given as high + low. KAPPA is an ``_exponential``."""
    j = tl.fma(high, -KAPPA[0], _SHIFT)
    n = j - _SHIFT
    k = ((_bits(j) & 0x3FFFFF) >> 3) - _OFFSET
    r = tl.fma(n, KAPPA[1], high) + tl.fma(n, KAPPA[2], low)
    q = r * tl.fma(r, tl.fma(r, tl.fma(r, KAPPA[6], KAPPA[5]), KAPPA[4]), KAPPA[3])
    return k, _lookup(table, _POWER, _bits(j)), _lookup(table, _POWER_LOW, _bits(j)), q


@triton.jit
def _small(k, mantissa):
    """2^k·mantissa where a number below 2^-126 may be anything small."""
    return mantissa * _from_bits((tl.maximum(k, -126) + 127) << 23)


@triton.jit
def _tail_value(high, low, q, leading, rest):
    """(high + low)·(1 + q)·(leading + rest); only the last sum rounds."""
    correction = tl.fma(q, leading + rest, rest)
    product = high * leading
    return product + tl.fma(high, correction, tl.fma(low, leading, tl.fma(high, leading, -product)))


@triton.jit
def _scaled(value, k):
    """value·2^k, rounded at most once where the result is normal; below _LOWEST nothing is left of any product."""
    bounded = tl.maximum(k, _LOWEST)
    half = ((bounded + _OFFSET) >> 1) - _OFFSET // 2
    return (value * _from_bits((half + 127) << 23)) * _from_bits((bounded - half + 127) << 23)


@triton.jit
def _mirrored(x, g):
    """f(x) from g(abs(x)): g itself for negative x, 1 - g for others."""
    return tl.where(_bits(x) < 0, g, 1.0 - g)


@triton.jit
def _any(mask):
    return tl.max(mask.to(tl.int32)) > 0


@triton.jit
def _far_tail_gradient(x, dy, k, value):
    """dy·f(x) where 2^k·value may be below the normal numbers: for negative x the product with dy comes first.

    An infinite dy is multiplied with the rounded slope.
    """
    size = tl.abs(dy)
    large = size >= 1.0
    product = _scaled(value * tl.where(large, dy * _DOWN, dy), tl.where(large, k + 64, k))
    first = (_bits(x) < 0) & (size <= LARGEST)
    return tl.where(first, product, dy * _mirrored(x, _scaled(value, k)))


@triton.jit
def _tail_gradient(x, dy, k, value):
    """dy·f(x) from g = value·2^k, the size of value being 2^-20 … 2^20."""
    product = dy * _mirrored(x, _small(k, value))
    far = k < -106
    if _any(far):
        product = tl.where(far, _far_tail_gradient(x, dy, k, value), product)
    return product


@triton.jit
def _gradient(x, dy, table, SEGMENTS: tl.constexpr, TAIL: tl.constexpr, END: tl.constexpr, LIMITS: tl.constexpr):
    """dy·f(x): by segments up to their bound, beyond it from g = value·2^k with (k, value) = TAIL(a, table).

    From END on nothing is left of dy·g. At infinity f has its limits where LIMITS is true, else it is NaN.
    """
    a = tl.abs(x)
    product = dy * _mirrored(x, _main(a, table, SEGMENTS[0], SEGMENTS[2]))
    inside = a <= SEGMENTS[1]
    if _any(inside == 0):
        k, value = TAIL(tl.where(a < END, a, END), table)
        defined = (x == x) if LIMITS else (a <= LARGEST)
        product = tl.where(inside, product, tl.where(defined, _tail_gradient(x, dy, k, value), x - x))
    return product


# --- with the logistic function -------------------------------------------------------------------------------------

_SILU, _SILU_KAPPA = _segments(coefficients.SILU), _exponential(coefficients.SILU_EXPONENTIAL)
_SILU_END = tl.constexpr(200.0)
_FAST, _FAST_KAPPA = _segments(coefficients.FAST_GELU), _exponential(coefficients.FAST_GELU_EXPONENTIAL)
_FAST_END = tl.constexpr(118.0)
_FAST_SCALE = tl.constexpr(coefficients.FAST_GELU_SCALE)
_FAST_SCALE_LOW = tl.constexpr(coefficients.FAST_GELU_SCALE_LOW)
_TANH, _TANH_KAPPA = _segments(coefficients.GELU_TANH), _exponential(coefficients.GELU_TANH_EXPONENTIAL)
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
    e = _small(k, tl.fma(high, q, high))
    series = tl.fma(e, tl.fma(e, tl.fma(e, 5.0, -4.0), 3.0), -2.0)
    rest = tl.fma(e, tl.fma(leading + leading_low + e, series, 1.0), leading_low)
    return k, _tail_value(high, low, q, leading, rest)


@triton.jit
def _sigmoid_tail(a, table, SCALE: tl.constexpr, SCALE_LOW: tl.constexpr, KAPPA: tl.constexpr):
    """g(a) = e·(1 + e - κa)/(1 + e)², e = e^(-κa), κ = SCALE + SCALE_LOW."""
    k, high, low, q = _power_of_two(a, a * 0.0, table, KAPPA)
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
    k, high, low, q = _power_of_two(w, w_low, table, _TANH_KAPPA)
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
    return _gradient(x, dy, table, _SILU, _silu_tail, _SILU_END, False)


@triton.jit
def fast_gelu_slope(x, dy, table):
    """dy·((s - 1)·(-1.702·x) + 1)·s."""
    return _gradient(x, dy, table, _FAST, _fast_gelu_tail, _FAST_END, False)


@triton.jit
def gelu_tanh_slope(x, dy, table):
    """dy·((1 + tanh u)/2 + x·(1 - tanh² u)·u'/2)."""
    return _gradient(x, dy, table, _TANH, _gelu_tanh_tail, _TANH_END, True)


@triton.jit
def _alone(a):
    return a, a * 0.0


@triton.jit
def _logistic_value(x, table, ARGUMENT: tl.constexpr, KAPPA: tl.constexpr, END: tl.constexpr):
    """x/(1 + e) for x ≥ 0, x·e/(1 + e) for x < 0, e = e^(-κt) with t = ARGUMENT(abs(x)) in two parts."""
    a = tl.abs(x)
    bounded = tl.where(a < END, a, END)
    argument, argument_low = ARGUMENT(bounded)
    k, high, low, q = _power_of_two(argument, argument_low, table, KAPPA)
    correction = tl.fma(high, q, low)
    e_high = high + correction
    e_low = (high - e_high) + correction
    e = _small(k, e_high)
    whole = 1.0 + e
    rest = ((1.0 - whole) + e) + _small(k, e_low)
    negative = x < 0.0
    numerator = tl.where(negative, -bounded * e_high, bounded)
    numerator_low = tl.where(negative, tl.fma(-bounded, e_high, -numerator) - bounded * e_low, 0.0)
    inverse = tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), whole)
    t = numerator * inverse
    t = tl.fma(tl.fma(-t, whole, numerator) + numerator_low - t * rest, inverse, t)
    t = tl.where(negative, _scaled(t, k), t)
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


# --- GELU, exact ----------------------------------------------------------------------------------------------------

_ERF, _ERF_KAPPA = _segments(coefficients.GELU_ERF), _exponential(coefficients.GELU_ERF_EXPONENTIAL)
_ERF_BOUND = tl.constexpr(coefficients.GELU_ERF.bound)
_ERF_END = tl.constexpr(20.0)
_V = tl.constexpr(coefficients.GELU_ERF_MILLS)


@triton.jit
def _normal_density(a, table):
    """φ(a) = 2^k·(h + l)·(1 + q)."""
    square = a * a
    return _power_of_two(square, tl.fma(a, a, -square), table, _ERF_KAPPA)


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
    return k, _tail_value(high, low, q, -a, tl.fma(y * z, series, y))


@triton.jit
def gelu_erf_slope(x, dy, table):
    """dy·(Phi(x) + x·phi(x))."""
    return _gradient(x, dy, table, _ERF, _gelu_erf_tail, _ERF_END, False)


@triton.jit
def gelu_erf_value(x, dy, table):
    """dy·x·Phi(x), in float64: near 0 by erf, in the tail by -φ(a)·a·M(a) with the Mills ratio M."""
    a = tl.abs(x)
    wide = x.to(tl.float64)
    erf = tl.math.erf(wide * 0.7071067811865476)
    f = (0.5 * wide * (1.0 + erf)).to(tl.float32)
    far = (x < 0.0) & (a > _ERF_BOUND)
    if _any(far):
        bounded = tl.where(a < _ERF_END, a, _ERF_END)
        k, high, low, q = _normal_density(bounded, table)
        _, z, series = _mills(bounded)
        g = _scaled(_tail_value(high, low, q, -1.0, -(z * series)), k)
        f = tl.where(far, tl.fma(x, 0.0, g), f)
    return dy * f


# --- Hardswish ------------------------------------------------------------------------------------------------------


@triton.jit
def hardswish_slope(x, dy, table):
    """dy·f: f is 0 below -3, 1 above 3, (x + 1.5)/3 in between; NaN for NaN."""
    numerator = x + 1.5
    lost = x - (numerator - 1.5)
    quotient = numerator * _THIRD
    remainder = tl.fma(quotient, -3.0, numerator) + lost
    return dy * tl.where(x < -3.0, 0.0, tl.where(x > 3.0, 1.0, tl.fma(remainder, _THIRD, quotient)))


@triton.jit
def hardswish_value(x, dy, table):
    """dy·f: f is 0 up to -3, x from 3 on, x·(x + 3)/6 in between; NaN for NaN."""
    shifted = x + 3.0
    lost = (x - shifted) + 3.0
    product = tl.math.div_rn(x * shifted, tl.full(x.shape, 6.0, tl.float32))
    # The excess, not what is missing: where both are 0 the sum keeps the product's sign.
    excess = tl.fma(-x, shifted, x * shifted) - x * lost
    middle = tl.fma(excess, -_SIXTH, product)
    return dy * tl.where(x <= -3.0, 0.0, tl.where((x >= 3.0) | (x == 0.0), x, middle))


_THIRD, _SIXTH = tl.constexpr(float.fromhex("0x1.555556p-2")), tl.constexpr(float.fromhex("0x1.555556p-3"))


@triton.jit
def same(x, dy, table):
    """dy·x."""
    return dy * x


#: Each formula's function and the rows of its table, by the formula's name.
FORMULAS: dict[str, tuple[Any, list[Row]]] = {
    "silu_slope": (silu_slope, rows(coefficients.SILU, coefficients.SILU_EXPONENTIAL)),
    "fast_gelu_slope": (fast_gelu_slope, rows(coefficients.FAST_GELU, coefficients.FAST_GELU_EXPONENTIAL)),
    "gelu_erf_slope": (gelu_erf_slope, rows(coefficients.GELU_ERF, coefficients.GELU_ERF_EXPONENTIAL)),
    "gelu_tanh_slope": (gelu_tanh_slope, rows(coefficients.GELU_TANH, coefficients.GELU_TANH_EXPONENTIAL)),
    "hardswish_slope": (hardswish_slope, [(0.0,) * 8]),
    "silu_value": (silu_value, rows(coefficients.SILU, coefficients.SILU_EXPONENTIAL)),
    "fast_gelu_value": (fast_gelu_value, rows(coefficients.FAST_GELU, coefficients.FAST_GELU_EXPONENTIAL)),
    "gelu_erf_value": (gelu_erf_value, rows(coefficients.GELU_ERF, coefficients.GELU_ERF_EXPONENTIAL)),
    "gelu_tanh_value": (gelu_tanh_value, rows(coefficients.GELU_TANH, coefficients.GELU_TANH_EXPONENTIAL)),
    "hardswish_value": (hardswish_value, [(0.0,) * 8]),
    "_same": (same, [(0.0,) * 8]),
}
