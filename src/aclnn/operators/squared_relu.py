"""aclnnSquaredRelu, the square of ReLU."""

from __future__ import annotations

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    WITH_BFLOAT16,
    dtype_in,
    floating,
    limited_dims,
    nd_format,
    same_dtype,
    same_shape,
    some_dims,
)
from aclnn.core.operator import Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.execution import arrays
from aclnn.formula import Real, where
from aclnn.typing import Array, ArrayLike


def squared_relu_forward(x: Real) -> Real:
    """x² above 0, else +0; NaN for NaN."""
    return where(x > 0.0, x * x, where(x <= 0.0, 0.0, x))


SQUARED_RELU = Operator(
    name="squared_relu",
    function="aclnnSquaredRelu",
    summary="Square of the rectified linear unit.",
    formula="out = max(0, x)^2",
    parameters=(
        Parameter("input", "input", Kind.INPUT, "x"),
        Parameter("out", "out", Kind.OUTPUT, "the result", c_type="const aclTensor *"),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16),
    checks=(
        present("input", "out"),
        KERNEL_OF_THE_PRODUCT,
        dtype_in(floating, "input"),
        same_dtype("out", "input"),
        nd_format("input", "out"),
        some_dims("input"),
        limited_dims("input"),
        same_shape("out", "input"),
    ),
    work=lambda call: None if call["out"].size == 0 else Elementwise(squared_relu_forward, ("input",), ("out",)),
    infer=lambda call: {"out": (call["input"].dtype, call["input"].shape)},
)


def squared_relu(input: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Square of ReLU: x² for x > 0, otherwise 0.

    Args:
        input: x; float32, float16 or bfloat16, 1 to 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSquaredRelu rejects, with its status code.
    """
    return arrays.call(SQUARED_RELU, (input,), (), (out,))
