"""Elements by a mask or by their place in a tensor seen as one row: read, written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    dims_between,
    dtype_in,
    extents,
    limited_dims,
    not_empty,
    public_format,
    real,
    rule,
    same_dtype,
    same_shape,
    size_is,
    unless_empty,
    value_is,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    NUMBERS,
    REAL,
    UNSIGNED,
    add_at,
    attribute,
    library_operator,
    scalar,
    support,
    tensor_in,
    tensor_out,
    within_range,
)


def _taken(product: Product) -> frozenset[D]:
    return where_supported((*REAL, *UNSIGNED) if product in CLASS_950 else REAL)(product)


def _size(call: Call) -> str | None:
    shape, got = broadcast_shape(call["self"].shape, call["mask"].shape), call["out"].shape
    assert shape is not None
    if len(got) == 1 and got[0] == math.prod(shape):
        return None
    return f"out: expected shape [{math.prod(shape)}] (as many as self and mask have together), got {extents(got)}"


def _select(self: Any, mask: Any) -> Any:
    values, chosen = np.broadcast_arrays(self, mask.astype(np.bool_))
    return values[chosen]


def _filled(self: Any, value: Any, wrap: bool) -> Any:
    found = self.copy()
    np.fill_diagonal(found, convert(np.asarray(value), found.dtype), wrap)
    return found


def _work(call: Call) -> Library | None:
    if not all(call[name].size for name in ("self", "mask", "out")):
        return None
    return Library(_select, ("self", "mask"), ("out",), sized_by_result=True)


def _masked(self: Any, mask: Any, source: Any) -> Any:
    chosen = np.broadcast_to(mask.astype(np.bool_), self.shape)
    count = int(chosen.sum())
    if source.size < count:
        raise ValueError(f"source: expected at least {count} elements (where mask is true), got {source.size}")
    result = np.array(self)
    result[chosen] = source.reshape(-1)[:count]
    return result


def _put(self: Any, index: Any, source: Any, accumulate: bool) -> Any:
    wide = np.float64 if accumulate and self.dtype == np.float32 else self.dtype
    flat = self.astype(wide).reshape(-1)
    if accumulate:
        add_at(flat, index, source.reshape(index.shape))
    else:
        flat[index.reshape(-1)] = source.reshape(-1)
    return flat.reshape(self.shape)


_SELF, _REPLACED = tensor_in("self", "the elements"), tensor_out("selfRef", "the tensor to modify")
_INDEX = tensor_in("index", "flat indices; INT32 or INT64")
_INDEX_TYPES = dtype_in({D.INT32, D.INT64}, "index")
_NUMBERS = where_supported(NUMBERS)
_MOVED = (*NUMBERS, *UNSIGNED)

OPERATORS = (
    library_operator(
        "inplace_masked_scatter",
        "selfRef[mask] = source[:count], in order",
        "Replace the elements where a mask is true by consecutive elements of another tensor, in place.",
        (_REPLACED, tensor_in("mask", "BOOL or UINT8; broadcasts to selfRef"), tensor_in("source", "the values")),
        (
            dtype_in(_NUMBERS, "selfRef"),
            dtype_in({D.UINT8, D.BOOL}, "mask"),
            same_dtype("source", "selfRef"),
            limited_dims("selfRef", "mask", "source"),
            broadcastable("mask", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "mask"),
        ),
        _masked,
        header="masked_scatter",
        inputs=("selfRef", "mask", "source"),
        empty=("mask",),
    ),
    library_operator(
        "take",
        "out = flattened self[index]",
        "Select elements by flat indices.",
        (_SELF, _INDEX, tensor_out()),
        (
            dtype_in(where_supported(_MOVED), "self"),
            same_dtype("out", "self"),
            _INDEX_TYPES,
            limited_dims("index"),
            same_shape("out", "index"),
            *unless_empty(("index",), not_empty("self")),
            public_format("self", "index", "out"),
        ),
        lambda self, index: self.reshape(-1)[index],
        dtypes=_MOVED,
        empty=("self",),
    ),
    library_operator(
        "inplace_put",
        "flattened selfRef[index] = source, or += source",
        "Replace elements at flat indices, or add to them, in place.",
        (
            _REPLACED,
            _INDEX,
            tensor_in("source", "the values"),
            Parameter("accumulate", "accumulate", Kind.BOOL, "whether to add instead of replace"),
        ),
        (
            dtype_in(_NUMBERS, "selfRef"),
            _INDEX_TYPES,
            same_dtype("source", "selfRef"),
            limited_dims("selfRef", "index"),
            size_is("one for each index", lambda call: call["index"].size, "source"),
        ),
        _put,
        header="put",
        inputs=("selfRef", "index", "source"),
        attributes=("accumulate",),
    ),
    library_operator(
        "inplace_fill_diagonal",
        "selfRef[i, i, ...] = fillValue",
        "Fill a diagonal with a number, in place.",
        (
            _REPLACED,
            scalar("fillValue", "the fill value"),
            attribute("wrap", Kind.BOOL, "whether the diagonal wraps around in tall matrices"),
        ),
        (
            dtype_in(where_supported(REAL), "selfRef"),
            dims_between(2, 8, "selfRef"),
            value_is("a matrix or equal extents", lambda got: len(got) == 2 or len({*got}) == 1, "selfRef"),
            real("fillValue"),
            within_range("fillValue", lambda call: call["selfRef"].dtype),
        ),
        _filled,
        header="fill_diagonal",
        dtypes=REAL,
        attributes=("wrap",),
    ),
    Operator(
        name="masked_select",
        function="aclnnMaskedSelect",
        summary="Select the elements where a mask is true; the size of out becomes their number.",
        formula="out = self[mask]",
        parameters=(
            tensor_in("self", "the elements"),
            tensor_in("mask", "BOOL or UINT8; broadcasts with self"),
            tensor_out("out", "one-dimensional, with room for the broadcast shape of self and mask"),
        ),
        support=support((*REAL, *UNSIGNED)),
        checks=(
            dtype_in(_taken, "self"),
            dtype_in({D.UINT8, D.BOOL}, "mask"),
            dtype_in(_taken, "out"),
            limited_dims("self", "mask"),
            broadcastable("mask", "self"),
            rule("size of self and mask: out", _size),
        ),
        work=_work,
    ),
)
