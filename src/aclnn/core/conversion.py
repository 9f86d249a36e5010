"""Conversion of NumPy arrays between data types, as aclnnCast does it."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def convert(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert as aclnnCast does; return the array itself if it has the data type already.

    Floating-point numbers are truncated to integers and saturate, with NaN as 0; integers wrap; complex numbers lose
    their imaginary part; every nonzero value becomes true.
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
    # Exact in float64, unlike the largest 64-bit integers themselves.
    below, above = wide <= float(limits.min) - 1, wide >= float(limits.max) + 1
    result = np.where(below | above | np.isnan(wide), 0, wide).astype(dtype)
    return np.where(below, limits.min, np.where(above, limits.max, result)).astype(dtype)
