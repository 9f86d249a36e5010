"""Back through the weights of chosen experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.experts import gating_gradient
from tests.cases.table import T, dtype, shape
from tests.helpers.library import TRAINED, Array, Break, LibraryTests, Subject, computed, torch, wide

NAME, ROWS, EXPERTS, CHOSEN = "moe_gating_top_k_backward", 4, 8, 2
FACTOR, EPS = 2.5, 1e-20


def numbers(operator: str, name: str, array: Array) -> Array:
    """Scores between 0 and 1, and of each row two experts."""
    if name == "expertIdx":
        return np.array([[3, 6], [2, 7], [1, 4], [0, 7]])
    return 1 / (1 + np.exp(-array)) if name == "xNorm" else array


def _gradient(a: Mapping[str, Any]) -> Any:
    """PyTorch's, through the sigmoid of the scores."""
    scores = torch.logit(wide(a["xNorm"])).requires_grad_()
    weights = scores.sigmoid().gather(1, a["expertIdx"].long())
    weights = FACTOR * weights / (weights.sum(1, keepdim=True) + EPS)
    return torch.autograd.grad(weights, scores, wide(a["gradY"]))[0]


class TestGatingGradient(LibraryTests):
    subject = Subject(
        gating_gradient.OPERATORS,
        calls={
            NAME: lambda d: {
                "xNorm": T(D.FLOAT, (ROWS, EXPERTS)),
                "gradY": T(d, (ROWS, CHOSEN)),
                "expertIdx": T(D.INT32, (ROWS, CHOSEN)),
                "renorm": 0,
                "normType": 1,
                "routedScalingFactor": FACTOR,
                "eps": EPS,
                "out": T(d, (ROWS, EXPERTS)),
            }
        },
        references={NAME: _gradient},
        default=TRAINED,
        # Empty tensors are rejected.
        empty={NAME: shape((1, EXPERTS), "xNorm", "out") | shape((1, 1), "gradY", "expertIdx")},
        breaks={
            "data type": lambda o, name: Break(dtype(D.INT64, name), "ACL_"),
            "same data type as gradY": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "2 dimensions": lambda o, name: Break(shape((ROWS,), name), "2 dimensions"),
            "not empty": lambda o, name: Break(shape((0, EXPERTS), name), "expected elements"),
            "from 2 to 2048 experts in the second dimension": lambda o, name: Break(
                shape((ROWS, 2049), name), "from 2 to 2048"
            ),
            "some for each row": lambda o, name: Break(shape((ROWS, 9), name), "4 rows of at most 8"),
            "same shape as gradY": lambda o, name: Break(shape((ROWS, 3), name), "[4, 2]"),
            "same shape as xNorm": lambda o, name: Break(shape((ROWS, 9), name), "[4, 8]"),
            "allowed value": lambda o, name: Break({name: 2}, "0 or 1" if name == "renorm" else "1"),
        },
        numbers=numbers,
        terms=4,
    )


def test_a_nonexistent_expert_is_reported() -> None:
    given = {"xNorm": np.full((1, 2), 0.5, np.float32), "gradY": np.ones((1, 1), np.float32)}
    call = {"expertIdx": np.array([[2]], np.int32), "out": np.zeros((1, 2), np.float32)}
    attributes = {"renorm": 0, "normType": 1, "routedScalingFactor": 1.0, "eps": EPS}
    with pytest.raises(AclnnError, match="expertIdx: expected numbers from 0 to 1, got 2"):
        computed(NAME, given | call | attributes)


def test_shares_of_an_expert_that_is_chosen_twice_are_added() -> None:
    given = {"xNorm": np.array([[0.5, 0.25, 0.25]], np.float32), "gradY": np.array([[1, 2, 6]], np.float32)}
    call = {"expertIdx": np.array([[0, 1, 0]], np.int32), "out": np.zeros((1, 3), np.float32)}
    attributes = {"renorm": 0, "normType": 1, "routedScalingFactor": 1.0, "eps": 0.0}
    found = computed(NAME, given | call | attributes)["out"]
    # Of the sum 1.25 the weights are 0.4, 0.2 and 0.4; less the mean 3.2 the gradients are -2.2, -1.2 and 2.8.
    np.testing.assert_allclose(found, [[0.25 * 0.6 / 1.25, 0.1875 * -1.2 / 1.25, 0]], rtol=1e-6)
