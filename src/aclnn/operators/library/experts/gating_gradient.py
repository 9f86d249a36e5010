"""aclnnMoeGatingTopKBackward: gradient of the chosen experts' weights for all scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    floating,
    not_empty,
    one_of,
    rule,
    same_dtype,
    same_shape,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import add_at, attribute, declared, expect_within, tensor_in, tensor_out

_MOST_EXPERTS = 2048


def _chosen(call: Call) -> str | None:
    (rows, experts), got = call["xNorm"].shape, call["gradY"].shape
    if got[0] == rows and got[1] <= experts:
        return None
    return f"gradY: expected {rows} rows of at most {experts} chosen (experts of xNorm), got {extents(got)}"


def _work(call: Call) -> Library:
    factor, eps = call["routedScalingFactor"], call["eps"]

    def back(scores: Any, grad: Any, experts: Any) -> Any:
        expect_within("expertIdx", experts, 0, scores.shape[1] - 1)
        scores = scores.astype(np.float64)
        weights, grad = np.take_along_axis(scores, experts, 1), factor * grad.astype(np.float64)
        total = weights.sum(1, keepdims=True) + eps
        grad = (grad - (weights / total * grad).sum(1, keepdims=True)) / total
        found = np.zeros(scores.shape)
        add_at(found, np.arange(len(scores))[:, None] * scores.shape[1] + experts, grad)
        return scores * (1 - scores) * found

    return Library(back, ("xNorm", "gradY", "expertIdx"), ("out",))


OPERATORS = (
    declared(
        "moe_gating_top_k_backward",
        "out = xNorm * (1 - xNorm) * scattered((g - sum of g * w / s) / s), g = routedScalingFactor * gradY, "
        "w = xNorm[expertIdx], s = their sum + eps",
        "Gradient of the selected experts' weights with respect to all scores, through the sigmoid.",
        (
            tensor_in("xNorm", "the sigmoid of the scores of all experts; FLOAT"),
            tensor_in("gradY", "the gradient with respect to the selected experts' weights"),
            tensor_in("expertIdx", "the selected experts; INT32"),
            attribute("renorm", Kind.INT64, "0 or 1, used by softmax only"),
            attribute("normType", Kind.INT64, "1: sigmoid"),
            attribute("routedScalingFactor", Kind.DOUBLE, "the factor of the weights"),
            attribute("eps", Kind.DOUBLE, "the term added to the sum for stability"),
            tensor_out("out", "the gradient with respect to the scores", const=True),
        ),
        (
            dtype_in({D.FLOAT}, "xNorm"),
            dtype_in(floating, "gradY"),
            dtype_in({D.INT32}, "expertIdx"),
            same_dtype("out", "gradY"),
            dims_between(2, 2, "xNorm", "gradY"),
            not_empty("xNorm", "gradY"),
            value_is(
                f"from 2 to {_MOST_EXPERTS} experts in the second dimension",
                lambda got: 2 <= got[1] <= _MOST_EXPERTS,
                "xNorm",
            ),
            rule("some for each row: gradY", _chosen),
            same_shape("expertIdx", "gradY"),
            same_shape("out", "xNorm"),
            one_of("renorm", 0, 1),
            one_of("normType", 1),
        ),
        _work,
        products=A2_CLASS,
    ),
)
