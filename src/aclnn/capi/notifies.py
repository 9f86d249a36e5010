"""aclrtCreateNotify … aclrtValueWait: notifies, and values in memory, that streams wait for."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.prototype import c_function
from aclnn.core.products import CLASS_950, current_product
from aclnn.core.status import (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_PARAM_INVALID,
    AclnnError,
)
from aclnn.runtime import devices, handles, memory, notifies
from aclnn.runtime.notifies import Counter, CountNotify, Notify

_Kind = TypeVar("_Kind", bound=Counter)

_FOREVER = 0, 2**32 - 1
_MOST = 2**32 - 1
_SIGN = 1 << 63
_ALL = 2**64 - 1

_RECORD = ENUMS["aclrtCntNotifyRecordMode"]
_RECORDS: dict[int, Callable[[int, int], int]] = {
    _RECORD["ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE"]: lambda before, given: given,
    _RECORD["ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE"]: lambda before, given: before + given & _MOST,
    _RECORD["ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE"]: lambda before, given: before | given,
    _RECORD["ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE"]: lambda before, given: before & given,
}
_WAIT = ENUMS["aclrtCntNotifyWaitMode"]
_COMPARISONS: dict[int, Callable[[int, int], bool]] = {
    _WAIT["ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE"]: operator.lt,
    _WAIT["ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE"]: operator.eq,
    _WAIT["ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE"]: operator.gt,
    _WAIT["ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE"]: operator.ge,
    _WAIT["ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE"]: lambda count, value: count & value == value,
}
_WAITS: dict[int, Callable[[int, int], bool]] = {
    FLAGS["ACL_STREAM_WAIT_VALUE_GEQ"]: lambda found, given: not (found - given) & _SIGN,
    FLAGS["ACL_STREAM_WAIT_VALUE_EQ"]: lambda found, given: found == given,
    FLAGS["ACL_STREAM_WAIT_VALUE_AND"]: lambda found, given: bool(found & given),
    FLAGS["ACL_STREAM_WAIT_VALUE_NOR"]: lambda found, given: (found | given) != _ALL,
}


def _live(
    handle: int, kind: type[_Kind], argument: str, find: Callable[[int, type[_Kind]], _Kind | None] = handles.get
) -> _Kind:
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{argument}: expected a notify, got null")
    found = find(handle, kind)
    if found is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"{argument}: expected a live notify, got {handles.describe(handle)}"
        )
    return found


def _seconds(timeout: int) -> int | None:
    return None if timeout in _FOREVER else timeout


@c_function("aclError aclrtCreateNotify(aclrtNotify *notify, uint64_t flag)")
def aclrtCreateNotify(flag: int = 0) -> int:
    """Create a notify for use on the host (0) or on the device (1), without a difference here."""
    if flag > FLAGS["ACL_NOTIFY_DEVICE_USE_ONLY"]:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flag: expected 0 or 1, got {flag}")
    devices.current()
    return handles.insert(Notify())


@c_function("aclError aclrtDestroyNotify(aclrtNotify notify)")
def aclrtDestroyNotify(notify: int) -> None:
    """Destroy a notify; queued tasks may still set it and wait for it."""
    _live(notify, Notify, "notify", handles.pop)


@c_function("aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream)")
def aclrtRecordNotify(notify: int, stream: int) -> None:
    """Queue the setting of a notify."""
    _live(notify, Notify, "notify").record(devices.own_stream_of(stream), lambda before: 1)


@c_function("aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout)")
def aclrtWaitAndResetNotify(notify: int, stream: int, timeout: int) -> None:
    """Make the stream wait for a notify and reset it; timeout in seconds, 0 for none."""
    _live(notify, Notify, "notify").wait_for(devices.own_stream_of(stream), bool, limit_s=_seconds(timeout))


@c_function("aclError aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId)")
def aclrtGetNotifyId(notify: int) -> int:
    """Return a notify's number in this process."""
    return _live(notify, Notify, "notify").number


@c_function("aclError aclrtNotifyBatchReset(aclrtNotify *notifies, size_t num)", arrays={"notifies": "num"})
def aclrtNotifyBatchReset(notifies: Sequence[int | None] | None, num: int) -> None:
    """Reset notifies immediately, up to the first invalid one."""
    if notifies is None:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "notifies: expected an array, got null")
    if not num:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "num: expected at least 1, got 0")
    for place, handle in enumerate(notifies):
        _live(handle or 0, Notify, f"notifies[{place}]").change(lambda before: 0)


class _RecordInfo(ctypes.Structure):
    """aclrtCntNotifyRecordInfo."""

    _fields_ = (("mode", ctypes.c_int32), ("value", ctypes.c_uint32))


class _WaitInfo(ctypes.Structure):
    """aclrtCntNotifyWaitInfo."""

    _fields_ = (
        ("mode", ctypes.c_int32),
        ("value", ctypes.c_uint32),
        ("timeout", ctypes.c_uint32),
        ("isClear", ctypes.c_uint8),
        ("rsv", ctypes.c_uint8 * 3),
    )


_Info = TypeVar("_Info", _RecordInfo, _WaitInfo)


def _counted(cnt_notify: int) -> CountNotify:
    """Return the live counting notify of a handle, on products that have them; null is a parameter error."""
    if not cnt_notify:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, "cntNotify: expected a notify, got null")
    _expect_counts()
    return _live(cnt_notify, CountNotify, "cntNotify")


def _expect_counts() -> None:
    if current_product() not in CLASS_950:
        raise AclnnError(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "product: expected one with counting notifies, got another")


def _info(address: int, kind: type[_Info], modes: Container[int]) -> _Info:
    """Read a structure and check its mode."""
    memory.expect_address(address, "info")
    memory.check_range(address, ctypes.sizeof(kind), "info")
    info = kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))
    if info.mode not in modes:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"info: expected a mode of its enumeration, got {info.mode}")
    return info


@c_function("aclError aclrtCntNotifyCreate(aclrtCntNotify *cntNotify, uint64_t flag)")
def aclrtCntNotifyCreate(flag: int = 0) -> int:
    """Create a counting notify, initially 0; 207000 except on products of the Ascend 950 class."""
    if flag:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flag: expected 0, got {flag}")
    devices.current()
    _expect_counts()
    return handles.insert(CountNotify())


@c_function("aclError aclrtCntNotifyDestroy(aclrtCntNotify cntNotify)")
def aclrtCntNotifyDestroy(cntNotify: int) -> None:
    """Destroy a counting notify; queued tasks may still change it and wait for it."""
    _counted(cntNotify)
    _live(cntNotify, CountNotify, "cntNotify", handles.pop)


@c_function(
    "aclError aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyRecordInfo *info)",
    buffers=["info"],
)
def aclrtCntNotifyRecord(cntNotify: int, stream: int, info: int) -> None:
    """Queue an update of a counting notify: set, add, OR or AND a value."""
    given = _info(info, _RecordInfo, _RECORDS)
    change, value = _RECORDS[given.mode], given.value
    _counted(cntNotify).record(devices.own_stream_of(stream), lambda before: change(before, value))


@c_function(
    "aclError aclrtCntNotifyWaitWithTimeout(aclrtCntNotify cntNotify, aclrtStream stream, "
    "aclrtCntNotifyWaitInfo *info)",
    buffers=["info"],
)
def aclrtCntNotifyWaitWithTimeout(cntNotify: int, stream: int, info: int) -> None:
    """Make the stream wait for a comparison of a counting notify with a value; timeout in seconds, 0 for none."""
    given = _info(info, _WaitInfo, _COMPARISONS)
    compare, value = _COMPARISONS[given.mode], given.value
    _counted(cntNotify).wait_for(
        devices.own_stream_of(stream), lambda count: compare(count, value), bool(given.isClear), _seconds(given.timeout)
    )


@c_function("aclError aclrtCntNotifyReset(aclrtCntNotify cntNotify, aclrtStream stream)")
def aclrtCntNotifyReset(cntNotify: int, stream: int) -> None:
    """Queue the reset of a counting notify to 0."""
    _counted(cntNotify).record(devices.own_stream_of(stream), lambda before: 0)


@c_function("aclError aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t *notifyId)")
def aclrtCntNotifyGetId(cntNotify: int) -> int:
    """Return a counting notify's number in this process."""
    return _counted(cntNotify).number


@c_function("aclError aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)")
def aclrtValueWrite(devAddr: int, value: int, flag: int, stream: int) -> None:
    """Queue a write of 64 bits to an 8-byte aligned address."""
    memory.expect_address(devAddr, "devAddr")
    if devAddr % 8:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"devAddr: expected a multiple of 8, got {devAddr:#x}")
    notifies.write_value(devAddr, value, devices.own_stream_of(stream))


@c_function("aclError aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream)")
def aclrtValueWait(devAddr: int, value: int, flag: int, stream: int) -> None:
    """Make the stream wait until 64 bits are ≥ the value (0), equal (1), share a 1 bit (2), or share a 0 bit (3)."""
    memory.expect_address(devAddr, "devAddr")
    if flag not in _WAITS:
        raise AclnnError(ACL_ERROR_RT_PARAM_INVALID, f"flag: expected 0 to 3, got {flag}")
    is_enough = _WAITS[flag]
    notifies.wait_for_value(devAddr, lambda found: is_enough(found, value), devices.own_stream_of(stream))
