"""Selection of the keys a query attends to: aclnnLightningIndexer, its gradients, aclnnQuantLightningIndexer."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    nothing_to_write,
    one_of,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.attention.sequences import (
    CAUSAL,
    EVERY,
    PAGES,
    Sequences,
    mask_attributes,
    mask_checks,
    visible,
)
from aclnn.operators.library.common import (
    MODERN,
    add_rows,
    attribute,
    declared,
    expect_within,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_ELEMENTS, _MOST_HEADS, _HEADS_950 = 128, 64, (8, 16, 24, 32, 64)
_LARGEST_COUNT, _LARGE_COUNT, _COUNT_STEP = 8192, 2048, 1024
"""Limits of sparseCount: the maximum, and the value from which it must be a multiple of a step."""
_BLOCK = 1 << 19
"""Maximum number of products of queries and keys computed at a time, unless a single query has more."""
_COUNT, _VALUES, _SCALES = "sparseCount", "sparseValuesOut", ("queryDequantScale", "keyDequantScale")
_FORWARD = Sequences(
    ("query", "key"),
    ("layoutQueryOptional", "layoutKeyOptional"),
    ("actualSeqLengthsQueryOptional", "actualSeqLengthsKeyOptional"),
    "blockTableOptional",
)
_BACKWARD = Sequences(
    ("query", "key"), ("inputLayout", "inputLayout"), ("actualSeqQLenOptional", "actualSeqKvLenOptional")
)


def _columns(product: Product) -> list[tuple[D, ...]]:
    wide = () if product in CLASS_950 else (D.FLOAT,)
    return [(of, of, weights, D.INT32) for of in _HALVES for weights in (of, *wide)]


def _quantized_columns(product: Product) -> list[tuple[D, ...]]:
    columns: list[tuple[D, ...]] = [(D.INT8, D.INT8, D.FLOAT16, D.FLOAT16, D.FLOAT16, D.INT32)]
    if product in CLASS_950:
        eight = (D.FLOAT8_E4M3FN, D.FLOAT8_E4M3FN)
        columns += [(*eight, D.BF16, D.FLOAT, D.FLOAT, D.INT32), (*eight, D.FLOAT16, D.FLOAT16, D.FLOAT16, D.INT32)]
    return columns


def _heads(call: Call) -> str | None:
    *_, heads, elements = call["query"].shape
    if call.product in CLASS_950 and heads not in _HEADS_950:
        return f"query: expected {', '.join(map(str, _HEADS_950[:-1]))} or {_HEADS_950[-1]} heads, got {heads}"
    if heads > _MOST_HEADS:
        return f"query: expected at most {_MOST_HEADS} heads, got {heads}"
    if elements == _ELEMENTS == call["key"].shape[-1]:
        return None
    return f"query: expected heads of {_ELEMENTS} elements, as key has, got {elements} and {call['key'].shape[-1]}"


def _values_of_pages(call: Call) -> str | None:
    if not call["returnValues"] or _FORWARD.layout(call, 1) != PAGES:
        return None
    return f"returnValues: expected false with {_FORWARD.layouts[1]} {PAGES}, got true"


def _returns_values(call: Call) -> bool:
    return bool(call["returnValues"])


def _indices_shape(call: Call) -> tuple[int, ...]:
    return (*_FORWARD.tokens(call), 1, call[_COUNT])


def _weights_shape(call: Call) -> tuple[int, ...]:
    return tuple(call["query"].shape[:-1])


def best_keys(queries: Array, keys: Array, weights: Array, mode: int, count: int) -> tuple[Array, Array]:
    """Return the indices of the keys with the largest scores for each query of a sample, and the scores.

    Scores are weighted sums of the positive parts of products. If there are fewer keys, the remaining indices are -1
    and the scores -Inf; among equal scores the first comes first.

    Args:
        queries: (queries, heads, elements).
        keys: (keys, elements).
        weights: weights of the heads, (queries, heads).
        mode: which keys are visible to a query.
        count: number of indices to return.
    """
    seen = visible(mode, len(queries), len(keys))
    indices, values = np.full((len(queries), count), -1), np.full((len(queries), count), -np.inf, queries.dtype)
    step = max(1, _BLOCK // max(1, queries.shape[1] * len(keys)))
    for begin in range(0, len(queries), step):
        own = slice(begin, begin + step)
        positive = np.maximum(queries[own] @ keys.T, 0)
        scores = (weights[own, None] @ positive)[:, 0]
        is_hidden = np.arange(len(keys)) >= seen[own, None]
        scores[is_hidden] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        taken = slice(order.shape[1])
        indices[own, taken] = np.where(np.take_along_axis(is_hidden, order, 1), -1, order)
        values[own, taken] = np.take_along_axis(scores, order, 1)
    return indices, values


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, ("sparseIndicesOut",)):
        return None
    find, mode, count = _FORWARD.finder(call), call["sparseMode"], call[_COUNT]
    outputs = ("sparseIndicesOut", _VALUES) if _returns_values(call) else ("sparseIndicesOut",)
    shape = call["sparseIndicesOut"].shape

    def index(query: Array, key: Array, weights: Array, *given: Array) -> tuple[Array, ...]:
        queries, keys = query.reshape(-1, *query.shape[-2:]), key.reshape(-1, key.shape[-1])
        of_heads = weights.reshape(-1, weights.shape[-1])
        indices, values = np.full((len(queries), count), -1), np.full((len(queries), count), -np.inf, query.dtype)
        for rows, columns in find(given):
            found = best_keys(queries[rows], keys[columns], of_heads[rows], mode, count)
            indices[rows], values[rows] = found
        return (indices.reshape(shape), values.reshape(shape))[: len(outputs)]

    return Library(index, ("query", "key", "weights", *_FORWARD.given(call)), outputs)


def _quantized_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None
    find, mode, count, shape = _FORWARD.finder(call), call["sparseMode"], call[_COUNT], call["out"].shape

    def index(query: Array, key: Array, weights: Array, of_query: Array, of_key: Array, *given: Array) -> Array:
        queries = query.astype(weights.dtype) * of_query[..., None]
        keys = (key.astype(weights.dtype) * of_key[..., None]).reshape(-1, key.shape[-1])
        queries, of_heads = queries.reshape(-1, *query.shape[-2:]), weights.reshape(-1, weights.shape[-1])
        indices = np.full((len(queries), count), -1)
        for rows, columns in find(given):
            indices[rows] = best_keys(queries[rows], keys[columns], of_heads[rows], mode, count)[0]
        return indices.reshape(shape)

    return Library(index, ("query", "key", "weights", *_SCALES, *_FORWARD.given(call)), ("out",))


def _gradient_work(call: Call) -> Library | None:
    if call["query"].size == 0:
        return None
    find, mode = _BACKWARD.finder(call), call["sparseMode"]

    def back(query: Array, key: Array, dy: Array, indices: Array, weights: Array, *given: Array) -> tuple[Array, ...]:
        queries, keys = query.reshape(-1, *query.shape[-2:]), key.reshape(-1, key.shape[-1])
        of_heads, dys, chosen = (x.reshape(len(queries), -1) for x in (weights, dy, indices))
        dq, dw, dk = np.zeros_like(queries), np.zeros_like(of_heads), np.zeros_like(keys)
        for rows, columns in find(given):
            seen = visible(mode, len(rows), len(columns)) if mode else np.full(len(rows), chosen.shape[1])
            for row, count in zip(rows, seen, strict=True):
                own = chosen[row, :count]
                grad, own = dys[row, : len(own)][own >= 0], own[own >= 0]
                expect_within("sparseIndices", own, 0, len(columns) - 1)
                picked = columns[own]
                products = queries[row] @ keys[picked].T
                dw[row] = np.maximum(products, 0) @ grad
                share = np.where(products > 0, of_heads[row][:, None] * grad, 0)
                dq[row] = share @ keys[picked]
                add_rows(dk, picked, share.T @ queries[row])
        return dq.reshape(query.shape), dk.reshape(key.shape), dw.reshape(weights.shape)

    names = ("query", "key", "dy", "sparseIndices", "weights", *_BACKWARD.given(call))
    return Library(back, names, ("dqOut", "dkOut", "dweightsOut"))


def _of_tokens(call: Call, name: str) -> str | None:
    tokens, got, count = _BACKWARD.tokens(call), call[name].shape, call["dy"].shape[-1:]
    if got in ((*tokens, *count), (*tokens, 1, *count)) and count != (0,):
        return None
    return f"expected shape {extents((*tokens, 1, *(count or (1,))))} (a head of queries is 1), got {extents(got)}"


def _gradient_heads(call: Call) -> str | None:
    *_, heads, elements = call["query"].shape
    if 0 < heads <= _MOST_HEADS and elements == _ELEMENTS == call["key"].shape[-1]:
        return None
    expected = f"expected 1 to {_MOST_HEADS} heads of {_ELEMENTS} elements, as key has"
    return f"query: {expected}, got {heads} of {elements} and {call['key'].shape[-1]}"


_GRADIENTS = {"dqOut": "query", "dkOut": "key", "dweightsOut": "weights"}

_SPANS = (
    optional_in(_FORWARD.lengths[0], "the number of queries of each sample, or their ends with TND; INT32"),
    optional_in(_FORWARD.lengths[1], "the number of keys of each sample, or their ends with TND; INT32"),
    optional_in("blockTableOptional", "the page table of each sample; INT32"),
)
_LAYOUTS = (
    attribute(_FORWARD.layouts[0], Kind.STRING, "BSND or TND; null: BSND"),
    attribute(_FORWARD.layouts[1], Kind.STRING, "BSND, TND or PA_BSND; null: BSND"),
)

OPERATORS = (
    Operator(
        name="lightning_indexer",
        summary="Select the keys that each query attends to.",
        formula="sparseIndicesOut, sparseValuesOut = largest of sum over heads of weights * relu(query @ key.T)",
        parameters=(
            tensor_in("query", "(B, S, N, 128), or (T, N, 128) with TND"),
            tensor_in("key", "(B, S, 1, 128), (T, 1, 128) with TND, or (pages, tokens, 1, 128) with PA_BSND"),
            tensor_in("weights", "the weights of the heads, shaped as query without elements"),
            *_SPANS,
            *_LAYOUTS,
            attribute(_COUNT, Kind.INT64, "the number of keys to select"),
            *mask_attributes(),
            attribute("returnValues", Kind.BOOL, f"{_VALUES} is written too"),
            tensor_out(
                "sparseIndicesOut",
                "the key indices, (…, 1, sparseCount), -1 after the last; INT32",
                const=True,
                index_of=None,
            ),
            tensor_out(_VALUES, "the scores of the selected keys, -Inf after the last", const=True, optional=True),
        ),
        support=support(_HALVES, MODERN),
        checks=generated(
            ("query", "key", "weights"),
            ("sparseIndicesOut",),
            _columns,
            *_FORWARD.checks(),
            value_is(
                f"from 1 to {_LARGE_COUNT}, or a multiple of {_COUNT_STEP} up to {_LARGEST_COUNT}",
                lambda got: 0 < got <= _LARGE_COUNT or (0 < got <= _LARGEST_COUNT and got % _COUNT_STEP == 0),
                _COUNT,
            ),
            *mask_checks(),
            rule("not of pages: returnValues", _values_of_pages),
            rule("heads: query", _heads),
            shape_is("one for each head", _weights_shape, "weights"),
            shape_is("those of each query", _indices_shape, "sparseIndicesOut"),
            *restricted("with returnValues", _returns_values, shape_is("those of each query", _indices_shape, _VALUES)),
            optional=(
                *restricted("with returnValues", _returns_values, present(_VALUES)),
                same_dtype(_VALUES, "query"),
            ),
        ),
        work=_work,
        stream_type="const aclrtStream ",
    ),
    Operator(
        name="quant_lightning_indexer",
        summary="Select the 8-bit keys that each query attends to.",
        formula="out = largest of sum over heads of weights * relu(queryDequantScale * keyDequantScale * "
        "(query @ key.T))",
        parameters=(
            tensor_in("query", "(B, S, N, 128), or (T, N, 128) with TND; INT8, or FLOAT8_E4M3FN on Ascend 950"),
            tensor_in("key", "(B, S, 1, 128), (T, 1, 128) with TND, or (pages, tokens, 1, 128) with PA_BSND"),
            tensor_in(
                "weights",
                "the weights of the heads, shaped as query without elements; FLOAT16, or BF16 with FLOAT scales",
            ),
            tensor_in(_SCALES[0], "the scales of query, shaped as query without elements; FLOAT16 or FLOAT"),
            tensor_in(_SCALES[1], "the scales of key, shaped as key without elements"),
            *_SPANS,
            attribute("queryQuantMode", Kind.INT64, "0: one scale per head of a token"),
            attribute("keyQuantMode", Kind.INT64, "0"),
            *_LAYOUTS,
            attribute(_COUNT, Kind.INT64, "the number of keys to select"),
            *mask_attributes(),
            tensor_out(
                "out", "the key indices, (…, 1, sparseCount), -1 after the last; INT32", const=True, index_of=None
            ),
        ),
        support={product: frozenset(of[0] for of in _quantized_columns(product)) for product in MODERN},
        checks=generated(
            ("query", "key", "weights", *_SCALES),
            ("out",),
            _quantized_columns,
            *_FORWARD.checks(),
            value_is(f"from 1 to {_LARGE_COUNT}", lambda got: 0 < got <= _LARGE_COUNT, _COUNT),
            *mask_checks(),
            one_of("queryQuantMode", 0),
            one_of("keyQuantMode", 0),
            rule("heads: query", _heads),
            shape_is("one for each head", _weights_shape, "weights", _SCALES[0]),
            shape_is("one for each key", lambda call: call["key"].shape[:-1], _SCALES[1]),
            shape_is("those of each query", _indices_shape, "out"),
        ),
        work=_quantized_work,
        stream_type="const aclrtStream ",
    ),
    declared(
        "lightning_indexer_grad",
        "gradients of sum over heads of weights * relu(query @ key[sparseIndices].T)",
        "Gradients of the scores of selected keys.",
        (
            tensor_in("query", "(B, S, N, 128), or (T, N, 128) with TND"),
            tensor_in("key", "(B, S, 1, 128), or (T, 1, 128) with TND"),
            tensor_in("dy", "the gradient with respect to the scores, (…, 1, sparseCount)"),
            tensor_in("sparseIndices", "the key indices, (…, 1, sparseCount), -1 after the last; INT32"),
            tensor_in("weights", "the weights of the heads, shaped as query without elements"),
            optional_in(_BACKWARD.lengths[0], "the ends of each sample's queries with TND; INT32"),
            optional_in(_BACKWARD.lengths[1], "the ends of each sample's keys with TND; INT32"),
            attribute("headNum", Kind.INT64, "ignored"),
            attribute("inputLayout", Kind.STRING, "BSND or TND; null: BSND"),
            attribute("sparseMode", Kind.INT64, "the mask mode, 0: none, 3: causal"),
            attribute("preTokens", Kind.INT64, "ignored"),
            attribute("nextTokens", Kind.INT64, "ignored"),
            attribute("deterministic", Kind.BOOL, "ignored: results always are"),
            tensor_out("dqOut", "the gradient with respect to query", const=True),
            tensor_out("dkOut", "the gradient with respect to key", const=True),
            tensor_out("dweightsOut", "the gradient with respect to weights", const=True),
        ),
        (
            present("query", "key", "dy", "sparseIndices", "weights", *_GRADIENTS),
            *unless_empty(
                ("query",),
                dtype_in(set(_HALVES), "query"),
                *(same_dtype(name, "query") for name in ("key", "dy", "weights", *_GRADIENTS)),
                dtype_in({D.INT32}, "sparseIndices"),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    *_BACKWARD.checks(),
                    one_of("sparseMode", EVERY, CAUSAL),
                    rule("heads: query", _gradient_heads),
                    dims_between(2, 4, "dy"),
                    each("a number for each chosen key", ("dy", "sparseIndices"), _of_tokens),
                    shape_is("one for each head", _weights_shape, "weights"),
                    *(same_shape(out, of) for out, of in _GRADIENTS.items()),
                ),
            ),
        ),
        _gradient_work,
        dtypes=_HALVES,
    ),
)
