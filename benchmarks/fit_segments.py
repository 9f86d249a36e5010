"""Find the polynomials by segments of the float32 activations and of their derivatives, for aclnn.kernels.fitted.

    python -m benchmarks.fit_segments slopes
    python -m benchmarks.fit_segments values

Prints what each function's module calls ``FLOAT``.

Each segment gets a centre, c0 and a polynomial of (g(a) - c0)/r in r = a - centre. Centres are tried wherever g is
almost a float32 and every difference is exact, with many emphases of the segment's ends and much luck in rounding
coefficients: how near to one rounding the result is depends on how the numbers' units lie to one another, more than on
the fit. What counts is the worst error of the kernel's own steps over the segment's float32, all of them. Needs mpmath;
takes a quarter of an hour on two cores for either module.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from textwrap import wrap
from typing import Any, NamedTuple

import numba
import numpy as np
from mpmath import mp, mpf
from rich.console import Console
from rich.progress import track

from benchmarks.references import Array, forward_reference, slope_reference

Function = Callable[[Any], Any]

mp.dps = 40
NODES = 160
TRIES = 300
"""At least; every centre has one, a share of the rest goes to each of the best."""
BEST_CENTRES = 12
GRID = 8192
"""Centres are multiples of its reciprocal."""
ALMOST = 0.02
"""Units of a float32 that g may be off it at a centre."""
LEAST = 2.0**-10
"""Below it g is g(0) and a product, as far as float32 goes."""
UNITS, RELATIVE = 0.95, 1.45 * 2.0**-24
"""The errors that are wanted, in units of the last place and, where a product with dy adds half a unit, relatively."""


class Task(NamedTuple):
    """What to approximate for 0 ≤ a ≤ bound, on so many segments of width 1/per_unit, by so many coefficients each.

    ``printed``: a of a worked example whose result lies so near to where its sixth digit changes that f(a) must be the
    nearest float32.
    """

    g: Function
    per_unit: float
    bound: float
    count: int
    terms: int
    printed: float = math.nan


def logistic_slope(scale: Any) -> Function:
    """g(a) = f(-a), f being the derivative of x/(1 + e^(-scale·x))."""

    def g(a: Any) -> Any:
        e = mp.exp(-scale * a)
        return e * (1 + e - scale * a) / (1 + e) ** 2

    return g


def erf_slope(a: Any) -> Any:
    return mp.erfc(a / mp.sqrt(2)) / 2 - a * mp.npdf(a)


def tanh_exponent(a: Any) -> Any:
    return 2 * mp.sqrt(2 / mp.pi) * (a + mpf("0.044715") * a**3)


def tanh_slope(a: Any) -> Any:
    e, rise = mp.exp(-tanh_exponent(a)), 2 * mp.sqrt(2 / mp.pi) * (1 + 3 * mpf("0.044715") * a * a)
    return e * (1 + e - a * rise) / (1 + e) ** 2


SCALE = mpf("1.702")
SLOPES = {
    # One step below 1.5: a = 1, a boundary, goes to the lower segment.
    "silu": Task(logistic_slope(mpf(1)), 1.5 - 2.0**-23, 10.333, 16, 7, printed=1.0),
    "fast_gelu": Task(logistic_slope(SCALE), 2.8125, 5.5, 16, 7),
    "gelu_erf": Task(erf_slope, 1.640625, 4.25, 8, 8),
    "gelu_tanh": Task(tanh_slope, 1.6015625, 4.25, 8, 8),
}
VALUES = {
    "silu": Task(lambda a: a / (1 + mp.exp(a)), 1.625, 9.538, 16, 6),
    "fast_gelu": Task(lambda a: a / (1 + mp.exp(SCALE * a)), 2.75, 5.636, 16, 6),
    "gelu_erf": Task(lambda a: a * mp.erfc(a / mp.sqrt(2)) / 2, 3.0, 5.166, 16, 7),
    "gelu_tanh": Task(lambda a: a / (1 + mp.exp(tanh_exponent(a))), 3.25, 4.769, 16, 7),
}


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
def _evaluate(a: float, centre: float, c0: float, p: Array) -> float:
    """g(a) by the kernel's steps (docs/numerics.md) in float32.

    A sum of a product and a number rounds to 53 digits before it does to 24, which changes about one in 2^29.
    """
    r = _float32(a - centre)
    upper = p[-1]
    for k in range(p.size - 2, 0, -1):
        upper = _float32(upper * r + p[k])
    head = _float32(upper * r + p[0])
    lost = _float32(upper * r + _float32(p[0] - head))
    return _float32(r * head + _float32(r * lost + c0))


@numba.njit(cache=True)
def judge(a: Array, whole: Array, exact: Array, centre: float, c0: float, p: Array) -> tuple[float, float]:
    """The worst error: in units of g and of whole - g; relative to g."""
    units, relative = 0.0, 0.0
    for i in range(a.size):
        g = _evaluate(a[i], centre, c0, p)
        rest = whole[i] - exact[i]
        units = max(units, _units(g - exact[i], exact[i]), _units(_float32(whole[i] - g) - rest, rest))
        relative = max(relative, abs(g - exact[i]) / abs(exact[i]))
    return units, relative


class Sample(NamedTuple):
    """Some of a segment's a; 1 or a, from which the other side takes g; and g."""

    a: Array
    whole: Array
    exact: Array

    def of(self, chosen: Array) -> Sample:
        return Sample(self.a[chosen], self.whole[chosen], self.exact[chosen])


class Segment:
    """One segment of a function, and its float32 with the exact g: all, or of the first segment's the last octave and
    every 32nd below.
    """

    def __init__(self, kind: str, name: str, i: int) -> None:
        task = (SLOPES if kind == "slopes" else VALUES)[name]
        self.g, self.terms, self.is_slope, width = task.g, task.terms, kind == "slopes", 1 / mpf(task.per_unit)
        self.low, self.high = max(mpf(0), (i - mpf(1) / 2) * width), min((i + mpf(1) / 2) * width, mpf(task.bound))
        first, last = (int(np.float32(end).view(np.uint32)) for end in (max(self.low, mpf(LEAST)), self.high))
        dense = first - 2 if i else last - (1 << 23)
        patterns = np.concatenate([np.arange(first - 2, dense, 32), np.arange(dense, last + 3)])
        a = patterns.astype(np.uint32).view(np.float32).astype(np.float64)
        a = a[(np.rint(a * task.per_unit) == i) & (a <= np.float32(task.bound))]
        exact = slope_reference(name, -a)[0] if self.is_slope else -forward_reference(f"{name}_forward", -a)
        self.every = Sample(a, np.ones_like(a) if self.is_slope else a, exact)
        self.printed = task.printed if task.printed in a else None
        places = np.arange(a.size)
        near_ends = np.minimum(places, places[::-1]) < a.size // 16
        self.some = self.every.of((places % 101 == 0) | (near_ends & (places % 9 == 0)))
        margin = mpf(2) ** -20
        low, high = self.low * (1 - margin), self.high * (1 + margin)
        cosines = [mp.cos(mp.pi * (2 * j + 1) / (2 * NODES)) for j in range(NODES)]
        self.nodes = [(low + high) / 2 + (high - low) / 2 * cosine for cosine in cosines]
        self.at_nodes = [self.g(a) for a in self.nodes]

    def centres(self) -> list[tuple[float, float]]:
        """Where polynomials begin, and c0 there: 0, the float32 around a zero of g, or else multiples of 2^-13.

        These lie beyond the outer tenths, g within 0.02 ULP of a float32.
        """
        if self.low == 0:
            return [(0.0, float(self.g(mpf(0))))]
        if self.at_nodes[0] * self.at_nodes[-1] < 0:
            zero = np.float32(float(mp.findroot(self.g, (self.low, self.high), solver="anderson")))
            around = (zero, np.nextafter(zero, np.float32(0)), np.nextafter(zero, np.float32(np.inf)))
            return [(float(centre), nearest(self.g(mpf(float(centre))))) for centre in around]
        margin = (self.high - self.low) / 10
        multiples = range(int((self.low + margin) * GRID), int((self.high - margin) * GRID))
        found = [(n / GRID, nearest(exact)) for n in multiples if in_ulp(exact := self.g(mpf(n) / GRID)) < ALMOST]
        return [(centre, c0) for centre, c0 in found if self._differences_are_exact(centre)]

    def _differences_are_exact(self, centre: float) -> bool:
        difference = self.every.a - centre
        return np.array_equal(difference, difference.astype(np.float32))

    def cost(self, column: Column, sample: Sample) -> float:
        units, relative = judge(*sample, *column)
        if self.printed is not None:
            found = np.float32(1.0 - _evaluate(self.printed, *column))
            if found != nearest(1 - self.g(mpf(self.printed))):
                return math.inf
        return max(units / UNITS, relative / RELATIVE if self.is_slope else 0.0)

    def fit(self, centre: float, c0: float, emphasis: Callable[[Array], Array], luck: float, rng: Any) -> Column:
        """By least squares reweighted towards the largest error; the later coefficients make up for the roundings."""
        r = np.array([float(a - mpf(centre)) for a in self.nodes])
        wanted = np.array([
            float((g - mpf(c0)) / (a - mpf(centre))) for a, g in zip(self.nodes, self.at_nodes, strict=True)
        ])  # fmt: skip
        size = np.abs(np.array([float(g) for g in self.at_nodes]))
        place = 2 * (r - r.min()) / np.ptp(r) - 1
        weights = (np.abs(r) / size + 1e-3 / size.max()) * emphasis(place)
        p: list[float] = []
        while len(p) < self.terms:
            leading = np.float32(_leading(r, wanted, weights, p, self.terms))
            if rng.random() < luck / (1 + len(p)):
                leading += rng.choice(np.array([-1, 1], np.float32)) * np.spacing(leading)
            # Next to 0 a value is its first term.
            p.append(0.5 if not p and centre == c0 == 0 else float(leading))
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


def best_column(kind: str, name: str, i: int) -> tuple[Column, float, float]:
    """A segment's best column, its worst error in units and relative."""
    segment, rng = Segment(kind, name, i), np.random.default_rng(i)
    centres, best, least = segment.centres(), None, math.inf
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
    return best, *judge(*segment.every, *best)


def nearest(value: Any) -> float:
    """A float32; rounded to 53 digits on the way."""
    return float(np.float32(float(value)))


def in_ulp(exact: Any) -> float:
    """How far from a float32, in its units."""
    return float(abs(exact - nearest(exact)) / mp.ldexp(1, int(mp.frexp(exact)[1]) - 24))


def short_hex(value: float) -> str:
    mantissa, _, exponent = float(value).hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


LINE = 120


def _row(start: str, values: Any, indent: str) -> Iterator[str]:
    """``start``row("…"), as the formatter lays it out."""
    words = [short_hex(value) for value in values]
    line = f'{indent}{start}row("{" ".join(words)}"),'
    if len(line) <= LINE:
        yield line
        return
    yield f"{indent}{start}row("
    for text in wrap(" ".join(words), LINE - len(indent) - 7):
        space = "" if text.endswith(words[-1]) else " "
        yield f'{indent}    "{text}{space}"'
    yield f"{indent}),"


def printed(task: Task, columns: list[Column]) -> Iterator[str]:
    """``FLOAT`` of a function's module."""
    yield "FLOAT = Segments("
    yield f'    per_unit=float.fromhex("{short_hex(task.per_unit)}"),'
    yield f'    bound=float.fromhex("{short_hex(nearest(task.bound))}"),'
    for field in ("centre", "c0"):
        yield from _row(f"{field}=", [getattr(column, field) for column in columns], "    ")
    yield "    p=("
    for power in range(task.terms):
        yield from _row("", [column.p[power] for column in columns], "        ")
    yield "    ),"
    yield ")"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("slopes", "values"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    tasks = SLOPES if options.kind == "slopes" else VALUES
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes: their matrices have 160 rows
    places = [(name, i) for name, task in tasks.items() for i in range(task.count)]
    screen, found = Console(stderr=True), {}
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as processes:
        futures = [processes.submit(best_column, options.kind, *place) for place in places]
        for place, future in track(list(zip(places, futures, strict=True)), "segments", console=screen):
            found[place], units, relative = future.result()
            screen.print(f"{place[0]} {place[1]}: {units:.4f} ULP, {relative * 2**24:.4f}·2^-24")
    for name, task in tasks.items():
        print(f"# {name}", *printed(task, [found[name, i] for i in range(task.count)]), sep="\n")


if __name__ == "__main__":
    main()
