"""Kernels that different processes compiled and one process loads do not clash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CALL = """
import sys
import numpy as np
import aclnn
x = np.array([1.0, 2.0], np.float32)
for name in sys.argv[1:]:
    print(name, *getattr(aclnn, name)(x))
"""


@pytest.mark.slow
def test_kernels_cached_by_several_processes_do_not_clash(tmp_path: Path) -> None:
    def call(*names: str) -> str:
        env = os.environ | {"ACLNN_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", _CALL, *names], capture_output=True, text=True, env=env, check=True, timeout=120
        )
        return done.stdout

    # Both have the same loop around different inner functions.
    separately = call("fast_gelu") + call("hardswish")
    assert call("fast_gelu", "hardswish") == separately
    assert separately == "fast_gelu 0.84579575 1.9356586\nhardswish 0.6666667 1.6666666\n"
