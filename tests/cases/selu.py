"""aclnnSelu, also in place, and its gradient."""

from __future__ import annotations

from typing import Any

from flint import arb

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.forwards import forward_call, forward_edges, forward_rows, in_place_edges
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    GRID,
    INFINITE,
    MODERN,
    NO_KERNEL,
    OLD,
    OLDEST,
    SAMPLE_X,
    Accepted,
    Case,
    Curve,
    Example,
    Rejected,
    T,
    dtype,
    every_null,
    other,
    probes,
    shape,
)

# Of the document.
_SCALE, _SCALED_ALPHA = "1.0507009873554804934193349852946", "1.7580993408473768599402175208123"
_LOWEST = -1.7580993408473768


def selu(x: Any) -> Any:
    return arb(_SCALE) * x if x[0] > 0 else arb(_SCALED_ALPHA) * (x.exp() - 1)


def by_result(y: Any) -> Any:
    """Return a function of y whose derivative is the gradient."""
    return arb(_SCALE) * y if y[0] > 0 else y * y / 2 + arb(_SCALED_ALPHA) * y


_CURVES = {
    "selu": Curve(
        selu,
        {},
        (0.0,),
        (float(arb(_SCALED_ALPHA) * -1), INFINITE),
        # Not at -2 and 0.5, whose values in float32 have another last digit.
        probes(
            [x for x in SAMPLE_X if x not in (-2.0, 0.5)],
            "-1.670569 -1.111331 -0.691758 0.000000 1.050701 2.101402 3.152103",
        ),
    )
}
_DTYPES = dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_UNSUPPORTED = dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product"))
_INTEGERS = (D.INT8, D.INT32)
_X = [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0]
_PRINTED = "0.000000 2.101402 3.152103 4.202804 5.253505 6.304206 7.354907 7.354907"


def _listed(x: str, *others: str) -> tuple[Rejected, ...]:
    return (
        Rejected(f"data type: {x}", dtype(D.DOUBLE, x, *others), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
        Rejected(f"data type: {x}", dtype(BF16, x, *others), x, "data type ACL_FLOAT", "ACL_BF16", products=OLD),
    )


SELU = Case(
    operator=BY_NAME["selu"],
    python=aclnn.selu,
    call=forward_call("self", "out"),
    dtypes=_DTYPES,
    also=dict.fromkeys(_DTYPES, _INTEGERS),
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(*forward_rows("null"), *_listed("self", "out"), *forward_rows("dtype", "shape")),
    together={("data type: self", "same data type as self: out"): dtype(D.DOUBLE, "self")},
    accepted=forward_edges(),
    examples=(Example({"self": (T(FLOAT, (4, 2)), _X)}, {}, {"out": _PRINTED}),),
)

INPLACE_SELU = Case(
    operator=BY_NAME["inplace_selu"],
    python=aclnn.inplace_selu,
    call=lambda d: {"selfRef": T(d, GRID)},
    dtypes=_DTYPES,
    also=SELU.also,
    unsupported=_UNSUPPORTED,
    curves=_CURVES,
    rejected=(*every_null("present: selfRef", "selfRef"), *_listed("selfRef")),
    never_together=frozenset({("present: selfRef", "data type: selfRef")}),
    accepted=(*in_place_edges(), Accepted("9 dimensions", shape((2, *(1,) * 7, 3), "selfRef"))),
    examples=(),
)

_ALIKE = ("gradOutput", "result", "gradInput")
_GRADIENT = {
    "selu_by_result": Curve(
        by_result,
        {},
        (_LOWEST, 0.0),
        (-INFINITE, 1.0507009873554805),
        probes(
            [-1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 1.0, 2.0, 3.0],
            "0.258099 0.758099 1.258099 1.508099 1.758099 1.050701 1.050701 1.050701 1.050701",
        ),
    )
}

SELU_BACKWARD = Case(
    operator=BY_NAME["selu_backward"],
    python=aclnn.selu_backward,
    call=lambda d: {name: T(d, GRID) for name in _ALIKE},
    dtypes=_DTYPES | {Product.ATLAS_INFERENCE: (FLOAT, FLOAT16)},
    also=dict.fromkeys((*_DTYPES, Product.ATLAS_INFERENCE), _INTEGERS),
    unsupported=dict.fromkeys(OLDEST, (NO_KERNEL, "product")),
    curves=_GRADIENT,
    rejected=(
        *every_null(f"present: {', '.join(_ALIKE)}", " ".join(_ALIKE)),
        *(
            Rejected(f"same data type as gradOutput: {name}", dtype(other, name), name, "that of gradOutput", "ACL_")
            for name in _ALIKE[1:]
        ),
        *_listed(*_ALIKE),
        Rejected("same shape as gradOutput: result", shape((1, 3), "result"), "result", "[2, 3]", "[1, 3]"),
        Rejected("same shape as gradOutput: gradInput", shape((3, 2), "gradInput"), "gradInput", "[2, 3]", "[3, 2]"),
    ),
    accepted=(
        Accepted("empty", shape((0, 4), *_ALIKE)),
        Accepted("0-dim", shape((), *_ALIKE)),
        Accepted("9 dimensions", shape((2, *(1,) * 7, 3), *_ALIKE)),
    ),
    examples=(
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "result": (T(FLOAT, (4, 2)), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, -0.5, 0.5]),
            },
            {},
            {"gradInput": "-0.241901 0.758099 1.758099 1.050701 1.050701 1.050701 1.258099 1.050701"},
        ),
        Example(
            {
                "gradOutput": (T(FLOAT, (4, 2)), [1.0] * 8),
                "result": (T(FLOAT, (4, 2)), [float(i) for i in range(8)]),
            },
            {},
            {"gradInput": "1.758099 " + " ".join(["1.050701"] * 7)},
        ),
    ),
)
