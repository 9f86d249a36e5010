"""aclnnSwish and its gradient."""

from __future__ import annotations

import numpy as np

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_edges
from tests.cases.silu import silu
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


def swish(beta: float) -> Forward:
    return lambda x: x / (1 + (-beta * x).exp())


_SLOPES = {
    1.0: "-0.088104 -0.090784 0.072329 0.260039 0.500000 0.739961 0.927671 1.090784 1.088104",
    2.0: "-0.012326 -0.052665 -0.090784 0.072329 0.500000 0.927671 1.090784 1.052665 1.012326",
    -1.0: "1.088104 1.090784 0.927671 0.739961 0.500000 0.260039 0.072329 -0.090784 -0.088104",
}
_VALUES = {
    1.0: "-0.142278 -0.238406 -0.268941 -0.188770 0.000000 0.311230 0.731059 1.761594 2.857722",
    2.0: "-0.007418 -0.035972 -0.119203 -0.134471 0.000000 0.365529 0.880797 1.964028 2.992582",
    -1.0: "-2.857722 -1.761594 -0.731059 -0.311230 0.000000 0.188770 0.268941 0.238406 0.142278",
}
_ZERO = -1.27846454276
_LISTED = "data type: self, out"
_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))
_COMPLEX = Rejected(
    "real number: betaOptional",
    {"betaOptional": scalar(1, D.COMPLEX64)},
    "betaOptional",
    "a real number",
    "ACL_COMPLEX64",
)


def _curves(probed: dict[float, str], gradient: bool) -> dict[str, Curve]:
    curves = {}
    upwards = (NAN, NAN if gradient else INFINITE)
    for beta, text in probed.items():
        limits = upwards if gradient or beta > 0 else (-INFINITE, NAN)
        zeros = (_ZERO / beta,) if gradient else ()
        forward = silu if beta == 1.0 else swish(beta)
        name = f"swish_{beta:g}".replace("-", "minus_")
        curves[name] = Curve(forward, {"betaOptional": scalar(beta)}, zeros, limits, probes(SAMPLE_X, text))
    quick = float(np.float32(1.702))
    return curves | {
        "swish_null": curves["swish_1"]._replace(attributes={"betaOptional": None}),
        "swish_1.702": Curve(
            swish(quick), {"betaOptional": scalar(quick)}, (_ZERO / quick,) if gradient else (), upwards, {}
        ),
    }


SWISH = Case(
    operator=BY_NAME["swish"],
    python=aclnn.swish,
    call=lambda d: {"self": T(d, GRID), "betaOptional": scalar(1.0), "out": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_curves(_VALUES, gradient=False),
    rejected=(
        *every_null("present: self, out", "self out"),
        Rejected(_LISTED, dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_LISTED, dtype(BF16, "self", "out"), "self", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "out"), "out", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected("same data type as self: out", dtype(other, "out"), "out", "that of self", "ACL_FLOAT"),
        _COMPLEX,
        Rejected("at most 8 dimensions: self, out", shape(NINE, "self", "out"), "self", "at most 8 dimensions", "9"),
        Rejected("at most 8 dimensions: self, out", shape(NINE, "out"), "out", "at most 8 dimensions", "9"),
        Rejected("same shape as out: self", shape((3, 2), "out"), "self", "shape [3, 2]", "[2, 3]"),
    ),
    accepted=(
        *forward_edges(most=8),
        Accepted("an integer", {"betaOptional": scalar(-1, D.INT8)}),
    ),
    examples=(
        Example(
            {"self": (T(FLOAT, (4, 2)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])},
            {"betaOptional": 1.100000023841858},
            {"out": "0.000000 0.750260 1.800499 2.893286 3.951486 4.979650 5.991849 6.996831"},
        ),
    ),
)

_ALIKE = ("gradOutput", "self", "gradInput")
_GRADIENTS = "data type: gradOutput, self"
_PAIRED = ("same data type as gradInput: gradOutput", "same data type as gradInput: self")

SWISH_BACKWARD = Case(
    operator=BY_NAME["swish_backward"],
    python=aclnn.swish_backward,
    call=lambda d: {
        "gradOutput": T(d, GRID),
        "self": T(d, GRID),
        "betaOptional": scalar(1.0),
        "gradInput": T(d, GRID),
    },
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=_curves(_SLOPES, gradient=True),
    rejected=(
        *every_null("present: gradOutput, self, gradInput", "gradOutput self gradInput"),
        Rejected(_GRADIENTS, dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_GRADIENTS, dtype(BF16, *_ALIKE), "gradOutput", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        Rejected(_GRADIENTS, dtype(D.INT32, "self"), "self", "data type ACL_FLOAT", "ACL_INT32"),
        _COMPLEX,
        Rejected(_PAIRED[0], dtype(other, "gradInput"), "gradOutput", "that of gradInput", "ACL_"),
        Rejected(_PAIRED[1], dtype(other, "self"), "self", "that of gradInput", "ACL_FLOAT"),
        *(
            Rejected(f"at most 8 dimensions: {', '.join(_ALIKE)}", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in _ALIKE
        ),
        Rejected("same shape as gradInput: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "[2, 3]", "[1, 3]"),
        Rejected("same shape as gradInput: self", shape((3, 2), "self"), "self", "[2, 3]", "[3, 2]"),
    ),
    together={_PAIRED: dtype(other, "gradInput")},
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 3)), [1.0] * 6),
                "self": (T(FLOAT, (2, 3)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            },
            {"betaOptional": 1.100000023841858},
            {"gradInput": "0.956367 1.097810 1.077638 1.040589 1.018224 1.007596"},
        ),
    ),
)
