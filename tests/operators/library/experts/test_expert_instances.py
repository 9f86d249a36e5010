"""Instances of experts, and experts that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.experts import expert_instances
from tests.cases.table import INVALID, T, dtype, shape
from tests.helpers.library import Array, Break, LibraryTests, Subject, computed, torch

NAME, TABLE = "moe_update_expert", "eplbTable"
SCALES, THRESHOLD, MASK = "expertScalesOptional", "pruningThresholdOptional", "activeMaskOptional"
IDS_OUT, MASK_OUT = "balancedExpertIds", "balancedActiveMask"
#: Of four experts one has three instances, one two.
INSTANCES = np.array([[1, 3, 0, 0], [3, 0, 5, 6], [1, 2, 0, 0], [2, 4, 1, 0]], np.int32)
TOKENS = (5, 3)


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == TABLE:
        return INSTANCES
    if name == "expertIds":
        return np.abs(array) % 4
    return np.abs(array) / 10 if name == THRESHOLD else array


def updated(a: Mapping[str, Any]) -> Any:
    """Token by token and expert by expert."""
    table, ids = INSTANCES, a["expertIds"].numpy()
    found, kept = np.zeros(TOKENS, np.int64), np.zeros(TOKENS, bool)
    for token, expert in np.ndindex(*TOKENS):
        count = table[ids[token, expert]][0]
        place = token % count if a["balanceMode"] else a["localRankId"] // -(-a["worldSize"] // int(count))
        found[token, expert] = table[ids[token, expert]][1 + place]
        scales, threshold = a[SCALES][token].double(), a[THRESHOLD].double().reshape(-1)
        kept[token, expert] = scales[expert] >= threshold[expert] * scales.sum() and bool(a[MASK][token])
    return torch.from_numpy(found), torch.from_numpy(kept)


def _on_a3(change: Mapping[str, Any], expected: str) -> Break:
    return Break(change, expected, product=Product.ATLAS_A3)


class TestExpertInstances(LibraryTests):
    subject = Subject(
        expert_instances.OPERATORS,
        calls={
            NAME: lambda d: {
                "expertIds": T(d, TOKENS),
                TABLE: T(D.INT32, INSTANCES.shape),
                SCALES: T(D.FLOAT, TOKENS),
                THRESHOLD: T(D.FLOAT, (3,)),
                MASK: T(D.BOOL, (5,)),
                "localRankId": 5,
                "worldSize": 8,
                "balanceMode": 0,
                IDS_OUT: T(d, TOKENS),
                MASK_OUT: T(D.BOOL, TOKENS),
            }
        },
        references={NAME: updated},
        default=(D.INT32, D.INT64),
        breaks={
            "data types that go together": lambda o, name: _on_a3(dtype(D.INT16, name), "ACL_"),
            "format that counts as ND": lambda o, name: _on_a3(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "data type": lambda o, name: _on_a3(dtype(D.INT32, name), "ACL_"),
            "allowed value": lambda o, name: _on_a3({name: 2}, "0 or 1"),
            "from 2 to 768": lambda o, name: _on_a3({name: 769}, "from 2 to 768"),
            "one of the ranks": lambda o, name: _on_a3({name: 8}, "from 0 to 7"),
            "2 dimensions": lambda o, name: _on_a3(shape((4,), name), "2 dimensions"),
            "few tokens and experts": lambda o, name: _on_a3(shape((513, 3), name), "from 1 to 512"),
            "a row for each expert": lambda o, name: _on_a3(shape((4, 10), name), "from 3 to 1024 rows of 2 to 9"),
            "same shape as expertIds": lambda o, name: _on_a3(shape((3, 5), name), "[5, 3]"),
            "one for each place": lambda o, name: _on_a3(shape((3, 1), name), "[3] or [1, 3]"),
            "shape …": lambda o, name: _on_a3(shape((4,), name), "[5]"),
            "with the others": lambda o, name: _on_a3({name: None}, "with"),
        },
        numbers=numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "data type", "format that counts as ND"), INVALID),
    )


def _balanced(**changes: Any) -> dict[str, Array]:
    given = {
        "expertIds": np.array([[0, 1, 3], [1, 3, 2], [1, 2, 3]], np.int32),
        TABLE: INSTANCES,
        SCALES: None,
        THRESHOLD: None,
        MASK: None,
        "localRankId": 0,
        "worldSize": 8,
        "balanceMode": 0,
        IDS_OUT: np.zeros((3, 3), np.int32),
        MASK_OUT: np.zeros((3, 3), bool),
    }
    return computed(NAME, given | changes, Product.ATLAS_A3)


@pytest.mark.parametrize(("rank", "second", "fourth"), [(0, 0, 4), (3, 5, 4), (4, 5, 1), (7, 6, 1)])
def test_ranks_share_the_instances(rank: int, second: int, fourth: int) -> None:
    expected = [[3, second, fourth], [second, fourth, 2], [second, 2, fourth]]
    assert _balanced(localRankId=rank)[IDS_OUT].tolist() == expected


def test_tokens_share_the_instances_and_the_mask_stays_without_weights() -> None:
    left = np.ones((3, 3), bool)
    found = _balanced(balanceMode=1, localRankId=-1, worldSize=-1, **{MASK_OUT: left})
    assert found[IDS_OUT].tolist() == [[3, 0, 4], [5, 1, 2], [6, 2, 4]]
    assert found[MASK_OUT].all()


@pytest.mark.parametrize("scales", [D.FLOAT16, D.BF16, D.FLOAT])
def test_experts_of_little_weight_are_left_out(scales: D) -> None:
    """A weight that is exactly the threshold stays, by the published kernel."""
    weights = np.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [1, 0, 0]], scales.numpy)
    threshold = np.array([[0, 0.25, 0.125]], np.float32)
    found = _balanced(**{SCALES: weights, THRESHOLD: threshold})[MASK_OUT]
    assert found.tolist() == [[True, True, True], [True, False, True], [True, False, False]]


def test_invalid_tables_of_instances_are_reported() -> None:
    with pytest.raises(AclnnError, match="expertIds: expected experts from 0 to 3, got 4"):
        _balanced(expertIds=np.full((3, 3), 4, np.int32))
    with pytest.raises(
        AclnnError, match="eplbTable: expected numbers of instances in the first column from 1 to 3, got 4"
    ):
        _balanced(**{TABLE: INSTANCES + 1})
