"""Callbacks: host functions called by streams, in the stream's own thread or in a subscribed thread of the program."""

from __future__ import annotations

import ctypes
import queue
import threading

from aclnn.core.status import (
    ACL_ERROR_RT_REPORT_TIMEOUT,
    ACL_ERROR_RT_STREAM_NO_CB_REG,
    ACL_ERROR_RT_STREAM_SUBSCRIBE,
    ACL_ERROR_RT_THREAD_SUBSCRIBE,
    AclnnError,
)
from aclnn.runtime.locks import Lock
from aclnn.runtime.streams import Stream, Task, hold
from aclnn.support.process import PerProcess

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Subscriptions:
    """Threads of the program that are subscribed to streams, whose functions they call."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._lock = Lock()
        self._threads: dict[Stream, int] = {}
        self._reports: dict[int, queue.SimpleQueue[Task]] = {}

    def subscribe(self, thread: int, stream: Stream) -> None:
        """Subscribe a thread, which calls the stream's functions in ``process``.

        Raises:
            AclnnError: 107011, the stream has a subscribed thread already.
        """
        with self._lock:
            if stream in self._threads:
                raise AclnnError(
                    ACL_ERROR_RT_STREAM_SUBSCRIBE,
                    f"stream: expected one without a subscribed thread, got one with {self._threads[stream]:#x}",
                )
            self._threads[stream] = thread
            self._reports.setdefault(thread, queue.SimpleQueue())

    def unsubscribe(self, thread: int, stream: Stream) -> None:
        """Undo ``subscribe``.

        Raises:
            AclnnError: 107015, no thread is subscribed; 107012, another thread is.
        """
        with self._lock:
            subscribed = self._thread_of(stream)
            if subscribed != thread:
                raise AclnnError(
                    ACL_ERROR_RT_THREAD_SUBSCRIBE, f"threadId: expected {subscribed:#x}, the stream's, got {thread:#x}"
                )
            del self._threads[stream]
            if thread not in self._threads.values():
                del self._reports[thread]

    def has(self, stream: Stream) -> bool:
        """Return True if a thread is subscribed to the stream."""
        return stream in self._threads

    def _thread_of(self, stream: Stream) -> int:
        thread = self._threads.get(stream)
        if thread is None:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_NO_CB_REG,
                f"stream: expected one with a subscribed thread ({self._function}), got none",
            )
        return thread

    def report(self, function: int, data: int, stream: Stream, blocks: bool) -> None:
        """Queue a call of the function by the stream's subscribed thread.

        Args:
            function: address of the function.
            data: argument of the function.
            stream: the stream.
            blocks: True if the stream waits until the function returns.

        Raises:
            AclnnError: 107015, no thread is subscribed.
        """
        with self._lock:
            reports = self._reports[self._thread_of(stream)]
        call = _call_of(function, data)

        def task() -> None:
            ended = threading.Event()

            def called() -> None:
                call()
                ended.set()

            reports.put(called)
            if blocks:
                hold(ended.wait)

        stream.enqueue(task)

    def process(self, timeout_s: float | None) -> None:
        """Wait for the next function due in the calling thread, then call every one that is due.

        Raises:
            AclnnError: 107012, the thread is not subscribed; 507012, no function was due within the time.
        """
        reports = self._reports.get(threading.get_ident())
        if reports is None:
            raise AclnnError(
                ACL_ERROR_RT_THREAD_SUBSCRIBE, f"thread: expected the subscribed thread ({self._function}), got another"
            )
        try:
            reports.get(timeout=timeout_s)()
            while not reports.empty():
                reports.get_nowait()()
        except queue.Empty:
            raise AclnnError(
                ACL_ERROR_RT_REPORT_TIMEOUT, f"timeout: expected a callback within {timeout_s} s, got none"
            ) from None


class _Process:
    def __init__(self) -> None:
        self.callbacks = Subscriptions("aclrtSubscribeReport")
        self.host_functions = Subscriptions("aclrtSubscribeHostFunc")


_process = PerProcess(_Process)


def callbacks() -> Subscriptions:
    """Return the subscriptions of ``aclrtLaunchCallback``."""
    return _process.current.callbacks


def host_functions() -> Subscriptions:
    """Return the subscriptions of ``aclrtLaunchHostFunc``; without one, the stream's own thread calls."""
    return _process.current.host_functions


def _call_of(function: int, data: int) -> Task:
    call = _FUNCTION(function)  # ctypes releases the interpreter lock during the call
    return lambda: call(data)


def launch(function: int, data: int, stream: Stream) -> None:
    """``aclrtLaunchHostFunc``: queue a call of the function; the stream waits until it returns."""
    threads = host_functions()
    if threads.has(stream):
        threads.report(function, data, stream, blocks=True)
    else:
        stream.enqueue(_call_of(function, data))
