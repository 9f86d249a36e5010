"""Recent errors of each thread: their texts, and the last code."""

from __future__ import annotations

import threading

from aclnn.core.status import ACL_ERROR_INVALID_PARAM, AclnnError

# Limit for threads that never ask for the texts; the newest are kept.
_TEXTS_KEPT = 64


class _Recent(threading.local):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.code = 0


_recent = _Recent()


def record(code: int, text: str) -> None:
    """Record an error of the calling thread; an empty text is left out."""
    _recent.code = code
    if text:
        _recent.texts.append(f"{text} [{code}]")
    del _recent.texts[:-_TEXTS_KEPT]


def take_texts() -> str | None:
    """Return the texts since the last call in this thread, newest first, one per line; None if there are none."""
    texts = "\n".join(reversed(_recent.texts))
    _recent.texts.clear()
    return texts or None


def last_code(level: int, clear: bool) -> int:
    """Return the thread's last error code, 0 if there was none.

    Raises:
        AclnnError: 100000, the level is not ACL_RT_THREAD_LEVEL.
    """
    if level != 0:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"level: expected ACL_RT_THREAD_LEVEL (0), got {level}")
    code = _recent.code
    if clear:
        _recent.code = 0
    return code
