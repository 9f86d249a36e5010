"""aclnnSoftplus and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges
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


def softplus(beta: float, threshold: float) -> Forward:
    def forward(x: Any) -> Any:
        z = beta * x
        if np.float32(float(z[0])) > threshold:  # the product of two float32, which a float64 holds
            return x
        return ((z.exp() + 1).log() if z[0] < 0 else z + ((-z).exp() + 1).log()) / beta

    return forward


def _scalars(beta: float, threshold: float) -> dict[str, Any]:
    return {"beta": scalar(beta), "threshold": scalar(threshold)}


_REAL = tuple(
    Rejected("real number: beta, threshold", {name: scalar(1, d)}, name, "a real number", d.c_name)
    for name, d in (("beta", D.COMPLEX64), ("threshold", D.COMPLEX128))
)
_USUAL, _STEEP, _MIRRORED = (1.0, 20.0), (2.0, 3.0), (-1.5, 1.0)
#: Where each begins to be linear.
_KINKS = {_USUAL: 20.0, _STEEP: 1.5, _MIRRORED: -2.0 / 3.0}


def _curve(numbers: tuple[float, float], at_infinity: tuple[float, float], values: str) -> Curve:
    at = probes(SAMPLE_X, values)
    return Curve(softplus(*numbers), _scalars(*numbers), (_KINKS[numbers],), at_infinity, at)


SOFTPLUS = Case(
    operator=BY_NAME["softplus"],
    python=aclnn.softplus,
    call=lambda d: {"self": T(d, GRID), **_scalars(*_USUAL), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "softplus": _curve(
            _USUAL,
            (0.0, INFINITE),
            "0.048587 0.126928 0.313262 0.474077 0.693147 0.974077 1.313262 2.126928 3.048587",
        ),
        "softplus_steep": _curve(
            _STEEP,
            (0.0, INFINITE),
            "0.001238 0.009075 0.063464 0.156631 0.346574 0.656631 1.063464 2.000000 3.000000",
        ),
        "softplus_mirrored": _curve(
            _MIRRORED,
            (-INFINITE, 0.0),
            "-3.000000 -2.000000 -1.000000 -0.757914 -0.462098 -0.257914 -0.134276 -0.032392 -0.007365",
        ),
    },
    rejected=(
        *every_null("present: self, beta, threshold, out", "self beta threshold out"),
        Rejected("data type: self", dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(
            "data type: self", dtype(BF16, "self", "out"), "self", "data type ACL_FLOAT", "ACL_BF16", products=OLD
        ),
        *_REAL,
        Rejected("holds the result: out", dtype(D.INT64, "out"), "out", "ACL_FLOAT", "ACL_INT64", dtypes=(FLOAT,)),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    ),
    together={("at most 8 dimensions: self", "same shape as self: out"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from((*FLOATS, D.DOUBLE))), "out"),
    accepted=(
        *forward_edges(most=8),
        Accepted("another type", dtype(other, "out")),
        Accepted("widened", dtype(D.DOUBLE, "out")),
    ),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])},
            {"beta": 1.0, "threshold": 5.0},
            {"out": "0.693147 1.313262 2.126928 3.048587 4.018150 5.006715 6.000000 7.000000"},
        ),
    ),
)

_WIDE = (*FLOATS, D.DOUBLE)
_INTEGERS = (D.INT8, D.INT16, D.INT32, D.INT64, D.UINT8, D.BOOL)
_ALIKE = ("gradOutput", "self", "gradInput")
_SAMPLE = (T(FLOAT, (4, 2)), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    taken = tuple(d for d in _WIDE if d != BF16 or product in MODERN)
    drawn = {"gradOutput": taken, "self": (*taken, *_INTEGERS), "gradInput": taken}
    return {name: {"dtype": draw(st.sampled_from(dtypes))} for name, dtypes in drawn.items()}


SOFTPLUS_BACKWARD = Case(
    operator=BY_NAME["softplus_backward"],
    python=aclnn.softplus_backward,
    call=lambda d: {
        "gradOutput": T(d, GRID),
        "self": T(d, GRID),
        **_scalars(*_USUAL),
        "gradInput": T(d, GRID),
    },
    dtypes=dict.fromkeys(MODERN, _WIDE) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16, D.DOUBLE)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "softplus": _curve(
            _USUAL,
            (0.0, 1.0),
            "0.047426 0.119203 0.268941 0.377541 0.500000 0.622459 0.731059 0.880797 0.952574",
        ),
        "softplus_steep": _curve(
            _STEEP,
            (0.0, 1.0),
            "0.002473 0.017986 0.119203 0.268941 0.500000 0.731059 0.880797 1.000000 1.000000",
        ),
        "softplus_mirrored": _curve(
            _MIRRORED,
            (1.0, 0.0),
            "1.000000 1.000000 1.000000 0.679179 0.500000 0.320821 0.182426 0.047426 0.010987",
        ),
    },
    rejected=(
        *every_null(
            "present: gradOutput, self, beta, threshold, gradInput", "gradOutput self beta threshold gradInput"
        ),
        Rejected("data type: gradOutput", dtype(D.INT32, "gradOutput"), "gradOutput", "ACL_FLOAT", "ACL_INT32"),
        Rejected(
            "data type: gradOutput", dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD
        ),
        Rejected("data type: self", dtype(D.COMPLEX64, "self"), "self", "data type ACL_FLOAT", "ACL_COMPLEX64"),
        Rejected("data type: gradInput", dtype(D.INT32, "gradInput"), "gradInput", "ACL_FLOAT", "ACL_INT32"),
        *_REAL,
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_ALIKE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _ALIKE
        ),
        Rejected("same shape as gradOutput: self", shape((1, 3), "self"), "self", "[2, 3]", "[1, 3]"),
        Rejected("same shape as self: gradInput", shape((3, 2), "gradInput"), "gradInput", "[2, 3]", "[3, 2]"),
    ),
    mixed=_mixed,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted("integers", dtype(D.INT64, "self")),
        Accepted("float64", dtype(D.DOUBLE, *_ALIKE)),
    ),
    examples=(
        Example(
            {"gradOutput": _SAMPLE, "self": _SAMPLE},
            {"beta": 1.1, "threshold": 1.2},
            {"gradInput": "0.052747 0.110956 0.174528 0.243304 0.317068 0.395556 0.478465 0.565458"},
        ),
    ),
)
