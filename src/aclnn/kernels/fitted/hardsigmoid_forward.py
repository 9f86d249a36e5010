"""Versions of hardsigmoid_forward in float32 operations, half a unit off at most."""

from __future__ import annotations

from aclnn.formula import Real, where
from aclnn.kernels.fitted import sum_over

DIGEST = "d72d654fd6914c64a0ba7b8ed65c63718850a876e45a7d577a8206a27a011f90"

_SIXTH = float.fromhex("0x1.555556p-3")


def _in_float32(x: Real) -> Real:
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, sum_over(x, 3.0, 6.0)))


def _for_16_bits(x: Real) -> Real:
    """The sum's and the product's errors never decide the rounding of one of the 65,536 results."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, (x + 3.0) * _SIXTH))


FLOAT, FLOAT16, BF16 = _in_float32, _for_16_bits, _for_16_bits
