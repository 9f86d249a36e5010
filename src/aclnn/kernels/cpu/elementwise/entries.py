"""Tables of a function of one variable for every 16-bit input.

An entry is what wide vectors compute for that input, where they do, so that both give the same bits; else it is the
formula's value in float64, rounded to odd, which rounding once more makes exact.

A second table holds the values times 2^150, for those that are too small for all of their digits to fit into a float32.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cpu.addresses import load_one_float64
from aclnn.kernels.cpu.compiler import kernel
from aclnn.kernels.cpu.doubles import narrow_to_odd, widen
from aclnn.kernels.cpu.elementwise.fitted import near
from aclnn.kernels.cpu.elementwise.formulas import compilable, fingerprint
from aclnn.kernels.cpu.elementwise.general import loads
from aclnn.kernels.cpu.elementwise.kinds import KINDS, LOADS
from aclnn.kernels.cpu.elementwise.slopes import Near
from aclnn.kernels.cpu.memory import store_float32
from aclnn.kernels.cpu.vector import LANES
from aclnn.kernels.locks import lock_across_forks
from aclnn.kernels.sixteen_bit import all_inputs

_MOST = 64
"""Tables kept, of half a mebibyte each: attributes may take any number of values."""
_tables: OrderedDict[tuple[Any, ...], NDArray[np.float32]] = OrderedDict()
_lock = lock_across_forks()


def _evaluation(formula: Formula, dtype: DataType, numbers: int) -> Any:
    function, load, read_numbers = compilable(formula), LOADS[KINDS[dtype]], loads(numbers, load_one_float64)

    def evaluate(x: int, given: int, out: int) -> None:
        values = read_numbers(given)
        for i in range(0, 65536, LANES):
            value = widen(function(widen(load(x + 2 * i)), *values))
            store_float32(out + 4 * i, narrow_to_odd(value))
            store_float32(out + 4 * (65536 + i), narrow_to_odd(value * 2.0**150))

    return evaluate


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


def table(formula: Formula, dtype: DataType, numbers: tuple[float, ...]) -> NDArray[np.float32]:
    """The two tables, 2 × 65,536 values by bit pattern, of a function of x or of a gradient's derivative."""
    function = formula.derivative if isinstance(formula, Gradient) else formula
    # Of the formula, not the function: a gradient's entries may come from a fitted version.
    key = (fingerprint(formula), dtype, numbers)
    with _lock:
        if key in _tables:
            _tables.move_to_end(key)
            return _tables[key]
        run = kernel(
            f"table-{function.__name__}-{dtype.name}",
            (key[0], len(numbers)),
            lambda: _evaluation(function, dtype, len(numbers)),
        )
        patterns, given = np.arange(65536, dtype=np.uint16), np.array((*numbers, 0.0))
        found = np.empty((2, 65536), np.float32)
        run(patterns.ctypes.data, given.ctypes.data, found.ctypes.data)
        _take_near(found[0], formula, dtype)
        _tables[key] = found
        if len(_tables) > _MOST:
            _tables.popitem(last=False)
        return found


def overflows(table: NDArray[np.float32]) -> bool:
    """Whether a finite value exceeds float32: a small dy may bring its product back."""
    return bool((np.abs(table[0]) == np.finfo(np.float32).max).any())
