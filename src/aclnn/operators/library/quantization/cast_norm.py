"""aclnnAddRmsNormCast: RMSNorm of a sum, returned in two data types."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import MOST_DIMS, dims_between, generated, no_zero_dims, nothing_to_write, same_shape
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library
from aclnn.operators.library.common import attribute, declared, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantized_norms import reciprocal_rms
from aclnn.operators.normalization import EPSILON_NOT_NEGATIVE, one_a_row, trailing_dims

_TYPES = (D.FLOAT16, D.BF16)
_OUTPUTS = ("y1Out", "y2Out", "rstdOut", "xOut")


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    epsilon, axes = float32(call["epsilon"]), tuple(range(-len(call["gamma"].shape), 0))

    def normalize(x1: Any, x2: Any, gamma: Any) -> tuple[Any, ...]:
        x = x1.astype(np.float64) + x2
        rstd = reciprocal_rms(x, axes, epsilon)
        y = x * rstd * gamma
        return y, y, rstd, x

    return Library(normalize, ("x1", "x2", "gamma"), _OUTPUTS)


OPERATORS = (
    declared(
        "add_rms_norm_cast",
        "xOut = x1 + x2,  y1Out = y2Out = xOut * rstdOut * gamma,  rstdOut = 1 / sqrt(mean(xOut^2) + epsilon)",
        "RMSNorm of a sum, in its data type and in FLOAT.",
        (
            tensor_in("x1", "the first summand"),
            tensor_in("x2", "the second summand"),
            tensor_in("gamma", "the weight, in the shape of the normalized dimensions"),
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            tensor_out("y1Out", "the normalized sum; FLOAT", const=True),
            tensor_out("y2Out", "the normalized sum", const=True),
            tensor_out("rstdOut", "the reciprocal root mean square of each row; FLOAT", const=True),
            tensor_out("xOut", "the sum", const=True),
        ),
        generated(
            ("x1", "x2", "gamma"),
            _OUTPUTS,
            lambda product: [(d, d, d, D.FLOAT, d, D.FLOAT, d) for d in _TYPES],
            dims_between(1, MOST_DIMS, "x1", "gamma"),
            no_zero_dims("x1"),
            *(same_shape(name, "x1") for name in ("x2", "y1Out", "y2Out", "xOut")),
            trailing_dims("x1", "gamma"),
            one_a_row("x1", "rstdOut"),
            EPSILON_NOT_NEGATIVE,
        ),
        _work,
        dtypes=_TYPES,
    ),
)
