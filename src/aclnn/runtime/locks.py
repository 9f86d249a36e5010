"""A lock that no interrupt leaves held."""

from __future__ import annotations

from _thread import RLock


class Lock(RLock):  # type: ignore[misc]  # CPython lets it be subclassed
    """A re-entrant lock for ``with``.

    An interrupt (Ctrl-C, any signal handler that raises) comes between two calls. From 3.14 on, an interrupt may
    come after ``__enter__`` and before ``with`` guarantees the release; this ``__enter__`` leaves no such gap. In
    Pythons 3.12 and 3.13 an interrupt in a comprehension leaves a ``with`` of the same function without its end: in
    such a block there is none.
    """

    def __enter__(self) -> bool:  # type: ignore[override]  # takes no arguments, as ``with`` gives none
        try:
            return self.acquire()
        except BaseException:
            # This thread's now only if it has just been acquired: an acquisition that waits begins without it.
            if self.is_mine():
                self.release()
            raise

    def is_mine(self) -> bool:
        """Tell whether the calling thread holds the lock."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # what threading.Condition asks, too
