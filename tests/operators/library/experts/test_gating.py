"""Choosing experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import gating
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    torch,
)

GATE, SECOND, GROUPS = "moe_gating_top_k_softmax", "moe_gating_top_k_softmax_v2", "moe_gating_top_k"
TABLE = "moe_gating_top_k_v2"
SHARES = "softmaxResultOutOptional"
GATED = ("yOut", "expertIdxOut", "rowIdxOut")


def _gate(x: T, k: int) -> Arguments:
    rows = x.shape[:-1]
    # Atlas inference takes only float16, and no flags.
    finished = None if x.dtype == D.FLOAT16 else T(D.BOOL, rows)
    outs = dict.fromkeys(GATED, T(D.INT32, (*rows, k))) | {"yOut": T(x.dtype, (*rows, k))}
    return {"x": x, "finishedOptional": finished, "k": k, **outs}


def _gated(a: Mapping[str, Any]) -> Any:
    x, k, finished = a["x"].double(), a["k"], a["finishedOptional"]
    values, experts = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
    experts = experts[..., :k]
    rows = experts.numel() // k
    places = torch.arange(rows * k).reshape(k, rows).T.reshape(experts.shape)
    return (
        values[..., :k],
        experts if finished is None else torch.where(finished[..., None], x.shape[-1], experts),
        places,
    )


def _second(d: D) -> Arguments:
    call = {name: value for name, value in _gate(T(d, (5, 16)), 3).items() if name != "rowIdxOut"}
    finished = {"finishedOptional": T(D.BOOL, (5,))}
    return call | finished | {"renorm": 0, "outputSoftmaxResultFlag": True, SHARES: T(D.FLOAT, (5, 16))}


def _groups(d: D, rows: int = 5) -> Arguments:
    return {
        "x": T(d, (rows, 16)),
        "biasOptional": T(d, (16,)),
        "k": 3,
        "kGroup": 2,
        "groupCount": 4,
        "groupSelectMode": 1,
        "renorm": 0,
        "normType": 1,
        "outFlag": True,
        "routedScalingFactor": 2.5,
        "eps": 1e-20,
        "yOut": T(d, (rows, 3)),
        "expertIdxOut": T(D.INT32, (rows, 3)),
        "outOut": T(D.FLOAT, (rows, 16)),
    }


def _beside_table(d: D) -> Arguments:
    """Three keys, all groups."""
    table = {"inputIdsOptional": T(D.INT64, (5,)), "tid2eidOptional": T(D.INT32, (3, 3))}
    return _groups(d) | table | {"kGroup": 4}


def _from_table(a: Mapping[str, Any]) -> Any:
    scores = a["x"].double().sigmoid()
    experts = a["tid2eidOptional"].long()[a["inputIdsOptional"]]
    y = scores.gather(-1, experts)
    return y / (y.sum(-1, keepdim=True) + a["eps"]) * a["routedScalingFactor"], experts, scores


def _of_groups(a: Mapping[str, Any]) -> Any:
    """DeepSeek's gate, by PyTorch's functions."""
    x, bias = a["x"].double(), a["biasOptional"]
    norms = (lambda x: x.softmax(-1), torch.sigmoid, lambda x: torch.nn.functional.softplus(x).sqrt())
    scores = norms[a["normType"]](x)
    values = scores if bias is None else scores + bias.double()
    groups = values.unflatten(-1, (a["groupCount"], -1))
    best = groups.topk(2, -1).values.sum(-1) if a["groupSelectMode"] else groups.amax(-1)
    kept = torch.zeros_like(best).scatter(-1, best.topk(a["kGroup"], -1).indices, 1.0).bool()
    experts = groups.masked_fill(~kept[..., None], -torch.inf).flatten(-2).topk(a["k"], -1).indices
    y = scores.gather(-1, experts)
    if a["normType"] or a["renorm"]:
        y = y / (y.sum(-1, keepdim=True) + a["eps"])
    return y * a["routedScalingFactor"], experts, scores


class TestGating(LibraryTests):
    subject = Subject(
        gating.OPERATORS,
        calls={GATE: lambda d: _gate(T(d, (5, 16)), 3), SECOND: _second, GROUPS: _groups, TABLE: _beside_table},
        references={
            GATE: _gated,
            SECOND: lambda a: (*_gated(a)[:2], a["x"].double().softmax(-1)),
            GROUPS: _of_groups,
            TABLE: _from_table,
        },
        default=TRAINED,
        empty={
            GATE: _gate(T(D.FLOAT, (0, 16)), 3),
            SECOND: {
                **{name: {"shape": (0, 3)} for name in GATED[:2]},
                **{name: {"shape": (0, 16)} for name in ("x", SHARES)},
                "finishedOptional": {"shape": (0,)},
            },
            GROUPS: _groups(D.FLOAT, 0),
            TABLE: _groups(D.FLOAT, 0) | {"inputIdsOptional": None, "tid2eidOptional": None},
        },
        breaks={
            "same data type as x": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
            "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
            "null": lambda o, name: Break({name: T(D.BOOL, (5,))}, "null", D.FLOAT16, Product.ATLAS_INFERENCE),
            "2 to 3 dimensions": lambda o, name: Break(shape((16,), name), "2 to 3"),
            "at most 2147483647 in a dimension": lambda o, name: Break(shape((2**31, 16), name), "2147483647"),
            "as many experts as the product takes": lambda o, name: Break(
                shape((5, 2049), name), "2048", product=Product.ASCEND_950
            ),
            "shape … (the rows of x)": lambda o, name: Break(shape((4,), name), "[5]"),
            "among the experts": lambda o, name: Break({name: 17}, "from 0 to 16"),
            "data types that go together": lambda o, name: Break(
                dtype(D.DOUBLE if name == "x" else D.INT16, name), "ACL_"
            ),
            "format that counts as ND": lambda o, name: Break(
                {name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"
            ),
            "allowed value": lambda o, name: Break({name: 3}, "0, 1 or 2" if name == "normType" else "0 or 1"),
            "as x": lambda o, name: Break(shape((5, 15), name), "[5, 16]"),
            "2 dimensions": lambda o, name: Break(shape((5, 16, 1), name), "2 dimensions"),
            "1 to 2048 experts": lambda o, name: Break(shape((5, 2049), name), "1 to 2048"),
            "shape is one for each expert": lambda o, name: Break(shape((15,), name), "[16]"),
            "groups of experts": lambda o, name: Break({name: 3}, "a divisor of 16"),
            "one group": lambda o, name: Break({"normType": 2}, "expected 1 with normType 2"),
            "at most 64 with a table": lambda o, name: Break(
                {"k": 65, **shape((5, 132), "x", "outOut"), **shape((132,), "biasOptional")}
                | shape((5, 65), "yOut", "expertIdxOut"),
                "at most 64",
            ),
            "columns of a table": lambda o, name: Break(shape((3, 4), name), "[keys, 3]"),
            "shape is one for each row": lambda o, name: Break(shape((4,), name), "[5]"),
            "groups with a table": lambda o, name: Break({name: 2}, "all groups"),
            "from 1 to …": lambda o, name: Break({name: 5}, "from 1 to 4"),
            "among the experts of groups": lambda o, name: (
                Break({name: 17}, "from 1 to 16") if o.name == TABLE else Break({name: 9}, "from 1 to 8")
            ),
            "same shape as x": lambda o, name: Break(shape((5, 15), name), "[5, 16]"),
            "shape is a place for each chosen": lambda o, name: Break(shape((5, 4), name), "[5, 3]"),
        },
        indices={(TABLE, "inputIdsOptional"): 3, (TABLE, "tid2eidOptional"): 16},
        codes=dict.fromkeys(
            (
                *("one group", "at most 64 with a table", "columns of a table", "shape is one for each row"),
                "groups with a table",
                *(
                    "null",
                    "2 to 3 dimensions",
                    "at most 2147483647 in a dimension",
                    "as many experts as the product takes",
                ),
                *("shape … (the rows of x)", "among the experts", "shape is a place for each chosen"),
                *("allowed value", "as x", "2 dimensions", "1 to 2048 experts", "shape is one for each expert"),
                *("groups of experts", "from 1 to …", "among the experts of groups", "same shape as x"),
            ),
            ACLNN_ERR_INNER_TILING_ERROR,
        ),
    )


def _run_gate(x: Array, finished: Array | None, k: int, product: Product) -> list[Array]:
    placed = [Placed(np.full((*x.shape[:-1], k), 7, kind), "contiguous") for kind in (x.dtype, np.int32, np.int32)]
    given = {"x": Placed(x, "contiguous").tensor, "finishedOptional": None, "k": k}
    if finished is not None:
        given["finishedOptional"] = Placed(finished, "contiguous").tensor
    outs = dict(zip(GATED, (each.tensor for each in placed), strict=True))
    prepare(BY_NAME[GATE], given | outs, product).run()
    return [each.view for each in placed]


def test_rows_of_three_dimensions_are_numbered_in_order() -> None:
    """The document's formula is of two dimensions; among equal scores the first expert goes before."""
    finished = np.array([[False, True], [False, False]])
    shares, experts, places = _run_gate(np.zeros((2, 2, 4), np.float32), finished, 2, Product.ATLAS_A2)
    assert (shares == 0.25).all()
    assert experts.tolist() == [[[0, 1], [4, 4]], [[0, 1], [0, 1]]]
    assert places.tolist() == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]


def test_atlas_inference_numbers_no_rows_and_takes_blocks_of_experts() -> None:
    x = np.arange(32, dtype=np.float16).reshape(2, 16)
    _, experts, places = _run_gate(x, None, 2, Product.ATLAS_INFERENCE)
    assert experts.tolist() == [[15, 14]] * 2
    assert not places.any()
    for other in (x[:, :8], np.tile(x, 17), x[np.newaxis]):
        with pytest.raises(AclnnError, match="x: expected 2 dimensions, a multiple of 16 up to 256"):
            _run_gate(other, None, 2, Product.ATLAS_INFERENCE)


def _run(name: str, x: Array, product: Product = Product.ATLAS_A2, **changes: Any) -> list[Array]:
    """Compute with a call of five rows of float32 that has other numbers and no optional inputs."""
    call = (_second if name == SECOND else _groups)(D.FLOAT) | changes
    call |= {key: None for key in ("finishedOptional", "biasOptional") if key in call}
    placed = {
        key: Placed(np.full(each.shape, 7, each.dtype.numpy), "contiguous")
        for key, each in call.items()
        if isinstance(each, T)
    }
    placed["x"].view[...] = x
    prepare(BY_NAME[name], call | {key: each.tensor for key, each in placed.items()}, product).run()
    return [placed[key].view for key in ("yOut", "expertIdxOut", SHARES if name == SECOND else "outOut")]


def _scores() -> Array:
    return np.random.default_rng(4).normal(size=(5, 16)).astype(np.float32)


def test_the_first_scores_may_be_chosen_before_softmax() -> None:
    x = _scores()
    values, experts = torch.from_numpy(x).double().topk(3)
    y, found, shares = _run(SECOND, x, renorm=1)
    np.testing.assert_allclose(y, values.softmax(-1), rtol=1e-6)
    np.testing.assert_array_equal(found, experts)
    assert (shares == 7).all()
    with pytest.raises(AclnnError, match="softmaxResultOutOptional: expected an object") as caught:
        _run(SECOND, x, **{SHARES: None})
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


@pytest.mark.parametrize("norm", [0, 1, 2])
@pytest.mark.parametrize("renorm", [0, 1])
@pytest.mark.parametrize(("mode", "count", "kept"), [(0, 4, 1), (1, 2, 1), (0, 1, 1), (1, 8, 8)])
def test_gating_matches_its_definition_for_every_norm_and_group_mode(
    norm: int, renorm: int, mode: int, count: int, kept: int
) -> None:
    x = _scores()
    numbers = {"normType": norm, "renorm": renorm, "groupSelectMode": mode, "groupCount": count, "kGroup": kept}
    # With the root of softplus there are groups only on Ascend 950.
    product = Product.ASCEND_950 if norm == 2 else Product.ATLAS_A2
    found = _run(GROUPS, x, product, **numbers)
    expected = _of_groups(_groups(D.FLOAT) | numbers | {"x": torch.from_numpy(x), "biasOptional": None})
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert (_run(GROUPS, x, product, **numbers, outFlag=False)[2] == 7).all()


@pytest.mark.parametrize(
    ("count", "mode", "text"),
    [
        (0, 0, r"expected a divisor of 16 \(the experts\), got 0"),
        (16, 1, r"expected groups of at least 2 experts, rounded up to 32 at most 2048 in all, got 16 of 1"),
    ],
)
def test_invalid_numbers_of_groups_are_rejected(count: int, mode: int, text: str) -> None:
    with pytest.raises(AclnnError, match=f"groupCount: {text}"):
        _run(GROUPS, _scores(), groupCount=count, groupSelectMode=mode)
    many = _groups(D.FLOAT) | {
        "x": Tensor(D.FLOAT, (5, 130)),
        "biasOptional": None,
        "groupCount": 65,
        "groupSelectMode": 0,
    }
    with pytest.raises(AclnnError, match="at most 2048 in all, got 65 of 2"):
        prepare(BY_NAME[GROUPS], described(many), Product.ATLAS_A2)


def test_groups_that_reject_nothing_may_have_any_size() -> None:
    """One each are rejected on Ascend 950 with the sums of two only where some groups are rejected."""
    many = {"x": Tensor(D.FLOAT, (5, 130)), "outOut": Tensor(D.FLOAT, (5, 130)), "biasOptional": None}
    call = _groups(D.FLOAT) | many | {"groupCount": 130, "kGroup": 130}
    prepare(BY_NAME[GROUPS], described(call), Product.ASCEND_950)
    with pytest.raises(AclnnError, match="got 130 of 1"):
        prepare(BY_NAME[GROUPS], described(call), Product.ATLAS_A2)
    prepare(BY_NAME[GROUPS], described(call | {"groupSelectMode": 0}), Product.ATLAS_A2)


def test_without_ids_the_scores_decide() -> None:
    call = _beside_table(D.FLOAT) | {"tid2eidOptional": None}
    arrays = {name: np.zeros(each.shape, each.dtype.numpy) for name, each in call.items() if isinstance(each, T)}
    arrays["x"] = _scores()
    found = computed(TABLE, call | arrays)["expertIdxOut"]
    np.testing.assert_array_equal(found, torch.from_numpy(arrays["x"]).topk(3).indices)


@pytest.mark.parametrize(
    ("key", "expert", "text"),
    [(3, 0, "inputIdsOptional: expected numbers from 0 to 2, got 3"), (0, 16, "tid2eidOptional: .* to 15, got 16")],
)
def test_experts_and_rows_beyond_the_table_are_rejected(key: int, expert: int, text: str) -> None:
    call = _beside_table(D.FLOAT)
    arrays = {name: np.zeros(each.shape, each.dtype.numpy) for name, each in call.items() if isinstance(each, T)}
    arrays["inputIdsOptional"][0], arrays["tid2eidOptional"][0] = key, expert
    with pytest.raises(AclnnError, match=text):
        computed(TABLE, call | arrays)
