"""Planes and volumes with elements put back where pooling found them: aclnnMaxUnpool2d, aclnnMaxUnpool3d, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.checks import (
    castable_from,
    dims_between,
    dtype_in,
    extents,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.operators.library.common import (
    INDEX_TYPES,
    INTEGERS,
    MODERN,
    WITH_TRAINING,
    expect_within,
    support,
    tensor_in,
    tensor_out,
)

_DTYPES = (D.FLOAT, D.FLOAT16, D.DOUBLE, *INTEGERS)
_INDICES = (D.INT32, D.INT64)


def _planes(indices: Any, rank: int, count: int) -> Any:
    """Return the indices as one row per plane of ``count`` elements."""
    lines = indices.reshape(-1, math.prod(indices.shape[-rank:]))
    expect_within("indices", lines, 0, count - 1, "indices")
    return lines


def _unpooled(self: Any, indices: Any, size: Sequence[int]) -> Any:
    count = math.prod(size)
    lines = _planes(indices, len(size), count)
    found = np.zeros((len(lines), count), self.dtype)
    np.put_along_axis(found, lines, self.reshape(lines.shape), 1)
    return found.reshape(*self.shape[: -len(size)], *size)


def _pooled(dy: Any, indices: Any, rank: int) -> Any:
    gradients = dy.reshape(-1, math.prod(dy.shape[-rank:]))
    return np.take_along_axis(gradients, _planes(indices, rank, gradients.shape[1]), 1).reshape(indices.shape)


def _large(call: Call) -> tuple[int, ...]:
    """Return the shape of self with ``outputSize`` as its last dimensions."""
    size = tuple(call["outputSize"])
    return (*call["self"].shape[: -len(size)], *size)


def _elements(call: Call) -> str | None:
    got = call["self"].shape
    return None if 0 not in got[1:] else f"self: expected planes that have elements, got {extents(got)}"


def _sizes(rank: int, name: str, least: int | None) -> Check:
    def violation(call: Call) -> str | None:
        got = call[name]
        if len(got) == rank and (least is None or min(got) >= least):
            return None
        at_least = "" if least is None else f" of at least {least}"
        return f"{name}: expected {rank} numbers{at_least}, got {extents(got)}"

    return rule(f"{rank} numbers: {name}", violation)


def _room(call: Call) -> str | None:
    size = tuple(call["outputSize"])
    plane = call["self"].shape[-len(size) :]
    if math.prod(size) >= math.prod(plane):
        return None
    return f"outputSize: expected room for planes of {extents(plane)} (as self), got {extents(size)}"


def _contiguous(name: str) -> Check:
    return rule(
        f"contiguous: {name}",
        lambda call: (
            None
            if call[name].is_contiguous
            else f"{name}: expected a contiguous tensor, got strides {extents(call[name].strides)}"
        ),
    )


def _unpooling(rank: int) -> tuple[Operator, Operator]:
    """Declare the function for planes or volumes, and its gradient."""
    planar = rank == 2
    size = Parameter("outputSize", "output_size", Kind.INT_ARRAY, "the size of the result's planes")
    steps = tuple(
        Parameter(name, name, Kind.INT_ARRAY, "the pooling parameter; without effect")
        for name in (() if planar else ("stride", "padding"))
    )
    sizes = (
        *(_sizes(rank, each.name, {"outputSize": 1, "stride": 1}.get(each.name)) for each in (size, *steps)),
        rule("room for all: outputSize", _room),
    )
    contiguous = () if planar else (_contiguous("out"),)
    x = tensor_in("self", "planes" if planar else "volumes")
    indices = tensor_in("indices", "the index of each element in its plane of the result")
    taken = (*_DTYPES, D.BOOL) if planar else _DTYPES
    trained = tuple(dtype for dtype in taken if not planar or dtype != D.DOUBLE)

    def operator(
        name: str,
        summary: str,
        formula: str,
        parameters: tuple[Parameter, ...],
        checks: tuple[Check, ...],
        dtypes: tuple[D, ...],
        products: frozenset[Product],
        work: Callable[[Call], Library],
    ) -> Operator:
        return Operator(
            name=name,
            summary=summary,
            formula=formula,
            parameters=parameters,
            support=support(dtypes, products),
            checks=checks,
            work=lambda call: None if call["self"].size == 0 else work(call),
        )

    name = f"max_unpool{rank}d"
    words = "Planes" if planar else "Volumes"
    forward = operator(
        name,
        f"{words} by max unpooling: elements at the indices of the maxima, zeros elsewhere.",
        "out[indices[i]] = self[i] in each plane",
        (x, indices, size, *steps, tensor_out()),
        (
            *contiguous,
            dtype_in(_DTYPES, "self"),
            same_dtype("out", "self"),
            dtype_in(INDEX_TYPES, "indices"),
            dims_between(rank + 1, rank + 2, "self"),
            same_shape("indices", "self"),
            rule("planes have elements: self", _elements),
            *sizes,
            shape_is("planes of outputSize", _large, "out"),
        ),
        _DTYPES,
        MODERN,
        lambda call: Library(partial(_unpooled, size=tuple(call["outputSize"])), ("self", "indices"), ("out",)),
    )
    typed = (
        (
            dtype_in(where_supported(trained), "gradOutput", "self", "out"),
            castable_from(lambda call: call["gradOutput"].dtype, "out"),
            same_dtype("self", "gradOutput"),
        )
        if planar
        else (
            dtype_in(where_supported(trained), "gradOutput"),
            same_dtype("self", "gradOutput"),
            same_dtype("out", "gradOutput"),
        )
    )
    backward = operator(
        f"{name}_backward",
        f"Gradient of {words.lower()} by max unpooling.",
        "out[i] = gradOutput[indices[i]] in each plane",
        (
            tensor_in("gradOutput", "the gradient with respect to the result"),
            x,
            indices,
            size,
            *steps,
            tensor_out("out", "the gradient with respect to self"),
        ),
        (
            *contiguous,
            *typed,
            dtype_in(_INDICES if planar else (D.INT64,), "indices"),
            dims_between(rank + 1, rank + 2, "self"),
            same_shape("indices", "self"),
            same_shape("out", "self"),
            *((_sizes(rank, size.name, None),) if planar else (rule("planes have elements: self", _elements), *sizes)),
            shape_is("planes of outputSize", _large, "gradOutput"),
        ),
        trained,
        WITH_TRAINING,
        lambda call: Library(partial(_pooled, rank=rank), ("gradOutput", "indices"), ("out",)),
    )
    return forward, backward


OPERATORS = (*_unpooling(2), *_unpooling(3))
