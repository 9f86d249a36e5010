"""aclnnFusedMatmul: matrix products followed by another operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, each, extents, on, one_of, public_format, restricted, rule, same_dtype, shape_is
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    USE_HF32,
    attribute,
    constant_text,
    cube_math,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.elementwise.gelu_gate import gelu
from aclnn.operators.library.quantization.quantization import given

Shape = tuple[int, ...]
_USE_FP32_ADD = 4
_WIDENED = "16cast32"
_FOLLOWING: Mapping[str, Callable[..., Any]] = {
    "": lambda y: y,
    _WIDENED: lambda y: y,
    "add": np.add,
    "mul": np.multiply,
    "gelu_erf": lambda y: gelu(y, False),
    "gelu_tanh": lambda y: gelu(y, True),
    "relu": lambda y: np.maximum(y, 0.0),
}
"""Operations after a product, by fusedOpType."""
_OF_TWO, _GELU = ("add", "mul"), ("gelu_erf", "gelu_tanh")
_MOST_BATCHED, _MOST_LISTED = 3, 6


def _joined(call: Call) -> bool:
    return call["fusedOpType"] in _OF_TWO


def _without_bias(call: Call) -> str | None:
    if call["fusedOpType"] not in _GELU or call["bias"] is None:
        return None
    return f"bias: expected null with fusedOpType {call['fusedOpType']!r}, got a tensor"


def _allowed(call: Call) -> tuple[D, ...]:
    return (D.FLOAT16, D.BF16) if call["fusedOpType"] in (_WIDENED, *_GELU) else FLOATING


def _own_type(call: Call, name: str) -> str | None:
    allowed, got = _allowed(call), call[name].dtype
    if got in allowed:
        return None
    names = ", ".join(each.c_name for each in allowed)
    return f"expected data type {names} with fusedOpType {call['fusedOpType']!r}, got {got.c_name}"


def _result_type(call: Call) -> str | None:
    expected = D.FLOAT if call["fusedOpType"] == _WIDENED else call["x1"].dtype
    got = call["y"].dtype
    return None if got == expected else f"y: expected data type {expected.c_name}, got {got.c_name}"


def _bias_type(call: Call, name: str) -> str | None:
    own, got = call["x1"].dtype, call[name].dtype
    return None if got in (own, D.FLOAT) else f"expected data type {own.c_name} or ACL_FLOAT, got {got.c_name}"


def _less_precise(call: Call) -> str | None:
    got = call["cubeMathType"]
    if call["x1"].dtype != D.FLOAT or got == USE_HF32:
        return None
    return f"cubeMathType: expected {USE_HF32} of ACL_FLOAT, got {got}"


def _dims(call: Call) -> str | None:
    kind, got = call["fusedOpType"], len(call["x1"].shape)
    most = _MOST_LISTED if kind in ("", "relu") else 2 if kind in _GELU else _MOST_BATCHED
    return None if 2 <= got <= most else f"x1: expected 2 to {most} dimensions with fusedOpType {kind!r}, got {got}"


def _right(call: Call) -> str | None:
    left, got = call["x1"].shape, call["x2"].shape
    if len(got) == len(left) and got[:-1] == (*left[:-2], left[-1]):
        return None
    return f"x2: expected shape {extents((*left[:-2], left[-1]))} and columns, got {extents(got)}"


def _product_shape(call: Call) -> Shape:
    shape: Shape = call["x1"].shape
    return *shape[:-1], call["x2"].shape[-1]


def _joined_shape(call: Call) -> str | None:
    whole, got = call["y"].shape, call["x3"].shape
    allowed = [whole] if len(whole) == 2 else [whole, (1, *whole[1:]), whole[1:]]
    return None if got in allowed else f"x3: expected shape {' or '.join(map(extents, allowed))}, got {extents(got)}"


def _bias_shape(call: Call, name: str) -> str | None:
    columns, got = call["x2"].shape[-1], call[name].shape
    if got in ((columns,), (1, columns)):
        return None
    return f"expected shape [{columns}] or [1, {columns}], got {extents(got)}"


def _some_inner(call: Call) -> str | None:
    if call["bias"] is None or call["x1"].shape[-1]:
        return None
    return f"x1: expected columns with bias, got shape {extents(call['x1'].shape)}"


def _work(call: Call) -> Library | None:
    if call["y"].size == 0:
        return None
    kind = call["fusedOpType"]
    optional = given(call, "bias", *(("x3",) if _joined(call) else ()))

    def multiply(x1: Any, x2: Any, *further: Any) -> Any:
        operands = {name: each.astype(np.float64) for name, each in zip(optional, further, strict=True)}
        y = x1.astype(np.float64) @ x2.astype(np.float64)
        if "bias" in operands:
            y += operands["bias"]
        return _FOLLOWING[kind](y, *([operands["x3"]] if _joined(call) else []))

    return Library(multiply, ("x1", "x2", *optional), ("y",))


OPERATORS = (
    Operator(
        name="fused_matmul",
        summary="Matrix product with a bias and a fused addition, multiplication or activation.",
        formula="y = x1 @ x2 + bias; y + x3, y * x3, gelu(y) or relu(y) by fusedOpType",
        parameters=(
            tensor_in("x1", "(M, K), or a batch of such"),
            tensor_in("x2", "(K, N), or a batch of such"),
            optional_in("bias", "the bias (N); not supported with gelu"),
            optional_in("x3", "the second operand of add or mul, shaped as y"),
            constant_text(
                "fusedOpType", 'the fused operation: "", "16cast32", "add", "mul", "gelu_erf", "gelu_tanh" or "relu"'
            ),
            attribute("cubeMathType", Kind.INT8, "0 to 4, or 3 for FLOAT; always computed in float64 here"),
            tensor_out("y", "the result; FLOAT with 16cast32", const=True),
        ),
        support=support(FLOATING, CLASS_950),
        checks=(
            present("fusedOpType"),
            one_of("fusedOpType", *_FOLLOWING),
            present("x1", "x2"),
            rule("no bias of gelu: bias", _without_bias, ACLNN_ERR_PARAM_NULLPTR),
            *restricted("with a second operand", _joined, present("x3")),
            present("y"),
            each("data type of the product", ("x1",), _own_type),
            same_dtype("x2", "x1"),
            rule("data type of the result: y", _result_type),
            each("data type with x1", ("bias",), _bias_type),
            same_dtype("x3", "x1"),
            *on(
                CLASS_950,
                rule("less precise: cubeMathType", _less_precise),
                cube_math("x1", "x2", further=(_USE_FP32_ADD,)),
            ),
            public_format("x1", "x2", "bias", "x3", "y"),
            rule("dimensions of a product: x1", _dims),
            rule("that fits x1: x2", _right),
            shape_is("the product", _product_shape, "y"),
            *restricted("with a second operand", _joined, rule("as y: x3", _joined_shape)),
            each("of columns", ("bias",), _bias_shape),
            rule("an inner dimension: x1", _some_inner),
        ),
        work=_work,
    ),
)
