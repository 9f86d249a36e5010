"""Elements in order: aclnnSort, aclnnTopk …; where others would stand among them: aclnnSearchSorted, aclnnBucketize."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    axis,
    dims_between,
    dtype_in,
    elsewhere,
    extents,
    limited_dims,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950
from aclnn.operators.library.common import (
    INTEGERS,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
    WITH_TRAINING,
    attribute,
    library_operator,
    on_950,
    promoted,
    scalar,
    support,
    tensor_in,
    tensor_out,
    type_with_scalar,
)
from aclnn.operators.library.reduction.dimensions import DIM, with_extent

_SELF = tensor_in("self", "the elements")
_ORDERED = (*FLOATING, *INTEGERS)
_INDEXED = on_950(UNSIGNED, _ORDERED)
_SORTED = on_950(UNSIGNED, (*_ORDERED, D.BOOL))


def _order(values: Any, along: int, descending: bool) -> Any:
    """Return the indices of a stable sort that treats NaN as the greatest."""
    if not descending:
        return np.argsort(values, along, kind="stable")
    backwards = np.argsort(np.flip(values, along), along, kind="stable")
    return values.shape[along] - 1 - np.flip(backwards, along)


def _first_in_order(values: Any, descending: bool, count: int) -> Any:
    """Return the first ``count`` indices of ``_order`` along the last dimension; five times as fast for few of many."""
    edge = np.partition(values, values.shape[-1] - count if descending else count - 1, -1)
    edge = edge[..., -count, np.newaxis] if descending else edge[..., count - 1, np.newaxis]
    last, greatest = edge != edge, values != values
    alike = (values == edge) | (last & greatest)
    before = (values > edge) | (greatest & ~last) if descending else (values < edge) | (last & ~greatest)
    chosen = before | (alike & (np.cumsum(alike, -1) <= count - before.sum(-1, keepdims=True)))
    found = np.nonzero(chosen)[-1].reshape(*values.shape[:-1], count)
    order = _order(np.take_along_axis(values, found, -1), -1, descending)
    return np.take_along_axis(found, order, -1)


def sort_along(values: Any, along: int, descending: bool, count: int | None = None) -> tuple[Any, Any]:
    """Sort along a dimension; return the first ``count`` elements (None: all) and their indices."""
    if values.ndim == 0:
        return values, np.zeros((), np.int64)
    if count is not None and 4 * count <= values.shape[along]:
        order = np.moveaxis(_first_in_order(np.moveaxis(values, along, -1), descending, count), -1, along)
    else:
        order = _order(values, along, descending)[(slice(None),) * (along % values.ndim) + (slice(count),)]
    return np.take_along_axis(values, order, along), order


def _sort_work(call: Call) -> Library | None:
    if call["valuesOut"].size == 0:
        return None
    if call.operator.name == "sort":
        along, descending, count = call["dim"], call["descending"], None
    else:
        along, descending, count = call["dim"], call["largest"], call["k"]
    return Library(lambda self: sort_along(self, along, descending, count), ("self",), ("valuesOut", "indicesOut"))


def _sorting(name: str, summary: str, parameters: tuple[Parameter, ...], count: Callable[[Call], int]) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        formula="valuesOut, indicesOut = sort(self) along dim, indices",
        parameters=(
            _SELF,
            *parameters,
            tensor_out("valuesOut", "the elements"),
            tensor_out("indicesOut", "INT64", index_of="self"),
        ),
        support=support(REAL if name == "topk" else (*_ORDERED, D.BOOL)),
        checks=(
            dtype_in(where_supported(REAL) if name == "topk" else _SORTED, "self"),
            same_dtype("valuesOut", "self"),
            dtype_in({D.INT64}, "indicesOut"),
            limited_dims("self"),
            axis("dim", "self"),
            *([rule("elements along dim: k", _enough)] if name == "topk" else []),
            shape_is("the result", lambda call: with_extent(call, count(call)), "valuesOut", "indicesOut"),
        ),
        work=_sort_work,
    )


def _length(call: Call) -> int:
    shape = call["self"].shape or (1,)
    return int(shape[call["dim"] % len(shape)])


def _several_of_bfloat16(call: Call) -> str | None:
    if call["self"].dtype != D.BF16 or not call["self"].shape or _length(call) != 1:
        return None
    return f"self: expected ACL_BF16 with several elements along dim, got shape {extents(call['self'].shape)}"


def _enough(call: Call) -> str | None:
    most = _length(call)
    return None if 0 <= call["k"] <= most else f"k: expected from 0 to {most} (the elements along dim), got {call['k']}"


_SEQUENCE = "sortedSequence"
_HOW = (
    attribute("outInt32", Kind.BOOL, "whether out is INT32 instead of INT64"),
    attribute("right", Kind.BOOL, "whether to insert after equal elements instead of before them"),
)
# Any two of these promote to one of them.
_SEARCHED = (D.FLOAT, D.FLOAT16, D.DOUBLE, *INTEGERS)
_BUCKETED = (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS)


def _places_type(call: Call) -> str | None:
    expected, got = D.INT32 if call["outInt32"] else D.INT64, call["out"].dtype
    return None if got == expected else f"out: expected data type {expected.c_name} (by outInt32), got {got.c_name}"


def _rows(call: Call) -> str | None:
    sequence, values = call[_SEQUENCE].shape, call["self"].shape
    if len(sequence) == 1 or (sequence and values and sequence[:-1] == values[:-1]):
        return None
    return (
        f"{_SEQUENCE}: expected 1 dimension, or all but the last of self ({extents(values)}), got {extents(sequence)}"
    )


def _sorter(call: Call) -> str | None:
    given, shape = call["sorter"], call[_SEQUENCE].shape
    if given is None or (given.dtype, given.shape) == (D.INT64, shape):
        return None
    return f"sorter: expected ACL_INT64 of shape {extents(shape)}, got {given.dtype.c_name} of {extents(given.shape)}"


def _found(right: bool) -> Callable[..., Any]:
    side: Literal["left", "right"] = "right" if right else "left"

    def find(sequence: Any, values: Any, order: Any = None) -> Any:
        ordered = sequence if order is None else np.take_along_axis(sequence, order.astype(np.int64), -1)
        if ordered.ndim == 1:
            return np.searchsorted(ordered, values, side)
        flat = (each.reshape(math.prod(each.shape[:-1]), each.shape[-1]) for each in (ordered, values))
        rows = zip(*flat, strict=True)
        return np.stack([np.searchsorted(row, each, side) for row, each in rows]).reshape(values.shape)

    return find


def _searched(call: Call, sequence: str, joint: D | None, *more: str) -> Library | None:
    find, wide = _found(call["right"]), np.float64 if joint in REAL_FLOATING else None

    def compute(ordered: Any, values: Any, *order: Any) -> Any:
        return find(ordered.astype(wide or ordered.dtype), np.asarray(values), *order)

    return Library(compute, (sequence, "self", *more), ("out",)) if call["out"].size else None


def _search(name: str, summary: str, searched: Parameter) -> Operator:
    is_scalar = searched.kind is Kind.SCALAR

    def dtype(call: Call) -> D | None:
        return type_with_scalar(call, _SEQUENCE, "out", "self") if is_scalar else promoted(call, _SEQUENCE, "self")

    def work(call: Call) -> Library | None:
        return _searched(call, _SEQUENCE, dtype(call), *(("sorter",) if call["sorter"] is not None else ()))

    return Operator(
        name=name,
        summary=summary,
        formula="out = the index at which self would be inserted into sortedSequence",
        parameters=(
            tensor_in(_SEQUENCE, "the elements, sorted along the last dimension"),
            searched,
            *_HOW,
            Parameter("sorter", "sorter", Kind.INPUT, "indices that sort sortedSequence; INT64", optional=True),
            tensor_out("out", "indices"),
        ),
        support=support(_SEARCHED, WITH_TRAINING),
        checks=(
            dtype_in(where_supported(_SEARCHED), _SEQUENCE, *(() if is_scalar else ("self",))),
            rule("by outInt32: out", _places_type),
            limited_dims(_SEQUENCE, *(() if is_scalar else ("self",))),
            *(
                (dims_between(1, 1, _SEQUENCE), size_is("one", lambda call: 1, "out"))
                if is_scalar
                else (rule(f"rows of self: {_SEQUENCE}", _rows), same_shape("out", "self"))
            ),
            rule("as sortedSequence: sorter", _sorter),
        ),
        work=work,
        in_header_of="searchsorted",
    )


OPERATORS = (
    _sorting(
        "sort",
        "Sort along a dimension; stable, NaN ranks greatest.",
        (
            attribute("stable", Kind.BOOL, "whether the sort is stable; it always is"),
            DIM,
            attribute("descending", Kind.BOOL, "whether to sort in descending order"),
        ),
        _length,
    ),
    _sorting(
        "topk",
        "Largest or smallest k elements along a dimension, and their indices.",
        (
            Parameter("k", "k", Kind.INT64, "the number of elements, k"),
            DIM,
            attribute("largest", Kind.BOOL, "true: the largest elements; false: the smallest"),
            attribute("sorted", Kind.BOOL, "whether to sort the result; it always is"),
        ),
        lambda call: int(call["k"]),
    ),
    library_operator(
        "argsort",
        "out = argsort(self) along dim",
        "Indices that sort a tensor along a dimension; stable, NaN ranks greatest.",
        (
            _SELF,
            DIM,
            attribute("descending", Kind.BOOL, "whether to sort in descending order"),
            tensor_out("out", "the indices; INT64", index_of="self"),
        ),
        (
            dtype_in(_INDEXED, "self"),
            dtype_in({D.INT64}, "out"),
            limited_dims("self"),
            axis("dim", "self"),
            public_format("self"),
            same_shape("out", "self"),
            *elsewhere(CLASS_950, rule("several of BF16: self", _several_of_bfloat16)),
        ),
        lambda self, dim, descending: sort_along(self, dim, descending)[1],
        dtypes=_ORDERED,
        attributes=("dim", "descending"),
    ),
    _search(
        "search_sorted",
        "Find the insertion indices of elements in a sorted sequence.",
        tensor_in("self", "the numbers"),
    ),
    _search(
        "search_sorteds", "Find the insertion index of a number in a sorted sequence.", scalar("self", "the number")
    ),
    Operator(
        name="bucketize",
        summary="Find the buckets, delimited by boundaries, of elements.",
        formula="out = number of boundaries < self, or <= self if right",
        parameters=(
            tensor_in("self", "the numbers"),
            tensor_in("boundaries", "the boundaries, in ascending order"),
            *_HOW,
            tensor_out("out", "indices"),
        ),
        support=support(_BUCKETED, CLASS_950),
        checks=(
            dtype_in(_BUCKETED, "self", "boundaries"),
            rule("by outInt32: out", _places_type),
            limited_dims("self"),
            same_shape("out", "self"),
            dims_between(1, 1, "boundaries"),
        ),
        work=lambda call: _searched(call, "boundaries", promoted(call, "self", "boundaries")),
    ),
)
