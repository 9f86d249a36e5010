"""Storage of 4-bit integers: two per byte, eight per INT32, the first in the lowest bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

IN_INT32 = 8
"""Number of INT4 per INT32."""
_PAIRS = (((np.arange(256)[:, None] >> np.array([0, 4]) & 15) ^ 8) - 8).astype(np.int8).view(np.int16)[:, 0]
"""The two numbers of each byte, as two bytes."""


def unpacked(stored: Any, shape: Sequence[int], strides: Sequence[int] | None = None) -> Any:
    """Unpack the numbers of a tensor without gaps from its bytes, by default in row-major order."""
    return np.ndarray(shape, np.int8, _PAIRS[stored].view(np.int8), 0, strides)


def unpacked_words(words: Any) -> Any:
    """Unpack the numbers of INT32, eight each along the last dimension."""
    return _PAIRS[np.ascontiguousarray(words).view(np.uint8)].view(np.int8)


def packed(numbers: Any) -> Any:
    """Pack INT8 numbers from -8 to 7, two per byte along the last dimension."""
    low, high = numbers[..., ::2].view(np.uint8), numbers[..., 1::2].view(np.uint8)
    return low & 15 | high << 4
