"""A cache of bounded size, and values as its keys."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A dictionary that drops the older half of its entries when it is full.

    A call with its plan takes up to 33 KB, so that 1,000 calls of each operator fit into memory easily.
    """

    limit: ClassVar[int] = 1_000

    def __setitem__(self, key: Key, value: Value) -> None:
        """Add or replace an entry."""
        if len(self) >= self.limit and key not in self:
            # list() copies the keys atomically, since other threads may add entries.
            for oldest in list(self)[: len(self) - self.limit // 2]:
                self.pop(oldest, None)
        super().__setitem__(key, value)


def as_key(value: Any) -> Any:
    """Return a key that distinguishes 0.0 from -0.0, which compare equal."""
    return repr(value) if type(value) is float and not value else value
