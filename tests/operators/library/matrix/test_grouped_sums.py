"""Products of groups of rows added to sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    torch,
    wide,
)

FIRST, SECOND = "grouped_matmul_add", "grouped_matmul_add_v2"
SIZES = np.array([2, 0, 3])
ROWS, K, N = 6, 3, 4


def _call(d: D) -> Arguments:
    return {
        "x": T(d, (ROWS, K)),
        "weight": T(d, (ROWS, N)),
        "groupList": T(D.INT64, SIZES.shape),
        "yRef": T(D.FLOAT, (len(SIZES), K, N)),
        "transposeX": True,
        "transposeWeight": False,
        "groupType": 2,
    }


def _sums(a: Mapping[str, Any]) -> Any:
    """The last row belongs to no group."""
    parts = zip(wide(a["x"]).split([*SIZES, 1]), wide(a["weight"]).split([*SIZES, 1]), strict=True)
    return wide(a["yRef"]) + torch.stack([x.T @ weight for x, weight in [*parts][:-1]])


class TestGroupedSums(LibraryTests):
    subject = Subject(
        tuple(BY_NAME[name] for name in (FIRST, SECOND)),
        calls={FIRST: _call, SECOND: lambda d: _call(d) | {"groupListType": 1}},
        references=dict.fromkeys((FIRST, SECOND), _sums),
        default=(D.FLOAT16, D.BF16),
        empty=dict.fromkeys(
            (FIRST, SECOND),
            shape((0, K), "x") | shape((0, N), "weight") | {"groupList": {"shape": (0,)}, "yRef": {"shape": (0, K, N)}},
        ),
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as x": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16", D.FLOAT16),
            "allowed value": lambda o, name: Break(
                {name: {"transposeX": False, "transposeWeight": True}.get(name, 3)},
                {"transposeX": "True", "transposeWeight": "False", "groupType": "2"}.get(name, "0 or 1"),
            ),
            "plain format": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
            "at least 1 column": lambda o, name: Break(shape((ROWS, 0), name), "at least 1 column"),
            "2 dimensions": lambda o, name: Break(shape((ROWS,), name), "2 dimensions"),
            "1 dimension": lambda o, name: Break(shape((3, 1), name), "1 dimension"),
            "… rows (as many as x)": lambda o, name: Break(shape((5, N), name), "6 rows"),
            "a sum for each group": lambda o, name: Break(shape((3, N, K), name), "[3, 3, 4] or [9, 4]"),
        },
        numbers=lambda operator, name, array: (
            (SIZES if operator == SECOND else SIZES.cumsum()) if name == "groupList" else array
        ),
        codes=dict.fromkeys(
            ("2 dimensions", "1 dimension", "at least 1 column", "… rows (as many as x)", "a sum for each group"),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


BIAS, BIAS_BY_SIZES = "grouped_bias_add_grad", "grouped_bias_add_grad_v2"


def _bias_call(d: D) -> Arguments:
    return {
        "gradY": T(d, (ROWS - 1, K)),
        "groupIdxOptional": T(D.INT32 if d == D.FLOAT else D.INT64, SIZES.shape),
        "out": T(d, (len(SIZES), K)),
    }


class TestBias(LibraryTests):
    subject = Subject(
        tuple(BY_NAME[name] for name in (BIAS, BIAS_BY_SIZES)),
        calls={BIAS: _bias_call, BIAS_BY_SIZES: lambda d: _bias_call(d) | {"groupIdxType": 1}},
        references=dict.fromkeys(
            (BIAS, BIAS_BY_SIZES), lambda a: torch.stack([part.sum(0) for part in wide(a["gradY"]).split([*SIZES])])
        ),
        default=TRAINED,
        empty=dict.fromkeys(
            (BIAS, BIAS_BY_SIZES), shape((5, 0), "gradY") | shape((3,), "groupIdxOptional") | shape((3, 0), "out")
        ),
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
            "rows in groups": lambda o, name: Break(shape((5, 1, K), name), "2 dimensions with groupIdxOptional"),
            "few groups": lambda o, name: Break(shape((2049,), name), "at most 2048"),
            "shape is a sum for each group": lambda o, name: Break(shape((2, K), name), "[3, 3]"),
            "same data type as gradY": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
        },
        numbers=lambda operator, name, array: (
            (SIZES if operator == BIAS_BY_SIZES else SIZES.cumsum()) if name == "groupIdxOptional" else array
        ),
    )


def test_grouped_bias_gradients_of_equal_groups_are_sums_of_rows() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    call = {"gradY": rows, "groupIdxOptional": None, "out": np.zeros((2, 2), np.float32)}
    np.testing.assert_array_equal(computed(BIAS, call)["out"], rows.sum(1))


def test_groups_of_biases_end_with_the_rows() -> None:
    call = {
        "gradY": np.ones((3, 2), np.float32),
        "groupIdxOptional": np.array([1, 2]),
        "out": np.zeros((2, 2), np.float32),
    }
    with pytest.raises(AclnnError, match="groupIdxOptional: expected ends of groups up to 3"):
        computed(BIAS, call)


def _run(ends: Array) -> Array:
    tensors = {"x": np.ones((3, 2), np.float16), "weight": np.ones((3, 1), np.float16), "groupList": ends}
    placed = {name: Placed(each, "contiguous") for name, each in tensors.items()}
    placed["yRef"] = Placed(np.full((4, 1), 0.5, np.float32), "contiguous")
    call = {"transposeX": True, "transposeWeight": False, "groupType": 2}
    prepare(BY_NAME[FIRST], call | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    return placed["yRef"].view


def test_grouped_matmul_add_accepts_two_dimensions() -> None:
    assert _run(np.array([1, 3])).tolist() == [[1.5], [1.5], [2.5], [2.5]]


@pytest.mark.parametrize("ends", [[1, 4], [2, 1]])
def test_groups_end_one_after_another_within_the_rows(ends: list[int]) -> None:
    with pytest.raises(AclnnError, match="groupList: expected ends of groups up to 3"):
        _run(np.array(ends))


def test_ascend_950_accepts_three_dimensions_alone() -> None:
    call = described(_call(D.BF16) | {"yRef": T(D.FLOAT, (len(SIZES) * K, N))})
    prepare(BY_NAME[FIRST], call, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="3, 3, 4], got"):
        prepare(BY_NAME[FIRST], call, Product.ASCEND_950)


def test_shapes_are_checked_before_data_types() -> None:
    call = described(_call(D.FLOAT16) | {"yRef": T(D.DOUBLE, (1, K, N))})
    with pytest.raises(AclnnError, match="yRef: expected shape"):
        prepare(BY_NAME[FIRST], call, Product.ATLAS_A2)


def test_y_may_have_a_format_of_three_dimensions() -> None:
    call = _call(D.FLOAT16) | {"yRef": T(D.FLOAT, (len(SIZES), K, N), format=Format.FORMAT_NCL)}
    prepare(BY_NAME[FIRST], described(call), Product.ATLAS_A2)
