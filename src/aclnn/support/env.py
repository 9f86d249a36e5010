"""Numbers in environment variables."""

from __future__ import annotations

import os


class SettingError(ValueError):
    """Invalid value of an environment variable."""


def integer(name: str, default: int, least: int = 1, most: int | None = None) -> int:
    """Return an environment variable's value, or the default if it is not set.

    Raises:
        SettingError: the value is not an integer of at least ``least`` and, if given, at most ``most``.
    """
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = int(text) if text.strip().isdecimal() else None
    except ValueError:  # more digits than Python converts
        value = None
    if value is None or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise SettingError(f"{name}: expected an integer {wanted}, got {text[:80]!r}")
    return value
