"""Systems of linear equations, factors, inverses and determinants of matrices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape,
    castable_from,
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    limited_dims,
    one_of,
    only_if,
    public_format,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    unless_empty,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator
from aclnn.operators.library.common import (
    COMPLEX,
    MODERN,
    WITH_TRAINING,
    attribute,
    library_operator,
    support,
    tensor_in,
    tensor_out,
)

_DTYPES = (D.FLOAT, D.DOUBLE, *COMPLEX)
Shape = tuple[int, ...]


def _square(name: str) -> Check:
    def violation(call: Call) -> str | None:
        rows, columns = call[name].shape[-2:]
        return None if rows == columns else f"{name}: expected as many columns as rows, got {rows} by {columns}"

    return rule(f"square: {name}", violation)


def _matrices(*names: str) -> Check:
    def violation(call: Call, name: str) -> str | None:
        shape = call[name].shape
        return None if len(shape) > 1 else f"expected at least 2 dimensions, got shape {extents(shape)}"

    return each("at least 2 dimensions", names, violation)


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
    return x, np.broadcast_to(a, (*batch, *a.shape[-2:]))


_QR_REDUCED, _QR_COMPLETE, _QR_R_ONLY = range(3)
_ORTHOGONALISED = (D.FLOAT, D.FLOAT16, D.DOUBLE, *COMPLEX)


def _q_shape(call: Call) -> Shape:
    *batch, rows, columns = call["self"].shape
    if call["mode"] == _QR_R_ONLY:
        return (0,)
    return (*batch, rows, rows if call["mode"] == _QR_COMPLETE else min(rows, columns))


def _r_shape(call: Call) -> Shape:
    *batch, rows, columns = call["self"].shape
    return (*batch, rows if call["mode"] == _QR_COMPLETE else min(rows, columns), columns)


def _qr(self: Any, mode: int) -> tuple[Any, Any]:
    q, r = np.linalg.qr(_widened(self), "complete" if mode == _QR_COMPLETE else "reduced")
    return (q.reshape(-1)[:0] if mode == _QR_R_ONLY else q), r


def _widened(matrices: Any) -> Any:
    return matrices.astype(np.result_type(matrices, np.float64))


def _svd_shapes(name: str) -> Callable[[Call], Shape]:
    def shape(call: Call) -> Shape:
        *batch, rows, columns = call["input"].shape
        least = min(rows, columns)
        if name == "sigma":
            return (*batch, least)
        extent = rows if name == "u" else columns
        return (*batch, extent, extent if call["fullMatrices"] else least)

    return shape


def _of_factor(name: str) -> Check:
    return only_if(shape_is("of the factor", _svd_shapes(name), name), "with computeUV", lambda call: call["computeUV"])


def _svd_work(call: Call) -> Library | None:
    full, vectors = call["fullMatrices"], call["computeUV"]
    if call["input"].size == 0:
        return None

    def factors(matrices: Any) -> Any:
        if not np.isfinite(matrices).all():
            raise ValueError("input: expected finite numbers, got infinities or NaN")
        if not vectors:
            return np.linalg.svd(_widened(matrices), compute_uv=False)
        u, sigma, v = np.linalg.svd(_widened(matrices), full)
        return sigma, u, v.conj().swapaxes(-1, -2)

    return Library(factors, ("input",), _FACTORS if vectors else _FACTORS[:1])


_FACTORS = ("sigma", "u", "v")
_DETERMINANTS = ("signOut", "logOut")


def _inverse(matrices: Any) -> Any:
    """Return inverses, NaN for singular matrices, because of which NumPy rejects the whole batch."""
    try:
        return np.linalg.inv(_widened(matrices))
    except np.linalg.LinAlgError:
        found = np.full(matrices.shape, np.nan, np.result_type(matrices, np.float64))
        for at in np.ndindex(matrices.shape[:-2]):
            with suppress(np.linalg.LinAlgError):
                found[at] = np.linalg.inv(_widened(matrices[at]))
        return found


_LARGEST_CHOLESKY = 8192


def _not_too_large(call: Call) -> str | None:
    got = call["self"].shape[-1]
    return None if got <= _LARGEST_CHOLESKY else f"self: expected at most {_LARGEST_CHOLESKY} rows, got {got}"


def _cholesky(matrices: Any, upper: bool) -> Any:
    """Return triangular factors, NaN for matrices that are not positive definite."""
    wide = _widened(matrices)
    try:
        found = np.linalg.cholesky(wide)
    except np.linalg.LinAlgError:
        found = np.full_like(wide, np.nan)
        for at in np.ndindex(wide.shape[:-2]):
            with suppress(np.linalg.LinAlgError):
                found[at] = np.linalg.cholesky(wide[at])
    return found.swapaxes(-1, -2) if upper else found


def _complex_kept(call: Call, name: str) -> str | None:
    got = call[name].dtype
    if call["self"].dtype not in COMPLEX or got in COMPLEX:
        return None
    return f"expected a complex data type (as self has), got {got.c_name}"


OPERATORS = (
    library_operator(
        "linalg_cholesky",
        "out @ out^T = self, with a lower triangular out; out^T @ out = self with upper",
        "Cholesky factors of symmetric positive definite matrices.",
        (
            tensor_in("self", "the matrices, of which the lower triangles are read"),
            attribute("upper", Kind.BOOL, "whether out is upper triangular"),
            tensor_out("out", "the triangular matrices"),
        ),
        (
            same_dtype("out", "self"),
            dtype_in(FLOATING, "self"),
            same_format("out", "self"),
            public_format("self"),
            limited_dims("self"),
            _matrices("self"),
            same_shape("out", "self"),
            *unless_empty(("self",), _square("self"), rule("not too large: self", _not_too_large)),
        ),
        _cholesky,
        dtypes=FLOATING,
        products=MODERN,
        stream_type="const aclrtStream ",
        attributes=("upper",),
    ),
    library_operator(
        "linalg_qr",
        "Q @ R = self",
        "QR decomposition.",
        (
            tensor_in("self", "the matrices"),
            attribute("mode", Kind.INT64, "0: reduced, 1: complete (Q is square), 2: R only"),
            tensor_out("Q", "the orthogonal matrices"),
            tensor_out("R", "the upper triangular matrices"),
        ),
        (
            dtype_in(_ORTHOGONALISED, "self"),
            same_dtype("Q", "self"),
            same_dtype("R", "self"),
            dims_between(2, 8, "self"),
            one_of("mode", _QR_REDUCED, _QR_COMPLETE, _QR_R_ONLY),
            shape_is("by mode", _q_shape, "Q"),
            shape_is("by mode", _r_shape, "R"),
        ),
        _qr,
        dtypes=_ORTHOGONALISED,
        products=WITH_TRAINING,
        attributes=("mode",),
    ),
    Operator(
        name="svd",
        summary="Singular value decomposition (SVD).",
        formula="u @ diag(sigma) @ v^T = input",
        parameters=(
            tensor_in("input", "the matrices"),
            attribute("fullMatrices", Kind.BOOL, "whether u and v are square instead of reduced"),
            attribute("computeUV", Kind.BOOL, "whether to compute u and v"),
            tensor_out("sigma", "the singular values, in descending order"),
            tensor_out("u", "the left singular vectors, in columns"),
            tensor_out("v", "the right singular vectors, in columns"),
        ),
        support=support(_DTYPES, MODERN),
        checks=(
            dtype_in(_DTYPES, "input"),
            *(same_dtype(name, "input") for name in _FACTORS),
            dims_between(2, 8, "input"),
            _of_factor("u"),
            shape_is("of the factor", _svd_shapes("sigma"), "sigma"),
            _of_factor("v"),
        ),
        work=_svd_work,
    ),
    library_operator(
        "triangular_solve",
        "A @ xOut = self",
        "Solve systems of linear equations with triangular matrices.",
        (
            tensor_in("self", "the right-hand sides"),
            tensor_in("A", "the matrices"),
            attribute("upper", Kind.BOOL, "whether to use the upper triangles of A instead of the lower ones"),
            attribute("transpose", Kind.BOOL, "whether to transpose A"),
            attribute("unitriangular", Kind.BOOL, "whether to assume ones on the diagonals of A"),
            tensor_out("xOut", "the solutions"),
            tensor_out("mOut", "the matrices"),
        ),
        (
            dtype_in(_DTYPES, "self"),
            *(same_dtype(name, "self") for name in ("A", "xOut", "mOut")),
            dims_between(2, 8, "self", "A", "xOut", "mOut"),
            _square("A"),
            fits("{} rows (as many as A)", lambda call, got: (call["A"].shape[-1], got.shape[-2]), "self"),
            rule("leading dimensions that broadcast: self", _broadcasts),
            shape_is("self's, broadcast", lambda call: _shape_with(call, "self"), "xOut"),
            shape_is("A's, broadcast", lambda call: _shape_with(call, "A"), "mOut"),
            rule("ones only in float32: A", _unit_dtype),
        ),
        _solve,
        dtypes=_DTYPES,
        products=WITH_TRAINING,
        stream_type="const aclrtStream ",
        attributes=("upper", "transpose", "unitriangular"),
        empty=("self", "A"),
    ),
    library_operator(
        "inverse",
        "self @ out = 1",
        "Inverse of square matrices.",
        (tensor_in("self", "the square matrices"), tensor_out()),
        (
            dtype_in(_ORTHOGONALISED, "self"),
            castable_from(lambda call: call["self"].dtype, "out"),
            same_shape("out", "self"),
            limited_dims("self"),
            *unless_empty(("self",), _matrices("self"), _square("self")),
        ),
        _inverse,
        dtypes=_ORTHOGONALISED,
    ),
    library_operator(
        "slogdet",
        "det(self) = signOut * e^logOut",
        "Signs of determinants, and logarithms of their absolute values.",
        (
            tensor_in("self", "the square matrices"),
            tensor_out("signOut", "the signs"),
            tensor_out("logOut", "the logarithms"),
        ),
        (
            dtype_in(_DTYPES, "self", *_DETERMINANTS),
            each("complex as self", _DETERMINANTS, _complex_kept),
            _matrices("self"),
            _square("self"),
            shape_is("one for each matrix", lambda call: call["self"].shape[:-2], *_DETERMINANTS),
        ),
        lambda matrices: tuple(np.linalg.slogdet(_widened(matrices))),
        dtypes=_DTYPES,
        empty=("self",),
    ),
)
