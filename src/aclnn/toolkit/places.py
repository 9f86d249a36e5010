"""Keeping processes that lay out the same tree from one another."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keeps other processes that lock the folder waiting.

    Where there are no locks nobody waits; who may not write there is told so when he writes what he came for.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((root / ".lock").open("ab")), fcntl.LOCK_EX)
        yield
