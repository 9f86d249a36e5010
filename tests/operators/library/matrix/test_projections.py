"""Operators after the projections of an attention layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.operators.library.matrix import projections
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Array, Break, LibraryTests, Subject, computed, wide

SPLIT, LORA = "transform_bias_rescale_qkv", "add_lora"
PARTS = ("qOut", "kOut", "vOut")
B, T_, HEADS, SIZE = 2, 3, 4, 5
COLUMNS = 3 * HEADS * SIZE


def _split_call(d: D, samples: int = B) -> Arguments:
    outs = dict.fromkeys(PARTS, T(d, (samples, HEADS, T_, SIZE)))
    return {"qkv": T(d, (samples, T_, COLUMNS)), "qkvBias": T(d, (COLUMNS,)), "numHeads": HEADS, **outs}


def _split(a: Mapping[str, Any]) -> Any:
    """PyTorch's own function of three dimensions more."""
    parts = (wide(a["qkv"]) + wide(a["qkvBias"])).chunk(3, -1)
    query, key, value = (part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for part in parts)
    return query / SIZE**0.5, key, value


def _lora_call(d: D, rows: int = 5) -> Arguments:
    return {
        "y": T(d, (rows, 64)),
        "x": T(d, (rows, 48)),
        "weightB": T(d, (3, 2, 32, 16)),
        "indices": T(D.INT32, (rows,)),
        "weightAOptional": T(d, (3, 2, 16, 48)),
        "layerIdx": 1,
        "scale": 0.25,
        "yOffset": 16,
        "ySliceSize": 32,
        "out": T(d, (rows, 64)),
    }


INDICES = np.array([2, -1, 0, 3, 2])


def _added(a: Mapping[str, Any]) -> Any:
    out = wide(a["y"]).clone()
    for row, group in enumerate(a["indices"].tolist()):
        if 0 <= group < 3:
            part = wide(a["weightAOptional"])[group, 1] @ wide(a["x"])[row]
            out[row, 16:48] += 0.25 * (wide(a["weightB"])[group, 1] @ part)
    return out, out


TILING = {
    "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
    "3 dimensions": lambda o, name: Break(shape((B, COLUMNS), name), "3 dimensions"),
    "4 dimensions": lambda o, name: Break(shape((3, 32, 16), name), "4 dimensions"),
    "three times heads": lambda o, name: Break({name: 7}, "60 columns hold three times"),
    "shape is that of a row": lambda o, name: Break(shape((7,), name), "[60]"),
    "shape is heads": lambda o, name: Break(shape((B, T_, HEADS, SIZE), name), "[2, 4, 3, 5]"),
    "units": lambda o, name: Break(
        shape((3, 2, 32, 8) if name == "weightB" else (5, 40), name), "multiples of 16 up to 131072"
    ),
    "few weights": lambda o, name: Break(shape((33, 2, 32, 16), name), "1 to 32 groups"),
    "shape is of each layer": lambda o, name: Break(shape((3, 2, 16, 32), name), "[3, 2, 16, 48]"),
    "columns": lambda o, name: Break({"weightAOptional": None}, "16 columns (those of weightB)"),
    "shape is one for each row": lambda o, name: Break(shape((4,), name), "[5]"),
    "shape is a row for each of y": lambda o, name: Break(shape((4, 48), name), "[5, 48]"),
    "a layer": lambda o, name: Break({name: 2}, "from 0 to 1"),
    "… (the rows of weightB)": lambda o, name: Break({name: 16}, "32 (the rows of weightB)"),
    "within y": lambda o, name: Break({name: 33}, "from 0 to 32"),
    "same shape as y": lambda o, name: Break(shape((5, 32), name), "[5, 64]"),
}


class TestProjections(LibraryTests):
    subject = Subject(
        projections.OPERATORS,
        calls={SPLIT: _split_call, LORA: _lora_call},
        references={SPLIT: _split, LORA: _added},
        default=TRAINED,
        dtypes={LORA: (D.FLOAT16,)},
        empty={SPLIT: _split_call(D.FLOAT, 0), LORA: _lora_call(D.FLOAT16, 0)},
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "data type": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
            **TILING,
        },
        numbers=lambda operator, name, array: INDICES if name == "indices" else array,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _lora(**changes: Any) -> Array:
    random = np.random.default_rng(3)
    call = _lora_call(D.FLOAT16)
    given = {name: random.normal(size=of.shape).astype(np.float16) for name, of in call.items() if isinstance(of, T)}
    return computed(LORA, call | given | {"indices": INDICES.astype(np.int32)} | changes)["out"]


def test_x_may_have_the_rank_already() -> None:
    ones, up = np.ones((5, 16), np.float16), np.full((3, 2, 32, 16), 0.5, np.float16)
    found = _lora(x=ones, weightB=up, weightAOptional=None, y=np.zeros((5, 64), np.float16))
    assert (found[[0, 2, 4], 16:48] == 2).all()
    assert not found[[1, 3]].any()
    assert not found[:, 48:].any()


@pytest.mark.parametrize("index", [-2, 4])
def test_other_indices_are_rejected(index: int) -> None:
    with pytest.raises(AclnnError, match=f"indices: expected numbers from -1 to 3, got {index}"):
        _lora(indices=np.array([0, 0, index, 0, 0], np.int32))


def test_transform_bias_rescale_qkv_reproduces_the_documents_example() -> None:
    """Its inputs are printed; the first query is (0 + 0.5) / 4."""
    qkv = np.arange(3 * 4 * 3 * 3 * 16, dtype=np.float32).reshape(3, 4, -1)
    outs = dict.fromkeys(PARTS, np.zeros((3, 3, 4, 16), np.float32))
    found = computed(SPLIT, {"qkv": qkv, "qkvBias": np.full(144, 0.5, np.float32), "numHeads": 3, **outs})
    assert found["qOut"][0, 0, :2, 0].tolist() == [0.125, 36.125]
    assert found["kOut"][0, 1, 0, 0] == 64.5
    assert found["vOut"][2, 2, 3, 15] == 1727.5
