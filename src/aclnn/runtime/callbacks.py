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


class _Subscriptions:
    def __init__(self) -> None:
        self.lock = Lock()
        self.threads: dict[Stream, int] = {}
        self.reports: dict[int, queue.SimpleQueue[Task]] = {}


_process = PerProcess(_Subscriptions)


def _call_of(function: int, data: int) -> Task:
    call = _FUNCTION(function)  # which gives up the interpreter's lock meanwhile
    return lambda: call(data)


def launch(function: int, data: int, stream: Stream) -> None:
    """``aclrtLaunchHostFunc``: call the function when the stream comes to it, which waits for its end."""
    stream.enqueue(_call_of(function, data))


def subscribe(thread: int, stream: Stream) -> None:
    """Let a thread call what the stream launches, in ``process``.

    Raises:
        AclnnError: 107011, a thread does already.
    """
    subscriptions = _process.current
    with subscriptions.lock:
        if stream in subscriptions.threads:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_SUBSCRIBE,
                f"stream: expected one without a thread, got one of {subscriptions.threads[stream]:#x}",
            )
        subscriptions.threads[stream] = thread
        subscriptions.reports.setdefault(thread, queue.SimpleQueue())


def unsubscribe(thread: int, stream: Stream) -> None:
    """Undo ``subscribe``.

    Raises:
        AclnnError: 107015, no thread is subscribed; 107012, another one.
    """
    subscriptions = _process.current
    with subscriptions.lock:
        subscribed = _thread_of(stream)
        if subscribed != thread:
            raise AclnnError(
                ACL_ERROR_RT_THREAD_SUBSCRIBE, f"threadId: expected {subscribed:#x}, the stream's, got {thread:#x}"
            )
        del subscriptions.threads[stream]
        if thread not in subscriptions.threads.values():
            del subscriptions.reports[thread]


def _thread_of(stream: Stream) -> int:
    thread = _process.current.threads.get(stream)
    if thread is None:
        raise AclnnError(ACL_ERROR_RT_STREAM_NO_CB_REG, "stream: expected one with a thread (aclrtSubscribeReport)")
    return thread


def report(function: int, data: int, stream: Stream, blocks: bool) -> None:
    """``aclrtLaunchCallback``: have the stream's thread call the function when the stream comes to it.

    Args:
        function: its address.
        data: its argument.
        stream: the stream.
        blocks: the stream waits for the function's end.

    Raises:
        AclnnError: 107015, it has no thread.
    """
    subscriptions = _process.current
    with subscriptions.lock:
        reports = subscriptions.reports[_thread_of(stream)]
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


def process(timeout_s: float | None) -> None:
    """Wait for the next function that the calling thread has to call, and call what there is.

    Raises:
        AclnnError: 107012, the thread is not subscribed; 507012, there was none in time.
    """
    reports = _process.current.reports.get(threading.get_ident())
    if reports is None:
        raise AclnnError(ACL_ERROR_RT_THREAD_SUBSCRIBE, "expected a subscribed thread (aclrtSubscribeReport)")
    try:
        reports.get(timeout=timeout_s)()
        while not reports.empty():
            reports.get_nowait()()
    except queue.Empty:
        raise AclnnError(ACL_ERROR_RT_REPORT_TIMEOUT, f"timeout: none came within {timeout_s} s") from None
