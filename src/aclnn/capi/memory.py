"""aclrtMalloc … aclrtGetMemInfo: device, host and virtual memory, copies, fills."""

from __future__ import annotations

import ctypes
import re

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, AclnnError
from aclnn.runtime import devices, memory, transfers, virtual

_LARGEST = 2**64 - 1
_POLICIES = ENUMS["aclrtMemMallocPolicy"]
_HUGE_FIRST = _POLICIES["ACL_MEM_MALLOC_HUGE_FIRST"]
# All other policies, known or not, use huge pages from 2 MiB on.
_NORMAL_ONLY = _POLICIES["ACL_MEM_MALLOC_NORMAL_ONLY"], _POLICIES["ACL_MEM_MALLOC_NORMAL_ONLY_P2P"]
#: Valid properties of physical memory. The memory attributes of peers and of DDR denote no memory of a device.
_ASKED = {
    "handleType": (ENUMS["aclrtMemHandleType"]["ACL_MEM_HANDLE_TYPE_NONE"],),
    "allocationType": (ENUMS["aclrtMemAllocationType"]["ACL_MEM_ALLOCATION_TYPE_PINNED"],),
    "location.type": (ENUMS["aclrtMemLocationType"]["ACL_MEM_LOCATION_TYPE_DEVICE"],),
    "memAttr": tuple(
        number for name, number in ENUMS["aclrtMemAttr"].items() if re.fullmatch("ACL_(HBM_MEM_[HN].*|MEM_.*)", name)
    ),
}
_GRANULARITIES = range(ENUMS["aclrtMemGranularityOptions"]["ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED"] + 1)


def expect_bytes(size: int) -> None:
    """Reject a size of 0.

    Raises:
        AclnnError: 100000.
    """
    if size == 0:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "size: expected at least 1 byte, got 0")


def malloc(size: int, policy: int, unit: int, extra: int) -> int:
    """Allocate device memory and return its address; the size plus ``extra`` must fit C's size_t.

    Raises:
        AclnnError: 100000, the size is 0 or too large; 107002; 207001, not enough memory is left.
    """
    expect_bytes(size)
    if -(-size // unit) * unit + extra > _LARGEST:
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"size: expected one that can be rounded up to {unit} bytes, got {size}"
        )
    budget = devices.current().device.budget
    return memory.allocate(size, budget, huge=policy not in _NORMAL_ONLY, unit=unit).address


@c_function("aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMalloc(size: int, policy: int = _HUGE_FIRST) -> int:
    """Allocate device memory with undefined contents, at least 64-byte aligned."""
    return malloc(size, policy, unit=32, extra=32)


@c_function("aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMallocAlign32(size: int, policy: int = _HUGE_FIRST) -> int:
    """Allocate as ``aclrtMalloc`` does, with less padding: at most 32 bytes."""
    return malloc(size, policy, unit=32, extra=0)


@c_function("aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMallocCached(size: int, policy: int = _HUGE_FIRST) -> int:
    """Allocate as ``aclrtMalloc`` does; host and device memory are always coherent here."""
    return malloc(size, policy, unit=32, extra=32)


def _coherent(address: int, nbytes: int) -> None:
    memory.expect_address(address, "devPtr")
    expect_bytes(nbytes)
    memory.check_range(address, nbytes, "devPtr")


@c_function("aclError aclrtMemFlush(void *devPtr, size_t size)")
def aclrtMemFlush(devPtr: int, size: int) -> None:
    """Make the host's writes visible to the device, as they are already."""
    _coherent(devPtr, size)


@c_function("aclError aclrtMemInvalidate(void *devPtr, size_t size)")
def aclrtMemInvalidate(devPtr: int, size: int) -> None:
    """Make the device's writes visible to the host, as they are already."""
    _coherent(devPtr, size)


@c_function("aclError aclrtFree(void *devPtr)")
def aclrtFree(devPtr: int) -> None:
    """Free device memory without waiting; queued tasks keep the memory they use."""
    memory.expect_address(devPtr, "devPtr")
    memory.free(devPtr, "devPtr")


@c_function("aclError aclrtFreeWithDevSync(void *devPtr)")
def aclrtFreeWithDevSync(devPtr: int) -> None:
    """Wait for every stream of the current device, then free device memory."""
    memory.expect_address(devPtr, "devPtr")
    devices.synchronize_device()
    memory.free(devPtr, "devPtr")


@c_function("aclError aclrtMallocHost(void **hostPtr, size_t size)")
def aclrtMallocHost(size: int) -> int:
    """Allocate pinned host memory, 64-byte aligned."""
    expect_bytes(size)
    return memory.allocate_host(size).address


@c_function("aclError aclrtFreeHost(void *hostPtr)")
def aclrtFreeHost(hostPtr: int) -> None:
    """Free pinned host memory."""
    memory.expect_address(hostPtr, "hostPtr")
    memory.free(hostPtr, "hostPtr", memory.PINNED)


@c_function("aclError aclrtFreeHostWithDevSync(void *hostPtr)")
def aclrtFreeHostWithDevSync(hostPtr: int) -> None:
    """Wait for every stream of the current device, then free pinned host memory."""
    memory.expect_address(hostPtr, "hostPtr")
    devices.synchronize_device()
    memory.free(hostPtr, "hostPtr", memory.PINNED)


class _Property(ctypes.Structure):
    """aclrtPhysicalMemProp."""

    _fields_ = (
        ("handleType", ctypes.c_int32),
        ("allocationType", ctypes.c_int32),
        ("memAttr", ctypes.c_int32),
        ("id", ctypes.c_uint32),
        ("type", ctypes.c_int32),
        ("reserve", ctypes.c_uint64),
    )


def _device(prop: int) -> devices.Device:
    """Return the device of a description of physical memory."""
    memory.expect_address(prop, "prop")
    memory.check_range(prop, ctypes.sizeof(_Property), "prop")
    described = _Property.from_address(prop)
    for name, known in _ASKED.items():
        got = getattr(described, name.rpartition(".")[2])
        if got not in known:
            raise AclnnError(
                ACL_ERROR_INVALID_PARAM, f"prop: expected {' or '.join(map(str, known))} as {name}, got {got}"
            )
    return devices.numbered(described.id, "prop")


def _reserved(**given: int) -> None:
    """Require reserved parameters to be 0."""
    for name, value in given.items():
        if value:
            raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{name}: expected 0, got {value}")


def _expect_handle(handle: int) -> None:
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "handle: expected one from aclrtMallocPhysical, got null")


def _sized(size: int) -> None:
    if not 0 < size <= _LARGEST - virtual.GRANULE:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"size: expected from 1 to {_LARGEST - virtual.GRANULE}, got {size}")


@c_function(
    "aclError aclrtMemGetAllocationGranularity("
    "aclrtPhysicalMemProp *prop, aclrtMemGranularityOptions option, size_t *granularity)",
    buffers=["prop"],
)
def aclrtMemGetAllocationGranularity(prop: int, option: int) -> int:
    """Return the granularity of sizes and addresses of virtual memory: 2 MiB."""
    _device(prop)
    if option not in _GRANULARITIES:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"option: expected 0 or 1, got {option}")
    return virtual.GRANULE


@c_function(
    "aclError aclrtMallocPhysical("
    "aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags)",
    buffers=["prop"],
)
def aclrtMallocPhysical(size: int, prop: int, flags: int = 0) -> int:
    """Allocate device memory without an address."""
    _sized(size)
    _reserved(flags=flags)
    return virtual.allocate(size, _device(prop).budget)


@c_function("aclError aclrtFreePhysical(aclrtDrvMemHandle handle)")
def aclrtFreePhysical(handle: int) -> None:
    """Free physical memory; mapped memory stays usable until it is unmapped."""
    _expect_handle(handle)
    virtual.free(handle)


@c_function(
    "aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr, uint64_t flags)"
)
def aclrtReserveMemAddress(size: int, alignment: int = 0, expectPtr: int | None = None, flags: int = 0) -> int:
    """Reserve addresses for mappings, which takes no memory. ``flags``: 1 for huge pages."""
    _sized(size)
    _reserved(alignment=alignment, expectPtr=expectPtr or 0)
    if flags > 1:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"flags: expected 0 or 1, got {flags}")
    return virtual.reserve(size)


@c_function("aclError aclrtReleaseMemAddress(void *virPtr)")
def aclrtReleaseMemAddress(virPtr: int) -> None:
    """Release reserved addresses, at which nothing may be mapped."""
    memory.expect_address(virPtr, "virPtr")
    virtual.release(virPtr)


@c_function("aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)")
def aclrtMapMem(virPtr: int, size: int, offset: int, handle: int, flags: int = 0) -> None:
    """Map all of a physical memory at reserved addresses; only once, since its contents belong to the address here."""
    memory.expect_address(virPtr, "virPtr")
    expect_bytes(size)
    _expect_handle(handle)
    _reserved(offset=offset, flags=flags)
    virtual.map_memory(virPtr, size, handle)


@c_function("aclError aclrtUnmapMem(void *virPtr)")
def aclrtUnmapMem(virPtr: int) -> None:
    """Unmap the memory at an address."""
    memory.expect_address(virPtr, "virPtr")
    virtual.unmap(virPtr)


@c_function("aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind)")
def aclrtMemcpy(dst: int, destMax: int, src: int, count: int, kind: int) -> None:
    """Copy synchronously; ranges may overlap."""
    transfers.copy(dst, destMax, src, count, kind)


@c_function(
    "aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, "
    "aclrtStream stream)"
)
def aclrtMemcpyAsync(dst: int, destMax: int, src: int, count: int, kind: int, stream: int) -> None:
    """Queue a copy on a stream."""
    transfers.copy_async(dst, destMax, src, count, kind, stream)


@c_function("aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count)")
def aclrtMemset(devPtr: int, maxCount: int, value: int, count: int) -> None:
    """Set every byte to the low 8 bits of the value."""
    transfers.fill(devPtr, maxCount, value, count)


@c_function("aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream)")
def aclrtMemsetAsync(devPtr: int, maxCount: int, value: int, count: int, stream: int) -> None:
    """Queue a fill on a stream."""
    transfers.fill_async(devPtr, maxCount, value, count, stream)


@c_function("aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total)")
def aclrtGetMemInfo(attr: int) -> tuple[int, int]:
    """Return free and total bytes of the current device's memory of that kind; 0 and 0 if it has none."""
    return transfers.info(attr)
