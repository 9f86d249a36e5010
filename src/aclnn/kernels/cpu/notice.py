"""Telling who waits at a terminal that kernels are being compiled. Files and pipes get nothing."""

from __future__ import annotations

import sys
import threading
from time import perf_counter

from aclnn.kernels.cpu import cache

_PATIENCE_S = 1.0
"""Spent compiling in this process before it says so."""


class Notice:
    """One line for each process, on standard error. Its methods are called under Numba's compiler lock."""

    def __init__(self) -> None:
        self.wanted = True
        self.found = 0
        """Kernels that this process found in the cache."""
        self.compiled = 0
        """Kernels that it compiled."""
        self.lost: list[str] = []
        """Of each that could not be kept, why."""
        self._depth = 0
        self._spent = self._begun = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Begin to compile a function, which may compile others first."""
        self._depth += 1
        if self._depth == 1:
            self._begun = perf_counter()
            if self.wanted and sys.stderr is not None and sys.stderr.isatty():
                self._timer = threading.Timer(max(0.0, _PATIENCE_S - self._spent), self._say)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """Have compiled it."""
        self.compiled += 1
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._spent += perf_counter() - self._begun
            if self._timer is not None:
                self._timer.cancel()

    def _say(self) -> None:
        self.wanted = False
        where = cache.directory()
        kept = "not kept, since no directory can be written" if where is None else f"kept in {where}"
        if sys.stderr is not None:
            sys.stderr.write(f"aclnn: compiling for this processor, {kept}; `aclnn warm` does so beforehand\n")
            sys.stderr.flush()


notice = Notice()
