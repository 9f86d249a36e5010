"""aclnnSilu, x·sigmoid(x), and aclnnSiluBackward, its gradient."""

from __future__ import annotations

from aclnn.core.checks import (
    FLOATING,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    elsewhere,
    floating,
    limited_dims,
    on,
    only_if,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Check, Elementwise, Kind, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Gradient, Real, fitted, sigmoid
from aclnn.typing import Array, ArrayLike


@fitted(symmetry="x+f")
def silu_forward(x: Real) -> Real:
    """x·s with s = 1 / (1 + e^(-x)); NaN at -inf."""
    return x * sigmoid(x)


@fitted(symmetry="1-f")
def silu_derivative(x: Real) -> Real:
    """s·(1 + x·(1 - s)) with s = 1 / (1 + e^(-x)), written so that little is lost near its zero; NaN at ±inf."""
    s = sigmoid(x)
    return s * (s + (1.0 + x) * (1.0 - s))


silu_gradient = Gradient(silu_derivative)

_MIXED = f"gradOutput and self have different data types on {Product.ASCEND_950.title}"


def _mixes(call: Call) -> bool:
    return call.product in CLASS_950 and call["gradOutput"].dtype != call["self"].dtype


def _mixed_gives_float(call: Call) -> str | None:
    if call["gradInput"].dtype == DataType.FLOAT:
        return None
    return (
        f"gradInput: expected data type ACL_FLOAT (gradOutput and self have different ones), "
        f"got {call['gradInput'].dtype.c_name}"
    )


def _unless_mixed(check: Check) -> Check:
    return only_if(check, f"unless {_MIXED}", lambda call: not _mixes(call))


def _forward_work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(silu_forward, ("self",), ("out",))


def _work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0 or call["self"].size == 0:
        return None
    return Elementwise(silu_gradient, ("gradOutput", "self"), ("gradInput",))


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    dy, x = call["gradOutput"], call["self"]
    if call.product not in CLASS_950:
        return {"gradInput": (dy.dtype, dy.shape)}
    shape = broadcast_shape(dy.shape, x.shape)
    return {"gradInput": (DataType.FLOAT if _mixes(call) else dy.dtype, dy.shape if shape is None else shape)}


SILU = Operator(
    name="silu",
    function="aclnnSilu",
    summary="SiLU (Swish with beta 1): x times its logistic function.",
    formula="out = x / (1 + exp(-x))",
    parameters=(Parameter("self", "self", Kind.INPUT, "x"), Parameter("out", "out", Kind.OUTPUT, "the result")),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        present("self", "out"),
        dtype_in(FLOATING, "self", "out"),
        same_dtype("out", "self"),
        dtype_in(floating, "self"),
        same_shape("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

SILU_BACKWARD = Operator(
    name="silu_backward",
    function="aclnnSiluBackward",
    summary="Gradient of SiLU (Swish with beta 1) with respect to its input.",
    formula="dx = dy * s * (1 + x - x * s),  s = 1 / (1 + exp(-x))",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16},
    checks=(
        present("gradOutput", "self", "gradInput"),
        dtype_in(FLOATING, "gradOutput", "self", "gradInput"),
        only_if(rule("data type ACL_FLOAT: gradInput", _mixed_gives_float), f"if {_MIXED}", _mixes),
        _unless_mixed(same_dtype("gradOutput", "gradInput")),
        _unless_mixed(same_dtype("self", "gradInput")),
        dtype_in(floating, "self", "gradOutput"),
        limited_dims("gradOutput", "self"),
        *elsewhere(CLASS_950, same_shape("gradOutput", "gradInput"), same_shape("self", "gradInput")),
        *on(CLASS_950, broadcastable("gradOutput", "self"), broadcast_shape_of("gradInput", "gradOutput", "self")),
    ),
    work=_work,
    infer=_infer,
)


def silu(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """SiLU: ``x / (1 + exp(-x))``.

    Args:
        self: x; float32, float16 or bfloat16, any number of dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSilu rejects, with its status code.
    """
    return arrays.call(SILU, (self,), (), (out,))


def silu_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of SiLU: ``dx = dy·s·(1 + x·(1 - s))`` with ``s = 1 / (1 + exp(-x))``.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape and data type (on the 950 class both may differ: shapes broadcast, and a
            mixed pair gives float32).
        out: where to write dx, same shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSiluBackward rejects, with its status code.
    """
    return arrays.call(SILU_BACKWARD, (grad_output, self), (), (out,))
