"""Tables of a slope for every 16-bit input.

An entry is what wide vectors compute for that input, where they do, so that both give the same bits; else it is the
formula's value in float64, rounded to odd (see ``aclnn.kernels.sixteen_bit``).

A second table holds the slopes times 2^150, for those that are too small for all of their digits to fit into a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu.addresses import load_one_float64, store_one_float64
from aclnn.kernels.cpu.compiler import kernel
from aclnn.kernels.cpu.elementwise.formulas import fingerprint, jitable, near
from aclnn.kernels.cpu.elementwise.kinds import KINDS, LOADS
from aclnn.kernels.cpu.elementwise.slopes import Near
from aclnn.kernels.cpu.memory import store_float32
from aclnn.kernels.cpu.vector import LANES
from aclnn.kernels.locks import lock_across_forks
from aclnn.kernels.sixteen_bit import all_inputs, round_to_odd

_tables: dict[tuple[str, DataType], NDArray[np.float32]] = {}
_lock = lock_across_forks()


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


def _served(near: Near, dtype: DataType) -> Any:
    """A kernel that writes the slopes of the 65,536 x of a 16-bit type at one address to another."""
    slope, load = near.slope, LOADS[KINDS[dtype]]

    def evaluate(x: int, out: int) -> None:
        for i in range(0, 65536, LANES):
            store_float32(out + 4 * i, slope(load(x + 2 * i)))

    return evaluate


def _take_near(entries: NDArray[np.float32], formula: Formula, dtype: DataType) -> None:
    """Replace entries by those of the formula's version for this type, if there is one."""
    found = near(formula, dtype)
    if found is None:
        return
    patterns, slopes = np.arange(65536, dtype=np.uint16), np.empty(65536, np.float32)
    key = (fingerprint(formula),)
    run = kernel(f"entries-{formula.__name__}-{dtype.name}", key, lambda: _served(found, dtype))
    run(patterns.ctypes.data, slopes.ctypes.data)
    served = np.abs(all_inputs(dtype)) <= found.bound
    entries[served] = slopes[served]


def table(formula: Formula, dtype: DataType) -> NDArray[np.float32]:
    """The two tables, 2 × 65,536 slopes by bit pattern; made in milliseconds when first wanted."""
    key = (fingerprint(formula), dtype)
    with _lock:
        if key not in _tables:
            slopes = evaluate(formula, all_inputs(dtype))
            with np.errstate(over="ignore"):
                _tables[key] = round_to_odd(np.stack([slopes, np.ldexp(slopes, 150)]))
            _take_near(_tables[key][0], formula, dtype)
        return _tables[key]
