"""SwiGLU of grouped products, requantised: aclnnGroupedMatmulSwigluQuant, V2 and WeightNZ variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    extents,
    listing,
    no_zero_dims,
    null,
    one_of,
    public_format,
    restricted,
    rule,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, optional_in, parts_between, support, tensor_in, tensor_out
from aclnn.operators.library.lists import each_of, not_null
from aclnn.operators.library.matrix.grouped import ends_of, listed
from aclnn.operators.library.quantization.four_bits import IN_INT32, unpacked, unpacked_words
from aclnn.operators.library.quantization.quantization import dynamically, product_scale, whole_bytes
from aclnn.operators.library.quantization.quantized_gates import gated
from aclnn.operators.library.quantization.quantized_products import BLOCK, integer_product

_FOUR_BITS, _BITS = (D.INT4, D.INT32), (D.UINT64, D.INT64)
_BLOCK_OF_FOUR_BITS = (16, 64)
_MOST_INNER, _MOST_INNER_OF_FOUR_BITS, _MOST_COLUMNS = 2**16 - 1, 19999, 10240
_HALF = 8
"""Offset subtracted from x with 4-bit weights, whose low halves are unsigned; ``bias`` compensates for it."""
_ASSISTANT = "weightAssistMatrix"
"""List that replaces ``bias`` in the second version."""
_LISTS = ("weight", "weightScale", _ASSISTANT)


def _has_four_bits(call: Call) -> bool:
    return call["weight"].dtype in _FOUR_BITS


def _rows_have_four_bits(call: Call) -> bool:
    return call["x"].dtype in _FOUR_BITS


def _is_assisted(call: Call) -> bool:
    return _has_four_bits(call) and not _rows_have_four_bits(call)


def _of_four_bits(*checks: Check) -> tuple[Check, ...]:
    return restricted("of four bits", _is_assisted, *checks)


def _of_other_bits(*checks: Check) -> tuple[Check, ...]:
    return restricted("of other bits", lambda call: not _is_assisted(call), *checks)


def _of_rows_of_four_bits(*checks: Check) -> tuple[Check, ...]:
    return restricted("rows of four bits", _rows_have_four_bits, *checks)


def _of_rows_of_eight_bits(*checks: Check) -> tuple[Check, ...]:
    return restricted("rows of INT8", lambda call: not _rows_have_four_bits(call), *checks)


def _inner(call: Call) -> int:
    """Return the number of columns of x."""
    x = call["x"]
    columns: int = x.shape[1]
    return columns * IN_INT32 if x.dtype == D.INT32 else columns


def _weight_dtype(call: Call) -> str | None:
    if _has_four_bits(call) or not _rows_have_four_bits(call):
        return None
    return f"weight: expected data type ACL_INT4 or ACL_INT32 with {call['x'].dtype.c_name}, got ACL_INT8"


def _smoothing(call: Call) -> str | None:
    groups, halves = call["weight"].shape[0], _columns(call) // 2
    smooth = call["smoothScale"]
    if smooth is None or smooth.shape in ((groups,), (groups, halves)):
        return None
    return f"smoothScale: expected shape [{groups}] or [{groups}, {halves}], got {extents(smooth.shape)}"


def _columns(call: Call) -> int:
    """Return the number of columns of a product, which may be less than that of the blocks."""
    shape: Shape = call["weightScale"].shape
    return shape[-1]


def _scale_dtype(call: Call) -> str | None:
    allowed, got = _BITS if _has_four_bits(call) else FLOATING, call["weightScale"].dtype
    if got in allowed:
        return None
    beside, names = call["weight"].dtype.c_name, listing(dtype.c_name for dtype in allowed)
    return f"weightScale: expected data type {names} with {beside}, got {got.c_name}"


def _scale_rows(call: Call) -> str | None:
    inner, got = _inner(call), call["weightScale"].shape
    if len(got) == 2 or (_has_four_bits(call) and inner % got[1] == 0):
        return None
    expected = f"2 dimensions, or a divisor of {inner} in dimension 1 of 3" if _has_four_bits(call) else "2 dimensions"
    return f"weightScale: expected {expected}, got {extents(got)}"


def _weight_layout(call: Call) -> str | None:
    weight = call["weight"]
    in_blocks, got = weight.format == Format.FORMAT_FRACTAL_NZ, len(weight.shape)
    if not in_blocks and not _has_four_bits(call):
        return f"weight: expected format ACL_FORMAT_FRACTAL_NZ of ACL_INT8, got {weight.format.c_name}"
    expected = 5 if in_blocks else 3
    return None if got == expected else f"weight: expected {expected} dimensions in {weight.format.c_name}, got {got}"


def _weight_shape(call: Call) -> str | None:
    inner, groups, columns = _inner(call), call["weightScale"].shape[0], _columns(call)
    rows, width = _BLOCK_OF_FOUR_BITS if _has_four_bits(call) else BLOCK
    words, got = IN_INT32 if call["weight"].dtype == D.INT32 else 1, call["weight"].shape
    blocks = (-(-columns // width), -(-inner // rows), rows, width // words)
    expected = {3: (groups, inner, columns // words), 5: (groups, *blocks)}
    if got == expected.get(len(got)) and columns % words == 0:
        return None
    return f"weight: expected shape {extents(expected[3])} or, in blocks, {extents(expected[5])}, got {extents(got)}"


def _short(call: Call) -> str | None:
    most, got = _MOST_INNER_OF_FOUR_BITS if _has_four_bits(call) else _MOST_INNER, _inner(call)
    return None if got <= most else f"x: expected at most {most} columns, got {got}"


def _few(call: Call) -> str | None:
    got = _columns(call)
    if got % 2 == 0 and got <= _MOST_COLUMNS:
        return None
    return f"weightScale: expected an even number of at most {_MOST_COLUMNS} columns, got {got}"


def _count(call: Call) -> str | None:
    (got,), most = call["groupList"].shape, call["weight"].shape[0]
    return None if got <= most else f"groupList: expected at most {most} groups, got {got}"


def _matrix(weight: Any, inner: int, columns: int) -> Any:
    """Return a group's weight as a matrix, from blocks if necessary."""
    if weight.ndim == 2:
        return weight
    whole = weight.transpose(1, 2, 0, 3)
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)[:inner, :columns]


def _product(x: Any, matrix: Any, factors: Any) -> Any:
    """Multiply integers; each row of factors applies to equally many rows of the matrix."""
    parts = zip(np.split(x, len(factors), -1), np.split(matrix, len(factors)), factors, strict=True)
    return sum(integer_product(left, right, (len(x), matrix.shape[1])) * row for left, right, row in parts)


def _single(call: Call) -> Call:
    """Return the call with the single tensors of its lists in place of the lists."""
    return replace(call, arguments={**call.arguments, **{name: (call[name] or (None,))[0] for name in _LISTS}})


def _of_single(*checks: Check) -> tuple[Check, ...]:
    def violation(check: Check) -> Callable[[Call], str | None]:
        return lambda call: check.violation(_single(call))

    return tuple(replace(check, violation=violation(check)) for check in checks)


def _work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    in_lists = _ASSISTANT in call.arguments
    if in_lists:
        call = _single(call)
    assistant, sized = _ASSISTANT if in_lists else "bias", bool(call.arguments.get("groupListType", 0))
    inner, columns, four_bits, assisted = _inner(call), _columns(call), _has_four_bits(call), _is_assisted(call)
    of_weight, of_rows = ((call[name].dtype, call[name].shape) for name in ("weight", "x"))

    def numbers(stored: Any, of: tuple[D, Shape]) -> Any:
        return unpacked(stored, of[1]) if of[0] == D.INT4 else unpacked_words(stored)

    def multiply(
        x: Any, weight: Any, factors: Any, row_factors: Any, ends: Any, y: Any, scale: Any, further: Any = None
    ) -> Any:
        y, scale = y.copy(), scale.copy()
        if four_bits:
            weight, factors = numbers(weight, of_weight), product_scale(factors)[0]
            x = x.astype(np.int16) - _HALF if assisted else numbers(x, of_rows)
        ends = ends_of(ends, "groupList") if sized else ends
        for at, rows in enumerate(parts_between(ends, len(x), "groupList")):
            if rows.start < rows.stop:
                total = _product(x[rows], _matrix(weight[at], inner, columns), np.atleast_2d(factors[at]))
                if assisted:
                    total += further[at]
                total *= row_factors[rows, None]
                found = gated(total, left=True)
                if further is not None and not assisted:
                    found = found * further[at]
                y[rows], divisors = dynamically(found, -1, D.INT8)
                scale[rows] = divisors[:, 0]
        return y, scale

    outputs = ("output", "outputScale")
    smooth = ("smoothScale",) if call.arguments.get("smoothScale") is not None else ()
    further = (assistant,) if assisted else smooth
    names = ("x", "weight", "weightScale", "xScale", "groupList", *outputs, *further)
    return Library(multiply, tuple(f"{name}[0]" if in_lists and name in _LISTS else name for name in names), outputs)


def _rows(call: Call) -> Shape:
    shape: Shape = call["x"].shape
    return shape[:1]


_ROWS = tensor_in("x", "the rows; INT8")
_WEIGHT = (
    "(groups, K, N), or in blocks of 16 rows and 32 columns; INT8, or INT4, 64 columns a block; INT32 holds eight of "
    "INT4"
)
_SCALES = "the scales (groups, N); for 4-bit weights UINT64, also (groups, parts of K, N)"
_ASSISTING = "for 4-bit weights, (groups, N): 8 times the sums of weight * weightScale; FLOAT"
_GIVEN = ("x", "weight", "weightScale", "xScale", "groupList", "output", "outputScale")
_RESULTS = (
    tensor_out("output", "the integers; INT8"),
    tensor_out("outputScale", "the dequantization scales of the rows; FLOAT"),
)


def _checks(assistant: str, rows: tuple[Check, ...], smooth: tuple[Check, ...], *layout: Check) -> tuple[Check, ...]:
    """Return the checks of required tensors, of the types of rows, and of smoothing factors."""
    return (
        *_of_four_bits(present(assistant)),
        *_of_other_bits(null(assistant, why="of INT8 with weights of four bits only")),
        *rows,
        dtype_in({D.INT8, *_FOUR_BITS}, "weight"),
        rule("data type with weight: weightScale", _scale_dtype),
        dtype_in({D.FLOAT}, assistant, "xScale", "outputScale"),
        dtype_in({D.INT64}, "groupList"),
        public_format("x", assistant, "weightScale", "xScale", "groupList", "output", "outputScale"),
        dims_between(2, 2, "x", "output"),
        dims_between(2, 3, "weightScale"),
        dims_between(3, 5, "weight"),
        dims_between(1, 1, "groupList"),
        no_zero_dims("weight", "weightScale"),
        *layout,
        rule("scales of parts: weightScale", _scale_rows),
        rule("shape: weight", _weight_shape),
        whole_bytes("weight"),
        rule("short rows: x", _short),
        rule("few columns: weightScale", _few),
        rule("few groups: groupList", _count),
        *_of_four_bits(
            shape_is("a row of each group", lambda call: (call["weight"].shape[0], _columns(call)), assistant)
        ),
        shape_is("a factor for each row", _rows, "xScale", "outputScale"),
        shape_is("half of the products", lambda call: (call["x"].shape[0], _columns(call) // 2), "output"),
        *smooth,
    )


def _operator(
    name: str, function: str, parameters: Sequence[Parameter], assistant: str, checks: Sequence[Check]
) -> Operator:
    smoothed = " * smoothScale[group]" if assistant == _ASSISTANT else ""
    of_four_bits = "of weight alone of four bits" if smoothed else "of four bits"
    return Operator(
        name=name,
        function=function,
        summary="Grouped product of INT8 rows, followed by SwiGLU and quantization of each row.",
        formula=f"a, b = halves of x @ weight[group] * weightScale[group] * xScale, {of_four_bits} of "
        f"((x - 8) @ weight[group] * weightScale[group] + {assistant}[group]) * xScale; "
        f"output = round(swish(a) * b{smoothed} / outputScale)",
        parameters=tuple(parameters),
        support=support((D.INT8,), A2_CLASS),
        checks=tuple(checks),
        work=_work,
        leaves=True,
    )


def _first(name: str, function: str, *layout: Check) -> Operator:
    parameters = (
        _ROWS,
        tensor_in("weight", _WEIGHT),
        optional_in("bias", _ASSISTING),
        optional_in("offset", "null"),
        tensor_in("weightScale", _SCALES),
        tensor_in("xScale", "a scale per row; FLOAT"),
        tensor_in("groupList", "the end of each group; INT64"),
        *_RESULTS,
        tensor_out("outputOffset", "ignored", optional=True),
    )
    checks = _checks("bias", (dtype_in({D.INT8}, "x", "output"),), (), *layout)
    return _operator(name, function, parameters, "bias", (present(*_GIVEN), *checks[:2], _NO_OFFSET, *checks[2:]))


def _second(name: str, function: str, *layout: Check) -> Operator:
    parameters = (
        tensor_in("x", "the rows; INT8, or INT4 with 4-bit weights; INT32 holds eight of INT4"),
        listed("weight", f"a list of one tensor, {_WEIGHT}"),
        listed("weightScale", f"a list of one tensor, {_SCALES}"),
        listed(_ASSISTANT, f"a list of one tensor, {_ASSISTING}", optional=True),
        optional_in("bias", "null"),
        tensor_in("xScale", "a scale per row; FLOAT"),
        optional_in("smoothScale", "the smoothing factors for 4-bit x, (groups,) or (groups, N / 2); FLOAT"),
        tensor_in("groupList", "the end of each group, or its size; INT64"),
        attribute("dequantMode", Kind.INT64, "ignored: the dimensions of weightScale determine it"),
        attribute("dequantDtype", Kind.INT64, "ignored"),
        attribute("quantMode", Kind.INT64, "ignored"),
        attribute("groupListType", Kind.INT64, "the contents of groupList, 0: ends, 1: sizes"),
        Parameter("tuningConfig", "tuning_config", Kind.INT_ARRAY, "a performance hint; ignored", optional=True),
        *_RESULTS,
    )
    checks = (
        present(*_GIVEN),
        value_is("one tensor", lambda got: got == 1, *_LISTS, of=lambda got: len(got)),
        each_of("no null among them", _LISTS, not_null, ACLNN_ERR_PARAM_NULLPTR),
        null("bias", why="reserved"),
        *_of_rows_of_eight_bits(null("smoothScale", why="of x of four bits")),
        one_of("groupListType", 0, 1),
        *_of_single(*_checks(_ASSISTANT, _ROWS_OF_SECOND, _SMOOTHED, *layout)),
    )
    return _operator(name, function, parameters, _ASSISTANT, checks)


_ROWS_OF_SECOND = (
    dtype_in({D.INT8, *_FOUR_BITS}, "x"),
    dtype_in({D.INT8}, "output"),
    rule("four bits with x: weight", _weight_dtype),
    whole_bytes("x"),
)
_SMOOTHED = (
    *_of_rows_of_four_bits(dtype_in({D.FLOAT}, "smoothScale"), public_format("smoothScale")),
    rule("factors of groups: smoothScale", _smoothing),
)
_NO_OFFSET = null("offset", why="reserved")

_LAYOUT = rule("blocks: weight", _weight_layout)

OPERATORS = (
    _first("grouped_matmul_swiglu_quant", "aclnnGroupedMatmulSwigluQuant", _LAYOUT),
    _first("grouped_matmul_swiglu_quant_weight_nz", "aclnnGroupedMatmulSwigluQuantWeightNZ"),
    _second("grouped_matmul_swiglu_quant_v2", "aclnnGroupedMatmulSwigluQuantV2", _LAYOUT),
    _second("grouped_matmul_swiglu_quant_weight_nz_v2", "aclnnGroupedMatmulSwigluQuantWeightNzV2"),
)
