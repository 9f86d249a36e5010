"""Gelu of half of the columns, multiplied by the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library import gelu_gate
from tests.cases.table import INVALID, NINE, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, torch, wide

NAME = "gelu_mul"


def _call(d: D) -> Arguments:
    return {"input": T(d, (3, 8)), "approximateOptional": "tanh", "out": T(d, (3, 4))}


def _product(a: Mapping[str, Any]) -> Any:
    gate, factor = wide(a["input"]).double().chunk(2, -1)
    return torch.nn.functional.gelu(gate, approximate="tanh") * factor


class TestGeluGate(LibraryTests):
    subject = Subject(
        gelu_gate.OPERATORS,
        calls={NAME: _call},
        references={NAME: _product},
        default=TRAINED,
        empty={NAME: {"input": {"shape": (0, 8)}, "out": {"shape": (0, 4)}}},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"
            ),
            "allowed value": lambda o, name: Break({name: "erf"}, "tanh"),
            "2 to 8 dimensions": lambda o, name: Break(shape(NINE, name), "2 to 8"),
            "even columns, few rows": lambda o, name: Break(shape((3, 9), name), "even number of at most 1024"),
            "shape is half of input": lambda o, name: Break(shape((3, 8), name), "[3, 4]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


@pytest.mark.parametrize("approximate", [None, "none"])
def test_is_exact_without_tanh(approximate: str | None) -> None:
    x = np.random.default_rng(1).normal(size=(4, 6)) * 4
    given = {"input": x.astype(np.float32), "approximateOptional": approximate, "out": np.empty((4, 3), np.float32)}
    gate, factor = torch.from_numpy(given["input"]).double().chunk(2, -1)
    expected = torch.nn.functional.gelu(gate) * factor
    np.testing.assert_allclose(computed(NAME, given)["out"], expected.numpy(), rtol=1e-6)
