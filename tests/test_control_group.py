"""What a container lets a process use."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclnn import control_group
from aclnn.kernels.cpu import target


@pytest.mark.parametrize(
    ("files", "memory", "processors"),
    [
        ({}, None, None),
        ({"memory.max": "max\n", "cpu.max": "max 100000\n"}, None, None),
        ({"memory.max": "1073741824\n", "cpu.max": "150000 100000\n"}, 1 << 30, 1.5),
        (
            {
                "memory/memory.limit_in_bytes": "4096\n",
                "cpu/cpu.cfs_quota_us": "50000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            4096,
            0.5,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None, None),
        ({"cpu.max": "", "memory.max": "much"}, None, None),
    ],
)
def test_limits(
    files: dict[str, str],
    memory: int | None,
    processors: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(control_group, "_ROOT", tmp_path)
    assert control_group.memory_bytes() == memory
    assert control_group.processors() == processors


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.25, 1), (1.5, 2), (2.0, 2), (64.0, 8)])
def test_threads_follow_the_quota(quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two processors' time on 64 of them there were 64 threads."""
    monkeypatch.setattr(target.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(control_group, "processors", lambda: quota)
    assert target.processors() == expected
