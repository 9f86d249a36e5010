"""Optimiser steps: aclnnApplyAdam, aclnnApplyAdamW, aclnnApplyAdamWV2, aclnnFusedAdam, aclnnFusedSgd.

aclnnAmpUpdateScale updates the loss scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dtype_in,
    extents,
    floating,
    generated,
    restricted,
    rule,
    same_dtype,
    same_shape,
    single,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.lists import alike, as_many, each_of, few_dims, not_null, of_same_shape, of_types

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


def _powers(before: float, *betas: float) -> tuple[float, ...]:
    return tuple(np.power(beta, before) for beta in betas)


def _adam(
    m: Any,
    v: Any,
    gradient: Any,
    powers: Sequence[float],
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    *largest: Any,
) -> tuple[Any, ...]:
    """Return Adam's update of the parameters, the new moments, and the maximum second moment if given.

    Args:
        powers: powers of the betas before this step.
    """
    rest1, rest2 = (1.0 - power * beta for power, beta in zip(powers, (beta1, beta2), strict=True))
    m = m + (1.0 - beta1) * (gradient - m)
    v = beta2 * v + (1.0 - beta2) * (gradient * gradient)
    largest = tuple(np.maximum(each, v) for each in largest)
    denominator = np.sqrt(largest[0] if largest else v) / np.sqrt(rest2) + epsilon
    return (rate / rest1 * (m / denominator), m, v, *largest)


def _work(call: Call) -> Library | None:
    if call["varRef"].size == 0:
        return None
    rate, beta1, beta2, decay, epsilon = (call[name] for name in ("lr", "beta1", "beta2", "weightDecay", "eps"))
    amsgrad, sign = call["amsgrad"], -1.0 if call["maximize"] else 1.0

    def update(var: Any, m: Any, v: Any, grad: Any, step: Any, *largest: Any) -> tuple[Any, ...]:
        powers = _powers(float(step.reshape(())), beta1, beta2)
        stepped = _adam(m, v, sign * grad, powers, rate, beta1, beta2, epsilon, *largest)
        return (var * (1.0 - rate * decay) - stepped[0], *stepped[1:])

    more = (_MAXIMUM,) if amsgrad else ()
    return Library(update, (*_STATE, "grad", "step", *more), (*_STATE, *more))


_NUMBERS = ("beta1Power", "beta2Power", "lr", "weightDecay", "beta1", "beta2", "eps")
_MAXIMUM_BEFORE = "maxGradNormOptional"


def _first_work(call: Call) -> Library | None:
    if call["varRef"].size == 0:
        return None
    sign = -1.0 if call["maximize"] else 1.0

    def update(var: Any, m: Any, v: Any, grad: Any, *arrays: Any) -> tuple[Any, ...]:
        numbers, largest = arrays[: len(_NUMBERS)], arrays[len(_NUMBERS) :]
        *powers, rate, decay, beta1, beta2, epsilon = (float(number.reshape(())) for number in numbers)
        taken, m, v, *_ = _adam(m, v, sign * grad, powers, rate, beta1, beta2, epsilon, *largest)
        return var * (1.0 - rate * decay) - taken, m, v

    more = (_MAXIMUM_BEFORE,) if call["amsgrad"] else ()
    return Library(update, (*_STATE, "grad", *_NUMBERS, *more), _STATE)


_PLAIN_STATE, _PLAIN_NUMBERS = ("varRef", "m", "v"), ("beta1Power", "beta2Power", "lr", "beta1", "beta2", "epsilon")


def _plain_work(call: Call) -> Library | None:
    if call["varRef"].size == 0:
        return None
    looks_ahead = call["useNesterov"]

    def update(var: Any, m: Any, v: Any, grad: Any, *numbers: Any) -> tuple[Any, ...]:
        power1, power2, rate, beta1, beta2, epsilon = (float(number.reshape(())) for number in numbers)
        m = beta1 * m + (1.0 - beta1) * grad
        v = beta2 * v + (1.0 - beta2) * (grad * grad)
        mean = beta1 * m + (1.0 - beta1) * grad if looks_ahead else m
        rate *= np.sqrt(1.0 - power2) / (1.0 - power1)
        return var - rate * (mean / (np.sqrt(v) + epsilon)), m, v

    return Library(update, (*_PLAIN_STATE, "grad", *_PLAIN_NUMBERS), _PLAIN_STATE)


_LISTS = ("paramsRef", "gradsRef", "expAvgsRef", "expAvgSqsRef")
_LARGEST = "maxExpAvgSqsRef"


def _with_amsgrad(*checks: Check) -> tuple[Check, ...]:
    return restricted("with amsgrad", lambda call: bool(call["amsgrad"]), *checks)


def _fused_work(call: Call) -> Library | None:
    places = [at for at, tensor in enumerate(call["paramsRef"]) if tensor.size]
    if not places:
        return None
    rate, beta1, beta2, decay, epsilon = (call[name] for name in ("lr", "beta1", "beta2", "weightDecay", "eps"))
    sign = -1.0 if call["maximize"] else 1.0
    scale, found = (name if call[name] is not None else None for name in ("gradScaleOptional", "foundInfOptional"))
    lists = (*_LISTS, *((_LARGEST,) if call["amsgrad"] else ()))
    flags = tuple(name for name in (scale, found) if name)
    names = tuple(f"{name}[{at}]" for name in lists for at in places)
    written = tuple(name for name in names if scale or not name.startswith("gradsRef"))

    def update(*arrays: Any) -> tuple[Any, ...]:
        numbers = dict(zip(flags, arrays, strict=False))
        given = arrays[len(flags) :]
        steps, state = given[: len(places)], given[len(places) :]
        if found and numbers[found].reshape(-1)[0] == 1:
            return tuple(array for name, array in zip(names, state, strict=True) if name in written)
        results: list[tuple[Any, ...]] = []
        for at, step in enumerate(steps):
            var, grad, m, v, *largest = state[at :: len(places)]
            grad = grad / numbers[scale].reshape(-1)[0] if scale else grad
            gradient = sign * grad + decay * var
            powers = _powers(float(step.reshape(-1)[0]), beta1, beta2)
            taken, *more = _adam(m, v, gradient, powers, rate, beta1, beta2, epsilon, *largest)
            results.append((var - taken, *((grad,) if scale else ()), *more))
        return tuple(each for column in zip(*results, strict=True) for each in column)

    return Library(update, (*flags, *(f"stateSteps[{at}]" for at in places), *names), written)


_BUFFERS = "momentumBufferListOptionalRef"
_SCALE = "gradScaleOptional"
_LEAST = 1e-6
"""Smaller numbers count as 0."""


def _has_buffers(call: Call) -> bool:
    return bool(call[_BUFFERS])


def _nesterov(call: Call) -> str | None:
    if not call["nesterov"] or (call["momentum"] > 0 and abs(call["dampening"]) < _LEAST):
        return None
    return "nesterov: expected false unless momentum is more than 0 and dampening 0, got true"


def _momentum(call: Call) -> str | None:
    momentum, buffered = call["momentum"], _has_buffers(call)
    if (momentum >= _LEAST) == buffered:
        return None
    expected = f"more than 0 with {_BUFFERS}" if buffered else f"0 without {_BUFFERS}"
    return f"momentum: expected {expected}, got {momentum}"


def _sgd_work(call: Call) -> Library | None:
    places = [at for at, tensor in enumerate(call["paramsRef"]) if tensor.size]
    if not places:
        return None
    decay, momentum, rate, dampening = (call[name] for name in ("weightDecay", "momentum", "lr", "dampening"))
    nesterov, sign, first = call["nesterov"], -1.0 if call["maximize"] else 1.0, call["isFirstStep"]
    scaled = call[_SCALE] is not None and call[_SCALE].size > 0
    lists = ("paramsRef", "gradsRef", *((_BUFFERS,) if _has_buffers(call) else ()))
    names = tuple(f"{name}[{at}]" for name in lists for at in places)
    written = tuple(name for name in names if scaled or not name.startswith("gradsRef"))

    def step(var: Any, grad: Any, *buffer: Any) -> tuple[Any, ...]:
        gradient = sign * grad + decay * var
        kept = [gradient if first else momentum * each + (1.0 - dampening) * gradient for each in buffer]
        taken = gradient + momentum * kept[0] if nesterov else kept[0] if kept else gradient
        return (var - rate * taken, *((grad,) if scaled else ()), *kept)

    def update(*arrays: Any) -> tuple[Any, ...]:
        scale, state = (float(arrays[0].reshape(-1)[0]), arrays[1:]) if scaled else (1.0, arrays)
        results = []
        for at in range(len(places)):
            var, grad, *buffer = (array.astype(np.float64) for array in state[at :: len(places)])
            results.append(step(var, grad / scale, *buffer))
        return tuple(each for column in zip(*results, strict=True) for each in column)

    return Library(update, (*((_SCALE,) if scaled else ()), *names), written)


def _with_tensors(*checks: Check) -> tuple[Check, ...]:
    return restricted("unless paramsRef is empty", lambda call: bool(call["paramsRef"]), *checks)


def _with_buffers(*checks: Check) -> tuple[Check, ...]:
    return restricted(f"with {_BUFFERS}", lambda call: bool(call["paramsRef"]) and _has_buffers(call), *checks)


def _number(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.FLOAT, meaning)


_SINGLE = ("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker")


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


_UPDATED = (
    tensor_out("varRef", "the parameters"),
    tensor_out("mRef", "the first moment"),
    tensor_out("vRef", "the second moment"),
)
_FLAGS = (
    Parameter("amsgrad", "amsgrad", Kind.BOOL, "whether to divide by the running maximum of vRef"),
    Parameter("maximize", "maximize", Kind.BOOL, "whether to maximize"),
)
_BETAS = (("beta1", "the decay rate of mRef"), ("beta2", "the decay rate of vRef"))
_RATE, _DECAY = ("lr", "the learning rate"), ("weightDecay", "the weight decay, a factor of lr")
_EPSILON = ("eps", "the term added to the denominator for stability")
_FORMULA = "varRef = varRef - lr * (mhat / (sqrt(vhat) + eps) + weightDecay * varRef)"

OPERATORS = (
    Operator(
        name="apply_adam",
        summary="Adam step, in place, with hyperparameters in tensors.",
        formula="varRef = varRef - lr * sqrt(1 - beta2Power) / (1 - beta1Power) * m / (sqrt(v) + epsilon), "
        "with useNesterov of beta1 * m + (1 - beta1) * grad",
        parameters=(
            _UPDATED[0],
            tensor_out("m", "the first moment", const=True, updated=True),
            tensor_out("v", "the second moment", const=True, updated=True),
            tensor_in("beta1Power", "beta1 to the power of the step number, including this step"),
            tensor_in("beta2Power", "beta2 to the power of the step number, including this step"),
            *(
                tensor_in(*number)
                for number in (_RATE, ("beta1", "the decay rate of m"), ("beta2", "the decay rate of v"))
            ),
            tensor_in("epsilon", _EPSILON[1]),
            tensor_in("grad", "the gradient"),
            Parameter("useLocking", "use_locking", Kind.BOOL, "ignored"),
            Parameter("useNesterov", "use_nesterov", Kind.BOOL, "whether to use Nesterov momentum"),
        ),
        support=support(FLOATING, CLASS_950),
        checks=generated(
            (*_PLAIN_STATE, *_PLAIN_NUMBERS, "grad"),
            (),
            lambda product: [(*(d for _ in _PLAIN_STATE), *(D.FLOAT for _ in _PLAIN_NUMBERS), d) for d in FLOATING],
            *(same_shape(name, "varRef") for name in (*_PLAIN_STATE[1:], "grad")),
            single(*_PLAIN_NUMBERS),
            written=("varRef",),
        ),
        work=_plain_work,
    ),
    Operator(
        name="apply_adam_w",
        summary="AdamW step, in place, with hyperparameters in tensors.",
        formula=_FORMULA,
        parameters=(
            *_UPDATED,
            tensor_in("beta1Power", "beta1 to the power of the number of previous steps"),
            tensor_in("beta2Power", "beta2 to the power of the step number, including this step"),
            *(tensor_in(*number) for number in (_RATE, _DECAY, *_BETAS, _EPSILON)),
            tensor_in("grad", "the gradient"),
            Parameter(
                _MAXIMUM_BEFORE, "max_grad_norm", Kind.INPUT, "the running maximum of vRef, with amsgrad", optional=True
            ),
            *_FLAGS,
        ),
        support=support(FLOATING, CLASS_950),
        checks=(
            present(*_STATE, *_NUMBERS, "grad"),
            *_with_amsgrad(present(_MAXIMUM_BEFORE)),
            dtype_in(floating, "varRef"),
            *(same_dtype(name, "varRef") for name in (*_STATE[1:], *_NUMBERS, "grad", _MAXIMUM_BEFORE)),
            *(same_shape(name, "varRef") for name in (*_STATE[1:], _MAXIMUM_BEFORE, "grad")),
            single(*_NUMBERS),
        ),
        work=_first_work,
    ),
    Operator(
        name="apply_adam_w_v2",
        summary="AdamW step, in place.",
        formula=f"{_FORMULA}, of step + 1",
        parameters=(
            *_UPDATED,
            Parameter(
                _MAXIMUM, "max_grad_norm", Kind.OUTPUT, "the running maximum of vRef, with amsgrad", optional=True
            ),
            tensor_in("grad", "the gradient"),
            tensor_in("step", "the number of previous steps; one element of INT64 or FLOAT"),
            *(_number(*number) for number in (_RATE, *_BETAS, _DECAY, _EPSILON)),
            *_FLAGS,
        ),
        support=support(FLOATING, MODERN),
        checks=(
            dtype_in(floating, "varRef"),
            *(same_dtype(name, "varRef") for name in ("mRef", "vRef", "grad")),
            dtype_in({D.INT64, D.FLOAT}, "step"),
            *(same_shape(name, "varRef") for name in ("mRef", "vRef", "grad")),
            rule(f"as varRef, with amsgrad: {_MAXIMUM}", _maximum),
            single("step"),
        ),
        work=_work,
    ),
    Operator(
        name="fused_adam",
        summary="Fused Adam step for lists of parameters, in place.",
        formula="paramsRef = paramsRef - lr * mhat / (sqrt(vhat) + eps), of gradsRef + weightDecay * paramsRef",
        parameters=(
            *(
                Parameter(name, name, Kind.OUTPUT_LIST, meaning, c_type="const aclTensorList *")
                for name, meaning in (
                    ("paramsRef", "the parameters"),
                    ("gradsRef", "the gradients, divided by gradScaleOptional in place"),
                    ("expAvgsRef", "the first moments"),
                    ("expAvgSqsRef", "the second moments"),
                )
            ),
            Parameter(
                _LARGEST,
                _LARGEST,
                Kind.OUTPUT_LIST,
                "the running maxima of expAvgSqsRef, with amsgrad",
                c_type="const aclTensorList *",
                optional=True,
            ),
            Parameter("stateSteps", "state_steps", Kind.INPUT_LIST, "the numbers of previous steps; INT64 or FLOAT"),
            Parameter("gradScaleOptional", "grad_scale", Kind.INPUT, "the divisor of the gradients", optional=True),
            Parameter("foundInfOptional", "found_inf", Kind.INPUT, "1: skip the step", optional=True),
            *(
                Parameter(name, name, Kind.DOUBLE, meaning)
                for name, meaning in (
                    ("lr", "the learning rate"),
                    ("beta1", "the decay rate of expAvgsRef"),
                    ("beta2", "the decay rate of expAvgSqsRef"),
                    ("weightDecay", "the weight decay"),
                    ("eps", "the term added to the denominator for stability"),
                )
            ),
            Parameter("amsgrad", "amsgrad", Kind.BOOL, "whether to divide by the running maxima of expAvgSqsRef"),
            Parameter("maximize", "maximize", Kind.BOOL, "whether to maximize"),
        ),
        support=support(FLOATING, CLASS_950),
        checks=(
            present(*_LISTS, "stateSteps"),
            *_with_amsgrad(present(_LARGEST)),
            each_of("no null among them", (*_LISTS, "stateSteps"), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", _LISTS, of_types(FLOATING)),
            each_of("data type of each", ("stateSteps",), of_types((D.FLOAT, D.INT64))),
            dtype_in({D.FLOAT}, "gradScaleOptional", "foundInfOptional"),
            as_many("paramsRef", (*_LISTS[1:], "stateSteps")),
            each_of("one data type", _LISTS, alike("paramsRef")),
            each_of("at most 8 dimensions each", ("paramsRef",), few_dims),
            each_of("same shape each", _LISTS[1:], of_same_shape("paramsRef")),
            *_with_amsgrad(
                each_of("no null among them", (_LARGEST,), not_null, ACLNN_ERR_PARAM_NULLPTR),
                as_many("paramsRef", (_LARGEST,)),
                each_of("one data type", (_LARGEST,), alike("paramsRef")),
                each_of("same shape each", (_LARGEST,), of_same_shape("paramsRef")),
            ),
        ),
        work=_fused_work,
    ),
    Operator(
        name="fused_sgd",
        summary="Fused SGD step for lists of parameters, in place.",
        formula="v = momentum * v + (1 - dampening) * (gradsRef + weightDecay * paramsRef), paramsRef -= lr * v",
        parameters=(
            *(
                Parameter(name, name, Kind.OUTPUT_LIST, meaning, optional, "const aclTensorList *")
                for name, meaning, optional in (
                    ("paramsRef", "the parameters", False),
                    ("gradsRef", "the gradients, divided by gradScaleOptional in place", False),
                    (_BUFFERS, "the momentum buffers; null or empty: no momentum", True),
                )
            ),
            optional_in(_SCALE, "the divisor of the gradients"),
            _number("weightDecay", "the weight decay"),
            _number("momentum", "the momentum factor"),
            _number("lr", "the learning rate"),
            _number("dampening", "the dampening of the momentum"),
            Parameter("nesterov", "nesterov", Kind.BOOL, "whether to use Nesterov momentum"),
            Parameter("maximize", "maximize", Kind.BOOL, "whether to maximize"),
            Parameter(
                "isFirstStep", "is_first_step", Kind.BOOL, "whether to initialize the momentum with the gradient"
            ),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            present("paramsRef"),
            *_with_tensors(
                value_is("0 or more", lambda got: got >= 0, "weightDecay", "momentum", "lr"),
                rule("a momentum and no dampening: nesterov", _nesterov),
                rule(f"by {_BUFFERS}: momentum", _momentum),
                each_of("no null among them", ("paramsRef",), not_null, ACLNN_ERR_PARAM_NULLPTR),
                present("gradsRef"),
                each_of("no null among them", ("gradsRef", _BUFFERS), not_null, ACLNN_ERR_PARAM_NULLPTR),
                as_many("paramsRef", ("gradsRef",)),
            ),
            *_with_buffers(as_many("paramsRef", (_BUFFERS,))),
            *_with_tensors(
                each_of("data type of each", ("paramsRef",), of_types(FLOATING)),
                each_of("one data type", ("paramsRef", "gradsRef", _BUFFERS), alike("paramsRef")),
                dtype_in(floating, _SCALE),
                each_of("at most 8 dimensions each", ("paramsRef",), few_dims),
                each_of("same shape each", ("gradsRef", _BUFFERS), of_same_shape("paramsRef")),
            ),
        ),
        work=_sgd_work,
    ),
    Operator(
        name="amp_update_scale",
        summary="Update the loss scale: decrease it after infinite gradients, increase it after many finite ones.",
        formula="updatedScale = currentScale * backoffFactor if foundInf, * growthFactor after growthInterval steps",
        parameters=(
            tensor_in("currentScale", "the current loss scale"),
            tensor_in("growthTracker", "the number of finite steps since the last change; INT32"),
            tensor_in("foundInf", "nonzero if a gradient was not finite"),
            Parameter("growthFactor", "growth_factor", Kind.DOUBLE, "the growth factor"),
            Parameter("backoffFactor", "backoff_factor", Kind.DOUBLE, "the backoff factor"),
            Parameter(
                "growthInterval",
                "growth_interval",
                Kind.INT64,
                "the number of consecutive finite steps before the scale grows",
            ),
            tensor_out("updatedScale", "the updated loss scale", const=True),
            tensor_out("updatedGrowthTracker", "the number of finite steps since the last change; INT32", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            dtype_in(floating, "currentScale"),
            same_dtype("foundInf", "currentScale"),
            same_dtype("updatedScale", "currentScale"),
            dtype_in({D.INT32}, "growthTracker", "updatedGrowthTracker"),
            single(*_SINGLE),
            value_is("at least 1", lambda got: got >= 1, "growthInterval"),
        ),
        work=_scale_work,
    ),
)
