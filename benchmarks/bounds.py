"""Interval arithmetic in float64, compiled element by element, to bound billions of exact results.

The error bounds are those of ``aclnn.verify.goldens.enclosures``, which works on arrays at a tenth of the speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from aclnn.kernels.trace import Program, Step, trace
from aclnn.verify.goldens.enclosures import COMPOSED, LARGEST, LEAST, LIBRARY, ROUNDED, greatest, least

Pair = tuple[float, float]
"""The ends of an interval, NaN if unknown."""
Truth = tuple[bool, bool]
"""True if a comparison must hold, and true if it may hold."""

_inlined = numba.njit(nogil=True, error_model="numpy")


@_inlined
def _wide(low: float, high: float, lost: float) -> Pair:
    """Move the ends outwards, except zeros."""
    return low - abs(low) * lost, high + abs(high) * lost


@_inlined
def negative(a: Pair) -> Pair:
    return -a[1], -a[0]


@_inlined
def absolute(a: Pair) -> Pair:
    return greatest(greatest(a[0], -a[1]), 0.0), greatest(-a[0], a[1])


@_inlined
def add(a: Pair, b: Pair) -> Pair:
    return _wide(a[0] + b[0], a[1] + b[1], ROUNDED)


@_inlined
def subtract(a: Pair, b: Pair) -> Pair:
    return _wide(a[0] - b[1], a[1] - b[0], ROUNDED)


@_inlined
def multiply(a: Pair, b: Pair) -> Pair:
    p, q, r, s = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return _wide(least(least(p, q), least(r, s)), greatest(greatest(p, q), greatest(r, s)), ROUNDED)


@_inlined
def divide(a: Pair, b: Pair) -> Pair:
    if b[0] <= 0.0 <= b[1]:
        return math.nan, math.nan
    return multiply(a, _wide(1.0 / b[1], 1.0 / b[0], ROUNDED))


@_inlined
def fma(a: Pair, b: Pair, c: Pair) -> Pair:
    return add(multiply(a, b), c)


@_inlined
def times(dy: Pair, factor: Pair) -> Pair:
    """Multiply a finite dy by a factor."""
    return multiply(dy, factor)


@_inlined
def exp(a: Pair) -> Pair:
    low = math.exp(a[0])
    high = low if a[0] == a[1] else math.exp(a[1])
    low, high = _wide(least(low, LARGEST), high, LIBRARY)
    return (0.0 if low < LEAST else low), greatest(high, LEAST)


@_inlined
def expm1(a: Pair) -> Pair:
    low = math.expm1(a[0])
    high = low if a[0] == a[1] else math.expm1(a[1])
    return _wide(least(low, LARGEST), high, LIBRARY)


@_inlined
def log(a: Pair) -> Pair:
    return _wide(math.log(a[0]), math.log(a[1]), LIBRARY)


@_inlined
def log1p(a: Pair) -> Pair:
    return _wide(math.log1p(a[0]), math.log1p(a[1]), LIBRARY)


@_inlined
def log1pexp(a: Pair) -> Pair:
    rest = log1p(exp(negative(absolute(a))))
    return add((greatest(a[0], 0.0), greatest(a[1], 0.0)), rest)


@_inlined
def complement(e: Pair) -> Pair:
    """Evaluate 1 - 1 / (1 + e) for e ≥ 0."""
    one = 1.0, 1.0
    return divide(e, add(one, e)) if e[1] <= 1.0 else divide(one, add(one, divide(one, e)))


@_inlined
def tanh(a: Pair) -> Pair:
    low, high = _wide(math.tanh(a[0]), math.tanh(a[1]), LIBRARY)
    return greatest(low, -1.0), least(high, 1.0)


@_inlined
def erf(a: Pair) -> Pair:
    low, high = _wide(math.erf(a[0]), math.erf(a[1]), LIBRARY)
    return greatest(low, -1.0), least(high, 1.0)


@_inlined
def erfc(a: Pair) -> Pair:
    low, high = _wide(math.erfc(a[1]), math.erfc(a[0]), LIBRARY)
    return (0.0 if low < LEAST else low), greatest(high, LEAST)


@_inlined
def sqrt(a: Pair) -> Pair:
    return _wide(math.sqrt(a[0]), math.sqrt(a[1]), ROUNDED)


@_inlined
def less(a: Pair, b: Pair) -> Truth:
    return a[1] < b[0], not a[0] >= b[1]


@_inlined
def at_most(a: Pair, b: Pair) -> Truth:
    return a[1] <= b[0], not a[0] > b[1]


@_inlined
def more(a: Pair, b: Pair) -> Truth:
    return less(b, a)


@_inlined
def at_least(a: Pair, b: Pair) -> Truth:
    return at_most(b, a)


@_inlined
def same(a: Pair, b: Pair) -> Truth:
    return a[0] == a[1] and b[0] == b[1] and a[0] == b[0], not (a[0] > b[1] or b[0] > a[1])


@_inlined
def other(a: Pair, b: Pair) -> Truth:
    sure, maybe = same(a, b)
    return not maybe, not sure


@_inlined
def both(a: Truth, b: Truth) -> Truth:
    return a[0] and b[0], a[1] and b[1]


@_inlined
def either(a: Truth, b: Truth) -> Truth:
    return a[0] or b[0], a[1] or b[1]


@_inlined
def inverse(a: Truth) -> Truth:
    return not a[1], not a[0]


@_inlined
def where(condition: Truth, chosen: Pair, otherwise: Pair) -> Pair:
    if condition[0]:
        return chosen
    if not condition[1]:
        return otherwise
    return least(chosen[0], otherwise[0]), greatest(chosen[1], otherwise[1])


_INFIX = {
    "{} + {}": add,
    "{} - {}": subtract,
    "{} * {}": multiply,
    "{} / {}": divide,
    "-{}": negative,
    "{} < {}": less,
    "{} <= {}": at_most,
    "{} > {}": more,
    "{} >= {}": at_least,
    "{} == {}": same,
    "{} != {}": other,
    "{} & {}": both,
    "{} | {}": either,
    "~{}": inverse,
}
_WORDS = (exp, expm1, log, log1p, log1pexp, tanh, erf, erfc, sqrt, absolute, where, fma, times, complement)
_NAMES = {word.__name__: word for word in (*_INFIX.values(), *_WORDS)}


def _operand(text: str, variables: set[str]) -> str:
    """Name a variable, or write a constant's ends; a constant that is not a float32 approximates a real number."""
    if text in variables:
        return text
    value = float(text)
    lost = 0.0 if value == np.float32(value) or not math.isfinite(value) else abs(value) * COMPOSED
    return f"({value - lost!r}, {value + lost!r})"


def _without_cancellation(step: Step, steps: dict[str, Step]) -> Step:
    """Replace 1 - 1 / (1 + e) of an exponential e by one operation, since the difference loses a small e."""
    inner = step
    for template in ("{} - {}", "{} / {}", "{} + {}"):
        if inner.template != template or inner.operands[0] != "1.0" or inner.operands[1] not in steps:
            return step
        inner = steps[inner.operands[1]]
    return Step(step.result, "complement({})", (inner.result,)) if inner.template == "exp({})" else step


def _source(program: Program, operands: int) -> str:
    variables = {f"x{i}" for i in range(program.arity)} | {step.result for step in program.steps}
    lines = [f"x{i} = numbers[{i - operands}], numbers[{i - operands}]" for i in range(operands, program.arity)]
    loop = [f"value{i} = float64(operands[{i}][i]); x{i} = value{i}, value{i}" for i in range(operands)]
    steps = {step.result: step for step in program.steps}
    for written in program.steps:
        step = _without_cancellation(written, steps)
        word = _INFIX[step.template].__name__ if step.template in _INFIX else step.template.partition("(")[0]
        given = ", ".join(_operand(text, variables) for text in step.operands)
        loop.append(f"{step.result} = {word}({given})")
    loop += [f"ends[{k}, 0, i], ends[{k}, 1, i] = {_operand(r, variables)}" for k, r in enumerate(program.results)]
    body = [*(f"    {line}" for line in lines), "    for i in range(ends.shape[2]):", *(f"        {x}" for x in loop)]
    return "\n".join(("def enclose(operands, numbers, ends):", *body, ""))


@cache
def enclosing(formula: Callable[..., Any], operands: int, numbers: int) -> Callable[..., None]:
    """Compile the bounds of a formula's results.

    Args:
        formula: a formula over elements, not rows.
        operands: the number of its tensors.
        numbers: the number of its attributes, which follow the tensors.

    Returns:
        A function of the operands, a tuple of flat arrays; of the numbers, a float64 array; and of a float64 array
        (results, 2, elements) to fill with lower and upper ends. The ends are meaningless for operands that are not
        finite, and NaN if unknown.
    """
    namespace: dict[str, Any] = _NAMES | {"inf": math.inf, "nan": math.nan, "float64": np.float64}
    exec(_source(trace(formula, operands + numbers), operands), namespace)
    compiled: Callable[..., None] = numba.njit(nogil=True, error_model="numpy")(namespace["enclose"])
    return compiled
