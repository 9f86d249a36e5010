"""Sparse tensors of coordinates and values: aclnnCoalesceSparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, extents, generated, rule, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library
from aclnn.operators.library.common import INDEX_TYPES, declared, expect_within, tensor_in, tensor_out

_VALUES = (D.FLOAT, D.FLOAT16, D.INT32)
_INPUTS, _OUTPUTS = ("uniqueLen", "uniqueIndices", "indices", "values"), ("newIndicesOut", "newValuesOut")


def _rows_of(rows: str, name: str) -> Callable[[Call], tuple[int, ...]]:
    """Return the shape of one tensor with the number of rows of another."""
    return lambda call: (call[rows].shape[0], *call[name].shape[1:])


def _places(call: Call) -> str | None:
    rows, got = call["indices"].shape[0], call["uniqueIndices"]
    return None if got.size == rows else f"uniqueIndices: expected {rows} elements, got shape {extents(got.shape)}"


def _coalesce_work(call: Call) -> Library:
    coordinates, sums = (call[name].shape for name in _OUTPUTS)

    def coalesce(places: Any, indices: Any, values: Any) -> tuple[Any, Any]:
        places = places.reshape(-1)
        expect_within("uniqueIndices", places, 0, min(coordinates[0], sums[0]) - 1, "places")
        found = np.zeros(coordinates, indices.dtype)
        found[places] = indices
        total = np.zeros(sums, np.float64 if values.dtype.kind == "f" else values.dtype)
        np.add.at(total, places, values)
        return found, total

    return Library(coalesce, _INPUTS[1:], _OUTPUTS)


OPERATORS = (
    declared(
        "coalesce_sparse",
        "newIndicesOut[uniqueIndices[i]] = indices[i]; newValuesOut[uniqueIndices[i]] += values[i]",
        "Sum the values of a sparse tensor with equal coordinates.",
        (
            tensor_in("uniqueLen", "a tensor with one element per unique coordinate; INT32 or INT64"),
            tensor_in("uniqueIndices", "the index of each row's unique coordinates"),
            tensor_in("indices", "the coordinates, one row per value; INT32 or INT64"),
            tensor_in("values", "the values, along the first dimension"),
            tensor_out(_OUTPUTS[0], "the unique coordinates, one per row", const=True),
            tensor_out(_OUTPUTS[1], "the sums", const=True),
        ),
        generated(
            _INPUTS,
            _OUTPUTS,
            lambda product: [
                (place, place, index, d, index, d) for place in INDEX_TYPES for index in INDEX_TYPES for d in _VALUES
            ],
            dims_between(2, 2, "indices", "newIndicesOut"),
            dims_between(1, 8, "values", "newValuesOut"),
            rule("a place for each row: uniqueIndices", _places),
            shape_is("a value for each row", _rows_of("indices", "values"), "values"),
            shape_is("rows of coordinates", _rows_of("newIndicesOut", "indices"), "newIndicesOut"),
            shape_is("a sum for each row", _rows_of("newIndicesOut", "values"), "newValuesOut"),
        ),
        _coalesce_work,
        dtypes=INDEX_TYPES,
    ),
)
