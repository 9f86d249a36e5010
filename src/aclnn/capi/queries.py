"""aclrtGetDeviceInfo … aclrtSetTsDevice: attributes and state of devices."""

from __future__ import annotations

import ctypes

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.capi.system import published
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, memory
from aclnn.runtime.streams import GREATEST_PRIORITY, LEAST_PRIORITY

_ATTRIBUTES = ENUMS["aclrtDevAttr"]
_INFO = ENUMS["aclDeviceInfo"]
#: Known attributes of a product, as indices of aclGetDeviceCapability.
_PUBLISHED = {
    _ATTRIBUTES["ACL_DEV_ATTR_AICORE_CORE_NUM"]: _INFO["ACL_DEVICE_INFO_AI_CORE_NUM"],
    _ATTRIBUTES["ACL_DEV_ATTR_CUBE_CORE_NUM"]: _INFO["ACL_DEVICE_INFO_AI_CORE_NUM"],
    _ATTRIBUTES["ACL_DEV_ATTR_VECTOR_CORE_NUM"]: _INFO["ACL_DEVICE_INFO_VECTOR_CORE_NUM"],
    _ATTRIBUTES["ACL_DEV_ATTR_L2_CACHE_SIZE"]: _INFO["ACL_DEVICE_INFO_L2_SIZE"],
}
_NORMAL = ENUMS["aclrtDeviceStatus"]["ACL_RT_DEVICE_STATUS_NORMAL"]
_SCHEDULERS = ENUMS["aclrtTsId"]["ACL_TS_ID_AICORE"], ENUMS["aclrtTsId"]["ACL_TS_ID_AIVECTOR"]
_NOT_MEASURED = -1


class _Utilization(ctypes.Structure):
    """aclrtUtilizationInfo."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("cube", "vector", "aicpu", "memory")),
        ("extend", ctypes.c_void_p),
    )


class _ErrorInfo(ctypes.Structure):
    """aclrtErrorInfo, up to the fields that are set without an error."""

    _fields_ = (
        ("tryRepair", ctypes.c_uint8),
        ("hasDetail", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 2),
        ("errorType", ctypes.c_int32),
    )


@c_function("aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value)")
def aclrtGetDeviceInfo(deviceId: int, attr: int) -> int:
    """Return core counts, sizes of L2 cache and memory, or 0 for an undivided device; 207000 for other attributes."""
    device = devices.numbered(deviceId, "deviceId")
    if attr not in _ATTRIBUTES.values():
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"attr: expected an aclrtDevAttr, got {attr}")
    if attr in _PUBLISHED:
        return published(_PUBLISHED[attr], "attr")
    known = {
        _ATTRIBUTES["ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE"]: device.budget.total,
        _ATTRIBUTES["ACL_DEV_ATTR_IS_VIRTUAL"]: 0,
    }
    if attr not in known:
        raise AclnnError(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"attr: expected one that is known here, got {attr}")
    return known[attr]


@c_function(
    "aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo)",
    buffers=["utilizationInfo"],
)
def aclrtGetDeviceUtilizationRate(deviceId: int, utilizationInfo: int) -> None:
    """Write -1, not measured, for each unit of a device."""
    memory.expect_address(utilizationInfo, "utilizationInfo")
    memory.check_range(utilizationInfo, ctypes.sizeof(_Utilization), "utilizationInfo")
    found = _Utilization.from_address(utilizationInfo)
    if found.extend:
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"utilizationInfo: expected null as utilizationExtend, got {found.extend:#x}"
        )
    devices.numbered(deviceId, "deviceId")
    found.cube = found.vector = found.aicpu = found.memory = _NOT_MEASURED


@c_function("aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus)")
def aclrtQueryDeviceStatus(deviceId: int) -> int:
    """Return ACL_RT_DEVICE_STATUS_NORMAL."""
    devices.numbered(deviceId, "deviceId")
    return _NORMAL


@c_function("aclError aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo *errorInfo)", buffers=["errorInfo"])
def aclrtGetErrorVerbose(deviceId: int, errorInfo: int) -> None:
    """Write that a device has no error: ACL_RT_NO_ERROR, nothing to repair, no detail."""
    memory.expect_address(errorInfo, "errorInfo")
    memory.check_range(errorInfo, ctypes.sizeof(_ErrorInfo), "errorInfo")
    devices.numbered(deviceId, "deviceId")
    found = _ErrorInfo.from_address(errorInfo)
    found.tryRepair = found.hasDetail = found.errorType = 0


@c_function(
    "aclError aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority)",
    nullable=["leastPriority", "greatestPriority"],
)
def aclrtDeviceGetStreamPriorityRange() -> tuple[int, int]:
    """Return the least and the greatest stream priority, 7 and 0; smaller numbers are more urgent."""
    devices.current()
    return LEAST_PRIORITY, GREATEST_PRIORITY


@c_function("aclError aclrtSetTsDevice(aclrtTsId tsId)")
def aclrtSetTsDevice(tsId: int) -> None:
    """Select AI cores (0) or vector cores (1) for tasks, without effect."""
    if tsId not in _SCHEDULERS:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"tsId: expected 0 or 1, got {tsId}")
