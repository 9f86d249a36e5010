"""Cross entropy of scores and class targets, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    nothing_to_write,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.training.loss import class_weights

_WEIGHT, _REDUCTION = "weightOptional", "reductionOptional"
_TARGET = tensor_in("target", "the class index of each sample")
_OPTIONS = (
    attribute(_REDUCTION, Kind.STRING, '"mean", "sum" or "none"'),
    attribute("ignoreIndex", Kind.INT64, "the target class to ignore"),
    attribute("labelSmoothing", Kind.DOUBLE, "the label smoothing, from 0 to 1"),
    attribute("lseSquareScaleForZloss", Kind.DOUBLE, "ignored"),
)


def _reduction(call: Call) -> str:
    return call[_REDUCTION] or "mean"


def _checks(scores: str, loss: str) -> tuple[Check, ...]:
    def classes(call: Call) -> str | None:
        got = call[scores].shape
        return f"{scores}: expected classes, got shape {extents(got)}" if got[0] > 0 and got[1] == 0 else None

    def one_or_each(call: Call, name: str) -> str | None:
        got, samples = call[name].shape, call[scores].shape[:1]
        if _reduction(call) == "none":
            return None if got == samples else f"expected shape {extents(samples)}, got {extents(got)}"
        return None if call[name].size == 1 else f"expected one element, got shape {extents(got)}"

    return (
        dims_between(2, 2, scores),
        rule(f"classes: {scores}", classes),
        shape_is("one for each sample", lambda call: call[scores].shape[:1], "target"),
        shape_is("one for each class", lambda call: call[scores].shape[1:], _WEIGHT),
        one_of(_REDUCTION, "none", "mean", "sum"),
        value_is("from 0 to 1", lambda got: 0 <= got <= 1, "labelSmoothing"),
        each("one element, or one a sample", (loss,), one_or_each),
    )


def _shares(call: Call, classes: int, target: Any, weight: Any = None) -> tuple[Any, Any]:
    """Return the weight of each log-probability of a sample, and the divisor of their sum."""
    weight = np.ones(classes) if weight is None else weight.astype(np.float64)
    ignored, smoothing = call["ignoreIndex"], call["labelSmoothing"]
    chosen, weights = class_weights(target, weight, ignored)
    shares = np.outer(target != ignored, weight * (smoothing / max(classes, 1)))
    shares[np.arange(target.size), chosen] += (1 - smoothing) * weights
    return shares, weights.sum() if _reduction(call) == "mean" else 1.0


def _tensors(call: Call, *names: str) -> tuple[str, ...]:
    return names if call[_WEIGHT] is None else (*names, _WEIGHT)


def _work(call: Call) -> Library | None:
    outputs = ("lossOut", "logProbOut")
    if nothing_to_write(call, outputs):
        return None

    def compute(scores: Any, *classes: Any) -> tuple[Any, Any]:
        scores = scores.astype(np.float64)
        if scores.size:
            scores = scores - scores.max(1, keepdims=True)
        logarithms = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        shares, divisor = _shares(call, scores.shape[1], *classes)
        # A class with weight 0 may have any log-probability.
        losses = -np.multiply(shares, logarithms, out=np.zeros_like(shares), where=shares != 0).sum(1)
        loss = losses if _reduction(call) == "none" else np.divide(losses.sum(), divisor)
        return loss.reshape(call["lossOut"].shape), logarithms

    return Library(compute, _tensors(call, "input", "target"), outputs)


def _gradient_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None

    def compute(gradient: Any, logarithms: Any, *classes: Any) -> Any:
        shares, divisor = _shares(call, logarithms.shape[1], *classes)
        shares *= gradient.reshape(-1, 1) / divisor
        return np.exp(logarithms.astype(np.float64)) * shares.sum(1, keepdims=True) - shares

    return Library(compute, _tensors(call, "gradLoss", "logProb", "target"), ("out",))


_WEIGHT_IS_FLOAT = dtype_in({D.FLOAT}, _WEIGHT)
_WEIGHTS = optional_in(_WEIGHT, "the weight of each class; FLOAT")

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="cross_entropy_loss",
        summary="Cross-entropy of logits and class indices, with weights and label smoothing.",
        formula="logProbOut = log(softmax(input)); lossOut = -weight[target] * logProbOut[target]; "
        "mean: their sum / the weights' sum",
        parameters=(
            tensor_in("input", "the logits (N, C)"),
            _TARGET,
            _WEIGHTS,
            *_OPTIONS,
            attribute("returnZloss", Kind.BOOL, "ignored"),
            tensor_out("lossOut", "the loss", const=True),
            tensor_out("logProbOut", "the log-probabilities", const=True),
            tensor_out("zlossOut", "not written", const=True),
            tensor_out("lseForZlossOut", "not written", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("input", "target"),
            ("lossOut", "logProbOut", "zlossOut", "lseForZlossOut"),
            lambda product: [(d, index, d, d, d, d) for d in FLOATING for index in (D.INT64, D.INT32)],
            *_checks("input", "lossOut"),
            same_shape("logProbOut", "input"),
            optional=(_WEIGHT_IS_FLOAT,),
        ),
        work=_work,
    ),
    Operator(
        name="cross_entropy_loss_grad",
        summary="Gradient of the cross-entropy with respect to the logits.",
        formula="out = (softmax - onehot(target)) * weight[target] * gradLoss; mean: divided by the weights' sum",
        parameters=(
            tensor_in("gradLoss", "the gradient with respect to the loss"),
            tensor_in("logProb", "the log-probabilities (N, C)"),
            _TARGET,
            _WEIGHTS,
            optional_in("gradZlossOptional", "ignored"),
            optional_in("lseForZlossOptional", "ignored"),
            *_OPTIONS,
            tensor_out("out", "the gradient with respect to the logits", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("gradLoss", "logProb", "target"),
            ("out",),
            lambda product: [(d, d, D.INT64, d) for d in FLOATING],
            *_checks("logProb", "gradLoss"),
            same_shape("out", "logProb"),
            optional=(
                _WEIGHT_IS_FLOAT,
                *(same_dtype(name, "gradLoss") for name in ("gradZlossOptional", "lseForZlossOptional")),
            ),
        ),
        work=_gradient_work,
    ),
)
