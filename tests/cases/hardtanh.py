"""aclnnHardtanhBackward."""

from __future__ import annotations

from typing import Any

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    GRID,
    MODERN,
    NINE,
    OLD,
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


def hardtanh(x: Any) -> Any:
    return x if -1 < x[0] < 1 else 0 * x


_ALIKE = ("gradOutput", "self", "out")
_LISTED = f"data type: {', '.join(_ALIKE)}"
_BOUNDS = {"min": scalar(-1.0), "max": scalar(1.0)}

HARDTANH_BACKWARD = Case(
    operator=BY_NAME["hardtanh_backward"],
    python=aclnn.hardtanh_backward,
    call=lambda d: {"gradOutput": T(d, GRID), "self": T(d, GRID), **_BOUNDS, "out": T(d, GRID)},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(OLD, (FLOAT, FLOAT16)),
    unsupported={},
    curves={
        "hardtanh": Curve(
            hardtanh,
            _BOUNDS,
            (-1.0, 1.0),
            (0.0, 0.0),
            probes(SAMPLE_X, "0.000000 0.000000 0.000000 1.000000 1.000000 1.000000 0.000000 0.000000 0.000000"),
            selects=True,
        )
    },
    rejected=(
        *every_null("present: self, gradOutput, out, min, max", "self gradOutput out min max"),
        Rejected(_LISTED, dtype(D.INT8, "gradOutput"), "gradOutput", "data type ACL_FLOAT", "ACL_INT8"),
        Rejected(_LISTED, dtype(BF16, *_ALIKE), "gradOutput", "data type ACL_FLOAT", "ACL_BF16", products=OLD),
        Rejected(_LISTED, dtype(D.INT64, "self"), "self", "data type ACL_FLOAT", "ACL_INT64"),
        Rejected(_LISTED, dtype(D.INT64, "out"), "out", "data type ACL_FLOAT", "ACL_INT64"),
        Rejected(
            "same data type as self: gradOutput", dtype(other, "gradOutput"), "gradOutput", "that of self", "ACL_"
        ),
        Rejected("same data type as self: out", dtype(other, "out"), "out", "that of self", "ACL_"),
        *(
            Rejected("real number: min, max", {name: scalar(1, D.COMPLEX64)}, name, "a real number", "ACL_COMPLEX64")
            for name in ("min", "max")
        ),
        *(
            Rejected("at most 8 dimensions: gradOutput, self", shape(NINE, name), name, "at most 8 dimensions", "9")
            for name in ("gradOutput", "self")
        ),
        Rejected("same shape as self: gradOutput", shape((1, 3), "gradOutput"), "gradOutput", "[2, 3]", "[1, 3]"),
        Rejected("same shape as self: out", shape((3, 2), "out"), "out", "[2, 3]", "[3, 2]"),
    ),
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), *_ALIKE)),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
                "self": (T(FLOAT, (4, 2)), [1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 3.0, 3.0]),
            },
            {"min": 1.2, "max": 2.4},
            {"out": "0.000000 0.000000 0.000000 3.000000 0.000000 5.000000 0.000000 0.000000"},
        ),
    ),
)
