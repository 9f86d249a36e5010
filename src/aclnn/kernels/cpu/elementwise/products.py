"""Products of operands and of fitted functions, in float32 lanes.

Results for which that is not accurate enough are evaluated in float64 instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.elementwise.fitted import in_two
from aclnn.kernels.cpu.elementwise.general import Source
from aclnn.kernels.cpu.simd.vector import fma
from aclnn.kernels.products import Product, lines, values
from aclnn.kernels.trace import Program


def write(products: Sequence[Product], source: Source, program: Program) -> dict[str, Any]:
    """Write operations that compute a program's results from their factors; return the meanings of names in them."""
    source(*lines(products, lambda value: f"{value.function.__name__}({value.operand})"))
    source("outside = outside < 0", *(f"{name} = y{k}" for k, name in enumerate(program.results)))
    source.in_float64("outside", program, DataType.FLOAT)
    return {"fma": fma} | {value.function.__name__: in_two(value.function) for value in values(products)}
