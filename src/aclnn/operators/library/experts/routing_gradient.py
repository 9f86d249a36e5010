"""Back through routes to experts and from them: aclnnMoeInitRoutingV2Grad, aclnnMoeFinalizeRoutingV2Grad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    extents,
    fits,
    generated,
    nothing_to_write,
    one_of,
    only_if,
    rule,
    same_dtype,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import MODERN, attribute, expect_within, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.experts.routing import at_least

_PLACES, _ROWS, _SCALES = "expandedRowIdx", "expandedXOptional", "scalesOptional"
_EXPERTS, _BIAS = "expertIdxOptional", "biasOptional"


def _is_padded(call: Call) -> bool:
    return bool(call["dropPadMode"] == 1)


def _has_weights(call: Call) -> bool:
    return call[_SCALES] is not None


def _has_biases(call: Call) -> bool:
    return _has_weights(call) and call[_BIAS] is not None


def _gathered(rows: Any, places: Any, most: int) -> tuple[Any, Any]:
    """Return a mask of the places that have a row, and these rows; -1 and places past the rows have none."""
    expect_within(_PLACES, places, -1, most)
    kept = (places >= 0) & (places < len(rows))
    return kept, rows[places[kept]]


def _as_many_rows(call: Call) -> str | None:
    expected, got = call["activeNum"] or call[_PLACES].size, call["gradExpandedX"].shape
    if _is_padded(call) or got[0] == expected:
        return None
    return f"gradExpandedX: expected {expected} rows, got shape {extents(got)}"


def _divisible(call: Call) -> str | None:
    got, by = call[_PLACES].size, call["topK"]
    return None if got % by == 0 else f"{_PLACES}: expected a multiple of {by} elements (topK), got {got}"


def _each_token(call: Call) -> tuple[int, int]:
    return call[_PLACES].size // call["topK"], call["gradExpandedX"].shape[-1]


def _init_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    shape, chosen, padded = call["out"].shape, call["topK"], _is_padded(call)

    def back(grad: Any, places: Any) -> Any:
        rows = grad.reshape(-1, shape[1])
        kept, taken = _gathered(rows, places, len(rows if padded else places) - 1)
        found = np.zeros((len(places), shape[1]))
        found[kept] = taken
        return found.reshape(shape[0], chosen, shape[1]).sum(1)

    return Library(back, ("gradExpandedX", _PLACES), ("out",))


def _given(call: Call, name: str, beside: str) -> str | None:
    return f"{name}: expected an object with {beside}, got null" if call[name] is None else None


def _a_place_for_each(call: Call) -> str | None:
    expected, got = call["gradY"].shape[0], call[_PLACES].size
    if _has_weights(call) or got == expected:
        return None
    return f"{_PLACES}: expected {expected} elements (the rows of gradY) without {_SCALES}, got {got}"


def _a_weight_for_each(call: Call) -> str | None:
    tokens, places, got = call["gradY"].shape[0], call[_PLACES].size, call[_SCALES].shape
    if got[0] == tokens and math.prod(got) == places:
        return None
    return f"{_SCALES}: expected {tokens} rows and {places} elements, got shape {extents(got)}"


def _of_weights(call: Call) -> tuple[int, ...]:
    shape: tuple[int, ...] = call[_SCALES].shape
    return shape


def _of_rows(call: Call) -> tuple[int, ...]:
    total, active, columns = call[_PLACES].size, call["activeNum"], call["gradY"].shape[1]
    if _is_padded(call):
        return call["expertNum"], call["expertCapacity"], columns
    return (active if 0 < active < total else total), columns


def _a_row_for_each(call: Call) -> str | None:
    columns, got = call["gradY"].shape[1], call[_BIAS].shape
    rows = call["expertNum"] if _is_padded(call) else max(1, got[0])
    return (
        None if got == (rows, columns) else f"{_BIAS}: expected {rows} rows of {columns} elements, got {extents(got)}"
    )


def _final_work(call: Call) -> Library | None:
    rows_out, _ = outputs = ("gradExpandedXOut", "gradScalesOut")
    if nothing_to_write(call, outputs):
        return None
    shape, padded, biased = call[rows_out].shape, _is_padded(call), _has_biases(call)
    many = math.prod(shape[:-1])

    def back(grad: Any, places: Any, *further: Any) -> Any:
        scales, rows, *biases = further or (np.ones((len(grad), 1)), None)
        grad = np.repeat(grad.astype(np.float64), scales.shape[1], 0)
        expect_within(_PLACES, places, -1, (many if padded else len(places)) - 1)
        kept, found = (places >= 0) & (places < many), np.zeros((many, shape[-1]))
        found[places[kept]] = (grad * scales.reshape(-1, 1))[kept]
        if rows is None:
            return found.reshape(shape)
        answers = np.zeros(grad.shape)
        answers[kept] = rows.reshape(many, shape[-1])[places[kept]]
        if biases:
            expect_within(_EXPERTS, biases[1], 0, len(biases[0]) - 1)
            answers += biases[0][biases[1].reshape(-1)]
        return found.reshape(shape), (answers * grad).sum(1).reshape(scales.shape)

    names = ("gradY", _PLACES, *((_SCALES, _ROWS) if _has_weights(call) else ()))
    return Library(
        back, (*names, *((_BIAS, _EXPERTS) if biased else ())), outputs if _has_weights(call) else (rows_out,)
    )


def _final_dtypes(product: Product) -> list[tuple[D, ...]]:
    return [(d, D.INT32, d, s) for d in FLOATING for s in (FLOATING if product in CLASS_950 else (d,))]


def _weighted(*checks: Check) -> tuple[Check, ...]:
    return tuple(only_if(check, f"with {_SCALES}", _has_weights) for check in checks)


def _biased(*checks: Check) -> tuple[Check, ...]:
    return tuple(only_if(check, f"with {_SCALES} and {_BIAS}", _has_biases) for check in checks)


_PADDED = attribute("dropPadMode", Kind.INT64, "1: each expert has exactly expertCapacity rows")
_INDICES = tensor_in(_PLACES, "the row indices of the tokens, -1 for none; INT32")

OPERATORS = (
    Operator(
        name="moe_init_routing_v2_grad",
        summary="Gradient of aclnnMoeInitRoutingV2 with respect to tokens.",
        formula="out[i] = sum over j of gradExpandedX[expandedRowIdx[i * topK + j]]",
        parameters=(
            tensor_in("gradExpandedX", "the gradient with respect to the experts' rows, or blocks of capacity rows"),
            _INDICES,
            attribute("topK", Kind.INT64, "the number of experts per token"),
            attribute("dropPadMode", Kind.INT64, "1: gradExpandedX has blocks of capacity rows"),
            attribute("activeNum", Kind.INT64, "the number of rows kept, 0: all"),
            tensor_out("out", "the gradient with respect to the tokens", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("gradExpandedX", _PLACES),
            ("out",),
            lambda product: [(d, D.INT32, d) for d in FLOATING],
            one_of("dropPadMode", 0, 1),
            at_least("topK", 1),
            at_least("activeNum", 0),
            fits("{} dimensions", lambda call, got: (3 if _is_padded(call) else 2, len(got.shape)), "gradExpandedX"),
            dims_between(1, 1, _PLACES),
            rule("as many rows as places: gradExpandedX", _as_many_rows),
            rule(f"a multiple of topK: {_PLACES}", _divisible),
            shape_is("a row for each token", _each_token, "out"),
        ),
        work=_init_work,
    ),
    Operator(
        name="moe_finalize_routing_v2_grad",
        summary="Gradients of aclnnMoeFinalizeRoutingV2 with respect to the experts' rows and the weights.",
        formula="gradExpandedXOut[expandedRowIdx[i, j]] = gradY[i] * scalesOptional[i, j]; gradScalesOut[i, j] = "
        "sum of gradY[i] * (expandedXOptional[expandedRowIdx[i, j]] + biasOptional[expertIdxOptional[i, j]])",
        parameters=(
            tensor_in("gradY", "the gradient with respect to the combined tokens"),
            _INDICES,
            optional_in(_ROWS, "the rows by expert, or blocks of capacity rows"),
            optional_in(_SCALES, "the weights of the experts of each token"),
            optional_in(_EXPERTS, "the expert indices of each token; INT32"),
            optional_in(_BIAS, "the bias of each expert"),
            _PADDED,
            attribute("activeNum", Kind.INT64, "the number of rows kept, 0 or less: all"),
            attribute("expertNum", Kind.INT64, "the number of experts, with dropPadMode 1"),
            attribute("expertCapacity", Kind.INT64, "the capacity of an expert with dropPadMode 1"),
            tensor_out("gradExpandedXOut", "the gradient with respect to the experts' rows", const=True),
            tensor_out(
                "gradScalesOut", f"the gradient with respect to the weights; not written without {_SCALES}", const=True
            ),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("gradY", _PLACES),
            ("gradExpandedXOut", "gradScalesOut"),
            _final_dtypes,
            one_of("dropPadMode", 0, 1),
            only_if(at_least("expertNum", 1), "with dropPadMode 1", _is_padded),
            only_if(at_least("expertCapacity", 1), "with dropPadMode 1", _is_padded),
            dims_between(2, 2, "gradY"),
            dims_between(1, 1, _PLACES),
            rule(f"a place for each row: {_PLACES}", _a_place_for_each),
            *_weighted(
                rule(f"given with scales: {_ROWS}", lambda call: _given(call, _ROWS, _SCALES)),
                dims_between(2, 2, _SCALES),
                rule(f"a weight for each place: {_SCALES}", _a_weight_for_each),
                shape_is("the rows of experts", _of_rows, _ROWS),
            ),
            *_biased(
                rule(f"given with biases: {_EXPERTS}", lambda call: _given(call, _EXPERTS, _BIAS)),
                dims_between(2, 2, _BIAS),
                shape_is("one for each place", _of_weights, _EXPERTS),
                rule(f"a row for each expert: {_BIAS}", _a_row_for_each),
            ),
            shape_is("the rows of experts", _of_rows, "gradExpandedXOut"),
            *_weighted(shape_is("one for each place", _of_weights, "gradScalesOut")),
            optional=(
                same_dtype(_ROWS, "gradY"),
                same_dtype(_SCALES, "gradScalesOut"),
                dtype_in({D.INT32}, _EXPERTS),
                same_dtype(_BIAS, "gradY"),
            ),
        ),
        work=_final_work,
    ),
)
