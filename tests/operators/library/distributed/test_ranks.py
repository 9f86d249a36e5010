"""Operators that exchange data with other ranks: how their work reaches the communicator of its group."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library, Operator
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import Executor, prepare
from aclnn.operators.library.common import MODERN, support, tensor_in, tensor_out
from aclnn.operators.library.distributed import ranks
from aclnn.runtime import devices
from aclnn.runtime.collectives import Ranks
from tests.helpers.ranks import Rank, on_devices

SIZE = 2
FP32 = 4


def _work(call: Call) -> Library:
    def everything(ranks: Ranks, self: Any) -> Any:
        received = [np.empty_like(self) for _ in range(ranks.size)]
        ranks.exchange([self * (to + 1) for to in range(ranks.size)], received)
        own = np.stack([self * (to + 1) for to in range(ranks.size)])
        return ranks.total(self), ranks.gathered(self), np.stack(received), ranks.total_of_own(own)

    return ranks.with_ranks(call, everything, ("self",), OUTPUTS)


OUTPUTS = ("total", "gathered", "received", "totalOfOwn")
OPERATOR = Operator(
    name="of_all_ranks",
    function="aclnnOfAllRanks",
    summary="All that ranks exchange.",
    formula="out = sum over ranks of self",
    parameters=(tensor_in("self", "values"), ranks.group(), *map(tensor_out, OUTPUTS)),
    support=support((D.FLOAT, D.BF16), MODERN),
    checks=(ranks.is_group(),),
    work=_work,
)


def prepared(rank: Rank, source: int, targets: list[int], group: str | None = None) -> Executor:
    """Phase one."""
    shapes = ((4,), (SIZE, 4), (SIZE, 4), (4,))
    outputs = {
        name: Tensor(D.FLOAT, shape, address=at) for name, shape, at in zip(OUTPUTS, shapes, targets, strict=True)
    }
    arguments = {"self": Tensor(D.FLOAT, (4,), address=source), "group": group or rank.name, **outputs}
    return prepare(OPERATOR, arguments)


def queue(rank: Rank, executor: Executor) -> None:
    stream = devices.stream_of(rank.stream)
    executor.run(stream=stream, memory=stream.context.device)


def placed(rank: Rank) -> tuple[int, list[int]]:
    source = rank.device(np.arange(4, dtype=np.float32) + 10 * rank.number)
    return source, [rank.device(np.zeros((SIZE, 4), np.float32)) for _ in OUTPUTS]


def expect_everything(rank: Rank, targets: list[int], offset: float = 0) -> None:
    rows = np.arange(4) + 10 * np.arange(SIZE)[:, None] + offset
    own = rank.number + 1
    for at, expected in zip(targets, (rows.sum(0), rows, own * rows, own * rows.sum(0)), strict=True):
        np.testing.assert_array_equal(rank.result(at, expected.size), expected.reshape(-1))


def test_each_rank_gets_its_results(fresh: None) -> None:
    def work(rank: Rank) -> None:
        source, targets = placed(rank)
        queue(rank, prepared(rank, source, targets))
        expect_everything(rank, targets)

    on_devices(work)


def test_work_keeps_the_order_of_its_stream_and_of_its_communicator(fresh: None) -> None:
    def work(rank: Rank) -> None:
        source, targets = placed(rank)
        _, other = cann.aclrtCreateStream()
        executor = prepared(rank, source, targets)
        executor.repeatable = True
        for _ in range(5):
            queue(rank, executor)
            counted = rank.device(np.ones(4, np.float32))
            assert cann.HcclAllReduce(counted, counted, 4, FP32, 0, rank.comm, other) == 0
        assert cann.aclrtSynchronizeStream(other) == 0, cann.aclGetRecentErrMsg()
        expect_everything(rank, targets)
        assert cann.aclrtMemsetAsync(source, 16, 0, 16, rank.stream) == 0
        queue(rank, executor)
        assert not rank.result(targets[0], 4).any()

    on_devices(work)


def test_captured_work_exchanges_whenever_its_graph_is_executed(fresh: None) -> None:
    def work(rank: Rank) -> None:
        source, targets = placed(rank)
        assert cann.aclmdlRICaptureBegin(rank.stream, 1) == 0
        queue(rank, prepared(rank, source, targets))
        status, graph = cann.aclmdlRICaptureEnd(rank.stream)
        assert status == 0
        assert not rank.result(targets[0], 4).any()
        for times in range(1, 3):
            values = np.arange(4, dtype=np.float32) + 10 * rank.number + times
            ctypes.memmove(source, values.ctypes.data, 16)
            assert cann.aclmdlRIExecuteAsync(graph, rank.stream) == 0
            expect_everything(rank, targets, times)
        assert cann.aclmdlRIDestroy(graph) == 0

    on_devices(work)


def error_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(AclnnError) as caught:
        call()
    return caught.value.code, str(caught.value)


def test_a_group_needs_a_communicator_of_this_device(fresh: None) -> None:
    def work(rank: Rank) -> None:
        source, targets = placed(rank)
        code, text = error_of(lambda: prepared(rank, source, targets, "nobody"))
        assert code == 561002
        assert "group: expected the name of a communicator with a rank on this device, got 'nobody'" in text
        executor = prepared(rank, source, targets)
        assert cann.HcclBarrier(rank.comm, rank.stream) == 0
        assert cann.aclrtSynchronizeStream(rank.stream) == 0
        assert cann.HcclCommDestroy(rank.comm) == 0
        code, text = error_of(lambda: queue(rank, executor))
        assert (code, "group: the communicator was destroyed" in text) == (361001, True)
        assert error_of(lambda: prepared(rank, source, targets))[0] == 561002

    on_devices(work)


def test_two_ranks_on_one_device_are_distinguished_from_none() -> None:
    assert cann.aclrtSetDevice(0) == 0
    buffer = ctypes.create_string_buffer(4108)
    assert cann.HcclGetRootInfo(ctypes.addressof(buffer)) == 0

    def join(number: int) -> int:
        assert cann.aclrtSetDevice(0) == 0
        status, comm = cann.HcclCommInitRootInfo(2, ctypes.addressof(buffer), number)
        assert status == 0
        return comm

    with ThreadPoolExecutor(2) as threads:
        comms = list(threads.map(join, range(2)))
    rank = Rank.of(0, comms[0], 0)
    code, text = error_of(lambda: prepared(rank, 0, [0] * 4))
    assert code == 561002
    assert "the name of its ranks 0 or 1" in text
    for comm in comms:
        assert cann.HcclCommDestroy(comm) == 0


def test_missing_calls_of_other_ranks_fail_the_stream(fresh: None) -> None:
    def work(rank: Rank) -> None:
        source, targets = placed(rank)
        if rank.number:
            assert cann.HcclBarrier(rank.comm, rank.stream) == 0
        else:
            queue(rank, prepared(rank, source, targets))
        assert cann.aclrtSynchronizeStream(rank.stream) == 507000
        assert "aclnnOfAllRanks" in (cann.aclGetRecentErrMsg() or "")
        assert cann.HcclGetCommAsyncError(rank.comm)[1] != 0

    on_devices(work)
