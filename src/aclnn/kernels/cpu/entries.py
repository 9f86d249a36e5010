"""Tables of a slope for every 16-bit input.

An entry is the formula's value in float64, rounded to float32 *to odd*: when the value is not a float32, of its two
neighbours the one with an odd last digit is taken. Such a value is never mistaken for a tie by a later rounding to 16
bits, so that one product with dy = 1 and one rounding give the correctly rounded slope.

A second table holds the slopes times 2^150, for those that are too small for all of their digits to fit into a float32.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu.compiler import kernel
from aclnn.kernels.cpu.formulas import fingerprint, jitable
from aclnn.kernels.cpu.memory import load_one_float64, store_one_float64

_tables: dict[tuple[str, DataType], NDArray[np.float32]] = {}
_lock = threading.Lock()


def _evaluation(formula: Formula) -> Any:
    compiled = jitable(formula)

    def evaluate(source: int, destination: int, count: int) -> None:
        for i in range(count):
            store_one_float64(destination + 8 * i, compiled(load_one_float64(source + 8 * i)))

    return evaluate


def evaluate(formula: Formula, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The formula in float64 for each element of a contiguous array."""
    result = np.empty_like(x)
    key = (fingerprint(formula),)
    run = kernel(f"evaluate-{formula.__name__}", key, lambda: _evaluation(formula))
    run(x.ctypes.data, result.ctypes.data, x.size)
    return result


def round_to_odd(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Float32 with a sticky last digit: exact values stay, others become their odd neighbour."""
    with np.errstate(all="ignore"):
        nearest = values.astype(np.float32)
        widened = nearest.astype(np.float64)
        patterns = nearest.view(np.uint32)
        inexact = (widened != values) & ~np.isnan(values)
        towards_zero = patterns - (inexact & (np.abs(widened) > np.abs(values))).astype(np.uint32)
    rounded: NDArray[np.float32] = (towards_zero | inexact.astype(np.uint32)).view(np.float32)
    return rounded


def all_inputs(dtype: DataType) -> NDArray[np.float64]:
    """The 65,536 values of float16 or bfloat16, in the order of their bit patterns."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.arange(65536, dtype=np.uint16).view(dtype.numpy).astype(np.float64)


def table(formula: Formula, dtype: DataType) -> NDArray[np.float32]:
    """The two tables, 2 × 65,536 slopes by bit pattern; made in milliseconds when first wanted."""
    key = (fingerprint(formula), dtype)
    with _lock:
        if key not in _tables:
            slopes = evaluate(formula, all_inputs(dtype))
            with np.errstate(over="ignore"):
                _tables[key] = round_to_odd(np.stack([slopes, np.ldexp(slopes, 150)]))
        return _tables[key]
