"""Copies of rows and of many ranges at once, and fills with words."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from tests.helpers.fresh_runtime import queue, recent_error, stream_behind

Array = np.ndarray[Any, Any]
NONE = 2**64 - 1


class Attribute(ctypes.Structure):
    """The struct aclrtMemcpyBatchAttr, with its locations' fields inlined."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dst_id", "dst_type", "src_id", "src_type")),
        ("rsv", ctypes.c_uint8 * 16),
    )


def malloc(array: Array) -> int:
    """Allocate device memory with an array's bytes."""
    status, address = cann.aclrtMalloc(array.nbytes, 0)
    assert status == 0
    assert cann.aclrtMemcpy(address, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
    return address


def read(address: int, like: Array) -> Array:
    array = np.empty_like(like)
    assert cann.aclrtMemcpy(array.ctypes.data, array.nbytes, address, array.nbytes, 2) == 0
    return array


MATRIX = np.arange(24, dtype=np.uint8).reshape(4, 6)
WANTED = np.full((4, 5), 9, np.uint8)
WANTED[:3, :4] = MATRIX[:3, :4]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows_are_copied_and_nothing_between_them(device: None, asynchronous: bool) -> None:
    target = malloc(np.full((4, 5), 9, np.uint8))
    _, stream = cann.aclrtCreateStream()
    arguments = (target, 5, MATRIX.ctypes.data, 6, 4, 3)
    copy = cann.aclrtMemcpy2dAsync if asynchronous else cann.aclrtMemcpy2d
    rest = (stream,) if asynchronous else ()
    assert copy(*arguments, cann.ACL_MEMCPY_HOST_TO_DEVICE, *rest) == 0
    assert cann.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(read(target, WANTED), WANTED)
    back = np.full((4, 5), 9, np.uint8)
    assert copy(back.ctypes.data, 5, target, 5, 4, 3, cann.ACL_MEMCPY_DEFAULT, *rest) == 0
    np.testing.assert_array_equal(back, WANTED)
    within = copy(target, 5, target, 5, 4, 3, cann.ACL_MEMCPY_DEVICE_TO_DEVICE, *rest)
    assert within == (0 if asynchronous else 100000)


#: The matrix and what is changed of a copy to the device of three rows of four bytes.
ROWS: list[tuple[dict[str, Any], int, str]] = [
    ({"width": 0, "dst": 0, "kind": 9}, 0, ""),
    ({"height": 0, "dpitch": 0}, 0, ""),
    ({"dst": 0}, 100000, "dst"),
    ({"src": 0}, 100000, "src"),
    ({"dpitch": 3}, 100000, "width: expected at most dpitch"),
    ({"spitch": 3}, 100000, "width: expected at most spitch"),
    ({"kind": 0}, 100000, "kind"),
    ({"kind": 5}, 100000, "kind"),
    ({"kind": -1}, 100000, "kind"),
    ({"height": 5}, 107000, "dst: expected a range inside"),
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("changed", "code", "text"), ROWS)
def test_invalid_rows_are_rejected(
    device: None, asynchronous: bool, changed: dict[str, Any], code: int, text: str
) -> None:
    host = np.zeros((8, 6), np.uint8)
    call: dict[str, Any] = {"dst": malloc(np.zeros((4, 5), np.uint8)), "dpitch": 5, "src": host.ctypes.data}
    call |= {"spitch": 6, "width": 4, "height": 3, "kind": 1} | changed
    status = cann.aclrtMemcpy2dAsync(**call, stream=0) if asynchronous else cann.aclrtMemcpy2d(**call)
    assert status == code
    assert not code or text in recent_error()


def test_asynchronous_2d_copies_have_limits(device: None) -> None:
    big = 5 * 1024 * 1024 + 1
    assert cann.aclrtMemcpy2dAsync(64, big, 64, big, 5_000_001, 1, 1, 0) == 100000
    assert "width: expected at most 5000000" in recent_error()
    assert cann.aclrtMemcpy2dAsync(64, 1, 64, 1, 1, big, 1, 0) == 100000
    assert "height: expected at most 5242880" in recent_error()


def test_prefetching_changes_nothing(device: None) -> None:
    there, prefetch = malloc(np.arange(16, dtype=np.uint8)), cann.ACL_RT_CMO_TYPE_PREFETCH
    assert cann.aclrtCmoAsync(there, 16, prefetch, 0) == cann.aclrtSynchronizeStream(0) == 0
    assert read(there, np.zeros(16, np.uint8))[15] == 15
    assert cann.aclrtCmoAsync(0, 16, prefetch, 0) == cann.aclrtCmoAsync(there, 0, prefetch, 0) == 100000
    for kind in (cann.ACL_RT_CMO_TYPE_WRITEBACK, cann.ACL_RT_CMO_TYPE_INVALID, cann.ACL_RT_CMO_TYPE_FLUSH):
        assert cann.aclrtCmoAsync(there, 16, kind, 0) == 207000
    for given in ((there, 16, 4, 0), (there, 1 << 20, prefetch, 0), (there, 16, prefetch, 8)):
        assert cann.aclrtCmoAsync(*given) == 107000


class Batch:
    """Three copies from the host to device 0, of 4, 0 and 8 bytes."""

    def __init__(self) -> None:
        self.host = np.arange(16, dtype=np.uint8)
        self.there = malloc(np.zeros(16, np.uint8))
        self.failed = ctypes.c_size_t(77)
        self.attributes = (Attribute * 2)(*[Attribute(0, 1, 0, 0), Attribute(0, 1, 0, 4)])
        start = self.host.ctypes.data
        self.call: dict[str, Any] = {
            "dsts": [self.there, self.there, self.there + 8],
            "destMaxs": [4, 0, 8],
            "srcs": [start, start, start + 8],
            "sizes": [4, 0, 8],
            "numBatches": 3,
            "attrs": ctypes.addressof(self.attributes),
            "attrsIndexes": [0, 2],
            "numAttrs": 2,
            "failIndex": ctypes.addressof(self.failed),
        }

    def copy(self, **changed: Any) -> int:
        return cann.aclrtMemcpyBatch(**self.call | changed)


def test_a_batch_is_copied(device: None) -> None:
    batch = Batch()
    assert batch.copy() == 0
    expected = np.where((np.arange(16) < 4) | (np.arange(16) >= 8), batch.host, 0)
    np.testing.assert_array_equal(read(batch.there, batch.host), expected)
    assert batch.failed.value == NONE


def test_a_batch_is_copied_without_the_number_of_the_rejected(device: None) -> None:
    for call in (cann.aclrtMemcpyBatchV2, lambda **given: cann.aclrtMemcpyBatchAsyncV2(**given, stream=0)):
        batch = Batch()
        del batch.call["failIndex"]
        assert call(**batch.call) == 0
        assert read(batch.there, batch.host)[15] == 15
        assert call(**batch.call | {"destMaxs": [3, 0, 8]}) == 100000
        assert call(**batch.call | {"attrsIndexes": [1, 2]}) == 107000
        assert batch.failed.value == 77


def test_a_batch_is_copied_in_its_streams_order(device: None) -> None:
    batch, gate = Batch(), threading.Event()
    status, pinned = cann.aclrtMallocHost(16)
    assert status == 0
    ctypes.memmove(pinned, batch.host.ctypes.data, 16)
    stream = stream_behind(gate)
    changed = {"srcs": [pinned, pinned, pinned + 8]}
    assert cann.aclrtMemcpyBatchAsync(**batch.call | changed, stream=stream) == 0
    assert not read(batch.there, batch.host).any()
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(batch.there, batch.host)[15] == 15


def located(**changed: int) -> Callable[[Batch], dict[str, Any]]:
    """Change the first attribute's location."""

    def change(batch: Batch) -> dict[str, Any]:
        for name, value in changed.items():
            setattr(batch.attributes[0], name, value)
        return {}

    return change


def reserved(batch: Batch) -> dict[str, Any]:
    batch.attributes[1].rsv[15] = 1
    return {}


#: What is changed, the status, and the number of the copy that it is about.
BATCHES: list[tuple[Any, int, int]] = [
    ({"sizes": [0, 0, 0], "dsts": None, "attrs": 0}, 0, NONE),
    ({"sizes": None}, 100000, NONE),
    ({"numBatches": 0}, 100000, NONE),
    ({"dsts": None}, 100000, NONE),
    ({"destMaxs": None}, 100000, NONE),
    ({"srcs": None}, 100000, NONE),
    ({"attrs": 0}, 100000, NONE),
    ({"attrsIndexes": None}, 100000, NONE),
    ({"destMaxs": [4, 0, 7]}, 100000, NONE),
    (reserved, 100000, NONE),
    ({"attrsIndexes": [1, 2]}, 107000, NONE),
    ({"attrsIndexes": [0, 0]}, 107000, NONE),
    ({"attrsIndexes": [0, 3]}, 107000, NONE),
    (located(dst_type=0), 107000, 0),
    (located(dst_id=1), 107000, 0),
    (located(src_type=1), 107000, 0),
    (located(src_type=2), 107000, 0),
    (lambda batch: {"dsts": [batch.there, batch.there, batch.host.ctypes.data]}, 107000, 2),
    (lambda batch: {"dsts": [batch.there, batch.there, batch.there + 9]}, 107000, 2),
]


@pytest.mark.parametrize(("change", "code", "failed"), BATCHES)
def test_invalid_batches_are_rejected(device: None, change: Any, code: int, failed: int) -> None:
    batch = Batch()
    assert batch.copy(**change(batch) if callable(change) else change) == code
    assert batch.failed.value == failed
    assert not read(batch.there, batch.host).any()
    assert not code or "aclrtMemcpyBatch: " in recent_error()


def test_a_batch_needs_a_pointer_for_the_failed_index(device: None) -> None:
    assert Batch().copy(failIndex=0, sizes=None) == 100000
    assert "failIndex" in recent_error()


@pytest.mark.parametrize("kind", [1, 3])
def test_batches_within_one_side_are_rejected(device: None, kind: int) -> None:
    """Copies from host to host, or within a device, are not allowed in a batch."""
    batch = Batch()
    for attribute in batch.attributes:
        attribute.dst_type = attribute.src_type = int(kind == 3)
    there = batch.there if kind == 3 else batch.host.ctypes.data
    assert batch.copy(dsts=[there] * 3, srcs=[there] * 3) == 107000
    assert "expected a copy between the host and a device" in recent_error()
    assert batch.failed.value == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_memset_d32_sets_words(device: None, asynchronous: bool) -> None:
    address = malloc(np.zeros(4, np.uint32))

    def fill(*arguments: int) -> int:
        return cann.aclrtMemsetD32Async(*arguments, 0) if asynchronous else cann.aclrtMemsetD32(*arguments)

    assert fill(address + 4, 12, 0xDEADBEEF, 2) == 0
    assert cann.aclrtSynchronizeDevice() == 0
    assert read(address, np.zeros(4, np.uint32)).tolist() == [0, 0xDEADBEEF, 0xDEADBEEF, 0]
    host = np.zeros(4, np.uint32)
    for arguments, code in (
        ((0, 0, 1, 0), 0),
        ((0, 16, 1, 4), 100000),
        ((address + 2, 12, 1, 2), 100000),
        ((address, 15, 1, 4), 100000),
        ((address, 2**64 - 1, 1, 1 << 63), 100000),
        ((host.ctypes.data, 16, 1, 4), 100000),
        ((address, 20, 1, 5), 107000),
    ):
        assert fill(*arguments) == code, arguments
    assert not host.any()


def test_memcpy_with_condition_copies_as_memcpy_async(device: None) -> None:
    host, gate = np.arange(8, dtype=np.uint8), threading.Event()
    address, stream = malloc(np.zeros(8, np.uint8)), stream_behind(gate)
    threading.Timer(0.05, gate.set).start()
    assert cann.aclrtMemcpyAsyncWithCondition(address, 8, host.ctypes.data, 8, 1, stream) == 0
    assert queue(stream).idle(), "it waits for memory that is not pinned"
    np.testing.assert_array_equal(read(address, host), host)
