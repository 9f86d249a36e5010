"""Putting files of the tree in their places, whatever other processes do there meanwhile."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A name beside the path, nobody else's, for what takes its place at the end; nothing is left of what fails."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}.new")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink()


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
