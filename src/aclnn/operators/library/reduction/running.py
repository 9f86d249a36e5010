"""Sums, products and extremes of all elements up to each, along a dimension; sums of all segments."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    axis,
    dims_between,
    dtype_in,
    floating,
    limited_dims,
    limited_dims_unless_contiguous,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import (
    COMPLEX,
    INDEX_TYPES,
    INTEGERS,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
    WITH_TRAINING,
    attribute,
    library_operator,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.reduction.dimensions import DIM, OUT, SELF, listed_dtype, of_dtype

_SUMMED = (*REAL_FLOATING, *INTEGERS, *COMPLEX)
_MULTIPLIED = (*REAL_FLOATING, *INTEGERS, *UNSIGNED)

_AXIS = scalar("axis", "the dimension; INT32 or INT64")
_DTYPE = Parameter("dtype", "dtype", Kind.DTYPE, "the data type of out, used for computing")


def _number(call: Call, name: str) -> int:
    """Return the dimension, given as an attribute or as a scalar."""
    given = call[name]
    return int(getattr(given, "value", given))  # of a scalar or an attribute


def _in_range(name: str, first: str) -> Check:
    def violation(call: Call) -> str | None:
        rank, got = max(len(call[first].shape), 1), _number(call, name)
        return None if -rank <= got < rank else f"{name}: expected an integer from {-rank} to {rank - 1}, got {got}"

    return rule(f"dimension: {name}", violation)


def _own_type_or_dtype(call: Call) -> str | None:
    """Return an error text if the argument dtype is given and out has another data type."""
    return None if call["dtype"] == D.DT_UNDEFINED else of_dtype(call)


def _running(
    name: str,
    title: str,
    parameters: tuple[Parameter, ...],
    dtypes: Collection[D],
    checks: tuple[Check, ...],
    function: Callable[..., Any],
    attributes: tuple[str, ...] = (),
    header: str | None = None,
) -> Operator:
    """Declare a running sum or product of the first parameter along the dimension in the second."""
    first, along = (parameter.name for parameter in parameters[:2])
    out = "out" if any(parameter.name == "out" for parameter in parameters) else first

    def work(call: Call) -> Library | None:
        if call[out].size == 0:
            return None
        shape, at = call[out].shape, _number(call, along)
        flags = [call[attribute] for attribute in attributes]

        def compute(values: Any) -> Any:
            wide = np.float64 if values.dtype == np.float32 else values.dtype
            return function(np.atleast_1d(values), at, wide, *flags).reshape(shape)

        return Library(compute, (first,), (out,), call[out].dtype)

    return Operator(
        name=name,
        summary=f"Running {title} along a dimension{', in place' if out == first else ''}.",
        formula=f"{out}[i] = {title[:-1]} of {first}[j] for j up to i",
        parameters=parameters,
        support=support(dtypes),
        checks=checks,
        work=work,
        in_header_of=header,
    )


def _sums(values: Any, along: int, dtype: Any, exclusive: bool, reverse: bool) -> Any:
    """Return cumulative sums, optionally without the element itself (exclusive) or from the end (reverse)."""
    sums = np.cumsum(np.flip(values, along) if reverse else values, along, dtype)
    if exclusive:
        sums = np.roll(sums, 1, along)
        np.moveaxis(sums, along, 0)[0] = 0
    return np.flip(sums, along) if reverse else sums


def _running_extreme(name: str, word: str, extreme: Any) -> Operator:
    """Declare the cumulative extremes and their indices, the last among equals; NaN propagates."""

    def compute(self: Any, dim: int) -> tuple[Any, Any]:
        values = np.atleast_1d(self)
        found = extreme.accumulate(values, dim)
        along = np.arange(values.shape[dim]).reshape([-1] + [1] * (values.ndim - 1 - dim % values.ndim))
        places = np.maximum.accumulate(np.where((values == found) | (values != values), along, 0), dim)
        return found.reshape(self.shape), places.reshape(self.shape)

    return library_operator(
        name,
        f"valuesOut[i], indicesOut[i] = the {word} of self[j] for j up to i, its index",
        f"Cumulative {word} elements along a dimension and their indices; the last of equal elements.",
        (
            SELF,
            DIM,
            tensor_out("valuesOut", "the elements"),
            tensor_out("indicesOut", "INT32 or INT64", index_of="self"),
        ),
        (
            axis("dim", "self"),
            dtype_in(where_supported(REAL), "self"),
            dtype_in(where_supported(REAL), "valuesOut"),
            dtype_in({D.INT32, D.INT64}, "indicesOut"),
            limited_dims("self"),
            same_shape("valuesOut", "self"),
            same_shape("indicesOut", "self"),
        ),
        compute,
        dtypes=REAL,
        products=WITH_TRAINING,
        attributes=("dim",),
    )


def _exp_segment_sums(self: Any) -> Any:
    """Exponentials of the sums from behind each place to each later one; 0 before."""
    n = self.shape[-1]
    behind = np.where(np.tri(n, k=-1, dtype=bool), self.astype(np.float64)[..., None], 0)
    return np.exp(behind.cumsum(-2)) * np.tri(n)


OPERATORS = (
    library_operator(
        "exp_segsum",
        "out[..., i, j] = e^(sum of self[..., k] over j < k <= i) for j <= i, else 0",
        "Exponentials of the sums of all segments along the last dimension.",
        (SELF, OUT),
        (
            dtype_in(floating, "self"),
            same_dtype("out", "self"),
            dims_between(3, 4, "self"),
            shape_is("a row for each element", lambda call: (*call["self"].shape, *call["self"].shape[-1:]), "out"),
        ),
        _exp_segment_sums,
        header="segsum",
        dtypes=(D.FLOAT, D.FLOAT16, D.BF16),
        products=A2_CLASS,
    ),
    _running(
        "cumsum",
        "sums",
        (tensor_in("self", "the numbers"), DIM, _DTYPE, OUT),
        _SUMMED,
        (
            dtype_in(where_supported(NUMBERS), "self"),
            dtype_in(where_supported(_SUMMED), "out"),
            listed_dtype(_SUMMED),
            rule("data type dtype: out", of_dtype),
            limited_dims("self"),
            _in_range("dim", "self"),
            same_shape("out", "self"),
        ),
        np.cumsum,
    ),
    _running(
        "cumsum_v2",
        "sums",
        (
            tensor_in("self", "the numbers"),
            DIM,
            attribute("exclusive", Kind.BOOL, "whether sums exclude element i itself"),
            attribute("reverse", Kind.BOOL, "whether j runs from the end down to i"),
            OUT,
        ),
        _SUMMED,
        (
            dtype_in(where_supported(_SUMMED), "self", "out"),
            same_dtype("out", "self"),
            limited_dims("self"),
            _in_range("dim", "self"),
            same_shape("out", "self"),
        ),
        _sums,
        ("exclusive", "reverse"),
        header="cumsum",
    ),
    _running(
        "cumprod",
        "products",
        (tensor_in("input", "the numbers"), _AXIS, _DTYPE, OUT),
        _MULTIPLIED,
        (
            dtype_in(where_supported(_MULTIPLIED), "input", "out"),
            dtype_in(INDEX_TYPES, "axis"),
            rule("data type dtype: out", _own_type_or_dtype),
            limited_dims_unless_contiguous("input", out="out"),
            _in_range("axis", "input"),
            same_shape("out", "input"),
        ),
        np.cumprod,
    ),
    _running(
        "inplace_cumprod",
        "products",
        (tensor_out("input", "the input, replaced by the products", updated=True), _AXIS),
        _MULTIPLIED,
        (
            dtype_in(where_supported(_MULTIPLIED), "input"),
            dtype_in(INDEX_TYPES, "axis"),
            limited_dims_unless_contiguous("input"),
            _in_range("axis", "input"),
        ),
        np.cumprod,
        header="cumprod",
    ),
    _running_extreme("cummax", "greatest", np.maximum),
    _running_extreme("cummin", "least", np.minimum),
)
