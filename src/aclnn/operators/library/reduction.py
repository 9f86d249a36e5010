"""aclnnReduceSum, aclnnMean, aclnnLinalgVectorNorm, aclnnArgMax over some dimensions; aclnnMin, aclnnMax over all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import castable_from, dtype_in, extents, limited_dims, present, rule, where_supported
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.promotion import castable
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    NUMBERS,
    REAL_FLOATING,
    camel,
    library_operator,
    support,
    tensor_in,
    tensor_out,
)

_SELF, _OUT = tensor_in("self", "what is reduced"), tensor_out()
Shape = tuple[int, ...]


def _axes(call: Call, dims: str) -> Shape:
    """The dimensions to reduce, from 0 on; all of them where none is given."""
    rank = len(call["self"].shape)
    return tuple(dim % rank for dim in call[dims] if rank) or tuple(range(rank))


def _reduced(call: Call, dims: str, keep: str) -> Shape:
    shape, axes = call["self"].shape, _axes(call, dims)
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if call[keep] or axis not in axes)


def _valid_dims(dims: str) -> Check:
    def complain(call: Call) -> str | None:
        rank = max(len(call["self"].shape), 1)
        wrong = next((dim for dim in call[dims] if not -rank <= dim < rank), None)
        if wrong is not None:
            return f"{dims}: expected dimensions from {-rank} to {rank - 1}, got {wrong}"
        repeated = max(Counter(dim % rank for dim in call[dims]).values(), default=1) > 1
        return f"{dims}: expected each dimension once, got {extents(call[dims])}" if repeated else None

    return rule(f"dimensions of self, each once: {dims}", complain)


def _reduced_shape(dims: str, keep: str) -> Check:
    def complain(call: Call) -> str | None:
        expected, got = _reduced(call, dims, keep), call["out"].shape
        # A single number fits whatever has one element.
        if got == expected or call["self"].size == 0 or math.prod(expected) == math.prod(got) == 1:
            return None
        return f"out: expected shape {extents(expected)} (self reduced over {dims}), got {extents(got)}"

    return rule("reduced shape: out", complain)


def _listed(dtypes: Collection[D]) -> Check:
    allowed = where_supported(dtypes)

    def complain(call: Call) -> str | None:
        return (
            None
            if call["dtype"] in allowed(call.product)
            else (f"dtype: expected a data type that {call.operator.function} takes, got {call['dtype'].c_name}")
        )

    return rule("data type: dtype", complain)


def _of_dtype(call: Call) -> str | None:
    dtype, out = call["dtype"], call["out"].dtype
    return None if out == dtype else f"out: expected data type {dtype.c_name} (the argument dtype), got {out.c_name}"


def _converts(call: Call) -> str | None:
    mine, dtype = call["self"].dtype, call["dtype"]
    return (
        None
        if castable(mine, dtype)
        else (f"self: expected a data type that converts to {dtype.c_name} (the argument dtype), got {mine.c_name}")
    )


def _sum(values: Any, axes: Shape | None) -> Any:
    if values.dtype == np.bool_:
        return values.any(axis=axes)
    # In float64, rounded once: sums in float32 would depend on the layout.
    return values.sum(axis=axes, dtype=np.float64 if values.dtype == np.float32 else values.dtype)


def _mean(values: Any, axes: Shape | None) -> Any:
    total = np.asarray(_sum(values, axes))
    count = np.asarray(values.size // max(total.size, 1), total.dtype)
    return total // count if total.dtype.kind in "iu" else total / count


def _over_dims(
    name: str,
    dims: str,
    keep: str,
    summary: str,
    formula: str,
    function: Callable[[Any, Shape | None], Any],
    checks: tuple[Check, ...],
    dtypes: Collection[D],
) -> Operator:
    def work(call: Call) -> Library | None:
        axes, shape = _axes(call, dims), call["out"].shape
        if call["out"].size == 0:
            return None
        return Library(
            lambda self: np.reshape(function(self, axes), shape) if self.size else function(self, None),
            ("self",),
            ("out",),
            call["dtype"],
        )

    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula=formula,
        parameters=(
            _SELF,
            Parameter(dims, dims, Kind.INT_ARRAY, "the dimensions to reduce; none: all"),
            Parameter(keep, keep, Kind.BOOL, "keep reduced dimensions, of one element each"),
            Parameter("dtype", "dtype", Kind.DTYPE, "in which to compute"),
            _OUT,
        ),
        support=support(dtypes),
        checks=checks,
        work=work,
        in_header_of=name,
    )


def _extreme(name: str, summary: str, function: Callable[[Any], Any]) -> Operator:
    dtypes = (*REAL_FLOATING, *INTEGERS, D.BOOL)
    single = rule(
        "one element: out",
        lambda call: (
            None
            if call["out"].size == 1 or not call["self"].size * call["out"].size
            else f"out: expected one element, got shape {extents(call['out'].shape)}"
        ),
    )
    return library_operator(
        name,
        f"out = {name}(self)",
        summary,
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(dtypes), "self", "out"),
            limited_dims("self", "out"),
            single,
        ),
        function,
        header=name,
        dtypes=dtypes,
        empty=("self",),
    )


_NORMED = (D.FLOAT, D.FLOAT16, D.BF16)
_ORDERS = (0.0, 1.0, 2.0, 3.0, math.inf, -math.inf)
# What stands for infinity in single precision.
_LIMITS = {float(np.float32(2**31 - 1)): math.inf, float(np.float32(-(2**31))): -math.inf}


def _order(call: Call) -> float:
    given = float(np.float32(call["ord"].value.real))
    return _LIMITS.get(given, given)


def _known_order(call: Call) -> str | None:
    got = _order(call)
    return None if got in _ORDERS else f"ord: expected 0, 1, 2, 3, inf or -inf, got {got}"


def _norm(values: Any, axes: Shape, order: float) -> Any:
    magnitudes = np.abs(values.astype(np.float64))
    if order == 0:
        return np.count_nonzero(magnitudes, axis=axes)
    if math.isinf(order):
        return magnitudes.max(axes) if order > 0 else magnitudes.min(axes)
    if order == 1:
        return magnitudes.sum(axes)
    return np.sqrt(np.square(magnitudes).sum(axes)) if order == 2 else np.cbrt((magnitudes**3).sum(axes))


def _norm_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    if call["self"].size == 0:
        return Library(lambda: 0, (), ("out",))
    axes, shape, order = _axes(call, "dims"), call["out"].shape, _order(call)
    return Library(lambda self: np.reshape(_norm(self, axes, order), shape), ("self",), ("out",))


_INDEXED = (*REAL_FLOATING, *INTEGERS)


def _arg_shape(call: Call) -> str | None:
    shape, got = call["self"].shape, call["out"].shape
    axis = call["dim"] % max(len(shape), 1)
    kept = (1,) if call["keepdim"] and shape else ()
    expected = (*shape[:axis], *kept, *shape[axis + 1 :])
    if got == expected or call["self"].size * call["out"].size == 0 or math.prod(expected) == math.prod(got) == 1:
        return None
    return f"out: expected shape {extents(expected)} (self without dim), got {extents(got)}"


def _arg_dim(call: Call) -> str | None:
    rank = max(len(call["self"].shape), 1)
    return None if -rank <= call["dim"] < rank else f"dim: expected from {-rank} to {rank - 1}, got {call['dim']}"


def _arg_max_work(call: Call) -> Library | None:
    if call["self"].size * call["out"].size == 0:
        return None
    axis, shape = call["dim"], call["out"].shape
    return Library(lambda self: np.reshape(np.atleast_1d(self).argmax(axis), shape), ("self",), ("out",))


_MEANT = (*REAL_FLOATING, *INTEGERS, *COMPLEX)

OPERATORS = (
    _over_dims(
        "reduce_sum",
        "dims",
        "keepDims",
        "Sum over some dimensions.",
        "out = sum of self over dims",
        _sum,
        (
            present("self", "dims", "out"),
            dtype_in(where_supported(NUMBERS), "self", "out"),
            _listed(NUMBERS),
            rule("data type dtype: out", _of_dtype),
            limited_dims("self"),
            _valid_dims("dims"),
            _reduced_shape("dims", "keepDims"),
        ),
        NUMBERS,
    ),
    _over_dims(
        "mean",
        "dim",
        "keepDim",
        "Mean over some dimensions.",
        "out = sum of self over dim / number of elements summed",
        _mean,
        (
            present("self", "dim", "out"),
            dtype_in(where_supported(_MEANT), "self"),
            _listed(_MEANT),
            dtype_in(where_supported(_MEANT), "out"),
            rule("converts to dtype: self", _converts),
            castable_from(lambda call: call["dtype"], "out"),
            _valid_dims("dim"),
            limited_dims("self", "out"),
            _reduced_shape("dim", "keepDim"),
        ),
        _MEANT,
    ),
    # NaN is both the least and the greatest number.
    _extreme("min", "Least element.", np.min),
    _extreme("max", "Greatest element.", np.max),
    Operator(
        name="linalg_vector_norm",
        function=camel("linalg_vector_norm"),
        summary="The norm of the vectors along some dimensions.",
        formula="out = (sum of |self|^ord over dims)^(1/ord)",
        parameters=(
            _SELF,
            Parameter("ord", "ord", Kind.SCALAR, "the order: 0, 1, 2, 3, inf or -inf"),
            Parameter("dims", "dims", Kind.INT_ARRAY, "the dimensions to reduce; none: all"),
            Parameter("keepDims", "keep_dims", Kind.BOOL, "keep reduced dimensions, of one element each"),
            Parameter("dtype", "dtype", Kind.DTYPE, "that of out"),
            _OUT,
        ),
        support=support(_NORMED),
        checks=(
            present("self", "ord", "dims", "out"),
            dtype_in(where_supported(_NORMED), "self", "out"),
            rule("data type dtype: out", _of_dtype),
            rule(
                "FLOAT or that of self: dtype",
                lambda call: (
                    None
                    if call["dtype"] in (D.FLOAT, call["self"].dtype)
                    else f"dtype: expected ACL_FLOAT or {call['self'].dtype.c_name} (that of self), "
                    f"got {call['dtype'].c_name}"
                ),
            ),
            _valid_dims("dims"),
            limited_dims("self", "out"),
            _reduced_shape("dims", "keepDims"),
            rule("known order: ord", _known_order),
        ),
        work=_norm_work,
        in_header_of="linalg_vector_norm",
    ),
    Operator(
        name="arg_max",
        function=camel("arg_max"),
        summary="Where the greatest elements along a dimension are; the first of equals.",
        formula="out = index along dim of the greatest element of self",
        parameters=(
            _SELF,
            Parameter("dim", "dim", Kind.INT64, "the dimension"),
            Parameter("keepdim", "keepdim", Kind.BOOL, "keep the dimension, of one element"),
            _OUT,
        ),
        support=support(_INDEXED),
        checks=(
            present("self", "out"),
            dtype_in(where_supported(_INDEXED), "self"),
            dtype_in(lambda product: {D.INT32, D.INT64}, "out"),
            limited_dims("self", "out"),
            rule("dimension of self: dim", _arg_dim),
            rule("reduced shape: out", _arg_shape),
        ),
        work=_arg_max_work,
        in_header_of="argmax",
    ),
)
