"""Attention whose scores a mask of blocks chooses, compared with PyTorch's over each query's keys in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library.attention import block_sparse_attention
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch, wide

FORWARD, BACKWARD = "block_sparse_attention", "block_sparse_attention_grad"
HEADS, SHARED, SIZE, BLOCK, SCALE = 4, 2, 64, (8, 128), 0.1
LENGTHS, KEY_LENGTHS = (20, 9), (150, 300)
ROOM, KEY_ROOM = 24, 300
#: Every query of the first sample's third block and second head is without keys.
MASK = np.random.default_rng(8).integers(0, 2, (2, HEADS, 3, 3)).astype(np.int8)
MASK[:, :, :, 0] = 1
MASK[0, 1, 2] = 0


def _tensors(d: D, layout: str) -> Arguments:
    is_packed = layout == "TND"
    queries = (sum(LENGTHS), HEADS, SIZE) if is_packed else (2, HEADS, ROOM, SIZE)
    keys = (sum(KEY_LENGTHS), SHARED, SIZE) if is_packed else (2, SHARED, KEY_ROOM, SIZE)
    return {
        "query": T(d, queries),
        "key": T(d, keys),
        "value": T(d, keys),
        "blockSparseMaskOptional": T(D.INT8, MASK.shape),
        "attenMaskOptional": None,
        "blockShapeOptional": BLOCK,
        "actualSeqLengthsOptional": LENGTHS,
        "actualSeqLengthsKvOptional": KEY_LENGTHS,
        "blockTableOptional": None,
        "qInputLayout": layout,
        "kvInputLayout": layout,
        "numKeyValueHeads": SHARED,
        "maskType": 0,
        "scaleValue": SCALE,
        "blockSize": 0,
        "preTokens": 2**31 - 1,
        "nextTokens": 2**31 - 1,
        "innerPrecise": 0,
        "softmaxLseFlag": 1,
        "attentionOut": T(d, queries),
        "softmaxLseOptional": T(D.FLOAT, (*queries[:-1], 1)),
    }


def _backward(d: D, layout: str) -> Arguments:
    call = _tensors(d, layout)
    names = {"dout": "query", "softmaxLse": "softmaxLseOptional", "dq": "query", "dk": "key", "dv": "value"}
    absent = ("innerPrecise", "softmaxLseFlag", "softmaxLseOptional", "blockTableOptional", "blockSize")
    return {name: value for name, value in call.items() if name not in absent} | {
        name: call[of] for name, of in names.items()
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    FORWARD: lambda d: _tensors(d, "TND"),
    BACKWARD: lambda d: _backward(d, "BNSD"),
}


def attention(query: Any, key: Any, value: Any, lengths: Any = (LENGTHS, KEY_LENGTHS)) -> tuple[Any, Any]:
    """Score all keys of a sample, without those of blocks that are not chosen; zeros where there are none."""
    found = torch.zeros_like(query)
    sums = torch.full((*query.shape[:-1], 1), -torch.inf, dtype=query.dtype)
    for sample, (rows, columns) in enumerate(zip(*lengths, strict=True)):
        for head in range(HEADS):
            if query.ndim == 3:
                first, last = sum(lengths[0][:sample]), sum(lengths[1][:sample])
                at: Any = (slice(first, first + rows), head)
                of: Any = (slice(last, last + columns), head * SHARED // HEADS)
            else:
                at, of = (sample, head, slice(rows)), (sample, head * SHARED // HEADS, slice(columns))
            chosen = torch.tensor(MASK[sample, head] != 0).repeat_interleave(BLOCK[0], 0)[:rows]
            chosen = chosen.repeat_interleave(BLOCK[1], 1)[:, :columns]
            scores = (query[at] @ key[of].T * SCALE).masked_fill(~chosen, -torch.inf)
            sums[at] = scores.logsumexp(-1, keepdim=True).detach()
            found[at] = scores.masked_fill(~chosen.any(-1, keepdim=True), 0).softmax(-1) @ value[of]
            found[at] = found[at] * chosen.any(-1, keepdim=True)
    return found, sums


def _forward(a: Mapping[str, Any]) -> Any:
    return attention(*(wide(a[name]) for name in ("query", "key", "value")))


def _other(o: Any, name: str) -> tuple[int, ...]:
    of = CALLS[o.name](D.FLOAT16)[name].shape
    return (of[0] + 1, *of[1:])


def _allowed(o: Any, name: str) -> Break:
    return Break({name: "BSND" if "Layout" in name else 2}, "'TND' or 'BNSD'" if "Layout" in name else "0")


#: What is rejected before the kernel, and what a kernel rejects that is null.
EARLY = ("query", "key", "value", "qInputLayout", "kvInputLayout", "innerPrecise")
NEEDED = {FORWARD: ("blockSparseMaskOptional", "softmaxLseOptional"), BACKWARD: ()}


class TestBlockSparseAttention(LibraryTests):
    subject = Subject(
        block_sparse_attention.OPERATORS,
        calls=CALLS,
        references={FORWARD: _forward},
        elsewhere=(BACKWARD,),
        default=(D.FLOAT16, D.BF16),
        empty={
            name: call(D.FLOAT16) | {"query": T(D.FLOAT16, (0, *call(D.FLOAT16)["query"].shape[1:]))}
            for name, call in CALLS.items()
        },
        breaks={
            "present": lambda o, name: Break({name: None}, "an object"),
            "null": lambda o, name: Break({name: T(D.INT32, (2, 4))}, "expected null"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16", D.FLOAT16),
            "allowed value": _allowed,
            "one layout": lambda o, name: Break({name: "TND" if o.name == BACKWARD else "BNSD"}, "as qInputLayout"),
            "at least two numbers, the first two above 0": lambda o, name: Break({name: (8,)}, "at least two numbers"),
            "blocks of keys": lambda o, name: Break({name: (8, 64)}, "a multiple of 128"),
            "precision of the type": lambda o, name: Break({name: 1}, "0 or 4", D.BF16),
            "dimensions of the layout": lambda o, name: Break(shape((2, 9), name), "dimensions ("),
            "samples and heads": lambda o, name: Break(
                shape((450, 3, SIZE) if o.name == FORWARD else (2, 3, KEY_ROOM, SIZE), name), "a divisor of its heads"
            ),
            "lengths of samples": lambda o, name: Break({name: (20, 301)}, "lengths "),
            "… (heads of key)": lambda o, name: Break({name: 1}, "2 (heads of key)"),
            **{
                title: lambda o, name: Break(shape(_other(o, name), name), "shape [")
                for title in (
                    *("shape is a number for each block", "shape is a sum for each query"),
                    *(f"same shape as {of}" for of in ("query", "key", "value")),
                )
            },
        },
        numbers=lambda operator, name, array: MASK if name == "blockSparseMaskOptional" else array / 4,
        terms=8,
        code=NO_KERNEL,
        codes={"one layout": INVALID, "at least two numbers, the first two above 0": INVALID},
    )

    def test_every_check_rejects(self, operator: Any, check: Any, title: str, name: str) -> None:
        """The same check has different codes for different arguments."""
        codes, before = self.subject.codes, title.endswith(("data type", "as query", "allowed value")) and name in EARLY
        null = NO_KERNEL if name in NEEDED[operator.name] else NULL
        own = {title: INVALID} if before else {"present": null}
        object.__setattr__(self.subject, "codes", {**codes, **own})
        super().test_every_check_rejects(operator, check, title, name)
        object.__setattr__(self.subject, "codes", codes)


@pytest.mark.parametrize("layout", ["TND", "BNSD"])
def test_gradients_of_block_sparse_attention_match_pytorch(layout: str) -> None:
    random, call = np.random.default_rng(6), _backward(D.FLOAT16, layout)
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    given = [torch.tensor(arrays[name]).double().requires_grad_() for name in ("query", "key", "value")]
    found, sums = attention(*given)
    gradients = torch.autograd.grad((found * torch.tensor(arrays["dout"]).double()).sum(), given)
    arrays |= {
        "attentionOut": found.detach().numpy().astype(np.float16),
        "softmaxLse": sums.float().numpy(),
        "blockSparseMaskOptional": MASK,
    }
    results = computed(BACKWARD, call | arrays)
    for out, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
        np.testing.assert_allclose(results[out], gradient.nan_to_num(), 4e-3, 1e-2, err_msg=out)


@pytest.mark.parametrize("lengths", [None, (5, 6, 7)])
def test_samples_without_lengths_have_all_their_tokens(lengths: Any) -> None:
    """So have those with lengths of another number of samples; no sum is written where none is asked for."""
    random, call = np.random.default_rng(6), _tensors(D.FLOAT16, "BNSD")
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    arrays["blockSparseMaskOptional"] = MASK
    changes = {"actualSeqLengthsOptional": lengths, "actualSeqLengthsKvOptional": lengths, "softmaxLseFlag": 0}
    results = computed(FORWARD, call | arrays | changes | {"softmaxLseOptional": None})
    given = [torch.tensor(arrays[name]).double() for name in ("query", "key", "value")]
    found, _ = attention(*given, ((ROOM, ROOM), (KEY_ROOM, KEY_ROOM)))
    np.testing.assert_allclose(results["attentionOut"], found, 2e-3, 2e-3)
