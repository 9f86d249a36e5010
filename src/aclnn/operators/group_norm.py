"""aclnnGroupNorm and aclnnGroupNormBackward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aclnn.core.checks import (
    MOST_DIMS,
    THREE_MASK_VALUES,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    limited_dims,
    listing,
    on,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    size_is,
)
from aclnn.core.dtypes import DataType, Format, float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Reduction, Shape, Sums, View, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.operators.normalization import Masked, centred_norm, centred_norm_gradients, given
from aclnn.typing import Array, ArrayLike

_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}
_STATISTICS = "meanOut", "rstdOut"
_GRADIENTS = Masked("gradInput", "gradGammaOut", "gradBetaOut")
#: Maximum numbers of channels per group and per sample of the vendor's A2 kernels.
_MOST_OF_A_GROUP, _MOST_CHANNELS = 8000, 240000


def positive_groups(name: str = "group") -> Check:
    """Require at least one group."""
    return rule(f"1 or more: {name}", lambda c: None if c[name] > 0 else f"{name}: expected 1 or more, got {c[name]}")


def _no_negative(call: Call) -> str | None:
    name = next((name for name in ("N", "C", "HxW") if call[name] < 0), None)
    return None if name is None else f"{name}: expected 0 or more, got {call[name]}"


def dividing_groups(channels: Callable[[Call], int], what: str, name: str = "group") -> Check:
    """Require groups of equally many channels; ``what`` names the tensor in error texts."""

    def find(call: Call) -> str | None:
        c, group = channels(call), call[name]
        return None if group and c % group == 0 else f"{name}: expected a divisor of {c} ({what}), got {group}"

    return rule(f"divides C: {name}", find)


def _eps_above_0(call: Call) -> str | None:
    return None if call["eps"] > 0 else f"eps: expected a number above 0, got {call['eps']}"


EPS_ABOVE_0 = rule("above 0: eps", _eps_above_0)
_DIVIDES_C = dividing_groups(lambda call: int(call["C"]), "C")


def _extents_repeated(call: Call) -> str | None:
    shape = call["self"].shape
    for name, extent in (("N", shape[0]), ("C", shape[1]), ("HxW", math.prod(shape[2:]))):
        if call[name] != extent:
            return f"{name}: expected {extent} (of self's {extents(shape)}), got {call[name]}"
    return None


def _channels_second(call: Call, name: str) -> str | None:
    got = call[name].format
    if got not in (Format.FORMAT_NHWC, Format.FORMAT_HWCN, Format.FORMAT_NDHWC):
        return None
    return f"expected a format with channels second, got {got.c_name}"


def _few_channels(call: Call) -> str | None:
    c, of_a_group = call["C"], call["C"] // call["group"]
    if of_a_group > _MOST_OF_A_GROUP:
        return f"C: expected at most {_MOST_OF_A_GROUP} channels a group, got {of_a_group}"
    return None if c <= _MOST_CHANNELS else f"C: expected at most {_MOST_CHANNELS} channels, got {c}"


def _mean_dtype(call: Call, name: str) -> str | None:
    x, got = call["gradOut"].dtype, call[name].dtype
    allowed = dict.fromkeys((x, DataType.FLOAT) if call.product in CLASS_950 else (x,))
    expected = listing(dtype.c_name for dtype in allowed)
    return None if got in allowed else f"expected data type {expected} with gradOut, got {got.c_name}"


def _parameter_shape(call: Call) -> Shape:
    gamma = call["gamma"]
    return (call["C"],) if gamma is None else gamma.shape


def groups(shape: Sequence[int], group: int) -> tuple[Shape, Shape, Shape]:
    """Return the shapes (N, G, C/G, HW) of x, (N, G, 1, 1) of statistics and (1, G, C/G, 1) of parameters."""
    n, c, *space = shape
    return (n, group, c // group, math.prod(space)), (n, group, 1, 1), (1, group, c // group, 1)


def no_groups(call: Call) -> Library | None:
    """Return the work for an empty x: statistics of no elements, if there are any groups."""
    return Library(lambda: (0.0, math.nan), (), _STATISTICS) if call["meanOut"].size else None


def _work(call: Call) -> Reduction | Library | None:
    if call["self"].size == 0:
        return no_groups(call)
    x, statistics, parameters = groups(call["self"].shape, call["group"])
    return Reduction(
        centred_norm,
        (View("self", x), *given(call, parameters, gamma=1.0, beta=0.0)),
        (View("out", x), *(View(name, statistics) for name in _STATISTICS)),
        (2, 3),
        (float32(call["eps"]),),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    x = call["self"]
    return {"out": (x.dtype, x.shape)} | dict.fromkeys(_STATISTICS, (x.dtype, (call["N"], call["group"])))


def _gradient_work(call: Call) -> Reduction | Library | None:
    dx, dgamma, dbeta = _GRADIENTS.outputs(call)
    if call["input"].size == 0:
        sums = [name for name in (dgamma, dbeta) if name and call[name].size]
        return Library(lambda: (0.0,) * len(sums), (), tuple(sums)) if sums else None
    if not _GRADIENTS.wanted(call):
        return None
    x, statistics, parameters = groups((call["N"], call["C"], call["HxW"]), call["group"])
    return Reduction(
        centred_norm_gradients,
        (
            *(View(name, x) for name in ("gradOut", "input")),
            *(View(name, statistics) for name in ("mean", "rstd")),
            *given(call, parameters, gamma=1.0),
        ),
        (dx and View(dx, x), *(name and Sums(View(name, parameters)) for name in (dgamma, dbeta))),
        (2, 3),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    parameter = call["mean"].dtype, _parameter_shape(call)
    described = (call["input"].dtype, call["input"].shape), parameter, parameter
    return _GRADIENTS.of(call, described)


_ATTRIBUTES = (
    Parameter("N", "n", Kind.INT64, "samples"),
    Parameter("C", "c", Kind.INT64, "channels"),
    Parameter("HxW", "hxw", Kind.INT64, "elements of a channel: the product of x's other dimensions"),
    Parameter("group", "group", Kind.INT64, "groups of C / group channels each"),
)

GROUP_NORM = Operator(
    name="group_norm",
    function="aclnnGroupNorm",
    summary="GroupNorm: normalization over groups of channels, with the mean and reciprocal deviation of each.",
    formula="out = (x - mean) * rstd * w + b,  mean = sum(x) / n,  rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)",
    parameters=(
        Parameter("self", "input", Kind.INPUT, "x: (N, C, …)"),
        Parameter("gamma", "weight", Kind.INPUT, "w: (C), ones when null", optional=True),
        Parameter("beta", "bias", Kind.INPUT, "b: (C), zeros when null", optional=True),
        *_ATTRIBUTES,
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance; rounded to float32"),
        Parameter("out", "out", Kind.OUTPUT, "(N, C, …)"),
        Parameter("meanOut", "mean", Kind.OUTPUT, "mean of each sample's groups: (N, group)"),
        Parameter("rstdOut", "rstd", Kind.OUTPUT, "reciprocal standard deviation of each: (N, group)"),
    ),
    support=_SUPPORT | {Product.ATLAS_INFERENCE: WITHOUT_BFLOAT16},
    checks=(
        present("self", "out", *_STATISTICS),
        dtype_in(floating, "self"),
        *(same_dtype(name, "self") for name in ("gamma", "beta", "out", *_STATISTICS)),
        positive_groups(),
        _DIVIDES_C,
        EPS_ABOVE_0,
        dims_between(2, MOST_DIMS, "self"),
        same_shape("out", "self"),
        shape_is("[N, group]", lambda call: (call["N"], call["group"]), *_STATISTICS),
        rule("extents of self: N, C, HxW", _extents_repeated),
        shape_is("[C]", lambda call: (call["C"],), "gamma", "beta"),
        same_format("out", "self"),
        public_format("self"),
        each("format with channels second", ("self",), _channels_second),
    ),
    work=_work,
    infer=_infer,
)

GROUP_NORM_BACKWARD = Operator(
    name="group_norm_backward",
    function="aclnnGroupNormBackward",
    summary="Gradients of GroupNorm for its input, weight and bias, each selected by a mask.",
    formula=(
        "xhat = (x - mean) * rstd,  g = dy * w,  dx = (g - sum(g) / n - xhat * sum(g * xhat) / n) * rstd,  "
        "dw = sum of dy * xhat,  db = sum of dy"
    ),
    parameters=(
        Parameter("gradOut", "grad_out", Kind.INPUT, "dy: N·C·HxW elements in any shape"),
        Parameter("input", "input", Kind.INPUT, "x: N·C·HxW elements in any shape"),
        Parameter("mean", "mean", Kind.INPUT, "mean of each sample's groups: N·group elements"),
        Parameter("rstd", "rstd", Kind.INPUT, "reciprocal standard deviation of each: N·group elements"),
        Parameter("gamma", "weight", Kind.INPUT, "w: C elements, ones when null", optional=True),
        *_ATTRIBUTES,
        Parameter("outputMask", "output_mask", Kind.BOOL_ARRAY, "which of the three gradients to compute"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx: x's shape", optional=True),
        Parameter("gradGammaOut", "grad_weight", Kind.OUTPUT, "dw: w's shape, or (C)", optional=True),
        Parameter("gradBetaOut", "grad_bias", Kind.OUTPUT, "db: w's shape, or (C)", optional=True),
    ),
    support=_SUPPORT,
    checks=(
        present("gradOut", "input", "mean", "rstd", "outputMask"),
        THREE_MASK_VALUES,
        _GRADIENTS.present(),
        dtype_in(floating, "gradOut"),
        same_dtype("input", "gradOut"),
        each("data type of gradOut", ("mean",), _mean_dtype),
        same_dtype("rstd", "mean"),
        same_dtype("gamma", "mean"),
        _GRADIENTS.where_requested(same_dtype("gradInput", "gradOut")),
        *(_GRADIENTS.where_requested(same_dtype(name, "mean")) for name in _GRADIENTS.names[1:]),
        rule("0 or more: N, C, HxW", _no_negative),
        positive_groups(),
        _DIVIDES_C,
        *on(A2_CLASS, rule("few channels: C", _few_channels)),
        limited_dims("gradOut"),
        size_is("N·C·HxW", lambda call: call["N"] * call["C"] * call["HxW"], "gradOut", "input"),
        size_is("N·group", lambda call: call["N"] * call["group"], "mean", "rstd"),
        size_is("C", lambda call: call["C"], "gamma"),
        _GRADIENTS.where_requested(same_shape("gradInput", "input")),
        _GRADIENTS.where_requested(shape_is("gamma's, or [C]", _parameter_shape, *_GRADIENTS.names[1:])),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
    stream_type="const aclrtStream ",
)


def group_norm(
    input: ArrayLike,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array, Array]:
    """GroupNorm, as ``torch.native_group_norm``: each sample's channels normalised in groups.

    ``out = (x - mean)·rstd·w + b`` with ``rstd = 1 / sqrt(var + eps)``, the variance taken without Bessel's correction.

    Args:
        input: x (N, C, …), 2 to 8 dimensions; float32, float16 or bfloat16. Arrays are NumPy arrays or anything on the
            CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        weight: w (C) in x's data type; None for ones.
        bias: b (C) in x's data type; None for zeros.
        n: N.
        c: C.
        hxw: the product of x's other dimensions.
        group: the number of groups, a divisor of C.
        eps: above 0; added to the variance, rounded to float32.
        out: where to write the result, mean and rstd; new NumPy arrays for None.

    Returns:
        The result (N, C, …), mean and rstd (N, group), all in x's data type.

    Raises:
        AclnnError: an argument that aclnnGroupNorm rejects, with its status code.
    """
    results = arrays.call(GROUP_NORM, (input, weight, bias), (n, c, hxw, group, eps), out)
    return results[0], results[1], results[2]


def group_norm_backward(
    grad_out: ArrayLike,
    input: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: Sequence[bool] = (True, True, True),
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array | None, Array | None, Array | None]:
    """Gradients of GroupNorm, as ``torch.ops.aten.native_group_norm_backward``; mean and rstd are used as given.

    ``xhat = (x - mean)·rstd``, ``g = dy·w``, ``dx = (g - Σg/n - xhat·Σ(g·xhat)/n)·rstd`` over the n elements of a
    group; ``dw = Σ dy·xhat`` and ``db = Σ dy`` over samples and a channel's elements.

    Args:
        grad_out: dy, N·C·HxW elements in any shape; float32, float16 or bfloat16. Arrays are NumPy arrays or anything
            on the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        input: x, as many elements in any shape, same data type.
        mean: N·group elements in dy's data type; of the 950 products also float32.
        rstd: reciprocal standard deviations, as many, mean's data type.
        weight: w, C elements in mean's data type; None for ones.
        n: N.
        c: C.
        hxw: the elements of a channel.
        group: the number of groups, a divisor of C.
        output_mask: which of the three gradients to compute.
        out: where to write each wanted gradient; new NumPy arrays for None.

    Returns:
        dx in x's shape, dw and db in w's shape or (C); None for each that is masked out.

    Raises:
        AclnnError: an argument that aclnnGroupNormBackward rejects, with its status code.
    """
    inputs = grad_out, input, mean, rstd, weight
    results = arrays.call(GROUP_NORM_BACKWARD, inputs, (n, c, hxw, group, output_mask), out)
    return results[0], results[1], results[2]
