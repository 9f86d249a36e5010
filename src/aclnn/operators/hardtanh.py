"""aclnnHardtanhBackward: the gradient of min(max, max(min, x))."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dtype_in,
    floating,
    limited_dims,
    real,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, where
from aclnn.typing import Array, ArrayLike, Number


def hardtanh_gradient(dy: Real, x: Real, low: Real, high: Real) -> Real:
    """dy, which is not multiplied, strictly between the bounds, else +0; NaN where x is."""
    return where((x > low) & (x < high), dy, where(x == x, 0.0, x))


def _work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    bounds = tuple(float(call[name].rounded(DataType.FLOAT)) for name in ("min", "max"))
    return Elementwise(hardtanh_gradient, ("gradOutput", "self"), ("out",), bounds)


HARDTANH_BACKWARD = Operator(
    name="hardtanh_backward",
    function="aclnnHardtanhBackward",
    summary="Gradient of the clamp between two bounds with respect to its input.",
    formula="dx = dy if min < x < max else 0",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("min", "min", Kind.SCALAR, "the lower bound"),
        Parameter("max", "max", Kind.SCALAR, "the upper bound"),
        Parameter("out", "out", Kind.OUTPUT, "dx"),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
    | dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        present("self", "gradOutput", "out", "min", "max"),
        dtype_in(floating, "gradOutput", "self", "out"),
        same_dtype("gradOutput", "self"),
        same_dtype("out", "self"),
        real("min", "max"),
        limited_dims("gradOutput", "self"),
        same_shape("gradOutput", "self"),
        same_shape("out", "self"),
    ),
    work=_work,
    infer=lambda call: {"out": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def hardtanh_backward(
    grad_output: ArrayLike, self: ArrayLike, min: Number, max: Number, out: ArrayLike | None = None
) -> Array:
    """Gradient of the clamp between two bounds: dy for min < x < max, otherwise 0.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        min: the lower bound, a real number; rounded to float32.
        max: the upper bound, likewise; dx is 0 everywhere unless it is above ``min``.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardtanhBackward rejects, with its status code.
    """
    return arrays.call(HARDTANH_BACKWARD, (grad_output, self), (min, max), (out,))
