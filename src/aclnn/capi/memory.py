"""aclrtMalloc … aclrtGetMemInfo: device and host memory, copies, fills."""

from __future__ import annotations

from aclnn.capi.prototype import c_function
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, AclnnError
from aclnn.runtime import devices, memory, transfers

_LARGEST = 2**64 - 1
_HUGE_FIRST = 0
# ACL_MEM_MALLOC_NORMAL_ONLY and the same for peers; every other policy, known or not, takes huge pages from 2 MiB on.
_NORMAL_ONLY = (2, 5)


def _malloc(size: int, policy: int, unit: int, extra: int) -> int:
    if size == 0:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "size: expected at least 1 byte, got 0")
    if -(-size // unit) * unit + extra > _LARGEST:
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"size: expected one that can be rounded up to {unit} bytes, got {size}"
        )
    budget = devices.current().device.budget
    return memory.allocate(size, budget, huge=policy not in _NORMAL_ONLY, unit=unit).address


@c_function("aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMalloc(size: int, policy: int = _HUGE_FIRST) -> int:
    """Device memory with undefined contents; its address is a multiple of 64 at least."""
    return _malloc(size, policy, unit=32, extra=32)


@c_function("aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMallocAlign32(size: int, policy: int = _HUGE_FIRST) -> int:
    """Allocate as ``aclrtMalloc`` does, rounding up by at most 32 bytes."""
    return _malloc(size, policy, unit=32, extra=0)


@c_function("aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy)")
def aclrtMallocCached(size: int, policy: int = _HUGE_FIRST) -> int:
    """Allocate as ``aclrtMalloc`` does; host and device see one another's writes at once here."""
    return _malloc(size, policy, unit=32, extra=32)


def _coherent(address: int, nbytes: int) -> None:
    if not address:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "devPtr: expected an address, got null")
    if not nbytes:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "size: expected at least 1 byte, got 0")
    memory.check_range(address, nbytes, "devPtr")


@c_function("aclError aclrtMemFlush(void *devPtr, size_t size)")
def aclrtMemFlush(devPtr: int, size: int) -> None:
    """Make the host's writes visible to the device: they are."""
    _coherent(devPtr, size)


@c_function("aclError aclrtMemInvalidate(void *devPtr, size_t size)")
def aclrtMemInvalidate(devPtr: int, size: int) -> None:
    """Make the device's writes visible to the host: they are."""
    _coherent(devPtr, size)


@c_function("aclError aclrtFree(void *devPtr)")
def aclrtFree(devPtr: int) -> None:
    """Free device memory without waiting; work that is queued keeps what it uses."""
    if not devPtr:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "devPtr: expected an address, got null")
    memory.free(devPtr, "devPtr")


@c_function("aclError aclrtMallocHost(void **hostPtr, size_t size)")
def aclrtMallocHost(size: int) -> int:
    """Pinned host memory, 64-byte aligned."""
    if size == 0:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "size: expected at least 1 byte, got 0")
    return memory.allocate_host(size).address


@c_function("aclError aclrtFreeHost(void *hostPtr)")
def aclrtFreeHost(hostPtr: int) -> None:
    """Free pinned host memory."""
    if not hostPtr:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "hostPtr: expected an address, got null")
    memory.free(hostPtr, "hostPtr", memory.PINNED)


@c_function("aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind)")
def aclrtMemcpy(dst: int, destMax: int, src: int, count: int, kind: int) -> None:
    """Copy, and return when done; overlapping ranges as if through a temporary."""
    transfers.copy(dst, destMax, src, count, kind)


@c_function(
    "aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, "
    "aclrtStream stream)"
)
def aclrtMemcpyAsync(dst: int, destMax: int, src: int, count: int, kind: int, stream: int) -> None:
    """Copy in the stream's order."""
    transfers.copy_async(dst, destMax, src, count, kind, stream)


@c_function("aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count)")
def aclrtMemset(devPtr: int, maxCount: int, value: int, count: int) -> None:
    """Set every byte to the low 8 bits of the value."""
    transfers.fill(devPtr, maxCount, value, count)


@c_function("aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream)")
def aclrtMemsetAsync(devPtr: int, maxCount: int, value: int, count: int, stream: int) -> None:
    """Set bytes in the stream's order."""
    transfers.fill_async(devPtr, maxCount, value, count, stream)


@c_function("aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total)")
def aclrtGetMemInfo(attr: int) -> tuple[int, int]:
    """Free and total bytes of the current device's memory of that kind; 0 and 0 where it has none."""
    return transfers.info(attr)
