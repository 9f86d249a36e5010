"""INT8 products of experts, summed per token: aclnnGroupedMatmulFinalizeRoutingWeightNz, V2 …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    format_is,
    no_zero_dims,
    null,
    one_of,
    only_if,
    public_format,
    rule,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format, float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    attribute,
    expect_within,
    optional_in,
    parts_between,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.matrix.grouped import ends_of
from aclnn.operators.library.quantization.four_bits import IN_INT32, unpacked, unpacked_words
from aclnn.operators.library.quantization.quantization import given, product_scale, whole_bytes
from aclnn.operators.library.quantization.quantized_products import BLOCK, integer_product

_ROW_SCALE, _GROUPS, _SHARED = "pertokenScaleOptional", "groupList", "sharedInput"
_TUNING = "tuningConfigOptional"
_TUNED = Parameter(
    _TUNING, _TUNING, Kind.INT_ARRAY, "the expected number of rows per group, a performance hint", optional=True
)
_UNUSED = ("offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
_LEAST_COLUMNS = 256


def _whole_blocks(call: Call) -> str | None:
    (_, inner, columns), (rows, width) = call["x2"].shape, BLOCK
    if inner % rows == columns % width == 0 and columns >= _LEAST_COLUMNS:
        return None
    expected = f"matrices of a multiple of {rows} rows and of {width} columns, at least {_LEAST_COLUMNS}"
    return f"x2: expected {expected}, got {extents((inner, columns))}"


def _rows(call: Call) -> Shape:
    shape: Shape = call["x1"].shape
    return shape[:1]


def _group_count(call: Call) -> Shape:
    shape: Shape = call["x2"].shape
    return shape[:1]


def _scale_shape(call: Call) -> Shape:
    groups, _, columns = call["x2"].shape
    return groups, columns


def _result_shape(call: Call) -> str | None:
    (rows,), columns, got = _rows(call), call["x2"].shape[2], call["out"].shape
    if got[0] <= rows and got[1] == columns:
        return None
    return f"out: expected shape [at most {rows}, {columns}], got {extents(got)}"


def _shared_shape(call: Call) -> str | None:
    (most, columns), got = call["out"].shape, call[_SHARED].shape
    if got[0] <= most and got[1] == columns:
        return None
    return f"{_SHARED}: expected shape [at most {most}, {columns}], got {extents(got)}"


def _shared_place(call: Call) -> str | None:
    shared = call[_SHARED]
    most, got = call["out"].shape[0] - (shared.shape[0] if shared is not None else 0), call["sharedInputOffset"]
    return None if 0 <= got <= most else f"sharedInputOffset: expected from 0 to {most}, got {got}"


def _has_shared(call: Call) -> bool:
    return call[_SHARED] is not None


def _logits(call: Call) -> str | None:
    return f"logit: expected an object with {_SHARED}, got null" if call["logit"] is None else None


def _tuned(call: Call) -> str | None:
    (most,), first = _rows(call), next(iter(call[_TUNING] or ()), 0)
    return None if 0 <= first <= most else f"{_TUNING}: expected from 0 to {most} rows (of x1) first, got {first}"


def _work(call: Call) -> Library:
    multiply = _added(call, given(call, _ROW_SCALE, "logit", _SHARED), _GROUPS, "rowIndex")
    inputs = ("x1", "x2", "scale", _GROUPS, "rowIndex", *given(call, _ROW_SCALE, "logit", _SHARED))

    def run(x1: Any, x2: Any, scale: Any, groups: Any, index: Any, *further: Any) -> Any:
        def product(rows: slice, at: int) -> Any:
            return integer_product(x1[rows], x2[at], (rows.stop - rows.start, x2.shape[2])) * scale[at]

        return multiply(product, len(x1), groups, index, further)

    return Library(run, inputs, ("out",))


def _added(call: Call, optional: tuple[str, ...], groups_name: str, index_name: str) -> Callable[..., Any]:
    """Return the function that sums grouped products; the last of ``optional`` may be the shared expert's rows."""
    sized, shape, begin = bool(call["groupListType"]), call["out"].shape, call["sharedInputOffset"]
    weight = float32(call["sharedInputWeight"])

    def add(product: Callable[[slice, int], Any], count: int, groups: Any, index: Any, further: tuple[Any, ...]) -> Any:
        operands = dict(zip(optional, further, strict=True))
        expect_within(index_name, index, 0, shape[0] - 1)
        y = np.zeros(shape)
        ends = ends_of(groups, groups_name) if sized else groups
        for at, rows in enumerate(parts_between(ends, count, groups_name)):
            total = product(rows, at)
            for name, factors in operands.items():
                if not name.startswith(_SHARED):
                    total = total * factors[rows, None]
            np.add.at(y, index[rows], total)
        for name, given_rows in operands.items():
            if name.startswith(_SHARED):
                shared = given_rows.astype(np.float64)
                y[begin : begin + len(shared)] += weight * shared
        return y

    return add


def _operator(name: str, more: bool) -> Operator:
    unused = _UNUSED if more else ()
    return Operator(
        name=name,
        summary="Grouped product of INT8 rows, scattered and summed by token.",
        formula="out[rowIndex[i]] += x1[i] @ x2[group] * scale[group] * pertokenScale[i] * logit[i], "
        "out[sharedInputOffset:] += sharedInputWeight * sharedInput",
        parameters=(
            tensor_in("x1", "the rows; INT8"),
            tensor_in("x2", "(groups, K, N) in ACL_FORMAT_FRACTAL_NZ; INT8"),
            tensor_in("scale", "the scales (groups, N); FLOAT"),
            optional_in("bias", "null"),
            *(optional_in(name, "null") for name in unused),
            optional_in(_ROW_SCALE, "a scale per row; FLOAT"),
            tensor_in(_GROUPS, "the end of each group, or its size; INT64"),
            optional_in(_SHARED, "the shared rows to add; BF16"),
            optional_in("logit", "a weight per row; FLOAT"),
            tensor_in("rowIndex", "the row of out to which each row is added; INT32 or INT64"),
            attribute("dtype", Kind.INT64, "0: FLOAT"),
            attribute("sharedInputWeight", Kind.FLOAT, f"the factor of {_SHARED}"),
            attribute("sharedInputOffset", Kind.INT64, f"the row of out to which the first of {_SHARED} is added"),
            attribute("transposeX1", Kind.BOOL, "false"),
            attribute("transposeX2", Kind.BOOL, "false"),
            attribute("groupListType", Kind.INT64, f"the contents of {_GROUPS}, 0: ends, 1: sizes"),
            *((_TUNED,) * more),
            tensor_out("out", "the sums by token; FLOAT"),
        ),
        support=support((D.INT8,), A2_CLASS),
        checks=(
            only_if(rule("logits: logit", _logits, ACLNN_ERR_PARAM_NULLPTR), f"with {_SHARED}", _has_shared),
            null("bias", *unused, why="of weights of INT8"),
            one_of("dtype", 0),
            one_of("transposeX1", False),
            one_of("transposeX2", False),
            one_of("groupListType", 0, 1),
            dtype_in({D.INT8}, "x1", "x2"),
            dtype_in({D.FLOAT}, "scale", _ROW_SCALE, "logit", "out"),
            dtype_in({D.INT64}, _GROUPS),
            dtype_in({D.BF16}, _SHARED),
            dtype_in(set(INDEX_TYPES), "rowIndex"),
            public_format("x1", "scale", _ROW_SCALE, _GROUPS, _SHARED, "logit", "rowIndex", "out"),
            format_is(Format.FORMAT_FRACTAL_NZ, "x2"),
            dims_between(2, 2, "x1", "scale", _SHARED, "out"),
            dims_between(3, 3, "x2"),
            dims_between(1, 1, _ROW_SCALE, _GROUPS, "logit", "rowIndex"),
            no_zero_dims("x1", "x2", _SHARED, "out"),
            rule("whole blocks: x2", _whole_blocks),
            fits("{} columns (the rows of x2)", lambda call, got: (call["x2"].shape[1], got.shape[1]), "x1"),
            shape_is("columns of each group", _scale_shape, "scale"),
            shape_is("one of each group", _group_count, _GROUPS),
            shape_is("one of each row", _rows, _ROW_SCALE, "logit", "rowIndex"),
            rule("tokens: out", _result_shape),
            only_if(rule(f"rows of out: {_SHARED}", _shared_shape), "given", _has_shared),
            rule("a row of out: sharedInputOffset", _shared_place),
            *((rule(f"rows of a group: {_TUNING}", _tuned),) * more),
        ),
        work=_work,
    )


_OF_FOUR_BITS = ("scaleOptional", "biasOptional")
_OF_ROWS = (_ROW_SCALE, "logitOptional", "rowIndexOptional")
_LISTED, _ADDED = "groupListOptional", "sharedInputOptional"
_HALF = 8
"""Offset subtracted from x1 with 4-bit weights; the bias compensates for it."""
_WORDS = Parameter("x2", "x2", Kind.INPUT, "(groups, K, N); INT4, or eight in an INT32", c_type="aclTensor *")
_OFFSET = "offsetOptional"
_WITHOUT_KERNEL = ("antiquantScaleOptional", "antiquantOffsetOptional")


def _matrices(call: Call) -> Shape:
    """Return the number of groups, rows and columns of x2, of which eight share an INT32."""
    groups, rows, columns = call["x2"].shape
    return groups, rows, columns * (IN_INT32 if call["x2"].dtype == D.INT32 else 1)


def _scales_of_parts(call: Call) -> str | None:
    (groups, rows, columns), got = _matrices(call), call["scaleOptional"].shape
    if (got[0], got[2]) == (groups, columns) and got[1] and rows % got[1] == 0:
        return None
    return f"scaleOptional: expected shape [{groups}, a divisor of {rows}, {columns}], got {extents(got)}"


def _offset_shape(call: Call) -> Shape:
    groups, _, columns = _matrices(call)
    return groups, 1, columns


def _sums_of(call: Call, name: str) -> str | None:
    most = _rows(call)[0] if name == "out" else call["out"].shape[0]
    columns, got = _matrices(call)[2], call[name].shape
    if got[0] <= most and got[1] == columns:
        return None
    return f"expected shape [at most {most}, {columns}], got {extents(got)}"


def _place_of_added(call: Call) -> str | None:
    shared = call[_ADDED]
    most, got = call["out"].shape[0] - (shared.shape[0] if shared is not None else 0), call["sharedInputOffset"]
    return None if 0 <= got <= most else f"sharedInputOffset: expected from 0 to {most}, got {got}"


def _four_bits_work(call: Call) -> Library:
    optional, offset_name = given(call, *_OF_ROWS[:2], _ADDED), given(call, _OFFSET)
    multiply, dtype, shape = _added(call, optional, _LISTED, _OF_ROWS[2]), call["x2"].dtype, call["x2"].shape

    def run(x1: Any, x2: Any, scale: Any, bias: Any, groups: Any, index: Any, *further: Any) -> Any:
        offsets, further = (further[0], further[1:]) if offset_name else (None, further)
        weight = unpacked(x2, shape) if dtype == D.INT4 else unpacked_words(x2)
        factors, rows_of = product_scale(scale)[0], x1.astype(np.int16) - _HALF

        def product(rows: slice, at: int) -> Any:
            parts = np.split(rows_of[rows], len(factors[at]), 1), np.split(weight[at], len(factors[at])), factors[at]
            size = rows.stop - rows.start, weight.shape[2]
            total = bias[at] + sum(integer_product(x, w, size) * f for x, w, f in zip(*parts, strict=True))
            return total if offsets is None else total + x1[rows].sum(1, dtype=np.float64)[:, None] * offsets[at]

        return multiply(product, len(x1), groups, index, further)

    inputs = ("x1", "x2", *_OF_FOUR_BITS, _LISTED, _OF_ROWS[2], *offset_name, *optional)
    return Library(run, inputs, ("out",))


def _of_four_bits(name: str, *tuning: Parameter) -> Operator:
    required = ("x1", "x2", *_OF_FOUR_BITS, _LISTED, _OF_ROWS[2], "out")
    return Operator(
        name=name,
        summary="Grouped product of INT8 rows with 4-bit weights, scattered and summed by token.",
        formula="out[rowIndex[i]] += ((x1[i] - 8) @ x2[group] * scale[group] + bias[group] + sum(x1[i]) * "
        "offset[group]) * pertokenScale[i] * logit[i], out[sharedInputOffset:] += sharedInputWeight * sharedInput",
        parameters=(
            tensor_in("x1", "the rows; INT8"),
            _WORDS,
            optional_in("scaleOptional", "the scales (groups, parts of K, N), FLOAT encoded in INT64"),
            optional_in("biasOptional", "(groups, N), 8 times the sums of x2 * scale; FLOAT"),
            optional_in(_OFFSET, "the offsets (groups, 1, N) of the scaled weights; FLOAT"),
            *(optional_in(name, "null") for name in _WITHOUT_KERNEL),
            optional_in(_ROW_SCALE, "a scale per row; FLOAT"),
            optional_in(_LISTED, "the end of each group, or its size; INT64"),
            optional_in(_ADDED, "the shared rows to add; BF16"),
            optional_in("logitOptional", "a weight per row; FLOAT"),
            optional_in("rowIndexOptional", "the row of out to which each row is added; INT64"),
            attribute("dtype", Kind.INT64, "0: FLOAT"),
            attribute("sharedInputWeight", Kind.FLOAT, f"the factor of {_ADDED}"),
            attribute("sharedInputOffset", Kind.INT64, f"the row of out to which the first of {_ADDED} is added"),
            attribute("transposeX1", Kind.BOOL, "false"),
            attribute("transposeX2", Kind.BOOL, "false"),
            attribute("groupListType", Kind.INT64, f"the contents of {_LISTED}, 0: ends, 1: sizes"),
            *tuning,
            tensor_out("out", "the sums by token; FLOAT"),
        ),
        support=support((D.INT8,), A2_CLASS),
        checks=(
            present(*required),
            one_of("dtype", 0),
            one_of("transposeX1", False),
            one_of("transposeX2", False),
            one_of("groupListType", 0, 1),
            dtype_in({D.INT8}, "x1"),
            dtype_in({D.INT4, D.INT32}, "x2"),
            dtype_in({D.INT64}, "scaleOptional", _LISTED, _OF_ROWS[2]),
            dtype_in({D.FLOAT}, "biasOptional", _OFFSET, *_OF_ROWS[:2], "out"),
            dtype_in({D.BF16}, _ADDED),
            public_format(*required, _OFFSET, *_OF_ROWS[:2], _ADDED),
            dims_between(2, 2, "x1", "biasOptional", _ADDED, "out"),
            dims_between(3, 3, "x2", "scaleOptional", _OFFSET),
            dims_between(1, 1, *_OF_ROWS, _LISTED),
            no_zero_dims("x1", "x2", _ADDED, "out"),
            whole_bytes("x2"),
            fits("{} columns (the rows of x2)", lambda call, got: (_matrices(call)[1], got.shape[1]), "x1"),
            rule("scales of parts: scaleOptional", _scales_of_parts),
            shape_is("columns of each group", lambda call: _matrices(call)[::2], "biasOptional"),
            shape_is("a row of each group", _offset_shape, _OFFSET),
            shape_is("one of each group", _group_count, _LISTED),
            shape_is("one of each row", _rows, *_OF_ROWS),
            each("sums of tokens", ("out", _ADDED), _sums_of),
            rule("a row of out: sharedInputOffset", _place_of_added),
            *(rule(f"rows of a group: {parameter.name}", _tuned) for parameter in tuning),
            *with_code(ACLNN_ERR_INNER_NULLPTR, null(*_WITHOUT_KERNEL, why="not in use")),
        ),
        work=_four_bits_work,
    )


OPERATORS = (
    _operator("grouped_matmul_finalize_routing_weight_nz", more=False),
    _operator("grouped_matmul_finalize_routing_weight_nz_v2", more=True),
    _of_four_bits("grouped_matmul_finalize_routing_v2"),
    _of_four_bits("grouped_matmul_finalize_routing_v3", _TUNED),
)
