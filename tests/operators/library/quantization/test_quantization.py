"""Integers of few bits, and the scales of their products."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import quantization
from tests.cases.table import NINE, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, torch, wide

X, COLUMNS = (4, 16), (16,)
GROUPS = 3
STATIC = ("ascend_quant", "ascend_quant_v3")
DYNAMIC = ("dynamic_quant", *(f"dynamic_quant_v{version}" for version in (2, 3, 4)))
SCALES = ("trans_quant_param_v2", "trans_quant_param_v3")
SMOOTH, ENDS = "smoothScalesOptional", "groupIndexOptional"
AT_950 = Product.ASCEND_950


def divided(d: D) -> Arguments:
    factors = {"scales": T(d, COLUMNS), "zeroPoints": T(D.INT32, COLUMNS)}
    return {"x": T(d, X), **factors, "dtype": D.UINT8, "axis": 1, "out": T(D.UINT8, X)}


def static(d: D) -> Arguments:
    factors = dict.fromkeys(("scale", "offset"), T(d, COLUMNS))
    return {"x": T(d, X), **factors, "sqrtMode": True, "roundMode": "round", "dstType": 2, "y": T(D.INT8, X)}


def dynamic(name: str) -> Any:
    def call(d: D) -> Arguments:
        version = int(name[-1]) if name[-1].isdigit() else 1
        grouped = {} if version == 1 else {ENDS: T(D.INT32, (GROUPS,)), "dstType": 2, "offsetOut": T(D.FLOAT, X[:1])}
        modes = {"isSymmetrical": False, "quantMode": "pertoken"} if version > 2 else {}
        arguments = {"x": T(d, X), SMOOTH: T(d, (*(GROUPS,) * (version > 1), *COLUMNS)), **grouped, **modes}
        arguments |= {"dstTypeMax": 0.0} if version > 3 else {}
        return arguments | {"yOut": T(D.INT8, X), "scaleOut": T(D.FLOAT, X[:1])}

    return call


def restored(d: D) -> Arguments:
    factors = dict.fromkeys(("scale", "offset"), T(D.FLOAT, COLUMNS))
    return {"x": T(d, X), **factors, "dstType": 1, "sqrtMode": False, "y": T(D.FLOAT16, X)}


def scales(name: str) -> Any:
    mode = {"roundMode": 1} if name.endswith("3") else {}
    return lambda d: {"scale": T(d, COLUMNS), "offset": T(d, COLUMNS), **mode, "out": T(D.UINT64, COLUMNS)}


CALLS = (
    {"quantize": divided, "ascend_quant": static, "ascend_anti_quant": restored}
    | {"ascend_quant_v3": lambda d: static(d) | {"axis": -1}}
    | {name: dynamic(name) for name in DYNAMIC}
    | {name: scales(name) for name in SCALES}
)


def quantized_to_static(a: Mapping[str, Any]) -> Any:
    factor = wide(a["scale"]) ** (2 if a["sqrtMode"] else 1)
    return torch.round(wide(a["x"]) * factor + wide(a["offset"])).clamp(-128, 127)


def rows_of(factors: Any) -> Any:
    return wide(factors)[[0, 0, 2, 2]] if factors.ndim > 1 else wide(factors)


def quantized_dynamically(a: Mapping[str, Any]) -> Any:
    numbers = wide(a["x"]) * rows_of(a[SMOOTH])
    if "offsetOut" not in a:
        scale = (numbers.abs().amax(-1, keepdim=True) / 127).float().double()
        return torch.round(numbers / scale), scale[:, 0]
    most, least = numbers.amax(-1, keepdim=True), numbers.amin(-1, keepdim=True)
    scale = ((most - least) / 255).float().double()
    offset = (127 - most / scale).float().double()
    return torch.round(numbers / scale + offset).clamp(-128, 127), scale[:, 0], offset[:, 0]


def bits_of(a: Mapping[str, Any]) -> Any:
    found = []
    for scale, offset in zip(a["scale"].tolist(), a["offset"].tolist(), strict=True):
        (bits,) = struct.unpack("<I", struct.pack("<f", scale))
        low = bits % (1 << 13)
        up = low > 1 << 12 or (low == 1 << 12 and bits >> 13 & 1)
        bits = bits - low + (up << 13 if a.get("roundMode") else 0)
        found.append(bits + (1 << 46) + ((round(offset) % 512) << 37))
    return torch.tensor(found, dtype=torch.int64)


REFERENCES = (
    {
        "quantize": lambda a: torch.round(wide(a["x"]) / wide(a["scales"]) + wide(a["zeroPoints"])).clamp(0, 255),
        "ascend_anti_quant": lambda a: (wide(a["x"]) + wide(a["offset"])) * wide(a["scale"]),
    }
    | dict.fromkeys(STATIC, quantized_to_static)
    | dict.fromkeys(DYNAMIC, quantized_dynamically)
    | dict.fromkeys(SCALES, bits_of)
)


def numbers(operator: str, name: str, array: Array) -> Array:
    """Groups of which one is empty."""
    return np.array([2, 2, 4], array.dtype) if name == ENDS else array


def on_product(operator: Operator) -> Product:
    return Product.ATLAS_A2 if Product.ATLAS_A2 in operator.support else AT_950


def broken(change: Mapping[str, Any], expected: str, d: D | None = None) -> Any:
    return lambda operator, name: Break(change, expected, d, on_product(operator))


def result_of(operator: Operator) -> str:
    return next(name for name in ("yOut", "y", "out") if name in {p.name for p in operator.parameters})


def whole_bytes(operator: Operator, name: str) -> Break:
    """Rows of 15 numbers."""
    names = [p.name for p in operator.parameters if p.is_tensor and p.name not in (ENDS, "scaleOut", "offsetOut")]
    change: dict[str, Any] = {key: {"shape": lambda old: (*old.shape[:-1], 15)} for key in names}
    change[name] = {"shape": (4, 15), "dtype": D.INT4}
    if "dstType" in {p.name for p in operator.parameters} and operator.name in STATIC:
        change["dstType"] = 29
    return Break(change, "an even last dimension", None, on_product(operator))


class TestQuantization(LibraryTests):
    subject = Subject(
        quantization.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=dict.fromkeys(("quantize", *STATIC), (D.FLOAT, D.FLOAT16))
        | dict.fromkeys(DYNAMIC, (D.FLOAT16, D.BF16))
        | dict.fromkeys(SCALES, (D.FLOAT,))
        | {"ascend_anti_quant": (D.INT8,)},
        numbers=numbers,
        empty={
            "quantize": {"scales": {"shape": (3,)}, "zeroPoints": {"shape": (3,)}},
            **dict.fromkeys((*STATIC, "ascend_anti_quant"), shape((3,), "scale", "offset")),
            "dynamic_quant": {SMOOTH: {"shape": (3,)}, "scaleOut": {"shape": (0,)}},
            **dict.fromkeys(
                DYNAMIC[1:],
                {SMOOTH: {"shape": (GROUPS, 3)}, ENDS: {"shape": (GROUPS,)}} | shape((0,), "scaleOut", "offsetOut"),
            ),
            # They take no empty tensor.
            **dict.fromkeys(SCALES, shape(COLUMNS, "scale", "offset", "out")),
        },
        breaks={
            "present": lambda o, name: Break({name: None}, "an object", None, on_product(o)),
            "data type": lambda o, name: Break(dtype(D.STRING, name), "data type", None, on_product(o)),
            "at least 1 dimension": lambda o, name: Break(shape((), name), "at least 1"),
            "1 dimension": lambda o, name: Break(shape((1, 16), name), "1 dimension", None, on_product(o)),
            "1 to 2 dimensions": lambda o, name: Break(shape((1, 1, 16), name), "1 to 2"),
            "2 to 8 dimensions": lambda o, name: Break(shape((16,), name), "2 to 8", None, on_product(o)),
            "no dimension of 0": lambda o, name: Break(shape((0,), name), "no dimension of 0"),
            "at most 8 dimensions": lambda o, name: Break(shape(NINE, name, result_of(o)), "at most 8 dimensions"),
            "broadcasts with scale": lambda o, name: Break(shape((15,), name), "broadcasts with"),
            "shape is that of scales and offsets": lambda o, name: Break(shape((1, 16), name), "[16]"),
            "same data type as scale": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT"),
            "same data type as x": lambda o, name: Break(dtype(D.BF16, name), "FLOAT16", D.FLOAT16, on_product(o)),
            "data type of x": broken(dtype(D.FLOAT, "scale", "offset"), "ACL_FLOAT16", D.FLOAT16),
            "data type of y": lambda o, name: Break({name: 3}, "(that of y)"),
            "data type of out": lambda o, name: Break({name: D.INT8}, "(that of out)"),
            "BF16 together": lambda o, name: Break(
                dtype(D.BF16, *[each for each in ("x", "scales", "zeroPoints") if each != name]), "ACL_BF16"
            ),
            "one of each along the axis": lambda o, name: Break(
                {"axis": 2} if name == "axis" else shape((4,), "scales", "zeroPoints"),
                "from -2 to 1" if name == "axis" else "1 or 16",
            ),
            "one of the last dimensions": lambda o, name: Break({name: 2}, "[-2, -1, 0, 1]"),
            "shape of x": lambda o, name: Break(shape((4, 8), name), "[4, 16]", None, on_product(o)),
            "shape of y": lambda o, name: Break(shape((4, 8), name), "[4, 16]"),
            "whole bytes": whole_bytes,
            "same shape as x": lambda o, name: Break(shape((16, 4), name), "[4, 16]"),
            "same shape as scale": lambda o, name: Break(shape((1,), name), "[16]"),
            "same shape as scales": lambda o, name: Break(shape((1,), name), "[16]"),
            "shape of factors": lambda o, name: Break(
                shape((3,), "scale", "offset"), "[1] or [16]" if o.name == "ascend_anti_quant" else "[1], [16]"
            ),
            "allowed value": lambda o, name: Break(
                {name: "none" if name != "roundMode" or o.name in STATIC else 2},
                "0 or 1" if o.name in SCALES else "'pertoken'" if name == "quantMode" else "'round'",
                None,
                on_product(o),
            ),
            "where isSymmetrical says": lambda o, name: Break({name: None}, "an object", None, on_product(o)),
            "none in perchannel": lambda o, name: Break({"quantMode": "perchannel"}, "null", None, on_product(o)),
            "few groups": lambda o, name: Break(shape((1025,), name), "1 to 1024", None, on_product(o)),
            "shape is one for each column": lambda o, name: Break(shape((15,), name), "16]", None, on_product(o)),
            "shape is one for each scale": lambda o, name: Break(shape((16,), name), "[4]", None, on_product(o)),
            **dict.fromkeys(
                ("with groups", "tiled with groups"),
                lambda o, name: Break({name: None}, "an object", None, on_product(o)),
            ),
        },
        codes={"tiled with groups": 561002},
    )


def tensor(array: Any, of: D | None = None, dims: tuple[int, ...] | None = None) -> Tensor:
    array = np.ascontiguousarray(array)
    return Tensor(of or D.of_numpy(array.dtype), dims or array.shape, address=array.ctypes.data, owner=array)


def run(name: str, product: Product = Product.ATLAS_A2, **arguments: Any) -> None:
    operator = BY_NAME[name]
    absent = {p.name: None for p in operator.parameters if p.optional}
    prepare(operator, absent | arguments, product).run()


def nibbles(stored: Array) -> list[int]:
    """The numbers of bytes, the first of each in its lower half."""
    halves = np.stack([stored.view(np.uint8) & 15, stored.view(np.uint8) >> 4], -1).astype(np.int8).ravel()
    return [int(each) - 16 * (each > 7) for each in halves]


def test_quantize_reproduces_the_documents_example() -> None:
    x = np.array([[0.3382, -0.0919], [0.7564, 0.0234], [3.1024, 1.0761], [0.4228, 1.4621]], np.float32)
    out = np.zeros((4, 2), np.int32)
    scales, zeros = tensor(np.array([1.0, -3.0], np.float32)), tensor(np.array([2, 10], np.int32))
    run("quantize", x=tensor(x), scales=scales, zeroPoints=zeros, dtype=D.INT32, axis=1, out=tensor(out))
    assert out.tolist() == [[2, 10], [3, 10], [5, 10], [2, 10]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("round", [-2, -2, 0, 0, 2, 2, 7, -8]),
        ("floor", [-3, -2, -1, 0, 1, 2, 7, -8]),
        ("ceil", [-2, -1, 0, 1, 2, 3, 7, -8]),
        ("trunc", [-2, -1, 0, 0, 1, 2, 7, -8]),
    ],
)
@pytest.mark.parametrize("of", [D.INT4, D.INT32])
def test_eight_numbers_of_4_bits_share_an_int32(mode: str, expected: list[int], of: D) -> None:
    x = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 100.0, -100.0]], np.float32)
    y = np.zeros(4, np.uint8)
    out = tensor(y, D.INT4, (1, 8)) if of == D.INT4 else tensor(y.view(np.int32), dims=(1, 1))
    one = tensor(np.ones(1, np.float32))
    run("ascend_quant", x=tensor(x), scale=one, sqrtMode=False, roundMode=mode, dstType=of, y=out)
    assert nibbles(y) == expected
    back = np.zeros((1, 8), np.float16)
    run("ascend_anti_quant", x=out, scale=one, dstType=D.FLOAT16, sqrtMode=True, y=tensor(back))
    assert back.tolist() == [expected]


def test_scales_may_lie_along_the_last_dimension_but_one() -> None:
    x, factors = np.ones((2, 3, 4), np.float32), np.array([1, 2, 3], np.float32)
    for axis, scale in ((-2, factors), (1, factors), (-2, factors.reshape(1, 3, 1))):
        y = np.zeros((2, 3, 4), np.int8)
        quantize = {"sqrtMode": False, "roundMode": "round", "dstType": D.INT8, "axis": axis}
        run("ascend_quant_v3", x=tensor(x), scale=tensor(scale), **quantize, y=tensor(y))
        assert (y == factors.astype(int)[:, None]).all()
        back = np.zeros((2, 3, 4), np.float16)
        restore = {"x": tensor(y), "scale": tensor(scale), "dstType": D.FLOAT16, "sqrtMode": False, "y": tensor(back)}
        run("ascend_anti_quant", AT_950, **restore)
        assert (back == factors[:, None] ** 2).all()
    with pytest.raises(AclnnError, match=r"scale: expected shape \[1\] or \[4\], got \[1, 3, 1\]"):
        run("ascend_anti_quant", **restore)


@pytest.mark.parametrize("mode", ["pertoken", "perchannel", "pertensor"])
@pytest.mark.parametrize("of", [D.INT8, D.INT32])
def test_elements_may_share_a_scale(mode: str, of: D) -> None:
    x = np.random.default_rng(7).normal(size=(2, 4, 8)).astype(np.float16)
    smooth = np.arange(1, 5 if mode == "perchannel" else 9).astype(np.float16)
    numbers = x.astype(float) * (smooth[:, None] if mode == "perchannel" else smooth).astype(float)
    most, axis = 127 if of == D.INT8 else 7, {"pertoken": 2, "perchannel": 1, "pertensor": None}[mode]
    expected = (np.abs(numbers).max(axis, keepdims=True) / most).astype(np.float32)
    scale = np.zeros((1,) if axis is None else expected.squeeze(axis).shape, np.float32)
    y = np.zeros((2, 4, 8) if of == D.INT8 else (2, 4, 1), of.numpy)
    quantize = {"dstType": of, "isSymmetrical": True, "quantMode": mode, "dstTypeMax": 0.0}
    outputs = {"yOut": tensor(y), "scaleOut": tensor(scale)}
    run("dynamic_quant_v4", AT_950, x=tensor(x), smoothScalesOptional=tensor(smooth), **quantize, **outputs)
    assert scale.ravel().tolist() == expected.ravel().tolist()
    got = y.ravel().tolist() if of == D.INT8 else nibbles(y)
    assert got == np.rint(numbers / expected).ravel().tolist()


def test_rows_of_zeros_stay_and_have_no_scale() -> None:
    y, scale = np.ones((2, 8), np.int8), np.ones(2, np.float32)
    run("dynamic_quant", x=tensor(np.zeros((2, 8), np.float16)), yOut=tensor(y), scaleOut=tensor(scale))
    assert not y.any()
    assert not scale.any()


def test_bits_of_a_scale_are_cut_off_or_rounded_to_even() -> None:
    bits = np.array([0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF], np.uint32)
    for mode, expected in ((0, [0, 0x2000, 0, 0]), (1, [0, 0x4000, 0x2000, 0])):
        out = np.zeros(4, np.int64)
        run("trans_quant_param_v3", scale=tensor(bits.view(np.float32)), roundMode=mode, out=tensor(out))
        assert (out - (1 << 46) - 0x3F800000).tolist() == expected


def test_a_quantized_parameter_keeps_scale_and_offset() -> None:
    out = np.zeros(5, np.uint64)
    offsets = np.array([-1000.0, -2.5, 0.0, 1.0, 1000.0], np.float32)
    run("trans_quant_param_v2", scale=tensor(np.array([0.5], np.float32)), offset=tensor(offsets), out=tensor(out))
    scale, offset = quantization.product_scale(out)
    assert scale.tolist() == [0.5] * 5
    assert offset.tolist() == [-256, -2, 0, 1, 255]


def test_empty_tensors_need_no_groups() -> None:
    """Empty tensors without groups were rejected."""
    call = {"x": tensor(np.zeros((0, 8), np.float16)), "smoothScalesOptional": tensor(np.zeros((0, 8), np.float16))}
    call |= {
        "groupIndexOptional": tensor(np.zeros(0, np.int32)),
        "dstType": 2,
        "yOut": tensor(np.zeros((0, 8), np.int8)),
    }
    run("dynamic_quant_v2", **call, scaleOut=tensor(np.zeros(0, np.float32)))
