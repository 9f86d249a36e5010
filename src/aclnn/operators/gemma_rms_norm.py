"""aclnnGemmaRmsNorm: RMSNorm whose weight is shifted by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    Column,
    dims_between,
    each,
    extents,
    generated,
    no_zero_dims,
    nothing_to_write,
    same_shape,
    size_is,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Kind, Operator, Parameter, Reduction, Shape
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import (
    EPSILON_NOT_NEGATIVE,
    Rows,
    const_output,
    root_mean_square,
    rows_and_columns,
    statistic_shape,
)
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
_OUTPUTS = ("yOut", "rstdOut")


def gemma_norm(x: Real, w: Real, eps: float) -> tuple[Real, Real]:
    """x·rstd·(1 + w), and rstd."""
    rstd = root_mean_square(x, eps)
    return x * rstd * (1.0 + w), rstd


def _columns(product: Product) -> list[Column]:
    gammas = (DataType.FLOAT,) if product in CLASS_950 else ()
    return [(x, gamma, x, DataType.FLOAT) for x in _SUPPORT.get(product, ()) for gamma in dict.fromkeys((x, *gammas))]


def _trailing(call: Call, name: str) -> str | None:
    expected, got = rows_and_columns(call)[1], call[name].shape
    if got == expected:
        return None
    return f"expected shape {extents(expected)} (x's trailing dimensions), got {extents(got)}"


def _work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    rows = Rows(call["x"].shape, len(call["gamma"].shape))
    return Reduction(
        gemma_norm,
        (rows.all("x"), rows.columns("gamma")),
        (rows.all("yOut"), rows.statistic("rstdOut")),
        (1,),
        (float32(call["epsilon"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    return {"yOut": (call["x"].dtype, call["x"].shape), "rstdOut": (DataType.FLOAT, statistic_shape(call))}


GEMMA_RMS_NORM = Operator(
    name="gemma_rms_norm",
    function="aclnnGemmaRmsNorm",
    summary="RMSNorm over the trailing dimensions with a weight of 1 + w, as in Gemma.",
    formula="y = x * rstd * (1 + w),  rstd = 1 / sqrt(sum(x^2) / N + eps)",
    parameters=(
        Parameter("x", "input", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised"),
        Parameter("epsilon", "eps", Kind.DOUBLE, "added to the mean square; rounded to float32"),
        const_output("yOut", "out", "y: (A…, R…)"),
        const_output("rstdOut", "rstd", "of each row: (A…, 1…)"),
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
        # The vendor's code takes any shape, and writes past the end of one that is too small.
        size_is("rows", lambda call: math.prod(rows_and_columns(call)[0]), "rstdOut"),
        EPSILON_NOT_NEGATIVE,
    ),
    work=_work,
    infer=_infer,
)


def gemma_rms_norm(
    input: ArrayLike, weight: ArrayLike, eps: float = 1e-6, out: Sequence[ArrayLike | None] = (None, None)
) -> tuple[Array, Array]:
    """RMSNorm with a weight of 1 + w over the trailing dimensions, as many as w has: M rows of N columns.

    ``y = x·rstd·(1 + w)`` with ``rstd = 1 / sqrt(Σx²/N + eps)``.

    Args:
        input: x (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (R…), x's data type, of the 950 products also float32.
        eps: added to the mean square, rounded to float32; 0 or more.
        out: where to write y and rstd; new NumPy arrays for None.

    Returns:
        y (A…, R…) in x's data type, rstd (A…, 1…) in float32.

    Raises:
        AclnnError: an argument that aclnnGemmaRmsNorm rejects, with its status code.
    """
    results = arrays.call(GEMMA_RMS_NORM, (input, weight), (eps,), out)
    return results[0], results[1]
