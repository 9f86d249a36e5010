"""Sums, products, quotients, powers, minima and maxima, of two tensors or a tensor and a scalar, also in place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    on,
    one_of,
    public_format,
    rule,
    same_shape,
    unless_empty,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Work, present
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import castable, is_floating, is_integer
from aclnn.operators.library.common import (
    COMPLEX,
    FORMS,
    INTEGERS,
    MODERN,
    NUMBERS,
    WITH_TRAINING,
    Form,
    library_operator,
    power,
    promoted,
    promoted_dtype,
    replaced,
    scalar,
    scalar_promotes,
    support,
    tensor_in,
    tensor_out,
    type_with_scalar,
    within_range,
)

# Closed under promotion.
_TAKEN = where_supported(NUMBERS)
_SELF, _OTHER = tensor_in("self", "the first operand"), tensor_in("other", "the second operand")
_NUMBER = scalar("other", "the second operand")
_ALPHA = scalar("alpha", "the factor of other")
_SUBTRACTED = scalar("alpha", "the factor of self")
_OUT = tensor_out()
_RECTIFIED = (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS)
# Subtraction in this operand order excludes booleans.
_SIGNED = tuple(dtype for dtype in NUMBERS if dtype != D.BOOL)


def _sum(self: Any, other: Any, alpha: Any, out: Any = None) -> Any:
    return np.add(self, other if alpha == 1 else alpha * other, out=out)


def _difference(self: Any, other: Any, alpha: Any, out: Any = None) -> Any:
    if self.dtype == np.bool_:  # NumPy does not subtract booleans
        return self ^ (alpha & other)
    return np.subtract(self, other if alpha == 1 else alpha * other, out=out)


def _of_tensors(name: str) -> Callable[[Call], D]:
    return lambda call: promoted(call, name, "other")


def _with_scalar(name: str, out: str, scalar: str = "other") -> Callable[[Call], D]:
    """Return the type of a tensor and scalars; on the 950 class FLOAT if a 16-bit type does not hold the scalars."""

    def dtype(call: Call) -> D:
        found = type_with_scalar(call, name, out, scalar)
        assert found is not None
        if found not in (D.FLOAT16, D.BF16) or call.product not in CLASS_950:
            return found
        numbers = [call[p.name].value for p in call.operator.parameters if p.kind is Kind.SCALAR]
        return found if all(_holds(found, number) for number in numbers) else D.FLOAT

    return dtype


def _holds(dtype: D, number: Any) -> bool:
    """Return True if rounding to the type changes the real number by at most 2⁻²³."""
    if np.iscomplexobj(number):
        return False
    with np.errstate(over="ignore"):
        return not abs(float(dtype.numpy.type(number)) - float(number)) > 2.0**-23


def _wide(dtype: Callable[[Call], D]) -> Callable[[Call], D]:
    """Return a function that computes BF16 and a scalar in FLOAT."""
    return lambda call: D.FLOAT if dtype(call) == D.BF16 else dtype(call)


def _as_float(dtype: D) -> D:
    """Return FLOAT for integers and BOOL, in which they are divided."""
    return D.FLOAT if dtype == D.BOOL or is_integer(dtype) else dtype


def _quotient(dtype: Callable[[Call], D]) -> Callable[[Call], D]:
    return lambda call: _as_float(dtype(call))


def _alpha(dtype: Callable[[Call], D]) -> Check:
    def violation(call: Call) -> str | None:
        computed, mine = dtype(call), call["alpha"].dtype
        if castable(mine, computed) or (computed == D.BOOL and is_integer(mine)):
            return None
        return f"alpha: expected a data type that converts to {computed.c_name} (that of the result), got {mine.c_name}"

    return rule("converts to the result's data type: alpha", violation)


def _has_type(name: str, out: str) -> Check:
    return scalar_promotes(lambda call: type_with_scalar(call, name, out), name)


def _shapes(out: str, first: str) -> tuple[Check, ...]:
    return broadcastable("other", first), broadcast_shape_of(out, first, "other")


_V3 = (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT8)


def _type_v3(number: str, out: str) -> Callable[[Call], D]:
    """The type of a number and a tensor: FLOAT of floating tensors, of others their own unless the number is one."""

    def dtype(call: Call) -> D:
        mine: D = call[number].dtype
        other: D = call["other"].dtype
        if mine not in COMPLEX and (is_floating(other) or (mine == D.DOUBLE and call[out].dtype == D.FLOAT)):
            return promoted_dtype(other, D.FLOAT)
        return promoted_dtype(other, mine) if mine in COMPLEX or is_floating(mine) else other

    return dtype


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

    # The prototypes of the two families differ only in const.
    first = replaced(const=name == "add")
    return (
        library_operator(
            name,
            f"out = self {symbol} alpha * other",
            f"{title} two tensors.",
            (_SELF, _OTHER, _ALPHA, _OUT),
            (*types("self", "out"), limited_dims("self", "other"), *_shapes("out", "self")),
            function,
            fills=True,
            dtype=_of_tensors("self"),
            products=products,
        ),
        library_operator(
            f"inplace_{name}",
            f"selfRef = selfRef {symbol} alpha * other",
            f"{title} two tensors, into the first.",
            (first, _OTHER, _ALPHA),
            (*_shapes("selfRef", "selfRef"), *types("selfRef", "selfRef"), limited_dims("selfRef", "other")),
            function,
            header=name,
            fills=True,
            dtype=_of_tensors("selfRef"),
            products=WITH_TRAINING,
        ),
        library_operator(
            f"{name}s",
            f"out = self {symbol} alpha * other",
            f"{title} a tensor and a scalar.",
            (_SELF, _NUMBER, _ALPHA, _OUT),
            (*scalar_checks("self", "out"), same_shape("out", "self")),
            function,
            header=name,
            fills=True,
            dtype=_with_scalar("self", "out"),
        ),
        library_operator(
            f"inplace_{name}s",
            f"selfRef = selfRef {symbol} alpha * other",
            f"{title} a tensor and a scalar, into the tensor.",
            (first, _NUMBER, _ALPHA),
            scalar_checks("selfRef", "selfRef"),
            function,
            header=name,
            fills=True,
            dtype=_with_scalar("selfRef", "selfRef"),
            products=WITH_TRAINING,
        ),
    )


def _rectified(form: Form) -> Operator:
    def dtype(call: Call) -> D:
        found = form.promoted(call)
        return D.FLOAT if found in (D.FLOAT16, D.BF16) else found

    types = (
        dtype_in(where_supported(_RECTIFIED), form.first, "other"),
        _alpha(form.promoted),
        castable_from(form.promoted, form.out),
    )
    shapes = _shapes(form.out, form.first)
    return library_operator(
        f"{form.prefix}add_relu",
        f"{form.out} = max({form.first} + alpha * other, 0)",
        form.summary("Add two tensors, then apply ReLU."),
        form.parameters(_OTHER, replace(_ALPHA, c_type="aclScalar *"), result=_OUT),
        (present(*form.names), *shapes, present("alpha"), *types, limited_dims(form.first))
        if form.in_place
        else (*types, limited_dims("self", "other"), *shapes),
        lambda self, other, alpha: np.maximum(_sum(self, other, alpha), 0),
        header="add_relu",
        dtype=dtype,
        dtypes=_RECTIFIED,
        products=WITH_TRAINING,
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
                dtype_in(_TAKEN, "self", "other", "out"),
                castable_from(_of_tensors("self"), "out"),
                limited_dims("self", "other"),
                *_shapes("out", "self"),
            ),
            np.multiply,
            dtype=_of_tensors("self"),
        ),
        library_operator(
            "inplace_mul",
            "selfRef = selfRef * other",
            "Multiply two tensors, into the first.",
            (replaced(), _OTHER),
            (
                dtype_in(_TAKEN, "selfRef", "other"),
                castable_from(_of_tensors("selfRef"), "selfRef"),
                *_shapes("selfRef", "selfRef"),
            ),
            np.multiply,
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
                dtype_in(_TAKEN, "self", "out"),
                *scalar_types("self", "out"),
                same_shape("out", "self"),
                limited_dims("self"),
            ),
            np.multiply,
            header="mul",
            dtype=_wide(_with_scalar("self", "out")),
        ),
        library_operator(
            "inplace_muls",
            "selfRef = selfRef * other",
            "Multiply a tensor by a scalar, into the tensor.",
            (replaced(), _NUMBER),
            (dtype_in(_TAKEN, "selfRef"), *scalar_types("selfRef", "selfRef"), limited_dims("selfRef")),
            np.multiply,
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
            public_format(first, out),
            dtype_in(_TAKEN, "other", first),
            limited_dims(first),
            *more,
            castable_from(checked(first, out), out),
        )

    def checked(first: str, out: str) -> Callable[[Call], D]:
        # Only the 950 class checks the type of the quotient.
        quotient = _quotient(_with_scalar(first, out))
        return lambda call: quotient(call) if call.product in CLASS_950 else call[first].dtype

    with_200i = MODERN | {Product.ATLAS_TRAINING, Product.ATLAS_200I_500_A2}
    return (
        library_operator(
            "div",
            "out = self / other",
            "Divide two tensors; integers in float32.",
            (_SELF, _OTHER, _OUT),
            (limited_dims("self", "other"), *_shapes("out", "self"), *tensors("self", "out", "out")),
            np.true_divide,
            dtype=_quotient(_of_tensors("self")),
            products=with_200i,
        ),
        library_operator(
            "inplace_div",
            "selfRef = selfRef / other",
            "Divide two tensors, into the first.",
            (replaced(), _OTHER),
            (limited_dims("selfRef", "other"), *_shapes("selfRef", "selfRef"), *tensors("selfRef", "selfRef")),
            np.true_divide,
            header="div",
            dtype=_quotient(_of_tensors("selfRef")),
            products=WITH_TRAINING,
        ),
        library_operator(
            "divs",
            "out = self / other",
            "Divide a tensor by a scalar; integers in float32.",
            (_SELF, _NUMBER, _OUT),
            scalars("self", "out", same_shape("out", "self")),
            np.true_divide,
            header="div",
            dtype=_wide(_quotient(_with_scalar("self", "out"))),
            products=WITH_TRAINING,
        ),
        library_operator(
            "inplace_divs",
            "selfRef = selfRef / other",
            "Divide a tensor by a scalar, into the tensor.",
            (replaced(), _NUMBER),
            scalars("selfRef", "selfRef"),
            np.true_divide,
            header="div",
            dtype=_wide(_quotient(_with_scalar("selfRef", "selfRef"))),
            products=WITH_TRAINING,
        ),
    )


def _no_reciprocals(dtype: Callable[[Call], D]) -> Check:
    def violation(call: Call) -> str | None:
        computed, exponent = dtype(call), call["exponent"].value
        if is_floating(computed) or computed in COMPLEX or exponent >= 0:
            return None
        return f"exponent: expected a number of at least 0 for integers, got {exponent}"

    return rule("at least 0 for integers: exponent", violation)


def _no_truths(first: str, second: str) -> Check:
    def violation(call: Call) -> str | None:
        if {call[first].dtype, call[second].dtype} != {D.BOOL}:
            return None
        return f"{second}: expected another data type than ACL_BOOL (that of {first}), got ACL_BOOL"

    return rule(f"no powers of truth values: {second}", violation)


def _powers() -> tuple[Operator, ...]:
    base, exponent = tensor_in("self", "the base"), tensor_in("exponent", "the exponent")
    number = scalar("exponent", "the exponent")

    def with_number(first: str, out: str) -> tuple[Check, ...]:
        dtype = _with_scalar(first, out, "exponent")

        def narrow(call: Call) -> D | None:
            return type_with_scalar(call, first, out, "exponent")

        return (
            dtype_in(_TAKEN, first, "exponent"),
            castable_from(dtype, out),
            limited_dims(first),
            _no_reciprocals(dtype),
            _no_truths(first, "exponent"),
            *on(CLASS_950, *unless_empty((first,), within_range("exponent", narrow))),
        )

    def by_tensor(form: Form) -> Operator:
        tensors = form.first, "exponent"
        return library_operator(
            f"{form.prefix}pow_tensor_tensor",
            f"{form.out} = {form.first}^exponent",
            form.summary("Raise a tensor to the powers in another tensor."),
            form.parameters(exponent, result=_OUT),
            (
                dtype_in(_TAKEN, *tensors, form.out),
                _no_truths(*tensors),
                castable_from(lambda call: promoted(call, *tensors), form.out),
                limited_dims(*tensors),
                broadcastable("exponent", form.first),
                broadcast_shape_of(form.out, *tensors),
            ),
            power,
            header="pow_tensor_tensor",
            dtype=lambda call: promoted(call, *tensors),
        )

    return (
        library_operator(
            "pow_tensor_scalar",
            "out = self^exponent",
            "Raise a tensor to a power.",
            (base, number, _OUT),
            (*with_number("self", "out"), same_shape("out", "self")),
            power,
            header="pow",
            dtype=_wide(_with_scalar("self", "out", "exponent")),
        ),
        library_operator(
            "inplace_pow_tensor_scalar",
            "selfRef = selfRef^exponent",
            "Raise a tensor to a power, in place.",
            (tensor_out("selfRef", "the base, replaced by the result"), number),
            with_number("selfRef", "selfRef"),
            power,
            header="pow",
            dtype=_wide(_with_scalar("selfRef", "selfRef", "exponent")),
        ),
        library_operator(
            "pow_scalar_tensor",
            "out = self^exponent",
            "Raise a number to the powers in a tensor.",
            (scalar("self", "the base"), exponent, _OUT),
            (
                dtype_in(_TAKEN, "self", "exponent"),
                _no_truths("self", "exponent"),
                castable_from(_with_scalar("exponent", "out", "self"), "out"),
                limited_dims("exponent"),
                same_shape("out", "exponent"),
            ),
            power,
            header="pow",
            dtype=_wide(_with_scalar("exponent", "out", "self")),
        ),
        *(by_tensor(form) for form in FORMS),
    )


_REAL = tuple(dtype for dtype in NUMBERS if dtype not in COMPLEX)
_QUOTED = tuple(dtype for dtype in _REAL if dtype != D.BOOL)
_DIVIDED = tuple(dtype for dtype in _QUOTED if dtype != D.INT16)


def _real(
    name: str,
    formula: str,
    summary: str,
    function: Callable[..., Any],
    other: Parameter = _OTHER,
    dtypes: Collection[D] = _QUOTED,
    header: str | None = None,
    form: Form = FORMS[0],
) -> Operator:
    """Declare a function of a tensor and a tensor or a number, not complex; texts are for the form with an output."""
    has_number = other.kind is Kind.SCALAR
    prefix, first, out = form
    dtype = _wide(_with_scalar(first, out)) if has_number else form.promoted
    shapes = _shapes(out, first) if not has_number else () if form.in_place else (same_shape(out, first),)
    return library_operator(
        f"{prefix}{name}",
        f"{out} = {formula.replace('self', first)}",
        form.summary(summary.replace("self", first)),
        form.parameters(other, result=_OUT),
        (
            dtype_in(where_supported(dtypes), *form.names),
            castable_from(_with_scalar(first, out) if has_number else dtype, out),
            limited_dims(first, *(() if has_number else ("other",))),
            *shapes,
        ),
        function,
        header=header or name,
        dtype=dtype,
        dtypes=dtypes,
        empty=(first,) if has_number else (first, "other"),
    )


def _both(
    name: str,
    formula: str,
    summary: str,
    function: Callable[..., Any],
    other: Parameter = _OTHER,
    header: str | None = None,
    dtypes: Collection[D] = _QUOTED,
) -> tuple[Operator, ...]:
    """Declare a function as ``_real`` does, and its in-place variant."""
    return tuple(_real(name, formula, summary, function, other, dtypes, header, form) for form in FORMS)


def _divided(self: Any, other: Any, mode: int, narrow: Any) -> Any:
    """Return the quotient; mode 1 truncates it, after rounding to a 16-bit type if given, mode 2 rounds it down."""
    if mode == 0:
        return self / other
    if mode == 2:
        return _floor_quotient(self, other)
    if self.dtype.kind == "f":
        quotient = self / other
        return np.trunc(quotient if narrow is None else quotient.astype(narrow).astype(np.float32))
    quotient, rest = np.divmod(self, other)
    return quotient + ((rest != 0) & ((self < 0) != (other < 0)))


def _floor_quotient(self: Any, other: Any) -> Any:
    """Return the rounded-down quotient; as in PyTorch, it is infinite if the divisor is 0."""
    found = np.floor_divide(self, other)
    return np.where(other == 0, self / other, found) if self.dtype.kind == "f" else found


_MODE = (Parameter("mode", "mode", Kind.INT32, "rounding mode: 0 none, 1 towards zero, 2 down", c_type="int "),)
_FLOOR, _TRUNC = "self - floor(self / other) * other", "self - trunc(self / other) * other"


def _quotients(name: str, kind: str, other: Parameter, form: Form, fixed: int | None = None) -> Operator:
    """Declare quotients with a rounding mode, which may be fixed; 16-bit ones are rounded before truncation."""
    has_number, down = other.kind is Kind.SCALAR, fixed is not None
    prefix, first, out = form
    tensors = tuple(each for each in form.names if not has_number or each != "other")
    dtypes = _REAL if down else NUMBERS

    def mode(call: Call) -> int:
        return call["mode"] if fixed is None else fixed

    def promoted_type(call: Call) -> D:
        if not has_number:
            return form.promoted(call)
        if call.product in CLASS_950:
            return _with_scalar(first, out)(call)
        tensor, number = D(call[first].dtype), call["other"].dtype
        keeps = mode(call) != 2 and is_floating(tensor) and number not in (*FLOATING, *COMPLEX)
        return tensor if keeps else promoted_dtype(tensor, number)

    def held(call: Call) -> D:
        found = promoted_type(call)
        if has_number and not down and call.product not in CLASS_950:
            return D(call[first].dtype)
        # Before Ascend 950, integer outputs of fractional quotients are not an error.
        return _as_float(found) if mode(call) == 0 and call.product in CLASS_950 else found

    def rounds(call: Call) -> str | None:
        found = promoted_type(call)
        if mode(call) == 0 or found not in COMPLEX:
            return None
        return f"mode: expected 0 for {found.c_name}, got {mode(call)}"

    def work(call: Call) -> Work | None:
        if any(call[each].size == 0 for each in tensors):
            return None
        found, chosen = promoted_type(call), mode(call)
        narrow = found.numpy if found in (D.FLOAT16, D.BF16) else None
        if found == D.BOOL or chosen == 0:
            found = _as_float(found)
        return Library(
            lambda self, other: _divided(self, other, chosen, narrow),
            (first, "other"),
            (out,),
            D.FLOAT if has_number and found == D.BF16 else found,
        )

    return Operator(
        name=f"{prefix}{name}",
        summary=form.summary(f"Quotients by a {kind}, rounded {'down' if down else 'on demand'}."),
        formula=f"{out} = floor({first} / other)" if down else f"{out} = {first} / other, rounded as mode says",
        parameters=form.parameters(other, *(() if down else _MODE), result=_OUT),
        support=support(dtypes),
        checks=(
            dtype_in(where_supported(dtypes), first, "other"),
            limited_dims(*tensors[: 1 if has_number else 2]),
            *(_shapes(out, first) if not has_number else () if form.in_place else (same_shape(out, first),)),
            *(() if down else (one_of("mode", 0, 1, 2),)),
            castable_from(held, out),
            *(() if down else (public_format(*tensors), rule("no complex numbers are rounded: mode", rounds))),
        ),
        work=work,
        in_header_of="floor_divide" if down else "div",
    )


OPERATORS = (
    *_additive("add", "Add", "+", _sum, WITH_TRAINING),
    *_additive("sub", "Subtract", "-", _difference, WITH_TRAINING | {Product.ATLAS_200I_500_A2}),
    *(_rectified(form) for form in FORMS),
    *_multiplicative(),
    *_divisive(),
    *_powers(),
    library_operator(
        "rsub",
        "out = other - alpha * self",
        "Subtract a tensor from another tensor.",
        (_SELF, _OTHER, _SUBTRACTED, _OUT),
        (
            dtype_in(where_supported(_SIGNED), "self", "other"),
            _alpha(_of_tensors("self")),
            castable_from(_of_tensors("self"), "out"),
            limited_dims("self", "other"),
            *_shapes("out", "self"),
        ),
        lambda self, other, alpha: _difference(other, self, alpha),
        dtype=_of_tensors("self"),
        dtypes=_SIGNED,
        empty=("self", "other"),
    ),
    *(
        library_operator(
            f"{form}add_v3",
            f"{out} = {number} + alpha * other",
            f"Add multiples of a tensor to a number{words}.",
            (scalar(number, "the number"), tensor, _ALPHA, *((_OUT,) if out == "out" else ())),
            (
                dtype_in(where_supported(_V3), "other"),
                _alpha(_type_v3(number, out)),
                castable_from(_type_v3(number, out), out),
                limited_dims("other"),
                *((same_shape("out", "other"),) if out == "out" else ()),
            ),
            _sum,
            header="add_v3",
            dtype=_type_v3(number, out),
            dtypes=_V3,
            inputs=(number, "other", "alpha"),
            numbers=("alpha",),
        )
        for form, number, tensor, out, words in (
            ("", "self", tensor_in("other", "the tensor"), "out", ""),
            (
                "inplace_",
                "selfRef",
                tensor_out("other", "the tensor, replaced by the result", const=True, updated=True),
                "other",
                ", in place of the tensor",
            ),
        )
    ),
    library_operator(
        "rsubs",
        "out = other - alpha * self",
        "Subtract a tensor from a number.",
        (_SELF, _NUMBER, _SUBTRACTED, _OUT),
        (
            dtype_in(where_supported(_SIGNED), "self", "other"),
            _alpha(_with_scalar("self", "out")),
            castable_from(_with_scalar("self", "out"), "out"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        lambda self, other, alpha: _difference(other, self, alpha),
        header="rsub",
        dtype=_with_scalar("self", "out"),
        dtypes=_SIGNED,
    ),
    _real(
        "maximum",
        "max(self, other)",
        "Elementwise maximum of two tensors; NaN if either element is NaN.",
        np.maximum,
        dtypes=_REAL,
    ),
    _real(
        "minimum",
        "min(self, other)",
        "Elementwise minimum of two tensors; NaN if either element is NaN.",
        np.minimum,
        dtypes=_REAL,
    ),
    *(
        each
        for kind, other in (("scalar", _NUMBER), ("tensor", _OTHER))
        for each in _both(
            f"remainder_tensor_{kind}",
            _FLOOR,
            f"Remainders by a {kind}, of its sign.",
            np.remainder,
            other,
            header="remainder",
        )
    ),
    library_operator(
        "remainder_scalar_tensor",
        f"out = {_FLOOR}",
        "Remainders of a number divided by a tensor, with the divisor's sign.",
        (scalar("self", "the first operand"), _OTHER, _OUT),
        (
            dtype_in(where_supported(_QUOTED), "self", "other", "out"),
            castable_from(_with_scalar("other", "out", "self"), "out"),
            limited_dims("other"),
            same_shape("out", "other"),
        ),
        np.remainder,
        header="remainder",
        dtype=_wide(_with_scalar("other", "out", "self")),
        dtypes=_QUOTED,
    ),
    *(
        each
        for kind, other in (("scalar", _NUMBER), ("tensor", _OTHER))
        for each in _both(
            f"fmod_{kind}", _TRUNC, f"Remainders by a {kind}, of the sign of self.", np.fmod, other, dtypes=_DIVIDED
        )
    ),
    *(_quotients("floor_divide", "tensor", _OTHER, form, fixed=2) for form in FORMS),
    *(_quotients("floor_divides", "number", _NUMBER, form, fixed=2) for form in FORMS),
    *(_quotients("div_mod", "tensor", _OTHER, form) for form in FORMS),
    *(_quotients("div_mods", "number", _NUMBER, form) for form in FORMS),
)
