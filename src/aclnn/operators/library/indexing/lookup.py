"""Rows of tables by their indices: aclnnEmbedding with its gradient; aclnnOneHot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    extents,
    fits,
    floating,
    limited_dims,
    one_of,
    public_format,
    rule,
    same_dtype,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    INDEX_TYPES,
    INTEGERS,
    NUMBERS,
    WITH_INFERENCE,
    WITH_TRAINING,
    add_rows,
    expect_within,
    library_operator,
    on_950,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.reduction.distances import factors

_INDEX_TYPES = (*INTEGERS, D.BOOL, D.FLOAT, D.FLOAT16, D.DOUBLE)


def _rows_of(call: Call) -> str | None:
    weight, expected, got = call["weight"].shape, call["indices"].shape, call["out"].shape
    if len(weight) == 2 and got == (*expected, weight[1]):
        return None
    if len(weight) != 2:
        return f"weight: expected 2 dimensions, got {len(weight)}: {extents(weight)}"
    return f"out: expected shape {extents((*expected, weight[1]))} (a row of weight for each index), got {extents(got)}"


def _lookup(weight: Any, indices: Any) -> Any:
    expect_within("indices", indices, 0, len(weight) - 1, "rows of weight")
    return weight[indices]


def _indices(call: Call) -> str | None:
    grad, indices = call["grad"].shape, call["indices"].size
    if not grad or grad[-1] == 0 or math.prod(grad) // grad[-1] == indices:
        return None
    return f"indices: expected {math.prod(grad) // grad[-1]} of them (the rows of grad), got {indices}"


def _accumulate(grad: Any, indices: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    flat = indices.reshape(-1)
    flat = (np.nan_to_num(flat) if flat.dtype.kind == "f" else flat).astype(np.int64)
    gradients = grad.reshape(flat.size, -1).astype(np.float64)
    counts = (flat >= 0) & (flat < rows) & (flat != padding)
    flat, gradients = flat[counts], gradients[counts]
    total = np.zeros((rows, gradients.shape[1]))
    add_rows(total, flat, gradients)
    if by_frequency:
        total /= np.maximum(np.bincount(flat, minlength=rows), 1)[:, None]
    return total


def _dense_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    if call["grad"].size == 0 or call["indices"].size == 0:
        return Library(lambda: 0, (), ("out",))
    values = call["numWeights"], call["paddingIdx"], call["scaleGradByFreq"]
    return Library(lambda grad, indices: _accumulate(grad, indices, *values), ("grad", "indices"), ("out",))


_CLASSES = on_950((D.UINT8,), (D.INT32, D.INT64))
_ENCODED = on_950((D.INT8, D.UINT8), (D.FLOAT, D.FLOAT16, D.INT32, D.INT64))
_PLACE = "from -1 to the dimensions of self"


def _one_hot_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    count, at = call["numClasses"], call["axis"]

    def encode(self: Any, on: Any, off: Any) -> Any:
        place = self.ndim if at == -1 else at
        classes = np.arange(count).reshape([-1] + [1] * (self.ndim - place))
        return np.where(np.expand_dims(self, place) == classes, on.reshape(-1)[0], off.reshape(-1)[0])

    return Library(encode, ("self", "onValue", "offValue"), ("out",))


def _one_hot_count(call: Call) -> str | None:
    least, got = int(call["self"].size == 0), call["numClasses"]
    return None if got >= least else f"numClasses: expected at least {least}, got {got}"


def _one_hot_axis(call: Call) -> str | None:
    most, got = len(call["self"].shape), call["axis"]
    return None if -1 <= got <= most else f"axis: expected from -1 to {most} (the dimensions of self), got {got}"


def _one_hot_shape(call: Call) -> tuple[int, ...]:
    shape = call["self"].shape
    at = len(shape) if call["axis"] == -1 else call["axis"]
    return (*shape[:at], call["numClasses"], *shape[at:])


def _factors(call: Call) -> str | None:
    given, shape = call["perSampleWeights"], call["indices"].shape
    if given is None or (given.shape == shape and given.dtype == call["weight"].dtype and call["mode"] == 0):
        return None
    return (
        f"perSampleWeights: expected shape {extents(shape)} (that of indices) and weight's data type, for mode 0, "
        f"got {extents(given.shape)}, {given.dtype.c_name}, mode {call['mode']}"
    )


def _bags(call: Call) -> tuple[int, ...]:
    return (max(call["offsets"].size - bool(call["includeLastOffset"]), 0), *call["weight"].shape[1:])


def _bag_sizes(call: Call) -> str | None:
    bags = _bags(call)
    counts = call["offsets"].size if call.product in CLASS_950 else bags[0]
    sizes = {"offset2bag": call["indices"].size, "bagSize": counts, "maxIndices": math.prod(bags)}
    for name, size in sizes.items():
        unread = name == "maxIndices" and call["mode"] < 2
        if not unread and call[name].size not in (0, size):
            return f"{name}: expected {size} elements or none, got shape {extents(call[name].shape)}"
    return None


def _bag_work(call: Call) -> Library | None:
    if call["output"].size == 0:
        return None
    mode, last, padding = call["mode"], call["includeLastOffset"], call["paddingIdx"]
    count, outputs = _bags(call)[0], ("output", "offset2bag", "bagSize", "maxIndices")
    written = tuple(name for name in outputs if call[name].size)
    shapes, zeros = [call[name].shape for name in written], np.zeros(call["maxIndices"].shape)

    def gather(weight: Any, indices: Any, offsets: Any, factors: Any = None) -> tuple[Any, ...]:
        expect_within("indices", indices, 0, len(weight) - 1, "rows of weight")
        expect_within("offsets", offsets, 0, len(indices))
        if offsets[0] != 0:
            raise IndexError(f"offsets: expected 0 first, got {offsets[0]}")
        starts = offsets[:count]
        bags = np.searchsorted(starts, np.arange(len(indices)), "right") - 1
        chosen = (indices != padding) & (not last or np.arange(len(indices)) < offsets[-1])
        # On Ascend 950 the last offset counts too.
        sizes = np.bincount(bags[chosen], minlength=max(count, call["bagSize"].size))
        rows = weight[indices].astype(np.float64) * (1 if factors is None else factors[:, None])
        total, places = np.zeros((count, weight.shape[1])), np.zeros((count, weight.shape[1]), np.int64)
        if mode < 2:
            add_rows(total, bags[chosen], rows[chosen])
            total /= np.maximum(sizes[:count], 1)[:, None] if mode == 1 else 1
        else:
            for bag in np.flatnonzero(sizes):
                among = np.flatnonzero(chosen & (bags == bag))
                best = among[rows[among].argmax(0)]
                total[bag], places[bag] = rows[best, np.arange(rows.shape[1])], indices[best]
        found = dict(zip(outputs, (total, bags, sizes, places if mode == 2 else zeros), strict=True))
        return tuple(np.reshape(found[name], shape) for name, shape in zip(written, shapes, strict=True))

    given = ("perSampleWeights",) if call["perSampleWeights"] is not None else ()
    return Library(gather, ("weight", "indices", "offsets", *given), written)


def _renorm(table: Any, indices: Any, longest: float, order: float) -> Any:
    expect_within("indices", indices, 0, len(table) - 1, "rows of selfRef")
    result, rows = np.array(table), np.unique(indices)
    result[rows] *= factors(table[rows], order, longest, 0)
    return result


OPERATORS = (
    Operator(
        name="one_hot",
        summary="One-hot encoding of class indices.",
        formula="out[…, j] = onValue where self = j, offValue elsewhere",
        parameters=(
            tensor_in("self", "the class indices; INT32, INT64 or UINT8"),
            Parameter("numClasses", "num_classes", Kind.INT32, "the number of classes", c_type="int "),
            tensor_in("onValue", "the value at the class; its first element is used"),
            tensor_in("offValue", "the value elsewhere; its first element is used"),
            Parameter("axis", "axis", Kind.INT64, "the position of the new dimension; -1: last"),
            tensor_out(),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.INT8, D.UINT8, D.INT32, D.INT64)),
        checks=(
            dtype_in(_CLASSES, "self"),
            dtype_in(_ENCODED, "out"),
            same_dtype("onValue", "out"),
            same_dtype("offValue", "out"),
            rule("enough: numClasses", _one_hot_count),
            rule(f"{_PLACE}: axis", _one_hot_axis),
            limited_dims("out", "onValue", "offValue"),
            shape_is("the encoding", _one_hot_shape, "out"),
        ),
        work=_one_hot_work,
    ),
    library_operator(
        "embedding",
        "out[i] = weight[indices[i]]",
        "Look up rows of an embedding table.",
        (
            tensor_in("weight", "the embedding table, one row per index"),
            tensor_in("indices", "the row indices; INT32 or INT64"),
            tensor_out(const=True),
        ),
        (
            dtype_in(where_supported(NUMBERS), "weight"),
            same_dtype("out", "weight"),
            dtype_in({D.INT32, D.INT64}, "indices"),
            limited_dims("weight", "indices", "out"),
            rule("a row of weight for each index: out", _rows_of),
        ),
        _lookup,
        products=WITH_INFERENCE | {Product.ATLAS_200I_500_A2},
        empty=("weight", "indices"),
    ),
    Operator(
        name="embedding_dense_backward",
        summary="Gradient of an embedding lookup with respect to the table.",
        formula="out[indices[i]] += grad[i], except for paddingIdx; with scaleGradByFreq divided by each index's count",
        parameters=(
            tensor_in("grad", "the gradient with respect to the looked-up rows"),
            tensor_in("indices", "the row indices"),
            Parameter("numWeights", "num_weights", Kind.UINT64, "the number of rows of the table"),
            Parameter("paddingIdx", "padding_idx", Kind.UINT64, "the index without gradient"),
            Parameter(
                "scaleGradByFreq", "scale_grad_by_freq", Kind.BOOL, "whether to divide by the count of each index"
            ),
            tensor_out("out", "the gradient with respect to the table", const=True),
        ),
        support=support(FLOATING, WITH_TRAINING),
        checks=(
            dtype_in(floating, "grad"),
            dtype_in(_INDEX_TYPES, "indices"),
            dtype_in(floating, "out"),
            limited_dims("grad", "indices", "out"),
            rule("as many as rows of grad: indices", _indices),
            fits("shape {}", lambda call, got: ((call["numWeights"], *call["grad"].shape[-1:]), got.shape), "out"),
            public_format("grad", "indices", "out"),
        ),
        work=_dense_work,
    ),
    Operator(
        name="embedding_bag",
        summary="Sums, means or maxima over bags of embedding rows.",
        formula="output[b] = sum, mean or maximum of weight[indices[i]] for i from offsets[b] to the next",
        parameters=(
            tensor_in("weight", "the embedding table"),
            tensor_in("indices", "the indices of the rows; INT32 or INT64"),
            tensor_in("offsets", "the start of each bag; INT32 or INT64"),
            Parameter("scaleGradByFreq", "scale_grad_by_freq", Kind.BOOL, "as for the gradient"),
            Parameter("mode", "mode", Kind.INT64, "0: sum, 1: mean, 2: maximum"),
            Parameter("sparse", "sparse", Kind.BOOL, "as for the gradient"),
            Parameter(
                "perSampleWeights", "per_sample_weights", Kind.INPUT, "the weights of rows, for sums", optional=True
            ),
            Parameter(
                "includeLastOffset",
                "include_last_offset",
                Kind.BOOL,
                "whether the last offset is the end of the last bag",
            ),
            Parameter("paddingIdx", "padding_idx", Kind.INT64, "the index of the row to skip; negative: none"),
            tensor_out("output", "a row per bag"),
            tensor_out("offset2bag", "the bag of each index, or empty"),
            tensor_out("bagSize", "the number of rows counted in each bag"),
            tensor_out("maxIndices", "the row indices of the maxima"),
        ),
        support=support(FLOATING),
        checks=(
            dtype_in(floating, "weight"),
            dtype_in(INDEX_TYPES, "indices", "offsets", "offset2bag", "bagSize", "maxIndices"),
            same_dtype("output", "weight"),
            one_of("mode", 0, 1, 2),
            dims_between(1, 1, "indices", "offsets"),
            rule("as indices, for sums: perSampleWeights", _factors),
            shape_is("a row of weight for each bag", _bags, "output"),
            rule("as many as there are, or none: offset2bag, bagSize, maxIndices", _bag_sizes),
        ),
        work=_bag_work,
    ),
    library_operator(
        "embedding_renorm",
        "selfRef[indices] *= min(1, maxNorm / norm)",
        "Limit the norm of rows of an embedding table, in place.",
        (
            tensor_out("selfRef", "the embedding table"),
            tensor_in("indices", "the indices of the rows; INT32 or INT64"),
            Parameter("maxNorm", "max_norm", Kind.DOUBLE, "the maximum norm"),
            Parameter("normType", "norm_type", Kind.DOUBLE, "the order of the norm"),
        ),
        (
            dtype_in(floating, "selfRef"),
            dtype_in(INDEX_TYPES, "indices"),
            dims_between(2, 2, "selfRef"),
            limited_dims("indices"),
        ),
        _renorm,
        dtypes=FLOATING,
        inputs=("selfRef", "indices"),
        attributes=("maxNorm", "normType"),
        empty=("indices",),
    ),
)
