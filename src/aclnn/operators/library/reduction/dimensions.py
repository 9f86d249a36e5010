"""Axes, checks and declarations common to reductions and cumulative operations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, extents, has_zero, limited_dims, rule, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.operators.library.common import WITH_INFERENCE, on_950, support, tensor_in, tensor_out

Shape = tuple[int, ...]
SELF, OUT = tensor_in("self", "what is reduced"), tensor_out()


def axes_of(call: Call, dims: str) -> Shape:
    """Return the non-negative dimensions to reduce; all if none is given, unless a flag makes that mean none."""
    rank, given = len(call["self"].shape), call[dims]
    listed = (given,) if isinstance(given, int) else given or ()
    every = () if call.arguments.get(NO_DIMS.name) or call.arguments.get(NO_AXES.name) else tuple(range(rank))
    return tuple(dim % rank for dim in listed if rank) or every


def reduced(call: Call, dims: str, keep: str) -> Shape:
    """Return the shape of self after the reduction."""
    shape, axes = call["self"].shape, axes_of(call, dims)
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if call[keep] or axis not in axes)


def valid_dims(dims: str) -> Check:
    """Require distinct dimensions of self."""

    def violation(call: Call) -> str | None:
        rank = max(len(call["self"].shape), 1)
        given = call[dims] or ()
        wrong = next((dim for dim in given if not -rank <= dim < rank), None)
        if wrong is not None:
            return f"{dims}: expected dimensions from {-rank} to {rank - 1}, got {wrong}"
        repeated = max(Counter(dim % rank for dim in given).values(), default=1) > 1
        return f"{dims}: expected each dimension once, got {extents(given)}" if repeated else None

    return rule(f"dimensions of self, each once: {dims}", violation)


def elements_along(dims: str) -> Check:
    """Require each given dimension to be non-empty."""

    def violation(call: Call) -> str | None:
        shape, given = call["self"].shape, call[dims]
        listed = (given,) if isinstance(given, int) else given
        if shape and has_zero([shape[dim] for dim in listed]):
            return f"self: expected elements along {dims}, got shape {extents(shape)}"
        return None

    return rule(f"elements along {dims}: self", violation)


def reduced_shape(dims: str, keep: str, *names: str, exact: bool = False) -> Check:
    """Require the reduced shape of self, for ``out`` by default.

    Unless ``exact``, a single number fits any one-element shape, and an empty result any shape.
    """

    def violation(call: Call) -> str | None:
        expected = reduced(call, dims, keep)
        for name in names or ("out",):
            got = call[name].shape
            spared = not exact and (not call["self"].size or math.prod(expected) == math.prod(got) == 1)
            if got != expected and not spared:
                return f"{name}: expected shape {extents(expected)} (self reduced over {dims}), got {extents(got)}"
        return None

    return rule(f"reduced shape: {', '.join(names or ('out',))}", violation)


def listed_dtype(dtypes: Collection[D] | Callable[[Product], Collection[D]]) -> Check:
    """Require the argument dtype to be one of these, which may depend on the product."""
    allowed = dtypes if callable(dtypes) else where_supported(dtypes)

    def violation(call: Call) -> str | None:
        if call["dtype"] in allowed(call.product):
            return None
        return f"dtype: expected a data type that {call.operator.function} takes, got {call['dtype'].c_name}"

    return rule("data type: dtype", violation)


def of_dtype(call: Call) -> str | None:
    """Return an error text for an out whose data type is not the argument dtype."""
    dtype, out = call["dtype"], call["out"].dtype
    return None if out == dtype else f"out: expected data type {dtype.c_name} (the argument dtype), got {out.c_name}"


def with_extent(call: Call, count: int) -> Shape:
    """Return the shape of self with another extent along ``dim``."""
    shape = call["self"].shape
    if not shape:
        return ()
    at = call["dim"] % len(shape)
    return (*shape[:at], count, *shape[at + 1 :])


def kept(name: str) -> Parameter:
    """Declare the flag that keeps reduced dimensions."""
    return Parameter(name, name, Kind.BOOL, "keep reduced dimensions, of one element each")


def one_element(name: str) -> Check:
    """Require one element, in any shape."""

    def violation(call: Call) -> str | None:
        got = call[name]
        if got.size == 1 or not call["self"].size * got.size:
            return None
        return f"{name}: expected one element, got shape {extents(got.shape)}"

    return rule(f"one element: {name}", violation)


DIMS = Parameter("dim", "dim", Kind.INT_ARRAY, "the dimensions to reduce; none: all")

_NONE = Kind.BOOL, "without dimensions to reduce none is reduced"
NO_DIMS = Parameter("noopWithEmptyDims", "noop_with_empty_dims", *_NONE)
NO_AXES = Parameter("noopWithEmptyAxes", "noop_with_empty_axes", *_NONE)

DIM = Parameter("dim", "dim", Kind.INT64, "the dimension")

ALONG = (DIM, kept("keepdim"))


def reduction(
    name: str,
    summary: str,
    formula: str,
    parameters: tuple[Parameter, ...],
    function: Callable[..., Any],
    dtypes: Collection[D],
    results: Collection[D],
    more: tuple[Check, ...] = (),
    skips_empty: bool = False,
    dtype: Callable[[Call], D] | None = None,
    products: Collection[Product] = WITH_INFERENCE,
    header: str | None = None,
    more_on_950: Collection[D] = (),
    of_elements: bool = False,
    exact: bool = False,
) -> Operator:
    """Declare a reduction over the dimensions in the parameter whose name begins with ``dim``.

    Args:
        name: name in snake case.
        summary: one sentence.
        formula: formula as text.
        parameters: parameters after self.
        function: takes an array, axes and other attributes in order; returns an array, or one per output, in any shape.
        dtypes: data types of self.
        results: data types of the first output.
        more: checks of attributes.
        skips_empty: True if nothing is written for an empty self.
        dtype: data type of the computation.
        products: products with a kernel.
        header: the C header's name without ``aclnn_``; None for the function's.
        more_on_950: additional types of self and of the first output on the 950 class.
        of_elements: True if given dimensions must not be empty.
        exact: True if outputs must have exactly the reduced shape.
    """
    outputs = [each.name for each in parameters if each.kind is Kind.OUTPUT]
    dims = next(each for each in parameters if each.name.startswith("dim"))
    keep = next(each.name for each in parameters if each.name.lower().startswith("keepdim"))
    attributes = [
        each.name for each in parameters if each.name not in (dims.name, keep, "dtype") and each.kind is not Kind.OUTPUT
    ]
    alone = dims.kind is Kind.INT64

    def work(call: Call) -> Library | None:
        if call[outputs[0]].size == 0 or (skips_empty and call["self"].size == 0):
            return None
        axes, shapes = axes_of(call, dims.name), [call[each].shape for each in outputs]
        values = [call[each] for each in attributes]

        def compute(self: Any) -> tuple[Any, ...]:
            found = function(self, axes, *values)
            results = found if isinstance(found, tuple) else (found,)
            return tuple(np.reshape(each, shape) for each, shape in zip(results, shapes, strict=True))

        return Library(compute, ("self",), tuple(outputs), None if dtype is None else dtype(call))

    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(SELF, *parameters),
        support=support(dtypes, products),
        checks=(
            dtype_in(on_950(more_on_950, dtypes), "self"),
            dtype_in(on_950(more_on_950, results), outputs[0]),
            *more,
            limited_dims("self"),
            axis(dims.name, "self") if alone else valid_dims(dims.name),
            *((elements_along(dims.name),) if of_elements else ()),
            reduced_shape(dims.name, keep, *outputs, exact=exact),
        ),
        work=work,
        in_header_of=header,
    )
