"""aclnnClippedSwigluV2: SwiGLU of clamped halves, or with the first half clamped after Swish."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import WITH_BFLOAT16, one_of
from aclnn.core.halves import half_shape
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import CLASS_950
from aclnn.operators.clipped_swiglu import ATTRIBUTES, GROUPS, X, checks, numbers
from aclnn.operators.library.common import attribute, logistic, tensor_out

_MODE = "clampMode"


def _work(call: Call) -> Library | None:
    shape = call["x"].shape
    if call["x"].size == 0:
        return None
    rows = math.prod(shape[: call["dim"] % len(shape)])
    alpha, limit, bias = numbers(call)
    is_interleaved, is_late = call["interleaved"], call[_MODE] == 1
    inputs = ("x", "out") if call[GROUPS] is None else ("x", "out", GROUPS)

    def gate(x: Any, out: Any, groups: Any = None) -> Any:
        count = rows if groups is None else int(np.clip(groups.sum(), 0, rows))
        x = x.reshape(rows, -1)[:count].astype(np.float64)
        a, b = (x[:, ::2], x[:, 1::2]) if is_interleaved else np.split(x, 2, -1)
        b = np.clip(b, -limit, limit)
        y = out.reshape(rows, -1).astype(np.float64)
        if is_late:
            y[:count] = np.minimum(a * logistic(a), limit) * b
        else:
            a = np.minimum(a, limit)
            y[:count] = a * logistic(alpha * a) * (b + bias)
        return y.reshape(out.shape)

    return Library(gate, inputs, ("out",))


OPERATORS = (
    Operator(
        name="clipped_swiglu_v2",
        function="aclnnClippedSwigluV2",
        summary="SwiGLU of clamped halves, for the first rows.",
        formula="out = A / (1 + exp(-alpha * A)) * (B + bias), A = min(a, limit), in clampMode 0,  "
        "min(a / (1 + exp(-a)), limit) * B in 1,  B = clamp(b, -limit, limit)",
        parameters=(
            X,
            *ATTRIBUTES,
            attribute(_MODE, Kind.INT64, "0: clamp a; 1: clamp the Swish of a, without alpha and bias"),
            tensor_out("out", "the result, half of x", const=True),
        ),
        support=dict.fromkeys(CLASS_950, WITH_BFLOAT16),
        checks=checks(False, one_of(_MODE, 0, 1)),
        work=_work,
        infer=lambda call: {"out": (call["x"].dtype, half_shape(call, "x"))},
        leaves=True,
    ),
)
