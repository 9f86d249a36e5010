"""Keys that queries attend to, compared with PyTorch's products and gradients in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from tests.cases.table import INVALID, NO_KERNEL, TILING, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

FORWARD, BACKWARD, QUANTIZED = "lightning_indexer", "lightning_indexer_grad", "quant_lightning_indexer"
ANY = 2**63 - 1
B, QUERIES, KEYS, HEADS, SIZE, COUNT = 2, 3, 5, 8, 128, 4
LENGTHS = {
    "actualSeqLengthsQueryOptional": np.array([3, 2], np.int32),
    "actualSeqLengthsKeyOptional": np.array([5, 4], np.int32),
}
CHOSEN = np.array([[[2, 0, 1, -1], [3, 1, 0, 2], [4, 0, 0, -1]], [[0, 2, 1, 3], [1, 3, 0, 2], [4, 3, 2, 1]]])
"""A key twice is two; of a query that sees fewer keys than that, only as many numbers count."""


def _forward(d: D) -> Arguments:
    return {
        "query": T(d, (B, QUERIES, HEADS, SIZE)),
        "key": T(d, (B, KEYS, 1, SIZE)),
        "weights": T(d, (B, QUERIES, HEADS)),
        **{name: T(D.INT32, (B,)) for name in LENGTHS},
        "blockTableOptional": None,
        "layoutQueryOptional": "BSND",
        "layoutKeyOptional": "BSND",
        "sparseCount": COUNT,
        "sparseMode": 3,
        "preTokens": ANY,
        "nextTokens": ANY,
        "returnValues": True,
        "sparseIndicesOut": T(D.INT32, (B, QUERIES, 1, COUNT)),
        "sparseValuesOut": T(d, (B, QUERIES, 1, COUNT)),
    }


def _backward(d: D) -> Arguments:
    queries, keys, weights = (_forward(d)[name] for name in ("query", "key", "weights"))
    return {
        "query": queries,
        "key": keys,
        "dy": T(d, (B, QUERIES, 1, COUNT)),
        "sparseIndices": T(D.INT32, (B, QUERIES, 1, COUNT)),
        "weights": weights,
        "actualSeqQLenOptional": None,
        "actualSeqKvLenOptional": None,
        "headNum": 0,
        "inputLayout": "BSND",
        "sparseMode": 3,
        "preTokens": 65536,
        "nextTokens": 65536,
        "deterministic": True,
        "dqOut": queries,
        "dkOut": keys,
        "dweightsOut": weights,
    }


def _quantized(d: D) -> Arguments:
    forward = _forward(D.FLOAT16)
    for name in ("returnValues", "sparseIndicesOut", "sparseValuesOut"):
        del forward[name]
    return {
        **forward,
        "query": T(d, (B, QUERIES, HEADS, SIZE)),
        "key": T(d, (B, KEYS, 1, SIZE)),
        "queryDequantScale": T(D.FLOAT16, (B, QUERIES, HEADS)),
        "keyDequantScale": T(D.FLOAT16, (B, KEYS, 1)),
        "queryQuantMode": 0,
        "keyQuantMode": 0,
        "out": T(D.INT32, (B, QUERIES, 1, COUNT)),
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {FORWARD: _forward, BACKWARD: _backward, QUANTIZED: _quantized}


def _scores(query: Any, key: Any, weights: Any) -> Any:
    """(B, queries, keys)"""
    return (
        torch.einsum("bqnd,bkd,bqn->bqnk", query, key[:, :, 0], torch.ones_like(weights))
        .relu()
        .mul(weights[..., None])
        .sum(2)
    )


def _best(a: Mapping[str, Any]) -> Any:
    scores = _scores(*(wide(a[name]) for name in ("query", "key", "weights")))
    indices, values = torch.full((B, QUERIES, 1, COUNT), -1), torch.full((B, QUERIES, 1, COUNT), -torch.inf).double()
    for b, (queries, keys) in enumerate(zip(*LENGTHS.values(), strict=True)):
        for q in range(queries):
            found = scores[b, q, : keys - queries + q + 1].topk(min(COUNT, keys - queries + q + 1))
            indices[b, q, 0, : len(found.indices)], values[b, q, 0, : len(found.values)] = found.indices, found.values
    return indices, values


def _best_quantized(a: Mapping[str, Any]) -> Any:
    scales = {name: wide(a[f"{name}DequantScale"])[..., None] for name in ("query", "key")}
    return _best(a | {name: wide(a[name]) * scale for name, scale in scales.items()})[0]


def _gradients(a: Mapping[str, Any]) -> Any:
    given = [wide(a[name]).requires_grad_() for name in ("query", "key", "weights")]
    scores, total = _scores(*given), 0
    for b in range(B):
        for q in range(QUERIES):
            chosen = [int(at) for at in a["sparseIndices"][b, q, 0, : KEYS - QUERIES + q + 1]]
            total += sum(scores[b, q, at] * wide(a["dy"])[b, q, 0, place] for place, at in enumerate(chosen) if at >= 0)
    return torch.autograd.grad(total, given)


def _numbers(operator: str, name: str, array: Array) -> Array:
    known = {**LENGTHS, "sparseIndices": CHOSEN[:, :, None]}
    if name in ("query", "key") and operator == QUANTIZED:
        return array
    # Scores apart from one another, so that rounding does not change their order.
    return known.get(name, array if operator == BACKWARD else array / 8)


def _packed(o: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes that make a call one of packed sequences, with a violation."""
    tokens, keys, rows = (7, HEADS, SIZE), (9, 1, SIZE), (7, 1, COUNT)
    if o.name != BACKWARD:
        changes = shape(rows, *(("sparseIndicesOut", "sparseValuesOut") if o.name == FORWARD else ("out",)))
        changes = {**changes, "layoutQueryOptional": "TND", "layoutKeyOptional": "TND"}
    else:
        changes = {**shape(rows, "dy", "sparseIndices"), **shape(tokens, "dqOut"), **shape(keys, "dkOut")}
        changes |= {**shape((7, HEADS), "dweightsOut"), "inputLayout": "TND"}
        changes |= {name: T(D.INT32, (2,)) for name in ("actualSeqQLenOptional", "actualSeqKvLenOptional")}
    return {**changes, **shape(tokens, "query"), **shape(keys, "key"), **shape((7, HEADS), "weights"), **change}


def _given_with_its_layout(o: Any, name: str) -> Break:
    if name == "blockTableOptional":
        return Break({name: T(D.INT32, (B, 1))}, "null")
    return Break(_packed(o, {name: None}), "a tensor")


def _with(o: Any, name: str, value: T) -> Mapping[str, Any]:
    """A call in which an optional tensor of integers takes part."""
    if name == "blockTableOptional":
        return {**shape((6, 16, 1, SIZE), "key"), "layoutKeyOptional": "PA_BSND", name: value}
    return _packed(o, {name: value}) if o.name == BACKWARD else {name: value}


def _other_heads(o: Any, name: str) -> Break:
    heads = (B, QUERIES, 65, SIZE)
    return Break(shape(heads, name), f"{'1 to' if o.name == BACKWARD else 'at most'} 64 heads")


def _one_for_each_sample(o: Any, name: str) -> Break:
    if o.name == BACKWARD and name == "actualSeqQLenOptional":
        return Break(_packed(o, {name: T(D.INT32, (0,))}), "of 1 (samples)")
    return Break(_with(o, name, T(D.INT32, (3, 3))), "of 2 (samples)")


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "allowed value": lambda o, name: Break(
        {name: "SBH" if "ayout" in name else 1},
        "'BSND'" if "ayout" in name else "0 or 3" if name == "sparseMode" else "0" if "Quant" in name else str(ANY),
    ),
    "goes with that of queries": lambda o, name: Break({name: "TND"}, "'BSND' or 'PA_BSND'"),
    "dimensions of the layout": lambda o, name: Break(shape((2, 3, SIZE), name), "4 dimensions (BSND)"),
    "given with its layout": _given_with_its_layout,
    "data type ACL_INT32": lambda o, name: Break(_with(o, name, T(D.INT64, (2,))), "ACL_INT32"),
    "one for each sample": _one_for_each_sample,
    "a head, samples as queries have": lambda o, name: Break(shape((B, KEYS, 2, SIZE), name), "one head"),
    **dict.fromkeys(
        ("from 1 to 2048", "from 1 to 2048, or a multiple of 1024 up to 8192"),
        lambda o, name: Break({name: 2049}, "from 1 to 2048"),
    ),
    "not of pages": lambda o, name: Break(
        _with(o, "blockTableOptional", T(D.INT32, (B, 3))) | {name: True}, "false with"
    ),
    "heads": _other_heads,
    "shape is one for each head": lambda o, name: Break(shape((B, QUERIES, 9), name), "[2, 3, 8]"),
    "shape is one for each key": lambda o, name: Break(shape((B, KEYS, 2), name), "[2, 5, 1]"),
    "shape is those of each query": lambda o, name: Break(shape((B, QUERIES, 1, 5), name), "[2, 3, 1, 4]"),
    "2 to 4 dimensions": lambda o, name: Break(shape((4,), name), "2 to 4 dimensions"),
    "a number for each chosen key": lambda o, name: Break(shape((B, 4, 1, COUNT), name), "[2, 3, 1, 4]"),
    "same shape as query": lambda o, name: Break(shape((B, QUERIES, 9, SIZE), name), "[2, 3, 8, 128]"),
    "same shape as key": lambda o, name: Break(shape((B, 4, 1, SIZE), name), "[2, 5, 1, 128]"),
    "same shape as weights": lambda o, name: Break(shape((B, QUERIES, 9), name), "[2, 3, 8]"),
}
INVALID_TYPES = ("data type", "data types that go together", "same data type as query", "format that counts as ND")


def _subject(operator: Operator, code: int, reference: Callable[[Mapping[str, Any]], Any]) -> Subject:
    outs = {FORWARD: "sparseIndicesOut", QUANTIZED: "out", BACKWARD: "query"}
    call, tensor = CALLS[operator.name], outs[operator.name]
    default = (D.INT8,) if operator.name == QUANTIZED else (D.FLOAT16, D.BF16)
    nothing = call(default[0])[tensor]
    return Subject(
        (operator,),
        calls=CALLS,
        references={operator.name: reference},
        default=default,
        empty={operator.name: call(default[0]) | {tensor: nothing._replace(shape=(0, *nothing.shape[1:]))}},
        breaks=BREAKS,
        numbers=_numbers,
        terms=8,
        code=code,
        codes=dict.fromkeys(INVALID_TYPES, INVALID),
    )


class TestLightningIndexer(LibraryTests):
    subject = _subject(BY_NAME[FORWARD], TILING, _best)


class TestQuantizedKeys(LibraryTests):
    subject = _subject(BY_NAME[QUANTIZED], TILING, _best_quantized)


class TestGradients(LibraryTests):
    subject = _subject(BY_NAME[BACKWARD], NO_KERNEL, _gradients)


def _samples(random: np.random.Generator) -> dict[str, Array]:
    call = {name: value for name, value in _forward(D.FLOAT16).items() if isinstance(value, T)}
    return {name: random.normal(size=each.shape).astype(each.dtype.numpy) for name, each in call.items()} | LENGTHS


def test_packed_sequences_and_pages_give_the_results_of_samples() -> None:
    arrays = _samples(np.random.default_rng(5))
    plain = {name: value for name, value in _forward(D.FLOAT16).items() if name not in arrays}
    expected = computed(FORWARD, arrays | plain)
    queries, keys = LENGTHS.values()

    def packed(x: Array, lengths: Array) -> Array:
        return np.concatenate([own[:length] for own, length in zip(x, lengths, strict=True)])

    outs = ("sparseIndicesOut", "sparseValuesOut")
    given = {name: packed(arrays[name], queries) for name in ("query", "weights", *outs)}
    given |= {"key": packed(arrays["key"], keys)}
    given |= {name: np.cumsum(lengths).astype(np.int32) for name, lengths in LENGTHS.items()}
    layouts = {"layoutQueryOptional": "TND", "layoutKeyOptional": "TND"}
    found = computed(FORWARD, plain | layouts | given)
    for name in outs:
        np.testing.assert_array_equal(found[name], packed(expected[name], queries))
    pages = np.zeros((4, 16, 1, SIZE), np.float16)
    pages[[3, 1], :KEYS] = arrays["key"]
    paged = {"key": pages, "blockTableOptional": np.array([[3], [1]], np.int32), "layoutKeyOptional": "PA_BSND"}
    paged |= {"returnValues": False, "sparseValuesOut": None}
    found = computed(FORWARD, plain | arrays | paged)
    np.testing.assert_array_equal(found["sparseIndicesOut"], expected["sparseIndicesOut"])
    for change, text in (
        (
            {"blockTableOptional": np.array([[3], [4]], np.int32)},
            "key: expected numbers of its pages from 0 to 3, got 4",
        ),
        ({"actualSeqLengthsKeyOptional": np.array([5, 17], np.int32)}, "key: expected lengths from 0 to 16, got 17"),
    ):
        with pytest.raises(AclnnError, match=text):
            computed(FORWARD, plain | arrays | paged | change)


def test_gradients_of_packed_sequences_match_samples() -> None:
    random = np.random.default_rng(6)
    arrays = {name: value for name, value in _backward(D.FLOAT16).items() if isinstance(value, T)}
    arrays = {name: random.normal(size=each.shape).astype(each.dtype.numpy) for name, each in arrays.items()}
    arrays["sparseIndices"] = CHOSEN[:, :, None].astype(np.int32)
    plain = {name: value for name, value in _backward(D.FLOAT16).items() if name not in arrays}
    expected = computed(BACKWARD, plain | arrays)
    packed = {name: each.reshape(-1, *each.shape[2:]) for name, each in arrays.items()}
    ends = {"actualSeqQLenOptional": QUERIES, "actualSeqKvLenOptional": KEYS}
    packed |= {name: np.array([size, 2 * size], np.int32) for name, size in ends.items()}
    found = computed(BACKWARD, plain | packed | {"inputLayout": "TND"})
    for name in ("dqOut", "dkOut", "dweightsOut"):
        np.testing.assert_array_equal(found[name].reshape(expected[name].shape), expected[name])
    with pytest.raises(AclnnError, match="expected numbers from 0 to 4, got 7"):
        computed(BACKWARD, plain | arrays | {"sparseIndices": np.full_like(arrays["sparseIndices"], 7)})


def test_missing_keys_are_minus_1_and_equal_scores_keep_their_order() -> None:
    """The document's example: ones everywhere, 2048 numbers of two keys."""
    arrays = {"query": np.ones((1, 2, 1, SIZE)), "key": np.ones((1, 2, 1, SIZE)), "weights": np.ones((1, 2, 1))}
    arrays |= {"sparseValuesOut": np.zeros((1, 2, 1, 2048))}
    arrays = {name: each.astype(np.float16) for name, each in arrays.items()}
    arrays["sparseIndicesOut"] = np.zeros((1, 2, 1, 2048), np.int32)
    call = _forward(D.FLOAT16) | dict.fromkeys(LENGTHS) | {"sparseCount": 2048}
    found = computed(FORWARD, call | arrays)
    assert found["sparseIndicesOut"][0, :, 0, :3].tolist() == [[0, -1, -1], [0, 1, -1]]
    assert found["sparseValuesOut"][0, :, 0, :3].tolist() == [[128, -np.inf, -np.inf], [128, 128, -np.inf]]
    every = computed(FORWARD, call | arrays | {"sparseMode": 0})
    assert every["sparseIndicesOut"][0, :, 0, :3].tolist() == [[0, 1, -1], [0, 1, -1]]


def test_ascend_950_checks_heads_and_weights() -> None:
    call = _forward(D.FLOAT16)
    wide_weights = {"weights": T(D.FLOAT, (B, QUERIES, HEADS))}
    prepare(BY_NAME[FORWARD], described(call | wide_weights), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="weights: expected data type ACL_FLOAT16 with"):
        prepare(BY_NAME[FORWARD], described(call | wide_weights), Product.ASCEND_950)
    heads = {"query": T(D.FLOAT16, (B, QUERIES, 4, SIZE)), "weights": T(D.FLOAT16, (B, QUERIES, 4))}
    prepare(BY_NAME[FORWARD], described(call | heads), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="8, 16, 24, 32 or 64 heads, got 4"):
        prepare(BY_NAME[FORWARD], described(call | heads), Product.ASCEND_950)


@pytest.mark.parametrize(("half", "scale"), [(D.FLOAT16, D.FLOAT16), (D.BF16, D.FLOAT)])
def test_ascend_950_takes_8_bit_floats(half: D, scale: D) -> None:
    random, call = np.random.default_rng(9), _quantized(D.FLOAT8_E4M3FN)
    types = {"weights": half, "queryDequantScale": scale, "keyDequantScale": scale}
    call |= {name: call[name]._replace(dtype=of) for name, of in types.items()}
    tensors = {name: each for name, each in call.items() if isinstance(each, T)}
    arrays = {name: random.normal(size=each.shape).astype(each.dtype.numpy) for name, each in tensors.items()} | LENGTHS
    expected = _best_quantized({name: torch.from_numpy(each.astype(np.float64)) for name, each in arrays.items()})
    found = computed(QUANTIZED, call | arrays, Product.ASCEND_950)["out"]
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(AclnnError, match="query: expected data type ACL_INT8 on Atlas A2"):
        prepare(BY_NAME[QUANTIZED], described(call), Product.ATLAS_A2)
