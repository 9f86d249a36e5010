"""The parts of standards: blocks of elements, tallies of what was measured on them, figures and outcomes.

Notation: a the output under test, g the golden value rounded to the output's type, p the third output,
RE = |a - g| / (|g| + 1e-7). Equal infinities, and NaN with NaN, agree; a NaN or an infinity on one side only is an
infinite error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from aclnn.typing import Array
from aclnn.verify.number_formats import NumberFormat, format_of


class Verdict(str, Enum):
    """A standard's verdict on an output."""

    PASS = "pass"
    WARNING = "warning"
    FAIL = "fail"
    UNDECIDED = "undecided"
    """It cannot tell without a third output; the reason says so."""

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """FAIL if one of them fails, else UNDECIDED if one is; a warning passes."""
        found = set(verdicts)
        return next((verdict for verdict in (cls.FAIL, cls.UNDECIDED) if verdict in found), cls.PASS)


@dataclass(frozen=True)
class Block:
    """Some elements, flat: the output under test, the golden values and perhaps a third output, in one format."""

    actual: Array
    golden: Array
    third: Array | None = None
    start: int = 0
    """Index of the first of them in the whole output."""

    @cached_property
    def target(self) -> NumberFormat:
        """The output's number format."""
        return format_of(self.golden.dtype)

    @cached_property
    def a(self) -> Array:
        """The output under test in float64."""
        return self.actual.astype(np.float64)

    @cached_property
    def g(self) -> Array:
        """The golden values in float64."""
        return self.golden.astype(np.float64)

    @cached_property
    def p(self) -> Array:
        """The third output in float64."""
        assert self.third is not None
        return self.third.astype(np.float64)

    @cached_property
    def error(self) -> Array:
        """|a - g|."""
        return absolute_error(self.a, self.g)

    @cached_property
    def relative(self) -> Array:
        """RE."""
        return relative_error(self.error, self.g)


def agree(a: Array, g: Array) -> Array:
    """Equal, or NaN both."""
    same: Array = (a == g) | (np.isnan(a) & np.isnan(g))
    return same


def absolute_error(a: Array, g: Array) -> Array:
    """|a - g|; 0 where they agree, infinite where only one is finite or they are different infinities or a NaN."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - g)
    finite = np.isfinite(difference)
    error: Array = np.where(finite, difference, np.where(agree(a, g), 0.0, np.inf))
    return error


def relative_error(error: Array, g: Array) -> Array:
    """|a - g| / (|g| + 1e-7); infinite where the error is."""
    magnitude = np.where(np.isfinite(g), np.abs(g), 0.0)
    relative: Array = error / (magnitude + 1e-7)
    return relative


@dataclass
class Tally:
    """A standard's measurements. Sums and counts add up, maxima are taken, the first and the worst element stay."""

    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    first: int | None = None
    worst: int | None = None
    severity: float = -math.inf
    """Of the worst element, in whatever measure the standard judges single elements by."""

    def merge(self, later: Tally) -> None:
        """Take in what was measured on later elements."""
        for name, value in later.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in later.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0.0), value)
        if self.first is None:
            self.first = later.first
        if later.severity > self.severity:
            self.worst, self.severity = later.worst, later.severity


@dataclass(frozen=True)
class Figure:
    """One number that a standard judges: its value, the limit, and on which side of it the value must be."""

    name: str
    value: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        """True where the value is on the right side."""
        return bool(_RELATIONS[self.relation](self.value, self.limit))


_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
}


@dataclass(frozen=True)
class Outcome:
    """A standard's verdict on one output."""

    verdict: Verdict
    figures: tuple[Figure, ...]
    first: int | None = None
    """Index of the first element that does not meet the standard's demand on single elements."""
    worst: int | None = None
    """Index of the element that is furthest from it (or nearest to breaking it)."""
    reason: str = ""


@dataclass(frozen=True)
class Standard:
    """A precision standard."""

    name: str
    edition: str
    measure: Callable[[Block], Tally]
    judge: Callable[[Tally, NumberFormat], Outcome]
    needs_third: bool = False
    counts: bool = False
    """It decides about an output when the user names no standard."""


def tally_of(
    block: Block,
    failing: Array,
    severity: Array,
    sums: Mapping[str, float] | None = None,
    maxima: Mapping[str, float] | None = None,
) -> Tally:
    """A block's tally: which elements fail, how badly each is off, and the sums and maxima wanted."""
    tally = Tally({"elements": float(failing.size), **(sums or {})}, dict(maxima or {}))
    if failing.size:
        at = int(np.argmax(severity))
        tally.worst, tally.severity = block.start + at, float(severity[at])
        first = int(np.argmax(failing))
        tally.first = block.start + first if failing[first] else None
    return tally


def outcome_of(tally: Tally, *figures: Figure) -> Outcome:
    """Passed when every figure holds."""
    verdict = Verdict.PASS if all(figure.holds for figure in figures) else Verdict.FAIL
    return Outcome(verdict, figures, tally.first, tally.worst)


def mean(tally: Tally, name: str, of_nothing: float = 0.0) -> float:
    """A sum over the number of elements; ``of_nothing`` when there are none."""
    elements = tally.sums["elements"]
    return tally.sums[name] / elements if elements else of_nothing
