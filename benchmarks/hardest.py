"""Gradients for every dy at the x with the largest relative errors of derivatives, which random dy do not find.

``benchmarks.exhaustive`` runs this; ``exhaustive_hardest.csv`` has a row per derivative. An error of 1.1 units in the
last place is up to twice as many units of 2^-24 of the value, if the significand begins with 1.0. The search covers
every float32 between 2^-13 and 16, of both signs, whose derivative is a normal number; below, derivatives are within
2^-13 of 1/2. The worst 64 are multiplied by all 2^23 significands.
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
"""Relative error from which a derivative is counted, in units of 2^-24."""
PART = 1 << 15

HEADER = ("operator", "inputs", "worst_relative", "above_large", "worst_ulp", "worst_x", "worst_dy")


@dataclass
class Tally:
    """Number of derivatives, number with an error above ``LARGE``, and the worst ones as (error, x)."""

    inputs: int = 0
    large: int = 0
    worst: Array = field(default_factory=lambda: np.empty((0, 2)))

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.large += other.large
        both = np.concatenate([self.worst, other.worst])
        self.worst = both[np.argsort(-both[:, 0], kind="stable")[:KEPT]]

    def take(self, provider: Candidate, name: str, x: Array) -> None:
        """Measure the derivatives at some x."""
        exact = reference(name, x)
        off = np.abs(provider(x).astype(np.float64) - exact)
        normal = np.abs(exact) >= FORMATS["float32"].smallest_normal
        relative = np.where(normal, off / np.where(normal, np.abs(exact), 1.0), 0.0) * 2.0**24
        self.add(Tally(x.size, int((relative > LARGE).sum()), np.stack([relative, x.astype(np.float64)], axis=1)))


def find(name: str, stride: int, workers: int, progress: Progress) -> Tally:
    """Find the hardest x of a derivative."""
    provider, (low, high) = ours(name), (int(np.float32(edge).view(np.uint32)) for edge in RANGE)

    def assess(block: int) -> dict[str, Tally]:
        found = Tally()
        for begin in range(block, min(high, block + (1 << 20)), PART * stride):
            patterns = np.arange(begin, min(high, begin + PART * stride), stride, dtype=np.uint32)
            for sign in (0, 1 << 31):
                found.take(provider, name, (patterns | np.uint32(sign)).view(np.float32))
        return {"aclnn": found}

    return spread(assess, range(low, high, 1 << 20), workers, progress, f"{name} hardest")["aclnn"]


def times_every_significand(name: str, x: float, stride: int = 1) -> products.Tally:
    """Measure the products of one derivative with every dy from 1 to 2."""
    one = int(np.float32(1.0).view(np.uint32))
    dy = np.arange(one, one + (1 << 23), stride, dtype=np.uint32).view(np.float32)
    exact = np.full(dy.size, reference(name, np.array([x]))[0])
    found = products.Tally()
    found.take(ours(name), products.Pairs(np.full(dy.size, x, np.float32), dy, exact), FORMATS["float32"])
    return found


def rows(name: str, quick: bool, workers: int, progress: Progress) -> list[tuple[object, ...]]:
    """Return a derivative's rows of the table."""
    stride, total = 64 if quick else 1, products.Tally()
    tally = find(name, stride, workers, progress)
    for _, x in tally.worst:
        total.add(times_every_significand(name, x, stride))
    error, x, dy = total.worst.tolist()
    return [(name, tally.inputs, f"{tally.worst[0, 0]:.5g}", tally.large, f"{error:.5g}", f"{x:.9g}", f"{dy:.9g}")]
