"""Reference quantization to MX formats, as the OCP specification describes it: block by block, by tables of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D

Array = np.ndarray[Any, Any]

#: Non-negative numbers, in the order of their codes.
MAGNITUDES: dict[D, Array] = {
    D.FLOAT8_E4M3FN: np.arange(0x7F, dtype=np.uint8).view(D.FLOAT8_E4M3FN.numpy).astype(np.float64),
    D.FLOAT8_E5M2: np.arange(0x7C, dtype=np.uint8).view(D.FLOAT8_E5M2.numpy).astype(np.float64),
    D.FLOAT4_E2M1: np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]),
    D.FLOAT4_E1M2: np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]),
}
EMAX = {D.FLOAT8_E4M3FN: 8, D.FLOAT8_E5M2: 15, D.FLOAT4_E2M1: 2, D.FLOAT4_E1M2: 0}


def nearest(number: float, of: D, mode: str = "rint") -> float:
    """Round a number to a format."""
    if math.isnan(number):
        return 0.0
    table, size, negative = MAGNITUDES[of], abs(number), math.copysign(1, number) < 0
    above = int(np.searchsorted(table, size))
    if above == len(table):
        return math.copysign(table[-1], number)
    below = above if table[above] == size else above - 1
    if mode == "floor":
        chosen = above if negative else below
    else:
        up, down = table[above] - size, size - table[below]
        even = above if above % 2 == 0 else below
        chosen = above if up < down else below if down < up else above if mode == "round" else even
    return math.copysign(table[chosen], number)


def scale(block: Array, of: D, algorithm: int = 0, most: float = 0.0, least: float = 0.0) -> int:
    """Return the biased exponent of a block's scale."""
    with np.errstate(invalid="ignore"):
        largest = float(np.max(np.abs(block.astype(np.float64))))
    if not math.isfinite(largest):
        return 255
    if largest == 0:
        return 0
    if algorithm == 1 or most not in (0.0, 6.0, 7.0):
        quotient = float(np.float32(max(largest, least)) / np.float32(most or MAGNITUDES[of][-1]))
        fraction, exponent = math.frexp(quotient)
        return max(127 + exponent - (fraction == 0.5), 0)
    exponent = math.frexp(largest)[1] - 1
    if algorithm == 2:
        exponent += largest > math.ldexp((most or 6.0) / 4, exponent)
    return max(127 + exponent - EMAX[of], 0)


def quantized(
    x: Array, axis: int, of: D, mode: str = "rint", size: int = 32, vanishes: bool = True, **how: Any
) -> tuple[Array, Array]:
    """Quantize blocks along an axis; return numbers and the biased exponents of scales.

    Args:
        vanishes: True if blocks with a scale of 2^-127 become zeros.
    """
    lines = np.moveaxis(x.astype(np.float64), axis, -1)
    count = -(-lines.shape[-1] // size)
    y, scales = np.empty(lines.shape), np.empty((*lines.shape[:-1], count), np.uint8)
    for at in np.ndindex(*lines.shape[:-1]):
        for block in range(count):
            part = slice(block * size, (block + 1) * size)
            exponent = scales[(*at, block)] = scale(lines[at][part], of, **how)
            factor = 0.0 if vanishes and exponent == 0 else math.nan if exponent == 255 else 2.0 ** (127 - exponent)
            with np.errstate(invalid="ignore"):
                y[(*at, part)] = [nearest(number, of, mode) for number in lines[at][part] * factor]
    return np.moveaxis(y, -1, axis), np.moveaxis(scales, -1, axis)


def paired(scales: Array, axis: int) -> Array:
    """Pair scales along an axis in a new last dimension; a single last one is paired with zero."""
    axis %= scales.ndim
    shape = list(scales.shape)
    shape[axis] = -(-shape[axis] // 2)
    found = np.zeros((*shape, 2), np.uint8)
    for at in np.ndindex(*scales.shape):
        found[(*at[:axis], at[axis] // 2, *at[axis + 1 :], at[axis] % 2)] = scales[at]
    return found


def codes(numbers: Array, of: D) -> Array:
    """Encode numbers in a 4-bit format, two in a byte."""
    each = [
        int(np.flatnonzero(MAGNITUDES[of] == abs(number))[0]) | 8 * (math.copysign(1, number) < 0)
        for number in numbers.flat
    ]
    return np.array([low | high << 4 for low, high in zip(each[::2], each[1::2], strict=True)], np.uint8)
