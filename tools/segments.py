"""Search for piecewise polynomials of a function of float32 (see ``aclnn.kernels.fitted.Segments``).

Each segment has a centre, a constant c0 and a polynomial of (g(a) - c0)/r in r = a - centre. Candidates for the centre
are points where g is almost a float32 and every difference is exact. Each is tried with several weights of the
segment's ends and random roundings of the coefficients, because the error depends more on roundings than on the fit.
The objective is the worst error of the kernel's own steps over every float32 of the segment.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from flint import arb
from rich.console import Console
from rich.progress import track

from aclnn.kernels.fitted import SIGNED_FROM, Segments, both_signs
from tools.functions import Array, exact, fitted_function, in_balls, row_of, short_hex

NODES = 160
TRIES = 300
"""Minimum number of fits: one for each centre, the others shared among the best centres."""
BEST_CENTRES = 12
GRID = 8192
"""Centres are multiples of 1 / GRID."""
ALMOST = 0.02
"""Largest distance of g from a float32 at a centre, in units of the last place."""
LEAST = 2.0**-10
"""Bound below which g equals g(0) and a product, in float32."""
UNITS, RELATIVE = 0.95, 1.45 * 2.0**-24
"""Target errors: in units of the last place and, where a product with dy adds half a unit, relative."""


class Task(NamedTuple):
    """A function to approximate, g(a) for 0 ≤ a ≤ bound, and the shape of its segments.

    ``printed`` is the a of a worked example, or NaN. Its result is so close to a change of the sixth digit that f(a)
    must be the nearest float32.
    """

    name: str
    per_unit: float
    """Number of segments per unit of a."""
    bound: float
    count: int
    """Number of segments: 8 or 16."""
    terms: int
    """Number of coefficients of each segment."""
    printed: float = math.nan

    @property
    def symmetry(self) -> str:
        """Relation that gives the other side from g."""
        symmetry = fitted_function(self.name).symmetry
        assert symmetry is not None
        return symmetry

    @property
    def signed(self) -> bool:
        """True if segments cover both signs, so that a is x."""
        return both_signs(self.symmetry)

    def middle(self, i: int) -> int:
        """Return the middle of a segment, in units of the segments' width."""
        return (i - SIGNED_FROM + 8) % 16 - 8 if self.signed else i

    @property
    def rest(self) -> float:
        """The part of the derivative at the zero that p[0] cannot hold (see ``Segments``)."""
        if not self.signed or math.isnan(zero := _zero_of(self)):
            return 0.0
        slope = _slope(self, zero)
        return nearest(slope - nearest(slope))

    def g(self, a: float) -> arb:
        """Return g(a) as a ball (see ``Segments``)."""
        return self._turned(in_balls(fitted_function(self.name), a if self.signed else -a), a)

    def exact(self, a: Array) -> Array:
        """Return g(a) in float64."""
        return self._turned(exact(fitted_function(self.name), a if self.signed else -a), a)

    def _turned(self, value: Any, a: Any) -> Any:
        """Return g(a), given the function's value on the side of a."""
        return value / a if self.symmetry == "x*neither" else -value if self.symmetry in ("x+f", "linear") else value


@cache
def _zero_of(task: Task) -> float:
    """Return the float32 closest to the zero of a function without symmetry, NaN if it has no zero."""
    places = [middle / task.per_unit for middle in range(-7, 8)]
    positive = [task.g(place or 2.0**-60) > 0 for place in places]
    for low, high, before, after in zip(places, places[1:], positive, positive[1:], strict=False):
        if before != after:
            return nearest(_halved(task, low, high))
    return math.nan


def _halved(task: Task, low: float, high: float) -> float:
    """Return the zero between two a, by bisection."""
    falling = task.g(low) > 0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (task.g(middle) > 0) == falling else (low, middle)
    return high


def _slope(task: Task, a: float) -> arb:
    step = 2.0**-40
    return (task.g(a + step) - task.g(a - step)) / (2 * step)


class Column(NamedTuple):
    """A segment's constants."""

    centre: float
    c0: float
    p: Array


@numba.njit(cache=True)
def _float32(value: float) -> float:
    return np.float64(np.float32(value))


@numba.njit(cache=True)
def _units(error: float, exact: float) -> float:
    return math.ldexp(abs(error), 24 - math.frexp(exact)[1])


@numba.njit(cache=True)
def _polynomial(r: float, p: Array) -> tuple[float, float]:
    """Evaluate the polynomial p at r in float32; also return the rounding error of the last step."""
    upper = p[-1]
    for k in range(p.size - 2, 0, -1):
        upper = _float32(upper * r + p[k])
    head = _float32(upper * r + p[0])
    lost = _float32(upper * r + _float32(p[0] - head))
    return head, lost


@numba.njit(cache=True)
def _evaluate(a: float, centre: float, c0: float, p: Array) -> float:
    """Evaluate g(a) by the kernel's steps (docs/numerics.md) in float32.

    A fused multiply-add rounds to 53 bits before 24 here, which changes about one result in 2^29.
    """
    r = _float32(a - centre)
    head, lost = _polynomial(r, p)
    return _float32(r * head + _float32(r * lost + c0))


@numba.njit(cache=True)
def _evaluate_sum(a: float, centre: float, c0: float, p: Array) -> float:
    """Evaluate a - g(a) by the kernel's steps, for a g with g(0) ≠ 0."""
    r = _float32(a - centre)
    head, lost = _polynomial(r, p)
    whole = _float32(a - c0)
    rest = _float32(a - _float32(whole + c0))
    return _float32(whole - _float32(r * head + _float32(r * lost - rest)))


@numba.njit(cache=True)
def _evaluate_in_two(a: float, whole: float, p_rest: float, centre: float, c0: float, p: Array) -> float:
    """Evaluate whole·g(a) by the kernel's steps for segments of both signs."""
    r = _float32(a - centre)
    head, lost = _polynomial(r, p)
    lost = _float32(lost + p_rest)
    g = _float32(r * head + c0)
    less = _float32(c0 - g)
    rest = _float32(_float32(r * head + less) + _float32(r * lost + _float32(c0 - _float32(less + g))))
    return _float32(whole * g + _float32(whole * rest))


@numba.njit(cache=True)
def assess(
    a: Array, whole: Array, exact: Array, summed: bool, signed: bool, rest: float, centre: float, c0: float, p: Array
) -> tuple[float, float]:
    """Return the worst error in units of g and of whole - g, or of whole·g, and the worst error relative to g."""
    units, relative = 0.0, 0.0
    for i in range(a.size):
        if signed:
            value = whole[i] * exact[i]
            error = _evaluate_in_two(a[i], whole[i], rest, centre, c0, p) - value
            units, relative = max(units, _units(error, value)), max(relative, abs(error) / abs(value))
            continue
        g = _evaluate(a[i], centre, c0, p)
        value = whole[i] - exact[i]
        other = _evaluate_sum(a[i], centre, c0, p) if summed else _float32(whole[i] - g)
        units = max(units, _units(g - exact[i], exact[i]), _units(other - value, value))
        relative = max(relative, abs(g - exact[i]) / abs(exact[i]))
    return units, relative


class Sample(NamedTuple):
    """Points of a segment and the values there that ``assess`` needs.

    In order: a; 1 or a, from which the other side subtracts g or by which g is multiplied, 0 for neither; g; true if c0
    is subtracted first; true for segments of both signs; and the addend of p[0].
    """

    a: Array
    whole: Array
    exact: Array
    summed: bool
    signed: bool
    rest: float

    def of(self, chosen: Array) -> Sample:
        return self._replace(a=self.a[chosen], whole=self.whole[chosen], exact=self.exact[chosen])


class Segment:
    """A segment of a function, and its float32 with the exact g.

    For the segment at 0 these are the last octave and every 32nd float32 below, for the others every float32.
    """

    def __init__(self, task: Task, i: int) -> None:
        self.task, width, middle = task, 1.0 / task.per_unit, abs(task.middle(i))
        low, high = max(0.0, (middle - 0.5) * width), min((middle + 0.5) * width, task.bound)
        first, last = (int(np.float32(end).view(np.uint32)) for end in (max(low, LEAST), high))
        dense = first - 2 if middle else last - (1 << 23)
        patterns = np.concatenate([np.arange(first - 2, dense, 32), np.arange(dense, last + 3)])
        self.every = sample(task, i, patterns)
        if task.middle(i) < 0:
            low, high = -high, -low
        self.at_zero = middle == 0
        self.low, self.high = -high if task.signed and self.at_zero else low, high
        a = self.every.a
        self.printed = task.printed if task.printed in a else None
        places = np.arange(a.size)
        near_ends = np.minimum(places, places[::-1]) < a.size // 16
        self.some = self.every.of((places % 101 == 0) | (near_ends & (places % 9 == 0)))
        low, high = self.low - abs(self.low) * 2.0**-20, self.high + abs(self.high) * 2.0**-20
        cosines = [math.cos(math.pi * (2 * j + 1) / (2 * NODES)) for j in range(NODES)]
        self.nodes = [(low + high) / 2 + (high - low) / 2 * cosine for cosine in cosines]
        self.at_nodes = [task.g(a) for a in self.nodes]

    def centres(self) -> list[tuple[float, float]]:
        """Return candidates for the centre, with c0: 0, the float32 around a zero of g, or else multiples of 2^-13.

        The multiples exclude the outer tenths of the segment and have g within 0.02 ULP of a float32.
        """
        if self.low == 0:
            return [(0.0, nearest(self.task.g(0.0)))]
        if float(self.at_nodes[0]) * float(self.at_nodes[-1]) < 0:
            zero = np.float32(_halved(self.task, self.low, self.high))
            around = (zero, np.nextafter(zero, np.float32(-np.inf)), np.nextafter(zero, np.float32(np.inf)))
            if self.task.signed:
                around = around[:1]
            return [(float(centre), nearest(self.task.g(float(centre)))) for centre in around]
        margin = (self.high - self.low) / 10
        multiples = range(int((self.low + margin) * GRID), int((self.high - margin) * GRID))
        found = [(n / GRID, nearest(g)) for n in multiples if in_ulp(g := self.task.g(n / GRID)) < ALMOST]
        return [(centre, c0) for centre, c0 in found if self._differences_are_exact(centre)]

    def _differences_are_exact(self, centre: float) -> bool:
        difference = self.every.a - centre
        if self.task.signed and self.at_zero:  # for tiny x exact differences are impossible and irrelevant
            return centre != 0.0
        return np.array_equal(difference, difference.astype(np.float32))

    def cost(self, column: Column, sample: Sample) -> float:
        units, relative = assess(*sample, *column)
        if self.printed is not None:
            found = np.float32(1.0 - _evaluate(self.printed, *column))
            if found != nearest(1 - self.task.g(self.printed)):
                return math.inf
        return max(units / UNITS, relative / RELATIVE if self.task.symmetry in ("1-f", "neither") else 0.0)

    def fit(self, centre: float, c0: float, emphasis: Callable[[Array], Array], luck: float, rng: Any) -> Column:
        """Fit by least squares, reweighted towards the largest error; later coefficients compensate for roundings."""
        r = np.array([float(arb(a) - centre) for a in self.nodes])
        start = c0 if centre else self.task.g(0.0)
        pairs = zip(self.nodes, self.at_nodes, strict=True)
        wanted = np.array([float((g - start) / (arb(a) - centre)) for a, g in pairs]) - self.task.rest
        size = np.abs(np.array([float(g) for g in self.at_nodes]))
        place = 2 * (r - r.min()) / np.ptp(r) - 1
        weights = (np.abs(r) / size + 1e-3 / size.max()) * emphasis(place)
        p: list[float] = []
        # Near 0, a function with a zero there equals its first term.
        first = nearest(self.task.g(2.0**-60) * 2**60) if centre == c0 == 0 else None
        if self.task.signed and centre == _zero_of(self.task):
            first = nearest(_slope(self.task, centre))
        while len(p) < self.task.terms:
            leading = np.float32(_leading(r, wanted, weights, p, self.task.terms))
            if rng.random() < luck / (1 + len(p)):
                leading += rng.choice(np.array([-1, 1], np.float32)) * np.spacing(leading)
            p.append(first if not p and first is not None else float(leading))
        return Column(centre, c0, np.array(p))


def _leading(r: Array, wanted: Array, weights: Array, fixed: list[float], terms: int) -> float:
    scale, power = np.abs(r).max(), len(fixed)
    basis = np.stack([(r / scale) ** k for k in range(power, terms)], 1)
    rest = wanted - np.polyval(fixed[::-1], r) if fixed else wanted
    emphasis = np.ones_like(r)
    for _ in range(12 if power < 3 else 5):
        row = weights * np.sqrt(emphasis)
        solution = np.linalg.lstsq(basis * row[:, None], rest * row, rcond=None)[0]
        errors = np.abs(weights * (rest - basis @ solution))
        emphasis = np.maximum(emphasis * errors / errors.max(), 1e-9)
        emphasis /= emphasis.max()
    return float(solution[0] / scale**power)


def best_column(task: Task, i: int) -> tuple[Column, float, float]:
    """Find a segment's best column; return its worst error in units and relative, too.

    Raises:
        ValueError: there is no candidate for the centre.
    """
    if (abs(task.middle(i)) - 0.5) / task.per_unit >= task.bound:
        return Column(0.0, 0.0, np.zeros(task.terms)), 0.0, 0.0
    segment, rng = Segment(task, i), np.random.default_rng(i)
    centres, best, least = segment.centres(), None, math.inf
    if not centres:
        ends = f"{segment.low:.6g} to {segment.high:.6g}"
        raise ValueError(f"{task.name}: expected a multiple of 1/{GRID} with almost a float32 from {ends}, got none")
    costs: dict[tuple[float, float], float] = {}
    for n in range(max(TRIES, len(centres))):
        if n < len(centres):
            place = centres[n]
        else:
            leaders = sorted(costs, key=costs.__getitem__)[:BEST_CENTRES]
            place = leaders[rng.integers(len(leaders))]
        ends, power = rng.uniform(0, 3, 2), rng.choice([3, 6, 12])
        column = segment.fit(
            *place,
            lambda t, ends=ends, power=power: 1 + np.where(t < 0, *ends) * np.abs(t) ** power,
            0.6 if n >= len(centres) else 0.0,
            rng,
        )
        cost = segment.cost(column, segment.some)
        costs[place] = min(cost, costs.get(place, math.inf))
        if cost < least and (cost := segment.cost(column, segment.every)) < least:
            least, best = cost, column
    assert best is not None
    return best, *assess(*segment.every, *best)


def nearest(value: Any) -> float:
    """Round to float32, by way of float64."""
    return float(np.float32(float(value)))


def in_ulp(exact: arb) -> float:
    """Return the distance from the nearest float32, in its units of the last place."""
    return math.ldexp(abs(float(exact - nearest(exact))), 24 - math.frexp(float(exact))[1])


def sample(task: Task, i: int, patterns: Array) -> Sample:
    """Select the float32 of segment i among these bit patterns, with their exact values."""
    a = patterns.astype(np.uint32).view(np.float32).astype(np.float64)
    if task.signed:
        a = np.concatenate([-a[::-1], a])
    a = a[(np.rint(a * task.per_unit) == task.middle(i)) & (np.abs(a) <= np.float32(task.bound))]
    whole = a if task.symmetry in ("x+f", "x*neither") else np.full_like(a, task.symmetry != "linear")
    summed = task.symmetry == "x+f" and task.g(0.0) != 0
    return Sample(a, whole, task.exact(a), summed, task.signed, task.rest)


PART = 1 << 20


def walk(task: Task, columns: list[Column], screen: Console) -> float:
    """Return the worst error of the segments over every float32 from 0 to the bound, in units of the last place."""
    worst, last = 0.0, int(np.float32(task.bound).view(np.uint32))
    for first in track(range(int(np.float32(LEAST).view(np.uint32)), last + 1, PART), "walk", console=screen):
        patterns = np.arange(first, min(first + PART, last + 1))
        ends = patterns[[0, -1]].astype(np.uint32).view(np.float32).astype(np.float64)
        low, high = np.rint(ends * task.per_unit).astype(int).tolist()
        for i in range(task.count):
            if low <= abs(task.middle(i)) <= high:
                part = sample(task, i, patterns)
                if part.a.size:
                    worst = max(worst, assess(*part, *columns[i])[0])
    return worst


def search(task: Task, screen: Console, workers: int | None) -> tuple[Segments, float]:
    """Find the segments of a function, in several processes, and their worst error."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the worker processes, whose matrices have only 160 rows
    columns = []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as processes:
        futures = [processes.submit(best_column, task, i) for i in range(task.count)]
        for i, future in enumerate(track(futures, "segments", console=screen)):
            column, units, relative = future.result()
            columns.append(column)
            screen.print(f"{task.name} {i}: {units:.4f} ULP, {relative * 2**24:.4f}·2^-24")
    found = Segments(
        task.per_unit,
        nearest(task.bound),
        tuple(column.centre for column in columns),
        tuple(column.c0 for column in columns),
        tuple(tuple(float(column.p[power]) for column in columns) for power in range(task.terms)),
        task.rest,
    )
    return found, walk(task, columns, screen)


def printed(segments: Segments) -> Iterator[str]:
    """Write segments as formatted Python."""
    yield "Segments("
    yield f'    per_unit=float.fromhex("{short_hex(segments.per_unit)}"),'
    yield f'    bound=float.fromhex("{short_hex(segments.bound)}"),'
    yield from row_of("centre=", segments.centre, "    ")
    yield from row_of("c0=", segments.c0, "    ")
    yield "    p=("
    for row in segments.p:
        yield from row_of("", row, "        ")
    yield "    ),"
    if segments.rest:
        yield f'    rest=float.fromhex("{short_hex(segments.rest)}"),'
    yield ")"
