"""What slopes and values are made of: polynomials by segments, and exponentials in two parts for the tails."""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.elementwise import coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Exponential, Segments
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.tables import Table, Tables, horner, lookup
from aclnn.kernels.cpu.vector import any_lane, bits, fma, from_bits, in_one_register, select

ROUND = 1.5 * 2.0**23
"""Added to a small float32 it leaves the nearest integer in the low bits."""

_OFFSET = 512
"""Added to exponents, which go down to -290, to shift them as natural numbers."""

LOWEST = -250
"""Powers of two below this make zero of every product that occurs; down to it, halves of them are normal numbers."""

LARGEST = (2.0 - 2.0**-23) * 2.0**127


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


def by_segments_of(segments: Segments) -> Any:
    """g(a) for 0 ≤ a ≤ bound. Where a look-up has eight entries, lanes beyond the eighth segment take a second turn."""
    count = len(segments.centre)
    near, whole = _polynomials(segments, 0, 8), _polynomials(segments, 0, count)
    far = _polynomials(segments, count - 8, count)
    per_unit, twice = segments.per_unit, count == 16

    @register_jitable(forceinline=True)
    def by_segments(a: Any) -> Any:
        i = bits(fma(a, per_unit, ROUND))
        if in_one_register():
            return whole(a, i)
        g = near(a, i)
        if twice:
            beyond = (i & 8) != 0
            if any_lane(beyond):
                g = select(beyond, far(a, i), g)
        return g

    return by_segments


def power_of_two_of(kappa: Exponential) -> Any:
    """A function of t giving (k, h, l, q): e^(-κt) = 2^k·(h + l)·(1 + q), for t given as high + low."""
    per_unit, step, step_low = -kappa.per_unit, kappa.step, kappa.step_low
    power, power_low = Table(*kappa.power), Table(*kappa.power_low)
    q0, q1, q2, q3 = kappa.q
    shift = ROUND + _OFFSET * 8

    @register_jitable
    def power_of_two(high: Any, low: Any) -> Any:
        j = fma(high, per_unit, shift)
        n = j - shift
        k = ((bits(j) & 0x3FFFFF) >> 3) - _OFFSET
        r = fma(n, step, high) + fma(n, step_low, low)
        q = r * fma(r, fma(r, fma(r, q3, q2), q1), q0)
        return k, lookup(power, bits(j)), lookup(power_low, bits(j)), q

    return power_of_two


def tanh_exponent() -> Any:
    """A function of a giving w(a) = k1·a + k3·a³ of GELU by tanh as high + low."""
    k1, k1_low = coefficients.GELU_TANH_K1, coefficients.GELU_TANH_K1_LOW
    k3, k3_low = coefficients.GELU_TANH_K3, coefficients.GELU_TANH_K3_LOW

    @register_jitable
    def exponent(a: Any) -> Any:
        square = a * a
        square_low = fma(a, a, -square)
        # u + u_low = k1 + k3·a², the larger sum by an exact two-sum.
        cubic = square * k3
        cubic_low = fma(square, k3, -cubic)
        u = cubic + k1
        back = u - cubic
        two_sum = (cubic - (u - back)) + (k1 - back)
        u_low = (fma(square_low, k3, fma(square, k3_low, k1_low)) + cubic_low) + two_sum
        w = a * u
        return w, fma(a, u_low, fma(a, u, -w))

    return exponent


@register_jitable
def small(k: Any, mantissa: Any) -> Any:
    """2^k·mantissa where a number below 2^-126 may be anything small."""
    return mantissa * from_bits((select(k < -126, -126, k) + 127) << 23)


@register_jitable
def tail_value(high: Any, low: Any, q: Any, leading: Any, rest: Any) -> Any:
    """(high + low)·(1 + q)·(leading + rest); only the last sum rounds."""
    correction = fma(q, leading + rest, rest)
    product = high * leading
    return product + fma(high, correction, fma(low, leading, fma(high, leading, -product)))


@register_jitable
def scaled(value: Any, k: Any) -> Any:
    """value·2^k, k not below LOWEST, rounded at most once where the result is normal."""
    half = ((k + _OFFSET) >> 1) - _OFFSET // 2
    return (value * from_bits((half + 127) << 23)) * from_bits((k - half + 127) << 23)
