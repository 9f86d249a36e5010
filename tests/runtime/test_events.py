"""Events: records, waits across streams, states, times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aclnn import cann
from tests.helpers.fresh_runtime import queue, recent_error, stream_behind

NULL_ROWS: list[tuple[str, Callable[[Any], Any]]] = [
    ("destroy", cann.aclrtDestroyEvent),
    ("record", lambda e: cann.aclrtRecordEvent(e, 0)),
    ("wait", lambda e: cann.aclrtStreamWaitEvent(0, e)),
    ("reset", lambda e: cann.aclrtResetEvent(e, 0)),
    ("synchronize", cann.aclrtSynchronizeEvent),
    ("synchronize with timeout", lambda e: cann.aclrtSynchronizeEventWithTimeout(e, 1)),
    ("query status", lambda e: cann.aclrtQueryEventStatus(e)[0]),
    ("query", lambda e: cann.aclrtQueryEvent(e)[0]),
    ("elapsed from", lambda e: cann.aclrtEventElapsedTime(e, cann.aclrtCreateEvent()[1])[0]),
    ("elapsed to", lambda e: cann.aclrtEventElapsedTime(cann.aclrtCreateEvent()[1], e)[0]),
]


@pytest.mark.parametrize("call", [row[1] for row in NULL_ROWS], ids=[row[0] for row in NULL_ROWS])
def test_null_stale_and_foreign_events_are_rejected(device: None, call: Callable[[Any], int]) -> None:
    _, gone = cann.aclrtCreateEvent()
    assert cann.aclrtDestroyEvent(gone) == 0
    _, stream = cann.aclrtCreateStream()
    for handle, code, text in (
        (0, 100000, "null"),
        (None, 100000, "null"),
        (gone, 107000, "destroyed"),
        (stream, 107000, "a live Stream"),
        (99, 107000, "not a handle"),
    ):
        assert call(handle) == code
        assert text in recent_error()


@pytest.mark.parametrize("create", [cann.aclrtCreateEventWithFlag, cann.aclrtCreateEventExWithFlag])
@pytest.mark.parametrize(
    ("flag", "code"),
    [
        *[(flag, 0) for flag in (0x1, 0x2, 0x8, 0x9, 0xB, 0x10, 0x20, 0x40)],
        *[(flag, 107000) for flag in (0, 0x4, 0x80, 0x81, 0x11, 0x18, 0x21, 0x30, 0x41, 0x60, 2**31)],
    ],
)
def test_events_are_created_with_valid_flags_only(
    fresh: None, create: Callable[[int], tuple[int, int]], flag: int, code: int
) -> None:
    status, event = create(flag)
    assert status == code
    assert bool(event) == (code == 0)
    if code:
        assert "flag" in recent_error()


def test_an_event_is_complete_when_its_stream_has_come_to_it(device: None) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtQueryEventStatus(event) == (0, cann.ACL_EVENT_RECORDED_STATUS_NOT_READY)
    assert cann.aclrtRecordEvent(event, stream) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, cann.ACL_EVENT_RECORDED_STATUS_NOT_READY)
    assert cann.aclrtQueryEvent(event) == (0, cann.ACL_EVENT_STATUS_NOT_READY)
    assert cann.aclrtSynchronizeEventWithTimeout(event, 1) == 507047
    assert "timed out after 1 ms" in recent_error()
    assert cann.aclrtSynchronizeEventWithTimeout(event, 0) == 507047
    assert cann.aclrtSynchronizeEventWithTimeout(event, -2) == 107000
    gate.set()
    assert cann.aclrtSynchronizeEvent(event) == 0
    assert cann.aclrtSynchronizeEventWithTimeout(event, -1) == 0
    assert cann.aclrtSynchronizeEventWithTimeout(event, 0) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, cann.ACL_EVENT_RECORDED_STATUS_COMPLETE)
    assert cann.aclrtQueryEvent(event) == (0, cann.ACL_EVENT_STATUS_COMPLETE)


def test_a_stream_waits_for_another(device: None) -> None:
    gate, order = threading.Event(), []
    first = stream_behind(gate)
    _, second = cann.aclrtCreateStream()
    _, event = cann.aclrtCreateEvent()
    queue(first).enqueue(lambda: order.append("first"))
    assert cann.aclrtRecordEvent(event, first) == 0
    assert cann.aclrtStreamWaitEvent(second, event) == 0
    queue(second).enqueue(lambda: order.append("second"), short=True)
    assert cann.aclrtDestroyEvent(event) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(second, 5) == 507046
    gate.set()
    assert cann.aclrtSynchronizeStream(second) == 0
    assert order == ["first", "second"]


def test_a_wait_refers_to_the_record_before_it(device: None) -> None:
    gate = threading.Event()
    stuck = stream_behind(gate)
    _, done = cann.aclrtCreateStream()
    _, waiting = cann.aclrtCreateStream()
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, done) == 0
    assert cann.aclrtStreamWaitEvent(waiting, event) == 0
    assert cann.aclrtRecordEvent(event, stuck) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(waiting, 10_000) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, 0)
    gate.set()


def test_waiting_for_an_unrecorded_event_is_rejected(device: None) -> None:
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtStreamWaitEvent(0, event) == 107000
    assert "was recorded" in recent_error()
    assert cann.aclrtSynchronizeEvent(event) == 107000
    _, reusable = cann.aclrtCreateEventExWithFlag(cann.ACL_EVENT_SYNC)
    assert cann.aclrtQueryEventStatus(reusable) == (0, cann.ACL_EVENT_RECORDED_STATUS_COMPLETE)
    assert cann.aclrtStreamWaitEvent(0, reusable) == 0
    assert cann.aclrtSynchronizeEvent(reusable) == 0
    assert cann.aclrtSynchronizeStream(0) == 0


def test_reset_events_are_unrecorded(device: None) -> None:
    gate = threading.Event()
    _, event = cann.aclrtCreateEventWithFlag(cann.ACL_EVENT_SYNC)
    assert cann.aclrtRecordEvent(event, 0) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, 1)
    stream = stream_behind(gate)
    assert cann.aclrtResetEvent(event, stream) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, 1)
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, 0)


def test_a_late_reset_spares_a_newer_record(device: None) -> None:
    gate = threading.Event()
    _, event = cann.aclrtCreateEventWithFlag(cann.ACL_EVENT_SYNC)
    assert cann.aclrtRecordEvent(event, 0) == 0
    stream = stream_behind(gate)
    assert cann.aclrtResetEvent(event, stream) == 0
    assert cann.aclrtRecordEvent(event, 0) == 0
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert cann.aclrtQueryEventStatus(event) == (0, 1)


def test_elapsed_time_is_measured_between_events(device: None) -> None:
    _, start = cann.aclrtCreateEvent()
    _, end = cann.aclrtCreateEventWithFlag(cann.ACL_EVENT_TIME_LINE | cann.ACL_EVENT_SYNC)
    _, stream = cann.aclrtCreateStream()
    before = time.perf_counter()
    assert cann.aclrtRecordEvent(start, stream) == 0
    queue(stream).enqueue(lambda: time.sleep(0.02))
    assert cann.aclrtRecordEvent(end, stream) == 0
    assert cann.aclrtSynchronizeStream(stream) == 0
    most = (time.perf_counter() - before) * 1e3
    status, ms = cann.aclrtEventElapsedTime(start, end)
    assert status == 0
    assert 20 <= ms <= most
    assert cann.aclrtEventElapsedTime(end, start) == (0, -ms)
    assert cann.aclrtEventElapsedTime(end, end) == (0, 0.0)


def test_elapsed_time_rejects_events_without_a_time(device: None) -> None:
    _, never = cann.aclrtCreateEvent()
    _, recorded = cann.aclrtCreateEvent()
    _, untimed = cann.aclrtCreateEventWithFlag(cann.ACL_EVENT_SYNC)
    _, pending = cann.aclrtCreateEvent()
    gate = threading.Event()
    stream = stream_behind(gate)
    for event, where in ((recorded, 0), (untimed, 0), (pending, stream)):
        assert cann.aclrtRecordEvent(event, where) == 0
    for start, end, code in (
        (never, recorded, 507000),
        (recorded, never, 507000),
        (untimed, never, 507000),
        (untimed, recorded, 107006),
        (recorded, untimed, 107006),
        (recorded, pending, 107006),
    ):
        assert cann.aclrtEventElapsedTime(start, end) == (code, 0.0)
        assert "Event: expected" in recent_error()
    gate.set()


def test_default_streams_need_a_context(fresh: None) -> None:
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtRecordEvent(event, 0) == 107002
    assert cann.aclrtResetEvent(event, 0) == 107002
    assert cann.aclrtStreamWaitEvent(0, event) == 107002
