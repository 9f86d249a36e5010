"""Elements and slices at multi-dimensional indices: aclnnGatherNd, aclnnTfScatterAdd."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    MOST_DIMS,
    dims_between,
    dtype_in,
    extents,
    listing,
    rule,
    same_dtype,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import (
    INDEX_TYPES,
    UNSIGNED,
    add_at,
    attribute,
    library_operator,
    on_950,
    tensor_in,
    tensor_out,
)

Shape = tuple[int, ...]

_GATHERED_BEFORE = (*FLOATING, D.INT32, D.INT64, D.INT8, D.UINT8, D.BOOL)
_GATHERED_ON_950 = (D.DOUBLE, D.INT16, *UNSIGNED)
_ADDED = (*FLOATING, D.INT32, D.INT8, D.UINT8)
_ADDITION = ("varRef", "indices", "updates")


def _depth(call: Call) -> str | None:
    most, got = len(call["self"].shape), call["indices"].shape[-1]
    if 1 <= got <= most:
        return None
    return f"indices: expected from 1 to {most} in the last dimension (the dimensions of self), got {got}"


def _at_points(elements: Shape, indices: Shape) -> Shape | None:
    """Return the shape of what the last dimension of indices points to; None if it is longer than elements' shape."""
    depth = indices[-1]
    return (*indices[:-1], *elements[depth:]) if depth <= len(elements) else None


def _gathered_shape(call: Call) -> Shape:
    return _at_points(call["self"].shape, call["indices"].shape) or ()


def _places(indices: Any, shape: Shape, negative: bool) -> Any:
    """Return flat indices of slices.

    Args:
        indices: indices of an array's first dimensions along the last dimension.
        shape: shape of the array.
        negative: whether negative indices count from the end.

    Raises:
        IndexError: an index is out of bounds.
    """
    limits = np.array(shape[: indices.shape[-1]], np.int64)
    outside = np.argwhere((indices < (-limits if negative else 0)) | (indices >= limits))
    if len(outside):
        at = outside[0].tolist()
        most = limits[at[-1]]
        least = -most if negative else 0
        raise IndexError(f"indices{at}: expected from {least} to {most - 1}, got {indices[tuple(at)]}")
    steps = np.array([np.prod(shape[at + 1 : len(limits)], dtype=np.int64) for at in range(len(limits))], np.int64)
    return (indices.astype(np.int64) % limits) @ steps


def _gathered(elements: Any, indices: Any, negative: bool) -> Any:
    depth = indices.shape[-1]
    places = _places(indices, elements.shape, negative)
    return elements.reshape(-1, *elements.shape[depth:])[places]


def _updates(call: Call) -> str | None:
    (elements, indices, updates) = (call[name].shape for name in _ADDITION)
    rows = (*indices, *elements[1:])
    points = _at_points(elements, indices)
    if updates == points or (updates == rows and (elements[0] or call["indices"].size == 0)):
        return None
    fitting = [extents(shape) for shape in dict.fromkeys((rows, points)) if shape is not None]
    if elements[0] == 0 and updates == rows:
        return f"indices: expected no elements (varRef has no rows), got {extents(indices)}"
    return f"updates: expected shape {listing(fitting)} (slices of varRef at indices), got {extents(updates)}"


def _added(elements: Any, indices: Any, updates: Any) -> Any:
    points = _at_points(elements.shape, indices.shape) == updates.shape
    indices = indices if points else indices[..., None]
    places = _places(indices, elements.shape, negative=False).reshape(-1)
    total = elements.copy()
    rows = total.reshape(-1, int(np.prod(elements.shape[indices.shape[-1] :])))
    columns = rows.shape[1]
    add_at(rows, places[:, None] * columns + np.arange(columns), updates.reshape(len(places), columns))
    return total


OPERATORS = (
    library_operator(
        "gather_nd",
        "out[i] = self[indices[i, 0], indices[i, 1], ...]",
        "Elements or slices at multi-dimensional indices.",
        (
            tensor_in("self", "the elements"),
            tensor_in("indices", "indices of self's first dimensions along the last dimension; INT32 or INT64"),
            attribute("negativeIndexSupport", Kind.BOOL, "whether indices may be negative, counting from the end"),
            tensor_out(),
        ),
        (
            same_dtype("out", "self"),
            dtype_in(on_950(_GATHERED_ON_950, _GATHERED_BEFORE), "self"),
            dtype_in(INDEX_TYPES, "indices"),
            dims_between(1, MOST_DIMS, "self", "indices"),
            rule("indices of so many dimensions: indices", _depth),
            shape_is("slices for all indices", _gathered_shape, "out"),
        ),
        _gathered,
        dtypes=(*_GATHERED_BEFORE, *_GATHERED_ON_950),
        attributes=("negativeIndexSupport",),
        empty=("self", "indices"),
    ),
    library_operator(
        "tf_scatter_add",
        "varRef[indices[i]] += updates[i], or varRef[indices[i, 0], indices[i, 1], ...] += updates[i]",
        "Add slices at indices, in place, by the rules of TensorFlow's scatter_add and scatter_nd_add.",
        (
            tensor_out("varRef", "the tensor to modify", updated=True),
            tensor_in("indices", "rows, or indices of varRef's first dimensions along the last dimension"),
            tensor_in("updates", "the values; their shape decides what indices are, in doubt the latter"),
        ),
        (
            dtype_in(where_supported(_ADDED), "varRef"),
            dtype_in(INDEX_TYPES, "indices"),
            same_dtype("updates", "varRef"),
            dims_between(1, MOST_DIMS, *_ADDITION),
            rule("slices of varRef: updates", _updates),
        ),
        _added,
        dtypes=_ADDED,
        products=A2_CLASS,
        inputs=_ADDITION,
        empty=_ADDITION,
    ),
)
