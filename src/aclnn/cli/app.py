"""The commands and where each lives. A command's module is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from aclnn.version import __version__

# Commands with a family of options of their own: name, module (its ``app`` is a typer application).
_PARTS = {"verify": "aclnn.cli.verify", "toolkit": "aclnn.cli.toolkit", "torch-npu": "aclnn.cli.torch_npu"}


def _exists(module: str) -> bool:
    return find_spec(module.rpartition(".")[0]) is not None and find_spec(module) is not None


class _Group(TyperGroup):
    """Finds the parts' commands too, without importing one that is not asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name, module in _PARTS.items() if _exists(module))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _PARTS and _exists(_PARTS[cmd_name]):
            return get_command(import_module(_PARTS[cmd_name]).app)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False
)


def _print_version(wanted: bool) -> None:
    if wanted is True:  # a mixture of Typer and Click that passes "False" would end every command with status 0
        typer.echo(f"aclnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The aclnn operators of Ascend CANN, on any machine."""


_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Soc = Annotated[str | None, typer.Option("--soc-name", help="The product to stand for, such as Ascend950DT_9571.")]


@app.command()
def info(
    operator: Annotated[str | None, typer.Argument(help="Describe this operator instead.")] = None,
    soc_name: _Soc = None,
    json: _Json = False,
) -> None:
    """Show what is installed here, or what one operator takes."""
    from aclnn.cli.console import refusals
    from aclnn.cli.info import describe_installation, describe_operator

    with refusals(json):
        _stand_for(soc_name)
        if operator is None:
            describe_installation(json)
        else:
            describe_operator(_find(operator), json)


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    context: typer.Context,
    operator: Annotated[str, typer.Argument(help="Its name, such as silu_backward; aclnn info lists them.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Inputs as name=FILE, attributes as name=value or --name value. FILE is x.npy, x.npz:member, "
            "x.safetensors:tensor, x.pt:tensor, or raw: x.bin."
        ),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--out",
            help="Where to write an output: name=FILE, once for each; or FILE where there is one. A .npy, .bin or .raw "
            "is replaced, a .npz, .safetensors or .pt that holds other tensors left alone; none may be an input.",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="Of raw files (.bin): float16, or name=float16 for one.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Of raw files: 4,8, or name=4,8 for one.")] = None,
    soc_name: _Soc = None,
    json: _Json = False,
) -> None:
    """Run an operator on files.

    aclnn run silu_backward grad_output=dy.npy self=x.npy --out grad_input=dx.npy
    """
    from aclnn.cli.console import refusals, visible
    from aclnn.cli.required import expect_options
    from aclnn.cli.run import parse, run_on_files
    from aclnn.io.arguments import Raw

    found = _find(operator)
    try:
        expect_options(arguments or [], [found], context)
        raw = Raw.of_words(dtype or [], shape or [])
        request = parse(found, arguments or [], out or [], raw)
    except ValueError as error:
        raise typer.BadParameter(visible(str(error))) from None
    with refusals(json):
        _stand_for(soc_name)
        run_on_files(request, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the figure.")] = Path("demo-output"),
    json: _Json = False,
) -> None:
    """Compute the documents' examples, then train on digits.

    The network for handwritten digits takes its gradients from the operators; its loss curves are drawn.
    """
    from aclnn.cli import demo as command
    from aclnn.cli.console import refusals

    with refusals(json):
        command.run(out, json)


@app.command()
def warm(soc_name: _Soc = None) -> None:
    """Compile now what ordinary first calls would.

    Kernels are kept in the cache (ACLNN_CACHE_DIR); exit status 1 where they cannot be. Takes two to three minutes.
    """
    from aclnn.cli.console import refusals
    from aclnn.cli.warm import warm

    with refusals():
        _stand_for(soc_name)
        kept = warm()
    if not kept:
        raise typer.Exit(1)


def _stand_for(soc_name: str | None) -> None:
    if soc_name is not None:
        from aclnn.core.products import set_soc_name

        set_soc_name(soc_name)


def _find(name: str) -> Any:
    from aclnn.operators import BY_NAME

    by_any_name = BY_NAME | {operator.function: operator for operator in BY_NAME.values()}
    if name not in by_any_name:
        raise typer.BadParameter(f"operator: expected one of {', '.join(BY_NAME)}, got {name!r}")
    return by_any_name[name]
