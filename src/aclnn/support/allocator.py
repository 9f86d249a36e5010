"""The C library's allocator, for commands that own their process."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST = 2**31 - 1
_LARGEST = 1 << 25
"""The largest mmap threshold that glibc accepts."""


def keep_freed_memory() -> None:
    """Let glibc keep freed blocks for reuse; leave any other C library as it is.

    By default glibc returns arrays of a few hundred kilobytes to the system, so that each new one needs zeroed pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _MOST)
