"""Virtual memory: reserved addresses, memory that is mapped there, and what is rejected."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.runtime.virtual import Physical
from tests.helpers.fresh_runtime import MEMORY_BYTES, recent_error

GRANULE = 1 << 21


class Property(ctypes.Structure):
    """The struct aclrtPhysicalMemProp, with its location's fields inlined."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("handleType", "allocationType", "memAttr", "id", "type")),
        ("reserve", ctypes.c_uint64),
    )


PROPERTY = Property(memAttr=cann.ACL_HBM_MEM_HUGE, type=cann.ACL_MEM_LOCATION_TYPE_DEVICE)


def asked(**changed: int) -> Property:
    found = Property.from_buffer_copy(PROPERTY)
    for name, value in changed.items():
        setattr(found, name, value)
    return found


def at(described: Property = PROPERTY) -> int:
    return ctypes.addressof(described)


def physical(nbytes: int = GRANULE) -> int:
    status, handle = cann.aclrtMallocPhysical(nbytes, at(), 0)
    assert status == 0
    return handle


def reserve(nbytes: int = 4 * GRANULE) -> int:
    status, address = cann.aclrtReserveMemAddress(nbytes, 0, None, 1)
    assert status == 0
    return address


def free_bytes() -> int:
    return cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)[1]


def error_text(answer: Any, code: int) -> str:
    assert (answer if isinstance(answer, int) else answer[0]) == code
    return recent_error()


def fill(address: int, nbytes: int, value: int) -> int:
    return cann.aclrtMemset(address, nbytes, value, nbytes)


def read(address: int, nbytes: int) -> Any:
    array = np.zeros(nbytes, np.uint8)
    assert cann.aclrtMemcpy(array.ctypes.data, nbytes, address, nbytes, cann.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    return array


def test_adjacent_pieces_are_one_allocation(device: None) -> None:
    """A growing pool allocates tensors across several mapped pieces."""
    free, base = free_bytes(), reserve()
    handles = [physical() for _ in range(3)]
    assert free_bytes() == free - 3 * GRANULE
    for place in (0, 2, 1):
        assert cann.aclrtMapMem(base + place * GRANULE, GRANULE, 0, handles[place], 0) == 0
    assert fill(base, 3 * GRANULE, 7) == 0
    assert (read(base + GRANULE - 4, 8) == 7).all()
    assert "beyond" in error_text(fill(base + 3 * GRANULE - 4, 8, 1), 107000)
    assert cann.aclrtUnmapMem(base + GRANULE) == 0
    assert (read(base + GRANULE - 4, 4) == 7).all()
    assert (read(base + 2 * GRANULE, 4) == 7).all()
    assert "live" in error_text(fill(base + GRANULE, 4, 1), 107000)
    assert "beyond" in error_text(fill(base + GRANULE - 4, 8, 1), 107000)
    for place in (0, 2):
        assert cann.aclrtUnmapMem(base + place * GRANULE) == 0
    for handle in handles:
        assert cann.aclrtFreePhysical(handle) == 0
    assert free_bytes() == free
    assert cann.aclrtReleaseMemAddress(base) == 0


def test_mapped_memory_lives_until_it_is_unmapped(device: None) -> None:
    free, base, handle = free_bytes(), reserve(), physical()
    assert cann.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0
    assert cann.aclrtFreePhysical(handle) == 0
    assert free_bytes() == free - GRANULE
    assert fill(base, GRANULE, 1) == 0
    assert cann.aclrtUnmapMem(base) == 0
    assert free_bytes() == free


def test_sizes_are_rounded_up_to_the_granularity(device: None) -> None:
    for option in (cann.ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, cann.ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED):
        assert cann.aclrtMemGetAllocationGranularity(at(), option) == (0, GRANULE)
    free, base, handle = free_bytes(), reserve(), physical(GRANULE + 1)
    assert free_bytes() == free - 2 * GRANULE
    assert cann.aclrtMapMem(base, GRANULE + 1, 0, handle, 0) == 0
    assert fill(base, 2 * GRANULE, 1) == 0


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"handleType": cann.ACL_MEM_HANDLE_TYPE_POSIX}, "handleType"),
        ({"allocationType": 1}, "allocationType"),
        *(({"type": number}, "location.type") for number in (0, 2, 3, 4, 5, -1)),
        *(({"memAttr": number}, "memAttr") for number in (-1, 0, 1, 2, 3, 6, 7, 8, 9, 11, 18)),
    ],
)
def test_unsupported_memory_descriptions_are_rejected(device: None, changed: dict[str, int], name: str) -> None:
    described = asked(**changed)
    assert f"as {name}, got" in error_text(cann.aclrtMallocPhysical(GRANULE, at(described), 0), 100000)
    assert f"as {name}, got" in error_text(cann.aclrtMemGetAllocationGranularity(at(described), 0), 100000)


def test_memory_with_every_attribute_that_a_device_has(device: None) -> None:
    for attribute in (4, 5, 10, *range(12, 18)):
        described = asked(memAttr=attribute)
        status, handle = cann.aclrtMallocPhysical(GRANULE, at(described), 0)
        assert (status, cann.aclrtFreePhysical(handle)) == (0, 0)


def test_invalid_arguments_are_rejected(device: None) -> None:
    base, handle, other = reserve(), physical(), physical()
    elsewhere = asked(id=7)
    assert "free of the device's" in error_text(cann.aclrtMallocPhysical(MEMORY_BYTES + GRANULE, at(), 0), 207001)
    for call, code, text in (
        (lambda: cann.aclrtMemGetAllocationGranularity(0, 0), 100000, "prop: expected an address"),
        (lambda: cann.aclrtMallocPhysical(1, 0x5AC1_0000_0000_0000, 0), 107000, "prop: expected live memory"),
        (lambda: cann.aclrtMemGetAllocationGranularity(at(), 5), 100000, "option: expected 0 or 1, got 5"),
        (lambda: cann.aclrtMallocPhysical(0, at(), 0), 100000, "size: expected from 1"),
        (lambda: cann.aclrtMallocPhysical(1, at(), 1), 100000, "flags: expected 0, got 1"),
        (lambda: cann.aclrtMallocPhysical(1, at(elsewhere), 0), 107001, "device"),
        (lambda: cann.aclrtReserveMemAddress(GRANULE, 64, None, 0), 100000, "alignment: expected 0"),
        (lambda: cann.aclrtReserveMemAddress(GRANULE, 0, None, 2), 100000, "flags: expected 0 or 1, got 2"),
        (lambda: cann.aclrtMapMem(base, 0, 0, handle, 0), 100000, "size: expected at least 1 byte, got 0"),
        (lambda: cann.aclrtMapMem(base, GRANULE, 0, 0, 0), 100000, "handle: expected one from aclrtMallocPhysical"),
        (lambda: cann.aclrtReserveMemAddress(1 << 60, 0, None, 0), 207001, "size: expected at most"),
        (lambda: cann.aclrtMapMem(base, GRANULE, GRANULE, handle, 0), 100000, "offset: expected 0"),
        (lambda: cann.aclrtMapMem(base, 2 * GRANULE, 0, handle, 0), 107000, "size: expected 2097152"),
        (lambda: cann.aclrtMapMem(base + 4096, GRANULE, 0, handle, 0), 107000, "virPtr: expected a multiple"),
        (lambda: cann.aclrtMapMem(base + 4 * GRANULE, GRANULE, 0, handle, 0), 107000, "virPtr: expected a multiple"),
        (
            lambda: cann.aclrtMapMem(base, GRANULE, 0, 0x1234, 0),
            107000,
            "handle: expected one from aclrtMallocPhysical",
        ),
        (lambda: cann.aclrtUnmapMem(base), 107000, "virPtr: expected an address at which memory is mapped"),
        (
            lambda: cann.aclrtReleaseMemAddress(base + 64),
            107000,
            "virPtr: expected an address from aclrtReserveMemAddress",
        ),
        (lambda: cann.aclrtFreePhysical(0), 100000, "handle: expected one from aclrtMallocPhysical, got null"),
    ):
        assert text in error_text(call(), code)
    assert cann.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0
    assert "without mapped memory" in error_text(cann.aclrtMapMem(base, GRANULE, 0, other, 0), 107000)
    assert "without mapped memory" in error_text(cann.aclrtReleaseMemAddress(base), 107000)
    assert cann.aclrtUnmapMem(base) == 0
    assert "never mapped" in error_text(cann.aclrtMapMem(base, GRANULE, 0, handle, 0), 107000)


@pytest.mark.parametrize("first", [0, 1])
def test_two_reservations_do_not_overlap(device: None, first: int) -> None:
    """Reservations are separate even if their addresses are adjacent."""
    bases = sorted((reserve(GRANULE), reserve(GRANULE)))
    for place in (first, 1 - first):
        assert cann.aclrtMapMem(bases[place], GRANULE, 0, physical(), 0) == 0
    if bases[1] == bases[0] + GRANULE:
        assert "beyond" in error_text(fill(bases[0], 2 * GRANULE, 1), 107000)


def test_mapped_memory_is_not_freed_by_its_address(device: None) -> None:
    base, handle = reserve(), physical()
    assert cann.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0
    text = error_text(cann.aclrtFree(base), 107000)
    assert "expected the address of a live device allocation" in text
    assert "0 bytes into mapped memory" in text
    assert fill(base, GRANULE, 1) == 0
    assert cann.aclrtUnmapMem(base) == 0
    assert "mapped memory" in error_text(fill(base, GRANULE, 1), 107000)
    assert cann.aclrtReleaseMemAddress(base) == 0


def test_bytes_come_back_once_when_memory_is_freed_and_unmapped_at_once(
    device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, base, handle = free_bytes(), reserve(), physical()
    assert cann.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0
    both, release = threading.Barrier(2), Physical.release

    def released(of: Physical) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        release(of)

    monkeypatch.setattr(Physical, "release", released)
    threads = [
        threading.Thread(target=call, args=(given,))
        for call, given in ((cann.aclrtFreePhysical, handle), (cann.aclrtUnmapMem, base))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert free_bytes() == free
