"""aclnnBatchNorm, aclnnBatchNormBackward and aclnnFastBatchNormBackward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    MOST_DIMS,
    THREE_MASK_VALUES,
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    dims_between,
    dtype_in,
    dtype_or_float32,
    each,
    extents,
    floating,
    listing,
    on,
    only_if,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    unless_empty,
)
from aclnn.core.dtypes import DataType, Format, float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Reduction, Shape, View, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR
from aclnn.execution import arrays
from aclnn.formula import Real, row_sum, sqrt
from aclnn.operators.normalization import Masked, given, input_gradient, moments
from aclnn.typing import Array, ArrayLike

_MODERN = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16)
_SAVED, _RUNNING = ("saveMean", "saveInvstd"), ("runningMean", "runningVar")
_GRADIENTS = Masked("gradInput", "gradWeight", "gradBias")
_VIDEO_RANK = 5


def batch_norm_training(
    x: Real, w: Real, b: Real, running_mean: Real, running_var: Real, eps: float, momentum: float, bessel: float
) -> tuple[Real, ...]:
    """Return result, mean, biased variance, 1/sqrt(variance + eps), and the updated running statistics."""
    mean, variance, rstd = moments(x, eps)
    moved_mean = running_mean + momentum * (mean - running_mean)
    moved_var = running_var + momentum * (variance * bessel - running_var)
    return (x - mean) * rstd * w + b, mean, variance, rstd, moved_mean, moved_var


def batch_norm_inference(x: Real, w: Real, b: Real, mean: Real, variance: Real, eps: float) -> Real:
    """Return (x - mean) / sqrt(variance + eps)·w + b."""
    return (x - mean) * (1.0 / sqrt(variance + eps)) * w + b


def _training_gradients(dy: Real, x: Real, w: Real, mean: Real, rstd: Real) -> tuple[Real, Real, Real]:
    xhat = (x - mean) * rstd
    return input_gradient(dy, xhat, rstd * w), row_sum(dy * xhat), row_sum(dy)


def batch_norm_gradients_of_rstd(
    dy: Real, x: Real, w: Real, mean: Real, rstd: Real, eps: float
) -> tuple[Real, Real, Real]:
    """Return the gradients for x, w and b in training, given the reciprocal standard deviation."""
    return _training_gradients(dy, x, w, mean, rstd)


def batch_norm_gradients(dy: Real, x: Real, w: Real, mean: Real, variance: Real, eps: float) -> tuple[Real, Real, Real]:
    """Return the gradients for x, w and b in training, given the variance."""
    return _training_gradients(dy, x, w, mean, 1.0 / sqrt(variance + eps))


def batch_norm_inference_gradients(
    dy: Real, x: Real, w: Real, mean: Real, variance: Real, eps: float
) -> tuple[Real, Real, Real]:
    """Return the gradients for x, w and b in evaluation, where mean and variance do not depend on x."""
    rstd = 1.0 / sqrt(variance + eps)
    return w * rstd * dy, row_sum(dy * ((x - mean) * rstd)), row_sum(dy)


def _channels_last(call: Call) -> bool:
    """Return True if channels are the input's last dimension, as some formats imply on the 950 class."""
    x, known = call["input"], {4: Format.FORMAT_NHWC, _VIDEO_RANK: Format.FORMAT_NDHWC}
    return call.product in CLASS_950 and known.get(len(x.shape)) == x.format


def _channels(call: Call) -> Shape:
    """Return the shape [C]."""
    shape = call["input"].shape
    return (shape[-1],) if _channels_last(call) else tuple(shape[1:2])


def _split(call: Call) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Return the shapes of x and of per-channel numbers, and the dimensions along which a channel's elements lie."""
    shape = call["input"].shape
    if _channels_last(call):
        return (math.prod(shape[:-1]), shape[-1]), (1, shape[-1]), (0,)
    return (shape[0], shape[1], math.prod(shape[2:])), (1, shape[1], 1), (0, 2)


def _video_format(call: Call, name: str) -> str | None:
    allowed = [Format.FORMAT_NCDHW, *([Format.FORMAT_NDHWC] if call.product in CLASS_950 else [])]
    rank, got = len(call[name].shape), call[name].format
    if rank != _VIDEO_RANK or got in allowed:
        return None
    return f"expected format {listing(a.c_name for a in allowed)} for {rank} dimensions, got {got.c_name}"


def _video(*names: str) -> Check:
    return each("format of 5 dimensions", names, _video_format)


def _training(check: Check) -> Check:
    return only_if(check, "training", lambda call: call["training"])


def _work(call: Call) -> Reduction | Library | None:
    if call["input"].size == 0:
        empty = {name: value for name, value in zip(_SAVED, (0.0, math.nan), strict=True) if call[name] is not None}
        return Library(lambda: tuple(empty.values()), (), tuple(empty), on_every_product=True) if empty else None
    x, channel, dims = _split(call)
    operands = (View("input", x), *given(call, channel, weight=1.0, bias=0.0, runningMean=0.0, runningVar=1.0))
    eps = float32(call["eps"])
    if not call["training"]:
        return Reduction(batch_norm_inference, operands, (View("output", x),), dims, (eps,))
    mean, second = (View(name, channel) for name in _SAVED)
    n = math.prod(x[dim] for dim in dims)
    alone = math.nan if call.product in CLASS_950 else 1.0
    return Reduction(
        batch_norm_training,
        operands,
        (
            View("output", x),
            mean,
            *((None, second) if call.product in CLASS_950 else (second, None)),
            *(None if call[name] is None else View(name, channel) for name in _RUNNING),
        ),
        dims,
        (eps, float32(call["momentum"]), n / (n - 1) if n > 1 else alone),
    )


def _infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    found = {"output": (call["input"].dtype, call["input"].shape)}
    return found | dict.fromkeys(_SAVED, (DataType.FLOAT, _channels(call))) if call["training"] else found


def _gradient_work(call: Call) -> Reduction | None:
    if call["input"].size == 0 or call["gradOut"].size == 0 or not _GRADIENTS.wanted(call):
        return None
    x, channel, dims = _split(call)
    formula: Callable[..., tuple[Real, Real, Real]]
    if not call["training"]:
        statistics, formula = given(call, channel, runningMean=0.0, runningVar=1.0), batch_norm_inference_gradients
    else:
        statistics = given(call, channel, saveMean=0.0, saveInvstd=1.0)
        formula = batch_norm_gradients_of_rstd if call.product in CLASS_950 else batch_norm_gradients
    dx, dw, db = _GRADIENTS.outputs(call)
    return Reduction(
        formula,
        (View("gradOut", x), View("input", x), *given(call, channel, weight=1.0), *statistics),
        (dx and View(dx, x), dw and View(dw, channel), db and View(db, channel)),
        dims,
        (float32(call["eps"]),),
    )


def _gradient_infer(call: Call) -> dict[str, tuple[DataType, Shape]]:
    parameter = (DataType.FLOAT if call["weight"] is None else call["weight"].dtype), _channels(call)
    described = (call["input"].dtype, call["input"].shape), parameter, parameter
    return _GRADIENTS.of(call, described)


def _mask_not_empty(call: Call) -> str | None:
    return None if call["outputMask"] else "outputMask: expected 3 values, got none"


def _saved_shape(call: Call, name: str) -> str | None:
    expected, got = _channels(call), call[name].shape
    if got == expected or (got == (0,) and not call["training"]):  # PyTorch passes the latter
        return None
    return f"expected shape {extents(expected)} ([C]), got {extents(got)}"


def _same_dtype_if_given(name: str, other: str) -> Check:
    return only_if(same_dtype(name, other), f"with {other}", lambda call: call[other] is not None)


def _running(name: str, python_name: str, meaning: str) -> Parameter:
    return Parameter(name, python_name, Kind.INPUT, meaning, optional=True, c_type="aclTensor *", updated=True)


_KNOWN_PRODUCT = replace(KERNEL_OF_THE_PRODUCT, code=ACLNN_ERR_PARAM_INVALID)
_PARAMETERS = ("weight", "bias", *_RUNNING)

BATCH_NORM = Operator(
    name="batch_norm",
    function="aclnnBatchNorm",
    summary="BatchNorm: normalization of each channel, by the batch's statistics in training, else by running ones.",
    formula=(
        "out = (x - mean) / sqrt(var + eps) * w + b;  in training running_mean = (1 - m) * running_mean + m * mean,  "
        "running_var = (1 - m) * running_var + m * var * n / (n - 1)"
    ),
    parameters=(
        Parameter("input", "input", Kind.INPUT, "x: (N, C, …)"),
        Parameter("weight", "weight", Kind.INPUT, "w: (C), ones when null", optional=True),
        Parameter("bias", "bias", Kind.INPUT, "b: (C), zeros when null", optional=True),
        _running("runningMean", "running_mean", "running mean: (C), zeros when null; updated in training"),
        _running("runningVar", "running_var", "running variance: (C), ones when null; updated in training"),
        Parameter("training", "training", Kind.BOOL, "true for the batch's statistics"),
        Parameter("momentum", "momentum", Kind.DOUBLE, "m, the weight of the batch's statistics"),
        Parameter("eps", "eps", Kind.DOUBLE, "added to the variance"),
        Parameter("output", "out", Kind.OUTPUT, "(N, C, …)"),
        Parameter("saveMean", "save_mean", Kind.OUTPUT, "the batch's mean: (C); written in training", optional=True),
        Parameter(
            "saveInvstd",
            "save_invstd",
            Kind.OUTPUT,
            "1 / sqrt(var + eps) on the 950 products, var on all others: (C); written in training",
            optional=True,
        ),
    ),
    support=_MODERN | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), WITHOUT_BFLOAT16),
    checks=(
        present("input", "output"),
        _training(present(*_SAVED)),
        *unless_empty(
            ("input",),
            _KNOWN_PRODUCT,
            dtype_in(floating, "input", "output"),
            _training(dtype_in(floating, *_SAVED)),
            same_dtype("output", "input"),
            dtype_in(floating, *_PARAMETERS),
            same_format("output", "input"),
            _video("input", "output"),
            public_format("input", "output"),
            dims_between(2, MOST_DIMS, "input", "output"),
            same_shape("output", "input"),
            shape_is("[C]", _channels, *_PARAMETERS),
            _training(shape_is("[C]", _channels, *_SAVED)),
        ),
    ),
    work=_work,
    infer=_infer,
)


def _gradient_checks(*on_950: Check, video: tuple[Check, ...] = ()) -> tuple[Check, ...]:
    where_requested = _GRADIENTS.where_requested
    return (
        present("gradOut", "input"),
        *unless_empty(
            ("input", "gradOut"),
            present("outputMask"),
            rule("mask values", _mask_not_empty, ACLNN_ERR_PARAM_NULLPTR),
            THREE_MASK_VALUES,
            _GRADIENTS.present(),
            dtype_in(floating, "gradOut", "input"),
            same_dtype("input", "gradOut"),
            where_requested(dtype_in(floating, *_GRADIENTS.names)),
            dtype_in(floating, "weight", *_RUNNING, *_SAVED),
            *on_950,
            same_format("gradOut", "input"),
            where_requested(same_format("gradInput", "gradOut")),
            *video,
            public_format("gradOut", "input"),
            dims_between(2, MOST_DIMS, "input", "gradOut"),
            same_shape("gradOut", "input"),
            where_requested(same_shape("gradInput", "input")),
            shape_is("[C]", _channels, "weight", *_RUNNING),
            each("shape is [C], or [0] outside of training", _SAVED, _saved_shape),
            where_requested(shape_is("[C]", _channels, *_GRADIENTS.names[1:])),
        ),
    )


BATCH_NORM_BACKWARD = Operator(
    name="batch_norm_backward",
    function="aclnnBatchNormBackward",
    summary="Gradients of BatchNorm for its input, weight and bias, each selected by a mask.",
    formula=(
        "xhat = (x - mean) * rstd,  dw = sum(dy * xhat),  db = sum(dy),  "
        "dx = w * rstd * (dy - db / n - xhat * dw / n) in training,  else w * rstd * dy"
    ),
    parameters=(
        Parameter("gradOut", "grad_out", Kind.INPUT, "dy: (N, C, …)"),
        Parameter("input", "input", Kind.INPUT, "x: (N, C, …)"),
        Parameter("weight", "weight", Kind.INPUT, "w: (C), ones when null", optional=True),
        Parameter("runningMean", "running_mean", Kind.INPUT, "mean outside of training: (C)", optional=True),
        Parameter("runningVar", "running_var", Kind.INPUT, "variance outside of training: (C)", optional=True),
        Parameter("saveMean", "save_mean", Kind.INPUT, "mean in training: (C)", optional=True),
        Parameter("saveInvstd", "save_invstd", Kind.INPUT, "what the forward saved: (C)", optional=True),
        Parameter("training", "training", Kind.BOOL, "true if the batch's statistics were used"),
        Parameter("eps", "eps", Kind.DOUBLE, "added to a variance"),
        Parameter("outputMask", "output_mask", Kind.BOOL_ARRAY, "which of the three gradients to compute"),
        Parameter("gradInput", "grad_input", Kind.OUTPUT, "dx: (N, C, …)", optional=True),
        Parameter("gradWeight", "grad_weight", Kind.OUTPUT, "dw: (C)", optional=True),
        Parameter("gradBias", "grad_bias", Kind.OUTPUT, "db: (C)", optional=True),
    ),
    support=_MODERN | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16},
    checks=_gradient_checks(
        *on(
            CLASS_950,
            dtype_or_float32("gradOut", "weight", *_RUNNING, *_SAVED),
            _same_dtype_if_given("runningVar", "runningMean"),
            _same_dtype_if_given("saveInvstd", "saveMean"),
            _GRADIENTS.where_requested(same_dtype("gradInput", "gradOut")),
            _GRADIENTS.where_requested(dtype_or_float32("weight", *_GRADIENTS.names[1:])),
            _GRADIENTS.where_requested(_same_dtype_if_given("gradBias", "gradWeight")),
        ),
        video=on(CLASS_950, _video("input", "gradOut")),
    ),
    work=_gradient_work,
    infer=_gradient_infer,
    stream_type="const aclrtStream ",
)

_GIVEN = BATCH_NORM_BACKWARD.parameters
_MASK = _GIVEN.index(BATCH_NORM_BACKWARD.parameter("outputMask"))

FAST_BATCH_NORM_BACKWARD = replace(
    BATCH_NORM_BACKWARD,
    name="fast_batch_norm_backward",
    function="aclnnFastBatchNormBackward",
    summary="BatchNorm's gradients with a choice of algorithm; every version computes the same here.",
    parameters=(
        *_GIVEN[: _MASK + 1],
        Parameter("version", "version", Kind.INT32, "ignored", c_type="int "),
        *_GIVEN[_MASK + 1 :],
    ),
    support=dict.fromkeys((Product.ATLAS_A2,), WITH_BFLOAT16),
    checks=_gradient_checks(),
)


def batch_norm(
    input: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array, Array | None, Array | None]:
    """BatchNorm, as ``torch.native_batch_norm``: each channel normalised over samples and space.

    ``out = (x - mean) / sqrt(var + eps)·w + b``: in training by the batch's mean and variance (without Bessel's
    correction), towards which the running statistics then move: ``running_mean`` becomes
    ``(1 - momentum)·running_mean + momentum·mean``, likewise ``running_var`` with ``var·n/(n - 1)``. Otherwise by the
    running statistics.

    Args:
        input: x (N, C, …), 2 to 8 dimensions but 5, which need a format that arrays do not have; float32, float16 or
            bfloat16. Arrays are NumPy arrays or anything on the CPU with ``__dlpack__`` or ``__array_interface__``;
            any strides.
        weight: w (C), one of these data types, like all arrays below; None for ones.
        bias: b (C); None for zeros.
        running_mean: (C), updated in training; None for zeros.
        running_var: (C), updated in training; None for ones.
        training: True for the batch's statistics.
        momentum: the weight of the batch's statistics in the running ones, rounded to float32.
        eps: added to the variance, rounded to float32.
        out: where to write the result and what is saved; new NumPy arrays for None.

    Returns:
        The result in x's data type and shape, and in training the batch's mean and, on the 950 products,
        ``1 / sqrt(var + eps)``, on all others the variance (both (C), float32); None otherwise.

    Raises:
        AclnnError: an argument that aclnnBatchNorm rejects, with its status code.
    """
    inputs = input, weight, bias, running_mean, running_var
    results = arrays.call(BATCH_NORM, inputs, (training, momentum, eps), out)
    return results[0], results[1], results[2]


def batch_norm_backward(
    grad_out: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    save_mean: ArrayLike | None = None,
    save_invstd: ArrayLike | None = None,
    training: bool = False,
    eps: float = 1e-5,
    output_mask: Sequence[bool] = (True, True, True),
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array | None, Array | None, Array | None]:
    """Gradients of BatchNorm, as ``torch.ops.aten.native_batch_norm_backward``.

    ``xhat = (x - mean)·rstd``, ``dw = Σ dy·xhat`` and ``db = Σ dy`` over samples and space (n elements of each
    channel), ``dx = w·rstd·(dy - db/n - xhat·dw/n)`` in training and ``w·rstd·dy`` otherwise.

    Args:
        grad_out: dy (N, C, …), 2 to 8 dimensions; float32, float16 or bfloat16. Arrays are NumPy arrays or anything on
            the CPU with ``__dlpack__`` or ``__array_interface__``; any strides.
        input: x, same shape and data type.
        weight: w (C), one of these data types, like all arrays below; None for ones.
        running_mean: (C), the mean outside of training; None for zeros.
        running_var: (C), the variance outside of training; None for ones.
        save_mean: (C), the mean in training; None for zeros.
        save_invstd: (C), what ``batch_norm`` saved: rstd on the 950 products, the variance on all others; None for
            ones.
        training: True if the batch's statistics were used.
        eps: added to a variance, rounded to float32.
        output_mask: which of the three gradients to compute.
        out: where to write each wanted gradient; new NumPy arrays for None.

    Returns:
        dx in x's data type and shape, dw and db (C) in w's data type (float32 without w); None for each that is masked
        out. Of empty tensors dw and db are not written.

    Raises:
        AclnnError: an argument that aclnnBatchNormBackward rejects, with its status code.
    """
    inputs = grad_out, input, weight, running_mean, running_var, save_mean, save_invstd
    results = arrays.call(BATCH_NORM_BACKWARD, inputs, (training, eps, output_mask), out)
    return results[0], results[1], results[2]


def fast_batch_norm_backward(
    grad_out: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    save_mean: ArrayLike | None = None,
    save_invstd: ArrayLike | None = None,
    training: bool = False,
    eps: float = 1e-5,
    output_mask: Sequence[bool] = (True, True, True),
    version: int = 0,
    out: Sequence[ArrayLike | None] = (None, None, None),
) -> tuple[Array | None, Array | None, Array | None]:
    """``batch_norm_backward`` of the A2 products alone, with a choice of algorithm that makes no difference here.

    Args:
        grad_out: dy; all arguments but ``version`` are as for ``batch_norm_backward``.
        input: x.
        weight: w (C) or None.
        running_mean: (C) or None.
        running_var: (C) or None.
        save_mean: (C) or None.
        save_invstd: the variance (C) or None.
        training: True if the batch's statistics were used.
        eps: added to a variance.
        output_mask: which of the three gradients to compute.
        version: ignored.
        out: where to write each wanted gradient; new NumPy arrays for None.

    Returns:
        dx, dw and db; None for each that is masked out.

    Raises:
        AclnnError: an argument that aclnnFastBatchNormBackward rejects, with its status code.
    """
    inputs = grad_out, input, weight, running_mean, running_var, save_mean, save_invstd
    results = arrays.call(FAST_BATCH_NORM_BACKWARD, inputs, (training, eps, output_mask, version), out)
    return results[0], results[1], results[2]
