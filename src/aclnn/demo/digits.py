"""Training on the handwritten digits of scikit-learn, with a backward pass that uses the five gradients.

The network: 64 pixels → linear → LayerNorm → activation → linear → 10 digits, float32, softmax and cross-entropy,
Adam. NumPy computes the forward pass and the matrix products; the gradients of the activation and of the LayerNorm are
operator calls through the two-phase interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclnn.demo.program import Program
from aclnn.operators import BY_NAME
from aclnn.operators.layer_norm import LAYER_NORM_BACKWARD
from aclnn.support.optional import import_or_raise
from aclnn.typing import Array

SEED = 2024
EPOCHS = 30
_BATCH = 64
_HIDDEN = 128
_LEARNING_RATE = 2e-3
_EPS = 1e-5


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: Array) -> Array:
    result: Array = import_or_raise("scipy.special", "demo").erf(x)
    return result


@dataclass(frozen=True)
class Activation:
    """An activation's forward function, and the operator of its gradient."""

    title: str
    forward: Callable[[Array], Array]
    operator: str
    approximate: str | None = None

    def backward(self, program: Program, dy: Array, x: Array) -> Array:
        """Return the loss gradient with respect to ``x``, given that with respect to the activation's output."""
        dx = np.empty_like(x)
        arguments: dict[str, Any] = {"gradOutput": dy, "self": x}
        if self.approximate is not None:
            arguments["approximate"] = self.approximate
        operator = BY_NAME[self.operator]
        program.call(operator, arguments | {operator.outputs[0].name: dx})
        return dx


ACTIVATIONS = (
    Activation("fast_gelu", lambda x: x * _sigmoid(1.702 * x), "fast_gelu_backward"),
    Activation("silu", lambda x: x * _sigmoid(x), "silu_backward"),
    Activation("gelu none", lambda x: 0.5 * x * (1.0 + _erf(x * np.sqrt(0.5))), "gelu_backward_v2", "none"),
    Activation(
        "gelu tanh",
        lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
        "gelu_backward_v2",
        "tanh",
    ),
    Activation("hardswish", lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0, "hardswish_backward"),
)


@dataclass(frozen=True)
class Digits:
    """8×8 scans of digits with pixels from 0 to 1, and their labels, for training and test."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


def load_digits() -> Digits:
    """Load the 1,797 scans of scikit-learn and split off a stratified quarter for the test."""
    scans = import_or_raise("sklearn.datasets", "demo").load_digits()
    split = import_or_raise("sklearn.model_selection", "demo").train_test_split
    pixels = (scans.data / 16.0).astype(np.float32)
    parts = split(pixels, scans.target, test_size=0.25, stratify=scans.target, random_state=SEED)
    return Digits(parts[0], parts[2], parts[1], parts[3])


@dataclass(frozen=True)
class Training:
    """Results of one training run."""

    activation: str
    test_accuracy: float
    seconds: float
    operator_calls: int
    losses: tuple[float, ...]
    """Mean cross-entropy over the training scans, by epoch."""


def train(program: Program, activation: Activation, digits: Digits, epoch_done: Callable[[], None]) -> Training:
    """Train a network; initial weights and the order of scans do not depend on the activation."""
    begin, calls = time.perf_counter(), program.calls
    random = np.random.default_rng(SEED)
    network = _Network(random, program, activation)
    losses = []
    for _ in range(EPOCHS):
        order = random.permutation(len(digits.train_x))
        # Batches of nearly equal size: after a short last batch, on which Adam takes a full step, the loss would jump.
        batches = np.array_split(order, -(-len(order) // _BATCH))
        sums = [network.step(digits.train_x[batch], digits.train_y[batch]) for batch in batches]
        losses.append(sum(sums) / len(order))
        epoch_done()
    accuracy = float(np.mean(network.logits(digits.test_x).argmax(1) == digits.test_y))
    return Training(activation.title, accuracy, time.perf_counter() - begin, program.calls - calls, tuple(losses))


class _Network:
    """Parameters by name, with their Adam moments."""

    def __init__(self, random: np.random.Generator, program: Program, activation: Activation) -> None:
        self._program = program
        self._activation = activation
        self._parameters = {
            "w1": _scaled(random, 64, _HIDDEN),
            "b1": np.zeros(_HIDDEN, np.float32),
            "gain": np.ones(_HIDDEN, np.float32),
            "bias": np.zeros(_HIDDEN, np.float32),
            "w2": _scaled(random, _HIDDEN, 10),
            "b2": np.zeros(10, np.float32),
        }
        self._moments = {name: (np.zeros_like(p), np.zeros_like(p)) for name, p in self._parameters.items()}
        self._steps = 0

    def logits(self, x: Array) -> Array:
        """Compute logits: (B, 64) → (B, 10)."""
        return self._forward(x)[-1]

    def _forward(self, x: Array) -> tuple[Array, ...]:
        p = self._parameters
        z = x @ p["w1"] + p["b1"]
        mean = z.mean(1, keepdims=True)
        rstd = 1.0 / np.sqrt(z.var(1, keepdims=True) + np.float32(_EPS))
        h = (z - mean) * rstd * p["gain"] + p["bias"]
        a = self._activation.forward(h).astype(np.float32)
        return z, mean, rstd, h, a, a @ p["w2"] + p["b2"]

    def step(self, x: Array, y: Array) -> float:
        """Take one step on a batch, (B, 64) pixels and B labels, and return the summed loss before the step."""
        z, mean, rstd, h, a, logits = self._forward(x)
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        probability = shifted / shifted.sum(1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(-np.log(probability[rows, y]).sum())
        probability[rows, y] -= 1.0
        d_logits = probability / np.float32(len(y))
        d_h = self._activation.backward(self._program, d_logits @ self._parameters["w2"].T, h)
        d_z, d_gain, d_bias = self._layer_norm_backward(d_h, z, mean, rstd)
        gradients = {
            "w1": x.T @ d_z,
            "b1": d_z.sum(0),
            "gain": d_gain,
            "bias": d_bias,
            "w2": a.T @ d_logits,
            "b2": d_logits.sum(0),
        }
        self._update(gradients)
        return loss

    def _layer_norm_backward(self, dy: Array, x: Array, mean: Array, rstd: Array) -> tuple[Array, Array, Array]:
        gain, bias = self._parameters["gain"], self._parameters["bias"]
        results = np.empty_like(x), np.empty_like(gain), np.empty_like(bias)
        arguments = {
            "gradOut": dy,
            "input": x,
            "normalizedShape": (_HIDDEN,),
            "mean": mean,
            "rstd": rstd,
            "weightOptional": gain,
            "biasOptional": bias,
            "outputMask": (True, True, True),
        }
        names = [output.name for output in LAYER_NORM_BACKWARD.outputs]
        self._program.call(LAYER_NORM_BACKWARD, arguments | dict(zip(names, results, strict=True)))
        return results

    def _update(self, gradients: dict[str, Array]) -> None:
        """Update the parameters by Adam with the usual decay rates, 0.9 and 0.999."""
        self._steps += 1
        correction = np.sqrt(1.0 - 0.999**self._steps) / (1.0 - 0.9**self._steps)
        for name, gradient in gradients.items():
            first, second = self._moments[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient * gradient - second)
            step = _LEARNING_RATE * correction * first / (np.sqrt(second) + 1e-8)
            self._parameters[name] -= step.astype(np.float32)


def _scaled(random: np.random.Generator, fan_in: int, fan_out: int) -> Array:
    weights: Array = random.standard_normal((fan_in, fan_out)) * np.sqrt(2.0 / fan_in)
    return weights.astype(np.float32)
