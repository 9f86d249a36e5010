"""Input generators of the standards: the values of a case from its seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def mixed(seed: int, elements: int) -> Array:
    """Generate half the cases uniform in [-5, 5], half normal with mean in [-5, 5] and sigma in [0.1, 2]."""
    rng = np.random.default_rng(seed)
    if seed % 2 == 0:
        return rng.uniform(-5.0, 5.0, elements)
    return rng.normal(rng.uniform(-5.0, 5.0), rng.uniform(0.1, 2.0), elements)


def commercial_l0(seed: int, elements: int) -> Array:
    """Generate level L0: half the cases uniform in [-5, 5], half normal, mean in [-100, 100] and sigma in [1, 25]."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-5.0, 5.0, elements) if seed % 2 == 0 else _wide_normal(rng, elements)


def commercial_l1(seed: int, elements: int) -> Array:
    """Generate levels L1 and L2.

    Of ten cases, one is uniform in [-0.001, 0.001], three are uniform in [-5, 5], four are normal as in L0, and two
    have outliers: uniform in [-5, 5], with max(1, n // 1000) elements multiplied by 1000.
    """
    rng = np.random.default_rng(seed)
    kind = seed % 10
    if kind == 0:
        return rng.uniform(-0.001, 0.001, elements)
    if 4 <= kind < 8:
        return _wide_normal(rng, elements)
    values = rng.uniform(-5.0, 5.0, elements)
    if kind >= 8 and elements:
        values[rng.choice(elements, max(1, elements // 1000), replace=False)] *= 1000.0
    return values


def _wide_normal(rng: np.random.Generator, elements: int) -> Array:
    return rng.normal(rng.uniform(-100.0, 100.0), rng.uniform(1.0, 25.0), elements)


GENERATORS: dict[str, Callable[[int, int], Array]] = {
    "mixed": mixed,
    "commercial-L0": commercial_l0,
    "commercial-L1": commercial_l1,
    "commercial-L2": commercial_l1,
}
"""Generators by standard; standards without one use the mixed generator."""
