"""aclnnHardsigmoid, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    GRID,
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


def hardsigmoid(x: Any) -> Any:
    if -3 < x[0] < 3:
        return (x + 3) / 6
    return 0 * x + (1 if x[0] > 0 else 0)


_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))
_CURVES = {
    "hardsigmoid": Curve(
        hardsigmoid,
        {},
        (-3.0, 3.0),
        (0.0, 1.0),
        probes(SAMPLE_X, "0.000000 0.166667 0.333333 0.416667 0.500000 0.583333 0.666667 0.833333 1.000000"),
    )
}


def _listed(x: str, *others: str) -> tuple[Rejected, ...]:
    return (
        Rejected(f"data type: {x}", dtype(D.INT16, x), x, "data type ACL_FLOAT", "ACL_INT16"),
        Rejected(f"data type: {x}", dtype(BF16, x, *others), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(f"at most 8 dimensions: {x}", shape(NINE, x, *others), x, "at most 8 dimensions", "9"),
    )


HARDSIGMOID = Case(
    operator=BY_NAME["hardsigmoid"],
    python=aclnn.hardsigmoid,
    call=forward_call("self", "out"),
    dtypes=_DTYPES,
    also=dict.fromkeys(_DTYPES, (D.INT32,)),
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(
        *forward_rows("null"),
        *_listed("self", "out"),
        *forward_rows("shape", "dtype", "format"),
    ),
    together={("at most 8 dimensions: self", "same shape as self: out"): shape(NINE, "self")},
    accepted=forward_edges(most=8),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [-4.0, -3.0, -2.0, 0.0, 1.0, 2.0, 4.0, 5.0])},
            {},
            {"out": "0.000000 0.000000 0.166667 0.500000 0.666667 0.833333 1.000000 1.000000"},
        ),
    ),
)

INPLACE_HARDSIGMOID = Case(
    operator=BY_NAME["inplace_hardsigmoid"],
    python=aclnn.inplace_hardsigmoid,
    call=lambda d: {"self": T(d, GRID)},
    dtypes=_DTYPES,
    also=HARDSIGMOID.also,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(*every_null("present: self", "self"), *_listed("self")),
    never_together=frozenset({("present: self", "data type: self")}),
    accepted=(
        Accepted("empty", shape((0, 4), "self")),
        Accepted("0-dim", shape((), "self")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "self")),
    ),
    examples=(),
)

_ALIKE = ("gradOutput", "self", "out")
_LISTED = "data type: gradOutput, self"


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    taken = tuple(d for d in FLOATS if d != BF16 or product in MODERN)
    drawn = {"gradOutput": taken, "self": taken, "out": (*taken, D.DOUBLE)}
    return {name: {"dtype": draw(st.sampled_from(dtypes))} for name, dtypes in drawn.items()}


HARDSIGMOID_BACKWARD = Case(
    operator=BY_NAME["hardsigmoid_backward"],
    python=aclnn.hardsigmoid_backward,
    call=lambda d: {name: T(d, GRID) for name in _ALIKE},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "hardsigmoid": Curve(
            hardsigmoid,
            {},
            (-3.0, 3.0),
            (0.0, 0.0),
            probes(SAMPLE_X, "0.000000 0.166667 0.166667 0.166667 0.166667 0.166667 0.166667 0.166667 0.000000"),
            selects=True,
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, out", "gradOutput self out"),
        Rejected(_LISTED, dtype(D.INT32, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.BOOL, "self"), "self", "data type ACL_FLOAT", "ACL_BOOL"),
        Rejected("holds the promotion of gradOutput and self: out", dtype(D.INT32, "out"), "out", "ACL_", "ACL_INT32"),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_ALIKE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _ALIKE
        ),
        Rejected("same shape as self: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "[2, 3]", "[1, 3]"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "[2, 3]", "[3, 2]"),
    ),
    mixed=_mixed,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted("another type", dtype(other, "out")),
    ),
    examples=(
        Example(
            dict.fromkeys(("gradOutput", "self"), (T(FLOAT, (4, 2)), [float(i) for i in range(8)])),
            {},
            {"out": "0.000000 0.166667 0.333333 0.000000 0.000000 0.000000 0.000000 0.000000"},
        ),
    ),
)
