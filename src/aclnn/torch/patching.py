"""Replacement of a model's PyTorch modules, and its reversal."""

from __future__ import annotations

from typing import TypeVar

from aclnn.torch import nn
from aclnn.torch.registration import torch

Model = TypeVar("Model")

_THEIRS = {ours: theirs for theirs, ours in nn.OURS.items()}


def patch(model: Model) -> Model:
    """Make a model's modules compute with these operators, in place, if ``aclnn.torch.nn`` extends their classes.

    These are activations such as SiLU, GELU and PReLU, Softmax and LogSoftmax, LayerNorm, RMSNorm, GroupNorm,
    BatchNorm1d to 3d and InstanceNorm1d to 3d. Each module remains the same object with the same parameters, hooks and
    state dict; only its class changes. Subclasses of these classes, modules with a ``forward`` of their own, and
    functions that the model calls directly (``F.gelu``) are not affected.

    Returns:
        The model.

    Raises:
        TypeError: the argument is not a ``torch.nn.Module``.
    """
    return _swap("patch", model, nn.OURS)


def unpatch(model: Model) -> Model:
    """Undo ``patch``: restore the PyTorch class of every patched module, in place.

    Returns:
        The model.

    Raises:
        TypeError: the argument is not a ``torch.nn.Module``.
    """
    return _swap("unpatch", model, _THEIRS)


def _swap(function: str, model: Model, classes: dict[type, type]) -> Model:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{function}(): model: expected a torch.nn.Module, got {type(model).__qualname__}")
    for module in model.modules():
        if "forward" not in vars(module):  # an instance attribute overrides the class's forward
            module.__class__ = classes.get(type(module), type(module))
    return model
