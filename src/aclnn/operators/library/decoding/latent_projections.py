"""Queries, keys and rotary parts of latent attention from tokens: aclnnMlaPrologV2WeightNz, V3WeightNz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    format_is,
    generated,
    listing,
    nd_format,
    nothing_to_write,
    one_of,
    only_if,
    rule,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format, float32
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, Shape
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import attribute, declared, expect_within, optional_in, tensor_in, tensor_out
from aclnn.operators.library.decoding.latent_caches import put_rows
from aclnn.operators.library.quantization.quantization import given, quantized
from aclnn.operators.library.quantization.rounding import to_integers

Array = np.ndarray[Any, Any]
_QUERY_RANK, _KEY_RANK, _HEAD, _ROTATED = 1536, 512, 128, 64
"""Latent elements of queries and of keys, and elements of a head without and with a rotary embedding."""
_WIDTHS = (1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192)
_HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
_LARGEST_PAGE, _PAGE_UNIT, _LARGEST, _CACHE_UNIT = 1024, 16, 127, 32
_WEIGHTS = ("weightDq", "weightUqQr", "weightDkvKr")
_INPUTS = (
    "tokenX",
    "weightDq",
    "weightUqQr",
    "weightUk",
    "weightDkvKr",
    "rmsnormGammaCq",
    "rmsnormGammaCkv",
    "ropeSin",
    "ropeCos",
)
_CACHES, _QUERIES = ("kvCacheRef", "krCacheRef"), ("queryOut", "queryRopeOut")
_INDEX, _ENDS, _MODE = "cacheIndexOptional", "actualSeqLenOptional", "cacheModeOptional"
_OLD_INDEX = "cacheIndex"
"""Name of the second function, which takes the modes from data types."""
_OF_X, _OF_DQ, _OF_UQ, _OF_DKV = (f"dequantScale{name}Optional" for name in ("X", "WDq", "WUqQr", "WDkvKr"))
_OF_KV, _OF_KR, _SMOOTH = "quantScaleCkvOptional", "quantScaleCkrOptional", "smoothScalesCqOptional"
_FLOATS = (_OF_X, _OF_DQ, _OF_UQ, _OF_DKV, _OF_KV, _OF_KR, _SMOOTH)
_QUERY_SCALE, _NORM, _NORM_SCALE = (
    "dequantScaleQNopeOutOptional",
    "queryNormOutOptional",
    "dequantScaleQNormOutOptional",
)
_PLAIN, _PARTIAL, _FULL = range(3)
"""Values of weightQuantMode: no weight of INT8, weightUqQr, or that and the weights of tokenX, which is INT8 too."""
_BY_TENSOR, _BY_CHANNEL = 1, 2
"""Values of kvCacheQuantMode with 0."""
_COMBINATIONS = {
    (_PLAIN, 0): "",
    (_PARTIAL, 0): "weightUqQr",
    (_PARTIAL, _BY_CHANNEL): "weightUqQr kvCacheRef krCacheRef",
    (_FULL, 0): "tokenX weightDq weightUqQr weightDkvKr",
    (_FULL, _BY_TENSOR): "tokenX weightDq weightUqQr weightDkvKr kvCacheRef queryOut",
}
"""Tensors of INT8 by the two modes; the others are BF16."""
_REQUIRED = {_PLAIN: (), _PARTIAL: (_OF_UQ,), _FULL: (_OF_X, _OF_DQ, _OF_UQ, _OF_DKV)}
_IN_PAGES, _BY_PAGE, _IN_PLACE = ("PA_BSND", "PA_NZ"), ("PA_BLK_BSND", "PA_BLK_NZ"), {"BSND": 3, "TND": 2}
_MODES = (*_IN_PAGES, *_BY_PAGE, *_IN_PLACE)
_ATTRIBUTES = ("weightQuantMode", "kvCacheQuantMode", "queryQuantMode", "ckvkrRepoMode", "quantScaleRepoMode")


def _is_old(call: Call) -> bool:
    return _OLD_INDEX in call.arguments


def _index_name(call: Call) -> str:
    return _OLD_INDEX if _is_old(call) else _INDEX


def _modes(call: Call) -> tuple[int, int]:
    if not _is_old(call):
        return call["weightQuantMode"], call["kvCacheQuantMode"]
    integers = {name for name in (*_INPUTS, *_CACHES, *_QUERIES) if call[name].dtype == D.INT8}
    return next(modes for modes, names in _COMBINATIONS.items() if set(names.split()) == integers)


def _by_query(call: Call) -> bool:
    """Return True if queries are of INT8."""
    return _modes(call) == (_FULL, _BY_TENSOR)


def _columns(product: Product) -> list[tuple[D, ...]]:
    names = (*_INPUTS, *_CACHES, *_QUERIES)
    return [
        tuple(D.INT8 if name in integers.split() else D.BF16 for name in names) for integers in _COMBINATIONS.values()
    ]


def _old_columns(product: Product) -> list[tuple[D, ...]]:
    before = len(_INPUTS)
    columns = [(*each[:before], D.INT64, *each[before:]) for each in _columns(product)]
    return columns[:1] if product in CLASS_950 else columns


def _known_modes(call: Call) -> str | None:
    got = tuple(call[name] for name in _ATTRIBUTES)
    taken = {(*modes, int(modes == (_FULL, _BY_TENSOR)), 0, 0) for modes in _COMBINATIONS}
    if got in taken:
        return None
    expected = listing(str(list(each)) for each in sorted(taken))
    return f"weightQuantMode: expected {', '.join(_ATTRIBUTES)} of {expected}, got {list(got)}"


def _types_of_modes(call: Call) -> str | None:
    integers = _COMBINATIONS[_modes(call)].split()
    for name in (*_INPUTS, *_CACHES, *_QUERIES):
        expected, got = D.INT8 if name in integers else D.BF16, call[name].dtype
        if got != expected:
            return f"{name}: expected data type {expected.c_name} with these modes, got {got.c_name}"
    return None


def _scales(call: Call) -> str | None:
    weight, cache = _modes(call)
    needed = (*_REQUIRED[weight], *((_OF_KV,) if cache else ()), *((_OF_KR,) if cache == _BY_CHANNEL else ()))
    missing = next((name for name in needed if call[name] is None), None)
    return None if missing is None else f"{missing}: expected a tensor with these modes, got null"


def _sizes(call: Call) -> str | None:
    width, heads = call["tokenX"].shape[-1], (call["weightUk"].shape or (0,))[0]
    if width in _WIDTHS and heads in _HEADS:
        return None
    expected = f"{listing(map(str, _WIDTHS))} elements of tokenX and {listing(map(str, _HEADS))} heads of weightUk"
    return f"tokenX: expected {expected}, got {width} and {heads}"


def _shapes(call: Call) -> dict[str, Shape]:
    """Return the shapes of all tensors but the caches and their indices."""
    (*tokens, width), heads = call["tokenX"].shape, call["weightUk"].shape[0]
    rows = int(np.prod(tokens))
    return {
        "weightDq": (width, _QUERY_RANK),
        "weightUqQr": (_QUERY_RANK, heads * (_HEAD + _ROTATED)),
        "weightUk": (heads, _HEAD, _KEY_RANK),
        "weightDkvKr": (width, _KEY_RANK + _ROTATED),
        "rmsnormGammaCq": (_QUERY_RANK,),
        "rmsnormGammaCkv": (_KEY_RANK,),
        "ropeSin": (*tokens, _ROTATED),
        "ropeCos": (*tokens, _ROTATED),
        _OF_DQ: (1, _QUERY_RANK),
        _OF_UQ: (1, heads * (_HEAD + _ROTATED)),
        _OF_DKV: (1, _KEY_RANK + _ROTATED),
        _OF_KV: (1,) if _modes(call)[1] == _BY_TENSOR else (1, _KEY_RANK),
        _OF_KR: (1, _ROTATED),
        _SMOOTH: (1, _QUERY_RANK),
        "queryOut": (*tokens, heads, _KEY_RANK),
        "queryRopeOut": (*tokens, heads, _ROTATED),
        _QUERY_SCALE: (rows, heads, 1),
        _NORM: (*tokens, _QUERY_RANK),
        _NORM_SCALE: (rows, 1),
    }


def _fits(call: Call, name: str) -> str | None:
    expected, got = _shapes(call)[name], call[name].shape
    return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"


def _of_tokens(call: Call, name: str) -> str | None:
    rows, got = int(np.prod(call["tokenX"].shape[:-1])), call[name].shape
    return None if got in ((rows,), (rows, 1)) else f"expected shape [{rows}, 1], got {extents(got)}"


def _layout(call: Call) -> str | None:
    dims, got = _IN_PLACE.get(call[_MODE]), len(call["tokenX"].shape)
    return None if dims in (None, got) else f"tokenX: expected {dims} dimensions with {call[_MODE]}, got {got}"


def _cache(call: Call, name: str) -> str | None:
    got, columns = call[name].shape, _KEY_RANK if name == _CACHES[0] else _ROTATED
    if call[_MODE] in _IN_PLACE:
        expected = (*call["tokenX"].shape[:-1], 1, columns)
        return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"
    pages = call[_CACHES[0]].shape[:2]
    size = pages[1] if len(pages) == 2 else 0
    if len(got) == 4 and got == (*pages, 1, columns) and 0 < size <= _LARGEST_PAGE and size % _PAGE_UNIT == 0:
        return None
    sizes = f"a multiple of {_PAGE_UNIT} up to {_LARGEST_PAGE}"
    return f"expected shape [pages, tokens, 1, {columns}], tokens {sizes}, got {extents(got)}"


def _index(call: Call) -> str | None:
    name, mode, tokens = _index_name(call), call[_MODE], call["tokenX"].shape[:-1]
    index = call[name]
    if mode in _IN_PLACE:
        return None
    if index is None:
        return f"{name}: expected a tensor with {mode}, got null"
    got = index.shape
    if mode in _IN_PAGES:
        return None if got == tokens else f"{name}: expected shape {extents(tokens)}, got {extents(got)}"
    if len(tokens) == 1:
        ends = call[_ENDS]
        if ends is not None and len(ends.shape) == len(got) == 1:
            return None
        return f"{_ENDS}: expected a tensor of one dimension with {mode}, as {name}, got {ends and extents(ends.shape)}"
    samples, length = tokens
    expected = (samples, -(-length // call[_CACHES[0]].shape[1]))
    return None if got == expected else f"{name}: expected shape {extents(expected)}, got {extents(got)}"


def _slots(index: Array, ends: Array | None, tokens: Shape, mode: str, size: int) -> Array:
    """Return the slot of each token in the pages of a cache."""
    if mode in _IN_PAGES:
        return index.reshape(-1)
    if ends is None:
        at = np.arange(tokens[1])
        return (index[:, at // size] * size + at % size).reshape(-1)
    expect_within(_ENDS, np.diff(ends, prepend=0), 0, tokens[0], "rising numbers up to the tokens")
    expect_within(_ENDS, ends[-1:], tokens[0], tokens[0], "an end of all tokens")
    found, page = [], 0
    for length in np.diff(ends, prepend=0).tolist():
        at = np.arange(length)
        pages = index[page : page + -(-length // size)]
        page += len(pages)
        if len(pages) * size < length:
            raise IndexError(f"{_INDEX}: expected a page for each {size} tokens of a sample, got {len(index)}")
        found.append(pages[at // size] * size + at % size)
    return np.concatenate(found)


def _normalized(x: Array, gamma: Array, epsilon: float, factor: float) -> Array:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * gamma * factor


def _turned(x: Array, sin: Array, cos: Array) -> Array:
    """Rotate neighbouring pairs; their first elements precede the second ones in the result."""
    first, second = x[..., ::2], x[..., 1::2]
    halves = np.concatenate([first, second], -1), np.concatenate([-second, first], -1)
    return halves[0] * cos + halves[1] * sin


def _integers(x: Array) -> tuple[Array, Array]:
    """Quantize rows by their largest magnitudes; return integers and scales."""
    scale = np.abs(x).max(-1, keepdims=True) / _LARGEST
    return to_integers(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0)), scale


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, _QUERIES):
        return None
    weight_mode, cache_mode = _modes(call)
    full, mode, tokens = weight_mode == _FULL, call[_MODE], call["tokenX"].shape[:-1]
    by_query, index = _by_query(call), _index_name(call)
    stored = all(call[name].size for name in _CACHES)
    needed = (*_FLOATS, *((index, _ENDS) if mode not in _IN_PLACE else ()))
    optional = given(call, *needed)
    wanted = given(call, *((_QUERY_SCALE,) if by_query else ()), _NORM, *((_NORM_SCALE,) if weight_mode else ()))
    epsilons = [float32(call[f"rmsnormEpsilon{of}"]) for of in ("Cq", "Ckv")]
    factors = (1.0, 1.0) if _is_old(call) else (call["qcQrScale"], call["kcScale"])
    units = [_CACHE_UNIT // call[name].dtype.itemsize for name in _CACHES]
    shapes = {name: call[name].shape for name in (*_QUERIES, *wanted)}

    def project(*arrays: Array) -> tuple[Array, ...]:
        x, dq, uq, uk, dkv, gamma_q, gamma_kv, sin, cos = (each.astype(np.float64) for each in arrays[: len(_INPUTS)])
        caches, known = (
            arrays[len(_INPUTS) : len(_INPUTS) + 2],
            dict(zip(optional, arrays[len(_INPUTS) + 2 :], strict=True)),
        )
        x, sin, cos = (each.reshape(-1, each.shape[-1]) for each in (x, sin, cos))
        of_x = known[_OF_X].reshape(-1, 1).astype(np.float64) if full else 1.0
        latent = _normalized(x @ dq * (of_x * known[_OF_DQ] if full else 1.0), gamma_q, epsilons[0], factors[0])
        scale: Any = 1.0
        if weight_mode:
            latent, scale = _integers(latent * known.get(_SMOOTH, 1.0))
        heads = (latent @ uq * (scale * known[_OF_UQ] if weight_mode else 1.0)).reshape(len(x), -1, _HEAD + _ROTATED)
        query = np.einsum("tnd,ndk->tnk", heads[..., :_HEAD], uk)
        rotated = _turned(heads[..., _HEAD:], sin[:, None], cos[:, None])
        others: dict[str, Array] = {_NORM: latent, _NORM_SCALE: scale}
        if by_query:
            query, of_query = _integers(query)
            safe = np.where(of_query == 0, 1.0, of_query)
            rotated = rotated * known[_OF_KV].astype(np.float64) / safe
            others[_QUERY_SCALE] = of_query
        both = x @ dkv * (of_x * known[_OF_DKV] if full else 1.0)
        keys = _normalized(both[:, :_KEY_RANK], gamma_kv, epsilons[1], factors[1])
        turned = _turned(both[:, _KEY_RANK:], sin, cos)
        if cache_mode:
            keys = quantized(keys * known[_OF_KV], D.INT8)
        if cache_mode == _BY_CHANNEL:
            turned = quantized(turned * known[_OF_KR], D.INT8)
        results = {_QUERIES[0]: query, _QUERIES[1]: rotated, **others}
        found = tuple(results[name].reshape(shape) for name, shape in shapes.items())
        return (*(_stored(caches, (keys, turned), known) if stored else ()), *found)

    def _stored(caches: Any, rows: tuple[Array, Array], known: dict[str, Array]) -> list[Array]:
        if mode in _IN_PLACE:
            return [each.reshape(cache.shape) for each, cache in zip(rows, caches, strict=True)]
        slots = _slots(known[index], known.get(_ENDS) if len(tokens) == 1 else None, tokens, mode, caches[0].shape[1])
        expect_within(index, slots, 0, caches[0].shape[0] * caches[0].shape[1] - 1)
        kind = "PA_NZ" if mode.endswith("NZ") else "PA"
        return [
            put_rows(cache, each[None, None], slots, kind, unit)
            for cache, each, unit in zip(caches, rows, units, strict=True)
        ]

    outputs = (*(_CACHES if stored else ()), *_QUERIES, *wanted)
    return Library(project, (*_INPUTS, *_CACHES, *optional), outputs)


def _checks(is_old: bool) -> Iterator[Check]:
    def fits(*names: str) -> Check:
        return each("shape of the sizes", names, _fits)

    index = _OLD_INDEX if is_old else _INDEX
    modes = (
        rule("modes with a kernel: weightQuantMode", _known_modes),
        rule("data types of the modes: tokenX", _types_of_modes),
    )
    everything = generated(
        (*_INPUTS, *((_OLD_INDEX,) if is_old else ()), *_CACHES),
        _QUERIES,
        _old_columns if is_old else _columns,
        *(() if is_old else modes),
        rule(f"scales of the modes: {_OF_UQ}", _scales),
        one_of(_MODE, *(_IN_PAGES if is_old else _MODES)),
        dims_between(2, 3, "tokenX"),
        dims_between(3, 3, "weightUk"),
        rule("sizes with a kernel: tokenX", _sizes),
        fits(*(name for name in _INPUTS if name != "tokenX"), *_FLOATS[1:], *_QUERIES),
        each("a scale for each token", (_OF_X,), _of_tokens),
        only_if(fits(_QUERY_SCALE), "of INT8", _by_query),
        *(() if is_old else (fits(_NORM, _NORM_SCALE),)),
        *(() if is_old else (rule("layout of the mode: tokenX", _layout),)),
        each("shape of a cache", _CACHES, _cache),
        rule(f"indices of the mode: {index}", _index),
        written=_QUERIES,
        optional=(
            *(() if is_old else (dtype_in({D.INT64}, _INDEX), dtype_in({D.INT32}, _ENDS))),
            dtype_in({D.FLOAT}, *_FLOATS, _QUERY_SCALE, *(() if is_old else (_NORM_SCALE,))),
            *(() if is_old else (dtype_in({D.BF16, D.INT8}, _NORM),)),
        ),
    )
    names = [
        name for name in (*_INPUTS, *((_OLD_INDEX,) if is_old else ()), *_CACHES, *_QUERIES) if name not in _WEIGHTS
    ]
    for check in everything:
        if check.name.startswith("format that counts as ND"):
            yield nd_format(*names)
            yield format_is(Format.FORMAT_FRACTAL_NZ, *_WEIGHTS)
        else:
            yield check


_TOKENS = "(T, …) or (B, S, …)"
_FORMULA = (
    "c = qcQrScale * RMSNorm(tokenX @ weightDq) * rmsnormGammaCq; q = c @ weightUqQr per head; "
    "queryOut = q[:128] @ weightUk; queryRopeOut = RoPE(q[128:]); k = tokenX @ weightDkvKr; "
    "kvCacheRef[index] = kcScale * RMSNorm(k[:512]) * rmsnormGammaCkv; krCacheRef[index] = RoPE(k[512:]); "
    "scaled by the scales of data of INT8"
)
_GIVEN = (
    tensor_in("tokenX", f"the tokens, {_TOKENS}"),
    tensor_in("weightDq", "(elements of tokenX, 1536), in FRACTAL_NZ"),
    tensor_in("weightUqQr", "(1536, heads * 192), in FRACTAL_NZ"),
    tensor_in("weightUk", "(heads, 128, 512)"),
    tensor_in("weightDkvKr", "(elements of tokenX, 576), in FRACTAL_NZ"),
    tensor_in("rmsnormGammaCq", "(1536)"),
    tensor_in("rmsnormGammaCkv", "(512)"),
    tensor_in("ropeSin", f"{_TOKENS}, 64 elements"),
    tensor_in("ropeCos", "as ropeSin"),
)
_KEPT = (
    tensor_out("kvCacheRef", "the keys' cache, (pages, tokens, 1, 512), or a token each", updated=True),
    tensor_out("krCacheRef", "the rotary parts' cache, as kvCacheRef, with 64 elements", updated=True),
)
_SCALED = (
    optional_in(_OF_X, "factors of tokenX's rows; FLOAT"),
    *(optional_in(name, "factors of the weight's columns; FLOAT") for name in (_OF_DQ, _OF_UQ, _OF_DKV)),
    optional_in(_OF_KV, "the factor of the keys of INT8, or one per column; FLOAT"),
    optional_in(_OF_KR, "the factors of the rotary parts of INT8; FLOAT"),
    optional_in(_SMOOTH, "the factors of c before it is rounded to INT8; FLOAT"),
)
_EPSILONS = (
    attribute("rmsnormEpsilonCq", Kind.DOUBLE, "added to the mean square of c; rounded to float32"),
    attribute("rmsnormEpsilonCkv", Kind.DOUBLE, "added to the mean square of keys; rounded to float32"),
)
_CACHE_MODE = Parameter(_MODE, "cache_mode_optional", Kind.STRING, "PA_BSND, PA_NZ …", c_type="char *")
_MADE = (
    tensor_out("queryOut", f"{_TOKENS}, (heads, 512)", const=True),
    tensor_out("queryRopeOut", f"{_TOKENS}, (heads, 64)", const=True),
    tensor_out(_QUERY_SCALE, "the scales of queryOut of INT8; FLOAT", const=True, optional=True),
)

OPERATORS = (
    declared(
        "mla_prolog_v2_weight_nz",
        _FORMULA.replace("qcQrScale * ", "").replace("kcScale * ", ""),
        "Queries and cached keys of latent attention, with rotary parts, from tokens.",
        (
            *_GIVEN,
            tensor_in(_OLD_INDEX, "the slot of each token; INT64"),
            *_KEPT,
            *_SCALED,
            *_EPSILONS,
            _CACHE_MODE,
            *_MADE,
        ),
        tuple(_checks(is_old=True)),
        _work,
        dtypes=(D.BF16, D.INT8),
        stream_type="const aclrtStream ",
    ),
    declared(
        "mla_prolog_v3_weight_nz",
        _FORMULA,
        "Queries and cached keys of latent attention, with rotary parts, from tokens.",
        (
            *_GIVEN,
            *_KEPT,
            optional_in(_INDEX, "the slot of each token, with PA_BLK the page of each stretch of tokens; INT64"),
            *_SCALED,
            optional_in(_ENDS, "the end of each sample's tokens; INT32"),
            optional_in("kNopeClipAlphaOptional", "ignored"),
            *_EPSILONS,
            _CACHE_MODE,
            attribute(
                "weightQuantMode", Kind.INT64, "0: no INT8, 1: weightUqQr, 2: tokens and all weights but weightUk"
            ),
            attribute("kvCacheQuantMode", Kind.INT64, "0: no INT8, 1: one factor, 2: factors per column"),
            attribute("queryQuantMode", Kind.INT64, "1: queryOut in INT8, with one scale per token and head"),
            attribute("ckvkrRepoMode", Kind.INT64, "0"),
            attribute("quantScaleRepoMode", Kind.INT64, "0"),
            attribute("tileSize", Kind.INT64, "ignored"),
            attribute("qcQrScale", Kind.DOUBLE, "a factor of c"),
            attribute("kcScale", Kind.DOUBLE, "a factor of keys"),
            *_MADE,
            tensor_out(_NORM, f"c, {_TOKENS}, BF16 or INT8", const=True, optional=True),
            tensor_out(_NORM_SCALE, "the scales of c of INT8; FLOAT", const=True, optional=True),
        ),
        tuple(_checks(is_old=False)),
        _work,
        dtypes=(D.BF16, D.INT8),
        stream_type="const aclrtStream ",
    ),
)
