"""Modules: PyTorch's own, computing with our operators. Parameters, state dicts and ``isinstance`` stay the same."""

from __future__ import annotations

from typing import Any

from aclnn.torch import functional
from aclnn.torch.registration import torch

Tensor = Any

# misc: torch may be absent, so that mypy sees its classes as Any.


class FastGELU(torch.nn.Module):  # type: ignore[misc]
    """``x / (1 + exp(-1.702·x))`` on any shape of at most 8 dimensions; also known as QuickGELU."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.fast_gelu(input)


class SiLU(torch.nn.SiLU):  # type: ignore[misc]
    """``torch.nn.SiLU``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.silu(input, self.inplace)


class GELU(torch.nn.GELU):  # type: ignore[misc]
    """``torch.nn.GELU``, approximate "none" or "tanh"."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.gelu(input, self.approximate)


class Hardswish(torch.nn.Hardswish):  # type: ignore[misc]
    """``torch.nn.Hardswish``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.hardswish(input, self.inplace)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """``torch.nn.LayerNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
