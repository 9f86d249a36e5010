"""Formulas that are products of operands and of fitted functions of single operands, such as gated activations.

An operand may be a term: a number, what comparisons and selections make of operands, or, as a factor, a sum of such
terms. Results are products, or selected from products and terms.

A function's value is a sum of two float32, and the rounding error of a sum, or of a product of two operands, is kept
for the multiplication by that value: products are rounded almost once. If one is not finite, or an operand is out of
its function's range, the formula itself is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from aclnn.core.dtypes import DataType, is_float32
from aclnn.formula import Fitted
from aclnn.kernels import Formula
from aclnn.kernels.fitted import Segments, adds_to_first, version
from aclnn.kernels.trace import EXACT, Step, steps_for, trace

_SUM = "{} + {}"


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


class Products(NamedTuple):
    """A formula's operations in float32."""

    steps: tuple[Step, ...]
    """Operations in order, those in ``factors`` with the variables on which they depend."""
    factors: dict[str, Product]
    """Factors of each product, by variable."""
    results: tuple[str, ...]
    """Variables of the results."""

    @property
    def values(self) -> tuple[Value, ...]:
        """The distinct function values among the factors."""
        factors = (factor for product in self.factors.values() for factor in product)
        return tuple(dict.fromkeys(factor for factor in factors if isinstance(factor, Value)))


@lru_cache(maxsize=512)
def products(formula: Formula, arity: int) -> Products | None:
    """Return the operations on float32 operands and numbers, valid where operands and products are finite.

    None unless every product has at most two operands and a function, and one of the functions has segments. With two
    operands, the function's values must be at most about 1, so that the digits lost by an underflowing product stay
    negligible. Conditions on the magnitude of operands that are factors are decided: if such an operand is infinite,
    the product is infinite or NaN anyway.
    """
    program = trace(formula, arity, calls=True)
    known: dict[str, Any] = {f"x{i}": (f"x{i}",) for i in range(arity)}
    exact, sizes = {*known}, set[str]()
    steps, factors = list[Step](), dict[str, Product]()
    for step in program.steps:
        operands = [known.get(name) for name in step.operands]
        sizes.update(operand for operand in operands if isinstance(operand, str))
        exactly = [name in exact or (name not in known and is_float32(float(name))) for name in step.operands]
        meaning = _meaning(step, program.functions.get(step.template), operands, exact)
        if isinstance(meaning, tuple):
            factors[step.result] = tuple(sorted(meaning, key=lambda factor: isinstance(factor, Value)))
            steps.append(step._replace(operands=_operands(meaning)))
        elif meaning is None and step.template in EXACT | {_SUM} and all(exactly):
            steps.append(step)
            meaning = (step.result,)
            exact.update(meaning if step.template in EXACT else ())
        elif meaning is None and step.template == "where({}, {}, {})" and exactly[0]:
            steps.append(step)
        known[step.result] = meaning
    needed = steps_for(program.results, steps)
    factors = {step.result: factors[step.result] for step in needed if step.result in factors}
    found = Products(tuple(needed), factors, program.results)
    unknown = {*program.results}.union(*(step.operands for step in needed)) & known.keys()
    unknown -= {f"x{i}" for i in range(arity)} | {step.result for step in needed}
    named = {operand for product in factors.values() for operand in _operands(product)}
    is_served = found.values and sizes <= named and all(map(_is_served, factors.values()))
    return found if is_served and not unknown else None


def _operands(product: Product) -> tuple[str, ...]:
    names = (factor.operand if isinstance(factor, Value) else factor for factor in product)
    return tuple(dict.fromkeys(names))


def _is_served(product: Product) -> bool:
    functions = [factor.function for factor in product if isinstance(factor, Value)]
    operands = len(product) - len(functions)
    small = all(function.symmetry in ("1-f", "even") for function in functions)
    return len(functions) <= 1 and operands <= (2 if small else 1)


def _meaning(
    step: Step, function: Fitted | None, operands: list[Any], exact: Collection[str]
) -> Product | str | bool | None:
    """Return what a step computes: a product, an operand whose magnitude it is, a condition's value, or None."""
    if function is not None:
        match operands:
            case [(str(operand),)] if operand in exact and (value := Value(function, operand)).segments:
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


def lines(products: Products, call: Callable[[Value], str]) -> Iterator[str]:
    """Yield the lines that compute the results, and negative integers ``outside`` where they are invalid.

    They compute in float32, with ``fma``, ``absolute``, ``bits``, ``select`` and the two parts of a value, as named by
    ``call``.
    """
    bounds: dict[str, tuple[float, float]] = {}
    called, sums = set[Value](), set[str]()
    for step in products.steps:
        if step.result not in products.factors:
            yield step.in_float32()
            if step.template == _SUM:
                sums.add(step.result)
                yield from _rest_of_sum(step.result, *step.operands)
            continue
        product = products.factors[step.result]
        for value in product:
            if isinstance(value, Value) and value not in called:
                called.add(value)
                assert value.segments is not None
                bound, least = bounds.get(value.operand, (math.inf, 0.0))
                bounds[value.operand] = min(bound, value.segments.bound), max(least, value.segments.least)
                yield f"{value.variable}, {value.variable}_rest = {call(value)}"
        yield from _multiplied(step.result, product, sums)
    before = ""
    for operand, (bound, least) in bounds.items():
        size = operand
        for result, product in products.factors.items():
            if not before and len(product) > 1:
                size = f"fma({result}, 0.0, {size})"  # NaN if the result is not finite
        yield f"size = bits(absolute({size}))"
        yield f"outside = ({pattern(bound)} - size){before}"
        if least:
            yield f"outside = outside | ((size - {pattern(least)}) & (0 - size))"
        before = " | outside"


def _rest_of_sum(result: str, x: str, y: str) -> Iterator[str]:
    yield f"second = {result} - {x}"
    yield f"{result}_rest = ({x} - ({result} - second)) + ({y} - second)"


def _multiplied(result: str, product: Product, sums: Collection[str]) -> Iterator[str]:
    """Yield the lines of a product; that of the rest of a sum and another rest is negligible."""
    match product:
        case [Value() as value]:
            # A zero of either sign minus a positive zero keeps its sign.
            yield f"{result} = {value.variable} - (0.0 - {value.variable}_rest)"
        case [str(x), Value() as value]:
            rest = f"fma(-{x}, {value.variable}_rest, 0.0)"
            if x in sums:
                rest = f"fma(-{x}_rest, {value.variable}, {rest})"
            yield f"{result} = fma({x}, {value.variable}, -{rest})"
        case [str(x), str(y), Value() as value]:
            yield f"product = {x} * {y}"
            yield f"lost = fma({x}, {y}, -product)"
            yield from (f"lost = fma({a}, {b}_rest, lost)" for a, b in ((x, y), (y, x)) if b in sums)
            yield f"rest = fma(-lost, {value.variable}, fma(-product, {value.variable}_rest, 0.0))"
            yield f"{result} = fma(product, {value.variable}, -rest)"
        case _:
            yield f"{result} = {' * '.join(map(str, product))}"


def pattern(number: float) -> int:
    """Return the bit pattern of a float32."""
    return int(np.float32(number).view(np.int32))
