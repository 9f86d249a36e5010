"""aclnnSoftshrink and aclnnShrink, x closer to 0 by a number, and aclnnSoftshrinkBackward, the gradient."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    floating,
    limited_dims,
    promoted_and_broadcast,
    promoted_dtype,
    rule,
    same_format,
    same_shape,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, where
from aclnn.typing import Array, ArrayLike, Number


def shrink_forward(x: Real, lambd: Real, bias: Real) -> Real:
    """Return x less bias above lambd, x plus bias below -lambd, else +0; NaN for NaN."""
    return where(x > lambd, x - bias, where(x < -lambd, x + bias, where(x == x, 0.0, x)))


def softshrink_gradient(dy: Real, x: Real, lambd: Real) -> Real:
    """dy, which is not multiplied, below -lambd and above lambd, else +0; NaN where x is."""
    return where(absolute(x) > lambd, dy, where(x == x, 0.0, x))


def _number(call: Call, name: str) -> float:
    return float(call[name].rounded(DataType.FLOAT))


def _forward_work(call: Call, bias: str) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    return Elementwise(shrink_forward, ("self",), ("out",), (_number(call, "lambd"), _number(call, bias)))


def _work(call: Call) -> Elementwise | None:
    if call["gradInput"].size == 0:
        return None
    return Elementwise(softshrink_gradient, ("gradOutput", "self"), ("gradInput",), (_number(call, "lambd"),))


def _negative(call: Call) -> str | None:
    lambd = _number(call, "lambd")
    return f"lambd: expected a number of 0 or more, got {lambd}" if lambd < 0 else None


_NOT_NEGATIVE = rule("not negative: lambd", _negative)
_X = Parameter("self", "self", Kind.INPUT, "x")
_LAMBD = Parameter("lambd", "lambd", Kind.SCALAR, "the largest size that becomes 0; not negative")
_OUT = Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ")
_OLDER = dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16)
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | _OLDER

SOFTSHRINK = Operator(
    name="softshrink",
    function="aclnnSoftshrink",
    summary="Elements close to 0 become 0; others move towards 0 by lambd.",
    formula="out = x - lambd if x > lambd, x + lambd if x < -lambd, else 0",
    parameters=(_X, _LAMBD, _OUT),
    support=_SUPPORT,
    checks=(
        present("self", "lambd", "out"),
        dtype_in(floating, "self", "out"),
        same_shape("out", "self"),
        limited_dims("self"),
        _NOT_NEGATIVE,
    ),
    work=lambda call: _forward_work(call, "lambd"),
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

SHRINK = Operator(
    name="shrink",
    function="aclnnShrink",
    summary="Elements close to 0 become 0; others move towards 0 by bias.",
    formula="out = x - bias if x > lambd, x + bias if x < -lambd, else 0",
    parameters=(_X, _LAMBD, Parameter("bias", "bias", Kind.SCALAR, "how much closer to 0 the rest comes"), _OUT),
    support=dict.fromkeys((*A2_CLASS, *CLASS_950, Product.ATLAS_INFERENCE), WITHOUT_BFLOAT16),
    checks=(
        present("self", "lambd", "bias", "out"),
        dtype_in(WITHOUT_BFLOAT16, "self", "out"),
        same_shape("out", "self"),
        _NOT_NEGATIVE,
        same_format("out", "self"),
    ),
    work=lambda call: _forward_work(call, "bias"),
    infer=SOFTSHRINK.infer,
)

SOFTSHRINK_BACKWARD = Operator(
    name="softshrink_backward",
    function="aclnnSoftshrinkBackward",
    summary="Gradient of Softshrink with respect to its input, with broadcasting and type promotion.",
    formula="dx = dy if |x| > lambd else 0",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        _LAMBD,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "lambd", "gradInput"),
        dtype_in(floating, "gradOutput", "self", "gradInput"),
        promoted_dtype("gradInput", "gradOutput", "self"),
        limited_dims("gradOutput", "self"),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("gradInput", "gradOutput", "self"),
        _NOT_NEGATIVE,
    ),
    work=_work,
    infer=lambda call: {"gradInput": promoted_and_broadcast(call["gradOutput"], call["self"])},
    stream_type="const aclrtStream ",
)


def softshrink(self: ArrayLike, lambd: Number = 0.5, out: ArrayLike | None = None) -> Array:
    """Softshrink: ``x - lambd`` for x > lambd, ``x + lambd`` for x < -lambd, otherwise 0.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        lambd: a number of 0 or more; rounded to float32.
        out: where to write the result, same shape, any of the three data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSoftshrink rejects, with its status code.
    """
    return arrays.call(SOFTSHRINK, (self,), (lambd,), (out,))


def shrink(self: ArrayLike, lambd: Number = 0.5, bias: Number = 0.0, out: ArrayLike | None = None) -> Array:
    """Shrink: ``x - bias`` for x > lambd, ``x + bias`` for x < -lambd, otherwise 0.

    Args:
        self: x; float32 or float16, any shape. A NumPy array, or anything on the CPU with ``__dlpack__`` or
            ``__array_interface__``; any strides.
        lambd: a number of 0 or more; rounded to float32.
        bias: a number; likewise.
        out: where to write the result, same shape, either data type; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnShrink rejects, with its status code.
    """
    return arrays.call(SHRINK, (self,), (lambd, bias), (out,))


def softshrink_backward(grad_output: ArrayLike, self: ArrayLike, lambd: Number, out: ArrayLike | None = None) -> Array:
    """Gradient of Softshrink: dy where the size of x is above ``lambd``, otherwise 0.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; any of the three data types, a shape that broadcasts with dy's.
        lambd: as for ``softshrink``.
        out: where to write dx, of the broadcast shape and the type to which dy and x promote; a new NumPy array by
            default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSoftshrinkBackward rejects, with its status code.
    """
    return arrays.call(SOFTSHRINK_BACKWARD, (grad_output, self), (lambd,), (out,))
