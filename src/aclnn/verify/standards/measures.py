"""Building blocks of standards: blocks of elements, tallies of measurements, figures and outcomes.

Notation: a is the output under test, g the golden value rounded to the output's type, p the reference ("third") output,
RE = |a - g| / (|g| + 1e-7). Equal infinities agree, as do NaN and NaN; a NaN or an infinity on one side only is an
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
    """Undecidable without reference outputs, as the reason states."""

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return FAIL if any is, else UNDECIDED if any is; a warning counts as a pass."""
        found = set(verdicts)
        return next((verdict for verdict in (cls.FAIL, cls.UNDECIDED) if verdict in found), cls.PASS)


@dataclass(frozen=True)
class Block:
    """Some elements as flat arrays: output under test, golden values and possibly reference output, in one format."""

    actual: Array
    golden: Array
    third: Array | None = None
    start: int = 0
    """Index of the first element in the whole output."""

    @cached_property
    def target(self) -> NumberFormat:
        """Number format of the output."""
        return format_of(self.golden.dtype)

    @cached_property
    def a(self) -> Array:
        """Output under test in float64."""
        return self.actual.astype(np.float64)

    @cached_property
    def g(self) -> Array:
        """Golden values in float64."""
        return self.golden.astype(np.float64)

    @cached_property
    def p(self) -> Array:
        """Reference output in float64."""
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
    """Return True where values are equal or both NaN."""
    same: Array = (a == g) | (np.isnan(a) & np.isnan(g))
    return same


def absolute_error(a: Array, g: Array) -> Array:
    """Return |a - g|; 0 where they agree, infinite where they do not and either is not finite."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - g)
    finite = np.isfinite(difference)
    error: Array = np.where(finite, difference, np.where(agree(a, g), 0.0, np.inf))
    return error


def relative_error(error: Array, g: Array) -> Array:
    """Return |a - g| / (|g| + 1e-7); infinite where the error is."""
    magnitude = np.where(np.isfinite(g), np.abs(g), 0.0)
    relative: Array = error / (magnitude + 1e-7)
    return relative


@dataclass
class Tally:
    """Measurements of a standard, mergeable: sums and counts add up, maxima and first and worst elements are kept."""

    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    first: int | None = None
    worst: int | None = None
    severity: float = -math.inf
    """Severity of the worst element, in the standard's measure for single elements."""

    def merge(self, later: Tally) -> None:
        """Merge the measurements of later elements."""
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
    """A number that a standard assesses: value, limit, and relation that must hold."""

    name: str
    value: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        """True if the relation holds."""
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
    """Index of the first element that violates the standard's condition on single elements."""
    worst: int | None = None
    """Index of the element with the largest violation (or the smallest margin)."""
    reason: str = ""


@dataclass(frozen=True)
class Standard:
    """A precision standard."""

    name: str
    edition: str
    measure: Callable[[Block], Tally]
    assess: Callable[[Tally, NumberFormat], Outcome]
    needs_third: bool = False
    applies: Callable[[NumberFormat], bool] = lambda target: target.digits >= 8 and not target.is_integer
    """Function that returns True for the number formats that the standard has limits for."""


def tally_of(
    block: Block,
    failing: Array,
    severity: Array,
    sums: Mapping[str, float] | None = None,
    maxima: Mapping[str, float] | None = None,
) -> Tally:
    """Return a block's tally: which elements fail, how severely, and the wanted sums and maxima."""
    tally = Tally({"elements": float(failing.size), **(sums or {})}, dict(maxima or {}))
    if failing.size:
        at = int(np.argmax(severity))
        tally.worst, tally.severity = block.start + at, float(severity[at])
        first = int(np.argmax(failing))
        tally.first = block.start + first if failing[first] else None
    return tally


def outcome_of(tally: Tally, *figures: Figure) -> Outcome:
    """Return the outcome: passed if every figure holds."""
    verdict = Verdict.PASS if all(figure.holds for figure in figures) else Verdict.FAIL
    return Outcome(verdict, figures, tally.first, tally.worst)


def mean(tally: Tally, name: str, of_nothing: float = 0.0) -> float:
    """Return a sum divided by the number of elements; ``of_nothing`` if there are none."""
    elements = tally.sums["elements"]
    return tally.sums[name] / elements if elements else of_nothing
