"""Locks under interrupts."""

from __future__ import annotations

import threading

import pytest

from aclnn.runtime.locks import Lock


class Interrupted(Lock):
    """A lock whose acquisition is interrupted after it has succeeded."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        super().acquire(blocking, timeout)
        raise KeyboardInterrupt


def is_free(lock: Lock) -> bool:
    """Return true if another thread can acquire the lock."""
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(Lock.acquire(lock, blocking=False)))
    thread.start()
    thread.join()
    return got == [True]


def test_an_interrupt_at_the_end_of_an_acquisition_leaves_the_lock_free() -> None:
    lock = Interrupted()
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    assert is_free(lock)


def test_a_call_that_fails_while_its_thread_has_the_lock_does_not_release_it() -> None:
    """A method that a signal handler calls, and that raises, must not release the lock of the interrupted method."""
    lock = Lock()
    with lock:
        with pytest.raises(ValueError, match="within"), lock:
            raise ValueError("within")
        assert lock.held_by_this_thread()
        assert not is_free(lock)
    assert not lock.held_by_this_thread()
    assert is_free(lock)
