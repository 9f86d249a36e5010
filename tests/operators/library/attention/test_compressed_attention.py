"""Attention to compressed keys, and the choice of blocks by it, with plain loops over tokens and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.attention import compressed_attention
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Break, Breaking, LibraryTests, Subject, computed, torch, wide

TRAIN, INFER = "nsa_compress_attention", "nsa_compress_attention_infer"
TOKENS, KEYS, BLOCKS = (5, 9), (9, 17), (3, 5)
#: Four queries share a key head; windows of 32 keys begin every 16, blocks have 64.
HEADS, SHARED, WIDTH, DEEP, SCALE, COUNT = 8, 2, 24, 16, 0.3, 2
OF_BLOCK, OF_WINDOW = 4, 2


def _train(d: D) -> Arguments:
    statistics = T(D.FLOAT, (TOKENS[-1], HEADS, 8))
    return {
        "query": T(d, (TOKENS[-1], HEADS, WIDTH)),
        "key": T(d, (KEYS[-1], SHARED, WIDTH)),
        "value": T(d, (KEYS[-1], SHARED, DEEP)),
        "attenMaskOptional": T(D.BOOL, (5, 9)),
        "topkMaskOptional": T(D.UINT8, (5, 3)),
        "actualSeqQLenOptional": TOKENS,
        "actualCmpSeqKvLenOptional": KEYS,
        "actualSelSeqKvLenOptional": BLOCKS,
        "scaleValue": SCALE,
        "headNum": HEADS,
        "inputLayout": "TND",
        "sparseMode": 1,
        "compressBlockSize": 32,
        "compressStride": 16,
        "selectBlockSize": 64,
        "selectBlockCount": COUNT,
        "softmaxMaxOut": statistics,
        "softmaxSumOut": statistics,
        "attentionOutOut": T(d, (TOKENS[-1], HEADS, DEEP)),
        "topkIndicesOut": T(D.INT32, (TOKENS[-1], SHARED, COUNT)),
    }


OUTPUTS = ("softmaxMaxOut", "softmaxSumOut", "attentionOutOut", "topkIndicesOut")
LENGTHS, PAGE = (40, 17, 32), 16
TABLE = np.array([[4, 0, 5], [2, 6, -1], [1, 3, -1]], np.int32)


def _infer(d: D, layout: str = "TND") -> Arguments:
    def rows(*rest: int) -> tuple[int, ...]:
        return (3, *rest) if layout == "TND" else (3, 1, *rest)

    return {
        "query": T(d, rows(HEADS, WIDTH)),
        "key": T(d, (7, PAGE, SHARED * WIDTH)),
        "value": T(d, (7, PAGE, SHARED * DEEP)),
        "attentionMaskOptional": None,
        "blockTableOptional": T(D.INT32, TABLE.shape),
        "actualQSeqLenOptional": (1, 1, 1) if d == D.BF16 else None,
        "actualCmpKvSeqLenOptional": LENGTHS,
        "actualSelKvSeqLenOptional": None,
        "topKMaskOptional": None,
        "numHeads": HEADS,
        "numKeyValueHeads": SHARED,
        "selectBlockSize": 64,
        "selectBlockCount": 4,
        "compressBlockSize": 32,
        "compressBlockStride": 16,
        "scaleValue": SCALE,
        "layoutOptional": layout,
        "pageBlockSize": PAGE,
        "sparseMode": 0,
        "output": T(d, rows(HEADS, DEEP)),
        "topKOutput": T(D.INT32, rows(SHARED, 4)),
    }


def importance(shares: Any, blocks: int) -> Any:
    """Return the sums over the windows that begin in each block, or reach into it."""
    found = torch.zeros(blocks, dtype=torch.float64)
    for block in range(blocks):
        for back in range(OF_BLOCK):
            for shift in range(OF_WINDOW):
                place = OF_BLOCK * (block + 1) - back - shift
                if 0 <= place < len(shares):
                    found[block] += shares[place]
    return found


def _trained(a: Mapping[str, Any]) -> Any:
    query, key, value = (wide(a[name]) for name in ("query", "key", "value"))
    largest, total = (torch.zeros(TOKENS[-1], HEADS, 8, dtype=torch.float64) for _ in range(2))
    attention = torch.zeros(TOKENS[-1], HEADS, DEEP, dtype=torch.float64)
    numbers = torch.zeros(TOKENS[-1], SHARED, COUNT, dtype=torch.int64)
    spans = [pairwise((0, *ends)) for ends in (TOKENS, KEYS, BLOCKS)]
    for (begin, end), (first, last), (start, stop) in zip(*spans, strict=True):
        for at in range(end - begin):
            for shared in range(SHARED):
                score = torch.zeros(stop - start, dtype=torch.float64)
                for head in range(shared * 4, shared * 4 + 4):
                    scores = key[first:last, shared] @ query[begin + at, head] * SCALE
                    scores = scores - 40000 * a["attenMaskOptional"][at, : last - first].double()
                    shares = scores.softmax(0)
                    largest[begin + at, head], total[begin + at, head] = (
                        scores.max(),
                        (scores - scores.max()).exp().sum(),
                    )
                    attention[begin + at, head] = shares @ value[first:last, shared]
                    score += importance(shares, stop - start)
                score[a["topkMaskOptional"][at, : stop - start] != 0] = 1e9
                numbers[begin + at, shared] = score.sort(descending=True, stable=True).indices[:COUNT]
    return largest, total, attention, numbers


def _inferred(a: Mapping[str, Any]) -> Any:
    query = wide(a["query"]).reshape(3, HEADS, WIDTH)
    keys, values = (wide(a[name]).reshape(7 * PAGE, SHARED, -1) for name in ("key", "value"))
    attention, numbers = torch.zeros(3, HEADS, DEEP, dtype=torch.float64), torch.zeros(3, SHARED, 4, dtype=torch.int64)
    for sample, length in enumerate(LENGTHS):
        places = [int(TABLE[sample, at // PAGE]) * PAGE + at % PAGE for at in range(length)]
        blocks = -(-((length - 1) * 16 + 32) // 64)
        for shared in range(SHARED):
            score = torch.zeros(blocks, dtype=torch.float64)
            for head in range(shared * 4, shared * 4 + 4):
                shares = (keys[places, shared] @ query[sample, head] * SCALE).softmax(0)
                attention[sample, head] = shares @ values[places, shared]
                score += importance(shares, blocks)
            ranked = [at for at in score.sort(descending=True, stable=True).indices.tolist() if 0 < at < blocks - 2]
            numbers[sample, shared] = torch.tensor([0, blocks - 2, blocks - 1, ranked[0]])
    return attention.reshape(a["output"].shape), numbers.reshape(a["topKOutput"].shape)


def numbers(operator: str, name: str, array: Any) -> Any:
    if name == "attenMaskOptional":
        # The first token sees no key, the others those before them.
        return np.arange(9) >= 2 * np.arange(5)[:, None]
    if name == "topkMaskOptional":
        return np.eye(5, 3, dtype=np.uint8)
    return TABLE if name == "blockTableOptional" else array / 4


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "same data type as query": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "allowed value": lambda o, name: Break(
        {name: 2 if name == "sparseMode" else "BNSD"}, "0 or 1" if name == "sparseMode" else "'TND'"
    ),
    "3 dimensions": lambda o, name: Break(shape((5, 8), name), "3 dimensions"),
    "3 to 4 dimensions": lambda o, name: Break(shape((5, 8), name), "3 to 4 dimensions"),
    "elements of heads": lambda o, name: Break(shape((9, HEADS, 12), name), "as many elements as key has"),
    "heads": lambda o, name: Break({name: 4}, "8 (the heads of query)"),
    "shape is rows and heads of key": lambda o, name: Break(shape((17, 1, 16), name), "[17, 2, 16]"),
    "windows and blocks with a kernel": lambda o, name: Break({name: 8}, "rising multiples of 16"),
    "ends of sequences": lambda o, name: Break({name: (3, 2)}, "rising numbers"),
    "few keys": lambda o, name: Break(
        shape((14010, SHARED, WIDTH), "key") | shape((14010, SHARED, DEEP), "value") | {name: (9, 14010)},
        "at most 14000",
    ),
    "blocks to choose": lambda o, name: Break(
        {name: 9}, "(blocks of a sample" if o.name == INFER else "(blocks of a sequence"
    ),
    "columns of actualCmpSeqKvLenOptional": lambda o, name: Break(shape((5, 8), name), "[5, 9]"),
    "columns of actualSelSeqKvLenOptional": lambda o, name: Break(shape((5, 4), name), "[5, 3]"),
    "shape is of the attention": lambda o, name: Break(shape((3, HEADS + 1, DEEP), name), f"{HEADS}, {DEEP}]"),
    "shape is eight for each head": lambda o, name: Break(shape((9, HEADS, 1), name), "[9, 8, 8]"),
    "shape is blocks for each head of keys": lambda o, name: Break(shape((9, SHARED, 1), name), f"{SHARED}, "),
    "samples": lambda o, name: Break(shape((0, HEADS, WIDTH), name), "1 to 10000"),
    "one query of each sample": lambda o, name: Break(shape((3, 1, HEADS, WIDTH), name), "3 dimensions (TND)"),
    "one query each": lambda o, name: Break({name: (1, 2, 1)}, "several are not supported"),
    "pages of heads": lambda o, name: Break(shape((7, PAGE, 8), name), "pages of pageBlockSize"),
    "pages of each sample": lambda o, name: Break(shape((2, 3), name), "[3, …]"),
    "a length of each sample": lambda o, name: Break({name: (40, 17, 49)}, "3 lengths from 1 to 48"),
}


class TestCompressedAttention(LibraryTests):
    subject = Subject(
        compressed_attention.OPERATORS,
        calls={TRAIN: _train, INFER: _infer},
        references={TRAIN: _trained, INFER: _inferred},
        default=(D.FLOAT16, D.BF16),
        empty={
            TRAIN: _train(D.FLOAT16) | {name: T(D.FLOAT16, (0,)) for name in OUTPUTS},
            INFER: _infer(D.FLOAT16) | {"output": T(D.FLOAT16, (0,)), "topKOutput": T(D.INT32, (0,))},
        },
        breaks=BREAKS,
        numbers=numbers,
        terms=8,
        code=NO_KERNEL,
        codes={
            "present": NULL,
            **dict.fromkeys(("data type", "same data type as query", "allowed value", "samples"), INVALID),
        },
    )


def test_heads_of_one_query_may_have_a_dimension_of_their_own() -> None:
    random = np.random.default_rng(7)
    merged = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in _infer(D.FLOAT16).items()
        if isinstance(each, T)
    } | {"blockTableOptional": TABLE}
    with_queries = {
        name: value[:, None] if name in ("query", "output", "topKOutput") else value for name, value in merged.items()
    }
    first = computed(INFER, _infer(D.FLOAT16) | merged)
    second = computed(INFER, _infer(D.FLOAT16, "BSND") | {name: value.copy() for name, value in with_queries.items()})
    for name in ("output", "topKOutput"):
        np.testing.assert_array_equal(first[name][:, None], second[name])


def _uniform(tokens: int, keys: int, blocks: int, chosen: int, ends: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return what the example of the document computes, with fewer tokens: all ones, and masks that hide nothing."""
    given: dict[str, Any] = {
        "query": np.ones((tokens, 16, 192), np.float16),
        "key": np.ones((keys, 4, 192), np.float16),
        "value": np.ones((keys, 4, 128), np.float16),
        "attenMaskOptional": np.zeros((tokens, keys), bool),
        "topkMaskOptional": np.zeros((tokens, blocks), bool),
        "softmaxMaxOut": np.zeros((tokens, 16, 8), np.float32),
        "softmaxSumOut": np.zeros((tokens, 16, 8), np.float32),
        "attentionOutOut": np.zeros((tokens, 16, 128), np.float16),
        "topkIndicesOut": np.zeros((tokens, 4, chosen), np.int32),
    }
    lengths = dict(
        zip(("actualSeqQLenOptional", "actualCmpSeqKvLenOptional", "actualSelSeqKvLenOptional"), ends, strict=True)
    )
    scalars = {"scaleValue": 1.0, "headNum": 16, "selectBlockCount": chosen}
    return computed(TRAIN, _train(D.FLOAT16) | given | lengths | scalars)


def test_equal_keys_share_equally_as_in_the_published_example() -> None:
    """All blocks but the last have as many windows, so that the first come first."""
    found = _uniform(8, 64, 16, 16, ((8,), (64,), (16,)))
    assert (found["attentionOutOut"] == 1).all()
    assert (found["softmaxMaxOut"] == 192).all()
    assert (found["softmaxSumOut"] == 64).all()
    assert found["topkIndicesOut"][0, 0].tolist() == [*range(16)]


def test_a_query_that_sees_no_key_has_the_shares_of_its_unmasked_scores() -> None:
    random = np.random.default_rng(7)
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in _train(D.FLOAT16).items()
        if isinstance(each, T)
    }
    none, every = np.zeros((5, 9), bool), np.ones((5, 9), bool)
    call = _train(D.FLOAT16) | arrays | {"topkMaskOptional": None}
    seen, hidden = (computed(TRAIN, call | {"attenMaskOptional": mask}) for mask in (none, every))
    np.testing.assert_array_equal(seen["attentionOutOut"], hidden["attentionOutOut"])
    np.testing.assert_allclose(hidden["softmaxMaxOut"], seen["softmaxMaxOut"] - 40000, rtol=1e-6)


def test_pages_out_of_range_are_reported() -> None:
    call = _infer(D.FLOAT16)
    arrays = {name: np.zeros(each.shape, each.dtype.numpy) for name, each in call.items() if isinstance(each, T)}
    with pytest.raises(AclnnError, match="expected numbers of its pages from 0 to 6, got 7"):
        computed(INFER, call | arrays | {"blockTableOptional": np.full_like(TABLE, 7)})
