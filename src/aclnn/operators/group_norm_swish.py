"""aclnnGroupNormSwish and aclnnGroupNormSwishGrad."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    WITH_BFLOAT16,
    Column,
    dims_between,
    generated,
    no_zero_dims,
    nothing_to_write,
    rule,
    same_shape,
    shape_is,
    size_is,
)
from aclnn.core.dtypes import DataType, float32
from aclnn.core.operator import Call, Kind, Operator, Parameter, Reduction, Shape, Sums, View
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, times
from aclnn.operators.group_norm import dividing_groups, groups, positive_groups
from aclnn.operators.group_norm_silu import group_norm_swish_forward
from aclnn.operators.normalization import centred_norm, centred_norm_gradients, const_output
from aclnn.operators.silu import silu_derivative
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
_OUTPUTS, _GRADIENTS = ("yOut", "meanOut", "rstdOut"), ("dxOut", "dgammaOut", "dbetaOut")
#: Maximum number of channels per group of the vendor's kernel for the gradient.
_MOST_OF_A_GROUP = 4000


def group_norm_swish_gradients(
    dy: Real, x: Real, mean: Real, rstd: Real, w: Real, b: Real, scale: float
) -> tuple[Real, Real, Real]:
    """Return the gradient for x, and each element's contributions to those for w and b."""
    z = (x - mean) * rstd * w + b
    return centred_norm_gradients(times(dy, silu_derivative(scale * z)), x, mean, rstd, w)


def _columns(product: Product) -> list[Column]:
    pairs = [(x, p) for x in _SUPPORT.get(product, ()) for p in dict.fromkeys((x, DataType.FLOAT))]
    return [(x, p, p, x, p, p) for x, p in pairs]


def _gradient_columns(product: Product) -> list[Column]:
    return [(x,) * 9 for x in _SUPPORT.get(product, ())]


def _channels(call: Call) -> Shape:
    return tuple(call["x"].shape[1:2])


def _channel_count(call: Call) -> int:
    return next(iter(_channels(call)), 0)


def _statistics_shape(call: Call) -> Shape:
    return (*call["x"].shape[:1], call["numGroups"])


def _few_channels(call: Call) -> str | None:
    of_a_group = _channel_count(call) // (call["numGroups"] or 1)
    if of_a_group <= _MOST_OF_A_GROUP:
        return None
    return f"x: expected at most {_MOST_OF_A_GROUP} channels a group, got {of_a_group}"


def _work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _OUTPUTS):
        return None
    x, statistics, parameters = groups(call["x"].shape, call["numGroups"])
    numbers = float32(call["eps"]), float32(call["swishScale"])
    return Reduction(
        group_norm_swish_forward if call["activateSwish"] else centred_norm,
        (View("x", x), View("gamma", parameters), View("beta", parameters)),
        (View("yOut", x), View("meanOut", statistics), View("rstdOut", statistics)),
        (2, 3),
        numbers if call["activateSwish"] else numbers[:1],
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    statistic = call["gamma"].dtype, _statistics_shape(call)
    return {"yOut": (call["x"].dtype, call["x"].shape), "meanOut": statistic, "rstdOut": statistic}


def _gradient_work(call: Call) -> Reduction | None:
    if nothing_to_write(call, _GRADIENTS):
        return None
    x, statistics, parameters = groups(call["x"].shape, call["numGroups"])
    required = ("dgammaOut", call["dgammaIsRequire"]), ("dbetaOut", call["dbetaIsRequire"])
    return Reduction(
        group_norm_swish_gradients,
        (
            *(View(name, x) for name in ("dy", "x")),
            *(View(name, statistics) for name in ("mean", "rstd")),
            *(View(name, parameters) for name in ("gamma", "beta")),
        ),
        (View("dxOut", x), *(Sums(View(name, parameters)) if wanted else None for name, wanted in required)),
        (2, 3),
        (float32(call["swishScale"]),),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    parameter = call["gamma"].dtype, call["gamma"].shape
    return {"dxOut": (call["x"].dtype, call["x"].shape), "dgammaOut": parameter, "dbetaOut": parameter}


_GROUPS = (
    Parameter("numGroups", "num_groups", Kind.INT64, "groups of C / numGroups channels each"),
    Parameter("dataFormatOptional", "data_format", Kind.STRING, "ignored", optional=True),
)
_SCALE = Parameter("swishScale", "swish_scale", Kind.DOUBLE, "k, factor of z in the exponent; rounded to float32")
_CHANNELS = shape_is("[C]", _channels, "gamma", "beta")
_DIVIDES_C = dividing_groups(_channel_count, "channels of x", "numGroups")

GROUP_NORM_SWISH = Operator(
    name="group_norm_swish",
    function="aclnnGroupNormSwish",
    summary="GroupNorm, optionally followed by Swish, with the mean and reciprocal deviation of each group.",
    formula="z = (x - mean) * rstd * w + b,  y = z / (1 + exp(-k * z)),  rstd = 1 / sqrt(var + eps)",
    parameters=(
        Parameter("x", "input", Kind.INPUT, "(N, C, …)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (C)"),
        Parameter("beta", "bias", Kind.INPUT, "b: (C)"),
        *_GROUPS,
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        Parameter("activateSwish", "activate_swish", Kind.BOOL, "false for GroupNorm alone"),
        _SCALE,
        const_output("yOut", "out", "y: (N, C, …)"),
        const_output("meanOut", "mean", "mean of each sample's groups: (N, numGroups)"),
        const_output("rstdOut", "rstd", "reciprocal standard deviation of each: (N, numGroups)"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("x", "gamma", "beta"),
        _OUTPUTS,
        _columns,
        dims_between(2, MOST_DIMS, "x"),
        _CHANNELS,
        positive_groups("numGroups"),
        _DIVIDES_C,
        no_zero_dims("x"),
        # The vendor's code does not check outputs, and writes past the end of one that is too small.
        same_shape("yOut", "x"),
        size_is("N·numGroups", lambda call: math.prod(_statistics_shape(call)), "meanOut", "rstdOut"),
    ),
    work=_work,
    infer=_infer,
)

GROUP_NORM_SWISH_GRAD = Operator(
    name="group_norm_swish_grad",
    function="aclnnGroupNormSwishGrad",
    summary="Gradients of GroupNorm followed by Swish for its input, weight and bias.",
    formula=(
        "xhat = (x - mean) * rstd,  z = xhat * w + b,  s = 1 / (1 + exp(-k * z)),  "
        "dz = dy * s * (1 + k * z * (1 - s)),  g = dz * w,  "
        "dx = (g - sum(g) / n - xhat * sum(g * xhat) / n) * rstd,  dw = sum of dz * xhat,  db = sum of dz"
    ),
    parameters=(
        Parameter("dy", "grad_out", Kind.INPUT, "(N, C, …)"),
        Parameter("mean", "mean", Kind.INPUT, "mean of each sample's groups: (N, numGroups)"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal standard deviation of each: (N, numGroups)"),
        Parameter("x", "input", Kind.INPUT, "(N, C, …)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (C)"),
        Parameter("beta", "bias", Kind.INPUT, "b: (C)"),
        *_GROUPS,
        _SCALE,
        Parameter("dgammaIsRequire", "grad_weight_required", Kind.BOOL, "false: dw is not written"),
        Parameter("dbetaIsRequire", "grad_bias_required", Kind.BOOL, "false: db is not written"),
        const_output("dxOut", "grad_input", "dx: (N, C, …)"),
        const_output("dgammaOut", "grad_weight", "dw: C elements"),
        const_output("dbetaOut", "grad_bias", "db: C elements"),
    ),
    support=_SUPPORT,
    checks=generated(
        ("dy", "mean", "rstd", "x", "gamma", "beta"),
        _GRADIENTS,
        _gradient_columns,
        dims_between(2, MOST_DIMS, "x"),
        same_shape("dy", "x"),
        positive_groups("numGroups"),
        shape_is("[N, numGroups]", _statistics_shape, "mean", "rstd"),
        _CHANNELS,
        _DIVIDES_C,
        no_zero_dims("x"),
        rule("few channels: x", _few_channels),
        # The vendor's code does not check outputs.
        same_shape("dxOut", "x"),
        size_is("C", _channel_count, "dgammaOut", "dbetaOut"),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
    leaves=True,
)


def group_norm_swish(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    num_groups: int,
    data_format: str | None = "NCHW",
    eps: float = 1e-5,
    activate_swish: bool = True,
    swish_scale: float = 1.0,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """GroupNorm followed by Swish: ``y = z / (1 + exp(-k·z))`` with ``z = (x - mean)·rstd·w + b``.

    Args:
        input: x (N, C, …), 2 to 8 dimensions, none of them 0; float32, float16 or bfloat16. Arrays are NumPy arrays or
            anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (C), x's data type or float32.
        bias: b (C), w's data type.
        num_groups: the number of groups, a divisor of C.
        data_format: ignored.
        eps: added to the variance, rounded to float32.
        activate_swish: False for GroupNorm alone.
        swish_scale: k, any number, rounded to float32; 1 for SiLU.
        out: where to write y, mean and rstd; new NumPy arrays for None.

    Returns:
        y (N, C, …) in x's data type, mean and rstd (N, num_groups) in w's.

    Raises:
        AclnnError: an argument that aclnnGroupNormSwish rejects, with its status code.
    """
    attributes = num_groups, data_format, eps, activate_swish, swish_scale
    results = arrays.call(GROUP_NORM_SWISH, (input, weight, bias), attributes, out)
    return results[0], results[1], results[2]


def group_norm_swish_grad(
    grad_out: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    num_groups: int,
    data_format: str | None = "NCHW",
    swish_scale: float = 1.0,
    grad_weight_required: bool = True,
    grad_bias_required: bool = True,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """Gradients of GroupNorm followed by Swish: those of GroupNorm with ``dz = dy·s·(1 + k·z·(1 - s))`` for dy.

    ``z = (x - mean)·rstd·w + b`` and ``s = 1 / (1 + exp(-k·z))``; mean and rstd are used as given.

    Args:
        grad_out: dy (N, C, …), 2 to 8 dimensions, none of them 0; float32, float16 or bfloat16. Arrays are NumPy arrays
            or anything on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        mean: mean of each sample's groups: (N, num_groups), dy's data type, as all further arrays.
        rstd: reciprocal standard deviation of each: (N, num_groups).
        input: x (N, C, …).
        weight: w (C).
        bias: b (C).
        num_groups: the number of groups, a divisor of C; at most 4,000 channels each.
        data_format: ignored.
        swish_scale: k, any number, rounded to float32.
        grad_weight_required: False if dw is not wanted; a new array for it is zeros then.
        grad_bias_required: False if db is not wanted, likewise.
        out: where to write dx, dw and db; new NumPy arrays for None.

    Returns:
        dx (N, C, …), dw and db (C).

    Raises:
        AclnnError: an argument that aclnnGroupNormSwishGrad rejects, with its status code.
    """
    inputs = grad_out, mean, rstd, input, weight, bias
    attributes = num_groups, data_format, swish_scale, grad_weight_required, grad_bias_required
    results = arrays.call(GROUP_NORM_SWISH_GRAD, inputs, attributes, out)
    return results[0], results[1], results[2]
