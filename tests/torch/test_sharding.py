"""DTensor rules with several gloo processes on this machine against one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_sharded_equals_whole(world: int, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"ACLNN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.torch_sharded", str(rank), str(world), str(tmp_path / "store")],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        texts = [process.communicate(timeout=300)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, text in zip(ranks, texts, strict=True):
        assert process.returncode == 0, text
        assert text.endswith("all checked\n")
