"""aclnnClippedSwiglu and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.glu import gated_shapes
from tests.cases.table import (
    FLOAT,
    FLOATS,
    INVALID,
    MODERN,
    NINE,
    NO_KERNEL_FOUND,
    OLD,
    ON_950,
    ONLY_950,
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
from tests.helpers.exact import derivatives, ulp_of, values


def halves(x: Any, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return views of a and b, row by row, in an array of x's shape."""
    dim = arguments["dim"] % x.ndim
    count = math.prod(x.shape[dim:])
    rows = x.reshape(math.prod(x.shape[:dim]), count)
    if arguments["interleaved"]:
        return rows[:, 0::2], rows[:, 1::2]
    return rows[:, : count // 2], rows[:, count // 2 :]


def _reference(arguments: Mapping[str, Any], outputs: Mapping[str, T]) -> dict[str, Any]:
    ((name, output),) = outputs.items()
    alpha, limit, bias = (float(np.float32(arguments[name])) for name in ("alpha", "limit", "bias"))
    a, b = halves(arguments["x"], arguments)
    lower, upper = np.minimum(a, limit), np.clip(b, -limit, limit)

    def swish(x: Any) -> Any:
        return x / (1 + (-alpha * x).exp())

    if name == "out":
        exact = (values(swish, lower) * (upper + bias)).reshape(output.shape)
    else:
        dy = arguments["gradY"].reshape(a.shape)
        exact = np.empty(output.shape)
        da, db = halves(exact, arguments)
        da[...] = np.where(a > limit, 0.0, dy * (upper + bias) * derivatives(swish, lower))
        db[...] = np.where(np.abs(b) > limit, 0.0, dy * values(swish, lower))
    is_fitted = alpha == np.float32(1.702) and output.dtype == D.FLOAT
    return {name: (exact, (2.6 if is_fitted else 0.51) * ulp_of(exact, output.dtype))}


def _groups(count: int | tuple[int, ...], dtype: D = D.INT64) -> Change:
    return {"groupIndexOptional": T(dtype, (count,) if isinstance(count, int) else count)}


def _case(gradient: bool) -> dict[str, Any]:
    """Fields of a case: its output is the last of its tensors, and twice its half (or its half) is in the others."""
    names = ("gradY", "x", "gradXOut") if gradient else ("x", "out")
    output, listed = names[-1], ", ".join(names)
    shapes = gated_shapes("x gradXOut" if gradient else "x", "gradY" if gradient else "out")
    code, part, empty = (
        TILING if gradient else INVALID,
        names[0] if gradient else output,
        f" (unless {output} is empty)",
    )
    positive, even = f"positive: limit{empty}", "even size along dim: x"
    one_dim, integers = "1 dimension: groupIndexOptional", "data type: groupIndexOptional"
    few, some = "at most 8192 elements: groupIndexOptional", f"at least 1 element: groupIndexOptional{ON_950}"

    def reshape(rows: Shape, columns: Shape) -> Change:
        return shapes(rows + columns or (1,), len(rows) if columns else -1)

    def mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
        half = arguments[part].shape
        dim = draw(st.integers(-len(half), len(half) - 1))
        return shapes(half, dim) | {"interleaved": draw(st.booleans())}

    def rejection(check: str, change: Change, argument: str, expected: str, got: str, code: int) -> Rejected:
        return Rejected(check, change, argument, expected, got, code, MODERN)

    of_outputs = [
        rejection(f"half of x: {part}", shape(wrong, part), part, "shape [2, 32]", got, TILING)
        for wrong, got in (((2, 64), "[2, 64]"), ((32,), "[32]"), ((2, 33), "[2, 33]"))
    ]
    rejected = (
        *every_null(f"present: {listed}", " ".join(names)),
        Rejected("kernel of the product", {}, "product", "a kernel", "Atlas", NO_KERNEL_FOUND, OLD),
        rejection("data type: x", dtype(D.DOUBLE, "x"), "x", "ACL_FLOAT", "ACL_DOUBLE", INVALID),
        *(
            rejection(f"same data type as x: {name}", dtype(other, name), name, "that of x", "ACL_", INVALID)
            for name in names
            if name != "x"
        ),
        *(
            rejection(
                f"format that counts as ND: {listed}",
                {name: {"format": label}},
                name,
                "ACL_FORMAT_ND",
                label.c_name,
                INVALID,
            )
            for name, label in zip(
                names, (Format.FORMAT_NC1HWC0, Format.FORMAT_NDHWC, Format.FORMAT_HWCN), strict=False
            )
        ),
        *(
            rejection(positive, {"limit": wrong}, "limit", "more than 0", repr(wrong), TILING)
            for wrong in (0.0, -1.0, 1e-50, math.nan)
        ),
        rejection("at least 1 dimension: x", shape((), "x"), "x", "1 dimension", "0", code),
        *(
            rejection("dimension of x: dim", {"dim": wrong}, "dim", "from -2 to 1", str(wrong), code)
            for wrong in (-3, 2, 2**32)
        ),
        rejection(f"not empty: x{empty}", shape((2, 0), "x"), "x", "elements", "none", TILING),
        rejection(even, shape((2, 63), "x"), "x", "even size", "63", TILING),
        *(of_outputs if gradient else ()),
        rejection(one_dim, _groups((2, 2)), "groupIndexOptional", "1 dimension", "2", code),
        rejection(one_dim, _groups(()), "groupIndexOptional", "1 dimension", "0", code),
        rejection(integers, _groups(2, D.INT32), "groupIndexOptional", "ACL_INT64", "ACL_INT32", INVALID),
        rejection(integers, _groups(2, D.FLOAT), "groupIndexOptional", "ACL_INT64", "ACL_FLOAT", INVALID),
    )
    if gradient:
        rejected += (
            rejection(f"same shape as x: {output}", shape((2, 32), output), output, "[2, 64]", "[2, 32]", TILING),
        )
    else:
        rejected += (
            rejection(few, _groups(8193), "groupIndexOptional", "at most 8192", "8193", TILING),
            Rejected(some, _groups(0), "groupIndexOptional", "at least 1", "0", TILING, ONLY_950),
            *of_outputs,
        )
    nine = shapes((*NINE[:-1], 32), -1)
    rejected += (rejection(f"at most 8 dimensions: x{empty}", nine, "x", "at most 8 dimensions", "9", code),)
    return {
        "dtypes": dict.fromkeys(MODERN, FLOATS),
        "unsupported": dict.fromkeys(OLD, (NO_KERNEL_FOUND, "product")),
        "reference": _reference,
        "reshape": reshape,
        "mixed": mixed,
        "rejected": rejected,
        "together": {
            ("kernel of the product", "data type: x"): dtype(D.DOUBLE, "x"),
            ("at least 1 dimension: x", "dimension of x: dim"): shape((), "x") | {"dim": 5},
            (f"not empty: x{empty}", even): shape((0, 63), "x"),
            (one_dim, integers): _groups((2, 2), D.INT32),
            **({} if gradient else {(integers, few): _groups(8193, D.INT32)}),
        },
        "never_together": frozenset() if gradient else frozenset({(few, some)}),
        "accepted": (
            Accepted("no columns", shapes((2, 0), -1)),
            Accepted("no rows", shapes((0, 3), -1)),
            Accepted("empty, with any limit", shapes((0, 3), -1) | {"limit": 0.0}),
            Accepted("empty, with 9 dimensions", shapes((0, *NINE[1:]), -1)),
            Accepted("8 dimensions", shapes((1,) * 6 + (2, 32), 7)),
            Accepted("one dimension", shapes((32,), 0)),
            Accepted("a middle dimension", shapes((2, 3, 5), -2)),
            Accepted("an infinite limit", {"limit": math.inf}),
        ),
    }


CLIPPED_SWIGLU = Case(
    operator=BY_NAME["clipped_swiglu"],
    python=aclnn.clipped_swiglu,
    call=lambda d: {
        "x": T(d, (2, 64)),
        "groupIndexOptional": None,
        "dim": -1,
        "alpha": 1.702,
        "limit": 7.0,
        "bias": 1.0,
        "interleaved": True,
        "out": T(d, (2, 32)),
    },
    examples=(
        Example(
            {"x": (T(FLOAT, (2, 32)), [float(i) for i in range(64)]), "groupIndexOptional": (T(D.INT64, (1,)), [1])},
            {"dim": -1, "alpha": 1.0, "limit": 7.0, "bias": 1.702, "interleaved": True},
            {"out": "0.000000 8.283016 26.325827 52.082901 " + "60.858505 " * 12 + " ".join(["0.000000"] * 16)},
        ),
    ),
    **_case(gradient=False),
)

CLIPPED_SWIGLU_GRAD = Case(
    operator=BY_NAME["clipped_swiglu_grad"],
    python=aclnn.clipped_swiglu_grad,
    call=lambda d: {
        "gradY": T(d, (2, 32)),
        "x": T(d, (2, 64)),
        "groupIndexOptional": None,
        "dim": -1,
        "alpha": 1.702,
        "limit": 7.0,
        "bias": 1.0,
        "interleaved": True,
        "gradXOut": T(d, (2, 64)),
    },
    examples=(
        Example(
            {
                "gradY": (T(FLOAT, (2, 16)), [1.0] * 32),
                "x": (T(FLOAT, (2, 32)), [1.0] * 64),
                "groupIndexOptional": None,
            },
            {"dim": -1, "alpha": 1.702, "limit": 7.0, "bias": 1.0, "interleaved": True},
            {"gradXOut": " ".join(["2.135559 0.845796"] * 32)},
        ),
    ),
    **_case(gradient=True),
)
