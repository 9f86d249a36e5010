"""aclnnPrelu, x above 0 and w·x below with learned weights w, and aclnnPreluBackward, its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    extents,
    floating,
    limited_dims,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, PerChannel, Reduction, Sums, View, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, where
from aclnn.typing import Array, ArrayLike


def prelu_forward(x: Real, w: Real) -> Real:
    """Return x above 0, else w·x."""
    return where(x > 0.0, x, w * x)


def prelu_gradients(dy: Real, x: Real, w: Real) -> tuple[Real, Real]:
    """Return dx and an element's contribution to dw: dy and 0 above 0, else w·dy and dy·x; NaN where x is."""
    open_, closed = x > 0.0, x <= 0.0
    return where(open_, dy, where(closed, w * dy, x)), where(open_, 0.0, dy * x)


def _channels(call: Call) -> int:
    """Return the size of dimension 1, or 1 without it."""
    shape = call["self"].shape
    return shape[1] if len(shape) > 1 else 1


def _one_or_each(call: Call) -> str | None:
    size, channels = call["weight"].size, _channels(call)
    if size in (1, channels):
        return None
    return (
        f"weight: expected 1 element or {channels} (dimension 1 of self), got {size}: {extents(call['weight'].shape)}"
    )


def _gradient_shape(call: Call) -> tuple[int, ...]:
    weight: tuple[int, ...] = call["weight"].shape
    return weight if call["weight"].size == 1 else (_channels(call),)


def _gradient_of_weight(call: Call) -> str | None:
    expected, got = _gradient_shape(call), call["gradWeight"].shape
    return None if got == expected else f"gradWeight: expected shape {extents(expected)}, got {extents(got)}"


def _work(call: Call) -> Elementwise | None:
    if call["self"].size == 0 or call["weight"].size == 0:
        return None
    return Elementwise(prelu_forward, ("self", PerChannel("weight")), ("out",))


_COLUMNS = 256
"""Minimum row length; short rows are slower."""


def _gradient_work(call: Call) -> Reduction | None:
    if 0 in (call["gradOutput"].size, call["self"].size, call["weight"].size):
        return None
    x: tuple[int, ...] = call["self"].shape or (1,)
    slopes = (1,) * len(x) if call["weight"].size == 1 else (1, x[1], *(1,) * (len(x) - 2))
    long = (dim for dim in range(len(x) - 1, 0, -1) if math.prod(x[dim:]) >= _COLUMNS)
    first = next(long, min(1, len(x) - 1))
    return Reduction(
        prelu_gradients,
        ("gradOutput", View("self", x), View("weight", slopes)),
        (View("gradInput", x), Sums(View("gradWeight", slopes))),
        tuple(range(first, len(x))),
    )


_WEIGHT = Parameter("weight", "weight", Kind.INPUT, "w, 1 element or one for each index along dimension 1 of self")
_ONE_OR_EACH = rule("1 element or one for each channel: weight", _one_or_each)
_GRADIENT_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}

PRELU = Operator(
    name="prelu",
    function="aclnnPrelu",
    summary="Rectified linear unit with learned slopes for negative arguments.",
    formula="out = x if x > 0 else w * x",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        _WEIGHT,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_GRADIENT_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("self", "weight", "out"),
        dtype_in(floating, "self", "weight", "out"),
        limited_dims("self", "weight", "out"),
        same_shape("out", "self"),
        _ONE_OR_EACH,
    ),
    work=_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

PRELU_BACKWARD = Operator(
    name="prelu_backward",
    function="aclnnPreluBackward",
    summary="Gradients of the rectified linear unit with learned slopes, with respect to its input and the slopes.",
    formula="dx = dy if x > 0 else w * dy;  dw = sum of (0 if x > 0 else dy * x)",
    parameters=(
        Parameter("gradOutput", "grad_output", Kind.INPUT, "dy, the gradient arriving at the output"),
        Parameter("self", "self", Kind.INPUT, "x, the forward input"),
        _WEIGHT,
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx"),
        Parameter("gradWeight", "grad_weight", Kind.OUTPUT, "dw; not written where self is empty"),
    ),
    support=_GRADIENT_SUPPORT,
    checks=(
        present("gradOutput", "self", "weight", "gradInput", "gradWeight"),
        dtype_in(floating, "self"),
        same_dtype("gradOutput", "self"),
        same_dtype("weight", "self"),
        same_dtype("gradInput", "self"),
        same_dtype("gradWeight", "self"),
        limited_dims("gradOutput", "self", "weight", "gradInput", "gradWeight"),
        same_shape("gradInput", "self"),
        _ONE_OR_EACH,
        rule("shape of the weight's gradient: gradWeight", _gradient_of_weight),
        broadcastable("gradOutput", "self"),
        broadcast_shape_of("self", "gradOutput", "self"),
    ),
    work=_gradient_work,
    infer=lambda call: {
        "gradInput": (call["self"].dtype, call["self"].shape),
        "gradWeight": (call["weight"].dtype, _gradient_shape(call)),
    },
)


def prelu(self: ArrayLike, weight: ArrayLike, out: ArrayLike | None = None) -> Array:
    """PReLU: x for x > 0, ``w·x`` otherwise.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w, any of the three data types; 1 element, or one for each index along dimension 1 of x, in any shape.
        out: where to write the result, x's shape, any of the three data types; by default a new array of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnPrelu rejects, with its status code.
    """
    return arrays.call(PRELU, (self, weight), (), (out,))


def prelu_backward(
    grad_output: ArrayLike, self: ArrayLike, weight: ArrayLike, out: Sequence[ArrayLike | None] = (None, None)
) -> tuple[Array, Array]:
    """Gradients of PReLU: dy for x > 0 and ``w·dy`` else, and the sums of ``dy·x`` where x is not above 0.

    Args:
        grad_output: dy; x's data type, a shape that broadcasts to x's.
        self: x, the forward input; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on
            the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w, as for ``prelu``, of x's data type.
        out: where to write dx (x's shape) and dw (w's shape if that is of 1 element, else one dimension),
            x's data type; new NumPy arrays by default.

    Returns:
        dx and dw, which is not written where x is empty.

    Raises:
        AclnnError: an argument that aclnnPreluBackward rejects, with its status code.
    """
    results = arrays.call(PRELU_BACKWARD, (grad_output, self, weight), (), out)
    return results[0], results[1]
