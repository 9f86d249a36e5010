"""Keys and values of latent attention in caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.decoding import latent_caches
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, computed, described, torch, wide

NAME = "kv_rms_norm_rope_cache"
NAMES = (NAME, f"{NAME}_v2")
B, S, VALUES, KEYS, PLACES = 2, 3, 512, 64, 5
EPSILON = float(np.float32(1e-5))
INDEX = np.array([[4, 0, 2], [1, -1, 3]])
QUANTIZATION = ("kRopeScaleOptional", "cKvScaleOptional", "kRopeOffsetOptional", "cKvOffsetOptional")


def _call(d: D, name: str = NAME) -> Arguments:
    call: Arguments = {
        "kv": T(d, (B, 1, S, VALUES + KEYS)),
        "gamma": T(d, (VALUES,)),
        **dict.fromkeys(("cos", "sin", "kRopeOut"), T(d, (B, 1, S, KEYS))),
        "index": T(D.INT64, (B, S)),
        "kCacheRef": T(d, (B, 1, PLACES, KEYS)),
        "ckvCacheRef": T(d, (B, 1, PLACES, VALUES)),
        **dict.fromkeys(QUANTIZATION),
        "epsilon": 1e-5,
        "cacheModeOptional": "Norm",
        "isOutputKv": True,
        "cKvOut": T(d, (B, 1, S, VALUES)),
        "vOptional": None,
    }
    return {p.name: call[p.name] for p in BY_NAME[name].parameters}


def _apart(d: D, heads: int = 2) -> Arguments:
    """Keys of 192 numbers, values of 128."""
    call = _call(d, NAMES[1])
    keys, values = (B, heads, S, 192), (B, heads, S, 128)
    call |= dict.fromkeys(("kv", "kRopeOut"), T(d, keys)) | dict.fromkeys(("vOptional", "cKvOut"), T(d, values))
    call |= dict.fromkeys(("cos", "sin"), T(d, (B, heads, S, KEYS))) | {"gamma": T(d, (192,))}
    return call | {"kCacheRef": T(d, (B, heads, PLACES, 192)), "ckvCacheRef": T(d, (B, heads, PLACES, 128))}


def _rows(a: Mapping[str, Any]) -> tuple[Any, Any]:
    """The document's formulas, in PyTorch's words."""
    value, key = wide(a["kv"]).split([VALUES, KEYS], -1)
    value = torch.nn.functional.rms_norm(value, [VALUES], wide(a["gamma"]), EPSILON)
    key = key.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    first, second = key.chunk(2, -1)
    return key * wide(a["cos"]) + torch.cat((-second, first), -1) * wide(a["sin"]), value


def _cached(a: Mapping[str, Any]) -> Any:
    rows, found = _rows(a), []
    for cache, values in zip(("kCacheRef", "ckvCacheRef"), rows, strict=True):
        kept = wide(a[cache]).clone()
        for sample, places in enumerate(INDEX):
            for token, place in enumerate(places):
                if place >= 0:
                    kept[sample, 0, place] = values[sample, 0, token]
        found.append(kept)
    return *found, *rows


TILING = (
    *("allowed value", "with a scale if quantized", "4 dimensions", "1 dimension", "heads", "with keys"),
    *("pairs to turn", "columns", "whole columns", "angles", "same shape as cos", "as many elements as places"),
    *("shape of a cache", "shape of a factor", "shape is of keys", "shape is of values"),
)


def _small(change: Mapping[str, Any]) -> Break:
    """A call with 8 columns of both kinds, as Ascend 950 takes them."""
    of_keys, of_values = (shape((B, 1, S, 8), name) for name in ("kRopeOut", "cKvOut"))
    caches = shape((B, 1, PLACES, 8), "kCacheRef", "ckvCacheRef")
    inputs = shape((B, 1, S, 16), "kv") | shape((8,), "gamma") | shape((B, 1, S, 8), "cos", "sin")
    return Break(
        {**of_keys, **of_values, **caches, **inputs, **change}, "multiples of 16 and 16", product=Product.ASCEND_950
    )


def _unquantised(name: str) -> Mapping[str, Any]:
    """Blocks with integers that have the scale, or the offset and a scale."""
    of_keys = name.startswith("k")
    columns = KEYS if of_keys else VALUES
    scale = {"kRopeScaleOptional" if of_keys else "cKvScaleOptional": T(D.FLOAT, (columns,))}
    cache = {"kCacheRef" if of_keys else "ckvCacheRef": T(D.INT8, (1, 32, 1, columns))}
    other = {"ckvCacheRef" if of_keys else "kCacheRef": T(D.FLOAT16, (1, 32, 1, VALUES if of_keys else KEYS))}
    return cache | {"cacheModeOptional": "PA"} | ({} if name in scale else scale) | other


class TestLatentCaches(LibraryTests):
    subject = Subject(
        latent_caches.OPERATORS,
        calls={name: lambda d, name=name: _call(d, name) for name in NAMES},
        references=dict.fromkeys(NAMES, _cached),
        default=(D.FLOAT16, D.BF16),
        empty={
            name: {
                of: {"shape": (0, *given.shape[1:])} for of, given in _call(D.FLOAT16).items() if isinstance(given, T)
            }
            | dict.fromkeys((*QUANTIZATION, *({"vOptional"} if name != NAME else ())))
            for name in NAMES
        },
        breaks={
            "data types that go together": lambda o, name: Break(
                dtype(D.FLOAT if name == "kv" else D.INT32, name), "ACL_"
            ),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "data type": lambda o, name: Break({name: T(D.FLOAT16, (KEYS,))}, "ACL_FLOAT"),
            "same data type as kv": lambda o, name: Break({name: T(D.BF16, (B, 1, S, 128))}, "ACL_FLOAT16", D.FLOAT16),
            "with a scale if quantized": lambda o, name: Break(dtype(D.INT8, name), "without", D.FLOAT16),
            "allowed value": lambda o, name: Break({name: "PA_BLK"}, "'PA_NZ'"),
            "with keys": lambda o, name: Break({name: T(D.FLOAT16, (B, 1, 2, 128))}, "[2, 1, 3, columns]", D.FLOAT16),
            "shape of a factor": lambda o, name: Break({name: T(D.FLOAT, (7,))} | _unquantised(name), "[1, "),
            "4 dimensions": lambda o, name: Break(shape((B, S, VALUES + KEYS), name), "4 dimensions"),
            "1 dimension": lambda o, name: Break(shape((1, VALUES), name), "1 dimension"),
            "heads": lambda o, name: Break(shape((B, 2, S, VALUES + KEYS), name), "[samples, 1, tokens, columns]"),
            "pairs to turn": lambda o, name: Break(shape((B, 1, S, VALUES), name), "above 512"),
            "columns": lambda o, name: Break(shape((B, 1, S, VALUES + 32), name), "columns [512, 64]"),
            "whole columns": lambda o, name: _small({"cacheModeOptional": "PA_NZ"}),
            "angles": lambda o, name: Break(shape((B, 1, 2, KEYS), name), "[2, 1, 3 or 1, 64]"),
            "same shape as cos": lambda o, name: Break(shape((B, 1, 1, KEYS), name), "[2, 1, 3, 64]"),
            "as many elements as places": lambda o, name: Break(shape((B * S + 1,), name), "6 elements"),
            "shape of a cache": lambda o, name: Break(
                shape((B, 1, PLACES + 1, VALUES if "ckv" in name else 8), name),
                "[2 or more, 1, 5, 512]" if "ckv" in name else "[2 or more, 1, N, 64]",
            ),
            "shape is of keys": lambda o, name: Break(shape((B, 1, S, 2), name), "[2, 1, 3, 64]"),
            "shape is of values": lambda o, name: Break(shape((B, 1, S, 2), name), "[2, 1, 3, 512]"),
        },
        numbers=lambda operator, name, array: INDEX if name == "index" else array,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


SIZE = 16
"""Tokens of a block."""


def _arrays() -> dict[str, Array]:
    random = np.random.default_rng(3)
    return {
        name: random.normal(size=of.shape).astype(np.float16)
        for name, of in _call(D.FLOAT16).items()
        if isinstance(of, T) and name not in ("index", "kRopeOut", "cKvOut")
    }


def _in_blocks(mode: str | None, slots: Array, **arrays: Array) -> tuple[Any, Array]:
    """The normalised rows, and their cache of two blocks."""
    given = _arrays() | arrays
    caches = {name: np.zeros((2, SIZE, 1, n), np.float16) for name, n in (("kCacheRef", KEYS), ("ckvCacheRef", VALUES))}
    unwritten = {"isOutputKv": False, "cacheModeOptional": mode}
    results = {name: np.zeros((0,), np.float16) for name in ("kRopeOut", "cKvOut")}
    found = computed(NAME, _call(D.FLOAT16) | given | caches | results | {"index": slots} | unwritten)
    rows = _rows({name: torch.from_numpy(each) for name, each in given.items()})
    return rows[1].reshape(B * S, VALUES), found["ckvCacheRef"]


@pytest.mark.parametrize("mode", ["PA", "PA_BNSD", "PA_NZ"])
def test_paged_caches_are_written_by_slots(mode: str) -> None:
    slots = np.array([5, 0, -1, 31, 16, 6])
    rows, cache = _in_blocks(mode, slots)
    if mode == "PA_NZ":  # columns of 16 numbers, each of all tokens of a block
        cache = cache.reshape(2, VALUES // 16, SIZE, 16).swapaxes(1, 2)
    cache = cache.reshape(2 * SIZE, VALUES)
    used = slots >= 0
    np.testing.assert_allclose(cache[slots[used]], rows[used], rtol=1e-3, atol=1e-3)
    assert not cache[[1, 3, 4, 30]].any()


def test_slots_beyond_the_blocks_are_rejected() -> None:
    with pytest.raises(AclnnError, match="index: expected numbers from 0 to 31, got 32"):
        _in_blocks("PA", np.array([5, 0, -1, 32, 2, 6]))


def test_blocks_of_other_sizes_are_rejected_where_they_do_not_hold_whole_columns() -> None:
    caches = {name: T(D.FLOAT16, (2, 8, 1, n)) for name, n in (("kCacheRef", KEYS), ("ckvCacheRef", VALUES))}
    with pytest.raises(AclnnError, match="a multiple of 16, 1, 64") as caught:
        prepare(BY_NAME[NAME], described(_call(D.FLOAT16) | caches | {"cacheModeOptional": "PA"}), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_one_row_of_angles_serves_all_tokens_and_places_lie_in_any_shape() -> None:
    arrays = _arrays() | {"index": INDEX.reshape(-1)}
    arrays |= {name: arrays[name][:, :, :1] for name in ("cos", "sin")}
    results = {"kRopeOut": np.zeros((B, 1, S, KEYS), np.float16), "cKvOut": np.zeros((B, 1, S, VALUES), np.float16)}
    found = computed(NAME, _call(D.FLOAT16) | arrays | results | {"cacheModeOptional": None})
    expected = _cached({name: torch.from_numpy(np.array(each)) for name, each in arrays.items()})
    for name, each in zip(("kCacheRef", "ckvCacheRef", "kRopeOut", "cKvOut"), expected, strict=True):
        np.testing.assert_allclose(found[name], each, rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("name", ["kRopeOut", "cKvOut"])
def test_unrequested_results_must_still_be_given(name: str) -> None:
    call = described(_call(D.FLOAT16) | {"isOutputKv": False, name: None})
    with pytest.raises(AclnnError, match=f"{name}: expected an object, got null") as caught:
        prepare(BY_NAME[NAME], call, Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_PARAM_NULLPTR


def test_empty_tokens_for_a_cache_are_rejected() -> None:
    call = _call(D.FLOAT16) | {name: T(D.FLOAT16, (B, 1, 0, n)) for name, n in (("kv", 576), ("cos", 64), ("sin", 64))}
    with pytest.raises(AclnnError, match="kv: expected shape") as caught:
        prepare(BY_NAME[NAME], described(call), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_ascend_950_accepts_other_numbers_of_columns() -> None:
    call = changed(_call(D.BF16), {**_small({}).change})
    prepare(BY_NAME[NAME], described(call), Product.ASCEND_950)
    with pytest.raises(AclnnError, match="kv: expected columns"):
        prepare(BY_NAME[NAME], described(call), Product.ATLAS_A2)


def test_caches_may_have_more_samples_before_ascend_950() -> None:
    caches = {
        name: np.zeros((B + 1, 1, PLACES, n), np.float16) for name, n in (("kCacheRef", 64), ("ckvCacheRef", 512))
    }
    results = {name: np.zeros(0, np.float16) for name in ("kRopeOut", "cKvOut")}
    call = _call(D.FLOAT16) | _arrays() | caches | results | {"index": INDEX, "isOutputKv": False}
    found = computed(NAME, call)["ckvCacheRef"]
    assert found[0, 0, INDEX[0]].any(axis=-1).all()
    assert not found[B].any()
    with pytest.raises(AclnnError, match="kCacheRef: expected shape"):
        computed(NAME, call, Product.ASCEND_950)


def _quantised(mode: str, product: Product, **offsets: Array) -> tuple[Any, Array]:
    """Values as float64 numbers, and their cache of two blocks of INT8, of scales of columns."""
    scale = np.linspace(3, 5, VALUES, dtype=np.float32)
    caches = {
        "ckvCacheRef": np.zeros((2, 32, 1, VALUES), np.int8),
        "kCacheRef": np.zeros((2, 32, 1, KEYS), np.float16),
        "cKvScaleOptional": scale[None],
        "index": np.array([5, 0, -1, 63, 32, 6]),
        "cacheModeOptional": mode,
        **offsets,
    }
    given = _arrays()
    results = {name: np.zeros(0, np.float16) for name in ("kRopeOut", "cKvOut")}
    found = computed(NAME, _call(D.FLOAT16) | given | results | {"isOutputKv": False} | caches, product)
    rows = _rows({name: torch.from_numpy(each) for name, each in given.items()})[1].reshape(B * S, VALUES)
    return rows * torch.from_numpy(scale), found["ckvCacheRef"]


@pytest.mark.parametrize("mode", ["PA", "PA_BNSD", "PA_NZ"])
def test_caches_of_integers_are_scaled(mode: str) -> None:
    rows, cache = _quantised(mode, Product.ATLAS_A2)
    if mode == "PA_NZ":  # columns of 32 integers
        cache = cache.reshape(2, VALUES // 32, 32, 32).swapaxes(1, 2)
    cache = cache.reshape(64, VALUES)
    assert np.abs(cache[[5, 0, 63, 32, 6]] - rows[[0, 1, 3, 4, 5]].clamp(-128, 127).numpy()).max() <= 0.5001
    assert not cache[[1, 2, 62]].any()


@pytest.mark.parametrize(("product", "shift"), [(Product.ATLAS_A2, 0), (Product.ASCEND_950, 7)])
def test_offsets_are_added_on_ascend_950(product: Product, shift: int) -> None:
    offset = {"cKvOffsetOptional": np.full(VALUES, 7, np.float32)}
    rows, cache = _quantised("PA", product, **offset)
    expected = (rows[0] + shift).clamp(-128, 127).numpy()
    assert np.abs(cache.reshape(64, VALUES)[5] - expected).max() <= 0.5001


def test_integer_caches_of_mode_norm_are_rejected_before_ascend_950() -> None:
    integers = {"kCacheRef": T(D.INT8, (B, 1, PLACES, KEYS)), "kRopeScaleOptional": T(D.FLOAT, (1,))}
    call = described(_call(D.FLOAT16) | integers)
    prepare(BY_NAME[NAME], call, Product.ASCEND_950)
    with pytest.raises(AclnnError, match=r"kCacheRef: expected ACL_FLOAT16 .* with Norm on Atlas A2"):
        prepare(BY_NAME[NAME], call, Product.ATLAS_A2)


@pytest.mark.parametrize("mode", ["PA_BLK_BNSD", "PA_BLK_NZ"])
def test_index_may_name_blocks(mode: str) -> None:
    """The last four of 20 tokens go into the second block of 16."""
    random, tokens = np.random.default_rng(1), 20
    given = {
        "kv": random.normal(size=(1, 1, tokens, VALUES + KEYS)).astype(np.float16),
        "gamma": np.ones(VALUES, np.float16),
        **dict.fromkeys(("cos", "sin"), np.zeros((1, 1, tokens, KEYS), np.float16)),
    }
    caches = {
        "kCacheRef": np.zeros((3, 16, 1, KEYS), np.float16),
        "ckvCacheRef": np.zeros((3, 16, 1, VALUES), np.float16),
    }
    results = {name: np.zeros(0, np.float16) for name in ("kRopeOut", "cKvOut")}
    call = _call(D.FLOAT16) | given | caches | results | {"isOutputKv": False, "cacheModeOptional": mode}
    cache = computed(NAME, call | {"index": np.array([32, 0])})["ckvCacheRef"]
    if mode.endswith("NZ"):
        cache = cache.reshape(3, VALUES // 16, 16, 16).swapaxes(1, 2)
    cache = cache.reshape(3, 16, VALUES)
    rows = torch.nn.functional.rms_norm(wide(torch.from_numpy(given["kv"]))[0, 0, :, :VALUES], [VALUES], eps=EPSILON)
    np.testing.assert_allclose(cache[2], rows[:16], rtol=1e-3)
    np.testing.assert_allclose(cache[0, :4], rows[16:], rtol=1e-3)
    assert not cache[1].any()
    assert not cache[0, 4:].any()


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("mode", ["Norm", "PA"])
def test_values_may_be_a_separate_tensor(mode: str, heads: int) -> None:
    random = np.random.default_rng(2)
    call = _apart(D.FLOAT16, heads) | {"cacheModeOptional": mode, "epsilon": 1e-5}
    if mode == "PA":
        call |= {"kCacheRef": T(D.FLOAT16, (1, 32, heads, 192)), "ckvCacheRef": T(D.INT8, (1, 32, heads, 128))}
        call |= dict.fromkeys(("cKvScaleOptional", "cKvOffsetOptional"), T(D.FLOAT, (heads, 128)))
    given = {
        name: random.normal(size=of.shape).astype(of.dtype.numpy) for name, of in call.items() if isinstance(of, T)
    }
    found = computed(NAMES[1], call | given | {"index": INDEX if mode == "Norm" else INDEX.reshape(-1)})
    rows = wide(torch.from_numpy(given["kv"]))
    rows = torch.nn.functional.rms_norm(rows, [192], wide(torch.from_numpy(given["gamma"])), EPSILON)
    x1, x2 = rows[..., :64:2], rows[..., 1:64:2]
    cos, sin = (wide(torch.from_numpy(given[name])) for name in ("cos", "sin"))
    turned = torch.cat((x1, x2), -1) * cos + torch.cat((-x2, x1), -1) * sin
    keys, values = torch.cat((turned, rows[..., 64:]), -1).numpy(), given["vOptional"].astype(np.float64)
    np.testing.assert_allclose(found["kRopeOut"], keys, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found["cKvOut"], given["vOptional"])
    if mode == "PA":
        factors = (given[name][:, None] for name in ("cKvScaleOptional", "cKvOffsetOptional"))
        scale, offset = (each.astype(np.float64) for each in factors)
        values = np.clip(np.rint(values * scale + offset), -128, 127)
    for sample, token in zip(*(INDEX >= 0).nonzero(), strict=True):
        place = INDEX[sample, token]
        for name, expected in (("kCacheRef", keys), ("ckvCacheRef", values)):
            cache = found[name]
            got = cache[sample, :, place] if mode == "Norm" else cache[0, place]
            np.testing.assert_allclose(got, expected[sample, :, token], rtol=1e-3, atol=1e-3, err_msg=name)


def test_separate_values_have_their_own_columns_and_are_unchecked_on_ascend_950() -> None:
    call = _apart(D.FLOAT16) | {"gamma": T(D.FLOAT16, (128,))}
    with pytest.raises(AclnnError, match=r"kv: expected columns \[192, 192, 64, 128\] of it, gamma, cos and vOptional"):
        prepare(BY_NAME[NAMES[1]], described(call), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=r"kv: expected shape .samples, 1, tokens"):
        prepare(BY_NAME[NAMES[1]], described(_apart(D.FLOAT16) | {"cacheModeOptional": "PA_NZ"}), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=r"kv: expected shape .samples, 1, tokens"):
        prepare(BY_NAME[NAMES[1]], described(_apart(D.FLOAT16)), Product.ASCEND_950)
