"""Executors: how often they run, with which addresses and workspace, from how many threads and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution import arrays
from aclnn.execution import executor as executors
from aclnn.execution.executor import Allocation, Executor, prepare
from aclnn.kernels.cpu import threads
from aclnn.support.bounded import BoundedCache
from tests.cases import CASE_BY_NAME, CASES
from tests.cases.table import INVALID, NULL, Case, T, changed
from tests.helpers.calls import bound, memory
from tests.helpers.guarded import Guarded

A2 = Product.ATLAS_A2
LAYER_NORM = CASE_BY_NAME["layer_norm_backward"]
BACKWARDS = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name.startswith("silu_b") or case is LAYER_NORM], ids=lambda case: case.name
)


def prepared(case: Case, rows: int = 40, columns: int = 70, seed: int = 7) -> tuple[Executor, dict[str, Any]]:
    arguments = changed(case.call(D.FLOAT), case.shaped((rows,), (columns,)))
    guarded = memory(case, arguments, np.random.default_rng(seed))
    return prepare(case.operator, bound(guarded), A2), guarded


def workspace(executor: Executor) -> np.ndarray[Any, Any]:
    buffer = np.zeros(executor.asked_bytes + 64, np.uint8)
    return buffer[-buffer.ctypes.data % 64 :][: executor.asked_bytes]


def run(executor: Executor) -> None:
    scratch = workspace(executor)
    executor.run(scratch.ctypes.data if scratch.size else 0, scratch.size)


def outputs(case: Case, guarded: dict[str, Any]) -> list[bytes]:
    return [guarded[p.name].array.tobytes() for p in case.operator.outputs]


@BACKWARDS
def test_a_single_use_executor_runs_once(case: Case) -> None:
    executor, guarded = prepared(case)
    run(executor)
    before = outputs(case, guarded)
    with pytest.raises(AclnnError) as caught:
        run(executor)
    assert caught.value.code == NULL
    text = f"{case.operator.function}: executor: already used; call aclSetAclOpExecutorRepeatable to run it again"
    assert caught.value.message == text
    assert outputs(case, guarded) == before


def test_one_of_two_threads_uses_a_single_use_executor() -> None:
    case = CASE_BY_NAME["silu_backward"]
    for _ in range(50):
        executor, _ = prepared(case, 1, 1)
        barrier, codes = threading.Barrier(4), []

        def attempt(executor: Executor = executor, barrier: Any = barrier, codes: Any = codes) -> None:
            barrier.wait()
            try:
                executor.run()
                codes.append(0)
            except AclnnError as error:
                codes.append(error.code)

        threads = [threading.Thread(target=attempt) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, NULL, NULL, NULL]


@BACKWARDS
def test_a_repeatable_executor_reads_addresses_anew(case: Case) -> None:
    executor, guarded = prepared(case)
    executor.repeatable = True
    run(executor)
    first = outputs(case, guarded)
    _, others = prepared(case, seed=8)
    expected_executor, expected = prepared(case, seed=8)
    run(expected_executor)
    for name, tensor in executor.tensors.items():
        tensor.address = others[name].tensor.address
        assert others[name].tensor.offset == tensor.offset
    run(executor)
    assert outputs(case, others) == outputs(case, expected)
    assert outputs(case, guarded) == first


def test_phase_two_uses_the_tensor_description_of_phase_one() -> None:
    case = CASE_BY_NAME["silu_backward"]
    executor, guarded = prepared(case)
    for tensor in executor.tensors.values():
        tensor.dtype, tensor.shape, tensor.strides, tensor.offset = D.DOUBLE, (9, 9), (9, 1), 10**6
    run(executor)
    expected_executor, expected = prepared(case)
    run(expected_executor)
    assert outputs(case, guarded) == outputs(case, expected)


@pytest.mark.parametrize(
    ("address", "size", "code", "text"),
    [
        (0, 0, INVALID, "workspaceSize: expected at least the "),
        (64, -1, INVALID, "workspaceSize: expected at least the "),
        (0, 10**6, NULL, "workspace: expected the address of 1000000 bytes, got null"),
        (0, 1, NULL, "workspace: expected the address of 1 bytes, got null"),
    ],
)
def test_the_workspace_is_checked(address: int, size: int, code: int, text: str) -> None:
    executor, guarded = prepared(LAYER_NORM)
    before = outputs(LAYER_NORM, guarded)
    assert executor.asked_bytes > 0
    with pytest.raises(AclnnError) as caught:
        executor.run(address, executor.asked_bytes - 1 if size < 0 else size)
    assert caught.value.code == code
    assert f"aclnnLayerNormBackward: {text}" in caught.value.message
    assert outputs(LAYER_NORM, guarded) == before


def test_a_workspace_may_start_anywhere() -> None:
    executor, guarded = prepared(LAYER_NORM)
    executor.repeatable = True
    run(executor)
    expected = outputs(LAYER_NORM, guarded)
    scratch = np.zeros(executor.asked_bytes + 200, np.uint8)
    for start in (1, 2, 4, 12, 33):
        executor.run(scratch.ctypes.data + start, executor.asked_bytes)
        assert outputs(LAYER_NORM, guarded) == expected


def test_an_environment_variable_requests_an_unneeded_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASE_BY_NAME["silu_backward"]
    assert prepared(case)[0].asked_bytes == 0
    monkeypatch.setenv("ACLNN_TEST_WORKSPACE_BYTES", "1000")
    monkeypatch.setattr(executors, "_prepared", BoundedCache())
    executor, _ = prepared(case)
    assert executor.asked_bytes == 1000
    with pytest.raises(AclnnError, match="expected at least the 1000 bytes"):
        executor.run()
    executor, _ = prepared(case)
    run(executor)
    # The empty shortcut asks for none.
    assert prepared(case, 0, 3)[0].asked_bytes == 0


@pytest.mark.parametrize("name", ["ACLNN_TEST_WORKSPACE_BYTES"])
@pytest.mark.parametrize("word", ["many", "-1", "1.5"])
def test_environment_variables_that_are_not_numbers_are_rejected(
    name: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, word)
    monkeypatch.setattr(executors, "_prepared", BoundedCache())
    with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 0, got '{word}'"):
        prepared(CASE_BY_NAME["silu_backward"])


def test_caches_of_earlier_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: BoundedCache[Any, Any] = BoundedCache()
    monkeypatch.setattr(executors, "_prepared", kept)
    monkeypatch.setattr(BoundedCache, "limit", 3)
    for rows in range(1, 11):
        run(prepared(CASE_BY_NAME["silu_backward"], rows, 2)[0])
        assert len(kept) <= 3


def test_caches_of_python_functions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: BoundedCache[Any, Any] = BoundedCache()
    monkeypatch.setattr(arrays, "_cached", kept)
    monkeypatch.setattr(BoundedCache, "limit", 3)
    for size in range(1, 11):
        aclnn.silu_backward(np.ones(size, np.float32), np.ones(size, np.float32))
        assert 1 <= len(kept) <= 3


def test_the_newer_calls_are_kept_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older half is evicted, so that the current step's calls stay."""
    monkeypatch.setattr(BoundedCache, "limit", 4)
    kept: BoundedCache[int, str] = BoundedCache()
    for key in (0, 1, 2, 3, 3, 4):
        kept[key] = ""
    assert list(kept) == [2, 3, 4]


class Rejecting:
    """Device memory without allocations."""

    tasks = BoundedCache[object, Any]()

    def resolve(self, address: int, nbytes: int, base: int) -> object:
        raise AclnnError(107000, f"expected live memory, got {nbytes} bytes at {address:#x}")


@BACKWARDS
def test_addresses_of_device_tensors_are_checked(case: Case) -> None:
    executor, guarded = prepared(case)
    before = outputs(case, guarded)
    victim = case.operator.inputs[0].name
    executor.tensors[victim].owner = None  # a device tensor
    scratch = workspace(executor)
    with pytest.raises(AclnnError) as caught:
        executor.run(scratch.ctypes.data if scratch.size else 0, scratch.size, memory=Rejecting())
    assert caught.value.code == 107000
    nbytes, begin = 40 * 70 * 4, guarded[victim].tensor.first
    text = f"{case.operator.function}: {victim}: expected live memory, got {nbytes} bytes at {begin:#x}"
    assert caught.value.message == text
    assert outputs(case, guarded) == before


@dataclass
class Range:
    """An allocation, as a range of addresses."""

    address: int
    end: int


def test_the_whole_extent_of_a_view_is_checked() -> None:
    seen: list[tuple[int, int, int]] = []

    class Recording:
        tasks = BoundedCache[object, Any]()

        def resolve(self, address: int, nbytes: int, base: int) -> Allocation:
            seen.append((address, nbytes, base))
            return Range(address, address + nbytes)

    case = CASE_BY_NAME["gelu_backward_v2"]
    views = {"gradOutput": Guarded(D.FLOAT, (4, 5), (-10, 2)), "self": Guarded(D.FLOAT16, (5,), (0,))}
    views["gradInput"] = Guarded(D.FLOAT, (4, 5), (1, -4))
    tensors = {name: view.fill(np.ones(())).tensor for name, view in views.items()}
    for tensor in tensors.values():
        tensor.owner = None
    prepare(case.operator, {**tensors, "approximate": "none"}, A2).run(memory=Recording())
    dy, x, dx = (tensors[name] for name in ("gradOutput", "self", "gradInput"))
    assert seen == [
        (dy.first - 30 * 4, (30 + 8 + 1) * 4, dy.address),
        (x.first, 2, x.address),
        (dx.first - 16 * 4, (16 + 3 + 1) * 4, dx.address),
    ]


@BACKWARDS
def test_many_threads_run_one_executor(case: Case) -> None:
    executor, guarded = prepared(case, 300, 257)
    executor.repeatable = True
    run(executor)
    expected = outputs(case, guarded)
    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(run, executor) for _ in range(64)]:
            future.result()
    assert outputs(case, guarded) == expected


def test_many_threads_prepare_and_run_their_own() -> None:
    def work(seed: int) -> None:
        for case in (CASE_BY_NAME["silu_backward"], LAYER_NORM):
            for rows, columns in ((3, 5), (200, 300)):
                first, actual = prepared(case, rows, columns, seed)
                run(first)
                again, other = prepared(case, rows, columns, seed)
                run(again)
                assert outputs(case, actual) == outputs(case, other)

    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(work, seed) for seed in range(24)]:
            future.result()


@BACKWARDS
def test_the_number_of_threads_changes_no_bit(case: Case) -> None:
    before = threads.shared().threads
    results = []
    try:
        for count in (1, 2, 5):
            threads.set_threads(count)
            executor, guarded = prepared(case, 1500, 130)
            run(executor)
            results.append(outputs(case, guarded))
    finally:
        threads.set_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_executors() -> None:
    program = """
import os, signal
import numpy as np
import aclnn
x = np.linspace(-9, 9, 1_000_000, dtype=np.float32)
expected = aclnn.silu_backward(x, x).tobytes()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if aclnn.silu_backward(x, x).tobytes() == expected else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), aclnn.silu_backward(x, x).tobytes() == expected)
"""
    environment = os.environ | {"ACLNN_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "0 True\n", done.stderr


@pytest.mark.parametrize("columns", [5, 300, 700])
def test_a_rows_gradient_depends_on_no_other_row_and_no_layout(columns: int) -> None:
    many, guarded = prepared(LAYER_NORM, 300, columns)
    run(many)
    whole = guarded["gradInputOut"].array
    for row in (0, 1, 150, 299):
        arguments = changed(LAYER_NORM.call(D.FLOAT), LAYER_NORM.shaped((1,), (columns,)))
        alone: dict[str, Any] = dict(arguments)
        for name, value in arguments.items():
            if isinstance(value, T):
                strides = tuple(3 * step for step in Tensor(value.dtype, value.shape).strides)
                alone[name] = view = Guarded(value.dtype, value.shape, strides)
                if name in {p.name for p in LAYER_NORM.operator.inputs}:
                    shared = guarded[name].array
                    view.fill(shared if shared.shape == value.shape else shared[row : row + 1])
        run(prepare(LAYER_NORM.operator, bound(alone), A2))
        assert alone["gradInputOut"].array.tobytes() == whole[row].tobytes()
