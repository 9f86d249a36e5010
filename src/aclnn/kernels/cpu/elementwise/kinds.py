"""How an operand is stored, as a number for compiled code, and the ways to read and write it."""

from __future__ import annotations

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.doubles import load_doubles, store_doubles
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

FLOAT32, FLOAT16, BFLOAT16, FLOAT64 = range(4)
KINDS = {DataType.FLOAT: FLOAT32, DataType.FLOAT16: FLOAT16, DataType.BF16: BFLOAT16, DataType.DOUBLE: FLOAT64}

# Float32 lanes, of FLOAT64 float64 lanes, which are never streamed.
LOADS = {FLOAT32: load_float32, FLOAT16: load_float16, BFLOAT16: load_bfloat16, FLOAT64: load_doubles}
STORES = {FLOAT32: store_float32, FLOAT16: store_float16, BFLOAT16: store_bfloat16, FLOAT64: store_doubles}
STREAMS = {FLOAT32: stream_float32, FLOAT16: stream_float16, BFLOAT16: stream_bfloat16, FLOAT64: store_doubles}


@register_jitable
def size_of(kind: int) -> int:
    """Bytes of an element."""
    return 8 if kind == FLOAT64 else 4 if kind == FLOAT32 else 2
