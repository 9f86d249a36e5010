"""Integers of 4 bits of matrices between two factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.quantization import flat_quant
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, LibraryTests, Placed, Subject, computed, torch, wide

NAME, MATRICES, CLIP = "flat_quant", (3, 4, 16), 0.8


def _quantised(a: Mapping[str, Any]) -> Any:
    found = wide(a["kroneckerP1"]) @ wide(a["x"]) @ wide(a["kroneckerP2"])
    scales = (found.abs().amax((1, 2)) * CLIP / 7).float()
    integers = (found / wide(scales)[:, None, None]).round().clamp(-8, 7).to(torch.int64) & 15
    words = (integers.unflatten(-1, (2, 8)) << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words), scales


class TestFlatQuant(LibraryTests):
    subject = Subject(
        flat_quant.OPERATORS[:1],
        calls={
            NAME: lambda d: {
                "x": T(d, MATRICES),
                "kroneckerP1": T(d, (4, 4)),
                "kroneckerP2": T(d, (16, 16)),
                "clipRatio": CLIP,
                "out": T(D.INT32, (3, 4, 2)),
                "quantScale": T(D.FLOAT, (3,)),
            }
        },
        references={NAME: _quantised},
        default=(D.FLOAT16, D.BF16),
        # Empty tensors are rejected.
        empty={
            NAME: {"kroneckerP1": {"shape": (1, 1)}, "kroneckerP2": {"shape": (8, 8)}, "quantScale": {"shape": (1,)}}
            | shape((1, 1, 8), "x")
            | shape((1, 1, 1), "out")
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.INT64, name), "ACL_"),
            "same data type as x": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16", D.FLOAT16),
            "3 dimensions": lambda o, name: Break(shape((4, 16), name), "3 dimensions"),
            "matrices with a kernel": lambda o, name: Break(shape((3, 257, 16), name), "at most 256"),
            "whole integers": lambda o, name: Break(shape((3, 4, 12), name), "a multiple of 8 columns"),
            "shape is rows by rows": lambda o, name: Break(shape((4, 5), name), "[4, 4]"),
            "shape is columns by columns": lambda o, name: Break(shape((16, 8), name), "[16, 16]"),
            "shape is one for each matrix": lambda o, name: Break(shape((4,), name), "[3]"),
            "shape of x": lambda o, name: Break(shape((3, 4, 16), name), "an eighth in ACL_INT32"),
            "whole bytes": lambda o, name: Break({name: T(D.INT4, (3, 4, 15))}, "an even last dimension"),
            "more than 0, at most 1": lambda o, name: Break({name: 0.0}, "more than 0, at most 1"),
        },
    )


@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_ones_become_the_largest_integers(product: Product) -> None:
    """torch_npu's test of npu_kronecker_quant has ones alone, whose products are whole numbers."""
    x, left, right = (np.ones(of, np.float16) for of in ((2, 7, 16), (7, 7), (16, 16)))
    given = {"x": x, "kroneckerP1": left, "kroneckerP2": right, "clipRatio": 1.0}
    outs = {"out": np.zeros((2, 7, 2), np.int32), "quantScale": np.zeros(2, np.float32)}
    found = computed(NAME, given | outs, product)
    assert np.unique(found["out"]).tolist() == [0x77777777]
    assert found["quantScale"].tolist() == [16, 16]


def test_integers_share_a_byte() -> None:
    given = {"x": np.array([[[4, -8]]]), "kroneckerP1": np.ones((1, 1)), "kroneckerP2": np.eye(2)}
    placed = {name: Placed(array.astype(np.float16), "contiguous") for name, array in given.items()}
    room, scale = Placed(np.zeros(8, np.uint8), "contiguous"), Placed(np.zeros(1, np.float32), "contiguous")
    out = Tensor(D.INT4, (1, 1, 2), address=room.tensor.address, owner=room.memory)
    call = {name: each.tensor for name, each in placed.items()} | {"clipRatio": 0.875, "quantScale": scale.tensor}
    prepare(BY_NAME[NAME], call | {"out": out}, Product.ATLAS_A2).run()
    assert (room.view[0], scale.view.tolist()) == (0x84, [1.0])


ROTATE = "rotate_quant"


def _rotate_call(d: D, rows: int = 3) -> Arguments:
    return {
        "x": T(d, (rows, 16)),
        "rotation": T(d, (4, 4)),
        "alpha": None,
        "axis": -1,
        "roundMode": "rint",
        "scaleAlg": 0,
        "dstTypeMax": 0.0,
        "trans": False,
        "yOut": T(D.INT8, (rows, 16)),
        "scaleOut": T(D.FLOAT, (rows,)),
    }


def _rotated(a: Mapping[str, Any]) -> Any:
    found = (wide(a["x"]).unflatten(-1, (-1, 4)) @ wide(a["rotation"])).flatten(-2)
    scales = (found.abs().amax(-1) / 127).float()
    return (found / wide(scales)[:, None]).round(), scales


class TestRotation(LibraryTests):
    subject = Subject(
        flat_quant.OPERATORS[1:],
        calls={ROTATE: _rotate_call},
        references={ROTATE: _rotated},
        default=(D.FLOAT16, D.BF16),
        empty={ROTATE: _rotate_call(D.FLOAT16, 0)},
        breaks={
            "data type": lambda o, name: Break(dtype(D.INT64, name), "ACL_"),
            "same data type as x": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16", D.FLOAT16),
            "2 dimensions": lambda o, name: Break(shape((16,), name), "2 dimensions"),
            "whole rows of K": lambda o, name: Break(shape((3, 3), name), "a divisor of a multiple of 8"),
            "shape is a square": lambda o, name: Break(shape((2, 4), name), "[4, 4]"),
            "shape of x": lambda o, name: Break(shape((3, 8), name), "[3, 16]"),
            "shape is one for each row": lambda o, name: Break(shape((4,), name), "[3]"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT"),
            "null": lambda o, name: Break({name: T(D.BF16, (1,))}, "null"),
            "allowed value": lambda o, name: Break({name: "ceil" if name == "roundMode" else 2}, ""),
            "'rint' with a kernel": lambda o, name: Break({name: "floor"}, "'rint'"),
        },
        codes={"'rint' with a kernel": ACLNN_ERR_INNER_NULLPTR},
    )


def test_eight_integers_share_a_word_and_rows_of_zeros_stay() -> None:
    x = np.zeros((2, 8), np.float16)
    x[0] = [7, -7, 1, 2, 3, -4, 5, 6]
    call = _rotate_call(D.FLOAT16) | {"x": x, "rotation": np.eye(8, dtype=np.float16), "roundMode": None, "axis": 1}
    outs = {"yOut": np.full((2, 1), 9, np.int32), "scaleOut": np.zeros(2, np.float32)}
    found = computed(ROTATE, call | outs)
    assert [f"{word & 0xFFFFFFFF:08x}" for word in found["yOut"].ravel().tolist()] == ["65c32197", "00000000"]
    assert found["scaleOut"].tolist() == [1, 0]
