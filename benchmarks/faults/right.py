"""Correct results of different implementations."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from aclnn.verify import check
from benchmarks.faults import Array
from benchmarks.faults.elements import SINGLE, SUBJECTS, Given, given, is_gradient
from benchmarks.implementations import implementations


def clean() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield correct results: the implementation, the subject, and a function that diagnoses them."""
    for index, subject in enumerate(SUBJECTS):
        g = given(index)
        assessed = partial(check, subject.operator, g.inputs, **subject.attributes)
        yield "aclnn", subject.label, partial(assessed, g.right)
        yield "correctly rounded", subject.label, lambda g=g, j=assessed: j(g.rounded(g.exact))
        # At x = ±3, which occur in 16 bits, PyTorch's and JAX's hardswish have other derivatives, a planted fault.
        elsewhere = subject.operator != "hardswish_backward" or subject.dtype == SINGLE
        if subject.operator in ("silu_backward", "gelu_backward_v2", "hardswish_backward"):
            found = implementations(subject.operator)
            for who, label in (("literal, float32", "NumPy, float32"), ("PyTorch", "PyTorch")):
                if who in found and (elsewhere or who != "PyTorch"):
                    actual = partial(found[who], **g.inputs, **subject.attributes)
                    yield label, subject.label, lambda j=assessed, a=actual: j(np.asarray(a()))
        elif importlib.util.find_spec("torch"):
            yield "PyTorch", subject.label, lambda j=assessed, g=g: j(_torch(g))
        if importlib.util.find_spec("jax") and elsewhere:
            yield "JAX, float32 inside", subject.label, lambda j=assessed, g=g: j(_jax(g))


def _torch(g: Given) -> Array:
    import torch

    from benchmarks.implementations import _array, _tensor

    aten, t = torch.ops.aten, [_tensor(v) for v in g.inputs.values()]
    a = g.subject.attributes
    made = {
        "mish_backward": lambda: aten.mish_backward(t[0], t[1]),
        "elu_backward": lambda: aten.elu_backward(t[0], a["alpha"], 1.0, 1.0, False, t[1]),
        "softplus_backward": lambda: aten.softplus_backward(t[0], t[1], a["beta"], a["threshold"]),
        "silu": lambda: aten.silu(t[0]),
        "gelu_v2": lambda: aten.gelu(t[0], approximate="tanh"),
        "sigmoid_backward": lambda: aten.sigmoid_backward(t[0], t[1]),
    }[g.subject.operator]()
    return np.asarray(_array(made))


def _jax(g: Given) -> Array:
    import jax

    a, nn = g.subject.attributes, jax.nn
    forward = {
        "silu": nn.silu,
        "gelu": nn.gelu,
        "hardswish": nn.hard_swish,
        "mish": nn.mish,
        "elu": lambda x: nn.elu(x, a["alpha"]),
        "softplus": lambda x: nn.softplus(a["beta"] * x) / a["beta"],
        "sigmoid": nn.sigmoid,
    }[g.subject.operator.split("_")[0]]
    # In 16 bits JAX rounds every step, a planted fault.
    operands = [jax.numpy.asarray(v.astype(np.float32)) for v in g.inputs.values()]
    dy, x = operands[0], operands[-1]
    if g.subject.operator == "sigmoid_backward":  # x is the forward result
        result = dy * x * (1 - x)
    elif is_gradient(g.subject):
        (result,) = jax.vjp(forward, x)[1](dy)
    else:
        result = forward(x)
    return g.rounded(result)
