"""``aclnn toolkit``: C and C++ programs against the aclnn interfaces, without an NPU."""

from __future__ import annotations

import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from aclnn.cli import console
from aclnn.core.status import AclnnError, name_of
from aclnn.support.optional import MissingExtraError, require
from aclnn.toolkit import absent, tree
from aclnn.toolkit.compiler import CompileError, ToolkitError, c_compiler, compile, cxx_compiler, words
from aclnn.toolkit.trace import Record, read

app = typer.Typer(
    help="C and C++ programs against the aclnn interfaces, without an NPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)

#: What a program links.
LINKED = ("-lopapi", "-lnnopbase", "-lascendcl")
_C_SUFFIXES = (".c",)
_CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")


@contextmanager
def complaints(command: str = "toolkit") -> Iterator[None]:
    """Turn what is missing or refused into a text and exit status 2."""
    try:
        yield
    except (AclnnError, ToolkitError, MissingExtraError, OSError, ValueError) as error:
        console.err.print(f"aclnn {command}: {console.text_of(error)}", soft_wrap=True)
        raise typer.Exit(2) from None


@app.command("build")
def build_command(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where to lay the tree out; a cache folder by default.")
    ] = None,
) -> None:
    """Lay out headers, libraries and set_env.sh, and print where."""
    with complaints():
        typer.echo(tree.build(directory))


@app.command("path")
def path_command() -> None:
    """Print the tree's folder; lay it out first if it is not there."""
    with complaints():
        typer.echo(tree.ensure())


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    program: Annotated[Path, typer.Argument(help="One C or C++ file.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]", help="The program's own.")] = None,
) -> None:
    """Compile one file, link it and run it; the exit status is the program's, 128 + n for one ended by signal n."""
    with complaints(), tempfile.TemporaryDirectory(prefix="aclnn-run-") as folder:
        executable = compile_program(program, Path(folder) / program.stem)
        status = subprocess.run([executable, *(arguments or [])], check=False).returncode
    if status < 0:
        ended = f"{program} was ended by {_signal(-status)}; exit status {128 - status}"
        console.err.print(f"aclnn toolkit: {ended}", soft_wrap=True)
        status = 128 - status
    raise typer.Exit(status)


def _signal(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def compile_program(source: Path, executable: Path, root: Path | None = None, options: Sequence[str] = ()) -> Path:
    """Compile and link one C or C++ program against the tree.

    Raises:
        OSError: there is no such file.
        ToolkitError: the file is not one of C or C++; no compiler, or it refuses the program.
    """
    _expect_program(source)
    root = tree.ensure(root)
    is_c = source.suffix in _C_SUFFIXES
    standard = ["-std=gnu11"] if is_c else ["-std=c++17"]
    flags = words("CFLAGS" if is_c else "CXXFLAGS")
    # The folders that the vendor's scripts name for a single file.
    include = [f"-I{root / folder}" for folder in ("include", "include/aclnn", "include/aclnnop")]
    folders = [*include, f"-L{root / 'lib64'}", f"-Wl,-rpath,{root / 'lib64'}"]
    command = [*(c_compiler() if is_c else cxx_compiler()), *standard, "-O1", "-g", *flags, *options, *folders]
    try:
        compile([*command, "-o", executable, source, *LINKED, "-lm", "-lpthread"])
    except CompileError as error:
        raise ToolkitError(f"{error}{_absence(error.output, root)}") from None
    return executable


def _absence(output: str, root: Path) -> str:
    names = absent.named_in(output)
    if not names:
        return ""
    return (
        f"this toolkit does not have {', '.join(names)}; what it has is listed in docs/c-functions.md, by 'aclnn info' "
        f"(operators) and in {root / 'include'}"
    )


def _expect_program(source: Path) -> None:
    """Whatever is no source, a linker would take for its script."""
    if not stat.S_ISREG(source.stat().st_mode):
        raise ToolkitError(f"{source}: expected a regular file")
    known = _C_SUFFIXES + _CXX_SUFFIXES
    if source.suffix not in known:
        got = source.suffix or "no suffix"
        raise ToolkitError(f"{source}: expected a C or C++ file, one of {', '.join(known)}, got {got}")


@app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="What a program run with ACLNN_TRACE=FILE has written.")],
    summary: Annotated[bool, typer.Option("--summary", help="One row for each function instead of each call.")] = False,
) -> None:
    """Show a trace as a table."""
    with complaints():
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
        refused = sum(_is_refusal(call) for call in calls)
        rows.append((name, str(len(calls)), str(refused), f"{sum(spent):.1f}", f"{max(spent):.1f}"))
    return ("call", "calls", "refused", "µs in all", "slowest µs"), rows


def _is_refusal(record: Record) -> bool:
    return _code(record) != 0 and name_of(_code(record)) != record.status


def _code(record: Record) -> int:
    return int(record.status) if record.status.lstrip("-").isdigit() else 0


def _status(record: Record) -> str:
    return f"{record.status} {name_of(_code(record))}" if _is_refusal(record) else record.status


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    require("rich", "cli")
    from rich.table import Table

    from aclnn.cli.console import out

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")  # a terminal too narrow for an address breaks it, and cuts nothing
    for row in rows:
        table.add_row(*row)
    out.print(table)
