"""aclrtMemcpy2d … aclrtMemsetD32Async: copies of rows, batches of copies, fills with 32-bit words."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, memory, transfers
from aclnn.runtime.transfers import Rows

_LOCATIONS = ENUMS["aclrtMemLocationType"]
_ON_DEVICE = _LOCATIONS["ACL_MEM_LOCATION_TYPE_DEVICE"]
_ON_HOST = _LOCATIONS["ACL_MEM_LOCATION_TYPE_HOST"], _LOCATIONS["ACL_MEM_LOCATION_TYPE_HOST_NUMA"]
_NO_COPY = 2**64 - 1
_KINDS = ENUMS["aclrtMemcpyKind"]
_TO_DEVICE, _TO_HOST, _BETWEEN, _DEFAULT = (
    _KINDS[f"ACL_MEMCPY_{name}"] for name in ("HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE", "DEFAULT")
)
_LONGEST_ROW, _MOST_ROWS = 5_000_000, 5 * 1024 * 1024

_CACHES = ENUMS["aclrtCmoType"]


class _Location(ctypes.Structure):
    """aclrtMemLocation."""

    _fields_ = (("id", ctypes.c_uint32), ("type", ctypes.c_int32))


class _BatchAttribute(ctypes.Structure):
    """aclrtMemcpyBatchAttr."""

    _fields_ = (("dst", _Location), ("src", _Location), ("rsv", ctypes.c_uint8 * 16))


def _invalid(name: str, expected: str, got: object, code: int = ACL_ERROR_INVALID_PARAM) -> AclnnError:
    return AclnnError(code, f"{name}: expected {expected}, got {got}")


@c_function(
    "aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src, size_t count, "
    "aclrtMemcpyKind kind, aclrtStream stream)"
)
def aclrtMemcpyAsyncWithCondition(dst: int, destMax: int, src: int, count: int, kind: int, stream: int) -> None:
    """Copy as aclrtMemcpyAsync does, which waits if host memory is not pinned."""
    transfers.copy_async(dst, destMax, src, count, kind, stream)


def _rows(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, kinds: tuple[int, ...]
) -> tuple[Rows, Rows] | None:
    """Check the arguments of a copy of rows; return None if there is nothing to copy."""
    if not width or not height:
        return None
    for name, address in (("dst", dst), ("src", src)):
        memory.expect_address(address, name)
    for name, pitch in (("dpitch", dpitch), ("spitch", spitch)):
        if width > pitch:
            raise _invalid("width", f"at most {name} ({pitch} bytes)", width)
    if kind not in kinds:
        raise _invalid("kind", " or ".join(map(str, kinds)), kind)
    return Rows(dst, dpitch, width, height), Rows(src, spitch, width, height)


@c_function(
    "aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, "
    "aclrtMemcpyKind kind)"
)
def aclrtMemcpy2d(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    """Copy rows whose starts are ``dpitch`` and ``spitch`` bytes apart, synchronously."""
    rows = _rows(dst, dpitch, src, spitch, width, height, kind, (_TO_DEVICE, _TO_HOST, _DEFAULT))
    if rows is not None:
        transfers.copy_rows(*rows)


@c_function(
    "aclError aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, "
    "size_t height, aclrtMemcpyKind kind, aclrtStream stream)"
)
def aclrtMemcpy2dAsync(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    """Queue a copy of rows on a stream."""
    rows = _rows(dst, dpitch, src, spitch, width, height, kind, (_TO_DEVICE, _TO_HOST, _BETWEEN, _DEFAULT))
    if rows is None:
        return
    for name, number, most in (("width", width, _LONGEST_ROW), ("height", height, _MOST_ROWS)):
        if number > most:
            raise _invalid(name, f"at most {most}", number)
    transfers.copy_rows_async(*rows, stream)


def _are_words(ptr: int, nbytes: int, count: int) -> bool:
    """Check the arguments of a fill with words; return False if there is nothing to fill."""
    if not count:
        return False
    memory.expect_address(ptr, "ptr")
    if ptr % 4:
        raise _invalid("ptr", "a multiple of 4", f"{ptr:#x}")
    if 4 * count > nbytes:
        raise _invalid("memSize", f"at least N words ({4 * count} bytes)", nbytes)
    if memory.find(ptr) is None:
        raise _invalid("ptr", "memory that was allocated here", f"{ptr:#x}")
    return True


@c_function("aclError aclrtMemsetD32(void *ptr, size_t memSize, uint32_t value, size_t N)")
def aclrtMemsetD32(ptr: int, memSize: int, value: int, N: int) -> None:
    """Fill memory with a 32-bit word."""
    if _are_words(ptr, memSize, N):
        transfers.fill_words(ptr, value, N)


@c_function("aclError aclrtMemsetD32Async(void *ptr, size_t memSize, uint32_t value, size_t N, aclrtStream stream)")
def aclrtMemsetD32Async(ptr: int, memSize: int, value: int, N: int, stream: int) -> None:
    """Queue a fill with a 32-bit word on a stream."""
    if _are_words(ptr, memSize, N):
        transfers.fill_words_async(ptr, value, N, stream)


@c_function("aclError aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream)")
def aclrtCmoAsync(src: int, size: int, cmoType: int, stream: int) -> None:
    """Queue a prefetch of device memory (0), which has no effect; 207000 for other types."""
    memory.expect_address(src, "src")
    if not size:
        raise _invalid("size", "at least 1 byte", size)
    if cmoType not in _CACHES.values():
        raise _invalid("cmoType", "an aclrtCmoType from 0 to 3", cmoType, ACL_ERROR_RT_PARAM_INVALID)
    if cmoType != _CACHES["ACL_RT_CMO_TYPE_PREFETCH"]:
        raise _invalid("cmoType", "ACL_RT_CMO_TYPE_PREFETCH (0)", cmoType, ACL_ERROR_RT_FEATURE_NOT_SUPPORT)
    transfers.prefetch(src, size, stream)


def _attributes(address: int, indexes: Sequence[int], copies: int) -> list[_BatchAttribute]:
    """Return the attribute of each copy; an attribute covers the copies from its index to the next one's."""
    memory.check_range(address, len(indexes) * ctypes.sizeof(_BatchAttribute), "attrs")
    attributes = (_BatchAttribute * len(indexes)).from_address(address)
    for place, attribute in enumerate(attributes):
        if any(attribute.rsv):
            raise _invalid(f"attrs[{place}]", "zeros as rsv", bytes(attribute.rsv).hex())
    ends = [*indexes[1:], copies]
    if not indexes or indexes[0] != 0 or any(begin >= end for begin, end in zip(indexes, ends, strict=True)):
        expected = f"0 and larger ones, each less than the {copies} copies"
        raise _invalid("attrsIndexes", expected, list(indexes), ACL_ERROR_RT_PARAM_INVALID)
    return [attributes[place] for place, end in enumerate(ends) for _ in range(indexes[place], end)]


def _check_location(name: str, at: int, address: int, nbytes: int, declared: _Location) -> bool:
    """Require memory to be at the location in its attribute; return True for host memory."""
    device = devices.owner(memory.check_range(address, nbytes, f"{name}[{at}]"))
    got = "the host's memory" if device is None else f"device {device.number}'s"
    if not (
        declared.type in _ON_HOST if device is None else (declared.type, declared.id) == (_ON_DEVICE, device.number)
    ):
        expected = f"memory of location type {declared.type} and id {declared.id}"
        raise _invalid(f"{name}[{at}]", expected, f"{address:#x} in {got}", ACL_ERROR_RT_PARAM_INVALID)
    return device is None


def _batch(
    dsts: Sequence[int | None] | None,
    dest_maxs: Sequence[int] | None,
    srcs: Sequence[int | None] | None,
    sizes: Sequence[int] | None,
    count: int,
    attrs: int,
    indexes: Sequence[int] | None,
    fail_index: int,
) -> list[tuple[int, int, int]]:
    """Check the arguments of a batch; return its copies, none if there is nothing to copy.

    On an error, write the index of the invalid copy, or SIZE_MAX if no single copy is at fault.
    """
    memory.expect_address(fail_index, "failIndex")
    memory.check_range(fail_index, ctypes.sizeof(ctypes.c_size_t), "failIndex")
    failed = ctypes.c_size_t.from_address(fail_index)
    failed.value = _NO_COPY
    if sizes is None or not count:
        raise _invalid("sizes", "at least one size", "none")
    if not any(sizes):
        return []
    given = {"dsts": dsts, "destMaxs": dest_maxs, "srcs": srcs, "attrs": attrs or None, "attrsIndexes": indexes}
    for name, value in given.items():
        if value is None:
            raise _invalid(name, "an array", "null")
    copies = [(to or 0, start or 0, size) for to, start, size in zip(dsts or (), srcs or (), sizes, strict=True)]
    for at, (most, size) in enumerate(zip(dest_maxs or (), sizes, strict=True)):
        if size > most:
            raise _invalid(f"destMaxs[{at}]", f"at least its size of {size} bytes", most)
    for at, ((to, start, size), attribute) in enumerate(
        zip(copies, _attributes(attrs, indexes or (), count), strict=True)
    ):
        failed.value = at
        from_host = _check_location("srcs", at, start, size, attribute.src)
        if from_host == _check_location("dsts", at, to, size, attribute.dst):
            expected = "a copy between the host and a device"
            raise _invalid(f"dsts[{at}]", expected, "one within either", ACL_ERROR_RT_PARAM_INVALID)
    failed.value = _NO_COPY
    return copies


_BATCH_V2 = (
    "void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches, aclrtMemcpyBatchAttr *attrs, "
    "size_t *attrsIndexes, size_t numAttrs"
)
_BATCH = f"{_BATCH_V2}, size_t *failIndex"
_COUNTED = dict.fromkeys(("dsts", "destMaxs", "srcs", "sizes"), "numBatches") | {"attrsIndexes": "numAttrs"}


@c_function(f"aclError aclrtMemcpyBatch({_BATCH})", arrays=_COUNTED, buffers=["attrs", "failIndex"])
def aclrtMemcpyBatch(
    dsts: Sequence[int | None] | None,
    destMaxs: Sequence[int] | None,
    srcs: Sequence[int | None] | None,
    sizes: Sequence[int] | None,
    numBatches: int,
    attrs: int,
    attrsIndexes: Sequence[int] | None,
    numAttrs: int,
    failIndex: int,
) -> None:
    """Copy many ranges between host and devices synchronously; on an error, none is copied."""
    transfers.copy_all(_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, failIndex))


@c_function(
    f"aclError aclrtMemcpyBatchAsync({_BATCH}, aclrtStream stream)", arrays=_COUNTED, buffers=["attrs", "failIndex"]
)
def aclrtMemcpyBatchAsync(
    dsts: Sequence[int | None] | None,
    destMaxs: Sequence[int] | None,
    srcs: Sequence[int | None] | None,
    sizes: Sequence[int] | None,
    numBatches: int,
    attrs: int,
    attrsIndexes: Sequence[int] | None,
    numAttrs: int,
    failIndex: int,
    stream: int,
) -> None:
    """Queue copies of many ranges on a stream."""
    transfers.copy_all_async(_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, failIndex), stream)


@c_function(f"aclError aclrtMemcpyBatchV2({_BATCH_V2})", arrays=_COUNTED, buffers=["attrs"])
def aclrtMemcpyBatchV2(
    dsts: Sequence[int | None] | None,
    destMaxs: Sequence[int] | None,
    srcs: Sequence[int | None] | None,
    sizes: Sequence[int] | None,
    numBatches: int,
    attrs: int,
    attrsIndexes: Sequence[int] | None,
    numAttrs: int,
) -> None:
    """Copy as aclrtMemcpyBatch does, without reporting the index of an invalid copy."""
    failed = ctypes.c_size_t()
    at = ctypes.addressof(failed)
    transfers.copy_all(_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, at))


@c_function(f"aclError aclrtMemcpyBatchAsyncV2({_BATCH_V2}, aclrtStream stream)", arrays=_COUNTED, buffers=["attrs"])
def aclrtMemcpyBatchAsyncV2(
    dsts: Sequence[int | None] | None,
    destMaxs: Sequence[int] | None,
    srcs: Sequence[int | None] | None,
    sizes: Sequence[int] | None,
    numBatches: int,
    attrs: int,
    attrsIndexes: Sequence[int] | None,
    numAttrs: int,
    stream: int,
) -> None:
    """Copy as aclrtMemcpyBatchAsync does, without reporting the index of an invalid copy."""
    failed = ctypes.c_size_t()
    at = ctypes.addressof(failed)
    transfers.copy_all_async(_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, at), stream)
