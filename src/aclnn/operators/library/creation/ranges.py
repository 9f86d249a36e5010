"""Sequences and matrices given by formulas: aclnnArange, aclnnRange, aclnnLinspace, aclnnLogSpace, aclnnEye."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dtype_in, extents, finite, real, rule, where_supported
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.operators.library.common import INTEGERS, MODERN, library_operator, scalar, support, tensor_out

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE, D.INT32, D.INT64)
_SPACED = (*_DTYPES, D.INT8, D.UINT8, D.INT16)
_ONES = (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS, D.BOOL)
_POWERS = FLOATING

_LIMITS = "start", "end", "step"


def _limits(call: Call, whole: Collection[D] = INTEGERS) -> list[Any]:
    """Return the numbers, truncated if out has one of these types."""
    numbers = (call[name].value.item() for name in _LIMITS)
    return [int(number) if call["out"].dtype in whole else number for number in numbers]


def _count(call: Call) -> int:
    # For INT32, PyTorch counts elements with the fractions, and CANN accepts the size it is given.
    start, end, step = _limits(call, (D.INT64,))
    with_end = call.operator.name == "range"
    if all(isinstance(number, int) for number in (start, end, step)):
        return int((end - start) // step + 1 if with_end else -((start - end) // step))
    steps = (float(end) - float(start)) / float(step)
    return math.floor(steps) + 1 if with_end else math.ceil(steps)


def _step(call: Call) -> str | None:
    start, end, step = _limits(call)
    if step == 0:
        return f"step: expected a number other than 0, got {step}"
    if (end - start) * math.copysign(1, step) < 0:
        return f"step: expected one that leads from {start} to {end}, got {step}"
    return None


def _size(call: Call) -> str | None:
    expected, got = _count(call), call["out"].shape
    if got[-1:] == (expected,) and math.prod(got) == expected:
        return None
    return f"out: expected shape [{expected}], perhaps after dimensions of 1, got {extents(got)}"


def _arange_work(call: Call) -> Library | None:
    start, _, step = _limits(call)
    count = _count(call)
    return Library(lambda: start + np.arange(count) * step, (), ("out",)) if count else None


def _spaced(start: float, end: float, steps: int) -> Any:
    """Return evenly spaced numbers, each computed from the nearer end."""
    places, step = np.arange(steps), (end - start) / max(steps - 1, 1)
    return np.where(places < steps // 2, start + places * step, end - places[::-1] * step) if steps > 1 else start


def _linspace_work(call: Call) -> Library | None:
    dtype, steps = call["out"].dtype, call["steps"]
    start, end = (call[name].value.item() for name in ("start", "end"))
    # INT64 is computed in FLOAT.
    if dtype in INTEGERS and dtype != D.INT64:
        start, end = (convert(np.asarray(limit), dtype.numpy) for limit in (start, end))
    shape = call["out"].shape
    return Library(lambda: np.reshape(_spaced(float(start), float(end), steps), shape), (), ("out",)) if steps else None


def _spaced_types(product: Product) -> frozenset[D]:
    taken = where_supported(_SPACED)(product)
    return taken if product in MODERN else taken - {D.INT16, D.INT64}


def _as_many_as_steps(call: Call) -> str | None:
    expected, got = call["steps"], call["out"].shape
    if expected >= 0 and math.prod(got) == expected:
        return None
    return f"out: expected {expected} elements, got {extents(got)}"


def _of_steps(call: Call) -> str | None:
    expected, got = call["steps"], call["result"].shape
    return None if got == (expected,) else f"result: expected shape [{expected}], got {extents(got)}"


OPERATORS = (
    *(
        Operator(
            name=name,
            summary=f"Fill a vector with equally spaced numbers{words}.",
            formula=f"out[i] = start + i * step, {limit} end",
            parameters=(
                scalar("start", "the first number"),
                scalar("end", meaning),
                scalar("step", "the step"),
                tensor_out(),
            ),
            support=support(_DTYPES),
            checks=(
                dtype_in(where_supported(_DTYPES), "out"),
                real(*_LIMITS),
                finite(*_LIMITS),
                rule("from start to end: step", _step),
                rule("as many as there are: out", _size),
            ),
            work=_arange_work,
        )
        for name, words, limit, meaning in (
            ("arange", "", "below", "the end, exclusive"),
            ("range", " up to a number", "up to", "the end, inclusive"),
        )
    ),
    Operator(
        name="linspace",
        summary="Fill a vector with evenly spaced numbers, both ends included.",
        formula="out[i] = start + i * (end - start) / (steps - 1)",
        parameters=(
            scalar("start", "the first number"),
            scalar("end", "the last exponent"),
            Parameter("steps", "steps", Kind.INT64, "the number of elements"),
            tensor_out(),
        ),
        support=support(_SPACED),
        checks=(dtype_in(_spaced_types, "out"), real("start", "end"), rule("as many as steps: out", _as_many_as_steps)),
        work=_linspace_work,
    ),
    library_operator(
        "log_space",
        "result[i] = base^(start + i * (end - start) / (steps - 1))",
        "Fill a vector with logarithmically spaced numbers, both ends included.",
        (
            scalar("start", "the first exponent"),
            scalar("end", "the last exponent"),
            Parameter("steps", "steps", Kind.INT64, "the number of elements"),
            Parameter("base", "base", Kind.DOUBLE, "the base; above 0"),
            tensor_out("result", const=True),
        ),
        (
            dtype_in(where_supported(_POWERS), "result"),
            rule(
                "above 0: base",
                lambda call: None if call["base"] > 0 else f"base: expected a number above 0, got {call['base']}",
            ),
            real("start", "end"),
            rule("as many as steps: result", _of_steps),
        ),
        lambda start, end, steps, base: np.float64(base) ** _spaced(float(start), float(end), steps),
        header="logspace",
        dtypes=_POWERS,
        products=MODERN,
        attributes=("steps", "base"),
    ),
    library_operator(
        "eye",
        "out[i, i] = 1, 0 elsewhere",
        "Fill a matrix with ones on its diagonal.",
        (
            Parameter("n", "n", Kind.INT64, "the number of rows"),
            Parameter("m", "m", Kind.INT64, "the number of columns"),
            tensor_out(),
        ),
        (
            dtype_in(where_supported(_ONES), "out"),
            rule(
                "n by m: out",
                lambda call: (
                    None
                    if call["out"].shape == (call["n"], call["m"])
                    else f"out: expected shape [{call['n']}, {call['m']}], got {extents(call['out'].shape)}"
                ),
            ),
        ),
        lambda n, m: np.eye(n, m),
        dtypes=_ONES,
        attributes=("n", "m"),
    ),
)
