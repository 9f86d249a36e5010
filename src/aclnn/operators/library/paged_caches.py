"""Keys and values of tokens put into caches of blocks: aclnnScatterPaKvCache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    one_of,
    present,
    rule,
    same_dtype,
    shape_is,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    MODERN,
    camel,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)

Array = np.ndarray[Any, Any]
_TYPES = (*FLOATING, D.INT8)
_PAIRS = {"key": "keyCacheRef", "value": "valueCacheRef"}
_COMPRESSED = ("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional")
_MODE, _SCATTER = "cacheModeOptional", "scatterModeOptional"


def _in_columns(call: Call) -> bool:
    """Whether a block has its tokens' numbers in columns of one width, as PA_NZ says."""
    return bool(call[_MODE] == "PA_NZ")


def _tokens(call: Call) -> tuple[int, ...]:
    return call["key"].shape[:1]


def _as_many(call: Call) -> str | None:
    expected, got = call["key"].shape[0], call["value"].shape[0]
    return None if got == expected else f"value: expected {expected} tokens (as many as key), got {got}"


def _fits(call: Call, name: str) -> str | None:
    given, got = call[name], call[_PAIRS[name]].shape
    token = given.shape[1:]
    if _in_columns(call):
        expected = "(blocks, columns, tokens, width) with as many numbers for a token"
        fits = got[1] * got[3] == math.prod(token)
    else:
        expected = "(blocks, tokens, heads, numbers) with as many heads and numbers"
        fits = got[2:] == token
    return (
        None if fits else f"expected a token of {_PAIRS[name]} {expected}, got {extents(token)} beside {extents(got)}"
    )


def _fits_together(call: Call) -> str | None:
    key, value = (call[name].shape for name in _PAIRS.values())
    places = 2 if _in_columns(call) else 1
    if (key[0], key[places]) == (value[0], value[places]):
        return None
    return f"valueCacheRef: expected blocks and tokens as keyCacheRef has, {extents(key)}, got {extents(value)}"


def _is_null(name: str) -> Check:
    def complain(call: Call) -> str | None:
        return (
            None if call[name] is None else f"{name}: expected null (compressed caches are not computed), got a tensor"
        )

    return rule(f"null: {name}", complain)


def _work(call: Call) -> Library | None:
    in_columns = _in_columns(call)
    if call["slotMapping"].size == 0 or call["keyCacheRef"].size == 0:
        return None

    def scatter(slots: Array, *tensors: Array) -> tuple[Array, ...]:
        results = []
        for given, cache in zip(tensors[:2], tensors[2:], strict=True):
            # A view with blocks and tokens first, whose changes are the cache's.
            written = np.array(cache)
            places = written.swapaxes(1, 2) if in_columns else written
            blocks, size = places.shape[:2]
            used = np.flatnonzero(slots >= 0)
            if used.size and slots.max() >= blocks * size:
                raise IndexError(f"slotMapping: expected numbers below {blocks * size}, got {slots.max()}")
            places[slots[used] // size, slots[used] % size] = given[used].reshape(len(used), *places.shape[2:])
            results.append(written)
        return tuple(results)

    return Library(scatter, ("slotMapping", *_PAIRS, *_PAIRS.values()), tuple(_PAIRS.values()))


def _text(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.STRING, meaning, optional=True)


OPERATORS = (
    Operator(
        name="scatter_pa_kv_cache",
        function=camel("scatter_pa_kv_cache"),
        summary="Put keys and values of tokens into the slots of caches that have blocks.",
        formula="keyCacheRef[slotMapping[i] / tokens of a block, slotMapping[i] % tokens of a block] = key[i], "
        "valueCacheRef alike; a slot below 0 takes nothing",
        parameters=(
            tensor_in("key", "(tokens, heads, numbers)"),
            tensor_out(
                "keyCacheRef", "(blocks, tokens, heads, numbers), or (blocks, columns, tokens, width) with PA_NZ"
            ),
            tensor_in("slotMapping", "the slot of each token; INT32 or INT64"),
            tensor_in("value", "(tokens, heads, numbers)"),
            tensor_out("valueCacheRef", "as keyCacheRef"),
            *(optional_in(name, "of compressed caches, which are not computed") for name in _COMPRESSED),
            _text(_MODE, "Norm or PA_NZ; null: Norm"),
            _text(_SCATTER, "None, or null"),
            *(
                Parameter(name, name, Kind.INT_ARRAY, "not looked at", optional=True)
                for name in ("stridesOptional", "offsetsOptional")
            ),
        ),
        support=support(_TYPES, MODERN),
        checks=(
            present("key", "keyCacheRef", "slotMapping", "value", "valueCacheRef"),
            dtype_in(where_supported(_TYPES), "key", "value"),
            same_dtype("keyCacheRef", "key"),
            same_dtype("valueCacheRef", "value"),
            dtype_in(INDEX_TYPES, "slotMapping"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                one_of(_MODE, "Norm", "PA_NZ", "", None),
                one_of(_SCATTER, "None", "", None),
                *(_is_null(name) for name in _COMPRESSED),
                dims_between(3, 3, "key", "value"),
                dims_between(4, 4, *_PAIRS.values()),
                shape_is("one for each token", _tokens, "slotMapping"),
                rule("as many as keys: value", _as_many),
                each("its place in a block", tuple(_PAIRS), _fits),
                rule("as keyCacheRef: valueCacheRef", _fits_together),
            ),
        ),
        work=_work,
    ),
)
