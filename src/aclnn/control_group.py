"""What a container, or another control group of Linux, lets this process use of the machine."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def memory_bytes() -> int | None:
    """Bytes of memory; None without a limit."""
    limit = _numbers("memory.max") or _numbers("memory/memory.limit_in_bytes")
    return limit[0] if limit else None


def processors() -> float | None:
    """Seconds of processor time in a second; None without a limit."""
    both = _numbers("cpu.max") or _numbers("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    return both[0] / both[1] if len(both) == 2 and both[1] else None


def _numbers(*names: str) -> list[int]:
    """All numbers in some files; none where one is missing, or says "max" or -1."""
    try:
        words = " ".join((_ROOT / name).read_text() for name in names).split()
    except (OSError, ValueError):
        return []
    return [int(word) for word in words] if words and all(word.isdigit() for word in words) else []
