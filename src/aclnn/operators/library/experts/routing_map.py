"""Tokens to experts and back, by a map that says which expert takes which token.

Permuted tokens lie in order of experts. Without padding a row is a true of the transposed map, in order, and of the
K = rows / tokens slots of a token ``sortedIndices`` holds the rows, -1 for one that is not used. With padding every
expert has as many rows (its capacity), and ``sortedIndices`` holds the token of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    floating,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, present
from aclnn.core.status import ACLNN_ERR_INNER_FIND_KERNEL_ERROR, ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_MOST_TOKENS, _MOST_CHOSEN = 2**24 - 2, 512
_MAP, _PROBS, _PERMUTED_PROBS = "routingMapOptional", "probsOptional", "permuteProbsOutOptional"
_PROBS_GRAD, _ROWS_GRAD = "permutedProbsOutputGradOptional", "permutedTokensOutputGrad"
_PERMUTED = "permutedTokensOptional"
_FLAGS, _PLACES = (D.INT8, D.BOOL), (D.INT32,)


def _like_tokens(tokens: str, *names: str) -> Check:
    """Require the tokens' data type; float32 is allowed with bfloat16."""

    def violation(call: Call, name: str) -> str | None:
        theirs, got = call[tokens].dtype, call[name].dtype
        if got == theirs or (theirs, got) == (D.BF16, D.FLOAT):
            return None
        return f"expected data type {theirs.c_name} (that of {tokens}), or ACL_FLOAT with ACL_BF16, got {got.c_name}"

    return each(f"data type with {tokens}", names, violation)


def _given(name: str) -> Check:
    """Require an argument whose absence the tiling function reports."""

    def violation(call: Call) -> str | None:
        return f"{name}: expected an object, got null" if call[name] is None else None

    return rule(f"given: {name}", violation)


def _beside(name: str, *checks: Check) -> tuple[Check, ...]:
    return restricted(f"with {name}", lambda call: call[name] is not None, *checks)


def _pairs(routing_map: Array) -> tuple[Array, Array]:
    """Return the expert and the token of each row, without padding."""
    experts, tokens = np.nonzero(routing_map.T)
    return experts, tokens


def _tokens_of_rows(places: Array, tokens: int, rows: int, padded: bool) -> Array:
    """Return the token of each row, -1 for an unused row."""
    if places.size and (places.min() < -1 or places.max() >= (tokens if padded else rows)):
        raise IndexError(f"sortedIndices: expected places from -1 on, below {tokens if padded else rows}")
    if padded:
        return places
    found = np.full(rows, -1)
    used = places >= 0
    found[places[used]] = (np.arange(len(places)) // max(1, len(places) // tokens))[used]
    return found


def _of_pairs(values: Array, tokens: Array, experts: Array) -> Array:
    """Gather the value at each row's (token, expert), 0 for an unused row."""
    found = np.zeros(len(tokens))
    used = np.flatnonzero(tokens[: len(experts)] >= 0)
    found[used] = values[tokens[used], experts[used]]
    return found


def _to_pairs(values: Array, tokens: Array, experts: Array, shape: Sequence[int]) -> Array:
    """Scatter the rows' values to their (token, expert)."""
    found = np.zeros(shape)
    used = np.flatnonzero(tokens[: len(experts)] >= 0)
    found[tokens[used], experts[used]] = values[used]
    return found


def _experts(routing_map: Array, rows: int, padded: bool) -> Array:
    """Return the expert of each row; without padding, unused rows at the end are left out."""
    if padded:
        return np.arange(rows) // max(1, rows // routing_map.shape[1])
    return _pairs(routing_map)[0][:rows]


def _sums(rows: Array, tokens: Array, shape: Sequence[int]) -> Array:
    """Return the sum of each token's rows."""
    found = np.zeros(shape)
    used = tokens >= 0
    np.add.at(found, tokens[used], rows[used])
    return found


def _spread(gradient: Array, tokens: Array) -> Array:
    """Gather the gradient of each row's token, zeros for an unused row."""
    return np.where(tokens[:, None] >= 0, gradient[tokens], 0.0)


def _rows(call: Call) -> int:
    tokens, experts = call["routingMap"].shape
    unit = max(1, experts if call["dropAndPad"] else tokens)
    return int(call["numOutTokens"] // unit * unit)


def _counted(call: Call) -> str | None:
    tokens, experts = call["routingMap"].shape
    got = call["numOutTokens"]
    return None if 0 <= got <= tokens * experts else f"numOutTokens: expected from 0 to {tokens * experts}, got {got}"


def _permute_work(call: Call) -> Library | None:
    rows, padded = _rows(call), call["dropAndPad"]
    if call["routingMap"].size == 0 or call["permuteTokensOut"].size == 0:
        return None
    count, chosen = call["routingMap"].shape[1], rows // call["routingMap"].shape[0]

    def permute(tokens: Array, routing_map: Array, *probs: Array) -> tuple[Array, ...]:
        if padded:
            order = np.argsort(routing_map.T == 0, axis=-1, kind="stable")[:, : rows // count]
            of_rows, experts = order.reshape(-1), np.repeat(np.arange(count), order.shape[1])
            places = of_rows
        else:
            experts, of_rows = (each[:rows] for each in _pairs(routing_map))
            slots = np.cumsum(routing_map != 0, axis=1)[of_rows, experts] - 1
            kept = np.flatnonzero(slots < chosen)
            places = np.full(rows, -1)
            places[of_rows[kept] * chosen + slots[kept]] = kept
        used = np.pad(of_rows, (0, rows - len(of_rows)), constant_values=-1)
        return _spread(tokens, used), *(_of_pairs(each, used, experts) for each in probs), places

    given = [_PROBS] if call[_PROBS] is not None else []
    written = [_PERMUTED_PROBS] if given else []
    return Library(permute, ("tokens", "routingMap", *given), ("permuteTokensOut", *written, "sortedIndicesOut"))


def _permute_grad_work(call: Call) -> Library | None:
    rows, count, padded = call[_ROWS_GRAD].shape[0], call["tokens_num"], call["dropAndPad"]
    with_probs = call[_PROBS_GRAD] is not None
    shape = call["tokenGradOut"].shape
    if call["tokenGradOut"].size == 0:
        return None

    def gradients(gradient: Array, places: Array, *given: Array) -> tuple[Array, ...]:
        tokens = _tokens_of_rows(places, count, rows, padded)
        summed = _sums(gradient, tokens, shape)
        if not with_probs:
            return (summed,)
        of_probs, routing_map = given
        experts = _experts(routing_map, rows, padded)
        return summed, _to_pairs(of_probs, tokens, experts, (count, call["experts_num"]))

    given = (_PROBS_GRAD, _MAP) if with_probs else ()
    written = ("probsGradOutOptional",) if with_probs else ()
    return Library(gradients, (_ROWS_GRAD, "sortedIndices", *given), ("tokenGradOut", *written))


def _unpermute_work(call: Call) -> Library | None:
    rows, shape, padded = call["permutedTokens"].shape[0], call["unpermutedTokens"].shape, call["paddedMode"]
    with_probs = call[_PROBS] is not None
    if call["unpermutedTokens"].size == 0:
        return None

    def unpermute(permuted: Array, places: Array, *given: Array) -> tuple[Array, ...]:
        tokens = _tokens_of_rows(places, shape[0], rows, padded)
        order = np.argsort(places, kind="stable")
        slots = np.arange(len(places)) // max(1, len(places) // shape[0])
        indices = (order, places[order]) if padded else (places, slots)
        if not with_probs:
            return _sums(permuted, tokens, shape), *indices
        probs, routing_map = given
        weights = _of_pairs(probs, tokens, _experts(routing_map, rows, padded))
        return _sums(permuted * weights[:, None], tokens, shape), *indices, weights

    given = (_PROBS, _MAP) if with_probs else ()
    written = ("permuteProbs",) if with_probs else ()
    names = ("permutedTokens", "sortedIndices", *given)
    return Library(unpermute, names, ("unpermutedTokens", "outIndex", "permuteTokenId", *written))


def _unpermute_grad_work(call: Call) -> Library | None:
    rows, padded = call["permutedTokensGradOut"].shape[0], call["dropAndPad"]
    with_probs = call[_PROBS] is not None
    if call["permutedTokensGradOut"].size == 0:
        return None

    def gradients(gradient: Array, places: Array, of_places: Array, *given: Array) -> tuple[Array, ...]:
        if padded:
            tokens = np.full(rows, -1)
            tokens[places] = of_places
        else:  # torch_npu gives no tokens
            tokens = _tokens_of_rows(places, gradient.shape[0], rows, padded)
        spread = _spread(gradient, tokens)
        if not with_probs:
            return (spread,)
        routing_map, permuted, probs = given
        experts = _experts(routing_map, rows, padded)
        weights = _of_pairs(probs, tokens, experts)
        dots = np.einsum("ij,ij->i", spread, permuted.astype(np.float64))
        return spread * weights[:, None], _to_pairs(dots, tokens, experts, probs.shape)

    given = (_MAP, _PERMUTED, _PROBS) if with_probs else ()
    written = ("probsGradOutOptional",) if with_probs else ()
    names = ("unpermutedTokensGrad", "outIndex", "permuteTokenId", *given)
    return Library(gradients, names, ("permutedTokensGradOut", *written))


def _few(call: Call) -> str | None:
    chosen = call["permutedTokens"].shape[0] // max(1, call["unpermutedTokens"].shape[0])
    if call["paddedMode"] or chosen <= _MOST_CHOSEN:
        return None
    return f"permutedTokens: expected at most {_MOST_CHOSEN} rows a token, got {chosen}"


def _numbers(call: Call) -> str | None:
    small = next((name for name in ("experts_num", "tokens_num") if call[name] < 0), None)
    return None if small is None else f"{small}: expected 0 or more, got {call[small]}"


def _permuted_rows(tokens: str) -> Check:
    return shape_is("one for each row", lambda call: call[tokens].shape[:1], "sortedIndices")


_GIVEN_MAP = optional_in(_MAP, "the routing map (tokens, experts); INT8 or BOOL")
_GIVEN_PROBS = optional_in(_PROBS, "(tokens, experts): the weights of experts; null: 1")
_PADDED = attribute("dropAndPad", Kind.BOOL, "whether every expert has the same number of rows")
_SORTED = tensor_in("sortedIndices", "the rows of tokens, or the tokens of rows; INT32")

OPERATORS = (
    declared(
        "moe_token_permute_with_routing_map",
        "permuteTokensOut = the tokens of routingMap^T's trues in order, or of the first numOutTokens / experts tokens "
        "of each expert with dropAndPad; permuteProbsOutOptional = their probsOptional",
        "Permute tokens by a routing map, sorted by expert.",
        (
            tensor_in("tokens", "(tokens, columns)"),
            tensor_in("routingMap", "the routing map (tokens, experts); INT8 or BOOL"),
            _GIVEN_PROBS,
            attribute(
                "numOutTokens",
                Kind.INT64,
                "the number of rows, rounded down to a multiple of the tokens, or of the experts",
            ),
            _PADDED,
            tensor_out("permuteTokensOut", "the rows, sorted by expert"),
            tensor_out(_PERMUTED_PROBS, "the weights of the rows, if probsOptional is given", optional=True),
            tensor_out("sortedIndicesOut", "the rows of tokens, or the tokens of rows with dropAndPad; INT32"),
        ),
        (
            present("tokens", "routingMap", "permuteTokensOut", "sortedIndicesOut"),
            *_beside(_PROBS, present(_PERMUTED_PROBS)),
            dtype_in(floating, "tokens"),
            dtype_in(_FLAGS, "routingMap"),
            same_dtype("permuteTokensOut", "tokens"),
            dtype_in(_PLACES, "sortedIndicesOut"),
            _like_tokens("tokens", _PROBS),
            *_beside(_PROBS, same_dtype(_PERMUTED_PROBS, _PROBS)),
            dims_between(2, 2, "routingMap", "tokens"),
            shape_is(
                "a row for each token",
                lambda call: (*call["tokens"].shape[:1], call["routingMap"].shape[1]),
                "routingMap",
            ),
            same_shape(_PROBS, "routingMap"),
            rule("no more than the map has: numOutTokens", _counted),
            value_is(f"at most {_MOST_TOKENS} rows and columns", lambda got: max(got) <= _MOST_TOKENS, "routingMap"),
            shape_is("the rows", lambda call: (_rows(call), call["tokens"].shape[1]), "permuteTokensOut"),
            *_beside(_PROBS, shape_is("one for each row", lambda call: (_rows(call),), _PERMUTED_PROBS)),
            shape_is("one for each row", lambda call: (_rows(call),), "sortedIndicesOut"),
        ),
        _permute_work,
    ),
    declared(
        "moe_token_permute_with_routing_map_grad",
        "tokenGradOut = sums of the gradients of each token's rows; probsGradOutOptional = gradients of its weights",
        "Gradients of token permutation by a routing map.",
        (
            tensor_in(_ROWS_GRAD, "the gradient with respect to the rows"),
            optional_in(_PROBS_GRAD, "the gradient with respect to the weights of the rows"),
            _SORTED,
            _GIVEN_MAP,
            attribute("experts_num", Kind.INT64, "the number of experts"),
            attribute("tokens_num", Kind.INT64, "the number of tokens"),
            _PADDED,
            tensor_out("tokenGradOut", "the gradient with respect to the tokens"),
            tensor_out("probsGradOutOptional", "the gradient with respect to the weights", optional=True),
        ),
        (
            present(_ROWS_GRAD, "sortedIndices", "tokenGradOut"),
            *_beside(_PROBS_GRAD, present(_MAP, "probsGradOutOptional")),
            dtype_in(floating, _ROWS_GRAD),
            dtype_in(_PLACES, "sortedIndices"),
            dtype_in(_FLAGS, _MAP),
            same_dtype("tokenGradOut", _ROWS_GRAD),
            _like_tokens(_ROWS_GRAD, _PROBS_GRAD),
            *_beside(_PROBS_GRAD, same_dtype("probsGradOutOptional", _PROBS_GRAD)),
            dims_between(2, 2, _ROWS_GRAD),
            rule("not negative: experts_num, tokens_num", _numbers),
            _permuted_rows(_ROWS_GRAD),
            shape_is("one for each row", lambda call: call[_ROWS_GRAD].shape[:1], _PROBS_GRAD),
            shape_is("(tokens, experts)", lambda call: (call["tokens_num"], call["experts_num"]), _MAP),
            shape_is(
                "a row for each token", lambda call: (call["tokens_num"], call[_ROWS_GRAD].shape[1]), "tokenGradOut"
            ),
            *_beside(_PROBS_GRAD, same_shape("probsGradOutOptional", _MAP)),
        ),
        _permute_grad_work,
        stream_type="const aclrtStream ",
    ),
    declared(
        "moe_token_unpermute_with_routing_map",
        "unpermutedTokens = sums of each token's rows, times permuteProbs",
        "Unpermute tokens by a routing map: sum the weighted rows of each token.",
        (
            tensor_in("permutedTokens", "the rows, sorted by expert"),
            _SORTED,
            _GIVEN_MAP,
            _GIVEN_PROBS,
            attribute("paddedMode", Kind.BOOL, "whether every expert has the same number of rows"),
            Parameter("restoreShapeOptional", "restore_shape", Kind.INT_ARRAY, "ignored", optional=True),
            tensor_out("unpermutedTokens", "a row for each token"),
            tensor_out("outIndex", "the row of each of permuteTokenId; INT32"),
            tensor_out("permuteTokenId", "the token of each row; INT32"),
            tensor_out("permuteProbs", "the weights of the rows, if probsOptional is given", optional=True),
        ),
        (
            present("permutedTokens", "sortedIndices", "unpermutedTokens", "outIndex", "permuteTokenId"),
            *_beside(_PROBS, present(_MAP, "permuteProbs")),
            dtype_in(floating, "permutedTokens"),
            dtype_in(_PLACES, "sortedIndices", "outIndex", "permuteTokenId"),
            dtype_in(_FLAGS, _MAP),
            _like_tokens("permutedTokens", _PROBS),
            same_dtype("unpermutedTokens", "permutedTokens"),
            *_beside(_PROBS, same_dtype("permuteProbs", _PROBS)),
            dims_between(2, 2, "permutedTokens", "unpermutedTokens", _PROBS),
            _permuted_rows("permutedTokens"),
            same_shape("outIndex", "sortedIndices"),
            same_shape("permuteTokenId", "sortedIndices"),
            shape_is(
                "the columns of permutedTokens",
                lambda call: (call["unpermutedTokens"].shape[0], call["permutedTokens"].shape[1]),
                "unpermutedTokens",
            ),
            *_beside(
                _PROBS,
                shape_is(
                    "a row for each token",
                    lambda call: (call["unpermutedTokens"].shape[0], call[_PROBS].shape[1]),
                    _PROBS,
                ),
                same_shape(_MAP, _PROBS),
                same_shape("permuteProbs", "sortedIndices"),
            ),
            rule(f"at most {_MOST_CHOSEN} rows a token: permutedTokens", _few, ACLNN_ERR_INNER_FIND_KERNEL_ERROR),
        ),
        _unpermute_work,
        stream_type="const aclrtStream ",
    ),
    declared(
        "moe_token_unpermute_with_routing_map_grad",
        "permutedTokensGradOut[outIndex[i]] = unpermutedTokensGrad[permuteTokenId[i]] * the row's weight, "
        "probsGradOutOptional = sum(unpermutedTokensGrad[permuteTokenId[i]] * permutedTokensOptional[outIndex[i]])",
        "Gradients of token unpermutation by a routing map.",
        (
            tensor_in("unpermutedTokensGrad", "the gradient with respect to the sums"),
            tensor_in("outIndex", "the row of each of permuteTokenId; INT32"),
            tensor_in("permuteTokenId", "the token of each row; INT32; ignored without padding"),
            _GIVEN_MAP,
            optional_in(_PERMUTED, "the rows, sorted by expert"),
            _GIVEN_PROBS,
            _PADDED,
            Parameter("restoreShapeOptional", "restore_shape", Kind.INT_ARRAY, "ignored", optional=True),
            tensor_out("permutedTokensGradOut", "the gradient with respect to the rows", const=True),
            Parameter(
                "probsGradOutOptional",
                "probs_grad",
                Kind.OUTPUT,
                "the gradient with respect to the weights",
                True,
                "const aclTensor *",
            ),
        ),
        (
            dtype_in(floating, "unpermutedTokensGrad"),
            dtype_in(_PLACES, "outIndex", "permuteTokenId"),
            dtype_in(_FLAGS, _MAP),
            same_dtype(_PERMUTED, "unpermutedTokensGrad"),
            same_dtype("permutedTokensGradOut", "unpermutedTokensGrad"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                *_beside(_PROBS, _given(_MAP), _given(_PERMUTED), _given("probsGradOutOptional")),
                _like_tokens("unpermutedTokensGrad", _PROBS),
                *_beside(_PROBS, same_dtype("probsGradOutOptional", _PROBS)),
                dims_between(2, 2, "unpermutedTokensGrad", "permutedTokensGradOut", _PROBS),
                shape_is(
                    "the columns of unpermutedTokensGrad",
                    lambda call: (call["permutedTokensGradOut"].shape[0], call["unpermutedTokensGrad"].shape[1]),
                    "permutedTokensGradOut",
                ),
                shape_is("one for each row", lambda call: call["permutedTokensGradOut"].shape[:1], "outIndex"),
                same_shape("permuteTokenId", "outIndex"),
                *_beside(
                    _PROBS,
                    shape_is(
                        "a row for each token",
                        lambda call: (call["unpermutedTokensGrad"].shape[0], call[_PROBS].shape[1]),
                        _PROBS,
                    ),
                    same_shape(_MAP, _PROBS),
                    same_shape(_PERMUTED, "permutedTokensGradOut"),
                    same_shape("probsGradOutOptional", _PROBS),
                ),
            ),
        ),
        _unpermute_grad_work,
    ),
)
