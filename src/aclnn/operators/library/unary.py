"""aclnnAbs, aclnnCeil, aclnnNeg, aclnnExp, aclnnSqrt, aclnnReciprocal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    castable_from,
    dtype_in,
    limited_dims,
    present,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Operator
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    NUMBERS,
    REAL_FLOATING,
    WITH_INFERENCE,
    library_operator,
    tensor_in,
    tensor_out,
)

_SELF, _OUT = tensor_in("self", "x"), tensor_out()
_FIELDS = (*REAL_FLOATING, *COMPLEX)
_WITH_MAGNITUDE = (*REAL_FLOATING, *INTEGERS, D.BOOL, D.COMPLEX64)


def _magnitude(call: Call) -> str | None:
    expected = D.FLOAT if call["self"].dtype == D.COMPLEX64 else call["self"].dtype
    got = call["out"].dtype
    if got == expected:
        return None
    return f"out: expected data type {expected.c_name} (of the absolute value of self), got {got.c_name}"


def _computed(call: Call) -> D:
    """Integers and BOOL are computed as FLOAT, INT64's square root as DOUBLE."""
    dtype: D = call["self"].dtype
    if dtype in _FIELDS:
        return dtype
    return D.DOUBLE if (call.operator.name, dtype) == ("sqrt", D.INT64) else D.FLOAT


def _function(
    name: str,
    formula: str,
    summary: str,
    dtypes: Collection[D],
    function: Callable[[Any], Any],
    dtype: Callable[[Call], D],
) -> Operator:
    return library_operator(
        name,
        formula,
        summary,
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(dtypes), "self"),
            castable_from(dtype, "out"),
            same_shape("out", "self"),
            limited_dims("self"),
        ),
        function,
        header=name,
        dtype=dtype,
        dtypes=dtypes,
    )


OPERATORS = (
    library_operator(
        "abs",
        "out = |self|",
        "Absolute value.",
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(
                lambda product: (
                    where_supported(_WITH_MAGNITUDE)(product) - (set() if product.has_bfloat16 else {D.COMPLEX64})
                ),
                "self",
            ),
            rule("data type of the absolute value: out", _magnitude),
            same_format("out", "self"),
            public_format("self"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        np.abs,
        header="abs",
        dtypes=_WITH_MAGNITUDE,
        stream_type="const aclrtStream ",
    ),
    library_operator(
        "ceil",
        "out = least integer not below self",
        "Round up to an integer.",
        (_SELF, _OUT),
        (
            present("self", "out"),
            same_dtype("out", "self"),
            dtype_in(where_supported(REAL_FLOATING), "self"),
            same_shape("out", "self"),
            limited_dims("self"),
        ),
        np.ceil,
        header="ceil",
        dtypes=REAL_FLOATING,
        stream_type="const aclrtStream ",
    ),
    _function(
        "neg",
        "out = -self",
        "Negate.",
        (*REAL_FLOATING, D.INT8, D.INT32, D.INT64, *COMPLEX),
        np.negative,
        lambda call: call["self"].dtype,
    ),
    _function("exp", "out = e^self", "Exponentials.", (*_FIELDS, D.BOOL, D.INT64), np.exp, _computed),
    _function("sqrt", "out = sqrt(self)", "Square roots.", NUMBERS, np.sqrt, _computed),
    library_operator(
        "reciprocal",
        "out = 1 / self",
        "Reciprocals.",
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(NUMBERS), "self"),
            dtype_in(where_supported(_FIELDS), "out"),
            same_format("out", "self"),
            limited_dims("self", "out"),
            same_shape("out", "self"),
        ),
        lambda x: 1 / x,
        header="reciprocal",
        dtype=_computed,
        dtypes=NUMBERS,
        products=WITH_INFERENCE,
    ),
)
