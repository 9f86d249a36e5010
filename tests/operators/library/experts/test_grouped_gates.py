"""SwiGLU of products of groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import grouped_gates
from aclnn.operators.library.quantization.four_bits import packed
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Placed, Subject, computed, torch, wide

NAME = "grouped_matmul_swiglu_quant_weight_nz"
PLAIN = NAME.removesuffix("_weight_nz")
SECOND = (f"{PLAIN}_v2", f"{NAME}_v2")
LISTS = ("weight", "weightScale", "weightAssistMatrix")
FLOAT, INT8 = D.FLOAT, D.INT8


def _call(d: D) -> Arguments:
    return {
        "x": T(INT8, (5, 3)),
        "weight": T(INT8, (2, 3, 4)),
        **dict.fromkeys(("bias", "offset", "outputOffset")),
        "weightScale": T(FLOAT, (2, 4)),
        "xScale": T(FLOAT, (5,)),
        "groupList": T(D.INT64, (2,)),
        "output": T(INT8, (5, 2)),
        "outputScale": T(FLOAT, (5,)),
    }


def _in_blocks(d: D) -> Arguments:
    return _call(d) | {"weight": T(INT8, (2, 1, 1, 16, 32), Format.FORMAT_FRACTAL_NZ)}


def _in_lists(call: Arguments) -> Arguments:
    """Return the call of the second version."""
    call = {name: each for name, each in call.items() if name not in ("offset", "outputOffset")}
    call["weightAssistMatrix"] = call["bias"]
    lists = {name: None if call[name] is None else (call[name],) for name in LISTS}
    numbers = dict.fromkeys(("dequantMode", "dequantDtype", "quantMode", "groupListType"), 0)
    return call | lists | numbers | dict.fromkeys(("bias", "smoothScale", "tuningConfig"))


#: A call with rows and weights of four bits, in the second version.
ROWS_OF_FOUR_BITS: Mapping[str, Any] = {
    "x": T(D.INT4, (5, 4)),
    "weight": (T(D.INT32, (2, 4, 1)),),
    "weightScale": (T(D.UINT64, (2, 8)),),
    "output": T(INT8, (5, 4)),
}

#: A call with weights of four bits, eight in an INT32.
FOUR_BITS: Mapping[str, Any] = {
    "weight": T(D.INT32, (2, 3, 1)),
    "weightScale": T(D.UINT64, (2, 8)),
    "bias": T(FLOAT, (2, 8)),
    "output": T(INT8, (5, 4)),
}


def _gated(a: Mapping[str, Any]) -> tuple[Any, ...]:
    x, weight = wide(a["x"]).double(), wide(a["weight"]).double()
    if weight.ndim == 5:
        weight = weight[:, 0, 0, :3, :4]
    parts = [x[rows] @ weight[at] * wide(a["weightScale"])[at] for at, rows in enumerate((slice(1), slice(1, 4)))]
    left, right = (torch.cat(parts) * wide(a["xScale"])[:4, None]).chunk(2, -1)
    y = torch.nn.functional.silu(left) * right
    scale = y.abs().amax(-1) / 127
    whole = (y / scale[:, None]).round()
    return torch.cat([whole, wide(a["output"])[4:]]), torch.cat([scale, wide(a["outputScale"])[4:]])


def _ends(operator: Operator, name: str, array: Any) -> Any:
    return np.array([1, 4]) if name == "groupList" else array


class TestGroupedGates(LibraryTests):
    subject = Subject(
        grouped_gates.OPERATORS[:2],
        calls={NAME: _call, PLAIN: _in_blocks},
        references=dict.fromkeys((NAME, PLAIN), _gated),
        default=(INT8,),
        left=("outputOffset",),
        numbers=_ends,
        empty={
            name: {
                "x": {"shape": (0, 3)},
                "weight": {"shape": of},
                "weightScale": {"shape": (2, 4)},
                "groupList": {"shape": (2,)},
                **{name: {"shape": (0,)} for name in ("xScale", "outputScale")},
                **dict.fromkeys(("bias", "offset", "outputOffset")),
                "output": {"shape": (0, 2)},
            }
            for name, of in ((NAME, (2, 3, 4)), (PLAIN, (2, 1, 1, 16, 32)))
        },
        breaks={
            "null": lambda o, name: Break({name: T(FLOAT, (2, 4))}, "null"),
            "present": lambda o, name: Break({**(FOUR_BITS if name == "bias" else {}), name: None}, "an object"),
            "data type": lambda o, name: Break(
                {**FOUR_BITS, name: T(D.DOUBLE, (2, 8))} if name == "bias" else dtype(D.DOUBLE, name), "ACL_"
            ),
            "data type with weight": lambda o, name: Break(
                dtype(D.UINT64, name), "ACL_FLOAT, ACL_FLOAT16 or ACL_BF16 with ACL_INT8"
            ),
            "no private format": lambda o, name: Break(
                {**FOUR_BITS, name: T(FLOAT, (2, 8), Format.FORMAT_FRACTAL_NZ)}
                if name == "bias"
                else {name: {"format": Format.FORMAT_FRACTAL_NZ}},
                "ACL_FORMAT",
            ),
            "blocks": lambda o, name: Break({name: T(INT8, (2, 3, 4))}, "ACL_FORMAT_FRACTAL_NZ of ACL_INT8"),
            "scales of parts": lambda o, name: Break({**FOUR_BITS, name: T(D.UINT64, (2, 2, 8))}, "a divisor of 3"),
            "whole bytes": lambda o, name: Break(
                {**FOUR_BITS, name: Tensor(D.INT4, (2, 3, 8), (48, 16, 1))}, "contiguous"
            ),
            "shape is a row of each group": lambda o, name: Break({**FOUR_BITS, name: T(FLOAT, (2, 4))}, "[2, 8]"),
            "2 to 3 dimensions": lambda o, name: Break(shape((4,), name), "2 to 3"),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2"),
            "3 to 5 dimensions": lambda o, name: Break(shape((3, 4), name), "3 to 5"),
            "1 dimension": lambda o, name: Break(shape((2, 1), name), "1"),
            "no dimension of 0": lambda o, name: Break(
                shape(((0, 3, 4) if o.name == NAME else (0, 1, 1, 16, 32)) if name == "weight" else (0, 4), name),
                "no dimension of 0",
            ),
            "shape": lambda o, name: Break(
                shape((2, 4, 3) if o.name == NAME else (2, 1, 1, 32, 16), name),
                "[2, 3, 4] or, in blocks, [2, 1, 1, 16, 32]",
            ),
            "short rows": lambda o, name: Break(
                {name: {"shape": (5, 1 << 16)}}
                | shape((2, 1 << 16, 4) if o.name == NAME else (2, 1, 1 << 12, 16, 32), "weight"),
                "65535 columns",
            ),
            "few columns": lambda o, name: Break(
                shape((2, 5), name) | (shape((2, 3, 5), "weight") if o.name == NAME else {}),
                "even number of at most 10240",
            ),
            "few groups": lambda o, name: Break(shape((3,), name), "2 groups"),
            "shape is a factor for each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "shape is half of the products": lambda o, name: Break(shape((5, 4), name), "[5, 2]"),
        },
    )


def _second_break(o: Operator, name: str, title: str) -> Break:
    """Return a violation of the first version's check in the lists of the second."""
    broken = TestGroupedGates.subject.breaks[title](BY_NAME[o.name.removesuffix("_v2")], _first_name(name))
    call = changed((_call if NAME in o.name else _in_blocks)(FLOAT), broken.change)
    return Break(_in_lists(call), broken.expected)


def _first_name(name: str) -> str:
    return "bias" if name == "weightAssistMatrix" else name


OF_BOTH = tuple(title for title in TestGroupedGates.subject.breaks if title not in ("null", "present"))


class TestSecondVersion(LibraryTests):
    subject = Subject(
        grouped_gates.OPERATORS[2:],
        calls={
            SECOND[0]: lambda d: _in_lists(_in_blocks(d)),
            SECOND[1]: lambda d: _in_lists(_call(d)),
        },
        references=dict.fromkeys(
            SECOND,
            lambda a: _gated(a | {name: a[name][0] for name in LISTS[:2]}),
        ),
        default=(INT8,),
        numbers=_ends,
        empty={
            name: _in_lists(
                (_call if NAME in name else _in_blocks)(FLOAT)
                | {"x": T(INT8, (0, 3)), "output": T(INT8, (0, 2))}
                | dict.fromkeys(("xScale", "outputScale"), T(FLOAT, (0,)))
            )
            for name in SECOND
        },
        breaks={
            **{title: lambda o, name, title=title: _second_break(o, name, title) for title in OF_BOTH},
            "data type": lambda o, name: (
                Break(ROWS_OF_FOUR_BITS | {name: T(D.DOUBLE, (2,))}, "ACL_FLOAT")
                if name == "smoothScale"
                else _second_break(o, name, "data type")
            ),
            "no private format": lambda o, name: (
                Break(ROWS_OF_FOUR_BITS | {name: T(FLOAT, (2,), Format.FORMAT_FRACTAL_NZ)}, "ACL_FORMAT")
                if name == "smoothScale"
                else _second_break(o, name, "no private format")
            ),
            "whole bytes": lambda o, name: (
                Break(ROWS_OF_FOUR_BITS | {name: Tensor(D.INT4, (5, 4), (8, 1))}, "contiguous")
                if name == "x"
                else _second_break(o, name, "whole bytes")
            ),
            "four bits with x": lambda o, name: Break({"x": T(D.INT4, (5, 4))}, "with ACL_INT4"),
            "factors of groups": lambda o, name: Break(ROWS_OF_FOUR_BITS | {name: T(FLOAT, (2, 8))}, "[2] or [2, 4]"),
            "one tensor": lambda o, name: Break({name: (T(FLOAT, (2, 4)),) * 2}, "one tensor"),
            "no null among them": lambda o, name: Break({name: (None,)}, "an object"),
            "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
            "null": lambda o, name: Break({name: (T(FLOAT, (2, 4)),) if name in LISTS else T(FLOAT, (2, 4))}, "null"),
            "present": lambda o, name: (
                Break(_in_lists(_call(FLOAT) | FOUR_BITS | {"bias": None}), "an object")
                if name == "weightAssistMatrix"
                else Break({name: None}, "an object")
            ),
        },
    )


def test_group_list_may_give_sizes() -> None:
    random = np.random.default_rng(5)
    call = _in_lists(_call(FLOAT)) | {"groupListType": 1}
    x, weight = random.integers(-9, 9, (5, 3), np.int8), random.integers(-9, 9, (2, 3, 4), np.int8)
    factors = random.random((2, 4), np.float32)
    rows = {"x": x, "xScale": np.full(5, 0.01, np.float32), "groupList": np.array([1, 3])}
    outs = {"output": np.full((5, 2), 7, np.int8), "outputScale": np.zeros(5, np.float32)}
    found = computed(SECOND[1], call | rows | outs | {"weight": (weight,), "weightScale": (factors,)})
    integers, scale = _compute(weight, (1, 4), x, factors)
    np.testing.assert_array_equal(found["output"], integers)
    np.testing.assert_array_equal(found["outputScale"], scale)


def test_weights_of_4_bits_may_come_in_lists() -> None:
    random = np.random.default_rng(6)
    x, weight = random.integers(-128, 128, (3, 16), np.int8), random.integers(-8, 8, (1, 16, 16), np.int8)
    factors = np.full((1, 16), 0.25, np.float32)
    words = packed(weight).view(np.int32)
    bits, assistant = factors.view(np.uint32).astype(np.uint64), (8 * weight.sum(1) * factors).astype(np.float32)
    rows = {"x": x, "xScale": np.full(3, 0.01, np.float32), "groupList": np.array([3])}
    outs = {"output": np.zeros((3, 8), np.int8), "outputScale": np.zeros(3, np.float32)}
    lists = {"weight": (words,), "weightScale": (bits,), "weightAssistMatrix": (assistant,)}
    found = computed(SECOND[0], _in_lists(_call(FLOAT)) | rows | outs | lists)
    expected = _compute(words, (3,), x, bits, assistant)
    for name, values in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("smooth", [None, (2,), (2, 64)])
@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("parts", [None, 2])
def test_rows_of_4_bits_are_smoothed(smooth: tuple[int, ...] | None, words: bool, parts: int | None) -> None:
    """The published example of aclnnGroupedMatmulSwigluQuantWeightNzV2 has x and weight in INT32, and smoothScale."""
    random = np.random.default_rng(7)
    x, weight = random.integers(-8, 8, (6, 32), np.int8), random.integers(-8, 8, (2, 32, 128), np.int8)
    factors = np.exp2(random.integers(-6, -2, (2, parts or 1, 128))).astype(np.float32)
    bits = factors.view(np.uint32).astype(np.uint64)
    stored = weight.reshape(2, 2, 16, 2, 64).transpose(0, 3, 1, 2, 4)
    held = [packed(np.ascontiguousarray(of)) for of in (x, stored)]
    held = [of.view(np.int32) for of in held] if words else held
    forms = (Format.FORMAT_ND, Format.FORMAT_FRACTAL_NZ)
    rows, blocks = (
        Tensor(D.INT32 if words else D.INT4, of.shape if words else n.shape, address=of.ctypes.data, owner=of, format=f)
        for of, n, f in zip(held, (x, stored), forms, strict=True)
    )
    smoothing = None if smooth is None else random.random(smooth, np.float32)
    arrays = {"xScale": np.full(6, 0.01, np.float32), "groupList": np.array([2, 5])}
    arrays |= {"output": np.full((6, 64), 7, np.int8), "outputScale": np.zeros(6, np.float32)}
    arrays |= {"weightScale": bits if parts else bits[:, 0]} | ({} if smooth is None else {"smoothScale": smoothing})
    placed = {name: Placed(of, "contiguous") for name, of in arrays.items()}
    call = _in_lists(_call(FLOAT)) | {name: of.tensor for name, of in placed.items()}
    call |= {"x": rows, "weight": (blocks,), "weightScale": (placed["weightScale"].tensor,)}
    prepare(BY_NAME[SECOND[1]], call, Product.ATLAS_A2).run()
    scaled = weight * np.repeat(factors, 32 // (parts or 1), 1)
    total = np.concatenate([x[:2].astype(float) @ scaled[0], x[2:5].astype(float) @ scaled[1]]) * np.float32(0.01)
    left, right = np.split(total, 2, -1)
    expected = left / (1 + np.exp(-left)) * right
    if smoothing is not None:
        expected *= smoothing.reshape(2, -1)[[0, 0, 1, 1, 1]]
    found, scale = placed["output"].view, placed["outputScale"].view
    np.testing.assert_allclose(scale[:5], np.abs(expected).max(-1) / 127, rtol=1e-6)
    assert np.abs(found[:5] - expected / scale[:5, None]).max() < 0.51
    assert (found[5] == 7).all()


def _compute(weight: Any, ends: tuple[int, ...], x: Any, factors: Any, bias: Any = None, name: str = NAME) -> Any:
    """The integers and their scales, of numbers of four bits in the bytes or the words that ``weight`` has."""
    arrays = {"x": x, "weightScale": factors, "xScale": np.full(len(x), 0.01, np.float32)}
    arrays |= {"groupList": np.array(ends), "output": np.full((len(x), factors.shape[-1] // 2), 7, np.int8)}
    arrays |= {"outputScale": np.zeros(len(x), "f4")} | ({} if bias is None else {"bias": bias})
    arrays |= {} if isinstance(weight, Tensor) else {"weight": weight}
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items()}
    given = dict.fromkeys(("bias", "offset", "outputOffset")) | {"weight": weight}
    prepare(BY_NAME[name], given | {name: of.tensor for name, of in placed.items()}, Product.ATLAS_A2).run()
    return placed["output"].view, placed["outputScale"].view


def test_weights_may_lie_in_blocks_or_by_strides() -> None:
    random = np.random.default_rng(3)
    x, weight = random.integers(-9, 9, (6, 40), np.int8), random.integers(-9, 9, (2, 40, 96), np.int8)
    factors = random.random((2, 96), np.float32)
    padded = np.zeros((2, 48, 96), np.int8)
    padded[:, :40] = weight
    blocks = padded.reshape(2, 3, 16, 3, 32).transpose(0, 3, 1, 2, 4)
    found, scale = _compute(blocks, (2, 5), x, factors)
    for of, expected in zip((found, scale), _compute(weight, (2, 5), x, factors), strict=True):
        np.testing.assert_array_equal(of, expected)
    assert (found[5] == 7).all()
    assert np.abs(found[:5].astype(int)).max(-1).tolist() == [127] * 5


def test_rows_of_zeros_give_zeros_and_groups_may_be_empty() -> None:
    x, weight = np.zeros((3, 3), np.int8), np.ones((3, 3, 4), np.int8)
    x[2] = 1
    found, scale = _compute(weight, (0, 3), x, np.ones((3, 4), np.float32))
    assert found.tolist() == [[0, 0], [0, 0], [127, 127]]
    assert scale[:2].tolist() == [0, 0]


def test_group_list_ends_must_lie_within_the_rows() -> None:
    with pytest.raises(AclnnError, match=r"groupList\[1\]: expected an end from 1, .* to 3, got 4"):
        _compute(np.ones((2, 3, 4), np.int8), (1, 4), np.ones((3, 3), np.int8), np.ones((2, 4), np.float32))


@pytest.mark.parametrize("parts", [None, 2])
@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("name", [NAME, PLAIN])
def test_weights_of_4_bits_are_multiplied_with_their_offset(
    name: str, words: bool, in_blocks: bool, parts: int | None
) -> None:
    """The bias that programs compute from the weights restores the offset subtracted from x."""
    random = np.random.default_rng(4)
    x, weight = random.integers(-128, 128, (6, 32), np.int8), random.integers(-8, 8, (2, 32, 128), np.int8)
    factors = np.exp2(random.integers(-6, -2, (2, parts or 1, 128))).astype(np.float32)
    scaled = weight * np.repeat(factors, 32 // (parts or 1), 1)
    stored = weight.reshape(2, 2, 16, 2, 64).transpose(0, 3, 1, 2, 4) if in_blocks else weight
    held = packed(np.ascontiguousarray(stored))
    held = held.view(np.int32) if words else held
    shape = held.shape if words else stored.shape
    form = Format.FORMAT_FRACTAL_NZ if in_blocks else Format.FORMAT_ND
    dtype = D.INT32 if words else D.INT4
    tensor = Tensor(dtype, shape, address=held.ctypes.data, owner=held, format=form)
    bits = factors.view(np.uint32).astype(np.uint64)
    bits, bias = bits if parts else bits[:, 0], (8 * scaled.sum(1)).astype(np.float32)
    found, scale = _compute(tensor, (2, 5), x, bits, bias, name)
    total = np.concatenate([x[:2].astype(float) @ scaled[0], x[2:5].astype(float) @ scaled[1]]) * np.float32(0.01)
    left, right = np.split(total, 2, -1)
    expected = left / (1 + np.exp(-left)) * right
    np.testing.assert_allclose(scale[:5], np.abs(expected).max(-1) / 127, rtol=1e-6)
    assert np.abs(found[:5] - expected / scale[:5, None]).max() < 0.51
    assert (found[5] == 7).all()
