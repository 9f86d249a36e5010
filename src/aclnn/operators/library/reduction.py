"""Sums, means, variances, norms, products, extremes and where these are, over some dimensions; running sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    axis,
    castable_from,
    dtype_in,
    extents,
    limited_dims,
    present,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
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
    scalar,
    support,
    tensor_in,
    tensor_out,
)

_SELF, _OUT = tensor_in("self", "what is reduced"), tensor_out()
Shape = tuple[int, ...]


def _axes(call: Call, dims: str) -> Shape:
    """The dimensions to reduce, from 0 on; all of them where none is given."""
    rank, given = len(call["self"].shape), call[dims]
    listed = (given,) if isinstance(given, int) else given
    return tuple(dim % rank for dim in listed if rank) or tuple(range(rank))


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


def _reduced_shape(dims: str, keep: str, *names: str) -> Check:
    def complain(call: Call) -> str | None:
        expected = _reduced(call, dims, keep)
        for name in names or ("out",):
            got = call[name].shape
            # A single number fits whatever has one element.
            if got != expected and call["self"].size and not math.prod(expected) == math.prod(got) == 1:
                return f"{name}: expected shape {extents(expected)} (self reduced over {dims}), got {extents(got)}"
        return None

    return rule(f"reduced shape: {', '.join(names or ('out',))}", complain)


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


_SINGLE = rule(
    "one element: out",
    lambda call: (
        None
        if call["out"].size == 1 or not call["self"].size * call["out"].size
        else f"out: expected one element, got shape {extents(call['out'].shape)}"
    ),
)


def _extreme(name: str, summary: str, function: Callable[[Any], Any]) -> Operator:
    dtypes = (*REAL_FLOATING, *INTEGERS, D.BOOL)
    return library_operator(
        name,
        f"out = {name}(self)",
        summary,
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(dtypes), "self", "out"),
            limited_dims("self", "out"),
            _SINGLE,
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
    if order == 2:
        return np.sqrt(np.square(magnitudes).sum(axes))
    powers = (magnitudes**order).sum(axes)
    return np.cbrt(powers) if order == 3 else powers ** (1 / order)


def _norm_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    if call["self"].size == 0:
        return Library(lambda: 0, (), ("out",))
    axes, shape, order = _axes(call, "dims"), call["out"].shape, _order(call)
    return Library(lambda self: np.reshape(_norm(self, axes, order), shape), ("self",), ("out",))


_INDEXED = (*REAL_FLOATING, *INTEGERS)


def _extreme_place(name: str, header: str, word: str) -> Operator:
    """Where the greatest or the least elements are."""

    def work(call: Call) -> Library | None:
        if call["self"].size * call["out"].size == 0:
            return None
        place, dim, shape = getattr(np, name.replace("_", "")), call["dim"], call["out"].shape
        return Library(lambda self: np.reshape(place(np.atleast_1d(self), dim), shape), ("self",), ("out",))

    return Operator(
        name=name,
        function=camel(name),
        summary=f"Where the {word} elements along a dimension are; the first of equals.",
        formula=f"out = index along dim of the {word} element of self",
        parameters=(_SELF, *_ALONG, _OUT),
        support=support(_INDEXED),
        checks=(
            present("self", "out"),
            dtype_in(where_supported(_INDEXED), "self"),
            dtype_in(lambda product: {D.INT32, D.INT64}, "out"),
            limited_dims("self", "out"),
            axis("dim", "self"),
            _reduced_shape("dim", "keepdim"),
        ),
        work=work,
        in_header_of=header,
    )


def _reduction(
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
) -> Operator:
    """A reduction over the parameter that begins with ``dim``.

    Args:
        name: in snake case.
        summary: one sentence.
        formula: as text.
        parameters: after self.
        function: of an array, axes and other attributes, in order; an array or one for each output, in any shape.
        dtypes: of self.
        results: of the first output.
        more: checks of attributes.
        skips_empty: nothing is written if self is empty.
        dtype: in which to compute.
    """
    outputs = [each.name for each in parameters if each.kind is Kind.OUTPUT]
    dims = next(each for each in parameters if each.name.startswith("dim"))
    keep = next(each.name for each in parameters if each.name.lower() == "keepdim")
    attributes = [
        each.name for each in parameters if each.name not in (dims.name, keep, "dtype") and each.kind is not Kind.OUTPUT
    ]
    alone = dims.kind is Kind.INT64
    objects = [each.name for each in parameters if each.kind in (Kind.SCALAR, Kind.INT_ARRAY)]

    def work(call: Call) -> Library | None:
        if call[outputs[0]].size == 0 or (skips_empty and call["self"].size == 0):
            return None
        axes, shapes = _axes(call, dims.name), [call[each].shape for each in outputs]
        values = [call[each] for each in attributes]

        def compute(self: Any) -> tuple[Any, ...]:
            found = function(self, axes, *values)
            results = found if isinstance(found, tuple) else (found,)
            return tuple(np.reshape(each, shape) for each, shape in zip(results, shapes, strict=True))

        return Library(compute, ("self",), tuple(outputs), None if dtype is None else dtype(call))

    return Operator(
        name=name,
        function=camel(name),
        summary=summary,
        formula=formula,
        parameters=(_SELF, *parameters),
        support=support(dtypes),
        checks=(
            present("self", *objects, *outputs),
            dtype_in(where_supported(dtypes), "self"),
            dtype_in(where_supported(results), outputs[0]),
            *more,
            limited_dims("self"),
            axis(dims.name, "self") if alone else _valid_dims(dims.name),
            _reduced_shape(dims.name, keep, *outputs),
        ),
        work=work,
        in_header_of=name,
    )


def _wide_moments(values: Any, axes: Shape, correction: int) -> tuple[Any, Any]:
    """Variance and mean; nothing to divide by makes NaN, or infinity."""
    wide = values.astype(np.float64)
    count = math.prod(values.shape[each] for each in axes)
    mean = wide.sum(axes, keepdims=True) / np.float64(count)
    deviations = np.square(wide - mean).sum(axes)
    return deviations / np.float64(max(count - correction, 0)), mean


def _deviations(values: Any, axes: Shape, correction: int) -> tuple[Any, Any]:
    variance, mean = _wide_moments(values, axes, correction)
    return np.sqrt(variance), mean


def _log_sum_exp(values: Any, axes: Shape) -> Any:
    wide = values.astype(np.float64)
    greatest = wide.max(axes, keepdims=True, initial=-math.inf)
    greatest = np.where(np.isfinite(greatest), greatest, 0)
    return np.log(np.exp(wide - greatest).sum(axes, keepdims=True)) + greatest


def _product(values: Any, axes: Shape) -> Any:
    if values.dtype == np.bool_:
        return values.all(axes)
    return values.prod(axes, dtype=np.float64 if values.dtype == np.float32 else values.dtype)


def _along(place: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """The elements of which ``place`` tells the index along a dimension, and these."""

    def find(values: Any, axes: Shape) -> tuple[Any, Any]:
        if not axes:
            return values, 0
        places = np.expand_dims(place(values, axes[0]), axes[0])
        return np.take_along_axis(values, places, axes[0]), places

    return find


def _running(name: str, title: str, axis_name: str, kind: Kind, function: Callable[..., Any]) -> Operator:
    """A running sum or product; the axis is a number or a scalar of one."""

    def place(call: Call) -> int:
        return int(call[axis_name] if kind is Kind.INT64 else call[axis_name].value)

    def valid(call: Call) -> str | None:
        rank, got = max(len(call[first].shape), 1), place(call)
        return None if -rank <= got < rank else f"{axis_name}: expected from {-rank} to {rank - 1}, got {got}"

    def work(call: Call) -> Library | None:
        if call["out"].size == 0:
            return None
        shape, along = call["out"].shape, place(call)

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
            _OUT,
        ),
        support=support(_MEANT),
        checks=(
            present(first, *((axis_name,) if kind is Kind.SCALAR else ()), "out"),
            dtype_in(where_supported((*NUMBERS,)), first),
            dtype_in(where_supported(_MEANT), "out"),
            _listed(_MEANT),
            rule("data type dtype: out", _of_dtype),
            limited_dims(first),
            rule(f"dimension: {axis_name}", valid),
            same_shape("out", first),
        ),
        work=work,
        in_header_of=name,
    )


_DIM = Parameter("dim", "dim", Kind.INT_ARRAY, "the dimensions to reduce; none: all")
_ONE_DIM = Parameter("dim", "dim", Kind.INT64, "the dimension")
_DTYPE = Parameter("dtype", "dtype", Kind.DTYPE, "that of out, in which to compute")
_CORRECTION = Parameter("correction", "correction", Kind.INT64, "what is subtracted from the number of elements")


def _kept(name: str) -> Parameter:
    return Parameter(name, name, Kind.BOOL, "keep reduced dimensions, of one element each")


_ALONG = (_ONE_DIM, _kept("keepdim"))
_REAL = (*REAL_FLOATING, *INTEGERS, D.BOOL)
_TRUTH = (D.BOOL, D.UINT8)


def _spread(
    name: str, words: str, formula: str, outputs: tuple[Parameter, ...], function: Callable[..., Any]
) -> Operator:
    return _reduction(
        name,
        f"{words} over some dimensions.",
        formula,
        (_DIM, _CORRECTION, _kept("keepdim"), *outputs),
        function,
        REAL_FLOATING,
        REAL_FLOATING,
    )


_VARIANCE = "sum of (self - mean)^2 over dim / (number of elements - correction)"
_MEAN_OUT = tensor_out("meanOut", "the means")

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
    _extreme_place("arg_max", "argmax", "greatest"),
    _extreme_place("arg_min", "argmin", "least"),
    *(
        _reduction(
            f"a{name}",
            f"{word.capitalize()} elements over some dimensions.",
            f"out = {name} of self over dim",
            (_DIM, _kept("keepDim"), _OUT),
            function,
            _REAL,
            _REAL,
            (same_dtype("out", "self"),),
            skips_empty=True,
        )
        for name, word, function in (("max", "greatest", np.max), ("min", "least", np.min))
    ),
    *(
        _reduction(
            f"{name}_dim",
            f"{word.capitalize()} elements along a dimension, and where they are; the first of equals.",
            f"out, indices = {name} of self along dim, its index",
            (*_ALONG, _OUT, tensor_out("indices", "where they are; INT32 or INT64")),
            _along(place),
            _REAL,
            _REAL,
            (same_dtype("out", "self"), dtype_in(lambda product: {D.INT32, D.INT64}, "indices")),
            skips_empty=True,
        )
        for name, word, place in (("max", "greatest", np.argmax), ("min", "least", np.argmin))
    ),
    _reduction(
        "any",
        "Whether any element is not zero.",
        "out = some of self over dim is not 0",
        (_DIM, _kept("keepdim"), _OUT),
        np.any,
        NUMBERS,
        _TRUTH,
    ),
    _reduction(
        "all",
        "Whether all elements are not zero.",
        "out = none of self over dim is 0",
        (_DIM, _kept("keepdim"), _OUT),
        np.all,
        NUMBERS,
        _TRUTH,
    ),
    _reduction(
        "log_sum_exp",
        "Logarithms of sums of exponentials.",
        "out = ln(sum of e^self over dim)",
        (_DIM, _kept("keepDim"), _OUT),
        _log_sum_exp,
        _REAL,
        REAL_FLOATING,
    ),
    _reduction(
        "norm",
        "Norms of the vectors along some dimensions.",
        "out = (sum of |self|^p over dim)^(1/p)",
        (scalar("pScalar", "the order"), _DIM, _kept("keepdim"), _OUT),
        lambda values, axes, order: _norm(values, axes, float(order.value.real)) if values.size else 0,
        REAL_FLOATING,
        REAL_FLOATING,
    ),
    _spread(
        "std",
        "Standard deviations",
        f"out = sqrt({_VARIANCE})",
        (_OUT,),
        lambda values, axes, correction: np.sqrt(_wide_moments(values, axes, correction)[0]),
    ),
    _spread(
        "var_correction",
        "Variances",
        f"out = {_VARIANCE}",
        (_OUT,),
        lambda values, axes, correction: _wide_moments(values, axes, correction)[0],
    ),
    _spread(
        "std_mean_correction",
        "Standard deviations and means",
        f"stdOut, meanOut = sqrt({_VARIANCE}), mean",
        (tensor_out("stdOut", "the deviations"), _MEAN_OUT),
        _deviations,
    ),
    _spread(
        "var_mean",
        "Variances and means",
        f"varOut, meanOut = {_VARIANCE}, mean",
        (tensor_out("varOut", "the variances"), _MEAN_OUT),
        _wide_moments,
    ),
    library_operator(
        "prod",
        "out = product of self",
        "Product of all elements.",
        (_SELF, _DTYPE, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(NUMBERS), "self", "out"),
            _listed(NUMBERS),
            rule("data type dtype: out", _of_dtype),
            limited_dims("self"),
            _SINGLE,
        ),
        lambda self: _product(self, tuple(range(self.ndim))),
        header="prod",
        dtype=lambda call: call["dtype"],
    ),
    _reduction(
        "prod_dim",
        "Products along a dimension.",
        "out = product of self along dim",
        (_ONE_DIM, _kept("keepDim"), _DTYPE, _OUT),
        _product,
        NUMBERS,
        NUMBERS,
        (_listed(NUMBERS), rule("data type dtype: out", _of_dtype)),
        dtype=lambda call: call["dtype"],
    ),
    _running("cumsum", "sums", "dim", Kind.INT64, np.cumsum),
    _running("cumprod", "products", "axis", Kind.SCALAR, np.cumprod),
)
