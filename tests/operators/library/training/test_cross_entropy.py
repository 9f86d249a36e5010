"""Cross entropy of scores and classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import cross_entropy
from tests.cases.table import INVALID, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

LOSS, GRADIENT = "cross_entropy_loss", "cross_entropy_loss_grad"
#: Five samples of three classes.
SCORES = (5, 3)
OPTIONS: Arguments = {
    "weightOptional": T(D.FLOAT, (3,)),
    "reductionOptional": "mean",
    "ignoreIndex": 1,
    "labelSmoothing": 0.25,
    "lseSquareScaleForZloss": 0.0,
}

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    LOSS: lambda d: (
        OPTIONS
        | {
            "input": T(d, SCORES),
            "target": T(D.INT32, (5,)),
            "returnZloss": False,
            "lossOut": T(d, (1,)),
            "logProbOut": T(d, SCORES),
            "zlossOut": T(d, (1,)),
            "lseForZlossOut": T(d, (5,)),
        }
    ),
    GRADIENT: lambda d: (
        OPTIONS
        | {
            "gradLoss": T(d, ()),
            "logProb": T(d, SCORES),
            "target": T(D.INT64, (5,)),
            "gradZlossOptional": T(d, ()),
            "lseForZlossOptional": T(d, (5,)),
            "out": T(d, SCORES),
        }
    ),
}


def _loss(scores: Any, a: Mapping[str, Any]) -> Any:
    weight = None if a["weightOptional"] is None else a["weightOptional"].double()
    return torch.nn.functional.cross_entropy(
        scores,
        a["target"].long(),
        weight,
        ignore_index=a["ignoreIndex"],
        reduction=a["reductionOptional"],
        label_smoothing=a["labelSmoothing"],
    )


def _forward(a: Mapping[str, Any]) -> Any:
    scores = a["input"].double()
    return _loss(scores, a), scores.log_softmax(1)


def _gradient(a: Mapping[str, Any]) -> Any:
    """The document's formula; the logarithms here are not of probabilities, as autograd's would be."""
    weight, target = a["weightOptional"].double(), a["target"]
    mask = (target != a["ignoreIndex"]).double()
    chosen = weight[target] * mask
    gradient = wide(a["gradLoss"]).double() / chosen.sum()
    probabilities = wide(a["logProb"]).double().exp()
    of_target = (gradient * 0.75 * chosen)[:, None]
    of_each = (gradient * 0.25 / 3 * mask)[:, None] * weight
    return (
        probabilities * of_target
        - torch.nn.functional.one_hot(target, 3) * of_target
        + probabilities * of_each.sum(1, keepdim=True)
        - of_each
    )


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(dtype(D.INT16, name), "ACL_"),
    "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as gradLoss": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "2 dimensions": lambda o, name: Break(shape((5, 3, 1), name), "2 dimensions"),
    "allowed value": lambda o, name: Break({name: "batchmean"}, "'none', 'mean' or 'sum'"),
    "same shape as input": lambda o, name: Break(shape((5, 2), name), "[5, 3]"),
    "same shape as logProb": lambda o, name: Break(shape((5, 2), name), "[5, 3]"),
    "classes": lambda o, name: Break(shape((5, 0), name), "expected classes"),
    "shape is one for each sample": lambda o, name: Break(shape((4,), name), "[5]"),
    "shape is one for each class": lambda o, name: Break(shape((4,), name), "[3]"),
    "from 0 to 1": lambda o, name: Break({name: 1.5}, "from 0 to 1"),
    "one element, or one a sample": lambda o, name: Break(shape((2,), name), "one element"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.array([0, 2, 1, 0, 1]) if name == "target" else array


class TestCrossEntropy(LibraryTests):
    subject = Subject(
        cross_entropy.OPERATORS,
        calls=CALLS,
        references={LOSS: _forward, GRADIENT: _gradient},
        default=TRAINED,
        empty={
            LOSS: {
                "input": {"shape": (0, 3)},
                "target": {"shape": (0,)},
                "weightOptional": {"shape": (3,)},
                "reductionOptional": "none",
                "lossOut": {"shape": (0,)},
                "logProbOut": {"shape": (0, 3)},
                "zlossOut": {"shape": (0,)},
                "lseForZlossOut": {"shape": (0,)},
            },
            GRADIENT: {
                "gradLoss": {"shape": ()},
                "target": {"shape": (0,)},
                "weightOptional": {"shape": (3,)},
                "gradZlossOptional": {"shape": ()},
                "lseForZlossOptional": {"shape": (0,)},
            },
        },
        breaks=BREAKS,
        numbers=numbers,
        left=("zlossOut", "lseForZlossOut"),
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(
            (
                *("data types that go together", "data type", "same data type as gradLoss"),
                "format that counts as ND",
            ),
            INVALID,
        ),
    )


def _run(name: str, **changes: Any) -> None:
    """Compute with a call of float32 in which arrays stand for some tensors, and zeros for the others."""
    call = CALLS[name](D.FLOAT) | changes
    arrays = {key: np.zeros(value.shape, np.float32) for key, value in call.items() if isinstance(value, T)}
    arrays |= {key: value for key, value in changes.items() if isinstance(value, np.ndarray)}
    placed = {key: Placed(value, "contiguous") for key, value in arrays.items()}
    prepare(BY_NAME[name], call | {key: each.tensor for key, each in placed.items()}, Product.ATLAS_A2).run()
    for key, each in placed.items():
        arrays[key][...] = each.view


@pytest.mark.parametrize("ignored", [1, -100])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_loss_and_gradient_are_autograds(reduction: str, weighted: bool, smoothing: float, ignored: int) -> None:
    random = np.random.default_rng(7)
    scores, target = random.standard_normal(SCORES), np.array([0, 2, ignored, 0, 2])
    options = {
        "weightOptional": random.random(3).astype(np.float32) if weighted else None,
        "reductionOptional": reduction,
        "ignoreIndex": ignored,
        "labelSmoothing": smoothing,
    }
    leaf = torch.tensor(scores, requires_grad=True)
    given = {key: torch.tensor(value) if isinstance(value, np.ndarray) else value for key, value in options.items()}
    expected = _loss(leaf, {"target": torch.tensor(target), **given})
    arriving = np.asarray(random.standard_normal(expected.shape), np.float32)
    expected.backward(torch.tensor(arriving).double())

    loss = np.zeros(5 if reduction == "none" else 1, np.float32)
    logarithms, gradient = np.zeros(SCORES, np.float32), np.zeros(SCORES, np.float32)
    _run(LOSS, input=scores.astype(np.float32), target=target, lossOut=loss, logProbOut=logarithms, **options)
    _run(GRADIENT, gradLoss=arriving, logProb=logarithms, target=target, out=gradient, **options)
    assert loss.reshape(expected.shape) == pytest.approx(expected.detach().numpy(), rel=2e-6)
    assert gradient == pytest.approx(leaf.grad.numpy(), rel=2e-6, abs=1e-7)


def test_the_documents_example() -> None:
    loss, logarithms = np.zeros(1, np.float32), np.zeros((2, 5), np.float32)
    _run(
        LOSS,
        input=np.array([[5, 0, 3, 3, 7], [9, 3, 5, 2, 4]], np.float32),
        target=np.array([0, 0]),
        weightOptional=None,
        reductionOptional=None,
        labelSmoothing=0.0,
        lossOut=loss,
        logProbOut=logarithms,
    )
    assert loss[0] == pytest.approx(1.0937543)
    assert logarithms[1, 0] == pytest.approx(-0.0280476, rel=1e-4)


def test_no_samples_have_no_mean() -> None:
    loss = np.zeros(1, np.float32)
    nothing = np.zeros((0, 3), np.float32)
    _run(LOSS, input=nothing, target=np.zeros(0, np.int64), lossOut=loss, logProbOut=nothing)
    assert np.isnan(loss[0])


def test_probabilities_of_nothing_count_for_nothing() -> None:
    """A score of minus infinity, which masks a class, leaves the others' loss."""
    loss, logarithms = np.zeros(1, np.float32), np.zeros((1, 2), np.float32)
    _run(
        LOSS,
        input=np.array([[0.0, -np.inf]], np.float32),
        target=np.array([0]),
        weightOptional=None,
        labelSmoothing=0.0,
        lossOut=loss,
        logProbOut=logarithms,
    )
    assert loss[0] == 0


def test_invalid_classes_are_rejected() -> None:
    scores = np.zeros(SCORES, np.float32)
    with pytest.raises(AclnnError, match="target: expected 1 or classes from 0 to 2, got 3"):
        _run(LOSS, input=scores, target=np.array([0, 2, 3, 0, 2]), lossOut=np.zeros(1, np.float32), logProbOut=scores)
