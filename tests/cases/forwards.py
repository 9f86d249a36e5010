"""Rows of the forward functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from tests.cases.table import (
    BF16,
    GRID,
    MODERN,
    NINE,
    OLD,
    ON_950,
    ONLY_950,
    Accepted,
    Arguments,
    Rejected,
    T,
    dtype,
    every_null,
    other,
    shape,
)


def forward_call(x: str, out: str, **attributes: Any) -> Callable[[D], Arguments]:
    return lambda d: {x: T(d, GRID), **attributes, out: T(d, GRID)}


def forward_rows(*rows: str, x: str = "self", out: str = "out") -> tuple[Rejected, ...]:
    """Return the failing calls of a forward function of one tensor, by kind, in the given order."""
    private = tuple(
        Rejected(
            f"no private format: {x}, {out}",
            {name: {"format": got}},
            name,
            "a format such as ACL_FORMAT_ND",
            got.c_name,
        )
        for name, got in ((x, Format.FORMAT_NC1HWC0), (out, Format.FORMAT_FRACTAL_Z))
    )
    every: dict[str, tuple[Rejected, ...]] = {
        "null": every_null(f"present: {x}, {out}", f"{x} {out}"),
        "list": (
            Rejected(f"data type: {x}", dtype(D.DOUBLE, x, out), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
            Rejected(f"data type: {x}", dtype(BF16, x, out), x, "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        ),
        "lists": (
            Rejected(f"data type: {x}, {out}", dtype(D.DOUBLE, x), x, "data type ACL_FLOAT", "ACL_DOUBLE"),
            Rejected(f"data type: {x}, {out}", dtype(D.INT32, out), out, "data type ACL_FLOAT", "ACL_INT32"),
        ),
        "dtype": (Rejected(f"same data type as {x}: {out}", dtype(other, out), out, f"that of {x}", "ACL_FLOAT"),),
        "dtype of x": (
            Rejected(f"same data type as {out}: {x}", dtype(other, out), x, f"that of {out}", "ACL_", products=MODERN),
        ),
        "list on the newer": (Rejected(f"data type: {x}", dtype(D.INT8, x, out), x, "data type", "ACL_INT8"),),
        "bfloat16": (
            Rejected(f"data type: {x}", dtype(BF16, x, out), x, "ACL_FLOAT or ACL_FLOAT16", "ACL_BF16", products=OLD),
        ),
        "private": private,
        "private on the 950": tuple(
            replace(rejection, check=rejection.check + ON_950, products=ONLY_950) for rejection in private
        ),
        "rank": (Rejected(f"at most 8 dimensions: {x}", shape(NINE, x, out), x, "at most 8 dimensions", "9"),),
        "shape": (Rejected(f"same shape as {x}: {out}", shape((3, 2), out), out, "shape [2, 3]", "[3, 2]"),),
        "format": (
            Rejected(
                f"same format as {x}: {out}",
                {out: {"format": Format.FORMAT_NCHW}},
                out,
                "format ACL_FORMAT_ND",
                "ACL_FORMAT_NCHW",
            ),
        ),
    }
    return tuple(rejection for row in rows for rejection in every[row])


def forward_edges(x: str = "self", out: str = "out", most: int = 9) -> tuple[Accepted, ...]:
    return (
        Accepted("empty", shape((0, 4), x, out)),
        Accepted("0-dim", shape((), x, out)),
        Accepted(f"{most} dimensions", shape((2,) + (1,) * (most - 2) + (3,), x, out)),
    )


def in_place_edges() -> tuple[Accepted, ...]:
    return (
        Accepted("empty", shape((0, 4), "selfRef")),
        Accepted("0-dim", shape((), "selfRef")),
        Accepted("8 dimensions", shape((2, 1, 2, 1, 2, 1, 2, 3), "selfRef")),
    )
