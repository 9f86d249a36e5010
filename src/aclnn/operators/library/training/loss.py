"""Losses and their gradients: negative log-likelihood, and losses of pairs of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape,
    broadcastable,
    castable_from,
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    floating,
    limited_dims,
    listing,
    promotable,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    single,
    unless_empty,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.promotion import is_floating
from aclnn.operators.library.common import (
    MODERN,
    WITH_INFERENCE,
    WITH_TRAINING,
    expect_within,
    library_operator,
    logistic,
    promoted,
    support,
    tensor_in,
    tensor_out,
)

_DTYPES = FLOATING
_NONE, _MEAN, _SUM, _BATCH_MEAN = 0, 1, 2, 3
_REDUCTION = Parameter("reduction", "reduction", Kind.INT64, "0: none, 1: mean, 2: sum")
_IGNORED = Parameter("ignoreIndex", "ignore_index", Kind.INT64, "the target class to ignore")
_SELF = tensor_in("self", "the log-probabilities (N, C)")
_TARGET = tensor_in("target", "the class index of each sample")
_WEIGHT = tensor_in("weight", "the weight of each class")


def _reduction_to(most: int) -> Check:
    words = listing(map(str, range(most + 1)))
    return rule(
        f"{words}: reduction",
        lambda call: (
            None if 0 <= call["reduction"] <= most else f"reduction: expected {words}, got {call['reduction']}"
        ),
    )


_reduction = _reduction_to(_SUM)


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
    def violation(call: Call) -> str | None:
        got = call[name].shape
        if _per_sample(call):
            expected = call["self"].shape[:1]
            return None if got == expected else f"{name}: expected shape {extents(expected)}, got {extents(got)}"
        single = call[name].size == 1 and len(got) <= 1
        return None if single else f"{name}: expected one element, got shape {extents(got)}"

    return rule(f"one element, or one a sample: {name}", violation)


def _classes(call: Call) -> str | None:
    shape = call["self"].shape
    return f"self: expected classes, got shape {extents(shape)}" if shape[-1] == 0 and shape[0] > 0 else None


def class_weights(target: Any, weight: Any, ignored: int) -> tuple[Any, Any]:
    """Return the class and weight of each sample, both 0 for an ignored one."""
    target = target.reshape(-1)
    counts = target != ignored
    expect_within("target", target[counts], 0, weight.size - 1, f"{ignored} or classes")
    if counts.all():
        return target, weight[target].astype(np.float64)
    classes = np.where(counts, target, 0)
    return classes, np.where(counts, weight[classes] if weight.size else 0, 0.0)


def _nll(self: Any, target: Any, weight: Any, reduction: int, ignored: int) -> tuple[Any, Any]:
    rows = np.atleast_2d(self)
    classes, weights = class_weights(target, weight, ignored)
    losses = np.zeros(classes.size)
    if rows.size:
        np.multiply(rows[np.arange(classes.size), classes], weights, out=losses)
        np.negative(losses, out=losses)
        losses[target.reshape(-1) == ignored] = 0.0
    total = weights.sum()
    if reduction == _NONE:
        return losses if self.ndim == 2 else losses[0], total
    return losses.sum() / (total if reduction == _MEAN else 1.0), total


def _nll_backward(gradient: Any, self: Any, target: Any, weight: Any, total: Any, reduction: int, ignored: int) -> Any:
    result = np.zeros((target.size, weight.size))
    classes, weights = class_weights(target, weight, ignored)
    scaled = -weights * gradient.reshape(-1)
    if reduction == _MEAN:
        scaled = scaled / float(total.reshape(()))
    result[np.arange(classes.size), classes] = np.where(target.reshape(-1) == ignored, 0.0, scaled)
    return result.reshape(self.shape)


def _cross_entropy(features: Any, labels: Any) -> tuple[Any, Any]:
    shifted = features.astype(np.float64)
    shifted -= shifted.max(1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(1, keepdims=True)
    return -(labels * (shifted - np.log(total))).sum(1), powers / total - labels


def _likelihood(function: Callable[..., Any], total: str) -> Callable[[Call], Library | None]:
    def work(call: Call) -> Library | None:
        if call["self"].size == 0 and call["reduction"] == _NONE:
            return None
        reduction, ignored = call["reduction"], call["ignoreIndex"]
        return Library(
            lambda self, target, weight: function(self, target, weight, reduction, ignored),
            ("self", "target", "weight"),
            ("out", total),
        )

    return work


_NLL_SHAPES = (_reduction, rule("samples and classes: self, target, weight", _samples))


def _planes(call: Call) -> str | None:
    self, target, weight = (call[name].shape for name in ("self", "target", "weight"))
    if len(self) != 4:
        return f"self: expected 4 dimensions, got {len(self)}: {extents(self)}"
    expected = (self[0], *self[2:])
    if target != expected:
        return f"target: expected shape {extents(expected)} (the pixels of self), got {extents(target)}"
    if weight != self[1:2]:
        return f"weight: expected shape {extents(self[1:2])} (the classes of self), got {extents(weight)}"
    return None


def _one_or_pixels(name: str) -> Check:
    return fits(
        "shape {}", lambda call, got: (call["target"].shape if call["reduction"] == _NONE else (), got.shape), name
    )


def _nll2d(self: Any, target: Any, weight: Any, reduction: int, ignored: int) -> tuple[Any, Any]:
    rows = np.moveaxis(self, 1, -1).reshape(-1, self.shape[1])
    losses, total = _nll(rows, target.reshape(-1), weight, reduction, ignored)
    return losses.reshape(target.shape) if reduction == _NONE else losses, total


def _nll2d_backward(
    gradient: Any, self: Any, target: Any, weight: Any, total: Any, reduction: int, ignored: int
) -> Any:
    pixels = np.moveaxis(self, 1, -1)
    rows = pixels.reshape(-1, self.shape[1])
    found = _nll_backward(gradient, rows, target.reshape(-1), weight, total, reduction, ignored)
    return np.moveaxis(found.reshape(pixels.shape), -1, 1)


def _common(call: Call, names: Sequence[str]) -> tuple[int, ...] | None:
    return broadcast_shape(*(call[name].shape for name in names if call[name] is not None))


def _divisor(call: Call, names: Sequence[str]) -> int:
    """Return the divisor that the reduction applies to a sum over the common shape."""
    shape = _common(call, names) or ()
    return {_MEAN: math.prod(shape), _BATCH_MEAN: (*shape, 1)[0]}.get(call["reduction"], 1)


def _pairwise(
    name: str,
    title: str,
    formula: str,
    loss: Callable[..., Any],
    slope: Callable[..., Any],
    weights: tuple[Parameter, ...] = (),
    numbers: tuple[Parameter, ...] = (),
    most: int = _SUM,
    types: tuple[Check, ...] = (),
    checks: tuple[Check, ...] = (),
    shapes: tuple[Check, ...] = (broadcastable("target", "self"),),
    gradient_checks: tuple[Check, ...] = (),
    gradient_shapes: tuple[Check, ...] = (),
    may_be_1d: bool = False,
    dtypes: Collection[D] = _DTYPES,
) -> tuple[Operator, Operator]:
    """Declare a loss of pairs of elements and its gradient.

    Args:
        name: name of the loss.
        title: description of the loss.
        formula: formula for one pair.
        loss: function of self and target as float64, then weights (None for absent ones), then numbers.
        slope: derivative with respect to self, with the same arguments.
        weights: optional tensors.
        numbers: parameters after the reduction.
        most: largest value of reduction; 3 is the sum divided by the first extent.
        types: checks of the loss's tensor types, in place of floating-point ones.
        checks: additional checks of the loss.
        shapes: checks of the loss's shapes except out's.
        gradient_checks: additional checks of the gradient.
        gradient_shapes: checks of the gradient's shapes, in place of the common broadcast shape.
        may_be_1d: True if the mean or sum may have shape [1].
        dtypes: data types of the loss's kernel.
    """
    pair = (tensor_in("self", "the first"), tensor_in("target", "the second"))
    tensors = ("self", "target", *(each.name for each in weights))
    reduction = _reduction_to(most)

    def values(call: Call, function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
        given = [each for each in tensors if call[each] is not None]
        attributes = [call[each.name] for each in numbers]

        def compute(*arrays: Any) -> Any:
            whole = all(array.dtype.kind in "iu" for array in arrays)
            widest = np.int64 if whole else np.float64
            found = dict(zip(given, (array.astype(widest) for array in arrays), strict=True))
            return function(*map(found.get, tensors), *attributes)

        return compute, given

    def work(call: Call) -> Library | None:
        if call["out"].size == 0:
            return None
        compute, given = values(call, loss)
        if call["reduction"] == _NONE:
            return Library(compute, tuple(given), ("out",))
        count, shape = _divisor(call, tensors), call["out"].shape

        def reduce(*arrays: Any) -> Any:
            total = compute(*arrays).sum()
            return (total if call["reduction"] == _SUM else np.divide(total, count)).reshape(shape)

        return Library(reduce, tuple(given), ("out",))

    def gradient_work(call: Call) -> Library | None:
        if call["out"].size == 0 or call["self"].size == 0:
            return None
        compute, given = values(call, slope)
        count, shape = _divisor(call, tensors), call["out"].shape
        common = _common(call, (*tensors, "gradOutput")) or ()

        def differentiate(gradient: Any, *arrays: Any) -> Any:
            slopes = compute(*arrays) * gradient / count
            return slopes if common == shape else _summed_to(shape, np.broadcast_to(slopes, common))

        return Library(differentiate, ("gradOutput", *given), ("out",))

    def shape(call: Call) -> str | None:
        got, common = call["out"].shape, _common(call, tensors)
        expected = common if call["reduction"] == _NONE else ()
        if common is None:
            return f"target: expected shapes that broadcast, got {extents(call['target'].shape)}"
        assert expected is not None
        if got == expected or (may_be_1d and got == (1,) and not expected and call["reduction"] != _NONE):
            return None
        return f"out: expected shape {extents(expected)}, got {extents(got)}"

    def gradient_shape(call: Call) -> str | None:
        expected, got = _common(call, (*tensors, "gradOutput")), call["out"].shape
        if expected is None:
            texts = " and ".join(extents(call[each].shape) for each in ("self", "target"))
            return f"gradOutput: expected a shape that broadcasts with {texts}, got {extents(call['gradOutput'].shape)}"
        return None if got == expected else f"out: expected shape {extents(expected)}, got {extents(got)}"

    reduced = Parameter(
        "reduction", "reduction", Kind.INT64, _REDUCTION.meaning + (", 3: sum / samples" * (most > _SUM))
    )
    forward = Operator(
        name=name,
        summary=f"{title}, optionally reduced to the mean or sum.",
        formula=f"out = {formula}, optionally reduced to the mean or sum",
        parameters=(*pair, *weights, reduced, *numbers, tensor_out("out", "the loss")),
        support=support(dtypes, WITH_INFERENCE),
        checks=(
            *(types or (dtype_in(floating, "self", "target", *(each.name for each in weights), "out"),)),
            reduction,
            limited_dims("self", "target"),
            *checks,
            *shapes,
            rule("shape of the loss: out", shape),
        ),
        work=work,
    )
    backward = Operator(
        name=f"{name}_backward",
        summary=f"Gradient of {name} with respect to its first argument.",
        formula=f"out = gradOutput * derivative of {formula}; mean: divided by the number of elements",
        parameters=(
            tensor_in("gradOutput", "the gradient with respect to the loss"),
            *pair,
            *weights,
            reduced,
            *numbers,
            tensor_out("out", "the gradient with respect to self"),
        ),
        support=support(_DTYPES, MODERN | WITH_TRAINING),
        checks=(
            dtype_in(floating, "gradOutput", "self", "target", *(each.name for each in weights), "out"),
            reduction,
            limited_dims("gradOutput", "self", "target"),
            *gradient_checks,
            *(gradient_shapes or (rule("broadcast shape of all: out", gradient_shape),)),
        ),
        work=gradient_work,
    )
    return forward, backward


def _distances(call: Call) -> str | None:
    dtype, reduction = promoted(call, "self", "target"), call["reduction"]
    if dtype not in (*floating(call.product), D.INT64):
        return f"target: expected a data type that promotes to a floating-point one or ACL_INT64, got {dtype.c_name}"
    if is_floating(call["self"].dtype):
        return None
    if reduction == _NONE and is_floating(call["target"].dtype):
        return f"target: expected an integer with self, got one of {call['target'].dtype.c_name}"
    if reduction == _MEAN and not is_floating(dtype):
        return f"self: expected floating-point numbers to average, got {dtype.c_name}"
    return None


def _broadcasts_to_self(*names: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        expected, got = call["self"].shape, call[name].shape
        if broadcast_shape(expected, got) == expected:
            return None
        return f"expected a shape that broadcasts to {extents(expected)} (that of self), got {extents(got)}"

    return each("broadcasts to self", names, violation)


def _weighted(losses: Any, weight: Any) -> Any:
    return losses if weight is None else losses * weight


def _smooth(self: Any, target: Any, beta: float) -> Any:
    distance = np.abs(self - target)
    square = np.square(distance) / (2 * beta) if beta else 0.0
    return np.where(distance < beta, square, distance - beta / 2)


def _smooth_slope(self: Any, target: Any, beta: float) -> Any:
    difference = self - target
    return np.where(np.abs(difference) < beta, difference / beta, np.sign(difference))


def _entropy(self: Any, target: Any, weight: Any) -> Any:
    """Return logarithms of at least -100, as PyTorch does."""
    yes, no = np.maximum(np.log(self), -100), np.maximum(np.log1p(-self), -100)
    return _weighted((target - 1) * no - target * yes, weight)


def _logit_entropy(self: Any, target: Any, weight: Any, positive: Any) -> Any:
    factor = 1.0 if positive is None else positive
    return _weighted((1 - target) * np.logaddexp(0, self) + factor * target * np.logaddexp(0, -self), weight)


def _logit_entropy_slope(self: Any, target: Any, weight: Any, positive: Any) -> Any:
    factor = 1.0 if positive is None else positive
    return _weighted((1 - target) * logistic(self) - factor * target * logistic(-self), weight)


def _divergence(self: Any, target: Any, log_target: bool) -> Any:
    if log_target:
        return np.exp(target) * (target - self)
    # 0·log 0 is 0.
    return np.where(target == 0, 0, target * np.log(target)) - target * self


def _target_slope(self: Any, target: Any, log_target: bool) -> Any:
    """Return the derivative with respect to target."""
    return np.exp(target) * (target + 1 - self) if log_target else np.log(target) + 1 - self


def _summed_to(shape: Sequence[int], values: Any) -> Any:
    """Sum over the dimensions along which a shape was broadcast."""
    added = values.ndim - len(shape)
    dims = tuple(dim for dim in range(values.ndim) if dim < added or shape[dim - added] != values.shape[dim])
    return values.sum(dims).reshape(shape)


def _target_work(call: Call) -> Library | None:
    if call["self"].size == 0 or call["target"].size == 0:
        return None
    shape, log_target = call["target"].shape, call["logTarget"]
    common = _common(call, ("self", "target")) or ()
    count = _divisor(call, ("self", "target"))

    def gradient(dy: Any, self: Any, target: Any) -> Any:
        slope = _target_slope(self.astype(np.float64), target.astype(np.float64), log_target)
        return _summed_to(shape, np.broadcast_to(dy * slope / count, common))

    return Library(gradient, ("gradOutput", "self", "target"), ("gradTarget",))


def _target_shapes(call: Call) -> str | None:
    common, got = _common(call, ("self", "target")), call["gradOutput"].shape
    if common is not None and broadcast_shape(common, got) == common:
        return None
    texts = " and ".join(extents(call[each].shape) for each in ("self", "target"))
    return f"gradOutput: expected a shape that broadcasts to that of {texts}, got {extents(got)}"


def _multilabel(self: Any, target: Any, reduction: int) -> tuple[Any, Any]:
    rows, labels = (np.atleast_2d(each) for each in (self, target))
    rows, classes = rows.astype(np.float64), rows.shape[1]
    counted = (labels < 0).cumsum(1) == 0
    expect_within("target", labels[counted], -1, classes - 1, "classes")
    samples = np.arange(len(rows))
    chosen = np.zeros(rows.shape, bool)
    chosen[np.nonzero(counted)[0], labels[counted]] = True
    losses = np.zeros(len(rows))
    for column in range(counted.sum(1).max(initial=0)):
        margins = 1 - rows[samples, np.where(counted[:, column], labels[:, column], 0)][:, None] + rows
        losses += np.where(counted[:, column, None] & ~chosen, np.maximum(margins, 0), 0.0).sum(1)
    losses /= classes
    total = losses.mean() if reduction == _MEAN else losses.sum()
    return losses if reduction == _NONE and self.ndim == 2 else total, chosen.reshape(self.shape)


def _labels(call: Call) -> str | None:
    expected, got = call["self"].shape, call["target"].shape
    # A single sample's classes may be 0-dim or 1-dim.
    if got == expected or (len(expected) < 2 and len(got) < 2 and math.prod(got) == math.prod(expected)):
        return None
    return f"target: expected shape {extents(expected)} (that of self), got {extents(got)}"


_WEIGHT_OF_EACH = Parameter("weightOptional", "weight", Kind.INPUT, "the weight of each element", optional=True)
_POSITIVE = Parameter("posWeightOptional", "pos_weight", Kind.INPUT, "the weight of positive targets", optional=True)

_NOT_NEGATIVE = rule(
    "0 or more: beta", lambda call: None if call["beta"] >= 0 else f"beta: expected 0 or more, got {call['beta']}"
)
_HOLDS = castable_from(lambda call: promoted(call, "self", "target"), "out")

OPERATORS = (
    library_operator(
        "softmax_cross_entropy_with_logits",
        "loss = -sum of labels * log(softmax(features)); backprop = softmax(features) - labels",
        "Cross-entropy of each row's softmax with given probabilities, and its gradient.",
        (
            tensor_in("features", "the logits (N, C)"),
            Parameter("labels", "labels", Kind.INPUT, "the target probabilities (N, C)", c_type="aclTensor *"),
            tensor_out("loss", "the loss of each row"),
            tensor_out("backprop", "the gradient with respect to features"),
        ),
        (
            dtype_in(where_supported(_DTYPES), "features"),
            *(same_dtype(name, "features") for name in ("labels", "loss", "backprop")),
            dims_between(2, 2, "features"),
            *(same_shape(name, "features") for name in ("labels", "backprop")),
            shape_is("one for each row of features", lambda call: call["features"].shape[:1], "loss"),
        ),
        _cross_entropy,
        dtypes=_DTYPES,
    ),
    Operator(
        name="nll_loss",
        summary="Weighted negative log-likelihood of class indices.",
        formula="out = -weight[target] * self[target]; mean: their sum / the weights' sum",
        parameters=(
            _SELF,
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_out("out", "the loss"),
            tensor_out("totalWeightOut", "the sum of the target classes' weights"),
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            same_dtype("weight", "self"),
            castable_from(lambda call: call["self"].dtype, "out", "totalWeightOut"),
            dtype_in(floating, "self"),
            dtype_in({D.INT64, D.INT32, D.UINT8}, "target"),
            *_NLL_SHAPES,
            _one_or_samples("out"),
            single("totalWeightOut"),
            rule("classes: self", _classes),
        ),
        work=_likelihood(_nll, "totalWeightOut"),
    ),
    library_operator(
        "nll_loss_backward",
        "out[n, target[n]] = -weight[target[n]] * gradOutput; mean: divided by totalWeight",
        "Gradient of the negative log-likelihood.",
        (
            tensor_in("gradOutput", "the gradient with respect to the loss"),
            _SELF,
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_in("totalWeight", "the sum of the target classes' weights"),
            tensor_out("out", "the gradient with respect to self"),
        ),
        (
            same_dtype("gradOutput", "self"),
            same_dtype("weight", "self"),
            same_dtype("totalWeight", "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            dtype_in(floating, "self"),
            dtype_in({D.INT64, D.INT32, D.UINT8}, "target"),
            *_NLL_SHAPES,
            _one_or_samples("gradOutput"),
            single("totalWeight"),
            same_shape("out", "self"),
        ),
        _nll_backward,
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        attributes=("reduction", "ignoreIndex"),
    ),
    Operator(
        name="nll_loss2d",
        summary="Weighted negative log-likelihood of class indices per pixel.",
        formula="out = -weight[target] * self[target]; mean: their sum / the weights' sum",
        parameters=(
            tensor_in("self", "the log-probabilities (N, C, H, W)"),
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_out("out", "the loss"),
            tensor_out("totalWeight", "the sum of the weights of the pixels' classes"),
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            same_dtype("weight", "self"),
            castable_from(lambda call: call["self"].dtype, "out", "totalWeight"),
            dtype_in(floating, "self"),
            dtype_in({D.INT64, D.INT32, D.UINT8}, "target"),
            _reduction,
            rule("pixels and classes: self, target, weight", _planes),
            _one_or_pixels("out"),
            single("totalWeight"),
        ),
        work=_likelihood(_nll2d, "totalWeight"),
    ),
    library_operator(
        "nll_loss2d_backward",
        "out[n, target[n]] = -weight[target[n]] * gradOutput; mean: divided by totalWeight",
        "Gradient of the negative log-likelihood of pixels.",
        (
            tensor_in("gradOutput", "the gradient with respect to the loss"),
            tensor_in("self", "the log-probabilities (N, C, H, W)"),
            _TARGET,
            _WEIGHT,
            _REDUCTION,
            _IGNORED,
            tensor_in("totalWeight", "the sum of the weights of the pixels' classes"),
            tensor_out("out", "the gradient with respect to self"),
        ),
        (
            same_dtype("gradOutput", "self"),
            same_dtype("weight", "self"),
            same_dtype("totalWeight", "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            dtype_in(floating, "self"),
            dtype_in({D.INT64, D.INT32, D.UINT8}, "target"),
            _reduction,
            rule("pixels and classes: self, target, weight", _planes),
            _one_or_pixels("gradOutput"),
            single("totalWeight"),
            same_shape("out", "self"),
        ),
        _nll2d_backward,
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        attributes=("reduction", "ignoreIndex"),
    ),
    *_pairwise(
        "mse_loss",
        "Squared error",
        "(self - target)^2",
        lambda self, target: np.square(self - target),
        lambda self, target: 2.0 * (self - target),
        gradient_checks=(same_dtype("gradOutput", "self"), same_dtype("target", "self")),
    ),
    *_pairwise(
        "l1_loss",
        "Absolute error",
        "|self - target|",
        lambda self, target: np.abs(self - target),
        lambda self, target: np.sign(self - target),
        types=(promotable("self", "target"), rule("types of distances: self, target", _distances), _HOLDS),
        dtypes=(*_DTYPES, D.INT64),
    ),
    *_pairwise(
        "smooth_l1_loss",
        "Smooth L1 loss",
        "d^2 / (2 beta) where d = |self - target| is less than beta, else d - beta / 2",
        _smooth,
        _smooth_slope,
        numbers=(Parameter("beta", "beta", Kind.FLOAT, "the distance below which the loss is quadratic; 0: L1 loss"),),
        checks=(_NOT_NEGATIVE,),
        gradient_checks=(_NOT_NEGATIVE,),
        may_be_1d=True,
    ),
    *_pairwise(
        "soft_margin_loss",
        "Soft margin loss",
        "ln(1 + e^(-target * self))",
        lambda self, target: np.logaddexp(0, -target * self),
        lambda self, target: -target * logistic(-target * self),
    ),
    *_pairwise(
        "binary_cross_entropy",
        "Binary cross-entropy",
        "-weight * (target ln self + (1 - target) ln(1 - self))",
        _entropy,
        lambda self, target, weight: _weighted((self - target) / np.maximum((1 - self) * self, 1e-12), weight),
        (_WEIGHT_OF_EACH,),
        gradient_checks=(same_format("target", "self"), same_format(_WEIGHT_OF_EACH.name, "self")),
        gradient_shapes=unless_empty(
            ("self",), same_shape("out", "self"), _broadcasts_to_self("target", "gradOutput", _WEIGHT_OF_EACH.name)
        ),
    ),
    *_pairwise(
        "binary_cross_entropy_with_logits",
        "Binary cross-entropy with logits",
        "-weight * (posWeight target ln s + (1 - target) ln(1 - s)), s = 1 / (1 + e^-self)",
        _logit_entropy,
        _logit_entropy_slope,
        (_WEIGHT_OF_EACH, _POSITIVE),
        checks=(same_dtype("out", "target"),),
        shapes=(same_shape("target", "self"),),
        gradient_checks=(same_dtype("out", "target"), same_format("target", "self"), same_format("out", "self")),
        gradient_shapes=unless_empty(
            ("self",),
            same_shape("target", "self"),
            same_shape("out", "self"),
            _broadcasts_to_self("gradOutput", _WEIGHT_OF_EACH.name, _POSITIVE.name),
        ),
        may_be_1d=True,
    ),
    *_pairwise(
        "kl_div",
        "Kullback-Leibler divergence of log-probabilities",
        "target * (ln target - self), or e^target * (target - self) with logTarget",
        _divergence,
        lambda self, target, log_target: -np.exp(target) if log_target else -target,
        numbers=(Parameter("logTarget", "log_target", Kind.BOOL, "whether target contains log-probabilities"),),
        most=_BATCH_MEAN,
        gradient_shapes=(rule("broadcasts to the others: gradOutput", _target_shapes), same_shape("out", "self")),
        may_be_1d=True,
    ),
    Operator(
        name="kl_div_target_backward",
        summary="Gradient of kl_div with respect to target.",
        formula="gradTarget = gradOutput * (ln target + 1 - self), or e^target * (target + 1 - self) with logTarget",
        parameters=(
            tensor_in("gradOutput", "the gradient with respect to the loss"),
            tensor_in("self", "the first"),
            tensor_in("target", "the second"),
            Parameter("reduction", "reduction", Kind.INT64, f"{_REDUCTION.meaning}, 3: sum / samples"),
            Parameter("logTarget", "log_target", Kind.BOOL, "whether target contains log-probabilities"),
            Parameter("gradTarget", "grad_target", Kind.OUTPUT, "the gradient with respect to target"),
        ),
        support=support(_DTYPES, MODERN),
        checks=(
            dtype_in(floating, "gradOutput", "self", "target", "gradTarget"),
            same_dtype("gradTarget", "target"),
            limited_dims("gradOutput", "self", "target"),
            broadcastable("target", "self"),
            rule("broadcasts to the others: gradOutput", _target_shapes),
            same_shape("gradTarget", "target"),
            public_format("gradOutput", "self", "target", "gradTarget"),
        ),
        work=_target_work,
    ),
    library_operator(
        "multilabel_margin_loss",
        "out = sum of max(0, 1 - self[j] + self[i]) / C over targets j and others i; optionally their mean or sum",
        "Multi-label margin loss.",
        (
            tensor_in("self", "the scores (N, C) or (C)"),
            tensor_in("target", "the class indices of each sample, terminated by -1"),
            _REDUCTION,
            tensor_out("out", "the loss"),
            tensor_out("isTarget", "1 for the target classes of a sample, else 0"),
        ),
        (
            dtype_in(floating, "self"),
            dtype_in({D.INT64, D.INT32}, "target"),
            same_dtype("out", "self"),
            same_dtype("isTarget", "self"),
            value_is("(N, C), (C) or (), C not 0", lambda got: len(got) <= 2 and 0 not in got[-1:], "self"),
            rule("as many labels as classes: target", _labels),
            _one_or_samples("out"),
            same_shape("isTarget", "target"),
        ),
        _multilabel,
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        attributes=("reduction",),
        empty=("self",),
    ),
)
