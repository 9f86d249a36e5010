"""The runtime on ACLNN_DEVICE=cuda where something is missing; test_triton_benchmark runs it on a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

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


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_without_a_package(package: str) -> None:
    result = run("-c", f"import sys; sys.modules[{package!r}] = None\nfrom aclnn import cann")
    assert result.returncode == 1
    assert f"{package} is not installed: pip install 'aclnn[cuda]'" in result.stderr


def test_an_unknown_device() -> None:
    result = run("-c", "from aclnn import cann", ACLNN_DEVICE="npu")
    assert "ACLNN_DEVICE: expected cpu or cuda, got 'npu'" in result.stderr
