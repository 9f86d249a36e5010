"""MX products accumulated in place: aclnnQuantBatchMatmulInplaceAdd and aclnnQuantGroupedMatmulInplaceAdd."""

from __future__ import annotations

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
    one_of,
    public_format,
    restricted,
    rule,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Shape, present
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import (
    EIGHT_BITS_OF_NUMPY,
    attribute,
    declared,
    expect_within,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.block_quantization import groups
from aclnn.operators.library.quantization.microscaling import BLOCK, PAIR, factors, pairs_shape

_GROUP_BITS = 16
_ENDS, _SIZES = 0, 1
_MOST_GROUPS = 1024


def _added(y: Any, x1: Any, x2: Any, scale1: Any, scale2: Any) -> Any:
    """Add the product of two matrices, contracted over their rows, with the scales of each."""
    left, right = (
        x.astype(np.float64) * factors(scale.swapaxes(0, 1), len(x)).T for x, scale in ((x1, scale1), (x2, scale2))
    )
    return y + left.T @ right


def _is_turned(call: Call, name: str) -> bool:
    """Return True if a matrix, or paired scales, are stored with the first two dimensions swapped."""
    rows, *_ = shape = call[name].shape
    if len(shape) == 2:
        return bool(call[name].is_transposed)
    return bool(call[name].strides[:2] == (shape[2], shape[2] * rows))


def _stored(call: Call, name: str) -> Shape:
    """Return the shape of a matrix, or of scales, in storage order."""
    first, second, *rest = call[name].shape
    return (second, first, *rest) if _is_turned(call, name) else (first, second, *rest)


def _pairs(name: str, x: str) -> Check:
    """Require scales of the columns of a matrix in storage order."""

    return fits(
        "shape {} (two for two blocks) in memory",
        lambda call, got: (pairs_shape(_stored(call, x), 0), _stored(call, name)),
        name,
    )


def _transposition(x: str, expected: bool) -> Check:
    """Require a transposition flag; a transposed view counts as well."""
    name = f"transpose{x.upper()}"

    def violation(call: Call) -> str | None:
        turned = _is_turned(call, x)
        if call[name] ^ turned == expected:
            return None
        return f"{name}: expected {expected ^ turned} with strides {extents(call[x].strides)}, got {call[name]}"

    return rule(f"transposed: {name}", violation)


def _objects(*names: str) -> Check:
    """Require non-null objects; null is an invalid argument here."""

    def violation(call: Call) -> str | None:
        missing = next((name for name in names if call[name] is None), None)
        return missing and f"{missing}: expected an object, got null"

    return rule(f"an object: {', '.join(names)}", violation)


def _as_many_rows(call: Call) -> str | None:
    expected, got = _stored(call, "x1")[0], _stored(call, "x2")[0]
    return None if got == expected else f"x2: expected {expected} rows in memory (as many as x1), got {got}"


def _group(call: Call) -> str | None:
    """Return an error text for another block size than that of the scales, which 0 stands for."""
    got, k = call["groupSize"], _stored(call, "x1")[0]
    given = tuple(got >> shift & (1 << _GROUP_BITS) - 1 for shift in (2 * _GROUP_BITS, _GROUP_BITS, 0))
    found = (given[0] or 1, given[1] or 1, given[2] or (BLOCK if k % (BLOCK * PAIR) == 0 else 0))
    if found == (1, 1, BLOCK):
        return None
    return f"groupSize: expected 1, 1 and {BLOCK} in 16 bits each, got {', '.join(map(str, given))} ({got})"


def _work(call: Call) -> Library:
    names = ("x1", "x2", "x1Scale", "x2Scale")
    turned = [_is_turned(call, name) for name in names]

    def add(y: Any, *operands: Any) -> Any:
        return _added(y, *(part.swapaxes(0, 1) if swap else part for part, swap in zip(operands, turned, strict=True)))

    return Library(add, ("yRef", *names), ("yRef",))


_WHOLE = declared(
    "quant_batch_matmul_inplace_add",
    "yRef = yRef + (x1 * x1Scale)^T @ (x2 * x2Scale)",
    "Matrix product in MX formats, accumulated in place.",
    (
        tensor_in("x1", "the left matrix, transposed"),
        tensor_in("x2", "the right matrix"),
        tensor_in("x1Scale", "the scales of blocks of x1's columns, in pairs; FLOAT8_E8M0"),
        tensor_in("x2Scale", "the scales of blocks of x2's columns"),
        tensor_out("yRef", "the accumulator; FLOAT"),
        attribute("transposeX1", Kind.BOOL, "true; false with a transposed view"),
        attribute("transposeX2", Kind.BOOL, "false; true with a transposed view"),
        attribute("groupSize", Kind.INT64, "the encoded group size: 4295032864, blocks of 32 terms"),
    ),
    (
        present("x1", "x2", "x2Scale"),
        _objects("x1Scale", "yRef"),
        format_is(Format.FORMAT_ND, "x1", "x2", "yRef"),
        public_format("x1Scale", "x2Scale"),
        dtype_in(EIGHT_BITS_OF_NUMPY, "x1", "x2"),
        dtype_in((D.FLOAT8_E8M0,), "x1Scale", "x2Scale"),
        dtype_in((D.FLOAT,), "yRef"),
        dims_between(2, 2, "x1", "x2", "yRef"),
        dims_between(3, 3, "x1Scale", "x2Scale"),
        _transposition("x1", True),
        _transposition("x2", False),
        no_zero_dims("x1", "x2"),
        rule("groups of 32: groupSize", _group),
        rule("as many rows as x1: x2", _as_many_rows),
        shape_is("the product", lambda call: (_stored(call, "x1")[1], _stored(call, "x2")[1]), "yRef"),
        _pairs("x1Scale", "x1"),
        _pairs("x2Scale", "x2"),
    ),
    _work,
    EIGHT_BITS_OF_NUMPY,
    CLASS_950,
)


def _plain_format(call: Call, name: str) -> str | None:
    allowed, got = (Format.FORMAT_ND, Format.FORMAT_NCL), call[name].format
    return None if got in allowed else f"expected format ACL_FORMAT_ND or ACL_FORMAT_NCL, got {got.c_name}"


def _pairs_of_groups(call: Call, extent: int) -> Shape:
    return (call["x2"].shape[0] // (BLOCK * PAIR) + call["groupList"].shape[0], extent, PAIR)


def _sums(call: Call) -> Shape:
    return (call["groupList"].shape[0], call["x1"].shape[0], call["x2"].shape[1])


def _grouped_work(call: Call) -> Library | None:
    if not _has_products(call):
        return None
    sizes = call["groupListType"] == _SIZES

    def add(y: Any, x1: Any, x2: Any, scale1: Any, scale2: Any, index: Any) -> Any:
        ends = np.cumsum(index) if sizes else index
        expect_within("groupList", ends, 0, len(x2), "ends of groups")
        found = []
        for group, (begin, end) in enumerate(groups(ends, int(ends[-1]), "groupList")):
            rows = slice(begin, end)
            first = begin // (BLOCK * PAIR) + group
            pairs = slice(first, first - (begin - end) // (BLOCK * PAIR))
            found.append(_added(y[group], x1.T[rows], x2[rows], scale1[pairs], scale2[pairs]))
        return np.stack(found)

    return Library(add, ("yRef", "x1", "x2", "scale1Optional", "scale2", "groupList"), ("yRef",))


def _upright(call: Call) -> str | None:
    x2 = call["x2"]
    return f"x2: expected no strides of a transposed matrix, got {extents(x2.strides)}" if x2.is_transposed else None


def _turned(call: Call) -> str | None:
    x1 = call["x1"]
    if x1.strides == (1, x1.shape[0]):
        return None
    return f"x1: expected strides of a transposed matrix, got {extents(x1.strides)}"


def _has_products(call: Call) -> bool:
    return 0 not in (*call["x1"].shape[:1], *call["x2"].shape[1:2])


_GROUPED_CHECKS = (
    one_of("groupListType", _ENDS, _SIZES),
    one_of("groupSize", 0),
    _objects("scale2", "groupList", "yRef", "scale1Optional"),
    format_is(Format.FORMAT_ND, "x1", "x2", "groupList"),
    each("format of rows", ("scale1Optional", "scale2", "yRef"), _plain_format),
    dims_between(2, 2, "x1", "x2"),
    dims_between(1, 1, "groupList"),
    fits("{} rows (as many as x1 has columns)", lambda call, got: (call["x1"].shape[1], got.shape[0]), "x2"),
    shape_is("products of groups", _sums, "yRef"),
    dtype_in(EIGHT_BITS_OF_NUMPY, "x1", "x2"),
    dtype_in((D.FLOAT8_E8M0,), "scale1Optional", "scale2"),
    dtype_in((D.INT64,), "groupList"),
    dtype_in((D.FLOAT,), "yRef"),
    value_is(
        f"1 to {_MOST_GROUPS} elements", lambda got: 0 < got <= _MOST_GROUPS, "groupList", of=lambda got: got.shape[0]
    ),
    shape_is("two for two blocks", lambda call: _pairs_of_groups(call, call["x1"].shape[0]), "scale1Optional"),
    shape_is("two for two blocks", lambda call: _pairs_of_groups(call, call["x2"].shape[1]), "scale2"),
    rule("rows as rows: x2", _upright),
    rule("columns as rows: x1", _turned),
)
_GROUPED = declared(
    "quant_grouped_matmul_inplace_add",
    "yRef[g] = yRef[g] + (x1 * scale1Optional) @ (x2 * scale2), of the terms of group g",
    "Grouped matrix products in MX formats, accumulated in place.",
    (
        tensor_in("x1", "the left matrix, whose columns are terms"),
        tensor_in("x2", "the right matrix, whose rows are terms"),
        tensor_in(
            "scale1Optional", "the scales of blocks of x1's terms, of each group from a row of its own; required"
        ),
        tensor_in("scale2", "the scales of blocks of x2's terms"),
        tensor_in("groupList", "the groups of terms: the end of each, or its size (groupListType)"),
        tensor_out("yRef", "the accumulator of each group; FLOAT"),
        attribute("groupListType", Kind.INT64, "the contents of groupList, 0: ends, 1: sizes"),
        attribute("groupSize", Kind.INT64, "0"),
    ),
    (present("x1", "x2"), *restricted("unless a product is empty", _has_products, *_GROUPED_CHECKS)),
    _grouped_work,
    EIGHT_BITS_OF_NUMPY,
    CLASS_950,
)

OPERATORS = (_WHOLE, _GROUPED)
