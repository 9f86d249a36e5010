"""Memory: every row of the tables for allocation, copies, fills and queries, and what keeps programs from crashing."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
from bisect import insort
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn import cann
from aclnn.core.products import set_soc_name
from aclnn.runtime import arena, memory, transfers
from tests.helpers.fresh_runtime import MEMORY_BYTES, recent_error, stream_behind

UINT64 = 2**64 - 1
MALLOCS = [cann.aclrtMalloc, cann.aclrtMallocAlign32, cann.aclrtMallocCached]


def malloc(nbytes: int, policy: int = 0) -> int:
    status, address = cann.aclrtMalloc(nbytes, policy)
    assert status == 0
    return address


def buffer(nbytes: int, byte: int = 0) -> np.ndarray[Any, Any]:
    return np.full(nbytes, byte, np.uint8)


def pointer(array: np.ndarray[Any, Any]) -> int:
    return array.ctypes.data


def read(address: int, nbytes: int) -> bytes:
    array = buffer(nbytes, 0xEE)
    assert cann.aclrtMemcpy(pointer(array), nbytes, address, nbytes, cann.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    return array.tobytes()


def write(address: int, data: bytes) -> None:
    array = np.frombuffer(data, np.uint8).copy()
    assert cann.aclrtMemcpy(address, len(data), pointer(array), len(data), cann.ACL_MEMCPY_HOST_TO_DEVICE) == 0


@pytest.mark.parametrize("malloc_function", MALLOCS, ids=lambda f: f.__name__)
def test_allocation_is_aligned_and_holds_what_is_written(device: None, malloc_function: Callable[..., Any]) -> None:
    for nbytes in (1, 31, 64, 1000, 1 << 21, (1 << 21) + 1):
        for policy in cann.aclrtMemMallocPolicy:
            status, address = malloc_function(nbytes, policy)
            assert status == 0
            assert address % 64 == 0
            write(address + nbytes - 1, b"\x5a")
            assert read(address + nbytes - 1, 1) == b"\x5a"
            assert cann.aclrtFree(address) == 0


def test_an_unknown_policy_is_the_default(device: None) -> None:
    assert cann.aclrtFree(malloc(100, 12345)) == 0


@pytest.mark.parametrize("malloc_function", MALLOCS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("size", "code"), [(0, 100000), (UINT64, 100000), (UINT64 - 30, 100000), (1 << 62, 107002), (64, 107002)]
)
def test_malloc_rejects_before_it_looks_for_a_context(
    fresh: None, malloc_function: Callable[..., Any], size: int, code: int
) -> None:
    assert malloc_function(size, 0) == (code, 0)
    assert malloc_function.__name__ in recent_error()


def test_rounding_up_overflows_where_the_padding_does(device: None) -> None:
    # 32 bytes of padding are added by aclrtMalloc, none by aclrtMallocAlign32.
    largest = UINT64 - 31
    assert cann.aclrtMalloc(largest, 0)[0] == 100000
    assert cann.aclrtMallocAlign32(largest, 0)[0] == 207001


def test_memory_info_counts_allocations_until_exhaustion(device: None) -> None:
    status, free, total = cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)
    assert (status, free, total) == (0, MEMORY_BYTES, MEMORY_BYTES)
    half = malloc(MEMORY_BYTES // 2)
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES // 2, MEMORY_BYTES)
    assert cann.aclrtMalloc(MEMORY_BYTES // 2 + 1, 0) == (207001, 0)
    assert str(MEMORY_BYTES // 2) in recent_error()
    assert cann.aclrtMalloc(MEMORY_BYTES, cann.ACL_MEM_MALLOC_NORMAL_ONLY) == (207001, 0)
    rest = malloc(MEMORY_BYTES // 2)
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, 0, MEMORY_BYTES)
    assert cann.aclrtFree(half) == cann.aclrtFree(rest) == 0
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES, MEMORY_BYTES)


def test_an_allocation_that_the_machine_cannot_serve_is_not_charged(
    device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory._table.current.arenas, "allocate", lambda nbytes, huge: None)
    for _ in range(2):
        assert cann.aclrtMalloc(MEMORY_BYTES, 0) == (207001, 0)
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES, MEMORY_BYTES)


def test_each_device_has_its_own_memory(device: None) -> None:
    malloc(MEMORY_BYTES)
    assert cann.aclrtSetDevice(1) == 0
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES, MEMORY_BYTES)
    malloc(MEMORY_BYTES)


@pytest.mark.parametrize("attribute", cann.aclrtMemAttr)
@pytest.mark.parametrize("product", ["Ascend910B2", "Ascend310P3"])
def test_memory_info_by_attribute(device: None, product: str, attribute: int) -> None:
    set_soc_name(product)
    absent = product == "Ascend910B2" and cann.aclrtMemAttr(attribute).name.startswith("ACL_DDR")
    expected = 0 if absent else MEMORY_BYTES
    assert cann.aclrtGetMemInfo(attribute) == (0, expected, expected)


@pytest.mark.parametrize(("attribute", "code"), [(18, 107016), (-1, 107016), (0, 107002)])
def test_memory_info_rejects_invalid_arguments(fresh: None, attribute: int, code: int) -> None:
    assert cann.aclrtGetMemInfo(attribute) == (code, 0, 0)
    assert "aclrtGetMemInfo" in recent_error()


def test_free_needs_no_context(fresh: None) -> None:
    addresses = []

    def allocate() -> None:
        assert cann.aclrtSetDevice(0) == 0
        addresses.append(malloc(100))

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert cann.aclrtFree(addresses[0]) == 0


def test_memory_outlives_the_reset_of_its_device(device: None) -> None:
    address = malloc(8)
    write(address, b"kept for")
    assert cann.aclrtResetDevice(0) == 0
    assert memory.resolve(address, 8).nbytes == 8
    assert cann.aclrtFree(address) == 0


def _freed() -> int:
    address = malloc(100)
    assert cann.aclrtFree(address) == 0
    return address


def _interior() -> int:
    return malloc(100) + 4


def _pinned() -> int:
    status, address = cann.aclrtMallocHost(100)
    assert status == 0
    return address


def _foreign() -> int:
    return 0x12345


@pytest.mark.parametrize(
    ("free", "make", "code", "text"),
    [
        (cann.aclrtFree, lambda: 0, 100000, "got null"),
        (cann.aclrtFree, lambda: None, 100000, "got null"),
        (cann.aclrtFree, _freed, 107000, "was freed"),
        (cann.aclrtFree, _interior, 107000, "4 bytes into device allocation"),
        (cann.aclrtFree, _pinned, 107000, "pinned host allocation"),
        (cann.aclrtFree, lambda: 8, 107000, "null or next to it"),
        (cann.aclrtFree, _foreign, 107000, "0x12345; nothing is allocated"),
        (cann.aclrtFreeHost, lambda: 0, 100000, "got null"),
        (cann.aclrtFreeHost, lambda: malloc(100), 107000, "device allocation"),
        (cann.aclrtFreeHost, _foreign, 107000, "0x12345; nothing is allocated"),
    ],
)
def test_free_rejects_addresses_that_are_not_its_own(
    device: None, free: Callable[..., int], make: Callable[[], Any], code: int, text: str
) -> None:
    assert free(make()) == code
    message = recent_error()
    assert text in message
    assert free.__name__ in message


def test_host_memory_is_allocated_aligned_and_freed(fresh: None) -> None:
    assert cann.aclrtMallocHost(0) == (100000, 0)
    status, address = cann.aclrtMallocHost(1000)
    assert status == 0
    assert address % 64 == 0
    assert cann.aclrtFreeHost(address) == 0
    assert cann.aclrtFreeHost(address) == 107000
    assert cann.aclrtMallocHost(MEMORY_BYTES + 1) == (207001, 0)


# What aclrtMemcpy and aclrtMemcpyAsync test, in order; each row also breaks a later rule where it can.
COPY_ROWS: list[tuple[str, tuple[Any, ...], int]] = [
    ("count 0", (0, 0, 0, 0, 99), 0),
    ("dst null", (0, 0, 0, 8, 99), 100000),
    ("src null", ("d", 0, 0, 8, 99), 100000),
    ("kind 6", ("d", 0, "s", 8, 6), 100000),
    ("kind 7", ("d", 0, "s", 8, 7), 100000),
    ("kind -1", ("d", 0, "s", 8, -1), 100000),
    ("destMax 0", ("d", 0, "s", 8, 1), 107000),
    ("count > destMax", ("d", 7, "s", 8, 1), 107000),
    ("dst is src", ("d", 8, "d", 8, 1), 0),
    ("no context", ("d", 8, "s", 8, 1), 107002),
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("args", "code"), [row[1:] for row in COPY_ROWS], ids=[row[0] for row in COPY_ROWS])
def test_copies_check_arguments_in_order(fresh: None, asynchronous: bool, args: tuple[Any, ...], code: int) -> None:
    arrays = {"d": buffer(8), "s": buffer(8, 1)}
    resolved = [pointer(arrays[arg]) if isinstance(arg, str) else arg for arg in args]
    status = cann.aclrtMemcpyAsync(*resolved, 0) if asynchronous else cann.aclrtMemcpy(*resolved)
    assert status == code
    assert not arrays["d"].any()
    if code:
        assert "aclrtMemcpy" in recent_error()


@pytest.mark.parametrize("kind", list(cann.aclrtMemcpyKind)[:6])
def test_kind_is_only_a_hint(device: None, kind: int) -> None:
    source, target, there = buffer(10, 7), buffer(10), malloc(10)
    assert cann.aclrtMemcpy(there, 10, pointer(source), 10, kind) == 0
    assert cann.aclrtMemcpy(pointer(target), 10, there, 10, kind) == 0
    assert (target == 7).all()


@pytest.mark.parametrize("shift", [-3, 3])
def test_overlapping_copies_act_as_through_a_temporary(device: None, shift: int) -> None:
    address = malloc(64)
    data = bytes(range(64))
    write(address, data)
    begin = max(shift, 0)
    assert cann.aclrtMemcpy(address + begin, 61, address + begin - shift, 61, 3) == 0
    expected = data[:3] + data[:61] if shift > 0 else data[3:] + data[61:]
    assert read(address, 64) == expected


def test_copies_stay_inside_allocations(device: None) -> None:
    small, large, host = malloc(10), malloc(100), buffer(100)
    write(small, bytes(10))
    write(large, bytes(100))
    beyond = [
        cann.aclrtMemcpy(small, 100, pointer(host), 11, 1),
        cann.aclrtMemcpy(small + 5, 100, pointer(host), 6, 1),
        cann.aclrtMemcpy(pointer(host), 100, small, 11, 2),
        cann.aclrtMemcpy(large, 100, small, 11, 3),
        cann.aclrtMemset(small, 100, 1, 11),
        cann.aclrtMemcpyAsync(small, 100, pointer(host), 11, 1, 0),
        cann.aclrtMemsetAsync(small, 100, 1, 11, 0),
        cann.aclrtMemFlush(small, 11),
        cann.aclrtMemInvalidate(small, 11),
    ]
    assert beyond == [107000] * len(beyond)
    assert "1 bytes beyond device allocation" in recent_error()
    assert read(small, 10) == bytes(10)
    assert read(large, 100) == bytes(100)


@pytest.mark.parametrize("large", [False, True])
def test_freed_device_memory_is_never_touched(device: None, large: bool) -> None:
    nbytes = (1 << 21) + 5 if large else 100
    stale, host = malloc(nbytes), buffer(8)
    assert cann.aclrtFree(stale) == 0
    calls: list[Callable[[], int]] = [
        lambda: cann.aclrtMemcpy(stale, 8, pointer(host), 8, 1),
        lambda: cann.aclrtMemcpy(pointer(host), 8, stale, 8, 2),
        lambda: cann.aclrtMemset(stale, 8, 0, 8),
        lambda: cann.aclrtMemcpyAsync(stale, 8, pointer(host), 8, 1, 0),
        lambda: cann.aclrtMemsetAsync(stale, 8, 0, 8, 0),
    ]
    for call in calls:
        assert call() == 107000
        assert "was freed" in recent_error()


def test_addresses_next_to_allocations_are_rejected(device: None) -> None:
    address, host = malloc(100), buffer(8)
    assert cann.aclrtMemcpy(address + 4096 * 100, 8, pointer(host), 8, 1) == 107000
    assert "the nearest is device allocation" in recent_error()


@pytest.mark.parametrize("address", [1, 4095, 1 << 56, UINT64 - 7])
def test_addresses_of_no_process_are_rejected(device: None, address: int) -> None:
    host = buffer(8)
    assert cann.aclrtMemcpy(pointer(host), 8, address, 8, 2) == 107000
    assert cann.aclrtMemset(address, 8, 0, 8) == 107000
    assert "expected live memory" in recent_error()


def test_a_handle_is_not_an_address(device: None) -> None:
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtMemset(stream, 8, 0, 8) == 107000
    assert cann.aclrtFree(stream) == 107000
    assert "not an address of this process" in recent_error()


MEMSET_ROWS = [
    ("count 0", (0, 0, 1, 0), 0),
    ("null", (0, 0, 1, 5), 100000),
    ("count > maxCount", ("d", 4, 1, 5), 107000),
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("args", "code"), [row[1:] for row in MEMSET_ROWS], ids=[row[0] for row in MEMSET_ROWS])
def test_memset_checks_arguments_in_order(fresh: None, asynchronous: bool, args: tuple[Any, ...], code: int) -> None:
    array = buffer(8)
    resolved = [pointer(array) if arg == "d" else arg for arg in args]
    assert (cann.aclrtMemsetAsync(*resolved, 0) if asynchronous else cann.aclrtMemset(*resolved)) == code
    assert not array.any()


@pytest.mark.parametrize(("value", "byte"), [(0, 0), (1, 1), (0x1FF, 0xFF), (-1, 0xFF), (-2, 0xFE), (0x12345678, 0x78)])
def test_memset_takes_the_low_byte(device: None, value: int, byte: int) -> None:
    address = malloc(10)
    assert cann.aclrtMemset(address, 10, 0xAA, 10) == 0
    assert cann.aclrtMemset(address + 1, 9, value, 8) == 0
    assert read(address, 10) == b"\xaa" + bytes([byte]) * 8 + b"\xaa"
    assert cann.aclrtMemsetAsync(address, 10, value, 10, 0) == 0
    assert cann.aclrtSynchronizeStream(0) == 0
    assert read(address, 10) == bytes([byte]) * 10


ASYNC: list[tuple[str, Callable[[int, int, int], int]]] = [
    ("memcpy", lambda d, s, stream: cann.aclrtMemcpyAsync(d, 8, s, 8, 3, stream)),
    ("memset", lambda d, s, stream: cann.aclrtMemsetAsync(d, 8, 1, 8, stream)),
]


@pytest.mark.parametrize("call", [row[1] for row in ASYNC], ids=[row[0] for row in ASYNC])
def test_asynchronous_calls_check_the_stream(device: None, call: Callable[[int, int, int], int]) -> None:
    d, s = malloc(8), malloc(8)
    _, actual = cann.aclrtCreateStream()
    assert call(d, s, actual) == 0
    assert call(d, s, 0) == 0
    _, gone = cann.aclrtCreateStream()
    cann.aclrtDestroyStream(gone)
    assert call(d, s, gone) == 107000
    assert "destroyed" in recent_error()
    assert call(d, s, 77) == 107000
    _, context = cann.aclrtCreateContext(0)
    assert call(d, s, actual) == 107003
    assert "another" in recent_error()
    cann.aclrtDestroyContext(context)
    cann.aclrtResetDevice(0)
    assert call(d, s, 0) == 107002
    assert call(d, s, actual) == 107002


def test_asynchronous_host_to_host_is_not_supported(device: None) -> None:
    a, b = buffer(8), buffer(8, 1)
    assert cann.aclrtMemcpyAsync(pointer(a), 8, pointer(b), 8, cann.ACL_MEMCPY_HOST_TO_HOST, 0) == 207000
    assert not a.any()


def test_asynchronous_copies_keep_the_streams_order(device: None) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    _, pinned = cann.aclrtMallocHost(8)
    here = malloc(8)
    assert cann.aclrtMemset(pinned, 8, 3, 8) == 0
    assert cann.aclrtMemset(here, 8, 9, 8) == 0
    assert cann.aclrtMemcpyAsync(here, 8, pinned, 8, 1, stream) == 0
    assert cann.aclrtMemsetAsync(here, 8, 4, 4, stream) == 0
    assert read(here, 8) == b"\x09" * 8
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(here, 8) == b"\x04" * 4 + b"\x03" * 4


def test_copies_from_pageable_memory_are_done_on_return(device: None) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    source, there = buffer(8, 5), malloc(8)
    threading.Timer(0.05, gate.set).start()
    assert cann.aclrtMemcpyAsync(there, 8, pointer(source), 8, 1, stream) == 0
    assert gate.is_set()
    assert read(there, 8) == b"\x05" * 8


def test_fills_of_pageable_memory_are_done_on_return(device: None) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    there = buffer(8)
    threading.Timer(0.05, gate.set).start()
    assert cann.aclrtMemsetAsync(pointer(there), 8, 5, 8, stream) == 0
    assert gate.is_set()
    assert (there == 5).all()


def test_freeing_early_is_safe(device: None) -> None:
    gate = threading.Event()
    stream = stream_behind(gate)
    a, b = malloc(1 << 22), malloc(1 << 22)
    assert cann.aclrtMemset(a, 1 << 22, 6, 1 << 22) == 0
    assert cann.aclrtMemcpyAsync(b, 1 << 22, a, 1 << 22, 3, stream) == 0
    assert cann.aclrtFree(a) == 0
    _, free, _ = cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)
    assert free == MEMORY_BYTES - (1 << 22)
    assert all(malloc(1 << 22) != a for _ in range(4))
    gate.set()
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert read(b, 1 << 22) == b"\x06" * (1 << 22)


@pytest.mark.parametrize("call", [cann.aclrtMemFlush, cann.aclrtMemInvalidate], ids=lambda f: f.__name__)
def test_cache_flush_and_invalidate_check_address_and_size(device: None, call: Callable[[int, int], int]) -> None:
    _, address = cann.aclrtMallocCached(100, 0)
    assert call(address, 100) == 0
    assert call(0, 100) == 100000
    assert call(address, 0) == 100000


def test_an_address_inside_an_allocation_is_accepted(device: None) -> None:
    # Clients take one allocation and round up to 512 within it.
    address = malloc(2000)
    rounded = -(-(address + 1) // 512) * 512
    assert memory.resolve(rounded, 1000).address == address


@given(data=st.data())
def test_resolve_agrees_with_a_plain_search(data: st.DataObject) -> None:
    table = memory._Table()
    ranges: list[memory.Allocation] = []
    cursor = 1000
    for gap, nbytes in data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=12)):
        ranges.append(memory.Allocation(cursor + gap, nbytes, memory.DEVICE, None))
        cursor += gap + nbytes
    for allocation in data.draw(st.permutations(ranges)):
        insort(table.starts, allocation.address)
        table.allocations[allocation.address] = allocation
    for allocation in list(ranges):
        if data.draw(st.booleans()):
            table.remove(allocation)
            ranges.remove(allocation)
    address = data.draw(st.integers(990, cursor + 10))
    assert table.find(address) is next((r for r in ranges if r.address <= address < r.end), None)


def test_an_arena_beyond_every_address_is_as_large_as_the_system_gives() -> None:
    """An ACLNN_MEMORY_BYTES of 10^23 must not be an OverflowError."""
    assert arena.Arena(10**23, 512).allocate(1 << 20) is not None


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 5000), st.integers(0, 1000)), max_size=60),
    granule=st.sampled_from([512, 4096]),
)
def test_arena_blocks_never_overlap_and_all_come_back(steps: list[tuple[bool, int, int]], granule: int) -> None:
    small = arena.Arena(1 << 16, granule)
    size = small.end - small.base
    live: list[arena.Block] = []
    for take, nbytes, which in steps:
        if take:
            block = small.allocate(nbytes)
            if block is not None:
                assert block.address % granule == 0
                assert block.nbytes >= nbytes
                assert small.base <= block.address
                assert block.address + block.nbytes <= small.end
                assert all(
                    block.address + block.nbytes <= other.address or other.address + other.nbytes <= block.address
                    for other in live
                )
                live.append(block)
        elif live:
            del live[which % len(live)]
    live.clear()
    block = None
    whole = small.allocate(size)
    assert whole is not None
    assert small.allocate(1) is None


def test_freed_addresses_come_back_as_late_as_possible() -> None:
    small = arena.Arena(1 << 16, 512)
    first = small.allocate(512)
    assert first is not None
    address = first.address
    del first
    seen = []
    while (block := small.allocate(512)) is not None and block.address != address:
        seen.append(block.address)
        del block
    assert len(seen) == (small.end - small.base) // 512 - 1


def test_blocks_are_placed_behind_the_last_one_given_out() -> None:
    small = arena.Arena(1 << 16, 512)
    blocks = {}
    while (block := small.allocate(512)) is not None:
        blocks[(block.address - small.base) // 512] = block
    block = None
    del blocks[5]
    blocks[5] = small.allocate(512)
    del blocks[2], blocks[8]
    found = [small.allocate(512) for _ in range(2)]
    assert [(block.address - small.base) // 512 for block in found if block is not None] == [8, 2]


_INTERRUPTED = """
import random, signal, sys, threading, time
from aclnn import cann
from aclnn.runtime import devices, memory

class Stop(BaseException):
    pass

def stop(*_):
    raise Stop

class Owner:
    def __init__(self, nbytes):
        self.address = cann.aclrtMalloc(nbytes)[1]
        self.circle = self
    def __del__(self):
        cann.aclrtFree(self.address)

def work():
    for step in range(1000):
        status, address = cann.aclrtMalloc(random.choice([1, 5000, 3 << 20]))
        Owner(4096)
        if status == 0:
            cann.aclrtFree(address)

def in_thread(context):
    cann.aclrtSetCurrentContext(context)
    while not ended:
        status, address = cann.aclrtMalloc(600)
        if status == 0 and (cann.aclrtMemset(address, 600, 7, 600) or cann.aclrtFree(address)):
            failures.append(cann.aclGetRecentErrMsg())

ended, failures = False, []
assert cann.aclrtSetDevice(0) == 0
budget = devices.current().device.budget
helpers = [threading.Thread(target=in_thread, args=cann.aclrtGetCurrentContext()[1:]) for _ in range(HELPERS)]
for helper in helpers:
    helper.start()
sys.unraisablehook = lambda _: None  # an interrupt in __del__
signal.signal(signal.SIGALRM, stop)
interrupts, end = 0, time.monotonic() + 3
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 4e-4))
        work()
    except Stop:
        interrupts += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        pass
    for address in list(memory._table.current.allocations):
        if not helpers:
            cann.aclrtFree(address)
ended = True
for helper in helpers:
    helper.join()
gone_on = all(cann.aclrtMalloc(nbytes)[0] == 0 for nbytes in (1, 5000, 3 << 20))
live = sum(allocation.charged for allocation in memory._table.current.allocations.values())
print(interrupts > 100, gone_on, budget.used - live, failures)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that interrupt")
@pytest.mark.parametrize("helpers", [0, 2])
def test_interrupts_at_any_place_leave_memory_that_goes_on(helpers: int) -> None:
    """Interrupted allocations must not make later calls raise KeyError or hang."""
    program = _INTERRUPTED.replace("HELPERS", str(helpers))
    environment = os.environ | {"ACLNN_MEMORY_BYTES": str(1 << 34)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "True True 0 []\n", done.stdout + done.stderr


def test_a_finalizer_that_frees_while_its_thread_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread must not deadlock with itself."""
    small = arena.Arena(1 << 16, 512)
    blocks = [small.allocate(512) for _ in range(8)]
    place, within = small._place, []

    def interrupted(need: int) -> int | None:
        del blocks[3]
        small.reclaim()
        within.append(small.allocate(512))
        return place(need)

    with monkeypatch.context() as patch:
        patch.setattr(small, "_place", interrupted)
        blocks.append(small.allocate(512))
    assert within == [None]
    while (block := small.allocate(512)) is not None:
        blocks.append(block)
    assert len({block.address for block in blocks if block is not None}) == (small.end - small.base) // 512


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_an_allocation_that_raises_is_not_charged(
    device: None, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def broken(nbytes: int, huge: bool) -> None:
        raise failure

    monkeypatch.setattr(memory._table.current.arenas, "allocate", broken)
    with pytest.raises(failure):
        malloc(1000)
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES, MEMORY_BYTES)


def test_freed_pages_are_given_back() -> None:
    wide = arena.Arena(1 << 24, 512)
    block = wide.allocate(1 << 22)
    assert block is not None
    ctypes.memset(block.address, 7, block.nbytes)
    address, nbytes = block.address, block.nbytes
    del block
    gc.collect()
    wide.reclaim()
    # A page given back reads as zeros.
    assert not np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).any()


def test_many_threads_allocate_at_once(device: None) -> None:
    barrier = threading.Barrier(8)
    failures: list[object] = []

    def work(seed: int) -> None:
        try:
            cann.aclrtSetDevice(0)
            generator = np.random.default_rng(seed)
            actual: dict[int, tuple[int, int]] = {}
            barrier.wait()
            for _ in range(300):
                nbytes = int(generator.integers(1, 3000))
                address = malloc(nbytes)
                byte = int(generator.integers(256))
                assert cann.aclrtMemset(address, nbytes, byte, nbytes) == 0
                actual[address] = nbytes, byte
                if len(actual) > 20:
                    address = int(generator.choice(list(actual)))
                    nbytes, byte = actual.pop(address)
                    assert read(address, nbytes) == bytes([byte]) * nbytes
                    assert cann.aclrtFree(address) == 0
            for address in actual:
                assert cann.aclrtFree(address) == 0
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == (0, MEMORY_BYTES, MEMORY_BYTES)


def test_two_threads_cannot_both_free(device: None) -> None:
    for _ in range(50):
        address = malloc(64)
        barrier = threading.Barrier(4)
        codes: list[int] = []

        def free(address: int = address, barrier: threading.Barrier = barrier, codes: list[int] = codes) -> None:
            barrier.wait()
            codes.append(cann.aclrtFree(address))

        threads = [threading.Thread(target=free) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, 107000, 107000, 107000]


def test_short_copies_are_below_the_limit() -> None:
    # The stream tests rely on longer copies not running in place.
    assert transfers._SHORT_BYTES < 1 << 22
