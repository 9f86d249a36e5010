"""aclnnRmsNorm and aclnnRmsNormGrad: its gradients for input and weight."""

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
    has_zero,
    no_zero_dims,
    nothing_to_write,
    same_shape,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import (
    Call,
    Kind,
    LayerNorm,
    LayerNormBackward,
    Library,
    Operator,
    Parameter,
    Reduction,
    Shape,
    View,
)
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import (
    EPSILON_NOT_NEGATIVE,
    const_output,
    root_mean_square,
    rows_and_columns,
    statistic_shape,
)
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}


def _pairs(product: Product) -> list[tuple[DataType, DataType]]:
    """Return the supported data types of x and gamma."""
    mixed = {DataType.FLOAT} if product.has_bfloat16 else set()
    return [(x, gamma) for x in _SUPPORT.get(product, ()) for gamma in {x} | mixed]


def _trailing(call: Call, name: str) -> str | None:
    rank, size = len(call["x"].shape), len(call["gamma"].shape)
    if rank < size:
        return f"expected at most {rank} dimensions (as x), got {size}"
    expected, got = rows_and_columns(call)[1], call[name].shape
    return (
        None if got == expected else f"expected shape {extents(expected)} (x's trailing dimensions), got {extents(got)}"
    )


def _last_not_zero(call: Call, name: str) -> str | None:
    shape = call[name].shape
    return f"expected a last dimension of 1 or more, got {extents(shape)}" if has_zero(shape[-1:]) else None


def _statistic_dims(call: Call, name: str) -> str | None:
    x, got = call["x"].shape, call[name].shape
    fits = all(extent == 1 or (i < len(x) and extent == x[i]) for i, extent in enumerate(got))
    return None if fits else f"expected dimensions of 1 or x's {extents(x)}, got {extents(got)}"


def _room_for_rows(call: Call, name: str) -> str | None:
    rows, got = math.prod(rows_and_columns(call)[0]), call[name].size
    return None if got >= rows else f"expected at least {rows} elements (one a row of x), got {got}"


def _leading(call: Call, name: str) -> str | None:
    rows, got = rows_and_columns(call)[0], call[name].shape
    leading, missing = got[: len(rows)], rows[len(got) :]
    if leading == rows[: len(got)] and all(extent == 1 for extent in missing):
        return None
    return f"expected leading dimensions {extents(rows)} (x's), got {extents(got)}"


def _one_a_row(call: Call, name: str) -> str | None:
    rows, got = math.prod(rows_and_columns(call)[0]), call[name].size
    return None if got == rows else f"expected {rows} elements (one a row of x), got {got}"


def _some_rows(call: Call, name: str) -> str | None:
    rows = rows_and_columns(call)[0]
    return f"expected at least one row, got leading dimensions {extents(rows)}" if has_zero(rows) else None


_OUTPUTS, _GRADIENTS = ("yOut", "rstdOut"), ("dxOut", "dgammaOut")


def _columns(product: Product) -> list[Column]:
    return [(x, gamma, x, DataType.FLOAT) for x, gamma in _pairs(product)]


def _gradient_columns(product: Product) -> list[Column]:
    return [(x, x, DataType.FLOAT, gamma, x, DataType.FLOAT) for x, gamma in _pairs(product)]


def _rms_norm(x: Real, w: Real, eps: float) -> tuple[Real, Real]:
    rstd = root_mean_square(x, eps)
    return x * rstd * w, rstd


def _work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    rows, columns = rows_and_columns(call)
    return Reduction(
        _rms_norm,
        ("x", View("gamma", columns)),
        ("yOut", View("rstdOut", statistic_shape(call))),
        tuple(range(len(rows), len(rows) + len(columns))),
        (float32(call["epsilon"]),),
    )


def _on_gpu(call: Call) -> LayerNorm | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    return LayerNorm(
        inputs=("x", "gamma", None),
        outputs=("yOut", None, "rstdOut"),
        normalized_dims=len(call["gamma"].shape),
        eps=float32(call["epsilon"]),
        centred=False,
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["x"]
    return {"yOut": (x.dtype, x.shape), "rstdOut": (DataType.FLOAT, statistic_shape(call))}


def _gradient_work(call: Call) -> LayerNormBackward | Library | None:
    if nothing_to_write(call, _GRADIENTS):
        return None
    if call["rstd"].size == 0:  # no rows: the 950 class writes the mean of no numbers
        return Library(lambda: math.nan, (), ("dgammaOut",))
    return LayerNormBackward(
        inputs=("dy", "x", None, "rstd", "gamma"),
        outputs=(*_GRADIENTS, None),
        normalized_dims=len(call["gamma"].shape),
        centred=False,
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    return {"dxOut": (call["x"].dtype, call["x"].shape), "dgammaOut": (DataType.FLOAT, call["gamma"].shape)}


RMS_NORM = Operator(
    name="rms_norm",
    function="aclnnRmsNorm",
    summary="RMSNorm over the trailing dimensions, with the reciprocal root mean square of each row.",
    formula="y = x * rstd * w,  rstd = 1 / sqrt(sum(x^2) / N + eps)",
    parameters=(
        Parameter("x", "input", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised"),
        Parameter("epsilon", "eps", Kind.DOUBLE, "added to the mean square; rounded to float32"),
        const_output("yOut", "out", "y: (A…, R…)"),
        const_output("rstdOut", "rstd", "reciprocal root mean square of each row: (A…, 1…)"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("x", "gamma"),
        _OUTPUTS,
        _columns,
        dims_between(1, MOST_DIMS, "x", "gamma"),
        each("trailing dimensions of x", ("gamma",), _trailing),
        no_zero_dims("gamma", "x"),
        same_shape("yOut", "x"),
        each("dimensions of x or 1", ("rstdOut",), _statistic_dims),
        # The vendor's code writes past the end of an output that is too small.
        each("room for every row's statistic", ("rstdOut",), _room_for_rows),
        EPSILON_NOT_NEGATIVE,
    ),
    work=_work,
    infer=_infer,
    gpu_work=_on_gpu,
)

RMS_NORM_GRAD = Operator(
    name="rms_norm_grad",
    function="aclnnRmsNormGrad",
    summary="Gradients of RMSNorm for its input and weight.",
    formula=(
        "xhat = x * rstd,  g = dy * w,  dx = (g - xhat * sum(g * xhat) / N) * rstd,  dw = sum over rows of dy * xhat"
    ),
    parameters=(
        Parameter("dy", "grad_out", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("x", "input", Kind.INPUT, "(A…, R…)"),
        Parameter("rstd", "rstd", Kind.INPUT, "of each row, as the forward gives it: (A…, 1…) or (A…)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised"),
        const_output("dxOut", "grad_input", "dx: (A…, R…)"),
        const_output("dgammaOut", "grad_weight", "dw: (R…), float32"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("dy", "x", "rstd", "gamma"),
        _GRADIENTS,
        _gradient_columns,
        dims_between(1, MOST_DIMS, "x", "gamma"),
        same_shape("dy", "x"),
        same_shape("dxOut", "dy"),
        each("a last dimension of 1 or more", ("dy",), _last_not_zero),
        each("leading dimensions of x", ("rstd",), _leading),
        each("trailing dimensions of x", ("gamma", "dgammaOut"), _trailing),
        each("one element a row", ("rstd",), _one_a_row),
        *elsewhere(CLASS_950, each("at least one row", ("x",), _some_rows)),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
)


def rms_norm(
    input: ArrayLike, weight: ArrayLike, eps: float = 1e-6, out: Sequence[ArrayLike | None] = (None, None)
) -> tuple[Array, Array]:
    """RMSNorm over the trailing dimensions, as many as weight has: M rows of N columns.

    ``y = x·rstd·w`` with ``rstd = 1 / sqrt(Σx²/N + eps)``.

    Args:
        input: x (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (R…), x's data type or float32.
        eps: added to the mean square, rounded to float32; 0 or more.
        out: where to write y and rstd; new NumPy arrays for None.

    Returns:
        y (A…, R…) in x's data type, rstd (A…, 1…) in float32.

    Raises:
        AclnnError: an argument that aclnnRmsNorm rejects, with its status code.
    """
    results = arrays.call(RMS_NORM, (input, weight), (eps,), out)
    return results[0], results[1]


def rms_norm_grad(
    grad_out: ArrayLike,
    input: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike,
    out: Sequence[ArrayLike | None] = (None, None),
) -> tuple[Array, Array]:
    """Gradients of RMSNorm over the trailing dimensions, as many as weight has: M rows of N columns.

    ``xhat = x·rstd``, ``g = dy·w``, ``dx = (g - xhat·Σ(g·xhat)/N)·rstd`` and ``dw = Σ dy·xhat`` over the rows. rstd is
    used as given.

    Args:
        grad_out: dy (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        input: x (A…, R…), same data type.
        rstd: reciprocal root mean square of each row: (A…, 1…) or (A…); float32.
        weight: w (R…), x's data type or float32.
        out: where to write dx and dw; new NumPy arrays for None.

    Returns:
        dx (A…, R…) in x's data type, dw (R…) in float32.

    Raises:
        AclnnError: an argument that aclnnRmsNormGrad rejects, with its status code.
    """
    results = arrays.call(RMS_NORM_GRAD, (grad_out, input, rstd, weight), (), out)
    return results[0], results[1]
