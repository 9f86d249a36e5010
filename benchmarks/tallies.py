"""Work that is spread over threads, and what was counted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from rich.progress import Progress


class Countable(Protocol):
    """Counts that add up."""

    def add(self, other: Any) -> None:
        """Take another's counts over."""


T = TypeVar("T", bound=Countable)


def spread(
    judge: Callable[[int], dict[str, T]], items: Sequence[int], workers: int, progress: Progress, title: str
) -> dict[str, T]:
    """The sum, by label, of what ``judge`` counted for each item."""
    bar = progress.add_task(title, total=len(items))
    totals = judge(items[0])  # compile before the threads start
    progress.advance(bar)
    with ThreadPoolExecutor(workers) as executor:
        for found in executor.map(judge, items[1:]):
            for label, tally in found.items():
                totals[label].add(tally)
            progress.advance(bar)
    return totals
