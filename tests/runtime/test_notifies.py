"""Notifies, notifies that count, and values in memory that streams wait for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest

from aclnn import cann
from aclnn.core.products import set_soc_name
from tests.helpers.fresh_runtime import queue, recent_error, stream_behind


@pytest.fixture
def counts(device: None) -> Iterator[None]:
    before = cann.aclrtGetSocName()
    set_soc_name("Ascend950DT_9571")
    yield
    set_soc_name(before)


def notify() -> int:
    status, handle = cann.aclrtCreateNotify(0)
    assert status == 0
    return handle


def counter() -> int:
    status, handle = cann.aclrtCntNotifyCreate(0)
    assert status == 0
    return handle


def word(value: int = 0) -> int:
    status, address = cann.aclrtMalloc(64, 0)
    assert status == 0
    ctypes.c_uint64.from_address(address).value = value
    return address


def is_stuck(stream: int) -> bool:
    return cann.aclrtSynchronizeStreamWithTimeout(stream, 30) == 507046


def test_a_stream_waits_until_another_sets_a_notify_which_resets_it(device: None) -> None:
    gate, set_once = threading.Event(), notify()
    setter, (_, waiter) = stream_behind(gate), cann.aclrtCreateStream()
    assert cann.aclrtRecordNotify(set_once, setter) == cann.aclrtWaitAndResetNotify(set_once, waiter, 0) == 0
    assert is_stuck(waiter)
    gate.set()
    assert cann.aclrtSynchronizeStream(waiter) == 0
    assert cann.aclrtWaitAndResetNotify(set_once, waiter, 2**32 - 1) == 0
    assert is_stuck(waiter)
    assert cann.aclrtRecordNotify(set_once, setter) == cann.aclrtSynchronizeStream(waiter) == 0


def test_a_notify_is_set_or_not(device: None) -> None:
    twice, (_, waiter) = notify(), cann.aclrtCreateStream()
    for _ in range(2):
        assert cann.aclrtRecordNotify(twice, 0) == 0
    for _ in range(2):
        assert cann.aclrtWaitAndResetNotify(twice, waiter, 0) == 0
    assert is_stuck(waiter)
    assert cann.aclrtRecordNotify(twice, 0) == cann.aclrtSynchronizeStream(waiter) == 0


def test_a_wait_for_a_notify_has_a_limit_in_seconds(device: None) -> None:
    assert cann.aclrtWaitAndResetNotify(notify(), 0, 1) == 0
    assert is_stuck(0)
    assert cann.aclrtSynchronizeStream(0) == 507000
    assert "timed out after 1 s" in recent_error()


def test_notify_batch_reset_resets_every_notify(device: None) -> None:
    (_, waiter), handles = cann.aclrtCreateStream(), [notify(), notify()]
    for handle in handles:
        assert cann.aclrtRecordNotify(handle, 0) == 0
    assert cann.aclrtNotifyBatchReset(handles, 2) == 0
    for handle in handles:
        assert cann.aclrtWaitAndResetNotify(handle, waiter, 0) == 0
    assert is_stuck(waiter)
    assert cann.aclrtStreamAbort(waiter) == 0
    assert cann.aclrtNotifyBatchReset(None, 0) == 100000
    assert cann.aclrtNotifyBatchReset([], 0) == 107000
    assert cann.aclrtNotifyBatchReset([handles[0], 8], 2) == 107000


def test_invalid_notifies_are_rejected(fresh: None) -> None:
    assert cann.aclrtCreateNotify(2) == (107000, 0)
    assert cann.aclrtCreateNotify(1) == (107002, 0)
    assert cann.aclrtSetDevice(0) == 0
    first, second = notify(), notify()
    numbers = [cann.aclrtGetNotifyId(handle)[1] for handle in (first, second)]
    assert len(set(numbers)) == 2
    assert cann.aclrtDestroyNotify(first) == 0
    for handle, code in ((0, 100000), (first, 107000), (8, 107000)):
        assert cann.aclrtDestroyNotify(handle) == cann.aclrtRecordNotify(handle, 0) == code
        assert cann.aclrtWaitAndResetNotify(handle, 0, 0) == code
        assert cann.aclrtGetNotifyId(handle) == (code, 0)
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtCreateContext(0)[0] == 0
    assert cann.aclrtRecordNotify(second, stream) == cann.aclrtWaitAndResetNotify(second, stream, 0) == 107003


def record(handle: int, mode: int, value: int, stream: int = 0) -> int:
    info = (ctypes.c_uint32 * 2)(mode, value)
    return cann.aclrtCntNotifyRecord(handle, stream, ctypes.addressof(info))


def wait(handle: int, stream: int, mode: int, value: int, timeout: int = 0, clears: int = 0) -> int:
    info = (ctypes.c_uint32 * 4)(mode, value, timeout, clears)
    return cann.aclrtCntNotifyWaitWithTimeout(handle, stream, ctypes.addressof(info))


EQUAL, LESS = cann.ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, cann.ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE
BIGGER, AT_LEAST = cann.ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE, cann.ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE
BITS = cann.ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE


def test_counts_are_set_and_added_to(counts: None) -> None:
    handle = counter()
    for mode, value, count in (
        (cann.ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE, 6, 6),
        (cann.ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 2, 8),
        (cann.ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE, 5, 13),
        (cann.ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE, 7, 5),
        (cann.ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 2**32 - 1, 4),
    ):
        assert record(handle, mode, value) == 0
        assert wait(handle, 0, EQUAL, count) == cann.aclrtSynchronizeStreamWithTimeout(0, 1000) == 0
    assert cann.aclrtCntNotifyReset(handle, 0) == wait(handle, 0, EQUAL, 0) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(0, 1000) == 0


@pytest.mark.parametrize(
    ("mode", "enough", "short"),
    [(LESS, 6, 5), (EQUAL, 5, 4), (BIGGER, 4, 5), (AT_LEAST, 5, 6), (BITS, 4, 2)],
    ids=["less", "equal", "bigger", "at least", "bits"],
)
def test_a_stream_waits_for_a_count_of_5(counts: None, mode: int, enough: int, short: int) -> None:
    handle, (_, stream) = counter(), cann.aclrtCreateStream()
    assert record(handle, 0, 5) == wait(handle, stream, mode, enough) == 0
    assert cann.aclrtSynchronizeStreamWithTimeout(stream, 1000) == 0
    assert wait(handle, stream, mode, short) == 0
    assert is_stuck(stream)
    assert cann.aclrtStreamAbort(stream) == 0


def test_a_wait_for_a_count_may_clear_it_and_has_a_limit(counts: None) -> None:
    handle = counter()
    assert record(handle, 0, 5) == wait(handle, 0, EQUAL, 5, clears=1) == wait(handle, 0, EQUAL, 5, timeout=1) == 0
    assert cann.aclrtSynchronizeStream(0) == 507000
    assert "timed out after 1 s" in recent_error()


def test_invalid_counts_are_rejected(counts: None) -> None:
    assert cann.aclrtCntNotifyCreate(1) == (107000, 0)
    handle = counter()
    assert cann.aclrtCntNotifyGetId(handle)[0] == 0
    assert cann.aclrtCntNotifyRecord(handle, 0, 0) == cann.aclrtCntNotifyWaitWithTimeout(handle, 0, 0) == 100000
    for mode in (3, 5, 2**32 - 1):
        assert record(handle, mode, 1) == 107000
    assert wait(handle, 0, 5, 1) == 107000
    for bad in (0, 8, notify()):
        assert record(bad, 0, 1) == wait(bad, 0, 1, 1) == cann.aclrtCntNotifyReset(bad, 0) == 107000
        assert cann.aclrtCntNotifyGetId(bad) == (107000, 0)
        assert cann.aclrtCntNotifyDestroy(bad) == 107000
    assert cann.aclrtCntNotifyDestroy(handle) == 0
    assert cann.aclrtCntNotifyDestroy(handle) == 107000


def test_products_without_counts_reject_them(device: None) -> None:
    assert cann.aclrtCntNotifyCreate(0) == (207000, 0)
    assert cann.aclrtCntNotifyReset(8, 0) == 207000


def test_a_value_is_written_in_the_streams_order(device: None) -> None:
    gate, address = threading.Event(), word()
    stream = stream_behind(gate)
    assert cann.aclrtValueWrite(address, 2**64 - 2, 0, stream) == 0
    assert ctypes.c_uint64.from_address(address).value == 0
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert ctypes.c_uint64.from_address(address).value == 2**64 - 2


@pytest.mark.parametrize(
    ("flag", "value", "enough", "short"),
    [
        (cann.ACL_STREAM_WAIT_VALUE_GEQ, 5, (5, 2**63 + 4), (4, 2**63 + 5)),
        (cann.ACL_STREAM_WAIT_VALUE_EQ, 5, (5,), (4, 6)),
        (cann.ACL_STREAM_WAIT_VALUE_AND, 6, (2, 12), (1, 8)),
        (cann.ACL_STREAM_WAIT_VALUE_NOR, 6, (0, 2**64 - 2), (2**64 - 1, 2**64 - 7)),
    ],
    ids=["at least", "equal", "and", "nor"],
)
def test_a_stream_waits_for_a_value(
    device: None, flag: int, value: int, enough: tuple[int, ...], short: tuple[int, ...]
) -> None:
    _, stream = cann.aclrtCreateStream()
    for found in enough:
        assert cann.aclrtValueWait(word(found), value, flag, stream) == 0
        assert cann.aclrtSynchronizeStreamWithTimeout(stream, 1000) == 0
    for found in short:
        address = word(found)
        assert cann.aclrtValueWait(address, value, flag, stream) == 0
        assert is_stuck(stream)
        assert cann.aclrtValueWrite(address, enough[0], 0, 0) == 0
        assert cann.aclrtSynchronizeStreamWithTimeout(stream, 1000) == 0


def test_invalid_values_and_addresses_are_rejected(device: None) -> None:
    address, host = word(), (ctypes.c_uint64 * 2)()
    for call in (cann.aclrtValueWrite, cann.aclrtValueWait):
        assert call(0, 1, 0, 0) == 100000
        assert call(ctypes.addressof(host), 1, 0, 0) == 107000
        assert call(address + 64, 1, 0, 0) == 107000
        assert call(address, 1, 0, 8) == 107000
    assert cann.aclrtValueWrite(address + 4, 1, 0, 0) == 107000
    assert cann.aclrtValueWait(address, 1, 4, 0) == 107000


def test_memory_that_a_stream_waits_for_may_be_freed(device: None) -> None:
    address, (_, stream) = word(), cann.aclrtCreateStream()
    value = ctypes.c_uint64.from_address(address)
    assert cann.aclrtValueWait(address, 3, cann.ACL_STREAM_WAIT_VALUE_EQ, stream) == 0
    assert cann.aclrtFree(address) == 0
    value.value = 3
    assert cann.aclrtSynchronizeStreamWithTimeout(stream, 1000) == 0
    assert queue(stream).idle()
