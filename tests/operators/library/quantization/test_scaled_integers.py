"""Rows quantised by groups, products of integers restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import scaled_integers
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

GROUP, RESTORE = "group_quant", "dequant_bias"
X, ENDS = (5, 8), np.array([2, 2, 4])

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    GROUP: lambda d: {
        "x": T(d, X),
        "scale": T(D.FLOAT, (3, 8)),
        "groupIndex": T(D.INT64, (3,)),
        "offsetOptional": T(D.FLOAT, (1,)),
        "dstType": int(D.INT8),
        "y": T(D.INT8, X),
    },
    RESTORE: lambda d: {
        "x": T(d, X),
        "weightScale": T(D.FLOAT, X[1:]),
        "activateScaleOptional": T(D.FLOAT, X[:1]),
        "biasOptional": T(D.FLOAT16, X[1:]),
        "outputDtype": int(D.FLOAT16),
        "out": T(D.FLOAT16, X),
    },
}


def _group(a: Mapping[str, Any]) -> Any:
    """The row after the last group counts as its own."""
    scales = wide(a["scale"])[[0, 0, 2, 2, 2]]
    return (wide(a["x"]) * scales + wide(a["offsetOptional"])).round().clamp(-128, 127)


def _restore(a: Mapping[str, Any]) -> Any:
    factors = torch.outer(wide(a["activateScaleOptional"]), wide(a["weightScale"]))
    return wide(a["x"]) * factors + wide(a["biasOptional"])


def numbers(operator: str, name: str, array: Array) -> Array:
    return ENDS if name == "groupIndex" else array


def _wrong_type(operator: Operator, name: str) -> Break:
    return Break(dtype(D.INT16, name), "ACL_")


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "data types that go together": _wrong_type,
    "same data type as scale": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "data type of y": lambda o, name: Break({name: 3}, "2"),
    "data type of out": lambda o, name: Break({name: 27}, "1"),
    "data type … (with … scales)": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "allowed value": lambda o, name: Break({name: 0}, "1 or 27"),
    "not empty": lambda o, name: Break(shape((0,), name) | shape((0, 8), "scale"), "elements"),
    "2 dimensions": lambda o, name: Break(shape((8,), name), "2 dimensions"),
    "1 dimension": lambda o, name: Break(shape((3, 1), name), "1 dimension"),
    "shape is a row of x for each group": lambda o, name: Break(shape((2, 8), name), "[3, 8]"),
    "shape of x": lambda o, name: Break(shape((5, 7), name), "[5, 8]"),
    "whole bytes": lambda o, name: Break(
        dtype(D.INT4, name)
        | {"dstType": int(D.INT4)}
        | {each: {"shape": (5, 7), **({"dtype": D.INT4} if each == name else {})} for each in ("x", name)}
        | shape((3, 7), "scale"),
        "an even last dimension",
    ),
    "at most 25000 rows": lambda o, name: Break(
        shape((25001, 8), name, "out") | shape((25001,), "activateScaleOptional"), "at most 25000 rows"
    ),
    "shape is a column each": lambda o, name: Break(shape((7,), name), "[8]"),
    "shape is a row each": lambda o, name: Break(shape((8,), name), "[5]"),
    "same shape as x": lambda o, name: Break(shape((8, 5), name), "[5, 8]"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
}


class TestGroups(LibraryTests):
    subject = Subject(
        scaled_integers.OPERATORS[:1],
        calls=CALLS,
        references={GROUP: _group},
        default=TRAINED,
        empty={
            GROUP: shape((0, 8), "x", "y")
            | {"scale": {"shape": (3, 8)}, "groupIndex": {"shape": (3,)}, "offsetOptional": {"shape": (1,)}}
        },
        breaks=BREAKS,
        numbers=numbers,
    )


class TestRestored(LibraryTests):
    subject = Subject(
        scaled_integers.OPERATORS[1:],
        calls=CALLS,
        references={RESTORE: _restore},
        default=(D.INT32,),
        empty={
            RESTORE: shape((0, 8), "x", "out")
            | shape((8,), "weightScale", "biasOptional")
            | shape((0,), "activateScaleOptional")
        },
        breaks=BREAKS,
        codes={
            title: ACLNN_ERR_INNER_TILING_ERROR
            for title in BREAKS
            if title not in ("data types that go together", "format that counts as ND")
        },
    )


def _run(name: str, **arguments: Any) -> dict[str, Array]:
    placed = {key: Placed(value, "contiguous") for key, value in arguments.items() if isinstance(value, np.ndarray)}
    prepare(BY_NAME[name], arguments | {key: each.tensor for key, each in placed.items()}, Product.ATLAS_A2).run()
    return {key: each.view for key, each in placed.items()}


def test_a_bias_of_integers_is_added_before_the_scales() -> None:
    bfloat16 = D.BF16.numpy
    found = _run(
        RESTORE,
        x=np.array([[1, -2], [3, 4]], np.int32),
        weightScale=np.array([0.5, 2], bfloat16),
        activateScaleOptional=None,
        biasOptional=np.array([1, 10], np.int32),
        outputDtype=int(D.BF16),
        out=np.zeros((2, 2), bfloat16),
    )
    assert found["out"].tolist() == [[1, 16], [2, 28]]


def test_empty_scales_and_biases_count_as_null() -> None:
    found = _run(
        RESTORE,
        x=np.array([[1, -2]], np.int32),
        weightScale=np.array([0.5, 2], np.float32),
        activateScaleOptional=np.zeros(0, np.float32),
        biasOptional=np.zeros(0, np.int32),
        outputDtype=int(D.FLOAT16),
        out=np.zeros((1, 2), np.float16),
    )
    assert found["out"].tolist() == [[0.5, -4]]


def test_eight_integers_of_four_bits_in_one_of_32() -> None:
    found = _run(
        GROUP,
        x=np.arange(8, dtype=np.float32)[None],
        scale=np.ones((1, 8), np.float32),
        groupIndex=np.array([1], np.int32),
        offsetOptional=None,
        dstType=int(D.INT32),
        y=np.zeros((1, 1), np.int32),
    )
    assert found["y"].tolist() == [[0x76543210]]
