"""Limits that a container, a batch job or another control group of Linux sets to this process.

The groups form a tree, or in the first version one for each controller; every group around a process binds it. Paths
are put together as text: host memory is allocated by these numbers, and pathlib would take longer than the system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate

_ROOT = "/sys/fs/cgroup"
_OWN = "/proc/self/cgroup"


def memory_bytes() -> int | None:
    """Bytes of memory; None without a limit."""
    limits = _limits("memory", ("memory.max",), ("memory.limit_in_bytes",))
    return min((limit[0] for limit in limits if len(limit) == 1), default=None)


def processors() -> float | None:
    """Seconds of processor time in a second; None without a limit."""
    limits = _limits("cpu", ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return min((limit[0] / limit[1] for limit in limits if len(limit) == 2 and limit[1]), default=None)


def _limits(controller: str, second: tuple[str, ...], first: tuple[str, ...]) -> Iterator[list[int]]:
    """Yield the limits in files of the second or the first version, for each group that this process is in."""
    own = _own_groups()
    for root, names, group in (
        (_ROOT, second, own.get("", "")),
        (f"{_ROOT}/{controller}", first, own.get(controller, "")),
    ):
        for folder in accumulate(filter(None, group.split("/")), "{}/{}".format, initial=root):
            yield _numbers(folder, names)


def _own_groups() -> dict[str, str]:
    """This process's group by controller; the second version's under "". None of those outside of what it may see."""
    found = {}
    for line in _text(_OWN).split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path and ".." not in path.split("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _numbers(folder: str, names: tuple[str, ...]) -> list[int]:
    """Return all numbers in some files; none where one is missing, or says "max" or -1."""
    words = [word for name in names for word in _text(f"{folder}/{name}").split() or [""]]
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def _text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return os.fsdecode(file.read())
    except (OSError, ValueError):
        return ""
