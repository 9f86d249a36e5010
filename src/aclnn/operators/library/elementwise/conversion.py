"""aclnnCast, aclnnInplaceCopy, aclnnInplaceFillScalar, aclnnInplaceOne, aclnnInplaceZero, aclnnTriu,
aclnnTril and in place: conversion and filling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape_of,
    broadcastable,
    dims_between,
    dtype_in,
    each,
    extents,
    limited_dims,
    listing,
    promotable,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_format,
    same_shape,
    single,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import (
    EIGHT_BITS,
    EIGHT_BITS_OF_NUMPY,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    declared,
    library_operator,
    on_950,
    scalar,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.four_bits import packed
from aclnn.operators.library.quantization.microscaling import ELEMENTS, FOUR_BITS, restored, rounded, stored

_CONVERTED = (*NUMBERS, *UNSIGNED)
_REPLACED = tensor_out("selfRef", "the tensor to overwrite")


_CONVERTIBLE = on_950(EIGHT_BITS_OF_NUMPY, _CONVERTED)
_CAST = on_950((*EIGHT_BITS_OF_NUMPY, *FOUR_BITS), _CONVERTED)
_BESIDE_FOUR_BITS = (*FLOATING, *EIGHT_BITS_OF_NUMPY)


def _cast_dtype(call: Call) -> str | None:
    dtype, out = call["dtype"], call["out"].dtype
    if dtype not in _CAST(call.product) and not (dtype == D.INT4 and call.product in MODERN):
        return f"dtype: expected a data type of numbers, got {dtype.c_name}"
    return None if out == dtype else f"out: expected data type {dtype.c_name} (the argument dtype), got {out.c_name}"


def _pair(call: Call) -> str | None:
    source, target = call["self"].dtype, call["out"].dtype
    if source in FOUR_BITS and target not in _BESIDE_FOUR_BITS:
        return f"out: expected a floating data type with {source.c_name}, got {target.c_name}"
    allowed = {D.INT4: (D.INT32,), **dict.fromkeys(FOUR_BITS, _BESIDE_FOUR_BITS)}.get(target)
    if allowed is None or source in allowed:
        return None
    named = listing(dtype.c_name for dtype in allowed)
    return f"self: expected data type {named} with {target.c_name}, got {source.c_name}"


def _together(call: Call, name: str) -> str | None:
    tensor = call[name]
    return None if tensor.is_contiguous else f"expected a contiguous tensor, got strides {extents(tensor.strides)}"


def _pairs(call: Call) -> str | None:
    shape = call["self"].shape
    if shape and shape[-1] % 2 == 0:
        return None
    return f"self: expected an even last dimension with four-bit types, got {extents(shape)}"


def _cast(call: Call) -> Library | None:
    source, target, shape = call["self"].dtype, call["out"].dtype, call["self"].shape
    if call["out"].size == 0:
        return None

    def convert(numbers: Any) -> Any:
        if target == D.INT4:
            return packed(numbers.astype(np.int8)).reshape(-1)
        if source in FOUR_BITS:
            return restored(numbers, source, shape)
        if target in FOUR_BITS:
            # The kernel accepts this direction too.
            short = numbers.astype(np.float32).astype(D.BF16.numpy).astype(np.float64)
            return stored(rounded(short, ELEMENTS[target]), target)
        return numbers

    return Library(convert, ("self",), ("out",))


_FILLED = on_950(EIGHT_BITS_OF_NUMPY, NUMBERS)
_TRIANGULAR = (*REAL_FLOATING, *INTEGERS, *UNSIGNED, D.BOOL)


def _matrices(call: Call) -> str | None:
    name = "self" if call.operator.inputs else "selfRef"
    shape = call[name].shape
    if len(shape) >= 2 or 0 in shape:
        return None
    return f"{name}: expected at least 2 dimensions, got {len(shape)}: {extents(shape)}"


def _above(matrices: Any, diagonal: int) -> Any:
    """Zero what is below a diagonal; row by row it takes a sixth of ``np.triu``'s time on 2,048 rows."""
    found = np.zeros_like(matrices)
    rows, columns = matrices.shape[-2:]
    whole = min(rows, max(0, 1 - diagonal))
    found[..., :whole, :] = matrices[..., :whole, :]
    for row in range(whole, min(rows, columns - diagonal)):
        found[..., row, row + diagonal :] = matrices[..., row, row + diagonal :]
    return found


def _below(matrices: Any, diagonal: int) -> Any:
    """Zero what is above a diagonal, by ``_above`` on both dimensions reversed."""
    rows, columns = matrices.shape[-2:]
    return np.flip(_above(np.flip(matrices, (-2, -1)), columns - rows - diagonal), (-2, -1))


def _triangle(name: str, words: str, function: Callable[..., Any], is_in_place: bool) -> Operator:
    diagonal = Parameter("diagonal", "diagonal", Kind.INT64, "the diagonal, relative to the main diagonal")
    first = "selfRef" if is_in_place else "self"
    out = () if is_in_place else (tensor_out(),)
    return library_operator(
        f"inplace_{name}" if is_in_place else name,
        f"{'selfRef' if is_in_place else 'out'} = {first} {words} the diagonal, 0 elsewhere",
        f"Keep the part of matrices {words} a diagonal{', in place' if is_in_place else ''}.",
        (_REPLACED if is_in_place else tensor_in("self", "the matrices"), diagonal, *out),
        (
            dtype_in(on_950((D.COMPLEX64,), _TRIANGULAR), first),
            *(() if is_in_place else (same_dtype("out", "self"),)),
            public_format(first),
            *(() if is_in_place else (same_format("out", "self"),)),
            limited_dims(first),
            rule(f"at least 2 dimensions: {first}", _matrices),
            *(() if is_in_place else (same_shape("out", "self"),)),
        ),
        lambda matrices, diagonal: function(matrices, min(max(diagonal, -matrices.shape[-2]), matrices.shape[-1])),
        header=name,
        dtypes=(*_TRIANGULAR, D.COMPLEX64),
        attributes=("diagonal",),
    )


OPERATORS = (
    declared(
        "cast",
        "out = self, converted to dtype",
        "Convert a tensor to another data type.",
        (
            tensor_in("self", "the tensor to convert"),
            Parameter("dtype", "dtype", Kind.DTYPE, "the data type of out"),
            tensor_out(),
        ),
        (
            dtype_in(_CAST, "self"),
            rule("data type: dtype, out", _cast_dtype),
            rule("data types together: self, out", _pair),
            limited_dims("self"),
            same_shape("out", "self"),
            *restricted(
                "with four-bit types",
                lambda call: any(call[name].dtype.bits == 4 for name in ("self", "out")),
                each("contiguous", ("self", "out"), _together),
                rule("even last dimension: self", _pairs, ACLNN_ERR_INNER_TILING_ERROR),
            ),
        ),
        _cast,
        dtypes=(*_CONVERTED, *EIGHT_BITS_OF_NUMPY, *FOUR_BITS, D.INT4),
        products=WITH_INFERENCE,
    ),
    library_operator(
        "inplace_copy",
        "selfRef = src, converted and broadcast",
        "Copy a tensor into another tensor of any data type and strides.",
        (_REPLACED, tensor_in("src", "the source")),
        (
            dtype_in(_CONVERTIBLE, "selfRef", "src"),
            limited_dims("selfRef", "src"),
            broadcastable("src", "selfRef"),
            broadcast_shape_of("selfRef", "selfRef", "src"),
        ),
        lambda src: src,
        header="copy",
        inputs=("src",),
        dtypes=(*_CONVERTED, *EIGHT_BITS_OF_NUMPY),
        products=WITH_INFERENCE | {Product.ATLAS_200I_500_A2},
        stream_type="const aclrtStream ",
    ),
    library_operator(
        "inplace_fill_scalar",
        "selfRef = value",
        "Fill a tensor with a number.",
        (_REPLACED, scalar("value", "the fill value")),
        (
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
        "inplace_fill_tensor",
        "selfRef = value",
        "Fill a tensor with the number in another tensor.",
        (_REPLACED, tensor_in("value", "the fill value, one element")),
        (dtype_in(_FILLED, "selfRef", "value"), limited_dims("selfRef"), dims_between(0, 1, "value"), single("value")),
        lambda value: value.reshape(()),
        header="fill_tensor",
        inputs=("value",),
        dtypes=(*NUMBERS, *EIGHT_BITS_OF_NUMPY),
    ),
    library_operator(
        "inplace_one",
        "selfRef = 1",
        "Fill a tensor with ones.",
        (tensor_out("selfRef", "the tensor to overwrite", const=True),),
        (dtype_in(where_supported(REAL), "selfRef"), limited_dims("selfRef")),
        lambda: 1,
        header="ones",
        inputs=(),
        dtypes=REAL,
    ),
    library_operator(
        "inplace_zero",
        "selfRef = 0",
        "Fill a tensor with zeros.",
        (_REPLACED,),
        (dtype_in(on_950(EIGHT_BITS, (*NUMBERS, D.UINT16)), "selfRef"),),
        lambda: 0,
        header="zero",
        inputs=(),
        dtypes=(*NUMBERS, D.UINT16, *EIGHT_BITS),
    ),
    _triangle("triu", "on and above", _above, is_in_place=False),
    _triangle("triu", "on and above", _above, is_in_place=True),
    _triangle("tril", "on and below", _below, is_in_place=False),
    _triangle("tril", "on and below", _below, is_in_place=True),
)
