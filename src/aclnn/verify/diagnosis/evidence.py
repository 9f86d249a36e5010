"""A stretch of a wrong output, in float64, as the search for its cause sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.scales import growth_of_flushed, terms_size
from aclnn.verify.number_formats import NumberFormat
from aclnn.verify.standards.evaluate import Elements, Measured, Source
from aclnn.verify.standards.measures import agree

Array = np.ndarray[Any, Any]

_MOST_ELEMENTS = 1 << 21
ENOUGH = 0.9
"""The share of wrong elements that a fault must account for to be named alone."""
SOUND_ULP = {"float32": 8.0, "float16": 1.0, "bfloat16": 1.0}
"""Errors that need no cause: a few roundings in float32, one rounding to 16 bits."""

STRUCTURAL = frozenset({"constant", "constant-at-edge", "moved-data", "wrong-mode", "wrong-input", "wrong-operation"})
"""Faults that are no matter of precision, so that an output is wrong even where no standard objects."""

Finding = tuple[str, str, Array]
"""A fault's name, its text and the elements that it explains."""


@dataclass(frozen=True)
class Cause:
    """A known fault that accounts for wrong elements."""

    name: str
    text: str
    elements: int
    share: float
    """Of all wrong elements that were looked at."""
    structural: bool = False
    """Whether the data are not the gradient that was asked for, however precisely they were computed."""


@dataclass(frozen=True)
class Evidence:
    """Consecutive elements of an output, flat."""

    source: Source
    elements: Elements
    whole: bool
    """Whether they are the whole output."""

    @cached_property
    def target(self) -> NumberFormat:
        """The output's number format."""
        return self.source.target

    @cached_property
    def a(self) -> Array:
        """The output under test."""
        return self.elements.actual.astype(np.float64)

    @cached_property
    def g(self) -> Array:
        """The golden values."""
        return self.elements.golden.rounded.astype(np.float64)

    @cached_property
    def v(self) -> Array:
        """The exact values."""
        return self.elements.golden.value

    @cached_property
    def x(self) -> Array:
        """The forward input."""
        return self.elements.x.astype(np.float64)

    @cached_property
    def dy(self) -> Array:
        """The gradient that arrives; ones where there is none for each element."""
        found = [value for name, value in self.elements.inputs.items() if "grad" in name]
        return found[0].astype(np.float64) if found else np.ones(self.a.size)

    @cached_property
    def slope(self) -> Array:
        """Exact value over dy; 0 where dy is 0."""
        slope: Array = np.where(self.dy == 0.0, 0.0, self.v / self.dy)
        return slope

    @cached_property
    def ulp(self) -> Array:
        """One unit of the last place at each exact value."""
        return self.target.ulp(self.v)

    @cached_property
    def wrong(self) -> Array:
        """Elements that are off by more than sound arithmetic explains."""
        wrong: Array = ~self.near(self.v)
        return wrong

    @cached_property
    def wrong_count(self) -> int:
        """How many they are."""
        return int(np.count_nonzero(self.wrong))

    @cached_property
    def gross(self) -> Array:
        """Wrong elements that no rounding of any intermediate explains, nor a device that flushes to zero."""
        level = max(2.0**-10, 16.0 * 2.0**-self.target.digits)
        rounded = np.abs(self.a - self.v) <= level * terms_size(self.source, self.elements)
        gross: Array = self.wrong & ~rounded & ~self._flushed & ~self._at_a_kink
        return gross

    @property
    def _flushed(self) -> Array:
        """Zeros that flushing tiny numbers leaves; none where results as tiny survive."""
        least = self.target.smallest_normal
        tiny = np.abs(self.v) < 2.0 * least * growth_of_flushed(self.source, self.elements)
        zeros: Array = tiny & (self.a == 0.0)
        survivors = np.isfinite(self.a) & (self.a != 0.0) & (self.g != 0.0) & (np.abs(self.g) < least)
        return zeros & (np.count_nonzero(survivors) <= 0.1 * np.count_nonzero(zeros))

    @property
    def _at_a_kink(self) -> Array:
        """Where Hardswish's branches meet, and implementations differ."""
        if self.source.case.operator.name != "hardswish_backward":
            return np.zeros(self.a.size, bool)
        kink: Array = np.abs(self.x) == 3.0
        return kink

    def near(self, values: Array, extra: Array | float = 0.0) -> Array:
        """Whether the output is within sound arithmetic of other values (and ``extra``)."""
        close = np.abs(self.a - values) <= SOUND_ULP[self.target.name] * self.target.ulp(values) + extra
        alike: Array = close | agree(self.a, self.target.round(values).astype(np.float64))
        return alike

    def cause(self, name: str, text: str, explained: Array) -> Cause:
        """A cause for the wrong elements among those marked."""
        count = int(np.count_nonzero(explained & self.wrong))
        gross = int(np.count_nonzero(explained & self.gross))
        structural = name in STRUCTURAL and count > 0 and 2 * gross >= count
        return Cause(name, text, count, count / max(self.wrong_count, 1), structural)

    def if_predicted(self, name: str, text: str, prediction: Array, extra: Array | float = 0.0) -> Cause | None:
        """The cause, when its prediction fits the wrong elements and does no worse on the rest."""
        fits = self.near(prediction, extra)
        explained = np.count_nonzero(fits & self.wrong)
        if explained < ENOUGH * self.wrong_count or np.count_nonzero(fits) < ENOUGH * fits.size:
            return None
        return self.cause(name, text, fits)


def evidence_of(measured: Measured) -> Evidence:
    """The whole output, or of a large one the million elements around the worst."""
    return _around(measured, measured.picture.worst or 0)


def evidence_at_end(measured: Measured) -> Evidence:
    """The whole output, or of a large one its last million elements."""
    return _around(measured, measured.source.size)


def _around(measured: Measured, index: int) -> Evidence:
    source, size = measured.source, measured.source.size
    if size <= _MOST_ELEMENTS:
        return Evidence(source, source.elements(0, size), True)
    half = _MOST_ELEMENTS // 4
    begin = max(0, min(index - half, size - 2 * half))
    return Evidence(source, source.elements(begin, begin + 2 * half), False)
