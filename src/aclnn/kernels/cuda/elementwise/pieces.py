"""What derivatives and activations in Triton are made of: the CPU's segments and exponentials, lane for lane.

``docs/numerics.md`` derives each step. Products and sums are fused exactly where ``tl.fma`` is written,
so kernels are launched with ``enable_fp_fusion=False``. ``table`` points to the formula's rows of sixteen float32, see
``rows``; they stay in the L1 cache, where a warp's look-up in one row, half a cache line, costs one access.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cuda.elementwise.coefficients import Exponential
from aclnn.kernels.cuda.launch import entry_at, tl, triton
from aclnn.kernels.fitted import Row, Segments

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


def segments_of(segments: Segments) -> Any:
    """Segments per unit, their bound, and the number of the last coefficient."""
    return tl.constexpr((segments.per_unit, segments.bound, len(segments.p) - 1))


def exponential_of(kappa: Exponential) -> Any:
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
def power_of_two(high, low, table, KAPPA: tl.constexpr):
    """(k, h, l, q): e^(-κt) = 2^k·(h + l)·(1 + q), for t given as high + low. KAPPA is an ``exponential_of``."""
    j = tl.fma(high, -KAPPA[0], _SHIFT)
    n = j - _SHIFT
    k = ((_bits(j) & 0x3FFFFF) >> 3) - _OFFSET
    r = tl.fma(n, KAPPA[1], high) + tl.fma(n, KAPPA[2], low)
    q = r * tl.fma(r, tl.fma(r, tl.fma(r, KAPPA[6], KAPPA[5]), KAPPA[4]), KAPPA[3])
    return k, _lookup(table, _POWER, _bits(j)), _lookup(table, _POWER_LOW, _bits(j)), q


@triton.jit
def small(k, mantissa):
    """2^k·mantissa where a number below 2^-126 may be anything small."""
    return mantissa * _from_bits((tl.maximum(k, -126) + 127) << 23)


@triton.jit
def tail_value(high, low, q, leading, rest):
    """(high + low)·(1 + q)·(leading + rest); only the last sum rounds."""
    correction = tl.fma(q, leading + rest, rest)
    product = high * leading
    return product + tl.fma(high, correction, tl.fma(low, leading, tl.fma(high, leading, -product)))


@triton.jit
def scaled(value, k):
    """value·2^k, rounded at most once where the result is normal; below _LOWEST nothing is left of any product."""
    bounded = tl.maximum(k, _LOWEST)
    half = ((bounded + _OFFSET) >> 1) - _OFFSET // 2
    return (value * _from_bits((half + 127) << 23)) * _from_bits((bounded - half + 127) << 23)


@triton.jit
def _mirrored(x, g):
    """f(x) from g(abs(x)): g itself for negative x, 1 - g for others."""
    return tl.where(_bits(x) < 0, g, 1.0 - g)


@triton.jit
def any_lane(mask):
    """Whether it is set anywhere in a program's elements."""
    return tl.max(mask.to(tl.int32)) > 0


@triton.jit
def _far_tail_gradient(x, dy, k, value):
    """dy·f(x) where 2^k·value may be below the normal numbers: for negative x the product with dy comes first.

    An infinite dy is multiplied with the rounded slope.
    """
    size = tl.abs(dy)
    large = size >= 1.0
    product = scaled(value * tl.where(large, dy * _DOWN, dy), tl.where(large, k + 64, k))
    first = (_bits(x) < 0) & (size <= LARGEST)
    return tl.where(first, product, dy * _mirrored(x, scaled(value, k)))


@triton.jit
def _tail_gradient(x, dy, k, value):
    """dy·f(x) from g = value·2^k, the size of value being 2^-20 … 2^20."""
    product = dy * _mirrored(x, small(k, value))
    far = k < -106
    if any_lane(far):
        product = tl.where(far, _far_tail_gradient(x, dy, k, value), product)
    return product


@triton.jit
def gradient(x, dy, table, SEGMENTS: tl.constexpr, TAIL: tl.constexpr, END: tl.constexpr, LIMITS: tl.constexpr):
    """dy·f(x): by segments up to their bound, beyond it from g = value·2^k with (k, value) = TAIL(a, table).

    From END on nothing is left of dy·g. At infinity f has its limits where LIMITS is true, else it is NaN.
    """
    a = tl.abs(x)
    product = dy * _mirrored(x, _main(a, table, SEGMENTS[0], SEGMENTS[2]))
    inside = a <= SEGMENTS[1]
    if any_lane(inside == 0):
        k, value = TAIL(tl.where(a < END, a, END), table)
        defined = (x == x) if LIMITS else (a <= LARGEST)
        product = tl.where(inside, product, tl.where(defined, _tail_gradient(x, dy, k, value), x - x))
    return product


@triton.jit
def same(x, dy, table):
    """dy·x."""
    return dy * x
