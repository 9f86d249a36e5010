"""aclnnSwiGlu and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.silu import silu
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    INVALID,
    MODERN,
    NO_KERNEL_FOUND,
    TILING,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    dtype,
    every_null,
    other,
    shape,
)
from tests.helpers.exact import UNITS_OF_PRODUCTS, derivatives, ulp_of, values

_INFERENCE = (Product.ATLAS_INFERENCE,)
_SUPPORTED = (*MODERN, *_INFERENCE)
_UNSUPPORTED = (Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING)


def _reference(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Any]:
    a, b = np.split(arguments["x"], 2, arguments["dim"])
    if "yGrad" in arguments:
        dy = arguments["yGrad"]
        exact = np.concatenate([dy * derivatives(silu, a) * b, dy * values(silu, a)], arguments["dim"])
    else:
        exact = values(silu, a) * b
    return {"out": (exact, UNITS_OF_PRODUCTS[outputs["out"].dtype] * ulp_of(exact, outputs["out"].dtype))}


def _shapes(half: Shape, dim: int, gradient: bool) -> Change:
    dim_ = dim % len(half)
    whole = (*half[:dim_], 2 * half[dim_], *half[dim_ + 1 :])
    outputs = shape(half, "yGrad") | shape(whole, "out") if gradient else shape(half, "out")
    return {"dim": dim, **shape(whole, "x"), **outputs}


def _rows_and_columns(gradient: bool) -> Any:
    def reshape(rows: Shape, columns: Shape) -> Change:
        return _shapes(rows + columns or (1,), len(rows) if columns else -1, gradient)

    return reshape


def _any_dim(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    gradient = "yGrad" in arguments
    half = arguments["yGrad" if gradient else "out"].shape
    return _shapes(half, draw(st.integers(-len(half), len(half) - 1)), gradient)


def _rows(*names: str) -> tuple[Rejected, ...]:
    """Return the failing calls up to those of shapes; x is among the names, the output is the last."""
    listed, formats = ", ".join(names), (Format.FORMAT_NC1HWC0, Format.FORMAT_NDHWC, Format.FORMAT_HWCN)
    dims = "dimension of x: dim"
    return (
        *every_null(f"present: {listed}", " ".join(names)),
        Rejected("kernel of the product", {}, "product", "a kernel", "Atlas", NO_KERNEL_FOUND, _UNSUPPORTED),
        Rejected("data type: x", dtype(D.DOUBLE, "x"), "x", "ACL_FLOAT", "ACL_DOUBLE", products=_SUPPORTED),
        Rejected("data type: x", dtype(BF16, *names), "x", "ACL_FLOAT or ACL_FLOAT16", "BF16", products=_INFERENCE),
        *(
            Rejected(
                f"same data type as x: {name}", dtype(other, name), name, "that of x", "ACL_", products=_SUPPORTED
            )
            for name in names
            if name != "x"
        ),
        *(
            Rejected(
                f"format that counts as ND: {listed}",
                {name: {"format": label}},
                name,
                "ACL_FORMAT_ND",
                label.c_name,
                products=_SUPPORTED,
            )
            for name, label in zip(names, formats, strict=False)
        ),
        Rejected("at least 1 dimension: x", shape((), "x", "out"), "x", "1 dimension", "0", products=_SUPPORTED),
        Rejected(dims, {"dim": -3}, "dim", "from -2 to 1", "-3", products=_SUPPORTED),
        Rejected(dims, {"dim": 2}, "dim", "from -2 to 1", "2", products=_SUPPORTED),
        Rejected(dims, {"dim": 2**32}, "dim", "from -2 to 1", "4294967296", products=_SUPPORTED),
        Rejected(dims, {"dim": 2} | shape((0, 2), *names), "dim", "from -2 to 1", "2", products=_SUPPORTED),
        Rejected(
            _ALIGNED, shape((2, 8), "x"), "x", "multiples of 64 bytes", "", TILING, products=_INFERENCE
        ),
        Rejected(_EVEN, shape((3, 64), "x") | {"dim": 0}, "x", "even size", "3", TILING, products=_SUPPORTED),
        Rejected(_EVEN, shape((2, 63), "x"), "x", "even size", "63", TILING, products=MODERN),
    )  # fmt: skip


_ALIGNED = "halves in multiples of 64 bytes: x (on Atlas inference)"
_EVEN = "even size along dim: x"
_TOGETHER = {
    ("kernel of the product", "data type: x"): dtype(D.DOUBLE, "x"),
    (_ALIGNED, _EVEN): shape((3, 8), "x") | {"dim": 0},
}


def _edges(gradient: bool, *more: Accepted) -> tuple[Accepted, ...]:
    return (
        Accepted("no columns", _shapes((2, 0), -1, gradient)),
        Accepted("no rows", _shapes((0, 3), -1, gradient)),
        Accepted("8 dimensions", _shapes((1,) * 6 + (2, 32), 7, gradient)),
        Accepted("one dimension", _shapes((32,), 0, gradient)),
        Accepted("the first of three dimensions", _shapes((2, 3, 32), 0, gradient)),
        Accepted("a middle dimension", _shapes((2, 3, 5), -2, gradient), MODERN),
        Accepted("halves of one element", _shapes((5, 1), 1, gradient), MODERN),
        Accepted("formats that count as ND", {"x": {"format": Format.FORMAT_NCL}, "out": {"format": Format(41)}}),
        *more,
    )


SWI_GLU = Case(
    operator=BY_NAME["swi_glu"],
    python=aclnn.swi_glu,
    call=lambda d: {"x": T(d, (2, 64)), "dim": -1, "out": T(d, (2, 32))},
    dtypes=dict.fromkeys(MODERN, FLOATS) | dict.fromkeys(_INFERENCE, (FLOAT, FLOAT16)),
    unsupported=dict.fromkeys(_UNSUPPORTED, (NO_KERNEL_FOUND, "product")),
    reference=_reference,
    reshape=_rows_and_columns(False),
    mixed=_any_dim,
    rejected=(
        *_rows("x", "out"),
        *(
            Rejected("half of x: out", shape(wrong, "out"), "out", "shape [2, 32]", got, INVALID, _SUPPORTED)
            for wrong, got in (((2, 64), "[2, 64]"), ((32,), "[32]"), ((0,), "[0]"))
        ),
    ),
    together=_TOGETHER,
    accepted=_edges(False, Accepted("9 dimensions", _shapes((1,) * 8 + (32,), -1, False))),
    examples=(
        Example(
            {"x": (T(FLOAT, (2, 32)), [float(i) for i in range(64)])},
            {"dim": -1},
            {
                "out": "0.000000 12.427996 31.708694 54.296726 78.561104 104.297249 131.673615 160.853317 191.935608 "
                "224.972229 259.988190 296.995026 335.997925 376.999146 419.999664 464.999847 "
                + " ".join(f"{a * (a + 16)}.000000" for a in range(32, 48))
            },
        ),
    ),
)

SWI_GLU_GRAD = Case(
    operator=BY_NAME["swi_glu_grad"],
    python=aclnn.swi_glu_grad,
    call=lambda d: {"yGrad": T(d, (2, 32)), "x": T(d, (2, 64)), "dim": -1, "out": T(d, (2, 64))},
    dtypes=SWI_GLU.dtypes,
    unsupported=SWI_GLU.unsupported,
    reference=_reference,
    reshape=_rows_and_columns(True),
    mixed=_any_dim,
    rejected=(
        *_rows("yGrad", "x", "out"),
        *(
            Rejected("half of x: yGrad", shape(wrong, "yGrad"), "yGrad", "shape [2, 32]", got, TILING, _SUPPORTED)
            for wrong, got in (((2, 64), "[2, 64]"), ((32,), "[32]"), ((1, 2, 32), "[1, 2, 32]"))
        ),
        Rejected("same shape as x: out", shape((2, 32), "out"), "out", "[2, 64]", "[2, 32]", INVALID, _SUPPORTED),
        Rejected(
            "at most 8 dimensions: x",
            _shapes((1,) * 8 + (32,), -1, True),
            "x",
            "at most 8 dimensions",
            "9",
            INVALID,
            _SUPPORTED,
        ),
    ),
    together=_TOGETHER,
    accepted=_edges(True),
    examples=(
        Example(
            {
                "yGrad": (T(FLOAT, (2, 16)), [float(i) for i in range(-2, 30)]),
                "x": (T(FLOAT, (2, 32)), [float(i) for i in range(-2, 62)]),
            },
            {"dim": -1},
            {
                "out": "2.541959 -1.084942 0.000000 15.770399 39.268234 62.021935 84.213173 107.787483 133.627090 "
                "161.879135 192.450531 225.222076 260.106232 297.049591 336.022705 377.010223 "
                "0.476812 0.268941 0.000000 0.731059 3.523188 8.573167 15.712220 24.832678 35.910984 48.955357 "
                "63.978539 80.990005 99.995461 120.997978 143.999115 168.999619 "
                + " ".join(f"{dy * (dy + 32)}.000000" for dy in range(14, 30))
                + " "
                + " ".join(f"{dy * (dy + 16)}.000000" for dy in range(14, 30))
            },
        ),
    ),
)
