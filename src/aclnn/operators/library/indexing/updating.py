"""Rows and stretches replaced by their indices (aclnnScatterNd, aclnnInplaceScatterUpdate, aclnnScatterList …)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    MOST_DIMS,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    not_empty,
    one_of,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    size_is,
    unless_empty,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
)
from aclnn.operators.library.common import (
    INDEX_TYPES,
    MODERN,
    WITH_INFERENCE,
    attribute,
    expect_within,
    library_operator,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.lists import each_of, not_null, of_types
from aclnn.operators.library.quantization.quantization import quantized

_UPDATE, _SCATTER = ("varRef", "indices", "updates"), ("data", "indices", "updates")
_UPDATED_BEFORE = (D.FLOAT, D.FLOAT16, D.BOOL)
_UPDATED = {
    **support((*_UPDATED_BEFORE, D.BF16, D.INT8, D.INT16, D.INT32, D.INT64), A2_CLASS),
    **support((*_UPDATED_BEFORE, D.BF16, D.INT8, D.UINT8, D.INT64), CLASS_950),
}
_SCATTERED = (*_UPDATED_BEFORE, D.BF16)
_MOST_INDEXED = 7


def _elements(call: Call) -> tuple[int, ...]:
    shape: tuple[int, ...] = call[call.operator.parameters[0].name].shape
    return shape


def _depth(call: Call) -> int:
    """Return the number of indexed dimensions of the elements."""
    return int((call["indices"].shape or (0,))[-1])


def _depth_fits(most: int) -> Check:
    def violation(call: Call) -> str | None:
        limit, got = min(most, len(_elements(call))), _depth(call)
        return None if 1 <= got <= limit else f"indices: expected from 1 to {limit} in the last dimension, got {got}"

    return rule("indices of so many dimensions: indices", violation)


def _updates_shape(call: Call) -> tuple[int, ...]:
    return (*call["indices"].shape[:-1], *_elements(call)[_depth(call) :])


_FITTING_UPDATES = shape_is("rows for all indices", _updates_shape, "updates")


def _updated(values: Any, indices: Any, updates: Any) -> Any:
    extent_of = values.shape[: indices.shape[-1]]
    outside = np.argwhere((indices < 0) | (indices >= extent_of))
    if len(outside):
        at = outside[0].tolist()
        raise IndexError(f"indices{at}: expected from 0 to {extent_of[at[-1]] - 1}, got {indices[tuple(at)]}")
    result = values.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _update_work(call: Call) -> Library | None:
    return Library(_updated, _UPDATE, _UPDATE[:1]) if all(call[name].size for name in _UPDATE) else None


_SLID = ("data", "indices", "updates")
_SLID_BEFORE = (D.INT8, D.FLOAT16, D.FLOAT, D.INT32)
_SLIDING = {
    **support((*_SLID_BEFORE, D.BF16), A2_CLASS | {Product.ATLAS_TRAINING}),
    **support((*_SLID_BEFORE, D.BF16, D.UINT8), CLASS_950),
}


def _as_many_dims(of: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        expected, shape = len(call[of].shape), call[name].shape
        if len(shape) == expected:
            return None
        return f"expected {expected} dimensions (those of {of}), got {len(shape)}: {extents(shape)}"

    return each(f"as many dimensions as {of}", ("updates",), violation)


def _single_sample(call: Call, name: str) -> str | None:
    shape = call[name].shape
    if call["indices"].shape or shape[:1] == (1,):
        return None
    return f"expected 1 in the first dimension, as indices has none, got {extents(shape)}"


def _axis_beyond_samples(of: str) -> Check:
    def violation(call: Call) -> str | None:
        rank, got = len(call[of].shape), call["axis"]
        return None if 0 < abs(got) < rank else f"axis: expected from {1 - rank} to {rank - 1}, and not 0, got {got}"

    return rule("a dimension but the first: axis", violation)


def _an_index_each(call: Call, name: str) -> str | None:
    samples, got = call["updates"].shape[0], call[name].shape
    if not got or got in ((samples,), (samples, 2)):
        return None
    return f"expected shape [{samples}] or [{samples}, 2] (rows of updates), got {extents(got)}"


def _fits_along_axis(of: str) -> Check:
    return each(f"shape within {of}", ("updates",), lambda call, name: _exceeds(call, of, call[name].shape))


def _exceeds(call: Call, of: str, got: Sequence[int]) -> str | None:
    data, along = call[of].shape, call["axis"] % len(call[of].shape)
    if all(
        mine <= its if at in (0, along) else mine == its for at, (mine, its) in enumerate(zip(got, data, strict=True))
    ):
        return None
    return f"expected the shape of {of}, {extents(data)}, or less along dimensions 0 and {along}, got {extents(got)}"


def _slid(data: Any, indices: Any, updates: Any, axis: int) -> Any:
    """Return data with a range of each sample replaced along an axis other than the first."""
    samples, length = len(updates), updates.shape[axis]
    places = np.broadcast_to(indices[..., -1] if indices.ndim == 2 else indices, samples)
    rows = indices[:, 0] if indices.ndim == 2 else np.arange(samples)
    expect_within("indices", rows, 0, len(data) - 1)
    expect_within("indices", places, 0, data.shape[axis] - length)
    result = np.moveaxis(data, axis, 1).copy()
    for row, place, new in zip(rows, places, np.moveaxis(updates, axis, 1), strict=True):
        result[row, place : place + length] = new
    return np.moveaxis(result, 1, axis)


def _slid_work(call: Call) -> Library:
    along = call["axis"]
    return Library(lambda data, indices, updates: _slid(data, indices, updates, along), _SLID, _SLID[:1])


_LISTED = (D.FLOAT, D.FLOAT16, D.BF16, D.INT8, D.INT16, D.INT32, D.UINT8, D.UINT16, D.UINT32)


def _type_of_updates(call: Call, name: str, at: int) -> str | None:
    expected, got = call["updates"].dtype, call[name][at].dtype
    return None if got == expected else f"expected data type {expected.c_name} (that of updates), got {got.c_name}"


def _shape_of_the_first(call: Call, name: str, at: int) -> str | None:
    expected, got = call[name][0].shape, call[name][at].shape
    return None if got == expected else f"expected shape {extents(expected)} (that of {name}[0]), got {extents(got)}"


def _stretches(call: Call) -> str | None:
    listed, got = call["varRef"], call["updates"].shape
    whole = (len(listed), *(listed[0].shape if listed else ()))
    along = call["axis"] % len(got)
    if len(got) == len(whole) and all(
        mine <= its if at == along else mine == its for at, (mine, its) in enumerate(zip(got, whole, strict=True))
    ):
        return None
    return f"updates: expected shape {extents(whole)} (of varRef), or less along dimension {along}, got {extents(got)}"


def _listed_work(call: Call) -> Library:
    names = tuple(f"varRef[{at}]" for at in range(len(call["varRef"])))
    along = call["axis"] % len(call["updates"].shape)
    given = ("indice", "updates", *(("maskOptional",) if call["maskOptional"] is not None else ()))

    def replace_stretches(*operands: Any) -> tuple[Any, ...]:
        listed, (places, updates, *mask) = operands[: len(names)], operands[len(names) :]
        results = [np.moveaxis(data, along - 1, 0).copy() for data in listed]
        starts, lengths = places.T if places.ndim == 2 else (places, np.full_like(places, updates.shape[along]))
        written = np.flatnonzero(mask[0]) if mask else np.arange(len(names))
        expect_within("indice", lengths[written], 0, updates.shape[along], "lengths")
        for at in written:
            start, length = starts[at], lengths[at]
            expect_within("indice", starts[at : at + 1], 0, len(results[at]) - length)
            results[at][start : start + length] = np.moveaxis(updates[at], along - 1, 0)[:length]
        return tuple(np.moveaxis(result, 0, along - 1) for result in results)

    return Library(replace_stretches, (*names, *given), names)


_ASSIGNED = ("varRef", "inputValue")
_LIMITS = ("begin", "end", "strides")
_AXES = "axesOptional"
_ASSIGNED_TYPES = (D.FLOAT16, D.FLOAT, D.BF16, D.INT32, D.INT64, D.DOUBLE, D.INT8)


def _axes(call: Call) -> Sequence[int]:
    """The dimensions of slices: the first of varRef if none are given."""
    return range(len(call["begin"])) if call[_AXES] is None else tuple(call[_AXES])


def _equal_limits(call: Call) -> str | None:
    expected = len(call["begin"])
    name = next((name for name in (*_LIMITS, _AXES) if call[name] is not None and len(call[name]) != expected), None)
    return None if name is None else f"{name}: expected {expected} numbers (as many as begin), got {len(call[name])}"


def _axes_once(call: Call) -> str | None:
    rank, given = len(call["varRef"].shape), _axes(call)
    if all(-rank <= axis < rank for axis in given) and len({axis % rank for axis in given}) == len(given):
        return None
    return f"{_AXES}: expected dimensions from {-rank} to {rank - 1}, each once, got {extents(given)}"


def _steps_fit(call: Call) -> str | None:
    last, given = len(call["varRef"].shape) - 1, call["strides"]
    steps = dict(zip((axis % (last + 1) for axis in _axes(call)), given, strict=True))
    if all(step > 0 for step in given) and steps.get(last, 1) == 1:
        return None
    return f"strides: expected numbers of at least 1, and 1 along the last dimension, got {extents(given)}"


def _slices(call: Call) -> tuple[slice, ...]:
    taken = [slice(None)] * len(call["varRef"].shape)
    for axis, begin, end, step in zip(_axes(call), *(call[name] for name in _LIMITS), strict=True):
        taken[axis] = slice(begin, end, step)
    return tuple(taken)


def _assigned_shape(call: Call) -> tuple[int, ...]:
    return tuple(len(range(*one.indices(n))) for one, n in zip(_slices(call), call["varRef"].shape, strict=True))


def _assigned_work(call: Call) -> Library | None:
    slices = _slices(call)

    def assign(values: Any, new: Any) -> Any:
        result = values.copy()
        result[slices] = new
        return result

    return Library(assign, _ASSIGNED, _ASSIGNED[:1]) if call["inputValue"].size else None


_QUANTIZED = ("selfRef", "indices", "updates", "quantScales")
_ZERO = "quantZeroPoints"


def _quantized_types(call: Call, name: str) -> str | None:
    half = call["updates"].dtype == D.FLOAT16
    expected = (D.INT32 if name == _ZERO else D.FLOAT) if half else D.BF16
    if call[name].dtype == expected:
        return None
    beside = f"updates of {call['updates'].dtype.c_name}"
    return f"expected data type {expected.c_name} with {beside}, got {call[name].dtype.c_name}"


def _last_axis_but_one(call: Call) -> str | None:
    return None if call["axis"] == -2 else f"axis: expected -2, got {call['axis']}"


def _last_axis(call: Call) -> str | None:
    allowed, got = (-1, len(call["updates"].shape) - 1), call["quantAxis"]
    return None if got in allowed else f"quantAxis: expected -1 or {allowed[1]} (the last dimension), got {got}"


def _whole_blocks(call: Call) -> str | None:
    got = call["selfRef"].shape
    return (
        None if got[-1] % 32 == 0 else f"selfRef: expected a multiple of 32 in the last dimension, got {extents(got)}"
    )


def _quantized_work(call: Call) -> Library | None:
    if any(call[name].size == 0 for name in _QUANTIZED):
        return None
    along = call["axis"]

    def update(values: Any, indices: Any, updates: Any, scales: Any, zero: Any = None) -> Any:
        numbers = updates / scales.reshape(-1) + (0 if zero is None else zero.reshape(-1))
        return _slid(values, indices, quantized(numbers, D.INT8), along)

    return Library(update, (*_QUANTIZED, *((_ZERO,) if call[_ZERO] is not None else ())), _QUANTIZED[:1])


def _quant_scatter(name: str, supported: Mapping[Product, frozenset[D]], header: str, *mode: Parameter) -> Operator:
    return Operator(
        name=name,
        summary="Quantize updates and write them to a slice of each sample, in place.",
        formula="selfRef[i, ..., indices[i] + k, :] = round(updates[i, ..., k, :] / quantScales + quantZeroPoints)",
        parameters=(
            tensor_out("selfRef", "the quantized tensor to modify; INT8"),
            tensor_in("indices", "the start of each sample's slice; INT32 or INT64"),
            tensor_in("updates", "the new values"),
            tensor_in("quantScales", "the scales along the last dimension; FLOAT, or BF16 as updates"),
            optional_in(_ZERO, "the zero points; INT32, or BF16 as updates"),
            Parameter("axis", "axis", Kind.INT64, "-2"),
            Parameter("quantAxis", "quant_axis", Kind.INT64, "the last dimension"),
            Parameter("reduction", "reduction", Kind.INT64, "ignored: 1, replace"),
            *mode,
        ),
        support=supported,
        checks=(
            *(with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT) if mode else ()),
            present(*_QUANTIZED),
            dtype_in({D.INT8}, "selfRef"),
            dtype_in(INDEX_TYPES, "indices"),
            dtype_in(where_supported((D.FLOAT16, D.BF16)), "updates"),
            each("data types that go together", ("quantScales", _ZERO), _quantized_types),
            _as_many_dims("selfRef"),
            *(one_of(parameter.name, "rint") for parameter in mode),
            *with_code(
                ACLNN_ERR_INNER_NULLPTR,
                *unless_empty(
                    _QUANTIZED,
                    dims_between(3, 8, "selfRef"),
                    dims_between(1, 1, "indices"),
                    rule("the last dimension but one: axis", _last_axis_but_one),
                    rule("the last dimension: quantAxis", _last_axis),
                    each("an index for each sample", ("indices",), _an_index_each),
                    _fits_along_axis("selfRef"),
                    size_is(
                        "the last dimension of updates", lambda call: call["updates"].shape[-1], "quantScales", _ZERO
                    ),
                    *(() if mode else elsewhere(CLASS_950, rule("blocks of 32: selfRef", _whole_blocks))),
                    which="one",
                ),
            ),
        ),
        work=_quantized_work,
        in_header_of=header,
    )


OPERATORS = (
    library_operator(
        "scatter_nd",
        "out = data; out[indices[i, 0], indices[i, 1], ...] = updates[i]",
        "Replace elements or slices at multi-dimensional indices.",
        (
            tensor_in("data", "the elements"),
            tensor_in("indices", "indices of data's first dimensions along the last dimension; INT32 or INT64"),
            tensor_in("updates", "the values"),
            tensor_out("out", "the tensor to modify"),
        ),
        (
            dtype_in(where_supported(_SCATTERED), "data"),
            dtype_in(INDEX_TYPES, "indices"),
            same_dtype("updates", "data"),
            same_dtype("out", "data"),
            dims_between(1, MOST_DIMS, *_SCATTER),
            same_shape("out", "data"),
            _depth_fits(MOST_DIMS),
            _FITTING_UPDATES,
        ),
        _updated,
        dtypes=_SCATTERED,
        products=A2_CLASS,
    ),
    Operator(
        name="scatter_nd_update",
        summary="Replace elements or slices at multi-dimensional indices, in place.",
        formula="varRef[indices[i, 0], indices[i, 1], ...] = updates[i]",
        parameters=(
            tensor_out("varRef", "the tensor to modify"),
            tensor_in("indices", "indices of varRef's first dimensions along the last dimension; INT32 or INT64"),
            tensor_in("updates", "the values"),
        ),
        support=_UPDATED,
        checks=(
            dtype_in(lambda product: _UPDATED.get(product, _UPDATED_BEFORE), "varRef"),
            dtype_in(INDEX_TYPES, "indices"),
            same_dtype("updates", "varRef"),
            *with_code(
                ACLNN_ERR_INNER_NULLPTR,
                *unless_empty(
                    _UPDATE,
                    dims_between(1, 8, "varRef"),
                    dims_between(2, 8, "indices"),
                    _depth_fits(_MOST_INDEXED),
                    _FITTING_UPDATES,
                    which="one",
                ),
            ),
        ),
        work=_update_work,
    ),
    Operator(
        name="inplace_scatter_update",
        summary="Replace a slice of each sample along a dimension, in place.",
        formula="data[i, ..., indices[i] + k, ...] = updates[i, ..., k, ...], k along axis; "
        "sample indices[i, 0] from indices[i, 1] with two dimensions of indices",
        parameters=(
            tensor_out("data", "the tensor to modify", updated=True),
            tensor_in("indices", "the start of each sample's slice, or pairs of sample and start; INT32 or INT64"),
            tensor_in("updates", "the values"),
            Parameter("axis", "axis", Kind.INT64, "the dimension, not 0; negative ones count from the end"),
        ),
        support=_SLIDING,
        checks=(
            dtype_in(lambda product: _SLIDING.get(product, _SLID_BEFORE), "data"),
            dtype_in(INDEX_TYPES, "indices"),
            same_dtype("updates", "data"),
            not_empty(*_SLID),
            _as_many_dims("data"),
            each("one sample with a single index", ("updates",), _single_sample),
            dims_between(0, 2, "indices"),
            *with_code(
                ACLNN_ERR_INNER_NULLPTR,
                dims_between(2, 8, "data"),
                _axis_beyond_samples("data"),
                each("an index for each sample", ("indices",), _an_index_each),
                _fits_along_axis("data"),
            ),
        ),
        work=_slid_work,
        in_header_of="scatter_update",
    ),
    Operator(
        name="scatter_list",
        summary="Replace a slice of each tensor of a list along a dimension, in place.",
        formula="varRef[i][..., indice[i] + k, ...] = updates[i, ..., k, ...], k along axis; "
        "with two dimensions of indice indice[i, 1] of them from indice[i, 0]",
        parameters=(
            Parameter("varRef", "var", Kind.OUTPUT_LIST, "the tensors to modify"),
            tensor_in("indice", "the start of each slice, or pairs of start and length; INT32 or INT64"),
            tensor_in("updates", "the values"),
            optional_in("maskOptional", "a flag per tensor, 0 to leave it unchanged; UINT8"),
            Parameter("reduceOptional", "reduce", Kind.STRING, '"update", also null', optional=True),
            attribute("axis", Kind.INT64, "the dimension of updates, not 0; negative ones count from the end"),
        ),
        support=support(_LISTED, MODERN),
        checks=(
            each_of("no null among them", ("varRef",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("varRef",), of_types(_LISTED)),
            dtype_in(INDEX_TYPES, "indice"),
            each_of("data type of updates", ("varRef",), _type_of_updates),
            dtype_in({D.UINT8}, "maskOptional"),
            one_of("reduceOptional", "update"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                each_of("shape of the first", ("varRef",), _shape_of_the_first),
                not_empty("updates"),
                _axis_beyond_samples("updates"),
                rule("stretches of varRef: updates", _stretches),
                dims_between(1, 2, "indice"),
                each("an index for each sample", ("indice",), _an_index_each),
                shape_is("a flag for each tensor", lambda call: (len(call["varRef"]),), "maskOptional"),
            ),
        ),
        work=_listed_work,
    ),
    Operator(
        name="strided_slice_assign_v2",
        summary="Replace slices along dimensions, in place.",
        formula="varRef[begin[i] : end[i] : strides[i]] = inputValue along axesOptional[i], of each i",
        parameters=(
            tensor_out("varRef", "the elements, some replaced"),
            tensor_in("inputValue", "the new elements"),
            Parameter("begin", "begin", Kind.INT_ARRAY, "the first indices; negative ones count from the end"),
            Parameter("end", "end", Kind.INT_ARRAY, "the indices behind the last"),
            Parameter("strides", "strides", Kind.INT_ARRAY, "from one index to the next; 1 along the last dimension"),
            Parameter(_AXES, "axes", Kind.INT_ARRAY, "the dimensions; null: the first ones", optional=True),
        ),
        support=support(_ASSIGNED_TYPES, A2_CLASS),
        checks=(
            dtype_in(set(_ASSIGNED_TYPES), "varRef"),
            same_dtype("inputValue", "varRef"),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                dims_between(1, 8, "varRef"),
                rule("as many as begin: end, strides, axesOptional", _equal_limits),
                rule("dimensions of varRef, each once: axesOptional", _axes_once),
                rule("positive, 1 at the end: strides", _steps_fit),
                shape_is("the slices", _assigned_shape, "inputValue"),
            ),
        ),
        work=_assigned_work,
    ),
    _quant_scatter(
        "inplace_quant_scatter",
        dict.fromkeys(WITH_INFERENCE - {Product.ATLAS_TRAINING}, frozenset({D.INT8})),
        "quant_scatter",
    ),
    _quant_scatter(
        "inplace_quant_scatter_v2",
        dict.fromkeys(CLASS_950, frozenset({D.INT8})),
        "quant_scatter_v2",
        attribute("roundMode", Kind.STRING, "rint: to even"),
    ),
)
