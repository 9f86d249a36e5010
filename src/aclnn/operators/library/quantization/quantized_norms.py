"""RMSNorm with a quantised result: aclnnRmsNormQuant; of a sum, aclnnAddRmsNormQuant, aclnnAddRmsNormDynamicQuant."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    only_if,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import (
    MOST,
    dynamically,
    given,
    quantized,
    quantized_shape,
    whole_bytes,
)

_EPSILON = attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32")
_FORMULA = "x = x1 + x2,  y = x / sqrt(mean(x^2) + epsilon) * gamma + beta"
_BETA, _NORM = "betaOptional", "rmsNormOut"
_SCALES = ("scales1", "scales2Optional")
_ZEROS = ("zeroPoints1Optional", "zeroPoints2Optional")
_SMOOTH = ("smoothScale1Optional", "smoothScale2Optional")
_INTEGERS = ("y1Out", "y2Out")
_FOUND = ("scale1Out", "scale2Out")
_MASK = "outputMask"


def reciprocal_rms(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """Return the reciprocal root mean square along axes, keeping their dimensions."""
    return 1 / np.sqrt(np.mean(x * x, axes, keepdims=True) + epsilon)


def _norm(x: Any, gamma: Any, epsilon: float) -> Any:
    """Normalize rows by their root mean square; gamma has the shape of a row."""
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    return x / np.sqrt(np.mean(x * x, axes, keepdims=True) + epsilon) * gamma


def _halves(product: Product) -> frozenset[D]:
    return floating(product) - {D.FLOAT}


def _inputs(product: Product) -> frozenset[D]:
    return floating(product) if product in CLASS_950 else _halves(product)


def _quotients(call: Call) -> str | None:
    """Return an error text for data types of scales and zero points without a kernel for x1's type."""
    x, scale = call["x1"].dtype, call[_SCALES[0]].dtype
    if call.product in CLASS_950:
        scales: tuple[D, ...] = (x, D.FLOAT)
        zeros: tuple[D, ...] = (x,) if scale == x else (D.FLOAT, D.INT32)
    else:
        scales, zeros = ((D.BF16,), (D.BF16,)) if x == D.BF16 else ((D.FLOAT,), (D.INT32,))
    wanted = {_SCALES[0]: scales, **dict.fromkeys(given(call, *_ZEROS), zeros)}
    texts = (_expected(name, allowed, call, "x1") for name, allowed in wanted.items())
    return next((text for text in texts if text is not None), None)


def _columns(call: Call) -> Shape:
    shape: Shape = call["x1"].shape
    return shape[max(0, len(shape) - len(call["gamma"].shape)) :]


def _lone_zero(call: Call) -> str | None:
    if call[_ZEROS[1]] is None or call[_SCALES[1]] is not None:
        return None
    return f"{_SCALES[1]}: expected an object (with {_ZEROS[1]}), got null"


def _is_double(call: Call) -> bool:
    return bool(given(call, _SCALES[1], _ZEROS[1]))


def _static_work(call: Call) -> Library | None:
    if call["x1"].size == 0 or call["gamma"].size == 0:
        return None
    epsilon, divides = float32(call["epsilon"]), call["divMode"]
    optional = given(call, _BETA, *_SCALES, *_ZEROS)
    results = _INTEGERS[: 1 + _is_double(call)]
    outputs = (*results, *given(call, "xOut", _NORM))

    def normalize(x1: Any, x2: Any, gamma: Any, *further: Any) -> tuple[Any, ...]:
        operands = dict(zip(optional, further, strict=True))
        x = x1.astype(np.float64) + x2
        norm = _norm(x, gamma, epsilon)
        y = norm + operands.get(_BETA, 0)
        found: dict[str, Any] = {"xOut": x, _NORM: norm}
        for name, scale, zeros in zip(_INTEGERS, _SCALES, _ZEROS, strict=True):
            factor = operands.get(scale, 1)
            scaled = y / factor if divides else y * factor
            found[name] = quantized(scaled + operands.get(zeros, 0), D.INT8)
        return tuple(found[name] for name in outputs)

    return Library(normalize, ("x1", "x2", "gamma", *optional), outputs)


def _static(name: str, more: bool) -> Operator:
    beta, norm = (_BETA,) * more, (_NORM,) * more
    return Operator(
        name=name,
        summary="RMSNorm of a sum, quantized with one or two scales.",
        formula=f"{_FORMULA},  y1 = round(y / scales1 + zeroPoints1)",
        parameters=(
            tensor_in("x1", "the first summand"),
            tensor_in("x2", "the second"),
            tensor_in("gamma", "the weight, with the dimensions that are normalized"),
            tensor_in(_SCALES[0], "the divisor or factor of y1Out"),
            optional_in(_SCALES[1], "the divisor or factor of y2Out"),
            optional_in(_ZEROS[0], "the zero point of y1Out"),
            optional_in(_ZEROS[1], "the zero point of y2Out"),
            *(optional_in(name, "the bias added to the normalized rows") for name in beta),
            attribute("axis", Kind.INT64, "ignored"),
            _EPSILON,
            attribute("divMode", Kind.BOOL, "whether scales are divisors"),
            tensor_out("y1Out", "the integers; INT8"),
            tensor_out("y2Out", "the integers of the second scale; unchanged without it"),
            tensor_out("xOut", "the sum"),
            *(tensor_out(name, "the normalized sum before beta", optional=True) for name in norm),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            dtype_in(_inputs, "x1"),
            *(same_dtype(other, "x1") for other in ("x2", "gamma", *beta, "xOut", *norm)),
            same_dtype(_SCALES[1], _SCALES[0]),
            dtype_in((D.INT8,), *_INTEGERS),
            rule(f"data types that go together: {', '.join((_SCALES[0], *_ZEROS))}", _quotients),
            dims_between(1, 8, "x1", "gamma"),
            *elsewhere(CLASS_950, rule(f"with a zero point: {_SCALES[1]}", _lone_zero)),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                same_shape("x2", "x1"),
                shape_is("trailing dimensions of x1", _columns, "gamma"),
                *(same_shape(other, "gamma") for other in (*_SCALES, *_ZEROS, *beta)),
                *(same_shape(other, "x1") for other in ("y1Out", "xOut", *norm)),
                only_if(same_shape("y2Out", "x1"), "where it is written", _is_double),
            ),
        ),
        work=_static_work,
        leaves=True,
    )


def _row(call: Call, name: str) -> str | None:
    n, got = call["x"].shape[-1], call[name].shape
    return None if got in ((n,), (1, n)) else f"expected shape [{n}] or [1, {n}], got {extents(got)}"


def _one_scale(call: Call) -> str | None:
    columns, got = call["x"].shape[-1], call["scale"].shape
    allowed = [(1,), (columns,)] if call.product in CLASS_950 else [(1,)]
    return None if got in allowed else f"scale: expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _expected(name: str, allowed: Sequence[D], call: Call, beside: str) -> str | None:
    got, other = call[name].dtype, call[beside].dtype
    if got in allowed:
        return None
    expected = listing(dtype.c_name for dtype in dict.fromkeys(allowed))
    return f"{name}: expected data type {expected} with {other.c_name} ({beside}), got {got.c_name}"


def _scale_dtype(call: Call) -> str | None:
    x = call["x"].dtype
    return _expected("scale", (x, D.FLOAT) if call.product in CLASS_950 else (x,), call, "x")


def _offset_dtype(call: Call) -> str | None:
    x, scale = call["x"].dtype, call["scale"].dtype
    allowed: tuple[D, ...] = (D.INT8,)
    if call.product in CLASS_950:
        allowed = (D.FLOAT,) if x == D.FLOAT else (D.FLOAT, D.INT32) if scale == D.FLOAT else (x, D.INT8)
    return _expected("offset", allowed, call, "scale")


def _single_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    epsilon, dtype = float32(call["epsilon"]), call["y"].dtype

    def normalize(x: Any, gamma: Any, beta: Any, scale: Any, offset: Any) -> Any:
        y = _norm(x.astype(np.float64), gamma.reshape(-1), epsilon) + beta.reshape(-1)
        return quantized(y / scale + offset, dtype)

    return Library(normalize, ("x", "gamma", "beta", "scale", "offset"), ("y",))


_SINGLE = Operator(
    name="rms_norm_quant",
    summary="RMSNorm over the last dimension, quantized.",
    formula="y = round((x / sqrt(mean(x^2) + epsilon) * gamma + beta) / scale + offset)",
    parameters=(
        tensor_in("x", "the input rows"),
        tensor_in("gamma", "the weight"),
        tensor_in("beta", "the bias added to the normalized rows"),
        tensor_in("scale", "the divisor"),
        tensor_in("offset", "the offset"),
        _EPSILON,
        tensor_out("y", "the quantized integers; INT32 holds eight of INT4"),
    ),
    support=support(FLOATING, MODERN),
    checks=(
        dtype_in(_inputs, "x"),
        same_dtype("gamma", "x"),
        same_dtype("beta", "x"),
        dtype_in(MOST, "y"),
        rule("data type with x: scale", _scale_dtype),
        rule("data type with scales: offset", _offset_dtype),
        dims_between(1, 8, "x"),
        each("a row", ("gamma", "beta"), _row),
        quantized_shape("x", "y"),
        whole_bytes("y"),
        rule("one scale, or one of each column: scale", _one_scale),
        same_shape("offset", "scale"),
    ),
    work=_single_work,
)


def _optional_row(call: Call, name: str) -> str | None:
    columns, got = call["x"].shape[-1], call[name].shape
    if got in ((columns,), (1, columns)):
        return None
    return f"expected shape [{columns}] or [1, {columns}] (a row of x), got {extents(got)}"


def _third_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    epsilon, dtype, divides = float32(call["epsilon"]), call["y"].dtype, call["divMode"]
    optional = given(call, "offsetOptional", _BETA)
    written = ("rstd",) if call["outputRstd"] else ()

    def normalize(x: Any, gamma: Any, scale: Any, *further: Any) -> tuple[Any, ...]:
        operands = dict(zip(optional, further, strict=True))
        x = x.astype(np.float64)
        rstd = reciprocal_rms(x, (-1,), epsilon)
        y = x * rstd * gamma.reshape(-1) + np.reshape(operands.get(_BETA, 0), -1)
        scaled = y / scale if divides else y * scale
        integers = quantized(scaled + operands.get("offsetOptional", 0), dtype)
        return integers, *(rstd.reshape(call[name].shape) for name in written)

    return Library(normalize, ("x", "gamma", "scale", *optional), ("y", *written))


def _with_rstd(*checks: Check) -> tuple[Check, ...]:
    return restricted("with outputRstd", lambda call: call["outputRstd"], *checks)


_THIRD = Operator(
    name="rms_norm_quant_v3",
    summary="RMSNorm over the last dimension, quantized, with its reciprocal root mean square.",
    formula="rstd = 1 / sqrt(mean(x^2) + epsilon), z = x * rstd * gamma + betaOptional, "
    "y = round(z / scale + offsetOptional), or round(z * scale + offsetOptional) without divMode",
    parameters=(
        tensor_in("x", "the input rows"),
        tensor_in("gamma", "the weight"),
        tensor_in("scale", "the divisor or factor of the normalized rows"),
        optional_in("offsetOptional", "the offset"),
        optional_in(_BETA, "the bias added to the normalized rows"),
        _EPSILON,
        attribute("divMode", Kind.BOOL, "whether scale is a divisor"),
        attribute("outputRstd", Kind.BOOL, "whether to write rstd"),
        tensor_out("y", "the quantized integers; INT32 holds eight of INT4"),
        tensor_out("rstd", "the reciprocal root mean square of each row; FLOAT", optional=True),
    ),
    support=support(FLOATING, MODERN),
    checks=(
        present("x", "gamma", "scale", "y"),
        *_with_rstd(present("rstd")),
        dims_between(1, 2, "gamma"),
        dims_between(1, 1, "scale"),
        dims_between(1, 8, "x"),
        quantized_shape("x", "y"),
        dtype_in(floating, "x"),
        same_dtype("gamma", "x"),
        same_dtype(_BETA, "x"),
        dtype_in(floating, "scale"),
        dtype_in(lambda product: (*floating(product), D.INT32, D.INT8), "offsetOptional"),
        dtype_in(MOST, "y"),
        each("a row", ("gamma", _BETA), _optional_row),
        rule("one scale, or one of each column: scale", _one_scale),
        same_shape("offsetOptional", "scale"),
        whole_bytes("y"),
        *_with_rstd(
            dtype_in((D.FLOAT,), "rstd"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR, size_is("rows", lambda call: math.prod(call["x"].shape[:-1]), "rstd")
            ),
        ),
    ),
    work=_third_work,
)


def _written(call: Call) -> tuple[bool, bool]:
    """Return which of the two results are wanted."""
    mask = call.arguments.get(_MASK)
    return (bool(mask[0]), bool(mask[1])) if mask is not None else (True, len(given(call, *_SMOOTH)) == 2)


def _two(call: Call) -> str | None:
    mask = call[_MASK]
    return None if mask is None or len(mask) == 2 else f"{_MASK}: expected 2 values, got {len(mask)}"


def _masked(call: Call) -> str | None:
    mask = call[_MASK]
    if mask is None:
        return None
    at = next((at for at, name in enumerate(_SMOOTH) if call[name] is not None and not mask[at]), None)
    if at is not None:
        return f"{_MASK}: expected true at {at} (with {_SMOOTH[at]}), got false"
    return None if any(mask) else f"{_MASK}: expected one true value at least, got none"


def _first_missing(call: Call) -> str | None:
    if call.arguments.get(_MASK) is not None or call[_SMOOTH[1]] is None or call[_SMOOTH[0]] is not None:
        return None
    return f"{_SMOOTH[0]}: expected an object (with {_SMOOTH[1]}), got null"


def _rows(call: Call) -> int:
    return math.prod(call["x1"].shape[:-1])


def _dynamic_work(call: Call) -> Library | None:
    if call["x1"].size == 0 or call["gamma"].size == 0:
        return None
    epsilon, optional = float32(call["epsilon"]), given(call, _BETA, *_SMOOTH)
    wanted = [at for at, written in enumerate(_written(call)) if written]
    types = [call[_INTEGERS[at]].dtype for at in wanted]
    shapes = [call[_FOUND[at]].shape for at in wanted]

    def normalize(x1: Any, x2: Any, gamma: Any, *further: Any) -> tuple[Any, ...]:
        operands = dict(zip(optional, further, strict=True))
        x = x1.astype(np.float64) + x2
        y = _norm(x, gamma, epsilon) + operands.get(_BETA, 0)
        found = [dynamically(y * operands.get(_SMOOTH[at], 1), -1, of) for at, of in zip(wanted, types, strict=True)]
        scales = (scale.reshape(shape) for (_, scale), shape in zip(found, shapes, strict=True))
        return (*(integers for integers, _ in found), x, *scales)

    outputs = (*(_INTEGERS[at] for at in wanted), "xOut", *(_FOUND[at] for at in wanted))
    return Library(normalize, ("x1", "x2", "gamma", *optional), outputs)


def _where_written(*checks: Check) -> tuple[Check, ...]:
    """Restrict two checks, of the first and the second result, to calls that write it."""
    conditions = (lambda call: _written(call)[0], lambda call: _written(call)[1])
    return tuple(only_if(check, "where it is written", when) for check, when in zip(checks, conditions, strict=True))


def _dynamic(name: str, more: bool) -> Operator:
    beta = (_BETA,) * more
    mask = (Parameter(_MASK, _MASK, Kind.BOOL_ARRAY, "which of the two results to write", optional=True),) * more
    return Operator(
        name=name,
        summary="RMSNorm of a sum, dynamically quantized per row, once or twice.",
        formula=f"{_FORMULA},  y1 = round(y * smoothScale1 / scale1)",
        parameters=(
            tensor_in("x1", "the first summand"),
            tensor_in("x2", "the second"),
            tensor_in("gamma", "the weight of the last dimension"),
            optional_in(_SMOOTH[0], "the smoothing factors of y1Out"),
            optional_in(_SMOOTH[1], "the divisor or factor of y2Out"),
            *(optional_in(name, "the bias added to the normalized rows") for name in beta),
            _EPSILON,
            *mask,
            tensor_out("y1Out", "the quantized integers; INT32 holds eight of INT4"),
            tensor_out("y2Out", "the second integers, if requested"),
            tensor_out("xOut", "the sum"),
            tensor_out("scale1Out", "the scales of rows; FLOAT"),
            tensor_out("scale2Out", "the second scales"),
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            dtype_in(_halves, "x1"),
            *(same_dtype(other, "x1") for other in ("x2", "gamma", *_SMOOTH, *beta, "xOut")),
            dtype_in(lambda product: set(MOST) if more else {D.INT8}, *_INTEGERS),
            dtype_in((D.FLOAT,), *_FOUND),
            *((rule(f"two values: {_MASK}", _two), rule(f"requested outputs: {_MASK}", _masked)) * more),
            rule(f"with the second: {_SMOOTH[0]}", _first_missing),
            dims_between(2, 8, "x1"),
            *_where_written(*(quantized_shape("x1", name) for name in _INTEGERS)),
            *(_where_written(*map(whole_bytes, _INTEGERS)) if more else ()),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                same_shape("x2", "x1"),
                shape_is("the last dimension of x1", lambda call: call["x1"].shape[-1:], "gamma"),
                *(same_shape(other, "gamma") for other in (*_SMOOTH, *beta)),
                same_shape("xOut", "x1"),
                *_where_written(*(size_is("rows", _rows, name) for name in _FOUND)),
            ),
        ),
        work=_dynamic_work,
        leaves=True,
    )


OPERATORS = (
    _static("add_rms_norm_quant", more=False),
    _static("add_rms_norm_quant_v2", more=True),
    _SINGLE,
    _THIRD,
    _dynamic("add_rms_norm_dynamic_quant", more=False),
    _dynamic("add_rms_norm_dynamic_quant_v2", more=True),
)
