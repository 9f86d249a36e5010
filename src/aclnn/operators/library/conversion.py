"""aclnnCast, aclnnInplaceCopy, aclnnInplaceFillScalar, aclnnInplaceOne, aclnnInplaceZero: conversion and filling."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    dtype_in,
    limited_dims,
    present,
    promotable,
    rule,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.operators.library.common import (
    INTEGERS,
    NUMBERS,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    library_operator,
    scalar,
    tensor_in,
    tensor_out,
)

_NARROW = (D.FLOAT8_E5M2, D.FLOAT8_E4M3FN)
_CONVERTED = (*NUMBERS, *UNSIGNED)
_REPLACED = tensor_out("selfRef", "what is overwritten")


def _on_950(more: Collection[D], dtypes: Collection[D]) -> Callable[[Product], Collection[D]]:
    taken = where_supported(dtypes)
    return lambda product: frozenset(taken(product)) | set(more) if product in CLASS_950 else taken(product)


_CONVERTIBLE = _on_950(_NARROW, _CONVERTED)


def _cast_dtype(call: Call) -> str | None:
    dtype, out = call["dtype"], call["out"].dtype
    if dtype not in _CONVERTIBLE(call.product):
        return f"dtype: expected a data type of numbers, got {dtype.c_name}"
    return None if out == dtype else f"out: expected data type {dtype.c_name} (the argument dtype), got {out.c_name}"


OPERATORS = (
    library_operator(
        "cast",
        "out = self, converted to dtype",
        "Convert a tensor to another data type.",
        (tensor_in("self", "what is converted"), Parameter("dtype", "dtype", Kind.DTYPE, "that of out"), tensor_out()),
        (
            present("self", "out"),
            dtype_in(_CONVERTIBLE, "self"),
            rule("data type: dtype, out", _cast_dtype),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        lambda self: self,
        header="cast",
        dtypes=(*_CONVERTED, *_NARROW),
    ),
    library_operator(
        "inplace_copy",
        "selfRef = src, converted and broadcast",
        "Copy a tensor into another, of any data type and strides.",
        (_REPLACED, tensor_in("src", "what is copied")),
        (
            present("selfRef", "src"),
            dtype_in(_CONVERTIBLE, "selfRef", "src"),
            limited_dims("selfRef", "src"),
            broadcastable("src", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "src"),
        ),
        lambda src: src,
        header="copy",
        inputs=("src",),
        dtypes=(*_CONVERTED, *_NARROW),
        products=WITH_INFERENCE | {Product.ATLAS_200I_500_A2},
        stream_type="const aclrtStream ",
    ),
    library_operator(
        "inplace_fill_scalar",
        "selfRef = value",
        "Fill a tensor with a number.",
        (_REPLACED, scalar("value", "the number")),
        (
            present("selfRef", "value"),
            dtype_in(
                lambda product: where_supported(_CONVERTED if product.has_bfloat16 else NUMBERS)(product), "selfRef"
            ),
            promotable("selfRef", "value"),
            limited_dims("selfRef"),
        ),
        lambda value: value,
        header="fill_scalar",
        inputs=("value",),
        dtypes=_CONVERTED,
    ),
    library_operator(
        "inplace_one",
        "selfRef = 1",
        "Fill a tensor with ones.",
        (tensor_out("selfRef", "what is overwritten", const=True),),
        (
            present("selfRef"),
            dtype_in(where_supported((*REAL_FLOATING, *INTEGERS, D.BOOL)), "selfRef"),
            limited_dims("selfRef"),
        ),
        lambda: 1,
        header="ones",
        inputs=(),
        dtypes=(*REAL_FLOATING, *INTEGERS, D.BOOL),
    ),
    library_operator(
        "inplace_zero",
        "selfRef = 0",
        "Fill a tensor with zeros.",
        (_REPLACED,),
        (present("selfRef"), dtype_in(_on_950(_NARROW, (*NUMBERS, D.UINT16)), "selfRef")),
        lambda: 0,
        header="zero",
        inputs=(),
        dtypes=(*NUMBERS, D.UINT16, *_NARROW),
    ),
)
