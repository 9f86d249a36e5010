"""Functions of ``aclnn.formula`` on float64 lanes, accurate to a few ULP.

Every result has the same bits on every processor: fused operations are explicit, and no approximate instructions are
used. The polynomials are fitted by ``tools.fit_words``.
"""

from __future__ import annotations

import math
from typing import Any

from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.doubles import choose, narrow, polynomial, root, widen
from aclnn.kernels.cpu.simd.tables import table
from aclnn.kernels.cpu.simd.vector import absolute, bits, fma, from_bits, select

_INTEGERS = 1.5 * 2.0**52
"""Adding this to a float64 below 2^51 leaves the nearest integer in the low bits."""
_ONE = 0x3FF << 52

_POWERS = table(*((2.0 ** (j / 8) - j / 8 + 1.0) / 2.0 for j in range(8)))
"""2^(j/8), less the j/8 that the exponent's low bits add to the significand."""
_PER_EIGHTH, _EIGHTH = 8.0 / math.log(2.0), math.log(2.0) / 8.0
_LOWEST, _HIGHEST = -709.09, _INTEGERS + 8191.0
"""Exponents below which the power of two is 0, and the largest exponent."""

_exponential = polynomial(
    "0x1.a01e2e013e538p-13 0x1.6c1b735ab0459p-10 0x1.1111110e0d900p-7 0x1.5555554e8d709p-5 0x1.555555555556ap-3 "
    "0x1.000000000002ep-1"
)
"""(e^r - 1 - r) / r² for abs(r) ≤ ln 2 / 16."""


@register_jitable
def _power(x: Any) -> Any:
    """Return (p, q) with e^x = p·(1 + q), where p is a power of the eighth root of two."""
    x = select(x < _LOWEST, _LOWEST, x)
    shifted = fma(x, _PER_EIGHTH, _INTEGERS)
    shifted = select(shifted > _HIGHEST, _HIGHEST, shifted)
    r = fma(shifted - _INTEGERS, -_EIGHTH, x)  # beyond the highest, so large that the result overflows as it should
    pattern = bits(shifted)
    p = from_bits(bits(_POWERS(pattern)) + (pattern << 49))
    return p, fma(_exponential(r), r * r, r)


@register_jitable
def exp(x: Any) -> Any:
    """e^x; below -708.4, where results are subnormal, possibly another subnormal or 0; 0 below -709.1."""
    p, q = _power(x)
    return fma(p, q, p)


@register_jitable
def expm1(x: Any) -> Any:
    """e^x - 1."""
    p, q = _power(x)
    return select(x == 0.0, x, fma(p, q, p - 1.0))


_logarithmic = polynomial(
    "0x1.0c039c49989c6p-3 0x1.0fbe95d716020p-3 0x1.3b1c355a8f7a2p-3 0x1.745cf9048dd95p-3 0x1.c71c720159177p-3 "
    "0x1.2492492476cccp-2 0x1.9999999999a38p-2 0x1.5555555555555p-1"
)
"""(2·artanh(s)/s - 2) / z with z = s², for 1/√2 ≤ (1 + s)/(1 - s) ≤ √2."""
_LN2 = math.log(2.0)
_ROOT_HALF = 0x3FE6A09E667F3BCD
_EXPONENT = -1 << 52
_OFFSET = 1 << 62


@register_jitable
def _logarithm(x: Any) -> Any:
    """Return (ln x, about 1/x) for a normal positive number; the second is accurate to 7 %."""
    above = bits(x) - _ROOT_HALF
    power = above & _EXPONENT
    k = from_bits(((above + _OFFSET) >> 52) + 0x4330000000000000) - (2.0**52 + 1024.0)
    f = from_bits(bits(x) - power) - 1.0
    s = f / (f + 2.0)
    z = s * s
    return fma(k, _LN2, fma(s * z, _logarithmic(z), s + s)), fma(s, -2.0, 1.0) * from_bits(_ONE - power)


@register_jitable
def log(x: Any) -> Any:
    """Natural logarithm; undefined for subnormal numbers."""
    y, _ = _logarithm(x)
    y = select(x < math.inf, y, x)
    return select(x > 0.0, y, choose(x == 0.0, -math.inf, math.nan))


@register_jitable
def log1p(x: Any) -> Any:
    """Natural logarithm of 1 + x."""
    total = x + 1.0
    y, share = _logarithm(total)
    # The sum's rounding error is at most half an ULP: a few per cent of that are negligible.
    y = select(x < math.inf, fma(x - (total - 1.0), share, y), x)
    y = select(x > -1.0, y, choose(x == -1.0, -math.inf, math.nan))
    return select(x == 0.0, x, y)


_softened = polynomial(
    "0x1.4b0a26c5f2aefp-3 0x1.687a6e7c95176p-4 0x1.eb905e8575054p-4 0x1.10ac75dc602b1p-3 0x1.3b18b294bebf9p-3 "
    "0x1.745cf0b0e03bdp-3 0x1.c71c727143318p-3 0x1.24924923d44c6p-2 0x1.999999999a3ddp-2 0x1.5555555555555p-1"
)
"""(2·artanh(s)/s - 2) / z with z = s², for s from 0 to 1/3."""


@register_jitable
def log1pexp(x: Any) -> Any:
    """Natural logarithm of 1 + e^x."""
    e = exp(-absolute(x))
    s = e / (e + 2.0)
    z = s * s
    return select(x > 0.0, x, 0.0) + fma(s * z, _softened(z), s + s)


@register_jitable
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    e = expm1(select(x > 20.0, 40.0, x + x))
    return e / (e + 2.0)


_beyond_one = polynomial(
    "-0x1.cd353848c3dbcp-28 0x1.ce774a9629135p-29 0x1.a369a96de632dp-24 -0x1.d3ff452cc28a4p-25 -0x1.9e44e8c0a7776p-21 "
    "0x1.26cc3cd713f83p-20 0x1.3618fd6c9310ap-18 -0x1.0a20140bf0cbdp-16 -0x1.1ebb1b89a5966p-17 0x1.4dcfdbcce4e9ap-13 "
    "-0x1.77d68117c8dedp-12 -0x1.a2bf21b1ce2f6p-12 0x1.63f260a2f9e90p-8 -0x1.625ed072eb7d3p-6 0x1.e1a956424d52fp-5 "
    "-0x1.00428c9044d36p-3 0x1.c0398cb6f3a45p-3 -0x1.47938f4c71784p-2 0x1.8d4ecb405c5abp-2 -0x1.7d8f1c4524785p-2 "
    "0x1.dd2c8b74febf7p-3",
    in_two=True,
)
"""(e^(a²)·erfc(a)·(1 + 2a) - 1) / (t + 1) with t = (a - 4)/(a + 4), for 0 ≤ a ≤ 28."""
_near_zero = polynomial(
    "0x1.8b4b60851826bp-20 -0x1.f224dfc5409afp-17 0x1.f98db34e8872ep-14 -0x1.c02d4f6e4921ap-11 0x1.565bcbf8e0365p-8 "
    "-0x1.b82ce30f2b28fp-6 0x1.ce2f21a03d814p-4 -0x1.812746b0379b5p-2 0x1.20dd750429b6dp+0"
)
"""erf(x)/x by powers of x², for abs(x) ≤ 1/2."""


@register_jitable
def _complement(a: Any) -> Any:
    """Return erfc of a non-negative number."""
    # Formulas of the normal distribution contain the exponential of the same square, which is computed once.
    decay = exp(-(a * a))
    a = select(a > 28.0, 28.0, a)
    shifted, steep = a + 4.0, fma(a, 2.0, 1.0)
    share = 1.0 / (shifted * steep)
    t = (a - 4.0) * (steep * share)
    return decay * (fma(_beyond_one(t), t + 1.0, 1.0) * (shifted * share))


@register_jitable
def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    y = _complement(absolute(x))
    return select(x < 0.0, 2.0 - y, y)


@register_jitable
def erf(x: Any) -> Any:
    """Error function."""
    a = absolute(x)
    y = 1.0 - _complement(a)
    return select(a < 0.5, x * _near_zero(x * x), select(x < 0.0, -y, y))


_FROM_TINY_TO_NONE = 2.0**-925
"""Factor under which float64 flushes to 0 what float32 rounds to 0, numbers below 2^-150."""


@register_jitable
def times(x: Any, y: Any) -> Any:
    """x·y; NaN for an infinite x and a y that float32 rounds to 0."""
    # Scaled by this factor such a y vanishes, and the remainder of any other leaves a finite product unchanged.
    return fma(x, y * _FROM_TINY_TO_NONE, x * y)


@register_jitable
def narrow_to_odd(value: Any) -> Any:
    """Convert float64 lanes to float32, rounded to odd, so that rounding once more is exact.

    Truncates first; an overflow becomes the largest number. NaN stays NaN.
    """
    rounded = narrow(value)
    back = widen(rounded)
    pattern = bits(rounded)
    truncated = select(absolute(back) > absolute(value), pattern - 1, pattern)
    return from_bits(select(back != value, truncated | 1, pattern))


WORDS: dict[str, Any] = {
    word.__name__: word for word in (exp, expm1, log, log1p, log1pexp, tanh, erf, erfc, absolute, times)
} | {"sqrt": root, "where": choose}
"""Implementation of each function of a program."""
