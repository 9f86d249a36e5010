"""Attention of pairs by paths, compared with PyTorch's sums over all indices in float64, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators.library.attention import floyd_attention
from tests.cases.table import INVALID, TILING, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, computed, torch, wide

FORWARD, BACKWARD = "fused_floyd_attention", "fused_floyd_attention_grad"
B, H, N, M, K, SIZE, SCALE = 1, 2, 16, 128, 128, 32, 0.2
QUERY, FIRST, SECOND, STATISTIC = (B, H, N, M, SIZE), (B, H, N, K, SIZE), (B, H, K, M, SIZE), (B, H, N, M, 8)


def _tensors(d: D) -> Arguments:
    shapes = {"query": QUERY, "key1": FIRST, "value1": FIRST, "key2": SECOND, "value2": SECOND}
    return {name: T(d, of) for name, of in shapes.items()} | {"attenMaskOptional": T(D.BOOL, (B, 1, N, 1, K))}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    FORWARD: lambda d: {
        **_tensors(d),
        "scaleValueOptional": SCALE,
        "softmaxMaxOut": T(D.FLOAT, STATISTIC),
        "softmaxSumOut": T(D.FLOAT, STATISTIC),
        "attentionOutOut": T(d, QUERY),
    },
    BACKWARD: lambda d: {
        **_tensors(d),
        **{name: T(d, QUERY) for name in ("dy", "attentionIn", "dqOut")},
        **{name: T(D.FLOAT, STATISTIC) for name in ("softmaxMax", "softmaxSum")},
        **{name: T(d, FIRST) for name in ("dk1Out", "dv1Out")},
        **{name: T(d, SECOND) for name in ("dk2Out", "dv2Out")},
        "scaleValue": SCALE,
    },
}


def attention(query: Any, key1: Any, value1: Any, key2: Any, value2: Any, mask: Any) -> tuple[Any, Any, Any]:
    scores = torch.einsum("bhikc,bhijc->bhikj", query, key1) + torch.einsum("bhikc,bhjkc->bhikj", query, key2)
    scores = scores * SCALE
    if mask is not None:
        scores = scores.masked_fill(mask != 0, torch.finfo(torch.float32).min)
    largest, shares = scores.amax(-1), scores.softmax(-1)
    found = torch.einsum("bhikj,bhijc->bhikc", shares, value1) + torch.einsum("bhikj,bhjkc->bhikc", shares, value2)
    return found, largest, (scores - largest[..., None]).exp().sum(-1)


def _forward(a: Mapping[str, Any]) -> Any:
    given = [wide(a[name]) for name in ("query", "key1", "value1", "key2", "value2")]
    found, *statistics = attention(*given, a["attenMaskOptional"])
    return *(each[..., None].expand(STATISTIC) for each in statistics), found


def _other(o: Any, name: str) -> tuple[int, ...]:
    of = CALLS[o.name](D.FLOAT16)[name].shape
    return (*of[:-1], of[-1] + 1)


class TestFloydAttention(LibraryTests):
    subject = Subject(
        floyd_attention.OPERATORS,
        calls=CALLS,
        references={FORWARD: _forward},
        elsewhere=(BACKWARD,),
        default=(D.FLOAT16, D.BF16),
        empty={
            FORWARD: CALLS[FORWARD](D.FLOAT16)
            | {name: T(D.FLOAT, (0, *STATISTIC[1:])) for name in ("softmaxMaxOut", "softmaxSumOut")}
            | {"attentionOutOut": T(D.FLOAT16, (0, *QUERY[1:]))},
            BACKWARD: CALLS[BACKWARD](D.FLOAT16)
            | {name: T(D.FLOAT16, (0, 3)) for name in ("dqOut", "dk1Out", "dv1Out", "dk2Out", "dv2Out")},
        },
        breaks={
            "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
            "data type": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_UINT8 or ACL_BOOL"),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "5 dimensions": lambda o, name: Break(shape((2, 16, 128, 32), name), "5 dimensions"),
            "extents with a kernel": lambda o, name: Break(shape((B, H, N, 64, SIZE), name), "multiples of 16 and 128"),
            **{
                title: lambda o, name: Break(shape(_other(o, name), name), "shape [")
                for title in (
                    *("with query", "shape is with query", "shape is of rows and paths"),
                    "of rows and paths, or of scores",
                    "shape is eight for each query",
                    *(f"same shape as {of}" for of in ("query", "key1", "value1", "key2", "value2")),
                )
            },
        },
        numbers=lambda operator, name, array: array / 16 if array.dtype != bool else array,
        code=TILING,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID),
        terms=8,
    )


@pytest.mark.parametrize("is_masked", [False, True])
def test_gradients_of_floyd_attention_match_pytorch(is_masked: bool) -> None:
    random, call = np.random.default_rng(6), CALLS[BACKWARD](D.FLOAT16)
    arrays = {
        name: (random.normal(size=each.shape) / 4).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    mask = random.random((B, 1, N, 1, K)) < 0.3
    mask[:, :, 0] = True
    given = [
        torch.tensor(arrays[name]).double().requires_grad_() for name in ("query", "key1", "value1", "key2", "value2")
    ]
    found, largest, total = attention(*given, torch.tensor(mask) if is_masked else None)
    gradients = torch.autograd.grad((found * torch.tensor(arrays["dy"]).double()).sum(), given)
    arrays |= {"attentionIn": found.detach().numpy().astype(np.float16)}
    statistics = {"softmaxMax": largest, "softmaxSum": total}
    arrays |= {
        name: each.detach()[..., None].expand(STATISTIC).float().numpy().copy() for name, each in statistics.items()
    }
    arrays["attenMaskOptional"] = mask
    absent = {} if is_masked else {"attenMaskOptional": None}
    results = computed(BACKWARD, call | arrays | absent)
    for out, gradient in zip(("dqOut", "dk1Out", "dv1Out", "dk2Out", "dv2Out"), gradients, strict=True):
        np.testing.assert_allclose(results[out], gradient, 4e-3, 1e-3, err_msg=out)


def test_each_score_may_have_a_mask_of_its_own() -> None:
    random, call = np.random.default_rng(8), CALLS[FORWARD](D.FLOAT16)
    arrays = {
        name: (random.normal(size=each.shape) / 4).astype(each.dtype.numpy)
        for name, each in call.items()
        if isinstance(each, T)
    }
    arrays["attenMaskOptional"] = mask = random.random((*QUERY[:4], K)) < 0.3
    given = [torch.tensor(arrays[name]).double() for name in ("query", "key1", "value1", "key2", "value2")]
    results = computed(FORWARD, call | arrays)
    np.testing.assert_allclose(results["attentionOutOut"], attention(*given, torch.tensor(mask))[0], 4e-3, 1e-3)
