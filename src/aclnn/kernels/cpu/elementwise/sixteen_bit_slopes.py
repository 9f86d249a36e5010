"""The derivatives of 16-bit x, in float32 over any number of lanes.

f(x) rounds to the nearest 16-bit number for every x, and its error is small beside the 16-bit rounding of dy·f(x):
2^-17.7 of f for float16, 2^-14.8 for bfloat16. docs/numerics.md explains the choices.
"""

from __future__ import annotations

import math
from typing import Any

from aclnn.dtypes import DataType
from aclnn.kernels.cpu.elementwise.pieces import ROUND
from aclnn.kernels.cpu.elementwise.sixteen_bit_coefficients import (
    CENTRE_CARRIES,
    LAST_CARRIES,
    SHORT_SEGMENTS,
    ShortSegments,
)
from aclnn.kernels.cpu.elementwise.slopes import Near
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.tables import Table, Tables, horner_from, lookup
from aclnn.kernels.cpu.vector import bits, fma, from_bits, select

_THIRD = float.fromhex("0x1.555556p-2")


def _by_segments(segments: ShortSegments) -> Near:
    per_unit, shift = segments.per_unit, segments.shift
    *others, third = segments.c
    centre, last = Table(*segments.centre), Table(*third)
    rest = Tables(*reversed(others))
    to_second, to_first = 32 - CENTRE_CARRIES, 32 - LAST_CARRIES

    @register_jitable(forceinline=True)
    def slope(x: Any) -> Any:
        shifted = x + shift if shift else x
        i = bits(fma(shifted, per_unit, ROUND))
        middle, upper = lookup(centre, i), lookup(last, i)
        r = x - middle
        first, second = from_bits(bits(upper) << to_first), from_bits(bits(middle) << to_second)
        return horner_from(fma(fma(first, r, second), r, upper), rest, i, r)

    return Near(slope, segments.bound)


@register_jitable(forceinline=True)
def _hardswish(x: Any) -> Any:
    """0 below -3, 1 above 3, (x + 1.5)/3 in between, both ends included; NaN for NaN.

    Around the zero at -1.5 the sum is exact; elsewhere what it and the product round away is too little to matter.
    """
    return select(x < -3.0, 0.0, select(x > 3.0, 1.0, (x + 1.5) * _THIRD))


_HARDSWISH = Near(_hardswish, math.inf)


def near(name: str, dtype: DataType) -> Near | None:
    """The slope that a formula of this name has for 16-bit x of a type, or None."""
    if name == "hardswish_slope":
        return _HARDSWISH
    segments = SHORT_SEGMENTS.get((name, dtype))
    return None if segments is None else _by_segments(segments)
