"""Events: points in streams for which other streams and the host wait, and whose times can be read."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

from aclnn.core.status import (
    ACL_ERROR_RT_CAPTURE_DEPENDENCY,
    ACL_ERROR_RT_EVENT_CAPTURED,
    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_INTERNAL_ERROR,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_TASK_TIMEOUT,
    AclnnError,
)
from aclnn.runtime.graphs import Launched, Mark, captured, capturing
from aclnn.runtime.streams import Record, Stream, Task, hold, waiting_for

SYNC = 0x1
CAPTURE_STREAM_PROGRESS = 0x2
TIME_LINE = 0x8
DEVICE_USE_ONLY = 0x10
EXTERNAL = 0x20
IPC = 0x40

_KNOWN = SYNC | CAPTURE_STREAM_PROGRESS | TIME_LINE | DEVICE_USE_ONLY | EXTERNAL | IPC
_ALONE = (DEVICE_USE_ONLY, EXTERNAL, IPC)

_numbers = itertools.count()


class Event:
    """Only the latest record counts; a wait refers to the record that was the latest when the wait was requested."""

    def __init__(self, flags: int = TIME_LINE, reusable: bool = False) -> None:
        self.flags = flags
        self.reusable = reusable
        """True from aclrtCreateEventExWithFlag: complete until recorded, rather than not ready."""
        self.number = next(_numbers)
        self._latest: Record | Mark | None = None
        self._was_recorded = False
        self._waits: dict[Stream, int] = {}
        """Ticket of each stream's last wait."""

    @property
    def latest(self) -> Record | None:
        """Return the latest record; None if it was made in a capture that has ended.

        Raises:
            AclnnError: 107028, it was made in a capture that has not ended.
        """
        latest = self._latest  # read once: a stream may execute a reset concurrently
        if not isinstance(latest, Mark):
            return latest
        if latest.graph.is_capturing:
            raise AclnnError(ACL_ERROR_RT_EVENT_CAPTURED, "event: expected one that is not captured, got one that is")
        return None

    def record(self, stream: Stream) -> None:
        """Record the event: mark the tasks queued on the stream so far."""
        graph = capturing(stream)
        self._latest = graph.mark(stream) if graph else stream.record()
        self._was_recorded = True

    def reset(self, stream: Stream) -> None:
        """Queue a reset, which forgets the latest record."""
        record = self._latest

        def forget() -> None:
            if self._latest is record:
                self._latest = None

        if isinstance(record, Mark):
            forget()
        else:
            stream.enqueue(forget, short=True)

    def complete(self) -> bool:
        """True once the tasks that the latest record marks have finished.

        Raises:
            AclnnError: 107028, it is being captured; 507000, the context stopped on a failure.
        """
        latest = self.latest
        if latest is None:
            return self.reusable
        latest.check()
        return latest.done

    def wait_for(self, stream: Stream, limit_s: float | None = None) -> None:
        """Make the stream's next tasks wait for the latest record, and join the stream to the capture it was made in.

        The tasks fail if the record is not reached within the limit.

        Raises:
            AclnnError: 107000, there is no record to wait for; 107024, it is outside the stream's capture; 107032, it
                belongs to another capture.
        """
        latest = self._latest
        if isinstance(latest, Mark) and latest.graph.is_capturing:
            latest.graph.join(stream, latest)
            return
        record = self._awaited()
        if record is None:
            return
        if capturing(stream):
            raise AclnnError(
                ACL_ERROR_RT_CAPTURE_DEPENDENCY, "event: expected one that was recorded in the capture, got another"
            )
        stream.wait_for(record, limit_s)
        self._waits[stream] = stream.last

    def waits_done(self) -> bool:
        """Return True once every stream that was to wait for the event has done so.

        Raises:
            AclnnError: 207000, the event is from aclrtCreateEventExWithFlag.
        """
        if self.reusable:
            raise AclnnError(
                ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "event: expected one not from aclrtCreateEventExWithFlag, got one from it",
            )
        return all(stream.has_finished(ticket) for stream, ticket in list(self._waits.items()))

    def record_outside(self, stream: Stream) -> None:
        """Capture a record for observers outside the graph; each execution makes it.

        Raises:
            AclnnError: 107029, the stream is not capturing; 107000, the event is not from aclrtCreateEventExWithFlag
                with exactly ACL_EVENT_SYNC, was recorded, or is waited for in the same graph.
        """
        captured(stream).take_outside(stream, Signal(self), self._checked_outside())

    def wait_outside(self, stream: Stream) -> None:
        """Capture a wait for the latest record, which each execution of the graph makes.

        Raises:
            AclnnError: as for ``record_outside``, except that the event must not be recorded in the same graph.
        """
        captured(stream).take_outside(stream, Await(self), self._checked_outside())

    def _checked_outside(self) -> Event:
        if not self.reusable or self.flags != SYNC:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID,
                f"event: expected one from aclrtCreateEventExWithFlag with ACL_EVENT_SYNC (1), got one with flags "
                f"{self.flags:#x}{'' if self.reusable else ' of another function'}",
            )
        if self._was_recorded:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, "event: expected one that was never recorded, got one that was"
            )
        return self

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for the latest record; return False on timeout.

        Raises:
            AclnnError: 107000, there is no record to wait for; 107028, it is being captured; 507000, the context
                stopped on a failure; 107023, the stream was aborted.
        """
        record = self._awaited()
        if record is None:
            return True
        record.check()
        done = record.wait(timeout_s)
        record.check()
        return done

    def _awaited(self) -> Record | None:
        latest = self.latest
        if latest is None and not self.reusable:
            raise _never_recorded()
        return latest


class Signal:
    """Record of an event made by each execution of a graph."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def begin(self) -> Launched:
        """Make this execution's record the event's latest one."""
        record = self._event._latest = Record()
        return Launched(record.complete, record.cancel)


class Await:
    """Wait, made by each execution of a graph, for the event's latest record at its launch."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def begin(self) -> Launched:
        """Make this execution wait for the event's current latest record."""
        latest = self._event._latest
        return Launched(waiting_for(latest) if isinstance(latest, Record) else lambda: None)


def _never_recorded() -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, "event: expected an event that was recorded, got one that was not")


class ExternalEvent(Event):
    """A flag set, awaited and reset by streams in order; captured operations act in each execution."""

    def __init__(self) -> None:
        super().__init__(EXTERNAL, reusable=True)
        self._flag = threading.Event()
        self._is_recorded = False

    @property
    def latest(self) -> Record | None:
        """Raise an error: the host cannot query an external event.

        Raises:
            AclnnError: 207000.
        """
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "event: expected one that is not external, got an external one"
        )

    def record(self, stream: Stream) -> None:
        """Set the flag."""
        self._is_recorded = True
        self._enqueue(stream, self._flag.set)

    def reset(self, stream: Stream) -> None:
        """Reset the flag."""
        self._enqueue(stream, self._flag.clear)

    def wait_for(self, stream: Stream, limit_s: float | None = None) -> None:
        """Make the stream's next tasks wait for the flag.

        Raises:
            AclnnError: 107000, no queued task sets it.
        """
        if not self._is_recorded and not capturing(stream):
            raise _never_recorded()

        def task() -> None:
            if not hold(self._flag.wait, limit_s):
                raise AclnnError(ACL_ERROR_RT_TASK_TIMEOUT, f"event: timed out after {limit_s} s")

        self._enqueue(stream, task, short=False)

    def _enqueue(self, stream: Stream, task: Task, short: bool = True) -> None:
        graph = capturing(stream)
        if graph:
            graph.take(stream, task)
        else:
            stream.queue(task, short)


def create(flags: int, reusable: bool = False) -> Event:
    """Create an event with these flags.

    Raises:
        AclnnError: 107000; no flags, unknown flags, or an invalid combination.
    """
    checked = checked_flags(flags)
    return ExternalEvent() if checked == EXTERNAL else Event(checked, reusable)


def checked_flags(flags: int) -> int:
    """Return flags that are valid for aclrtCreateEventWithFlag.

    Raises:
        AclnnError: 107000; no flags, unknown flags, or an invalid combination.
    """
    if not flags or flags & ~_KNOWN or any(flags & flag and flags != flag for flag in _ALONE):
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID,
            f"flag: expected ACL_EVENT_SYNC (1), CAPTURE_STREAM_PROGRESS (2) and TIME_LINE (8) or'ed, or one of "
            f"DEVICE_USE_ONLY (0x10), EXTERNAL (0x20) and IPC (0x40), got {flags:#x}",
        )
    return flags


def elapsed_ms(start: Event, end: Event) -> float:
    """Return the milliseconds from the first event's latest record to the second's; negative in reverse order.

    Raises:
        AclnnError: 507000, one was never recorded; 107006, one has no time (no TIME_LINE, or not finished).
    """
    began, ended = _timed({"startEvent": start, "endEvent": end})
    return ended.ms_since(began)


def time_us(event: Event) -> int:
    """Return the time of an event's latest record, in microseconds of ``time.perf_counter``.

    Raises:
        AclnnError: 507000, it was never recorded; 107006, it has no time (no TIME_LINE, or not finished).
    """
    (record,) = _timed({"event": event})
    return record.time_us


def _timed(named: Mapping[str, Event]) -> list[Record]:
    """Return the latest records of events, given by argument name; each has a time."""
    records = []
    for name, event in named.items():
        latest = event.latest
        if latest is None:
            raise AclnnError(ACL_ERROR_RT_INTERNAL_ERROR, f"{name}: expected a recorded event, got one that was not")
        records.append(latest)
    for (name, event), record in zip(named.items(), records, strict=True):
        if not event.flags & TIME_LINE or not record.has_time:
            why = "whose work has not finished" if event.flags & TIME_LINE else f"with flags {event.flags:#x}"
            raise AclnnError(
                ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                f"{name}: expected a finished event with ACL_EVENT_TIME_LINE, got one {why}",
            )
    return records
