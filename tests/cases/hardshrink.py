"""aclnnHardshrink and its gradient."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges, forward_rows
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


def gate(lambd: float) -> Forward:
    """Return x outside of [-lambd, lambd], and 0 within."""
    return lambda x: x if abs(x[0]) > lambd else 0 * x


def shrinkage(lambd: float, bias: float) -> Forward:
    return lambda x: x - bias if x[0] > lambd else x + bias if x[0] < -lambd else 0 * x


def mixed_operands(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    """Two data types of which the wider is the result's, float32 for both of 16 bits."""
    first, second = (draw(st.sampled_from(FLOATS)) for _ in range(2))
    return dtype(first, "gradOutput") | dtype(second, "self") | dtype(first if first == second else FLOAT, "gradInput")


SHRUNK = "1.000000 1.000000 1.000000 0.000000 0.000000 0.000000 1.000000 1.000000 1.000000"
_ALIKE = ("gradOutput", "self", "gradInput")
_LISTED = f"data type: {', '.join(_ALIKE)}"
_SPARED = " (unless gradOutput or self is empty)"
_BROADCAST = f"broadcasts with self: gradOutput{_SPARED}"
_BROADCAST_SHAPE = f"broadcast shape of gradOutput and self: gradInput{_SPARED}"
_NUMBERS = (
    Accepted("negative lambd", {"lambd": scalar(-0.5)}),
    Accepted("integer lambd", {"lambd": scalar(1, D.UINT8)}),
)

HARDSHRINK = Case(
    operator=BY_NAME["hardshrink"],
    python=aclnn.hardshrink,
    call=lambda d: {"self": T(d, GRID), "lambd": scalar(0.5), "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "hardshrink": Curve(
            gate(0.5),
            {"lambd": scalar(0.5)},
            (-0.5, 0.5),
            (-INFINITE, INFINITE),
            probes(SAMPLE_X, "-3.000000 -2.000000 -1.000000 0.000000 0.000000 0.000000 1.000000 2.000000 3.000000"),
        ),
        "hardshrink_negative": Curve(
            gate(0.0),
            {"lambd": scalar(-0.5)},
            (0.0,),
            (-INFINITE, INFINITE),
            probes(SAMPLE_X, "-3.000000 -2.000000 -1.000000 -0.500000 0.000000 0.500000 1.000000 2.000000 3.000000"),
        ),
        "hardshrink_integer": Curve(
            gate(1.0),
            {"lambd": scalar(1, D.UINT8)},
            (-1.0, 1.0),
            (-INFINITE, INFINITE),
            probes(SAMPLE_X, "-3.000000 -2.000000 0.000000 0.000000 0.000000 0.000000 0.000000 2.000000 3.000000"),
        ),
    },
    rejected=(
        *every_null("present: self, lambd, out", "self lambd out"),
        *forward_rows("lists", "shape", "rank", "private on the 950"),
    ),
    together={("same shape as self: out", "at most 8 dimensions: self"): shape(NINE, "self")},
    mixed=lambda draw, product, arguments: dtype(draw(st.sampled_from(FLOATS)), "out"),
    accepted=(*forward_edges(most=8), Accepted("another type", dtype(other, "out")), *_NUMBERS),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])},
            {"lambd": 0.5},
            {"out": "0.000000 0.000000 0.000000 0.000000 0.000000 0.600000 0.700000 0.800000"},
        ),
    ),
)

HARDSHRINK_BACKWARD = Case(
    operator=BY_NAME["hardshrink_backward"],
    python=aclnn.hardshrink_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "lambd": scalar(0.5), "gradInput": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    curves={
        "hardshrink": Curve(
            gate(0.5), {"lambd": scalar(0.5)}, (-0.5, 0.5), (1.0, 1.0), probes(SAMPLE_X, SHRUNK), selects=True
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, lambd, gradInput", "gradOutput self lambd gradInput"),
        Rejected(_LISTED, dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        *(Rejected(_LISTED, dtype(D.DOUBLE, name), name, "data type ACL_FLOAT", "ACL_DOUBLE") for name in _ALIKE[1:]),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_ALIKE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _ALIKE
        ),
        Rejected(_BROADCAST, shape((4, 3), "gradOutput"), "gradOutput", "broadcasts with [2, 3]", "[4, 3]"),
        Rejected(_BROADCAST_SHAPE, shape((1, 2, 3), "gradInput"), "gradInput", "shape [2, 3]", "[1, 2, 3]"),
    ),
    never_together=frozenset({(_BROADCAST, _BROADCAST_SHAPE)}),
    mixed=mixed_operands,
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
        ),
        Accepted("another type", dtype(other, "gradInput")),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 2)), [0.0, 0.0, 1.0, 1.0]),
                "self": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0]),
            },
            {"lambd": 2.0},
            {"gradInput": "0.000000 0.000000 1.000000 1.000000"},
        ),
    ),
)
