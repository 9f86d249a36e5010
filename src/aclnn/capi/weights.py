"""aclnnCalculateMatmulWeightSize and V2: the number of elements of a weight that aclnnTransMatmulWeight laid out."""

from __future__ import annotations

import math

from aclnn.capi.objects import IntArray, live
from aclnn.capi.prototype import c_function
from aclnn.core.checks import extents, listing
from aclnn.core.dtypes import DataType
from aclnn.core.products import A2_CLASS, Product, current_product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.operators.library.weights import LAID_OUT

_ROWS, _COLUMNS = 16, 32
"""Of the blocks that a device divides a matrix into; those of 16-bit numbers have as many columns as rows."""
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
    """Elements of a weight of 16 bits in blocks of 16 by 16."""
    return _elements(tensorShape, DataType.FLOAT16, 3 if current_product() in A2_CLASS else 2)


@c_function(
    "aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensorShape, aclDataType dataType, "
    "uint64_t *weightTensorSize)"
)
def aclnnCalculateMatmulWeightSizeV2(tensorShape: int, dataType: int) -> int:
    """Elements of a weight in blocks of 16 by 16 where they have 16 bits, else 16 by 32."""
    product = current_product()
    if product not in LAID_OUT:
        titles = listing(each.title for each in Product if each in LAID_OUT)
        raise AclnnError(ACLNN_ERR_RUNTIME_ERROR, f"product: expected {titles}, got {product.title}")
    return _elements(tensorShape, dataType, 6)
