"""Keys and values of latent attention in caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library import latent_caches
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Placed, Subject, torch, wide

NAME = "kv_rms_norm_rope_cache"
B, S, VALUES, KEYS, PLACES = 2, 3, 32, 16, 5
EPSILON = float(np.float32(1e-5))
INDEX = np.array([[4, 0, 2], [1, -1, 3]])
QUANTIZATION = ("kRopeScaleOptional", "cKvScaleOptional", "kRopeOffsetOptional", "cKvOffsetOptional")


def _call(d: D) -> Arguments:
    return {
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
    }


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
    *("null", "allowed value", "4 dimensions", "1 dimension", "one head", "pairs to turn", "shape is of angles"),
    *("same shape as cos", "shape is of places", "shape of a cache", "shape is of values"),
)


class TestLatentCaches(LibraryTests):
    subject = Subject(
        latent_caches.OPERATORS,
        calls={NAME: _call},
        references={NAME: _cached},
        default=(D.FLOAT16, D.BF16),
        empty={
            NAME: {
                name: {"shape": (0, *of.shape[1:])}
                for name, of in _call(D.FLOAT16).items()
                if isinstance(of, T) and name != "gamma"
            }
            | {"gamma": {"shape": (VALUES,)}}
            | dict.fromkeys(QUANTIZATION)
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.FLOAT if name == "kv" else D.INT32, name), "ACL_"),
            "same data type as kv": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16", D.FLOAT16),
            "null": lambda o, name: Break({name: T(D.FLOAT, (KEYS,))}, "null"),
            "allowed value": lambda o, name: Break({name: "PA_BLK_NZ"}, "'PA_NZ'"),
            "4 dimensions": lambda o, name: Break(shape((B, S, VALUES + KEYS), name), "4 dimensions"),
            "1 dimension": lambda o, name: Break(shape((1, VALUES), name), "1 dimension"),
            "one head": lambda o, name: Break(shape((B, 2, S, VALUES + KEYS), name), "[samples, 1, tokens, columns]"),
            "pairs to turn": lambda o, name: Break(shape((B, 1, S, VALUES), name), "above 32"),
            "shape is of angles": lambda o, name: Break(shape((B, 1, S, 2), name), "[2, 1, 3, 16]"),
            "same shape as cos": lambda o, name: Break(shape((B, 1, S, 2), name), "[2, 1, 3, 16]"),
            "shape is of places": lambda o, name: Break(shape((B * S,), name), "[2, 3]"),
            "shape of a cache": lambda o, name: Break(shape((B, 1, PLACES, 8), name), "[2, 1, N"),
            "shape is of values": lambda o, name: Break(shape((B, 1, S, 2), name), "[2, 1, 3, 32]"),
        },
        numbers=lambda operator, name, array: INDEX if name == "index" else array,
        codes=dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR),
    )


def _in_blocks(mode: str, slots: Array) -> tuple[Any, Array]:
    """The rows of keys, and their cache of two blocks of four tokens."""
    random = np.random.default_rng(3)
    arrays = {
        name: random.normal(size=of.shape).astype(np.float16)
        for name, of in _call(D.FLOAT16).items()
        if isinstance(of, T) and name not in ("index", "kRopeOut", "cKvOut")
    }
    caches = {name: np.zeros((2, 4, 1, n), np.float16) for name, n in (("kCacheRef", KEYS), ("ckvCacheRef", VALUES))}
    placed = {name: Placed(each, "contiguous") for name, each in (arrays | caches | {"index": slots}).items()}
    unwritten = {"kRopeOut": None, "cKvOut": None, "isOutputKv": False, "cacheModeOptional": mode}
    call = _call(D.FLOAT16) | unwritten | {name: each.tensor for name, each in placed.items()}
    prepare(BY_NAME[NAME], call, Product.ATLAS_A2).run()
    rows = _rows({name: torch.from_numpy(each) for name, each in arrays.items()})
    return rows[1].reshape(B * S, VALUES), placed["ckvCacheRef"].view


@pytest.mark.parametrize("mode", ["PA", "PA_BNSD", "PA_NZ"])
def test_slots_of_blocks(mode: str) -> None:
    slots = np.array([5, 0, -1, 7, 2, 6])
    rows, cache = _in_blocks(mode, slots)
    if mode == "PA_NZ":  # columns of 16 numbers, each of all tokens of a block
        cache = cache.reshape(2, VALUES // 16, 4, 16).swapaxes(1, 2)
    cache = cache.reshape(8, VALUES)
    used = slots >= 0
    np.testing.assert_allclose(cache[slots[used]], rows[used], rtol=1e-3, atol=1e-3)
    assert not cache[[1, 3, 4]].any()


def test_slots_beyond_the_blocks_are_refused() -> None:
    with pytest.raises(AclnnError, match="index: expected numbers below 8, got 8"):
        _in_blocks("PA", np.array([5, 0, -1, 8, 2, 6]))
