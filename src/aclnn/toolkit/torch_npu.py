"""Huawei's unmodified torch_npu on the toolkit's libraries: requirements and a first call."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from aclnn.toolkit.compiler import ToolkitError

#: Release of torch_npu whose functions the toolkit has; its wheel requires the PyTorch of the same version.
VERSION = "2.13.0"
_INSTALL = f"pip install torch=={VERSION} (PyTorch's CPU build) pyyaml; pip install --no-deps torch_npu=={VERSION}"
_MACHINES = ("x86_64", "aarch64")
_TRIAL = "import torch, torch_npu; print(torch.npu.is_available(), torch.npu.get_device_name(0))"


def check() -> dict[str, str]:
    """Return the installed versions of torch and torch_npu.

    Raises:
        ToolkitError: they cannot be used here.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise ToolkitError(
            f"torch_npu: expected Linux on {' or '.join(_MACHINES)}, for which there are wheels, got "
            f"{platform.system()} on {platform.machine()}"
        )
    if platform.python_implementation() != "CPython":
        raise ToolkitError(f"torch_npu: expected CPython, got {platform.python_implementation()}")
    found = {name: _installed(name) for name in ("torch", "torch_npu")}
    for name, package in found.items():
        if package.version.split("+")[0] != VERSION:
            raise ToolkitError(f"{name}: expected {VERSION}, got {package.version}: {_INSTALL}")
    if Path(str(found["torch"].locate_file("torch/lib/libtorch_cuda.so"))).exists():
        raise ToolkitError(
            f"torch: expected PyTorch's CPU build, got its CUDA build, with which torch_npu does not load: {_INSTALL}"
        )
    _installed("pyyaml")
    return {name: package.version for name, package in found.items()}


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise ToolkitError(f"{name}: not installed: {_INSTALL}") from None


def first_call(environment: dict[str, str]) -> str:
    """Make a first call in a process of its own and return its output."""
    command = [sys.executable, "-c", _TRIAL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ToolkitError(f"torch_npu cannot be used: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]
