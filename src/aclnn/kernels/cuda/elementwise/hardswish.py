"""Hardswish in float32."""

from __future__ import annotations

from aclnn.kernels.cuda.launch import tl, triton

_THIRD, _SIXTH = tl.constexpr(float.fromhex("0x1.555556p-2")), tl.constexpr(float.fromhex("0x1.555556p-3"))


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
