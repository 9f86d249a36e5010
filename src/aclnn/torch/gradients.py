"""Gradients: each forward operator's is our backward operator; a backward operator's are PyTorch's own.

Second derivatives come from the same gradient written in operations that PyTorch differentiates, any number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch._functorch.utils import enable_single_level_autograd_function

from aclnn.core.checks import MOST_DIMS
from aclnn.core.products import CLASS_950, current_product
from aclnn.operators import BY_NAME, OPERATORS
from aclnn.operators.gelu import TANH
from aclnn.operators.selu import SCALE, SCALED_ALPHA
from aclnn.torch.registration import (
    LIBRARY,
    Direct,
    default_arguments,
    forward_ad,
    is_functional,
    no_gradient,
    refuse_tangents,
    torch,
)

Tensor = Any
_OURS, _THEIRS = torch.ops.aclnn, torch.ops.aten

_AFTER = torch._C._after_ADInplaceOrView_keyset
_is_grad_enabled, _any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad


def _register(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    """Give an operator its gradient; ``setup(ctx, inputs, output)`` sees every argument, defaults included.

    ``backward(ctx, *grads)`` returns the gradients of these, after a None for the kernel that ``forward`` is given.

    ``torch.library.register_autograd`` would do, but refuses ``torch.func``, and sends calls without gradients through
    the dispatcher a second time, which takes as long as all the rest of a small call.
    """
    overload = getattr(_OURS, name).default

    def forward(ctx: Any, run: Callable[..., Any], *arguments: Any) -> Any:
        output = run(*arguments)
        setup(ctx, arguments, output)
        return output

    attributes = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(f"Aclnn_{name}", (torch.autograd.Function,), attributes)
    # Function.apply itself would start torch.func's transforms, which have been seen to when the kernel is called.
    apply = super(torch.autograd.Function, function).apply
    direct = Direct(name, _AFTER)
    defaults = default_arguments(BY_NAME[name])

    def kernel(keyset: Any, *arguments: Any) -> Any:
        run = direct[keyset.raw_repr()] or partial(_go_on, overload, keyset)
        refuse_tangents(name, arguments)
        if not (_is_grad_enabled() and _any_requires_grad(*arguments)):
            return run(*arguments)
        arguments += defaults[len(arguments) :]
        if not torch._C._are_functorch_transforms_active():
            return apply(run, *arguments)
        with enable_single_level_autograd_function():
            return apply(partial(_recorded, run), *arguments)

    LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


def _recorded(run: Callable[..., Any], *arguments: Any) -> Any:
    """Run with both modes of differentiation on, for outer transforms: Function.forward disables them."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        return run(*arguments)


def _go_on(overload: Any, keyset: Any, *arguments: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keyset & _AFTER, *arguments)


def _first(name: str, differentiate: Callable[..., Tensor]) -> None:
    """Register the gradient of an elementwise forward operator of x and, perhaps, a number."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *ctx.attributes = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if x.dim() > MOST_DIMS:  # as some forward operators take, but no backward one
            flat = grad.flatten(0, -MOST_DIMS), x.flatten(0, -MOST_DIMS)
            dx = differentiate(*flat, *ctx.attributes).reshape(x.shape)
        else:
            dx = differentiate(grad, x, *ctx.attributes)
        return None, dx, *[None] * len(ctx.attributes)

    _register(name, backward, setup)


# Overloads: to find one by its name and arguments takes 0.2 µs, and ten times that with cold caches.
_hardswish_backward, _gelu_backward = _OURS.hardswish_backward.default, _OURS.gelu_backward_v2.default
_layer_norm_backward, _swi_glu_grad = _OURS.layer_norm_backward.default, _OURS.swi_glu_grad.default
_elu_backward, _rms_norm_grad = _OURS.elu_backward.default, _OURS.rms_norm_grad.default
_add_layer_norm_grad = _OURS.add_layer_norm_grad.default
_deep_norm_grad = _OURS.deep_norm_grad.default
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
    """Register the gradient of a forward operator of x and, perhaps, a number that is told by its result."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.attributes = inputs
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        if y.dim() > MOST_DIMS:  # of elementwise operators alone
            flat = grad.flatten(0, -MOST_DIMS), y.flatten(0, -MOST_DIMS)
            dx = differentiate(*flat, *ctx.attributes).reshape(y.shape)
        else:
            dx = differentiate(grad, y, *ctx.attributes)
        return None, dx, *[None] * len(ctx.attributes)

    _register(name, backward, setup)


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


_register("swi_glu", _swi_glu, _setup_swi_glu)


def _setup_clipped_swiglu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, group_index, *ctx.attributes = inputs
    ctx.save_for_backward(x, group_index)


def _clipped_swiglu(ctx: Any, grad: Tensor) -> Any:
    dx = _OURS.clipped_swiglu_grad.default(grad, *ctx.saved_tensors, *ctx.attributes)
    return None, dx, None, *[None] * len(ctx.attributes)


_register("clipped_swiglu", _clipped_swiglu, _setup_clipped_swiglu)


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
    _register(_name, _ge_glu(_name), _setup_ge_glu)


def _setup_prelu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _prelu(ctx: Any, grad: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    if not x.numel():  # of which aclnnPreluBackward writes no gradient of the weight
        return None, torch.zeros_like(x), torch.zeros_like(weight)
    dtype = torch.promote_types(x.dtype, weight.dtype)
    dx, dw = _OURS.prelu_backward.default(grad.to(dtype), x.to(dtype), weight.to(dtype))
    return None, dx.to(x.dtype), dw.to(weight.dtype).reshape(weight.shape)


_register("prelu", _prelu, _setup_prelu)


def _setup_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, ctx.normalized_shape, weight, bias, *attributes = inputs
    ctx.attributes = len(attributes)
    _, mean, rstd = output
    ctx.save_for_backward(x, weight, bias, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)  # none are made of zeros for mean and rstd


def _layer_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, bias, mean, rstd = ctx.saved_tensors
    _, *needs = ctx.needs_input_grad
    mask = [needs[0], needs[2] and weight is not None, needs[3] and bias is not None]
    dx, dw, db = _layer_norm_backward(grad, x, ctx.normalized_shape, mean, rstd, weight, bias, mask)
    return None, dx, None, dw, db, *[None] * ctx.attributes


for _name in ("layer_norm", "layer_norm_with_impl_mode", "fast_layer_norm"):
    _register(_name, _layer_norm, _setup_layer_norm)


def _setup_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, gamma, _ = inputs
    _, rstd = output
    ctx.save_for_backward(x, gamma, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)  # none is made of zeros for rstd


def _rms_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, gamma, rstd = ctx.saved_tensors
    dx, dgamma = _rms_norm_grad(grad, x, rstd, gamma)
    return None, dx, dgamma.to(gamma.dtype), None


_register("rms_norm", _rms_norm, _setup_rms_norm)


def _gemma_rms_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, rstd = ctx.saved_tensors
    # 1 + w would lose digits in 16 bits.
    dx, dw = _rms_norm_grad(grad.float(), x.float(), rstd, weight.float() + 1.0)
    return None, dx.to(x.dtype), dw.to(weight.dtype), None


_register("gemma_rms_norm", _gemma_rms_norm, _setup_rms_norm)


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


_register("add_rms_norm", _add_rms_norm, _setup_add_rms_norm)


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
    # The gradient takes one data type, and knows two terms: what both must hold is computed in float32.
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


_register("add_layer_norm", _add_layer_norm, _setup_add_layer_norm)


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


_register("deep_norm", _deep_norm, _setup_deep_norm)


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


_register("group_norm", _group_norm, _setup_group_norm)


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
    # One data type, to which 16-bit elements beside float32 parameters are widened.
    dtype = next((parameter.dtype for parameter in (weight, bias) if parameter is not None), x.dtype)
    wide, dy, mean, rstd = (tensor.to(dtype) for tensor in (x, grad, mean, rstd))
    if ctx.activated:
        weight = wide.new_ones(x.shape[1]) if weight is None else weight
        bias = torch.zeros_like(weight) if bias is None else bias
        attributes = ctx.groups, ctx.format, ctx.scale, needs[1], needs[2]
        gradients = _OURS.group_norm_swish_grad.default(dy, mean, rstd, wide, weight, bias, *attributes)
    else:
        extents = x.shape[0], x.shape[1], x.shape[2:].numel(), ctx.groups
        gradients = _OURS.group_norm_backward.default(dy, wide, mean, rstd, weight, *extents, needs[:3])
    dx, *of_parameters = (gradient if need else None for gradient, need in zip(gradients, needs, strict=False))
    return None, dx if dx is None else dx.to(x.dtype), *of_parameters, *[None] * ctx.attributes


_register("group_norm_swish", _group_norm_swish, _setup_group_norm_swish)
for _name in ("group_norm_silu", "group_norm_silu_v2"):
    _register(_name, _group_norm_swish, _setup_group_norm_silu)


def _setup_ada_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)
    if isinstance(output, tuple):
        ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _ada_layer_norm(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    # The statistics are no results of one variant, and rounded to 16 bits of the other.
    wide: list[Any] = [None if tensor is None else tensor.float() for tensor in ctx.saved_tensors]
    x, *others = wide
    _, mean, rstd = _OURS.ada_layer_norm_v2.default(*wide, ctx.eps)
    gradients = _OURS.ada_layer_norm_backward.default(grad.float(), x, x.shape[-1:], rstd, mean, *others)
    pairs = zip(ctx.saved_tensors, gradients, strict=True)
    return None, *(None if tensor is None else gradient.to(tensor.dtype) for tensor, gradient in pairs), None


for _name in ("ada_layer_norm", "ada_layer_norm_v2"):
    _register(_name, _ada_layer_norm, _setup_ada_layer_norm)


def _setup_batch_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, bias, mean, var, ctx.training, _, ctx.eps = inputs
    saved = output[1:] if ctx.training else (None, None)
    # Outside of training the statistics are constants, which a later step in training must not change.
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


_register("batch_norm", _batch_norm, _setup_batch_norm)


def _second(name: str, alike: Callable[..., Any]) -> None:
    """Register the gradients of a backward operator: those of ``alike``, equal to it in PyTorch's operations."""

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

    _register(name, backward, setup)


def _vjp(function: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor], dys: list[Tensor]) -> Any:
    """The gradients of a function by PyTorch, differentiable if grad mode is on."""
    if torch._C._are_functorch_transforms_active():
        return torch.func.vjp(function, *tensors)[1](tuple(dys))
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that only this use is differentiated; that of a tensor whose transform has ended requires no grad.
        views = [tensor.view_as(tensor) if further else tensor.detach() for tensor in tensors]
        given = [view if view.requires_grad else view.detach().requires_grad_() for view in views]
        results = function(*given)
        return torch.autograd.grad(results, given, dys, create_graph=further, allow_unused=True)


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
    """In elementary operations: DTensor has no rule for PyTorch's hardswish_backward."""
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
# PyTorch's own does not broadcast.
_second("gelu_backward", lambda dy, x: dy * _THEIRS.gelu_backward(torch.ones_like(x), x, approximate="tanh"))
_second("gelu_backward_v2", lambda dy, x, mode: dy * _THEIRS.gelu_backward(torch.ones_like(x), x, approximate=mode))


def _layer_norm_gradients(
    dy: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Any
) -> tuple[Any, Any, Any]:
    """Compute LayerNorm's gradients by operations that PyTorch differentiates, mean and rstd as functions of x.

    That is what mean and rstd are in a model; PyTorch's own second derivative assumes it too.
    """
    dims = list(range(x.dim() - len(shape), x.dim()))
    rows = list(range(x.dim() - len(shape)))
    centred = x - x.mean(dims, keepdim=True)
    # rstd's value is kept, with the dependence on x that it has for any eps.
    spread = rstd.reshape(x.shape[: len(rows)] + (1,) * len(dims)).detach()
    variance = (centred * centred).mean(dims, keepdim=True)
    scale = (spread**-2 + (variance - variance.detach())) ** -0.5
    hat = centred * scale
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
    dy: Tensor,
    x: Tensor,
    shape: Any,
    rstd: Tensor,
    mean: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Any,
    bias: Any,
) -> tuple[Tensor, ...]:
    """Compute AdaLayerNorm's gradients like ``_layer_norm_gradients``."""
    factor = 1.0 + scale.reshape(*x.shape[:-2], 1, x.shape[-1])
    w, b = 1.0 if weight is None else weight, 0.0 if bias is None else bias
    lower, over = dy * factor, list(range(x.dim() - 1))
    hat = _hat(x, rstd, [-1])
    g = lower * w
    dx = (g - g.mean(-1, keepdim=True) - hat * (g * hat).mean(-1, keepdim=True)) * _scale(x, rstd, [-1])
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
    hat = _hat(x.reshape(split), rows, [2, 3])
    g = dy.reshape(split) * w
    scale = _scale(x.reshape(split), rows, [2, 3])
    dx = (g - g.mean([2, 3], keepdim=True) - hat * (g * hat).mean([2, 3], keepdim=True)) * scale
    like = (c,) if weight is None else weight.shape
    dw, db = (terms.sum([0, 3]).reshape(like) for terms in (dy.reshape(split) * hat, dy.reshape(split)))
    return dx.reshape(x.shape) if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


def _scale(x: Tensor, rstd: Tensor, dims: list[int]) -> Tensor:
    """Return rstd's value, with the dependence on x that it has for any eps."""
    centred = x - x.mean(dims, keepdim=True)
    variance = (centred * centred).mean(dims, keepdim=True)
    return (rstd.detach() ** -2 + (variance - variance.detach())) ** -0.5


def _hat(x: Tensor, rstd: Tensor, dims: list[int]) -> Tensor:
    return (x - x.mean(dims, keepdim=True)) * _scale(x, rstd, dims)


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
    """Compute the gradients of GroupNorm and Swish as those of GroupNorm, with Swish's for dy."""
    n, c = x.shape[:2]
    split, parameter = (n, groups, c // groups, -1), (1, groups, c // groups, 1)
    hat = _hat(x.reshape(split), rstd.reshape(n, groups, 1, 1), [2, 3])
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
        saved = torch.ones(x.shape[1]) if save_invstd is None else save_invstd
        of_variance = current_product() not in CLASS_950
        rstd = ((saved + eps) ** -0.5 if of_variance else saved).reshape(channel)
        scale, hat = _scale(x, rstd, dims), _hat(x, rstd, dims)
        dx = w * scale * (dy - dy.mean(dims, keepdim=True) - hat * (dy * hat).mean(dims, keepdim=True))
    else:
        mean = 0.0 if running_mean is None else running_mean.reshape(channel)
        scale = (1.0 + eps) ** -0.5 if running_var is None else (running_var.reshape(channel) + eps) ** -0.5
        hat, dx = (x - mean) * scale, w * scale * dy
    dw, db = (dy * hat).sum(dims), dy.sum(dims)
    return dx if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


for _name in ("batch_norm_backward", "fast_batch_norm_backward"):
    _second(_name, _batch_norm_gradients)


def _refuse(name: str) -> None:
    """Have backward passes through an operator without a gradient fail; PyTorch would warn and go on without it."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        raise NotImplementedError(f"{name}(): expected no argument to require grad, as it has no gradient, got one")

    _register(name, backward, setup)


for _operator in filter(is_functional, OPERATORS):
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aclnn::{_operator.name}", "Autograd"):
        if any(parameter.updated for parameter in _operator.inputs):
            _overload = getattr(_OURS, _operator.name).default
            LIBRARY.impl(_operator.name, no_gradient(_operator, _overload), "Autograd", with_keyset=True)
        else:
            _refuse(_operator.name)
