"""Keys and values in caches of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import paged_caches
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, LibraryTests, Placed, Subject

NAME = "scatter_pa_kv_cache"
TOKENS, HEADS, BLOCKS, SIZE = 4, 2, 3, 5
CACHES = ("keyCacheRef", "valueCacheRef")
SLOTS = np.array([7, -1, 14, 0])
ABSENT = ("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional", "stridesOptional", "offsetsOptional")


def _call(d: D) -> Arguments:
    return {
        "key": T(d, (TOKENS, HEADS, 3)),
        "keyCacheRef": T(d, (BLOCKS, SIZE, HEADS, 3)),
        "slotMapping": T(D.INT64, (TOKENS,)),
        "value": T(d, (TOKENS, HEADS, 2)),
        "valueCacheRef": T(d, (BLOCKS, SIZE, HEADS, 2)),
        **dict.fromkeys(ABSENT),
        "cacheModeOptional": "Norm",
        "scatterModeOptional": None,
    }


def _scattered(a: Mapping[str, Any]) -> Any:
    found = []
    for given, cache in (("key", "keyCacheRef"), ("value", "valueCacheRef")):
        flat = a[cache].clone().flatten(0, 1)
        for slot, token in zip(a["slotMapping"].tolist(), a[given], strict=True):
            if slot >= 0:
                flat[slot] = token
        found.append(flat.unflatten(0, (BLOCKS, SIZE)))
    return found


TILING = (
    *("allowed value", "null", "3 dimensions", "4 dimensions", "shape is one for each token", "as many as keys"),
    *("its place in a block", "as keyCacheRef"),
)


class TestPagedCaches(LibraryTests):
    subject = Subject(
        paged_caches.OPERATORS,
        calls={NAME: _call},
        references={NAME: _scattered},
        default=(*TRAINED, D.INT8),
        empty={
            NAME: {name: {"shape": (0, *of.shape[1:])} for name, of in _call(D.FLOAT).items() if isinstance(of, T)}
            | dict.fromkeys(ABSENT)
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as key": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "same data type as value": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "allowed value": lambda o, name: Break({name: "Rope"}, "'None'" if "scatter" in name else "'PA_NZ'"),
            "null": lambda o, name: Break({name: T(D.INT32, (1,))}, "null"),
            "3 dimensions": lambda o, name: Break(shape((TOKENS, 6), name), "3 dimensions"),
            "4 dimensions": lambda o, name: Break(shape((BLOCKS, SIZE, 6), name), "4 dimensions"),
            "shape is one for each token": lambda o, name: Break(shape((3,), name), "[4]"),
            "as many as keys": lambda o, name: Break(shape((3, HEADS, 2), name), "4 tokens"),
            "its place in a block": lambda o, name: Break(shape((TOKENS, 3, 3), name), "as many heads"),
            "as keyCacheRef": lambda o, name: Break(shape((BLOCKS, 4, HEADS, 2), name), "[3, 5, 2, 3]"),
        },
        numbers=lambda operator, name, array: SLOTS if name == "slotMapping" else array,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _run(slots: Array) -> tuple[Array, Array]:
    """With PA_NZ: the keys given, and their cache."""
    random = np.random.default_rng(3)
    key = random.normal(size=(len(slots), HEADS, 8)).astype(np.float16)
    placed = {
        "key": Placed(key, "contiguous"),
        "value": Placed(key, "contiguous"),
        "slotMapping": Placed(slots, "contiguous"),
        **{
            name: Placed(np.zeros((BLOCKS, 4, SIZE, 4), np.float16), "contiguous")
            for name in ("keyCacheRef", "valueCacheRef")
        },
    }
    call = {**dict.fromkeys(ABSENT), "cacheModeOptional": "PA_NZ", "scatterModeOptional": "None"}
    prepare(BY_NAME[NAME], call | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    return key, placed["keyCacheRef"].view


def test_tokens_in_columns_of_one_width() -> None:
    key, cache = _run(np.array([6, 2], np.int32))
    np.testing.assert_array_equal(cache[1, :, 1].reshape(HEADS, 8), key[0])
    np.testing.assert_array_equal(cache[0, :, 2].reshape(HEADS, 8), key[1])
    assert np.count_nonzero(cache) == np.count_nonzero(key)


def test_slots_beyond_the_cache_are_refused() -> None:
    with pytest.raises(AclnnError, match="slotMapping: expected numbers below 15, got 15"):
        _run(np.array([15, 2]))
