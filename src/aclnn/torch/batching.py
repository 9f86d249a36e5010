"""``torch.func.vmap``: the batch becomes an additional leading dimension, without copies, if the rank allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.core.checks import MOST_DIMS
from aclnn.core.operator import Operator
from aclnn.operators import OPERATORS
from aclnn.torch.registration import LIBRARY, default_arguments, is_functional, torch

Tensor = Any


def _leading(tensor: Tensor, dim: int | None, batch_size: int, rank: int = 0) -> Tensor:
    """Move a tensor's batch to the front, or expand it without a copy, and pad the rank with ones up to ``rank``."""
    tensor = tensor.expand(batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    for _ in range(rank - tensor.dim() + 1):
        tensor = tensor.unsqueeze(1)
    return tensor


def _elementwise(call: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        pairs = list(zip(arguments, in_dims, strict=True))
        rank = max(a.dim() - (d is not None) for a, d in pairs if isinstance(a, torch.Tensor))
        moved = [_leading(a, d, info.batch_size, rank) if isinstance(a, torch.Tensor) else a for a, d in pairs]
        return call(*moved), 0

    return rule


def _one_by_one(call: Callable[..., Any], info: Any, in_dims: Any, arguments: Any) -> tuple[Any, Any]:
    """Call once per batch member: parameters' gradients are sums over rows, which must not mix members."""
    pairs = list(zip(arguments, in_dims, strict=True))
    batched = [isinstance(a, torch.Tensor) and d is not None for a, d in pairs]
    if not info.batch_size:  # zeros give the results' shapes; running statistics stay unchanged
        pairs = [
            (a.sum(d, keepdim=True) if moves else a.clone() if isinstance(a, torch.Tensor) else a, d)
            for (a, d), moves in zip(pairs, batched, strict=True)
        ]
    calls = [
        call(*(a.select(d, i) if moves else a for (a, d), moves in zip(pairs, batched, strict=True)))
        for i in range(info.batch_size or 1)
    ]
    if isinstance(calls[0], torch.Tensor):
        return torch.stack(calls)[: info.batch_size], 0
    results = tuple(
        None if parts[0] is None else torch.stack(parts)[: info.batch_size] for parts in zip(*calls, strict=True)
    )
    return results, tuple(None if result is None else 0 for result in results)


def _is_deep(in_dims: tuple[int | None, ...], arguments: tuple[Any, ...]) -> bool:
    """Return True if members have the maximum rank of the operators, which leaves no dimension for the batch."""
    pairs = zip(arguments, in_dims, strict=True)
    return any(isinstance(a, torch.Tensor) and a.dim() - (d is not None) >= MOST_DIMS for a, d in pairs)


def _along(call: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule of operators with a dimension as their first attribute, a dimension of the last tensor."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        dim, *attributes = arguments[len(tensors) :]
        moved = [_leading(tensor, at, info.batch_size) for tensor, at in zip(tensors, in_dims, strict=False)]
        rank = moved[-1].dim() - 1
        if not -rank <= dim < rank:  # out of a member's range, and possibly the batch dimension
            return _one_by_one(call, info, in_dims, arguments)
        results = call(*moved, dim + 1 if dim >= 0 else dim, *attributes)
        return results, (0,) * len(results) if isinstance(results, tuple) else 0

    return rule


def _each(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda info, in_dims, *arguments: _one_by_one(call, info, in_dims, arguments)


def _layer_norm(call: Callable[..., Any]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Any, x: Tensor, shape: Any, weight: Any, bias: Any, *rest: Any) -> Any:
        if in_dims[2] is not None or in_dims[3] is not None:
            return _one_by_one(call, info, in_dims, (x, shape, weight, bias, *rest))
        return call(_leading(x, in_dims[0], info.batch_size), shape, weight, bias, *rest), (0, 0, 0)

    return rule


def _layer_norm_backward(call: Callable[..., Any]) -> Callable[..., Any]:
    def rule(
        info: Any, in_dims: Any, dy: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, *rest: Any
    ) -> Any:
        bias, mask = rest
        if in_dims[5] is not None or mask[1] or mask[2]:
            return _one_by_one(call, info, in_dims, (dy, x, shape, mean, rstd, weight, *rest))
        tensors = (dy, in_dims[0]), (x, in_dims[1]), (mean, in_dims[3]), (rstd, in_dims[4])
        dy, x, mean, rstd = (_leading(tensor, dim, info.batch_size) for tensor, dim in tensors)
        # The bias is unused, so drop a batched one.
        results = call(dy, x, shape, mean, rstd, weight, bias if in_dims[6] is None else None, mask)
        return results, tuple(None if result is None else 0 for result in results)

    return rule


def _rms_norm(call: Callable[..., Any]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Any, x: Tensor, gamma: Any, *rest: Any) -> Any:
        if in_dims[1] is not None:
            return _one_by_one(call, info, in_dims, (x, gamma, *rest))
        return call(_leading(x, in_dims[0], info.batch_size), gamma, *rest), (0, 0)

    return rule


_RULES = {
    **dict.fromkeys((operator.name for operator in OPERATORS if "norm" in operator.name), _each),
    "layer_norm": _layer_norm,
    "layer_norm_with_impl_mode": _layer_norm,
    "fast_layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    **dict.fromkeys(("swi_glu", "swi_glu_grad", "glu", "glu_backward", "ge_glu", "ge_glu_backward"), _along),
    **dict.fromkeys(("ge_glu_v3", "ge_glu_v3_backward"), _along),
    **dict.fromkeys(("softmax", "softmax_backward", "log_softmax", "log_softmax_backward"), _along),
    "rms_norm": _rms_norm,
    "clipped_swiglu": _each,
    "clipped_swiglu_grad": _each,
    "prelu": _each,
    "prelu_backward": _each,
}


def _register(operator: Operator) -> None:
    make: Callable[..., Callable[..., Any]] = _RULES.get(operator.name, _elementwise)
    call = getattr(torch.ops.aclnn, operator.name).default
    rule, defaults = make(call), default_arguments(operator)

    def with_defaults(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        in_dims += (None,) * (len(defaults) - len(arguments))
        arguments += defaults[len(arguments) :]
        if _is_deep(in_dims, arguments):
            return _one_by_one(call, info, in_dims, arguments)
        return rule(info, in_dims, *arguments)

    torch.library.register_vmap(f"aclnn::{operator.name}", with_defaults, lib=LIBRARY)


for _operator in OPERATORS:
    if is_functional(_operator):
        _register(_operator)
