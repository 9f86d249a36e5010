"""aclnnApplyAdamWV2: a step of AdamW; aclnnAmpUpdateScale: the scale of losses for the next one."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dtype_in, extents, floating, present, rule, same_dtype, same_shape
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import MODERN, camel, support, tensor_in, tensor_out

_STATE = ("varRef", "mRef", "vRef")
_MAXIMUM = "maxGradNormOptionalRef"


def _maximum(call: Call) -> str | None:
    given, var = call[_MAXIMUM], call["varRef"]
    if given is None:
        return f"{_MAXIMUM}: expected an object with amsgrad, got null" if call["amsgrad"] else None
    if given.dtype != var.dtype:
        return f"{_MAXIMUM}: expected data type {var.dtype.c_name} (that of varRef), got {given.dtype.c_name}"
    if call["amsgrad"] and given.shape != var.shape:
        return f"{_MAXIMUM}: expected shape {extents(var.shape)} (that of varRef), got {extents(given.shape)}"
    return None


def _step(call: Call) -> str | None:
    shape = call["step"].shape
    return None if call["step"].size == 1 else f"step: expected one element, got shape {extents(shape)}"


def _work(call: Call) -> Library | None:
    if call["varRef"].size == 0:
        return None
    rate, beta1, beta2, decay, epsilon = (call[name] for name in ("lr", "beta1", "beta2", "weightDecay", "eps"))
    amsgrad, sign = call["amsgrad"], -1.0 if call["maximize"] else 1.0

    def update(var: Any, m: Any, v: Any, grad: Any, step: Any, *largest: Any) -> tuple[Any, ...]:
        # The step counts those before this one.
        t = float(step.reshape(())) + 1.0
        m = m + (1.0 - beta1) * (sign * grad - m)
        v = beta2 * v + (1.0 - beta2) * (grad * grad)
        deviation = v if not amsgrad else np.maximum(largest[0], v)
        denominator = np.sqrt(deviation) / np.sqrt(1.0 - beta2**t) + epsilon
        result = var * (1.0 - rate * decay) - rate / (1.0 - beta1**t) * (m / denominator)
        return (result, m, v, *((deviation,) if amsgrad else ()))

    more = (_MAXIMUM,) if amsgrad else ()
    return Library(update, (*_STATE, "grad", "step", *more), (*_STATE, *more))


def _number(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.FLOAT, meaning)


_SINGLE = ("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker")


def _all_single(call: Call) -> str | None:
    wrong = next((name for name in _SINGLE if call[name].size != 1), None)
    return None if wrong is None else f"{wrong}: expected one element, got shape {extents(call[wrong].shape)}"


def _interval(call: Call) -> str | None:
    got = call["growthInterval"]
    return None if got >= 1 else f"growthInterval: expected at least 1, got {got}"


def _scale_work(call: Call) -> Library:
    growth, backoff, interval = (call[name] for name in ("growthFactor", "backoffFactor", "growthInterval"))

    def update(scale: Any, tracker: Any, found: Any) -> tuple[Any, Any]:
        if found.any():
            return scale * np.float32(backoff), np.zeros_like(tracker)
        if (tracker + 1 != interval).all():
            return scale, tracker + 1
        more = scale * np.float32(growth)
        return more if np.isfinite(more).all() else scale, np.zeros_like(tracker)

    return Library(update, ("currentScale", "growthTracker", "foundInf"), ("updatedScale", "updatedGrowthTracker"))


OPERATORS = (
    Operator(
        name="apply_adam_w_v2",
        function=camel("apply_adam_w_v2"),
        summary="A step of AdamW, the state and the parameters in place.",
        formula="varRef = varRef - lr * (mhat / (sqrt(vhat) + eps) + weightDecay * varRef), of step + 1",
        parameters=(
            tensor_out("varRef", "the parameters"),
            tensor_out("mRef", "the mean of gradients"),
            tensor_out("vRef", "the mean of their squares"),
            Parameter(_MAXIMUM, "max_grad_norm", Kind.OUTPUT, "the largest vRef so far, with amsgrad", optional=True),
            tensor_in("grad", "the gradient"),
            tensor_in("step", "steps before this one; one element of INT64 or FLOAT"),
            _number("lr", "the learning rate"),
            _number("beta1", "how much of mRef stays"),
            _number("beta2", "how much of vRef stays"),
            _number("weightDecay", "the decay of parameters, times lr"),
            _number("eps", "what is added to the denominator"),
            Parameter("amsgrad", "amsgrad", Kind.BOOL, "divide by the largest vRef so far"),
            Parameter("maximize", "maximize", Kind.BOOL, "go up the gradient"),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN),
        checks=(
            present(*_STATE, "grad", "step"),
            dtype_in(floating, "varRef"),
            *(same_dtype(name, "varRef") for name in ("mRef", "vRef", "grad")),
            dtype_in(lambda product: {D.INT64, D.FLOAT}, "step"),
            *(same_shape(name, "varRef") for name in ("mRef", "vRef", "grad")),
            rule(f"as varRef, with amsgrad: {_MAXIMUM}", _maximum),
            rule("one element: step", _step),
        ),
        work=_work,
        in_header_of="apply_adam_w_v2",
    ),
    Operator(
        name="amp_update_scale",
        function=camel("amp_update_scale"),
        summary="The scale of losses for the next step, less after infinite gradients, more after many finite ones.",
        formula="updatedScale = currentScale * backoffFactor if foundInf, * growthFactor after growthInterval steps",
        parameters=(
            tensor_in("currentScale", "the scale of this step"),
            tensor_in("growthTracker", "steps since it changed; INT32"),
            tensor_in("foundInf", "not 0 if a gradient was not finite"),
            Parameter("growthFactor", "growth_factor", Kind.DOUBLE, "how much more"),
            Parameter("backoffFactor", "backoff_factor", Kind.DOUBLE, "how much less"),
            Parameter("growthInterval", "growth_interval", Kind.INT64, "steps without infinite gradients to the next"),
            tensor_out("updatedScale", "the scale of the next step", const=True),
            tensor_out("updatedGrowthTracker", "steps since it changed; INT32", const=True),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN),
        checks=(
            present("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker"),
            dtype_in(floating, "currentScale"),
            same_dtype("foundInf", "currentScale"),
            same_dtype("updatedScale", "currentScale"),
            dtype_in(lambda product: {D.INT32}, "growthTracker", "updatedGrowthTracker"),
            rule(f"one element: {', '.join(_SINGLE)}", _all_single),
            rule("at least 1: growthInterval", _interval),
        ),
        work=_scale_work,
        in_header_of="amp_update_scale",
    ),
)
