"""Slices along several dimensions at once, dimensions grouped anew: aclnnStridedSlice, aclnnConfusionTranspose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    KERNEL_OF_THE_PRODUCT,
    dtype_in,
    extents,
    limited_dims,
    rule,
    same_dtype,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Parameter
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import (
    EIGHT_BITS,
    INTEGERS,
    NUMBERS,
    UNSIGNED,
    attribute,
    library_operator,
    tensor_in,
    tensor_out,
)

_MASKS = ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")
_LIMITS = ("begin", "end", "strides")
_STRIDED = (*(each for each in NUMBERS if each not in (D.DOUBLE, D.COMPLEX128)), *UNSIGNED, *EIGHT_BITS)


def _specification(*given: Any) -> tuple[Any, ...]:
    """Return the NumPy index for TensorFlow's begins, ends, strides and masks."""
    begins, ends, strides, begin_mask, end_mask, ellipsis_mask, axis_mask, shrink_mask = given

    def part(at: int, begin: int, end: int, step: int) -> Any:
        if ellipsis_mask >> at & 1:
            return Ellipsis
        if axis_mask >> at & 1:
            return np.newaxis
        if shrink_mask >> at & 1:
            return begin
        return slice(None if begin_mask >> at & 1 else begin, None if end_mask >> at & 1 else end, step)

    return tuple(part(at, *limits) for at, limits in enumerate(zip(begins, ends, strides, strict=True)))


def _strided_shape(call: Call) -> tuple[int, ...] | None:
    """Return the result's shape; None if the index has too many dimensions or is out of range."""
    given = np.broadcast_to(np.int8(0), call["self"].shape)
    try:
        return given[_specification(*(call[name] for name in (*_LIMITS, *_MASKS)))].shape
    except IndexError:
        return None


def _as_many_limits(call: Call) -> str | None:
    begins, ends, strides = (len(call[name]) for name in _LIMITS)
    if begins != ends:
        return f"end: expected {begins} numbers (as begin has), got {ends}"
    return None if ends == strides else f"strides: expected {ends} numbers (as end has), got {strides}"


def _steps(call: Call) -> str | None:
    return None if 0 not in call["strides"] else f"strides: expected numbers other than 0, got {list(call['strides'])}"


def _forwards(call: Call) -> str | None:
    shrunk = [step for at, step in enumerate(call["strides"]) if call["shrinkAxisMask"] >> at & 1]
    backwards = next((step for step in shrunk if step < 0), None)
    return None if backwards is None else f"strides: expected positive ones where dimensions go, got {backwards}"


def _selects(call: Call) -> str | None:
    if _strided_shape(call) is not None:
        return None
    return f"begin: expected elements of self, of shape {extents(call['self'].shape)}, got {list(call['begin'])}"


def _regrouped(call: Call) -> tuple[int, ...]:
    """Return the shape of aclnnConfusionTranspose's result."""
    return tuple(call["shape"]) if call["transposeFirst"] else tuple(call["shape"][at] for at in call["perm"])


def _all_elements(call: Call) -> str | None:
    shape, given = call["shape"], call["x"]
    if math.prod(shape) == given.size and min(shape, default=0) >= 0:
        return None
    return f"shape: expected one of {given.size} elements (those of x), got {list(shape)}"


def _order(call: Call) -> str | None:
    rank = len(call["x"].shape if call["transposeFirst"] else call["shape"])
    if sorted(call["perm"]) == [*range(rank)]:
        return None
    return f"perm: expected each of {rank} dimensions once, got {list(call['perm'])}"


def _array(name: str, meaning: str) -> Parameter:
    return attribute(name, Kind.INT_ARRAY, meaning)


OPERATORS = (
    library_operator(
        "strided_slice",
        "out = self[begin : end : strides], as TensorFlow's tf.strided_slice",
        "Take strided slices along several dimensions, with TensorFlow's masks.",
        (
            tensor_in("self", "the elements"),
            _array("begin", "the first index along each dimension"),
            _array("end", "the end of the slice, exclusive"),
            _array("strides", "the step"),
            attribute("beginMask", Kind.INT64, "bit mask of the begins to ignore"),
            attribute("endMask", Kind.INT64, "bit mask of the ends to ignore"),
            attribute("ellipsisMask", Kind.INT64, "bit mask of the ellipsis, which stands for all other dimensions"),
            attribute("newAxisMask", Kind.INT64, "bit mask of the new dimensions"),
            attribute("shrinkAxisMask", Kind.INT64, "bit mask of the dimensions that an index removes"),
            tensor_out(),
        ),
        (
            *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
            dtype_in({*_STRIDED, D.COMPLEX32}, "self"),
            same_dtype("out", "self"),
            limited_dims("self"),
            rule("as many of each: end, strides", _as_many_limits),
            rule("not 0: strides", _steps),
            value_is("one bit at most", lambda got: not got & got - 1, "ellipsisMask"),
            rule("positive where dimensions go: strides", _forwards),
            *unless_empty(
                ("self",),
                rule("elements of self: begin", _selects, ACLNN_ERR_INNER_NULLPTR),
                shape_is("the result", lambda call: _strided_shape(call) or (), "out"),
            ),
        ),
        lambda self, *given: self[_specification(*given)],
        dtypes=_STRIDED,
        products=CLASS_950,
        attributes=(*_LIMITS, *_MASKS),
        empty=("self",),
    ),
    library_operator(
        "confusion_transpose",
        "out = x permuted by perm, then reshaped; reshaped first without transposeFirst",
        "Permute dimensions and reshape.",
        (
            tensor_in("x", "the elements"),
            _array("perm", "the permutation of the dimensions"),
            _array("shape", "the new shape"),
            attribute("transposeFirst", Kind.BOOL, "whether to permute before reshaping"),
            tensor_out(),
        ),
        (
            dtype_in((*INTEGERS, *UNSIGNED, *FLOATING), "x"),
            same_dtype("out", "x"),
            *unless_empty(
                ("x",),
                *with_code(
                    ACLNN_ERR_INNER_NULLPTR,
                    rule("each once: perm", _order),
                    rule("as many elements: shape", _all_elements),
                    shape_is("of the groups", _regrouped, "out"),
                ),
            ),
        ),
        lambda x, perm, shape, first: x.transpose(perm).reshape(shape) if first else x.reshape(shape).transpose(perm),
        dtypes=(*INTEGERS, *UNSIGNED, *FLOATING),
        products=CLASS_950,
        attributes=("perm", "shape", "transposeFirst"),
        empty=("x",),
    ),
)
