"""aclnnGlu, one half of a tensor times the logistic function of the other half, and aclnnGluBackward, its gradient."""

from __future__ import annotations

import math

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    axis,
    dtype_in,
    limited_dims,
    same_dtype,
    same_shape,
    some_dims,
    where_supported,
)
from aclnn.core.dtypes import DataType
from aclnn.core.halves import even_size, half_of, half_shape, halves
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, times, where
from aclnn.operators.sigmoid import sigmoid_derivative, sigmoid_forward
from aclnn.typing import Array, ArrayLike


def _nonzero(factor: Real, a: Real, b: Real) -> Real:
    """Return a's factor, which is above 0 for a finite b: 1 if it underflows in float64 and a is infinite."""
    return where((factor == 0.0) & (absolute(a) == math.inf) & (absolute(b) < math.inf), 1.0, factor)


def glu_forward(a: Real, b: Real) -> Real:
    """a·sigmoid(b)."""
    return a * _nonzero(sigmoid_forward(b), a, b)


def glu_gradient(dy: Real, a: Real, b: Real) -> tuple[Real, Real]:
    """dy·sigmoid(b) and dy·a·sigmoid'(b)."""
    return times(dy, sigmoid_forward(b)), times(dy, a * _nonzero(sigmoid_derivative(b), a, b))


def _work(call: Call) -> Elementwise | None:
    return None if call["self"].size == 0 else Elementwise(glu_forward, halves(call, "self"), ("out",))


def _gradient_work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    return Elementwise(glu_gradient, ("gradOut", *halves(call, "self")), halves(call, "out"))


_TAKEN = where_supported(WITH_BFLOAT16 | {DataType.DOUBLE})
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16 | {DataType.DOUBLE}) | dict.fromkeys(
    (Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16 | {DataType.DOUBLE}
)
_DIM = Parameter("dim", "dim", Kind.INT64, "the dimension along which a and b lie")

GLU = Operator(
    name="glu",
    function="aclnnGlu",
    summary="Gated linear unit: the first half along a dimension times the logistic function of the second half.",
    formula="out = a / (1 + exp(-b)),  [a | b] = self",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "[a | b]"),
        _DIM,
        Parameter("out", "out", Kind.OUTPUT, "half of self; its data type may differ", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "out"),
        dtype_in(_TAKEN, "self", "out"),
        limited_dims("self", "out"),
        some_dims("self"),
        axis("dim", "self"),
        even_size("self"),
        half_of("self", "out"),
    ),
    work=_work,
    infer=lambda call: {"out": (call["self"].dtype, half_shape(call, "self"))},
)

GLU_BACKWARD = Operator(
    name="glu_backward",
    function="aclnnGluBackward",
    summary="Gradient of the gated linear unit with respect to its input.",
    formula="dx = [dy * s | dy * a * s * (1 - s)],  s = 1 / (1 + exp(-b)),  [a | b] = self",
    parameters=(
        Parameter("gradOut", "grad_out", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "[a | b], the forward input"),
        _DIM,
        Parameter("out", "out", Kind.OUTPUT, "dx", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "gradOut", "out"),
        dtype_in(_TAKEN, "self"),
        same_dtype("gradOut", "self"),
        same_dtype("out", "self"),
        limited_dims("self", "out", "gradOut"),
        some_dims("self"),
        axis("dim", "self"),
        even_size("self"),
        half_of("self", "gradOut"),
        same_shape("out", "self"),
    ),
    work=_gradient_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)


def glu(self: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """GLU: ``a / (1 + exp(-b))``, where a and b are the halves of a tensor along a dimension.

    Args:
        self: a and b; float32, float16, bfloat16 or float64, 1 to 8 dimensions. A NumPy array, or anything on the CPU
            with ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension along which a and b lie, an even number of elements; from the end if negative.
        out: where to write the result, half of that shape, any of the four data types; by default a new array of the
            input's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGlu rejects, with its status code.
    """
    return arrays.call(GLU, (self,), (dim,), (out,))


def glu_backward(grad_out: ArrayLike, self: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """Gradient of GLU: ``[dy·s | dy·a·s·(1 - s)]`` with ``s = 1 / (1 + exp(-b))``, a and b halves of the input.

    Args:
        grad_out: dy; half of the input's shape, same data type.
        self: the forward input; float32, float16, bfloat16 or float64, 1 to 8 dimensions. A NumPy array, or anything on
            the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension along which a and b lie, an even number of elements; from the end if negative.
        out: where to write dx, the input's shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGluBackward rejects, with its status code.
    """
    return arrays.call(GLU_BACKWARD, (grad_out, self), (dim,), (out,))
