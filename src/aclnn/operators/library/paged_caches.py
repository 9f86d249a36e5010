"""Keys and values of tokens put into caches of blocks: aclnnScatterPaKvCache."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    has_zero,
    null,
    one_of,
    only_if,
    present,
    restricted,
    rule,
    same_dtype,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import INDEX_TYPES, camel, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_NARROW = (D.FLOAT16, D.BF16, D.INT8)
_TYPES = (*_NARROW, D.FLOAT, D.UINT8, D.INT16, D.UINT16, D.INT32, D.UINT32)
_PAIRS = {"key": "keyCacheRef", "value": "valueCacheRef"}
_COMPRESSED = ("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional")
_MODE, _SCATTER = "cacheModeOptional", "scatterModeOptional"
_WIDTH = 32
"""Bytes of a column with PA_NZ."""
_MOST_TOKENS = 2**16 - 1
"""Of a block with PA_NZ."""


def _types_of(product: Product) -> tuple[D, ...]:
    return _TYPES if product in CLASS_950 else _NARROW


def _in_columns(call: Call) -> bool:
    """Whether a block has its tokens' numbers in columns of one width, as PA_NZ says."""
    return bool(call[_MODE] == "PA_NZ")


def _keys_alone(call: Call) -> bool:
    return call.product not in CLASS_950 and not call["valueCacheRef"].shape


def _pairs(call: Call) -> dict[str, str]:
    return {"key": "keyCacheRef"} if _keys_alone(call) else _PAIRS


def _nothing_to_do(call: Call) -> bool:
    return all(any(has_zero(call[name].shape) for name in pair) for pair in _PAIRS.items())


def _unless_nothing_to_do(*checks: Check) -> tuple[Check, ...]:
    return restricted("unless keys and values are empty", lambda call: not _nothing_to_do(call), *checks)


def _with_values(*checks: Check) -> tuple[Check, ...]:
    return restricted("unless there are keys alone", lambda call: not _keys_alone(call), *checks)


def _dims_of_value(call: Call) -> str | None:
    got = call["value"].shape
    return None if len(got) in (0, 3, 4) else f"value: expected 0, 3 or 4 dimensions, got {extents(got)}"


def _tokens(call: Call) -> tuple[int, ...]:
    return call["key"].shape[:1]


def _as_keys(call: Call) -> str | None:
    expected, got = call["key"].shape[:2], call["value"].shape[:2]
    if got == expected:
        return None
    return f"value: expected {expected[0]} tokens of {expected[1]} heads (those of key), got {got[0]} of {got[1]}"


def _narrow_keys(call: Call) -> str | None:
    key, value = call["key"].dtype, call["value"].dtype
    if value != D.INT8 or key == D.INT8:
        return None
    return f"value: expected another data type beside {key.c_name} on {call.product.title}, got {value.c_name}"


def _size(call: Call) -> int:
    """Tokens of a block."""
    return int(call["keyCacheRef"].shape[-2 if _in_columns(call) else 1])


def _dims_of_cache(call: Call, name: str) -> str | None:
    allowed, got = (4, 5) if _in_columns(call) else (4,), call[name].shape
    return None if len(got) in allowed else f"expected {' or '.join(map(str, allowed))} dimensions, got {extents(got)}"


def _of_cache(call: Call, name: str) -> str | None:
    given = call[next(of for of, cache in _PAIRS.items() if cache == name)]
    heads, numbers = given.shape[1:]
    blocks, size, got = call["keyCacheRef"].shape[0], _size(call), call[name].shape
    expected: list[tuple[int, ...]] = [(blocks, size, heads, numbers)]
    if _in_columns(call):
        width = _WIDTH // given.dtype.itemsize
        expected = [(blocks, heads * numbers // width, size, width), (blocks, heads, numbers // width, size, width)]
    if got in expected:
        return None
    return f"expected shape {' or '.join(map(extents, expected))}, got {extents(got)}"


def _whole_columns(call: Call, name: str) -> str | None:
    if not _in_columns(call) or name not in _pairs(call):
        return None
    width, got = _WIDTH // call[name].dtype.itemsize, call[name].shape[2]
    return None if got % width == 0 else f"expected a multiple of {width} numbers of a head with PA_NZ, got {got}"


def _few_tokens(call: Call) -> str | None:
    got = _size(call)
    if not _in_columns(call) or got <= _MOST_TOKENS:
        return None
    return f"keyCacheRef: expected at most {_MOST_TOKENS} tokens of a block with PA_NZ, got {got}"


def _room(call: Call) -> str | None:
    tokens, places = call["key"].shape[0], call["keyCacheRef"].shape[0] * _size(call)
    return None if places >= tokens else f"keyCacheRef: expected places for {tokens} tokens, got {places}"


def _work(call: Call) -> Library | None:
    in_columns, pairs = _in_columns(call), _pairs(call)
    if _nothing_to_do(call):
        return None

    def scatter(slots: Array, *tensors: Array) -> tuple[Array, ...]:
        results = []
        for given, cache in zip(tensors[: len(pairs)], tensors[len(pairs) :], strict=True):
            # A view with blocks and tokens first, whose changes are the cache's.
            written = np.array(cache, order="C")
            columns = written.reshape(len(written), -1, *written.shape[-2:])
            places = columns.swapaxes(1, 2) if in_columns else written
            blocks, size = places.shape[:2]
            used = np.flatnonzero(slots >= 0)
            if used.size and slots.max() >= blocks * size:
                raise IndexError(f"slotMapping: expected numbers below {blocks * size}, got {slots.max()}")
            places[slots[used] // size, slots[used] % size] = given[used].reshape(len(used), *places.shape[2:])
            results.append(written)
        return tuple(results)

    return Library(scatter, ("slotMapping", *pairs, *pairs.values()), tuple(pairs.values()))


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
                "keyCacheRef",
                "(blocks, tokens, heads, numbers), with PA_NZ (blocks, columns or heads and columns, tokens, width)",
            ),
            tensor_in("slotMapping", "the slot of each token; INT32 or INT64"),
            tensor_in("value", "(tokens, heads, numbers); one number, as valueCacheRef: keys alone, before Ascend 950"),
            tensor_out("valueCacheRef", "as keyCacheRef"),
            *(optional_in(name, "of compressed caches, which are not computed") for name in _COMPRESSED),
            _text(_MODE, "Norm or PA_NZ; null: Norm"),
            _text(_SCATTER, "None, or null"),
            *(
                Parameter(name, name, Kind.INT_ARRAY, "not looked at", optional=True)
                for name in ("stridesOptional", "offsetsOptional")
            ),
        ),
        support=dict.fromkeys(A2_CLASS, frozenset(_NARROW)) | dict.fromkeys(CLASS_950, frozenset(_TYPES)),
        checks=(
            present("key", "keyCacheRef", "slotMapping", "value", "valueCacheRef"),
            *_unless_nothing_to_do(
                dims_between(3, 4, "key"),
                rule("0, 3 or 4 dimensions: value", _dims_of_value),
                dtype_in(_types_of, "key"),
                dtype_in(INDEX_TYPES, "slotMapping"),
                same_dtype("keyCacheRef", "key"),
                dtype_in(_types_of, "value"),
                same_dtype("valueCacheRef", "value"),
                only_if(same_dtype("value", "key"), "but with PA_NZ", lambda call: not _in_columns(call)),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    one_of(_MODE, "Norm", "PA_NZ", "", None),
                    one_of(_SCATTER, "None", "", None),
                    null(*_COMPRESSED, why="compressed caches are not computed"),
                    *elsewhere(CLASS_950, rule("types that go together: value", _narrow_keys)),
                    dims_between(3, 3, "key"),
                    *_with_values(dims_between(3, 3, "value")),
                    each("dimensions of a cache", ("keyCacheRef",), _dims_of_cache),
                    *_with_values(each("dimensions of a cache", ("valueCacheRef",), _dims_of_cache)),
                    shape_is("one for each token", _tokens, "slotMapping"),
                    *_with_values(rule("as keys: value", _as_keys)),
                    each("whole columns", tuple(_PAIRS), _whole_columns),
                    each("shape of a cache", ("keyCacheRef",), _of_cache),
                    *_with_values(each("shape of a cache", ("valueCacheRef",), _of_cache)),
                    rule("few tokens of a block: keyCacheRef", _few_tokens),
                    *elsewhere(CLASS_950, rule("room: keyCacheRef", _room)),
                ),
            ),
        ),
        work=_work,
    ),
)
