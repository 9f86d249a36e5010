"""The exact values of the activations and of their derivatives at float32 inputs.

Derivatives are aclnn.verify's: float64 with a bound on its error, and interval arithmetic wherever that bound is too
wide. Forwards do not cancel, so float64 is enough: see ``forward_reference``.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from aclnn.operators.fast_gelu import fast_gelu_slope, fast_gelu_value
from aclnn.operators.gelu import gelu_erf_slope, gelu_erf_value, gelu_tanh_slope, gelu_tanh_value
from aclnn.operators.hardswish import hardswish_slope, hardswish_value
from aclnn.operators.silu import silu_slope, silu_value
from aclnn.verify.certified import slope as certified_slope
from aclnn.verify.slopes import SLOPES as REFERENCES

Array = np.ndarray[Any, Any]

FORMULAS = {
    "silu": silu_slope,
    "fast_gelu": fast_gelu_slope,
    "gelu_erf": gelu_erf_slope,
    "gelu_tanh": gelu_tanh_slope,
    "hardswish": hardswish_slope,
}
FORWARDS = {
    "silu_forward": silu_value,
    "fast_gelu_forward": fast_gelu_value,
    "gelu_erf_forward": gelu_erf_value,
    "gelu_tanh_forward": gelu_tanh_value,
    "hardswish_forward": hardswish_value,
}
EVERY = FORMULAS | FORWARDS

UNSURE = 2.0**-32
"""Of the exact derivative: at most 2^-8 units of float32's last place, of a product with any dy as well."""

SLOPE_AT_ZERO = {
    "silu": 0.5,
    "fast_gelu": 0.851,
    "gelu_erf": math.sqrt(2.0 / math.pi),
    "gelu_tanh": math.sqrt(2.0 / math.pi),
    "hardswish": 1.0 / 3.0,
}
"""The derivatives' own derivatives at 0."""

_SQRT_HALF, _TWICE_SQRT_2_OVER_PI = math.sqrt(0.5), 2.0 * math.sqrt(2.0 / math.pi)


@numba.njit(nogil=True, cache=True)
def _gelu_erf(x: Array) -> Array:
    value = np.empty_like(x)
    for i in range(x.size):
        value[i] = 0.5 * x[i] * math.erfc(-x[i] * _SQRT_HALF)
    return value


def _logistic_product(x: Array, w: Array) -> Array:
    """x / (1 + e^-w), nothing in a float32 from w = -300 on."""
    return x / (1.0 + np.exp(-np.clip(w, -300.0, 300.0)))


def forward_reference(name: str, x: Array) -> Array:
    """The exact value within 2^-16 units of float32.

    Nothing cancels: a term's relative error is a few of 2^-53 and of the library's (16 units of exp or erfc are 2^-49),
    and three roundings of an exponent below 160 are 2^-44; a float32's unit is at least 2^-24. Where x + 3 rounds in
    Hardswish, |x + 3| is at least 1.
    """
    if name == "silu_forward":
        return _logistic_product(x, x)
    if name == "fast_gelu_forward":
        return _logistic_product(x, 1.702 * x)
    if name == "gelu_erf_forward":
        return _gelu_erf(x)
    if name == "gelu_tanh_forward":
        bounded = np.clip(x, -1e30, 1e30)
        return _logistic_product(x, _TWICE_SQRT_2_OVER_PI * (bounded + 0.044715 * bounded * bounded * bounded))
    return np.where(x <= -3.0, 0.0, np.where(x >= 3.0, x, x * (x + 3.0) / 6.0))


def slope_reference(name: str, x: Array) -> tuple[Array, Array]:
    """The exact derivative at float64 x as a float64 and what that lacks, together within 2^-32 of it.

    At infinities and NaN the documented results; derivatives below 1e-98 as aclnn.verify.slopes gives them.
    """
    exact, bound = np.empty_like(x), np.empty_like(x)
    REFERENCES[name](x, exact, bound)
    low = np.zeros_like(x)
    with np.errstate(invalid="ignore"):  # signalling NaN
        unsure = np.flatnonzero(bound > UNSURE * np.abs(exact))
    for i in unsure:
        exact[i], low[i] = certified_slope(name, float(x[i]))
    return exact, low


def reference(name: str, x: Array) -> tuple[Array, Array]:
    """The exact value or derivative as a float64 and what that lacks, together within 2^-8 units of float32.

    Of anything at float32 x that are not finite.
    """
    size = np.abs(x)
    wide = np.where(np.isfinite(x), x, 0.0).astype(np.float64)
    low = np.zeros_like(wide)
    if name in FORWARDS:
        if size.max() <= 2.0**-40:  # the next term, of second order, is below 2^-16 units
            return 0.5 * wide, low
        if size.min() >= 256.0:  # within 10^-100 of its limits
            return np.maximum(wide, 0.0), low
        return forward_reference(name, wide), low
    if size.max() <= 2.0**-27:  # the next term, of third order, is below 2^-80
        return 0.5 + SLOPE_AT_ZERO[name] * wide, low
    if size.min() >= 256.0:  # within 10^-100 of its limits
        return np.where(wide > 0.0, 1.0, 0.0 if name == "hardswish" else -1e-100), low
    return slope_reference(name, wide)
