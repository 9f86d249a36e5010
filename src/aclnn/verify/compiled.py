"""Numba's decorator with a type: compiled without the interpreter lock, kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile at the first call; IEEE arithmetic as written (no contraction, no reordering, 1/0 gives inf)."""
    return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
