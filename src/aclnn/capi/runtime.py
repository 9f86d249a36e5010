"""aclInit … aclrtEventElapsedTime: initialisation, devices, contexts, streams, events, error texts, helpers."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable

from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.prototype import c_function, c_value_function
from aclnn.core import products
from aclnn.core.dtypes import DataType
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_SOC_VERSION,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    ACLNN_ERR_PARAM_NULLPTR,
    AclnnError,
)
from aclnn.runtime import devices, errors, events, handles, lifecycle, memory
from aclnn.runtime.events import Event
from aclnn.runtime.streams import GREATEST_PRIORITY, LEAST_PRIORITY, Stream, seconds

_HOST = ENUMS["aclrtRunMode"]["ACL_HOST"]
_STREAM_STATUS = ENUMS["aclrtStreamStatus"]
_ATTRIBUTES = ENUMS["aclrtStreamAttr"]
_FAILURE_MODE = _ATTRIBUTES["ACL_STREAM_ATTR_FAILURE_MODE"]
_STOP_ON_FAILURE = FLAGS["ACL_STOP_ON_FAILURE"]
_OVERFLOW_CHECK = _ATTRIBUTES["ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK"]
_SWITCHES = {_OVERFLOW_CHECK, _ATTRIBUTES["ACL_STREAM_ATTR_CACHE_OP_INFO"]}
_KNOWN_FLAGS = sum(
    FLAGS[f"ACL_STREAM_{name}"]
    for name in ("FAST_LAUNCH", "FAST_SYNC", "PERSISTENT", "HUGE", "CPU_SCHEDULE", "DEVICE_USE_ONLY")
)
_SATURATION, _INFNAN = (
    ENUMS["aclrtFloatOverflowMode"][f"ACL_RT_OVERFLOW_MODE_{name}"] for name in ("SATURATION", "INFNAN")
)


def _check_settings() -> None:
    """Reject an invalid ACLNN_SOC_NAME at the first call of a program, rather than at its first use."""
    try:
        products.soc_name()
    except AclnnError as error:
        raise AclnnError(ACL_ERROR_RT_SOC_VERSION, error.message) from None


@c_function("aclError aclInit(const char *configPath)")
def aclInit(configPath: str | None = None) -> None:
    """Initialise; calls are counted. 100002 (harmless) if already initialised; 507008 for an unknown product."""
    _check_settings()
    lifecycle.initialize(configPath)


@c_function("aclError aclFinalize()")
def aclFinalize() -> None:
    """Finalise, whatever the count of aclInit calls."""
    lifecycle.finalize()


@c_function("aclError aclFinalizeReference(uint64_t *refCount)", nullable=["refCount"])
def aclFinalizeReference() -> int:
    """Undo one aclInit and return the remaining count."""
    return lifecycle.finalize_reference()


@c_function(
    "aclError aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc, void *userData)"
)
def aclInitCallbackRegister(type: int, cbFunc: int, userData: int | None) -> None:
    """Register a function that aclInit calls with the configuration's text; after aclInit, call it at once."""
    lifecycle.register_initialized(type, cbFunc, userData or 0)


@c_function("aclError aclInitCallbackUnRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc)")
def aclInitCallbackUnRegister(type: int, cbFunc: int) -> None:
    """Undo aclInitCallbackRegister."""
    lifecycle.unregister_initialized(type, cbFunc)


@c_function(
    "aclError aclFinalizeCallbackRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc, void *userData)"
)
def aclFinalizeCallbackRegister(type: int, cbFunc: int, userData: int | None) -> None:
    """Register a function that finalisation calls."""
    lifecycle.register_finalized(type, cbFunc, userData or 0)


@c_function("aclError aclFinalizeCallbackUnRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc)")
def aclFinalizeCallbackUnRegister(type: int, cbFunc: int) -> None:
    """Undo aclFinalizeCallbackRegister."""
    lifecycle.unregister_finalized(type, cbFunc)


@c_function("aclnnStatus aclnnInit(const char *configPath)")
def aclnnInit(configPath: str | None = None) -> None:
    """Do nothing: operators need no initialisation."""


@c_function("aclnnStatus aclnnFinalize()")
def aclnnFinalize() -> None:
    """Do nothing: operators need no finalisation."""


@c_function("aclnnStatus aclnnReselectStaticKernel()")
def aclnnReselectStaticKernel() -> None:
    """Do nothing: there are no static kernels."""


@c_function(
    "aclnnStatus aclDumpOpTensors(const char *opType, const char *opName, aclTensor **tensors, size_t inputTensorNum, "
    "size_t outputTensorNum, aclrtStream stream)"
)
def aclDumpOpTensors(
    opType: str | None, opName: str | None, tensors: int, inputTensorNum: int, outputTensorNum: int, stream: int | None
) -> None:
    """Check the arguments and write nothing: dumps are never enabled."""
    for name, given in (("opType", opType), ("opName", opName), ("tensors", tensors or None)):
        if given is None:
            raise AclnnError(ACLNN_ERR_PARAM_NULLPTR, f"{name}: expected one, got null")


@c_function("aclError aclrtGetDeviceCount(uint32_t *count)")
def aclrtGetDeviceCount() -> int:
    """Return the number of devices (ACLNN_DEVICE_COUNT; by default LOCAL_WORLD_SIZE, or 1)."""
    return devices.device_count()


@c_function("aclError aclrtSetDevice(int32_t deviceId)")
def aclrtSetDevice(deviceId: int) -> None:
    """Use a device; its default context becomes this thread's current one. 507008 for an unknown product."""
    _check_settings()
    devices.set_device(deviceId)


@c_function("aclError aclrtResetDevice(int32_t deviceId)")
def aclrtResetDevice(deviceId: int) -> None:
    """Undo one aclrtSetDevice; the last call waits for the default context's work and ends the context."""
    devices.reset_device(deviceId)


@c_function("aclError aclrtResetDeviceForce(int32_t deviceId)")
def aclrtResetDeviceForce(deviceId: int) -> None:
    """Release a device whatever its count of aclrtSetDevice calls."""
    devices.reset_device(deviceId, force=True)


@c_function("aclError aclrtGetDevice(int32_t *deviceId)")
def aclrtGetDevice() -> int:
    """Return the current context's device; 107002, without an error text, if there is none: callers probe for it."""
    try:
        return devices.current().device.number
    except AclnnError as error:
        raise AclnnError(error.code, "") from None


@c_function("aclError aclrtGetRunMode(aclrtRunMode *runMode)")
def aclrtGetRunMode() -> int:
    """Return ACL_HOST: this process runs on the host."""
    return _HOST


@c_function("aclError aclrtSynchronizeDevice()")
def aclrtSynchronizeDevice() -> None:
    """Wait for every stream of the current device."""
    devices.synchronize_device()


@c_function("aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout)")
def aclrtSynchronizeDeviceWithTimeout(timeout: int) -> None:
    """Wait for every stream of the current device; timeout in milliseconds, -1 for none."""
    if not devices.synchronize_device(seconds(timeout)):
        raise AclnnError(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, f"streams: timed out after {timeout} ms")


@c_value_function("const char *aclrtGetSocName()", null=None)
def aclrtGetSocName() -> str | None:
    """Return the name of the emulated product, such as Ascend910B2."""
    return products.soc_name()


@c_function("aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion)")
def aclrtGetVersion() -> tuple[int, int, int]:
    """Return the version of the interface."""
    return 1, 17, 0


@c_function("aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode)")
def aclrtSetDeviceSatMode(mode: int) -> None:
    """Accept infinities and NaNs (1), the only mode; 207000 for saturation (0)."""
    if mode != _INFNAN:
        known = mode == _SATURATION
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT if known else ACL_ERROR_RT_PARAM_INVALID,
            f"mode: expected ACL_RT_OVERFLOW_MODE_INFNAN (1), got {mode}",
        )


@c_function("aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode)")
def aclrtGetDeviceSatMode() -> int:
    """Return ACL_RT_OVERFLOW_MODE_INFNAN."""
    return _INFNAN


@c_function("aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId)")
def aclrtCreateContext(deviceId: int) -> int:
    """Create a context and make it this thread's current one."""
    return devices.create_context(deviceId).handle


@c_function("aclError aclrtDestroyContext(aclrtContext context)")
def aclrtDestroyContext(context: int) -> None:
    """Wait for a context's work and destroy the context and its streams."""
    devices.destroy_context(context)


@c_function("aclError aclrtSetCurrentContext(aclrtContext context)")
def aclrtSetCurrentContext(context: int) -> None:
    """Make a context this thread's current one."""
    devices.set_current(context)


@c_function("aclError aclrtGetCurrentContext(aclrtContext *context)")
def aclrtGetCurrentContext() -> int:
    """Return this thread's current context."""
    return devices.current().handle


@c_function("aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream)")
def aclrtCtxGetCurrentDefaultStream() -> int:
    """Return the current context's default stream, which null denotes too."""
    return devices.default_stream_handle()


@c_function("aclError aclrtCreateStream(aclrtStream *stream)")
def aclrtCreateStream() -> int:
    """Create a stream of the current context."""
    return devices.create_stream().handle


@c_function("aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag)")
def aclrtCreateStreamWithConfig(priority: int, flag: int) -> int:
    """Create a stream; priority and flags are hints without effect, and the priority is clamped to the least."""
    return create_stream(priority, flag)


def create_stream(priority: int, flag: int) -> int:
    """Create a stream with a clamped priority and the known flags."""
    signed = ctypes.c_int32(priority).value
    return devices.create_stream(min(max(signed, GREATEST_PRIORITY), LEAST_PRIORITY), flag & _KNOWN_FLAGS).handle


@c_function("aclError aclrtDestroyStream(aclrtStream stream)")
def aclrtDestroyStream(stream: int) -> None:
    """Wait for a stream's work and destroy the stream."""
    devices.destroy_stream(stream)


@c_function("aclError aclrtDestroyStreamForce(aclrtStream stream)")
def aclrtDestroyStreamForce(stream: int) -> None:
    """Drop a stream's pending tasks and destroy the stream."""
    devices.destroy_stream(stream, force=True)


@c_function("aclError aclrtSynchronizeStream(aclrtStream stream)")
def aclrtSynchronizeStream(stream: int) -> None:
    """Wait for a stream's work; null denotes the default stream."""
    devices.current()
    devices.stream_of(stream).synchronize()


@c_function("aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout)")
def aclrtSynchronizeStreamWithTimeout(stream: int, timeout: int) -> None:
    """Wait for a stream's work; timeout in milliseconds, -1 for none."""
    limit = seconds(timeout)
    devices.current()
    if not devices.stream_of(stream).synchronize(limit):
        raise AclnnError(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, f"stream: timed out after {timeout} ms")


@c_function("aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status)")
def aclrtStreamQuery(stream: int) -> int:
    """Return whether a stream's work is done: ACL_STREAM_STATUS_COMPLETE or NOT_READY."""
    is_idle = devices.stream_of(stream).idle()
    return _STREAM_STATUS["ACL_STREAM_STATUS_COMPLETE" if is_idle else "ACL_STREAM_STATUS_NOT_READY"]


@c_function("aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority)")
def aclrtStreamGetPriority(stream: int) -> int:
    """Return the priority given at a stream's creation, 0 by default."""
    return devices.stream_of(stream).priority


@c_function("aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags)")
def aclrtStreamGetFlags(stream: int) -> int:
    """Return the flags given at a stream's creation, without unknown ones."""
    return devices.stream_of(stream).flags


@c_function("aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId)")
def aclrtStreamGetId(stream: int) -> int:
    """Return a stream's number in this process."""
    return devices.stream_of(stream).number


def _attribute(stream: int, attribute: int, value: int) -> tuple[Stream, type[ctypes._SimpleCData[int]]]:
    """Check the arguments; return the stream and the value's C type."""
    memory.expect_address(value, "value")
    if attribute not in _ATTRIBUTES.values():
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"stmAttrType: expected an aclrtStreamAttr from 1 to 4, got {attribute}"
        )
    c_type = ctypes.c_uint64 if attribute == _FAILURE_MODE else ctypes.c_uint32
    memory.check_range(value, ctypes.sizeof(c_type), "value")
    return devices.stream_of(stream), c_type


@c_function(
    "aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value)",
    buffers=["value"],
)
def aclrtSetStreamAttribute(stream: int, stmAttrType: int, value: int) -> None:
    """Set the failure mode as aclrtSetStreamFailureMode does, or another attribute, without effect."""
    found, c_type = _attribute(stream, stmAttrType, value)
    given = c_type.from_address(value).value
    if stmAttrType == _FAILURE_MODE:
        _set_failure_mode(stream, given)
        return
    if stmAttrType in _SWITCHES and given > 1:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"value: expected 0 or 1, got {given}")
    found.attributes[stmAttrType] = given


@c_function(
    "aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value)",
    buffers=["value"],
)
def aclrtGetStreamAttribute(stream: int, stmAttrType: int, value: int) -> None:
    """Write an attribute of a stream, 0 by default."""
    found, c_type = _attribute(stream, stmAttrType, value)
    c_type.from_address(value).value = found.attributes.get(stmAttrType, 0)


def _set_failure_mode(handle: int, mode: int) -> None:
    context, stream = devices.current(), devices.stream_of(handle)
    mode &= _STOP_ON_FAILURE
    before = stream.attributes.get(_FAILURE_MODE, 0)
    if before and (stream.has_stopped or not mode):
        state = "has stopped" if stream.has_stopped else "stops on failure"
        raise AclnnError(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"mode: expected none for a stream that {state}, got {mode}")
    if mode != before:
        if stream.context is not context:
            raise devices.another_context(handle)
        stream.attributes[_FAILURE_MODE] = mode
        stream.fault.stops = True


@c_function("aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode)")
def aclrtSetStreamFailureMode(stream: int, mode: int) -> None:
    """With mode 1, a failed task drops the later ones, and all streams of the context reject new tasks."""
    _set_failure_mode(stream, mode)


@c_function("aclError aclrtStreamAbort(aclrtStream stream)")
def aclrtStreamAbort(stream: int) -> None:
    """Drop a stream's pending tasks, end its waits, wait for the running task, and forget its failure."""
    devices.own_stream_of(stream).abort()


@c_function("aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag)")
def aclrtSetStreamOverflowSwitch(stream: int, flag: int) -> None:
    """Enable (1) or disable (0) a stream's overflow detection, without effect: nothing saturates."""
    if flag > 1:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"flag: expected 0 or 1, got {flag}")
    devices.stream_of(stream).attributes[_OVERFLOW_CHECK] = flag


@c_function("aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag)")
def aclrtGetStreamOverflowSwitch(stream: int) -> int:
    """Return the overflow switch of a stream, 0 by default."""
    return devices.stream_of(stream).attributes.get(_OVERFLOW_CHECK, 0)


def event_of(
    handle: int, argument: str = "event", find: Callable[[int, type[Event]], Event | None] = handles.get
) -> Event:
    """Return the live event of a handle.

    Raises:
        AclnnError: 100000 for null; 107000, not a live event.
    """
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{argument}: expected an event, got null")
    event = find(handle, Event)
    if event is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected a live event, got {handles.describe(handle)}"
        )
    return event


@c_function("aclError aclrtCreateEvent(aclrtEvent *event)")
def aclrtCreateEvent() -> int:
    """Create an event that records times."""
    return handles.insert(Event())


@c_function("aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag)")
def aclrtCreateEventWithFlag(flag: int) -> int:
    """Create an event with flags."""
    return handles.insert(events.create(flag))


@c_function("aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag)")
def aclrtCreateEventExWithFlag(flag: int) -> int:
    """Create an event with flags that counts as complete until it is recorded."""
    return handles.insert(events.create(flag, reusable=True))


@c_function("aclError aclrtDestroyEvent(aclrtEvent event)")
def aclrtDestroyEvent(event: int) -> None:
    """Destroy an event; streams that wait for its record still do so."""
    event_of(event, find=handles.pop)


@c_function("aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream)")
def aclrtRecordEvent(event: int, stream: int) -> None:
    """Record the event: mark the work queued on the stream so far."""
    event_of(event).record(devices.stream_of(stream))


@c_function("aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event)")
def aclrtStreamWaitEvent(stream: int, event: int) -> None:
    """Make the stream's next work wait for the event's record."""
    found = event_of(event)
    found.wait_for(devices.stream_of(stream))


@c_function("aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream)")
def aclrtResetEvent(event: int, stream: int) -> None:
    """Queue a reset of the event, which forgets the record."""
    event_of(event).reset(devices.stream_of(stream))


@c_function("aclError aclrtSynchronizeEvent(aclrtEvent event)")
def aclrtSynchronizeEvent(event: int) -> None:
    """Wait for the work marked by an event."""
    event_of(event).synchronize()


@c_function("aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout)")
def aclrtSynchronizeEventWithTimeout(event: int, timeout: int) -> None:
    """Wait for the work marked by an event; timeout in milliseconds, -1 for none."""
    limit = seconds(timeout, least=0)
    if not event_of(event).synchronize(limit):
        raise AclnnError(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, f"event: timed out after {timeout} ms")


@c_function("aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status)")
def aclrtQueryEventStatus(event: int) -> int:
    """Return ACL_EVENT_RECORDED_STATUS_COMPLETE (1) or NOT_READY (0)."""
    return int(event_of(event).complete())


@c_function("aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status)")
def aclrtQueryEvent(event: int) -> int:
    """Return ACL_EVENT_STATUS_COMPLETE (0) or NOT_READY (1): the older call, with the opposite numbers."""
    return int(not event_of(event).complete())


@c_function("aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp)")
def aclrtEventGetTimestamp(event: int) -> int:
    """Return the time at which a stream reached the event, in microseconds of this machine's clock."""
    return events.time_us(event_of(event))


@c_function("aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent)")
def aclrtEventElapsedTime(startEvent: int, endEvent: int) -> float:
    """Return the milliseconds between two events' records, negative in reverse order."""
    return events.elapsed_ms(event_of(startEvent, "startEvent"), event_of(endEvent, "endEvent"))


@c_value_function("const char *aclGetRecentErrMsg()", null=None)
def aclGetRecentErrMsg() -> str | None:
    """Return this thread's error texts since the last call, newest first; None if there are none."""
    return errors.take_texts()


@c_value_function("aclError aclrtGetLastError(aclrtLastErrLevel level)", null=ACL_ERROR_INVALID_PARAM)
def aclrtGetLastError(level: int) -> int:
    """Return and clear this thread's last error code."""
    return errors.last_code(level, clear=True)


@c_value_function("aclError aclrtPeekAtLastError(aclrtLastErrLevel level)", null=ACL_ERROR_INVALID_PARAM)
def aclrtPeekAtLastError(level: int) -> int:
    """Return this thread's last error code without clearing it."""
    return errors.last_code(level, clear=False)


@c_value_function("size_t aclDataTypeSize(aclDataType dataType)")
def aclDataTypeSize(dataType: int) -> int:
    """Return the bytes of an element, 8 for types unknown to the interface."""
    return DataType(dataType).itemsize


@c_value_function("float aclFloat16ToFloat(aclFloat16 value)", null=math.nan)
def aclFloat16ToFloat(value: int) -> float:
    """Convert a float16 given as bits; exponent 31 is not special, so +inf gives 65536 and NaN 98304."""
    sign, exponent, fraction = value >> 15, value >> 10 & 31, value & 1023
    magnitude = math.ldexp(fraction, -24) if exponent == 0 else math.ldexp(1024 + fraction, exponent - 25)
    return -magnitude if sign else magnitude


@c_value_function("aclFloat16 aclFloatToFloat16(float value)")
def aclFloatToFloat16(value: float) -> int:
    """Return the bits of the nearest float16, ties to even; out of range, and for NaN, ±65504 (NaN as +65504)."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
        bits: int = struct.unpack("<H", struct.pack("<e", single))[0]
    except OverflowError:
        bits = 0x7C00 if value > 0 else 0xFC00
    if bits & 0x7C00 != 0x7C00:
        return bits
    return 0xFBFF if value < 0 else 0x7BFF
