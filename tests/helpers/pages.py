"""Memory that ends at an unreadable page."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np


def before_the_end(size: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array that ends at an unreadable page, protected by Linux's mprotect."""
    room = -(-size * dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + room), mmap.PAGESIZE, 0) == 0
    return np.frombuffer(memory, dtype, size, room - size * dtype.itemsize)
