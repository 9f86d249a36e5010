"""Attention restricted by a mask of blocks: aclnnBlockSparseAttention and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    each,
    extents,
    fits,
    has_zero,
    null,
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
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.attention.sequences import PACKED, SAMPLES, token_rows
from aclnn.operators.library.attention.sparse_attention import attend, attention_gradients
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_HALVES, _MASKS = (D.FLOAT16, D.BF16), (D.INT8, D.UINT8, D.BOOL)
_HEADS_FIRST = "BNSD"
_ELEMENTS, _UNIT = (64, 128), 128
_OF_FLOAT, _OF_HALVES, _MIXED = 0, 1, 4
"""Values of innerPrecise, the internal precision of a kernel."""
_MASK, _BLOCK, _LSE_FLAG, _LSE = "blockSparseMaskOptional", "blockShapeOptional", "softmaxLseFlag", "softmaxLseOptional"
_LENGTHS = ("actualSeqLengthsOptional", "actualSeqLengthsKvOptional")
_LAYOUTS, _TENSORS = ("qInputLayout", "kvInputLayout"), ("query", "key")


def _is_packed(call: Call) -> bool:
    return bool(call[_LAYOUTS[0]] == PACKED)


def _lengths(call: Call, which: int) -> list[int]:
    """Return the number of tokens of each sample, of queries (0) or keys (1)."""
    given = call[_LENGTHS[which]]
    if _is_packed(call):
        return list(given)
    samples, _, room, _ = call[_TENSORS[which]].shape
    return [room] * samples if given is None or len(given) != samples else list(given)


def _tokens(call: Call, which: int) -> list[Array]:
    """Return the rows of each sample in an array of concatenated tokens."""
    lengths, shape = _lengths(call, which), call[_TENSORS[which]].shape
    if _is_packed(call):
        return token_rows(PACKED, shape, list(accumulate(lengths)))
    return token_rows(SAMPLES, (shape[0], shape[2]), lengths)


def _below(x: Array) -> Array:
    """Concatenate the tokens of (T, heads, elements) or (B, heads, S, elements)."""
    return x if x.ndim == 3 else x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])


def _apart(x: Array, shape: tuple[int, ...]) -> Array:
    """Undo ``_below`` for a tensor of the given shape."""
    return x if len(shape) == 3 else x.reshape(shape[0], shape[2], shape[1], shape[3]).swapaxes(1, 2)


def _finder(call: Call) -> Callable[[Array], Iterator[tuple[Array, Array]]]:
    """Return a function of a head's mask that yields, block by block, the rows of queries and of their keys."""
    height, width = call[_BLOCK][:2]
    samples = list(zip(_tokens(call, 0), _tokens(call, 1), strict=True))

    def find(mask: Array) -> Iterator[tuple[Array, Array]]:
        for (rows, columns), own in zip(samples, mask, strict=True):
            blocks = np.arange(len(columns)) // width
            for at, begin in enumerate(range(0, len(rows), height)):
                yield rows[begin : begin + height], columns[own[at, blocks] != 0]

    return find


def _work(call: Call) -> Library | None:
    if call["query"].size == 0:
        return None
    find, scale, shared = _finder(call), call["scaleValue"], call["query"].shape[1] // call["key"].shape[1]
    outputs = ("attentionOut", *((_LSE,) if call[_LSE_FLAG] else ()))
    shapes = [call[name].shape for name in outputs]

    def compute(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, ...]:
        query, key, value = map(_below, (query, key, value))
        attention, sums = np.zeros_like(query, order="C"), np.zeros((*query.shape[:2], 1), query.dtype)
        for head in range(query.shape[1]):
            own, of = slice(head, head + 1), head // shared
            found = attend(query[:, own], key[:, of], value[:, of], scale, None, find(mask[:, head]))
            attention[:, own] = found[0]
            with np.errstate(divide="ignore"):
                sums[:, own, 0] = found[1] + np.log(found[2])
        return tuple(_apart(x, shape) for x, shape in zip((attention, sums), shapes, strict=False))

    return Library(compute, ("query", "key", "value", _MASK), outputs)


_GRADIENTS = {"dq": "query", "dk": "key", "dv": "value"}


def _gradient_work(call: Call) -> Library | None:
    if call["query"].size == 0:
        return None
    find, scale, shared = _finder(call), call["scaleValue"], call["query"].shape[1] // call["key"].shape[1]
    shapes = [call[name].shape for name in _GRADIENTS]

    def back(*arrays: Array) -> tuple[Array, ...]:
        query, key, value, dy, out, lse = map(_below, arrays[:-1])
        dq, dk, dv = (np.zeros_like(x, order="C") for x in (query, key, value))
        for head in range(query.shape[1]):
            own, of = slice(head, head + 1), head // shared
            top, rows = lse[:, own], find(arrays[-1][:, head])
            attention = dy[:, own], out[:, own]
            statistics = top, np.ones_like(top)
            found = attention_gradients(query[:, own], key[:, of], value[:, of], attention, statistics, scale, rows)
            dq[:, own] = found[0]
            dk[:, of] += found[1]
            dv[:, of] += found[2]
        return tuple(_apart(x, shape) for x, shape in zip((dq, dk, dv), shapes, strict=True))

    return Library(back, ("query", "key", "value", "dout", "attentionOut", "softmaxLse", _MASK), tuple(_GRADIENTS))


def _same_layout(call: Call) -> str | None:
    first, second = (call[name] for name in _LAYOUTS)
    return None if first == second else f"{_LAYOUTS[1]}: expected {first!r} (as {_LAYOUTS[0]}), got {second!r}"


def _width(call: Call) -> str | None:
    got = call[_BLOCK][1]
    return None if got % _UNIT == 0 else f"{_BLOCK}: expected a multiple of {_UNIT} in second place, got {got}"


def _dimensions(call: Call, name: str) -> str | None:
    got, expected = call[name].shape, 3 if _is_packed(call) else 4
    if len(got) == expected and not has_zero(got):
        return None
    return f"expected {expected} dimensions ({call[_LAYOUTS[0]]}), none of 0, got {extents(got)}"


def _key(call: Call) -> str | None:
    query, got = call["query"].shape, call["key"].shape
    fits = query[1] % got[1] == 0 and query[-1] == got[-1] in _ELEMENTS
    if fits and (_is_packed(call) or query[0] == got[0]):
        return None
    return (
        "key: expected samples as query has, a divisor of its heads, and heads of 64 or 128 elements as its, "
        f"got {extents(got)} and {extents(query)}"
    )


def _count(which: int) -> Check:
    name, tensor = _LENGTHS[which], _TENSORS[which]

    def violation(call: Call) -> str | None:
        got, rows = call[name], call[tensor].shape
        if _is_packed(call):
            samples = len(call[_LENGTHS[0]] or ())
            if got and len(got) == samples and min(got) >= 0 and sum(got) == rows[0]:
                return None
            many = f"{samples} " if which else ""
            return f"{name}: expected {many}lengths with a sum of {rows[0]} (TND), got {got and extents(got)}"
        if got is None or len(got) != rows[0] or all(0 <= length <= rows[2] for length in got):
            return None
        return f"{name}: expected lengths from 0 to {rows[2]}, got {extents(got)}"

    return rule(f"lengths of samples: {name}", violation)


def _mask_shape(call: Call) -> tuple[int, ...]:
    lengths = [_lengths(call, which) for which in (0, 1)]
    # Tensors with a sample dimension are sized by capacity, whatever the actual lengths.
    longest = [max(own) for own in lengths] if _is_packed(call) else [call[name].shape[2] for name in _TENSORS]
    blocks = (-(-length // size) for length, size in zip(longest, call[_BLOCK], strict=False))
    return (len(lengths[0]), call["query"].shape[1], *blocks)


def _lse_shape(call: Call) -> tuple[int, ...]:
    return (*call["query"].shape[:-1], 1)


def _whole(call: Call) -> str | None:
    got = call["innerPrecise"]
    if got == _OF_HALVES and call["query"].dtype == D.BF16:
        return "innerPrecise: expected 0 or 4 (query of ACL_BF16), got 1"
    return None


def _types() -> tuple[Check, ...]:
    """Return the checks of types, layouts and blocks that precede the kernels' checks."""
    return (
        dtype_in(set(_HALVES), "query"),
        same_dtype("key", "query"),
        same_dtype("value", "query"),
        *(one_of(name, PACKED, _HEADS_FIRST) for name in _LAYOUTS),
        rule(f"one layout: {_LAYOUTS[1]}", _same_layout),
        value_is("at least two numbers, the first two above 0", lambda got: len(got) >= 2 and min(got[:2]) > 0, _BLOCK),
    )


def _kernel(*attention: str) -> tuple[Check, ...]:
    """Return the kernels' checks of inputs and attention."""
    return (
        null("attenMaskOptional"),
        one_of("maskType", 0),
        dtype_in(set(_MASKS), _MASK),
        *(same_dtype(name, "query") for name in attention),
        each("dimensions of the layout", _TENSORS, _dimensions),
        rule("samples and heads: key", _key),
        same_shape("value", "key"),
        *(_count(which) for which in (0, 1)),
        shape_is("a number for each block", _mask_shape, _MASK),
        *(same_shape(name, "query") for name in attention),
    )


_IN = (
    tensor_in("query", "(T, N, D) or (B, N, S, D)"),
    tensor_in("key", "as query, with a number of heads that divides query's"),
    tensor_in("value", "as key"),
)
_MASKS_IN = (
    optional_in(
        _MASK, "the block mask, nonzero where queries attend to a block of keys, (B, N, query blocks, key blocks); INT8"
    ),
    optional_in("attenMaskOptional", "null"),
)
_ARRAYS = (
    Parameter(_BLOCK, _BLOCK, Kind.INT_ARRAY, "the numbers of queries and keys of a block", optional=True),
    *(
        Parameter(name, name, Kind.INT_ARRAY, f"{of} of each sample; needed with TND", optional=True)
        for name, of in zip(_LENGTHS, ("queries", "keys"), strict=True)
    ),
)
_LAYOUTS_IN = (attribute(_LAYOUTS[0], Kind.STRING, "TND or BNSD"), attribute(_LAYOUTS[1], Kind.STRING, "TND or BNSD"))
_TYPE_OF_MASK = attribute("maskType", Kind.INT64, "0: no attenMaskOptional")
_SCALE = attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores")
_AROUND = (attribute("preTokens", Kind.INT64, "ignored"), attribute("nextTokens", Kind.INT64, "ignored"))
_FORMULA = "softmax(scaleValue * query @ key.T, masked by blockSparseMaskOptional) @ value"

OPERATORS = (
    declared(
        "block_sparse_attention",
        f"attentionOut = {_FORMULA}",
        "Block-sparse attention.",
        (
            *_IN,
            *_MASKS_IN,
            *_ARRAYS,
            optional_in("blockTableOptional", "null"),
            *_LAYOUTS_IN,
            attribute("numKeyValueHeads", Kind.INT64, "the number of key heads"),
            _TYPE_OF_MASK,
            _SCALE,
            attribute("innerPrecise", Kind.INT64, "0, 1 with FLOAT16, or 4; always computed in float32 here"),
            attribute("blockSize", Kind.INT64, "ignored: keys are not paged"),
            *_AROUND,
            attribute(_LSE_FLAG, Kind.INT64, "1: write softmaxLseOptional, 0: do not"),
            tensor_out("attentionOut", "as query"),
            tensor_out(_LSE, "the log-sum-exp of the scores, (T, N, 1) or (B, N, S, 1); FLOAT", optional=True),
        ),
        (
            present("query", "key", "value", *_LAYOUTS, _BLOCK, "attentionOut"),
            *unless_empty(
                ("query",),
                *_types(),
                one_of("innerPrecise", _OF_FLOAT, _OF_HALVES, _MIXED),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    present(_MASK),
                    one_of(_LSE_FLAG, 0, 1),
                    null("blockTableOptional"),
                    rule("precision of the type: innerPrecise", _whole),
                    rule(f"blocks of keys: {_BLOCK}", _width),
                    *_kernel("attentionOut"),
                    *restricted(
                        "with softmaxLseFlag",
                        lambda call: bool(call[_LSE_FLAG]),
                        present(_LSE),
                        dtype_in({D.FLOAT}, _LSE),
                        shape_is("a sum for each query", _lse_shape, _LSE),
                    ),
                    fits("{} (heads of key)", lambda call, got: (call["key"].shape[1], got), "numKeyValueHeads"),
                ),
            ),
        ),
        _work,
        dtypes=_HALVES,
        products=A2_CLASS,
    ),
    declared(
        "block_sparse_attention_grad",
        f"gradients of {_FORMULA}",
        "Gradients of block-sparse attention.",
        (
            tensor_in("dout", "the gradient with respect to the attention"),
            *_IN,
            tensor_in("attentionOut", "the attention that the forward function wrote"),
            tensor_in("softmaxLse", "the log-sum-exp of the scores, (T, N, 1) or (B, N, S, 1); FLOAT"),
            *_MASKS_IN,
            *_ARRAYS,
            *_LAYOUTS_IN,
            attribute("numKeyValueHeads", Kind.INT64, "ignored: key determines them"),
            _TYPE_OF_MASK,
            _SCALE,
            *_AROUND,
            *(tensor_out(out, f"the gradient with respect to {of}") for out, of in _GRADIENTS.items()),
        ),
        (
            present(
                *("dout", "query", "key", "value", "attentionOut", "softmaxLse", _MASK, *_LAYOUTS, _BLOCK), *_GRADIENTS
            ),
            *unless_empty(
                ("query",),
                *_types(),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    dtype_in({D.FLOAT}, "softmaxLse"),
                    *(same_dtype(out, "query") for out in _GRADIENTS),
                    *_kernel("dout", "attentionOut"),
                    shape_is("a sum for each query", _lse_shape, "softmaxLse"),
                    *(same_shape(out, of) for out, of in _GRADIENTS.items()),
                ),
            ),
        ),
        _gradient_work,
        dtypes=_HALVES,
        products=A2_CLASS,
        stream_type="const aclrtStream ",
    ),
)
