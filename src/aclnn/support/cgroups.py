"""Limits of the Linux control groups (containers, batch jobs) that contain this process.

Groups form a tree, in version 1 one for each controller; the limits of a group and of all its ancestors apply. Paths
are strings because these limits are read during allocations of host memory, where pathlib would dominate the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate

_ROOT = "/sys/fs/cgroup"
_OWN = "/proc/self/cgroup"


def memory_bytes() -> int | None:
    """Return the memory limit in bytes; None without a limit."""
    limits = _limits("memory", ("memory.max",), ("memory.limit_in_bytes",))
    return min((limit[0] for limit in limits if len(limit) == 1), default=None)


def processors() -> float | None:
    """Return the limit of processor time in seconds per second; None without a limit."""
    limits = _limits("cpu", ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return min((limit[0] / limit[1] for limit in limits if len(limit) == 2 and limit[1]), default=None)


def _limits(controller: str, second: tuple[str, ...], first: tuple[str, ...]) -> Iterator[list[int]]:
    """Yield the limits in files of version 2 and of version 1, for each group of this process and its ancestors."""
    own = _own_groups()
    for root, names, group in (
        (_ROOT, second, own.get("", "")),
        (f"{_ROOT}/{controller}", first, own.get(controller, "")),
    ):
        for folder in accumulate(filter(None, group.split("/")), "{}/{}".format, initial=root):
            yield _numbers(folder, names)


def _own_groups() -> dict[str, str]:
    """Return this process's groups by controller, "" for version 2, without those outside its namespace."""
    found = {}
    for line in _text(_OWN).split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path and ".." not in path.split("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _numbers(folder: str, names: tuple[str, ...]) -> list[int]:
    """Return all numbers in some files; no numbers if a file is missing or contains "max" or -1."""
    words = [word for name in names for word in _text(f"{folder}/{name}").split() or [""]]
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def _text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return os.fsdecode(file.read())
    except (OSError, ValueError):
        return ""
