"""aclnnHardswish, x·clip(x + 3, 0, 6)/6, also in place, and its gradients, which differ at ±3."""

from __future__ import annotations

from aclnn.core.checks import WITH_BFLOAT16, WITHOUT_BFLOAT16, dtype_in, floating, limited_dims, same_dtype, same_shape
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, fitted, where
from aclnn.typing import Array, ArrayLike


@fitted()
def hardswish_forward(x: Real) -> Real:
    """0 up to -3, x from 3 on, x·(x + 3)/6 in between; NaN stays NaN."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, x, x * (x + 3.0) / 6.0))


@fitted()
def hardswish_derivative(x: Real) -> Real:
    """0 below -3, 1 above 3, x/3 + 1/2 from -3 to 3 inclusive; NaN stays NaN."""
    # (x + 1.5)/3 is exact near the zero at -1.5, where x/3 + 0.5 cancels.
    return where(x < -3.0, 0.0, where(x > 3.0, 1.0, (x + 1.5) / 3.0))


@fitted()
def hardswish_v2_derivative(x: Real) -> Real:
    """0 up to -3, 1 from 3 on, x/3 + 1/2 in between; NaN stays NaN."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, (x + 1.5) / 3.0))


hardswish_gradient = Gradient(hardswish_derivative)
hardswish_v2_gradient = Gradient(hardswish_v2_derivative)


def _work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(hardswish_gradient, ("gradOutput", "self"), ("out",))


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}

HARDSWISH = Operator(
    name="hardswish",
    function="aclnnHardswish",
    summary="Hardswish: 0 below -3, x (x + 3) / 6 up to 3, x above.",
    formula="out = 0 if x <= -3, x if x >= 3, else x * (x + 3) / 6",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(present("self", "out"), dtype_in(floating, "self", "out"), same_shape("out", "self")),
    work=lambda call: None if call["self"].size == 0 else Elementwise(hardswish_forward, ("self",), ("out",)),
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_HARDSWISH = in_place(
    HARDSWISH,
    (present("self"), dtype_in(floating, "self")),
    # An output, although the C interface declares an input: an operator without inputs works in place.
    Parameter("self", "self", Kind.OUTPUT, "x, replaced by the result", c_type="const aclTensor *"),
)

HARDSWISH_BACKWARD = Operator(
    name="hardswish_backward",
    function="aclnnHardswishBackward",
    summary="Gradient of Hardswish with respect to its input.",
    formula="out = gradOutput * (0 if x < -3, x / 3 + 0.5 if -3 <= x <= 3, 1 if x > 3)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("out", "out", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "out"),
        dtype_in(floating, "self", "gradOutput"),
        same_dtype("gradOutput", "self"),
        same_dtype("out", "self"),
        limited_dims("gradOutput", "self"),
        same_shape("gradOutput", "self"),
        same_shape("out", "self"),
    ),
    work=_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
    stream_type="const aclrtStream ",
)


HARDSWISH_BACKWARD_V2 = Operator(
    name="hardswish_backward_v2",
    function="aclnnHardswishBackwardV2",
    summary="Gradient of Hardswish with respect to its input, 0 and 1 at -3 and 3.",
    formula="out = gradOutput * (0 if x <= -3, x / 3 + 0.5 if -3 < x < 3, 1 if x >= 3)",
    parameters=HARDSWISH_BACKWARD.parameters,
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "out"),
        dtype_in(floating, "gradOutput", "self"),
        same_dtype("gradOutput", "self"),
        same_dtype("out", "self"),
        limited_dims("gradOutput", "self"),
        same_shape("gradOutput", "self"),
        same_shape("out", "self"),
    ),
    work=lambda call: (
        None if call["self"].size == 0 else Elementwise(hardswish_v2_gradient, ("gradOutput", "self"), ("out",))
    ),
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)


def hardswish(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Hardswish: 0 for x <= -3, x for x >= 3, x·(x + 3)/6 in between.

    Args:
        self: x; float32, float16 or bfloat16, any number of dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape, any of the three data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardswish rejects, with its status code.
    """
    return arrays.call(HARDSWISH, (self,), (), (out,))


def inplace_hardswish(self: ArrayLike) -> Array:
    """Hardswish written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``hardswish``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceHardswish rejects, with its status code.
    """
    return arrays.call(INPLACE_HARDSWISH, (), (), (self,))


def hardswish_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of Hardswish: dy times 0 for x < -3, 1 for x > 3, x/3 + 1/2 from -3 to 3 inclusive.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardswishBackward rejects, with its status code.
    """
    return arrays.call(HARDSWISH_BACKWARD, (grad_output, self), (), (out,))


def hardswish_backward_v2(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of Hardswish: dy times 0 for x <= -3, 1 for x >= 3, x/3 + 1/2 in between.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardswishBackwardV2 rejects, with its status code.
    """
    return arrays.call(HARDSWISH_BACKWARD_V2, (grad_output, self), (), (out,))
