"""Keys and values of attention: RMSNorm, RoPE, quantisation, and caching: aclnnKvRmsNormRopeCache …"""

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
    listing,
    nothing_to_write,
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
from aclnn.operators.library.common import MODERN, attribute, expect_within, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import quantized

Array = np.ndarray[Any, Any]
_CACHES = ("kCacheRef", "ckvCacheRef")
_RESULTS = ("kRopeOut", "cKvOut")
_QUANTIZATION = ("kRopeScaleOptional", "cKvScaleOptional", "kRopeOffsetOptional", "cKvOffsetOptional")
_MODE = "cacheModeOptional"
_OF_SAMPLES, _OF_BLOCKS, _IN_COLUMNS = "Norm", ("PA", "PA_BNSD", "PA_BLK_BNSD"), ("PA_NZ", "PA_BLK_NZ")
_BY_BLOCK = ("PA_BLK_BNSD", "PA_BLK_NZ")
"""Modes with an index of blocks instead of tokens."""
_VALUES = "vOptional"
_UNIT = 32
"""Bytes that divide the tokens of a block; with PA_NZ also a token's elements, whose columns have this many."""
_COLUMNS = (512, 64)
"""Numbers of a row that are normalized and rotated, before Ascend 950."""
_APART = (192, 192, 64, 128)
"""Numbers of a key, of its normalized and its rotated part, and of a value, if values are given separately."""
_HEADS = (1, 2, 4, 8)
"""Allowed number of heads if values are given separately."""


def _mode(call: Call) -> str:
    return call[_MODE] or _OF_SAMPLES


def _apart(call: Call) -> bool:
    """Return True if kv holds keys only; on Ascend 950 values are not considered."""
    return call.arguments.get(_VALUES) is not None and call.product not in CLASS_950


def _sizes(call: Call) -> tuple[int, ...]:
    """Return how many of a row's numbers are normalized, and how many are rotated."""
    columns = call["gamma"].shape[0]
    return columns, call["cos"].shape[3] if _apart(call) else call["kv"].shape[3] - columns


def _kept(call: Call) -> tuple[int, ...]:
    """Return how many numbers of a key and of a value the caches hold."""
    return (call["kv"].shape[3], call[_VALUES].shape[3]) if _apart(call) else _sizes(call)[::-1]


def _types(product: Product) -> list[tuple[D, ...]]:
    """Return the combinations of data types: one for all tensors, except quantised caches."""
    return [
        (d, d, d, d, D.INT64, key, value, d, d)
        for d in (D.FLOAT16, D.BF16)
        for key in (d, D.INT8)
        for value in (d, D.INT8)
    ]


def _pairs_to_turn(call: Call) -> str | None:
    columns, turned = _sizes(call)
    if _apart(call) or (turned > 0 and turned % 2 == 0):
        return None
    return f"kv: expected an even number of columns above {columns} (those of gamma), got {columns + turned}"


def _fixed_columns(call: Call) -> str | None:
    got, what = _sizes(call), "as gamma has, and more"
    expected: tuple[int, ...] = _COLUMNS
    if _apart(call):
        got, expected = (call["kv"].shape[3], *got, call[_VALUES].shape[3]), _APART
        what = f"of it, gamma, cos and {_VALUES}"
    if got == expected:
        return None
    return f"kv: expected columns {extents(expected)} {what} on {call.product.title}, got {extents(got)}"


def _angles(call: Call, name: str) -> str | None:
    samples, heads, tokens, _ = call["kv"].shape
    turned, got = _sizes(call)[1], call[name].shape
    shared = call.product in CLASS_950 or (
        _mode(call) == _OF_SAMPLES or (_mode(call) == "PA" and not any(_quantized(call, each) for each in _CACHES))
    )
    if (got[:2], got[3]) == ((samples, heads), turned) and got[2] in ((1, tokens) if shared else (tokens,)):
        return None
    allowed = f"{tokens} or 1" if shared else tokens
    return f"expected shape [{samples}, {heads}, {allowed}, {turned}], got {extents(got)}"


def _one_head(call: Call) -> str | None:
    got = call["kv"].shape
    heads = (1,) if not _apart(call) or _mode(call) in _IN_COLUMNS else _HEADS
    if got[0] and got[1] in heads and got[2]:
        return None
    allowed = listing(map(str, heads))
    return f"kv: expected shape [samples, {allowed}, tokens, columns], none of them 0, got {extents(got)}"


def _beside_keys(call: Call) -> str | None:
    if not _apart(call):
        return None
    expected, got = call["kv"].shape[:3], call[_VALUES].shape
    if len(got) == 4 and got[:3] == expected:
        return None
    return f"{_VALUES}: expected shape [{', '.join(map(str, expected))}, columns] (as kv), got {extents(got)}"


def _quantized(call: Call, cache: str) -> bool:
    return bool(call[cache].dtype == D.INT8)


def _factors_of(cache: str) -> tuple[str, ...]:
    """Return the names of a cache's scale and offset."""
    return _QUANTIZATION[_CACHES.index(cache) :: 2]


def _with_scale(call: Call, cache: str) -> str | None:
    scale, offset = _factors_of(cache)
    if not _quantized(call, cache):
        if call[cache].dtype != call["kv"].dtype:
            return f"expected ACL_INT8 or {call['kv'].dtype.c_name} (that of kv), got {call[cache].dtype.c_name}"
        unused = [name for name in (scale, offset) if call[name] is not None]
        return f"expected ACL_INT8 with {unused[0]}, got {call[cache].dtype.c_name}" if unused else None
    if call[scale] is None:
        return f"expected {call['kv'].dtype.c_name} (that of kv) without {scale}, got ACL_INT8"
    if call.product in CLASS_950 or _apart(call) or _mode(call) != _OF_SAMPLES:
        return None
    return f"expected {call['kv'].dtype.c_name} (that of kv) with {_OF_SAMPLES} on {call.product.title}, got ACL_INT8"


def _shape_of_factor(call: Call, name: str) -> str | None:
    columns, got = _kept(call)[_QUANTIZATION.index(name) % 2], call[name].shape
    heads = call["kv"].shape[1]
    allowed: list[tuple[int, ...]] = [(heads, columns)]
    if not _apart(call):
        allowed += [(columns,), *([(1,)] if call.product in CLASS_950 else [])]
    return None if got in allowed else f"expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _unit(call: Call, name: str) -> int:
    return int(_UNIT // call[name].dtype.itemsize)


def _of_cache(call: Call, name: str) -> str | None:
    columns, got, first = _kept(call)[_CACHES.index(name)], call[name].shape, call[_CACHES[0]].shape
    samples, heads = call["kv"].shape[:2]
    if _mode(call) == _OF_SAMPLES:
        exact = call.product in CLASS_950
        tokens = first[2] if name != _CACHES[0] else "N"
        enough = got[0] == samples if exact else got[0] >= samples
        fits = enough and got[1:] == (heads, first[2], columns)
        more = "" if exact else " or more"
        return None if fits else f"expected shape [{samples}{more}, {heads}, {tokens}, {columns}], got {extents(got)}"
    tokens = first[1] if name != _CACHES[0] else f"a multiple of {_unit(call, name)}"
    fits = got[1:] == (first[1], heads, columns) and first[1] % _unit(call, name) == 0
    return None if fits else f"expected shape [blocks, {tokens}, {heads}, {columns}], got {extents(got)}"


def _whole_columns(call: Call) -> str | None:
    got, units = _kept(call), [_unit(call, name) for name in _CACHES]
    if _mode(call) not in _IN_COLUMNS or not any(number % unit for number, unit in zip(got, units, strict=True)):
        return None
    expected = f"multiples of {units[0]} and {units[1]} columns of keys and values"
    return f"kv: expected {expected} with {_mode(call)}, got {got[0]}, {got[1]}"


def _places(call: Call) -> int:
    samples, _, tokens, _ = call["kv"].shape
    return int(samples * (-(-tokens // call[_CACHES[0]].shape[1]) if _mode(call) in _BY_BLOCK else tokens))


def _result(of: int) -> Callable[[Call], tuple[int, ...]]:
    return lambda call: (*call["kv"].shape[:3], _kept(call)[of])


def _written(*checks: Check) -> tuple[Check, ...]:
    return restricted("with isOutputKv", lambda call: call["isOutputKv"], *checks)


def put_rows(cache: Array, rows: Array, index: Array, mode: str, unit: int) -> Array:
    """Return the cache with rows (samples, heads, tokens, columns) stored at indices; negative ones are skipped."""
    written = np.array(cache)
    samples, _, tokens, columns = rows.shape
    given = rows.swapaxes(1, 2)
    if mode == _OF_SAMPLES:
        places, slots = written.swapaxes(1, 2), index.reshape(samples, tokens)
        count = places.shape[1]
    else:
        blocks, size = cache.shape[:2]
        count = blocks * size
        if mode in _BY_BLOCK:
            at = np.arange(tokens)
            starts = index.reshape(samples, -1)[:, at // size]
            slots = np.where(starts < 0, -1, starts // size * size + at % size)
        else:
            slots = index.reshape(samples, tokens)
        in_columns = mode in _IN_COLUMNS
        places = written.reshape(blocks, columns // unit, size, unit).swapaxes(1, 2) if in_columns else written
    sample, token = np.nonzero(slots >= 0)
    found, chosen = slots[sample, token], given[sample, token]
    expect_within("index", found, 0, count - 1)
    to = (sample, found) if mode == _OF_SAMPLES else (found // size, found % size)
    places[to] = chosen.reshape(-1, *places.shape[2:])
    return written


def _quantize(rows: Array, *factors: Array) -> Array:
    """Quantise the numbers of heads; scale and offset are per head and column, or per column."""
    scale, *offset = (factor[:, None] if factor.ndim == 2 else factor for factor in factors)
    return quantized(rows * scale.astype(np.float64) + sum(offset), D.INT8)


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, (*_CACHES, *_RESULTS)):
        return None
    epsilon, mode, wanted = float32(call["epsilon"]), _mode(call), _RESULTS if call["isOutputKv"] else ()
    apart, (columns, turned) = _apart(call), _sizes(call)
    units = [_unit(call, name) for name in _CACHES]
    # Before Ascend 950, offsets have no effect if kv holds both.
    shifted = apart or call.product in CLASS_950
    factors = [[name for name in _factors_of(cache)[: 1 + shifted] if call[name] is not None] for cache in _CACHES]
    others = (*((_VALUES,) if apart else ()), *factors[0], *factors[1])

    def update(kv: Array, gamma: Array, cos: Array, sin: Array, index: Array, *more: Array) -> tuple[Array, ...]:
        caches, optional = more[:2], dict(zip(others, more[2:], strict=True))
        kv = kv.astype(np.float64)
        normed = kv[..., :columns]
        normed = normed / np.sqrt(np.mean(normed * normed, -1, keepdims=True) + epsilon) * gamma
        pairs = normed[..., :turned] if apart else kv[..., columns:]
        first, second = pairs[..., ::2], pairs[..., 1::2]
        halves = np.concatenate([first, second], -1), np.concatenate([-second, first], -1)
        key = halves[0] * cos + halves[1] * sin
        if apart:
            rows = np.concatenate([key, normed[..., turned:]], -1), optional[_VALUES].astype(np.float64)
        else:
            rows = key, normed
        kept = []
        for cache, numbers, names, unit in zip(caches, rows, factors, units, strict=True):
            stored = _quantize(numbers, *(optional[name] for name in names)) if names else numbers
            kept.append(put_rows(cache, stored, index, mode, unit))
        return *kept, *(rows if wanted else ())

    return Library(update, ("kv", "gamma", "cos", "sin", "index", *_CACHES, *others), (*_CACHES, *wanted))


def _operator(name: str, *values: Parameter) -> Operator:
    return Operator(
        name=name,
        summary="RMSNorm of the first columns and rotary embedding of the others, written to caches.",
        formula="cKvOut = RMSNorm(kv[..., :Dv]) * gamma, kRopeOut = z * cos + rotate_half(z) * sin, z = the even "
        "columns of kv[..., Dv:], then the odd ones; each in its cache at index, or round(x * scale + offset)"
        + ("; with vOptional, z of RMSNorm(kv) * gamma, the other columns of which follow it" if values else ""),
        parameters=(
            tensor_in("kv", "(B, 1, S, Dv + Dk)" + ("; of keys alone (B, N, S, Dk)" if values else "")),
            tensor_in("gamma", "(Dv)" + (", or (Dk) of keys alone" if values else "")),
            tensor_in("cos", "(B, 1, S, Dk), or (B, 1, 1, Dk)"),
            tensor_in("sin", "as cos"),
            tensor_in("index", "B * S indices, or slots of blocks; with PA_BLK the first slot of each block; INT64"),
            tensor_out("kCacheRef", "(B, 1, N, Dk), or (blocks, tokens, 1, Dk)"),
            tensor_out("ckvCacheRef", "(B, 1, N, Dv), or (blocks, tokens, 1, Dv)"),
            *(optional_in(of, "the INT8 scale of a cache per column; FLOAT") for of in _QUANTIZATION[:2]),
            *(optional_in(of, "the offset, as the scale; null: 0") for of in _QUANTIZATION[2:]),
            *values,
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            Parameter(
                *(_MODE, _MODE, Kind.STRING),
                "Norm, or of blocks PA, PA_BNSD, PA_NZ, PA_BLK_BNSD, PA_BLK_NZ; null: Norm",
                optional=True,
            ),
            attribute("isOutputKv", Kind.BOOL, "whether to write kRopeOut and cKvOut"),
            tensor_out("kRopeOut", "(B, 1, S, Dk)", const=True),
            tensor_out("cKvOut", "(B, 1, S, Dv)", const=True),
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=generated(
            ("kv", "gamma", "cos", "sin", "index", *_CACHES),
            _RESULTS,
            _types,
            one_of(_MODE, _OF_SAMPLES, *_OF_BLOCKS, *_IN_COLUMNS, None),
            each("with a scale if quantized", _CACHES, _with_scale),
            dims_between(4, 4, "kv", "cos", *_CACHES),
            dims_between(1, 1, "gamma"),
            rule("heads: kv", _one_head),
            *(rule(f"with keys: {value.name}", _beside_keys) for value in values),
            rule("pairs to turn: kv", _pairs_to_turn),
            *elsewhere(CLASS_950, rule("columns: kv", _fixed_columns)),
            rule("whole columns: kv", _whole_columns),
            each("angles", ("cos",), _angles),
            same_shape("sin", "cos"),
            size_is("places", _places, "index"),
            each("shape of a cache", _CACHES, _of_cache),
            each("shape of a factor", _QUANTIZATION, _shape_of_factor),
            *_written(shape_is("of keys", _result(0), "kRopeOut"), shape_is("of values", _result(1), "cKvOut")),
            written=(*_CACHES, *_RESULTS),
            optional=(dtype_in((D.FLOAT,), *_QUANTIZATION), *(same_dtype(value.name, "kv") for value in values)),
        ),
        work=_work,
    )


OPERATORS = (
    _operator("kv_rms_norm_rope_cache"),
    _operator(
        "kv_rms_norm_rope_cache_v2",
        optional_in(_VALUES, "the values, (B, N, S, Dv), before Ascend 950; null: kv contains both"),
    ),
)
