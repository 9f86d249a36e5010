"""Rows quantised with scales of their groups, and products of integers restored: aclnnGroupQuant, aclnnDequantBias."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    floating,
    generated,
    one_of,
    present,
    rule,
    same_dtype,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import (
    INDEX_TYPES,
    attribute,
    camel,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization import (
    MOST,
    given,
    is_dtype,
    quantized,
    quantized_shape,
    rows_of_groups,
    whole_bytes,
)

_MOST_ROWS = 25000
#: The data type of a restored product, by that of the columns' scales.
_RESTORED = {D.FLOAT: D.FLOAT16, D.BF16: D.BF16}
_BIASES = (D.FLOAT, D.BF16, D.FLOAT16, D.INT32)


def _one_offset(call: Call) -> str | None:
    offset = call["offsetOptional"]
    if offset is None or offset.size <= 1:
        return None
    return f"offsetOptional: expected at most one element, got {offset.size}"


def _group_work(call: Call) -> Library | None:
    if call["x"].size == 0 or call["groupIndex"].size == 0:
        return None
    dtype, optional = call["y"].dtype, given(call, "offsetOptional")

    def quantize(x: Any, scale: Any, ends: Any, *offset: Any) -> Any:
        scaled = x.astype(np.float64) * rows_of_groups(scale, ends, len(x))
        return quantized(np.rint(scaled + offset[0].reshape(-1) if offset else scaled), dtype)

    return Library(quantize, ("x", "scale", "groupIndex", *optional), ("y",))


def _restored_type(call: Call) -> str | None:
    scale, got = call["weightScale"].dtype, call["out"].dtype
    expected = _RESTORED[scale]
    if got == expected:
        return None
    return f"out: expected data type {expected.c_name} (beside {scale.c_name} scales), got {got.c_name}"


def _few_rows(call: Call) -> str | None:
    got = call["x"].shape[0]
    return None if got <= _MOST_ROWS else f"x: expected at most {_MOST_ROWS} rows, got {got}"


def _restored_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    optional = given(call, "activateScaleOptional", "biasOptional")
    whole = call["biasOptional"] is not None and call["biasOptional"].dtype == D.INT32

    def restore(x: Any, scale: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        bias = operands.get("biasOptional", 0)
        factors = scale.astype(np.float64) * operands.get("activateScaleOptional", np.ones(1))[:, None]
        return (x.astype(np.float64) + bias) * factors if whole else x * factors + bias

    return Library(restore, ("x", "weightScale", *optional), ("out",))


OPERATORS = (
    Operator(
        name="group_quant",
        function=camel("group_quant"),
        summary="Quantise groups of rows, each with scales of its own.",
        formula="y = round(x * scale[group of the row] + offsetOptional)",
        parameters=(
            tensor_in("x", "the rows"),
            tensor_in("scale", "a row of factors for each group"),
            tensor_in("groupIndex", "where each group ends; INT32 or INT64"),
            optional_in("offsetOptional", "one number; null: 0"),
            attribute("dstType", Kind.INT32, "the number of y's data type"),
            tensor_out("y", "the integers; INT32 holds eight of INT4"),
        ),
        support=support(FLOATING, A2_CLASS),
        checks=(
            present("x", "scale", "groupIndex", "y"),
            dtype_in(floating, "x", "scale"),
            dtype_in(INDEX_TYPES, "groupIndex"),
            dtype_in(MOST, "y"),
            dtype_in(floating, "offsetOptional"),
            same_dtype("offsetOptional", "scale"),
            is_dtype("dstType", "y"),
            rule("at most one element: offsetOptional", _one_offset),
            dims_between(2, 2, "x", "scale"),
            dims_between(1, 1, "groupIndex"),
            shape_is(
                "a row of x for each group",
                lambda call: (call["groupIndex"].size, call["x"].shape[1]),
                "scale",
            ),
            quantized_shape("x", "y"),
            whole_bytes("y"),
        ),
        work=_group_work,
    ),
    Operator(
        name="dequant_bias",
        function=camel("dequant_bias"),
        summary="Restore products of quantised matrices.",
        formula="out = x * weightScale * activateScaleOptional + biasOptional, to which an INT32 bias is added first",
        parameters=(
            tensor_in("x", "the products; INT32"),
            tensor_in("weightScale", "the scale of each column"),
            optional_in("activateScaleOptional", "the scale of each row; null: 1"),
            optional_in("biasOptional", "what is added to each row; null: 0"),
            attribute("outputDtype", Kind.INT64, "the number of out's data type"),
            Parameter("out", "out", Kind.OUTPUT, "the result", c_type="const aclTensor *"),
        ),
        support=support((D.INT32,), A2_CLASS),
        checks=generated(
            ("x", "weightScale"),
            ("out",),
            lambda product: [(D.INT32, scale, out) for scale in _RESTORED for out in _RESTORED.values()],
            rule("data type beside weightScale: out", _restored_type),
            one_of("outputDtype", 1, 27),
            is_dtype("outputDtype", "out"),
            dtype_in((D.FLOAT,), "activateScaleOptional"),
            dtype_in(_BIASES, "biasOptional"),
            dims_between(2, 2, "x"),
            rule("few rows: x", _few_rows),
            shape_is("a column each", lambda call: call["x"].shape[1:], "weightScale", "biasOptional"),
            shape_is("a row each", lambda call: call["x"].shape[:1], "activateScaleOptional"),
            same_shape("out", "x"),
        ),
        work=_restored_work,
    ),
)
