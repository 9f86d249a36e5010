"""The number formats of results: rounding, spacing, bit patterns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType
from aclnn.typing import Array
from aclnn.verify.compiled import compiled

F = TypeVar("F", bound=Callable[..., Any])


def quiet(function: F) -> F:
    """Run a function without NumPy's warnings: NaN, also signalling, and overflow follow IEEE arithmetic."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return cast(F, run)


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format narrower than float64, or integers as numbers of one exponent."""

    dtype: DataType
    digits: int
    """Bits of the significand, including the hidden one."""
    least_exponent: int
    """Exponent of the smallest normal number, 2**least_exponent."""
    greatest_exponent: int

    @property
    def name(self) -> str:
        """NumPy's name, such as float32."""
        return str(self.dtype.numpy_name)

    @property
    def is_integer(self) -> bool:
        """True for integers and booleans."""
        return self.least_exponent == self.greatest_exponent

    @property
    def sound_ulp(self) -> float:
        """Error that needs no cause: a few float32 roundings, one rounding to 16 or 8 bits, none if exact."""
        return 0.0 if self.is_integer or self.digits == 1 else 8.0 if self.digits == 24 else 1.0

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return (2.0 - 2.0 ** (1 - self.digits)) * 2.0**self.greatest_exponent

    @property
    def smallest_normal(self) -> float:
        """Smallest positive normal number; 0 for integers, which have no subnormal ones."""
        return 0.0 if self.is_integer else 2.0**self.least_exponent

    def round(self, values: Array) -> Array:
        """Round float64 values once to this format, to nearest, ties to even."""
        with np.errstate(over="ignore", under="ignore"):
            if self.is_integer:
                return convert(np.rint(values), self.dtype.numpy)
            if self.dtype != DataType.BF16:
                return values.astype(self.dtype.numpy)
            wide, bits = np.asarray(values, np.float64), np.empty(np.shape(values), np.uint16)
            _to_bfloat16(np.ascontiguousarray(wide).reshape(-1), bits.reshape(-1))
            return bits.view(self.dtype.numpy)

    def round_exact(self, value: Fraction) -> float:
        """Round an exact rational to this format, to nearest, ties to even; overflow gives ±inf."""
        if value == 0:
            return 0.0
        step = Fraction(2) ** (max(_exponent(abs(value)), self.least_exponent) - self.digits + 1)
        rounded = float(round(value / step) * step)
        return rounded if abs(rounded) <= self.largest else float(np.copysign(np.inf, rounded))

    def ulp(self, values: Array) -> Array:
        """Return the spacing at the magnitude of float64 ``values``; that of the largest binade for ±inf."""
        exponents = (np.asarray(values, np.float64).view(np.int64) >> 52 & 0x7FF) - 1023  # 1024 for ±inf and NaN
        clipped = np.clip(exponents, self.least_exponent, self.greatest_exponent)
        spacing: Array = (clipped - self.digits + 1 + 1023 << 52).view(np.float64)
        return spacing

    def bits(self, values: Array) -> Array:
        """Return the bit patterns of values in this format, as unsigned integers."""
        return np.ascontiguousarray(values).view(np.dtype(f"u{self.dtype.numpy.itemsize}"))

    def hex(self, value: Any) -> str:
        """Return a value's bit pattern, such as 0x3f800000."""
        width = 2 * self.dtype.numpy.itemsize
        return f"0x{int(self.bits(np.asarray([value], self.dtype.numpy))[0]):0{width}x}"


FORMATS = {
    number_format.name: number_format
    for number_format in (
        NumberFormat(DataType.FLOAT, 24, -126, 127),
        NumberFormat(DataType.FLOAT16, 11, -14, 15),
        NumberFormat(DataType.BF16, 8, -126, 127),
    )
}
"""Formats of formulas' results, by name."""
_INTEGERS = (
    DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT32, DataType.UINT32,
    DataType.INT64, DataType.UINT64, DataType.BOOL,
)  # fmt: skip
ALL_FORMATS = FORMATS | {
    number_format.name: number_format
    for number_format in (
        NumberFormat(DataType.FLOAT8_E5M2, 3, -14, 15),
        NumberFormat(DataType.FLOAT8_E4M3FN, 4, -6, 8),
        NumberFormat(DataType.FLOAT8_E8M0, 1, -127, 127),
        *(NumberFormat(dtype, dtype.bits, dtype.bits - 1, dtype.bits - 1) for dtype in _INTEGERS),
    )
}
"""Formats of all outputs that can be verified, by name."""


def format_of(dtype: np.dtype[Any]) -> NumberFormat:
    """Return the format of a NumPy data type.

    Raises:
        TypeError: a type that cannot be verified, such as float64.
    """
    if dtype.name not in ALL_FORMATS:
        raise TypeError(f"expected one of {', '.join(ALL_FORMATS)}, got {dtype}")
    return ALL_FORMATS[dtype.name]


def _exponent(magnitude: Fraction) -> int:
    """Return the e with 2**e <= magnitude < 2**(e + 1)."""
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if magnitude >= Fraction(2) ** guess else guess - 1


@compiled
def _to_bfloat16(values: Array, bits: Array) -> None:
    """Round through float32 rounded to odd, so that the second rounding is harmless."""
    for i in range(values.size):
        nearest = np.float32(values[i])
        odd = np.int64(nearest.view(np.uint32))
        if math.isnan(nearest):
            bits[i] = odd >> 16 | 0x40
            continue
        if np.float64(nearest) != values[i] and odd & 1 == 0:
            odd += 1 if abs(np.float64(nearest)) < abs(values[i]) else -1
        bits[i] = (odd + 0x7FFF + (odd >> 16 & 1)) >> 16
