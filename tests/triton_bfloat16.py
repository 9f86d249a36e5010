"""Importing this makes Triton's interpreter round to bfloat16 as hardware does; its own loses the carry."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from triton import language as tl
from triton.runtime import interpreter

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_convert = interpreter._convert_float


def convert(value: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Float32 from and to bfloat16."""
    if (source, target) == (tl.float32, tl.bfloat16):
        return value.astype(BFLOAT16).view(np.uint16)
    if (source, target) == (tl.bfloat16, tl.float32):
        return value.view(BFLOAT16).astype(np.float32).view(np.uint32)
    return _convert(value, source, target, rounding)


interpreter._convert_float = convert
