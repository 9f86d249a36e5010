"""Every formula that is evaluated in general, on lanes of float64, or as a product with fitted functions: its error in
units of float32's last place.

    python -m benchmarks.general [--stride 4096] [--tuples 2000000] [--only mish_forward …]

``walk`` takes every ``stride``-th float32 x with dy = 1 and the attributes' defaults, of formulas of x or of dy and x;
``tuples`` takes random operands (half of them any bit pattern) and attributes. The formulas are those that the
operators' declarations lead to. Writes general.csv, a row for each formula, result and kind; the rows of formulas that
were not asked for stay, but for those that are no longer evaluated so.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Elementwise
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.elementwise.fitted import fast
from aclnn.operators import OPERATORS
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import FORMATS
from tools.works import works_of

Array = np.ndarray[Any, Any]
FLOAT32 = FORMATS["float32"]
FILE = Path(__file__).parent / "general.csv"
HEADER = ("formula", "result", "kind", "judged", "worst_ulp", "at", "above_half", "broken")
SEED = 20261124
PART, TOGETHER = 1 << 14, 256
EXTREMES = (0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Asked:
    """A formula with its number of operands and its attributes' defaults."""

    formula: Callable[..., Any]
    operands: int
    results: int
    numbers: tuple[float, ...]

    def run(self, operands: list[Array], numbers: tuple[float, ...]) -> list[Array]:
        """Compute by the kernel."""
        layout = Layout(DataType.FLOAT, operands[0].shape, (1,))
        plan = kernels.elementwise(self.formula, (layout,) * self.operands, (layout,) * self.results, numbers)
        results = [np.empty_like(operands[0]) for _ in range(self.results)]
        plan.run([a.ctypes.data for a in operands], [a.ctypes.data for a in results], 0)
        return results


def asked() -> dict[str, Asked]:
    """Every formula without a fitted version, by name."""
    works = (work for operator in OPERATORS for work in works_of(operator) if isinstance(work, Elementwise))
    found: dict[str, Asked] = {}
    for work in works:
        if fast(work.formula, DataType.FLOAT) is None:
            one = Asked(work.formula, len(work.inputs), len(work.outputs), work.numbers)
            found.setdefault(work.formula.__name__, one)
    return found


class Tally:
    """The errors of one result."""

    def __init__(self) -> None:
        self.judged = self.above_half = self.broken = 0
        self.worst, self.at = 0.0, ""

    def add(self, got: Array, exact: Array, operands: list[Array], numbers: tuple[float, ...]) -> None:
        """Count results against exact values, both infinite or NaN where one is."""
        with np.errstate(all="ignore"):
            wide = got.astype(np.float64)
            rounded = exact.astype(np.float32)
            difference = np.abs(wide - exact)
        both = np.isfinite(wide) & np.isfinite(rounded)
        alike = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
        # One that rounds to infinity or just not is half a unit off.
        edge = np.abs(np.abs(exact) / 2.0**128 - 1.0) < 2.0**-24
        self.broken += int((~both & ~alike & ~edge).sum())
        error = np.where(both, difference / FLOAT32.ulp(np.where(both, exact, 1.0)), 0.0)
        self.judged += int(both.sum())
        self.above_half += int((error > 0.5).sum())
        place = int(error.argmax())
        if error[place] > self.worst:
            self.worst = float(error[place])
            self.at = " ".join(f"{float(value):.9g}" for value in (*(a[place] for a in operands), *numbers))


def walk(one: Asked, stride: int) -> Iterator[tuple[list[Array], tuple[float, ...]]]:
    """Every x, in parts."""
    if one.operands > 2 or one.results > 1 or (one.operands == 2 and not _of_dy(one)):
        return
    for row in range(1 << 12):
        x = np.arange((row << 20) + row % stride, (row + 1) << 20, stride, dtype=np.uint32).view(np.float32)
        for part in np.array_split(x, max(1, x.size // PART)):
            yield [*[np.ones_like(part)] * (one.operands - 1), part], one.numbers


def _of_dy(one: Asked) -> bool:
    return isinstance(one.formula, Gradient) or one.formula.__code__.co_varnames[0] == "dy"


def tuples(one: Asked, count: int) -> Iterator[tuple[list[Array], tuple[float, ...]]]:
    """Random operands, with other attributes in every part; a sixteenth of the parts have extreme ones."""
    for begin in range(0, count, PART):
        rng = np.random.default_rng([SEED, begin])
        operands = []
        for _ in range(one.operands):
            values = np.frombuffer(rng.bytes(4 * PART), np.float32).copy()
            values[::2] = rng.normal(size=PART // 2) * rng.choice([0.1, 3.0, 30.0], PART // 2)
            operands.append(rng.permutation(values))
        drawn = (
            rng.choice(EXTREMES, len(one.numbers)) if begin // PART % 16 == 15 else rng.normal(size=len(one.numbers))
        )
        yield operands, tuple(float(np.float32(value)) for value in drawn)


def judge(one: Asked, parts: Iterator[tuple[list[Array], tuple[float, ...]]], workers: int) -> list[Tally]:
    """The errors of each result."""
    tallies = [Tally() for _ in range(one.results)]

    def take(part: tuple[list[Array], tuple[float, ...]]) -> list[tuple[Array, Array, Any]]:
        operands, numbers = part
        exact = [
            Function(one.formula, numbers, result).golden(operands, FLOAT32).value for result in range(one.results)
        ]
        return list(zip(one.run(operands, numbers), exact, [part] * one.results, strict=True))

    with ThreadPoolExecutor(workers) as executor:
        # An executor takes all that it is given at once, and every float32 is 16 GiB.
        while some := list(islice(parts, TOGETHER)):
            for found in executor.map(take, some):
                for tally, (got, exact, (operands, numbers)) in zip(tallies, found, strict=True):
                    tally.add(got, exact, operands, numbers)
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    formulas = asked()
    parser.add_argument("--stride", type=int, default=4096)
    parser.add_argument("--tuples", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", choices=formulas, default=list(formulas))
    parser.add_argument("--workers", type=int, default=threads.shared().threads)
    options = parser.parse_args()
    threads.set_threads(1)
    for name in options.only:
        one, lines = formulas[name], []
        kinds = {
            "every x" if options.stride == 1 else f"every {options.stride}th x": walk(one, options.stride),
            "random": tuples(one, options.tuples),
        }
        for kind, parts in kinds.items():
            for result, tally in enumerate(judge(one, parts, options.workers)):
                if tally.judged:
                    counts = tally.above_half, tally.broken
                    lines.append((name, result, kind, tally.judged, f"{tally.worst:.5f}", tally.at, *counts))
        _save(name, lines, formulas)
        print(*(" ".join(map(str, line)) for line in lines), sep="\n", flush=True)


def _save(name: str, lines: list[Any], formulas: Container[str]) -> None:
    rows: list[Any] = []
    if FILE.exists():
        with open(FILE, newline="") as before:
            rows = [row for row in csv.reader(before) if row[0] in formulas and row[0] != name]
    with open(FILE, "w", newline="") as written:
        csv.writer(written).writerows([HEADER, *sorted([*rows, *lines], key=lambda row: str(row[0]))])


if __name__ == "__main__":
    main()
