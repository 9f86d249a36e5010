"""Storing of tokens' keys and values in block caches: aclnnScatterPaKvCache, aclnnQkvRmsNormRopeCache …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    generated,
    has_zero,
    null,
    one_of,
    only_if,
    restricted,
    rule,
    same_dtype,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import EIGHT_BITS, INDEX_TYPES, attribute, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given, quantized

Array = np.ndarray[Any, Any]
_NARROW = (D.FLOAT16, D.BF16, D.INT8)
_TYPES = (*_NARROW, D.FLOAT, D.UINT8, D.INT16, D.UINT16, D.INT32, D.UINT32)
_PAIRS = {"key": "keyCacheRef", "value": "valueCacheRef"}
_COMPRESSED = ("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional")
_MODE, _SCATTER = "cacheModeOptional", "scatterModeOptional"
_IN_COLUMNS_MODE = "PA_NZ"
_WIDTH = 32
"""Width of a column in bytes with PA_NZ."""
_MOST_TOKENS = 2**16 - 1
"""Maximum number of tokens per block with PA_NZ."""


def _types_of(product: Product) -> tuple[D, ...]:
    return _TYPES if product in CLASS_950 else _NARROW


def _in_columns(call: Call) -> bool:
    """Return True if a block stores its tokens in columns of fixed width, as PA_NZ does."""
    return bool(call[_MODE] == _IN_COLUMNS_MODE)


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
    return f"value: expected another data type with {key.c_name} on {call.product.title}, got {value.c_name}"


def _size(call: Call) -> int:
    """Return the number of tokens per block."""
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
        given, caches = tensors[: len(pairs)], tensors[len(pairs) :]
        return tuple(
            _put(cache, rows, slots, in_columns, "slotMapping") for rows, cache in zip(given, caches, strict=True)
        )

    return Library(scatter, ("slotMapping", *pairs, *pairs.values()), tuple(pairs.values()))


def _put(cache: Array, rows: Array, slots: Array, in_columns: bool, name: str) -> Array:
    """Return the cache with rows stored in their slots; negative slots are skipped."""
    # A view with blocks and tokens first, which shares the cache's memory.
    written = np.array(cache, order="C")
    columns = written.reshape(len(written), -1, *written.shape[-2:])
    places = columns.swapaxes(1, 2) if in_columns else written
    blocks, size = places.shape[:2]
    used = np.flatnonzero(slots >= 0)
    if used.size and slots.max() >= blocks * size:
        raise IndexError(f"{name}: expected numbers below {blocks * size}, got {slots.max()}")
    places[slots[used] // size, slots[used] % size] = rows[used].reshape(len(used), *places.shape[2:])
    return written


_KEY, _KEY_CACHE, _SLOTS = "key", "keyCacheRef", "slotMapping"


def _of_keys(call: Call) -> str | None:
    (_, heads, numbers), got = call[_KEY].shape, call[_KEY_CACHE].shape
    if len(got) == 4 and got[2:] == (heads, numbers):
        return None
    return f"{_KEY_CACHE}: expected shape [blocks, tokens, {heads}, {numbers}], got {extents(got)}"


def _keys_work(call: Call) -> Library | None:
    if call[_KEY].size == 0 or call[_KEY_CACHE].size == 0:
        return None
    return Library(
        lambda key, cache, slots: _put(cache, key, slots, False, _SLOTS), (_KEY, _KEY_CACHE, _SLOTS), (_KEY_CACHE,)
    )


_QUERY, _CACHES = "qOut", ("kCache", "vCache")
_BEFORE = ("qOutBeforeQuant", "kOutBeforeQuant", "vOutBeforeQuant")
_FACTORS = ("kScaleOptional", "vScaleOptional", "kOffsetOptional", "vOffsetOptional")
_GIVEN = ("qkv", "qGamma", "kGamma", "cos", "sin", "index")
_HALVES = (D.FLOAT16, D.BF16)
_HEAD = 128
"""Head dimension of the kernel for normalized and rotated projections."""


def _sizes(call: Call) -> str | None:
    """Return an error text unless samples, tokens, heads and head dimension are positive and match qkv."""
    got, shape = call["qkvSize"], call["qkv"].shape
    if len(got) == 4 and min(got) > 0 and shape == (got[0] * got[1], got[2] * got[3]) and got[3] == _HEAD:
        return None
    expected = f"samples, tokens, heads and {_HEAD} numbers of each that make {extents(shape)} (the shape of qkv)"
    return f"qkvSize: expected {expected}, got {extents(got)}"


def _heads(call: Call) -> str | None:
    got, whole = call["headNums"], call["qkvSize"][2]
    if len(got) == 3 and min(got) > 0 and got[1] == got[2] and sum(got) == whole:
        return None
    expected = f"heads of q, k and v, {whole} (those of qkvSize) in all, as many of k as of v"
    return f"headNums: expected {expected}, got {extents(got)}"


def _rows_of(part: int) -> Callable[[Call], tuple[int, int]]:
    return lambda call: (call["qkv"].shape[0], call["headNums"][part] * _HEAD)


def _in_blocks(call: Call, name: str) -> str | None:
    width, got = _WIDTH // call[name].dtype.itemsize, call[name].shape
    columns = call["headNums"][1] * _HEAD // width
    if len(got) == 4 and (got[1], got[3]) == (columns, width) and got[2] % width == 0:
        return None
    return f"expected shape [blocks, {columns}, a multiple of {width}, {width}], got {extents(got)}"


def _with_scale(call: Call, name: str) -> str | None:
    scale, offset = _FACTORS[_CACHES.index(name) :: 2]
    if call[name].dtype == D.INT8:
        return None if call[scale] is not None else f"expected {call['qkv'].dtype.c_name} without {scale}, got ACL_INT8"
    unused = given(call, scale, offset)
    return f"expected ACL_INT8 with {unused[0]}, got {call[name].dtype.c_name}" if unused else None


def _cache_type(call: Call, name: str) -> str | None:
    own, got = call["qkv"].dtype, call[name].dtype
    return None if got in (own, D.INT8) else f"expected data type {own.c_name} or ACL_INT8, got {got.c_name}"


def _projections_work(call: Call) -> Library:
    _, _, heads, size = call["qkvSize"]
    queries, keys, _ = call["headNums"]
    epsilon, wanted, factors = float32(call["epsilon"]), given(call, *_BEFORE), given(call, *_FACTORS)

    def update(qkv: Array, q_gamma: Array, k_gamma: Array, cos: Array, sin: Array, index: Array, *more: Array) -> Any:
        caches, optional = more[:2], dict(zip(factors, more[2:], strict=True))
        parts = np.split(qkv.astype(np.float64).reshape(-1, heads, size), [queries, queries + keys], 1)
        for at, gamma in enumerate((q_gamma, k_gamma)):
            rows = parts[at] / np.sqrt(np.mean(parts[at] ** 2, -1, keepdims=True) + epsilon) * gamma
            first, second = np.split(rows, 2, -1)
            parts[at] = rows * cos[:, None] + np.concatenate([-second, first], -1) * sin[:, None]
        kept = []
        for part, cache, scale in zip(parts[1:], caches, _FACTORS[:2], strict=True):
            stored = part
            if scale in optional:
                offset = optional.get(scale.replace("Scale", "Offset"), np.zeros(1))
                stored = quantized(part / optional[scale].astype(np.float64) + offset, D.INT8)
            kept.append(_put(cache, stored, index, True, "index"))
        before = {name: part.reshape(len(qkv), -1) for name, part in zip(_BEFORE, parts, strict=True)}
        return before[_BEFORE[0]], *kept, *(before[name] for name in wanted)

    return Library(update, (*_GIVEN, *_CACHES, *factors), (_QUERY, *_CACHES, *wanted))


def _text(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.STRING, meaning, optional=True)


OPERATORS = (
    Operator(
        name="scatter_pa_kv_cache",
        summary="Write keys and values of tokens to slots of paged caches.",
        formula="keyCacheRef[slotMapping[i] / tokens of a block, slotMapping[i] % tokens of a block] = key[i], "
        "valueCacheRef likewise; a slot below 0 takes nothing",
        parameters=(
            tensor_in("key", "(tokens, heads, numbers)"),
            tensor_out(
                "keyCacheRef",
                "(blocks, tokens, heads, numbers), with PA_NZ (blocks, columns or heads and columns, tokens, width)",
            ),
            tensor_in("slotMapping", "the slot of each token; INT32 or INT64"),
            tensor_in("value", "(tokens, heads, numbers); one number, as valueCacheRef: keys alone, before Ascend 950"),
            tensor_out("valueCacheRef", "as keyCacheRef"),
            *(optional_in(name, "for compressed caches, which are not supported") for name in _COMPRESSED),
            _text(_MODE, "the cache layout: Norm or PA_NZ; null: Norm"),
            _text(_SCATTER, "None, or null"),
            *(
                Parameter(name, name, Kind.INT_ARRAY, "ignored", optional=True)
                for name in ("stridesOptional", "offsetsOptional")
            ),
        ),
        support=dict.fromkeys(A2_CLASS, frozenset(_NARROW)) | dict.fromkeys(CLASS_950, frozenset(_TYPES)),
        checks=(
            *_unless_nothing_to_do(
                dims_between(3, 4, "key"),
                value_is("0, 3 or 4 dimensions", lambda got: len(got) in (0, 3, 4), "value"),
                dtype_in(_types_of, "key"),
                dtype_in(INDEX_TYPES, "slotMapping"),
                same_dtype("keyCacheRef", "key"),
                dtype_in(_types_of, "value"),
                same_dtype("valueCacheRef", "value"),
                only_if(same_dtype("value", "key"), "but with PA_NZ", lambda call: not _in_columns(call)),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    one_of(_MODE, "Norm", _IN_COLUMNS_MODE, "", None),
                    one_of(_SCATTER, "None", "", None),
                    null(*_COMPRESSED, why="compressed caches are not supported"),
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
    Operator(
        name="scatter_pa_cache",
        summary="Write keys of tokens to slots of a paged cache.",
        formula="keyCacheRef[slotMapping[i] / tokens of a block, slotMapping[i] % tokens of a block] = key[i]; "
        "a slot below 0 takes nothing",
        parameters=(
            tensor_in(_KEY, "(tokens, heads, numbers)"),
            tensor_out(_KEY_CACHE, "(blocks, tokens, heads, numbers)"),
            tensor_in(_SLOTS, "the slot of each token; INT32 or INT64"),
            *(
                optional_in(name, "for compressed caches, which are not supported")
                for name in ("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional")
            ),
            _text("cacheModeOptional", "ignored"),
        ),
        support=dict.fromkeys(CLASS_950, frozenset((*_TYPES, *EIGHT_BITS))),
        checks=generated(
            (_KEY, _KEY_CACHE, _SLOTS),
            (),
            lambda product: [(d, d, index) for d in (*_TYPES, *EIGHT_BITS) for index in INDEX_TYPES],
            null("compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional", why="compressed caches"),
            dims_between(3, 3, _KEY),
            rule(f"of keys: {_KEY_CACHE}", _of_keys),
            shape_is("one for each token", _tokens, _SLOTS),
            written=(_KEY_CACHE,),
        ),
        work=_keys_work,
    ),
    Operator(
        name="qkv_rms_norm_rope_cache",
        summary="RMSNorm and rotary embedding of projected queries and keys; keys and values are written to caches.",
        formula="q, k, v = heads of qkv; q, k = z * cos + rotate_half(z) * sin, z = RMSNorm(q or k) * gamma; qOut = q, "
        "k and v at index in their caches, or round(x / scale + offset)",
        parameters=(
            tensor_in("qkv", "(B * S, heads * D)"),
            tensor_in("qGamma", "(D)"),
            tensor_in("kGamma", "(D)"),
            tensor_in("cos", "(B * S, D)"),
            tensor_in("sin", "as cos"),
            tensor_in("index", "the slot of each token; negative: not written; INT64"),
            tensor_out(_QUERY, "(B * S, Nq * D)"),
            *(
                tensor_out(name, "(blocks, columns of 32 bytes, tokens, width); as qkv, or INT8", updated=True)
                for name in _CACHES
            ),
            *(optional_in(name, "the scales (Nk, D) of an INT8 cache; FLOAT") for name in _FACTORS[:2]),
            *(optional_in(name, "the offsets (Nk, D) of an INT8 cache; FLOAT; null: 0") for name in _FACTORS[2:]),
            Parameter("qkvSize", "qkv_size", Kind.INT_ARRAY, "B, S, heads, D"),
            Parameter("headNums", "head_nums", Kind.INT_ARRAY, "Nq, Nk, Nv"),
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            _text(_MODE, "the cache layout: PA_NZ or null"),
            *(
                tensor_out(name, "the cached values before quantization; null: not written", True, True)
                for name in _BEFORE
            ),
        ),
        support=dict.fromkeys(A2_CLASS, frozenset(_HALVES)),
        checks=(
            dtype_in(_HALVES, "qkv"),
            *(same_dtype(name, "qkv") for name in (*_GIVEN[1:5], _QUERY, *_BEFORE)),
            dtype_in({D.INT64}, "index"),
            each("as qkv, or integers", _CACHES, _cache_type),
            dtype_in({D.FLOAT}, *_FACTORS),
            dims_between(2, 2, "qkv"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                one_of(_MODE, _IN_COLUMNS_MODE, None),
                rule("as qkv: qkvSize", _sizes),
                rule("heads: headNums", _heads),
                shape_is("numbers of a head", lambda call: (_HEAD,), "qGamma", "kGamma"),
                shape_is("numbers for each token", lambda call: (call["qkv"].shape[0], _HEAD), "cos", "sin"),
                shape_is("one for each token", lambda call: call["qkv"].shape[:1], "index"),
                each("shape of a cache", _CACHES, _in_blocks),
                each("with a scale if quantized", _CACHES, _with_scale),
                shape_is("numbers of heads of k", lambda call: (call["headNums"][1], _HEAD), *_FACTORS),
                *(
                    shape_is(f"heads of {'qkv'[part]}", _rows_of(part), *names)
                    for part, names in enumerate(((_QUERY, _BEFORE[0]), _BEFORE[1:2], _BEFORE[2:]))
                ),
            ),
        ),
        work=_projections_work,
    ),
)
