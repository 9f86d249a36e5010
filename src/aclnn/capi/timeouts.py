"""aclrtSetOpExecuteTimeOut … aclrtGetOpTimeOutInterval: timeouts, which are stored without effect."""

from __future__ import annotations

from aclnn.capi.prototype import c_function
from aclnn.core.products import Product, current_product
from aclnn.support.process import PerProcess

#: Unit of the hardware's timer in microseconds: 254 units are the documented 1091, 547 and 2176 seconds.
_INTERVAL_US = 4_294_967
_INTERVALS_US = {Product.ATLAS_INFERENCE: 2_147_483, Product.ATLAS_TRAINING: 8_589_934}
_MOST_INTERVALS = 254
_DEFAULT_US = {Product.ATLAS_TRAINING: 68_000_000}

_set = PerProcess[list[int]](list)


def _interval_us() -> int:
    return _INTERVALS_US.get(current_product(), _INTERVAL_US)


def _keep(timeout_us: int) -> int:
    """Store a timeout, 0 for the maximum; return it rounded to the interval."""
    interval = _interval_us()
    intervals = min(-(-timeout_us // interval), _MOST_INTERVALS) if timeout_us else _MOST_INTERVALS
    _set.current[:] = [intervals * interval]
    return intervals * interval


@c_function("aclError aclrtSetOpExecuteTimeOut(uint32_t timeout)")
def aclrtSetOpExecuteTimeOut(timeout: int) -> None:
    """Set a timeout in seconds for each task, without effect: no task is ever ended."""
    _keep(timeout * 1_000_000)


@c_function("aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout)")
def aclrtSetOpExecuteTimeOutWithMs(timeout: int) -> None:
    """Set a timeout in milliseconds for each task, without effect."""
    _keep(timeout * 1000)


@c_function("aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout)")
def aclrtSetOpExecuteTimeOutV2(timeout: int) -> int:
    """Set a timeout in microseconds for each task, without effect; return it rounded up to whole intervals."""
    return _keep(timeout)


@c_function("aclError aclrtGetOpExecuteTimeout(uint32_t *timeoutMs)")
def aclrtGetOpExecuteTimeout() -> int:
    """Return the timeout of tasks in milliseconds, by default the product's."""
    kept = _set.current
    return (kept[0] if kept else _DEFAULT_US.get(current_product(), _MOST_INTERVALS * _interval_us())) // 1000


@c_function("aclError aclrtGetOpTimeOutInterval(uint64_t *interval)")
def aclrtGetOpTimeOutInterval() -> int:
    """Return the interval in microseconds of which timeouts are multiples."""
    return _interval_us()


@c_function("aclError aclrtSetOpWaitTimeout(uint32_t timeout)")
def aclrtSetOpWaitTimeout(timeout: int) -> None:
    """Accept a timeout in seconds for waits for events, without effect: streams wait without limit."""
