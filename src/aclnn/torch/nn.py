"""Modules: PyTorch's own, computing with our operators. Parameters, state dicts and ``isinstance`` stay the same."""

from __future__ import annotations

from typing import Any

from aclnn.torch import functional
from aclnn.torch.registration import torch

Tensor = Any

# misc: torch may be absent, so that mypy sees its classes as Any.


def _module(theirs: Any, function: Any) -> Any:
    """Return a subclass of PyTorch's module, whose attributes are named as the function's arguments."""
    _, *names = function.__signature__.parameters

    def forward(self: Any, input: Tensor) -> Tensor:
        """Apply it."""
        return function(input, *[getattr(self, name) for name in names])

    attributes = {"__doc__": f"``torch.nn.{theirs.__name__}``.", "__module__": __name__, "forward": forward}
    return type(theirs.__name__, (theirs,), attributes)


CELU = _module(torch.nn.CELU, functional.celu)
ELU = _module(torch.nn.ELU, functional.elu)
GLU = _module(torch.nn.GLU, functional.glu)
Hardshrink = _module(torch.nn.Hardshrink, functional.hardshrink)
Hardsigmoid = _module(torch.nn.Hardsigmoid, functional.hardsigmoid)
Hardswish = _module(torch.nn.Hardswish, functional.hardswish)
LeakyReLU = _module(torch.nn.LeakyReLU, functional.leaky_relu)
LogSigmoid = _module(torch.nn.LogSigmoid, functional.logsigmoid)
Mish = _module(torch.nn.Mish, functional.mish)
PReLU = _module(torch.nn.PReLU, functional.prelu)
ReLU = _module(torch.nn.ReLU, functional.relu)
SELU = _module(torch.nn.SELU, functional.selu)
SiLU = _module(torch.nn.SiLU, functional.silu)
Sigmoid = _module(torch.nn.Sigmoid, functional.sigmoid)
Softplus = _module(torch.nn.Softplus, functional.softplus)
Softshrink = _module(torch.nn.Softshrink, functional.softshrink)
Threshold = _module(torch.nn.Threshold, functional.threshold)


class FastGELU(torch.nn.Module):  # type: ignore[misc]
    """``x / (1 + exp(-1.702·x))`` on any shape of at most 8 dimensions; also known as QuickGELU."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.fast_gelu(input)


class GELU(torch.nn.GELU):  # type: ignore[misc]
    """``torch.nn.GELU``, approximate "none" or "tanh"."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.gelu(input, self.approximate)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """``torch.nn.LayerNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


#: Our classes by PyTorch's.
OURS: dict[type, type] = {
    ours.__bases__[0]: ours
    for ours in list(globals().values())
    if isinstance(ours, type) and ours.__module__ == __name__ and ours is not FastGELU
}
