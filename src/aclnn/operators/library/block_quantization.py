"""aclnnDynamicBlockQuant, which gives each block of a matrix a scale of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    each,
    generated,
    listing,
    no_zero_dims,
    nothing_to_write,
    one_of,
    rule,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Parameter, Shape
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import attribute, declared, tensor_in, tensor_out
from aclnn.operators.library.quantization import MOST, is_dtype, quantized

_ROUNDING, _ROWS, _COLUMNS = "roundModeOptional", "rowBlockSize", "colBlockSize"
_SIZES = {_ROWS: (1,), _COLUMNS: (128,)}
_SIZES_950 = {_ROWS: (1, 64, 128, 256, 512), _COLUMNS: (64, 128, 192, 256)}


def _least(call: Call) -> str | None:
    got = call["minScale"]
    return None if math.isfinite(got) and got >= 0 else f"minScale: expected a finite number, 0 or more, got {got}"


def _size(call: Call, name: str) -> str | None:
    sizes = _SIZES_950 if call.product in CLASS_950 else _SIZES
    return None if call[name] in sizes[name] else f"expected {listing(map(str, sizes[name]))}, got {call[name]}"


def _counts(call: Call) -> Shape:
    """The blocks of each dimension."""
    shape, sizes = call["x"].shape, (call[_ROWS], call[_COLUMNS])
    return (*shape[:-2], *(-(-extent // size) for extent, size in zip(shape[-2:], sizes, strict=True)))


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, ("yOut", "scaleOut")):
        return None
    sizes, counts, shape = (call[_ROWS], call[_COLUMNS]), _counts(call)[-2:], call["x"].shape
    least = float32(call["minScale"])
    padding = [count * size - extent for count, size, extent in zip(counts, sizes, shape[-2:], strict=True)]

    def quantize(x: Any) -> Any:
        whole = np.pad(x.astype(np.float64), [(0, 0)] * (len(shape) - 2) + [(0, each) for each in padding])
        blocks = whole.reshape(*shape[:-2], counts[0], sizes[0], counts[1], sizes[1])
        scale = np.max(np.abs(blocks), (-3, -1), keepdims=True) / MOST[D.INT8]
        scale = (np.minimum(scale, 1 / least) if least else scale).astype(np.float32)
        with np.errstate(invalid="ignore"):  # blocks of zeros
            y = np.rint(blocks / scale).reshape(whole.shape)
        return quantized(y[..., : shape[-2], : shape[-1]], D.INT8), scale[..., 0, :, 0]

    return Library(quantize, ("x",), ("yOut", "scaleOut"))


OPERATORS = (
    declared(
        "dynamic_block_quant",
        "scaleOut = min(max |x of the block| / 127, 1 / minScale),  yOut = round(x / scaleOut)",
        "Quantise each block of a matrix by its largest number.",
        (
            tensor_in("x", "a matrix, or several"),
            attribute("minScale", Kind.DOUBLE, "the least reciprocal of a scale, or 0; rounded to float32"),
            Parameter(_ROUNDING, _ROUNDING, Kind.STRING, "rint, also null", optional=True),
            attribute("dstType", Kind.INT64, "the data type of yOut: 2 (INT8)"),
            attribute(_ROWS, Kind.INT64, "the rows of a block"),
            attribute(_COLUMNS, Kind.INT64, "the columns of a block"),
            tensor_out("yOut", "the integers; INT8", const=True),
            tensor_out("scaleOut", "the scale of each block; FLOAT", const=True),
        ),
        generated(
            ("x",),
            ("yOut", "scaleOut"),
            lambda product: [(d, D.INT8, D.FLOAT) for d in FLOATING],
            rule("0 or more: minScale", _least),
            one_of(_ROUNDING, None, "rint"),
            is_dtype("dstType", "yOut"),
            each("size of a block", (_ROWS, _COLUMNS), _size),
            dims_between(2, 3, "x"),
            no_zero_dims("x"),
            same_shape("yOut", "x"),
            shape_is("one for each block", _counts, "scaleOut"),
        ),
        _work,
    ),
)
