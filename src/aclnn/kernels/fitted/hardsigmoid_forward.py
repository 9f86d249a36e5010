"""Versions of hardsigmoid_forward in float32 operations, half a unit off at most."""

from __future__ import annotations

from aclnn.formula import Real, where
from aclnn.kernels.fitted import fma

DIGEST = "d72d654fd6914c64a0ba7b8ed65c63718850a876e45a7d577a8206a27a011f90"

_SIXTH = float.fromhex("0x1.555556p-3")


def _corrected(x: Real) -> Real:
    """Correct (x + 3)/6 by what the sum and the quotient round away."""
    total = x + 3.0
    lost = x - (total - 3.0)
    quotient = total * _SIXTH
    remainder = fma(quotient, -6.0, total) + lost
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, fma(remainder, _SIXTH, quotient)))


def _for_16_bits(x: Real) -> Real:
    """What is lost is too little to matter."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, (x + 3.0) * _SIXTH))


FLOAT, FLOAT16, BF16 = _corrected, _for_16_bits, _for_16_bits
