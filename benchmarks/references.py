"""Exact values of the activations and of their derivatives at float32 inputs, by aclnn.verify."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.operators.fast_gelu import fast_gelu_derivative, fast_gelu_forward
from aclnn.operators.gelu import gelu_erf_derivative, gelu_erf_forward, gelu_tanh_derivative, gelu_tanh_forward
from aclnn.operators.hardswish import hardswish_derivative, hardswish_forward
from aclnn.operators.silu import silu_derivative, silu_forward
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import FORMATS

Array = np.ndarray[Any, Any]

FORMULAS = {
    "silu": silu_derivative,
    "fast_gelu": fast_gelu_derivative,
    "gelu_erf": gelu_erf_derivative,
    "gelu_tanh": gelu_tanh_derivative,
    "hardswish": hardswish_derivative,
}
FORWARDS = {
    "silu_forward": silu_forward,
    "fast_gelu_forward": fast_gelu_forward,
    "gelu_erf_forward": gelu_erf_forward,
    "gelu_tanh_forward": gelu_tanh_forward,
    "hardswish_forward": hardswish_forward,
}
EVERY = FORMULAS | FORWARDS


def reference(name: str, x: Array) -> Array:
    """Return exact values or derivatives in float64, to 2^-8 units of float32's last place, small ones relatively.

    At infinities and NaN, return the documented results.
    """
    return Function(EVERY[name]).golden([x], FORMATS["float32"]).value
