"""aclrtCreateStreamConfigHandle … aclrtGetStreamAvailableNum: stream configurations, and the number of streams left."""

from __future__ import annotations

import ctypes

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function, c_value_function
from aclnn.capi.runtime import create_stream
from aclnn.core.products import Product, current_product
from aclnn.core.status import ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID, AclnnError
from aclnn.runtime import devices, handles, memory

_ATTRIBUTES = ENUMS["aclrtStreamConfigAttr"]
_WORK_ADDRESS, _WORK_BYTES, _FLAG, _PRIORITY = _ATTRIBUTES.values()
_TYPES: dict[int, type[ctypes._SimpleCData[int]]] = {
    _WORK_ADDRESS: ctypes.c_uint64,
    _WORK_BYTES: ctypes.c_size_t,
    _FLAG: ctypes.c_uint32,
    _PRIORITY: ctypes.c_uint32,
}
_MOST_STREAMS = {Product.ATLAS_TRAINING: 2048, Product.ATLAS_INFERENCE: 1024, Product.ATLAS_200I_500_A2: 512}
_MOST_STREAMS_ELSEWHERE = 1984


class Config:
    """``aclrtStreamConfigHandle``."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}


def _config(handle: int) -> Config:
    if not handle:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "handle: expected a configuration of streams, got null")
    config = handles.get(handle, Config)
    if config is None:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"handle: expected a live configuration, got {handles.describe(handle)}"
        )
    return config


@c_value_function("aclrtStreamConfigHandle *aclrtCreateStreamConfigHandle()")
def aclrtCreateStreamConfigHandle() -> int:
    """Create a stream configuration, with flags 0 and priority 0."""
    return handles.insert(Config())


@c_function("aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *handle)", buffers=["handle"])
def aclrtDestroyStreamConfigHandle(handle: int) -> None:
    """Destroy a configuration; streams created with it stay."""
    _config(handle)
    handles.pop(handle, Config)


@c_function(
    "aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, aclrtStreamConfigAttr attr, "
    "const void *attrValue, size_t valueSize)",
    buffers=["handle", "attrValue"],
)
def aclrtSetStreamConfigOpt(handle: int, attr: int, attrValue: int, valueSize: int) -> None:
    """Set flags or priority of a configuration; the attributes of work memory have no effect."""
    config = _config(handle)
    memory.expect_address(attrValue, "attrValue")
    if attr not in _TYPES:
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"attr: expected an aclrtStreamConfigAttr from 0 to {_PRIORITY}, got {attr}"
        )
    c_type = _TYPES[attr]
    if valueSize != ctypes.sizeof(c_type):
        raise AclnnError(
            ACL_ERROR_RT_PARAM_INVALID, f"valueSize: expected {ctypes.sizeof(c_type)} bytes, got {valueSize}"
        )
    memory.check_range(attrValue, valueSize, "attrValue")
    config.values[attr] = c_type.from_address(attrValue).value


@c_function(
    "aclError aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle)", buffers=["handle"]
)
def aclrtCreateStreamV2(handle: int) -> int:
    """Create a stream with a configuration, as aclrtCreateStreamWithConfig does; null for the default one."""
    values = _config(handle).values if handle else {}
    return create_stream(values.get(_PRIORITY, 0), values.get(_FLAG, 0))


@c_function("aclError aclrtGetStreamAvailableNum(uint32_t *streamCount)")
def aclrtGetStreamAvailableNum() -> int:
    """Return how many more streams this process may create: the product's limit minus the existing ones."""
    device = devices.current().device
    streams = sum(len(context.streams) for context in list(device.contexts))
    return max(_MOST_STREAMS.get(current_product(), _MOST_STREAMS_ELSEWHERE) - streams, 0)
