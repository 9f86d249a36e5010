"""aclnnMish, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows, in_place_edges
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
    tanh,
)


def mish(x: Any) -> Any:
    return x * tanh((1 + x.exp()).log())


_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))
_CURVES = {
    "mish": Curve(
        mish,
        {},
        (),
        (NAN, INFINITE),
        probes(SAMPLE_X, "-0.145647 -0.252501 -0.303401 -0.220744 0.000000 0.375245 0.865098 1.943959 2.986535"),
    )
}
_LISTED = "data type: self, out"

MISH = Case(
    operator=BY_NAME["mish"],
    python=aclnn.mish,
    call=forward_call("self", "out"),
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *forward_rows("null"),
        Rejected(_LISTED, dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_LISTED, dtype(BF16, "self", "out"), "self", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "out"), "out", "data type ACL_FLOAT", "ACL_INT32"),
        *forward_rows("dtype"),
        Rejected("at most 8 dimensions: self, out", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("at most 8 dimensions: self, out", shape(NINE, "out"), "out", "at most 8 dimensions", "9"),
        *forward_rows("shape"),
    ),
    accepted=forward_edges(most=8),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0])},
            {},
            {"out": "0.865098 1.943959 2.986535 3.997413 4.999552 6.999989 7.999998 9.000000"},
        ),
    ),
)

INPLACE_MISH = Case(
    operator=BY_NAME["inplace_mish"],
    python=aclnn.inplace_mish,
    call=lambda d: {"selfRef": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
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

_ALIKE = ("gradOutput", "self", "gradInput")
_GRADIENTS = f"data type: {', '.join(_ALIKE)}"
_HOLDS = "holds the result: gradInput"
_BROADCAST = "broadcasts with self: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and self: gradInput"


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    taken = tuple(d for d in FLOATS if d != BF16 or product in MODERN)
    return {name: {"dtype": draw(st.sampled_from(taken))} for name in _ALIKE}


MISH_BACKWARD = Case(
    operator=BY_NAME["mish_backward"],
    python=aclnn.mish_backward,
    call=lambda d: {name: T(d, GRID) for name in _ALIKE},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "mish": Curve(
            mish,
            {},
            (-1.1924312145155,),
            (NAN, NAN),
            probes(SAMPLE_X, "-0.093393 -0.108355 0.059217 0.289511 0.600000 0.886424 1.049036 1.069318 1.021107"),
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        Rejected(_HOLDS, dtype(D.INT32, "gradInput"), "gradInput", "ACL_", "ACL_INT32"),
        Rejected(_GRADIENTS, dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_GRADIENTS, dtype(BF16, *_ALIKE), "gradOutput", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        Rejected(_GRADIENTS, dtype(D.INT32, "self"), "self", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_GRADIENTS, dtype(D.DOUBLE, "gradInput"), "gradInput", "data type ACL_FLOAT", "ACL_DOUBLE"),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_ALIKE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _ALIKE
        ),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "gradInput"), "gradInput", "shape [2, 3]", "[1, 2, 3]"),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    mixed=_mixed,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted("another type", dtype(other, "gradInput")),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
                "self": (T(FLOAT, (4, 2)), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0]),
            },
            {},
            {"gradInput": "0.000000 1.049036 2.098073 3.207954 4.277272 5.346590 6.126641 7.147748"},
        ),
    ),
)
