"""Locks that are acquired before a fork, so that the child never inherits one held by another thread."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


def lock_across_forks() -> AbstractContextManager[bool]:
    """Return a new re-entrant lock. Of two locks that are held together, create the inner one first."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
