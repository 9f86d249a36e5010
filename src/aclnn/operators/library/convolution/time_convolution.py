"""Convolutions over time with samples and channels behind it: aclnnConvTbc and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    floating,
    format_is,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library
from aclnn.operators.library.common import (
    CUBE,
    WITH_INFERENCE,
    WITH_TRAINING,
    attribute,
    cube_math,
    declared,
    tensor_in,
    tensor_out,
)

_GRADIENTS = ("gradInput", "gradWeight", "gradBias")


def _lines(call: Call, name: str) -> str | None:
    got = call[name].format
    if got in (Format.FORMAT_ND, Format.FORMAT_NCL):
        return None
    return f"expected format ACL_FORMAT_ND or ACL_FORMAT_NCL, got {got.c_name}"


def _length(call: Call, x: str) -> int:
    times: int = call[x].shape[0] + 2 * call["pad"] - call["weight"].shape[0] + 1
    return times


def _reach(x: str) -> Check:
    def violation(call: Call) -> str | None:
        got = _length(call, x)
        return None if got >= 0 else f"weight: expected at most {got + call['weight'].shape[0]} steps, got {-got} more"

    return rule("within the padded steps: weight", violation)


def _shapes(x: str, out: str) -> tuple[Check, ...]:
    def kernel(call: Call) -> tuple[int, ...]:
        steps, _, outputs = call["weight"].shape
        return steps, call[x].shape[2], outputs

    def result(call: Call) -> tuple[int, ...]:
        return _length(call, x), call[x].shape[1], call["weight"].shape[2]

    return (
        shape_is("kernels of these channels", kernel, "weight"),
        shape_is("one for each output channel", lambda call: call["weight"].shape[2:], "bias"),
        _reach(x),
        shape_is("of the convolution", result, out),
    )


def _padded(x: Any, call: Call) -> Any:
    return np.pad(x.astype(np.float64), ((call["pad"], call["pad"]), (0, 0), (0, 0)))


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    times = call["out"].shape[0]

    def convolve(x: Any, weight: Any, bias: Any) -> Any:
        x = _padded(x, call)
        return sum((x[at : at + times] @ step for at, step in enumerate(weight.astype(np.float64))), bias)

    return Library(convolve, ("self", "weight", "bias"), ("out",))


def _gradient_work(call: Call) -> Library | None:
    if all(call[name].size == 0 for name in _GRADIENTS):
        return None
    times, pad = call["self"].shape[0], call["pad"]

    def back(grad: Any, x: Any, weight: Any) -> tuple[Any, ...]:
        grad, padded = grad.astype(np.float64), _padded(x, call)
        of_x, of_weight = np.zeros_like(padded), np.zeros(weight.shape)
        for at, step in enumerate(weight.astype(np.float64)):
            of_x[at : at + times] += grad @ step.T
            of_weight[at] = np.einsum("tbi,tbo->io", padded[at : at + times], grad)
        return of_x[pad : pad + len(x)], of_weight, grad.sum((0, 1))

    return Library(back, ("self", "input", "weight"), _GRADIENTS)


def _alike(*names: str) -> Callable[[str], tuple[Check, ...]]:
    return lambda first: (dtype_in(floating, first), *(same_dtype(name, first) for name in names))


_PAD = attribute("pad", Kind.INT64, "the zero padding before and after")
_WEIGHT = tensor_in("weight", "(steps, input channels, output channels)")
_BIAS = tensor_in("bias", "the bias of each output channel")

OPERATORS = (
    replace(
        declared(
            "conv_tbc",
            "out[t] = bias + sum over k of self[t + k - pad] @ weight[k]",
            "Convolution of sequences whose first dimension is time.",
            (tensor_in("self", "(time, samples, channels)"), _WEIGHT, _BIAS, _PAD, tensor_out(), CUBE),
            (
                *_alike("weight", "bias", "out")("self"),
                dims_between(3, 3, "self", "weight", "out"),
                dims_between(1, 1, "bias"),
                each("format of sequences", ("self", "weight", "out"), _lines),
                format_is(Format.FORMAT_ND, "bias"),
                value_is("0 or more", lambda got: got >= 0, "pad"),
                *_shapes("self", "out"),
                cube_math("self", "weight"),
            ),
            _work,
            products=WITH_INFERENCE,
        ),
        in_header_of="convolution",
    ),
    replace(
        declared(
            "conv_tbc_backward",
            "gradInput[t] = sum over k of self[t - k + pad] @ weight[k]^T; "
            "gradWeight[k] = sum over t of input[t + k - pad]^T @ self[t]; gradBias = sum of self",
            "Gradients of a convolution of sequences whose first dimension is time.",
            (
                tensor_in("self", "the gradient with respect to the output"),
                tensor_in("input", "(time, samples, channels)"),
                _WEIGHT,
                replace(_BIAS, meaning="only its shape is used"),
                _PAD,
                CUBE,
                tensor_out("gradInput", "the gradient with respect to input"),
                tensor_out("gradWeight", "the gradient with respect to weight"),
                tensor_out("gradBias", "the gradient with respect to bias"),
            ),
            (
                *_alike("input", "weight", "bias", *_GRADIENTS)("self"),
                dims_between(3, 3, "self", "input", "weight"),
                dims_between(1, 1, "bias"),
                each("format of sequences", ("self", "input", "weight", *_GRADIENTS[:2]), _lines),
                format_is(Format.FORMAT_ND, "bias", "gradBias"),
                value_is("0 or more", lambda got: got >= 0, "pad"),
                *_shapes("input", "self"),
                *(same_shape(name, of) for name, of in zip(_GRADIENTS, ("input", "weight", "bias"), strict=True)),
                cube_math("self", "input", "weight"),
            ),
            _gradient_work,
            products=WITH_TRAINING,
            stream_type="const aclrtStream ",
        ),
        in_header_of="convolution_backward",
    ),
)
