"""Permutation of tokens to experts and back: aclnnMoeTokenPermute, aclnnMoeTokenUnpermute and their gradients.

Permuted rows are ordered by expert; element token·k + j of ``sortedIndices`` is the row of a token's j-th of k
experts. A row beyond the last was dropped, and counts as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    MOST_DIMS,
    Column,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    floating,
    generated,
    no_zero_dims,
    nothing_to_write,
    on,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import MODERN, attribute, support, tensor_in, tensor_out

_MOST_CHOSEN, _MOST_SORTED = 512, 2**24 - 2
_PROBS, _PERMUTED = "probsOptional", "permutedTokensOptional"
_PADDED_MODE = attribute("paddedMode", Kind.BOOL, "false: the number of tokens per expert is not fixed")
_RESTORED = Parameter("restoreShapeOptional", "restore_shape", Kind.INT_ARRAY, "ignored", optional=True)
_GIVEN_PROBS = Parameter(
    _PROBS, _PROBS, Kind.INPUT, "the weights of the experts; null: one expert per token", optional=True
)
_PLACES = tensor_in("sortedIndices", "the indices of the tokens' permuted rows; INT32")


def _padded(call: Call) -> str | None:
    return "paddedMode: expected false, got true" if call["paddedMode"] else None


def _checks(
    inputs: Sequence[str],
    outputs: Sequence[str],
    columns: Callable[[Product], Collection[Column]],
    *tiling: Check,
    optional: Sequence[Check] = (),
) -> tuple[Check, ...]:
    """Return the checks of a generated interface, which on the 950 class enclose a check of ``paddedMode``."""
    unpadded = elsewhere(CLASS_950, rule("false: paddedMode", _padded))
    nulls, *others = generated(inputs, outputs, columns, *unpadded, *tiling, optional=optional)
    return (nulls, *on(CLASS_950, rule("not padded: paddedMode", _padded)), *others)


def _few(name: str, count: Callable[[Call], int]) -> tuple[Check, ...]:
    """Limit the number of experts per token, except on the 950 class."""

    def violation(call: Call) -> str | None:
        got = count(call)
        return None if got <= _MOST_CHOSEN else f"{name}: expected at most {_MOST_CHOSEN} for a token, got {got}"

    return elsewhere(CLASS_950, rule(f"few experts: {name}", violation))


def _chosen(call: Call) -> int:
    """Return the number of experts per token."""
    if _PROBS in call.arguments:
        return 1 if call[_PROBS] is None else int(call[_PROBS].shape[-1])
    shape = call["indices"].shape
    return int(shape[1]) if len(shape) > 1 else 1


def _kept(call: Call) -> int:
    total, asked = call["indices"].size, call["numOutTokens"]
    return max(0, min(asked if asked > 0 else asked + total, total))


def _token_dims(call: Call) -> str | None:
    rank, is_int8 = len(call["tokens"].shape), call["tokens"].dtype == D.INT8
    if rank == 2 or (2 < rank <= MOST_DIMS and not is_int8):
        return None
    return f"tokens: expected {'2' if is_int8 else f'2 to {MOST_DIMS}'} dimensions, got {rank}"


def _indexed(call: Call) -> str | None:
    expected, got = call["tokens"].shape[0], call["indices"].shape
    return None if got[0] == expected else f"indices: expected {expected} rows (as many as tokens), got {extents(got)}"


def _permuted_shape(call: Call) -> str | None:
    name = "permuteTokensOut"
    rows, columns, got = _kept(call), math.prod(call["tokens"].shape[1:]), call[name].shape
    if got[0] == rows and math.prod(got[1:]) == columns:
        return None
    return f"{name}: expected {rows} rows of {columns} elements, got {extents(got)}"


def _permute_work(call: Call) -> Library | None:
    kept, chosen, shape = _kept(call), _chosen(call), call["permuteTokensOut"].shape
    if call["sortedIndicesOut"].size == 0:
        return None

    def permute(tokens: Any, indices: Any) -> tuple[Any, Any]:
        order = np.argsort(indices.reshape(-1), kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return tokens[order[:kept] // chosen].reshape(shape), places

    return Library(permute, ("tokens", "indices"), ("permuteTokensOut", "sortedIndicesOut"))


def _taken(rows: Any, places: Any) -> Any:
    """Return rows at given indices in float64, zeros for indices beyond the last."""
    _expect_places(places)
    kept = places < len(rows)
    taken = np.zeros((*places.shape, rows.shape[1]))
    taken[kept] = rows[places[kept]]
    return taken


def _put(values: Any, places: Any, count: int) -> Any:
    """Return ``count`` rows with values at given indices; those beyond the last are dropped."""
    _expect_places(places)
    kept, rows = places < count, np.zeros((count, values.shape[-1]))
    rows[places[kept]] = values[kept]
    return rows


def _expect_places(places: Any) -> None:
    if places.size and (least := places.min()) < 0:
        raise IndexError(f"sortedIndices: expected rows from 0 on, got {least}")


def _permute_grad_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    chosen = call["numTopk"]
    return Library(
        lambda grad, places: _taken(grad, places.reshape(-1, chosen)).sum(1),
        ("permutedOutputGrad", "sortedIndices"),
        ("out",),
    )


def _rows_of(call: Call) -> tuple[int, int]:
    """Return the shape of tokens, each of which has numTopk rows."""
    return call["sortedIndices"].size // call["numTopk"], int(call["permutedOutputGrad"].shape[1])


def _divisible(call: Call) -> str | None:
    got, by = call["sortedIndices"].size, call["numTopk"]
    return None if got % by == 0 else f"sortedIndices: expected a multiple of {by} (numTopk) elements, got {got}"


def _tokens(call: Call) -> int:
    probs = call[_PROBS]
    return int(call["sortedIndices"].shape[0] if probs is None else probs.shape[0])


def _row_each(call: Call, tokens: str) -> tuple[int, int]:
    return _tokens(call), int(call[tokens].shape[1])


def _placed(call: Call) -> str | None:
    expected, got = call[_PROBS], call["sortedIndices"].size
    if expected is None or got == expected.size:
        return None
    return f"sortedIndices: expected {expected.size} elements (as many as {_PROBS}), got {got}"


def _unpermute_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    shape = (_tokens(call), _chosen(call))

    def unpermute(tokens: Any, places: Any, probs: Any = None) -> Any:
        taken = _taken(tokens, places.reshape(shape))
        return taken[:, 0] if probs is None else np.einsum("ijk,ij->ik", taken, probs.astype(np.float64))

    given = () if call[_PROBS] is None else (_PROBS,)
    return Library(unpermute, ("permutedTokens", "sortedIndices", *given), ("out",))


def _unpermute_grad_work(call: Call) -> Library | None:
    outputs, names = ("permutedTokensGradOut", "probsGradOut"), ("unpermutedTokensGrad", "sortedIndices")
    count, shape = call[outputs[0]].shape[0], (_tokens(call), _chosen(call))
    if nothing_to_write(call, outputs):
        return None

    def plain(grad: Any, places: Any) -> Any:
        return _put(grad, places, count)

    def weighted(grad: Any, places: Any, tokens: Any, probs: Any) -> tuple[Any, Any]:
        grad, places, probs = grad.astype(np.float64), places.reshape(shape), probs.astype(np.float64)
        spread = _put(grad[:, None] * probs[..., None], places, count)
        return spread, np.einsum("ijk,ik->ij", _taken(tokens, places), grad)

    if call[_PROBS] is None:
        return Library(plain, names, outputs[:1])
    return Library(weighted, (*names, _PERMUTED, _PROBS), outputs)


def _beside_probs(call: Call) -> str | None:
    missing = call[_PERMUTED] is None and call[_PROBS] is not None
    return f"{_PERMUTED}: expected an object with {_PROBS}, got null" if missing else None


def _as_probs(call: Call, name: str) -> str | None:
    probs = call[_PROBS]
    if probs is None or (call[name].dtype, call[name].shape) == (probs.dtype, probs.shape):
        return None
    expected = f"{probs.dtype.c_name} of shape {extents(probs.shape)} (as {_PROBS})"
    return f"expected {expected}, got {call[name].dtype.c_name} of {extents(call[name].shape)}"


_OF_PROBS = (
    dims_between(1, 1, "sortedIndices"),
    dims_between(2, 2, _PROBS),
    rule("one for each of probsOptional: sortedIndices", _placed),
    *_few(_PROBS, _chosen),
)


def _permuted_dtypes(product: Product) -> tuple[Column, ...]:
    taken = (*FLOATING, D.INT8) if product in CLASS_950 else FLOATING
    return tuple((d, index, d, D.INT32) for d in taken for index in (D.INT32, D.INT64))


OPERATORS = (
    Operator(
        name="moe_token_permute",
        summary="Permute tokens, sorted by expert.",
        formula="sortedIndicesOut = argsort(argsort(indices)), permuteTokensOut[sortedIndicesOut[i]] = tokens[i / k]",
        parameters=(
            tensor_in("tokens", "a row for each token"),
            tensor_in("indices", "the indices of each token's k experts; INT32 or INT64"),
            attribute("numOutTokens", Kind.INT64, "the number of rows to keep; if not positive, counted from the end"),
            _PADDED_MODE,
            tensor_out("permuteTokensOut", "the rows of the tokens, sorted by expert", const=True),
            tensor_out("sortedIndicesOut", "the indices of each token's rows; INT32", const=True),
        ),
        support={**support(FLOATING, A2_CLASS), **support((*FLOATING, D.INT8), CLASS_950)},
        checks=_checks(
            ("tokens", "indices"),
            ("permuteTokensOut", "sortedIndicesOut"),
            _permuted_dtypes,
            rule("dimensions of tokens: tokens", _token_dims),
            dims_between(1, 2, "indices"),
            rule("a row for each token: indices", _indexed),
            *_few("indices", _chosen),
            value_is(
                f"at most {_MOST_SORTED} elements", lambda got: got <= _MOST_SORTED, "indices", of=lambda got: got.size
            ),
            dims_between(2, MOST_DIMS, "permuteTokensOut"),
            rule("the rows that are kept: permuteTokensOut", _permuted_shape),
            shape_is("one for each of indices", lambda call: (call["indices"].size,), "sortedIndicesOut"),
        ),
        work=_permute_work,
    ),
    Operator(
        name="moe_token_permute_grad",
        summary="Gradient of token permutation.",
        formula="out[i] = sum over j of permutedOutputGrad[sortedIndices[i * numTopk + j]]",
        parameters=(
            tensor_in("permutedOutputGrad", "the gradient with respect to the permuted tokens"),
            _PLACES,
            attribute("numTopk", Kind.INT64, "the number of rows per token"),
            _PADDED_MODE,
            tensor_out("out", "the gradient with respect to the tokens"),
        ),
        support=support(FLOATING, MODERN),
        checks=_checks(
            ("permutedOutputGrad", "sortedIndices"),
            ("out",),
            lambda product: [(d, D.INT32, d) for d in FLOATING],
            dims_between(2, 2, "permutedOutputGrad"),
            dims_between(1, 1, "sortedIndices"),
            value_is("at least 1", lambda got: got >= 1, "numTopk"),
            *_few("numTopk", lambda call: int(call["numTopk"])),
            rule("numTopk for each token: sortedIndices", _divisible),
            shape_is("a row for each token", _rows_of, "out"),
        ),
        work=_permute_grad_work,
    ),
    Operator(
        name="moe_token_unpermute",
        summary="Unpermute tokens: sum the weighted rows of each token.",
        formula="out[i] = sum over j of probsOptional[i, j] * permutedTokens[sortedIndices[i * k + j]]",
        parameters=(
            tensor_in("permutedTokens", "the rows, sorted by expert"),
            _PLACES,
            _GIVEN_PROBS,
            _PADDED_MODE,
            _RESTORED,
            tensor_out("out", "a row for each token"),
        ),
        support=support(FLOATING, MODERN),
        checks=_checks(
            ("permutedTokens", "sortedIndices"),
            ("out",),
            lambda product: [(d, D.INT32, d) for d in FLOATING],
            dims_between(2, 2, "permutedTokens"),
            *_OF_PROBS,
            shape_is("a row for each token", lambda call: _row_each(call, "permutedTokens"), "out"),
            optional=(dtype_in(floating, _PROBS),),
        ),
        work=_unpermute_work,
    ),
    Operator(
        name="moe_token_unpermute_grad",
        summary="Gradients of token unpermutation.",
        formula="permutedTokensGradOut[sortedIndices[i * k + j]] = probsOptional[i, j] * unpermutedTokensGrad[i], "
        "probsGradOut[i, j] = sum(unpermutedTokensGrad[i] * permutedTokensOptional[sortedIndices[i * k + j]])",
        parameters=(
            Parameter(_PERMUTED, "permuted_tokens", Kind.INPUT, "the rows, sorted by expert", optional=True),
            tensor_in("unpermutedTokensGrad", "the gradient with respect to the result"),
            _PLACES,
            _GIVEN_PROBS,
            _PADDED_MODE,
            _RESTORED,
            tensor_out("permutedTokensGradOut", "the gradient with respect to permutedTokensOptional"),
            tensor_out("probsGradOut", "the gradient with respect to probsOptional, if that is given"),
        ),
        support=support(FLOATING, MODERN),
        checks=_checks(
            ("unpermutedTokensGrad", "sortedIndices"),
            ("permutedTokensGradOut", "probsGradOut"),
            lambda product: [(d, D.INT32, d, probs) for d in FLOATING for probs in FLOATING],
            rule(f"with probsOptional: {_PERMUTED}", _beside_probs),
            dims_between(2, 2, "permutedTokensGradOut"),
            *_OF_PROBS,
            shape_is(
                "a row for each token", lambda call: _row_each(call, "permutedTokensGradOut"), "unpermutedTokensGrad"
            ),
            same_shape(_PERMUTED, "permutedTokensGradOut"),
            each("as probsOptional", ("probsGradOut",), _as_probs),
            *elsewhere(CLASS_950, no_zero_dims("unpermutedTokensGrad", "permutedTokensGradOut")),
            optional=(
                *on(CLASS_950, present(_PERMUTED)),
                same_dtype(_PERMUTED, "unpermutedTokensGrad"),
                dtype_in(floating, _PROBS),
            ),
        ),
        work=_unpermute_grad_work,
    ),
)
