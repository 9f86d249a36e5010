"""aclnnClippedSwiglu, SwiGLU of clamped halves with a bias, and aclnnClippedSwigluGrad, its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    WITH_BFLOAT16,
    axis,
    dtype_in,
    each,
    floating,
    limited_dims,
    nd_format,
    on,
    rule,
    same_dtype,
    same_shape,
    some_dims,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.halves import even_size, half_of, half_shape
from aclnn.core.operator import Call, Check, Columns, Elementwise, Kind, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR as TILING
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID as INVALID
from aclnn.execution import arrays
from aclnn.formula import Real, exp, sigmoid, times, where
from aclnn.operators.silu import silu_derivative
from aclnn.operators.swish import QUICK, quick_swish_derivative, quick_swish_forward
from aclnn.typing import Array, ArrayLike

_Formula = Callable[..., Any]

MOST_GROUPS = 8192
GROUPS = "groupIndexOptional"


def _below(x: Real, limit: Real) -> Real:
    """Return min(x, limit); NaN for NaN, as a processor's minimum."""
    return where(x > limit, limit, x)


def _within(x: Real, limit: Real) -> Real:
    """Return x within ±limit, NaN for NaN."""
    return _below(where(x < -limit, -limit, x), limit)


def _forward(a: Real, b: Real, limit: Real, bias: Real, swish: Callable[[Real], Real]) -> Real:
    """swish(A)·(B + bias) with A = min(a, limit), B = b within ±limit."""
    return swish(_below(a, limit)) * (_within(b, limit) + bias)


def _gradient(
    dy: Real, a: Real, b: Real, limit: Real, bias: Real, swish: Callable[[Real], Real], slope: Callable[[Real], Real]
) -> tuple[Real, Real]:
    """dy·(B + bias)·swish'(A) and dy·swish(A), 0 where a or b is cut off; NaN where any of dy, a, b is."""
    lower, known = _below(a, limit), (b == b) & (dy == dy)
    da = times(dy * (_within(b, limit) + bias), slope(lower))
    db = where(b == b, times(dy, swish(lower)), b)
    is_cut = ((b < -limit) | (b > limit)) & (a == a)
    return where((a > limit) & known, 0.0, da), where(is_cut & known, 0.0, db)


def clipped_swiglu_forward(a: Real, b: Real, alpha: Real, limit: Real, bias: Real) -> Real:
    """A·s·(B + bias) with s = 1 / (1 + e^(-alpha·A)); NaN where A·s is -inf·0."""
    return _forward(a, b, limit, bias, lambda x: x / (1.0 + exp(-(alpha * x))))


def clipped_swiglu_gradient(dy: Real, a: Real, b: Real, alpha: Real, limit: Real, bias: Real) -> tuple[Real, Real]:
    """dy·(B + bias)·s·(1 + alpha·A·(1 - s)) and dy·A·s within the limits."""
    return _gradient(dy, a, b, limit, bias, lambda x: x * sigmoid(alpha * x), lambda x: silu_derivative(alpha * x))


def clipped_quick_swiglu_forward(a: Real, b: Real, limit: Real, bias: Real) -> Real:
    """Clipped SwiGLU with an alpha of 1.702."""
    return _forward(a, b, limit, bias, quick_swish_forward)


def clipped_quick_swiglu_gradient(dy: Real, a: Real, b: Real, limit: Real, bias: Real) -> tuple[Real, Real]:
    """Gradient of clipped SwiGLU with an alpha of 1.702."""
    return _gradient(dy, a, b, limit, bias, quick_swish_forward, quick_swish_derivative)


def numbers(call: Call) -> tuple[float, ...]:
    """Return the attributes, rounded to float32."""
    return tuple(float32(call[name]) for name in ("alpha", "limit", "bias"))


def _for_alpha(call: Call, general: _Formula, quick: _Formula) -> tuple[_Formula, tuple[float, ...]]:
    """Return the formula for the call's alpha, and the numbers that it takes."""
    alpha, *others = numbers(call)
    return (quick, tuple(others)) if alpha == QUICK else (general, (alpha, *others))


def _halves(call: Call, tensor: str) -> tuple[Columns, Columns]:
    """Return the halves of each row, which spans dimensions from dim on; alternating elements if interleaved."""
    shape = call["x"].shape
    dim = call["dim"] % len(shape)
    count = math.prod(shape[dim:])
    if call["interleaved"]:
        return Columns(tensor, dim, 0, count, 2), Columns(tensor, dim, 1, count, 2)
    return Columns(tensor, dim, 0, count // 2), Columns(tensor, dim, count // 2, count)


def _whole(call: Call, tensor: str) -> Columns:
    shape = call[tensor].shape
    dim = call["dim"] % len(shape)
    return Columns(tensor, dim, 0, math.prod(shape[dim:]))


def _work(call: Call) -> Elementwise | None:
    if call["x"].size == 0:
        return None
    groups = None if call[GROUPS] is None else GROUPS
    formula, given = _for_alpha(call, clipped_swiglu_forward, clipped_quick_swiglu_forward)
    return Elementwise(formula, _halves(call, "x"), (_whole(call, "out"),), given, groups=groups)


def _gradient_work(call: Call) -> Elementwise | None:
    if call["x"].size == 0:
        return None
    groups = call[GROUPS]
    formula, given = _for_alpha(call, clipped_swiglu_gradient, clipped_quick_swiglu_gradient)
    return Elementwise(
        formula,
        (_whole(call, "gradY"), *_halves(call, "x")),
        _halves(call, "gradXOut"),
        given,
        groups=None if groups is None or groups.size == 0 else GROUPS,
        clears=True,
    )


def _positive_limit(call: Call) -> str | None:
    limit = numbers(call)[1]
    return None if limit > 0.0 else f"limit: expected more than 0, got {call['limit']!r}"


def _filled(call: Call) -> str | None:
    return None if call["x"].size else "x: expected elements where the output has some, got none"


def _of_groups(name: str, expected: str, got: Callable[[Any], object], holds: Callable[[Any], bool]) -> Check:
    def violation(call: Call, argument: str) -> str | None:
        groups = call[argument]
        return None if holds(groups) else f"expected {expected}, got {got(groups)}"

    return each(name, (GROUPS,), violation, TILING)


_ONE_DIM = _of_groups("1 dimension", "1 dimension", lambda g: len(g.shape), lambda g: len(g.shape) == 1)
_INTEGERS = _of_groups(
    "data type", "data type ACL_INT64", lambda g: g.dtype.c_name, lambda g: bool(g.dtype == DataType.INT64)
)
_FEW = f"at most {MOST_GROUPS} elements"
_SOME = "at least 1 element"


def checks(gradient: bool, *more: Check) -> tuple[Check, ...]:
    """Return the checks in order, including those of additional attributes.

    The gradient's document states 561002 where the forward function's states 161002.
    """
    output, code = ("gradXOut", TILING) if gradient else ("out", INVALID)
    tensors = ("gradY", "x", output) if gradient else ("x", output)
    number_of_groups = (
        ()
        if gradient
        else (
            _of_groups(_FEW, _FEW, lambda g: g.size, lambda g: bool(g.size <= MOST_GROUPS)),
            *on(CLASS_950, _of_groups(_SOME, _SOME, lambda g: g.size, lambda g: bool(g.size > 0))),
        )
    )
    return (
        present(*tensors),
        KERNEL_OF_THE_PRODUCT,
        dtype_in(floating, "x"),
        *(same_dtype(name, "x") for name in tensors if name != "x"),
        nd_format(*tensors),
        *unless_empty((output,), rule("positive: limit", _positive_limit, TILING), *more),
        *with_code(code, some_dims("x"), axis("dim", "x")),
        *unless_empty((output,), rule("not empty: x", _filled, TILING)),
        even_size("x", TILING),
        *((half_of("x", "gradY", TILING),) if gradient else ()),
        *with_code(code, _ONE_DIM),
        *with_code(INVALID, _INTEGERS),
        *number_of_groups,
        *with_code(TILING, same_shape(output, "x") if gradient else half_of("x", output)),
        *unless_empty((output,), *with_code(code, limited_dims("x"))),
    )


_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
X = Parameter("x", "x", Kind.INPUT, "a and b, the forward input")
ATTRIBUTES = (
    Parameter(
        GROUPS, "group_index", Kind.INPUT, "sizes of groups: as many rows are computed as they add up to", optional=True
    ),
    Parameter("dim", "dim", Kind.INT64, "rows are all elements from this dimension on"),
    Parameter("alpha", "alpha", Kind.DOUBLE, "factor of A in the exponent"),
    Parameter("limit", "limit", Kind.DOUBLE, "a is at most this, b at most this far from 0"),
    Parameter("bias", "bias", Kind.DOUBLE, "added to B"),
    Parameter("interleaved", "interleaved", Kind.BOOL, "whether a and b alternate in a row or are its halves"),
)

CLIPPED_SWIGLU = Operator(
    name="clipped_swiglu",
    function="aclnnClippedSwiglu",
    summary="SwiGLU of clamped halves with a bias, of the first rows.",
    formula="out = A / (1 + exp(-alpha * A)) * (B + bias),  A = min(a, limit),  B = clamp(b, -limit, limit)",
    parameters=(
        X,
        *ATTRIBUTES,
        Parameter("out", "out", Kind.OUTPUT, "the result, half of x", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=checks(gradient=False),
    work=_work,
    infer=lambda call: {"out": (call["x"].dtype, half_shape(call, "x"))},
    leaves=True,
)

CLIPPED_SWIGLU_GRAD = Operator(
    name="clipped_swiglu_grad",
    function="aclnnClippedSwigluGrad",
    summary="Gradient of clipped SwiGLU with respect to its input.",
    formula="da = dy * (B + bias) * s * (1 + alpha * A * (1 - s)) if a <= limit else 0,  "
    "db = dy * A * s if |b| <= limit else 0,  s = 1 / (1 + exp(-alpha * A))",
    parameters=(
        Parameter("gradY", "grad_y", Kind.INPUT, "dy, the gradient arriving at the output"),
        X,
        *ATTRIBUTES,
        Parameter("gradXOut", "grad_x", Kind.OUTPUT, "da and db, where a and b are in x", c_type="const aclTensor *"),
    ),
    support=_SUPPORT,
    checks=checks(gradient=True),
    work=_gradient_work,
    infer=lambda call: {"gradXOut": (call["x"].dtype, call["x"].shape)},
)


def clipped_swiglu(
    x: ArrayLike,
    group_index: ArrayLike | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
    out: ArrayLike | None = None,
) -> Array:
    """SwiGLU of clamped halves: ``A / (1 + exp(-alpha·A))·(B + bias)``, A at most the limit, B within ± the limit.

    A row of x is all its elements from dimension ``dim`` on; a and b, which become A and B, alternate in it or are its
    halves.

    Args:
        x: a and b; float32, float16 or bfloat16, 1 to 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        group_index: int64, at most 8192 sizes of groups: only as many of the first rows as they add up to are computed;
            None for all.
        dim: the dimension along which x has twice the output's size; from the end if negative.
        alpha: factor in the exponent; rounded to float32, as the two others.
        limit: more than 0.
        bias: added to B.
        interleaved: whether a and b alternate.
        out: where to write the result, same data type, half of x's shape; rows that are not computed stay as they are.
            A new NumPy array by default, in which they are zeros.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnClippedSwiglu rejects, with its status code.
    """
    return arrays.call(CLIPPED_SWIGLU, (x, group_index), (dim, alpha, limit, bias, interleaved), (out,))


def clipped_swiglu_grad(
    grad_y: ArrayLike,
    x: ArrayLike,
    group_index: ArrayLike | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
    out: ArrayLike | None = None,
) -> Array:
    """Gradient of clipped SwiGLU: ``dy·(B + bias)·s·(1 + alpha·A·(1 - s))`` and ``dy·A·s``.

    Here s is ``1 / (1 + exp(-alpha·A))``, A at most the limit and B within ± the limit, as in ``clipped_swiglu``. The
    first is 0 where a exceeds the limit, the second where b is farther from 0; at the limit they are not.

    Args:
        grad_y: dy; half of x's shape, same data type.
        x: the forward input, as for ``clipped_swiglu``.
        group_index: int64, sizes of groups: dx is 0 in all rows behind as many as they add up to; None or empty for
            none.
        dim: as for ``clipped_swiglu``, like the following.
        alpha: likewise.
        limit: likewise.
        bias: likewise.
        interleaved: likewise.
        out: where to write dx, shape and data type of x; a new NumPy array by default.

    Returns:
        dx (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnClippedSwigluGrad rejects, with its status code.
    """
    return arrays.call(CLIPPED_SWIGLU_GRAD, (grad_y, x, group_index), (dim, alpha, limit, bias, interleaved), (out,))
