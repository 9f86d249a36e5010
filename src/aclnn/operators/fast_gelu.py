"""aclnnFastGelu, x·sigmoid(1.702·x), and aclnnFastGeluBackward, its gradient."""

from __future__ import annotations

from aclnn.core.checks import WITH_BFLOAT16, dtype_in, limited_dims, same_dtype, same_format, same_shape
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, decimal, exp, fitted
from aclnn.typing import Array, ArrayLike

_RISE = decimal("1.702")


@fitted(symmetry="x+f")
def fast_gelu_forward(x: Real) -> Real:
    """x / (1 + e^(-1.702·x)); NaN at -inf."""
    return x / (1.0 + exp(-_RISE * x))


@fitted(symmetry="1-f")
def fast_gelu_derivative(x: Real) -> Real:
    """(s - 1)·(-1.702·x)·s + s with s = 1 / (e^(-1.702·x) + 1), as the document writes it; NaN at ±inf."""
    v = -_RISE * x
    s = 1.0 / (exp(v) + 1.0)
    return ((s - 1.0) * v + 1.0) * s


fast_gelu_gradient = Gradient(fast_gelu_derivative)


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(fast_gelu_forward, ("self",), ("out",))


def _work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(fast_gelu_gradient, ("gradOutput", "self"), ("gradInput",))


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)


def _supported(product: Product) -> frozenset[DataType]:
    """Return the data types that a product supports; none where it has no kernel."""
    return _SUPPORT.get(product, frozenset())


FAST_GELU = Operator(
    name="fast_gelu",
    function="aclnnFastGelu",
    summary="FastGELU: x times the logistic function of 1.702 x.",
    formula="out = x / (1 + exp(-1.702 * x))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        same_dtype("self", "out"),
        dtype_in(_supported, "self"),
        same_shape("out", "self"),
        limited_dims("self"),
        same_format("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

FAST_GELU_BACKWARD = Operator(
    name="fast_gelu_backward",
    function="aclnnFastGeluBackward",
    summary="Gradient of FastGELU with respect to its input.",
    formula="dx = dy * ((s - 1) * (-1.702 * x) + 1) * s,  s = 1 / (exp(-1.702 * x) + 1)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "gradInput"),
        same_dtype("self", "gradOutput"),
        same_dtype("gradInput", "gradOutput"),
        dtype_in(_supported, "gradInput"),
        same_shape("self", "gradOutput"),
        same_shape("gradInput", "gradOutput"),
        limited_dims("self"),
        same_format("gradInput", "self"),
        same_format("gradOutput", "self"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def fast_gelu(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """FastGelu: ``x / (1 + exp(-1.702·x))``.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnFastGelu rejects, with its status code.
    """
    return arrays.call(FAST_GELU, (self,), (), (out,))


def fast_gelu_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of FastGelu: ``dx = dy·((s - 1)·(-1.702·x) + 1)·s`` with ``s = 1 / (exp(-1.702·x) + 1)``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnFastGeluBackward rejects, with its status code.
    """
    return arrays.call(FAST_GELU_BACKWARD, (grad_output, self), (), (out,))
