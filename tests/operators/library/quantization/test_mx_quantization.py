"""Numbers in MX formats, with blocks that are quantised one number after another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import mx_quantization
from tests.cases.table import INVALID, NINE, Arguments, Change, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, LibraryTests, Subject, computed, torch
from tests.helpers.microscaling import codes, paired, quantized, scale

AT_950 = Product.ASCEND_950
ROWS, COLUMNS = 3, 70
E4M3, E5M2, E8M0 = D.FLOAT8_E4M3FN, D.FLOAT8_E5M2, D.FLOAT8_E8M0
SINGLE = ("dynamic_mx_quant", "dynamic_mx_quant_v2", "dynamic_mx_quant_v3")
DOUBLE = ("dynamic_mx_quant_with_dual_axis", "dynamic_mx_quant_with_dual_axis_v2")
SQUARE, BACK = "dynamic_block_mx_quant", "anti_mx_quant"
GROUPED = ("grouped_dynamic_mx_quant", "grouped_dynamic_mx_quant_v2")
LEVELS, SMOOTH = "dynamic_dual_level_mx_quant", "smoothScaleOptional"


def ranged(name: str) -> Arguments:
    return ({"dstTypeMax": 0.0} if "_v" in name else {}) | ({"maxLowBound": 0.5} if name.endswith("3") else {})


def single(name: str) -> Any:
    def call(d: D) -> Arguments:
        how = {"axis": -1, "roundModeOptional": None, "dstType": 36, "blocksize": 32, "scaleAlg": 1}
        results = {"yOut": T(E4M3, (ROWS, COLUMNS)), "mxscaleOut": T(E8M0, (ROWS, 2, 2))}
        return {"x": T(d, (ROWS, COLUMNS)), **how, **ranged(name), **results}

    return call


def double(name: str) -> Any:
    def call(d: D) -> Arguments:
        how = {"roundModeOptional": "rint", "dstType": 35, "scaleAlg": 0, **ranged(name)}
        results = {"y1Out": T(E5M2, (ROWS, COLUMNS)), "mxscale1Out": T(E8M0, (ROWS, 2, 2))}
        results |= {"y2Out": T(E5M2, (ROWS, COLUMNS)), "mxscale2Out": T(E8M0, (1, COLUMNS, 2))}
        return {"x": T(d, (ROWS, COLUMNS)), **how, **results}

    return call


def square(d: D) -> Arguments:
    how = {"roundModeOptional": "rint", "dstType": 36, "scaleAlg": 0, "dstTypeMax": 0.0}
    results = {"yOut": T(E4M3, (ROWS, COLUMNS)), "scale1Out": T(E8M0, (ROWS, 2, 2))}
    return {"x": T(d, (ROWS, COLUMNS)), **how, **results, "scale2Out": T(E8M0, (1, COLUMNS, 2))}


def back(d: D) -> Arguments:
    given = {"x": T(d, (ROWS, COLUMNS)), "mxscale": T(E8M0, (ROWS, 2, 2))}
    return given | {"axis": 1, "dstType": 0, "y": T(D.FLOAT, (ROWS, COLUMNS))}


def numbers(tensor: Any) -> Array:
    return tensor.double().numpy()


def powers(exponents: Array) -> Any:
    return torch.from_numpy(np.ldexp(1.0, exponents.astype(np.int64) - 127))


def along(x: Array, axis: int, of: D, **how: Any) -> tuple[Any, Any]:
    y, scales = quantized(x, axis, of, **how)
    return torch.from_numpy(np.ascontiguousarray(y)), powers(paired(scales, axis))


def by_rows(a: Mapping[str, Any]) -> Any:
    return along(numbers(a["x"]), -1, E4M3, algorithm=1, least=a.get("maxLowBound", 0.0))


def by_both(a: Mapping[str, Any]) -> Any:
    return *along(numbers(a["x"]), -1, E5M2), *along(numbers(a["x"]), -2, E5M2)


def by_squares(a: Mapping[str, Any]) -> Any:
    x = numbers(a["x"])
    parts = [quantized(x[:, at : at + 32].reshape(1, -1), 1, E4M3, size=x.size) for at in range(0, COLUMNS, 32)]
    scales = np.concatenate([each for _, each in parts], 1)
    y = np.concatenate([each.reshape(ROWS, -1) for each, _ in parts], 1)
    columns = np.repeat(scales, 32, 1)[:, :COLUMNS]
    return torch.from_numpy(y), powers(paired(np.repeat(scales, ROWS, 0), 1)), powers(paired(columns, 0))


def by_powers(a: Mapping[str, Any]) -> Any:
    factors = a["mxscale"].double().reshape(ROWS, -1).repeat_interleave(32, 1)[:, :COLUMNS]
    return a["x"].double() * factors


def scales_of_any_size(name: str, argument: str, array: Array) -> Array:
    if argument != "mxscale":
        return array
    return np.arange(120, 120 + array.size, dtype=np.uint8).reshape(array.shape).view(array.dtype)


FORMAT_NZ: Change = {"format": Format.FORMAT_FRACTAL_NZ}


def four_bits(operator: Operator, name: str) -> Change:
    """Four bits in the place of eight, in another shape for the input."""
    results = [p.name for p in operator.parameters if p.name.startswith("y")]
    odd = {"shape": lambda old: (*old.shape[:-1], 69)}
    if operator.name == BACK:
        return {"x": {"dtype": D.FLOAT4_E2M1, **odd}, "y": odd}
    change: dict[str, Any] = {each: {"dtype": D.FLOAT4_E2M1, **odd} for each in results} | {"x": odd}
    return change | {"dstType": 40, "scaleAlg": 0} | ({"maxLowBound": 0.0} if operator.name.endswith("3") else {})


def strided(operator: Operator, name: str) -> Change:
    """Four bits with gaps."""
    change = dict(four_bits(operator, name))
    for each, value in change.items():
        if isinstance(value, Mapping):
            change[each] = {key: part for key, part in value.items() if key != "shape"}
    return {each: value for each, value in change.items() if value != {}} | {
        name: Tensor(D.FLOAT4_E2M1, (ROWS, COLUMNS), (2 * COLUMNS, 1))
    }


def at_950(change: Any, expected: str) -> Any:
    def make(operator: Operator, name: str) -> Break:
        return Break(change(operator, name) if callable(change) else change, expected, product=AT_950)

    return make


def other_shape(o: Operator, name: str) -> Change:
    return shape((ROWS, 5), name)


class TestMxQuantization(LibraryTests):
    subject = Subject(
        tuple(each for each in mx_quantization.OPERATORS if each.name not in (*GROUPED, LEVELS)),
        calls={name: single(name) for name in SINGLE}
        | {name: double(name) for name in DOUBLE}
        | {SQUARE: square, BACK: back},
        references=dict.fromkeys(SINGLE, by_rows)
        | dict.fromkeys(DOUBLE, by_both)
        | {SQUARE: by_squares, BACK: by_powers},
        default=TRAINED,
        dtypes=dict.fromkeys((*DOUBLE, SQUARE), (D.FLOAT16, D.BF16)) | {BACK: (E4M3, E5M2)},
        numbers=scales_of_any_size,
        breaks={
            "data types that go together": at_950(lambda o, name: dtype(D.DOUBLE, name), "data type"),
            "format that counts as ND": at_950(lambda o, name: {name: FORMAT_NZ}, "ACL_FORMAT"),
            "allowed value": at_950(lambda o, name: {name: "ceil"}, "'floor'"),
            "rint of eight bits": at_950(lambda o, name: {name: "floor"}, "rint with ACL_FLOAT8"),
            "data type of yOut": at_950({"dstType": 2}, "36"),
            "data type of y1Out": at_950({"dstType": 2}, "35"),
            "data type of y": at_950({"dstType": 2}, "0"),
            "a multiple of 32 from 32 to 1024": at_950({"blocksize": 48}, "multiple of 32"),
            "scales of the format": at_950({"scaleAlg": 2}, "0"),
            "32": at_950({"blocksize": 64}, "32 of ACL_FLOAT"),
            **dict.fromkeys(("a range", "0, 6 or 7"), at_950({"dstTypeMax": 5.5}, "0")),
            "a bound with scaleAlg 1": at_950({"maxLowBound": -1.0}, "0 or more"),
            "1 to 7 dimensions": at_950(lambda o, name: shape(NINE, name), "1 to 7"),
            "2 to 7 dimensions": at_950(lambda o, name: shape((3,), name), "2 to 7"),
            "2 to 3 dimensions": at_950(lambda o, name: shape((3,), name), "2 to 3"),
            "no dimension of 0": at_950(lambda o, name: shape((0, COLUMNS), name), "no dimension of 0"),
            "a dimension of x": at_950({"axis": 2}, "from -2 to 1"),
            "the last dimension": at_950({"axis": 0}, "-1 or 1"),
            "even": at_950(four_bits, "an even last dimension"),
            "same shape as x": at_950(other_shape, "[3, 70]"),
            "whole bytes": at_950(strided, "contiguous ACL_FLOAT4_E2M1"),
            "shape is two for two blocks": at_950(other_shape, "2]"),
            "a block of FLOAT": at_950(
                {"x": {"shape": (3, 31)}, "yOut": {"shape": (3, 31)}, "mxscaleOut": {"shape": (3, 1, 2)}}, "32 numbers"
            ),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


def grouped(name: str) -> Any:
    further = {"scaleAlg": 1, "dstTypeMax": 0.0} if name == GROUPED[1] else {}

    def call(d: D) -> Arguments:
        how = {"groupIndex": T(D.INT32, (2,)), "roundMode": "rint", "dstType": 36, "blocksize": 32, **further}
        results = {"y": T(E4M3, (COLUMNS, 4)), "mxscale": T(E8M0, (3, 4, 2))}
        return {"x": T(d, (COLUMNS, 4)), **how, **results}

    return call


ENDS = (33, COLUMNS)


def by_groups(a: Mapping[str, Any]) -> Any:
    """The first of two groups ends in the middle of the second block; the second begins in a row of its own."""
    x, how = numbers(a["x"]), {"algorithm": a.get("scaleAlg", 0)}
    parts = [quantized(part, 0, E4M3, **how) for part in np.split(x, ENDS[:1])]
    scales = np.zeros((3, 4, 2), np.uint8)
    scales[0], scales[1] = (paired(exponents, 0)[0] for _, exponents in parts)
    return torch.from_numpy(np.concatenate([y for y, _ in parts])), powers(scales)


def ends(name: str, argument: str, array: Array) -> Array:
    return np.array(ENDS) if argument == "groupIndex" and array.shape == (2,) else array


def four(operator: Operator, change: Mapping[str, Any]) -> Change:
    return {"y": {"dtype": D.FLOAT4_E2M1}, "dstType": 40, "scaleAlg": 0, **change}


class TestGroups(LibraryTests):
    subject = Subject(
        tuple(BY_NAME[name] for name in GROUPED),
        calls={name: grouped(name) for name in GROUPED},
        references=dict.fromkeys(GROUPED, by_groups),
        default=(D.FLOAT16, D.BF16),
        numbers=ends,
        empty={name: {"groupIndex": {"shape": (1,)}, "mxscale": {"shape": (1, 3, 2)}} for name in GROUPED},
        breaks={
            "data type": at_950(lambda o, name: dtype(D.DOUBLE, name), "data type"),
            "allowed value": at_950(lambda o, name: {name: "ceil" if name == "roundMode" else 5}, ""),
            "data type of y": at_950({"dstType": 2}, "36"),
            "2 dimensions": at_950({"x": {"shape": (3,)}}, "2 dimensions"),
            "1 dimension": at_950(lambda o, name: shape((2, 1), name), "1 dimension"),
            "same shape as x": at_950(lambda o, name: shape((3, 4), name), "[70, 4]"),
            "shape is two for two blocks": at_950(lambda o, name: shape((3, 4, 1), name), "[3, 4, 2]"),
            "not empty": at_950({"groupIndex": {"shape": (0,)}, "mxscale": {"shape": (1, 4, 2)}}, "elements"),
            "whole bytes": at_950(
                lambda o, name: four(o, {name: Tensor(D.FLOAT4_E2M1, (COLUMNS, 4), (8, 1))}), "contiguous"
            ),
            "rint of eight bits": at_950({"roundMode": "floor"}, "rint with"),
            "scales of the format": at_950({"scaleAlg": 2}, "0 or 1"),
            "a range": at_950(lambda o, name: four(o, {"dstTypeMax": 5.5}), "6.0 to 12.0"),
        },
        codes=dict.fromkeys(("rint of eight bits", "scales of the format", "a range"), ACLNN_ERR_INNER_TILING_ERROR),
    )


@pytest.mark.parametrize(
    ("of", "how", "wanted"),
    [
        (E5M2, {}, {}),
        (E4M3, {"scaleAlg": 1}, {"algorithm": 1}),
        (D.FLOAT4_E2M1, {"roundMode": "round"}, {"mode": "round"}),
        (D.FLOAT4_E2M1, {"scaleAlg": 2, "dstTypeMax": 7.0}, {"algorithm": 2, "most": 7.0}),
        (D.FLOAT4_E1M2, {"scaleAlg": 2}, {"algorithm": 2, "most": 1.75}),
        (D.FLOAT4_E1M2, {"scaleAlg": 2, "dstTypeMax": 2.5}, {"algorithm": 2, "most": 2.5}),
    ],
)
def test_blocks_end_with_their_group(of: D, how: Arguments, wanted: Arguments) -> None:
    bounds = [0, 0, 31, 96, 96, 200]
    x = np.random.default_rng(8).normal(size=(200, 6)).astype(np.float16)
    y = np.empty(x.size // (2 if of >= D.FLOAT4_E2M1 else 1), np.uint8)
    scales = np.empty((200 // 64 + len(bounds) - 1, 6, 2), np.uint8)
    index = np.array(bounds[1:], np.int32)
    given = {"roundMode": "rint", "dstType": int(of), "blocksize": 32, "scaleAlg": 0, "dstTypeMax": 0.0} | how
    given |= {
        "x": Tensor(D.FLOAT16, x.shape, address=x.ctypes.data),
        "groupIndex": Tensor(D.INT32, index.shape, address=index.ctypes.data),
        "y": Tensor(of, x.shape, address=y.ctypes.data),
        "mxscale": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
    }
    prepare(BY_NAME[GROUPED[1]], given, AT_950).run()
    parts = []
    for group, (begin, end) in enumerate(pairwise(bounds)):
        numbers, exponents = quantized(x[begin:end], 0, of, **wanted)
        parts.append(numbers)
        pairs = paired(exponents, 0)
        assert np.array_equal(scales[begin // 64 + group :][: len(pairs)], pairs)
    assert np.array_equal(y, stored(np.concatenate(parts), of).reshape(-1))


def levels(d: D) -> Arguments:
    how = {"roundModeOptional": "rint", "level0BlockSize": 512, "level1BlockSize": 32}
    results = {"yOut": T(D.FLOAT4_E2M1, (2, 600)), "level0ScaleOut": T(D.FLOAT, (2, 2))}
    return {"x": T(d, (2, 600)), SMOOTH: T(d, (600,)), **how, **results, "level1ScaleOut": T(E8M0, (2, 10, 2))}


class TestTwoLevels(LibraryTests):
    subject = Subject(
        (BY_NAME[LEVELS],),
        calls={LEVELS: levels},
        references={},
        default=(D.FLOAT16, D.BF16),
        elsewhere=(LEVELS,),
        empty={
            LEVELS: {
                "yOut": {"shape": (0, 4)},
                "level0ScaleOut": {"shape": (0, 1)},
                "level1ScaleOut": {"shape": (0, 1, 2)},
            }
        },
        breaks={
            "data types that go together": at_950(lambda o, name: dtype(D.DOUBLE, name), "data type"),
            "format that counts as ND": at_950(lambda o, name: {name: FORMAT_NZ}, "ACL_FORMAT"),
            "allowed value": at_950(lambda o, name: {name: "ceil" if name.startswith("round") else 64}, ""),
            "1 to 7 dimensions": at_950(lambda o, name: shape(NINE, name), "1 to 7"),
            "no dimension of 0": at_950(lambda o, name: shape((0, 4), name), "no dimension of 0"),
            "even": at_950(lambda o, name: shape((2, 599), name), "an even last"),
            "same shape as x": at_950(lambda o, name: shape((2, 598), name), "[2, 600]"),
            "whole bytes": at_950(lambda o, name: {name: Tensor(D.FLOAT4_E2M1, (2, 600), (1200, 1))}, "contiguous"),
            "shape is one for each block": at_950(lambda o, name: shape((2, 1), name), "[2, 2]"),
            "shape is two for two blocks": at_950(lambda o, name: shape((2, 1, 2), name), "[2, 10, 2]"),
            "same data type as x": at_950(lambda o, name: dtype(D.FLOAT, name), "ACL_FLOAT16"),
            "shape is one for each column": at_950(lambda o, name: shape((2, 300), name), "[600]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("mode", ["rint", "round", "floor"])
@pytest.mark.parametrize("given", [D.FLOAT16, D.BF16])
def test_dual_level_scales_match_the_definition(given: D, mode: str, smooth: bool) -> None:
    random = np.random.default_rng(9)
    x = random.normal(size=(2, 600)).astype(given.numpy)
    x[0, :40], x[1, 512:] = 0, 0
    by = random.normal(size=600).astype(given.numpy)
    y, wide, scales = np.empty(600, np.uint8), np.empty((2, 2), np.float32), np.empty((2, 10, 2), np.uint8)
    arguments = {"roundModeOptional": mode, "level0BlockSize": 512, "level1BlockSize": 32}
    arguments |= {
        "x": Tensor(given, x.shape, address=x.ctypes.data),
        SMOOTH: Tensor(given, by.shape, address=by.ctypes.data) if smooth else None,
        "yOut": Tensor(D.FLOAT4_E2M1, x.shape, address=y.ctypes.data),
        "level0ScaleOut": Tensor(D.FLOAT, wide.shape, address=wide.ctypes.data),
        "level1ScaleOut": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
    }
    prepare(BY_NAME[LEVELS], arguments, AT_950).run()
    product = (x.astype(np.float32) * by.astype(np.float32)).astype(given.numpy) if smooth else x
    for row in range(2):
        for at in range(2):
            part = product[row, 512 * at : 512 * at + 512].astype(np.float32)
            level = np.float32(np.abs(part).max()) * np.float32(1 / 6)
            assert wide[row, at] == level
            quotients = np.zeros_like(part) if level == 0 else (part / level).astype(given.numpy).astype(np.float32)
            numbers, exponents = quantized(quotients, 0, D.FLOAT4_E2M1, mode)
            found = y.reshape(2, 300)[row, 256 * at : 256 * at + 256]
            negative = np.where(part == 0, np.copysign(0, part), numbers)
            assert np.array_equal(found, codes(negative, D.FLOAT4_E2M1))
            assert scales[row].reshape(-1)[16 * at :][: len(exponents)].tolist() == exponents.tolist()


def test_elements_that_are_not_finite_do_not_affect_wide_scales() -> None:
    x = np.ones((1, 64), np.float16)
    x[0, 0], x[0, 1] = np.inf, 2
    y, wide, scales = np.empty(32, np.uint8), np.empty((1, 1), np.float32), np.empty((1, 1, 2), np.uint8)
    arguments = {"roundModeOptional": None, "level0BlockSize": 512, "level1BlockSize": 32, SMOOTH: None}
    arguments |= {
        "x": Tensor(D.FLOAT16, x.shape, address=x.ctypes.data),
        "yOut": Tensor(D.FLOAT4_E2M1, x.shape, address=y.ctypes.data),
        "level0ScaleOut": Tensor(D.FLOAT, wide.shape, address=wide.ctypes.data),
        "level1ScaleOut": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
    }
    prepare(BY_NAME[LEVELS], arguments, AT_950).run()
    assert wide == np.float32(2) * np.float32(1 / 6)
    assert scales.tolist() == [[[255, 126]]]
    assert not y[:16].any()
    assert (y[16:] == 0x77).all()


def arguments(x: Array, of: D, axis: int = -1, size: int = 32, **how: Any) -> Arguments:
    """Of the third version; an output of four bits is in bytes."""
    y = np.empty(x.size // 2 if of >= D.FLOAT4_E2M1 else x.shape, np.uint8)
    pairs = list(x.shape)
    pairs[axis] = -(-x.shape[axis] // (2 * size))
    tensors = {"x": x, "y": y, "scales": np.empty((*pairs, 2), np.uint8)}
    given = {"axis": axis, "roundModeOptional": "rint", "dstType": int(of), "blocksize": size, "scaleAlg": 0}
    return tensors | given | {"dstTypeMax": 0.0, "maxLowBound": 0.0} | how


def found(x: Array, of: D, **how: Any) -> tuple[Array, Array]:
    """The bytes of the numbers and those of the scales."""
    given = arguments(x, of, **how)
    y, scales = given.pop("y"), given.pop("scales")
    given |= {
        "x": Tensor(D.of_numpy(x.dtype), x.shape, address=x.ctypes.data),
        "yOut": Tensor(of, x.shape, address=y.ctypes.data),
        "mxscaleOut": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
    }
    prepare(BY_NAME["dynamic_mx_quant_v3"], given, AT_950).run()
    return y, scales


def stored(numbers: Array, of: D) -> Array:
    return codes(numbers, of) if of >= D.FLOAT4_E2M1 else numbers.astype(of.numpy).view(np.uint8)


HALVES = np.arange(1 << 16, dtype=np.uint16)
FORMATS = (E4M3, E5M2, D.FLOAT4_E2M1, D.FLOAT4_E1M2)


@pytest.mark.parametrize("of", FORMATS)
@pytest.mark.parametrize("algorithm", [0, 1, 2])
@pytest.mark.parametrize("given", [D.BF16, D.FLOAT16])
def test_every_block_maximum_has_the_defined_scale(given: D, algorithm: int, of: D) -> None:
    if algorithm not in {E4M3: (0, 1), E5M2: (0, 1), D.FLOAT4_E2M1: (0, 2)}.get(of, (0,)):
        return
    x = HALVES.view(given.numpy)
    blocks = np.zeros((x.size, 2), given.numpy)
    blocks[:, 0] = x
    _, scales = found(blocks, of, scaleAlg=algorithm)
    with np.errstate(invalid="ignore"):
        short = x.astype(np.float32).astype(D.BF16.numpy) if algorithm == 2 else x
    expected = [scale(each, of, algorithm) for each in short.reshape(-1, 1)]
    assert scales[:, 0, 0].tolist() == expected
    assert not scales[:, 0, 1].any()


@pytest.mark.parametrize("of", FORMATS)
@pytest.mark.parametrize("mode", ["rint", "round", "floor"])
@pytest.mark.parametrize("largest", [1.0, 1.25, -1.9921875])
def test_every_number_of_a_block_is_rounded_as_defined(largest: float, mode: str, of: D) -> None:
    if mode != "rint" and of in (E4M3, E5M2):
        return
    x = HALVES.view(D.BF16.numpy).astype(np.float32)
    x = x[(np.abs(x) <= abs(largest)) & (np.abs(x) > 2.0**-24)]
    x = np.resize(x, (-(-x.size // 31), 31))
    blocks = np.concatenate((np.full((len(x), 1), largest), x), 1).astype(D.BF16.numpy)
    y, scales = found(blocks, of, roundModeOptional=mode)
    numbers, exponents = quantized(blocks, -1, of, mode)
    assert np.array_equal(y, stored(numbers, of))
    assert np.array_equal(scales, paired(exponents, -1))


@pytest.mark.parametrize("axis", [-3, -2, 1, 2])
@pytest.mark.parametrize("extent", [1, 31, 32, 33, 64, 65, 97])
@pytest.mark.parametrize("size", [32, 64])
def test_blocks_at_the_end_of_any_dimension(axis: int, extent: int, size: int) -> None:
    dims = [2, 3, 4]
    dims[axis] = extent
    if axis == 2:
        dims[axis] += extent % 2
    x = (np.random.default_rng(extent).normal(size=dims) * np.arange(1, 1 + dims[0])[:, None, None]).astype(np.float16)
    for of in (E4M3, D.FLOAT4_E2M1):
        y, scales = found(x, of, axis=axis, size=size)
        numbers, exponents = quantized(x, axis, of, size=size)
        assert np.array_equal(y.reshape(-1), stored(numbers, of).reshape(-1))
        assert np.array_equal(scales, paired(exponents, axis))


@pytest.mark.parametrize("most", [6.0, 7.0, 8.0, 9.5, 12.0])
def test_dst_type_max_limits_the_range_of_four_bits(most: float) -> None:
    x = np.random.default_rng(3).normal(size=(200, 32)).astype(D.BF16.numpy)
    y, scales = found(x, D.FLOAT4_E2M1, scaleAlg=2, dstTypeMax=most)
    numbers, exponents = quantized(x, -1, D.FLOAT4_E2M1, algorithm=2, most=most)
    assert np.array_equal(y, stored(numbers, D.FLOAT4_E2M1))
    assert np.array_equal(scales, paired(exponents, -1))


def test_range_of_float_cuts_the_largest_number() -> None:
    x = np.zeros((3, 32), np.float32)
    x[:, 0] = [1.5, np.nextafter(np.float32(1.5), np.float32(2)), 1.5078125]
    _, scales = found(x, D.FLOAT4_E2M1, scaleAlg=2)
    assert scales[:, 0, 0].tolist() == [125, 125, 126]


def test_max_low_bound_applies_to_blocks_that_are_not_zero() -> None:
    x = np.zeros((3, 32), np.float32)
    x[1:, 0] = [1e-3, 900]
    _, scales = found(x, E4M3, scaleAlg=1, maxLowBound=448.0)
    assert scales[:, 0, 0].tolist() == [0, 127, 129]


@pytest.mark.parametrize("of", FORMATS)
def test_nan_and_infinity_make_a_block_nan(of: D) -> None:
    x = np.ones((2, 66), np.float32)
    x[0, 3], x[1, 40] = np.nan, -np.inf
    y, scales = found(x, of)
    lone = 127 - {E4M3: 8, E5M2: 15, D.FLOAT4_E2M1: 2}.get(of, 0)
    assert scales.tolist() == [[[255, lone], [lone, 0]], [[lone, 255], [lone, 0]]]
    numbers = np.full(x.shape, 2.0 ** (127 - lone))
    numbers[0, :32] = numbers[1, 32:64] = 0
    assert np.array_equal(y.reshape(-1), stored(numbers, of).reshape(-1))


@pytest.mark.parametrize("of", FORMATS)
def test_anti_mx_quant_restores_numbers(of: D) -> None:
    x = np.random.default_rng(4).normal(size=(3, 70)).astype(np.float32)
    y, scales = found(x, of)
    restored = np.empty(x.shape, np.float32)
    given = {
        "x": Tensor(of, x.shape, address=y.ctypes.data),
        "mxscale": Tensor(E8M0, scales.shape, address=scales.ctypes.data),
        "y": Tensor(D.FLOAT, x.shape, address=restored.ctypes.data),
    }
    prepare(BY_NAME[BACK], given | {"axis": -1, "dstType": 0}, AT_950).run()
    numbers, exponents = quantized(x, -1, of)
    assert np.array_equal(restored, numbers * np.ldexp(1.0, np.repeat(exponents, 32, -1)[:, :70].astype(int) - 127))


EXAMPLE = np.array([[0, 16640, 17024, 17408]], np.uint16).view(D.BF16.numpy)


def test_dynamic_mx_quant_reproduces_the_documents_examples() -> None:
    for name in SINGLE:
        results = {"yOut": np.empty((1, 4), E4M3.numpy), "mxscaleOut": np.empty((1, 1, 2), E8M0.numpy)}
        given = single(name)(D.BF16) | {"x": EXAMPLE, **results}
        out = computed(name, given, AT_950)
        assert out["yOut"].view(np.uint8).tolist() == [[0, 72, 96, 120]]
        assert out["mxscaleOut"].view(np.uint8).tolist() == [[[128, 0]]]
    results = {"yOut": np.empty((1, 4), E4M3.numpy)}
    results |= {"scale1Out": np.empty((1, 1, 2), E8M0.numpy), "scale2Out": np.empty((1, 4, 2), E8M0.numpy)}
    out = computed(SQUARE, square(D.BF16) | {"x": EXAMPLE, **results}, AT_950)
    assert out["yOut"].view(np.uint8).tolist() == [[0, 72, 96, 120]]
    assert out["scale1Out"].view(np.uint8).tolist() == [[[128, 0]]]
    assert out["scale2Out"].view(np.uint8).tolist() == [[[128, 0]] * 4]
