"""aclnnSwiGlu, SiLU of a tensor's first half times its second half, and aclnnSwiGluGrad, its gradient."""

from __future__ import annotations

import math

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    axis,
    dtype_in,
    floating,
    limited_dims,
    nd_format,
    on,
    rule,
    same_dtype,
    same_shape,
    some_dims,
)
from aclnn.core.halves import even_size, half_of, half_shape, halves
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, times, where
from aclnn.operators.silu import silu_derivative, silu_forward
from aclnn.typing import Array, ArrayLike


def swi_glu_forward(a: Real, b: Real) -> Real:
    """Return silu(a)·b; for infinite b even if silu(a) underflows in float64."""
    value = silu_forward(a)
    return where((value == 0.0) & (absolute(b) == math.inf), a, value) * b


def swi_glu_gradient(dy: Real, a: Real, b: Real) -> tuple[Real, Real]:
    """Return dy·silu'(a)·b and dy·silu(a)."""
    return times(dy * b, silu_derivative(a)), times(dy, silu_forward(a))


def _half_is_aligned(call: Call) -> str | None:
    """Require halves of whole cache lines, as the kernel does; an empty tensor has none."""
    nbytes = math.prod(call["x"].shape[call["dim"] :]) // 2 * call["x"].dtype.itemsize
    if nbytes % 64 == 0 or call["out"].size == 0:
        return None
    return f"x: expected halves of rows (all from dimension dim on) in multiples of 64 bytes, got {nbytes}"


_ALIGNED = rule("halves in multiples of 64 bytes: x", _half_is_aligned, ACLNN_ERR_INNER_TILING_ERROR)
_EVEN = even_size("x", ACLNN_ERR_INNER_TILING_ERROR)


def _work(call: Call) -> Elementwise | None:
    return None if call["x"].size == 0 else Elementwise(swi_glu_forward, halves(call, "x"), ("out",))


def _gradient_work(call: Call) -> Elementwise | None:
    if call["x"].size == 0:
        return None
    return Elementwise(swi_glu_gradient, ("yGrad", *halves(call, "x")), halves(call, "out"))


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}

SWI_GLU = Operator(
    name="swi_glu",
    function="aclnnSwiGlu",
    summary="SwiGLU: SiLU of the first half along a dimension times the second half.",
    formula="out = a / (1 + exp(-a)) * b,  [a | b] = x",
    parameters=(
        Parameter("x", "x", Kind.INPUT, "[a | b]"),
        Parameter("dim", "dim", Kind.INT64, "the dimension along which a and b lie"),
        Parameter("out", "out", Kind.OUTPUT, "the result, half of x", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(
        present("x", "out"),
        KERNEL_OF_THE_PRODUCT,
        dtype_in(floating, "x"),
        same_dtype("out", "x"),
        nd_format("x", "out"),
        some_dims("x"),
        axis("dim", "x"),
        *on((Product.ATLAS_INFERENCE,), _ALIGNED),
        _EVEN,
        half_of("x", "out"),
    ),
    work=_work,
    infer=lambda call: {"out": (call["x"].dtype, half_shape(call, "x"))},
)

SWI_GLU_GRAD = Operator(
    name="swi_glu_grad",
    function="aclnnSwiGluGrad",
    summary="Gradient of SwiGLU with respect to its input.",
    formula="dx = [dy * s * (1 + a * (1 - s)) * b | dy * a * s],  s = 1 / (1 + exp(-a)),  [a | b] = x",
    parameters=(
        Parameter("yGrad", "y_grad", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("x", "x", Kind.INPUT, "[a | b], the forward input"),
        Parameter("dim", "dim", Kind.INT64, "the dimension along which a and b lie"),
        Parameter("out", "out", Kind.OUTPUT, "dx", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=(
        present("yGrad", "x", "out"),
        KERNEL_OF_THE_PRODUCT,
        dtype_in(floating, "x"),
        same_dtype("yGrad", "x"),
        same_dtype("out", "x"),
        nd_format("yGrad", "x", "out"),
        some_dims("x"),
        axis("dim", "x"),
        *on((Product.ATLAS_INFERENCE,), _ALIGNED),
        _EVEN,
        half_of("x", "yGrad", ACLNN_ERR_INNER_TILING_ERROR),
        same_shape("out", "x"),
        limited_dims("x"),
    ),
    work=_gradient_work,
    infer=lambda call: {"out": (call["x"].dtype, call["x"].shape)},
)


def swi_glu(x: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """SwiGLU: ``a / (1 + exp(-a))·b``, where a and b are the halves of x along a dimension.

    Args:
        x: a and b; float32, float16 or bfloat16, at least 1 dimension. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension along which a and b lie, an even number of elements; from the end if negative.
        out: where to write the result, same data type, half of x's shape; a new NumPy array by default.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSwiGlu rejects, with its status code.
    """
    return arrays.call(SWI_GLU, (x,), (dim,), (out,))


def swi_glu_grad(y_grad: ArrayLike, x: ArrayLike, dim: int = -1, out: ArrayLike | None = None) -> Array:
    """Gradient of SwiGLU: ``[dy·s·(1 + a·(1 - s))·b | dy·a·s]`` with ``s = 1 / (1 + exp(-a))``, a and b halves of x.

    Args:
        y_grad: dy; half of x's shape, same data type.
        x: the forward input; float32, float16 or bfloat16, 1 to 8 dimensions. A NumPy array, or anything on the CPU
            with ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension along which a and b lie, an even number of elements; from the end if negative.
        out: where to write dx, shape and data type of x; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnSwiGluGrad rejects, with its status code.
    """
    return arrays.call(SWI_GLU_GRAD, (y_grad, x), (dim,), (out,))
