"""aclnnFastGelu and its gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flint import arb

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows
from tests.cases.table import (
    FLOAT,
    FLOATS,
    GRID,
    INFINITE,
    INVALID,
    MODERN,
    NAN,
    NINE,
    PRODUCTS,
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
    shape,
)


def _fast_gelu(x: Any) -> Any:
    return x / (1 + (-arb("1.702") * x).exp())


FAST_GELU_BACKWARD = Case(
    operator=BY_NAME["fast_gelu_backward"],
    python=aclnn.fast_gelu_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "gradInput": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(PRODUCTS[3:], (INVALID, "gradInput: expected data type")),
    curves={
        "fast_gelu": Curve(
            _fast_gelu,
            {},
            (-0.751154255441,),
            (float("nan"), float("nan")),
            probes(SAMPLE_X, "-0.024548 -0.073815 -0.067780 0.120778 0.500000 0.879222 1.067780 1.073815 1.024548"),
        )
    },
    rejected=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        Rejected(
            "same data type as gradOutput: self",
            dtype(other, "self"),
            "self",
            "data type",
            "ACL_FLOAT",
            products=MODERN,
        ),
        Rejected(
            "same data type as gradOutput: gradInput",
            dtype(other, "gradInput"),
            "gradInput",
            "data type",
            "ACL_FLOAT",
            products=MODERN,
        ),
        Rejected(
            "data type: gradInput",
            dtype(D.INT32, "gradOutput", "self", "gradInput"),
            "gradInput",
            "data type",
            "ACL_INT32",
        ),
        Rejected(
            "same shape as gradOutput: self", shape((3, 2), "self"), "self", "shape [2, 3]", "[3, 2]", products=MODERN
        ),
        Rejected(
            "same shape as gradOutput: gradInput",
            shape((2, 4), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[2, 4]",
            products=MODERN,
        ),
        Rejected(
            "at most 8 dimensions: self",
            shape(NINE, "gradOutput", "self", "gradInput"),
            "self",
            "at most 8 dimensions",
            "9",
            products=MODERN,
        ),
        Rejected(
            "same format as self: gradInput",
            {"gradInput": {"format": Format.FORMAT_NCHW}},
            "gradInput",
            "format ACL_FORMAT_ND",
            "ACL_FORMAT_NCHW",
            products=MODERN,
        ),
        Rejected(
            "same format as self: gradOutput",
            {"gradOutput": {"format": Format.FORMAT_FRACTAL_NZ}},
            "gradOutput",
            "format ACL_FORMAT_ND",
            "ACL_FORMAT_FRACTAL_NZ",
            products=MODERN,
        ),
    ),
    together={
        ("same data type as gradOutput: gradInput", "data type: gradInput"): dtype(D.INT32, "gradInput"),
        ("same shape as gradOutput: gradInput", "at most 8 dimensions: self"): shape(NINE, "gradOutput", "self"),
    },
    accepted=(
        Accepted("empty", shape((0, 0), "gradOutput", "self", "gradInput"), MODERN),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "gradInput")),
        Accepted("one format", {n: {"format": Format.FORMAT_NCHW} for n in ("gradOutput", "self", "gradInput")}),
        Accepted(
            "one private format",
            {n: {"format": Format.FORMAT_FRACTAL_NZ} for n in ("gradOutput", "self", "gradInput")},
        ),
    ),
    examples=(
        Example(
            {"gradOutput": (T(FLOAT, (3, 3)), [0.0] * 9), "self": (T(FLOAT, (3, 3)), [0.0] * 9)},
            {},
            {"gradInput": " ".join(["0.000000"] * 9)},
        ),
        Example(
            {"gradOutput": (T(FLOAT, (3, 3)), [1.0] * 9), "self": (T(FLOAT, (3, 3)), [0.0] * 9)},
            {},
            {"gradInput": " ".join(["0.500000"] * 9)},
        ),
    ),
)


FAST_GELU = Case(
    operator=BY_NAME["fast_gelu"],
    python=aclnn.fast_gelu,
    call=forward_call("self", "out"),
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(PRODUCTS[3:], (INVALID, "self: expected data type")),
    curves={
        "fast_gelu": Curve(
            _fast_gelu,
            {},
            (0.0,),
            (NAN, INFINITE),
            probes(SAMPLE_X, "-0.018071 -0.064341 -0.154204 -0.149612 0.000000 0.350388 0.845796 1.935659 2.981929"),
        )
    },
    rejected=tuple(
        rejection if rejection.check.startswith(("present", "data type")) else replace(rejection, products=MODERN)
        for rejection in forward_rows("null", "dtype of x", "list on the newer", "shape", "rank", "format")
    ),
    together={
        ("same data type as out: self", "data type: self"): dtype(D.INT8, "self"),
        ("same shape as self: out", "at most 8 dimensions: self"): shape(NINE, "self"),
    },
    accepted=tuple(accepted._replace(products=MODERN) for accepted in forward_edges(most=8)),
    examples=(),
)
