"""The plain operator of ``gathered_caches``: values by PyTorch, errors in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library.decoding import gathered_caches
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Break, LibraryTests, Placed, Subject, torch

NAME, HEADS, BLOCKS, SIZE = "gather_pa_kv_cache", 2, 3, 5
ENDS, TABLES, OFFSETS = np.array([0, 6, 6, 14]), np.array([[2, 0, 1], [0, 0, 0], [1, 3, -1]]), np.array([5, 0, 3])
"""Sequences of 6, 0 and 8 tokens; the first begins at its second block, the last has one that there is not."""


def _gathering(d: D) -> Arguments:
    return {
        "keyCache": T(d, (BLOCKS, SIZE, HEADS, 3)),
        "valueCache": T(d, (BLOCKS, SIZE, HEADS, 2)),
        "blockTables": T(D.INT32, TABLES.shape),
        "seqLens": T(D.INT32, ENDS.shape),
        "keyRef": T(d, (15, HEADS, 3)),
        "valueRef": T(d, (15, HEADS, 2)),
        "seqOffsetOptional": T(D.INT32, OFFSETS.shape),
        "cacheMode": "Norm",
        "isSeqLensCumsum": True,
    }


def _gathered(a: Mapping[str, Any]) -> Any:
    found = []
    for cache, given in (("keyCache", "keyRef"), ("valueCache", "valueRef")):
        tokens = [torch.cat([a[cache][0], a[cache][1][:1]]), a[cache][1], torch.zeros_like(a[cache][0][:3])]
        found.append(torch.cat([*tokens, a[given][14:]]))
    return found


KNOWN = {"blockTables": TABLES, "seqLens": ENDS, "seqOffsetOptional": OFFSETS}
TILING = (
    *("allowed value", "4 dimensions", "as many as keys", "as keyCache", "tokens as in its cache", "2 dimensions"),
    *("shape is its length for each sequence", "shape is one for each sequence", "no dimension of 0"),
)


class TestGatheredCaches(LibraryTests):
    subject = Subject(
        gathered_caches.OPERATORS,
        calls={NAME: _gathering},
        references={NAME: _gathered},
        default=(*TRAINED, D.INT8),
        dtypes={NAME: (D.FLOAT16, D.BF16, D.INT8)},
        empty={
            NAME: {
                **{name: {"shape": _gathering(D.FLOAT16)[name].shape} for name in ("keyCache", "valueCache")},
                **{name: {"shape": (0, HEADS, size)} for name, size in (("keyRef", 3), ("valueRef", 2))},
                "blockTables": {"shape": TABLES.shape},
                "seqLens": {"shape": ENDS.shape},
                "seqOffsetOptional": {"shape": OFFSETS.shape},
            },
        },
        breaks={
            "allowed value": lambda o, name: Break({name: "Rope"}, "'PA_NZ'"),
            "4 dimensions": lambda o, name: Break(shape((BLOCKS, SIZE, 6), name), "4 dimensions"),
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "same data type as blockTables": lambda o, name: Break(dtype(D.INT64, name), "ACL_INT32"),
            "2 dimensions": lambda o, name: Break(shape((3,), name), "2 dimensions"),
            "no dimension of 0": lambda o, name: Break(
                shape((0, 3), name) if name == "blockTables" else shape((0, SIZE, HEADS, 3), name), "no dimension of 0"
            ),
            "shape is its length for each sequence": lambda o, name: Break(shape((3,), name), "[4]"),
            "shape is one for each sequence": lambda o, name: Break(shape((4,), name), "[3]"),
            "as keyCache": lambda o, name: Break(shape((BLOCKS, 4, HEADS, 2), name), "[3, 5, 2, 3]"),
            "tokens as in its cache": lambda o, name: Break(shape((15, 4), name), "shape [15, 2, "),
            "as many as keys": lambda o, name: Break(shape((3, HEADS, 2), name), "15 tokens"),
        },
        numbers=lambda operator, name, array: KNOWN.get(name, array),
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


@pytest.mark.parametrize("cumulated", [False, True])
@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("skip", [None, 7])
def test_gather_pa_kv_cache_reads_sequences_from_blocks(cumulated: bool, in_columns: bool, skip: int | None) -> None:
    """Here of integers of 16 bits, which Ascend 950 takes; no room is left for the last token."""
    random = np.random.default_rng(4)
    cache = random.integers(0, 1000, (BLOCKS, SIZE, HEADS, 8)).astype(np.uint16)
    lengths, tables, tokens = [4, 0, 8], random.integers(0, BLOCKS, (3, 3)), []
    for table, length in zip(tables, lengths, strict=True):
        rows = [row for block in table[0 if skip is None else 1 :] for row in cache[block]]
        tokens += [*rows, *np.zeros((SIZE, HEADS, 8))][:length]
    shape = (11, HEADS * 8) if in_columns else (11, HEADS, 8)
    if in_columns:
        cache = np.ascontiguousarray(cache.reshape(BLOCKS, SIZE, 4, 4).swapaxes(1, 2))
    given = np.cumsum([0, *lengths]) if cumulated else np.array(lengths)
    arrays = {"keyCache": cache, "valueCache": cache, "blockTables": tables, "seqLens": given}
    arrays |= {name: np.zeros(shape, np.uint16) for name in ("keyRef", "valueRef")}
    if skip is not None:
        arrays["seqOffsetOptional"] = np.full(3, skip)
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items()}
    call = {"seqOffsetOptional": None, "cacheMode": "PA_NZ" if in_columns else None, "isSeqLensCumsum": cumulated}
    prepare(BY_NAME[NAME], call | {name: each.tensor for name, each in placed.items()}, Product.ASCEND_950).run()
    for name in ("keyRef", "valueRef"):
        np.testing.assert_array_equal(placed[name].view.reshape(11, HEADS, 8), np.array(tokens)[:11])
