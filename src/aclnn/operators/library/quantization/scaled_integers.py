"""Rows quantised with scales of their groups, and products of integers restored: aclnnGroupQuant, aclnnDequantBias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    fits,
    floating,
    generated,
    not_empty,
    one_of,
    restricted,
    same_dtype,
    same_shape,
    shape_is,
    single,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import INDEX_TYPES, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import (
    MOST,
    given,
    is_dtype,
    quantized,
    quantized_shape,
    rows_of_groups,
    whole_bytes,
)

_MOST_ROWS = 25000
_OPTIONAL = _SCALE, _BIAS = "activateScaleOptional", "biasOptional"
#: The data type of a restored product, by that of the columns' scales.
_RESTORED = {D.FLOAT: D.FLOAT16, D.BF16: D.BF16}
_BIASES = (D.FLOAT, D.BF16, D.FLOAT16, D.INT32)


def _with(name: str, *checks: Check) -> tuple[Check, ...]:
    """Restrict checks to calls whose optional tensor has elements; an empty tensor counts as null."""
    return restricted(f"with {name}", lambda call: call[name] is not None and call[name].size > 0, *checks)


def _group_work(call: Call) -> Library | None:
    if call["x"].size == 0:
        return None
    dtype, optional = call["y"].dtype, given(call, "offsetOptional")

    def quantize(x: Any, scale: Any, ends: Any, *offset: Any) -> Any:
        scaled = x.astype(np.float64) * rows_of_groups(scale, ends, len(x))
        return quantized(scaled + offset[0].reshape(-1) if offset else scaled, dtype)

    return Library(quantize, ("x", "scale", "groupIndex", *optional), ("y",))


def _columns(call: Call) -> Sequence[int]:
    shape: Sequence[int] = call["x"].shape
    return shape[1:]


def _restored_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    optional = [name for name in given(call, *_OPTIONAL) if call[name].size]
    whole = _BIAS in optional and call[_BIAS].dtype == D.INT32

    def restore(x: Any, scale: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        bias = operands.get(_BIAS, 0)
        factors = scale.astype(np.float64) * operands.get(_SCALE, np.ones(1))[:, None]
        return (x.astype(np.float64) + bias) * factors if whole else x * factors + bias

    return Library(restore, ("x", "weightScale", *optional), ("out",))


OPERATORS = (
    Operator(
        name="group_quant",
        summary="Quantize groups of rows with scales per group.",
        formula="y = round(x * scale[group of the row] + offsetOptional)",
        parameters=(
            tensor_in("x", "the rows"),
            tensor_in("scale", "a row of scales per group"),
            tensor_in("groupIndex", "the end of each group; INT32 or INT64"),
            optional_in("offsetOptional", "the offset, one number; null: 0"),
            attribute("dstType", Kind.INT32, "the ACL number of y's data type"),
            tensor_out("y", "the quantized integers; INT32 holds eight of INT4"),
        ),
        support=support(FLOATING, A2_CLASS),
        checks=(
            dtype_in(floating, "x", "scale"),
            dtype_in(INDEX_TYPES, "groupIndex"),
            dtype_in(MOST, "y"),
            dtype_in(floating, "offsetOptional"),
            same_dtype("offsetOptional", "scale"),
            is_dtype("dstType", "y"),
            single("offsetOptional"),
            dims_between(2, 2, "x", "scale"),
            dims_between(1, 1, "groupIndex"),
            shape_is("a row of x for each group", lambda call: (call["groupIndex"].size, call["x"].shape[1]), "scale"),
            not_empty("groupIndex"),
            quantized_shape("x", "y"),
            whole_bytes("y"),
        ),
        work=_group_work,
    ),
    Operator(
        name="dequant_bias",
        summary="Dequantize integer products.",
        formula="out = x * weightScale * activateScaleOptional + biasOptional; an INT32 bias is added before scaling",
        parameters=(
            tensor_in("x", "the products; INT32"),
            tensor_in("weightScale", "the scale of each column"),
            optional_in(_SCALE, "the scale of each row; null: 1"),
            optional_in(_BIAS, "the bias; null: 0"),
            attribute("outputDtype", Kind.INT64, "the ACL number of out's data type"),
            Parameter("out", "out", Kind.OUTPUT, "the result", c_type="const aclTensor *"),
        ),
        support=support((D.INT32,), A2_CLASS),
        checks=generated(
            ("x", "weightScale"),
            ("out",),
            lambda product: [(D.INT32, scale, out) for scale in _RESTORED for out in _RESTORED.values()],
            fits(
                "data type {} (with {} scales)",
                lambda call, got: (_RESTORED[call["weightScale"].dtype], call["weightScale"].dtype, got.dtype),
                "out",
                holds=lambda expected, scale, got: got == expected,
            ),
            one_of("outputDtype", 1, 27),
            is_dtype("outputDtype", "out"),
            dims_between(2, 2, "x"),
            dims_between(1, 1, "weightScale", *_OPTIONAL),
            shape_is("a column each", _columns, "weightScale"),
            *_with(_SCALE, shape_is("a row each", lambda call: call["x"].shape[:1], _SCALE)),
            *_with(_BIAS, shape_is("a column each", _columns, _BIAS)),
            same_shape("out", "x"),
            *_with(_SCALE, dtype_in((D.FLOAT,), _SCALE)),
            *_with(_BIAS, dtype_in(_BIASES, _BIAS)),
            value_is(f"at most {_MOST_ROWS} rows", lambda got: got <= _MOST_ROWS, "x", of=lambda got: got.shape[0]),
        ),
        work=_restored_work,
    ),
)
