"""Separable formulas: products of functions of single operands, such as gated activations.

For 16-bit types such a function is a table of 65,536 float32. The rest of the formula is exact in float32 (conditions
on operands, sums of operands), or a product, with an error of a few ULP of float32 at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import is_float32
from aclnn.kernels.sixteen_bit import round_to_odd
from aclnn.kernels.trace import EXACT, Program, Step

_COMPARED = {"{} == {}", "{} != {}"}
"""Comparisons with 0, which are unaffected by an entry's rounding or NaN."""
_SUMS = {"{} + {}", "{} - {}"}
_PRODUCTS = {"{} * {}", "times({}, {})"}
_INFINITY, _NORMAL = 0x7F800000, 0x00800000
"""Bit patterns of infinity and of the smallest normal number."""


class Separated(NamedTuple):
    """A program split into functions of single operands and float32 operations on their values."""

    names: tuple[str, ...]
    """Variables that are functions of a single operand."""
    operands: tuple[int, ...]
    """Index of each function's operand."""
    steps: tuple[Step, ...]
    """Remaining operations."""
    multiplied: tuple[Step, ...]
    """Products that are factors of other products, and so must not underflow."""


def separate(program: Program, numbers: Sequence[float]) -> Separated | None:
    """Separate a program of operands followed by ``numbers``; None if it is not separable, or needs no table."""
    inputs = program.arity - len(numbers)
    over = {f"x{k}": {k} if k < inputs else set[int]() for k in range(program.arity)}
    """Operands on which each value depends."""
    exact = {name for name, number in zip(over, (*[0.0] * inputs, *numbers), strict=True) if is_float32(number)}
    products: dict[str, set[Step]] = {}
    """Values rounded to float32, with the products that they are or are selected from."""

    def is_exact(name: str) -> bool:
        return name in exact if name in over else is_float32(float(name))

    multiplied = set[Step]()
    for step in program.steps:
        result, template, operands = step
        over[result] = set[int]().union(*(over.get(name, ()) for name in operands))
        is_choice = template == "where({}, {}, {})"
        in_lanes = not over.keys().isdisjoint(operands[is_choice:])
        is_zero = template in _COMPARED and operands[1] == "0.0" and operands[0] not in products
        is_known = is_zero or all(map(is_exact, operands))
        if template in EXACT and in_lanes and is_known:
            exact.add(result)
        elif template in _SUMS and in_lanes and all(map(is_exact, operands)):
            products[result] = set()
        elif len(over[result]) > 1:
            before = set[Step]().union(*(products.get(name, ()) for name in operands))
            if template in _PRODUCTS and all(over.get(name) for name in operands):
                multiplied |= before
                products[result] = {step}
            elif template == "-{}" or (is_choice and in_lanes and is_exact(operands[0])):
                products[result] = before
            else:
                return None
    tables, steps, wanted = dict[str, int](), list[Step](), set(program.results)
    for step in reversed(program.steps):
        if step.result not in wanted:
            continue
        if step.result in exact or step.result in products:
            steps.append(step)
            wanted.update(step.operands)
        elif len(over[step.result]) == 1:
            (tables[step.result],) = over[step.result]
        else:
            return None
    rest = wanted - tables.keys() - products.keys()
    if not tables or not over.keys() >= {*program.results} or not all(map(is_exact, rest)):
        return None
    steps.reverse()
    again = tuple(step for step in steps if step in multiplied)
    return Separated(tuple(tables), tuple(tables.values()), tuple(steps), again)


def lines(separated: Separated, program: Program) -> Iterator[str]:
    """Yield lines that compute a program's results in float32, and ``outside``, negative where they are invalid.

    They are invalid if one is not finite, or a product that is multiplied again has underflowed.
    """
    yield from (step.in_float32() for step in separated.steps)
    lost = [f"({_INFINITY - 1} - bits(absolute({name})))" for name in program.results]
    for product, _, factors in separated.multiplied:
        nonzero = (f"(0 - bits(absolute({factor})))" for factor in factors)
        lost.append(f"((bits(absolute({product})) - {_NORMAL}) & {' & '.join(nonzero)})")
    yield f"outside = {' | '.join(lost)}"


def entries(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round a function's values to odd; NaN where float32 lacks digits or range."""
    size = np.abs(values)
    lacking = ((size < 2.0**-126) & (size > 0.0)) | ((size > np.finfo(np.float32).max) & (size < math.inf))
    return np.where(lacking, np.float32(math.nan), round_to_odd(values))
