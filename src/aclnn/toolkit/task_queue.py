"""torch_npu's task queue in this process: it can wait for its own launch thread with Python's lock.

With TASK_QUEUE_ENABLE other than 0 torch_npu launches operators from a thread of its own, which needs Python's lock to
come here. Where torch_npu waits for that thread with the lock held, both wait for ever: at the end of the process,
which is cured here, and in ``torch.npu.empty_cache``, where the bridge can only say so.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

from aclnn.capi.prototype import CFunction


def is_used() -> bool:
    """Tell whether torch_npu is loaded and launches operators from its own thread."""
    return "torch_npu" in sys.modules and os.environ.get("TASK_QUEUE_ENABLE") != "0"


def noted(function: CFunction, entry: Callable[..., Any], begun: Callable[[], None]) -> Callable[..., Any]:
    """The entry point, telling the bridge that a call has come through."""
    if function.name.startswith("aclrtMalloc"):
        entry = _registering(entry)

    def call(*values: Any) -> Any:
        begun()
        return entry(*values)

    return call


def _registering(entry: Callable[..., Any]) -> Callable[..., Any]:
    """Have the queue emptied at exit: registered with the first memory, after torch_npu's handler, it runs before."""
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
