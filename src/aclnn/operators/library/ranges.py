"""aclnnArange: equally spaced numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import dtype_in, extents, present, real, rule, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call
from aclnn.operators.library.common import library_operator, scalar, tensor_out

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE, D.INT32, D.INT64)


def _step(call: Call) -> str | None:
    start, end, step = (call[name].value for name in ("start", "end", "step"))
    if step == 0:
        return f"step: expected a number other than 0, got {step}"
    if (end - start) * math.copysign(1, step) < 0:
        return f"step: expected one that leads from {start} to {end}, got {step}"
    return None


def _size(call: Call) -> str | None:
    start, end, step = (float(call[name].value) for name in ("start", "end", "step"))
    expected, got = math.ceil((end - start) / step), call["out"].shape
    return None if got == (expected,) else f"out: expected shape [{expected}], got {extents(got)}"


def _numbers(start: Any, end: Any, step: Any) -> Any:
    return start + np.arange(math.ceil((float(end) - float(start)) / float(step))) * step


OPERATORS = (
    library_operator(
        "arange",
        "out[i] = start + i * step, below end",
        "Fill a vector with equally spaced numbers.",
        (
            scalar("start", "the first number"),
            scalar("end", "what they stay below, or above with a negative step"),
            scalar("step", "from one to the next"),
            tensor_out(),
        ),
        (
            present("start", "end", "step", "out"),
            dtype_in(where_supported(_DTYPES), "out"),
            real("start", "end", "step"),
            rule("from start to end: step", _step),
            rule("as many as there are: out", _size),
        ),
        _numbers,
        header="arange",
        dtypes=_DTYPES,
    ),
)
