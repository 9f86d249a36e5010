"""Limits of containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aclnn.kernels.cpu import target
from aclnn.support import cgroups

Machine = Callable[[str | None, dict[str, str]], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that puts this process into groups, as in /proc/self/cgroup, with given files."""

    def give(own: str | None, files: dict[str, str]) -> None:
        (tmp_path / "cgroup").mkdir()
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if own is not None:
            (tmp_path / "own").write_bytes(own.encode("latin-1"))
        monkeypatch.setattr(cgroups, "_ROOT", str(tmp_path / "cgroup"))
        monkeypatch.setattr(cgroups, "_OWN", str(tmp_path / "own"), raising=False)

    return give


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
def test_limits(files: dict[str, str], memory: int | None, processors: float | None, machine: Machine) -> None:
    machine(None, files)
    assert (cgroups.memory_bytes(), cgroups.processors()) == (memory, processors)


@pytest.mark.parametrize(
    ("own", "files", "memory", "processors"),
    [
        pytest.param(
            "0::/system.slice/run-7.scope\n",
            {
                "system.slice/run-7.scope/memory.max": "4096\n",
                "system.slice/run-7.scope/cpu.max": "150000 100000\n",
            },
            4096,
            1.5,
            id="systemd-run",
        ),
        pytest.param(
            "0::/slurm/job_7/step_0/task_0\n",
            {
                "slurm/job_7/memory.max": "4096\n",
                "slurm/job_7/step_0/memory.max": "8192\n",
                "slurm/job_7/step_0/task_0/memory.max": "max\n",
                "slurm/cpu.max": "max 100000\n",
                "slurm/job_7/cpu.max": "400000 100000\n",
                "slurm/job_7/step_0/cpu.max": "50000 100000\n",
            },
            4096,
            0.5,
            id="the smallest of several",
        ),
        pytest.param(
            "5:memory:/slurm/uid_1/job_7\n4:cpu,cpuacct:/user.slice\n1:name=systemd:/other\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/slurm/uid_1/memory.limit_in_bytes": "4096\n",
                "memory/slurm/uid_1/job_7/memory.limit_in_bytes": "8192\n",
                "cpu/user.slice/cpu.cfs_quota_us": "250000\n",
                "cpu/user.slice/cpu.cfs_period_us": "100000\n",
            },
            4096,
            2.5,
            id="first version",
        ),
        pytest.param(
            "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n",
            {
                "memory/memory.limit_in_bytes": "4096\n",
                "cpu/cpu.cfs_quota_us": "50000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            4096,
            0.5,
            id="a container sees its own group as the root",
        ),
        pytest.param("0::/a:b\n", {"a:b/memory.max": "4096\n"}, 4096, None, id="a colon in the name"),
        pytest.param(
            "0::/../outside\n",
            {"memory.max": "8192\n", "../outside/memory.max": "4096\n"},
            8192,
            None,
            id="outside of what may be seen",
        ),
        pytest.param("nonsense\n\n7\n0::/\0\xff\n::\n", {"memory.max": "4096\n"}, 4096, None, id="nonsense"),
    ],
)
def test_limits_of_a_group_that_is_not_the_root(
    own: str, files: dict[str, str], memory: int | None, processors: float | None, machine: Machine
) -> None:
    """systemd, Slurm and containers without a cgroup namespace set limits in groups below the root."""
    machine(own, files)
    assert (cgroups.memory_bytes(), cgroups.processors()) == (memory, processors)


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.25, 1), (1.5, 2), (2.0, 2), (64.0, 8)])
def test_threads_follow_the_quota(quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of two processors' time on 64 processors gives two threads."""
    monkeypatch.setattr(target.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(cgroups, "processors", lambda: quota)
    assert target.processors() == expected
