"""Events: points in streams that others wait for and that carry a time."""

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
    """The latest record counts; a wait refers to the record that was the latest when it was asked for."""

    def __init__(self, flags: int = TIME_LINE, reusable: bool = False) -> None:
        self.flags = flags
        self.reusable = reusable
        """True from aclrtCreateEventExWithFlag: complete until recorded, rather than not ready."""
        self.number = next(_numbers)
        self._latest: Record | Mark | None = None
        self._was_recorded = False
        self._waits: dict[Stream, int] = {}
        """The ticket of each stream's last wait."""

    @property
    def latest(self) -> Record | None:
        """The latest record; none where that was in a capture, which has ended.

        Raises:
            AclnnError: 107028, it was in a capture, which has not.
        """
        latest = self._latest  # read once: the stream may come to a reset meanwhile
        if not isinstance(latest, Mark):
            return latest
        if latest.graph.is_capturing:
            raise AclnnError(ACL_ERROR_RT_EVENT_CAPTURED, "event: expected one that is not captured, got one that is")
        return None

    def record(self, stream: Stream) -> None:
        """Mark the stream's tasks queued so far."""
        graph = capturing(stream)
        self._latest = graph.mark(stream) if graph else stream.record()
        self._was_recorded = True

    def reset(self, stream: Stream) -> None:
        """Forget the latest record when the stream comes here."""
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
        """Let the stream's next tasks wait for the latest record, with which it joins that one's capture.

        They fail where it has not come within the limit.

        Raises:
            AclnnError: 107000, there is no record to wait for; 107024, it is not one of the stream's capture; 107032,
                it is another capture's.
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
        """True once every stream that was to wait for it has done so.

        Raises:
            AclnnError: 207000, from aclrtCreateEventExWithFlag.
        """
        if self.reusable:
            raise AclnnError(
                ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "event: expected one that aclrtCreateEventExWithFlag did not make, got one that it did",
            )
        return all(stream.has_finished(ticket) for stream, ticket in list(self._waits.items()))

    def record_outside(self, stream: Stream) -> None:
        """Capture a record that each execution of the graph makes, for what is outside of the graph.

        Raises:
            AclnnError: 107029, the stream's tasks are not captured; 107000, an event that has not just ACL_EVENT_SYNC
                from aclrtCreateEventExWithFlag, or was recorded, or is waited for in the same graph.
        """
        captured(stream).take_outside(stream, Signal(self), self._checked_outside())

    def wait_outside(self, stream: Stream) -> None:
        """Capture a wait for the latest record before each execution of the graph.

        Raises:
            AclnnError: as ``record_outside``, recorded in the same graph.
        """
        captured(stream).take_outside(stream, Await(self), self._checked_outside())

    def _checked_outside(self) -> Event:
        if not self.reusable or self.flags != SYNC:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID,
                f"event: expected one of aclrtCreateEventExWithFlag with ACL_EVENT_SYNC (1), got one with flags "
                f"{self.flags:#x}{'' if self.reusable else ' of another function'}",
            )
        if self._was_recorded:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, "event: expected one that was never recorded, got one that was"
            )
        return self

    def synchronize(self, timeout_s: float | None = None) -> bool:
        """Wait for the latest record; whether it came within the time.

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
    """A record of an event in each execution of a graph."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def begin(self) -> Launched:
        """Let the event's latest record be this execution's from now on."""
        record = self._event._latest = Record()
        return Launched(record.complete, record.cancel)


class Await:
    """A wait, in each execution of a graph, for what was an event's latest record when that was asked for."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def begin(self) -> Launched:
        """Let this execution wait for the event's latest record now."""
        latest = self._event._latest
        return Launched(waiting_for(latest) if isinstance(latest, Record) else lambda: None)


def _never_recorded() -> AclnnError:
    return AclnnError(ACL_ERROR_RT_PARAM_INVALID, "event: expected an event that was recorded, got one that was not")


class ExternalEvent(Event):
    """A flag that streams set, wait for and reset when they come to it, those of a capture in each execution."""

    def __init__(self) -> None:
        super().__init__(EXTERNAL, reusable=True)
        self._flag = threading.Event()
        self._is_recorded = False

    @property
    def latest(self) -> Record | None:
        """Nothing that the host may ask for.

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
        """Let the stream's next tasks wait for the flag.

        Raises:
            AclnnError: 107000, nothing will have set it.
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
    """An event with these flags.

    Raises:
        AclnnError: 107000; none, unknown ones, or a combination that excludes itself.
    """
    checked = checked_flags(flags)
    return ExternalEvent() if checked == EXTERNAL else Event(checked, reusable)


def checked_flags(flags: int) -> int:
    """Flags as aclrtCreateEventWithFlag takes them.

    Raises:
        AclnnError: 107000; none, unknown ones, or a combination that excludes itself.
    """
    if not flags or flags & ~_KNOWN or any(flags & flag and flags != flag for flag in _ALONE):
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID,
            f"flag: expected ACL_EVENT_SYNC (1), CAPTURE_STREAM_PROGRESS (2) and TIME_LINE (8) or'ed, or one of "
            f"DEVICE_USE_ONLY (0x10), EXTERNAL (0x20) and IPC (0x40), got {flags:#x}",
        )
    return flags


def elapsed_ms(start: Event, end: Event) -> float:
    """Milliseconds from one event's latest record to another's; negative in the other order.

    Raises:
        AclnnError: 507000, one was never recorded; 107006, one has no time (no TIME_LINE, or not finished).
    """
    began, ended = _timed({"startEvent": start, "endEvent": end})
    return ended.ms_since(began)


def time_us(event: Event) -> int:
    """When a stream came to an event's latest record, in microseconds of ``time.perf_counter``.

    Raises:
        AclnnError: 507000, it was never recorded; 107006, it has no time (no TIME_LINE, or not finished).
    """
    (record,) = _timed({"event": event})
    return record.time_us


def _timed(named: Mapping[str, Event]) -> list[Record]:
    """The latest records of events, by the arguments' names; each has a time."""
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
