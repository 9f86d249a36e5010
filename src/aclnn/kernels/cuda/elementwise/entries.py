"""Tables of a formula for every 16-bit input, made on the host by the formula itself.

A second table holds the values times 2^150, for those that are too small for all of their digits to fit into a float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.sixteen_bit import all_inputs, evaluate, round_to_odd


def table(formula: Formula, dtype: DataType) -> NDArray[np.float32]:
    """The two tables, 2 × 65,536 values by bit pattern, rounded to odd (see ``aclnn.kernels.sixteen_bit``)."""
    values = evaluate(formula, all_inputs(dtype))
    with np.errstate(over="ignore"):
        return round_to_odd(np.stack([values, np.ldexp(values, 150)]))
