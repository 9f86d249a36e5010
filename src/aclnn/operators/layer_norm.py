"""aclnnLayerNorm, its variants, and aclnnLayerNormBackward: its gradients for input, weight and bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from aclnn.core.checks import (
    MOST_DIMS,
    THREE_MASK_VALUES,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dtype_in,
    each,
    extents,
    floating,
    has_zero,
    limited_dims,
    on,
    one_dtype,
    rule,
    same_dtype,
    same_shape,
)
from aclnn.core.dtypes import DataType
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
    present,
)
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.execution import arrays
from aclnn.operators.normalization import centred_norm, given
from aclnn.typing import Array, ArrayLike

_OUTPUTS = ("gradInputOut", "gradWeightOut", "gradBiasOut")


def _rows_and_columns(call: Call) -> tuple[Shape, Shape]:
    """Return the shapes [A…] and [R…] into which input's dimensions split."""
    split = len(call["input"].shape) - len(call["normalizedShape"])
    shape = call["input"].shape
    return shape[:split], shape[split:]


def _requested(call: Call, names: Sequence[str] = _OUTPUTS) -> list[str]:
    mask = dict(zip(_OUTPUTS, call["outputMask"], strict=False))  # its length has not been checked yet
    return [name for name in names if mask.get(name)]


def _requested_outputs_present(call: Call) -> str | None:
    missing = next((name for name in _requested(call) if call[name] is None), None)
    if missing is None:
        return None
    return f"{missing}: expected a tensor (outputMask[{_OUTPUTS.index(missing)}] is true), got null"


def _weight_dtype(call: Call, name: str) -> str | None:
    mine, theirs = call[name].dtype, call["input"].dtype
    if mine in (DataType.FLOAT, theirs):
        return None
    either = "" if theirs == DataType.FLOAT else "ACL_FLOAT or "
    return f"expected data type {either}{theirs.c_name} (that of input), got {mine.c_name}"


def _normalized_is_limited(call: Call) -> str | None:
    size = len(call["normalizedShape"])
    return None if size <= MOST_DIMS else f"normalizedShape: expected at most {MOST_DIMS} dimensions, got {size}"


def _requested_are_limited(call: Call) -> str | None:
    return limited_dims(*_requested(call)).violation(call)


def _normalized_at_least_1(call: Call) -> str | None:
    return None if len(call["normalizedShape"]) else "normalizedShape: expected at least 1 dimension, got 0"


def _ranks_at_least_1(call: Call) -> str | None:
    for name in ("mean", "rstd", *_requested(call)):
        if not call[name].shape:
            return f"{name}: expected at least 1 dimension, got 0"
    return None


def _rank_covers_normalized(call: Call) -> str | None:
    rank, size = len(call["input"].shape), len(call["normalizedShape"])
    return None if rank >= size else f"input: expected at least {size} dimensions (as normalizedShape), got {rank}"


def _trailing_dims(call: Call) -> str | None:
    expected, got = tuple(call["normalizedShape"]), _rows_and_columns(call)[1]
    return None if got == expected else f"input: expected trailing dimensions {extents(expected)}, got {extents(got)}"


def _shape_is_normalized(call: Call, name: str) -> str | None:
    expected, got = tuple(call["normalizedShape"]), call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (normalizedShape), got {extents(got)}"


def _one_mean_a_row(call: Call) -> str | None:
    rows, got = math.prod(_rows_and_columns(call)[0]), call["mean"].size
    return None if got == rows else f"mean: expected {rows} elements (one a row of input), got {got}"


def _input_gradient_shape(call: Call) -> str | None:
    return same_shape("gradInputOut", "input").violation(call) if call["outputMask"][0] else None


def _parameter_gradient_sizes(call: Call) -> str | None:
    columns = math.prod(_rows_and_columns(call)[1])
    for name in _requested(call, _OUTPUTS[1:]):
        if call[name].size != columns:
            return f"{name}: expected {columns} elements (one a column of input), got {call[name].size}"
    return None


def _work(call: Call) -> LayerNormBackward | None:
    rows, columns = map(math.prod, _rows_and_columns(call))
    if not _requested(call) or columns == 0:
        return None
    return LayerNormBackward(
        inputs=("gradOut", "input", "mean", "rstd", None if call["weightOptional"] is None else "weightOptional"),
        outputs=tuple(name if wanted else None for name, wanted in zip(_OUTPUTS, call["outputMask"], strict=True)),
        normalized_dims=len(call["normalizedShape"]),
        on_every_product=rows == 0,
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    weight = call["weightOptional"]
    parameter = (call["input"].dtype if weight is None else weight.dtype), _rows_and_columns(call)[1]
    shapes = (call["input"].dtype, call["input"].shape), parameter, parameter
    return {name: shapes[_OUTPUTS.index(name)] for name in _requested(call)}


_KEEP_FLOAT16 = 2
_IMPL_MODES = (0, 1, _KEEP_FLOAT16)

#: Maximum row length of aclnnFastLayerNorm's kernel.
_MOST_COLUMNS = 583_705_600

_FORWARD_TENSORS = ("input", "out", "weightOptional", "biasOptional", "meanOutOptional", "rstdOutOptional")
_STATISTICS = ("meanOutOptional", "rstdOutOptional")


def _rank_is_normalized(call: Call, name: str) -> str | None:
    size, rank = len(call["normalizedShape"]), len(call[name].shape)
    return None if rank == size else f"expected {size} dimensions (as normalizedShape), got {rank}"


def _statistic_shape(call: Call, name: str) -> str | None:
    rows, columns = _rows_and_columns(call)
    expected, got = rows + (1,) * len(columns), call[name].shape
    if got == expected:
        return None
    return f"expected shape {extents(expected)} (input's, 1 where it is normalised), got {extents(got)}"


def _statistic_shape_or_empty(call: Call, name: str) -> str | None:
    return None if call[name].size == 0 else _statistic_shape(call, name)


def _statistic_size(call: Call, name: str) -> str | None:
    rows, got = math.prod(_rows_and_columns(call)[0]), call[name].size
    # A symbolic number of rows can be compared with itself, but not with 0.
    return None if rows in (got, 0) else f"expected {rows} elements (one a row of input), got {got}"


def _known_mode(call: Call) -> str | None:
    mode = call["implMode"]
    return None if mode in _IMPL_MODES else f"implMode: expected 0, 1 or 2, got {mode}"


def _float16_mode(call: Call, name: str) -> str | None:
    got = call[name].dtype
    if call["implMode"] != _KEEP_FLOAT16 or got == DataType.FLOAT16:
        return None
    return f"expected data type ACL_FLOAT16 (implMode is {_KEEP_FLOAT16}), got {got.c_name}"


def _columns_are_limited(call: Call) -> str | None:
    rows, columns = map(math.prod, _rows_and_columns(call))
    if columns <= _MOST_COLUMNS or rows == 0:
        return None
    return f"normalizedShape: expected at most {_MOST_COLUMNS} elements in a row, got {columns}"


def _forward_work(call: Call) -> Reduction | Library | None:
    rows, columns = _rows_and_columns(call)
    wanted = {name: number for name, number in zip(_STATISTICS, (0.0, math.nan), strict=True) if call[name] is not None}
    if has_zero(rows) or (has_zero(columns) and not wanted):
        return None
    if has_zero(columns):
        return Library(lambda: (*wanted.values(),), (), (*wanted,), on_every_product=True)
    one_a_row = rows + (1,) * len(columns)
    return Reduction(
        centred_norm,
        ("input", *given(call, columns, weightOptional=1.0, biasOptional=0.0)),
        ("out", *(View(name, one_a_row) if name in wanted else None for name in _STATISTICS)),
        tuple(range(len(rows), len(one_a_row))),
        (call["eps"],),
    )


def _forward_on_gpu(call: Call) -> LayerNorm | None:
    rows, columns = map(math.prod, _rows_and_columns(call))
    _, _, weight, bias, *statistics = (name if call[name] is not None else None for name in _FORWARD_TENSORS)
    if rows == 0 or (columns == 0 and not any(statistics)):
        return None
    return LayerNorm(
        inputs=("input", weight, bias),
        outputs=("out", *statistics),
        normalized_dims=len(call["normalizedShape"]),
        eps=call["eps"],
        on_every_product=columns == 0,
    )


def _forward_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    rows, columns = _rows_and_columns(call)
    statistic = DataType.FLOAT, rows + (1,) * len(columns)  # float32 preserves precision for the backward operator
    shapes = (call["input"].dtype, call["input"].shape), statistic, statistic
    return dict(zip(("out", *_STATISTICS), shapes, strict=True))


_FORWARD_CHECKS = (
    present("input", "normalizedShape", "out"),
    dtype_in(floating, "input", "weightOptional"),
    each("data type of input or float32", ("weightOptional",), _weight_dtype),
    dtype_in(floating, "biasOptional"),
    each("data type of input or float32", ("biasOptional",), _weight_dtype),
    one_dtype("weightOptional", "biasOptional"),
    dtype_in(floating, "out", *_STATISTICS),
    limited_dims(*_FORWARD_TENSORS),
    rule(f"at most {MOST_DIMS} dimensions: normalizedShape", _normalized_is_limited),
    rule("at least 1 dimension: normalizedShape", _normalized_at_least_1),
    rule("rank of input covers normalizedShape", _rank_covers_normalized),
    each("rank of normalizedShape", ("weightOptional", "biasOptional"), _rank_is_normalized),
    rule("trailing dimensions of input", _trailing_dims),
    each("shape is normalizedShape", ("weightOptional", "biasOptional"), _shape_is_normalized),
    same_shape("out", "input"),
)
# The vendor's code would write past the end of an output that is too small.
_ROOM_FOR_STATISTICS = each("room for every row's statistic", _STATISTICS, _statistic_size)

LAYER_NORM = Operator(
    name="layer_norm",
    function="aclnnLayerNorm",
    summary="LayerNorm over the trailing dimensions, with the mean and reciprocal standard deviation of each row.",
    formula="out = (x - mean) * rstd * w + b,  mean = sum(x) / N,  rstd = 1 / sqrt(sum((x - mean)^2) / N + eps)",
    parameters=(
        Parameter("input", "input", Kind.INPUT, "x: (A…, R…), M rows of N columns"),
        Parameter("normalizedShape", "normalized_shape", Kind.INT_ARRAY, "R…, the dimensions that are normalised"),
        Parameter("weightOptional", "weight", Kind.INPUT, "w: (R…), ones when null", optional=True),
        Parameter("biasOptional", "bias", Kind.INPUT, "b: (R…), zeros when null", optional=True),
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance"),
        Parameter("out", "out", Kind.OUTPUT, "(A…, R…)"),
        Parameter("meanOutOptional", "mean", Kind.OUTPUT, "mean of each row: (A…, 1…)", optional=True),
        Parameter("rstdOutOptional", "rstd", Kind.OUTPUT, "reciprocal standard deviation of each row", optional=True),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
    | dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        *_FORWARD_CHECKS,
        *on(CLASS_950, each("one statistic a row", _STATISTICS, _statistic_shape_or_empty)),
        _ROOM_FOR_STATISTICS,
    ),
    work=_forward_work,
    infer=_forward_infer,
    gpu_work=_forward_on_gpu,
)

LAYER_NORM_WITH_IMPL_MODE = replace(
    LAYER_NORM,
    name="layer_norm_with_impl_mode",
    function="aclnnLayerNormWithImplMode",
    summary="LayerNorm with a choice of precision; every mode computes the same here.",
    parameters=(
        *LAYER_NORM.parameters,
        Parameter("implMode", "impl_mode", Kind.INT32, "0 high precision, 1 high performance, 2 keep float16"),
    ),
    checks=(
        *LAYER_NORM.checks,
        rule("known mode: implMode", _known_mode),
        each("float16 for implMode 2", ("input", "weightOptional", "biasOptional"), _float16_mode),
    ),
    in_header_of="layer_norm",
)

FAST_LAYER_NORM = replace(
    LAYER_NORM,
    name="fast_layer_norm",
    function="aclnnFastLayerNorm",
    summary="LayerNorm whose sums a device may add in another order; computed like LayerNorm here.",
    support=dict.fromkeys(A2_CLASS, WITH_BFLOAT16),
    checks=(
        *_FORWARD_CHECKS,
        same_dtype("out", "input"),
        each("one statistic a row", _STATISTICS, _statistic_shape),
        rule(f"at most {_MOST_COLUMNS} columns: normalizedShape", _columns_are_limited, ACLNN_ERR_INNER_NULLPTR),
    ),
    in_header_of="layer_norm",
)

LAYER_NORM_BACKWARD = Operator(
    name="layer_norm_backward",
    function="aclnnLayerNormBackward",
    summary="Gradients of LayerNorm for its input, weight and bias, each selected by a mask.",
    formula=(
        "xhat = (x - mean) * rstd,  g = dy * w,  dx = (g - sum(g) / N - xhat * sum(g * xhat) / N) * rstd,  "
        "dw = sum over rows of dy * xhat,  db = sum over rows of dy"
    ),
    parameters=(
        Parameter("gradOut", "grad_out", Kind.INPUT, "dy: (A…, R…), M rows of N columns"),
        Parameter("input", "input", Kind.INPUT, "x: (A…, R…)"),
        Parameter("normalizedShape", "normalized_shape", Kind.INT_ARRAY, "R…, the dimensions that are normalised"),
        Parameter("mean", "mean", Kind.INPUT, "mean of each row: (A…, 1…) or any shape with M elements"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal standard deviation of each row, shaped like mean"),
        Parameter("weightOptional", "weight", Kind.INPUT, "w: (R…), ones when null", optional=True),
        Parameter("biasOptional", "bias", Kind.INPUT, "(R…); its values are never used", optional=True),
        Parameter("outputMask", "output_mask", Kind.BOOL_ARRAY, "which of the three gradients to compute"),
        Parameter("gradInputOut", "grad_input", Kind.OUTPUT, "dx: (A…, R…)", optional=True),
        Parameter("gradWeightOut", "grad_weight", Kind.OUTPUT, "dw: N elements", optional=True),
        Parameter("gradBiasOut", "grad_bias", Kind.OUTPUT, "db: N elements", optional=True),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        present("gradOut", "input", "normalizedShape", "mean", "rstd", "outputMask"),
        THREE_MASK_VALUES,
        rule("requested outputs present", _requested_outputs_present, ACLNN_ERR_PARAM_NULLPTR),
        dtype_in(floating, "gradOut", "input", "mean", "rstd"),
        same_dtype("gradOut", "input"),
        dtype_in(floating, "weightOptional"),
        each("data type of input or float32", ("weightOptional",), _weight_dtype),
        dtype_in(floating, "biasOptional"),
        dtype_in(floating, *_OUTPUTS),
        limited_dims("gradOut", "input", "mean", "rstd"),
        rule(f"at most {MOST_DIMS} dimensions: normalizedShape", _normalized_is_limited),
        rule(f"at most {MOST_DIMS} dimensions: outputs", _requested_are_limited),
        rule("at least 1 dimension: normalizedShape", _normalized_at_least_1),
        rule("at least 1 dimension: mean, rstd, outputs", _ranks_at_least_1),
        rule("rank of input covers normalizedShape", _rank_covers_normalized),
        # The vendor's loop compares only some of the dimensions; the document requires all of them.
        rule("trailing dimensions of input", _trailing_dims),
        limited_dims("weightOptional"),
        each("shape is normalizedShape", ("weightOptional",), _shape_is_normalized),
        limited_dims("biasOptional"),
        each("shape is normalizedShape", ("biasOptional",), _shape_is_normalized),
        same_shape("gradOut", "input"),
        same_shape("mean", "rstd"),
        rule("one mean a row", _one_mean_a_row),
        rule("same shape as input: gradInputOut", _input_gradient_shape),
        rule("one gradient a column: gradWeightOut, gradBiasOut", _parameter_gradient_sizes),
    ),
    work=_work,
    infer=_infer,
)


def layer_norm(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """LayerNorm over the trailing ``normalized_shape`` dimensions: M rows of N columns.

    ``out = (x - mean)·rstd·w + b`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without Bessel's correction.

    Args:
        input: x (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        normalized_shape: R…
        weight: w (R…), float32 or x's data type; None for ones.
        bias: b (R…), weight's data type; None for zeros.
        eps: added to the variance.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result (A…, R…) in x's data type, mean and rstd (A…, 1…) in float32.

    Raises:
        AclnnError: an argument that aclnnLayerNorm rejects, with its status code.
    """
    results = arrays.call(LAYER_NORM, (input, weight, bias), (normalized_shape, eps), out)
    return results[0], results[1], results[2]


def layer_norm_with_impl_mode(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    impl_mode: int = 0,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """``layer_norm`` with a choice of precision: all modes compute in at least float32 and round once.

    Args:
        input: x; all arguments but ``impl_mode`` are as for ``layer_norm``.
        normalized_shape: R…
        weight: w (R…) or None.
        bias: b (R…) or None.
        eps: added to the variance.
        impl_mode: 0 high precision, 1 high performance, 2 keep float16, which demands float16 input, weight and bias.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result, mean and rstd.

    Raises:
        AclnnError: an argument that aclnnLayerNormWithImplMode rejects, with its status code.
    """
    attributes = normalized_shape, eps, impl_mode
    results = arrays.call(LAYER_NORM_WITH_IMPL_MODE, (input, weight, bias), attributes, out)
    return results[0], results[1], results[2]


def fast_layer_norm(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """``layer_norm`` of the A2 and A3 products alone, at most 583,705,600 elements in a row.

    Args:
        input: x; all arguments are as for ``layer_norm``.
        normalized_shape: R…
        weight: w (R…) or None.
        bias: b (R…) or None.
        eps: added to the variance.
        out: where to write the result, in x's data type, mean and rstd; new NumPy arrays for None.

    Returns:
        The result, mean and rstd.

    Raises:
        AclnnError: an argument that aclnnFastLayerNorm rejects, with its status code.
    """
    results = arrays.call(FAST_LAYER_NORM, (input, weight, bias), (normalized_shape, eps), out)
    return results[0], results[1], results[2]


def layer_norm_backward(
    grad_out: ArrayLike,
    input: ArrayLike,
    normalized_shape: Sequence[int],
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    output_mask: Sequence[bool] = (True, True, True),
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array | None, Array | None, Array | None]:
    """Gradients of LayerNorm over the trailing ``normalized_shape`` dimensions: M rows of N columns.

    ``xhat = (x - mean)·rstd``, ``g = dy·w``, ``dx = (g - Σg/N - xhat·Σ(g·xhat)/N)·rstd``, ``dw = Σ dy·xhat`` and
    ``db = Σ dy`` over the rows. mean and rstd are used as given.

    Args:
        grad_out: dy (A…, R…); float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        input: x (A…, R…), same data type.
        normalized_shape: R…
        mean: one value a row: (A…, 1…) or any shape with M elements.
        rstd: reciprocal standard deviation of each row, shaped like mean.
        weight: w (R…), float32 or x's data type; None for ones.
        bias: (R…); its values are never used.
        output_mask: which of the three gradients to compute.
        out: where to write each wanted gradient; new NumPy arrays for None.

    Returns:
        dx (A…, R…), dw (R…), db (R…); None for each that is masked out.

    Raises:
        AclnnError: an argument that aclnnLayerNormBackward rejects, with its status code.
    """
    inputs = grad_out, input, mean, rstd, weight, bias
    results = arrays.call(LAYER_NORM_BACKWARD, inputs, (normalized_shape, output_mask), out)
    return results[0], results[1], results[2]
