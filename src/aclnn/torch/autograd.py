"""Registration of gradients with PyTorch's autograd, and errors for operators without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aclnn.operators import BY_NAME, OPERATORS
from aclnn.torch.registration import (
    LIBRARY,
    Direct,
    default_arguments,
    forward_ad,
    is_functional,
    no_gradient,
    reject_tangents,
    torch,
)

Tensor = Any
_OURS = torch.ops.aclnn

_AFTER = torch._C._after_ADInplaceOrView_keyset
_single_level = torch._functorch.utils.enable_single_level_autograd_function
_is_grad_enabled, _any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad


def register(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    """Register an operator's gradient; ``setup(ctx, inputs, output)`` receives every argument, defaults included.

    ``backward(ctx, *grads)`` returns a None, for the kernel that ``forward`` receives first, and the gradients of the
    arguments.

    ``torch.library.register_autograd`` would do, but does not support ``torch.func``, and sends calls without gradients
    through the dispatcher twice, which takes as long as all the rest of a small call.
    """
    overload = getattr(_OURS, name).default

    def forward(ctx: Any, run: Callable[..., Any], *arguments: Any) -> Any:
        output = run(*arguments)
        setup(ctx, arguments, output)
        return output

    attributes = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(f"Aclnn_{name}", (torch.autograd.Function,), attributes)
    # Function.apply itself would start torch.func's transforms, which have run when the kernel is called.
    apply = super(torch.autograd.Function, function).apply
    direct = Direct(name, _AFTER)
    defaults = default_arguments(BY_NAME[name])

    def kernel(keyset: Any, *arguments: Any) -> Any:
        run = direct[keyset.raw_repr()] or partial(_redispatch, overload, keyset)
        reject_tangents(name, arguments)
        if not (_is_grad_enabled() and _any_requires_grad(*arguments)):
            return run(*arguments)
        arguments += defaults[len(arguments) :]
        if not torch._C._are_functorch_transforms_active():
            return apply(run, *arguments)
        with _single_level():
            return apply(partial(_recorded, run), *arguments)

    LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


def _recorded(run: Callable[..., Any], *arguments: Any) -> Any:
    """Run with both modes of differentiation enabled, for outer transforms: Function.forward disables them."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        return run(*arguments)


def _redispatch(overload: Any, keyset: Any, *arguments: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keyset & _AFTER, *arguments)


def _raise_on_backward(name: str) -> None:
    """Make backward passes through an operator without a gradient fail; PyTorch would only warn."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        raise NotImplementedError(f"{name}(): expected no argument to require grad, as it has no gradient, got one")

    register(name, backward, setup)


def reject_other_gradients() -> None:
    """Make backward passes fail for every operator without a registered gradient."""
    for operator in filter(is_functional, OPERATORS):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aclnn::{operator.name}", "Autograd"):
            if any(parameter.updated for parameter in operator.inputs):
                overload = getattr(_OURS, operator.name).default
                LIBRARY.impl(operator.name, no_gradient(operator, overload), "Autograd", with_keyset=True)
            else:
                _raise_on_backward(operator.name)
