"""The forward operators under PyTorch's function names and signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aclnn.operators.gelu import TANH
from aclnn.torch.registration import torch

Tensor = Any

_APPROXIMATE = {"none": 0, "tanh": TANH}


def fast_gelu(input: Tensor) -> Tensor:
    """``x / (1 + exp(-1.702·x))``; any shape of at most 8 dimensions, float32, float16 or bfloat16."""
    return torch.ops.aclnn.fast_gelu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x / (1 + exp(-x))``, as ``torch.nn.functional.silu``."""
    return _apply(torch.ops.aclnn.silu, input, inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x·Phi(x)`` or its tanh approximation, as ``torch.nn.functional.gelu``.

    Raises:
        RuntimeError: ``approximate`` is neither "none" nor "tanh".
    """
    if approximate not in _APPROXIMATE:
        raise RuntimeError(f"gelu(): approximate: expected 'none' or 'tanh', got {approximate!r}")
    return torch.ops.aclnn.gelu_v2(input, _APPROXIMATE[approximate])


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """0 up to -3, x from 3 on, ``x·(x + 3)/6`` in between, as ``torch.nn.functional.hardswish``."""
    return _apply(torch.ops.aclnn.hardswish, input, inplace)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """LayerNorm over the trailing dimensions, as ``torch.nn.functional.layer_norm``.

    Weight and bias have one data type, float32 or the input's.
    """
    return torch.ops.aclnn.layer_norm(input, normalized_shape, weight, bias, eps)[0]


def _apply(operator: Callable[..., Tensor], input: Tensor, inplace: bool) -> Tensor:
    if not inplace:
        return operator(input)
    # The gradient needs x, which is about to be overwritten.
    return input.copy_(operator(input.clone() if _may_be_differentiated(input) else input))


def _may_be_differentiated(input: Tensor) -> bool:
    """Return True where a gradient may be asked for: later if traced; tensors under ``torch.func.vmap`` do not tell."""
    if not isinstance(input, torch.Tensor) or torch.jit.is_tracing() or torch.compiler.is_exporting():
        return True
    return bool(torch.is_grad_enabled() and (input.requires_grad or torch._C._functorch.is_batchedtensor(input)))
