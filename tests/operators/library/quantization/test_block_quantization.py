"""Matrices quantised by blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.quantization import block_quantization
from tests.cases.table import INVALID, NINE, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, torch, wide
from tests.helpers.microscaling import MAGNITUDES, nearest

NAME = "dynamic_block_quant"
SINGLE, GROUPED = (NAME, f"{NAME}_v2"), (f"grouped_{NAME}", f"grouped_{NAME}_v2")
GROUPS, AT_950 = "groupList", Product.ASCEND_950
NUMBERS: Arguments = {"roundModeOptional": "rint", "dstType": 2, "rowBlockSize": 1, "colBlockSize": 128}


def _call(name: str) -> Any:
    grouped, version = name in GROUPED, {"dstTypeMax": 0.0} if name.endswith("2") else {}

    def call(d: D) -> Arguments:
        of_groups = {GROUPS: T(D.INT32, (2,)), "groupListType": 0, "dstType": 35} if grouped else {}
        return (
            NUMBERS
            | version
            | of_groups
            | {
                "x": T(d, (3, 130)),
                "minScale": 0.25,
                "yOut": T(D.FLOAT8_E5M2 if grouped else D.INT8, (3, 130)),
                "scaleOut": T(D.FLOAT, (5 if grouped else 3, 2)),
            }
        )

    return call


def _scaled(a: Mapping[str, Any], most: float) -> tuple[list[Any], list[Any]]:
    parts = wide(a["x"]).double().split(128, -1)
    return [*parts], [(part.abs().amax(-1, keepdim=True) / most).clamp(max=4).float() for part in parts]


def _blocks(a: Mapping[str, Any]) -> tuple[Any, ...]:
    parts, scales = _scaled(a, 127)
    return torch.cat([(part / of).round() for part, of in zip(parts, scales, strict=True)], -1), torch.cat(scales, -1)


def _groups(a: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of groups that end after one row and after three; those of the second begin after one of the first."""
    parts, scales = _scaled(a, 57344)
    quotients = torch.cat([part / of for part, of in zip(parts, scales, strict=True)], -1)
    y = [nearest(number, D.FLOAT8_E5M2) for number in quotients.flatten().tolist()]
    scale = torch.zeros(5, 2)
    scale[[0, 2, 3]] = torch.cat(scales, -1)
    return torch.tensor(y).reshape(3, 130), scale


def _ends(operator: str, name: str, array: Any) -> Any:
    return np.array([1, 3]) if name == GROUPS and array.shape == (2,) else array


def _break(change: Any, expected: Any) -> Any:
    """Those of groups are of Ascend 950."""

    def make(operator: Operator, name: str) -> Break:
        grouped = operator.name in GROUPED
        text = expected[grouped] if isinstance(expected, tuple) else expected
        return Break(change(name), text, product=AT_950 if grouped else Product.ATLAS_A2)

    return make


class TestBlockQuantization(LibraryTests):
    subject = Subject(
        block_quantization.OPERATORS,
        calls={name: _call(name) for name in (*SINGLE, *GROUPED)},
        references=dict.fromkeys(SINGLE, _blocks) | dict.fromkeys(GROUPED, _groups),
        default=TRAINED,
        dtypes=dict.fromkeys(GROUPED, (D.FLOAT16, D.BF16)),
        numbers=_ends,
        empty={name: {"yOut": {"shape": (0, 3)}, "scaleOut": {"shape": (0, 1)}} for name in (*SINGLE, *GROUPED)},
        breaks={
            "data types that go together": _break(lambda name: dtype(D.DOUBLE, name), "ACL_"),
            "format that counts as ND": _break(lambda name: {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "a finite number, 0 or more": _break(lambda name: {name: -1.0}, "0 or more"),
            "allowed value": _break(lambda name: {name: "round" if name.startswith("round") else 1}, ""),
            "size of a block": _break(lambda name: {name: 63}, "1"),
            "data type of yOut": _break(lambda name: {name: 36}, ("2", "35")),
            "0 (others are of HIFLOAT8)": _break(lambda name: {name: 15.0}, "0"),
            "2 to 3 dimensions": _break(lambda name: shape(NINE, name), "2 to 3"),
            "1 dimension": _break(lambda name: shape((2, 1), name), "1 dimension"),
            "no dimension of 0": _break(
                lambda name: shape((0,) if name == GROUPS else (0, 130), name), "no dimension of 0"
            ),
            "same shape as x": _break(lambda name: shape((3, 7), name), "[3, 130]"),
            "shape is one for each block": _break(lambda name: shape((3, 1), name), ("[3, 2]", "[5, 2]")),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


@pytest.mark.parametrize("of", [D.FLOAT8_E4M3FN, D.FLOAT8_E5M2])
@pytest.mark.parametrize("name", SINGLE)
def test_blocks_are_quantized_to_8_bits_on_ascend_950(name: str, of: D) -> None:
    x = np.random.default_rng(6).normal(size=(3, 100)).astype(np.float32)
    x[2] = 0
    given = (
        NUMBERS | ({"dstTypeMax": 0.0} if name.endswith("2") else {}) | {"x": x, "minScale": 0.0, "dstType": int(of)}
    )
    given |= {"yOut": np.empty(x.shape, of.numpy), "scaleOut": np.empty((3, 1), np.float32)}
    found = computed(name, given, AT_950)
    scale = (np.abs(x).max(1, keepdims=True) / MAGNITUDES[of][-1]).astype(np.float32)
    assert np.array_equal(found["scaleOut"], scale)
    quotients = np.divide(x.astype(float), scale, out=np.zeros(x.shape), where=scale > 0)
    expected = np.array([nearest(number, of) for number in quotients.flat]).reshape(x.shape)
    assert np.array_equal(found["yOut"].astype(float), expected)
    assert np.abs(expected[:2]).max(1).tolist() == [MAGNITUDES[of][-1]] * 2


@pytest.mark.parametrize(("ends", "text"), [([1, 4], "from 0 to 3"), ([2, 1], "do not decrease")])
def test_groups_that_do_not_match_rows_are_rejected(ends: list[int], text: str) -> None:
    given = _call(GROUPED[0])(D.FLOAT16) | {"x": np.ones((3, 130), np.float16), GROUPS: np.array(ends, np.int32)}
    given |= {"yOut": np.empty((3, 130), D.FLOAT8_E5M2.numpy), "scaleOut": np.empty((5, 2), np.float32)}
    with pytest.raises(AclnnError, match=text):
        computed(GROUPED[0], given, AT_950)


@pytest.mark.parametrize("name", GROUPED)
def test_rows_behind_the_last_group_become_zeros(name: str) -> None:
    """The task failed with the numbers of CANN's example program, one row of four in the only group."""
    x = np.arange(1, 9, dtype=np.uint16).reshape(4, 2).view(np.float16)
    given = _call(name)(D.FLOAT16) | {"x": x, GROUPS: np.array([1], np.int32), "minScale": 0.0}
    given |= {"rowBlockSize": 1, "colBlockSize": 128}
    given |= {"yOut": np.ones(x.shape, D.FLOAT8_E5M2.numpy), "scaleOut": np.ones((5, 1), np.float32)}
    found = computed(name, given, AT_950)
    assert found["yOut"].astype(float).tolist() == [[28672, 57344], [0, 0], [0, 0], [0, 0]]
    assert found["scaleOut"].ravel().tolist() == [np.float32(2**-23 / 57344), 0, 0, 0, 0]


def test_blocks_of_groups_end_with_them() -> None:
    x = np.random.default_rng(7).normal(size=(2, 300, 64)).astype(np.float16)
    ends = np.array([0, 129, 129, 300], np.int32)
    sizes = {"rowBlockSize": 128, "colBlockSize": 64, "dstType": 36, "minScale": 0.0}
    given = _call(GROUPED[0])(D.FLOAT16) | sizes | {"x": x, GROUPS: ends}
    given |= {"yOut": np.empty(x.shape, D.FLOAT8_E4M3FN.numpy), "scaleOut": np.empty((2, 6, 1), np.float32)}
    scale = computed(GROUPED[0], given, AT_950)["scaleOut"]
    for place, (begin, end) in {1: (0, 128), 2: (128, 129), 4: (129, 257), 5: (257, 300)}.items():
        expected = (np.abs(x[:, begin:end].astype(float)).max((1, 2)) / 448).astype(np.float32)
        assert np.array_equal(scale[:, place, 0], expected), place


@pytest.mark.parametrize("least", [0.0, 16.0])
def test_blocks_have_rows_on_ascend_950(least: float) -> None:
    x = np.random.default_rng(5).normal(size=(2, 100, 70)).astype(np.float32) * 9
    x[1, :64, :64] = 0
    given = NUMBERS | {"x": x, "minScale": least, "rowBlockSize": 64, "colBlockSize": 64}
    given |= {"yOut": np.empty(x.shape, np.int8), "scaleOut": np.empty((2, 2, 2), np.float32)}
    found = computed(NAME, given, AT_950)
    for place in np.ndindex(2, 2, 2):
        block = (place[0], *(slice(64 * at, 64 * at + 64) for at in place[1:]))
        scale = np.float32(np.abs(x[block]).max() / 127)
        scale = min(scale, np.float32(1 / 16)) if least else scale
        assert found["scaleOut"][place] == pytest.approx(scale)
        expected = np.clip(np.rint(x[block] / np.float64(scale or 1)), -128, 127)
        assert np.abs(found["yOut"][block] - expected).max() <= 1
