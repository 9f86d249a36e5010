"""SwiGLU quantised to MX formats: aclnnSwigluMxQuant along one axis, aclnnSwigluMxQuantWithDualAxis along two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    listing,
    no_zero_dims,
    nothing_to_write,
    one_of,
    restricted,
    rule,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Shape
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import attribute, declared, expect_within, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.block_quantization import groups
from aclnn.operators.library.quantization.microscaling import BLOCK, FOUR_BITS, PAIR, in_pairs, pairs_shape, quantized
from aclnn.operators.library.quantization.mx_quantization import (
    CEILED,
    DST_TYPE,
    HALVES,
    OCP,
    ROUNDING,
    ROUNDING_PARAMETER,
    WITHOUT_RANGE,
    algorithm,
    columns,
    rounding,
    rule_of,
    scales_out,
    to_integer,
)
from aclnn.operators.library.quantization.quantization import given, is_dtype, whole_bytes
from aclnn.operators.library.quantization.quantized_gates import gated

_GROUPS = "groupIndexOptional"
_MOST_GROUPS = 256
_EVEN_AND_ODD, _HALVES_TWO, _HALVES_THREE = 1, 2, 3
"""Modes of multiplication with additional numbers; mode 0 has none."""

_LEFT = attribute("activateLeft", Kind.BOOL, "whether the first half is the gate instead of the second")
_ALGORITHM = attribute(
    "scaleAlg", Kind.INT64, "the scale algorithm: 0 as in the OCP specification; 1, 8-bit types, without saturation"
)
_MOST = attribute("maxDtypeValue", Kind.DOUBLE, "used with scaleAlg 2 only")


def _dim(call: Call, name: str) -> int:
    return int(call[name]) % len(call["x"].shape)


def _is_grouped(call: Call) -> bool:
    return call[_GROUPS] is not None


def _is_last(call: Call, name: str) -> bool:
    return name not in call.arguments or _dim(call, name) == len(call["x"].shape) - 1


def _one_of_two(call: Call, name: str) -> str | None:
    rank, got = len(call["x"].shape), call[name]
    allowed = (-1, -2, rank - 2, rank - 1)
    return None if got in allowed else f"expected {listing(map(str, allowed))}, got {got}"


def _halved(call: Call) -> int:
    return _dim(call, "activateDim") if "activateDim" in call.arguments else len(call["x"].shape) - 1


def _half(call: Call) -> Shape:
    shape, halved = call["x"].shape, _halved(call)
    return (*shape[:halved], shape[halved] // 2, *shape[halved + 1 :])


def _halves(call: Call) -> str | None:
    shape, halved = call["x"].shape, _halved(call)
    return None if shape[halved] % 2 == 0 else f"x: expected an even dimension {halved}, got {extents(shape)}"


def _whole_row(call: Call) -> str | None:
    output = next(name for name in ("yOut", "y1Out") if name in call.arguments)
    last = _half(call)[-1]
    if call[output].dtype not in FOUR_BITS or last % 2 == 0:
        return None
    return f"x: expected an even last dimension of {output} with four-bit types, got {last}"


def _way(call: Call) -> str | None:
    mode = call["swigluMode"]
    if mode and not _is_last(call, "activateDim"):
        return f"swigluMode: expected 0 unless activateDim is the last dimension, got {mode}"
    if mode in (_HALVES_TWO, _HALVES_THREE) and not _is_last(call, "axis"):
        return f"swigluMode: expected 0 or 1 unless axis is the last dimension, got {mode}"
    return None


def _rows_of_groups(call: Call) -> str | None:
    rank = len(call["x"].shape)
    if not _is_last(call, "activateDim"):
        return f"activateDim: expected -1 with groups (others are not supported here), got {call['activateDim']}"
    if _is_last(call, "axis") or rank == 2:
        return None
    return f"x: expected 2 dimensions with groups with an axis that is not the last, got {rank}"


def _along(call: Call, axis: int) -> Shape:
    """Return the shape of the scales along an axis of the result."""
    shape = _half(call)
    if axis == len(shape) - 1 or not _is_grouped(call):
        return pairs_shape(shape, axis)
    return (shape[0] // (BLOCK * PAIR) + call[_GROUPS].shape[0], shape[1], PAIR)


def _product(call: Call, x: Any) -> Any:
    """Return the product of the halves, rounded to x's type, in float32."""
    halved, mode = _halved(call), call.arguments.get("swigluMode", 0)
    numbers = (float32(call[name]) for name in ("clampLimit", "gluAlpha", "gluBias") if name in call.arguments)
    lines = np.moveaxis(x.astype(np.float64), halved, -1)
    found = gated(lines, call["activateLeft"] or mode == _EVEN_AND_ODD, mode, *numbers)
    return np.moveaxis(found, -1, halved).astype(call["x"].dtype.numpy).astype(np.float32)


def _ends(call: Call, index: Any, rows: int) -> Any:
    ends = np.cumsum(index) if call.arguments.get("groupMode") == 0 else index
    expect_within(_GROUPS, ends, 0, rows, "ends of groups")
    return ends


def _find(call: Call, product: Any, axis: int, output: str, ends: Any) -> tuple[Any, Any]:
    """Quantise along an axis, separately for groups of rows; return numbers and scales as stored in tensors."""
    dtype, how = call[output].dtype, (rule_of(call, output), to_integer(call))
    if ends is None:
        y, scales = quantized(product, (axis,), dtype, *how)
        return y, in_pairs(scales, axis)
    shape = product.shape
    rows, total = product.reshape(-1, shape[-1]), int(ends[-1])
    bounds = list(groups(ends, total, _GROUPS))
    kept = np.where(np.arange(len(rows))[:, None] < total, rows, np.float32(0))
    if axis == len(shape) - 1:
        y, scales = quantized(kept.reshape(shape), (axis,), dtype, *how)
        return y, in_pairs(scales, axis)
    pairs = np.zeros(_along(call, axis), np.uint8)
    parts = []
    for group, (begin, end) in enumerate((*bounds, (total, len(rows)))):
        y, scales = quantized(kept[begin:end], (axis,), dtype, *how)
        parts.append(y)
        if group < len(bounds):
            found, first = in_pairs(scales, axis).view(np.uint8), begin // (BLOCK * PAIR) + group
            pairs[first : first + len(found)] = found
    return np.concatenate(parts), pairs.view(D.FLOAT8_E8M0.numpy)


_ONE, _BOTH = ("yOut", "mxscaleOut"), ("y1Out", "mxScale1Out", "y2Out", "mxScale2Out")
_GROUP_CHECKS = (
    dims_between(1, 1, _GROUPS),
    value_is(
        f"1 to {_MOST_GROUPS} elements", lambda got: 0 < got <= _MOST_GROUPS, _GROUPS, of=lambda got: got.shape[0]
    ),
)


def _work(call: Call) -> Library | None:
    if nothing_to_write(call, _ONE):
        return None
    axis = _dim(call, "axis")

    def quantize(x: Any, index: Any = None) -> Any:
        product = _product(call, x)
        ends = None if index is None else _ends(call, index, math.prod(product.shape[:-1]))
        return _find(call, product, axis, "yOut", ends)

    return Library(quantize, ("x", *given(call, _GROUPS)), _ONE)


def _dual_work(call: Call) -> Library | None:
    if nothing_to_write(call, _BOTH):
        return None

    def quantize(x: Any, ends: Any = None) -> Any:
        product = _product(call, x)
        if ends is not None:
            groups(ends, len(x), _GROUPS)
        return *_find(call, product, 1, "y1Out", None), *_find(call, product, 0, "y2Out", ends)

    return Library(quantize, ("x", *given(call, _GROUPS)), _BOTH)


_SINGLE = declared(
    "swiglu_mx_quant",
    "a, b = halves of x,  z = swish(a) * b,  mxscaleOut = 2^(floor(log2(max |z of the block|)) - emax),  "
    "yOut = round(z / mxscaleOut)",
    "SwiGLU with the result quantized to an MX format.",
    (
        tensor_in("x", "the input with both halves"),
        optional_in(_GROUPS, "the groups of rows: the size of each, or its end (groupMode)"),
        attribute("activateDim", Kind.INT64, "the dimension to split into halves, the last or the last but one"),
        _LEFT,
        attribute(
            "swigluMode", Kind.INT64, "1, 2: with limit, alpha and bias; 1: even and odd columns; 3: with the limit"
        ),
        attribute("clampLimit", Kind.DOUBLE, "the clamping limit of a half; rounded to float32"),
        attribute("gluAlpha", Kind.DOUBLE, "the factor of the gate in the sigmoid"),
        attribute("gluBias", Kind.DOUBLE, "the bias of the other half"),
        attribute("groupMode", Kind.INT64, "the contents of groupIndex, 0: sizes; 1: ends"),
        attribute("axis", Kind.INT64, "the dimension along which to form blocks, the last or the last but one"),
        DST_TYPE,
        ROUNDING_PARAMETER,
        _ALGORITHM,
        _MOST,
        tensor_out("yOut", "the quantized product", const=True),
        scales_out("mxscaleOut", "axis"),
    ),
    generated(
        ("x",),
        _ONE,
        columns(HALVES, 1),
        dims_between(2, 7, "x"),
        no_zero_dims("x"),
        *_GROUP_CHECKS,
        one_of("swigluMode", 0, _EVEN_AND_ODD, _HALVES_TWO, _HALVES_THREE),
        *restricted(
            "with swigluMode",
            lambda call: call["swigluMode"] > 0,
            value_is("a finite positive number", lambda got: 0 < got < math.inf, "clampLimit"),
        ),
        one_of("groupMode", 0, 1),
        is_dtype("dstType", "yOut"),
        *rounding("yOut", ROUNDING, None),
        one_of("scaleAlg", OCP, CEILED),
        algorithm("yOut", WITHOUT_RANGE),
        each("one of the last two dimensions", ("activateDim", "axis"), _one_of_two),
        rule("dimensions of the way: swigluMode", _way),
        *restricted("with groups", _is_grouped, rule("rows of groups: activateDim", _rows_of_groups)),
        rule("halves: x", _halves),
        rule("whole bytes of a row: x", _whole_row),
        shape_is("half of x", _half, "yOut"),
        whole_bytes("yOut"),
        shape_is("two for two blocks", lambda call: _along(call, _dim(call, "axis")), "mxscaleOut"),
        optional=(dtype_in((D.INT32, D.INT64), _GROUPS),),
    ),
    _work,
    HALVES,
    CLASS_950,
)

_DUAL = declared(
    "swiglu_mx_quant_with_dual_axis",
    "a, b = halves of x,  z = swish(a) * b,  mxScale1Out, mxScale2Out = 2^(floor(log2(max |z of the block|)) - emax),  "
    "y1Out = round(z / mxScale1Out)",
    "SwiGLU with the result quantized to an MX format by rows and by columns.",
    (
        tensor_in("x", "the rows, with both halves"),
        optional_in(_GROUPS, "the end of each group of rows; blocks of columns do not cross groups"),
        _LEFT,
        ROUNDING_PARAMETER,
        _ALGORITHM,
        DST_TYPE,
        _MOST,
        tensor_out("y1Out", "the numbers quantized along rows", const=True),
        scales_out("mxScale1Out", "rows"),
        tensor_out("y2Out", "the numbers quantized along columns", const=True),
        scales_out("mxScale2Out", "columns, of each group from a row of its own"),
    ),
    generated(
        ("x",),
        _BOTH,
        columns(HALVES, 2),
        dims_between(2, 2, "x"),
        no_zero_dims("x"),
        *_GROUP_CHECKS,
        is_dtype("dstType", "y1Out"),
        *rounding("y1Out", ROUNDING, None),
        one_of("scaleAlg", OCP, CEILED),
        algorithm("y1Out", WITHOUT_RANGE),
        rule("halves: x", _halves),
        rule("whole bytes of a row: x", _whole_row),
        shape_is("half of x", _half, "y1Out", "y2Out"),
        whole_bytes("y1Out", "y2Out"),
        shape_is("two for two blocks", lambda call: _along(call, 1), "mxScale1Out"),
        shape_is("two for two blocks", lambda call: _along(call, 0), "mxScale2Out"),
        optional=(dtype_in((D.INT64,), _GROUPS),),
    ),
    _dual_work,
    HALVES,
    CLASS_950,
)

OPERATORS = (_SINGLE, _DUAL)
