"""Memory by its attributes, where pointers point, and the host's memory for devices."""

from __future__ import annotations

import ctypes
import mmap
import threading
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.core.status import AclnnError
from aclnn.runtime import devices
from tests.helpers.fresh_runtime import MEMORY_BYTES, stream_behind


class Attribute(ctypes.Structure):
    """The struct aclrtMallocAttribute."""

    _fields_ = (("attr", ctypes.c_int32), ("value", ctypes.c_uint32), ("rest", ctypes.c_uint32))


class Config(ctypes.Structure):
    """The struct aclrtMallocConfig."""

    _fields_ = (("attrs", ctypes.c_void_p), ("numAttrs", ctypes.c_size_t))


class Pointer(ctypes.Structure):
    """The struct aclrtPtrAttributes, with its location's fields inlined."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("id", "type", "page")),
        ("rsv", ctypes.c_uint32 * 4),
    )


def at(structure: Any) -> int:
    return ctypes.addressof(structure)


class Configured:
    """An aclrtMallocConfig of some attributes."""

    def __init__(self, *attributes: tuple[int, int]) -> None:
        self.attributes = (Attribute * max(1, len(attributes)))(*[Attribute(*each) for each in attributes])
        self.config = Config(at(self.attributes), len(attributes))

    @property
    def address(self) -> int:
        return at(self.config)


def test_device_memory_may_be_allocated_with_attributes(device: None) -> None:
    both = Configured((cann.ACL_RT_MEM_ATTR_MODULE_ID, 33), (cann.ACL_RT_MEM_ATTR_DEVICE_ID, 0))
    none, empty = Configured(), Config(None, 0)
    for cfg in (None, none.address, at(empty), both.address):
        status, address = cann.aclrtMallocWithCfg(33, 0, cfg)
        assert (status, address % 64) == (0, 0)
        assert cann.aclrtFreeWithDevSync(address) == 0
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)[1] == MEMORY_BYTES
    elsewhere, unknown, nowhere = Configured((2, 1)), Configured((3, 1)), Config(None, 1)
    for size, cfg, code in (
        (0, None, 100000),
        (8, at(nowhere), 100000),
        (8, elsewhere.address, 107000),
        (8, unknown.address, 107000),
        (MEMORY_BYTES + 1, None, 207001),
    ):
        assert cann.aclrtMallocWithCfg(size, 0, cfg) == (code, 0)


def test_host_memory_may_be_allocated_with_attributes(device: None) -> None:
    flagged = Configured((cann.ACL_RT_MEM_ATTR_VA_FLAG, 1), (cann.ACL_RT_MEM_ATTR_MODULE_ID, 33))
    none = Configured()
    for cfg in (None, flagged.address, none.address):
        status, address = cann.aclrtMallocHostWithCfg(33, cfg)
        assert status == 0
        assert cann.aclrtFreeHostWithDevSync(address) == 0
    of_device, nowhere = Configured((2, 0)), Config(None, 0)
    for size, cfg, code in ((0, None, 100000), (8, of_device.address, 107000), (8, at(nowhere), 107000)):
        assert cann.aclrtMallocHostWithCfg(size, cfg) == (code, 0)


def test_memory_by_attributes_needs_a_context(fresh: None) -> None:
    assert cann.aclrtMallocWithCfg(8, 0, None) == cann.aclrtMallocHostWithCfg(8, None) == (107002, 0)


def test_memory_is_freed_when_streams_are_done_with_it(device: None) -> None:
    gate, (_, address), (_, pinned) = threading.Event(), cann.aclrtMalloc(8, 0), cann.aclrtMallocHost(8)
    stream_behind(gate)
    threading.Timer(0.05, gate.set).start()
    assert cann.aclrtFreeWithDevSync(address) == 0
    assert gate.is_set()
    assert cann.aclrtFreeHostWithDevSync(pinned) == 0
    assert cann.aclrtFreeWithDevSync(0) == cann.aclrtFreeHostWithDevSync(0) == 100000
    assert cann.aclrtFreeWithDevSync(address) == cann.aclrtFreeHostWithDevSync(pinned) == 107000


def test_pointer_attributes_state_location_and_device(device: None) -> None:
    assert cann.aclrtSetDevice(1) == 0
    (_, there), (_, pinned), actual = cann.aclrtMalloc(100, 0), cann.aclrtMallocHost(100), ctypes.c_int()
    found = Pointer()
    for address, expected in (
        (there, (1, cann.ACL_MEM_LOCATION_TYPE_DEVICE, mmap.PAGESIZE)),
        (there + 99, (1, cann.ACL_MEM_LOCATION_TYPE_DEVICE, mmap.PAGESIZE)),
        (pinned + 4, (0, cann.ACL_MEM_LOCATION_TYPE_HOST, mmap.PAGESIZE)),
        (there + 100, (0, cann.ACL_MEM_LOCATION_TYPE_UNREGISTERED, 0)),
        (at(actual), (0, cann.ACL_MEM_LOCATION_TYPE_UNREGISTERED, 0)),
    ):
        assert cann.aclrtPointerGetAttributes(address, at(found)) == 0
        assert (found.id, found.type, found.page) == expected
    assert cann.aclrtPointerGetAttributes(0, at(found)) == cann.aclrtPointerGetAttributes(there, 0) == 100000
    assert cann.aclrtMemGetAddressRange(there + 9) == (0, there, 100)
    assert cann.aclrtMemGetAddressRange(0) == (100000, 0, 0)
    assert cann.aclrtMemGetAddressRange(pinned) == cann.aclrtMemGetAddressRange(at(actual)) == (107000, 0, 0)


MAPPED, PINNED = cann.ACL_HOST_REG_MAPPED, cann.ACL_HOST_REG_PINNED


def usable(address: int, nbytes: int = 1) -> bool:
    """Return true if operators of the current device may use memory."""
    try:
        return bool(devices.current().device.resolve(address, nbytes, address))
    except AclnnError:
        return False


@pytest.mark.parametrize("pinned", [False, True])
def test_host_memory_is_registered_for_devices(device: None, pinned: bool) -> None:
    own = np.zeros(100, np.uint8)
    address = cann.aclrtMallocHost(100)[1] if pinned else own.ctypes.data
    for register in (
        lambda: cann.aclrtHostRegister(address, 100, cann.ACL_HOST_REGISTER_MAPPED)[0],
        lambda: cann.aclrtHostRegisterV2(address, 100, MAPPED | PINNED),
    ):
        assert not usable(address)
        assert cann.aclrtHostGetDevicePointer(address) == (107000, 0)
        assert register() == 0
        assert usable(address, 100)
        assert not usable(address, 101)
        assert cann.aclrtHostGetDevicePointer(address + 9, 0) == (0, address + 9)
        assert cann.aclrtHostGetDevicePointer(address, 1) == (100000, 0)
        assert register() == 507910
        assert cann.aclrtMemset(address, 100, 7, 100) == 0
        found = Pointer()
        assert cann.aclrtPointerGetAttributes(address, at(found)) == 0
        assert found.type == cann.ACL_MEM_LOCATION_TYPE_HOST
        assert cann.aclrtHostUnregister(address) == 0
        assert cann.aclrtHostUnregister(address) == 507911
    assert cann.aclrtHostRegisterV2(address, 50, PINNED) == 0
    assert not usable(address), "pinned only"
    assert cann.aclrtHostUnregister(address + 1) == 507911
    assert cann.aclrtHostUnregister(address) == 0
    assert cann.aclrtHostRegister(address, 100, cann.ACL_HOST_REGISTER_MAPPED) == (0, address)
    if pinned:
        assert cann.aclrtFreeHost(address) == 0
        assert not usable(address)
        assert cann.aclrtHostUnregister(address) == 507911
    else:
        assert cann.aclrtFree(address) == cann.aclrtFreeHost(address) == 107000
        assert cann.aclrtHostUnregister(address) == 0
        assert own[0] == 7


def test_copies_go_on_beyond_registered_memory(device: None) -> None:
    """A program may register a part of its memory, and copy that with its surroundings."""
    own, back = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    _, there = cann.aclrtMalloc(64, 0)
    assert cann.aclrtHostRegisterV2(own.ctypes.data + 16, 16, MAPPED) == 0
    assert cann.aclrtMemcpy(there, 64, own.ctypes.data, 64, 1) == 0
    assert cann.aclrtMemcpy(there, 48, own.ctypes.data + 16, 48, 1) == 0
    assert cann.aclrtMemcpy(back.ctypes.data, 48, there, 48, 2) == 0
    assert back[:48].tolist() == list(range(16, 64))


def test_registration_rejects_invalid_memory(device: None) -> None:
    own, (_, there), (_, pinned) = np.zeros(64, np.uint8), cann.aclrtMalloc(64, 0), cann.aclrtMallocHost(64)
    address = own.ctypes.data
    for ptr, size, kind, code in (
        (0, 8, 0, 100000),
        (address, 0, 0, 100000),
        (address, 8, 1, 207000),
        (0, 8, 1, 100000),
        (address, 0, 1, 100000),
        (address, 8, cann.ACL_HOST_REGISTER_IOMEMORY, 207000),
        (there, 8, 0, 107000),
        (there + (1 << 20), 8, 0, 107000),
        (pinned, 65, 0, 107000),
        (0x10, 8, 0, 107000),
    ):
        assert cann.aclrtHostRegister(ptr, size, kind) == (code, 0)
    assert cann.aclrtHostRegisterV2(address + 8, 8, MAPPED) == 0
    assert cann.aclrtHostRegister(address, 16, 0) == (107000, 0), "a part of it is"
    assert cann.aclrtHostRegisterV2(0, 8, 0) == cann.aclrtHostRegisterV2(address, 0, 0) == 100000
    for flags, code in ((0, 107000), (1, 107000), (cann.ACL_HOST_REG_IOMEMORY | MAPPED, 207000)):
        assert cann.aclrtHostRegisterV2(address, 8, flags) == code
    assert cann.aclrtHostUnregister(0) == cann.aclrtHostGetDevicePointer(0)[0] == 100000
