"""And, or, exclusive or of the bits of two tensors or of a tensor and a number, into a third or in place."""

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
from aclnn.core.operator import Call, Operator, Parameter
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


def _type_with_scalar(first: str, out: str) -> Callable[[Call], D | None]:
    def dtype(call: Call) -> D | None:
        if call.product in CLASS_950:
            return type_with_scalar(call, first, out)
        return promote(call[first].dtype, call["other"].dtype)

    return dtype


def _checked_type(first: str, out: str) -> Callable[[Call], D]:
    dtype = _type_with_scalar(first, out)

    def checked(call: Call) -> D:
        found = dtype(call)
        assert found is not None
        return found

    return checked


def _operands(first: str, other: Parameter, const: bool) -> tuple[Parameter, ...]:
    if first == "self":
        return _SELF, other, _OUT
    return tensor_out(first, "the first operand, replaced by the result", const), other


def _of_tensors(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any], first: str) -> Operator:
    prefix, out, where = ("", "out", "") if first == "self" else ("inplace_", first, ", into the first")

    def dtype(call: Call) -> D:
        return promoted(call, first, "other")

    return library_operator(
        f"{prefix}bitwise_{name}_tensor",
        f"{out} = {first} {symbol} other",
        f"{words} of the bits of two tensors{where}.",
        _operands(first, _OTHER, const=name == "and"),
        (
            present(*dict.fromkeys((first, "other", out))),
            dtype_in(where_supported((*INTEGERS, *UNSIGNED, D.BOOL)), first, "other"),
            promotable(first, "other"),
            castable_from(dtype, out),
            public_format(*dict.fromkeys((first, "other", out))),
            limited_dims(first, "other"),
            broadcastable("other", first),
            broadcast_shape_of(out, first, "other"),
        ),
        function,
        header=f"bitwise_{name}_tensor",
        dtype=dtype,
        dtypes=(*INTEGERS, *UNSIGNED, D.BOOL),
    )


def _with_number(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any], first: str) -> Operator:
    prefix, out, where = ("", "out", "") if first == "self" else ("inplace_", first, ", into the tensor")
    return library_operator(
        f"{prefix}bitwise_{name}_scalar",
        f"{out} = {first} {symbol} other",
        f"{words} of the bits of a tensor and a number{where}.",
        _operands(first, _NUMBER, const=name == "and"),
        (
            present(*dict.fromkeys((first, "other", out))),
            dtype_in(where_supported(_BITS), first, "other"),
            scalar_promotes(_type_with_scalar(first, out), first),
            castable_from(_checked_type(first, out), out),
            public_format(*dict.fromkeys((first, out))),
            limited_dims(first),
            *([same_shape(out, first)] if first != out else []),
        ),
        function,
        header=f"bitwise_{name}_scalar",
        dtype=_checked_type(first, out),
        dtypes=_BITS,
    )


OPERATORS = tuple(
    make(name, symbol, words, function, first)
    for name, symbol, words, function in (
        ("and", "&", "And", operator.and_),
        ("or", "|", "Or", operator.or_),
        ("xor", "^", "Exclusive or", operator.xor),
    )
    for make in (_of_tensors, _with_number)
    for first in ("self", "selfRef")
)
