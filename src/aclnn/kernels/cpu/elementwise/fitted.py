"""Which formulas have fitted float32 versions, found by the function's name."""

from __future__ import annotations

from aclnn import formula as words
from aclnn.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu.elementwise import sixteen_bit_slopes
from aclnn.kernels.cpu.elementwise.products import times
from aclnn.kernels.cpu.elementwise.slopes import GRADIENTS, NEAR, Gradient, Near
from aclnn.kernels.cpu.elementwise.values import VALUES
from aclnn.kernels.cpu.inner import register_jitable


def near(formula: Formula, dtype: DataType) -> Near | None:
    """What wide vectors evaluate for x of a type; None for what is no gradient, or has no such version."""
    if not isinstance(formula, words.Gradient):
        return None
    name = formula.__name__
    return NEAR.get(name) if dtype == DataType.FLOAT else sixteen_bit_slopes.near(name, dtype)


def gradient(formula: Formula) -> Gradient | None:
    """The formula over sixteen float32 lanes of x and dy, if there is a version of it; functions of x ignore dy."""
    name = formula.__name__
    if isinstance(formula, words.Gradient):
        return GRADIENTS.get(name)
    return times(register_jitable(forceinline=True)(VALUES[name])) if name in VALUES else None
