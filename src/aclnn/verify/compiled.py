"""Numba's decorator with a type: compiles without the interpreter lock and caches on disk with the kernels.

Numba's own cache fails if neither the package's folder nor a home is writable, or the disk is full, and does not notice
changes of functions in other files that were compiled in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from aclnn.kernels.cpu.cache import stamp_of
from aclnn.kernels.cpu.jit import KernelCache

F = TypeVar("F", bound=Callable[..., object])


@cache
def _source_stamp() -> str | None:
    """Return the stamp of this package's whole source, since compiled functions call one another across files."""
    return stamp_of(sorted(Path(__file__).parent.rglob("*.py")))


def compiled(function: F) -> F:
    """Compile at the first call, with IEEE arithmetic as written (no contraction, no reordering, 1/0 gives inf)."""
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = KernelCache(f"verify-{function.__name__}", (function.__module__, _source_stamp()))
    return cast(F, dispatcher)
