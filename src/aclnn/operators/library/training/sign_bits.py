"""Signs of gradients with one bit each, as in 1-bit Adam: aclnnSignBitsPack, aclnnSignBitsUnpack."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    dtype_in,
    format_is,
    rule,
    shape_is,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Parameter, Shape
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import MODERN, attribute, library_operator, tensor_in, tensor_out

_FLOATS = (D.FLOAT, D.FLOAT16)
_PRODUCTS = MODERN | {Product.ATLAS_INFERENCE}
_SIZE = attribute("size", Kind.INT64, "the rows of out")


def _rows(elements: Any, what: str) -> Check:
    """Require elements that divide into ``size`` rows."""

    def violation(call: Call) -> str | None:
        got, count = call["size"], elements(call)
        if got > 0 and count % got == 0:
            return None
        return f"size: expected a positive divisor of {count} ({what}), got {got}"

    return rule("rows of equal length: size", violation)


def _bytes(call: Call) -> int:
    return -(-(call["self"].shape or (1,))[0] // 8)


def _bits(call: Call) -> int:
    return 8 * int((call["self"].shape or (1,))[0])


def _first(call: Call) -> str | None:
    got = call["out"].shape[:1]
    return (
        None if got == (call["size"],) else f"out: expected {call['size']} rows (size), got {got[0] if got else 'none'}"
    )


def _declared_dtype(call: Call) -> str | None:
    expected, got = call["dtype"], call["out"].dtype
    return None if got == expected else f"out: expected data type {expected.c_name} (dtype), got {got.c_name}"


def _packed_shape(call: Call) -> Shape:
    return call["size"], _bytes(call) // call["size"]


def _unpacked_shape(call: Call) -> Shape:
    return call["size"], _bits(call) // call["size"]


def _checks(taken: Any, results: Any, rows: Check, shape: Any, *further: Check) -> tuple[Check, ...]:
    return (
        *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
        dtype_in(taken, "self"),
        dtype_in(results, "out"),
        *further,
        format_is(Format.FORMAT_ND, "self", "out"),
        rows,
        rule("as many rows as size: out", _first),
        dims_between(1, 1, "self"),
        dims_between(2, 2, "out"),
        *unless_empty(("self", "out"), shape_is("rows of equal length", shape, "out")),
    )


OPERATORS = (
    library_operator(
        "sign_bits_pack",
        "bit i % 8 of byte i // 8 = self[i] >= 0",
        "Pack the signs of numbers: 1 for 0 and above, 0 for numbers below; the last byte is filled with 0.",
        (tensor_in("self", "the numbers"), _SIZE, tensor_out("out", "the bytes; UINT8")),
        _checks(_FLOATS, {D.UINT8}, _rows(_bytes, "bytes"), _packed_shape),
        lambda x, size: np.packbits(x >= 0, bitorder="little").reshape(size, -1),
        dtypes=_FLOATS,
        products=_PRODUCTS,
        attributes=("size",),
    ),
    library_operator(
        "sign_bits_unpack",
        "out[i] = 1 if bit i % 8 of byte i // 8 is 1, else -1",
        "Unpack signs into 1 and -1.",
        (
            tensor_in("self", "the bytes; UINT8"),
            _SIZE,
            Parameter("dtype", "dtype", Kind.DTYPE, "the data type of out"),
            tensor_out("out", "the signs"),
        ),
        _checks(
            {D.UINT8}, _FLOATS, _rows(_bits, "bits"), _unpacked_shape, rule("data type dtype: out", _declared_dtype)
        ),
        lambda x, size: np.unpackbits(x, bitorder="little").reshape(size, -1) * np.float32(2) - np.float32(1),
        dtypes=(D.UINT8, *_FLOATS),
        products=_PRODUCTS,
        attributes=("size",),
    ),
)
