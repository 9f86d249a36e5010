"""aclnnKvRmsNormRopeCache: keys and values of latent attention, normalised, turned and put into caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    one_of,
    present,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, camel, optional_in, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_CACHES = ("kCacheRef", "ckvCacheRef")
_RESULTS = ("kRopeOut", "cKvOut")
_QUANTIZATION = ("kRopeScaleOptional", "cKvScaleOptional", "kRopeOffsetOptional", "cKvOffsetOptional")
_MODE = "cacheModeOptional"
_OF_SAMPLES, _OF_BLOCKS, _IN_COLUMNS = "Norm", ("PA", "PA_BNSD"), "PA_NZ"
_WIDTH = 16
"""Numbers of a column in memory with PA_NZ."""


def _sizes(call: Call) -> tuple[int, int]:
    """How many of a row's numbers are normalised, and how many are turned."""
    columns = call["gamma"].shape[-1]
    return columns, call["kv"].shape[3] - columns


def _is_null(name: str) -> Check:
    def complain(call: Call) -> str | None:
        return None if call[name] is None else f"{name}: expected null (caches are not quantised), got a tensor"

    return rule(f"null: {name}", complain)


def _pairs_to_turn(call: Call) -> str | None:
    columns, turned = _sizes(call)
    if turned > 0 and turned % 2 == 0:
        return None
    return f"kv: expected an even number of columns above {columns} (those of gamma), got {columns + turned}"


def _angles(call: Call) -> tuple[int, ...]:
    samples, _, tokens, _ = call["kv"].shape
    return samples, 1, tokens, _sizes(call)[1]


def _one_head(call: Call) -> str | None:
    got = call["kv"].shape
    return None if got[1] == 1 else f"kv: expected shape [samples, 1, tokens, columns], got {extents(got)}"


def _of_cache(call: Call, name: str) -> str | None:
    columns, got = _sizes(call)[_CACHES[::-1].index(name)], call[name].shape
    if call[_MODE] == _OF_SAMPLES:
        fits = (got[0], got[1], got[3]) == (call["kv"].shape[0], 1, columns)
        return None if fits else f"expected shape [{call['kv'].shape[0]}, 1, N, {columns}], got {extents(got)}"
    fits = got[2:] == (1, columns) and (call[_MODE] != _IN_COLUMNS or columns % _WIDTH == 0)
    return None if fits else f"expected shape [blocks, tokens, 1, {columns}], got {extents(got)}"


def _places(call: Call) -> tuple[int, ...]:
    samples, _, tokens, _ = call["kv"].shape
    return (samples, tokens) if call[_MODE] == _OF_SAMPLES else (samples * tokens,)


def _outputs(call: Call) -> tuple[str, ...]:
    return _RESULTS if call["isOutputKv"] else ()


def _written(*checks: Check) -> tuple[Check, ...]:
    return restricted("with isOutputKv", lambda call: call["isOutputKv"], *checks)


def _put(cache: Array, rows: Array, index: Array, mode: str) -> Array:
    """The cache with rows (samples, tokens, columns) in places; one below 0 takes nothing."""
    written = np.array(cache)
    if mode == _OF_SAMPLES:
        places = written[:, 0]
    elif mode == _IN_COLUMNS:
        blocks, size, _, columns = written.shape
        places = written.reshape(blocks, columns // _WIDTH, size, _WIDTH).swapaxes(1, 2)
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
    epsilon, mode, wanted = float32(call["epsilon"]), call[_MODE], _outputs(call)
    columns, _ = _sizes(call)
    if call["kv"].size == 0:
        return None

    def update(kv: Array, gamma: Array, cos: Array, sin: Array, index: Array, *caches: Array) -> tuple[Array, ...]:
        kv = kv.astype(np.float64)
        value, pairs = kv[..., :columns], kv[..., columns:]
        value = value / np.sqrt(np.mean(value * value, -1, keepdims=True) + epsilon) * gamma
        first, second = pairs[..., ::2], pairs[..., 1::2]
        halves = np.concatenate([first, second], -1), np.concatenate([-second, first], -1)
        key = halves[0] * cos + halves[1] * sin
        kept = (_put(cache, rows[:, 0], index, mode) for cache, rows in zip(caches, (key, value), strict=True))
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
            tensor_in("cos", "(B, 1, S, Dk)"),
            tensor_in("sin", "(B, 1, S, Dk)"),
            tensor_in("index", "(B, S): places; with blocks (B * S): slots; INT64"),
            tensor_out("kCacheRef", "(B, 1, N, Dk), or (blocks, tokens, 1, Dk)"),
            tensor_out("ckvCacheRef", "(B, 1, N, Dv), or (blocks, tokens, 1, Dv)"),
            *(optional_in(name, "null") for name in _QUANTIZATION),
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            attribute(_MODE, Kind.STRING, "Norm, or of blocks PA, PA_BNSD or PA_NZ"),
            attribute("isOutputKv", Kind.BOOL, "whether kRopeOut and cKvOut are written"),
            tensor_out("kRopeOut", "(B, 1, S, Dk)", optional=True),
            tensor_out("cKvOut", "(B, 1, S, Dv)", optional=True),
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            present("kv", "gamma", "cos", "sin", "index", *_CACHES),
            *_written(present(*_RESULTS)),
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "kv"),
            *(same_dtype(name, "kv") for name in ("gamma", "cos", "sin", *_CACHES)),
            *_written(same_dtype("kRopeOut", "kv"), same_dtype("cKvOut", "kv")),
            dtype_in((D.INT64,), "index"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                *map(_is_null, _QUANTIZATION),
                one_of(_MODE, _OF_SAMPLES, *_OF_BLOCKS, _IN_COLUMNS),
                dims_between(4, 4, "kv", *_CACHES),
                dims_between(1, 1, "gamma"),
                rule("one head: kv", _one_head),
                rule("pairs to turn: kv", _pairs_to_turn),
                shape_is("of angles", _angles, "cos"),
                same_shape("sin", "cos"),
                shape_is("of places", _places, "index"),
                each("shape of a cache", _CACHES, _of_cache),
                *_written(
                    shape_is("of angles", _angles, "kRopeOut"),
                    shape_is("of values", lambda call: (*_angles(call)[:3], _sizes(call)[0]), "cKvOut"),
                ),
            ),
        ),
        work=_work,
    ),
)
