"""aclnnFakeQuantPerTensorAffineCachemask, aclnnFakeQuantPerChannelAffineCachemask: quantise and dequantise.

Quotients are float32, as in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, limited_dims, rule, same_shape, shape_is, single
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.operators.library.common import MODERN, attribute, library_operator, tensor_in, tensor_out

_TYPES = (D.FLOAT, D.FLOAT16)


def _rounded(self: Any, scale: Any, zero: Any, least: int, most: int) -> tuple[Any, Any]:
    """Return the values of the nearest integers, clamped, and which of them are within the limits."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = self.astype(np.float32) / scale.astype(np.float32)
        integers = np.rint(steps) + zero if zero.dtype.kind == "i" else np.rint(steps + zero.astype(np.float32))
        within = np.clip(integers, float(least), float(most))
        return (within - zero.astype(np.float64)) * scale, integers == within


def _per_tensor(self: Any, scale: Any, zero: Any, enabled: float, least: int, most: int) -> tuple[Any, Any]:
    if not enabled >= 1:
        return self, np.ones(self.shape, bool)
    return _rounded(self, scale.reshape(()), zero.reshape(()), least, most)


def _per_channel(self: Any, scale: Any, zero: Any, axis: int, least: int, most: int) -> tuple[Any, Any]:
    after = (-1 - axis if axis < 0 else self.ndim - 1 - axis) if self.ndim else 0
    along = (-1, *[1] * after) if self.ndim else ()
    return _rounded(self, scale.reshape(along), zero.reshape(along), least, most)


def _limits(call: Call) -> str | None:
    least, most = call["quantMin"], call["quantMax"]
    return None if least <= most else f"quantMin: expected at most {most} (quantMax), got {least}"


def _channels(call: Call) -> tuple[int, ...]:
    return ((call["self"].shape or (1,))[call["axis"]],)


def _operator(kind: str, further: Parameter, zeros: set[D], function: Callable[..., Any], *factors: Check) -> Operator:
    name = f"fake_quant_per_{kind}_affine_cachemask"
    return library_operator(
        name,
        "out = (clip(round(self / scale) + zeroPoint, quantMin, quantMax) - zeroPoint) * scale",
        f"Fake quantization: quantize and dequantize, with a scale for {_WHOSE[kind]}.",
        (
            tensor_in("self", "the numbers"),
            tensor_in("scale", f"the scale, for {_WHOSE[kind]}"),
            tensor_in("zeroPoint", "the zero points"),
            further,
            attribute("quantMin", Kind.INT64, "the smallest integer"),
            attribute("quantMax", Kind.INT64, "the largest integer"),
            tensor_out("out", "the quantized and dequantized numbers"),
            tensor_out("mask", "the mask of integers within the limits; BOOL"),
        ),
        (
            dtype_in(_TYPES, "self", "scale", "out"),
            dtype_in(zeros, "zeroPoint"),
            dtype_in({D.BOOL}, "mask"),
            limited_dims("self"),
            *factors,
            same_shape("out", "self"),
            same_shape("mask", "self"),
            rule("at most quantMax: quantMin", _limits),
        ),
        function,
        dtypes=_TYPES,
        products=MODERN,
        attributes=(further.name, "quantMin", "quantMax"),
    )


_WHOSE = {"tensor": "all", "channel": "each along a dimension"}

OPERATORS = (
    _operator(
        "tensor",
        attribute("fakeQuantEnabled", Kind.FLOAT, "1 or more to quantize; otherwise out is self"),
        {D.INT32},
        _per_tensor,
        single("scale", "zeroPoint"),
    ),
    _operator(
        "channel",
        attribute("axis", Kind.INT64, "the dimension of scale"),
        {D.INT32, *_TYPES},
        _per_channel,
        axis("axis", "self"),
        shape_is("one for each along the axis", _channels, "scale", "zeroPoint"),
    ),
)
