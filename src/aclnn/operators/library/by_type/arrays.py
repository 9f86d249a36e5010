"""Operators of arrays that have a type in CANN's graphs and no ``aclnn`` function: MindSpore and torch_npu use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    axis,
    broadcast_shape_of,
    broadcastable,
    dims_between,
    dtype_in,
    extents,
    limited_dims,
    listing,
    rule,
    same_dtype,
    shape_is,
    size_is,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.operators.library.by_type.declaration import plain_attribute, typed
from aclnn.operators.library.common import (
    INDEX_TYPES,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    expect_within,
    logistic,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.convolution.convolution import Windows
from aclnn.operators.library.elementwise.pairs import right_shift
from aclnn.operators.library.vision.pooling import maxima, scattered

Array = np.ndarray[Any, Any]
Shape = Callable[[Call], Sequence[int]]
_COMPUTED = tuple(dtype for dtype in REAL if dtype != D.BOOL)
#: NumPy's words for those of padding.
_MODES = {"constant": "constant", "reflect": "reflect", "symmetric": "symmetric", "edge": "edge", "circular": "wrap"}
#: The number that stands for infinity where the order of a norm is an integer.
_INFINITE_ORDER = 2**31 - 1


class Result(NamedTuple):
    """An output: its shape where a check of its own does not say it, and its data types if not the first input's."""

    shape: Shape | None
    dtypes: Collection[D] = ()


def _operator(
    op_type: str,
    formula: str,
    inputs: Mapping[str, Collection[D]],
    outputs: Mapping[str, Result],
    function: Callable[..., Any],
    attributes: Mapping[str, Kind] | None = None,
    checks: Sequence[Check] = (),
) -> Operator:
    """An operator whose function takes the inputs, then the attributes.

    Args:
        op_type: the type, which is the name too.
        formula: as text.
        inputs: their names and data types; none stands for the first's.
        outputs: their names.
        function: of arrays, float32 for 16-bit types.
        attributes: their names and kinds.
        checks: further ones.
    """
    attributes = attributes or {}
    first, dtypes = next(iter(inputs.items()))
    own = {name: each for name, each in inputs.items() if each and name != first}
    own |= {name: result.dtypes for name, result in outputs.items() if result.dtypes}
    alike = [name for name in (*inputs, *outputs) if name not in (first, *own)]
    return typed(
        op_type,
        formula,
        (
            *(tensor_in(name, "an input") for name in inputs),
            *(plain_attribute(name, kind) for name, kind in attributes.items()),
            *map(tensor_out, outputs),
        ),
        (
            dtype_in(where_supported(dtypes), first),
            *(same_dtype(name, first) for name in alike),
            *(dtype_in(where_supported(each), name) for name, each in own.items()),
            limited_dims(*inputs),
            *checks,
            *(shape_is("the result", each.shape, name) for name, each in outputs.items() if each.shape),
        ),
        function,
        dtypes,
    )


def _as(name: str) -> Shape:
    return lambda call: call[name].shape


def _of_two(
    op_type: str, formula: str, function: Callable[..., Any], dtypes: Collection[D], names: str = "x1 x2"
) -> Operator:
    """An operator of the elements of two inputs that broadcast."""
    first, second = names.split()
    checks = broadcastable(first, second), broadcast_shape_of("y", first, second)
    return _operator(op_type, formula, {first: dtypes, second: ()}, {"y": Result(None)}, function, None, checks)


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _axes(call: Call) -> list[int]:
    rank = len(call["x"].shape)
    return [axis % rank for axis in call["axes"]] if call["axes"] else [*range(rank)]


def _reduced(call: Call) -> Sequence[int]:
    axes = _axes(call)
    return [1 if axis in axes else n for axis, n in enumerate(call["x"].shape) if call["keepdim"] or axis not in axes]


def _sum_of_powers(x: Array, p: float, axes: Sequence[int], keepdim: bool) -> Array:
    """Sums of |x|^p, for an infinite p extremes of |x|."""
    size, along = np.abs(_wide(x)), tuple(axes) or None
    if abs(p) >= _INFINITE_ORDER:
        return np.asarray((size.max if p > 0 else size.min)(along, keepdims=keepdim))
    return np.asarray(size**p if p else size != 0).sum(along, keepdims=keepdim)


def _root(x: Array, p: float) -> Array:
    return x if p == 0 or abs(p) >= _INFINITE_ORDER else _wide(x) ** (1 / p)


def _norm(x: Array, p: float, axes: Sequence[int], keepdim: bool, epsilon: float) -> Array:
    """Norms, epsilon where they are smaller."""
    return np.maximum(_root(_sum_of_powers(x, p, axes, keepdim), p), epsilon)


def _lp_norm(op_type: str, order: Kind) -> Operator:
    return _operator(
        op_type,
        "y = (the sum of |x|^p along axes)^(1 / p), at least epsilon",
        {"x": FLOATING},
        {"y": Result(_reduced)},
        _norm,
        {"p": order, "axes": Kind.INT_ARRAY, "keepdim": Kind.BOOL, "epsilon": Kind.DOUBLE},
    )


def _running(op_type: str, formula: str, ufunc: np.ufunc, neutral: float, dtypes: Collection[D]) -> Operator:
    """An operator that combines each element with those before it."""

    def run(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        ordered = np.flip(x, axis) if reverse else x
        found = ufunc.accumulate(_wide(ordered), axis, dtype=None if x.dtype.kind == "f" else x.dtype)
        if exclusive:
            along = np.moveaxis(found, axis, 0)
            along[1:] = along[:-1].copy()
            along[:1] = neutral
        return np.flip(found, axis) if reverse else found

    attributes = {"axis": Kind.INT64, "exclusive": Kind.BOOL, "reverse": Kind.BOOL}
    return _operator(op_type, formula, {"x": dtypes}, {"y": Result(_as("x"))}, run, attributes)


def _sorted(x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    """Elements in order and their places, of equal ones the first first."""
    if descending:
        places = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        places = np.argsort(x, axis, kind="stable")
    return np.take_along_axis(x, places, axis), places


def _band(shape: Sequence[int], k: Array, align: str) -> Iterator[tuple[int, slice, slice, slice]]:
    """For each diagonal from the highest on: its row in the packed tensor, its part of that, its rows and columns."""
    rows, columns = shape[-2:]
    low, high = int(k.flat[0]), int(k.flat[-1])
    lengths = {d: max(0, min(rows + min(d, 0), columns - max(d, 0))) for d in range(high, low - 1, -1)}
    longest = max(lengths.values(), default=0)
    above, below = align.split("_")
    for place, (d, n) in enumerate(lengths.items()):
        is_left = (d >= 0 and above == "LEFT") or (d <= 0 and below == "LEFT")
        start = 0 if is_left else longest - n
        yield place, slice(start, start + n), slice(max(-d, 0), max(-d, 0) + n), slice(max(d, 0), max(d, 0) + n)


def _set_band(matrices: Array, diagonal: Array, k: Array, align: str) -> Array:
    """Matrices with other diagonals; of a single one the packed tensor has no dimension of diagonals."""
    found = matrices.copy()
    low, high = int(k.flat[0]), int(k.flat[-1])
    packed = diagonal if low != high else np.expand_dims(diagonal, -2)
    for place, part, rows, columns in _band(matrices.shape, k, align):
        corner = found[..., rows, columns]
        each = np.arange(corner.shape[-1])
        corner[..., each, each] = packed[..., place, part]
    return found


def _diagonal(x: Array) -> Array:
    return np.diag(x.reshape(-1)).reshape(x.shape * 2)


def _quotient(x1: Array, x2: Array) -> Array:
    found = _wide(x1) / np.where(x2 == 0, 1, x2)
    return np.where(x2 == 0, 0, np.trunc(found) if x1.dtype.kind in "iu" else found)


def _product(x1: Array, x2: Array) -> Array:
    return np.where(x2 == 0, 0, np.where(x2 == 0, 0, x1) * x2)


def _logarithms(x1: Array, x2: Array) -> Array:
    """Products with logarithms, 0 where x1 is 0, even with NaN as in TensorFlow; aclnnXLogY has NaN as in PyTorch."""
    return np.where(x1 == 0, 0, x1 * np.log(np.where(x1 == 0, 1, _wide(x2))))


def _log_gamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == int(x)):
        return math.inf
    return math.lgamma(x)


def _interpolated(size: int, count: int, align_corners: bool, half_pixel: bool, is_nearest: bool) -> Array:
    """The matrix whose rows hold the shares of ``size`` elements in each of ``count`` new ones."""
    scale = (size - 1) / (count - 1) if align_corners and count > 1 else size / count
    places = np.arange(count, dtype=np.float64)
    shares = np.zeros((count, size))
    rows = np.arange(count)
    if is_nearest:
        at = (places + 0.5 * half_pixel) * scale
        nearest = np.floor(at + 0.5) if align_corners else np.floor(at)
        shares[rows, np.clip(nearest, 0, size - 1).astype(int)] = 1
        return shares
    at = np.clip((places + 0.5) * scale - 0.5 if half_pixel else places * scale, 0, size - 1)
    before = np.floor(at).astype(int)
    shares[rows, before] += 1 - (at - before)
    shares[rows, np.minimum(before + 1, size - 1)] += at - before
    return shares


def _resized(is_nearest: bool, is_gradient: bool) -> Callable[..., Array]:
    def resize(x: Array, size: Sequence[int], align_corners: bool, half_pixel_centers: bool) -> Array:
        small, large = (size, x.shape[2:]) if is_gradient else (x.shape[2:], size)
        rows, columns = (
            _interpolated(n, m, align_corners, half_pixel_centers, is_nearest)
            for n, m in zip(small, large, strict=True)
        )
        if is_gradient:
            rows, columns = rows.T, columns.T
        return np.asarray(rows @ _wide(x) @ columns.T)

    return resize


def _resize(op_type: str, formula: str, is_nearest: bool, is_gradient: bool = False) -> Operator:
    return _operator(
        op_type,
        formula,
        {"x": FLOATING},
        {"y": Result(lambda call: (*call["x"].shape[:2], *call["size"]))},
        _resized(is_nearest, is_gradient),
        {"size": Kind.INT_ARRAY, "align_corners": Kind.BOOL, "half_pixel_centers": Kind.BOOL},
        (dims_between(4, 4, "x"),),
    )


def _margins(paddings: Sequence[int]) -> list[tuple[int, int]]:
    return [*zip(paddings[::2], paddings[1::2], strict=True)]


def _padded_shape(call: Call) -> Sequence[int]:
    return [n + sum(pair) for n, pair in zip(call["x"].shape, _margins(call["paddings"]), strict=True)]


def _cut_shape(call: Call) -> Sequence[int]:
    return [n - sum(pair) for n, pair in zip(call["x"].shape, _margins(call["paddings"]), strict=True)]


def _pad(x: Array, paddings: Sequence[int], mode: str, value: Any = 0) -> Array:
    if mode == "constant":
        return np.pad(x, _margins(paddings), constant_values=value)
    return np.pad(x, _margins(paddings), _MODES[mode])  # type: ignore[call-overload]  # one of NumPy's words


def _pad_gradient(x: Array, paddings: Sequence[int], mode: str) -> Array:
    found = _wide(x)
    for dim, margin in enumerate(_margins(paddings)):
        count = x.shape[dim] - sum(margin)
        total = np.zeros((count, *np.delete(found.shape, dim)))
        np.add.at(total, _pad(np.arange(count), margin, mode), np.moveaxis(found, dim, 0))
        found = np.moveaxis(total, 0, dim)
    return found


def _cross_entropy(predict: Array, target: Array) -> Array:
    x = _wide(predict)
    return np.asarray(np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x))))


def _sparse_cross_entropy(features: Array, labels: Array) -> tuple[Array, Array]:
    x = _wide(features)
    x = x - x.max(1, keepdims=True)
    logarithms = x - np.log(np.exp(x).sum(1, keepdims=True))
    expect_within("labels", labels, 0, x.shape[1] - 1)
    rows = np.arange(len(x))
    shares = np.exp(logarithms)
    shares[rows, labels] -= 1
    return -logarithms[rows, labels], shares


def _unit(x: Array, axis: Sequence[int], eps: float) -> Array:
    size = np.sqrt(np.square(_wide(x)).sum(tuple(axis), keepdims=True))
    return np.asarray(x / np.maximum(size, eps))


def _unit_gradient(x: Array, y: Array, dy: Array, dim: Sequence[int], eps: float) -> Array:
    axes = tuple(dim)
    size = np.maximum(np.sqrt(np.square(_wide(x)).sum(axes, keepdims=True)), eps)
    return np.asarray((dy - y * (_wide(y) * dy).sum(axes, keepdims=True)) / size)


def _deviation(x: Array, axes: Sequence[int], unbiased: bool, keepdim: bool) -> tuple[Array, Array]:
    along, wide = tuple(axes) or None, _wide(x)
    return wide.std(along, ddof=int(unbiased), keepdims=keepdim), wide.mean(along, keepdims=keepdim)


def _deviation_from(x: Array, mean: Array, axes: Sequence[int], if_std: bool, keepdim: bool, correction: int) -> Array:
    along, squares = tuple(axes) or None, (_wide(x) - mean) ** 2
    count = x.size // max(1, squares.sum(along).size)
    found = np.asarray(squares.sum(along, keepdims=keepdim) / max(0, count - correction))
    return np.sqrt(found) if if_std else found


def _largest(x: Array, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    values, places = _sorted(x, dim, largest)
    first = (slice(None),) * (dim % x.ndim) + (slice(k),)
    return values[first], places[first]


def _first(call: Call) -> Sequence[int]:
    shape, dim = list(call["x"].shape), call["dim"]
    shape[dim] = min(call["k"], shape[dim])
    return shape


def _places_shape(call: Call) -> str | None:
    rank, got, along = len(call["x"].shape), call["y"].shape, int(call["transpose"])
    if len(got) == 2 and got[1 - along] == rank and got[along] <= call["x"].size:
        return None
    expected = [call["x"].size, rank][:: -1 if along else 1]
    return f"y: expected shape {extents(expected)} or one for fewer places, got {extents(got)}"


def _non_zero(call: Call) -> Library | None:
    room = call["y"].size

    def places(x: Array) -> Array:
        found = np.argwhere(x)
        if found.size > room:
            raise ValueError(f"y: expected room for {len(found)} elements other than 0, got {room} numbers")
        return found.T if call["transpose"] else found

    return Library(places, ("x",), ("y",), sized_by_result=True) if room else None


def _room(flag: str) -> Callable[[Call], int]:
    return lambda call: call["x"].size if call[flag] else 1


def _unique(call: Call) -> Library | None:
    wanted = [call[name] for name in _UNIQUE_FLAGS.values()]

    def distinct(x: Array) -> tuple[Array, ...]:
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, equal_nan=False)
        found = inverse.reshape(x.shape), counts
        return values, *(array if each else np.zeros(1, np.int64) for array, each in zip(found, wanted, strict=True))

    return Library(distinct, ("x",), ("y", "inverse", "counts"), sized_by_result=True) if call["x"].size else None


def _windows(size: Sequence[int], count: Sequence[int], *attributes: Sequence[int]) -> Windows:
    """Return windows whose attributes have a number of images before and one of channels behind those of the plane."""
    kernel, stride, before, dilation = (tuple(each[1:3]) for each in attributes)
    ends = ((n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(count, stride, dilation, kernel, strict=True))
    padding = tuple((p, max(end - p - n, 0)) for end, p, n in zip(ends, before, size, strict=True))
    return Windows(kernel, stride, padding, dilation)


def _max_pool(x: Array, count: Sequence[int], *attributes: Sequence[int]) -> tuple[Array, Array]:
    return maxima(x, _windows(x.shape[2:], count, *attributes), tuple(count))[0], np.zeros((), np.uint16)


def _max_pool_gradient(x: Array, grad: Array, _: Array, count: Sequence[int], *attributes: Sequence[int]) -> Array:
    return np.asarray(scattered(grad, x, maxima(x, _windows(x.shape[2:], count, *attributes), tuple(count))[1]))


def _at(x: Array, indices: Array, is_nd: bool) -> Any:
    """Indices of rows, or of the elements or parts that the last dimension of ``indices`` addresses."""
    for place, numbers in enumerate(np.moveaxis(indices, -1, 0) if is_nd else (indices,)):
        expect_within("indices", numbers, 0, x.shape[place] - 1)
    return tuple(np.moveaxis(indices, -1, 0)) if is_nd else indices


def _scattering(combine: np.ufunc | None, is_nd: bool) -> Callable[..., Array]:
    """Combine parts of a tensor with updates, in their order; without a function put them there."""

    def scatter(x: Array, indices: Array, updates: Array) -> Array:
        found, at = (x.copy() if combine is None else _wide(x).copy()), _at(x, indices, is_nd)
        if combine is None:
            found[at] = updates
        elif combine is np.divide and x.dtype.kind in "iu":
            np.floor_divide.at(found, at, updates)
        else:
            combine.at(found, at, updates)
        return found

    return scatter


def _scattered(is_nd: bool) -> Shape:
    def shape(call: Call) -> Sequence[int]:
        x, indices = call.arguments.get("var") or call["x"], call["indices"].shape
        return (*indices[:-1], *x.shape[indices[-1] :]) if is_nd else (*indices, *x.shape[1:])

    return shape


def _scatter(op_type: str, word: str, combine: np.ufunc | None, is_nd: bool, is_updated: bool) -> Operator:
    x, y = ("var", "var_out") if is_updated else ("x", "y")
    return _operator(
        op_type,
        f"{y} = {x}, its parts at indices {word} updates",
        {x: _COMPUTED, "indices": INDEX_TYPES, "updates": ()},
        {y: Result(_as(x))},
        _scattering(combine, is_nd),
        checks=(dims_between(1, 8, x), shape_is("of the parts", _scattered(is_nd), "updates")),
    )


LP_NORM = _lp_norm("LpNorm", Kind.INT64)
LP_NORM_V2 = _lp_norm("LpNormV2", Kind.DOUBLE)
CUM_SUM = _running("Cumsum", "y = running sums of x along axis", np.add, 0, NUMBERS)
CUM_PROD = _running("Cumprod", "y = running products of x along axis", np.multiply, 1, NUMBERS)
CUM_LOG_SUM_EXP = _running(
    "CumulativeLogsumexp", "y = log(running sums of e^x along axis)", np.logaddexp, -math.inf, REAL_FLOATING
)
SORT = _operator(
    "Sort",
    "y1 = x in order along axis, y2 = where it was",
    {"x": _COMPUTED},
    {"y1": Result(_as("x")), "y2": Result(_as("x"), (D.INT32,))},
    _sorted,
    {"axis": Kind.INT64, "descending": Kind.BOOL},
)
MATRIX_SET_DIAG = _operator(
    "MatrixSetDiagV3",
    "output = input, but its diagonals from k[0] to k[-1] are those of diagonal",
    {"input": NUMBERS, "diagonal": (), "k": (D.INT32,)},
    {"output": Result(_as("input"))},
    _set_band,
    {"align": Kind.STRING},
)
MATRIX_DIAG = _operator(
    "MatrixDiagV3",
    "y = padding_value, but its diagonals from k[0] to k[-1] are those of x",
    {"x": NUMBERS, "k": (D.INT32,), "padding_value": ()},
    {"y": Result(None)},
    lambda x, k, padding, align, shape: _set_band(np.full(shape, padding.reshape(())), x, k, align),
    {"align": Kind.STRING, "shape": Kind.INT_ARRAY},
)
ADDCMUL, ADDCDIV = (
    _operator(
        op_type,
        f"y = x + value * x1 {sign} x2",
        {"x": dtypes, "x1": (), "x2": (), "value": _COMPUTED},
        {"y": Result(lambda call: np.broadcast_shapes(*(call[name].shape for name in ("x", "x1", "x2"))))},
        function,
        checks=(broadcastable("x1", "x"), broadcastable("x2", "x"), broadcastable("x1", "x2")),
    )
    for op_type, sign, dtypes, function in (
        ("Addcmul", "*", _COMPUTED, lambda x, x1, x2, value: x + _wide(value.reshape(())) * _wide(x1) * _wide(x2)),
        ("Addcdiv", "/", REAL_FLOATING, lambda x, x1, x2, value: x + _wide(value.reshape(())) * _wide(x1) / _wide(x2)),
    )
)
DIAG = _operator(
    "Diag", "y[i, i] = x[i], 0 elsewhere", {"x": NUMBERS}, {"y": Result(lambda call: call["x"].shape * 2)}, _diagonal
)
IS_NAN = _operator("IsNan", "y = x is NaN", {"x": NUMBERS}, {"y": Result(_as("x"), (D.BOOL,))}, np.isnan)
IS_INF = _operator("IsInf", "y = x is infinite", {"x": NUMBERS}, {"y": Result(_as("x"), (D.BOOL,))}, np.isinf)
SQRT_GRAD = _operator(
    "SqrtGrad",
    "z = dy / (2 * y)",
    {"y": REAL_FLOATING, "dy": ()},
    {"z": Result(_as("y"))},
    lambda y, dy: 0.5 * _wide(dy) / y,
)
RANGE = _operator(
    "Range",
    "y[i] = start + i * delta",
    {"start": _COMPUTED, "limit": (), "delta": ()},
    {"y": Result(lambda call: call["y"].shape if len(call["y"].shape) == 1 else ())},
    lambda start, limit, delta, count: _wide(start.reshape(())) + np.arange(count) * _wide(delta.reshape(())),
    {"count": Kind.INT64},
)

_BILINEAR, _NEAREST = "y = x, interpolated to other extents", "y = x, the nearest of its elements each"
RESIZE_BILINEAR = _resize("ResizeBilinearV2", _BILINEAR, False)
RESIZE_BILINEAR_GRAD = _resize("ResizeBilinearV2Grad", "the gradient of ResizeBilinearV2", False, True)
RESIZE_NEAREST = _resize("ResizeNearestNeighborV2", _NEAREST, True)
RESIZE_NEAREST_GRAD = _resize("ResizeNearestNeighborV2Grad", "the gradient of ResizeNearestNeighborV2", True, True)
_MODE = (value_is(f"{listing(_MODES)}", lambda got: got in _MODES, "mode"),)
_PADDING = {"paddings": Kind.INT_ARRAY, "mode": Kind.STRING}
PAD = _operator(
    "MirrorPad",
    "y = x, with elements before and behind along each dimension",
    {"x": NUMBERS},
    {"y": Result(_padded_shape)},
    _pad,
    _PADDING,
    _MODE,
)
PAD_WITH_VALUE = _operator(
    "PadV3",
    "y = x, with constant_values, or elements of x, before and behind along each dimension",
    {"x": NUMBERS, "constant_values": ()},
    {"y": Result(_padded_shape)},
    lambda x, value, paddings, mode: _pad(x, paddings, mode, value.reshape(())),
    _PADDING,
    _MODE,
)
PAD_GRAD = _operator(
    "PadV3Grad",
    "the gradient of PadV3 where elements of x are before and behind",
    {"x": FLOATING},
    {"y": Result(_cut_shape)},
    _pad_gradient,
    _PADDING,
    _MODE,
)
LIN_SPACE = _operator(
    "LinSpace",
    "output[i] = start + i * (stop - start) / (num - 1)",
    {"start": (D.FLOAT, D.DOUBLE), "stop": ()},
    {"output": Result(lambda call: (call["num"],))},
    lambda start, stop, num: np.linspace(_wide(start.reshape(())), _wide(stop.reshape(())), num),
    {"num": Kind.INT64},
)
SIGMOID_CROSS_ENTROPY = _operator(
    "SigmoidCrossEntropyWithLogits",
    "loss = max(predict, 0) - predict * target + log(1 + e^-|predict|)",
    {"predict": FLOATING, "target": ()},
    {"loss": Result(_as("predict"))},
    _cross_entropy,
    checks=(shape_is("as predict has", _as("predict"), "target"),),
)
SIGMOID_CROSS_ENTROPY_GRAD = _operator(
    "SigmoidCrossEntropyWithLogitsGrad",
    "gradient = (sigmoid(predict) - target) * dout",
    {"predict": FLOATING, "target": (), "dout": ()},
    {"gradient": Result(_as("predict"))},
    lambda predict, target, dout: (logistic(_wide(predict)) - target) * dout,
    checks=(shape_is("as predict has", _as("predict"), "target", "dout"),),
)
SPARSE_CROSS_ENTROPY = _operator(
    "SparseSoftmaxCrossEntropyWithLogits",
    "loss = -log(softmax(features)[labels]), backprop its gradient",
    {"features": FLOATING, "labels": INDEX_TYPES},
    {"loss": Result(_as("labels")), "backprop": Result(_as("features"))},
    _sparse_cross_entropy,
    checks=(
        dims_between(2, 2, "features"),
        shape_is("one for each row", lambda call: call["features"].shape[:1], "labels"),
    ),
)
L2_NORMALIZE = _operator(
    "L2Normalize",
    "y = x / max(sqrt(the sum of x^2 along axis), eps)",
    {"x": FLOATING},
    {"y": Result(_as("x"))},
    _unit,
    {"axis": Kind.INT_ARRAY, "eps": Kind.DOUBLE},
)
L2_NORMALIZE_GRAD = _operator(
    "L2NormalizeGrad",
    "dx = the gradient of L2Normalize",
    {"x": FLOATING, "y": (), "dy": ()},
    {"dx": Result(_as("x"))},
    _unit_gradient,
    {"dim": Kind.INT_ARRAY, "eps": Kind.DOUBLE},
    (shape_is("as x has", _as("x"), "y", "dy"),),
)
L2_LOSS = _operator(
    "L2Loss",
    "y = half the sum of x^2",
    {"x": FLOATING},
    {"y": Result(lambda call: ())},
    lambda x: np.square(_wide(x)).sum() / 2,
)
REDUCE_PROD = _operator(
    "ReduceProd",
    "y = the product of x along axes",
    {"x": _COMPUTED},
    {"y": Result(_reduced)},
    lambda x, axes, keepdim: np.prod(_wide(x), tuple(axes) or None, keepdims=keepdim),
    {"axes": Kind.INT_ARRAY, "keepdim": Kind.BOOL},
)
REDUCE_STD = _operator(
    "ReduceStd",
    "y1 = the standard deviation of x along axes, y2 = its mean",
    {"x": FLOATING},
    {"y1": Result(_reduced), "y2": Result(_reduced)},
    _deviation,
    {"axes": Kind.INT_ARRAY, "unbiased": Kind.BOOL, "keepdim": Kind.BOOL},
)

REDUCE_STD_UPDATE = _operator(
    "ReduceStdV2Update",
    "y = the sum of (x - mean)^2 along axes / (elements - correction), its root with if_std",
    {"x": FLOATING, "mean": ()},
    {"y": Result(_reduced)},
    _deviation_from,
    {"axes": Kind.INT_ARRAY, "if_std": Kind.BOOL, "keepdim": Kind.BOOL, "correction": Kind.INT64},
    (broadcastable("mean", "x"),),
)
LP_NORM_REDUCE = _operator(
    "LpNormReduceV2",
    "y = the sum of |x|^p along axes",
    {"x": FLOATING},
    {"y": Result(_reduced)},
    _sum_of_powers,
    {"p": Kind.DOUBLE, "axes": Kind.INT_ARRAY, "keepdim": Kind.BOOL},
)
LP_NORM_UPDATE = _operator(
    "LpNormUpdateV2", "y = x^(1 / p)", {"x": FLOATING}, {"y": Result(_as("x"))}, _root, {"p": Kind.DOUBLE}
)
TOP_K = _operator(
    "TopKV2",
    "values = the k largest or smallest elements of x along dim in order, indices = where they were",
    {"x": _COMPUTED},
    {"values": Result(_first), "indices": Result(_first, (D.INT32,))},
    _largest,
    {"k": Kind.INT64, "dim": Kind.INT64, "largest": Kind.BOOL},
    (axis("dim", "x"),),
)
NON_ZERO = Operator(
    name="NonZero",
    function="NonZero",
    summary="The operator of type NonZero.",
    formula="y = the indices of elements of x that are not 0, a row each, or with transpose a column",
    parameters=(
        tensor_in("x", "an input"),
        plain_attribute("transpose", Kind.BOOL),
        tensor_out("y"),
    ),
    support=support(NUMBERS, MODERN),
    checks=(
        dtype_in(where_supported(NUMBERS), "x"),
        dtype_in({D.INT32, D.INT64}, "y"),
        limited_dims("x"),
        rule("a place for each dimension: y", _places_shape),
    ),
    work=_non_zero,
)
#: Attributes that ask for outputs; without it, an output has a single element.
_UNIQUE_FLAGS = {"inverse": "return_inverse", "counts": "return_counts"}
UNIQUE = Operator(
    name="UniqueWithCountsAndSorting",
    function="UniqueWithCountsAndSorting",
    summary="The operator of type UniqueWithCountsAndSorting.",
    formula="y = the distinct elements of x in order, x = y[inverse], counts = how often each occurs",
    parameters=(
        tensor_in("x", "an input"),
        *(plain_attribute(name, Kind.BOOL) for name in _UNIQUE_FLAGS.values()),
        *map(tensor_out, ("y", *_UNIQUE_FLAGS)),
    ),
    support=support(NUMBERS, MODERN),
    checks=(
        dtype_in(where_supported(NUMBERS), "x"),
        same_dtype("y", "x"),
        dtype_in({D.INT64}, *_UNIQUE_FLAGS),
        limited_dims("x"),
        size_is("room for all", lambda call: call["x"].size, "y"),
        *(size_is("room for all", _room(flag), name) for name, flag in _UNIQUE_FLAGS.items()),
    ),
    work=_unique,
)
_WINDOWS = dict.fromkeys(("count", "ksize", "strides", "pads", "dilation"), Kind.INT_ARRAY)
_OF_PLANES = (dims_between(4, 4, "x"), value_is("only 1", lambda got: {*got} == {1}, "dilation"))
MAX_POOL_WITH_MASK = _operator(
    "MaxPoolWithArgmaxV1",
    "y = max of each window; argmax = 0: the gradient finds the maxima in x",
    {"x": FLOATING},
    {
        "y": Result(lambda call: (*call["x"].shape[:2], *call["count"])),
        "argmax": Result(None, (D.UINT16,)),
    },
    _max_pool,
    _WINDOWS,
    _OF_PLANES,
)
MAX_POOL_WITH_MASK_GRAD = _operator(
    "MaxPoolGradWithArgmaxV1",
    "y = the gradient of MaxPoolWithArgmaxV1",
    {"x": FLOATING, "grad": (), "argmax": (D.UINT16,)},
    {"y": Result(_as("x"))},
    _max_pool_gradient,
    _WINDOWS,
    _OF_PLANES,
)

_WAYS: Mapping[str, tuple[str, np.ufunc | None]] = {
    "Add": ("plus", np.add),
    "Div": ("divided by", np.divide),
    "Max": ("or, if greater,", np.maximum),
    "Min": ("or, if less,", np.minimum),
    "Mul": ("times", np.multiply),
    "Sub": ("minus", np.subtract),
    "Update": ("replaced by", None),
}
#: Those that write to their first input.
SCATTERED = {
    f"Scatter{kind}{way}": _scatter(f"Scatter{kind}{way}", *each, is_nd=bool(kind), is_updated=True)
    for kind in ("", "Nd")
    for way, each in _WAYS.items()
}
TENSOR_SCATTERED = {
    f"TensorScatter{way}": _scatter(f"TensorScatter{way}", *each, is_nd=True, is_updated=False)
    for way, each in _WAYS.items()
}

_PAIRS: Mapping[str, tuple[str, Callable[..., Any], Collection[D]]] = {
    "BitwiseAnd": ("y = x1 & x2", np.bitwise_and, INTEGERS),
    "BitwiseOr": ("y = x1 | x2", np.bitwise_or, INTEGERS),
    "BitwiseXor": ("y = x1 ^ x2", np.bitwise_xor, INTEGERS),
    "DivNoNan": ("y = x1 / x2, 0 where x2 is 0", _quotient, _COMPUTED),
    "LeftShift": ("y = x1 << x2", np.left_shift, INTEGERS),
    "MulNoNan": ("y = x1 * x2, 0 where x2 is 0", _product, _COMPUTED),
    "NextAfter": ("y = the number after x1 in the direction of x2", np.nextafter, (D.FLOAT, D.DOUBLE)),
    "RightShift": ("y = x1 >> x2", right_shift, INTEGERS),
    "SquaredDifference": ("y = (x1 - x2)^2", lambda x1, x2: np.square(_wide(x1) - x2), _COMPUTED),
    "Xdivy": ("y = x1 / x2, 0 where x1 is 0", lambda x1, x2: np.where(x1 == 0, 0, _wide(x1) / x2), REAL_FLOATING),
    "Xlogy": ("y = x1 * log(x2), 0 where x1 is 0", _logarithms, REAL_FLOATING),
}
"""Formula, function and data types of each type of two inputs that broadcast."""
PAIRS = {op_type: _of_two(op_type, *each) for op_type, each in _PAIRS.items()}

_SINGLES: Mapping[str, tuple[str, Callable[..., Any], Collection[D]]] = {
    "Acosh": ("y = arcosh(x)", np.arccosh, REAL_FLOATING),
    "Asinh": ("y = arsinh(x)", np.arcsinh, REAL_FLOATING),
    "Atanh": ("y = artanh(x)", np.arctanh, REAL_FLOATING),
    "BesselI0e": ("y = e^-|x| I0(x)", lambda x: np.i0(x) * np.exp(-np.abs(x)), REAL_FLOATING),
    "Inv": ("y = 1 / x", lambda x: 1 / x, REAL_FLOATING),
    "Lgamma": ("y = log|gamma(x)|", np.vectorize(_log_gamma, otypes=[np.float64]), REAL_FLOATING),
    "Rint": ("y = x rounded to an integer, halves to an even one", np.rint, REAL_FLOATING),
    "Softsign": ("y = x / (1 + |x|)", lambda x: x / (1 + np.abs(x)), REAL_FLOATING),
}
"""Formula, float64 function and data types of each type of one input."""
SINGLES = {
    op_type: _operator(
        op_type,
        formula,
        {"x": dtypes},
        {"y": Result(_as("x"))},
        lambda x, function=function: function(x.astype(np.float64)),
    )
    for op_type, (formula, function, dtypes) in _SINGLES.items()
}
