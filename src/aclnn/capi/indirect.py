"""aclrtGetMemcpyDescSize … aclrtCheckMemType: copies with addresses in memory, reductions, memory types."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.prototype import c_function
from aclnn.core.dtypes import DataType
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, indirect, memory

_WITHIN = ENUMS["aclrtMemcpyKind"]["ACL_MEMCPY_INNER_DEVICE_TO_DEVICE"]
_REDUCTIONS = ENUMS["aclrtReduceKind"]
_OPERATIONS = dict(zip(_REDUCTIONS.values(), indirect.OPERATIONS, strict=False))
_REDUCED = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.FLOAT16, DataType.FLOAT, DataType.BF16)
_MEM_TYPES = {name: bit for name, bit in FLAGS.items() if name.startswith("ACL_RT_MEM_TYPE_")}
_ON_DEVICE = _MEM_TYPES["ACL_RT_MEM_TYPE_DEV"]


def _expect_within(kind: int) -> None:
    if kind != _WITHIN:
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"kind: expected ACL_MEMCPY_INNER_DEVICE_TO_DEVICE ({_WITHIN}), got {kind}"
        )


@c_function("aclError aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t *descSize)")
def aclrtGetMemcpyDescSize(kind: int) -> int:
    """Return the size of a copy's description in device memory."""
    _expect_within(kind)
    return ctypes.sizeof(indirect.Description)


@c_function(
    "aclError aclrtSetMemcpyDesc(void *desc, aclrtMemcpyKind kind, void *srcAddr, void *dstAddr, size_t count, "
    "void *config)"
)
def aclrtSetMemcpyDesc(desc: int, kind: int, srcAddr: int, dstAddr: int, count: int, config: int | None) -> None:
    """Write the description of a copy within a device synchronously; ``config`` must be null."""
    for name, address in (("desc", desc), ("srcAddr", srcAddr), ("dstAddr", dstAddr)):
        memory.expect_address(address, name)
    _expect_within(kind)
    if config:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"config: expected null, got {config:#x}")
    indirect.describe(desc, srcAddr, dstAddr, count)


@c_function("aclError aclrtMemcpyAsyncWithDesc(void *desc, aclrtMemcpyKind kind, aclrtStream stream)")
def aclrtMemcpyAsyncWithDesc(desc: int, kind: int, stream: int) -> None:
    """Queue the copy given by a description."""
    memory.expect_address(desc, "desc")
    _expect_within(kind)
    indirect.copy_described(desc, stream)


@c_function(
    "aclError aclrtMemcpyAsyncWithOffset(void **dst, size_t destMax, size_t dstDataOffset, const void **src, "
    "size_t count, size_t srcDataOffset, aclrtMemcpyKind kind, aclrtStream stream)",
    buffers=["dst", "src"],
)
def aclrtMemcpyAsyncWithOffset(
    dst: int, destMax: int, dstDataOffset: int, src: int, count: int, srcDataOffset: int, kind: int, stream: int
) -> None:
    """Queue a copy between addresses that are read from device memory at execution, each plus an offset."""
    for name, address in (("dst", dst), ("src", src)):
        memory.expect_address(address, name)
    _expect_within(kind)
    if count > destMax:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"destMax: expected at least count ({count} bytes), got {destMax}")
    indirect.copy_from_bases(dst, dstDataOffset, src, srcDataOffset, count, stream)


@c_function(
    "aclError aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind, aclDataType type, "
    "aclrtStream stream, void *reserve)"
)
def aclrtReduceAsync(
    dst: int, src: int, count: int, kind: int, type: int, stream: int, reserve: int | None = None
) -> None:
    """Queue an elementwise sum, maximum or minimum of source and destination; ``count`` is in bytes."""
    for name, address in (("dst", dst), ("src", src)):
        memory.expect_address(address, name)
    if reserve:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"reserve: expected null, got {reserve:#x}")
    if kind not in _OPERATIONS:
        known = kind in _REDUCTIONS.values()
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT if known else ACL_ERROR_RT_PARAM_INVALID,
            f"kind: expected SUM (10), MAX (11) or MIN (12), got {kind}",
        )
    if type not in _REDUCED:
        names = ", ".join(dtype.c_name for dtype in _REDUCED)
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"type: expected one of {names}, got {type}")
    dtype = DataType(type)
    if not count or count % dtype.itemsize:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"count: expected a positive multiple of {dtype.itemsize} bytes, got {count}"
        )
    indirect.reduce_async(dst, src, count, _OPERATIONS[kind], dtype, stream)


@c_function(
    "aclError aclrtCheckMemType(void **addrList, uint32_t size, uint32_t memType, uint32_t *checkResult, "
    "uint32_t reserve)",
    arrays={"addrList": "size"},
)
def aclrtCheckMemType(addrList: Sequence[int | None] | None, size: int, memType: int, reserve: int = 0) -> int:
    """Return 1 if all addresses are in memory of these types; device memory is ACL_RT_MEM_TYPE_DEV (2) here."""
    if not addrList:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "addrList: expected an address, got none")
    if not memType or memType & ~sum(_MEM_TYPES.values()):
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"memType: expected {', '.join(_MEM_TYPES)} or'ed, got {memType:#x}"
        )
    if reserve:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"reserve: expected 0, got {reserve}")
    are_devices = all(devices.owner(memory.find(address or 0)) for address in addrList)
    return int(are_devices and bool(memType & _ON_DEVICE))
