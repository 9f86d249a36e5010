"""Distinct elements or slices: aclnnUnique, aclnnUnique2, aclnnUniqueDim; and aclnnUniqueConsecutive."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, limited_dims, only_if, present, rule, same_dtype, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    COMPLEX,
    MODERN,
    REAL,
    UNSIGNED,
    attribute,
    camel,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.dimensions import DIM

_ORDERED = (*REAL, *UNSIGNED)
#: Value of ``dim`` for comparing all elements as one row.
_NO_DIM = 1000


_SELF = tensor_in("self", "the elements")
_SORTED, _INVERSE = (
    attribute("sorted", Kind.BOOL, "they always are"),
    attribute("returnInverse", Kind.BOOL, "inverseOut is wanted"),
)
_VALUES = tensor_out("valueOut", "with room for those that stay; its view takes their shape")
_WITH_COUNTS = attribute("returnCounts", Kind.BOOL, "countsOut is wanted")
_PLACES = tensor_out("inverseOut", "INT64, which of them each is; its view takes their number")
_COUNTS = tensor_out("countsOut", "INT64, how often each is there; its view takes their number")


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
        function=camel(name),
        summary=summary,
        formula=formula,
        parameters=(_SELF, *given, *outputs),
        support=support(dtypes, MODERN),
        checks=(
            present("self", *names),
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
        "valueOut = the different elements of self; valueOut[inverseOut] = self",
        "Each number once, in order, and which of them each element is.",
        (_SORTED, _INVERSE),
        (_VALUES, _PLACES),
    ),
    _distinct(
        "unique2",
        "valueOut = the different elements of self; valueOut[inverseOut] = self; countsOut = their numbers",
        "Each number once, in order, which of them each element is, and how often each is there.",
        (_SORTED, _INVERSE, _WITH_COUNTS),
        (_VALUES, _PLACES, _COUNTS),
        more=(rule("as many as self: valueOut, inverseOut, countsOut", _as_many),),
    ),
    _distinct(
        "unique_dim",
        "valueOut = the different slices of self along dim; valueOut[inverseOut] = self; countsOut = their numbers",
        "Each slice along a dimension once, in order, which of them each is, and how often each is there.",
        (_SORTED, _INVERSE, DIM),
        (_VALUES, _PLACES, _COUNTS),
        more=(axis("dim", "self"),),
    ),
    _distinct(
        "unique_consecutive",
        "valueOut = what of self differs from the one before; valueOut[inverseOut] = self; countsOut = their numbers",
        "The first of equal elements or slices beside one another, which of them each is, and how many there are.",
        (
            _INVERSE,
            _WITH_COUNTS,
            Parameter("dim", "dim", Kind.INT64, f"the dimension; {_NO_DIM}: all elements as one row"),
        ),
        (_VALUES, _PLACES, _COUNTS),
        (*_ORDERED, *COMPLEX),
        (only_if(axis("dim", "self"), f"unless it is {_NO_DIM}", lambda call: call["dim"] != _NO_DIM),),
    ),
)
