"""Comparisons of two tensors or a tensor and a number, tests for special values, and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import numpy as np

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    dims_between,
    dtype_in,
    limited_dims,
    only_if,
    promotable,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
from aclnn.core.promotion import is_floating, promote
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import (
    COMPLEX,
    FORMS,
    INTEGERS,
    MODERN,
    NUMBERS,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
    WITH_INFERENCE,
    WITH_TRAINING,
    library_operator,
    on_950,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

_SELF, _OUT = tensor_in("self", "the first operand"), tensor_out(meaning="true or false")
_OTHER, _NUMBER = tensor_in("other", "the second operand"), scalar("other", "the second operand")
_ORDERED = (*REAL, *UNSIGNED)
_Types = Callable[[Product], Collection[D]]


def _where_not_empty(first: str, *checks: Check) -> tuple[Check, ...]:
    """Skip the checks for a call with an empty operand, which succeeds before them."""
    return tuple(
        only_if(check, "where no operand is empty", lambda call: bool(call[first].size and call["other"].size))
        for check in checks
    )


#: Doubles within this distance of the tensor's type are compared in that type.
_EPSILON = 2.0**-23


def _comparison_type(first: str, out: str) -> Callable[[Call], D | None]:
    """Return the common arithmetic type; on older products each function has its own rule."""

    def dtype(call: Call) -> D | None:
        tensor: D = call[first].dtype
        number: D = call["other"].dtype
        if call.product in CLASS_950 or call.operator.name.endswith(("eq_scalar", "ne_scalar")):
            return type_with_scalar(call, first, out)
        if call.operator.name.endswith(("lt_scalar", "le_scalar")):
            return tensor if is_floating(tensor) else promote(tensor, D.FLOAT if number == D.DOUBLE else number)
        if is_floating(tensor) and number == D.DOUBLE:
            error = abs(call["other"].rounded(tensor) - float(call["other"].value))
            return tensor if error <= _EPSILON else D.DOUBLE
        return promote(tensor, number)

    return dtype


def _with_scalar(
    name: str,
    symbol: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    dtypes: _Types,
    results: _Types,
    products: Collection[Product],
    stream_type: str = "aclrtStream ",
    const: bool = False,
) -> Iterator[Operator]:
    taken = dtypes(Product.ASCEND_950)  # the product with the most types
    for form in FORMS:
        prefix, first, out = form
        dtype = _comparison_type(first, out)
        yield library_operator(
            f"{prefix}{name}",
            f"{out} = {first} {symbol} other",
            form.summary(summary),
            form.parameters(_NUMBER, result=_OUT, const=const),
            (
                dtype_in(dtypes, first, "other"),
                *([] if form.in_place else [dtype_in(results, out)]),
                *([scalar_promotes(dtype, first)] if set(UNSIGNED) & set(taken) else []),
                limited_dims(first, out),
                *([] if form.in_place else [same_shape(out, first)]),
            ),
            function,
            header=name,
            dtype=dtype,
            dtypes=taken,
            products=products,
            stream_type="aclrtStream " if form.in_place else stream_type,
        )


_OR_COMPLEX = (*_ORDERED, *COMPLEX)
_NUMBER_TYPES, _ORDERED_TYPES, _RESULT_TYPES = map(where_supported, (NUMBERS, _ORDERED, _OR_COMPLEX))
_EQUAL_TYPES, _EQUAL_RESULTS = on_950((D.UINT64,), NUMBERS), on_950(UNSIGNED, NUMBERS)
#: Functions with fewer unsigned integer types.
_UP_TO_TYPES, _UP_TO_RESULTS = (on_950(more, (*REAL, D.UINT16)) for more in ((D.UINT64,), _OR_COMPLEX))


def _with_tensor(
    name: str,
    symbol: str,
    summary: str,
    function: Callable[[Any, Any], Any],
    taken: _Types = _ORDERED_TYPES,
    results: _Types = _RESULT_TYPES,
    dtypes: Collection[D] = _ORDERED,
    const: bool = False,
) -> Iterator[Operator]:
    for form in FORMS:
        prefix, first, out = form
        yield library_operator(
            f"{prefix}{name}",
            f"{out} = {first} {symbol} other",
            form.summary(summary),
            form.parameters(_OTHER, result=_OUT, const=const),
            (
                dtype_in(taken, first, "other"),
                *([] if form.in_place else [dtype_in(results, out)]),
                promotable(first, "other"),
                limited_dims(first, "other"),
                broadcastable("other", first),
                broadcast_shape_of(out, first, "other"),
            ),
            function,
            header=name,
            dtype=form.promoted,
            dtypes=dtypes,
            empty=(first, "other"),
        )


_UNEQUAL = on_950(UNSIGNED, NUMBERS)


def _unequal() -> Iterator[Operator]:
    for form in FORMS:
        prefix, first, out = form
        yield library_operator(
            f"{prefix}ne_tensor",
            f"{out} = {first} != other",
            form.summary("Compare two tensors: not equal."),
            form.parameters(_OTHER, result=_OUT),
            (
                *_where_not_empty(
                    first,
                    dtype_in(_UNEQUAL, *form.names),
                    promotable(first, "other"),
                    limited_dims(first, "other"),
                    broadcastable("other", first),
                    broadcast_shape_of(out, first, "other"),
                ),
            ),
            operator.ne,
            header="ne_tensor",
            dtype=form.promoted,
            products=WITH_TRAINING,
            empty=(first, "other"),
        )


def _logical(
    name: str, summary: str, function: Callable[[Any, Any], Any], results: _Types | None = None
) -> Iterator[Operator]:
    words = name.removeprefix("logical_")
    for form in FORMS:
        prefix, first, out = form
        yield library_operator(
            f"{prefix}{name}",
            f"{out} = ({first} != 0) {words} (other != 0)",
            form.summary(summary),
            form.parameters(_OTHER, result=_OUT),
            (
                dtype_in(where_supported(NUMBERS), first, "other"),
                *([] if results is None or form.in_place else [dtype_in(results, out)]),
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


def _predicate(
    name: str,
    words: str,
    summary: str,
    function: Callable[[Any], Any],
    header: str,
    dtypes: Collection[D] = REAL,
    products: Collection[Product] = WITH_TRAINING,
    results: Collection[D] = (),
    too_many_dims: int = ACLNN_ERR_PARAM_INVALID,
) -> Operator:
    return library_operator(
        name,
        f"out = self is {words}",
        summary,
        (_SELF, _OUT),
        (
            dtype_in(where_supported(dtypes), "self"),
            dtype_in(where_supported(results), "out") if results else _BOOLEAN,
            *with_code(too_many_dims, limited_dims("self")),
            same_shape("out", "self"),
        ),
        function,
        header=header,
        dtypes=dtypes,
        products=products,
    )


def _close(self: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    if self.dtype.kind == "f":
        return np.isclose(self.astype(np.float64), other.astype(np.float64), rtol, atol, equal_nan)
    # Differences of 64-bit integers are not computed in another type.
    distance = np.maximum(self, other).astype(np.uint64) - np.minimum(self, other).astype(np.uint64)
    return (distance == 0) | (distance <= atol + rtol * np.abs(other.astype(np.float64)))


_FOUND = (*REAL_FLOATING, *INTEGERS)
#: From this number of elements on, a scalar also determines the type, as in PyTorch.
_MANY = 10


def _among(call: Call) -> D | None:
    elements, number = call["testElements"], call["element"].dtype
    if elements.size >= _MANY or (is_floating(number) and not is_floating(elements.dtype)):
        return promote(elements.dtype, number)
    return D(elements.dtype)


def _is_in(
    name: str,
    formula: str,
    summary: str,
    element: Parameter,
    tested: Parameter,
    shape: Check,
    dtype: Callable[[Call], D | None],
    function: Callable[[Any, Any], Any],
) -> Operator:
    tensor = tested.name if element.kind is Kind.SCALAR else element.name
    return library_operator(
        name,
        f"out = ({formula}) != invert",
        summary,
        (
            element,
            tested,
            Parameter("assumeUnique", "assume_unique", Kind.BOOL, "whether the elements are unique; without effect"),
            Parameter("invert", "invert", Kind.BOOL, "whether to invert the result"),
            _OUT,
        ),
        (dtype_in(where_supported(_FOUND), element.name, tested.name), _BOOLEAN, limited_dims(tensor), shape),
        lambda element, tested, invert: function(element, tested) != invert,
        header="isin_tensor_scalar" if element.kind is not Kind.SCALAR else "isin",
        dtype=dtype,
        dtypes=_FOUND,
        products=WITH_TRAINING,
        attributes=("invert",),
    )


OPERATORS = (
    *_with_tensor(
        "eq_tensor",
        "==",
        "Compare two tensors: equal.",
        operator.eq,
        _EQUAL_TYPES,
        _EQUAL_RESULTS,
        (*NUMBERS, D.UINT64),
        const=True,
    ),
    *_with_tensor("gt_tensor", ">", "Compare two tensors: greater.", operator.gt, const=True),
    *_with_tensor("ge_tensor", ">=", "Compare two tensors: greater or equal.", operator.ge),
    *_with_tensor(
        "lt_tensor", "<", "Compare two tensors: less.", operator.lt, results=on_950(COMPLEX, _ORDERED), const=True
    ),
    *_with_tensor("le_tensor", "<=", "Compare two tensors: less or equal.", operator.le, _UP_TO_TYPES, _UP_TO_RESULTS),
    *_unequal(),
    *(
        each
        for name, symbol, words, function, dtypes, results, products in (
            ("eq", "==", "equal", operator.eq, _EQUAL_TYPES, _EQUAL_RESULTS, WITH_TRAINING),
            ("ne", "!=", "not equal", operator.ne, _NUMBER_TYPES, _NUMBER_TYPES, WITH_TRAINING),
            ("gt", ">", "greater", operator.gt, _ORDERED_TYPES, _RESULT_TYPES, WITH_INFERENCE),
            (
                *("lt", "<", "less", operator.lt, _ORDERED_TYPES, on_950(COMPLEX, _ORDERED)),
                WITH_TRAINING | {Product.ATLAS_200I_500_A2},
            ),
            ("ge", ">=", "greater or equal", operator.ge, _ORDERED_TYPES, _RESULT_TYPES, WITH_TRAINING),
            ("le", "<=", "less or equal", operator.le, _UP_TO_TYPES, _UP_TO_RESULTS, WITH_TRAINING),
        )
        for each in _with_scalar(
            f"{name}_scalar",
            symbol,
            f"Compare a tensor with a number: {words}.",
            function,
            dtypes,
            results,
            products,
            "const aclrtStream " if name in ("eq", "ne") else "aclrtStream ",
            const=name in ("eq", "lt"),
        )
    ),
    _predicate("is_finite", "neither infinite nor NaN", "Test elements for finite numbers.", np.isfinite, "isfinite"),
    _predicate(
        "is_inf",
        "infinite",
        "Find infinities of either sign.",
        np.isinf,
        "is_inf",
        products=MODERN,
        too_many_dims=ACLNN_ERR_INNER_TILING_ERROR,
    ),
    *(
        _predicate(
            f"is_{name}_inf",
            words,
            f"Find {sign} infinities.",
            partial(operator.eq, number),
            f"is{name}inf",
            tuple(dtype for dtype in REAL if dtype != D.DOUBLE),
            MODERN | {Product.ATLAS_INFERENCE},
        )
        for name, words, sign, number in (("pos", "inf", "positive", np.inf), ("neg", "-inf", "negative", -np.inf))
    ),
    _predicate(
        "signbit",
        "negative, or -0",
        "Test elements for a set sign bit.",
        lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
        "signbit",
        (*REAL, *UNSIGNED),
        results=(*REAL, *UNSIGNED, D.BOOL),
    ),
    library_operator(
        "is_close",
        "out = |self - other| <= atol + rtol * |other|",
        "Test elementwise whether two tensors are equal within tolerances.",
        (
            _SELF,
            _OTHER,
            Parameter("rtol", "rtol", Kind.DOUBLE, "the relative tolerance, a factor of |other|"),
            Parameter("atol", "atol", Kind.DOUBLE, "the absolute tolerance"),
            Parameter("equal_nan", "equal_nan", Kind.BOOL, "whether NaN counts as close to NaN"),
            _OUT,
        ),
        (
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
        "out = self and other have the same shape and equal elements",
        "Test whether two tensors are equal.",
        (_SELF, _OTHER, tensor_out("out", "true or false, one element")),
        (
            dtype_in(where_supported((*REAL, *UNSIGNED)), "self", "other"),
            _BOOLEAN,
            limited_dims("self", "other"),
            shape_is("one element", lambda call: (1,), "out"),
        ),
        lambda self, other: np.array_equal(self, other),
        dtypes=(*REAL, *UNSIGNED),
    ),
    _is_in(
        "is_in_tensor_scalar",
        "element == testElement",
        "Compare elements with a number for equality.",
        tensor_in("element", "the elements"),
        scalar("testElement", "the number"),
        same_shape("out", "element"),
        lambda call: type_with_scalar(call, "element", "out", "testElement"),
        operator.eq,
    ),
    _is_in(
        "is_in_scalar_tensor",
        "element in testElements",
        "Test whether a number is among the elements of a tensor.",
        scalar("element", "the number"),
        tensor_in("testElements", "the elements"),
        dims_between(0, 0, "out"),
        _among,
        lambda number, elements: (elements == number).any(),
    ),
    *_logical("logical_and", "Logical and; nonzero elements count as true.", np.logical_and),
    *_logical("logical_or", "Logical or; nonzero elements count as true.", np.logical_or, _EQUAL_RESULTS),
    next(_logical("logical_xor", "Logical exclusive or; nonzero elements count as true.", np.logical_xor)),
)
