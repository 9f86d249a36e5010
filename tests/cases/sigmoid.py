"""aclnnSigmoid, also in place, and its gradient by its result."""

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
    shape,
)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def by_result(y: Any) -> Any:
    """Return a function of y whose derivative is y·(1 - y)."""
    return y * y / 2 - y * y * y / 3


_WIDE = (*FLOATS, D.DOUBLE)
_DTYPES = dict.fromkeys(MODERN, _WIDE) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16, D.DOUBLE))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))
_COMPLEX = frozenset({D.COMPLEX64, D.COMPLEX128})
_CURVES = {
    "sigmoid": Curve(
        sigmoid,
        {},
        (),
        (0.0, 1.0),
        probes(SAMPLE_X, "0.047426 0.119203 0.268941 0.377541 0.500000 0.622459 0.731059 0.880797 0.952574"),
    )
}
_SAMPLE, _PRINTED = (T(FLOAT, (2, 2)), [0.0, 1.0, 2.0, 3.0]), "0.500000 0.731059 0.880797 0.952574"


def _taken(product: Product) -> tuple[D, ...]:
    return tuple(d for d in _WIDE if d != BF16 or product in MODERN)


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return {name: {"dtype": draw(st.sampled_from(_taken(product)))} for name in arguments}


SIGMOID = Case(
    operator=BY_NAME["sigmoid"],
    python=aclnn.sigmoid,
    call=lambda d: {"self": T(d, GRID), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    no_kernel=_COMPLEX,
    curves=_CURVES,
    rejected=(
        *every_null("present: self, out", "self out"),
        Rejected("data type: self", dtype(D.UINT32, "self"), "self", "data type ACL_FLOAT", "ACL_UINT32"),
        Rejected(
            "data type: self", dtype(BF16, "self", "out"), "self", "data type ACL_FLOAT", "ACL_BF16", products=OLD
        ),
        Rejected("data type: out", dtype(D.INT16, "out"), "out", "data type ACL_FLOAT", "ACL_INT16"),
        Rejected("same shape as out: self", shape((3, 2), "out"), "self", "shape [3, 2]", "[2, 3]"),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
    ),
    together={("same shape as out: self", "at most 8 dimensions: self"): shape(NINE, "self")},
    mixed=_mixed,
    accepted=(
        *forward_edges(most=8),
        Accepted("another type", dtype(other, "out")),
        Accepted("integers", dtype(D.INT64, "self")),
        Accepted("truth values", dtype(D.BOOL, "self") | dtype(D.DOUBLE, "out")),
    ),
    examples=(Example({"self": _SAMPLE}, {}, {"out": _PRINTED}),),
)

INPLACE_SIGMOID = Case(
    operator=BY_NAME["inplace_sigmoid"],
    python=aclnn.inplace_sigmoid,
    call=lambda d: {"selfRef": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    no_kernel=_COMPLEX,
    curves=_CURVES,
    rejected=(
        *every_null("present: selfRef", "selfRef"),
        Rejected("data type: selfRef", dtype(D.INT64, "selfRef"), "selfRef", "data type ACL_FLOAT", "ACL_INT64"),
        Rejected(
            "data type: selfRef", dtype(BF16, "selfRef"), "selfRef", "data type ACL_FLOAT", "ACL_BF16", products=OLD
        ),
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
    ),
    never_together=frozenset({("present: selfRef", "data type: selfRef")}),
    accepted=in_place_edges(),
    examples=(),
)

_ALIKE = ("gradOutput", "output", "gradInput")
_LISTED = f"data type: {', '.join(_ALIKE)}"
_PROMOTION = "holds the promotion of gradOutput and output: gradInput"
_BROADCAST = "broadcasts with output: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and output: gradInput"

SIGMOID_BACKWARD = Case(
    operator=BY_NAME["sigmoid_backward"],
    python=aclnn.sigmoid_backward,
    call=lambda d: {name: T(d, GRID) for name in _ALIKE},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    no_kernel=_COMPLEX,
    curves={
        "sigmoid_by_result": Curve(
            by_result,
            {},
            (1.0,),
            (-INFINITE, -INFINITE),
            probes(
                [0.0, 0.25, 0.5, 0.75, 1.0, 2.0, -1.0],
                "0.000000 0.187500 0.250000 0.187500 0.000000 -2.000000 -2.000000",
            ),
        )
    },
    rejected=(
        *every_null("present: gradOutput, output, gradInput", "gradOutput output gradInput"),
        Rejected(_LISTED, dtype(D.INT32, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "output"), "output", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_LISTED, dtype(D.INT32, "gradInput"), "gradInput", "data type ACL_FLOAT", "ACL_INT32"),
        *(
            Rejected(
                "at most 8 dimensions: gradOutput, output",
                shape(NINE, name, "gradInput"),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOutput", "output")
        ),
        Rejected(_PROMOTION, dtype(D.COMPLEX64, "output"), "gradInput", "ACL_COMPLEX64", "ACL_"),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "gradInput"), "gradInput", "shape [2, 3]", "[1, 2, 3]"),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    mixed=_mixed,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "output") | shape((5, 4, 3), "gradInput"),
        ),
        Accepted("another type", dtype(other, "gradInput")),
    ),
    examples=(
        Example(
            {"gradOutput": (T(FLOAT, (2, 2)), [1.0] * 4), "output": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0])},
            {},
            {"gradInput": "0.000000 -2.000000 -6.000000 -12.000000"},
        ),
    ),
)
