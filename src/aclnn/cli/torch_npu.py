"""``aclnn torch-npu``: Huawei's unmodified torch_npu on the toolkit instead of CANN.

This process never imports PyTorch: PyTorch loads an installed torch_npu, whose libraries the loader only finds if their
folder was set when the process started.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aclnn.cli import console
from aclnn.cli.options import SocOption
from aclnn.cli.programs import TraceOption, execute
from aclnn.toolkit import running, torch_npu

app = typer.Typer(
    help="Run PyTorch with Huawei's torch_npu without an NPU.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def check_command(context: typer.Context, soc_name: SocOption = None) -> None:
    """Check that torch_npu can run: versions, the toolkit's tree, a first call.

    With torch_npu installed, a plain "import torch" fails: use "aclnn torch-npu run", or source set_env.sh.
    """
    if context.invoked_subcommand is not None:
        context.obj = soc_name
        return
    with console.exit_status():
        found = torch_npu.check()
        environment = running.environment(soc_name)
        typer.echo(", ".join(f"{name} {version}" for name, version in found.items()))
        typer.echo(f"set_env.sh: {environment['ASCEND_HOME_PATH']}/set_env.sh")
        typer.echo(f"torch.npu: {torch_npu.first_call(environment)}")


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    context: typer.Context,
    arguments: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="As for python, with -m and -c too.")],
    soc_name: SocOption = None,
    trace: TraceOption = False,
) -> None:
    """Run a Python program that uses torch_npu, in the environment that it needs.

    With --trace, the exit status of a program ended by signal n is 128 + n.
    """
    with console.exit_status():
        torch_npu.check()
        execute([sys.executable, *arguments], context.obj if soc_name is None else soc_name, trace)
