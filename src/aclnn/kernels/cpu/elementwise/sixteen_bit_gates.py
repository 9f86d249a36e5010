"""SwiGLU of 16-bit numbers in float32 over sixteen lanes, where that is within 0.01 of a unit of the result.

Each function gives the lanes where it is, and the results. Elsewhere, where a result is huge, tiny, zero or none, or
beside the zero of the slope in float16, the formulas are evaluated in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aclnn.dtypes import DataType
from aclnn.kernels.cpu.elementwise.pieces import ROUND
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.vector import absolute, bits, fma, from_bits, select

#: The lanes that are good, and the results.
Short = Callable[..., tuple[Any, tuple[Any, ...]]]

_LARGEST_A = 32.0
"""The exponential is 2^-18.5 off there, and sigmoids are far from too small for a float32."""
_TINY, _HUGE = 2.0**-100, 2.0**100
"""Between them no factor was subnormal or infinite, and nothing overflowed on the way."""
_LOG2_E = math.log2(math.e)
_C1, _C2, _C3, _C4, _C5, _C6 = (math.log(2.0) ** n / math.factorial(n) for n in range(1, 7))
_ZERO_OF_SLOPE, _BESIDE = -1.2784645, 0.05
"""So near its zero the slope in float32 is not good enough for float16: it would be 0.3 units off."""


@register_jitable
def _exp(x: Any) -> Any:
    """e^x for abs(x) ≤ 32."""
    shifted = fma(x, _LOG2_E, ROUND)
    r = fma(x, _LOG2_E, ROUND - shifted)
    power = fma(fma(fma(fma(fma(fma(r, _C6, _C5), r, _C4), r, _C3), r, _C2), r, _C1), r, 1.0)
    return from_bits(bits(power) + (bits(shifted) << 23))


@register_jitable
def _value(a: Any, b: Any) -> Any:
    y = a / (1.0 + _exp(-a)) * b
    size = absolute(y)
    return (absolute(a) <= _LARGEST_A) & (size >= _TINY) & (size <= _HUGE), (y,)


@register_jitable
def _gradient_anywhere(dy: Any, a: Any, b: Any) -> Any:
    e = _exp(-a)
    s = 1.0 / (1.0 + e)
    da, db = s * fma(a + 1.0, e * s, s) * (dy * b), a * s * dy
    first, second = absolute(da), absolute(db)
    # NaN and infinities are found in the sum.
    ordinary = (select(first < second, first, second) >= _TINY) & (first + second <= _HUGE)
    return (absolute(a) <= _LARGEST_A) & ordinary, (da, db)


@register_jitable
def _gradient(dy: Any, a: Any, b: Any) -> Any:
    near, results = _gradient_anywhere(dy, a, b)
    return near & (absolute(a - _ZERO_OF_SLOPE) > _BESIDE), results


#: By the name of the formula and the data type of every operand.
SHORT: dict[tuple[str, DataType], Short] = {
    ("swi_glu_value", DataType.FLOAT16): _value,
    ("swi_glu_value", DataType.BF16): _value,
    ("swi_glu_gradient", DataType.FLOAT16): _gradient,
    ("swi_glu_gradient", DataType.BF16): _gradient_anywhere,
}
