"""aclnnHardsigmoid, x/6 + 1/2 between 0 and 1, also in place, and aclnnHardsigmoidBackward, its gradient."""

from __future__ import annotations

from typing import Any

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dtype_in,
    floating,
    holds_promotion,
    limited_dims,
    promoted_and_broadcast,
    same_dtype,
    same_format,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Library, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, fitted, where
from aclnn.typing import Array, ArrayLike


@fitted()
def hardsigmoid_forward(x: Real) -> Real:
    """(x + 3) / 6 between -3 and 3, 0 below, 1 above."""
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, (x + 3.0) / 6.0))


def hardsigmoid_gradient(dy: Real, x: Real) -> Real:
    """dy / 6 between -3 and 3, else +0; NaN where x is."""
    return where(absolute(x) < 3.0, dy / 6.0, where(x == x, 0.0, x))


def _of_integers(x: Any) -> Any:
    return x >= 3


def _forward_work(call: Call) -> Elementwise | Library | None:
    if call["self"].size == 0:
        return None
    if call["self"].dtype == DataType.INT32:
        return Library(_of_integers, ("self",), ("out",))
    return Elementwise(hardsigmoid_forward, ("self",), ("out",))


def _work(call: Call) -> Elementwise | None:
    if any(tensor.size == 0 for _, tensor in call.tensors()):
        return None
    return Elementwise(hardsigmoid_gradient, ("gradOutput", "self"), ("out",))


_TAKEN = WITH_BFLOAT16 | {DataType.INT32}
_SUPPORT: dict[Product, frozenset[DataType]] = dict.fromkeys(A2_CLASS | CLASS_950, _TAKEN) | {
    Product.ATLAS_TRAINING: WITHOUT_BFLOAT16 | {DataType.INT32}
}

HARDSIGMOID = Operator(
    name="hardsigmoid",
    function="aclnnHardsigmoid",
    summary="Piecewise linear logistic function.",
    formula="out = min(1, max(0, x / 6 + 1/2))",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x; also integers, whose results lose their fractions"),
        Parameter("out", "out", Kind.OUTPUT, "the result"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(where_supported(_TAKEN), "self"),
        limited_dims("self"),
        same_shape("out", "self"),
        same_dtype("out", "self"),
        same_format("out", "self"),
    ),
    work=_forward_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
    stream_type="const aclrtStream ",
)

INPLACE_HARDSIGMOID = in_place(
    HARDSIGMOID,
    (present("self"), dtype_in(where_supported(_TAKEN), "self"), limited_dims("self")),
    Parameter("self", "self", Kind.OUTPUT, "x, replaced by the result", c_type="const aclTensor *"),
)

HARDSIGMOID_BACKWARD = Operator(
    name="hardsigmoid_backward",
    function="aclnnHardsigmoidBackward",
    summary="Gradient of the piecewise linear logistic function, with type promotion.",
    formula="dx = dy / 6 if -3 < x < 3 else 0",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        Parameter("out", "out", Kind.OUTPUT, "dx; its data type may differ"),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        present("gradOutput", "self", "out"),
        dtype_in(floating, "gradOutput", "self"),
        holds_promotion("out", "gradOutput", "self"),
        limited_dims("gradOutput", "self", "out"),
        same_shape("gradOutput", "self"),
        same_shape("out", "self"),
    ),
    work=_work,
    infer=lambda call: {"out": promoted_and_broadcast(call["gradOutput"], call["self"])},
)


def hardsigmoid(self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Piecewise linear logistic function: ``min(1, max(0, x/6 + 1/2))``.

    Args:
        self: x; float32, float16, bfloat16 or int32 (results without their fractions), at most 8 dimensions. A NumPy
            array, or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        out: where to write the result, same shape and data type; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardsigmoid rejects, with its status code.
    """
    return arrays.call(HARDSIGMOID, (self,), (), (out,))


def inplace_hardsigmoid(self: ArrayLike) -> Array:
    """Piecewise linear logistic function written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``hardsigmoid``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceHardsigmoid rejects, with its status code.
    """
    return arrays.call(INPLACE_HARDSIGMOID, (), (), (self,))


def hardsigmoid_backward(grad_output: ArrayLike, self: ArrayLike, out: ArrayLike | None = None) -> Array:
    """Gradient of the piecewise linear logistic function: dy/6 for -3 < x < 3, otherwise 0.

    Args:
        grad_output: dy; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        self: x, the forward input; same shape, any of the three data types.
        out: where to write dx, same shape, any of the three data types or float64; by default a new NumPy array of the
            type to which dy and x promote.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnHardsigmoidBackward rejects, with its status code.
    """
    return arrays.call(HARDSIGMOID_BACKWARD, (grad_output, self), (), (out,))
