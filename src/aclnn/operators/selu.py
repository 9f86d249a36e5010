"""aclnnSelu, ELU with two fixed constants, also in place, and aclnnSeluBackward, its gradient by its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import WITH_BFLOAT16, WITHOUT_BFLOAT16, dtype_in, same_dtype, same_shape, where_supported
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Library, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, decimal, expm1, fitted, where
from aclnn.typing import Array, ArrayLike

SCALE = decimal("1.0507009873554804934193349852946")
SCALED_ALPHA = SCALE * decimal("1.6732632423543772848170429916717")


@fitted(symmetry="linear")
def selu_forward(x: Real) -> Real:
    """SCALE·x above 0, else SCALED_ALPHA·(e^x - 1)."""
    return where(x > 0.0, SCALE * x, SCALED_ALPHA * expm1(x))


def selu_derivative_of_result(y: Real) -> Real:
    """SCALE above 0, else y + SCALED_ALPHA."""
    return where(y > 0.0, SCALE, y + SCALED_ALPHA)


selu_gradient = Gradient(selu_derivative_of_result)


def _of_integers(x: Any) -> Any:
    """Return the result truncated to integers; int8 wraps."""
    wide = x.astype(np.float64)
    values = np.trunc(np.where(wide > 0, SCALE * wide, SCALED_ALPHA * np.expm1(wide)))
    return values.astype(np.int64).astype(x.dtype) if x.dtype == np.int8 else values


def _integer_gradient(dy: Any, y: Any) -> Any:
    """Round to the nearest integer, ties to even; saturate at the type's range."""
    wide = y.astype(np.float64)
    return np.rint(dy * np.where(wide > 0, SCALE, wide + SCALED_ALPHA))


def _forward_work(call: Call) -> Elementwise | Library | None:
    if call["self"].size == 0:
        return None
    if call["self"].dtype in _INTEGERS:
        return Library(_of_integers, ("self",), ("out",))
    return Elementwise(selu_forward, ("self",), ("out",))


def _work(call: Call) -> Elementwise | Library | None:
    if call["gradOutput"].size == 0:
        return None
    if call["gradOutput"].dtype in _INTEGERS:
        return Library(_integer_gradient, ("gradOutput", "result"), ("gradInput",))
    return Elementwise(selu_gradient, ("gradOutput", "result"), ("gradInput",))


_INTEGERS = frozenset({DataType.INT8, DataType.INT32})
_TAKEN = where_supported(WITH_BFLOAT16 | _INTEGERS)
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16 | _INTEGERS) | {
    Product.ATLAS_TRAINING: WITHOUT_BFLOAT16 | _INTEGERS
}

SELU = Operator(
    name="selu",
    function="aclnnSelu",
    summary="Scaled exponential linear unit.",
    formula="out = 1.0507009873554805 * (x if x > 0 else 1.6732632423543773 * (exp(x) - 1))",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x; also integers, whose results lose their fractions"),
        Parameter("out", "out", Kind.OUTPUT, "the result"),
    ),
    support=_SUPPORT,
    checks=(present("self", "out"), dtype_in(_TAKEN, "self"), same_dtype("out", "self"), same_shape("out", "self")),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_SELU = in_place(SELU, (present("selfRef"), dtype_in(_TAKEN, "selfRef")))

SELU_BACKWARD = Operator(
    name="selu_backward",
    function="aclnnSeluBackward",
    summary="Gradient of the scaled exponential linear unit by its result.",
    formula="dx = dy * (1.0507009873554805 if y > 0 else y + 1.7580993408473769)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output; also integers"),
        Parameter("result", "result", Kind.INPUT, "y, the forward result"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16 | _INTEGERS},
    checks=(
        present("gradOutput", "result", "gradInput"),
        same_dtype("result", "gradOutput"),
        same_dtype("gradInput", "gradOutput"),
        dtype_in(_TAKEN, "gradOutput"),
        same_shape("result", "gradOutput"),
        same_shape("gradInput", "gradOutput"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def selu(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """SELU: 1.0507·x for x > 0, ``1.7581·(e^x - 1)`` else, by constants of 31 digits.

    Args:
        self: x; float32, float16, bfloat16, int8 or int32 (results without their fractions; those of int8 wrap), any
            shape. A NumPy array, or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSelu rejects, with its status code.
    """
    return arrays.call(SELU, (self,), (), (out,))


def inplace_selu(self: ArrayLike) -> Array:
    """SELU written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``selu``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceSelu rejects, with its status code.
    """
    return arrays.call(INPLACE_SELU, (), (), (self,))


def selu_backward(grad_output: ArrayLike, result: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of SELU: dy times 1.0507 where the result y is above 0, times ``y + 1.7581`` otherwise.

    Args:
        grad_output: dy; float32, float16, bfloat16, int8 or int32 (rounded to the nearest integer), any shape. A NumPy
            array, or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        result: y, what ``selu`` gave; same shape and data type.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSeluBackward rejects, with its status code.
    """
    return arrays.call(SELU_BACKWARD, (grad_output, result), (), (out,))
