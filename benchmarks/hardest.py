"""Gradients at the x where float32 slopes are relatively worst, times every dy: what random dy do not find.

Run by ``benchmarks.exhaustive``; ``exhaustive_hardest.csv`` has a row per derivative. A slope whose error is within 1.1
of its own units has up to twice that in units of 2^-24 of its value, where its digits begin with 1.0. Every float32
between 2^-13 and 16, of both signs, whose slope is a normal number is asked for it; below, slopes are within 2^-13 of
1/2. The worst 64 are multiplied with all 2^23 significands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from rich.progress import Progress

from aclnn.verify.number_formats import FORMATS
from benchmarks import products
from benchmarks.candidates import Candidate, ours
from benchmarks.references import FORMULAS, Array, reference
from benchmarks.tallies import spread

NAMES = {f"{name}_hardest": name for name in FORMULAS}
RANGE = (2.0**-13, 16.0)
KEPT = 64
LARGE = 1.5
"""Units of 2^-24 of its value, from which on a slope is counted."""
PART = 1 << 15

HEADER = ("operator", "inputs", "worst_relative", "above_large", "worst_ulp", "worst_x", "worst_dy")


@dataclass
class Tally:
    """Counts of slopes and of those off by more than ``LARGE``, and the worst: (error, x)."""

    inputs: int = 0
    large: int = 0
    worst: Array = field(default_factory=lambda: np.empty((0, 2)))

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.large += other.large
        both = np.concatenate([self.worst, other.worst])
        self.worst = both[np.argsort(-both[:, 0], kind="stable")[:KEPT]]

    def take(self, provider: Candidate, name: str, x: Array) -> None:
        """Look at the slopes of some x."""
        exact = reference(name, x)
        off = np.abs(provider(x).astype(np.float64) - exact)
        normal = np.abs(exact) >= FORMATS["float32"].smallest_normal
        relative = np.where(normal, off / np.where(normal, np.abs(exact), 1.0), 0.0) * 2.0**24
        self.add(Tally(x.size, int((relative > LARGE).sum()), np.stack([relative, x.astype(np.float64)], axis=1)))


def find(name: str, stride: int, workers: int, progress: Progress) -> Tally:
    """The hardest x of a derivative."""
    provider, (low, high) = ours(name), (int(np.float32(edge).view(np.uint32)) for edge in RANGE)

    def judge(block: int) -> dict[str, Tally]:
        found = Tally()
        for begin in range(block, min(high, block + (1 << 20)), PART * stride):
            patterns = np.arange(begin, min(high, begin + PART * stride), stride, dtype=np.uint32)
            for sign in (0, 1 << 31):
                found.take(provider, name, (patterns | np.uint32(sign)).view(np.float32))
        return {"aclnn": found}

    return spread(judge, range(low, high, 1 << 20), workers, progress, f"{name} hardest")["aclnn"]


def times_every_significand(name: str, x: float, stride: int = 1) -> products.Tally:
    """One slope times dy from 1 to 2."""
    one = int(np.float32(1.0).view(np.uint32))
    dy = np.arange(one, one + (1 << 23), stride, dtype=np.uint32).view(np.float32)
    exact = np.full(dy.size, reference(name, np.array([x]))[0])
    found = products.Tally()
    found.take(ours(name), products.Pairs(np.full(dy.size, x, np.float32), dy, exact), FORMATS["float32"])
    return found


def rows(name: str, quick: bool, workers: int, progress: Progress) -> list[tuple[object, ...]]:
    """A derivative's line for the table."""
    stride, total = 64 if quick else 1, products.Tally()
    tally = find(name, stride, workers, progress)
    for _, x in tally.worst:
        total.add(times_every_significand(name, x, stride))
    error, x, dy = total.worst.tolist()
    return [(name, tally.inputs, f"{tally.worst[0, 0]:.5g}", tally.large, f"{error:.5g}", f"{x:.9g}", f"{dy:.9g}")]
