"""A cache of bounded size, and what tells its keys apart."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A dictionary that drops the older half of its entries when it is full.

    A call takes up to 33 KB with its plan, so that 1,000 of each operator are far from filling memory.
    """

    limit: ClassVar[int] = 1_000

    def __setitem__(self, key: Key, value: Value) -> None:
        """Add or replace an entry."""
        if len(self) >= self.limit and key not in self:
            # list() copies the keys in one step: other threads add entries meanwhile.
            for oldest in list(self)[: len(self) - self.limit // 2]:
                self.pop(oldest, None)
        super().__setitem__(key, value)


def as_key(value: Any) -> Any:
    """Return a value that equals only what it cannot be told from: 0.0 and -0.0 are equal."""
    return repr(value) if type(value) is float and not value else value
