"""Numbers from the environment, and the memos whose size one of them limits."""

from __future__ import annotations

import os
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def integer(name: str, default: int, least: int = 1) -> int:
    """An environment variable's value, or the default where it is not set.

    Raises:
        ValueError: it is not an integer of at least ``least``.
    """
    text = os.environ.get(name)
    if not text:
        return default
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {text!r}")
    return int(text)


class Memo(dict[Key, Value]):
    """What was found out about calls, for the next equal ones; emptied when ``ACLNN_CACHE_LIMIT`` of them are kept."""

    def keep(self, key: Key, value: Value) -> None:
        """Remember one more, or the same one anew."""
        if len(self) >= integer("ACLNN_CACHE_LIMIT", 10_000, least=0):
            self.clear()
        self[key] = value
