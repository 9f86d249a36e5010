"""Microscaling (MX) formats of the OCP specification: blocks of numbers with a common 8-bit scale, a power of two.

Special blocks follow the kernels: with a NaN or an infinity, the scale is NaN and the numbers are 0; a scale of 2^-127
leaves zeros if it is the power of two of the largest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library.quantization.four_bits import packed, unpacked
from aclnn.operators.library.quantization.rounding import unrounded


class Element(NamedTuple):
    """Element format: multiples of 2^(exponent - fraction), with saturation."""

    most: float
    exponent: int
    """Exponent of the largest number."""
    least: int
    """Exponent of the smallest normal number."""
    fraction: int
    """Bits of the fraction."""


ELEMENTS = {
    D.FLOAT8_E5M2: Element(57344.0, 15, -14, 2),
    D.FLOAT8_E4M3FN: Element(448.0, 8, -6, 3),
    D.FLOAT4_E2M1: Element(6.0, 2, 0, 1),
    D.FLOAT4_E1M2: Element(1.75, 0, 0, 2),
}
FOUR_BITS = (D.FLOAT4_E2M1, D.FLOAT4_E1M2)
BLOCK = 32
PAIR = 2
"""Scales are stored in adjacent pairs."""
ROUNDINGS: Mapping[str, Callable[[Any], Any]] = {
    "rint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "floor": np.floor,
}

_MAGNITUDES = {D.FLOAT4_E2M1: (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), D.FLOAT4_E1M2: tuple(np.arange(8) / 4)}
_NAN, _BIAS, _SIGN = 255, 127, 8
_INFINITY, _FRACTION, _SHIFT = 0x7F80_0000, 0x7F_FFFF, 23

Rule = Callable[[Any], tuple[Any, Any]]
"""Function from float32 of blocks' largest magnitudes to the scales, as biased exponents, and their reciprocals."""


def _bits(largest: Any) -> Any:
    return np.ascontiguousarray(largest, np.float32).view(np.uint32).astype(np.int64)


def _shared(exponents: Any, bits: Any, nothing: Any) -> tuple[Any, Any]:
    """Finish a rule: non-finite blocks get NaN, and the blocks marked by ``nothing`` get zeros."""
    reciprocals = np.where(nothing, 0, np.ldexp(1.0, _BIAS - exponents))
    infinite = bits >= _INFINITY
    scales = np.where(infinite, _NAN, exponents).astype(np.uint8)
    return scales, np.where(infinite, math.nan, reciprocals)


def floored(element: Element) -> Rule:
    """Return the OCP rule: the power of two of the largest number, divided by that of the format's largest number."""

    def rule(largest: Any) -> tuple[Any, Any]:
        bits = _bits(largest)
        exponents = np.maximum((bits >> _SHIFT) - element.exponent, 0)
        return _shared(exponents, bits, exponents == 0)

    return rule


def carried(most: float, rounds: bool) -> Rule:
    """Return the rule with the next power of two if the largest number's 7-bit fraction exceeds that of ``most``.

    Args:
        most: number taken as the format's largest.
        rounds: True to round the largest number to seven fraction bits, False to truncate it.
    """
    threshold = (_bits(most) & _FRACTION) >> 16
    exponent = math.frexp(most)[1] - 1

    def rule(largest: Any) -> tuple[Any, Any]:
        bits = _bits(largest)
        short = (bits + 0x7FFF + (bits >> 16 & 1) if rounds else bits) >> 16
        exponents = np.maximum((short >> 7) + ((short & 0x7F) > threshold) - exponent, 0)
        return _shared(exponents, bits, exponents == 0)

    return rule


def ceiled(most: float, subnormal: bool, least: float = 0.0) -> Rule:
    """Return the rule with the smallest power of two by which the largest number, divided, does not exceed ``most``.

    Args:
        most: limit of the quotient.
        subnormal: True to round up quotients below 2^-126, too, above 2^-127.
        least: lower limit of the largest number, except in blocks of zeros.
    """
    reciprocal = np.float32(1 / most)

    def rule(largest: Any) -> tuple[Any, Any]:
        given, bits = np.asarray(largest, np.float32), _bits(largest)
        quotients = _bits(np.maximum(given, np.float32(least)) * reciprocal)
        exponents, fractions = quotients >> _SHIFT, quotients & _FRACTION
        up = (exponents > 0) & (exponents < _NAN - 1) & (fractions > 0)
        if subnormal:
            up |= (exponents == 0) & (fractions > 1 << (_SHIFT - 1))
        zero = bits == 0
        return _shared(np.where(zero, 0, exponents + up), bits, zero)

    return rule


def rounded(numbers: Any, element: Element, to_integer: Callable[[Any], Any] = np.rint) -> Any:
    """Round to the format's numbers, to nearest or by another function of multiples; NaN becomes 0."""
    numbers = unrounded(numbers)
    _, exponents = np.frexp(numbers)
    steps = np.maximum(exponents - 1, element.least) - element.fraction
    found = np.ldexp(to_integer(np.ldexp(numbers, -steps)), steps)
    return np.where(np.isnan(found), 0, np.clip(found, -element.most, element.most))


def stored(numbers: Any, dtype: D) -> Any:
    """Return numbers of a format in the storage of a tensor of that type."""
    if dtype not in FOUR_BITS:
        return numbers.astype(dtype.numpy)
    codes = np.searchsorted(_MAGNITUDES[dtype], np.abs(numbers)) | np.where(np.signbit(numbers), _SIGN, 0)
    return packed(codes.astype(np.uint8)).reshape(-1)


def restored(tensor: Any, dtype: D, shape: tuple[int, ...]) -> Any:
    """Return the numbers stored in a tensor of a format, in float64."""
    if dtype not in FOUR_BITS:
        return tensor.astype(np.float64)
    magnitudes = np.array(_MAGNITUDES[dtype])
    return np.concatenate((magnitudes, -magnitudes))[unpacked(tensor, shape) & 15]


def powers(scales: Any) -> Any:
    """Return the powers of two that scales encode, in float64; NaN for the NaN encoding."""
    exponents = scales.view(np.uint8).astype(np.int64)
    return np.where(exponents == _NAN, math.nan, np.ldexp(1.0, exponents - _BIAS))


def factors(scales: Any, count: int) -> Any:
    """Return a factor for each number of each row, from paired scales of blocks."""
    return np.repeat(powers(scales).reshape(*scales.shape[:-2], -1), BLOCK, -1)[..., :count]


def in_blocks(numbers: Any, axis: int, size: int = BLOCK) -> Any:
    """Split an axis into blocks and their numbers, padded with zeros."""
    extent = numbers.shape[axis]
    count = -(-extent // size)
    padding = [(0, 0)] * numbers.ndim
    padding[axis] = (0, count * size - extent)
    shape = numbers.shape
    return np.pad(numbers, padding).reshape(*shape[:axis], count, size, *shape[axis + 1 :])


def in_pairs(scales: Any, axis: int) -> Any:
    """Return scales as stored in tensors: pairs along the axis become the last dimension, padded with a zero."""
    pairs = in_blocks(scales, axis, PAIR)
    return np.moveaxis(pairs, axis + 1, -1).view(D.FLOAT8_E8M0.numpy)


def pairs_shape(shape: tuple[int, ...], axis: int, size: int = BLOCK) -> tuple[int, ...]:
    """Return the shape of ``in_pairs`` for the scales of a tensor's blocks."""
    axis %= len(shape)
    return (*shape[:axis], -(-shape[axis] // (size * PAIR)), *shape[axis + 1 :], PAIR)


def quantized(
    x: Any, axes: Sequence[int], dtype: D, rule: Rule, to_integer: Callable[[Any], Any] = np.rint, size: int = BLOCK
) -> tuple[Any, Any]:
    """Quantise blocks along some axes, in ascending order; return the tensor and one scale per block."""
    blocks = x
    for axis in reversed(axes):
        blocks = in_blocks(blocks, axis, size)
    inner = tuple(axis + 1 + at for at, axis in enumerate(axes))
    scales, reciprocals = rule(np.max(np.abs(blocks), inner))
    numbers = rounded(blocks * np.expand_dims(reciprocals, inner), ELEMENTS[dtype], to_integer)
    padded = [-(-extent // size) * size if axis in axes else extent for axis, extent in enumerate(x.shape)]
    return stored(numbers.reshape(padded)[tuple(map(slice, x.shape))], dtype), scales
