"""aclnnConvolution and aclnnConvolutionBackward, in one to three dimensions, strided, dilated, grouped, transposed.

Windows of the input become columns of a matrix, which NumPy's BLAS multiplies in float32; 16-bit results are rounded
once, at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    THREE_MASK_VALUES,
    dtype_in,
    each,
    extents,
    fits,
    floating,
    format_of_rank,
    listing,
    on,
    restricted,
    rule,
    same_dtype,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    CUBE,
    INTEGERS,
    MODERN,
    UNSIGNED,
    WITH_INFERENCE,
    cube_math,
    on_950,
    support,
    tensor_in,
    tensor_out,
)

Shape = tuple[int, ...]
Index = tuple[Any, ...]


class Windows(NamedTuple):
    """Windows of a padded input to which a kernel is applied: one per output element."""

    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    """Padding before and after each dimension."""
    dilation: Shape

    def counts(self, spatial: Sequence[int]) -> Shape:
        """Return the number of windows along each dimension of an input."""
        return tuple(
            (n + sum(pad) - d * (k - 1) - 1) // s + 1
            for n, k, s, pad, d in zip(spatial, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )

    def padded(self, spatial: Sequence[int]) -> Shape:
        """Return the padded extents."""
        return tuple(n + sum(pad) for n, pad in zip(spatial, self.padding, strict=True))

    def inside(self, spatial: Sequence[int]) -> Index:
        """Return the index of an input's elements in its padded array."""
        return (..., *(slice(pad[0], pad[0] + n) for n, pad in zip(spatial, self.padding, strict=True)))

    def places(self, count: Sequence[int]) -> Iterator[tuple[Index, Index]]:
        """Yield each kernel position with the index of the padded input's elements at that position in all windows."""
        for place in itertools.product(*map(range, self.kernel)):
            steps = zip(place, self.dilation, self.stride, count, strict=True)
            yield (slice(None), *place), (..., *(slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in steps))

    def columns(self, x: Any, count: Sequence[int]) -> Any:
        """Gather the windows of x (N, C, …) as an array of shape (C, *kernel, N, *count)."""
        spatial = x.shape[2:]
        padded: Any = np.zeros((*x.shape[:2], *self.padded(spatial)), x.dtype)
        padded[self.inside(spatial)] = x
        gathered: Any = np.empty((x.shape[1], *self.kernel, x.shape[0], *count), x.dtype)
        for place, elements in self.places(count):
            gathered[place] = padded[elements].swapaxes(0, 1)
        return gathered

    def sums(self, columns: Any, spatial: Sequence[int]) -> Any:
        """Sum an array of shape (C, *kernel, N, *count) over the windows: (N, C, *spatial)."""
        channels, samples, count = columns.shape[0], columns.shape[1 + len(self.kernel)], columns.shape[-len(spatial) :]
        padded: Any = np.zeros((channels, samples, *self.padded(spatial)), columns.dtype)
        for place, elements in self.places(count):
            padded[elements] += columns[place]
        return padded[self.inside(spatial)].swapaxes(0, 1)


def correlation(x: Any, w: Any, windows: Windows, groups: int, count: Shape) -> Any:
    """Convolve x (N, C, …) with w (O, C / groups, …)."""

    def one(x: Any, w: Any) -> Any:
        columns = windows.columns(x, count).reshape(math.prod(w.shape[1:]), len(x) * math.prod(count))
        return (w.reshape(len(w), math.prod(w.shape[1:])) @ columns).reshape(len(w), len(x), *count).swapaxes(0, 1)

    return _in_groups(one, groups, x, w, axes=(1, 0))


def _correlation_input(dy: Any, w: Any, windows: Windows, groups: int, spatial: Shape) -> Any:
    """Return the gradient for the input: a transposed convolution."""

    def one(dy: Any, w: Any) -> Any:
        rows = dy.swapaxes(0, 1).reshape(len(w), -1)
        columns = w.reshape(len(w), math.prod(w.shape[1:])).T @ rows
        return windows.sums(columns.reshape(*w.shape[1:], len(dy), *dy.shape[2:]), spatial)

    return _in_groups(one, groups, dy, w, axes=(1, 0))


def _correlation_weight(dy: Any, x: Any, windows: Windows, groups: int) -> Any:
    """Return the gradient for the weight."""

    def one(dy: Any, x: Any) -> Any:
        rows = dy.swapaxes(0, 1).reshape(dy.shape[1], -1)
        columns = windows.columns(x, dy.shape[2:]).reshape(x.shape[1] * math.prod(windows.kernel), rows.shape[1])
        return (rows @ columns.T).reshape(dy.shape[1], x.shape[1], *windows.kernel).swapaxes(0, 1)

    return _in_groups(one, groups, dy, x, axes=(1, 1)).swapaxes(0, 1)


def _in_groups(one: Callable[[Any, Any], Any], groups: int, *operands: Any, axes: tuple[int, int]) -> Any:
    """Concatenate the results of each group of channels along axis 1."""
    if groups == 1:
        return one(*operands)
    parts = [np.split(operand, groups, axis) for operand, axis in zip(operands, axes, strict=True)]
    return np.concatenate([one(*part) for part in zip(*parts, strict=True)], 1)


def _windows(call: Call) -> Windows:
    pads = call["padding"]
    rank = len(call["weight"].shape) - 2
    pairs = tuple(zip(pads[::2], pads[1::2], strict=True)) if len(pads) == 2 * rank else tuple((p, p) for p in pads)
    return Windows(call["weight"].shape[2:], tuple(call["stride"]), pairs, tuple(call["dilation"]))


def _result_shape(call: Call) -> Shape:
    windows, x, w = _windows(call), call["input"].shape, call["weight"].shape
    if not call["transposed"]:
        return (x[0], w[0], *windows.counts(x[2:]))
    spatial = zip(x[2:], w[2:], windows.stride, windows.padding, windows.dilation, call["outputPadding"], strict=False)
    return (
        x[0],
        w[1] * call["groups"],
        *((n - 1) * s - sum(pad) + d * (k - 1) + more + 1 for n, k, s, pad, d, more in spatial),
    )


def _ranks(call: Call) -> str | None:
    x, w = call["input"].shape, call["weight"].shape
    if not 3 <= len(x) <= 5:
        return f"input: expected 3 to 5 dimensions, got {len(x)}: {extents(x)}"
    if len(w) == len(x):
        return None
    return f"weight: expected {len(x)} dimensions (as many as input), got {len(w)}: {extents(w)}"


def _is_gradient(call: Call) -> bool:
    return "gradOutput" in call.arguments


def _arrays(call: Call) -> tuple[str, ...]:
    """Return the arrays whose values are used."""
    return _ARRAYS if call["transposed"] or _is_gradient(call) else _ARRAYS[:3]


def _lengths(call: Call) -> str | None:
    rank, gradient = len(call["input"].shape) - 2, _is_gradient(call)
    for name in _arrays(call):
        of_both_ends = name == "padding" and (rank == 2 or (rank == 1 and not gradient and not call["transposed"]))
        of_both_ends |= name == "outputPadding" and rank == 2 and gradient
        allowed = (rank, 2 * rank) if of_both_ends else (rank,)
        if len(call[name]) not in allowed:
            return f"{name}: expected {' or '.join(map(str, allowed))} numbers, got {len(call[name])}"
    return None


def _sizes(call: Call) -> str | None:
    least = {"stride": 1, "padding": 0, "dilation": 1, "outputPadding": 0}
    for name in _arrays(call):
        if any(number < least[name] for number in call[name]):
            return f"{name}: expected numbers of at least {least[name]}, got {list(call[name])}"
    if "outputPadding" not in _arrays(call):
        return None
    most = (max(pair) for pair in zip(call["stride"], call["dilation"], strict=True))
    numbers = zip(call["outputPadding"], most, strict=False)
    if all(more < end for more, end in numbers) if call["transposed"] else not any(call["outputPadding"]):
        return None
    text = "less than the stride or the dilation" if call["transposed"] else "0 unless transposed"
    return f"outputPadding: expected {text}, got {list(call['outputPadding'])}"


def _reach(call: Call) -> str | None:
    """Return an error text for padding that the kernels of transposed convolutions do not support."""
    if not call["transposed"] or 0 in (call["input"].size, call["weight"].size, call["output"].size):
        return None
    windows = _windows(call)
    reaches = [
        d * (k - 1) - before
        for k, (before, _), d in zip(windows.kernel, windows.padding, windows.dilation, strict=True)
    ]
    # For volumes, the depth is not checked, and padding must not exceed the kernels.
    looked_at, least = (reaches[1:], 0) if len(reaches) == _VOLUMES else (reaches, min(reaches))
    if all(least <= reach <= _MOST_REACH for reach in looked_at):
        return None
    return f"padding: expected {least} to {_MOST_REACH} elements of kernels beyond it, got {looked_at}"


def _groups(call: Call) -> str | None:
    x, w, groups = call["input"].shape, call["weight"].shape, call["groups"]
    if groups < 1:
        return f"groups: expected at least 1, got {groups}"
    expected = w[0] if call["transposed"] else w[1] * groups
    if x[1] != expected:
        return f"input: expected {expected} channels (those of weight), got {x[1]}"
    return f"weight: expected a multiple of {groups} groups first, got {w[0]}" if w[0] % groups else None


def _shape_of(name: str) -> Check:
    def violation(call: Call) -> str | None:
        expected, got = _result_shape(call), call[name].shape
        if got == expected and (min(expected[2:]) > 0 or not (call["input"].size and call["weight"].size)):
            return None
        return f"{name}: expected shape {extents(expected)} of at least one window, got {extents(got)}"

    return rule(f"shape of the convolution: {name}", violation)


def _nothing(call: Call) -> str | None:
    if call["output"].size == 0 or (call["input"].size and call["weight"].size):
        return None
    return f"output: expected no elements (as input or weight has none), got {extents(call['output'].shape)}"


def _bias_format(call: Call, name: str) -> str | None:
    got = call[name].format
    expected = listing(each.c_name for each in _BIAS_FORMATS)
    return None if got in _BIAS_FORMATS else f"expected format {expected}, got {got.c_name}"


_ARRAYS = ("stride", "padding", "dilation", "outputPadding")
_VOLUMES = 3
"""Number of spatial dimensions of a volume."""
_MOST_REACH = 255
"""Maximum extent by which a transposed convolution's kernel may exceed its padding."""
_NUMBERS = {
    name: Parameter(name, snake, Kind.INT_ARRAY, meaning)
    for name, snake, meaning in (
        ("stride", "stride", "the strides of the windows"),
        ("padding", "padding", "the zero padding of both sides of each dimension, or of each side of one or two"),
        ("dilation", "dilation", "the spacing between the elements of a window"),
        ("outputPadding", "output_padding", "the extra size on one side of a transposed convolution's result"),
    )
}
_TRANSPOSED = Parameter("transposed", "transposed", Kind.BOOL, "whether to compute a transposed convolution")
_DTYPES = FLOATING
_GRADIENTS = ("gradInput", "gradWeight", "gradBias")
_LIKE = ("input", "weight", "gradOutput")
_BIAS_FORMATS = (Format.FORMAT_ND, Format.FORMAT_NCL, Format.FORMAT_NCHW, Format.FORMAT_NCDHW)


def _checks(*shapes: Check) -> tuple[Check, ...]:
    return (
        rule("3 to 5 dimensions: input, weight", _ranks),
        rule("as many as dimensions: stride, padding, dilation, outputPadding", _lengths),
        rule("at least: stride, padding, dilation, outputPadding", _sizes),
        rule("channels: groups, input, weight", _groups),
        *shapes,
        cube_math("input", "weight"),
    )


def _forward(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    windows, groups, spatial = _windows(call), call["groups"], call["output"].shape[2:]
    function = _correlation_input if call["transposed"] else correlation

    def compute(x: Any, w: Any, bias: Any = None) -> Any:
        y = function(x, w, windows, groups, spatial)
        return y if bias is None else y + bias.reshape(-1, *[1] * len(spatial))

    return Library(compute, ("input", "weight", *(() if call["bias"] is None else ("bias",))), ("output",))


def _backward(call: Call) -> Library | None:
    windows, groups = _windows(call), call["groups"]
    wanted = [
        name for name, is_wanted in zip(_GRADIENTS, call["outputMask"], strict=True) if is_wanted and call[name].size
    ]
    if not wanted:
        return None
    if call["transposed"]:
        input_gradient = lambda dy, x, w: correlation(dy, w, windows, groups, x.shape[2:])  # noqa: E731
        weight_gradient = lambda dy, x, w: _correlation_weight(x, dy, windows, groups)  # noqa: E731
    else:
        input_gradient = lambda dy, x, w: _correlation_input(dy, w, windows, groups, x.shape[2:])  # noqa: E731
        weight_gradient = lambda dy, x, w: _correlation_weight(dy, x, windows, groups)  # noqa: E731
    each = {
        "gradInput": input_gradient,
        "gradWeight": weight_gradient,
        "gradBias": lambda dy, x, w: dy.sum((0, *range(2, dy.ndim)), dtype=np.float64),
    }
    compute = partial(_all, [each[name] for name in wanted])
    return Library(compute, ("gradOutput", "input", "weight"), tuple(wanted))


def _all(functions: Sequence[Callable[..., Any]], *operands: Any) -> tuple[Any, ...]:
    return tuple(function(*operands) for function in functions)


def _wanted(call: Call) -> str | None:
    for name, is_wanted in zip(_GRADIENTS, call["outputMask"], strict=True):
        if is_wanted and call[name] is None:
            return f"{name}: expected a tensor, which outputMask asks for, got null"
    return None


def _shape_like(call: Call, name: str) -> str | None:
    like = {"gradInput": "input", "gradWeight": "weight"}
    expected = call[like[name]].shape if name in like else (_result_shape(call)[1],)
    got = call[name].shape
    return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"


def _pairs(call: Call) -> str | None:
    least = {"kernelSize": 1, "dilation": 1, "padding": 0, "stride": 1, "inputSize": 1}
    for name in (name for name in least if name in call.arguments):
        if len(call[name]) != 2 or min(call[name]) < least[name]:
            return f"{name}: expected 2 numbers of at least {least[name]}, got {list(call[name])}"
    return None


def _plane_windows(call: Call) -> Windows:
    pads = tuple((pad, pad) for pad in call["padding"])
    return Windows(tuple(call["kernelSize"]), tuple(call["stride"]), pads, tuple(call["dilation"]))


def _gathered(windows: Windows, plane: Shape, count: Shape) -> Callable[[Any], Any]:
    def gather(x: Any) -> Any:
        columns = windows.columns(x.reshape(-1, *x.shape[-3:]), count)
        return np.moveaxis(columns, 3, 0).reshape(-1, x.shape[-3] * math.prod(windows.kernel), math.prod(count))

    return gather


def _laid(windows: Windows, plane: Shape, count: Shape) -> Callable[[Any], Any]:
    def lay(columns: Any) -> Any:
        kernel = windows.kernel
        parts = columns.reshape(-1, columns.shape[-2] // math.prod(kernel), *kernel, *count).astype(np.float64)
        return windows.sums(np.moveaxis(parts, 0, 3), plane)

    return lay


def _columns(
    name: str,
    given: str,
    out: str,
    summary: str,
    more: tuple[Parameter, ...],
    function: Callable[[Windows, Shape, Shape], Callable[[Any], Any]],
    more_on_950: Collection[D] = (),
) -> Operator:
    """Declare windows of planes as columns, or the inverse."""
    arrays = (*(each.name for each in more), "kernelSize", "dilation", "padding", "stride")

    def plane(call: Call) -> Shape:
        return tuple(call["inputSize"]) if more else call[given].shape[-2:]

    def violation(call: Call) -> str | None:
        shape, got, kernel = call[given].shape, call[out].shape, math.prod(call["kernelSize"])
        rank = 2 if more else 3
        if len(shape) not in (rank, rank + 1) or (more and shape[-2] % kernel):
            expected = f"(N, C * {kernel}, L)" if more else "(N, C, H, W)"
            return f"{given}: expected {expected}, or without N, got {extents(shape)}"
        if not more and not shape[-3]:
            return f"{given}: expected channels, got shape {extents(shape)}"
        count = _plane_windows(call).counts(plane(call))
        if min(count) < 1 or (more and shape[-1] != math.prod(count)):
            return f"{given}: expected {math.prod(count)} windows, at least one, got {extents(shape)}"
        middle = (shape[-2] // kernel, *plane(call)) if more else (shape[-3] * kernel, math.prod(count))
        expected_out = (*shape[:-rank], *middle)
        return None if got == expected_out else f"{out}: expected shape {extents(expected_out)}, got {extents(got)}"

    def work(call: Call) -> Library | None:
        if call[out].size == 0:
            return None
        windows, shape = _plane_windows(call), call[out].shape
        compute = function(windows, plane(call), windows.counts(plane(call)))
        return Library(lambda x: compute(x).reshape(shape), (given,), (out,))

    return Operator(
        name=name,
        summary=summary,
        formula=f"{out} = {summary[0].lower()}{summary[1:-1]}",
        parameters=(
            tensor_in(given, "columns" if more else "planes, of channels, of samples"),
            *more,
            *(
                Parameter(each, snake, Kind.INT_ARRAY, meaning)
                for each, snake, meaning in (
                    ("kernelSize", "kernel_size", "the height and width of the windows"),
                    ("dilation", "dilation", "the spacing between the elements of a window"),
                    ("padding", "padding", "the padding around the plane"),
                    ("stride", "stride", "the strides of the windows"),
                )
            ),
            tensor_out(out),
        ),
        support=support((*FLOATING, *more_on_950)),
        checks=(
            dtype_in(on_950(more_on_950, FLOATING), given),
            same_dtype(out, given),
            rule(f"pairs of numbers: {', '.join(arrays)}", _pairs),
            rule(f"columns and planes: {given}, {out}", violation),
        ),
        work=work,
    )


OPERATORS = (
    Operator(
        name="convolution",
        summary="Convolution or transposed convolution in one to three dimensions.",
        formula="output = input * weight + bias",
        parameters=(
            tensor_in("input", "the input (N, C, ...) with one to three spatial dimensions"),
            tensor_in("weight", "the kernels (O, C / groups, ...), or transposed (C, O / groups, ...)"),
            Parameter("bias", "bias", Kind.INPUT, "the bias per channel", optional=True),
            *(_NUMBERS[name] for name in _ARRAYS[:3]),
            _TRANSPOSED,
            replace(_NUMBERS["outputPadding"], optional=True),
            Parameter("groups", "groups", Kind.INT64, "the number of channel groups"),
            Parameter("output", "output", Kind.OUTPUT, "the result"),
            CUBE,
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            present("input", "weight", *_ARRAYS[:3], "output"),
            *restricted("transposed", lambda call: call["transposed"], present("outputPadding")),
            dtype_in(floating, "input", "weight", "bias", "output"),
            format_of_rank("input", "weight", "output"),
            each("format of a bias", ("bias",), _bias_format),
            *_checks(
                _shape_of("output"),
                rule("nothing of nothing: output", _nothing),
                fits("shape {} (of the channels)", lambda call, got: ((_result_shape(call)[1],), got.shape), "bias"),
                rule("within the kernels' reach: padding", _reach),
            ),
        ),
        work=_forward,
    ),
    Operator(
        name="convolution_backward",
        summary="Gradients of a convolution with respect to its input, its weight and its bias.",
        formula="gradInput = transposed convolution; gradWeight = correlation with input; gradBias = sum of gradOutput",
        parameters=(
            tensor_in("gradOutput", "the gradient with respect to the output"),
            tensor_in("input", "the forward input"),
            tensor_in("weight", "the forward kernels"),
            Parameter("biasSizes", "bias_sizes", Kind.INT_ARRAY, "the shape of the bias"),
            *(_NUMBERS[name] for name in _ARRAYS[:3]),
            _TRANSPOSED,
            _NUMBERS["outputPadding"],
            Parameter("groups", "groups", Kind.INT32, "the number of channel groups", c_type="int "),
            Parameter("outputMask", "output_mask", Kind.BOOL_ARRAY, "which of the three gradients to compute"),
            CUBE,
            Parameter("gradInput", "grad_input", Kind.OUTPUT, "the gradient with respect to input", optional=True),
            Parameter("gradWeight", "grad_weight", Kind.OUTPUT, "the gradient with respect to weight", optional=True),
            Parameter("gradBias", "grad_bias", Kind.OUTPUT, "the gradient with respect to the bias", optional=True),
        ),
        support=support(_DTYPES, WITH_INFERENCE),
        checks=(
            present("gradOutput", "input", "weight", *_ARRAYS, "outputMask"),
            *with_code(ACLNN_ERR_PARAM_NULLPTR, THREE_MASK_VALUES, rule(f"wanted: {', '.join(_GRADIENTS)}", _wanted)),
            dtype_in(floating, "gradOutput", "input", "weight", *_GRADIENTS),
            *on(CLASS_950, *(same_dtype(name, like) for name, like in zip(_GRADIENTS, _LIKE, strict=True))),
            format_of_rank("gradOutput", "input", "weight", "gradInput", "gradWeight"),
            *restricted(
                "not transposed, from Atlas A2 on",
                lambda call: call.product in MODERN and not call["transposed"],
                format_of_rank("gradBias"),
            ),
            *_checks(_shape_of("gradOutput"), each("shape of what it is the gradient of", _GRADIENTS, _shape_like)),
        ),
        work=_backward,
    ),
    _columns(
        "im2col",
        "self",
        "out",
        "Windows of planes as columns (im2col).",
        (),
        _gathered,
        (D.DOUBLE, *INTEGERS, *UNSIGNED, D.BOOL, D.COMPLEX64),
    ),
    _columns(
        "im2col_backward",
        "gradOutput",
        "out",
        "Sums of columns over the overlapping windows of planes (col2im).",
        (Parameter("inputSize", "input_size", Kind.INT_ARRAY, "the height and width of the planes"),),
        _laid,
    ),
)
