"""torch_npu's task queue in an embedding process: avoids a deadlock with its launch thread.

If TASK_QUEUE_ENABLE is not 0, torch_npu launches operators from its own thread, which needs Python's lock to call this
package. If torch_npu waits for that thread with the lock held, both wait forever. At the end of the process this module
prevents that; in ``torch.npu.empty_cache`` the bridge can only report it.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

from aclnn.capi.prototype import CFunction


def is_used() -> bool:
    """Return True if torch_npu is loaded and launches operators from its own thread."""
    return "torch_npu" in sys.modules and os.environ.get("TASK_QUEUE_ENABLE") != "0"


def noted(function: CFunction, entry: Callable[..., Any], begun: Callable[[], None]) -> Callable[..., Any]:
    """Return the entry point, wrapped to tell the bridge that a call has begun."""
    if function.name.startswith("aclrtMalloc"):
        entry = _registering(entry)

    def call(*values: Any) -> Any:
        begun()
        return entry(*values)

    return call


def _registering(entry: Callable[..., Any]) -> Callable[..., Any]:
    """Empty the queue at exit: the handler, registered at the first allocation, runs before torch_npu's earlier one."""
    registered: list[Callable[[], None]] = []

    def call(*values: Any) -> Any:
        if not registered:
            registered.append(atexit.register(_empty))
        return entry(*values)

    return call


def _empty() -> None:
    npu = sys.modules["torch_npu"].npu
    if npu.is_initialized():
        npu.synchronize()
