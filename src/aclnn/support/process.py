"""State per process, recreated after a fork by the package's only fork hook."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_in_child: list[Callable[[], None]] = []


def after_fork(restart: Callable[[], None]) -> None:
    """Call a function in every forked child process, in the order of registration."""
    _in_child.append(restart)


class PerProcess(Generic[T]):
    """A value that every forked child process creates anew, sharing nothing with its parent's.

    Args:
        make: creates the value, now and in a child.
        keep_parents: never release the parent's value in a child.
    """

    __slots__ = ("_make", "_parents", "current")

    def __init__(self, make: Callable[[], T], keep_parents: bool = False) -> None:
        self._make = make
        self._parents: list[T] | None = [] if keep_parents else None
        self.current = make()
        after_fork(self._restart)

    def _restart(self) -> None:
        if self._parents is not None:
            self._parents.append(self.current)
        self.current = self._make()


def _restart_all() -> None:
    for restart in _in_child:
        restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
