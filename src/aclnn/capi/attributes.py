"""aclrtMallocWithCfg … aclrtHostGetDevicePointer: allocation with attributes, and host memory for devices."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.memory import expect_bytes, malloc
from aclnn.capi.prototype import c_function
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, memory

_RESERVED, _MODULE, _DEVICE, _VA_FLAG = ENUMS["aclrtMallocAttrType"].values()
_LOCATIONS = ENUMS["aclrtMemLocationType"]
_REGISTER_TYPES = ENUMS["aclrtHostRegisterType"]
_REGISTER_MAPPED = _REGISTER_TYPES["ACL_HOST_REGISTER_MAPPED"]
_FLAG_MAPPED, _FLAG_PINNED = FLAGS["ACL_HOST_REG_MAPPED"], FLAGS["ACL_HOST_REG_PINNED"]
_FLAGS = sum(bit for name, bit in FLAGS.items() if name.startswith("ACL_HOST_REG_"))


class _Config(ctypes.Structure):
    """aclrtMallocConfig."""

    _fields_ = (("attrs", ctypes.c_void_p), ("numAttrs", ctypes.c_size_t))


class _Attribute(ctypes.Structure):
    """aclrtMallocAttribute, whose value is a union of 8 bytes."""

    _fields_ = (("attr", ctypes.c_int32), ("value", ctypes.c_uint32), ("rest", ctypes.c_uint32))


class _PtrAttributes(ctypes.Structure):
    """aclrtPtrAttributes, with its location member flattened."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("type", ctypes.c_int32),
        ("pageSize", ctypes.c_uint32),
        ("rsv", ctypes.c_uint32 * 4),
    )


def _attributes(cfg: int | None, known: tuple[int, ...]) -> Iterator[_Attribute]:
    """Yield the attributes of a configuration, whose types must be known; null has none."""
    if not cfg:
        return
    memory.check_range(cfg, ctypes.sizeof(_Config), "cfg")
    config = _Config.from_address(cfg)
    address = config.attrs or 0
    memory.check_range(address, config.numAttrs * ctypes.sizeof(_Attribute), "cfg")
    for place in range(config.numAttrs):
        attribute = _Attribute.from_address(address + place * ctypes.sizeof(_Attribute))
        if attribute.attr not in known:
            kinds = " or ".join(map(str, known))
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, f"cfg: expected {kinds} as attrs[{place}].attr, got {attribute.attr}"
            )
        yield attribute


@c_function(
    "aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg)",
    buffers=["cfg"],
)
def aclrtMallocWithCfg(size: int, policy: int = 0, cfg: int | None = None) -> int:
    """Allocate device memory; only the attribute for the device is checked: it must be the current device."""
    if cfg:
        memory.check_range(cfg, ctypes.sizeof(_Config), "cfg")
        config = _Config.from_address(cfg)
        if config.numAttrs and not config.attrs:
            raise AclnnError(ACL_ERROR_INVALID_PARAM, "cfg: expected attrs with numAttrs, got null")
        cfg = cfg if config.numAttrs else None
    expect_bytes(size)
    current = devices.current().device.number
    for attribute in _attributes(cfg, (_RESERVED, _MODULE, _DEVICE)):
        if attribute.attr == _DEVICE and attribute.value != current:
            raise AclnnError(
                ACL_ERROR_RT_PARAM_INVALID, f"cfg: expected the current device {current}, got {attribute.value}"
            )
    return malloc(size, policy, unit=32, extra=0)


@c_function("aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg)", buffers=["cfg"])
def aclrtMallocHostWithCfg(size: int, cfg: int | None = None) -> int:
    """Allocate pinned host memory; the attributes (module and address flag) have no effect."""
    expect_bytes(size)
    for _ in _attributes(cfg, (_MODULE, _VA_FLAG)):
        pass
    devices.current()
    return memory.allocate_host(size).address


@c_function(
    "aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes)", buffers=["attributes"]
)
def aclrtPointerGetAttributes(ptr: int, attributes: int) -> None:
    """Write the type of memory at an address: a device's, pinned host memory, or neither."""
    for name, address in (("ptr", ptr), ("attributes", attributes)):
        memory.expect_address(address, name)
    memory.check_range(attributes, ctypes.sizeof(_PtrAttributes), "attributes")
    allocation = memory.find(ptr)
    device = devices.owner(allocation)
    place = "UNREGISTERED" if allocation is None else "HOST" if device is None else "DEVICE"
    found = _PtrAttributes.from_address(attributes)
    found.id = 0 if device is None else device.number
    found.type = _LOCATIONS[f"ACL_MEM_LOCATION_TYPE_{place}"]
    found.pageSize = 0 if allocation is None else mmap.PAGESIZE


@c_function("aclError aclrtMemGetAddressRange(void *ptr, void **pbase, size_t *psize)", nullable=["pbase", "psize"])
def aclrtMemGetAddressRange(ptr: int) -> tuple[int, int]:
    """Return the start and the bytes of the device allocation around an address."""
    memory.expect_address(ptr, "ptr")
    found = memory.resolve(ptr, 1)
    return found.address, found.nbytes


def _register(ptr: int, size: int, for_devices: bool) -> None:
    devices.current()
    memory.register(ptr, size, for_devices)


@c_function("aclError aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr)")
def aclrtHostRegister(ptr: int, size: int, type: int) -> int:
    """Map host memory for devices at the same address; 207000 for types other than ACL_HOST_REGISTER_MAPPED."""
    memory.expect_address(ptr, "ptr")
    expect_bytes(size)
    if type != _REGISTER_MAPPED:
        raise AclnnError(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"type: expected ACL_HOST_REGISTER_MAPPED (0), got {type}")
    _register(ptr, size, for_devices=True)
    return ptr


@c_function("aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)")
def aclrtHostRegisterV2(ptr: int, size: int, flag: int) -> None:
    """Pin host memory, and map it for devices with ACL_HOST_REG_MAPPED; 207000 for I/O or read-only memory."""
    memory.expect_address(ptr, "ptr")
    expect_bytes(size)
    if not flag or flag & ~_FLAGS:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flag: expected ACL_HOST_REG_… flags, got {flag:#x}")
    if flag & ~(_FLAG_MAPPED | _FLAG_PINNED):
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            f"flag: expected ACL_HOST_REG_MAPPED (0x2) and ACL_HOST_REG_PINNED (0x10000000) or'ed, got {flag:#x}",
        )
    _register(ptr, size, for_devices=bool(flag & _FLAG_MAPPED))


@c_function("aclError aclrtHostUnregister(void *ptr)")
def aclrtHostUnregister(ptr: int) -> None:
    """Unregister host memory, which devices may then no longer use."""
    memory.expect_address(ptr, "ptr")
    memory.unregister(ptr)


@c_function("aclError aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag)")
def aclrtHostGetDevicePointer(pHost: int, flag: int = 0) -> int:
    """Return the device address of registered host memory, which is the host address."""
    memory.expect_address(pHost, "pHost")
    if flag:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"flag: expected 0, got {flag}")
    allocation = memory.find(pHost)
    if allocation is None or not allocation.for_devices:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"pHost: expected memory that is registered for devices, got {pHost:#x}"
        )
    return pHost
