"""Huawei's torch_npu, as its wheel is, on the toolkit's libraries: conditions, environment, a first call."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from aclnn.core.operator import PHASE_ONE
from aclnn.core.products import product_of
from aclnn.core.status import CODES
from aclnn.toolkit import tree
from aclnn.toolkit.compiler import ToolkitError
from aclnn.toolkit.trace import ABSENT, REFUSED, read

#: The release whose functions the toolkit has; its wheel wants PyTorch's of the same number.
VERSION = "2.13.0"
_INSTALL = f"pip install torch=={VERSION} (PyTorch's CPU build) pyyaml; pip install --no-deps torch_npu=={VERSION}"
_MACHINES = ("x86_64", "aarch64")
_TRIAL = "import torch, torch_npu; print(torch.npu.is_available(), torch.npu.get_device_name(0))"

# From warnings on torch_npu logs which functions it does not find (``aclAppLog``).
_LOGGING = {"ASCEND_GLOBAL_LOG_LEVEL": "2"}

# A call of an operator by its type, and the status where there is none.
_BY_TYPE = re.compile(r"opType='(\w+)'")
_UNKNOWN_TYPE = str(CODES["ACL_ERROR_API_NOT_SUPPORT"])


class OperatorUse(NamedTuple):
    """A program's use of an operator."""

    name: str
    """Its C name."""
    calls: int
    """The number of calls of phase one."""
    microseconds: float
    """Time in Python, both phases, without what a stream computes later."""


class TracedRun(NamedTuple):
    """The outcome of a traced program."""

    status: int
    """The exit status, negative for one ended by a signal."""
    operators: list[OperatorUse]
    """The longest first."""
    missing: list[str]
    """Functions and operators that were refused or looked for in vain."""


def run_traced(command: Sequence[str], environment: Mapping[str, str]) -> TracedRun:
    """Run a program and note its operators."""
    with tempfile.TemporaryDirectory(prefix="aclnn-trace-") as folder:
        file = Path(folder) / "trace"
        file.touch()
        done = subprocess.run(command, env={**environment, **_LOGGING, "ACLNN_TRACE": str(file)}, check=False)
        missing: dict[str, None] = {}
        uses: dict[str, OperatorUse] = {}
        for record in read(file):
            name = record.name.removesuffix(PHASE_ONE)
            by_type = _BY_TYPE.match(record.arguments) if name.startswith("aclop") else None
            if record.arguments in (REFUSED, ABSENT) or (by_type and record.status == _UNKNOWN_TYPE):
                missing[by_type[1] if by_type else name] = None
            elif name.startswith("aclnn"):
                used = uses.get(name, OperatorUse(name, 0, 0.0))
                calls = used.calls + record.name.endswith(PHASE_ONE)
                uses[name] = OperatorUse(name, calls, used.microseconds + record.microseconds)
    return TracedRun(done.returncode, sorted(uses.values(), key=lambda use: -use.microseconds), [*missing])


def check() -> dict[str, str]:
    """Return the versions of torch and torch_npu that are installed.

    Raises:
        ToolkitError: they cannot run here.
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


def environment(chosen: str | None) -> dict[str, str]:
    """Return the environment of a program that uses torch_npu, emulating a SoC.

    Raises:
        AclnnError: no such SoC.
    """
    if chosen is not None:
        product_of(chosen)
    # A small product shared out among threads waits for a processor that another of the program's threads has: on a
    # busy machine with two of them a training step of a perceptron took 26 ms instead of 1.6.
    defaults = {"OPENBLAS_NUM_THREADS": "1"}
    soc = {} if chosen is None else {"ACLNN_SOC_NAME": chosen}
    return defaults | tree.environment(tree.ensure(), os.environ) | soc


def first_call(environment: dict[str, str]) -> str:
    """Return what a first call prints, made in a process of its own."""
    command = [sys.executable, "-c", _TRIAL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ToolkitError(f"torch_npu cannot be used: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]
