"""``aclnn toolkit``: C and C++ programs against the aclnn interfaces, without an NPU."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from aclnn.cli import console
from aclnn.cli.options import SocOption
from aclnn.cli.programs import TraceOption, execute
from aclnn.core.status import name_of
from aclnn.toolkit import tree
from aclnn.toolkit.programs import compile_program
from aclnn.toolkit.trace import Record, read

app = typer.Typer(
    help="Build and run C and C++ programs without an NPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("build")
def build_command(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Directory for the tree; by default one in the user's cache.")
    ] = None,
    refuse_undefined: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="OBJECT",
            help="Object file, archive or library; repeatable. Unknown operators' functions that it calls get entry "
            "points that return 561103 and name the function, so that programs link.",
        ),
    ] = None,
) -> None:
    """Build headers, libraries and set_env.sh, and print their directory."""
    from aclnn.toolkit import absent  # imports every C function, which other commands do not need

    with console.exit_status():
        unimplemented = absent.undefined_in(refuse_undefined or ())
        if unimplemented:
            console.err.print(f"rejected when called: {', '.join(unimplemented)}", soft_wrap=True)
        typer.echo(tree.build(directory, unimplemented))


@app.command("path")
def path_command() -> None:
    """Print the tree's directory; build the tree first if necessary."""
    with console.exit_status():
        typer.echo(tree.ensure())


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    program: Annotated[Path, typer.Argument(help="A C or C++ file.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]", help="Arguments of the program.")] = None,
) -> None:
    """Compile, link and run one file; exit with the program's status, or 128 + n if signal n ended it."""
    with console.exit_status(), tempfile.TemporaryDirectory(prefix="aclnn-run-") as folder:
        executable = compile_program(program, Path(folder) / program.stem)
        status = subprocess.run([executable, *(arguments or [])], check=False).returncode
    if status < 0:
        ended = f"{program} was ended by {_signal(-status)}; exit status {128 - status}"
        console.err.print(f"aclnn toolkit: {ended}", soft_wrap=True)
        status = 128 - status
    raise typer.Exit(status)


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def exec_command(
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGS]", help="For example python train.py.")],
    soc_name: SocOption = None,
    trace: TraceOption = False,
) -> None:
    """Run a program that looks for CANN itself, in the environment that set_env.sh sets.

    With --trace, the exit status of a program ended by signal n is 128 + n.
    """
    with console.exit_status():
        execute(arguments, soc_name, trace)


def _signal(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


@app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="File written by a program run with ACLNN_TRACE=FILE.")],
    summary: Annotated[bool, typer.Option("--summary", help="One row per function instead of one per call.")] = False,
) -> None:
    """Show a trace as a table."""
    with console.exit_status():
        records = list(read(file))
        _print_table(*(_summary(records) if summary else _calls(records)))


_Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def _calls(records: Sequence[Record]) -> _Table:
    rows = [(r.name, r.arguments, _status(r), f"{r.microseconds:.1f}") for r in records]
    return ("call", "arguments", "status", "µs"), rows


def _summary(records: Sequence[Record]) -> _Table:
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    rows = []
    for name, calls in sorted(by_name.items(), key=lambda item: -sum(r.microseconds for r in item[1])):
        spent = [call.microseconds for call in calls]
        failed = sum(_is_error(call) for call in calls)
        rows.append((name, str(len(calls)), str(failed), f"{sum(spent):.1f}", f"{max(spent):.1f}"))
    return ("call", "calls", "failed", "µs in all", "slowest µs"), rows


def _is_error(record: Record) -> bool:
    return _code(record) != 0 and name_of(_code(record)) != record.status


def _code(record: Record) -> int:
    return int(record.status) if record.status.removeprefix("-").isdecimal() else 0


def _status(record: Record) -> str:
    return f"{record.status} {name_of(_code(record))}" if _is_error(record) else record.status


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")  # wrap addresses on a narrow terminal instead of truncating them
    for row in rows:
        table.add_row(*row)
    console.out.print(table)
