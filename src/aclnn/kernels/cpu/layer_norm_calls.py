"""LayerNorm's compiled functions, and the working memory that they are called with."""

from __future__ import annotations

import threading

import numpy as np

from aclnn.dtypes import DataType
from aclnn.kernels.cpu import layer_norm_columns as columns
from aclnn.kernels.cpu import layer_norm_exact as exact
from aclnn.kernels.cpu import layer_norm_rows as rows
from aclnn.kernels.cpu.compiler import Kernel, kernel
from aclnn.kernels.cpu.layer_norm_lanes import ELEMENTS
from aclnn.kernels.cpu.layer_norm_segments import Wanted


def aligned(size: int) -> int:
    """The size rounded up to whole cache lines."""
    return -(-size // 64) * 64


class Scratch(threading.local):
    """Each thread's own working memory, kept between calls."""

    def __init__(self) -> None:
        self.memory = np.empty(0, dtype=np.uint8)
        self.status = np.zeros(1, dtype=np.int64)

    def address(self, size: int) -> int:
        """Where ``size`` bytes lie, 64-byte aligned."""
        if self.memory.size < size + 64:
            self.memory = np.empty(size + 64, dtype=np.uint8)
        return int(self.memory.ctypes.data + 63) & -64


working = Scratch()


def columns_kernel(name: str) -> Kernel:
    """One of the functions in ``layer_norm_columns``."""
    return kernel(f"layer_norm_{name}", (), lambda: getattr(columns, name))


def exact_kernel(name: str) -> Kernel:
    """One of the functions in ``layer_norm_exact``."""
    return kernel(f"layer_norm_exact_{name}", (), lambda: getattr(exact, name))


def rows_kernel(dtype: DataType, wanted: Wanted, trickles: bool = False) -> Kernel:
    """``layer_norm_rows.rows`` for one data type; it streams in whole vectors, or 16 bytes at a time."""
    element = ELEMENTS[dtype]
    dx = element._replace(stream=element.trickle) if trickles else element
    return kernel("layer_norm_rows", (int(dtype), *wanted, trickles), lambda: rows.rows(element, element, dx, wanted))
