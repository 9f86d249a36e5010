"""aclnnLeakyRelu, x above 0 and negativeSlope·x below, also in place, and aclnnLeakyReluBackward, its gradient."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    holds_promotion,
    limited_dims,
    only_if,
    promoted_and_broadcast,
    real,
    rule,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, where
from aclnn.typing import Array, ArrayLike, Number


def leaky_relu_forward(x: Real, negative_slope: Real) -> Real:
    """Return x above 0, else negative_slope·x."""
    return where(x > 0.0, x, negative_slope * x)


def leaky_relu_derivative(x: Real, negative_slope: Real) -> Real:
    """1 above 0, else negative_slope; NaN for NaN."""
    return where(x > 0.0, 1.0, where(x <= 0.0, negative_slope, x))


leaky_relu_gradient = Gradient(leaky_relu_derivative)


def _slope(call: Call) -> float:
    return float(call["negativeSlope"].rounded(DataType.FLOAT))


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(leaky_relu_forward, ("self",), ("out",), (_slope(call),))


def _work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0 or call["self"].size == 0:
        return None
    return Elementwise(leaky_relu_gradient, ("gradOutput", "self"), ("out",), (_slope(call),))


def _not_negative(call: Call) -> str | None:
    slope = call["negativeSlope"].rounded(DataType.DOUBLE)
    return f"negativeSlope: expected a number of 0 or more with a result, got {slope}" if slope < 0 else None


_SLOPE = Parameter("negativeSlope", "negative_slope", Kind.SCALAR, "factor of x below 0")
_REAL = WITH_BFLOAT16 | {DataType.DOUBLE}
_SUPPORT: dict[Product, frozenset[DataType]] = dict.fromkeys(A2_CLASS | CLASS_950, _REAL) | {
    Product.ATLAS_TRAINING: WITHOUT_BFLOAT16 | {DataType.DOUBLE}
}
_SLOPES = _REAL | {
    DataType.INT8, DataType.UINT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.BOOL
}  # fmt: skip

LEAKY_RELU = Operator(
    name="leaky_relu",
    function="aclnnLeakyRelu",
    summary="Rectified linear unit with a slope for negative arguments.",
    formula="out = x if x > 0 else negativeSlope * x",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        _SLOPE,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "negativeSlope", "out"),
        dtype_in(where_supported(_REAL), "self"),
        real("negativeSlope"),
        castable_from(lambda call: call["self"].dtype, "out"),
        limited_dims("self"),
        same_shape("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_LEAKY_RELU = in_place(
    LEAKY_RELU,
    (
        present("selfRef", "negativeSlope"),
        dtype_in(where_supported(_REAL), "selfRef"),
        real("negativeSlope"),
        limited_dims("selfRef"),
    ),
)

LEAKY_RELU_BACKWARD = Operator(
    name="leaky_relu_backward",
    function="aclnnLeakyReluBackward",
    summary="Gradient of the leaky rectified linear unit, with broadcasting and type promotion.",
    formula="dx = dy * (1 if x > 0 else negativeSlope)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input or result, which have one sign"),
        _SLOPE,
        Parameter("selfIsResult", "self_is_result", Kind.BOOL, "whether x is the forward result"),
        Parameter("out", "out", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16 | {DataType.DOUBLE}},
    checks=(
        present("gradOutput", "self", "negativeSlope", "out"),
        dtype_in(where_supported(_REAL), "gradOutput", "self"),
        dtype_in(where_supported(_SLOPES), "negativeSlope"),
        limited_dims("gradOutput", "self"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("out", "gradOutput", "self"),
        only_if(
            rule("not negative: negativeSlope", _not_negative),
            "if selfIsResult is true",
            lambda call: bool(call["selfIsResult"]),
        ),
        holds_promotion("out", "gradOutput", "self"),
    ),
    work=_work,
    infer=lambda call: {"out": promoted_and_broadcast(call["gradOutput"], call["self"])},
)


def leaky_relu(self: ArrayLike, negative_slope: Number = 0.01, out: ArrayLike | None = None) -> Array:
    """Leaky ReLU: x for x > 0, ``negative_slope·x`` otherwise.

    Args:
        self: x; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        negative_slope: a real number of any value; rounded to float32.
        out: where to write the result, same shape, any of the four data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLeakyRelu rejects, with its status code.
    """
    return arrays.call(LEAKY_RELU, (self,), (negative_slope,), (out,))


def inplace_leaky_relu(self: ArrayLike, negative_slope: Number = 0.01) -> Array:
    """Leaky ReLU written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``leaky_relu``.
        negative_slope: as for ``leaky_relu``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceLeakyRelu rejects, with its status code.
    """
    return arrays.call(INPLACE_LEAKY_RELU, (), (negative_slope,), (self,))


def leaky_relu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    negative_slope: Number,
    self_is_result: bool = False,
    out: ArrayLike | None = None,
) -> Array:
    """Gradient of leaky ReLU: dy for x > 0, ``negative_slope·dy`` otherwise.

    Args:
        grad_output: dy; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input or result; any of these data types, a shape that broadcasts with dy's.
        negative_slope: a real number, not negative with ``self_is_result``; rounded to float32.
        self_is_result: whether x is the forward result, which has the input's sign.
        out: where to write dx, of the broadcast shape, any of these data types; by default a new NumPy array of the
            type to which dy and x promote.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLeakyReluBackward rejects, with its status code.
    """
    return arrays.call(LEAKY_RELU_BACKWARD, (grad_output, self), (negative_slope, self_is_result), (out,))
