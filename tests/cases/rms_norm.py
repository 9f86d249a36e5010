"""aclnnRmsNorm and its gradients."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL_FOUND,
    NOT_ON_950,
    ONLY_950,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Shape,
    T,
    dtype,
    generated,
    shape,
    tiled,
)
from tests.helpers import normalization

_INFERENCE = (Product.ATLAS_INFERENCE,)
_PRODUCTS = (*MODERN, *_INFERENCE)
_OTHERS = (Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_INFERENCE, (FLOAT, FLOAT16))
_UNSUPPORTED = dict.fromkeys(_OTHERS, (NO_KERNEL_FOUND, "product"))
_NOT_EMPTY = " (unless every output is empty)"


#: Of gamma's types besides x's: float32 is one of them where there is bfloat16.
_ALONE = {"gamma": {MODERN: (FLOAT, BF16), _INFERENCE: FLOATS}}
_tiling = tiled(_PRODUCTS)


def _call(d: D) -> Arguments:
    return {
        "x": T(d, (2, 3)),
        "gamma": T(d, (3,)),
        "epsilon": 1e-6,
        "yOut": T(d, (2, 3)),
        "rstdOut": T(FLOAT, (2, 1)),
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    columns = columns or (1,)
    # Where there is nothing to write, no output may have elements.
    rstd = (0,) if 0 in columns else rows + (1,) * len(columns)
    return {**shape(rows + columns, "x", "yOut"), **shape(columns, "gamma"), **shape(rstd, "rstdOut")}


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return dtype(draw(st.sampled_from((FLOAT, arguments["x"].dtype))), "gamma")


RMS_NORM = Case(
    operator=BY_NAME["rms_norm"],
    python=aclnn.rms_norm,
    call=_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=normalization.rms_forward,
    reshape=_reshape,
    mixed=_mixed,
    rejected=(
        *generated("x gamma yOut rstdOut", _PRODUCTS, _ALONE),
        *(
            _tiling("1 to 8 dimensions: x, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("x", "gamma")
            for got in ((), NINE)
        ),
        *(
            _tiling("trailing dimensions of x: gamma", shape(got, "gamma"), "gamma", expected, shown)
            for got, expected, shown in (((4,), "shape [3]", "[4]"), ((1, 2, 3), "at most 2 dimensions", "3"))
        ),
        _tiling("no dimension of 0: gamma, x", _reshape((2,), (0,)) | shape((2, 1), "rstdOut"), "gamma", "of 0", "[0]"),
        _tiling("no dimension of 0: gamma, x", shape((0, 3), "x"), "x", "no dimension of 0", "[0, 3]"),
        _tiling("no dimension of 0: gamma, x", shape((0, 3), "x", "yOut"), "x", "no dimension of 0", "[0, 3]"),
        _tiling("same shape as x: yOut", shape((3, 2), "yOut"), "yOut", "shape [2, 3]", "[3, 2]"),
        *(
            _tiling(
                "dimensions of x or 1: rstdOut", shape(got, "rstdOut"), "rstdOut", "1 or x's [2, 3]", str(list(got))
            )
            for got in ((3, 1), (0, 1), (2, 1, 2))
        ),
        _tiling("room for every row's statistic: rstdOut", shape((1, 1), "rstdOut"), "rstdOut", "2 elements", "1"),
        _tiling("0 or more: epsilon", {"epsilon": -1e-3}, "epsilon", "0 or more", "-0.001"),
    ),
    together={
        ("kernel of the product", "data types that go together: x, gamma, yOut, rstdOut"): dtype(D.DOUBLE, "x"),
    },
    accepted=(
        Accepted("no rows", _reshape((0,), (3,)), _PRODUCTS),
        Accepted("no columns", _reshape((5,), (0, 3)), _PRODUCTS),
        Accepted("empty outputs of any shape", shape((7, 0), "yOut", "rstdOut"), _PRODUCTS),
        Accepted("no leading dimensions", _reshape((), (3,)), _PRODUCTS),
        Accepted("8 dimensions", _reshape((2, 1, 2, 1), (2, 1, 1, 3)), _PRODUCTS),
        Accepted("one column", _reshape((4,), (1,)), _PRODUCTS),
        Accepted("flat rstd", shape((2,), "rstdOut"), _PRODUCTS),
        Accepted("more rstd than rows", shape((2, 3), "rstdOut"), _PRODUCTS),
        Accepted("float32 gamma", dtype(FLOAT, "gamma"), MODERN),
        Accepted("epsilon that is 0 in float32", {"epsilon": -1e-50}, _PRODUCTS),
        Accepted("epsilon that is NaN", {"epsilon": float("nan")}, _PRODUCTS),
        Accepted(
            "formats like ND", {"x": {"format": Format.FORMAT_NCDHW}, "yOut": {"format": Format.FORMAT_NCL}}, _PRODUCTS
        ),
    ),
    examples=(
        Example(
            {
                "x": (T(FLOAT, (2, 16)), [*map(float, range(8))] * 4),
                "gamma": (T(FLOAT, (16,)), [*map(float, range(8))] * 2),
            },
            {"epsilon": 1e-6},
            {
                "yOut": " ".join(["0.000000 0.239046 0.956183 2.151412 3.824731 5.976143 8.605646 11.713240"] * 4),
                "rstdOut": "0.239046 0.239046",
            },
        ),
    ),
)


def _gradient_call(d: D) -> Arguments:
    return {
        "dy": T(d, (2, 3)),
        "x": T(d, (2, 3)),
        "rstd": T(FLOAT, (2, 1)),
        "gamma": T(d, (3,)),
        "dxOut": T(d, (2, 3)),
        "dgammaOut": T(FLOAT, (3,)),
    }


def _reshape_gradient(rows: Shape, columns: Shape, rstd: Shape | None = None) -> Change:
    # Without rows dgamma has nothing to add up, which only the 950 class takes.
    columns = (0,) if 0 in rows else columns or (1,)
    return {
        **shape(rows + columns, "dy", "x", "dxOut"),
        **shape(rows + (1,) * len(columns) if rstd is None else rstd, "rstd"),
        **shape(columns, "gamma", "dgammaOut"),
    }


RMS_NORM_GRAD = Case(
    operator=BY_NAME["rms_norm_grad"],
    python=aclnn.rms_norm_grad,
    call=_gradient_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=normalization.rms_backward,
    reshape=_reshape_gradient,
    mixed=_mixed,
    rejected=(
        *generated("dy x rstd gamma dxOut dgammaOut", _PRODUCTS, _ALONE),
        *(
            _tiling("1 to 8 dimensions: x, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("x", "gamma")
            for got in ((), NINE)
        ),
        _tiling("same shape as x: dy", shape((1, 3), "dy"), "dy", "shape [2, 3]", "[1, 3]"),
        _tiling("same shape as dy: dxOut", shape((3, 2), "dxOut"), "dxOut", "shape [2, 3]", "[3, 2]"),
        _tiling("a last dimension of 1 or more: dy", shape((2, 0), "dy", "x", "dxOut"), "dy", "a last", "[2, 0]"),
        *(
            _tiling("leading dimensions of x: rstd", shape(got, "rstd"), "rstd", "dimensions [2]", str(list(got)))
            for got in ((3, 1), ())
        ),
        *(
            _tiling("trailing dimensions of x: gamma, dgammaOut", change, name, expected, got)
            for name, change, expected, got in (
                ("gamma", shape((4,), "gamma"), "shape [3]", "[4]"),
                ("gamma", shape((1, 2, 3), "gamma"), "at most 2 dimensions", "3"),
                ("dgammaOut", shape((4,), "dgammaOut"), "shape [3]", "[4]"),
                ("dgammaOut", shape((1, 3), "dgammaOut"), "shape [3]", "[1, 3]"),
            )
        ),
        _tiling(
            "one element a row: rstd",
            shape((2, 3), "dy", "x", "dxOut") | shape((2, 2), "rstd"),
            "rstd",
            "2 elements",
            "4",
        ),
        tiled(tuple(product for product in _PRODUCTS if product not in ONLY_950))(
            f"at least one row: x{NOT_ON_950}",
            shape((0, 3), "dy", "x", "dxOut") | shape((0, 1), "rstd"),
            "x",
            "at least one row",
            "[0]",
        ),
    ),
    # rstd with x's leading dimensions, one of them 0, has no element either.
    never_together=frozenset(
        {("one element a row: rstd" + _NOT_EMPTY, f"at least one row: x{NOT_ON_950}{_NOT_EMPTY}")}
    ),
    together={
        ("kernel of the product", "data types that go together: dy, x, rstd, gamma, dxOut, dgammaOut"): dtype(
            D.DOUBLE, "dy"
        ),
    },
    accepted=(
        Accepted("no rows", shape((0, 3), "dy", "x", "dxOut") | shape((0, 1), "rstd"), ONLY_950),
        Accepted("no columns", _reshape_gradient((5,), (0, 3)), _PRODUCTS),
        Accepted("neither", _reshape_gradient((0,), (0,)), _PRODUCTS),
        Accepted("empty outputs of any shape", shape((7, 0), "dxOut", "dgammaOut"), _PRODUCTS),
        Accepted("no leading dimensions", _reshape_gradient((), (3,), rstd=()), _PRODUCTS),
        Accepted("8 dimensions", _reshape_gradient((2, 1, 2, 1), (2, 1, 1, 3)), _PRODUCTS),
        Accepted("one column", _reshape_gradient((4,), (1,)), _PRODUCTS),
        Accepted("rstd without the ones", _reshape_gradient((3, 2), (2, 2), rstd=(3, 2)), _PRODUCTS),
        Accepted("rstd without a leading one", _reshape_gradient((3, 1), (2, 2), rstd=(3,)), _PRODUCTS),
        Accepted("float32 gamma", dtype(FLOAT, "gamma"), MODERN),
        Accepted(
            "formats like ND",
            {"x": {"format": Format.FORMAT_NCDHW}, "dxOut": {"format": Format.FORMAT_NHWC}},
            _PRODUCTS,
        ),
    ),
    examples=(
        Example(
            {
                "dy": (T(FLOAT, (2, 1, 16)), [*map(float, range(1, 33))]),
                "x": (T(FLOAT, (2, 1, 16)), [*map(float, range(1, 33))]),
                "rstd": (T(FLOAT, (2,)), [1.0, 2.0]),
                "gamma": (T(FLOAT, (16,)), [*map(float, range(1, 17))]),
            },
            {},
            {
                "dxOut": " ".join(
                    [f"{i**2 - 1156 * i:.6f}" for i in range(1, 17)]
                    + [f"{2 * i * (i + 16) - 50592 * (i + 16):.6f}" for i in range(1, 17)]
                ),
                "dgammaOut": " ".join(f"{i**2 + 2 * (i + 16) ** 2:.6f}" for i in range(1, 17)),
            },
        ),
    ),
)
