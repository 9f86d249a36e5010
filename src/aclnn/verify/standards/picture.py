"""Data of an output's charts: histogram of ULP errors, error against x, and map of mismatches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from aclnn.typing import Array
from aclnn.verify.compiled import compiled

HISTOGRAM_BINS = 28
"""0: equal to the golden; 1 to 26: error at most 2**(k - 2) ULP (the last: more); 27: not finite."""

LEAST_HALF_OCTAVE, _HALF_OCTAVES = -28, 48
AXIS_BINS = 2 * _HALF_OCTAVES + 1
"""Half octaves of |x| from 2**-14 to 2**10: negative ones first, descending; zero (and NaN) in the middle."""

MAP_ROWS, MAP_COLUMNS = 24, 64


def histogram_labels() -> list[str]:
    """Return the label of each bin of the histogram."""
    bounds = [f"≤ {2.0 ** (k - 2):g}" for k in range(1, HISTOGRAM_BINS - 2)]
    return ["0", *bounds, f"> {2.0 ** (HISTOGRAM_BINS - 5):g}", "not finite"]


def axis_edges(index: int) -> tuple[float, float]:
    """Return the range of x of an axis bin."""
    offset = index - _HALF_OCTAVES
    if offset == 0:
        return 0.0, 0.0
    low = 2.0 ** ((abs(offset) - 1 + LEAST_HALF_OCTAVE) / 2)
    high = low * math.sqrt(2.0)
    return (low, high) if offset > 0 else (-high, -low)


@dataclass
class Picture:
    """Counts over the processed elements of an output of ``rows`` × ``columns`` elements."""

    rows: int
    columns: int
    histogram: Array = field(default_factory=lambda: np.zeros(HISTOGRAM_BINS, np.int64))
    by_x: Array = field(default_factory=lambda: np.zeros((4, AXIS_BINS)))
    """Per axis bin: number of elements, number of mismatches, sum and maximum of finite ULP errors."""
    cells: Array = field(default_factory=lambda: np.zeros((3, MAP_ROWS, MAP_COLUMNS), np.int64))
    """Per map cell: number of elements, of mismatches, and of elements with more than a sound error."""
    worst: int | None = None
    worst_ulp: float = -1.0

    @property
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of the map in use."""
        return min(self.rows, MAP_ROWS), min(self.columns, MAP_COLUMNS)

    def add(self, ulps: Array, equal: Array, failing: Array, wrong: Array, axis: Array, start: int) -> None:
        """Add elements from ``start`` on: ULP errors; masks of equal, failing and wrong ones; their x."""
        if ulps.size == 0:
            return
        shape = self.map_shape
        _accumulate(
            ulps, equal, failing, wrong, axis, start, self.rows, self.columns, shape[0], shape[1],
            self.histogram, self.by_x, self.cells,
        )  # fmt: skip
        at = int(np.argmax(ulps))
        self._note(start + at, float(ulps[at]))

    def _note(self, index: int | None, ulp: float) -> None:
        if index is not None and ulp > self.worst_ulp:
            self.worst, self.worst_ulp = index, ulp

    def merge(self, later: Picture) -> None:
        """Merge the counts of later elements."""
        self.histogram += later.histogram
        self.by_x[:3] += later.by_x[:3]
        np.maximum(self.by_x[3], later.by_x[3], out=self.by_x[3])
        self.cells += later.cells
        self._note(later.worst, later.worst_ulp)


@compiled
def _accumulate(
    ulps: Array, equal: Array, failing: Array, wrong: Array, axis: Array, start: int, rows: int, columns: int,
    map_rows: int, map_columns: int, histogram: Array, by_x: Array, cells: Array,
) -> None:  # fmt: skip
    for i in range(ulps.size):
        error = ulps[i]
        if equal[i]:
            histogram[0] += 1
        elif not math.isfinite(error):
            histogram[HISTOGRAM_BINS - 1] += 1
        else:
            exponent = math.frexp(error)[1] - (1 if math.frexp(error)[0] == 0.5 else 0)
            histogram[min(max(exponent + 2, 1), HISTOGRAM_BINS - 2)] += 1
        place = _HALF_OCTAVES
        if axis[i] != 0.0 and not math.isnan(axis[i]):
            half_octave = _HALF_OCTAVES - 1
            if math.isfinite(axis[i]):
                half_octave = math.floor(2.0 * math.log2(abs(axis[i]))) - LEAST_HALF_OCTAVE
            offset = int(min(max(half_octave, 0), _HALF_OCTAVES - 1)) + 1
            place += offset if axis[i] > 0.0 else -offset
        by_x[0, place] += 1
        by_x[1, place] += failing[i]
        if math.isfinite(error):
            by_x[2, place] += error
            by_x[3, place] = max(by_x[3, place], error)
        row, column = (start + i) // columns, (start + i) % columns
        cell_row, cell_column = row * map_rows // rows, column * map_columns // columns
        cells[0, cell_row, cell_column] += 1
        cells[1, cell_row, cell_column] += failing[i]
        cells[2, cell_row, cell_column] += wrong[i]
