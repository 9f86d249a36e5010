"""Operators that have a type in CANN's graphs but no ``aclnn`` function: only ``capi.op_types`` calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    limited_dims,
    rule,
    same_dtype,
    shape_is,
    size_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Operator
from aclnn.operators.library.by_type.declaration import FLOATS, plain_attribute, typed
from aclnn.operators.library.common import MODERN, support, tensor_in, tensor_out
from aclnn.operators.library.reduction.distances import distances, factors, slope
from aclnn.operators.library.training import optimizer

Array = np.ndarray[Any, Any]


def _of_inputs(
    op_type: str,
    formula: str,
    inputs: str,
    attributes: Mapping[str, Kind],
    function: Callable[..., Array],
    shape: Callable[[Call], Sequence[int]],
) -> Operator:
    """Declare an operator with one output, ``y``; ``function`` takes the inputs, then the attributes."""
    names = inputs.split()
    return typed(
        op_type,
        formula,
        (
            *(tensor_in(name, "an input") for name in names),
            *(plain_attribute(name, kind) for name, kind in attributes.items()),
            tensor_out("y"),
        ),
        (
            dtype_in(where_supported(FLOATS), names[0]),
            *(same_dtype(name, names[0]) for name in (*names[1:], "y")),
            limited_dims(*names),
            shape_is("the result", shape, "y"),
        ),
        function,
    )


def _distance_gradient(grad: Array, x1: Array, x2: Array, distance: Array, p: float) -> Array:
    """Return the gradient of distances with respect to x1, summed over the vectors of x2."""
    difference, length = (x1 - x2).astype(np.float64), distance.astype(np.float64)
    return np.asarray(np.sum(grad * slope(difference, length, p, x1.dtype), -2))


def _factors_shape(call: Call) -> tuple[int, ...]:
    shape, dim = call["self"].shape, call["dim"]
    return tuple(extent if axis == dim % len(shape) else 1 for axis, extent in enumerate(shape))


def _log_space(assist: Array, start: float, end: float, steps: int, base: float) -> Array:
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    return base ** (start + step * np.arange(steps, dtype=np.float64))


def _power(x: Array, base: float, scale: float, shift: float) -> Array:
    exponent = x.astype(np.float64) * scale + shift
    return np.asarray(np.exp(exponent) if base == -1 else np.power(base, exponent))


def _logarithm(x: Array, base: float, scale: float, shift: float) -> Array:
    found = np.log(x.astype(np.float64) * scale + shift)
    return np.asarray(found if base == -1 else found / np.log(base))


def _as_x(call: Call) -> tuple[int, ...]:
    return call["x"].shape


#: Products of the type; CANN documents the function for Ascend 950 only, but the type is older.
APPLY_ADAM_W = replace(
    next(operator for operator in optimizer.OPERATORS if operator.name == "apply_adam_w"),
    function="ApplyAdamW",
    support=support(FLOATING, MODERN),
)
CDIST = _of_inputs(
    "Cdist",
    "y = the norm of order p of x1 - x2 along the last dimension",
    "x1 x2",
    {"p": Kind.DOUBLE},
    distances,
    lambda call: call["x1"].shape[:-1],
)
CDIST_GRAD = _of_inputs(
    "CdistGrad",
    "y = the gradient of Cdist with respect to x1, summed over the last dimension but one",
    "grad x1 x2 cdist",
    {"p": Kind.DOUBLE},
    _distance_gradient,
    lambda call: (*call["x1"].shape[:-2], call["x1"].shape[-1]),
)
LOG_SPACE = _of_inputs(
    "LogSpaceD",
    "y[i] = base^(start + i * (end - start) / (steps - 1))",
    "assist",
    {"start": Kind.DOUBLE, "end": Kind.DOUBLE, "steps": Kind.INT64, "base": Kind.DOUBLE},
    _log_space,
    lambda call: (call["steps"],),
)
_OF_LOGARITHMS = {"base": Kind.DOUBLE, "scale": Kind.DOUBLE, "shift": Kind.DOUBLE}
EXP = _of_inputs("Exp", "y = base^(scale * x + shift), base -1: e", "x", _OF_LOGARITHMS, _power, _as_x)
LOG = _of_inputs("Log", "y = log(scale * x + shift) to the base, -1: e", "x", _OF_LOGARITHMS, _logarithm, _as_x)
RENORM = _of_inputs(
    "Renorm",
    "y = maxnorm / norm of order p of self over all dimensions but dim where that is larger, else 1",
    "self",
    {"p": Kind.DOUBLE, "dim": Kind.INT64, "maxnorm": Kind.DOUBLE},
    lambda self, p, dim, maxnorm: factors(self, p, maxnorm, dim),
    _factors_shape,
)


def _one_hot_shape(call: Call) -> tuple[int, ...]:
    shape, axis = call["x"].shape, call["axis"]
    at = len(shape) if axis < 0 else min(axis, len(shape))
    return (*shape[:at], call["depth"], *shape[at:])


def _one_hot(x: Array, on: Array, off: Array, depth: int, axis: int) -> Array:
    at = x.ndim if axis < 0 else axis
    columns = np.arange(depth).reshape(-1, *[1] * (x.ndim - at))
    return np.where(np.expand_dims(x, at) == columns, on.reshape(()), off.reshape(()))


def _adam(var: Array, m: Array, v: Array, *given: Any) -> tuple[Array, Array, Array]:
    """Return parameters and state after a step of Adam; the powers are those of this step."""
    *numbers, grad, nesterov = given
    beta1_power, beta2_power, lr, beta1, beta2, epsilon = (each.reshape(()) for each in numbers)
    m, v = m + (1 - beta1) * (grad - m), v + (1 - beta2) * (grad * grad - v)
    rate = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    ahead = beta1 * m + (1 - beta1) * grad if nesterov else m
    return var - rate * ahead / (np.sqrt(v) + epsilon), m, v


def _fill_ranges(x: Array, start: Array, end: Array, value: Array, axis: int) -> Array:
    """Fill ranges along an axis; along the last one, with separate ranges per index of the first dimension."""
    out = x.copy()
    axis %= x.ndim
    for at, number in np.ndenumerate(start):
        places = slice(max(0, number), max(0, end[at]))
        part = out[at[1]] if 0 < axis == x.ndim - 1 else out
        np.moveaxis(part, axis - x.ndim, 0)[places] = value[at[0]]
    return out


def _ranges(call: Call) -> str | None:
    x, start, axis = call["x"].shape, call["start"].shape, call["axis"]
    rank = len(x)
    if not -rank <= axis < rank:
        return f"axis: expected from {-rank} to {rank - 1}, got {axis}"
    if axis % rank == rank - 1 > 0 and start[1] > x[0]:
        return f"start: expected at most {x[0]} columns (the first dimension of x), got {start[1]}"
    return None


_FILLED = (*FLOATS, D.INT32, D.INT8)
MASKED_FILL_RANGE = typed(
    "MaskedFillRange",
    "y = x, but value[i] from start[i, j] to end[i, j] along axis",
    (
        tensor_in("x", "of 1 to 3 dimensions"),
        *(tensor_in(name, "places, (n, m)") for name in ("start", "end")),
        tensor_in("value", "(n,)"),
        plain_attribute("axis", Kind.INT64),
        tensor_out("y"),
    ),
    (
        dtype_in(_FILLED, "x"),
        *(same_dtype(name, "x") for name in ("value", "y")),
        dtype_in((D.INT32,), "start", "end"),
        dims_between(1, 3, "x"),
        dims_between(2, 2, "start"),
        shape_is("as start has", lambda call: call["start"].shape, "end"),
        shape_is("a number for each row", lambda call: call["start"].shape[:1], "value"),
        shape_is("as x has", lambda call: call["x"].shape, "y"),
        rule("ranges of x: start, axis", _ranges),
    ),
    _fill_ranges,
    _FILLED,
)
_ADAM_STATE, _ADAM_NUMBERS = ("var", "m", "v"), ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")
_ADAM_RESULTS = tuple(f"{name}_out" for name in _ADAM_STATE)
APPLY_ADAM = typed(
    "ApplyAdamD",
    "var = var - lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon)",
    (
        *(tensor_in(name, "parameters and state") for name in _ADAM_STATE),
        *(tensor_in(name, "one number") for name in _ADAM_NUMBERS),
        tensor_in("grad", "the gradient"),
        plain_attribute("use_nesterov", Kind.BOOL),
        *map(tensor_out, _ADAM_RESULTS),
    ),
    (
        dtype_in(where_supported(FLOATING), "var"),
        *(same_dtype(name, "var") for name in (*_ADAM_STATE[1:], *_ADAM_NUMBERS, "grad", *_ADAM_RESULTS)),
        shape_is("as var has", lambda call: call["var"].shape, *_ADAM_STATE[1:], "grad", *_ADAM_RESULTS),
        size_is("one number", lambda call: 1, *_ADAM_NUMBERS),
    ),
    _adam,
    FLOATING,
)
_VALUES = (*FLOATS, D.INT32, D.INT8, D.UINT8)

#: Integer indices, with values of another type.
ONE_HOT = typed(
    "OneHotD",
    "y = on_value where the place along axis is x, else off_value",
    (
        tensor_in("x", "places"),
        tensor_in("on_value", "one number"),
        tensor_in("off_value", "one number"),
        plain_attribute("depth", Kind.INT64),
        plain_attribute("axis", Kind.INT64),
        tensor_out("y"),
    ),
    (
        dtype_in((D.INT32, D.UINT8), "x"),
        dtype_in(_VALUES, "on_value"),
        same_dtype("off_value", "on_value"),
        same_dtype("y", "on_value"),
        size_is("one number", lambda call: 1, "on_value", "off_value"),
        limited_dims("x"),
        rule(
            "a dimension: axis",
            lambda call: (
                None
                if -1 <= call["axis"] <= len(call["x"].shape)
                else f"axis: expected from -1 to {len(call['x'].shape)}, got {call['axis']}"
            ),
        ),
        shape_is("the result", _one_hot_shape, "y"),
    ),
    _one_hot,
    _VALUES,
)
#: This type takes the depth as an input.
ONE_HOT_OF_DEPTH = replace(
    ONE_HOT,
    name="OneHot",
    function="OneHot",
    checks=(
        ONE_HOT.checks[0],
        dtype_in((D.INT32, D.INT64, D.UINT8), "x"),
        dtype_in((*_VALUES, D.INT64), "on_value"),
        *ONE_HOT.checks[3:],
    ),
)
