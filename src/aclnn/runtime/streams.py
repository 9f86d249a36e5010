"""Streams: queues whose tasks run in order, one at a time, asynchronously to the caller. Records mark points in them.

A failed task is remembered until the stream is synchronized; later tasks still run. Once a stream with
ACL_STOP_ON_FAILURE fails, its later tasks are dropped, and all streams of its context reject new tasks.

Each stream has its own thread, started with the first task that has to wait. In two cases a task runs elsewhere, to
avoid switching to that thread: a short task on an idle stream runs in ``enqueue``, and a thread that waits for the
stream runs the pending tasks itself.

Within a task, waiting for a stream returns at once, since the wait could be for the task's own end. That does happen:
tasks run Python code, so a garbage collection may call finalizers that synchronize, as DeepSpeed's do.

The main thread may be interrupted (Ctrl-C) between any two calls. So no counters are kept of queued and finished tasks:
both follow from the pending queue and the running task, each of which is updated in one step.
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

#: Called if a task is dropped, with the reason, or None if the stream is closed.
Dropped = Callable[[AclnnError | None], object]

#: Ticket, task and drop callback. A plain tuple: creating a named one takes 0.2 µs more.
_Entry = tuple[int, Task, Dropped]

_all: WeakValueDictionary[int, Stream] = WeakValueDictionary()
_numbers = itertools.count()
_PATIENCE_AT_EXIT_S = 10.0
#: Range of stream priorities; smaller numbers mean higher priority.
LEAST_PRIORITY, GREATEST_PRIORITY = 7, 0
# Interval at which a waiting task checks whether it may continue.
_POLL_S = 0.02


class Fault:
    """Failure state shared by the streams of a context: whether to stop on failure, and the first failure's text."""

    __slots__ = ("failure", "stops")

    def __init__(self) -> None:
        self.stops = False
        self.failure: str | None = None

    def expect_none(self) -> None:
        """Raise an error if a stream of the context has failed and stopped.

        Raises:
            AclnnError: 507000.
        """
        if self.failure is not None:
            raise AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: a task of the context failed: {self.failure}")


class _AbortedError(Exception):
    """Ends a waiting task when its stream is aborted."""


class Record:
    """A point in a stream, done once the stream has reached it."""

    __slots__ = ("_error", "_fault", "_gate", "_time_ns", "done")

    def __init__(self, fault: Fault | None = None) -> None:
        self.done = False
        """True once no thread need wait for the record."""
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
        """Wake all waiting threads, with an error if given: the stream will not reach the record."""
        self._error = error
        self.done = True
        self._gate.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the record; return False on timeout."""
        if not self.done and self._gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
            self._gate.release()
        return self.done

    def check(self) -> None:
        """Raise an error if the stream did not reach the record.

        Raises:
            AclnnError: 507000, its stream's context stopped on a failure; 107023, the stream was aborted before it.
        """
        self._fault.expect_none()
        if self._error is not None:
            raise self._error

    @property
    def lost(self) -> bool:
        """True if the stream was aborted before the record: a stream that waits for it waits forever."""
        return self._error is not None and self._error.code == ACL_ERROR_RT_STREAM_ABORT

    @property
    def has_time(self) -> bool:
        """True if the stream has reached the record."""
        return self._time_ns is not None

    @property
    def time_us(self) -> int:
        """Time when the stream reached the record, in microseconds."""
        assert self._time_ns is not None
        return self._time_ns // 1000

    def ms_since(self, other: Record) -> float:
        """Return the milliseconds from another record to this one; both must have been reached."""
        assert self._time_ns is not None
        assert other._time_ns is not None
        return (self._time_ns - other._time_ns) / 1e6


def _nothing(reason: AclnnError | None) -> None:
    """Do nothing: default for ``dropped``."""


def hold(happened: Callable[[float], object], limit_s: float | None = None) -> bool:
    """Wait, within a task, for a condition; return False on timeout.

    Args:
        happened: waits up to the given number of seconds, and returns true if the condition holds.
        limit_s: how long to wait; None for no limit.

    Raises:
        AclnnError: 507000, the stream's context stopped on a failure.
    """
    streams = _streams_here()
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    while not happened(max(min(_POLL_S, deadline - time.monotonic()), 0.0)):
        for stream in streams:
            stream.check_not_aborted()
        if time.monotonic() >= deadline:
            return False
    return True


def waiting_for(record: Record, limit_s: float | None = None) -> Task:
    """Return a task that waits for a record, and fails on timeout or if the record will not be reached."""

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
    """Convert a timeout in milliseconds to seconds; return None for -1, which means no limit.

    Raises:
        AclnnError: ``code``, the timeout is neither -1 nor at least ``least``.
    """
    if timeout_ms != -1 and timeout_ms < least:
        raise AclnnError(code, f"timeout: expected -1 or {least} ms or more, got {timeout_ms}")
    return None if timeout_ms == -1 else timeout_ms / 1000


class CapturingGraph(Protocol):
    """Receiver of a stream's tasks in place of its queue (see ``graphs``)."""

    captures: bool
    """True if the tasks become part of a graph."""

    def take(self, stream: Stream, task: Task) -> None:
        """Take a task."""


class Stream:
    """A queue of tasks, whose failure state may be shared with other streams."""

    def __init__(self, priority: int = 0, flags: int = 0, fault: Fault | None = None) -> None:
        self.priority, self.flags = priority, flags
        """Hints, without effect."""
        self.number = next(_numbers)
        self.context: Any = None
        """Context of the stream (see ``devices``)."""
        self.handle = 0
        """Handle; 0 for a default stream until its handle is requested."""
        self.attributes: dict[int, int] = {}
        """Values set by aclrtSetStreamAttribute."""
        self.limits: dict[int, int] = {}
        """Limits set by aclrtSetStreamResLimit."""
        self.fault = fault or Fault()
        self._reset()
        _all[id(self)] = self

    def _reset(self) -> None:
        """Reset to an empty queue with fresh locks; in a child process, no thread is left to release the old ones."""
        self.capturing_graph: CapturingGraph | None = None
        self._lock = Lock()
        self._closed = False
        self._failure: str | None = None
        self.has_stopped = False
        """True once a task has failed and the context stops on failure."""
        self._aborting = 0
        self._aborts = 0
        self._progress = threading.Condition(self._lock)
        self._pending: deque[_Entry] = deque()
        self._running: tuple[int, int] | None = None
        """Ticket, and identifier of the thread that runs its task; only that thread may start the next task."""
        self._last = 0
        """Last ticket issued."""
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        self._awake = False

    def enqueue(self, task: Task, short: bool = False, dropped: Dropped = _nothing) -> int:
        """Queue a task, or pass it to the taker; return its ticket for ``wait``.

        Args:
            task: what to do; its exception becomes the stream's failure.
            short: the task takes less time than waking a thread (10 µs), so it may run at once on an idle stream.
            dropped: called if the task is dropped before it starts.

        Raises:
            AclnnError: 107000, the stream is closed; 507000, its context stopped on a failure; 107023, it is aborted.
        """
        if self.capturing_graph is None:
            return self.queue(task, short, dropped)
        self.capturing_graph.take(self, task)
        return self._last

    def queue(self, task: Task, short: bool = False, dropped: Dropped = _nothing) -> int:
        """Queue a task, bypassing the taker."""
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
        """Make the next tasks wait for a record; they fail on timeout or if the record will not be reached.

        Raises:
            AclnnError: as ``enqueue``.
        """
        self.fault.expect_none()
        if not record.has_time:
            self.queue(waiting_for(record, limit_s))

    def expect_no_capture(self) -> None:
        """Raise an error if the stream is capturing.

        Raises:
            AclnnError: 107027.
        """
        if self.capturing_graph is not None and self.capturing_graph.captures:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURED, "stream: expected one that is not capturing, got one that is"
            )

    def idle(self) -> bool:
        """True once every task has finished.

        Raises:
            AclnnError: 107027, the stream is capturing; 507000, its context stopped on a failure.
        """
        self.expect_no_capture()
        self.fault.expect_none()
        # In this order: a task becomes the running one before it is removed from the pending ones.
        return not self._pending and self._running is None

    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait for a task, or for every task queued so far; return False on timeout.

        Without a timeout, this thread runs pending tasks itself. Within a task, it returns True at once.

        Raises:
            AclnnError: 107000, a ticket was given within a task; 107023, the stream was aborted.
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
                    raise AclnnError(
                        ACL_ERROR_RT_PARAM_INVALID, "stream: expected a call outside of tasks, got one within a task"
                    )
                if self._running is not None:
                    return self._await(last, timeout_s)
                if timeout_s is not None:
                    if self._has_thread():
                        self._signal()
                    return self._await(last, timeout_s)
            self._work(last)

    def close(self, force: bool = False) -> None:
        """Accept no more tasks, and wait for the queued ones or, with ``force``, drop those that have not started."""
        with self._lock:
            self._closed = True
            self.capturing_graph = None
        if force:
            self._aborting += 1
            self.drop()
        else:
            self._wait()
        with self._lock:
            self._signal()

    def abort(self) -> None:
        """Drop pending tasks, end waiting ones, wait for the running one, and forget failures."""
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

    def check_not_aborted(self) -> None:
        """End the waiting task if the stream has been aborted, closed by force, or stopped on a failure.

        Raises:
            AclnnError: 507000, its context stopped on a failure.
        """
        if self._aborting:
            raise _AbortedError
        self.fault.expect_none()

    def drop(self, reason: AclnnError | None = None) -> None:
        """Drop the tasks that have not started."""
        with self._lock:
            none: deque[_Entry] = deque()
            entries, self._pending = self._pending, none
            if entries:
                self._failure = self._failure or f"tasks dropped before they started: {len(entries)}"
            self._progress.notify_all()
        for _, _, dropped in entries:
            dropped(reason)

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for every task queued so far; return False on timeout.

        Raises:
            AclnnError: 507000, a task since the last synchronisation failed, or the context stopped on a failure;
                107027, the stream is capturing; 107023, it was aborted.
        """
        self.expect_no_capture()
        self.fault.expect_none()
        done = self.wait(timeout_s=timeout_s)
        self.fault.expect_none()
        if done:
            self.raise_failure()
        return done

    def raise_failure(self) -> None:
        """Raise an error for the first task that has failed since the last report, if any.

        Raises:
            AclnnError: 507000.
        """
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: a task failed: {failure}")

    def _remember(self, error: BaseException) -> bool:
        """Record a task's error as the stream's failure; return True for an interrupt, which is raised too."""
        if isinstance(error, _AbortedError):
            return False
        text = error.message if isinstance(error, AclnnError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._failure = self._failure or text
        interrupts = not isinstance(error, Exception)
        if self.fault.stops and not interrupts:
            self.has_stopped = True
            self.fault.failure = self.fault.failure or text
            self.drop(AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"stream: dropped after a failed task: {text}"))
        return interrupts

    @property
    def last(self) -> int:
        """Last ticket issued."""
        return self._last

    def has_finished(self, ticket: int) -> bool:
        """Return True once all tasks up to a ticket have finished or been dropped."""
        with self._lock:
            return self._finished() >= ticket

    def _finished(self) -> int:
        """Return the last ticket up to which all tasks have finished."""
        first = self._running or (self._pending[0] if self._pending else None)
        return self._last if first is None else first[0] - 1

    def _await(self, ticket: int, timeout_s: float | None) -> bool:
        self._waiting += 1
        try:
            return self._progress.wait_for(lambda: self._finished() >= ticket, timeout_s)
        finally:
            self._waiting -= 1

    def _work(self, last: float) -> None:
        """Run pending tasks up to ticket ``last``, unless another thread does.

        If no thread can be started, run all of them.
        """
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
        """After a task, wake waiting threads and, unless the caller goes on, the stream's thread for pending tasks."""
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
        """Start the stream's thread if necessary; return False if the interpreter is shutting down."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="aclnn stream", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _signal(self) -> None:
        """Wake the stream's thread to run tasks or to end."""
        if not self._awake and self._thread is not None:
            self._awake = True
            self._wake.release()

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            with self._lock:
                self._awake = False
                if self._closed and self._running is None and not self._pending:
                    self._signal()  # an interrupt while starting a thread may have left two threads
                    return
            with suppress(BaseException):  # recorded as the stream's failure; the thread continues
                self._work(math.inf)


def _live() -> list[Stream]:
    # valuerefs copies in one step; iterating a WeakSet fails if another thread adds a stream.
    return [stream for reference in _all.valuerefs() if (stream := reference()) is not None]


def _streams_here() -> list[Stream]:
    """Return the streams whose tasks the calling thread is running."""
    thread = threading.get_ident()
    return [stream for stream in _live() if (running := stream._running) is not None and running[1] == thread]


def _aborted() -> AclnnError:
    return AclnnError(ACL_ERROR_RT_STREAM_ABORT, "stream: expected a running stream, got an aborted one")


def drain_at_exit(run_pending: bool = False) -> None:
    """Drop pending tasks at exit and give running ones some time: kernels must not outlive their memory.

    With ``run_pending``, pending tasks get that time too, and only the remaining ones are dropped.
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
