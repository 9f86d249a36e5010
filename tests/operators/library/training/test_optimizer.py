"""Steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import optimizer
from tests.cases.table import GRID, INVALID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    torch,
    wide,
)

#: The lists of aclnnFusedAdam that a step changes.
FUSED = ("paramsRef", "gradsRef", "expAvgsRef", "expAvgSqsRef", "maxExpAvgSqsRef")
STEP = {
    "lr": 0.125,
    "beta1": 0.75,
    "beta2": 0.5,
    "weightDecay": 0.25,
    "eps": 0.0625,
    "amsgrad": True,
    "maximize": True,
}
#: Those of aclnnApplyAdamW, each in a tensor.
NUMBERS = {
    "beta1Power": 0.5625,
    "beta2Power": 0.25,
    **{name: STEP[name] for name in ("lr", "weightDecay", "beta1", "beta2", "eps")},
}
PLAIN_NUMBERS = {
    **{name: NUMBERS[name] for name in ("beta1Power", "beta2Power", "lr", "beta1", "beta2")},
    "epsilon": STEP["eps"],
}


def _adam(a: Mapping[str, Any]) -> Any:
    """A step of PyTorch's own optimiser from that state, on the negative gradient."""
    state = [wide(a[name]) for name in ("varRef", "mRef", "vRef", "maxGradNormOptionalRef")]
    torch.optim._functional.adamw(
        *([tensor] for tensor in (state[0], wide(a["grad"]), *state[1:], a["step"].float().reshape(()))),
        foreach=False, amsgrad=True, beta1=0.75, beta2=0.5, lr=0.125, weight_decay=0.25, eps=0.0625, maximize=True,
    )  # fmt: skip
    return tuple(state)


def _adam_by_numbers(a: Mapping[str, Any]) -> Any:
    """The document's formula, on the negative gradient; vRef is not the larger one, as in the kernel's source."""
    var, m, v, largest, gradient = (
        a[name].double() for name in ("varRef", "mRef", "vRef", "maxGradNormOptional", "grad")
    )
    power1, power2, rate, decay, beta1, beta2, epsilon = (a[name].double() for name in NUMBERS)
    m, v = beta1 * m - (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
    mean, square = m / (1 - power1 * beta1), torch.maximum(v, largest) / (1 - power2 * beta2)
    return var - rate * (mean / (square.sqrt() + epsilon) + decay * var), m, v


def _plain(a: Mapping[str, Any]) -> Any:
    """The document's formula, a step ahead."""
    var, m, v, gradient = (a[name].double() for name in ("varRef", "m", "v", "grad"))
    power1, power2, rate, beta1, beta2, epsilon = (a[name].double() for name in PLAIN_NUMBERS)
    m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
    ahead = beta1 * m + (1 - beta1) * gradient
    return var - rate * (1 - power2).sqrt() / (1 - power1) * ahead / (v.sqrt() + epsilon), m, v


def _fused(a: Mapping[str, Any]) -> Any:
    lists = [[wide(x) for x in a[name]] for name in FUSED]
    steps = [x.reshape(()) + 1 for x in a["stateSteps"]]
    torch._fused_adam_(
        *lists, steps, lr=0.125, beta1=0.75, beta2=0.5, weight_decay=0.25, eps=0.0625, amsgrad=True, maximize=True,
        grad_scale=a["gradScaleOptional"], found_inf=a["foundInfOptional"],
    )  # fmt: skip
    return [x for each in lists for x in each]


SGD = ("paramsRef", "gradsRef", "momentumBufferListOptionalRef")
SGD_STEP: Arguments = {"weightDecay": 0.25, "momentum": 0.5, "lr": 0.125, "dampening": 0.25}
SGD_STEP |= {"nesterov": False, "maximize": True, "isFirstStep": False}


def _sgd(a: Mapping[str, Any]) -> Any:
    lists = [[wide(x) for x in a[name] or ()] for name in SGD]
    torch._fused_sgd_(
        *lists, weight_decay=a["weightDecay"], momentum=a["momentum"], lr=a["lr"], dampening=a["dampening"],
        nesterov=a["nesterov"], maximize=a["maximize"], is_first_step=a["isFirstStep"],
        grad_scale=a["gradScaleOptional"],
    )  # fmt: skip
    return [x for each in lists for x in each]


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "amp_update_scale": lambda d: (
        {name: T(d, (1,)) for name in ("currentScale", "foundInf", "updatedScale")}
        | {name: T(D.INT32, (1,)) for name in ("growthTracker", "updatedGrowthTracker")}
        | {"growthFactor": 2.0, "backoffFactor": 0.5, "growthInterval": 1}
    ),
    "apply_adam": lambda d: (
        {name: T(D.FLOAT, (1,)) for name in PLAIN_NUMBERS} | {"useLocking": False, "useNesterov": True}
    ),
    "apply_adam_w": lambda d: {name: T(d, (1,)) for name in NUMBERS} | {"amsgrad": True, "maximize": True},
    "apply_adam_w_v2": lambda d: STEP | {"step": T(D.FLOAT, (1,))},
    "fused_adam": lambda d: (
        {name: (T(d, GRID), T(d, (4,))) for name in FUSED}
        | {"stateSteps": (T(D.FLOAT, ()), T(D.FLOAT, (1,)))}
        | {name: T(D.FLOAT, (1,)) for name in ("gradScaleOptional", "foundInfOptional")}
        | STEP
    ),
    "fused_sgd": lambda d: (
        {name: (T(d, GRID), T(d, (4,))) for name in SGD} | {"gradScaleOptional": T(D.FLOAT, (1,))} | SGD_STEP
    ),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "amp_update_scale": lambda a: (a["currentScale"] * 0.5, torch.zeros(1)),
    "apply_adam": _plain,
    "apply_adam_w": _adam_by_numbers,
    "apply_adam_w_v2": lambda a: _adam(a),
    "fused_adam": lambda a: _fused(a),
    "fused_sgd": lambda a: _sgd(a),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "amp_update_scale": {
        name: {"shape": (1,)}
        for name in ("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker")
    },
    "apply_adam": {name: {"shape": (1,)} for name in PLAIN_NUMBERS},
    "apply_adam_w": {name: {"shape": (1,)} for name in NUMBERS},
    "apply_adam_w_v2": {"step": {"shape": (1,)}},
    "fused_adam": {name: (T(D.FLOAT, (0, 3)),) for name in FUSED}
    | {"stateSteps": (T(D.FLOAT, (1,)),), "gradScaleOptional": None, "foundInfOptional": None},
    "fused_sgd": {name: (T(D.FLOAT, (0, 3)),) for name in SGD},
}

BREAKS: Mapping[str, Breaking] = {
    "as many as in paramsRef": lambda o, name: Break({name: (T(D.FLOAT, GRID),)}, "2 elements"),
    "same data type as varRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same shape as varRef": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "same data type as currentScale": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "0 or more": lambda o, name: Break({name: -1.0}, "0 or more"),
    "a momentum and no dampening": lambda o, name: Break({name: True}, "dampening 0"),
    "by momentumBufferListOptionalRef": lambda o, name: Break({name: 0.0}, "more than 0"),
    "as varRef, with amsgrad": lambda o, name: Break({name: None}, "an object with amsgrad"),
}


NOT_NEGATIVE = (
    *("v", "vRef", "maxGradNormOptional", "maxGradNormOptionalRef", "step"),
    *("expAvgSqsRef", "maxExpAvgSqsRef", "stateSteps"),
)


def numbers(operator: str, name: str, array: Array) -> Array:
    if operator.startswith("fused") and name.endswith("Optional"):
        return np.full(array.shape, 2.5 if name == "gradScaleOptional" else 0)
    if operator in ("apply_adam", "apply_adam_w") and name in NUMBERS | PLAIN_NUMBERS:
        return np.full(array.shape, (NUMBERS | PLAIN_NUMBERS)[name])
    return np.abs(array) if name in NOT_NEGATIVE else array


class TestOptimizer(LibraryTests):
    subject = Subject(
        tuple(each for each in optimizer.OPERATORS if each.name != "apply_adam"),
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        default=TRAINED,
        numbers=numbers,
    )


def _on_950(expected: str, change: Callable[[str], Mapping[str, Any]]) -> Breaking:
    return lambda o, name: Break(change(name), expected, product=Product.ASCEND_950)


class TestPlainAdam(LibraryTests):
    """aclnnApplyAdam, which CANN generates."""

    subject = Subject(
        (BY_NAME["apply_adam"],),
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks={
            "present": _on_950("an object", lambda name: {name: None}),
            "kernel of the product": lambda o, name: Break({}, "one with a kernel"),
            "data types that go together": _on_950("ACL_FLOAT", lambda name: dtype(D.INT8, name)),
            "format that counts as ND": _on_950(
                "ACL_FORMAT_ND", lambda name: {name: {"format": Format.FORMAT_FRACTAL_NZ}}
            ),
            "same shape as varRef": _on_950("shape [2, 3]", lambda name: shape((3, 2), name)),
            "one element": _on_950("one element", lambda name: shape((2,), name)),
        },
        default=TRAINED,
        numbers=numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


def test_plain_adam_takes_pytorchs_steps() -> None:
    """Without a look ahead; epsilon is added before the correction."""
    random = np.random.default_rng(0)
    state = {name: random.normal(size=4).astype(np.float32) for name in ("varRef", "m", "grad")}
    state["v"] = np.full(4, 0.5, np.float32)
    call = state | {name: np.full(1, number, np.float32) for name, number in PLAIN_NUMBERS.items()}
    call |= {"beta1Power": np.full(1, 0.75**3, np.float32), "beta2Power": np.full(1, 0.5**3, np.float32)}
    found = computed("apply_adam", call | {"useLocking": True, "useNesterov": False}, Product.ASCEND_950)
    var, m, v, gradient = (torch.from_numpy(state[name]).double() for name in ("varRef", "m", "v", "grad"))
    torch.optim._functional.adam(
        [var], [gradient], [m], [v], [], [torch.tensor(2.0)], foreach=False, amsgrad=False, beta1=0.75, beta2=0.5,
        lr=0.125, weight_decay=0, eps=0.0625 / (1 - 0.5**3) ** 0.5, maximize=False,
    )  # fmt: skip
    for name, expected in (("varRef", var), ("m", m), ("v", v)):
        np.testing.assert_allclose(found[name], expected, 1e-6)


def test_a_step_with_an_infinite_gradient_leaves_everything() -> None:
    def vector(value: float) -> Placed:
        return Placed(np.full(3, value, np.float32), "contiguous")

    lists = {name: vector(at) for at, name in enumerate(FUSED, 1)}
    call = STEP | {name: (each.tensor,) for name, each in lists.items()}
    call |= {
        "stateSteps": (vector(4).tensor,),
        "gradScaleOptional": vector(2).tensor,
        "foundInfOptional": vector(1).tensor,
    }
    prepare(BY_NAME["fused_adam"], call, Product.ASCEND_950).run()
    assert [each.view[0] for each in lists.values()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("flags", "scale", "buffered"),
    [
        ({"isFirstStep": True}, 2.0, True),
        ({"nesterov": True, "dampening": 0.0}, None, True),
        ({"momentum": 0.0, "maximize": False}, None, False),
    ],
    ids=["first", "nesterov", "plain"],
)
def test_gradients_are_descended_with_and_without_momentum(
    flags: Mapping[str, Any], scale: float | None, buffered: bool
) -> None:
    random = np.random.default_rng(4)
    lists = {name: [random.normal(size=of).astype(np.float32) for of in ((2, 3), (0,), (4,))] for name in SGD}
    scales = None if scale is None else np.array([scale], np.float32)
    call = SGD_STEP | flags
    given = {name: [torch.tensor(x) for x in lists[name]] for name in SGD[: 2 + buffered]}
    wanted = _sgd({SGD[2]: ()} | call | given | {"gradScaleOptional": None if scales is None else torch.tensor(scales)})
    placed = {name: [Placed(x, "contiguous") for x in arrays] for name, arrays in lists.items()}
    tensors: dict[str, Any] = {name: tuple(each.tensor for each in views) for name, views in placed.items()}
    tensors |= {} if buffered else {SGD[2]: None}
    tensors["gradScaleOptional"] = None if scales is None else Placed(scales, "contiguous").tensor
    prepare(BY_NAME["fused_sgd"], call | tensors, Product.ATLAS_A2).run()
    found = [each.view for name in SGD[: 2 + buffered] for each in placed[name]]
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
