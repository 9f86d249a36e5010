"""Collective communication in Python: ranks that are threads of this process, or processes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aclnn import cann
from aclnn.cann import HcclDataType as D
from aclnn.runtime import communicators
from aclnn.runtime.communicators import Root
from tests.helpers.ranks import Rank

SIZE = 3
DTYPES: dict[Any, np.dtype[Any]] = {
    D.HCCL_DATA_TYPE_INT8: np.dtype(np.int8),
    D.HCCL_DATA_TYPE_INT16: np.dtype(np.int16),
    D.HCCL_DATA_TYPE_INT32: np.dtype(np.int32),
    D.HCCL_DATA_TYPE_INT64: np.dtype(np.int64),
    D.HCCL_DATA_TYPE_FP16: np.dtype(np.float16),
    D.HCCL_DATA_TYPE_FP32: np.dtype(np.float32),
    D.HCCL_DATA_TYPE_BFP16: np.dtype(ml_dtypes.bfloat16),
}
FP32 = D.HCCL_DATA_TYPE_FP32


Work = Callable[[Rank], Any]


def on_ranks(work: Work, size: int = SIZE) -> list[Any]:
    """Run a function on each rank, each with a thread and a stream of its own."""
    assert cann.aclrtSetDevice(0) == 0
    info = Root().info.ljust(4108, b"\0")
    buffer = ctypes.create_string_buffer(info, 4108)

    def run(number: int) -> Any:
        assert cann.aclrtSetDevice(0) == 0
        status, comm = cann.HcclCommInitRootInfo(size, ctypes.addressof(buffer), number)
        assert status == 0, cann.aclGetRecentErrMsg()
        _, stream = cann.aclrtCreateStream()
        try:
            return work(Rank(number, comm, stream))
        finally:
            cann.aclrtDestroyStream(stream)
            cann.HcclCommDestroy(comm)

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


def host(values: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * len(values))(*values)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduce_gives_every_rank_the_same_bits(dtype: Any, size: int) -> None:
    kind = DTYPES[dtype]
    random = np.random.default_rng(0)
    data = (random.normal(size=(size, 1001)) * 9).astype(kind)
    wide = data.astype(np.float32) if kind.itemsize == 2 and kind != np.int16 else data
    wanted: dict[int, Any] = {0: wide[0], 1: wide[0], 2: wide.max(0).astype(kind), 3: wide.min(0).astype(kind)}
    for other in wide[1:]:
        wanted[0], wanted[1] = wanted[0] + other, wanted[1] * other

    def work(rank: Rank) -> None:
        for op, expected in wanted.items():
            buffer = rank.device(data[rank.number])  # in place
            assert cann.HcclAllReduce(buffer, buffer, 1001, dtype, op, rank.comm, rank.stream) == 0
            with np.errstate(over="ignore"):
                assert rank.result(buffer, 1001, kind).tobytes() == expected.astype(kind).tobytes()
            cann.aclrtFree(buffer)

    on_ranks(work, size)


def test_collectives_give_the_results_of_their_definition() -> None:
    def work(rank: Rank) -> None:
        me = rank.number
        own = np.arange(6, dtype=np.float32) + 10 * me
        everybody = [np.arange(6, dtype=np.float32) + 10 * number for number in range(SIZE)]
        total = np.sum(everybody, 0)
        source, target = rank.device(own), rank.device(np.zeros(18, np.float32))
        end = rank.comm, rank.stream

        assert cann.HcclAllGather(source, target, 6, FP32, *end) == 0
        np.testing.assert_array_equal(rank.result(target, 18), np.concatenate(everybody))

        counts, places = host([1, 2, 3]), host([12, 6, 0])
        lengths, starts = ctypes.addressof(counts), ctypes.addressof(places)
        assert cann.HcclAllGatherV(source, me + 1, target, lengths, starts, FP32, *end) == 0
        found = rank.result(target, 18)
        np.testing.assert_array_equal(found[[0, 1, 2, 6, 7, 12]], [20, 21, 22, 10, 11, 0])

        assert cann.HcclReduceScatter(source, target, 2, FP32, 0, *end) == 0
        np.testing.assert_array_equal(rank.result(target, 2), total[2 * me : 2 * me + 2])

        places = host([0, 1, 3])
        lengths, starts = ctypes.addressof(counts), ctypes.addressof(places)
        assert cann.HcclReduceScatterV(source, lengths, starts, target, me + 1, FP32, 0, *end) == 0
        np.testing.assert_array_equal(rank.result(target, me + 1), total[places[me] : places[me] + me + 1])

        assert cann.HcclReduce(source, target, 6, FP32, 0, 1, *end) == 0
        if me == 1:
            np.testing.assert_array_equal(rank.result(target, 6), total)

        assert cann.HcclScatter(source if me == 2 else 0, target, 2, FP32, 2, *end) == 0
        np.testing.assert_array_equal(rank.result(target, 2), everybody[2][2 * me : 2 * me + 2])

        assert cann.HcclAlltoAll(source, 2, FP32, target, 2, FP32, *end) == 0
        crossed = np.concatenate([each[2 * me : 2 * me + 2] for each in everybody])
        np.testing.assert_array_equal(rank.result(target, 6), crossed)

        matrix = host([1] * 3 + [2] * 3 + [0] * 3)
        assert cann.HcclAlltoAllVC(source, ctypes.addressof(matrix), FP32, target, FP32, *end) == 0
        np.testing.assert_array_equal(rank.result(target, 3), [me, 10 + 2 * me, 11 + 2 * me])

        assert cann.HcclBroadcast(source, 6, FP32, 2, *end) == 0
        np.testing.assert_array_equal(rank.result(source, 6), everybody[2])
        assert cann.HcclBarrier(*end) == 0

    on_ranks(work)


class Item(ctypes.Structure):
    _fields_ = (
        ("direction", ctypes.c_int),
        ("buf", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_uint32),
    )


def test_messages_in_batches_and_groups_do_not_wait_for_one_another() -> None:
    count = 1 << 20  # more than a connection holds

    def work(rank: Rank) -> None:
        behind, ahead = (rank.number - 1) % SIZE, (rank.number + 1) % SIZE
        source, target = rank.device(np.full(count, rank.number, np.float32)), rank.device(np.zeros(count, np.float32))
        items = (Item * 2)(Item(0, source, count, FP32, ahead), Item(1, target, count, FP32, behind))
        assert cann.HcclBatchSendRecv(ctypes.addressof(items), 2, rank.comm, rank.stream) == 0
        assert (rank.result(target, count) == behind).all()
        assert cann.HcclGroupStart() == 0
        assert cann.HcclSend(source, count, FP32, behind, rank.comm, rank.stream) == 0
        assert cann.HcclRecv(target, count, FP32, ahead, rank.comm, rank.stream) == 0
        assert cann.HcclGroupEnd() == 0
        assert (rank.result(target, count) == ahead).all()

    on_ranks(work)


def test_a_collective_keeps_the_streams_order_and_does_not_hold_up_the_host() -> None:
    def work(rank: Rank) -> None:
        buffer = rank.device(np.zeros(4, np.float32))
        if rank.number == 0:
            time.sleep(0.3)
        begun = time.monotonic()
        assert cann.aclrtMemsetAsync(buffer, 16, 0x40, 16, rank.stream) == 0
        assert cann.HcclAllReduce(buffer, buffer, 4, FP32, 0, rank.comm, rank.stream) == 0
        assert time.monotonic() - begun < 0.2
        assert (rank.result(buffer, 4) == 3 * np.frombuffer(b"@@@@", np.float32)[0]).all()

    on_ranks(work)


def test_calls_that_do_not_match_are_reported() -> None:
    def work(rank: Rank) -> str:
        buffer = rank.device(np.zeros(8, np.float32))
        if rank.number == 1:
            assert cann.HcclBroadcast(buffer, 8, FP32, 0, rank.comm, rank.stream) == 0
        else:
            assert cann.HcclBarrier(rank.comm, rank.stream) == 0
        assert cann.aclrtSynchronizeStream(rank.stream) == 507000
        assert cann.HcclGetCommAsyncError(rank.comm)[1] != 0
        assert cann.HcclBarrier(rank.comm, rank.stream) != 0
        return cann.aclGetRecentErrMsg() or ""

    texts = on_ranks(work, 2)
    assert any("got 0 bytes of HcclBarrier" in text or "got 0 of HcclBarrier" in text for text in texts), texts


def test_missing_ranks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
    buffer = ctypes.create_string_buffer(4108)
    assert cann.HcclGetRootInfo(ctypes.addressof(buffer)) == 0
    assert cann.HcclCommInitRootInfo(3, ctypes.addressof(buffer), 1) == (9, 0)
    assert "expected 3 ranks within 1 s, missing 0, 2" in (cann.aclGetRecentErrMsg() or "")


def test_a_root_without_ranks_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicators, "_TIMEOUTS_WITHOUT_RANKS", 1e-3)
    before = {*threading.enumerate()}
    Root()
    (thread,) = (thread for thread in threading.enumerate() if thread not in before and thread.name == "aclnn root")
    thread.join(30)
    assert not thread.is_alive()


def test_a_group_queues_what_it_can(device: None) -> None:
    def work(rank: Rank) -> None:
        _, gone = cann.aclrtCreateStream()
        source, target = rank.device(np.ones(4, np.float32)), rank.device(np.zeros(4, np.float32))
        assert cann.HcclGroupStart() == 0
        assert cann.HcclBroadcast(source, 4, FP32, 0, rank.comm, gone) == 0
        assert cann.HcclAllReduce(source, target, 4, FP32, 0, rank.comm, rank.stream) == 0
        assert cann.aclrtDestroyStream(gone) == 0
        assert cann.HcclGroupEnd() == 1
        assert "expected a live stream" in (cann.aclGetRecentErrMsg() or "")
        assert (rank.result(target, 4) == 1).all()

    on_ranks(work, 1)


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (lambda r, at: cann.HcclAllReduce(0, at, 4, FP32, 0, r.comm, r.stream), 2, "sendBuf: expected an address"),
        (lambda r, at: cann.HcclAllReduce(at, at, 4, 99, 0, r.comm, r.stream), 1, "dataType: expected an HcclDataType"),
        (
            lambda r, at: cann.HcclAllReduce(at, at, 4, D.HCCL_DATA_TYPE_FP64, 0, r.comm, r.stream),
            5,
            "INT64, FP16, FP32, BFP16, got 10",
        ),
        (lambda r, at: cann.HcclAllReduce(at, at, 4, FP32, 4, r.comm, r.stream), 1, "op: expected an HcclReduceOp"),
        (lambda r, at: cann.HcclAllReduce(at, at, 1 << 30, FP32, 0, r.comm, r.stream), 1, "sendBuf: "),
        (lambda r, at: cann.HcclAllReduce(at, at, 4, FP32, 0, r.comm, 0), 2, "stream: expected an address, got null"),
        (lambda r, at: cann.HcclAllReduce(at, at, 4, FP32, 0, 77, r.stream), 1, "comm: expected a live communicator"),
        (lambda r, at: cann.HcclBroadcast(at, 4, FP32, 1, r.comm, r.stream), 1, "root: expected a rank from 0 to 0"),
        (lambda r, at: cann.HcclSend(at, 4, FP32, 0, r.comm, r.stream), 1, "destRank: expected another rank"),
        (lambda r, at: cann.HcclBatchSendRecv(0, 1, r.comm, r.stream), 2, "sendRecvInfo"),
        (lambda r, at: cann.HcclGroupEnd(), 1, "expected an earlier HcclGroupStart"),
        (lambda r, at: cann.HcclCommInitRootInfo(1, 0, 0)[0], 2, "rootInfo: expected an address, got null"),
        (lambda r, at: cann.HcclCommInitRootInfo(1, 8, 0)[0], 1, "rootInfo: expected live memory"),
    ],
)
def test_invalid_calls_are_rejected(call: Callable[[Rank, int], int], code: int, text: str) -> None:
    def work(rank: Rank) -> None:
        assert call(rank, rank.device(np.zeros(4, np.float32))) == code
        assert text in (cann.aclGetRecentErrMsg() or "")

    on_ranks(work, 1)


def test_a_communicator_knows_its_rank_and_name() -> None:
    def work(rank: Rank) -> bytes:
        name = ctypes.create_string_buffer(128)
        assert cann.HcclGetRankSize(rank.comm) == (0, SIZE)
        assert cann.HcclGetRankId(rank.comm) == (0, rank.number)
        assert cann.HcclGetCommName(rank.comm, ctypes.addressof(name)) == 0
        assert cann.HcclGetCommAsyncError(rank.comm) == (0, 0)
        return name.value

    assert len({*on_ranks(work)}) == 1
    assert cann.HcclGetErrorString(2) == "empty pointer"


def test_captured_work_is_done_whenever_its_graph_is_executed() -> None:
    def work(rank: Rank) -> None:
        thread_local, one = 1, np.ones(4, np.float32)
        source, total, other = rank.device(one), rank.device(0 * one), rank.device(one)
        assert cann.aclmdlRICaptureBegin(rank.stream, thread_local) == 0
        assert cann.HcclAllReduce(source, total, 4, FP32, 0, rank.comm, rank.stream) == 0
        status, graph = cann.aclmdlRICaptureEnd(rank.stream)
        assert status == 0, cann.aclGetRecentErrMsg()
        for times in (1, 2):
            assert cann.HcclAllReduce(other, other, 4, FP32, 0, rank.comm, rank.stream) == 0
            assert rank.result(other, 4).tolist() == [SIZE**times] * 4
            assert rank.result(total, 4).tolist() == [SIZE * (times - 1)] * 4
            values = one * times
            ctypes.memmove(source, values.ctypes.data, 16)
            assert cann.aclmdlRIExecuteAsync(graph, rank.stream) == 0
            assert rank.result(total, 4).tolist() == [SIZE * times] * 4
        assert cann.aclmdlRIDestroy(graph) == 0

    on_ranks(work)


PROGRAM = """
import ctypes, os, sys, time
import numpy as np
from aclnn import cann
rank, info = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
cann.aclrtSetDevice(0)
root = ctypes.create_string_buffer(info, 4108)
_, comm = cann.HcclCommInitRootInfo(2, ctypes.addressof(root), rank)
_, stream = cann.aclrtCreateStream()
_, at = cann.aclrtMalloc(400)
assert cann.HcclBarrier(comm, stream) == 0 and cann.aclrtSynchronizeStream(stream) == 0
if rank:
    os._exit(0)
cann.HcclAllReduce(at, at, 100, 4, 0, comm, stream)
print(cann.aclrtSynchronizeStream(stream), cann.aclGetRecentErrMsg(), cann.HcclGetCommAsyncError(comm))
"""


def test_the_exit_of_another_process_is_an_error() -> None:
    root = Root()
    command = [sys.executable, "-c", PROGRAM]
    ranks = [
        subprocess.Popen([*command, str(rank), root.info.hex()], stdout=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    printed = ranks[0].communicate(timeout=60)[0]
    assert ranks[1].wait(60) == 0
    assert printed.startswith("507000 ")
    assert "HcclAllReduce: rank 0: expected rank 1 to take part" in printed
    assert printed.rstrip().endswith("(0, 21)")
