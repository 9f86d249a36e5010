"""Numbers from the environment, the memos whose size one of them limits, and the user's folder for files."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
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


def user_cache() -> Path:
    """The platform's folder for a user's files that can be made again; a temporary one where there is no home."""
    try:
        if sys.platform == "darwin":
            return Path("~/Library/Caches/aclnn").expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "aclnn"
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "aclnn"
    except RuntimeError:
        return temporary_cache()


def temporary_cache() -> Path:
    """A user's folder among the temporary ones."""
    return Path(tempfile.gettempdir()) / f"aclnn-{os.getuid() if hasattr(os, 'getuid') else os.environ.get('USERNAME')}"


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
        self[key] = value
