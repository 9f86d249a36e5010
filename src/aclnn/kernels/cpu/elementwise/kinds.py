"""How an operand is stored, as a number for compiled code, and the ways to read and write it."""

from __future__ import annotations

from aclnn.dtypes import DataType
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import (
    load_bfloat16,
    load_float16,
    load_float32,
    store_bfloat16,
    store_float16,
    store_float32,
    stream_bfloat16,
    stream_float16,
    stream_float32,
)

FLOAT32, FLOAT16, BFLOAT16 = range(3)
KINDS = {DataType.FLOAT: FLOAT32, DataType.FLOAT16: FLOAT16, DataType.BF16: BFLOAT16}

LOADS = {FLOAT32: load_float32, FLOAT16: load_float16, BFLOAT16: load_bfloat16}
STORES = {FLOAT32: store_float32, FLOAT16: store_float16, BFLOAT16: store_bfloat16}
STREAMS = {FLOAT32: stream_float32, FLOAT16: stream_float16, BFLOAT16: stream_bfloat16}


@register_jitable
def size_of(kind: int) -> int:
    """Bytes of an element."""
    return 4 if kind == FLOAT32 else 2
