"""aclnnGelu, aclnnGeluV2 and their gradient."""

from __future__ import annotations

from typing import Any

from flint import arb
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows
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


def gelu_erf(x: Any) -> Any:
    return x / 2 * (1 + (x / arb(2).sqrt()).erf())


def gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + tanh((2 / arb.pi()).sqrt() * (x + arb("0.044715") * x * x * x)))


_SMALLEST_SUBNORMAL = 2.0**-149  # what the document's integer ones read as


def _gelu_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    dy, x = (draw(st.sampled_from(FLOATS)) for _ in range(2))
    return dtype(dy, "gradOutput") | dtype(x, "self") | dtype(dy if dy == x else FLOAT, "gradInput")


GELU_BACKWARD_V2 = Case(
    mixed=_gelu_mixed,
    operator=BY_NAME["gelu_backward_v2"],
    python=aclnn.gelu_backward_v2,
    call=lambda d: {
        "gradOutput": T(d, GRID),
        "self": T(d, GRID),
        "approximate": "none",
        "gradInput": T(d, GRID),
    },
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_200I_500_A2: (NO_KERNEL, "product")},
    curves={
        "gelu_none": Curve(
            gelu_erf,
            {"approximate": "none"},
            (-0.751791524694,),
            (float("nan"), float("nan")),
            probes(SAMPLE_X, "-0.011946 -0.085232 -0.083315 0.132505 0.500000 0.867495 1.083315 1.085232 1.011946"),
        ),
        "gelu_tanh": Curve(
            gelu_tanh,
            {"approximate": "tanh"},
            (-0.752461422071,),
            (0.0, 1.0),
            probes(SAMPLE_X, "-0.011584 -0.086099 -0.082964 0.132630 0.500000 0.867370 1.082964 1.086099 1.011584"),
        ),
    },
    rejected=(
        *every_null(
            "present: gradOutput, self, gradInput, approximate",
            "gradOutput self gradInput approximate",
        ),
        Rejected(
            "promotable: gradOutput, self", dtype(D.UINT16, "self"), "self", "data type that promotes", "ACL_UINT16"
        ),
        Rejected(
            "promotable: gradOutput, self",
            dtype(D.DT_UNDEFINED, "gradOutput", "self", "gradInput"),
            "self",
            "data type that promotes",
            "ACL_DT_UNDEFINED",
        ),
        Rejected("data type: gradOutput, self", dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type", "ACL_DOUBLE"),
        Rejected(
            "data type: gradOutput, self",
            dtype(BF16, "gradOutput", "self", "gradInput"),
            "gradOutput",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected("data type: gradOutput, self", dtype(D.INT32, "self"), "self", "data type", "ACL_INT32"),
        Rejected(
            "data type: gradOutput, self",
            dtype(BF16, "self") | dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "gradInput"),
            "self",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected("promoted data type: gradInput", dtype(other, "gradInput"), "gradInput", "data type", "ACL_FLOAT"),
        Rejected(
            "promoted data type: gradInput",
            dtype(FLOAT, "self"),
            "gradInput",
            "data type ACL_FLOAT",
            "16",
            dtypes=(FLOAT16, BF16),
        ),
        Rejected(
            "broadcasts with self: gradOutput",
            shape((4, 3), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[4, 3]",
        ),
        Rejected(
            "broadcasts with self: gradOutput",
            shape((0,), "gradOutput"),
            "gradOutput",
            "broadcasts with [2, 3]",
            "[0]",
        ),
        Rejected(
            "broadcast shape of gradOutput and self: gradInput",
            shape((1, 2, 3), "gradInput"),
            "gradInput",
            "shape [2, 3]",
            "[1, 2, 3]",
        ),
        Rejected("allowed value: approximate", {"approximate": "Tanh"}, "approximate", "'none' or 'tanh'", "'Tanh'"),
        Rejected("allowed value: approximate", {"approximate": ""}, "approximate", "'none' or 'tanh'", "''"),
        Rejected("allowed value: approximate", {"approximate": "none "}, "approximate", "'none' or 'tanh'", "'none '"),
        Rejected(
            "allowed value: approximate",
            {"approximate": "test"} | shape((0, 3), "gradOutput", "self", "gradInput"),
            "approximate",
            "'none' or 'tanh'",
            "'test'",
        ),
    ),
    never_together=frozenset(
        {
            # The second compares with the broadcast shape, which then does not exist.
            ("broadcasts with self: gradOutput", "broadcast shape of gradOutput and self: gradInput"),
        }
    ),
    together={
        # A pair that does not promote has no promoted type, but a partner that no kernel takes.
        ("promotable: gradOutput, self", "data type: gradOutput, self"): dtype(D.UINT16, "gradOutput"),
        ("data type: gradOutput, self", "promoted data type: gradInput"): dtype(D.DOUBLE, "gradOutput"),
    },
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "self", "gradInput")),
        Accepted("broadcast to empty", shape((1,), "gradOutput") | shape((0,), "self", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("0-dim with 2-dim", shape((), "gradOutput")),
        Accepted("9 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 1, 3), "gradOutput", "self", "gradInput")),
        Accepted("broadcast self", shape((3,), "self")),
        Accepted("tanh", {"approximate": "tanh"}),
        Accepted(
            "broadcast both ways",
            shape((1, 4, 1), "gradOutput") | shape((5, 1, 3), "self") | shape((5, 4, 3), "gradInput"),
        ),
        Accepted(
            "any formats",
            {"self": {"format": Format.FORMAT_NC1HWC0}, "gradInput": {"format": Format.FORMAT_FRACTAL_NZ}},
        ),
        Accepted("float16 with float32", dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "self", "gradInput")),
        Accepted("float32 with float16", dtype(FLOAT16, "self") | dtype(FLOAT, "gradOutput", "gradInput")),
        Accepted(
            "bfloat16 with float16",
            dtype(BF16, "gradOutput") | dtype(FLOAT16, "self") | dtype(FLOAT, "gradInput"),
            MODERN,
        ),
        Accepted("bfloat16 with float32", dtype(BF16, "self") | dtype(FLOAT, "gradOutput", "gradInput"), MODERN),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [_SMALLEST_SUBNORMAL] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "tanh"},
            {"gradInput": " ".join(["0.000000"] * 8)},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "tanh"},
            {"gradInput": "0.500000 1.082964 1.086099 1.011584 1.000335 1.000002 1.000000 1.000000"},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {"approximate": "none"},
            {"gradInput": "0.500000 1.083315 1.085232 1.011946 1.000504 1.000007 1.000000 1.000000"},
        ),
    ),
)


def _gelu_backward_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return dtype(draw(st.sampled_from(FLOATS)), "gradInput") | _gelu_inputs(draw)


def _gelu_inputs(draw: st.DrawFn) -> Change:
    return dtype(draw(st.sampled_from(FLOATS)), "gradOutput") | dtype(draw(st.sampled_from(FLOATS)), "self")


GELU_BACKWARD = Case(
    mixed=_gelu_backward_mixed,
    operator=BY_NAME["gelu_backward"],
    python=aclnn.gelu_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), "gradInput": T(d, GRID)},
    dtypes=GELU_BACKWARD_V2.dtypes,
    unsupported=GELU_BACKWARD_V2.unsupported,
    curves={"gelu_tanh": GELU_BACKWARD_V2.curves["gelu_tanh"]._replace(attributes={})},
    rejected=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        Rejected(
            "promotable: gradOutput, self", dtype(D.UINT16, "self"), "self", "data type that promotes", "ACL_UINT16"
        ),
        Rejected(
            "promoted floating data type: self",
            dtype(D.DOUBLE, "gradOutput"),
            "self",
            "ACL_DOUBLE (that of gradOutput) to ACL_FLOAT",
            "ACL_",
        ),
        Rejected(
            "promoted floating data type: self",
            dtype(D.INT32, "gradOutput", "self"),
            "self",
            "promotes with ACL_INT32",
            "ACL_INT32",
        ),
        Rejected(
            "promoted floating data type: self",
            dtype(BF16, "self"),
            "self",
            "to ACL_FLOAT or ACL_FLOAT16 on Atlas",
            "ACL_BF16",
            products=OLD,
        ),
        Rejected("data type: gradInput", dtype(D.DOUBLE, "gradInput"), "gradInput", "data type", "ACL_DOUBLE"),
        Rejected(
            "at most 8 dimensions: gradOutput, self",
            shape(NINE, "gradOutput", "gradInput"),
            "gradOutput",
            "at most 8 dimensions",
            "9",
        ),
        Rejected("at most 8 dimensions: gradOutput, self", shape(NINE, "self", "gradInput"), "self", "at most 8", "9"),
        *(rejection for rejection in GELU_BACKWARD_V2.rejected if rejection.check.startswith("broadcast")),
    ),
    never_together=GELU_BACKWARD_V2.never_together,
    accepted=(
        Accepted("empty", shape((0, 4), "gradOutput", "self", "gradInput")),
        Accepted("0-dim", shape((), "gradOutput", "self", "gradInput")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "gradOutput", "self", "gradInput")),
        Accepted("broadcast self", shape((3,), "self")),
        Accepted("float16 with float32", dtype(FLOAT16, "gradOutput") | dtype(FLOAT, "self", "gradInput")),
        Accepted("another type out", dtype(other, "gradInput")),
        Accepted("integers with floating numbers", dtype(D.INT32, "gradOutput")),
        Accepted("booleans with floating numbers", dtype(D.BOOL, "self")),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(D.INT32, (4, 2)), [1] * 8),
                "self": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {},
            {"gradInput": "0.500000 1.082964 1.086099 1.011584 1.000335 1.000002 1.000000 1.000000"},
        ),
    ),
)


_GELU_TANH_PROBES = probes(
    SAMPLE_X, "-0.003637 -0.045402 -0.158808 -0.154286 0.000000 0.345714 0.841192 1.954598 2.996363"
)
_GELU_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16))


GELU = Case(
    operator=BY_NAME["gelu"],
    python=aclnn.gelu,
    call=forward_call("self", "out"),
    dtypes=_GELU_DTYPES,
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={"gelu_tanh": Curve(gelu_tanh, {}, (0.0,), (NAN, INFINITE), _GELU_TANH_PROBES)},
    rejected=forward_rows("null", "list", "dtype", "private", "rank", "shape"),
    together={
        ("data type: self", "same data type as self: out"): dtype(D.DOUBLE, "self"),
        ("at most 8 dimensions: self", "same shape as self: out"): shape(NINE, "self"),
    },
    accepted=forward_edges(most=8),
    examples=(),
)


GELU_V2 = Case(
    operator=BY_NAME["gelu_v2"],
    python=aclnn.gelu_v2,
    call=forward_call("x", "y", approximate=0),
    dtypes=_GELU_DTYPES,
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves={
        "gelu_v2_erf": Curve(
            gelu_erf,
            {"approximate": 0},
            (0.0,),
            (NAN, INFINITE),
            probes(SAMPLE_X, "-0.004050 -0.045500 -0.158655 -0.154269 0.000000 0.345731 0.841345 1.954500 2.995950"),
        ),
        "gelu_v2_other": Curve(gelu_erf, {"approximate": 7}, (), (NAN, INFINITE), {}),
        "gelu_v2_tanh": Curve(gelu_tanh, {"approximate": 1}, (0.0,), (NAN, INFINITE), _GELU_TANH_PROBES),
    },
    rejected=forward_rows("null", "dtype", "list", "shape", x="x", out="y"),
    together={("same data type as x: y", "data type: x"): dtype(D.DOUBLE, "x")},
    accepted=(*forward_edges("x", "y"), Accepted("tanh", {"approximate": 1})),
    examples=(),
)
