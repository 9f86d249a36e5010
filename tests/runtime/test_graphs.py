"""Graphs: what is captured, in which order it is executed, which streams take part, what is rejected meanwhile."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aclnn import cann
from aclnn.core.products import set_soc_name
from tests.helpers.fresh_runtime import PATIENCE_S, queue, recent_error

GLOBAL, LOCAL, RELAXED = (
    cann.ACL_MODEL_RI_CAPTURE_MODE_GLOBAL,
    cann.ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
    cann.ACL_MODEL_RI_CAPTURE_MODE_RELAXED,
)
HOST_TO_DEVICE, DEVICE_TO_HOST = cann.ACL_MEMCPY_HOST_TO_DEVICE, cann.ACL_MEMCPY_DEVICE_TO_HOST


def stream() -> int:
    status, handle = cann.aclrtCreateStream()
    assert status == 0
    return handle


def event(flags: int = cann.ACL_EVENT_SYNC) -> int:
    status, handle = cann.aclrtCreateEventWithFlag(flags)
    assert status == 0
    return handle


def begin(mode: int = GLOBAL) -> int:
    handle = stream()
    assert cann.aclmdlRICaptureBegin(handle, mode) == 0
    return handle


def end(handle: int) -> int:
    status, graph = cann.aclmdlRICaptureEnd(handle)
    assert status == 0
    return graph


def replay(graph: int, on: int = 0) -> None:
    assert cann.aclmdlRIExecuteAsync(graph, on) == 0
    assert cann.aclrtSynchronizeStream(on) == 0


def after(first: int, then: int) -> None:
    """Make a stream wait for another."""
    between = event()
    assert cann.aclrtRecordEvent(between, first) == 0
    assert cann.aclrtStreamWaitEvent(then, between) == 0


@contextmanager
def thread_mode(mode: int) -> Iterator[ctypes.c_int32]:
    value = ctypes.c_int32(mode)
    assert cann.aclmdlRICaptureThreadExchangeMode(ctypes.addressof(value)) == 0
    yield value
    assert cann.aclmdlRICaptureThreadExchangeMode(ctypes.addressof(value)) == 0


def in_thread(call: Callable[[], int]) -> int:
    results: list[int] = []

    def run() -> None:
        assert cann.aclrtSetDevice(0) == 0
        results.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    (result,) = results
    return result


def test_captured_tasks_run_only_when_the_graph_is_executed(device: None) -> None:
    seen: list[int] = []
    captured = begin()
    queue(captured).enqueue(lambda: seen.append(1), short=True)
    queue(captured).enqueue(lambda: seen.append(2))
    graph = end(captured)
    assert seen == []
    queue(captured).enqueue(lambda: seen.append(3), short=True)
    assert seen == [3]
    replay(graph)
    replay(graph, captured)
    assert seen == [3, 1, 2, 1, 2]
    assert cann.aclmdlRIExecute(graph, -1) == cann.aclmdlRIExecute(graph, 1000) == 0
    assert seen[5:] == [1, 2, 1, 2]
    assert cann.aclmdlRIExecute(graph, 0) == 107000
    assert cann.aclmdlRIDestroy(graph) == 0
    assert cann.aclmdlRIExecuteAsync(graph, 0) == 107000
    assert "destroyed" in recent_error()


def test_capture_status_of_streams_is_reported(device: None) -> None:
    status = cann.aclmdlRICaptureStatus
    captured, other = begin(), stream()
    code, state, graph = cann.aclmdlRICaptureGetInfo(captured)
    assert (code, state) == (0, status.ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE)
    assert cann.aclmdlRICaptureGetInfo(other) == (0, status.ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0)
    assert cann.aclmdlRICaptureGetInfo(0) == (100000, 0, 0)
    assert end(captured) == graph
    assert cann.aclmdlRICaptureGetInfo(captured) == (0, status.ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0)


def test_device_memory_is_read_anew_in_each_execution(device: None) -> None:
    (_, source), (_, target), (_, host) = cann.aclrtMalloc(8), cann.aclrtMalloc(8), cann.aclrtMallocHost(8)
    captured = begin()
    assert cann.aclrtMemcpyAsync(target, 8, source, 8, cann.ACL_MEMCPY_DEVICE_TO_DEVICE, captured) == 0
    assert cann.aclrtMemcpyAsync(host, 8, target, 8, DEVICE_TO_HOST, captured) == 0
    assert cann.aclrtMemsetAsync(target, 8, 0, 8, captured) == 0
    graph = end(captured)
    for value in (3, 7):
        assert cann.aclrtMemset(source, 8, value, 8) == 0
        replay(graph)
        assert ctypes.string_at(host, 8) == bytes([value] * 8)
        assert ctypes.string_at(target, 8) == bytes(8)
    # Its tasks keep the memory.
    assert cann.aclrtFree(source) == cann.aclrtFree(target) == 0
    replay(graph)


def test_streams_join_a_capture_by_events(device: None) -> None:
    seen: list[str] = []
    first, second = begin(), stream()
    queue(first).enqueue(lambda: seen.append("first"))
    after(first, second)
    queue(second).enqueue(lambda: seen.append("second"))
    after(second, first)
    queue(first).enqueue(lambda: seen.append("third"))
    assert cann.aclmdlRICaptureGetInfo(first) == cann.aclmdlRICaptureGetInfo(second)
    graph = end(first)
    assert cann.aclmdlRICaptureGetInfo(second)[1] == 0
    assert seen == []
    replay(graph)
    assert seen == ["first", "second", "third"]


def test_captured_streams_must_rejoin_the_first(device: None) -> None:
    first, second, third = begin(), stream(), stream()
    after(first, second)
    after(second, third)
    after(third, first)
    queue(second).enqueue(lambda: None)
    assert cann.aclmdlRICaptureEnd(first) == (107025, 0)
    assert "1 unjoined" in recent_error()
    # It is over for all the same.
    assert cann.aclmdlRICaptureGetInfo(second)[1] == 0
    first, second, third = begin(), stream(), stream()
    after(first, second)
    queue(second).enqueue(lambda: None)
    after(second, third)
    after(third, first)
    end(first)


def test_waits_for_events_outside_of_the_capture_are_rejected(device: None) -> None:
    outside = event()
    assert cann.aclrtRecordEvent(outside, 0) == 0
    first, other = begin(), begin()
    assert cann.aclrtStreamWaitEvent(first, outside) == 107024
    assert "recorded in the capture" in recent_error()
    _, never = cann.aclrtCreateEventExWithFlag(cann.ACL_EVENT_SYNC)
    assert cann.aclrtStreamWaitEvent(first, never) == 0
    inside = event()
    assert cann.aclrtRecordEvent(inside, first) == 0
    assert cann.aclrtStreamWaitEvent(other, inside) == 107032
    for call in (
        cann.aclrtSynchronizeEvent,
        lambda event: cann.aclrtQueryEventStatus(event)[0],
        lambda event: cann.aclrtEventElapsedTime(event, outside)[0],
    ):
        assert call(inside) == 107028
    end(first)
    # Its record is the capture's own.
    assert cann.aclrtQueryEventStatus(inside) == (0, 0)
    assert cann.aclrtStreamWaitEvent(other, inside) == 107000
    end(other)


@pytest.mark.parametrize("when", ["before", "after"])
def test_external_events_are_waited_for_in_each_execution(device: None, when: str) -> None:
    seen: list[int] = []
    flag, captured, other = event(cann.ACL_EVENT_EXTERNAL), begin(), stream()
    assert cann.aclrtStreamWaitEvent(captured, flag) == cann.aclrtResetEvent(flag, captured) == 0
    queue(captured).enqueue(lambda: seen.append(1))
    graph = end(captured)
    for count in (1, 2):
        if when == "before":
            assert cann.aclrtRecordEvent(flag, other) == cann.aclmdlRIExecuteAsync(graph, captured) == 0
        else:
            assert cann.aclmdlRIExecuteAsync(graph, captured) == 0
            assert cann.aclrtSynchronizeStreamWithTimeout(captured, 5) == 507046
            assert len(seen) == count - 1
            assert cann.aclmdlRIDestroy(graph) == 107037
            assert cann.aclrtRecordEvent(flag, other) == 0
        assert cann.aclrtSynchronizeStream(captured) == 0
        assert len(seen) == count
    assert cann.aclrtSynchronizeEvent(flag) == 207000
    assert cann.aclrtQueryEvent(flag)[0] == 207000
    assert cann.aclrtStreamWaitEvent(captured, event(cann.ACL_EVENT_EXTERNAL)) == 107000


def test_groups_of_tasks_are_replaced_when_a_stream_comes_to_it(device: None) -> None:
    seen: list[str] = []
    captured, other = begin(), stream()
    queue(captured).enqueue(lambda: seen.append("before"))
    assert cann.aclmdlRICaptureTaskGrpBegin(captured) == 0
    assert cann.aclmdlRICaptureTaskGrpBegin(captured) == 107033
    queue(captured).enqueue(lambda: seen.append("a"))
    queue(captured).enqueue(lambda: seen.append("b"))
    status, group = cann.aclmdlRICaptureTaskGrpEnd(captured)
    assert status == 0
    assert cann.aclmdlRICaptureTaskGrpEnd(captured)[0] == 107033
    assert cann.aclmdlRICaptureTaskUpdateBegin(captured, group) == 107027
    queue(captured).enqueue(lambda: seen.append("after"))
    graph = end(captured)
    assert cann.aclmdlRICaptureTaskUpdateBegin(other, group) == 0
    assert cann.aclmdlRICaptureTaskUpdateBegin(other, group) == 107033
    assert cann.aclmdlRICaptureTaskUpdateBegin(captured, group) == 107033
    assert cann.aclmdlRICaptureBegin(other, GLOBAL) == 107033
    queue(other).enqueue(lambda: seen.append("A"))
    queue(other).enqueue(lambda: seen.append("B"))
    assert cann.aclmdlRICaptureTaskUpdateEnd(other) == 0
    assert cann.aclmdlRICaptureTaskUpdateEnd(other) == 107033
    replay(graph, other)
    assert seen == ["before", "A", "B", "after"]
    assert cann.aclmdlRICaptureTaskUpdateBegin(other, group) == 0
    queue(other).enqueue(lambda: None)
    assert cann.aclmdlRICaptureTaskUpdateEnd(other) == 107033
    assert "2 tasks" in recent_error()
    assert cann.aclmdlRIDestroy(graph) == 0
    assert cann.aclmdlRICaptureTaskUpdateBegin(other, group) == 107000


def test_ending_a_capture_with_an_open_task_group_fails(device: None) -> None:
    captured = begin()
    assert cann.aclmdlRICaptureTaskGrpBegin(captured) == 0
    assert cann.aclmdlRICaptureEnd(captured)[0] == 107033
    assert cann.aclmdlRICaptureEnd(captured)[0] == 107029


def test_calls_forbidden_in_a_capture_are_rejected(device: None) -> None:
    captured, joined = begin(), stream()
    _, _, graph = cann.aclmdlRICaptureGetInfo(captured)
    after(captured, joined)
    for code, call in (
        (107027, cann.aclmdlRICaptureBegin(captured, GLOBAL)),
        (107027, cann.aclrtSynchronizeStream(captured)),
        (107027, cann.aclrtSynchronizeStreamWithTimeout(joined, 1)),
        (107027, cann.aclrtStreamQuery(captured)[0]),
        (107027, cann.aclrtDestroyStream(captured)),
        (107026, cann.aclmdlRIExecuteAsync(graph, 0)),
        (107026, cann.aclmdlRIDestroy(graph)),
        (107036, cann.aclmdlRICaptureEnd(joined)[0]),
        (107029, cann.aclmdlRICaptureEnd(stream())[0]),
        (107029, cann.aclmdlRICaptureTaskGrpBegin(stream())),
        (107000, cann.aclmdlRICaptureBegin(stream(), 3)),
        (100000, cann.aclmdlRICaptureBegin(0, GLOBAL)),
        (100000, cann.aclmdlRIExecuteAsync(0, 0)),
        (100000, cann.aclmdlRICaptureTaskUpdateBegin(captured, 0)),
        (107000, cann.aclmdlRIExecuteAsync(captured, 0)),
    ):
        assert call == code
    after(joined, captured)
    end(captured)
    other = begin()
    assert cann.aclmdlRIExecuteAsync(graph, other) == 107027
    end(other)


@pytest.mark.parametrize(
    ("mode", "here", "elsewhere"),
    [
        (GLOBAL, {GLOBAL: 107030, LOCAL: 107030, RELAXED: 0}, {GLOBAL: 107030, LOCAL: 0, RELAXED: 0}),
        (LOCAL, {GLOBAL: 107030, LOCAL: 107030, RELAXED: 0}, dict.fromkeys((GLOBAL, LOCAL, RELAXED), 0)),
        (RELAXED, dict.fromkeys((GLOBAL, LOCAL, RELAXED), 0), dict.fromkeys((GLOBAL, LOCAL, RELAXED), 0)),
    ],
)
def test_capture_modes_forbid_synchronous_calls(
    device: None, mode: int, here: dict[int, int], elsewhere: dict[int, int]
) -> None:
    _, address = cann.aclrtMalloc(8)
    local, other = (ctypes.c_uint64 * 1)(), stream()
    captured = begin(mode)

    def copied(in_mode: int) -> int:
        with thread_mode(in_mode):
            statuses = {
                cann.aclrtMemcpy(address, 8, ctypes.addressof(local), 8, HOST_TO_DEVICE),
                cann.aclrtMemset(address, 8, 1, 8),
                cann.aclrtMemcpyAsync(address, 8, ctypes.addressof(local), 8, HOST_TO_DEVICE, other),
            }
            # The program's own memory may be gone when the graph is executed.
            assert cann.aclrtMemcpyAsync(address, 8, ctypes.addressof(local), 8, HOST_TO_DEVICE, captured) == 107030
        (status,) = statuses
        return status

    for in_mode, code in here.items():
        assert copied(in_mode) == code
    for in_mode, code in elsewhere.items():
        assert in_thread(lambda in_mode=in_mode: copied(in_mode)) == code
    end(captured)
    assert cann.aclrtMemset(address, 8, 1, 8) == 0


def test_thread_capture_modes_are_exchanged(device: None) -> None:
    with thread_mode(RELAXED) as before:
        assert before.value == GLOBAL
    assert before.value == RELAXED
    before.value = 3
    assert cann.aclmdlRICaptureThreadExchangeMode(ctypes.addressof(before)) == 107000
    assert cann.aclmdlRICaptureThreadExchangeMode(0) == 100000


@pytest.mark.parametrize(("mode", "code"), [(GLOBAL, 107038), (LOCAL, 107038), (RELAXED, 0)])
def test_capture_modes_decide_which_thread_may_end_it(device: None, mode: int, code: int) -> None:
    captured = begin(mode)
    assert in_thread(lambda: cann.aclmdlRICaptureEnd(captured)[0]) == code
    assert cann.aclmdlRICaptureEnd(captured)[0] == 107029


@pytest.mark.parametrize("product", ["Ascend310B4", "Ascend910A"])
def test_products_without_graphs_reject_captures(device: None, product: str) -> None:
    set_soc_name(product)
    assert cann.aclmdlRICaptureBegin(stream(), GLOBAL) == 207000


def test_a_failure_in_a_graph_is_the_streams(device: None) -> None:
    seen: list[int] = []
    captured = begin()
    queue(captured).enqueue(lambda: 1 // 0)
    queue(captured).enqueue(lambda: seen.append(1))
    graph = end(captured)
    assert cann.aclmdlRIExecuteAsync(graph, captured) == 0
    assert cann.aclrtSynchronizeStream(captured) == 507000
    assert "ZeroDivisionError" in recent_error()
    assert seen == []
    assert cann.aclmdlRIDestroy(graph) == 0


def test_graph_names_and_tasks_can_be_queried(device: None, tmp_path: Path) -> None:
    captured, joined = begin(), stream()
    queue(captured).enqueue(lambda: None)
    after(captured, joined)
    queue(joined).enqueue(lambda: None)
    after(joined, captured)
    graph, other = end(captured), end(begin())
    assert cann.aclmdlRIGetId(graph)[1] != cann.aclmdlRIGetId(other)[1]
    text = ctypes.create_string_buffer(600)
    assert cann.aclmdlRIGetName(graph, 600, ctypes.addressof(text)) == 0
    assert text.value == b""
    assert cann.aclmdlRISetName(graph, "n" * 600) == cann.aclmdlRIGetName(graph, 600, ctypes.addressof(text)) == 0
    assert text.value == b"n" * 511
    assert cann.aclmdlRIGetName(graph, 4, ctypes.addressof(text)) == 0
    assert text.value == b"nnn"
    assert cann.aclmdlRISetName(graph, None) == 100000
    path = tmp_path / "graph.json"
    assert cann.aclmdlRIDebugJsonPrint(graph, str(path), 1) == 0
    assert [(task["name"], task["tid"]) for task in json.loads(path.read_text())] == [
        ("task 0", "stream_0"),
        ("task 1", "stream_1"),
    ]
    assert cann.aclmdlRIDebugJsonPrint(graph, str(path), 2) == 107000
    assert cann.aclmdlRIDebugJsonPrint(graph, None, 0) == 100000
    assert cann.aclmdlRIDebugJsonPrint(graph, str(tmp_path / "none" / "graph.json"), 0) == 100003


def test_a_device_reset_ends_its_captures(device: None) -> None:
    _, address = cann.aclrtMalloc(8)
    begin()
    assert cann.aclrtMemset(address, 8, 1, 8) == 107030
    assert cann.aclrtResetDeviceForce(0) == cann.aclrtSetDevice(0) == 0
    assert cann.aclrtMemset(address, 8, 1, 8) == 0
