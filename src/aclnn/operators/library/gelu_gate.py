"""aclnnGeluMul, Gelu of one half of the columns multiplied by the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dims_between, extents, generated, nothing_to_write, one_of, rule, shape_is
from aclnn.core.operator import Call, Kind, Library, Parameter, Shape
from aclnn.operators.library.common import declared, tensor_in, tensor_out

_APPROXIMATE = "approximateOptional"
_MOST_COLUMNS, _MOST_ROWS = 1024, 200_000
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _columns(call: Call) -> str | None:
    got = call["input"].shape
    if got[-1] % 2 == 0 and got[-1] <= _MOST_COLUMNS and math.prod(got[:-1]) <= _MOST_ROWS:
        return None
    expected = f"an even number of at most {_MOST_COLUMNS} columns and at most {_MOST_ROWS} rows"
    return f"input: expected {expected}, got {extents(got)}"


def _half(call: Call) -> Shape:
    shape: Shape = call["input"].shape
    return (*shape[:-1], shape[-1] // 2)


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None
    is_tanh = call[_APPROXIMATE] == "tanh"

    def multiply(x: Any) -> Any:
        gate, factor = np.split(x.astype(np.float64), 2, -1)
        if is_tanh:
            return gate * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * factor
        return gate * 0.5 * _erfc(-gate / math.sqrt(2)) * factor

    return Library(multiply, ("input",), ("out",))


OPERATORS = (
    declared(
        "gelu_mul",
        "a, b = halves of input,  out = gelu(a) * b",
        "Gelu of the first half of the columns, multiplied by the second.",
        (
            tensor_in("input", "rows of both halves"),
            Parameter(_APPROXIMATE, _APPROXIMATE, Kind.STRING, "none (erf; also null) or tanh", optional=True),
            tensor_out("out", "the products", const=True),
        ),
        generated(
            ("input",),
            ("out",),
            lambda product: [(d, d) for d in FLOATING],
            one_of(_APPROXIMATE, None, "none", "tanh"),
            dims_between(2, 8, "input"),
            rule("even columns, few rows: input", _columns),
            shape_is("half of input", _half, "out"),
        ),
        _work,
    ),
)
