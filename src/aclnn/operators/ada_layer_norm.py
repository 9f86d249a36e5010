"""aclnnAdaLayerNorm, aclnnAdaLayerNormV2 and aclnnAdaLayerNormBackward."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    dims_between,
    dtype_in,
    dtype_or_float32,
    each,
    extents,
    floating,
    limited_dims,
    listing,
    no_zero_dims,
    one_dtype,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter, Reduction, Shape, Sums, View, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import centred_norm, given, input_gradient
from aclnn.typing import Array, ArrayLike

_PARAMETERS = "weightOptional", "biasOptional"
_STATISTICS = "meanOutOptional", "rstdOutOptional"
_GRADIENTS = "gradInputOut", "gradScaleOut", "gradShiftOut", "gradWeightOut", "gradBiasOut"


def _forward(x: Real, scale: Real, shift: Real, w: Real, b: Real, eps: float) -> tuple[Real, Real, Real]:
    normalized, mean, rstd = centred_norm(x, w, b, eps)
    return normalized * (1.0 + scale) + shift, mean, rstd


def _gradients(dy: Real, x: Real, mean: Real, rstd: Real, scale: Real, w: Real, b: Real) -> tuple[Real, ...]:
    """Return the gradient for x, and each element's contributions to those for scale, shift, w and b."""
    xhat, factor = (x - mean) * rstd, 1.0 + scale
    product = dy * xhat
    return (input_gradient(dy * (factor * w), xhat, rstd), product * w + dy * b, dy, product * factor, dy * factor)


def _samples(shape: Sequence[int]) -> tuple[Shape, Shape, Shape, Shape]:
    """Return shapes (B, S, H) of x, (B, 1, H) of scale and shift, (B, S, 1) of statistics, (1, 1, H) of parameters."""
    *batch, s, h = shape
    b = math.prod(batch)
    return (b, s, h), (b, 1, h), (b, s, 1), (1, 1, h)


def _view(call: Call, name: str, shape: Shape) -> View | None:
    """View an argument in a shape; None if it is absent, or not a parameter of the operator."""
    return None if call.arguments.get(name) is None else View(name, shape)


def _weight_and_bias(call: Call, shape: Shape) -> tuple[View | float, ...]:
    return given(call, shape, weightOptional=1.0, biasOptional=0.0)


def _summed(view: View | None) -> Sums | None:
    return None if view is None else Sums(view)


def _per_sample(x: str, *names: str) -> Check:
    """Require the shape [B…, 1, H] or [B…, H]."""

    def violation(call: Call, name: str) -> str | None:
        *batch, _, h = call[x].shape
        got, wanted = call[name].shape, ((*batch, 1, h), (*batch, h))
        return None if got in wanted else f"expected shape {' or '.join(map(extents, wanted))}, got {extents(got)}"

    return each("shape is [B…, 1, H] or [B…, H]", names, violation)


def _one_a_row(x: str, *names: str) -> Check:
    return shape_is("[B…, S, 1]", lambda call: (*call[x].shape[:-1], 1), *names)


def _one_a_column(x: str, *names: str) -> Check:
    return shape_is("[H]", lambda call: call[x].shape[-1:], *names)


def _work(call: Call) -> Reduction:
    x, sample, statistics, parameters = _samples(call["x"].shape)
    return Reduction(
        _forward,
        (View("x", x), View("scale", sample), View("shift", sample), *_weight_and_bias(call, parameters)),
        (View("out", x), *(_view(call, name, statistics) for name in _STATISTICS)),
        (2,),
        (float32(call["epsilon"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    return {"out": (call["x"].dtype, call["x"].shape)}


def _infer_all(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["x"]
    return _infer(call) | dict.fromkeys(_STATISTICS, (x.dtype, (*x.shape[:-1], 1)))


_X = Parameter("x", "input", Kind.INPUT, "x: (B…, S, H)")
_SCALE = Parameter("scale", "scale", Kind.INPUT, "s of each sample: (B…, H) or (B…, 1, H)")
_SHIFT = Parameter("shift", "shift", Kind.INPUT, "t of each sample: (B…, H) or (B…, 1, H)")
_WEIGHT = Parameter("weightOptional", "weight", Kind.INPUT, "w: (H), ones when null", optional=True)
_BIAS = Parameter("biasOptional", "bias", Kind.INPUT, "b: (H), zeros when null", optional=True)
_FORWARD_PARAMETERS = (
    _X,
    _SCALE,
    _SHIFT,
    _WEIGHT,
    _BIAS,
    Parameter("epsilon", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
    Parameter("out", "out", Kind.OUTPUT, "(B…, S, H)"),
)
_FORMULA = (
    "out = ((x - mean) * rstd * w + b) * (1 + s) + t,  mean = sum(x) / H,  rstd = 1 / sqrt(sum((x - mean)^2) / H + eps)"
)
_RANK = dims_between(2, MOST_DIMS, "x"), no_zero_dims("x")

ADA_LAYER_NORM = Operator(
    name="ada_layer_norm",
    function="aclnnAdaLayerNorm",
    summary="LayerNorm over the last dimension, scaled and shifted for each sample.",
    formula=_FORMULA,
    parameters=_FORWARD_PARAMETERS,
    support=dict.fromkeys(A2_CLASS, WITH_BFLOAT16),
    checks=(
        present("x", "scale", "shift", "out"),
        dtype_in(floating, "x"),
        *(same_dtype(name, "x") for name in ("scale", "shift", *_PARAMETERS, "out")),
        *_RANK,
        _per_sample("x", "scale", "shift"),
        _one_a_column("x", *_PARAMETERS),
        same_shape("out", "x"),
    ),
    work=_work,
    infer=_infer,
)

ADA_LAYER_NORM_V2 = Operator(
    name="ada_layer_norm_v2",
    function="aclnnAdaLayerNormV2",
    summary="LayerNorm over the last dimension, scaled and shifted for each sample, with its statistics.",
    formula=_FORMULA,
    parameters=(
        *_FORWARD_PARAMETERS,
        Parameter("meanOutOptional", "mean", Kind.OUTPUT, "mean of each row: (B…, S, 1)", optional=True),
        Parameter("rstdOutOptional", "rstd", Kind.OUTPUT, "reciprocal deviation of each: (B…, S, 1)", optional=True),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16),
    checks=(
        present("x", "shift", "scale", "out"),
        dtype_in(floating, "x"),
        *(same_dtype(name, "x") for name in ("shift", "scale")),
        one_dtype(*_PARAMETERS),
        dtype_or_float32("x", "biasOptional", "weightOptional"),
        *(same_dtype(name, "x") for name in ("out", "rstdOutOptional", "meanOutOptional")),
        *_RANK,
        _per_sample("x", "shift", "scale"),
        _one_a_column("x", "biasOptional", "weightOptional"),
        same_shape("out", "x"),
        _one_a_row("x", "rstdOutOptional", "meanOutOptional"),
    ),
    work=_work,
    infer=_infer_all,
)


def _parameters_dtype(call: Call) -> DataType | None:
    """Return the data type of gradients for w and b; None if it is unrestricted."""
    given = [call[name].dtype for name in _PARAMETERS if call[name] is not None]
    return given[0] if given else None


def _parameter_gradients(call: Call, name: str) -> str | None:
    dtype, got = _parameters_dtype(call), call[name].dtype
    allowed = dict.fromkeys((call["gradOut"].dtype, DataType.FLOAT) if dtype is None else (dtype,))
    if got in allowed:
        return None
    return f"expected data type {listing(d.c_name for d in allowed)} (that of the parameters), got {got.c_name}"


def _normalized_shape(call: Call) -> str | None:
    given, h = tuple(call["normalizedShape"]), call["input"].shape[-1:]
    return None if given == h else f"normalizedShape: expected {extents(h)} (H), got {extents(given)}"


def _gradient_work(call: Call) -> Reduction | None:
    if all(call[name] is None for name in _GRADIENTS):
        return None
    x, sample, statistics, parameters = _samples(call["input"].shape)
    shapes = x, sample, sample, parameters, parameters
    dx, *sums = (_view(call, name, shape) for name, shape in zip(_GRADIENTS, shapes, strict=True))
    return Reduction(
        _gradients,
        (
            *(View(name, x) for name in ("gradOut", "input")),
            *(View(name, statistics) for name in ("mean", "rstd")),
            View("scale", sample),
            *_weight_and_bias(call, parameters),
        ),
        (dx, *map(_summed, sums)),
        (2,),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x, scale, shift = (call[name] for name in ("input", "scale", "shift"))
    parameter = _parameters_dtype(call) or x.dtype, x.shape[-1:]
    described = (x.dtype, x.shape), (scale.dtype, scale.shape), (shift.dtype, shift.shape), parameter, parameter
    return dict(zip(_GRADIENTS, described, strict=True))


ADA_LAYER_NORM_BACKWARD = Operator(
    name="ada_layer_norm_backward",
    function="aclnnAdaLayerNormBackward",
    summary="Gradients of AdaLayerNorm for its input, scale, shift, weight and bias.",
    formula=(
        "xhat = (x - mean) * rstd,  g = dy * w * (1 + s),  dx = (g - sum(g) / H - xhat * sum(g * xhat) / H) * rstd,  "
        "ds = sum over S of dy * (xhat * w + b),  dt = sum over S of dy,  dw = sum of dy * (1 + s) * xhat,  "
        "db = sum of dy * (1 + s)"
    ),
    parameters=(
        Parameter("gradOut", "grad_out", Kind.INPUT, "dy: (B…, S, H)"),
        Parameter("input", "input", Kind.INPUT, "x: (B…, S, H)"),
        Parameter("normalizedShape", "normalized_shape", Kind.INT_ARRAY, "[H]"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal deviation of each row: (B…, S, 1)"),
        Parameter("mean", "mean", Kind.INPUT, "mean of each row: (B…, S, 1)"),
        _SCALE,
        Parameter("shift", "shift", Kind.INPUT, "t: (B…, H) or (B…, 1, H); its values are never used"),
        _WEIGHT,
        _BIAS,
        Parameter("gradInputOut", "grad_input", Kind.OUTPUT, "dx: (B…, S, H)", optional=True),
        Parameter("gradScaleOut", "grad_scale", Kind.OUTPUT, "ds: s's shape", optional=True),
        Parameter("gradShiftOut", "grad_shift", Kind.OUTPUT, "dt: t's shape", optional=True),
        Parameter("gradWeightOut", "grad_weight", Kind.OUTPUT, "dw: H elements in any shape", optional=True),
        Parameter("gradBiasOut", "grad_bias", Kind.OUTPUT, "db: H elements in any shape", optional=True),
    ),
    support=dict.fromkeys(A2_CLASS, WITH_BFLOAT16),
    checks=(
        present("gradOut", "input", "normalizedShape", "mean", "rstd", "scale", "shift"),
        dtype_in(floating, "gradOut"),
        *(same_dtype(name, "gradOut") for name in ("input", "rstd", "mean", "scale", "shift")),
        dtype_or_float32("gradOut", *_PARAMETERS),
        one_dtype(*_PARAMETERS),
        *(same_dtype(name, "gradOut") for name in _GRADIENTS[:3]),
        each("data type of the parameters", _GRADIENTS[3:], _parameter_gradients),
        limited_dims("gradOut", "input", "mean", "rstd", "scale", "shift", *_GRADIENTS),
        same_shape("input", "gradOut"),
        same_shape("rstd", "mean"),
        dims_between(2, MOST_DIMS, "input"),
        rule("shape of the last dimension: normalizedShape", _normalized_shape),
        _one_a_column("input", *_PARAMETERS),
        no_zero_dims("input"),
        _per_sample("input", "scale", "shift"),
        _one_a_row("input", "mean"),
        same_shape("gradInputOut", "input"),
        same_shape("gradScaleOut", "scale"),
        same_shape("gradShiftOut", "shift"),
        size_is("H", lambda call: call["input"].shape[-1], *_GRADIENTS[3:]),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
)


def ada_layer_norm(
    input: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: ArrayLike | None = None,
) -> Array:
    """LayerNorm over the last dimension, scaled and shifted for each sample.

    ``out = ((x - mean)·rstd·w + b)·(1 + s) + t`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without
    Bessel's correction.

    Args:
        input: x (B…, S, H), 2 to 8 dimensions, none of 0; float32, float16 or bfloat16. Arrays are NumPy arrays or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        scale: s (B…, H) or (B…, 1, H) in x's data type.
        shift: t, likewise.
        weight: w (H) in x's data type; None for ones.
        bias: b (H) in x's data type; None for zeros.
        eps: added to the variance, rounded to float32.
        out: where to write the result; a new NumPy array by default.

    Returns:
        The result (B…, S, H) in x's data type.

    Raises:
        AclnnError: an argument that aclnnAdaLayerNorm rejects, with its status code.
    """
    return arrays.call(ADA_LAYER_NORM, (input, scale, shift, weight, bias), (eps,), (out,))


def ada_layer_norm_v2(
    input: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """LayerNorm over the last dimension, scaled and shifted for each sample, with its statistics.

    ``out = ((x - mean)·rstd·w + b)·(1 + s) + t`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without
    Bessel's correction.

    Args:
        input: x (B…, S, H), 2 to 8 dimensions, none of 0; float32, float16 or bfloat16. Arrays are NumPy arrays or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        scale: s (B…, H) or (B…, 1, H) in x's data type.
        shift: t, likewise.
        weight: w (H) in x's data type or float32; None for ones.
        bias: b (H) in w's data type; None for zeros.
        eps: added to the variance, rounded to float32.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result (B…, S, H), mean and rstd (B…, S, 1), all in x's data type.

    Raises:
        AclnnError: an argument that aclnnAdaLayerNormV2 rejects, with its status code.
    """
    results = arrays.call(ADA_LAYER_NORM_V2, (input, scale, shift, weight, bias), (eps,), out)
    return results[0], results[1], results[2]


def ada_layer_norm_backward(
    grad_out: ArrayLike,
    input: ArrayLike,
    normalized_shape: Sequence[int],
    rstd: ArrayLike,
    mean: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    out: Sequence[ArrayLike | None] = (None, None, None, None, None),
) -> tuple[Array, Array, Array, Array, Array]:
    """Gradients of AdaLayerNorm; mean and rstd are used as given.

    ``xhat = (x - mean)·rstd``, ``g = dy·w·(1 + s)``, ``dx = (g - Σg/H - xhat·Σ(g·xhat)/H)·rstd``; over a sample's rows
    ``ds = Σ dy·(xhat·w + b)`` and ``dt = Σ dy``; over all rows ``dw = Σ dy·(1 + s)·xhat`` and ``db = Σ dy·(1 + s)``.

    Args:
        grad_out: dy (B…, S, H), 2 to 8 dimensions, none of 0; float32, float16 or bfloat16. Arrays are NumPy arrays or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        input: x (B…, S, H), same data type.
        normalized_shape: (H,).
        rstd: reciprocal standard deviation of each row (B…, S, 1), same data type.
        mean: mean of each row (B…, S, 1), same data type.
        scale: s (B…, H) or (B…, 1, H), same data type.
        shift: t, likewise; its values are never used.
        weight: w (H) in dy's data type or float32; None for ones.
        bias: b (H) in w's data type; None for zeros.
        out: where to write each gradient; new NumPy arrays for None.

    Returns:
        dx in x's shape, ds in s's, dt in t's, dw and db (H) in the data type of w, else b's, else dy's.

    Raises:
        AclnnError: an argument that aclnnAdaLayerNormBackward rejects, with its status code.
    """
    inputs = grad_out, input, rstd, mean, scale, shift, weight, bias
    results = arrays.call(ADA_LAYER_NORM_BACKWARD, inputs, (normalized_shape,), out)
    return results[0], results[1], results[2], results[3], results[4]
