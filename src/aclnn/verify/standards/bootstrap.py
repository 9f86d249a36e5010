"""The commercial standard's recheck of a failing case: many seeds, and a bootstrap of the median error ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST_SEEDS = 200
RECOMMENDED_SEEDS = 1000
RESAMPLES = 2000


@dataclass(frozen=True)
class Recheck:
    """The 95 % interval of a median ratio test / third over many seeds."""

    name: str
    median: float
    lower: float
    upper: float
    seeds: int

    @property
    def holds(self) -> bool:
        """Whether the test is not certainly worse than the third: the interval's lower end is not above 1."""
        return self.lower <= 1.0


def recheck(ratios: Mapping[str, Sequence[float]], resamples: int = RESAMPLES, seed: int = 0) -> tuple[Recheck, ...]:
    """Bootstrap the median of each ratio over its seeds.

    Args:
        ratios: by name (MARE ratio …), one value a seed.
        resamples: how often to draw as many seeds with replacement.
        seed: of the drawing, so that a verdict repeats.

    Raises:
        ValueError: fewer than 200 seeds.
    """
    rng = np.random.default_rng(seed)
    return tuple(_recheck(name, np.asarray(values, np.float64), resamples, rng) for name, values in ratios.items())


def _recheck(name: str, values: np.ndarray[Any, Any], resamples: int, rng: np.random.Generator) -> Recheck:
    if values.size < LEAST_SEEDS:
        raise ValueError(f"seeds: expected at least {LEAST_SEEDS}, got {values.size}")
    # Infinite ratios (an exact third) order above all numbers; this stands for them, and half of two is no overflow.
    finite = np.minimum(values, 1e300)
    medians = np.median(finite[rng.integers(0, values.size, (resamples, values.size))], axis=1)
    lower, upper = np.quantile(medians, (0.025, 0.975))
    return Recheck(name, float(np.median(finite)), float(lower), float(upper), values.size)
