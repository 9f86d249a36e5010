"""Every float32 through every activation and its gradient, and gradients of random dy in all three data types: the
error of aclnn and of PyTorch in units of the last place.

    python -m benchmarks.exhaustive [--quick] [--only silu silu_forward silu_products silu_hardest …]

Writes exhaustive.csv (a row per operator and provider), exhaustive_histogram.csv (how many inputs have which error),
exhaustive_profile.csv (the worst error by x), exhaustive_bits.csv (a digest of what aclnn computed),
exhaustive_products.csv (random dy, see benchmarks.products) and exhaustive_hardest.csv (see benchmarks.hardest), then
the tables of docs/numerics.md; the rows of operators that were not asked for stay.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aclnn.kernels.cpu import threads
from benchmarks import hardest, products, tables
from benchmarks.candidates import candidates, ours
from benchmarks.references import EVERY, Array, reference
from benchmarks.tallies import spread, units_in

HERE = Path(__file__).parent
Row = tuple[object, ...]

PART = 1 << 15
"""Inputs per block, so that their references of 8 bytes each stay in the second-level cache."""
BIN = 0.05
BINS = 24
"""Bins of the histogram; the last one collects all larger errors."""
NEAR = 2.0**-31
"""Relative error, at most 2^-7 units, below which a result counts as exact."""


@numba.njit(nogil=True)
def score(x: Array, got: Array, exact: Array, counts: Array, worst: Array, profile: Array, first_row: int) -> int:
    """Add a block's errors to the counts; return the number of finite inputs with a result that is not finite.

    ``worst`` has (error, x) for negative and for other x, ``profile`` the worst error for each 2^20 adjacent patterns.
    """
    near, negative = 0, 0
    for i in range(x.size):
        near += abs(np.float64(got[i]) - exact[i]) <= NEAR * abs(exact[i])
        negative += math.copysign(1.0, x[i]) < 0.0
    if near == x.size:  # all in the first bin, as for all tiny and huge x
        counts[0, 0] += negative
        counts[1, 0] += x.size - negative
        return 0
    broken = 0
    for i in range(x.size):
        if not math.isfinite(x[i]):
            continue
        if not math.isfinite(got[i]):
            broken += 1
            continue
        error = abs(np.float64(got[i]) - exact[i]) * units_in(exact[i])
        side = 0 if math.copysign(1.0, x[i]) < 0.0 else 1
        counts[side, min(int(error / BIN), BINS - 1)] += 1
        if error > worst[side, 0]:
            worst[side, 0], worst[side, 1] = error, x[i]
        if error > profile[first_row]:
            profile[first_row] = error
    return broken


@dataclass
class Tally:
    """Counts of a provider's errors."""

    counts: Array = field(default_factory=lambda: np.zeros((2, BINS), np.int64))
    worst: Array = field(default_factory=lambda: np.array([[-1.0, np.nan]] * 2))
    profile: Array = field(default_factory=lambda: np.zeros(4096))
    broken: int = 0

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        better = other.worst[:, 0] > self.worst[:, 0]
        self.worst[better] = other.worst[better]
        self.profile = np.maximum(self.profile, other.profile)
        self.broken += other.broken


ROWS = range(1 << 12)


def inputs_of(row: int, stride: int) -> Array:
    """Return a row's 2^20 bit patterns, or one in ``stride`` of them, with a different phase in each row."""
    return np.arange((row << 20) + row % stride, (row + 1) << 20, stride, dtype=np.uint32).view(np.float32)


def bits_of(name: str) -> str:
    """Return a digest of aclnn's results for every x with 1/16 ≤ abs(x) < 16: all segments, and most of the tails."""
    run, digest = ours(name), hashlib.sha256()
    for row in ROWS:
        x = inputs_of(row, 1)
        if 0.0625 <= abs(x[0]) < 16.0:
            for part in np.split(x, range(PART, x.size, PART)):
                digest.update(run(part))
    return digest.hexdigest()


def walk(name: str, stride: int, workers: int, progress: Progress) -> dict[str, Tally]:
    providers = candidates(name)

    def assess(row: int) -> dict[str, Tally]:
        x = inputs_of(row, stride)
        if not np.isfinite(x).any():
            return {}
        found = {label: Tally() for label in providers}
        for part in np.split(x, range(PART, x.size, PART)):
            exact = reference(name, part)
            for label, tally in found.items():
                got = providers[label](part)
                tally.broken += score(part, got, exact, tally.counts, tally.worst, tally.profile, row)
        return found

    return spread(assess, ROWS, workers, progress, name)


PARTS = {"exhaustive_products.csv": products, "exhaustive_hardest.csv": hardest}
FILES = {
    "exhaustive.csv": (
        "operator", "provider", "x", "inputs", "worst_ulp", "worst_x", "above_half", "above_1", "broken"
    ),
    "exhaustive_histogram.csv": ("operator", "provider", "x", "from_ulp", "inputs"),
    "exhaustive_profile.csv": ("operator", "provider", "x", "worst_ulp"),
    "exhaustive_bits.csv": ("operator", "sha256"),
    **{file: part.HEADER for file, part in PARTS.items()},
}  # fmt: skip


def rows_of(name: str, tallies: dict[str, Tally]) -> dict[str, list[Row]]:
    """Return an operator's rows for each file."""
    rows: list[Row] = []
    bins: list[Row] = []
    places: list[Row] = []
    centres = (np.arange(4096, dtype=np.uint32) << 20 | 1 << 19).view(np.float32)
    for label, tally in tallies.items():
        for side, sign in enumerate(("negative", "positive")):
            counts = tally.counts[side]
            error, x = tally.worst[side]
            above = [int(counts[round(limit / BIN) :].sum()) for limit in (0.5, 1.0)]
            rows.append((name, label, sign, counts.sum(), f"{error:.5g}", f"{x:.9g}", *above, tally.broken))
            bins += [(name, label, sign, f"{i * BIN:.2f}", count) for i, count in enumerate(counts)]
        places += [
            (name, label, f"{x:.6g}", f"{error:.4g}")
            for x, error in zip(centres, tally.profile, strict=True)
            if 2.0**-12 <= abs(x) <= 256.0
        ]
    return dict(zip(FILES, (rows, bins, places, [(name, bits_of(name))]), strict=False))


def save(found: dict[str, dict[str, list[Row]]], folder: Path) -> None:
    """Replace the operators' rows in each file, in the order of ``EVERY``; keep those of other operators."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, operators in found.items():
        path = folder / file
        with open(path, newline="") if path.exists() else nullcontext([]) as before:
            kept = [row for row in csv.reader(before) if row[0] in EVERY and row[0] not in operators]
        lines = [*kept, *(row for rows in operators.values() for row in rows)]
        lines.sort(key=lambda row: list(EVERY).index(str(row[0])))
        with open(path, "w", newline="") as written:
            csv.writer(written).writerows([FILES[file], *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one input in 4,096, 10^6 pairs, into build/ instead")
    every = [*EVERY, *(name for part in PARTS.values() for name in part.NAMES)]
    parser.add_argument("--only", nargs="+", choices=every, default=every)
    parser.add_argument("--workers", type=int, default=threads.shared().threads)
    options = parser.parse_args()
    folder, stride = (Path("build/exhaustive"), 4096) if options.quick else (HERE, 1)
    threads.set_threads(1)  # blocks, not elements, are distributed over the cores
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    begun = time.perf_counter()
    with Progress(*columns) as progress:
        for name in options.only:
            for file, part in PARTS.items():
                if name in part.NAMES:
                    operator = part.NAMES[name]
                    rows = {file: part.rows(operator, options.quick, options.workers, progress)}
            if name in EVERY:
                operator, rows = name, rows_of(name, walk(name, stride, options.workers, progress))
            save({file: {operator: lines} for file, lines in rows.items()}, folder)
    if not options.quick:
        tables.write()
    print(f"{time.perf_counter() - begun:.0f} s; written to {folder}")


if __name__ == "__main__":
    main()
