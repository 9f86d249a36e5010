"""SwiGLU of products of groups of rows, quantised again: aclnnGroupedMatmulSwigluQuantWeightNZ."""

from __future__ import annotations

from typing import Any

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    extents,
    no_zero_dims,
    null,
    present,
    public_format,
    rule,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library, Operator, Shape
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.grouped import parts_between
from aclnn.operators.library.quantization import dynamically
from aclnn.operators.library.quantized_gates import gated
from aclnn.operators.library.quantized_products import BLOCK, integer_product

_RESERVED = ("bias", "offset")
_MOST_INNER, _MOST_COLUMNS = 2**16 - 1, 10240


def _columns(call: Call) -> int:
    """The columns of a product, which blocks may exceed."""
    shape: Shape = call["weightScale"].shape
    return shape[1]


def _weight_shape(call: Call) -> str | None:
    (_, inner), (groups, columns), got = call["x"].shape, call["weightScale"].shape, call["weight"].shape
    rows, width = BLOCK
    expected = {3: (groups, inner, columns), 5: (groups, -(-columns // width), -(-inner // rows), rows, width)}
    if got == expected.get(len(got)):
        return None
    return f"weight: expected shape {extents(expected[3])} or, in blocks, {extents(expected[5])}, got {extents(got)}"


def _short(call: Call) -> str | None:
    got = call["x"].shape[1]
    return None if got <= _MOST_INNER else f"x: expected at most {_MOST_INNER} columns, got {got}"


def _few(call: Call) -> str | None:
    got = _columns(call)
    if got % 2 == 0 and got <= _MOST_COLUMNS:
        return None
    return f"weightScale: expected an even number of at most {_MOST_COLUMNS} columns, got {got}"


def _count(call: Call) -> str | None:
    (got,), most = call["groupList"].shape, call["weight"].shape[0]
    return None if got <= most else f"groupList: expected at most {most} groups, got {got}"


def _matrix(weight: Any, inner: int, columns: int) -> Any:
    """Return the matrix that a group's weight is, from its blocks if it lies in such."""
    if weight.ndim == 2:
        return weight
    whole = weight.transpose(1, 2, 0, 3)
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)[:inner, :columns]


def _work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    inner, columns = call["x"].shape[1], _columns(call)

    def multiply(x: Any, weight: Any, factors: Any, row_factors: Any, ends: Any, y: Any, scale: Any) -> Any:
        y, scale = y.copy(), scale.copy()
        for at, rows in enumerate(parts_between(ends, len(x), "groupList")):
            if rows.start < rows.stop:
                matrix = _matrix(weight[at], inner, columns)
                total = integer_product(x[rows], matrix, (rows.stop - rows.start, columns))
                total *= row_factors[rows, None]
                total *= factors[at]
                y[rows], of_rows = dynamically(gated(total, left=True), -1, D.INT8)
                scale[rows] = of_rows[:, 0]
        return y, scale

    outputs = ("output", "outputScale")
    return Library(multiply, ("x", "weight", "weightScale", "xScale", "groupList", *outputs), outputs)


def _result_shape(call: Call) -> Shape:
    return call["x"].shape[0], _columns(call) // 2


def _rows(call: Call) -> Shape:
    shape: Shape = call["x"].shape
    return shape[:1]


OPERATORS = (
    Operator(
        name="grouped_matmul_swiglu_quant_weight_nz",
        function="aclnnGroupedMatmulSwigluQuantWeightNZ",
        summary="Multiply groups of rows of INT8, gate the products by SwiGLU and quantise each row.",
        formula="a, b = halves of x @ weight[group] * xScale * weightScale[group],  "
        "output = round(swish(a) * b / outputScale)",
        parameters=(
            tensor_in("x", "the rows; INT8"),
            tensor_in("weight", "(groups, K, N), or in blocks of 16 rows and 32 columns; INT8"),
            optional_in("bias", "null"),
            optional_in("offset", "null"),
            tensor_in("weightScale", "(groups, N) factors"),
            tensor_in("xScale", "a factor for each row; FLOAT"),
            tensor_in("groupList", "where groups end; INT64"),
            tensor_out("output", "the integers; INT8"),
            tensor_out("outputScale", "what divided them in each row; FLOAT"),
            tensor_out("outputOffset", "ignored", optional=True),
        ),
        support=support((D.INT8,), A2_CLASS),
        checks=(
            present("x", "weight", "weightScale", "xScale", "groupList", "output", "outputScale"),
            null(*_RESERVED, why="of weights of INT8"),
            dtype_in({D.INT8}, "x", "weight", "output"),
            dtype_in(FLOATING, "weightScale"),
            dtype_in({D.FLOAT}, "xScale", "outputScale"),
            dtype_in({D.INT64}, "groupList"),
            public_format("x", "weightScale", "xScale", "groupList", "output", "outputScale"),
            dims_between(2, 2, "x", "weightScale", "output"),
            dims_between(3, 5, "weight"),
            dims_between(1, 1, "groupList"),
            no_zero_dims("weight", "weightScale"),
            rule("shape: weight", _weight_shape),
            rule("short rows: x", _short),
            rule("few columns: weightScale", _few),
            rule("few groups: groupList", _count),
            shape_is("a factor for each row", _rows, "xScale", "outputScale"),
            shape_is("half of the products", _result_shape, "output"),
        ),
        work=_work,
        leaves=True,
    ),
)
