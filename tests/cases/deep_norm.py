"""aclnnDeepNorm and its gradients."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    FLOAT,
    FLOAT16,
    FLOATS,
    INVALID,
    MODERN,
    NAN,
    NINE,
    NO_KERNEL_FOUND,
    ON_950,
    ONLY_950,
    PRODUCTS,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    dtype,
    generated,
    not_one_a_row,
    shape,
    tiled,
)
from tests.helpers import norms

_SUPPORTED = (*MODERN, Product.ATLAS_INFERENCE)
_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_INFERENCE: (FLOAT, FLOAT16)}
_UNSUPPORTED = {product: (NO_KERNEL_FOUND, "product") for product in PRODUCTS if product not in _SUPPORTED}
_OUTPUTS = ("meanOut", "rstdOut", "yOut")
_NAMES = ("x", "gx", "beta", "gamma", *_OUTPUTS)
_GRADIENTS = ("dxOut", "dgxOut", "dbetaOut", "dgammaOut")
_GRADIENT_NAMES = ("dy", "x", "gx", "gamma", "mean", "rstd", *_GRADIENTS)
_MANY = 2**32
_fault = tiled(_SUPPORTED, INVALID)


def _ranks(x: str) -> tuple[Rejected, ...]:
    """Return changes that exceed the limits of x's and gamma's ranks, and of x's extents."""
    return (
        *(
            _fault(f"2 to 8 dimensions: {x}", shape(got, x), x, "2 to 8 dimensions", str(len(got)))
            for got in ((), (3,), NINE)
        ),
        *(
            _fault("1 to 7 dimensions: gamma", shape(got, "gamma"), "gamma", "1 to 7 dimensions", str(len(got)))
            for got in ((), NINE[1:])
        ),
        _fault(f"fewer dimensions than {x}: gamma", shape((2, 3), "gamma"), "gamma", "fewer than 2 dimensions", "2"),
        *(
            _fault(f"no dimension of 0: {x}", shape(got, x), x, "no dimension of 0", str([*got]))
            for got in ((0, 3), (2, 0))
        ),
    )


def _unlike(x: str, *names: str) -> tuple[Rejected, ...]:
    return tuple(
        _fault(f"same shape as {x}: {name}", shape(got, name), name, "shape [2, 3]", str([*got]))
        for name in names
        for got in ((3, 2), (6,))
    )


def _parameters(x: str, *names: str) -> tuple[Rejected, ...]:
    return (
        _fault(f"shape is trailing dimensions of {x}: gamma", shape((4,), "gamma"), "gamma", "shape [3]", "[4]"),
        *(_fault(f"same shape as gamma: {n}", shape((1, 3), n), n, "shape [3]", "[1, 3]") for n in names),
    )


def _call(d: D) -> Arguments:
    return {
        **dict.fromkeys(("x", "gx"), T(d, (2, 3))),
        **dict.fromkeys(("beta", "gamma"), T(d, (3,))),
        "alpha": 0.3,
        "epsilon": 1e-6,
        **dict.fromkeys(("meanOut", "rstdOut"), T(FLOAT, (2, 1))),
        "yOut": T(d, (2, 3)),
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    rows, columns = rows or (1,), columns or (1,)
    # Where there is nothing to write, no output may have elements.
    statistic = (0,) if 0 in columns else rows + (1,) * len(columns)
    return {
        **shape(rows + columns, "x", "gx", "yOut"),
        **shape(columns, "beta", "gamma"),
        **shape(statistic, "meanOut", "rstdOut"),
    }


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return {"alpha": draw(st.sampled_from((0.0, -2.5)))}


_TWELVE = [*map(float, range(1, 13))]
_SAMPLE = {
    "x": (T(FLOAT, (3, 1, 4)), _TWELVE),
    "gx": (T(FLOAT, (3, 1, 4)), [2.0, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8]),
    "gamma": (T(FLOAT, (4,)), [0.0, 1, 2, 3]),
}
_PROBE = {
    "x": (T(FLOAT, (2, 4)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
    "gx": (T(FLOAT, (2, 4)), [0.5, 1, -1, 0.5, 0, 1, 1, -1]),
    "gamma": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
}

DEEP_NORM = Case(
    operator=BY_NAME["deep_norm"],
    python=aclnn.deep_norm,
    call=_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=norms.deep,
    reshape=_reshape,
    mixed=_mixed,
    rejected=(
        *generated(" ".join(_NAMES), _SUPPORTED),
        *_ranks("x"),
        *_unlike("x", "gx", "yOut"),
        *not_one_a_row(_fault, "meanOut", "rstdOut"),
        *_parameters("x", "beta"),
        *(
            tiled(ONLY_950, INVALID)(
                f"few rows and columns: x{ON_950}",
                _reshape(rows, columns),
                "x",
                f"at most {_MANY - 1} rows and columns",
                f"{rows[0]} and {columns[0]}",
            )
            for rows, columns in (((_MANY,), (1,)), ((1,), (_MANY,)))
        ),
    ),
    together={("kernel of the product", f"data types that go together: {', '.join(_NAMES)}"): dtype(D.DOUBLE, "x")},
    accepted=(
        Accepted("no rows", _reshape((0,), (3,)), _SUPPORTED),
        Accepted("no columns", _reshape((5,), (0,)), _SUPPORTED),
        Accepted("empty outputs of any shape", shape((7, 0), *_OUTPUTS) | shape((), "x"), _SUPPORTED),
        Accepted("one row", _reshape((1,), (3,)), _SUPPORTED),
        Accepted("one column", _reshape((4,), (1,)), _SUPPORTED),
        Accepted("8 dimensions", _reshape((2,), (2, 1, 2, 1, 1, 1, 3)), _SUPPORTED),
        *(Accepted(f"alpha {alpha}", {"alpha": alpha}, _SUPPORTED) for alpha in (-1.5, NAN)),
        Accepted("a negative epsilon", {"epsilon": -1e-3}, _SUPPORTED),
    ),
    examples=(
        Example(
            _SAMPLE | {"beta": _SAMPLE["gamma"]},
            {"alpha": 0.3, "epsilon": 1e-6},
            {
                "meanOut": "3.250000 6.950000 10.650001",
                "rstdOut": "0.872871 0.764161 0.872871",
                "yOut": "0.000000 0.432634 1.388990 8.106297 0.000000 0.121215 3.757569 6.324098 0.000000 1.305505 "
                "3.134732 5.487683",
            },
        ),
        Example(
            _PROBE | {"beta": (T(FLOAT, (4,)), [0, 0.1, -0.2, 1])},
            {"alpha": 0.5, "epsilon": 1e-6},
            {
                "meanOut": "0.562500 0.406250",
                "rstdOut": "2.704484 2.570293",
                "yOut": "1.183212 -0.660636 -0.030970 2.014181 -0.722895 0.863056 -0.440965 -1.088363",
            },
        ),
    ),
)


def _gradient_call(d: D) -> Arguments:
    return {
        **dict.fromkeys(("dy", "x", "gx"), T(d, (2, 3))),
        "gamma": T(d, (3,)),
        **dict.fromkeys(("mean", "rstd"), T(FLOAT, (2, 1))),
        "alpha": 0.3,
        **dict.fromkeys(_GRADIENTS[:2], T(d, (2, 3))),
        **dict.fromkeys(_GRADIENTS[2:], T(FLOAT, (3,))),
    }


def _reshape_gradient(rows: Shape, columns: Shape) -> Change:
    # Without rows the gradients of the parameters have nothing to add up.
    rows, columns = rows or (1,), (0,) if 0 in rows else columns or (1,)
    return {
        **shape(rows + columns, "dy", "x", "gx", *_GRADIENTS[:2]),
        **shape(rows + (1,) * len(columns), "mean", "rstd"),
        **shape(columns, "gamma", *_GRADIENTS[2:]),
    }


DEEP_NORM_GRAD = Case(
    operator=BY_NAME["deep_norm_grad"],
    python=aclnn.deep_norm_grad,
    call=_gradient_call,
    dtypes=_DTYPES,
    unsupported=_UNSUPPORTED,
    reference=norms.deep_gradients,
    reshape=_reshape_gradient,
    mixed=_mixed,
    rejected=(
        *generated(" ".join(_GRADIENT_NAMES), _SUPPORTED),
        *_ranks("dy"),
        *_unlike("dy", "x", "gx", *_GRADIENTS[:2]),
        *not_one_a_row(_fault, "mean", "rstd"),
        *_parameters("dy", *_GRADIENTS[2:]),
    ),
    together={
        ("kernel of the product", f"data types that go together: {', '.join(_GRADIENT_NAMES)}"): dtype(D.DOUBLE, "dy"),
    },
    accepted=(
        Accepted("no rows and no columns", _reshape_gradient((0,), (0,)), _SUPPORTED),
        Accepted("no columns", _reshape_gradient((5,), (0, 3)), _SUPPORTED),
        Accepted("empty outputs of any shape", shape((7, 0), *_GRADIENTS) | shape((), "dy"), _SUPPORTED),
        Accepted("one row", _reshape_gradient((1,), (3,)), _SUPPORTED),
        Accepted("one column", _reshape_gradient((4,), (1,)), _SUPPORTED),
        Accepted("8 dimensions", _reshape_gradient((2,), (2, 1, 2, 1, 1, 1, 3)), _SUPPORTED),
    ),
    examples=(
        Example(
            {
                **_SAMPLE,
                "dy": _SAMPLE["x"],
                **dict.fromkeys(("mean", "rstd"), (T(FLOAT, (3, 1, 1)), [0.0, 1, 2])),
            },
            {"alpha": 0.3},
            {
                "dxOut": "0.000000 0.000000 0.000000 0.000000 -106.507507 -111.588005 -161.938507 -165.819016 "
                "-2583.804199 -3461.280273 -3569.316162 -3676.152344",
                "dgxOut": "0.000000 0.000000 0.000000 0.000000 -355.024994 -371.960022 -539.794983 -552.730042 "
                "-8612.680664 -11537.600586 -11897.720703 -12253.840820",
                "dbetaOut": "15.000000 18.000000 21.000000 24.000000",
                "dgammaOut": "143.100006 208.800003 254.300003 289.600006",
            },
        ),
        Example(
            {
                **_PROBE,
                "dy": (T(FLOAT, (2, 4)), [1, 0, -1, 2, 0.5, -0.5, 1, 0]),
                "mean": (T(FLOAT, (2, 1)), [0.5625, 0.40625]),
                "rstd": (T(FLOAT, (2, 1)), [2.7044837, 2.5702934]),
            },
            {"alpha": 0.5},
            {
                "dxOut": "-1.893130 -0.463637 -0.502263 2.859030 0.655012 0.402123 -0.968006 -0.089129",
                "dgxOut": "-3.786259 -0.927274 -1.004525 5.718059 1.310024 0.804247 -1.936012 -0.178258",
                "dbetaOut": "1.500000 -0.500000 0.000000 2.000000",
                "dgammaOut": "0.821764 -0.763056 0.409995 1.014181",
            },
        ),
    ),
)
