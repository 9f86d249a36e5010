"""aclnnConvDepthwise2d: 2-D convolution with separate kernels for each channel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    floating,
    format_of_rank,
    rule,
    same_dtype,
    shape_is,
)
from aclnn.core.operator import Call, Kind, Library, Parameter, Shape
from aclnn.operators.library.common import CUBE, cube_math, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.convolution.convolution import Windows, correlation

_LEAST = {"kernelSize": 1, "stride": 1, "padding": 0, "dilation": 1}
_MEANINGS = {
    "kernelSize": "the height and width of weight",
    "stride": "the strides of the windows",
    "padding": "the zero padding of height and width",
    "dilation": "the dilation of the kernel",
}


def _array(name: str, snake: str) -> Parameter:
    return Parameter(name, snake, Kind.INT_ARRAY, _MEANINGS[name])


def _pair(call: Call, name: str) -> str | None:
    least, got = _LEAST[name], list(call[name])
    return None if len(got) == 2 and min(got) >= least else f"expected 2 numbers of at least {least}, got {got}"


def _kernels(call: Call) -> str | None:
    x, w = call["self"].shape, call["weight"].shape
    if w[0] and w[1] <= 1 and min(w[2:]) and (not x[1] or w[0] % x[1] == 0):
        return None
    return f"weight: expected shape [{x[1]} or a multiple, 1, height, width], got {extents(w)}"


def _windows(call: Call) -> Windows:
    pads = tuple((pad, pad) for pad in call["padding"])
    return Windows(call["weight"].shape[2:], tuple(call["stride"]), pads, tuple(call["dilation"]))


def _result(call: Call) -> Shape:
    x: Shape = call["self"].shape
    return (x[0], call["weight"].shape[0], *_windows(call).counts(x[2:]))


def _something(call: Call) -> str | None:
    got = call["out"].shape
    if call["self"].size and call["weight"].size:
        return None if min(got[2:]) else f"out: expected at least one window, got {extents(got)}"
    return f"out: expected no elements (as self or weight has none), got {extents(got)}" if math.prod(got) else None


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    windows, channels, count = _windows(call), call["self"].shape[1], call["out"].shape[2:]

    def compute(x: Any, w: Any, bias: Any = None) -> Any:
        y = correlation(x, w, windows, channels, count)
        return y if bias is None else y + bias.reshape(-1, 1, 1)

    return Library(compute, ("self", "weight", *(() if call["bias"] is None else ("bias",))), ("out",))


_OPERATOR = declared(
    "conv_depthwise2d",
    "out = self * weight + bias, each channel on its own",
    "Depthwise convolution of planes.",
    (
        tensor_in("self", "the input (N, C, H, W)"),
        tensor_in("weight", "the kernels: as many for each channel, 1, height and width"),
        _array("kernelSize", "kernel_size"),
        optional_in("bias", "the bias per output channel"),
        *(_array(name, name) for name in ("stride", "padding", "dilation")),
        tensor_out("out", "the result"),
        CUBE,
    ),
    (
        dtype_in(floating, "self", "weight", "out"),
        *(same_dtype(name, "self") for name in ("weight", "out", "bias")),
        dims_between(4, 4, "self", "weight", "out"),
        each("two numbers", tuple(_LEAST), _pair),
        format_of_rank("self", "weight", "out"),
        rule("kernels of the channels: weight", _kernels),
        fits("{} (of weight)", lambda call, got: (call["weight"].shape[2:], tuple(got)), "kernelSize"),
        shape_is("one for each kernel", lambda call: call["weight"].shape[:1], "bias"),
        shape_is("of the windows", _result, "out"),
        rule("windows: out", _something),
        cube_math("self", "weight"),
    ),
    _work,
    FLOATING,
)

OPERATORS = (replace(_OPERATOR, in_header_of="convolution"),)
