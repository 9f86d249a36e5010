"""aclnnQuantMatmulReduceSumWeightNz: products of a batch of matrices of INT8, scaled and added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    format_is,
    no_zero_dims,
    one_of,
    public_format,
    rule,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Parameter, Shape
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantized_products import integer_product

_UNUSED = ("yScale", "x1Offset", "x2Offset", "yOffset", "bias")


def _nothing(call: Call, name: str) -> str | None:
    return f"expected null or an empty tensor, got shape {extents(call[name].shape)}" if call[name].size else None


def _factors(call: Call) -> str | None:
    (batch, _, inner), got = call["x1"].shape, call["x2"].shape
    return None if got[:2] == (batch, inner) else f"x2: expected shape [{batch}, {inner}, columns], got {extents(got)}"


def _columns(call: Call) -> Shape:
    shape: Shape = call["x2"].shape
    return shape[2:]


def _rows(call: Call) -> Shape:
    shape: Shape = call["x1"].shape
    return shape[:2]


def _result(call: Call) -> Shape:
    return call["x1"].shape[1], call["x2"].shape[2]


def _work(call: Call) -> Library:
    shape = _result(call)

    def multiply(x1: Any, x2: Any, rows: Any, columns: Any) -> Any:
        products = zip(x1, x2, rows.astype(np.float64), strict=True)
        total = sum(integer_product(left, right, shape) * scale[:, None] for left, right, scale in products)
        return total * columns.astype(np.float64)

    return Library(multiply, ("x1", "x2", "x1Scale", "x2Scale"), ("out",))


OPERATORS = (
    declared(
        "quant_matmul_reduce_sum_weight_nz",
        "out = sum over the batch of (x1 @ x2) * x1Scale of a row * x2Scale of a column",
        "Batched product of INT8 matrices, scaled and summed over the batch.",
        (
            tensor_in("x1", "(batch, M, K); INT8"),
            tensor_in("x2", "(batch, K, N) in ACL_FORMAT_FRACTAL_NZ; INT8"),
            tensor_in("x1Scale", "the scales of rows (batch, M); FLOAT"),
            tensor_in("x2Scale", "the scales of columns (N,); BF16"),
            *(optional_in(name, "null or empty") for name in _UNUSED),
            attribute("transposeX1", Kind.BOOL, "false"),
            attribute("transposeX2", Kind.BOOL, "false"),
            attribute("groupSize", Kind.INT64, "0"),
            Parameter("dims", "dims", Kind.INT_ARRAY, "ignored; torch_npu passes arbitrary values"),
            attribute("keepDims", Kind.BOOL, "false"),
            tensor_out("out", "(M, N); BF16"),
        ),
        (
            each("null or empty", _UNUSED, _nothing),
            one_of("transposeX1", False),
            one_of("transposeX2", False),
            value_is("0 or less", lambda got: got <= 0, "groupSize"),
            one_of("keepDims", False),
            dtype_in({D.INT8}, "x1", "x2"),
            dtype_in({D.FLOAT}, "x1Scale"),
            dtype_in({D.BF16}, "x2Scale", "out"),
            public_format("x1", "x1Scale", "x2Scale", "out"),
            format_is(Format.FORMAT_FRACTAL_NZ, "x2"),
            dims_between(3, 3, "x1", "x2"),
            no_zero_dims("x1", "x2"),
            rule("matrices that fit: x2", _factors),
            shape_is("one of each column", _columns, "x2Scale"),
            shape_is("one of each row", _rows, "x1Scale"),
            shape_is("the sum of products", _result, "out"),
        ),
        _work,
        dtypes=(D.INT8,),
        products=A2_CLASS,
    ),
)
"""Operators that sum the products of a batch."""
