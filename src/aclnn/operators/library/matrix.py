"""Products of matrices and vectors: aclnnMm, aclnnMatmul, aclnnBatchMatMul, aclnnAddmm, aclnnMv, aclnnDot …

NumPy's BLAS multiplies in float32, reads transposed operands in place, and 16-bit types are rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    axis,
    broadcast_shape,
    castable_from,
    dims_between,
    dtype_in,
    extents,
    floating,
    listing,
    present,
    public_format,
    real,
    rule,
    same_shape,
    shape_is,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.operators.library.common import (
    NUMBERS,
    WITH_INFERENCE,
    library_operator,
    promoted,
    scalar,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.dimensions import DIM

_DTYPES = (D.FLOAT, D.FLOAT16, D.BF16)
_CUBE = Parameter("cubeMathType", "cube_math_type", Kind.INT8, "which precision the cube unit may use")
_OUT = tensor_out()
_OLD = (Product.ATLAS_TRAINING, Product.ATLAS_INFERENCE)
_KEEP_DTYPE, _ALLOW_DOWN_PRECISION, _USE_FP16, _USE_HF32, _USE_FP32_ADD, _INTERNAL = 0, 1, 2, 3, 4, -1

Shape = tuple[int, ...]


def _cube(first: str, second: str) -> Check:
    def complain(call: Call) -> str | None:
        given, single = call["cubeMathType"], D.FLOAT in (call[first].dtype, call[second].dtype)
        allowed = {_KEEP_DTYPE, _ALLOW_DOWN_PRECISION, _USE_FP16, _USE_HF32, _USE_FP32_ADD}
        if call.product not in CLASS_950:
            allowed.add(_INTERNAL)
        if call.product in _OLD and single:
            allowed -= {_KEEP_DTYPE, _USE_HF32, _INTERNAL}
        if given in allowed:
            return None
        return f"cubeMathType: expected {listing(map(str, sorted(allowed)))} on {call.product.title}, got {given}"

    return rule("allowed value: cubeMathType", complain)


def _keeps_dtype(first: str) -> Check:
    def complain(call: Call) -> str | None:
        keeps = call["cubeMathType"] == _KEEP_DTYPE and call[first].dtype == D.FLOAT
        if not keeps or call["out"].dtype != D.FLOAT16:
            return None
        return f"out: expected data type ACL_FLOAT (that of {first}, which cubeMathType 0 keeps), got ACL_FLOAT16"

    return rule("keeps the data type: out", complain)


def _types(first: str, second: str, *more: str) -> tuple[Check, ...]:
    return dtype_in(floating, *more, first, second, "out"), _cube(first, second), _keeps_dtype(first)


def _padded(first: Shape, second: Shape) -> tuple[Shape, Shape]:
    """The operands of a product as matrices: a vector is a row on the left, a column on the right."""
    return (1, *first) if len(first) == 1 else first, (*second, 1) if len(second) == 1 else second


def _inner(first: str, second: str) -> Check:
    def complain(call: Call) -> str | None:
        left, right = _padded(call[first].shape, call[second].shape)
        if left[-1] == right[-2]:
            return None
        return f"{second}: expected {left[-1]} rows (the columns of {first}), got shape {extents(call[second].shape)}"

    return rule(f"as many rows as {first} has columns: {second}", complain)


def _batches(call: Call) -> str | None:
    left, right = _padded(call["self"].shape, call["mat2"].shape)
    if broadcast_shape(left[:-2], right[:-2]) is not None:
        return None
    expected, got = extents(left[:-2]), extents(right[:-2])
    return f"mat2: expected leading dimensions that broadcast with {expected} (those of self), got {got}"


def _result_shape(first: Shape, second: Shape) -> Shape:
    left, right = _padded(first, second)
    batch = broadcast_shape(left[:-2], right[:-2])
    assert batch is not None
    return (
        *batch,
        *left[-2 : -1 if len(first) > 1 else -2],
        *right[len(right) - 1 if len(second) > 1 else len(right) :],
    )


def _shape_of_product(first: str, second: str) -> Check:
    def complain(call: Call) -> str | None:
        expected, got = _result_shape(call[first].shape, call[second].shape), call["out"].shape
        if got == expected:
            return None
        return f"out: expected shape {extents(expected)} (of the product of {first} and {second}), got {extents(got)}"

    return rule("shape of the product: out", complain)


def _operand_ranks(call: Call) -> str | None:
    for name in ("self", "mat2"):
        rank = len(call[name].shape)
        if not 1 <= rank <= 6:
            return f"{name}: expected 1 to 6 dimensions, got {rank}"
    return None


def _batch(call: Call) -> str | None:
    mine, theirs = call["mat2"].shape[0], call["self"].shape[0]
    if mine == theirs or 1 in (mine, theirs):
        return None
    return f"mat2: expected {theirs} matrices (as many as in self) or 1, got {mine}"


def _broadcasts_to_out(call: Call) -> str | None:
    mine, out = call["self"].shape, _result_shape(call["mat1"].shape, call["mat2"].shape)
    if 1 <= len(mine) <= 2 and broadcast_shape(mine, out) == out:
        return None
    return f"self: expected a shape that broadcasts to {extents(out)} (of the product), got {extents(mine)}"


def _fits_out(call: Call) -> str | None:
    mine, out = call["self"].shape, call["out"].shape
    if broadcast_shape(mine, out) == out:
        return None
    return f"self: expected a shape that broadcasts to {extents(out)} (that of out), got {extents(mine)}"


def _three(call: Call) -> str | None:
    shape, dim = call["self"].shape, call["dim"]
    return None if shape and shape[dim] == 3 else f"self: expected 3 elements along dim {dim}, got {extents(shape)}"


def _batches_alike(call: Call) -> str | None:
    expected, got = call["batch1"].shape[0], call["batch2"].shape[0]
    return None if got == expected else f"batch2: expected {expected} matrices (as many as batch1), got {got}"


def _broadcasts_to_batches(call: Call) -> str | None:
    mine, out = call["self"].shape, _result_shape(call["batch1"].shape, call["batch2"].shape)
    if broadcast_shape(mine, out) == out:
        return None
    return f"self: expected a shape that broadcasts to {extents(out)} (of the products), got {extents(mine)}"


def _level2(call: Call) -> str | None:
    if call["cubeMathType"] != _USE_FP32_ADD or call.product in A2_CLASS | CLASS_950:
        return None
    return f"cubeMathType: expected less than 4 on {call.product.title}, got 4"


def _narrowed(operand: Any, cube: int) -> Any:
    return operand.astype(np.float16).astype(np.float32) if cube == _USE_FP16 else operand


def _product(self: Any, mat2: Any, cube: int, out: Any = None) -> Any:
    # BLAS writes nothing with gaps.
    into = out if out is not None and out.flags.c_contiguous else None
    return np.matmul(_narrowed(self, cube), _narrowed(mat2, cube), out=into)


def _sum(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any, cube: int, out: Any = None) -> Any:
    beta, alpha = float(beta), float(alpha)
    product = _product(mat1, mat2, cube, None if out is None or np.may_share_memory(self, out) else out)
    if alpha != 1:
        product *= np.float32(alpha)
    if beta == 0:  # self may be NaN
        return product
    product += self if beta == 1 else np.float32(beta) * self
    return product


def _of_two(name: str, summary: str, header: str, checks: tuple[Check, ...]) -> Operator:
    return library_operator(
        name,
        "out = self @ mat2",
        summary,
        (tensor_in("self", "the left operand"), tensor_in("mat2", "the right operand"), _OUT, _CUBE),
        (present("self", "mat2", "out"), *checks, _shape_of_product("self", "mat2")),
        _product,
        header=header,
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("cubeMathType",),
        fills=True,
    )


_both: Callable[..., tuple[Check, ...]] = lambda *checks: (  # noqa: E731  (three uses)
    *_types("self", "mat2"),
    *checks,
)

OPERATORS = (
    _of_two(
        "mm",
        "Multiply two matrices.",
        "mm",
        _both(dims_between(2, 2, "mat2", "self"), _inner("self", "mat2"), dims_between(2, 2, "out")),
    ),
    _of_two(
        "matmul",
        "Multiply matrices or vectors; leading dimensions broadcast.",
        "matmul",
        _both(
            rule("1 to 6 dimensions: self, mat2", _operand_ranks),
            _inner("self", "mat2"),
            rule("leading dimensions that broadcast: mat2", _batches),
            public_format("self", "mat2", "out"),
        ),
    ),
    _of_two(
        "batch_mat_mul",
        "Multiply two batches of matrices.",
        "batch_matmul",
        _both(
            dims_between(3, 3, "self", "mat2"),
            _inner("self", "mat2"),
            rule("as many matrices as self: mat2", _batch),
            public_format("self", "out"),
        ),
    ),
    library_operator(
        "addmm",
        "out = beta * self + alpha * (mat1 @ mat2)",
        "Add a multiple of a product of two matrices to a multiple of a third.",
        (
            tensor_in("self", "what is added; a row or a matrix"),
            tensor_in("mat1", "the left operand"),
            tensor_in("mat2", "the right operand"),
            scalar("beta", "the factor of self"),
            scalar("alpha", "the factor of the product"),
            _OUT,
            _CUBE,
        ),
        (
            present("self", "mat1", "mat2", "beta", "alpha", "out"),
            dtype_in(floating, "self", "mat1", "mat2", "out"),
            real("beta", "alpha"),
            dims_between(2, 2, "mat1", "mat2"),
            _inner("mat1", "mat2"),
            rule("broadcasts to the product: self", _broadcasts_to_out),
            _shape_of_product("mat1", "mat2"),
            _cube("mat1", "mat2"),
            _keeps_dtype("mat1"),
            rule("exact accumulation: cubeMathType", _level2),
        ),
        _sum,
        header="addmm",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("cubeMathType",),
        fills=True,
    ),
    library_operator(
        "baddbmm",
        "out = beta * self + alpha * (batch1 @ batch2)",
        "Add multiples of products of two batches of matrices to multiples of a third.",
        (
            tensor_in("self", "what is added; broadcasts to the products"),
            tensor_in("batch1", "the left operands"),
            tensor_in("batch2", "the right operands"),
            scalar("beta", "the factor of self"),
            scalar("alpha", "the factor of the products"),
            _OUT,
            _CUBE,
        ),
        (
            present("self", "batch1", "batch2", "beta", "alpha", "out"),
            dtype_in(floating, "self", "batch1", "batch2", "out"),
            real("beta", "alpha"),
            dims_between(3, 3, "batch1", "batch2"),
            _inner("batch1", "batch2"),
            rule("as many matrices as batch1: batch2", _batches_alike),
            rule("broadcasts to the products: self", _broadcasts_to_batches),
            _shape_of_product("batch1", "batch2"),
            _cube("batch1", "batch2"),
            _keeps_dtype("batch1"),
        ),
        _sum,
        header="baddbmm",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("cubeMathType",),
        fills=True,
    ),
    library_operator(
        "mv",
        "out = self @ vec",
        "Multiply a matrix and a vector.",
        (tensor_in("self", "the matrix"), tensor_in("vec", "the vector"), _OUT, _CUBE),
        (
            present("self", "vec", "out"),
            *_types("self", "vec"),
            dims_between(2, 2, "self"),
            dims_between(1, 1, "vec"),
            _inner("self", "vec"),
            _shape_of_product("self", "vec"),
        ),
        _product,
        header="mv",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("cubeMathType",),
        fills=True,
    ),
    library_operator(
        "addmv",
        "out = beta * self + alpha * (mat @ vec)",
        "Add a multiple of a product of a matrix and a vector to a multiple of a vector.",
        (
            tensor_in("self", "what is added; broadcasts to the product"),
            tensor_in("mat", "the matrix"),
            tensor_in("vec", "the vector"),
            scalar("alpha", "the factor of the product"),
            scalar("beta", "the factor of self"),
            _OUT,
            _CUBE,
        ),
        (
            present("self", "mat", "vec", "alpha", "beta", "out"),
            dtype_in(floating, "self", "mat", "vec", "out"),
            real("alpha", "beta"),
            dims_between(2, 2, "mat"),
            dims_between(1, 1, "vec"),
            _inner("mat", "vec"),
            _shape_of_product("mat", "vec"),
            rule("broadcasts to out: self", _fits_out),
        ),
        lambda self, mat, vec, alpha, beta, cube: _sum(self, mat, vec, beta, alpha, cube),
        header="addmv",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("cubeMathType",),
    ),
    library_operator(
        "addr",
        "out = beta * self + alpha * vec1[i] * vec2[j]",
        "Add a multiple of the products of all pairs of two vectors' elements to a multiple of a matrix.",
        (
            tensor_in("self", "what is added; broadcasts to the products"),
            tensor_in("vec1", "the elements of rows"),
            tensor_in("vec2", "the elements of columns"),
            scalar("beta", "the factor of self"),
            scalar("alpha", "the factor of the products"),
            _OUT,
        ),
        (
            present("self", "vec1", "vec2", "beta", "alpha", "out"),
            dtype_in(floating, "self", "vec1", "vec2", "out"),
            real("beta", "alpha"),
            dims_between(1, 1, "vec1", "vec2"),
            shape_is("a row for each of vec1", lambda call: (call["vec1"].size, call["vec2"].size), "out"),
            rule("broadcasts to out: self", _fits_out),
        ),
        lambda self, vec1, vec2, beta, alpha: (
            beta * self.astype(np.float64) + alpha * np.multiply.outer(vec1.astype(np.float64), vec2)
        ),
        header="addr",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
    ),
    library_operator(
        "ger",
        "out = self[i] * vec2[j]",
        "Multiply all pairs of two vectors' elements.",
        (tensor_in("self", "the elements of rows"), tensor_in("vec2", "the elements of columns"), _OUT),
        (
            present("self", "vec2", "out"),
            dtype_in(where_supported(NUMBERS), "self", "vec2", "out"),
            castable_from(lambda call: promoted(call, "self", "vec2"), "out"),
            dims_between(1, 1, "self", "vec2"),
            shape_is("a row for each of self", lambda call: (call["self"].size, call["vec2"].size), "out"),
        ),
        np.multiply.outer,
        header="ger",
        dtype=lambda call: promoted(call, "self", "vec2"),
    ),
    library_operator(
        "dot",
        "out = sum of self * tensor",
        "Multiply two vectors.",
        (tensor_in("self", "the first vector"), tensor_in("tensor", "the second"), _OUT),
        (
            present("self", "tensor", "out"),
            dtype_in(floating, "self", "tensor", "out"),
            dims_between(1, 1, "self", "tensor"),
            same_shape("tensor", "self"),
            dims_between(0, 0, "out"),
        ),
        lambda self, tensor: np.dot(self.astype(np.float64), tensor.astype(np.float64)),
        header="dot",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
    ),
    library_operator(
        "linalg_cross",
        "out = self x other along dim",
        "Cross products of vectors along a dimension of three.",
        (
            tensor_in("self", "the first vectors"),
            tensor_in("other", "the second"),
            DIM,
            _OUT,
        ),
        (
            present("self", "other", "out"),
            dtype_in(floating, "self", "other", "out"),
            axis("dim", "self"),
            rule("three along dim: self", _three),
            same_shape("other", "self"),
            same_shape("out", "self"),
        ),
        lambda self, other, dim: np.cross(self.astype(np.float64), other.astype(np.float64), axis=dim),
        header="linalg_cross",
        dtypes=_DTYPES,
        products=WITH_INFERENCE,
        attributes=("dim",),
    ),
)
