"""Rounding to the numbers of a narrow type, which arithmetic of limited precision may decide otherwise near ties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Shift:
    """Change of all numbers before they are rounded, relative to their magnitudes."""

    by: float
    function: Callable[[Any], Any] | None = None
    """Function that rounds to integers, instead of the operator's."""
    rounds: bool = False
    """True once numbers were rounded."""


_shift: ContextVar[Shift | None] = ContextVar("shift", default=None)


@contextmanager
def shifted(by: float, function: Callable[[Any], Any] | None = None) -> Iterator[Shift]:
    """Round all numbers as if they differed by this share, to find those near ties, or by another function."""
    shift = Shift(by, function)
    token = _shift.set(shift)
    try:
        yield shift
    finally:
        _shift.reset(token)


def unrounded(numbers: Any, least: float = 0.0) -> Any:
    """Return numbers that are about to be rounded, shifted if the caller asks for it.

    Args:
        numbers: the numbers.
        least: magnitude to which the shift of smaller numbers is relative.
    """
    shift = _shift.get()
    if shift is None:
        return numbers
    shift.rounds = True
    return numbers + shift.by * np.maximum(np.abs(numbers), least) if shift.by else numbers


def to_integers(numbers: Any, function: Callable[[Any], Any] = np.rint) -> Any:
    """Round to integers, by default to nearest, ties to even."""
    shift = _shift.get()
    return ((shift and shift.function) or function)(unrounded(numbers, 1.0))
