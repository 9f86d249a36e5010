"""aclnnHardswish, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    GRID,
    INFINITE,
    MODERN,
    NINE,
    NO_KERNEL,
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


def _hardswish(x: Any) -> Any:
    # The derivative at ±3 is the middle branch's, by the document.
    return 0 * x if x[0] < -3 else x if x[0] > 3 else x * (x + 3) / 6


def _hardswish_v2(x: Any) -> Any:
    # The derivative at ±3 is that of the outer branches.
    return 0 * x if x[0] <= -3 else x if x[0] >= 3 else x * (x + 3) / 6


HARDSWISH_BACKWARD = Case(
    operator=BY_NAME["hardswish_backward"],
    python=aclnn.hardswish_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "hardswish": Curve(
            _hardswish,
            {},
            (-3.0, -1.5, 3.0),
            (0.0, 1.0),
            probes(
                [-4.0, -3.0, -2.0, -1.5, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
                "0.000000 -0.500000 -0.166667 0.000000 0.166667 0.500000 0.833333 1.166667 1.500000 1.000000",
            ),
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, out", "gradOutput self out"),
        Rejected("data type: self, gradOutput", dtype(D.INT64, "self"), "self", "data type ACL_FLOAT", "ACL_INT64"),
        Rejected(
            "data type: self, gradOutput",
            dtype(BF16, "self", "gradOutput", "out"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected(
            "data type: self, gradOutput",
            dtype(D.DOUBLE, "gradOutput"),
            "gradOutput",
            "data type ACL_FLOAT",
            "ACL_DOUBLE",
        ),
        Rejected(
            "same data type as self: gradOutput", dtype(other, "gradOutput"), "gradOutput", "data type", "ACL_FLOAT"
        ),
        Rejected("same data type as self: out", dtype(other, "out"), "out", "data type", "ACL_FLOAT"),
        Rejected(
            "at most 8 dimensions: gradOutput, self",
            shape(NINE, "gradOutput", "self", "out"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Rejected("at most 8 dimensions: gradOutput, self", shape(NINE, "self"), "self", "at most 8 dimensions", "9"),
        Rejected("same shape as self: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "shape [2, 3]", "[1, 3]"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    ),
    accepted=(
        Accepted("empty", shape((0, 3), "gradOutput", "self", "out")),
        Accepted("0-dim", shape((), "gradOutput", "self", "out")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "out")),
        Accepted(
            "any formats",
            {
                "gradOutput": {"format": Format.FORMAT_HWCN},
                "self": {"format": Format.FORMAT_NCDHW},
                "out": {"format": Format.FORMAT_NDHWC},
            },
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {},
            {"out": "0.000000 0.833333 2.333333 4.500000 4.000000 5.000000 6.000000 7.000000"},
        ),
    ),
)


HARDSWISH_BACKWARD_V2 = Case(
    operator=BY_NAME["hardswish_backward_v2"],
    python=aclnn.hardswish_backward_v2,
    call=HARDSWISH_BACKWARD.call,
    dtypes=HARDSWISH_BACKWARD.dtypes,
    unsupported=HARDSWISH_BACKWARD.unsupported,
    curves={
        "hardswish": Curve(
            _hardswish_v2,
            {},
            (-3.0, -1.5, 3.0),
            (0.0, 1.0),
            probes(
                [-4.0, -3.0, -2.0, -1.5, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
                "0.000000 0.000000 -0.166667 0.000000 0.166667 0.500000 0.833333 1.166667 1.000000 1.000000",
            ),
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, out", "gradOutput self out"),
        Rejected(
            "data type: gradOutput, self",
            dtype(D.INT64, "gradOutput"),
            "gradOutput",
            "data type ACL_FLOAT",
            "ACL_INT64",
        ),
        Rejected(
            "data type: gradOutput, self",
            dtype(BF16, "self", "gradOutput", "out"),
            "gradOutput",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected("data type: gradOutput, self", dtype(D.INT64, "self"), "self", "data type ACL_FLOAT", "ACL_INT64"),
        *(
            rejection
            for rejection in HARDSWISH_BACKWARD.rejected
            if not rejection.check.startswith(("present", "data"))
        ),
    ),
    accepted=HARDSWISH_BACKWARD.accepted,
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {},
            {"out": "0.000000 0.833333 2.333333 3.000000 4.000000 5.000000 6.000000 7.000000"},
        ),
    ),
)


def _hardswish_forward(x: Any) -> Any:
    return 0 * x if x[0] <= -3 else x if x[0] >= 3 else x * (x + 3) / 6


_HARDSWISH_CURVES = {
    "hardswish": Curve(
        _hardswish_forward,
        {},
        (-3.0, 0.0, 3.0),
        (0.0, INFINITE),
        probes(SAMPLE_X, "0.000000 -0.333333 -0.333333 -0.208333 0.000000 0.291667 0.666667 1.666667 3.000000"),
    )
}
_HARDSWISH_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}


HARDSWISH = Case(
    operator=BY_NAME["hardswish"],
    python=aclnn.hardswish,
    call=forward_call("self", "out"),
    dtypes=_HARDSWISH_DTYPES,
    unsupported=dict.fromkeys(OLD[:2], (NO_KERNEL, "product")),
    curves=_HARDSWISH_CURVES,
    rejected=forward_rows("null", "lists", "shape"),
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(FLOATS)), "out"),
    accepted=(
        *forward_edges(),
        Accepted("another type", dtype(other, "out")),
        Accepted("narrowed", dtype(FLOAT, "self") | dtype(BF16, "out"), MODERN),
    ),
    examples=(),
)


INPLACE_HARDSWISH = Case(
    operator=BY_NAME["inplace_hardswish"],
    python=aclnn.inplace_hardswish,
    call=lambda d: {"self": T(d, GRID)},
    dtypes=_HARDSWISH_DTYPES,
    unsupported=dict.fromkeys(OLD[:2], (NO_KERNEL, "product")),
    curves=_HARDSWISH_CURVES,
    rejected=(
        *every_null("present: self", "self"),
        Rejected("data type: self", dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected("data type: self", dtype(BF16, "self"), "self", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
    ),
    never_together=frozenset({("present: self", "data type: self")}),
    accepted=(
        Accepted("empty", shape((0, 4), "self")),
        Accepted("0-dim", shape((), "self")),
        Accepted("9 dimensions", shape((2,) + (1,) * 7 + (3,), "self")),
    ),
    examples=(),
)
