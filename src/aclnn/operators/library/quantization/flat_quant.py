"""Quantisation after multiplication by small matrices: aclnnFlatQuant and aclnnRotateQuant."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    null,
    one_of,
    public_format,
    rule,
    same_dtype,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.four_bits import IN_INT32
from aclnn.operators.library.quantization.quantization import MOST, dynamically, quantized, quantized_shape, whole_bytes

_HALVES = (D.FLOAT16, D.BF16)
_MOST_MATRICES, _WIDEST = 262144, 256


def _sizes(call: Call) -> str | None:
    matrices, rows, columns = call["x"].shape
    if 1 <= matrices <= _MOST_MATRICES and 1 <= rows <= _WIDEST and 1 <= columns <= _WIDEST:
        return None
    limits = f"from 1 to {_MOST_MATRICES} matrices of at most {_WIDEST} rows and columns"
    return f"x: expected {limits}, got {extents(call['x'].shape)}"


def _whole_columns(call: Call) -> str | None:
    unit, got = IN_INT32 if call["out"].dtype == D.INT32 else 2, call["x"].shape[2]
    if got % unit == 0:
        return None
    return f"x: expected a multiple of {unit} columns with out of {call['out'].dtype.c_name}, got {got}"


def _work(call: Call) -> Library:
    dtype, clip = call["out"].dtype, call["clipRatio"]

    def quantize(x: Any, left: Any, right: Any) -> tuple[Any, Any]:
        found = left @ (x @ right)
        scales = (np.abs(found).max((1, 2), keepdims=True) * (clip / MOST[dtype])).astype(np.float32)
        return quantized(found / scales, dtype), scales.reshape(-1)

    return Library(quantize, ("x", "kroneckerP1", "kroneckerP2"), ("out", "quantScale"))


_UNIT = 8
"""Divisor of the number of rotated columns."""


def _whole_rotations(call: Call) -> str | None:
    columns, got = call["x"].shape[1], call["rotation"].shape[1]
    if columns % _UNIT == 0 and got and columns % got == 0:
        return None
    expected = f"a divisor of a multiple of {_UNIT} columns of x"
    return f"rotation: expected {expected} in the last dimension, got {got} and {columns}"


def _rotate_work(call: Call) -> Library | None:
    if call["yOut"].size == 0:
        return None
    dtype = call["yOut"].dtype

    def quantize(x: Any, rotation: Any) -> tuple[Any, Any]:
        parts = x.reshape(len(x), -1, len(rotation)).astype(np.float64)
        with np.errstate(invalid="ignore"):  # rows of zeros
            integers, scales = dynamically((parts @ rotation.astype(np.float64)).reshape(x.shape), -1, dtype)
        return integers, scales[:, 0]

    return Library(quantize, ("x", "rotation"), ("yOut", "scaleOut"))


OPERATORS = (
    declared(
        "flat_quant",
        "y = kroneckerP1 @ x @ kroneckerP2; quantScale = max(|y|) * clipRatio / 7 of each matrix; "
        "out = round(y / quantScale)",
        "Quantize matrices to 4 bits after multiplication by small matrices on both sides.",
        (
            tensor_in("x", "(matrices, rows, columns)"),
            tensor_in("kroneckerP1", "(rows, rows)"),
            tensor_in("kroneckerP2", "(columns, columns)"),
            attribute("clipRatio", Kind.DOUBLE, "the clipping ratio of the largest number"),
            tensor_out("out", "the integers; INT4, or eight of them in an INT32"),
            tensor_out("quantScale", "the scale of each matrix; FLOAT"),
        ),
        (
            dtype_in(set(_HALVES), "x", "kroneckerP1", "kroneckerP2"),
            dtype_in({D.INT4, D.INT32}, "out"),
            dtype_in({D.FLOAT}, "quantScale"),
            same_dtype("kroneckerP1", "x"),
            same_dtype("kroneckerP2", "x"),
            dims_between(3, 3, "x", "out"),
            rule("matrices with a kernel: x", _sizes),
            whole_bytes("out"),
            rule("whole integers: x", _whole_columns),
            shape_is("rows by rows", lambda call: (call["x"].shape[1],) * 2, "kroneckerP1"),
            shape_is("columns by columns", lambda call: (call["x"].shape[2],) * 2, "kroneckerP2"),
            shape_is("one for each matrix", lambda call: call["x"].shape[:1], "quantScale"),
            quantized_shape("x", "out"),
            value_is("more than 0, at most 1", lambda got: 0 < got <= 1, "clipRatio"),
        ),
        _work,
        dtypes=_HALVES,
    ),
    declared(
        "rotate_quant",
        "y = x in rows of K @ rotation; scaleOut = max(|y|) of a row / 127, of 4 bits 7; yOut = round(y / scaleOut)",
        "Rotate blocks of K columns by a square matrix, and quantize each row.",
        (
            tensor_in("x", "(M, N)"),
            tensor_in("rotation", "(K, K), K a divisor of N"),
            optional_in("alpha", "null"),
            attribute("axis", Kind.INT64, "the last dimension"),
            Parameter("roundMode", "round_mode", Kind.STRING, "the rounding mode: rint or null", optional=True),
            attribute("scaleAlg", Kind.INT64, "0"),
            attribute("dstTypeMax", Kind.DOUBLE, "0"),
            attribute("trans", Kind.BOOL, "false"),
            tensor_out("yOut", "the integers; INT8, or eight of 4 bits in an INT32"),
            tensor_out("scaleOut", "the scale of each row; FLOAT"),
        ),
        (
            dtype_in(set(_HALVES), "x", "rotation"),
            same_dtype("rotation", "x"),
            dtype_in({D.INT8, D.INT32}, "yOut"),
            dtype_in({D.FLOAT}, "scaleOut"),
            dims_between(2, 2, "x", "rotation"),
            rule("whole rows of K: rotation", _whole_rotations),
            shape_is("a square", lambda call: (call["rotation"].shape[1],) * 2, "rotation"),
            dims_between(2, 2, "yOut"),
            quantized_shape("x", "yOut"),
            shape_is("one for each row", lambda call: call["x"].shape[:1], "scaleOut"),
            public_format("x", "rotation", "yOut", "scaleOut"),
            null("alpha"),
            one_of("axis", -1, 1),
            one_of("roundMode", "rint", "round", "floor", None),
            one_of("scaleAlg", 0),
            one_of("dstTypeMax", 0.0),
            one_of("trans", False),
            *with_code(
                ACLNN_ERR_INNER_NULLPTR,
                value_is("'rint' with a kernel", lambda got: got in ("rint", None), "roundMode"),
            ),
        ),
        _rotate_work,
        dtypes=_HALVES,
        products=A2_CLASS,
    ),
)
