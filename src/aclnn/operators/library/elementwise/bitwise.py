"""Bitwise and, or and exclusive or of two tensors or of a tensor and a number, in place or not."""

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
    promotable,
    public_format,
    same_shape,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Operator
from aclnn.core.products import CLASS_950
from aclnn.core.promotion import promote
from aclnn.operators.library.common import (
    FORMS,
    INTEGERS,
    UNSIGNED,
    Form,
    library_operator,
    on_950,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

_OTHER, _NUMBER, _OUT = tensor_in("other", "the second operand"), scalar("other", "the second operand"), tensor_out()
_SIGNED, _ALL = (*INTEGERS, D.BOOL), (*INTEGERS, *UNSIGNED, D.BOOL)
_TENSORS = {"and": on_950((), _ALL), "or": on_950((), _ALL), "xor": on_950(UNSIGNED, _SIGNED)}
_NUMBERS = {
    "and": on_950((), (*_SIGNED, D.UINT16)),
    "or": on_950(UNSIGNED, (*_SIGNED, D.UINT16)),
    "xor": on_950(UNSIGNED, _SIGNED),
}


def _formats(name: str, *tensors: str) -> list[Check]:
    return [public_format(*tensors)] if name == "and" else []


def _of_tensors(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any], form: Form) -> Operator:
    prefix, first, out = form
    return library_operator(
        f"{prefix}bitwise_{name}_tensor",
        f"{out} = {first} {symbol} other",
        form.summary(f"{words} of the bits of two tensors."),
        form.parameters(_OTHER, result=_OUT, const=name == "and"),
        (
            dtype_in(_TENSORS[name], first, "other"),
            promotable(first, "other"),
            castable_from(form.promoted, out),
            *_formats(name, *form.names),
            limited_dims(first, "other"),
            broadcastable("other", first),
            broadcast_shape_of(out, first, "other"),
        ),
        function,
        header=f"bitwise_{name}_tensor",
        dtype=form.promoted,
        dtypes=_ALL,
    )


def _with_number(name: str, symbol: str, words: str, function: Callable[[Any, Any], Any], form: Form) -> Operator:
    prefix, first, out = form

    def possible(call: Call) -> D | None:
        if call.product in CLASS_950:
            return type_with_scalar(call, first, out)
        return promote(call[first].dtype, call["other"].dtype)

    def dtype(call: Call) -> D:
        found = possible(call)
        assert found is not None
        return found

    return library_operator(
        f"{prefix}bitwise_{name}_scalar",
        f"{out} = {first} {symbol} other",
        form.summary(f"{words} of the bits of a tensor and a number."),
        form.parameters(_NUMBER, result=_OUT, const=name == "and"),
        (
            dtype_in(_NUMBERS[name], first, "other"),
            # Any pair with the exclusive or's types: before Ascend 950 it has no unsigned integers.
            *([] if name == "xor" else [scalar_promotes(possible, first)]),
            castable_from(dtype, out),
            *_formats(name, first, out),
            limited_dims(first),
            *([] if form.in_place else [same_shape(out, first)]),
        ),
        function,
        header=f"bitwise_{name}_scalar",
        dtype=dtype,
        dtypes=_ALL,
    )


OPERATORS = tuple(
    make(name, symbol, words, function, form)
    for name, symbol, words, function in (
        ("and", "&", "And", operator.and_),
        ("or", "|", "Or", operator.or_),
        ("xor", "^", "Exclusive or", operator.xor),
    )
    for make in (_of_tensors, _with_number)
    for form in FORMS
)
