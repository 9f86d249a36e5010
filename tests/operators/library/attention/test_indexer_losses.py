"""Losses of indexers of keys, compared with PyTorch's divergences of distributions and their gradients in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.execution.executor import prepare
from tests.cases.table import INVALID, TILING, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    computed,
    described,
    torch,
    wide,
)

LSE, DENSE = "dense_lightning_indexer_softmax_lse", "dense_lightning_indexer_grad_kl_loss"
SPARSE, WITH_SINK = "sparse_lightning_indexer_grad_kl_loss", "sparse_lightning_indexer_grad_kl_loss_v2"
B, QUERIES, KEYS, HEADS, INDEX_HEADS, SCALE, COUNT = 2, 3, 5, 32, 8, 0.05, 4
ANY = 2**63 - 1
CHOSEN = np.array([[2, 0, -1, 1], [3, 1, 0, -1], [4, 0, 2, 1]], np.int32)[None, :, None].repeat(B, 0)
STATISTICS, INDEX_STATISTICS = ("softmaxMax", "softmaxSum"), ("softmaxMaxIndex", "softmaxSumIndex")


def _indexer(d: D, weights: str) -> Arguments:
    return {
        "queryIndex": T(d, (B, QUERIES, INDEX_HEADS, 128)),
        "keyIndex": T(d, (B, KEYS, 1, 128)),
        weights: T(d, (B, QUERIES, INDEX_HEADS)),
    }


MASK = {"sparseMode": 3, "preTokens": ANY, "nextTokens": ANY}


def _lse(d: D) -> Arguments:
    statistics = {name: T(D.FLOAT, (B, 1, QUERIES)) for name in ("softmaxMaxOut", "softmaxSumOut")}
    lengths = dict.fromkeys(("actualSeqLengthsQueryOptional", "actualSeqLengthsKeyOptional"))
    return _indexer(d, "weight") | statistics | lengths | MASK | {"layoutOptional": "BSND"}


def _attention(d: D, size: int, heads: int) -> Arguments:
    return {"query": T(d, (B, QUERIES, HEADS, size)), "key": T(d, (B, KEYS, heads, size))}


def _dense(d: D) -> Arguments:
    indexer = _indexer(d, "weights")
    outs = dict(zip(("dQueryIndex", "dKeyIndex", "dWeights"), indexer.values(), strict=True))
    return {
        **_attention(d, 128, HEADS),
        **indexer,
        **{name: T(D.FLOAT, (B, HEADS, QUERIES, 1)) for name in STATISTICS},
        **{name: T(D.FLOAT, (B, 1, QUERIES)) for name in INDEX_STATISTICS},
        "queryRope": T(d, (B, QUERIES, HEADS, 64)),
        "keyRope": T(d, (B, KEYS, HEADS, 64)),
        **dict.fromkeys(("actualSeqLengthsQuery", "actualSeqLengthsKey")),
        "scaleValue": SCALE,
        "layout": "BSND",
        **MASK,
        **outs,
        "loss": T(D.FLOAT, (1,)),
    }


def _sparse(d: D) -> Arguments:
    indexer = _indexer(d, "weight")
    outs = dict(zip(("dQueryIndex", "dKeyIndex", "dWeight"), indexer.values(), strict=True))
    return {
        **_attention(d, 512, 1),
        **indexer,
        "sparseIndices": T(D.INT32, CHOSEN.shape),
        **{name: T(D.FLOAT, (B, 1, QUERIES, HEADS)) for name in STATISTICS},
        "queryRopeOptional": T(d, (B, QUERIES, HEADS, 64)),
        "keyRopeOptional": T(d, (B, KEYS, 1, 64)),
        **dict.fromkeys(("actualSeqLengthsQueryOptional", "actualSeqLengthsKeyOptional")),
        "scaleValue": SCALE,
        "layout": "BSND",
        **MASK,
        "deterministic": True,
        **outs,
        "loss": T(D.FLOAT, (1,)),
    }


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    LSE: _lse,
    DENSE: _dense,
    SPARSE: _sparse,
    WITH_SINK: lambda d: _sparse(d) | {"sinksOptional": None},
}


def index_scores(query: Any, key: Any, weights: Any) -> Any:
    """(queries, keys) of one sample."""
    return torch.stack([weights[q] @ (query[q] @ key[:, 0].T).relu() for q in range(len(query))])


def _lse_reference(a: Mapping[str, Any]) -> Any:
    largest, total = torch.zeros(B, 1, QUERIES).double(), torch.zeros(B, 1, QUERIES).double()
    for b in range(B):
        scores = index_scores(*(wide(a[name][b]) for name in ("queryIndex", "keyIndex", "weight")))
        for q in range(QUERIES):
            own = scores[q, : KEYS - QUERIES + q + 1]
            largest[b, 0, q] = own.max()
            total[b, 0, q] = own.logsumexp(0).sub(own.max()).exp()
    return largest, total


def _shapes(o: Any, name: str) -> tuple[int, ...]:
    of = CALLS[o.name](D.FLOAT16)[name].shape
    return (*of[:-1], of[-1] + 1)


def _packed(o: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes that make a call one of packed sequences, with a violation."""
    changes: dict[str, Any] = {}
    for name, value in CALLS[o.name](D.FLOAT16).items():
        if isinstance(value, T) and len(value.shape) > 2:
            first = value.shape[1] * B if name in ("key", "keyIndex", "keyRope", "keyRopeOptional", "dKeyIndex") else 6
            is_statistic = name.startswith("softmax")
            changes[name] = value._replace(
                shape=(value.shape[1], 6, *value.shape[3:]) if is_statistic else (first, *value.shape[2:])
            )
        elif "ayout" in name:
            changes[name] = "TND"
        elif name.startswith("actual"):
            changes[name] = (3, 6) if "Query" in name else (5, 10)
    return changes | dict(change)


def _sink(change: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sinksOptional": T(D.FLOAT, (HEADS,))} | change


BREAKS: Mapping[str, Breaking] = {
    "data types that go together": lambda o, name: Break(dtype(D.DOUBLE, name), "data type"),
    "format that counts as ND": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "same data type as query": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT16"),
    "data type": lambda o, name: Break(_sink({name: T(D.FLOAT16, (HEADS,))}), "ACL_FLOAT", product=Product.ASCEND_950),
    "null": lambda o, name: Break({name: T(D.FLOAT, (HEADS,))}, "null"),
    "allowed value": lambda o, name: Break(
        {name: "SBH" if "ayout" in name else 0}, "'BSND' or 'TND'" if "ayout" in name else "3"
    ),
    "dimensions of the layout": lambda o, name: Break(shape((2, 3, 128), name), "4 dimensions (BSND)"),
    "ends of sequences": lambda o, name: Break(_packed(o, {name: (4, 3)}), "rising numbers up to"),
    "heads": lambda o, name: Break(shape((B, QUERIES, 4, 128), name), "8, 16, 32 or 64 heads"),
    "one head": lambda o, name: Break(shape((B, KEYS, 2, 128), name), "a head of 128"),
    "heads of attention": lambda o, name: Break(shape((B, QUERIES, 16, 128), name), "32, 64 or 128 heads"),
    "both or none": lambda o, name: Break({name: None}, "with the other one"),
    "some numbers for each query": lambda o, name: Break(shape((B, QUERIES, 1, 0), name), "[2, 3, 1, …]"),
    "shape is one for each head of query": lambda o, name: Break(
        _sink({name: T(D.FLOAT, (3,))}), "[32]", product=Product.ASCEND_950
    ),
    **{
        title: lambda o, name: Break(shape(_shapes(o, name), name), "shape [")
        for title in (
            *("shape is one for each head", "shape is heads for each key", "with a head", "shape is a number"),
            *("shape is one for each head of attention", "shape is one for each query"),
            *(f"same shape as {of}" for of in ("queryIndex", "keyIndex", "weight", "weights")),
        )
    },
}


def _subject(name: str, reference: Callable[[Mapping[str, Any]], Any] | None = None) -> Subject:
    call = CALLS[name](D.FLOAT16)
    # The loss of a call without tokens is a number: only all outputs together are nothing.
    outs = {out.name: call[out.name]._replace(shape=(0, *call[out.name].shape[1:])) for out in BY_NAME[name].outputs}
    return Subject(
        (BY_NAME[name],),
        calls=CALLS,
        references={} if reference is None else {name: reference},
        elsewhere=() if reference else (name,),
        default=(D.FLOAT16, D.BF16),
        empty={name: call | outs},
        breaks=BREAKS,
        numbers=lambda operator, name, array: CHOSEN if name == "sparseIndices" else array / 4,
        terms=16,
        code=TILING,
        codes=dict.fromkeys(("data types that go together", "format that counts as ND"), INVALID)
        | {"null": ACLNN_ERR_RUNTIME_ERROR},
    )


class TestSoftmaxOfIndexer(LibraryTests):
    subject = _subject(LSE, _lse_reference)


class TestDenseLoss(LibraryTests):
    subject = _subject(DENSE)


class TestSparseLoss(LibraryTests):
    subject = _subject(SPARSE)


class TestSparseLossWithSinks(LibraryTests):
    subject = _subject(WITH_SINK)


@pytest.mark.parametrize("name", [DENSE, SPARSE, WITH_SINK])
@pytest.mark.parametrize("has_ropes", [False, True])
@pytest.mark.parametrize("weight", [D.FLOAT16, D.FLOAT])
def test_losses_and_gradients_match_pytorch(name: str, has_ropes: bool, weight: D) -> None:
    random, call = np.random.default_rng(11), CALLS[name](D.FLOAT16)
    operator, weights = BY_NAME[name], "weights" if name == DENSE else "weight"
    call |= {each: call[each]._replace(dtype=weight) for each in (weights, f"d{weights.title()}")}
    ropes = ("queryRope", "keyRope") if name == DENSE else ("queryRopeOptional", "keyRopeOptional")
    arrays = {
        key: (random.normal(size=x.shape) / 3).astype(x.dtype.numpy) for key, x in call.items() if isinstance(x, T)
    }
    if not has_ropes:
        call |= dict.fromkeys(ropes)
        arrays = {key: x for key, x in arrays.items() if key not in ropes}
    tensors = {key: wide(torch.from_numpy(x)) for key, x in arrays.items()}
    query, key = (
        torch.cat((tensors[of], tensors[rope]), -1) if has_ropes else tensors[of]
        for of, rope in zip(("query", "key"), ropes, strict=True)
    )
    sink = wide(torch.linspace(-1, 1, HEADS)) if name == WITH_SINK else None
    given = [tensors[each].requires_grad_() for each in ("queryIndex", "keyIndex", weights)]
    tops, sums = torch.zeros(B, QUERIES, HEADS).double(), torch.zeros(B, QUERIES, HEADS).double()
    of_indexer = torch.zeros(2, B, QUERIES).double()
    loss: Any = 0
    for b in range(B):
        scores_of_indexer = index_scores(*(each[b] for each in given))
        for q in range(QUERIES):
            own = [*range(KEYS - QUERIES + q + 1)]
            if name != DENSE:
                numbers = CHOSEN[b, q, 0, : len(own)]
                own = [int(at) for at in numbers[: (numbers < 0).argmax() if (numbers < 0).any() else None]]
            keys = key[b, own].expand(-1, HEADS, -1)
            scores = torch.einsum("nd,knd->nk", query[b, q], keys) * SCALE
            whole = scores if sink is None else torch.cat((scores, sink[:, None]), 1)
            tops[b, q] = whole.max(1).values
            sums[b, q] = (whole - tops[b, q][:, None]).exp().sum(1)
            shares = torch.nn.functional.normalize(whole.softmax(1)[:, : len(own)].sum(0), p=1, dim=0)
            found = scores_of_indexer[q, own]
            of_indexer[:, b, q] = torch.stack((found.max(), (found - found.max()).exp().sum())).detach()
            loss = loss + torch.nn.functional.kl_div(found.log_softmax(0), shares, reduction="sum")
    expected = torch.autograd.grad(loss, given)
    statistics = [each.permute(0, 2, 1)[..., None] if name == DENSE else each[:, None] for each in (tops, sums)]
    arrays |= {each: x.float().numpy() for each, x in zip(STATISTICS, statistics, strict=True)}
    if name == DENSE:
        arrays |= {each: x[:, None].float().numpy() for each, x in zip(INDEX_STATISTICS, of_indexer, strict=True)}
    else:
        arrays["sparseIndices"] = CHOSEN
    if sink is not None:
        arrays["sinksOptional"] = sink.float().numpy()
    product = Product.ATLAS_A2 if sink is None else Product.ASCEND_950
    found = computed(name, call | arrays, product)
    np.testing.assert_allclose(found["loss"][0], loss.item(), rtol=1e-4)
    changes = _packed(operator, {})
    packed = {key: np.ascontiguousarray(x) for key, x in arrays.items()}
    for key, x in arrays.items():
        if key.startswith("softmax"):
            packed[key] = np.ascontiguousarray(np.moveaxis(x, 0, 1)).reshape(x.shape[1], -1, *x.shape[3:])
        elif x.ndim > 2:
            packed[key] = x.reshape(-1, *x.shape[2:])
    texts = {key: value for key, value in changes.items() if not isinstance(value, T)}
    of_packed = computed(name, call | texts | packed, product)
    np.testing.assert_array_equal(of_packed["loss"], found["loss"])
    for out, gradient in zip([each.name for each in operator.outputs], expected, strict=False):
        np.testing.assert_allclose(found[out], gradient, 2e-3, 1e-3, err_msg=out)
        np.testing.assert_array_equal(of_packed[out].reshape(found[out].shape), found[out])


def test_ascend_950_accepts_further_numbers_of_heads() -> None:
    def heads(of_query: int, of_indexer: int) -> Arguments:
        changed = {HEADS: of_query, INDEX_HEADS: of_indexer}
        return {
            key: x._replace(shape=tuple(changed.get(at, at) for at in x.shape)) if isinstance(x, T) else x
            for key, x in _sparse(D.FLOAT16).items()
        }

    prepare(BY_NAME[SPARSE], described(heads(48, 24)), Product.ASCEND_950)
    for numbers, product in (
        ((48, 24), Product.ATLAS_A2),
        ((48, 8), Product.ASCEND_950),
        ((32, 24), Product.ASCEND_950),
    ):
        with pytest.raises(AclnnError, match=r": expected .* heads of"):
            prepare(BY_NAME[SPARSE], described(heads(*numbers)), product)
