"""Functions of one number: aclnnAbs, aclnnNeg, aclnnSign, those that round, exponentials, roots, logarithms, sines …

Most exist in place too.
"""

from __future__ import annotations

import math
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
    fits,
    floating,
    limited_dims,
    limited_dims_unless_contiguous,
    on,
    public_format,
    same_dtype,
    same_format,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.core.products import CLASS_950, Product
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
    tensor_in,
    tensor_out,
)

_SELF, _OUT = tensor_in("self", "x"), tensor_out()
_FIELDS = (*REAL_FLOATING, *COMPLEX)
_WITH_MAGNITUDE = (*REAL, D.COMPLEX64)


def _computed(call: Call) -> D:
    """Return the data type of the computation: FLOAT for integers and BOOL, DOUBLE for INT64's square root."""
    dtype: D = call["self"].dtype
    if dtype in _FIELDS:
        return dtype
    return D.DOUBLE if (call.operator.name, dtype) == ("sqrt", D.INT64) else D.FLOAT


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compute in double precision: NumPy's float32 functions are off by several ULP on some processors."""
    return lambda x: function(x.astype(np.result_type(x, np.float64)))


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return integers unchanged, which NumPy's functions may convert to floating point."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _sign(x: Any) -> Any:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.abs(x))
    return x if x.dtype == np.bool_ else np.sign(x)


_Formats = Callable[..., tuple[Check, ...]]


def _any_format(*names: str) -> tuple[Check, ...]:
    return ()


def _public_on_950(*names: str) -> tuple[Check, ...]:
    return on(CLASS_950, public_format(*names))


def _public(*names: str) -> tuple[Check, ...]:
    return (public_format(*names),)


def _function(
    name: str,
    formula: str,
    summary: str,
    dtypes: Collection[D],
    function: Callable[[Any], Any],
    dtype: Callable[[Call], D] = _computed,
    stream_type: str = "aclrtStream ",
    results: Collection[D] = (),
    formats: _Formats = _any_format,
    taken: Callable[[Product], Collection[D]] | None = None,
) -> Operator:
    """Declare a function whose result is converted to out, which may be restricted to some data types."""
    return library_operator(
        name,
        f"out = {formula}",
        summary,
        (_SELF, _OUT),
        (
            dtype_in(taken or where_supported(dtypes), "self"),
            dtype_in(where_supported(results), "out") if results else castable_from(dtype, "out"),
            same_shape("out", "self"),
            limited_dims("self"),
            *formats("self", "out"),
        ),
        function,
        dtype=dtype,
        dtypes=dtypes,
        stream_type=stream_type,
    )


def _of_one_type(
    name: str,
    formula: str,
    summary: str,
    dtypes: Collection[D],
    function: Callable[[Any], Any],
    stream_type: str = "aclrtStream ",
    formats: _Formats = _any_format,
    more_on_950: Collection[D] = (),
    products: Collection[Product] = WITH_INFERENCE,
) -> Operator:
    """Declare a function whose result has the type of its argument; the 950 class takes more types."""
    return library_operator(
        name,
        f"out = {formula}",
        summary,
        (_SELF, _OUT),
        (
            same_dtype("out", "self"),
            dtype_in(on_950(more_on_950, dtypes), "self"),
            same_shape("out", "self"),
            limited_dims("self"),
            *formats("self", "out"),
        ),
        function,
        dtypes=dtypes,
        products=products,
        stream_type=stream_type,
    )


def _in_place(
    forward: Operator,
    function: Callable[[Any], Any],
    dtypes: Collection[D] = _FIELDS,
    formats: _Formats = _any_format,
    limited: Callable[..., Check] = limited_dims,
    more_on_950: Collection[D] = (),
) -> Operator:
    """Declare the in-place function, which takes some of the forward function's data types."""
    taken = frozenset[D]().union(*forward.support.values()) & frozenset(dtypes)
    return library_operator(
        f"inplace_{forward.name}",
        forward.formula.replace("self", "selfRef").replace("out = ", "selfRef = "),
        f"{forward.summary[:-1]}, in place.",
        (tensor_out("selfRef", "x, replaced by the result", const=forward.name in _CONST_ARGUMENTS),),
        (dtype_in(on_950(more_on_950, taken), "selfRef"), limited("selfRef"), *formats("selfRef")),
        function,
        header=forward.name,
        dtypes=taken,
        stream_type=forward.stream_type,
    )


def _elementary(
    name: str,
    formula: str,
    summary: str,
    function: Callable[[Any], Any],
    dtypes: Collection[D] = NUMBERS,
    stream_type: str = "aclrtStream ",
    results: Collection[D] = (),
    formats: _Formats = _any_format,
    taken: Callable[[Product], Collection[D]] | None = None,
) -> tuple[Operator, Operator]:
    """Declare an elementary function and its in-place form; ``taken`` if products differ by more than BF16."""
    wide = _wide(function)
    forward = _function(name, formula, summary, dtypes, wide, _computed, stream_type, results, formats, taken)
    return forward, _in_place(forward, wide, formats=formats)


def _and_in_place(
    forward: Operator,
    function: Callable[[Any], Any],
    dtypes: Collection[D],
    formats: _Formats = _any_format,
    limited: Callable[..., Check] = limited_dims,
    more_on_950: Collection[D] = (),
) -> tuple[Operator, ...]:
    return forward, _in_place(forward, function, dtypes, formats, limited, more_on_950)


def _rounded_to(x: Any, decimals: int) -> Any:
    """Round to decimals in the argument's precision, as devices do; integers round to multiples of powers of ten."""
    if x.dtype.kind == "f":
        power = x.dtype.type(10.0 ** min(abs(decimals), 400) if abs(decimals) < 309 else math.inf)
        return np.rint(x * power) / power if decimals > 0 else np.rint(x / power) * power
    if decimals >= 0:
        return x
    if decimals < -18:
        return np.zeros_like(x)
    power = 10**-decimals
    quotient, rest = np.divmod(x.astype(np.int64), power)
    return (quotient + (2 * rest + (quotient & 1) > power)) * power


def _angle(x: Any) -> Any:
    if x.dtype.kind == "c":
        return np.angle(x.astype(np.complex128))
    return np.where(np.isnan(x), x, np.where(x < 0, math.pi, 0))


_PARTS = {D.COMPLEX64: D.FLOAT, D.COMPLEX128: D.DOUBLE, D.FLOAT: D.FLOAT, D.FLOAT16: D.FLOAT16}


def _with_parts(product: Product) -> Collection[D]:
    """Return the supported data types: older products take no real numbers, the 950 class no COMPLEX128."""
    if product in CLASS_950:
        return _PARTS.keys() - {D.COMPLEX128}
    return _PARTS if product.has_bfloat16 else COMPLEX


_EXPONENTS = (D.FLOAT, D.FLOAT16, D.BF16, D.INT64, D.BOOL)
_CONST_STREAM = "const aclrtStream "
#: Functions whose forms in place call their argument const.
_CONST_ARGUMENTS = ("round", "tan")
_WITHOUT_DOUBLE = tuple(dtype for dtype in REAL if dtype != D.DOUBLE)
_ROUNDED = (*REAL_FLOATING, D.INT32, D.INT64)
_TRUNCATED = (D.INT8, D.UINT8, D.INT32)
_SIGNED = (*REAL_FLOATING, D.INT8, D.INT32, D.INT64, *COMPLEX)
_ANGLED = (*_WITHOUT_DOUBLE, D.COMPLEX64)
_EXACT = (*REAL_FLOATING, *INTEGERS, *UNSIGNED)
_erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _erfinv(x: Any) -> Any:
    """Winitzki's approximation, within 0.2 %, then three of Halley's steps, each of which cubes the relative error."""
    magnitude = np.abs(x)
    # Beyond 0.5 the distance to 1 is exact, erf is not.
    rest, is_large = 1 - magnitude, magnitude > 0.5
    logarithm = np.log1p(-magnitude * magnitude)
    a = 0.147
    half = 2 / (math.pi * a) + logarithm / 2
    y = np.sqrt(-logarithm / a / (np.sqrt(half * half - logarithm / a) + half))
    y = np.where(rest == 0, math.inf, y)
    finite = np.isfinite(y)
    for _ in range(3):
        error = np.where(is_large, rest - erfc(y), _erf(y) - magnitude)
        step = error * (math.sqrt(math.pi) / 2) * np.exp(y * y)
        y = np.where(finite, y - step / (1 + y * step), y)
    return np.copysign(y, x)


OPERATORS = (
    library_operator(
        "abs",
        "out = |self|",
        "Absolute value.",
        (_SELF, _OUT),
        (
            dtype_in(
                lambda product: (
                    where_supported(_WITH_MAGNITUDE)(product) - (set() if product.has_bfloat16 else {D.COMPLEX64})
                ),
                "self",
            ),
            fits(
                "data type {} (of the absolute value of self)",
                lambda call, got: (D.FLOAT if call["self"].dtype == D.COMPLEX64 else call["self"].dtype, got.dtype),
                "out",
            ),
            same_format("out", "self"),
            public_format("self"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        np.abs,
        dtypes=_WITH_MAGNITUDE,
        stream_type="const aclrtStream ",
    ),
    replace(
        library_operator(
            "real",
            "out = the real part of self",
            "Real part.",
            (_SELF, _OUT),
            (
                dtype_in(_with_parts, "self"),
                fits(
                    "data type {} (of the real part of self)",
                    lambda call, got: (_PARTS[call["self"].dtype], got.dtype),
                    "out",
                ),
                limited_dims("self"),
                same_shape("out", "self"),
            ),
            np.real,
        ),
        support={product: frozenset(_with_parts(product)) for product in WITH_TRAINING},
    ),
    *_and_in_place(
        _of_one_type("ceil", "ceil(self)", "Round up to an integer.", REAL_FLOATING, np.ceil, _CONST_STREAM),
        np.ceil,
        REAL_FLOATING,
    ),
    *_and_in_place(
        _of_one_type("floor", "floor(self)", "Round down to an integer.", _EXACT, _rounded(np.floor), formats=_public),
        _rounded(np.floor),
        _EXACT,
        _public,
    ),
    *_and_in_place(
        _of_one_type(
            "round",
            "self rounded to the nearest integer, ties to even",
            "Round to the nearest integer, ties to even.",
            _ROUNDED,
            _rounded(np.rint),
            _CONST_STREAM,
            _public,
        ),
        _rounded(np.rint),
        _ROUNDED,
        _public,
    ),
    *(
        library_operator(
            f"{form.prefix}round_decimals",
            f"{form.out} = {form.first} rounded to decimals, ties to even",
            form.summary("Round to decimals."),
            form.parameters(
                Parameter(
                    "decimals",
                    "decimals",
                    Kind.INT64,
                    "the number of decimal places; negative: places before the decimal point",
                ),
                result=_OUT,
            ),
            (
                dtype_in(where_supported(_ROUNDED), form.first, form.out),
                *(() if form.in_place else (same_dtype("out", "self"), same_shape("out", "self"))),
                limited_dims(form.first),
                public_format(form.first, form.out),
            ),
            _rounded_to,
            header="round",
            dtypes=_ROUNDED,
            inputs=(form.first,),
            attributes=("decimals",),
            products=WITH_TRAINING,
        )
        for form in FORMS
    ),
    library_operator(
        "angle_v2",
        "out = argument of x in the complex plane",
        "Argument (phase angle); 0 or pi for real numbers.",
        (tensor_in("x", "the numbers"), _OUT),
        (
            dtype_in(where_supported(_ANGLED), "x"),
            dtype_in(floating, "out"),
            limited_dims("x", "out"),
            same_shape("out", "x"),
            public_format("x", "out"),
        ),
        _angle,
        dtypes=_ANGLED,
        products=MODERN,
    ),
    *_and_in_place(
        _of_one_type(
            "trunc",
            "self rounded towards zero",
            "Round towards zero.",
            FLOATING,
            _rounded(np.trunc),
            more_on_950=_TRUNCATED,
        ),
        _rounded(np.trunc),
        FLOATING,
        more_on_950=_TRUNCATED,
    ),
    _of_one_type(
        "sign",
        "sign of self: 1, 0 or -1; self / |self| for complex numbers",
        "Signs.",
        (*REAL_FLOATING, D.INT32, D.INT64, D.BOOL, *COMPLEX),
        _sign,
        _CONST_STREAM,
    ),
    *_and_in_place(
        _of_one_type(
            "frac",
            "self - trunc(self)",
            "Fractions.",
            (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS),
            lambda x: x - np.trunc(x),
        ),
        lambda x: x - np.trunc(x),
        (D.FLOAT, D.FLOAT16, D.BF16, *INTEGERS),
    ),
    _of_one_type(
        "bitwise_not",
        "~self",
        "Bitwise not; logical not for BOOL.",
        (*INTEGERS, D.BOOL),
        np.invert,
        formats=_public,
        more_on_950=UNSIGNED,
    ),
    *_and_in_place(
        _function("neg", "-self", "Negate.", _SIGNED, np.negative, lambda call: call["self"].dtype),
        np.negative,
        _SIGNED,
    ),
    *_elementary("exp", "e^self", "Exponentials.", np.exp, (*_FIELDS, D.BOOL, D.INT64)),
    *_elementary(
        "expm1",
        "e^self - 1",
        "Exponential minus one, accurate near zero.",
        np.expm1,
        _EXPONENTS,
        _CONST_STREAM,
        taken=lambda product: _EXPONENTS[:3] if product in CLASS_950 else where_supported(_EXPONENTS)(product),
    ),
    *_and_in_place(_function("sqrt", "sqrt(self)", "Square root.", NUMBERS, np.sqrt), np.sqrt, _FIELDS),
    _of_one_type(
        "square",
        "self^2",
        "Squares.",
        (*FLOATING, D.INT32, D.INT64),
        np.square,
        _CONST_STREAM,
        lambda *names: (public_format(*names), same_format("out", "self")),
        products=CLASS_950,
    ),
    *_elementary("rsqrt", "1 / sqrt(self)", "Reciprocal square root.", lambda x: 1 / np.sqrt(x)),
    *_elementary("log", "ln self", "Natural logarithm.", np.log),
    *_elementary("log2", "ln self / ln 2", "Logarithm to base 2.", np.log2),
    *_elementary("log10", "ln self / ln 10", "Logarithm to base 10.", np.log10),
    *_elementary(
        "log1p", "ln(1 + self)", "Logarithm of 1 + x, accurate near zero.", np.log1p, REAL, results=REAL_FLOATING
    ),
    *_elementary("sin", "sin self", "Sines.", np.sin),
    *_elementary("cos", "cos self", "Cosines.", np.cos, stream_type=_CONST_STREAM),
    *_elementary("tan", "tan self", "Tangents.", np.tan, stream_type=_CONST_STREAM, formats=_public_on_950),
    *_elementary("asin", "arcsin self", "Arcsines.", np.arcsin, REAL, results=REAL_FLOATING),
    *_elementary("acos", "arccos self", "Arccosines.", np.arccos, REAL, results=REAL_FLOATING),
    *_elementary("atan", "arctan self", "Arctangents.", np.arctan, REAL, _CONST_STREAM, REAL_FLOATING),
    *_elementary("sinh", "sinh self", "Hyperbolic sine.", np.sinh, formats=_public_on_950),
    *_elementary("cosh", "cosh self", "Hyperbolic cosine.", np.cosh, formats=_public_on_950),
    *_elementary("asinh", "arsinh self", "Inverse hyperbolic sine.", np.arcsinh, formats=_public_on_950),
    *_elementary("acosh", "arcosh self", "Inverse hyperbolic cosine.", np.arccosh, formats=_public_on_950),
    *_elementary("atanh", "artanh self", "Inverse hyperbolic tangent.", np.arctanh, formats=_public_on_950),
    *_elementary("exp2", "2^self", "Powers of 2.", np.exp2, REAL),
    *_elementary("sinc", "sin(pi self) / (pi self), 1 at 0", "Normalized sinc.", np.sinc, REAL, results=REAL_FLOATING),
    *_elementary("erf", "erf self", "Error function.", _erf, (*REAL_FLOATING, D.BOOL, D.INT64)),
    *_elementary(
        "erfc", "1 - erf self", "Complementary error function.", erfc, (*REAL_FLOATING, D.BOOL, D.INT64), _CONST_STREAM
    ),
    *_elementary("erfinv", "y with erf y = self", "Inverse error function.", _erfinv, _WITHOUT_DOUBLE),
    *_elementary(
        "tanh",
        "tanh self",
        "Hyperbolic tangent.",
        np.tanh,
        _WITHOUT_DOUBLE,
        _CONST_STREAM,
        FLOATING,
        lambda *names: (public_format(*names), same_format("out", "self")) if "out" in names else (),
    ),
    *(
        library_operator(
            name,
            f"{first.name if out == () else 'out'} = {first.name}, nan, posinf, neginf for NaN and infinities",
            f"Replace NaN and infinities by numbers{', in place' if out == () else ''}.",
            (
                first,
                *(
                    Parameter(each, each, Kind.FLOAT, f"in the place of {words}")
                    for each, words in (("nan", "NaN"), ("posinf", "infinity"), ("neginf", "-infinity"))
                ),
                *out,
            ),
            (
                dtype_in(where_supported(_WITHOUT_DOUBLE), first.name),
                *((same_dtype("out", "self"), same_shape("out", "self")) if out else ()),
                limited_dims(first.name),
            ),
            lambda x, nan, high, low: np.nan_to_num(x, nan=nan, posinf=high, neginf=low) if x.dtype.kind == "f" else x,
            header="nan_to_num",
            dtypes=_WITHOUT_DOUBLE,
            attributes=("nan", "posinf", "neginf"),
        )
        for name, first, out in (
            ("nan_to_num", _SELF, (_OUT,)),
            ("inplace_nan_to_num", tensor_out("selfRef", "x, replaced by the result"), ()),
        )
    ),
    library_operator(
        "tanh_backward",
        "gradInput = gradOutput * (1 - output^2)",
        "Gradient of the hyperbolic tangent, computed from its result.",
        (
            tensor_in("gradOutput", "the gradient with respect to the output"),
            tensor_in("output", "the result of the forward function"),
            tensor_out("gradInput", "the gradient with respect to the input"),
        ),
        (
            dtype_in(where_supported(REAL_FLOATING), "gradOutput", "output", "gradInput"),
            same_dtype("output", "gradOutput"),
            same_dtype("gradInput", "gradOutput"),
            limited_dims("gradOutput", "output"),
            broadcastable("output", "gradOutput"),
            broadcast_shape_of("gradInput", "gradOutput", "output"),
        ),
        lambda dy, y: dy.astype(np.float64) * (1.0 - np.square(y.astype(np.float64))),
        dtypes=REAL_FLOATING,
        stream_type=_CONST_STREAM,
        empty=("gradOutput", "output"),
    ),
    *_and_in_place(
        library_operator(
            "reciprocal",
            "out = 1 / self",
            "Reciprocals.",
            (_SELF, _OUT),
            (
                dtype_in(where_supported(NUMBERS), "self"),
                dtype_in(where_supported(_FIELDS), "out"),
                same_format("out", "self"),
                limited_dims("self", "out"),
                same_shape("out", "self"),
            ),
            lambda x: 1 / x,
            dtype=_computed,
        ),
        lambda x: 1 / x,
        _FIELDS,
    ),
    *_and_in_place(
        library_operator(
            "logical_not",
            "out = (self == 0)",
            "Logical not: test elements for zero.",
            (_SELF, _OUT),
            (
                dtype_in(where_supported(REAL), "self", "out"),
                same_shape("out", "self"),
                limited_dims_unless_contiguous("self", out="out"),
            ),
            np.logical_not,
            dtypes=REAL,
        ),
        np.logical_not,
        REAL,
        limited=limited_dims_unless_contiguous,
    ),
)
