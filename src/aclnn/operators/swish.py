"""aclnnSwish, x·sigmoid(beta·x), and aclnnSwishBackward, its gradient."""

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
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, exp, fitted, where
from aclnn.operators.silu import silu_derivative, silu_forward, silu_gradient
from aclnn.typing import Array, ArrayLike, Number


def swish_forward(x: Real, beta: Real) -> Real:
    """x / (1 + e^(-beta·x)), x / 2 for a beta of 0; NaN where the exponential and x are infinite."""
    return where(beta == 0.0, 0.5 * x, x / (1.0 + exp(-(beta * x))))


def swish_derivative(x: Real, beta: Real) -> Real:
    """SiLU's derivative at beta·x; NaN at ±inf."""
    return silu_derivative(beta * x)


swish_gradient = Gradient(swish_derivative)

QUICK = float32(1.702)
"""The beta for which Swish approximates GELU, as passed to kernels."""


@fitted(symmetry="x+f")
def quick_swish_forward(x: Real) -> Real:
    """Swish with a beta of 1.702; NaN at -inf."""
    return x / (1.0 + exp(-QUICK * x))


@fitted(symmetry="1-f")
def quick_swish_derivative(x: Real) -> Real:
    """Swish's derivative with a beta of 1.702; NaN at ±inf."""
    return silu_derivative(QUICK * x)


quick_swish_gradient = Gradient(quick_swish_derivative)

#: Values of beta with fitted versions in float32.
_FITTED = {1.0: (silu_forward, silu_gradient), QUICK: (quick_swish_forward, quick_swish_gradient)}


def _beta(call: Call) -> float:
    beta = call["betaOptional"]
    return 1.0 if beta is None else float(beta.rounded(DataType.FLOAT))


def _forward_work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    beta = _beta(call)
    if beta in _FITTED:
        return Elementwise(_FITTED[beta][0], ("self",), ("out",))
    return Elementwise(swish_forward, ("self",), ("out",), (beta,))


def _work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    beta = _beta(call)
    if beta in _FITTED:
        return Elementwise(_FITTED[beta][1], ("gradOutput", "self"), ("gradInput",))
    return Elementwise(swish_gradient, ("gradOutput", "self"), ("gradInput",), (beta,))


_BETA = Parameter("betaOptional", "beta", Kind.SCALAR, "factor of x in the exponent; 1 if null", optional=True)
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16
)

SWISH = Operator(
    name="swish",
    function="aclnnSwish",
    summary="Swish: x times the logistic function of beta x.",
    formula="out = x / (1 + exp(-beta * x))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), _BETA, Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(floating, "self", "out"),
        same_dtype("out", "self"),
        real("betaOptional"),
        limited_dims("self", "out"),
        same_shape("self", "out"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

SWISH_BACKWARD = Operator(
    name="swish_backward",
    function="aclnnSwishBackward",
    summary="Gradient of Swish with respect to its input.",
    formula="dx = dy * s * (1 + beta * x * (1 - s)),  s = 1 / (1 + exp(-beta * x))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        _BETA,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "gradInput"),
        dtype_in(floating, "gradOutput", "self"),
        real("betaOptional"),
        same_dtype("gradOutput", "gradInput"),
        same_dtype("self", "gradInput"),
        limited_dims("gradOutput", "self", "gradInput"),
        same_shape("gradOutput", "gradInput"),
        same_shape("self", "gradInput"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def swish(self: ArrayLike, beta: Number = 1.0, out: ArrayLike | None = None) -> Array:
    """Swish: ``x / (1 + e^(-beta·x))``.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        beta: a real number of any value, rounded to float32; None for 1.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSwish rejects, with its status code.
    """
    return arrays.call(SWISH, (self,), (beta,), (out,))


def swish_backward(grad_output: ArrayLike, self: ArrayLike, beta: Number = 1.0, out: ArrayLike | None = None) -> Array:
    """Gradient of Swish: ``dx = dy·s·(1 + beta·x·(1 - s))`` with ``s = 1 / (1 + e^(-beta·x))``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type.
        beta: a real number of any value, rounded to float32; None for 1.
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSwishBackward rejects, with its status code.
    """
    return arrays.call(SWISH_BACKWARD, (grad_output, self), (beta,), (out,))
