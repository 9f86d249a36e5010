"""aclnnNLLLoss, aclnnMseLoss and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape,
    broadcastable,
    castable_from,
    dtype_in,
    extents,
    floating,
    limited_dims,
    present,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    MODERN,
    WITH_INFERENCE,
    WITH_TRAINING,
    camel,
    library_operator,
    support,
    tensor_in,
    tensor_out,
)

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16)
_NONE, _MEAN, _SUM = 0, 1, 2
_REDUCTION = Parameter("reduction", "reduction", Kind.INT64, "0: none, 1: mean, 2: sum")
_IGNORED = Parameter("ignoreIndex", "ignore_index", Kind.INT64, "the class that counts for nothing")
_SELF = tensor_in("self", "logarithms of probabilities, one row a sample, one column a class")
_TARGET = tensor_in("target", "the class of each sample")
_WEIGHT = tensor_in("weight", "the weight of each class")

_reduction = rule(
    "0, 1 or 2: reduction",
    lambda call: (
        None if call["reduction"] in (_NONE, _MEAN, _SUM) else f"reduction: expected 0, 1 or 2, got {call['reduction']}"
    ),
)


def _per_sample(call: Call) -> bool:
    return call["reduction"] == _NONE and len(call["self"].shape) == 2


def _samples(call: Call) -> str | None:
    self, target, weight = (call[name].shape for name in ("self", "target", "weight"))
    if len(self) not in (1, 2):
        return f"self: expected 1 or 2 dimensions, got {len(self)}: {extents(self)}"
    # A single sample's class may have a dimension of its own.
    if target != self[:-1] and not (len(self) == 1 and target == (1,)):
        return f"target: expected shape {extents(self[:-1])} (the samples of self), got {extents(target)}"
    if weight != self[-1:]:
        return f"weight: expected shape {extents(self[-1:])} (the classes of self), got {extents(weight)}"
    return None


def _one_or_samples(name: str) -> Check:
    def complain(call: Call) -> str | None:
        got = call[name].shape
        if _per_sample(call):
            expected = call["self"].shape[:1]
            return None if got == expected else f"{name}: expected shape {extents(expected)}, got {extents(got)}"
        single = call[name].size == 1 and len(got) <= 1
        return None if single else f"{name}: expected one element, got shape {extents(got)}"

    return rule(f"one element, or one a sample: {name}", complain)


def _one_element(name: str) -> Check:
    return rule(
        f"one element: {name}",
        lambda call: (
            None if call[name].size == 1 else f"{name}: expected one element, got shape {extents(call[name].shape)}"
        ),
    )


def _classes(call: Call) -> str | None:
    shape = call["self"].shape
    return f"self: expected classes, got shape {extents(shape)}" if shape[-1] == 0 and shape[0] > 0 else None


def _weights(self: Any, target: Any, weight: Any, ignored: int) -> tuple[Any, Any]:
    """The class of each sample, 0 for one that counts for nothing, and its weight, 0 for such a one."""
    target = np.atleast_1d(target).astype(np.int64)
    counts = (target != ignored) & (target >= 0) & (target < weight.size)
    classes = np.where(counts, target, 0)
    return classes, np.where(counts, weight[classes], 0) if weight.size else np.zeros(target.shape)


def _nll(self: Any, target: Any, weight: Any, reduction: int, ignored: int) -> tuple[Any, Any]:
    rows = np.atleast_2d(self).astype(np.float64)
    classes, weights = _weights(rows, target, weight, ignored)
    chosen = rows[np.arange(classes.size), classes] if rows.size else np.zeros(0)
    # A sample that counts for nothing may have any logarithm.
    losses = np.where(weights == 0, 0.0, -weights * chosen)
    total = weights.sum(dtype=np.float64)
    if reduction == _NONE:
        return losses if self.ndim == 2 else losses[0], total
    return losses.sum() / (total if reduction == _MEAN else 1.0), total


def _nll_backward(gradient: Any, self: Any, target: Any, weight: Any, total: Any, reduction: int, ignored: int) -> Any:
    result = np.zeros(np.atleast_2d(self).shape, np.float64)
    classes, weights = _weights(result, target, weight, ignored)
    scaled = -weights * np.atleast_1d(gradient.astype(np.float64).reshape(-1))
    if reduction == _MEAN:
        scaled = scaled / float(total.reshape(()))
    result[np.arange(classes.size), classes] = np.where(weights == 0, 0.0, scaled)
    return result.reshape(self.shape)


def _nll_work(call: Call) -> Library | None:
    if call["self"].size == 0 and call["reduction"] == _NONE:
        return None
    reduction, ignored = call["reduction"], call["ignoreIndex"]
    return Library(
        lambda self, target, weight: _nll(self, target, weight, reduction, ignored),
        ("self", "target", "weight"),
        ("out", "totalWeightOut"),
    )


_NLL_SHAPES = (
    _reduction,
    rule("samples and classes: self, target, weight", _samples),
)


def _mse_shape(call: Call) -> str | None:
    got, shape = call["out"].shape, broadcast_shape(call["self"].shape, call["target"].shape)
    assert shape is not None
    expected = shape if call["reduction"] == _NONE else ()
    return None if got == expected else f"out: expected shape {extents(expected)}, got {extents(got)}"


def _mse(self: Any, target: Any, reduction: int) -> Any:
    squares = np.square(self.astype(np.float64) - target)
    return (lambda x: x, np.mean, np.sum)[reduction](squares)


def _mse_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    reduction = call["reduction"]
    return Library(lambda self, target: _mse(self, target, reduction), ("self", "target"), ("out",))


def _mse_backward(gradient: Any, self: Any, target: Any, reduction: int) -> Any:
    difference = 2.0 * (self.astype(np.float64) - target) * gradient
    return difference / difference.size if reduction == _MEAN else difference


def _mse_gradient_shape(call: Call) -> str | None:
    shape = broadcast_shape(call["self"].shape, call["target"].shape)
    expected = None if shape is None else broadcast_shape(shape, call["gradOutput"].shape)
    got = call["out"].shape
    if expected is None:
        texts = " and ".join(extents(call[name].shape) for name in ("self", "target"))
        return f"gradOutput: expected a shape that broadcasts with {texts}, got {extents(call['gradOutput'].shape)}"
    return None if got == expected else f"out: expected shape {extents(expected)}, got {extents(got)}"


OPERATORS = (
    Operator(
        name="nll_loss",
        function=camel("nll_loss"),
        summary="Negative log-likelihood of the samples' classes, weighted.",
        formula="out = -weight[target] * self[target]; mean: their sum / the weights' sum",
        parameters=(
            _SELF,
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_out("out", "the loss"),
            tensor_out("totalWeightOut", "the sum of the samples' weights"),
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            present("self", "target", "weight", "out", "totalWeightOut"),
            same_dtype("weight", "self"),
            castable_from(lambda call: call["self"].dtype, "out", "totalWeightOut"),
            dtype_in(floating, "self"),
            dtype_in(lambda product: {D.INT64, D.INT32, D.UINT8}, "target"),
            *_NLL_SHAPES,
            _one_or_samples("out"),
            _one_element("totalWeightOut"),
            rule("classes: self", _classes),
        ),
        work=_nll_work,
        in_header_of="nll_loss",
    ),
    library_operator(
        "nll_loss_backward",
        "out[n, target[n]] = -weight[target[n]] * gradOutput; mean: divided by totalWeight",
        "Gradient of the negative log-likelihood.",
        (
            tensor_in("gradOutput", "the gradient arriving at the loss"),
            _SELF,
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_in("totalWeight", "the sum of the samples' weights"),
            tensor_out("out", "the gradient of self"),
        ),
        (
            present("gradOutput", "self", "target", "weight", "totalWeight", "out"),
            same_dtype("gradOutput", "self"),
            same_dtype("weight", "self"),
            same_dtype("totalWeight", "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            dtype_in(floating, "self"),
            dtype_in(lambda product: {D.INT64, D.INT32, D.UINT8}, "target"),
            *_NLL_SHAPES,
            _one_or_samples("gradOutput"),
            _one_element("totalWeight"),
            same_shape("out", "self"),
        ),
        _nll_backward,
        header="nll_loss_backward",
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        attributes=("reduction", "ignoreIndex"),
    ),
    Operator(
        name="mse_loss",
        function=camel("mse_loss"),
        summary="Squared differences of two tensors, their mean or sum.",
        formula="out = (self - target)^2; mean or sum of them",
        parameters=(
            tensor_in("self", "the first"),
            tensor_in("target", "the second"),
            _REDUCTION,
            tensor_out("out", "the loss"),
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            present("self", "target", "out"),
            dtype_in(floating, "self", "target", "out"),
            _reduction,
            limited_dims("self", "target"),
            broadcastable("target", "self"),
            rule("shape of the loss: out", _mse_shape),
        ),
        work=_mse_work,
        in_header_of="mse_loss",
    ),
    library_operator(
        "mse_loss_backward",
        "out = 2 * (self - target) * gradOutput; mean: divided by the number of elements",
        "Gradient of the mean of squared differences.",
        (
            tensor_in("gradOutput", "the gradient arriving at the loss"),
            tensor_in("self", "the first"),
            tensor_in("target", "the second"),
            _REDUCTION,
            tensor_out("out", "the gradient of self"),
        ),
        (
            present("gradOutput", "self", "target", "out"),
            dtype_in(floating, "gradOutput", "self", "target", "out"),
            _reduction,
            limited_dims("gradOutput", "self", "target"),
            rule("broadcast shape of all: out", _mse_gradient_shape),
        ),
        _mse_backward,
        header="mse_loss_backward",
        dtypes=_DTYPES,
        products=MODERN | WITH_TRAINING,
        attributes=("reduction",),
    ),
)
