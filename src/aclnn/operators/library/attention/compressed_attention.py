"""Attention to compressed keys, and the choice of blocks by it: aclnnNsaCompressAttention, and one for inference.

A block of keys counts as much as the windows from which its compressed keys come, summed over the heads that share it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    has_zero,
    one_of,
    rule,
    same_dtype,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, Shape, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.attention.sequences import PACKED, PAGES, SAMPLES, token_rows
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_UNIT, _LARGEST_BLOCK, _LONGEST_STRIDE, _MOST_BLOCKS, _MOST_KEYS, _MOST_SHARED = 16, 128, 64, 32, 14000, 128
_COPIES = 8
"""Number of copies of a row's statistic."""
_MASKED_BY, _CHOSEN = -40000.0, 23333.0
"""The number added to masked scores, and the importance of blocks selected by a mask, as in torch_npu's test."""
_MASK, _CHOICE = "attenMaskOptional", "topkMaskOptional"
_ENDS = ("actualSeqQLenOptional", "actualCmpSeqKvLenOptional", "actualSelSeqKvLenOptional")
_BLOCK, _SIZE, _COUNT = "compressBlockSize", "selectBlockSize", "selectBlockCount"


def _importance(shares: Array, blocks: int, windows: int, overlap: int) -> Array:
    """Sum the shares of the windows that reach into each block.

    Args:
        shares: each query's shares of its compressed keys along the last dimension.
        blocks: number of blocks.
        windows: number of windows that begin in a block.
        overlap: number of strides in a window.
    """
    found = np.zeros((*shares.shape[:-1], blocks))
    for back in range(windows):
        for shift in range(overlap):
            places = windows * np.arange(1, blocks + 1) - back - shift
            inside = (places >= 0) & (places < shares.shape[-1])
            found[..., inside] += shares[..., places[inside]]
    return found


def _largest(importance: Array, count: int) -> Array:
    """Return the indices of the most important blocks, of equal ones the first first."""
    return np.argsort(-importance, -1, kind="stable")[..., :count]


def _shares(query: Array, key: Array, scale: float, mask: Array | None) -> tuple[Array, Array, Array]:
    """Return shares of keys, and each row's largest score and sum of powers.

    Args:
        query: (heads of keys, queries per head, D); a dimension of tokens may stand in between.
        key: (heads of keys, keys, D).
        scale: factor of the scores.
        mask: trues for the keys that a token does not see; None for none.
    """
    scores = np.einsum("h...d,hkd->h...k", query.astype(np.float64), key.astype(np.float64)) * scale
    if mask is not None:
        scores = scores + np.where(mask != 0, _MASKED_BY, 0.0)[None, :, None]
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - largest)
    total = powers.sum(-1, keepdims=True)
    return powers / total, largest, total


def _strides(call: Call, stride: str) -> tuple[int, int]:
    """Return the number of strides in a block, and in a window."""
    return call[_SIZE] // call[stride], call[_BLOCK] // call[stride]


def _work(call: Call) -> Library | None:
    if all(call[name].size == 0 for name in _OUTPUTS):
        return None
    of_block, of_window = _strides(call, "compressStride")
    optional, scale, count = given(call, _MASK, _CHOICE), call["scaleValue"], call[_COUNT]
    samples = list(zip(*(pairwise((0, *call[name])) for name in _ENDS), strict=True))
    outs = [call[name].shape for name in _OUTPUTS]

    def compute(query: Array, key: Array, value: Array, *masks: Array) -> tuple[Array, ...]:
        known = dict(zip(optional, masks, strict=True))
        largest, total, attention, numbers = (np.zeros(shape) for shape in outs)
        heads, (tokens, all_heads, width) = key.shape[1], query.shape
        grouped = query.reshape(tokens, heads, all_heads // heads, width)
        for (begin, end), (first, last), (start, stop) in samples:
            rows, keys, blocks = slice(begin, end), slice(first, last), stop - start
            mask, choice = known.get(_MASK), known.get(_CHOICE)
            mask = None if mask is None else mask[: end - begin, : last - first]
            own = grouped[rows].swapaxes(0, 1)
            shares, top, powers = _shares(own, key[keys].swapaxes(0, 1), scale, mask)
            found = np.einsum("htgk,khd->thgd", shares, value[keys].astype(np.float64))
            attention[rows] = found.reshape(attention[rows].shape)
            for out, statistic in ((largest, top), (total, powers)):
                out[rows] = statistic.swapaxes(0, 1).reshape(end - begin, all_heads, 1)
            score = _importance(shares, blocks, of_block, of_window).sum(2)
            if choice is not None:
                score = np.where(choice[: end - begin, :blocks] != 0, _CHOSEN, score)
            numbers[rows] = _largest(score, count).swapaxes(0, 1)
        return largest, total, attention, numbers

    return Library(compute, ("query", "key", "value", *optional), _OUTPUTS)


def _elements(call: Call) -> str | None:
    query, key, value = (call[name].shape[2] for name in ("query", "key", "value"))
    if query == key >= value > 0:
        return None
    expected = "as many elements as key has, and no fewer than value has"
    return f"query: expected heads of {expected}, got {query}, {key} and {value}"


def _shared(heads: int, shared: int, name: str) -> str | None:
    if shared > 0 and heads > 0 and heads % shared == 0 and _MOST_SHARED % (heads // shared) == 0:
        return None
    return f"{name}: expected a power of 2 up to {_MOST_SHARED} times the heads of key, got {heads} and {shared}"


def _heads(call: Call) -> str | None:
    heads, got = call["query"].shape[1], call["headNum"]
    if got != heads:
        return f"headNum: expected {heads} (the heads of query), got {got}"
    return _shared(heads, call["key"].shape[1], "headNum")


def _sizes(stride: str) -> Check:
    def violation(call: Call) -> str | None:
        block, step, size = call[_BLOCK], call[stride], call[_SIZE]
        whole = all(number > 0 and number % _UNIT == 0 for number in (block, step, size))
        if whole and step <= min(_LONGEST_STRIDE, block) and block <= size <= _LARGEST_BLOCK and size % step == 0:
            return None
        limits = f"{stride} up to {_LONGEST_STRIDE}, {_BLOCK}, {_SIZE} (a multiple of the first) up to {_LARGEST_BLOCK}"
        return f"{_BLOCK}: expected rising multiples of {_UNIT}: {limits}, got {step}, {block}, {size}"

    return rule(f"windows and blocks with a kernel: {_BLOCK}", violation)


def _ends(which: int) -> Check:
    name, tensor = _ENDS[which], ("query", "key", None)[which]

    def violation(call: Call) -> str | None:
        ends, count = call[name] or (), len(call[_ENDS[0]] or ())
        limit = call[tensor].shape[0] if tensor else ends[-1] if ends else 0
        steps = [after - one for one, after in pairwise((0, *ends))]
        least = 1 if which == 1 else 0
        if ends and len(ends) == count and min(steps) >= least and ends[-1] <= limit:
            return None
        rows = f" up to {limit} (rows of {tensor})" if tensor else ""
        return f"{name}: expected {count or 'some'} rising numbers{rows}, got {ends and extents(ends)}"

    return rule(f"ends of sequences: {name}", violation)


def _few_keys(call: Call) -> str | None:
    most = max(after - one for one, after in pairwise((0, *call[_ENDS[1]])))
    return None if most <= _MOST_KEYS else f"{_ENDS[1]}: expected at most {_MOST_KEYS} keys of a sequence, got {most}"


def _count(call: Call) -> str | None:
    least = min(after - one for one, after in pairwise((0, *call[_ENDS[2]])))
    most, got = min(_MOST_BLOCKS, least), call[_COUNT]
    return None if 1 <= got <= most else f"{_COUNT}: expected from 1 to {most} (blocks of a sequence), got {got}"


def _mask_shape(name: str, columns: str) -> Check:
    def violation(call: Call, mask: str) -> str | None:
        rows, of = (max(after - one for one, after in pairwise((0, *call[ends]))) for ends in (_ENDS[0], columns))
        got = call[mask].shape
        return None if got == (rows, of) else f"expected shape [{rows}, {of}] (of the longest), got {extents(got)}"

    return each(f"columns of {columns}", (name,), violation)


_OUTPUTS = ("softmaxMaxOut", "softmaxSumOut", "attentionOutOut", "topkIndicesOut")
_FORMULA = "softmax(scaleValue * query @ key^T, masked) @ value"
_CHOICES = "blocks by sums of those shares"
_QUERIES, _TABLE, _LENGTHS, _LAYOUT = (
    "actualQSeqLenOptional",
    "blockTableOptional",
    "actualCmpKvSeqLenOptional",
    "layoutOptional",
)
_NUM_HEADS, _SHARED_HEADS, _PAGE = "numHeads", "numKeyValueHeads", "pageBlockSize"
_MOST_SAMPLES, _WIDEST, _MOST_PAGED, _MOST_OF_SAMPLE = 10000, {"key": 192, "value": 128}, 8192, 4096


def _blocks_of(call: Call, keys: int) -> int:
    """Return the number of blocks, the last of which may not be full, of compressed keys."""
    return -(-((keys - 1) * call["compressBlockStride"] + call[_BLOCK]) // call[_SIZE])


def _infer_work(call: Call) -> Library | None:
    if call["output"].size == 0 and call["topKOutput"].size == 0:
        return None
    of_block, of_window = _strides(call, "compressBlockStride")
    heads, shared, scale, count = (call[name] for name in (_NUM_HEADS, _SHARED_HEADS, "scaleValue", _COUNT))
    pages, lengths = call["key"].shape[:2], np.asarray(call[_LENGTHS])
    outs = [call[name].shape for name in ("output", "topKOutput")]

    def compute(query: Array, key: Array, value: Array, table: Array) -> tuple[Array, ...]:
        grouped = query.reshape(len(query), shared, heads // shared, -1)
        keys, values = (x.reshape(pages[0] * pages[1], shared, -1) for x in (key, value))
        attention = np.zeros((*grouped.shape[:3], values.shape[-1]))
        numbers = np.zeros((len(query), shared, count))
        for row, places in enumerate(token_rows(PAGES, pages, lengths, table)):
            shares, _, _ = _shares(grouped[row], keys[places].swapaxes(0, 1), scale, None)
            attention[row] = np.einsum("hgk,khd->hgd", shares, values[places].astype(np.float64))
            score = _importance(shares, _blocks_of(call, len(places)), of_block, of_window).sum(1)
            # The first block and the last two are always chosen.
            score[:, [0, *range(max(score.shape[1] - 2, 0), score.shape[1])]] = np.inf
            numbers[row] = _largest(score, count)
        return attention.reshape(outs[0]), numbers.reshape(outs[1])

    return Library(compute, ("query", "key", "value", _TABLE), ("output", "topKOutput"))


def _samples(call: Call) -> str | None:
    got = call["query"].shape[:1]
    return None if got and 1 <= got[0] <= _MOST_SAMPLES else f"query: expected 1 to {_MOST_SAMPLES} samples, got {got}"


def _one_query(call: Call) -> str | None:
    shape, dims = call["query"].shape, 3 if call[_LAYOUT] == PACKED else 4
    if len(shape) == dims and not has_zero(shape) and (dims == 3 or shape[1] == 1):
        return None
    return f"query: expected {dims} dimensions ({call[_LAYOUT]}) and one query of each sample, got {extents(shape)}"


def _lone(call: Call) -> str | None:
    got, samples = call[_QUERIES] or (), call["query"].shape[0]
    if len(got) != samples or any(not 1 <= number <= 4 for number in got) or all(number == 1 for number in got):
        return None
    return f"{_QUERIES}: expected one query of each sample (several are not supported here), got {extents(got)}"


def _infer_heads(call: Call) -> str | None:
    heads, got = call["query"].shape[-2], call[_NUM_HEADS]
    if got != heads:
        return f"{_NUM_HEADS}: expected {heads} (the heads of query), got {got}"
    return _shared(heads, call[_SHARED_HEADS], _NUM_HEADS)


def _paged(call: Call, name: str) -> str | None:
    got, shared, page = call[name].shape, call[_SHARED_HEADS], call[_PAGE]
    elements = call["query"].shape[-1] if name == "key" else call["output"].shape[-1]
    most = min(_WIDEST[name], call["query"].shape[-1])
    fits = 0 < page <= _LARGEST_BLOCK and page % _UNIT == 0 and elements <= most
    if fits and got == (call["key"].shape[0], page, shared * elements):
        return None
    return (
        f"expected pages of {_PAGE} (a multiple of {_UNIT} up to {_LARGEST_BLOCK}) tokens of {shared} heads "
        f"of {elements} elements (at most {most}), got {extents(got)}"
    )


def _table(call: Call, name: str) -> str | None:
    got, samples = call[name].shape, call["query"].shape[0]
    return None if len(got) == 2 and got[0] == samples else f"expected shape [{samples}, …], got {extents(got)}"


def _lengths(call: Call) -> str | None:
    got, (samples, pages) = call[_LENGTHS], call[_TABLE].shape
    room = min(pages * call[_PAGE], _MOST_PAGED)
    if len(got) == samples and all(0 < length <= room for length in got):
        return None
    return f"{_LENGTHS}: expected {samples} lengths from 1 to {room}, got {extents(got)}"


def _infer_count(call: Call) -> str | None:
    blocks = [_blocks_of(call, length) for length in call[_LENGTHS]]
    most, got = min(blocks), call[_COUNT]
    if max(blocks) > _MOST_OF_SAMPLE:
        return f"{_COUNT}: expected samples of at most {_MOST_OF_SAMPLE} blocks, got {max(blocks)}"
    return None if 1 <= got <= most else f"{_COUNT}: expected from 1 to {most} (blocks of a sample), got {got}"


def _of_samples(heads: str, last: str | None) -> Any:
    def shape(call: Call) -> Shape:
        before = call["query"].shape[:-2]
        return (*before, call[heads], call[last] if last else call["output"].shape[-1])

    return shape


def _array(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INT_ARRAY, meaning, optional=True)


_WINDOW = attribute(_BLOCK, Kind.INT64, "the number of keys of a window")
_SELECTION = (
    attribute(_SIZE, Kind.INT64, "the number of keys of a block"),
    attribute(_COUNT, Kind.INT64, "the number of blocks to choose"),
)
_STRIDE = "the number of keys from one window to the next"
_SCALE = attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores")

OPERATORS = (
    declared(
        "nsa_compress_attention",
        f"attentionOutOut = {_FORMULA}; topkIndicesOut: {_CHOICES}",
        "Attention of packed sequences to compressed keys, and the most important blocks of keys.",
        (
            tensor_in("query", "(T, N, D)"),
            tensor_in("key", "the compressed keys, (T, heads of keys, D)"),
            tensor_in("value", "the compressed values, (T, heads of keys, at most D)"),
            optional_in(_MASK, "trues for keys that are not seen, (most queries, most keys)"),
            optional_in(_CHOICE, "trues for blocks that are chosen first, (most queries, most blocks)"),
            *(
                _array(name, f"the end of each sequence's {of}")
                for name, of in zip(_ENDS, ("queries", "keys", "blocks"), strict=True)
            ),
            _SCALE,
            attribute("headNum", Kind.INT64, "the number of query heads"),
            Parameter("inputLayout", "input_layout", Kind.STRING, '"TND"', c_type="char *"),
            attribute("sparseMode", Kind.INT64, "0 or 1; the masks decide"),
            _WINDOW,
            attribute("compressStride", Kind.INT64, _STRIDE),
            *_SELECTION,
            tensor_out("softmaxMaxOut", "the maximum score, (T, N, 8); FLOAT", const=True),
            tensor_out("softmaxSumOut", "the sum of e^(score - maximum), in the same shape; FLOAT", const=True),
            tensor_out("attentionOutOut", "(T, N, elements of value)", const=True),
            tensor_out(
                "topkIndicesOut", f"block indices, (T, heads of keys, {_COUNT}); INT32", const=True, index_of=None
            ),
        ),
        (
            *unless_empty(
                _OUTPUTS,
                one_of("inputLayout", PACKED),
                dtype_in(set(_HALVES), "query"),
                *(same_dtype(name, "query") for name in ("key", "value", "attentionOutOut")),
                dtype_in({D.BOOL, D.UINT8}, _MASK, _CHOICE),
                dtype_in({D.FLOAT}, "softmaxMaxOut", "softmaxSumOut"),
                dtype_in({D.INT32}, "topkIndicesOut"),
                one_of("sparseMode", 0, 1),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    dims_between(3, 3, "query", "key", "value"),
                    rule("elements of heads: query", _elements),
                    rule("heads: headNum", _heads),
                    shape_is(
                        "rows and heads of key", lambda call: (*call["key"].shape[:2], call["value"].shape[2]), "value"
                    ),
                    _sizes("compressStride"),
                    *(_ends(which) for which in range(3)),
                    rule(f"few keys: {_ENDS[1]}", _few_keys),
                    rule(f"blocks to choose: {_COUNT}", _count),
                    _mask_shape(_MASK, _ENDS[1]),
                    _mask_shape(_CHOICE, _ENDS[2]),
                    shape_is(
                        "of the attention",
                        lambda call: (*call["query"].shape[:2], call["value"].shape[2]),
                        "attentionOutOut",
                    ),
                    shape_is(
                        "eight for each head",
                        lambda call: (*call["query"].shape[:2], _COPIES),
                        "softmaxMaxOut",
                        "softmaxSumOut",
                    ),
                    shape_is(
                        "blocks for each head of keys",
                        lambda call: (call["query"].shape[0], call["key"].shape[1], call[_COUNT]),
                        "topkIndicesOut",
                    ),
                ),
                which="every output",
                among=all,
            ),
        ),
        _work,
        dtypes=_HALVES,
        products=A2_CLASS,
        stream_type="const aclrtStream ",
    ),
    declared(
        "nsa_compress_attention_infer",
        f"output = {_FORMULA}; topKOutput: {_CHOICES}, the first block and the last two before others",
        "Attention of one token per sample to paged compressed keys, and the most important blocks of keys.",
        (
            tensor_in("query", "(B, N, D), or (B, 1, N, D) with BSND"),
            tensor_in("key", "the compressed keys, (pages, tokens, heads * D)"),
            tensor_in("value", "the compressed values, as key, with heads of at most D elements"),
            optional_in("attentionMaskOptional", "ignored: each sample has one query"),
            optional_in(_TABLE, "the page table of each sample; INT32"),
            _array(_QUERIES, "the number of queries of each sample, 1"),
            _array(_LENGTHS, "the number of compressed keys of each sample"),
            _array("actualSelKvSeqLenOptional", "ignored: the number of keys before compression"),
            optional_in("topKMaskOptional", "ignored"),
            attribute(_NUM_HEADS, Kind.INT64, "the number of query heads"),
            attribute(_SHARED_HEADS, Kind.INT64, "the number of key heads"),
            *_SELECTION,
            _WINDOW,
            attribute("compressBlockStride", Kind.INT64, _STRIDE),
            _SCALE,
            Parameter(_LAYOUT, "layout_optional", Kind.STRING, "TND or BSND", c_type="char *"),
            attribute(_PAGE, Kind.INT64, "the number of keys of a page"),
            attribute("sparseMode", Kind.INT64, "ignored"),
            tensor_out("output", "as query, with heads of value's elements", const=True),
            tensor_out(
                "topKOutput", f"block indices, as query, (…, heads of keys, {_COUNT}); INT32", const=True, index_of=None
            ),
        ),
        (
            present("query", "key", "value", _TABLE, _LENGTHS, _LAYOUT, "output", "topKOutput"),
            rule("samples: query", _samples),
            dtype_in(set(_HALVES), "query"),
            *(same_dtype(name, "query") for name in ("key", "value", "output")),
            dtype_in({D.INT32}, _TABLE, "topKOutput"),
            *unless_empty(
                ("output", "topKOutput"),
                one_of(_LAYOUT, PACKED, SAMPLES),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    rule("one query of each sample: query", _one_query),
                    rule(f"one query each: {_QUERIES}", _lone),
                    rule(f"heads: {_NUM_HEADS}", _infer_heads),
                    dims_between(3, 4, "output"),
                    dims_between(3, 3, "key"),
                    each("pages of heads", ("key", "value"), _paged),
                    _sizes("compressBlockStride"),
                    each("pages of each sample", (_TABLE,), _table),
                    rule(f"a length of each sample: {_LENGTHS}", _lengths),
                    rule(f"blocks to choose: {_COUNT}", _infer_count),
                    shape_is("of the attention", _of_samples(_NUM_HEADS, None), "output"),
                    shape_is("blocks for each head of keys", _of_samples(_SHARED_HEADS, _COUNT), "topKOutput"),
                ),
                which="every output",
                among=all,
            ),
        ),
        _infer_work,
        dtypes=_HALVES,
        products=A2_CLASS,
    ),
)
