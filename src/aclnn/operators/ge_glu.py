"""aclnnGeGlu and aclnnGeGluV3, GELU of one half of a tensor times the other half, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    axis,
    dtype_in,
    floating,
    limited_dims,
    on,
    one_of,
    only_if,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.halves import even_size, half_of, half_shape, halves
from aclnn.core.operator import Call, Check, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, absolute, times, where
from aclnn.operators.gelu import TANH, gelu_erf_derivative, gelu_erf_forward, gelu_tanh_derivative, gelu_tanh_forward
from aclnn.typing import Array, ArrayLike

ERF = 0
"""Value of ``approximate`` for the exact GELU; ``TANH`` is its approximation."""


def ge_glu_erf_forward(p: Real, g: Real) -> tuple[Real, Real]:
    """Return p·GELU(g) and GELU(g)."""
    value = gelu_erf_forward(g)
    return times(p, value), value


def ge_glu_tanh_forward(p: Real, g: Real) -> tuple[Real, Real]:
    """Return p·GELU(g) and GELU(g), approximated by tanh."""
    value = gelu_tanh_forward(g)
    return times(p, value), value


def ge_glu_erf_gradient(dy: Real, p: Real, g: Real, gelu: Real) -> tuple[Real, Real]:
    """Return dy·gelu and dy·p·GELU'(g)."""
    return dy * gelu, times(dy * p, gelu_erf_derivative(g))


def ge_glu_tanh_gradient(dy: Real, p: Real, g: Real, gelu: Real) -> tuple[Real, Real]:
    """Return dy·gelu and dy·p·GELU'(g), approximated by tanh; NaN at ±inf."""
    return dy * gelu, times(dy * p, where(absolute(g) < math.inf, gelu_tanh_derivative(g), g - g))


_FORWARDS: dict[int, Callable[..., Any]] = {ERF: ge_glu_erf_forward, TANH: ge_glu_tanh_forward}
_GRADIENTS: dict[int, Callable[..., Any]] = {ERF: ge_glu_erf_gradient, TANH: ge_glu_tanh_gradient}


def _left(call: Call) -> bool:
    return bool(call.arguments.get("activateLeft", False))


def _work(call: Call) -> Elementwise | None:
    if not call["self"].shape or call["self"].size == 0:
        return None
    left, right = halves(call, "self")
    return Elementwise(
        _FORWARDS[call["approximate"]], (right, left) if _left(call) else (left, right), ("out", "outGelu")
    )


def _gradient_work(call: Call) -> Elementwise | None:
    if call["gradOutput"].size == 0:
        return None
    (left, right), (d_left, d_right) = halves(call, "self"), halves(call, "gradInput")
    p, g = (right, left) if _left(call) else (left, right)
    outputs = (d_right, d_left) if _left(call) else (d_left, d_right)
    return Elementwise(_GRADIENTS[call["approximate"]], ("gradOutput", p, g, "gelu"), outputs)


def _unless_nothing_is_read(check: Check) -> Check:
    when = "unless self is empty or has no dimension"
    return only_if(check, when, lambda call: bool(call["self"].shape) and call["self"].size != 0)


def _exact(call: Call) -> str | None:
    approximate = call["approximate"]
    return None if approximate == TANH else f"approximate: expected {TANH} on {call.product.title}, got {approximate}"


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}
_DIM = Parameter("dim", "dim", Kind.INT64, "the dimension along which the halves lie")
_APPROXIMATE = Parameter("approximate", "approximate", Kind.INT64, "0 for erf, 1 for tanh")
_LEFT = Parameter("activateLeft", "activate_left", Kind.BOOL, "whether g is the first half")
_MODE = one_of("approximate", ERF, TANH)

GE_GLU = Operator(
    name="ge_glu",
    function="aclnnGeGlu",
    summary="GeGLU: the first half along a dimension times GELU of the second half, and that by itself.",
    formula="out = p * gelu(g), outGelu = gelu(g),  [p | g] = self",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "[p | g]"),
        _DIM,
        _APPROXIMATE,
        Parameter("out", "out", Kind.OUTPUT, "the product, half of self"),
        Parameter("outGelu", "out_gelu", Kind.OUTPUT, "Gelu of g, half of self"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "out", "outGelu"),
        dtype_in(floating, "self", "out", "outGelu"),
        _unless_nothing_is_read(same_dtype("out", "self")),
        _unless_nothing_is_read(same_dtype("outGelu", "self")),
        limited_dims("self", "out", "outGelu"),
        axis("dim", "self"),
        even_size("self"),
        half_of("self", "out"),
        half_of("self", "outGelu"),
        _MODE,
    ),
    work=_work,
    infer=lambda call: dict.fromkeys(("out", "outGelu"), (call["self"].dtype, half_shape(call, "self"))),
    in_header_of="geglu",
)

GE_GLU_V3 = replace(
    GE_GLU,
    name="ge_glu_v3",
    function="aclnnGeGluV3",
    summary="GeGLU: one half along a dimension times GELU of the other half, and that by itself.",
    formula="out = p * gelu(g), outGelu = gelu(g),  [p | g] = self, or [g | p] if activateLeft",
    parameters=(*GE_GLU.parameters[:3], _LEFT, *GE_GLU.parameters[3:]),
)

GE_GLU_BACKWARD = Operator(
    name="ge_glu_backward",
    function="aclnnGeGluBackward",
    summary="Gradient of GeGLU with respect to its input.",
    formula="dx = [dy * gelu | dy * p * gelu'(g)],  [p | g] = self",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the product"),
        Parameter("self", "self", Kind.INPUT, "[p | g], the forward input"),
        Parameter("gelu", "gelu", Kind.INPUT, "Gelu of g, as the forward function wrote it"),
        _DIM,
        _APPROXIMATE,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOutput", "self", "gelu", "gradInput"),
        dtype_in(floating, "gradOutput"),
        same_dtype("self", "gradOutput"),
        same_dtype("gelu", "gradOutput"),
        same_dtype("gradInput", "gradOutput"),
        same_shape("gelu", "gradOutput"),
        same_shape("gradInput", "self"),
        limited_dims("self"),
        axis("dim", "self"),
        even_size("self"),
        half_of("self", "gradOutput"),
        _MODE,
        *on((Product.ATLAS_INFERENCE,), rule("tanh: approximate", _exact)),
    ),
    work=_gradient_work,
    infer=lambda call: {"gradInput": (call["self"].dtype, call["self"].shape)},
    in_header_of="geglu_backward",
)

GE_GLU_V3_BACKWARD = replace(
    GE_GLU_BACKWARD,
    name="ge_glu_v3_backward",
    function="aclnnGeGluV3Backward",
    summary="Gradient of GeGLU, of either half, with respect to its input.",
    formula="dx = [dy * gelu | dy * p * gelu'(g)],  [p | g] = self; the halves change places if activateLeft",
    parameters=(*GE_GLU_BACKWARD.parameters[:5], _LEFT, GE_GLU_BACKWARD.parameters[5]),
)


def ge_glu(
    self: ArrayLike, dim: int = -1, approximate: int = 0, out: Sequence[ArrayLike | None] = (None, None)
) -> tuple[Array, Array]:
    """GeGLU: ``p·GELU(g)`` and ``GELU(g)``, where p and g are the halves of a tensor along a dimension.

    Args:
        self: p and g; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        dim: the dimension along which p and g lie, an even number of elements; from the end if negative.
        approximate: 0 for ``GELU(g) = g·Phi(g)``, 1 for its tanh approximation.
        out: where to write the two results, same data type, half of that shape; new NumPy arrays by default.

    Returns:
        The product and GELU of g.

    Raises:
        AclnnError: an argument that aclnnGeGlu rejects, with its status code.
    """
    results = arrays.call(GE_GLU, (self,), (dim, approximate), out)
    return results[0], results[1]


def ge_glu_v3(
    self: ArrayLike,
    dim: int = -1,
    approximate: int = 0,
    activate_left: bool = False,
    out: Sequence[ArrayLike | None] = (None, None),
) -> tuple[Array, Array]:
    """GeGLU as ``ge_glu``, of the first half too.

    Args:
        self: as for ``ge_glu``.
        dim: likewise.
        approximate: likewise.
        activate_left: whether g is the first half.
        out: as for ``ge_glu``.

    Returns:
        The product and GELU of g.

    Raises:
        AclnnError: an argument that aclnnGeGluV3 rejects, with its status code.
    """
    results = arrays.call(GE_GLU_V3, (self,), (dim, approximate, activate_left), out)
    return results[0], results[1]


def ge_glu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    gelu: ArrayLike,
    dim: int = -1,
    approximate: int = 0,
    out: ArrayLike | None = None,
) -> Array:
    """Gradient of GeGLU: ``[dy·gelu | dy·p·GELU'(g)]``, where p and g are the halves of the input.

    Args:
        grad_output: dy; half of the input's shape, same data type.
        self: the forward input; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        gelu: the second result of ``ge_glu``; dy's shape and data type.
        dim: as for ``ge_glu``.
        approximate: likewise; on Atlas inference 1.
        out: where to write dx, the input's shape and data type; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGeGluBackward rejects, with its status code.
    """
    return arrays.call(GE_GLU_BACKWARD, (grad_output, self, gelu), (dim, approximate), (out,))


def ge_glu_v3_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    gelu: ArrayLike,
    dim: int = -1,
    approximate: int = 0,
    activate_left: bool = False,
    out: ArrayLike | None = None,
) -> Array:
    """Gradient of ``ge_glu_v3``: that of ``ge_glu``, whose halves change places with ``activate_left``.

    Args:
        grad_output: as for ``ge_glu_backward``.
        self: likewise.
        gelu: likewise.
        dim: likewise.
        approximate: likewise.
        activate_left: whether g is the first half.
        out: as for ``ge_glu_backward``.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnGeGluV3Backward rejects, with its status code.
    """
    attributes = (dim, approximate, activate_left)
    return arrays.call(GE_GLU_V3_BACKWARD, (grad_output, self, gelu), attributes, (out,))
