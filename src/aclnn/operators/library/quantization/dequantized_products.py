"""Products of rows quantised on the way with matrices of INT8: aclnnQuantMatmulDequant, and one for groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    each,
    extents,
    null,
    one_of,
    rule,
    same_dtype,
    shape_is,
    shown,
    unless_empty,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, Shape, present
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import attribute, declared, optional_in, parts_between, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantization import given
from aclnn.operators.library.quantization.quantized_products import integer_product

_UNIT, _BLOCK_ROWS, _BLOCK_COLUMNS = 16, 16, 32
_BY_TOKEN, _BY_TENSOR = "pertoken", "pertensor"
_X_SCALE, _SMOOTH, _GROUPS = "xScaleOptional", "smoothScaleOptional", "groupList"
_DTYPES = {"x": D.FLOAT16, "weight": D.INT8, _GROUPS: D.INT64, _SMOOTH: D.FLOAT16}
_SCALE_OF_X = {D.FLOAT: D.FLOAT, D.INT64: D.FLOAT16}
"""Data types of the scale of x, by that of weightScale."""
_LARGEST = 127


def _dtypes(call: Call) -> str | None:
    scale = call["weightScale"].dtype
    if scale not in _SCALE_OF_X:
        return f"weightScale: expected data type ACL_FLOAT or ACL_INT64, got {scale.c_name}"
    for name, expected in (_DTYPES | {_X_SCALE: _SCALE_OF_X[scale]}).items():
        tensor = call.arguments.get(name)
        if tensor is not None and tensor.dtype != expected:
            beside = f" with weightScale of {scale.c_name}" if name == _X_SCALE else ""
            return f"{name}: expected data type {expected.c_name}{beside}, got {tensor.dtype.c_name}"
    return None


def _contiguous(call: Call, name: str) -> str | None:
    return None if call[name].is_contiguous else f"expected a contiguous tensor, got strides {call[name].strides}"


def _matrix(call: Call) -> Shape:
    """Return groups, rows and columns of the weight; without groups for one matrix."""
    shape: Shape = call["weight"].shape
    if call["weight"].format != Format.FORMAT_FRACTAL_NZ:
        return shape
    *groups, columns, rows, _, _ = shape
    return (*groups, rows * _BLOCK_ROWS, columns * _BLOCK_COLUMNS)


def _weight(dims: int) -> Check:
    plain = (Format.FORMAT_ND, Format.FORMAT_NCL) if dims == 3 else (Format.FORMAT_ND,)
    blocks = f"[{'groups, ' * (dims == 3)}k / {_BLOCK_COLUMNS}, n / {_BLOCK_ROWS}, {_BLOCK_ROWS}, {_BLOCK_COLUMNS}]"

    def violation(call: Call) -> str | None:
        shape, label = call["weight"].shape, call["weight"].format
        if len(shape) == dims and label in plain:
            if shape[-1] % _UNIT == 0 and shape[-2] % _UNIT == 0:
                return None
            return f"weight: expected multiples of {_UNIT} rows and columns, got {extents(shape)}"
        fits = len(shape) == dims + 2 and shape[-2:] == (_BLOCK_ROWS, _BLOCK_COLUMNS)
        if fits and label == Format.FORMAT_FRACTAL_NZ:
            return None
        return (
            f"weight: expected {dims} dimensions of ACL_FORMAT_ND or {blocks} of ACL_FORMAT_FRACTAL_NZ, "
            f"got {extents(shape)} of {label.c_name}"
        )

    return rule("rows and columns of the weight: weight", violation)


def _columns(call: Call) -> str | None:
    expected, got = call["x"].shape[1], _matrix(call)[-1]
    whole = (
        expected
        if call["weight"].format != Format.FORMAT_FRACTAL_NZ
        else -(-expected // _BLOCK_COLUMNS) * _BLOCK_COLUMNS
    )
    return None if got == whole else f"weight: expected {whole} columns (for those of x), got {got}"


def _wanted(call: Call, name: str) -> bool:
    return call[name] is not None and call[name].size > 0


def _mode(call: Call) -> str | None:
    mode = call["xQuantMode"]
    if mode not in (_BY_TOKEN, _BY_TENSOR):
        return f"xQuantMode: expected '{_BY_TOKEN}' or '{_BY_TENSOR}', got {shown(mode)}"
    if mode == _BY_TOKEN and call["weightScale"].dtype == D.INT64:
        return f"xQuantMode: expected '{_BY_TENSOR}' with weightScale of ACL_INT64, got '{mode}'"
    if mode == _BY_TENSOR and not _wanted(call, _X_SCALE):
        return f"xQuantMode: expected '{_BY_TOKEN}' without {_X_SCALE}, got '{mode}'"
    return None


def _optional_shape(call: Call, name: str) -> str | None:
    rows, columns = call["x"].shape
    expected = columns if name == _SMOOTH else rows if call["xQuantMode"] == _BY_TOKEN else 1
    got = call[name].shape
    return None if got in ((expected,), (0,)) else f"expected shape [{expected}], got {extents(got)}"


def _quantised(x: Any, scale: Any) -> Any:
    """Divide rows by scales and round; rows of a scale of 0 become 0."""
    quotients = np.divide(x, scale, out=np.zeros(x.shape, np.float64), where=scale != 0)
    return np.clip(np.rint(quotients), -_LARGEST - 1, _LARGEST)


def _work(call: Call) -> Library | None:
    used = ["x", "weight", "weightScale"]
    if call["out"].size == 0 or any(call[name].size == 0 for name in (*used, *given(call, _GROUPS))):
        return None
    further = [name for name in (_X_SCALE, _SMOOTH) if _wanted(call, name)]
    in_blocks = call["weight"].format == Format.FORMAT_FRACTAL_NZ
    by_bits = call["weightScale"].dtype == D.INT64
    grouped = given(call, _GROUPS)

    def rows_of(weight: Any) -> Any:
        """Return the matrices, one row for each column of the result."""
        if not in_blocks:
            return weight
        *groups, k, n, rows, columns = weight.shape
        return np.moveaxis(weight, -4, -2).reshape(*groups, n * rows, k * columns)

    def multiply(x: Any, weight: Any, scale: Any, *rest: Any) -> Any:
        operands = dict(zip((*further, *grouped), rest, strict=True))
        rows = x.astype(np.float64) * operands.get(_SMOOTH, 1.0)
        by_row = np.reshape(operands.get(_X_SCALE, np.abs(rows).max(1) / _LARGEST), (-1, 1))
        integers = _quantised(rows, by_row)
        factors = scale.astype(np.uint32).view(np.float32) if by_bits else scale
        matrices = rows_of(weight).swapaxes(-1, -2)[..., : x.shape[1], :]
        shape = (len(x), matrices.shape[-1])
        if grouped:
            total = np.zeros(shape)
            for at, part in enumerate(parts_between(operands[_GROUPS], len(x), _GROUPS)):
                total[part] = integer_product(integers[part], matrices[at], total[part].shape) * factors[at]
        else:
            total = integer_product(integers, matrices, shape) * factors
        return total if by_bits else total * by_row

    return Library(multiply, (*used, *further, *grouped), ("out",))


def _operator(name: str, summary: str, formula: str, *groups: Parameter) -> Operator:
    required = ("x", "weight", "weightScale", *(group.name for group in groups), "out")
    few = len(groups)

    def a_scale_each(call: Call) -> Shape:
        return _matrix(call)[:-1]

    return declared(
        name,
        formula,
        summary,
        (
            tensor_in("x", "(rows, k)"),
            tensor_in("weight", "(n, k), in groups or blocks; INT8"),
            tensor_in("weightScale", "factors of the columns of out; INT64: bits of factors that include x's"),
            *groups,
            optional_in("biasOptional", "null"),
            optional_in(_X_SCALE, "divisors of x's rows, or one of all; null: the largest magnitude of each / 127"),
            optional_in("xOffsetOptional", "null"),
            optional_in(_SMOOTH, "factors of x's columns"),
            Parameter("xQuantMode", "x_quant_mode", Kind.STRING, "'pertoken' or 'pertensor'", c_type="char *"),
            attribute("transposeWeight", Kind.BOOL, "true"),
            tensor_out("out", "(rows, n)", const=True),
        ),
        (
            one_of("transposeWeight", True),
            present(*required),
            *with_code(ACLNN_ERR_PARAM_NULLPTR, null("biasOptional", "xOffsetOptional")),
            same_dtype("out", "x"),
            *with_code(ACLNN_ERR_PARAM_INVALID, KERNEL_OF_THE_PRODUCT),
            rule(f"data types that go together: {', '.join(required[:-1])}", _dtypes),
            *unless_empty(
                required[:-1],
                each("contiguous", ("weight", "out"), _contiguous),
                _weight(2 + few),
                *with_code(
                    ACLNN_ERR_INNER_TILING_ERROR,
                    dims_between(2, 2, "x"),
                    rule("as many columns as x: weight", _columns),
                    shape_is("a factor for each row of the weight", a_scale_each, "weightScale"),
                    *(dims_between(1, 1, group.name) for group in groups),
                    *(
                        shape_is("an end for each group", lambda call: _matrix(call)[:1], group.name)
                        for group in groups
                    ),
                    rule("scales for the mode: xQuantMode", _mode),
                    each("shape for x", (_X_SCALE, _SMOOTH), _optional_shape),
                    shape_is(
                        "rows of x, columns of the product", lambda call: (call["x"].shape[0], _matrix(call)[-2]), "out"
                    ),
                ),
                which="one",
            ),
        ),
        _work,
        dtypes=(D.FLOAT16,),
        products={Product.ATLAS_INFERENCE},
    )


_ROUNDED = "q = round(x * smoothScaleOptional / xScaleOptional); "
OPERATORS = (
    _operator(
        "quant_matmul_dequant",
        "Quantize rows, multiply them with a matrix of INT8 and restore the products.",
        _ROUNDED + "out = q @ weight^T * weightScale * xScaleOptional",
    ),
    _operator(
        "quant_grouped_matmul_dequant",
        "Quantize rows, multiply groups of them with matrices of INT8 and restore the products.",
        _ROUNDED + "out[i] = q[i] @ weight[g]^T * weightScale[g] * xScaleOptional[i], row i in group g",
        tensor_in(_GROUPS, "the end of each group of rows; INT64"),
    ),
)
"""Products on Atlas inference products."""
