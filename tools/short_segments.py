"""Search for piecewise polynomials of a function of 16-bit x (see ``aclnn.kernels.fitted.ShortSegments``).

For each 16-bit x of a segment, the polynomial has to stay within the interval of values that round to the same 16-bit
number as f(x) (the idea of RLIBM), and within a relative error of 2^-17.7 (float16) or 2^-14.7 (bfloat16). A linear
program finds the polynomial with the least error. The centre and the last three coefficients, which share entries, are
shortened first; then the others are rounded to float32 one after the other, and those not yet rounded compensate each
rounding. The intervals are narrowed by a margin for the roundings of float32 arithmetic. If no polynomial satisfies
them, the margin is reduced; if some x then rounds wrongly, the last digits are varied until every x rounds correctly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy.optimize import linprog

from aclnn.core.dtypes import DataType
from aclnn.formula import Fitted
from aclnn.kernels.fitted import CENTRE_CARRIES, LAST_CARRIES, ShortSegments
from aclnn.kernels.fitted import SHORT as SEGMENTS
from aclnn.kernels.sixteen_bit import all_inputs, evaluate, round_to_odd
from tools.functions import row_of, short_hex

Array = NDArray[np.float64]

FORMS: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.BF16: np.dtype(ml_dtypes.bfloat16),
}
TOLERANCES = {DataType.FLOAT16: 2.0**-17.7, DataType.BF16: 2.0**-14.7}
MARGINS = (1.25, 0.75, 0.5, 0.3, 0.15, 0.0, -0.25, -0.5)
"""Margins by which intervals are narrowed, in units of float32, tried in order."""
TRIALS = 3000


class Task(NamedTuple):
    """The x of a segment, relative to its centre, and the constraints on the polynomial there."""

    r: Array
    exact: Array
    low: Array
    high: Array
    nearest: NDArray[Any]
    """``exact`` rounded to 16 bits, as are all values between ``low`` and ``high``."""
    tolerance: float

    def part(self, chosen: NDArray[np.bool_]) -> Task:
        return Task(*(field[chosen] for field in self[:-1]), self.tolerance)


class Segment(NamedTuple):
    """The 16-bit x of a segment, f there, and the preferred zero of r."""

    x: Array
    exact: Array
    middle: float
    dtype: DataType

    def task(self, centre: float) -> Task:
        r = (self.x.astype(np.float32) - np.float32(centre)).astype(np.float64)
        nearest = round_to_odd(self.exact).astype(FORMS[self.dtype])
        return Task(r, self.exact, *interval(nearest), nearest, TOLERANCES[self.dtype])


Fixed = dict[int, float]
"""Coefficients that are already chosen, by power."""


def interval(nearest: NDArray[Any]) -> tuple[Array, Array]:
    """Return the ends of the intervals that round to these numbers, halfway to their neighbours."""
    form, magnitude = nearest.dtype, np.abs(nearest)
    pattern = magnitude.view(np.uint16)
    middle = magnitude.astype(np.float64)
    below = (middle + (np.maximum(pattern, 1) - 1).view(form).astype(np.float64)) / 2
    above = (middle + (pattern + np.uint16(1)).view(form).astype(np.float64)) / 2
    negative = nearest < 0
    return np.where(negative, -above, below), np.where(negative, -below, above)


def segment(formula: Any, dtype: DataType, segments: ShortSegments, zero: float, i: int) -> Segment:
    number = i if i < SEGMENTS // 2 else i - SEGMENTS
    low, middle, high = ((number + side) / segments.per_unit - segments.shift for side in (-0.5, 0.0, 0.5))
    x = np.unique(all_inputs(dtype)[np.isfinite(all_inputs(dtype))])
    x = x[(low <= x) & (x <= high) & (np.abs(x) <= segments.bound)]
    return Segment(x, evaluate(formula, x), zero if low < zero < high else middle, dtype)


def decisive(task: Task) -> NDArray[np.bool_]:
    """Select the x with the tightest constraints, and enough others to control the polynomial between them."""
    slack = np.minimum(task.high - task.exact, task.exact - task.low)
    chosen: NDArray[np.bool_] = (slack < 2 * task.tolerance * np.abs(task.exact)) | (np.abs(task.exact) < 2.0**-5)
    chosen[:: max(1, task.r.size // 120)] = True
    chosen[-1] = True
    return chosen


def program(task: Task, fixed: Fixed, degree: int, margin: float) -> tuple[float, Fixed] | None:
    """Solve for the coefficients with the least relative error; None if no polynomial satisfies the constraints."""
    task = task.part(decisive(task))
    powers = np.array([power for power in range(degree + 1) if power not in fixed])
    known = [fixed.get(power, 0.0) for power in range(degree + 1)]
    weight = 1 / np.abs(task.exact)
    rest = task.exact - np.polynomial.polynomial.polyval(task.r, known)
    narrowed = margin * np.exp2(np.floor(np.log2(np.abs(task.exact))) - 23)
    allowed = task.tolerance * np.abs(task.exact)
    above = rest - task.exact + np.minimum(task.high - narrowed, task.exact + allowed)
    below = rest - task.exact + np.maximum(task.low + narrowed, task.exact - allowed)
    scale = max(np.abs(task.r).max(), 1e-3) ** powers
    basis = task.r[:, None] ** powers / scale * weight[:, None]
    ones, zeros = np.ones((weight.size, 1)), np.zeros((weight.size, 1))
    rows = np.block([[basis, -ones], [-basis, -ones], [basis, zeros], [-basis, zeros]])
    bounds = np.concatenate([rest * weight, -rest * weight, above * weight, -below * weight])
    unknowns = [(None, None)] * powers.size + [(0, None)]
    # Scale the rows, because SciPy's tolerance of 10^-7 is absolute.
    found = linprog([0.0] * powers.size + [1e5], A_ub=1e5 * rows, b_ub=1e5 * bounds, bounds=unknowns, method="highs")
    if found.status != 0:
        return None
    return float(found.x[-1]), fixed | dict(zip(powers.tolist(), (found.x[:-1] / scale).tolist(), strict=True))


def ulp(value: float) -> float:
    return float(np.spacing(np.float32(abs(value) or 1e-30)))


def pattern(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def number(pattern: int) -> float:
    return float(np.uint32(pattern).view(np.float32))


def nearest_first(value: float, patterns: Iterable[int]) -> list[float]:
    """Return the numbers with these bit patterns as magnitudes and a value's sign, the nearest to the value first."""
    found = [math.copysign(number(pattern), value) for pattern in patterns]
    return sorted(found, key=lambda candidate: abs(candidate - value))


def shortened(value: float, bits: int, steps: int) -> list[float]:
    """Return the numbers around a value in which only the first bits are set, the nearest first."""
    nearest = (pattern(abs(value)) + (1 << (31 - bits))) >> (32 - bits)
    return nearest_first(value, (max(0, nearest + step) << (32 - bits) for step in range(-steps, steps + 1)))


def carrying(value: float, lower: float, bits: int, steps: int) -> list[float]:
    """Return the numbers around a value whose last bits are the first bits of ``lower``, the nearest first."""
    tail, base = pattern(lower) >> (32 - bits), pattern(abs(value)) >> bits
    return nearest_first(value, (max(0, base + step) << bits | tail for step in range(-steps, steps + 1)))


class Shared(NamedTuple):
    """State of the search: the error so far, the centre, and the coefficients, finally all that share entries."""

    error: float
    centre: float
    fixed: Fixed


def error_of(shared: Shared) -> float:
    return shared.error


def centred(segment: Segment, degree: int, margin: float) -> list[Shared]:
    """Return centres with the coefficients that share their entries, those with the least error first."""
    wanted, found = program(segment.task(segment.middle), {}, degree, margin), []
    at_zero = [(0, value) for value in segment.exact[segment.x == 0.0].tolist() if value == float(np.float16(value))]
    for lower in shortened(wanted[1][degree - 1], CENTRE_CARRIES, 3) if wanted else []:
        for centre in carrying(segment.middle, lower, CENTRE_CARRIES, 4):
            fixed = {degree - 1: lower} | (dict(at_zero) if abs(centre) < 2.0**-100 else {})
            solution = program(segment.task(centre), fixed, degree, margin)
            if solution is not None:
                found.append(Shared(solution[0], centre, fixed))
    return sorted(found, key=error_of)


def shared(segment: Segment, degree: int, margin: float) -> Shared | None:
    """Return the best of the first centres for which the remaining coefficients have a solution."""
    for _, centre, start in centred(segment, degree, margin):
        task, found = segment.task(centre), []
        last = program(task, start, degree, margin)
        for lower in shortened(last[1][degree], LAST_CARRIES, 2) if last else []:
            fixed = start | {degree: lower}
            solution = program(task, fixed, degree, margin)
            for upper in carrying(solution[1][degree - 2], lower, LAST_CARRIES, 1) if solution else []:
                final = program(task, fixed | {degree - 2: upper}, degree, margin)
                if final is not None:
                    found.append(Shared(final[0], centre, fixed | {degree - 2: upper}))
        if found:
            return min(found, key=error_of)
    return None


def rounded(task: Task, degree: int, margin: float, fixed: Fixed) -> Fixed | None:
    """Round the coefficients to float32, each to the nearest for which the later ones have a solution."""
    solution = program(task, fixed, degree, margin)
    while solution is not None and len(fixed) <= degree:
        power = next(power for power in range(degree + 1) if power not in fixed)
        nearest, solution = float(np.float32(solution[1][power])), None
        for step in (0, 1, -1, 2, -2, 3, -3):
            candidate = fixed | {power: nearest + step * ulp(nearest)}
            solution = program(task, candidate, degree, margin) if len(candidate) <= degree else (0.0, candidate)
            if solution is not None:
                fixed = candidate
                break
    return None if solution is None else fixed


def assess(task: Task, c: list[float]) -> tuple[int, float]:
    """Count the x that round wrongly; also return the largest relative error in float32 arithmetic."""
    r = task.r.astype(np.longdouble)
    value = np.full(task.r.shape, c[-1], np.float32)
    for coefficient in c[-2::-1]:
        value = (value * r + np.longdouble(coefficient)).astype(np.float32)
    wrong = value.astype(task.nearest.dtype) != task.nearest
    return int(wrong.sum()), float(np.max(np.abs(value.astype(np.float64) - task.exact) / np.abs(task.exact)))


class Fit(NamedTuple):
    """Result for a segment: the number of x that round wrongly, ideally 0, and the constants."""

    wrong: int
    error: float
    centre: float
    c: list[float]

    @property
    def entries(self) -> list[float]:
        """Entries of the segment, one for each row of ``ShortSegments``."""
        return [self.centre, *self.c[:-2]]


def fit(segment: Segment, degree: int, rng: np.random.Generator) -> Fit:
    if not segment.x.size:
        return Fit(0, 0.0, 0.0, [0.0] * (degree + 1))
    best = Fit(segment.x.size + 1, math.inf, 0.0, [0.0] * (degree + 1))
    for margin in MARGINS:
        choice = shared(segment, degree, margin)
        c = None if choice is None else rounded(segment.task(choice.centre), degree, margin, choice.fixed)
        if choice is None or c is None:
            continue
        row = [c[power] for power in range(degree + 1)]
        best = min(best, Fit(*assess(segment.task(choice.centre), row), choice.centre, row))
        if best.wrong == 0:
            return best
    task, start = segment.task(best.centre), best.c
    for _ in range(TRIALS):
        steps = [*rng.integers(-6, 7, degree - 2).tolist(), 0, 0, 0]
        c = [float(np.float32(value + step * ulp(value))) for value, step in zip(start, steps, strict=True)]
        wrong, error = assess(task, c)
        if wrong < best.wrong and error <= task.tolerance:
            best = Fit(wrong, error, best.centre, c)
        if best.wrong == 0:
            break
    return best


def zero_of(function: Fitted, dtype: DataType) -> float:
    """Return the zero of a function with one sign change, where its segment is centred; NaN if there is none."""
    x = np.unique(all_inputs(dtype)[np.isfinite(all_inputs(dtype))])
    x = x[np.abs(x) < 64]
    positive = evaluate(function, x) > 0
    changes = np.flatnonzero(positive[1:] != positive[:-1])
    if changes.size != 1:
        return math.nan
    low, high = float(x[changes[0]]), float(x[changes[0] + 1])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) > 0) == positive[changes[0]] else (low, middle)
    return high


def search(
    function: Fitted, dtype: DataType, shape: ShortSegments, screen: Console
) -> tuple[ShortSegments, float, int]:
    """Find segments of this shape, their largest relative error, and the number of x that round wrongly."""
    degree, rng, zero = len(shape.c) + 1, np.random.default_rng(0), zero_of(function, dtype)
    found = []
    for i in track(range(SEGMENTS), f"{dtype.name} segments", console=screen):
        found.append(fit(segment(function, dtype, shape, zero, i), degree, rng))
    centre, *c = zip(*(column.entries for column in found), strict=True)
    segments = shape._replace(centre=centre, c=tuple(c))
    return segments, max(column.error for column in found), sum(column.wrong for column in found)


def printed(segments: ShortSegments) -> Iterator[str]:
    """Write segments as formatted Python."""
    yield "ShortSegments("
    yield f'    per_unit=float.fromhex("{short_hex(segments.per_unit)}"),'
    if segments.shift:
        yield f'    shift=float.fromhex("{short_hex(segments.shift)}"),'
    yield from row_of("centre=", segments.centre, "    ")
    yield "    c=("
    for row in segments.c:
        yield from row_of("", row, "        ")
    yield "    ),"
    yield ")"
