"""aclnnPrelu and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
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
    Accepted,
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
from tests.helpers.exact import ulp_of


def _weights(weight: Any, x: Any) -> Any:
    if weight.size == 1:
        return weight.reshape(())
    return weight.reshape(1, -1, *(1,) * (x.ndim - 2))


def _reference(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Any]:
    x = arguments["self"]
    w = _weights(arguments["weight"], x)
    if "out" in outputs:
        y = np.where(x > 0, x, w * x)
        return {"out": (y, 0.51 * ulp_of(y, outputs["out"].dtype))}
    dy = np.broadcast_to(arguments["gradOutput"], x.shape)
    if not x.size:  # nothing is written
        return {}
    dx, terms = np.where(x > 0, dy, w * dy), np.where(x > 0, 0, dy * x)
    rest = tuple(axis for axis in range(x.ndim) if axis != 1 or arguments["weight"].size == 1)
    dw, scale = (np.asarray(sums.sum(rest)).reshape(outputs["gradWeight"].shape) for sums in (terms, np.abs(terms)))
    slack = 0.51 * ulp_of(dw, outputs["gradWeight"].dtype) + 1e-12 * scale
    return {"gradInput": (dx, 0.51 * ulp_of(dx, outputs["gradInput"].dtype)), "gradWeight": (dw, slack)}


def _shapes(whole: Shape, weight: Shape, gradient: bool) -> Change:
    if not gradient:
        return shape(whole, "self", "out") | shape(weight, "weight")
    size = int(np.prod(weight))
    slopes = shape(weight, "weight") | shape(weight if size == 1 else (size,), "gradWeight")
    return shape(whole, "gradOutput", "self", "gradInput") | slopes


def _rows_and_columns(gradient: bool) -> Any:
    def reshape(rows: Shape, columns: Shape) -> Change:
        whole = rows + columns
        return _shapes(whole, (whole[1],) if len(whole) > 1 else (1,), gradient)

    return reshape


def _edges(gradient: bool) -> tuple[Accepted, ...]:
    return (
        Accepted("no columns", _shapes((2, 3, 0), (3,), gradient)),
        Accepted("no rows", _shapes((0, 3), (3,), gradient)),
        Accepted("no channels", _shapes((2, 0), (0,), gradient)),
        Accepted("8 dimensions", _shapes((1,) * 6 + (2, 3), (1, 1), gradient)),
        Accepted("0-dim", _shapes((), (1,), gradient)),
        Accepted("0-dim weight", _shapes((2, 3), (), gradient)),
        Accepted("1 dimension", _shapes((5,), (1, 1, 1), gradient)),
        Accepted("one slope for several channels", _shapes((2, 3, 4), (1,), gradient)),
        Accepted("slopes in two dimensions", _shapes((2, 6, 5), (2, 3), gradient)),
        Accepted("slopes for 4 dimensions", _shapes((3, 4, 2, 5), (1, 4, 1, 1), gradient)),
    )


_BOTH = ("self", "weight", "out")
_SIZE = "1 element or one for each channel: weight"
_SIZES = tuple(
    Rejected(_SIZE, shape(wrong, "weight"), "weight", "1 element or 3", str(list(wrong)))
    for wrong in ((2,), (0,), (2, 2))
)

PRELU = Case(
    operator=BY_NAME["prelu"],
    python=aclnn.prelu,
    call=lambda d: {"self": T(d, GRID), "weight": T(d, (3,)), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    reference=_reference,
    reshape=_rows_and_columns(False),
    mixed=lambda draw, product, arguments: {name: {"dtype": draw(st.sampled_from(FLOATS))} for name in _BOTH},
    rejected=(
        *every_null("present: self, weight, out", "self weight out"),
        *(
            Rejected(f"data type: {', '.join(_BOTH)}", change, name, "data type ACL_FLOAT", got, products=products)
            for name, change, got, products in (
                ("self", dtype(D.DOUBLE, "self"), "ACL_DOUBLE", (*MODERN, *OLD)),
                ("self", dtype(BF16, *_BOTH), "ACL_BF16", OLD),
                ("weight", dtype(D.INT32, "weight"), "ACL_INT32", (*MODERN, *OLD)),
                ("out", dtype(D.DOUBLE, "out"), "ACL_DOUBLE", (*MODERN, *OLD)),
            )
        ),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_BOTH)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _BOTH
        ),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "[2, 3]", "[3, 2]"),
        *_SIZES,
    ),
    accepted=(*_edges(False), Accepted("another type", dtype(other, "out")), Accepted("mixed", dtype(other, "weight"))),
    examples=(
        Example(
            {
                "self": (T(FLOAT, (2, 4)), [-2.0, 1.0, 2.0, -3.0, -4.7, 5.3, -6.9, 7.0]),
                "weight": (T(FLOAT, (1,)), [3.0]),
            },
            {},
            {"out": "-6.000000 1.000000 2.000000 -9.000000 -14.099999 5.300000 -20.700001 7.000000"},
        ),
    ),
)

_FIVE = ("gradOutput", "self", "weight", "gradInput", "gradWeight")
_SLOPES = "shape of the weight's gradient: gradWeight"
_BROADCAST = "broadcasts with self: gradOutput"
_BROADCAST_SHAPE = "broadcast shape of gradOutput and self: self"

PRELU_BACKWARD = Case(
    operator=BY_NAME["prelu_backward"],
    python=aclnn.prelu_backward,
    call=lambda d: {name: T(d, (3,) if "eight" in name else GRID) for name in _FIVE},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    reference=_reference,
    reshape=_rows_and_columns(True),
    rejected=(
        *every_null(f"present: {', '.join(_FIVE)}", " ".join(_FIVE)),
        Rejected("data type: self", dtype(D.DOUBLE, *_FIVE), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected("data type: self", dtype(BF16, *_FIVE), "self", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        *(
            Rejected(f"same data type as self: {name}", dtype(other, name), name, "that of self", "ACL_")
            for name in _FIVE
            if name != "self"
        ),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_FIVE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _FIVE
        ),
        Rejected("same shape as self: gradInput", shape((3, 2), "gradInput"), "gradInput", "[2, 3]", "[3, 2]"),
        *_SIZES,
        Rejected(_SLOPES, shape((1, 3), "gradWeight"), "gradWeight", "shape [3]", "[1, 3]"),
        Rejected(_SLOPES, shape((1, 1), "weight") | shape((1,), "gradWeight"), "gradWeight", "shape [1, 1]", "[1]"),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((5, 2, 3), "gradOutput"), "self", "shape [5, 2, 3]", "[2, 3]"),
    ),
    together={("data type: self", "same data type as self: gradOutput"): dtype(D.DOUBLE, "self")},
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    accepted=(
        *_edges(True),
        Accepted("a row of dy for all", shape((1, 3), "gradOutput")),
        Accepted("dy broadcast to nothing", _shapes((0, 3), (3,), True) | shape((1, 3), "gradOutput")),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "weight": (T(FLOAT, (2,)), [0.5, 0.5]),
            },
            {},
            {
                "gradInput": "0.500000 1.000000 1.000000 1.000000 1.000000 1.000000 1.000000 1.000000",
                "gradWeight": "0.000000 0.000000",
            },
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0]),
                "self": (T(FLOAT, (2, 2)), [-1.0, 2.0, 3.0, -4.0]),
                "weight": (T(FLOAT, (2,)), [0.1, 0.5]),
            },
            {},
            {"gradInput": "0.100000 2.000000 3.000000 2.000000", "gradWeight": "-1.000000 -16.000000"},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (9,)), [1.0] * 9),
                "self": (T(FLOAT, (9,)), [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]),
                "weight": (T(FLOAT, (1,)), [0.25]),
            },
            {},
            {
                "gradInput": " ".join(["0.250000"] * 5 + ["1.000000"] * 4),
                "gradWeight": "-6.500000",
            },
        ),
    ),
)
