"""Implementations for ``benchmarks.verdicts``: this project's, PyTorch's, and literal formulas.

Each takes inputs and attributes by Python's names and returns the outputs in the operator's order. Literal formulas are
the vendor's expressions, computed step by step in float32 and rounded once; they also serve as the third output.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aclnn import operators
from aclnn.verify.number_formats import FORMATS

Array = np.ndarray[Any, Any]
Implementation = Callable[..., Any]


def implementations(operator: str) -> dict[str, Implementation]:
    """Return the installed implementations of an operator by name."""
    found: dict[str, Implementation] = {"aclnn": operators.function_of(operators.BY_NAME[operator])}
    if importlib.util.find_spec("torch") is not None:
        found["PyTorch"] = partial(_torch, operator)
    found[LITERAL] = literal(operator)
    return found


LITERAL = "literal, float32"


def literal(operator: str) -> Implementation:
    """Return an operator's literal formula with every step in float32."""
    return _literal_norm if operator == "layer_norm_backward" else partial(_literal_activation, operator)


_ONE: Any = np.float32(1.0)


def _silu(x: Array) -> Array:
    s: Array = _ONE / (np.exp(-x) + _ONE)
    slope: Array = s * (_ONE + (_ONE - s) * x)
    return slope


def _fast_gelu(x: Array) -> Array:
    v = np.float32(-1.702) * x
    s: Array = _ONE / (np.exp(v) + _ONE)
    slope: Array = ((s - _ONE) * v + _ONE) * s
    return slope


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu_none(x: Array) -> Array:
    scaled = np.float32(math.sqrt(0.5)) * x
    half = np.float32(0.5)
    c: Array = half * _erf(scaled.astype(np.float64)).astype(np.float32) + half
    slope: Array = c + np.float32(1.0 / math.sqrt(2.0 * math.pi)) * np.exp(-half * x * x) * x
    return slope


def _gelu_tanh(x: Array) -> Array:
    root = 2.0 * math.sqrt(2.0 / math.pi)
    linear, cubic, rise = (np.float32(c) for c in (root, 0.044715 * root, 3 * 0.044715 * root))
    square = x * x
    p = np.exp(x * (-linear - cubic * square))
    t: Array = _ONE / (p + _ONE)
    r = p * t * (x * (linear + rise * square)) * t
    slope: Array = np.where(np.isnan(r) & ~np.isnan(x), np.float32(0.0), r) + t
    return slope


def _hardswish(x: Array) -> Array:
    d = x * np.float32(1.0 / 3.0) + np.float32(0.5)
    slope: Array = np.where(x > 3, _ONE, np.where(x < -3, np.float32(0.0), d))
    return slope


_LITERAL: dict[tuple[str, str | None], Callable[[Array], Array]] = {
    ("silu_backward", None): _silu,
    ("fast_gelu_backward", None): _fast_gelu,
    ("gelu_backward_v2", "none"): _gelu_none,
    ("gelu_backward_v2", "tanh"): _gelu_tanh,
    ("hardswish_backward", None): _hardswish,
}


def _literal_activation(operator: str, grad_output: Array, self: Array, approximate: str | None = None) -> Array:
    with np.errstate(all="ignore"):
        slope = _LITERAL[operator, approximate](self.astype(np.float32))
        result: Array = (grad_output.astype(np.float32) * slope).astype(self.dtype)
    return result


def _literal_norm(
    grad_out: Array, input: Array, normalized_shape: Any, mean: Array, rstd: Array, weight: Array, **unused: Any
) -> tuple[Array, Array, Array]:
    with np.errstate(all="ignore"):
        return _norm_in_float32(grad_out, input, math.prod(normalized_shape), mean, rstd, weight)


def _norm_in_float32(
    grad_out: Array, input: Array, columns: int, mean: Array, rstd: Array, weight: Array
) -> tuple[Array, Array, Array]:
    dy, x = (a.reshape(-1, columns).astype(np.float32) for a in (grad_out, input))
    m, r = (a.reshape(-1, 1).astype(np.float32) for a in (mean, rstd))
    xhat = (x - m) * r
    g = dy * weight.reshape(-1).astype(np.float32)
    share = np.float32(1.0 / columns)
    dx = (g - g.sum(1, keepdims=True) * share - xhat * ((g * xhat).sum(1, keepdims=True) * share)) * r
    dw, db = ((dy * factor).sum(0).reshape(weight.shape).astype(weight.dtype) for factor in (xhat, _ONE))
    return dx.reshape(input.shape).astype(input.dtype), dw, db


def _torch(operator: str, **arguments: Any) -> Any:
    import torch

    aten = torch.ops.aten
    t = {name: _tensor(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    if operator == "layer_norm_backward":
        results = aten.native_layer_norm_backward(
            t["grad_out"], t["input"], list(t["normalized_shape"]), t["mean"], t["rstd"], t["weight"],
            torch.zeros_like(t["weight"]), [True] * 3,
        )  # fmt: skip
        return tuple(_array(result) for result in results)
    dy, x = t["grad_output"], t["self"]
    if operator == "fast_gelu_backward":  # composed; PyTorch has no such operator
        s = torch.sigmoid(1.702 * x)
        return _array(dy * s * (1 + 1.702 * x * (1 - s)))
    if operator == "gelu_backward_v2":
        return _array(aten.gelu_backward(dy, x, approximate=arguments["approximate"]))
    return _array(getattr(aten, operator)(dy, x))


def _tensor(array: Array) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _array(tensor: Any) -> Array:
    import torch

    if tensor.dtype == torch.bfloat16:
        narrow: Array = tensor.view(torch.int16).numpy().view(FORMATS["bfloat16"].dtype.numpy)
        return narrow
    plain: Array = tensor.numpy()
    return plain
