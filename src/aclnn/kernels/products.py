"""Formulas that are products of operands and of fitted functions of single operands, such as gated activations.

A function's value is a sum of two float32, and the rounding error of a product of two operands is kept for the
multiplication by that value: results are rounded almost once. If one is not finite, or an operand is out of its
function's range, the formula itself is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.formula import Fitted
from aclnn.kernels import Formula
from aclnn.kernels.fitted import Segments, adds_to_first, version
from aclnn.kernels.trace import Step, trace


class Value(NamedTuple):
    """A fitted function of an operand."""

    function: Fitted
    operand: str

    @property
    def variable(self) -> str:
        """Name of the variable that holds the value."""
        return f"{self.function.__name__}_{self.operand}"

    @property
    def segments(self) -> Segments | None:
        """The float32 version of the function, if it consists of segments and gives values in two parts."""
        found = version(self.function, DataType.FLOAT)
        symmetry = self.function.symmetry
        if not isinstance(found, Segments) or symmetry not in ("1-f", "x+f", "odd", "even"):
            return None
        return None if adds_to_first(found, symmetry) else found


#: Names of operands' variables, followed by values of functions.
Product = tuple[str | Value, ...]


@lru_cache(maxsize=512)
def products(formula: Formula, arity: int) -> tuple[Product, ...] | None:
    """Return the factors of each result, valid where operands and results are finite.

    None unless every result is a product of at most two operands and a function, and one of the functions has segments.
    With two operands, the function's values must be at most about 1, so that the digits lost by an underflowing product
    stay negligible. Conditions on the magnitude of operands that are factors are decided: if such an operand is
    infinite, the result is infinite or NaN anyway.
    """
    program = trace(formula, arity, calls=True)
    known: dict[str, Any] = {f"x{i}": (f"x{i}",) for i in range(arity)}
    sizes = set[str]()
    for step in program.steps:
        operands = [known.get(name) for name in step.operands]
        known[step.result] = _meaning(step, program.functions.get(step.template), operands)
        sizes.update(operand for operand in operands if isinstance(operand, str))
    found = [known.get(name) for name in program.results]
    if not all(isinstance(product, tuple) and _is_served(product) for product in found):
        return None
    ordered = tuple(
        tuple(sorted(cast(Product, product), key=lambda factor: isinstance(factor, Value))) for product in found
    )
    factors = {factor.operand if isinstance(factor, Value) else factor for product in ordered for factor in product}
    return ordered if values(ordered) and sizes <= factors else None


def _is_served(product: Product) -> bool:
    functions = [factor.function for factor in product if isinstance(factor, Value)]
    operands = len(product) - len(functions)
    small = all(function.symmetry in ("1-f", "even") for function in functions)
    return len(functions) <= 1 and operands <= (2 if small else 1)


def _meaning(step: Step, function: Fitted | None, operands: list[Any]) -> Product | str | bool | None:
    """Return what a step computes: a product, an operand whose magnitude it is, a condition's value, or None."""
    if function is not None:
        match operands:
            case [(str(operand),)] if (value := Value(function, operand)).segments:
                return (value,)
        return None
    match step.template, operands:
        case "{} * {}" | "times({}, {})", [tuple(one), tuple(other)]:
            return (*one, *other)
        case "absolute({})", [(str(operand),)]:
            return operand
        case "{} < {}" | "{} == {}", [str(), _] if step.operands[1] == "inf":
            return step.template == "{} < {}"
        case "{} & {}", [False, _] | [_, False]:
            return False
        case "{} & {}", [True, True]:
            return True
        case "where({}, {}, {})", [bool(chosen), *results]:
            return cast(Product, results[not chosen])
    return None


def values(products: Sequence[Product]) -> tuple[Value, ...]:
    """Return the distinct function values among the factors."""
    return tuple(dict.fromkeys(factor for product in products for factor in product if isinstance(factor, Value)))


def lines(products: Sequence[Product], call: Callable[[Value], str]) -> Iterator[str]:
    """Yield the lines that assign the results to y0, y1 …, and negative integers to ``outside`` where they are invalid.

    They compute in float32, with ``fma``, ``absolute``, ``bits`` and the two parts of a value, as named by ``call``.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for value in values(products):
        assert value.segments is not None
        bound, least = bounds.get(value.operand, (math.inf, 0.0))
        bounds[value.operand] = min(bound, value.segments.bound), max(least, value.segments.least)
        yield f"{value.variable}, {value.variable}_rest = {call(value)}"
    for k, product in enumerate(products):
        yield from _multiplied(f"y{k}", product)
    before = ""
    for operand, (bound, least) in bounds.items():
        size = operand
        for k, product in enumerate(products):
            if not before and len(product) > 1:
                size = f"fma(y{k}, 0.0, {size})"  # NaN if the result is not finite
        yield f"size = bits(absolute({size}))"
        yield f"outside = ({pattern(bound)} - size){before}"
        if least:
            yield f"outside = outside | ((size - {pattern(least)}) & (0 - size))"
        before = " | outside"


def _multiplied(result: str, product: Product) -> Iterator[str]:
    match product:
        case [Value() as value]:
            # A zero of either sign minus a positive zero keeps its sign.
            yield f"{result} = {value.variable} - (0.0 - {value.variable}_rest)"
        case [str(x), Value() as value]:
            yield f"{result} = fma({x}, {value.variable}, -fma(-{x}, {value.variable}_rest, 0.0))"
        case [str(x), str(y), Value() as value]:
            yield f"product = {x} * {y}"
            yield f"lost = fma({x}, {y}, -product)"
            yield f"rest = fma(-lost, {value.variable}, fma(-product, {value.variable}_rest, 0.0))"
            yield f"{result} = fma(product, {value.variable}, -rest)"
        case _:
            yield f"{result} = {' * '.join(map(str, product))}"


def pattern(number: float) -> int:
    """Return the bit pattern of a float32."""
    return int(np.float32(number).view(np.int32))
