"""Graphs: tasks that are captured from streams, and executed any number of times in the order in which they came.

Another stream joins a capture by waiting for an event that is recorded there. So the order of the tasks keeps every
dependency between streams, and an execution is one task.
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
    """The threads in which a capture forbids immediate operations."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class _Thread(threading.local):
    mode = Mode.GLOBAL


_numbers = itertools.count()
_thread = _Thread()
_begun: PerProcess[set[Graph]] = PerProcess(set)


def _nothing() -> None:
    """Default for ``over``."""


class Launched(NamedTuple):
    """A task for one execution, made when that is asked for."""

    task: Task
    over: Task = _nothing
    """Called when the execution has ended without it."""


class Outside(Protocol):
    """What a graph has to do with the world outside of it: made anew in each execution."""

    def begin(self) -> Launched:
        """Make the task when an execution is asked for."""


class Mark(NamedTuple):
    """A point of a capture: which of the streams' last tasks come before it."""

    graph: Graph
    known: dict[Stream, int]


class Group:
    """Tasks of a graph that may be replaced."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.handle = 0
        self.places: list[int] = []
        self.is_updated = False


class Graph:
    """``aclmdlRI``: captures what its streams take until ``end``."""

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
        stream.taker = self
        _begun.current.add(self)

    @property
    def is_capturing(self) -> bool:
        """True until the capture ends."""
        return self._origin.taker is self

    def take(self, stream: Stream, task: Task) -> None:
        """Capture a task."""
        with self._lock:
            if stream in self._open:
                self._open[stream].places.append(len(self.tasks))
            self.tasks.append(task)
            self._rows.append(stream)
            self._last[stream] = next(self._clock)

    def take_outside(self, stream: Stream, outside: Outside, event: object) -> None:
        """Capture a record of an event, or a wait for one, that is the world's outside.

        Raises:
            AclnnError: 107000, the graph does the other with the event already.
        """
        if self._events.setdefault(event, type(outside)) is not type(outside):
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID,
                "event: expected one that the graph only records or only waits for, got one that does the other",
            )
        self._outside[len(self.tasks)] = outside
        self.take(stream, _nothing)

    def mark(self, stream: Stream) -> Mark:
        """Mark what a stream of the capture has come to."""
        with self._lock:
            return Mark(self, self._known[stream] | {stream: self._last[stream]})

    def join(self, stream: Stream, mark: Mark) -> None:
        """Let a stream take part, after what is marked.

        Raises:
            AclnnError: 107032, it takes part in another capture; 107033, it updates tasks.
        """
        if stream.taker is not self:
            if capturing(stream):
                raise AclnnError(
                    ACL_ERROR_STREAM_CAPTURE_CONFLICT, "event: expected one of the stream's capture, got another's"
                )
            _expect_no_update(stream)
        with self._lock:
            known = self._known.setdefault(stream, {})
            for other, time in mark.known.items():
                known[other] = max(time, known.get(other, 0))
            if stream.taker is not self:
                self._last[stream] = next(self._clock)
                stream.taker = self

    def begin_group(self, stream: Stream) -> None:
        """Let the tasks that the stream takes next be replaceable.

        Raises:
            AclnnError: 107033, they are already.
        """
        if stream in self._open:
            raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one without a task group, got one")
        self._open[stream] = Group(self)

    def end_group(self, stream: Stream) -> Group:
        """End a group.

        Raises:
            AclnnError: 107033, none was begun.
        """
        group = self._open.pop(stream, None)
        if group is None:
            raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one with a task group, got none")
        self.groups.append(group)
        return group

    def end(self, stream: Stream) -> None:
        """End the capture, which is over even if it is refused, but for a stream that did not begin it.

        Raises:
            AclnnError: 107036, another stream began it; 107038, another thread; 107033, a task group has not ended;
                107025, a stream has not joined the one that began.
        """
        if stream is not self._origin:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "stream: expected the one that began the capture, got another"
            )
        _begun.current.discard(self)
        for other in self._last:
            if other.taker is self:
                other.taker = None
        if self._mode is not Mode.RELAXED and self._thread != threading.get_ident():
            raise AclnnError(
                ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "stream: expected the thread that began, got another"
            )
        if self._open:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS, f"stream: expected no open task groups, got {len(self._open)}"
            )
        known = self._known[stream]
        astray = sum(known.get(other, 0) < time for other, time in self._last.items() if other is not stream)
        if astray:
            raise AclnnError(
                ACL_ERROR_RT_STREAM_UNJOINED, f"stream: expected it to wait for every other one, got {astray} astray"
            )

    def execute(self, stream: Stream) -> None:
        """Queue an execution; tasks are those that are there when the stream comes to it.

        Raises:
            AclnnError: 107026, the graph still captures; 107027, the stream does; 107000, it was closed.
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
        """The streams that took part, in the order in which they joined."""
        return list(self._last)

    def places(self, number: int) -> list[int]:
        """Where the tasks of a stream that took part are among all."""
        return [place for place, row in enumerate(self.rows()) if row == number]

    def rows(self) -> list[int]:
        """The number of each task's stream, counted in the order in which they joined."""
        numbers = {stream: number for number, stream in enumerate(self._last)}
        return [numbers[stream] for stream in self._rows]

    def expect_idle(self) -> None:
        """Refuse to end a graph that is in use.

        Raises:
            AclnnError: 107026, it still captures; 107037, it is executed.
        """
        self.expect_ended()
        if not all(run.done for run in self._runs):
            raise AclnnError(
                ACL_ERROR_RT_MODEL_RUNNING, "modelRI: expected one that has been executed, got a running one"
            )

    def expect_ended(self) -> None:
        """Refuse what a graph allows no longer before its capture has ended.

        Raises:
            AclnnError: 107026.
        """
        if self.is_capturing:
            raise AclnnError(
                ACL_ERROR_RT_MODEL_CAPTURED, "modelRI: expected one whose capture has ended, got one that captures"
            )


class Update:
    """Replaces the tasks of a group, one after the other, by those that a stream takes, when it comes to them."""

    captures = False

    def __init__(self, stream: Stream, group: Group) -> None:
        stream.expect_no_capture()
        _expect_no_update(stream)
        if group.is_updated:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS, "handle: expected a task group that no stream updates, got one"
            )
        group.is_updated = True
        self._group = group
        self._replaced = 0
        stream.taker = self

    def take(self, stream: Stream, task: Task) -> None:
        """Replace the next task.

        Raises:
            AclnnError: 107033, there are no more.
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
            AclnnError: 107033, tasks remain.
        """
        stream.taker = None
        self._group.is_updated = False
        total = len(self._group.places)
        if self._replaced != total:
            raise AclnnError(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                f"stream: expected {total} tasks of the group, got {self._replaced}",
            )


def capturing(stream: Stream) -> Graph | None:
    """The graph that captures the stream's tasks, if any."""
    return stream.taker if isinstance(stream.taker, Graph) else None


def captured(stream: Stream) -> Graph:
    """The graph that captures the stream's tasks.

    Raises:
        AclnnError: 107029, there is none.
    """
    graph = capturing(stream)
    if graph is None:
        raise AclnnError(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream: expected one whose tasks are captured, got another")
    return graph


def updating(stream: Stream) -> Update:
    """The update that takes the stream's tasks.

    Raises:
        AclnnError: 107033, there is none.
    """
    if not isinstance(stream.taker, Update):
        raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one that updates tasks, got another")
    return stream.taker


def _expect_no_update(stream: Stream) -> None:
    if isinstance(stream.taker, Update):
        raise AclnnError(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream: expected one that updates no tasks, got one")


def exchange_mode(mode: Mode) -> Mode:
    """Set the calling thread's mode, and return the one before."""
    before, _thread.mode = _thread.mode, mode
    return before


def are_begun() -> bool:
    """Tell whether captures have begun that have not ended."""
    return bool(_begun.current)


def expect_none_forbids(context: Any, stream: Stream | None = None) -> None:
    """Refuse what captures of a context forbid: work at once, or a stream's with memory that may be gone later.

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
            f"expected no capture that forbids it, got one in mode {everywhere.name} and a thread in mode "
            f"{_thread.mode.name}",
        )
