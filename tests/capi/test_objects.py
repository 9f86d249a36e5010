"""Tensors, scalars, arrays, lists and executors through the C names: creation, getters, setters, ends, two phases."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn import cann
from aclnn.capi.objects import FloatArray, Scalar
from aclnn.capi.prototype import FUNCTIONS
from aclnn.core import tensor
from aclnn.execution import executor as executor_module
from aclnn.operators import OPERATORS
from aclnn.runtime import handles, memory
from aclnn.support.bounded import BoundedCache
from tests.helpers.fresh_runtime import queue, recent_error, stream_behind


def create(
    dims: list[int] | None,
    count: int | None = None,
    dtype: int = 0,
    stride: list[int] | None = None,
    offset: int = 0,
    format: int = 2,
    storage: list[int] | None = None,
    storage_count: int | None = None,
    data: int | None = 0,
) -> int:
    storage = dims if storage is None and storage_count is None else storage
    return cann.aclCreateTensor(
        dims,
        len(dims or []) if count is None else count,
        dtype,
        stride,
        offset,
        format,
        storage,
        len(storage or []) if storage_count is None else storage_count,
        data,
    )


def described(handle: int) -> tuple[Any, ...]:
    """Return the results of all getters."""
    answers = [
        getter(handle)
        for getter in (
            cann.aclGetViewShape,
            cann.aclGetViewStrides,
            cann.aclGetStorageShape,
            cann.aclGetViewOffset,
            cann.aclGetDataType,
            cann.aclGetFormat,
            cann.aclGetRawTensorAddr,
        )
    ]
    assert {answer[0] for answer in answers} == {0}
    return tuple(answer[1] for answer in answers)


int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    dims=st.lists(int64, max_size=10),
    stride=st.lists(int64, min_size=10, max_size=10),
    offset=int64,
    dtype=st.integers(-5, 60),
    format=st.integers(-5, 60),
    storage=st.lists(int64, max_size=10),
    data=st.integers(0, 2**64 - 1),
)
def test_any_tensor_is_accepted_and_described_as_given(
    dims: list[int], stride: list[int], offset: int, dtype: int, format: int, storage: list[int], data: int
) -> None:
    handle = create(dims, None, dtype, stride, offset, format, storage, None, data)
    assert handle
    assert described(handle) == (dims, stride[: len(dims)], storage, offset, dtype, format, data)
    assert cann.aclGetViewShape(handle) == (0, dims, len(dims))
    assert cann.aclGetViewStrides(handle)[2] == len(dims)
    assert cann.aclGetStorageShape(handle)[2] == len(storage)
    assert cann.aclDestroyTensor(handle) == 0


def test_strides_are_contiguous_unless_given() -> None:
    assert cann.aclGetViewStrides(create([2, 3, 4])) == (0, [12, 4, 1], 3)
    assert cann.aclGetViewStrides(create([])) == (0, [], 0)


def test_arrays_are_copied_and_may_be_longer_than_counted() -> None:
    dims = [2, 3, 99]
    handle = create(dims, 2, storage=[6, 1], storage_count=1)
    dims[0] = 7
    assert described(handle)[:3] == ([2, 3], [3, 1], [6])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, 2, 0, None, 0, 2, [1], 1, 0), "viewDims: expected 2 dimensions, got null"),
        (([1], 1, 0, None, 0, 2, None, 1, 0), "storageDims: expected 1 dimensions, got null"),
    ],
)
def test_create_tensor_returns_null_only_for_missing_dimensions(
    fresh: None, arguments: tuple[Any, ...], text: str
) -> None:
    assert cann.aclCreateTensor(*arguments) == 0
    assert text in recent_error()


def test_null_dimensions_without_a_count_are_a_scalar() -> None:
    assert described(cann.aclCreateTensor(None, 0, 0, None, 0, 2, None, 0, None)) == ([], [], [], 0, 0, 2, 0)


def test_relabelling_keeps_what_is_not_given(fresh: None) -> None:
    handle = create([2, 3], dtype=1, stride=[1, 2], offset=5, format=0, storage=[6], data=0x1000)

    def init(*arguments: Any) -> int:
        return cann.aclInitTensor(handle, *arguments)

    assert init(None, 0, 27, None, 0, 2, None, 0, 0) == 0
    assert described(handle) == ([2, 3], [3, 1], [6], 0, 27, 2, 0x1000)
    assert init([9], 0, 27, None, 1, 2, [9], 0, None) == 0
    assert described(handle) == ([2, 3], [3, 1], [6], 1, 27, 2, 0x1000)
    assert init([4], 1, 0, [7], 2, 29, [5, 5], 2, 0x2000) == 0
    assert described(handle) == ([4], [7], [5, 5], 2, 0, 29, 0x2000)
    assert cann.aclInitTensor(0, [4], 1, 0, None, 0, 2, None, 0, 0) == 161001
    assert "tensor" in recent_error()


def test_the_address_can_be_replaced(fresh: None) -> None:
    handle = create([2], data=0x1000, offset=3)
    assert cann.aclSetRawTensorAddr(handle, 0x2000) == 0
    assert cann.aclGetRawTensorAddr(handle) == (0, 0x2000)
    assert cann.aclSetRawTensorAddr(handle, None) == 0
    assert cann.aclGetRawTensorAddr(handle) == (0, 0)
    assert cann.aclSetRawTensorAddr(None, 0x2000) == 161001


GETTERS = [
    cann.aclGetViewShape,
    cann.aclGetViewStrides,
    cann.aclGetStorageShape,
    cann.aclGetViewOffset,
    cann.aclGetFormat,
    cann.aclGetDataType,
    cann.aclGetRawTensorAddr,
    cann.aclGetIntArraySize,
    cann.aclGetFloatArraySize,
    cann.aclGetBoolArraySize,
    cann.aclGetTensorListSize,
    cann.aclGetScalarListSize,
]


@pytest.mark.parametrize("getter", GETTERS, ids=lambda f: f.__name__)
def test_getters_reject_null_stale_and_foreign_handles(fresh: None, getter: Callable[[Any], tuple[Any, ...]]) -> None:
    gone, foreign = create([1]), scalar(1.0)
    cann.aclDestroyTensor(gone)
    for handle, text in ((0, "null"), (None, "null"), (gone, "destroyed"), (foreign, "a live Scalar"), (7, "not a")):
        status, *values = getter(handle)
        assert status == 161001
        assert values in ([0], [[], 0])
        assert text in recent_error()


def scalar(value: float) -> int:
    number = ctypes.c_double(value)
    return cann.aclCreateScalar(ctypes.addressof(number), cann.ACL_DOUBLE)


def tensor_list() -> int:
    return cann.aclCreateTensorList([create([1])], 1)


def scalar_list() -> int:
    return cann.aclCreateScalarList([scalar(1.0)], 1)


LIVES = [
    (lambda: create([1]), cann.aclDestroyTensor),
    (lambda: scalar(2.0), cann.aclDestroyScalar),
    (lambda: cann.aclCreateIntArray([1], 1), cann.aclDestroyIntArray),
    (lambda: cann.aclCreateFloatArray([1.0], 1), cann.aclDestroyFloatArray),
    (lambda: cann.aclCreateBoolArray([True], 1), cann.aclDestroyBoolArray),
    (tensor_list, cann.aclDestroyTensorList),
    (scalar_list, cann.aclDestroyScalarList),
]


@pytest.mark.parametrize(("make", "destroy"), LIVES, ids=[destroy.__name__ for _, destroy in LIVES])
def test_destroy_rejects_null_destroyed_and_other_handles(
    fresh: None, make: Callable[[], int], destroy: Callable[[Any], int]
) -> None:
    assert destroy(0) == destroy(None) == 0
    handle = make()
    assert handle
    assert destroy(handle) == 0
    assert destroy(handle) == 161001
    assert "destroyed" in recent_error()
    others = [other() for other, its in LIVES if its is not destroy]
    for other in others:
        assert destroy(other) == 161001
        assert "a live" in recent_error()
    assert destroy(12345) == 161001


ARRAYS = [
    (cann.aclCreateIntArray, cann.aclGetIntArraySize, [3, -(2**63), 2**63 - 1]),
    (cann.aclCreateFloatArray, cann.aclGetFloatArraySize, [0.1, float("inf"), -0.0]),
    (cann.aclCreateBoolArray, cann.aclGetBoolArraySize, [True, False, 1]),
    (cann.aclCreateTensorList, cann.aclGetTensorListSize, [0, 0, 0]),
    (cann.aclCreateScalarList, cann.aclGetScalarListSize, [0, 0, 0]),
]


@pytest.mark.parametrize(("make", "size", "values"), ARRAYS, ids=[row[0].__name__ for row in ARRAYS])
def test_int_and_bool_arrays_have_the_given_length(
    make: Callable[..., int], size: Callable[..., Any], values: list[Any]
) -> None:
    assert size(make(values, 3)) == (0, 3)
    assert size(make(values, 2)) == (0, 2)
    for empty in (make(values, 0), make(None, 0), make(None, 5), make([], 0)):
        assert empty
        assert size(empty) == (0, 0)


def test_float_arrays_are_single_precision() -> None:
    held = handles.get(cann.aclCreateFloatArray([0.1], 1), FloatArray)
    assert held == (float(np.float32(0.1)),)


def test_scalars_copy_their_value(fresh: None) -> None:
    number = ctypes.c_float(1.5)
    handle = cann.aclCreateScalar(ctypes.addressof(number), cann.ACL_FLOAT)
    number.value = 2.5
    held = handles.get(handle, Scalar)
    assert held is not None
    assert np.frombuffer(held.data, np.float32)[0] == 1.5
    assert cann.aclCreateScalar(0, cann.ACL_FLOAT) == 0
    assert "value" in recent_error()


@pytest.mark.parametrize("dtype", [*cann.aclDataType, 99])
def test_scalars_have_numbers_for_values(fresh: None, dtype: int) -> None:
    """CANN's test accepts no scalar with a string."""
    number = (ctypes.c_double * 2)()
    has = dtype in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 16, 17, 27)
    assert bool(cann.aclCreateScalar(ctypes.addressof(number), dtype)) == has
    assert has or "dataType: expected one that scalars have" in recent_error()


def test_destroying_a_list_destroys_its_elements(fresh: None) -> None:
    tensors = [create([1]), create([2])]
    whole = cann.aclCreateTensorList([tensors[0], 0, tensors[1]], 3)
    assert cann.aclDestroyTensorList(whole) == 0
    for gone in tensors:
        assert cann.aclGetViewOffset(gone) == (161001, 0)
    first, second = create([1]), create([2])
    whole = cann.aclCreateTensorList([first, second], 2)
    assert cann.aclDestroyTensor(first) == 0
    assert cann.aclDestroyTensorList(whole) == 161001
    assert "which a list owns" in recent_error()
    assert cann.aclDestroyTensor(second) == 161001


def test_handles_are_never_given_out_twice() -> None:
    seen = set()
    for _ in range(1000):
        handle = create([1])
        assert handle not in seen
        seen.add(handle)
        cann.aclDestroyTensor(handle)


def test_one_of_many_threads_destroys_a_handle() -> None:
    for _ in range(50):
        handle = create([1])
        barrier = threading.Barrier(4)
        codes: list[int] = []

        def destroy(handle: int = handle, barrier: threading.Barrier = barrier, codes: list[int] = codes) -> None:
            barrier.wait()
            codes.append(cann.aclDestroyTensor(handle))

        threads = [threading.Thread(target=destroy) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, 161001, 161001, 161001]


# Two phases


def on_device(values: list[float] | np.ndarray[Any, Any]) -> tuple[int, int]:
    """Copy an array to the device; return the address and a tensor."""
    array = np.asarray(values, np.float32)
    status, address = cann.aclrtMalloc(max(array.nbytes, 1), 0)
    assert status == 0
    assert cann.aclrtMemcpy(address, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
    return address, create(list(array.shape), data=address)


def read(address: int, count: int) -> list[float]:
    array = np.zeros(count, np.float32)
    assert cann.aclrtMemcpy(array.ctypes.data, array.nbytes, address, array.nbytes, 2) == 0
    return array.tolist()


@pytest.fixture
def call(device: None) -> dict[str, int]:
    """A call of aclnnHardswishBackward on four elements: dy = 1, 2, 3, 4 and x = 6, so that dx = dy."""
    names = ("dy", "gradOutput"), ("x", "self"), ("dx", "gradInput")
    values = [1.0, 2.0, 3.0, 4.0], [6.0] * 4, [0.0] * 4
    made = [zip(pair, on_device(content), strict=True) for pair, content in zip(names, values, strict=True)]
    return {name: item for pair in made for name, item in pair}


def first_phase(call: dict[str, int]) -> tuple[int, int]:
    status, workspace_size, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(
        call["gradOutput"], call["self"], call["gradInput"]
    )
    assert status == 0, cann.aclGetRecentErrMsg()
    return workspace_size, executor


def run(executor: int, workspace_size: int = 0, workspace: int = 0, stream: int = 0) -> int:
    return cann.aclnnHardswishBackward(workspace, workspace_size, executor, stream)


def test_two_phases_compute_silu_backward(call: dict[str, int]) -> None:
    workspace_size, executor = first_phase(call)
    assert workspace_size == 0
    assert run(executor) == 0
    for name in ("gradOutput", "self", "gradInput"):
        assert cann.aclDestroyTensor(call[name]) == 0
    assert cann.aclrtSynchronizeStream(0) == 0
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]


def test_tensors_and_memory_may_be_freed_while_work_is_queued(call: dict[str, int]) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    workspace_size, executor = first_phase(call)
    assert run(executor, workspace_size, 0, stream) == 0
    for name in ("gradOutput", "self", "gradInput"):
        assert cann.aclDestroyTensor(call[name]) == 0
    for name in ("dy", "x"):
        assert cann.aclrtFree(call[name]) == 0
    assert read(call["dx"], 4) == [0.0] * 4
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]


def test_a_single_use_executor_is_rejected_when_used_again(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    assert run(executor) == 0
    assert cann.aclrtMemset(call["dx"], 16, 0, 16) == 0
    assert run(executor) == 161001
    assert "destroyed" in recent_error()
    assert read(call["dx"], 4) == [0.0] * 4


def test_second_phase_checks_come_in_a_fixed_order(call: dict[str, int]) -> None:
    assert run(0, workspace_size=8) == 161001
    assert "executor: expected a live Executor, got null" in recent_error()
    for handle, text in ((call["self"], "a live Tensor"), (55, "not a handle")):
        assert run(handle) == 161001
        assert text in recent_error()
    _, executor = first_phase(call)
    assert cann.aclnnSiluBackward(0, 0, executor, 0) == 161002
    assert "aclnnHardswishBackwardGetWorkspaceSize" in recent_error()


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_missing_workspace_destroys_the_executor(call: dict[str, int], repeatable: bool) -> None:
    _, executor = first_phase(call)
    if repeatable:
        assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    assert run(executor, workspace_size=1) == 161001
    assert "workspace: expected the address of 1 bytes, got null" in recent_error()
    assert run(executor) == 161001
    assert cann.aclDestroyAclOpExecutor(executor) == 561000
    assert read(call["dx"], 4) == [0.0] * 4


@pytest.mark.parametrize("stream", [77, "gone"])
@pytest.mark.parametrize("repeatable", [False, True])
def test_a_rejected_stream_uses_up_a_single_use_executor_only(
    call: dict[str, int], stream: int | str, repeatable: bool
) -> None:
    _, gone = cann.aclrtCreateStream()
    cann.aclrtDestroyStream(gone)
    _, executor = first_phase(call)
    if repeatable:
        assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    assert run(executor, stream=gone if stream == "gone" else 77) == 107000
    assert run(executor) == (0 if repeatable else 161001)


def test_phase_two_accepts_a_thread_without_a_context(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(executor)))
    thread.start()
    thread.join()
    assert codes == [107002]


def test_phase_two_accepts_a_stream_of_another_context(call: dict[str, int]) -> None:
    _, stream = cann.aclrtCreateStream()
    _, executor = first_phase(call)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(executor, stream=stream)))
    thread.start()
    thread.join()
    assert codes == [0]
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]


def test_repeatable_executors_use_new_addresses(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(3):
        assert cann.aclrtMemset(call["dx"], 16, 0, 16) == 0
        assert run(executor) == 0
        assert cann.aclrtSynchronizeStream(0) == 0
        assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]
    other_dy, _ = on_device([5.0, 6.0, 7.0, 8.0])
    other_dx, _ = on_device([0.0] * 4)
    assert cann.aclSetInputTensorAddr(executor, 0, call["gradOutput"], other_dy) == 0
    assert cann.AclSetOutputTensorAddr(executor, 99, call["gradInput"], other_dx) == 0
    assert run(executor) == 0
    assert cann.aclrtSynchronizeStream(0) == 0
    assert read(other_dx, 4) == [5.0, 6.0, 7.0, 8.0]
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]
    assert cann.aclDestroyAclOpExecutor(executor) == 0
    assert run(executor) == 161001


@pytest.fixture
def repeatable(call: dict[str, int]) -> int:
    """Return a repeatable executor that has run twice."""
    _, executor = first_phase(call)
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    assert run(executor) == run(executor) == 0
    return executor


@pytest.mark.parametrize("name", ["dy", "x", "dx"])
def test_a_repeatable_executor_finds_freed_memory(call: dict[str, int], repeatable: int, name: str) -> None:
    assert cann.aclrtFree(call[name]) == 0
    for _ in range(2):
        assert run(repeatable) == 107000
        assert "was freed" in recent_error()
    other, _ = on_device([7.0] * 4)
    argument = {"dy": "gradOutput", "x": "self", "dx": "gradInput"}[name]
    assert cann.aclSetTensorAddr(repeatable, 0, call[argument], other) == 0
    assert run(repeatable) == 0
    assert read(other if name == "dx" else call["dx"], 4) == ([7.0] * 4 if name == "dy" else [1.0, 2.0, 3.0, 4.0])
    assert cann.aclSetTensorAddr(repeatable, 0, call[argument], call[name]) == 0
    assert run(repeatable) == 107000


def test_a_repeatable_executor_checks_every_new_address(call: dict[str, int], repeatable: int) -> None:
    for address in (0, 16, call["dx"] + 512, call["dx"] + 1, 1 << 60):
        assert cann.aclSetTensorAddr(repeatable, 0, call["gradInput"], address) == 0
        assert run(repeatable) == 107000
        assert "out: expected live memory" in recent_error()
    assert cann.aclSetTensorAddr(repeatable, 0, call["gradInput"], call["dx"]) == 0
    assert run(repeatable) == 0


def test_a_repeatable_executor_checks_the_workspace_every_time(call: dict[str, int], repeatable: int) -> None:
    _, workspace = cann.aclrtMalloc(64, 0)
    assert run(repeatable, 64, workspace) == run(repeatable, 64, workspace) == 0
    assert run(repeatable, 65, workspace) == 107000
    assert cann.aclrtFree(workspace) == 0
    assert run(repeatable, 64, workspace) == 107000
    assert "workspace: expected live memory" in recent_error()


def test_repeatable_executors_release_freed_memory(call: dict[str, int], repeatable: int) -> None:
    allocation = memory.find(call["dx"])
    before = sys.getrefcount(allocation)
    assert cann.aclrtFree(call["dx"]) == 0
    # Neither the table nor the work that is kept for the next run holds it any longer.
    assert sys.getrefcount(allocation) == before - 2
    assert len(gc.get_referrers(allocation)) <= 1


def test_a_repeatable_executor_keeps_freed_memory_while_it_waits(call: dict[str, int], repeatable: int) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    result, _ = on_device([0.0] * 4)
    assert cann.aclrtMemset(call["dx"], 16, 0, 16) == 0
    assert run(repeatable, stream=stream) == 0
    assert cann.aclSetTensorAddr(repeatable, 0, call["gradInput"], result) == 0
    assert run(repeatable, stream=stream) == 0
    for name in ("dy", "x"):
        assert cann.aclrtFree(call[name]) == 0
    assert run(repeatable, stream=stream) == 107000
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(call["dx"], 4) == read(result, 4) == [1.0, 2.0, 3.0, 4.0]


def test_threads_run_a_repeatable_executor_while_others_free_memory(call: dict[str, int], repeatable: int) -> None:
    """Each run succeeds while its memory is live, and none afterwards, whatever else is allocated and freed."""
    ended, codes = threading.Event(), []

    def churn() -> None:
        while not ended.is_set():
            _, address = cann.aclrtMalloc(64, 0)
            assert cann.aclrtFree(address) == 0

    def work() -> None:
        _, stream = cann.aclrtCreateStream()
        codes.append([run(repeatable, stream=stream) for _ in range(2000)])
        assert cann.aclrtSynchronizeStream(stream) == 0

    def thread(target: Callable[[], None]) -> threading.Thread:
        started = threading.Thread(target=lambda: (cann.aclrtSetDevice(0), target()))
        started.start()
        return started

    churning, working = thread(churn), [thread(work) for _ in range(3)]
    for worker in working:
        worker.join()
    assert codes == [[0] * 2000] * 3
    codes.clear()
    working = [thread(work) for _ in range(3)]
    assert cann.aclrtFree(call["dx"]) == 0
    assert run(repeatable) == 107000
    for worker in working:
        worker.join()
    ended.set()
    churning.join()
    for each in codes:  # from the first rejection on there is nothing else
        assert each == sorted(each)
        assert set(each) <= {0, 107000}


def test_using_a_used_executor_reports_that_it_has_run(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    assert run(executor) == 0
    assert run(executor) == 161001
    assert "which has run, was destroyed or never existed" in recent_error()


def test_shapes_with_thousands_of_dimensions_are_abbreviated(call: dict[str, int]) -> None:
    dims = [1] * 20_000
    many = cann.aclCreateTensor(dims, len(dims), cann.ACL_FLOAT, None, 0, cann.ACL_FORMAT_ND, [1], 1, 0)
    status, *_ = cann.aclnnHardswishBackwardGetWorkspaceSize(many, many, many)
    assert status == 161002
    assert f"got 20000: [{'1, ' * 16}… 20000 in all]" in recent_error()


def test_invalid_executors_are_rejected(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    assert cann.aclDestroyAclOpExecutor(executor) == 0
    for function in (cann.aclSetAclOpExecutorRepeatable, cann.aclDestroyAclOpExecutor):
        assert function(0) == function(None) == 561103
        assert "null" in recent_error()
        assert function(executor) == 561000
        assert "destroyed" in recent_error()
        assert function(call["self"]) == 561000


SETTERS = [f"{prefix}{which}TensorAddr" for prefix in ("aclSet", "AclSet") for which in ("Input", "Output", "")]


@pytest.mark.parametrize("name", SETTERS)
def test_address_setters_check_executor_index_and_tensor(call: dict[str, int], name: str) -> None:
    setter = getattr(cann, name)
    _, executor = first_phase(call)
    assert setter(executor, 12345, call["self"], 0x3000) == 0
    assert cann.aclGetRawTensorAddr(call["self"]) == (0, 0x3000)
    assert setter(0, 0, 0, 0x4000) == 561103
    assert "tensor" in recent_error()
    # The tensor comes first: its address changes although the executor is rejected.
    assert setter(0, 0, call["self"], 0x4000) == 561103
    assert "executor" in recent_error()
    assert cann.aclGetRawTensorAddr(call["self"]) == (0, 0x4000)
    assert setter(99, 0, call["self"], None) == 561000
    assert cann.aclGetRawTensorAddr(call["self"]) == (0, 0)


@pytest.mark.parametrize("name", [name.replace("Set", "SetDynamic") for name in SETTERS])
def test_address_setters_of_lists_check_executor_indices_and_list(call: dict[str, int], name: str) -> None:
    setter = getattr(cann, name)
    _, executor = first_phase(call)
    tensors = cann.aclCreateTensorList([call["self"], 0], 2)
    assert setter(executor, 9, 0, tensors, 0x5000) == 0
    assert cann.aclGetRawTensorAddr(call["self"]) == (0, 0x5000)
    for arguments, code in (
        ((0, 9, 9, 0, 0), 561103),
        ((0, 9, 2, tensors, 0), 161002),
        ((0, 9, 1, tensors, 0), 561103),
        ((0, 9, 0, tensors, 0x6000), 561103),
    ):
        assert setter(*arguments) == code
        assert name in recent_error()
    assert cann.aclGetRawTensorAddr(call["self"]) == (0, 0x6000)


def _free(call: dict[str, int], name: str) -> None:
    assert cann.aclrtFree(call[name]) == 0


ADDRESSES = [
    ("null output", lambda c: cann.aclSetRawTensorAddr(c["gradInput"], 0), "out"),
    ("null input", lambda c: cann.aclSetRawTensorAddr(c["self"], 0), "self"),
    ("pinned input", lambda c: cann.aclSetRawTensorAddr(c["self"], cann.aclrtMallocHost(16)[1]), "self"),
    ("foreign input", lambda c: cann.aclSetRawTensorAddr(c["self"], 0x10000), "self"),
    ("input too far into its allocation", lambda c: cann.aclSetRawTensorAddr(c["self"], c["x"] + 4), "self"),
    ("input before its allocation", lambda c: cann.aclSetRawTensorAddr(c["self"], c["x"] - 4), "self"),
    ("freed input", lambda c: _free(c, "dy"), "gradOutput"),
    ("freed output", lambda c: _free(c, "dx"), "out"),
]


@pytest.mark.parametrize(("spoil", "name"), [row[1:] for row in ADDRESSES], ids=[row[0] for row in ADDRESSES])
def test_addresses_are_checked_before_anything_is_touched(
    call: dict[str, int], spoil: Callable[[dict[str, int]], Any], name: str
) -> None:
    _, executor = first_phase(call)
    spoil(call)
    assert run(executor) == 107000
    text = recent_error()
    assert f"aclnnHardswishBackward: {name}:" in text
    assert "of 16 bytes" in text
    assert cann.aclrtSynchronizeStream(0) == 0
    kept = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(call["dx"]))
    assert not kept.any()


def test_memory_of_another_device_is_rejected_also_by_an_executor_that_ran_there(call: dict[str, int]) -> None:
    _, executor = first_phase(call)
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    assert run(executor) == 0
    assert cann.aclrtSetDevice(1) == 0
    assert run(executor) == 107000
    assert "gradOutput: expected memory of the stream's device" in recent_error()
    assert cann.aclrtSetDevice(0) == 0
    assert run(executor) == 0


def test_a_view_is_checked_by_its_strides(call: dict[str, int]) -> None:
    reversed_x = create([4], stride=[-1], offset=3, data=call["x"], storage=[4])
    beyond = create([4], stride=[-1], offset=2, data=call["x"], storage=[4])
    for view, code in ((reversed_x, 0), (beyond, 107000)):
        status, _, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(call["gradOutput"], view, call["gradInput"])
        assert status == 0
        assert run(executor) == code
    assert "self" in recent_error()


def test_a_view_lies_in_the_allocation_of_its_tensors_address(call: dict[str, int]) -> None:
    _, freed = cann.aclrtMalloc(16, 0)
    assert cann.aclrtFree(freed) == 0
    for address, text in ((call["dy"], "device allocation"), (freed, "was freed"), (0, "null")):
        # Such as an offset in bytes instead of elements: it leads into other live memory.
        astray = create([4], offset=(call["x"] - address) // 4, data=address, storage=[4])
        status, _, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(call["gradOutput"], astray, call["gradInput"])
        assert status == 0
        assert run(executor) == 107000
        assert "aclnnHardswishBackward: self: expected live memory" in (rejected := recent_error())
        assert text in rejected


def test_the_workspace_is_checked(call: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_TEST_WORKSPACE_BYTES", "1024")
    monkeypatch.setattr(executor_module, "_prepared", BoundedCache())
    workspace_size, executor = first_phase(call)
    assert workspace_size == 1024
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
    _, small = cann.aclrtMalloc(1023, 0)
    _, enough = cann.aclrtMalloc(1024, 0)
    _, pinned = cann.aclrtMallocHost(1024)
    assert run(executor, 1024, small) == 107000
    assert run(executor, 1024, pinned) == 107000
    assert "workspace" in recent_error()
    assert run(executor, 1024, enough) == 0
    assert cann.aclrtFree(enough) == 0
    assert run(executor, 1024, enough) == 107000
    assert "was freed" in recent_error()
    assert run(executor, 1024, 0) == 161001


def test_a_missing_workspace_is_rejected_before_the_stream_is_looked_at(call: dict[str, int]) -> None:
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtDestroyStream(stream) == 0
    for repeatable in (False, True):
        _, executor = first_phase(call)
        if repeatable:
            assert cann.aclSetAclOpExecutorRepeatable(executor) == 0
        assert cann.aclnnHardswishBackward(0, 64, executor, stream) == 161001
        assert "workspace: expected the address of 64 bytes, got null" in recent_error()
        assert cann.aclDestroyAclOpExecutor(executor) == 561000, "it was destroyed"


def test_first_phase_rejects_stale_handles_by_name(call: dict[str, int]) -> None:
    cann.aclDestroyTensor(call["self"])
    result = cann.aclnnHardswishBackwardGetWorkspaceSize(call["gradOutput"], call["self"], call["gradInput"])
    assert result == (161001, 0, 0)
    assert "self: expected a live Tensor" in recent_error()
    assert cann.aclnnHardswishBackwardGetWorkspaceSize(call["gradOutput"], None, call["gradInput"]) == (161001, 0, 0)
    assert "self" in recent_error()


def test_empty_tensors_give_an_executor_that_does_nothing(device: None) -> None:
    empty = create([0])
    status, workspace_size, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(empty, empty, empty)
    assert (status, workspace_size) == (0, 0)
    assert run(executor) == 0
    assert run(executor) == 161001


def test_layer_norm_backward_runs_with_arrays_destroyed_between_phases(device: None) -> None:
    _, grad_out = on_device([[1.0, 2.0], [3.0, 4.0]])
    _, source = on_device([[2.0, 3.0], [4.0, 5.0]])
    _, mean = on_device([[2.5], [4.5]])
    _, rstd = on_device([[2.0], [2.0]])
    dx, grad_input = on_device([[9.0, 9.0], [9.0, 9.0]])
    db, grad_bias = on_device([9.0, 9.0])
    shape = cann.aclCreateIntArray([2], 1)
    mask = cann.aclCreateBoolArray([True, False, True], 3)
    status, workspace_size, executor = cann.aclnnLayerNormBackwardGetWorkspaceSize(
        grad_out, source, shape, mean, rstd, None, None, mask, grad_input, None, grad_bias
    )
    assert status == 0, cann.aclGetRecentErrMsg()
    assert cann.aclDestroyIntArray(shape) == cann.aclDestroyBoolArray(mask) == 0
    workspace = cann.aclrtMalloc(workspace_size, 0)[1] if workspace_size else 0
    assert cann.aclnnLayerNormBackward(workspace, workspace_size, executor, 0) == 0
    assert cann.aclrtSynchronizeStream(0) == 0
    assert read(db, 2) == [4.0, 6.0]
    # x̂ = ±1 in each row, so both projections remove the gradient wholly.
    assert read(dx, 4) == pytest.approx([0.0] * 4, abs=1e-6)


def test_a_workspace_that_overlaps_a_tensor_is_rejected(device: None) -> None:
    """A workspace that overlaps dw or db would make dx wrong."""
    x, operand = on_device(np.arange(1200.0).reshape(300, 4).tolist())
    _, mean = on_device([[1.5]] * 300)
    shape = cann.aclCreateIntArray([4], 1)
    mask = cann.aclCreateBoolArray([True, True, True], 3)
    _, memory = cann.aclrtMalloc(1 << 16, 0)
    results = [create([300, 4], data=memory), create([4], data=memory + 8192), create([4], data=memory + 12288)]

    def second(workspace: int) -> int:
        status, nbytes, executor = cann.aclnnLayerNormBackwardGetWorkspaceSize(
            operand, operand, shape, mean, mean, None, None, mask, *results
        )
        assert status == 0
        assert nbytes > 64
        return cann.aclnnLayerNormBackward(workspace, nbytes, executor, 0)

    for workspace, name in ((memory, "gradInputOut"), (memory + 8192 - 64, "gradWeightOut"), (x, "gradOut")):
        assert second(workspace) == 161002
        assert "workspace: expected memory that does not overlap the tensors, got" in (text := recent_error())
        assert f"which overlaps {name}'s [" in text
    assert second(memory + 16384) == 0
    assert cann.aclrtSynchronizeStream(0) == 0


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_operator_has_both_phases_with_the_declared_arguments(operator: Any) -> None:
    first = FUNCTIONS[f"{operator.function}GetWorkspaceSize"]
    second = FUNCTIONS[operator.function]
    assert [p.name for p in first.inputs] == [p.name for p in operator.parameters]
    assert [p.name for p in first.outputs] == ["workspaceSize", "executor"]
    assert [p.name for p in second.inputs] == ["workspace", "workspaceSize", "executor", "stream"]
    assert first.statuses.null == second.statuses.null == 161001


def test_many_threads_run_on_streams_of_their_own(call: dict[str, int]) -> None:
    """Eight threads, each with a context, a stream and tensors of its own, do not interfere."""
    failures: list[object] = []

    def work(number: int) -> None:
        try:
            _, context = cann.aclrtCreateContext(0)
            _, stream = cann.aclrtCreateStream()
            values = np.arange(64, dtype=np.float32) + number
            _, grad_output = on_device(values)
            _, x = on_device(np.full(64, 6.0))
            dx, grad_input = on_device(np.zeros(64))
            for _ in range(50):
                assert cann.aclrtMemsetAsync(dx, 256, 0, 256, stream) == 0
                status, size, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(grad_output, x, grad_input)
                assert status == 0
                assert cann.aclnnHardswishBackward(0, size, executor, stream) == 0
                assert cann.aclrtSynchronizeStream(stream) == 0
                assert read(dx, 64) == values.tolist()
            assert cann.aclrtDestroyContext(context) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_synchronization_reports_a_failed_kernel(call: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, executor = first_phase(call)
    _, stream = cann.aclrtCreateStream()
    queue(stream).enqueue(lambda: (_ for _ in ()).throw(RuntimeError("broken kernel")))
    assert run(executor, stream=stream) == 0
    assert cann.aclrtSynchronizeStream(stream) == 507000
    assert "broken kernel" in recent_error()
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]


def test_phase_two_uses_the_extents_of_phase_one(call: dict[str, int]) -> None:
    """Describing a tensor again after phase one changes its address only."""
    _, executor = first_phase(call)
    held = handles.get(call["gradInput"], tensor.Tensor)
    assert held is not None
    assert cann.aclInitTensor(call["gradInput"], [1 << 40], 1, 0, None, 7, 2, [1], 1, call["dx"]) == 0
    assert run(executor) == 0
    assert cann.aclrtSynchronizeStream(0) == 0
    assert read(call["dx"], 4) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", ["Tensor", "Scalar"])
def test_an_element_listed_twice_is_destroyed_once(kind: str) -> None:
    value = ctypes.c_float(1)
    element = create([1]) if kind == "Tensor" else cann.aclCreateScalar(ctypes.addressof(value), cann.ACL_FLOAT)
    listed = getattr(cann, f"aclCreate{kind}List")([element, element], 2)
    assert getattr(cann, f"aclDestroy{kind}List")(listed) == 0
    assert getattr(cann, f"aclDestroy{kind}")(element) == 161001
