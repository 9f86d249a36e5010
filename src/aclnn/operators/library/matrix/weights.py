"""Weights of few bits, aclnnWeightQuantBatchMatmulV2, V3 and Nz, and how weights are laid out for them.

aclnnConvertWeightToINT4Pack, aclnnTransMatmulWeight and aclnnNpuFormatCast leave elements in their order under every
format: programs read weights by their strides, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    KERNEL_OF_THE_PRODUCT,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    fits,
    floating,
    format_is,
    listing,
    no_zero_dims,
    not_empty,
    on,
    one_of,
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
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_RUNTIME_ERROR
from aclnn.operators.library.common import MODERN, on_950, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.four_bits import IN_INT32, packed, unpacked, unpacked_words
from aclnn.operators.library.quantization.microscaling import powers, restored

_OFFSET, _BIAS = "antiquantOffsetOptional", "biasOptional"
_QUANTIZATION = ("quantScaleOptional", "quantOffsetOptional")
_PACKED = "weightInt4Pack"
_MOST_INNER = 2**16 - 1
_LARGEST = 2**31 - 1
_GROUP_STEP = 32

_IN_WORDS = {D.INT32: D.INT4, D.FLOAT: D.FLOAT4_E2M1}
"""Data types of eight packed numbers in an element."""
_FEW = (D.FLOAT4_E2M1, D.FLOAT)
"""Weights of floating-point numbers of four bits."""
_NZ = "weight_quant_batch_matmul_nz"
_GROUPS_IN_BLOCKS, _COLUMNS_IN_BLOCKS = (64, 128), 64
"""Rows that have a scale, and what columns are a multiple of, where blocks hold four bits before Ascend 950."""

_BLOCK = 1 << 18
"""Number of a weight's elements converted to float32 at a time, chosen to stay in the cache."""

#: Products for which a weight is laid out.
LAID_OUT = MODERN | {Product.ATLAS_INFERENCE}
LAID_OUT_DTYPES = (D.FLOAT16, D.BF16, D.INT8)
_CAST_DTYPES = (D.INT8, D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.FLOAT8_E4M3FN)
_CAST_FORMATS = (
    *(Format.FORMAT_ND, Format.FORMAT_NCL, Format.FORMAT_NCHW, Format.FORMAT_NCDHW),
    *(Format.FORMAT_FRACTAL_NZ, Format.FORMAT_FRACTAL_NZ_C0_16, Format.FORMAT_FRACTAL_NZ_C0_32),
)


def cast_dtypes(product: Product) -> tuple[D, ...]:
    """Return the data types that aclnnNpuFormatCast takes."""
    return _CAST_DTYPES if product in CLASS_950 else (*_CAST_DTYPES, D.UINT8, D.UINT32)


def cast_format_violation(got: int) -> str | None:
    """Return an error text for a format that aclnnNpuFormatCast does not support, else None."""
    if got in _CAST_FORMATS:
        return None
    return f"expected format {listing(each.c_name for each in _CAST_FORMATS)}, got {int(got)}"


def _bias_dtype(call: Call, name: str) -> str | None:
    x, got = call["x"].dtype, call[name].dtype
    wide = D.FLOAT if x == D.BF16 else x
    allowed = dict.fromkeys((x, wide)) if call.product in CLASS_950 else (wide,)
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} with {x.c_name}, got {got.c_name}"


def _none(call: Call, name: str) -> str | None:
    return f"expected null (results are not quantized here), got shape {extents(call[name].shape)}"


def _weight_format(call: Call) -> str | None:
    got = call["weight"].format
    reordered = call.product in A2_CLASS and _fits_blocks(call)
    if not got.private or (reordered and got == Format.FORMAT_FRACTAL_NZ):
        return None
    further = " or ACL_FORMAT_FRACTAL_NZ" if reordered else ""
    return f"weight: expected format ACL_FORMAT_ND{further}, got {got.c_name}"


def _fits_blocks(call: Call) -> bool:
    """Tell whether blocks may hold such a weight before Ascend 950."""
    weight, group = call["weight"], call["antiquantGroupSize"]
    if group == 0:
        return call["antiquantScale"].size > 1 and (weight.dtype == D.INT8 or weight.is_transposed)
    turned = weight.is_transposed or call["x"].is_transposed
    if weight.dtype == D.INT8 or turned or group not in _GROUPS_IN_BLOCKS:
        return False
    rows, columns = _shape(call)
    return rows % group == 0 and columns % _COLUMNS_IN_BLOCKS == 0


def _shape(call: Call) -> tuple[int, int]:
    """Return the rows and columns of the weight, eight in a word along what lies in memory as one."""
    weight = call["weight"]
    rows, columns = weight.shape
    if weight.dtype not in _IN_WORDS:
        return rows, columns
    return (IN_INT32 * rows, columns) if weight.is_transposed else (rows, IN_INT32 * columns)


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
    """Return the number of rows of antiquantScale."""
    rows = _shape(call)[0]
    return -(-rows // (call["antiquantGroupSize"] or rows))


def _scale_shape(call: Call) -> str | None:
    n, got = _shape(call)[1], call["antiquantScale"].shape
    whole = [] if call.operator.name == _NZ else [(1,), (1, 1)]
    allowed = [(_groups(call), n)] if call["antiquantGroupSize"] else [*whole, (n,), (1, n)]
    if got in allowed:
        return None
    return f"antiquantScale: expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _bias_shape(call: Call, name: str) -> str | None:
    n, got = _shape(call)[1], call[name].shape
    return None if got in ((n,), (1, n)) else f"expected shape [{n}] or [1, {n}], got {extents(got)}"


def packed_evenly(call: Call, name: str) -> str | None:
    """Return an error text if the last byte of a row would hold a single INT4."""
    weight = call[name]
    got = weight.shape[0 if weight.is_transposed else 1]
    if weight.dtype != D.INT4 or got % 2 == 0:
        return None
    return f"expected an even number along the dimension that lies in memory as one, got {got}"


def laid(call: Call, name: str) -> str | None:
    """Return an error text if the tensor is neither contiguous nor a transposed matrix."""
    tensor = call[name]
    if tensor.size == 0 or tensor.is_contiguous or (len(tensor.shape) == 2 and tensor.is_transposed):
        return None
    return f"expected strides of a contiguous or a transposed matrix, got {extents(tensor.strides)}"


def _contiguous(call: Call, name: str) -> str | None:
    tensor = call[name]
    return None if tensor.is_contiguous else f"expected strides of a contiguous matrix, got {extents(tensor.strides)}"


def weighted_product(x: Any, weight: Any, scale: Any, offset: Any, groups: int, size: int) -> Any:
    """Multiply by a weight whose groups of ``size`` rows each have a row of ``scale`` and ``offset``."""
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


def _numbers(call: Call) -> Callable[[Any], Any]:
    """Return what reads the numbers of the weight."""
    dtype, shape, strides, _ = call["weight"].layout
    turned, whole = call["weight"].is_transposed, _shape(call)

    def read(weight: Any) -> Any:
        if dtype == D.INT4:
            return unpacked(weight, shape, strides)
        if dtype == D.INT32:
            return unpacked_words(weight.T).T if turned else unpacked_words(weight)
        if dtype in _FEW:
            stored = weight if dtype == D.FLOAT4_E2M1 else np.ascontiguousarray(weight, np.float32).view(np.uint8)
            return restored(stored, D.FLOAT4_E2M1, whole)
        return weight

    return read


def _weight_work(call: Call) -> Library:
    groups, size, read = _groups(call), call["antiquantGroupSize"] or _shape(call)[0], _numbers(call)
    optional = [name for name in (_OFFSET, _BIAS) if call[name] is not None]
    by_powers = call["antiquantScale"].dtype == D.FLOAT8_E8M0

    def multiply(x: Any, weight: Any, scale: Any, *further: Any) -> Any:
        given = dict(zip(optional, further, strict=True))
        scales = powers(scale).astype(x.dtype) if by_powers else scale
        y = weighted_product(x, read(weight), scales, given.get(_OFFSET), groups, size)
        return y + given[_BIAS] if _BIAS in given else y

    return Library(multiply, ("x", "weight", "antiquantScale", *optional), ("y",))


def _nz_bias_dtype(call: Call, name: str) -> str | None:
    x, weight, got = call["x"].dtype, call["weight"].dtype, call[name].dtype
    allowed: tuple[D, ...] = (x,)
    if x == D.BF16 and weight not in _FEW:
        allowed = (D.FLOAT,) if weight == D.INT8 else (D.BF16, D.FLOAT)
    if got in allowed:
        return None
    names = listing(dtype.c_name for dtype in allowed)
    return f"expected data type {names} with {x.c_name} and {weight.c_name}, got {got.c_name}"


def _nz_scale_dtype(call: Call, name: str) -> str | None:
    x, got, few = call["x"].dtype, call[name].dtype, call["weight"].dtype in _FEW
    if got == x or (few and got == D.FLOAT8_E8M0):
        return None
    return f"expected data type {x.c_name}{' or ACL_FLOAT8_E8M0' * few} with x, got {got.c_name}"


def _no_offset(call: Call, name: str) -> str | None:
    dtype = call["weight"].dtype
    return f"expected null with a weight of {dtype.c_name}, got a tensor" if dtype in _FEW else None


def _nz_group(call: Call) -> str | None:
    """Complain of groups that the data types do not have, with what ``_group_size`` says."""
    got, dtype = call["antiquantGroupSize"], call["weight"].dtype
    if dtype == D.INT8 and got:
        return f"antiquantGroupSize: expected 0 with a weight of ACL_INT8, got {got}"
    if dtype in _FEW and (not got or (call["antiquantScale"].dtype == D.FLOAT8_E8M0 and got != _GROUP_STEP)):
        return f"antiquantGroupSize: expected {_GROUP_STEP} with such scales of four bits, got {got}"
    return None


def _nz_turned(call: Call) -> str | None:
    weight = call["weight"]
    if weight.dtype == D.INT8 or not weight.is_transposed:
        return None
    return f"weight: expected no transposition of {weight.dtype.c_name}, got strides {extents(weight.strides)}"


def _laid_out_dims(call: Call) -> str | None:
    weight = call["mmWeightRef"]
    most = 6 if weight.dtype == D.INT8 else 3 if call.product in A2_CLASS else 2
    rank = len(weight.shape)
    return None if 2 <= rank <= most else f"mmWeightRef: expected 2 to {most} dimensions, got {rank}"


def _weight_product(name: str, *precise: Parameter) -> Operator:
    in_blocks = name == _NZ
    return Operator(
        name=name,
        summary="Matrix product with a quantized weight, scaled as a whole, per column or per group of rows.",
        formula="y = x @ ((weight + antiquantOffsetOptional) * antiquantScale) + biasOptional",
        parameters=(
            tensor_in("x", "the left operand"),
            tensor_in("weight", "the right operand; INT32 holds eight of INT4" + ", FLOAT of FLOAT4_E2M1" * in_blocks),
            tensor_in("antiquantScale", "the factors of the weight"),
            Parameter(_OFFSET, _OFFSET, Kind.INPUT, "what is added to the weight before", optional=True),
            *(Parameter(name, name, Kind.INPUT, "null", optional=True) for name in _QUANTIZATION),
            Parameter(_BIAS, _BIAS, Kind.INPUT, "the bias of the product", optional=True),
            Parameter(
                "antiquantGroupSize",
                "antiquant_group_size",
                Kind.INT32,
                "the number of weight rows per group",
                c_type="int ",
            ),
            *precise,
            tensor_out("y", "the result", const=True),
        ),
        support=support((D.FLOAT16, D.BF16), CLASS_950 if in_blocks else MODERN),
        checks=(
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            dtype_in({D.INT8, D.INT4, D.INT32, *(_FEW if in_blocks else ())}, "weight"),
            same_dtype("y", "x"),
            *(_of_blocks_types() if in_blocks else _types()),
            public_format("x", "antiquantScale", _OFFSET, _BIAS, "y"),
            dims_between(2, 2, "x", "weight", "y"),
            format_is(Format.FORMAT_FRACTAL_NZ, "weight")
            if in_blocks
            else rule("format of the weight: weight", _weight_format),
            fits("{} rows (the columns of x)", lambda call, got: (call["x"].shape[1], _shape(call)[0]), "weight"),
            rule("few enough: x, weight", _extents),
            shape_is("that of the product", lambda call: (call["x"].shape[0], _shape(call)[1]), "y"),
            rule("group size: antiquantGroupSize", _group_size),
            *((rule("groups of the data type: antiquantGroupSize", _nz_group),) if in_blocks else ()),
            *(one_of(parameter.name, 0, 1) for parameter in precise),
            rule("shape of scales: antiquantScale", _scale_shape),
            same_shape(_OFFSET, "antiquantScale"),
            each("a row", (_BIAS,), _bias_shape),
            *on(CLASS_950, each("contiguous", ("x",), _contiguous)),
            *((rule("transposed where it may be: weight", _nz_turned),) if in_blocks else ()),
            each("contiguous or transposed", ("x", "weight", "antiquantScale", _OFFSET)[in_blocks:], laid),
            each("even", ("weight",), packed_evenly),
            *(with_code(ACLNN_ERR_RUNTIME_ERROR, KERNEL_OF_THE_PRODUCT) if in_blocks else ()),
        ),
        work=_weight_work,
        # Arrays have no format.
        has_golden_values=not in_blocks,
    )


def _types() -> tuple[Check, ...]:
    return (
        *(same_dtype(name, "x") for name in ("antiquantScale", _OFFSET)),
        each("data type with x", (_BIAS,), _bias_dtype),
        *on(CLASS_950, each("null", _QUANTIZATION, _none)),
        *elsewhere(CLASS_950, *with_code(ACLNN_ERR_INNER_NULLPTR, each("not computed", _QUANTIZATION, _none))),
    )


def _of_blocks_types() -> tuple[Check, ...]:
    return (
        each("data type of scales", ("antiquantScale",), _nz_scale_dtype),
        each("of integers alone", (_OFFSET,), _no_offset),
        same_dtype(_OFFSET, "x"),
        each("data type with both", (_BIAS,), _nz_bias_dtype),
        each("null", _QUANTIZATION, _none),
    )


def _codes(numbers: Any) -> Any:
    """FLOAT4_E2M1 from FLOAT as the host cuts it off, 0 from 8 on."""
    sizes = np.abs(numbers)
    found = np.where(sizes < 8, np.searchsorted(_LEVELS, sizes, "right"), 0)
    return (found | np.signbit(numbers) * ((found > 0) | (sizes == 0)) * 8).astype(np.int8)


_LEVELS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _packed_types(call: Call) -> str | None:
    weight, got = call["weight"].dtype, call[_PACKED].dtype
    if got in (weight, _IN_WORDS[weight]):
        return None
    return f"{_PACKED}: expected {_IN_WORDS[weight].c_name} or {weight.c_name} with {weight.c_name}, got {got.c_name}"


def _packed_format(call: Call) -> str | None:
    got = call[_PACKED].format
    if got in (Format.FORMAT_ND, Format.FORMAT_FRACTAL_NZ):
        return None
    return f"{_PACKED}: expected format ACL_FORMAT_ND or ACL_FORMAT_FRACTAL_NZ, got {got.c_name}"


def _in_one(call: Call) -> int:
    """Return how many numbers an element of the result holds."""
    return IN_INT32 if call[_PACKED].dtype in _IN_WORDS else 1


def _whole_words(call: Call) -> str | None:
    got, step = call["weight"].shape[-1], max(2, _in_one(call))
    return f"weight: expected a multiple of {step} columns, got {got}" if got % step else None


def _packed_shape(call: Call) -> tuple[int, ...]:
    shape: tuple[int, ...] = call["weight"].shape
    return *shape[:-1], shape[-1] // _in_one(call)


def _pack_work(call: Call) -> Library:
    dtype, shape = call[_PACKED].dtype, call[_PACKED].shape

    def pack(weight: Any) -> Any:
        stored = packed(weight.astype(np.int8) if weight.dtype.kind == "i" else _codes(weight)).reshape(-1)
        return stored.view(dtype.numpy).reshape(shape) if dtype in _IN_WORDS else stored

    return Library(pack, ("weight",), (_PACKED,))


OPERATORS = (
    _weight_product("weight_quant_batch_matmul_v2"),
    _weight_product(
        "weight_quant_batch_matmul_v3",
        Parameter("innerPrecise", "inner_precise", Kind.INT32, "1: faster on devices; same result here", c_type="int "),
    ),
    _weight_product(_NZ),
    Operator(
        name="convert_weight_to_int4_pack",
        function="aclnnConvertWeightToINT4Pack",
        summary="Pack numbers of four bits that have an element each.",
        formula="weightInt4Pack = weight",
        parameters=(
            tensor_in("weight", "numbers from -8 to 7 of INT32, of FLOAT4_E2M1 of FLOAT"),
            tensor_out(_PACKED, "two in each byte, or eight in an element of the type of weight"),
        ),
        support={**support((D.INT32,), MODERN), **support((D.INT32, D.FLOAT), CLASS_950)},
        checks=(
            each("contiguous", ("weight", _PACKED), _contiguous),
            dtype_in(on_950((D.FLOAT,), (D.INT32,)), "weight"),
            rule(f"data type of four bits: {_PACKED}", _packed_types),
            format_is(Format.FORMAT_ND, "weight"),
            rule(f"format of a weight: {_PACKED}", _packed_format),
            dims_between(2, 3, "weight"),
            not_empty("weight"),
            rule("whole elements: weight", _whole_words),
            shape_is("that of the weight", _packed_shape, _PACKED),
        ),
        work=_pack_work,
    ),
    Operator(
        name="trans_matmul_weight",
        summary="Convert a weight to the device's preferred layout; here the memory is unchanged.",
        formula="mmWeightRef = mmWeightRef",
        parameters=(tensor_out("mmWeightRef", "the weight"),),
        support=support(LAID_OUT_DTYPES, LAID_OUT),
        checks=(
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
        summary="Copy a weight into a tensor of another storage format; here the elements keep their order.",
        formula="dstTensor = srcTensor",
        parameters=(tensor_in("srcTensor", "the weight"), tensor_out("dstTensor", "the weight in the new format")),
        support=support((*_CAST_DTYPES, D.UINT8, D.UINT32), MODERN),
        checks=(
            each("contiguous", ("srcTensor", "dstTensor"), _contiguous),
            dtype_in(lambda product: set(cast_dtypes(product)), "srcTensor"),
            same_dtype("dstTensor", "srcTensor"),
            dims_between(2, 6, "srcTensor"),
            same_shape("dstTensor", "srcTensor"),
            each("format", ("srcTensor", "dstTensor"), lambda call, name: cast_format_violation(call[name].format)),
        ),
        # As for aclnnTransMatmulWeight: no order but the old one suits programs that read under either label.
        work=lambda call: Library(lambda weight: weight, ("srcTensor",), ("dstTensor",)),
    ),
)
