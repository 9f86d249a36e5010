"""Parts of the buffer that hold one constant instead of the gradient: never written, or written over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import ENOUGH, Evidence, Finding
from aclnn.verify.standards.measures import agree

Array = np.ndarray[Any, Any]

_FEW = 8
"""A stretch inside the buffer must be that long; at an end of it, a single element that is 0 or NaN will do."""
_SHORTEST_TILE = 4
_WORTH_NAMING = 0.05


@dataclass(frozen=True)
class _Runs:
    """Stretches that hold one constant, each trimmed to where that differs from the golden value."""

    constant: float
    first: Array
    last: Array

    @property
    def lengths(self) -> Array:
        """In elements."""
        lengths: Array = self.last + 1 - self.first
        return lengths

    def where(self, chosen: Array) -> _Runs:
        """Those chosen."""
        return _Runs(self.constant, self.first[chosen], self.last[chosen])

    def elements(self, size: int) -> Array:
        """Which of ``size`` elements lie in a run."""
        steps = np.zeros(size + 1, np.int64)
        steps[self.first] += 1
        steps[self.last + 1] -= 1
        inside: Array = np.cumsum(steps[:-1]) > 0
        return inside


def unwritten(evidence: Evidence, struck: Array) -> Finding | None:
    """One constant at the beginning or the end of the buffer, in a stretch of it, at an end of every row, or in tiles.

    ``struck`` are the wrong elements to look at.
    """
    runs = _runs(evidence, struck)
    if runs is None or _follows_x(evidence, struck & runs.elements(struck.size)):
        return None
    described = _row_ends(evidence, runs) or _stretch(evidence, runs) or _tiles(runs)
    if described is None:
        return None
    text, found = described
    explained = found.elements(struck.size)
    alike = struck & _holds(evidence.a, runs.constant)
    if np.count_nonzero(explained & struck) < max(1.0, _WORTH_NAMING * np.count_nonzero(struck)):
        return None
    if np.count_nonzero(explained & alike) < ENOUGH * np.count_nonzero(alike):
        return None
    shown = "NaN" if np.isnan(runs.constant) else f"{runs.constant:g}"
    return "constant-at-edge", f"{text} {shown} instead of the gradient", explained


def _holds(a: Array, constant: float) -> Array:
    return np.isnan(a) if np.isnan(constant) else a == constant


def _runs(evidence: Evidence, struck: Array) -> _Runs | None:
    """The runs of the value that most of the elements struck have, without those that are short beside the longest."""
    values, counts = np.unique(evidence.a[struck], return_counts=True)
    if values.size == 0:
        return None
    constant = float(values[np.argmax(counts)])
    same = _holds(evidence.a, constant)
    number = np.cumsum(same & ~np.concatenate([[False], same[:-1]]))
    places = np.flatnonzero(same & ~agree(evidence.a, evidence.g))
    first = places[np.concatenate([[True], np.diff(number[places]) > 0])]
    last = places[np.concatenate([np.diff(number[places]) > 0, [True]])]
    hits = np.bincount(number[struck & same], minlength=number[-1] + 1)[number[first]]
    runs = _Runs(constant, first, last).where(hits > 0)
    return runs.where(runs.lengths >= 0.1 * runs.lengths.max())


def _follows_x(evidence: Evidence, struck: Array) -> bool:
    """Whether x alone tells these from the right elements (then it is no matter of the buffer)."""
    x, right = evidence.x, ~evidence.wrong & np.isfinite(evidence.x)
    if not right.any():
        return False
    beyond = np.count_nonzero(x[right] >= x[struck].min())
    below = np.count_nonzero(x[right] <= x[struck].max())
    # A few elements are often among the two outermost hundredths.
    allowed = 0.02 * np.count_nonzero(right) if np.count_nonzero(struck) >= _FEW else 0.0
    return bool(min(beyond, below) <= allowed)


def _stretch(evidence: Evidence, runs: _Runs) -> tuple[str, _Runs] | None:
    if runs.first.size > 1:
        return None
    count, start = int(runs.lengths[0]), evidence.elements.start
    first, last = start + int(runs.first[0]), start + int(runs.last[0])
    at_end, at_beginning = last == evidence.source.size - 1, first == 0
    blank = runs.constant == 0.0 or not np.isfinite(runs.constant)
    if count < _FEW and not (blank and (at_end or at_beginning)):
        return None
    where = "at the end of the buffer" if at_end else "at the beginning of the buffer" if at_beginning else ""
    where = where or f"from index {first} on"
    return (f"the {count} elements {where} are all" if count > 1 else f"the element {where} is"), runs


def _row_ends(evidence: Evidence, runs: _Runs) -> tuple[str, _Runs] | None:
    shape = evidence.source.shape
    if not evidence.whole or len(shape) < 2 or runs.first.size < 2:
        return None
    columns, count = shape[-1], int(np.median(runs.lengths))
    same_length = runs.lengths == count
    for where, at in (("last", (runs.last + 1) % columns == 0), ("first", runs.first % columns == 0)):
        enough = np.count_nonzero(at & same_length) > 0.8 * (evidence.source.size // columns)
        if enough and np.count_nonzero(at) >= ENOUGH * at.size:
            many = f"{count} elements of every row are all" if count > 1 else "element of every row is"
            return f"the {where} {many}", runs.where(at)
    return None


def _tiles(runs: _Runs) -> tuple[str, _Runs] | None:
    length = math.gcd(*np.unique(runs.lengths).tolist())
    if runs.first.size < 2 or length < _SHORTEST_TILE:
        return None
    total = int(runs.lengths.sum())
    return f"{total} elements in {total // length} tiles of {length} are all", runs
