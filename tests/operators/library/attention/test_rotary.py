"""Pairs of elements turned by angles, and the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import rotary
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    torch,
    wide,
)

TRAINED = (D.FLOAT, D.FLOAT16, D.BF16)
#: Two samples of five tokens with three heads of 32.
X, ANGLES = (2, 5, 3, 32), (1, 5, 1, 32)


def _call(name: str, d: D, x: tuple[int, ...] = X, angles: tuple[int, ...] = ANGLES) -> Arguments:
    call: Arguments = dict.fromkeys(("x", "xOptional", "dy", "out", "dxOut"), T(d, x)) | {"mode": 0}
    call |= dict.fromkeys(("cos", "sin", "dcosOut", "dsinOut"), T(d, angles)) | {"rotate": None}
    return {p.name: call[p.name] for p in BY_NAME[name].parameters}


#: As many tokens, three heads of queries and two of keys.
APPLIED = {name: (2, 5, heads, 64) for name, heads in (("queryRef", 3), ("keyRef", 2), ("cos", 1), ("sin", 1))}


def _apply_call(d: D, **mode: str) -> Arguments:
    return {name: T(d, dims) for name, dims in APPLIED.items()} | {"layout": 1} | mode


APPLY_CALLS = {
    "apply_rotary_pos_emb": _apply_call,
    "apply_rotary_pos_emb_v2": lambda d: _apply_call(d, rotaryMode="half"),
}


def _turned(x: Any, cos: Any, sin: Any, mode: int) -> Any:
    """The documents' formulas, in PyTorch's words."""
    if mode == 2:
        x1, x2, x3, x4 = x.chunk(4, -1)
        return x * cos + torch.cat((-x2, x1, -x4, x3), -1) * sin
    x1, x2 = x.chunk(2, -1) if mode == 0 else (x[..., ::2], x[..., 1::2])
    if mode == 1:
        return x * cos + torch.stack((-x2, x1), -1).flatten(-2) * sin
    return torch.cat((x1, x2), -1) * cos + torch.cat((-x2, x1), -1) * sin


def _gradients(dy: Any, cos: Any, sin: Any, x: Any, mode: int) -> list[Any]:
    leaves = [wide(each).clone().requires_grad_() for each in (x, cos, sin)]
    _turned(*leaves, mode).backward(wide(dy))
    return [leaf.grad for leaf in leaves]


REFERENCES = {
    "rotary_position_embedding": lambda a: _turned(*(wide(a[name]) for name in ("x", "cos", "sin")), a["mode"]),
    "rotary_position_embedding_v2": lambda a: _turned(*(wide(a[name]) for name in ("x", "cos", "sin")), a["mode"]),
    "rotary_position_embedding_grad": lambda a: _gradients(a["dy"], a["cos"], a["sin"], a["xOptional"], a["mode"]),
}

APPLIED_REFERENCES = dict.fromkeys(
    APPLY_CALLS, lambda a: [_turned(*(wide(a[name]) for name in (x, "cos", "sin")), 0) for x in ("queryRef", "keyRef")]
)


BREAKS: Mapping[str, Breaking] = {
    "same data type as x": lambda o, name: Break({name: T(D.FLOAT16, X)}, "ACL_FLOAT"),
    "same data type as dy": lambda o, name: Break({name: T(D.FLOAT16, X)}, "ACL_FLOAT"),
    "same data type as queryRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "known mode": lambda o, name: Break(*(({name: 2}, "0 or 1") if name == "mode" else ({name: "quarter"}, "'half'"))),
    "known layout": lambda o, name: Break({name: 2}, "1 or 4"),
    "dimensions of the layout": lambda o, name: Break(shape(APPLIED[name][1:], name), "4 dimensions"),
    "not empty": lambda o, name: Break(shape((0, *APPLIED[name][1:]), name), "elements"),
    "shape is that of queryRef but for its heads": lambda o, name: Break(shape((2, 4, 2, 64), name), "[2, 5, 2, 64]"),
    "shape is that of queryRef with one head": lambda o, name: Break(shape((2, 5, 2, 64), name), "[2, 5, 1, 64]"),
    "heads fit": lambda o, name: Break(shape((2, 5, 151, 64), name), "at most 196608 bytes"),
    "3 to 4 dimensions": lambda o, name: Break(shape((5, 32), name), "3 to 4"),
    "same shape as cos": lambda o, name: Break(shape((1, 5, 3, 32), name), "shape ["),
    "same shape as x": lambda o, name: Break(shape((2, 5, 3, 30), name), "shape ["),
    "same shape as dy": lambda o, name: Break(shape((2, 5, 3, 30), name), "shape ["),
    "whole pairs": lambda o, name: (
        Break(shape((2, 5, 3, 32), name), "64 or 128")
        if name == "queryRef"
        else Break(_call(o.name, D.FLOAT, (2, 5, 3, 31), (1, 5, 1, 31)), "multiple of 2")
    ),
    "broadcasts": lambda o, name: Break(
        _call(o.name, D.FLOAT, X, (2, 4, 1, 32)), "broadcasts to", product=Product.ASCEND_950
    ),
    "null": lambda o, name: Break({name: T(D.FLOAT, (32, 32))}, "null", product=Product.ASCEND_950),
    "shape is a square of columns": lambda o, name: Break({name: T(D.FLOAT, (32, 31))}, "[32, 32]"),
    "arrangement": lambda o, name: Break(_call(o.name, D.FLOAT, X, (1, 5, 3, 32)), "fewer than 1000"),
}


class TestApplied(LibraryTests):
    subject = Subject(
        rotary.OPERATORS[3:5],
        calls=APPLY_CALLS,
        references=APPLIED_REFERENCES,
        default=TRAINED,
        # Empty tensors are rejected; this is the least there may be.
        empty=dict.fromkeys(APPLY_CALLS, shape((1, 1, 1, 64), *APPLIED)),
        breaks=BREAKS,
    )


class TestRotary(LibraryTests):
    subject = Subject(
        rotary.OPERATORS[:3],
        calls={name: lambda d, name=name: _call(name, d) for name in REFERENCES},
        references=REFERENCES,
        default=TRAINED,
        empty={name: _call(name, D.FLOAT, (0, 5, 3, 32)) for name in REFERENCES},
        breaks=BREAKS,
        codes=dict.fromkeys(
            (
                *("known mode", "3 to 4 dimensions", "same shape as cos", "same shape as x", "same shape as dy"),
                *("whole pairs", "broadcasts", "arrangement", "shape is a square of columns"),
            ),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


@pytest.mark.parametrize("mode", [0, 1])
def test_a_rotation_matrix_gives_the_results_of_a_mode(mode: int) -> None:
    random = np.random.default_rng(mode)
    x, cos, sin = (random.normal(size=dims).astype(np.float32) for dims in (X, ANGLES, ANGLES))
    rotate = _turned(torch.eye(32), torch.zeros(32), torch.ones(32), mode).numpy()
    given = {"x": x, "cos": cos, "sin": sin, "out": np.full_like(x, np.nan)}
    by_pairs, by_matrix = (
        _computed("rotary_position_embedding_v2", given | {"rotate": each}, mode, Product.ATLAS_A2)["out"]
        for each in (None, rotate)
    )
    np.testing.assert_array_equal(by_matrix, by_pairs)
    np.testing.assert_allclose(by_pairs, _turned(*map(torch.from_numpy, (x, cos, sin)), mode), rtol=1e-5, atol=1e-5)


def _computed(name: str, tensors: Mapping[str, Any], mode: int, product: Product) -> dict[str, Any]:
    placed = {key: Placed(array, "contiguous") for key, array in tensors.items() if array is not None}
    arguments = dict.fromkeys(tensors) | {key: each.tensor for key, each in placed.items()}
    prepare(BY_NAME[name], arguments | {"mode": mode}, product).run()
    return {key: each.view for key, each in placed.items()}


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize(
    ("x", "angles"),
    [
        ((2, 3, 5, 8), (1, 1, 5, 8)),
        ((2, 3, 5, 8), (2, 1, 1, 8)),
        ((7, 3, 8), (7, 1, 8)),
        ((2, 7, 3, 8), (7, 3, 8)),
        ((2, 3, 5, 8), (2, 3, 5, 8)),
    ],
)
def test_every_mode_rotates_its_pairs(mode: int, x: tuple[int, ...], angles: tuple[int, ...]) -> None:
    random = np.random.default_rng(mode)
    given, dy = (random.normal(size=x).astype(np.float32) for _ in range(2))
    cos, sin = (random.normal(size=angles).astype(np.float32) for _ in range(2))
    forward = {"x": given, "cos": cos, "sin": sin, "out": np.full_like(dy, np.nan)}
    found = _computed("rotary_position_embedding", forward, mode, Product.ASCEND_950)
    tensors = [torch.from_numpy(each) for each in (dy, cos, sin, given)]
    exact = _turned(*(wide(each) for each in (tensors[3], *tensors[1:3])), mode)
    np.testing.assert_array_equal(found["out"], exact.numpy().astype(np.float32))
    backward = {"dy": dy, "cos": cos, "sin": sin, "xOptional": given, "dxOut": np.full_like(dy, np.nan)}
    backward |= {"dcosOut": np.full_like(cos, np.nan), "dsinOut": np.full_like(cos, np.nan)}
    found = _computed("rotary_position_embedding_grad", backward, mode, Product.ASCEND_950)
    for name, value in zip(("dxOut", "dcosOut", "dsinOut"), _gradients(*tensors, mode), strict=True):
        np.testing.assert_allclose(found[name], value.numpy(), rtol=2.0**-23, err_msg=name)


def test_without_x_only_dx_is_written() -> None:
    dy, cos, sin = np.ones(X, np.float32), np.full(ANGLES, 2, np.float32), np.full(ANGLES, 3, np.float32)
    given = {"dy": dy, "cos": cos, "sin": sin, "xOptional": None, "dxOut": dy * 0}
    kept = np.full(ANGLES, 7, np.float32)
    found = _computed("rotary_position_embedding_grad", given | {"dcosOut": kept, "dsinOut": kept}, 0, Product.ATLAS_A2)
    assert (found["dxOut"] == [5] * 16 + [-1] * 16).all()
    assert (found["dcosOut"] == 7).all()
    assert (found["dsinOut"] == 7).all()


def test_without_x_the_other_gradients_may_have_any_shape() -> None:
    dy, cos, sin = np.ones(X, np.float32), np.full(ANGLES, 2, np.float32), np.full(ANGLES, 3, np.float32)
    given = {"dy": dy, "cos": cos, "sin": sin, "xOptional": None, "dxOut": dy * 0}
    given |= dict.fromkeys(("dcosOut", "dsinOut"), np.empty((1, 1, 1, 0), np.float32))
    found = _computed("rotary_position_embedding_grad", given, 0, Product.ATLAS_A2)
    assert (found["dxOut"] == [5] * 16 + [-1] * 16).all()


@pytest.mark.parametrize(
    ("x", "angles", "mode"),
    [
        ((2, 3, 5, 8), (1, 1, 1, 8), 0),
        ((2, 3, 5, 8), (2, 1, 5, 8), 1),
        ((1000, 1000, 1, 2), (1000, 1000, 1, 2), 0),
        ((40, 30, 5, 8), (1, 1, 5, 8), 1),
        ((40, 30, 5, 8), (1, 1, 5, 8), 0),
        ((7, 3, 8), (7, 3, 8), 1),
        ((7, 3, 8), (1, 7, 3, 8), 0),
    ],
)
def test_other_shapes_of_angles_are_rejected_before_ascend_950(
    x: tuple[int, ...], angles: tuple[int, ...], mode: int
) -> None:
    call = _call("rotary_position_embedding_grad", D.FLOAT, x, angles) | {"mode": mode}
    arguments = {
        name: Placed(np.zeros(value.shape, np.float32), "contiguous").tensor if isinstance(value, T) else value
        for name, value in call.items()
    }
    with pytest.raises(AclnnError, match="cos: expected extents"):
        prepare(BY_NAME["rotary_position_embedding_grad"], arguments, Product.ATLAS_A2)


def test_atlas_inference_rotates_halves_of_whole_blocks() -> None:
    for mode, size, text in ((1, 32, "mode: expected 0 on"), (0, 48, "multiple of 32"), (0, 160, "up to 128")):
        x, angles = np.zeros((1, 5, 3, size), np.float32), np.zeros((1, 5, 1, size), np.float32)
        given = {"x": x, "cos": angles, "sin": angles, "out": x}
        with pytest.raises(AclnnError, match=text):
            _computed("rotary_position_embedding", given, mode, Product.ATLAS_INFERENCE)


def _applied(
    query: Array, key: Array, cos: Array, sin: Array, layout: int, mode: str, product: Product
) -> tuple[Array, Array]:
    placed = [Placed(each, "reversed with holes") for each in (query, key, cos, sin)]
    call = dict(zip(APPLIED, (each.tensor for each in placed), strict=True)) | {"layout": layout, "rotaryMode": mode}
    prepare(BY_NAME["apply_rotary_pos_emb_v2"], call, product).run()
    return placed[0].view, placed[1].view


@pytest.mark.parametrize(
    ("layout", "query", "key", "angles", "product"),
    [
        (1, (2, 5, 3, 8), (2, 5, 1, 8), (1, 5, 1, 8), Product.ASCEND_950),
        (2, (5, 2, 3, 8), (5, 2, 1, 8), (5, 2, 1, 8), Product.ASCEND_950),
        (2, (5, 2, 3, 8), (5, 2, 4, 8), (5, 1, 1, 8), Product.ASCEND_950),
        (3, (2, 3, 5, 8), (2, 1, 5, 8), (2, 1, 5, 8), Product.ASCEND_950),
        (4, (5, 3, 8), (5, 2, 8), (5, 1, 8), Product.ASCEND_950),
        (4, (5, 3, 128), (5, 2, 128), (5, 1, 128), Product.ATLAS_A2),
        (4, (5, 3, 64), (5, 2, 64), (5, 1, 64), Product.ATLAS_INFERENCE),
    ],
)
def test_queries_and_keys_are_rotated_in_every_layout(
    layout: int, query: tuple[int, ...], key: tuple[int, ...], angles: tuple[int, ...], product: Product
) -> None:
    random = np.random.default_rng(layout)
    given = [random.normal(size=dims).astype(np.float32) for dims in (query, key, angles, angles)]
    for mode, name in enumerate(("half", "interleave", "quarter") if product is Product.ASCEND_950 else ("half",)):
        cos, sin = (wide(torch.from_numpy(each)) for each in given[2:])
        for found, before in zip(_applied(*given, layout, name, product), given, strict=False):
            exact = _turned(wide(torch.from_numpy(before)), cos, sin, mode)
            np.testing.assert_array_equal(found, exact.numpy().astype(np.float32), err_msg=name)


@pytest.mark.parametrize(
    ("size", "mode", "angles", "text"),
    [
        (6, "quarter", (2, 5, 1, 6), "multiple of 4"),
        (7, "half", (2, 5, 1, 7), "multiple of 2"),
        (1026, "half", (2, 5, 1, 1026), "up to 1024"),
        (8, "half", (2, 1, 1, 8), "cos: expected shape .2, 5, 1, 8."),
        (8, "other", (2, 5, 1, 8), "'half', 'interleave' or 'quarter'"),
    ],
)
def test_ascend_950_rejects_other_modes_and_shapes_of_angles(
    size: int, mode: str, angles: tuple[int, ...], text: str
) -> None:
    x, turns = np.zeros((2, 5, 3, size), np.float32), np.zeros(angles, np.float32)
    with pytest.raises(AclnnError, match=text):
        _applied(x, x, turns, turns, 1, mode, Product.ASCEND_950)


TOKENS, HEAD, TURNED, ROWS = 5, 160, 128, 7
SECTION = (16, 24, 24)
TABLE, INTERLEAVED = "rope_with_sin_cos_cache", "interleave_rope"


def _table_call(d: D) -> Arguments:
    return {
        "positions": T(D.INT64, (3, TOKENS)),
        **{f"query{way}": T(d, (TOKENS, 3 * HEAD)) for way in ("In", "Out")},
        **{f"key{way}": T(d, (TOKENS, 2 * HEAD)) for way in ("In", "Out")},
        "cosSinCache": T(d, (ROWS, TURNED)),
        "mropeSection": SECTION,
        "headSize": HEAD,
        "isNeoxStyle": True,
    }


def _looked_up(a: Mapping[str, Any]) -> Any:
    """vLLM's, in PyTorch's words."""
    rows, section = wide(a["cosSinCache"])[a["positions"].long()], [*a["mropeSection"]]
    parts = ([*enumerate(half.split(section, -1))] for half in rows.chunk(2, -1))
    cos, sin = (torch.cat([part[at] for at, part in each], -1)[:, None] for each in parts)
    mode = 0 if a["isNeoxStyle"] else 1
    repeat = (lambda x: torch.cat((x, x), -1)) if mode == 0 else (lambda x: x.repeat_interleave(2, -1))
    results = []
    for name in ("queryIn", "keyIn"):
        heads = wide(a[name]).unflatten(-1, (-1, HEAD))
        turned = _turned(heads[..., :TURNED], repeat(cos), repeat(sin), mode)
        results.append(torch.cat((turned, heads[..., TURNED:]), -1).flatten(-2))
    return results


def _positions(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) % ROWS if name == "positions" else array


class TestInterleaved(LibraryTests):
    subject = Subject(
        tuple(operator for operator in rotary.OPERATORS if operator.name == INTERLEAVED),
        calls={
            INTERLEAVED: lambda d: (
                {"x": T(d, (2, 3, 5, 64)), "out": T(d, (2, 3, 5, 64))}
                | dict.fromkeys(("cos", "sin"), T(d, (2, 1, 5, 64)))
            )
        },
        references={INTERLEAVED: lambda a: _turned(*(wide(a[name]) for name in ("x", "cos", "sin")), 3)},
        default=TRAINED[1:],
        empty={INTERLEAVED: shape((0, 3, 5, 64), "x", "out") | shape((0, 1, 5, 64), "cos", "sin")},
        breaks={
            "data types that go together": lambda o, name: Break(
                dtype(D.FLOAT if name == "x" else D.BF16, name), "ACL_FLOAT16", D.FLOAT16
            ),
            "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ND"),
            "4 dimensions": lambda o, name: Break(shape((2, 5, 64), name), "4 dimensions"),
            "64 columns": lambda o, name: Break(shape((2, 3, 5, 32), name), "64 columns"),
            "with x": lambda o, name: Break(shape((1, 1, 5, 64), name), "[2, 1, 5 or 1, 64]"),
            "same shape as cos": lambda o, name: Break(shape((2, 3, 5, 64), name), "[2, 1, 5, 64]"),
            "same shape as x": lambda o, name: Break(shape((2, 1, 5, 64), name), "[2, 3, 5, 64]"),
        },
        codes=dict.fromkeys(
            ("4 dimensions", "64 columns", "with x", "same shape as cos", "same shape as x"),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


class TestTable(LibraryTests):
    subject = Subject(
        tuple(operator for operator in rotary.OPERATORS if operator.name == TABLE),
        calls={TABLE: _table_call},
        references={TABLE: _looked_up},
        default=TRAINED,
        # Empty tensors are rejected; this is the least there may be.
        empty={
            TABLE: {"positions": {"shape": (3, 1)}, "cosSinCache": {"shape": (1, TURNED)}}
            | shape((1, HEAD), "queryIn", "queryOut", "keyIn", "keyOut")
        },
        breaks={
            "data type": lambda o, name: Break(dtype(D.INT32 if name == "positions" else D.DOUBLE, name), "ACL_"),
            "same data type as queryIn": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "2 dimensions": lambda o, name: Break(shape((TOKENS,), name), "2 dimensions"),
            "not empty": lambda o, name: Break(shape((0, TURNED), name), "elements"),
            "shape is a row for each token": lambda o, name: Break(shape((4, 2 * HEAD), name), "[5, 320]"),
            "turned elements of a head": lambda o, name: Break({name: 150}, "multiples of 16, 128"),
            "whole heads": lambda o, name: Break(
                shape((TOKENS, 2 * HEAD + 1), name, name.replace("In", "Out")), "a multiple of 160"
            ),
            "of all angles": lambda o, name: Break({name: (20, 22, 22)}, "[8, 12, 12] or [16, 16, 16, 16]"),
            "of each token": lambda o, name: Break(shape((TOKENS,), name), "[3, 5]"),
            "same shape as queryIn": lambda o, name: Break(shape((TOKENS, HEAD), name), "[5, 480]"),
            "same shape as keyIn": lambda o, name: Break(shape((TOKENS, HEAD), name), "[5, 320]"),
        },
        numbers=_positions,
    )


@pytest.mark.parametrize("section", [None, (0, 0, 0), (0, 16, 16)])
def test_tokens_have_one_position_each_without_sections(section: tuple[int, ...] | None) -> None:
    random = np.random.default_rng(5)
    query, key = (random.normal(size=(TOKENS, heads * HEAD)).astype(np.float32) for heads in (3, 2))
    tensors = {
        "positions": np.array([6, 0, 3, 3, 1]),
        "queryIn": query,
        "keyIn": key,
        "cosSinCache": random.normal(size=(ROWS, TURNED)).astype(np.float32),
        "queryOut": np.zeros_like(query),
        "keyOut": np.zeros_like(key),
    }
    placed = {name: Placed(array, "contiguous") for name, array in tensors.items()}
    attributes = {"mropeSection": section, "headSize": HEAD, "isNeoxStyle": False}
    call = attributes | {name: each.tensor for name, each in placed.items()}
    prepare(BY_NAME[TABLE], call, Product.ATLAS_A2).run()
    given = {name: torch.from_numpy(array) for name, array in tensors.items()}
    expected = _looked_up(given | attributes | {"positions": given["positions"].expand(3, -1), "mropeSection": SECTION})
    for name, each in zip(("queryOut", "keyOut"), expected, strict=True):
        np.testing.assert_allclose(placed[name].view, each, rtol=1e-6, atol=1e-6)
    placed["positions"].view[0] = ROWS
    with pytest.raises(AclnnError, match="positions: expected numbers from 0 to 6"):
        prepare(BY_NAME[TABLE], call, Product.ATLAS_A2).run()


@pytest.mark.parametrize("size", [2, 5])
def test_sections_are_three_or_four_numbers(size: int) -> None:
    with pytest.raises(AclnnError, match="mropeSection: expected 3 or 4 numbers"):
        prepare(BY_NAME[TABLE], described(_table_call(D.FLOAT) | {"mropeSection": (0,) * size}), Product.ATLAS_A2)


@pytest.mark.parametrize("section", [(16, 24, 24), (24, 20, 20), (8, 12, 12), (16, 16, 16, 16)])
def test_mrope_sections_depend_on_the_product(section: tuple[int, ...]) -> None:
    positions = T(D.INT64, (len(section), TOKENS))
    heads = {f"{name}{way}": T(D.FLOAT, (TOKENS, 128)) for name in ("query", "key") for way in ("In", "Out")}
    table = {"cosSinCache": T(D.FLOAT, (ROWS, 2 * sum(section))), "headSize": 128}
    call = described(_table_call(D.FLOAT) | heads | table | {"mropeSection": section, "positions": positions})
    prepare(BY_NAME[TABLE], call, Product.ATLAS_A3)
    if section in ((16, 24, 24), (24, 20, 20)):
        prepare(BY_NAME[TABLE], call, Product.ASCEND_950)
    else:
        with pytest.raises(AclnnError, match="24, 20, 20] on Ascend 950"):
            prepare(BY_NAME[TABLE], call, Product.ASCEND_950)


def test_heads_of_16_bits_are_multiples_of_32_elements() -> None:
    sizes = {f"{name}{way}": T(D.FLOAT16, (TOKENS, 144)) for name in ("query", "key") for way in ("In", "Out")}
    call = _table_call(D.FLOAT16) | sizes | {"headSize": 144}
    with pytest.raises(AclnnError, match="headSize: expected multiples of 32, 128"):
        prepare(BY_NAME[TABLE], described(call), Product.ATLAS_A2)


@pytest.mark.parametrize("angles", [(2, 3, 5, 64), (2, 1, 5, 1), (2, 1, 4, 64)])
def test_interleaved_angles_match_one_head(angles: tuple[int, ...]) -> None:
    call = dict.fromkeys(("x", "out"), T(D.BF16, (2, 3, 5, 64))) | dict.fromkeys(("cos", "sin"), T(D.BF16, angles))
    with pytest.raises(AclnnError, match="cos: expected shape") as caught:
        prepare(BY_NAME[INTERLEAVED], described(call), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_ascend_950_interleaves_float32_by_angles_of_one_sample() -> None:
    random = np.random.default_rng(2)
    x, cos, sin = (random.normal(size=of).astype(np.float32) for of in ((2, 3, 5, 64), *((1, 1, 1, 64),) * 2))
    call = {"x": x, "cos": cos, "sin": sin, "out": np.zeros_like(x)}
    expected = _turned(*(wide(torch.from_numpy(each)) for each in (x, cos, sin)), 3)
    found = computed(INTERLEAVED, call, Product.ASCEND_950)["out"]
    np.testing.assert_array_equal(found, expected.numpy().astype(np.float32))
    with pytest.raises(AclnnError, match="x: expected data type ACL_FLOAT16 or ACL_BF16"):
        computed(INTERLEAVED, call)
