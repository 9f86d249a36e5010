"""aclnnMaskedSelect."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape,
    broadcastable,
    dtype_in,
    extents,
    limited_dims,
    present,
    rule,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import INTEGERS, REAL_FLOATING, UNSIGNED, support, tensor_in, tensor_out

_TAKEN = (*REAL_FLOATING, *INTEGERS, D.BOOL)


def _taken(product: Product) -> frozenset[D]:
    return where_supported((*_TAKEN, *UNSIGNED) if product in CLASS_950 else _TAKEN)(product)


def _size(call: Call) -> str | None:
    shape, got = broadcast_shape(call["self"].shape, call["mask"].shape), call["out"].shape
    assert shape is not None
    if len(got) == 1 and got[0] == math.prod(shape):
        return None
    return f"out: expected shape [{math.prod(shape)}] (as many as self and mask have together), got {extents(got)}"


def _select(self: Any, mask: Any) -> Any:
    values, chosen = np.broadcast_arrays(self, mask.astype(np.bool_))
    return values[chosen]


def _work(call: Call) -> Library | None:
    if not all(call[name].size for name in ("self", "mask", "out")):
        return None
    return Library(_select, ("self", "mask"), ("out",), sized_by_result=True)


OPERATORS = (
    Operator(
        name="masked_select",
        function="aclnnMaskedSelect",
        summary="Select the elements where a mask is true; the view of out takes their number.",
        formula="out = the elements of self where mask, in order",
        parameters=(
            tensor_in("self", "the elements"),
            tensor_in("mask", "BOOL or UINT8; broadcasts with self"),
            tensor_out("out", "one dimension, of as many elements as self and mask broadcast to"),
        ),
        support=support((*_TAKEN, *UNSIGNED)),
        checks=(
            present("self", "mask", "out"),
            dtype_in(_taken, "self"),
            dtype_in(lambda product: {D.UINT8, D.BOOL}, "mask"),
            dtype_in(_taken, "out"),
            limited_dims("self", "mask"),
            broadcastable("mask", "self"),
            rule("size of self and mask: out", _size),
        ),
        work=_work,
        in_header_of="masked_select",
    ),
)
