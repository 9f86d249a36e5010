"""Attention to selected blocks of keys, compared with PyTorch over each query's keys in float64, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.operators.library.attention import selected_attention
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch, wide

FORWARD, BACKWARD = "nsa_selected_attention", "nsa_selected_attention_grad"
HEADS, SHARED, SIZE, WIDTH, BLOCK, COUNT, SCALE = 4, 2, 24, 16, 16, 2, 0.3
ENDS, KEY_ENDS = (20, 50), (48, 80)
NUMBERS = np.random.default_rng(8).integers(0, 3, (50, SHARED, COUNT)).astype(np.int32)
NUMBERS[:, :, 0] = 0
NUMBERS[20:] %= 2


def _tensors(d: D) -> Arguments:
    return {
        "query": T(d, (50, HEADS, SIZE)),
        "key": T(d, (80, SHARED, SIZE)),
        "value": T(d, (80, SHARED, WIDTH)),
        "topkIndices": T(D.INT32, NUMBERS.shape),
        "attenMaskOptional": T(D.BOOL, (50, 80)),
        "actualSeqQLenOptional": ENDS,
        "actualSeqKvLenOptional": KEY_ENDS,
        "scaleValue": SCALE,
        "headNum": HEADS,
        "inputLayout": "TND",
        "sparseMode": 2,
        "selectedBlockSize": BLOCK,
        "selectedBlockCount": COUNT,
        "attentionOut": T(d, (50, HEADS, WIDTH)),
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    FORWARD: lambda d: _tensors(d) | {name: T(D.FLOAT, (50, HEADS, 8)) for name in ("softmaxMaxOut", "softmaxSumOut")},
    BACKWARD: lambda d: {
        **_tensors(d),
        "attentionOutGrad": T(d, (50, HEADS, WIDTH)),
        **{name: T(D.FLOAT, (50, HEADS, 8)) for name in ("softmaxMax", "softmaxSum")},
        "dqOut": T(d, (50, HEADS, SIZE)),
        "dkOut": T(d, (80, SHARED, SIZE)),
        "dvOut": T(d, (80, SHARED, WIDTH)),
    },
}


def attention(query: Any, key: Any, value: Any, is_causal: bool) -> tuple[Any, Any, Any]:
    rows = []
    for begin, end, first in ((0, 20, 0), (20, 50, 48)):
        for row in range(begin, end):
            for head in range(HEADS):
                shared = head * SHARED // HEADS
                own = [int(at) * BLOCK + place for at in NUMBERS[row, shared] for place in range(BLOCK)]
                own = [first + at for at in own if not is_causal or at <= row - begin]
                scores = key[own, shared] @ query[row, head] * SCALE
                top = scores.detach().max()
                rows.append((scores.softmax(0) @ value[own, shared], top, (scores - top).exp().sum().detach()))
    return tuple(torch.stack([row[at] for row in rows]).unflatten(0, (50, HEADS)) for at in range(3))


def _forward(a: Mapping[str, Any]) -> Any:
    found, *statistics = attention(*(wide(a[name]) for name in ("query", "key", "value")), is_causal=True)
    return *(each[..., None].expand(-1, -1, 8) for each in statistics), found


def _other(o: Any, name: str) -> tuple[int, ...]:
    of = CALLS[o.name](D.FLOAT16)[name].shape
    return (of[0] + 1, *of[1:])


TYPES = ("data type", "same data type as query", "elements of heads", "allowed value", "3 dimensions")


def _subject(at: int, early: tuple[str, ...]) -> Subject:
    operator = selected_attention.OPERATORS[at]
    call = CALLS[operator.name](D.FLOAT16)
    nothing = ("softmaxMaxOut", "softmaxSumOut", "attentionOut") if at == 0 else ("query",)
    return Subject(
        (operator,),
        calls=CALLS,
        references={FORWARD: _forward},
        elsewhere=(BACKWARD,),
        default=(D.FLOAT16, D.BF16),
        empty={operator.name: call | {name: call[name]._replace(shape=(0, *call[name].shape[1:])) for name in nothing}},
        breaks={
            "present": lambda o, name: Break({name: None}, "an object"),
            "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
            "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16"),
            "3 dimensions": lambda o, name: Break(shape((50, 96), name), "3 dimensions"),
            "2 dimensions": lambda o, name: Break(shape((50, 80, 1), name), "2 dimensions"),
            "elements of heads": lambda o, name: Break(shape((50, HEADS, 8), name), "up to 768 elements"),
            "allowed value": lambda o, name: Break(
                {name: "BSND" if "L" in name else 1}, "'TND'" if "L" in name else "0 or 2"
            ),
            "blocks with a kernel": lambda o, name: Break({name: 24}, "a multiple of 16 up to 128"),
            "heads": lambda o, name: Break({name: 3}, "the heads of query"),
            "ends of sequences": lambda o, name: Break({name: (50, 20)}, "rising numbers up to"),
            **{
                title: lambda o, name: Break(shape(_other(o, name), name), "shape [")
                for title in (
                    *("shape is rows and heads of key", "shape is numbers for each head of keys"),
                    *("shape is of the attention", "shape is eight for each head"),
                    *(f"same shape as {of}" for of in ("query", "key", "value")),
                )
            },
        },
        numbers=lambda operator, name, array: (
            NUMBERS if name == "topkIndices" else array if array.dtype == bool else array / 4
        ),
        terms=8,
        code=NO_KERNEL,
        codes=dict.fromkeys(early, INVALID) | {"present": NULL},
    )


class TestSelectedAttention(LibraryTests):
    subject = _subject(0, TYPES)

    def test_every_check_rejects(self, operator: Any, check: Any, title: str, name: str) -> None:
        """A mode without a kernel has another code than a layout."""
        codes = {**self.subject.codes, **({title: NO_KERNEL} if name == "sparseMode" else {})}
        object.__setattr__(self.subject, "codes", codes)
        super().test_every_check_rejects(operator, check, title, name)
        object.__setattr__(self.subject, "codes", codes | dict.fromkeys(TYPES, INVALID))


class TestGradients(LibraryTests):
    subject = _subject(1, TYPES[:2])


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_selected_attention_match_pytorch(is_causal: bool) -> None:
    random, call = np.random.default_rng(6), CALLS[BACKWARD](D.FLOAT16)
    arrays = {
        name: random.normal(size=each.shape).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    given = [torch.tensor(arrays[name]).double().requires_grad_() for name in ("query", "key", "value")]
    found, *statistics = attention(*given, is_causal)
    gradients = torch.autograd.grad((found * torch.tensor(arrays["attentionOutGrad"]).double()).sum(), given)
    arrays |= {"attentionOut": found.detach().numpy().astype(np.float16), "topkIndices": NUMBERS}
    for name, each in zip(("softmaxMax", "softmaxSum"), statistics, strict=True):
        arrays[name] = each[..., None].expand(-1, -1, 8).float().numpy().copy()
    absent = {} if is_causal else {"attenMaskOptional": None}
    results = computed(BACKWARD, call | arrays | absent)
    for out, gradient in zip(("dqOut", "dkOut", "dvOut"), gradients, strict=True):
        np.testing.assert_allclose(results[out], gradient, 4e-3, 1e-2, err_msg=out)
    with pytest.raises(AclnnError, match="topkIndices: expected keys of its sequence from 0 to 47, got 48"):
        computed(BACKWARD, call | arrays | {"topkIndices": np.full_like(NUMBERS, 3)})
