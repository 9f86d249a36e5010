"""A function of half of the columns, multiplied by the other; Gelu quantised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.elementwise import gelu_gate
from tests.cases.table import INVALID, NINE, Arguments, T, changed, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, described, torch, wide

NAME, RECTIFIED, QUANTIZED = "gelu_mul", "fatrelu_mul", "gelu_quant"
SCALE, OFFSET, FOUND = "inputScaleOptional", "inputOffsetOptional", "outScaleOptional"
DYNAMIC: Arguments = {"approximate": "none", "quantMode": "dynamic", "roundMode": "rint", "dstType": 2}


def _call(d: D) -> Arguments:
    return {"input": T(d, (3, 8)), "approximateOptional": "tanh", "out": T(d, (3, 4))}


def _product(a: Mapping[str, Any]) -> Any:
    gate, factor = wide(a["input"]).double().chunk(2, -1)
    return torch.nn.functional.gelu(gate, approximate="tanh") * factor


def _rectified(a: Mapping[str, Any]) -> Any:
    gate, factor = wide(a["input"]).double().chunk(2, -1)
    return gate.masked_fill(gate < wide(a["threshold"]).double(), 0) * factor


_EMPTY = {"input": {"shape": (0, 8)}, "out": {"shape": (0, 4)}}


class TestGates(LibraryTests):
    subject = Subject(
        gelu_gate.OPERATORS[:2],
        calls={
            NAME: _call,
            RECTIFIED: lambda d: {"input": T(d, (3, 8)), "threshold": T(d, (1,)), "out": T(d, (3, 4))},
        },
        references={NAME: _product, RECTIFIED: _rectified},
        default=TRAINED,
        empty={NAME: _EMPTY, RECTIFIED: _EMPTY},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"
            ),
            "allowed value": lambda o, name: Break({name: "erf"}, "tanh"),
            "2 to 8 dimensions": lambda o, name: Break(shape(NINE, name), "2 to 8"),
            "even columns, few rows": lambda o, name: Break(shape((3, 9), name), "even number of at most 1024"),
            "an even number of columns": lambda o, name: Break(
                shape((3, 9), name), "an even number of columns", product=Product.ASCEND_950
            ),
            "one element": lambda o, name: Break(shape((2,), name), "one element"),
            "shape is half of input": lambda o, name: Break(shape((3, 8), name), "[3, 4]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


def test_elements_equal_to_the_threshold_stay_and_rows_are_unlimited_on_the_newest() -> None:
    x = np.array([0.5, 0.25, np.nan, -1.0, 2.0, 3.0, 4.0, 5.0], np.float32).repeat(200)[None].repeat(2, 0)
    given = {"input": x, "threshold": np.array([[0.5]], np.float32), "out": np.empty((2, 800), np.float32)}
    found = computed(RECTIFIED, given, Product.ASCEND_950)["out"]
    np.testing.assert_array_equal(found, np.array([1.0, 0.0, np.nan, 0.0], np.float32).repeat(200)[None].repeat(2, 0))
    with pytest.raises(AclnnError, match="at most 1024 columns"):
        computed(RECTIFIED, given)


@pytest.mark.parametrize("approximate", [None, "none"])
def test_gelu_mul_is_exact_without_tanh(approximate: str | None) -> None:
    x = np.random.default_rng(1).normal(size=(4, 6)) * 4
    given = {"input": x.astype(np.float32), "approximateOptional": approximate, "out": np.empty((4, 3), np.float32)}
    gate, factor = torch.from_numpy(given["input"]).double().chunk(2, -1)
    expected = torch.nn.functional.gelu(gate) * factor
    np.testing.assert_allclose(computed(NAME, given)["out"], expected.numpy(), rtol=1e-6)


def _quantized_call(d: D) -> Arguments:
    tensors = {"self": T(d, (3, 8)), SCALE: T(D.FLOAT, (8,)), OFFSET: None}
    return tensors | DYNAMIC | {"y": T(D.INT8, (3, 8)), FOUND: T(D.FLOAT, (3,))}


def _integers(a: Mapping[str, Any]) -> tuple[Any, ...]:
    y = torch.nn.functional.gelu(wide(a["self"]).double()) * wide(a[SCALE])
    scale = (y.abs().amax(-1) / 127).float()
    return (y / scale[:, None]).round(), scale


class TestGeluQuant(LibraryTests):
    subject = Subject(
        gelu_gate.OPERATORS[2:],
        calls={QUANTIZED: _quantized_call},
        references={QUANTIZED: _integers},
        default=TRAINED,
        breaks={
            "allowed value": lambda o, name: Break({name: "floor"}, "expected"),
            "what the mode needs": lambda o, name: Break(
                {"quantMode": "static", name: None} if name == SCALE else {name: None}, "expected an object"
            ),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "data type of y": lambda o, name: Break({name: 36}, "2"),
            "data type … with self": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
            "dimensions of a mode": lambda o, name: Break(shape((8,), name), "2 to 8"),
            "no dimension of 0": lambda o, name: Break(shape((0, 8), name), "no dimension of 0"),
            "one factor or a row": lambda o, name: Break(shape((3,), name), "[1] or [8]"),
            "as inputScaleOptional": lambda o, name: Break({name: T(D.FLOAT, (1,))}, "ACL_FLOAT and shape [8]"),
            "same shape as self": lambda o, name: Break(shape((3, 7), name), "[3, 8]"),
            "shape is rows of self": lambda o, name: Break(shape((4,), name), "[3]"),
        },
        codes={"what the mode needs": ACLNN_ERR_PARAM_NULLPTR},
    )

    def test_empty_tensors_are_nothing_to_do(self, operator: Operator) -> None:
        """Empty tensors are rejected."""
        call = described(changed(self.subject.valid(operator, D.FLOAT), {"self": {"shape": (0, 8)}}))
        with pytest.raises(AclnnError, match="self: expected no dimension of 0"):
            prepare(operator, call, Product.ASCEND_950)


@pytest.mark.parametrize("offset", [None, np.array([2], np.float32)])
def test_gelu_is_quantised_by_given_scales(offset: Any) -> None:
    x = (np.random.default_rng(2).normal(size=20) * 9).astype(np.float32)
    given = DYNAMIC | {"quantMode": "static", "self": x, SCALE: np.array([8], np.float32), OFFSET: offset, FOUND: None}
    found = computed(QUANTIZED, given | {"y": np.empty(20, np.int8)}, Product.ASCEND_950)["y"]
    expected = torch.nn.functional.gelu(torch.from_numpy(x).double()) * 8 + (0 if offset is None else 2)
    assert found.tolist() == expected.round().clamp(-128, 127).tolist()


def test_an_offset_needs_a_scale() -> None:
    call = described(_quantized_call(D.FLOAT) | {SCALE: None})
    prepare(gelu_gate.OPERATORS[2], call, Product.ASCEND_950)
    with pytest.raises(AclnnError, match=f"{OFFSET}: expected null without {SCALE}, got a tensor"):
        prepare(gelu_gate.OPERATORS[2], described(call | {OFFSET: T(D.FLOAT, (8,))}), Product.ASCEND_950)
