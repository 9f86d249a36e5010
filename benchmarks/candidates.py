"""Implementations under test: the activations and their gradients in aclnn and in PyTorch, on one thread."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from benchmarks.references import EVERY, FORWARDS, Array
from benchmarks.tensors import numpy_of, torch_of


class Candidate(Protocol):
    """An implementation of one of ``EVERY``."""

    def __call__(self, x: Array, dy: Array | None = None) -> Array:
        """Compute f(x), or dy·f(x) for derivatives with dy = 1 by default, over flat arrays of one data type."""


def ours(name: str) -> Candidate:
    @cache
    def plan(dtype: np.dtype[Any], size: int) -> kernels.Plan:
        layout = Layout(DataType.of_numpy(dtype), (size,), (1,))
        forward = name in FORWARDS
        formula = EVERY[name] if forward else Gradient(EVERY[name])
        return kernels.elementwise(formula, (layout,) * (1 if forward else 2), (layout,))

    def run(x: Array, dy: Array | None = None) -> Array:
        inputs, out = [x] if name in FORWARDS else [np.ones_like(x) if dy is None else dy, x], np.empty_like(x)
        plan(x.dtype, x.size).run([array.ctypes.data for array in inputs], [out.ctypes.data], 0)
        return out

    return run


def pytorch(name: str) -> Candidate | None:
    """Return PyTorch's implementation, composed for FastGELU; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    aten = torch.ops.aten

    def fast_gelu(dy: Any, x: Any) -> Any:
        s = torch.sigmoid(1.702 * x)
        return dy * (s * (1 + 1.702 * x * (1 - s)))

    forwards: dict[str, Any] = {
        "silu_forward": aten.silu,
        "fast_gelu_forward": lambda x: x * torch.sigmoid(1.702 * x),
        "gelu_erf_forward": aten.gelu,
        "gelu_tanh_forward": lambda x: aten.gelu(x, approximate="tanh"),
        "hardswish_forward": aten.hardswish,
    }
    gradients: dict[str, Any] = {
        "silu": aten.silu_backward,
        "fast_gelu": fast_gelu,
        "gelu_erf": aten.gelu_backward,
        "gelu_tanh": lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"),
        "hardswish": aten.hardswish_backward,
    }

    def run(x: Array, dy: Array | None = None) -> Array:
        tensor = torch_of(x)
        if name in forwards:
            return numpy_of(forwards[name](tensor))
        return numpy_of(gradients[name](torch.ones_like(tensor) if dy is None else torch_of(dy), tensor))

    return run


def candidates(name: str) -> dict[str, Candidate]:
    """Return the installed implementations by label."""
    found = {"aclnn": ours(name), "pytorch": pytorch(name)}
    return {label: candidate for label, candidate in found.items() if candidate is not None}
