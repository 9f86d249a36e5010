"""Attention to chosen keys, compared with PyTorch's over each query's keys in float64, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.execution.executor import prepare
from tests.cases.table import INVALID, TILING, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

FORWARD, WITH_SINK, BACKWARD = "sparse_flash_attention", "sparse_flash_attention_v2", "sparse_flash_attention_grad"
QUANTIZED = "kv_quant_sparse_flash_attention"
ANY, SCALE = 2**63 - 1, 0.04
B, QUERIES, KEYS, HEADS, SIZE, ROPE, COUNT, BLOCK = 2, 3, 5, 4, 512, 64, 3, 2
LENGTHS = {
    "actualSeqLengthsQueryOptional": np.array([3, 2], np.int32),
    "actualSeqLengthsKvOptional": np.array([5, 1], np.int32),
}
"""The first query of the second sample sees no key."""
BLOCKS = np.array([[[0, 1, -1], [1, -1, 0], [2, 0, 1]], [[0, 1, 2], [0, -1, -1], [1, 0, 2]]], np.int32)[:, :, None]
STATISTICS = ("softmaxMax", "softmaxSum")
ROPES = ("queryRopeOptional", "keyRopeOptional")
ROPE_GRADIENTS = ("dQueryRopeOutOptional", "dKeyRopeOutOptional")


def _tensors(d: D) -> dict[str, Any]:
    return {
        "query": T(d, (B, QUERIES, HEADS, SIZE)),
        "key": T(d, (B, KEYS, 1, SIZE)),
        "value": T(d, (B, KEYS, 1, SIZE)),
        "sparseIndices": T(D.INT32, BLOCKS.shape),
    }


def _forward(d: D) -> Arguments:
    return {
        **_tensors(d),
        **{name: T(D.INT32, (B,)) for name in LENGTHS},
        "blockTableOptional": None,
        "queryRopeOptional": T(d, (B, QUERIES, HEADS, ROPE)),
        "keyRopeOptional": T(d, (B, KEYS, 1, ROPE)),
        "scaleValue": SCALE,
        "sparseBlockSizeOptional": BLOCK,
        "layoutQueryOptional": "BSND",
        "layoutKvOptional": "BSND",
        "sparseMode": 3,
        "preTokens": ANY,
        "nextTokens": ANY,
        "attentionMode": 2,
        "returnSoftmaxLse": True,
        "attentionOut": T(d, (B, QUERIES, HEADS, SIZE)),
        **{name: T(D.FLOAT, (B, 1, QUERIES, HEADS)) for name in STATISTICS},
    }


def _with_sink(d: D) -> Arguments:
    """Sinks, which only Ascend 950 takes, and blocks of one key, the only ones there."""
    return _forward(d) | {"sinksOptional": None}


def _backward(d: D) -> Arguments:
    forward = _forward(d)
    names = ("query", "key", "value", *ROPES)
    outs = ("dQueryOut", "dKeyOut", "dValueOut", *ROPE_GRADIENTS)
    return {
        **_tensors(d),
        "dOut": forward["attentionOut"],
        "out": forward["attentionOut"],
        **{name: forward[name] for name in STATISTICS},
        **dict.fromkeys(LENGTHS),
        **{name: forward[name] for name in ROPES},
        "scaleValue": SCALE,
        "sparseBlockSize": 1,
        "layoutOptional": "BSND",
        "sparseMode": 3,
        "preTokens": ANY,
        "nextTokens": ANY,
        "deterministic": True,
        **{out: forward[name] for out, name in zip(outs, names, strict=True)},
    }


def _quantized(d: D) -> Arguments:
    keys = T(D.INT8, (B, KEYS, 1, 656))
    forward = {name: value for name, value in _forward(d).items() if name not in (*ROPES, *STATISTICS)}
    del forward["returnSoftmaxLse"], forward["sparseBlockSizeOptional"]
    return {
        **forward,
        "query": T(d, (B, QUERIES, HEADS, SIZE + ROPE)),
        "key": keys,
        "value": keys,
        "keyDequantScaleOptional": None,
        "valueDequantScaleOptional": None,
        "keyQuantMode": 2,
        "valueQuantMode": 2,
        "sparseBlockSize": 1,
        "quantScaleRepoMode": 1,
        "tileSize": 128,
        "ropeHeadDim": 64,
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    FORWARD: lambda d: _forward(d) | {"sparseBlockSizeOptional": 1},
    WITH_SINK: lambda d: _with_sink(d) | {"sparseBlockSizeOptional": 1},
    BACKWARD: _backward,
    QUANTIZED: _quantized,
}


def keys_of(numbers: Any, size: int, seen: int) -> list[int]:
    found: list[int] = []
    for number in numbers[: -(-max(0, seen) // size)]:
        if number < 0:
            break
        found += [at for at in range(int(number) * size, int(number + 1) * size) if at < seen]
    return found


def attention(
    query: Any, key: Any, value: Any, numbers: Any, size: int = 1, lengths: Any = None, sink: Any = None
) -> tuple[Any, Any, Any]:
    """Of samples (B, S, heads, elements), sample by sample and query by query; the statistics are (B, S, heads)."""
    samples, queries, heads, _ = query.shape
    of_none = [torch.zeros(heads, value.shape[-1]).double(), torch.zeros(heads).double(), torch.zeros(heads).double()]
    rows = []
    for b in range(samples):
        count, total = (queries, key.shape[1]) if lengths is None else (int(each[b]) for each in lengths)
        for q in range(queries):
            own = keys_of(numbers[b, q, 0], size, total - count + q + 1)
            if q >= count or not own:
                rows.append(of_none)
                continue
            scores = query[b, q] @ key[b, own, 0].T * SCALE
            whole = scores if sink is None else torch.cat((scores, sink[:, None]), 1)
            top = whole.detach().max(1).values
            shares = whole.softmax(1)[:, : len(own)]
            rows.append([shares @ value[b, own, 0], top, (whole - top[:, None]).exp().sum(1)])
    return tuple(torch.stack([row[at] for row in rows]).unflatten(0, (samples, queries)) for at in range(3))


def beside(a: Mapping[str, Any]) -> tuple[Any, Any]:
    return tuple(torch.cat((wide(a[of]), wide(a[rope])), -1) for of, rope in zip(("query", "key"), ROPES, strict=True))


def _reference(a: Mapping[str, Any]) -> Any:
    query, key = beside(a)
    lengths = [a[name] for name in LENGTHS]
    found, *statistics = attention(query, key, wide(a["value"]), a["sparseIndices"], lengths=lengths)
    return found, *(each[:, None] for each in statistics)


def _gradients(a: Mapping[str, Any]) -> Any:
    given = [wide(a[name]).requires_grad_() for name in ("query", "key", "value", *ROPES)]
    query, key = (torch.cat(pair, -1) for pair in zip(given[:2], given[3:], strict=True))
    found = attention(query, key, given[2], a["sparseIndices"])[0]
    return torch.autograd.grad((found * wide(a["dOut"])).sum(), given)


def dequantized(packed: Any, rope: Any) -> Any:
    """(…, 1, 656) as float64 numbers."""
    raw = packed.contiguous().view(torch.uint8)
    beside, scales = raw[..., 512:640].contiguous().view(rope), raw[..., 640:].contiguous().view(torch.float32)
    elements = packed[..., :512].double().unflatten(-1, (4, 128)) * wide(scales)[..., None]
    return torch.cat((elements.flatten(-2), wide(beside)), -1)


def _quantized_reference(a: Mapping[str, Any]) -> Any:
    keys, values = (dequantized(a[name], a["query"].dtype) for name in ("key", "value"))
    lengths = [a[name] for name in LENGTHS]
    return attention(wide(a["query"]), keys, values[..., :SIZE], a["sparseIndices"], lengths=lengths)[0]


def packed_keys(of: tuple[int, ...], half: Any, eight: Any, random: np.random.Generator) -> Array:
    """Random quantised keys (…, 656)."""
    elements = (random.normal(size=(*of, 512)) * 20).astype(eight)
    rope, scales = random.normal(size=(*of, 64)).astype(half), random.uniform(0.01, 0.1, (*of, 4)).astype(np.float32)
    return np.concatenate([x.view(np.uint8) for x in (elements, rope, scales)], -1).view(eight)


def _numbers(operator: str, name: str, array: Array) -> Array:
    known = {**LENGTHS, "sparseIndices": BLOCKS}
    if operator == QUANTIZED and name in ("key", "value"):
        # The rotary part has other bytes in each type; small numbers in all.
        found = packed_keys(array.shape[:-1], np.float16, np.int8, np.random.default_rng(len(name)))
        found[..., 512:640] = found[..., 512:640] & 0x3F
        return found
    return known.get(name, array / 4 if array.dtype.kind == "f" or array.dtype == D.BF16.numpy else array)


def _packed(o: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes that make a call one of packed sequences, with a violation."""
    call, width = CALLS[o.name](D.FLOAT16), {"query": 6, "key": 10, "value": 10}
    changes: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, T) and len(value.shape) == 4:
            tokens = width.get("key" if "ey" in name else "value" if "alue" in name else "query", 6)
            changes[name] = value._replace(shape=(tokens, *value.shape[2:]))
        if "ayout" in name:
            changes[name] = "TND"
    changes |= {name: T(D.INT32, (2,)) for name in LENGTHS}
    changes |= {name: T(D.FLOAT, (1, 6, HEADS)) for name in STATISTICS if name in call}
    return changes | dict(change)


def _with(o: Any, name: str, value: T) -> Mapping[str, Any]:
    """A call in which an optional tensor of integers takes part."""
    if name == "blockTableOptional":
        changes: dict[str, Any] = {"layoutKvOptional": "PA_BSND", name: value}
        for each, old in CALLS[o.name](D.FLOAT16).items():
            if each in ("key", "value", "keyRopeOptional"):
                changes[each] = old._replace(shape=(6, 16, *old.shape[2:]))
        return changes
    return _packed(o, {name: value}) if o.name == BACKWARD else {name: value}


def _given_with_its_layout(o: Any, name: str) -> Break:
    if name == "blockTableOptional":
        return Break({name: T(D.INT32, (B, 1))}, "null")
    return Break(_packed(o, {name: None}), "a tensor")


def _one_for_each_sample(o: Any, name: str) -> Break:
    if o.name == BACKWARD and "Query" in name:
        return Break(_packed(o, {name: T(D.INT32, (0,))}), "of 1 (samples)")
    return Break(_with(o, name, T(D.INT32, (3, 3))), "of 2 (samples)")


def _shape(o: Any, name: str) -> tuple[int, ...]:
    """Another shape than a call's, wrong in its last but one dimension."""
    of = CALLS[o.name](D.FLOAT16)[name].shape
    return (*of[:-2], of[-2] + 1, of[-1])


def _other_value(o: Any, name: str) -> Break:
    words = {
        "sparseMode": "0 or 3",
        "attentionMode": "2",
        "tileSize": "128",
        "ropeHeadDim": "64",
        "quantScaleRepoMode": "1",
    }
    if "ayout" in name:
        return Break({name: "SBH"}, "'BSND'")
    if "BlockSize" in name:
        return Break({name: 2 if o.name != BACKWARD else 8}, "1", product=Product.ASCEND_950)
    return Break(
        {name: 1 if name != "quantScaleRepoMode" else 0}, words.get(name, "2" if "Quant" in name else str(ANY))
    )


def _sink(change: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sinksOptional": T(D.FLOAT, (HEADS,))} | change


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
    "data type": lambda o, name: (
        Break(_sink({name: T(D.FLOAT16, (HEADS,))}), "ACL_FLOAT", product=Product.ASCEND_950)
        if name == "sinksOptional"
        else Break(dtype(D.DOUBLE, name), "ACL_")
    ),
    "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "null": lambda o, name: Break({name: T(D.FLOAT, (HEADS,))}, "null"),
    "both or none": lambda o, name: Break({name: None}, "an object"),
    "allowed value": _other_value,
    "goes with that of queries": lambda o, name: Break({name: "TND"}, "'BSND' or 'PA_BSND'"),
    "dimensions of the layout": lambda o, name: Break(shape((2, 3, SIZE), name), "4 dimensions (BSND)"),
    "given with its layout": _given_with_its_layout,
    "data type ACL_INT32": lambda o, name: Break(_with(o, name, T(D.INT64, (2,))), "ACL_INT32"),
    "one for each sample": _one_for_each_sample,
    "a head, samples as queries have": lambda o, name: Break(shape(_shape(o, name), name), "one head"),
    **dict.fromkeys(
        ("1, 2, 4, 8 or 16", "1, 8, 16, 32 or 64", "1, 2, 4, 8, 16, 32, 64 or 128"),
        lambda o, name: Break({name: 3}, "1, "),
    ),
    "whole pages": lambda o, name: Break(
        {**_with(o, "blockTableOptional", T(D.INT32, (B, 1))), name: 32}, "a divisor of 16"
    ),
    **dict.fromkeys(
        [f"heads of {elements} elements" for elements in (512, 576, 656)],
        lambda o, name: Break(shape((B, KEYS if name == "key" else QUERIES, 1, 128), name), "heads of"),
    ),
    "heads": lambda o, name: Break(shape((B, QUERIES, 5, CALLS[o.name](D.FLOAT16)[name].shape[-1]), name), "8, 16"),
    "shape is that of key": lambda o, name: Break(shape((B, 4, 1, SIZE), name), "shape ["),
    "as key": lambda o, name: Break(shape((B, KEYS, 1, 513), name), "at most 512 elements"),
    "all or none": lambda o, name: Break({name: None}, "with rotary parts"),
    "given with value": lambda o, name: Break({name: None}, "an object with value"),
    "with a head": lambda o, name: Break(shape(_shape(o, name), name), "shape [2, "),
    "some numbers for each query": lambda o, name: Break(shape((B, QUERIES, 1, 0), name), "[2, 3, 1, …]"),
    "shape is that of query": lambda o, name: Break(shape(_shape(o, name), name), "[2, 3, 4, 512]"),
    "shape is of elements": lambda o, name: Break(shape(_shape(o, name), name), "[2, 3, 4, 512]"),
    "shape is of the attention": lambda o, name: Break(shape(_shape(o, name), name), "[2, 3, 4, 512]"),
    "shape is one for each head": lambda o, name: (
        Break(_sink({name: T(D.FLOAT, (3,))}), "[4]", product=Product.ASCEND_950)
        if name == "sinksOptional"
        else Break(shape((B, 1, 3, 5), name), "[2, 1, 3, 4]")
    ),
    **{
        f"same shape as {of}": lambda o, name: Break(shape(_shape(o, name), name), "shape [2, ")
        for of in ("query", "key", "value", *ROPES)
    },
}
EARLY = ("data types that go together", "same data type as query", "format that counts as ND", "data type")


def _subject(name: str, reference: Callable[[Mapping[str, Any]], Any] | None = None) -> Subject:
    operator, nothing = BY_NAME[name], "query" if name == BACKWARD else "attentionOut"
    call = CALLS[name](D.FLOAT16)
    return Subject(
        (operator,),
        calls=CALLS,
        references={} if reference is None else {name: reference},
        elsewhere=() if reference else (name,),
        default=(D.FLOAT16, D.BF16),
        empty={name: call | {nothing: call[nothing]._replace(shape=(0, *call[nothing].shape[1:]))}},
        breaks=BREAKS,
        numbers=_numbers,
        terms=8,
        code=TILING,
        codes=dict.fromkeys(EARLY, INVALID) | dict.fromkeys(("both or none", "given with value"), 161001),
    )


class _Rejections(LibraryTests):
    """One title has two codes: what the tiling function looks at is rejected with another one."""

    def test_every_check_rejects(self, operator: Operator, check: Any, title: str, name: str) -> None:
        object.__setattr__(self.subject, "codes", {**self.subject.codes, title: check.code})
        super().test_every_check_rejects(operator, check, title, name)


class TestAttention(_Rejections):
    subject = _subject(FORWARD, _reference)


class TestAttentionWithSinks(_Rejections):
    subject = _subject(WITH_SINK, _reference)


class TestGradients(_Rejections):
    subject = _subject(BACKWARD)


class TestQuantizedKeys(_Rejections):
    subject = _subject(QUANTIZED, _quantized_reference)


def _arrays(name: str, seed: int = 1) -> tuple[dict[str, Array], dict[str, Any]]:
    """Tensors of a valid call of float16 as arrays, and its other arguments."""
    random, call = np.random.default_rng(seed), CALLS[name](D.FLOAT16)
    tensors = {key: value for key, value in call.items() if isinstance(value, T)}
    arrays = {key: (random.normal(size=x.shape) / 4).astype(x.dtype.numpy) for key, x in tensors.items()}
    known = {**LENGTHS, "sparseIndices": BLOCKS}
    arrays |= {key: known[key] for key in arrays if key in known}
    return arrays, {key: value for key, value in call.items() if key not in arrays}


def _torch(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: torch.from_numpy(x) for name, x in arrays.items()}


def test_sparse_attention_takes_blocks_sinks_and_all_keys() -> None:
    arrays, others = _arrays(WITH_SINK)
    query, key = beside(_torch(arrays))
    lengths, value = [LENGTHS[name] for name in LENGTHS], wide(torch.from_numpy(arrays["value"]))
    of_blocks = computed(FORWARD, arrays | others | {"sparseBlockSizeOptional": BLOCK})
    expected = attention(query, key, value, BLOCKS, BLOCK, lengths)
    np.testing.assert_allclose(of_blocks["attentionOut"], expected[0], 2e-3, 2e-3)
    sink = np.linspace(-1, 1, HEADS).astype(np.float32)
    found = computed(WITH_SINK, arrays | others | {"sinksOptional": sink}, Product.ASCEND_950)
    out, top, total = attention(query, key, value, BLOCKS, 1, lengths, wide(torch.from_numpy(sink)))
    empty = (total == 0) & (torch.arange(QUERIES)[None, :, None] < torch.tensor(lengths[0])[:, None, None])
    # A query without keys has the sink only.
    top, total = torch.where(empty, torch.from_numpy(sink).double(), top), torch.where(empty, 1.0, total)
    np.testing.assert_allclose(found["attentionOut"], out, 2e-3, 2e-3)
    for name, each in zip(STATISTICS, (top, total), strict=True):
        np.testing.assert_allclose(found[name][:, 0], each, 1e-5, 1e-5)
    numbers = np.array([4, 0, -1])[None, None, None].repeat(3, 1).repeat(2, 0).astype(np.int32)
    every = computed(
        FORWARD, arrays | others | dict.fromkeys(LENGTHS) | {"sparseMode": 0, "sparseIndices": numbers, "value": None}
    )["attentionOut"]
    scores = torch.einsum("bqnd,bkd->bqnk", query, key[:, [4, 0], 0]) * SCALE
    np.testing.assert_allclose(every, scores.softmax(-1) @ key[:, None, [4, 0], 0, :SIZE], 2e-3, 2e-3)


@pytest.mark.parametrize("name", [FORWARD, QUANTIZED])
def test_packed_sequences_and_pages_give_the_results_of_samples(name: str) -> None:
    arrays, others = _arrays(name)
    if name == QUANTIZED:
        arrays["key"] = packed_keys((B, KEYS, 1), np.float16, np.int8, np.random.default_rng(2))
        arrays["value"] = arrays["key"]
    arrays = {key: each for key, each in arrays.items() if key not in STATISTICS}
    others |= {"returnSoftmaxLse": False, **dict.fromkeys(STATISTICS)} if name == FORWARD else {}
    expected = computed(name, arrays | others)["attentionOut"]
    queries, keys = LENGTHS.values()

    def packed(x: Array, lengths: Array) -> Array:
        return np.concatenate([own[:length] for own, length in zip(x, lengths, strict=True)])

    of_keys = [key for key in ("key", "value", "keyRopeOptional") if key in arrays]
    given = {key: packed(x, keys if key in of_keys else queries) for key, x in arrays.items() if x.ndim == 4}
    given |= {key: np.cumsum(x).astype(np.int32) for key, x in LENGTHS.items()}
    layouts = {"layoutQueryOptional": "TND", "layoutKvOptional": "TND"}
    found = computed(name, arrays | others | given | layouts)["attentionOut"]
    np.testing.assert_array_equal(found, packed(expected, queries))
    pages = {}
    for key in of_keys:
        pages[key] = np.zeros((4, 16, *arrays[key].shape[2:]), arrays[key].dtype)
        pages[key][[3, 1], :KEYS] = arrays[key]
    pages["blockTableOptional"] = np.array([[3, 0], [1, 0]], np.int32)
    found = computed(name, arrays | others | pages | {"layoutKvOptional": "PA_BSND"})["attentionOut"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("has_ropes", [False, True])
@pytest.mark.parametrize("size", [1, 8])
def test_gradients_of_sparse_attention_match_pytorch(is_merged: bool, has_ropes: bool, size: int) -> None:
    arrays, others = _arrays(BACKWARD, seed=size)
    tensors = _torch(arrays)
    ropes = ROPES if has_ropes else ()
    names = ("query", "key", *(() if is_merged else ("value",)), *ropes)
    given = dict(zip(names, [wide(tensors[name]).requires_grad_() for name in names], strict=True))
    query, key = (
        torch.cat((given[of], given[rope]), -1) if has_ropes else given[of]
        for of, rope in zip(("query", "key"), ROPES, strict=True)
    )
    value = given["key"] if is_merged else given["value"]
    arrays["sparseIndices"] = BLOCKS // size
    found, top, total = attention(query, key, value, BLOCKS // size, size)
    expected = torch.autograd.grad((found * wide(tensors["dOut"])).sum(), given.values())
    arrays["out"] = found.detach().numpy().astype(np.float16)
    arrays |= {
        name: each.detach()[:, None].float().numpy() for name, each in zip(STATISTICS, (top, total), strict=True)
    }
    absent: dict[str, Any] = {} if has_ropes else dict.fromkeys((*ROPES, *ROPE_GRADIENTS))
    absent |= {"value": None, "dValueOut": None} if is_merged else {}
    outs = {
        "query": "dQueryOut",
        "key": "dKeyOut",
        "value": "dValueOut",
        **dict(zip(ROPES, ROPE_GRADIENTS, strict=True)),
    }
    results = computed(BACKWARD, arrays | others | absent | {"sparseBlockSize": size})
    packed = {
        name: x.reshape(1, -1, HEADS) if name in STATISTICS else x.reshape(-1, *x.shape[2:])
        for name, x in arrays.items()
    }
    ends = dict(zip(LENGTHS, (np.arange(1, 3) * each for each in (QUERIES, KEYS)), strict=True))
    packed |= {name: each.astype(np.int32) for name, each in ends.items()}
    of_packed = computed(BACKWARD, others | packed | absent | {"layoutOptional": "TND", "sparseBlockSize": size})
    for name, gradient in zip(names, expected, strict=True):
        np.testing.assert_allclose(results[outs[name]], gradient, 4e-3, 4e-3, err_msg=name)
        np.testing.assert_array_equal(of_packed[outs[name]].reshape(gradient.shape), results[outs[name]])


def test_ascend_950_takes_8_bit_floats() -> None:
    arrays, others = _arrays(QUANTIZED)
    eight = D.FLOAT8_E4M3FN.numpy
    raw = packed_keys((B, KEYS, 1), np.float16, eight, np.random.default_rng(2))
    arrays |= {"key": raw, "value": raw}
    found = computed(QUANTIZED, arrays | others, Product.ASCEND_950)["attentionOut"]
    elements = torch.from_numpy(raw[..., :512].astype(np.float64)).unflatten(-1, (4, 128))
    scales = np.ascontiguousarray(raw.view(np.uint8)[..., 640:]).view(np.float32)
    elements = (elements * torch.from_numpy(scales)[..., None].double()).flatten(-2)
    rope = torch.from_numpy(np.ascontiguousarray(raw.view(np.uint8)[..., 512:640]).view(np.float16)).double()
    keys, query = torch.cat((elements, rope), -1), torch.from_numpy(arrays["query"]).double()
    expected = attention(query, keys, elements, BLOCKS, lengths=[LENGTHS[name] for name in LENGTHS])[0]
    np.testing.assert_allclose(found, expected, 2e-3, 2e-3)
    with pytest.raises(AclnnError, match="key: expected data type ACL_INT8 with query"):
        prepare(
            BY_NAME[QUANTIZED],
            described(others | CALLS[QUANTIZED](D.FLOAT16) | _eight("key", "value")),
            Product.ATLAS_A2,
        )


def _eight(*names: str) -> dict[str, T]:
    return {name: T(D.FLOAT8_E4M3FN, (B, KEYS, 1, 656)) for name in names}


def test_sinks_need_ascend_950() -> None:
    call = described(CALLS[WITH_SINK](D.FLOAT16) | {"sinksOptional": T(D.FLOAT, (HEADS,))})
    prepare(BY_NAME[WITH_SINK], call, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="sinksOptional: expected null") as caught:
        prepare(BY_NAME[WITH_SINK], call, Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_RUNTIME_ERROR


def test_numbers_of_heads_depend_on_the_product() -> None:
    """Ascend 950 takes any number of heads, or more than others."""
    for name, heads in ((FORWARD, 5), (BACKWARD, 48), (QUANTIZED, 48)):
        call = {
            key: value._replace(
                shape=tuple(heads if at == HEADS and place >= 2 else at for place, at in enumerate(value.shape))
            )
            if isinstance(value, T)
            else value
            for key, value in CALLS[name](D.FLOAT16).items()
        }
        prepare(BY_NAME[name], described(call), Product.ASCEND_950)
        with pytest.raises(AclnnError, match=f"heads as many as 1, 2, .*, got {heads}"):
            prepare(BY_NAME[name], described(call), Product.ATLAS_A2)
