"""Callbacks: functions of a program that streams call, in their own thread or in one that the program subscribes."""

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
    """Threads of the program, each with the streams whose functions it calls."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._lock = Lock()
        self._threads: dict[Stream, int] = {}
        self._reports: dict[int, queue.SimpleQueue[Task]] = {}

    def subscribe(self, thread: int, stream: Stream) -> None:
        """Let a thread call what the stream launches, in ``process``.

        Raises:
            AclnnError: 107011, a thread does already.
        """
        with self._lock:
            if stream in self._threads:
                raise AclnnError(
                    ACL_ERROR_RT_STREAM_SUBSCRIBE,
                    f"stream: expected one without a thread, got one of {self._threads[stream]:#x}",
                )
            self._threads[stream] = thread
            self._reports.setdefault(thread, queue.SimpleQueue())

    def unsubscribe(self, thread: int, stream: Stream) -> None:
        """Undo ``subscribe``.

        Raises:
            AclnnError: 107015, no thread is subscribed; 107012, another one.
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
        """True where a thread calls what the stream launches."""
        return stream in self._threads

    def _thread_of(self, stream: Stream) -> int:
        thread = self._threads.get(stream)
        if thread is None:
            raise AclnnError(ACL_ERROR_RT_STREAM_NO_CB_REG, f"stream: expected one with a thread ({self._function})")
        return thread

    def report(self, function: int, data: int, stream: Stream, blocks: bool) -> None:
        """Have the stream's thread call the function when the stream comes to it.

        Args:
            function: its address.
            data: its argument.
            stream: the stream.
            blocks: the stream waits for the function's end.

        Raises:
            AclnnError: 107015, it has no thread.
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
        """Wait for the next function that the calling thread has to call, and call what there is.

        Raises:
            AclnnError: 107012, the thread is not subscribed; 507012, there was none in time.
        """
        reports = self._reports.get(threading.get_ident())
        if reports is None:
            raise AclnnError(ACL_ERROR_RT_THREAD_SUBSCRIBE, f"expected a subscribed thread ({self._function})")
        try:
            reports.get(timeout=timeout_s)()
            while not reports.empty():
                reports.get_nowait()()
        except queue.Empty:
            raise AclnnError(ACL_ERROR_RT_REPORT_TIMEOUT, f"timeout: none came within {timeout_s} s") from None


class _Process:
    def __init__(self) -> None:
        self.callbacks = Subscriptions("aclrtSubscribeReport")
        self.host_functions = Subscriptions("aclrtSubscribeHostFunc")


_process = PerProcess(_Process)


def callbacks() -> Subscriptions:
    """The threads for ``aclrtLaunchCallback``."""
    return _process.current.callbacks


def host_functions() -> Subscriptions:
    """The threads for ``aclrtLaunchHostFunc``, without which streams call in their own."""
    return _process.current.host_functions


def _call_of(function: int, data: int) -> Task:
    call = _FUNCTION(function)  # which gives up the interpreter's lock meanwhile
    return lambda: call(data)


def launch(function: int, data: int, stream: Stream) -> None:
    """``aclrtLaunchHostFunc``: call the function when the stream comes to it, which waits for its end."""
    threads = host_functions()
    if threads.has(stream):
        threads.report(function, data, stream, blocks=True)
    else:
        stream.enqueue(_call_of(function, data))
