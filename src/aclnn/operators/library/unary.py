"""aclnnAbs, aclnnCeil."""

from __future__ import annotations

import numpy as np

from aclnn.core.checks import (
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
from aclnn.core.operator import Call
from aclnn.operators.library.common import (
    INTEGERS,
    REAL_FLOATING,
    library_operator,
    tensor_in,
    tensor_out,
)

_SELF, _OUT = tensor_in("self", "x"), tensor_out()
_WITH_MAGNITUDE = (*REAL_FLOATING, *INTEGERS, D.BOOL, D.COMPLEX64)


def _magnitude(call: Call) -> str | None:
    expected = D.FLOAT if call["self"].dtype == D.COMPLEX64 else call["self"].dtype
    got = call["out"].dtype
    if got == expected:
        return None
    return f"out: expected data type {expected.c_name} (of the absolute value of self), got {got.c_name}"


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
)
