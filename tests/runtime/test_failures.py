"""Streams that stop on failure, and streams that are aborted."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest

from aclnn import cann
from tests.helpers.fresh_runtime import PATIENCE_S, queue, recent_error, stream_behind

STOP, CONTINUE = cann.ACL_STOP_ON_FAILURE, cann.ACL_CONTINUE_ON_FAILURE


def fail() -> None:
    raise ValueError("the reason")


def new_stream() -> int:
    status, stream = cann.aclrtCreateStream()
    assert status == 0
    return stream


def failed_behind(gate: threading.Event, mode: int = STOP) -> int:
    """Create a stream on which a task fails when the gate is opened."""
    stream = stream_behind(gate)
    assert cann.aclrtSetStreamFailureMode(stream, mode) == 0
    queue(stream).enqueue(fail)
    return stream


def test_tasks_behind_a_failure_are_dropped(device: None) -> None:
    gate, ran = threading.Event(), []
    stream = failed_behind(gate)
    queue(stream).enqueue(lambda: ran.append("behind"))
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert "the reason" in recent_error()
    assert not ran


def test_a_stream_in_continue_mode_runs_later_tasks(device: None) -> None:
    gate, ran = threading.Event(), []
    stream = failed_behind(gate, CONTINUE)
    queue(stream).enqueue(lambda: ran.append("behind"))
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert ran == ["behind"]


def test_after_a_failure_all_streams_of_the_context_reject_tasks(device: None) -> None:
    gate = threading.Event()
    (_, before), (_, behind) = cann.aclrtCreateEvent(), cann.aclrtCreateEvent()
    other = new_stream()
    assert cann.aclrtRecordEvent(before, other) == cann.aclrtSynchronizeEvent(before) == 0
    stream = failed_behind(gate)
    assert cann.aclrtRecordEvent(behind, stream) == 0
    gate.set()
    _, address = cann.aclrtMalloc(64, 0)
    for _ in range(2):
        for handle in (stream, other, 0):
            assert cann.aclrtSynchronizeStream(handle) == 507000
            assert "the reason" in recent_error()
            assert cann.aclrtStreamQuery(handle) == (507000, 0)
            assert cann.aclrtMemsetAsync(address, 64, 0, 64, handle) == 507000
            assert cann.aclrtRecordEvent(before, handle) == 507000
            assert cann.aclrtStreamWaitEvent(handle, before) == 507000
        for event in (before, behind):
            assert cann.aclrtSynchronizeEvent(event) == 507000
            assert cann.aclrtQueryEventStatus(event) == (507000, 0)
        assert cann.aclrtSynchronizeDevice() == 507000
    assert cann.aclrtMemset(address, 64, 7, 64) == 0
    assert cann.aclrtDestroyStream(stream) == cann.aclrtDestroyStream(other) == 0
    assert cann.aclrtResetDevice(0) == cann.aclrtSetDevice(0) == 0
    assert cann.aclrtSynchronizeStream(0) == 0


def test_tasks_of_other_streams_run_unless_they_wait_for_the_failure(device: None) -> None:
    gate, later, ran = threading.Event(), threading.Event(), []
    stream, free, bound = failed_behind(gate), stream_behind(later), new_stream()
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, stream) == cann.aclrtStreamWaitEvent(bound, event) == 0
    queue(free).enqueue(lambda: ran.append("free"))
    queue(bound).enqueue(lambda: ran.append("bound"))
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 507000
    later.set()
    assert queue(free)._wait(timeout_s=PATIENCE_S)
    assert queue(bound)._wait(timeout_s=PATIENCE_S)
    assert ran == ["free"]


def test_a_failure_leaves_other_contexts_alone(device: None) -> None:
    gate = threading.Event()
    stream = failed_behind(gate)
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, stream) == 0
    assert cann.aclrtCreateContext(0)[0] == 0
    own = new_stream()
    assert cann.aclrtStreamWaitEvent(own, event) == 0
    gate.set()
    assert cann.aclrtSynchronizeStream(own) == 507000  # it waited for what never came
    assert cann.aclrtSynchronizeStream(own) == 0
    assert cann.aclrtSynchronizeStream(stream) == 507000


def test_an_interrupt_does_not_stop_streams(device: None) -> None:
    stream = new_stream()
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 0

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue(stream).enqueue(interrupted, short=True)
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert cann.aclrtSynchronizeStream(stream) == 0


def test_a_wait_ends_with_its_context(device: None) -> None:
    gate = threading.Event()
    stream, stuck = failed_behind(gate), new_stream()
    _, never = cann.aclrtCreateNotify(0)
    assert cann.aclrtWaitAndResetNotify(never, stuck, 0) == 0
    gate.set()
    assert cann.aclrtSynchronizeStream(stuck) == 507000
    assert cann.aclrtSynchronizeStream(stream) == 507000


def test_failure_modes_may_only_become_stricter(device: None) -> None:
    value = (ctypes.c_uint64 * 2)()
    at = ctypes.addressof(value)
    stream = new_stream()
    for mode in (CONTINUE, 2, STOP, 3):
        assert cann.aclrtSetStreamFailureMode(stream, mode) == 0
        assert cann.aclrtGetStreamAttribute(stream, cann.ACL_STREAM_ATTR_FAILURE_MODE, at) == 0
        assert value[0] == mode & 1
    assert cann.aclrtSetStreamFailureMode(stream, CONTINUE) == 207000
    assert "stops on failure" in recent_error()
    queue(stream).enqueue(fail)
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 207000
    assert "has stopped" in recent_error()
    assert cann.aclrtSetStreamFailureMode(0, STOP) == 0
    value[0] = CONTINUE
    assert cann.aclrtSetStreamAttribute(0, cann.ACL_STREAM_ATTR_FAILURE_MODE, at) == 207000


def test_failure_modes_are_set_in_the_streams_context(fresh: None) -> None:
    assert cann.aclrtSetStreamFailureMode(0, STOP) == 107002
    assert cann.aclrtSetDevice(0) == 0
    stream = new_stream()
    assert cann.aclrtCreateContext(0)[0] == 0
    assert cann.aclrtSetStreamFailureMode(stream, CONTINUE) == 0
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == cann.aclrtStreamAbort(stream) == 107003
    assert cann.aclrtSetStreamFailureMode(7, STOP) == cann.aclrtStreamAbort(7) == 107000


def test_an_abort_drops_what_is_queued_and_the_stream_goes_on(device: None) -> None:
    gate, ran = threading.Event(), []
    stream = stream_behind(gate)
    queue(stream).enqueue(lambda: ran.append("dropped"))
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, stream) == 0
    results: list[int] = []
    waits = [
        threading.Thread(target=lambda: results.append(synchronized(stream))),
        threading.Thread(target=lambda: results.append(cann.aclrtSynchronizeEvent(event))),
    ]
    until(lambda: queue(stream)._running)
    for wait in waits:
        wait.start()
    until(lambda: queue(stream)._waiting)
    abort = threading.Thread(target=queue(stream).abort)
    abort.start()
    until(lambda: queue(stream)._aborting)
    assert cann.aclrtRecordEvent(event, stream) == 107023
    gate.set()
    for thread in (*waits, abort):
        thread.join(PATIENCE_S)
    assert results == [107023, 107023]
    assert not ran
    queue(stream).enqueue(lambda: ran.append("afterwards"))
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert ran == ["afterwards"]


def until(happened: Callable[[], object]) -> None:
    """Wait for a condition, with a timeout."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.001)


def synchronized(stream: int) -> int:
    """Synchronize in a thread without a current context."""
    assert cann.aclrtSetDevice(0) == 0
    return cann.aclrtSynchronizeStream(stream)


def test_an_abort_ends_a_wait_and_forgets_a_failure(device: None) -> None:
    gate = threading.Event()
    behind, stuck = stream_behind(gate), new_stream()
    _, event = cann.aclrtCreateEvent()
    queue(stuck).enqueue(fail)
    assert cann.aclrtRecordEvent(event, behind) == cann.aclrtStreamWaitEvent(stuck, event) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(stuck, 5) == 507046
    assert cann.aclrtStreamAbort(stuck) == 0
    assert cann.aclrtSynchronizeStream(stuck) == 0
    gate.set()


def test_streams_waiting_for_an_aborted_stream_wait_until_they_are_aborted(device: None) -> None:
    gate = threading.Event()
    stream, other = stream_behind(gate), new_stream()
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, stream) == cann.aclrtStreamWaitEvent(other, event) == 0
    gate_opener = threading.Timer(0.02, gate.set)
    gate_opener.start()
    assert cann.aclrtStreamAbort(stream) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(other, 50) == 507046
    assert cann.aclrtStreamAbort(other) == 0
    assert cann.aclrtSynchronizeStream(other) == 0


def test_an_abort_leaves_the_contexts_failure(device: None) -> None:
    stream = new_stream()
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 0
    queue(stream).enqueue(fail)
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert cann.aclrtStreamAbort(stream) == 0
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 0


def test_the_default_stream_is_aborted_by_null(device: None) -> None:
    assert cann.aclrtStreamAbort(0) == cann.aclrtSynchronizeStream(0) == 0


def test_destroy_stream_force_ends_a_wait(device: None) -> None:
    gate = threading.Event()
    behind, stuck = stream_behind(gate), new_stream()
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, behind) == cann.aclrtStreamWaitEvent(stuck, event) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(stuck, 5) == 507046
    waiting = queue(stuck)
    assert cann.aclrtDestroyStreamForce(stuck) == 0
    assert waiting._wait(timeout_s=PATIENCE_S)
    gate.set()
