"""aclnnTransposeBatchMatMul: products of batches of matrices whose dimensions lie in other orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    elsewhere,
    extents,
    floating,
    listing,
    not_empty,
    null,
    public_format,
    rule,
    same_dtype,
    shape_is,
)
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out

_ORDERS = {"permX1": ((0, 1, 2), (1, 0, 2)), "permX2": ((0, 1, 2), (0, 2, 1)), "permY": ((1, 0, 2),)}
_UNUSED = ("bias", "scale")
_BOUND = 2**16
"""Exclusive bound of B, N and K before Ascend 950, where x1 is not transposed."""
_USE_FP32_ADD = 4
"""Value of ``cubeMathType``; the A2 class treats it as 0."""


def _factors(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the permuted shapes (B, M, K) and (B, K, N) of the factors."""
    first, second = (
        tuple(call[name].shape[at] for at in call[order]) for name, order in (("x1", "permX1"), ("x2", "permX2"))
    )
    return first, second


def _fit(call: Call) -> str | None:
    (batch, _, inner), (other_batch, other_inner, _) = _factors(call)
    if (batch, inner) == (other_batch, other_inner):
        return None
    return f"x2: expected {batch} matrices of {inner} rows, got {other_batch} of {other_inner}"


def _cube(call: Call) -> str | None:
    allowed, got = range(_USE_FP32_ADD + (call.product in A2_CLASS)), call["cubeMathType"]
    if got in allowed:
        return None
    return f"cubeMathType: expected {listing(map(str, allowed))} on {call.product.title}, got {got}"


def _small(call: Call) -> str | None:
    (batch, _, inner), (_, _, columns) = _factors(call)
    sizes = {"x2": (batch, columns)} | ({} if call["permX1"][0] else {"x1": (inner,)})
    name, got = next(((of, n) for of, found in sizes.items() for n in found if n >= _BOUND), (None, None))
    return None if name is None else f"{name}: expected extents below {_BOUND}, got {got}"


def _untransposed(call: Call) -> str | None:
    if tuple(call["permX2"]) == _ORDERS["permX2"][0] or (call["permX1"][0] and call["batchSplitFactor"] == 1):
        return None
    expected = f"{extents(_ORDERS['permX2'][0])} without permX1 {extents(_ORDERS['permX1'][1])} and batchSplitFactor 1"
    return f"permX2: expected {expected} on {call.product.title}, got {extents(call['permX2'])}"


def _narrow_rows(call: Call) -> str | None:
    (batch, _, inner), _ = _factors(call)
    if not call["permX1"][0] or batch * inner < _BOUND or call["batchSplitFactor"] == 1:
        return None
    return f"batchSplitFactor: expected 1 for {_BOUND} numbers or more in a row of x1, got {call['batchSplitFactor']}"


def _divides(call: Call) -> str | None:
    batch, got = _factors(call)[0][0], call["batchSplitFactor"]
    return None if got >= 1 and batch % got == 0 else f"batchSplitFactor: expected a divisor of {batch}, got {got}"


def _result(call: Call) -> tuple[int, ...]:
    (batch, rows, _), (_, _, columns) = _factors(call)
    parts = call["batchSplitFactor"]
    return (rows, batch, columns) if parts == 1 else (parts, rows, batch // parts * columns)


def _order(name: str) -> Check:
    def violation(call: Call) -> str | None:
        given = None if call[name] is None else tuple(call[name])
        if given in _ORDERS[name]:
            return None
        expected = " or ".join(map(extents, _ORDERS[name]))
        return f"{name}: expected {expected}, got {'null' if given is None else extents(given)}"

    return rule(f"an order of dimensions: {name}", violation)


def _work(call: Call) -> Library:
    first, second, shape = call["permX1"], call["permX2"], call["out"].shape

    def multiply(x1: Any, x2: Any) -> Any:
        product = x1.transpose(first).astype(np.float64) @ x2.transpose(second).astype(np.float64)
        batch, rows, columns = product.shape
        parts = shape[0] if call["batchSplitFactor"] > 1 else 1
        split = product.reshape(parts, batch // parts, rows, columns).transpose(0, 2, 1, 3)
        return split.reshape(shape)

    return Library(multiply, ("x1", "x2"), ("out",))


OPERATORS = (
    Operator(
        name="transpose_batch_mat_mul",
        summary="Batched matrix product with permuted dimensions.",
        formula="out = permute(permute(x1, permX1) @ permute(x2, permX2), permY), "
        "in batchSplitFactor parts of the batch side by side",
        parameters=(
            tensor_in("x1", "(B, M, K), or (M, B, K)"),
            tensor_in("x2", "(B, K, N), or (B, N, K)"),
            *(optional_in(name, "null") for name in _UNUSED),
            Parameter("permX1", "perm_x1", Kind.INT_ARRAY, "[0, 1, 2], or [1, 0, 2]"),
            Parameter("permX2", "perm_x2", Kind.INT_ARRAY, "[0, 1, 2], or [0, 2, 1]"),
            Parameter("permY", "perm_y", Kind.INT_ARRAY, "[1, 0, 2]"),
            attribute("cubeMathType", Kind.INT8, "0 to 3, or 4 for 0; float32 is always computed in float64 here"),
            Parameter(
                "batchSplitFactor",
                "batch_split_factor",
                Kind.INT32,
                "the number of consecutive parts of the batch",
                c_type="const int32_t ",
            ),
            tensor_out("out", "(M, B, N), or (parts, M, B / parts * N)"),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            dims_between(3, 3, "x1", "x2"),
            rule("allowed value: cubeMathType", _cube),
            public_format("x1", "x2", "out"),
            dtype_in(floating, "x1"),
            same_dtype("x2", "x1"),
            same_dtype("out", "x1"),
            *map(_order, _ORDERS),
            rule("factors that fit: x2", _fit),
            *elsewhere(
                CLASS_950,
                rule("small extents: x1, x2", _small),
                rule("narrow rows: batchSplitFactor", _narrow_rows),
                rule("untransposed: permX2", _untransposed),
            ),
            rule("a divisor of the batch: batchSplitFactor", _divides),
            not_empty("x1", "x2"),
            null(*_UNUSED),
            shape_is("the product", _result, "out"),
        ),
        work=_work,
    ),
)
