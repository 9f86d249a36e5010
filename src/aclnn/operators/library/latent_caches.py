"""aclnnKvRmsNormRopeCache: keys and values of latent attention, normalised, turned and put into caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    each,
    elsewhere,
    extents,
    generated,
    nothing_to_write,
    null,
    one_of,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import MODERN, attribute, camel, optional_in, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_CACHES = ("kCacheRef", "ckvCacheRef")
_RESULTS = ("kRopeOut", "cKvOut")
_QUANTIZATION = ("kRopeScaleOptional", "cKvScaleOptional", "kRopeOffsetOptional", "cKvOffsetOptional")
_MODE = "cacheModeOptional"
_OF_SAMPLES, _OF_BLOCKS, _IN_COLUMNS = "Norm", ("PA", "PA_BNSD"), "PA_NZ"
_UNIT = 16
"""Divisor of the tokens of a block; with PA_NZ also of the elements of a token, and the width of a column."""
_COLUMNS = (512, 64)
"""Numbers of a row that are normalised and turned, before Ascend 950."""


def _mode(call: Call) -> str:
    return call[_MODE] or _OF_SAMPLES


def _sizes(call: Call) -> tuple[int, int]:
    """How many of a row's numbers are normalised, and how many are turned."""
    columns = call["gamma"].shape[0]
    return columns, call["kv"].shape[3] - columns


def _types(product: Product) -> list[tuple[D, ...]]:
    """Tensors of one type, but for caches that are quantised."""
    return [
        (d, d, d, d, D.INT64, key, value, d, d)
        for d in (D.FLOAT16, D.BF16)
        for key in (d, D.INT8)
        for value in (d, D.INT8)
    ]


def _pairs_to_turn(call: Call) -> str | None:
    columns, turned = _sizes(call)
    if turned > 0 and turned % 2 == 0:
        return None
    return f"kv: expected an even number of columns above {columns} (those of gamma), got {columns + turned}"


def _fixed_columns(call: Call) -> str | None:
    got = _sizes(call)
    if got == _COLUMNS:
        return None
    expected = f"{_COLUMNS[0]} columns as gamma has and {_COLUMNS[1]} more on {call.product.title}"
    return f"kv: expected {expected}, got {got[0]} and {got[1]}"


def _angles(call: Call, name: str) -> str | None:
    samples, _, tokens, _ = call["kv"].shape
    turned, got = _sizes(call)[1], call[name].shape
    if (got[:2], got[3]) == ((samples, 1), turned) and got[2] in (1, tokens):
        return None
    return f"expected shape [{samples}, 1, {tokens} or 1, {turned}], got {extents(got)}"


def _one_head(call: Call) -> str | None:
    got = call["kv"].shape
    if got[0] and got[1] == 1 and got[2]:
        return None
    return f"kv: expected shape [samples, 1, tokens, columns], none of them 0, got {extents(got)}"


def _of_cache(call: Call, name: str) -> str | None:
    columns, got, first = _sizes(call)[_CACHES[::-1].index(name)], call[name].shape, call[_CACHES[0]].shape
    if _mode(call) == _OF_SAMPLES:
        samples, exact = call["kv"].shape[0], call.product in CLASS_950
        tokens = first[2] if name != _CACHES[0] else "N"
        enough = got[0] == samples if exact else got[0] >= samples
        fits = enough and got[1:] == (1, first[2], columns)
        more = "" if exact else " or more"
        return None if fits else f"expected shape [{samples}{more}, 1, {tokens}, {columns}], got {extents(got)}"
    tokens = first[1] if name != _CACHES[0] else f"a multiple of {_UNIT}"
    fits = got[1:] == (first[1], 1, columns) and first[1] % _UNIT == 0
    return None if fits else f"expected shape [blocks, {tokens}, 1, {columns}], got {extents(got)}"


def _whole_columns(call: Call) -> str | None:
    got = _sizes(call)
    if _mode(call) != _IN_COLUMNS or not (got[0] % _UNIT or got[1] % _UNIT):
        return None
    return f"kv: expected multiples of {_UNIT} columns as gamma has and more with {_IN_COLUMNS}, got {got[0]}, {got[1]}"


def _places(call: Call) -> int:
    return int(call["kv"].shape[0] * call["kv"].shape[2])


def _result(of: int) -> Callable[[Call], tuple[int, ...]]:
    return lambda call: (*call["kv"].shape[:3], _sizes(call)[of])


def _written(*checks: Check) -> tuple[Check, ...]:
    return restricted("with isOutputKv", lambda call: call["isOutputKv"], *checks)


def _put(cache: Array, rows: Array, index: Array, mode: str) -> Array:
    """The cache with rows (samples, tokens, columns) in places; one below 0 takes nothing."""
    written = np.array(cache)
    if mode == _OF_SAMPLES:
        places = written[:, 0]
    elif mode == _IN_COLUMNS:
        blocks, size, _, columns = written.shape
        places = written.reshape(blocks, columns // _UNIT, size, _UNIT).swapaxes(1, 2)
    else:
        places = written[:, :, 0]
    count = places.shape[1] if mode == _OF_SAMPLES else places.shape[0] * places.shape[1]
    if index.size and index.max() >= count:
        raise IndexError(f"index: expected numbers below {count}, got {index.max()}")
    for at in np.argwhere(index >= 0):
        if mode == _OF_SAMPLES:
            places[at[0], index[tuple(at)]] = rows[tuple(at)]
        else:
            block, place = divmod(int(index[at[0]]), places.shape[1])
            places[block, place] = rows.reshape(len(index), *places.shape[2:])[at[0]]
    return written


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, (*_CACHES, *_RESULTS)):
        return None
    epsilon, mode, wanted = float32(call["epsilon"]), _mode(call), _RESULTS if call["isOutputKv"] else ()
    columns, _ = _sizes(call)
    index_shape = call["kv"].shape[::2] if mode == _OF_SAMPLES else (_places(call),)

    def update(kv: Array, gamma: Array, cos: Array, sin: Array, index: Array, *caches: Array) -> tuple[Array, ...]:
        kv = kv.astype(np.float64)
        value, pairs = kv[..., :columns], kv[..., columns:]
        value = value / np.sqrt(np.mean(value * value, -1, keepdims=True) + epsilon) * gamma
        first, second = pairs[..., ::2], pairs[..., 1::2]
        halves = np.concatenate([first, second], -1), np.concatenate([-second, first], -1)
        key = halves[0] * cos + halves[1] * sin
        places = index.reshape(index_shape)
        kept = (_put(cache, rows[:, 0], places, mode) for cache, rows in zip(caches, (key, value), strict=True))
        return *kept, *((key, value) if wanted else ())

    return Library(update, ("kv", "gamma", "cos", "sin", "index", *_CACHES), (*_CACHES, *wanted))


OPERATORS = (
    Operator(
        name="kv_rms_norm_rope_cache",
        function=camel("kv_rms_norm_rope_cache"),
        summary="Normalise the first columns of rows, turn the others, and put both into caches.",
        formula="cKvOut = RMSNorm(kv[..., :Dv]) * gamma, kRopeOut = z * cos + rotate_half(z) * sin, z = the even "
        "columns of kv[..., Dv:], then the odd ones; each in its cache at index",
        parameters=(
            tensor_in("kv", "(B, 1, S, Dv + Dk)"),
            tensor_in("gamma", "(Dv)"),
            tensor_in("cos", "(B, 1, S, Dk), or (B, 1, 1, Dk)"),
            tensor_in("sin", "as cos"),
            tensor_in("index", "B * S places, with blocks slots; INT64"),
            tensor_out("kCacheRef", "(B, 1, N, Dk), or (blocks, tokens, 1, Dk)"),
            tensor_out("ckvCacheRef", "(B, 1, N, Dv), or (blocks, tokens, 1, Dv)"),
            *(optional_in(name, "null") for name in _QUANTIZATION),
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            Parameter(_MODE, _MODE, Kind.STRING, "Norm, or of blocks PA, PA_BNSD or PA_NZ; null: Norm", optional=True),
            attribute("isOutputKv", Kind.BOOL, "whether kRopeOut and cKvOut are written"),
            tensor_out("kRopeOut", "(B, 1, S, Dk)", const=True),
            tensor_out("cKvOut", "(B, 1, S, Dv)", const=True),
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=generated(
            ("kv", "gamma", "cos", "sin", "index", *_CACHES),
            _RESULTS,
            _types,
            null(*_QUANTIZATION, why="caches are not quantised"),
            *(same_dtype(name, "kv") for name in _CACHES),
            one_of(_MODE, _OF_SAMPLES, *_OF_BLOCKS, _IN_COLUMNS, None),
            dims_between(4, 4, "kv", "cos", *_CACHES),
            dims_between(1, 1, "gamma"),
            rule("one head: kv", _one_head),
            rule("pairs to turn: kv", _pairs_to_turn),
            *elsewhere(CLASS_950, rule("columns: kv", _fixed_columns)),
            rule("whole columns: kv", _whole_columns),
            each("angles", ("cos",), _angles),
            same_shape("sin", "cos"),
            size_is("places", _places, "index"),
            each("shape of a cache", _CACHES, _of_cache),
            *_written(
                shape_is("of turned numbers", _result(1), "kRopeOut"),
                shape_is("of normalised numbers", _result(0), "cKvOut"),
            ),
            written=(*_CACHES, *_RESULTS),
        ),
        work=_work,
    ),
)
