"""aclnnSoftmax, aclnnLogSoftmax and their gradients, in float64, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aclnn.core.checks import (
    dtype_in,
    floating,
    limited_dims,
    only_if,
    present,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter, Reduction, View
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.formula import Real, absolute, exp, log, row_max, row_sum, where
from aclnn.operators.library.common import (
    COMPLEX,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    library_operator,
    tensor_in,
    tensor_out,
)

_DIM = Parameter("dim", "dim", Kind.INT64, "the dimension along which exponentials add up to 1")


def _rank(call: Call, name: str) -> int:
    return max(len(call[name].shape), 1)


def _dim(name: str) -> Check:
    def complain(call: Call) -> str | None:
        rank = _rank(call, name)
        return None if -rank <= call["dim"] < rank else f"dim: expected from {-rank} to {rank - 1}, got {call['dim']}"

    return rule(f"dimension of {name}: dim", complain)


def softmax_forward(x: Real) -> Real:
    """e^x over its sum; without overflow."""
    powers = exp(x - row_max(x))
    return powers * (1.0 / row_sum(powers))


def softmax_gradient(dy: Real, y: Real) -> Real:
    """y·(dy - Σ dy·y)."""
    return y * (dy - row_sum(dy * y))


def log_softmax_forward(x: Real) -> Real:
    """x - ln Σ e^x, without overflow."""
    shifted = x - row_max(x)
    return shifted - log(row_sum(exp(shifted)))


def log_softmax_gradient(dy: Real, y: Real) -> Real:
    """dy - e^y·Σ dy; no 0·inf where a probability is 0."""
    total = row_sum(dy)
    return dy - where(y == -math.inf, where(absolute(total) < math.inf, 0.0, math.nan), exp(y) * total)


def _work(formula: Callable[..., Any], *inputs: str) -> Callable[[Call], Reduction | None]:
    def work(call: Call) -> Reduction | None:
        if any(call[name].size == 0 for name in (*inputs, "out")):
            return None
        shape = call[inputs[0]].shape or (1,)
        operands = tuple(View(name, shape) for name in inputs)
        return Reduction(formula, operands, (View("out", shape),), (call["dim"] % len(shape),))

    return work


def _unless_empty(*checks: Check) -> tuple[Check, ...]:
    return tuple(only_if(check, "unless self is empty", lambda call: bool(call["self"].size)) for check in checks)


def _castable_out(call: Call) -> str | None:
    taken = (*NUMBERS, *UNSIGNED, *COMPLEX)
    if call["out"].dtype in taken:
        return None
    return f"out: expected a data type of numbers, got {call['out'].dtype.c_name}"


def _backward_checks(*order: Check) -> tuple[Check, ...]:
    """Those of a gradient, which older products pass over where an input is empty."""
    checks = (
        dtype_in(floating, "gradOutput", "output"),
        same_dtype("output", "gradOutput"),
        *order,
        rule("data type of numbers: out", _castable_out, ACLNN_ERR_INNER_NULLPTR),
    )
    some = lambda call: call.product in CLASS_950 or bool(call["gradOutput"].size and call["output"].size)  # noqa: E731
    return (
        present("gradOutput", "output", "out"),
        *(only_if(check, "unless an input is empty, but for Ascend 950", some) for check in checks),
    )


def _forward(
    name: str, formula: str, summary: str, header: str, checks: tuple[Check, ...], function: Callable[..., Any]
) -> Operator:
    declared = library_operator(
        name,
        formula,
        summary,
        (tensor_in("self", "x"), _DIM, tensor_out()),
        (present("self", "out"), *checks),
        function,
        header=header,
        dtypes=REAL_FLOATING,
        products=WITH_INFERENCE,
    )
    return replace(declared, work=_work(function, "self"))


def _backward(
    name: str, formula: str, summary: str, header: str, checks: tuple[Check, ...], function: Callable[..., Any]
) -> Operator:
    declared = library_operator(
        name,
        formula,
        summary,
        (
            tensor_in("gradOutput", "dy, the gradient arriving at the output"),
            tensor_in("output", "y, the forward result"),
            _DIM,
            tensor_out("out", "dx"),
        ),
        checks,
        function,
        header=header,
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16),
        products=WITH_INFERENCE,
    )
    return replace(declared, work=_work(function, "gradOutput", "output"))


_TAKEN = where_supported(REAL_FLOATING)
_SHAPES = (limited_dims("gradOutput", "output"), same_shape("output", "gradOutput"), same_shape("out", "gradOutput"))

OPERATORS = (
    _forward(
        "softmax",
        "out = exp(self) / sum of exp(self) along dim",
        "Exponentials along a dimension, divided by their sum.",
        "softmax",
        _unless_empty(dtype_in(_TAKEN, "self", "out"), _dim("self"), limited_dims("self"), same_shape("out", "self")),
        softmax_forward,
    ),
    _backward(
        "softmax_backward",
        "out = gradOutput * output - output * sum of gradOutput * output along dim",
        "Gradient of softmax.",
        "softmax_backward",
        _backward_checks(_dim("gradOutput"), *_SHAPES),
        softmax_gradient,
    ),
    _forward(
        "log_softmax",
        "out = self - log(sum of exp(self) along dim)",
        "Logarithm of softmax.",
        "logsoftmax",
        (_dim("self"), dtype_in(_TAKEN, "self", "out"), limited_dims("self", "out"), same_shape("out", "self")),
        log_softmax_forward,
    ),
    _backward(
        "log_softmax_backward",
        "out = gradOutput - exp(output) * sum of gradOutput along dim",
        "Gradient of the logarithm of softmax.",
        "logsoftmax_backward",
        _backward_checks(*_SHAPES, _dim("gradOutput")),
        log_softmax_gradient,
    ),
)
