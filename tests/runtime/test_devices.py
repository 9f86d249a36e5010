"""Start and stop, devices, contexts, error texts and the small helpers: every row of their tables."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn import cann
from aclnn.capi.prototype import FUNCTIONS, call_of
from aclnn.core import products
from aclnn.core.dtypes import DataType
from aclnn.core.status import CODES
from aclnn.runtime import arena, devices, handles
from tests.helpers.fresh_runtime import pass_gate, queue, recent_error


def in_thread(work: Callable[[], Any]) -> Any:
    """Return the result of a call in a new thread, which has no current context."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("path", [None, ""])
def test_acl_init_counts_its_users(fresh: None, path: str | None) -> None:
    assert cann.aclInit(path) == 0
    assert cann.aclInit(path) == 100002
    assert "2 users" in recent_error()
    assert cann.aclInit(path) == 100002
    assert cann.aclFinalizeReference() == (0, 2)
    assert cann.aclFinalize() == 0
    assert cann.aclFinalize() == 100037
    assert cann.aclFinalizeReference() == (100037, 0)
    assert cann.aclInit(path) == 0
    assert cann.aclFinalizeReference() == (0, 0)
    assert cann.aclFinalizeReference() == (100037, 0)
    assert cann.aclFinalize() == 100037


def test_finalize_without_init_is_rejected(fresh: None) -> None:
    assert cann.aclFinalize() == 0
    assert cann.aclFinalize() == 0
    assert cann.aclFinalizeReference() == (100037, 0)
    assert "aclFinalizeReference" in recent_error()


def test_acl_init_checks_its_configuration_file(fresh: None, tmp_path: Path) -> None:
    first, same, other, broken, listed = (tmp_path / name for name in "abcde")
    first.write_text('{"dump": {}}')
    same.write_text('{ "dump" : {} }')
    other.write_text('{"dump": 1}')
    broken.write_text('{"dump":')
    listed.write_text("[]")
    assert cann.aclInit(str(tmp_path / "absent")) == 100003
    assert "absent" in recent_error()
    assert cann.aclInit(str(tmp_path)) == 100003
    assert cann.aclInit(os.fsencode(tmp_path) + b"/\xff") == 100003
    for path in (broken, listed):
        assert cann.aclInit(str(path)) == 100006
        assert "JSON object" in recent_error()
    assert cann.aclInit(str(first)) == 0
    assert cann.aclInit(str(other)) == 100002
    assert cann.aclFinalize() == 0
    assert cann.aclInit(str(other)) == 100000
    assert cann.aclInit(None) == 100000
    assert "first aclInit" in recent_error()
    assert cann.aclInit(str(same)) == 0


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_reading_a_configuration_that_is_not_a_regular_file_does_not_block(
    fresh: None, tmp_path: Path, kind: str
) -> None:
    """Reading a pipe would block, and /dev/zero would fill memory."""
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    assert cann.aclInit(str(path)) == 100003
    assert "not a regular file" in recent_error()


def test_a_configuration_that_is_too_long_is_not_read(fresh: None, tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text(" " * (1 << 20) + "{}")
    assert cann.aclInit(str(path)) == 100003
    assert "longer than 1048576 bytes" in recent_error()


def test_a_configuration_nested_too_deeply_cannot_be_parsed(fresh: None, tmp_path: Path) -> None:
    """Deep nesting is a parse error, not a RecursionError (status 500000 in C)."""
    path = tmp_path / "deep.json"
    path.write_text('{"a":' * 100_000 + "0" + "}" * 100_000)
    assert cann.aclInit(str(path)) == 100006
    assert "configPath: expected a JSON object" in recent_error()


def test_aclnn_init_and_acl_init_are_counted_together(fresh: None, tmp_path: Path) -> None:
    configuration = tmp_path / "acl.json"
    configuration.write_text("{}")
    assert cann.aclnnInit(None) == cann.aclnnInit(str(configuration)) == 0
    assert cann.aclInit(None) == 0
    assert cann.aclnnFinalize() == cann.aclFinalize() == 0


def test_runtime_calls_do_not_need_init(fresh: None) -> None:
    assert cann.aclrtGetDeviceCount() == (0, 2)
    assert cann.aclrtGetRunMode() == (0, cann.ACL_HOST)
    assert cann.aclrtGetVersion() == (0, 1, 17, 0)
    assert cann.aclrtGetSocName() == "Ascend910B2"
    assert cann.aclrtSetDevice(0) == 0


@pytest.mark.parametrize("begin", [cann.aclInit, lambda: cann.aclrtSetDevice(0)], ids=["init", "device"])
def test_an_unknown_product_is_rejected_where_a_program_begins(
    fresh: None, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], int]
) -> None:
    """aclInit and aclrtSetDevice must fail, rather than aclrtGetSocName and operators later."""
    monkeypatch.setattr(products, "_selected", None)
    monkeypatch.setenv("ACLNN_SOC_NAME", "Ascend910X")
    assert begin() == 507008
    assert "Ascend910B2 (Atlas A2)" in (text := recent_error())
    assert "got 'Ascend910X'" in text
    monkeypatch.setenv("ACLNN_SOC_NAME", "Ascend310P3")
    assert begin() == 0


@pytest.mark.parametrize("number", [-1, 2, 100, -(2**31)])
@pytest.mark.parametrize(
    "call",
    [cann.aclrtSetDevice, cann.aclrtResetDevice, cann.aclrtResetDeviceForce, lambda n: cann.aclrtCreateContext(n)[0]],
)
def test_device_numbers_out_of_range_are_rejected(fresh: None, call: Callable[[int], int], number: int) -> None:
    assert call(number) == 107001
    assert "from 0 to 1" in recent_error()


def test_set_device_and_reset_device_are_counted(fresh: None) -> None:
    assert cann.aclrtResetDevice(0) == 507007
    assert "not" in recent_error()
    assert cann.aclrtResetDeviceForce(0) == 507007
    assert cann.aclrtSetDevice(0) == cann.aclrtSetDevice(0) == 0
    assert cann.aclrtGetDevice() == (0, 0)
    assert cann.aclrtResetDevice(0) == 0
    assert cann.aclrtGetDevice() == (0, 0)
    assert cann.aclrtResetDevice(0) == 0
    recent_error()
    assert cann.aclrtGetDevice() == (107002, 0)
    assert cann.aclGetRecentErrMsg() is None, "torch_npu probes for a device before its first call, and shows all texts"
    assert cann.aclrtPeekAtLastError(0) == 107002
    assert cann.aclrtResetDevice(0) == 507007
    for _ in range(3):
        cann.aclrtSetDevice(1)
    assert cann.aclrtGetDevice() == (0, 1)
    assert cann.aclrtResetDeviceForce(1) == 0
    assert cann.aclrtGetDevice() == (107002, 0)
    assert cann.aclrtResetDevice(1) == 507007


def test_the_last_reset_waits_and_releases(device: None) -> None:
    gate, done = threading.Event(), []
    _, stream = cann.aclrtCreateStream()
    for queued in (queue(stream), devices.current().default_stream):
        queued.enqueue(lambda: pass_gate(gate))
        queued.enqueue(lambda: done.append(1))
    threading.Timer(0.02, gate.set).start()
    assert cann.aclrtResetDevice(0) == 0
    assert done == [1, 1]
    assert cann.aclrtSetDevice(0) == 0
    assert cann.aclrtDestroyStream(stream) == 107000


def test_default_context_is_shared_by_threads(device: None) -> None:
    _, context = cann.aclrtGetCurrentContext()

    def other() -> tuple[Any, ...]:
        before = cann.aclrtGetCurrentContext()
        cann.aclrtSetDevice(0)
        return before, cann.aclrtGetCurrentContext()

    assert in_thread(other) == ((107002, 0), (0, context))
    # Two threads set it: one reset does not end it.
    assert cann.aclrtResetDevice(0) == 0
    assert cann.aclrtGetCurrentContext() == (0, context)


def test_contexts_are_the_threads_own(device: None) -> None:
    _, default = cann.aclrtGetCurrentContext()
    status, context = cann.aclrtCreateContext(1)
    assert status == 0
    assert cann.aclrtGetCurrentContext() == (0, context)
    assert cann.aclrtGetDevice() == (0, 1)
    assert in_thread(cann.aclrtGetDevice) == (107002, 0)
    assert in_thread(lambda: (cann.aclrtSetCurrentContext(context), cann.aclrtGetDevice())) == (0, (0, 1))
    assert cann.aclrtSetCurrentContext(default) == 0
    assert cann.aclrtGetDevice() == (0, 0)
    assert cann.aclrtSetCurrentContext(context) == 0
    # Setting a device drops the explicit context.
    assert cann.aclrtSetDevice(0) == 0
    assert cann.aclrtGetCurrentContext() == (0, default)
    assert cann.aclrtDestroyContext(context) == 0


def test_destroying_the_current_context_leaves_the_thread_without_one(fresh: None) -> None:
    _, context = cann.aclrtCreateContext(0)
    assert cann.aclrtDestroyContext(context) == 0
    assert cann.aclrtGetCurrentContext() == (107002, 0)
    assert cann.aclrtSetDevice(1) == 0
    _, context = cann.aclrtCreateContext(0)
    assert cann.aclrtDestroyContext(context) == 0
    assert cann.aclrtGetDevice() == (0, 1)


def test_a_context_destroyed_by_another_thread_is_not_current(device: None) -> None:
    _, context = cann.aclrtCreateContext(0)
    assert in_thread(lambda: cann.aclrtDestroyContext(context)) == 0
    assert cann.aclrtGetCurrentContext() == (107002, 0)
    assert cann.aclrtCreateStream() == (107002, 0)


def test_destroyed_and_foreign_contexts_are_rejected(device: None) -> None:
    _, default = cann.aclrtGetCurrentContext()
    _, gone = cann.aclrtCreateContext(0)
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtDestroyContext(gone) == 0
    rows = [
        (0, 100000, 100000, "null"),
        (None, 100000, 100000, "null"),
        (gone, 107002, 107000, "destroyed"),
        (stream, 107002, 107000, "destroyed"),
        (123, 107002, 107000, "not a handle"),
    ]
    for handle, destroyed, current, text in rows:
        assert cann.aclrtDestroyContext(handle) == destroyed
        assert text in recent_error()
        assert cann.aclrtSetCurrentContext(handle) == current
        assert text in recent_error()
    assert cann.aclrtDestroyContext(default) == 107002
    assert "default context" in recent_error()
    assert cann.aclrtSetCurrentContext(default) == 0


def test_a_context_being_destroyed_is_rejected(device: None) -> None:
    _, context = cann.aclrtCreateContext(0)
    _, stream = cann.aclrtCreateStream()
    gate, running = threading.Event(), threading.Event()
    queue(stream).enqueue(lambda: (running.set(), pass_gate(gate)))
    assert cann.aclrtSetDevice(0) == 0
    codes: list[int] = []
    destroyer = threading.Thread(target=lambda: codes.append(cann.aclrtDestroyContext(context)))
    destroyer.start()
    assert running.wait(10)
    found = handles.get(context, devices.Context)
    assert found is not None
    while found.life is devices._Life.LIVE:
        pass
    assert cann.aclrtDestroyContext(context) == 507007
    assert "another thread" in recent_error()
    assert cann.aclrtSetCurrentContext(context) == 107000
    gate.set()
    destroyer.join()
    assert codes == [0]
    assert cann.aclrtDestroyContext(context) == 107002


def test_explicit_contexts_outlive_the_reset(device: None) -> None:
    _, context = cann.aclrtCreateContext(0)
    assert cann.aclrtResetDevice(0) == 0
    assert cann.aclrtGetCurrentContext() == (0, context)
    assert cann.aclrtCreateStream()[0] == 0
    assert cann.aclrtDestroyContext(context) == 0


def test_synchronize_device_waits_for_every_context(device: None) -> None:
    gate, done = threading.Event(), []
    _, first = cann.aclrtCreateStream()
    _, context = cann.aclrtCreateContext(0)
    _, second = cann.aclrtCreateStream()
    for stream in (first, second):
        queue(stream).enqueue(lambda: pass_gate(gate))
        queue(stream).enqueue(lambda: done.append(1))
    threading.Timer(0.02, gate.set).start()
    assert cann.aclrtSynchronizeDevice() == 0
    assert done == [1, 1]
    assert cann.aclrtDestroyContext(context) == 0


def test_error_texts_are_the_threads_own_newest_first_and_read_once(fresh: None) -> None:
    assert cann.aclGetRecentErrMsg() is None
    assert cann.aclrtSetDevice(-5) == 107001
    assert cann.aclrtFree(0) == 100000
    assert in_thread(cann.aclGetRecentErrMsg) is None
    text = cann.aclGetRecentErrMsg()
    assert [line.split(":")[0] for line in text.splitlines()] == ["aclrtFree", "aclrtSetDevice"]
    assert "got -5" in text
    assert cann.aclGetRecentErrMsg() is None


def test_last_error_is_kept_per_thread(fresh: None) -> None:
    assert cann.aclrtPeekAtLastError(0) == cann.aclrtGetLastError(0) == 0
    assert cann.aclrtFree(0) == 100000
    assert cann.aclrtSetDevice(9) == 107001
    assert in_thread(lambda: cann.aclrtPeekAtLastError(0)) == 0
    assert cann.aclrtPeekAtLastError(cann.ACL_RT_THREAD_LEVEL) == 107001
    assert cann.aclrtGetLastError(0) == 107001
    assert cann.aclrtGetLastError(0) == 0
    for level in (1, -1):
        assert cann.aclrtGetLastError(level) == 100000
        assert cann.aclrtPeekAtLastError(level) == 100000


def test_texts_of_a_thread_that_never_asks_do_not_pile_up(fresh: None) -> None:
    for _ in range(1000):
        cann.aclrtFree(0)
    assert len(cann.aclGetRecentErrMsg().splitlines()) == 64


def test_threads_whose_first_calls_meet_count_the_same_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowDevice(devices.Device):
        def __init__(self, number: int) -> None:
            time.sleep(0.02)
            super().__init__(number)

    monkeypatch.setattr(devices, "Device", SlowDevice)
    monkeypatch.setattr(devices._process, "current", devices._Process())
    together = threading.Barrier(8)

    def first_call() -> None:
        together.wait()
        devices.set_device(0)

    threads = [threading.Thread(target=first_call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert devices._process.current.devices[0].count == 8
    for _ in threads:
        devices.reset_device(0)


def test_more_devices_than_memory_has_room_for_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """10^9 devices would take all memory, or hours."""
    monkeypatch.setattr(devices._process, "current", devices._Process())
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", "1000000000")
    with pytest.raises(ValueError, match="ACLNN_DEVICE_COUNT: expected an integer from 1 to 1024, got '1000000000'"):
        devices.device_count()
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", "1024")
    assert devices.device_count() == 1024


def test_each_of_torchruns_processes_finds_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for setting, count in (("", 3), ("2", 2)):
        monkeypatch.setattr(devices._process, "current", devices._Process())
        monkeypatch.setenv("ACLNN_DEVICE_COUNT", setting)
        assert devices.device_count() == count


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5"])
def test_invalid_device_variables_are_rejected(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ACLNN_DEVICE_COUNT", text)
    monkeypatch.setenv("ACLNN_MEMORY_BYTES", text)
    monkeypatch.setattr(devices._process, "current", devices._Process())
    with pytest.raises(ValueError, match=f"ACLNN_DEVICE_COUNT: expected .*, got '{text}'"):
        devices.device_count()
    with pytest.raises(ValueError, match=f"ACLNN_MEMORY_BYTES: expected .*, got '{text}'"):
        arena.memory_bytes()


def test_saturation_is_not_offered(fresh: None) -> None:
    assert cann.aclrtGetDeviceSatMode() == (0, cann.ACL_RT_OVERFLOW_MODE_INFNAN)
    assert cann.aclrtSetDeviceSatMode(cann.ACL_RT_OVERFLOW_MODE_INFNAN) == 0
    assert cann.aclrtSetDeviceSatMode(cann.ACL_RT_OVERFLOW_MODE_SATURATION) == 207000
    assert cann.aclrtSetDeviceSatMode(7) == 107000


SIZES = {
    -1: 0,
    0: 4,
    1: 2,
    2: 1,
    3: 4,
    4: 1,
    6: 2,
    7: 2,
    8: 4,
    9: 8,
    10: 8,
    11: 8,
    12: 1,
    13: 0,
    16: 8,
    17: 16,
    27: 2,
    29: 1,
    30: 1,
    33: 4,
    34: 1,
    35: 1,
    36: 1,
    37: 1,
    38: 8,
    39: 8,
    40: 8,
    41: 8,
    5: 8,
    14: 8,
    28: 8,
    999: 8,
    -7: 8,
}


def test_data_type_sizes_are_canns(fresh: None) -> None:
    assert {number: cann.aclDataTypeSize(number) for number in SIZES} == SIZES
    assert {int(member) for member in DataType} <= set(SIZES)


@given(st.integers(0, 2**16 - 1))
def test_float16_converts_to_float(bits: int) -> None:
    value = cann.aclFloat16ToFloat(bits)
    expected = float(np.array(bits, np.uint16).view(np.float16))
    if np.isfinite(expected):
        assert value == expected
        assert np.signbit(value) == np.signbit(expected)
    else:
        assert abs(value) == 65536 * (1 + (bits & 1023) / 1024)


@pytest.mark.parametrize(
    ("bits", "value"), [(0x7C00, 65536.0), (0xFC00, -65536.0), (0x7E00, 98304.0), (0x8000, -0.0), (0x0001, 2.0**-24)]
)
def test_float16_converts_to_float_at_the_edges(bits: int, value: float) -> None:
    assert str(cann.aclFloat16ToFloat(bits)) == str(value)


@given(st.floats(width=32))
def test_float_converts_to_float16(value: float) -> None:
    with np.errstate(over="ignore"):
        rounded = np.float32(value).astype(np.float16)
    expected = int(rounded.view(np.uint16))
    if not np.isfinite(rounded):
        expected = 0xFBFF if value < 0 else 0x7BFF
    assert cann.aclFloatToFloat16(value) == expected


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (float("inf"), 0x7BFF),
        (float("nan"), 0x7BFF),
        (float("-inf"), 0xFBFF),
        (65519.0, 0x7BFF),
        (65520.0, 0x7BFF),
        (-1e300, 0xFBFF),
        (1e300, 0x7BFF),
        (-0.0, 0x8000),
        (1.0, 0x3C00),
        (5.0e-8, 1),
    ],
)
def test_float_converts_to_float16_at_the_edges(value: float, bits: int) -> None:
    assert cann.aclFloatToFloat16(value) == bits


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: cann.aclrtMalloc("x", 0), TypeError, "aclrtMalloc: size: expected size_t, got 'x'"),
        (lambda: cann.aclrtMalloc(-1, 0), ValueError, "aclrtMalloc: size: expected size_t, got -1"),
        (lambda: cann.aclrtMalloc(2**64, 0), ValueError, "size: expected size_t"),
        (lambda: cann.aclrtMalloc(1.5, 0), TypeError, "size: expected size_t, got 1.5"),
        (lambda: cann.aclrtSetDevice(2**31), ValueError, "deviceId: expected int32_t"),
        (lambda: cann.aclrtFree("p"), TypeError, "devPtr: expected void\\*"),
        (lambda: cann.aclInit(7), TypeError, "configPath: expected const char\\*, got 7"),
        (lambda: cann.aclrtMemset(1, 2), TypeError, "aclrtMemset: missing a required argument: 'value'"),
        (lambda: cann.aclrtSetDevice(0, 1), TypeError, "aclrtSetDevice: too many"),
        (
            lambda: cann.aclCreateIntArray([1, 2], 3),
            ValueError,
            "size: expected from 0 to the 2 elements of value, got 3",
        ),
        (
            lambda: cann.aclCreateTensorDesc(0, -1, [2], 2),
            ValueError,
            "numDims: expected from 0 to the 1 elements of dims",
        ),
        (lambda: cann.aclFloatToFloat16(10**400), ValueError, "value: expected float, got 1000"),
        (lambda: cann.aclCreateIntArray([1, "a"], 2), TypeError, "value: expected const int64_t\\*"),
        (lambda: cann.aclCreateIntArray("12", 2), TypeError, "value: expected const int64_t\\*"),
    ],
)
def test_arguments_that_c_cannot_express_are_rejected(
    fresh: None, call: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


def test_keywords_and_numpy_integers_are_accepted(device: None) -> None:
    status, address = cann.aclrtMalloc(policy=0, size=np.int64(10))
    assert status == 0
    assert cann.aclrtFree(devPtr=np.uint64(address)) == 0


def test_the_table_of_functions_is_complete() -> None:
    """The table has all functions of the interface, all names are exported, and calls return statuses."""
    assert set(FUNCTIONS) <= set(cann.__all__)
    for name in SYMBOLS.split():
        assert name in FUNCTIONS, name
    for record in FUNCTIONS.values():
        assert record.returns_status == (record.returns in ("aclError", "aclnnStatus", "HcclResult")), record.name
        assert record.returns_status or not record.outputs, record.name
        assert call_of(record.name).__name__ == record.name
    assert cann.ACLNN_ERR_INNER_KEY_CONFILICT == cann.ACLNN_ERR_INNER_KEY_CONFLICT == 561105
    assert all(getattr(cann, name) == number for name, number in CODES.items())


SYMBOLS = """
aclInit aclFinalize aclFinalizeReference aclnnInit aclnnFinalize aclrtGetDeviceCount aclrtSetDevice aclrtResetDevice
aclrtResetDeviceForce aclrtGetDevice aclrtGetRunMode aclrtSynchronizeDevice aclrtGetSocName aclrtGetVersion
aclrtCreateContext aclrtDestroyContext aclrtSetCurrentContext aclrtGetCurrentContext aclrtCreateStream
aclrtCreateStreamWithConfig aclrtDestroyStream aclrtDestroyStreamForce aclrtSynchronizeStream
aclrtSynchronizeStreamWithTimeout aclrtStreamQuery aclrtCreateEvent aclrtCreateEventWithFlag
aclrtCreateEventExWithFlag aclrtRecordEvent aclrtStreamWaitEvent aclrtResetEvent aclrtDestroyEvent
aclrtSynchronizeEvent aclrtSynchronizeEventWithTimeout aclrtQueryEventStatus aclrtQueryEvent aclrtEventElapsedTime
aclrtMalloc aclrtMallocAlign32 aclrtMallocCached aclrtFree aclrtMallocHost aclrtFreeHost aclrtMemcpy aclrtMemcpyAsync
aclrtMemset aclrtMemsetAsync aclrtGetMemInfo aclrtMemFlush aclrtMemInvalidate aclGetRecentErrMsg aclrtGetLastError
aclrtPeekAtLastError aclDataTypeSize aclFloat16ToFloat aclFloatToFloat16 aclCreateTensor aclDestroyTensor
aclGetViewShape aclGetViewStrides aclGetStorageShape aclGetViewOffset aclGetFormat aclGetDataType aclGetRawTensorAddr
aclSetRawTensorAddr aclInitTensor aclCreateScalar aclCreateIntArray aclCreateFloatArray aclCreateBoolArray
aclCreateTensorList aclCreateScalarList aclDestroyScalar aclDestroyIntArray aclDestroyFloatArray aclDestroyBoolArray
aclDestroyTensorList aclDestroyScalarList aclGetIntArraySize aclGetFloatArraySize aclGetBoolArraySize
aclGetTensorListSize aclGetScalarListSize aclSetAclOpExecutorRepeatable aclDestroyAclOpExecutor aclSetInputTensorAddr
aclSetOutputTensorAddr aclSetTensorAddr aclSetDynamicInputTensorAddr aclSetDynamicOutputTensorAddr
aclSetDynamicTensorAddr AclSetInputTensorAddr AclSetOutputTensorAddr AclSetTensorAddr AclSetDynamicInputTensorAddr
AclSetDynamicOutputTensorAddr AclSetDynamicTensorAddr aclnnFastGeluBackward aclnnFastGeluBackwardGetWorkspaceSize
aclnnSiluBackward aclnnSiluBackwardGetWorkspaceSize aclnnGeluBackwardV2 aclnnGeluBackwardV2GetWorkspaceSize
aclnnHardswishBackward aclnnHardswishBackwardGetWorkspaceSize aclnnLayerNormBackward
aclnnLayerNormBackwardGetWorkspaceSize
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ACL_MEMCPY_DEVICE_TO_HOST", 2),
        ("ACL_MEMCPY_INTER_DEVICE_TO_DEVICE", 7),
        ("ACL_MEM_MALLOC_HUGE1G_ONLY_P2P", 7),
        ("ACL_MEM_ACCESS_USER_SPACE_READONLY", 0x100000),
        ("ACL_MEM_P2P_HUGE1G", 17),
        ("ACL_EVENT_RECORDED_STATUS_NOT_READY", 0),
        ("ACL_EVENT_STATUS_NOT_READY", 1),
        ("ACL_EVENT_WAIT_STATUS_RESERVED", 0xFFFF),
        ("ACL_STREAM_STATUS_RESERVED", 0xFFFF),
        ("ACL_STREAM_DEVICE_USE_ONLY", 0x20),
        ("ACL_OPT_ENABLE_KERNEL_EARLY_START", 3),
        ("ACL_WARNING", 2),
        ("ACL_MEMTYPE_HOST", 1),
        ("ACL_BF16", 27),
        ("ACL_FORMAT_FRACTAL_NZ", 29),
        ("ACL_FRACTAL_Z_3D", 33),
        ("ACL_ERROR_RT_STREAM_SYNC_TIMEOUT", 507046),
        ("ACL_ERROR_HOST_MEMORY_NOT_REGISTERED", 507911),
    ],
)
def test_constants_have_canns_numbers(name: str, number: int) -> None:
    assert getattr(cann, name) == number
