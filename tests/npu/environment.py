"""Make a virtual environment with torch_npu for the tests: ``python tests/npu/environment.py FOLDER``.

torch_npu hooks every ``import torch``, so it gets an environment of its own, which shares the other packages of the one
that runs this. Where torch_npu cannot work, a line says why, no environment is made, and the tests of it are skipped.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import torch

from aclnn.toolkit.torch_npu import VERSION


def obstacle() -> str | None:
    """Why torch_npu cannot work with what is installed here; None where it can."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"expected Linux on x86_64, got {platform.system()} on {platform.machine()}"
    if torch.version.cuda is not None:
        return "expected PyTorch's CPU build, got its CUDA build"
    return None


def install(folder: Path) -> None:
    """Install torch_npu and what it needs, with the packages of this environment."""
    venv.create(folder, with_pip=False, clear=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", packages, f"torch_npu=={VERSION}", "pyyaml", "expecttest"], check=True)


if __name__ == "__main__":
    why = obstacle()
    if why is None:
        install(Path(sys.argv[1]))
    else:
        print(f"torch_npu is not tested: {why}")
