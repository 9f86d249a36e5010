"""Losses with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import loss
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    IMAGES,
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

PROBABILITIES = {("binary_cross_entropy", "self")} | {
    (name, "target") for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "kl_div_target")
}


NLL = {"target": T(D.INT64, (2,)), "reduction": 1, "ignoreIndex": -100}

#: Losses of pairs of elements: PyTorch's function, what it takes from a call, what the reduction is called.
PAIRWISE: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "mse_loss": lambda x, a: torch.nn.functional.mse_loss(x, a["target"], reduction=a["reduction"]),
    "l1_loss": lambda x, a: torch.nn.functional.l1_loss(x, a["target"], reduction=a["reduction"]),
    "smooth_l1_loss": lambda x, a: torch.nn.functional.smooth_l1_loss(
        x, a["target"], reduction=a["reduction"], beta=a["beta"]
    ),
    "soft_margin_loss": lambda x, a: torch.nn.functional.soft_margin_loss(x, a["target"], reduction=a["reduction"]),
    "binary_cross_entropy": lambda x, a: torch.nn.functional.binary_cross_entropy(
        x, a["target"], a["weightOptional"], reduction=a["reduction"]
    ),
    "binary_cross_entropy_with_logits": lambda x, a: torch.nn.functional.binary_cross_entropy_with_logits(
        x, a["target"], a["weightOptional"], reduction=a["reduction"], pos_weight=a["posWeightOptional"]
    ),
    # Its mean, of elements, is one that PyTorch warns of.
    "kl_div": lambda x, a: torch.kl_div(x, a["target"], 1, log_target=a["logTarget"]),
}

#: Of three samples with four classes, the classes of each.
LABELLED = (3, 4)
LABELS = np.array([[2, 0, -1, 1], [3, 3, 1, -1], [-1, 2, 2, 0]])

PIXELS = {"target": T(D.INT64, (2, 5, 4))}


def _loss(name: str, a: Mapping[str, Any], leaf: Any = None) -> Any:
    precise = {key: wide(value) if isinstance(value, torch.Tensor) else value for key, value in a.items()}
    more = {"reduction": ("none", "mean", "sum")[a["reduction"]], "target": precise["target"].expand(GRID)}
    return PAIRWISE[name](precise["self"] if leaf is None else leaf, precise | more)


def _slope(name: str, a: Mapping[str, Any]) -> Any:
    leaf = wide(a["self"]).requires_grad_()
    _loss(name, a, leaf).backward(wide(a["gradOutput"]))
    return leaf.grad


def _target_slope(a: Mapping[str, Any]) -> Any:
    leaf = wide(a["target"]).requires_grad_()
    losses = torch.nn.functional.kl_div(wide(a["self"]), leaf.expand(GRID), reduction="none", log_target=a["logTarget"])
    count = {1: losses.numel(), 3: len(losses)}.get(a["reduction"], 1)
    (losses / count).backward(wide(a["gradOutput"]).expand(GRID))
    return leaf.grad


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "softmax_cross_entropy_with_logits": lambda d: {
        **{name: T(d, GRID) for name in ("features", "labels", "backprop")},
        "loss": T(d, GRID[:1]),
    },
    "nll_loss": lambda d: NLL | {"weight": T(d, (3,)), "out": T(d, ()), "totalWeightOut": T(d, ())},
    "nll_loss_backward": lambda d: NLL | {"gradOutput": T(d, ()), "weight": T(d, (3,)), "totalWeight": T(d, (1,))},
    **{
        name: lambda d: {"target": T(d, (3,)), "reduction": 1, "beta": 1.5, "logTarget": False, "out": T(d, ())}
        for name in PAIRWISE
    },
    "binary_cross_entropy_with_logits": lambda d: {"reduction": 1, "out": T(d, ())},
    **{
        f"{name}_backward": lambda d: {"gradOutput": T(d, ()), "reduction": 1, "beta": 1.5, "logTarget": False}
        for name in PAIRWISE
    },
    "kl_div_target_backward": lambda d: {
        "gradOutput": T(d, (2, 1)),
        "target": T(d, (3,)),
        "reduction": 1,
        "logTarget": False,
        "gradTarget": T(d, (3,)),
    },
    "multilabel_margin_loss": lambda d: {
        **{name: T(d, LABELLED) for name in ("self", "isTarget")},
        "target": T(D.INT64, LABELLED),
        "reduction": 1,
        "out": T(d, ()),
    },
    "nll_loss2d": lambda d: (
        NLL | PIXELS | {"self": T(d, IMAGES), "weight": T(d, (4,)), "out": T(d, ()), "totalWeight": T(d, ())}
    ),
    "nll_loss2d_backward": lambda d: (
        NLL
        | PIXELS
        | {name: T(d, IMAGES) for name in ("self", "out")}
        | {"gradOutput": T(d, ()), "weight": T(d, (4,)), "totalWeight": T(d, ())}
    ),
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "softmax_cross_entropy_with_logits": lambda a: (
        -(wide(a["labels"]) * wide(a["features"]).log_softmax(1)).sum(1),
        wide(a["features"]).softmax(1) - wide(a["labels"]),
    ),
    "nll_loss": lambda a: torch.ops.aten.nll_loss_forward(wide(a["self"]), a["target"], wide(a["weight"]), 1, -100),
    "nll_loss_backward": lambda a: torch.ops.aten.nll_loss_backward(
        wide(a["gradOutput"]), wide(a["self"]), a["target"], wide(a["weight"]), 1, -100, wide(a["totalWeight"])[0]
    ),
    **{name: lambda a, name=name: _loss(name, a) for name in PAIRWISE},
    **{f"{name}_backward": lambda a, name=name: _slope(name, a) for name in PAIRWISE},
    "kl_div_target_backward": _target_slope,
    "multilabel_margin_loss": lambda a: torch.ops.aten.multilabel_margin_loss_forward(
        wide(a["self"]), a["target"], a["reduction"]
    ),
    "nll_loss2d": lambda a: torch.ops.aten.nll_loss2d_forward(wide(a["self"]), a["target"], wide(a["weight"]), 1, -100),
    "nll_loss2d_backward": lambda a: torch.ops.aten.nll_loss2d_backward(
        *(wide(a["gradOutput"]), wide(a["self"]), a["target"], wide(a["weight"])),
        *(1, -100, wide(a["totalWeight"])),
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "softmax_cross_entropy_with_logits": {"loss": {"shape": (0,)}},
    "nll_loss": {
        "target": {"shape": (0,)},
        "weight": {"shape": (3,)},
        "reduction": 0,
        "out": {"shape": (0,)},
        "totalWeightOut": {"shape": ()},
    },
    "nll_loss_backward": {
        "target": {"shape": (0,)},
        "weight": {"shape": (3,)},
        "gradOutput": {"shape": ()},
        "totalWeight": {"shape": ()},
    },
    **{name: {"reduction": 0} for name in PAIRWISE},
    "multilabel_margin_loss": {"reduction": 0, "out": {"shape": (0,)}},
    **{
        name: {
            "self": {"shape": (0, 4, 5, 4)},
            "target": {"shape": (0, 5, 4)},
            "weight": {"shape": (4,)},
            "reduction": 0,
            "out": {"shape": (0, 5, 4) if name == "nll_loss2d" else (0, 4, 5, 4)},
            "totalWeight": {"shape": ()},
        }
        | ({"gradOutput": {"shape": (0, 5, 4)}} if name.endswith("backward") else {})
        for name in ("nll_loss2d", "nll_loss2d_backward")
    },
}

INDICES: Mapping[tuple[str, str], int] = {
    ("nll_loss", "target"): 3,
    ("nll_loss_backward", "target"): 3,
    ("nll_loss2d", "target"): 4,
    ("nll_loss2d_backward", "target"): 4,
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as features": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "2 dimensions": lambda o, name: Break(shape((6,), name), "2 dimensions"),
    "same shape as features": lambda o, name: Break(shape((3, 2), name), "[2, 3]"),
    "shape is one for each row of features": lambda o, name: Break(shape((3,), name), "one for each row"),
    "0, 1 or 2": lambda o, name: Break({name: 3}, "0, 1 or 2"),
    "0, 1, 2 or 3": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "pixels and classes": lambda o, name: Break(shape((2, 1, 3), name), "expected"),
    "shape …": lambda o, name: Break(shape((2,), name), "shape []"),
    "samples and classes": lambda o, name: Break(shape((2, 1, 3), name), "expected"),
    "one element, or one a sample": lambda o, name: Break(shape((2,), name), "one element"),
    "classes": lambda o, name: Break(shape((2, 0), name) | shape((0,), "weight"), "classes"),
    "shape of the loss": lambda o, name: Break(shape((2,), name), "shape []"),
    "types of distances": lambda o, name: (
        Break(dtype(D.INT64, "self", "target"), "to average")
        if name == "self"
        else Break(dtype(D.DOUBLE, name), "promotes to a floating-point one")
    ),
    "0 or more": lambda o, name: Break({name: -1.0}, "0 or more"),
    "broadcasts to self": lambda o, name: Break(shape((4, 1, 3), name), "broadcasts to [2, 3]"),
    "broadcasts to the others": lambda o, name: Break(shape((4, 1, 3), name), "broadcasts to"),
    "same data type as target": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same shape as target": lambda o, name: Break(shape((4,), name), "that of target"),
    "(N, C), (C) or (), C not 0": lambda o, name: Break(shape((3, 0), name), "C not 0"),
    "as many labels as classes": lambda o, name: Break(shape((4, 3), name), "[3, 4]"),
    "broadcast shape of all": lambda o, name: Break(shape((1, 2, 3), name), "shape [2, 3]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if (operator, name) == ("multilabel_margin_loss", "target"):
        return LABELS
    if (operator.removesuffix("_backward"), name) not in PROBABILITIES:
        return array
    return np.abs(np.sin(array.astype(np.float64))) * 0.9 + 0.05


class TestLoss(LibraryTests):
    subject = Subject(
        loss.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        indices=INDICES,
        numbers=numbers,
        default=TRAINED,
    )


@pytest.mark.parametrize("first", [-3.0, -np.inf])
def test_an_ignored_sample_may_have_any_logarithm_and_one_of_weight_0_a_finite_one(first: float) -> None:
    """PyTorch gives the same: 0 times an infinity is NaN."""
    rows = np.array([[-0.5, first, -2.0], [-np.inf] * 3, [np.nan] * 3, [-1.0, -3.0, -0.25]], np.float32)
    target, weight = np.array([1, -100, -100, 2], np.int64), np.array([1, 0, 2], np.float32)
    given = {"self": rows, "target": target, "weight": weight, "reduction": 1, "ignoreIndex": -100}
    results = {name: np.zeros((), np.float32) for name in ("out", "totalWeightOut")}
    found = computed("nll_loss", given | results)
    expected = torch.nn.functional.nll_loss(*map(torch.from_numpy, (rows, target, weight)))
    np.testing.assert_array_equal(found["out"], expected.numpy())
    assert found["totalWeightOut"] == 2


@pytest.mark.parametrize("target", [3, -1])
def test_a_nonexistent_class_is_an_error(target: int) -> None:
    """They were ignored, so that training with labels off by one went unnoticed."""
    given = {
        "self": Placed(np.zeros((2, 3), np.float32), "contiguous"),
        "target": Placed(np.array([1, target], np.int64), "contiguous"),
        "weight": Placed(np.ones(3, np.float32), "contiguous"),
        "out": Placed(np.zeros((), np.float32), "contiguous"),
        "totalWeightOut": Placed(np.zeros((), np.float32), "contiguous"),
    }
    call = {name: placed.tensor for name, placed in given.items()} | {"reduction": 1, "ignoreIndex": -100}
    with pytest.raises(AclnnError, match=f"target: expected -100 or classes from 0 to 2, got {target}"):
        prepare(BY_NAME["nll_loss"], call, Product.ATLAS_A2).run()


@pytest.mark.parametrize("reduction", [0, 2, 3])
@pytest.mark.parametrize("log_target", [False, True])
def test_a_targets_gradient_is_of_what_the_reduction_says(reduction: int, log_target: bool) -> None:
    random = np.random.default_rng(2)
    shapes = {"gradOutput": GRID, "self": GRID, "target": (1, 3)}
    given = {name: Placed(random.random(of).astype(np.float32), "contiguous") for name, of in shapes.items()}
    out = Placed(np.zeros((1, 3), np.float32), "contiguous")
    numbers = {"reduction": reduction, "logTarget": log_target}
    call = {name: placed.tensor for name, placed in given.items()} | numbers | {"gradTarget": out.tensor}
    prepare(BY_NAME["kl_div_target_backward"], call, Product.ASCEND_950).run()
    expected = _target_slope({name: torch.from_numpy(placed.view) for name, placed in given.items()} | numbers)
    np.testing.assert_allclose(out.view, expected.numpy(), 1e-6)


@pytest.mark.parametrize(("reduction", "shape"), [(0, (3, 4)), (2, (3, 4)), (0, (4,)), (0, ())])
def test_margins_of_one_sample_or_several(reduction: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    labels = LABELS[: len(x)] if x.ndim == 2 else LABELS[0] if shape else np.array(0)
    out = np.zeros(shape[:1] if x.ndim == 2 and not reduction else (), np.float32)
    given = {"self": x, "target": labels, "out": out, "isTarget": np.zeros_like(x)}
    placed = {name: Placed(array, "contiguous") for name, array in given.items()}
    call = {name: each.tensor for name, each in placed.items()} | {"reduction": reduction}
    prepare(BY_NAME["multilabel_margin_loss"], call, Product.ASCEND_950).run()
    expected = torch.ops.aten.multilabel_margin_loss_forward(
        torch.from_numpy(np.array(x)).double(), torch.from_numpy(np.array(labels)), reduction
    )
    for name, wanted in zip(("out", "isTarget"), expected, strict=True):
        np.testing.assert_allclose(placed[name].view, wanted.numpy(), 1e-6, err_msg=name)


def test_a_label_beyond_the_classes_is_an_error() -> None:
    given = {"self": np.zeros(2, np.float32), "target": np.array([0, 2]), "out": np.zeros((), np.float32)}
    placed = {name: Placed(array, "contiguous") for name, array in (given | {"isTarget": given["self"]}).items()}
    call = {name: each.tensor for name, each in placed.items()} | {"reduction": 0}
    with pytest.raises(AclnnError, match="target: expected classes from -1 to 1, got 2"):
        prepare(BY_NAME["multilabel_margin_loss"], call, Product.ATLAS_A2).run()


def test_a_negative_probability_has_no_divergence() -> None:
    """It counted as 0 inside the logarithm and as itself outside."""
    x, target = np.array([0.1, -np.inf, 0.3], np.float32), np.array([-1, 0, 1], np.float32)
    self = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.kl_div(self, torch.tensor(target), reduction="none")
    call = {"self": x, "target": target, "reduction": 0, "logTarget": False, "out": np.zeros_like(x)}
    np.testing.assert_allclose(computed("kl_div", call)["out"], expected.detach(), rtol=1e-6)
    expected.nansum().backward()
    found = computed("kl_div_backward", call | {"gradOutput": np.ones(3, np.float32)})["out"]
    np.testing.assert_array_equal(found, -target)


def test_distances_of_integers_are_exact() -> None:
    """Integers were rejected."""
    x, y = np.array([2**60 + 1, -5]), np.array([0, 4], np.int32)
    for reduction, out, expected in ((0, np.zeros(2, np.int64), [2**60 + 1, 9]), (2, np.array(0), 2**60 + 10)):
        assert (
            computed("l1_loss", {"self": x, "target": y, "reduction": reduction, "out": out})["out"].tolist()
            == expected
        )


@pytest.mark.parametrize("name", ["smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div"])
def test_a_mean_may_have_a_dimension(name: str) -> None:
    given = {key: np.full((2, 3), 0.5, np.float32) for key in ("self", "target")} | {"reduction": 1}
    given |= {"beta": 1.0, "logTarget": False, "weightOptional": None, "posWeightOptional": None}
    call = {p.name: given[p.name] for p in BY_NAME[name].parameters if p.name != "out"}
    found = [computed(name, call | {"out": np.zeros(shape, np.float32)})["out"] for shape in ((1,), ())]
    assert found[0].tolist() == [found[1].item()]


def test_the_gradient_of_a_divergence_is_summed_where_self_was_broadcast() -> None:
    """The gradient was required to have the broadcast shape."""
    random = np.random.default_rng(3)
    x, target, gradient = (random.random(shape).astype(np.float32) for shape in ((3,), (2, 3), (2, 1)))
    leaf = torch.tensor(x, requires_grad=True)
    torch.nn.functional.kl_div(leaf.expand(2, 3), torch.tensor(target), reduction="none").backward(
        torch.tensor(gradient).expand(2, 3)
    )
    call = {"gradOutput": gradient, "self": x, "target": target, "reduction": 0, "logTarget": False}
    found = computed("kl_div_backward", call | {"out": np.zeros(3, np.float32)})["out"]
    np.testing.assert_allclose(found, leaf.grad, rtol=1e-6)
