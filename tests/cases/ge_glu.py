"""aclnnGeGlu and aclnnGeGluV3 with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.gelu import gelu_erf, gelu_tanh
from tests.cases.glu import gated_case, gated_edges, gated_rows, gated_shapes
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL,
    OLD,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    T,
    dtype,
    every_null,
    other,
    shape,
)
from tests.helpers.exact import UNITS_OF_PRODUCTS, derivatives, ulp_of, values

_GELU = {0: gelu_erf, 1: gelu_tanh}


def _reference(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Any]:
    dim, gelu, left = arguments["dim"], _GELU[arguments["approximate"]], arguments.get("activateLeft", False)
    if not arguments["self"].ndim:  # nothing is read
        return {}
    p, g = np.split(arguments["self"], 2, dim)[:: -1 if left else 1]
    if "gradOutput" in arguments:
        dy = arguments["gradOutput"]
        pair = [dy * arguments["gelu"], dy * p * derivatives(gelu, g)]
        exact = {"gradInput": np.concatenate(pair[:: -1 if left else 1], dim)}
    else:
        value = values(gelu, g)
        exact = {"out": p * value, "outGelu": value}
    kinds = {name: outputs[name].dtype for name in exact}
    return {name: (exact[name], UNITS_OF_PRODUCTS[kind] * ulp_of(exact[name], kind)) for name, kind in kinds.items()}


_INFERENCE = (Product.ATLAS_INFERENCE,)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_INFERENCE, (FLOAT, FLOAT16))
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), (NO_KERNEL, "product"))
_SPARED = " (unless self is empty or has no dimension)"
_forward, _gradient = gated_shapes("self", "out outGelu"), gated_shapes("self gradInput", "gradOutput gelu")
_LISTED = "data type: self, out, outGelu"
_RANKS = "at most 8 dimensions: self, out, outGelu"


def _mode(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    change: Change = gated_case(*_way(arguments))["mixed"](draw, product, arguments)
    chosen = {"approximate": draw(st.sampled_from((0, 1)))}
    return {**change, **chosen, **({"activateLeft": draw(st.booleans())} if "activateLeft" in arguments else {})}


def _way(arguments: Arguments) -> tuple[Any, str]:
    return (_gradient, "gradOutput") if "gradOutput" in arguments else (_forward, "out")


GE_GLU = Case(
    operator=BY_NAME["ge_glu"],
    python=aclnn.ge_glu,
    call=lambda d: {
        "self": T(d, (2, 6)), "dim": -1, "approximate": 1, "out": T(d, (2, 3)), "outGelu": T(d, (2, 3))
    },
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=_reference,
    reshape=gated_case(_forward, "out")["reshape"],
    mixed=_mode,
    rejected=(
        *every_null("present: self, out, outGelu", "self out outGelu"),
        Rejected(_LISTED, dtype(D.INT32, "self"), "self", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_LISTED, dtype(BF16, "self", "out", "outGelu"), "self", "ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "out"), "out", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_LISTED, dtype(D.INT32, "outGelu"), "outGelu", "data type ACL_FLOAT", "ACL_INT32"),
        *(
            Rejected(f"same data type as self: {name}{_SPARED}", dtype(other, name), name, "that of self", "ACL_")
            for name in ("out", "outGelu")
        ),
        *(
            Rejected(_RANKS, shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in ("self", "out", "outGelu")
        ),
        *gated_rows("self", "out", "outGelu"),
        *(
            Rejected("allowed value: approximate", {"approximate": mode}, "approximate", "0 or 1", str(mode))
            for mode in (10, -1)
        ),
    ),
    accepted=(
        *gated_edges(_forward),
        Accepted("0-dim", shape((), "self") | shape((0,), "out", "outGelu")),
        Accepted(
            "other types of nothing",
            shape((0, 6), "self") | {name: {"dtype": other, "shape": (0, 3)} for name in ("out", "outGelu")},
        ),
        Accepted("erf", {"approximate": 0}),
    ),
    examples=(
        Example(
            {"self": (T(FLOAT, (2, 2)), [0.0, 1.0, 2.0, 3.0])},
            {"dim": -1, "approximate": 1},
            {"out": "0.000000 5.992725", "outGelu": "0.841192 2.996363"},
        ),
    ),
)  # fmt: skip

_FOUR = ("gradOutput", "self", "gelu", "gradInput")


def _dtypes_of_gradients() -> tuple[Rejected, ...]:
    return tuple(
        Rejected(f"same data type as gradOutput: {name}", dtype(other, name), name, "that of gradOutput", "ACL_")
        for name in _FOUR[1:]
    )


GE_GLU_BACKWARD = Case(
    operator=BY_NAME["ge_glu_backward"],
    python=aclnn.ge_glu_backward,
    call=lambda d: {
        "gradOutput": T(d, (2, 3)), "self": T(d, (2, 6)), "gelu": T(d, (2, 3)), "dim": -1, "approximate": 1,
        "gradInput": T(d, (2, 6)),
    },
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=_reference,
    reshape=gated_case(_gradient, "gradOutput")["reshape"],
    mixed=_mode,
    rejected=(
        *every_null(f"present: {', '.join(_FOUR)}", " ".join(_FOUR)),
        Rejected("data type: gradOutput", dtype(D.INT32, *_FOUR), "gradOutput", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected("data type: gradOutput", dtype(BF16, *_FOUR), "gradOutput", "ACL_FLOAT", "ACL_BF16", products=OLD),
        *_dtypes_of_gradients(),
        Rejected("same shape as gradOutput: gelu", shape((3,), "gelu"), "gelu", "[2, 3]", "[3]"),
        Rejected("same shape as self: gradInput", shape((5,), "gradInput"), "gradInput", "[2, 6]", "[5]"),
        Rejected("at most 8 dimensions: self", shape(NINE, "self", "gradInput"), "self", "at most 8", "9"),
        *(
            replace(rejection, change=shape((2, 5), "self", "gradInput"))
            if rejection.check.startswith("even")
            else replace(rejection, change=shape(rejection.change["gradOutput"]["shape"], "gradOutput", "gelu"))
            if rejection.check.startswith("half")
            else rejection
            for rejection in gated_rows("self", "gradOutput")
        ),
        Rejected("allowed value: approximate", {"approximate": 2}, "approximate", "0 or 1", "2"),
        Rejected(
            "tanh: approximate (on Atlas inference)", {"approximate": 0}, "approximate", "1", "0", products=_INFERENCE
        ),
    ),
    together={("data type: gradOutput", "same data type as gradOutput: self"): dtype(D.INT32, "gradOutput")},
    accepted=(
        *gated_edges(_gradient),
        Accepted("0-dim", shape((), "self", "gradInput") | shape((0,), "gradOutput", "gelu")),
        Accepted("erf", {"approximate": 0}, MODERN),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT16, (2, 1)), [-2.0, -1.0]),
                "self": (T(FLOAT16, (2, 2)), [-2.0, -1.0, 0.0, 1.0]),
                "gelu": (T(FLOAT16, (2, 1)), [-2.0, -1.0]),
            },
            {"dim": -1, "approximate": 1},
            {"gradInput": "4.000000 -0.331787 1.000000 -0.000000"},
        ),
        Example(  # as the document's sample lays down its bytes
            {
                "gradOutput": (T(FLOAT16, (2, 1)), [0.0, -2.0]),
                "self": (T(FLOAT16, (2, 2)), [0.0, -2.0, 0.0, -1.875]),
                "gelu": (T(FLOAT16, (2, 1)), [0.0, -2.0]),
            },
            {"dim": -1, "approximate": 1},
            {"gradInput": "0.000000 -0.000000 4.000000 0.000000"},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (1, 9)), [1.0] * 9),
                "self": (T(FLOAT, (2, 9)), [-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 2, -1, 0.5, 3, 1, -2, 0, -3, 1]),
                "gelu": (T(FLOAT, (1, 9)), [0.0] * 9),
            },
            {"dim": 0, "approximate": 0},
            {
                "gradInput": " ".join(["0.000000"] * 9) + " "
                "-3.255695 0.166631 -0.867495 -0.505973 0.000000 -0.042616 0.500000 -0.023891 3.249946"
            },
        ),
    ),
)  # fmt: skip


def _with_left(case: Case, left: bool, name: str, examples: tuple[Example, ...]) -> Case:
    """The row of the function that can also activate the first half."""

    def call(d: D) -> Arguments:
        valid = case.call(d)
        return {p.name: left if p.name == "activateLeft" else valid[p.name] for p in BY_NAME[name].parameters}

    return replace(case, operator=BY_NAME[name], python=getattr(aclnn, name), call=call, examples=examples)


GE_GLU_V3 = _with_left(
    GE_GLU,
    True,
    "ge_glu_v3",
    (
        Example(
            GE_GLU.examples[0].inputs,
            {**GE_GLU.examples[0].attributes, "activateLeft": False},
            GE_GLU.examples[0].printed,
        ),
        Example(
            {"self": (T(FLOAT, (2, 2)), [1.0, 0.0, 3.0, 2.0])},
            {"dim": -1, "approximate": 1, "activateLeft": True},
            GE_GLU.examples[0].printed,
        ),
    ),
)
GE_GLU_V3_BACKWARD = _with_left(
    GE_GLU_BACKWARD,
    True,
    "ge_glu_v3_backward",
    tuple(
        Example(example.inputs, {**example.attributes, "activateLeft": False}, example.printed)
        for example in GE_GLU_BACKWARD.examples
    ),
)
