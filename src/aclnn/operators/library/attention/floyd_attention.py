"""Triangular attention of pairs: aclnnFusedFloydAttention and its gradients.

The pair (i, k) attends to each j through the pairs (i, j) and (j, k): their scores are added, and both values are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    nothing_to_write,
    rule,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import attribute, optional_in, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_HALVES = (D.FLOAT16, D.BF16)
_MASK = "attenMaskOptional"
_COPIES = 8
"""Number of copies of a row's statistic."""
_MASKED = np.finfo(np.float32).min
"""Value of masked scores, so that an entirely masked row becomes the mean of all values."""
_ELEMENTS, _UNIT_OF_ROWS, _UNIT = (32, 64, 128), 16, 128
_MOST_SAMPLES, _MOST_HEADS, _LONGEST = 2048, 256, 2**20


def _parts(samples: int, heads: int) -> Iterator[tuple[int, int]]:
    yield from np.ndindex(samples, heads)


def _both(x: Array, first: Array, second: Array) -> Array:
    """Multiply (N, M, D) by (N, D, K) row by row, and by (M, D, K) column by column; return the sum (N, M, K)."""
    return x @ first + (x.swapaxes(0, 1) @ second).swapaxes(0, 1)


def _scores(query: Array, keys: tuple[Array, Array], scale: float, mask: Any) -> Array:
    """Return the scores (N, M, K) of a head; the second keys are (K, M, D), the mask broadcasts from (N, 1, K)."""
    found = _both(query, keys[0].swapaxes(1, 2), keys[1].transpose(1, 2, 0)) * query.dtype.type(scale)
    return found if mask is None else np.where(mask != 0, query.dtype.type(_MASKED), found)


def _shares_back(shares: Array, rows: Array) -> tuple[Array, Array]:
    """Multiply (N, M, K), transposed, by (N, M, D): row by row to (N, K, D), and column by column to (K, M, D)."""
    return shares.swapaxes(1, 2) @ rows, (shares.transpose(1, 2, 0) @ rows.swapaxes(0, 1)).swapaxes(0, 1)


def _work(call: Call) -> Library | None:
    outputs = ("softmaxMaxOut", "softmaxSumOut", "attentionOutOut")
    if nothing_to_write(call, outputs):
        return None
    scale, shape = call["scaleValueOptional"], call["query"].shape
    masks = (_MASK,) if call[_MASK] is not None else ()

    def compute(
        query: Array, key1: Array, value1: Array, key2: Array, value2: Array, *mask: Array
    ) -> tuple[Array, ...]:
        attention = np.empty(shape, query.dtype)
        largest, total = (np.empty((*shape[:4], 1), query.dtype) for _ in range(2))
        for at in _parts(*shape[:2]):
            masked = mask[0][at[0], at[1] % mask[0].shape[1]] if mask else None
            scores = _scores(query[at], (key1[at], key2[at]), scale, masked)
            largest[at] = scores.max(-1, keepdims=True)
            powers = np.exp(scores - largest[at])
            total[at] = powers.sum(-1, keepdims=True, dtype=np.float64)
            attention[at] = _both(powers / total[at], value1[at], value2[at].swapaxes(0, 1))
        return largest, total, attention

    return Library(compute, ("query", "key1", "value1", "key2", "value2", *masks), outputs)


_GRADIENTS = {"dqOut": "query", "dk1Out": "key1", "dv1Out": "value1", "dk2Out": "key2", "dv2Out": "value2"}


def _gradient_work(call: Call) -> Library | None:
    if nothing_to_write(call, tuple(_GRADIENTS)):
        return None
    scale, masks = call["scaleValue"], (_MASK,) if call[_MASK] is not None else ()

    def back(query: Array, key1: Array, value1: Array, key2: Array, value2: Array, *others: Array) -> tuple[Array, ...]:
        dy, largest, total, out, *mask = others
        results = tuple(np.empty_like(x) for x in (query, key1, value1, key2, value2))
        dq, dk1, dv1, dk2, dv2 = results
        for at in _parts(*query.shape[:2]):
            masked = mask[0][at[0], 0] if mask else None
            scores = _scores(query[at], (key1[at], key2[at]), scale, masked)
            shares = np.exp(scores - largest[at][..., :1]) / total[at][..., :1]
            dv1[at], dv2[at] = _shares_back(shares, dy[at])
            of_shares = _both(dy[at], value1[at].swapaxes(1, 2), value2[at].transpose(1, 2, 0))
            change = shares * (of_shares - (dy[at] * out[at]).sum(-1, keepdims=True)) * query.dtype.type(scale)
            if masked is not None:
                np.copyto(change, 0, where=masked != 0)
            dq[at] = _both(change, key1[at], key2[at].swapaxes(0, 1))
            dk1[at], dk2[at] = _shares_back(change, query[at])
        return results

    inputs = ("query", "key1", "value1", "key2", "value2", "dy", "softmaxMax", "softmaxSum", "attentionIn", *masks)
    return Library(back, inputs, tuple(_GRADIENTS))


def _query(call: Call) -> str | None:
    samples, heads, rows, columns, elements = call["query"].shape
    of_rows = 0 < rows <= _LONGEST and rows % _UNIT_OF_ROWS == 0
    of_columns = 0 < columns <= _LONGEST and columns % _UNIT == 0
    if 0 < samples <= _MOST_SAMPLES and 0 < heads <= _MOST_HEADS and of_rows and of_columns and elements in _ELEMENTS:
        return None
    return (
        f"query: expected at most {_MOST_SAMPLES} samples and {_MOST_HEADS} heads, multiples of {_UNIT_OF_ROWS} and "
        f"{_UNIT} up to {_LONGEST} and 32, 64 or 128 elements, got {extents(call['query'].shape)}"
    )


def _first_key(call: Call) -> str | None:
    query, got = call["query"].shape, call["key1"].shape
    if (*got[:3], got[4]) == (*query[:3], query[4]) and 0 < got[3] <= _LONGEST and got[3] % _UNIT == 0:
        return None
    expected = f"{extents(query[:3])[:-1]}, …, {query[4]}] with a multiple of {_UNIT} up to {_LONGEST}"
    return f"key1: expected shape {expected}, got {extents(got)}"


def _second_key_shape(call: Call) -> tuple[int, ...]:
    query = call["query"].shape
    return (*query[:2], call["key1"].shape[3], *query[3:])


def _mask_shape(call: Call) -> tuple[int, ...]:
    query = call["query"].shape
    return (query[0], 1, query[2], 1, call["key1"].shape[3])


def _mask_or_scores(call: Call, name: str) -> str | None:
    got, allowed = call[name].shape, (_mask_shape(call), (*call["query"].shape[:4], call["key1"].shape[3]))
    return None if got in allowed else f"expected shape {' or '.join(map(extents, allowed))}, got {extents(got)}"


def _shapes(mask: Check, statistics: tuple[str, str], attention: tuple[str, ...]) -> tuple[Check, ...]:
    return (
        dims_between(5, 5, "query", "key1"),
        rule("extents with a kernel: query", _query),
        rule("with query: key1", _first_key),
        same_shape("value1", "key1"),
        shape_is("with query", _second_key_shape, "key2"),
        same_shape("value2", "key2"),
        mask,
        shape_is("eight for each query", lambda call: (*call["query"].shape[:4], _COPIES), *statistics),
        *(same_shape(name, "query") for name in attention),
    )


def _columns(halves: tuple[int, ...], tensors: int) -> list[tuple[D, ...]]:
    """Return the supported data types of a number of tensors: FLOAT, except for those in ``halves``."""
    return [tuple(of if at in halves else D.FLOAT for at in range(tensors)) for of in _HALVES]


_TENSORS = (
    tensor_in("query", "the queries of pairs (i, k), (B, H, N, M, D)"),
    tensor_in("key1", "the keys of pairs (i, j), (B, H, N, K, D)"),
    tensor_in("value1", "as key1"),
    tensor_in("key2", "the keys of pairs (j, k), (B, H, K, M, D)"),
    tensor_in("value2", "as key2"),
)
_MASK_USE = "the mask, nonzero to exclude a path, (B, 1, N, 1, K){}; BOOL or UINT8"
_OF_MASK = dtype_in({D.BOOL, D.UINT8}, _MASK)
_ROWS = shape_is("of rows and paths", _mask_shape, _MASK)
_ROWS_OR_SCORES = each("of rows and paths, or of scores", (_MASK,), _mask_or_scores)
_FORMULA = "p = softmax over j of scale * (query[i, k] @ key1[i, j] + query[i, k] @ key2[j, k]), masked"
_FORWARD_OUTPUTS = ("softmaxMaxOut", "softmaxSumOut", "attentionOutOut")

OPERATORS = (
    Operator(
        name="fused_floyd_attention",
        summary="Floyd attention: pairs attend over intermediate elements.",
        formula=f"attentionOutOut[i, k] = sum over j of p * (value1[i, j] + value2[j, k]), {_FORMULA}",
        parameters=(
            *_TENSORS,
            optional_in(_MASK, _MASK_USE.format(" or (B, H, N, M, K)")),
            attribute("scaleValueOptional", Kind.DOUBLE, "the scale factor of the scores"),
            tensor_out(_FORWARD_OUTPUTS[0], "the maximum score, (B, H, N, M, 8); FLOAT", const=True),
            tensor_out(_FORWARD_OUTPUTS[1], "the sum of e^(score - maximum), in the same shape; FLOAT", const=True),
            tensor_out(_FORWARD_OUTPUTS[2], "as query", const=True),
        ),
        support=support(_HALVES, A2_CLASS),
        checks=generated(
            tuple(each.name for each in _TENSORS),
            _FORWARD_OUTPUTS,
            lambda product: _columns((*range(5), 7), 8),
            _OF_MASK,
            *_shapes(_ROWS_OR_SCORES, ("softmaxMaxOut", "softmaxSumOut"), ("attentionOutOut",)),
        ),
        work=_work,
    ),
    Operator(
        name="fused_floyd_attention_grad",
        summary="Gradients of Floyd attention.",
        formula=f"gradients of sum over j of p * (value1[i, j] + value2[j, k]), {_FORMULA}",
        parameters=(
            *_TENSORS,
            tensor_in("dy", "the gradient with respect to the attention"),
            optional_in(_MASK, _MASK_USE.format("")),
            tensor_in("softmaxMax", "the maximum score, (B, H, N, M, 8); FLOAT"),
            tensor_in("softmaxSum", "the sum of e^(score - maximum), in the same shape; FLOAT"),
            tensor_in("attentionIn", "the attention"),
            attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
            *(tensor_out(out, f"the gradient with respect to {of}", const=True) for out, of in _GRADIENTS.items()),
        ),
        support=support(_HALVES, A2_CLASS),
        checks=generated(
            (*(each.name for each in _TENSORS), "dy", "softmaxMax", "softmaxSum", "attentionIn"),
            tuple(_GRADIENTS),
            lambda product: _columns((*range(6), *range(8, 14)), 14),
            _OF_MASK,
            *_shapes(_ROWS, ("softmaxMax", "softmaxSum"), ("dy", "attentionIn")),
            *(same_shape(out, of) for out, of in _GRADIENTS.items()),
        ),
        work=_gradient_work,
        stream_type="const aclrtStream ",
    ),
)
