"""Elements in order: aclnnSort, aclnnArgsort, aclnnTopk; where others would stand among them: aclnnSearchSorted.

The experts with the greatest scores: aclnnMoeGatingTopKSoftmax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from aclnn.core.checks import (
    axis,
    dims_between,
    dtype_in,
    each,
    extents,
    limited_dims,
    on,
    present,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import (
    INTEGERS,
    MODERN,
    REAL,
    REAL_FLOATING,
    WITH_TRAINING,
    attribute,
    camel,
    library_operator,
    promoted,
    scalar,
    support,
    tensor_in,
    tensor_out,
    type_with_scalar,
)
from aclnn.operators.library.dimensions import DIM

_SELF = tensor_in("self", "the elements")
_ORDERED = (*REAL_FLOATING, *INTEGERS)


def _along(call: Call, count: int) -> tuple[int, ...]:
    shape = call["self"].shape
    if not shape:
        return ()
    at = call["dim"] % len(shape)
    return (*shape[:at], count, *shape[at + 1 :])


def _order(values: Any, along: int, descending: bool) -> Any:
    """Indices that sort, equal elements in their order, NaN the greatest."""
    if not descending:
        return np.argsort(values, along, kind="stable")
    backwards = np.argsort(np.flip(values, along), along, kind="stable")
    return values.shape[along] - 1 - np.flip(backwards, along)


def _first_in_order(values: Any, descending: bool, count: int) -> Any:
    """The first indices of ``_order`` along the last dimension; a few of many take a fifth of the time."""
    edge = np.partition(values, values.shape[-1] - count if descending else count - 1, -1)
    edge = edge[..., -count, np.newaxis] if descending else edge[..., count - 1, np.newaxis]
    last, greatest = edge != edge, values != values
    alike = (values == edge) | (last & greatest)
    before = (values > edge) | (greatest & ~last) if descending else (values < edge) | (last & ~greatest)
    chosen = before | (alike & (np.cumsum(alike, -1) <= count - before.sum(-1, keepdims=True)))
    found = np.nonzero(chosen)[-1].reshape(*values.shape[:-1], count)
    order = _order(np.take_along_axis(values, found, -1), -1, descending)
    return np.take_along_axis(found, order, -1)


def _sorted(values: Any, along: int, descending: bool, count: int | None = None) -> tuple[Any, Any]:
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
    return Library(lambda self: _sorted(self, along, descending, count), ("self",), ("valuesOut", "indicesOut"))


def _sorting(name: str, summary: str, parameters: tuple[Parameter, ...], count: Callable[[Call], int]) -> Operator:
    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula="valuesOut, indicesOut = elements of self in order along dim, their indices",
        parameters=(_SELF, *parameters, tensor_out("valuesOut", "the elements"), tensor_out("indicesOut", "INT64")),
        support=support(REAL),
        checks=(
            present("self", "valuesOut", "indicesOut"),
            dtype_in(where_supported(REAL), "self"),
            same_dtype("valuesOut", "self"),
            dtype_in(lambda product: {D.INT64}, "indicesOut"),
            limited_dims("self"),
            axis("dim", "self"),
            *([rule("elements along dim: k", _enough)] if name == "topk" else []),
            shape_is("the result", lambda call: _along(call, count(call)), "valuesOut", "indicesOut"),
        ),
        work=_sort_work,
        in_header_of=name,
    )


def _length(call: Call) -> int:
    shape = call["self"].shape or (1,)
    return int(shape[call["dim"] % len(shape)])


def _enough(call: Call) -> str | None:
    most = _length(call)
    return None if 0 <= call["k"] <= most else f"k: expected from 0 to {most} (the elements along dim), got {call['k']}"


_SEQUENCE = "sortedSequence"
# Any two of these promote to one of them.
_SEARCHED = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE, *INTEGERS)


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
        rows = zip(ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)
        return np.stack([np.searchsorted(row, each, side) for row, each in rows]).reshape(values.shape)

    return find


def _search(name: str, summary: str, searched: Parameter) -> Operator:
    is_scalar = searched.kind is Kind.SCALAR

    def dtype(call: Call) -> D | None:
        return type_with_scalar(call, _SEQUENCE, "out", "self") if is_scalar else promoted(call, _SEQUENCE, "self")

    def work(call: Call) -> Library | None:
        if call["out"].size == 0:
            return None
        inputs = (_SEQUENCE, "self", *(("sorter",) if call["sorter"] is not None else ()))
        joint, find = dtype(call), _found(call["right"])
        wide = np.float64 if joint in REAL_FLOATING else None

        def compute(sequence: Any, values: Any, *order: Any) -> Any:
            return find(sequence.astype(wide or sequence.dtype), np.asarray(values), *order)

        return Library(compute, inputs, ("out",))

    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula="out = the index in sortedSequence before which self would stand; with right after its equals",
        parameters=(
            tensor_in(_SEQUENCE, "elements in order along the last dimension"),
            searched,
            attribute("outInt32", Kind.BOOL, "out is INT32, else INT64"),
            attribute("right", Kind.BOOL, "after equal elements, else before them"),
            Parameter("sorter", "sorter", Kind.INPUT, "indices that sort sortedSequence; INT64", optional=True),
            tensor_out("out", "indices"),
        ),
        support=support(_SEARCHED, WITH_TRAINING),
        checks=(
            present(_SEQUENCE, "self", "out"),
            dtype_in(where_supported(_SEARCHED), _SEQUENCE, *(() if is_scalar else ("self",))),
            rule("by outInt32: out", _places_type),
            limited_dims(_SEQUENCE),
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


_FINISHED = "finishedOptional"
_GATED = ("yOut", "expertIdxOut", "rowIdxOut")
_SCORES = {**support((D.FLOAT, D.FLOAT16, D.BF16), MODERN), Product.ATLAS_INFERENCE: frozenset({D.FLOAT16})}
_MOST_CHOSEN, _MOST_EXTENT = 1024, 2**31 - 1


def _extents_fit(call: Call, name: str) -> str | None:
    got = call[name].shape
    return None if max(got) <= _MOST_EXTENT else f"expected at most {_MOST_EXTENT} in a dimension, got {extents(got)}"


def _experts(call: Call) -> str | None:
    got = call["x"].shape[-1]
    if call.product is Product.ATLAS_INFERENCE:
        if len(call["x"].shape) == 2 and got % 16 == 0 and got <= 256:
            return None
        shape = extents(call["x"].shape)
        return f"x: expected 2 dimensions, a multiple of 16 up to 256 in the last, got {shape}"
    if call.product not in CLASS_950 or 1 <= got <= 2048:
        return None
    return f"x: expected 1 to 2048 experts in the last dimension, got {got}"


def _chosen(call: Call) -> str | None:
    most = min(_MOST_CHOSEN, call["x"].shape[-1])
    return None if 0 <= call["k"] <= most else f"k: expected from 0 to {most}, got {call['k']}"


def _finished(call: Call, name: str) -> str | None:
    expected, got = call["x"].shape[:-1], call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (the rows of x), got {extents(got)}"


def _gate_work(call: Call) -> Library | None:
    if call["yOut"].size == 0:
        return None
    count, numbered = call["k"], call.product is not Product.ATLAS_INFERENCE

    def gate(x: Any, finished: Any = None) -> tuple[Any, Any, Any]:
        with np.errstate(invalid="ignore"):  # of infinite scores
            shares = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        values, experts = _sorted(shares, -1, True, count)
        if finished is not None:
            experts[finished] = x.shape[-1]
        places = np.arange(experts.size).reshape(count, -1).T.reshape(experts.shape) if numbered else 0
        return values, experts, places

    return Library(gate, ("x", *((_FINISHED,) if call[_FINISHED] is not None else ())), _GATED)


OPERATORS = (
    _sorting(
        "sort",
        "Sort along a dimension; equal elements keep their order, NaN is the greatest.",
        (
            attribute("stable", Kind.BOOL, "equal elements keep their order"),
            DIM,
            attribute("descending", Kind.BOOL, "the greatest first"),
        ),
        _length,
    ),
    _sorting(
        "topk",
        "The greatest or least elements along a dimension, sorted.",
        (
            Parameter("k", "k", Kind.INT64, "how many"),
            DIM,
            attribute("largest", Kind.BOOL, "the greatest; false: the least"),
            attribute("sorted", Kind.BOOL, "they are always"),
        ),
        lambda call: int(call["k"]),
    ),
    library_operator(
        "argsort",
        "out = indices of the elements of self in order along dim",
        "Find the indices that sort along a dimension; equal elements keep their order, NaN is the greatest.",
        (
            _SELF,
            DIM,
            attribute("descending", Kind.BOOL, "the greatest first"),
            tensor_out("out", "the indices; INT64"),
        ),
        (
            present("self", "out"),
            dtype_in(where_supported(_ORDERED), "self"),
            dtype_in(lambda product: {D.INT64}, "out"),
            limited_dims("self"),
            axis("dim", "self"),
            same_shape("out", "self"),
        ),
        lambda self, dim, descending: _sorted(self, dim, descending)[1],
        header="argsort",
        dtypes=_ORDERED,
        attributes=("dim", "descending"),
    ),
    _search("search_sorted", "Where numbers would stand in an ordered sequence.", tensor_in("self", "the numbers")),
    _search("search_sorteds", "Where a number would stand in an ordered sequence.", scalar("self", "the number")),
    Operator(
        name="moe_gating_top_k_softmax",
        function=camel("moe_gating_top_k_softmax"),
        summary="Choose the experts with the greatest shares in the softmax of scores.",
        formula="yOut, expertIdxOut = the first k of softmax(x), sorted; rowIdxOut[row, j] = j * rows + row",
        parameters=(
            tensor_in("x", "a score of each expert for each row"),
            Parameter(
                _FINISHED, _FINISHED, Kind.INPUT, "rows that get no expert but their number; BOOL", optional=True
            ),
            attribute("k", Kind.INT64, "how many experts a row gets"),
            tensor_out("yOut", "the shares", const=True),
            tensor_out("expertIdxOut", "the experts; INT32", const=True),
            tensor_out("rowIdxOut", "numbers of rows by columns, 0 on Atlas inference; INT32", const=True),
        ),
        support=_SCORES,
        checks=(
            present("x", *_GATED),
            public_format("x", _FINISHED, *_GATED),
            dtype_in(lambda product: _SCORES.get(product, _SCORES[Product.ATLAS_A2]), "x"),
            dtype_in(lambda product: {D.BOOL}, _FINISHED),
            same_dtype("yOut", "x"),
            dtype_in(lambda product: {D.INT32}, *_GATED[1:]),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                *on(
                    {Product.ATLAS_INFERENCE},
                    each("null", (_FINISHED,), lambda call, name: "expected null, got a tensor"),
                ),
                dims_between(2, 3, "x"),
                each("extents of 32 bits", ("x",), _extents_fit),
                rule("as many experts as the product takes: x", _experts),
                each("a flag for each row", (_FINISHED,), _finished),
                rule("among the experts: k", _chosen),
                shape_is("a place for each chosen", lambda call: (*call["x"].shape[:-1], call["k"]), *_GATED),
            ),
        ),
        work=_gate_work,
        in_header_of="moe_gating_top_k_softmax",
    ),
)
