"""aclnnForeach…: one operation on every tensor of a list, as optimisers and gradient clipping call it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import MOST_DIMS, dtype_in, extents, listing, on, real, rule
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import INTEGERS, MODERN, power, scalar, support, tensor_in, tensor_out
from aclnn.operators.library.lists import (
    alike,
    as_many,
    each_of,
    few_dims,
    not_null,
    of_same_shape,
    of_types,
    public,
    real_number,
    single,
    supported,
)

_FLOATING = (D.FLOAT, D.FLOAT16, D.BF16)
_WITH_INT32 = (*_FLOATING, D.INT32)
_ZEROED = (*_WITH_INT32, D.INT16)
_SMALL = (D.INT16, D.INT8, D.UINT8)
_MOST_TENSORS = 50
#: Checks that the documents leave to the tiling function; V2 functions of a number make them themselves.
_TILING = ACLNN_ERR_INNER_TILING_ERROR


def _list(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INPUT_LIST, meaning)


_OUT = Parameter("out", "out", Kind.OUTPUT_LIST, "the results", c_type="const aclTensorList *")


def _few(first: str) -> Check:
    def violation(call: Call) -> str | None:
        count = len(call[first])
        return None if count <= _MOST_TENSORS else f"{first}: expected at most {_MOST_TENSORS} tensors, got {count}"

    return rule(f"at most {_MOST_TENSORS} tensors: {first}", violation, _TILING)


def _checks(
    lists: tuple[str, ...], given: tuple[str, ...], number_types: Check, is_reduced: bool, many: bool
) -> tuple[Check, ...]:
    first, others = lists[0], (*lists[1:], "out")
    return (
        present(*lists, *given, "out"),
        each_of("no null among them", (*lists, *(given if many else ()), "out"), not_null, ACLNN_ERR_PARAM_NULLPTR),
        each_of("data type of each", (*lists, "out"), supported),
        *((number_types,) if given else ()),
        as_many(first, (*others[:-1], *(given if many else ()), "out"), _TILING),
        each_of("one data type", (first, *others), alike(first), _TILING),
        each_of("at most 8 dimensions each", lists, few_dims, _TILING),
        each_of("same shape each", others[:-1] if is_reduced else others, of_same_shape(first), _TILING),
        *([each_of("one element each", ("out",), single, _TILING)] if is_reduced else []),
        *on(CLASS_950, _few(first)),
    )


def _checks_of_version_2(lists: tuple[str, ...], given: tuple[str, ...], number_types: Check) -> tuple[Check, ...]:
    first, others = lists[0], (*lists[1:], "out")
    return (
        each_of("no null among them", (*lists, "out"), not_null),
        as_many(first, others),
        each_of("data type of each", (*lists, "out"), supported),
        each_of("one data type", (first, *others), alike(first)),
        number_types,
        each_of("at most 8 dimensions each", lists, few_dims),
        each_of("same shape each", others, of_same_shape(first)),
        each_of("no private format among them", (*lists, "out"), public),
        *on(CLASS_950, _few(first)),
    )


#: Data type of the accompanying number, by the tensors' data type; INT32 for others.
_BESIDE: Mapping[D, D] = {D.FLOAT: D.FLOAT, D.BF16: D.FLOAT, D.FLOAT16: D.FLOAT16}


def _beside(first: str, number: Parameter, float_on_950: bool = False) -> Check:
    name = number.name

    def violation(call: Call) -> str | None:
        if not call[first]:
            return None
        dtype, got = call[first][0].dtype, call[name].dtype
        taken: tuple[D, ...] = (_BESIDE.get(dtype, D.INT32),)
        if number.kind is Kind.SCALAR:
            taken = (*taken, D.DOUBLE if dtype in _BESIDE else D.INT64)
        if float_on_950 and dtype == D.FLOAT16 and call.product in CLASS_950:
            taken = (*taken, D.FLOAT)
        if got in taken:
            return None
        return f"{name}: expected data type {listing(d.c_name for d in taken)} with {dtype.c_name}, got {got.c_name}"

    return rule(f"data type with {first}: {name}", violation)


#: Largest numbers.
_MOST = {D.FLOAT: float(np.finfo(np.float32).max), D.FLOAT16: 65504, D.BF16: 255 * 2.0**120, D.INT32: 2**31 - 1}


def _held(call: Call) -> str | None:
    if not call["x"] or call["scalar"].dtype == (dtype := call["x"][0].dtype):
        return None
    number, most = call["scalar"].value, _MOST[dtype]
    if not (number > most or number < -most - (dtype == D.INT32)):
        return None
    return f"scalar: expected a number that {dtype.c_name} holds (the data type of x), got {number}"


def _format_of_x(call: Call, name: str, at: int) -> str | None:
    expected, got = call["x"][at].format, call[name][at].format
    return None if got == expected else f"expected {expected.c_name} (that of x[{at}]), got {got.c_name}"


def _single(*names: str) -> Check:
    def violation(call: Call) -> str | None:
        name = next((name for name in names if call[name].size != 1), None)
        return None if name is None else f"{name}: expected one element, got shape {extents(call[name].shape)}"

    return rule(f"one element: {', '.join(names)}", violation, _TILING)


def _beside_each(call: Call) -> str | None:
    if not call["x1"] or call["scalars"].dtype == (expected := call["x1"][0].dtype):
        return None
    return f"scalars: expected data type {expected.c_name} (that of x1[0]), got {call['scalars'].dtype.c_name}"


def _for_each(call: Call) -> str | None:
    expected, shape = len(call["x1"]), call["scalars"].shape
    if call["scalars"].size == expected and len(shape) <= MOST_DIMS:
        return None
    return f"scalars: expected {expected} elements, one for each tensor, got shape {extents(shape)}"


_HELD = rule("number that the data type holds: scalar", _held)
_ONE_FORMAT = each_of("format of x", ("out",), _format_of_x)


def _foreach(
    name: str,
    formula: str,
    summary: str,
    lists: tuple[Parameter, ...],
    function: Callable[..., Any],
    number: Parameter | None = None,
    dtypes: Collection[D] = _WITH_INT32,
    is_reduced: bool = False,
    number_first: bool = False,
    on_a2: Collection[D] = (),
    number_types: Check | None = None,
    checks: tuple[Check, ...] = (),
) -> Operator:
    names = tuple(parameter.name for parameter in lists)
    given = () if number is None else (number,)
    scalars = tuple(parameter.name for parameter in given)
    many = number is not None and number.kind is Kind.SCALAR_LIST
    in_tensor = number is not None and number.is_tensor
    each_its_own = in_tensor and number is _FACTORS
    if number is not None and name.endswith("_v2"):
        checked = _checks_of_version_2(names, scalars, number_types or _beside(names[0], number))
    else:
        usual = each_of("real number each", scalars, real_number) if many else real(*scalars)
        checked = _checks(names, scalars, number_types or usual, is_reduced, many)

    def work(call: Call) -> Library | None:
        places = [at for at, tensor in enumerate(call["out"]) if tensor.size]
        if not places:
            return None
        factors = [f"{scalars[0]}[{at}]" for at in places] if many else scalars
        count = len(places)

        def each(*operands: Any) -> tuple[Any, ...]:
            arrays, given = operands[: count * len(names)], operands[count * len(names) :]
            if many:
                numbers = given
            elif each_its_own:
                numbers = tuple(given[0].reshape(-1)[at] for at in places)
            else:
                numbers = given * count
            return tuple(
                function(*arrays[at::count], *(_number(value, arrays[at].dtype) for value in numbers[at : at + 1]))
                for at in range(count)
            )

        return Library(
            each,
            (*(f"{listed}[{at}]" for listed in names for at in places), *factors),
            tuple(f"out[{at}]" for at in places),
        )

    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(*given, *lists, _OUT) if number_first else (*lists, *given, _OUT),
        support={**support((*dtypes, *on_a2), A2_CLASS), **support(dtypes, CLASS_950)},
        checks=(*checked, *checks),
        work=work,
        numbers=() if in_tensor or _HELD in checks else scalars,
    )


def _with_number(
    name: str,
    formula: str,
    summary: str,
    lists: tuple[Parameter, ...],
    function: Callable[..., Any],
    number: Parameter,
    dtypes: Collection[D] = _WITH_INT32,
    on_a2: Collection[D] = (),
    float_on_950: tuple[bool, bool] = (False, False),
    checks: tuple[Check, ...] = (),
) -> Iterator[Operator]:
    """Declare the function with a number in a tensor, and version 2, with a scalar and additional checks."""
    versions = (
        (name, tensor_in(number.name, f"{number.meaning}; one element"), (_single(number.name),)),
        (f"{name}_v2", number, checks),
    )
    for (version, given, more), wider in zip(versions, float_on_950, strict=True):
        types = _beside(lists[0].name, given, wider)
        yield _foreach(
            version, formula, summary, lists, function, given, dtypes, on_a2=on_a2, number_types=types, checks=more
        )


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a scalar that keeps arrays of the type in that type; integers wrap to integer types."""
    value = value.reshape(())[()]  # a tensor has dimensions
    if value.dtype.kind == "f":
        return float(value)
    return convert(value, dtype) if dtype.kind in "iu" else int(value)


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compute in float64."""
    return lambda x: function(x.astype(np.float64))


def _by_word(word: Callable[[float], float]) -> Callable[[Any], Any]:
    return _wide(np.vectorize(word, otypes=[np.float64]))


def _half_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _to_odd(x: Any) -> Any:
    low = np.floor(x)
    return np.where((x == low) | (low % 2 != 0), low, low + 1)


#: Functions by roundMode; others return their input. No document mentions 7, which torch_npu uses for fractions.
_ROUNDINGS: dict[int, Callable[[Any], Any]] = {
    1: np.rint,
    2: np.floor,
    3: np.ceil,
    4: _half_away,
    5: np.trunc,
    6: _to_odd,
    7: lambda x: x - np.trunc(x),
}


def _round(x: Any, mode: Any) -> Any:
    rounding = _ROUNDINGS.get(mode)
    return x if rounding is None or x.dtype.kind == "i" else rounding(x)


def _norm(x: Any, order: Any) -> Any:
    x = x.astype(np.float64)
    if order == 2:  # used for gradient clipping
        return math.sqrt(np.vdot(x, x))
    magnitudes = np.abs(x)
    if order == 0:
        return np.count_nonzero(magnitudes)
    if np.isinf(order):
        return magnitudes.max(initial=0) if order > 0 else magnitudes.min(initial=math.inf)
    return (magnitudes**order).sum() ** (1 / order)


def _plus_product(x1: Any, x2: Any, x3: Any, factor: Any) -> Any:
    return x1 + factor * x2 * x3


def _plus_quotient(x1: Any, x2: Any, x3: Any, factor: Any) -> Any:
    return x1 + factor * (x2 / x3)


def _zero_work(call: Call) -> Library | None:
    names = tuple(f"x[{at}]" for at, tensor in enumerate(call["x"]) if tensor.size)
    return Library(lambda: (0,) * len(names), (), names) if names else None


def _unscale_work(call: Call) -> Library | None:
    names = tuple(f"scaledGrads[{at}]" for at, tensor in enumerate(call["scaledGrads"]) if tensor.size)
    if not names:
        return None

    def unscale(found: Any, scale: Any, *gradients: Any) -> tuple[Any, ...]:
        finite = all(np.isfinite(gradient).all() for gradient in gradients)
        return (found if finite else np.ones(found.shape), *(gradient * scale.reshape(()) for gradient in gradients))

    return Library(unscale, ("foundInf", "inScale", *names), ("foundInf", *names))


_X, _X1, _X2, _X3 = (
    _list("x", "the tensors"),
    _list("x1", "the first list"),
    _list("x2", "the second"),
    _list("x3", "the third list"),
)


_NUMBER, _NUMBERS = scalar("scalar", "the number"), Parameter("scalars", "scalars", Kind.SCALAR_LIST, "the numbers")
_FACTOR, _FACTORS = scalar("scalar", "the factor"), tensor_in("scalars", "a factor for each tensor")

_COPIED = (*_FLOATING, *INTEGERS, D.UINT16, D.UINT32, D.DOUBLE, D.BOOL)


def _converted(call: Call) -> str | None:
    if not call["x"] or not call["out"]:
        return None
    source, target = call["x"][0].dtype, call["out"][0].dtype
    if source == target or {source, target} in ({D.FLOAT, D.FLOAT16}, {D.FLOAT, D.BF16}):
        return None
    return f"out: expected data type {source.c_name} (that of x), or float32 with 16 bits, got {target.c_name}"


_COPY = replace(
    _foreach("foreach_copy", "out = x", "Copy each tensor.", (_X,), np.copy, dtypes=_COPIED),
    checks=(
        each_of("no null among them", ("x", "out"), not_null, ACLNN_ERR_PARAM_NULLPTR),
        each_of("data type of each", ("x", "out"), of_types(_COPIED)),
        each_of("one data type in the list", ("x",), alike("x")),
        each_of("one data type in the list", ("out",), alike("out")),
        rule("data type that x converts to: out", _converted),
        as_many("x", ("out",)),
        each_of("at most 8 dimensions each", ("x", "out"), few_dims),
        each_of("no private format among them", ("x", "out"), public),
        each_of("same shape each", ("out",), of_same_shape("x"), _TILING),
    ),
)


OPERATORS = (
    _COPY,
    *_with_number(
        "foreach_add_list",
        "out = x1 + alpha * x2",
        "Add two lists of tensors.",
        (_X1, _X2),
        lambda first, second, alpha: first + (second if alpha == 1 else alpha * second),
        scalar("alpha", "the factor of x2"),
        on_a2=_SMALL,
        float_on_950=(False, True),
    ),
    *_with_number(
        "foreach_add_scalar",
        "out = x + scalar",
        "Add a number to each tensor.",
        (_X,),
        operator.add,
        _NUMBER,
        on_a2=_SMALL,
        float_on_950=(True, True),
    ),
    *_with_number(
        "foreach_mul_scalar",
        "out = x * scalar",
        "Multiply each tensor by a number.",
        (_X,),
        operator.mul,
        _NUMBER,
        float_on_950=(True, True),
    ),
    *_with_number(
        "foreach_sub_list",
        "out = x1 - alpha * x2",
        "Subtract two lists of tensors.",
        (_X1, _X2),
        lambda first, second, alpha: first - (second if alpha == 1 else alpha * second),
        scalar("alpha", "the factor of x2"),
        on_a2=_SMALL,
    ),
    *_with_number(
        "foreach_addcmul_scalar",
        "out = x1 + scalar * x2 * x3",
        "Add a multiple of the product of two lists to a third list.",
        (_X1, _X2, _X3),
        _plus_product,
        _FACTOR,
        float_on_950=(True, True),
    ),
    *_with_number(
        "foreach_addcdiv_scalar",
        "out = x1 + scalar * x2 / x3",
        "Add a multiple of the quotient of two lists to a third list.",
        (_X1, _X2, _X3),
        _plus_quotient,
        _FACTOR,
        _FLOATING,
    ),
    *(
        _foreach(
            f"foreach_addc{name}_{kind}",
            f"out = x1 + scalars * x2 {symbol} x3",
            f"Add multiples of the {word} of two lists to a third list, with one factor per tensor.",
            (_X1, _X2, _X3),
            function,
            numbers,
            dtypes,
            number_types=number_types,
            checks=checks,
        )
        for kind, numbers, number_types, checks in (
            ("scalar_list", _NUMBERS, None, ()),
            (
                "list",
                _FACTORS,
                rule("data type of x1: scalars", _beside_each),
                (rule("a number for each tensor: scalars", _for_each, _TILING),),
            ),
        )
        for name, symbol, word, function, dtypes in (
            ("mul", "*", "product", _plus_product, _WITH_INT32),
            ("div", "/", "quotient", _plus_quotient, _FLOATING),
        )
    ),
    _foreach(
        "foreach_lerp_scalar",
        "out = x1 + weight * (x2 - x1)",
        "Interpolate between two lists of tensors.",
        (_X1, _X2),
        lambda first, second, weight: first + weight * (second - first),
        scalar("weight", "0: x1, 1: x2"),
        dtypes=_FLOATING,
        number_types=dtype_in((D.FLOAT, D.DOUBLE), "weight"),
    ),
    _foreach(
        "foreach_lerp_list",
        "out = x1 + weight * (x2 - x1)",
        "Interpolate between two lists of tensors by a list of weights.",
        (_X1, _X2, _list("weight", "0: x1, 1: x2")),
        lambda first, second, weight: first + weight * (second - first),
        dtypes=_FLOATING,
    ),
    _foreach(
        "foreach_pow_scalar_and_tensor",
        "out = scalar^x",
        "Raise a number to the powers in each tensor.",
        (_X,),
        lambda x, base: power(np.asarray(base, x.dtype), x),
        _NUMBER,
        number_first=True,
    ),
    *(
        _foreach(
            f"foreach_round_off_number{version}",
            "out = x rounded: half to even (roundMode 1), down (2), up (3), half away from 0 (4), towards 0 (5), "
            "to odd (6); its fraction (7)",
            "Round each tensor to integers.",
            (_X,),
            _round,
            mode,
            dtypes,
            on_a2=(D.INT16,),
            number_types=dtype_in(modes, "roundMode"),
            checks=checks,
        )
        for version, mode, dtypes, modes, checks in (
            (
                "",
                tensor_in("roundMode", "the rounding mode; one element"),
                (*_FLOATING, D.INT16),
                (D.INT8,),
                (_single("roundMode"),),
            ),
            ("_v2", scalar("roundMode", "the rounding mode"), _WITH_INT32, (D.INT8, D.INT64), ()),
        )
    ),
    _foreach(
        "foreach_div_scalar_list",
        "out = x / scalars",
        "Divide each tensor by its own number.",
        (_X,),
        operator.truediv,
        _NUMBERS,
        dtypes=_FLOATING,
    ),
    *(
        _foreach(f"foreach_{name}", f"out = {formula}", f"{summary} of each tensor.", (_X,), function, dtypes=dtypes)
        for name, formula, summary, function, dtypes in (
            ("sqrt", "sqrt(x)", "Square roots", np.sqrt, _FLOATING),
            ("reciprocal", "1 / x", "Reciprocals", lambda x: 1 / x, _FLOATING),
            ("exp", "e^x", "Exponentials", lambda x: np.exp(x.astype(np.float64)), _FLOATING),
            ("abs", "|x|", "Absolute values", np.abs, _FLOATING),
            ("neg", "-x", "Negatives", np.negative, _WITH_INT32),
            ("sign", "sign(x)", "Signs", np.sign, _WITH_INT32),
            ("acos", "arccos(x)", "Inverse cosines", _wide(np.arccos), _FLOATING),
            ("asin", "arcsin(x)", "Inverse sines", _wide(np.arcsin), _FLOATING),
            ("atan", "arctan(x)", "Inverse tangents", _wide(np.arctan), _FLOATING),
            ("cos", "cos(x)", "Cosines", _wide(np.cos), _FLOATING),
            ("cosh", "cosh(x)", "Hyperbolic cosines", _wide(np.cosh), _FLOATING),
            ("erf", "erf(x)", "Error functions", _by_word(math.erf), _FLOATING),
            ("erfc", "1 - erf(x)", "Complementary error functions", _by_word(math.erfc), _FLOATING),
            ("expm1", "e^x - 1", "Exponentials minus 1", _wide(np.expm1), _FLOATING),
            ("log", "ln(x)", "Logarithms", _wide(np.log), _FLOATING),
            ("log10", "log10(x)", "Logarithms to base 10", _wide(np.log10), _FLOATING),
            ("log1p", "ln(1 + x)", "Logarithms of 1 + x", _wide(np.log1p), _FLOATING),
            ("log2", "log2(x)", "Logarithms to base 2", _wide(np.log2), _FLOATING),
            ("sigmoid", "1 / (1 + e^-x)", "Sigmoids", _wide(lambda x: 1 / (1 + np.exp(-x))), _FLOATING),
            ("sin", "sin(x)", "Sines", _wide(np.sin), _FLOATING),
            ("sinh", "sinh(x)", "Hyperbolic sines", _wide(np.sinh), _FLOATING),
            ("tan", "tan(x)", "Tangents", _wide(np.tan), _FLOATING),
            ("tanh", "tanh(x)", "Hyperbolic tangents", _wide(np.tanh), _FLOATING),
        )
    ),
    *(
        _foreach(f"foreach_{name}_list", f"out = {formula}", f"{summary} of two lists.", (_X1, _X2), function)
        for name, formula, summary, function in (
            ("mul", "x1 * x2", "Products", operator.mul),
            ("maximum", "max(x1, x2)", "Maximum", np.maximum),
            ("minimum", "min(x1, x2)", "Minimum", np.minimum),
            ("pow", "x1^x2", "Powers", power),
        )
    ),
    _foreach(
        "foreach_div_list", "out = x1 / x2", "Quotients of two lists.", (_X1, _X2), operator.truediv, dtypes=_FLOATING
    ),
    *(
        each
        for name, formula, summary, function, dtypes, checks in (
            ("sub", "x - scalar", "Subtract a number from each tensor.", operator.sub, _WITH_INT32, (_ONE_FORMAT,)),
            ("div", "x / scalar", "Divide each tensor by a number.", operator.truediv, _FLOATING, ()),
            ("maximum", "max(x, scalar)", "Clamp each tensor from below.", np.maximum, _WITH_INT32, (_HELD,)),
            ("minimum", "min(x, scalar)", "Clamp each tensor from above.", np.minimum, _WITH_INT32, (_HELD,)),
            ("pow", "x^scalar", "Raise each tensor to a power.", power, _WITH_INT32, ()),
        )
        for each in _with_number(
            f"foreach_{name}_scalar", f"out = {formula}", summary, (_X,), function, _NUMBER, dtypes, checks=checks
        )
    ),
    *(
        _foreach(f"foreach_{name}_scalar_list", f"out = {formula}", summary, (_X,), function, _NUMBERS)
        for name, formula, summary, function in (
            ("add", "x + scalars", "Add its own number to each tensor.", operator.add),
            ("sub", "x - scalars", "Subtract its own number from each tensor.", operator.sub),
            ("mul", "x * scalars", "Multiply each tensor by its own number.", operator.mul),
            ("maximum", "max(x, scalars)", "Clamp each tensor from below by its own number.", np.maximum),
            ("minimum", "min(x, scalars)", "Clamp each tensor from above by its own number.", np.minimum),
            ("pow", "x^scalars", "Raise each tensor to its own power.", power),
        )
    ),
    _foreach(
        "foreach_norm",
        "out = (sum of |x|^scalar)^(1/scalar)",
        "Norm of each tensor.",
        (_X,),
        _norm,
        scalar("scalar", "the order of the norm"),
        dtypes=_FLOATING,
        is_reduced=True,
    ),
    Operator(
        name="foreach_zero_inplace",
        summary="Set each tensor to zero.",
        formula="x = 0",
        parameters=(Parameter("x", "x", Kind.OUTPUT_LIST, "the tensors", c_type="const aclTensorList *"),),
        support=support(_ZEROED, MODERN),
        checks=(
            each_of("no null among them", ("x",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("x",), of_types(_ZEROED), ACLNN_ERR_PARAM_INVALID),
            each_of("one data type", ("x",), alike("x"), _TILING),
            each_of("at most 8 dimensions each", ("x",), few_dims, _TILING),
        ),
        work=_zero_work,
    ),
    Operator(
        name="foreach_non_finite_check_and_unscale",
        summary="Unscale gradients in place, and report infinities and NaN.",
        formula="scaledGrads = scaledGrads * inScale; foundInf = 1 if one of scaledGrads is not finite",
        parameters=(
            Parameter("scaledGrads", "scaled_grads", Kind.OUTPUT_LIST, "the gradients", c_type="const aclTensorList *"),
            tensor_out("foundInf", "set to 1 if any gradient is not finite, otherwise unchanged", const=True),
            tensor_in("inScale", "the number"),
        ),
        support=support(_FLOATING, MODERN),
        checks=(
            each_of("no null among them", ("scaledGrads",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            each_of("data type of each", ("scaledGrads",), of_types(_FLOATING), ACLNN_ERR_PARAM_INVALID),
            dtype_in((D.FLOAT,), "foundInf", "inScale"),
            each_of("one data type", ("scaledGrads",), alike("scaledGrads"), _TILING),
            _single("foundInf", "inScale"),
        ),
        work=_unscale_work,
    ),
)
