"""aclnnElu, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
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


def elu(alpha: float, scale: float, input_scale: float) -> Forward:
    # At 0 the lower branch decides.
    def forward(x: Any) -> Any:
        return scale * x if x[0] > 0 else alpha * scale * ((input_scale * x).exp() - 1)

    return forward


def _scalars(alpha: float, scale: float, input_scale: float) -> dict[str, Any]:
    return {"alpha": scalar(alpha), "scale": scalar(scale), "inputScale": scalar(input_scale)}


def _complex(*names: str) -> tuple[Rejected, ...]:
    rows = zip(names, (D.COMPLEX64, D.COMPLEX128, D.COMPLEX64), strict=True)
    check = f"real number: {', '.join(names)}"
    return tuple(Rejected(check, {name: scalar(1, d)}, name, "a real number", d.c_name) for name, d in rows)


def _rows(x: str, *, wide: bool) -> tuple[Rejected, ...]:
    """Those of the data type of what is computed."""
    rejected = D.INT32 if wide else D.DOUBLE
    return (
        Rejected(f"data type: {x}", dtype(rejected, *_alike(x)), x, "data type ACL_FLOAT", rejected.c_name),
        Rejected(f"data type: {x}", dtype(BF16, *_alike(x)), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
    )


def _alike(x: str) -> tuple[str, ...]:
    return (x, "selfOrResult") if x == "gradOutput" else (x,)


_PLAIN, _SCALED = (1.0, 1.0, 1.0), (1.5, 2.0, 0.5)
_VALUES = {
    "elu": Curve(
        elu(*_PLAIN),
        _scalars(*_PLAIN),
        (0.0,),
        (-1.0, INFINITE),
        probes(SAMPLE_X, "-0.950213 -0.864665 -0.632121 -0.393469 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
    "elu_scaled": Curve(
        elu(*_SCALED),
        _scalars(*_SCALED),
        (0.0,),
        (-3.0, INFINITE),
        probes(SAMPLE_X, "-2.330610 -1.896362 -1.180408 -0.663598 0.000000 1.000000 2.000000 4.000000 6.000000"),
    ),
}
_WIDE = (*FLOATS, D.DOUBLE)
_DTYPES = dict.fromkeys(MODERN, _WIDE) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16, D.DOUBLE))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))

ELU = Case(
    operator=BY_NAME["elu"],
    python=aclnn.elu,
    call=lambda d: {"self": T(d, GRID), **_scalars(*_PLAIN), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_VALUES,
    rejected=(
        *every_null("present: self, alpha, scale, inputScale, out", "self alpha scale inputScale out"),
        *_rows("self", wide=True),
        *_complex("scale", "alpha", "inputScale"),
        Rejected("holds the result: out", dtype(D.INT64, "out"), "out", "ACL_FLOAT", "ACL_INT64", dtypes=(FLOAT,)),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
    ),
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(_WIDE)), "out"),
    accepted=(
        *forward_edges(most=8),
        Accepted("another type", dtype(other, "out")),
        Accepted("widened", dtype(D.DOUBLE, "out")),
        Accepted("integers", {"alpha": scalar(1, D.UINT8), "scale": scalar(1, D.BOOL)} | dtype(BF16, "out"), MODERN),
    ),
    examples=(
        Example(
            {"self": (T(FLOAT, (2, 2)), [-2.0, -1.0, 0.0, 1.0])},
            dict.fromkeys(("alpha", "scale", "inputScale"), 1.0),
            {"out": "-0.864665 -0.632121 0.000000 1.000000"},
        ),
    ),
)

INPLACE_ELU = Case(
    operator=BY_NAME["inplace_elu"],
    python=aclnn.inplace_elu,
    call=lambda d: {"selfRef": T(d, GRID), **_scalars(*_PLAIN)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_VALUES,
    rejected=(
        *every_null("present: selfRef, alpha, scale, inputScale", "selfRef alpha scale inputScale"),
        *_rows("selfRef", wide=True),
        *_complex("scale", "alpha", "inputScale"),
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
    ),
    accepted=in_place_edges(),
    examples=(),
)

_NOT_NEGATIVE = "not negative: alpha (if isResult is true)"

ELU_BACKWARD = Case(
    operator=BY_NAME["elu_backward"],
    python=aclnn.elu_backward,
    call=lambda d: {
        "gradOutput": T(d, GRID),
        **_scalars(*_PLAIN),
        "isResult": False,
        "selfOrResult": T(d, GRID),
        "gradInput": T(d, GRID),
    },
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=_UNSUPPORTED,
    # By the forward input; test_operators_elu.py has those by the result.
    curves={
        "elu": Curve(
            elu(*_PLAIN),
            {**_scalars(*_PLAIN), "isResult": False},
            (0.0,),
            (0.0, 1.0),
            probes(SAMPLE_X, "0.049787 0.135335 0.367879 0.606531 1.000000 1.000000 1.000000 1.000000 1.000000"),
        ),
        "elu_scaled": Curve(
            elu(*_SCALED),
            {**_scalars(*_SCALED), "isResult": False},
            (0.0,),
            (0.0, 2.0),
            probes(SAMPLE_X, "0.334695 0.551819 0.909796 1.168201 1.500000 2.000000 2.000000 2.000000 2.000000"),
        ),
    },
    rejected=(
        *every_null(
            "present: gradOutput, alpha, scale, inputScale, selfOrResult, gradInput",
            "gradOutput alpha scale inputScale selfOrResult gradInput",
        ),
        Rejected(
            "same data type as gradOutput: selfOrResult", dtype(other, "selfOrResult"), "selfOrResult", "type", "ACL_"
        ),
        *_rows("gradOutput", wide=False),
        *_complex("alpha", "scale", "inputScale"),
        Rejected(
            "holds the result: gradInput",
            dtype(D.INT32, "gradInput"),
            "gradInput",
            "ACL_FLOAT",
            "ACL_INT32",
            dtypes=(FLOAT,),
        ),
        Rejected(
            "same shape as gradOutput: selfOrResult",
            shape((1, 3), "selfOrResult"),
            "selfOrResult",
            "shape [2, 3]",
            "[1, 3]",
        ),
        Rejected("same shape as gradOutput: gradInput", shape((3, 2), "gradInput"), "gradInput", "[2, 3]", "[3, 2]"),
        Rejected(
            "at most 8 dimensions: gradOutput",
            shape(NINE, "gradOutput", "selfOrResult", "gradInput"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Rejected(
            _NOT_NEGATIVE, {"alpha": scalar(-1, D.INT8), "isResult": True}, "alpha", "a number of 0 or more", "-1.0"
        ),
    ),
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(_WIDE)), "gradInput"),
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "selfOrResult", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "selfOrResult", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "selfOrResult", "gradInput")),
        Accepted("widened", dtype(D.DOUBLE, "gradInput")),
    ),
    examples=(
        Example(
            dict.fromkeys(("gradOutput", "selfOrResult"), (T(FLOAT, (2, 2)), [-2.0, -1.0, 0.0, 1.0])),
            {"alpha": 1.0, "scale": 1.0, "inputScale": 1.0, "isResult": True},
            {"gradInput": "2.000000 -0.000000 0.000000 1.000000"},
        ),
    ),
)
