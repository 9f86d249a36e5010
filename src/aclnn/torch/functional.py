"""Forward operators with PyTorch's function names and signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from aclnn.operators import BY_NAME
from aclnn.operators.gelu import TANH
from aclnn.torch.registration import torch

Tensor = Any

_APPROXIMATE = {"none": 0, "tanh": TANH}
_REQUIRED = Parameter.empty


def _activation(name: str, *, operator: str = "", inplace: bool = True, **numbers: Any) -> Callable[..., Tensor]:
    """Return the function of a unary operator, with the signature of PyTorch's function.

    Args:
        name: name of PyTorch's function.
        operator: name of the operator; by default the same.
        inplace: whether PyTorch's function has a last argument ``inplace``.
        numbers: the attributes and their defaults, in order.
    """
    declared = BY_NAME[operator or name]
    run = getattr(torch.ops.aclnn, declared.name)
    defaults = (*numbers.values(), *[False] * inplace)
    names = ("input", *numbers, *["inplace"] * inplace)
    signature = Signature(
        [
            Parameter(parameter, Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for parameter, default in zip(names, (_REQUIRED, *defaults), strict=True)
        ]
    )
    least, most = 1 + sum(default is _REQUIRED for default in defaults), len(names)

    def function(*arguments: Any, **named: Any) -> Tensor:
        if named or not least <= len(arguments) <= most:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            arguments = bound.args
        input, *given = (*arguments, *defaults[len(arguments) - 1 :])
        if inplace and given.pop():
            # The gradient needs x, which is about to be overwritten.
            return input.copy_(run(input.clone() if _may_be_differentiated(input) else input, *given))
        return run(input, *given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{declared.summary} ``{declared.formula}``, as ``torch.nn.functional.{name}``."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


celu = _activation("celu", alpha=1.0)
elu = _activation("elu", alpha=1.0)
glu = _activation("glu", inplace=False, dim=-1)
hardshrink = _activation("hardshrink", inplace=False, lambd=0.5)
hardsigmoid = _activation("hardsigmoid")
hardswish = _activation("hardswish")
leaky_relu = _activation("leaky_relu", negative_slope=0.01)
logsigmoid = _activation("logsigmoid", operator="log_sigmoid", inplace=False)
mish = _activation("mish")
prelu = _activation("prelu", inplace=False, weight=_REQUIRED)
relu = _activation("relu")
selu = _activation("selu")
sigmoid = _activation("sigmoid", inplace=False)
silu = _activation("silu")
softplus = _activation("softplus", inplace=False, beta=1.0, threshold=20.0)
softshrink = _activation("softshrink", inplace=False, lambd=0.5)
threshold = _activation("threshold", threshold=_REQUIRED, value=_REQUIRED)


def fast_gelu(input: Tensor) -> Tensor:
    """Compute ``x / (1 + exp(-1.702·x))`` of up to 8 dimensions in float32, float16 or bfloat16."""
    return torch.ops.aclnn.fast_gelu(input)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Compute ``x·Phi(x)`` or its tanh approximation, as ``torch.nn.functional.gelu``.

    Raises:
        RuntimeError: ``approximate`` is neither "none" nor "tanh".
    """
    if approximate not in _APPROXIMATE:
        raise RuntimeError(f"gelu(): approximate: expected 'none' or 'tanh', got {approximate!r}")
    return torch.ops.aclnn.gelu_v2(input, _APPROXIMATE[approximate])


def _softmax(name: str) -> Callable[..., Tensor]:
    """Return a softmax function with the signature of PyTorch's function."""
    run = getattr(torch.ops.aclnn, name)

    def function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
        if dim is None:  # PyTorch chooses a dimension and warns
            dim = torch.nn.functional._get_softmax_dim(name, input.dim(), _stacklevel)
        return run(input if dtype is None else input.to(dtype), dim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{BY_NAME[name].summary} As ``torch.nn.functional.{name}``."
    return function


softmax = _softmax("softmax")
log_softmax = _softmax("log_softmax")


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Compute LayerNorm over the trailing dimensions, as ``torch.nn.functional.layer_norm``.

    Weight and bias share one data type, float32 or the input's.
    """
    return torch.ops.aclnn.layer_norm(input, normalized_shape, weight, bias, eps)[0]


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Compute RMSNorm over the trailing dimensions, as ``torch.nn.functional.rms_norm``.

    The weight has the input's data type or float32. ``eps`` defaults to 2⁻²³, float32's epsilon, for 16-bit types too.
    """
    shape = tuple(normalized_shape)
    if tuple(input.shape[input.dim() - len(shape) :]) != shape:
        raise RuntimeError(f"rms_norm(): input: expected trailing dimensions {list(shape)}, got {list(input.shape)}")
    given = torch.ones(shape, dtype=input.dtype, device=input.device) if weight is None else weight
    return torch.ops.aclnn.rms_norm(input, given, torch.finfo(torch.float32).eps if eps is None else eps)[0]


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Compute GroupNorm of (N, C, …), as ``torch.nn.functional.group_norm``.

    Weight and bias have the input's data type or float32; with float32, 16-bit inputs are computed in float32.
    """
    n, c, *space = input.shape
    wide = input.float() if any(p is not None and p.dtype is torch.float32 for p in (weight, bias)) else input
    found = torch.ops.aclnn.group_norm(wide, weight, bias, n, c, math.prod(space), num_groups, eps)[0]
    return found.to(input.dtype) if input.device.type == "cpu" else found  # autocast on CUDA gives float32


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Compute BatchNorm of (N, C, …), as ``torch.nn.functional.batch_norm``; training updates the running statistics.

    Raises:
        ValueError: in training, a channel has a single value, or only one of the running statistics is given.
        RuntimeError: in evaluation, there are no running statistics.
    """
    n, _, *space = input.shape
    if training and math.prod((n, *space)) == 1:
        raise ValueError(f"batch_norm(): input: expected more than one value a channel, got {list(input.shape)}")
    _expect_statistics("batch_norm", running_mean, running_var, training)
    # With five dimensions the operator requires a format that PyTorch's tensors do not have.
    flat = input.flatten(3) if input.dim() == _VIDEO_RANK else input
    found = torch.ops.aclnn.batch_norm(flat, weight, bias, running_mean, running_var, training, momentum, eps)[0]
    return found.reshape(input.shape)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Compute InstanceNorm of (N, C, …), as ``torch.nn.functional.instance_norm``: BatchNorm per sample.

    Running statistics are updated by the mean over the samples.

    Raises:
        ValueError: with the input's statistics, a channel has a single value, or only one of the running statistics is
            given.
        RuntimeError: without the input's statistics, there are no running statistics.
    """
    n, c, *space = input.shape
    if use_input_stats and math.prod(space) == 1:
        raise ValueError(f"instance_norm(): input: expected more than one value a channel, got {list(input.shape)}")
    _expect_statistics("instance_norm", running_mean, running_var, use_input_stats)
    if use_input_stats and running_mean is None:
        return group_norm(input, c, weight, bias, eps).to(input.dtype)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, var, w, b = (
        None if given is None else given.repeat(n) for given in (running_mean, running_var, weight, bias)
    )
    flat = input.reshape(1, n * c, math.prod(space))
    found = batch_norm(flat, mean, var, w, b, True, momentum, eps)
    with torch.no_grad():
        for running, updated in ((running_mean, mean), (running_var, var)):
            if running is not None and updated is not None:
                running.copy_(updated.view(n, c).mean(0))
    return found.reshape(input.shape)


_VIDEO_RANK = 5


def _expect_statistics(function: str, mean: Tensor | None, var: Tensor | None, of_input: bool) -> None:
    """Reject combinations of running statistics that PyTorch rejects."""
    if not of_input and (mean is None or var is None):
        raise RuntimeError(f"{function}(): expected running_mean and running_var if not the input's, got None")
    if (mean is None) != (var is None):
        raise ValueError(f"{function}(): expected both or neither of running_mean and running_var, got one")


def _may_be_differentiated(input: Tensor) -> bool:
    """Return True if a gradient may be needed: also later, if traced, or under ``torch.func.vmap``."""
    if not isinstance(input, torch.Tensor) or torch.jit.is_tracing() or torch.compiler.is_exporting():
        return True
    return bool(torch.is_grad_enabled() and (input.requires_grad or torch._C._functorch.is_batchedtensor(input)))
