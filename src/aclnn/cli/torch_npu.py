"""``aclnn torch-npu``: Huawei's torch_npu, as its wheel is, on the toolkit instead of CANN.

PyTorch is never imported in this process: with torch_npu installed it loads that, whose libraries the loader must have
been told of when the process began.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

import typer

from aclnn.cli.toolkit import complaints
from aclnn.core.products import product_of
from aclnn.toolkit import tree
from aclnn.toolkit.compiler import ToolkitError

app = typer.Typer(
    help="Huawei's torch_npu on this toolkit, without an NPU.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)

#: The release whose functions the toolkit has; its wheel wants PyTorch's of the same number.
VERSION = "2.13.0"
_INSTALL = f"pip install torch=={VERSION} (PyTorch's CPU build) pyyaml; pip install --no-deps torch_npu=={VERSION}"
_MACHINES = ("x86_64", "aarch64")
_TRIAL = "import torch, torch_npu; print(torch.npu.is_available(), torch.npu.get_device_name(0))"

_Soc = Annotated[str | None, typer.Option("--soc-name", help="The product to emulate, such as Ascend950DT_9571.")]


@app.callback()
def check_command(context: typer.Context, soc_name: _Soc = None) -> None:
    """Say whether torch_npu can run here: versions, the toolkit's tree, a first call.

    With it installed a plain "import torch" fails: start programs with "aclnn torch-npu run", or source set_env.sh.
    """
    if context.invoked_subcommand is not None:
        return
    with complaints("torch-npu"):
        found = check()
        environment = _environment(soc_name)
        typer.echo(", ".join(f"{name} {version}" for name, version in found.items()))
        typer.echo(f"set_env.sh: {environment['ASCEND_HOME_PATH']}/set_env.sh")
        typer.echo(f"torch.npu: {_try(environment)}")


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    arguments: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="As after python; -m, -c too.")],
    soc_name: _Soc = None,
) -> None:
    """Run a Python program that uses torch_npu, with the environment that it needs."""
    with complaints("torch-npu"):
        check()
        environment = _environment(soc_name)
        os.execve(sys.executable, [sys.executable, *arguments], environment)


def check() -> dict[str, str]:
    """The versions of torch and torch_npu that are installed.

    Raises:
        ToolkitError: they cannot run here; the text says what was expected and what came.
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
        raise ToolkitError(f"{name}: expected it to be installed, it is not: {_INSTALL}") from None


def _environment(chosen: str | None) -> dict[str, str]:
    if chosen is None:
        return tree.environment(tree.ensure(), os.environ)
    product_of(chosen)
    return tree.environment(tree.ensure(), os.environ) | {"ACLNN_SOC_NAME": chosen}


def _try(environment: dict[str, str]) -> str:
    """Return what a first call prints, made in a process of its own."""
    command = [sys.executable, "-c", _TRIAL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ToolkitError(f"torch_npu cannot be used: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]
