"""aclnnDeepNorm, LayerNorm of a weighted residual sum, and aclnnDeepNormGrad, its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    Column,
    dims_between,
    generated,
    no_zero_dims,
    nothing_to_write,
    on,
    rule,
    same_shape,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter, Reduction, Shape, Sums
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import (
    Rows,
    centred_norm,
    const_output,
    input_gradient,
    one_a_row,
    rows_and_columns,
    statistic_shape,
    trailing_dims,
)
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}
_OUTPUTS = ("meanOut", "rstdOut", "yOut")
_GRADIENTS = ("dxOut", "dgxOut", "dbetaOut", "dgammaOut")
_MOST = 2**32 - 1


def deep_normalized(x: Real, gx: Real, b: Real, w: Real, alpha: float, eps: float) -> tuple[Real, Real, Real]:
    """Return mean, rstd and (h - mean)·rstd·w + b with h = alpha·x + gx."""
    y, mean, rstd = centred_norm(alpha * x + gx, w, b, eps)
    return mean, rstd, y


def deep_norm_gradients(
    dy: Real, x: Real, gx: Real, w: Real, mean: Real, rstd: Real, alpha: float
) -> tuple[Real, Real, Real, Real]:
    """Return the gradients for x and gx, and each element's contributions to those for b and w."""
    xhat = (alpha * x + gx - mean) * rstd
    dgx = input_gradient(dy * w, xhat, rstd)
    return alpha * dgx, dgx, dy, dy * xhat


def _columns(product: Product) -> list[Column]:
    f32 = DataType.FLOAT
    return [(t, t, t, t, f32, f32, t) for t in _SUPPORT.get(product, ())]


def _gradient_columns(product: Product) -> list[Column]:
    f32 = DataType.FLOAT
    return [(t, t, t, t, f32, f32, t, t, f32, f32) for t in _SUPPORT.get(product, ())]


def _some_rows(x: str) -> Check:
    def find(call: Call) -> str | None:
        rank, normalized = len(call[x].shape), len(call["gamma"].shape)
        return None if normalized < rank else f"gamma: expected fewer than {rank} dimensions (as {x}), got {normalized}"

    return rule(f"fewer dimensions than {x}: gamma", find)


def _few_rows_and_columns(call: Call) -> str | None:
    rows, columns = map(math.prod, rows_and_columns(call))
    if max(rows, columns) <= _MOST:
        return None
    return f"x: expected at most {_MOST} rows and columns, got {rows} and {columns}"


def _work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    rows = Rows(call["x"].shape, len(call["gamma"].shape))
    return Reduction(
        deep_normalized,
        (*map(rows.all, ("x", "gx")), *map(rows.columns, ("beta", "gamma"))),
        (*map(rows.statistic, _OUTPUTS[:2]), rows.all("yOut")),
        (1,),
        (float32(call["alpha"]), float32(call["epsilon"])),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    statistic = DataType.FLOAT, statistic_shape(call)
    return dict(zip(_OUTPUTS, (statistic, statistic, (call["x"].dtype, call["x"].shape)), strict=True))


def _gradient_work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _GRADIENTS):
        return None
    rows = Rows(call["dy"].shape, len(call["gamma"].shape))
    return Reduction(
        deep_norm_gradients,
        (*map(rows.all, ("dy", "x", "gx")), rows.columns("gamma"), *map(rows.statistic, ("mean", "rstd"))),
        (*map(rows.all, _GRADIENTS[:2]), *(Sums(rows.columns(name)) for name in _GRADIENTS[2:])),
        (1,),
        (float32(call["alpha"]),),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    whole, parameter = (call["dy"].dtype, call["dy"].shape), (DataType.FLOAT, call["gamma"].shape)
    return dict(zip(_GRADIENTS, (whole, whole, parameter, parameter), strict=True))


_X = Parameter("x", "x", Kind.INPUT, "(A…, R…), M rows of N columns")
_GX = Parameter("gx", "gx", Kind.INPUT, "(A…, R…)")
_GAMMA = Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised")
_ALPHA = Parameter("alpha", "alpha", Kind.DOUBLE, "factor of x; rounded to float32")

DEEP_NORM = Operator(
    name="deep_norm",
    function="aclnnDeepNorm",
    summary="LayerNorm of a weighted residual sum over its trailing dimensions, with the statistics of each row.",
    formula=(
        "h = alpha * x + gx,  y = (h - mean) * rstd * w + b,  mean = sum(h) / N,  "
        "rstd = 1 / sqrt(sum((h - mean)^2) / N + eps)"
    ),
    parameters=(
        _X,
        _GX,
        Parameter("beta", "bias", Kind.INPUT, "b: (R…)"),
        _GAMMA,
        _ALPHA,
        Parameter("epsilon", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        const_output("meanOut", "mean", "mean of each row: (A…, 1…)"),
        const_output("rstdOut", "rstd", "reciprocal standard deviation of each row: (A…, 1…)"),
        const_output("yOut", "out", "y: (A…, R…)"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("x", "gx", "beta", "gamma"),
        _OUTPUTS,
        _columns,
        dims_between(2, MOST_DIMS, "x"),
        dims_between(1, MOST_DIMS - 1, "gamma"),
        _some_rows("x"),
        no_zero_dims("x"),
        *(same_shape(name, "x") for name in ("gx", "yOut")),
        one_a_row("x", "meanOut", "rstdOut"),
        trailing_dims("x", "gamma"),
        same_shape("beta", "gamma"),
        *on(CLASS_950, rule("few rows and columns: x", _few_rows_and_columns)),
        code=ACLNN_ERR_PARAM_INVALID,
    ),
    work=_work,
    infer=_infer,
)

DEEP_NORM_GRAD = Operator(
    name="deep_norm_grad",
    function="aclnnDeepNormGrad",
    summary="Gradients of LayerNorm of a weighted residual sum for its terms, bias and weight.",
    formula=(
        "xhat = (alpha * x + gx - mean) * rstd,  g = dy * w * rstd,  "
        "dgx = g - sum(g) / N - xhat * sum(g * xhat) / N,  dx = alpha * dgx,  "
        "db = sum over rows of dy,  dw = sum over rows of dy * xhat"
    ),
    parameters=(
        Parameter("dy", "grad_out", Kind.INPUT, "(A…, R…), M rows of N columns"),
        _X,
        _GX,
        _GAMMA,
        Parameter("mean", "mean", Kind.INPUT, "mean of each row: (A…, 1…)"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal standard deviation of each row: (A…, 1…)"),
        _ALPHA,
        const_output("dxOut", "grad_x", "dx: (A…, R…)"),
        const_output("dgxOut", "grad_gx", "dgx: (A…, R…)"),
        const_output("dbetaOut", "grad_bias", "db: (R…), float32"),
        const_output("dgammaOut", "grad_weight", "dw: (R…), float32"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("dy", "x", "gx", "gamma", "mean", "rstd"),
        _GRADIENTS,
        _gradient_columns,
        dims_between(2, MOST_DIMS, "dy"),
        dims_between(1, MOST_DIMS - 1, "gamma"),
        _some_rows("dy"),
        no_zero_dims("dy"),
        *(same_shape(name, "dy") for name in ("x", "gx", *_GRADIENTS[:2])),
        one_a_row("dy", "mean", "rstd"),
        trailing_dims("dy", "gamma"),
        *(same_shape(name, "gamma") for name in _GRADIENTS[2:]),
        code=ACLNN_ERR_PARAM_INVALID,
    ),
    work=_gradient_work,
    infer=_gradient_infer,
)


def deep_norm(
    x: ArrayLike,
    gx: ArrayLike,
    bias: ArrayLike,
    weight: ArrayLike,
    alpha: float = 0.3,
    eps: float = 1e-6,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """LayerNorm of h = alpha·x + gx over the trailing dimensions, as many as weight has: M rows of N columns.

    ``y = (h - mean)·rstd·w + b`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without Bessel's correction.
    h is normalised before it is rounded.

    Args:
        x: (A…, R…), 2 to 8 dimensions, at least one more than weight, none of them 0; float32, float16 or bfloat16.
            Arrays are NumPy arrays or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        gx: (A…, R…), same data type.
        bias: b (R…), same data type.
        weight: w (R…), same data type.
        alpha: factor of x, rounded to float32.
        eps: added to the variance, rounded to float32.
        out: where to write mean, rstd and y; new NumPy arrays for None.

    Returns:
        mean and rstd (A…, 1…) in float32, y (A…, R…) in x's data type.

    Raises:
        AclnnError: an argument that aclnnDeepNorm rejects, with its status code.
    """
    results = arrays.call(DEEP_NORM, (x, gx, bias, weight), (alpha, eps), out)
    return results[0], results[1], results[2]


def deep_norm_grad(
    grad_out: ArrayLike,
    x: ArrayLike,
    gx: ArrayLike,
    weight: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    alpha: float = 0.3,
    out: Sequence[ArrayLike | None] = (None, None, None, None),
) -> tuple[Array, Array, Array, Array]:
    """Gradients of LayerNorm of alpha·x + gx over the trailing dimensions, as many as weight has: M rows of N columns.

    ``xhat = (alpha·x + gx - mean)·rstd``, ``g = dy·w·rstd``, ``dgx = g - Σg/N - xhat·Σ(g·xhat)/N``, ``dx = alpha·dgx``;
    ``db = Σ dy`` and ``dw = Σ dy·xhat`` over the rows. mean and rstd are used as given.

    Args:
        grad_out: dy (A…, R…), 2 to 8 dimensions, at least one more than weight, none of them 0; float32, float16 or
            bfloat16. Arrays are NumPy arrays or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any
            strides.
        x: (A…, R…), same data type.
        gx: (A…, R…), same data type.
        weight: w (R…), same data type.
        mean: mean of each row (A…, 1…), float32.
        rstd: reciprocal standard deviation of each row (A…, 1…), float32.
        alpha: factor of x, rounded to float32.
        out: where to write dx, dgx, db and dw; new NumPy arrays for None.

    Returns:
        dx and dgx (A…, R…) in dy's data type, db and dw (R…) in float32.

    Raises:
        AclnnError: an argument that aclnnDeepNormGrad rejects, with its status code.
    """
    results = arrays.call(DEEP_NORM_GRAD, (grad_out, x, gx, weight, mean, rstd), (alpha,), out)
    return results[0], results[1], results[2], results[3]
