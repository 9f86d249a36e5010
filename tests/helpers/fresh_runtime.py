"""Fixtures that give each test a new runtime: two devices of 64 MiB, nothing allocated, nothing set."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from aclnn import cann
from aclnn.runtime import callbacks, devices, errors, graphs, handles, lifecycle, memory
from aclnn.runtime.streams import Stream

MEMORY_BYTES = 1 << 26
PATIENCE_S = 10.0


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", "2")
    monkeypatch.setenv("ACLNN_MEMORY_BYTES", str(MEMORY_BYTES))
    monkeypatch.setattr(memory._table, "current", memory._Table())
    monkeypatch.setattr(devices._process, "current", devices._Process())
    monkeypatch.setattr(lifecycle._state, "current", lifecycle._State())
    monkeypatch.setattr(graphs._begun, "current", set())
    monkeypatch.setattr(graphs, "_thread", graphs._Thread())
    monkeypatch.setattr(callbacks._process, "current", callbacks._Process())
    monkeypatch.setattr(errors, "_recent", errors._Recent())
    yield
    for number in range(2):
        cann.aclrtResetDeviceForce(number)


@pytest.fixture
def device(fresh: None) -> None:
    assert cann.aclrtSetDevice(0) == 0


def recent_error() -> str:
    """Return the most recent error message; there must be one."""
    text = cann.aclGetRecentErrMsg()
    assert text, "an error without a message"
    return text.split("\n")[0]


def stream_behind(gate: threading.Event) -> int:
    """Create a stream whose tasks wait until the gate is set."""
    status, handle = cann.aclrtCreateStream()
    assert status == 0
    queue(handle).enqueue(lambda: pass_gate(gate))
    return handle


def pass_gate(gate: threading.Event) -> None:
    """Wait until the gate is set; time out if a test forgets that, so that later resets do not hang."""
    if not gate.wait(PATIENCE_S):
        raise TimeoutError("nobody opened the gate")


def queue(handle: int) -> Stream:
    """Return the stream with a handle."""
    stream = handles.get(handle, Stream)
    assert stream is not None
    return stream
