"""RMSNorm with quantised results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import quantized_norms
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, tensors_of, torch, wide

X, COLUMNS, EPSILON = (3, 16), (16,), float(np.float32(1e-5))
STATIC, DYNAMIC = (tuple(f"add_rms_norm_{kind}quant{version}" for version in ("", "_v2")) for kind in ("", "dynamic_"))
SINGLE, THIRD = "rms_norm_quant", "rms_norm_quant_v3"
SCALES, ZEROS = ("scales1", "scales2Optional"), ("zeroPoints1Optional", "zeroPoints2Optional")
SMOOTH = ("smoothScale1Optional", "smoothScale2Optional")
INTEGERS, FOUND = ("y1Out", "y2Out"), ("scale1Out", "scale2Out")


def sum_of(d: D, more: bool) -> Arguments:
    beta = {"betaOptional": T(d, COLUMNS)} if more else {}
    return {"x1": T(d, X), "x2": T(d, X), "gamma": T(d, COLUMNS), "xOut": T(d, X), "epsilon": 1e-5, **beta}


def static(more: bool) -> Any:
    def call(d: D) -> Arguments:
        scales = dict.fromkeys(SCALES, T(D.BF16 if d == D.BF16 else D.FLOAT, COLUMNS))
        zeros = dict.fromkeys(ZEROS, T(D.BF16 if d == D.BF16 else D.INT32, COLUMNS))
        norm = {"rmsNormOut": T(d, X)} if more else {}
        attributes = {"axis": -1, "divMode": not more}
        return sum_of(d, more) | scales | zeros | attributes | norm | dict.fromkeys(INTEGERS, T(D.INT8, X))

    return call


def dynamic(more: bool) -> Any:
    def call(d: D) -> Arguments:
        outputs = dict.fromkeys(INTEGERS, T(D.INT8, X)) | dict.fromkeys(FOUND, T(D.FLOAT, X[:1]))
        mask = {"outputMask": (True, True)} if more else {}
        return sum_of(d, more) | dict.fromkeys(SMOOTH, T(d, COLUMNS)) | mask | outputs

    return call


def single(d: D) -> Arguments:
    rows = {"gamma": T(d, COLUMNS), "beta": T(d, (1, *COLUMNS))}
    return {"x": T(d, X), **rows, "scale": T(d, (1,)), "offset": T(D.INT8, (1,)), "epsilon": 1e-5, "y": T(D.INT8, X)}


def third(d: D) -> Arguments:
    rows = {"gamma": T(d, (1, *COLUMNS)), "betaOptional": T(d, COLUMNS)}
    numbers = {"scale": T(d, (1,)), "offsetOptional": T(D.INT8, (1,)), "epsilon": 1e-5}
    flags = {"divMode": d == D.BF16, "outputRstd": True}
    return {"x": T(d, X), **rows, **numbers, **flags, "y": T(D.INT8, X), "rstd": T(D.FLOAT, X[:1])}


def norm(x: Any, gamma: Any) -> Any:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPSILON) * wide(gamma)


def integers(numbers: Any) -> Any:
    return torch.round(numbers).clamp(-128, 127)


def quantized(a: Mapping[str, Any]) -> Any:
    x = wide(a["x1"]) + wide(a["x2"])
    before = norm(x, a["gamma"])
    y = before + (wide(a["betaOptional"]) if "betaOptional" in a else 0)
    found = [
        integers((y / wide(a[scale]) if a["divMode"] else y * wide(a[scale])) + wide(a[zeros]))
        for scale, zeros in zip(SCALES, ZEROS, strict=True)
    ]
    return (*found, x, *([before] if "rmsNormOut" in a else []))


def quantized_by_rows(a: Mapping[str, Any]) -> Any:
    x = wide(a["x1"]) + wide(a["x2"])
    y = norm(x, a["gamma"]) + (wide(a["betaOptional"]) if "betaOptional" in a else 0)
    smoothed = [y * wide(a[name]) for name in SMOOTH]
    scales = [(each.abs().amax(-1) / 127).float().double() for each in smoothed]
    return (*(integers(each / scale[:, None]) for each, scale in zip(smoothed, scales, strict=True)), x, *scales)


def quantized_alone(a: Mapping[str, Any]) -> Any:
    return integers((norm(wide(a["x"]), a["gamma"]) + wide(a["beta"])) / wide(a["scale"]) + wide(a["offset"]))


def quantized_with_rstd(a: Mapping[str, Any]) -> Any:
    x, scale = wide(a["x"]), wide(a["scale"])
    z = norm(x, a["gamma"]) + wide(a["betaOptional"])
    y = integers((z / scale if a["divMode"] else z * scale) + wide(a["offsetOptional"]))
    return y, (x.square().mean(-1) + EPSILON).rsqrt()


def odd(operator: Operator, name: str) -> Break:
    """Rows of 15 numbers."""
    names = [each for each in tensors_of(operator) if each not in (*FOUND, "scale", "offset", "offsetOptional", "rstd")]
    return Break(
        {each: {"shape": lambda old: (*old.shape[:-1], 15)} for each in names} | {name: T(D.INT4, (3, 15))}, "even last"
    )


class TestQuantizedNorms(LibraryTests):
    subject = Subject(
        quantized_norms.OPERATORS,
        calls={name: static(name.endswith("v2")) for name in STATIC}
        | {name: dynamic(name.endswith("v2")) for name in DYNAMIC}
        | {SINGLE: single, THIRD: third},
        references=dict.fromkeys(STATIC, quantized)
        | dict.fromkeys(DYNAMIC, quantized_by_rows)
        | {SINGLE: quantized_alone, THIRD: quantized_with_rstd},
        default=(D.FLOAT16, D.BF16),
        empty={
            **{
                name: {
                    each: {"shape": (3,)}
                    for each in ("gamma", *SCALES, *ZEROS, *SMOOTH, "betaOptional")
                    if each in tensors_of(BY_NAME[name])
                }
                | {each: {"shape": (0,)} for each in FOUND if name in DYNAMIC}
                for name in (*STATIC, *DYNAMIC)
            },
            SINGLE: shape((3,), "gamma", "beta") | shape((1,), "scale", "offset"),
            THIRD: shape((3,), "gamma", "betaOptional") | shape((1,), "scale", "offsetOptional") | shape((0,), "rstd"),
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.STRING, name), "data type"),
            **{
                f"same data type as {other}": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT", D.FLOAT16)
                for other in ("x", "x1", "scales1")
            },
            "data types that go together": lambda o, name: Break(
                dtype(D.BF16, *SCALES) if name == "scales1" else dtype(D.FLOAT, name), "with ACL_FLOAT16", D.FLOAT16
            ),
            "data type with x": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16 with", D.FLOAT16),
            "data type with scales": lambda o, name: Break(dtype(D.INT32, name), "ACL_INT8 with"),
            "1 to 2 dimensions": lambda o, name: Break(shape((1, 1, 16), name), "1 to 2"),
            "1 dimension": lambda o, name: Break(shape((), name), "1 dimension"),
            "1 to 8 dimensions": lambda o, name: Break(shape((), name), "1 to 8"),
            "2 to 8 dimensions": lambda o, name: Break(shape((16,), name), "2 to 8"),
            "with a zero point": lambda o, name: Break({name: None}, "an object"),
            "same shape as x1": lambda o, name: Break(shape((3, 15), name), "[3, 16]"),
            "same shape as gamma": lambda o, name: Break(shape((15,), name), "[16]"),
            "same shape as scale": lambda o, name: Break(shape((2,), name), "[1]"),
            "shape is trailing dimensions of x1": lambda o, name: Break(shape((15,), name), "[16]"),
            "shape is the last dimension of x1": lambda o, name: Break(shape((15,), name), "[16]"),
            "shape of x": lambda o, name: Break(shape((3, 15), name), "[3, 16]"),
            "shape of x1": lambda o, name: Break(shape((3, 15), name), "[3, 16]"),
            "a row": lambda o, name: Break(shape((2, 16), name), "[16] or [1, 16]"),
            "whole bytes": odd,
            "one scale, or one of each column": lambda o, name: Break(
                shape((16,), "scale", next(each for each in tensors_of(o) if each.startswith("offset"))), "[1]"
            ),
            "two values": lambda o, name: Break({name: (True,)}, "2 values"),
            "requested outputs": lambda o, name: Break({name: (True, False)}, "true at 1"),
            "with the second": lambda o, name: Break(
                {name: None} | ({"outputMask": None} if o.name.endswith("v2") else {}), "an object"
            ),
            "as many elements as rows": lambda o, name: Break(shape((4,), name), "3 elements"),
        },
        codes=dict.fromkeys(
            (
                *("same shape as x1", "same shape as gamma", "as many elements as rows"),
                *("shape is trailing dimensions of x1", "shape is the last dimension of x1"),
            ),
            561002,
        ),
    )


def tensor(array: Any) -> Tensor:
    return Tensor(D.of_numpy(array.dtype), array.shape, address=array.ctypes.data, owner=array)


def run(name: str, product: Product = Product.ATLAS_A2, **arguments: Any) -> dict[str, Array]:
    """Run an operator with arrays of ones or zeros for what is not given; return its tensors' arrays."""
    operator = BY_NAME[name]
    arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
    absent = {p.name: None for p in operator.parameters if p.optional}
    given = absent | arguments | {key: tensor(value) for key, value in arrays.items()}
    prepare(operator, given, product).run()
    return arrays


def test_the_reciprocal_root_mean_square_is_not_written_unless_it_is_asked_for() -> None:
    x, ones = np.array([[3, 4]], np.float32), np.ones(2, np.float32)
    given = {"gamma": ones, "scale": np.full(1, 0.5, np.float32), "epsilon": 0.0, "divMode": True}
    rstd = np.full(0, 7, np.float32)
    found = run(THIRD, x=x, **given, y=np.zeros((1, 2), np.int8), rstd=rstd, outputRstd=False)
    assert found["y"].tolist() == [[2, 2]]


@pytest.mark.parametrize("mask", [None, (True, False), (False, True)])
def test_results_that_are_not_wanted_are_left(mask: Any) -> None:
    x, ones = np.ones((2, 8), np.float16), np.ones(8, np.float16)
    common = {"x1": x, "x2": x, "gamma": ones, "epsilon": 0.0, "outputMask": mask, "xOut": np.zeros_like(x)}
    outputs = {name: np.full((2, 8), 5, np.int8) for name in INTEGERS}
    found = {name: np.full(2, 5, np.float32) for name in FOUND}
    got = run("add_rms_norm_dynamic_quant_v2", **common, **outputs, **found)
    for at, expected in enumerate(mask or (True, False)):
        assert set(got[INTEGERS[at]].ravel()) == {127 if expected else 5}
        assert set(got[FOUND[at]]) == {np.float32(1 / 127) if expected else 5}
    assert (got["xOut"] == 2).all()


@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_one_scale_leaves_the_second_result(product: Product) -> None:
    x, ones = np.ones((2, 8), np.float16), np.ones(8, np.float16)
    attributes = {"axis": -1, "epsilon": 0.0, "divMode": True}
    common = {"x1": x, "x2": x, "gamma": ones, "scales1": np.full(8, 0.5, np.float32), **attributes}
    for zeros in (None, np.full(8, 3, np.int32)) if product is Product.ASCEND_950 else (None,):
        outputs = {"xOut": np.zeros_like(x), **{name: np.full((2, 8), 5, np.int8) for name in INTEGERS}}
        got = run("add_rms_norm_quant", product, **common, zeroPoints2Optional=zeros, **outputs)
        assert (got["y1Out"] == 2).all()
        # A scale that is null is 1, on Ascend 950.
        assert (got["y2Out"] == (5 if zeros is None else 4)).all()


def test_a_scale_for_each_column_on_950() -> None:
    x, ones, y = np.ones((2, 8), np.float32), np.ones(8, np.float32), np.zeros((2, 1), np.int32)
    scale, zeros = 1 / np.arange(1, 9, dtype=np.float32), np.zeros(8, np.float32)
    run(SINGLE, Product.ASCEND_950, x=x, gamma=ones, beta=zeros, scale=scale, offset=zeros, epsilon=0.0, y=y)
    # Eight numbers of four bits, saturated.
    assert y.view(np.uint32)[:, 0].tolist() == [0x77654321] * 2
