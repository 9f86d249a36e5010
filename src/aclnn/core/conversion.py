"""Conversion of NumPy arrays between data types, as aclnnCast does it."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def convert(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert as aclnnCast does; the array itself where it has the data type.

    Floating numbers become integers by truncation, at the ends of the range by saturation, NaN 0; integers wrap;
    complex numbers lose their imaginary part; whatever is not 0 is true.
    """
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "c" and dtype.kind not in "bc":
        values = values.real
    if dtype.kind in "iu" and values.dtype.kind not in "biuc":
        return _truncated(values, dtype)
    return values.astype(dtype)


def _truncated(values: Array, dtype: np.dtype[Any]) -> Array:
    wide, limits = values.astype(np.float64), np.iinfo(dtype)
    # These two are exact in float64, unlike the limits of 64 bits.
    below, above = wide <= float(limits.min) - 1, wide >= float(limits.max) + 1
    result = np.where(below | above | np.isnan(wide), 0, wide).astype(dtype)
    return np.where(below, limits.min, np.where(above, limits.max, result)).astype(dtype)
