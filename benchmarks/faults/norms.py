"""Faults of norms' gradients, which have formulas over rows, statistics among their inputs, and sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from aclnn.operators import BY_NAME, function_of
from aclnn.verify.number_formats import FORMATS
from benchmarks import faults
from benchmarks.faults import Array, Result

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Norm:
    """An operator with float32 inputs and attributes."""

    operator: str
    inputs: Inputs
    attributes: dict[str, Any]

    def run(self, **changed: Array) -> list[Array]:
        """Compute all results by this project's kernels, with some inputs changed."""
        made = function_of(BY_NAME[self.operator])(**{**self.inputs, **changed}, **self.attributes)
        return [np.array(result) for result in made]


@cache
def norms() -> dict[str, Norm]:
    """Return the operators by name."""
    rng = np.random.default_rng(4)

    def normal(*shape: int, mean: float = 0.0) -> Array:
        return rng.normal(mean, size=shape).astype(np.float32)

    def rstd(variance: Array) -> Array:
        return (1.0 / np.sqrt(variance + 1e-5)).astype(np.float32)

    x = normal(64, 96)
    statistics = {
        "mean": x.mean(1, np.float64).astype(np.float32)[:, None],
        "rstd": rstd(x.var(1, np.float64))[:, None],
    }
    layer = {"grad_out": normal(64, 96), "input": x, **statistics, "weight": normal(96)}
    x = normal(256, 96, mean=0.5)
    scale = rstd(np.square(x, dtype=np.float64).mean(1, keepdims=True))
    root = {"grad_out": normal(256, 96), "input": x, "rstd": scale, "weight": normal(96)}
    x = normal(8, 32, 8, 8, mean=0.3)
    mean, deviation = x.mean((0, 2, 3), np.float64).astype(np.float32), rstd(x.var((0, 2, 3), np.float64))
    statistics = {"save_mean": mean, "save_invstd": deviation}
    batch = {"grad_out": normal(8, 32, 8, 8, mean=0.3), "input": x, "weight": normal(32), **statistics}
    return {
        "layer_norm_backward": Norm("layer_norm_backward", layer, {"normalized_shape": [96]}),
        "rms_norm_grad": Norm("rms_norm_grad", root, {}),
        "batch_norm_backward": Norm(
            "batch_norm_backward", batch, {"training": True, "eps": 1e-5, "output_mask": [True] * 3}
        ),
    }


@dataclass(frozen=True)
class Fault:
    """A fault to plant in one result of a norm, its cause, and words required in the cause's text."""

    name: str
    norm: str
    output: int
    cause: str
    plant: Callable[[Norm, int], Array]
    """Function from the norm and the index of a result to the faulty result."""
    said: str = ""

    @property
    def subject(self) -> str:
        """Name of the operator and its result."""
        return f"{self.norm} {BY_NAME[self.norm].outputs[self.output].python_name}"


def cases() -> list[Fault]:
    """Return every fault of every norm."""
    layer, root, batch = norms()
    but_statistics = "inputs in bfloat16, statistics of those in float32"
    given = ("grad_out", "input", "weight")
    found = [
        *(Fault("inputs and statistics in bfloat16", layer, k, "narrow-input", _inputs(as_bfloat16)) for k in range(3)),
        *(Fault(but_statistics, layer, k, "narrow-input", _inputs(as_bfloat16, *given)) for k in range(3)),
        *(
            Fault(but_statistics, root, k, "narrow-input", _inputs(as_bfloat16, *given), "the inputs but rstd were")
            for k in range(2)
        ),
        Fault("x in bfloat16", root, 1, "narrow-input", _inputs(as_bfloat16, "input"), "input was rounded to bfloat16"),
        Fault("weight left out", layer, 0, "wrong-input", _inputs(np.ones_like, "weight")),
        Fault("eps 0.01 too large", layer, 0, "scaled-input", _inputs(lambda r: r / np.sqrt(1 + 0.01 * r * r), "rstd")),
        Fault("rstd times 1.01", root, 0, "scaled-input", _inputs(_scaled, "rstd"), "rstd 1.01 times the given one"),
        Fault("rstd times 1.01", batch, 0, "scaled-input", _inputs(_scaled, "save_invstd"), "save_invstd 1.01 times"),
        Fault("mean off by 0.02", layer, 1, "shifted-input", _inputs(_shifted, "mean"), "mean off by 0.02"),
        *(
            Fault("mean off by 0.02", batch, k, "shifted-input", _inputs(_shifted, "save_mean"), "off by 0.02")
            for k in range(2)
        ),
        Fault("the first half of the rows in dw", layer, 1, "missing-rows", _inputs(_halved, "grad_out"), "of 64 rows"),
        Fault("the first half of the rows in dw", root, 1, "missing-rows", _inputs(_halved, "grad_out"), "of 256 rows"),
        Fault("half of the batch in dw", batch, 1, "missing-rows", _inputs(_halved, "grad_out"), "256 to 511"),
        Fault("db in place of dw", layer, 1, "wrong-operation", lambda norm, _: norm.run()[2]),
        Fault("db a mean", layer, 2, "wrong-operation", lambda norm, k: norm.run()[k] / np.float32(64)),
    ]
    rows = slice(960, 1920)
    for name, cause, change in (
        ("the wrong sign", "sign", np.negative),
        ("rows in reverse", "moved-data", lambda dx: dx[::-1].copy()),
        ("one NaN", "not-finite", partial(_replaced, where=500, by=lambda dx: np.nan)),
        ("a stale stretch", "stale", partial(_replaced, where=rows, by=lambda dx: dx.reshape(-1)[:960])),
        ("the last 960 elements 0", "unwritten", partial(_replaced, where=slice(-960, None), by=lambda dx: 0.0)),
    ):
        for norm in (layer, root, batch):
            found.append(Fault(name, norm, 0, cause, _result(change)))
    return found


def assess(one: Fault) -> Result:
    """Plant a fault and diagnose the result."""
    norm = norms()[one.norm]
    results = norm.run()
    results[one.output] = one.plant(norm, one.output)
    return faults.assess(
        one.name, one.subject, frozenset({one.cause}), one.output, norm.operator, norm.inputs, results, norm.attributes
    )


def _inputs(change: Callable[[Array], Array], *names: str) -> Callable[[Norm, int], Array]:
    """Return a fault that computes a result from changed inputs; without names all are changed."""

    def plant(norm: Norm, output: int) -> Array:
        return norm.run(**{name: change(norm.inputs[name]) for name in names or norm.inputs})[output]

    return plant


def _result(change: Callable[[Array], Array]) -> Callable[[Norm, int], Array]:
    return lambda norm, output: change(norm.run()[output])


def as_bfloat16(values: Array) -> Array:
    """Round values to bfloat16, in float32."""
    return FORMATS["bfloat16"].round(values.astype(np.float64)).astype(np.float32)


def _scaled(values: Array) -> Array:
    return values * np.float32(1.01)


def _shifted(values: Array) -> Array:
    return values + np.float32(0.02)


def _halved(values: Array) -> Array:
    return _replaced(values, slice(values.size // 2, None), lambda _: 0.0)


def _replaced(values: Array, where: Any, by: Callable[[Array], Any]) -> Array:
    made = values.copy()
    made.reshape(-1)[where] = by(values)
    return made
