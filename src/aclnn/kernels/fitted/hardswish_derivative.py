"""Versions of hardswish_derivative in float32 operations, for float32 x half a unit off at most.

`make exhaustive` walks every x.
"""

from __future__ import annotations

from aclnn.formula import Real, where
from aclnn.kernels.fitted import sum_over

DIGEST = "39dabfd9499aec2ba5430a3e87886a9a94a3ce38528207aa6caf25ce1c046ca6"

_THIRD = float.fromhex("0x1.555556p-2")


def corrected(x: Real) -> Real:
    """(x + 1.5)/3 for float32 x."""
    return sum_over(x, 1.5, 3.0)


def nearly(x: Real) -> Real:
    """(x + 1.5)/3: around the zero at -1.5 the sum is exact, what is lost elsewhere too little to matter in 16 bits."""
    return (x + 1.5) * _THIRD


def _in_float32(x: Real) -> Real:
    return where(x < -3.0, 0.0, where(x > 3.0, 1.0, corrected(x)))


def _for_16_bits(x: Real) -> Real:
    return where(x < -3.0, 0.0, where(x > 3.0, 1.0, nearly(x)))


FLOAT, FLOAT16, BF16 = _in_float32, _for_16_bits, _for_16_bits
