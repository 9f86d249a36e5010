"""aclnnGeluMul and aclnnFatreluMul, gates of half of the columns; aclnnGeluQuant, quantised GELU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    among,
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    no_zero_dims,
    nothing_to_write,
    on,
    one_of,
    only_if,
    rule,
    same_shape,
    shape_is,
    single,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Parameter, Shape, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.gelu import CUBIC, SQRT_2_OVER_PI
from aclnn.operators.library.common import attribute, constant_text, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.elementwise.unary import erfc
from aclnn.operators.library.quantization.quantization import dynamically, given, is_dtype, quantized

_APPROXIMATE = "approximateOptional"
_SCALE, _OFFSET, _FOUND = "inputScaleOptional", "inputOffsetOptional", "outScaleOptional"
_MOST_COLUMNS, _MOST_ROWS = 1024, 200_000


def gelu(x: Any, is_tanh: bool) -> Any:
    """Return x times the normal distribution function, or its tanh approximation."""
    if is_tanh:
        return x * 0.5 * (1 + np.tanh(float(SQRT_2_OVER_PI) * (x + float(CUBIC) * x**3)))
    return x * 0.5 * erfc(-x / math.sqrt(2))


def _columns(call: Call) -> str | None:
    got = call["input"].shape
    if got[-1] % 2 == 0 and got[-1] <= _MOST_COLUMNS and math.prod(got[:-1]) <= _MOST_ROWS:
        return None
    expected = f"an even number of at most {_MOST_COLUMNS} columns and at most {_MOST_ROWS} rows"
    return f"input: expected {expected}, got {extents(got)}"


def _half(call: Call) -> Shape:
    shape: Shape = call["input"].shape
    return (*shape[:-1], shape[-1] // 2)


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None
    is_tanh = call[_APPROXIMATE] == "tanh"

    def multiply(x: Any) -> Any:
        gate, factor = np.split(x.astype(np.float64), 2, -1)
        return gelu(gate, is_tanh) * factor

    return Library(multiply, ("input",), ("out",))


def _rectified_work(call: Call) -> Library | None:
    if nothing_to_write(call, ("out",)):
        return None

    def multiply(x: Any, threshold: Any) -> Any:
        gate, factor = np.split(x, 2, -1)
        return np.where(gate < threshold.reshape(()), 0, gate) * factor

    return Library(multiply, ("input", "threshold"), ("out",))


def _is_dynamic(call: Call) -> bool:
    return bool(call["quantMode"] == "dynamic")


def _needed(call: Call) -> str | None:
    name = _FOUND if _is_dynamic(call) else _SCALE
    return f"{name}: expected an object (quantMode {call['quantMode']}), got null" if call[name] is None else None


def _dims(call: Call) -> str | None:
    least, got = 1 + _is_dynamic(call), call["self"].shape
    return None if least <= len(got) <= 8 else f"self: expected {least} to 8 dimensions, got {extents(got)}"


def _scale_shape(call: Call, name: str) -> str | None:
    columns, got = call["self"].shape[-1], call[name].shape
    return None if got in ((1,), (columns,)) else f"expected shape [1] or [{columns}], got {extents(got)}"


def _offset(call: Call) -> str | None:
    scale, offset = call[_SCALE], call[_OFFSET]
    if offset is None:
        return None
    if scale is None:
        return f"{_OFFSET}: expected null without {_SCALE}, got a tensor"
    if (offset.dtype, offset.shape) == (scale.dtype, scale.shape):
        return None
    expected, got = (f"{of.dtype.c_name} and shape {extents(of.shape)}" for of in (scale, offset))
    return f"{_OFFSET}: expected data type {expected} (those of {_SCALE}), got {got}"


def _without_last(call: Call) -> Shape:
    shape: Shape = call["self"].shape
    return shape[:-1]


def _quantized_work(call: Call) -> Library:
    is_tanh, is_dynamic = call["approximate"] == "tanh", _is_dynamic(call)
    optional = given(call, _SCALE, *((_OFFSET,) * (not is_dynamic)))

    def quantize(x: Any, scale: Any = 1, offset: Any = 0) -> Any:
        y = gelu(x.astype(np.float64), is_tanh) * scale
        if not is_dynamic:
            return quantized(y + offset, D.INT8)
        integers, found = dynamically(y, -1, D.INT8)
        return integers, found[..., 0]

    return Library(quantize, ("self", *optional), ("y", *((_FOUND,) * is_dynamic)))


OPERATORS = (
    declared(
        "gelu_mul",
        "a, b = halves of input,  out = gelu(a) * b",
        "GELU of the first half of the columns, multiplied by the second half.",
        (
            tensor_in("input", "the rows, with both halves"),
            Parameter(
                _APPROXIMATE, _APPROXIMATE, Kind.STRING, "the approximation: none or null (erf), or tanh", optional=True
            ),
            tensor_out("out", "the products", const=True),
        ),
        generated(
            ("input",),
            ("out",),
            lambda product: [(d, d) for d in FLOATING],
            one_of(_APPROXIMATE, None, "none", "tanh"),
            dims_between(2, 8, "input"),
            rule("even columns, few rows: input", _columns),
            shape_is("half of input", _half, "out"),
        ),
        _work,
    ),
    declared(
        "fatrelu_mul",
        "a, b = halves of input,  out = (a if a >= threshold else 0) * b",
        "FATReLU of the first half of the columns, multiplied by the second half.",
        (
            tensor_in("input", "the rows, with both halves"),
            tensor_in("threshold", "the threshold below which elements become 0"),
            tensor_out("out", "the products", const=True),
        ),
        generated(
            ("input", "threshold"),
            ("out",),
            lambda product: [(d, d, d) for d in FLOATING],
            dims_between(2, 8, "input"),
            single("threshold"),
            *on(A2_CLASS, rule("even columns, few rows: input", _columns)),
            *on(CLASS_950, value_is("an even number of columns", lambda got: got[-1] % 2 == 0, "input")),
            shape_is("half of input", _half, "out"),
        ),
        _rectified_work,
    ),
    declared(
        "gelu_quant",
        "y = round(gelu(self) * inputScale + inputOffset), or round(gelu(self) * inputScale / outScale)",
        "GELU with a quantized result.",
        (
            tensor_in("self", "rows"),
            optional_in(_SCALE, "the scale, one for all or one per column"),
            optional_in(_OFFSET, "the offset in static mode, otherwise ignored"),
            constant_text("approximate", "the approximation: none (erf) or tanh"),
            constant_text("quantMode", "the quantization mode: static or dynamic"),
            constant_text("roundMode", "rint"),
            attribute("dstType", Kind.INT64, "the data type of y: 2 (INT8)"),
            tensor_out("y", "the integers; INT8", const=True),
            tensor_out(_FOUND, "the scales of rows in dynamic mode; FLOAT", const=True, optional=True),
        ),
        (
            present("self", "y"),
            one_of("approximate", "none", "tanh"),
            one_of("quantMode", "static", "dynamic"),
            one_of("roundMode", "rint"),
            rule(f"what the mode needs: {_SCALE}, {_FOUND}", _needed, ACLNN_ERR_PARAM_NULLPTR),
            dtype_in(FLOATING, "self"),
            dtype_in({D.INT8}, "y"),
            is_dtype("dstType", "y"),
            dtype_in({D.FLOAT}, _FOUND),
            among(
                "data type {} with self",
                lambda call, got: (dict.fromkeys((call["self"].dtype, D.FLOAT)), got.dtype),
                _SCALE,
            ),
            rule("dimensions of a mode: self", _dims),
            no_zero_dims("self"),
            each("one factor or a row", (_SCALE,), _scale_shape),
            rule(f"as {_SCALE}: {_OFFSET}", _offset),
            same_shape("y", "self"),
            only_if(shape_is("rows of self", _without_last, _FOUND), "dynamic", _is_dynamic),
        ),
        _quantized_work,
        products=CLASS_950,
    ),
)
