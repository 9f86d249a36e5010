"""Every formula that an operator's declaration leads to, but the ten of ``benchmarks.exhaustive``: its error in units
of float32's last place.

    python -m benchmarks.general [--stride 1] [--tuples 10000000] [--only mish_forward …] [--kinds walk random]

``walk`` takes every ``stride``-th float32 x with dy = 1 and the attributes' defaults, of formulas of x or of dy and x;
``tuples`` takes random operands (half of them any bit pattern) and attributes. Writes general.csv, a row for each
formula, result and kind; the rows of formulas and kinds that were not asked for stay.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Elementwise
from aclnn.core.tensor import Layout
from aclnn.kernels.cpu import threads
from aclnn.operators import OPERATORS
from aclnn.support.atomic import replaced
from aclnn.verify.goldens.values import VALUE_BOUND_ULP, Function
from aclnn.verify.number_formats import FORMATS
from benchmarks.bounds import enclosing
from benchmarks.references import EVERY
from benchmarks.tallies import spread, units_in
from tools.works import works_of

Array = np.ndarray[Any, Any]
Case = tuple[list[Array], tuple[float, ...]]
"""Operands and attributes."""
FLOAT32 = FORMATS["float32"]
FILE = Path(__file__).parent / "general.csv"
HEADER = ("formula", "result", "kind", "assessed", "worst_ulp", "at", "above_half", "broken")
SEED = 20261124
PART = 1 << 15
BEYOND = 2.0**129
"""Bound of the exact value beyond which an infinite float32 is correct."""
EXTREMES = (0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Subject:
    """A formula under test, with the number of its operands and the defaults of its attributes."""

    formula: Callable[..., Any]
    operands: int
    results: int
    numbers: tuple[float, ...]

    def run(self, operands: list[Array], numbers: tuple[float, ...]) -> list[Array]:
        """Compute by the kernel."""
        plan = _plan(self, operands[0].size, tuple(map(float.hex, numbers)))
        results = [np.empty_like(operands[0]) for _ in range(self.results)]
        plan.run([a.ctypes.data for a in operands], [a.ctypes.data for a in results], 0)
        return results


@lru_cache  # keyed by numbers as text, since 0.0 equals -0.0
def _plan(one: Subject, size: int, numbers: tuple[str, ...]) -> kernels.Plan:
    layout, given = Layout(DataType.FLOAT, (size,), (1,)), tuple(map(float.fromhex, numbers))
    return kernels.elementwise(one.formula, (layout,) * one.operands, (layout,) * one.results, given)


def subjects() -> dict[str, Subject]:
    """Return by name every formula but those of ``benchmarks.exhaustive``."""
    works = (work for operator in OPERATORS for work in works_of(operator) if isinstance(work, Elementwise))
    found: dict[str, Subject] = {}
    for work in works:
        if getattr(work.formula, "derivative", work.formula) not in EVERY.values():
            one = Subject(work.formula, len(work.inputs), len(work.outputs), work.numbers)
            found.setdefault(work.formula.__name__, one)
    return found


@dataclass
class Tally:
    """Counts of the errors of one result."""

    assessed: int = 0
    above_half: int = 0
    broken: int = 0
    worst: float = 0.0
    at: str = ""

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.assessed += other.assessed
        self.above_half += other.above_half
        self.broken += other.broken
        if other.worst > self.worst:
            self.worst, self.at = other.worst, other.at


@numba.njit(nogil=True, error_model="numpy")
def score(got: Array, low: Array, high: Array, undecided: Array) -> tuple[int, int, float, int]:
    """Measure errors of finite results by bounds of the exact ones, and mark results whose bounds are too wide.

    Returns the number of results measured, the number with errors above half a unit, the worst error and its index.
    """
    assessed, above_half, worst, place = 0, 0, 0.0, 0
    for i in range(got.size):
        undecided[i] = False
        if (got[i] == np.inf and low[i] > BEYOND) or (got[i] == -np.inf and high[i] < -BEYOND):
            continue
        exact = 0.5 * (low[i] + high[i])
        units = units_in(exact)
        error, doubt = abs(np.float64(got[i]) - exact) * units, (high[i] - low[i]) * units
        undecided[i] = not (doubt <= VALUE_BOUND_ULP and error < np.inf and abs(exact) < 2.0**127)
        if undecided[i]:
            continue
        assessed += 1
        above_half += error - doubt > 0.5
        if error > worst:
            worst, place = error, i
    return assessed, above_half, worst, place


def assess(one: Subject, operands: list[Array], numbers: tuple[float, ...]) -> dict[int, Tally]:
    """Return the errors of each result."""
    ends = np.empty((one.results, 2, operands[0].size))
    enclosing(one.formula, one.operands, len(numbers))(tuple(operands), np.array(numbers), ends)
    ends[..., ~np.logical_and.reduce([np.isfinite(x) for x in operands])] = np.nan
    tallies = {}
    for result, got in enumerate(one.run(operands, numbers)):
        undecided = np.empty(got.size, np.bool_)
        assessed, above_half, worst, place = score(got, *ends[result], undecided)
        tally = tallies[result] = Tally(assessed, above_half, 0, worst, _written(operands, numbers, place))
        if undecided.any():
            tally.add(_resolved(one, got[undecided], [x[undecided] for x in operands], numbers, result))
    return tallies


def _written(operands: list[Array], numbers: tuple[float, ...], place: int) -> str:
    return " ".join(f"{float(value):.9g}" for value in (*(x[place] for x in operands), *numbers))


def _resolved(one: Subject, got: Array, operands: list[Array], numbers: tuple[float, ...], result: int) -> Tally:
    """Measure errors by golden values, and count results whose infinities or NaN do not match."""
    exact = Function(one.formula, numbers, result).golden(operands, FLOAT32).value
    with np.errstate(all="ignore"):
        wide = got.astype(np.float64)
        rounded = exact.astype(np.float32)
        difference = np.abs(wide - exact)
    finite = np.isfinite(wide) & np.isfinite(rounded)
    equal = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
    # At the border between the largest number and infinity the error is half a unit.
    edge = np.abs(np.abs(exact) / 2.0**128 - 1.0) < 2.0**-24
    error = np.where(finite, difference / FLOAT32.ulp(np.where(finite, exact, 1.0)), 0.0)
    place = int(error.argmax())
    counts = int(finite.sum()), int((error > 0.5 + 2.0**-20).sum()), int((~finite & ~equal & ~edge).sum())
    return Tally(*counts, float(error[place]), _written(operands, numbers, place))


def _walks(one: Subject) -> bool:
    """Return true if a walk over all x covers the formula: one of x alone, or of dy and x."""
    of_dy = next(iter(signature(one.formula).parameters)) == "dy"
    return one.results == 1 and (one.operands == 1 or (one.operands == 2 and of_dy))


def walk(one: Subject, stride: int, row: int) -> Iterator[Case]:
    """Yield every x of a row of 2^20 bit patterns, or one in ``stride`` of them."""
    x = np.arange((row << 20) + row % stride, (row + 1) << 20, stride, dtype=np.uint32).view(np.float32)
    for part in np.array_split(x, max(1, x.size // PART)):
        yield [*[np.ones_like(part)] * (one.operands - 1), part], one.numbers


def tuples(one: Subject, place: int) -> Iterator[Case]:
    """Yield random operands, with new attributes for each part; a sixteenth of the parts have extreme attributes."""
    rng = np.random.default_rng([SEED, place * PART])
    operands = []
    for _ in range(one.operands):
        values = np.frombuffer(rng.bytes(4 * PART), np.float32).copy()
        values[::2] = rng.normal(size=PART // 2) * rng.choice([0.1, 3.0, 30.0], PART // 2)
        operands.append(rng.permutation(values))
    count = len(one.numbers)
    drawn = rng.choice(EXTREMES, count) if place % 16 == 15 else rng.normal(size=count)
    yield operands, tuple(float(np.float32(value)) for value in drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    formulas = subjects()
    parser.add_argument("--stride", type=int, default=1, help="take one float32 in so many")
    parser.add_argument("--tuples", type=int, default=10_000_000)
    parser.add_argument("--only", nargs="+", choices=formulas, default=list(formulas))
    parser.add_argument("--kinds", nargs="+", choices=("walk", "random"), default=("walk", "random"))
    parser.add_argument("--workers", type=int, default=threads.shared().threads)
    options = parser.parse_args()
    threads.set_threads(1)
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for name in options.only:
            one, lines = formulas[name], []
            kinds: dict[str, tuple[Callable[[int], Iterator[Case]], range]] = {}
            if "random" in options.kinds:
                kinds["random"] = partial(tuples, one), range(-(-options.tuples // PART))
            if "walk" in options.kinds and _walks(one):
                every = "every x" if options.stride == 1 else f"every {options.stride}th x"
                kinds[every] = partial(walk, one, options.stride), range(1 << 12)
            for kind, (cases, items) in kinds.items():
                tallies = spread(partial(_assessed, one, cases), items, options.workers, progress, f"{name} {kind}")
                for result, tally in tallies.items():
                    counts = tally.above_half, tally.broken
                    lines.append((name, result, kind, tally.assessed, f"{tally.worst:.5f}", tally.at, *counts))
                    progress.console.print(f"{name} {result} {kind}: {tally.worst:.5f} units at {tally.at}")
            _save(name, lines, formulas)


def _assessed(one: Subject, cases: Callable[[int], Iterator[Case]], item: int) -> dict[int, Tally]:
    total = {result: Tally() for result in range(one.results)}
    for operands, numbers in cases(item):
        for result, tally in assess(one, operands, numbers).items():
            total[result].add(tally)
    return total


def _save(name: str, lines: list[Any], formulas: Container[str]) -> None:
    rows: list[Any] = []
    if FILE.exists():
        with open(FILE, newline="") as before:
            again = {line[2] == "random" for line in lines}
            rows = [
                row
                for row in csv.reader(before)
                if row[0] in formulas and not (row[0] == name and (row[2] == "random") in again)
            ]
    with replaced(FILE) as (fresh,), open(fresh, "w", newline="") as written:
        ordered = sorted([*rows, *lines], key=lambda row: (str(row[0]), row[2] != "random"))
        csv.writer(written).writerows([HEADER, *ordered])


if __name__ == "__main__":
    main()
