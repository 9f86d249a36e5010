"""Norms of rows and of their differences: aclnnCdist with its gradient, aclnnPdist, aclnnRenorm."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    axis,
    broadcast_shape,
    dims_between,
    dtype_in,
    extents,
    floating,
    limited_dims,
    real,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    MODERN,
    WITH_TRAINING,
    attribute,
    library_operator,
    replaced,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.reduction.dimensions import DIM

_NARROW = (D.FLOAT, D.FLOAT16)
#: Term that Renorm adds to a norm before dividing, as PyTorch does.
_EPSILON = 1e-7
#: Order of the gradient that stands for infinity.
_INFINITE = -1.0


def _term(distance: Any, p: float) -> Any:
    """Return the term of a distance in a norm, before the root."""
    return (distance != 0) + 0.0 if p == 0 else distance if math.isinf(p) else distance**p


def _root(total: Any, p: float) -> Any:
    return total if p == 0 or math.isinf(p) else total ** (1 / p)


def distances(first: Any, second: Any, p: float) -> Any:
    """Return the norms of differences along the last dimension, column by column to save memory."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    total = np.zeros(np.broadcast_shapes(first.shape[:-1], second.shape[:-1]))
    combine = np.maximum if math.isinf(p) else np.add
    for column in range(first.shape[-1]):
        combine(total, _term(np.abs(first[..., column] - second[..., column]), p), out=total)
    return _root(total, p)


def _pairs(self: Any, p: Any) -> Any:
    first, second = np.triu_indices(len(self), 1)
    return distances(self[first], self[second], float(p))


def slope(difference: Any, distance: Any, p: float, dtype: Any) -> Any:
    """Return the derivative of a norm with respect to a difference, 0 where it is undefined."""
    size = np.abs(difference)
    if p == 0:
        return np.zeros_like(difference)
    if math.isinf(p):
        # The distance has been rounded already.
        return np.sign(difference) * (size.astype(dtype) == distance.astype(dtype))
    inclined = (size != 0) & (distance != 0)
    ratio = np.divide(size, distance, out=np.ones_like(size), where=inclined)
    return np.where(inclined, np.sign(difference) * ratio ** (p - 1), 0.0)


def _gradient(dy: Any, x1: Any, x2: Any, distance: Any, p: float, dtype: Any) -> Any:
    dy, x1, x2, distance = (each.astype(np.float64) for each in (dy, x1, x2, distance))
    result = np.empty(x1.shape)
    for column in range(x1.shape[-1]):
        difference = x1[..., :, None, column] - x2[..., None, :, column]
        result[..., column] = (dy * slope(difference, distance, p, dtype)).sum(-1)
    return result


def _gradient_work(call: Call) -> Library | None:
    inputs = ("grad", "x1", "x2", "cdist")
    if any(call[name].size == 0 for name in inputs):
        return None
    p, dtype = math.inf if call["p"] == _INFINITE else call["p"], call["cdist"].dtype.numpy
    return Library(partial(_gradient, p=p, dtype=dtype), inputs, ("out",))


def factors(self: Any, p: float, most: float, dim: int) -> Any:
    """Return the factor that scales each row along a dimension to a norm of at most ``most``; 1 for shorter rows."""
    rows = np.moveaxis(self.astype(np.float64), dim, 0)
    terms = _term(np.abs(rows.reshape(len(rows), -1)), p)
    norms = _root(terms.max(1) if math.isinf(p) else terms.sum(1), p)
    found = np.where(norms > most, most / (norms + _EPSILON), 1.0)
    return np.moveaxis(found.reshape(-1, *(1,) * (rows.ndim - 1)), 0, dim)


def _not_negative(name: str, *but: float) -> Check:
    def violation(call: Call) -> str | None:
        got = call[name] if isinstance(call[name], float) else float(call[name].value)
        return None if got >= 0 or got in but else f"{name}: expected a number of at least 0, got {got}"

    return rule(f"at least 0: {name}", violation)


def _batches(call: Call) -> tuple[int, ...] | None:
    return broadcast_shape(call["x1"].shape[:-2], call["x2"].shape[:-2])


def _columns(call: Call) -> str | None:
    first, second = call["x1"].shape, call["x2"].shape
    if first[-1] == second[-1] and _batches(call) is not None:
        return None
    return f"x2: expected rows as long as those of x1, {extents(first)}, in sets that broadcast, got {extents(second)}"


def _matrices(call: Call) -> tuple[int, ...]:
    return *(_batches(call) or ()), call["x1"].shape[-2], call["x2"].shape[-2]


def _each_first(call: Call) -> str | None:
    expected, got = (*call["grad"].shape[:-1], call["x1"].shape[-1]), call["x1"].shape
    return None if got == expected else f"x1: expected shape {extents(expected)} (rows of grad), got {extents(got)}"


def _pair_count(call: Call) -> tuple[int]:
    n = call["self"].shape[0]
    return (n * (n - 1) // 2,)


def _pairwise(name: str, p: Parameter, products: frozenset[Product]) -> Operator:
    is_scalar = p.kind is Kind.SCALAR
    return library_operator(
        name,
        f"out = (sum of |self[i] - self[j]|^{p.name})^(1/{p.name}) for i < j",
        "Pairwise distances between the rows of a matrix.",
        (tensor_in("self", "the rows"), p, tensor_out("out", "the distances for all pairs i < j, row by row")),
        (
            dtype_in(_NARROW, "self", "out"),
            same_dtype("out", "self"),
            dims_between(2, 2, "self"),
            shape_is("one for each pair of rows", _pair_count, "out"),
            *((real(p.name),) if is_scalar else ()),
            _not_negative(p.name),
        ),
        _pairs,
        dtypes=_NARROW,
        products=products,
        attributes=() if is_scalar else (p.name,),
    )


_ORDER = attribute("p", Kind.FLOAT, "the order of the norm; 0: the number of differing elements")


def _renorm(name: str, x: str, out: str) -> Operator:
    """Declare the function with an output of its own, or its in-place variant."""
    own = x != out
    return library_operator(
        name,
        f"{out} = {x} * min(1, maxNorm / norm of order p), for each index along dim",
        "Limit the norm of slices along a dimension.",
        (
            tensor_in(x, "the slices") if own else replaced(),
            scalar("p", "the order of the norm"),
            DIM,
            scalar("maxNorm", "the maximum norm"),
            *((tensor_out(),) if own else ()),
        ),
        (
            dtype_in(floating, x),
            *((same_dtype(out, x), same_format(out, x)) if own else ()),
            dims_between(2, 8, x),
            *((same_shape(out, x),) if own else ()),
            real("p", "maxNorm"),
            _not_negative("p"),
            axis("dim", x),
            _not_negative("maxNorm"),
        ),
        lambda self, p, most, dim: self * factors(self, float(p), float(most), dim),
        header="renorm",
        dtypes=FLOATING,
        products=WITH_TRAINING,
        attributes=("dim",),
    )


OPERATORS = (
    library_operator(
        "cdist",
        "out[i, j] = (sum of |x1[i] - x2[j]|^p)^(1/p)",
        "Pairwise distances between the rows of two matrices.",
        (
            tensor_in("x1", "the first rows, with batch dimensions"),
            tensor_in("x2", "the second rows, with batch dimensions that broadcast"),
            _ORDER,
            Parameter("compute_mode", "compute_mode", Kind.INT64, "ignored"),
            tensor_out(),
        ),
        (
            dtype_in(floating, "x1", "x2", "out"),
            same_dtype("x1", "out"),
            same_dtype("x2", "out"),
            limited_dims("x1", "x2", "out"),
            dims_between(2, 8, "x1", "x2"),
            rule("rows that fit: x2", _columns),
            _not_negative("p"),
            shape_is("a matrix for each set", _matrices, "out"),
        ),
        lambda x1, x2, p, mode: distances(x1[..., :, None, :], x2[..., None, :, :], p),
        dtypes=FLOATING,
        products=MODERN,
        attributes=("p", "compute_mode"),
    ),
    Operator(
        name="cdist_backward",
        summary="Gradient of pairwise distances with respect to the first rows.",
        formula="out[i] = sum over j of grad[i, j] * d * |d|^(p - 2) / cdist[i, j]^(p - 1), d = x1[i] - x2[j]",
        parameters=(
            tensor_in("grad", "the gradient with respect to the distances"),
            tensor_in("x1", "the first rows"),
            tensor_in("x2", "the second rows"),
            tensor_in("cdist", "the distances"),
            attribute("p", Kind.FLOAT, "the order of the norm; -1: infinity"),
            tensor_out("out", "the gradient with respect to x1"),
        ),
        support=support(_NARROW, MODERN),
        checks=(
            dtype_in(_NARROW, "grad", "x1", "x2", "cdist", "out"),
            *(same_dtype(name, "grad") for name in ("x1", "x2", "cdist", "out")),
            dims_between(2, 7, "grad", "x1", "x2"),
            rule("rows that fit: x2", _columns),
            shape_is("a matrix for each set", _matrices, "cdist"),
            same_shape("grad", "cdist"),
            rule("its own sets: x1", _each_first),
            same_shape("out", "x1"),
            _not_negative("p", _INFINITE),
        ),
        work=_gradient_work,
    ),
    _pairwise("pdist", _ORDER, MODERN),
    _pairwise(
        "pdist_forward",
        scalar("pScalar", "the order of the norm; 0: the number of differing elements"),
        WITH_TRAINING - CLASS_950,
    ),
    _renorm("renorm", "self", "out"),
    _renorm("inplace_renorm", "selfRef", "selfRef"),
)
