"""The runtime on ACLNN_DEVICE=cuda where something is missing; and on a stand-in, without kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aclnn import extras

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")
pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: make gpu")
ENVIRONMENT = os.environ | {"ACLNN_DEVICE": "cuda"}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments], env=ENVIRONMENT | environment, capture_output=True, text=True
    )


def test_without_a_gpu() -> None:
    result = run("-c", "from aclnn import cann; print(cann.aclrtSetDevice(0), cann.aclGetRecentErrMsg())")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("207004 ")
    assert "expected an NVIDIA GPU that PyTorch can use, got none" in result.stdout


def test_on_a_stand_in() -> None:
    """All but its kernels, which test_triton_benchmark runs."""
    program = Path(__file__).with_name("cuda_runtime.py")
    result = run(str(program), "copies", "events", "lifetimes", "refusals", TRITON_INTERPRET="1")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_without_a_package(package: str) -> None:
    program = "from aclnn import cann; print(cann.aclInit(), cann.aclGetRecentErrMsg())"
    result = run("-c", f"import sys; sys.modules[{package!r}] = None\n{program}")
    assert result.stdout.startswith("207004 "), result.stderr
    assert f"{package} is not installed: {extras.command('cuda')}" in result.stdout


_FAILURE = """
import threading
import cuda_stand_in
from aclnn.runtime import cuda
cuda.torch = cuda_stand_in.Torch()
stream = cuda.Backend().stream(0, 0)
stream.enqueue(lambda: 1 // 0)
stream.enqueue(lambda: None)
stream._stream.synchronize()
with stream._order:
    def report():
        try:
            stream.raise_failure()
        except cuda.AclnnError as error:
            print(error.code, len(stream._running))
    thread = threading.Thread(target=report)
    thread.start()
    thread.join()
"""


def test_a_reported_failure_leaves_the_tasks_to_whoever_holds_the_order() -> None:
    """Forgetting finished tasks had the name of what frees a lock, and was done with every error, by any thread."""
    result = run("-c", _FAILURE, PYTHONPATH=str(Path(__file__).parent))
    assert result.stdout == "507000 2\n", result.stderr
