"""Gradients of forward operators, computed by the backward operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.core.checks import MOST_DIMS
from aclnn.operators.gelu import TANH
from aclnn.torch.autograd import Tensor, register
from aclnn.torch.registration import torch

_OURS = torch.ops.aclnn


def _first(name: str, differentiate: Callable[..., Tensor]) -> None:
    """Register the gradient of an elementwise forward operator of x and possibly a number."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *ctx.attributes = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if x.dim() > MOST_DIMS:  # some forward operators accept more dimensions, but no backward operator does
            flat = grad.flatten(0, -MOST_DIMS), x.flatten(0, -MOST_DIMS)
            dx = differentiate(*flat, *ctx.attributes).reshape(x.shape)
        else:
            dx = differentiate(grad, x, *ctx.attributes)
        return None, dx, *[None] * len(ctx.attributes)

    register(name, backward, setup)


# Overloads: look-up by name and arguments takes 0.2 µs, and ten times that with cold caches.
_hardswish_backward, _gelu_backward = _OURS.hardswish_backward.default, _OURS.gelu_backward_v2.default
_layer_norm_backward, _swi_glu_grad = _OURS.layer_norm_backward.default, _OURS.swi_glu_grad.default


def _or_zeros(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """Wrap a function that rejects empty tensors: return zeros like the arguments at these positions instead."""

    def gradients(grad: Tensor, *arguments: Any) -> Any:
        if grad.numel():
            return function(grad, *arguments)
        return [torch.zeros_like((grad, *arguments)[place]) for place in places]

    return gradients


_elu_backward = _OURS.elu_backward.default
_rms_norm_grad = _or_zeros(_OURS.rms_norm_grad.default, 1, 3)
_add_layer_norm_grad = _or_zeros(_OURS.add_layer_norm_grad.default, 1, 5, 5)
_deep_norm_grad = _or_zeros(_OURS.deep_norm_grad.default, 1, 2, 3, 3)
_group_norm_swish_grad = _or_zeros(_OURS.group_norm_swish_grad.default, 3, 4, 5)
_log_sigmoid_backward = _OURS.log_sigmoid_backward.default

_first("fast_gelu", _OURS.fast_gelu_backward.default)
_first("elu", lambda grad, x, *numbers: _elu_backward(grad, *numbers, False, x))
_first("leaky_relu", lambda grad, x, slope: _OURS.leaky_relu_backward.default(grad, x, slope, False))
_first("relu", lambda grad, x: _OURS.threshold_backward.default(grad, x, 0))
_first("threshold", lambda grad, x, threshold, value: _OURS.threshold_backward.default(grad, x, threshold))
_first("hardsigmoid", _OURS.hardsigmoid_backward.default)
_first("mish", _OURS.mish_backward.default)
_first("swish", _OURS.swish_backward.default)
_first("celu", lambda grad, x, alpha: _elu_backward(grad, alpha, 1.0, 1.0 / alpha, False, x))
_first("log_sigmoid", lambda grad, x: _log_sigmoid_backward(grad, x, x))
_first("log_sigmoid_forward", lambda grad, x, _buffer: _log_sigmoid_backward(grad, x, x))
_first("softplus", _OURS.softplus_backward.default)
_first("silu", _OURS.silu_backward.default)
_first("hardswish", lambda grad, x: _hardswish_backward(grad.to(x.dtype), x))
_first("hardshrink", _OURS.hardshrink_backward.default)
_first("softshrink", _OURS.softshrink_backward.default)
_first("shrink", lambda grad, x, lambd, bias: _OURS.softshrink_backward.default(grad, x, lambd))
_first("squared_relu", lambda grad, x: grad * (2.0 * x.clamp(min=0.0)))
_first("glu", _OURS.glu_backward.default)
_first("gelu", lambda grad, x: _gelu_backward(grad, x, "tanh"))
_first("gelu_v2", lambda grad, x, mode: _gelu_backward(grad, x, "tanh" if mode == TANH else "none"))


def _by_result(name: str, differentiate: Callable[..., Tensor]) -> None:
    """Register the gradient of a forward operator of x and possibly a number, as a function of the result."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.attributes = inputs
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        if y.dim() > MOST_DIMS:  # elementwise operators only
            flat = grad.flatten(0, -MOST_DIMS), y.flatten(0, -MOST_DIMS)
            dx = differentiate(*flat, *ctx.attributes).reshape(y.shape)
        else:
            dx = differentiate(grad, y, *ctx.attributes)
        return None, dx, *[None] * len(ctx.attributes)

    register(name, backward, setup)


_by_result("selu", _OURS.selu_backward.default)
_by_result("sigmoid", _OURS.sigmoid_backward.default)
_by_result("softmax", _OURS.softmax_backward.default)
_by_result("log_softmax", _OURS.log_softmax_backward.default)


def _setup_swi_glu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.dim = inputs
    ctx.save_for_backward(x)


def _swi_glu(ctx: Any, grad: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    if x.dim() <= MOST_DIMS:
        return None, _swi_glu_grad(grad, x, ctx.dim), None
    dim = ctx.dim % x.dim()
    before, after = x.shape[:dim].numel(), x.shape[dim + 1 :].numel()
    grad, flat = (tensor.reshape(before, tensor.shape[dim], after) for tensor in (grad, x))
    return None, _swi_glu_grad(grad, flat, 1).reshape(x.shape), None


register("swi_glu", _swi_glu, _setup_swi_glu)


def _setup_clipped_swiglu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, group_index, *ctx.attributes = inputs
    ctx.save_for_backward(x, group_index)


def _clipped_swiglu(ctx: Any, grad: Tensor) -> Any:
    dx = _OURS.clipped_swiglu_grad.default(grad, *ctx.saved_tensors, *ctx.attributes)
    return None, dx, None, *[None] * len(ctx.attributes)


register("clipped_swiglu", _clipped_swiglu, _setup_clipped_swiglu)


def _setup_ge_glu(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, *ctx.attributes = inputs
    ctx.save_for_backward(x, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _ge_glu(name: str) -> Callable[..., Any]:
    differentiate = getattr(_OURS, f"{name}_backward").default

    def backward(ctx: Any, grad: Tensor | None, _: Any) -> Any:
        x, gelu = ctx.saved_tensors
        dx = None if grad is None else differentiate(grad, x, gelu, *ctx.attributes)
        return None, dx, *[None] * len(ctx.attributes)

    return backward


for _name in ("ge_glu", "ge_glu_v3"):
    register(_name, _ge_glu(_name), _setup_ge_glu)


def _setup_prelu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _prelu(ctx: Any, grad: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    if not x.numel():  # aclnnPreluBackward does not write the weight's gradient then
        return None, torch.zeros_like(x), torch.zeros_like(weight)
    dtype = torch.promote_types(x.dtype, weight.dtype)
    dx, dw = _OURS.prelu_backward.default(grad.to(dtype), x.to(dtype), weight.to(dtype))
    return None, dx.to(x.dtype), dw.to(weight.dtype).reshape(weight.shape)


register("prelu", _prelu, _setup_prelu)


def _setup_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, ctx.normalized_shape, weight, bias, *attributes = inputs
    ctx.attributes = len(attributes)
    _, mean, rstd = output
    ctx.save_for_backward(x, weight, bias, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)  # no zeros for mean and rstd


def _layer_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, bias, mean, rstd = ctx.saved_tensors
    _, *needs = ctx.needs_input_grad
    mask = [needs[0], needs[2] and weight is not None, needs[3] and bias is not None]
    dx, dw, db = _layer_norm_backward(grad, x, ctx.normalized_shape, mean, rstd, weight, bias, mask)
    return None, dx, None, dw, db, *[None] * ctx.attributes


for _name in ("layer_norm", "layer_norm_with_impl_mode", "fast_layer_norm"):
    register(_name, _layer_norm, _setup_layer_norm)


def _setup_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gamma, _ = inputs
    _, rstd = output
    ctx.save_for_backward(x, gamma, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)  # no zeros for rstd


def _rms_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, gamma, rstd = ctx.saved_tensors
    dx, dgamma = _rms_norm_grad(grad, x, rstd, gamma)
    return None, dx, dgamma.to(gamma.dtype), None


register("rms_norm", _rms_norm, _setup_rms_norm)


def _gemma_rms_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, rstd = ctx.saved_tensors
    # 1 + w would lose digits in 16 bits.
    dx, dw = _rms_norm_grad(grad.float(), x.float(), rstd, weight.float() + 1.0)
    return None, dx.to(x.dtype), dw.to(weight.dtype), None


register("gemma_rms_norm", _gemma_rms_norm, _setup_rms_norm)


def _setup_add_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, rstd, x = output
    ctx.save_for_backward(x, inputs[2], rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _add_rms_norm(ctx: Any, grad: Tensor | None, _rstd: Any, grad_sum: Tensor | None) -> Any:
    x, weight, rstd = ctx.saved_tensors
    dx, dw = grad_sum, None
    if grad is not None:
        dx, dw = _rms_norm_grad(grad.to(weight.dtype), x.to(weight.dtype), rstd, weight)
        dx = (dx if grad_sum is None else dx + grad_sum).to(x.dtype)
        dw = dw.to(weight.dtype)
    return None, dx, dx, dw, None


register("add_rms_norm", _add_rms_norm, _setup_add_rms_norm)


def _setup_add_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x1, x2, weight, bias, added, _, ctx.has_sum = inputs
    _, mean, rstd, x = output
    ctx.save_for_backward(x1, x2, weight, added, mean, rstd)
    ctx.bias = bias.dtype
    ctx.mark_non_differentiable(mean, rstd, *([] if ctx.has_sum else [x]))
    ctx.set_materialize_grads(False)


def _add_layer_norm(ctx: Any, grad: Tensor | None, _mean: Any, _rstd: Any, grad_sum: Tensor | None) -> Any:
    if grad is None and grad_sum is None:
        return (None,) * len(ctx.needs_input_grad)
    x1, x2, weight, added, mean, rstd = ctx.saved_tensors
    # The gradient operator takes one data type and two terms; mixed types and a third term are computed in float32.
    dtype = torch.float32 if added is not None or weight.dtype != x1.dtype or x2.dtype != x1.dtype else x1.dtype
    grad, grad_sum = (None if g is None else g.to(dtype) for g in (grad, grad_sum))
    first = x1.to(dtype)
    if added is not None:
        first = first + added.to(dtype).reshape(x1.shape if added.numel() == x1.numel() else weight.shape)
    dy = torch.zeros_like(first) if grad is None else grad
    dx, dw, db = _add_layer_norm_grad(dy, first, x2.to(dtype), rstd, mean, weight.to(dtype), grad_sum)
    dadded = None
    if added is not None:
        rows = dx.reshape(-1, *weight.shape)
        dadded = (rows if added.numel() == x1.numel() else rows.sum(0)).reshape(added.shape).to(added.dtype)
    return None, dx.to(x1.dtype), dx.to(x2.dtype), dw.to(weight.dtype), db.to(ctx.bias), dadded, None, None


register("add_layer_norm", _add_layer_norm, _setup_add_layer_norm)


def _setup_deep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gx, _, weight, ctx.alpha, _ = inputs
    mean, rstd, _ = output
    ctx.save_for_backward(x, gx, weight, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _deep_norm(ctx: Any, _mean: Any, _rstd: Any, grad: Tensor | None) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    dx, dgx, *sums = _deep_norm_grad(grad, *ctx.saved_tensors, ctx.alpha)
    return None, dx, dgx, *(total.to(dx.dtype) for total in sums), None, None


register("deep_norm", _deep_norm, _setup_deep_norm)


def _setup_group_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, *ctx.extents, _ = inputs
    _, mean, rstd = output
    ctx.save_for_backward(x, weight, mean, rstd)
    ctx.has_bias = bias is not None
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _group_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, mean, rstd = ctx.saved_tensors
    _, *needs = ctx.needs_input_grad
    mask = [needs[0], needs[1] and weight is not None, needs[2] and ctx.has_bias]
    gradients = _OURS.group_norm_backward.default(grad, x, mean, rstd, weight, *ctx.extents, mask)
    return None, *gradients, *[None] * (len(ctx.extents) + 1)


register("group_norm", _group_norm, _setup_group_norm)


def _setup_group_norm_swish(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *_, ctx.groups, ctx.format, _, ctx.activated, ctx.scale = inputs
    _save_group_norm(ctx, inputs, output)


def _setup_group_norm_silu(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, _, ctx.groups, _, *activated = inputs
    ctx.activated, ctx.format, ctx.scale = all(activated), "NCHW", 1.0
    _save_group_norm(ctx, inputs, output)


def _save_group_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, mean, rstd = output
    ctx.attributes = len(inputs) - 3
    ctx.save_for_backward(*inputs[:3], mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _group_norm_swish(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, bias, mean, rstd = ctx.saved_tensors
    _, *needs = ctx.needs_input_grad
    # One data type: 16-bit elements are widened if the parameters are float32.
    dtype = next((parameter.dtype for parameter in (weight, bias) if parameter is not None), x.dtype)
    wide, dy, mean, rstd = (tensor.to(dtype) for tensor in (x, grad, mean, rstd))
    if ctx.activated:
        weight = wide.new_ones(x.shape[1]) if weight is None else weight
        bias = torch.zeros_like(weight) if bias is None else bias
        attributes = ctx.groups, ctx.format, ctx.scale, needs[1], needs[2]
        gradients = _group_norm_swish_grad(dy, mean, rstd, wide, weight, bias, *attributes)
    else:
        extents = x.shape[0], x.shape[1], x.shape[2:].numel(), ctx.groups
        gradients = _OURS.group_norm_backward.default(dy, wide, mean, rstd, weight, *extents, needs[:3])
    dx, *of_parameters = (gradient if need else None for gradient, need in zip(gradients, needs, strict=False))
    return None, dx if dx is None else dx.to(x.dtype), *of_parameters, *[None] * ctx.attributes


register("group_norm_swish", _group_norm_swish, _setup_group_norm_swish)
for _name in ("group_norm_silu", "group_norm_silu_v2"):
    register(_name, _group_norm_swish, _setup_group_norm_silu)


def _setup_ada_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)
    if isinstance(output, tuple):
        ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _ada_layer_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    # One variant does not return the statistics; the other rounds them to 16 bits.
    wide: list[Any] = [None if tensor is None else tensor.float() for tensor in ctx.saved_tensors]
    x, *others = wide
    _, mean, rstd = _OURS.ada_layer_norm_v2.default(*wide, ctx.eps)
    gradients = _OURS.ada_layer_norm_backward.default(grad.float(), x, x.shape[-1:], rstd, mean, *others)
    pairs = zip(ctx.saved_tensors, gradients, strict=True)
    return None, *(None if tensor is None else gradient.to(tensor.dtype) for tensor, gradient in pairs), None


for _name in ("ada_layer_norm", "ada_layer_norm_v2"):
    register(_name, _ada_layer_norm, _setup_ada_layer_norm)


def _setup_batch_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, bias, mean, var, ctx.training, _, ctx.eps = inputs
    saved = output[1:] if ctx.training else (None, None)
    # In evaluation the statistics are constants; copy them, since a later training step may update them.
    running = (None, None) if ctx.training else (t if t is None else t.clone() for t in (mean, var))
    ctx.save_for_backward(x, weight, *running, *saved)
    ctx.bias = None if bias is None else bias.dtype
    ctx.mark_non_differentiable(*(t for t in saved if t is not None))
    ctx.set_materialize_grads(False)


def _batch_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, *statistics = ctx.saved_tensors
    _, *needs = ctx.needs_input_grad
    mask = [needs[0], needs[1] and weight is not None, needs[2] and ctx.bias is not None]
    gradients = _OURS.batch_norm_backward.default(grad, x, weight, *statistics, ctx.training, ctx.eps, mask)
    dx, dw, db = gradients
    return None, dx, dw, db if db is None else db.to(ctx.bias), *[None] * 5


register("batch_norm", _batch_norm, _setup_batch_norm)
