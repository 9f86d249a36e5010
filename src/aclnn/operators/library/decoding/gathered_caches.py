"""Gathering of sequences' keys and values from block caches: aclnnGatherPaKvCache."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    each,
    extents,
    generated,
    no_zero_dims,
    nothing_to_write,
    one_of,
    rule,
    same_dtype,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import INDEX_TYPES, MODERN, attribute, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_PAIRS = {"keyRef": "keyCache", "valueRef": "valueCache"}
_LENGTHS, _OFFSET, _FORMAT = "seqLens", "seqOffsetOptional", "cacheMode"
_WIDE = (*FLOATING, D.INT8, D.UINT8, D.INT16, D.UINT16, D.INT32, D.UINT32)


def _columns(product: Product) -> list[tuple[D, ...]]:
    types, indices = (_WIDE, INDEX_TYPES) if product in CLASS_950 else ((D.FLOAT16, D.BF16, D.INT8), (D.INT32,))
    return [(of, of, index, index, of, of) for of in types for index in indices]


def _has_columns(call: Call) -> bool:
    return bool(call[_FORMAT] == "PA_NZ")


def _place_of_size(call: Call) -> int:
    """Return the dimension of a cache that indexes the tokens of a block."""
    return 2 if _has_columns(call) else 1


def _token_of_cache(call: Call, name: str) -> str | None:
    cache, got = call[_PAIRS[name]].shape, call[name].shape
    expected = (cache[1] * cache[3],) if _has_columns(call) else cache[2:]
    if got[1:] == expected:
        return None
    return f"expected shape {extents((got[0] if got else 0, *expected))} (with {_PAIRS[name]}'s), got {extents(got)}"


def _samples(call: Call) -> tuple[int, ...]:
    return call["blockTables"].shape[:1]


def _lengths_shape(call: Call) -> tuple[int, ...]:
    return (_samples(call)[0] + bool(call["isSeqLensCumsum"]),)


def _same_blocks(call: Call) -> str | None:
    key, value, at = call["keyCache"].shape, call["valueCache"].shape, _place_of_size(call)
    if (key[0], key[at]) == (value[0], value[at]):
        return None
    return f"valueCache: expected blocks and tokens as keyCache has, {extents(key)}, got {extents(value)}"


def _as_many_values(call: Call) -> str | None:
    expected, got = (call[name].shape[0] for name in _PAIRS)
    return None if got == expected else f"valueRef: expected {expected} tokens (as many as keyRef), got {got}"


def _gather_work(call: Call) -> Library | None:
    if nothing_to_write(call, tuple(_PAIRS)):
        return None
    at, cumulated = _place_of_size(call), bool(call["isSeqLensCumsum"])
    optional = () if call[_OFFSET] is None else (_OFFSET,)

    def gather(tables: Array, lengths: Array, *tensors: Array) -> tuple[Array, ...]:
        caches, given = tensors[:2], tensors[2:4]
        blocks, size, tokens = caches[0].shape[0], caches[0].shape[at], len(given[0])
        ends = lengths if cumulated else np.append(0, np.cumsum(lengths))
        skipped = tensors[4] // size if optional else np.zeros(len(tables), np.int64)
        slots, written = np.full(tokens, -1), np.zeros(tokens, bool)
        for table, start, end, skip in zip(tables, ends[:-1], ends[1:], skipped, strict=True):
            own = slice(start, min(end, tokens))
            places = np.arange(max(0, own.stop - own.start))
            block = places // size + skip
            number = np.where(block < len(table), table[np.minimum(block, len(table) - 1)], -1)
            slots[own] = np.where((number >= 0) & (number < blocks), number * size + places % size, -1)
            written[own] = True
        results = []
        for cache, old in zip(caches, given, strict=True):
            rows = np.moveaxis(cache, at, 1).reshape(blocks * size, *old.shape[1:])
            found = np.array(old)
            found[written] = np.where((slots >= 0).reshape(-1, *(1,) * (old.ndim - 1)), rows[slots], 0)[written]
            results.append(found)
        return tuple(results)

    return Library(gather, ("blockTables", _LENGTHS, *_PAIRS.values(), *_PAIRS, *optional), tuple(_PAIRS))


OPERATORS = (
    Operator(
        name="gather_pa_kv_cache",
        summary="Gather the keys and values of sequences from paged caches.",
        formula="keyRef[token j of sequence i] = keyCache[blockTables[i, (j + seqOffsetOptional[i]) / tokens of a "
        "block], j % tokens of a block], zeros where there is no such block; the same for valueRef",
        parameters=(
            tensor_in("keyCache", "(blocks, tokens, heads, numbers), or (blocks, columns, tokens, width) with PA_NZ"),
            tensor_in("valueCache", "as keyCache"),
            tensor_in("blockTables", "the block table of each sequence; INT32 or INT64"),
            tensor_in(_LENGTHS, "the number of tokens of each sequence, or the cumulative starts and the final end"),
            tensor_out("keyRef", "(tokens, heads, numbers), or (tokens, numbers) with PA_NZ"),
            tensor_out("valueRef", "as keyRef"),
            optional_in(_OFFSET, "the number of tokens to skip in each sequence's blocks"),
            Parameter(_FORMAT, _FORMAT, Kind.STRING, "the cache layout: Norm or PA_NZ; null: Norm", optional=True),
            attribute("isSeqLensCumsum", Kind.BOOL, f"{_LENGTHS} says where sequences begin and end"),
        ),
        support={product: frozenset(of[0] for of in _columns(product)) for product in MODERN},
        checks=generated(
            ("keyCache", "valueCache", "blockTables", _LENGTHS, "keyRef", "valueRef"),
            (),
            _columns,
            one_of(_FORMAT, "Norm", "PA_NZ", "", None),
            dims_between(4, 4, *_PAIRS.values()),
            dims_between(2, 2, "blockTables"),
            no_zero_dims("blockTables", *_PAIRS.values()),
            shape_is("its length for each sequence", _lengths_shape, _LENGTHS),
            shape_is("one for each sequence", _samples, _OFFSET),
            rule("as keyCache: valueCache", _same_blocks),
            each("tokens as in its cache", tuple(_PAIRS), _token_of_cache),
            rule("as many as keys: valueRef", _as_many_values),
            written=tuple(_PAIRS),
            optional=(same_dtype(_OFFSET, "blockTables"),),
        ),
        work=_gather_work,
    ),
)
