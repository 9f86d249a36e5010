"""Functions of a program that streams call, and attributes of streams."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from aclnn import cann
from tests.helpers.fresh_runtime import PATIENCE_S, queue, recent_error, stream_behind

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
INITIALIZED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
FINALIZED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
MODEL, OTHER = cann.ACL_REG_TYPE_ACL_MODEL, cann.ACL_REG_TYPE_OTHER


def address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # a function pointer
    assert value is not None
    return value


def test_host_functions_are_called_in_the_streams_order(device: None) -> None:
    gate, seen = threading.Event(), []
    note = CALLBACK(lambda data: seen.append(data))
    stream = stream_behind(gate)
    assert cann.aclrtLaunchHostFunc(stream, address(note), 7) == 0
    queue(stream).enqueue(lambda: seen.append("behind"))
    assert cann.aclrtLaunchHostFunc(stream, address(note), None) == 0
    assert seen == []
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert seen == [7, "behind", None]
    assert cann.aclrtLaunchHostFunc(stream, 0, 1) == 100000


@pytest.mark.parametrize("blocks", [False, True])
def test_callbacks_run_on_the_subscribed_thread(device: None, blocks: bool) -> None:
    seen: list[object] = []
    stopped, entered, gate = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        while not stopped.is_set():
            cann.aclrtProcessReport(5)

    def function(data: int) -> None:
        entered.set()
        assert gate.wait(PATIENCE_S)
        seen.append((data, threading.get_ident()))

    called = CALLBACK(function)
    thread = threading.Thread(target=run)
    thread.start()
    assert thread.ident is not None
    _, stream = cann.aclrtCreateStream()
    kind = cann.ACL_CALLBACK_BLOCK if blocks else cann.ACL_CALLBACK_NO_BLOCK
    assert cann.aclrtLaunchCallback(address(called), 3, kind, stream) == 107015
    assert cann.aclrtSubscribeReport(thread.ident, stream) == 0
    assert cann.aclrtSubscribeReport(thread.ident, stream) == 107011
    assert cann.aclrtLaunchCallback(address(called), 3, kind, stream) == 0
    queue(stream).enqueue(lambda: seen.append("behind"))
    assert entered.wait(PATIENCE_S)
    assert cann.aclrtSynchronizeStreamWithTimeout(stream, 20 if blocks else 10_000) == (507046 if blocks else 0)
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert cann.aclrtUnSubscribeReport(thread.ident + 1, stream) == 107012
    assert cann.aclrtUnSubscribeReport(thread.ident, stream) == 0
    assert cann.aclrtUnSubscribeReport(thread.ident, stream) == 107015
    stopped.set()
    thread.join(PATIENCE_S)
    call = (3, thread.ident)
    assert seen == ([call, "behind"] if blocks else ["behind", call])
    assert cann.aclrtLaunchCallback(0, 3, kind, stream) == 100000
    assert cann.aclrtLaunchCallback(0, 3, 2, stream) == 100000
    assert "blockType" in recent_error()


def test_process_report_without_a_callback_fails(device: None) -> None:
    assert cann.aclrtProcessReport(1) == 107012
    assert cann.aclrtProcessReport(0) == cann.aclrtProcessReport(-2) == 100000
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtSubscribeReport(threading.get_ident(), stream) == 0
    assert cann.aclrtProcessReport(1) == 507012
    assert "expected a callback within 0.001 s" in recent_error()
    assert cann.aclrtUnSubscribeReport(threading.get_ident(), stream) == 0


def test_stream_attributes_are_kept(device: None) -> None:
    _, stream = cann.aclrtCreateStream()
    value = (ctypes.c_uint32 * 4)(*[0xFFFFFFFF] * 4)
    at = ctypes.addressof(value)
    for attribute in cann.aclrtStreamAttr:
        assert cann.aclrtGetStreamAttribute(stream, attribute, at) == 0
        assert value[0] == 0
        assert cann.aclrtSetStreamAttribute(stream, attribute, at) == 0
    value[0] = 5
    assert cann.aclrtSetStreamAttribute(stream, cann.ACL_STREAM_ATTR_USER_CUSTOM_TAG, at) == 0
    assert cann.aclrtSetStreamAttribute(stream, cann.ACL_STREAM_ATTR_CACHE_OP_INFO, at) == 107000
    value[0] = 1
    assert cann.aclrtSetStreamAttribute(stream, cann.ACL_STREAM_ATTR_CACHE_OP_INFO, at) == 0
    assert cann.aclrtSetStreamAttribute(stream, cann.ACL_STREAM_ATTR_FAILURE_MODE, at) == 0
    assert cann.aclrtGetStreamAttribute(stream, cann.ACL_STREAM_ATTR_USER_CUSTOM_TAG, at) == 0
    assert value[0] == 5
    assert cann.aclrtGetStreamAttribute(stream, 5, at) == 107000
    assert cann.aclrtGetStreamAttribute(stream, 5, 0) == cann.aclrtSetStreamAttribute(stream, 5, 0) == 100000


def test_initialisation_and_finalisation_call_registered_functions(fresh: None, tmp_path: Path) -> None:
    """The runtime's sample of a plugin's lifecycle did not compile without them."""
    seen: list[object] = []
    statuses = {"init": 0, "end": 0}

    def started(text: bytes, length: int, data: int | None) -> int:
        seen.append((text, length, data))
        return statuses["init"]

    def ended(data: int | None) -> int:
        seen.append(data)
        return statuses["end"]

    start, late, end = INITIALIZED(started), INITIALIZED(started), FINALIZED(ended)
    configuration = tmp_path / "acl.json"
    configuration.write_text('{"a": 1}')
    assert cann.aclInitCallbackRegister(OTHER, address(start), 1) == 0
    assert cann.aclInitCallbackRegister(OTHER, address(late), 2) == 0
    assert cann.aclInitCallbackUnRegister(OTHER, address(late)) == 0
    assert cann.aclInitCallbackRegister(MODEL, address(start), 3) == 0
    assert cann.aclFinalizeCallbackRegister(OTHER, address(end), 4) == 0
    statuses["init"] = 7
    assert cann.aclInit(str(configuration)) == 7
    assert f"callback {address(start):#x} of type 0: expected to return 0, got 7" in recent_error()
    statuses["init"] = 0
    assert cann.aclInit(str(configuration)) == 0
    assert cann.aclInitCallbackRegister(OTHER, address(late), None) == 0
    text = (b'{"a": 1}', 8)
    assert seen == [(*text, 3), (*text, 3), (*text, 1), (*text, None)]
    seen.clear()
    assert cann.aclInit(str(configuration)) == 100002
    assert cann.aclFinalizeReference() == (0, 1)
    assert seen == []
    statuses["end"] = 8
    assert cann.aclFinalizeReference()[0] == 8
    statuses["end"] = 0
    assert cann.aclFinalizeReference() == (0, 0)
    assert seen == [4, 4]
    assert cann.aclFinalizeCallbackUnRegister(OTHER, address(end)) == 0
    assert cann.aclInit(str(configuration)) == 0
    assert cann.aclFinalize() == 0
    assert seen[2:] == [(*text, 3), (*text, 1), (*text, None)]


def test_wrong_registrations_of_callbacks_name_the_argument(fresh: None) -> None:
    start, end = INITIALIZED(lambda text, length, data: 0), FINALIZED(lambda data: 0)
    for register, unregister, function in (
        (cann.aclInitCallbackRegister, cann.aclInitCallbackUnRegister, address(start)),
        (cann.aclFinalizeCallbackRegister, cann.aclFinalizeCallbackUnRegister, address(end)),
    ):
        assert register(OTHER, 0, None) == 100000
        assert "cbFunc: expected a function, got null" in recent_error()
        assert unregister(MODEL, 0) == 100000
        assert unregister(MODEL, function) == 500000
        assert f"registered with type 0, got {function:#x}" in recent_error()
        assert register(MODEL, function, None) == 0
        assert register(MODEL, function, None) == 500000
        assert "type: expected one without a function, got 0" in recent_error()
