"""aclnnMaxPool2dWithIndices, aclnnAvgPool2d and aclnnAdaptiveAvgPool2d, with gradients, over the last two dimensions.

A maximum's index counts the elements of a channel's plane; of equal ones the first is taken, and NaN before any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dtype_in,
    extents,
    floating,
    present,
    public_format,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, Product
from aclnn.operators.library.common import MODERN, camel, support, tensor_in, tensor_out
from aclnn.operators.library.convolution import Windows

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16)
Pair = tuple[int, int]


def _array(name: str, snake: str, meaning: str) -> Parameter:
    return Parameter(name, snake, Kind.INT_ARRAY, meaning)


_KERNEL = _array("kernelSize", "kernel_size", "the windows' height and width, or one number for both")
_STRIDE = _array("stride", "stride", "steps from window to window; none for the windows' size")
_PADDING = _array("padding", "padding", "elements around the plane")
_DILATION = _array("dilation", "dilation", "steps from element to element of a window")
_CEIL = Parameter("ceilMode", "ceil_mode", Kind.BOOL, "true if a last window may begin inside and end outside")


def _pair(numbers: Sequence[int]) -> Pair:
    return (numbers[0], numbers[-1])


def _windows(call: Call) -> Windows:
    """The windows, with as many elements after the plane as the last of them need."""
    kernel = _pair(call["kernelSize"])
    stride, padding = _pair(call["stride"] or kernel), _pair(call["padding"])
    dilation = _pair(call["dilation"]) if "dilation" in call.arguments else (1, 1)
    plane = call["self"].shape[-2:]
    after = []
    for n, k, s, p, d in zip(plane, kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        last = n + 2 * p - reach
        count = -(-last // s) if call["ceilMode"] else last // s
        if count * s >= n + p:  # it would begin in the padding behind
            count -= 1
        after.append(max(count * s + reach - n - p, p))
    return Windows(kernel, stride, tuple(zip(padding, after, strict=True)), dilation)


def _count(call: Call) -> Pair:
    windows = _windows(call)
    # Of padding that reaches further than the last window nothing more is taken.
    found = windows.counts(call["self"].shape[-2:])
    return (found[0], found[1])


def _planes(x: Any) -> Any:
    return x.reshape(-1, 1, *x.shape[-2:])


def _maxima(x: Any, windows: Windows, count: Pair) -> tuple[Any, Any]:
    planes, size = _planes(x), x.shape[-2:]
    padded: Any = np.full((len(planes), *windows.padded(size)), -math.inf, x.dtype)
    indices: Any = np.full(padded.shape[1:], -1, np.int64)
    padded[windows.inside(size)] = planes[:, 0]
    indices[windows.inside(size)] = np.arange(math.prod(size)).reshape(size)
    best: Any = np.full((len(planes), *count), -math.inf, x.dtype)
    chosen: Any = np.full(best.shape, -1, np.int64)
    for _, elements in windows.places(count):
        values, at = padded[elements], indices[elements]
        better = ((values > best) | (np.isnan(values) & ~np.isnan(best)) | (chosen < 0)) & (at >= 0)
        best, chosen = np.where(better, values, best), np.where(better, at, chosen)
    shape = (*x.shape[:-2], *count)
    return best.reshape(shape), chosen.reshape(shape)


def _positions(windows: Windows, count: Pair, size: Pair) -> Any:
    """The index in the plane of each place of each window: (places, windows)."""
    rows, columns = (
        np.arange(k)[:, None] * d + np.arange(n) * s - p
        for k, d, n, s, (p, _) in zip(
            windows.kernel, windows.dilation, count, windows.stride, windows.padding, strict=True
        )
    )
    return (rows[:, None, :, None] * size[1] + columns[None, :, None, :]).reshape(math.prod(windows.kernel), -1)


def _masked(x: Any, windows: Windows, count: Pair, shape: Sequence[int]) -> tuple[Any, Any]:
    """The maxima, and a mask whose first bytes hold the place in its window of each, two bytes each."""
    best, chosen = _maxima(x, windows, count)
    places = (chosen.reshape(-1, 1, math.prod(count)) == _positions(windows, count, x.shape[-2:])).argmax(1)
    mask = np.zeros((len(places), math.prod(shape[-2:])), np.int8)
    mask[:, : 2 * places.shape[1]] = places.astype(np.int16).view(np.int8)
    return best, mask.reshape(shape)


def _unmasked(dy: Any, x: Any, mask: Any, windows: Windows, count: Pair) -> Any:
    flat = np.ascontiguousarray(mask.reshape(-1, math.prod(mask.shape[-2:]))[:, : 2 * math.prod(count)])
    places, known = flat.view(np.int16), _positions(windows, count, x.shape[-2:])
    return _scattered(dy, x, known[places % len(known), np.arange(known.shape[1])])


def _scattered(dy: Any, x: Any, indices: Any) -> Any:
    total = np.zeros((x.size // math.prod(x.shape[-2:]), math.prod(x.shape[-2:])))
    rows = np.arange(len(total))[:, None]
    np.add.at(total, (rows, indices.reshape(len(total), -1)), dy.reshape(len(total), -1).astype(np.float64))
    return total.reshape(x.shape)


def _divisors(call: Call) -> Any:
    """The number that each window's sum is divided by."""
    if call["divisorOverride"]:
        return np.float64(call["divisorOverride"])
    windows, count, plane, sizes = _windows(call), _count(call), call["self"].shape[-2:], []
    for n, k, s, (p, _), many in zip(plane, windows.kernel, windows.stride, windows.padding, count, strict=True):
        begin = np.arange(many) * s - p
        end = np.minimum(begin + k, n + p)
        sizes.append(end - begin if call["countIncludePad"] else np.minimum(end, n) - np.maximum(begin, 0))
    return np.multiply.outer(*sizes).astype(np.float64)


def _means(x: Any, windows: Windows, count: Pair, divisors: Any) -> Any:
    columns = windows.columns(_planes(x).astype(np.float64), count)
    return (columns.sum((0, 1, 2)) / divisors).reshape(*x.shape[:-2], *count)


def _spread(dy: Any, x: Any, windows: Windows, divisors: Any) -> Any:
    shares = (dy.reshape(-1, *dy.shape[-2:]) / divisors)[None, None, None]
    columns = np.broadcast_to(shares, (1, *windows.kernel, *shares.shape[3:]))
    return windows.sums(columns, x.shape[-2:]).reshape(x.shape)


def _bounds(n: int, count: int) -> list[slice]:
    return [slice(at * n // count, -(-(at + 1) * n // count)) for at in range(count)]


def _adaptive(n: int, count: int) -> Any:
    """The matrix (count, n) that averages a line."""
    weights = np.zeros((count, n))
    for row, part in zip(weights, _bounds(n, count), strict=True):
        row[part] = 1 / (part.stop - part.start)
    return weights


def _adaptive_means(x: Any, plane: Sequence[int]) -> Any:
    rows, columns = (_adaptive(n, count) for n, count in zip(x.shape[-2:], plane, strict=True))
    return rows @ x.astype(np.float64) @ columns.T


def _adaptive_spread(dy: Any, x: Any) -> Any:
    rows, columns = (_adaptive(n, count) for n, count in zip(x.shape[-2:], dy.shape[-2:], strict=True))
    return rows.T @ dy.astype(np.float64) @ columns


def _ranks(call: Call) -> str | None:
    shape = call["self"].shape
    if len(shape) in (3, 4) and 0 not in shape[1:]:
        return None
    return f"self: expected (C, H, W) or (N, C, H, W), got {extents(shape)}"


def _numbers(call: Call) -> str | None:
    for name, least in (("kernelSize", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        if name not in call.arguments:
            continue
        lengths = (0, 1, 2) if name == "stride" else (1, 2)
        if len(call[name]) not in lengths:
            return f"{name}: expected 1 or 2 numbers, got {len(call[name])}"
        if any(number < least for number in call[name]):
            return f"{name}: expected numbers of at least {least}, got {list(call[name])}"
    kernel, padding = _pair(call["kernelSize"]), _pair(call["padding"])
    if all(2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        return None
    return f"padding: expected at most half of kernelSize {list(kernel)}, got {list(call['padding'])}"


_SIZES = rule("sizes of windows: kernelSize, stride, padding", _numbers)


def _pooled(*names: str) -> Check:
    def complain(call: Call) -> str | None:
        expected = (*call["self"].shape[:-2], *_count(call))
        for name in names:
            got = call[name].shape
            if got != expected or min(expected[-2:]) < 1:
                return f"{name}: expected shape {extents(expected)} of at least one window, got {extents(got)}"
        return None

    return rule(f"shape of the windows: {', '.join(names)}", complain)


def _mask(call: Call) -> str | None:
    kernel, count = math.prod(_pair(call["kernelSize"])), math.prod(_count(call))
    expected, got = (*call["self"].shape[:-2], kernel, (-(-count // 16) + 1) * 32), call["indices"].shape
    return None if got == expected else f"indices: expected shape {extents(expected)}, got {extents(got)}"


def _given_plane(call: Call) -> str | None:
    plane, shape = tuple(call["outputSize"]), call["self"].shape
    if len(plane) != 2 or min(plane) < 1:
        return f"outputSize: expected 2 numbers of at least 1, got {list(plane)}"
    expected, got = (*shape[:-2], *plane), call["out"].shape
    return None if got == expected else f"out: expected shape {extents(expected)}, got {extents(got)}"


def _same_planes(call: Call) -> str | None:
    expected, got = call["self"].shape, call["gradOutput"].shape
    if len(got) == len(expected) and got[:-2] == expected[:-2] and min(got[-2:]) > 0:
        return None
    return f"gradOutput: expected dimensions {extents(expected[:-2])} before its plane (as self), got {extents(got)}"


def _operator(
    name: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    checks: tuple[Check, ...],
    inputs: tuple[str, ...],
    function: Callable[[Call], Callable[..., Any]],
    index_types: Collection[D] = (D.INT32, D.INT64),
    products: Collection[Product] = MODERN,
) -> Operator:
    outputs = tuple(parameter.name for parameter in parameters if parameter.kind is Kind.OUTPUT)
    types = tuple(p.name for p in parameters if p.kind in (Kind.INPUT, Kind.OUTPUT) and p.name != "indices")
    arrays = tuple(p.name for p in parameters if p.kind is Kind.INT_ARRAY)
    tensors = tuple(p.name for p in parameters if p.kind in (Kind.INPUT, Kind.OUTPUT))
    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula="of each window",
        parameters=parameters,
        support=support(_DTYPES, products),
        checks=(
            present(*tensors, *arrays),
            dtype_in(floating, "self"),
            *(same_dtype(each, "self") for each in types if each != "self"),
            *((dtype_in(where_supported(index_types), "indices"),) if "indices" in tensors else ()),
            public_format(*types),
            rule("3 or 4 dimensions: self", _ranks),
            *checks,
        ),
        work=lambda call: None if call[outputs[0]].size == 0 else Library(function(call), inputs, outputs),
    )


_X = tensor_in("self", "planes, of channels, of samples")
_DY = tensor_in("gradOutput", "the gradient arriving at the output")
_DX = Parameter("gradInput", "grad_input", Kind.OUTPUT, "the gradient of self")
_AVERAGE = (
    _KERNEL,
    _STRIDE,
    _PADDING,
    _CEIL,
    Parameter("countIncludePad", "count_include_pad", Kind.BOOL, "true if padding counts in the mean"),
    Parameter("divisorOverride", "divisor_override", Kind.INT64, "what sums are divided by; 0 for the windows' sizes"),
    Parameter("cubeMathType", "cube_math_type", Kind.INT8, "which precision the cube unit may use"),
)

OPERATORS = (
    _operator(
        "max_pool2d_with_indices",
        "The largest element of each window, and its index in the plane.",
        (
            *(_X, _KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, tensor_out()),
            Parameter("indices", "indices", Kind.OUTPUT, "the index in the plane of each"),
        ),
        (_SIZES, _pooled("out", "indices")),
        ("self",),
        lambda call: partial(_maxima, windows=_windows(call), count=_count(call)),
    ),
    _operator(
        "max_pool2d_with_indices_backward",
        "Gradient of max pooling with respect to its input.",
        (
            *(_DY, _X, tensor_in("indices", "those that the forward function wrote")),
            *(_KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, _DX),
        ),
        (_SIZES, _pooled("gradOutput", "indices"), same_shape("gradInput", "self")),
        ("gradOutput", "self", "indices"),
        lambda call: _scattered,
    ),
    _operator(
        "max_pool2d_with_mask",
        "The largest element of each window, and which of the window's it is.",
        (
            *(_X, _KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, tensor_out()),
            Parameter("indices", "indices", Kind.OUTPUT, "for the gradient; no document says what its bytes are"),
        ),
        (_SIZES, _pooled("out"), rule("room for the mask: indices", _mask)),
        ("self",),
        lambda call: partial(_masked, windows=_windows(call), count=_count(call), shape=call["indices"].shape),
        (D.INT8,),
        A2_CLASS,
    ),
    _operator(
        "max_pool2d_with_mask_backward",
        "Gradient of max pooling with a mask with respect to its input.",
        (
            *(_DY, _X, tensor_in("indices", "what the forward function wrote")),
            *(_KERNEL, _STRIDE, _PADDING, _DILATION, _CEIL, _DX),
        ),
        (_SIZES, _pooled("gradOutput"), rule("room for the mask: indices", _mask), same_shape("gradInput", "self")),
        ("gradOutput", "self", "indices"),
        lambda call: partial(_unmasked, windows=_windows(call), count=_count(call)),
        (D.INT8,),
        A2_CLASS,
    ),
    _operator(
        "avg_pool2d",
        "The mean of each window.",
        (_X, *_AVERAGE, tensor_out()),
        (_SIZES, _pooled("out")),
        ("self",),
        lambda call: partial(_means, windows=_windows(call), count=_count(call), divisors=_divisors(call)),
    ),
    _operator(
        "avg_pool2d_backward",
        "Gradient of average pooling with respect to its input.",
        (_DY, _X, *_AVERAGE, _DX),
        (_SIZES, _pooled("gradOutput"), same_shape("gradInput", "self")),
        ("gradOutput", "self"),
        lambda call: partial(_spread, windows=_windows(call), divisors=_divisors(call)),
    ),
    _operator(
        "adaptive_avg_pool2d",
        "Means over as many windows as are wanted, which together cover the plane.",
        (_X, _array("outputSize", "output_size", "how many, along the height and the width"), tensor_out()),
        (rule("the plane that is wanted: outputSize, out", _given_plane),),
        ("self",),
        lambda call: partial(_adaptive_means, plane=call["outputSize"]),
    ),
    _operator(
        "adaptive_avg_pool2d_backward",
        "Gradient of adaptive average pooling with respect to its input.",
        (_DY, _X, tensor_out("out", "the gradient of self")),
        (rule("the planes of self: gradOutput", _same_planes), same_shape("out", "self")),
        ("gradOutput", "self"),
        lambda call: _adaptive_spread,
    ),
)
