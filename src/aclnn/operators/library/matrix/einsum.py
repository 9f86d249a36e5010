"""aclnnEinsum, for the two equations that it takes: batches of matrices times vectors, and outer products."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    extents,
    fits,
    rule,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, constant_text, tensor_out
from aclnn.operators.library.lists import alike, each_of, not_null, of_types

_MATRICES, _OUTER = "abcd,abced->abce", "a,b->ab"
_TYPES = frozenset({D.FLOAT16, D.FLOAT, D.INT16, D.UINT16, D.INT32, D.UINT32, D.INT64, D.UINT64})


def _types(product: Product) -> frozenset[D]:
    return _TYPES - {D.FLOAT} if product is Product.ATLAS_INFERENCE else _TYPES


def _equation(call: Call) -> str:
    """Return the equation with its letters replaced by a, b … in the order of their appearance."""
    letters: dict[str, str] = {}
    text = call["equation"] or ""
    return "".join(letters.setdefault(c, chr(ord("a") + len(letters))) if c.isalpha() else c for c in text)


def _known_equation(call: Call) -> str | None:
    if _equation(call) in (_MATRICES, _OUTER):
        return None
    return f"equation: expected {_MATRICES!r} or {_OUTER!r}, in any letters, got {call['equation']!r}"


def _two(call: Call) -> str | None:
    got = len(call["tensors"])
    return None if got == 2 else f"tensors: expected two, got {got}"


def _nd(call: Call, name: str, at: int) -> str | None:
    got = call[name][at].format
    return None if got == Format.FORMAT_ND else f"expected format ACL_FORMAT_ND, got {got.c_name}"


def _shapes(call: Call) -> str | None:
    first, second = (tensor.shape for tensor in call["tensors"])
    if _equation(call) == _OUTER:
        if len(first) == len(second) == 1:
            return None
        return f"tensors: expected shapes [a] and [b], got {extents(first)} and {extents(second)}"
    if len(first) == 4 and len(second) == 5 and first == (*second[:3], second[4]) and 0 not in second:
        return None
    return (
        "tensors: expected shapes [a, b, c, d] and [a, b, c, e, d] without a dimension of 0, "
        f"got {extents(first)} and {extents(second)}"
    )


def _result(call: Call) -> tuple[int, ...]:
    first, second = (tensor.shape for tensor in call["tensors"])
    return (*first, *second) if _equation(call) == _OUTER else second[:4]


def _work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    equation = _equation(call)

    def contract(*tensors: Any) -> Any:
        return np.einsum(equation, *tensors)

    return Library(contract, ("tensors[0]", "tensors[1]"), ("output",))


OPERATORS = (
    Operator(
        name="einsum",
        summary="Multiply two tensors by Einstein's summation convention.",
        formula="output = sum of tensors[0] * tensors[1] over the letters that the result lacks",
        parameters=(
            Parameter("tensors", "tensors", Kind.INPUT_LIST, "the two factors"),
            constant_text("equation", f"{_MATRICES} or {_OUTER}, in any letters"),
            tensor_out("output"),
        ),
        support={product: _types(product) for product in (*MODERN, Product.ATLAS_INFERENCE)},
        checks=(
            present("tensors", "output"),
            each_of("no null among them", ("tensors",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("tensors",), of_types(_types)),
            each_of("format ACL_FORMAT_ND each", ("tensors",), _nd),
            dtype_in(_types, "output"),
            rule("two: tensors", _two),
            each_of("one data type", ("tensors",), alike("tensors")),
            fits("data type {} (that of tensors)", lambda call, got: (call["tensors"][0].dtype, got.dtype), "output"),
            rule("known equation: equation", _known_equation),
            rule("shapes of the equation: tensors", _shapes),
            shape_is("of the equation's result", _result, "output"),
        ),
        work=_work,
    ),
)
