"""Swapping a model's PyTorch modules for ours, and back."""

from __future__ import annotations

from typing import TypeVar

from aclnn.torch import nn
from aclnn.torch.registration import torch

Model = TypeVar("Model")

_THEIRS = {ours: theirs for theirs, ours in nn.OURS.items()}


def patch(model: Model) -> Model:
    """Make a model's modules of the classes that ``aclnn.torch.nn`` extends compute with our operators, in place.

    Those are activations such as SiLU, GELU and PReLU, Softmax and LogSoftmax, LayerNorm, RMSNorm, GroupNorm,
    BatchNorm1d to 3d and InstanceNorm1d to 3d. Each module stays the same object with the same parameters, hooks and
    state dict; only its class changes. Subclasses of those modules, modules with a ``forward`` of their own, and
    functions that a model calls itself (``F.gelu``), are left alone.

    Returns:
        The model.

    Raises:
        TypeError: it is no ``torch.nn.Module``.
    """
    return _swap("patch", model, nn.OURS)


def unpatch(model: Model) -> Model:
    """Undo ``patch``: give every module of ours its PyTorch class back, in place.

    Returns:
        The model.

    Raises:
        TypeError: it is no ``torch.nn.Module``.
    """
    return _swap("unpatch", model, _THEIRS)


def _swap(function: str, model: Model, classes: dict[type, type]) -> Model:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{function}(): model: expected a torch.nn.Module, got {type(model).__qualname__}")
    for module in model.modules():
        if "forward" not in vars(module):  # an instance's own forward would still run
            module.__class__ = classes.get(type(module), type(module))
    return model
