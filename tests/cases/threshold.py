"""aclnnRelu and aclnnThreshold, also in place, and their gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows, in_place_edges
from tests.cases.table import (
    A2_CLASS,
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
    Case,
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

_NARROW = (D.INT8, D.INT32, D.UINT8)
_INTEGERS = (*_NARROW, D.INT64)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))


def threshold(limit: float, value: float) -> Forward:
    return lambda x: x if x[0] > limit else 0 * x + value


def _listed(x: str) -> tuple[Rejected, ...]:
    return (
        Rejected(f"data type: {x}", dtype(D.BOOL, x), x, "data type ACL_FLOAT", "ACL_BOOL"),
        Rejected(f"data type: {x}", dtype(BF16, x), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
    )


_RELU = {
    "relu": Curve(
        threshold(0.0, 0.0),
        {},
        (0.0,),
        (0.0, INFINITE),
        probes(SAMPLE_X, "0.000000 0.000000 0.000000 0.000000 0.000000 0.500000 1.000000 2.000000 3.000000"),
    )
}

RELU = Case(
    operator=BY_NAME["relu"],
    python=aclnn.relu,
    call=forward_call("self", "out"),
    dtypes=_DTYPES,
    also=dict.fromkeys(_DTYPES, _INTEGERS),
    unsupported=_UNSUPPORTED,
    curves=_RELU,
    rejected=(
        *forward_rows("null"),
        Rejected("data type: self", dtype(D.BOOL, "self", "out"), "self", "data type ACL_FLOAT", "ACL_BOOL"),
        Rejected(
            "data type: self", dtype(BF16, "self", "out"), "self", "data type ACL_FLOAT", "ACL_BF16", products=OLD
        ),
        *forward_rows("dtype"),
        Rejected("at most 8 dimensions: self, out", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("at most 8 dimensions: self, out", shape(NINE, "out"), "out", "at most 8 dimensions", "9"),
        Rejected("same shape as out: self", shape((3, 2), "out"), "self", "shape [3, 2]", "[2, 3]"),
    ),
    together={("data type: self", "same data type as self: out"): dtype(D.BOOL, "self")},
    accepted=forward_edges(most=8),
    examples=(
        Example({"self": (T(FLOAT, (2, 2)), [0.0, 1.0, 2.0, 3.0])}, {}, {"out": "0.000000 1.000000 2.000000 3.000000"}),
    ),
)

INPLACE_RELU = Case(
    operator=BY_NAME["inplace_relu"],
    python=aclnn.inplace_relu,
    call=lambda d: {"selfRef": T(d, GRID)},
    dtypes=_DTYPES,
    also=RELU.also,
    unsupported=_UNSUPPORTED,
    curves=_RELU,
    rejected=(
        *every_null("present: selfRef", "selfRef"),
        *_listed("selfRef"),
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
    ),
    never_together=frozenset({("present: selfRef", "data type: selfRef")}),
    accepted=in_place_edges(),
    examples=(),
)


def _numbers(limit: float, value: float) -> dict[str, Any]:
    return {"threshold": scalar(limit), "value": scalar(value)}


_REAL = tuple(
    Rejected("real number: threshold, value", {name: scalar(1, D.COMPLEX64)}, name, "a real number", "ACL_COMPLEX64")
    for name in ("threshold", "value")
)
_THRESHOLD = {
    "threshold": Curve(
        threshold(0.5, -1.0),
        _numbers(0.5, -1.0),
        (0.5,),
        (-1.0, INFINITE),
        probes(SAMPLE_X, "-1.000000 -1.000000 -1.000000 -1.000000 -1.000000 -1.000000 1.000000 2.000000 3.000000"),
    )
}

THRESHOLD = Case(
    operator=BY_NAME["threshold"],
    python=aclnn.threshold,
    call=lambda d: {"self": T(d, GRID), **_numbers(0.5, -1.0), "out": T(d, GRID)},
    dtypes=_DTYPES,
    also=dict.fromkeys(_DTYPES, (*_INTEGERS, D.INT16)),
    unsupported=_UNSUPPORTED,
    curves=_THRESHOLD,
    rejected=(
        *every_null("present: self, out, threshold, value", "self out threshold value"),
        *_listed("self"),
        *_REAL,
        Rejected("holds the result: out", dtype(D.INT32, "out"), "out", "ACL_FLOAT", "ACL_INT32", dtypes=(FLOAT,)),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("same shape as out: self", shape((3, 2), "out"), "self", "shape [3, 2]", "[2, 3]"),
    ),
    together={("at most 8 dimensions: self", "same shape as out: self"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from((*FLOATS, D.DOUBLE))), "out"),
    accepted=(*forward_edges(most=8), Accepted("another type", dtype(other, "out"))),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [0.0, 1.0, 2.0, 3.0, 4.1, 5.0, 6.0, 7.0])},
            {"threshold": 4.1, "value": 10.0},
            {"out": "10.000000 10.000000 10.000000 10.000000 10.000000 5.000000 6.000000 7.000000"},
        ),
    ),
)

INPLACE_THRESHOLD = Case(
    operator=BY_NAME["inplace_threshold"],
    python=aclnn.inplace_threshold,
    call=lambda d: {"selfRef": T(d, GRID), **_numbers(0.5, -1.0)},
    dtypes=_DTYPES,
    also=THRESHOLD.also,
    unsupported=_UNSUPPORTED,
    curves=_THRESHOLD,
    rejected=(
        *every_null("present: selfRef, threshold, value", "selfRef threshold value"),
        *_listed("selfRef"),
        *_REAL,
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
    ),
    accepted=in_place_edges(),
    examples=(),
)

_ALIKE = ("gradOutput", "self", "out")
_LISTED = "data type: gradOutput, self"
_PAIRED = ("same data type as self: gradOutput", "same data type as self: out")
_BROADCAST = "broadcasts with self: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and self: out"
_WIDE = "threshold of int64"
_ON_950 = (Product.ASCEND_950,)


def _gradient(limit: float, digits: str) -> Curve:
    at = probes(SAMPLE_X, digits)
    return Curve(threshold(limit, 0.0), {"threshold": scalar(limit)}, (limit,), (0.0, 1.0), at, selects=True)


THRESHOLD_BACKWARD = Case(
    operator=BY_NAME["threshold_backward"],
    python=aclnn.threshold_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "threshold": scalar(0.0), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    also=dict.fromkeys((*A2_CLASS, *OLD[1:]), _NARROW) | dict.fromkeys(_ON_950, _INTEGERS),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "threshold_0": _gradient(
            0.0, "0.000000 0.000000 0.000000 0.000000 0.000000 1.000000 1.000000 1.000000 1.000000"
        ),
        "threshold_minus_1": _gradient(
            -1.0, "0.000000 0.000000 0.000000 1.000000 1.000000 1.000000 1.000000 1.000000 1.000000"
        ),
    },
    rejected=(
        *every_null("present: threshold, out, gradOutput, self", "threshold out gradOutput self"),
        Rejected(_LISTED, dtype(D.BOOL, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_BOOL"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT64, *_ALIKE), "gradOutput", "ACL_FLOAT", "ACL_INT64", products=(*A2_CLASS, *OLD)),
        Rejected(_LISTED, dtype(D.INT16, "self"), "self", "data type ACL_FLOAT", "ACL_INT16"),
        Rejected("real number: threshold", {"threshold": scalar(1, D.COMPLEX64)}, "threshold", "a real number", "64"),
        Rejected(
            _WIDE, dtype(D.INT64, *_ALIKE) | {"threshold": scalar(1.0)}, "threshold", "0", "1.0", products=_ON_950
        ),
        Rejected(_PAIRED[0], dtype(other, "gradOutput"), "gradOutput", "that of self", "ACL_"),
        Rejected(_PAIRED[1], dtype(other, "out"), "out", "that of self", "ACL_"),
        *(
            Rejected(
                "at most 8 dimensions: gradOutput, self", shape(NINE, name, "out"), name, "at most 8 dimensions", "9"
            )
            for name in ("gradOutput", "self")
        ),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "out"), "out", "shape [2, 3]", "[1, 2, 3]"),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE), (_WIDE, _PAIRED[0])}),
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "out"),
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 2)), [4.5, 4.4, 4.3, 4.2]),
                "self": (T(FLOAT, (2, 2)), [0.2, 1.2, 2.2, 3.2]),
            },
            {"threshold": 1.0},
            {"out": "0.000000 4.400000 4.300000 4.200000"},
        ),
    ),
)
