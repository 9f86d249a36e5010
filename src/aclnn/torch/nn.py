"""Modules: PyTorch's classes, computing with these operators. Parameters, state dicts and ``isinstance`` still work."""

from __future__ import annotations

from typing import Any

from aclnn.torch import functional
from aclnn.torch.registration import torch

Tensor = Any

# misc: torch may not be installed, so mypy sees its classes as Any.


def _module(theirs: Any, function: Any) -> Any:
    """Return a subclass of PyTorch's module, whose attributes have the names of the function's arguments."""
    _, *names = function.__signature__.parameters

    def forward(self: Any, input: Tensor) -> Tensor:
        """Apply the operator."""
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
    """Compute ``x / (1 + exp(-1.702·x))`` of up to 8 dimensions; also known as QuickGELU."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the operator."""
        return functional.fast_gelu(input)


class GELU(torch.nn.GELU):  # type: ignore[misc]
    """``torch.nn.GELU``, approximate "none" or "tanh"."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the operator."""
        return functional.gelu(input, self.approximate)


def _softmax(theirs: Any, function: Any) -> Any:
    """Return a subclass of a PyTorch module with a dimension."""

    def forward(self: Any, input: Tensor) -> Tensor:
        """Apply the operator."""
        return function(input, self.dim, _stacklevel=5)

    attributes = {"__doc__": f"``torch.nn.{theirs.__name__}``.", "__module__": __name__, "forward": forward}
    return type(theirs.__name__, (theirs,), attributes)


Softmax = _softmax(torch.nn.Softmax, functional.softmax)
LogSoftmax = _softmax(torch.nn.LogSoftmax, functional.log_softmax)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """``torch.nn.LayerNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the operator."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc]
    """``torch.nn.RMSNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the operator."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class GroupNorm(torch.nn.GroupNorm):  # type: ignore[misc]
    """``torch.nn.GroupNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the operator."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


def _batch_norm(theirs: Any) -> Any:
    """Return a subclass of a PyTorch BatchNorm class."""

    def forward(self: Any, input: Tensor) -> Tensor:
        """Apply the operator."""
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # cumulative mean over all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if tracked else (None, None)
        return functional.batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)

    attributes = {"__doc__": f"``torch.nn.{theirs.__name__}``.", "__module__": __name__, "forward": forward}
    return type(theirs.__name__, (theirs,), attributes)


BatchNorm1d = _batch_norm(torch.nn.BatchNorm1d)
BatchNorm2d = _batch_norm(torch.nn.BatchNorm2d)
BatchNorm3d = _batch_norm(torch.nn.BatchNorm3d)


def _instance_norm(theirs: Any) -> Any:
    """Return a subclass of a PyTorch InstanceNorm class."""

    def apply(self: Any, input: Tensor) -> Tensor:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        statistics = self.running_mean, self.running_var, self.weight, self.bias
        return functional.instance_norm(input, *statistics, by_input, momentum, self.eps)

    attributes = {"__doc__": f"``torch.nn.{theirs.__name__}``.", "__module__": __name__, "_apply_instance_norm": apply}
    return type(theirs.__name__, (theirs,), attributes)


InstanceNorm1d = _instance_norm(torch.nn.InstanceNorm1d)
InstanceNorm2d = _instance_norm(torch.nn.InstanceNorm2d)
InstanceNorm3d = _instance_norm(torch.nn.InstanceNorm3d)


#: Classes of this module by the PyTorch class that they replace.
OURS: dict[type, type] = {
    ours.__bases__[0]: ours
    for ours in list(globals().values())
    if isinstance(ours, type) and ours.__module__ == __name__ and ours is not FastGELU
}
