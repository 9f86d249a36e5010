"""LayerNorm's compiled functions, and the working memory that they are called with."""

from __future__ import annotations

import threading

import numpy as np

from aclnn.dtypes import DataType
from aclnn.kernels.cpu import layer_norm_columns as columns
from aclnn.kernels.cpu.compiler import Kernel, kernel
from aclnn.kernels.cpu.layer_norm_batches import batches
from aclnn.kernels.cpu.layer_norm_lanes import ELEMENTS
from aclnn.kernels.cpu.layer_norm_rows import blocks
from aclnn.kernels.cpu.layer_norm_segments import Wanted


def aligned(size: int) -> int:
    """The size rounded up to whole cache lines."""
    return -(-size // 64) * 64


class Scratch(threading.local):
    """Each thread's own working memory, kept between calls."""

    def __init__(self) -> None:
        self.memory = np.empty(0, dtype=np.uint8)

    def address(self, size: int) -> int:
        """Where ``size`` bytes lie, 64-byte aligned."""
        if self.memory.size < size + 64:
            self.memory = np.empty(size + 64, dtype=np.uint8)
        return int(self.memory.ctypes.data + 63) & -64


working = Scratch()


def columns_kernel(name: str) -> Kernel:
    """One of the functions in ``layer_norm_columns``."""
    return kernel(f"layer_norm_{name}", (), lambda: getattr(columns, name))


def finish_kernel() -> Kernel:
    """``layer_norm_columns.finish``."""
    return kernel("layer_norm_finish", (), columns.finish)


def rows_kernel(name: str, dtype: DataType, wanted: Wanted, trickles: bool = False) -> Kernel:
    """``blocks`` or ``batches`` for one data type; it streams in whole vectors, or 16 bytes at a time."""
    element = ELEMENTS[dtype]
    dx = element._replace(stream=element.trickle) if trickles else element
    make = {"blocks": blocks, "batches": batches}[name]
    return kernel(f"layer_norm_{name}", (int(dtype), *wanted, trickles), lambda: make(element, element, dx, wanted))
