"""A lock that interrupts never leave held."""

from __future__ import annotations

from _thread import RLock


class Lock(RLock):  # type: ignore[misc]  # CPython lets it be subclassed
    """A re-entrant lock for ``with``.

    An interrupt (Ctrl-C, any signal handler that raises) arrives between two calls. From Python 3.14 on, it may arrive
    after ``__enter__`` has returned and before ``with`` guarantees the release; this ``__enter__`` leaves no such gap.
    In Python 3.12 and 3.13, an interrupt in a comprehension skips the exit of a ``with`` in the same function: blocks
    guarded by this lock contain no comprehensions.
    """

    def __enter__(self) -> bool:  # type: ignore[override]  # takes no arguments, as ``with`` gives none
        try:
            return self.acquire()
        except BaseException:
            # Only an acquisition that waits is interrupted, so if the lock is held now, this call acquired it.
            if self.held_by_this_thread():
                self.release()
            raise

    def held_by_this_thread(self) -> bool:
        """Return True if the calling thread holds the lock."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # what threading.Condition asks, too
