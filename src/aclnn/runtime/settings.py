"""Numbers from the environment."""

from __future__ import annotations

import os


def positive(name: str, default: int) -> int:
    """An environment variable's value, or the default where it is not set.

    Raises:
        ValueError: it is not an integer of at least 1.
    """
    text = os.environ.get(name)
    if not text:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {text!r}")
    return int(text)
