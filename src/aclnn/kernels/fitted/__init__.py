"""Fitted versions of functions in float32: data, one module per function, by name.

A module contains the ``DIGEST`` of the function that it was fitted to and, by data type of x, ``FLOAT``, ``FLOAT16``
and ``BF16``: segments, or other operations. A version whose digest does not match the function is not used.
docs/numerics.md derives the bounds; tests check every entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.formula import Fitted, Real
from aclnn.kernels.trace import trace

Row = tuple[float, ...]


def row(text: str) -> Row:
    """Parse hexadecimal floats, each exactly a float32."""
    return tuple(float.fromhex(word) for word in text.split())


class Segments(NamedTuple):
    """For 0 ≤ a ≤ bound: g(a) = c0[i] + r·(p[0][i] + r·(p[1][i] + …)) with i = round(a·per_unit), r = a - centre[i].

    g(a) is f(-a) for the function f, or -f(-a) if f(x) = x + f(-x) or f is linear above 0; symmetry gives the other
    half. A function that is linear above 0 is constant, f(-bound), below -bound. Without a symmetry, g(x) is f(x), or
    f(x)/x, for -bound ≤ x ≤ bound, and i = (round(x·per_unit) + 4) modulo 16: the first eight segments are around 0.
    """

    per_unit: float
    """Segments per unit of a: the reciprocal of their width."""
    bound: float
    centre: Row
    c0: Row
    p: tuple[Row, ...]
    rest: float = 0.0
    """Without a symmetry: correction of p[0] to the exact slope at the zero of f."""

    @property
    def least(self) -> float:
        """Nonzero a below this may have values whose digits do not all fit into a float32."""
        return 0.0 if self.c0[0] else 2.0**-120


def both_signs(symmetry: str | None) -> bool:
    """Return True if the segments cover positive and negative x."""
    return symmetry in ("neither", "x*neither")


def reach(segments: Segments, symmetry: str | None) -> float:
    """Return the largest magnitude of x covered by segments: any, if f is linear above 0 and has a limit below."""
    return math.inf if symmetry == "linear" else segments.bound


def slope(function: Fitted) -> tuple[float, float]:
    """Return f(1) of a function that is linear above 0, as a sum of two float32 of equal sign."""
    value = float(function.function(1.0))
    first = np.float32(value)
    if abs(float(first)) > abs(value):
        first = np.nextafter(first, np.float32(0.0))
    return float(first), float(np.float32(value - float(first)))


SIGNED_FROM = 4
"""Index of the segment around 0 if segments cover both signs."""


def adds_to_first(segments: Segments, symmetry: str | None) -> bool:
    """Return True if g does not begin at zero, so that x + f(-x) adds c0[i] to x, unrounded, before the rest."""
    return symmetry == "x+f" and segments.c0[0] != 0.0


class ShortSegments(NamedTuple):
    """f(x) = c[0][i] + r·(c[1][i] + …) with i = round((x + shift)·per_unit) modulo 32 and r = x - centre[i].

    The two coefficients after ``c`` have no rows of their own. The low 16 bits of an entry of ``centre`` are the high
    bits of the first of them, the low 13 bits of an entry of the last row of ``c`` those of the second; their other
    bits are zero. Entries are used unmasked: the embedded bits are part of their values.
    """

    per_unit: float
    """Segments per unit of x: the reciprocal of their width."""
    centre: Row
    """Approximate middles of the segments; in the segment with the zero of f, near that zero."""
    c: tuple[Row, ...]
    shift: float = 0.0

    @property
    def bound(self) -> float:
        """Largest magnitude of x, slightly inside the last segment, whose upper edge has the first one's index."""
        return (SHORT / 2 - 0.6) / self.per_unit - self.shift


class Bounded(NamedTuple):
    """Operations on x up to a bound; beyond it f(x) may exceed float32."""

    operations: Callable[[Any], Any]
    bound: float


SHORT = 32
"""Segments of 16-bit x."""
CENTRE_CARRIES, LAST_CARRIES = 16, 13
"""Numbers of bits of an entry of ``ShortSegments`` that belong to another coefficient."""


def fma(x: Real, y: Real, z: Real) -> Real:
    """x·y + z, rounded once; for programs only."""
    return x.fma(y, z)


def sum_over(x: Real, addend: float, divisor: float) -> Real:
    """(x + addend) / divisor, corrected by the rounding errors of sum and quotient; for programs only."""
    inverse = float(np.float32(1.0 / divisor))
    total = x + addend
    lost = x - (total - addend)
    quotient = total * inverse
    remainder = fma(quotient, -divisor, total) + lost
    return fma(remainder, inverse, quotient)


#: Segments, or operations on x with ``fma`` and the functions of ``aclnn.formula``.
Version = Segments | ShortSegments | Bounded | Callable[[Any], Any]


def module_of(function: Fitted) -> ModuleType | None:
    """Return the module fitted to a function of this name, perhaps to another definition."""
    name = f"{__name__}.{function.__name__}"
    return import_module(name) if find_spec(name) else None


@lru_cache(maxsize=512)
def version(function: Fitted, dtype: DataType) -> Version | None:
    """Return the version of a function for x of a data type, None if there is none."""
    module = module_of(function)
    if module is None or trace(function, 1).digest != module.DIGEST:
        return None
    return getattr(module, dtype.name, None)
