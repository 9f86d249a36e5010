"""aclnnCelu, also in place."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges, forward_rows, in_place_edges
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
    ON_950,
    ONLY_950,
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


def celu(alpha: float) -> Forward:
    # At 0 the lower branch decides.
    return lambda x: x if x[0] > 0 else alpha * ((x / alpha).exp() - 1)


def _rows(x: str, *others: str) -> tuple[Rejected, ...]:
    return (
        Rejected(f"data type: {x}", dtype(D.DOUBLE, x), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(f"data type: {x}", dtype(BF16, x, *others), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected("real number: alpha", {"alpha": scalar(1, D.COMPLEX64)}, "alpha", "a real number", "ACL_COMPLEX64"),
    )


_NOT_ZERO = (
    Rejected("not zero: alpha", {"alpha": scalar(0.0)}, "alpha", "a number other than 0", "0.0"),
    Rejected("not zero: alpha", {"alpha": scalar(NAN)}, "alpha", "a number other than 0", "nan"),
    Rejected("not zero: alpha", {"alpha": scalar(1e-60)}, "alpha", "a number other than 0 (as float32)", "1e-60"),
)
_CURVES = {
    "celu": Curve(
        celu(1.0),
        {"alpha": scalar(1.0)},
        (0.0,),
        (-1.0, INFINITE),
        probes(SAMPLE_X, "-0.950213 -0.864665 -0.632121 -0.393469 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
    "celu_steep": Curve(
        celu(0.5),
        {"alpha": scalar(0.5)},
        (0.0,),
        (-0.5, INFINITE),
        probes(SAMPLE_X, "-0.498761 -0.490842 -0.432332 -0.316060 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
    "celu_negative": Curve(
        celu(-2.0),
        {"alpha": scalar(-2.0)},
        (0.0,),
        (-INFINITE, INFINITE),
        probes(SAMPLE_X, "-6.963378 -3.436564 -1.297443 -0.568051 0.000000 0.500000 1.000000 2.000000 3.000000"),
    ),
}
_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))
_SAMPLE = (T(FLOAT, (2, 2)), [-2.0, -1.0, 0.0, 1.0])

CELU = Case(
    operator=BY_NAME["celu"],
    python=aclnn.celu,
    call=lambda d: {"self": T(d, GRID), "alpha": scalar(1.0), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *every_null("present: self, alpha, out", "self alpha out"),
        *_rows("self", "out"),
        Rejected("holds the result: out", dtype(D.INT64, "out"), "out", "ACL_FLOAT", "ACL_INT64", dtypes=(FLOAT,)),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
        *_NOT_ZERO,
        *forward_rows("private on the 950"),
    ),
    together={("at most 8 dimensions: self", "same shape as self: out"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from((*FLOATS, D.DOUBLE))), "out"),
    accepted=(
        *forward_edges(most=8),
        Accepted("another type", dtype(other, "out")),
        Accepted("widened", dtype(D.DOUBLE, "out")),
        Accepted("integer", {"alpha": scalar(1, D.UINT8)}),
    ),
    examples=(Example({"self": _SAMPLE}, {"alpha": 1.0}, {"out": "-0.864665 -0.632121 0.000000 1.000000"}),),
)

INPLACE_CELU = Case(
    operator=BY_NAME["inplace_celu"],
    python=aclnn.inplace_celu,
    call=lambda d: {"selfRef": T(d, GRID), "alpha": scalar(1.0)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *every_null("present: selfRef, alpha", "selfRef alpha"),
        *_rows("selfRef"),
        Rejected("at most 8 dimensions: selfRef", shape(NINE, "selfRef"), "selfRef", "at most 8 dimensions", "9"),
        *_NOT_ZERO,
        Rejected(
            f"no private format: selfRef{ON_950}",
            {"selfRef": {"format": Format.FORMAT_NC1HWC0}},
            "selfRef",
            "a format such as ACL_FORMAT_ND",
            "ACL_FORMAT_NC1HWC0",
            products=ONLY_950,
        ),
    ),
    accepted=in_place_edges(),
    examples=(),
)
