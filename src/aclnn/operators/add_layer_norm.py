"""aclnnAddLayerNorm, LayerNorm of a sum, and aclnnAddLayerNormGrad, its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    Column,
    dims_between,
    each,
    elsewhere,
    extents,
    generated,
    no_zero_dims,
    nothing_to_write,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Kind, Operator, Parameter, Reduction, Shape, Sums
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import (
    Rows,
    centred_norm,
    centred_norm_gradients,
    const_output,
    given,
    one_a_row,
    rows_and_columns,
    statistic_shape,
    trailing_dims,
)
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}
_OUTPUTS = ("yOut", "meanOut", "rstdOut", "xOut")
_GRADIENTS = ("dxOut", "dgammaOut", "dbetaOut")

#: Neutral element of addition for every number including -0.0.
_ABSENT = -0.0


def add_layer_normalized(x1: Real, x2: Real, w: Real, b: Real, bias: Real, eps: float) -> tuple[Real, Real, Real, Real]:
    """Return (x - mean)·rstd·w + b, mean, rstd and x = x1 + x2 + bias."""
    x = x1 + x2 + bias
    return *centred_norm(x, w, b, eps), x


def add_layer_norm_gradients(
    dy: Real, x1: Real, x2: Real, rstd: Real, mean: Real, w: Real, dsum: Real
) -> tuple[Real, Real, Real]:
    """Return the gradients for x1 and x2, which are equal, and each element's contributions to those for w and b."""
    dx, dw, db = centred_norm_gradients(dy, x1 + x2, mean, rstd, w)
    return dx + dsum, dw, db


def _result_dtype(x1: DataType, x2: DataType) -> DataType:
    return x1 if x1 == x2 else DataType.FLOAT


def _columns(product: Product) -> list[Column]:
    f32, supported = DataType.FLOAT, _SUPPORT.get(product, frozenset())
    pairs = [(x, x) for x in supported]
    if product.has_bfloat16:
        pairs += [pair for x in supported - {f32} for pair in ((x, f32), (f32, x))]
    found: list[Column] = []
    for x1, x2 in pairs:
        result = _result_dtype(x1, x2)
        for w in {result, f32} if product.has_bfloat16 else {result}:
            found.append((x1, x2, w, w, result, f32, f32, result))
    return found


def _gradient_columns(product: Product) -> list[Column]:
    f32 = DataType.FLOAT
    return [(x, x, x, f32, f32, x, x, f32, f32) for x in _SUPPORT.get(product, ())]


def _bias_rows(call: Call) -> int:
    """Return the number of rows of N elements in biasOptional."""
    shape = call["biasOptional"].shape
    return math.prod(shape[: len(shape) - len(call["gamma"].shape)])


def _bias_shape(call: Call, name: str) -> str | None:
    x, columns, got = call["x1"].shape, call["gamma"].shape, call[name].shape
    if len(columns) <= len(got) <= len(x) and got[len(got) - len(columns) :] == columns:
        rows = _bias_rows(call)
        if rows == 1 or got == x or (len(got) < len(x) and rows == math.prod(rows_and_columns(call, "x1")[0])):
            return None
    return f"expected shape {extents(columns)} (as gamma) or {extents(x)} (as x1), got {extents(got)}"


def _work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    rows = Rows(call["x1"].shape, len(call["gamma"].shape))
    bias_rows = 1 if call["biasOptional"] is None else _bias_rows(call)
    return Reduction(
        add_layer_normalized,
        (
            *map(rows.all, ("x1", "x2")),
            *map(rows.columns, ("gamma", "beta")),
            *given(call, (bias_rows, rows.n), biasOptional=_ABSENT),
        ),
        (
            rows.all("yOut"),
            *map(rows.statistic, ("meanOut", "rstdOut")),
            rows.all("xOut") if call["additionalOutput"] else None,
        ),
        (1,),
        (float32(call["epsilon"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x1 = call["x1"]
    result = _result_dtype(x1.dtype, call["x2"].dtype), x1.shape
    return dict.fromkeys(("yOut", "xOut"), result) | dict.fromkeys(
        ("meanOut", "rstdOut"), (DataType.FLOAT, statistic_shape(call, "x1"))
    )


def _gradient_work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _GRADIENTS):
        return None
    rows = Rows(call["dy"].shape, len(call["gamma"].shape))
    return Reduction(
        add_layer_norm_gradients,
        (
            *map(rows.all, ("dy", "x1", "x2")),
            *map(rows.statistic, ("rstd", "mean")),
            rows.columns("gamma"),
            *given(call, (rows.m, rows.n), dsumOptional=_ABSENT),
        ),
        (rows.all("dxOut"), *(Sums(rows.columns(name)) for name in _GRADIENTS[1:])),
        (1,),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    dy, parameter = call["dy"], (DataType.FLOAT, call["gamma"].shape)
    return dict(zip(_GRADIENTS, ((dy.dtype, dy.shape), parameter, parameter), strict=True))


ADD_LAYER_NORM = Operator(
    name="add_layer_norm",
    function="aclnnAddLayerNorm",
    summary="LayerNorm of a sum over its trailing dimensions, with the statistics of each row and the sum.",
    formula=(
        "x = x1 + x2 + input_bias,  y = (x - mean) * rstd * w + b,  mean = sum(x) / N,  "
        "rstd = 1 / sqrt(sum((x - mean)^2) / N + eps)"
    ),
    parameters=(
        Parameter("x1", "x1", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("x2", "x2", Kind.INPUT, "(A…, R…)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised"),
        Parameter("beta", "bias", Kind.INPUT, "b: (R…)"),
        Parameter("biasOptional", "input_bias", Kind.INPUT, "added to x: (R…) or (A…, R…)", optional=True),
        Parameter("epsilon", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        Parameter("additionalOutput", "additional_output", Kind.BOOL, "whether xOut is written"),
        const_output("yOut", "out", "y: (A…, R…)"),
        const_output("meanOut", "mean", "mean of each row: (A…, 1…)"),
        const_output("rstdOut", "rstd", "reciprocal standard deviation of each row: (A…, 1…)"),
        const_output("xOut", "x", "x: (A…, R…); required, and unchanged if no sum is requested"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("x1", "x2", "gamma", "beta"),
        _OUTPUTS,
        _columns,
        dims_between(1, MOST_DIMS, "x1", "gamma"),
        *(same_shape(name, "x1") for name in ("x2", "yOut", "xOut")),
        trailing_dims("x1", "gamma"),
        same_shape("beta", "gamma"),
        one_a_row("x1", "meanOut", "rstdOut"),
        *elsewhere(CLASS_950, no_zero_dims("x1")),
        no_zero_dims("biasOptional"),
        each("shape of gamma or x1", ("biasOptional",), _bias_shape),
        optional=(same_dtype("biasOptional", "yOut"),),
    ),
    work=_work,
    infer=_infer,
    leaves=True,
)

ADD_LAYER_NORM_GRAD = Operator(
    name="add_layer_norm_grad",
    function="aclnnAddLayerNormGrad",
    summary="Gradients of LayerNorm of a sum for its terms, weight and bias.",
    formula=(
        "xhat = (x1 + x2 - mean) * rstd,  g = dy * w,  "
        "dx = (g - sum(g) / N - xhat * sum(g * xhat) / N) * rstd + dsum,  "
        "dw = sum over rows of dy * xhat,  db = sum over rows of dy"
    ),
    parameters=(
        Parameter("dy", "grad_out", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("x1", "x1", Kind.INPUT, "(A…, R…)"),
        Parameter("x2", "x2", Kind.INPUT, "(A…, R…)"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal standard deviation of each row: (A…, 1…)"),
        Parameter("mean", "mean", Kind.INPUT, "mean of each row: (A…, 1…)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised"),
        Parameter("dsumOptional", "grad_sum", Kind.INPUT, "dsum, arriving at x1 + x2: (A…, R…)", optional=True),
        const_output("dxOut", "grad_input", "dx, of x1 and of x2: (A…, R…)"),
        const_output("dgammaOut", "grad_weight", "dw: (R…), float32"),
        const_output("dbetaOut", "grad_bias", "db: (R…), float32"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("dy", "x1", "x2", "rstd", "mean", "gamma"),
        _GRADIENTS,
        _gradient_columns,
        dims_between(1, MOST_DIMS, "dy", "gamma"),
        no_zero_dims("dy"),
        *(same_shape(name, "dy") for name in ("x1", "x2", "dxOut")),
        trailing_dims("dy", "gamma"),
        *(same_shape(name, "gamma") for name in _GRADIENTS[1:]),
        one_a_row("dy", "rstd", "mean"),
        same_shape("dsumOptional", "dy"),
        optional=(same_dtype("dsumOptional", "dy"),),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
)


def add_layer_norm(
    x1: ArrayLike,
    x2: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    input_bias: ArrayLike | None = None,
    eps: float = 1e-5,
    additional_output: bool = True,
    out: Sequence[ArrayLike | None] = (None, None, None, None),
) -> tuple[Array, Array, Array, Array]:
    """LayerNorm of x = x1 + x2 + input_bias over the trailing dimensions, as many as weight has: M rows of N columns.

    ``y = (x - mean)·rstd·w + b`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without Bessel's correction.
    The sum is normalised before it is rounded.

    Args:
        x1: (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        x2: (A…, R…), x1's data type, or one of the two float32.
        weight: w (R…), the data type of y or float32.
        bias: b (R…), weight's data type.
        input_bias: added to the sum: (R…) or (A…, R…) in the data type of y; None for zeros.
        eps: added to the variance, rounded to float32.
        additional_output: whether x is written.
        out: where to write y, mean, rstd and x; new NumPy arrays for None.

    Returns:
        y (A…, R…) in x1's data type, float32 where x2's differs; mean and rstd (A…, 1…) in float32; x as y, zeros
        without ``additional_output``.

    Raises:
        AclnnError: an argument that aclnnAddLayerNorm rejects, with its status code.
    """
    attributes = eps, additional_output
    results = arrays.call(ADD_LAYER_NORM, (x1, x2, weight, bias, input_bias), attributes, out)
    return results[0], results[1], results[2], results[3]


def add_layer_norm_grad(
    grad_out: ArrayLike,
    x1: ArrayLike,
    x2: ArrayLike,
    rstd: ArrayLike,
    mean: ArrayLike,
    weight: ArrayLike,
    grad_sum: ArrayLike | None = None,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """Gradients of LayerNorm of x1 + x2 over the trailing dimensions, as many as weight has: M rows of N columns.

    ``xhat = (x1 + x2 - mean)·rstd``, ``g = dy·w``, ``dx = (g - Σg/N - xhat·Σ(g·xhat)/N)·rstd + grad_sum``,
    ``dw = Σ dy·xhat`` and ``db = Σ dy`` over the rows. rstd and mean are used as given; what else was added to the sum
    belongs into x1 or x2.

    Args:
        grad_out: dy (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        x1: (A…, R…), same data type.
        x2: (A…, R…), same data type.
        rstd: reciprocal standard deviation of each row (A…, 1…), float32.
        mean: mean of each row (A…, 1…), float32.
        weight: w (R…), same data type as dy.
        grad_sum: the gradient that arrives at the sum itself (A…, R…), same data type as dy; None for zeros.
        out: where to write dx, dw and db; new NumPy arrays for None.

    Returns:
        dx (A…, R…), the gradient for x1 and for x2, in dy's data type; dw and db (R…) in float32.

    Raises:
        AclnnError: an argument that aclnnAddLayerNormGrad rejects, with its status code.
    """
    results = arrays.call(ADD_LAYER_NORM_GRAD, (grad_out, x1, x2, rstd, mean, weight, grad_sum), (), out)
    return results[0], results[1], results[2]
