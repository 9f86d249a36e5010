"""aclnnHardshrink, 0 between -lambd and lambd and x elsewhere, and aclnnHardshrinkBackward, its gradient."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    floating,
    limited_dims,
    on,
    promoted_and_broadcast,
    public_format,
    same_shape,
    unless_empty,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, where
from aclnn.typing import Array, ArrayLike, Number


def hardshrink_forward(x: Real, lambd: Real) -> Real:
    """+0 from -lambd to lambd, else x; x for a lambd that is NaN."""
    return where(absolute(x) <= lambd, 0.0, x)


def hardshrink_gradient(dy: Real, x: Real, lambd: Real) -> Real:
    """+0 from -lambd to lambd, else dy, which is not multiplied; NaN where x is."""
    return where(absolute(x) <= lambd, 0.0, where(x == x, dy, x))


def _lambd(call: Call) -> float:
    """Return the number in float32, 0 for a negative one."""
    lambd = call["lambd"].rounded(DataType.FLOAT)
    return 0.0 if lambd < 0 else lambd


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(hardshrink_forward, ("self",), ("out",), (_lambd(call),))


def _work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0 or call["self"].size == 0:
        return None
    return Elementwise(hardshrink_gradient, ("gradOutput", "self"), ("gradInput",), (_lambd(call),))


_LAMBD = Parameter("lambd", "lambd", Kind.SCALAR, "the largest size that becomes 0; a negative number counts as 0")
_GRADIENT_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}

HARDSHRINK = Operator(
    name="hardshrink",
    function="aclnnHardshrink",
    summary="Elements close to 0 become 0.",
    formula="out = x if |x| > lambd else 0",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        _LAMBD,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_GRADIENT_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("self", "lambd", "out"),
        dtype_in(floating, "self", "out"),
        same_shape("out", "self"),
        limited_dims("self"),
        *on(CLASS_950, public_format("self", "out")),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

HARDSHRINK_BACKWARD = Operator(
    name="hardshrink_backward",
    function="aclnnHardshrinkBackward",
    summary="Gradient of Hardshrink with respect to its input, with broadcasting and type promotion.",
    formula="dx = dy if |x| > lambd else 0",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        _LAMBD,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=_GRADIENT_SUPPORT,
    checks=(
        present("gradOutput", "self", "lambd", "gradInput"),
        dtype_in(floating, "gradOutput", "self", "gradInput"),
        limited_dims("gradOutput", "self", "gradInput"),
        *unless_empty(
            ("gradOutput", "self"),
            broadcastable("gradOutput", "self"),
            broadcast_shape_of("gradInput", "gradOutput", "self"),
        ),
    ),
    work=_work,
    infer=lambda call: {"gradInput": promoted_and_broadcast(call["gradOutput"], call["self"])},
    stream_type="const aclrtStream ",
)


def hardshrink(self: ArrayLike, lambd: Number = 0.5, out: ArrayLike | None = None) -> Array:
    """Hardshrink: x where its size is above ``lambd``, otherwise 0.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        lambd: a number; rounded to float32, and 0 instead of a negative one.
        out: where to write the result, same shape, any of the three data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardshrink rejects, with its status code.
    """
    return arrays.call(HARDSHRINK, (self,), (lambd,), (out,))


def hardshrink_backward(grad_output: ArrayLike, self: ArrayLike, lambd: Number, out: ArrayLike | None = None) -> Array:
    """Gradient of Hardshrink: dy where the size of x is above ``lambd``, otherwise 0.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; any of the three data types, a shape that broadcasts with dy's.
        lambd: as for ``hardshrink``.
        out: where to write dx, of the broadcast shape, any of the three data types; by default a new NumPy array of
            the type to which dy and x promote.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardshrinkBackward rejects, with its status code.
    """
    return arrays.call(HARDSHRINK_BACKWARD, (grad_output, self), (lambd,), (out,))
