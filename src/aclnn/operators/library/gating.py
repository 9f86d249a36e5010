"""Gates of mixtures of experts: aclnnMoeGatingTopKSoftmax chooses for each row the experts with the greatest scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    on,
    present,
    public_format,
    rule,
    same_dtype,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, camel, support, tensor_in, tensor_out
from aclnn.operators.library.sorting import sort_along

_FINISHED = "finishedOptional"
_GATED = ("yOut", "expertIdxOut", "rowIdxOut")
_SCORES = {**support((D.FLOAT, D.FLOAT16, D.BF16), MODERN), Product.ATLAS_INFERENCE: frozenset({D.FLOAT16})}
_MOST_CHOSEN, _MOST_EXTENT = 1024, 2**31 - 1


def _extents_fit(call: Call, name: str) -> str | None:
    got = call[name].shape
    return None if max(got) <= _MOST_EXTENT else f"expected at most {_MOST_EXTENT} in a dimension, got {extents(got)}"


def _experts(call: Call) -> str | None:
    got = call["x"].shape[-1]
    if call.product is Product.ATLAS_INFERENCE:
        if len(call["x"].shape) == 2 and got % 16 == 0 and got <= 256:
            return None
        shape = extents(call["x"].shape)
        return f"x: expected 2 dimensions, a multiple of 16 up to 256 in the last, got {shape}"
    if call.product not in CLASS_950 or 1 <= got <= 2048:
        return None
    return f"x: expected 1 to 2048 experts in the last dimension, got {got}"


def _chosen(call: Call) -> str | None:
    most = min(_MOST_CHOSEN, call["x"].shape[-1])
    return None if 0 <= call["k"] <= most else f"k: expected from 0 to {most}, got {call['k']}"


def _finished(call: Call, name: str) -> str | None:
    expected, got = call["x"].shape[:-1], call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (the rows of x), got {extents(got)}"


def _gate_work(call: Call) -> Library | None:
    if call["yOut"].size == 0:
        return None
    count, numbered = call["k"], call.product is not Product.ATLAS_INFERENCE

    def gate(x: Any, finished: Any = None) -> tuple[Any, Any, Any]:
        with np.errstate(invalid="ignore"):  # of infinite scores
            shares = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        values, experts = sort_along(shares, -1, True, count)
        if finished is not None:
            experts[finished] = x.shape[-1]
        places = np.arange(experts.size).reshape(count, -1).T.reshape(experts.shape) if numbered else 0
        return values, experts, places

    return Library(gate, ("x", *((_FINISHED,) if call[_FINISHED] is not None else ())), _GATED)


OPERATORS = (
    Operator(
        name="moe_gating_top_k_softmax",
        function=camel("moe_gating_top_k_softmax"),
        summary="Choose the experts with the greatest shares in the softmax of scores.",
        formula="yOut, expertIdxOut = the first k of softmax(x), sorted; rowIdxOut[row, j] = j * rows + row",
        parameters=(
            tensor_in("x", "a score of each expert for each row"),
            Parameter(
                _FINISHED, _FINISHED, Kind.INPUT, "rows that get no expert but their number; BOOL", optional=True
            ),
            attribute("k", Kind.INT64, "how many experts a row gets"),
            tensor_out("yOut", "the shares", const=True),
            tensor_out("expertIdxOut", "the experts; INT32", const=True),
            tensor_out("rowIdxOut", "numbers of rows by columns, 0 on Atlas inference; INT32", const=True),
        ),
        support=_SCORES,
        checks=(
            present("x", *_GATED),
            public_format("x", _FINISHED, *_GATED),
            dtype_in(lambda product: _SCORES.get(product, _SCORES[Product.ATLAS_A2]), "x"),
            dtype_in(lambda product: {D.BOOL}, _FINISHED),
            same_dtype("yOut", "x"),
            dtype_in(lambda product: {D.INT32}, *_GATED[1:]),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                *on(
                    {Product.ATLAS_INFERENCE},
                    each("null", (_FINISHED,), lambda call, name: "expected null, got a tensor"),
                ),
                dims_between(2, 3, "x"),
                each("extents of 32 bits", ("x",), _extents_fit),
                rule("as many experts as the product takes: x", _experts),
                each("a flag for each row", (_FINISHED,), _finished),
                rule("among the experts: k", _chosen),
                shape_is("a place for each chosen", lambda call: (*call["x"].shape[:-1], call["k"]), *_GATED),
            ),
        ),
        work=_gate_work,
        in_header_of="moe_gating_top_k_softmax",
    ),
)
