"""Streams: queues whose tasks run in order, one at a time, while the caller goes on. Records mark points in them.

A task that fails is remembered until somebody waits for the stream; those behind it run. Where one of a context's
streams stops on failure (ACL_STOP_ON_FAILURE), those behind it are dropped, and all streams of the context refuse what
follows.

Each stream has a thread of its own, started with its first waiting task. A task runs elsewhere in two cases, both of
which spare the switch to that thread: a short one that finds the stream idle runs in ``enqueue``, and a thread that
waits for the stream works off what has not begun yet.

A thread within a task waits for no stream, for that could be waiting for this task's end. It would: tasks run Python,
which may collect garbage there, and with it call another program's finalizers, such as DeepSpeed's, which synchronizes.

The main thread may be interrupted (Ctrl-C) between any two calls that it makes. So what has been queued and what has
finished is nowhere counted: it follows from what is pending and what is running, each changed in one step.
"""

from __future__ import annotations

import atexit
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

from aclnn.core.status import (
    ACL_ERROR_RT_INTERNAL_ERROR,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_ABORT,
    ACL_ERROR_RT_STREAM_CAPTURED,
    ACL_ERROR_RT_TASK_TIMEOUT,
    AclnnError,
)
from aclnn.runtime.locks import Lock
from aclnn.support.process import after_fork

Task = Callable[[], object]

#: Called with the reason, None where the stream is closed, if a task is dropped.
Dropped = Callable[[AclnnError | None], object]

#: A ticket, its task, and what is called if that is dropped. A tuple: it takes 0.2 µs less to make than a named one.
_Entry = tuple[int, Task, Dropped]

_all: WeakValueDictionary[int, Stream] = WeakValueDictionary()
_numbers = itertools.count()
_PATIENCE_AT_EXIT_S = 10.0
#: What a stream's priority may be; the greatest is the smallest number.
LEAST_PRIORITY, GREATEST_PRIORITY = 7, 0
# How often a task that waits looks whether it still may.
_LOOK_S = 0.02


class Fault:
    """What the streams of a context share: whether they stop on failure, and the text of the first that they had."""

    __slots__ = ("failure", "stops")

    def __init__(self) -> None:
        self.stops = False
        self.failure: str | None = None

    def expect_none(self) -> None:
        """Refuse what follows a failure.

        Raises:
            AclnnError: 507000.
        """
        if self.failure is not None:
            raise AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: a task of its context failed: {self.failure}")


class _AbortedError(Exception):
    """Ends a task that waits on a stream that is aborted."""


class Record:
    """A point in a stream: done when the stream has come to it."""

    __slots__ = ("_error", "_fault", "_gate", "_time_ns", "done")

    def __init__(self, fault: Fault | None = None) -> None:
        self.done = False
        """True once nobody need wait for it any longer."""
        self._error: AclnnError | None = None
        self._fault = fault or Fault()
        self._time_ns: int | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def complete(self) -> None:
        """Mark the record as reached by its stream."""
        self._time_ns = time.perf_counter_ns()
        self.cancel()

    def cancel(self, error: AclnnError | None = None) -> None:
        """Release everybody who waits, with an error if given: the stream will not come to the record."""
        self._error = error
        self.done = True
        self._gate.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait, and return whether it is done within the time."""
        if not self.done and self._gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
            self._gate.release()
        return self.done

    def check(self) -> None:
        """Refuse to call the record reached.

        Raises:
            AclnnError: 507000, its stream's context stopped on a failure; 107023, the stream was aborted before it.
        """
        self._fault.expect_none()
        if self._error is not None:
            raise self._error

    @property
    def lost(self) -> bool:
        """True where the stream was aborted before it: whoever waits for it on a stream does so for ever."""
        return self._error is not None and self._error.code == ACL_ERROR_RT_STREAM_ABORT

    @property
    def has_time(self) -> bool:
        """True where the stream came to it."""
        return self._time_ns is not None

    @property
    def time_us(self) -> int:
        """When the stream came to it; it has a time."""
        assert self._time_ns is not None
        return self._time_ns // 1000

    def ms_since(self, other: Record) -> float:
        """Milliseconds from another record to this one; both have a time."""
        assert self._time_ns is not None
        assert other._time_ns is not None
        return (self._time_ns - other._time_ns) / 1e6


def _nothing(reason: AclnnError | None) -> None:
    """Default for ``dropped``: nobody has to be told."""


def hold(happened: Callable[[float], object], limit_s: float | None = None) -> bool:
    """Wait, within a task, until something has happened; whether it came within the limit.

    Args:
        happened: waits for so many seconds at most, and returns true if it has.
        limit_s: how long to wait; None for ever.

    Raises:
        AclnnError: 507000, the stream's context stopped on a failure meanwhile.
    """
    streams = _streams_here()
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    while not happened(max(min(_LOOK_S, deadline - time.monotonic()), 0.0)):
        for stream in streams:
            stream.expect_to_go_on()
        if time.monotonic() >= deadline:
            return False
    return True


def waiting_for(record: Record, limit_s: float | None = None) -> Task:
    """A task that waits for a record of any stream, and fails where that one will not come to it, or not in time."""

    def reached(seconds: float) -> bool:
        if record.lost:
            time.sleep(seconds)
        return record.wait(seconds) and not record.lost

    def task() -> None:
        if not hold(reached, limit_s):
            raise AclnnError(ACL_ERROR_RT_TASK_TIMEOUT, f"event: timed out after {limit_s} s")
        if not record.has_time:
            record.check()

    return task


def seconds(timeout_ms: int, least: int = 1, code: int = ACL_ERROR_RT_PARAM_INVALID) -> float | None:
    """Convert a time limit in milliseconds, None for -1, which is none.

    Raises:
        AclnnError: that code, it is neither -1 nor as much as the least.
    """
    if timeout_ms != -1 and timeout_ms < least:
        raise AclnnError(code, f"timeout: expected -1 or {least} ms or more, got {timeout_ms}")
    return None if timeout_ms == -1 else timeout_ms / 1000


class Taker(Protocol):
    """Takes the tasks of a stream in its place (see ``graphs``)."""

    captures: bool
    """True if they wait in a graph until that is executed."""

    def take(self, stream: Stream, task: Task) -> None:
        """Take a task."""


class Stream:
    """A queue of tasks, with a fault that it may share."""

    def __init__(self, priority: int = 0, flags: int = 0, fault: Fault | None = None) -> None:
        self.priority, self.flags = priority, flags
        """Hints, without effect."""
        self.number = next(_numbers)
        self.context: Any = None
        """The context that it belongs to (see ``devices``)."""
        self.handle = 0
        """0 for a default stream until somebody asks for its handle."""
        self.attributes: dict[int, int] = {}
        """Values set by aclrtSetStreamAttribute."""
        self.limits: dict[int, int] = {}
        """Limits set by aclrtSetStreamResLimit."""
        self.fault = fault or Fault()
        self._reset()
        _all[id(self)] = self

    def _reset(self) -> None:
        """Start with an empty queue, as a child process does, in which whoever held a lock is no more."""
        self.taker: Taker | None = None
        self._lock = Lock()
        self._closed = False
        self._failure: str | None = None
        self.has_stopped = False
        """True once one of its tasks has failed where that stops it."""
        self._aborting = 0
        self._aborts = 0
        self._progress = threading.Condition(self._lock)
        self._pending: deque[_Entry] = deque()
        self._running: tuple[int, int] | None = None
        """A ticket and a thread's identifier: that one put it there, runs the task, and alone may take the next one."""
        self._last = 0
        """The ticket given out last."""
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        self._awake = False

    def enqueue(self, task: Task, short: bool = False, dropped: Dropped = _nothing) -> int:
        """Queue a task, or hand it to the taker, and return at once with its ticket for ``wait``.

        Args:
            task: what to do; its exception becomes the stream's failure.
            short: it takes less time than waking a thread (10 µs), so it may run in place on an idle stream.
            dropped: called instead if the task is dropped before its turn.

        Raises:
            AclnnError: 107000, the stream was closed; 507000, its context stopped on a failure; 107023, it is aborted.
        """
        if self.taker is None:
            return self.queue(task, short, dropped)
        self.taker.take(self, task)
        return self._last

    def queue(self, task: Task, short: bool = False, dropped: Dropped = _nothing) -> int:
        """Queue a task as ``enqueue`` does where there is no taker."""
        entry = None
        try:
            with self._lock:
                if self._closed:
                    raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "stream: expected a live stream, got a destroyed one")
                self.fault.expect_none()
                if self._aborting:
                    raise _aborted()
                in_place = self._running is None and not self._pending and (short or not self._has_thread())
                self._last = ticket = self._last + 1
                if not in_place:
                    self._pending.append((ticket, task, dropped))
                    if self._running is None and self._has_thread():
                        self._signal()
                    return ticket
                entry = self._running = ticket, threading.get_ident()
            task()
        except BaseException as error:
            if entry is None or self._remember(error):
                raise
        finally:
            if entry is not None:
                self._running = None
                if self._pending or self._waiting or self._closed:
                    self._hand_over()
        return ticket

    def record(self) -> Record:
        """Mark the tasks queued so far.

        Raises:
            AclnnError: as ``enqueue``.
        """
        record = Record(self.fault)
        self.queue(record.complete, short=True, dropped=record.cancel)
        return record

    def wait_for(self, record: Record, limit_s: float | None = None) -> None:
        """Let the next tasks wait for a record of any stream; they fail where that one will not come to it in time.

        Raises:
            AclnnError: as ``enqueue``.
        """
        self.fault.expect_none()
        if not record.has_time:
            self.queue(waiting_for(record, limit_s))

    def expect_no_capture(self) -> None:
        """Refuse what cannot be done with a stream whose tasks are captured.

        Raises:
            AclnnError: 107027.
        """
        if self.taker is not None and self.taker.captures:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURED, "stream: expected one whose tasks are not captured, got one that captures"
            )

    def idle(self) -> bool:
        """True once every task has finished.

        Raises:
            AclnnError: 107027, its tasks are captured; 507000, its context stopped on a failure.
        """
        self.expect_no_capture()
        self.fault.expect_none()
        # In this order: what is taken from the pending ones is put among the running ones first.
        return not self._pending and self._running is None

    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until a task (None: every task queued so far) has finished; whether that came within the time.

        Without a time limit this thread does what has not begun. Within a task it returns true at once.

        Raises:
            AclnnError: 107000, within a task, for a ticket; 107023, the stream was aborted meanwhile.
        """
        aborts = self._aborts
        done = self._wait(ticket, timeout_s)
        if self._aborts != aborts:
            raise _aborted()
        return done

    def _wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        last = self._last if ticket is None else ticket
        while True:
            with self._lock:
                if self._finished() >= last:
                    return True
                if _streams_here():
                    if ticket is None:
                        return True
                    raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "stream: expected no wait within a task, got one")
                if self._running is not None:
                    return self._await(last, timeout_s)
                if timeout_s is not None:
                    if self._has_thread():
                        self._signal()
                    return self._await(last, timeout_s)
            self._work(last)

    def close(self, force: bool = False) -> None:
        """Take no more tasks; wait for those that are queued or, by force, drop those that have not begun."""
        with self._lock:
            self._closed = True
            self.taker = None
        if force:
            self._aborting += 1
            self.drop()
        else:
            self._wait()
        with self._lock:
            self._signal()

    def abort(self) -> None:
        """Drop the tasks that have not begun, end those that wait, and wait for what runs. Failures are forgotten."""
        with self._lock:
            self._aborting += 1
            self._aborts += 1
        try:
            self.drop(_aborted())
            with self._lock:
                if not _streams_here():
                    self._await(self._last, None)
        finally:
            with self._lock:
                self._failure = None
                self.has_stopped = False
                self._aborting -= 1

    def expect_to_go_on(self) -> None:
        """End a task that waits where the stream is aborted, or closed by force, or has failed.

        Raises:
            AclnnError: 507000, its context stopped on a failure.
        """
        if self._aborting:
            raise _AbortedError
        self.fault.expect_none()

    def drop(self, reason: AclnnError | None = None) -> None:
        """Forget the tasks that have not begun."""
        with self._lock:
            none: deque[_Entry] = deque()
            entries, self._pending = self._pending, none
            if entries:
                self._failure = self._failure or f"dropped before their turn: {len(entries)}"
            self._progress.notify_all()
        for _, _, dropped in entries:
            dropped(reason)

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for every task queued so far; whether that came within the time.

        Raises:
            AclnnError: 507000, a task since the last synchronisation failed, or the context stopped on a failure;
                107027, its tasks are captured; 107023, the stream was aborted meanwhile.
        """
        self.expect_no_capture()
        self.fault.expect_none()
        done = self.wait(timeout_s=timeout_s)
        self.fault.expect_none()
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
            raise AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: a task failed: {failure}")

    def _remember(self, error: BaseException) -> bool:
        """Keep a task's error as the stream's failure; whether it is an interrupt, which is for the thread as well."""
        if isinstance(error, _AbortedError):
            return False
        text = error.message if isinstance(error, AclnnError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._failure = self._failure or text
        interrupts = not isinstance(error, Exception)
        if self.fault.stops and not interrupts:
            self.has_stopped = True
            self.fault.failure = self.fault.failure or text
            self.drop(AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: dropped behind a task that failed: {text}"))
        return interrupts

    @property
    def last(self) -> int:
        """The ticket given out last."""
        return self._last

    def has_finished(self, ticket: int) -> bool:
        """True once the task of a ticket, and those before it, have finished or were dropped."""
        with self._lock:
            return self._finished() >= ticket

    def _finished(self) -> int:
        """The last ticket up to which every task has finished."""
        first = self._running or (self._pending[0] if self._pending else None)
        return self._last if first is None else first[0] - 1

    def _await(self, ticket: int, timeout_s: float | None) -> bool:
        self._waiting += 1
        try:
            return self._progress.wait_for(lambda: self._finished() >= ticket, timeout_s)
        finally:
            self._waiting -= 1

    def _work(self, last: float) -> None:
        """Run what is pending up to ticket ``last``, unless another thread is at it; everything if none can be had."""
        interruption = None
        while interruption is None:
            entry = None
            try:
                with self._lock:
                    if self._running is not None or not self._pending:
                        return
                    if self._pending[0][0] > last and self._has_thread():
                        return
                    ticket, task, _ = self._pending[0]
                    entry = self._running = ticket, threading.get_ident()
                    self._pending.popleft()
                task()
            except BaseException as error:
                if entry is None or self._remember(error):
                    interruption = error
            finally:
                if entry is not None:
                    self._running = None
                    self._hand_over(goes_on=interruption is None and entry[0] < last)
        raise interruption

    def _hand_over(self, goes_on: bool = False) -> None:
        """After a task: tell those who wait and, unless the caller goes on, have the thread do what is pending."""
        with self._lock:
            if self._waiting:
                self._progress.notify_all()
            if goes_on or self._running is not None:
                return
            stranded = bool(self._pending) and not self._has_thread()
            if self._pending or self._closed:
                self._signal()
        if stranded:
            self._work(math.inf)

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
                if self._closed and self._running is None and not self._pending:
                    self._signal()  # an interrupt while a thread was started may have left two
                    return
            with suppress(BaseException):  # Remembered as the stream's failure; this thread serves on.
                self._work(math.inf)


def _live() -> list[Stream]:
    # valuerefs copies in one step; a WeakSet fails when another thread makes a stream while it is being walked.
    return [stream for reference in _all.valuerefs() if (stream := reference()) is not None]


def _streams_here() -> list[Stream]:
    """The streams whose tasks the calling thread is running."""
    thread = threading.get_ident()
    return [stream for stream in _live() if (running := stream._running) is not None and running[1] == thread]


def _aborted() -> AclnnError:
    return AclnnError(ACL_ERROR_RT_STREAM_ABORT, "stream: expected one that goes on, got one that is aborted")


def drain_at_exit(run_pending: bool = False) -> None:
    """Drop pending tasks at exit and give running ones some time: kernels must not outlive their memory.

    ``run_pending`` gives that time to pending tasks as well, and drops only what is left then.
    """
    deadline = time.monotonic() + _PATIENCE_AT_EXIT_S
    streams = _live()
    if run_pending:
        _wait(streams, deadline)
    for stream in streams:
        stream.drop()
    _wait(streams, deadline)


def _wait(streams: list[Stream], deadline: float) -> None:
    for stream in streams:
        stream._wait(timeout_s=max(deadline - time.monotonic(), 0.0))


def _restart_in_child() -> None:
    for stream in _live():
        stream._reset()


atexit.register(drain_at_exit)
after_fork(_restart_in_child)
