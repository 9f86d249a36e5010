"""SwiGLU with a quantised result: aclnnSwiGluQuant; aclnnDequantSwigluQuant takes the integers of a product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    floating,
    listing,
    no_zero_dims,
    on,
    one_of,
    only_if,
    rule,
    same_shape,
    shape_is,
    size_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import (
    MOST,
    dynamically,
    given,
    is_dtype,
    quantized,
    rows_of_groups,
    whole_bytes,
)

_GROUPS, _MODE = "groupIndexOptional", "quantModeOptional"
_STATIC, _DYNAMIC = "static", "dynamic"
_LEFT = attribute("activateLeft", Kind.BOOL, "whether the first half is the gate instead of the second")
_HOW = Parameter(_MODE, _MODE, Kind.STRING, f"{_STATIC} (also null) or {_DYNAMIC}", optional=True)
_WEIGHT, _TOKEN, _BIAS = "weightScaleOptional", "activationScaleOptional", "biasOptional"
_QUANT = ("quantScaleOptional", "quantOffsetOptional")
_SMOOTH = ("smoothScalesOptional", "offsetsOptional")
_MOST_COLUMNS = 8192
_GROUPED_COLUMNS = 64


def _swish(x: Any, alpha: float = 1.0) -> Any:
    with np.errstate(over="ignore"):  # the result is 0 where exp overflows
        return x / (1 + np.exp(-alpha * x))


def gated(x: Any, left: bool, mode: int = 0, limit: float = 0.0, alpha: float = 0.0, bias: float = 0.0) -> Any:
    """Multiply the halves of rows, or in mode 1 their even and odd columns, with a Swish of one of them."""
    half = x.shape[-1] // 2
    halves = (x[..., ::2], x[..., 1::2]) if mode == 1 else (x[..., :half], x[..., half:])
    gate, up = halves if left else halves[::-1]
    if mode == 0:
        return _swish(gate) * up
    up = np.clip(up, -limit, limit)
    if mode == 3:
        return np.minimum(_swish(gate), limit) * up
    return _swish(np.minimum(gate, limit), alpha) * (up + bias)


def _is_dynamic(call: Call) -> bool:
    return bool(call[_MODE] == _DYNAMIC)


def _is_static(call: Call) -> bool:
    return not _is_dynamic(call)


def _is_grouped(call: Call) -> bool:
    return call[_GROUPS] is not None


def _group_count(call: Call) -> int:
    return int(call[_GROUPS].size) if _is_grouped(call) else 1


def _rows(call: Call) -> int:
    return math.prod(call["x"].shape[:-1])


def _half(call: Call) -> Shape:
    shape: Shape = call["x"].shape
    return (*shape[:-1], shape[-1] // 2)


def _by_rows(factors: Any, ends: Any, rows: int) -> Any:
    """Return the factors of each row, by group if there are groups."""
    return factors.reshape(1, -1) if ends is None else rows_of_groups(factors.reshape(len(ends), -1), ends, rows)


def _multiple(what: str, of: Callable[[Call], int], only: str = "") -> Check:
    """Require x's last dimension to be a multiple."""

    def violation(call: Call) -> str | None:
        shape, number = call["x"].shape, of(call)
        if shape[-1] % number == 0:
            return None
        return f"x: expected a last dimension that is a multiple of {number}{only}, got {extents(shape)}"

    return rule(f"{what}: x", violation)


def _one_or_columns(*names: str) -> Check:
    """Require one number, or one per column of the result, for each group."""

    def violation(call: Call, name: str) -> str | None:
        groups, columns, got = _group_count(call), _half(call)[-1], call[name].size
        if got in (groups, groups * columns):
            return None
        expected = listing(map(str, dict.fromkeys((groups, groups * columns))))
        return f"expected {expected} elements (1 or {columns} for each of {groups} groups), got {got}"

    return each("one, or one of each column", names, violation)


def _float(*names: str) -> Check:
    return dtype_in({D.FLOAT}, *names)


def _results(integers: str) -> tuple[Parameter, ...]:
    return (
        tensor_out("yOut", integers, const=True),
        tensor_out("scaleOut", f"the scales of rows in {_DYNAMIC}, else left; FLOAT", const=True),
    )


def _outputs(call: Call) -> tuple[str, ...]:
    return ("yOut", "scaleOut")[: 1 + _is_dynamic(call)]


def _smooth_needs(call: Call) -> str | None:
    missing = [name for name in _SMOOTH if call[name] is None]
    if _is_dynamic(call) or len(missing) != 1:
        return None
    return f"{missing[0]}: expected an object (with the other, {_STATIC}), got null"


def _smooth_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    dynamic, left, dtype, counts = _is_dynamic(call), call["activateLeft"], _integers(call), _counts(call)
    shape, found, in_bytes = _stored_half(call), call["scaleOut"].shape, _in_bytes(call)
    optional = given(call, *_SMOOTH[: 2 - dynamic], _GROUPS)

    def stored(y: Any) -> Any:
        integers = quantized(y, dtype)
        return integers.view(np.int8).reshape(shape) if in_bytes or dtype == D.INT8 else integers

    def quantize(x: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        ends = operands.get(_GROUPS)
        if ends is not None and counts:
            ends = np.cumsum(ends)
        y = gated(x.astype(np.float64).reshape(-1, x.shape[-1]), left)
        factor, offset = (operands.get(name) for name in _SMOOTH)
        if factor is not None:
            y *= _by_rows(factor, ends, len(y))
        if offset is not None:
            y += _by_rows(offset, ends, len(y))
        if not dynamic:
            return stored(y)
        scale = (MOST[dtype] / np.max(np.abs(y), -1, keepdims=True)).astype(np.float32)
        return stored(y * scale), scale.reshape(found)

    return Library(quantize, ("x", *optional), _outputs(call))


def _integers(call: Call) -> D:
    return D(call.arguments.get("dstType", D.INT8))


def _counts(call: Call) -> bool:
    return bool(call.arguments.get("groupListType", 0))


def _in_bytes(call: Call) -> bool:
    """Return True if each element of yOut holds two integers, as torch_npu declares it."""
    return bool(_integers(call) == D.INT4 and call["yOut"].dtype == D.INT8)


def _pairs(call: Call) -> str | None:
    got, narrow = call["yOut"].dtype, _integers(call) == D.INT4
    allowed = (D.INT8, D.INT4) if narrow else (D.INT8,)
    if got in allowed:
        return None
    return f"yOut: expected data type {listing(each.c_name for each in allowed)} (dstType), got {got.c_name}"


def _stored_half(call: Call) -> Shape:
    shape = _half(call)
    return (*shape[:-1], shape[-1] // 2) if _in_bytes(call) else shape


def _smooth(name: str, more: bool) -> Operator:
    further = (
        attribute("groupListType", Kind.INT64, "the contents of the group list, 0: ends; 1: sizes"),
        attribute("dstType", Kind.INT64, "the data type of yOut: 2 (INT8) or 29 (INT4)"),
    )
    return Operator(
        name=name,
        summary="SwiGLU with the result quantized, with factors per group of rows.",
        formula="y = round(swish(a) * b * smoothScales * scale), scale = 127 / max(|swish(a) * b * smoothScales|)",
        parameters=(
            tensor_in("x", "the rows, with both halves"),
            optional_in(_SMOOTH[0], "the smoothing factors of each group, one or one per column"),
            optional_in(_SMOOTH[1], f"the offsets, used in {_STATIC} mode"),
            optional_in(_GROUPS, "the end of each group of rows"),
            _LEFT,
            _HOW,
            *(further * more),
            *_results("the quantized integers"),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            one_of(_MODE, None, _STATIC, _DYNAMIC),
            *((one_of("groupListType", 0, 1), one_of("dstType", int(D.INT8), int(D.INT4))) if more else ()),
            dtype_in(floating, "x"),
            _float(*_SMOOTH, "scaleOut"),
            dtype_in({D.INT32}, _GROUPS),
            rule("data type for dstType: yOut", _pairs),
            dims_between(2, 8, "x"),
            dims_between(1, 1, _GROUPS),
            no_zero_dims(*_SMOOTH, _GROUPS),
            _multiple("halves", lambda call: 4 if _integers(call) == D.INT4 else 2),
            value_is(
                f"at most {_MOST_COLUMNS} columns", lambda got: got <= _MOST_COLUMNS, "x", of=lambda got: got.shape[-1]
            ),
            rule(f"together: {', '.join(_SMOOTH)}", _smooth_needs),
            _one_or_columns(*_SMOOTH),
            *((whole_bytes("yOut"),) * more),
            shape_is("half of x", _stored_half, "yOut"),
            size_is("rows", _rows, "scaleOut"),
        ),
        work=_smooth_work,
        leaves=True,
    )


def _weight_needs(call: Call) -> str | None:
    missing = call["x"].dtype == D.INT32 and call[_WEIGHT] is None
    return f"{_WEIGHT}: expected an object (with ACL_INT32), got null" if missing else None


def _only_of_products(call: Call) -> str | None:
    alien = [] if call["x"].dtype == D.INT32 else given(call, _WEIGHT, _TOKEN, _BIAS)
    return f"{alien[0]}: expected null (with {call['x'].dtype.c_name}), got a tensor" if alien else None


def _static_needs(call: Call) -> str | None:
    missing = [name for name in _QUANT if call[name] is None and _is_static(call)]
    return f"{missing[0]}: expected an object ({_STATIC}), got null" if missing else None


def _no_offset(call: Call) -> str | None:
    return f"{_QUANT[1]}: expected null ({_DYNAMIC}), got a tensor" if call[_QUANT[1]] is not None else None


def _last(call: Call) -> str | None:
    got, last = call["activateDim"], len(call["x"].shape) - 1
    if got in (-1, last):
        return None
    return f"activateDim: expected -1 or {last} (others are not supported here), got {got}"


def _even_columns(call: Call) -> str | None:
    wrong = call["swigluMode"] == 1 and not call["activateLeft"]
    return "activateLeft: expected true (swigluMode 1), got false" if wrong else None


def _variant(call: Call) -> tuple[Any, ...]:
    if "swigluMode" not in call.arguments:
        return ()
    return (call["swigluMode"], *(float32(call[name]) for name in ("clampLimit", "gluAlpha", "gluBias")))


def _dequantized_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    dynamic, left, variant = _is_dynamic(call), call["activateLeft"], _variant(call)
    shape, found = _half(call), call["scaleOut"].shape
    optional = given(call, _WEIGHT, _TOKEN, _BIAS, *_QUANT[: 2 - dynamic], _GROUPS)

    def quantize(x: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        sizes = operands.get(_GROUPS)
        ends = None if sizes is None else np.cumsum(sizes)
        numbers = x.astype(np.float64).reshape(-1, x.shape[-1])
        of = {name: _by_rows(operands[name], ends, len(numbers)) for name in operands if name not in (_TOKEN, _GROUPS)}
        bias = of.get(_BIAS, np.zeros(1))
        early = bias.dtype == np.int32
        numbers = numbers + bias * early
        numbers *= of.get(_WEIGHT, 1)
        if _TOKEN in operands:
            numbers *= operands[_TOKEN].reshape(-1, 1)
        y = gated(numbers if early else numbers + bias, left, *variant)
        factor, offset = (of.get(name) for name in _QUANT)
        if not dynamic:
            return quantized((y / factor + offset).reshape(shape), D.INT8)
        integers, scale = dynamically(y if factor is None else y * factor, -1, D.INT8)
        return integers.reshape(shape), scale.reshape(found)

    return Library(quantize, ("x", *optional), _outputs(call))


def _dequantized(name: str, more: bool) -> Operator:
    further = (
        attribute("dstType", Kind.INT64, "the data type of yOut: 2 (INT8)"),
        Parameter(
            "roundModeOptional", "roundModeOptional", Kind.STRING, "the rounding mode: rint or null", optional=True
        ),
        attribute("activateDim", Kind.INT64, "the dimension to split into halves: the last"),
        attribute(
            "swigluMode", Kind.INT64, "1, 2: with limit, alpha and bias; 1: even and odd columns; 3: with the limit"
        ),
        attribute("clampLimit", Kind.DOUBLE, "the clamping limit of a half; rounded to float32"),
        attribute("gluAlpha", Kind.DOUBLE, "the factor of the gate in the sigmoid"),
        attribute("gluBias", Kind.DOUBLE, "the bias of the other half"),
    )

    def inputs(product: Product) -> frozenset[D]:
        without = {D.FLOAT, D.FLOAT16} if more and product not in CLASS_950 else {D.FLOAT}
        return (floating(product) - without) | {D.INT32}

    def groups(product: Product) -> set[D]:
        return {D.INT64} if more or product in CLASS_950 else {D.INT32, D.INT64}

    no_offset = (only_if(rule(f"none in {_DYNAMIC}: {_QUANT[1]}", _no_offset), "then", _is_dynamic),)
    return Operator(
        name=name,
        summary="SwiGLU of a dequantized product, with the result quantized.",
        formula="a, b = halves of x * weightScale * activationScale + bias,  y = round(swish(a) * b / scale)",
        parameters=(
            tensor_in("x", "the rows with both halves: INT32 to dequantize, or 16-bit"),
            optional_in(_WEIGHT, "the scales of columns, optionally per group"),
            optional_in(_TOKEN, "the scales of rows"),
            optional_in(_BIAS, "the bias, for INT32 added before the scales; optionally per group"),
            optional_in(_QUANT[0], f"factors of the product in {_DYNAMIC}, divisors in {_STATIC}"),
            optional_in(_QUANT[1], f"the offsets, used in {_STATIC} mode"),
            optional_in(_GROUPS, "the size of each group"),
            _LEFT,
            _HOW,
            *(further * more),
            *_results("the integers; INT8"),
        ),
        support=support((D.INT32, D.FLOAT16, D.BF16), MODERN),
        checks=(
            one_of(_MODE, None, _STATIC, _DYNAMIC),
            *with_code(
                ACLNN_ERR_PARAM_NULLPTR,
                rule(f"with INT32: {_WEIGHT}", _weight_needs),
                rule(f"in {_STATIC}: {', '.join(_QUANT)}", _static_needs),
            ),
            dtype_in(inputs, "x"),
            _float(_WEIGHT, _TOKEN, *_QUANT, "scaleOut"),
            dtype_in({D.INT32, *FLOATING}, _BIAS),
            dtype_in(groups, _GROUPS),
            dtype_in({D.INT8}, "yOut"),
            rule(f"with INT32 alone: {', '.join((_WEIGHT, _TOKEN, _BIAS))}", _only_of_products),
            *(
                (
                    is_dtype("dstType", "yOut"),
                    one_of("roundModeOptional", None, "rint"),
                    one_of("swigluMode", 0, 1, 2, 3),
                )
                if more
                else ()
            ),
            dims_between(2, 8, "x"),
            dims_between(1, 1, _GROUPS),
            no_zero_dims(_WEIGHT, _TOKEN, _BIAS, *_QUANT, _GROUPS),
            *(
                (
                    rule("the last dimension: activateDim", _last),
                    rule("left in mode 1: activateLeft", _even_columns),
                    only_if(
                        value_is("a finite positive number", lambda got: 0 < got < math.inf, "clampLimit"),
                        "used",
                        lambda call: call["swigluMode"] > 0,
                    ),
                    *elsewhere(
                        CLASS_950,
                        only_if(_multiple("groups", lambda call: _GROUPED_COLUMNS), "with groups", _is_grouped),
                    ),
                )
                if more
                else ()
            ),
            _multiple("halves", lambda call: 2),
            size_is("columns of groups", lambda call: _group_count(call) * call["x"].shape[-1], _WEIGHT, _BIAS),
            size_is("rows", _rows, _TOKEN, "scaleOut"),
            _one_or_columns(*_QUANT),
            *(no_offset if more else on(CLASS_950, *no_offset)),
            only_if(same_shape(_QUANT[1], _QUANT[0]), _STATIC, _is_static),
            shape_is("half of x", _half, "yOut"),
        ),
        work=_dequantized_work,
        leaves=True,
    )


OPERATORS = (
    _smooth("swi_glu_quant", more=False),
    _smooth("swi_glu_quant_v2", more=True),
    _dequantized("dequant_swiglu_quant", more=False),
    _dequantized("dequant_swiglu_quant_v2", more=True),
)
