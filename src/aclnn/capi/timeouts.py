"""aclrtSetOpExecuteTimeOut … aclrtGetOpTimeOutInterval: limits of time, which are kept without effect."""

from __future__ import annotations

from aclnn.capi.prototype import c_function
from aclnn.core.products import Product, current_product
from aclnn.support.process import PerProcess

#: What the hardware counts by, in microseconds, so that 254 of them are the documented 1091, 547 and 2176 seconds.
_INTERVAL_US = 4_294_967
_INTERVALS_US = {Product.ATLAS_INFERENCE: 2_147_483, Product.ATLAS_TRAINING: 8_589_934}
_MOST_INTERVALS = 254
_DEFAULT_US = {Product.ATLAS_TRAINING: 68_000_000}

_set = PerProcess[list[int]](list)


def _interval_us() -> int:
    return _INTERVALS_US.get(current_product(), _INTERVAL_US)


def _keep(timeout_us: int) -> int:
    """Keep a limit, 0 for the greatest; what it comes to."""
    interval = _interval_us()
    intervals = min(-(-timeout_us // interval), _MOST_INTERVALS) if timeout_us else _MOST_INTERVALS
    _set.current[:] = [intervals * interval]
    return intervals * interval


@c_function("aclError aclrtSetOpExecuteTimeOut(uint32_t timeout)")
def aclrtSetOpExecuteTimeOut(timeout: int) -> None:
    """Keep a limit in seconds for each task, without effect: no task is ever ended."""
    _keep(timeout * 1_000_000)


@c_function("aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout)")
def aclrtSetOpExecuteTimeOutWithMs(timeout: int) -> None:
    """Keep a limit in milliseconds for each task, without effect."""
    _keep(timeout * 1000)


@c_function("aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout)")
def aclrtSetOpExecuteTimeOutV2(timeout: int) -> int:
    """Keep a limit in microseconds for each task, without effect; what it comes to, a multiple of the interval."""
    return _keep(timeout)


@c_function("aclError aclrtGetOpExecuteTimeout(uint32_t *timeoutMs)")
def aclrtGetOpExecuteTimeout() -> int:
    """The limit of tasks in milliseconds, as it was set, or else the product's."""
    kept = _set.current
    return (kept[0] if kept else _DEFAULT_US.get(current_product(), _MOST_INTERVALS * _interval_us())) // 1000


@c_function("aclError aclrtGetOpTimeOutInterval(uint64_t *interval)")
def aclrtGetOpTimeOutInterval() -> int:
    """The microseconds of which the limits of tasks are multiples."""
    return _interval_us()


@c_function("aclError aclrtSetOpWaitTimeout(uint32_t timeout)")
def aclrtSetOpWaitTimeout(timeout: int) -> None:
    """Take a limit in seconds for each wait for an event, without effect: streams wait as long as it takes."""
