"""Convolutions that sample their input at offsets: aclnnDeformableConv2d and its gradients.

For each kernel element and each output, ``offset`` holds the sample's offset to the right, its offset downwards, and
its factor: 3 × deformableGroups × kernel elements along the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    dtype_in,
    elsewhere,
    extents,
    floating,
    format_is,
    on,
    one_of,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out

_SIZE, _STRIDE, _PADDING, _DILATION = "kernelSize", "stride", "padding", "dilation"
_MOST_ELEMENTS, _MOST_TERMS, _LARGEST = 2048, 65535, 2**31 - 1
Shape = tuple[int, ...]


def _planes(call: Call) -> str | None:
    got = call["x"].format
    if got in (Format.FORMAT_NCHW, Format.FORMAT_ND):
        return None
    return f"x: expected format ACL_FORMAT_NCHW or ACL_FORMAT_ND, got {got.c_name}"


def _steps(name: str) -> Check:
    def violation(call: Call) -> str | None:
        got = list(call[name])
        if got[:2] == [1, 1] and min(got[2:]) > 0:
            return None
        return f"{name}: expected 1, 1 and two numbers of at least 1, got {got}"

    return rule(f"1, 1 and two steps: {name}", violation)


def _length(name: str, expected: int) -> Check:
    return value_is(f"{expected} numbers", lambda got: got == expected, name, of=lambda got: len(got))


def _kernel(call: Call) -> str | None:
    rows, columns = call[_SIZE]
    if rows > 0 and columns > 0 and rows * columns <= _MOST_ELEMENTS:
        return None
    return f"{_SIZE}: expected at least 1 of each and at most {_MOST_ELEMENTS} together, got {list(call[_SIZE])}"


def _some(name: str) -> Check:
    return rule(
        f"some: {name}", lambda call: None if call[name] > 0 else f"{name}: expected at least 1, got {call[name]}"
    )


def _attributes(*more: Check) -> tuple[Check, ...]:
    return (
        _length(_SIZE, 2),
        *(_length(name, 4) for name in (_STRIDE, _PADDING, _DILATION)),
        rule(f"a kernel: {_SIZE}", _kernel),
        _steps(_STRIDE),
        *more,
        _steps(_DILATION),
        _some("groups"),
        _some("deformableGroups"),
        one_of("modulated", True),
    )


def _divides(name: str, tensor: str, at: int) -> Check:
    def violation(call: Call) -> str | None:
        got, groups = call[tensor].shape, call[name]
        return (
            None if got[at] % groups == 0 else f"{tensor}: expected a multiple of {groups} channels, got {extents(got)}"
        )

    return rule(f"of {name}: {tensor}", violation)


def _quotient(number: int, divisor: int) -> int:
    """Divide as C does, towards 0."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _outputs(call: Call, x: str) -> tuple[int, int]:
    """Return the number of outputs, vertically and horizontally."""
    (top, bottom, left, right), shape = call[_PADDING], call[x].shape
    ends = zip(
        shape[2:], (top + bottom, left + right), call[_SIZE], call[_STRIDE][2:], call[_DILATION][2:], strict=True
    )
    rows, columns = (_quotient(n + margin - (size - 1) * by - 1, step) + 1 for n, margin, size, step, by in ends)
    return rows, columns


def _shapes(x: str) -> dict[str, Callable[[Call], Shape]]:
    """Return the shapes of the tensors that accompany the input, by role."""
    return {
        "a kernel of these channels": lambda call: (
            call["weight"].shape[0],
            call[x].shape[1] // call["groups"],
            *call[_SIZE],
        ),
        "offsets of all samples": lambda call: (
            call[x].shape[0],
            3 * call["deformableGroups"] * call[_SIZE][0] * call[_SIZE][1],
            *_outputs(call, x),
        ),
        "an output for each kernel": lambda call: (call[x].shape[0], call["weight"].shape[0], *_outputs(call, x)),
        "all samples": lambda call: (
            *call[x].shape[:2],
            *(count * size for count, size in zip(_outputs(call, x), call[_SIZE], strict=True)),
        ),
        "a number for each kernel": lambda call: (call["weight"].shape[0],),
    }


def _small(x: str) -> Check:
    def violation(call: Call) -> str | None:
        rows, columns = call[x].shape[2:]
        limits = f"at most {_LARGEST} elements of a channel"
        return None if rows * columns <= _LARGEST else f"{x}: expected {limits}, got {extents(call[x].shape)}"

    return rule(f"at most {_LARGEST} elements: {x}", violation)


def _few_terms(x: str) -> Check:
    def violation(call: Call) -> str | None:
        got = call[_SIZE][0] * call[_SIZE][1] * call[x].shape[1] // call["groups"]
        return None if got <= _MOST_TERMS else f"{x}: expected at most {_MOST_TERMS} terms of a sum, got {got}"

    return rule(f"at most {_MOST_TERMS} terms: {x}", violation)


def _fitting(x: str, output: str, samples: str, bias: str, *more: Check) -> tuple[Check, ...]:
    kernel, offsets, outputs, sampled, numbers = _shapes(x).items()
    return (
        _divides("deformableGroups", x, 1),
        _divides("groups", x, 1),
        _divides("groups", "weight", 0),
        _small(x),
        shape_is(*kernel, "weight"),
        shape_is(*offsets, "offset"),
        shape_is(*numbers, bias),
        shape_is(*outputs, output),
        shape_is(*sampled, samples),
        *more,
        _few_terms(x),
    )


class _Samples:
    """Positions of an input's samples, and their factors."""

    def __init__(self, call: Call, x: str, offset: Any) -> None:
        self.shape = call[x].shape
        samples, channels, self.rows, self.columns = self.shape
        size, groups = tuple(call[_SIZE]), call["deformableGroups"]
        self.outputs = _outputs(call, x)
        self.taps = (*size, *self.outputs)
        self.grouped = (samples, groups, channels // groups)
        right, down, self.factors = np.moveaxis(offset.reshape(samples, 3, groups, *self.taps).astype(np.float64), 1, 0)
        starts = call[_PADDING][0], call[_PADDING][2]
        axes = zip(starts, call[_STRIDE][2:], call[_DILATION][2:], size, self.outputs, strict=True)
        y, x_of = (
            (np.arange(count) * step - start)[None, :] + (np.arange(taps) * by)[:, None]
            for start, step, by, taps, count in axes
        )
        down, right = down + y[:, None, :, None], right + x_of[None, :, None, :]
        self.top, self.left = np.floor(down), np.floor(right)
        self.lower, self.righter = down - self.top, right - self.left

    def corners(self) -> Iterator[tuple[Any, Any, Any, tuple[int, int]]]:
        """Yield the position of each neighbour of a sample, whether it is within the input, and its weight."""
        for below, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            y, x = self.top + below, self.left + right
            within = (y >= 0) & (y < self.rows) & (x >= 0) & (x < self.columns)
            places = np.where(within, y * self.columns + x, 0).astype(np.int64)
            share = (self.lower if below else 1 - self.lower) * (self.righter if right else 1 - self.righter)
            yield places.reshape(*self.grouped[:2], 1, -1), within[:, :, None], share[:, :, None], (below, right)

    def taken(self, x: Any, places: Any, within: Any) -> Any:
        """Return the input's values at neighbours, 0 outside."""
        flat = x.reshape(*self.grouped, self.rows * self.columns)
        if flat.shape[-1] == 0:
            return np.zeros((*self.grouped, *self.taps))
        return np.take_along_axis(flat, places, -1).reshape(*self.grouped, *self.taps) * within

    def between(self, x: Any) -> Any:
        """Return the interpolated values at samples."""
        return sum(self.taken(x, places, within) * share for places, within, share, _ in self.corners())


def _columns(samples: Any, call: Call, outputs: Shape) -> Any:
    """Return samples as matrices per group, with kernel elements as rows and outputs as columns."""
    count, channels = samples.shape[:2]
    (rows, across), (down, right) = outputs, call[_SIZE]
    taps = samples.reshape(count, channels, rows, down, across, right).transpose(0, 1, 3, 5, 2, 4)
    groups = call["groups"]
    return taps.reshape(count, groups, channels // groups * down * right, rows * across)


def _matrices(weight: Any, groups: int) -> Any:
    """Return a matrix for each group, with a row for each kernel."""
    kernels, *others = weight.astype(np.float64).shape
    return weight.astype(np.float64).reshape(groups, kernels // groups, int(np.prod(others)))


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    biased, keeps = call["biasOptional"] is not None, call["deformOutOptional"] is not None

    def convolve(x: Any, weight: Any, offset: Any, *bias: Any) -> tuple[Any, ...]:
        found = _Samples(call, "x", offset)
        taps = found.between(x.astype(np.float64)) * found.factors[:, :, None]
        (count, channels), (rows, across), (down, right) = found.shape[:2], found.outputs, call[_SIZE]
        # The kernels' samples are arranged around their outputs.
        laid = taps.reshape(count, channels, down, right, rows, across).transpose(0, 1, 4, 2, 5, 3)
        samples = laid.reshape(count, channels, rows * down, across * right)
        out = _matrices(weight, call["groups"]) @ _columns(samples, call, found.outputs)
        out = out.reshape(call["out"].shape) + (bias[0][:, None, None] if biased else 0)
        return (out, samples) if keeps else (out,)

    inputs = ("x", "weight", "offset", *(("biasOptional",) if biased else ()))
    return Library(convolve, inputs, ("out", *(("deformOutOptional",) if keeps else ())))


def _gradient_work(call: Call) -> Library | None:
    if call["gradOutput"].size == 0 or call["input"].size == 0:
        return None
    groups = call["groups"]

    def back(x: Any, grad: Any, samples: Any, weight: Any, offset: Any) -> tuple[Any, ...]:
        found, wide = _Samples(call, "input", offset), grad.astype(np.float64)
        of_outputs = wide.reshape(len(grad), groups, grad.shape[1] // groups, -1)
        columns = _columns(samples.astype(np.float64), call, found.outputs)
        of_weight = (of_outputs @ columns.swapaxes(-1, -2)).sum(0).reshape(weight.shape)
        arriving = (_matrices(weight, groups).swapaxes(-1, -2) @ of_outputs).reshape(*found.grouped, *found.taps)
        x, inner = x.astype(np.float64), arriving * found.factors[:, :, None]
        of_x = np.zeros((*found.grouped, found.rows * found.columns))
        between, down, right = 0.0, 0.0, 0.0
        bases = np.arange(of_x[..., 0].size).reshape(*found.grouped, 1) * of_x.shape[-1]
        for places, within, share, (below, to_right) in found.corners():
            numbers = found.taken(x, places, within)
            np.add.at(of_x.reshape(-1), bases + places, (inner * share * within).reshape(*found.grouped, -1))
            between = between + numbers * share
            across = found.righter if to_right else 1 - found.righter
            along = found.lower if below else 1 - found.lower
            down = down + numbers * across[:, :, None] * (1 if below else -1)
            right = right + numbers * along[:, :, None] * (1 if to_right else -1)
        parts = [(part * by).sum(2) for part, by in ((right, inner), (down, inner), (between, arriving))]
        return of_x.reshape(x.shape), of_weight, np.stack(parts, 1).reshape(offset.shape), wide.sum((0, 2, 3))

    inputs = ("input", "gradOutput", "offsetOut", "weight", "offset")
    return Library(back, inputs, _GRADIENTS)


_GRADIENTS = ("gradInput", "gradWeight", "gradOffset", "gradBias")
_ARRAYS = (_SIZE, _STRIDE, _PADDING, _DILATION)
_OPTIONS = (
    attribute(_SIZE, Kind.INT_ARRAY, "the numbers of rows and columns of the kernel"),
    attribute(_STRIDE, Kind.INT_ARRAY, "1, 1, and the strides down and across"),
    attribute(_PADDING, Kind.INT_ARRAY, "the zero padding at the top, bottom, left and right"),
    attribute(_DILATION, Kind.INT_ARRAY, "1, 1, and the dilation down and across"),
    attribute("groups", Kind.INT64, "the number of channel groups"),
    attribute("deformableGroups", Kind.INT64, "the number of channel groups with separate offsets"),
    attribute("modulated", Kind.BOOL, "true: offset contains factors"),
)
_OFFSET = tensor_in("offset", "the horizontal offset, vertical offset and factor of each sample")

OPERATORS = (
    declared(
        "deformable_conv2d",
        "deformOutOptional = x between its elements, at the kernel's places and offset, times a factor; "
        "out = weight * deformOutOptional + biasOptional",
        "Deformable convolution with modulation.",
        (
            tensor_in("x", "planes"),
            tensor_in("weight", "the kernels"),
            _OFFSET,
            optional_in("biasOptional", "the bias per channel"),
            *_OPTIONS,
            tensor_out(),
            tensor_out("deformOutOptional", "the samples, for the gradients", optional=True),
        ),
        (
            present("x", "offset", "weight", "out", *_ARRAYS),
            dtype_in(floating, "x"),
            *(same_dtype(name, "x") for name in ("biasOptional", "deformOutOptional", "offset", "weight", "out")),
            *on(CLASS_950, format_is(Format.FORMAT_NCHW, "x")),
            *elsewhere(CLASS_950, rule("format of planes: x", _planes)),
            *(same_format(name, "x") for name in ("offset", "weight")),
            format_is(Format.FORMAT_ND, "biasOptional"),
            *(same_format(name, "x") for name in ("out", "deformOutOptional")),
            *_attributes(),
            dims_between(4, 4, "x", "weight", "offset"),
            dims_between(1, 1, "biasOptional"),
            dims_between(4, 4, "out", "deformOutOptional"),
            *_fitting("x", "out", "deformOutOptional", "biasOptional"),
        ),
        _work,
    ),
    replace(
        declared(
            "deformable_conv2d_backward",
            "gradWeight = gradOutput * offsetOut; gradInput and gradOffset: weight * gradOutput, through the samples; "
            "gradBias = sum of gradOutput",
            "Gradients of a deformable convolution.",
            (
                tensor_in("input", "planes"),
                tensor_in("gradOutput", "the gradient with respect to the output"),
                tensor_in("offsetOut", "the samples"),
                tensor_in("weight", "the kernels"),
                _OFFSET,
                *_OPTIONS,
                tensor_out("gradInput", "the gradient with respect to input"),
                tensor_out("gradWeight", "the gradient with respect to weight"),
                tensor_out("gradOffset", "the gradient with respect to offset"),
                tensor_out("gradBias", "the gradient with respect to the bias"),
            ),
            (
                *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
                present("gradOutput", "input", "weight", "offsetOut", "offset", *_GRADIENTS, *_ARRAYS),
                dtype_in(floating, "input"),
                *(same_dtype(name, "input") for name in _GRADIENTS[:3]),
                *(same_dtype(name, "input") for name in ("weight", "offsetOut", "offset", "gradOutput", "gradBias")),
                format_is(Format.FORMAT_NCHW, "gradOutput", "input"),
                *(same_format(name, "input") for name in ("weight", "offsetOut", "offset", *_GRADIENTS[:3])),
                format_is(Format.FORMAT_ND, "gradBias"),
                *_attributes(
                    value_is("numbers of at least 0", lambda got: min(got) >= 0, _PADDING, of=lambda got: list(got))
                ),
                dims_between(4, 4, "gradOutput", "input", "weight", "offsetOut", "offset", *_GRADIENTS[:3]),
                dims_between(1, 1, "gradBias"),
                *_fitting(
                    "input",
                    "gradOutput",
                    "offsetOut",
                    "gradBias",
                    same_shape("gradInput", "input"),
                    same_shape("gradWeight", "weight"),
                    same_shape("gradOffset", "offset"),
                ),
            ),
            _gradient_work,
            products=CLASS_950,
            stream_type="const aclrtStream ",
        ),
        in_header_of="convolution_backward",
    ),
)
