"""``libruntime.so``: the layer below ``acl``, which some programs use for memory, contexts and streams."""

from __future__ import annotations

from dataclasses import dataclass

from aclnn.toolkit.abi import Prototype


@dataclass(frozen=True)
class Alias(Prototype):
    """A lower-layer function that forwards to a function of the table."""

    to: str
    """The function that is called."""
    arguments: str
    """Arguments passed on; other parameters are ignored."""


ALIASES = (
    Alias(
        "rtError_t rtCtxCreate(void **context, uint32_t mode, int32_t device)", "aclrtCreateContext", "context, device"
    ),
    Alias("rtError_t rtCtxDestroy(void *context)", "aclrtDestroyContext", "context"),
    Alias("rtError_t rtStreamCreate(void **stream, int32_t priority)", "aclrtCreateStream", "stream"),
    Alias("rtError_t rtStreamDestroy(void *stream)", "aclrtDestroyStream", "stream"),
    Alias("rtError_t rtStreamDestroyForce(void *stream)", "aclrtDestroyStreamForce", "stream"),
    Alias("rtError_t rtStreamSynchronize(void *stream)", "aclrtSynchronizeStream", "stream"),
    Alias(
        "rtError_t rtStreamSynchronizeWithTimeout(void *stream, int32_t timeout)",
        "aclrtSynchronizeStreamWithTimeout",
        "stream, timeout",
    ),
    Alias(
        "rtError_t rtMalloc(void **devPtr, uint64_t size, uint32_t type, uint16_t moduleId)",
        "aclrtMalloc",
        "devPtr, size, 0",
    ),
    Alias("rtError_t rtFree(void *devPtr)", "aclrtFree", "devPtr"),
    Alias(
        "rtError_t rtMemcpy(void *dst, uint64_t destMax, const void *src, uint64_t count, int32_t kind)",
        "aclrtMemcpy",
        "dst, destMax, src, count, kind",
    ),
    Alias("rtError_t rtSetDeviceSatMode(int32_t mode)", "aclrtSetDeviceSatMode", "mode"),
)
