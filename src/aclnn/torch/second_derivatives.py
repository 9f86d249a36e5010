"""Gradients of backward operators, by PyTorch.

Each is derived from the same gradient written in operations that PyTorch can differentiate any number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.core.products import CLASS_950, current_product
from aclnn.operators.gelu import TANH
from aclnn.operators.selu import SCALE, SCALED_ALPHA
from aclnn.torch.autograd import Tensor, register
from aclnn.torch.registration import torch

_THEIRS = torch.ops.aten


def _second(name: str, alike: Callable[..., Any]) -> None:
    """Register the gradients of a backward operator as those of ``alike``, which computes the same in PyTorch."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.places = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        ctx.others = [None if place in ctx.places else value for place, value in enumerate(inputs)]
        ctx.save_for_backward(*(inputs[place] for place in ctx.places))

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        arguments = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            arguments[place] = tensor
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        dys = [grad for grad in grads if grad is not None]

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            for place, tensor in zip(wanted, tensors, strict=True):
                arguments[place] = tensor
            results = alike(*arguments)
            pairs = zip(results if isinstance(results, tuple) else (results,), grads, strict=True)
            return tuple(result for result, grad in pairs if grad is not None)

        gradients: list[Any] = [None] * len(arguments)
        for place, gradient in zip(wanted, _vjp(function, [arguments[place] for place in wanted], dys), strict=True):
            gradients[place] = gradient
        return None, *gradients

    register(name, backward, setup)


def _vjp(function: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor], dys: list[Tensor]) -> Any:
    """Return a function's vector-Jacobian product by PyTorch, differentiable if grad mode is on."""
    if torch._C._are_functorch_transforms_active():
        return torch.func.vjp(function, *tensors)[1](tuple(dys))
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that only this use is differentiated; a tensor of a finished transform requires no grad.
        views = [tensor.view_as(tensor) if further else tensor.detach() for tensor in tensors]
        given = [view if view.requires_grad else view.detach().requires_grad_() for view in views]
        varying = [pair for pair in zip(function(*given), dys, strict=True) if pair[0].requires_grad]
        if not varying:
            return [torch.zeros_like(tensor) for tensor in tensors]
        results, arriving = zip(*varying, strict=True)
        return torch.autograd.grad(results, given, arriving, create_graph=further, allow_unused=True)


_QUICK = 1.702  # fast_gelu(x) = silu(1.702·x) / 1.702


def _silu_derivative(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _swi_glu_derivatives(dy: Tensor, x: Tensor, dim: int) -> Tensor:
    a, b = x.tensor_split(2, dim)
    return torch.cat([dy * _silu_derivative(a) * b, dy * a * torch.sigmoid(a)], dim)


def _clipped_swiglu_derivatives(
    dy: Tensor, x: Tensor, groups: Any, dim: int, alpha: float, limit: float, bias: float, interleaved: bool
) -> Tensor:
    rows = x.shape[: dim % x.dim()].numel()
    flat, dy = x.reshape(rows, -1), dy.reshape(rows, -1)
    a, b = (flat[:, 0::2], flat[:, 1::2]) if interleaved else flat.tensor_split(2, 1)
    lower, upper = a.clamp(max=limit), b.clamp(-limit, limit)
    da = torch.where(a <= limit, dy * (upper + bias) * _silu_derivative(alpha * lower), 0.0)
    db = torch.where(b.abs() <= limit, dy * lower * torch.sigmoid(alpha * lower), 0.0)
    dx = torch.stack([da, db], 2) if interleaved else torch.cat([da, db], 1)
    if groups is not None and groups.numel():
        computed = torch.arange(rows, device=x.device) < groups.sum()
        dx = torch.where(computed.reshape(rows, *[1] * (dx.dim() - 1)), dx, 0.0)
    return dx.reshape(x.shape)


def _glu_derivatives(dy: Tensor, x: Tensor, dim: int) -> Tensor:
    a, b = x.tensor_split(2, dim)
    s = torch.sigmoid(b)
    return torch.cat([dy * s, dy * a * s * (1.0 - s)], dim)


def _ge_glu_derivatives(dy: Tensor, x: Tensor, gelu: Tensor, dim: int, approximate: int, left: bool = False) -> Tensor:
    p, g = x.tensor_split(2, dim)[:: -1 if left else 1]
    mode = "tanh" if approximate == TANH else "none"
    derivative = _THEIRS.gelu_backward(torch.ones_like(g), g, approximate=mode)
    return torch.cat([dy * gelu, dy * p * derivative][:: -1 if left else 1], dim)


def _prelu_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    one = weight.numel() == 1
    w = weight.reshape(()) if one else weight.reshape(-1, *[1] * (x.dim() - 2))
    dw = torch.where(x > 0.0, 0.0, dy * x)
    rest = [dim for dim in range(x.dim()) if dim != 1]
    return torch.where(x > 0.0, dy, w * dy), dw.sum().reshape(weight.shape) if one else dw.sum(rest)


def _hardswish_derivative(x: Tensor, outside: Tensor) -> Tensor:
    """Return Hardswish's derivative in elementary operations: DTensor has no rule for PyTorch's hardswish_backward."""
    return torch.where(outside, (x > 0.0).to(x.dtype), (x + 1.5) / 3.0)


def _elu_derivative(alpha: Any, scale: Any, input_scale: Any, is_result: bool, v: Tensor) -> Tensor:
    below = v + alpha * scale if is_result else alpha * scale * torch.exp(input_scale * v.clamp(max=0.0))
    return torch.where(v > 0.0, scale, input_scale * below)


def _mish_derivative(x: Tensor) -> Tensor:
    t = torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))
    return t + x * torch.sigmoid(x) * (1.0 - t * t)


def _softplus_derivative(x: Tensor, beta: Any, threshold: Any) -> Tensor:
    return torch.where(beta * x > threshold, 1.0, torch.sigmoid(beta * x))


_second("elu_backward", lambda dy, *given: dy * _elu_derivative(*given))
_second("hardshrink_backward", lambda dy, x, lambd: torch.where(x.abs() > max(lambd, 0), dy, 0.0))
_second("softshrink_backward", lambda dy, x, lambd: torch.where(x.abs() > lambd, dy, 0.0))
_second("selu_backward", lambda dy, y: dy * torch.where(y > 0.0, float(SCALE), y + float(SCALED_ALPHA)))
_second("sigmoid_backward", lambda dy, y: dy * ((1.0 - y) * y))
_second("softmax_backward", lambda dy, y, dim: y * (dy - (dy * y).sum(dim, keepdim=True)))
_second("log_softmax_backward", lambda dy, y, dim: dy - y.exp() * dy.sum(dim, keepdim=True))
_second("mish_backward", lambda dy, x: dy * _mish_derivative(x))
_second("threshold_backward", lambda dy, x, threshold: torch.where(x > threshold, dy, 0.0))
_second("hardsigmoid_backward", lambda dy, x: torch.where(x.abs() < 3.0, dy / 6.0, 0.0))
_second("hardtanh_backward", lambda dy, x, low, high: torch.where((x > low) & (x < high), dy, 0.0))
_second("swish_backward", lambda dy, x, beta: dy * _silu_derivative(x if beta is None else beta * x))
_second("leaky_relu_backward", lambda dy, x, slope, is_result: dy * torch.where(x > 0.0, 1.0, slope))
_second("log_sigmoid_backward", lambda dy, x, buffer: dy * torch.sigmoid(-x))
_second("softplus_backward", lambda dy, x, *numbers: dy * _softplus_derivative(x, *numbers))
_second("fast_gelu_backward", lambda dy, x: dy * _silu_derivative(_QUICK * x))
_second("silu_backward", lambda dy, x: dy * _silu_derivative(x))
_second("hardswish_backward", lambda dy, x: dy * _hardswish_derivative(x, x.abs() > 3.0))
_second("hardswish_backward_v2", lambda dy, x: dy * _hardswish_derivative(x, x.abs() >= 3.0))
_second("swi_glu_grad", _swi_glu_derivatives)
_second("clipped_swiglu_grad", _clipped_swiglu_derivatives)
_second("glu_backward", _glu_derivatives)
_second("ge_glu_backward", _ge_glu_derivatives)
_second("ge_glu_v3_backward", _ge_glu_derivatives)
_second("prelu_backward", _prelu_gradients)
# PyTorch's gelu_backward does not broadcast.
_second("gelu_backward", lambda dy, x: dy * _THEIRS.gelu_backward(torch.ones_like(x), x, approximate="tanh"))
_second("gelu_backward_v2", lambda dy, x, mode: dy * _THEIRS.gelu_backward(torch.ones_like(x), x, approximate=mode))


def _layer_norm_gradients(
    dy: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Any
) -> tuple[Any, Any, Any]:
    """Compute LayerNorm's gradients in differentiable operations, with mean and rstd as functions of x.

    They are functions of x in a model; PyTorch's own second derivative assumes that too.
    """
    dims = list(range(x.dim() - len(shape), x.dim()))
    rows = list(range(x.dim() - len(shape)))
    hat, scale = _normalised(x, rstd.reshape(x.shape[: len(rows)] + (1,) * len(dims)), dims)
    g = dy if weight is None else dy * weight
    dx = (g - g.mean(dims, keepdim=True) - hat * (g * hat).mean(dims, keepdim=True)) * scale
    dw = (dy * hat).sum(rows) if rows else dy * hat
    db = dy.sum(rows) if rows else dy
    return dx if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


_second("layer_norm_backward", _layer_norm_gradients)


def _add_layer_norm_gradients(
    dy: Tensor, x1: Tensor, x2: Tensor, rstd: Tensor, mean: Tensor, gamma: Tensor, dsum: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of LayerNorm of a sum like ``_layer_norm_gradients``."""
    dx, dw, db = _layer_norm_gradients(dy, x1 + x2, gamma.shape, mean, rstd, gamma, None, (True,) * 3)
    return (dx if dsum is None else dx + dsum).to(dy.dtype), dw.to(rstd.dtype), db.to(rstd.dtype)


_second("add_layer_norm_grad", _add_layer_norm_gradients)


def _deep_norm_gradients(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of LayerNorm of a weighted sum like ``_layer_norm_gradients``."""
    dgx, dw, db = _layer_norm_gradients(dy, alpha * x + gx, gamma.shape, mean, rstd, gamma, None, (True,) * 3)
    return (alpha * dgx).to(dy.dtype), dgx.to(dy.dtype), db.to(rstd.dtype), dw.to(rstd.dtype)


_second("deep_norm_grad", _deep_norm_gradients)


def _ada_layer_norm_gradients(
    dy: Tensor, x: Tensor, shape: Any, rstd: Tensor, mean: Tensor, scale: Tensor, shift: Tensor, weight: Any, bias: Any
) -> tuple[Tensor, ...]:
    """Compute AdaLayerNorm's gradients like ``_layer_norm_gradients``."""
    factor = 1.0 + scale.reshape(*x.shape[:-2], 1, x.shape[-1])
    w, b = 1.0 if weight is None else weight, 0.0 if bias is None else bias
    lower, over = dy * factor, list(range(x.dim() - 1))
    hat, scaled = _normalised(x, rstd, [-1])
    g = lower * w
    dx = (g - g.mean(-1, keepdim=True) - hat * (g * hat).mean(-1, keepdim=True)) * scaled
    dscale, dshift = (dy * (hat * w + b)).sum(-2).reshape(scale.shape), dy.sum(-2).reshape(shift.shape)
    return dx, dscale, dshift, (lower * hat).sum(over), lower.sum(over)


_second("ada_layer_norm_backward", _ada_layer_norm_gradients)


def _rms_norm_gradients(dy: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Compute RMSNorm's gradients like ``_layer_norm_gradients``, rstd as a function of x."""
    dims = list(range(x.dim() - gamma.dim(), x.dim()))
    rows = list(range(x.dim() - gamma.dim()))
    root = rstd.reshape(x.shape[: len(rows)] + (1,) * len(dims)).detach()
    square = (x * x).mean(dims, keepdim=True)
    scale = (root**-2 + (square - square.detach())) ** -0.5
    hat = x * scale
    g = dy * gamma
    dx = (g - hat * (g * hat).mean(dims, keepdim=True)) * scale
    dgamma = (dy * hat).sum(rows) if rows else dy * hat
    return dx.to(x.dtype), dgamma.to(rstd.dtype)


_second("rms_norm_grad", _rms_norm_gradients)


def _group_norm_gradients(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, n: int, c: int, hxw: int, group: int, mask: Any
) -> tuple[Any, Any, Any]:
    """Compute GroupNorm's gradients like ``_layer_norm_gradients``, mean and rstd as functions of x."""
    split = (n, group, c // group, hxw)
    w = 1.0 if weight is None else weight.reshape(1, group, c // group, 1)
    rows = rstd.reshape(n, group, 1, 1)
    hat, scale = _normalised(x.reshape(split), rows, [2, 3])
    g = dy.reshape(split) * w
    dx = (g - g.mean([2, 3], keepdim=True) - hat * (g * hat).mean([2, 3], keepdim=True)) * scale
    like = (c,) if weight is None else weight.shape
    dw, db = (terms.sum([0, 3]).reshape(like) for terms in (dy.reshape(split) * hat, dy.reshape(split)))
    return dx.reshape(x.shape) if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


def _normalised(x: Tensor, rstd: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """Return normalised x, and rstd's value with its derivative with respect to x, whatever eps was."""
    centred = x - x.mean(dims, keepdim=True)
    variance = (centred * centred).mean(dims, keepdim=True)
    scale = (rstd.detach() ** -2 + (variance - variance.detach())) ** -0.5
    return centred * scale, scale


_second("group_norm_backward", _group_norm_gradients)


def _group_norm_swish_gradients(
    dy: Tensor,
    mean: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    data_format: Any,
    scale: float,
    *required: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of GroupNorm and Swish: GroupNorm's, with dy multiplied by Swish's derivative."""
    n, c = x.shape[:2]
    split, parameter = (n, groups, c // groups, -1), (1, groups, c // groups, 1)
    hat, _ = _normalised(x.reshape(split), rstd.reshape(n, groups, 1, 1), [2, 3])
    z = hat * weight.reshape(parameter) + bias.reshape(parameter)
    dz = dy.reshape(split) * _silu_derivative(scale * z)
    extents = n, c, x.shape[2:].numel(), groups
    dx, *sums = _group_norm_gradients(dz.reshape(x.shape), x, mean, rstd, weight, *extents, [True] * 3)
    dw, db = (total * wanted for total, wanted in zip(sums, required, strict=True))
    return dx, dw, db


_second("group_norm_swish_grad", _group_norm_swish_gradients)


def _batch_norm_gradients(
    dy: Tensor,
    x: Tensor,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    training: bool,
    eps: float,
    mask: Any,
    version: int = 0,
) -> tuple[Any, Any, Any]:
    """Compute BatchNorm's gradients like ``_layer_norm_gradients``; in training the statistics are functions of x."""
    channel = (1, -1, *[1] * (x.dim() - 2))
    dims = [dim for dim in range(x.dim()) if dim != 1]
    w = 1.0 if weight is None else weight.reshape(channel)
    if training:
        saved = torch.ones(x.shape[1], device=x.device) if save_invstd is None else save_invstd
        of_variance = current_product() not in CLASS_950
        rstd = ((saved + eps) ** -0.5 if of_variance else saved).reshape(channel)
        hat, scale = _normalised(x, rstd, dims)
        dx = w * scale * (dy - dy.mean(dims, keepdim=True) - hat * (dy * hat).mean(dims, keepdim=True))
    else:
        mean = 0.0 if running_mean is None else running_mean.reshape(channel)
        scale = (1.0 + eps) ** -0.5 if running_var is None else (running_var.reshape(channel) + eps) ** -0.5
        hat, dx = (x - mean) * scale, w * scale * dy
    dw, db = (dy * hat).sum(dims), dy.sum(dims)
    return dx if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


for _name in ("batch_norm_backward", "fast_batch_norm_backward"):
    _second(_name, _batch_norm_gradients)
