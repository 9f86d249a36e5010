"""SwiGLU of products of groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import grouped_gates
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Placed, Subject, torch, wide

NAME = "grouped_matmul_swiglu_quant_weight_nz"
FLOAT, INT8 = D.FLOAT, D.INT8


def _call(d: D) -> Arguments:
    return {
        "x": T(INT8, (5, 3)),
        "weight": T(INT8, (2, 3, 4)),
        **dict.fromkeys(("bias", "offset", "outputOffset")),
        "weightScale": T(FLOAT, (2, 4)),
        "xScale": T(FLOAT, (5,)),
        "groupList": T(D.INT64, (2,)),
        "output": T(INT8, (5, 2)),
        "outputScale": T(FLOAT, (5,)),
    }


def _gated(a: Mapping[str, Any]) -> tuple[Any, ...]:
    x, weight = wide(a["x"]).double(), wide(a["weight"]).double()
    parts = [x[rows] @ weight[at] * wide(a["weightScale"])[at] for at, rows in enumerate((slice(1), slice(1, 4)))]
    left, right = (torch.cat(parts) * wide(a["xScale"])[:4, None]).chunk(2, -1)
    y = torch.nn.functional.silu(left) * right
    scale = y.abs().amax(-1) / 127
    whole = (y / scale[:, None]).round()
    return torch.cat([whole, wide(a["output"])[4:]]), torch.cat([scale, wide(a["outputScale"])[4:]])


def _ends(operator: Operator, name: str, array: Any) -> Any:
    return np.array([1, 4]) if name == "groupList" else array


class TestGroupedGates(LibraryTests):
    subject = Subject(
        grouped_gates.OPERATORS,
        calls={NAME: _call},
        references={NAME: _gated},
        default=(INT8,),
        left=("outputOffset",),
        numbers=_ends,
        empty={
            NAME: {
                "x": {"shape": (0, 3)},
                "weight": {"shape": (2, 3, 4)},
                "weightScale": {"shape": (2, 4)},
                "groupList": {"shape": (2,)},
                **{name: {"shape": (0,)} for name in ("xScale", "outputScale")},
                **dict.fromkeys(("bias", "offset", "outputOffset")),
                "output": {"shape": (0, 2)},
            }
        },
        breaks={
            "null": lambda o, name: Break({name: T(FLOAT, (2, 4))}, "null"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "public format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2"),
            "3 to 5 dimensions": lambda o, name: Break(shape((3, 4), name), "3 to 5"),
            "1 dimension": lambda o, name: Break(shape((2, 1), name), "1"),
            "no dimension of 0": lambda o, name: Break(
                shape((0, 3, 4) if name == "weight" else (0, 4), name), "no dimension of 0"
            ),
            "shape": lambda o, name: Break(shape((2, 4, 3), name), "[2, 3, 4] or, in blocks, [2, 1, 1, 16, 32]"),
            "short rows": lambda o, name: Break(
                {name: {"shape": (5, 1 << 16)}, "weight": {"shape": (2, 1 << 16, 4)}}, "65535 columns"
            ),
            "few columns": lambda o, name: Break(
                {name: {"shape": (2, 5)}, "weight": {"shape": (2, 3, 5)}}, "even number of at most 10240"
            ),
            "few groups": lambda o, name: Break(shape((3,), name), "2 groups"),
            "shape is a factor for each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "shape is half of the products": lambda o, name: Break(shape((5, 4), name), "[5, 2]"),
        },
    )


def _compute(weight: Any, ends: tuple[int, ...], x: Any, factors: Any) -> tuple[Any, Any]:
    arrays = {"x": x, "weight": weight, "weightScale": factors, "xScale": np.full(len(x), 0.01, np.float32)}
    arrays |= {"groupList": np.array(ends), "output": np.full((len(x), factors.shape[1] // 2), 7, np.int8)}
    placed = {name: Placed(x, "contiguous") for name, x in (arrays | {"outputScale": np.zeros(len(x), "f4")}).items()}
    given = dict.fromkeys(("bias", "offset", "outputOffset")) | {name: of.tensor for name, of in placed.items()}
    prepare(BY_NAME[NAME], given, Product.ATLAS_A2).run()
    return placed["output"].view, placed["outputScale"].view


def test_weights_lie_in_blocks_or_not() -> None:
    random = np.random.default_rng(3)
    x, weight = random.integers(-9, 9, (6, 40), np.int8), random.integers(-9, 9, (2, 40, 96), np.int8)
    factors = random.random((2, 96), np.float32)
    padded = np.zeros((2, 48, 96), np.int8)
    padded[:, :40] = weight
    blocks = padded.reshape(2, 3, 16, 3, 32).transpose(0, 3, 1, 2, 4)
    found, scale = _compute(blocks, (2, 5), x, factors)
    for of, expected in zip((found, scale), _compute(weight, (2, 5), x, factors), strict=True):
        np.testing.assert_array_equal(of, expected)
    assert (found[5] == 7).all()
    assert np.abs(found[:5].astype(int)).max(-1).tolist() == [127] * 5


def test_rows_of_zeros_and_groups_without_rows() -> None:
    x, weight = np.zeros((3, 3), np.int8), np.ones((3, 3, 4), np.int8)
    x[2] = 1
    found, scale = _compute(weight, (0, 3), x, np.ones((3, 4), np.float32))
    assert found.tolist() == [[0, 0], [0, 0], [127, 127]]
    assert scale[:2].tolist() == [0, 0]


def test_ends_lie_within_rows() -> None:
    with pytest.raises(AclnnError, match=r"groupList\[1\]: expected an end from 1, .* to 3, got 4"):
        _compute(np.ones((2, 3, 4), np.int8), (1, 4), np.ones((3, 3), np.int8), np.ones((2, 4), np.float32))
