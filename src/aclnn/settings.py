"""Numbers from the environment, and the memos whose size one of them limits."""

from __future__ import annotations

import os
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def integer(name: str, default: int, least: int = 1, most: int | None = None) -> int:
    """An environment variable's value, or the default where it is not set.

    Raises:
        ValueError: it is not an integer of at least ``least`` and, if given, at most ``most``.
    """
    text = os.environ.get(name)
    if not text:
        return default
    if not text.strip().isdecimal() or int(text) < least or (most is not None and int(text) > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}: expected an integer {wanted}, got {text!r}")
    return int(text)


class Memo(dict[Key, Value]):
    """What was found out about calls, for the next equal ones; the older half goes when ``ACLNN_CACHE_LIMIT`` are kept.

    A call takes up to 33 KB with its plan, so that 1,000 of each operator are far from filling memory.
    """

    def keep(self, key: Key, value: Value) -> None:
        """Remember one more, or the same one anew."""
        limit = integer("ACLNN_CACHE_LIMIT", 1_000, least=0)
        if len(self) >= limit and key not in self:
            # A list of the keys, which is made in one step: other threads keep calls meanwhile.
            for oldest in list(self)[: len(self) - limit // 2]:
                self.pop(oldest, None)
        if limit:
            self[key] = value
