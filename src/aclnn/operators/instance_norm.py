"""aclnnInstanceNorm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    WITHOUT_BFLOAT16,
    dims_between,
    dtype_in,
    limited_dims,
    one_of,
    same_dtype,
    same_shape,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Kind, Operator, Parameter, Reduction, Shape, View, present
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.execution import arrays
from aclnn.formula import Real
from aclnn.operators.normalization import moments
from aclnn.typing import Array, ArrayLike

_STATISTICS = ("mean", "variance")
_TENSORS = ("x", "gamma", "beta", "y", *_STATISTICS)


def instance_normalized(x: Real, w: Real, b: Real, eps: float) -> tuple[Real, Real, Real]:
    """Return (x - mean)·w / sqrt(variance + eps) + b, mean and variance."""
    mean, variance, rstd = moments(x, eps)
    return (x - mean) * rstd * w + b, mean, variance


def _channels_last(call: Call) -> bool:
    return bool(call["dataFormat"] == "NHWC")


def _channels(call: Call) -> Shape:
    shape = call["x"].shape
    return tuple(shape[-1:] if _channels_last(call) else shape[1:2])


def _statistics_shape(call: Call) -> Shape:
    n, c = tuple(call["x"].shape[:1]), _channels(call)
    return (*n, 1, 1, *c) if _channels_last(call) else (*n, *c, 1, 1)


def _work(call: Call) -> Reduction | None:
    if any(call[name].size == 0 for name in _TENSORS):
        return None
    shape, (c,) = call["x"].shape, _channels(call)
    if _channels_last(call):
        x, statistics, parameters, dim = (shape[0], math.prod(shape[1:-1]), c), (shape[0], 1, c), (1, 1, c), 1
    else:
        x, statistics, parameters, dim = (shape[0], c, math.prod(shape[2:])), (shape[0], c, 1), (1, c, 1), 2
    return Reduction(
        instance_normalized,
        (View("x", x), View("gamma", parameters), View("beta", parameters)),
        (View("y", x), *(View(name, statistics) for name in _STATISTICS)),
        (dim,),
        (float32(call["eps"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["x"]
    return {"y": (x.dtype, x.shape)} | dict.fromkeys(_STATISTICS, (x.dtype, _statistics_shape(call)))


INSTANCE_NORM = Operator(
    name="instance_norm",
    function="aclnnInstanceNorm",
    summary="InstanceNorm: normalization of each sample's channels, with the mean and variance of each.",
    formula="y = (x - mean) / sqrt(variance + eps) * w + b,  mean = sum(x) / HW,  variance = sum((x - mean)^2) / HW",
    parameters=(
        Parameter("x", "input", Kind.INPUT, "(N, C, H, W) or (N, H, W, C)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (C)"),
        Parameter("beta", "bias", Kind.INPUT, "b: (C)"),
        Parameter("dataFormat", "data_format", Kind.STRING, '"NCHW" or "NHWC"', c_type="const char *"),
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        Parameter("y", "out", Kind.OUTPUT, "as x"),
        Parameter("mean", "mean", Kind.OUTPUT, "of each sample's channels: (N, C, 1, 1) or (N, 1, 1, C)"),
        Parameter("variance", "variance", Kind.OUTPUT, "of each, divided by HW, without eps: as mean"),
    ),
    support={Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("x", "gamma", "beta", "y", *_STATISTICS, "dataFormat"),
        one_of("dataFormat", "NCHW", "NHWC"),
        dtype_in(WITHOUT_BFLOAT16, "x"),
        *(same_dtype(name, "x") for name in _TENSORS[1:]),
        limited_dims("x"),
        *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
        dims_between(4, 4, "x"),
        dims_between(1, 1, "gamma", "beta"),
        shape_is("[C]", _channels, "gamma"),
        # The vendor detects these in its kernel, if at all; a call with an empty tensor ends before.
        *unless_empty(
            _TENSORS,
            same_shape("y", "x"),
            shape_is("[C]", _channels, "beta"),
            shape_is("a number for each channel", _statistics_shape, *_STATISTICS),
            which="a tensor",
        ),
    ),
    work=_work,
    infer=_infer,
    leaves=True,
)


def instance_norm(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    data_format: str = "NCHW",
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """InstanceNorm: each sample's channels normalised over height and width. Of Atlas inference products only.

    ``y = (x - mean) / sqrt(variance + eps)·w + b``, the variance taken without Bessel's correction.

    Args:
        input: x (N, C, H, W), or (N, H, W, C); float32 or float16. Arrays are NumPy arrays or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (C) in x's data type.
        bias: b (C) in x's data type.
        data_format: "NCHW" or "NHWC", how x lies.
        eps: added to the variance, rounded to float32.
        out: where to write the result, mean and variance; new NumPy arrays for None.

    Returns:
        The result as x, mean and variance (N, C, 1, 1) or (N, 1, 1, C), all in x's data type; zeros where x is empty.

    Raises:
        AclnnError: an argument that aclnnInstanceNorm rejects, with its status code.
    """
    results = arrays.call(INSTANCE_NORM, (input, weight, bias), (data_format, eps), out)
    return results[0], results[1], results[2]
