"""Exact values: derivatives of forward functions by automatic differentiation in ball arithmetic, and errors in ULP."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from flint import arb, arb_series, ctx

from aclnn.core.dtypes import DataType as D

#: A forward function over power series, which flint differentiates.
Forward = Callable[[Any], Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NUMPY: dict[D, np.dtype[Any]] = {
    D.FLOAT: np.dtype(np.float32),
    D.FLOAT16: np.dtype(np.float16),
    D.BF16: BFLOAT16,
    D.DOUBLE: np.dtype(np.float64),
}

# Bits of the significand, exponent of the largest and of the smallest normal numbers.
_FORMATS = {D.FLOAT: (24, 127, -126), D.FLOAT16: (11, 15, -14), D.BF16: (8, 127, -126), D.DOUBLE: (53, 1022, -1022)}

UNITS_OF_PRODUCTS = {D.FLOAT: 2.6, D.FLOAT16: 0.51, D.BF16: 0.51, D.DOUBLE: 8.0}
"""Error bounds of gated activations in ULP; in float32 these are products with fitted functions."""

# Beyond this magnitude, every forward function that flint cannot evaluate is 0 or x to within 1e-400.
_FAR = 1000.0


def _certified(forward: Forward, x: float, order: int) -> float:
    """Return a coefficient of forward's power series at finite x, rounded once; its limit if abs(x) is large."""
    try:
        for ctx.prec in (128, 1024, 8192):
            value = forward(arb_series([arb(x), 1][: order + 1], order + 1))[order]
            # Enough certified digits, or certified to vanish in float32 even times the largest dy.
            if value.rel_accuracy_bits() >= 60 or abs(value) < 1e-100:
                return float(value)
    except ValueError:
        if abs(x) > _FAR:
            return x ** (1 - order) if x > 0 else -0.0
        raise
    raise ArithmeticError(f"no certified value at {x!r}")


@cache
def _every_certified(forward: Forward, x: bytes, order: int) -> np.ndarray[Any, Any]:
    """Return ``_certified`` of each float64; cached, as variants of an operator share forwards, and tests elements."""
    precision = ctx.prec, ctx.cap
    ctx.cap = order + 1
    try:
        return np.array([_certified(forward, value, order) for value in np.frombuffer(x).tolist()])
    finally:
        ctx.prec, ctx.cap = precision


def derivatives(forward: Forward, x: np.ndarray[Any, Any], order: int = 1) -> np.ndarray[Any, Any]:
    """Return forward' at finite float64 values, rounded once to float64 (forward for order 0)."""
    distinct, places = np.unique(x, return_inverse=True)
    return _every_certified(forward, distinct.tobytes(), order)[places].reshape(x.shape)


def derivative(forward: Forward, x: float) -> float:
    """Return forward'(x) for finite x, rounded once to float64."""
    return float(derivatives(forward, np.array([x]))[0])


def values(forward: Forward, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return forward at finite float64 values, rounded once to float64."""
    return derivatives(forward, x, order=0)


def ulp_of(exact: np.ndarray[Any, Any], dtype: D) -> np.ndarray[Any, Any]:
    """Return the unit in the last place of each value in a data type."""
    bits, largest, smallest = _FORMATS[dtype]
    with np.errstate(invalid="ignore"):
        exponent = np.clip(np.frexp(np.abs(np.nan_to_num(exact, nan=1.0)))[1] - 1, smallest, largest)
    return np.asarray(np.ldexp(1.0, exponent - bits + 1))


def ulps(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any], dtype: D) -> np.ndarray[Any, Any]:
    """Return the errors of results in units in the last place of the exact values.

    An infinity counts as the smallest power of two that overflows.
    """
    limit = 2.0 ** (_FORMATS[dtype][1] + 1)
    exact = np.clip(np.asarray(exact, np.float64), -limit, limit)
    got = np.clip(np.asarray(got).astype(np.float64), -limit, limit)
    return np.asarray(np.abs(got - exact) / ulp_of(exact, dtype))


def every_16_bit(dtype: D) -> np.ndarray[Any, Any]:
    """Return all 65,536 values of a 16-bit type, including NaN and infinities."""
    return np.arange(1 << 16, dtype=np.uint16).view(NUMPY[dtype])


def rounded(exact: np.ndarray[Any, Any], dtype: D) -> np.ndarray[Any, Any]:
    """Round float64 values once; for bfloat16 by hand, because ml_dtypes rounds to float32 first."""
    if dtype != D.BF16:
        with np.errstate(over="ignore", under="ignore"):
            return exact.astype(NUMPY[dtype])
    # Round to odd to float32, so that the second rounding does no harm.
    with np.errstate(over="ignore", under="ignore"):
        near = exact.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32).copy()
    bits[np.abs(back) > np.abs(exact)] -= 1
    inexact = np.isfinite(exact) & (back != exact)
    bits[inexact] |= 1
    return bits.view(np.float32).astype(NUMPY[D.BF16])
