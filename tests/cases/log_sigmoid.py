"""aclnnLogSigmoid, aclnnLogSigmoidForward and their gradient."""

from __future__ import annotations

from typing import Any

import aclnn
from aclnn.core.dtypes import DataType as D
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
    shape,
)


def log_sigmoid(x: Any) -> Any:
    return -((-x).exp() + 1).log() if x[0] > 0 else x - (x.exp() + 1).log()


_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD[1:], (FLOAT, FLOAT16))
_UNSUPPORTED = dict.fromkeys(OLDEST, (NO_KERNEL, "product"))
_SAMPLE = (T(FLOAT, (4, 2)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
_PRINTED = "-0.313262 -0.126928 -0.048587 -0.018150 -0.006715 -0.002476 -0.000911 -0.000335"
_ROWS = (
    *forward_rows("null"),
    Rejected("data type: self, out", dtype(D.DOUBLE, "self"), "self", "data type ACL_FLOAT", "ACL_DOUBLE"),
    Rejected(
        "data type: self, out", dtype(BF16, "self", "out"), "self", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD
    ),
    Rejected("data type: self, out", dtype(D.INT32, "out"), "out", "data type ACL_FLOAT", "ACL_INT32"),
    *forward_rows("dtype", "shape"),
)
_EDGES = (*forward_edges(), Accepted("10 dimensions", shape((2,) + (1,) * 8 + (3,), "self", "out")))

LOG_SIGMOID = Case(
    operator=BY_NAME["log_sigmoid"],
    python=aclnn.log_sigmoid,
    call=forward_call("self", "out"),
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves={
        "log_sigmoid": Curve(
            log_sigmoid,
            {},
            (),
            (-INFINITE, 0.0),
            probes(
                SAMPLE_X,
                "-3.048587 -2.126928 -1.313262 -0.974077 -0.693147 -0.474077 -0.313262 -0.126928 -0.048587",
            ),
        )
    },
    rejected=_ROWS,
    accepted=_EDGES,
    examples=(Example({"self": _SAMPLE}, {}, {"out": _PRINTED}),),
)

LOG_SIGMOID_FORWARD = Case(
    operator=BY_NAME["log_sigmoid_forward"],
    python=aclnn.log_sigmoid_forward,
    call=lambda d: {"self": T(d, GRID), "out": T(d, GRID), "buffer": T(d, GRID)},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves=LOG_SIGMOID.curves,
    unused=frozenset({"buffer"}),
    rejected=_ROWS,
    accepted=(
        *_EDGES,
        Accepted("no buffer", {"buffer": None}),
        Accepted("any buffer", {"buffer": T(D.INT8, (7,))}),
    ),
    examples=(Example({"self": _SAMPLE, "buffer": (T(FLOAT, (4, 2)), [0.0] * 8)}, {}, {"out": _PRINTED}),),
)

_LISTED = "data type: gradOutput, self"
_PAIRED = ("same data type as gradInput: gradOutput", "same data type as gradInput: self")
_ALIKE = ("gradOutput", "self", "gradInput")

LOG_SIGMOID_BACKWARD = Case(
    operator=BY_NAME["log_sigmoid_backward"],
    python=aclnn.log_sigmoid_backward,
    call=lambda d: {name: T(d, GRID) for name in ("gradOutput", "self", "buffer", "gradInput")},
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    curves={
        "log_sigmoid": Curve(
            log_sigmoid,
            {},
            (),
            (1.0, 0.0),
            probes(SAMPLE_X, "0.952574 0.880797 0.731059 0.622459 0.500000 0.377541 0.268941 0.119203 0.047426"),
        )
    },
    unused=frozenset({"buffer"}),
    rejected=(
        *every_null("present: gradOutput, self, buffer, gradInput", "gradOutput self buffer gradInput"),
        Rejected(_LISTED, dtype(D.DOUBLE, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT32, "self"), "self", "data type ACL_FLOAT", "ACL_INT32"),
        Rejected(_PAIRED[0], dtype(other, "gradInput"), "gradOutput", "that of gradInput", "ACL_"),
        Rejected(_PAIRED[1], dtype(other, "self"), "self", "that of gradInput", "ACL_FLOAT"),
        Rejected("same shape as gradInput: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "[2, 3]", "[1, 3]"),
        Rejected("same shape as gradInput: self", shape((3, 2), "self"), "self", "[2, 3]", "[3, 2]"),
    ),
    together={_PAIRED: dtype(other, "gradInput")},
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("9 dimensions", shape((2,) + (1,) * 7 + (3,), *_ALIKE)),
        Accepted("any buffer", {"buffer": T(D.BOOL, (1,))}),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (2, 2)), [1.0] * 4),
                "self": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0]),
                "buffer": (T(FLOAT, (2, 2)), [1.0, 2.0, 3.0, 4.0]),
            },
            {},
            {"gradInput": "0.268941 0.119203 0.047426 0.017986"},
        ),
    ),
)
