"""Rows of experts' products of INT8 added up for their tokens: aclnnGroupedMatmulFinalizeRoutingWeightNz, V2."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    extents,
    format_is,
    no_zero_dims,
    null,
    one_of,
    only_if,
    present,
    public_format,
    rule,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format, float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, Shape
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    INDEX_TYPES,
    attribute,
    camel,
    expect_within,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.grouped import ends_of, parts_between
from aclnn.operators.library.quantization import given
from aclnn.operators.library.quantized_products import BLOCK, integer_product

_ROW_SCALE, _GROUPS, _SHARED = "pertokenScaleOptional", "groupList", "sharedInput"
_TUNING = "tuningConfigOptional"
_TUNED = Parameter(_TUNING, _TUNING, Kind.INT_ARRAY, "rows of a group that are expected, for speed", optional=True)
_UNUSED = ("offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
_LEAST_COLUMNS = 256


def _whole_blocks(call: Call) -> str | None:
    (_, inner, columns), (rows, width) = call["x2"].shape, BLOCK
    if inner % rows == columns % width == 0 and columns >= _LEAST_COLUMNS:
        return None
    expected = f"matrices of a multiple of {rows} rows and of {width} columns, at least {_LEAST_COLUMNS}"
    return f"x2: expected {expected}, got {extents((inner, columns))}"


def _inner(call: Call) -> str | None:
    expected, got = call["x2"].shape[1], call["x1"].shape[1]
    return None if got == expected else f"x1: expected {expected} columns (the rows of x2), got {got}"


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
    return f"logit: expected an object beside {_SHARED}, got null" if call["logit"] is None else None


def _tuned(call: Call) -> str | None:
    (most,), first = _rows(call), next(iter(call[_TUNING] or ()), 0)
    return None if 0 <= first <= most else f"{_TUNING}: expected from 0 to {most} rows (of x1) first, got {first}"


def _work(call: Call) -> Library:
    optional = given(call, _ROW_SCALE, "logit", _SHARED)
    sized, shape, begin = bool(call["groupListType"]), call["out"].shape, call["sharedInputOffset"]
    weight = float32(call["sharedInputWeight"])

    def multiply(x1: Any, x2: Any, scale: Any, groups: Any, index: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        expect_within("rowIndex", index, 0, shape[0] - 1)
        y = np.zeros(shape)
        for at, rows in enumerate(parts_between(ends_of(groups, _GROUPS) if sized else groups, len(x1), _GROUPS)):
            total = integer_product(x1[rows], x2[at], (rows.stop - rows.start, shape[1]))
            total *= scale[at]
            for name in (_ROW_SCALE, "logit"):
                if name in operands:
                    total *= operands[name][rows, None]
            np.add.at(y, index[rows], total)
        if _SHARED in operands:
            shared = operands[_SHARED].astype(np.float64)
            y[begin : begin + len(shared)] += weight * shared
        return y

    return Library(multiply, ("x1", "x2", "scale", _GROUPS, "rowIndex", *optional), ("out",))


def _operator(name: str, more: bool) -> Operator:
    unused = _UNUSED if more else ()
    return Operator(
        name=name,
        function=camel(name),
        summary="Multiply groups of rows of INT8, which experts have, and add the products up for their tokens.",
        formula="out[rowIndex[i]] += x1[i] @ x2[group] * scale[group] * pertokenScale[i] * logit[i], "
        "out[sharedInputOffset:] += sharedInputWeight * sharedInput",
        parameters=(
            tensor_in("x1", "the rows; INT8"),
            tensor_in("x2", "(groups, K, N) in ACL_FORMAT_FRACTAL_NZ; INT8"),
            tensor_in("scale", "(groups, N) factors; FLOAT"),
            optional_in("bias", "null"),
            *(optional_in(each, "null") for each in unused),
            optional_in(_ROW_SCALE, "a factor for each row; FLOAT"),
            tensor_in(_GROUPS, "where groups end, or their sizes; INT64"),
            optional_in(_SHARED, "rows that are added; BF16"),
            optional_in("logit", "a further factor for each row; FLOAT"),
            tensor_in("rowIndex", "the row of out to which each is added; INT32 or INT64"),
            attribute("dtype", Kind.INT64, "0: FLOAT"),
            attribute("sharedInputWeight", Kind.FLOAT, f"the factor of {_SHARED}"),
            attribute("sharedInputOffset", Kind.INT64, f"the row of out to which the first of {_SHARED} is added"),
            attribute("transposeX1", Kind.BOOL, "false"),
            attribute("transposeX2", Kind.BOOL, "false"),
            attribute("groupListType", Kind.INT64, f"what {_GROUPS} has, 0: ends, 1: sizes"),
            *((_TUNED,) * more),
            tensor_out("out", "the sums; FLOAT"),
        ),
        support=support((D.INT8,), A2_CLASS),
        checks=(
            present("x1", "x2", "scale", _GROUPS, "rowIndex", "out"),
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
            rule("as x2: x1", _inner),
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


OPERATORS = (
    _operator("grouped_matmul_finalize_routing_weight_nz", more=False),
    _operator("grouped_matmul_finalize_routing_weight_nz_v2", more=True),
)
