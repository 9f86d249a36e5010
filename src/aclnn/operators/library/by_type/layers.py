"""Operators of layers that have a type in CANN's graphs but no ``aclnn`` function, as used by MindSpore.

Channels are the second dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dtype_in,
    extents,
    limited_dims,
    rule,
    same_dtype,
    shape_is,
    size_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.operators.library.by_type.declaration import plain_attribute, typed
from aclnn.operators.library.common import MODERN, add_rows, expect_within, support, tensor_in, tensor_out
from aclnn.operators.library.convolution.convolution import Windows
from aclnn.operators.library.creation.drawing import generator_of, mask_bytes, masked, random_bits
from aclnn.operators.library.vision.pooling import maxima, scattered

Array = np.ndarray[Any, Any]
Shape = Callable[[Call], Sequence[int]]

#: Epsilon of LayerNorm's gradient in its kernel, whatever the forward operator used.
_LAYER_NORM_GRADIENT = 1e-12


def _as(name: str) -> Shape:
    return lambda call: call[name].shape


def _operator(
    op_type: str,
    formula: str,
    inputs: str,
    outputs: Mapping[str, Shape],
    function: Callable[..., Any],
    attributes: Mapping[str, Kind] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> Operator:
    """Declare an operator whose function takes the inputs, then the attributes.

    Args:
        op_type: the type, which is also the name.
        formula: formula as text.
        inputs: names of the inputs.
        outputs: names of the outputs, with their required shapes.
        function: function of arrays, with 16-bit types as float32.
        attributes: names and kinds of the attributes.
        shapes: required shapes of inputs.
    """
    attributes, names = attributes or {}, inputs.split()
    return typed(
        op_type,
        formula,
        (
            *(tensor_in(name, "an input") for name in names),
            *(plain_attribute(name, kind) for name, kind in attributes.items()),
            *map(tensor_out, outputs),
        ),
        (
            dtype_in(where_supported(FLOATING), *names, *outputs),
            limited_dims(*names),
            *(shape_is("the input", shape, name) for name, shape in (shapes or {}).items()),
            *(shape_is("the result", shape, name) for name, shape in outputs.items()),
        ),
        function,
        FLOATING,
    )


def _rows(name: str) -> Shape:
    """Return the shape of one number per normalized row of x."""

    def shape(call: Call) -> Sequence[int]:
        x, first = call["x"].shape, call["begin_norm_axis"] % max(1, len(call["x"].shape))
        return *x[:first], *[1] * (len(x) - first)

    return shape


def _layer_norm(x: Array, gamma: Array, beta: Array, first: int, epsilon: float) -> tuple[Array, Array, Array]:
    axes = tuple(range(first % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (wide - mean) / np.sqrt(variance + epsilon) * gamma + beta, mean, variance


def _layer_norm_gradient(dy: Array, x: Array, variance: Array, mean: Array, gamma: Array) -> tuple[Array, Array, Array]:
    rank = gamma.ndim
    rows, columns = tuple(range(x.ndim - rank)), tuple(range(x.ndim - rank, x.ndim))
    inverse = 1 / np.sqrt(variance.astype(np.float64) + _LAYER_NORM_GRADIENT)
    normalized, scaled = (x - mean) * inverse, dy * gamma.astype(np.float64)
    centre = scaled.mean(columns, keepdims=True) + normalized * (scaled * normalized).mean(columns, keepdims=True)
    return (scaled - centre) * inverse, (dy * normalized).sum(rows), dy.sum(rows, dtype=np.float64)


def _elements(x: Array) -> int:
    """Return the number of elements per channel."""
    return x.size // x.shape[1]


def _of_channels(values: Array, x: Array) -> Array:
    return values.reshape(-1, *[1] * (x.ndim - 2)).astype(np.float64)


def _sums(x: Array, *factors: Array) -> list[Array]:
    """Return the sums of x, and of x times each factor, over a channel's elements."""
    axes = (0, *range(2, x.ndim))
    wide = x.astype(np.float64)
    return [wide.sum(axes), *((wide * factor).sum(axes) for factor in factors)]


def _normalized(x: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    return (x - _of_channels(mean, x)) / np.sqrt(_of_channels(variance, x) + epsilon)


def _batch_sums(x: Array) -> tuple[Array, Array]:
    total, squares = _sums(x, x)
    return total, squares


def _batch_norm(
    x: Array,
    sums: Array,
    squares: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    factor: float,
    epsilon: float,
) -> tuple[Array, ...]:
    count = _elements(x)
    batch_mean = sums.astype(np.float64) / count
    batch_variance = np.maximum(0, squares / count - batch_mean * batch_mean)
    y = _normalized(x, batch_mean, batch_variance, epsilon) * _of_channels(scale, x) + _of_channels(offset, x)
    unbiased = batch_variance * (count / max(1, count - 1))
    running = mean + factor * (batch_mean - mean), variance + factor * (unbiased - variance)
    return y, *running, batch_mean, batch_variance


def _batch_norm_sums(grads: Array, x: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
    offset, scale = _sums(grads, _normalized(x, mean, variance, epsilon))
    return scale, offset


def _batch_norm_gradient(
    grads: Array,
    x: Array,
    diff_scale: Array,
    diff_offset: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
) -> Array:
    inverse = _of_channels(scale, x) / np.sqrt(_of_channels(variance, x) + epsilon)
    sums = _normalized(x, mean, variance, epsilon) * _of_channels(diff_scale, x) + _of_channels(diff_offset, x)
    return np.asarray((grads - sums / _elements(x)) * inverse)


def _inferred(x: Array, scale: Array, offset: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    return _normalized(x, mean, variance, epsilon) * _of_channels(scale, x) + _of_channels(offset, x)


def _windows(x: Sequence[int], ksize: Sequence[int], strides: Sequence[int], padding: str) -> Windows:
    """Return windows over the last two dimensions: only complete ones (VALID) or one per step (SAME)."""
    margins = []
    for n, k, s in zip(x[2:], ksize[2:], strides[2:], strict=True):
        missing = max(0, (-(-n // s) - 1) * s + k - n) if padding == "SAME" else 0
        margins.append((missing // 2, missing - missing // 2))
    return Windows(tuple(ksize[2:]), tuple(strides[2:]), tuple(margins), (1,) * len(margins))


def _extents(call: Call, name: str) -> Sequence[int]:
    """Return a tensor's shape, or a shape given as an attribute."""
    return getattr(call[name], "shape", call[name])


def _pooled(of: str) -> Shape:
    def shape(call: Call) -> Sequence[int]:
        x = _extents(call, of)
        return *x[:2], *_windows(x, call["ksize"], call["strides"], call["padding"]).counts(x[2:])

    return shape


def _planes(call: Call) -> str | None:
    name = next(each for each in ("x", "x1", "orig_input_shape") if each in call.arguments)
    rank = len(_extents(call, name))
    if rank != 4:
        return f"{name}: expected 4 dimensions, got {rank}"
    for attribute in ("ksize", "strides"):
        found = call[attribute]
        if len(found) != 4 or tuple(found[:2]) != (1, 1) or min(found) < 1:
            return f"{attribute}: expected 4 numbers from 1, the first two of them 1, got {list(found)}"
    if call["padding"] not in ("SAME", "VALID"):
        return f"padding: expected SAME or VALID, got {call['padding']}"
    return None


def _pooling(
    op_type: str,
    formula: str,
    inputs: str,
    shape: Shape,
    function: Callable[..., Array],
    gradient: Mapping[str, Shape] | None = None,
    more: Mapping[str, Kind] | None = None,
) -> Operator:
    """Declare an operator on windows; shapes are checked after its attributes have been found valid."""
    attributes = {**(more or {}), "ksize": Kind.INT_ARRAY, "strides": Kind.INT_ARRAY, "padding": Kind.STRING}
    made = _operator(op_type, formula, inputs, {"y": shape}, function, attributes, gradient)
    first = next(place for place, check in enumerate(made.checks) if "shape is" in check.name)
    checks = (*made.checks[:first], rule("windows: ksize, strides, padding", _planes), *made.checks[first:])
    return replace(made, checks=checks)


def _max_pool(x: Array, *attributes: Any) -> Array:
    windows = _windows(x.shape, *attributes)
    return np.asarray(maxima(x, windows, windows.counts(x.shape[2:]))[0])


def _max_pool_gradient(x1: Array, x2: Array, grad: Array, *attributes: Any) -> Array:
    windows = _windows(x1.shape, *attributes)
    return np.asarray(scattered(grad, x1, maxima(x1, windows, x2.shape[2:])[1]))


def _inside(shape: Sequence[int], windows: Windows, count: Sequence[int]) -> Array:
    """Return the number of elements inside each window."""
    ones = np.ones((1, 1, *shape[2:]))
    axes = tuple(range(1 + len(windows.kernel)))
    return np.asarray(windows.columns(ones, count).sum(axes))


def _average_pool(x: Array, *attributes: Any) -> Array:
    windows = _windows(x.shape, *attributes)
    count = windows.counts(x.shape[2:])
    axes = tuple(range(1, 1 + len(windows.kernel)))
    return np.asarray(
        windows.columns(x.astype(np.float64), count).sum(axes).swapaxes(0, 1) / _inside(x.shape, windows, count)
    )


def _average_pool_gradient(input_grad: Array, shape: Sequence[int], *attributes: Any) -> Array:
    windows = _windows(shape, *attributes)
    count = input_grad.shape[2:]
    shares = (input_grad / _inside(shape, windows, count)).swapaxes(0, 1)
    places = (len(shares), *windows.kernel, *shares.shape[1:])
    spread = np.broadcast_to(np.expand_dims(shares, tuple(range(1, 1 + len(windows.kernel)))), places)
    return np.asarray(windows.sums(spread, shape[2:]))


def _slice_gradient(dy: Array, shape: Sequence[int], *bounds: Sequence[int]) -> Array:
    y = np.zeros(shape, dy.dtype)
    y[tuple(slice(first, first + count * step, step) for first, count, step in zip(*bounds, strict=True))] = dy
    return y


def _added(*tensors: Array) -> Array:
    return np.asarray(sum(tensors[1:], tensors[0]))


def _alike(call: Call) -> str | None:
    expected = f"{call['y'].dtype.name} {extents(call['y'].shape)}"
    if not call["x"]:
        return "x: expected at least one tensor, got none"
    for place, tensor in enumerate(call["x"]):
        got = f"{tensor.dtype.name} {extents(tensor.shape)}"
        if got != expected:
            return f"x[{place}]: expected {expected} (as y), got {got}"
    return None


def _segment_sums(x: Array, ids: Array, count: int) -> Array:
    """Sum the slices of x by segment ID; negative IDs are skipped."""
    parts = x.reshape(ids.size, x.size // max(1, ids.size))
    y = np.zeros((count, parts.shape[1]))
    expect_within("segment_ids", ids, -ids.size, count - 1)
    taken = ids.reshape(-1) >= 0
    add_rows(y, ids.reshape(-1)[taken], parts[taken])
    return y.reshape(count, *x.shape[ids.ndim :])


def _descended(parameters: Array, gradient: Array, *given: Any) -> tuple[Array, Array, Array]:
    """Return parameters, momentum and state after a step; a positive state marks the first step."""
    rate, accum, momentum, stat, dampening, weight_decay, nesterov = given
    share, step = _one(momentum), gradient + weight_decay * parameters
    if share > 0:
        accum = np.where(stat > 0, step, accum * share + (1 - dampening) * step)
        stat, step = np.zeros_like(stat), step + accum * share if nesterov else accum
    return parameters - _one(rate) * step, accum, stat


def _moved(var: Array, accum: Array, lr: Array, grad: Array, momentum: Array, nesterov: bool) -> tuple[Array, Array]:
    rate, share = _one(lr), _one(momentum)
    accum = accum * share + grad
    return var - rate * (grad + accum * share if nesterov else accum), accum


def _one(values: Array) -> Array:
    return values.reshape(())


def _root_mean_square(
    var: Array, ms: Array, mom: Array, lr: Array, rho: Array, momentum: Array, epsilon: Array, grad: Array
) -> tuple[Array, Array, Array]:
    ms = ms + (1 - _one(rho)) * (grad * grad - ms)
    mom = _one(momentum) * mom + _one(lr) * grad / np.sqrt(ms + _one(epsilon))
    return var - mom, ms, mom


def _adaptive(var: Array, accum: Array, lr: Array, grad: Array) -> tuple[Array, Array]:
    accum = accum + grad * grad
    return var - _one(lr) * grad / np.sqrt(accum), accum


def _decayed_adam(grad: Array, v: Array, m: Array, var: Array, *numbers: Array) -> tuple[Array, Array, Array]:
    """Return moments and parameters after a step of Adam with weight decay and without bias correction."""
    rate, beta1, rest1, beta2, rest2, decay, epsilon = map(_one, numbers)
    v, m = grad * grad * rest2 + v * beta2, m * beta1 + grad * rest1
    return v, m, var - rate * (m / (np.sqrt(v) + epsilon) + var * decay)


_EPSILON = {"epsilon": Kind.DOUBLE}

LAYER_NORM = _operator(
    "LayerNorm",
    "y = (x - mean) / sqrt(variance + epsilon) * gamma + beta",
    "x gamma beta",
    {"y": _as("x"), "mean": _rows("x"), "variance": _rows("x")},
    _layer_norm,
    {"begin_norm_axis": Kind.INT64} | _EPSILON,
)
LAYER_NORM_GRAD = _operator(
    "LayerNormGrad",
    "the gradients of LayerNorm",
    "dy x variance mean gamma",
    {"pd_x": _as("x"), "pd_gamma": _as("gamma"), "pd_beta": _as("gamma")},
    _layer_norm_gradient,
    shapes={"dy": _as("x")},
)
BN_TRAINING_REDUCE = _operator(
    "BNTrainingReduce",
    "sums of each channel of x, and of its squares",
    "x",
    dict.fromkeys(("sum", "square_sum"), lambda call: (call["x"].shape[1],)),
    _batch_sums,
)
_STATISTICS = ("mean_out", "variance_out", "batch_mean", "batch_variance")
BN_TRAINING_UPDATE = _operator(
    "BNTrainingUpdate",
    "y = (x - batch_mean) / sqrt(batch_variance + epsilon) * scale + offset; "
    "mean = mean + factor * (batch_mean - mean), and so the variance",
    "x sum square_sum scale offset mean variance",
    {"y": _as("x"), **dict.fromkeys(_STATISTICS, _as("scale"))},
    _batch_norm,
    {"factor": Kind.DOUBLE} | _EPSILON,
)
BN_TRAINING_UPDATE_GRAD = _operator(
    "BNTrainingUpdateGrad",
    "the gradients of BNTrainingUpdate with respect to scale and offset",
    "grads x batch_mean batch_variance",
    dict.fromkeys(("diff_scale", "diff_offset"), _as("batch_mean")),
    _batch_norm_sums,
    _EPSILON,
    {"grads": _as("x")},
)
BN_TRAINING_REDUCE_GRAD = _operator(
    "BNTrainingReduceGrad",
    "the gradient of BNTrainingUpdate with respect to x",
    "grads x diff_scale diff_offset scale batch_mean batch_variance",
    {"y": _as("x")},
    _batch_norm_gradient,
    _EPSILON,
    {"grads": _as("x")},
)
BN_INFER = _operator(
    "BNInfer",
    "y = (x - mean) / sqrt(variance + epsilon) * scale + offset",
    "x scale offset mean variance",
    {"y": _as("x")},
    _inferred,
    _EPSILON,
)
BN_INFER_GRAD = _operator(
    "BNInferGrad",
    "x_backprop = grads * scale / sqrt(batch_variance + epsilon)",
    "grads scale batch_variance",
    {"x_backprop": _as("grads")},
    lambda grads, scale, variance, epsilon: (
        grads * _of_channels(scale, grads) / np.sqrt(_of_channels(variance, grads) + epsilon)
    ),
    _EPSILON,
)
MAX_POOL = _pooling("MaxPool", "y = max of each window", "x", _pooled("x"), _max_pool)
MAX_POOL_GRAD = _pooling(
    "MaxPoolGrad",
    "the gradient of MaxPool",
    "x1 x2 grad",
    _as("x1"),
    _max_pool_gradient,
    dict.fromkeys(("x2", "grad"), _pooled("x1")),
)
AVG_POOL = _pooling("AvgPool", "y = mean of each window, excluding padding", "x", _pooled("x"), _average_pool)
_SHAPE = "orig_input_shape"
AVG_POOL_GRAD = _pooling(
    "AvgPoolGrad",
    "the gradient of AvgPool",
    "input_grad",
    lambda call: call[_SHAPE],
    _average_pool_gradient,
    {"input_grad": _pooled(_SHAPE)},
    {_SHAPE: Kind.INT_ARRAY},
)
STRIDED_SLICE_GRAD = _operator(
    "StridedSliceGrad",
    "y = 0 but for dy at first + step * i",
    "dy",
    {"y": lambda call: call["shape"]},
    _slice_gradient,
    dict.fromkeys(("shape", "first", "count", "step"), Kind.INT_ARRAY),
    {"dy": lambda call: call["count"]},
)
ADD_N = Operator(
    name="AddN",
    function="AddN",
    summary="The operator of type AddN.",
    formula="y = the sum of all x",
    parameters=(Parameter("x", "x", Kind.INPUT_LIST, "tensors of one shape and type"), tensor_out("y")),
    support=support((*FLOATING, D.INT32, D.INT64), MODERN),
    checks=(present("y"), rule("as y: x", _alike)),
    work=lambda call: (
        Library(_added, tuple(f"x[{place}]" for place in range(len(call["x"]))), ("y",)) if call["y"].size else None
    ),
)
SGD = _operator(
    "SGD",
    "parameters = parameters - learning_rate * accum, accum = momentum * accum + (1 - dampening) * gradient",
    "parameters gradient learning_rate accum momentum stat",
    {"parameters_out": _as("parameters"), "accum_out": _as("accum"), "stat_out": _as("stat")},
    _descended,
    {"dampening": Kind.DOUBLE, "weight_decay": Kind.DOUBLE, "nesterov": Kind.BOOL},
    dict.fromkeys(("gradient", "accum", "stat"), _as("parameters")),
)
APPLY_MOMENTUM = _operator(
    "ApplyMomentum",
    "var = var - lr * accum, accum = momentum * accum + grad",
    "var accum lr grad momentum",
    {"var_out": _as("var"), "accum_out": _as("accum")},
    _moved,
    {"use_nesterov": Kind.BOOL},
    dict.fromkeys(("accum", "grad"), _as("var")),
)
APPLY_RMS_PROP = _operator(
    "ApplyRMSProp",
    "var = var - mom, mom = momentum * mom + lr * grad / sqrt(ms + epsilon), ms = rho * ms + (1 - rho) * grad^2",
    "var ms mom lr rho momentum epsilon grad",
    {"var_out": _as("var"), "ms_out": _as("ms"), "mom_out": _as("mom")},
    _root_mean_square,
    shapes=dict.fromkeys(("ms", "mom", "grad"), _as("var")),
)
APPLY_ADAGRAD = _operator(
    "ApplyAdagradD",
    "var = var - lr * grad / sqrt(accum), accum = accum + grad^2",
    "var accum lr grad",
    {"var_out": _as("var"), "accum_out": _as("accum")},
    _adaptive,
    shapes=dict.fromkeys(("accum", "grad"), _as("var")),
)
ADAM_WITH_DECAY = _operator(
    "AdamApplyOneWithDecayAssign",
    "input1 = input0^2 * mul3_x + input1 * mul2_x; input2 = input2 * mul0_x + input0 * mul1_x; "
    "input3 = input3 - input4 * (input2 / (sqrt(input1) + add2_y) + input3 * mul4_x)",
    "input0 input1 input2 input3 input4 mul0_x mul1_x mul2_x mul3_x mul4_x add2_y",
    {f"output{place}": _as("input0") for place in (1, 2, 3)},
    _decayed_adam,
    shapes=dict.fromkeys(("input1", "input2", "input3"), _as("input0")),
)
UNSORTED_SEGMENT_SUM = typed(
    "UnsortedSegmentSum",
    "y[i] = sum of x where segment_ids is i",
    (
        tensor_in("x", "an input"),
        tensor_in("segment_ids", "numbers of segments, of the first dimensions of x"),
        plain_attribute("num_segments", Kind.INT64),
        tensor_out("y"),
    ),
    (
        dtype_in(where_supported((*FLOATING, D.INT32)), "x"),
        dtype_in((D.INT32, D.INT64), "segment_ids"),
        same_dtype("y", "x"),
        limited_dims("x"),
        shape_is(
            "the first dimensions of x", lambda call: call["x"].shape[: len(call["segment_ids"].shape)], "segment_ids"
        ),
        shape_is(
            "the result", lambda call: (call["num_segments"], *call["x"].shape[len(call["segment_ids"].shape) :]), "y"
        ),
    ),
    _segment_sums,
    (*FLOATING, D.INT32),
)
DROP_OUT_GEN_MASK = typed(
    "DropOutGenMask",
    "y = bits, each 1 with probability prob",
    (
        tensor_in("prob", "one number"),
        *(plain_attribute(name, Kind.INT64) for name in ("count", "seed", "offset")),
        tensor_out("y", "the mask, one bit per element; UINT8"),
    ),
    (
        dtype_in(where_supported(FLOATING), "prob"),
        dtype_in((D.UINT8,), "y"),
        size_is("one number", lambda call: 1, "prob"),
        size_is("a bit for each element", lambda call: mask_bytes(call["count"]), "y"),
    ),
    lambda prob, count, seed, offset: random_bits(
        generator_of({"seed": seed, "offset": offset})(), mask_bytes(count), 1 - float(prob.reshape(()))
    ),
    FLOATING,
)
DROP_OUT_DO_MASK = typed(
    "DropOutDoMask",
    "y = x / keep_prob where mask, 0 elsewhere",
    (
        tensor_in("x", "an input"),
        tensor_in("mask", "the mask, one bit per element; UINT8"),
        tensor_in("keep_prob", "one number"),
        tensor_out("y"),
    ),
    (
        dtype_in(where_supported(FLOATING), "x", "keep_prob"),
        dtype_in((D.UINT8,), "mask"),
        same_dtype("y", "x"),
        limited_dims("x"),
        size_is("a bit for each element", lambda call: mask_bytes(call["x"].size), "mask"),
        size_is("one number", lambda call: 1, "keep_prob"),
        shape_is("as x has", _as("x"), "y"),
    ),
    lambda x, mask, keep_prob: masked(x, mask, 1 - float(keep_prob.reshape(()))),
    FLOATING,
)
