"""aclrtSetDeviceResLimit … aclrtGetResInCurrentThread: core limits, which are stored without effect."""

from __future__ import annotations

import threading
import weakref

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.capi.system import published
from aclnn.core.status import ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import devices
from aclnn.runtime.devices import Device
from aclnn.runtime.streams import Stream

_TYPES = ENUMS["aclrtDevResLimitType"]


class _Thread(threading.local):
    stream: weakref.ref[Stream] | None = None
    """Set by aclrtUseStreamResInCurrentThread."""


_thread = _Thread()


def _check_type(number: int) -> None:
    if number not in _TYPES.values():
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"type: expected 0 or 1, got {number}")


def _check(number: int, value: int) -> None:
    _check_type(number)
    most = published(number, "type")
    if value > most:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"value: expected at most {most}, got {value}")


def _used(number: int) -> Device:
    device = devices.numbered(number, "deviceId")
    if not device.contexts:
        raise AclnnError(
            ACL_ERROR_RT_CONTEXT_NULL, f"deviceId: expected a device in use (aclrtSetDevice), got {number}"
        )
    return device


def _limit(number: int, device: Device, stream: Stream | None = None) -> int:
    limits = device.limits | (stream.limits if stream else {})
    return limits[number] if number in limits else published(number, "type")


@c_function("aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value)")
def aclrtSetDeviceResLimit(deviceId: int, type: int, value: int) -> None:
    """Set a device's limit of cube or vector cores, without effect on operators."""
    device = _used(deviceId)
    _check(type, value)
    device.limits[type] = value


@c_function("aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value)")
def aclrtGetDeviceResLimit(deviceId: int, type: int) -> int:
    """Return a device's limit, by default the product's number of cores; 207000 if that is not published."""
    device = _used(deviceId)
    _check_type(type)
    return _limit(type, device)


@c_function("aclError aclrtResetDeviceResLimit(int32_t deviceId)")
def aclrtResetDeviceResLimit(deviceId: int) -> None:
    """Clear a device's limits."""
    _used(deviceId).limits.clear()


@c_function("aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value)")
def aclrtSetStreamResLimit(stream: int, type: int, value: int) -> None:
    """Set a stream's limit of cube or vector cores, without effect on operators."""
    found = devices.stream_of(stream)
    _check(type, value)
    found.limits[type] = value


@c_function("aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value)")
def aclrtGetStreamResLimit(stream: int, type: int) -> int:
    """Return a stream's limit, by default its device's."""
    found = devices.stream_of(stream)
    _check_type(type)
    return _limit(type, found.context.device, found)


@c_function("aclError aclrtResetStreamResLimit(aclrtStream stream)")
def aclrtResetStreamResLimit(stream: int) -> None:
    """Clear a stream's limits."""
    devices.stream_of(stream).limits.clear()


@c_function("aclError aclrtUseStreamResInCurrentThread(aclrtStream stream)")
def aclrtUseStreamResInCurrentThread(stream: int) -> None:
    """Apply a stream's limits to the calling thread."""
    _thread.stream = weakref.ref(devices.stream_of(stream))


@c_function("aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream)")
def aclrtUnuseStreamResInCurrentThread(stream: int) -> None:
    """Undo aclrtUseStreamResInCurrentThread; no error for a stream that the thread does not use."""
    found = devices.stream_of(stream)
    if _thread.stream and _thread.stream() is found:
        _thread.stream = None


@c_function("aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value)")
def aclrtGetResInCurrentThread(type: int) -> int:
    """Return the calling thread's limit: of the stream that it uses, else of the current device."""
    _check_type(type)
    return _limit(type, devices.current().device, _thread.stream() if _thread.stream else None)
