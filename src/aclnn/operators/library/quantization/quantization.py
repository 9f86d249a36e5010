"""Quantisation by aclnnQuantize, aclnnAscendQuant, aclnnDynamicQuant, and dequantisation by aclnnAscendAntiQuant.

aclnnTransQuantParamV2 encodes the scales that a device applies to integer products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape,
    broadcastable,
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    limited_dims,
    listing,
    no_zero_dims,
    one_of,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    some_dims,
    unless_empty,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import MODERN, attribute, constant_text, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.four_bits import IN_INT32, packed, unpacked, unpacked_words
from aclnn.operators.library.quantization.rounding import to_integers

ROUNDINGS = {"round": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
MOST = {D.INT8: 127, D.INT4: 7, D.INT32: 7}
"""Largest integers; an INT32 holds eight INT4."""

_SMOOTH, _GROUPS = "smoothScalesOptional", "groupIndexOptional"
_PER_TOKEN, _PER_CHANNEL, _PER_TENSOR = "pertoken", "perchannel", "pertensor"
_AXES = {_PER_TOKEN: -1, _PER_CHANNEL: -2, _PER_TENSOR: None}
_MOST_GROUPS = 1024
_INFERENCE = frozenset({Product.ATLAS_INFERENCE})


def given(call: Call, *names: str) -> tuple[str, ...]:
    """Return the names of the arguments that are not null."""
    return tuple(name for name in names if call.arguments.get(name) is not None)


def quantized_types(product: Product) -> set[D]:
    """Return the integer types into which numbers are quantised on a product."""
    return {D.INT8} if product in _INFERENCE else set(MOST)


def quantized(numbers: Any, dtype: D, rounding: Callable[[Any], Any] = np.rint) -> Any:
    """Round to integers in the storage of a tensor of that type; saturates, and NaN becomes 0."""
    integers = to_integers(numbers, rounding)
    if dtype == D.INT8:
        return convert(integers, np.dtype(np.int8))
    stored = packed(convert(np.clip(integers, -8, 7), np.dtype(np.int8)))
    return stored.view(np.int32) if dtype == D.INT32 else stored.reshape(-1)


def rows_of_groups(factors: Any, ends: Any, rows: int) -> Any:
    """Return the factors' row of each row's group, given the groups' ends.

    Rows after the last group, which no document specifies, belong to it.
    """
    return factors[np.minimum(np.searchsorted(ends, np.arange(rows), side="right"), len(ends) - 1)]


def dynamically(numbers: Any, axis: int | None, dtype: D) -> tuple[Any, Any]:
    """Quantise symmetrically along an axis, or with one scale; return integers and scales."""
    scale = (np.max(np.abs(numbers), axis, keepdims=True) / MOST[dtype]).astype(np.float32)
    return quantized(numbers / scale, dtype), scale


def quantized_shape(x: str, *names: str) -> Check:
    """Require the shape of another tensor; INT32 has an eighth of its last dimension."""

    def violation(call: Call, name: str) -> str | None:
        words, expected, got = call[name].dtype == D.INT32, call[x].shape, call[name].shape
        whole = (*got[:-1], IN_INT32 * got[-1]) if words and got else got
        if whole == expected:
            return None
        eighth = ", its last dimension an eighth in ACL_INT32" if words else ""
        return f"expected shape {extents(expected)} (that of {x}{eighth}), got {extents(got)}"

    return each(f"shape of {x}", names, violation)


def whole_bytes(*names: str) -> Check:
    """Require rows of 4-bit tensors to fill whole bytes, contiguously."""

    def violation(call: Call, name: str) -> str | None:
        tensor = call[name]
        if tensor.dtype.bits != 4:
            return None
        of = tensor.dtype.c_name
        if tensor.shape[-1:] and tensor.shape[-1] % 2:
            return f"expected an even last dimension of {of}, got {extents(tensor.shape)}"
        return None if tensor.is_contiguous else f"expected contiguous {of}, got strides {extents(tensor.strides)}"

    return each("whole bytes", names, violation)


def _dtype_of_scale(call: Call, name: str) -> str | None:
    x, got = call["x"].dtype, call[name].dtype
    return None if x in (D.FLOAT, got) else f"expected data type {x.c_name} (that of x), got {got.c_name}"


def is_dtype(attribute: str, name: str) -> Check:
    """Require an attribute to equal a tensor's data type."""

    def violation(call: Call) -> str | None:
        expected, got = call[name].dtype, call[attribute]
        return None if got == expected else f"{attribute}: expected {int(expected)} (that of {name}), got {got}"

    return rule(f"data type of {name}: {attribute}", violation)


def _axis(call: Call) -> str | None:
    axis, rank = call["axis"], len(call["x"].shape)
    last = [-1, rank - 1] if call.product in _INFERENCE else [-1, rank - 1, -2, rank - 2]
    allowed = sorted({each for each in last if -rank <= each < rank})
    return None if axis in allowed else f"axis: expected one of {allowed} (the last dimensions), got {axis}"


def _axis_of(call: Call) -> int:
    axis = call.arguments.get("axis", -1)
    return int(axis if axis < 0 else axis - len(call["x"].shape))


def _scale_shape(call: Call) -> str | None:
    x, got, axis = call["x"].shape, call["scale"].shape, _axis_of(call)
    extent = x[axis]
    along = [1] * len(x)
    along[axis] = extent
    if got in ((1,), (extent,), (1,) * len(x), tuple(along)):
        return None
    return f"scale: expected shape [1], [{extent}] or {extents(along)}, got {extents(got)}"


def _along(factor: Any, axis: int) -> Any:
    """Broadcast a factor along an axis; one with all dimensions is unchanged."""
    return factor.reshape(-1, *(1,) * (-1 - axis)) if factor.ndim == 1 else factor


def _static_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    axis, dtype, square = _axis_of(call), call["y"].dtype, call["sqrtMode"]
    to_integer = ROUNDINGS[call["roundMode"]]

    def quantize(x: Any, scale: Any, offset: Any = None) -> Any:
        factor = _along(scale, axis)
        numbers = x.astype(np.float64) * factor
        if square:
            numbers *= factor
        if offset is not None:
            numbers += _along(offset, axis)
        return quantized(numbers, dtype, to_integer)

    return Library(quantize, ("x", "scale", *given(call, "offset")), ("y",))


def _static(name: str, products: frozenset[Product], *further: Parameter) -> Operator:
    return Operator(
        name=name,
        summary="Quantize with given scales and offsets.",
        formula="y = round(x * scale + offset)",
        parameters=(
            tensor_in("x", "the numbers"),
            tensor_in("scale", "the scales: one, or one per index of a dimension"),
            optional_in("offset", "the offsets, in the shape of scale"),
            attribute("sqrtMode", Kind.BOOL, "whether to square the scales"),
            constant_text("roundMode", listing(ROUNDINGS)),
            attribute("dstType", Kind.INT32, "the data type of y: 2 (INT8), 3 (INT32) or 29 (INT4)"),
            *further,
            tensor_out("y", "the quantized integers; INT32 holds eight of INT4", const=True),
        ),
        support=support(FLOATING, products),
        checks=(
            some_dims("x"),
            dtype_in(floating, "x"),
            dtype_in(quantized_types, "y"),
            dtype_in(floating, "scale"),
            same_dtype("offset", "scale"),
            each("data type of x", ("scale",), _dtype_of_scale),
            is_dtype("dstType", "y"),
            *((rule("one of the last dimensions: axis", _axis),) if further else ()),
            quantized_shape("x", "y"),
            whole_bytes("y"),
            limited_dims("x"),
            same_shape("offset", "scale"),
            rule("shape of factors: scale", _scale_shape),
            one_of("roundMode", *ROUNDINGS),
        ),
        work=_static_work,
    )


_ZERO = "zeroPoints"
#: Types produced by aclnnQuantize; INT32 holds one number here.
_WHOLE = (D.INT8, D.UINT8, D.INT32)


def _zero_types(product: Product) -> set[D]:
    further = {D.BF16, D.FLOAT} if product in CLASS_950 else {D.BF16} if product in A2_CLASS else set()
    return {*_WHOLE, *further}


def _all_of_16_bits(call: Call) -> str | None:
    dtypes = {name: call[name].dtype for name in ("x", "scales", *given(call, _ZERO))}
    if D.BF16 not in [dtype for name, dtype in dtypes.items() if name != "x"]:
        return None
    other = next((name for name, dtype in dtypes.items() if dtype != D.BF16), None)
    return other and f"{other}: expected data type ACL_BF16 (as another's is), got {dtypes[other].c_name}"


def _divisor_size(call: Call) -> str | None:
    axis, x, size = call["axis"], call["x"].shape, call["scales"].size
    if size == 1:
        return None
    if not -len(x) <= axis < len(x):
        return f"axis: expected from {-len(x)} to {len(x) - 1}, got {axis}"
    return None if size == x[axis] else f"scales: expected 1 or {x[axis]} elements (dimension {axis}), got {size}"


def _divided_work(call: Call) -> Library | None:
    if any(call[name].size == 0 for name in ("x", "scales")):
        return None
    rank, axis = len(call["x"].shape), call["axis"]
    axis = -1 if call["scales"].size == 1 else axis if axis < 0 else axis - rank

    def quantize(x: Any, scales: Any, zeros: Any = 0.0) -> Any:
        numbers = x.astype(np.float64) / _along(scales, axis)
        return to_integers(numbers + _along(np.asarray(zeros, np.float64), axis)).reshape(x.shape)

    return Library(quantize, ("x", "scales", *given(call, _ZERO)), ("out",))


_DIVIDED = Operator(
    name="quantize",
    function="aclnnQuantize",
    summary="Quantize with given scales and zero points.",
    formula="out = round(x / scales + zeroPoints)",
    parameters=(
        tensor_in("x", "the numbers"),
        tensor_in("scales", "the scales: one, or one per index of a dimension"),
        optional_in(_ZERO, "the zero points, in the shape of scales"),
        attribute("dtype", Kind.DTYPE, "the data type of out: INT8, UINT8 or INT32"),
        attribute("axis", Kind.INT32, "the dimension of scales"),
        tensor_out("out", "the quantized integers"),
    ),
    support=support(FLOATING, MODERN | _INFERENCE),
    checks=(
        limited_dims("x"),
        same_shape("out", "x"),
        dims_between(1, 1, "scales"),
        same_shape(_ZERO, "scales"),
        rule("one of each along the axis: scales, axis", _divisor_size),
        dtype_in(floating, "x", "scales"),
        dtype_in(_zero_types, _ZERO),
        dtype_in(_WHOLE, "out"),
        is_dtype("dtype", "out"),
        rule(f"BF16 together: x, scales, {_ZERO}", _all_of_16_bits),
        public_format("x", "scales", "out", _ZERO),
    ),
    work=_divided_work,
)


def _symmetry(call: Call) -> str | None:
    symmetrical, given = call["isSymmetrical"], call["offsetOut"] is not None
    if symmetrical != given:
        return None
    return f"offsetOut: expected {'null' if given else 'an object'} (isSymmetrical), got {'one' if given else 'null'}"


def _mode(call: Call) -> str:
    return str(call.arguments.get("quantMode", _PER_TOKEN))


def _no_groups(call: Call) -> str | None:
    given = call[_GROUPS] is not None and _mode(call) == _PER_CHANNEL
    return f"{_GROUPS}: expected null ({_PER_CHANNEL}), got a tensor" if given else None


def _is_grouped(call: Call) -> bool:
    return call.arguments.get(_GROUPS) is not None and call[_SMOOTH] is not None


def _smooth_shape(call: Call) -> Shape:
    columns = call["x"].shape[-2 if _mode(call) == _PER_CHANNEL else -1]
    return (call[_GROUPS].shape[0], columns) if _is_grouped(call) else (columns,)


def _statistic_shape(call: Call) -> Shape:
    x: Shape = call["x"].shape
    return {_PER_TOKEN: x[:-1], _PER_CHANNEL: (*x[:-2], x[-1]), _PER_TENSOR: (1,)}[_mode(call)]


def _groups_need(call: Call) -> str | None:
    if call[_GROUPS] is None or call[_SMOOTH] is not None:
        return None
    return f"{_SMOOTH}: expected an object (with {_GROUPS}), got null"


def _few_groups(call: Call, name: str) -> str | None:
    got = call[name].size
    return None if 1 <= got <= _MOST_GROUPS else f"expected 1 to {_MOST_GROUPS} groups, got {got}"


def _dynamic_work(call: Call) -> Library | None:
    outputs = given(call, "yOut", "scaleOut", "offsetOut")
    if any(call[name].size == 0 for name in ("x", *outputs)):
        return None
    mode, grouped, dtype = _mode(call), _is_grouped(call), call["yOut"].dtype
    axis, most, statistic = _AXES[mode], MOST[dtype], _statistic_shape(call)

    def smoothed(x: Any, smooth: Any = None, ends: Any = None) -> Any:
        numbers = x.astype(np.float64)
        if smooth is None:
            return numbers
        if ends is not None:
            smooth = rows_of_groups(smooth, ends, math.prod(x.shape[:-1])).reshape(x.shape)
        return numbers * (smooth[:, None] if mode == _PER_CHANNEL else smooth)

    def quantize(*operands: Any) -> tuple[Any, ...]:
        numbers = smoothed(*operands)
        if "offsetOut" not in outputs:
            integers, scale = dynamically(numbers, axis, dtype)
            return integers, scale.reshape(statistic)
        largest, least = (find(numbers, axis, keepdims=True) for find in (np.max, np.min))
        scale = ((largest - least) / (2 * most + 1)).astype(np.float32)
        offset = (most - largest / scale).astype(np.float32)
        integers = quantized(numbers / scale + offset, dtype)
        return integers, scale.reshape(statistic), offset.reshape(statistic)

    return Library(quantize, ("x", *given(call, _SMOOTH), *([_GROUPS] if grouped else [])), outputs)


def _dynamic(version: int) -> Operator:
    name = "dynamic_quant" if version == 1 else f"dynamic_quant_v{version}"
    parameters = [
        tensor_in("x", "the numbers"),
        optional_in(_SMOOTH, "the smoothing factors: per column and optionally group; per row with perchannel"),
    ]
    outputs = [
        tensor_out("yOut", "the quantized integers; INT32 holds eight of INT4", const=True),
        tensor_out("scaleOut", "the scales; FLOAT", const=True),
    ]
    attributes, types, groups, needed = ([] for _ in range(4))
    if version > 1:
        parameters += [
            optional_in(_GROUPS, "the end of each group of rows"),
            attribute("dstType", Kind.INT64, "ignored: yOut's data type is used"),
        ]
        outputs.append(
            tensor_out("offsetOut", "the offsets; FLOAT; null for symmetric quantization", const=True, optional=True)
        )
        types = [dtype_in({D.INT32, D.INT64}, _GROUPS), dtype_in({D.FLOAT}, "offsetOut")]
        groups = [dims_between(1, 1, _GROUPS), *unless_empty(("x",), each("few groups", (_GROUPS,), _few_groups))]
        # For the later versions, the tiling function makes this check.
        title, code = (
            ("with", ACLNN_ERR_PARAM_INVALID) if version == 2 else ("tiled with", ACLNN_ERR_INNER_TILING_ERROR)
        )
        needed = [rule(f"{title} groups: {_SMOOTH}", _groups_need, code)]
    if version > 2:
        parameters += [
            attribute("isSymmetrical", Kind.BOOL, "whether quantization is symmetric"),
            constant_text("quantMode", f"the granularity of the scales: {_PER_TOKEN}, {_PER_CHANNEL} or {_PER_TENSOR}"),
        ]
        attributes = [
            rule("where isSymmetrical says: offsetOut", _symmetry),
            one_of("quantMode", *_AXES),
            rule(f"none in {_PER_CHANNEL}: {_GROUPS}", _no_groups),
        ]
    if version > 3:
        parameters.append(attribute("dstTypeMax", Kind.FLOAT, "ignored: of floating results"))
    return Operator(
        name=name,
        summary="Dynamic quantization, with scales computed from the input.",
        formula="y = round(x * smoothScales / scale + offset), scale = max(|x * smoothScales|) / 127",
        parameters=(*parameters, *outputs),
        support=support((D.FLOAT16, D.BF16), MODERN if version < 3 else CLASS_950),
        checks=(
            *attributes,
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            same_dtype(_SMOOTH, "x"),
            dtype_in(quantized_types, "yOut"),
            dtype_in({D.FLOAT}, "scaleOut"),
            *types,
            dims_between(2, 8, "x"),
            *groups,
            shape_is("one for each column", _smooth_shape, _SMOOTH),
            quantized_shape("x", "yOut"),
            whole_bytes("yOut"),
            shape_is("one for each scale", _statistic_shape, *(p.name for p in outputs[1:])),
            *needed,
        ),
        work=_dynamic_work,
    )


def _restored_scale(call: Call) -> str | None:
    y, got = call["y"].shape, call["scale"].shape
    columns = y[-1] if y else 1
    allowed: list[tuple[int, ...]] = [(1,), (columns,)]
    if call.product in CLASS_950 and y:
        allowed += [(1,) * len(y), (*(1,) * (len(y) - 1), columns)]
        if len(y) > 1:
            allowed += [(y[-2],), (*(1,) * (len(y) - 2), y[-2], 1)]
    if got in allowed:
        return None
    return f"scale: expected shape {listing(map(extents, dict.fromkeys(allowed)))}, got {extents(got)}"


def _restored_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    x, y, scale = call["x"], call["y"].shape, call["scale"].shape
    dtype, square = x.dtype, call["sqrtMode"]
    # A factor per row is one-dimensional too.
    axis = -2 if len(scale) == 1 and scale[0] not in (1, y[-1] if y else 1) else -1

    def restore(x: Any, scale: Any, offset: Any = None) -> Any:
        if dtype == D.INT4:
            x = unpacked(x, y)
        elif dtype == D.INT32:
            x = unpacked_words(x.reshape(-1)).reshape(y)
        factor = _along(scale, axis).astype(np.float64)
        numbers = x if offset is None else x + _along(offset, axis).astype(np.float64)
        return numbers * factor * factor if square else numbers * factor

    return Library(restore, ("x", "scale", *given(call, "offset")), ("y",))


def scale_bits(scale: Any, nearest: bool = False) -> Any:
    """The bits of a scale that a device multiplies with: 19 of FLOAT, and a mark."""
    bits = np.array(scale, np.float32, order="C").view(np.uint32).astype(np.uint64)
    if nearest:
        bits += (1 << 12) - 1 + (bits >> 13 & 1)
    return bits & 0xFFFFE000 | 1 << 46


def offset_bits(offset: Any) -> Any:
    """Nine bits of an integer, next to those of a scale."""
    integers = convert(np.clip(np.rint(offset), -256, 255), np.dtype(np.int64))
    return (integers & 0x1FF).astype(np.uint64) << 37


def product_scale(stored: Any) -> tuple[Any, Any]:
    """Decode the scale and the offset of each 64-bit word."""
    stored = stored.view(np.uint64)
    scale = (stored & 0xFFFFE000).astype(np.uint32).view(np.float32)
    offset = ((stored >> 37 & 0x1FF).astype(np.int64) ^ 0x100) - 0x100
    return scale, offset


def _scales(version: int) -> Operator:
    name = f"trans_quant_param_v{version}"
    rounds = version > 2

    def work(call: Call) -> Library:
        nearest, dtype = bool(rounds and call["roundMode"]), call["out"].dtype.numpy

        def make(scale: Any, offset: Any = None) -> Any:
            bits = scale_bits(scale, nearest)
            return (bits if offset is None else bits | offset_bits(offset)).view(dtype)

        return Library(make, ("scale", *given(call, "offset")), ("out",))

    return Operator(
        name=name,
        summary="Encode scales and offsets for the dequantization of products on the device.",
        formula="out = bits(scale) & 0xFFFFE000 | 1 << 46 | (offset & 0x1FF) << 37",
        parameters=(
            tensor_in("scale", "the scales; FLOAT"),
            optional_in("offset", "the offset of scaled products, from -256 to 255; FLOAT"),
            *((attribute("roundMode", Kind.INT64, "the excess bits are truncated (0) or rounded (1)"),) * rounds),
            tensor_out("out", "the result; UINT64 or INT64", const=True),
        ),
        support=support((D.FLOAT,), MODERN | _INFERENCE),
        checks=(
            dtype_in({D.FLOAT}, "scale", "offset"),
            dtype_in({D.UINT64, D.INT64}, "out"),
            *((one_of("roundMode", 0, 1),) * rounds),
            dims_between(1, 2, "scale", "offset"),
            no_zero_dims("scale", "offset"),
            broadcastable("offset", "scale"),
            shape_is("that of scales and offsets", _scales_shape, "out"),
        ),
        work=work,
        stream_type="const aclrtStream ",
    )


def _scales_shape(call: Call) -> Shape:
    shapes = [call[name].shape for name in ("scale", "offset") if call[name] is not None]
    found = broadcast_shape(*shapes)
    assert found is not None
    return found


_RESTORED = Operator(
    name="ascend_anti_quant",
    summary="Dequantize.",
    formula="y = (x + offset) * scale",
    parameters=(
        tensor_in("x", "the quantized integers; INT32 holds eight of INT4"),
        tensor_in("scale", "the scales: one, or one per index of a dimension"),
        optional_in("offset", "the offsets, in the shape of scale"),
        attribute("dstType", Kind.INT64, "the data type of y: 1 (FLOAT16) or 27 (BF16)"),
        attribute("sqrtMode", Kind.BOOL, "whether to square the scales"),
        tensor_out("y", "the numbers", const=True),
    ),
    support=support((*MOST,), MODERN | _INFERENCE),
    checks=(
        dtype_in(quantized_types, "x"),
        dtype_in(lambda product: floating(product) - {D.FLOAT}, "y"),
        dtype_in(lambda product: floating(product) - {D.FLOAT16}, "scale"),
        same_dtype("offset", "scale"),
        is_dtype("dstType", "y"),
        quantized_shape("y", "x"),
        whole_bytes("x"),
        limited_dims("x"),
        same_shape("offset", "scale"),
        rule("shape of factors: scale", _restored_scale),
    ),
    work=_restored_work,
)

OPERATORS = (
    _DIVIDED,
    _static("ascend_quant", A2_CLASS | _INFERENCE),
    _static("ascend_quant_v3", MODERN | _INFERENCE, attribute("axis", Kind.INT32, "the dimension of scale")),
    *map(_dynamic, range(1, 5)),
    *map(_scales, (2, 3)),
    _RESTORED,
)
