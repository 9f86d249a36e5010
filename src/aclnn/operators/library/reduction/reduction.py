"""Sums, means, variances, norms and products over some dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    castable_from,
    dims_between,
    dtype_in,
    elsewhere,
    fits,
    has_zero,
    limited_dims,
    listing,
    on,
    public_format,
    rule,
    same_dtype,
    same_format,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import castable
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    WITH_INFERENCE,
    library_operator,
    on_950,
    scalar,
    support,
    tensor_out,
)
from aclnn.operators.library.reduction.dimensions import (
    DIM,
    DIMS,
    NO_AXES,
    OUT,
    SELF,
    Shape,
    axes_of,
    kept,
    listed_dtype,
    of_dtype,
    one_element,
    reduced_shape,
    reduction,
    valid_dims,
)


def _complex_result_of_empty(call: Call) -> str | None:
    got = call["out"].dtype
    if got not in COMPLEX or not has_zero(call["self"].shape):
        return None
    return f"out: expected a real data type where self has no elements, got {got.c_name}"


_REAL_OF_NOTHING = rule("real where self is empty: out", _complex_result_of_empty)


def _sum(values: Any, axes: Shape | None) -> Any:
    if values.dtype == np.bool_:
        return values.any(axis=axes)
    # In float64, rounded once: sums in float32 would depend on the layout.
    return values.sum(axis=axes, dtype=np.float64 if values.dtype == np.float32 else values.dtype)


def _mean(values: Any, axes: Shape | None) -> Any:
    total = np.asarray(_sum(values, axes))
    count = np.asarray(values.size // max(total.size, 1), total.dtype)
    return total // count if total.dtype.kind in "iu" else total / count


_IN_WHICH = Parameter("dtype", "dtype", Kind.DTYPE, "the data type to compute in")


def _over_dims(
    name: str,
    dims: str,
    keep: str,
    summary: str,
    formula: str,
    function: Callable[[Any, Shape | None], Any],
    checks: tuple[Check, ...],
    dtypes: Collection[D],
    products: Collection[Product] = WITH_INFERENCE,
    last: Parameter = _IN_WHICH,
    header: str | None = None,
) -> Operator:
    def work(call: Call) -> Library | None:
        axes, shape = axes_of(call, dims), call["out"].shape
        if call["out"].size == 0:
            return None
        return Library(
            lambda self: np.reshape(function(self, axes), shape) if self.size else function(self, None),
            ("self",),
            ("out",),
            call.arguments.get("dtype"),
        )

    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(
            SELF,
            Parameter(dims, dims, Kind.INT_ARRAY, "the dimensions to reduce; empty: all dimensions"),
            Parameter(keep, keep, Kind.BOOL, "keep the reduced dimensions with size 1"),
            last,
            OUT,
        ),
        support=support(dtypes, products),
        checks=checks,
        work=work,
        in_header_of=header,
    )


_NORMED = FLOATING
# What stands for infinity in single precision.
_LIMITS = {float(np.float32(2**31 - 1)): math.inf, float(np.float32(-(2**31))): -math.inf}


def _order(call: Call) -> float:
    with np.errstate(over="ignore"):
        given = float(np.float32(call["ord"].value.real))
    return _LIMITS.get(given, given)


def _norm(values: Any, axes: Shape, order: float) -> Any:
    wide = values.astype(np.float64)
    if order == 2:
        return np.sqrt(np.square(wide).sum(axes))
    magnitudes = np.abs(wide)
    if order == 0:
        return np.count_nonzero(magnitudes, axis=axes)
    if math.isinf(order):
        return magnitudes.max(axes) if order > 0 else magnitudes.min(axes)
    if order == 1:
        return magnitudes.sum(axes)
    powers = (magnitudes**order).sum(axes)
    return np.cbrt(powers) if order == 3 else powers ** (1 / order)


def _norm_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    if call["self"].size == 0:
        return Library(lambda: 0, (), ("out",))
    axes, shape, order = axes_of(call, "dims"), call["out"].shape, _order(call)
    return Library(lambda self: np.reshape(_norm(self, axes, order), shape), ("self",), ("out",))


def _wide_moments(values: Any, axes: Shape, correction: int) -> tuple[Any, Any]:
    """Return variance and mean; with a divisor of 0 the variance is infinity, or NaN for at most one element."""
    wide = values.astype(np.float64)
    count = math.prod(values.shape[each] for each in axes)
    mean = wide.sum(axes, keepdims=True) / np.float64(count)
    deviations = np.square(wide - mean).sum(axes)
    if 1 < count <= correction:
        return np.full_like(deviations, math.inf), mean
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


_DTYPE = Parameter("dtype", "dtype", Kind.DTYPE, "the data type of out, used for computing")
_CORRECTION = Parameter(
    "correction", "correction", Kind.INT64, "the correction, subtracted from the number of elements"
)


_TRUTH = (D.BOOL, D.UINT8)


def _spread(
    name: str,
    words: str,
    formula: str,
    outputs: tuple[Parameter, ...],
    function: Callable[..., Any],
    more: tuple[Check, ...] = (),
    correction: Parameter = _CORRECTION,
    newer: Collection[D] = (),
) -> Operator:
    """Declare a function of deviations from the mean; only the 950 class takes the data types in ``newer``."""
    dtypes = tuple(dtype for dtype in FLOATING if dtype not in newer)
    return reduction(
        name,
        f"{words} over some dimensions.",
        formula,
        (replace(DIMS, meaning="the dimensions to reduce; empty or null: all dimensions", optional=True),)
        + (correction, kept("keepdim"), *outputs),
        function,
        dtypes,
        dtypes,
        (*(dtype_in(on_950(newer, dtypes), each.name) for each in outputs[1:]), *more),
        header=name.replace("var_correction", "var"),
        more_on_950=newer,
        exact=True,
    )


_VARIANCE = "sum of (self - mean)^2 over dim / (number of elements - correction)"
_MEAN_OUT = tensor_out("meanOut", "the means")

_SUMMED = (*FLOATING, *INTEGERS, D.BOOL)


def _summed(product: Product) -> Collection[D]:
    """Return the data types of aclnnReduceNansum; the 950 class takes only types that have a NaN."""
    return FLOATING if product in CLASS_950 else where_supported(_SUMMED)(product)


_MEANT = (*REAL_FLOATING, *INTEGERS, *COMPLEX)

_SINGLE_OR_HALF = (D.FLOAT, D.FLOAT16)


def _log_sum_work(call: Call) -> Library | None:
    axes, shape, unchanged = axes_of(call, "axes"), call["out"].shape, call[NO_AXES.name] and not call["axes"]

    def log_sum(self: Any) -> Any:
        if unchanged or not self.size:
            return self if self.size else 0
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.reshape(np.log(self.sum(axis=axes, dtype=np.float64)), shape)

    return Library(log_sum, ("self",), ("out",)) if call["out"].size else None


_PLANES = (Format.FORMAT_ND, Format.FORMAT_NCHW, Format.FORMAT_NCDHW)


def _of_planes(call: Call) -> str | None:
    got = call["self"].format
    expected = listing(of.c_name for of in _PLANES)
    return None if got in _PLANES else f"self: expected format {expected}, got {got.c_name}"


def _global_pool(name: str, words: str, function: Callable[[Any], Any], dtypes: tuple[D, ...]) -> Operator:
    def over_planes(self: Any) -> Any:
        channels = self.shape[:2]
        return function(self.reshape(*channels, -1)).reshape(*channels, *(1,) * (self.ndim - 2))

    return library_operator(
        f"global_{name}_pool",
        f"out = {words} of self over all dimensions but the first two",
        f"The {words} of each channel.",
        (SELF, OUT),
        (
            dtype_in(where_supported(dtypes), "self"),
            same_dtype("out", "self"),
            same_format("out", "self"),
            rule("format of images: self", _of_planes),
            dims_between(4, 8, "self"),
            shape_is(
                "a number for each channel",
                lambda call: (*call["self"].shape[:2], *(1,) * (len(call["self"].shape) - 2)),
                "out",
            ),
        ),
        over_planes,
        dtypes=dtypes,
        stream_type="const aclrtStream ",
        empty=("self",),
    )


OPERATORS = (
    _global_pool("average", "mean", lambda values: values.mean(-1, np.float64), REAL_FLOATING),
    _global_pool("max", "greatest", lambda values: values.max(-1), (D.FLOAT, D.FLOAT16, D.DOUBLE)),
    replace(
        _over_dims(
            "reduce_log_sum",
            "axes",
            "keepDims",
            "Logarithms of sums over some dimensions.",
            "out = ln(sum of self over axes)",
            _sum,
            (
                dtype_in(on_950((D.BF16,), _SINGLE_OR_HALF), "self"),
                same_dtype("out", "self"),
                limited_dims("self"),
                valid_dims("axes"),
                reduced_shape("axes", "keepDims"),
            ),
            _SINGLE_OR_HALF,
            last=NO_AXES,
        ),
        support={
            **support(_SINGLE_OR_HALF, A2_CLASS | {Product.ATLAS_INFERENCE}),
            **support((*_SINGLE_OR_HALF, D.BF16), CLASS_950),
        },
        work=_log_sum_work,
    ),
    _over_dims(
        "reduce_sum",
        "dims",
        "keepDims",
        "Sum over some dimensions.",
        "out = sum of self over dims",
        _sum,
        (
            dtype_in(where_supported(NUMBERS), "self", "out"),
            listed_dtype(NUMBERS),
            rule("data type dtype: out", of_dtype),
            limited_dims("self"),
            valid_dims("dims"),
            reduced_shape("dims", "keepDims"),
            _REAL_OF_NOTHING,
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
            dtype_in(where_supported(_MEANT), "self"),
            listed_dtype(_MEANT),
            dtype_in(where_supported(_MEANT), "out"),
            fits(
                "a data type that converts to {} (the argument dtype)",
                lambda call, got: (call["dtype"], got.dtype),
                "self",
                holds=lambda dtype, got: castable(got, dtype),
            ),
            castable_from(lambda call: call["dtype"], "out"),
            valid_dims("dim"),
            limited_dims("self", "out"),
            reduced_shape("dim", "keepDim"),
            _REAL_OF_NOTHING,
        ),
        _MEANT,
    ),
    _over_dims(
        "mean_v2",
        "dim",
        "keepDim",
        "Mean over some dimensions.",
        "out = sum of self over dim / number of elements summed",
        _mean,
        (
            dtype_in(where_supported(_MEANT), "self", "out"),
            same_dtype("out", "self"),
            valid_dims("dim"),
            limited_dims("self", "out"),
            reduced_shape("dim", "keepDim"),
            _REAL_OF_NOTHING,
        ),
        _MEANT,
        last=NO_AXES,
        header="mean",
    ),
    _over_dims(
        "reduce_nansum",
        "dim",
        "keepDim",
        "Sum over some dimensions, ignoring NaN.",
        "out = sum of self over dim, 0 for NaN",
        lambda values, axes: _sum(np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values, axes),
        (
            dtype_in(_summed, "self", "out"),
            listed_dtype(_summed),
            rule("data type dtype: out", of_dtype),
            limited_dims("self"),
            valid_dims("dim"),
            reduced_shape("dim", "keepDim"),
        ),
        _SUMMED,
        MODERN,
    ),
    Operator(
        name="linalg_vector_norm",
        summary="Vector norm over some dimensions.",
        formula="out = (sum of |self|^ord over dims)^(1/ord)",
        parameters=(
            SELF,
            Parameter("ord", "ord", Kind.SCALAR, "the order of the norm"),
            Parameter("dims", "dims", Kind.INT_ARRAY, "the dimensions to reduce; empty: all dimensions"),
            Parameter("keepDims", "keep_dims", Kind.BOOL, "keep the reduced dimensions with size 1"),
            Parameter("dtype", "dtype", Kind.DTYPE, "the data type of out"),
            OUT,
        ),
        support=support(_NORMED),
        checks=(
            dtype_in(where_supported(_NORMED), "self", "out"),
            rule("data type dtype: out", of_dtype),
            rule(
                "FLOAT or that of self: dtype",
                lambda call: (
                    None
                    if call["dtype"] in (D.FLOAT, call["self"].dtype)
                    else f"dtype: expected ACL_FLOAT or {call['self'].dtype.c_name} (that of self), "
                    f"got {call['dtype'].c_name}"
                ),
            ),
            valid_dims("dims"),
            limited_dims("self", "out"),
            reduced_shape("dims", "keepDims"),
        ),
        work=_norm_work,
    ),
    reduction(
        "any",
        "Test whether any element is nonzero.",
        "out = any(self != 0) over dim",
        (DIMS, kept("keepdim"), OUT),
        np.any,
        REAL,
        _TRUTH,
    ),
    reduction(
        "all",
        "Test whether all elements are nonzero.",
        "out = all(self != 0) over dim",
        (DIMS, kept("keepdim"), OUT),
        np.all,
        REAL,
        _TRUTH,
        (public_format("self", "out"),),
        exact=True,
    ),
    reduction(
        "log_sum_exp",
        "Logarithm of the sum of exponentials over some dimensions.",
        "out = ln(sum of e^self over dim)",
        (DIMS, kept("keepDim"), OUT),
        _log_sum_exp,
        (*FLOATING, *INTEGERS, D.BOOL),
        FLOATING,
        on(CLASS_950, public_format("self", "out")),
        header="logsumexp",
        exact=True,
    ),
    reduction(
        "norm",
        "Vector norm over some dimensions.",
        "out = (sum of |self|^p over dim)^(1/p)",
        (scalar("pScalar", "the order of the norm"), DIMS, kept("keepdim"), OUT),
        lambda values, axes, order: _norm(values, axes, float(order.value.real)) if values.size else 0,
        REAL_FLOATING,
        REAL_FLOATING,
    ),
    _spread(
        "std",
        "Standard deviations",
        f"out = sqrt({_VARIANCE})",
        (OUT,),
        lambda values, axes, correction: np.sqrt(_wide_moments(values, axes, correction)[0]),
    ),
    _spread(
        "var_correction",
        "Variances",
        f"out = {_VARIANCE}",
        (OUT,),
        lambda values, axes, correction: _wide_moments(values, axes, correction)[0],
    ),
    _spread(
        "var",
        "Variances",
        f"out = {_VARIANCE.replace('correction', '1 if unbiased')}",
        (OUT,),
        lambda values, axes, unbiased: _wide_moments(values, axes, int(unbiased))[0],
        correction=Parameter("unbiased", "unbiased", Kind.BOOL, "whether to divide by the number of elements minus 1"),
    ),
    _spread(
        "std_mean_correction",
        "Standard deviations and means",
        f"stdOut, meanOut = sqrt({_VARIANCE}), mean",
        (tensor_out("stdOut", "the standard deviations"), _MEAN_OUT),
        _deviations,
        elsewhere(CLASS_950, same_dtype("stdOut", "self"), same_dtype("meanOut", "self")),
    ),
    _spread(
        "var_mean",
        "Variances and means",
        f"varOut, meanOut = {_VARIANCE}, mean",
        (tensor_out("varOut", "the variances"), _MEAN_OUT),
        _wide_moments,
        newer=(D.BF16,),
    ),
    library_operator(
        "prod",
        "out = product of self",
        "Product of all elements.",
        (SELF, _DTYPE, OUT),
        (
            dtype_in(where_supported(NUMBERS), "self", "out"),
            listed_dtype(NUMBERS),
            rule("data type dtype: out", of_dtype),
            limited_dims("self"),
            one_element("out"),
            _REAL_OF_NOTHING,
        ),
        lambda self: _product(self, tuple(range(self.ndim))),
        dtype=lambda call: call["dtype"],
    ),
    reduction(
        "prod_dim",
        "Products along a dimension.",
        "out = product of self over dim",
        (DIM, kept("keepDim"), _DTYPE, OUT),
        _product,
        NUMBERS,
        NUMBERS,
        header="prod",
        more=(listed_dtype(NUMBERS), rule("data type dtype: out", of_dtype)),
        dtype=lambda call: call["dtype"],
    ),
)
