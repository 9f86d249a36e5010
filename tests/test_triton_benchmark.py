"""What of benchmarks/gpu.py can be held to account without a GPU: its references, its judgement, its refusal."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")
PROGRAM = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def gpu() -> Any:
    spec = importlib.util.spec_from_file_location("benchmarks_gpu", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_references_are_the_formulas(gpu: Any) -> None:
    import aclnn
    from aclnn.kernels.cpu import entries

    assert aclnn.operators is not None
    modules = [sys.modules[f"aclnn.operators.{name}"] for name in ("fast_gelu", "gelu", "hardswish", "silu")]
    x = np.concatenate([np.linspace(-30.0, 30.0, 5001), [1e30, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0]])
    for name, reference in gpu.references(torch).items():
        formula = next(vars(module)[name] for module in modules if name in vars(module))
        ours = reference(torch.from_numpy(x)).float()
        exact = torch.from_numpy(entries.evaluate(formula, x))
        worst, at, wrong = gpu.judge(torch, torch.from_numpy(x), ours, exact)
        assert worst <= 0.5001, (name, worst, at)
        assert wrong == 0, name


def test_judge_sees_errors(gpu: Any) -> None:
    x = torch.tensor([1.0, 2.0, torch.inf, 3.0])
    exact = torch.tensor([1.0, 1.0, torch.nan, 1.0], dtype=torch.float64)
    off = 1.0 + 3 * torch.finfo(torch.float32).eps
    assert gpu.judge(torch, x, torch.tensor([1.0, off, 7.0, 1.0]), exact) == (3.0, 2.0, 1)
    assert gpu.judge(torch, x, torch.tensor([1.0, 1.0, torch.nan, torch.nan]), exact)[:2] == (torch.inf, 3.0)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, str(PROGRAM), "--out", str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 1
    assert "expected an NVIDIA GPU" in run.stderr
    assert not list(tmp_path.iterdir())
