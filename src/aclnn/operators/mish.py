"""aclnnMish, x·tanh(ln(1 + e^x)), also in place, and aclnnMishBackward, its gradient."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    floating,
    limited_dims,
    promoted_and_broadcast,
    same_dtype,
    same_shape,
)
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, exp, fitted, minimum, where
from aclnn.typing import Array, ArrayLike

_STRAIGHT = 30.0
"""From this x on, the hyperbolic tangent is 1 to 25 digits."""


@fitted(symmetry="x*neither")
def mish_forward(x: Real) -> Real:
    """x·q / (q + 2) with q = e^x·(e^x + 2), which is x·tanh(ln(1 + e^x)); NaN at -inf."""
    e = exp(minimum(x, _STRAIGHT))
    q = e * (e + 2.0)
    return x * (q / (q + 2.0))


@fitted(symmetry="neither")
def mish_derivative(x: Real) -> Real:
    """e·(e³ + 4·e² + (6 + 4·x)·e + 4·(1 + x)) / (e² + 2·e + 2)² with e = e^x; NaN at ±inf."""
    # Terms in x that are exact in float64 keep the most digits near the zero.
    e = exp(minimum(x, _STRAIGHT))
    d = e * (e + 2.0) + 2.0
    derivative = e * (((e + 4.0) * e + (6.0 + 4.0 * x)) * e + 4.0 * (1.0 + x)) / (d * d)
    return where(x > _STRAIGHT, 1.0 + (x - x), derivative)


mish_gradient = Gradient(mish_derivative)


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(mish_forward, ("self",), ("out",))


def _work(call: Call) -> Elementwise | None:
    if any(tensor.size == 0 for _, tensor in call.tensors()):
        return None
    return Elementwise(mish_gradient, ("gradOutput", "self"), ("gradInput",))


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}

MISH = Operator(
    name="mish",
    function="aclnnMish",
    summary="Mish: x times the hyperbolic tangent of Softplus.",
    formula="out = x * tanh(ln(1 + exp(x)))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(floating, "self", "out"),
        same_dtype("out", "self"),
        limited_dims("self", "out"),
        same_shape("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_MISH = in_place(MISH, (present("selfRef"), dtype_in(floating, "selfRef"), limited_dims("selfRef")))

MISH_BACKWARD = Operator(
    name="mish_backward",
    function="aclnnMishBackward",
    summary="Gradient of Mish with respect to its input, with broadcasting and type promotion.",
    formula="dx = dy * (t + x * (1 - t^2) * s),  t = tanh(ln(1 + exp(x))),  s = 1 / (1 + exp(-x))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("gradOutput", "self", "gradInput"),
        castable_from(lambda call: call["self"].dtype, "gradInput"),
        dtype_in(floating, "gradOutput", "self", "gradInput"),
        limited_dims("gradOutput", "self", "gradInput"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("gradInput", "gradOutput", "self"),
    ),
    work=_work,
    infer=lambda call: {"gradInput": promoted_and_broadcast(call["gradOutput"], call["self"])},
)


def mish(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Mish: ``x·tanh(ln(1 + e^x))``.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnMish rejects, with its status code.
    """
    return arrays.call(MISH, (self,), (), (out,))


def inplace_mish(self: ArrayLike) -> Array:
    """Mish written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``mish``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceMish rejects, with its status code.
    """
    return arrays.call(INPLACE_MISH, (), (), (self,))


def mish_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of Mish: ``dx = dy·(t + x·(1 - t²)·s)`` with ``t = tanh(ln(1 + e^x))``, ``s = 1 / (1 + e^(-x))``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; any of the three data types, a shape that broadcasts with dy's.
        out: where to write dx, of the broadcast shape, any of the three data types; by default a new NumPy array of the
            type to which dy and x promote.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnMishBackward rejects, with its status code.
    """
    return arrays.call(MISH_BACKWARD, (grad_output, self), (), (out,))
