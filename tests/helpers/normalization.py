"""LayerNorm and RMSNorm in extended precision, from the documents' formulas, with error bounds for float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.helpers.exact import ulp_of

Array = np.ndarray[Any, Any]
Expected = tuple[Array, Array]

_EPS = 2.0**-24  # the error of one rounding in float32
# Roundings that each term of a sum undergoes; within 512 columns, sums are in float32 over 16 lanes.
_TERM, _SUM = 4, 16


def _wide(array: Array, *shape: int) -> Array:
    return np.asarray(array, np.longdouble).reshape(shape)


def backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the gradients for given mean and rstd. Error bounds are multiples of the terms' magnitudes."""
    columns = math.prod(arguments["normalizedShape"])
    shape = arguments["input"].shape
    rows = math.prod(shape[: len(shape) - len(arguments["normalizedShape"])])
    dy, x = (_wide(arguments[name], rows, columns) for name in ("gradOut", "input"))
    mean, rstd = (_wide(arguments[name], rows, 1) for name in ("mean", "rstd"))
    weight = arguments["weightOptional"]
    g = dy if weight is None else dy * _wide(weight, 1, columns)
    xhat = (x - mean) * rstd
    share = 1 / max(columns, 1)
    c1, c2 = (terms.sum(1, keepdims=True) * share for terms in (g, g * xhat))
    c1_size, c2_size = (np.abs(terms).sum(1, keepdims=True) * share for terms in (g, g * xhat))
    size = (_TERM * (np.abs(g) + np.abs(xhat * c2)) + _SUM * (c1_size + np.abs(xhat) * c2_size)) * np.abs(rstd)
    exact = {
        "gradInputOut": ((g - c1 - xhat * c2) * rstd, size),
        "gradWeightOut": ((dy * xhat).sum(0), _TERM * np.abs(dy * xhat).sum(0) + _vanished(dy)),
        "gradBiasOut": (dy.sum(0), _TERM * np.abs(dy).sum(0)),
    }
    return {name: _allowed(*exact[name], outputs[name]) for name in outputs}


def forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the result, mean and reciprocal standard deviation."""
    columns = math.prod(arguments["normalizedShape"])
    shape = arguments["input"].shape
    rows = math.prod(shape[: len(shape) - len(arguments["normalizedShape"])])
    x = _wide(arguments["input"], rows, columns)
    weight, bias = arguments["weightOptional"], arguments["biasOptional"]
    w = 1.0 if weight is None else _wide(weight, 1, columns)
    b = 0.0 if bias is None else _wide(bias, 1, columns)
    share = 1 / columns if columns else 0.0
    mean = x.sum(1, keepdims=True) * share
    variance = ((x - mean) ** 2).sum(1, keepdims=True) * share
    with np.errstate(divide="ignore"):
        rstd = 1 / np.sqrt(variance + arguments["eps"]) if columns else np.full((rows, 1), np.nan)
    centred = (x - mean) * rstd * w
    exact = {
        "out": (centred + b, _TERM * (np.abs(centred) + np.abs(b))),
        "meanOutOptional": (mean, _TERM * np.abs(x).sum(1, keepdims=True) * share),
        "rstdOutOptional": (rstd, _TERM * rstd),
    }
    return {name: _allowed(*exact[name], outputs[name]) for name in outputs}


def _rows(arguments: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return RMSNorm's x as M rows of N columns, and gamma."""
    gamma = arguments["gamma"]
    columns, shape = gamma.size, arguments["x"].shape
    return _wide(arguments["x"], math.prod(shape[: len(shape) - gamma.ndim]), columns), _wide(gamma, 1, columns)


def rms_forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return RMSNorm's result and reciprocal root mean square; NaN where nothing is written."""
    if not any(math.prod(output.shape) for output in outputs.values()):
        return {name: _allowed(np.empty(0), np.empty(0), output) for name, output in outputs.items()}
    x, gamma = _rows(arguments)
    eps = float(np.float32(arguments["epsilon"]))
    rstd = 1 / np.sqrt((x * x).mean(1, keepdims=True) + eps)
    y = x * rstd * gamma
    shown = np.full(outputs["rstdOut"].shape, np.nan)
    shown.flat[: rstd.size] = rstd
    exact = {"yOut": (y, _TERM * np.abs(y)), "rstdOut": (shown, _TERM * shown)}
    return {name: _allowed(*exact[name], outputs[name]) for name in outputs}


def rms_backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return RMSNorm's gradients for a given rstd."""
    if not any(math.prod(output.shape) for output in outputs.values()):
        return {name: _allowed(np.empty(0), np.empty(0), output) for name, output in outputs.items()}
    x, gamma = _rows(arguments)
    dy, rstd = _wide(arguments["dy"], *x.shape), _wide(arguments["rstd"], len(x), 1)
    g, xhat = dy * gamma, x * rstd
    share = 1 / x.shape[1]
    c2, c2_size = ((terms.sum(1, keepdims=True) * share) for terms in (g * xhat, np.abs(g * xhat)))
    size = (_TERM * (np.abs(g) + np.abs(xhat * c2)) + _SUM * np.abs(xhat) * c2_size) * np.abs(rstd)
    # Underflow in g is far below most other terms of the row, but not below each.
    size = size + 2.0**-60 * np.abs(g).mean(1, keepdims=True) * np.abs(rstd) / _EPS
    dgamma = (dy * xhat).sum(0) if len(x) else np.full(x.shape[1], np.nan)
    exact = {
        "dxOut": ((g - xhat * c2) * rstd, size),
        "dgammaOut": (dgamma, _TERM * np.abs(dy * xhat).sum(0) + _vanished(dy)),
    }
    return {name: _allowed(*exact[name], outputs[name]) for name in outputs}


def _vanished(dy: Array) -> Array:
    """Return the loss of sums of dy·xhat over rows where xhat or a product is subnormal, in units of ``_EPS``."""
    return np.asarray(2.0**-149 / _EPS * (np.abs(dy).sum(0) + len(dy)))


def _allowed(exact: Array, size: Array, output: Any) -> Expected:
    with np.errstate(over="ignore"):
        exact, size = (np.asarray(values, np.float64).reshape(output.shape) for values in (exact, size))
    return exact, size * _EPS + 0.501 * ulp_of(exact, output.dtype)
