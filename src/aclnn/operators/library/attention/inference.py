"""aclnnFusedInferAttentionScore and related functions: attention for inference on 16-bit tensors.

Samples may have fewer queries and keys than their tensors, left padding, a common prefix of keys, and other keys in
separate tensors or in pages; with the layout TND they follow one another. An entirely masked row is zeros whatever
``innerPrecise``, and its softmaxLse is infinite.

Checks and work use the argument names of aclnnFusedInferAttentionScoreV5, which has all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dtype_in,
    each,
    extents,
    listing,
    on,
    one_of,
    only_if,
    public_format,
    rule,
    same_dtype,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    ACLNN_ERR_RUNTIME_ERROR,
)
from aclnn.operators.library.attention.attention import FAR, given
from aclnn.operators.library.attention.scores import ALL, BAND, GIVEN, RIGHT, ROOTS, SLOPES, Form, Shape, attend
from aclnn.operators.library.common import attribute, expect_within, optional_in, support
from aclnn.operators.library.lists import each_of, not_null, of_same_shape, public

_PACKED = "TND"
_LAYOUTS = {"BSH": "BSH", "BSND": "BSND", "BNSD": "BNSD", "BNSD_BSND": "BNSD", _PACKED: _PACKED}
"""Layout of query, keys and values; ``BNSD_BSND`` is BSND in the output."""
_UNPACKED = tuple(layout for layout in _LAYOUTS if layout != _PACKED)
_TYPES = (D.FLOAT16, D.BF16)
_BIAS, _MASK, _TABLE = "pseShiftOptional", "attenMaskOptional", "blockTableOptional"
_LENGTHS = "actualSeqLengthsOptional", "actualSeqLengthsKvOptional"
_PADDINGS = "queryPaddingSizeOptional", "kvPaddingSizeOptional"
_QUANTIZED = (
    *(f"{of}Optional" for of in ("deqScale1", "quantScale1", "deqScale2", "quantScale2", "quantOffset2")),
    *(f"antiquant{of}Optional" for of in ("Scale", "Offset")),
    *(f"{of}Antiquant{what}Optional" for of in ("key", "value") for what in ("Scale", "Offset")),
)
_PREFIXES, _PREFIX_LENGTH = ("keySharedPrefixOptional", "valueSharedPrefixOptional"), "actualSharedPrefixLenOptional"
_ROTARY = "queryRopeOptional", "keyRopeOptional", "keyRopeAntiquantScaleOptional"
_QUERY_SCALE, _SINK = "dequantScaleQueryOptional", "learnableSinkOptional"
_STARTS = "qStartIdxOptional", "kvStartIdxOptional"
_FARTHEST = 1 << 20
"""By how much the first key may lie ahead of the first query, or behind."""
_DEQUANTIZATIONS = "antiquantMode", "keyAntiquantMode", "valueAntiquantMode"
_COMPRESSED = 2048
"""Rows and columns of the masks of modes 2 to 4, whose values are ignored: the mode determines what is masked."""
_PACKED_MODES = (RIGHT, BAND)
"""Modes of a mask with TND."""
_MOST = {"B": 65536, "N": 256, "D": 512, "S": 20971520}
"""Maximum extents of the query."""
_MOST_TENSORS = 256
_MOST_HEADS = 2**32 - 1
_SUNK = (64, 128)
"""Head dimensions that support a sink."""
_MOST_SHARED = 64
"""Maximum number of query heads per key head."""
_LARGEST_BLOCK, _LARGEST_LATEST_BLOCK = 512, 1024
_LARGEST_TOKEN = 65535
"""Maximum elements of all heads of a token in token-wise pages; aclnnPromptFlashAttention allows fewer."""
_MOST_UNALIGNED = 128
"""Maximum samples of aclnnPromptFlashAttention if the head dimension is not a multiple of 16."""
_FUSED, _PROMPT, _INCREMENT = "fused_infer_attention_score", "prompt_flash_attention", "incre_flash_attention"
_LATEST = f"{_FUSED}_v5"
_WITHDRAWN = with_code(ACLNN_ERR_RUNTIME_ERROR, *on(CLASS_950, KERNEL_OF_THE_PRODUCT))
"""Error on Ascend 950 of all functions but aclnnFusedInferAttentionScoreV5, whatever the arguments."""


def _sizes(call: Call) -> dict[str, int]:
    """Return the extents B, S, N and D of query, with TND those of its longest sample, and T."""
    if _is_packed(call):
        sizes = dict(zip(_PACKED, call["query"].shape, strict=True))
        return sizes | {"B": len(call[_LENGTHS[0]] or ()), "S": max(_between(call, 0), default=0)}
    sizes = dict(zip(_LAYOUTS[call["inputLayout"]], call["query"].shape, strict=True))
    if "H" in sizes:
        sizes |= {"N": call["numHeads"], "D": sizes.pop("H") // call["numHeads"]}
    return sizes


def _is_packed(call: Call) -> bool:
    return bool(call["inputLayout"] == _PACKED)


def _between(call: Call, which: int) -> list[int]:
    """Return the differences between the ends of samples."""
    ends = call[_LENGTHS[which]] or ()
    return [int(end) - int(start) for start, end in zip((0, *ends), ends, strict=False)]


def _is_single(call: Call) -> bool:
    """Return True if there is a single query, and the function has special rules for that."""
    return not _is_prompt(call) and not _is_packed(call) and not _is_latest(call) and _sizes(call)["S"] == 1


def _is_prompt(call: Call) -> bool:
    return call.operator.name.startswith(_PROMPT)


def _is_latest(call: Call) -> bool:
    """Return True for aclnnFusedInferAttentionScoreV5, with the rules of Ascend 950."""
    return call.operator.name == _LATEST


def _kv_heads(call: Call) -> int:
    return int(call["numKeyValueHeads"] or call["numHeads"])


def _is_paged(call: Call) -> bool:
    return given(call, _TABLE)


def _page_layout(call: Call) -> str:
    """Return the layout of keys: the query's, or that of pages as if each were a sample."""
    if not _is_paged(call):
        return _LAYOUTS[call["inputLayout"]]
    return "BSH" if len(call["key"][0].shape) == 3 else "BNSD"


def _places(call: Call, at: int) -> int:
    """Return the capacity of a sample in keys."""
    keys = call["key"]
    layout = _page_layout(call)
    size = keys[at if len(keys) > 1 else 0].shape[layout.index("T" if layout == _PACKED else "S")]
    return int(size * call[_TABLE].shape[1] if _is_paged(call) else size)


def _shared(call: Call) -> int:
    """Return the number of keys in the common prefix."""
    if not given(call, _PREFIXES[0]):
        return 0
    lengths = call[_PREFIX_LENGTH]
    return int(lengths[0] if lengths else call[_PREFIXES[0]].shape[_page_layout(call).index("S")])


def _lengths(call: Call, which: int) -> list[int]:
    """Return the number of queries, or of keys, of each sample."""
    sizes, lengths = _sizes(call), call[_LENGTHS[which]]
    if _is_packed(call) and not (which and _is_paged(call)):
        return _between(call, which)
    if not lengths or (which == 0 and _is_single(call)):
        return [_places(call, at) if which else sizes["S"] for at in range(sizes["B"])]
    return [int(lengths[at if len(lengths) > 1 else 0]) for at in range(sizes["B"])]


def _blocks(call: Call) -> list[int]:
    """Return the number of pages of each sample."""
    return [-(-length // call["blockSize"]) for length in _lengths(call, 1)]


def _columns(call: Call) -> int:
    """Return the minimum number of columns of a mask and a bias."""
    if _is_paged(call):
        return int(max(_blocks(call), default=0) * call["blockSize"])
    return max((_places(call, at) for at in range(len(call["key"]))), default=0) + _shared(call)


def _padded(call: Call) -> tuple[str, ...]:
    """Return the names of the tensors with the amounts of left padding."""
    possible = _sizes(call)["S"] > 1, len(call["key"]) == 1
    return tuple(
        name
        for name, lengths, is_possible in zip(_PADDINGS, _LENGTHS, possible, strict=True)
        if is_possible and call[lengths] and given(call, name) and not _is_paged(call)
    )


def _has_slopes(call: Call) -> bool:
    """Tell whether the bias is a slope a head, to be multiplied with distances."""
    return call.arguments.get("pseType") in (SLOPES, ROOTS)


def _ahead(call: Call) -> int:
    """By how much the first key lies ahead of the first query."""
    query, key = (next(iter(call.arguments.get(name) or ()), 0) for name in _STARTS)
    return int(key) - int(query)


def _form(call: Call) -> Form:
    sizes, mode = _sizes(call), call["sparseMode"]
    if _is_single(call) or (mode == ALL and _padded(call)):
        mode = GIVEN
    before, after = (max(-FAR, min(call[name], FAR)) for name in ("preTokens", "nextTokens"))
    return Form(
        "BNSD",
        sizes["N"],
        _kv_heads(call),
        ends=((), ()),
        scale=call["scaleValue"],
        keep=1.0,
        before=before,
        after=after,
        mode=mode,
        bias_type=call.arguments.get("pseType") or 0,
        starts=_ahead(call),
        prefix=(),
        transposed=False,
    )


def _heads_first(x: Any, layout: str, heads: int) -> Any:
    """View a tensor as (samples, heads, sequence, elements); one of TND is a single sample."""
    if layout == _PACKED:
        return x[None].swapaxes(1, 2)
    if layout == "BSH":
        x = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    return x if layout == "BNSD" else x.swapaxes(1, 2)


def _mask_of_rows(mask: Any, is_single: bool) -> Any:
    """View a mask as (samples or 1, 1, queries, keys)."""
    if mask.ndim == 2:
        return mask[:, None, None] if is_single else mask[None, None]
    return mask[:, None] if mask.ndim == 3 else mask


def _of_sample(x: Any, at: int) -> Any:
    """Return a sample of a tensor whose first dimension is the number of samples, or 1."""
    return x if len(x) == 1 else x[at : at + 1]


def _keys(x: list[Any], at: int, pages: Any, length: int) -> Any:
    """Return the keys or values (1, heads, sequence, elements) of a sample, including padding."""
    if pages is None:
        return x[at] if len(x) > 1 else x[0][at : at + 1]
    _, heads, size, elements = x[0].shape
    own = pages[at, : -(-length // size)]
    expect_within("key", own, 0, len(x[0]) - 1, "numbers of its blocks")
    return x[0][own].swapaxes(0, 1).reshape(1, heads, -1, elements)


def _work(call: Call) -> Library | None:
    outputs = ("attentionOut", "softmaxLse") if call["softmaxLseFlag"] else ("attentionOut",)
    if call["attentionOut"].size == 0:
        return None
    count, form, sizes, is_single = len(call["key"]), _form(call), _sizes(call), _is_single(call)
    is_packed = _is_packed(call)
    samples, heads, queries, elements = (sizes[dim] for dim in ("BNTD" if is_packed else "BNSD"))
    lengths = [_lengths(call, which) for which in (0, 1)]
    starts = [(0, *(call[name] or ())) for name in _LENGTHS]
    room = queries, _places(call, 0)
    layouts = _LAYOUTS[call["inputLayout"]], _page_layout(call), call["inputLayout"].rpartition("_")[2]
    shape, is_compressed = call["attentionOut"].shape, form.mode not in (ALL, GIVEN)
    lists = [f"{name}[{at}]" for name in ("key", "value") for at in range(count)]
    has_slopes = _has_slopes(call)
    shared, prefixes = _shared(call), _PREFIXES[: 2 * given(call, _PREFIXES[0])]
    names = [*(name for name in (_BIAS, _MASK, _TABLE, _SINK) if given(call, name)), *_padded(call), *prefixes]

    def span(which: int, at: int, tensors: dict[str, Any]) -> slice:
        """Return the range of a sample's queries or keys in its tensor."""
        length, padding = lengths[which][at], tensors.get(_PADDINGS[which])
        if is_packed and not (which and _TABLE in tensors):
            return slice(starts[which][at], starts[which][at] + length)
        start = 0 if padding is None else room[which] - max(0, int(padding[0])) - length
        return slice(start, start + length)

    def compute(query: Any, *arrays: Any) -> Any:
        query = _heads_first(query, layouts[0], heads)
        keys, values = (
            [_heads_first(x, layouts[1], form.kv_heads) for x in arrays[begin : begin + count]] for begin in (0, count)
        )
        tensors = dict(zip(names, arrays[2 * count :], strict=True))
        pages, bias, mask = (tensors.get(name) for name in (_TABLE, _BIAS, _MASK))
        if mask is not None and not is_compressed:
            mask = _mask_of_rows(mask, is_single)
        attention = np.zeros(shape, query.dtype)
        logarithms = np.full((1 if is_packed else samples, heads, queries, 1), np.inf, query.dtype)
        found = _heads_first(attention, layouts[2], heads)
        for at in range(samples):
            rows, columns = (span(which, at, tensors) for which in (0, 1))
            if rows.start < 0 or columns.start < 0:
                continue
            place = 0 if is_packed else at
            own = {"query": query[place : place + 1, :, rows], "sink": tensors.get(_SINK)}
            for word, prefix, listed in zip(("key", "value"), _PREFIXES, (keys, values), strict=True):
                own[word] = _keys(listed, place if pages is None else at, pages, columns.stop)[:, :, columns]
                if prefix in tensors:
                    first = _heads_first(tensors[prefix], layouts[1], form.kv_heads)[:, :, :shared]
                    own[word] = np.concatenate((first, own[word]), 2)
            columns = slice(columns.start, columns.stop + shared)
            if bias is not None:
                own["bias"] = bias if has_slopes else _of_sample(bias, at)[..., rows, columns]
            if mask is not None:
                own["mask"] = mask if is_compressed else _of_sample(mask, at)[..., rows, columns]
            statistic = 1, heads, rows.stop - rows.start, 1
            largest, total, found[place : place + 1, :, rows] = attend(
                form, (statistic, statistic, (*statistic[:3], elements)), own
            )
            empty = total == 0
            logarithms[place : place + 1, :, rows] = np.where(empty, np.inf, largest + np.log(total))
        if is_packed:
            logarithms = logarithms[0].swapaxes(0, 1)
        return (attention, logarithms) if len(outputs) > 1 else attention

    return Library(compute, ("query", *lists, *names), outputs)


def _type(call: Call, name: str, at: int) -> str | None:
    expected, got = call["query"].dtype, call[name][at].dtype
    return None if got == expected else f"expected data type {expected.c_name} (that of query), got {got.c_name}"


def _absent(call: Call, name: str) -> str | None:
    what = "rotary parts" if name in _ROTARY else "quantized data"
    return f"expected none ({what} are not supported here), got a tensor" if given(call, name) else None


def _heads(call: Call) -> str | None:
    heads, got, is_latest = call["numHeads"], call["numKeyValueHeads"], _is_latest(call)
    most = _MOST_HEADS if is_latest else _MOST["N"]
    if not 0 < heads <= most:
        return f"numHeads: expected from 1 to {most}, got {heads}"
    if got == 0 or (got > 0 and heads % got == 0 and (is_latest or heads // got <= _MOST_SHARED)):
        return None
    limit = "" if is_latest else f", {_MOST_SHARED} times less at most"
    return f"numKeyValueHeads: expected 0 or a divisor of {heads} (numHeads){limit}, got {got}"


def _dimensions(call: Call) -> str | None:
    layout = _LAYOUTS[call["inputLayout"]]
    tensors = {f"{name}[{at}]": x for name in ("key", "value") for at, x in enumerate(call[name])}
    for name, tensor in {"query": call["query"], **tensors}.items():
        allowed: tuple[int, ...] = (len(layout),)
        if name != "query" and _is_paged(call):
            allowed = (3, 4 if layout == "BNSD" or _is_latest(call) else 3)
        if len(tensor.shape) not in allowed:
            expected = listing(dict.fromkeys(map(str, allowed)))
            return f"{name}: expected {expected} dimensions ({call['inputLayout']}), got {extents(tensor.shape)}"
    return None


def _query(call: Call) -> str | None:
    sizes, got = _sizes(call), call["query"].shape
    if sizes["N"] != call["numHeads"] or ("H" in _LAYOUTS[call["inputLayout"]] and got[2] % call["numHeads"]):
        return f"query: expected {call['numHeads']} whole heads (numHeads), got {extents(got)}"
    limited = "BD" if _is_latest(call) else "BNDS"
    large = next((dim for dim in limited if sizes[dim] > _MOST[dim]), None)
    if large is not None:
        return f"query: expected {large} of at most {_MOST[large]}, got {extents(got)}"
    most = _MOST_UNALIGNED if _is_prompt(call) else 0
    is_free = _is_single(call) or (_is_latest(call) and call["inputLayout"] != "BNSD_BSND")
    if not is_free and sizes["D"] % 16 and sizes["B"] > most:
        return f"query: expected heads of a multiple of 16 elements, got {sizes['D']}"
    return None


def _one_query(call: Call) -> str | None:
    got = _sizes(call)["S"]
    return None if got == 1 else f"query: expected one query of each sample, got {got}"


def _token(call: Call) -> str | None:
    sizes = _sizes(call)
    got = sizes["N"] * sizes["D"]
    if call["inputLayout"] not in ("BSH", "BSND") or got < _LARGEST_TOKEN:
        return None
    return f"query: expected fewer than {_LARGEST_TOKEN} elements of all heads, got {got}"


def _several(call: Call) -> str | None:
    if call["inputLayout"] != "BNSD_BSND" or not _is_single(call):
        return None
    return "inputLayout: expected BSH, BSND or BNSD for one query, got BNSD_BSND"


def _pairs(call: Call) -> str | None:
    keys, values = len(call["key"]), len(call["value"])
    if not keys:
        return "key: expected at least 1 tensor, got none"
    return None if values == keys else f"value: expected {keys} tensors (as many as key), got {values}"


def _counts(call: Call) -> str | None:
    samples, count = _sizes(call)["B"], len(call["key"])
    if count == 1 or (not _is_packed(call) and count == samples and count <= _MOST_TENSORS and not _is_paged(call)):
        return None
    return f"key: expected 1 tensor, or one for each of {samples} samples, {_MOST_TENSORS} at most, got {count}"


def _key_shape(call: Call, name: str, at: int) -> str | None:
    sizes, heads, got = _sizes(call), _kv_heads(call), call[name][at].shape
    known = {"N": heads, "D": sizes["D"], "H": heads * sizes["D"]}
    if not _is_paged(call):
        known["B"] = sizes["B"] if len(call[name]) == 1 else 1
    expected = tuple(known.get(dim, extent) for dim, extent in zip(_page_layout(call), got, strict=True))
    return None if got == expected else f"expected shape {extents(expected)} (with query's), got {extents(got)}"


def _prefixes(call: Call) -> str | None:
    key, value = _PREFIXES
    if given(call, key) != given(call, value):
        missing, other = (value, key) if given(call, key) else (key, value)
        return f"{missing}: expected a tensor (with {other}), got none"
    if not given(call, key):
        return None
    if _is_paged(call) or len(call["key"]) > 1 or any(given(call, name) for name in _PADDINGS):
        return f"{key}: expected none with pages, padding or several tensors of keys, got a tensor"
    layout, got = _page_layout(call), call[key].shape
    free = dict(zip(layout, got, strict=False))
    sizes = dict(zip(layout, call["key"][0].shape, strict=True)) | {"B": 1, "S": free.get("S", 0)}
    if got != tuple(sizes.values()):
        return f"{key}: expected shape {extents(tuple(sizes.values()))} (with key's), got {extents(got)}"
    if call[value].shape != got:
        return f"{value}: expected shape {extents(got)} (that of {key}), got {extents(call[value].shape)}"
    lengths = call[_PREFIX_LENGTH]
    if not lengths or (len(lengths) == 1 and 0 <= lengths[0] <= sizes["S"]):
        return None
    return f"{_PREFIX_LENGTH}: expected one length from 0 to {sizes['S']}, got {extents(lengths)}"


def _block_sizes(call: Call) -> tuple[int, int]:
    """Return the divisor and the maximum of the block size."""
    if not _is_latest(call):
        return 1 if _is_single(call) else 128, _LARGEST_BLOCK
    if _sizes(call)["D"] in _SUNK:
        return 16, _LARGEST_LATEST_BLOCK
    return (128, _LARGEST_LATEST_BLOCK) if _sizes(call)["S"] > 1 else (16, _LARGEST_BLOCK)


def _pages(call: Call) -> str | None:
    if not _is_paged(call):
        return None
    table, sizes, got = call[_TABLE].shape, _sizes(call), call["blockSize"]
    if len(table) != 2 or table[0] != sizes["B"]:
        return f"{_TABLE}: expected a row for each of {sizes['B']} samples, got shape {extents(table)}"
    step, most = _block_sizes(call)
    if not 0 < got <= most or got % step:
        return f"blockSize: expected a multiple of {step} from {step} to {most}, got {got}"
    size = call["key"][0].shape[_page_layout(call).index("S")]
    if got != size:
        return f"blockSize: expected {size} (the tokens in a block of key), got {got}"
    if not call[_LENGTHS[1]]:
        return f"{_LENGTHS[1]}: expected the lengths of sequences (with {_TABLE}), got none"
    return None


def _length(call: Call, name: str) -> str | None:
    sizes, which = _sizes(call), _LENGTHS.index(name)
    if _is_packed(call) and not (which and _is_paged(call)):
        ends, tokens = call[name], _places(call, 0) if which else sizes["T"]
        if len(ends) == sizes["B"] > 0 and ends[-1] == tokens and min(_between(call, which)) >= 0:
            return None
        many = f"{sizes['B']} " if which else ""
        return f"expected {many}ends of samples that increase to {tokens} (inputLayout TND), got {extents(tuple(ends))}"
    if not call[name] or (which == 0 and _is_single(call)):
        return None
    samples, count = sizes["B"], len(call[name])
    if count != 1 and count < samples:
        return f"expected 1 length or {samples} (the samples), got {count}"
    for at, got in enumerate(_lengths(call, which)):
        most = _places(call, at) if which else sizes["S"]
        if not 0 <= got <= most:
            return f"expected lengths from 0 to {most}, got {got}"
    return None


def _room(call: Call) -> str | None:
    most, count = _MOST["S"], _columns(call)
    if count > most:
        return f"key: expected at most {most} keys of a sample, got {count}"
    if not _is_paged(call):
        return None
    wanted, got = sum(_blocks(call)), call["key"][0].shape
    if got[0] < wanted:
        return f"key: expected at least {wanted} blocks ({_LENGTHS[1]}), got {extents(got)}"
    if len(got) == 3 and got[2] > _LARGEST_TOKEN:
        return f"key: expected at most {_LARGEST_TOKEN} elements in a token of a block, got {got[2]}"
    return None


def _first_given(call: Call, *names: str) -> str | None:
    """Return the name of the first optional tensor that the call has; None if it has none."""
    return next((name for name in names if given(call, name)), None)


def _packed(call: Call) -> str | None:
    if not _is_packed(call):
        return None
    missing = next((name for name in _LENGTHS if not call[name]), None)
    if missing is not None:
        return f"{missing}: expected the ends of samples with inputLayout TND, got none"
    excluded = _first_given(call, _BIAS, *_PADDINGS, *_PREFIXES)
    if excluded is not None:
        return f"{excluded}: expected none with inputLayout TND, got a tensor"
    mode, masked = call["sparseMode"], given(call, _MASK)
    if mode in _PACKED_MODES or (mode == ALL and not masked):
        return None
    modes = " or ".join(map(str, _PACKED_MODES))
    return f"sparseMode: expected {modes}, or {ALL} without {_MASK}, with inputLayout TND, got {mode}"


def _padding(call: Call, name: str) -> str | None:
    if call[name].size and call[name].shape != (1,):
        return f"expected shape [1], got {extents(call[name].shape)}"
    return f"expected none with {_TABLE}, got a tensor" if _is_paged(call) and not _is_single(call) else None


def _dequantization(call: Call) -> str | None:
    one, both = _is_single(call), _DEQUANTIZATIONS[1:]
    limits = {_DEQUANTIZATIONS[0]: 1} if one else {}
    for name, most in (limits | dict.fromkeys(both, 5 if one else 1)).items():
        if not 0 <= call[name] <= most:
            return f"{name}: expected from 0 to {most}, got {call[name]}"
    key, value = (call[name] for name in both)
    return None if value == key or (key, value) == (0, 1) else f"{both[1]}: expected {key} (as {both[0]}), got {value}"


def _known_mode(call: Call) -> str | None:
    got = call["sparseMode"]
    known = _is_single(call) or ALL <= got <= BAND
    return None if known else f"sparseMode: expected from {ALL} to {BAND}, got {got}"


def _tokens(call: Call) -> str | None:
    least, got = -call["preTokens"], call["nextTokens"]
    return None if got >= least else f"nextTokens: expected at least {least} (preTokens), got {got}"


def _mask_shape(call: Call) -> str | None:
    sizes, mode = _sizes(call), call["sparseMode"]
    samples, rows, columns, is_single = sizes["B"], sizes["S"], _columns(call), _is_single(call)
    if not given(call, _MASK):
        return None if is_single or mode == ALL else f"{_MASK}: expected a mask (sparseMode {mode}), got none"
    got = call[_MASK].shape
    if not is_single and mode not in (ALL, GIVEN):
        expected = [(*(1,) * ones, _COMPRESSED, _COMPRESSED) for ones in range(3)]
        fits = got in expected
    else:
        leads: list[Shape] = [(samples,), (samples, 1)]
        if not is_single:
            leads = [*([] if _is_latest(call) else [()]), (1,), (samples,), (1, 1), (samples, 1)]
        expected = [(*lead, rows, columns) for lead in leads]
        if is_single:
            expected.insert(0, (samples, columns))
        fits = any(_covers(got, shape) for shape in expected)
    if fits:
        return None
    return f"{_MASK}: expected shape {listing(dict.fromkeys(map(extents, expected)))}, got {extents(got)}"


def _covers(got: Shape, shape: Shape) -> bool:
    """Return True if the last two extents of a shape are at least those of another."""
    return (
        len(got) == len(shape)
        and got[:-2] == shape[:-2]
        and all(mine >= least for mine, least in zip(got[-2:], shape[-2:], strict=True))
    )


def _bias_shape(call: Call) -> str | None:
    if not given(call, _BIAS):
        return None
    sizes, got = _sizes(call), call[_BIAS].shape
    if _has_slopes(call):
        slopes = (sizes["N"],)
        return None if got == slopes else f"{_BIAS}: expected shape {extents(slopes)} (slopes), got {extents(got)}"
    expected = [(b, sizes["N"], sizes["S"], _columns(call)) for b in (sizes["B"], 1)]
    if any(_covers(got, shape) for shape in expected):
        return None
    return f"{_BIAS}: expected shape {listing(dict.fromkeys(map(extents, expected)))} at least, got {extents(got)}"


def _slopes(call: Call) -> str | None:
    if not _has_slopes(call):
        return None
    kind, queries, keys = call["pseType"], _lengths(call, 0), _lengths(call, 1)
    if not given(call, _BIAS):
        return f"{_BIAS}: expected slopes (pseType {kind}), got none"
    if list(queries) != list(keys):
        return f"{_BIAS}: expected as many keys as queries (pseType {kind}), got {keys} and {queries}"
    excluding = _first_given(call, *_PADDINGS, *_PREFIXES)
    return None if excluding is None else f"{_BIAS}: expected no slopes with {excluding}, got pseType {kind}"


def _slope_type(call: Call, name: str) -> str | None:
    got = call[name].dtype
    if got == D.FLOAT or not _has_slopes(call):
        return None
    return f"expected data type ACL_FLOAT with pseType {call['pseType']}, got {got.c_name}"


def _starts(call: Call) -> str | None:
    if not _has_slopes(call) or abs(_ahead(call)) <= _FARTHEST:
        return None
    return f"{_STARTS[1]}: expected at most {_FARTHEST} from {_STARTS[0]}, got {_ahead(call)}"


def _sink(call: Call) -> str | None:
    if not given(call, _SINK):
        return None
    expected, got = (call["numHeads"],), call[_SINK].shape
    if got != expected:
        return f"{_SINK}: expected shape {extents(expected)} (a number a head), got {extents(got)}"
    if _sizes(call)["D"] not in _SUNK:
        return f"{_SINK}: expected none with heads of {_sizes(call)['D']} elements, got a tensor"
    if _is_latest(call) and call["innerPrecise"]:
        return f"{_SINK}: expected none with an innerPrecise of {call['innerPrecise']}, got a tensor"
    excluding = _first_given(call, _BIAS, *_PADDINGS, *_PREFIXES)
    return None if excluding is None else f"{_SINK}: expected none with {excluding}, got a tensor"


def _attention_shape(call: Call) -> Shape:
    shape: Shape = call["query"].shape
    return (shape[0], shape[2], shape[1], shape[3]) if call["inputLayout"] == "BNSD_BSND" else shape


def _statistic_shape(call: Call) -> Shape:
    sizes = _sizes(call)
    return (sizes["T"], sizes["N"], 1) if _is_packed(call) else (sizes["B"], sizes["N"], sizes["S"], 1)


def _statistic(call: Call) -> str | None:
    missing = call["softmaxLseFlag"] and call["softmaxLse"] is None
    return "softmaxLse: expected an object (softmaxLseFlag), got null" if missing else None


def _lengths_of(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INT_ARRAY, meaning, optional=True)


def _result(name: str, meaning: str, optional: bool = False) -> Parameter:
    return Parameter(name, name, Kind.OUTPUT, meaning, optional, "const aclTensor *")


_UNUSED = "must be null"
_PARAMETERS = (
    Parameter("query", "query", Kind.INPUT, "the queries, of 16 bits"),
    Parameter("key", "key", Kind.INPUT_LIST, "the keys; lists have one tensor, or one per sample"),
    Parameter("value", "value", Kind.INPUT_LIST, "the values, in the shapes of key"),
    optional_in(_BIAS, "the bias, added to scaled scores"),
    optional_in(_MASK, "the attention mask, nonzero to mask a score; BOOL, INT8 or UINT8"),
    _lengths_of(_LENGTHS[0], "the number of queries of each sample, or their ends with TND"),
    _lengths_of(_LENGTHS[1], "the number of keys of each sample, or their ends with TND and without pages"),
    *(optional_in(name, _UNUSED) for name in _QUANTIZED[:7]),
    optional_in(_TABLE, "the block table: the block indices of each sample's keys, INT32"),
    optional_in(_PADDINGS[0], "the number of positions after the last query (left padding), INT64"),
    optional_in(_PADDINGS[1], "the number of positions after the last key (left padding), INT64"),
    *(optional_in(name, _UNUSED) for name in _QUANTIZED[7:]),
    optional_in(_PREFIXES[0], "the prefix of keys that all samples share"),
    optional_in(_PREFIXES[1], "the values of the shared prefix"),
    _lengths_of(_PREFIX_LENGTH, "the length of the shared prefix"),
    *(optional_in(name, _UNUSED) for name in (*_ROTARY, _QUERY_SCALE)),
    optional_in(_SINK, "one score per head in addition to those of its keys, with value 0"),
    _lengths_of(_STARTS[0], "the place of the first query, where there are slopes"),
    _lengths_of(_STARTS[1], "the place of the first key"),
    attribute("numHeads", Kind.INT64, "heads of query"),
    attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
    attribute("preTokens", Kind.INT64, "the number of keys before a query that it attends to"),
    attribute("nextTokens", Kind.INT64, "the number of keys after a query that it attends to"),
    attribute("inputLayout", Kind.STRING, "the layout, such as BNSD"),
    attribute("numKeyValueHeads", Kind.INT64, "the number of key heads; 0: as many as query heads"),
    attribute("sparseMode", Kind.INT64, "the mask mode, 0 to 4"),
    attribute("innerPrecise", Kind.INT64, "ignored"),
    attribute("blockSize", Kind.INT64, "the number of keys in a block"),
    attribute(_DEQUANTIZATIONS[0], Kind.INT64, "ignored"),
    attribute("softmaxLseFlag", Kind.BOOL, "whether to write softmaxLse"),
    *(attribute(name, Kind.INT64, "ignored") for name in (*_DEQUANTIZATIONS[1:], "queryQuantMode")),
    attribute("pseType", Kind.INT64, "0: pseShiftOptional is added; 2, 3: distances times slopes, or their roots"),
    _result("attentionOut", "the attention"),
    _result("softmaxLse", "the log-sum-exp of each row, infinite without keys; FLOAT", optional=True),
)

_WANTED = "where softmaxLseFlag is set", lambda call: bool(call["softmaxLseFlag"])


def _checks(
    layouts: Collection[str] = _UNPACKED,
    precisions: int = 4,
    further: Sequence[Check] = (),
    absent: Sequence[str] = (*_QUANTIZED, *_ROTARY, _QUERY_SCALE),
    latest: Sequence[Check] = (),
    further_types: Sequence[Check] = (),
    unpaired: int = ACLNN_ERR_PARAM_INVALID,
) -> Iterator[Check]:
    """Yield the checks; ``unpaired`` is the status for key and value lists of different lengths."""
    yield present("query", "key", "value", "inputLayout", "attentionOut")
    yield rule("as many tensors: key, value", _pairs, unpaired)
    yield each_of("no null among them", ("key", "value"), not_null, ACLNN_ERR_PARAM_NULLPTR)
    yield rule("requested: softmaxLse", _statistic, ACLNN_ERR_PARAM_NULLPTR)
    yield public_format("query", _BIAS, _MASK, "attentionOut")
    yield each_of("no private format each", ("key", "value"), public, ACLNN_ERR_PARAM_INVALID)
    yield dtype_in(_TYPES, "query")
    yield each_of("data type of query each", ("key", "value"), _type, ACLNN_ERR_PARAM_INVALID)
    yield only_if(same_dtype(_BIAS, "query"), "unless it is slopes", lambda call: not _has_slopes(call))
    yield from (same_dtype(name, "query") for name in (*_PREFIXES, _SINK, "attentionOut"))
    yield from further_types
    yield dtype_in({D.BOOL, D.INT8, D.UINT8}, _MASK)
    yield dtype_in({D.INT32}, _TABLE)
    yield dtype_in({D.INT64}, *_PADDINGS)
    yield only_if(dtype_in({D.FLOAT}, "softmaxLse"), *_WANTED)
    yield each("not computed", absent, _absent, ACLNN_ERR_INNER_NULLPTR)
    tiling = (
        one_of("inputLayout", *layouts),
        rule("heads: numHeads, numKeyValueHeads", _heads),
        rule("dimensions of the layout: query, key, value", _dimensions),
        *further,
        rule("heads and extents: query", _query),
        rule("several queries: inputLayout", _several),
        rule("tensors of samples: key", _counts),
        each_of("shape of keys", ("key",), _key_shape),
        each_of("shape of values", ("value",), of_same_shape("key")),
        shape_is("that of the attention", _attention_shape, "attentionOut"),
        only_if(shape_is("[B, N, S, 1]", _statistic_shape, "softmaxLse"), *_WANTED),
        rule(f"pages: {_TABLE}, blockSize, {_LENGTHS[1]}", _pages),
        each("lengths", _LENGTHS, _length),
        rule(f"shared prefixes: {', '.join(_PREFIXES)}, {_PREFIX_LENGTH}", _prefixes),
        rule("number of keys: key", _room),
        each("padding", _PADDINGS, _padding),
        rule(f"modes of dequantization: {', '.join(_DEQUANTIZATIONS)}", _dequantization),
        rule("known mode: sparseMode", _known_mode),
        one_of("innerPrecise", *range(precisions)),
        rule(f"shape of the mask: {_MASK}", _mask_shape),
        rule(f"shape of the bias: {_BIAS}", _bias_shape),
        rule(f"a number a head: {_SINK}", _sink),
        *latest,
    )
    yield from unless_empty(("attentionOut",), *with_code(ACLNN_ERR_INNER_TILING_ERROR, *tiling))


_ABSENT = {
    **dict.fromkeys(p.name for p in _PARAMETERS),
    "preTokens": FAR,
    "nextTokens": FAR,
    "sparseMode": ALL,
    "softmaxLseFlag": False,
    **dict.fromkeys(_DEQUANTIZATIONS, 0),
}
"""Values of parameters that a function lacks."""


def _operator(
    name: str,
    own: dict[str, str],
    checks: Iterable[Check],
    without: Collection[str] = (),
    lists: bool = True,
    products: Collection[Product] = A2_CLASS,
    ignored: Collection[str] = (),
) -> Operator:
    """Declare a function by the parameters it has, with V5's names and its own, omitting some checks by title.

    Without lists, its keys and its values are one tensor each. The tensors ``ignored``, by V5's names, count as null.
    """
    others = {of: name for of, name in own.items() if of != name}
    spelt = others if lists else others | {"key[0]": "key", "value[0]": "value"}

    def spell(text: str) -> str:
        return re.sub(r"\w+(\[0\])?", lambda word: spelt.get(word[0], word[0]), text)

    def as_v5(call: Call) -> Call:
        if not spelt:  # V2 to V5, called for every token, lack only parameters that their checks do not read
            return call
        arguments = {**_ABSENT, **call.arguments, **{of: call[name] for of, name in others.items()}}
        arguments |= dict.fromkeys(ignored)
        if not lists:
            arguments |= {of: None if call[of] is None else (call[of],) for of in ("key", "value")}
        return Call(call.operator, arguments, call.product)

    def parameter(of: str, name: str) -> Parameter:
        declared = next(p for p in _PARAMETERS if p.name == of)
        kind = declared.kind if lists or declared.kind is not Kind.INPUT_LIST else Kind.INPUT
        meaning = "ignored" if of in ignored else declared.meaning
        return replace(declared, name=name, python_name=name, kind=kind, meaning=meaning)

    def spelt_checks() -> Iterator[Check]:
        for check in checks:
            title, _, listed = check.name.partition(": ")
            names, *when = listed.split(" (")
            mine = ", ".join(own[name] for name in names.split(", ") if name in own and name not in ignored)
            if mine and title not in without:
                yield replace(check, name=f"{title}: {' ('.join((mine, *when))}", violation=violation(check))

    def violation(check: Check) -> Callable[[Call], str | None]:
        return lambda call: None if (text := check.violation(as_v5(call))) is None else spell(text)

    def work(call: Call) -> Library | None:
        found = _work(as_v5(call))
        return found and replace(found, inputs=tuple(map(spell, found.inputs)))

    return Operator(
        name=name,
        summary="Scaled dot-product attention for inference.",
        formula="attentionOut = softmax(scaleValue * query @ key.T + pseShift, masked) @ value",
        parameters=tuple(parameter(*each) for each in own.items()),
        support=support(_TYPES, products),
        checks=(*(() if name == _LATEST else _WITHDRAWN), *spelt_checks()),
        work=work,
        stream_type="const aclrtStream ",
    )


def _short(*names: str) -> dict[str, str]:
    return {name: name.removesuffix("Optional") for name in names}


_V5 = {p.name: p.name for p in _PARAMETERS}
_V4 = {name: name for name in _V5 if name not in (*_STARTS, "pseType")}
_V3 = {name: name for name in _V4 if name not in (_QUERY_SCALE, _SINK, "queryQuantMode")}
_V2 = {name: name for name in _V3 if name not in _ROTARY}
_V1 = _short(
    *(name for name in _V2 if name not in (*_QUANTIZED[7:], *_PREFIXES, _PREFIX_LENGTH, *_DEQUANTIZATIONS[1:]))
)
_TENSORS = "query", "key", "value", _BIAS, _MASK
_SCALED = "numHeads", "scaleValue"
_LAID_OUT = "inputLayout", "numKeyValueHeads"
_OF_A2 = (Product.ATLAS_A2,)
_IN_A_ROW = (rule(f"samples in a row: {', '.join((*_LENGTHS, _BIAS, *_PADDINGS, *_PREFIXES))}, sparseMode", _packed),)


def _prompt(
    name: str, *own: str, products: Collection[Product] = _OF_A2, ignored: Collection[str] = (_BIAS,)
) -> Operator:
    return _operator(
        name,
        _short(*own),
        _checks(further=(rule("elements of a token: query", _token),)),
        without=("as many tensors", "no null among them", "tensors of samples", "several queries", "pages"),
        lists=False,
        products=products,
        ignored=ignored,
    )


def _increment(name: str, *own: str, products: Collection[Product] = _OF_A2, ignored: Collection[str] = ()) -> Operator:
    others = {_LENGTHS[1]: "actualSeqLengths", _TABLE: "blocktable"}
    others |= {f"deqScale{at}Optional": f"dequantScale{at}" for at in (1, 2)}
    return _operator(
        name,
        _short(*own) | {of: other for of, other in others.items() if of in own},
        _checks(
            ("BSH", "BSND", "BNSD"), 2, (rule("one query: query", _one_query),), unpaired=ACLNN_ERR_INNER_TILING_ERROR
        ),
        without=("several queries", *(() if _TABLE in own else ("pages",))),
        products=products,
        ignored=ignored,
    )


OPERATORS = (
    _operator(_FUSED, _V1, _checks(absent=_QUANTIZED), products=_OF_A2),
    _operator(f"{_FUSED}_v2", _V2, _checks(absent=_QUANTIZED)),
    _operator(f"{_FUSED}_v3", _V3, _checks(_LAYOUTS, 4, _IN_A_ROW, (*_QUANTIZED, *_ROTARY))),
    _operator(f"{_FUSED}_v4", _V4, _checks(_LAYOUTS, 4, _IN_A_ROW)),
    _operator(
        _LATEST,
        _V5,
        _checks(
            latest=(
                one_of("pseType", 0, SLOPES, ROOTS),
                rule(f"slopes: {_BIAS}", _slopes),
                rule(f"distance: {_STARTS[1]}", _starts),
                rule("with preTokens: nextTokens", _tokens),
            ),
            further_types=(each("data type of slopes", (_BIAS,), _slope_type),),
            unpaired=ACLNN_ERR_INNER_TILING_ERROR,
        ),
        without=("several queries", "modes of dequantization"),
        products=CLASS_950,
    ),
    _prompt(_PROMPT, *_TENSORS, _LENGTHS[0], *_SCALED, "preTokens", "nextTokens", *_LAID_OUT, "attentionOut"),
    _prompt(
        f"{_PROMPT}_v2",
        *(*_TENSORS, *_LENGTHS, *_QUANTIZED[:5], *_SCALED, "preTokens", "nextTokens"),
        *(*_LAID_OUT, "sparseMode", "attentionOut"),
    ),
    _prompt(
        f"{_PROMPT}_v3",
        *(*_TENSORS, *_LENGTHS, *_QUANTIZED[:5], *_SCALED, "preTokens", "nextTokens"),
        *(*_LAID_OUT, "sparseMode", "innerPrecise", "attentionOut"),
        products=A2_CLASS,
        ignored=(),
    ),
    _increment(_INCREMENT, *_TENSORS, _LENGTHS[1], *_SCALED, *_LAID_OUT, "attentionOut", ignored=(_BIAS,)),
    _increment(
        f"{_INCREMENT}_v2",
        *(*_TENSORS, _LENGTHS[1], *_QUANTIZED[:5], *_SCALED, *_LAID_OUT, "attentionOut"),
        ignored=(_BIAS,),
    ),
    _increment(
        f"{_INCREMENT}_v3",
        *(*_TENSORS, _LENGTHS[1], *_QUANTIZED[:7], _TABLE, *_SCALED, *_LAID_OUT),
        *("blockSize", "innerPrecise", "attentionOut"),
    ),
    _increment(
        f"{_INCREMENT}_v4",
        *(*_TENSORS, _LENGTHS[1], *_QUANTIZED[:7], _TABLE, _PADDINGS[1], *_SCALED, *_LAID_OUT),
        *("blockSize", "innerPrecise", "attentionOut"),
        products=A2_CLASS,
    ),
)
