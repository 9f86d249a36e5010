"""Matrices quantised by blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library import block_quantization
from tests.cases.table import INVALID, NINE, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, LibraryTests, Subject, computed, torch, wide

NAME = "dynamic_block_quant"
NUMBERS: Arguments = {"roundModeOptional": "rint", "dstType": 2, "rowBlockSize": 1, "colBlockSize": 128}


def _call(d: D) -> Arguments:
    return NUMBERS | {
        "x": T(d, (3, 130)),
        "minScale": 0.25,
        "yOut": T(D.INT8, (3, 130)),
        "scaleOut": T(D.FLOAT, (3, 2)),
    }


def _blocks(a: Mapping[str, Any]) -> tuple[Any, ...]:
    parts = wide(a["x"]).double().split(128, -1)
    scales = [(part.abs().amax(-1, keepdim=True) / 127).clamp(max=4).float() for part in parts]
    return torch.cat([(part / of).round() for part, of in zip(parts, scales, strict=True)], -1), torch.cat(scales, -1)


class TestBlockQuantization(LibraryTests):
    subject = Subject(
        block_quantization.OPERATORS,
        calls={NAME: _call},
        references={NAME: _blocks},
        default=TRAINED,
        empty={NAME: {"yOut": {"shape": (0, 3)}, "scaleOut": {"shape": (0, 1)}}},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"
            ),
            "0 or more": lambda o, name: Break({name: -1.0}, "0 or more"),
            "allowed value": lambda o, name: Break({name: "round"}, "rint"),
            "size of a block": lambda o, name: Break({name: 64}, "1"),
            "data type of yOut": lambda o, name: Break({name: 36}, "2"),
            "2 to 3 dimensions": lambda o, name: Break(shape(NINE, name), "2 to 3"),
            "no dimension of 0": lambda o, name: Break(shape((0, 130), name), "no dimension of 0"),
            "same shape as x": lambda o, name: Break(shape((3, 7), name), "[3, 130]"),
            "shape is one for each block": lambda o, name: Break(shape((3, 1), name), "[3, 2]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
    )


@pytest.mark.parametrize("least", [0.0, 16.0])
def test_blocks_have_rows_on_950(least: float) -> None:
    x = np.random.default_rng(5).normal(size=(2, 100, 70)).astype(np.float32) * 9
    x[1, :64, :64] = 0
    given = NUMBERS | {"x": x, "minScale": least, "rowBlockSize": 64, "colBlockSize": 64}
    given |= {"yOut": np.empty(x.shape, np.int8), "scaleOut": np.empty((2, 2, 2), np.float32)}
    found = computed(NAME, given, Product.ASCEND_950)
    for place in np.ndindex(2, 2, 2):
        block = (place[0], *(slice(64 * at, 64 * at + 64) for at in place[1:]))
        scale = np.float32(np.abs(x[block]).max() / 127)
        scale = min(scale, np.float32(1 / 16)) if least else scale
        assert found["scaleOut"][place] == pytest.approx(scale)
        expected = np.clip(np.rint(x[block] / np.float64(scale or 1)), -128, 127)
        assert np.abs(found["yOut"][block] - expected).max() <= 1
