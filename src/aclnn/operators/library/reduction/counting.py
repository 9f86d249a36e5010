"""Counting: aclnnBincount, aclnnHistc; and the sum of a diagonal, aclnnTrace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    castable_from,
    dims_between,
    dtype_in,
    extents,
    limited_dims,
    public_format,
    real,
    rule,
    same_format,
    same_shape,
    value_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.operators.library.common import (
    INTEGERS,
    MODERN,
    NUMBERS,
    expect_within,
    library_operator,
    scalar,
    support,
    tensor_in,
    tensor_out,
)

_COUNTED = (D.FLOAT, D.FLOAT16, *INTEGERS)


def _length(call: Call) -> str | None:
    got = call["out"].shape
    if len(got) == 1 and got[0] >= max(call["minlength"], 0):
        return None
    return f"out: expected 1 dimension of at least minlength ({call['minlength']}) elements, got {extents(got)}"


def _bincount_work(call: Call) -> Library | None:
    size = call["out"].size
    if size == 0:
        return None
    given = () if call["weights"] is None else ("weights",)

    def count(self: Any, weights: Any = None) -> Any:
        expect_within("self", self, 0, np.iinfo(np.int64).max)
        known = self < size
        return np.bincount(self[known].astype(np.int64), None if weights is None else weights[known], size)

    return Library(count, ("self", *given), ("out",))


def _limits(call: Call) -> tuple[float, float]:
    return float(call["min"].value), float(call["max"].value)


def _finite(call: Call) -> str | None:
    low, high = _limits(call)
    if low == high or math.isfinite(high - low):
        return None
    return f"max: expected finite numbers, or one for both, got {low} and {high}"


def _order(call: Call) -> str | None:
    low, high = _limits(call)
    if call["self"].dtype in INTEGERS and math.isfinite(high - low):
        low, high = int(low), int(high)
    return None if low <= high else f"min: expected at most max, {high}, got {low}"


def _histogram(self: Any, low: Any, high: Any, bins: int) -> Any:
    values = self.reshape(-1).astype(np.float64)
    least, most = float(low), float(high)
    if self.dtype.kind in "iu" and math.isfinite(least):
        least, most = int(least), int(most)
    if least == most and values.size:
        least, most = float(values.min()), float(values.max())
        if not math.isfinite(most - least):
            raise ValueError(f"self: expected finite numbers where min and max are equal, got {least} to {most}")
    if least == most:
        least, most = least - 1, most + 1
    places = np.floor((values - least) / (most - least) * bins)
    inside = (values >= least) & (values <= most)
    return np.bincount(np.minimum(places[inside], bins - 1).astype(np.int64), minlength=bins)


OPERATORS = (
    Operator(
        name="bincount",
        summary="Count the occurrences of each nonnegative integer, or sum their weights.",
        formula="out[n] = number of elements equal to n, or the sum of their weights",
        parameters=(
            tensor_in("self", "the nonnegative integers"),
            Parameter("weights", "weights", Kind.INPUT, "the weight of each element", optional=True),
            Parameter("minlength", "minlength", Kind.INT64, "the minimum size of out"),
            tensor_out("out", "the count or sum for each integer from 0"),
        ),
        support=support(NUMBERS, MODERN),
        checks=(
            dtype_in(INTEGERS, "self"),
            dtype_in({D.INT32, D.INT64, D.FLOAT, D.DOUBLE}, "out"),
            dtype_in({D.FLOAT, D.FLOAT16, D.DOUBLE, D.BOOL, *INTEGERS}, "weights"),
            dims_between(1, 1, "self"),
            public_format("self", "out"),
            same_format("weights", "self"),
            same_shape("weights", "self"),
            rule("at least minlength: out", _length),
        ),
        work=_bincount_work,
    ),
    library_operator(
        "histc",
        "out[n] = number of elements of self in the n-th of bins equal intervals from min to max",
        "Histogram.",
        (
            tensor_in("self", "the numbers"),
            Parameter("bins", "bins", Kind.INT64, "the number of bins"),
            scalar("min", "the lower end of the range; the minimum of self if min equals max"),
            scalar("max", "the upper end of the range; the maximum of self if min equals max"),
            tensor_out(),
        ),
        (
            dtype_in(where_supported(_COUNTED), "self", "out"),
            real("min", "max"),
            rule("finite or equal: max", _finite),
            value_is("at least 1", lambda got: got >= 1, "bins"),
            rule("at most max: min", _order),
            castable_from(lambda call: call["out"].dtype, "self"),
            limited_dims("self"),
            rule(
                "as many as bins: out",
                lambda call: (
                    None
                    if call["out"].shape == (call["bins"],)
                    else f"out: expected shape [{call['bins']}], got {extents(call['out'].shape)}"
                ),
            ),
        ),
        _histogram,
        dtypes=_COUNTED,
        inputs=("self", "min", "max"),
        attributes=("bins",),
    ),
    library_operator(
        "trace",
        "out = sum of self[i, i]",
        "Trace: the sum of a matrix's diagonal.",
        (tensor_in("self", "the matrix"), tensor_out()),
        (
            dtype_in(where_supported(NUMBERS), "self", "out"),
            dims_between(2, 2, "self"),
            rule(
                "a number: out",
                lambda call: (
                    None if call["out"].shape == () else f"out: expected shape [], got {extents(call['out'].shape)}"
                ),
            ),
        ),
        lambda self: np.trace(self, dtype=np.float64 if self.dtype == np.float32 else None),
        products=MODERN,
    ),
)
