"""Weights of few bits, aclnnWeightQuantBatchMatmulV2, and laid out, aclnnTransMatmulWeight, aclnnNpuFormatCast."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    floating,
    format_is,
    listing,
    no_zero_dims,
    on,
    one_of,
    present,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    where_supported,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR
from aclnn.operators.library.common import MODERN, camel, support, tensor_in, tensor_out
from aclnn.operators.library.four_bits import IN_INT32, unpacked, unpacked_words

_OFFSET, _BIAS = "antiquantOffsetOptional", "biasOptional"
_QUANTIZATION = ("quantScaleOptional", "quantOffsetOptional")
_MOST_INNER = 2**16 - 1
_LARGEST = 2**31 - 1
_GROUP_STEP = 32

_BLOCK = 1 << 18
"""Elements of a weight that stay in the cache as float32."""

#: Products for which a weight is laid out.
LAID_OUT = MODERN | {Product.ATLAS_INFERENCE}
LAID_OUT_DTYPES = (D.FLOAT16, D.BF16, D.INT8)
_CAST_DTYPES = (D.INT8, D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.FLOAT8_E4M3FN)
_CAST_FORMATS = (
    *(Format.FORMAT_ND, Format.FORMAT_NCL, Format.FORMAT_NCHW, Format.FORMAT_NCDHW),
    *(Format.FORMAT_FRACTAL_NZ, Format.FORMAT_FRACTAL_NZ_C0_16, Format.FORMAT_FRACTAL_NZ_C0_32),
)


def cast_dtypes(product: Product) -> tuple[D, ...]:
    """Return what aclnnNpuFormatCast takes."""
    return _CAST_DTYPES if product in CLASS_950 else (*_CAST_DTYPES, D.UINT8, D.UINT32)


def cast_format_complaint(got: int) -> str | None:
    """Return a text about a format that aclnnNpuFormatCast does not know, None otherwise."""
    if got in _CAST_FORMATS:
        return None
    return f"expected format {listing(each.c_name for each in _CAST_FORMATS)}, got {int(got)}"


def _bias_dtype(call: Call, name: str) -> str | None:
    x, got = call["x"].dtype, call[name].dtype
    wide = D.FLOAT if x == D.BF16 else x
    allowed = dict.fromkeys((x, wide)) if call.product in CLASS_950 else (wide,)
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} beside {x.c_name}, got {got.c_name}"


def _none(call: Call, name: str) -> str | None:
    return f"expected null (results are not quantised here), got shape {extents(call[name].shape)}"


def _weight_format(call: Call) -> str | None:
    got = call["weight"].format
    per_channel = call["antiquantGroupSize"] == 0 and call["antiquantScale"].size > 1
    reordered = call["weight"].dtype == D.INT8 and per_channel and call.product in A2_CLASS
    if not got.private or (reordered and got == Format.FORMAT_FRACTAL_NZ):
        return None
    further = " or ACL_FORMAT_FRACTAL_NZ" if reordered else ""
    return f"weight: expected format ACL_FORMAT_ND{further}, got {got.c_name}"


def _shape(call: Call) -> tuple[int, int]:
    """Return the rows and columns of the weight, eight in a number of INT32 along what lies in memory as one."""
    weight = call["weight"]
    rows, columns = weight.shape
    if weight.dtype != D.INT32:
        return rows, columns
    return (IN_INT32 * rows, columns) if weight.is_transposed else (rows, IN_INT32 * columns)


def _inner(call: Call) -> str | None:
    expected, got = call["x"].shape[1], _shape(call)[0]
    return None if got == expected else f"weight: expected {expected} rows (the columns of x), got {got}"


def _extents(call: Call) -> str | None:
    (m, k), n = call["x"].shape, _shape(call)[1]
    most = _LARGEST if call.product in CLASS_950 else _MOST_INNER
    limits = (
        ("x", "rows", m, most if call["x"].is_transposed else _LARGEST),
        ("x", "columns", k, most),
        ("weight", "columns", n, most),
    )
    found = next((limit for limit in limits if not 1 <= limit[2] <= limit[3]), None)
    if found is None:
        return None
    name, what, got, limit = found
    return f"{name}: expected 1 to {limit} {what}, got {got}"


def _group_size(call: Call) -> str | None:
    size, most = call["antiquantGroupSize"], call["x"].shape[1] - 1
    if size == 0 or (size % _GROUP_STEP == 0 and _GROUP_STEP <= size <= most):
        return None
    return f"antiquantGroupSize: expected 0 or a multiple of 32 from 32 to {most}, got {size}"


def _groups(call: Call) -> int:
    """The number of rows of antiquantScale."""
    rows = _shape(call)[0]
    return -(-rows // (call["antiquantGroupSize"] or rows))


def _scale_shape(call: Call) -> str | None:
    n, got = _shape(call)[1], call["antiquantScale"].shape
    allowed = [(_groups(call), n)] if call["antiquantGroupSize"] else [(1,), (1, 1), (n,), (1, n)]
    if got in allowed:
        return None
    return f"antiquantScale: expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _bias_shape(call: Call, name: str) -> str | None:
    n, got = _shape(call)[1], call[name].shape
    return None if got in ((n,), (1, n)) else f"expected shape [{n}] or [1, {n}], got {extents(got)}"


def packed_evenly(call: Call, name: str) -> str | None:
    """Complain of INT4 of which one is alone in its byte."""
    weight = call[name]
    got = weight.shape[0 if weight.is_transposed else 1]
    if weight.dtype != D.INT4 or got % 2 == 0:
        return None
    return f"expected an even number along the dimension that lies in memory as one, got {got}"


def laid(call: Call, name: str) -> str | None:
    """Complain of a tensor that is neither contiguous nor a transposed matrix."""
    tensor = call[name]
    if tensor.size == 0 or tensor.is_contiguous or (len(tensor.shape) == 2 and tensor.is_transposed):
        return None
    return f"expected strides of a contiguous or a transposed matrix, got {extents(tensor.strides)}"


def _contiguous(call: Call, name: str) -> str | None:
    tensor = call[name]
    return None if tensor.is_contiguous else f"expected strides of a contiguous matrix, got {extents(tensor.strides)}"


def weighted_product(x: Any, weight: Any, scale: Any, offset: Any, groups: int, size: int) -> Any:
    """Multiply by a weight, of whose rows ``size`` at a time have a row of ``scale`` and ``offset``."""
    k, n = weight.shape
    step = max(1, min(n, _BLOCK // k))
    y = np.empty((len(x), n), x.dtype)
    rows, padded = weight.T, np.zeros((step, groups * size), x.dtype)
    scales = np.broadcast_to(scale, (groups, n)).T[:, :, None]
    offsets = None if offset is None else np.broadcast_to(offset, (groups, n)).T[:, :, None]
    for begin in range(0, n, step):
        block = slice(begin, min(begin + step, n))
        part = padded[: block.stop - begin]
        part[:, :k] = rows[block]
        grouped = part.reshape(len(part), groups, size)
        if offsets is not None:
            grouped += offsets[block]
        grouped *= scales[block]
        y[:, block] = x @ part[:, :k].T
    return y


def _weight_work(call: Call) -> Library:
    dtype, shape, strides, _ = call["weight"].layout
    groups, size, turned = _groups(call), call["antiquantGroupSize"] or _shape(call)[0], call["weight"].is_transposed
    optional = [name for name in (_OFFSET, _BIAS) if call[name] is not None]

    def multiply(x: Any, weight: Any, scale: Any, *further: Any) -> Any:
        given = dict(zip(optional, further, strict=True))
        numbers = weight
        if dtype == D.INT4:
            numbers = unpacked(weight, shape, strides)
        elif dtype == D.INT32:
            numbers = unpacked_words(weight.T).T if turned else unpacked_words(weight)
        y = weighted_product(x, numbers, scale, given.get(_OFFSET), groups, size)
        return y + given[_BIAS] if _BIAS in given else y

    return Library(multiply, ("x", "weight", "antiquantScale", *optional), ("y",))


def _laid_out_dims(call: Call) -> str | None:
    weight = call["mmWeightRef"]
    most = 6 if weight.dtype == D.INT8 else 3 if call.product in A2_CLASS else 2
    rank = len(weight.shape)
    return None if 2 <= rank <= most else f"mmWeightRef: expected 2 to {most} dimensions, got {rank}"


def _weight_product(name: str, *precise: Parameter) -> Operator:
    return Operator(
        name=name,
        function=camel(name),
        summary="Multiply by a weight of few bits, which is scaled as a whole, by columns or by groups of rows.",
        formula="y = x @ ((weight + antiquantOffsetOptional) * antiquantScale) + biasOptional",
        parameters=(
            tensor_in("x", "the left operand"),
            tensor_in("weight", "the right operand; INT32 holds eight of INT4"),
            tensor_in("antiquantScale", "the factors of the weight"),
            Parameter(_OFFSET, _OFFSET, Kind.INPUT, "what is added to the weight before", optional=True),
            *(Parameter(name, name, Kind.INPUT, "null", optional=True) for name in _QUANTIZATION),
            Parameter(_BIAS, _BIAS, Kind.INPUT, "what is added to each row of the product", optional=True),
            Parameter(
                "antiquantGroupSize", "antiquant_group_size", Kind.INT32, "rows of the weight in a group", c_type="int "
            ),
            *precise,
            tensor_out("y", "the result", const=True),
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            present("x", "weight", "antiquantScale", "y"),
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            dtype_in({D.INT8, D.INT4, D.INT32}, "weight"),
            *(same_dtype(name, "x") for name in ("antiquantScale", _OFFSET, "y")),
            each("data type beside x", (_BIAS,), _bias_dtype),
            *on(CLASS_950, each("null", _QUANTIZATION, _none)),
            *elsewhere(CLASS_950, *with_code(ACLNN_ERR_INNER_NULLPTR, each("not computed", _QUANTIZATION, _none))),
            public_format("x", "antiquantScale", _OFFSET, _BIAS, "y"),
            rule("format of the weight: weight", _weight_format),
            dims_between(2, 2, "x", "weight", "y"),
            rule("as many rows as x has columns: weight", _inner),
            rule("few enough: x, weight", _extents),
            shape_is("that of the product", lambda call: (call["x"].shape[0], _shape(call)[1]), "y"),
            rule("group size: antiquantGroupSize", _group_size),
            *(one_of(parameter.name, 0, 1) for parameter in precise),
            rule("shape of scales: antiquantScale", _scale_shape),
            same_shape(_OFFSET, "antiquantScale"),
            each("a row", (_BIAS,), _bias_shape),
            *on(CLASS_950, each("contiguous", ("x",), _contiguous)),
            each("contiguous or transposed", ("x", "weight", "antiquantScale", _OFFSET), laid),
            each("even", ("weight",), packed_evenly),
        ),
        work=_weight_work,
    )


OPERATORS = (
    _weight_product("weight_quant_batch_matmul_v2"),
    _weight_product(
        "weight_quant_batch_matmul_v3",
        Parameter("innerPrecise", "inner_precise", Kind.INT32, "1: for speed; computed alike", c_type="int "),
    ),
    Operator(
        name="trans_matmul_weight",
        function=camel("trans_matmul_weight"),
        summary="Lay a weight out as a device prefers it, which is as it lies: the memory stays what it is.",
        formula="mmWeightRef = mmWeightRef",
        parameters=(tensor_out("mmWeightRef", "the weight"),),
        support=support(LAID_OUT_DTYPES, LAID_OUT),
        checks=(
            present("mmWeightRef"),
            dtype_in(where_supported(LAID_OUT_DTYPES), "mmWeightRef"),
            format_is(Format.FORMAT_ND, "mmWeightRef"),
            rule("dimensions of a weight: mmWeightRef", _laid_out_dims),
            no_zero_dims("mmWeightRef"),
        ),
        # Programs read it under either label, with the strides that it had: no order but the old one suits both.
        work=lambda call: Library(lambda weight: (), ("mmWeightRef",), ()),
    ),
    Operator(
        name="npu_format_cast",
        function=camel("npu_format_cast"),
        summary="Copy a weight to memory with another format's label; the elements keep their order.",
        formula="dstTensor = srcTensor",
        parameters=(
            tensor_in("srcTensor", "the weight"),
            tensor_out("dstTensor", "the weight with its new format"),
        ),
        support=support((*_CAST_DTYPES, D.UINT8, D.UINT32), MODERN),
        checks=(
            present("srcTensor", "dstTensor"),
            each("contiguous", ("srcTensor", "dstTensor"), _contiguous),
            dtype_in(lambda product: set(cast_dtypes(product)), "srcTensor"),
            same_dtype("dstTensor", "srcTensor"),
            dims_between(2, 6, "srcTensor"),
            same_shape("dstTensor", "srcTensor"),
            each("format", ("srcTensor", "dstTensor"), lambda call, name: cast_format_complaint(call[name].format)),
        ),
        # As for aclnnTransMatmulWeight: no order but the old one suits programs that read under either label.
        work=lambda call: Library(lambda weight: weight, ("srcTensor",), ("dstTensor",)),
    ),
)
