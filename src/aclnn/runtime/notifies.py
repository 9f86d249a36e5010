"""Notifies: counters that streams change and await in order, and values in memory that streams await."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable

from aclnn.core.status import ACL_ERROR_RT_TASK_TIMEOUT, AclnnError
from aclnn.runtime import memory
from aclnn.runtime.streams import Stream, hold

_numbers = itertools.count()
# Polling interval for a value in memory: about as long as waking a thread takes.
_POLL_S = 1e-4


class Counter:
    """A 32-bit counter."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self._value = 0
        self._changed = threading.Condition()

    def change(self, to: Callable[[int], int]) -> None:
        """Change the counter at once."""
        with self._changed:
            self._value = to(self._value)
            self._changed.notify_all()

    def record(self, stream: Stream, to: Callable[[int], int]) -> None:
        """Change the counter when the stream reaches this point."""
        stream.enqueue(lambda: self.change(to), short=True)

    def wait_for(
        self, stream: Stream, is_enough: Callable[[int], bool], clears: bool = True, limit_s: float | None = None
    ) -> None:
        """Make the stream's next tasks wait until ``is_enough`` holds, then reset the counter to 0 if ``clears``.

        The tasks fail if it does not hold within the limit.
        """

        def taken(seconds: float) -> bool:
            with self._changed:
                found = self._changed.wait_for(lambda: is_enough(self._value), seconds)
                if found and clears:
                    self._value = 0
            return found

        def task() -> None:
            if not hold(taken, limit_s):
                raise AclnnError(ACL_ERROR_RT_TASK_TIMEOUT, f"notify: timed out after {limit_s} s")

        stream.enqueue(task)


class Notify(Counter):
    """``aclrtNotify``: a flag."""


class CountNotify(Counter):
    """``aclrtCntNotify``: a counter of any value."""


def _word(address: int) -> tuple[memory.Allocation, ctypes.c_uint64]:
    held = memory.resolve(address, 8)
    return held, ctypes.c_uint64.from_address(address)


def write_value(address: int, value: int, stream: Stream) -> None:
    """``aclrtValueWrite``: queue a write of 64 bits to device memory.

    Raises:
        AclnnError: 107000, the address is not in live device memory.
    """
    held, word = _word(address)

    def task(held: object = held) -> None:
        word.value = value

    stream.enqueue(task, short=True)


def wait_for_value(address: int, is_enough: Callable[[int], bool], stream: Stream) -> None:
    """``aclrtValueWait``: make the stream's next tasks wait until ``is_enough`` holds for 64 bits of device memory.

    Raises:
        AclnnError: 107000, the address is not in live device memory.
    """
    held, word = _word(address)

    def seen(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_enough(word.value):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def task(held: object = held) -> None:
        hold(seen)

    stream.enqueue(task)
