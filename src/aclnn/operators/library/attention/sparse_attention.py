"""Attention to chosen keys: aclnnSparseFlashAttention with its V2 and gradients, aclnnKvQuantSparseFlashAttention.

Heads of queries share one head of keys, whose first elements are values too. Keys are chosen by numbers of blocks, up
to the first below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    each,
    elsewhere,
    extents,
    generated,
    listing,
    null,
    on,
    one_of,
    only_if,
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
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_RUNTIME_ERROR
from aclnn.operators.library.attention.attention import given
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
    optional_in,
    support,
    tensor_in,
    tensor_out,
)

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_ELEMENTS, _ROPE = 512, 64
"""Elements of a head, and of its rotary part."""
_TILE, _SCALES = 128, 4
"""Elements per scale, and scales per quantised key."""
_BYTES = _ELEMENTS + 2 * _ROPE + 4 * _SCALES
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Supported numbers of query heads, and of keys per block."""
_MOST_HEADS, _QUANTIZED_BLOCKS, _GRADIENT_BLOCKS = 128, _POWERS[:5], (1, 8, 16, 32, 64)
_ABSORBED, _COMBINED, _PER_TILE = 2, 1, 2
"""The only supported values of attentionMode, of quantScaleRepoMode and of the quantisation modes."""
_BLOCK, _GRADIENT_BLOCK, _LSE, _SINKS = (
    "sparseBlockSizeOptional",
    "sparseBlockSize",
    "returnSoftmaxLse",
    "sinksOptional",
)
_STATISTICS, _ROPES = ("softmaxMax", "softmaxSum"), ("queryRopeOptional", "keyRopeOptional")
_ROPE_GRADIENTS = ("dQueryRopeOutOptional", "dKeyRopeOutOptional")
_PAGED = Sequences(
    ("query", "key"),
    ("layoutQueryOptional", "layoutKvOptional"),
    ("actualSeqLengthsQueryOptional", "actualSeqLengthsKvOptional"),
    "blockTableOptional",
)
_BACKWARD = _PAGED._replace(layouts=("layoutOptional", "layoutOptional"), table=None)


def chosen(numbers: Array, size: int, seen: int) -> Array:
    """Return the indices of the visible keys in the chosen blocks.

    Args:
        numbers: block indices; the first negative one ends the list.
        size: number of keys per block.
        seen: number of leading keys that the query sees.
    """
    numbers = numbers[: -(-seen // size)]
    absent = np.flatnonzero(numbers < 0)
    numbers = numbers[: absent[0]] if absent.size else numbers
    places = (numbers[:, None] * size + np.arange(size)).reshape(-1)
    return places[places < seen]


def _rows(tokens: Iterator[tuple[Array, Array]], numbers: Array, mode: int, size: int) -> Iterator[tuple[Any, Array]]:
    """Yield each query's row and the rows of its keys, possibly none."""
    for rows, columns in tokens:
        for row, seen in zip(rows, visible(mode, len(rows), len(columns)), strict=True):
            yield row, columns[chosen(numbers[row], size, seen)]


def _flat(x: Array, beside: Any = None) -> Array:
    """Reshape a tensor (…, heads, elements) to (tokens, heads, elements), its rotary part appended to each head."""
    whole = x if beside is None else np.concatenate((x, beside), -1)
    return whole.reshape(-1, *whole.shape[-2:])


def _below(x: Array) -> Array:
    """Flatten all dimensions but the last."""
    return x.reshape(-1, x.shape[-1])


def attend(
    query: Array, keys: Array, values: Array, scale: float, sink: Any, rows: Iterator[tuple[Any, Array]]
) -> tuple[Array, ...]:
    """Return each query head's attention, largest score and sum of exponentials; all are 0 without keys.

    Args:
        query: (queries, heads, elements).
        keys: (keys, elements).
        values: (keys, elements).
        scale: factor of the scores.
        sink: a score per head that only increases the softmax's divisor.
        rows: row of each query, or rows of several, and the rows of their keys.
    """
    found = np.zeros((*query.shape[:2], values.shape[-1]), query.dtype)
    largest, total = (np.zeros(query.shape[:2], query.dtype) for _ in range(2))
    for row, places in rows:
        if not places.size and sink is None:
            continue
        scores = query[row] @ keys[places].T * query.dtype.type(scale)
        top = scores.max(-1, initial=-np.inf)
        top = top if sink is None else np.maximum(top, sink)
        powers = np.exp(scores - top[..., None])
        sums = powers.sum(-1) + (0 if sink is None else np.exp(sink - top))
        found[row], largest[row], total[row] = powers @ values[places] / sums[..., None], top, sums
    return found, largest, total


def attention_gradients(
    queries: Array,
    keys: Array,
    values: Array,
    attention: tuple[Array, Array],
    statistics: tuple[Array, Array],
    scale: float,
    rows: Iterator[tuple[Any, Array]],
) -> tuple[Array, Array, Array]:
    """Return the gradients of ``attend`` with respect to queries, keys and values.

    Args:
        queries: (queries, heads, elements).
        keys: (keys, elements).
        values: (keys, elements).
        attention: its gradient, and the attention, (queries, heads, elements) each.
        statistics: the largest score and the sum of powers of each query's heads, of any shape.
        scale: factor of the scores.
        rows: row of each query, or rows of several, and the rows of their keys.
    """
    dys, outs = attention
    tops, sums = (x.reshape(*queries.shape[:2], 1) for x in statistics)
    dq, dk, dv = (np.zeros_like(x, order="C") for x in (queries, keys, values))
    factor = queries.dtype.type(scale)
    for row, places in rows:
        if not places.size:
            continue
        scores = queries[row] @ keys[places].T * factor
        shares = np.exp(scores - tops[row]) / sums[row]
        mean = (dys[row] * outs[row]).sum(-1, keepdims=True)
        of_scores = shares * (dys[row] @ values[places].T - mean) * factor
        dq[row] = of_scores @ keys[places]
        add_rows(dk, places, _below(of_scores).T @ _below(queries[row]))
        add_rows(dv, places, _below(shares).T @ _below(dys[row]))
    return dq, dk, dv


def _work(call: Call) -> Library | None:
    if call["attentionOut"].size == 0:
        return None
    find, mode, size, scale = _PAGED.finder(call), call["sparseMode"], call[_BLOCK], call["scaleValue"]
    outputs = ("attentionOut", *(_STATISTICS if call[_LSE] else ()))
    shapes, value = [call[name].shape for name in outputs], "key" if call["value"] is None else "value"
    sinks = tuple(name for name in (_SINKS,) if call.arguments.get(name) is not None)

    def compute(query: Array, key: Array, value: Array, numbers: Array, *others: Array) -> tuple[Array, ...]:
        queries, keys = _flat(query, others[0]), _flat(key, others[1])[:, 0]
        sink, tokens = others[2] if sinks else None, find(others[2 + len(sinks) :])
        rows = _rows(tokens, _flat(numbers)[:, 0], mode, size)
        found = attend(queries, keys, _flat(value)[:, 0], scale, sink, rows)
        return tuple(x.reshape(shape) for x, shape in zip(found, shapes, strict=False))

    return Library(compute, ("query", "key", value, "sparseIndices", *_ROPES, *sinks, *_PAGED.given(call)), outputs)


def _dequantized(packed: Array, dtype: D, rope: D) -> Array:
    """Dequantise packed keys to float32: 8-bit elements, a 16-bit rotary part, and a scale per tile.

    Args:
        packed: (keys, bytes).
        dtype: data type of the 8-bit elements.
        rope: data type of the rotary part.
    """
    # Numbers of another type are wider ones, for a golden value.
    packed = np.ascontiguousarray(packed.astype(dtype.numpy, copy=False))
    _, beside, scales = np.split(packed.view(np.uint8), (_ELEMENTS, _ELEMENTS + 2 * _ROPE), axis=1)
    beside = np.ascontiguousarray(beside).view(rope.numpy).astype(np.float32)
    scales = np.ascontiguousarray(scales).view(np.float32)
    elements = packed[:, :_ELEMENTS].astype(np.float32) * np.repeat(scales, _TILE, 1)
    return np.concatenate((elements, beside), 1)


def _quantized_work(call: Call) -> Library | None:
    if call["attentionOut"].size == 0:
        return None
    find, mode, size, scale = _PAGED.finder(call), call["sparseMode"], call["sparseBlockSize"], call["scaleValue"]
    types, shape = (call["key"].dtype, call["query"].dtype), call["attentionOut"].shape

    def compute(query: Array, key: Array, value: Array, numbers: Array, *given: Array) -> Array:
        keys, values = (_dequantized(_flat(x)[:, 0], *types).astype(query.dtype) for x in (key, value))
        rows = _rows(find(given), _flat(numbers)[:, 0], mode, size)
        return attend(_flat(query), keys, values[:, :_ELEMENTS], scale, None, rows)[0].reshape(shape)

    return Library(compute, ("query", "key", "value", "sparseIndices", *_PAGED.given(call)), ("attentionOut",))


def _gradient_work(call: Call) -> Library | None:
    if call["query"].size == 0:
        return None
    find, mode, size, scale = _BACKWARD.finder(call), call["sparseMode"], call[_GRADIENT_BLOCK], call["scaleValue"]
    is_merged, ropes = call["value"] is None, tuple(name for name in _ROPES if call[name] is not None)
    outputs = ("dQueryOut", "dKeyOut", *(() if is_merged else ("dValueOut",)), *_ROPE_GRADIENTS[: len(ropes)])
    shapes, elements = {name: call[name].shape for name in outputs}, call["query"].shape[-1]

    def back(query: Array, key: Array, value: Array, numbers: Array, *others: Array) -> tuple[Array, ...]:
        dy, out, largest, total = others[:4]
        beside, given = others[4 : 4 + len(ropes)] or (None, None), others[4 + len(ropes) :]
        queries, keys, values = _flat(query, beside[0]), _flat(key, beside[1])[:, 0], _flat(value)[:, 0]
        rows = _rows(find(given), _flat(numbers)[:, 0], mode, size)
        dq, dk, dv = attention_gradients(queries, keys, values, (_flat(dy), _flat(out)), (largest, total), scale, rows)
        if is_merged:
            dk[:, :elements] += dv
        found = {"dQueryOut": dq[..., :elements], "dKeyOut": dk[:, :elements], "dValueOut": dv}
        found |= dict(zip(_ROPE_GRADIENTS, (dq[..., elements:], dk[:, elements:]), strict=True))
        return tuple(found[name].reshape(shape) for name, shape in shapes.items())

    names = ("query", "key", "key" if is_merged else "value", "sparseIndices", "dOut", "out", *_STATISTICS)
    return Library(back, (*names, *ropes, *_BACKWARD.given(call)), outputs)


def _quantized_columns(product: Product) -> list[tuple[D, ...]]:
    keys = (D.INT8, D.FLOAT8_E4M3FN) if product in CLASS_950 else (D.INT8,)
    return [(of, key, key, D.INT32, of) for of in _HALVES for key in keys]


def _heads_of(further_950: Sequence[int]) -> Check:
    """Require a number of query heads that the product's kernel supports."""

    def violation(call: Call) -> str | None:
        got = call["query"].shape[-2]
        allowed = (*_POWERS, *further_950) if call.product in CLASS_950 else _POWERS
        expected = f"1 to {_MOST_HEADS}" if len(allowed) >= _MOST_HEADS else ", ".join(map(str, sorted(allowed)))
        return None if got in allowed else f"query: expected heads as many as {expected}, got {got}"

    return rule("heads: query", violation)


def _elements_are(expected: int, name: str) -> Check:
    return value_is(f"heads of {expected} elements", lambda got: got == expected, name, of=lambda got: got.shape[-1])


def _blocks(name: str, allowed: Sequence[int]) -> tuple[Check, ...]:
    """Require a supported number of keys per block; on Ascend 950 it is 1."""

    return (
        *on(CLASS_950, one_of(name, 1)),
        *elsewhere(CLASS_950, value_is(f"{listing(map(str, allowed))}", lambda got: got in allowed, name)),
    )


def _whole_pages(call: Call) -> str | None:
    size, got = call["key"].shape[1], call[_BLOCK]
    if _PAGED.layout(call, 1) != PAGES or size % got == 0:
        return None
    return f"{_BLOCK}: expected a divisor of {size} (keys of a page), got {got}"


def _numbers(sequences: Sequences) -> Check:
    def violation(call: Call) -> str | None:
        tokens, got = sequences.tokens(call), call["sparseIndices"].shape
        if got[:-1] == (*tokens, 1) and got[-1]:
            return None
        return f"sparseIndices: expected shape {extents((*tokens, 1))[:-1]}, …], got {extents(got)}"

    return rule("some numbers for each query: sparseIndices", violation)


def _key_shape(call: Call) -> tuple[int, ...]:
    return tuple(call["key"].shape)


def _statistic_shape(call: Call) -> tuple[int, ...]:
    *tokens, heads, _ = call["query"].shape
    return (tokens[0], 1, tokens[1], heads) if len(tokens) > 1 else (1, *tokens, heads)


def _beside(call: Call, name: str) -> str | None:
    of, got = "query" if name == _ROPES[0] else "key", call[name].shape
    expected = (*call[of].shape[:-1], _ROPE)
    return None if got == expected else f"expected shape {extents(expected)} (with {of}), got {extents(got)}"


def _returns_statistics(call: Call) -> bool:
    return bool(call[_LSE])


def _both_or_none(call: Call) -> str | None:
    absent = [name for name in _STATISTICS if call[name] is None]
    if not absent or (len(absent) == len(_STATISTICS) and not call[_LSE]):
        return None
    return f"{absent[0]}: expected an object, got null"


def _keys_of_samples(name: str) -> Parameter:
    return tensor_in(name, "(B, S, 1, 512), (T, 1, 512) with TND, or (pages, tokens, 1, 512) with PA_BSND")


_SPANS = (
    optional_in("blockTableOptional", "the page table of each sample; INT32"),
    optional_in(_PAGED.lengths[0], "the number of queries of each sample, or their ends with TND; INT32"),
    optional_in(_PAGED.lengths[1], "the number of keys of each sample, or their ends with TND; INT32"),
)
_LAYOUTS = (
    attribute(_PAGED.layouts[0], Kind.STRING, "BSND or TND; null: BSND"),
    attribute(_PAGED.layouts[1], Kind.STRING, "BSND, TND or PA_BSND; null: BSND"),
)
_FORMULA = "softmax(scaleValue * query @ key[sparseIndices].T) @ value[sparseIndices]"


def _forward(name: str, has_sinks: bool) -> Operator:
    """Declare the attention, with a sink or without."""
    sinks = (optional_in(_SINKS, "a score for each head that adds nothing; FLOAT"),) if has_sinks else ()
    on_950_only = tuple(only_if(null(_SINKS), "not on Ascend 950PR / 950DT", _is_before_950) for _ in sinks)
    statistics = present(*_STATISTICS) if has_sinks else rule(f"both or none: {_STATISTICS[0]}", _both_or_none)
    return Operator(
        name=name,
        summary="Attention to selected keys.",
        formula=f"attentionOut = {_FORMULA}",
        parameters=(
            tensor_in("query", "(B, S, N, 512), or (T, N, 512) with TND"),
            _keys_of_samples("key"),
            optional_in("value", "as key; null: key"),
            tensor_in(
                "sparseIndices",
                "the selected block indices for each query, (…, 1, K), terminated by a negative one; INT32",
            ),
            *_SPANS,
            optional_in(_ROPES[0], "the rotary part of query, (…, N, 64)"),
            optional_in(_ROPES[1], "the rotary part of key, (…, 1, 64)"),
            *sinks,
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
            attribute(_BLOCK, Kind.INT64, "the number of keys of a block"),
            *_LAYOUTS,
            *mask_attributes(),
            attribute("attentionMode", Kind.INT64, "2"),
            attribute(_LSE, Kind.BOOL, "whether to write the maximum score and the sum"),
            tensor_out("attentionOut", "the attention, shaped as query", const=True),
            tensor_out(_STATISTICS[0], "the maximum score, (B, 1, S, N), or (1, T, N) with TND; FLOAT", True, True),
            tensor_out(_STATISTICS[1], "the sum of e^(score - maximum), in the same shape; FLOAT", True, True),
        ),
        support=support(_HALVES, MODERN),
        checks=(
            *with_code(ACLNN_ERR_RUNTIME_ERROR, *on_950_only),
            *generated(
                ("query", "key", "sparseIndices"),
                ("attentionOut",),
                lambda product: [(of, of, D.INT32, of) for of in _HALVES],
                *_PAGED.checks(),
                *mask_checks(),
                *_blocks(_BLOCK, _POWERS),
                rule(f"whole pages: {_BLOCK}", _whole_pages),
                one_of("attentionMode", _ABSORBED),
                *with_code(ACLNN_ERR_INNER_TILING_ERROR, present(*_ROPES)),
                *(same_dtype(each, "query") for each in _ROPES),
                *(_elements_are(_ELEMENTS, each) for each in ("query", "key")),
                _heads_of(range(1, _MOST_HEADS + 1)),
                shape_is("that of key", _key_shape, "value"),
                each("with a head", _ROPES, _beside),
                _numbers(_PAGED),
                shape_is("that of query", lambda call: tuple(call["query"].shape), "attentionOut"),
                *restricted(
                    f"with {_LSE}", _returns_statistics, shape_is("one for each head", _statistic_shape, *_STATISTICS)
                ),
                *(shape_is("one for each head", lambda call: call["query"].shape[-2:-1], _SINKS) for _ in sinks),
                *(dtype_in({D.FLOAT}, _SINKS) for _ in sinks),
                optional=(
                    same_dtype("value", "query"),
                    *with_code(ACLNN_ERR_PARAM_NULLPTR, statistics),
                    dtype_in({D.FLOAT}, *_STATISTICS),
                ),
            ),
        ),
        work=_work,
        stream_type="const aclrtStream ",
    )


def _is_before_950(call: Call) -> bool:
    return call.product not in CLASS_950


_RESERVED = ("keyDequantScaleOptional", "valueDequantScaleOptional")


def _quantized() -> Operator:
    name, block = "kv_quant_sparse_flash_attention", "sparseBlockSize"
    return Operator(
        name=name,
        summary="Attention to selected 8-bit keys.",
        formula=f"attentionOut = {_FORMULA} of dequantized keys",
        parameters=(
            tensor_in("query", "(B, S, N, 576), or (T, N, 576) with TND: 512 elements and 64 of the rotary part"),
            tensor_in(
                "key",
                "(…, 1, 656), as of aclnnSparseFlashAttention: 512 elements, the bytes of 64 rotary elements "
                "in query's type and of 4 FLOAT scales; INT8, or FLOAT8_E4M3FN on Ascend 950",
            ),
            tensor_in("value", "as key, usually the same memory"),
            tensor_in(
                "sparseIndices",
                "the selected block indices for each query, (…, 1, K), terminated by a negative one; INT32",
            ),
            *(optional_in(each, "must be null") for each in _RESERVED),
            *_SPANS,
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
            attribute("keyQuantMode", Kind.INT64, "2: one scale per tile"),
            attribute("valueQuantMode", Kind.INT64, "2"),
            attribute(block, Kind.INT64, "the number of keys of a block"),
            *_LAYOUTS,
            *mask_attributes(),
            attribute("attentionMode", Kind.INT64, "2"),
            attribute("quantScaleRepoMode", Kind.INT64, "1: scales are stored in the keys"),
            attribute("tileSize", Kind.INT64, "128: the number of elements per scale"),
            attribute("ropeHeadDim", Kind.INT64, "64: the number of elements of the rotary part"),
            tensor_out("attentionOut", "as query, with 512 elements", const=True),
        ),
        has_golden_values=False,  # bytes of keys hold numbers of query's type
        support={product: frozenset(of[0] for of in _quantized_columns(product)) for product in MODERN},
        checks=generated(
            ("query", "key", "value", "sparseIndices"),
            ("attentionOut",),
            _quantized_columns,
            *_PAGED.checks(),
            *mask_checks(),
            *_blocks(block, _QUANTIZED_BLOCKS),
            one_of("keyQuantMode", _PER_TILE),
            one_of("valueQuantMode", _PER_TILE),
            one_of("attentionMode", _ABSORBED),
            one_of("quantScaleRepoMode", _COMBINED),
            one_of("tileSize", _TILE),
            one_of("ropeHeadDim", _ROPE),
            null(*_RESERVED),
            _elements_are(_ELEMENTS + _ROPE, "query"),
            _elements_are(_BYTES, "key"),
            _heads_of((48,)),
            shape_is("that of key", _key_shape, "value"),
            _numbers(_PAGED),
            shape_is("of elements", lambda call: (*call["query"].shape[:-1], _ELEMENTS), "attentionOut"),
        ),
        work=_quantized_work,
        stream_type="const aclrtStream ",
    )


def _unpaired(call: Call) -> str | None:
    names = [*_ROPES, *_ROPE_GRADIENTS]
    if not any(call[name] is not None for name in _ROPES):
        return None
    absent = next((name for name in names if call[name] is None), None)
    return absent and f"{absent}: expected a tensor with rotary parts, got null"


def _value_gradient(call: Call) -> str | None:
    if call["value"] is not None:
        return None if call["dValueOut"] is not None else "dValueOut: expected an object with value, got null"
    return "dValueOut: expected null without value, got a tensor" if given(call, "dValueOut") else None


def _value(call: Call) -> Any:
    return call["key" if call["value"] is None else "value"]


def _value_shape(call: Call) -> str | None:
    query, key, got = call["query"].shape, call["key"].shape, _value(call).shape
    if got[:-1] == key[:-1] and 0 < got[-1] <= query[-1] == key[-1]:
        return None
    return (
        f"value: expected shape {extents(key[:-1])[:-1]}, …] of at most {query[-1]} elements (those of query and key), "
        f"got {extents(got)}"
    )


def _attention_shape(call: Call) -> tuple[int, ...]:
    return (*call["query"].shape[:-1], _value(call).shape[-1])


def _rope_of(name: str) -> Check:
    """Require the gradient of a rotary part, where one is given, to have its shape."""
    of = _ROPES[_ROPE_GRADIENTS.index(name)]
    return only_if(same_shape(name, of), f"with {of}", lambda call: call[of] is not None)


def _gradient() -> Operator:
    name, sequences = "sparse_flash_attention_grad", _BACKWARD
    inputs = ("query", "key", "sparseIndices", "dOut", "out", *_STATISTICS)
    halves = ("key", "value", "dOut", "out", *_ROPES, "dQueryOut", "dKeyOut", "dValueOut", *_ROPE_GRADIENTS)
    heads_950 = (3, 6, 12, 24, 48)
    return declared(
        name,
        f"gradients of {_FORMULA}",
        "Gradients of attention to selected keys.",
        (
            tensor_in("query", "(B, S, N, D), or (T, N, D) with TND"),
            tensor_in("key", "(B, S, 1, D), or (T, 1, D) with TND"),
            optional_in("value", "as key, with as many elements at most; null: key"),
            tensor_in(
                "sparseIndices",
                "the selected block indices for each query, (…, 1, K), terminated by a negative one; INT32",
            ),
            tensor_in("dOut", "the gradient with respect to the attention"),
            tensor_in("out", "the attention"),
            tensor_in(_STATISTICS[0], "the maximum score, (B, 1, S, N), or (1, T, N) with TND; FLOAT"),
            tensor_in(_STATISTICS[1], "the sum of e^(score - maximum), in the same shape; FLOAT"),
            optional_in(sequences.lengths[0], "the ends of each sample's queries with TND; INT32"),
            optional_in(sequences.lengths[1], "the ends of each sample's keys with TND; INT32"),
            optional_in(_ROPES[0], "the rotary part of query, (…, N, 64)"),
            optional_in(_ROPES[1], "the rotary part of key, (…, 1, 64)"),
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
            attribute(_GRADIENT_BLOCK, Kind.INT64, "the number of keys of a block"),
            attribute("layoutOptional", Kind.STRING, "BSND or TND; null: BSND"),
            attribute("sparseMode", Kind.INT64, "the mask mode, 0: none, 3: causal"),
            attribute("preTokens", Kind.INT64, "ignored"),
            attribute("nextTokens", Kind.INT64, "ignored"),
            attribute("deterministic", Kind.BOOL, "ignored: results always are"),
            tensor_out("dQueryOut", "the gradient with respect to query", const=True),
            tensor_out("dKeyOut", "the gradient with respect to key, including value's if value is null", const=True),
            tensor_out(
                "dValueOut", "the gradient with respect to value; null without value", const=True, optional=True
            ),
            tensor_out(
                _ROPE_GRADIENTS[0], "the gradient with respect to the rotary part of query", const=True, optional=True
            ),
            tensor_out(
                _ROPE_GRADIENTS[1], "the gradient with respect to the rotary part of key", const=True, optional=True
            ),
        ),
        (
            present(*inputs, "dQueryOut", "dKeyOut"),
            *unless_empty(
                ("query",),
                rule("given with value: dValueOut", _value_gradient, ACLNN_ERR_PARAM_NULLPTR),
                dtype_in(set(_HALVES), "query"),
                *(same_dtype(each, "query") for each in halves),
                dtype_in({D.INT32}, "sparseIndices"),
                dtype_in({D.FLOAT}, *_STATISTICS),
                *with_code(
                    ACLNN_ERR_INNER_TILING_ERROR,
                    *sequences.checks(),
                    one_of("sparseMode", EVERY, CAUSAL),
                    *_blocks(_GRADIENT_BLOCK, _GRADIENT_BLOCKS),
                    _heads_of(heads_950),
                    rule("as key: value", _value_shape),
                    rule(f"all or none: {_ROPES[0]}", _unpaired),
                    each("with a head", _ROPES, _beside),
                    _numbers(sequences),
                    shape_is("of the attention", _attention_shape, "dOut", "out"),
                    shape_is("one for each head", _statistic_shape, *_STATISTICS),
                    same_shape("dQueryOut", "query"),
                    same_shape("dKeyOut", "key"),
                    only_if(same_shape("dValueOut", "value"), "with value", lambda call: call["value"] is not None),
                    *(_rope_of(each) for each in _ROPE_GRADIENTS),
                ),
            ),
        ),
        _gradient_work,
        dtypes=_HALVES,
    )


OPERATORS = (
    _forward("sparse_flash_attention", has_sinks=False),
    _forward("sparse_flash_attention_v2", has_sinks=True),
    _gradient(),
    _quantized(),
)
