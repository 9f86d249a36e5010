"""The float32 derivatives and activations in Triton: the CPU's segments and exponentials, lane for lane.

``docs/numerics.md`` derives each step. Products and sums are fused exactly where ``tl.fma`` is written, so kernels are
launched with ``enable_fp_fusion=False``. ``table`` points to the formula's rows of sixteen float32, see ``rows``; they
stay in the L1 cache, where a warp's look-up in one row, half a cache line, costs one access.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu import coefficients
from aclnn.kernels.cpu.coefficients import Exponential, Row, Segments
from aclnn.kernels.cuda.launch import tl, triton

_ROUND = tl.constexpr(1.5 * 2.0**23)
_UNSCALE = tl.constexpr(2.0**-64)
_SHIFT = tl.constexpr(1.5 * 2.0**23 + (127 + 64) * 8)

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


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _lookup(table, ROW: tl.constexpr, i):
    return tl.load(table + ROW * _WIDTH + (i & (_WIDTH - 1)))


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
def _power_of_two(
    high, low, table, PER_UNIT: tl.constexpr, STEP: tl.constexpr, STEP_LOW: tl.constexpr,
    Q0: tl.constexpr, Q1: tl.constexpr, Q2: tl.constexpr, Q3: tl.constexpr,
):  # fmt: skip
    """(S, h, l, q): e^(-κt) = S·2^-64·(h + l)·(1 + q), for t given as high + low."""
    j = tl.fma(high, -PER_UNIT, _SHIFT)
    n = j - _SHIFT
    scale = ((_bits(j) << 20) & 0x7F800000).to(tl.float32, bitcast=True)
    r = tl.fma(n, STEP, high) + tl.fma(n, STEP_LOW, low)
    q = r * tl.fma(r, tl.fma(r, tl.fma(r, Q3, Q2), Q1), Q0)
    return scale, _lookup(table, _POWER, _bits(j)), _lookup(table, _POWER_LOW, _bits(j)), q


@triton.jit
def _tail_value(scale, high, low, q, leading, rest):
    """(high + low)·(1 + q)·(leading + rest)·scale·2^-64."""
    correction = tl.fma(q, leading + rest, rest)
    product = high * leading
    error = tl.fma(high, correction, tl.fma(low, leading, tl.fma(high, leading, -product)))
    return ((product + error) * scale) * _UNSCALE


@triton.jit
def _logistic_rest(e, leading, low):
    series = tl.fma(e, tl.fma(e, tl.fma(e, 5.0, -4.0), 3.0), -2.0)
    return tl.fma(e, tl.fma(leading + low + e, series, 1.0), low)


@triton.jit
def _mirrored(x, g):
    """f(x) from g(abs(x)): g itself for negative x, 1 - g for others."""
    return tl.where(_bits(x) < 0, g, 1.0 - g)


@triton.jit
def _any(mask):
    return tl.max(mask.to(tl.int32)) > 0


# --- SiLU and FastGELU ---------------------------------------------------------------------------------------------


@triton.jit
def _sigmoid_slope(
    x, table, PER_UNIT: tl.constexpr, BOUND: tl.constexpr, END: tl.constexpr,
    SCALE: tl.constexpr, SCALE_LOW: tl.constexpr,
    E_PER_UNIT: tl.constexpr, STEP: tl.constexpr, STEP_LOW: tl.constexpr,
    Q0: tl.constexpr, Q1: tl.constexpr, Q2: tl.constexpr, Q3: tl.constexpr,
):  # fmt: skip
    a = tl.abs(x)
    f = _mirrored(x, _main(a, table, PER_UNIT, 6))
    inside = a <= BOUND
    if _any(inside == 0):
        bounded = tl.where(a < END, a, END)
        s, high, low, q = _power_of_two(bounded, bounded * 0.0, table, E_PER_UNIT, STEP, STEP_LOW, Q0, Q1, Q2, Q3)
        e = (s * _UNSCALE) * tl.fma(high, q, high)
        leading = tl.fma(bounded, -SCALE, 1.0)
        leading_low = tl.fma(bounded, -SCALE_LOW, tl.fma(bounded, -SCALE, -leading) + 1.0)
        g = _tail_value(s, high, low, q, leading, _logistic_rest(e, leading, leading_low))
        f = tl.where(inside, f, tl.fma(x, 0.0, _mirrored(x, g)))
    return f


@triton.jit
def _logistic_value(x, a, high, low, scale, q, END: tl.constexpr):
    """x/(1 + e) for x ≥ 0, x·e/(1 + e) for x < 0; e = scale·2^-64·(high + low)·(1 + q) = e^(-u(a)), 0 from END on."""
    correction = tl.fma(high, q, low)
    e_high = high + correction
    e_low = (high - e_high) + correction
    power = scale * _UNSCALE
    e = power * e_high
    whole = 1.0 + e
    rest = ((1.0 - whole) + e) + power * e_low
    negative = x < 0.0
    bounded = tl.where(a < END, x, tl.where(negative, -END, END))
    numerator = tl.where(negative, bounded * e_high, bounded)
    numerator_low = tl.where(negative, tl.fma(bounded, e_high, -numerator) + bounded * e_low, 0.0)
    inverse = tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), whole)
    t = numerator * inverse
    t = tl.fma(tl.fma(-t, whole, numerator) + numerator_low - t * rest, inverse, t)
    t = tl.where(negative, (t * scale) * _UNSCALE, t)
    # Far up the value is x itself, and at ±0; NaN for NaN and -inf.
    return tl.where((x >= END) | (x == 0.0), x, tl.fma(x, 0.0, t))


_SILU_PER_UNIT, _SILU_BOUND = (tl.constexpr(v) for v in (coefficients.SILU.per_unit, coefficients.SILU.bound))
_SILU_END = tl.constexpr(131.0)
_ONE, _ZERO = tl.constexpr(1.0), tl.constexpr(0.0)
_S_PER_UNIT, _S_STEP, _S_STEP_LOW, _S_Q0, _S_Q1, _S_Q2, _S_Q3 = (
    tl.constexpr(v)
    for v in (
        coefficients.SILU_EXPONENTIAL.per_unit,
        coefficients.SILU_EXPONENTIAL.step,
        coefficients.SILU_EXPONENTIAL.step_low,
        *coefficients.SILU_EXPONENTIAL.q,
    )
)


@triton.jit
def silu_slope(x, table):
    """s·(1 + x·(1 - s))."""
    return _sigmoid_slope(
        x, table, _SILU_PER_UNIT, _SILU_BOUND, _SILU_END, _ONE, _ZERO,
        _S_PER_UNIT, _S_STEP, _S_STEP_LOW, _S_Q0, _S_Q1, _S_Q2, _S_Q3,
    )  # fmt: skip


@triton.jit
def silu_value(x, table):
    """x / (1 + e^(-x))."""
    a = tl.abs(x)
    bounded = tl.where(a < _SILU_END, a, _SILU_END)
    s, high, low, q = _power_of_two(
        bounded, bounded * 0.0, table, _S_PER_UNIT, _S_STEP, _S_STEP_LOW, _S_Q0, _S_Q1, _S_Q2, _S_Q3
    )
    return _logistic_value(x, a, high, low, s, q, _SILU_END)


_FAST_PER_UNIT, _FAST_BOUND = (tl.constexpr(v) for v in (coefficients.FAST_GELU.per_unit, coefficients.FAST_GELU.bound))
_FAST_END = tl.constexpr(77.0)
_FAST_SCALE, _FAST_SCALE_LOW = (
    tl.constexpr(v) for v in (coefficients.FAST_GELU_SCALE, coefficients.FAST_GELU_SCALE_LOW)
)
_F_PER_UNIT, _F_STEP, _F_STEP_LOW, _F_Q0, _F_Q1, _F_Q2, _F_Q3 = (
    tl.constexpr(v)
    for v in (
        coefficients.FAST_GELU_EXPONENTIAL.per_unit,
        coefficients.FAST_GELU_EXPONENTIAL.step,
        coefficients.FAST_GELU_EXPONENTIAL.step_low,
        *coefficients.FAST_GELU_EXPONENTIAL.q,
    )
)


@triton.jit
def fast_gelu_slope(x, table):
    """((s - 1)·(-1.702·x) + 1)·s."""
    return _sigmoid_slope(
        x, table, _FAST_PER_UNIT, _FAST_BOUND, _FAST_END, _FAST_SCALE, _FAST_SCALE_LOW,
        _F_PER_UNIT, _F_STEP, _F_STEP_LOW, _F_Q0, _F_Q1, _F_Q2, _F_Q3,
    )  # fmt: skip


@triton.jit
def fast_gelu_value(x, table):
    """x / (1 + e^(-1.702·x))."""
    a = tl.abs(x)
    bounded = tl.where(a < _FAST_END, a, _FAST_END)
    s, high, low, q = _power_of_two(
        bounded, bounded * 0.0, table, _F_PER_UNIT, _F_STEP, _F_STEP_LOW, _F_Q0, _F_Q1, _F_Q2, _F_Q3
    )
    return _logistic_value(x, a, high, low, s, q, _FAST_END)


# --- GELU, exact ----------------------------------------------------------------------------------------------------

_ERF_PER_UNIT, _ERF_BOUND = (tl.constexpr(v) for v in (coefficients.GELU_ERF.per_unit, coefficients.GELU_ERF.bound))
_ERF_END = tl.constexpr(15.0)
_V0, _V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8 = (tl.constexpr(v) for v in coefficients.GELU_ERF_MILLS)
_E_PER_UNIT, _E_STEP, _E_STEP_LOW, _E_Q0, _E_Q1, _E_Q2, _E_Q3 = (
    tl.constexpr(v)
    for v in (
        coefficients.GELU_ERF_EXPONENTIAL.per_unit,
        coefficients.GELU_ERF_EXPONENTIAL.step,
        coefficients.GELU_ERF_EXPONENTIAL.step_low,
        *coefficients.GELU_ERF_EXPONENTIAL.q,
    )
)


@triton.jit
def gelu_erf_slope(x, table):
    """Phi(x) + x·phi(x)."""
    a = tl.abs(x)
    f = _mirrored(x, _main(a, table, _ERF_PER_UNIT, 7))
    inside = a <= _ERF_BOUND
    if _any(inside == 0):
        bounded = tl.where(a < _ERF_END, a, _ERF_END)
        square = bounded * bounded
        square_low = tl.fma(bounded, bounded, -square)
        s, high, low, q = _power_of_two(
            square, square_low, table, _E_PER_UNIT, _E_STEP, _E_STEP_LOW, _E_Q0, _E_Q1, _E_Q2, _E_Q3
        )
        y = tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), bounded)
        z = y * y
        series = tl.fma(z, tl.fma(z, tl.fma(z, tl.fma(z, _V8, _V7), _V6), _V5), _V4)
        series = tl.fma(z, tl.fma(z, tl.fma(z, tl.fma(z, series, _V3), _V2), _V1), _V0)
        g = _tail_value(s, high, low, q, -bounded, tl.fma(y * z, series, y))
        f = tl.where(inside, f, tl.fma(x, 0.0, _mirrored(x, g)))
    return f


@triton.jit
def gelu_erf_value(x, table):
    """x·Phi(x), in float64: near 0 by erf, in the tail by φ(a)·M(a) with the Mills ratio M."""
    a = tl.abs(x)
    wide = x.to(tl.float64)
    erf = tl.math.erf(wide * 0.7071067811865476)
    f = (0.5 * wide * (1.0 + erf)).to(tl.float32)
    far = (x < 0.0) & (a > _ERF_BOUND)
    if _any(far):
        bounded = tl.where(a < _ERF_END, a, _ERF_END)
        square = bounded * bounded
        square_low = tl.fma(bounded, bounded, -square)
        s, high, low, q = _power_of_two(
            square, square_low, table, _E_PER_UNIT, _E_STEP, _E_STEP_LOW, _E_Q0, _E_Q1, _E_Q2, _E_Q3
        )
        y = tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), bounded)
        z = y * y
        series = tl.fma(z, tl.fma(z, tl.fma(z, tl.fma(z, _V8, _V7), _V6), _V5), _V4)
        series = tl.fma(z, tl.fma(z, tl.fma(z, tl.fma(z, series, _V3), _V2), _V1), _V0)
        # x·φ(a)·(1/a + …) = -φ(a)·(1 + z·series).
        g = _tail_value(s, high, low, q, tl.full(x.shape, -1.0, tl.float32), -(z * series))
        f = tl.where(far, tl.fma(x, 0.0, g), f)
    return f


# --- GELU, by tanh --------------------------------------------------------------------------------------------------

_TANH_PER_UNIT, _TANH_BOUND = (tl.constexpr(v) for v in (coefficients.GELU_TANH.per_unit, coefficients.GELU_TANH.bound))
_TANH_END = tl.constexpr(11.0)
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
def gelu_tanh_slope(x, table):
    """(1 + tanh u)/2 + x·(1 - tanh² u)·u'/2."""
    a = tl.abs(x)
    f = _mirrored(x, _main(a, table, _TANH_PER_UNIT, 7))
    inside = a <= _TANH_BOUND
    if _any(inside == 0):
        bounded = tl.where(a < _TANH_END, a, _TANH_END)
        w, w_low = _tanh_argument(bounded)
        s, high, low, q = _power_of_two(w, w_low, table, _S_PER_UNIT, _S_STEP, _S_STEP_LOW, _S_Q0, _S_Q1, _S_Q2, _S_Q3)
        e = (s * _UNSCALE) * tl.fma(high, q, high)
        linear = bounded * _TWICE_K1
        linear_low = tl.fma(bounded, _TWICE_K1_LOW, tl.fma(bounded, _TWICE_K1, -linear))
        triple = w * 3.0
        triple_low = tl.fma(w_low, 3.0, tl.fma(w, 3.0, -triple))
        leading = linear - triple
        rest = (((linear - (leading + triple)) + linear_low) - triple_low) + 1.0
        g = _tail_value(s, high, low, q, leading, _logistic_rest(e, leading, rest))
        f = tl.where(inside, f, tl.where(x == x, _mirrored(x, g), x))
    return f


@triton.jit
def gelu_tanh_value(x, table):
    """x / (1 + e^(-w))."""
    a = tl.abs(x)
    bounded = tl.where(a < _TANH_END, a, _TANH_END)
    w, w_low = _tanh_argument(bounded)
    s, high, low, q = _power_of_two(w, w_low, table, _S_PER_UNIT, _S_STEP, _S_STEP_LOW, _S_Q0, _S_Q1, _S_Q2, _S_Q3)
    return _logistic_value(x, a, high, low, s, q, _TANH_END)


# --- Hardswish ------------------------------------------------------------------------------------------------------


@triton.jit
def hardswish_slope(x, table):
    """0 below -3, 1 above 3, (x + 1.5)/3 in between; NaN for NaN."""
    numerator = x + 1.5
    lost = x - (numerator - 1.5)
    quotient = numerator * _THIRD
    remainder = tl.fma(quotient, -3.0, numerator) + lost
    return tl.where(x < -3.0, 0.0, tl.where(x > 3.0, 1.0, tl.fma(remainder, _THIRD, quotient)))


@triton.jit
def hardswish_value(x, table):
    """0 up to -3, x from 3 on, x·(x + 3)/6 in between; NaN for NaN."""
    shifted = x + 3.0
    lost = (x - shifted) + 3.0
    product = tl.math.div_rn(x * shifted, tl.full(x.shape, 6.0, tl.float32))
    error = tl.fma(x, shifted, -(x * shifted)) + x * lost
    middle = tl.fma(error, _SIXTH, product)
    return tl.where(x <= -3.0, 0.0, tl.where((x >= 3.0) | (x == 0.0), x, middle))


_THIRD, _SIXTH = tl.constexpr(float.fromhex("0x1.555556p-2")), tl.constexpr(float.fromhex("0x1.555556p-3"))


@triton.jit
def same(x, table):
    """X itself."""
    return x


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
