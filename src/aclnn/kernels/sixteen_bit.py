"""All values of a 16-bit type, and tables over them.

An entry is a float64 value rounded to float32 *to odd*: if it is inexact, the neighbour with an odd last bit is taken.
A later rounding to 16 bits never mistakes such a number for a tie, so that a product with dy = 1 and one rounding give
the correctly rounded result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import DataType


def all_inputs(dtype: DataType) -> NDArray[np.float64]:
    """Return the 65,536 values of float16 or bfloat16, in the order of their bit patterns."""
    patterns = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        if dtype == DataType.BF16:  # the upper half of a float32
            return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return patterns.view(np.float16).astype(np.float64)


def as_bytes(numbers: Sequence[float]) -> bytes:
    """Return a cache key of a formula's numbers, which unlike the numbers themselves distinguishes 0.0 from -0.0."""
    return np.array(numbers, np.float64).tobytes()


def evaluate(formula: Callable[[float], float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply a formula to each element of an array, in Python floats (about 0.5 µs each)."""
    return np.fromiter(map(formula, x.reshape(-1).tolist()), np.float64, x.size).reshape(x.shape)


def round_to_odd(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 to odd: exact values stay, others become the odd neighbour."""
    with np.errstate(all="ignore"):
        nearest = values.astype(np.float32)
        widened = nearest.astype(np.float64)
        patterns = nearest.view(np.uint32)
        inexact = (widened != values) & ~np.isnan(values)
        towards_zero = patterns - (inexact & (np.abs(widened) > np.abs(values))).astype(np.uint32)
    rounded: NDArray[np.float32] = (towards_zero | inexact.astype(np.uint32)).view(np.float32)
    return rounded
