"""BatchNorm in steps between which ranks exchange their channels' statistics, as SyncBatchNorm takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    MOST_DIMS,
    dims_between,
    dtype_in,
    extents,
    floating,
    format_is,
    only_if,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format, float32
from aclnn.core.operator import Call, Check, Kind, Library, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import MODERN, WITH_TRAINING, attribute, declared, support, tensor_in, tensor_out

Array = np.ndarray[Any, Any]
_WITHOUT_BF16 = (D.FLOAT, D.FLOAT16)
_RUNNING = ("runningMean", "runningVar")


def _narrow_before_950(product: Product) -> Collection[D]:
    return FLOATING if product in CLASS_950 else _WITHOUT_BF16


def _counts(of: Callable[[Product], Collection[D]]) -> Callable[[Product], Collection[D]]:
    return lambda product: (*of(product), D.INT32)


def _not_const(name: str, meaning: str) -> Parameter:
    """Declare an input that the C prototype does not declare const."""
    return Parameter(name, name, Kind.INPUT, meaning, c_type="aclTensor *")


def _moving(name: str, meaning: str, optional: bool = False) -> Parameter:
    """Declare a running statistic, which is read and updated."""
    return Parameter(name, name, Kind.INPUT, meaning, optional, "aclTensor *", updated=True)


def _channels(call: Call, x: str = "input") -> tuple[int, ...]:
    return call[x].shape[1:2]


def _has_channels(call: Call) -> str | None:
    return None if call["input"].shape[1] else f"input: expected a channel, got shape {extents(call['input'].shape)}"


_OF_X = (dims_between(2, MOST_DIMS, "input"), rule("a channel: input", _has_channels))


def _per_channel(*names: str) -> Check:
    return shape_is("one for each channel", _channels, *names)


def _other_dims(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _beside(x: Array, channels: Array) -> Array:
    """Return per-channel numbers in float64, in a shape that broadcasts with x."""
    return channels.astype(np.float64).reshape(1, -1, *[1] * (x.ndim - 2))


def _stats_work(call: Call) -> Library:
    eps = float32(call["eps"])

    def moments(x: Array) -> tuple[Array, Array]:
        x, dims = x.astype(np.float64), _other_dims(x)
        return x.mean(dims), 1.0 / np.sqrt(x.var(dims) + eps)

    if call["input"].size == 0:
        return Library(lambda: (0.0, math.nan), (), ("mean", "invstd"), on_every_product=True)
    return Library(moments, ("input",), ("mean", "invstd"))


def _given(call: Call, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if call[name] is not None)


def _elemt_work(call: Call) -> Library | None:
    affine = _given(call, "weight", "bias")

    def norm(x: Array, mean: Array, invstd: Array, *given: Array) -> Array:
        factors = {name: _beside(x, values) for name, values in zip(affine, given, strict=True)}
        found = (x - _beside(x, mean)) * _beside(x, invstd) * factors.get("weight", 1.0)
        return np.asarray(found + factors.get("bias", 0.0))

    return Library(norm, ("input", "mean", "invstd", *affine), ("output",)) if call["input"].size else None


def _elemt_backward_work(call: Call) -> Library | None:
    def gradient(dy: Array, x: Array, counter: Array, *of_channels: Array) -> Any:
        count = counter.sum(dtype=np.float64)
        mean, invstd, total, dot, *weight = (_beside(x, each) for each in of_channels)
        scale = invstd * weight[0] if weight else invstd
        return (dy - total / count - (x - mean) * invstd**2 * dot / count) * scale

    names = ("gradOut", "input", "counter", "mean", "invstd", "sumDy", "sumDyXmu", *_given(call, "weight"))
    return Library(gradient, names, ("gradInput",)) if call["input"].size else None


#: The outputs of a channel's sums, by the flag that asks for them.
_ASKED = {"sumDy": "inputG", "sumDyXmu": "inputG", "gradWeight": "weightG", "gradBias": "biasG"}


def _where_asked(check: Callable[..., Check]) -> tuple[Check, ...]:
    return tuple(only_if(check(name), f"with {flag}", itemgetter(flag)) for name, flag in _ASKED.items())


def _reduce_backward_work(call: Call) -> Library | None:
    outputs = tuple(name for name, flag in _ASKED.items() if call[flag])

    def sums(dy: Array, x: Array, mean: Array, invstd: Array) -> tuple[Array, ...]:
        dims = _other_dims(x)
        dy = dy.astype(np.float64)
        total, dot = dy.sum(dims), (dy * (x - _beside(x, mean))).sum(dims)
        found = {"sumDy": total, "sumDyXmu": dot, "gradWeight": dot * invstd, "gradBias": total}
        return tuple(found[name] for name in outputs)

    return Library(sums, ("gradOut", "input", "mean", "invstd"), outputs) if outputs else None


def _moved(call: Call, mean: Array, variance: Array, count: Any, *running: Array) -> tuple[Array, ...]:
    """Return running statistics updated by a batch's mean and unbiased variance."""
    momentum = float32(call["momentum"])
    sample = variance * count / (count - 1)
    return tuple(old + momentum * (new - old) for old, new in zip(running, (mean, sample), strict=False))


def _gather_work(call: Call) -> Library | None:
    eps, running = float32(call["eps"]), _given(call, *_RUNNING)

    def gather(means: Array, invstds: Array, counts: Array, *moved: Array) -> tuple[Array, ...]:
        weights = counts.astype(np.float64).reshape(-1, 1)
        count = weights.sum()
        mean = (weights * means).sum(0) / count
        variances = 1.0 / invstds.astype(np.float64) ** 2 - eps + (means - mean) ** 2
        variance = (weights * variances).sum(0) / count
        return mean, 1.0 / np.sqrt(variance + eps), *_moved(call, mean, variance, count, *moved)

    if call["meanAll"].size == 0:
        return None
    return Library(gather, ("mean", "invstd", "counts", *running), ("meanAll", "invstdAll", *running))


def _gather_sums_work(call: Call) -> Library | None:
    eps = float32(call["eps"])

    def gather(sums: Array, squares: Array, counts: Array, *running: Array) -> tuple[Array, ...]:
        count = counts.astype(np.int32).sum(dtype=np.float64)
        mean = sums.sum(0, dtype=np.float64) / count
        variance = squares.sum(0, dtype=np.float64) / count - mean**2
        return mean, 1.0 / np.sqrt(variance + eps), *_moved(call, mean, variance, count, *running)

    if call["batchMean"].size == 0:
        return None
    names = ("totalSum", "totalSquareSum", "sampleCount", "mean", "variance")
    return Library(gather, names, ("batchMean", "batchInvstd", "mean", "variance"))


def _reduce_work(call: Call) -> Library:
    if call["x"].size == 0:
        return Library(lambda: (0.0, 0.0), (), ("sum", "squareSum"), on_every_product=True)

    def sums(x: Array) -> tuple[Array, Array]:
        x = x.astype(np.float64)
        return x.sum((0, 2, 3)), (x * x).sum((0, 2, 3))

    return Library(sums, ("x",), ("sum", "squareSum"))


def _some_ranks(call: Call) -> str | None:
    got = call["totalSum"].shape
    return None if got[0] else f"totalSum: expected at least 1 row, got shape {extents(got)}"


def _unless_x_is_empty(*checks: Check) -> tuple[Check, ...]:
    return restricted("unless x is empty", lambda call: call["x"].size > 0, *checks)


_step = partial(declared, products=WITH_TRAINING, stream_type="const aclrtStream ")
_X = tensor_in("input", "(N, C, ...)")
_EPS = attribute("eps", Kind.DOUBLE, "the term added to the variance for stability")
_MOMENTUM = attribute("momentum", Kind.DOUBLE, "the momentum: the weight of the batch in the running statistics")
_STATISTICS = (
    tensor_in("mean", "the mean of each channel"),
    tensor_in("invstd", "1 / sqrt(variance + eps) of each channel"),
)
_REDUCED = ("gradOut", "input", "mean", "invstd")
_SUMS, _GATHERED = ("totalSum", "totalSquareSum"), ("mean", "variance", "batchMean", "batchInvstd")

OPERATORS = (
    _step(
        "batch_norm_stats",
        "mean = mean(input), invstd = 1 / sqrt(var(input) + eps), of each channel",
        "Mean and reciprocal standard deviation of each channel.",
        (
            _X,
            _EPS,
            tensor_out("mean", "the mean of each channel"),
            tensor_out("invstd", "the reciprocal standard deviation of each channel"),
        ),
        (
            dtype_in(_narrow_before_950, "input"),
            dtype_in((D.FLOAT,), "mean", "invstd"),
            public_format("input", "mean", "invstd"),
            *_OF_X,
            _per_channel("mean", "invstd"),
        ),
        _stats_work,
    ),
    _step(
        "batch_norm_elemt",
        "output = (input - mean) * invstd * weight + bias",
        "Normalize channels by given statistics.",
        (
            _X,
            Parameter("weight", "weight", Kind.INPUT, "the weight of each channel; null: 1", optional=True),
            Parameter("bias", "bias", Kind.INPUT, "the bias of each channel; null: 0", optional=True),
            _not_const("mean", "the mean of each channel"),
            _not_const("invstd", "the reciprocal standard deviation of each channel"),
            attribute("eps", Kind.DOUBLE, "ignored: included in invstd"),
            tensor_out("output", "the result"),
        ),
        (
            dtype_in(floating, "input", "weight", "bias", "mean", "invstd", "output"),
            public_format("input", "output"),
            *_OF_X,
            same_shape("output", "input"),
            _per_channel("weight", "bias", "mean", "invstd"),
        ),
        _elemt_work,
    ),
    _step(
        "batch_norm_elemt_backward",
        "gradInput = (gradOut - sumDy / n - (input - mean) * invstd^2 * sumDyXmu / n) * invstd * weight, "
        "n = sum(counter)",
        "Gradient of the normalization with respect to the input, from sums over all ranks.",
        (
            tensor_in("gradOut", "dy"),
            _X,
            *_STATISTICS,
            Parameter("weight", "weight", Kind.INPUT, "the weight of each channel; null: 1", optional=True),
            tensor_in("sumDy", "the sum of dy per channel"),
            tensor_in("sumDyXmu", "the sum of dy * (input - mean) per channel"),
            _not_const("counter", "the number of elements per channel on each rank"),
            tensor_out("gradInput", "dx"),
        ),
        (
            dtype_in(floating, "gradOut", "input", "mean", "invstd", "weight", "sumDy", "sumDyXmu"),
            dtype_in((D.FLOAT, D.FLOAT16, D.INT32), "counter"),
            dtype_in(floating, "gradInput"),
            public_format("gradOut", "input", "gradInput"),
            *_OF_X,
            dims_between(0, MOST_DIMS, "counter"),
            same_shape("gradOut", "input"),
            same_shape("gradInput", "input"),
            _per_channel("mean", "invstd", "weight", "sumDy", "sumDyXmu"),
        ),
        _elemt_backward_work,
    ),
    _step(
        "batch_norm_reduce_backward",
        "sumDy = sum(gradOut), sumDyXmu = sum(gradOut * (input - mean)), gradWeight = sumDyXmu * invstd, "
        "gradBias = sumDy",
        "Sums per channel for the gradients.",
        (
            tensor_in("gradOut", "dy"),
            _X,
            *_STATISTICS,
            Parameter("weight", "weight", Kind.INPUT, "ignored", optional=True),
            Parameter("inputG", "input_g", Kind.BOOL, "whether to compute sumDy and sumDyXmu", c_type="const bool "),
            Parameter("weightG", "weight_g", Kind.BOOL, "whether to compute gradWeight", c_type="const bool "),
            Parameter("biasG", "bias_g", Kind.BOOL, "whether to compute gradBias", c_type="const bool "),
            tensor_out("sumDy", "the sum of dy per channel", optional=True),
            tensor_out("sumDyXmu", "the sum of dy * (input - mean) per channel", optional=True),
            tensor_out("gradWeight", "dw", optional=True),
            tensor_out("gradBias", "db", optional=True),
        ),
        (
            present(*_REDUCED),
            *_where_asked(present),
            dtype_in(floating, *_REDUCED),
            same_dtype("gradOut", "input"),
            *_where_asked(lambda name: dtype_in(floating, name)),
            public_format(*_REDUCED),
            *_where_asked(public_format),
            *_OF_X,
            same_shape("gradOut", "input"),
            _per_channel("mean", "invstd"),
            *_where_asked(_per_channel),
        ),
        _reduce_backward_work,
    ),
    _step(
        "batch_norm_gather_stats_with_counts",
        "meanAll, invstdAll: of all ranks' elements together; runningMean, runningVar move towards them by momentum",
        "Mean and reciprocal standard deviation of each channel over all ranks, from each rank's.",
        (
            tensor_in("input", "a tensor with the channels; its values are ignored"),
            tensor_in("mean", "(ranks, C)"),
            tensor_in("invstd", "(ranks, C)"),
            _moving("runningMean", "the running statistic of each channel, updated if given", optional=True),
            _moving("runningVar", "the running statistic of each channel, updated if given", optional=True),
            _MOMENTUM,
            _EPS,
            tensor_in("counts", "the number of elements per channel on each rank"),
            tensor_out("meanAll", "the mean of each channel"),
            tensor_out("invstdAll", "the reciprocal standard deviation of each channel"),
        ),
        (
            dtype_in(floating, "input", "mean", "invstd", *_RUNNING, "counts", "meanAll", "invstdAll"),
            public_format("input", "mean", "invstd"),
            *_OF_X,
            dims_between(2, 2, "mean"),
            shape_is("(ranks, C)", lambda call: (call["mean"].shape[0], *_channels(call)), "mean", "invstd"),
            shape_is("one for each rank", lambda call: call["mean"].shape[:1], "counts"),
            _per_channel(*_RUNNING, "meanAll", "invstdAll"),
        ),
        _gather_work,
    ),
    _step(
        "batch_norm_reduce",
        "sum = sum(x), squareSum = sum(x^2), of each channel",
        "Sums of each channel's elements and of their squares.",
        (
            tensor_in("x", "(N, C, H, W)"),
            tensor_out("sum", "the sum of each channel"),
            tensor_out("squareSum", "the sum of squares of each channel"),
        ),
        (
            *_unless_x_is_empty(
                dtype_in(floating, "x"),
                dtype_in((D.FLOAT,), "sum", "squareSum"),
                format_is(Format.FORMAT_NCHW, "x"),
                dims_between(4, 4, "x"),
                shape_is("one for each channel", lambda call: _channels(call, "x"), "sum", "squareSum"),
            ),
        ),
        _reduce_work,
        products=MODERN,
    ),
    replace(
        _step(
            "sync_batch_norm_gather_stats",
            "batchMean = sum(totalSum) / n, batchInvstd = 1 / sqrt(sum(totalSquareSum) / n - batchMean^2 + eps), "
            "n = sum(sampleCount); mean, variance move towards the batch's by momentum",
            "Mean and reciprocal standard deviation of each channel over all ranks, from each rank's sums.",
            (
                tensor_in("totalSum", "(ranks, C)"),
                tensor_in("totalSquareSum", "(ranks, C)"),
                tensor_in("sampleCount", "the number of elements per channel on each rank"),
                _moving("mean", "the running mean of each channel, updated"),
                _moving("variance", "the running variance of each channel, updated"),
                attribute("momentum", Kind.FLOAT, "the momentum: the weight of the batch in the running statistics"),
                attribute("eps", Kind.FLOAT, "the term added to the variance for stability"),
                tensor_out("batchMean", "the mean of each channel"),
                tensor_out("batchInvstd", "the reciprocal standard deviation of each channel"),
            ),
            (
                dtype_in(_narrow_before_950, *_SUMS),
                dtype_in(_counts(_narrow_before_950), "sampleCount"),
                dtype_in(_narrow_before_950, *_GATHERED),
                same_dtype("totalSquareSum", "totalSum"),
                same_dtype("mean", "totalSum"),
                same_dtype("variance", "totalSum"),
                same_dtype("batchInvstd", "batchMean"),
                public_format(*_SUMS, "sampleCount", "mean", "variance"),
                dims_between(2, 2, "totalSum"),
                same_shape("totalSquareSum", "totalSum"),
                shape_is("one for each rank", lambda call: call["totalSum"].shape[:1], "sampleCount"),
                shape_is("one for each channel", lambda call: call["totalSum"].shape[1:], *_GATHERED),
                rule("a rank: totalSum", _some_ranks),
            ),
            _gather_sums_work,
        ),
        support={**support(_WITHOUT_BF16, A2_CLASS), **support(FLOATING, CLASS_950)},
        stream_type="aclrtStream ",
    ),
)
