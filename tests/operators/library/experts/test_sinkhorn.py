"""Sinkhorn's algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library.experts import sinkhorn
from tests.cases.table import T, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, scalar, torch, wide


def _reference(a: Any) -> Any:
    matrix = wide(a["cost"]).exp()
    rows, columns = matrix.shape
    change, c = 1.0, torch.ones(columns, dtype=torch.float64)
    while change > 1e-4:
        r = 1 / (rows * ((matrix * c).sum(1) + 1e-8))
        new = 1 / (columns * ((matrix.T * r).sum(1) + 1e-8))
        change, c = (new - c).abs().mean(), new
    return matrix * c * r[:, None]


class TestSinkhorn(LibraryTests):
    subject = Subject(
        sinkhorn.OPERATORS,
        calls={"sinkhorn": lambda d: {"cost": T(d, (2, 3)), "tol": None, "p": T(d, (2, 3))}},
        references={"sinkhorn": _reference},
        breaks={
            "data type": lambda o, name: Break({name: {"dtype": D.INT32}}, "data type"),
            "2 dimensions": lambda o, name: Break(shape((2, 3, 1), name), "2 dimensions"),
            "same shape as cost": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
            "at most 4096 columns": lambda o, name: Break(shape((1, 4097), name, "p"), "at most 4096 columns"),
        },
        default=TRAINED,
    )


def test_a_tolerance_that_is_never_reached_ends() -> None:
    """Rows and columns of the plan have equal sums."""
    cost = np.random.default_rng(0).random((4, 6)).astype(np.float32)
    plan = computed("sinkhorn", {"cost": cost, "tol": scalar(D.FLOAT, -1.0), "p": np.zeros_like(cost)})["p"]
    np.testing.assert_allclose(plan.sum(0), 1 / 6, rtol=1e-6)
    np.testing.assert_allclose(plan.sum(1), 1 / 4, rtol=1e-6)
    nothing = np.full((2, 2), np.nan, np.float32)
    assert np.isnan(computed("sinkhorn", {"cost": nothing, "tol": None, "p": np.zeros_like(nothing)})["p"]).all()
