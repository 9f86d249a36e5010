"""The section norms: norms and softmax with their gradients, next to PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import aclnn
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Operator
from aclnn.core.products import current_product
from aclnn.operators import BY_NAME, signature_of
from benchmarks.tensors import numpy_of, torch_of

Array = np.ndarray[Any, Any]
Arguments = dict[str, Any]

GROUPS, CHANNELS, PIXELS, SAMPLE_ROWS = 32, 256, 32 * 32, 16
"""GroupNorm's groups, the channels and pixels of GroupNorm and BatchNorm if the size allows them, and the number of
rows that share AdaLayerNorm's scale."""

ALLOWED = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 5e-3}
"""Largest relative error of a result in the Euclidean norm, by data type."""


class PyTorchFunction(NamedTuple):
    """PyTorch's operator, or several, equivalent to one of aclnn's."""

    call: Callable[..., Mapping[str, Any]]
    """Function of arguments as tensors by name, and ``outs``; it returns all or some results by aclnn's names."""
    provider: str = "torch"
    """``torch``, or ``composed`` for several operators."""


def _aten(name: str) -> Any:
    import torch

    return getattr(torch.ops.aten, name)


def _layer_norm(input: Any, weight: Any, bias: Any, eps: float, **_: Any) -> dict[str, Any]:
    results = _aten("native_layer_norm").default(input, weight.shape, weight, bias, eps)
    return dict(zip(("out", "mean", "rstd"), results, strict=True))


def _layer_norm_gradients(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> Any:
    statistics = mean.to(x.dtype), rstd.to(x.dtype)  # PyTorch requires the input's type
    shape = list(weight.shape)
    return _aten("native_layer_norm_backward").default(dy, x, shape, *statistics, weight, weight, [True] * 3)


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    import torch

    return torch.rms_norm(x, weight.shape, weight, eps)


def _rms_norm_gradients(grad_out: Any, input: Any, rstd: Any, weight: Any, **_: Any) -> dict[str, Any]:
    xhat, g = input * rstd, grad_out * weight
    dx = (g - xhat * (g * xhat).mean(-1, keepdim=True)) * rstd
    return {"grad_input": dx, "grad_weight": (grad_out * xhat).sum(0)}


def _add_rms_norm(x1: Any, x2: Any, weight: Any, eps: float, **_: Any) -> dict[str, Any]:
    x = x1 + x2
    return {"out": _rms_norm(x, weight, eps), "x": x}


def _add_layer_norm(x1: Any, x2: Any, weight: Any, bias: Any, input_bias: Any, eps: float, **_: Any) -> dict[str, Any]:
    x = x1 + x2 + input_bias
    return {**_layer_norm(x, weight, bias, eps), "x": x}


def _add_layer_norm_gradients(
    grad_out: Any, x1: Any, x2: Any, rstd: Any, mean: Any, weight: Any, grad_sum: Any, **_: Any
) -> dict[str, Any]:
    dx, dw, db = _layer_norm_gradients(grad_out, x1 + x2, mean, rstd, weight)
    return {"grad_input": dx + grad_sum, "grad_weight": dw, "grad_bias": db}


def _deep_norm(x: Any, gx: Any, bias: Any, weight: Any, alpha: float, eps: float, **_: Any) -> dict[str, Any]:
    return _layer_norm(alpha * x + gx, weight, bias, eps)


def _deep_norm_gradients(
    grad_out: Any, x: Any, gx: Any, weight: Any, mean: Any, rstd: Any, alpha: float, **_: Any
) -> dict[str, Any]:
    dgx, dw, db = _layer_norm_gradients(grad_out, alpha * x + gx, mean, rstd, weight)
    return {"grad_x": alpha * dgx, "grad_gx": dgx, "grad_bias": db, "grad_weight": dw}


def _ada_layer_norm(input: Any, scale: Any, shift: Any, weight: Any, bias: Any, eps: float, **_: Any) -> dict[str, Any]:
    normalized = _layer_norm(input, weight, bias, eps)
    return {**normalized, "out": normalized["out"] * (1 + scale) + shift}


def _ada_layer_norm_gradients(
    grad_out: Any, input: Any, rstd: Any, mean: Any, scale: Any, weight: Any, bias: Any, **_: Any
) -> dict[str, Any]:
    dx, dw, db = _layer_norm_gradients(grad_out * (1 + scale), input, mean, rstd, weight)
    normalized = (input - mean) * rstd * weight + bias
    sums = (grad_out * normalized).sum(1, keepdim=True), grad_out.sum(1, keepdim=True)
    names = ("grad_scale", "grad_shift", "grad_input", "grad_weight", "grad_bias")
    return dict(zip(names, (*sums, dx, dw, db), strict=True))


def _group_norm(input: Any, weight: Any, bias: Any, group: int, eps: float, **_: Any) -> dict[str, Any]:
    n, c, hxw = input.shape
    results = _aten("native_group_norm").default(input, weight, bias, n, c, hxw, group, eps)
    return dict(zip(("out", "mean", "rstd"), results, strict=True))


def _group_norm_gradients(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, group: int, **_: Any
) -> dict[str, Any]:
    extents = (*input.shape, group)
    results = _aten("native_group_norm_backward").default(grad_out, input, mean, rstd, weight, *extents, [True] * 3)
    return dict(zip(("grad_input", "grad_weight", "grad_bias"), results, strict=True))


def _group_norm_silu(input: Any, weight: Any, bias: Any, group: int, eps: float, **_: Any) -> dict[str, Any]:
    normalized = _group_norm(input, weight, bias, group, eps)
    return {**normalized, "out": _aten("silu").default(normalized["out"])}


def _group_norm_swish_gradients(
    grad_out: Any, mean: Any, rstd: Any, input: Any, weight: Any, bias: Any, num_groups: int, **_: Any
) -> dict[str, Any]:
    split = (*mean.shape, -1)
    hat = ((input.view(split) - mean[..., None]) * rstd[..., None]).view(input.shape)
    dz = _aten("silu_backward").default(grad_out, hat * weight[:, None] + bias[:, None])
    return _group_norm_gradients(dz, input, mean, rstd, weight, num_groups)


def _batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, **_: Any
) -> dict[str, Any]:
    given = input, weight, bias, running_mean, running_var, True, momentum, eps
    return {"out": _aten("native_batch_norm").default(*given)[0]}  # aclnn's second result is a variance on this product


def _batch_norm_gradients(
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    eps: float,
    **_: Any,
) -> dict[str, Any]:
    saved = save_mean.to(weight.dtype), (save_invstd + eps).rsqrt().to(weight.dtype)
    given = grad_out, input, weight, running_mean, running_var, *saved, True, eps, [True] * 3
    results = _aten("native_batch_norm_backward").default(*given)
    return dict(zip(("grad_input", "grad_weight", "grad_bias"), results, strict=True))


def _softmax(name: str) -> PyTorchFunction:
    return PyTorchFunction(lambda self, dim, outs: {"out": _aten(name).out(self, dim, False, out=outs["out"])})


def _softmax_gradient(name: str) -> PyTorchFunction:
    def call(grad_output: Any, output: Any, dim: int, outs: Any) -> dict[str, Any]:
        (written,) = outs.values()
        given = grad_output, output, dim, output.dtype
        # The first operator's output is called grad_input, the other's out.
        keyword = "grad_input" if name == "_softmax_backward_data" else "out"
        return {"out": _aten(name).out(*given, **{keyword: written})}

    return PyTorchFunction(call)


_ROW_NORMS: dict[str, PyTorchFunction] = {
    **dict.fromkeys(("layer_norm", "fast_layer_norm", "layer_norm_with_impl_mode"), PyTorchFunction(_layer_norm)),
    "rms_norm": PyTorchFunction(lambda input, weight, eps, **_: {"out": _rms_norm(input, weight, eps)}),
    "rms_norm_grad": PyTorchFunction(_rms_norm_gradients, "composed"),
    "gemma_rms_norm": PyTorchFunction(
        lambda input, weight, eps, **_: {"out": _rms_norm(input, 1 + weight, eps)}, "composed"
    ),
    "add_rms_norm": PyTorchFunction(_add_rms_norm, "composed"),
    "add_layer_norm": PyTorchFunction(_add_layer_norm, "composed"),
    "add_layer_norm_grad": PyTorchFunction(_add_layer_norm_gradients, "composed"),
    "deep_norm": PyTorchFunction(_deep_norm, "composed"),
    "deep_norm_grad": PyTorchFunction(_deep_norm_gradients, "composed"),
    "softmax": _softmax("_softmax"),
    "log_softmax": _softmax("_log_softmax"),
    "softmax_backward": _softmax_gradient("_softmax_backward_data"),
    "log_softmax_backward": _softmax_gradient("_log_softmax_backward_data"),
}
_OF_SAMPLES: dict[str, PyTorchFunction] = {
    **dict.fromkeys(("ada_layer_norm", "ada_layer_norm_v2"), PyTorchFunction(_ada_layer_norm, "composed")),
    "ada_layer_norm_backward": PyTorchFunction(_ada_layer_norm_gradients, "composed"),
}
_OF_CHANNELS: dict[str, PyTorchFunction] = {
    "group_norm": PyTorchFunction(_group_norm),
    "group_norm_backward": PyTorchFunction(_group_norm_gradients),
    **dict.fromkeys(("group_norm_silu", "group_norm_silu_v2"), PyTorchFunction(_group_norm_silu, "composed")),
    "group_norm_swish": PyTorchFunction(
        lambda num_groups, **given: _group_norm_silu(group=num_groups, **given), "composed"
    ),  # of scale 1
    "group_norm_swish_grad": PyTorchFunction(_group_norm_swish_gradients, "composed"),
    "batch_norm": PyTorchFunction(_batch_norm),
    **dict.fromkeys(("batch_norm_backward", "fast_batch_norm_backward"), PyTorchFunction(_batch_norm_gradients)),
}
THEIRS = _ROW_NORMS | _OF_SAMPLES | _OF_CHANNELS
"""All operators of this section, without LayerNorm's gradients, which have rows of their own, and in-place variants."""

_FORWARDS = {
    "ada_layer_norm_backward": "ada_layer_norm_v2",
    "fast_batch_norm_backward": "batch_norm",
    "group_norm_swish_grad": "group_norm_swish",
}


def members(dtype: DataType) -> list[str]:
    """Return the names of the operators that the product computes in a data type."""
    return [name for name in THEIRS if dtype in BY_NAME[name].support.get(current_product(), ())]


def _shapes(name: str, m: int, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of x, with m·n elements, and of its parameters."""
    if name in _ROW_NORMS:
        return (m, n), (n,)
    if name in _OF_SAMPLES:
        return (m // SAMPLE_ROWS, SAMPLE_ROWS, n), (n,)
    samples = max(1, m * n // (CHANNELS * PIXELS))
    return (samples, CHANNELS, m * n // samples // CHANNELS), (CHANNELS,)


def _attributes(operator: Operator, x: tuple[int, ...], parameter: tuple[int, ...]) -> Arguments:
    given: Arguments = {name: p.default for name, p in signature_of(operator).parameters.items()}
    given |= {"normalized_shape": list(parameter), "training": True, "group": GROUPS, "num_groups": GROUPS}
    given |= dict(zip(("n", "c", "hxw"), x, strict=False))
    return {p.python_name: given[p.python_name] for p in operator.attributes}


def arguments(name: str, m: int, n: int, normal: Callable[[tuple[int, ...]], Array]) -> Arguments:
    """Return all arguments of aclnn's function but ``out``, by name, in its order.

    A gradient's statistics are computed by the forward function.

    Args:
        name: one of ``members``.
        m: the number of rows or groups.
        n: the number of elements in each.
        normal: generates an array of a shape.
    """
    operator = BY_NAME[name]
    x, parameter = _shapes(name, m, n)
    forward = _FORWARDS.get(name, name.removesuffix("_backward").removesuffix("_grad"))
    known: Arguments = {}
    if forward != name:
        known = arguments(forward, m, n, normal)
        results = getattr(aclnn, forward)(**{key: np.copy(v) if _is_array(v) else v for key, v in known.items()})
        names = (p.python_name for p in BY_NAME[forward].outputs)
        results = results if isinstance(results, tuple) else (results,)
        known |= dict(zip(names, results, strict=True))
        known["output"] = known["out"]
    sample = (*x[:-2], 1, x[-1])
    special = {"weight": parameter, "bias": parameter, "input_bias": parameter, "scale": sample, "shift": sample}
    special |= dict.fromkeys(("running_mean", "running_var"), parameter)
    given = _attributes(operator, x, parameter)
    for p in operator.inputs:
        key = p.python_name
        given[key] = known[key] if key in known else normal(special.get(key, x))
        if key == "running_var":
            np.abs(given[key], out=given[key])
    return {key: given[key] for key in signature_of(operator).parameters if key != "out"}


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def theirs(name: str, given: Arguments, outs: Mapping[str, Array]) -> tuple[str, Callable[[], Mapping[str, Any]]]:
    """Return PyTorch's provider, ``torch`` or ``composed``, and the call."""
    return THEIRS[name].provider, _call(name, given, {key: torch_of(out) for key, out in outs.items()})


def _call(name: str, given: Arguments, outs: Mapping[str, Any], dtype: Any = None) -> Callable[[], Mapping[str, Any]]:
    tensors = {key: torch_of(value).to(dtype) if _is_array(value) else value for key, value in given.items()}
    more = {"outs": outs} if "softmax" in name else {}
    return lambda: THEIRS[name].call(**tensors, **more)


def assessed(name: str, given: Arguments, results: Mapping[str, Array], dtype: str) -> str | None:
    """Describe an error relative to PyTorch's results in float64; None if there is none."""
    import torch

    given = {key: np.copy(value) if _is_array(value) else value for key, value in given.items()}
    outs = {key: torch.empty(result.shape, dtype=torch.float64) for key, result in results.items()}
    expected = _call(name, given, outs, torch.float64)()
    for key in results.keys() & expected.keys():
        right, got = numpy_of(expected[key]), results[key].astype(np.float64)
        error = float(np.linalg.norm(got.reshape(-1) - right.reshape(-1)) / np.linalg.norm(right))
        if not error <= ALLOWED[dtype]:
            return f"{key}: relative error {error:.3g}, expected at most {ALLOWED[dtype]:g}"
    return None
