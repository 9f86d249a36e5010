"""Attention over parts of the keys, put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import attention_parts
from tests.cases.table import Arguments, T, changed, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    torch,
    wide,
)

RING, PARTS = "ring_attention_update_v2", "attention_update"
RINGS = ("ring_attention_update", RING)
S, B, N, SIZE = 3, 2, 2, 4
OUT, STATISTIC = (S, B, N * SIZE), (B, N, S, 8)
PACKED, OF_PACKED = (5, N, 64), (5, N, 8)
STATISTICS = ("prevSoftmaxMax", "prevSoftmaxSum", "curSoftmaxMax", "curSoftmaxSum")


def _ring(d: D, out: tuple[int, ...] = OUT, statistic: tuple[int, ...] = STATISTIC) -> Arguments:
    return {
        **{name: T(d, out) for name in ("prevAttnOut", "curAttnOut", "attnOutOut")},
        **{name: T(D.FLOAT, statistic) for name in (*STATISTICS, "softmaxMaxOut", "softmaxSumOut")},
        "actualSeqQlenOptional": None,
        "inputLayoutOptional": "SBH",
    }


def _ring_v2(d: D) -> Arguments:
    return _ring(d) | {"inputSoftmaxLayoutOptional": ""}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **dict(zip(RINGS, (_ring, _ring_v2), strict=True)),
    PARTS: lambda d: {
        "lse": (T(D.FLOAT, (3,)),) * 2,
        "localOut": (T(d, (3, 8)),) * 2,
        "updateType": 1,
        "out": T(d, (3, 8)),
        "lseOut": T(D.FLOAT, (3,)),
    },
}


def _of_rows(statistic: Any) -> Any:
    """(B, N, S, 8) as (S, B, N, 1)."""
    return wide(statistic)[..., :1].permute(2, 0, 1, 3)


def _combined(outs: Any, maxima: Any, sums: Any) -> tuple[Any, Any]:
    """By the logarithms of sums of exponentials."""
    logarithms = [most + total.log() for most, total in zip(maxima, sums, strict=True)]
    shares = torch.stack(logarithms).softmax(0)
    return sum(out * share for out, share in zip(outs, shares, strict=True)), torch.logaddexp(*logarithms)


def _ring_reference(a: Mapping[str, Any]) -> Any:
    outs = [wide(a[name]).unflatten(-1, (N, SIZE)) for name in ("prevAttnOut", "curAttnOut")]
    maxima, sums = ([_of_rows(a[name]) for name in STATISTICS[at::2]] for at in (0, 1))
    most = torch.maximum(wide(a[STATISTICS[0]]), wide(a[STATISTICS[2]]))
    (first, second), (of_first, of_second) = ([wide(a[name]) for name in STATISTICS[at::2]] for at in (0, 1))
    whole = torch.logaddexp(first + of_first.log(), second + of_second.log()) - most
    return _combined(outs, maxima, sums)[0].flatten(-2), most, whole.exp()


def _parts_reference(a: Mapping[str, Any]) -> Any:
    logarithms = torch.stack([wide(each) for each in a["lse"]])
    shares = logarithms.softmax(0)[..., None]
    return (torch.stack([wide(each) for each in a["localOut"]]) * shares).sum(0), logarithms.logsumexp(0)


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) + 0.5 if name.endswith("Sum") else array


def _packed_call(o: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes that make a call one of packed sequences, with a violation."""
    outs = shape(PACKED, "prevAttnOut", "curAttnOut", "attnOutOut")
    statistics = shape(OF_PACKED, *STATISTICS, "softmaxMaxOut", "softmaxSumOut")
    lengths = {"inputLayoutOptional": "TND", "actualSeqQlenOptional": T(D.INT64, (3,))}
    return {**outs, **statistics, **lengths, **change}


BREAKS: Mapping[str, Breaking] = {
    "present": lambda o, name: Break(
        _packed_call(o, {name: None}) if name == "actualSeqQlenOptional" else {name: None}, "an object"
    ),
    "'', 'SBH' or 'TND'": lambda o, name: Break(_packed_call(o, {name: "BSH"}), "TND"),
    "lengths": lambda o, name: Break(_packed_call(o, {name: T(D.INT32, (3,))}), "ACL_INT64"),
    "not empty": lambda o, name: Break({name: {"shape": (0, *(OUT if "Attn" in name else STATISTIC)[1:])}}, "elements"),
    "no private format": lambda o, name: Break(
        _packed_call(o, {name: T(D.INT64, (3,), format=Format.FORMAT_FRACTAL_NZ)})
        if name == "actualSeqQlenOptional"
        else {name: {"format": Format.FORMAT_FRACTAL_NZ}},
        "ACL_FORMAT_ND",
    ),
    "given or not": lambda o, name: Break({name: None}, "an object with updateType 1"),
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_"),
    "same data type as prevAttnOut": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "allowed value": lambda o, name: Break(
        {name: 2 if o.name == PARTS else "BSH"}, "0 or 1" if o.name == PARTS else "TND"
    ),
    "3 dimensions": lambda o, name: Break(shape((3, 4), name), "3 dimensions"),
    "same shape as prevAttnOut": lambda o, name: Break(shape((3, 2, 4), name), "[3, 2, 8]"),
    "as prevAttnOut": lambda o, name: Break(shape((B, 3, S, 8), name), "N a divisor of 8"),
    "shape is of tokens and heads": lambda o, name: Break(_packed_call(o, shape((5, 3, 8), name)), "[5, 2, 8]"),
    "few columns": lambda o, name: Break(
        _packed_call(o, shape((5, N, 32), "prevAttnOut", "curAttnOut", "attnOutOut")), "a multiple of 64"
    ),
    "same shape as prevSoftmaxMax": lambda o, name: Break(shape((B, N, S, 1), name), "[2, 2, 3, 8]"),
    "no null among them": lambda o, name: Break({name: (None,)}, "an object"),
    "number of parts": lambda o, name: Break({"lse": (), "localOut": ()}, "1 to 128 tensors"),
    "as many as in lse": lambda o, name: Break({name: (T(D.FLOAT, (3, 8)),)}, "2 elements"),
    "data type of each": lambda o, name: Break({name: (T(D.DOUBLE, (3,)),) * 2}, "a data type"),
    "one data type": lambda o, name: Break({name: (T(D.FLOAT, (3, 8)), T(D.FLOAT16, (3, 8)))}, "ACL_FLOAT"),
    "same shape as the first": lambda o, name: Break({name: (T(D.FLOAT, (3, 8)), T(D.FLOAT, (2, 8)))}, "[3, 8]"),
    "rows of localOut": lambda o, name: Break({name: (T(D.FLOAT, (4,)),) * 2}, "each row"),
    "columns": lambda o, name: Break({name: (T(D.FLOAT, (3, 12)),) * 2}, "a multiple of 8 up to 512"),
    "as localOut": lambda o, name: Break(shape((3, 5), name), "[3, 8]"),
    "shape is one for each row": lambda o, name: Break(shape((4,), name), "[3]"),
}


def _packed_ring(change: Mapping[str, Any]) -> Arguments:
    return described(changed(_ring_v2(D.FLOAT), _packed_call(BY_NAME[RING], change)))


class TestRing(LibraryTests):
    subject = Subject(
        attention_parts.OPERATORS[:2],
        calls=CALLS,
        references=dict.fromkeys(RINGS, _ring_reference),
        default=TRAINED,
        # Rejected: these have an element.
        empty=dict.fromkeys(
            RINGS,
            shape((1, 1, 8), "prevAttnOut", "curAttnOut", "attnOutOut")
            | shape((1, 1, 1, 8), *STATISTICS, "softmaxMaxOut", "softmaxSumOut")
            | {"actualSeqQlenOptional": None},
        ),
        breaks=BREAKS,
        numbers=numbers,
        codes=dict.fromkeys(("'', 'SBH' or 'TND'", "lengths"), ACLNN_ERR_INNER_TILING_ERROR),
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"inputLayoutOptional": "BSH"}, ACLNN_ERR_PARAM_INVALID),
        ({"actualSeqQlenOptional": None}, ACLNN_ERR_PARAM_NULLPTR),
    ],
)
def test_layouts_and_missing_lengths_are_not_tiling_errors(change: Mapping[str, Any], code: int) -> None:
    with pytest.raises(AclnnError) as caught:
        prepare(BY_NAME[RING], _packed_ring(change), Product.ATLAS_A2)
    assert caught.value.code == code


def test_ascend_950_accepts_any_number_of_columns() -> None:
    outs = shape((5, N, 32), "prevAttnOut", "curAttnOut", "attnOutOut")
    call = _packed_ring(outs)
    prepare(BY_NAME[RING], call, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="a multiple of 64"):
        prepare(BY_NAME[RING], call, Product.ATLAS_A2)


class TestParts(LibraryTests):
    subject = Subject(
        attention_parts.OPERATORS[2:],
        calls=CALLS,
        references={PARTS: _parts_reference},
        default=TRAINED,
        empty={
            PARTS: {"lse": (T(D.FLOAT, (0,)),), "localOut": (T(D.FLOAT, (0, 8)),)}
            | shape((0, 8), "out")
            | shape((0,), "lseOut")
        },
        breaks=BREAKS,
    )


def _parts(lse: Sequence[Array]) -> dict[str, Any]:
    """A call of parts whose numbers are 1, 2 …"""
    rows = len(lse[0])
    parts = tuple(np.full((rows, 8), at + 1, np.float32) for at in range(len(lse)))
    outs = {"out": np.zeros((rows, 8), np.float32), "lseOut": np.zeros(rows, np.float32)}
    return {"lse": tuple(lse), "localOut": parts, "updateType": 1} | outs


def test_fully_masked_parts_have_no_share() -> None:
    found = computed(PARTS, _parts([np.array([np.inf, 0.5], "f4"), np.array([1.5, 0.5], "f4")]))
    np.testing.assert_allclose(found["out"][:, 0], [2, 1.5])
    np.testing.assert_allclose(found["lseOut"], [1.5, 0.5 + math.log(2)], rtol=1e-6)


@pytest.mark.parametrize("update", [0, 1])
def test_a_missing_lse_out_is_the_first_error(update: int) -> None:
    change = {"updateType": update, "lse": None} | ({"lseOut": None} if update else {})
    with pytest.raises(AclnnError, match=f"with updateType {update}") as caught:
        computed(PARTS, _parts([np.zeros(2, "f4")]) | change)
    assert caught.value.code == ACLNN_ERR_PARAM_INVALID


def test_ascend_950_accepts_fewer_parts() -> None:
    call = _parts([np.zeros(2, "f4")] * 17)
    np.testing.assert_allclose(computed(PARTS, call)["out"], 9, rtol=1e-6)
    with pytest.raises(AclnnError, match="lse: expected 1 to 16 tensors"):
        computed(PARTS, call, Product.ASCEND_950)


@pytest.mark.parametrize("layout", ["TND", "", "SBH", None])
def test_packed_sequences_have_statistics_by_tokens(layout: str | None) -> None:
    """Sequences of 2 and 3 tokens; maxima and sums by tokens, or in each sequence by heads, as always without V2."""
    random = np.random.default_rng(3)
    outs = [random.normal(size=PACKED).astype(np.float32) for _ in range(2)]
    of_tokens = [random.random((5, N)).astype(np.float32) + 0.5 for _ in range(4)]

    def stored(values: Array) -> Array:
        if layout != "TND":
            values = np.concatenate([values[:2].T.reshape(-1), values[2:].T.reshape(-1)]).reshape(5, N)
        return np.repeat(values[..., None], 8, axis=-1)

    placed = {
        **dict(zip(("prevAttnOut", "curAttnOut"), outs, strict=True)),
        **{name: stored(each) for name, each in zip(STATISTICS, of_tokens, strict=True)},
        "actualSeqQlenOptional": np.array([0, 2, 5]),
        "attnOutOut": np.zeros(PACKED, np.float32),
        **{name: np.zeros(OF_PACKED, np.float32) for name in ("softmaxMaxOut", "softmaxSumOut")},
    }
    arrays = {name: Placed(each, "contiguous") for name, each in placed.items()}
    layouts = {"inputLayoutOptional": "TND"} | ({} if layout is None else {"inputSoftmaxLayoutOptional": layout})
    operator = BY_NAME[RINGS[layout is not None]]
    prepare(operator, {name: each.tensor for name, each in arrays.items()} | layouts, Product.ATLAS_A2).run()
    maxima, sums = ([torch.from_numpy(each)[..., None].double() for each in of_tokens[at::2]] for at in (0, 1))
    expected, logarithm = _combined([torch.from_numpy(each).double() for each in outs], maxima, sums)
    np.testing.assert_allclose(arrays["attnOutOut"].view, expected, rtol=1e-5, atol=1e-6)
    most = np.maximum(of_tokens[0], of_tokens[2])
    np.testing.assert_array_equal(arrays["softmaxMaxOut"].view, stored(most))
    whole = np.exp(logarithm.numpy()[..., 0] - most)
    np.testing.assert_allclose(arrays["softmaxSumOut"].view, stored(whole), rtol=1e-6)
