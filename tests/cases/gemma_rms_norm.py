"""aclnnGemmaRmsNorm."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL_FOUND,
    OLD,
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
from tests.helpers import norms

_NAMES = ("x", "gamma", "yOut", "rstdOut")
_TYPES = f"data types that go together: {', '.join(_NAMES)}"
_tiling = tiled(MODERN)


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
    return dtype(FLOAT, "gamma") if product in ONLY_950 else {}


GEMMA_RMS_NORM = Case(
    operator=BY_NAME["gemma_rms_norm"],
    python=aclnn.gemma_rms_norm,
    call=_call,
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(OLD, (NO_KERNEL_FOUND, "product")),
    reference=norms.gemma,
    reshape=_reshape,
    mixed=_mixed,
    rejected=(
        *generated(" ".join(_NAMES), MODERN, {"gamma": {MODERN: (FLOAT, BF16)}}),
        *(
            _tiling("1 to 8 dimensions: x, gamma", shape(got, name), name, "1 to 8 dimensions", str(len(got)))
            for name in ("x", "gamma")
            for got in ((), NINE)
        ),
        _tiling("trailing dimensions of x: gamma", shape((4,), "gamma"), "gamma", "shape [3]", "[4]"),
        _tiling("trailing dimensions of x: gamma", shape((1, 2, 3), "gamma"), "gamma", "shape [2, 3]", "[1, 2, 3]"),
        _tiling("no dimension of 0: gamma, x", _reshape((2,), (0,)) | shape((2, 1), "rstdOut"), "gamma", "of 0", "[0]"),
        _tiling("no dimension of 0: gamma, x", shape((0, 3), "x"), "x", "no dimension of 0", "[0, 3]"),
        _tiling("same shape as x: yOut", shape((3, 2), "yOut"), "yOut", "shape [2, 3]", "[3, 2]"),
        _tiling("as many elements as rows: rstdOut", shape((1, 1), "rstdOut"), "rstdOut", "2 elements", "1"),
        _tiling("as many elements as rows: rstdOut", shape((2, 3), "rstdOut"), "rstdOut", "2 elements", "6"),
        _tiling("0 or more: epsilon", {"epsilon": -1e-3}, "epsilon", "0 or more", "-0.001"),
    ),
    together={("kernel of the product", _TYPES): dtype(D.DOUBLE, "x")},
    accepted=(
        Accepted("no rows", _reshape((0,), (3,)), MODERN),
        Accepted("no columns", _reshape((5,), (0, 3)), MODERN),
        Accepted("empty outputs of any shape", shape((7, 0), "yOut", "rstdOut"), MODERN),
        Accepted("no leading dimensions", _reshape((), (3,)), MODERN),
        Accepted("8 dimensions", _reshape((2, 1, 2, 1), (2, 1, 1, 3)), MODERN),
        Accepted("float32 gamma", dtype(FLOAT, "gamma"), ONLY_950),
        Accepted("flat rstd", shape((2,), "rstdOut"), MODERN),
    ),
    examples=(
        Example(
            {
                "x": (T(FLOAT, (2, 16)), [*map(float, range(8))] * 4),
                "gamma": (T(FLOAT, (16,)), [*map(float, range(8))] * 2),
            },
            {"epsilon": 1e-6},
            {
                "yOut": " ".join(["0.000000 0.478091 1.434274 2.868549 4.780914 7.171371 10.039920 13.386560"] * 4),
                "rstdOut": "0.239046 0.239046",
            },
        ),
    ),
)
