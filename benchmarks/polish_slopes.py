"""Find better constants for single segments of kernels/cpu/elementwise/coefficients.py, and print their columns.

    python -m benchmarks.polish_slopes [gelu_tanh:2 …]

Where a segment's g falls from c0 to a fraction of it, the rounding of the sum with c0 weighs most, so the centre is
looked for as well, among the multiples of 2^-13 at which g is almost a float32 and from which every difference is
exact. For each of many centres, emphases of the segment's ends and luck with roundings, a polynomial is fitted as in
``benchmarks.fit_slopes`` and judged by what counts: the worst error, relative and in units of the last place, of the
kernel's own steps over the segment's float32. Takes a minute for each segment.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from mpmath import mp, mpf

from aclnn.kernels.cpu.elementwise import coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Segments
from benchmarks.fit_slopes import Function, in_ulp, nearest, short_hex, slope
from benchmarks.references import Array, slope_reference

NODES = 160
TRIES = 500
BEST_CENTRES = 12
"""That share the tries which are left when every centre had one."""
RELATIVE = 1.45 * 2.0**-24
"""The relative error and the units of the last place that are wanted; the rounding of a product with dy adds half a
unit."""
UNITS = 0.98


def gelu_erf(a: Any) -> Any:
    return mp.erfc(a / mp.sqrt(2)) / 2 - a * mp.npdf(a)


def gelu_tanh(a: Any) -> Any:
    k, cubic = 2 * mp.sqrt(2 / mp.pi), mpf("0.044715")
    w, rise = k * (a + cubic * a**3), k * (1 + 3 * cubic * a * a)
    e = mp.exp(-w)
    return e * (1 + e - a * rise) / (1 + e) ** 2


FUNCTIONS: dict[str, tuple[Function, Segments]] = {
    "silu": (slope(mpf(1)), coefficients.SILU),
    "fast_gelu": (slope(mpf("1.702")), coefficients.FAST_GELU),
    "gelu_erf": (gelu_erf, coefficients.GELU_ERF),
    "gelu_tanh": (gelu_tanh, coefficients.GELU_TANH),
}
TASKS = ("gelu_tanh:2", "gelu_tanh:6")


@numba.njit(cache=True)
def _float32(value: float) -> float:
    return np.float64(np.float32(value))


@numba.njit(cache=True)
def judge(a: Array, exact: Array, centre: float, c0: float, p: Array) -> tuple[float, float]:
    """The worst relative error and the worst in units, by the kernel's steps (docs/numerics.md) in float32.

    A sum of a product and a number rounds to 53 digits before it does to 24, which changes about one in 2^29.
    """
    relative, units = 0.0, 0.0
    for i in range(a.size):
        r = _float32(a[i] - centre)
        upper = p[-1]
        for k in range(p.size - 2, 0, -1):
            upper = _float32(upper * r + p[k])
        head = _float32(upper * r + p[0])
        lost = _float32(upper * r + _float32(p[0] - head))
        g = _float32(r * head + _float32(r * lost + c0))
        error = abs(g - exact[i])
        relative = max(relative, error / abs(exact[i]))
        units = max(units, math.ldexp(error, 24 - math.frexp(exact[i])[1]))
    return relative, units


class Column(NamedTuple):
    """A segment's constants."""

    centre: float
    c0: float
    p: Array


class Segment:
    """One segment of a function, and every float32 in it with the exact g."""

    def __init__(self, name: str, i: int) -> None:
        self.g, segments = FUNCTIONS[name]
        width = 1 / mpf(segments.per_unit)
        self.low, self.high = (i - mpf(1) / 2) * width, min((i + mpf(1) / 2) * width, mpf(segments.bound))
        self.now = Column(segments.centre[i], segments.c0[i], np.array([row[i] for row in segments.p]))
        first, last = (int(np.float32(end).view(np.uint32)) for end in (self.low, self.high))
        a = np.arange(first - 2, last + 3, dtype=np.uint32).view(np.float32).astype(np.float64)
        self.a = a[(np.rint(a * segments.per_unit) == i) & (a <= segments.bound)]
        self.exact, _ = slope_reference(name, -self.a)
        places = np.arange(self.a.size)
        near_ends = np.minimum(places, places[::-1]) < self.a.size // 16
        few = (places % 101 == 0) | (near_ends & (places % 9 == 0))
        self.few, self.few_exact = self.a[few], self.exact[few]
        margin = mpf(2) ** -20
        low, high = self.low * (1 - margin), self.high * (1 + margin)
        cosines = [mp.cos(mp.pi * (2 * j + 1) / (2 * NODES)) for j in range(NODES)]
        self.nodes = [(low + high) / 2 + (high - low) / 2 * cosine for cosine in cosines]
        self.at_nodes = [self.g(a) for a in self.nodes]

    def centres(self) -> Iterator[tuple[float, float]]:
        """Multiples of 2^-13 beyond the outer tenths at which g is within 0.02 ULP of a float32, and that."""
        margin = (self.high - self.low) / 10
        for n in range(int((self.low + margin) * 8192), int((self.high - margin) * 8192)):
            exact = self.g(mpf(n) / 8192)
            c0 = nearest(exact)
            difference = self.a - n / 8192
            if in_ulp(exact - c0, exact) < 0.02 and np.array_equal(difference, difference.astype(np.float32)):
                yield n / 8192, float(c0)

    def cost(self, column: Column, a: Array, exact: Array) -> float:
        relative, units = judge(a, exact, *column)
        return max(relative / RELATIVE, units / UNITS)

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
        while len(p) < self.now.p.size:
            leading = np.float32(_leading(r, wanted, weights, p, self.now.p.size))
            if rng.random() < luck / (1 + len(p)):
                leading += rng.choice(np.array([-1, 1], np.float32)) * np.spacing(leading)
            p.append(float(leading))
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


def polished(name: str, i: int) -> Column:
    """The best column found for a segment: the one that it has if there is no better one."""
    segment, rng = Segment(name, i), np.random.default_rng(i)
    best = segment.now
    least = segment.cost(best, segment.a, segment.exact)
    print(f"{name} segment {i}: {_errors(segment, best)} now", flush=True)
    centres, costs = [*segment.centres(), best[:2]], {}
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
        cost = segment.cost(column, segment.few, segment.few_exact)
        costs[place] = min(cost, costs.get(place, math.inf))
        if cost < least and (cost := segment.cost(column, segment.a, segment.exact)) < least:
            least, best = cost, column
    print(f"{name} segment {i}: {_errors(segment, best)} found", flush=True)
    return best


def _errors(segment: Segment, column: Column) -> str:
    relative, units = judge(segment.a, segment.exact, *column)
    return f"{relative * 2**24:.4f}·2^-24, {units:.4f} ULP"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("segments", nargs="*", default=TASKS)
    for task in parser.parse_args().segments:
        name, _, i = task.partition(":")
        column = polished(name, int(i))
        print(" ", *map(short_hex, (column.centre, column.c0, *column.p)), flush=True)


if __name__ == "__main__":
    main()
