"""Scales as a device multiplies products with them: aclnnTransQuantParam, which computes on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.capi.prototype import c_function
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR, AclnnError
from aclnn.operators.library.quantization.quantization import offset_bits, scale_bits

_TOGETHER = 16


@c_function(
    "aclnnStatus aclnnTransQuantParam(const float *scaleArray, uint64_t scaleSize, const float *offsetArray, "
    "uint64_t offsetSize, uint64_t **quantParam, uint64_t *quantParamSize)",
    arrays={"scaleArray": "scaleSize", "offsetArray": "offsetSize", "quantParam": "quantParamSize"},
)
def aclnnTransQuantParam(
    scaleArray: Sequence[float] | None, scaleSize: int, offsetArray: Sequence[float] | None, offsetSize: int
) -> tuple[list[int], int]:
    """Scales of FLOAT and offsets in 64 bits each, with zeros up to a multiple of 16 where there are several."""
    if scaleArray is None:
        raise AclnnError(ACLNN_ERR_PARAM_NULLPTR, "scaleArray: expected an address, got null")
    if scaleSize < 1:
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"scaleSize: expected at least 1, got {scaleSize}")
    if (offsetArray is None) != (offsetSize == 0):
        expected = "0 without offsets" if offsetArray is None else "at least 1"
        raise AclnnError(ACLNN_ERR_PARAM_INVALID, f"offsetSize: expected {expected}, got {offsetSize}")
    count = max(scaleSize, offsetSize)
    stored: Any = np.zeros(count if count == 1 else -(-count // _TOGETHER) * _TOGETHER, np.uint64)
    stored[:scaleSize] = scale_bits(scaleArray)
    if offsetArray is not None:
        stored[:offsetSize] |= offset_bits(np.array(offsetArray, np.float32))
    return stored.tolist(), len(stored)
