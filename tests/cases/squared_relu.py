"""aclnnSquaredRelu."""

from __future__ import annotations

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call
from tests.cases.table import (
    FLOAT,
    FLOATS,
    INFINITE,
    MODERN,
    NINE,
    NO_KERNEL_FOUND,
    OLD,
    SAMPLE_X,
    Accepted,
    Case,
    Curve,
    Example,
    Rejected,
    T,
    dtype,
    every_null,
    other,
    probes,
    shape,
)

_BOTH = ("input", "out")

SQUARED_RELU = Case(
    operator=BY_NAME["squared_relu"],
    python=aclnn.squared_relu,
    call=forward_call(*_BOTH),
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(OLD, (NO_KERNEL_FOUND, "product")),
    curves={
        "squared_relu": Curve(
            lambda x: x * x if x[0] > 0 else 0 * x,
            {},
            (0.0,),
            (0.0, INFINITE),
            probes(SAMPLE_X, "0.000000 0.000000 0.000000 0.000000 0.000000 0.250000 1.000000 4.000000 9.000000"),
        )
    },
    rejected=(
        *every_null("present: input, out", "input out"),
        Rejected("kernel of the product", {}, "product", "a kernel", "Atlas", NO_KERNEL_FOUND, OLD),
        Rejected("data type: input", dtype(D.DOUBLE, *_BOTH), "input", "ACL_FLOAT", "ACL_DOUBLE", products=MODERN),
        Rejected("same data type as input: out", dtype(other, "out"), "out", "that of input", "ACL_", products=MODERN),
        *(
            Rejected(
                "format that counts as ND: input, out",
                {name: {"format": Format.FORMAT_NDHWC}},
                name,
                "ACL_FORMAT_ND",
                "ACL_FORMAT_NDHWC",
                products=MODERN,
            )
            for name in _BOTH
        ),
        Rejected("at least 1 dimension: input", shape((), *_BOTH), "input", "1 dimension", "0", products=MODERN),
        Rejected("at most 8 dimensions: input", shape(NINE, *_BOTH), "input", "at most 8", "9", products=MODERN),
        Rejected("same shape as input: out", shape((3, 2), "out"), "out", "[2, 3]", "[3, 2]", products=MODERN),
    ),
    together={
        ("kernel of the product", "data type: input"): dtype(D.DOUBLE, "input"),
        ("data type: input", "same data type as input: out"): dtype(D.DOUBLE, "input"),
        ("at most 8 dimensions: input", "same shape as input: out"): shape(NINE, "input"),
    },
    never_together=frozenset({("at least 1 dimension: input", "at most 8 dimensions: input")}),
    accepted=(
        Accepted("empty", shape((0, 4), *_BOTH)),
        Accepted("1 dimension", shape((5,), *_BOTH)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_BOTH)),
        Accepted("formats that count as ND", {"input": {"format": Format.FORMAT_NCL}}),
    ),
    reshape=lambda rows, columns: shape(rows + columns or (1,), *_BOTH),
    examples=(
        Example(
            {"input": (T(FLOAT, (2, 4)), [0.0, 1.0, 2.0, -33.0, 4.0, 5.0, 6.0, 7.0])},
            {},
            {"out": "0.000000 1.000000 4.000000 0.000000 16.000000 25.000000 36.000000 49.000000"},
        ),
    ),
)
