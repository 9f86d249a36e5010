"""Systems of linear equations: aclnnTriangularSolve."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import broadcast_shape, dims_between, dtype_in, extents, present, rule, same_dtype, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind
from aclnn.operators.library.common import COMPLEX, WITH_TRAINING, attribute, library_operator, tensor_in, tensor_out

_DTYPES = (D.FLOAT, D.DOUBLE, *COMPLEX)
Shape = tuple[int, ...]


def _square(call: Call) -> str | None:
    rows, columns = call["A"].shape[-2:]
    return None if rows == columns else f"A: expected as many columns as rows, got {rows} by {columns}"


def _rows(call: Call) -> str | None:
    expected, got = call["A"].shape[-1], call["self"].shape[-2]
    return None if got == expected else f"self: expected {expected} rows (as many as A), got {got}"


def _batch(call: Call) -> Shape | None:
    return broadcast_shape(call["A"].shape[:-2], call["self"].shape[:-2])


def _broadcasts(call: Call) -> str | None:
    if _batch(call) is not None:
        return None
    expected, got = extents(call["A"].shape[:-2]), extents(call["self"].shape[:-2])
    return f"self: expected leading dimensions that broadcast with {expected} (those of A), got {got}"


def _shape_with(call: Call, name: str) -> Shape:
    return (*(_batch(call) or ()), *call[name].shape[-2:])


def _unit_dtype(call: Call) -> str | None:
    got = call["A"].dtype
    if not call["unitriangular"] or got == D.FLOAT:
        return None
    return f"A: expected data type ACL_FLOAT with unitriangular, got {got.c_name}"


def _solve(b: Any, a: Any, upper: bool, transpose: bool, unit: bool) -> tuple[Any, Any]:
    wide = np.result_type(b.dtype, np.float64)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    triangle = np.triu(a) if upper else np.tril(a)
    lower = upper == transpose
    factors = (triangle.swapaxes(-1, -2) if transpose else triangle).astype(wide)
    x = np.broadcast_to(b, (*batch, *b.shape[-2:])).astype(wide)
    size = a.shape[-1]
    for row in range(size) if lower else reversed(range(size)):
        known = slice(row) if lower else slice(row + 1, size)
        x[..., row, :] -= (factors[..., row, None, known] @ x[..., known, :])[..., 0, :]
        if not unit:
            x[..., row, :] /= factors[..., row, row, None]
    return x, np.broadcast_to(triangle, (*batch, *a.shape[-2:]))


OPERATORS = (
    library_operator(
        "triangular_solve",
        "A @ xOut = self",
        "Solve systems of linear equations with triangular matrices.",
        (
            tensor_in("self", "the right-hand sides"),
            tensor_in("A", "the matrices"),
            attribute("upper", Kind.BOOL, "whether their upper triangles are read, else the lower ones"),
            attribute("transpose", Kind.BOOL, "whether they are transposed"),
            attribute("unitriangular", Kind.BOOL, "whether ones are taken for their diagonals"),
            tensor_out("xOut", "the solutions"),
            tensor_out("mOut", "the triangles"),
        ),
        (
            present("self", "A", "xOut", "mOut"),
            dtype_in(lambda product: set(_DTYPES), "self"),
            *(same_dtype(name, "self") for name in ("A", "xOut", "mOut")),
            dims_between(2, 8, "self", "A", "xOut", "mOut"),
            rule("square: A", _square),
            rule("as many rows as A: self", _rows),
            rule("leading dimensions that broadcast: self", _broadcasts),
            shape_is("self's, broadcast", lambda call: _shape_with(call, "self"), "xOut"),
            shape_is("A's, broadcast", lambda call: _shape_with(call, "A"), "mOut"),
            rule("ones only in float32: A", _unit_dtype),
        ),
        _solve,
        header="triangular_solve",
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        stream_type="const aclrtStream ",
        attributes=("upper", "transpose", "unitriangular"),
        empty=("self", "A"),
    ),
)
