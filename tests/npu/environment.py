"""Make a virtual environment with torch_npu for the tests: ``python tests/npu/environment.py FOLDER``.

It is one of its own, for torch_npu takes part in every ``import torch``. Where it cannot work there is none, with a
line that says why, and the tests that need it are skipped.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import venv
from pathlib import Path

import torch

from aclnn.toolkit.torch_npu import VERSION

ROOT = Path(__file__).parents[2]


def obstacle() -> str | None:
    """Why torch_npu cannot work beside what is installed here; None where it can."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"expected Linux on x86_64, got {platform.system()} on {platform.machine()}"
    if torch.version.cuda is not None:
        return "expected PyTorch's CPU build, got its CUDA build"
    return None


def install(folder: Path) -> None:
    """Install torch_npu, PyTorch, this package and what its tests there need."""
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    packages = ["torch", "pyyaml", "pytest", "--editable", f"{ROOT}[toolkit]"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *packages], check=True)
    subprocess.run([*pip, "--no-deps", f"torch_npu=={VERSION}"], check=True)


if __name__ == "__main__":
    why = obstacle()
    if why is None:
        install(Path(sys.argv[1]))
    else:
        print(f"torch_npu is not tested: {why}")
