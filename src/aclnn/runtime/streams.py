"""Streams: queues whose tasks run in order, one at a time, while the caller goes on. Records mark points in them.

Here is what all streams have in common; ``host_streams`` has those of the CPU, ``cuda`` those of a GPU.
"""

from __future__ import annotations

import atexit
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from aclnn.runtime.locks import Lock
from aclnn.status import ACL_ERROR_RT_INTERNAL_ERROR, ACL_ERROR_RT_PARAM_INVALID, AclnnError

Task = Callable[[], object]

_all: WeakValueDictionary[int, Stream] = WeakValueDictionary()
_PATIENCE_AT_EXIT_S = 10.0


class Record(Protocol):
    """A point in a stream."""

    @property
    def done(self) -> bool:
        """Whether nobody need wait for it any longer."""

    @property
    def has_time(self) -> bool:
        """Whether the stream came to it."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is done within the time."""

    def ms_since(self, other: Any) -> float:
        """Milliseconds from another record of the same kind to this one; both have a time."""


def nothing() -> None:
    """What happens to a dropped task of which nobody need know."""


class Stream(ABC):
    """A queue of tasks. A task that raises is remembered until somebody waits for the stream; those behind it run."""

    def __init__(self, priority: int = 0, flags: int = 0) -> None:
        self.priority = priority
        self.flags = flags
        self.context: Any = None
        """Whose it is (see ``devices``)."""
        self.handle = 0
        """0 for a default stream, which has no name of its own."""
        self._reset()
        _all[id(self)] = self

    def _reset(self) -> None:
        """Start with an empty queue, as a child process does, in which whoever held a lock is no more."""
        self._lock = Lock()
        self._closed = False
        self._failure: str | None = None

    @abstractmethod
    def enqueue(self, task: Task, short: bool = False, dropped: Task = nothing) -> int:
        """Queue a task, and return at once with its ticket for ``wait``.

        Args:
            task: what to do; its exception becomes the stream's failure.
            short: it takes less time than waking a thread (10 µs), so it may run in place on an idle stream.
            dropped: called instead if the stream is closed by force before the task's turn.

        Raises:
            AclnnError: 107000, the stream was closed.
        """

    @abstractmethod
    def record(self) -> Record:
        """Mark the tasks queued so far.

        Raises:
            AclnnError: 107000, the stream was closed.
        """

    @abstractmethod
    def hold_up(self, record: Any) -> None:
        """Let the next tasks wait for a record of any stream of the same kind.

        Raises:
            AclnnError: 107000, the stream was closed.
        """

    @abstractmethod
    def idle(self) -> bool:
        """Whether every task has finished."""

    @abstractmethod
    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until a task (None: every task queued so far) has finished; whether that came within the time."""

    @abstractmethod
    def close(self, force: bool = False) -> None:
        """Take no more tasks; wait for those that are queued or, by force, drop those that have not begun."""

    @abstractmethod
    def drop(self) -> None:
        """Forget the tasks that have not begun."""

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for every task queued so far; whether that came within the time.

        Raises:
            AclnnError: 507000, a task since the last synchronisation failed.
        """
        done = self.wait(timeout_s=timeout_s)
        if done:
            self.raise_failure()
        return done

    def raise_failure(self) -> None:
        """Report the first failed task since the last report, if any.

        Raises:
            AclnnError: 507000.
        """
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise AclnnError(
                ACL_ERROR_RT_INTERNAL_ERROR, f"stream: expected its tasks to succeed, one failed: {failure}"
            )

    def _remember(self, error: BaseException) -> bool:
        """Keep a task's error as the stream's failure; whether it is an interrupt, which is for the thread as well."""
        text = error.message if isinstance(error, AclnnError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._failure = self._failure or text
        return not isinstance(error, Exception)

    def _require_open(self) -> None:
        if self._closed:
            raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "stream: expected a live stream, got a destroyed one")


def _live() -> list[Stream]:
    # valuerefs copies in one step; a WeakSet fails when another thread makes a stream while it is being walked.
    return [stream for reference in _all.valuerefs() if (stream := reference()) is not None]


def leave(finish: bool = False) -> None:
    """At exit, drop what has not begun and give what is running some time: kernels must not outlive their memory.

    ``finish`` gives that time to what has not begun as well, and drops only what is left then.
    """
    deadline = time.monotonic() + _PATIENCE_AT_EXIT_S
    streams = _live()
    if finish:
        _wait(streams, deadline)
    for stream in streams:
        stream.drop()
    _wait(streams, deadline)


def _wait(streams: list[Stream], deadline: float) -> None:
    for stream in streams:
        stream.wait(timeout_s=max(deadline - time.monotonic(), 0.0))


def _restart_in_child() -> None:
    for stream in _live():
        stream._reset()


atexit.register(leave)
os.register_at_fork(after_in_child=_restart_in_child)
