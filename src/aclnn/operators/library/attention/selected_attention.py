"""Attention of packed sequences to selected blocks of keys: aclnnNsaSelectedAttention and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, present
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.attention.sequences import PACKED, token_rows
from aclnn.operators.library.attention.sparse_attention import attend, attention_gradients
from aclnn.operators.library.common import attribute, declared, expect_within, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_A2 = frozenset({Product.ATLAS_A2})
_EVERY, _LEFT_CAUSAL = 0, 2
"""Values of sparseMode: a query sees all selected keys, or those up to its own place."""
_WIDEST, _MOST_SAMPLES, _MOST_SHARED, _MOST_BLOCKS, _LARGEST_BLOCK, _UNIT = 768, 1024, 32, 128, 128, 16
_COPIES = 8
"""Number of copies of a row's statistic."""
_LENGTHS = ("actualSeqQLenOptional", "actualSeqKvLenOptional")
_MASK, _SIZE, _COUNT, _NUMBERS = "attenMaskOptional", "selectedBlockSize", "selectedBlockCount", "topkIndices"


def _finder(call: Call) -> Callable[[Array, int], Iterator[tuple[Any, Array]]]:
    """Return a function of block indices and a key head that yields each query's row and the rows of its keys."""
    size, is_causal = call[_SIZE], call["sparseMode"] == _LEFT_CAUSAL and call[_MASK] is not None
    queries, keys = (
        token_rows(PACKED, call[name].shape, call[lengths])
        for name, lengths in zip(("query", "key"), _LENGTHS, strict=True)
    )

    def find(numbers: Array, head: int) -> Iterator[tuple[Any, Array]]:
        for rows, columns in zip(queries, keys, strict=True):
            for at, row in enumerate(rows):
                places = (numbers[row, head, :, None] * size + np.arange(size)).reshape(-1)
                expect_within(_NUMBERS, places, 0, len(columns) - 1, "keys of its sequence")
                yield row, columns[places[places <= at] if is_causal else places]

    return find


def _groups(call: Call) -> list[slice]:
    """Return the slice of query heads that share each key head."""
    heads, shared = call["query"].shape[1], call["key"].shape[1]
    step = heads // shared
    return [slice(at * step, (at + 1) * step) for at in range(shared)]


def _work(call: Call) -> Library | None:
    outputs = ("softmaxMaxOut", "softmaxSumOut", "attentionOut")
    if all(call[name].size == 0 for name in outputs):
        return None
    find, groups, scale = _finder(call), _groups(call), call["scaleValue"]
    shape, heads = call["attentionOut"].shape, call["query"].shape[:2]

    def compute(query: Array, key: Array, value: Array, numbers: Array) -> tuple[Array, ...]:
        attention = np.zeros(shape, query.dtype)
        largest, total = (np.zeros((*heads, 1), query.dtype) for _ in range(2))
        for at, own in enumerate(groups):
            found = attend(query[:, own], key[:, at], value[:, at], scale, None, find(numbers, at))
            attention[:, own], largest[:, own, 0], total[:, own, 0] = found
        return largest, total, attention

    return Library(compute, ("query", "key", "value", _NUMBERS), outputs)


def _gradient_work(call: Call) -> Library | None:
    if call["query"].size == 0:
        return None
    find, groups, scale = _finder(call), _groups(call), call["scaleValue"]

    def back(query: Array, key: Array, value: Array, numbers: Array, *others: Array) -> tuple[Array, ...]:
        results = tuple(np.zeros_like(x) for x in (query, key, value))
        out, dy, largest, total = others
        for at, own in enumerate(groups):
            attention, statistics = (dy[:, own], out[:, own]), (largest[:, own, 0], total[:, own, 0])
            rows = find(numbers, at)
            found = attention_gradients(query[:, own], key[:, at], value[:, at], attention, statistics, scale, rows)
            results[0][:, own], results[1][:, at], results[2][:, at] = found
        return results

    inputs = ("query", "key", "value", _NUMBERS, "attentionOut", "attentionOutGrad", "softmaxMax", "softmaxSum")
    return Library(back, inputs, ("dqOut", "dkOut", "dvOut"))


def _elements(call: Call) -> str | None:
    query, key, value = (call[name].shape for name in ("query", "key", "value"))
    if query[2] == key[2] >= value[2] and 0 < query[2] <= _WIDEST and value[2]:
        return None
    expected = f"up to {_WIDEST} elements, as many as key has, and no fewer than value has"
    return f"query: expected heads of {expected}, got {query[2]}, {key[2]} and {value[2]}"


def _heads(call: Call) -> str | None:
    heads, shared = call["query"].shape[1], call["key"].shape[1]
    if shared and heads and heads % shared == 0 and heads // shared <= _MOST_SHARED and call["headNum"] == heads:
        return None
    return (
        f"headNum: expected the heads of query, at most {_MOST_SHARED} times those of key, "
        f"got {call['headNum']} and {heads} and {shared}"
    )


def _blocks(call: Call) -> str | None:
    size, count = call[_SIZE], call[_COUNT]
    if 0 < size <= _LARGEST_BLOCK and size % _UNIT == 0 and 0 < count <= _MOST_BLOCKS:
        return None
    text = f"a multiple of {_UNIT} up to {_LARGEST_BLOCK}, and {_COUNT} from 1 to {_MOST_BLOCKS}"
    return f"{_SIZE}: expected {text}, got {size} and {count}"


def _ends(which: int) -> Check:
    name, tensor = _LENGTHS[which], ("query", "key")[which]

    def violation(call: Call) -> str | None:
        ends, rows, count = call[name], call[tensor].shape[0], len(call[_LENGTHS[0]] or ())
        rising = ends and all(0 <= one <= after for one, after in zip((0, *ends), (*ends, rows), strict=True))
        if rising and len(ends) == count <= _MOST_SAMPLES:
            return None
        many = f"{count} " if which else f"at most {_MOST_SAMPLES} "
        return f"{name}: expected {many}rising numbers up to {rows} (rows of {tensor}), got {ends and extents(ends)}"

    return rule(f"ends of sequences: {name}", violation)


def _kernel(attention: tuple[str, ...], statistics: tuple[str, str]) -> tuple[Check, ...]:
    """Return the kernel's checks of shapes and attributes."""
    return with_code(
        ACLNN_ERR_INNER_NULLPTR,
        one_of("sparseMode", _EVERY, _LEFT_CAUSAL),
        dims_between(2, 2, _MASK),
        rule(f"blocks with a kernel: {_SIZE}", _blocks),
        rule("heads: headNum", _heads),
        shape_is("rows and heads of key", lambda call: (*call["key"].shape[:2], call["value"].shape[2]), "value"),
        shape_is(
            "numbers for each head of keys",
            lambda call: (call["query"].shape[0], call["key"].shape[1], call[_COUNT]),
            _NUMBERS,
        ),
        *(_ends(which) for which in (0, 1)),
        shape_is("of the attention", lambda call: (*call["query"].shape[:2], call["value"].shape[2]), *attention),
        shape_is("eight for each head", lambda call: (*call["query"].shape[:2], _COPIES), *statistics),
    )


def _types(attention: tuple[str, ...], statistics: tuple[str, str]) -> tuple[Check, ...]:
    return (
        dtype_in(set(_HALVES), "query"),
        *(same_dtype(name, "query") for name in ("key", "value", *attention)),
        dtype_in({D.INT32}, _NUMBERS),
        dtype_in({D.BOOL, D.UINT8}, _MASK),
        dtype_in({D.FLOAT}, *statistics),
    )


_TENSORS = (
    tensor_in("query", "(T, N, D)"),
    tensor_in("key", "(T, heads of keys, D)"),
    tensor_in("value", "(T, heads of keys, at most D)"),
)
_SELECTED = tensor_in(_NUMBERS, f"numbers of blocks of a query's sequence, (T, heads of keys, {_COUNT}); INT32")
_MASKED = optional_in(_MASK, "required with sparseMode 2, which is causal; its contents are ignored")
_ENDS = tuple(
    Parameter(name, name, Kind.INT_ARRAY, f"the ends of the {of} of each sequence", optional=True)
    for name, of in zip(_LENGTHS, ("queries", "keys"), strict=True)
)
_SCALE = attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores")
_HEADS = (attribute("headNum", Kind.INT64, "the number of query heads"), attribute("inputLayout", Kind.STRING, '"TND"'))
_MODE = attribute("sparseMode", Kind.INT64, "the mask mode, 0: none, 2: causal (see attenMaskOptional)")
_SELECTION = (
    attribute(_SIZE, Kind.INT64, "the number of keys of a block"),
    attribute(_COUNT, Kind.INT64, "the number of blocks per query"),
)
_FORMULA = "softmax(scaleValue * query @ selected key.T, masked) @ selected value"
_FORWARD_OUTPUTS = ("softmaxMaxOut", "softmaxSumOut", "attentionOut")
_BACKWARD_INPUTS = ("attentionOut", "attentionOutGrad", "softmaxMax", "softmaxSum")
_GRADIENTS = {"dqOut": "query", "dkOut": "key", "dvOut": "value"}
_LAYOUT = (one_of("inputLayout", PACKED), dims_between(3, 3, "query", "key", "value"))

OPERATORS = (
    declared(
        "nsa_selected_attention",
        f"attentionOut = {_FORMULA}",
        "Attention to selected blocks of keys.",
        (
            *_TENSORS,
            _SELECTED,
            _MASKED,
            *_ENDS,
            _SCALE,
            *_HEADS,
            _MODE,
            *_SELECTION,
            tensor_out("softmaxMaxOut", "the maximum score, (T, N, 8); FLOAT", const=True),
            tensor_out("softmaxSumOut", "the sum of e^(score - maximum), in the same shape; FLOAT", const=True),
            tensor_out("attentionOut", "(T, N, elements of value)", const=True),
        ),
        (
            present("query", "key", "value", _NUMBERS, *_LENGTHS, "inputLayout", *_FORWARD_OUTPUTS),
            *unless_empty(
                _FORWARD_OUTPUTS,
                *_LAYOUT,
                *_types(("attentionOut",), ("softmaxMaxOut", "softmaxSumOut")),
                rule("elements of heads: query", _elements),
                *_kernel(("attentionOut",), ("softmaxMaxOut", "softmaxSumOut")),
                which="every output",
                among=all,
            ),
        ),
        _work,
        dtypes=_HALVES,
        products=_A2,
        stream_type="const aclrtStream ",
    ),
    declared(
        "nsa_selected_attention_grad",
        f"gradients of {_FORMULA}",
        "Gradients of attention to selected blocks of keys.",
        (
            *_TENSORS,
            tensor_in("attentionOut", "the attention"),
            tensor_in("attentionOutGrad", "the gradient with respect to the attention"),
            tensor_in("softmaxMax", "the maximum score, (T, N, 8); FLOAT"),
            tensor_in("softmaxSum", "the sum of e^(score - maximum), in the same shape; FLOAT"),
            _SELECTED,
            *_ENDS,
            _MASKED,
            _SCALE,
            *_SELECTION,
            *_HEADS,
            _MODE,
            *(tensor_out(out, f"the gradient with respect to {of}", const=True) for out, of in _GRADIENTS.items()),
        ),
        (
            *unless_empty(
                ("query",),
                *_types((*_BACKWARD_INPUTS[:2], *_GRADIENTS), ("softmaxMax", "softmaxSum")),
                *with_code(ACLNN_ERR_INNER_NULLPTR, *_LAYOUT, rule("elements of heads: query", _elements)),
                *_kernel(_BACKWARD_INPUTS[:2], ("softmaxMax", "softmaxSum")),
                *with_code(ACLNN_ERR_INNER_NULLPTR, *(same_shape(out, of) for out, of in _GRADIENTS.items())),
            ),
        ),
        _gradient_work,
        dtypes=_HALVES,
        products=_A2,
    ),
)
