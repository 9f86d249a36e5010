"""Streams: queues whose tasks run in order, one at a time, while the caller goes on. Records mark points in them.

Each stream has a thread of its own, started with its first waiting task. A task runs elsewhere in two cases, both of
which spare the switch to that thread: a short one that finds the stream idle runs in ``enqueue``, and a thread that
waits for the stream works off what has not begun yet.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from aclnn.status import ACL_ERROR_RT_INTERNAL_ERROR, ACL_ERROR_RT_PARAM_INVALID, AclnnError

Task = Callable[[], object]

_all: WeakValueDictionary[int, Stream] = WeakValueDictionary()
_PATIENCE_AT_EXIT_S = 10.0


def _nothing() -> None:
    pass


class Record:
    """A point in a stream: done when the stream has come to it."""

    __slots__ = ("_done", "_gate", "_time_ns")

    def __init__(self) -> None:
        self._done = False
        self._time_ns: int | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def arrive(self) -> None:
        """The stream has come to it."""
        self._time_ns = time.perf_counter_ns()
        self.abandon()

    def abandon(self) -> None:
        """The stream will not come to it: hold nobody up."""
        self._done = True
        self._gate.release()

    @property
    def done(self) -> bool:
        """Whether nobody need wait for it any longer."""
        return self._done

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is done within the time."""
        if not self.done and self._gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
            self._gate.release()
        return self.done

    @property
    def has_time(self) -> bool:
        """Whether the stream came to it."""
        return self._time_ns is not None

    def ms_since(self, other: Record) -> float:
        """Milliseconds from another record to this one; both have a time."""
        assert self._time_ns is not None
        assert other._time_ns is not None
        return (self._time_ns - other._time_ns) / 1e6


class Stream:
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
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._pending: deque[tuple[Task, Task]] = deque()
        self._submitted = self._finished = 0
        # Some thread is running tasks of this stream; it alone may take the next one.
        self._busy = False
        self._waiting = 0
        self._closed = False
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        self._awake = False

    def enqueue(self, task: Task, short: bool = False, dropped: Task = _nothing) -> int:
        """Queue a task, and return at once with its ticket for ``wait``.

        Args:
            task: what to do; its exception becomes the stream's failure.
            short: it takes less time than waking a thread (10 µs), so it may run in place on an idle stream.
            dropped: called instead if the stream is closed by force before the task's turn.

        Raises:
            AclnnError: 107000, the stream was closed.
        """
        lock = self._lock
        lock.acquire()  # ``with`` takes 0.1 µs longer
        try:
            if self._closed:
                raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "stream: expected a live stream, got a destroyed one")
            self._submitted = ticket = self._submitted + 1
            if self._busy or self._pending or not (short or not self._has_thread()):
                self._pending.append((task, dropped))
                if not self._busy:
                    self._signal()
                return ticket
            self._busy = True
        finally:
            lock.release()
        self._work(task, ticket)
        return ticket

    def record(self) -> Record:
        """Mark the tasks queued so far.

        Raises:
            AclnnError: 107000, the stream was closed.
        """
        record = Record()
        self.enqueue(record.arrive, short=True, dropped=record.abandon)
        return record

    def hold_up(self, record: Record) -> None:
        """Let the next tasks wait for a record of any stream.

        Raises:
            AclnnError: 107000, the stream was closed.
        """
        if not record.done:
            self.enqueue(record.wait)

    def idle(self) -> bool:
        """Whether every task has finished."""
        return self._finished >= self._submitted

    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until a task (None: every task queued so far) has finished; whether that came within the time."""
        with self._lock:
            target = self._submitted if ticket is None else ticket
            if self._finished >= target:
                return True
            if self._busy or timeout_s is not None:
                return self._await(target, timeout_s)
            task, _ = self._pending.popleft()
            self._busy = True
        self._work(task, target)
        return True

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

    def close(self, force: bool = False) -> None:
        """Take no more tasks; wait for those that are queued or, by force, drop those that have not begun."""
        with self._lock:
            self._closed = True
        if force:
            self.drop()
        else:
            self.wait()
        with self._lock:
            self._signal()

    def drop(self) -> None:
        """Forget the tasks that have not begun."""
        with self._lock:
            tasks = list(self._pending)
            self._pending.clear()
            self._finished += len(tasks)
            if tasks:
                self._failure = self._failure or f"{len(tasks)} tasks were dropped"
            self._progress.notify_all()
        for _, dropped in tasks:
            dropped()

    def _await(self, target: int, timeout_s: float | None) -> bool:
        self._waiting += 1
        try:
            return self._progress.wait_for(lambda: self._finished >= target, timeout_s)
        finally:
            self._waiting -= 1

    def _work(self, task: Task, last: float) -> None:
        """Run a task and those behind it up to ticket ``last``. The caller has made the stream busy for it."""
        while True:
            interruption = None
            try:
                task()
            except BaseException as error:
                interruption = self._remember(error)
            lock = self._lock
            lock.acquire()
            try:
                self._finished += 1
                if self._waiting:
                    self._progress.notify_all()
                if self._pending and ((interruption is None and self._finished < last) or not self._has_thread()):
                    task, _ = self._pending.popleft()
                    continue
                self._busy = False
                if self._pending or self._closed:
                    self._signal()
            finally:
                lock.release()
            if interruption is not None:
                raise interruption
            return

    def _attempt(self, task: Task) -> BaseException | None:
        try:
            task()
        except BaseException as error:
            return self._remember(error)
        return None

    def _remember(self, error: BaseException) -> BaseException | None:
        text = error.message if isinstance(error, AclnnError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._failure = self._failure or text
        # An interrupt is for the thread it came to, not for the stream alone.
        return None if isinstance(error, Exception) else error

    def _has_thread(self) -> bool:
        """Start the stream's thread unless there is one; False when the interpreter is shutting down."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="aclnn stream", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _signal(self) -> None:
        """Have the thread look for work, or for its end."""
        if not self._awake and self._thread is not None:
            self._awake = True
            self._wake.release()

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            with self._lock:
                self._awake = False
                if self._busy or not self._pending:
                    if self._closed and not self._busy:
                        return
                    continue
                task, _ = self._pending.popleft()
                self._busy = True
            with suppress(BaseException):  # Remembered as the stream's failure; this thread serves on.
                self._work(task, math.inf)


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
    # No thread survives a fork, and locks may have been held: every queue starts empty.
    for stream in _live():
        stream._reset()


atexit.register(leave)
os.register_at_fork(after_in_child=_restart_in_child)
