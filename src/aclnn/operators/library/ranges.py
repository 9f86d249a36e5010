"""aclnnArange, aclnnLinspace, aclnnEye: numbers that a formula gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import dtype_in, extents, finite, present, real, rule, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Parameter
from aclnn.operators.library.common import REAL, library_operator, scalar, tensor_out

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE, D.INT32, D.INT64)


_LIMITS = "start", "end", "step"


def _step(call: Call) -> str | None:
    start, end, step = (call[name].value.item() for name in _LIMITS)
    if step == 0:
        return f"step: expected a number other than 0, got {step}"
    if (end - start) * math.copysign(1, step) < 0:
        return f"step: expected one that leads from {start} to {end}, got {step}"
    return None


def _size(call: Call) -> str | None:
    start, end, step = (float(call[name].value) for name in _LIMITS)
    expected, got = math.ceil((end - start) / step), call["out"].shape
    if got[-1:] == (expected,) and math.prod(got) == expected:
        return None
    return f"out: expected shape [{expected}], perhaps after dimensions of 1, got {extents(got)}"


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
            real(*_LIMITS),
            finite(*_LIMITS),
            rule("from start to end: step", _step),
            rule("as many as there are: out", _size),
        ),
        _numbers,
        header="arange",
        dtypes=_DTYPES,
    ),
    library_operator(
        "linspace",
        "out[i] = start + i * (end - start) / (steps - 1)",
        "Fill a vector with numbers from one to another.",
        (
            scalar("start", "the first number"),
            scalar("end", "the last"),
            Parameter("steps", "steps", Kind.INT64, "how many"),
            tensor_out(),
        ),
        (
            present("start", "end", "out"),
            dtype_in(where_supported((*_DTYPES, D.INT8, D.UINT8, D.INT16)), "out"),
            real("start", "end"),
            rule(
                "as many as steps: out",
                lambda call: (
                    None
                    if call["out"].shape == (call["steps"],)
                    else f"out: expected shape [{call['steps']}], got {extents(call['out'].shape)}"
                ),
            ),
        ),
        lambda start, end, steps: np.linspace(float(start), float(end), steps),
        header="linspace",
        dtypes=(*_DTYPES, D.INT8, D.UINT8, D.INT16),
        attributes=("steps",),
    ),
    library_operator(
        "eye",
        "out[i, i] = 1, 0 elsewhere",
        "Fill a matrix with ones on its diagonal.",
        (Parameter("n", "n", Kind.INT64, "its rows"), Parameter("m", "m", Kind.INT64, "its columns"), tensor_out()),
        (
            present("out"),
            dtype_in(where_supported(REAL), "out"),
            rule(
                "n by m: out",
                lambda call: (
                    None
                    if call["out"].shape == (call["n"], call["m"])
                    else f"out: expected shape [{call['n']}, {call['m']}], got {extents(call['out'].shape)}"
                ),
            ),
        ),
        lambda n, m: np.eye(n, m),
        header="eye",
        dtypes=REAL,
        attributes=("n", "m"),
    ),
)
