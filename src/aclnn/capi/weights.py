"""Sizes of weights in blocked formats: aclnnCalculateMatmulWeightSize, V2, aclnnNpuFormatCastCalculateSizeAndFormat."""

from __future__ import annotations

import math

from aclnn.capi.objects import IntArray, live
from aclnn.capi.prototype import c_function
from aclnn.core.checks import extents, listing
from aclnn.core.dtypes import DataType, Format
from aclnn.core.products import A2_CLASS, CLASS_950, Product, current_product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.operators.library.common import MODERN
from aclnn.operators.library.matrix.weights import LAID_OUT, cast_dtypes, cast_format_violation

_ROWS, _COLUMNS = 16, 32
"""Block size of a matrix; blocks of 16-bit elements have as many columns as rows."""
_BLOCK_BYTES = 32
"""Bytes of a block's row in the format FRACTAL_NZ."""
_FEW_BITS = {
    DataType.INT32: (DataType.FLOAT16, DataType.BF16, DataType.INT8),
    DataType.FLOAT: (DataType.FLOAT16, DataType.BF16, DataType.FLOAT8_E4M3FN),
}
"""Values of additionalDtype for packed low-bit weights: the activations' data type, which determines the block."""
_MOST = 2**63 - 1


def _elements(tensor_shape: int, data_type: int, most_dims: int) -> int:
    shape = live(tensor_shape, IntArray, "tensorShape")
    if not 2 <= len(shape) <= most_dims:
        text = f"tensorShape: expected 2 to {most_dims} dimensions, got {len(shape)}"
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, text)
    columns = _ROWS if data_type in (DataType.FLOAT16, DataType.BF16) else _COLUMNS
    blocks = (*(1 for _ in shape[2:]), _ROWS, columns)
    elements = math.prod(-(-extent // block) * block for extent, block in zip(shape, blocks, strict=True))
    if min(shape) < 1 or elements > _MOST:
        text = f"tensorShape: expected dimensions of at least 1 and at most {_MOST} elements, got {extents(shape)}"
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, text)
    return elements


@c_function("aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *tensorShape, uint64_t *weightTensorSize)")
def aclnnCalculateMatmulWeightSize(tensorShape: int) -> int:
    """Return the number of elements of a 16-bit weight in blocks of 16 × 16."""
    return _elements(tensorShape, DataType.FLOAT16, 3 if current_product() in A2_CLASS else 2)


@c_function(
    "aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensorShape, aclDataType dataType, "
    "uint64_t *weightTensorSize)"
)
def aclnnCalculateMatmulWeightSizeV2(tensorShape: int, dataType: int) -> int:
    """Return the number of elements of a weight in blocks of 16 × 16 for 16-bit elements, else of 16 × 32."""
    product = current_product()
    if product not in LAID_OUT:
        titles = listing(each.title for each in Product if each in LAID_OUT)
        raise AclnnError(ACLNN_ERR_RUNTIME_ERROR, f"product: expected {titles}, got {product.title}")
    return _elements(tensorShape, dataType, 6)


@c_function(
    "aclnnStatus aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor *srcTensor, int32_t dstFormat, "
    "int32_t additionalDtype, int64_t **dstShape, uint64_t *dstShapeSize, int32_t *actualFormat)",
    arrays={"dstShape": "dstShapeSize"},
)
def aclnnNpuFormatCastCalculateSizeAndFormat(
    srcTensor: int, dstFormat: int, additionalDtype: int
) -> tuple[list[int], int, int]:
    """Return the storage dimensions of aclnnNpuFormatCast's result, their number, and its format."""
    tensor = live(srcTensor, Tensor, "srcTensor")
    text, code = _cast_violation(tensor, additionalDtype), ACLNN_ERR_PARAM_INVALID
    if text is None:
        formats, code = {"srcTensor": tensor.format, "dstFormat": dstFormat}, ACLNN_ERR_RUNTIME_ERROR
        wrong = ((name, cast_format_violation(got)) for name, got in formats.items())
        text = next((f"{name}: {each}" for name, each in wrong if each), None)
    if text is not None:
        raise AclnnError(code, text)
    shape, actual = list(tensor.shape), dstFormat
    if dstFormat == Format.FORMAT_FRACTAL_NZ:
        *batch, rows, columns = shape
        inner = _BLOCK_BYTES // tensor.dtype.itemsize
        if _is_of_few_bits(tensor, additionalDtype):
            inner = _BLOCK_BYTES // DataType(additionalDtype).itemsize
            actual = Format.FORMAT_FRACTAL_NZ_C0_16 if inner == 16 else Format.FORMAT_FRACTAL_NZ_C0_32
        shape = [*batch, -(-columns // inner), -(-rows // _ROWS), _ROWS, inner]
    return shape, len(shape), int(actual)


def _is_of_few_bits(tensor: Tensor, additional: int) -> bool:
    return current_product() in CLASS_950 and additional != tensor.dtype


def _cast_violation(tensor: Tensor, additional: int) -> str | None:
    product, dtype, shape = current_product(), tensor.dtype, tensor.shape
    if product not in MODERN:
        titles = listing(each.title for each in Product if each in MODERN)
        return f"product: expected {titles}, got {product.title}"
    allowed = cast_dtypes(product)
    if dtype not in allowed:
        names = listing(member.c_name for member in DataType if member in allowed)
        return f"srcTensor: expected data type {names}, got {dtype.c_name}"
    expected = sorted({int(dtype), *_FEW_BITS.get(dtype, ())})
    # On earlier products torch_npu passes an arbitrary type, which is ignored.
    if product in CLASS_950 and additional not in expected:
        return f"additionalDtype: expected {listing(map(str, expected))} for {dtype.c_name}, got {additional}"
    most = 3 if _is_of_few_bits(tensor, additional) else 6
    if not 2 <= len(shape) <= most:
        return f"srcTensor: expected 2 to {most} dimensions, got {len(shape)}"
    if product in CLASS_950 and 0 in shape:
        return f"srcTensor: expected dimensions of at least 1, got {extents(shape)}"
    return None
