"""Products of experts added up for their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import grouped_routing
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import Break, LibraryTests, Placed, Subject, described, torch, wide

FIRST, SECOND = grouped_routing.OPERATORS
FLOAT, INT8, N = D.FLOAT, D.INT8, 256
ROW_SCALE, GROUPS, SHARED, TUNING = "pertokenScaleOptional", "groupList", "sharedInput", "tuningConfigOptional"
UNUSED = ("offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
NUMBERS: Arguments = {
    "dtype": 0,
    "sharedInputWeight": 0.5,
    "sharedInputOffset": 1,
    "transposeX1": False,
    "transposeX2": False,
    "groupListType": 0,
}


def _call(d: D) -> Arguments:
    rows = dict.fromkeys((ROW_SCALE, "logit"), T(FLOAT, (5,)))
    return {
        "x1": T(INT8, (5, 16)),
        "x2": T(INT8, (2, 16, N), Format.FORMAT_FRACTAL_NZ),
        "scale": T(FLOAT, (2, N)),
        "bias": None,
        **rows,
        GROUPS: T(D.INT64, (2,)),
        SHARED: T(D.BF16, (2, N)),
        "rowIndex": T(D.INT64, (5,)),
        "out": T(FLOAT, (3, N)),
        **NUMBERS,
    }


def _second(d: D) -> Arguments:
    return _call(d) | dict.fromkeys(UNUSED) | {TUNING: (2,)}


def _summed(a: Mapping[str, Any]) -> Any:
    x, weight, scale = (wide(a[name]).double() for name in ("x1", "x2", "scale"))
    total = torch.cat([x[:1] @ weight[0] * scale[0], x[1:4] @ weight[1] * scale[1]])
    total *= (wide(a[ROW_SCALE]) * wide(a["logit"]))[:4, None]
    y = torch.zeros(3, N, dtype=torch.float64).index_add(0, a["rowIndex"][:4], total)
    y[1:] += 0.5 * wide(a[SHARED]).double()
    return y


def _numbers(operator: Operator, name: str, array: Any) -> Any:
    return {GROUPS: np.array([1, 4]), "rowIndex": np.array([2, 0, 2, 1, 0])}.get(name, array)


class TestGroupedRouting(LibraryTests):
    subject = Subject(
        grouped_routing.OPERATORS,
        calls={FIRST.name: _call, SECOND.name: _second},
        references=dict.fromkeys((FIRST.name, SECOND.name), _summed),
        default=(INT8,),
        numbers=_numbers,
        breaks={
            "logits": lambda o, name: Break({name: None}, SHARED),
            "null": lambda o, name: Break({name: T(FLOAT, (2, N))}, "null"),
            "allowed value": lambda o, name: Break({name: True if name.startswith("t") else 2}, "expected"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "public format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "FRACTAL_NZ"),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2"),
            "3 dimensions": lambda o, name: Break(shape((16, N), name), "3"),
            "1 dimension": lambda o, name: Break(shape((5, 1), name), "1"),
            "no dimension of 0": lambda o, name: Break(
                shape((0, 16, N) if name == "x2" else (0, N), name), "no dimension of 0"
            ),
            "whole blocks": lambda o, name: Break(shape((2, 16, N - 32), name), "at least 256"),
            "as x2": lambda o, name: Break(shape((5, 15), name), "16 columns"),
            "shape is columns of each group": lambda o, name: Break(shape((N, 2), name), "[2, 256]"),
            "shape is one of each group": lambda o, name: Break(shape((3,), name), "[2]"),
            "shape is one of each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "tokens": lambda o, name: Break(shape((6, N), name), "[at most 5, 256]"),
            "rows of out": lambda o, name: Break(shape((4, N), name), "[at most 3, 256]"),
            "a row of out": lambda o, name: Break({name: 2}, "from 0 to 1"),
            "rows of a group": lambda o, name: Break({name: (6,)}, "from 0 to 5"),
        },
        codes={"logits": ACLNN_ERR_PARAM_NULLPTR},
    )

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        """They are refused."""
        call = described(changed(self.subject.valid(operator, INT8), {"x1": {"shape": (0, 16)}}))
        with pytest.raises(AclnnError, match="x1: expected no dimension of 0"):
            prepare(operator, call, Product.ATLAS_A2)


def _compute(**changes: Any) -> Any:
    random = np.random.default_rng(4)
    arrays = {
        "x1": random.integers(-128, 128, (5, 16), np.int8),
        "x2": random.integers(-128, 128, (2, 16, N), np.int8),
        "scale": np.ones((2, N), np.float32),
        GROUPS: np.array([2, 3]),
        "rowIndex": np.array([0, 1, 0, 1, 0], np.int32),
        "out": np.full((2, N), 7, np.float32),
    } | changes
    placed = {name: Placed(of, "contiguous") for name, of in arrays.items() if isinstance(of, np.ndarray)}
    placed["x2"].tensor.format = Format.FORMAT_FRACTAL_NZ
    given = _call(INT8) | dict.fromkeys((ROW_SCALE, "logit", SHARED)) | arrays
    given |= {name: each.tensor for name, each in placed.items()}
    prepare(FIRST, given, Product.ATLAS_A2).run()
    return placed["out"].view


def test_sizes_count_as_ends() -> None:
    np.testing.assert_array_equal(_compute(sharedInputOffset=0), _compute(groupListType=1, groupList=np.array([2, 1])))


def test_rows_of_no_token_are_refused() -> None:
    with pytest.raises(AclnnError, match="rowIndex: expected numbers from 0 to 1, got 2"):
        _compute(rowIndex=np.array([0, 1, 2, 1, 0], np.int32))
    with pytest.raises(AclnnError, match=r"groupList\[1\]: expected an end"):
        _compute(groupList=np.array([2, 6]))
