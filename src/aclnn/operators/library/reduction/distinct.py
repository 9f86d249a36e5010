"""Distinct elements or slices: aclnnUnique, aclnnUnique2, aclnnUniqueDim; and aclnnUniqueConsecutive."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, limited_dims, only_if, rule, same_dtype, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import COMPLEX, MODERN, REAL, UNSIGNED, attribute, support, tensor_in, tensor_out
from aclnn.operators.library.reduction.dimensions import DIM

_ORDERED = (*REAL, *UNSIGNED)
#: Value of ``dim`` for comparing all elements as one row.
_NO_DIM = 1000


_SELF = tensor_in("self", "the elements")
_SORTED, _INVERSE = (
    attribute("sorted", Kind.BOOL, "whether to sort the result; it always is"),
    attribute("returnInverse", Kind.BOOL, "whether to write inverseOut"),
)
_VALUES = tensor_out("valueOut", "the unique elements, with room for all; its shape is updated")
_WITH_COUNTS = attribute("returnCounts", Kind.BOOL, "whether to write countsOut")
_PLACES = tensor_out("inverseOut", "INT64, the index of each element's unique value; its shape is updated")
_COUNTS = tensor_out("countsOut", "INT64, the count of each unique value; its shape is updated")


def _along(call: Call) -> int | None:
    """Return the dimension along which slices are compared, None if elements are."""
    return None if call.arguments.get("dim", _NO_DIM) == _NO_DIM else call["dim"]


def _wanted(call: Call) -> tuple[str, ...]:
    """Return the wanted outputs besides the first; UniqueDim always counts."""
    inverse = ("inverseOut",) if call["returnInverse"] else ()
    counts = ("countsOut",) if "countsOut" in call.arguments and call.arguments.get("returnCounts", True) else ()
    return (*inverse, *counts)


def _find(self: Any, along: int | None, ordered: bool, wanted: Collection[str]) -> tuple[Any, ...]:
    """Return the distinct values, with all NaNs distinct as in PyTorch, and the other wanted outputs."""
    if along is None and ordered:
        values, places, counts = np.unique(self, return_inverse=True, return_counts=True, equal_nan=False)
    else:
        values, places, counts = _find_slices(self, along, ordered)
    further = {"inverseOut": places.reshape(self.shape) if along is None else places, "countsOut": counts}
    return values, *(further[name] for name in wanted)


def _find_slices(self: Any, along: int | None, ordered: bool) -> tuple[Any, Any, Any]:
    values = self.reshape(-1) if along is None else np.atleast_1d(self)
    rows = np.moveaxis(values, along or 0, 0).reshape(values.shape[along or 0], -1)
    order = np.lexsort(rows.T[::-1]) if ordered else np.arange(len(rows))
    rows = rows[order]
    is_new = np.append(True, (rows[1:] != rows[:-1]).any(1))
    starts = np.flatnonzero(is_new)
    places = np.empty(len(rows), np.int64)
    places[order] = np.cumsum(is_new) - 1
    return values.take(order[starts], along or 0), places, np.diff(starts, append=len(rows))


def _as_many(call: Call) -> str | None:
    size = call["self"].size
    wrong = next((name for name in ("valueOut", *_wanted(call)) if call[name].size != size), None)
    return None if wrong is None else f"{wrong}: expected {size} elements (those of self), got {call[wrong].size}"


def _distinct(
    name: str,
    formula: str,
    summary: str,
    given: tuple[Parameter, ...],
    outputs: tuple[Parameter, ...],
    dtypes: Collection[D] = _ORDERED,
    more: tuple[Check, ...] = (),
) -> Operator:
    ordered = any(each is _SORTED for each in given)

    def work(call: Call) -> Library | None:
        if call["self"].size == 0:
            return None
        along, wanted = _along(call), _wanted(call)
        room = {name: call[name].size for name in ("valueOut", *wanted)}

        def find(self: Any) -> tuple[Any, ...]:
            found = _find(self, along, ordered, wanted)
            for (name, most), array in zip(room.items(), found, strict=True):
                if array.size > most:
                    raise IndexError(f"{name}: expected room for {array.size} elements, got {most}")
            return found

        return Library(find, ("self",), tuple(room), sized_by_result=True)

    names = [each.name for each in outputs]
    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(_SELF, *given, *outputs),
        support=support(dtypes, MODERN),
        checks=(
            dtype_in(where_supported(dtypes), "self"),
            same_dtype("valueOut", "self"),
            dtype_in({D.INT64}, *names[1:]),
            limited_dims("self"),
            *more,
        ),
        work=work,
    )


OPERATORS = (
    _distinct(
        "unique",
        "valueOut = unique elements of self; valueOut[inverseOut] = self",
        "Unique elements in ascending order, with inverse indices.",
        (_SORTED, _INVERSE),
        (_VALUES, _PLACES),
    ),
    _distinct(
        "unique2",
        "valueOut = unique elements of self; valueOut[inverseOut] = self; countsOut = their counts",
        "Unique elements in ascending order, with inverse indices and counts.",
        (_SORTED, _INVERSE, _WITH_COUNTS),
        (_VALUES, _PLACES, _COUNTS),
        more=(rule("as many as self: valueOut, inverseOut, countsOut", _as_many),),
    ),
    _distinct(
        "unique_dim",
        "valueOut = unique slices of self along dim; valueOut[inverseOut] = self; countsOut = their counts",
        "Unique slices along a dimension in ascending order, with inverse indices and counts.",
        (_SORTED, _INVERSE, DIM),
        (_VALUES, _PLACES, _COUNTS),
        more=(axis("dim", "self"),),
    ),
    _distinct(
        "unique_consecutive",
        "valueOut = self without consecutive repetitions; valueOut[inverseOut] = self; countsOut = their counts",
        "Elements or slices without consecutive repetitions, with inverse indices and counts.",
        (
            _INVERSE,
            _WITH_COUNTS,
            Parameter("dim", "dim", Kind.INT64, f"the dimension; {_NO_DIM}: the flattened tensor"),
        ),
        (_VALUES, _PLACES, _COUNTS),
        (*_ORDERED, *COMPLEX),
        (only_if(axis("dim", "self"), f"unless it is {_NO_DIM}", lambda call: call["dim"] != _NO_DIM),),
    ),
)
