"""Minima, maxima and medians, of all elements or along dimensions, with their indices."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, limited_dims, public_format, rule, same_dtype, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    INTEGERS,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    library_operator,
    on_950,
    support,
    tensor_out,
)
from aclnn.operators.library.reduction.dimensions import (
    ALONG,
    DIM,
    DIMS,
    NO_DIMS,
    OUT,
    SELF,
    Shape,
    elements_along,
    kept,
    one_element,
    reduced_shape,
    reduction,
)


def _extreme(name: str, summary: str, function: Callable[[Any], Any]) -> Operator:
    return library_operator(
        name,
        f"out = {name}(self)",
        summary,
        (SELF, OUT),
        (dtype_in(where_supported(REAL), "self", "out"), limited_dims("self", "out"), one_element("out")),
        function,
        dtypes=REAL,
        empty=("self",),
    )


def _extreme_place(
    name: str, header: str, word: str, more: Collection[D] = (), checks: tuple[Check, ...] = ()
) -> Operator:
    """Declare an operator that returns indices of maxima or minima; ``more`` lists further types on the 950 class."""

    def work(call: Call) -> Library | None:
        if call["self"].size * call["out"].size == 0:
            return None
        place, dim, shape = getattr(np, name.replace("_", "")), call["dim"], call["out"].shape
        return Library(lambda self: np.reshape(place(np.atleast_1d(self), dim), shape), ("self",), ("out",))

    return Operator(
        name=name,
        summary=f"Indices of the {word} elements along a dimension; the first of equal elements.",
        formula=f"out = index along dim of the {word} element of self",
        parameters=(SELF, *ALONG, replace(OUT, index_of="self")),
        support=support(_INDEXED),
        checks=(
            dtype_in(on_950(more, _INDEXED), "self"),
            dtype_in({D.INT32, D.INT64}, "out"),
            limited_dims("self", "out"),
            axis("dim", "self"),
            *checks,
            reduced_shape("dim", "keepdim"),
        ),
        work=work,
        in_header_of=header,
    )


def _along(place: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Return the elements at the indices that ``place`` returns, and the indices."""

    def find(values: Any, axes: Shape) -> tuple[Any, Any]:
        if not axes:
            return values, 0
        places = np.expand_dims(place(values, axes[0]), axes[0])
        return np.take_along_axis(values, places, axes[0]), places

    return find


_LOCATED = (D.FLOAT, D.FLOAT16, D.BF16, D.INT64, D.BOOL)
_INDEXED = (*REAL_FLOATING, *INTEGERS)


_RANKED = (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS)
_FOUND = (tensor_out("valuesOut", "the elements"), tensor_out("indicesOut", "the indices; INT64", index_of="self"))
_FOUND_TYPES = same_dtype("valuesOut", "self"), dtype_in({D.INT64}, "indicesOut")


_BOTH = tensor_out("minOut", "the minima"), tensor_out("maxOut", "the maxima")
_BOTH_TYPES = same_dtype("minOut", "self"), same_dtype("maxOut", "self")


def _ranked(values: Any, axes: Shape, rank: int) -> tuple[Any, Any]:
    """Return the elements of a 0-based rank along a dimension, with NaN as the largest, and their indices."""
    return _along(lambda array, dim: np.argsort(array, dim, kind="stable").take(rank, dim))(values, axes)


def _middle(values: Any, axes: Shape) -> tuple[Any, Any]:
    """Return the lower median, NaN if there is any, and its index."""

    def place(array: Any, dim: int) -> Any:
        middle = np.argsort(array, dim, kind="stable").take((array.shape[dim] - 1) // 2, dim)
        is_nan = np.isnan(array)
        return np.where(is_nan.any(dim), is_nan.argmax(dim), middle)

    return _along(place)(values, axes)


def _middle_number(values: Any, axes: Shape) -> tuple[Any, Any]:
    """Return the lower median of the elements that are not NaN, NaN if there is none, and its index."""

    def place(array: Any, dim: int) -> Any:
        middle = np.maximum((~np.isnan(array)).sum(dim, keepdims=True) - 1, 0) // 2
        return np.take_along_axis(np.argsort(array, dim, kind="stable"), middle, dim).squeeze(dim)

    return _along(place)(values, axes)


def _kth(call: Call) -> str | None:
    shape = call["self"].shape or (1,)
    if not -len(shape) <= call["dim"] < len(shape):
        return None  # reported by a later check
    most = shape[call["dim"]]
    return None if 1 <= call["k"] <= most else f"k: expected from 1 to {most} (the elements along dim), got {call['k']}"


def _medians(
    prefix: str, out: str, what: str, nan: str, function: Callable[[Any, Shape], tuple[Any, Any]]
) -> tuple[Operator, Operator]:
    """Declare the median of all elements, and that along a dimension."""
    return (
        library_operator(
            f"{prefix}median",
            f"{out} = the lower median of {what}",
            f"Median of all elements, the lower of two; {nan}, or no element.",
            (SELF, tensor_out(out, "the median, the lower of two")),
            (
                dtype_in(where_supported(_RANKED), "self"),
                same_dtype(out, "self"),
                limited_dims("self"),
                one_element(out),
            ),
            lambda self: function(self.reshape(-1), (0,))[0] if self.size else np.nan,
            header="median",
            dtypes=_RANKED,
        ),
        reduction(
            f"{prefix}median_dim",
            f"Medians along a dimension, the lower of two, {nan}; and their indices.",
            f"valuesOut, indicesOut = the lower median of {what} along dim, its index",
            (DIM, kept("keepDim"), *_FOUND),
            function,
            _RANKED,
            _RANKED,
            _FOUND_TYPES,
            header="median",
            skips_empty=True,
        ),
    )


OPERATORS = (
    # NaN is both the smallest and the largest number.
    _extreme("min", "Least element.", np.min),
    _extreme("max", "Greatest element.", np.max),
    _extreme_place("arg_max", "argmax", "greatest", (D.UINT16,)),
    _extreme_place("arg_min", "argmin", "least", checks=(public_format("self", "out"), elements_along("dim"))),
    *(
        reduction(
            f"a{name}",
            f"{word.capitalize()} elements over some dimensions.",
            f"out = {name} of self over dim",
            (DIMS, kept("keepDim"), OUT),
            function,
            REAL,
            REAL,
            (same_dtype("out", "self"),),
            skips_empty=True,
            of_elements=True,
            exact=True,
        )
        for name, word, function in (("max", "greatest", np.max), ("min", "least", np.min))
    ),
    reduction(
        "max_v2",
        "Maximum over some dimensions.",
        "out = max of self over dims",
        (replace(DIMS, name="dims", python_name="dims"), kept("keepDims"), NO_DIMS, OUT),
        lambda values, axes, no_dims: np.max(values, axes),
        REAL,
        REAL,
        (same_dtype("out", "self"),),
        skips_empty=True,
        of_elements=True,
        exact=True,
    ),
    *(
        reduction(
            f"{name}_dim",
            f"{word.capitalize()} elements along a dimension and their indices; the first of equal elements.",
            f"out, indices = {name} of self along dim, its index",
            (*ALONG, OUT, tensor_out("indices", "the indices", index_of="self")),
            _along(place),
            _LOCATED,
            _LOCATED,
            (same_dtype("out", "self"), dtype_in(where_supported((*NUMBERS, *UNSIGNED)), "indices")),
            skips_empty=True,
            more_on_950=(D.INT32,),
        )
        for name, word, place in (("max", "greatest", np.argmax), ("min", "least", np.argmin))
    ),
    *(
        reduction(
            name,
            f"Least and greatest elements {words}.",
            "minOut, maxOut = min and max of self over dim",
            (dim, kept("keepDim"), *_BOTH),
            lambda values, axes: (np.min(values, axes), np.max(values, axes)),
            REAL,
            REAL,
            _BOTH_TYPES,
            skips_empty=True,
            of_elements=True,
            products=products,
        )
        for name, words, dim, products in (
            ("aminmax", "over some dimensions", DIMS, WITH_INFERENCE),
            ("aminmax_dim", "along a dimension", DIM, WITH_TRAINING),
        )
    ),
    library_operator(
        "aminmax_all",
        "minOut, maxOut = min(self), max(self)",
        "Minimum and maximum of all elements.",
        (SELF, *_BOTH),
        (
            dtype_in(where_supported(REAL), "self"),
            *_BOTH_TYPES,
            limited_dims("self", "minOut", "maxOut"),
            one_element("minOut"),
            one_element("maxOut"),
        ),
        lambda self: (np.min(self), np.max(self)),
        dtypes=REAL,
        products=WITH_TRAINING,
        empty=("self",),
    ),
    *_medians("", "valuesOut", "self", "NaN if any element is NaN", _middle),
    *_medians("nan_", "out", "the elements of self other than NaN", "NaN if all elements are NaN", _middle_number),
    reduction(
        "kthvalue",
        "The k-th smallest elements along a dimension and their indices; NaN ranks last.",
        "valuesOut, indicesOut = the k-th smallest of self along dim, its index",
        (Parameter("k", "k", Kind.INT64, "the rank, counted from 1"), *ALONG, *_FOUND),
        lambda values, axes, k: _ranked(values, axes, k - 1),
        _RANKED,
        _RANKED,
        (*_FOUND_TYPES, rule("from 1 to the elements along dim: k", _kth)),
        skips_empty=True,
    ),
)
