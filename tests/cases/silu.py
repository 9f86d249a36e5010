"""aclnnSilu and its gradient."""

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
    NAN,
    NINE,
    NO_KERNEL,
    NOT_950,
    NOT_ON_950,
    OLD,
    OLDEST,
    ON_950,
    ONLY_950,
    SAMPLE_X,
    Accepted,
    Arguments,
    Case,
    Change,
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


def silu(x: Any) -> Any:
    return x / (1 + (-x).exp())


def _silu_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    if product != Product.ASCEND_950:
        return {}
    dy, x = (draw(st.sampled_from(FLOATS)) for _ in range(2))
    return dtype(dy, "gradOutput") | dtype(x, "self") | dtype(dy if dy == x else FLOAT, "gradInput")


_MIXED = "gradOutput and self have different data types on Ascend 950PR / 950DT"
_MIXED_FLOAT = f"data type ACL_FLOAT: gradInput (if {_MIXED})"
_PAIRED_GRAD_OUTPUT, _PAIRED_SELF = (
    f"same data type as gradInput: {name} (unless {_MIXED})" for name in ("gradOutput", "self")
)

SILU_BACKWARD = Case(
    mixed=_silu_mixed,
    operator=BY_NAME["silu_backward"],
    python=aclnn.silu_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "gradInput": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "silu": Curve(
            silu,
            {},
            (-1.27846454276,),
            (float("nan"), float("nan")),
            probes(SAMPLE_X, "-0.088104 -0.090784 0.072329 0.260039 0.500000 0.739961 0.927671 1.090784 1.088104"),
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        *(
            Rejected(
                "data type: gradOutput, self, gradInput",
                dtype(D.DOUBLE, name),
                name,
                "data type ACL_FLOAT",
                "ACL_DOUBLE",
            )
            for name in ("gradOutput", "self", "gradInput")
        ),
        Rejected(
            _MIXED_FLOAT,
            dtype(FLOAT, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "16",
            products=ONLY_950,
            dtypes=(FLOAT16,),
        ),
        Rejected(
            _MIXED_FLOAT,
            dtype(FLOAT16, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "ACL_BF16",
            products=ONLY_950,
            dtypes=(BF16,),
        ),
        Rejected(
            _PAIRED_GRAD_OUTPUT,
            dtype(other, "gradOutput"),
            "gradOutput",
            "data type",
            "ACL_FLOAT",
            products=NOT_950,
        ),
        Rejected(
            _PAIRED_GRAD_OUTPUT,
            dtype(other, "gradInput"),
            "gradOutput",
            "that of gradInput",
            "ACL_",
            products=ONLY_950,
        ),
        Rejected(
            _PAIRED_SELF,
            dtype(other, "self"),
            "self",
            "data type",
            "ACL_FLOAT",
            products=NOT_950,
        ),
        Rejected(
            "data type: self, gradOutput",
            dtype(BF16, "gradOutput", "self", "gradInput"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected(
            "at most 8 dimensions: gradOutput, self",
            shape(NINE, "gradOutput", "self", "gradInput"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Rejected("at most 8 dimensions: gradOutput, self", shape(NINE, "self"), "self", "at most 8 dimensions", "9"),
        Rejected(
            "same shape as gradInput: gradOutput" + NOT_ON_950,
            shape((1, 3), "gradOutput"),
            "gradOutput",
            "shape [2, 3]",
            "[1, 3]",
            products=NOT_950,
        ),
        Rejected(
            "same shape as gradInput: self" + NOT_ON_950,
            shape((3,), "self"),
            "self",
            "shape [2, 3]",
            "[3]",
            products=NOT_950,
        ),
        Rejected(
            "broadcasts with self: gradOutput" + ON_950,
            shape((4, 3), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[4, 3]",
            products=ONLY_950,
        ),
        Rejected(
            "broadcast shape of gradOutput and self: gradInput" + ON_950,
            shape((1, 2, 3), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[1, 2, 3]",
            products=ONLY_950,
        ),
    ),
    never_together=frozenset(
        {
            # One is for a mixed pair on the 950 class, the other for everything else.
            (_MIXED_FLOAT, _PAIRED_GRAD_OUTPUT),
            # One is for the older products, the other for the 950 class.
            ("same shape as gradInput: self" + NOT_ON_950, "broadcasts with self: gradOutput" + ON_950),
            # The second compares with the broadcast shape, which then does not exist.
            ("broadcasts with self: gradOutput" + ON_950, "broadcast shape of gradOutput and self: gradInput" + ON_950),
        }
    ),
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "self", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "gradInput")),
        Accepted("any formats", {"self": {"format": Format.FORMAT_NCHW}, "gradInput": {"format": Format.FORMAT_NHWC}}),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
            ONLY_950,
        ),
        Accepted("broadcast to empty", shape((1,), "gradOutput") | shape((0,), "self", "gradInput"), ONLY_950),
        Accepted("float16 with float32", dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "self", "gradInput"), ONLY_950),
        Accepted(
            "bfloat16 with float16",
            dtype(BF16, "gradOutput") | dtype(FLOAT16, "self") | dtype(FLOAT, "gradInput"),
            ONLY_950,
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 3)), [1.0] * 6),
                "self": (T(FLOAT, (2, 3)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            },
            {},
            {"gradInput": "0.927671 1.090784 1.088104 1.052665 1.026547 1.012326"},
        ),
    ),
)


SILU = Case(
    operator=BY_NAME["silu"],
    python=aclnn.silu,
    call=forward_call("self", "out"),
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "silu": Curve(
            silu,
            {},
            (0.0,),
            (NAN, INFINITE),
            probes(SAMPLE_X, "-0.142278 -0.238406 -0.268941 -0.188770 0.000000 0.311230 0.731059 1.761594 2.857722"),
        )
    },
    rejected=forward_rows("null", "lists", "dtype", "bfloat16", "shape"),
    together={("same data type as self: out", "data type: self"): dtype(BF16, "self")},
    accepted=forward_edges(),
    examples=(),
)
