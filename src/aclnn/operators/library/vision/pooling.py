"""Max, average and adaptive pooling, with gradients, over the last two or three dimensions.

A maximum's index refers to the channel's plane or volume; of equal elements the first is taken, and NaN exceeds any
number.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dtype_in,
    each,
    elsewhere,
    extents,
    floating,
    format_of_rank,
    listing,
    on,
    one_of,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import (
    CUBE,
    INTEGERS,
    MODERN,
    add_at,
    cube_math,
    expect_within,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.convolution.convolution import Windows

_DTYPES = FLOATING
Numbers = tuple[int, ...]


def _array(name: str, snake: str, meaning: str) -> Parameter:
    return Parameter(name, snake, Kind.INT_ARRAY, meaning)


_KERNEL = _array("kernelSize", "kernel_size", "the kernel size, or one number for all dimensions")
_STRIDE = _array("stride", "stride", "the strides; empty: the kernel size")
_PADDING = _array("padding", "padding", "the padding around the plane")
_DILATION = _array("dilation", "dilation", "the spacing between the elements of a window")
_CEIL = Parameter("ceilMode", "ceil_mode", Kind.BOOL, "whether to round the output size up")
_CHANNELS_LAST = (Format.FORMAT_NHWC, Format.FORMAT_NDHWC)
_PLANES = (Format.FORMAT_NCL, Format.FORMAT_NCHW)
_BOTH_INDICES = (D.INT32, D.INT64)


def _rank(call: Call) -> int:
    """Return the number of pooled dimensions."""
    return 3 if "3d" in call.operator.name else 2


def _all(call: Call, numbers: Sequence[int]) -> Numbers:
    """Return one number per dimension; a single number applies to all."""
    return tuple(numbers) * (_rank(call) if len(numbers) == 1 else 1)


def _has_channels_last(call: Call) -> bool:
    """Return True if the tensors' formats imply it; other formats are ignored labels."""
    return call.operator.name in _BY_FORMAT and call["self"].format in _CHANNELS_LAST


def _plane(call: Call) -> Numbers:
    """Return the extents of the pooled dimensions."""
    shape, rank = call["self"].shape, _rank(call)
    return tuple(shape[-rank - 1 : -1] if _has_channels_last(call) else shape[-rank:])


def _pooled_shape(call: Call) -> Numbers:
    """Return the shape of one element per window."""
    shape, rank = call["self"].shape, _rank(call)
    if _has_channels_last(call):
        return (*shape[: -rank - 1], *_count(call), shape[-1])
    return (*shape[:-rank], *_count(call))


#: Number of channels with bits in a word of a mask.
_WORD = 16
_BITS = np.left_shift(1, np.arange(_WORD)).astype(np.uint16)


def _channels_first(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """Adapt a function of channels-first arrays to channels-last arrays."""

    def compute(*arrays: Any) -> Any:
        found = function(*(np.moveaxis(array, -1, -1 - rank) for array in arrays))
        if isinstance(found, tuple):
            return tuple(np.moveaxis(each, -1 - rank, -1) for each in found)
        return np.moveaxis(found, -1 - rank, -1)

    return compute


def _windows(call: Call) -> Windows:
    """Return the windows, with as much padding at the end as the last of them need."""
    if "kernelShape" in call.arguments:
        kernel, stride, margins = _all(call, call["kernelShape"]), _all(call, call["strides"] or (1,)), _pads(call)
    else:
        kernel = _all(call, call["kernelSize"])
        stride, margins = _all(call, call["stride"] or kernel), tuple((p, p) for p in _all(call, call["padding"]))
    dilation = _all(call, call["dilation"] if "dilation" in call.arguments else (1,))
    plane = _plane(call)
    padding = []
    for n, k, s, (before, behind), d in zip(plane, kernel, stride, margins, dilation, strict=True):
        reach = d * (k - 1) + 1
        last = n + before + behind - reach
        count = -(-last // s) if call["ceilMode"] else last // s
        if count * s >= n + before:  # the window would begin in the trailing padding
            count -= 1
        padding.append((before, max(count * s + reach - n - before, behind)))
    return Windows(kernel, stride, tuple(padding), dilation)


def _count(call: Call) -> Numbers:
    # Padding beyond the last window is ignored.
    return _windows(call).counts(_plane(call))


def _planes(x: Any, rank: int) -> Any:
    return x.reshape(-1, 1, *x.shape[-rank:])


def maxima(x: Any, windows: Windows, count: Numbers) -> tuple[Any, Any]:
    """Return the maxima of windows over the last dimensions, and their indices in the plane."""
    size = x.shape[-len(count) :]
    planes = _planes(x, len(count))
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf
    padded: Any = np.full((len(planes), *windows.padded(size)), least, x.dtype)
    indices: Any = np.full(padded.shape[1:], -1, np.int64)
    padded[windows.inside(size)] = planes[:, 0]
    indices[windows.inside(size)] = np.arange(math.prod(size)).reshape(size)
    best: Any = np.full((len(planes), *count), least, x.dtype)
    chosen: Any = np.full(best.shape, -1, np.int64)
    for _, elements in windows.places(count):
        values, at = padded[elements], indices[elements]
        better = ((values > best) | (np.isnan(values) & ~np.isnan(best)) | (chosen < 0)) & (at >= 0)
        best, chosen = np.where(better, values, best), np.where(better, at, chosen)
    shape = (*x.shape[: -len(count)], *count)
    return best.reshape(shape), chosen.reshape(shape)


def _largest(x: Any, windows: Windows, count: Numbers) -> Any:
    return maxima(x, windows, count)[0]


def _positions(windows: Windows, count: Numbers, size: Numbers) -> Any:
    """Return the index in the plane of each position of each window, -1 in the padding: (positions, windows)."""
    rows, columns = (
        np.arange(k)[:, None] * d + np.arange(n) * s - p
        for k, d, n, s, (p, _) in zip(
            windows.kernel, windows.dilation, count, windows.stride, windows.padding, strict=True
        )
    )
    inside = ((rows >= 0) & (rows < size[0]))[:, None, :, None] & ((columns >= 0) & (columns < size[1]))[:, None]
    found = np.where(inside, rows[:, None, :, None] * size[1] + columns[None, :, None, :], -1)
    return found.reshape(math.prod(windows.kernel), -1)


def _blocks_of_channels(x: Any) -> tuple[int, int, int]:
    """Return the number of images, of channel blocks (one word of a mask each), and of channels."""
    channels = x.shape[-3]
    return math.prod(x.shape[:-3]), -(-channels // _WORD), channels


def _masked(x: Any, windows: Windows, count: Numbers, shape: Sequence[int]) -> tuple[Any, Any]:
    """Return the maxima, and a mask as the kernel writes it to the beginning of its memory.

    For each image, channel block and window position, the mask holds a word per window, followed by unused space; the
    bits of a word mark the channels whose maximum is at that position.
    """
    best, chosen = maxima(x, windows, count)
    positions, (images, blocks, channels) = _positions(windows, count, x.shape[-2:]), _blocks_of_channels(x)
    here = np.zeros((images, blocks * _WORD, *positions.shape), bool)
    here[:, :channels] = chosen.reshape(images, channels, 1, -1) == positions
    words = np.zeros((images, blocks, len(positions), shape[-1] // 2), np.uint16)
    bits = here.reshape(images, blocks, _WORD, *positions.shape)
    words[..., : positions.shape[1]] = (bits * _BITS[:, None, None]).sum(2, dtype=np.uint16)
    mask = np.zeros(math.prod(shape), np.int8)
    mask[: words.nbytes] = words.reshape(-1).view(np.int8)
    return best, mask.reshape(shape)


def _unmasked(dy: Any, x: Any, mask: Any, windows: Windows, count: Numbers) -> Any:
    positions, (images, blocks, channels) = _positions(windows, count, x.shape[-2:]), _blocks_of_channels(x)
    stored = np.ascontiguousarray(mask).reshape(-1).view(np.uint16)
    words = stored[: images * blocks * len(positions) * mask.shape[-1] // 2].reshape(images, blocks, len(positions), -1)
    bits = words[:, :, None, :, : positions.shape[1]] & _BITS[:, None, None] != 0
    here = bits.reshape(images, blocks * _WORD, *positions.shape)[:, :channels]
    total = np.zeros((images, channels, math.prod(x.shape[-2:])))
    gradients = dy.reshape(images, channels, -1)
    for place, at in enumerate(positions):
        inside = at >= 0
        total[..., at[inside]] += np.where(here[:, :, place, inside], gradients[..., inside], 0)
    return total.reshape(x.shape)


def scattered(dy: Any, x: Any, indices: Any, rank: int = 2) -> Any:
    """Accumulate dy at indices in the planes of an array of x's shape."""
    size = math.prod(x.shape[-rank:])
    expect_within("indices", indices, 0, size - 1, "indices")
    total = np.zeros((x.size // size, size))
    rows = np.arange(len(total))[:, None]
    add_at(total, rows * size + indices.reshape(len(total), -1), dy.reshape(len(total), -1))
    return total.reshape(x.shape)


def _divisors(call: Call) -> Any:
    """Return the divisor of each window's sum."""
    if call["divisorOverride"]:
        return np.float64(call["divisorOverride"])
    windows, count, plane, sizes = _windows(call), _count(call), call["self"].shape[-_rank(call) :], []
    for n, k, s, (p, _), many in zip(plane, windows.kernel, windows.stride, windows.padding, count, strict=True):
        begin = np.arange(many) * s - p
        end = np.minimum(begin + k, n + p)
        sizes.append(end - begin if call["countIncludePad"] else np.minimum(end, n) - np.maximum(begin, 0))
    return reduce(np.multiply.outer, sizes).astype(np.float64)


def _covered(call: Call) -> list[Any]:
    """Return matrices (count, n), one per dimension, with ones where a window covers an element of a line."""
    windows, lines = _windows(call), []
    plane, many = call["self"].shape[-_rank(call) :], _count(call)
    for n, k, s, (before, _), count in zip(plane, windows.kernel, windows.stride, windows.padding, many, strict=True):
        place = np.arange(n) + before - s * np.arange(count)[:, None]
        lines.append(((place >= 0) & (place < k)).astype(np.float64))
    return lines


def _means(x: Any, covered: Sequence[Any], divisors: Any) -> Any:
    return along_axes(x, covered) / divisors


def _spread(dy: Any, covered: Sequence[Any], divisors: Any) -> Any:
    return along_axes(dy / divisors, [matrix.T for matrix in covered])


def along_axes(x: Any, matrices: Sequence[Any]) -> Any:
    """Multiply by a matrix along each of the last dimensions, in float64; weights of 0 ignore infinities and NaN."""
    result = x.astype(np.float64)
    for axis, matrix in enumerate(matrices, -len(matrices)):
        finite = np.isfinite(result)
        if finite.all():
            result = _along(result, matrix, axis)
        else:
            others = np.where(finite, 0.0, result)
            result = _along(np.where(finite, result, 0.0), matrix, axis) + _of_no_numbers(others, matrix, axis)
    return result


def _along(x: Any, matrix: Any, axis: int) -> Any:
    return np.moveaxis(np.tensordot(x, matrix, (axis, 1)), -1, axis)


def _of_no_numbers(x: Any, matrix: Any, axis: int) -> Any:
    """Return the products of infinities and NaN, with other elements as 0, ignoring weights of 0."""
    signs = np.sign(matrix)
    nan = _along(np.isnan(x).astype(np.float64), np.abs(signs), axis) > 0
    above, below = (
        _along((x == end).astype(np.float64), signs > 0, axis) + _along((x == -end).astype(np.float64), signs < 0, axis)
        > 0
        for end in (np.inf, -np.inf)
    )
    return np.where(nan | (above & below), np.nan, np.where(above, np.inf, np.where(below, -np.inf, 0.0)))


def _bounds(n: int, count: int) -> list[slice]:
    return [slice(at * n // count, -(-(at + 1) * n // count)) for at in range(count)]


def _adaptive(n: int, count: int) -> Any:
    """Return the matrix (count, n) of averages along a line."""
    weights = np.zeros((count, n))
    for row, part in zip(weights, _bounds(n, count), strict=True):
        row[part] = 1 / (part.stop - part.start)
    return weights


def _adaptive_means(x: Any, plane: Sequence[int]) -> Any:
    rank = len(plane)
    return along_axes(x, [_adaptive(n, count) for n, count in zip(x.shape[-rank:], plane, strict=True)])


def _adaptive_spread(dy: Any, x: Any, rank: int) -> Any:
    pairs = zip(x.shape[-rank:], dy.shape[-rank:], strict=True)
    return along_axes(dy, [_adaptive(n, count).T for n, count in pairs])


def _adaptive_maxima(x: Any, plane: Sequence[int]) -> tuple[Any, Any]:
    rank = len(plane)
    size, before = x.shape[-rank:], x.shape[:-rank]
    places = np.arange(math.prod(size)).reshape(size)
    values, indices = np.empty((*before, *plane), x.dtype), np.empty((*before, *plane), np.int64)
    parts = [_bounds(n, count) for n, count in zip(size, plane, strict=True)]
    for cell, part in zip(np.ndindex(*plane), itertools.product(*parts), strict=True):
        taken, elements = (..., *part), (..., *cell)
        window = x[taken].reshape(*before, -1)
        best = window.argmax(-1)  # the first NaN if there is any
        values[elements] = np.take_along_axis(window, best[..., None], -1)[..., 0]
        indices[elements] = places[part].reshape(-1)[best]
    return values, indices


def _ranks(call: Call) -> str | None:
    shape, rank = call["self"].shape, _rank(call)
    # Averaged volumes may have no channels.
    extents_that_are = shape[-rank:] if call.operator.name.startswith("avg_pool3d") else shape[1:]
    if len(shape) - rank in (1, 2) and 0 not in extents_that_are:
        return None
    plane = "C, D, H, W" if rank == 3 else "C, H, W"
    return f"self: expected ({plane}) or (N, {plane}), got {extents(shape)}"


def _numbers(call: Call) -> str | None:
    for name, least in (("kernelSize", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        if name not in call.arguments:
            continue
        rank, given = _rank(call), call[name] or ()
        if len(given) not in (1, rank) and (given or name != "stride"):
            return f"{name}: expected 1 or {rank} numbers, got {len(given)}"
        if any(number < least for number in given):
            return f"{name}: expected numbers of at least {least}, got {list(given)}"
    kernel, padding = _all(call, call["kernelSize"]), _all(call, call["padding"])
    if all(2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        return None
    return f"padding: expected at most half of kernelSize {list(kernel)}, got {list(call['padding'])}"


def _length(name: str, *lengths: int) -> Check:
    return value_is(f"{listing(map(str, lengths))} numbers", lambda got: got in lengths, name, of=lambda got: len(got))


def _at_least(least: int, *names: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        got = list(call[name])
        return f"expected numbers of at least {least}, got {got}" if any(number < least for number in got) else None

    return each(f"at least {least}", names, violation)


def _undilated(name: str) -> Check:
    return value_is("only 1", lambda got: not any(number != 1 for number in got), name, of=lambda got: list(got))


def _within_volume(call: Call) -> str | None:
    kernel, volume = _all(call, call["kernelSize"]), _plane(call)
    if all(k <= n for k, n in zip(kernel, volume, strict=True)):
        return None
    return f"kernelSize: expected at most the extents {extents(volume)} of self, got {list(call['kernelSize'])}"


def _plane_format(call: Call, name: str) -> str | None:
    tensor = call[name]
    allowed = _PLANES[1:] if len(tensor.shape) > _rank(call) + 1 and name != "self" else _PLANES
    expected = listing(each.c_name for each in allowed)
    return None if tensor.format in allowed else f"expected format {expected}, got {tensor.format.c_name}"


def _volume_format(call: Call, name: str) -> str | None:
    further = (Format.FORMAT_ND,) if call.product in CLASS_950 else ()
    allowed, got = (*further, Format.FORMAT_NCHW, Format.FORMAT_NCDHW), call[name].format
    return None if got in allowed else f"expected format {listing(each.c_name for each in allowed)}, got {got.c_name}"


def _alike(*names: str) -> tuple[Check, ...]:
    """Require the same format of all tensors, which is not private."""
    return public_format(*names), *(same_format(name, names[0]) for name in names[1:])


def _for_older_products(call: Call) -> str | None:
    return f"product: expected one before {call.product.title}, which has aclnnMaxPool2dWithIndices, got this one"


def _padding_within_kernel(call: Call) -> str | None:
    kernel = _all(call, call["kernelShape"])
    if all(sum(pair) <= k for pair, k in zip(_pads(call), kernel, strict=True)):
        return None
    return f"pads: expected sums of at most kernelShape {list(kernel)}, got {list(call['pads'])}"


def _pads(call: Call) -> tuple[tuple[int, int], ...]:
    """Return the padding before and after each dimension; four numbers are those before, then those after."""
    given = tuple(call["pads"]) or (0,)
    top, left, bottom, right = given if len(given) == 4 else (given * 2 if len(given) == 2 else given * 4)
    return (top, bottom), (left, right)


_SIZES = rule("sizes of windows: kernelSize, stride, padding", _numbers)


def _pooled(*names: str) -> Check:
    def violation(call: Call) -> str | None:
        expected = _pooled_shape(call)
        for name in names:
            got = call[name].shape
            if got != expected or min(_count(call)) < 1:
                return f"{name}: expected shape {extents(expected)} of at least one window, got {extents(got)}"
        return None

    return rule(f"shape of the windows: {', '.join(names)}", violation)


def _mask(call: Call) -> str | None:
    kernel, count = math.prod(_all(call, call["kernelSize"])), math.prod(_count(call))
    expected, got = (*call["self"].shape[:-2], kernel, (-(-count // 16) + 1) * 32), call["indices"].shape
    return None if got == expected else f"indices: expected shape {extents(expected)}, got {extents(got)}"


def _given_plane(*names: str) -> Check:
    def violation(call: Call) -> str | None:
        plane, shape, rank = tuple(call["outputSize"]), call["self"].shape, _rank(call)
        if len(plane) != rank or min(plane) < 1:
            return f"outputSize: expected {rank} numbers of at least 1, got {list(plane)}"
        expected = (*shape[:-rank], *plane)
        for name in names:
            if (got := call[name].shape) != expected:
                return f"{name}: expected shape {extents(expected)}, got {extents(got)}"
        return None

    return rule(f"the requested plane: outputSize, {', '.join(names)}", violation)


def _same_planes(call: Call) -> str | None:
    expected, got, rank = call["self"].shape, call["gradOutput"].shape, _rank(call)
    if len(got) == len(expected) and got[:-rank] == expected[:-rank] and min(got[-rank:]) > 0:
        return None
    return f"gradOutput: expected dimensions {extents(expected[:-rank])} before its plane (as self), got {extents(got)}"


def _operator(
    name: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    inputs: tuple[str, ...],
    function: Callable[[Call], Callable[..., Any]],
    index_types: Callable[[Product], Collection[D]] = lambda product: _BOTH_INDICES,
    taken: Callable[[Product], Collection[D]] = floating,
    products: Collection[Product] = MODERN,
    types: tuple[Check, ...] | None = None,
    formats: tuple[Check, ...] | None = None,
) -> Operator:
    """Declare an operator with one data type and one format, unless ``types`` and ``formats`` say otherwise."""
    outputs = tuple(parameter.name for parameter in parameters if parameter.kind is Kind.OUTPUT)
    tensors = tuple(p.name for p in parameters if p.is_tensor)
    indices = tuple(each for each in tensors if each.startswith("indices"))
    others = tuple(each for each in tensors if each not in ("self", *indices))

    def work(call: Call) -> Library | None:
        if call[outputs[0]].size == 0:
            return None
        compute = function(call)
        return Library(_channels_first(compute, _rank(call)) if _has_channels_last(call) else compute, inputs, outputs)

    return Operator(
        name=name,
        summary=summary,
        formula="of each window",
        parameters=parameters,
        support={product: frozenset(taken(product)) for product in products},
        checks=(
            dtype_in(taken, "self"),
            *((same_dtype(each, "self") for each in others) if types is None else types),
            *(dtype_in(index_types, each) for each in indices),
            *(_alike("self", *others) if formats is None else formats),
            rule("channels: self", _ranks),
            *checks,
        ),
        work=work,
        in_header_of=re.sub("^avg_pool", "avgpool", name.replace("with_mask", "with_indices")),
    )


_X = tensor_in("self", "planes, of channels, of samples")
_DY = tensor_in("gradOutput", "the gradient arriving at the output")
_DX = Parameter("gradInput", "grad_input", Kind.OUTPUT, "the gradient of self")
_SIZE = _array("outputSize", "output_size", "how many, along each dimension")
#: Functions that use the format to determine the channel dimension.
_BY_FORMAT = ("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_argmax")
_INDICES = Parameter("indices", "indices", Kind.OUTPUT, "the index of each maximum in its plane")
_AVERAGE = (
    _KERNEL,
    _STRIDE,
    _PADDING,
    _CEIL,
    Parameter("countIncludePad", "count_include_pad", Kind.BOOL, "whether to include padding in the mean"),
    Parameter("divisorOverride", "divisor_override", Kind.INT64, "the divisor of the sums; 0: the window sizes"),
    CUBE,
)

#: Formats accepted by such functions before Ascend 950.
_BEFORE_950 = elsewhere(
    CLASS_950,
    value_is("channels before the plane", lambda got: got not in _CHANNELS_LAST, "self", of=lambda got: got.format),
)
_UNDILATED = elsewhere(CLASS_950, _undilated("dilation"))
_DEPRECATED = on(CLASS_950, rule("product before Ascend 950", _for_older_products))
_WITHIN_VOLUME = rule("at most the extents of self: kernelSize", _within_volume)


def _indices(product: Product) -> Collection[D]:
    return _BOTH_INDICES if product in CLASS_950 else (D.INT32,)


def _stride_of_gradient(parameter: Parameter, rank: str) -> Parameter:
    """Allow null for the stride of planes, which then equals the kernel's extent."""
    return replace(parameter, optional=True) if rank == "2d" and parameter is _STRIDE else parameter


_PLANE_TYPES = {
    **dict.fromkeys(CLASS_950, frozenset({*_DTYPES, *INTEGERS, D.UINT16})),
    **dict.fromkeys(A2_CLASS, frozenset({D.FLOAT, D.FLOAT16})),
    Product.ATLAS_TRAINING: frozenset({D.FLOAT16}),
}

OPERATORS = (
    Operator(
        name="max_pool",
        function="aclnnMaxPool",
        summary="Max pooling.",
        formula="of each window",
        parameters=(
            _X,
            _array("kernelShape", "kernel_shape", "the kernel size, or one number for both dimensions"),
            _array("strides", "strides", "the strides; empty: 1"),
            Parameter("autoPad", "auto_pad", Kind.INT64, "0"),
            _array("pads", "pads", "the padding: top, left, bottom, right, or one number for all"),
            _array("dilations", "dilations", "1"),
            Parameter("ceilMode", "ceil_mode", Kind.INT64, "nonzero: round the output size up"),
            tensor_out(),
        ),
        support=_PLANE_TYPES,
        checks=(
            dtype_in(lambda product: _PLANE_TYPES.get(product, _DTYPES), "self"),
            same_dtype("out", "self"),
            *_alike("self", "out"),
            rule("channels: self", _ranks),
            _length("kernelShape", 1, 2),
            _length("strides", 0, 1, 2),
            _length("pads", 0, 1, 2, 4),
            _length("dilations", 0, 1, 2, 4),
            one_of("autoPad", 0),
            _undilated("dilations"),
            _at_least(1, "kernelShape", "strides"),
            _at_least(0, "pads"),
            rule("at most kernelShape: pads", _padding_within_kernel),
            _pooled("out"),
        ),
        work=lambda call: (
            None
            if call["out"].size == 0
            else Library(partial(_largest, windows=_windows(call), count=_count(call)), ("self",), ("out",))
        ),
    ),
    _operator(
        "max_pool2d_with_indices",
        "Max pooling with the indices of the maxima in the plane.",
        (*(_X, _KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, tensor_out()), _INDICES),
        (*_BEFORE_950, _SIZES, *_UNDILATED, _pooled("out", "indices")),
        ("self",),
        lambda call: partial(maxima, windows=_windows(call), count=_count(call)),
    ),
    _operator(
        "max_pool2d_with_indices_backward",
        "Gradient of max pooling with respect to its input.",
        (
            *(_DY, _X, tensor_in("indices", "the indices that the forward function wrote")),
            *(_KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, _DX),
        ),
        (*_BEFORE_950, _SIZES, *_UNDILATED, _pooled("gradOutput", "indices"), same_shape("gradInput", "self")),
        ("gradOutput", "self", "indices"),
        lambda call: scattered,
        _indices,
        lambda product: _DTYPES if product in CLASS_950 else (D.FLOAT,),
        formats=(*_alike("self", "gradOutput", "gradInput"), public_format("indices")),
    ),
    _operator(
        "max_pool2d_with_mask",
        "Max pooling with a mask of the maxima.",
        (
            *(_X, _KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, tensor_out()),
            Parameter(
                "indices",
                "indices",
                Kind.OUTPUT,
                "a mask for the gradient: for each kernel element, words of one bit for each of 16 channels",
            ),
        ),
        (_SIZES, *_UNDILATED, _pooled("out"), rule("room for the mask: indices", _mask)),
        ("self",),
        lambda call: partial(_masked, windows=_windows(call), count=_count(call), shape=call["indices"].shape),
        lambda product: (D.INT8,),
        products=A2_CLASS,
        types=(*_DEPRECATED, same_dtype("out", "self")),
    ),
    _operator(
        "max_pool2d_with_mask_backward",
        "Gradient of max pooling with a mask with respect to its input.",
        (
            *(_DY, _X, tensor_in("indices", "the mask that the forward function wrote")),
            *(_KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, _DX),
        ),
        (
            *(_SIZES, *_UNDILATED, _pooled("gradOutput")),
            *(rule("room for the mask: indices", _mask), same_shape("gradInput", "self")),
        ),
        ("gradOutput", "self", "indices"),
        lambda call: partial(_unmasked, windows=_windows(call), count=_count(call)),
        lambda product: (D.INT8,),
        products=A2_CLASS,
        types=(*_DEPRECATED, same_dtype("gradOutput", "self"), same_dtype("gradInput", "self")),
        formats=(*_alike("self", "gradOutput", "gradInput"), public_format("indices")),
    ),
    _operator(
        "max_pool3d_with_argmax",
        "Max pooling of volumes with the indices of the maxima in the volume.",
        (_X, _KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, tensor_out(), _INDICES),
        (*_BEFORE_950, _SIZES, *_UNDILATED, _pooled("out", "indices")),
        ("self",),
        lambda call: partial(maxima, windows=_windows(call), count=_count(call)),
        _indices,
        formats=_alike("self", "out", "indices"),
    ),
    _operator(
        "max_pool3d_with_argmax_backward",
        "Gradient of max pooling of volumes with respect to its input.",
        (
            *(_DY, _X, tensor_in("indices", "the indices that the forward function wrote")),
            *(_KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, _DX),
        ),
        (_SIZES, _pooled("gradOutput", "indices"), same_shape("gradInput", "self")),
        ("gradOutput", "self", "indices"),
        lambda call: partial(scattered, rank=3),
        _indices,
        formats=(*_alike("self", "gradOutput", "gradInput"), public_format("indices")),
    ),
    *(
        pooling
        for rank, average, more in (("2d", _AVERAGE, (cube_math("self"),)), ("3d", _AVERAGE[:-1], (_WITHIN_VOLUME,)))
        for pooling in (
            _operator(
                f"avg_pool{rank}",
                "Average pooling.",
                (_X, *average, tensor_out()),
                (_SIZES, *more, _pooled("out")),
                ("self",),
                lambda call: partial(_means, covered=_covered(call), divisors=_divisors(call)),
                formats=(format_of_rank("self", "out"),) if rank == "2d" else None,
            ),
            _operator(
                f"avg_pool{rank}_backward",
                "Gradient of average pooling with respect to its input.",
                (_DY, _X, *(_stride_of_gradient(each, rank) for each in average), _DX),
                (_SIZES, *(more if rank == "2d" else ()), _pooled("gradOutput"), same_shape("gradInput", "self")),
                ("gradOutput",),
                lambda call: partial(_spread, covered=_covered(call), divisors=_divisors(call)),
                types=(
                    dtype_in(floating, "gradOutput", "gradInput"),
                    *((same_dtype("gradInput", "gradOutput"),) if rank == "2d" else ()),
                ),
                formats=(
                    (each("format of planes", ("gradOutput", "self", "gradInput"), _plane_format),)
                    if rank == "2d"
                    else _alike("gradOutput", "gradInput")
                ),
            ),
            _operator(
                f"adaptive_avg_pool{rank}",
                "Adaptive average pooling, to a given output size.",
                (_X, _SIZE, tensor_out()),
                (_given_plane("out"),),
                ("self",),
                lambda call: partial(_adaptive_means, plane=call["outputSize"]),
                formats=(format_of_rank("self", "out"),) if rank == "2d" else None,
            ),
            _operator(
                f"adaptive_avg_pool{rank}_backward",
                "Gradient of adaptive average pooling with respect to its input.",
                (_DY, _X, tensor_out("out", "the gradient with respect to self")),
                (rule("the planes of self: gradOutput", _same_planes), same_shape("out", "self")),
                ("gradOutput", "self"),
                lambda call: partial(_adaptive_spread, rank=_rank(call)),
                formats=(public_format("gradOutput", "self", "out"),),
            ),
            _operator(
                f"adaptive_max_pool{rank}",
                "Adaptive max pooling, to a given output size, with the indices of the maxima.",
                (_X, _SIZE, tensor_out("outputOut", "the elements"), tensor_out("indicesOut", "the indices")),
                (_given_plane("outputOut", "indicesOut"),),
                ("self",),
                lambda call: partial(_adaptive_maxima, plane=call["outputSize"]),
                (lambda product: (D.INT64,)) if rank == "2d" else _indices,
                (lambda product: (*floating(product), D.DOUBLE)) if rank == "2d" else floating,
                formats=(
                    (public_format("self", "outputOut"),)
                    if rank == "2d"
                    else (each("format of volumes", ("self",), _volume_format), same_format("outputOut", "self"))
                ),
            ),
            _operator(
                f"adaptive_max_pool{rank}_backward",
                "Gradient of adaptive max pooling with respect to its input.",
                (_DY, _X, tensor_in("indices", "the indices that the forward function wrote"), _DX),
                (
                    rule("the planes of self: gradOutput", _same_planes),
                    same_shape("indices", "gradOutput"),
                    same_shape("gradInput", "self"),
                ),
                ("gradOutput", "self", "indices"),
                lambda call: partial(scattered, rank=_rank(call)),
                formats=(*_alike("self", "gradOutput", "gradInput"), public_format("indices")),
            ),
        )
    ),
)
