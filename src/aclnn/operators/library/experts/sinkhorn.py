"""aclnnSinkhorn, which balances experts: rows and columns of a matrix scaled to equal sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, floating, rule, same_shape
from aclnn.core.operator import Call, Kind, Library, Parameter
from aclnn.core.products import A2_CLASS
from aclnn.operators.library.common import declared, tensor_in, tensor_out

_MOST_COLUMNS = 4096
_TOLERANCE = 1e-4
_MOST_ROUNDS = 1_000
"""Small tolerances may never be reached."""
_EPSILON = 1e-8


def _columns(call: Call) -> str | None:
    got = call["cost"].shape[1]
    return None if got <= _MOST_COLUMNS else f"cost: expected at most {_MOST_COLUMNS} columns, got {got}"


def _work(call: Call) -> Library | None:
    if call["p"].size == 0:
        return None
    tolerance = _TOLERANCE if call["tol"] is None else float(call["tol"].value.real)

    def scale(cost: Any) -> Any:
        matrix = np.exp(cost.astype(np.float64))
        rows, columns = matrix.shape
        of_columns = np.ones(columns)
        for _ in range(_MOST_ROUNDS):
            before = of_columns
            of_rows = 1 / (rows * (matrix @ of_columns + _EPSILON))
            of_columns = 1 / (columns * (of_rows @ matrix + _EPSILON))
            if not np.abs(before - of_columns).mean() > tolerance:  # also if it is NaN
                break
        return of_columns * matrix * of_rows[:, None]

    return Library(scale, ("cost",), ("p",))


OPERATORS = (
    declared(
        "sinkhorn",
        "p = r[i] * exp(cost) * c[j]; c = 1; until the mean change of c is at most tol: "
        "r = 1 / (rows * (sum of exp(cost) * c + 1e-8)), c = 1 / (columns * (sum of exp(cost) * r + 1e-8))",
        "Sinkhorn's algorithm: scale rows and columns of exponentials until their sums are equal.",
        (
            tensor_in("cost", "tokens and experts"),
            Parameter("tol", "tol", Kind.SCALAR, "the tolerance; 0.0001 if null", optional=True),
            tensor_out("p", "the scaled exponentials"),
        ),
        (
            dtype_in(floating, "cost", "p"),
            dims_between(2, 2, "cost"),
            same_shape("p", "cost"),
            rule(f"at most {_MOST_COLUMNS} columns: cost", _columns),
        ),
        _work,
        products=A2_CLASS,
    ),
)
