"""Comparisons of two tensors or of a tensor and a number, what tells numbers from others, and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    extents,
    limited_dims,
    only_if,
    present,
    promotable,
    rule,
    same_dtype,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import is_floating, promote
from aclnn.operators.library.common import (
    COMPLEX,
    INTEGERS,
    NUMBERS,
    REAL,
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
    if call.product in CLASS_950 or call.operator.name in ("eq_scalar", "ne_scalar"):
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


_ORDERED_TYPES = where_supported(_ORDERED)
_RESULT_TYPES = where_supported((*_ORDERED, *COMPLEX))


def _with_tensor(
    name: str,
    symbol: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    taken: Callable[[Product], Collection[D]] = _ORDERED_TYPES,
    results: Callable[[Product], Collection[D]] = _RESULT_TYPES,
    dtypes: Collection[D] = _ORDERED,
) -> Operator:
    return library_operator(
        name,
        f"out = self {symbol} other",
        summary,
        (_SELF, _OTHER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(taken, "self", "other"),
            dtype_in(results, "out"),
            promotable("self", "other"),
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        function,
        header=name,
        dtype=lambda call: promoted(call, "self", "other"),
        dtypes=dtypes,
        empty=("self", "other"),
    )


def _logical(name: str, summary: str, function: Callable[[Any, Any], Any]) -> Iterator[Operator]:
    words = name.removeprefix("logical_")
    for first, out in (("self", "out"), ("selfRef", "selfRef")):
        in_place = first == out
        yield library_operator(
            f"inplace_{name}" if in_place else name,
            f"{out} = {first} is not zero {words} other is not zero",
            f"{summary[:-1]}, in place." if in_place else summary,
            (tensor_out("selfRef", "the first operand, replaced by the result"), _OTHER)
            if in_place
            else (_SELF, _OTHER, _OUT),
            (
                present(*dict.fromkeys((first, "other", out))),
                dtype_in(where_supported(NUMBERS), first, "other"),
                limited_dims(first, "other"),
                broadcastable("other", first),
                broadcast_shape_of(out, first, "other"),
            ),
            function,
            header=name,
            empty=(first, "other"),
        )


_BOOLEAN = rule(
    "data type ACL_BOOL: out",
    lambda call: (
        None if call["out"].dtype == D.BOOL else f"out: expected data type ACL_BOOL, got {call['out'].dtype.c_name}"
    ),
)


def _told(name: str, words: str, summary: str, function: Callable[[Any], Any], header: str) -> Operator:
    return library_operator(
        name,
        f"out = self is {words}",
        summary,
        (_SELF, _OUT),
        (
            present("self", "out"),
            dtype_in(where_supported(REAL), "self"),
            _BOOLEAN,
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        function,
        header=header,
        dtypes=REAL,
        products=WITH_TRAINING,
    )


def _close(self: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    return np.isclose(self.astype(np.float64), other.astype(np.float64), rtol, atol, equal_nan)


def _same(self: Any, other: Any) -> Any:
    return np.array_equal(self, other)


def _has_minus(x: Any) -> Any:
    return np.signbit(x) if x.dtype.kind == "f" else x.astype(np.int64) < 0


OPERATORS = (
    _with_tensor(
        "eq_tensor",
        "==",
        "Compare two tensors: equal.",
        operator.eq,
        _equal_types,
        _equal_types,
        (*NUMBERS, D.UINT64),
    ),
    _with_tensor("gt_tensor", ">", "Compare two tensors: greater.", operator.gt),
    _with_tensor("ge_tensor", ">=", "Compare two tensors: greater or equal.", operator.ge),
    _with_tensor("lt_tensor", "<", "Compare two tensors: less.", operator.lt),
    _with_tensor("le_tensor", "<=", "Compare two tensors: less or equal.", operator.le),
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
        "eq_scalar",
        "==",
        "Compare a tensor with a number: equal.",
        operator.eq,
        NUMBERS,
        NUMBERS,
        WITH_TRAINING,
        "const aclrtStream ",
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
    _with_scalar(
        "ge_scalar",
        ">=",
        "Compare a tensor with a number: greater or equal.",
        operator.ge,
        _ORDERED,
        (*_ORDERED, *COMPLEX),
        WITH_TRAINING,
    ),
    _with_scalar(
        "le_scalar",
        "<=",
        "Compare a tensor with a number: less or equal.",
        operator.le,
        _ORDERED,
        (*_ORDERED, *COMPLEX),
        WITH_TRAINING,
    ),
    _told("is_finite", "neither infinite nor NaN", "Tell finite numbers from others.", np.isfinite, "isfinite"),
    _told("is_pos_inf", "inf", "Find positive infinities.", lambda x: x == np.inf, "isposinf"),
    _told("is_neg_inf", "-inf", "Find negative infinities.", lambda x: x == -np.inf, "isneginf"),
    _told("signbit", "negative, or -0", "Find numbers with a minus.", _has_minus, "signbit"),
    library_operator(
        "is_close",
        "out = |self - other| <= atol + rtol * |other|",
        "Tell which elements of two tensors are close to one another.",
        (
            _SELF,
            _OTHER,
            Parameter("rtol", "rtol", Kind.DOUBLE, "the tolerance relative to other"),
            Parameter("atol", "atol", Kind.DOUBLE, "the absolute tolerance"),
            Parameter("equal_nan", "equal_nan", Kind.BOOL, "NaN is close to NaN"),
            _OUT,
        ),
        (
            present("self", "other", "out"),
            dtype_in(where_supported(REAL), "self"),
            same_dtype("other", "self"),
            _BOOLEAN,
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        _close,
        header="isclose",
        dtypes=REAL,
        attributes=("rtol", "atol", "equal_nan"),
    ),
    library_operator(
        "equal",
        "out = self and other have one shape and equal elements",
        "Tell whether two tensors are equal.",
        (_SELF, _OTHER, tensor_out("out", "true or false, one element")),
        (
            present("self", "other", "out"),
            dtype_in(where_supported(NUMBERS), "self", "other"),
            same_dtype("other", "self"),
            _BOOLEAN,
            limited_dims("self", "other"),
            rule(
                "one element: out",
                lambda call: (
                    None
                    if call["out"].size == 1
                    else f"out: expected one element, got shape {extents(call['out'].shape)}"
                ),
            ),
        ),
        _same,
        header="equal",
    ),
    *_logical("logical_and", "And of what is not zero.", np.logical_and),
    *_logical("logical_or", "Or of what is not zero.", np.logical_or),
    next(_logical("logical_xor", "Exclusive or of what is not zero.", np.logical_xor)),
)
