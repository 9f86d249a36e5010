"""Training of a key indexer by attention: aclnnSparseLightningIndexerGradKLLoss with its V2, and for all keys
aclnnDenseLightningIndexerGradKLLoss, aclnnDenseLightningIndexerSoftmaxLse.

The loss is the divergence of the indexer's distribution over keys from attention's, averaged over attention's heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    each,
    extents,
    generated,
    has_zero,
    listing,
    nothing_to_write,
    null,
    one_of,
    only_if,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, camel
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_RUNTIME_ERROR
from aclnn.operators.library.attention.sequences import CAUSAL, PACKED, SAMPLES, token_rows, visible
from aclnn.operators.library.attention.sparse_attention import chosen
from aclnn.operators.library.common import MODERN, add_rows, attribute, optional_in, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_INDEX_ELEMENTS, _INDEX_HEADS, _HEADS, _PAIR_950 = 128, (8, 16, 32, 64), (32, 64, 128), (48, 24)
"""Elements and heads of an indexer, and heads of attention; another pair of head counts on Ascend 950."""
_ROPE = 64


class _Names(NamedTuple):
    """Names of the functions' arguments."""

    indexer: tuple[str, str, str]
    """Queries, keys and weights of the indexer."""
    lengths: tuple[str, str]
    layout: str
    ropes: tuple[str, str] = ("", "")
    gradients: tuple[str, str, str] = ("", "", "")


_LSE = _Names(
    ("queryIndex", "keyIndex", "weight"),
    ("actualSeqLengthsQueryOptional", "actualSeqLengthsKeyOptional"),
    "layoutOptional",
)
_SPARSE = _LSE._replace(
    layout="layout", ropes=("queryRopeOptional", "keyRopeOptional"), gradients=("dQueryIndex", "dKeyIndex", "dWeight")
)
_DENSE = _Names(
    ("queryIndex", "keyIndex", "weights"),
    ("actualSeqLengthsQuery", "actualSeqLengthsKey"),
    "layout",
    ("queryRope", "keyRope"),
    ("dQueryIndex", "dKeyIndex", "dWeights"),
)
_STATISTICS, _INDEX_STATISTICS = ("softmaxMax", "softmaxSum"), ("softmaxMaxIndex", "softmaxSumIndex")
_SINKS = "sinksOptional"


def _layout(names: _Names, call: Call) -> str:
    return str(call[names.layout] or SAMPLES)


def _tokens(names: _Names, call: Call) -> list[tuple[Array, Array]]:
    """Return the rows of queries and keys of each sample."""
    is_packed = _layout(names, call) == PACKED
    rows = [
        token_rows(_layout(names, call), call[name].shape, call[lengths] if is_packed else None)
        for name, lengths in zip(names.indexer, names.lengths, strict=False)
    ]
    return list(zip(*rows, strict=True))


def _queries(tokens: list[tuple[Array, Array]]) -> Iterator[tuple[Any, Array]]:
    """Yield each query's row and the rows of the keys visible to it."""
    for rows, columns in tokens:
        for row, seen in zip(rows, visible(CAUSAL, len(rows), len(columns)), strict=True):
            yield row, columns[:seen]


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[-2:])


def _of_heads(x: Array, tokens: int) -> Array:
    """Rearrange a statistic (…, heads, tokens, heads) as (tokens, heads)."""
    if x.ndim == 4:
        return np.moveaxis(x, 1, 2).reshape(tokens, -1)
    return x.swapaxes(0, 1).reshape(tokens, -1)


def _lse_work(call: Call) -> Library | None:
    outputs = ("softmaxMaxOut", "softmaxSumOut")
    if call[outputs[0]].size == 0:
        return None
    tokens, shape = _tokens(_LSE, call), call[outputs[0]].shape

    def lse(query: Array, key: Array, weight: Array) -> tuple[Array, ...]:
        queries, keys, weights = _flat(query), _flat(key)[:, 0], weight.reshape(-1, weight.shape[-1])
        largest, total = np.zeros(len(queries), query.dtype), np.zeros(len(queries), query.dtype)
        for row, own in _queries(tokens):
            if own.size:
                scores = weights[row] @ np.maximum(queries[row] @ keys[own].T, 0)
                largest[row] = scores.max()
                total[row] = np.exp(scores - largest[row]).sum()
        return largest.reshape(shape), total.reshape(shape)

    return Library(lse, _LSE.indexer, outputs)


def _gradient_work(names: _Names) -> Callable[[Call], Library | None]:
    """Return the work of the gradients: for chosen keys, or for all if the indexer's statistics are given."""
    is_dense = names is _DENSE

    def work(call: Call) -> Library | None:
        if nothing_to_write(call, (*names.gradients, "loss")):
            return None
        tokens, scale = _tokens(names, call), call["scaleValue"]
        ropes = tuple(name for name in names.ropes if call[name] is not None)
        sinks = tuple(name for name in (_SINKS,) if call.arguments.get(name) is not None)
        further = _INDEX_STATISTICS if is_dense else ("sparseIndices",)

        def back(*arrays: Array) -> tuple[Array, ...]:
            of = dict(zip(inputs, arrays, strict=True))
            query, key = of["query"], of["key"]
            if ropes:
                query, key = (np.concatenate((x, of[rope]), -1) for x, rope in zip((query, key), ropes, strict=True))
            queries, keys = _flat(query), _flat(key).swapaxes(0, 1)
            of_query, of_key = _flat(of[names.indexer[0]]), _flat(of[names.indexer[1]])[:, 0]
            weights = of[names.indexer[2]].reshape(len(of_query), -1).astype(query.dtype)
            tops, sums = (_of_heads(of[name], len(queries)) for name in _STATISTICS)
            heads = np.full(len(queries), queries.shape[1], query.dtype)
            if sinks:
                heads -= (np.exp(of[_SINKS] - tops) / sums).sum(1)
            gradients = np.zeros_like(of_query), np.zeros_like(of_key), np.zeros_like(weights)
            loss = 0.0
            for row, places in _queries(tokens):
                own = places if is_dense else places[chosen(_flat(of["sparseIndices"])[row, 0], 1, len(places))]
                if not own.size:
                    continue
                scores = (keys[:, own] @ queries[row][..., None])[..., 0] if is_dense else queries[row] @ keys[0, own].T
                scores = scores * query.dtype.type(scale)
                wanted = (np.exp(scores - tops[row][:, None]) / sums[row][:, None]).sum(0) / heads[row]
                products = of_query[row] @ of_key[own].T
                positive = np.maximum(products, 0)
                found = weights[row] @ positive
                if is_dense:
                    top, total = (of[name].reshape(-1)[row] for name in _INDEX_STATISTICS)
                    found = found - top - np.log(total)
                else:
                    found = found - found.max()
                    found = found - np.log(np.exp(found).sum())
                is_some = wanted > 0
                loss += (wanted[is_some] * (np.log(wanted[is_some]) - found[is_some])).sum(dtype=np.float64)
                change = np.exp(found) - wanted
                gradients[2][row] = positive @ change
                of_products = np.where(products > 0, weights[row][:, None] * change, 0)
                gradients[0][row] = of_products @ of_key[own]
                add_rows(gradients[1], own, of_products.T @ of_query[row])
            shaped = (x.reshape(of[name].shape) for x, name in zip(gradients, names.indexer, strict=True))
            return (*shaped, np.array([loss]))

        inputs = ("query", "key", *names.indexer, *further, *_STATISTICS, *ropes, *sinks)
        return Library(back, inputs, (*names.gradients, "loss"))

    return work


def _dimensions(names: _Names, *tensors: str) -> Check:
    """Require the rank of the layout, and no empty dimension."""

    def violation(call: Call, name: str) -> str | None:
        layout, got = _layout(names, call), call[name].shape
        if len(got) != len(layout):
            return f"expected {len(layout)} dimensions ({layout}), got {extents(got)}"
        return f"expected no dimension of 0, got {extents(got)}" if has_zero(got) else None

    return each("dimensions of the layout", tensors, violation)


def _ends(names: _Names) -> tuple[Check, ...]:
    """Require increasing ends of packed sequences within the tokens, equally many for keys and queries."""

    def of(which: int) -> Callable[[Call], str | None]:
        name = names.lengths[which]

        def violation(call: Call) -> str | None:
            if _layout(names, call) != PACKED:
                return None
            ends, rows, count = call[name], call[names.indexer[which]].shape[0], len(call[names.lengths[0]] or ())
            rising = ends and all(0 <= one <= after for one, after in zip((0, *ends), (*ends, rows), strict=True))
            if rising and len(ends) == count:
                return None
            many = f"{count} " if which else ""
            return f"{name}: expected {many}rising numbers up to {rows} (tokens), got {ends and extents(ends)}"

        return violation

    return tuple(rule(f"ends of sequences: {name}", of(which)) for which, name in enumerate(names.lengths))


def _indexer(names: _Names) -> tuple[Check, ...]:
    """Return the checks of layouts and of the indexer's tensors."""
    query, key, weights = names.indexer

    def heads(call: Call) -> str | None:
        got, keys = call[query].shape, call[key].shape
        allowed = (*_INDEX_HEADS, _PAIR_950[1]) if call.product in CLASS_950 else _INDEX_HEADS
        if got[-1] == _INDEX_ELEMENTS and got[-2] in allowed:
            return None
        expected = f"{listing(map(str, sorted(allowed)))} heads of {_INDEX_ELEMENTS} elements"
        return f"{query}: expected {expected}, got {extents(got)} and keys {extents(keys)}"

    def one_key(call: Call) -> str | None:
        got, queries = call[key].shape, call[query].shape
        samples = queries[0] if _layout(names, call) == SAMPLES else got[0]
        if got[-2:] == (1, _INDEX_ELEMENTS) and got[0] == samples:
            return None
        return f"{key}: expected a head of {_INDEX_ELEMENTS} elements, samples as {query} has, got {extents(got)}"

    return (
        one_of(names.layout, SAMPLES, PACKED),
        one_of("sparseMode", CAUSAL),
        _dimensions(names, query, key),
        rule(f"heads: {query}", heads),
        rule(f"one head: {key}", one_key),
        shape_is("one for each head", lambda call: call[query].shape[:-1], weights),
        *_ends(names),
    )


def _tokens_of(names: _Names, call: Call) -> tuple[int, ...]:
    return tuple(call[names.indexer[0]].shape[:-2])


def _attention(names: _Names, elements: int) -> tuple[Check, ...]:
    """Return the checks of attention's tensors, with one head of keys or as many as the queries."""
    is_dense = names is _DENSE

    def query(call: Call) -> str | None:
        tokens, got, others = _tokens_of(names, call), call["query"].shape, call[names.indexer[0]].shape[-2]
        allowed = (*_HEADS, _PAIR_950[0]) if call.product in CLASS_950 else _HEADS
        is_pair = (got[-2] == _PAIR_950[0]) == (others == _PAIR_950[1])
        if got[:-2] == tokens and got[-2] in allowed and is_pair and got[-1] == elements:
            return None
        expected = f"{listing(map(str, _HEADS))} heads of {elements} elements for each query of {names.indexer[0]}"
        return f"query: expected {expected}, got {extents(got)}"

    def key(call: Call) -> tuple[int, ...]:
        return (*call[names.indexer[1]].shape[:-2], call["query"].shape[-2] if is_dense else 1, elements)

    def rope(call: Call, name: str) -> str | None:
        of = ("query", "key")[names.ropes.index(name)]
        expected, got = (*call[of].shape[:-1], _ROPE), call[name].shape
        return None if got == expected else f"expected shape {extents(expected)} (with {of}), got {extents(got)}"

    def both(call: Call) -> str | None:
        absent = [name for name in names.ropes if call[name] is None]
        return f"{absent[0]}: expected a tensor with the other one, got null" if len(absent) == 1 else None

    def statistic(call: Call) -> tuple[int, ...]:
        *tokens, heads, _ = call["query"].shape
        of_keys, of_group = (heads, 1) if is_dense else (1, heads)
        return (*tokens[:-1], of_keys, tokens[-1], of_group)

    return (
        _dimensions(names, "query", "key"),
        rule("heads of attention: query", query),
        shape_is("heads for each key", key, "key"),
        rule(f"both or none: {names.ropes[0]}", both),
        each("with a head", names.ropes, rope),
        *(same_dtype(name, "query") for name in names.ropes),
        shape_is("one for each head of attention", statistic, *_STATISTICS),
        *(same_shape(out, of) for out, of in zip(names.gradients, names.indexer, strict=True)),
        shape_is("a number", lambda call: (1,), "loss"),
    )


def _index_statistic(name_of_query: str) -> Callable[[Call], tuple[int, ...]]:
    def shape(call: Call) -> tuple[int, ...]:
        *samples, tokens, _, _ = call[name_of_query].shape
        return (*samples, 1, tokens)

    return shape


def _numbers(call: Call) -> str | None:
    tokens, got = _tokens_of(_SPARSE, call), call["sparseIndices"].shape
    if got[:-1] == (*tokens, 1) and got[-1]:
        return None
    return f"sparseIndices: expected shape {extents((*tokens, 1))[:-1]}, …], got {extents(got)}"


def _columns(halves: int, further: tuple[D, ...], outputs: bool) -> Callable[[Product], list[tuple[D, ...]]]:
    """Return the combinations of data types: 16-bit tensors, weights, others, then gradients and loss."""

    def columns(product: Product) -> list[tuple[D, ...]]:
        return [
            (*(of,) * halves, weight, *further, *((of, of, weight, D.FLOAT) if outputs else ()))
            for of in _HALVES
            for weight in (of, D.FLOAT)
        ]

    return columns


def _index_tensors(names: _Names) -> tuple[Parameter, ...]:
    query, key, weights = names.indexer
    return (
        tensor_in(query, "the indexer's queries, (B, S, N, 128), or (T, N, 128) with TND"),
        tensor_in(key, "the indexer's keys, (B, S, 1, 128), or (T, 1, 128) with TND"),
        tensor_in(weights, "the weights of the indexer's heads, shaped as queries without elements; also FLOAT"),
    )


def _lengths(names: _Names) -> tuple[Parameter, ...]:
    words = dict(zip(names.lengths, ("queries", "keys"), strict=True))
    return tuple(
        Parameter(name, name, Kind.INT_ARRAY, f"with TND where {of} of each sample end", optional=True)
        for name, of in words.items()
    )


_MASK = (
    attribute("sparseMode", Kind.INT64, "3: causal, aligned at the last query and key"),
    attribute("preTokens", Kind.INT64, "ignored"),
    attribute("nextTokens", Kind.INT64, "ignored"),
)


def _gradients(name: str, names: _Names, has_sinks: bool = False) -> Operator:
    """Declare the loss and its gradients: for all keys, or for chosen ones, with or without sinks."""
    is_dense = names is _DENSE
    sinks = (
        (optional_in(_SINKS, "an extra score per attention head in the softmax, without a value; FLOAT"),)
        if has_sinks
        else ()
    )
    beside = "(B, S, N, 64), or (T, N, 64) with TND"
    keys = "as query, with as many heads" if is_dense else "as query, with one head"
    statistic = "(B, N, S, 1), or (N, T, 1) with TND" if is_dense else "(B, 1, S, N), or (1, T, N) with TND"
    elements, further = (128, _INDEX_STATISTICS) if is_dense else (512, ())
    numbers = () if is_dense else (tensor_in("sparseIndices", "the key indices, terminated by a negative one; INT32"),)
    inputs = ("query", "key", *names.indexer, *(each.name for each in numbers), *_STATISTICS, *further)
    others = (*(D.INT32 for _ in numbers), *(D.FLOAT for _ in (*_STATISTICS, *further)))
    of_sinks = shape_is("one for each head of query", lambda call: call["query"].shape[-2:-1], _SINKS)
    return Operator(
        name=name,
        function=camel(name).replace("Kl", "KL"),
        summary=f"Loss and gradients of an indexer of {'all' if is_dense else 'selected'} keys.",
        formula="loss = sum of p * ln(p / q), p = mean of softmax(scaleValue * query @ key.T) over heads, "
        f"q = softmax(sum over heads of {names.indexer[2]} * relu(queryIndex @ keyIndex.T))",
        parameters=(
            tensor_in("query", f"the queries of attention, (B, S, N, {elements}), or (T, N, {elements}) with TND"),
            tensor_in("key", f"the keys of attention, {keys}"),
            *_index_tensors(names),
            *numbers,
            tensor_in(_STATISTICS[0], f"the maximum score of attention, {statistic}; FLOAT"),
            tensor_in(_STATISTICS[1], "the sum of e^(score - maximum) of attention, in the same shape; FLOAT"),
            *(tensor_in(each, "the indexer's maximum score, (B, 1, S), or (1, T) with TND; FLOAT") for each in further),
            optional_in(names.ropes[0], f"the rotary part of query, {beside}"),
            optional_in(names.ropes[1], "the rotary part of key"),
            *_lengths(names),
            *sinks,
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of attention scores"),
            attribute(names.layout, Kind.STRING, "BSND or TND; null: BSND"),
            *_MASK,
            *(() if is_dense else (attribute("deterministic", Kind.BOOL, "ignored: results always are"),)),
            *(
                tensor_out(out, f"the gradient with respect to {of}", const=True)
                for out, of in zip(names.gradients, names.indexer, strict=True)
            ),
            tensor_out("loss", "the loss, one number; FLOAT", const=True),
        ),
        support=support(_HALVES, A2_CLASS if is_dense else MODERN),
        checks=(
            *with_code(
                ACLNN_ERR_RUNTIME_ERROR,
                *(only_if(null(each.name), "before Ascend 950", _is_before_950) for each in sinks),
            ),
            *generated(
                inputs,
                (*names.gradients, "loss"),
                _columns(4, others, outputs=True),
                *_indexer(names),
                *_attention(names, elements),
                *(rule(f"some numbers for each query: {each.name}", _numbers) for each in numbers),
                *(shape_is("one for each query", _index_statistic(names.indexer[0]), *further) for _ in further[:1]),
                *(check for _ in sinks for check in (dtype_in({D.FLOAT}, _SINKS), of_sinks)),
            ),
        ),
        work=_gradient_work(names),
    )


def _is_before_950(call: Call) -> bool:
    return call.product not in CLASS_950


OPERATORS = (
    Operator(
        name="dense_lightning_indexer_softmax_lse",
        summary="Maximum score of an indexer for each query, and the sum of exponentials.",
        formula="softmaxMaxOut = max of i, softmaxSumOut = sum of e^(i - softmaxMaxOut), i = sum over heads of "
        "weight * relu(queryIndex @ keyIndex.T)",
        parameters=(
            *_index_tensors(_LSE),
            *_lengths(_LSE),
            attribute("layoutOptional", Kind.STRING, "BSND or TND; null: BSND"),
            *_MASK,
            tensor_out("softmaxMaxOut", "(B, 1, S), or (1, T) with TND; FLOAT", const=True),
            tensor_out("softmaxSumOut", "as softmaxMaxOut; FLOAT", const=True),
        ),
        support=support(_HALVES, A2_CLASS),
        checks=generated(
            _LSE.indexer,
            ("softmaxMaxOut", "softmaxSumOut"),
            lambda product: [(of, of, weight, D.FLOAT, D.FLOAT) for of in _HALVES for weight in (of, D.FLOAT)],
            *_indexer(_LSE),
            shape_is("one for each query", _index_statistic(_LSE.indexer[0]), "softmaxMaxOut", "softmaxSumOut"),
        ),
        work=_lse_work,
    ),
    _gradients("dense_lightning_indexer_grad_kl_loss", _DENSE),
    _gradients("sparse_lightning_indexer_grad_kl_loss", _SPARSE),
    _gradients("sparse_lightning_indexer_grad_kl_loss_v2", _SPARSE, has_sinks=True),
)
