"""aclnnSoftmax, aclnnLogSoftmax and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aclnn.core.checks import (
    FLOATING,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    axis,
    dtype_in,
    each,
    floating,
    limited_dims,
    same_dtype,
    same_shape,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter, Reduction, Shape, View, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import is_integer
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.execution import arrays
from aclnn.formula import Real, exp, fitted, log1p, row_max, row_sum, where
from aclnn.typing import Array, ArrayLike


@fitted()
def power(x: Real, top: Real) -> Real:
    """Return e^x over e^top, where top is the largest x."""
    return exp(x - top)


@fitted()
def share(power: Real, inverse: Real) -> Real:
    """Return a power times the reciprocal of their sum."""
    return power * inverse


def softmax_forward(x: Real) -> Real:
    """Return e^x over its sum, without overflow."""
    powers = power(x, row_max(x))
    return share(powers, 1.0 / row_sum(powers))


@fitted()
def less_share(dy: Real, y: Real, total: Real) -> Real:
    """Return dy·y minus y's share of the total."""
    return dy * y - y * total


def softmax_gradient(dy: Real, y: Real) -> Real:
    """Return dy·y - y·Σ dy·y."""
    return less_share(dy, y, row_sum(dy * y))


@fitted()
def beneath(x: Real, top: Real) -> Real:
    """Return e^x over e^top, but 0 at the top itself (NaN at an infinite one)."""
    shifted = x - top
    return where(x < top, exp(shifted), shifted)


@fitted()
def at_top(x: Real, top: Real) -> Real:
    """Return 1 at the top, otherwise 0."""
    return where(x < top, 0.0, 1.0)


@fitted()
def below(x: Real, top: Real, logarithm: Real) -> Real:
    """Return x minus the largest element and the logarithm."""
    return (x - top) - logarithm


def log_softmax_forward(x: Real) -> Real:
    """Return x - ln Σ e^x, without overflow, and without cancellation where the largest term dominates the sum."""
    top = row_max(x)
    return below(x, top, log1p(row_sum(beneath(x, top)) + (row_sum(at_top(x, top)) - 1.0)))


@fitted()
def less_power(dy: Real, y: Real, total: Real) -> Real:
    """Return dy minus e^y's share of the total, which is 0 for a total of 0 however large a finite y is."""
    return dy - where((total == 0.0) & (y < math.inf), 0.0, exp(y) * total)


def log_softmax_gradient(dy: Real, y: Real) -> Real:
    """Return dy - e^y·Σ dy."""
    return less_power(dy, y, row_sum(dy))


def _work(formula: Callable[..., Any], *inputs: str) -> Callable[[Call], Reduction | None]:
    def work(call: Call) -> Reduction | None:
        if any(call[name].size == 0 for name in (*inputs, "out")):
            return None
        shape = call["out"].shape or (1,)
        operands = tuple(View(name, shape) for name in inputs)
        return Reduction(formula, operands, (View("out", shape),), (call["dim"] % len(shape),))

    return work


def _infer(name: str) -> Callable[[Call], dict[str, tuple[DataType, Shape]]]:
    return lambda call: {"out": (call[name].dtype, call[name].shape)}


def _castable(call: Call, name: str) -> str | None:
    dtype = call[name].dtype
    known = (*FLOATING, DataType.DOUBLE, DataType.BOOL, DataType.COMPLEX64, DataType.COMPLEX128)
    return None if dtype in known or is_integer(dtype) else f"expected a data type of numbers, got {dtype.c_name}"


def _unless_empty(*checks: Check) -> tuple[Check, ...]:
    return unless_empty(("gradOutput", "output"), *checks, which="an input")


def _unless_empty_but_on_950(check: Check) -> Check:
    (spared,) = _unless_empty(check)
    name = f"{check.name} (unless an input is empty, but for Ascend 950)"
    return Check(name, check.code, lambda call: (check if call.product in CLASS_950 else spared).violation(call))


def _backward_checks(*names: str, order: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return the checks of a gradient, some of which older products skip if an input is empty."""
    checks = (dtype_in(floating, *names), same_dtype("output", "gradOutput"), *order)
    return (
        present(*names, "out"),
        *map(_unless_empty_but_on_950, checks),
        *_unless_empty(each("data type of numbers", ("out",), _castable, ACLNN_ERR_INNER_NULLPTR)),
    )


_OLDER = (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING)
_WIDE = WITH_BFLOAT16 | {DataType.DOUBLE}
_TAKEN = where_supported(_WIDE)
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, _WIDE) | dict.fromkeys(_OLDER, WITHOUT_BFLOAT16 | {DataType.DOUBLE})
_BACKWARD_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(_OLDER, WITHOUT_BFLOAT16)
_DIM = Parameter("dim", "dim", Kind.INT64, "the dimension along which exponentials add up")
_FORWARD_PARAMETERS = (
    Parameter("self", "self", Kind.INPUT, "x"),
    _DIM,
    Parameter("out", "out", Kind.OUTPUT, "y; its data type may differ"),
)
_BACKWARD_PARAMETERS = (
    Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
    Parameter("output", "output", Kind.INPUT, "y, the forward result"),
    _DIM,
    Parameter("out", "out", Kind.OUTPUT, "dx; its data type may differ"),
)
_DIM_OF_GRADIENT = axis("dim", "gradOutput")
_SHAPES = (limited_dims("gradOutput", "output"), same_shape("output", "gradOutput"), same_shape("out", "gradOutput"))

SOFTMAX = Operator(
    name="softmax",
    function="aclnnSoftmax",
    summary="Exponentials along a dimension, divided by their sum.",
    formula="y = exp(x) / sum(exp(x))",
    parameters=_FORWARD_PARAMETERS,
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        *unless_empty(
            ("self",),
            dtype_in(_TAKEN, "self", "out"),
            axis("dim", "self"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
    ),
    work=_work(softmax_forward, "self"),
    infer=_infer("self"),
)

SOFTMAX_BACKWARD = Operator(
    name="softmax_backward",
    function="aclnnSoftmaxBackward",
    summary="Gradient of softmax by its result.",
    formula="dx = dy * y - y * sum(dy * y)",
    parameters=_BACKWARD_PARAMETERS,
    support=_BACKWARD_SUPPORT,
    checks=_backward_checks("gradOutput", "output", order=(_DIM_OF_GRADIENT, *_SHAPES)),
    work=_work(softmax_gradient, "gradOutput", "output"),
    infer=_infer("gradOutput"),
)

LOG_SOFTMAX = Operator(
    name="log_softmax",
    function="aclnnLogSoftmax",
    summary="Logarithm of softmax along a dimension.",
    formula="y = x - ln(sum(exp(x)))",
    parameters=_FORWARD_PARAMETERS,
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        axis("dim", "self"),
        dtype_in(_TAKEN, "self", "out"),
        limited_dims("self", "out"),
        same_shape("out", "self"),
    ),
    work=_work(log_softmax_forward, "self"),
    infer=_infer("self"),
    in_header_of="logsoftmax",
)

LOG_SOFTMAX_BACKWARD = Operator(
    name="log_softmax_backward",
    function="aclnnLogSoftmaxBackward",
    summary="Gradient of the logarithm of softmax by its result.",
    formula="dx = dy - exp(y) * sum(dy)",
    parameters=_BACKWARD_PARAMETERS,
    support=_BACKWARD_SUPPORT,
    checks=_backward_checks("output", "gradOutput", order=(*_SHAPES, _DIM_OF_GRADIENT)),
    work=_work(log_softmax_gradient, "gradOutput", "output"),
    infer=_infer("gradOutput"),
    in_header_of="logsoftmax_backward",
)


def softmax(self: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """Softmax: ``y = e^x / Σ e^x`` along a dimension.

    Args:
        self: x; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension of the sum; from the end if negative.
        out: where to write y, the same shape, any of the four data types; by default a new array of x's type. Not
            looked at where x is empty.

    Returns:
        y (``out`` if given): NaN along the dimension with a NaN, an inf, or -inf alone.

    Raises:
        AclnnError: an argument that aclnnSoftmax rejects, with its status code.
    """
    return arrays.call(SOFTMAX, (self,), (dim,), (out,))


def softmax_backward(grad_output: ArrayLike, output: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """Gradient of softmax by its result: ``dx = dy·y - y·Σ dy·y`` along a dimension.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. Arrays are NumPy arrays or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        output: y, same shape and data type.
        dim: the dimension of the sum; from the end if negative.
        out: where to write dx, the same shape, any numeric data type (integers by truncation); by default a new array
            of dy's type.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSoftmaxBackward rejects, with its status code.
    """
    return arrays.call(SOFTMAX_BACKWARD, (grad_output, output), (dim,), (out,))


def log_softmax(self: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """Logarithm of softmax: ``y = x - ln Σ e^x`` along a dimension.

    Args:
        self: x; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension of the sum; from the end if negative.
        out: where to write y, the same shape, any of the four data types; by default a new array of x's type.

    Returns:
        y (``out`` if given): NaN along the dimension with a NaN, an inf, or -inf alone.

    Raises:
        AclnnError: an argument that aclnnLogSoftmax rejects, with its status code.
    """
    return arrays.call(LOG_SOFTMAX, (self,), (dim,), (out,))


def log_softmax_backward(
    grad_output: ArrayLike, output: ArrayLike, dim: int = -1, out: ArrayLike | None = None
) -> Array:
    """Gradient of the logarithm of softmax by its result: ``dx = dy - e^y·Σ dy`` along a dimension.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. Arrays are NumPy arrays or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        output: y, a logarithm; same shape and data type.
        dim: the dimension of the sum; from the end if negative.
        out: where to write dx, the same shape, any numeric data type (integers by truncation); by default a new array
            of dy's type.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLogSoftmaxBackward rejects, with its status code.
    """
    return arrays.call(LOG_SOFTMAX_BACKWARD, (grad_output, output), (dim,), (out,))
