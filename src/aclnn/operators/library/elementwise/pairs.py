"""Binary functions beyond arithmetic: angles, logaddexp, x ln y, greatest common divisors, bit shifts.

Complex numbers from real and imaginary parts, or from modulus and angle: aclnnComplex, aclnnPolar.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    listing,
    on,
    promotable,
    public_format,
    real,
    rule,
    same_dtype,
    same_shape,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Operator, Parameter, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import is_floating, promote
from aclnn.operators.library.common import (
    COMPLEX,
    FORMS,
    INTEGERS,
    REAL,
    UNSIGNED,
    Form,
    library_operator,
    promoted,
    replaced,
    scalar,
    tensor_in,
    tensor_out,
)


def right_shift(x: Any, bits: Any) -> Any:
    """Return x / 2^bits, rounded down; negative shifts count as 0, and too large ones as the width minus one."""
    return np.right_shift(x, np.clip(bits, 0, 8 * x.dtype.itemsize - 1))


def _floating(dtype: D) -> D:
    """Return FLOAT for integers and BOOL, in which they are computed."""
    return dtype if is_floating(dtype) else D.FLOAT


def _wide(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Compute floating-point numbers in float64: NumPy's float32 functions are off by several ULP."""
    return lambda x, y: function(np.asarray(x, np.float64), np.asarray(y, np.float64))


def _of_tensors(
    name: str,
    formula: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    header: str,
    second: str = "other",
    dtypes: Collection[D] = REAL,
    dtype: Callable[[D], D] = _floating,
    form: Form = FORMS[0],
    second_const: bool = True,
) -> Operator:
    first, out = form.first, form.out
    other = Parameter(second, second, Kind.INPUT, "the second operand", c_type=None if second_const else "aclTensor *")

    def computed(call: Call) -> D:
        return dtype(promoted(call, first, second))

    return library_operator(
        form.prefix + name,
        f"{out} = {formula.replace('self', first)}",
        form.summary(summary),
        form.parameters(other, result=tensor_out()),
        (
            dtype_in(where_supported(dtypes), first, second),
            castable_from(computed, out),
            limited_dims(first, second),
            broadcastable(second, first),
            broadcast_shape_of(out, first, second),
        ),
        function,
        header=header,
        dtype=computed,
        dtypes=dtypes,
        empty=(first, second),
    )


def _with_scalar(
    name: str,
    formula: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    header: str,
    tensor: str,
    number: str,
    dtypes: Collection[D] = REAL,
    dtype: Callable[[D], D] = _floating,
) -> Operator:
    """Declare a function of a tensor and a number, in the formula's order; in place for a tensor ``selfRef``."""
    in_place = tensor == "selfRef"
    out = tensor if in_place else "out"
    given = [replaced() if in_place else tensor_in(tensor, "the tensor"), scalar(number, "the number")]

    def computed(call: Call) -> D:
        return dtype(call[tensor].dtype)

    return library_operator(
        name,
        f"{out} = {formula}",
        summary,
        (*sorted(given, key=lambda each: each.name == "other"), *(() if in_place else (tensor_out(),))),
        (
            present(*dict.fromkeys((tensor, number, out))),
            dtype_in(where_supported(dtypes), tensor),
            real(number),
            castable_from(computed, out),
            limited_dims(tensor),
            *(() if in_place else (same_shape("out", tensor),)),
        ),
        function,
        header=header,
        dtype=computed,
        dtypes=dtypes,
    )


def _x_log_y(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y), np.nan, np.where(x == 0, 0, x * np.log(y)))


_WITHOUT_DOUBLE = tuple(dtype for dtype in REAL if dtype != D.DOUBLE)
_DIVISIBLE = (D.INT16, D.INT32, D.INT64)


def _integers(product: Product) -> Collection[D]:
    """Return the data types in which common divisors are computed."""
    if product is Product.ATLAS_TRAINING:
        return (D.INT32,)
    return INTEGERS if product in CLASS_950 else _DIVISIBLE


def _common_integer(call: Call) -> str | None:
    mine, theirs = call["self"].dtype, call["other"].dtype
    found, taken = promote(mine, theirs), _integers(call.product)
    if found in taken:
        return None
    expected = listing(dtype.c_name for dtype in taken)
    return (
        f"other: expected a data type that promotes to {expected} with {mine.c_name} (that of self) on "
        f"{call.product.title}, got {theirs.c_name}"
    )


_COMPLEX_OF = {D.FLOAT16: D.COMPLEX32, D.FLOAT: D.COMPLEX64, D.DOUBLE: D.COMPLEX128}


def _of_parts(call: Call) -> str | None:
    part, got = call["real"].dtype, call["out"].dtype
    expected = _COMPLEX_OF.get(part)
    if expected is None or got == expected:  # the parts of an empty result may have any type
        return None
    return f"out: expected data type {expected.c_name} (of parts of {part.c_name}), got {got.c_name}"


def _complex(real: Any, imag: Any) -> Any:
    """Assemble complex numbers; a sum would turn the real part into NaN if the imaginary part is infinite."""
    found = np.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real, np.complex64))
    found.real, found.imag = real, imag
    return found


def _polar(size: Any, angle: Any) -> Any:
    angle = angle.astype(np.float64)
    return _complex(size * np.cos(angle), size * np.sin(angle))


OPERATORS = (
    library_operator(
        "gcd",
        "out = greatest common divisor of self and other",
        "Greatest common divisors of integers.",
        (tensor_in("self", "the first operand"), tensor_in("other", "the second operand"), tensor_out()),
        (
            dtype_in((*INTEGERS, *UNSIGNED), "out"),
            rule("promotes to an integer: other", _common_integer),
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        np.gcd,
        dtype=lambda call: promoted(call, "self", "other"),
        dtypes=(*INTEGERS, *UNSIGNED, D.BOOL),
        empty=("self", "other"),
    ),
    library_operator(
        "complex",
        "out = real + imag * i",
        "Complex numbers from real and imaginary parts.",
        (tensor_in("real", "the real parts"), tensor_in("imag", "the imaginary parts"), tensor_out()),
        (
            *unless_empty(
                ("real", "imag"),
                dtype_in(_COMPLEX_OF, "real", "imag"),
                dtype_in(_COMPLEX_OF.values(), "out"),
                same_dtype("imag", "real"),
                rule("of these parts: out", _of_parts),
                limited_dims("real", "imag"),
                broadcastable("imag", "real"),
                broadcast_shape_of("out", "real", "imag"),
                *on(CLASS_950, public_format("real")),
            ),
        ),
        _complex,
        dtypes=(D.FLOAT, D.DOUBLE, *COMPLEX),
        empty=("real", "imag"),
    ),
    library_operator(
        "polar",
        "out = input * (cos angle + i * sin angle)",
        "Complex numbers from absolute values and angles.",
        (tensor_in("input", "the absolute values"), tensor_in("angle", "the angles"), tensor_out()),
        (
            dtype_in((D.FLOAT,), "input"),
            same_dtype("angle", "input"),
            dtype_in((D.COMPLEX64,), "out"),
            limited_dims("input", "angle"),
            broadcastable("angle", "input"),
            broadcast_shape_of("out", "input", "angle"),
        ),
        _polar,
        dtypes=(D.FLOAT, D.COMPLEX64),
        empty=("input", "angle"),
    ),
    *(
        _of_tensors(
            "atan2",
            "atan2(self, other)",
            "Four-quadrant arctangent.",
            _wide(np.arctan2),
            "atan2",
            form=form,
            second_const=not form.in_place,
        )
        for form in FORMS
    ),
    _of_tensors(
        "log_add_exp",
        "ln(e^self + e^other)",
        "Logarithm of the sum of exponentials of two tensors.",
        _wide(np.logaddexp),
        "logaddexp",
    ),
    _of_tensors(
        "log_add_exp2",
        "ln(2^self + 2^other) / ln 2",
        "Logarithm to base 2 of the sum of powers of 2 of two tensors.",
        _wide(np.logaddexp2),
        "logaddexp2",
    ),
    *(
        _of_tensors(
            "x_log_y_tensor",
            "self * ln other, 0 where self is 0",
            "Products with the logarithm of a second tensor.",
            _wide(_x_log_y),
            "x_log_y_tensor",
            dtypes=_WITHOUT_DOUBLE,
            form=form,
        )
        for form in FORMS
    ),
    _with_scalar(
        "x_log_y_scalar_other",
        "self * ln other, 0 where self is 0",
        "Products with the logarithm of a number.",
        _wide(_x_log_y),
        "x_log_y_scalar_other",
        "self",
        "other",
        _WITHOUT_DOUBLE,
    ),
    _with_scalar(
        "inplace_x_log_y_scalar_other",
        "selfRef * ln other, 0 where selfRef is 0",
        "Products with the logarithm of a number, in place.",
        _wide(_x_log_y),
        "x_log_y_scalar_other",
        "selfRef",
        "other",
        _WITHOUT_DOUBLE,
    ),
    _with_scalar(
        "x_log_y_scalar_self",
        "self * ln other, 0 where self is 0",
        "Products of a number with the logarithm of a tensor.",
        _wide(_x_log_y),
        "x_log_y_scalar_self",
        "other",
        "self",
        _WITHOUT_DOUBLE,
    ),
    _of_tensors(
        "left_shift",
        "self * 2^shiftBits",
        "Shift bits to the left.",
        np.left_shift,
        "left_shift",
        "shiftBits",
        INTEGERS,
        lambda dtype: dtype,
    ),
    _with_scalar(
        "left_shifts",
        "self * 2^shiftBits",
        "Shift bits to the left by a number.",
        np.left_shift,
        "left_shift",
        "self",
        "shiftBits",
        INTEGERS,
        lambda dtype: dtype,
    ),
    library_operator(
        "right_shift",
        "out = self / 2^shiftBits, rounded down",
        "Shift bits to the right, preserving the sign.",
        (tensor_in("self", "the first operand"), tensor_in("shiftBits", "the second operand"), tensor_out()),
        (
            dtype_in((*INTEGERS, *UNSIGNED), "self", "shiftBits", "out"),
            promotable("self", "shiftBits"),
            limited_dims("self", "shiftBits"),
            broadcastable("shiftBits", "self"),
            broadcast_shape_of("self", "self", "shiftBits"),
            same_shape("out", "self"),
        ),
        right_shift,
        dtype=lambda call: promoted(call, "self", "shiftBits"),
        dtypes=(*INTEGERS, *UNSIGNED),
        empty=("self", "shiftBits"),
    ),
)
