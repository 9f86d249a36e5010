"""aclnnSoftmax, aclnnLogSoftmax and their gradients, in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
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


def _rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function over float64 arrays of at least one dimension, and the dimension."""

    def compute(*given: Any) -> Any:
        *tensors, dim = given
        rows = [np.atleast_1d(tensor.astype(np.float64)) for tensor in tensors]
        return np.reshape(function(*rows, dim), tensors[0].shape)

    return compute


def _softmax(x: Any, dim: int) -> Any:
    powers = np.exp(x - x.max(dim, keepdims=True))
    powers /= powers.sum(dim, keepdims=True)
    return powers


def _softmax_backward(dy: Any, y: Any, dim: int) -> Any:
    product = dy * y
    return product - y * product.sum(dim, keepdims=True)


def _log_softmax(x: Any, dim: int) -> Any:
    shifted = x - x.max(dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def _log_softmax_backward(dy: Any, y: Any, dim: int) -> Any:
    total = dy.sum(dim, keepdims=True)
    # No 0 * inf where an element has a probability of 0.
    return dy - np.where(y == -np.inf, np.where(np.isfinite(total), 0.0, np.nan), np.exp(y) * total)


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
    return library_operator(
        name,
        formula,
        summary,
        (tensor_in("self", "x"), _DIM, tensor_out()),
        (present("self", "out"), *checks),
        _rows(function),
        header=header,
        dtypes=REAL_FLOATING,
        products=WITH_INFERENCE,
        attributes=("dim",),
        empty=("self",),
    )


def _backward(
    name: str, formula: str, summary: str, header: str, checks: tuple[Check, ...], function: Callable[..., Any]
) -> Operator:
    return library_operator(
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
        _rows(function),
        header=header,
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16),
        products=WITH_INFERENCE,
        attributes=("dim",),
        empty=("gradOutput", "output"),
    )


_TAKEN = where_supported(REAL_FLOATING)
_SHAPES = (limited_dims("gradOutput", "output"), same_shape("output", "gradOutput"), same_shape("out", "gradOutput"))

OPERATORS = (
    _forward(
        "softmax",
        "out = exp(self) / sum of exp(self) along dim",
        "Exponentials along a dimension, divided by their sum.",
        "softmax",
        _unless_empty(dtype_in(_TAKEN, "self", "out"), _dim("self"), limited_dims("self"), same_shape("out", "self")),
        _softmax,
    ),
    _backward(
        "softmax_backward",
        "out = gradOutput * output - output * sum of gradOutput * output along dim",
        "Gradient of softmax.",
        "softmax_backward",
        _backward_checks(_dim("gradOutput"), *_SHAPES),
        _softmax_backward,
    ),
    _forward(
        "log_softmax",
        "out = self - log(sum of exp(self) along dim)",
        "Logarithm of softmax.",
        "logsoftmax",
        (_dim("self"), dtype_in(_TAKEN, "self", "out"), limited_dims("self", "out"), same_shape("out", "self")),
        _log_softmax,
    ),
    _backward(
        "log_softmax_backward",
        "out = gradOutput - exp(output) * sum of gradOutput along dim",
        "Gradient of the logarithm of softmax.",
        "logsoftmax_backward",
        _backward_checks(*_SHAPES, _dim("gradOutput")),
        _log_softmax_backward,
    ),
)
