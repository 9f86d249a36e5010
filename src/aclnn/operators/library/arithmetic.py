"""aclnnAdd, aclnnSub, aclnnMul, aclnnDiv: of two tensors or of a tensor and a scalar, into a third or in place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    on,
    present,
    public_format,
    rule,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import castable, is_integer
from aclnn.operators.library.common import (
    MODERN,
    NUMBERS,
    WITH_TRAINING,
    library_operator,
    promoted,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

# Any two of these promote to one of them.
_TAKEN = where_supported(NUMBERS)
_SELF, _OTHER = tensor_in("self", "the first operand"), tensor_in("other", "the second operand")
_NUMBER = scalar("other", "the second operand")
_ALPHA = scalar("alpha", "the factor of other")
_OUT = tensor_out()


def _in_place(const: bool) -> Any:
    return tensor_out("selfRef", "the first operand, replaced by the result", const)


def _difference(self: Any, other: Any, alpha: Any) -> Any:
    # NumPy subtracts no booleans.
    return self ^ (alpha & other) if self.dtype == np.bool_ else self - alpha * other


def _of_tensors(name: str) -> Callable[[Call], D]:
    return lambda call: promoted(call, name, "other")


def _with_scalar(name: str, out: str) -> Callable[[Call], D]:
    """The type of a tensor and scalars; on the 950 class FLOAT where 16 bits do not hold these."""

    def dtype(call: Call) -> D:
        found = type_with_scalar(call, name, out)
        assert found is not None
        if found not in (D.FLOAT16, D.BF16) or call.product not in CLASS_950:
            return found
        numbers = [call[p.name].value for p in call.operator.parameters if p.kind is Kind.SCALAR]
        return found if all(_holds(found, float(number)) for number in numbers) else D.FLOAT

    return dtype


def _holds(dtype: D, number: float) -> bool:
    """True when rounding to the type changes the number by at most 2⁻²³."""
    return not abs(float(dtype.numpy.type(number)) - number) > 2.0**-23


def _wide(dtype: Callable[[Call], D]) -> Callable[[Call], D]:
    """BF16 and a scalar are computed in FLOAT."""
    return lambda call: D.FLOAT if dtype(call) == D.BF16 else dtype(call)


def _quotient(dtype: Callable[[Call], D]) -> Callable[[Call], D]:
    """Integers and BOOL are divided as FLOAT."""

    def divided(call: Call) -> D:
        found = dtype(call)
        return D.FLOAT if found == D.BOOL or is_integer(found) else found

    return divided


def _alpha(dtype: Callable[[Call], D]) -> Check:
    def complain(call: Call) -> str | None:
        computed, mine = dtype(call), call["alpha"].dtype
        if castable(mine, computed) or (computed == D.BOOL and is_integer(mine)):
            return None
        return f"alpha: expected a data type that converts to {computed.c_name} (that of the result), got {mine.c_name}"

    return rule("converts to the result's data type: alpha", complain)


def _has_type(name: str, out: str) -> Check:
    return scalar_promotes(lambda call: type_with_scalar(call, name, out), name)


def _shapes(out: str, first: str) -> tuple[Check, ...]:
    return broadcastable("other", first), broadcast_shape_of(out, first, "other")


def _additive(
    name: str, title: str, symbol: str, function: Callable[..., Any], products: Collection[Product]
) -> tuple[Operator, ...]:
    def types(first: str, out: str) -> tuple[Check, ...]:
        dtype = _of_tensors(first)
        return dtype_in(_TAKEN, first, "other"), _alpha(dtype), castable_from(dtype, out)

    def scalar_checks(first: str, out: str) -> tuple[Check, ...]:
        dtype = _with_scalar(first, out)
        return (
            dtype_in(_TAKEN, first),
            _has_type(first, out),
            _alpha(dtype),
            castable_from(dtype, out),
            limited_dims(first),
        )

    # The prototypes of the two families differ in const alone.
    replaced = _in_place(const=name == "add")
    return (
        library_operator(
            name,
            f"out = self {symbol} alpha * other",
            f"{title} two tensors.",
            (_SELF, _OTHER, _ALPHA, _OUT),
            (
                present("self", "other", "alpha", "out"),
                *types("self", "out"),
                limited_dims("self", "other"),
                *_shapes("out", "self"),
            ),
            function,
            header=name,
            dtype=_of_tensors("self"),
            products=products,
        ),
        library_operator(
            f"inplace_{name}",
            f"selfRef = selfRef {symbol} alpha * other",
            f"{title} two tensors, into the first.",
            (replaced, _OTHER, _ALPHA),
            (
                present("selfRef", "other", "alpha"),
                *_shapes("selfRef", "selfRef"),
                *types("selfRef", "selfRef"),
                limited_dims("selfRef", "other"),
            ),
            function,
            header=name,
            dtype=_of_tensors("selfRef"),
            products=WITH_TRAINING,
        ),
        library_operator(
            f"{name}s",
            f"out = self {symbol} alpha * other",
            f"{title} a tensor and a scalar.",
            (_SELF, _NUMBER, _ALPHA, _OUT),
            (present("self", "other", "alpha", "out"), *scalar_checks("self", "out"), same_shape("out", "self")),
            function,
            header=name,
            dtype=_with_scalar("self", "out"),
        ),
        library_operator(
            f"inplace_{name}s",
            f"selfRef = selfRef {symbol} alpha * other",
            f"{title} a tensor and a scalar, into the tensor.",
            (replaced, _NUMBER, _ALPHA),
            (present("selfRef", "other", "alpha"), *scalar_checks("selfRef", "selfRef")),
            function,
            header=name,
            dtype=_with_scalar("selfRef", "selfRef"),
            products=WITH_TRAINING,
        ),
    )


def _multiplicative() -> tuple[Operator, ...]:
    def scalar_types(first: str, out: str) -> tuple[Check, ...]:
        return _has_type(first, out), *on(CLASS_950, castable_from(_with_scalar(first, out), out))

    return (
        library_operator(
            "mul",
            "out = self * other",
            "Multiply two tensors.",
            (_SELF, _OTHER, _OUT),
            (
                present("self", "other", "out"),
                dtype_in(_TAKEN, "self", "other", "out"),
                castable_from(_of_tensors("self"), "out"),
                limited_dims("self", "other"),
                *_shapes("out", "self"),
            ),
            operator.mul,
            header="mul",
            dtype=_of_tensors("self"),
        ),
        library_operator(
            "inplace_mul",
            "selfRef = selfRef * other",
            "Multiply two tensors, into the first.",
            (_in_place(const=False), _OTHER),
            (
                present("selfRef", "other"),
                dtype_in(_TAKEN, "selfRef", "other"),
                castable_from(_of_tensors("selfRef"), "selfRef"),
                *_shapes("selfRef", "selfRef"),
            ),
            operator.mul,
            header="mul",
            dtype=_of_tensors("selfRef"),
            products=WITH_TRAINING,
        ),
        library_operator(
            "muls",
            "out = self * other",
            "Multiply a tensor by a scalar.",
            (_SELF, _NUMBER, _OUT),
            (
                present("self", "other", "out"),
                dtype_in(_TAKEN, "self", "out"),
                *scalar_types("self", "out"),
                same_shape("out", "self"),
                limited_dims("self"),
            ),
            operator.mul,
            header="mul",
            dtype=_wide(_with_scalar("self", "out")),
        ),
        library_operator(
            "inplace_muls",
            "selfRef = selfRef * other",
            "Multiply a tensor by a scalar, into the tensor.",
            (_in_place(const=False), _NUMBER),
            (
                present("selfRef", "other"),
                dtype_in(_TAKEN, "selfRef"),
                *scalar_types("selfRef", "selfRef"),
                limited_dims("selfRef"),
            ),
            operator.mul,
            header="mul",
            dtype=_wide(_with_scalar("selfRef", "selfRef")),
            products=WITH_TRAINING,
        ),
    )


def _divisive() -> tuple[Operator, ...]:
    def tensors(first: str, out: str, *more: str) -> tuple[Check, ...]:
        return (
            dtype_in(_TAKEN, "other", first),
            castable_from(_quotient(_of_tensors(first)), out),
            public_format(first, "other", *more),
        )

    def scalars(first: str, out: str, *more: Check) -> tuple[Check, ...]:
        return (
            public_format(*dict.fromkeys((first, out))),
            dtype_in(_TAKEN, "other", first),
            limited_dims(first),
            *more,
            castable_from(checked(first, out), out),
        )

    def checked(first: str, out: str) -> Callable[[Call], D]:
        # Only the 950 class looks at the type of the quotient.
        quotient = _quotient(_with_scalar(first, out))
        return lambda call: quotient(call) if call.product in CLASS_950 else call[first].dtype

    with_200i = MODERN | {Product.ATLAS_TRAINING, Product.ATLAS_200I_500_A2}
    return (
        library_operator(
            "div",
            "out = self / other",
            "Divide two tensors; integers as float32.",
            (_SELF, _OTHER, _OUT),
            (
                present("self", "other", "out"),
                limited_dims("self", "other"),
                *_shapes("out", "self"),
                *tensors("self", "out", "out"),
            ),
            operator.truediv,
            header="div",
            dtype=_quotient(_of_tensors("self")),
            products=with_200i,
        ),
        library_operator(
            "inplace_div",
            "selfRef = selfRef / other",
            "Divide two tensors, into the first.",
            (_in_place(const=False), _OTHER),
            (
                present("selfRef", "other"),
                limited_dims("selfRef", "other"),
                *_shapes("selfRef", "selfRef"),
                *tensors("selfRef", "selfRef"),
            ),
            operator.truediv,
            header="div",
            dtype=_quotient(_of_tensors("selfRef")),
            products=WITH_TRAINING,
        ),
        library_operator(
            "divs",
            "out = self / other",
            "Divide a tensor by a scalar; integers as float32.",
            (_SELF, _NUMBER, _OUT),
            (present("self", "other", "out"), *scalars("self", "out", same_shape("out", "self"))),
            operator.truediv,
            header="div",
            dtype=_wide(_quotient(_with_scalar("self", "out"))),
            products=WITH_TRAINING,
        ),
        library_operator(
            "inplace_divs",
            "selfRef = selfRef / other",
            "Divide a tensor by a scalar, into the tensor.",
            (_in_place(const=False), _NUMBER),
            (present("selfRef", "other"), *scalars("selfRef", "selfRef")),
            operator.truediv,
            header="div",
            dtype=_wide(_quotient(_with_scalar("selfRef", "selfRef"))),
            products=WITH_TRAINING,
        ),
    )


OPERATORS = (
    *_additive("add", "Add", "+", lambda self, other, alpha: self + alpha * other, WITH_TRAINING),
    *_additive("sub", "Subtract", "-", _difference, WITH_TRAINING | {Product.ATLAS_200I_500_A2}),
    *_multiplicative(),
    *_divisive(),
)
