"""SwiGLU of clamped halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_FIND_KERNEL_ERROR, ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.elementwise import clamped_gates
from tests.cases.table import INVALID, NINE, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, torch, wide

NAME, GROUPS, NEWEST = "clipped_swiglu_v2", "groupIndexOptional", Product.ASCEND_950
NUMBERS: Arguments = {"dim": -1, "alpha": 1.702, "limit": 2.5, "bias": 1.0, "interleaved": True, "clampMode": 1}


def _call(d: D) -> Arguments:
    return {"x": T(d, (3, 8)), GROUPS: T(D.INT64, (2,)), **NUMBERS, "out": T(d, (3, 4))}


def _gated(a: Mapping[str, Any]) -> Any:
    x, out = wide(a["x"]).double(), wide(a["out"]).double().clone()
    gate = torch.nn.functional.silu(x[:2, ::2]).clamp(max=2.5)
    out[:2] = gate * x[:2, 1::2].clamp(-2.5, 2.5)
    return out


def _break(change: Mapping[str, Any], expected: str, product: Product = NEWEST) -> Any:
    return lambda o, name: Break(change, expected, product=product)


def _of_type(operator: Operator, name: str) -> Break:
    wrong, expected = (D.INT32, "ACL_INT64") if name == GROUPS else (D.DOUBLE, "ACL_FLOAT")
    return Break(dtype(wrong, name), expected, product=NEWEST)


class TestClampedGates(LibraryTests):
    subject = Subject(
        clamped_gates.OPERATORS,
        calls={NAME: _call},
        references={NAME: _gated},
        default=TRAINED,
        numbers=lambda operator, name, array: {GROUPS: np.array([0, 2]), "out": np.zeros_like(array)}.get(name, array),
        empty={NAME: {"x": {"shape": (0, 8)}, GROUPS: None, "out": {"shape": (0, 4)}}},
        breaks={
            "present": lambda o, name: Break({name: None}, "an object", product=NEWEST),
            "data type": _of_type,
            "same data type as x": _break(dtype(D.FLOAT16, "out"), "ACL_FLOAT"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT", product=NEWEST
            ),
            "positive": _break({"limit": 0.0}, "more than 0"),
            "allowed value": _break({"clampMode": 2}, "0 or 1"),
            "at least 1 dimension": _break(shape((), "x"), "at least 1 dimension"),
            "dimension of x": _break({"dim": 2}, "from -2 to 1"),
            "not empty": _break(shape((3, 0), "x"), "elements"),
            "even size along dim": _break(shape((3, 7), "x"), "even size"),
            "1 dimension": _break(shape((1, 2), GROUPS), "1 dimension"),
            "at most 8192 elements": _break(shape((8193,), GROUPS), "at most 8192"),
            "at least 1 element": _break(shape((0,), GROUPS), "at least 1"),
            "half of x": _break(shape((3, 8), "out"), "shape [3, 4]"),
            "at most 8 dimensions": _break(shape((*NINE[:-1], 8), "x") | shape((*NINE[:-1], 4), "out"), "at most 8"),
        },
        codes=dict.fromkeys(("positive", "not empty", "even size along dim"), ACLNN_ERR_INNER_TILING_ERROR)
        | dict.fromkeys(("at most 8192 elements", "at least 1 element", "half of x"), ACLNN_ERR_INNER_TILING_ERROR)
        | {"kernel of the product": ACLNN_ERR_INNER_FIND_KERNEL_ERROR},
        code=INVALID,
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_mode_0_is_what_the_first_version_computes(interleaved: bool) -> None:
    x = (np.random.default_rng(3).normal(size=(2, 6, 5)) * 4).astype(np.float32)
    given = {"x": x, GROUPS: np.array([1]), **NUMBERS, "dim": 1, "interleaved": interleaved}
    given["out"] = np.full((2, 3, 5), 7, np.float32)
    found = computed(NAME, given | {"clampMode": 0}, NEWEST)["out"]
    a, b = torch.from_numpy(x[0].reshape(-1)).double().chunk(2)
    if interleaved:
        a, b = torch.from_numpy(x[0].reshape(-1)).double().reshape(-1, 2).T
    a = a.clamp(max=2.5)
    expected = a * torch.sigmoid(float(np.float32(1.702)) * a) * (b.clamp(-2.5, 2.5) + 1)
    np.testing.assert_allclose(found[0].reshape(-1), expected.numpy(), rtol=2e-7)
    assert (found[1] == 7).all()
