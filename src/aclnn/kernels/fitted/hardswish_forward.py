"""Versions of hardswish_forward in float32 operations, of float32 half a unit off at most."""

from __future__ import annotations

from aclnn.formula import Real, where
from aclnn.kernels.fitted import fma

DIGEST = "30a1cd8adf4565d990497cd0b1b252706ca42227d337bd255ad5693c68e6f046"

_SIXTH = float.fromhex("0x1.555556p-3")


def _corrected(x: Real) -> Real:
    """Correct x·(x + 3)/6 by what the sum, the product and the quotient round away."""
    total = x + 3.0
    lost = x - (total - 3.0)
    product = x * total
    product_low = fma(x, lost, fma(x, total, -product))
    quotient = product * _SIXTH
    excess = fma(quotient, 6.0, -product) - product_low
    return where(x <= -3.0, 0.0, where(x >= 3.0, x, fma(excess, -_SIXTH, quotient)))


def _for_bfloat16(x: Real) -> Real:
    """x·((x + 3)·(1/6)), whose errors change none of the 65,536 results."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, x, x * ((x + 3.0) * _SIXTH)))


def _for_float16(x: Real) -> Real:
    """As for bfloat16, but for x = 2^-24: the exact result is just above half of it, which is a tie."""
    return where(x == 2.0**-24, x, _for_bfloat16(x))


FLOAT, FLOAT16, BF16 = _corrected, _for_float16, _for_bfloat16
