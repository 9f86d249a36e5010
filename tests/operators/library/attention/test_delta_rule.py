"""Linear attention by the gated delta rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import delta_rule
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
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

LENGTHS, PLACES, ACCEPTED = (3, 2), (5, 1, 4, 0, 3), (2, 1)
INDICES = {"actualSeqLengths": LENGTHS, "ssmStateIndices": PLACES, "numAcceptedTokens": ACCEPTED}


def _call(d: D, tokens: int = 5) -> Arguments:
    """Two sequences of heads of 3 and 2 numbers, two heads of values to each of keys."""
    return {
        "query": T(d, (tokens, 2, 3)),
        "key": T(d, (tokens, 2, 3)),
        "value": T(d, (tokens, 4, 2)),
        "beta": T(d, (tokens, 4)),
        "stateRef": T(d, (6, 4, 2, 3)),
        "out": T(d, (tokens, 4, 2)),
        "g": T(D.FLOAT, (tokens, 4)),
        "gk": T(D.FLOAT, (tokens, 4, 3)),
        "scaleValue": 0.5,
        **{name: T(D.INT32, (tokens if name == "ssmStateIndices" else 2,)) for name in INDICES},
    }


def _reference(a: Mapping[str, Any]) -> Any:
    """Every head on its own, as the recurrence is written."""
    states, out = wide(a["stateRef"]).clone(), torch.zeros(5, 4, 2, dtype=torch.float64)
    query, key, value, beta, g, gk = (wide(a[name]) for name in ("query", "key", "value", "beta", "g", "gk"))
    for tokens, accepted in ((range(3), 2), (range(3, 5), 1)):
        for head in range(4):
            state = states[PLACES[tokens[accepted - 1]], head].clone()
            for t in tokens:
                k = key[t, head // 2]
                decay = (g[t, head] + gk[t, head]).exp().diag()
                state = state @ decay @ (torch.eye(3) - beta[t, head] * torch.outer(k, k)).double()
                state = state + beta[t, head] * torch.outer(value[t, head], k)
                states[PLACES[t], head] = state
                out[t, head] = 0.5 * state @ query[t, head // 2]
    return states, out


BREAKS: Mapping[str, Breaking] = {
    "not empty": lambda o, name: Break(shape((0,), name), "elements"),
    "3 dimensions": lambda o, name: Break(shape((5, 3), name), "3 dimensions"),
    "4 dimensions": lambda o, name: Break(shape((6, 4, 2), name), "4 dimensions"),
    "1 dimension": lambda o, name: Break(shape((2, 1), name), "1 dimension"),
    "same shape as query": lambda o, name: Break(shape((5, 2, 4), name), "[5, 2, 3]"),
    "heads and their numbers": lambda o, name: Break(
        shape((5, 3, 2), name) if name == "value" else shape((5, 2, 513), name, "key"),
        "multiple of the 2" if name == "value" else "at most 512",
    ),
    "shape is a number for each token and head of value": lambda o, name: Break(shape((5, 2), name), "[5, 4]"),
    "shape is a number for each token, head of value and number of key": lambda o, name: Break(
        shape((5, 4, 2), name), "[5, 4, 3]"
    ),
    "a state for each token": lambda o, name: Break(shape((4, 4, 2, 3), name), "5 tokens"),
    "a state for each head": lambda o, name: Break(shape((6, 4, 3, 2), name), "[4, 2, 3]"),
    "shape is a number for each token": lambda o, name: Break(shape((4,), name), "[5]"),
    "same shape as actualSeqLengths": lambda o, name: Break(shape((3,), name), "[2]"),
    "same shape as value": lambda o, name: Break(shape((5, 4, 3), name), "[5, 4, 2]"),
    "data type": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.array(INDICES[name], np.int32)[: array.size] if name in INDICES else array


class TestDeltaRule(LibraryTests):
    subject = Subject(
        delta_rule.OPERATORS[:1],
        calls={"recurrent_gated_delta_rule": _call},
        references={"recurrent_gated_delta_rule": _reference},
        default=(D.BF16,),
        # Rejected: this has a token.
        empty={
            "recurrent_gated_delta_rule": _call(D.BF16, 1)
            | {name: T(D.INT32, (1,)) for name in INDICES}
            | {"stateRef": T(D.FLOAT, (6, 4, 2, 3))}
        },
        breaks=BREAKS,
        numbers=numbers,
    )


def _placed() -> dict[str, Placed]:
    """A call of ones, without decays of keys."""
    return {
        each: Placed(
            np.array(INDICES[each], np.int32) if each in INDICES else np.ones(T.shape, T.dtype.numpy), "contiguous"
        )
        for each, T in _call(D.BF16).items()
        if each not in ("gk", "scaleValue")
    }


def _run(placed: Mapping[str, Placed], product: Product = Product.ATLAS_A2) -> None:
    optional: dict[str, Any] = dict.fromkeys(("g", "gk", "numAcceptedTokens"))
    arguments = optional | {name: each.tensor for name, each in placed.items()} | {"scaleValue": 1.0}
    prepare(BY_NAME["recurrent_gated_delta_rule"], arguments, product).run()


@pytest.mark.parametrize(("name", "wrong"), [("actualSeqLengths", 4), ("ssmStateIndices", 6), ("numAcceptedTokens", 3)])
def test_indices_out_of_range_are_reported(name: str, wrong: int) -> None:
    placed = _placed()
    placed[name].view[-1] = wrong
    with pytest.raises(AclnnError, match=f"{name}: expected"):
        _run(placed)


@pytest.mark.parametrize(("name", "neutral"), [("g", 0), ("numAcceptedTokens", 1)])
def test_null_means_no_decay_and_the_first_state(name: str, neutral: int) -> None:
    found = []
    for given in (True, False):
        placed = _placed()
        placed["stateRef"].view[...] *= np.arange(6)[:, None, None, None]
        placed[name].view[...] = neutral
        if not given:
            del placed[name]
        _run(placed, Product.ASCEND_950)
        found.append([placed[each].view.copy() for each in ("out", "stateRef")])
    for with_it, without in zip(*found, strict=True):
        np.testing.assert_array_equal(with_it, without)


def test_float32_states_are_not_rounded() -> None:
    placed = _placed()
    placed["stateRef"] = Placed(np.full((6, 4, 2, 3), 1 + 2**-12, np.float32), "contiguous")
    placed["beta"].view[...] = placed["g"].view[...] = 0
    _run(placed)
    assert (placed["stateRef"].view == 1 + 2**-12).all()


CHUNKED = "chunk_gated_delta_rule"


def _chunked(d: D, tokens: int = 5, sequences: int = 2) -> Arguments:
    call = {name: each for name, each in _call(d, tokens).items() if name in ("query", "key", "value", "beta", "out")}
    states = dict.fromkeys(("initialState", "finalState"), T(d, (sequences, 4, 2, 3)))
    lengths = {"actualSeqLengths": T(D.INT32, (sequences,)), "gOptional": T(D.FLOAT, (tokens, 4)), "scaleValue": 0.5}
    return call | states | lengths


def _of_sequences(a: Mapping[str, Any]) -> Any:
    """Every head on its own, as the recurrence is written."""
    states, out = wide(a["initialState"]).clone(), torch.zeros(5, 4, 2, dtype=torch.float64)
    for sequence, tokens in enumerate((range(3), range(3, 5))):
        for head in range(4):
            for t in tokens:
                k, beta = wide(a["key"])[t, head // 2], wide(a["beta"])[t, head]
                state = states[sequence, head] * wide(a["gOptional"])[t, head].exp()
                state = state + beta * torch.outer(wide(a["value"])[t, head] - state @ k, k)
                states[sequence, head] = state
                out[t, head] = 0.5 * state @ wide(a["query"])[t, head // 2]
    return out, states


CHUNKED_TILING: Mapping[str, Breaking] = {
    "type of states": lambda o, name: Break(dtype(D.FLOAT, "initialState", "finalState"), "ACL_BF16 on"),
    "same data type as initialState": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_BF16"),
    "4 dimensions": lambda o, name: Break(shape((2, 4, 2), name), "4 dimensions"),
    "whole sequences": lambda o, name: Break(shape((5, 3, 2), name), "a multiple of 2 heads"),
    "shape is one for each state": lambda o, name: Break(shape((3,), name), "[2]"),
    "same shape as initialState": lambda o, name: Break(shape((2, 4, 3, 2), name), "[2, 4, 2, 3]"),
    **{
        title: BREAKS[title]
        for title in (
            *("3 dimensions", "same shape as query", "same shape as value"),
            "shape is a number for each token and head of value",
        )
    },
}


class TestWholeSequences(LibraryTests):
    subject = Subject(
        delta_rule.OPERATORS[1:],
        calls={CHUNKED: _chunked},
        references={CHUNKED: _of_sequences},
        default=(D.BF16,),
        empty={CHUNKED: _chunked(D.BF16, 0, 0)},
        breaks={"data type": BREAKS["data type"], **CHUNKED_TILING},
        numbers=lambda operator, name, array: np.array(LENGTHS) if name == "actualSeqLengths" else array,
        codes=dict.fromkeys(CHUNKED_TILING, ACLNN_ERR_INNER_TILING_ERROR) | {"present": ACLNN_ERR_PARAM_INVALID},
    )


def _sequences(lengths: tuple[int, int], **changes: Any) -> dict[str, Array]:
    call = _chunked(D.BF16)
    arrays = {name: np.ones(of.shape, of.dtype.numpy) for name, of in call.items() if isinstance(of, T)}
    return computed(CHUNKED, call | arrays | {"actualSeqLengths": np.array(lengths, np.int32)} | changes)


def test_no_gate_is_no_decay_and_tokens_of_no_sequence_are_0() -> None:
    found = _sequences((2, 0), gOptional=None)
    same = _sequences((2, 0), gOptional=np.zeros((5, 4), np.float32))
    np.testing.assert_array_equal(found["out"], same["out"])
    assert found["out"][:2].any()
    assert not found["out"][2:].any()
    assert (found["finalState"][1] == 1).all()


@pytest.mark.parametrize("lengths", [(6, 0), (3, 3), (-1, 2)])
def test_more_tokens_than_there_are_are_rejected(lengths: tuple[int, int]) -> None:
    with pytest.raises(AclnnError, match="actualSeqLengths: expected"):
        _sequences(lengths)


def test_states_have_the_heads_of_values() -> None:
    call = described(_chunked(D.BF16) | dict.fromkeys(("initialState", "finalState"), T(D.BF16, (2, 4, 3, 2))))
    with pytest.raises(AclnnError, match=r"value: expected states \[4, 2, 3\] of its heads in initialState"):
        prepare(BY_NAME[CHUNKED], call, Product.ATLAS_A2)
