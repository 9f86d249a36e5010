"""aclmdlRICaptureBegin … aclmdlRIGetName: graphs of tasks captured from streams and executed later."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.core.products import Product, current_product
from aclnn.core.status import (
    ACL_ERROR_INVALID_FILE,
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    AclnnError,
)
from aclnn.runtime import devices, graphs, handles, memory
from aclnn.runtime.graphs import Graph, Group, Mode
from aclnn.runtime.streams import Stream, seconds

T = TypeVar("T")

_STATUS = ENUMS["aclmdlRICaptureStatus"]
_NONE, _ACTIVE = _STATUS["ACL_MODEL_RI_CAPTURE_STATUS_NONE"], _STATUS["ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE"]
_WITHOUT = (Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING)
_NAME_BYTES = 512
_lanes_of: WeakKeyDictionary[Graph, dict[int, _Lane]] = WeakKeyDictionary()
_VERBOSE = 1


def _live(handle: int, kind: type[T], argument: str) -> T:
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{argument}: expected a {kind.__name__.lower()}, got null")
    found = handles.get(handle, kind)
    if found is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID,
            f"{argument}: expected a live {kind.__name__.lower()}, got {handles.describe(handle)}",
        )
    return found


def _mode(number: int) -> Mode:
    try:
        return Mode(number)
    except ValueError:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"mode: expected an aclmdlRICaptureMode from 0 to 2, got {number}"
        ) from None


@c_function("aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode)")
def aclmdlRICaptureBegin(stream: int, mode: int) -> None:
    """Capture a stream's tasks in a new graph, except for a default stream; 207000 on products without graphs."""
    found = _live(stream, Stream, "stream")
    checked = _mode(mode)
    if current_product() in _WITHOUT:
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"expected a product with graphs, got {current_product().value[0]}"
        )
    graph = Graph(found, checked)
    graph.handle = handles.insert(graph)


@c_function(
    "aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI)",
    nullable=["status", "modelRI"],
)
def aclmdlRICaptureGetInfo(stream: int) -> tuple[int, int]:
    """Return whether a stream is capturing, and its graph; in C, either out-parameter may be null."""
    graph = graphs.capturing(_live(stream, Stream, "stream"))
    return (_ACTIVE, graph.handle) if graph else (_NONE, 0)


@c_function("aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI)")
def aclmdlRICaptureEnd(stream: int) -> int:
    """End a capture and return the graph."""
    found = _live(stream, Stream, "stream")
    graph = graphs.captured(found)
    try:
        graph.end(found)
    except AclnnError:
        if not graph.is_capturing:
            _forget(graph)
        raise
    return graph.handle


def _forget(graph: Graph) -> None:
    handles.pop(graph.handle, Graph)
    for group in graph.groups:
        handles.pop(group.handle, Group)
    _forget_lanes(graph)


@c_function("aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode)", buffers=["mode"])
def aclmdlRICaptureThreadExchangeMode(mode: int) -> None:
    """Swap the calling thread's capture mode, which governs forbidden operations, with the one at an address."""
    memory.expect_address(mode, "mode")
    memory.check_range(mode, ctypes.sizeof(ctypes.c_int32), "mode")
    at = ctypes.c_int32.from_address(mode)
    at.value = graphs.exchange_mode(_mode(at.value))


@c_function("aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream)")
def aclmdlRICaptureTaskGrpBegin(stream: int) -> None:
    """Begin a group of captured tasks that can be replaced."""
    found = _live(stream, Stream, "stream")
    graphs.captured(found).begin_group(found)


@c_function("aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle)")
def aclmdlRICaptureTaskGrpEnd(stream: int) -> int:
    """End a group of captured tasks, and return its handle."""
    found = _live(stream, Stream, "stream")
    group = graphs.captured(found).end_group(found)
    group.handle = handles.insert(group)
    return group.handle


@c_function("aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle)")
def aclmdlRICaptureTaskUpdateBegin(stream: int, handle: int) -> None:
    """Replace the tasks of a group by the stream's next tasks, when the stream reaches them."""
    graphs.Update(_live(stream, Stream, "stream"), _live(handle, Group, "handle"))


@c_function("aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream)")
def aclmdlRICaptureTaskUpdateEnd(stream: int) -> None:
    """End an update; 107033 unless all tasks of the group were replaced."""
    found = _live(stream, Stream, "stream")
    graphs.updating(found).end(found)


def _graph(handle: int) -> Graph:
    return _live(handle, Graph, "modelRI")


@c_function("aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream)")
def aclmdlRIExecuteAsync(modelRI: int, stream: int) -> None:
    """Queue an execution of a graph on a stream."""
    _graph(modelRI).execute(devices.stream_of(stream))


@c_function("aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout)")
def aclmdlRIExecute(modelRI: int, timeout: int) -> None:
    """Execute a graph and wait for it; timeout in milliseconds, -1 for none."""
    graph, limit = _graph(modelRI), seconds(timeout)
    stream = devices.current().default_stream
    graph.execute(stream)
    if not stream.synchronize(limit):
        raise AclnnError(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, f"modelRI: timed out after {timeout} ms")


@c_function("aclError aclmdlRIDestroy(aclmdlRI modelRI)")
def aclmdlRIDestroy(modelRI: int) -> None:
    """Destroy a graph; 107026 while it is capturing, 107037 while it is running."""
    graph = _graph(modelRI)
    graph.expect_idle()
    _forget(graph)


@c_function("aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId)")
def aclmdlRIGetId(modelRI: int) -> int:
    """Return a graph's number."""
    return _graph(modelRI).number


@c_function("aclError aclmdlRISetName(aclmdlRI modelRI, const char *name)")
def aclmdlRISetName(modelRI: int, name: str | None) -> None:
    """Set a graph's name."""
    graph = _graph(modelRI)
    if name is None:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "name: expected a string, got null")
    graph.name = name


@c_function("aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char *name)", buffers=["name"])
def aclmdlRIGetName(modelRI: int, maxLen: int, name: int) -> None:
    """Write a graph's name, empty by default, truncated to the buffer and to 512 bytes."""
    graph = _graph(modelRI)
    memory.expect_address(name, "name")
    if maxLen:
        text = os.fsencode(graph.name)[: min(maxLen, _NAME_BYTES) - 1] + b"\0"
        memory.check_range(name, len(text), "name")
        ctypes.memmove(name, text, len(text))


class _Lane:
    """A stream of a graph."""

    def __init__(self, graph: Graph, number: int) -> None:
        self.handles = [handles.insert(_Step()) for _ in graph.places(number)]


class _Step:
    """A task of a graph."""


def _lanes(graph: Graph) -> dict[int, _Lane]:
    """Return the streams of a graph by handle; the handles are valid as long as the graph is."""
    graph.expect_ended()
    lanes = _lanes_of.setdefault(graph, {})
    if not lanes:
        made = [_Lane(graph, number) for number in range(len(graph.streams))]
        lanes.update((handles.insert(lane), lane) for lane in made)
    return lanes


def _forget_lanes(graph: Graph) -> None:
    for handle, lane in _lanes_of.pop(graph, {}).items():
        handles.pop(handle, _Lane)
        for step in lane.handles:
            handles.pop(step, _Step)


def _list(given: Sequence[int], array: int | None, count: int, names: tuple[str, str]) -> None:
    """Write handles into an array, and their count in place of its size; a null array queries the count only."""
    memory.expect_address(count, names[1])
    memory.check_range(count, ctypes.sizeof(ctypes.c_uint32), names[1])
    room = ctypes.c_uint32.from_address(count)
    if array:
        if room.value < len(given):
            raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{names[1]}: expected at least {len(given)}, got {room.value}")
        memory.check_range(array, 8 * len(given), names[0])
        (ctypes.c_uint64 * len(given)).from_address(array)[:] = list(given)
    room.value = len(given)


@c_function(
    "aclError aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream *streams, uint32_t *numStreams)",
    buffers=["streams", "numStreams"],
)
def aclmdlRIGetStreams(modelRI: int, streams: int | None, numStreams: int) -> None:
    """Write the handles of a graph's streams, for aclmdlRIGetTasksByStream, and their count; null queries the count."""
    _list(list(_lanes(_graph(modelRI))), streams, numStreams, ("streams", "numStreams"))


@c_function(
    "aclError aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask *tasks, uint32_t *numTasks)",
    buffers=["tasks", "numTasks"],
)
def aclmdlRIGetTasksByStream(stream: int, tasks: int | None, numTasks: int) -> None:
    """Write the handles of a stream's tasks in order, and their count; null queries the count."""
    lane = handles.get(stream, _Lane)
    if lane is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"stream: expected one of aclmdlRIGetStreams, got {handles.describe(stream)}"
        )
    _list(lane.handles, tasks, numTasks, ("tasks", "numTasks"))


def _described(graph: Graph) -> list[dict[str, Any]]:
    """Return the tasks as events in Chrome's tracing format, one row per stream."""
    return [
        {
            "name": f"task {task}",
            "ph": "X",
            "pid": f"model_{graph.number}",
            "tid": f"stream_{stream}",
            "ts": task,
            "dur": 1,
        }
        for task, stream in enumerate(graph.rows())
    ]


@c_function("aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags)")
def aclmdlRIDebugJsonPrint(modelRI: int, path: str | None, flags: int) -> None:
    """Write a graph's tasks as JSON for chrome://tracing; flags 0 and 1 give the same, for lack of kernel arguments."""
    graph = _graph(modelRI)
    if path is None:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "path: expected a string, got null")
    if flags > _VERBOSE:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flags: expected 0 or 1, got {flags}")
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(_described(graph), file)
    except OSError as error:
        raise AclnnError(
            ACL_ERROR_INVALID_FILE, f"path: expected a file that can be written, got {path!r} ({error.strerror})"
        ) from None
