"""A cache of bounded size."""

from __future__ import annotations

from typing import TypeVar

from aclnn.support.env import integer

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A dictionary that drops the older half of its entries when it holds ``ACLNN_CACHE_LIMIT``.

    A call takes up to 33 KB with its plan, so that 1,000 of each operator are far from filling memory.
    """

    def keep(self, key: Key, value: Value) -> None:
        """Add or replace an entry; with a limit of 0, keep none."""
        limit = integer("ACLNN_CACHE_LIMIT", 1_000, least=0)
        if len(self) >= limit and key not in self:
            # list() copies the keys in one step: other threads add entries meanwhile.
            for oldest in list(self)[: len(self) - limit // 2]:
                self.pop(oldest, None)
        if limit:
            self[key] = value
