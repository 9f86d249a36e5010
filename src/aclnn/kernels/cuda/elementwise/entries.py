"""Tables of a formula for every 16-bit input, made on the host by the formula itself.

A second table holds the values times 2^150, for those that are too small for all of their digits to fit into a float32.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.sixteen_bit import all_inputs, round_to_odd


class _Math:
    """Python's ``math`` with the overflow of compiled code: infinity instead of an exception."""

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    @staticmethod
    def exp(x: float) -> float:
        try:
            return math.exp(x)
        except OverflowError:
            return math.inf


def evaluate(formula: Formula, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The formula for each element of an array, by Python's floats (about 0.5 µs each)."""
    assert isinstance(formula, FunctionType)
    given = formula.__globals__ | {"math": _Math()}
    forgiving = FunctionType(formula.__code__, given, formula.__name__, formula.__defaults__, formula.__closure__)
    return np.fromiter(map(forgiving, x.tolist()), np.float64, x.size)


def table(formula: Formula, dtype: DataType) -> NDArray[np.float32]:
    """The two tables, 2 × 65,536 values by bit pattern, rounded to odd (see ``aclnn.kernels.sixteen_bit``)."""
    values = evaluate(formula, all_inputs(dtype))
    with np.errstate(over="ignore"):
        return round_to_odd(np.stack([values, np.ldexp(values, 150)]))
