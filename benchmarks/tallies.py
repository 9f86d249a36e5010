"""Counts of errors, summed over work on several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numba
import numpy as np
from rich.progress import Progress


@numba.njit(nogil=True)
def units_in(exact: float) -> float:
    """Return one over the unit of float32's last place at an exact value."""
    # The biased exponent, at least that of 2^-126, then the bits of 2^23 over that power of two.
    exponent = max((np.float64(exact).view(np.int64) >> 52) & 0x7FF, 1023 - 126)
    return np.int64((2 * 1023 + 23 - exponent) << 52).view(np.float64)


class Countable(Protocol):
    """Counts that add up."""

    def add(self, other: Any) -> None:
        """Add another object's counts."""


T = TypeVar("T", bound=Countable)


def spread(
    assess: Callable[[int], dict[str, T]], items: Sequence[int], workers: int, progress: Progress, title: str
) -> dict[str, T]:
    """Call ``assess`` for each item on several threads; return the sums of the counts by label."""
    bar = progress.add_task(title, total=len(items))
    totals = assess(items[0])  # compile before the threads start
    progress.advance(bar)
    with ThreadPoolExecutor(workers) as executor:
        for found in executor.map(assess, items[1:]):
            for label, tally in found.items():
                totals[label].add(tally)
            progress.advance(bar)
    return totals
