"""Queries of devices, streams and events."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from aclnn import cann
from aclnn.core import products
from tests.helpers.fresh_runtime import MEMORY_BYTES, recent_error, stream_behind


class Utilization(ctypes.Structure):
    """The struct aclrtUtilizationInfo."""

    _fields_ = (("rates", ctypes.c_int32 * 4), ("extend", ctypes.c_void_p))


def at(structure: Any) -> int:
    return ctypes.addressof(structure)


def test_device_properties_are_those_of_the_product(fresh: None) -> None:
    products.set_soc_name("Ascend910B2")
    for attribute, value in (
        (cann.ACL_DEV_ATTR_AICORE_CORE_NUM, 24),
        (cann.ACL_DEV_ATTR_CUBE_CORE_NUM, 24),
        (cann.ACL_DEV_ATTR_VECTOR_CORE_NUM, 48),
        (cann.ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, MEMORY_BYTES),
        (cann.ACL_DEV_ATTR_L2_CACHE_SIZE, 192 << 20),
        (cann.ACL_DEV_ATTR_IS_VIRTUAL, 0),
    ):
        assert cann.aclrtGetDeviceInfo(1, attribute) == (0, value)
    assert cann.aclrtGetDeviceInfo(0, cann.ACL_DEV_ATTR_WARP_SIZE) == (207000, 0)
    assert cann.aclrtGetDeviceInfo(0, 0) == cann.aclrtGetDeviceInfo(0, 999) == (107000, 0)
    assert cann.aclrtGetDeviceInfo(2, 101) == (107001, 0)


def test_device_utilization_and_status_are_reported(fresh: None) -> None:
    rates = Utilization((7,) * 4, None)
    assert cann.aclrtGetDeviceUtilizationRate(1, at(rates)) == 0
    assert [*rates.rates] == [-1] * 4
    assert cann.aclrtGetDeviceUtilizationRate(0, 0) == 100000
    assert cann.aclrtGetDeviceUtilizationRate(2, at(rates)) == 107001
    rates.extend = at(rates)
    assert cann.aclrtGetDeviceUtilizationRate(2, at(rates)) == 100000
    assert "utilizationExtend" in recent_error()
    assert cann.aclrtQueryDeviceStatus(1) == (0, cann.ACL_RT_DEVICE_STATUS_NORMAL)
    assert cann.aclrtQueryDeviceStatus(2) == (107001, 0)
    fault = (ctypes.c_uint8 * 2576)(*[0xFF] * 2576)
    assert cann.aclrtGetErrorVerbose(0, at(fault)) == 0
    assert bytes(fault[:8]) == b"\0\0\xff\xff\0\0\0\0"
    assert cann.aclrtGetErrorVerbose(0, 0) == 100000
    assert cann.aclrtGetErrorVerbose(2, at(fault)) == 107001


def test_schedulers_match_the_document() -> None:
    assert cann.aclrtSetTsDevice(cann.ACL_TS_ID_AICORE) == cann.aclrtSetTsDevice(cann.ACL_TS_ID_AIVECTOR) == 0
    assert cann.aclrtSetTsDevice(cann.ACL_TS_ID_RESERVED) == cann.aclrtSetTsDevice(-1) == 100000


def test_stream_priority_and_flags_are_reported(device: None) -> None:
    assert cann.aclrtDeviceGetStreamPriorityRange() == (0, 7, 0)
    flags = cann.ACL_STREAM_FAST_LAUNCH | cann.ACL_STREAM_HUGE
    (_, plain), (_, hinted) = cann.aclrtCreateStream(), cann.aclrtCreateStreamWithConfig(3, flags | 0x40)
    assert cann.aclrtStreamGetPriority(plain) == cann.aclrtStreamGetFlags(plain) == (0, 0)
    assert cann.aclrtStreamGetPriority(hinted) == (0, 3)
    for given, kept in ((7, 7), (8, 7), (2**31 - 1, 7), (2**31, 0), (2**32 - 1, 0)):
        assert cann.aclrtStreamGetPriority(cann.aclrtCreateStreamWithConfig(given, 0)[1]) == (0, kept)
    assert cann.aclrtStreamGetFlags(hinted) == (0, flags)
    numbers = [cann.aclrtStreamGetId(stream)[1] for stream in (0, plain, hinted)]
    assert len(set(numbers)) == 3
    assert cann.aclrtStreamGetId(plain) == (0, numbers[1])
    for get in (cann.aclrtStreamGetPriority, cann.aclrtStreamGetFlags, cann.aclrtStreamGetId):
        assert get(7) == (107000, 0)


def test_older_calls_set_stream_attributes(device: None) -> None:
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtGetStreamOverflowSwitch(stream) == (0, 0)
    assert cann.aclrtSetStreamOverflowSwitch(stream, 2) == 100000
    assert cann.aclrtSetStreamOverflowSwitch(stream, 1) == 0
    assert cann.aclrtGetStreamOverflowSwitch(stream) == (0, 1)
    value = (ctypes.c_uint32 * 4)()
    assert cann.aclrtGetStreamAttribute(stream, cann.ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, at(value)) == 0
    assert value[0] == 1


def test_event_timestamps_are_in_order(device: None) -> None:
    first, second, bare = (cann.aclrtCreateEventWithFlag(flag)[1] for flag in (8, 8, 1))
    assert cann.aclrtEventGetTimestamp(first) == (507000, 0)
    for event in (first, second, bare):
        assert cann.aclrtRecordEvent(event, 0) == 0
    assert cann.aclrtSynchronizeDevice() == 0
    (_, began), (_, ended) = cann.aclrtEventGetTimestamp(first), cann.aclrtEventGetTimestamp(second)
    _, elapsed = cann.aclrtEventElapsedTime(first, second)
    assert abs(ended - began - elapsed * 1000) <= 1
    assert cann.aclrtEventGetTimestamp(bare) == (107006, 0)
    assert cann.aclrtEventGetTimestamp(0) == (100000, 0)


def test_waiting_for_a_device_has_a_limit(device: None) -> None:
    gate = threading.Event()
    stream_behind(gate)
    assert cann.aclrtSynchronizeDeviceWithTimeout(10) == 507046
    gate.set()
    assert cann.aclrtSynchronizeDeviceWithTimeout(10_000) == cann.aclrtSynchronizeDeviceWithTimeout(-1) == 0
    assert cann.aclrtSynchronizeDeviceWithTimeout(-2) == 107000


def test_kernel_selection_and_dumps_have_no_effect() -> None:
    assert cann.aclnnReselectStaticKernel() == 0
    tensors = (ctypes.c_void_p * 2)()
    assert cann.aclDumpOpTensors("Add", "add", at(tensors), 1, 1, 0x1234) == 0
    for arguments in ((None, "add", at(tensors)), ("Add", None, at(tensors)), ("Add", "add", 0)):
        assert cann.aclDumpOpTensors(*arguments, 1, 1, None) == 161001
