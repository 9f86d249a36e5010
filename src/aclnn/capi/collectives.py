"""HcclGetRootInfo … HcclBatchSendRecv: collective communication between ranks, which are threads or processes here.

Invalid calls fail at once. An error during the exchange, such as the end of another rank, fails the stream's task; it
is reported when the program waits for the stream, and by HcclGetCommAsyncError.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import accumulate

import numpy as np

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function, c_value_function
from aclnn.core.dtypes import DataType
from aclnn.core.status import AclnnError, HcclResult
from aclnn.runtime import collectives, devices, handles, memory
from aclnn.runtime.collectives import Reduction
from aclnn.runtime.communicators import Communicator, Message, Root
from aclnn.runtime.devices import numbered
from aclnn.runtime.streams import Stream

_PARA, _PTR = HcclResult.HCCL_E_PARA, HcclResult.HCCL_E_PTR
ROOT_INFO_BYTES = 4108
NAME_BYTES = 128
CONFIG_MAGIC = 0xF0F0F0F0
_MOST_RANKS = 1024

_TYPES = {name.removeprefix("HCCL_DATA_TYPE_"): number for name, number in ENUMS["HcclDataType"].items()}
_BYTES_OF = {
    _TYPES[name]: nbytes
    for nbytes, names in {
        1: "INT8 UINT8 HIF8 FP8E4M3 FP8E5M2 FP8E8M0",
        2: "INT16 UINT16 FP16 BFP16",
        4: "INT32 UINT32 FP32",
        8: "INT64 UINT64 FP64",
        16: "INT128",
    }.items()
    for name in names.split()
}
_REDUCED = {
    "INT8": DataType.INT8,
    "INT16": DataType.INT16,
    "INT32": DataType.INT32,
    "INT64": DataType.INT64,
    "FP16": DataType.FLOAT16,
    "FP32": DataType.FLOAT,
    "BFP16": DataType.BF16,
}
_DTYPES = {_TYPES[name]: dtype for name, dtype in _REDUCED.items()}
_TEXTS = {
    HcclResult.HCCL_SUCCESS: "no error",
    HcclResult.HCCL_E_PARA: "parameter error",
    HcclResult.HCCL_E_PTR: "empty pointer",
    HcclResult.HCCL_E_MEMORY: "memory error",
    HcclResult.HCCL_E_INTERNAL: "internal error",
    HcclResult.HCCL_E_NOT_SUPPORT: "not support feature",
    HcclResult.HCCL_E_NOT_FOUND: "not found specific resource",
    HcclResult.HCCL_E_UNAVAIL: "resource unavailable",
    HcclResult.HCCL_E_SYSCALL: "call system interface error",
    HcclResult.HCCL_E_TIMEOUT: "timeout",
    HcclResult.HCCL_E_TCP_CONNECT: "tcp connect fail",
    HcclResult.HCCL_E_TCP_TRANSFER: "tcp transfer fail",
    HcclResult.HCCL_E_REMOTE: "error cqe",
    HcclResult.HCCL_E_SUSPENDING: "error communicator suspending",
    HcclResult.HCCL_E_OOM: "out of memory",
}


class _Config(ctypes.Structure):
    """First fields of HcclCommConfig, common to all its versions."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64),
        ("buffer_size", ctypes.c_uint32),
        ("deterministic", ctypes.c_uint32),
        ("name", ctypes.c_char * NAME_BYTES),
    )


class _Item(ctypes.Structure):
    """HcclSendRecvItem."""

    _fields_ = (
        ("direction", ctypes.c_int32),
        ("address", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("data_type", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
    )


@contextmanager
def _as_parameter(prefix: str = "") -> Iterator[None]:
    """Map the runtime's errors to the parameter error, except those of communicators that have ended."""
    try:
        yield
    except AclnnError as error:
        code = error.code if isinstance(error.code, HcclResult) else _PARA
        raise AclnnError(code, f"{prefix}{error.message}") from None


def _host(argument: str, address: int, nbytes: int) -> int:
    """Return a host address at which that many bytes may lie."""
    memory.expect_address(address, argument, _PTR)
    with _as_parameter():
        memory.check_range(address, nbytes, argument)
    return address


def _communicator(comm: int) -> Communicator:
    memory.expect_address(comm, "comm", _PTR)
    found = handles.get(comm, Communicator)
    if found is None:
        raise AclnnError(_PARA, f"comm: expected a live communicator, got {handles.describe(comm)}")
    return found


def _rank_of(comm: Communicator, argument: str, rank: int) -> int:
    if rank >= comm.size:
        raise AclnnError(_PARA, f"{argument}: expected a rank from 0 to {comm.size - 1}, got {rank}")
    return rank


def _itemsize(data_type: int, argument: str = "dataType") -> int:
    if data_type not in _BYTES_OF:
        raise AclnnError(_PARA, f"{argument}: expected an HcclDataType, got {data_type}")
    return _BYTES_OF[data_type]


def _reduction(data_type: int, op: int) -> Reduction:
    _itemsize(data_type)
    if op not in ENUMS["HcclReduceOp"].values():
        raise AclnnError(_PARA, f"op: expected an HcclReduceOp from 0 to 3, got {op}")
    if data_type not in _DTYPES:
        raise AclnnError(
            HcclResult.HCCL_E_NOT_SUPPORT, f"dataType: expected one of {', '.join(_REDUCED)}, got {data_type}"
        )
    return Reduction(op, np.dtype(_DTYPES[data_type].numpy))


class _Call:
    """A collective call: its communicator, its stream, and the memory kept alive for its task."""

    def __init__(self, function: str, comm: int, stream: int) -> None:
        self.function = function
        self.comm = _communicator(comm)
        memory.expect_address(stream, "stream", _PTR)
        with _as_parameter():
            self.stream: Stream = devices.stream_of(stream)
        self._held: list[memory.Allocation] = []

    def bytes_at(self, argument: str, address: int, nbytes: int) -> memoryview:
        """Return a view of device memory, to be read or written when the task runs."""
        if not nbytes:
            return memoryview(b"")
        memory.expect_address(address, argument, _PTR)
        with _as_parameter(f"{argument}: "):
            self._held.append(self.stream.context.device.resolve(address, nbytes, address))
        return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")

    def parts_at(
        self, argument: str, address: int, unit: int, counts: Sequence[int], offsets: Sequence[int]
    ) -> list[memoryview]:
        """Return views of parts of device memory, given in elements from an address."""
        return [
            self.bytes_at(argument, address and address + unit * offset, unit * count)
            for count, offset in zip(counts, offsets, strict=True)
        ]

    def enqueue(self, work: Callable[[], None]) -> None:
        """Queue the work; within a group, defer it until the group ends."""

        def task(held: object = self._held) -> None:
            work()

        def queue() -> None:
            with _as_parameter():
                self.comm.enqueue(self.stream, self.function, task)

        if _group.depth:
            _group.pending.append(queue)
        else:
            queue()

    def enqueue_messages(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Queue messages; within a group, together with others of the same communicator and stream."""
        if _group.depth:
            key = id(self.comm), id(self.stream)
            if (earlier := _group.messages.get(key)) is not None:
                call, earlier_sends, earlier_receives = earlier
                call._held += self._held
                earlier_sends += sends
                earlier_receives += receives
                return
            sends, receives = list(sends), list(receives)
            _group.messages[key] = self, sends, receives
        self.enqueue(lambda: collectives.send_and_receive(self.comm, sends, receives))


class _Group(threading.local):
    """A thread's calls between HcclGroupStart and HcclGroupEnd."""

    def __init__(self) -> None:
        self.depth = 0
        self.pending: list[Callable[[], None]] = []
        self.messages: dict[tuple[int, int], tuple[_Call, list[Message], list[Message]]] = {}


_group = _Group()


@c_function("HcclResult HcclGroupStart()")
def HcclGroupStart() -> None:
    """Defer this thread's calls until the group ends, and exchange all their messages at once."""
    _group.depth += 1


@c_function("HcclResult HcclGroupEnd()")
def HcclGroupEnd() -> None:
    """End a group; the end of the outermost one queues the deferred calls."""
    if not _group.depth:
        raise AclnnError(_PARA, "expected an earlier HcclGroupStart, got none")
    _group.depth -= 1
    if not _group.depth:
        pending, _group.pending, _group.messages = _group.pending, [], {}
        failures = []
        for queue in pending:
            try:
                queue()
            except AclnnError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def _numbers(argument: str, address: int, count: int) -> list[int]:
    """Return 64-bit numbers from host memory."""
    return list((ctypes.c_uint64 * count).from_address(_host(argument, address, 8 * count)))


def _name_in(config: int) -> str:
    found = _Config.from_address(_host("config", config, ctypes.sizeof(_Config)))
    if found.magic != CONFIG_MAGIC:
        raise AclnnError(_PARA, f"config: expected what HcclCommConfigInit sets, got {found.magic:#x} as magic word")
    return bytes(found.name).decode(errors="replace")


def _join(nRanks: int, rootInfo: int, rank: int, name: str = "") -> int:
    _host("rootInfo", rootInfo, ROOT_INFO_BYTES)
    if not 1 <= nRanks <= _MOST_RANKS:
        raise AclnnError(_PARA, f"nRanks: expected from 1 to {_MOST_RANKS}, got {nRanks}")
    if rank >= nRanks:
        raise AclnnError(_PARA, f"rank: expected from 0 to {nRanks - 1}, got {rank}")
    info, device = ctypes.string_at(rootInfo, ROOT_INFO_BYTES), None
    with suppress(AclnnError):  # a communicator without a device serves all but operators, which name theirs
        device = devices.current().device
    return handles.insert(Communicator.join(nRanks, info, rank, name, device))


@c_function("HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo)", buffers=["rootInfo"])
def HcclGetRootInfo(rootInfo: int) -> None:
    """Open a meeting point for a communicator's ranks, and write the 4,108 bytes that identify it."""
    _host("rootInfo", rootInfo, ROOT_INFO_BYTES)
    ctypes.memmove(rootInfo, Root().info.ljust(ROOT_INFO_BYTES, b"\0"), ROOT_INFO_BYTES)


@c_function(
    "HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank, HcclComm *comm)",
    buffers=["rootInfo"],
)
def HcclCommInitRootInfo(nRanks: int, rootInfo: int, rank: int) -> int:
    """Create a communicator, once all ranks have joined.

    After HCCL_CONNECT_TIMEOUT seconds (120) the error names the missing ranks.
    """
    return _join(nRanks, rootInfo, rank)


@c_function(
    "HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank, "
    "const HcclCommConfig *config, HcclComm *comm)",
    buffers=["rootInfo", "config"],
)
def HcclCommInitRootInfoConfig(nRanks: int, rootInfo: int, rank: int, config: int) -> int:
    """Create a named communicator; the other settings have no effect."""
    return _join(nRanks, rootInfo, rank, _name_in(config))


@c_function(
    "HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms)",
    arrays={"devices": "ndev"},
    buffers=["comms"],
)
def HcclCommInitAll(ndev: int, devices: Sequence[int] | None, comms: int) -> None:
    """Create and write a communicator for each of several devices of this process."""
    if devices is None:
        raise AclnnError(_PTR, "devices: expected an address, got null")
    _host("comms", comms, 8 * ndev)
    if not devices or len(set(devices)) != len(devices):
        raise AclnnError(_PARA, f"devices: expected distinct numbers, got {list(devices)}")
    with _as_parameter():
        ranks = [numbered(number, "devices") for number in devices]
    info = Root().info
    with ThreadPoolExecutor(ndev) as threads:
        made = list(threads.map(lambda rank: Communicator.join(ndev, info, rank, device=ranks[rank]), range(ndev)))
    (ctypes.c_uint64 * ndev).from_address(comms)[:] = [handles.insert(comm) for comm in made]


@c_function("HcclResult HcclCommDestroy(HcclComm comm)")
def HcclCommDestroy(comm: int) -> None:
    """Close a communicator; tasks still queued on it fail, so synchronize the streams first."""
    found = _communicator(comm)
    handles.pop(comm, Communicator)
    found.end(AclnnError(HcclResult.HCCL_E_UNAVAIL, "the communicator was destroyed"))


@c_function("HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize)")
def HcclGetRankSize(comm: int) -> int:
    """Return the number of ranks."""
    return _communicator(comm).size


@c_function("HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank)")
def HcclGetRankId(comm: int) -> int:
    """Return this rank's number."""
    return _communicator(comm).rank


@c_function("HcclResult HcclGetCommName(HcclComm comm, char *commName)", buffers=["commName"])
def HcclGetCommName(comm: int, commName: int) -> None:
    """Write the name, at most 128 bytes: from the configuration, or one shared by all ranks."""
    found = _communicator(comm)
    _host("commName", commName, NAME_BYTES)
    text = found.name.encode()[: NAME_BYTES - 1] + b"\0"
    ctypes.memmove(commName, text, len(text))


@c_function("HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError)")
def HcclGetCommAsyncError(comm: int) -> int:
    """Return the status that ended the communicator; HCCL_SUCCESS while it is live."""
    failure = _communicator(comm).failure
    return int(HcclResult.HCCL_SUCCESS if failure is None else failure.code)


@c_value_function("const char *HcclGetErrorString(HcclResult code)", null=None)
def HcclGetErrorString(code: int) -> str | None:
    """Return a text for a status."""
    return _TEXTS.get(HcclResult(code), HcclResult(code).name) if code in list(HcclResult) else "unknown error"


@c_value_function("uint32_t HcclGetCommConfigCapability()")
def HcclGetCommConfigCapability() -> int:
    """Return the number of supported fields of HcclCommConfig: buffer size, determinism (both without effect), name."""
    return 3


@c_function(
    "HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op, "
    "HcclComm comm, aclrtStream stream)"
)
def HcclAllReduce(sendBuf: int, recvBuf: int, count: int, dataType: int, op: int, comm: int, stream: int) -> None:
    """Reduce all ranks' buffers into every rank's."""
    call, reduction = _Call("HcclAllReduce", comm, stream), _reduction(dataType, op)
    nbytes = count * _itemsize(dataType)
    source, target = call.bytes_at("sendBuf", sendBuf, nbytes), call.bytes_at("recvBuf", recvBuf, nbytes)
    call.enqueue(lambda: collectives.all_reduce(call.comm, call.function, reduction, source, target))


@c_function(
    "HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm, "
    "aclrtStream stream)"
)
def HcclBroadcast(buf: int, count: int, dataType: int, root: int, comm: int, stream: int) -> None:
    """Copy the root's buffer to every rank's."""
    call = _Call("HcclBroadcast", comm, stream)
    data = call.bytes_at("buf", buf, count * _itemsize(dataType))
    _rank_of(call.comm, "root", root)
    call.enqueue(lambda: collectives.broadcast(call.comm, call.function, data, root))


@c_function(
    "HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType, "
    "HcclReduceOp op, HcclComm comm, aclrtStream stream)"
)
def HcclReduceScatter(
    sendBuf: int, recvBuf: int, recvCount: int, dataType: int, op: int, comm: int, stream: int
) -> None:
    """Reduce all ranks' buffers, and give each rank a part of recvCount elements."""
    call = _Call("HcclReduceScatter", comm, stream)
    counts = [recvCount] * call.comm.size
    _reduce_scatter(call, sendBuf, counts, _offsets(counts), recvBuf, dataType, op)


@c_function(
    "HcclResult HcclReduceScatterV(void *sendBuf, const void *sendCounts, const void *sendDispls, void *recvBuf, "
    "uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm, aclrtStream stream)",
    buffers=["sendCounts", "sendDispls"],
)
def HcclReduceScatterV(
    sendBuf: int,
    sendCounts: int,
    sendDispls: int,
    recvBuf: int,
    recvCount: int,
    dataType: int,
    op: int,
    comm: int,
    stream: int,
) -> None:
    """Reduce all ranks' buffers, and give each rank a part of its own length."""
    call = _Call("HcclReduceScatterV", comm, stream)
    counts = _numbers("sendCounts", sendCounts, call.comm.size)
    if counts[call.comm.rank] != recvCount:
        raise AclnnError(
            _PARA, f"recvCount: expected this rank's of sendCounts ({counts[call.comm.rank]}), got {recvCount}"
        )
    _reduce_scatter(call, sendBuf, counts, _numbers("sendDispls", sendDispls, call.comm.size), recvBuf, dataType, op)


def _reduce_scatter(
    call: _Call, sendBuf: int, counts: Sequence[int], offsets: Sequence[int], recvBuf: int, dataType: int, op: int
) -> None:
    reduction, unit = _reduction(dataType, op), _itemsize(dataType)
    sources = call.parts_at("sendBuf", sendBuf, unit, counts, offsets)
    target = call.bytes_at("recvBuf", recvBuf, unit * counts[call.comm.rank])

    def work() -> None:
        part = collectives.reduced_part(call.comm, call.function, reduction, sources)
        if target:
            target[:] = part

    call.enqueue(work)


def _offsets(counts: Iterable[int]) -> list[int]:
    return [*accumulate(counts, initial=0)][:-1]


@c_function(
    "HcclResult HcclReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op, "
    "uint32_t root, HcclComm comm, aclrtStream stream)"
)
def HcclReduce(
    sendBuf: int, recvBuf: int, count: int, dataType: int, op: int, root: int, comm: int, stream: int
) -> None:
    """Reduce all ranks' buffers into the root's."""
    call, reduction = _Call("HcclReduce", comm, stream), _reduction(dataType, op)
    nbytes = count * _itemsize(dataType)
    is_root = call.comm.rank == _rank_of(call.comm, "root", root)
    source = call.bytes_at("sendBuf", sendBuf, nbytes)
    target = call.bytes_at("recvBuf", recvBuf, nbytes) if is_root else None
    call.enqueue(lambda: collectives.reduce(call.comm, call.function, reduction, source, target, root))


@c_function(
    "HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm, "
    "aclrtStream stream)"
)
def HcclAllGather(sendBuf: int, recvBuf: int, sendCount: int, dataType: int, comm: int, stream: int) -> None:
    """Concatenate all ranks' buffers on every rank."""
    call = _Call("HcclAllGather", comm, stream)
    counts = [sendCount] * call.comm.size
    _all_gather(call, sendBuf, sendCount, recvBuf, counts, _offsets(counts), dataType)


@c_function(
    "HcclResult HcclAllGatherV(void *sendBuf, uint64_t sendCount, void *recvBuf, const void *recvCounts, "
    "const void *recvDispls, HcclDataType dataType, HcclComm comm, aclrtStream stream)",
    buffers=["recvCounts", "recvDispls"],
)
def HcclAllGatherV(
    sendBuf: int, sendCount: int, recvBuf: int, recvCounts: int, recvDispls: int, dataType: int, comm: int, stream: int
) -> None:
    """Gather all ranks' buffers on every rank, each with its own length and offset."""
    call = _Call("HcclAllGatherV", comm, stream)
    counts, offsets = (
        _numbers(name, at, call.comm.size) for name, at in (("recvCounts", recvCounts), ("recvDispls", recvDispls))
    )
    _all_gather(call, sendBuf, sendCount, recvBuf, counts, offsets, dataType)


def _all_gather(
    call: _Call,
    sendBuf: int,
    sendCount: int,
    recvBuf: int,
    counts: Sequence[int],
    offsets: Sequence[int],
    dataType: int,
) -> None:
    unit = _itemsize(dataType)
    source = call.bytes_at("sendBuf", sendBuf, unit * sendCount)
    targets = call.parts_at("recvBuf", recvBuf, unit, counts, offsets)
    call.enqueue(lambda: collectives.all_gather(call.comm, call.function, source, targets))


@c_function(
    "HcclResult HcclScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root, "
    "HcclComm comm, aclrtStream stream)"
)
def HcclScatter(sendBuf: int, recvBuf: int, recvCount: int, dataType: int, root: int, comm: int, stream: int) -> None:
    """Divide the root's buffer among the ranks."""
    call = _Call("HcclScatter", comm, stream)
    nbytes = recvCount * _itemsize(dataType)
    is_root = call.comm.rank == _rank_of(call.comm, "root", root)
    source = call.bytes_at("sendBuf", sendBuf, nbytes * call.comm.size) if is_root else None
    target = call.bytes_at("recvBuf", recvBuf, nbytes)
    call.enqueue(lambda: collectives.scatter(call.comm, call.function, source, target, root))


@c_function(
    "HcclResult HcclAlltoAll(const void *sendBuf, uint64_t sendCount, HcclDataType sendType, const void *recvBuf, "
    "uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream)"
)
def HcclAlltoAll(
    sendBuf: int, sendCount: int, sendType: int, recvBuf: int, recvCount: int, recvType: int, comm: int, stream: int
) -> None:
    """Exchange parts of equal length between all pairs of ranks."""
    call = _Call("HcclAlltoAll", comm, stream)
    sends, receives = [sendCount] * call.comm.size, [recvCount] * call.comm.size
    _all_to_all(call, (sendBuf, sends, _offsets(sends), sendType), (recvBuf, receives, _offsets(receives), recvType))


@c_function(
    "HcclResult HcclAlltoAllV(const void *sendBuf, const void *sendCounts, const void *sdispls, "
    "HcclDataType sendType, const void *recvBuf, const void *recvCounts, const void *rdispls, HcclDataType recvType, "
    "HcclComm comm, aclrtStream stream)",
    buffers=["sendCounts", "sdispls", "recvCounts", "rdispls"],
)
def HcclAlltoAllV(
    sendBuf: int,
    sendCounts: int,
    sdispls: int,
    sendType: int,
    recvBuf: int,
    recvCounts: int,
    rdispls: int,
    recvType: int,
    comm: int,
    stream: int,
) -> None:
    """Exchange parts between all pairs of ranks, each with its own length and offset."""
    call = _Call("HcclAlltoAllV", comm, stream)
    size = call.comm.size
    _all_to_all(
        call,
        (sendBuf, _numbers("sendCounts", sendCounts, size), _numbers("sdispls", sdispls, size), sendType),
        (recvBuf, _numbers("recvCounts", recvCounts, size), _numbers("rdispls", rdispls, size), recvType),
    )


@c_function(
    "HcclResult HcclAlltoAllVC(const void *sendBuf, const void *sendCountMatrix, HcclDataType sendType, "
    "const void *recvBuf, HcclDataType recvType, HcclComm comm, aclrtStream stream)",
    buffers=["sendCountMatrix"],
)
def HcclAlltoAllVC(
    sendBuf: int, sendCountMatrix: int, sendType: int, recvBuf: int, recvType: int, comm: int, stream: int
) -> None:
    """Exchange parts between all pairs of ranks; the matrix holds the element count from each rank to each rank."""
    call = _Call("HcclAlltoAllVC", comm, stream)
    size, rank = call.comm.size, call.comm.rank
    matrix = _numbers("sendCountMatrix", sendCountMatrix, size * size)
    sends, receives = matrix[rank * size : (rank + 1) * size], matrix[rank::size]
    _all_to_all(call, (sendBuf, sends, _offsets(sends), sendType), (recvBuf, receives, _offsets(receives), recvType))


_Side = tuple[int, Sequence[int], Sequence[int], int]


def _all_to_all(call: _Call, sent: _Side, received: _Side) -> None:
    """Queue an exchange; each side is an address, counts, offsets and a data type."""
    (source, *send_places, send_type), (target, *receive_places, receive_type) = sent, received
    sources = call.parts_at("sendBuf", source, _itemsize(send_type, "sendType"), *send_places)
    targets = call.parts_at("recvBuf", target, _itemsize(receive_type, "recvType"), *receive_places)
    call.enqueue(lambda: collectives.all_to_all(call.comm, call.function, sources, targets))


@c_function("HcclResult HcclBarrier(HcclComm comm, aclrtStream stream)")
def HcclBarrier(comm: int, stream: int) -> None:
    """Block the stream until the streams of all ranks have reached their barriers."""
    call = _Call("HcclBarrier", comm, stream)
    call.enqueue(lambda: collectives.barrier(call.comm, call.function))


@c_function(
    "HcclResult HcclSend(void *sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm, "
    "aclrtStream stream)"
)
def HcclSend(sendBuf: int, count: int, dataType: int, destRank: int, comm: int, stream: int) -> None:
    """Send to another rank, which must receive."""
    call = _Call("HcclSend", comm, stream)
    data = call.bytes_at("sendBuf", sendBuf, count * _itemsize(dataType))
    _another(call.comm, "destRank", destRank)
    call.enqueue_messages([(destRank, data)], [])


@c_function(
    "HcclResult HcclRecv(void *recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm, "
    "aclrtStream stream)"
)
def HcclRecv(recvBuf: int, count: int, dataType: int, srcRank: int, comm: int, stream: int) -> None:
    """Receive from another rank, which must send."""
    call = _Call("HcclRecv", comm, stream)
    data = call.bytes_at("recvBuf", recvBuf, count * _itemsize(dataType))
    _another(call.comm, "srcRank", srcRank)
    call.enqueue_messages([], [(srcRank, data)])


def _another(comm: Communicator, argument: str, rank: int) -> None:
    if _rank_of(comm, argument, rank) == comm.rank:
        raise AclnnError(_PARA, f"{argument}: expected another rank than this one, got {rank}")


@c_function(
    "HcclResult HcclBatchSendRecv(HcclSendRecvItem *sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream)",
    buffers=["sendRecvInfo"],
)
def HcclBatchSendRecv(sendRecvInfo: int, itemNum: int, comm: int, stream: int) -> None:
    """Send and receive several messages at once; those between the same two ranks keep their order."""
    call = _Call("HcclBatchSendRecv", comm, stream)
    if not itemNum:
        raise AclnnError(_PARA, "itemNum: expected at least 1, got 0")
    _host("sendRecvInfo", sendRecvInfo, itemNum * ctypes.sizeof(_Item))
    both: tuple[list[Message], list[Message]] = [], []
    for item in (_Item * itemNum).from_address(sendRecvInfo):
        if item.direction not in ENUMS["HcclSendRecvType"].values():
            raise AclnnError(_PARA, f"sendRecvInfo: expected HCCL_SEND (0) or HCCL_RECV (1), got {item.direction}")
        data = call.bytes_at("sendRecvInfo", item.address or 0, item.count * _itemsize(item.data_type, "sendRecvInfo"))
        both[item.direction].append((_rank_of(call.comm, "sendRecvInfo", item.rank), data))
    call.enqueue_messages(*both)
