"""Logarithms of odds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import logit
from tests.cases.table import NINE, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, LibraryTests, Placed, Subject, computed, torch, wide

TILING = ("at most 8 dimensions", "same shape as input", "same shape as x")


def _gradient(a: Any) -> Any:
    return torch.ops.aten.logit_backward(wide(a["dy"]), wide(a["x"]), a["eps"])


def numbers(operator: str, name: str, array: Array) -> Array:
    return array if name == "dy" else np.array([[0.001, 0.02, 0.5], [0.7, 0.99, 0.999]])


class TestLogit(LibraryTests):
    subject = Subject(
        logit.OPERATORS,
        calls=dict.fromkeys(("logit", "logit_grad"), lambda d: {"eps": 0.015625}),
        references={"logit": lambda a: torch.logit(wide(a["input"]), a["eps"]), "logit_grad": _gradient},
        default=TRAINED,
        breaks={
            "data types that go together": lambda o, name: Break(
                dtype(D.DOUBLE if name == o.parameters[0].name else D.FLOAT16, name), "ACL_FLOAT"
            ),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "at most 8 dimensions": lambda o, name: Break(shape(NINE, name), "at most 8"),
            "same shape as x": lambda o, name: Break(shape((3, 2), name), "[2, 3]"),
        },
        numbers=numbers,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


@pytest.mark.parametrize("eps", [-1.0, 0.0, 0.25, 0.5, 0.75, 1.0])
def test_logit_at_and_beyond_its_bounds(eps: float) -> None:
    given = np.array([-0.5, 0, 0.125, 0.5, 0.875, 1, 1.5], np.float32)
    x, dy, y, dx = (Placed(each, "contiguous") for each in (given, given + 1, np.zeros(7, "f4"), np.zeros(7, "f4")))
    prepare(BY_NAME["logit"], {"input": x.tensor, "eps": eps, "out": y.tensor}, Product.ATLAS_A2).run()
    call = {"x": x.tensor, "dy": dy.tensor, "eps": eps, "out": dx.tensor}
    prepare(BY_NAME["logit_grad"], call, Product.ATLAS_A2).run()
    leaf = torch.tensor(given, dtype=torch.float64, requires_grad=True)
    expected = torch.logit(leaf, eps if eps >= 0 else None)
    expected.backward(torch.from_numpy(given + 1).double())
    np.testing.assert_allclose(y.view, expected.detach(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(dx.view, leaf.grad, rtol=1e-6)


def test_eps_is_rounded_to_float32() -> None:
    least = np.float32(0.35)
    assert float(least) < 0.35
    found = computed("logit_grad", {"x": least[None], "dy": np.ones(1, "f4"), "eps": 0.35, "out": np.zeros(1, "f4")})
    np.testing.assert_allclose(found["out"], 1 / (0.35 * 0.65), rtol=1e-6)
