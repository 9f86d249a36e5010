"""aclrtGetLogicDevIdByUserDevId … aclrtDeviceGetByPCIBusId: numbers and names of a device."""

from __future__ import annotations

import ctypes
import socket
import uuid

from aclnn.capi.prototype import c_function
from aclnn.core.status import ACL_ERROR_RT_FEATURE_NOT_SUPPORT, AclnnError
from aclnn.runtime import devices, memory

_SPACE = uuid.UUID("6c2f6ac6-6b0e-5f0c-9c55-1f5c2f0f6a11")
_UUID_BYTES = 16


@c_function("aclError aclrtGetLogicDevIdByUserDevId(int32_t userDevid, int32_t * logicDevId)")
def aclrtGetLogicDevIdByUserDevId(userDevid: int) -> int:
    """Return the same number, since every device is visible."""
    return devices.numbered(userDevid, "userDevid").number


@c_function("aclError aclrtGetUserDevIdByLogicDevId(int32_t logicDevId, int32_t * userDevid)")
def aclrtGetUserDevIdByLogicDevId(logicDevId: int) -> int:
    """Return the same number, since every device is visible."""
    return devices.numbered(logicDevId, "logicDevId").number


@c_function("aclError aclrtGetPhyDevIdByUserDevId(int32_t userDevId, int32_t * phyDevId)")
def aclrtGetPhyDevIdByUserDevId(userDevId: int) -> int:
    """Return the same number, since every device is visible."""
    return devices.numbered(userDevId, "userDevId").number


@c_function("aclError aclrtGetUserDevIdByPhyDevId(int32_t phyDevId, int32_t * userDevId)")
def aclrtGetUserDevIdByPhyDevId(phyDevId: int) -> int:
    """Return the same number, since every device is visible."""
    return devices.numbered(phyDevId, "phyDevId").number


@c_function("aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid)", buffers=["uuid"])
def aclrtDeviceGetUuid(deviceId: int, uuid: int) -> None:
    """Write 16 bytes that identify a device, the same in every process on this machine."""
    device = devices.numbered(deviceId, "deviceId")
    memory.expect_address(uuid, "uuid")
    memory.check_range(uuid, _UUID_BYTES, "uuid")
    ctypes.memmove(uuid, _name_of(device.number), _UUID_BYTES)


def _name_of(number: int) -> bytes:
    return uuid.uuid5(_SPACE, f"{socket.gethostname()}/{number}").bytes


def _no_bus() -> AclnnError:
    return AclnnError(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "expected a device on a PCI bus, got one that is on none")


@c_function("aclError aclrtDeviceGetPCIBusId(int32_t deviceId, char *pciBusId, int32_t len)", buffers=["pciBusId"])
def aclrtDeviceGetPCIBusId(deviceId: int, pciBusId: int, len: int) -> None:
    """Fail with 207000: the device is not on a PCI bus."""
    devices.numbered(deviceId, "deviceId")
    memory.expect_address(pciBusId, "pciBusId")
    raise _no_bus()


@c_function("aclError aclrtDeviceGetByPCIBusId(const char *pciBusId, int32_t *deviceId)")
def aclrtDeviceGetByPCIBusId(pciBusId: str | None) -> int:
    """Fail with 207000: no device is on a PCI bus."""
    raise _no_bus()
