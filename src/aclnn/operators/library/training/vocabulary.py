"""Cross entropy of a vocabulary in parts, each on a device, with the product that its scores come from.

aclnnFusedLinearOnlineMaxSum finds what the devices exchange, aclnnFusedCrossEntropyLossWithMaxSum the losses,
aclnnFusedLinearCrossEntropyLossGrad the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    dtype_in,
    extents,
    format_is,
    one_of,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_RUNTIME_ERROR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    attribute,
    declared,
    expect_within,
    optional_in,
    tensor_in,
    tensor_out,
)

_HALVES = (D.FLOAT16, D.BF16)
_START, _END, _SMOOTHING = "vocabStartIndex", "vocabEndIndex", "labelSmoothing"
_NUMBERS = ("logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut")
_MASK, _MASKED, _LOGITS = "targetMaskOut", "maskedTargetOut", "vocabParallelLogitsOutOptional"
_WIDEST, _FEWEST = 65534, 128


def _of_each(name: str) -> Callable[[Call], tuple[int, ...]]:
    """Return the shape of one number per row of a tensor."""
    return lambda call: (call[name].shape[0],)


def _scores(call: Call) -> tuple[int, int]:
    return call["input"].shape[0], call["weight"].shape[0]


def _words(call: Call) -> str | None:
    got = call["weight"].shape
    return None if got[0] else f"weight: expected rows, got shape {extents(got)}"


def _columns(call: Call) -> str | None:
    expected, got = call["input"].shape[1], call["weight"].shape
    return None if got[1] == expected else f"weight: expected {expected} columns (as input has), got {extents(got)}"


def _end(call: Call) -> str | None:
    if call[_END] >= call[_START]:
        return None
    return f"{_END}: expected at least {call[_START]} ({_START}), got {call[_END]}"


def _given(name: str, *checks: Check) -> tuple[Check, ...]:
    return restricted(f"with {name}", lambda call: call[name] is not None, *checks)


def _part_work(call: Call) -> Library | None:
    if call["input"].shape[0] == 0:
        return None
    start, end, keeps = call[_START], call[_END], call[_LOGITS] is not None

    def elsewhere(targets: Any) -> Any:
        return (targets < start) | (targets >= end)

    def find(rows: Any, weight: Any, targets: Any) -> tuple[Any, ...]:
        logits = rows.astype(np.float64) @ weight.T.astype(np.float64)
        most = logits.max(1)
        below, masked = logits - most[:, None], elsewhere(targets)
        places = np.where(masked, 0, targets - start)
        expect_within("target", places, 0, len(weight) - 1, f"words from {start} on, less {start},")
        predicted = np.where(masked, 0.0, below[np.arange(len(places)), places])
        # The kernel fills the last byte up as if there were more targets of 0.
        bits = np.append(masked, np.full(-len(masked) % 8, elsewhere(np.int64(0))))
        found = most, np.exp(below).sum(1), predicted, np.packbits(bits, bitorder="little"), places
        return (*found, logits) if keeps else found

    return Library(find, ("input", "weight", "target"), (*_NUMBERS, _MASK, _MASKED, *((_LOGITS,) if keeps else ())))


def _loss_work(call: Call) -> Library | None:
    if call["lossOut"].size == 0:
        return None
    inputs, outputs = ("logitsMax", "sumExpLogits", "predictedLogits"), ("lossOut",)
    if call[_SCORES] is None:
        return Library(lambda most, total, predicted: np.log(total.astype(np.float64)) - predicted, inputs, outputs)

    def compute(most: Any, total: Any, predicted: Any, scores: Any) -> tuple[Any, Any]:
        total = total.astype(np.float64)
        return np.log(total) - predicted, np.exp(scores - most[:, None].astype(np.float64)) / total[:, None]

    return Library(compute, (*inputs, _SCORES), (*outputs, _SHARES))


_SCORES, _SHARES = "vocabParallelLogitsOptional", "softMaxOutOptional"
_MOST, _TOTAL, _SOFTMAX = "logitsMaxOptional", "sumExpLogitsOptional", "softmaxOptional"


def _softmax_or_numbers(call: Call) -> str | None:
    missing = next((name for name in (_MOST, _TOTAL) if call[name] is None), None)
    if missing is None or call[_SOFTMAX] is not None:
        return None
    return f"{missing}: expected an object without {_SOFTMAX}, got null"


def _with_softmax(*checks: Check) -> tuple[Check, ...]:
    return restricted("with softmaxOptional", lambda call: call[_SOFTMAX] is not None, *checks)


def _without_softmax(*checks: Check) -> tuple[Check, ...]:
    return restricted("without softmaxOptional", lambda call: call[_SOFTMAX] is None, *checks)


def _many(call: Call) -> str | None:
    got = call["weight"].shape[0]
    return None if got >= _FEWEST else f"weight: expected at least {_FEWEST} rows with {_SOFTMAX}, got {got}"


def _bits(call: Call) -> str | None:
    rows, mask = call["grad"].shape[0], call["targetMask"]
    if mask.dtype == D.BOOL:
        return None if mask.shape[0] == rows else f"targetMask: expected {rows} elements, got {mask.shape[0]}"
    return (
        None if mask.shape[0] * 8 >= rows else f"targetMask: expected bits for {rows} rows, got {mask.shape[0]} bytes"
    )


def _gradient_work(call: Call) -> Library | None:
    if call["input"].size == 0 or call["weight"].size == 0:
        return None
    given = (_SOFTMAX,) if call[_SOFTMAX] is not None else (_MOST, _TOTAL)

    def back(grad: Any, rows: Any, weight: Any, mask: Any, places: Any, *numbers: Any) -> tuple[Any, Any]:
        rows, weight = rows.astype(np.float64), weight.astype(np.float64)
        if len(numbers) == 1:
            shares = numbers[0].astype(np.float64)
        else:
            most, total = (each[:, None].astype(np.float64) for each in numbers)
            shares = np.exp(rows @ weight.T - most) / total
        masked = mask if mask.dtype == np.bool_ else np.unpackbits(mask, count=len(grad), bitorder="little") != 0
        here = np.flatnonzero(~masked)
        expect_within("maskedTarget", places[here], 0, len(weight) - 1, "words")
        shares[here, places[here]] -= 1.0
        shares *= grad[:, None]
        return shares @ weight, shares.T @ rows

    inputs = ("grad", "input", "weight", "targetMask", "maskedTarget", *given)
    return Library(back, inputs, ("inputGradOut", "weightGradOut"))


_INPUT = tensor_in("input", "the hidden states, one per row; FLOAT16 or BF16")
_WEIGHT = tensor_in("weight", "the weights, one row per token of this part of the vocabulary")
_NO_SMOOTHING = attribute(_SMOOTHING, Kind.FLOAT, "0")

OPERATORS = (
    declared(
        "fused_linear_online_max_sum",
        "logits = input @ weight^T; logitsMaxLocalOut = max(logits); sumExpLogitsLocalOut = sum(e^(logits - max)); "
        "maskedTargetOut = target - vocabStartIndex and predictedLogitsLocalOut = (logits - max)[maskedTargetOut], "
        "both 0 for targets below vocabStartIndex or from vocabEndIndex on, whose bits of targetMaskOut are 1",
        "Softmax statistics of a vocabulary part: maximum logits, sums of exponentials, target logits.",
        (
            _INPUT,
            _WEIGHT,
            tensor_in("target", "the target token of each row; INT32 or INT64"),
            attribute(_START, Kind.INT64, "the first token of this part"),
            attribute(_END, Kind.INT64, "the end of this part, exclusive"),
            tensor_out(_NUMBERS[0], "the maximum logit of each row; FLOAT"),
            tensor_out(_NUMBERS[1], "the sum of exponentials of each row; FLOAT"),
            tensor_out(_NUMBERS[2], "the logit of each target minus the maximum; FLOAT"),
            tensor_out(_MASK, "a bit per target, lowest first: 1 if the target is in another part; UINT8"),
            tensor_out(_MASKED, "the row of weight of each target"),
            tensor_out(_LOGITS, "the logits", optional=True),
        ),
        (
            dtype_in(set(_HALVES), "input"),
            dtype_in(set(INDEX_TYPES), "target"),
            same_dtype("weight", "input"),
            dtype_in({D.FLOAT}, *_NUMBERS),
            dtype_in({D.UINT8}, _MASK),
            same_dtype(_MASKED, "target"),
            *_given(_LOGITS, same_dtype(_LOGITS, "input")),
            dims_between(2, 2, "input", "weight"),
            dims_between(1, 1, "target", *_NUMBERS, _MASK, _MASKED),
            rule("rows: weight", _words),
            value_is(f"at most {_WIDEST} columns", lambda got: got <= _WIDEST, "input", of=lambda got: got.shape[1]),
            rule("as many columns as input: weight", _columns),
            shape_is("a number for each row", _of_each("input"), "target", *_NUMBERS, _MASKED),
            shape_is("a bit for each row", lambda call: (-(-call["input"].shape[0] // 8),), _MASK),
            *_given(_LOGITS, shape_is("a score for each word", _scores, _LOGITS)),
            value_is("0 or more", lambda got: got >= 0, _START),
            rule(f"not before the first: {_END}", _end),
        ),
        _part_work,
        dtypes=_HALVES,
    ),
    declared(
        "fused_cross_entropy_loss_with_max_sum",
        "lossOut = ln(sumExpLogits) - predictedLogits; "
        "softMaxOutOptional = e^(vocabParallelLogitsOptional - logitsMax) / sumExpLogits",
        "Cross-entropy losses from the statistics of all vocabulary parts, and the softmax.",
        (
            tensor_in("logitsMax", "the maximum logit of each row; FLOAT"),
            tensor_in("sumExpLogits", "the sum of exponentials of each row"),
            tensor_in("predictedLogits", "the logit of each target minus the maximum"),
            _NO_SMOOTHING,
            optional_in("inputOptional", "ignored"),
            optional_in("weightOptional", "ignored"),
            optional_in(_SCORES, "the logits of this part"),
            tensor_out("lossOut", "the loss of each row"),
            tensor_out(_SHARES, "the probabilities of the tokens; FLOAT", optional=True),
        ),
        (
            present("logitsMax", "sumExpLogits", "predictedLogits", "lossOut"),
            *_given(_SCORES, present(_SHARES)),
            dtype_in({D.FLOAT}, "logitsMax", "sumExpLogits", "predictedLogits", "lossOut"),
            *_given(_SCORES, dtype_in(set(FLOATING), _SCORES), dtype_in({D.FLOAT}, _SHARES)),
            dims_between(1, 1, "logitsMax"),
            *(same_shape(name, "logitsMax") for name in ("sumExpLogits", "predictedLogits", "lossOut")),
            *_given(
                _SCORES,
                dims_between(2, 2, _SCORES),
                same_shape(_SHARES, _SCORES),
                shape_is(
                    "a row for each of logitsMax",
                    lambda call: (call["logitsMax"].shape[0], call[_SCORES].shape[1]),
                    _SCORES,
                ),
            ),
            one_of(_SMOOTHING, 0),
        ),
        _loss_work,
        dtypes=(D.FLOAT,),
    ),
    declared(
        "fused_linear_cross_entropy_loss_grad",
        "shares = softmaxOptional, or e^(input @ weight^T - logitsMaxOptional) / sumExpLogitsOptional; "
        "d = grad * (shares - onehot(maskedTarget) * (1 - targetMask)); "
        "inputGradOut = d @ weight; weightGradOut = d^T @ input",
        "Gradients of the cross-entropy of a vocabulary part with respect to hidden states and weights.",
        (
            tensor_in("grad", "the gradient with respect to the losses; FLOAT"),
            _INPUT,
            _WEIGHT,
            tensor_in(
                "targetMask", "whether each target is in another part; BOOL, or UINT8 with one bit each, lowest first"
            ),
            tensor_in("maskedTarget", "the row of weight of each target; INT32 or INT64"),
            _NO_SMOOTHING,
            optional_in(_MOST, "the maximum logit of each row; FLOAT"),
            optional_in(_TOTAL, "the sum of exponentials of each row; FLOAT"),
            optional_in(_SOFTMAX, "the probabilities of the tokens; FLOAT"),
            tensor_out("inputGradOut", "the gradient with respect to input"),
            tensor_out("weightGradOut", "the gradient with respect to weight"),
        ),
        (
            rule(f"shares, or what they come from: {_MOST}, {_TOTAL}", _softmax_or_numbers, ACLNN_ERR_PARAM_NULLPTR),
            present("grad", "input", "weight", "targetMask", "maskedTarget", "inputGradOut", "weightGradOut"),
            dtype_in({D.FLOAT}, "grad"),
            dtype_in(set(_HALVES), "input"),
            dtype_in({D.BOOL, D.UINT8}, "targetMask"),
            dtype_in(set(INDEX_TYPES), "maskedTarget"),
            *_with_softmax(dtype_in({D.FLOAT}, _SOFTMAX)),
            *_without_softmax(dtype_in({D.FLOAT}, _MOST, _TOTAL)),
            *(same_dtype(name, "input") for name in ("weight", "inputGradOut", "weightGradOut")),
            format_is(Format.FORMAT_ND, "grad", "input", "weight", "targetMask", "maskedTarget"),
            *_with_softmax(format_is(Format.FORMAT_ND, _SOFTMAX)),
            *_without_softmax(format_is(Format.FORMAT_ND, _MOST, _TOTAL)),
            format_is(Format.FORMAT_ND, "inputGradOut", "weightGradOut"),
            one_of(_SMOOTHING, 0),
            dims_between(1, 1, "grad", "targetMask", "maskedTarget"),
            dims_between(2, 2, "input", "weight"),
            shape_is("a row for each of grad", lambda call: (call["grad"].shape[0], call["input"].shape[1]), "input"),
            *_with_softmax(rule(f"at least {_FEWEST} rows: weight", _many)),
            rule("as many columns as input: weight", _columns),
            rule("a bit for each row: targetMask", _bits),
            shape_is("a number for each row", _of_each("grad"), "maskedTarget"),
            *_with_softmax(shape_is("a score for each word", _scores, _SOFTMAX)),
            *_without_softmax(shape_is("a number for each row", _of_each("grad"), _MOST, _TOTAL)),
            same_shape("inputGradOut", "input"),
            same_shape("weightGradOut", "weight"),
            *unless_empty(("input", "weight"), *with_code(ACLNN_ERR_RUNTIME_ERROR, KERNEL_OF_THE_PRODUCT)),
        ),
        _gradient_work,
        dtypes=_HALVES,
        products=A2_CLASS,
    ),
)
