"""aclnnSigmoid, 1 / (1 + e^(-x)), also in place, and aclnnSigmoidBackward, its gradient by its result."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    holds_promotion,
    limited_dims,
    promoted_and_broadcast,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, absolute, exp, fitted
from aclnn.formula import sigmoid as logistic
from aclnn.typing import Array, ArrayLike


@fitted(symmetry="1-f")
def sigmoid_forward(x: Real) -> Real:
    """1 / (1 + e^(-x))."""
    return logistic(x)


@fitted(symmetry="even")
def sigmoid_derivative(x: Real) -> Real:
    """e / (1 + e)² with e = e^(-abs(x)); 0 at ±inf."""
    e = exp(-absolute(x))  # 1 - sigmoid(x) would cancel
    return e / ((1.0 + e) * (1.0 + e))


@fitted()
def sigmoid_derivative_of_result(y: Real) -> Real:
    """y·(1 - y), for any y."""
    return (1.0 - y) * y


sigmoid_gradient = Gradient(sigmoid_derivative_of_result)


def _forward_work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    integers = call["self"].dtype in _INTEGERS
    return Elementwise(sigmoid_forward, ("self",), ("out",), dtype=DataType.FLOAT if integers else None)


def _work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0 or call["output"].size == 0:
        return None
    return Elementwise(sigmoid_gradient, ("gradOutput", "output"), ("gradInput",))


_INTEGERS = {DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.UINT8, DataType.BOOL}
_REAL = WITH_BFLOAT16 | {DataType.DOUBLE}
_NUMBERS = _REAL | {DataType.COMPLEX64, DataType.COMPLEX128}
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, _REAL) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16 | {DataType.DOUBLE}
)

SIGMOID = Operator(
    name="sigmoid",
    function="aclnnSigmoid",
    summary="The logistic function.",
    formula="out = 1 / (1 + exp(-x))",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x; also integers and truth values"),
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(where_supported(_NUMBERS | _INTEGERS), "self"),
        dtype_in(where_supported(_NUMBERS), "out"),
        same_shape("self", "out"),
        limited_dims("self"),
    ),
    work=_forward_work,
    infer=lambda call: {
        "out": (DataType.FLOAT if call["self"].dtype in _INTEGERS else call["self"].dtype, call["self"].shape)
    },
    stream_type="const aclrtStream ",
)

INPLACE_SIGMOID = in_place(
    SIGMOID, (present("selfRef"), dtype_in(where_supported(_NUMBERS), "selfRef"), limited_dims("selfRef"))
)

SIGMOID_BACKWARD = Operator(
    name="sigmoid_backward",
    function="aclnnSigmoidBackward",
    summary="Gradient of the logistic function by its result, with broadcasting and type promotion.",
    formula="dx = dy * (1 - y) * y",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("output", "output", Kind.INPUT, "y, the forward result"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "output", "gradInput"),
        dtype_in(where_supported(_NUMBERS), "gradOutput", "output", "gradInput"),
        limited_dims("gradOutput", "output"),
        holds_promotion("gradInput", "gradOutput", "output"),
        broadcastable("gradOutput", "output"),
        broadcast_shape_of("gradInput", "gradOutput", "output"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": promoted_and_broadcast(call["gradOutput"], call["output"])},
    stream_type="const aclrtStream ",
)


def sigmoid(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Logistic function: ``1 / (1 + e^(-x))``.

    Args:
        self: x; float32, float16, bfloat16 or float64, integers or truth values, at most 8 dimensions. A NumPy array,
            or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape, any of the four floating data types; by default a new NumPy array of
            x's, float32 for integers and truth values.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSigmoid rejects, with its status code.
    """
    return arrays.call(SIGMOID, (self,), (), (out,))


def inplace_sigmoid(self: ArrayLike) -> Array:
    """Logistic function written back into its argument.

    Args:
        self: x, which the result replaces; a writable array of floating numbers as for ``sigmoid``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceSigmoid rejects, with its status code.
    """
    return arrays.call(INPLACE_SIGMOID, (), (), (self,))


def sigmoid_backward(grad_output: ArrayLike, output: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of the logistic function by its result: ``dx = dy·(1 - y)·y``.

    Args:
        grad_output: dy; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        output: y, the forward result; any of these data types, a shape that broadcasts with dy's.
        out: where to write dx, of the broadcast shape, any of these data types; by default a new NumPy array of the
            type to which dy and y promote.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSigmoidBackward rejects, with its status code.
    """
    return arrays.call(SIGMOID_BACKWARD, (grad_output, output), (), (out,))
