"""Graphs: tasks captured from streams, and executed any number of times in the order of their capture.

Another stream joins a capture by waiting for an event recorded in it. So the order of the tasks respects every
dependency between streams, and an execution is a single task.
"""

from __future__ import annotations

import itertools
import threading
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from aclnn.core.status import (
    ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
    ACL_ERROR_RT_MODEL_CAPTURED,
    ACL_ERROR_RT_MODEL_RUNNING,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
    ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED,
    ACL_ERROR_RT_STREAM_UNJOINED,
    ACL_ERROR_STREAM_CAPTURE_CONFLICT,
    ACL_ERROR_STREAM_TASK_GROUP_STATUS,
    AclnnError,
)
from aclnn.runtime.locks import Lock
from aclnn.runtime.streams import Record, Stream, Task
from aclnn.support.process import PerProcess


class Mode(IntEnum):
    """Scope of the threads in which a capture forbids immediate operations."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class _Thread(threading.local):
    mode = Mode.GLOBAL


_numbers = itertools.count()
_thread = _Thread()
_begun: PerProcess[set[Graph]] = PerProcess(set)


def _nothing() -> None:
    """Do nothing: default for ``over``."""


class Launched(NamedTuple):
    """A task for one execution, made when the execution is requested."""

    task: Task
    over: Task = _nothing
    """Called if the execution ends without running the task."""


class Outside(Protocol):
    """An interaction of a graph with streams or the host outside it, made anew for each execution."""

    def begin(self) -> Launched:
        """Make the task when an execution is requested."""


class Mark(NamedTuple):
    """A point of a capture: the last task of each stream that precedes it."""

    graph: Graph
    known: dict[Stream, int]


class Group:
    """Captured tasks that may be replaced."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.handle = 0
        self.places: list[int] = []
        self.is_updated = False


class Graph:
    """``aclmdlRI``: captures the tasks of its streams until ``end``."""

    captures = True

    def __init__(self, stream: Stream, mode: Mode) -> None:
        self.number = next(_numbers)
        self.name = ""
        self.handle = 0
        self.tasks: list[Task] = []
        self.groups: list[Group] = []
        self._outside: dict[int, Outside] = {}
        self._events: dict[object, type[Outside]] = {}
        self._origin = stream
        self._mode = mode
        self._thread = threading.get_ident()
        self._lock = Lock()
        self._clock = itertools.count(1)
        self._last = {stream: 0}
        self._known: dict[Stream, dict[Stream, int]] = {stream: {}}
        self._rows: list[Stream] = []
        self._open: dict[Stream, Group] = {}
        self._runs: list[Record] = []
        stream.expect_no_capture()
        _expect_no_update(stream)
        stream.capturing_graph = self
        _begun.current.add(self)

    @property
    def is_capturing(self) -> bool:
        """True until the capture ends."""
        return self._origin.capturing_graph is self

    def take(self, stream: Stream, task: Task) -> None:
        """Capture a task."""
        with self._lock:
            if stream in self._open:
                self._open[stream].places.append(len(self.tasks))
            self.tasks.append(task)
            self._rows.append(stream)
            self._last[stream] = next(self._clock)

    def take_outside(self, stream: Stream, outside: Outside, event: object) -> None:
        """Capture a record of an event, or a wait for one, that connects to the outside of the graph.

        Raises:
            AclnnError: 107000, the graph already does the opposite with the event.
        """
        if self._events.setdefault(event, type(outside)) is not type(outside):
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID,
                "event: expected one that the graph only records or only waits for, got one used both ways",
            )
        self._outside[len(self.tasks)] = outside
        self.take(stream, _nothing)

    def mark(self, stream: Stream) -> Mark:
        """Mark the current point of a captured stream."""
        with self._lock:
            return Mark(self, self._known[stream] | {stream: self._last[stream]})

    def join(self, stream: Stream, mark: Mark) -> None:
        """Add a stream to the capture; its next tasks depend on the mark.

        Raises:
            AclnnError: 107032, the stream belongs to another capture; 107033, it is updating tasks.
        """
        if stream.capturing_graph is not self:
            if capturing(stream):
                raise AclnnError(
                    ACL_ERROR_STREAM_CAPTURE_CONFLICT,
                    "event: expected one of the stream's own capture, got another capture's",
                )
            _expect_no_update(stream)
        with self._lock:
            known = self._known.setdefault(stream, {})
            for other, time in mark.known.items():
                known[other] = max(time, known.get(other, 0))
            if stream.capturing_graph is not self:
                self._last[stream] = next(self._clock)
                stream.capturing_graph = self

    def begin_group(self, stream: Stream) -> None:
        """Make the stream's next tasks replaceable.

        Raises:
            AclnnError: 107033, a group is open already.
        """
        if stream in self._open:
            raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected no open task group, got one")
        self._open[stream] = Group(self)

    def end_group(self, stream: Stream) -> Group:
        """End a group.

        Raises:
            AclnnError: 107033, no group is open.
        """
        group = self._open.pop(stream, None)
        if group is None:
            raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected an open task group, got none")
        self.groups.append(group)
        return group

    def end(self, stream: Stream) -> None:
        """End the capture, even on an error other than 107036.

        Raises:
            AclnnError: 107036, another stream began it; 107038, another thread did; 107033, a task group is still open;
                107025, a stream was not joined to the one that began the capture.
        """
        if stream is not self._origin:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "stream: expected the one that began the capture, got another"
            )
        _begun.current.discard(self)
        for other in self._last:
            if other.capturing_graph is self:
                other.capturing_graph = None
        if self._mode is not Mode.RELAXED and self._thread != threading.get_ident():
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
                "stream: expected the thread that began the capture, got another",
            )
        if self._open:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS, f"stream: expected no open task groups, got {len(self._open)}"
            )
        known = self._known[stream]
        unjoined = sum(known.get(other, 0) < time for other, time in self._last.items() if other is not stream)
        if unjoined:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_UNJOINED,
                f"stream: expected every other stream to be joined, got {unjoined} unjoined",
            )

    def execute(self, stream: Stream) -> None:
        """Queue an execution, which runs the tasks that the graph has when the stream reaches it.

        Raises:
            AclnnError: 107026, the graph is capturing; 107027, the stream is; 107000, the stream was closed.
        """
        self.expect_ended()
        stream.expect_no_capture()
        done = Record()
        launched = {place: outside.begin() for place, outside in self._outside.items()}

        def over() -> None:
            for left in list(launched.values()):
                left.over()

        def run() -> None:
            try:
                for place, task in enumerate(self.tasks):
                    (launched.pop(place).task if place in launched else task)()
            finally:
                done.complete()
                over()

        def dropped(reason: AclnnError | None) -> None:
            done.cancel(reason)
            over()

        try:
            stream.queue(run, dropped=dropped)
        except AclnnError:
            over()
            raise
        self._runs = [run for run in self._runs if not run.done] + [done]

    @property
    def streams(self) -> list[Stream]:
        """Streams of the capture, in the order in which they joined."""
        return list(self._last)

    def places(self, number: int) -> list[int]:
        """Return the indices of a captured stream's tasks among all tasks."""
        return [place for place, row in enumerate(self.rows()) if row == number]

    def rows(self) -> list[int]:
        """Return the number of each task's stream, in the order in which streams joined."""
        numbers = {stream: number for number, stream in enumerate(self._last)}
        return [numbers[stream] for stream in self._rows]

    def expect_idle(self) -> None:
        """Raise an error if the graph is in use, and so cannot be destroyed.

        Raises:
            AclnnError: 107026, it is capturing; 107037, it is running.
        """
        self.expect_ended()
        if not all(run.done for run in self._runs):
            raise AclnnError(
                ACL_ERROR_RT_MODEL_RUNNING, "modelRI: expected a graph that is not running, got a running one"
            )

    def expect_ended(self) -> None:
        """Raise an error if the capture has not ended.

        Raises:
            AclnnError: 107026.
        """
        if self.is_capturing:
            raise AclnnError(
                ACL_ERROR_RT_MODEL_CAPTURED,
                "modelRI: expected a graph whose capture has ended, got one that is capturing",
            )


class Update:
    """Replaces the tasks of a group in order, by the tasks that a stream takes, when the stream reaches them."""

    captures = False

    def __init__(self, stream: Stream, group: Group) -> None:
        stream.expect_no_capture()
        _expect_no_update(stream)
        if group.is_updated:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "handle: expected a task group that no stream updates, got one that is updated",
            )
        group.is_updated = True
        self._group = group
        self._replaced = 0
        stream.capturing_graph = self

    def take(self, stream: Stream, task: Task) -> None:
        """Replace the next task of the group.

        Raises:
            AclnnError: 107033, none is left.
        """
        group = self._group
        if self._replaced == len(group.places):
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS, f"stream: expected {self._replaced} tasks of the group, got more"
            )
        place = group.places[self._replaced]
        self._replaced += 1
        stream.queue(lambda: group.graph.tasks.__setitem__(place, task), short=True)

    def end(self, stream: Stream) -> None:
        """End the update.

        Raises:
            AclnnError: 107033, some tasks were not replaced.
        """
        stream.capturing_graph = None
        self._group.is_updated = False
        total = len(self._group.places)
        if self._replaced != total:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS, f"stream: expected {total} tasks of the group, got {self._replaced}"
            )


def capturing(stream: Stream) -> Graph | None:
    """Return the graph that captures the stream's tasks, None if there is none."""
    return stream.capturing_graph if isinstance(stream.capturing_graph, Graph) else None


def captured(stream: Stream) -> Graph:
    """Return the graph that captures the stream's tasks.

    Raises:
        AclnnError: 107029, there is none.
    """
    graph = capturing(stream)
    if graph is None:
        raise AclnnError(
            ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream: expected one that is capturing, got one that is not"
        )
    return graph


def updating(stream: Stream) -> Update:
    """Return the update that takes the stream's tasks.

    Raises:
        AclnnError: 107033, there is none.
    """
    if not isinstance(stream.capturing_graph, Update):
        raise AclnnError(
            ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one that is updating tasks, got one that is not"
        )
    return stream.capturing_graph


def _expect_no_update(stream: Stream) -> None:
    if isinstance(stream.capturing_graph, Update):
        raise AclnnError(
            ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one that is not updating tasks, got one that is"
        )


def exchange_mode(mode: Mode) -> Mode:
    """Set the calling thread's mode and return the previous one."""
    before, _thread.mode = _thread.mode, mode
    return before


def are_begun() -> bool:
    """Return True if any capture has begun and not ended."""
    return bool(_begun.current)


def expect_none_forbids(context: Any, stream: Stream | None = None) -> None:
    """Raise an error if captures of a context forbid immediate work, or work with memory that may be freed later.

    Raises:
        AclnnError: 107030, the stream's tasks are captured, or a mode forbids it.
    """
    graphs = [graph for graph in list(_begun.current) if graph.is_capturing and graph._origin.context is context]
    everywhere = min((graph._mode for graph in graphs), default=Mode.RELAXED)
    here = min((graph._mode for graph in graphs if graph._thread == threading.get_ident()), default=Mode.RELAXED)
    forbids = {
        Mode.GLOBAL: everywhere is Mode.GLOBAL or here is Mode.THREAD_LOCAL,
        Mode.THREAD_LOCAL: here is not Mode.RELAXED,
        Mode.RELAXED: False,
    }
    if forbids[_thread.mode] or (stream and capturing(stream)):
        raise AclnnError(
            ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
            f"expected no capture that forbids this call, got one in mode {everywhere.name} and a thread in mode "
            f"{_thread.mode.name}",
        )
