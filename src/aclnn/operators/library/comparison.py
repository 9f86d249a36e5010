"""aclnnEqTensor, aclnnNeTensor, aclnnNeScalar, aclnnGtScalar, aclnnLtScalar, aclnnIsFinite."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    limited_dims,
    only_if,
    present,
    promotable,
    rule,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import is_floating, promote
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    library_operator,
    promoted,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

_SELF, _OUT = tensor_in("self", "the first operand"), tensor_out(meaning="true or false")
_OTHER, _NUMBER = tensor_in("other", "the second operand"), scalar("other", "the second operand")
_ORDERED = (*REAL_FLOATING, *INTEGERS, *UNSIGNED, D.BOOL)


def _where_not_empty(*checks: Check) -> tuple[Check, ...]:
    """The checks, but for a call with an empty operand, which succeeds before them."""
    return tuple(
        only_if(check, "where no operand is empty", lambda call: bool(call["self"].size and call["other"].size))
        for check in checks
    )


def _comparison_type(call: Call) -> D | None:
    """Return arithmetic's type; on older products ordered comparisons promote the pair."""
    tensor: D = call["self"].dtype
    number: D = call["other"].dtype
    if call.product in CLASS_950 or call.operator.name == "ne_scalar":
        return type_with_scalar(call, "self", "out")
    if is_floating(tensor) and number == D.DOUBLE:
        return tensor
    return promote(tensor, D.FLOAT if number == D.DOUBLE else number)


def _with_scalar(
    name: str,
    symbol: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    dtypes: Collection[D],
    results: Collection[D],
    products: Collection[Product],
    stream_type: str = "aclrtStream ",
) -> Operator:
    return library_operator(
        name,
        f"out = self {symbol} other",
        summary,
        (_SELF, _NUMBER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(where_supported(dtypes), "self", "other"),
            dtype_in(where_supported(results), "out"),
            *([scalar_promotes(_comparison_type, "self")] if set(UNSIGNED) <= set(dtypes) else []),
            limited_dims("self", "out"),
            same_shape("out", "self"),
        ),
        function,
        header=name,
        dtype=_comparison_type,
        dtypes=dtypes,
        products=products,
        stream_type=stream_type,
    )


def _equal_types(product: Product) -> Collection[D]:
    return where_supported((*NUMBERS, D.UINT64) if product in CLASS_950 else NUMBERS)(product)


OPERATORS = (
    library_operator(
        "eq_tensor",
        "out = self == other",
        "Compare two tensors: equal.",
        (_SELF, _OTHER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(_equal_types, "self", "other", "out"),
            promotable("self", "other"),
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        operator.eq,
        header="eq_tensor",
        dtype=lambda call: promoted(call, "self", "other"),
        dtypes=(*NUMBERS, D.UINT64),
        products=WITH_INFERENCE,
        empty=("self", "other"),
    ),
    library_operator(
        "ne_tensor",
        "out = self != other",
        "Compare two tensors: not equal.",
        (_SELF, _OTHER, _OUT),
        (
            present("self", "other", "out"),
            *_where_not_empty(
                dtype_in(where_supported(NUMBERS), "self", "other", "out"),
                limited_dims("self", "other"),
                broadcastable("other", "self"),
                broadcast_shape_of("out", "self", "other"),
            ),
        ),
        operator.ne,
        header="ne_tensor",
        dtype=lambda call: promoted(call, "self", "other"),
        products=WITH_TRAINING,
        empty=("self", "other"),
    ),
    _with_scalar(
        "ne_scalar",
        "!=",
        "Compare a tensor with a number: not equal.",
        operator.ne,
        NUMBERS,
        NUMBERS,
        WITH_TRAINING,
        "const aclrtStream ",
    ),
    _with_scalar(
        "gt_scalar",
        ">",
        "Compare a tensor with a number: greater.",
        operator.gt,
        _ORDERED,
        (*_ORDERED, *COMPLEX),
        WITH_INFERENCE,
    ),
    _with_scalar(
        "lt_scalar",
        "<",
        "Compare a tensor with a number: less.",
        operator.lt,
        _ORDERED,
        _ORDERED,
        WITH_TRAINING | {Product.ATLAS_200I_500_A2},
    ),
    library_operator(
        "is_finite",
        "out = self is neither infinite nor NaN",
        "Tell finite numbers from others.",
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported((*REAL_FLOATING, *INTEGERS, D.BOOL)), "self"),
            rule(
                "data type ACL_BOOL: out",
                lambda call: (
                    None
                    if call["out"].dtype == D.BOOL
                    else f"out: expected data type ACL_BOOL, got {call['out'].dtype.c_name}"
                ),
            ),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        np.isfinite,
        header="isfinite",
        dtypes=(*REAL_FLOATING, *INTEGERS, D.BOOL),
        products=WITH_TRAINING,
    ),
)
