"""aclnnFlatQuant: integers of 4 bits of matrices between two small factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, extents, present, rule, same_dtype, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library
from aclnn.operators.library.common import attribute, declared, tensor_in, tensor_out
from aclnn.operators.library.four_bits import IN_INT32
from aclnn.operators.library.quantization import MOST, quantized, quantized_shape, whole_bytes

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
    return f"x: expected a multiple of {unit} columns beside out of {call['out'].dtype.c_name}, got {got}"


def _clip(call: Call) -> str | None:
    got = call["clipRatio"]
    return None if 0 < got <= 1 else f"clipRatio: expected more than 0, at most 1, got {got}"


def _work(call: Call) -> Library:
    dtype, clip = call["out"].dtype, call["clipRatio"]

    def quantise(x: Any, left: Any, right: Any) -> tuple[Any, Any]:
        found = left @ (x @ right)
        scales = (np.abs(found).max((1, 2), keepdims=True) * (clip / MOST[dtype])).astype(np.float32)
        return quantized(np.rint(found / scales), dtype), scales.reshape(-1)

    return Library(quantise, ("x", "kroneckerP1", "kroneckerP2"), ("out", "quantScale"))


OPERATORS = (
    declared(
        "flat_quant",
        "y = kroneckerP1 @ x @ kroneckerP2; quantScale = max(|y|) * clipRatio / 7 of each matrix; "
        "out = round(y / quantScale)",
        "Quantise matrices to 4 bits after a small factor on either side.",
        (
            tensor_in("x", "(matrices, rows, columns)"),
            tensor_in("kroneckerP1", "(rows, rows)"),
            tensor_in("kroneckerP2", "(columns, columns)"),
            attribute("clipRatio", Kind.DOUBLE, "which part of the largest number counts"),
            tensor_out("out", "the integers; INT4, or eight of them in an INT32"),
            tensor_out("quantScale", "the scale of each matrix; FLOAT"),
        ),
        (
            present("x", "kroneckerP1", "kroneckerP2", "out", "quantScale"),
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
            rule("a part: clipRatio", _clip),
        ),
        _work,
        dtypes=_HALVES,
    ),
)
