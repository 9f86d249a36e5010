"""Sums, products and extremes of all elements up to each, along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, limited_dims, present, rule, same_dtype, same_shape, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    WITH_TRAINING,
    camel,
    library_operator,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.dimensions import DIM, OUT, SELF, listed_dtype, of_dtype

_SUMMED = (*REAL_FLOATING, *INTEGERS, *COMPLEX)


def _running(name: str, title: str, axis_name: str, kind: Kind, function: Callable[..., Any]) -> Operator:
    """A running sum or product; the axis is a number or a scalar of one."""

    def number(call: Call) -> Any:
        return call[axis_name] if kind is Kind.INT64 else np.real(call[axis_name].value).item()

    def valid(call: Call) -> str | None:
        rank, got = max(len(call[first].shape), 1), number(call)
        if -rank <= got < rank and got == int(got):
            return None
        return f"{axis_name}: expected an integer from {-rank} to {rank - 1}, got {got}"

    def work(call: Call) -> Library | None:
        if call["out"].size == 0:
            return None
        shape, along = call["out"].shape, int(number(call))

        def compute(values: Any) -> Any:
            wide = np.float64 if values.dtype == np.float32 else values.dtype
            return function(np.atleast_1d(values), along, dtype=wide).reshape(shape)

        return Library(compute, (first,), ("out",), call["dtype"])

    first = "self" if kind is Kind.INT64 else "input"
    return Operator(
        name=name,
        function=camel(name),
        summary=f"Running {title} along a dimension.",
        formula=f"out[i] = {title[:-1]} of {first}[j] for j up to i",
        parameters=(
            tensor_in(first, "the numbers"),
            Parameter(axis_name, axis_name, kind, "the dimension"),
            Parameter("dtype", "dtype", Kind.DTYPE, "that of out, in which to compute"),
            OUT,
        ),
        support=support(_SUMMED),
        checks=(
            present(first, *((axis_name,) if kind is Kind.SCALAR else ()), "out"),
            dtype_in(where_supported(NUMBERS), first),
            dtype_in(where_supported(_SUMMED), "out"),
            listed_dtype(_SUMMED),
            rule("data type dtype: out", of_dtype),
            limited_dims(first),
            rule(f"dimension: {axis_name}", valid),
            same_shape("out", first),
        ),
        work=work,
    )


def _running_extreme(name: str, word: str, extreme: Any) -> Operator:
    """The extremes so far and where they are, the last of equals; a NaN stays."""

    def compute(self: Any, dim: int) -> tuple[Any, Any]:
        values = np.atleast_1d(self)
        found = extreme.accumulate(values, dim)
        along = np.arange(values.shape[dim]).reshape([-1] + [1] * (values.ndim - 1 - dim % values.ndim))
        places = np.maximum.accumulate(np.where((values == found) | (values != values), along, 0), dim)
        return found.reshape(self.shape), places.reshape(self.shape)

    return library_operator(
        name,
        f"valuesOut[i], indicesOut[i] = the {word} of self[j] for j up to i, its index",
        f"Running {word} elements along a dimension, and where they are; the last of equals.",
        (SELF, DIM, tensor_out("valuesOut", "the elements"), tensor_out("indicesOut", "INT32 or INT64")),
        (
            present("self", "valuesOut", "indicesOut"),
            axis("dim", "self"),
            dtype_in(where_supported(REAL), "self"),
            same_dtype("valuesOut", "self"),
            dtype_in({D.INT32, D.INT64}, "indicesOut"),
            limited_dims("self"),
            same_shape("valuesOut", "self"),
            same_shape("indicesOut", "self"),
        ),
        compute,
        header=name,
        dtypes=REAL,
        products=WITH_TRAINING,
        attributes=("dim",),
    )


OPERATORS = (
    _running("cumsum", "sums", "dim", Kind.INT64, np.cumsum),
    _running("cumprod", "products", "axis", Kind.SCALAR, np.cumprod),
    _running_extreme("cummax", "greatest", np.maximum),
    _running_extreme("cummin", "least", np.minimum),
)
