"""Double-float64 arithmetic (hi + lo) with error bounds.

Every operation returns (hi, lo, lost) with |exact - (hi + lo)| <= lost. ``lost`` is zero if the operation was exact, as
are sums and products of a few short numbers, so that ties are recognised. Error-free transformations after Dekker
(1971) and Knuth; they require round-to-nearest and magnitudes below 2^970.
"""

from __future__ import annotations

import math

import numpy as np

from aclnn.verify.compiled import compiled

_SPLITTER = 134217729.0  # 2^27 + 1


@compiled
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return (s, e) with a + b = s + e exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@compiled
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return (p, e) with a·b = p + e exactly, barring underflow."""
    p = a * b
    c = _SPLITTER * a
    a_high = c - (c - a)
    a_low = a - a_high
    d = _SPLITTER * b
    b_high = d - (d - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled
def add(a_hi: float, a_lo: float, b_hi: float, b_lo: float) -> tuple[float, float, float]:
    """Return (a_hi + a_lo) + (b_hi + b_lo)."""
    s, e = two_sum(a_hi, b_hi)
    low, dropped = two_sum(a_lo, b_lo)
    low, dropped_too = two_sum(e, low)
    hi, lo = two_sum(s, low)
    return hi, lo, abs(dropped) + abs(dropped_too)


@compiled
def scale(a_hi: float, a_lo: float, b: float) -> tuple[float, float, float]:
    """Return (a_hi + a_lo)·b."""
    p, e = two_product(a_hi, b)
    q, dropped = two_product(a_lo, b)
    low, dropped_too = two_sum(e, q)
    hi, lo = two_sum(p, low)
    return hi, lo, abs(dropped) + abs(dropped_too)


@compiled
def multiply(a_hi: float, a_lo: float, b_hi: float, b_lo: float) -> tuple[float, float, float]:
    """Return (a_hi + a_lo)·(b_hi + b_lo)."""
    hi, lo, lost = scale(a_hi, a_lo, b_hi)
    more_hi, more_lo, more_lost = scale(a_hi, a_lo, b_lo)
    hi, lo, last = add(hi, lo, more_hi, more_lo)
    return hi, lo, lost + more_lost + last


@compiled
def divide(a_hi: float, a_lo: float, n: float) -> tuple[float, float, float]:
    """Return (a_hi + a_lo) / n for a positive integer n below 2^53."""
    q = a_hi / n
    p, e = two_product(q, n)
    rest, rest_lo = two_sum(a_hi, -p)  # rest_lo is 0: q·n is close to a_hi
    remainder, dropped = two_sum(rest, (a_lo - e) + rest_lo)
    q_lo = remainder / n
    p_lo, e_lo = two_product(q_lo, n)
    left = abs(remainder - p_lo) + abs(e_lo) + abs(dropped)
    hi, lo = two_sum(q, q_lo)
    inexact_low = 0.0 if a_lo == 0.0 or e == 0.0 else abs(a_lo - e) * 2.0**-53
    return hi, lo, (left + inexact_low) / n * (1.0 + 2.0**-40)


@compiled
def odd(hi: float, lo: float) -> float:
    """Round hi + lo to float64, to odd if inexact, so that rounding it again is harmless."""
    s, e = two_sum(hi, lo)
    if e == 0.0 or not math.isfinite(s):
        return s
    bits = np.float64(s).view(np.int64)
    if bits & 1:
        return s
    grows = (e > 0.0) == (s > 0.0)
    return float(np.int64(bits + (1 if grows else -1)).view(np.float64))


@compiled
def ends(hi: float, lo: float, lost: float) -> tuple[float, float]:
    """Return two float64 that round to any format of at most 51 bits as the ends of hi + lo ± lost do."""
    if lost == 0.0:
        both = odd(hi, lo)
        return both, both
    reach = lost * (1.0 + 2.0**-20) + abs(lo) * 2.0**-51
    return odd(hi, lo - reach), odd(hi, lo + reach)
