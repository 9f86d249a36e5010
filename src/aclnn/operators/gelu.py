"""aclnnGelu and aclnnGeluV2, exact (erf) or by tanh, and their gradients: aclnnGeluBackward, aclnnGeluBackwardV2."""

from __future__ import annotations

import math
from typing import Literal

from aclnn.core.checks import (
    FLOATING,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    floating,
    limited_dims,
    listing,
    one_of,
    promotable,
    promoted_dtype,
    public_format,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import promote
from aclnn.execution import arrays
from aclnn.formula import PI, Gradient, Real, absolute, decimal, erfc, exp, fitted, sqrt, where
from aclnn.typing import Array, ArrayLike

_INV_SQRT_2 = sqrt(decimal("0.5"))
_INV_SQRT_2PI = 1.0 / sqrt(2.0 * PI)
SQRT_2_OVER_PI = sqrt(2.0 / PI)
CUBIC = decimal("0.044715")


@fitted(symmetry="x+f")
def gelu_erf_forward(x: Real) -> Real:
    """x·Phi(x), with the standard normal distribution function; NaN at -inf."""
    # erfc keeps the digits of the left tail, which cancel in 1 + erf.
    return 0.5 * x * erfc(-x * _INV_SQRT_2)


@fitted(symmetry="x+f")
def gelu_tanh_forward(x: Real) -> Real:
    """x·(1 + tanh u)/2 = x / (1 + e^(-2u)) with u = sqrt(2/pi)·(x + 0.044715·x³); NaN at -inf."""
    return x / (1.0 + exp(-2.0 * SQRT_2_OVER_PI * (x + CUBIC * x * x * x)))


@fitted(symmetry="1-f")
def gelu_erf_derivative(x: Real) -> Real:
    """Phi(x) + x·phi(x), with the standard normal distribution and density; NaN at ±inf."""
    z = x * _INV_SQRT_2
    derivative = 0.5 * erfc(-z) + x * (_INV_SQRT_2PI * exp(-(z * z)))
    # Below -37.5 (1e-300) only the sign is left, which a sum of two zeros would lose.
    return where((x < -37.5) & (x > -math.inf), -0.0, derivative)


@fitted(symmetry="1-f")
def gelu_tanh_derivative(x: Real) -> Real:
    """(1 + tanh u)/2 + x·(1 - tanh² u)·u'/2 with u = sqrt(2/pi)·(x + 0.044715·x³); 0 at -inf, 1 at inf."""
    # With p = e^(-2u): (1 + tanh u)/2 = 1/(1 + p) and (1 - tanh² u)/4 = p/(1 + p)², which do not cancel in the tail.
    u = SQRT_2_OVER_PI * (x + CUBIC * x * x * x)
    e = exp(-2.0 * absolute(u))
    t = 1.0 / (1.0 + e)
    bend = 2.0 * x * t * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x)
    derivative = where(u > 0.0, t + e * t * bend, e * t * (1.0 + bend))
    # Beyond 100 the derivative is 0 or 1 to the last bit, and x³ may overflow.
    return where(absolute(x) > 100.0, where(x > 0.0, 1.0, -0.0), derivative)


gelu_erf_gradient = Gradient(gelu_erf_derivative)
gelu_tanh_gradient = Gradient(gelu_tanh_derivative)
_GRADIENTS = {"none": gelu_erf_gradient, "tanh": gelu_tanh_gradient}


def _promoted(call: Call) -> DataType | None:
    return promote(call["gradOutput"].dtype, call["self"].dtype)


def _work(call: Call) -> Elementwise | None:
    if call["self"].size == 0 or call["gradOutput"].size == 0:
        return None
    return Elementwise(_GRADIENTS[call["approximate"]], ("gradOutput", "self"), ("gradInput",))


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    dy, x = call["gradOutput"], call["self"]
    dtype, shape = _promoted(call), broadcast_shape(dy.shape, x.shape)
    return {"gradInput": (dy.dtype if dtype is None else dtype, dy.shape if shape is None else shape)}


#: GeluV2's ``approximate``; any other number means erf.
TANH = 1

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16
)


def _forward_v2_work(call: Call) -> Elementwise | None:
    formula = gelu_tanh_forward if call["approximate"] == TANH else gelu_erf_forward
    return None if call["x"].size == 0 else Elementwise(formula, ("x",), ("y",))


GELU = Operator(
    name="gelu",
    function="aclnnGelu",
    summary="GELU, approximated by tanh.",
    formula="out = 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(floating, "self"),
        same_dtype("out", "self"),
        public_format("self", "out"),
        limited_dims("self"),
        same_shape("out", "self"),
    ),
    work=lambda call: None if call["self"].size == 0 else Elementwise(gelu_tanh_forward, ("self",), ("out",)),
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

GELU_V2 = Operator(
    name="gelu_v2",
    function="aclnnGeluV2",
    summary="GELU, exact or approximated by tanh.",
    formula="y = x * Phi(x);  approximate = 1: y = 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))",
    parameters=(
        Parameter("x", "x", Kind.INPUT, "x"),
        Parameter("approximate", "approximate", Kind.INT64, "1 for tanh, any other number for erf"),
        Parameter("y", "y", Kind.OUTPUT, "the result"),
    ),
    support=_SUPPORT,
    checks=(present("x", "y"), same_dtype("y", "x"), dtype_in(floating, "x"), same_shape("y", "x")),
    work=_forward_v2_work,
    infer=lambda call: {"y": (call["x"].dtype, call["x"].shape)},
)


def _promoted_floating(call: Call) -> str | None:
    allowed = floating(call.product)
    dy, x = call["gradOutput"].dtype, call["self"].dtype
    bfloat16 = DataType.BF16 in (dy, x) and DataType.BF16 not in allowed
    if _promoted(call) in allowed and not bfloat16:
        return None
    names = listing(dtype.c_name for dtype in FLOATING if dtype in allowed)
    return (
        f"self: expected a data type that promotes with {dy.c_name} (that of gradOutput) to {names} "
        f"on {call.product.title}, got {x.c_name}"
    )


def _work_by_tanh(call: Call) -> Elementwise | None:
    if call["self"].size == 0 or call["gradOutput"].size == 0:
        return None
    return Elementwise(gelu_tanh_gradient, ("gradOutput", "self"), ("gradInput",))


GELU_BACKWARD = Operator(
    name="gelu_backward",
    function="aclnnGeluBackward",
    summary="Gradient of GELU approximated by tanh, with broadcasting and type promotion.",
    formula="dx = dy * (0.5 * (1 + tanh(u)) + 0.5 * x * (1 - tanh(u)^2) * u'),  u = sqrt(2/pi) * (x + 0.044715 * x^3)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "gradInput"),
        promotable("gradOutput", "self"),
        # One of the two may be an integer tensor, as in the document's sample.
        rule("promoted floating data type: self", _promoted_floating),
        dtype_in(floating, "gradInput"),
        limited_dims("gradOutput", "self"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("gradInput", "gradOutput", "self"),
    ),
    work=_work_by_tanh,
    infer=_infer,
    stream_type="const aclrtStream ",
)

GELU_BACKWARD_V2 = Operator(
    name="gelu_backward_v2",
    function="aclnnGeluBackwardV2",
    summary="Gradient of GELU with respect to its input, with broadcasting and type promotion.",
    formula=(
        "none: dx = dy * (Phi(x) + x * phi(x));  "
        "tanh: dx = dy * (0.5 * (1 + tanh(u)) + 0.5 * x * (1 - tanh(u)^2) * u'),  u = sqrt(2/pi) * (x + 0.044715 * x^3)"
    ),
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("approximate", "approximate", Kind.STRING, '"none" (erf) or "tanh"'),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "gradInput", "approximate"),
        promotable("gradOutput", "self"),
        # The document's list for both inputs; the vendor's code would also promote an integer input.
        dtype_in(floating, "gradOutput", "self"),
        promoted_dtype("gradInput", "gradOutput", "self"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("gradInput", "gradOutput", "self"),
        one_of("approximate", *_GRADIENTS),
    ),
    work=_work,
    infer=_infer,
    stream_type="const aclrtStream ",
)


def gelu(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """GELU approximated by tanh: ``x·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³)))/2``.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGelu rejects, with its status code.
    """
    return arrays.call(GELU, (self,), (), (out,))


def gelu_v2(x: ArrayLike, approximate: int = 0, out: ArrayLike | None = None) -> Array:
    """GELU: ``x·Phi(x)``, or its tanh approximation.

    Args:
        x: float32, float16 or bfloat16, any number of dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        approximate: 1 for tanh, any other number for erf.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGeluV2 rejects, with its status code.
    """
    return arrays.call(GELU_V2, (x,), (approximate,), (out,))


def gelu_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of GELU approximated by tanh: ``dx = dy·d/dx(x·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³)))/2)``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, or integers with a floating ``self``; at most 8 dimensions. A
            NumPy array, or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides. Broadcasts
            with ``self``.
        self: x, the forward input. Two different data types promote.
        out: where to write dx, of the broadcast shape and any of the three data types; a new NumPy array of the
            promoted one by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGeluBackward rejects, with its status code.
    """
    return arrays.call(GELU_BACKWARD, (grad_output, self), (), (out,))


def gelu_backward_v2(
    grad_output: ArrayLike, self: ArrayLike, approximate: Literal["none", "tanh"] = "none", out: ArrayLike | None = None
) -> Array:
    """Gradient of GELU: ``dx = dy·(Phi(x) + x·phi(x))``, or that of its tanh approximation.

    Args:
        grad_output: dy; float32, float16 or bfloat16, any number of dimensions. A NumPy array, or anything on the CPU
            with ``__dlpack__`` or ``__array_interface__``; any strides. Broadcasts with ``self``.
        self: x, the forward input. Two different data types promote to float32.
        approximate: "none" (erf) or "tanh".
        out: where to write dx, of the broadcast shape and the promoted data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGeluBackwardV2 rejects, with its status code.
    """
    return arrays.call(GELU_BACKWARD_V2, (grad_output, self), (approximate,), (out,))
