"""Locks that a fork waits for: the child finds none held by a thread that it does not have."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


def lock_across_forks() -> AbstractContextManager[bool]:
    """A new re-entrant lock. Of two that are held together, the inner one is to be made first."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
