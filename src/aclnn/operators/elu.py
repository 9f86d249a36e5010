"""aclnnElu, scale·x above 0 and alpha·scale·(e^(inputScale·x) - 1) below, also in place, and aclnnEluBackward."""

from __future__ import annotations

import math

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    castable_from,
    dtype_in,
    floating,
    limited_dims,
    only_if,
    real,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Check, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, exp, expm1, fitted, minimum, where
from aclnn.typing import Array, ArrayLike, Number


def elu_forward(x: Real, alpha: Real, scale: Real, input_scale: Real) -> Real:
    """scale·x above 0, else alpha·scale·(e^(input_scale·x) - 1)."""
    z, factor = input_scale * x, alpha * scale
    # As h·(h + 2) with h = e^(z/2) - 1: an overflow of e^z alone must not spoil the product, such as one with 0.
    h = expm1(minimum(z, 1400.0) * 0.5)
    return where(x > 0.0, scale * x, factor * h * (h + 2.0))


@fitted(symmetry="linear")
def unit_elu_forward(x: Real) -> Real:
    """ELU with alpha, scale and input_scale of 1: x above 0, else e^x - 1."""
    return where(x > 0.0, x, expm1(x))


def elu_limit(x: Real, alpha: Real, scale: Real) -> Real:
    """Reading of the document's formula where alpha or input_scale is not finite; NaN stays NaN."""
    return scale * where(x > 0.0, x, where(x <= 0.0, -alpha, x))


def elu_derivative(x: Real, alpha: Real, scale: Real, input_scale: Real) -> Real:
    """Return scale above 0, else alpha·scale·input_scale·e^(input_scale·x)."""
    # e^700 with any factor exceeds float32 already; infinity times 0 would be NaN.
    return where(x > 0.0, scale, alpha * scale * input_scale * exp(minimum(input_scale * x, 700.0)))


def elu_derivative_of_result(y: Real, alpha: Real, scale: Real, input_scale: Real) -> Real:
    """Return the derivative as a function of the value y of ELU."""
    return where(y > 0.0, scale, input_scale * (y + alpha * scale))


elu_gradient = Gradient(elu_derivative)
elu_gradient_of_result = Gradient(elu_derivative_of_result)


def _numbers(call: Call, dtype: DataType) -> tuple[float, float, float]:
    """Return the scalars, rounded to float32; for DOUBLE to float64."""
    wide = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    alpha, scale, input_scale = (call[name].rounded(wide) for name in ("alpha", "scale", "inputScale"))
    return alpha, scale, input_scale


def _forward_work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    alpha, scale, input_scale = _numbers(call, call["self"].dtype)
    if alpha == scale == input_scale == 1.0:
        return Elementwise(unit_elu_forward, ("self",), ("out",))
    if math.isfinite(alpha) and math.isfinite(input_scale):
        return Elementwise(elu_forward, ("self",), ("out",), (alpha, scale, input_scale))
    return Elementwise(elu_limit, ("self",), ("out",), (alpha, scale))


def _backward_work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0:
        return None
    gradient = elu_gradient_of_result if call["isResult"] else elu_gradient
    return Elementwise(gradient, ("gradOutput", "selfOrResult"), ("gradInput",), _numbers(call, DataType.FLOAT))


def _not_negative(call: Call) -> str | None:
    alpha = call["alpha"].rounded(DataType.FLOAT)
    return f"alpha: expected a number of 0 or more with a result, got {alpha}" if alpha < 0 else None


_SCALARS = (
    Parameter("alpha", "alpha", Kind.SCALAR, "factor of what is below 0"),
    Parameter("scale", "scale", Kind.SCALAR, "factor of the result"),
    Parameter("inputScale", "input_scale", Kind.SCALAR, "factor of x in the exponent"),
)
_BACKWARD_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16
)
_SUPPORT = {product: dtypes | {DataType.DOUBLE} for product, dtypes in _BACKWARD_SUPPORT.items()}
_TAKEN = where_supported(WITH_BFLOAT16 | {DataType.DOUBLE})


def _result_holds(name: str, out: str) -> Check:
    return castable_from(lambda call: call[name].dtype, out)


ELU = Operator(
    name="elu",
    function="aclnnElu",
    summary="Exponential linear unit.",
    formula="out = scale * (x if x > 0 else alpha * (exp(inputScale * x) - 1))",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        *_SCALARS,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "alpha", "scale", "inputScale", "out"),
        dtype_in(_TAKEN, "self"),
        real("scale", "alpha", "inputScale"),
        _result_holds("self", "out"),
        same_shape("out", "self"),
        limited_dims("self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_ELU = in_place(
    ELU,
    (
        present("selfRef", "alpha", "scale", "inputScale"),
        dtype_in(_TAKEN, "selfRef"),
        real("scale", "alpha", "inputScale"),
        limited_dims("selfRef"),
    ),
)

ELU_BACKWARD = Operator(
    name="elu_backward",
    function="aclnnEluBackward",
    summary="Gradient of the exponential linear unit, by its argument or by its result.",
    formula="dx = dy * (scale if v > 0, else inputScale * (v + alpha * scale) if isResult, "
    "else inputScale * alpha * scale * exp(inputScale * v))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        *_SCALARS,
        Parameter("isResult", "is_result", Kind.BOOL, "whether v is the forward result"),
        Parameter("selfOrResult", "self_or_result", Kind.INPUT, "v, the forward input or result"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_BACKWARD_SUPPORT,
    checks=(
        present("gradOutput", "alpha", "scale", "inputScale", "selfOrResult", "gradInput"),
        same_dtype("selfOrResult", "gradOutput"),
        dtype_in(floating, "gradOutput"),
        real("alpha", "scale", "inputScale"),
        _result_holds("gradOutput", "gradInput"),
        same_shape("selfOrResult", "gradOutput"),
        same_shape("gradInput", "gradOutput"),
        limited_dims("gradOutput"),
        only_if(rule("not negative: alpha", _not_negative), "if isResult is true", lambda call: bool(call["isResult"])),
    ),
    work=_backward_work,
    infer=lambda call: {"gradInput": (call["gradOutput"].dtype, call["gradOutput"].shape)},
)


def elu(
    self: ArrayLike, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0, out: ArrayLike | None = None
) -> Array:
    """ELU: ``scale·x`` for x > 0, ``alpha·scale·(e^(input_scale·x) - 1)`` otherwise.

    Args:
        self: x; float32, float16, bfloat16 or float64, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        alpha: a real number; rounded to float32 (unless x is float64), as the two others.
        scale: likewise.
        input_scale: likewise. If it or alpha is not finite, the result is ``-alpha·scale`` for every x <= 0.
        out: where to write the result, same shape, any of the four data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnElu rejects, with its status code.
    """
    return arrays.call(ELU, (self,), (alpha, scale, input_scale), (out,))


def inplace_elu(self: ArrayLike, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0) -> Array:
    """ELU written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``elu``.
        alpha: as for ``elu``.
        scale: likewise.
        input_scale: likewise.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceElu rejects, with its status code.
    """
    return arrays.call(INPLACE_ELU, (), (alpha, scale, input_scale), (self,))


def elu_backward(
    grad_output: ArrayLike,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: ArrayLike,
    out: ArrayLike | None = None,
) -> Array:
    """Gradient of ELU: dy times scale for v > 0, else ``input_scale·alpha·scale·e^(input_scale·v)``.

    With ``is_result`` v is the forward result, and the slope ``input_scale·(v + alpha·scale)`` for v <= 0.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        alpha: a real number, not negative with ``is_result``; rounded to float32, as the two others.
        scale: likewise.
        input_scale: likewise.
        is_result: whether v is the forward result instead of the forward input.
        self_or_result: v; same shape and data type as dy.
        out: where to write dx, same shape, one of the three data types or float64; by default a
            new array of dy's type.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnEluBackward rejects, with its status code.
    """
    attributes = (alpha, scale, input_scale, is_result)
    return arrays.call(ELU_BACKWARD, (grad_output, self_or_result), attributes, (out,))
