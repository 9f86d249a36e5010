"""Notifies: numbers that streams change and wait for when they come to it, and values in memory that they wait for."""

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
# How often a value in memory is looked at: about what waking a thread takes.
_LOOK_S = 1e-4


class Counter:
    """A 32-bit number."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self._value = 0
        self._changed = threading.Condition()

    def change(self, to: Callable[[int], int]) -> None:
        """Change the number at once."""
        with self._changed:
            self._value = to(self._value)
            self._changed.notify_all()

    def record(self, stream: Stream, to: Callable[[int], int]) -> None:
        """Change the number when the stream comes to it."""
        stream.enqueue(lambda: self.change(to), short=True)

    def wait_for(
        self, stream: Stream, is_enough: Callable[[int], bool], clears: bool = True, limit_s: float | None = None
    ) -> None:
        """Let the stream's next tasks wait until the number is enough, and then clear it if asked.

        They fail if it is not within the limit.
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
    """``aclrtNotify``: set or not."""


class CountNotify(Counter):
    """``aclrtCntNotify``: any number."""


def _word(address: int) -> tuple[memory.Allocation, ctypes.c_uint64]:
    held = memory.resolve(address, 8)
    return held, ctypes.c_uint64.from_address(address)


def write_value(address: int, value: int, stream: Stream) -> None:
    """``aclrtValueWrite``: write 64 bits of device memory when the stream comes to it.

    Raises:
        AclnnError: 107000, there are none.
    """
    held, word = _word(address)

    def task(held: object = held) -> None:
        word.value = value

    stream.enqueue(task, short=True)


def wait_for_value(address: int, is_enough: Callable[[int], bool], stream: Stream) -> None:
    """``aclrtValueWait``: let the stream's next tasks wait until 64 bits of device memory are enough.

    Raises:
        AclnnError: 107000, there are none.
    """
    held, word = _word(address)

    def seen(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_enough(word.value):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def task(held: object = held) -> None:
        hold(seen)

    stream.enqueue(task)
