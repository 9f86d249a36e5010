"""Angles of a table, decided by rows of positions one after another or in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import rotary_tables
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

NAME = "rope_with_sin_cos_cache_v2"
TOKENS, HEAD, TURNED, ROWS, SECTION = 5, 160, 128, 7, (16, 24, 24)


def _call(d: D) -> Arguments:
    return {
        "positions": T(D.INT64, (3, TOKENS)),
        **{f"query{way}": T(d, (TOKENS, 3 * HEAD)) for way in ("In", "Out")},
        **{f"key{way}": T(d, (TOKENS, 2 * HEAD)) for way in ("In", "Out")},
        "cosSinCache": T(d, (ROWS, TURNED)),
        "mropeSection": SECTION,
        "headSize": HEAD,
        "isNeoxStyle": True,
        "cacheMode": 1,
    }


def _looked_up(a: Mapping[str, Any]) -> list[Any]:
    """The document's formula, in PyTorch's words."""
    chosen = []
    for numbers in wide(a["cosSinCache"])[a["positions"].long()].chunk(2, -1):
        if a["cacheMode"]:
            found = numbers[0].clone()
            for row in (1, 2):
                found[:, row : 3 * SECTION[1] : 3] = numbers[row][:, row : 3 * SECTION[1] : 3]
        else:
            found = torch.cat([part[row] for row, part in enumerate(numbers.split(SECTION, -1))], -1)
        chosen.append(found[:, None])
    cos, sin = chosen
    results = []
    for name in ("queryIn", "keyIn"):
        heads = wide(a[name]).unflatten(-1, (-1, HEAD))
        first, second = heads[..., :TURNED].chunk(2, -1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        results.append(torch.cat((*turned, heads[..., TURNED:]), -1).flatten(-2))
    return results


def _positions(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) % ROWS if name == "positions" else array


class TestTables(LibraryTests):
    subject = Subject(
        rotary_tables.OPERATORS,
        calls={NAME: _call},
        references={NAME: _looked_up},
        default=TRAINED,
        empty={
            NAME: {"positions": {"shape": (3, 1)}, "cosSinCache": {"shape": (1, TURNED)}}
            | shape((1, HEAD), "queryIn", "queryOut", "keyIn", "keyOut")
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as queryIn": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "2 dimensions": lambda o, name: Break(shape((TOKENS,), name), "2 dimensions"),
            "not empty": lambda o, name: Break(shape((0, TURNED), name), "elements"),
            "shape is a row for each token": lambda o, name: Break(shape((4, 2 * HEAD), name), "[5, 320]"),
            "turned elements of a head": lambda o, name: Break({name: 100}, "128"),
            "whole heads": lambda o, name: Break(
                shape((TOKENS, 2 * HEAD + 1), name, name.replace("In", "Out")), "a multiple of 160"
            ),
            "of all angles": lambda o, name: Break({name: (16, 24, 25)}, "64"),
            "of each token": lambda o, name: Break(shape((TOKENS,), name), "[3, 5]"),
            "same shape as queryIn": lambda o, name: Break(shape((TOKENS, HEAD), name), "[5, 480]"),
            "same shape as keyIn": lambda o, name: Break(shape((TOKENS, HEAD), name), "[5, 320]"),
            "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
            "three rows in turn": lambda o, name: Break(
                {name: (16, 16, 16, 16), "positions": T(D.INT64, (4, TOKENS))}, "3 numbers with cacheMode 1"
            ),
        },
        numbers=_positions,
    )


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_rows_of_positions_select_angles_in_both_cache_modes(mode: int, product: Product) -> None:
    """torch_npu's npu_mrope asks for it on Ascend 950 always, elsewhere for ``cache_mode="interleave"``."""
    random = np.random.default_rng(5)
    query, key = (random.normal(size=(TOKENS, heads * HEAD)).astype(np.float32) for heads in (3, 2))
    given = {"positions": random.integers(0, ROWS, (3, TOKENS)), "queryIn": query, "keyIn": key}
    cache = {"cosSinCache": random.normal(size=(ROWS, TURNED)).astype(np.float32)}
    outs = {"queryOut": np.zeros_like(query), "keyOut": np.zeros_like(key)}
    attributes = {"mropeSection": SECTION, "headSize": HEAD, "isNeoxStyle": True, "cacheMode": mode}
    found = computed(NAME, given | cache | outs | attributes, product)
    arrays = {name: torch.from_numpy(array) for name, array in (given | cache).items()}
    for name, expected in zip(outs, _looked_up(arrays | {"cacheMode": mode}), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-6, atol=1e-6)


def test_four_rows_of_positions_select_angles_in_turn() -> None:
    call = described(_call(D.FLOAT) | {"positions": T(D.INT64, (4, TOKENS)), "mropeSection": (16, 16, 16, 16)})
    prepare(BY_NAME[NAME], call | {"cacheMode": 0}, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="mropeSection: expected 3 numbers with cacheMode 1, got 4"):
        prepare(BY_NAME[NAME], call, Product.ATLAS_A2)
