"""Logarithms of odds: aclnnLogit and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, generated, limited_dims, same_shape
from aclnn.core.dtypes import float32
from aclnn.core.operator import Check, Kind
from aclnn.operators.library.common import MODERN, attribute, library_operator, tensor_in, tensor_out

_EPS = attribute(
    "eps", Kind.DOUBLE, "the margin to which the input is clamped, [eps, 1 - eps], in float32; negative: no clamping"
)


def _logit(x: Any, eps: float) -> Any:
    x, eps = x.astype(np.float64), float32(eps)
    kept = np.where(x < eps, eps, np.where(x > 1.0 - eps, 1.0 - eps, x)) if eps >= 0 else x
    return np.log(kept / (1.0 - kept))


def _gradient(x: Any, dy: Any, eps: float) -> Any:
    x, eps = x.astype(np.float64), float32(eps)
    low, outside = (eps, 0.0) if eps >= 0 else (0.0, np.nan)
    return np.where((x < low) | (x > 1.0 - low), outside, dy / (x * (1.0 - x)))


def _checks(*names: str) -> tuple[Check, ...]:
    first, *others = names
    return generated(
        names[:-1],
        names[-1:],
        lambda product: [(d,) * len(names) for d in FLOATING],
        limited_dims(first),
        *(same_shape(name, first) for name in others),
    )


OPERATORS = (
    library_operator(
        "logit",
        "out = ln(z / (1 - z)), z = clamp(input, eps, 1 - eps)",
        "Logit: the logarithm of the odds.",
        (tensor_in("input", "the probabilities"), _EPS, tensor_out(const=True)),
        _checks("input", "out"),
        _logit,
        dtypes=FLOATING,
        products=MODERN,
        attributes=("eps",),
    ),
    library_operator(
        "logit_grad",
        "out = dy / (x * (1 - x)); for clamped x 0, or NaN if eps is negative",
        "Gradient of the logit.",
        (tensor_in("x", "the probabilities"), tensor_in("dy", "the gradient"), _EPS, tensor_out(const=True)),
        _checks("x", "dy", "out"),
        _gradient,
        dtypes=FLOATING,
        products=MODERN,
        attributes=("eps",),
    ),
)
