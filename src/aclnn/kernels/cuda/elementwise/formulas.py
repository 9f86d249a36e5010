"""The float32 derivatives and activations by name, and the tables that they look up.

Each is a function of x and dy that gives dy·f(x), because far out f(x) alone may be too small for a float32 where the
product is not.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cuda.elementwise import coefficients
from aclnn.kernels.cuda.elementwise.erf import gelu_erf_slope, gelu_erf_value
from aclnn.kernels.cuda.elementwise.hardswish import hardswish_slope, hardswish_value
from aclnn.kernels.cuda.elementwise.logistic import (
    fast_gelu_slope,
    fast_gelu_value,
    gelu_tanh_slope,
    gelu_tanh_value,
    silu_slope,
    silu_value,
)
from aclnn.kernels.cuda.elementwise.pieces import rows, same
from aclnn.kernels.fitted import Row

#: Each formula's function and the rows of its table, by the formula's name.
FORMULAS: dict[str, tuple[Any, list[Row]]] = {
    "silu_slope": (silu_slope, rows(coefficients.SILU, coefficients.SILU_EXPONENTIAL)),
    "fast_gelu_slope": (fast_gelu_slope, rows(coefficients.FAST_GELU, coefficients.FAST_GELU_EXPONENTIAL)),
    "gelu_erf_slope": (gelu_erf_slope, rows(coefficients.GELU_ERF, coefficients.GELU_ERF_EXPONENTIAL)),
    "gelu_tanh_slope": (gelu_tanh_slope, rows(coefficients.GELU_TANH, coefficients.GELU_TANH_EXPONENTIAL)),
    "hardswish_slope": (hardswish_slope, [(0.0,) * 8]),
    "silu_value": (silu_value, rows(coefficients.SILU, coefficients.SILU_EXPONENTIAL)),
    "fast_gelu_value": (fast_gelu_value, rows(coefficients.FAST_GELU, coefficients.FAST_GELU_EXPONENTIAL)),
    "gelu_erf_value": (gelu_erf_value, rows(coefficients.GELU_ERF, coefficients.GELU_ERF_EXPONENTIAL)),
    "gelu_tanh_value": (gelu_tanh_value, rows(coefficients.GELU_TANH, coefficients.GELU_TANH_EXPONENTIAL)),
    "hardswish_value": (hardswish_value, [(0.0,) * 8]),
    "_same": (same, [(0.0,) * 8]),
}
