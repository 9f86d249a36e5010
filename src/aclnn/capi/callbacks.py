"""aclrtLaunchHostFunc … aclrtProcessHostFunc: host functions called by streams."""

from __future__ import annotations

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, AclnnError
from aclnn.runtime import callbacks, devices
from aclnn.runtime.streams import seconds

_BLOCK_TYPES = ENUMS["aclrtCallbackBlockType"]


def _expect_function(fn: int) -> None:
    if not fn:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "fn: expected a function, got null")


@c_function("aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args)")
def aclrtLaunchHostFunc(stream: int, fn: int, args: int | None) -> None:
    """Queue a call of a host function on a stream."""
    _expect_function(fn)
    callbacks.launch(fn, args or 0, devices.stream_of(stream))


@c_function(
    "aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, "
    "aclrtStream stream)"
)
def aclrtLaunchCallback(fn: int, userData: int | None, blockType: int, stream: int) -> None:
    """Queue a call by the stream's subscribed thread; with ACL_CALLBACK_BLOCK the stream waits until it returns."""
    if blockType not in _BLOCK_TYPES.values():
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"blockType: expected 0 or 1, got {blockType}")
    _expect_function(fn)
    blocks = blockType == _BLOCK_TYPES["ACL_CALLBACK_BLOCK"]
    callbacks.callbacks().report(fn, userData or 0, devices.stream_of(stream), blocks)


@c_function("aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream)")
def aclrtSubscribeReport(threadId: int, stream: int) -> None:
    """Subscribe a thread (``pthread_self``), which calls the functions that aclrtLaunchCallback queues on a stream."""
    callbacks.callbacks().subscribe(threadId, devices.stream_of(stream))


@c_function("aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream)")
def aclrtUnSubscribeReport(threadId: int, stream: int) -> None:
    """Undo aclrtSubscribeReport."""
    callbacks.callbacks().unsubscribe(threadId, devices.stream_of(stream))


@c_function("aclError aclrtProcessReport(int32_t timeout)")
def aclrtProcessReport(timeout: int) -> None:
    """Call the functions due in the calling thread, after waiting for one; timeout in milliseconds, -1 for none."""
    callbacks.callbacks().process(seconds(timeout, code=ACL_ERROR_INVALID_PARAM))


@c_function("aclError aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream)")
def aclrtSubscribeHostFunc(hostFuncThreadId: int, exeStream: int) -> None:
    """Subscribe a thread (``pthread_self``), which replaces the stream's own thread for aclrtLaunchHostFunc."""
    callbacks.host_functions().subscribe(hostFuncThreadId, devices.stream_of(exeStream))


@c_function("aclError aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream)")
def aclrtUnSubscribeHostFunc(hostFuncThreadId: int, exeStream: int) -> None:
    """Undo aclrtSubscribeHostFunc."""
    callbacks.host_functions().unsubscribe(hostFuncThreadId, devices.stream_of(exeStream))


@c_function("aclError aclrtProcessHostFunc(int32_t timeout)")
def aclrtProcessHostFunc(timeout: int) -> None:
    """Call the functions due in the calling thread, after waiting for one; timeout in milliseconds, -1 for none."""
    callbacks.host_functions().process(seconds(timeout, code=ACL_ERROR_INVALID_PARAM))
