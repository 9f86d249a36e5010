"""Products of operands and of fitted functions, in float32 lanes.

Values of functions come from their segments, for 16 bits from tables where registers are narrower. Results for which
that is not accurate enough are evaluated in float64 instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.elementwise.fitted import in_two
from aclnn.kernels.cpu.elementwise.general import Source
from aclnn.kernels.cpu.simd.vector import fma
from aclnn.kernels.products import Product, Value, lines, values
from aclnn.kernels.trace import Program

TABLE_BYTES = 4 << 16
_NEAR = 4
"""A product of three factors is less than four units of float32's last place off."""
_ROUNDINGS = {DataType.FLOAT16: (13, 127 - 14), DataType.BF16: (16, 127 - 125)}
"""Digits of float32 that a 16-bit type lacks, and the exponent, as float32 has it, above which it lacks no more."""


def by_tables(dtype: DataType) -> bool:
    """Return true if values of functions are looked up, among those of all 16-bit numbers."""
    return dtype != DataType.FLOAT and not target.has_wide_registers()


def write(products: Sequence[Product], dtype: DataType, source: Source, program: Program) -> dict[str, Any]:
    """Write operations that compute a program's results from their factors; return the meanings of names in them."""
    found, names = values(products), {"fma": fma}
    if by_tables(dtype):
        for number, value in enumerate(found):
            table = f"operands.constants + {number * TABLE_BYTES}"
            source.look_up(value.variable, table, f"part{value.operand[1:]} + i * {dtype.itemsize}")
        for k, product in enumerate(products):
            factors = (factor.variable if isinstance(factor, Value) else factor for factor in product)
            source(f"y{k} = {' * '.join(factors)}")
        outside = []
    else:
        source(*lines(products, lambda value: f"{value.function.__name__}({value.operand})"))
        names |= {value.function.__name__: in_two(value.function) for value in found}
        outside = ["outside"]
    if dtype != DataType.FLOAT:
        # Near the middle between two numbers of the data type, small, or not finite.
        lost, least = _ROUNDINGS[dtype]
        for k in range(len(products)):
            source(f"size = bits(absolute(y{k}))")
            source(f"near = ((size + {_NEAR - (1 << lost - 1)}) & {(1 << lost) - 1}) - {2 * _NEAR + 1}")
            source(f"outside{k} = near | ((size - {least << 23}) & (0 - size)) | ({(255 << 23) - 1} - size)")
            outside.append(f"outside{k}")
    source(f"outside = ({' | '.join(outside)}) < 0", *(f"{name} = y{k}" for k, name in enumerate(program.results)))
    with source.block("if any_lane(outside):"):
        source(*(f"wide_x{k} = widen(x{k})" for k in range(program.arity)))
        source.steps(program.steps, _in_float64)
        for k, name in enumerate(program.results):
            source(f"{name} = select(outside, rounded_{dtype.name}({_in_float64(name)}), y{k})")
    return names


def _in_float64(name: str) -> str:
    """Return the float64 counterpart of a program's variable; numbers stay as they are."""
    return f"wide_{name}" if name[0] in "xt" else name
