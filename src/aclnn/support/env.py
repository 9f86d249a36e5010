"""Numbers from environment variables."""

from __future__ import annotations

import os


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
