"""Calls of the published samples of CANN's runtime: each test is from one that did not compile."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from aclnn import cann
from aclnn.core.products import set_soc_name
from aclnn.runtime import callbacks
from tests.helpers.fresh_runtime import PATIENCE_S, queue, recent_error, stream_behind

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
WITHIN, TO_DEVICE, TO_HOST = cann.ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, 1, 2
COMPLETE, NOT_READY = cann.ACL_EVENT_WAIT_STATUS_COMPLETE, cann.ACL_EVENT_WAIT_STATUS_NOT_READY


def stream() -> int:
    status, handle = cann.aclrtCreateStream()
    assert status == 0
    return handle


def memory(values: np.ndarray | None = None, nbytes: int = 64) -> int:
    """Allocate device memory with these values, or zeros."""
    data = np.zeros(nbytes, np.uint8) if values is None else values
    status, address = cann.aclrtMalloc(data.nbytes, cann.ACL_MEM_MALLOC_HUGE_FIRST)
    assert status == 0
    assert cann.aclrtMemcpy(address, data.nbytes, data.ctypes.data, data.nbytes, TO_DEVICE) == 0
    return address


def read(address: int, like: np.ndarray) -> np.ndarray:
    result = np.empty_like(like)
    assert cann.aclrtMemcpy(result.ctypes.data, result.nbytes, address, result.nbytes, TO_HOST) == 0
    return result


def test_available_events_and_streams_are_counted(device: None) -> None:
    before = cann.aclrtGetEventAvailNum()[1], cann.aclrtGetStreamAvailableNum()[1]
    _, event = cann.aclrtCreateEvent()
    handle = stream()
    assert (cann.aclrtGetEventAvailNum()[1], cann.aclrtGetStreamAvailableNum()[1]) == (before[0] - 1, before[1] - 1)
    assert cann.aclrtDestroyEvent(event) == 0
    assert cann.aclrtDestroyStream(handle) == 0
    assert (cann.aclrtGetEventAvailNum()[1], cann.aclrtGetStreamAvailableNum()[1]) == before
    set_soc_name("Ascend310P3")
    assert cann.aclrtGetEventAvailNum() == (0, before[0] - 65535 + 1023)
    assert cann.aclrtGetStreamAvailableNum() == (0, before[1] - 1984 + 1024)


def test_events_have_numbers(device: None) -> None:
    ids = [cann.aclrtGetEventId(cann.aclrtCreateEvent()[1]) for _ in range(3)]
    assert {status for status, _ in ids} == {0}
    assert len({number for _, number in ids}) == 3
    assert cann.aclrtGetEventId(0)[0] == 100000


def test_event_wait_status_is_reported(device: None) -> None:
    gate = threading.Event()
    recording, waiting = stream_behind(gate), stream()
    _, event = cann.aclrtCreateEvent()
    assert cann.aclrtQueryEventWaitStatus(event) == (0, COMPLETE)
    assert cann.aclrtRecordEvent(event, recording) == 0
    assert cann.aclrtStreamWaitEvent(waiting, event) == 0
    assert cann.aclrtQueryEventWaitStatus(event) == (0, NOT_READY)
    gate.set()
    assert cann.aclrtSynchronizeStream(waiting) == 0
    assert cann.aclrtQueryEventWaitStatus(event) == (0, COMPLETE)
    _, reusable = cann.aclrtCreateEventExWithFlag(cann.ACL_EVENT_SYNC)
    assert cann.aclrtQueryEventWaitStatus(reusable)[0] == 207000


@pytest.mark.parametrize("flags", [cann.ACL_EVENT_SYNC, cann.ACL_EVENT_EXTERNAL])
def test_a_wait_for_an_event_may_have_a_limit(device: None, flags: int) -> None:
    gate = threading.Event()
    recording, waiting = stream_behind(gate), stream()
    _, event = cann.aclrtCreateEventExWithFlag(flags)
    assert cann.aclrtRecordEvent(event, recording) == 0
    assert cann.aclrtStreamWaitEventWithTimeout(waiting, event, 1) == 0
    assert cann.aclrtSynchronizeStream(waiting) == 507000
    assert "timed out after 1 s" in recent_error()
    assert cann.aclrtStreamWaitEventWithTimeout(waiting, event, 0) == 0
    assert cann.aclrtStreamWaitEventWithFlag(waiting, event, 1000, cann.ACL_EVENT_WAIT_DEFAULT) == 0
    gate.set()
    assert cann.aclrtSynchronizeStream(waiting) == 0
    assert cann.aclrtStreamWaitEventWithTimeout(waiting, event, -1) == 107000


@contextmanager
def captured(on: int) -> Iterator[list[int]]:
    """Capture a block's tasks; the graph is valid when the block has ended."""
    found: list[int] = []
    assert cann.aclmdlRICaptureBegin(on, cann.ACL_MODEL_RI_CAPTURE_MODE_RELAXED) == 0
    yield found
    status, graph = cann.aclmdlRICaptureEnd(on)
    assert status == 0
    found.append(graph)


def sync_event() -> int:
    status, event = cann.aclrtCreateEventExWithFlag(cann.ACL_EVENT_SYNC)
    assert status == 0
    return event


def record_outside(event: int, on: int) -> int:
    return cann.aclrtRecordEventWithFlag(event, on, cann.ACL_EVENT_RECORD_EXTERNAL)


def wait_outside(on: int, event: int, timeout: int = 0) -> int:
    return cann.aclrtStreamWaitEventWithFlag(on, event, timeout, cann.ACL_EVENT_WAIT_EXTERNAL)


def test_a_graph_waits_for_what_happens_outside_in_each_execution(device: None) -> None:
    on, event, seen = stream(), sync_event(), list[str]()
    with captured(on) as graphs:
        assert wait_outside(on, event) == 0
        queue(on).enqueue(lambda: seen.append("graph"))
    for _ in range(2):
        gate = threading.Event()
        outside = stream_behind(gate)
        queue(outside).enqueue(lambda: seen.append("outside"))
        assert cann.aclrtRecordEventWithFlag(event, outside, cann.ACL_EVENT_RECORD_DEFAULT) == 0
        assert cann.aclmdlRIExecuteAsync(graphs[0], on) == 0
        gate.set()
        assert cann.aclrtSynchronizeStream(on) == 0
    assert seen == ["outside", "graph"] * 2


def test_external_tasks_wait_for_each_execution_of_a_graph(device: None) -> None:
    gate = threading.Event()
    on, outside, other, event, seen = stream(), stream(), stream(), sync_event(), list[str]()
    with captured(on) as graphs:
        queue(on).enqueue(lambda: seen.append("graph") if gate.wait(PATIENCE_S) else None)
        assert record_outside(event, on) == 0
    with captured(other) as others:
        assert wait_outside(other, event) == 0
        queue(other).enqueue(lambda: seen.append("other"))
    for _ in range(2):
        gate.clear()
        assert cann.aclmdlRIExecuteAsync(graphs[0], on) == 0
        assert cann.aclmdlRIExecuteAsync(others[0], other) == 0
        assert cann.aclrtStreamWaitEvent(outside, event) == 0
        assert cann.aclrtQueryEventStatus(event) == (0, 0)
        gate.set()
        assert cann.aclrtSynchronizeStream(outside) == 0
        assert "graph" in seen
        assert cann.aclrtSynchronizeStream(other) == 0
    assert seen == ["graph", "other"] * 2


def test_a_graph_that_fails_leaves_nobody_waiting(device: None) -> None:
    on, outside, event = stream(), stream(), sync_event()

    def fail() -> None:
        raise ValueError

    with captured(on) as graphs:
        queue(on).enqueue(fail)
        assert record_outside(event, on) == 0
    assert cann.aclmdlRIExecuteAsync(graphs[0], on) == 0
    assert cann.aclrtStreamWaitEvent(outside, event) == 0
    assert cann.aclrtSynchronizeStream(outside) == 0
    assert cann.aclrtSynchronizeStream(on) == 507000


def test_external_events_check_their_use(device: None) -> None:
    on, recorded, fit = stream(), sync_event(), sync_event()
    assert cann.aclrtRecordEvent(recorded, on) == 0
    assert record_outside(fit, on) == 107029
    assert wait_outside(on, fit) == 107029
    with captured(on):
        for event in (recorded, cann.aclrtCreateEventWithFlag(1)[1], cann.aclrtCreateEventExWithFlag(8)[1]):
            assert record_outside(event, on) == 107000
            assert wait_outside(on, event) == 107000
        assert wait_outside(on, fit, timeout=1) == 107000
        assert cann.aclrtStreamWaitEventWithFlag(on, fit, 0, 2) == 107000
        assert cann.aclrtRecordEventWithFlag(fit, on, 2) == 107000
        assert record_outside(fit, on) == 0
        assert wait_outside(on, fit) == 107000


def handles_of(ask: object, handle: int) -> list[int]:
    count = ctypes.c_uint32(0)
    assert ask(handle, None, ctypes.addressof(count)) == 0  # type: ignore[operator]  # a C function
    found = (ctypes.c_uint64 * count.value)()
    count.value -= 1
    assert ask(handle, ctypes.addressof(found), ctypes.addressof(count)) == 100000  # type: ignore[operator]
    count.value += 1
    assert ask(handle, ctypes.addressof(found), ctypes.addressof(count)) == 0  # type: ignore[operator]
    return list(found)


def test_a_graph_lists_its_streams_and_their_tasks(device: None) -> None:
    on, other = stream(), stream()
    _, event = cann.aclrtCreateEventWithFlag(cann.ACL_EVENT_SYNC)
    with captured(on) as graphs:
        assert cann.aclrtMemsetAsync(memory(), 64, 1, 64, on) == 0
        assert cann.aclrtRecordEvent(event, on) == 0
        assert cann.aclrtStreamWaitEvent(other, event) == 0
        for _ in range(2):
            assert cann.aclrtMemsetAsync(memory(), 64, 1, 64, other) == 0
        assert cann.aclrtRecordEvent(event, other) == 0
        assert cann.aclrtStreamWaitEvent(on, event) == 0
    streams = handles_of(cann.aclmdlRIGetStreams, graphs[0])
    assert [len(handles_of(cann.aclmdlRIGetTasksByStream, handle)) for handle in streams] == [1, 2]
    assert handles_of(cann.aclmdlRIGetStreams, graphs[0]) == streams
    assert cann.aclmdlRIDestroy(graphs[0]) == 0
    count = ctypes.c_uint32(0)
    assert cann.aclmdlRIGetTasksByStream(streams[0], None, ctypes.addressof(count)) == 107000
    assert "destroyed" in recent_error()


def test_a_subscribed_thread_calls_host_functions(device: None) -> None:
    on, seen, stopped = stream(), list[int](), threading.Event()
    function = CALLBACK(lambda data: seen.append(threading.get_ident()))
    at = ctypes.cast(function, ctypes.c_void_p).value
    assert at is not None
    thread = threading.Thread(target=lambda: [cann.aclrtProcessHostFunc(5) for _ in iter(stopped.is_set, True)])
    thread.start()
    assert thread.ident is not None
    assert cann.aclrtSubscribeHostFunc(thread.ident, on) == 0
    assert cann.aclrtSubscribeHostFunc(thread.ident, on) == 107011
    assert cann.aclrtLaunchHostFunc(on, at, None) == 0
    queue(on).enqueue(lambda: seen.append(0))
    assert cann.aclrtSynchronizeStream(on) == 0
    assert seen == [thread.ident, 0]
    assert cann.aclrtUnSubscribeHostFunc(thread.ident, on) == 0
    assert cann.aclrtUnSubscribeHostFunc(thread.ident, on) == 107015
    stopped.set()
    thread.join()
    assert not callbacks.host_functions().has(queue(on))
    assert cann.aclrtLaunchHostFunc(on, at, None) == 0
    assert cann.aclrtSynchronizeStream(on) == 0
    assert seen[2] != thread.ident
    assert cann.aclrtProcessHostFunc(5) == 107012


def test_a_stream_is_created_from_a_configuration(device: None) -> None:
    handle = cann.aclrtCreateStreamConfigHandle()
    value = ctypes.c_uint64(5)
    at = ctypes.addressof(value)
    assert cann.aclrtSetStreamConfigOpt(handle, cann.ACL_RT_STREAM_FLAG, at, 4) == 0
    assert cann.aclrtSetStreamConfigOpt(handle, cann.ACL_RT_STREAM_PRIORITY, at, 4) == 0
    assert cann.aclrtSetStreamConfigOpt(handle, cann.ACL_RT_STREAM_WORK_SIZE, at, 8) == 0
    assert cann.aclrtSetStreamConfigOpt(handle, cann.ACL_RT_STREAM_FLAG, at, 8) == 107000
    assert cann.aclrtSetStreamConfigOpt(handle, 4, at, 4) == 107000
    assert cann.aclrtSetStreamConfigOpt(handle, cann.ACL_RT_STREAM_FLAG, 0, 4) == 100000
    status, made = cann.aclrtCreateStreamV2(handle)
    assert status == 0
    assert cann.aclrtDestroyStreamConfigHandle(handle) == 0
    assert cann.aclrtStreamGetFlags(made) == (0, 5)
    assert cann.aclrtStreamGetPriority(made) == (0, 5)
    assert cann.aclrtDestroyStreamConfigHandle(handle) == 107000
    assert cann.aclrtCreateStreamV2(handle)[0] == 107000
    assert cann.aclrtCreateStreamV2(0)[0] == 0
    assert cann.aclrtDestroyStreamConfigHandle(0) == 100000


def test_task_timeouts_are_kept(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aclnn.capi.timeouts._set.current", [])
    _, interval = cann.aclrtGetOpTimeOutInterval()
    assert cann.aclrtGetOpExecuteTimeout() == (0, 254 * interval // 1000)
    assert cann.aclrtSetOpExecuteTimeOutV2(interval + 1) == (0, 2 * interval)
    assert cann.aclrtGetOpExecuteTimeout() == (0, 2 * interval // 1000)
    assert cann.aclrtSetOpExecuteTimeOut(1) == 0
    assert cann.aclrtGetOpExecuteTimeout() == (0, interval // 1000)
    assert cann.aclrtSetOpExecuteTimeOutV2(0) == (0, 254 * interval)
    assert cann.aclrtSetOpExecuteTimeOutV2(2**64 - 1) == (0, 254 * interval)
    assert cann.aclrtSetOpExecuteTimeOutWithMs(5000) == 0
    assert cann.aclrtGetOpExecuteTimeout() == (0, 2 * interval // 1000)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9.1.0", 90100000),
        ("8.5.12", 80512000),
        ("9.0.0.alpha001", 89999701),
        ("9.0.0-beta.2", 89999802),
        ("8.3.RC1", None),
        ("8.3.0.rc1", 80299901),
    ],
)
def test_the_version_is_a_number(monkeypatch: pytest.MonkeyPatch, text: str, number: int | None) -> None:
    monkeypatch.setenv("ACLNN_CANN_VERSION", text)
    assert cann.aclsysGetVersionNum("runtime") == ((500000, 0) if number is None else (0, number))


def test_a_copy_may_be_described_in_device_memory(device: None) -> None:
    on, data = stream(), np.arange(16, dtype=np.int32)
    source, target = memory(data), memory()
    _, nbytes = cann.aclrtGetMemcpyDescSize(WITHIN)
    description = memory(nbytes=nbytes)
    assert cann.aclrtSetMemcpyDesc(description, WITHIN, source, target, 64, None) == 0
    assert cann.aclrtMemcpyAsyncWithDesc(description, WITHIN, on) == 0
    assert cann.aclrtSynchronizeStream(on) == 0
    assert (read(target, data) == data).all()
    assert cann.aclrtGetMemcpyDescSize(TO_HOST)[0] == 100000
    assert cann.aclrtSetMemcpyDesc(description, WITHIN, source, target, 64, 1) == 100000
    assert cann.aclrtSetMemcpyDesc(data.ctypes.data, WITHIN, source, target, 64, None) == 107000
    assert cann.aclrtMemcpyAsyncWithDesc(source, WITHIN, on) == 0
    assert cann.aclrtSynchronizeStream(on) == 507000
    assert "desc: expected what aclrtSetMemcpyDesc wrote" in recent_error()


def test_a_copy_may_take_addresses_from_device_memory(device: None) -> None:
    on, data = stream(), np.arange(16, dtype=np.int32)
    source, target = memory(data), memory()
    bases = memory(np.array([target, source], np.uint64))
    assert cann.aclrtMemcpyAsyncWithOffset(bases, 64, 20, bases + 8, 24, 12, WITHIN, on) == 0
    assert cann.aclrtSynchronizeStream(on) == 0
    expected = np.zeros_like(data)
    expected[5:11] = data[3:9]
    assert (read(target, data) == expected).all()
    assert cann.aclrtMemcpyAsyncWithOffset(bases, 16, 0, bases + 8, 24, 0, WITHIN, on) == 107000
    assert cann.aclrtMemcpyAsyncWithOffset(bases, 64, 0, 0, 24, 0, WITHIN, on) == 100000
    assert cann.aclrtMemcpyAsyncWithOffset(bases, 64, 48, bases + 8, 24, 0, WITHIN, on) == 0
    assert cann.aclrtSynchronizeStream(on) == 507000
    assert "beyond device allocation" in recent_error()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.float16, np.float32])
@pytest.mark.parametrize(("kind", "function"), [("SUM", np.add), ("MAX", np.maximum), ("MIN", np.minimum)])
def test_elements_are_reduced_in_a_stream(device: None, dtype: type, kind: str, function: np.ufunc) -> None:
    types = {np.int8: 2, np.int16: 6, np.int32: 3, np.float16: 1, np.float32: 0}
    on, first, second = stream(), np.arange(8).astype(dtype), np.array([3] * 8).astype(dtype)
    source, target = memory(first), memory(second)
    operation = getattr(cann, f"ACL_RT_MEMCPY_SDMA_AUTOMATIC_{kind}")
    assert cann.aclrtReduceAsync(target, source, first.nbytes, operation, types[dtype], on, None) == 0
    assert cann.aclrtSynchronizeStream(on) == 0
    assert (read(target, first) == function(first, second)).all()


def test_invalid_reductions_are_rejected(device: None) -> None:
    on, at = stream(), memory()
    for code, arguments in (
        (100000, (0, at, 64, 10, 0, on, None)),
        (100000, (at, at, 64, 10, 0, on, 1)),
        (207000, (at, at, 64, 13, 0, on, None)),
        (107000, (at, at, 64, 9, 0, on, None)),
        (107000, (at, at, 64, 10, 9, on, None)),
        (107000, (at, at, 63, 10, 0, on, None)),
        (107000, (at, at, 1 << 20, 10, 0, on, None)),
    ):
        assert cann.aclrtReduceAsync(*arguments) == code


def test_check_mem_type_compares_the_kind_of_memory(device: None) -> None:
    at, (_, host) = memory(), cann.aclrtMallocHost(64)
    assert cann.aclrtCheckMemType([at, at], 2, cann.ACL_RT_MEM_TYPE_DEV, 0) == (0, 1)
    assert cann.aclrtCheckMemType([at, host], 2, cann.ACL_RT_MEM_TYPE_DEV, 0) == (0, 0)
    assert cann.aclrtCheckMemType([at], 1, cann.ACL_RT_MEM_TYPE_DVPP, 0) == (0, 0)
    assert cann.aclrtCheckMemType([at], 1, cann.ACL_RT_MEM_TYPE_DVPP | cann.ACL_RT_MEM_TYPE_DEV, 0) == (0, 1)
    assert cann.aclrtCheckMemType([at], 1, 4, 0)[0] == 107000
    assert cann.aclrtCheckMemType([at], 1, 2, 1)[0] == 107000
    assert cann.aclrtCheckMemType(None, 0, 2, 0)[0] == 100000


def test_device_numbers_and_names_are_converted(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", "2")
    asks = (
        *(cann.aclrtGetLogicDevIdByUserDevId, cann.aclrtGetUserDevIdByLogicDevId),
        *(cann.aclrtGetPhyDevIdByUserDevId, cann.aclrtGetUserDevIdByPhyDevId),
    )
    for ask in asks:
        assert ask(1) == (0, 1)
        assert ask(2)[0] == 107001
    names = []
    for number in (0, 1, 1):
        name = ctypes.create_string_buffer(16)
        assert cann.aclrtDeviceGetUuid(number, ctypes.addressof(name)) == 0
        names.append(name.raw)
    assert names[0] != names[1] == names[2]
    assert cann.aclrtDeviceGetUuid(0, 0) == 100000
    bus = ctypes.create_string_buffer(13)
    assert cann.aclrtDeviceGetPCIBusId(0, ctypes.addressof(bus), 13) == 207000
    assert cann.aclrtDeviceGetByPCIBusId("0000:01:00.0")[0] == 207000
