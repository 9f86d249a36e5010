"""Execution of a program in the toolkit's environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Annotated

import typer

from aclnn.toolkit import running
from aclnn.toolkit.compiler import ToolkitError

TraceOption = Annotated[bool, typer.Option("--trace", help="At the end, list the operators called and those missing.")]


def execute(command: Sequence[str], soc_name: str | None, trace: bool) -> None:
    """Replace this process by a program; if traced, run it as a child and exit with its status.

    Raises:
        ToolkitError: there is no such program.
        AclnnError: no such SoC.
    """
    environment = running.environment(soc_name)
    program = shutil.which(command[0])
    if program is None:
        raise ToolkitError(f"{command[0]}: expected an executable file, or the name of one on PATH")
    if trace:
        run = running.run_traced(command, environment)
        for use in run.operators:
            typer.echo(f"{use.name:32} {use.calls:8} calls {use.microseconds / 1000:10.1f} ms", err=True)
        typer.echo(f"missing: {', '.join(run.missing) or 'nothing'}", err=True)
        raise typer.Exit(run.status if run.status >= 0 else 128 - run.status)
    os.execve(program, [*command], environment)
