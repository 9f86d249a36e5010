"""Who waits at a terminal while kernels are compiled is told why; files and pipes get nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aclnn.kernels.cpu import jit as module
from aclnn.kernels.cpu.jit import Notice

PROGRAM = """
import aclnn, numpy as np
from aclnn.kernels.cpu import jit
jit._PATIENCE_S = 0.01
aclnn.hardswish_backward(*np.ones((2, 3), np.float32))
"""
LINE = "aclnn: compiling for this processor, kept in {}; `aclnn warm` does so beforehand\r\n"


def on_a_terminal(folder: Path) -> str:
    ours, theirs = os.openpty()
    environment = os.environ | {"ACLNN_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, env=environment, check=True)
    os.write(theirs, b"end")
    os.close(theirs)
    shown = b""
    while not shown.endswith(b"end"):
        shown += os.read(ours, 4096)
    os.close(ours)
    return shown.decode().removesuffix("end")


def test_a_slow_first_compilation_is_announced_once(tmp_path: Path) -> None:
    assert on_a_terminal(tmp_path) == LINE.format(tmp_path)
    assert on_a_terminal(tmp_path) == ""


def test_a_pipe_gets_no_notice(tmp_path: Path) -> None:
    environment = os.environ | {"ACLNN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_compiling_within_compiling_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((1.0, 4.0))
    monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    notice = Notice()
    notice.begin()
    notice.begin()
    notice.end()
    notice.end()
    assert (notice.compiled, notice._spent) == (2, 3.0)
