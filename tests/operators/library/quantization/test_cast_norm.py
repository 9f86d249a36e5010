"""RMSNorm of a sum in two data types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import cast_norm
from tests.cases.table import INVALID, NINE, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Placed, Subject, torch, wide

NAME = "add_rms_norm_cast"
X, COLUMNS, EPSILON = (3, 2, 8), (2, 8), 1e-5


def _call(d: D) -> Arguments:
    sums = dict.fromkeys(("x1", "x2", "y2Out", "xOut"), T(d, X))
    statistics = {"y1Out": T(D.FLOAT, X), "rstdOut": T(D.FLOAT, (3, 1, 1))}
    return sums | statistics | {"gamma": T(d, COLUMNS), "epsilon": EPSILON}


def _normed(a: Mapping[str, Any]) -> tuple[Any, ...]:
    x = wide(a["x1"]).double() + wide(a["x2"]).double()
    rstd = (x.square().mean((1, 2), keepdim=True) + float(np.float32(EPSILON))).rsqrt()
    y = torch.nn.functional.rms_norm(x, COLUMNS, wide(a["gamma"]).double(), float(np.float32(EPSILON)))
    return y, y, rstd, x


class TestCastNorm(LibraryTests):
    subject = Subject(
        cast_norm.OPERATORS,
        calls={NAME: _call},
        references={NAME: _normed},
        default=(D.FLOAT16, D.BF16),
        empty={
            NAME: {name: {"shape": (0, *COLUMNS)} for name in ("x1", "x2", "y1Out", "y2Out", "xOut")}
            | {"gamma": {"shape": COLUMNS}, "rstdOut": {"shape": (0, 1, 1)}}
        },
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"
            ),
            "1 to 8 dimensions": lambda o, name: Break(shape(NINE, name), "1 to 8"),
            "no dimension of 0": lambda o, name: Break(shape((0, *COLUMNS), name), "no dimension of 0"),
            "same shape as x1": lambda o, name: Break(shape((3, 2, 7), name), "[3, 2, 8]"),
            "shape is trailing dimensions of x1": lambda o, name: Break(shape((8, 2), name), "[2, 8]"),
            "shape is one element a row": lambda o, name: Break(shape((3,), name), "[3, 1, 1]"),
            "0 or more": lambda o, name: Break({name: -1.0}, "0 or more"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


def test_each_result_is_rounded_once() -> None:
    random = np.random.default_rng(6)
    x1, x2, gamma = (random.normal(size=size).astype(np.float16) for size in ((5, 64), (5, 64), (64,)))
    arrays = {"x1": x1, "x2": x2, "gamma": gamma, "y1Out": np.empty((5, 64), np.float32), "y2Out": np.empty_like(x1)}
    arrays |= {"rstdOut": np.empty((5, 1), np.float32), "xOut": np.empty_like(x1)}
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items()}
    call = {"epsilon": 0.0} | {name: each.tensor for name, each in placed.items()}
    prepare(BY_NAME[NAME], call, Product.ATLAS_A2).run()
    x = x1.astype(float) + x2
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True)) * gamma
    np.testing.assert_array_equal(placed["y1Out"].view, y.astype(np.float32))
    np.testing.assert_array_equal(placed["y2Out"].view, y.astype(np.float16))
