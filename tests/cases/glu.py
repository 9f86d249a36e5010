"""aclnnGlu and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.sigmoid import sigmoid
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL,
    OLD,
    OLDEST,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    dtype,
    every_null,
    other,
    shape,
)
from tests.helpers.exact import UNITS_OF_PRODUCTS, derivatives, ulp_of, values


def whole_of(half: Shape, dim: int) -> Shape:
    """The shape of which a half along a dimension has another."""
    at = dim % len(half)
    return (*half[:at], 2 * half[at], *half[at + 1 :])


def gated_shapes(wholes: str, parts: str) -> Any:
    """Return changes that make the named tensors one of a shape and its halves along a dimension."""

    def shapes(half: Shape, dim: int) -> Change:
        return {"dim": dim, **shape(whole_of(half, dim), *wholes.split()), **shape(half, *parts.split())}

    return shapes


def gated_case(shapes: Any, part: str) -> dict[str, Any]:
    """Fields of a case: other shapes, and any dimension, by that of a tensor of half the size."""

    def reshape(rows: Shape, columns: Shape) -> Change:
        change: Change = shapes(rows + columns or (1,), len(rows) if columns else -1)
        return change

    def any_dim(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
        half = arguments[part].shape
        change: Change = shapes(half, draw(st.integers(-len(half), len(half) - 1)))
        return change

    return {"reshape": reshape, "mixed": any_dim}


def gated_edges(shapes: Any) -> tuple[Accepted, ...]:
    return (
        Accepted("no columns", shapes((2, 0), -1)),
        Accepted("no rows", shapes((0, 3), -1)),
        Accepted("8 dimensions", shapes((1,) * 6 + (2, 3), 7)),
        Accepted("the first of 8 dimensions", shapes((2, *(1,) * 6, 3), -8)),
        Accepted("one dimension", shapes((5,), 0)),
        Accepted("a middle dimension", shapes((2, 3, 5), -2)),
    )


def gated_rows(whole: str, *parts: str, wrong: Shape = (2, 4)) -> tuple[Rejected, ...]:
    """Return calls that fail by dim, an odd extent and wrong halves, for a whole of shape (2, 6)."""
    return (
        *(
            Rejected(f"dimension of {whole}: dim", {"dim": dim}, "dim", "from -2 to 1", str(dim))
            for dim in (-3, 2, 2**32)
        ),
        Rejected(f"even size along dim: {whole}", shape((2, 5), whole), whole, "even size", "5"),
        *(
            Rejected(f"half of {whole}: {part}", shape(shape_, part), part, "shape [2, 3]", str(list(shape_)))
            for part in parts
            for shape_ in (wrong, (6,), (1, 2, 3))
        ),
    )


def _reference(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Any]:
    a, b = np.split(arguments["self"], 2, arguments["dim"])
    gate = values(sigmoid, b)
    exact = a * gate
    if "gradOut" in arguments:
        dy = arguments["gradOut"]
        exact = np.concatenate([dy * gate, dy * a * derivatives(sigmoid, b)], arguments["dim"])
    kind = outputs["out"].dtype
    return {"out": (exact, UNITS_OF_PRODUCTS[kind] * ulp_of(exact, kind))}


_WIDE = (*FLOATS, D.DOUBLE)
_DTYPES = dict.fromkeys(MODERN, _WIDE) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16, D.DOUBLE))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))
_forward, _gradient = gated_shapes("self", "out"), gated_shapes("self out", "gradOut")
_ONE = Rejected("at least 1 dimension: self", shape((), "self"), "self", "at least 1 dimension", "0")


def _listed(*names: str, check: str) -> tuple[Rejected, ...]:
    return (
        Rejected(check, dtype(D.INT64, *names), "self", "data type ACL_FLOAT", "ACL_INT64"),
        Rejected(check, dtype(BF16, *names), "self", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
    )


GLU = Case(
    operator=BY_NAME["glu"],
    python=aclnn.glu,
    call=lambda d: {"self": T(d, (2, 6)), "dim": -1, "out": T(d, (2, 3))},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=_reference,
    reshape=gated_case(_forward, "out")["reshape"],
    mixed=lambda draw, product, arguments: (
        gated_case(_forward, "out")["mixed"](draw, product, arguments) | dtype(draw(st.sampled_from(_WIDE)), "out")
        if draw(st.booleans())
        else gated_case(_forward, "out")["mixed"](draw, product, arguments)
    ),
    rejected=(
        *every_null("present: self, out", "self out"),
        *_listed("self", "out", check="data type: self, out"),
        Rejected("data type: self, out", dtype(D.INT64, "out"), "out", "data type ACL_FLOAT", "ACL_INT64"),
        *(
            Rejected("at most 8 dimensions: self, out", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in ("self", "out")
        ),
        _ONE,
        *gated_rows("self", "out"),
    ),
    accepted=(*gated_edges(_forward), Accepted("another type", dtype(other, "out"))),
    examples=(
        Example(
            {
                "self": (
                    T(FLOAT, (2, 9)),
                    [-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2, -1, 0.5, 3, 1, -2, 0, -3, 1],
                )
            },
            {"dim": 0},
            {"out": "-2.642391 -0.537883 -0.622459 -0.476287 0.000000 0.059601 0.500000 0.094852 2.193176"},
        ),
    ),
)

GLU_BACKWARD = Case(
    operator=BY_NAME["glu_backward"],
    python=aclnn.glu_backward,
    call=lambda d: {"gradOut": T(d, (2, 3)), "self": T(d, (2, 6)), "dim": -1, "out": T(d, (2, 6))},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=_reference,
    **gated_case(_gradient, "gradOut"),
    rejected=(
        *every_null("present: self, gradOut, out", "self gradOut out"),
        *_listed("self", "gradOut", "out", check="data type: self"),
        *(
            Rejected(f"same data type as self: {name}", dtype(other, name), name, "that of self", "ACL_")
            for name in ("gradOut", "out")
        ),
        *(
            Rejected("at most 8 dimensions: self, out, gradOut", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in ("self", "out", "gradOut")
        ),
        _ONE,
        *gated_rows("self", "gradOut"),
        Rejected("same shape as self: out", shape((2, 4), "out"), "out", "[2, 6]", "[2, 4]"),
    ),
    together={("data type: self", "same data type as self: gradOut"): dtype(D.INT64, "self")},
    accepted=gated_edges(_gradient),
    examples=(
        Example(
            {
                "gradOut": (T(FLOAT, (1, 9)), [1.0] * 9),
                "self": (
                    T(FLOAT, (2, 9)),
                    [-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2, -1, 0.5, 3, 1, -2, 0, -3, 1],
                ),
            },
            {"dim": 0},
            {
                "out": "0.880797 0.268941 0.622459 0.952574 0.731059 0.119203 0.500000 0.047426 0.731059 "
                "-0.314981 -0.393224 -0.235004 -0.022588 0.000000 0.052497 0.250000 0.090353 0.589836"
            },
        ),
        Example(  # the document's first and last rows
            {
                "gradOut": (T(FLOAT, (2, 3)), [1.0] * 6),
                "self": (
                    T(FLOAT, (2, 6)),
                    [0.2948, 1.6331, 2.3158, -0.6872, 0.3036, 0.1575, 0.5763, 0.2667, -0.6570, -0.4159, 1.5258, 0.0843],
                ),
            },
            {"dim": -1},
            {
                "out": "0.334656 0.575322 0.539294 0.065641 0.399010 0.575374 "
                "0.397498 0.821391 0.521063 0.138020 0.039127 -0.163959"
            },
        ),
    ),
)
