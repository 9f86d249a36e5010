"""Linear attention by the gated delta rule, as in Qwen3-Next: aclnnRecurrentGatedDeltaRule, …Chunk…"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    not_empty,
    nothing_to_write,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import MODERN, expect_within, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given

_MOST_STEPS, _MOST_HEADS, _MOST_EXTENT = 8, 256, 512
_OF_BF16 = ("query", "key", "value", "beta", "out")
_INDICES = ("actualSeqLengths", "ssmStateIndices", "numAcceptedTokens")
_INPUTS = ("query", "key", "value", "stateRef", "beta", *_INDICES[:2])
_OPTIONAL = ("numAcceptedTokens", "g", "gk")


def _enough_states(call: Call) -> str | None:
    got, tokens = call["stateRef"].shape[0], call["query"].shape[0]
    return None if got >= tokens else f"stateRef: expected a state for each of {tokens} tokens at least, got {got}"


def _heads(call: Call) -> str | None:
    (tokens, keys, dk), (values, dv) = call["query"].shape, call["value"].shape[1:]
    if call["value"].shape[0] != tokens or keys == 0 or values % keys or not 0 < values <= _MOST_HEADS:
        return (
            f"value: expected {tokens} tokens of at most {_MOST_HEADS} heads, a multiple of the {keys} of query, "
            f"got {extents(call['value'].shape)}"
        )
    wide = next((name for name, extent in (("query", dk), ("value", dv)) if extent > _MOST_EXTENT), None)
    return wide and f"{wide}: expected heads of at most {_MOST_EXTENT} numbers, got {extents(call[wide].shape)}"


def _state(call: Call) -> str | None:
    expected = (*call["value"].shape[1:], call["query"].shape[2])
    got = call["stateRef"].shape
    return None if got[1:] == expected else f"stateRef: expected states of {extents(expected)}, got {extents(got)}"


def _gates(call: Call) -> Sequence[int]:
    shape: Sequence[int] = call["value"].shape
    return shape[:2]


def _gates_of_keys(call: Call) -> Sequence[int]:
    return *_gates(call), call["query"].shape[2]


def _expect_few(lengths: Any, tokens: int) -> None:
    if lengths.sum() > tokens:
        raise IndexError(f"actualSeqLengths: expected at most {tokens} tokens together, got {lengths.sum()}")


def _repeated(query: Any, key: Any, value: Any) -> Any:
    """Repeat queries and keys for each head of value."""
    share = value.shape[1] // query.shape[1]
    return (np.repeat(each.astype(np.float64), share, 1) for each in (query, key))


def _corrected(state: Any, decay: Any, key: Any, value: Any, rate: Any) -> Any:
    """Return the states of all heads after a token."""
    state = decay * state
    error = rate * (value - np.einsum("hvk,hk->hv", state, key))
    return state + error[..., None] * key[:, None, :]


def _work(call: Call) -> Library:
    """Compute the formula; a sequence starts from its last accepted token's state, and each token's state is stored."""
    scale = call["scaleValue"]
    others_given = given(call, *_OPTIONAL)

    def run(
        query: Any, key: Any, value: Any, beta: Any, states: Any, lengths: Any, places: Any, *others: Any
    ) -> tuple[Any, Any]:
        named = dict(zip(others_given, others, strict=True))
        accepted = named.get("numAcceptedTokens", np.ones_like(lengths))
        expect_within("actualSeqLengths", lengths, 0, _MOST_STEPS)
        _expect_few(lengths, len(query))
        expect_within("ssmStateIndices", places[: lengths.sum()], 0, len(states) - 1)
        for length, taken in zip(lengths.tolist(), accepted.tolist(), strict=True):
            if length and not 1 <= taken <= length:
                raise IndexError(f"numAcceptedTokens: expected from 1 to a sequence's {length} tokens, got {taken}")
        q, k = _repeated(query, key, value)
        v, rate = value.astype(np.float64), beta.astype(np.float64)[..., None]
        decay = np.ones((*value.shape[:2], 1, 1))
        if "g" in named:
            decay = decay * np.exp(named["g"].astype(np.float64))[:, :, None, None]
        if "gk" in named:
            decay = decay * np.exp(named["gk"].astype(np.float64))[:, :, None]
        left, out = states.astype(np.float64), np.zeros(value.shape)
        begin = 0
        for length, taken in zip(lengths.tolist(), accepted.tolist(), strict=True):
            state = left[places[begin + taken - 1]] if length else None
            for t in range(begin, begin + length):
                state = _corrected(state, decay[t], k[t], v[t], rate[t])
                left[places[t]] = state
                out[t] = np.einsum("hvk,hk->hv", state, q[t]) * scale
            begin += length
        return left, out

    inputs = ("query", "key", "value", "beta", "stateRef", *_INDICES[:2], *others_given)
    return Library(run, inputs, ("stateRef", "out"))


def _whole_sequences(call: Call) -> str | None:
    (tokens, keys, dk), got, states = call["query"].shape, call["value"].shape, call["initialState"].shape
    if got[0] != tokens or keys == 0 or got[1] % keys:
        return f"value: expected {tokens} tokens of a multiple of {keys} heads (those of query), got {extents(got)}"
    expected = (*got[1:], dk)
    if states[1:] == expected:
        return None
    return f"value: expected states {extents(expected)} of its heads in initialState, got {extents(states)}"


def _float_state(call: Call) -> str | None:
    got = call["initialState"].dtype
    if got == D.BF16 or call.product in CLASS_950:
        return None
    return f"initialState: expected ACL_BF16 on {call.product.title}, got {got.c_name}"


def _chunk_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out", "finalState")):
        return None
    scale = float32(call["scaleValue"])

    def run(query: Any, key: Any, value: Any, beta: Any, states: Any, lengths: Any, *gates: Any) -> tuple[Any, Any]:
        expect_within("actualSeqLengths", lengths, 0, len(query), "lengths")
        _expect_few(lengths, len(query))
        q, k = _repeated(query, key, value)
        v, rate = value.astype(np.float64), beta.astype(np.float64)[..., None]
        decay = np.exp(sum(gate.astype(np.float64) for gate in gates) + np.zeros(value.shape[:2]))[..., None, None]
        left, out = states.astype(np.float64), np.zeros(value.shape)
        begin = 0
        for at, length in enumerate(lengths.tolist()):
            for t in range(begin, begin + length):
                left[at] = _corrected(left[at], decay[t], k[t], v[t], rate[t])
                out[t] = np.einsum("hvk,hk->hv", left[at], q[t]) * scale
            begin += length
        return out, left

    inputs = ("query", "key", "value", "beta", "initialState", "actualSeqLengths", *given(call, "gOptional"))
    return Library(run, inputs, ("out", "finalState"))


_CHUNKED = ("query", "key", "value", "initialState", "beta", "actualSeqLengths", "out", "finalState")

OPERATORS = (
    Operator(
        name="recurrent_gated_delta_rule",
        function="aclnnRecurrentGatedDeltaRule",
        summary="Gated delta rule for a few tokens per sequence.",
        formula="S = e^(g + gk) * S; S = S + beta * (value - S key) key^T; out = scaleValue * S query",
        parameters=(
            tensor_in("query", "the queries (T, Nk, Dk) of all sequences"),
            tensor_in("key", "as query"),
            tensor_in("value", "(T, Nv, Dv)"),
            tensor_in("beta", "the strength (T, Nv) of each token's correction"),
            Parameter(
                "stateRef", "state_ref", Kind.OUTPUT, "the states (blocks, Nv, Dv, Dk), updated in place; BF16 or FLOAT"
            ),
            tensor_in("actualSeqLengths", "the number of tokens (B) of each sequence; INT32"),
            tensor_in("ssmStateIndices", "the index (T) of the state after each token; INT32"),
            optional_in("g", "the log-decays (T, Nv); FLOAT; null: 0"),
            optional_in("gk", "the log-decays (T, Nv, Dk) per key element; FLOAT; null: 0"),
            Parameter(
                "numAcceptedTokens",
                "num_accepted_tokens",
                Kind.INPUT,
                "the initial state (B) of each sequence among its own, counted from 1; INT32; null: 1",
                optional=True,
            ),
            Parameter("scaleValue", "scale_value", Kind.FLOAT, "the factor of query"),
            tensor_out("out", "(T, Nv, Dv)"),
        ),
        support=support((D.BF16,), MODERN),
        checks=(
            present(*_INPUTS, "out"),
            dtype_in({D.BF16}, *_OF_BF16[:3]),
            dtype_in({D.BF16, D.FLOAT}, "stateRef"),
            dtype_in({D.BF16}, "beta"),
            dtype_in({D.INT32}, *_INDICES[:2]),
            dtype_in({D.FLOAT}, "g", "gk"),
            dtype_in({D.INT32}, "numAcceptedTokens"),
            dtype_in({D.BF16}, "out"),
            public_format(*_INPUTS, *_OPTIONAL, "out"),
            not_empty(*_INPUTS, *_OPTIONAL, "out"),
            dims_between(3, 3, "query", "value"),
            dims_between(4, 4, "stateRef"),
            dims_between(1, 1, *_INDICES),
            same_shape("key", "query"),
            rule("heads and their numbers: value, query", _heads),
            shape_is("a number for each token and head of value", _gates, "beta", "g"),
            shape_is("a number for each token, head of value and number of key", _gates_of_keys, "gk"),
            rule("a state for each head: stateRef", _state),
            rule("a state for each token: stateRef", _enough_states),
            shape_is("a number for each token", lambda call: call["query"].shape[:1], "ssmStateIndices"),
            same_shape("numAcceptedTokens", "actualSeqLengths"),
            same_shape("out", "value"),
        ),
        work=_work,
    ),
    Operator(
        name="chunk_gated_delta_rule",
        summary="Gated delta rule for whole sequences.",
        formula="S = e^g * S; S = S + beta * (value - S key) key^T; out = scaleValue * S query; the last: finalState",
        parameters=(
            tensor_in("query", "the queries (T, Nk, Dk) of all sequences"),
            tensor_in("key", "as query"),
            tensor_in("value", "(T, Nv, Dv)"),
            tensor_in("beta", "the strength (T, Nv) of each token's correction"),
            tensor_in("initialState", "the initial states (B, Nv, Dv, Dk); BF16, on Ascend 950 also FLOAT"),
            tensor_in("actualSeqLengths", "the number of tokens (B) of each sequence; INT32"),
            optional_in("gOptional", "the log-decays (T, Nv); FLOAT; null: 0"),
            Parameter("scaleValue", "scale_value", Kind.FLOAT, "the factor of query"),
            tensor_out("out", "(T, Nv, Dv)", const=True),
            tensor_out("finalState", "as initialState", const=True),
        ),
        support=support((D.BF16,), MODERN),
        checks=(
            *with_code(ACLNN_ERR_PARAM_INVALID, present(*_CHUNKED)),
            dtype_in({D.BF16}, *_CHUNKED[:3]),
            dtype_in({D.BF16, D.FLOAT}, "initialState"),
            dtype_in({D.BF16}, "beta"),
            dtype_in({D.INT32}, "actualSeqLengths"),
            dtype_in({D.FLOAT}, "gOptional"),
            dtype_in({D.BF16}, "out"),
            dtype_in({D.BF16, D.FLOAT}, "finalState"),
            *unless_empty(
                ("out", "finalState"),
                *with_code(
                    ACLNN_ERR_INNER_TILING_ERROR,
                    rule("type of states: initialState", _float_state),
                    same_dtype("finalState", "initialState"),
                    dims_between(3, 3, "query", "value"),
                    dims_between(4, 4, "initialState"),
                    same_shape("key", "query"),
                    rule("whole sequences: value", _whole_sequences),
                    shape_is("a number for each token and head of value", _gates, "beta", "gOptional"),
                    shape_is("one for each state", lambda call: call["initialState"].shape[:1], "actualSeqLengths"),
                    same_shape("out", "value"),
                    same_shape("finalState", "initialState"),
                ),
                which="every output",
                among=all,
            ),
        ),
        work=_chunk_work,
    ),
)
