"""aclnnSoftshrink with its gradient, and aclnnShrink."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges, forward_rows
from tests.cases.hardshrink import SHRUNK, gate, mixed_operands, shrinkage
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

_SAMPLE = (T(FLOAT, (4, 2)), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))
_NEGATIVE = Rejected("not negative: lambd", {"lambd": scalar(-0.5)}, "lambd", "a number of 0 or more", "-0.5")
_NUMBERS = (
    Accepted("lambd of -0", {"lambd": scalar(-0.0)}),
    Accepted("integer lambd", {"lambd": scalar(1, D.UINT8)}),
)


def _curve(lambd: float, by: float, digits: str, **attributes: Any) -> Curve:
    kinks, given = (-lambd, lambd), {"lambd": scalar(lambd), **attributes}
    return Curve(shrinkage(lambd, by), given, kinks, (-INFINITE, INFINITE), probes(SAMPLE_X, digits))


SOFTSHRINK = Case(
    operator=BY_NAME["softshrink"],
    python=aclnn.softshrink,
    call=lambda d: {"self": T(d, GRID), "lambd": scalar(0.5), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves={
        "softshrink": _curve(
            0.5, 0.5, "-2.500000 -1.500000 -0.500000 0.000000 0.000000 0.000000 0.500000 1.500000 2.500000"
        ),
        "softshrink_0": _curve(
            0.0, 0.0, "-3.000000 -2.000000 -1.000000 -0.500000 0.000000 0.500000 1.000000 2.000000 3.000000"
        ),
        "softshrink_1": _curve(
            1.0, 1.0, "-2.000000 -1.000000 0.000000 0.000000 0.000000 0.000000 0.000000 1.000000 2.000000"
        ),
    },
    rejected=(
        *every_null("present: self, lambd, out", "self lambd out"),
        *forward_rows("lists", "shape", "rank"),
        _NEGATIVE,
    ),
    together={("same shape as self: out", "at most 8 dimensions: self"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(FLOATS)), "out"),
    accepted=(*forward_edges(most=8), Accepted("another type", dtype(other, "out")), *_NUMBERS),
    examples=(
        Example(
            {"self": _SAMPLE},
            {"lambd": 0.5},
            {"out": "0.000000 0.000000 0.000000 0.000000 0.000000 0.100000 0.200000 0.300000"},
        ),
    ),
)

_LISTED = "data type: self, out"

SHRINK = Case(
    operator=BY_NAME["shrink"],
    python=aclnn.shrink,
    call=lambda d: {"self": T(d, GRID), "lambd": scalar(0.5), "bias": scalar(0.25), "out": T(d, GRID)},
    dtypes=dict.fromkeys((*MODERN, Product.ATLAS_INFERENCE), (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), (NO_KERNEL, "product")),
    curves={
        f"shrink_{lambd:g}": _curve(lambd, 0.25, digits, bias=scalar(0.25))
        for lambd, digits in (
            (0.5, "-2.750000 -1.750000 -0.750000 0.000000 0.000000 0.000000 0.750000 1.750000 2.750000"),
            (0.0, "-2.750000 -1.750000 -0.750000 -0.250000 0.000000 0.250000 0.750000 1.750000 2.750000"),
            (1.0, "-2.750000 -1.750000 0.000000 0.000000 0.000000 0.000000 0.000000 1.750000 2.750000"),
        )
    },
    rejected=(
        *every_null("present: self, lambd, bias, out", "self lambd bias out"),
        Rejected(_LISTED, dtype(D.DOUBLE, "self", "out"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_LISTED, dtype(BF16, "self", "out"), "self", "data type ACL_FLOAT", "ACL_BF16"),
        Rejected(_LISTED, dtype(BF16, "out"), "out", "data type ACL_FLOAT", "ACL_BF16"),
        *forward_rows("shape"),
        _NEGATIVE,
        *forward_rows("format"),
    ),
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from((FLOAT, FLOAT16))), "out"),
    accepted=(
        *forward_edges(),
        Accepted("another type", dtype(other, "out")),
        *_NUMBERS,
    ),
    examples=(
        Example(
            {"self": _SAMPLE},
            {"lambd": 0.5, "bias": 0.0},
            {"out": "0.000000 0.000000 0.000000 0.000000 0.000000 0.600000 0.700000 0.800000"},
        ),
    ),
)

_ALIKE = ("gradOutput", "self", "gradInput")
_BOTH = f"data type: {', '.join(_ALIKE)}"
_PROMOTED = "promoted data type: gradInput"
_BROADCAST = "broadcasts with self: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and self: gradInput"


SOFTSHRINK_BACKWARD = Case(
    operator=BY_NAME["softshrink_backward"],
    python=aclnn.softshrink_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "lambd": scalar(0.5), "gradInput": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves={
        "softshrink": Curve(
            gate(0.5), {"lambd": scalar(0.5)}, (-0.5, 0.5), (1.0, 1.0), probes(SAMPLE_X, SHRUNK), selects=True
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, lambd, gradInput", "gradOutput self lambd gradInput"),
        Rejected(_BOTH, dtype(D.INT32, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_BOTH, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        *(Rejected(_BOTH, dtype(D.INT32, name), name, "data type ACL_FLOAT", "ACL_INT32") for name in _ALIKE[1:]),
        Rejected(_PROMOTED, dtype(other, "gradInput"), "gradInput", "promotion of gradOutput and self", "ACL_FLOAT"),
        Rejected(_PROMOTED, dtype(FLOAT, "self"), "gradInput", "data type ACL_FLOAT", "ACL_FLOAT16", dtypes=(FLOAT16,)),
        *(
            Rejected(
                "at most 8 dimensions: gradOutput, self",
                shape(NINE, name, "gradInput"),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOutput", "self")
        ),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "gradInput"), "gradInput", "shape [2, 3]", "[1, 2, 3]"),
        _NEGATIVE,
        Rejected("not negative: lambd", {"lambd": scalar(-1.0)} | shape((0, 3), *_ALIKE), "lambd", "0 or more", "-1.0"),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    mixed=mixed_operands,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted("a row", shape((1, 2, 3), "gradOutput", "gradInput") | shape((2, 3), "self")),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
        ),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "self": (T(FLOAT, (4, 2)), [1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 3.0, 3.0]),
            },
            {"lambd": 1.2},
            {"gradInput": "0.000000 0.000000 0.000000 3.000000 0.000000 5.000000 6.000000 7.000000"},
        ),
    ),
)
