"""aclnnLogSigmoid and aclnnLogSigmoidForward, -ln(1 + e^(-x)), and aclnnLogSigmoidBackward, their gradient."""

from __future__ import annotations

import math

from aclnn.core.checks import WITH_BFLOAT16, WITHOUT_BFLOAT16, dtype_in, floating, same_dtype, same_shape
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, exp, fitted, log1pexp, where
from aclnn.operators.sigmoid import sigmoid_forward
from aclnn.typing import Array, ArrayLike


@fitted(symmetry="x+f")
def softplus_of_one(x: Real) -> Real:
    """Softplus with a beta of 1: ln(1 + e^x)."""
    return log1pexp(x)


@fitted(mirrored=softplus_of_one, negated=True)
def log_sigmoid_formula(x: Real) -> Real:
    """-ln(1 + e^(-x)); +0 at inf."""
    return where(x == math.inf, 0.0, -log1pexp(-x))


@fitted(mirrored=sigmoid_forward)
def log_sigmoid_derivative(x: Real) -> Real:
    """1 / (1 + e^x)."""
    return 1.0 / (1.0 + exp(x))


log_sigmoid_gradient = Gradient(log_sigmoid_derivative)


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(log_sigmoid_formula, ("self",), ("out",))


def _work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(log_sigmoid_gradient, ("gradOutput", "self"), ("gradInput",))


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16
)
_UNUSED = "reserved; neither read nor written"
_CHECKS = (
    present("self", "out"),
    dtype_in(floating, "self", "out"),
    same_dtype("out", "self"),
    same_shape("out", "self"),
)

LOG_SIGMOID = Operator(
    name="log_sigmoid",
    function="aclnnLogSigmoid",
    summary="Logarithm of the logistic function.",
    formula="out = min(x, 0) - ln(1 + exp(-|x|))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=_SUPPORT,
    checks=_CHECKS,
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
    in_header_of="logsigmoid",
)

LOG_SIGMOID_FORWARD = Operator(
    name="log_sigmoid_forward",
    function="aclnnLogSigmoidForward",
    summary="Logarithm of the logistic function, with a buffer that is not used.",
    formula=LOG_SIGMOID.formula,
    parameters=(
        *LOG_SIGMOID.parameters,
        Parameter("buffer", "buffer", Kind.INPUT, _UNUSED, optional=True, c_type="aclTensor *"),
    ),
    support=_SUPPORT,
    checks=_CHECKS,
    work=_forward_work,
    infer=LOG_SIGMOID.infer,
    in_header_of="logsigmoid",
)

LOG_SIGMOID_BACKWARD = Operator(
    name="log_sigmoid_backward",
    function="aclnnLogSigmoidBackward",
    summary="Gradient of the logarithm of the logistic function with respect to its input.",
    formula="dx = dy / (1 + exp(x))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("buffer", "buffer", Kind.INPUT, _UNUSED),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "buffer", "gradInput"),
        dtype_in(floating, "gradOutput", "self"),
        same_dtype("gradOutput", "gradInput"),
        same_dtype("self", "gradInput"),
        same_shape("gradOutput", "gradInput"),
        same_shape("self", "gradInput"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
    in_header_of="logsigmoid_backward",
)


def log_sigmoid(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Logarithm of the logistic function: ``min(x, 0) - ln(1 + e^(-|x|))``.

    Args:
        self: x; float32, float16 or bfloat16, any shape. A NumPy array, or anything on the CPU with ``__dlpack__`` or
            ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLogSigmoid rejects, with its status code.
    """
    return arrays.call(LOG_SIGMOID, (self,), (), (out,))


def log_sigmoid_forward(self: ArrayLike, buffer: ArrayLike | None = None, out: ArrayLike | None = None) -> Array:
    """Logarithm of the logistic function, as ``log_sigmoid``.

    Args:
        self: x, as for ``log_sigmoid``.
        buffer: an array of any shape and data type, which is neither read nor written, or None.
        out: as for ``log_sigmoid``.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLogSigmoidForward rejects, with its status code.
    """
    return arrays.call(LOG_SIGMOID_FORWARD, (self, buffer), (), (out,))


def log_sigmoid_backward(
    grad_output: ArrayLike, self: ArrayLike, buffer: ArrayLike, out: ArrayLike | None = None
) -> Array:
    """Gradient of ``log_sigmoid``: ``dx = dy / (1 + e^x)``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, any shape. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        buffer: an array of any shape and data type, which is not read.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnLogSigmoidBackward rejects, with its status code.
    """
    return arrays.call(LOG_SIGMOID_BACKWARD, (grad_output, self, buffer), (), (out,))
