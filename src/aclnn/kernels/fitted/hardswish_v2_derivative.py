"""Versions of hardswish_v2_derivative in float32 operations, for float32 x half a unit off at most."""

from __future__ import annotations

from aclnn.formula import Real, where
from aclnn.kernels.fitted.hardswish_derivative import corrected, nearly

DIGEST = "7c3796ccfa48d46cad55faa14acf8f098a1a74b980c2cbcb23721f88e85004ec"


def _in_float32(x: Real) -> Real:
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, corrected(x)))


def _for_16_bits(x: Real) -> Real:
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, nearly(x)))


FLOAT, FLOAT16, BF16 = _in_float32, _for_16_bits, _for_16_bits
