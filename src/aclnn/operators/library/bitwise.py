"""And, or, exclusive or of the bits of two tensors or of a tensor and a number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    present,
    promotable,
    public_format,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Operator
from aclnn.core.products import CLASS_950
from aclnn.core.promotion import promote
from aclnn.operators.library.common import (
    INTEGERS,
    UNSIGNED,
    library_operator,
    promoted,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

_SELF, _OUT = tensor_in("self", "the first operand"), tensor_out()
_OTHER, _NUMBER = tensor_in("other", "the second operand"), scalar("other", "the second operand")
_BITS = (*INTEGERS, D.UINT16, D.BOOL)


def _type_with_scalar(call: Call) -> D | None:
    if call.product in CLASS_950:
        return type_with_scalar(call, "self", "out")
    return promote(call["self"].dtype, call["other"].dtype)


def _checked_type(call: Call) -> D:
    found = _type_with_scalar(call)
    assert found is not None
    return found


def _of_tensors(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any]) -> Operator:
    return library_operator(
        f"bitwise_{name}_tensor",
        f"out = self {symbol} other",
        f"{words} of the bits of two tensors.",
        (_SELF, _OTHER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(where_supported((*INTEGERS, *UNSIGNED, D.BOOL)), "self", "other"),
            promotable("self", "other"),
            castable_from(lambda call: promoted(call, "self", "other"), "out"),
            public_format("self", "other", "out"),
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        function,
        header=f"bitwise_{name}_tensor",
        dtype=lambda call: promoted(call, "self", "other"),
        dtypes=(*INTEGERS, *UNSIGNED, D.BOOL),
    )


def _with_number(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any]) -> Operator:
    return library_operator(
        f"bitwise_{name}_scalar",
        f"out = self {symbol} other",
        f"{words} of the bits of a tensor and a number.",
        (_SELF, _NUMBER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(where_supported(_BITS), "self", "other"),
            scalar_promotes(_type_with_scalar, "self"),
            castable_from(_checked_type, "out"),
            public_format("self", "out"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        function,
        header=f"bitwise_{name}_scalar",
        dtype=_checked_type,
        dtypes=_BITS,
    )


OPERATORS = tuple(
    make(name, symbol, words, function)
    for name, symbol, words, function in (
        ("and", "&", "And", operator.and_),
        ("or", "|", "Or", operator.or_),
        ("xor", "^", "Exclusive or", operator.xor),
    )
    for make in (_of_tensors, _with_number)
)
