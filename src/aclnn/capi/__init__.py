"""Every function of the C interface as a Python function of the same name and argument order.

Port a C program line by line: out-parameters become results, so that ``aclrtMalloc(&p, n, policy)`` is written
``status, p = aclrtMalloc(n, policy)``. Handles and addresses are integers, null is 0 or None. Enumerators, flags and
status codes have their C names too. ``__init__.pyi`` tells type checkers and editors so; ``stub`` makes it.

Refusals are statuses, as in C; ``aclGetRecentErrMsg`` says why. Arguments that C could not even express (a string for
a size) raise TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aclnn.capi import (  # noqa: F401  (they fill the table)
    attributes,
    callbacks,
    collectives,
    constants,
    copies,
    executors,
    graphs,
    identities,
    indirect,
    limits,
    memory,
    notifies,
    objects,
    operators,
    product_scales,
    queries,
    runtime,
    single_operators,
    stream_configs,
    system,
    timeouts,
    waits,
    weights,
)
from aclnn.capi.prototype import FUNCTIONS, call_of

globals().update(constants.ENUM_TYPES)
globals().update(constants.NAMES)

__all__ = [*FUNCTIONS, *constants.ENUM_TYPES, *constants.NAMES]


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    call = globals()[name] = call_of(name)
    return call


def __dir__() -> list[str]:
    return [*globals(), *FUNCTIONS]
