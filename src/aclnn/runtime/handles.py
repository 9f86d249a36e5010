"""Table of all objects that C sees as opaque pointers: tensors, arrays, executors, contexts, streams, events.

A handle is an integer that is never reused, so a stale one is recognised for the life of the process. Handles lie
outside the address range of any process on x86-64 and AArch64: they cannot be confused with data addresses, and a
program that dereferences one faults at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from aclnn.support.process import PerProcess

T = TypeVar("T")

#: Default description of an object whose handle is not in the table.
GONE = "was destroyed or never existed"

_FIRST = 0x5AC1_0000_0000_0000
_STEP = 16

_serial = itertools.count(_FIRST, _STEP)
# A child continues the parent's numbering, so handles from before the fork stay stale.
_objects: PerProcess[dict[int, Any]] = PerProcess(dict)


#: Look up an object that lives in C and move it into this table.
adopt: Callable[[int], Any] | None = None


def _find(handle: int | None) -> Any:
    item = _objects.current.get(handle)  # type: ignore[arg-type]  # None is never a key
    return item if item is not None or adopt is None or not handle else adopt(handle)


def insert(item: object) -> int:
    """Add an object; its handle is valid until ``pop``."""
    handle = next(_serial)
    _objects.current[handle] = item
    return handle


def get(handle: int | None, kind: type[T]) -> T | None:
    """Return the live object of that class, or None."""
    item = _find(handle)
    return item if isinstance(item, kind) else None


def count(kind: type[Any]) -> int:
    """Return the number of live objects of a class."""
    return sum(isinstance(item, kind) for item in list(_objects.current.values()))


def enter(handle: int, item: object) -> None:
    """Add an object under a handle assigned elsewhere."""
    _objects.current[handle] = item


def here(handle: int) -> Any:
    """Return the object of a handle if it is in this table."""
    return _objects.current.get(handle)


def pop(handle: int, kind: type[T]) -> T | None:
    """Remove and return the live object of that class, or None; of two concurrent callers one gets it."""
    if get(handle, kind) is None:
        return None
    item: T | None = _objects.current.pop(handle, None)
    return item


def describe(handle: int | None, gone: str = GONE) -> str:
    """Describe a handle in an error text: ``null``, ``a live Tensor``; ``gone`` describes a removed object."""
    if not handle:
        return "null"
    item = _find(handle)
    if item is not None:
        # The base class within the package: users know a Stream, not its subclass.
        kind = next((cls for cls in reversed(type(item).__mro__) if cls.__module__.startswith("aclnn")), type(item))
        return f"{handle:#x}, a live {kind.__name__}"
    given_out = handle >= _FIRST and handle < _FIRST + (1 << 56) and handle % _STEP == 0
    return f"{handle:#x}, " + (f"which {gone}" if given_out else "which is not a handle")
