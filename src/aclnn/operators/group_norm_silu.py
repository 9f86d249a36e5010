"""aclnnGroupNormSilu and aclnnGroupNormSiluV2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dims_between,
    dtype_in,
    dtype_or_float32,
    each,
    elsewhere,
    extents,
    floating,
    one_dtype,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, Reduction, Shape, View, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, exp
from aclnn.operators.group_norm import EPS_ABOVE_0, dividing_groups, groups, positive_groups
from aclnn.operators.normalization import centred_norm, given
from aclnn.typing import Array, ArrayLike

_STATISTICS = "meanOut", "rstdOut"


def group_norm_swish_forward(x: Real, w: Real, b: Real, eps: float, scale: float) -> tuple[Real, Real, Real]:
    """Return z / (1 + exp(-scale·z)) of the normalized z, mean and rstd."""
    z, mean, rstd = centred_norm(x, w, b, eps)
    return z / (1.0 + exp(-scale * z)), mean, rstd


def _statistic_dtype(call: Call) -> DataType:
    """Return the data type of mean and rstd: x's, but float32 on the 950 class with float32 parameters."""
    given = [call[name].dtype for name in ("gamma", "beta") if call[name] is not None]
    x: DataType = call["self"].dtype
    return DataType.FLOAT if call.product in CLASS_950 and DataType.FLOAT in given else x


def _statistics_dtype(call: Call, name: str) -> str | None:
    expected, got = _statistic_dtype(call), call[name].dtype
    return None if got == expected else f"expected data type {expected.c_name}, got {got.c_name}"


def _channels(call: Call) -> Shape:
    return tuple(call["self"].shape[1:2])


def _some_channels(call: Call, name: str) -> str | None:
    shape = call[name].shape
    return f"expected at least one sample and channel, got {extents(shape)}" if 0 in shape[:2] else None


def _work(call: Call) -> Reduction | Library | None:
    shape, is_950 = call["self"].shape, call.product in CLASS_950
    if math.prod(shape) == 0:
        if shape[0] == 0:
            return None
        mean = math.nan if is_950 else 0.0
        return Library(lambda: (mean, math.nan), (), _STATISTICS, on_every_product=not is_950)
    x, statistics, parameters = groups(shape, call["group"])
    activated = call.arguments.get("activateSilu", True)
    return Reduction(
        group_norm_swish_forward if activated else centred_norm,
        (View("self", x), *given(call, parameters, gamma=1.0, beta=0.0)),
        (View("out", x), *(View(name, statistics) for name in _STATISTICS)),
        (2, 3),
        (float32(call["eps"]), 1.0) if activated else (float32(call["eps"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["self"]
    statistic = _statistic_dtype(call), (*x.shape[:1], call["group"])
    return {"out": (x.dtype, x.shape)} | dict.fromkeys(_STATISTICS, statistic)


GROUP_NORM_SILU = Operator(
    name="group_norm_silu",
    function="aclnnGroupNormSilu",
    summary="GroupNorm followed by SiLU, with the mean and reciprocal deviation of each group.",
    formula="z = (x - mean) * rstd * w + b,  out = z / (1 + exp(-z)),  rstd = 1 / sqrt(var + eps)",
    parameters=(
        Parameter("self", "input", Kind.INPUT, "x: (N, C, …)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (C), ones when null", optional=True),
        Parameter("beta", "bias", Kind.INPUT, "b: (C), zeros when null", optional=True),
        Parameter("group", "group", Kind.INT64, "groups of C / group channels each"),
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        Parameter("out", "out", Kind.OUTPUT, "(N, C, …)"),
        Parameter("meanOut", "mean", Kind.OUTPUT, "mean of each sample's groups: (N, group)"),
        Parameter("rstdOut", "rstd", Kind.OUTPUT, "reciprocal standard deviation of each: (N, group)"),
    ),
    support=dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("self", "out", *_STATISTICS),
        dtype_in(floating, "self", "gamma", "beta"),
        one_dtype("gamma", "beta"),
        dtype_or_float32("self", "gamma", "beta"),
        same_dtype("out", "self"),
        each("data type of statistics", _STATISTICS, _statistics_dtype),
        dims_between(2, MOST_DIMS, "self"),
        same_shape("out", "self"),
        shape_is("[N, group]", lambda call: (call["self"].shape[0], call["group"]), *_STATISTICS),
        shape_is("[C]", _channels, "gamma", "beta"),
        positive_groups(),
        *elsewhere(CLASS_950, each("samples and channels", ("self",), _some_channels)),
        EPS_ABOVE_0,
        dividing_groups(lambda call: int(call["self"].shape[1]), "channels of self"),
    ),
    work=_work,
    infer=_infer,
)

GROUP_NORM_SILU_V2 = replace(
    GROUP_NORM_SILU,
    name="group_norm_silu_v2",
    function="aclnnGroupNormSiluV2",
    summary="GroupNorm, optionally followed by SiLU, with the mean and reciprocal deviation of each group.",
    parameters=(
        *GROUP_NORM_SILU.parameters[:5],
        Parameter("activateSilu", "activate_silu", Kind.BOOL, "false for GroupNorm alone"),
        *GROUP_NORM_SILU.parameters[5:],
    ),
    in_header_of="group_norm_silu",
)


def group_norm_silu(
    input: ArrayLike,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    group: int,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """GroupNorm followed by SiLU: ``out = z / (1 + exp(-z))`` with ``z = (x - mean)·rstd·w + b``.

    Args:
        input: x (N, C, …), 2 to 8 dimensions, N and C at least 1; float32, float16 or bfloat16. Arrays are NumPy arrays
            or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (C), x's data type or float32; None for ones.
        bias: b (C), w's data type; None for zeros.
        group: the number of groups, a divisor of C.
        eps: above 0; added to the variance, rounded to float32.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result (N, C, …) in x's data type, mean and rstd (N, group) in x's data type, too, or, on the 950 products
        with float32 parameters, in float32.

    Raises:
        AclnnError: an argument that aclnnGroupNormSilu rejects, with its status code.
    """
    results = arrays.call(GROUP_NORM_SILU, (input, weight, bias), (group, eps), out)
    return results[0], results[1], results[2]


def group_norm_silu_v2(
    input: ArrayLike,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    group: int,
    eps: float = 1e-5,
    activate_silu: bool = True,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """``group_norm_silu`` whose activation can be switched off.

    Args:
        input: x; all arguments but ``activate_silu`` are as for ``group_norm_silu``.
        weight: w (C) or None.
        bias: b (C) or None.
        group: the number of groups.
        eps: added to the variance.
        activate_silu: False for GroupNorm alone.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result, mean and rstd.

    Raises:
        AclnnError: an argument that aclnnGroupNormSiluV2 rejects, with its status code.
    """
    results = arrays.call(GROUP_NORM_SILU_V2, (input, weight, bias), (group, eps, activate_silu), out)
    return results[0], results[1], results[2]
