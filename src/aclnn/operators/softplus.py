"""aclnnSoftplus, ln(1 + e^(beta·x)) / beta up to a threshold and x beyond, and aclnnSoftplusBackward, its gradient."""

from __future__ import annotations

import math
import struct

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    castable_from,
    dtype_in,
    floating,
    limited_dims,
    real,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, exp, log1pexp, where
from aclnn.operators.log_sigmoid import softplus_of_one
from aclnn.operators.sigmoid import sigmoid_forward
from aclnn.typing import Array, ArrayLike, Number


def softplus_forward(x: Real, beta: Real, linear_above: Real) -> Real:
    """ln(1 + e^(beta·x)) / beta for beta·x up to ``linear_above``, else x."""
    z = beta * x
    return where(z > linear_above, x, log1pexp(z) * (1.0 / beta))


def softplus_derivative(x: Real, beta: Real, linear_above: Real) -> Real:
    """1 / (1 + e^(-beta·x)) for beta·x up to ``linear_above``, else 1."""
    z = beta * x
    return where(z > linear_above, 1.0, 1.0 / (1.0 + exp(-z)))


softplus_gradient = Gradient(softplus_derivative)
softplus_of_one_gradient = Gradient(sigmoid_forward)


def _numbers(call: Call) -> tuple[float, float]:
    """Return beta, and the largest product in float64 that rounds to at most the threshold in float32."""
    beta, threshold = (call[name].rounded(DataType.FLOAT) for name in ("beta", "threshold"))
    beta += 0.0  # turns -0.0 into 0.0: softplus is +inf for both
    if not threshold < math.inf:
        return beta, math.inf
    (bits,) = _INTEGER.unpack(_FLOAT.pack(threshold))
    (above,) = _FLOAT.unpack(_INTEGER.pack(1 if threshold == 0.0 else bits + 1 if threshold > 0.0 else bits - 1))
    middle = 0.5 * (max(threshold, -(2.0**128)) + min(above, 2.0**128))
    rounds_up = bits & 1  # ties to even
    return beta, math.nextafter(middle, -math.inf) if rounds_up else middle


_FLOAT, _INTEGER = struct.Struct("<f"), struct.Struct("<i")


_IS_X_FROM, _IS_ONE_FROM = 17.0, 17.5
"""From these x on, ln(1 + e^x) rounds to x in float32, and 1 / (1 + e^-x) to 1."""


def _forward_work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    beta, linear_above = _numbers(call)
    if beta == 1.0 and linear_above >= _IS_X_FROM and call["out"].dtype == call["self"].dtype:
        return Elementwise(softplus_of_one, ("self",), ("out",))
    return Elementwise(softplus_forward, ("self",), ("out",), (beta, linear_above))


def _work(call: Call) -> Elementwise | None:
    dy, x = call["gradOutput"], call["self"]
    if x.size == 0:
        return None
    dtype = None if dy.dtype == x.dtype else DataType.FLOAT
    if DataType.DOUBLE in (dy.dtype, x.dtype):
        dtype = DataType.DOUBLE
    beta, linear_above = _numbers(call)
    if (
        beta == 1.0
        and linear_above >= _IS_ONE_FROM
        and dy.dtype == x.dtype == call["gradInput"].dtype != DataType.DOUBLE
    ):
        return Elementwise(softplus_of_one_gradient, ("gradOutput", "self"), ("gradInput",))
    return Elementwise(softplus_gradient, ("gradOutput", "self"), ("gradInput",), (beta, linear_above), dtype)


_SCALARS = (
    Parameter("beta", "beta", Kind.SCALAR, "factor of x in the exponent"),
    Parameter("threshold", "threshold", Kind.SCALAR, "the largest beta·x for which the function is not linear"),
)
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16
)
_GRADIENTS = WITH_BFLOAT16 | {DataType.DOUBLE}
_BACKWARD_SUPPORT: dict[Product, frozenset[DataType]] = {
    product: dtypes | {DataType.DOUBLE} for product, dtypes in _SUPPORT.items() if product != Product.ATLAS_INFERENCE
}
_INTEGERS = {DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.UINT8, DataType.BOOL}

SOFTPLUS = Operator(
    name="softplus",
    function="aclnnSoftplus",
    summary="Softplus, linear above a threshold.",
    formula="out = x if beta * x > threshold else ln(1 + exp(beta * x)) / beta",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        *_SCALARS,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "beta", "threshold", "out"),
        dtype_in(floating, "self"),
        real("beta", "threshold"),
        castable_from(lambda call: call["self"].dtype, "out"),
        limited_dims("self"),
        same_shape("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

SOFTPLUS_BACKWARD = Operator(
    name="softplus_backward",
    function="aclnnSoftplusBackward",
    summary="Gradient of Softplus with respect to its input.",
    formula="dx = dy * (1 if beta * x > threshold else 1 / (1 + exp(-beta * x)))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        *_SCALARS,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_BACKWARD_SUPPORT,
    checks=(
        present("gradOutput", "self", "beta", "threshold", "gradInput"),
        dtype_in(where_supported(_GRADIENTS), "gradOutput"),
        dtype_in(where_supported(_GRADIENTS | _INTEGERS), "self"),
        dtype_in(where_supported(_GRADIENTS), "gradInput"),
        real("beta", "threshold"),
        limited_dims("gradOutput", "self", "gradInput"),
        same_shape("self", "gradOutput"),
        same_shape("gradInput", "self"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def softplus(self: ArrayLike, beta: Number = 1.0, threshold: Number = 20.0, out: ArrayLike | None = None) -> Array:
    """Softplus: ``ln(1 + e^(beta·x)) / beta``, and x where beta·x, rounded to float32, is above the threshold.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        beta: a real number of any value; rounded to float32.
        threshold: likewise.
        out: where to write the result, same shape, any of the three data types or float64; by default a new array
            of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSoftplus rejects, with its status code.
    """
    return arrays.call(SOFTPLUS, (self,), (beta, threshold), (out,))


def softplus_backward(
    grad_output: ArrayLike, self: ArrayLike, beta: Number, threshold: Number, out: ArrayLike | None = None
) -> Array:
    """Gradient of Softplus: dy times ``1 / (1 + e^(-beta·x))``, and dy where softplus is linear.

    Args:
        grad_output: dy; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape, also integers and truth values. If its data type differs from dy's, both
            are converted to float32 first, or to float64 where one is that.
        beta: a real number of any value; rounded to float32.
        threshold: likewise.
        out: where to write dx, same shape, any of dy's data types; by default a new array of dy's type.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSoftplusBackward rejects, with its status code.
    """
    return arrays.call(SOFTPLUS_BACKWARD, (grad_output, self), (beta, threshold), (out,))
