"""Attention of new tokens to selected blocks of keys in pages: aclnnNsaSelectedAttentionInfer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    each,
    extents,
    has_zero,
    listing,
    one_of,
    rule,
    same_dtype,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Parameter, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.attention.sequences import PAGES, token_rows
from aclnn.operators.library.attention.sparse_attention import attend, chosen
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_MERGED, _APART = "BSH", "BSND"
_ELEMENTS, _PAGES = {"key": 192, "value": 128}, (64, 128)
"""Elements of a head in each tensor, and supported numbers of keys per page."""
_MOST_SAMPLES, _MOST_HEADS, _MOST_SHARED, _LARGEST_BLOCK, _UNIT = 3072, 256, 16, 128, 16
_NUMBERS, _TABLE, _LENGTHS, _LAYOUT = "topkIndices", "blockTableOptional", "actualKvSeqLenOptional", "layoutOptional"
_HEADS, _SHARED, _SIZE, _COUNT, _PAGE = (
    "numHeads",
    "numKeyValueHeads",
    "selectBlockSize",
    "selectBlockCount",
    "pageBlockSize",
)


def _work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    heads, shared, size, scale = (call[name] for name in (_HEADS, _SHARED, _SIZE, "scaleValue"))
    pages, lengths, shape, step = (
        call["key"].shape[:2],
        np.asarray(call[_LENGTHS]),
        call["output"].shape,
        heads // shared,
    )

    def compute(query: Array, key: Array, value: Array, numbers: Array, table: Array) -> Array:
        queries, numbers = query.reshape(len(query), heads, -1), numbers.reshape(len(query), shared, -1)
        keys, values = (x.reshape(pages[0] * pages[1], shared, -1) for x in (key, value))
        found = np.empty((*queries.shape[:2], values.shape[2]), query.dtype)
        tokens = token_rows(PAGES, pages, lengths, table)

        def rows(head: int) -> Iterator[tuple[int, Array]]:
            for row, columns in enumerate(tokens):
                yield row, columns[chosen(numbers[row, head], size, len(columns))]

        for at in range(shared):
            own = slice(at * step, (at + 1) * step)
            found[:, own] = attend(queries[:, own], keys[:, at], values[:, at], scale, None, rows(at))[0]
        return found.reshape(shape)

    return Library(compute, ("query", "key", "value", _NUMBERS, _TABLE), ("output",))


def _is_merged(call: Call) -> bool:
    return bool(call[_LAYOUT] == _MERGED)


def _dimensions(call: Call, name: str) -> str | None:
    got, expected = call[name].shape, 3 if _is_merged(call) else 4
    if len(got) == expected and not has_zero(got):
        return None
    return f"expected {expected} dimensions ({call[_LAYOUT] or _APART}), none of 0, got {extents(got)}"


def _head_counts(call: Call) -> str | None:
    heads, shared = call[_HEADS], call[_SHARED]
    if 0 < shared <= _MOST_HEADS and heads > 0 and heads % shared == 0 and heads // shared <= _MOST_SHARED:
        return None
    most = f"up to {_MOST_SHARED} times {_SHARED}, which is at most {_MOST_HEADS}"
    return f"{_HEADS}: expected a multiple {most}, got {heads} and {shared}"


def _blocks(call: Call) -> str | None:
    size, count = call[_SIZE], call[_COUNT]
    if 0 < size <= _LARGEST_BLOCK and size % _UNIT == 0 and count > 0:
        return None
    return (
        f"{_SIZE}: expected a multiple of {_UNIT} up to {_LARGEST_BLOCK}, and {_COUNT} above 0, got {size} and {count}"
    )


def _of(call: Call, heads: int, elements: int) -> tuple[int, ...]:
    return (heads * elements,) if _is_merged(call) else (heads, elements)


def _query_shape(call: Call) -> tuple[int, ...]:
    return (*call["query"].shape[:2], *_of(call, call[_HEADS], _ELEMENTS["key"]))


def _output_shape(call: Call) -> tuple[int, ...]:
    return (*call["query"].shape[:2], *_of(call, call[_HEADS], _ELEMENTS["value"]))


def _keys(call: Call, name: str) -> str | None:
    expected = (call["key"].shape[0], call[_PAGE], *_of(call, call[_SHARED], _ELEMENTS[name]))
    got = call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (pages of {_PAGE}), got {extents(got)}"


def _table(call: Call) -> str | None:
    got, samples = call[_TABLE].shape, call["query"].shape[0]
    if len(got) == 2 and got[0] == samples:
        return None
    return f"{_TABLE}: expected shape [{samples}, …], got {extents(got)}"


def _lengths(call: Call) -> str | None:
    got, (samples, pages) = call[_LENGTHS], call[_TABLE].shape
    room = pages * call[_PAGE]
    if len(got) == samples and all(0 < length <= room for length in got):
        return None
    return f"{_LENGTHS}: expected {samples} lengths from 1 to {room}, got {extents(got)}"


def _number_shape(call: Call) -> str | None:
    got, (samples, *of_sample) = call[_NUMBERS].shape, (call["query"].shape[0], call[_SHARED], call[_COUNT])
    allowed = ((samples, *of_sample), (samples, 1, *of_sample))
    if got in allowed:
        return None
    return f"{_NUMBERS}: expected shape {' or '.join(map(extents, allowed))}, got {extents(got)}"


OPERATORS = (
    declared(
        "nsa_selected_attention_infer",
        "output = softmax(scaleValue * query @ selected key.T) @ selected value",
        "Attention of one token per sample to selected blocks of paged keys.",
        (
            tensor_in("query", "(B, 1, N, 192), or (B, 1, N * 192) with BSH"),
            tensor_in("key", "(pages, tokens, heads, 192), or (pages, tokens, heads * 192) with BSH"),
            tensor_in("value", "as key, with heads of 128 elements"),
            tensor_in(
                _NUMBERS, f"the block indices, terminated by a negative one, (B, heads, {_COUNT}) or (B, 1, …); INT32"
            ),
            optional_in("attenMaskOptional", "ignored"),
            optional_in(_TABLE, "the page table of each sample; INT32"),
            Parameter(
                "actualQSeqLenOptional",
                "actualQSeqLenOptional",
                Kind.INT_ARRAY,
                "ignored: each sample has one query",
                optional=True,
            ),
            Parameter(_LENGTHS, _LENGTHS, Kind.INT_ARRAY, "the number of keys of each sample", optional=True),
            attribute(_LAYOUT, Kind.STRING, "BSH or BSND; null: BSND"),
            attribute(_HEADS, Kind.INT64, "the number of query heads"),
            attribute(_SHARED, Kind.INT64, "the number of key heads"),
            attribute(_SIZE, Kind.INT64, "the number of keys of a block"),
            attribute(_COUNT, Kind.INT64, "the number of blocks per query"),
            attribute(_PAGE, Kind.INT64, "the number of keys of a page"),
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
            attribute("sparseMode", Kind.INT64, "ignored"),
            tensor_out("output", "(B, 1, N, 128), or (B, 1, N * 128) with BSH"),
        ),
        (
            present("query", "key", "value", _NUMBERS, "output"),
            *unless_empty(
                ("output",),
                dtype_in(set(_HALVES), "query"),
                *(same_dtype(name, "query") for name in ("key", "value", "output")),
                dtype_in({D.INT32}, _NUMBERS, _TABLE),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    present(_TABLE, _LENGTHS),
                    one_of(_LAYOUT, _MERGED, _APART),
                    each("dimensions of the layout", ("query", "key", "value"), _dimensions),
                    value_is(
                        f"at most {_MOST_SAMPLES} samples of one query",
                        lambda got: got[0] <= _MOST_SAMPLES and got[1] == 1,
                        "query",
                    ),
                    rule(f"heads: {_HEADS}", _head_counts),
                    rule(f"blocks with a kernel: {_SIZE}", _blocks),
                    value_is(f"{listing(map(str, _PAGES))}", lambda got: got in _PAGES, _PAGE),
                    shape_is("of the heads", _query_shape, "query"),
                    each("pages of heads", ("key", "value"), _keys),
                    rule(f"pages of each sample: {_TABLE}", _table),
                    rule(f"a length of each sample: {_LENGTHS}", _lengths),
                    rule(f"numbers for each head of keys: {_NUMBERS}", _number_shape),
                    shape_is("of the attention", _output_shape, "output"),
                ),
            ),
        ),
        _work,
        dtypes=_HALVES,
        products=A2_CLASS,
        stream_type="const aclrtStream ",
    ),
)
