"""Products of matrices and vectors: aclnnMm, aclnnMatmul, aclnnBatchMatMul, aclnnAddmm, aclnnGemm, aclnnMv, aclnnDot …

NumPy's BLAS multiplies in float32 and reads transposed operands in place; 16-bit results are rounded once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    MOST_DIMS,
    axis,
    broadcast_shape,
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dims_between,
    dtype_in,
    dtype_or_float32,
    each,
    extents,
    floating,
    format_is,
    has_zero,
    limited_dims,
    one_of,
    only_if,
    public_format,
    real,
    restricted,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    size_is,
    unless_empty,
    value_is,
    where_supported,
)
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.promotion import castable
from aclnn.operators.library.common import (
    CUBE,
    FORMS,
    KEEP_DTYPE,
    MODERN,
    NUMBERS,
    REAL,
    USE_FP16,
    WITH_INFERENCE,
    WITH_TRAINING,
    Form,
    attribute,
    cube_math,
    library_operator,
    on_950,
    promoted,
    promoted_dtype,
    scalar,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.matrix.weights import LAID_OUT
from aclnn.operators.library.reduction.dimensions import DIM

_DTYPES = FLOATING
_DOTTED = (*FLOATING, D.INT8, D.INT32, D.UINT8)
_CROSSED = tuple(dtype for dtype in NUMBERS if dtype != D.BOOL)
_OUT = tensor_out()
_HALVES = (D.FLOAT16, D.BF16)
_MULTIPLIED = support(FLOATING)
_WEIGHED = {**support(FLOATING, A2_CLASS), **support(_HALVES, LAID_OUT - A2_CLASS)}
"""Data types of aclnnMatmulWeightNz."""
_USE_FP32_ADD, _INTERNAL = 4, -1

Shape = tuple[int, ...]
Shapes = Callable[[Call], tuple[Shape, Shape]]


def _cube(first: str, second: str) -> Check:
    return cube_math(first, second, further=(_USE_FP32_ADD,), before_950=(_INTERNAL,))


def _keeps_dtype(first: str, out: str = "out") -> Check:
    def violation(call: Call) -> str | None:
        keeps = call["cubeMathType"] == KEEP_DTYPE and call[first].dtype == D.FLOAT
        if not keeps or call[out].dtype != D.FLOAT16:
            return None
        return f"{out}: expected data type ACL_FLOAT (that of {first}, which cubeMathType 0 keeps), got ACL_FLOAT16"

    return rule(f"keeps the data type: {out}", violation)


def _types(first: str, second: str) -> tuple[Check, ...]:
    return dtype_in(floating, first, second, "out"), _cube(first, second), _keeps_dtype(first)


def _padded(first: Shape, second: Shape) -> tuple[Shape, Shape]:
    """Return the operands' shapes as matrices: a vector is a row on the left, a column on the right."""
    return (1, *first) if len(first) == 1 else first, (*second, 1) if len(second) == 1 else second


def _inner(first: str, second: str, shapes: Shapes | None = None) -> Check:
    def violation(call: Call) -> str | None:
        left, right = _padded(*(shapes(call) if shapes else (call[first].shape, call[second].shape)))
        if left[-1] == right[-2]:
            return None
        return f"{second}: expected {left[-1]} rows (the columns of {first}), got shape {extents(call[second].shape)}"

    return rule(f"as many rows as {first} has columns: {second}", violation)


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
    return _shape_of(first, second, lambda call: _result_shape(call[first].shape, call[second].shape))


def _shape_of(
    first: str, second: str, shape: Callable[[Call], Shape], out: str = "out", or_empty: bool = False
) -> Check:
    """Require the shape of a product; if that is empty, some functions accept any empty shape."""

    def violation(call: Call) -> str | None:
        expected, got = shape(call), call[out].shape
        if got == expected or (or_empty and has_zero(expected) and has_zero(got)):
            return None
        return f"{out}: expected shape {extents(expected)} (of the product of {first} and {second}), got {extents(got)}"

    return rule(f"shape of the product: {out}", violation)


def _operand_ranks(call: Call) -> str | None:
    most = MOST_DIMS if call.product in A2_CLASS else 6
    for name in ("self", "mat2"):
        rank = len(call[name].shape)
        if not 1 <= rank <= most:
            return f"{name}: expected 1 to {most} dimensions on {call.product.title}, got {rank}"
    return None


def _broadcasts_to(what: str, shape: Callable[[Call], Shape], name: str = "self") -> Check:
    def violation(call: Call) -> str | None:
        mine, expected = call[name].shape, shape(call)
        if broadcast_shape(mine, expected) == expected:
            return None
        return f"{name}: expected a shape that broadcasts to {extents(expected)} (that of {what}), got {extents(mine)}"

    return rule(f"broadcasts to {what}: {name}", violation)


_FITS_OUT = _broadcasts_to("out", lambda call: call["out"].shape)


def _of_three(call: Call) -> int:
    """Return the dimension of aclnnLinalgCross's vectors, from the end; an argument of 0 or more counts self's."""
    rank, dim = len(call["self"].shape), call["dim"]
    return int(dim - rank if dim >= 0 else dim)


def _three(call: Call) -> str | None:
    shape, dim = call["out"].shape, _of_three(call)
    if call["self"].shape and shape[dim] == 3:
        return None
    return f"out: expected 3 elements along dim {call['dim']} (of self), got {extents(shape)}"


def _cross_work(call: Call) -> Library | None:
    shape, dim = call["out"].shape, _of_three(call)

    def cross(self: Any, other: Any) -> Any:
        (a, b, c), (d, e, f) = (np.moveaxis(np.broadcast_to(each, shape), dim, 0) for each in (self, other))
        return np.stack((b * f - c * e, c * d - a * f, a * e - b * d), dim)

    return Library(cross, ("self", "other"), ("out",)) if call["out"].size else None


def _batches_of(first: str, second: str, of_first: bool = False) -> Check:
    """Require equally many matrices in two batches, or one: in the second only if the first has the result's."""

    def violation(call: Call) -> str | None:
        expected, got = call[first].shape[0], call[second].shape[0]
        if got in (expected, 1) or (expected == 1 and not of_first):
            return None
        return f"{second}: expected {expected} matrices (as many as in {first}) or 1, got {got}"

    return rule(f"as many matrices as {first}: {second}", violation)


def _empty_with_product(call: Call) -> str | None:
    if not has_zero(call["out"].shape) or has_zero(call["self"].shape):
        return None
    return f"self: expected no elements with an empty product, got shape {extents(call['self'].shape)}"


def _of_batches(form: Form) -> tuple[Check, ...]:
    together = rule("empty with the product: self", _empty_with_product)
    return (*(() if form.in_place else (together,)), same_format("batch2", "batch1"))


_NOT_THIN = value_is("no dimension of 1 in blocks", lambda got: 1 not in got[-2:], "mat2")


def _level2(call: Call) -> str | None:
    if call["cubeMathType"] != _USE_FP32_ADD or call.product in A2_CLASS | CLASS_950:
        return None
    return f"cubeMathType: expected less than 4 on {call.product.title}, got 4"


def _narrowed(operand: Any, cube: int) -> Any:
    return operand.astype(np.float16).astype(np.float32) if cube == USE_FP16 else operand


def _product(self: Any, mat2: Any, cube: int, out: Any = None) -> Any:
    # BLAS cannot write arrays with gaps.
    into = out if out is not None and out.flags.c_contiguous else None
    return np.matmul(_narrowed(self, cube), _narrowed(mat2, cube), out=into)


def _sum(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any, cube: int, out: Any = None) -> Any:
    beta, alpha = float(beta), float(alpha)
    if alpha == 0:  # the matrices may contain NaN
        return 0 if beta == 0 else np.float32(beta) * self
    product = _product(mat1, mat2, cube, None if out is None or np.may_share_memory(self, out) else out)
    if alpha != 1:
        product *= np.float32(alpha)
    if beta == 0:  # self may contain NaN
        return product
    product += self if beta == 1 else np.float32(beta) * self
    return product


def _sum_of_batches(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any, cube: int, out: Any = None) -> Any:
    """Return the sum of a batch of products as one product of concatenated matrices."""
    count = max(len(batch1), len(batch2))
    left = np.broadcast_to(batch1, (count, *batch1.shape[1:])).swapaxes(0, 1)
    right = np.broadcast_to(batch2, (count, *batch2.shape[1:]))
    return _sum(self, left.reshape(len(left), -1), right.reshape(-1, right.shape[-1]), beta, alpha, cube, out)


_FACTORS = ("betaOptional", "alphaOptional")


def _outer_shape(call: Call) -> Shape:
    return call["vec1"].size, call["vec2"].size


def _outer_sum(form: Form) -> Operator:
    """Declare aclnnAddr, for any real type; booleans are multiplied by "and" and added by "or"."""
    first, out = form.first, form.out
    tensors = tuple(dict.fromkeys((first, "vec1", "vec2", out)))

    def joint(call: Call) -> D:
        return promoted_dtype(call[first].dtype, promoted(call, "vec1", "vec2"))

    def fits(call: Call, name: str) -> str | None:
        got, computed = call[name].dtype, joint(call)
        if got == D.BOOL != computed:
            return f"expected a number with {computed.c_name} (that of the result), got ACL_BOOL"
        if castable(got, D.INT64) or not castable(computed, D.INT64):
            return None
        return f"expected an integer with {computed.c_name} (that of the result), got {got.c_name}"

    def work(call: Call) -> Library | None:
        if call[out].size == 0:
            return None
        factors = [np.asarray(1 if call[name] is None else call[name].value) for name in _FACTORS]

        def compute(self: Any, vec1: Any, vec2: Any) -> Any:
            wide = np.dtype(np.float64) if self.dtype.kind == "f" else self.dtype
            whole, left, right = (each.astype(wide) for each in (self, vec1, vec2))
            beta, alpha = (convert(factor, wide) for factor in factors)
            product = alpha * np.multiply.outer(left, right)
            return product + beta * whole if beta else product  # with beta 0 self may contain NaN

        return Library(compute, (first, "vec1", "vec2"), (out,), joint(call))

    return Operator(
        name=f"{form.prefix}addr",
        summary=form.summary("Add a multiple of the outer product of two vectors to a multiple of a matrix."),
        formula=f"{out} = beta * {first} + alpha * vec1[i] * vec2[j]",
        parameters=form.parameters(
            tensor_in("vec1", "the first vector, one element per row"),
            tensor_in("vec2", "the second vector, one element per column"),
            Parameter("betaOptional", "beta", Kind.SCALAR, f"the factor of {first}; 1 by default", optional=True),
            Parameter("alphaOptional", "alpha", Kind.SCALAR, "the factor of the products; 1 by default", optional=True),
            result=_OUT,
        ),
        support=support(REAL, WITH_TRAINING),
        checks=(
            dtype_in(where_supported(REAL), *tensors, *_FACTORS),
            each("fits the result", _FACTORS, fits),
            dims_between(1, 1, "vec1", "vec2"),
            *([] if form.in_place else [dims_between(0, 2, first), _broadcasts_to("the products", _outer_shape)]),
            shape_is("a row for each of vec1", _outer_shape, out),
        ),
        work=work,
        in_header_of="addr",
    )


def _vector_sum_dtype(call: Call) -> D:
    """Return the type of aclnnAddmv's result, to which factors other than 1 contribute."""

    def scaled(factor: str, dtype: D) -> D:
        return dtype if float(call[factor].value) == 1 else promoted_dtype(call[factor].dtype, dtype)

    return promoted_dtype(scaled("beta", call["self"].dtype), scaled("alpha", promoted(call, "mat", "vec")))


def _alone(call: Call) -> str | None:
    expected, got = call["out"].shape, call["self"].shape
    if float(call["alpha"].value) != 0 or got in ((), expected):
        return None
    return f"self: expected shape {extents(expected)} (that of out) with an alpha of 0, got {extents(got)}"


def _vector_sum_work(call: Call) -> Library | None:
    """Compute aclnnAddmv, for any real type; booleans are multiplied by "and" and added by "or"."""
    product_type = promoted(call, "mat", "vec")
    beta, alpha = (np.asarray(call[name].value) for name in ("beta", "alpha"))
    cube = call["cubeMathType"] if product_type in FLOATING else KEEP_DTYPE

    def compute(self: Any, mat: Any, vec: Any) -> Any:
        terms = [convert(beta, self.dtype) * self] if beta else []
        if alpha:  # the matrix may contain NaN
            if product_type == D.BOOL:
                mat, vec = mat.astype(bool), vec.astype(bool)
            terms.append(convert(alpha, self.dtype) * _product(mat, vec, cube).astype(self.dtype))
        return sum(terms, np.zeros((), self.dtype))

    return Library(compute, ("self", "mat", "vec"), ("out",), _vector_sum_dtype(call)) if call["out"].size else None


def _product_of_two(call: Call) -> Shape:
    return _result_shape(call["self"].shape, call["mat2"].shape)


def _product_work(call: Call) -> Library | None:
    shape, cube = call["out"].shape, call["cubeMathType"]
    fits = shape == _product_of_two(call)

    def compute(self: Any, mat2: Any, out: Any = None) -> Any:
        return _product(self, mat2, cube, out) if fits else _product(self, mat2, cube).reshape(shape)

    return Library(compute, ("self", "mat2"), ("out",), fills=True) if call["out"].size else None


def _of_two(
    name: str,
    summary: str,
    header: str,
    *checks: Check,
    types: tuple[Check, ...] | None = None,
    taken: Mapping[Product, frozenset[D]] = _MULTIPLIED,
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        formula="out = self @ mat2",
        parameters=(tensor_in("self", "the left operand"), tensor_in("mat2", "the right operand"), _OUT, CUBE),
        support=taken,
        checks=(*(types or _types("self", "mat2")), *checks),
        work=_product_work,
        in_header_of=header,
    )


def _added(
    name: str,
    product: str,
    summary: str,
    factors: tuple[str, str],
    rank: int,
    function: Callable[..., Any],
    checks: Callable[[Form], tuple[Check, ...]],
    summed: bool = False,
    header: str | None = None,
    multiplied: Collection[D] | Callable[[Product], Collection[D]] = floating,
    products: Collection[Product] = WITH_INFERENCE,
    forms: Sequence[Form] = FORMS,
) -> Iterator[Operator]:
    """Declare the sum of a tensor and products of a rank (added up with ``summed``), also in place."""
    left, right = factors

    def shape(call: Call) -> Shape:
        return _result_shape(call[left].shape, call[right].shape)[summed:]

    for form in forms:
        first, out = form.first, form.out
        yield library_operator(
            form.prefix + name,
            f"{out} = beta * {first} + alpha * ({product})",
            form.summary(summary),
            (
                *form.parameters(
                    tensor_in(left, "the left operands"),
                    tensor_in(right, "the right operands"),
                    scalar("beta", f"the factor of {first}"),
                    scalar("alpha", "the factor of the product"),
                    result=_OUT,
                    const=not summed,
                ),
                CUBE,
            ),
            (
                dtype_in(multiplied, left, right),
                dtype_in(floating, first, out),
                real("beta", "alpha"),
                dims_between(rank, rank, left, right),
                _inner(left, right),
                *([_batches_of(left, right, of_first=not summed)] if rank > 2 else []),
                *([] if form.in_place else [_broadcasts_to("the product", shape)]),
                _shape_of(left, right, shape, out, or_empty=rank == 2),
                _cube(left, right),
                *([_keeps_dtype(left, out)] if multiplied is floating else []),
                *checks(form),
            ),
            function,
            header=header or name,
            dtypes=_DTYPES,
            products=products,
            inputs=(first, left, right, "beta", "alpha"),
            attributes=("cubeMathType",),
            fills=True,
        )


def _turned(call: Call) -> tuple[Shape, Shape]:
    left, right = call["A"].shape, call["B"].shape
    return left[::-1] if call["transA"] else left, right[::-1] if call["transB"] else right


def _turned_product(call: Call) -> Shape:
    return _result_shape(*_turned(call))


def _gemm(
    a: Any, b: Any, c: Any, alpha: float, beta: float, turn_a: int, turn_b: int, cube: int, out: Any = None
) -> Any:
    return _sum(c, a.T if turn_a else a, b.T if turn_b else b, beta, alpha, cube, out)


def _dot(self: Any, tensor: Any) -> Any:
    wide = np.int64 if self.dtype.kind in "iu" else np.float64
    return np.dot(self.astype(wide), tensor.astype(wide))


OPERATORS = (
    _of_two(
        "mm",
        "Multiply two matrices.",
        "mm",
        dims_between(2, 2, "mat2", "self"),
        _inner("self", "mat2"),
        dims_between(2, 2, "out"),
        _shape_of_product("self", "mat2"),
    ),
    _of_two(
        "matmul",
        "Multiply matrices or vectors; leading dimensions broadcast.",
        "matmul",
        rule("number of dimensions: self, mat2", _operand_ranks),
        _inner("self", "mat2"),
        rule("leading dimensions that broadcast: mat2", _batches),
        public_format("self", "mat2", "out"),
        # CANN's source reshapes the product: callers pass [1] for that of two vectors.
        size_is("the product", lambda call: math.prod(_product_of_two(call)), "out"),
    ),
    _of_two(
        "batch_mat_mul",
        "Multiply two batches of matrices.",
        "batch_matmul",
        dims_between(3, 3, "self", "mat2"),
        only_if(_NOT_THIN, "in blocks", lambda call: call["mat2"].format.private),
        _inner("self", "mat2"),
        _batches_of("self", "mat2"),
        _shape_of_product("self", "mat2"),
        public_format("self", "out"),
    ),
    _of_two(
        "matmul_weight_nz",
        "Multiply a matrix by a weight stored in blocks.",
        "matmul",
        *restricted(
            "of 16 bits",
            lambda call: D.FLOAT not in (call["self"].dtype, call["mat2"].dtype),
            same_dtype("mat2", "self"),
            dtype_or_float32("self", "out"),
        ),
        dims_between(2, 2, "self", "mat2"),
        _NOT_THIN,
        _inner("self", "mat2"),
        _shape_of_product("self", "mat2"),
        public_format("self", "out"),
        types=(
            dtype_in(lambda product: _WEIGHED.get(product, FLOATING), "self", "mat2"),
            dtype_in(floating, "out"),
            _cube("self", "mat2"),
            _keeps_dtype("self"),
        ),
        taken=_WEIGHED,
    ),
    _of_two(
        "batch_mat_mul_weight_nz",
        "Multiply a batch of matrices by weights stored in blocks.",
        "batch_matmul",
        same_dtype("mat2", "self"),
        dtype_or_float32("self", "out"),
        dims_between(3, 3, "self", "mat2"),
        _NOT_THIN,
        _inner("self", "mat2"),
        _batches_of("self", "mat2"),
        _shape_of_product("self", "mat2"),
        public_format("self", "out"),
        types=(
            dtype_in(_HALVES, "self", "mat2"),
            dtype_in(lambda product: FLOATING if product in CLASS_950 else _HALVES, "out"),
            one_of("cubeMathType", *range(_INTERNAL, _USE_FP32_ADD + 1)),
        ),
        taken=support(_HALVES, MODERN),
    ),
    *_added(
        "addmm",
        "mat1 @ mat2",
        "Add a multiple of a product of two matrices to a multiple of a tensor.",
        ("mat1", "mat2"),
        2,
        _sum,
        lambda form: (public_format(form.first), rule("exact accumulation: cubeMathType", _level2)),
    ),
    *_added(
        "addmm_weight_nz",
        "mat1 @ mat2",
        "Add a multiple of a product with a weight stored in blocks to a multiple of a tensor.",
        ("mat1", "mat2"),
        2,
        _sum,
        lambda form: (
            same_dtype("mat2", "mat1"),
            dims_between(1, 2, form.first),
            _NOT_THIN,
            format_is(Format.FORMAT_ND, form.first, "mat1"),
        ),
        header="addmm",
        multiplied=_HALVES,
        products=MODERN,
        forms=FORMS[:1],
    ),
    library_operator(
        "gemm",
        "out = alpha * (A @ B) + beta * C",
        "Add a multiple of a product of two matrices, optionally transposed, to a multiple of a third.",
        (
            tensor_in("A", "the left operand"),
            tensor_in("B", "the right operand"),
            tensor_in("C", "the addend, which broadcasts to the product"),
            attribute("alpha", Kind.FLOAT, "the factor of the product"),
            attribute("beta", Kind.FLOAT, "the factor of C"),
            attribute("transA", Kind.INT64, "not 0: A is transposed"),
            attribute("transB", Kind.INT64, "not 0: B is transposed"),
            _OUT,
            CUBE,
        ),
        (
            dtype_in(floating, "A", "B", "C", "out"),
            dims_between(2, 2, "A", "B"),
            _inner("A", "B", _turned),
            _broadcasts_to("the product", _turned_product, "C"),
            _shape_of("A", "B", _turned_product, or_empty=True),
            _cube("A", "B"),
            format_is(Format.FORMAT_ND, "A", "B", "C", "out"),
        ),
        _gemm,
        dtypes=_DTYPES,
        attributes=("alpha", "beta", "transA", "transB", "cubeMathType"),
        fills=True,
    ),
    *_added(
        "baddbmm",
        "batch1 @ batch2",
        "Add multiples of products of two batches of matrices to a multiple of a tensor.",
        ("batch1", "batch2"),
        3,
        _sum,
        lambda form: (*_of_batches(form), same_format(form.out, "batch1")),
    ),
    *_added(
        "addbmm",
        "sum of batch1 @ batch2",
        "Add a multiple of the sum of products of two batches of matrices to a multiple of a tensor.",
        ("batch1", "batch2"),
        3,
        _sum_of_batches,
        _of_batches,
        summed=True,
    ),
    library_operator(
        "mv",
        "out = self @ vec",
        "Multiply a matrix and a vector.",
        (tensor_in("self", "the matrix"), tensor_in("vec", "the vector"), _OUT, CUBE),
        (
            dtype_in(floating, "self", "vec", "out"),
            same_dtype("out", "vec"),
            *unless_empty(("self",), same_dtype("self", "vec")),
            _cube("self", "vec"),
            dims_between(2, 2, "self"),
            dims_between(1, 1, "vec"),
            _inner("self", "vec"),
            _shape_of_product("self", "vec"),
        ),
        _product,
        dtypes=_DTYPES,
        attributes=("cubeMathType",),
        fills=True,
    ),
    Operator(
        name="addmv",
        summary="Add a multiple of a product of a matrix and a vector to a multiple of a vector.",
        formula="out = beta * self + alpha * (mat @ vec)",
        parameters=(
            tensor_in("self", "the addend, which broadcasts to the product"),
            tensor_in("mat", "the matrix"),
            tensor_in("vec", "the vector"),
            scalar("alpha", "the factor of the product"),
            scalar("beta", "the factor of self"),
            _OUT,
            CUBE,
        ),
        support=support(REAL),
        checks=(
            dtype_in(where_supported(REAL), "self", "mat", "vec", "alpha", "beta", "out"),
            castable_from(_vector_sum_dtype, "out"),
            dims_between(0, 1, "self"),
            dims_between(2, 2, "mat"),
            dims_between(1, 1, "vec"),
            _inner("mat", "vec"),
            _shape_of_product("mat", "vec"),
            _FITS_OUT,
            rule("as long as out without a product: self", _alone),
            _cube("mat", "vec"),
            public_format("self", "mat", "vec", "out"),
        ),
        work=_vector_sum_work,
    ),
    *(_outer_sum(form) for form in FORMS),
    library_operator(
        "ger",
        "out = self[i] * vec2[j]",
        "Outer product of two vectors.",
        (
            tensor_in("self", "the first vector, one element per row"),
            tensor_in("vec2", "the second vector, one element per column"),
            _OUT,
        ),
        (
            dtype_in(on_950({D.BF16}, set(NUMBERS) - {D.BF16}), "self", "vec2", "out"),
            castable_from(lambda call: promoted(call, "self", "vec2"), "out"),
            dims_between(1, 1, "self", "vec2"),
            shape_is("a row for each of self", lambda call: (call["self"].size, call["vec2"].size), "out"),
        ),
        np.multiply.outer,
        dtype=lambda call: promoted(call, "self", "vec2"),
    ),
    library_operator(
        "dot",
        "out = sum of self * tensor",
        "Dot product of two vectors.",
        (tensor_in("self", "the first vector"), tensor_in("tensor", "the second vector"), _OUT),
        (
            dtype_in(where_supported(_DOTTED), "self", "tensor", "out"),
            same_dtype("tensor", "self"),
            same_dtype("out", "self"),
            dims_between(1, 1, "self", "tensor"),
            same_shape("tensor", "self"),
            dims_between(0, 0, "out"),
        ),
        _dot,
        dtypes=_DOTTED,
    ),
    Operator(
        name="linalg_cross",
        summary="Cross products of vectors along a dimension of size 3.",
        formula="out = self x other along dim",
        parameters=(tensor_in("self", "the first vectors"), tensor_in("other", "the second vector"), DIM, _OUT),
        support=support(_CROSSED),
        checks=(
            dtype_in(where_supported(_CROSSED), "self"),
            same_dtype("other", "self"),
            same_dtype("out", "self"),
            limited_dims("self", "other", "out"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
            axis("dim", "self"),
            rule("three along dim: out", _three),
        ),
        work=_cross_work,
    ),
)
