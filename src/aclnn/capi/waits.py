"""aclrtStreamWaitEventWithTimeout … aclrtGetEventAvailNum: waits with a timeout, events outside graphs, counts."""

from __future__ import annotations

from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.prototype import c_function
from aclnn.capi.runtime import event_of
from aclnn.core.products import Product, current_product
from aclnn.core.status import ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import devices, handles
from aclnn.runtime.events import Event

_WAIT_STATUS = ENUMS["aclrtEventWaitStatus"]
_COMPLETE, _NOT_READY = (_WAIT_STATUS[f"ACL_EVENT_WAIT_STATUS_{name}"] for name in ("COMPLETE", "NOT_READY"))
_RECORD_EXTERNAL, _WAIT_EXTERNAL = FLAGS["ACL_EVENT_RECORD_EXTERNAL"], FLAGS["ACL_EVENT_WAIT_EXTERNAL"]
_MOST_EVENTS, _MOST_EVENTS_FOR_INFERENCE = 65535, 1023


def _wait(stream: int, event: int, timeout: int) -> None:
    event_of(event).wait_for(devices.stream_of(stream), timeout or None)


@c_function("aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout)")
def aclrtStreamWaitEventWithTimeout(stream: int, event: int, timeout: int) -> None:
    """Make the stream's next work wait for the event's record; timeout in seconds, 0 for none."""
    if timeout < 0:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"timeout: expected 0 s or more, got {timeout}")
    _wait(stream, event, timeout)


@c_function("aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag)")
def aclrtRecordEventWithFlag(event: int, stream: int, flag: int) -> None:
    """Record the event; with ACL_EVENT_RECORD_EXTERNAL in a capture, each execution makes a record for outside use."""
    _check_flag(flag, _RECORD_EXTERNAL)
    found, on = event_of(event), devices.stream_of(stream)
    if flag == _RECORD_EXTERNAL:
        found.record_outside(on)
    else:
        found.record(on)


@c_function(
    "aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout, uint32_t flag)"
)
def aclrtStreamWaitEventWithFlag(stream: int, event: int, timeout: int, flag: int) -> None:
    """Wait as aclrtStreamWaitEventWithTimeout does; ACL_EVENT_WAIT_EXTERNAL in a capture waits for an outside event."""
    _check_flag(flag, _WAIT_EXTERNAL)
    if flag != _WAIT_EXTERNAL:
        _wait(stream, event, timeout)
        return
    if timeout:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"timeout: expected 0 with ACL_EVENT_WAIT_EXTERNAL, got {timeout}")
    event_of(event).wait_outside(devices.stream_of(stream))


def _check_flag(flag: int, most: int) -> None:
    if flag > most:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flag: expected 0 or {most}, got {flag}")


@c_function("aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status)")
def aclrtQueryEventWaitStatus(event: int) -> int:
    """Return ACL_EVENT_WAIT_STATUS_COMPLETE (0) once all streams' waits for the event are over, else NOT_READY (1)."""
    return _COMPLETE if event_of(event).waits_done() else _NOT_READY


@c_function("aclError aclrtGetEventId(aclrtEvent event, uint32_t *eventId)")
def aclrtGetEventId(event: int) -> int:
    """Return an event's number in this process."""
    return event_of(event).number


@c_function("aclError aclrtGetEventAvailNum(uint32_t *eventCount)")
def aclrtGetEventAvailNum() -> int:
    """Return how many more events this process may create: 65535, or 1023 for inference, minus the existing ones."""
    devices.current()
    has_few = current_product() is Product.ATLAS_INFERENCE
    return max((_MOST_EVENTS_FOR_INFERENCE if has_few else _MOST_EVENTS) - handles.count(Event), 0)
