"""aclnnRelu, aclnnThreshold, both also in place, and aclnnThresholdBackward, the gradient of both."""

from __future__ import annotations

from functools import partial
from typing import Any

from aclnn.core.checks import (
    FLOATING,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    promoted_and_broadcast,
    real,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Library, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, where
from aclnn.typing import Array, ArrayLike, Number


def relu_forward(x: Real) -> Real:
    """Return x above 0, else +0; NaN for NaN."""
    return where(x > 0.0, x, where(x <= 0.0, 0.0, x))


def threshold_forward(x: Real, threshold: Real, value: Real) -> Real:
    """Return value up to the threshold, else x; x for a threshold that is NaN."""
    return where(x <= threshold, value, x)


def threshold_gradient(dy: Real, x: Real, threshold: Real) -> Real:
    """+0 up to the threshold, else dy, which is not multiplied; NaN where x is."""
    return where(x <= threshold, 0.0, where(x == x, dy, x))


def _integer_relu(x: Any) -> Any:
    return x * (x > 0)


def _integer_threshold(threshold: Any, value: Any, x: Any) -> Any:
    return (x > threshold) * x + (x <= threshold) * value


def _integer_gradient(threshold: float, dy: Any, x: Any) -> Any:
    return (x > threshold) * dy


def _relu_work(call: Call) -> Elementwise | Library | None:
    if call["self"].size == 0:
        return None
    if call["self"].dtype in FLOATING:
        return Elementwise(relu_forward, ("self",), ("out",))
    return Library(_integer_relu, ("self",), ("out",))


def _threshold_work(call: Call) -> Elementwise | Library | None:
    if call["self"].size == 0:
        return None
    if call["self"].dtype in FLOATING:
        numbers = tuple(call[name].rounded(call["self"].dtype) for name in ("threshold", "value"))
        return Elementwise(threshold_forward, ("self",), ("out",), numbers)
    converted = (convert(call[name].value, call["self"].dtype.numpy) for name in ("threshold", "value"))
    return Library(partial(_integer_threshold, *converted), ("self",), ("out",))


def _gradient_work(call: Call) -> Elementwise | Library | None:
    if call["gradOutput"].size == 0 or call["self"].size == 0:
        return None
    threshold = call["threshold"].rounded(DataType.FLOAT)
    if call["self"].dtype in FLOATING:
        return Elementwise(threshold_gradient, ("gradOutput", "self"), ("out",), (threshold,))
    return Library(partial(_integer_gradient, threshold), ("gradOutput", "self"), ("out",))


_NEARLY_ZERO = 2.0**-23


def _wide_integers_at_zero(call: Call) -> str | None:
    threshold = call["threshold"].rounded(DataType.FLOAT)
    if call["self"].dtype != DataType.INT64 or abs(threshold) <= _NEARLY_ZERO:
        return None
    return f"threshold: expected 0 for ACL_INT64, got {threshold}"


_INTEGERS = {DataType.INT8, DataType.INT32, DataType.INT64, DataType.UINT8}
_MODERN = A2_CLASS | CLASS_950
_RELU_SUPPORT: dict[Product, frozenset[DataType]] = dict.fromkeys(_MODERN, WITH_BFLOAT16 | _INTEGERS) | {
    Product.ATLAS_TRAINING: WITHOUT_BFLOAT16 | _INTEGERS
}
_SUPPORT = {product: dtypes | {DataType.INT16} for product, dtypes in _RELU_SUPPORT.items()}
_NARROW = _INTEGERS - {DataType.INT64}
_GRADIENT_SUPPORT: dict[Product, frozenset[DataType]] = (
    dict.fromkeys(A2_CLASS, WITH_BFLOAT16 | _NARROW)
    | dict.fromkeys(CLASS_950, WITH_BFLOAT16 | _INTEGERS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16 | _NARROW)
)
_SCALARS = (
    Parameter("threshold", "threshold", Kind.SCALAR, "the largest x that is replaced"),
    Parameter("value", "value", Kind.SCALAR, "what replaces it"),
)


def _with_gradient(product: Product) -> frozenset[DataType]:
    narrow = where_supported(WITH_BFLOAT16 | _NARROW)(product)
    return narrow | {DataType.INT64} if product in CLASS_950 else narrow


RELU = Operator(
    name="relu",
    function="aclnnRelu",
    summary="Rectified linear unit.",
    formula="out = x if x > 0 else 0",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x; also integers"),
        Parameter("out", "out", Kind.OUTPUT, "the result", c_type="const aclTensor *"),
    ),
    support=_RELU_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(where_supported(WITH_BFLOAT16 | _INTEGERS), "self"),
        same_dtype("out", "self"),
        limited_dims("self", "out"),
        same_shape("self", "out"),
    ),
    work=_relu_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
    stream_type="const aclrtStream ",
)

INPLACE_RELU = in_place(
    RELU, (present("selfRef"), dtype_in(where_supported(WITH_BFLOAT16 | _INTEGERS), "selfRef"), limited_dims("selfRef"))
)

THRESHOLD = Operator(
    name="threshold",
    function="aclnnThreshold",
    summary="Elements not above a threshold become a given number.",
    formula="out = x if x > threshold else value",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x; also integers"),
        *_SCALARS,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "out", "threshold", "value"),
        dtype_in(where_supported(WITH_BFLOAT16 | _INTEGERS | {DataType.INT16}), "self"),
        real("threshold", "value"),
        castable_from(lambda call: call["self"].dtype, "out"),
        limited_dims("self"),
        same_shape("self", "out"),
    ),
    work=_threshold_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_THRESHOLD = in_place(
    THRESHOLD,
    (
        present("selfRef", "threshold", "value"),
        dtype_in(where_supported(WITH_BFLOAT16 | _INTEGERS | {DataType.INT16}), "selfRef"),
        real("threshold", "value"),
        limited_dims("selfRef"),
    ),
)

THRESHOLD_BACKWARD = Operator(
    name="threshold_backward",
    function="aclnnThresholdBackward",
    summary="Gradient of ReLU and Threshold with respect to their input, with broadcasting.",
    formula="dx = dy if x > threshold else 0",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output; also integers"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        _SCALARS[0],
        Parameter("out", "out", Kind.OUTPUT, "dx"),
    ),
    support=_GRADIENT_SUPPORT,
    checks=(
        present("threshold", "out", "gradOutput", "self"),
        dtype_in(_with_gradient, "gradOutput", "self"),
        real("threshold"),
        rule("threshold of int64", _wide_integers_at_zero),
        same_dtype("gradOutput", "self"),
        same_dtype("out", "self"),
        limited_dims("gradOutput", "self"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("out", "gradOutput", "self"),
    ),
    work=_gradient_work,
    infer=lambda call: {"out": promoted_and_broadcast(call["gradOutput"], call["self"])},
    stream_type="const aclrtStream ",
)


def relu(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """ReLU: x for x > 0, otherwise 0.

    Args:
        self: x; float32, float16, bfloat16, int8, int32, int64 or uint8, at most 8 dimensions. A NumPy array, or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnRelu rejects, with its status code.
    """
    return arrays.call(RELU, (self,), (), (out,))


def inplace_relu(self: ArrayLike) -> Array:
    """ReLU written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``relu``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceRelu rejects, with its status code.
    """
    return arrays.call(INPLACE_RELU, (), (), (self,))


def threshold(self: ArrayLike, threshold: Number, value: Number, out: ArrayLike | None = None) -> Array:
    """Threshold: x where it is above a threshold, otherwise a value.

    Args:
        self: x; float32, float16, bfloat16, int8, int16, int32, int64 or uint8, at most 8 dimensions. A NumPy array, or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        threshold: a number; converted to x's data type, without its fraction for integers.
        value: likewise.
        out: where to write the result, same shape, a data type to which x's converts; by default a new array
            of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnThreshold rejects, with its status code.
    """
    return arrays.call(THRESHOLD, (self,), (threshold, value), (out,))


def inplace_threshold(self: ArrayLike, threshold: Number, value: Number) -> Array:
    """Threshold written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``threshold``.
        threshold: as for ``threshold``.
        value: likewise.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceThreshold rejects, with its status code.
    """
    return arrays.call(INPLACE_THRESHOLD, (), (threshold, value), (self,))


def threshold_backward(
    grad_output: ArrayLike, self: ArrayLike, threshold: Number, out: ArrayLike | None = None
) -> Array:
    """Gradient of ``relu`` (for a threshold of 0) and ``threshold``: dy where x is above the threshold, otherwise 0.

    Args:
        grad_output: dy; float32, float16, bfloat16, int8, int32, uint8 or (on Ascend 950, for a threshold of 0) int64,
            at most 8 dimensions. A NumPy array, or anything on the CPU with ``__dlpack__`` or ``__array_interface__``;
            any strides.
        self: x, the forward input; same data type, a shape that broadcasts with dy's.
        threshold: a number; rounded to float32.
        out: where to write dx, of the broadcast shape, same data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnThresholdBackward rejects, with its status code.
    """
    return arrays.call(THRESHOLD_BACKWARD, (grad_output, self), (threshold,), (out,))
