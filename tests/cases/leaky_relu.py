"""aclnnLeakyRelu, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges, in_place_edges
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
    OLDEST,
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
    scalar,
    shape,
)
from tests.helpers.exact import Forward

#: In float32.
SLOPE = 0.009999999776482582


def leaky_relu(slope: float) -> Forward:
    return lambda x: x if x[0] > 0 else slope * x


_WIDE = (*FLOATS, D.DOUBLE)
_DTYPES = dict.fromkeys(MODERN, _WIDE) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16, D.DOUBLE)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))
_CURVES = {
    "leaky_relu": Curve(
        leaky_relu(SLOPE),
        {"negativeSlope": scalar(SLOPE)},
        (0.0,),
        (-INFINITE, INFINITE),
        probes(SAMPLE_X, "-0.030000 -0.020000 -0.010000 -0.005000 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
    "leaky_relu_negative": Curve(
        leaky_relu(-0.5),
        {"negativeSlope": scalar(-0.5)},
        (0.0,),
        (INFINITE, INFINITE),
        probes(SAMPLE_X, "1.500000 1.000000 0.500000 0.250000 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
}


def _rows(x: str) -> tuple[Rejected, ...]:
    return (
        Rejected(f"data type: {x}", dtype(D.UINT32, x), x, "data type ACL_FLOAT", "ACL_UINT32"),
        Rejected(f"data type: {x}", dtype(BF16, x), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(
            "real number: negativeSlope",
            {"negativeSlope": scalar(1, D.COMPLEX64)},
            "negativeSlope",
            "a real number",
            "ACL_COMPLEX64",
        ),
    )


LEAKY_RELU = Case(
    operator=BY_NAME["leaky_relu"],
    python=aclnn.leaky_relu,
    call=lambda d: {"self": T(d, GRID), "negativeSlope": scalar(SLOPE), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *every_null("present: self, negativeSlope, out", "self negativeSlope out"),
        *_rows("self"),
        Rejected("holds the result: out", dtype(D.INT32, "out"), "out", "ACL_FLOAT", "ACL_INT32", dtypes=(FLOAT,)),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    ),
    together={("at most 8 dimensions: self", "same shape as self: out"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(_WIDE)), "out"),
    accepted=(*forward_edges(most=8), Accepted("another type", dtype(other, "out"))),
    examples=(
        Example(
            {"self": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0])},
            {"negativeSlope": SLOPE},
            {"out": "1.000000 2.000000 3.000000 4.000000"},
        ),
    ),
)

INPLACE_LEAKY_RELU = Case(
    operator=BY_NAME["inplace_leaky_relu"],
    python=aclnn.inplace_leaky_relu,
    call=lambda d: {"selfRef": T(d, GRID), "negativeSlope": scalar(SLOPE)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *every_null("present: selfRef, negativeSlope", "selfRef negativeSlope"),
        *_rows("selfRef"),
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
    ),
    accepted=in_place_edges(),
    examples=(),
)

_ALIKE = ("gradOutput", "self", "out")
_LISTED = "data type: gradOutput, self"
_PROMOTION = "holds the promotion of gradOutput and self: out"
_BROADCAST = "broadcasts with self: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and self: out"
_NOT_NEGATIVE = "not negative: negativeSlope (if selfIsResult is true)"


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    taken = tuple(d for d in _WIDE if d != BF16 or product in MODERN)
    return {name: {"dtype": draw(st.sampled_from(taken))} for name in _ALIKE}


def _numbers(slope: float) -> dict[str, Any]:
    return {"negativeSlope": scalar(slope), "selfIsResult": False}


LEAKY_RELU_BACKWARD = Case(
    operator=BY_NAME["leaky_relu_backward"],
    python=aclnn.leaky_relu_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), **_numbers(SLOPE), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, _WIDE) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16, D.DOUBLE)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "leaky_relu": Curve(
            leaky_relu(SLOPE),
            _numbers(SLOPE),
            (0.0,),
            (SLOPE, 1.0),
            probes(SAMPLE_X, "0.010000 0.010000 0.010000 0.010000 0.010000 1.000000 1.000000 1.000000 1.000000"),
        ),
        "leaky_relu_negative": Curve(
            leaky_relu(-0.5),
            _numbers(-0.5),
            (0.0,),
            (-0.5, 1.0),
            probes(SAMPLE_X, "-0.500000 -0.500000 -0.500000 -0.500000 -0.500000 1.000000 1.000000 1.000000 1.000000"),
        ),
    },
    rejected=(
        *every_null("present: gradOutput, self, negativeSlope, out", "gradOutput self negativeSlope out"),
        Rejected(_LISTED, dtype(D.UINT32, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_UINT32"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "self"), "self", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(
            "data type: negativeSlope",
            {"negativeSlope": scalar(1, D.COMPLEX64)},
            "negativeSlope",
            "data type ACL_FLOAT",
            "ACL_COMPLEX64",
        ),
        *(
            Rejected(
                "at most 8 dimensions: gradOutput, self",
                shape(NINE, name, "out"),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOutput", "self")
        ),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "out"), "out", "shape [2, 3]", "[1, 2, 3]"),
        Rejected(
            _NOT_NEGATIVE,
            {"negativeSlope": scalar(-0.5), "selfIsResult": True},
            "negativeSlope",
            "a number of 0 or more",
            "-0.5",
        ),
        Rejected(_PROMOTION, dtype(D.INT32, "out"), "out", "ACL_FLOAT", "ACL_INT32", dtypes=(FLOAT,)),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    mixed=_mixed,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted("broadcast to empty", shape((1,), "gradOutput") | shape((0,), "self", "out")),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "out"),
        ),
        Accepted("another type", dtype(other, "out")),
    ),
    examples=(
        Example(
            {"gradOutput": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]), "self": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0])},
            {"negativeSlope": SLOPE, "selfIsResult": False},
            {"out": "2.000000 3.000000 4.000000 5.000000"},
        ),
    ),
)
