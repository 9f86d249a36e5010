"""aclnnAddLayerNorm and its gradients."""

from __future__ import annotations

import math

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
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
    PRODUCTS,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Shape,
    T,
    changed,
    differs,
    dtype,
    generated,
    not_one_a_row,
    not_trailing,
    shape,
    tiled,
)
from tests.helpers import norms

_INFERENCE = (Product.ATLAS_INFERENCE,)
_SUPPORTED = (*MODERN, *_INFERENCE)
_OLDER = tuple(product for product in _SUPPORTED if product not in ONLY_950)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_INFERENCE, (FLOAT, FLOAT16))
_UNSUPPORTED = {product: (NO_KERNEL_FOUND, "product") for product in PRODUCTS if product not in _SUPPORTED}
_WHOLE, _STATISTICS = ("x1", "x2", "yOut", "xOut"), ("meanOut", "rstdOut")
_OUTPUTS = ("yOut", *_STATISTICS, "xOut")
_NAMES = ("x1", "x2", "gamma", "beta", *_OUTPUTS)
_fault = tiled(_SUPPORTED)


def _call(d: D) -> Arguments:
    return {
        "x1": T(d, (2, 3)),
        "x2": T(d, (2, 3)),
        "gamma": T(d, (3,)),
        "beta": T(d, (3,)),
        "biasOptional": T(d, (3,)),
        "epsilon": 1e-5,
        "additionalOutput": True,
        "yOut": T(d, (2, 3)),
        "meanOut": T(FLOAT, (2, 1)),
        "rstdOut": T(FLOAT, (2, 1)),
        "xOut": T(d, (2, 3)),
    }


def _reshape(rows: Shape, columns: Shape, bias: Shape | None = None) -> Change:
    columns = columns or (1,)
    # Where there is nothing to write, no output may have elements.
    statistic = (0,) if 0 in columns else rows + (1,) * len(columns)
    return {
        **shape(rows + columns, *_WHOLE),
        **shape(columns, "gamma", "beta"),
        **shape(columns if bias is None else bias, "biasOptional"),
        **shape(statistic, *_STATISTICS),
    }


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    change = {}
    if product.has_bfloat16:
        wide = dtype(FLOAT, "gamma", "beta")
        change = draw(st.sampled_from([{}, wide, wide | dtype(FLOAT, "x2", "biasOptional", "yOut", "xOut")]))
    whole = arguments["x1"].shape
    bias = draw(st.sampled_from([None, {"shape": whole, "dtype": changed(arguments, change)["yOut"].dtype}]))
    return {**change, "biasOptional": bias, "additionalOutput": draw(st.booleans())}


def _unwritten(arguments: Arguments) -> frozenset[str]:
    return frozenset() if arguments["additionalOutput"] else frozenset({"xOut"})


_PROBE = {
    "x1": (T(FLOAT, (2, 4)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
    "x2": (T(FLOAT, (2, 4)), [0.5, 1, -1, 0.5, 0, 1, 1, -1]),
    "gamma": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
}
_BETA = (T(FLOAT, (4,)), [0, 0.1, -0.2, 1])
_SAMPLE = {
    "x1": (T(FLOAT, (1, 2, 8)), [1.0] * 8 + [2.0] * 8),
    "x2": (T(FLOAT, (1, 2, 8)), [4.0] * 8 + [-3.0] * 8),
    "gamma": (T(FLOAT, (8,)), [2.0] * 8),
    "beta": (T(FLOAT, (8,)), [0.1] * 8),
}


def _example(inputs: dict[str, tuple[T, list[float]]], bias: list[float] | None, eps: float, *printed: str) -> Example:
    given = None if bias is None else (inputs["gamma"][0], bias)
    attributes = {"epsilon": eps, "additionalOutput": True}
    return Example({**inputs, "biasOptional": given}, attributes, dict(zip(_OUTPUTS, printed, strict=True)))


_SUMS = "1.500000 -1.000000 2.000000 1.000000 0.250000 1.000000 0.000000 1.000000"

ADD_LAYER_NORM = Case(
    operator=BY_NAME["add_layer_norm"],
    python=aclnn.add_layer_norm,
    call=_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=norms.add_layer,
    reshape=_reshape,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *generated(
            " ".join(_NAMES),
            _SUPPORTED,
            {"x2": {MODERN: (BF16,), _INFERENCE: FLOATS}, "gamma": {MODERN: (FLOAT, BF16), _INFERENCE: FLOATS}},
        ),
        *differs("yOut", "biasOptional", products=_SUPPORTED),
        *(
            _fault("1 to 8 dimensions: x1, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("x1", "gamma")
            for got in ((), NINE)
        ),
        *(
            _fault(f"same shape as x1: {name}", shape(got, name), name, "shape [2, 3]", str([*got]))
            for name in ("x2", "yOut", "xOut")
            for got in ((3, 2), (6,))
        ),
        *not_trailing("x1", _fault),
        _fault("same shape as gamma: beta", shape((1, 3), "beta"), "beta", "shape [3]", "[1, 3]"),
        *not_one_a_row(_fault, *_STATISTICS),
        tiled(_OLDER)(
            f"no dimension of 0: x1{NOT_ON_950}",
            shape((2, 0), *_WHOLE) | shape((0,), "gamma", "beta", "biasOptional"),
            "x1",
            "no dimension of 0",
            "[2, 0]",
        ),
        _fault("no dimension of 0: biasOptional", shape((0, 3), "biasOptional"), "biasOptional", "of 0", "[0, 3]"),
        *(
            _fault("shape of gamma or x1: biasOptional", shape(got, "biasOptional"), "biasOptional", "[3]", f"{[*got]}")
            for got in ((), (4,), (3, 3), (1, 2, 3))
        ),
        _fault(
            "shape of gamma or x1: biasOptional",
            _reshape((2, 4), (3,), bias=(4, 2, 3)),
            "biasOptional",
            "[3] (as gamma) or [2, 4, 3] (as x1)",
            "[4, 2, 3]",
        ),
    ),
    together={("kernel of the product", f"data types that go together: {', '.join(_NAMES)}"): dtype(D.DOUBLE, "x1")},
    accepted=(
        Accepted("no rows", _reshape((0,), (3,)), _SUPPORTED),
        Accepted("no columns", _reshape((5,), (0,)), _SUPPORTED),
        Accepted(
            "rows of no elements",
            shape((2, 0), *_WHOLE) | shape((0,), "gamma", "beta") | {"biasOptional": None},
            ONLY_950,
        ),
        Accepted("empty outputs of any shape", shape((7, 0), *_OUTPUTS), _SUPPORTED),
        Accepted("no leading dimensions", _reshape((), (3,)), _SUPPORTED),
        Accepted("8 dimensions", _reshape((2, 1, 2, 1), (2, 1, 1, 3)), _SUPPORTED),
        Accepted("one column", _reshape((4,), (1,)), _SUPPORTED),
        Accepted("bias of every row", shape((2, 3), "biasOptional"), _SUPPORTED),
        Accepted("bias of every row in fewer dimensions", _reshape((2, 2), (3,), bias=(4, 3)), _SUPPORTED),
        Accepted("bias with a leading one", shape((1, 3), "biasOptional"), _SUPPORTED),
        Accepted("any epsilon", {"epsilon": math.nan}, _SUPPORTED),
        Accepted(
            "mixed types, neither bias nor sum",
            {
                **dtype(lambda t: FLOAT16 if t.dtype == FLOAT else t.dtype, "x2"),
                **dtype(FLOAT, "gamma", "beta", "yOut", "xOut"),
                "x1": {"dtype": FLOAT},
                "biasOptional": None,
                "additionalOutput": False,
            },
            MODERN,
        ),
    ),
    examples=(
        _example(
            _SAMPLE,
            None,
            1e-6,
            " ".join(["0.100000"] * 16),
            "5.000000 -1.000000",
            "1000.000000 1000.000000",
            " ".join(["5.000000"] * 8 + ["-1.000000"] * 8),
        ),
        _example(
            _SAMPLE,
            [0.5] * 8,
            1e-6,
            " ".join(["0.100000"] * 16),
            "5.500000 -0.500000",
            "1000.000000 1000.000000",
            " ".join(["5.500000"] * 8 + ["-0.500000"] * 8),
        ),
        _example(
            _PROBE | {"beta": _BETA},
            None,
            1e-5,
            "0.548819 -0.723229 -1.187875 1.219528 -0.700122 0.590086 1.060220 2.960343",
            "0.875000 0.562500",
            "0.878111 2.240392",
            _SUMS,
        ),
        _example(
            _PROBE | {"beta": _BETA},
            [1, 0, 0.5, -0.5],
            1e-5,
            "0.933006 -0.620959 -1.133006 0.151813 1.347087 0.388661 0.762205 -0.924410",
            "1.125000 0.812500",
            "0.678550 3.079056",
            "2.500000 -1.000000 2.500000 0.500000 1.250000 1.000000 0.500000 0.500000",
        ),
    ),
)

_INPUTS = ("dy", "x1", "x2")
_PARAMETER_GRADIENTS = ("dgammaOut", "dbetaOut")
_GRADIENT_NAMES = (*_INPUTS, "rstd", "mean", "gamma", "dxOut", *_PARAMETER_GRADIENTS)


def _gradient_call(d: D) -> Arguments:
    return {
        **{name: T(d, (2, 3)) for name in _INPUTS},
        "rstd": T(FLOAT, (2, 1)),
        "mean": T(FLOAT, (2, 1)),
        "gamma": T(d, (3,)),
        "dsumOptional": T(d, (2, 3)),
        "dxOut": T(d, (2, 3)),
        **{name: T(FLOAT, (3,)) for name in _PARAMETER_GRADIENTS},
    }


def _reshape_gradient(rows: Shape, columns: Shape) -> Change:
    # Without rows the gradients of the parameters have nothing to add up.
    columns = (0,) if 0 in rows else columns or (1,)
    return {
        **shape(rows + columns, *_INPUTS, "dsumOptional", "dxOut"),
        **shape(rows + (1,) * len(columns), "rstd", "mean"),
        **shape(columns, "gamma", *_PARAMETER_GRADIENTS),
    }


def _gradient_example(dsum: list[float] | None, dx: str, **given: tuple[T, list[float]]) -> Example:
    whole = given["dy"][0]
    return Example(
        {**given, "dsumOptional": None if dsum is None else (whole, dsum)},
        {},
        {"dxOut": dx, "dgammaOut": _DGAMMA[whole.shape], "dbetaOut": _DBETA[whole.shape]},
    )


_DGAMMA = {
    (2, 4): "0.198758 -0.490086 -2.248095 0.219528",
    (3, 1, 4): "274.000000 374.000000 458.000000 536.000000",
}
_DBETA = {(2, 4): "1.500000 -0.500000 0.000000 2.000000", (3, 1, 4): "15.000000 18.000000 21.000000 24.000000"}
_GRADIENT_PROBE = {
    **_PROBE,
    "dy": (T(FLOAT, (2, 4)), [1, 0, -1, 2, 0.5, -0.5, 1, 0]),
    "mean": (T(FLOAT, (2, 1)), [0.875, 0.5625]),
    "rstd": (T(FLOAT, (2, 1)), [0.8781107, 2.240392]),
}
_TWELVE = [*map(float, range(1, 13))]

ADD_LAYER_NORM_GRAD = Case(
    operator=BY_NAME["add_layer_norm_grad"],
    python=aclnn.add_layer_norm_grad,
    call=_gradient_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=norms.add_layer_gradients,
    reshape=_reshape_gradient,
    mixed=lambda draw, product, arguments: {"dsumOptional": None},
    rejected=(
        *generated(" ".join(_GRADIENT_NAMES), _SUPPORTED),
        *differs("dy", "dsumOptional", products=_SUPPORTED),
        *(
            _fault("1 to 8 dimensions: dy, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("dy", "gamma")
            for got in ((), NINE)
        ),
        *(
            _fault("no dimension of 0: dy", shape(got, "dy"), "dy", "no dimension of 0", str([*got]))
            for got in ((0, 3), (2, 0))
        ),
        *(
            _fault(f"same shape as dy: {name}", shape(got, name), name, "shape [2, 3]", str([*got]))
            for name in ("x1", "x2", "dxOut")
            for got in ((3, 2), (6,))
        ),
        *not_trailing("dy", _fault),
        *(
            _fault(f"same shape as gamma: {name}", shape((1, 3), name), name, "shape [3]", "[1, 3]")
            for name in _PARAMETER_GRADIENTS
        ),
        *not_one_a_row(_fault, "rstd", "mean"),
        _fault("same shape as dy: dsumOptional", shape((3,), "dsumOptional"), "dsumOptional", "shape [2, 3]", "[3]"),
    ),
    together={
        ("kernel of the product", f"data types that go together: {', '.join(_GRADIENT_NAMES)}"): dtype(D.DOUBLE, "dy"),
    },
    accepted=(
        Accepted("no rows and no columns", _reshape_gradient((0,), (0,)), _SUPPORTED),
        Accepted("no columns", _reshape_gradient((5,), (0, 3)), _SUPPORTED),
        Accepted("empty outputs of any shape", shape((7, 0), "dxOut", *_PARAMETER_GRADIENTS), _SUPPORTED),
        Accepted("no leading dimensions", _reshape_gradient((), (3,)), _SUPPORTED),
        Accepted("8 dimensions", _reshape_gradient((2, 1, 2, 1), (2, 1, 1, 3)), _SUPPORTED),
        Accepted("one column", _reshape_gradient((4,), (1,)), _SUPPORTED),
        Accepted("no dsum", {"dsumOptional": None}, _SUPPORTED),
    ),
    examples=(
        # With the values that the document's sample means: it passes integers' bits.
        _gradient_example(
            _TWELVE,
            "1.000000 2.000000 3.000000 4.000000 -1074.000000 -1200.500000 -1592.000000 -1714.500000 "
            "-30757.000000 -37828.000000 -40167.000000 -42502.000000",
            dy=(T(FLOAT, (3, 1, 4)), _TWELVE),
            x1=(T(FLOAT, (3, 1, 4)), _TWELVE),
            x2=(T(FLOAT, (3, 1, 4)), [2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8]),
            rstd=(T(FLOAT, (3, 1, 1)), [0, 1, 2]),
            mean=(T(FLOAT, (3, 1, 1)), [0, 1, 2]),
            gamma=(T(FLOAT, (4,)), [0, 1, 2, 3]),
        ),
        _gradient_example(
            None,
            "-0.677096 -0.603045 -0.867528 2.147669 1.801086 -0.505168 -1.350848 0.054930",
            **_GRADIENT_PROBE,
        ),
        _gradient_example(
            _PROBE["x2"][1],
            "-0.177096 0.396955 -1.867528 2.647669 1.801086 0.494832 -0.350848 -0.945070",
            **_GRADIENT_PROBE,
        ),
    ),
)
