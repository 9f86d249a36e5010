"""The commands and their modules. A command's module is imported when the command is called."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from aclnn.cli.options import JsonOption, SocOption, emulate
from aclnn.version import __version__

# Commands with subcommands or many options: name, and module with a Typer application ``app``.
_PARTS = {
    "run": "aclnn.cli.run",
    "verify": "aclnn.cli.verify",
    "toolkit": "aclnn.cli.toolkit",
    "torch-npu": "aclnn.cli.torch_npu",
}


class _Group(TyperGroup):
    """Group of commands that imports a command's module only when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_PARTS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _PARTS:
            return get_command(import_module(_PARTS[cmd_name]).app)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _operator_names(incomplete: str) -> list[str]:
    from aclnn.operators.registry import C_OPERATORS

    return [operator.name for operator in C_OPERATORS if operator.name.startswith(incomplete)]


def _print_version(wanted: bool) -> None:
    if wanted is True:  # some combinations of Typer and Click pass "False", which must not end the command
        typer.echo(f"aclnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run, test and verify Ascend CANN operators without an NPU."""


@app.command()
def info(
    operator: Annotated[
        str | None, typer.Argument(help="Describe this operator instead.", autocompletion=_operator_names)
    ] = None,
    soc_name: SocOption = None,
    json: JsonOption = None,
) -> None:
    """Show the installation, or the parameters of an operator."""
    from aclnn.cli.console import exit_status
    from aclnn.cli.info import describe_installation, describe_operator

    with exit_status(json):
        emulate(soc_name)
        if operator is None:
            describe_installation(json)
        else:
            describe_operator(operator, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Directory for the figure.")] = Path("demo-output"),
    json: JsonOption = None,
) -> None:
    """Run CANN's worked examples and train a digit classifier.

    The operators compute the network's gradients; the command draws the loss curves.
    """
    from aclnn.cli import demo as command
    from aclnn.cli.console import exit_status

    with exit_status(json):
        command.run(out, json)


@app.command()
def warm(soc_name: SocOption = None) -> None:
    """Compile the kernels that ordinary programs use.

    Kernels are stored in the cache (ACLNN_CACHE_DIR); exit status 1 if that fails. Takes two to three minutes.
    """
    from aclnn.cli.console import exit_status
    from aclnn.cli.warm import warm

    with exit_status():
        emulate(soc_name)
        kept = warm()
    if not kept:
        raise typer.Exit(1)
