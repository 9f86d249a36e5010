"""aclnnAddRmsNorm and aclnnInplaceAddRmsNorm: RMSNorm of a sum, which is a result too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    Column,
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    generated,
    limited_dims,
    no_zero_dims,
    nothing_to_write,
    only_if,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter, Reduction, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import (
    EPSILON_NOT_NEGATIVE,
    Rows,
    const_output,
    one_a_row,
    root_mean_square,
    statistic_shape,
    trailing_dims,
)
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16}
_IN_PLACE_OUTPUTS = ("x1Ref", "rstdOut")


def add_norm(x1: Real, x2: Real, w: Real, eps: float) -> tuple[Real, Real, Real]:
    """Return x·rstd·w, rstd and x = x1 + x2."""
    x = x1 + x2
    rstd = root_mean_square(x, eps)
    return x * rstd * w, rstd, x


def _with_rstd(check: Check) -> Check:
    return only_if(check, "with rstdOut", lambda call: call["rstdOut"] is not None)


def _without_rstd(check: Check) -> Check:
    return only_if(check, "without rstdOut", lambda call: call["rstdOut"] is None)


def _one_a_row(call: Call, name: str) -> str | None:
    expected, got = statistic_shape(call, "x1"), call[name]
    if got.shape == expected or (math.prod(expected) == 1 and got.size == 1):
        return None
    return f"expected shape {extents(expected)} (one element a row), got {extents(got.shape)}"


def _reduction(call: Call, terms: tuple[str, str], outputs: tuple[str, str, str], normalized: int) -> Reduction:
    rows, (y, rstd, x) = Rows(call[terms[0]].shape, normalized), outputs
    return Reduction(
        add_norm,
        (*map(rows.all, terms), rows.columns("gamma")),
        (rows.all(y), None if call[rstd] is None else rows.statistic(rstd), None if call[x] is None else rows.all(x)),
        (1,),
        (float32(call["epsilon"]),),
    )


def _work(call: Call) -> Reduction | None:
    if call["x1"].size == 0 or call["gamma"].size == 0:
        return None
    normalized = 1 if call["rstdOut"] is None else len(call["gamma"].shape)
    return _reduction(call, ("x1", "x2"), ("yOut", "rstdOut", "xOut"), normalized)


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["x1"].dtype, call["x1"].shape
    return {"yOut": x, "rstdOut": (DataType.FLOAT, statistic_shape(call, "x1")), "xOut": x}


def _in_place_columns(product: Product) -> list[Column]:
    return [(x, x, x, DataType.FLOAT) for x in _SUPPORT.get(product, ())]


def _in_place_work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _IN_PLACE_OUTPUTS):
        return None
    return _reduction(call, ("x1Ref", "x2Ref"), ("x1Ref", "rstdOut", "x2Ref"), len(call["gamma"].shape))


_GAMMA = Parameter("gamma", "weight", Kind.INPUT, "w: (R…), the dimensions that are normalised")
_EPSILON = Parameter("epsilon", "eps", Kind.DOUBLE, "added to the mean square; rounded to float32")

ADD_RMS_NORM = Operator(
    name="add_rms_norm",
    function="aclnnAddRmsNorm",
    summary="RMSNorm of the sum of two tensors over its trailing dimensions, with that sum.",
    formula="x = x1 + x2,  y = x * rstd * w,  rstd = 1 / sqrt(sum(x^2) / N + eps)",
    parameters=(
        Parameter("x1", "x1", Kind.INPUT, "(A…, R…), M rows of N columns"),
        Parameter("x2", "x2", Kind.INPUT, "(A…, R…)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (R…), which are normalised; (1, N) of the last without rstdOut"),
        _EPSILON,
        Parameter("yOut", "out", Kind.OUTPUT, "y: (A…, R…)"),
        Parameter("rstdOut", "rstd", Kind.OUTPUT, "of each row: (A…, 1…)", optional=True),
        Parameter("xOut", "x", Kind.OUTPUT, "x: (A…, R…); required with rstdOut", optional=True),
    ),
    support=_SUPPORT,
    checks=(
        present("x1", "x2", "gamma", "yOut"),
        _with_rstd(present("xOut")),
        _with_rstd(dtype_in(floating, "x1")),
        _without_rstd(dtype_in(where_supported({DataType.FLOAT16, DataType.BF16}), "x1")),
        same_dtype("x2", "x1"),
        same_dtype("gamma", "x1"),
        same_dtype("yOut", "x1"),
        same_dtype("xOut", "x1"),
        dtype_in({DataType.FLOAT}, "rstdOut"),
        dims_between(1, MOST_DIMS, "x1", "x2", "gamma"),
        same_shape("x2", "x1"),
        same_shape("yOut", "x1"),
        limited_dims("rstdOut"),
        _without_rstd(dims_between(1, 2, "gamma")),
        same_shape("xOut", "x1"),
        *unless_empty(
            ("x1", "gamma"),
            _with_rstd(trailing_dims("x1", "gamma")),
            _without_rstd(shape_is("[1, N]", lambda call: (1, *call["x1"].shape[-1:]), "gamma")),
            EPSILON_NOT_NEGATIVE,
            each("one element a row", ("rstdOut",), _one_a_row),
        ),
    ),
    work=_work,
    infer=_infer,
)

INPLACE_ADD_RMS_NORM = Operator(
    name="inplace_add_rms_norm",
    function="aclnnInplaceAddRmsNorm",
    summary="RMSNorm of the sum of two tensors, which are replaced by the result and the sum.",
    formula="x = x1 + x2,  x1 = x * rstd * w,  x2 = x,  rstd = 1 / sqrt(sum(x^2) / N + eps)",
    parameters=(
        Parameter("x1Ref", "x1", Kind.INPUT, "(A…, R…), replaced by the result", c_type="aclTensor *", updated=True),
        Parameter("x2Ref", "x2", Kind.INPUT, "(A…, R…), replaced by the sum", c_type="aclTensor *", updated=True),
        _GAMMA,
        _EPSILON,
        const_output("rstdOut", "rstd", "of each row: (A…, 1…)"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("x1Ref", "x2Ref", "gamma"),
        ("rstdOut",),
        _in_place_columns,
        dims_between(1, MOST_DIMS, "x1Ref", "gamma"),
        no_zero_dims("x1Ref"),
        same_shape("x2Ref", "x1Ref"),
        trailing_dims("x1Ref", "gamma"),
        one_a_row("x1Ref", "rstdOut"),
        EPSILON_NOT_NEGATIVE,
        written=_IN_PLACE_OUTPUTS,
    ),
    work=_in_place_work,
    infer=lambda call: {"rstdOut": (DataType.FLOAT, statistic_shape(call, "x1Ref"))},
)


def add_rms_norm(
    x1: ArrayLike,
    x2: ArrayLike,
    weight: ArrayLike,
    eps: float = 1e-6,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """RMSNorm of x = x1 + x2 over the trailing dimensions, as many as weight has: M rows of N columns.

    ``y = x·rstd·w`` with ``rstd = 1 / sqrt(Σx²/N + eps)``. The sum is normalised before it is rounded.

    Args:
        x1: (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        x2: (A…, R…), same data type.
        weight: w (R…), same data type.
        eps: added to the mean square, rounded to float32; 0 or more.
        out: where to write y, rstd and x; new NumPy arrays for None.

    Returns:
        y (A…, R…), rstd (A…, 1…) in float32, x (A…, R…).

    Raises:
        AclnnError: an argument that aclnnAddRmsNorm rejects, with its status code.
    """
    results = arrays.call(ADD_RMS_NORM, (x1, x2, weight), (eps,), out)
    return results[0], results[1], results[2]


def inplace_add_rms_norm(
    x1: ArrayLike, x2: ArrayLike, weight: ArrayLike, eps: float = 1e-6, out: ArrayLike | None = None
) -> Array:
    """RMSNorm of x = x1 + x2, written to x1, and x to x2; otherwise ``add_rms_norm``.

    Args:
        x1: (A…, R…), replaced by y; float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        x2: (A…, R…), replaced by x; same data type.
        weight: w (R…), same data type.
        eps: added to the mean square, rounded to float32; 0 or more.
        out: where to write rstd; a new NumPy array by default.

    Returns:
        rstd (A…, 1…) in float32.

    Raises:
        AclnnError: an argument that aclnnInplaceAddRmsNorm rejects, with its status code.
    """
    return arrays.call(INPLACE_ADD_RMS_NORM, (x1, x2, weight), (eps,), (out,))
