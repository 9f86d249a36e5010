"""Keys and values in caches of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_INVALID,
    AclnnError,
)
from aclnn.execution.executor import prepare
from aclnn.operators.library.decoding import paged_caches
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, computed, described, torch, wide

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


INNER = (
    *("allowed value", "null", "types that go together", "3 dimensions", "dimensions of a cache", "as keys"),
    *("shape is one for each token", "whole columns", "shape of a cache", "few tokens of a block", "room"),
)


def _columns(key: D = D.FLOAT16, value: D = D.FLOAT16, numbers: int = 16, size: int = SIZE) -> dict[str, Any]:
    """Changes that make a call one with PA_NZ."""
    widths = {of: 32 // of.itemsize for of in (key, value)}
    found = {name: T(of, (TOKENS, HEADS, numbers)) for name, of in (("key", key), ("value", value))}
    for name, of in (("keyCacheRef", key), ("valueCacheRef", value)):
        found[name] = T(of, (BLOCKS, HEADS * numbers // widths[of], size, widths[of]))
    return {**found, "cacheModeOptional": "PA_NZ"}


class TestPagedCaches(LibraryTests):
    subject = Subject(
        paged_caches.OPERATORS[:1],
        calls={NAME: _call},
        references={NAME: _scattered},
        default=(D.FLOAT16, D.BF16, D.INT8),
        empty={
            NAME: {name: {"shape": (0, *of.shape[1:])} for name, of in _call(D.FLOAT16).items() if isinstance(of, T)}
            | dict.fromkeys(ABSENT)
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as key": lambda o, name: Break(
                dtype(D.BF16, *([name, "valueCacheRef"] if name == "value" else [name])), "ACL_FLOAT16"
            ),
            "same data type as value": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
            "allowed value": lambda o, name: Break({name: "Rope"}, "'None'" if "scatter" in name else "'PA_NZ'"),
            "null": lambda o, name: Break({name: T(D.INT32, (1,))}, "null"),
            "types that go together": lambda o, name: Break(_columns(D.FLOAT16, D.INT8), "with ACL_FLOAT16"),
            "3 to 4 dimensions": lambda o, name: Break(shape((TOKENS, 6), name), "3 to 4 dimensions"),
            "0, 3 or 4 dimensions": lambda o, name: Break(shape((TOKENS, 6), name), "0, 3 or 4 dimensions"),
            "3 dimensions": lambda o, name: Break(shape((TOKENS, 1, HEADS, 3), name), "3 dimensions"),
            "dimensions of a cache": lambda o, name: Break(shape((BLOCKS, SIZE, 6), name), "4 dimensions"),
            "shape is one for each token": lambda o, name: Break(shape((3,), name), "[4]"),
            "as keys": lambda o, name: Break(shape((3, HEADS, 2), name), "4 tokens of 2 heads"),
            "whole columns": lambda o, name: Break(_columns() | {name: T(D.FLOAT16, (TOKENS, HEADS, 8))}, "of 16"),
            "shape of a cache": lambda o, name: Break(
                shape((BLOCKS, 4, HEADS, 2), name), "[3, 5, 2, 2]" if "value" in name else "[3, 4, 2, 3]"
            ),
            "few tokens of a block": lambda o, name: Break(_columns(size=2**16), "at most 65535"),
            "room": lambda o, name: Break(
                shape((1, 3, HEADS, 3), name) | shape((1, 3, HEADS, 2), "valueCacheRef"), "4 tokens"
            ),
        },
        numbers=lambda operator, name, array: SLOTS if name == "slotMapping" else array,
        codes=dict.fromkeys(INNER, ACLNN_ERR_INNER_NULLPTR),
    )


def _run(slots: Array, caches: tuple[int, ...] = (BLOCKS, 2, SIZE, 16), **change: Any) -> tuple[Array, Array]:
    """With PA_NZ: the keys given, and their cache."""
    key = np.random.default_rng(3).normal(size=(len(slots), HEADS, 16)).astype(np.float16)
    arrays = {"key": key, "value": key, "slotMapping": slots}
    arrays |= {name: np.zeros(caches, np.float16) for name in CACHES}
    call = {**dict.fromkeys(ABSENT), "cacheModeOptional": "PA_NZ", "scatterModeOptional": "None"}
    return key, computed(NAME, call | arrays | change)["keyCacheRef"]


@pytest.mark.parametrize("by_heads", [False, True])
def test_tokens_in_columns_of_one_width(by_heads: bool) -> None:
    key, cache = _run(np.array([6, 2], np.int32), (BLOCKS, HEADS, 1, SIZE, 16) if by_heads else (BLOCKS, 2, SIZE, 16))
    cache = cache.reshape(BLOCKS, 2, SIZE, 16)
    np.testing.assert_array_equal(cache[1, :, 1].reshape(HEADS, 16), key[0])
    np.testing.assert_array_equal(cache[0, :, 2].reshape(HEADS, 16), key[1])
    assert np.count_nonzero(cache) == np.count_nonzero(key)


def test_columns_of_another_width_than_32_bytes_are_rejected() -> None:
    with pytest.raises(AclnnError, match=f"keyCacheRef: expected shape .{BLOCKS}, 2, {SIZE}, 16. or") as caught:
        _run(np.array([6, 2]), (BLOCKS, 4, SIZE, 8))
    assert caught.value.code == ACLNN_ERR_INNER_NULLPTR


def test_values_in_columns_have_a_type_of_their_own() -> None:
    value = np.arange(2 * HEADS * 16).reshape(2, HEADS, 16).astype(np.float16)
    key = np.arange(2 * HEADS * 32).reshape(2, HEADS, 32).astype(np.int8)
    keys = {"key": key, "keyCacheRef": np.zeros((BLOCKS, HEADS, SIZE, 32), np.int8)}
    cache = _run(np.array([3, 0]), **keys, value=value)[1]
    np.testing.assert_array_equal(cache[0, :, 3], key[0])
    with pytest.raises(AclnnError, match="value: expected data type ACL_INT8"):
        _run(np.array([3, 0]), **keys, value=value, cacheModeOptional="Norm")


def test_keys_alone_are_cached_before_ascend_950() -> None:
    key = np.arange(24).reshape(4, 2, 3).astype(np.float16)
    arrays = {"key": key, "slotMapping": np.array([7, -1, 14, 0]), "keyCacheRef": np.zeros((3, 5, 2, 3), np.float16)}
    arrays |= {name: np.array(7, np.float16) for name in ("value", "valueCacheRef")}
    call = {**dict.fromkeys(ABSENT), "cacheModeOptional": None, "scatterModeOptional": None}
    found = computed(NAME, call | arrays)
    np.testing.assert_array_equal(found["keyCacheRef"].reshape(15, 2, 3)[[7, 14, 0]], key[[0, 2, 3]])
    assert found["valueCacheRef"] == 7
    with pytest.raises(AclnnError, match="value: expected 3 dimensions"):
        computed(NAME, call | arrays, Product.ASCEND_950)


@pytest.mark.parametrize("of", [D.FLOAT, D.UINT8, D.INT16, D.UINT16, D.INT32, D.UINT32])
def test_ascend_950_accepts_more_data_types(of: D) -> None:
    call = described(_call(of))
    prepare(BY_NAME[NAME], call, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="key: expected data type ACL_FLOAT16, ACL_INT8 or ACL_BF16") as caught:
        prepare(BY_NAME[NAME], call, Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_PARAM_INVALID


def test_empty_keys_and_values_skip_the_checks() -> None:
    call = _call(D.FLOAT16) | {"key": T(D.DOUBLE, (0,)), "valueCacheRef": T(D.BOOL, (0, 1)), "cacheModeOptional": "x"}
    prepare(BY_NAME[NAME], described(call), Product.ATLAS_A2).run()


def test_slots_beyond_the_cache_are_rejected() -> None:
    with pytest.raises(AclnnError, match="slotMapping: expected numbers below 15, got 15"):
        _run(np.array([15, 2]))


KEYS = "scatter_pa_cache"
COMPRESSED = ABSENT[:3]


def _keys_call(d: D) -> Arguments:
    call = {name: each for name, each in _call(d).items() if name in ("key", "keyCacheRef", "slotMapping")}
    return call | dict.fromkeys(COMPRESSED) | {"cacheModeOptional": None}


KEYS_TILING = {
    "null": lambda o, name: Break({name: T(D.INT64, (4,))}, "null", product=Product.ASCEND_950),
    "3 dimensions": lambda o, name: Break(shape((4, 3), name), "3 dimensions", product=Product.ASCEND_950),
    "of keys": lambda o, name: Break(
        shape((BLOCKS, SIZE, 1, 3), name), "[blocks, tokens, 2, 3]", product=Product.ASCEND_950
    ),
    "shape is one for each token": lambda o, name: Break(shape((3,), name), "[4]", product=Product.ASCEND_950),
}


class TestKeys(LibraryTests):
    subject = Subject(
        paged_caches.OPERATORS[1:2],
        calls={KEYS: _keys_call},
        references={KEYS: lambda a: _scattered(a | {"value": a["key"], "valueCacheRef": a["keyCacheRef"]})[0]},
        default=(D.FLOAT, D.FLOAT16, D.BF16, D.INT8, D.INT32),
        empty={KEYS: dict.fromkeys(COMPRESSED) | shape((0, 2, 3), "keyCacheRef")},
        breaks={
            "present": lambda o, name: Break({name: None}, "an object", product=Product.ASCEND_950),
            "data types that go together": lambda o, name: Break(
                dtype(D.DOUBLE, name), "ACL_", product=Product.ASCEND_950
            ),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND", product=Product.ASCEND_950
            ),
            **KEYS_TILING,
        },
        numbers=lambda operator, name, array: SLOTS if name == "slotMapping" else array,
        codes=dict.fromkeys(KEYS_TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def test_keys_of_eight_bits_are_moved_and_slots_beyond_the_cache_rejected() -> None:
    kind = D.FLOAT8_E4M3FN.numpy
    given = {"key": np.arange(4, dtype=np.float32).astype(kind).reshape(4, 1, 1), "slotMapping": SLOTS}
    found = computed(
        KEYS, _keys_call(D.FLOAT) | given | {"keyCacheRef": np.zeros((3, 5, 1, 1), kind)}, Product.ASCEND_950
    )
    assert found["keyCacheRef"].astype(np.float32).ravel()[[7, 14, 0]].tolist() == [0, 2, 3]
    with pytest.raises(AclnnError, match="slotMapping: expected numbers below 10, got 14"):
        computed(KEYS, _keys_call(D.FLOAT) | given | {"keyCacheRef": np.zeros((2, 5, 1, 1), kind)}, Product.ASCEND_950)


QKV = "qkv_rms_norm_rope_cache"
ROWS, QUERIES, HEAD, EPSILON = 6, 3, 128, float(np.float32(1e-6))
PLACES = np.array([5, 40, -1, 63, 0, 17])
FACTORS = ("kScaleOptional", "vScaleOptional", "kOffsetOptional", "vOffsetOptional")
BEFORE = ("qOutBeforeQuant", "kOutBeforeQuant", "vOutBeforeQuant")


def _qkv_call(d: D) -> Arguments:
    return {
        "qkv": T(d, (ROWS, 7 * HEAD)),
        **dict.fromkeys(("qGamma", "kGamma"), T(d, (HEAD,))),
        **dict.fromkeys(("cos", "sin"), T(d, (ROWS, HEAD))),
        "index": T(D.INT64, (ROWS,)),
        **dict.fromkeys(("qOut", BEFORE[0]), T(d, (ROWS, QUERIES * HEAD))),
        "kCache": T(d, (2, 16, 32, 16)),
        "vCache": T(D.INT8, (2, 8, 32, 32)),
        **dict.fromkeys(FACTORS, T(D.FLOAT, (2, HEAD))),
        **dict.fromkeys(("kScaleOptional", "kOffsetOptional")),
        "qkvSize": (2, 3, 7, HEAD),
        "headNums": (QUERIES, 2, 2),
        "epsilon": 1e-6,
        "cacheModeOptional": "PA_NZ",
        **dict.fromkeys(BEFORE[1:], T(d, (ROWS, 2 * HEAD))),
    }


def _cached(a: Mapping[str, Any]) -> Any:
    """The document's formulas, in PyTorch's words; of a cache the rows of tokens, one after another."""
    q, k, v = wide(a["qkv"]).unflatten(-1, (7, HEAD)).split((QUERIES, 2, 2), 1)
    cos, sin = (wide(a[name])[:, None] for name in ("cos", "sin"))
    turned = []
    for rows, gamma in ((q, a["qGamma"]), (k, a["kGamma"])):
        rows = torch.nn.functional.rms_norm(rows, [HEAD], wide(gamma), EPSILON)
        turned.append((rows * cos + torch.cat((-rows[..., 64:], rows[..., :64]), -1) * sin).flatten(1))
    integers = (v / wide(a["vScaleOptional"]) + wide(a["vOffsetOptional"])).round().clamp(-128, 127)
    caches = []
    for rows, cache in ((turned[1], a["kCache"]), (integers.flatten(1), a["vCache"])):
        kept = wide(cache).clone().transpose(1, 2).flatten(2)
        for row, place in zip(rows, PLACES, strict=True):
            if place >= 0:
                kept[place // 32, place % 32] = row
        caches.append(kept.unflatten(2, cache.shape[1::2]).transpose(1, 2))
    return turned[0], *caches, turned[0], turned[1], v.flatten(1)


QKV_TILING = {
    "allowed value": lambda o, name: Break({name: "Norm"}, "'PA_NZ'"),
    "as qkv": lambda o, name: Break({name: (2, 3, 14, 64)}, "heads and 128 numbers"),
    "heads": lambda o, name: Break({name: (4, 2, 1)}, "as many of k as of v"),
    "shape is numbers of a head": lambda o, name: Break(shape((64,), name), "[128]"),
    "shape is numbers for each token": lambda o, name: Break(shape((ROWS, 64), name), "[6, 128]"),
    "shape is one for each token": lambda o, name: Break(shape((5,), name), "[6]"),
    "shape of a cache": lambda o, name: Break(shape((2, 16, 31, 16), name), "a multiple of"),
    "with a scale if quantized": lambda o, name: Break(
        {name: T(D.INT8, (2, 8, 32, 32)), "vScaleOptional": None}
        if name == "kCache"
        else {name: T(D.FLOAT16, (2, 16, 32, 16))},
        "without kScaleOptional" if name == "kCache" else "ACL_INT8 with vScaleOptional",
        D.FLOAT16,
    ),
    "shape is numbers of heads of k": lambda o, name: Break(
        {name: T(D.FLOAT, (1, HEAD))}
        | ({"kCache": T(D.INT8, (2, 8, 32, 32))} if name[0] == "k" else {})
        | ({"kScaleOptional": T(D.FLOAT, (2, HEAD))} if name == "kOffsetOptional" else {}),
        "[2, 128]",
    ),
    **{f"shape is heads of {of}": lambda o, name: Break(shape((ROWS, HEAD), name), "[6, ") for of in "qkv"},
}


class TestProjections(LibraryTests):
    subject = Subject(
        paged_caches.OPERATORS[2:],
        calls={QKV: _qkv_call},
        references={QKV: _cached},
        default=(D.FLOAT16, D.BF16),
        # Rejected: this has tokens.
        empty={QKV: {name: each for name, each in _qkv_call(D.FLOAT16).items() if isinstance(each, T) or each is None}},
        breaks={
            "data type": lambda o, name: Break({name: T(D.DOUBLE, (2, HEAD))}, "ACL_"),
            "same data type as qkv": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16", D.FLOAT16),
            "as qkv, or integers": lambda o, name: Break(dtype(D.BF16, name), "ACL_INT8", D.FLOAT16),
            "2 dimensions": lambda o, name: Break(shape((5,), name), "2 dimensions"),
            **QKV_TILING,
        },
        numbers=lambda operator, name, array: PLACES if name == "index" else array,
        codes=dict.fromkeys(QKV_TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )
