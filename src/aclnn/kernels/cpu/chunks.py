"""How threads share a loop: they take chunks of ``step`` from it until ``end``.

``begun`` is the address of their common counter (see ``pool.sweep``), or 0 for a thread that does everything. All
parameters are int64, addresses and distances in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.kernels.cpu.atomics import fetch_add
from aclnn.kernels.cpu.inner import register_jitable

Loop = Callable[..., None]


def shared(part: Any) -> Loop:
    """The loop that takes chunks, for a function that does the chunk [first, last)."""
    part = register_jitable(part)

    def loop(job: int, dy: int, x: int, out: int, table: int, begun: int, step: int, end: int) -> None:
        first = fetch_add(begun, step) if begun else 0
        while first < end:
            part(job, dy, x, out, table, first, min(end, first + step))
            first = fetch_add(begun, step) if begun else end

    return loop
