"""Steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import optimizer
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Array, Break, Breaking, LibraryTests, Subject, torch, wide


def _adam(a: Mapping[str, Any]) -> Any:
    """A step of PyTorch's own optimiser from that state, on the negative gradient."""
    state = [wide(a[name]) for name in ("varRef", "mRef", "vRef", "maxGradNormOptionalRef")]
    torch.optim._functional.adamw(
        *([tensor] for tensor in (state[0], wide(a["grad"]), *state[1:], a["step"].float().reshape(()))),
        foreach=False, amsgrad=True, beta1=0.75, beta2=0.5, lr=0.125, weight_decay=0.25, eps=0.0625, maximize=True,
    )  # fmt: skip
    return tuple(state)


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "amp_update_scale": lambda d: (
        {name: T(d, (1,)) for name in ("currentScale", "foundInf", "updatedScale")}
        | {name: T(D.INT32, (1,)) for name in ("growthTracker", "updatedGrowthTracker")}
        | {"growthFactor": 2.0, "backoffFactor": 0.5, "growthInterval": 1}
    ),
    "apply_adam_w_v2": lambda d: {
        "step": T(D.FLOAT, (1,)),
        "lr": 0.125,
        "beta1": 0.75,
        "beta2": 0.5,
        "weightDecay": 0.25,
        "eps": 0.0625,
        "amsgrad": True,
        "maximize": True,
    },
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "amp_update_scale": lambda a: (a["currentScale"] * 0.5, torch.zeros(1)),
    "apply_adam_w_v2": lambda a: _adam(a),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "amp_update_scale": {
        name: {"shape": (1,)}
        for name in ("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker")
    },
    "apply_adam_w_v2": {"step": {"shape": (1,)}},
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as varRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same shape as varRef": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "same data type as currentScale": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as varRef, with amsgrad": lambda o, name: Break({name: None}, "an object with amsgrad"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) if name in ("vRef", "maxGradNormOptionalRef", "step") else array


class TestOptimizer(LibraryTests):
    subject = Subject(
        optimizer.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        default=TRAINED,
        numbers=numbers,
    )
