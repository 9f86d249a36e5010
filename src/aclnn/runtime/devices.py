"""Devices and contexts. The current context belongs to the thread; everything else to the process."""

from __future__ import annotations

import threading
import time
from enum import Enum
from typing import Any

from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_CONTEXT_NULL,
    ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
    ACL_ERROR_RT_INVALID_DEVICEID,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CONTEXT,
    AclnnError,
)
from aclnn.runtime import handles, memory
from aclnn.runtime.arena import memory_bytes
from aclnn.runtime.locks import Lock
from aclnn.runtime.streams import Fault, Stream
from aclnn.support.bounded import BoundedCache
from aclnn.support.env import integer
from aclnn.support.process import PerProcess

# Devices are created on first use; no machine has this many.
_MOST_DEVICES = 1024


class _Life(Enum):
    LIVE = 1
    ENDING = 2
    OVER = 3


class Context:
    """Owner of streams on a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.life = _Life.LIVE
        self.streams: set[Stream] = set()
        self.parameters: dict[int, int] = {}
        """Options set by aclrtCtxSetSysParamOpt."""
        self.fault = Fault()
        self.default_stream = self.new_stream()
        self.handle = handles.insert(self)

    def new_stream(self, priority: int = 0, flags: int = 0) -> Stream:
        """Create a stream of this context."""
        stream = Stream(priority, flags, self.fault)
        stream.context = self
        self.streams.add(stream)
        return stream

    def end(self) -> None:
        """Wait for the work of every stream and destroy the streams; the caller has set ``life`` to ENDING."""
        failures = [_close(stream, force=False) for stream in list(self.streams)]
        self.life = _Life.OVER
        handles.pop(self.handle, Context)
        _raise_first(failures)


class Device:
    """A device: its memory, its contexts, and the count of ``aclrtSetDevice`` calls."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.budget = memory.Budget(memory_bytes())
        self.count = 0
        self.default: Context | None = None
        self.contexts: set[Context] = set()
        self.limits: dict[int, int] = {}
        """Limits set by aclrtSetDeviceResLimit."""

    @property
    def tasks(self) -> BoundedCache[object, Any]:
        """See ``memory.tasks``."""
        return memory.tasks()

    def resolve(self, address: int, nbytes: int, base: int) -> memory.Allocation:
        """Return the allocation of this device that contains ``base`` and the whole range.

        Raises:
            AclnnError: 107000, there is none; the text describes the range.
        """
        return memory.resolve(address, nbytes, base, self.budget)

    def new_context(self) -> Context:
        """Create a context on this device."""
        context = Context(self)
        self.contexts.add(context)
        return context


class _Thread(threading.local):
    explicit: Context | None = None
    """Set by aclrtCreateContext or aclrtSetCurrentContext."""
    device: Device | None = None
    """Set by aclrtSetDevice: its default context is current unless there is an explicit one."""


class _Process:
    def __init__(self) -> None:
        self.lock = Lock()
        self.thread = _Thread()
        self._devices: list[Device] = []

    @property
    def devices(self) -> list[Device]:
        # Locked: concurrent first calls must see the same devices.
        with self.lock:
            if not self._devices:
                # torchrun sets the number of ranks it starts on this machine; each rank uses its own device.
                ranks = integer("LOCAL_WORLD_SIZE", 1)
                count = integer("ACLNN_DEVICE_COUNT", min(ranks, _MOST_DEVICES), most=_MOST_DEVICES)
                self._devices = list(map(Device, range(count)))
            return self._devices


_process = PerProcess(_Process)


def device_count() -> int:
    """Return ACLNN_DEVICE_COUNT; by default LOCAL_WORLD_SIZE, which torchrun sets, or 1."""
    return len(_process.current.devices)


def numbered(number: int, argument: str) -> Device:
    """Return the device with a number.

    Raises:
        AclnnError: 107001, there is no such device.
    """
    devices = _process.current.devices
    if not 0 <= number < len(devices):
        raise AclnnError(
            ACL_ERROR_RT_INVALID_DEVICEID, f"{argument}: expected a device from 0 to {len(devices) - 1}, got {number}"
        )
    return devices[number]


def set_device(number: int) -> None:
    """Use a device: its default context becomes the calling thread's current one.

    Raises:
        AclnnError: 107001, there is no such device.
    """
    device = numbered(number, "deviceId")
    with _process.current.lock:
        device.count += 1
        if device.default is None:
            device.default = device.new_context()
    _process.current.thread.device, _process.current.thread.explicit = device, None


def reset_device(number: int, force: bool = False) -> None:
    """Undo one ``set_device``, or all with ``force``; the last waits for pending work and ends the default context.

    Raises:
        AclnnError: 107001, there is no such device; 507007, it is not in use; 507000, a task had failed.
    """
    device = numbered(number, "deviceId")
    with _process.current.lock:
        if device.count == 0:
            raise AclnnError(
                ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
                f"deviceId: expected a device in use (aclrtSetDevice), got {number}, which is not",
            )
        device.count = 0 if force else device.count - 1
        if device.count or device.default is None:
            return
        context, device.default = device.default, None
        device.contexts.discard(context)
        device.limits.clear()
        context.life = _Life.ENDING
    context.end()


def default_context_exists(number: int) -> bool:
    """Return True if a device's default context exists.

    Raises:
        AclnnError: 107001, there is no such device.
    """
    return numbered(number, "deviceId").default is not None


def create_context(number: int) -> Context:
    """Create a context and make it the calling thread's current one.

    Raises:
        AclnnError: 107001, there is no such device.
    """
    device = numbered(number, "deviceId")
    with _process.current.lock:
        context = device.new_context()
    _process.current.thread.explicit = context
    return context


def destroy_context(handle: int) -> None:
    """Wait for a context's work and destroy the context and its streams.

    Raises:
        AclnnError: 100000 for null; 107002, not a live context or a device's default one; 507007, another thread is
            destroying it; 507000, a task had failed.
    """
    context = handles.get(handle, Context)
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "context: expected a context, got null")
    with _process.current.lock:
        if context is None or context.life is _Life.OVER:
            raise AclnnError(
                ACL_ERROR_RT_CONTEXT_NULL, f"context: expected a live context, got {handles.describe(handle)}"
            )
        if context is context.device.default:
            raise AclnnError(
                ACL_ERROR_RT_CONTEXT_NULL,
                f"context: expected one from aclrtCreateContext, got device {context.device.number}'s default context",
            )
        if context.life is _Life.ENDING:
            raise AclnnError(
                ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
                f"context: expected a live context, got {handle:#x}, which another thread is destroying",
            )
        context.life = _Life.ENDING
        context.device.contexts.discard(context)
    if _process.current.thread.explicit is context:
        _process.current.thread.explicit = None
    context.end()


def set_current(handle: int) -> None:
    """Make a context current for the calling thread.

    Raises:
        AclnnError: 100000 for null; 107000, not a live context.
    """
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "context: expected a context, got null")
    context = handles.get(handle, Context)
    if context is None or context.life is not _Life.LIVE:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"context: expected a live context, got {handles.describe(handle)}"
        )
    _process.current.thread.explicit = context


def current() -> Context:
    """Return the calling thread's current context.

    Raises:
        AclnnError: 107002, it has none.
    """
    thread = _process.current.thread
    context = thread.explicit
    if context is None and thread.device is not None:
        context = thread.device.default
    if context is None or context.life is not _Life.LIVE:
        raise AclnnError(
            ACL_ERROR_RT_CONTEXT_NULL,
            "context: expected a current context of this thread (aclrtSetDevice, aclrtSetCurrentContext), got none",
        )
    return context


def owner(allocation: memory.Allocation | None) -> Device | None:
    """Return the device that owns an allocation; None for host memory."""
    if allocation is None or allocation.budget is None:
        return None
    return next((device for device in _process.current.devices if device.budget is allocation.budget), None)


def synchronize_device(timeout_s: float | None = None) -> bool:
    """Wait for every stream of the current context's device; return False on timeout.

    Raises:
        AclnnError: 107002, no current context; 507000, a task had failed.
    """
    current().fault.expect_none()
    contexts = list(current().device.contexts)
    streams = [stream for context in contexts for stream in list(context.streams)]
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for stream in streams:
        if not stream.wait(timeout_s=None if deadline is None else max(deadline - time.monotonic(), 0.0)):
            return False
    for context in contexts:
        context.fault.expect_none()
    _raise_first([_failure(stream) for stream in streams])
    return True


def create_stream(priority: int = 0, flags: int = 0) -> Stream:
    """Create a stream of the current context.

    Raises:
        AclnnError: 107002, no current context.
    """
    with _process.current.lock:
        # Within the lock, so that the context cannot end before it has the stream.
        stream = current().new_stream(priority, flags)
        stream.handle = handles.insert(stream)
    return stream


def default_stream_handle() -> int:
    """Return the handle of the current context's default stream, always the same; null denotes that stream too.

    Raises:
        AclnnError: 107002, no current context.
    """
    with _process.current.lock:
        stream = current().default_stream
        stream.handle = stream.handle or handles.insert(stream)
    return stream.handle


def stream_of(handle: int | None) -> Stream:
    """Return the stream of a handle; null denotes the current context's default stream.

    Raises:
        AclnnError: 107002, null and no current context; 107000, not a live stream.
    """
    if not handle:
        return current().default_stream
    stream = handles.get(handle, Stream)
    if stream is None:
        raise _not_a_stream(handle)
    return stream


def _not_a_stream(handle: int) -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"stream: expected a live stream, got {handles.describe(handle)}")


def own_stream_of(handle: int | None) -> Stream:
    """Return the stream of a handle, which must belong to the current context.

    Raises:
        AclnnError: 107002, no current context; 107000, not a live stream; 107003, another context's.
    """
    context = current()
    stream = stream_of(handle)
    if stream.context is not context:
        raise another_context(handle)
    return stream


def another_context(handle: int | None) -> AclnnError:
    """Make the error for a stream of another context."""
    return AclnnError(
        ACL_ERROR_RT_STREAM_CONTEXT,
        f"stream: expected a stream of the current context {current().handle:#x}, got {handle or 0:#x} of another",
    )


def destroy_stream(handle: int, force: bool = False) -> None:
    """Wait for a stream's work, or with ``force`` drop pending tasks, and destroy the stream.

    Raises:
        AclnnError: 100000 for null; 107002, no current context; 107000, not a live stream; 107003, another context's;
            107027, its tasks are captured; 507000, a task had failed.
    """
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "stream: expected a stream, got null")
    stream = own_stream_of(handle)
    if stream is stream.context.default_stream:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "stream: expected one that was created, got the default one")
    stream.expect_no_capture()
    if handles.pop(handle, Stream) is None:
        raise _not_a_stream(handle)
    failure = _close(stream, force)
    stream.context.streams.discard(stream)
    if not force:
        _raise_first([failure])


def _close(stream: Stream, force: bool) -> AclnnError | None:
    handles.pop(stream.handle, Stream)
    stream.close(force)
    return None if stream.fault.failure else _failure(stream)


def _failure(stream: Stream) -> AclnnError | None:
    try:
        stream.raise_failure()
    except AclnnError as error:
        return error
    return None


def _raise_first(failures: list[AclnnError | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise failure
