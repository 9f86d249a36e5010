"""Output of the commands: results on standard output, progress and errors on standard error, exit statuses.

Needs the extra "cli".
"""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import typer
from rich.console import Console
from rich.text import Text

from aclnn.cli.options import STDOUT
from aclnn.core.status import ACL_ERROR_INVALID_FILE, ACL_ERROR_INVALID_PARAM, CODES, AclnnError
from aclnn.io import FileError, replace_all
from aclnn.support.optional import MissingExtraError
from aclnn.toolkit.compiler import ToolkitError

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Escapes of control characters, which file, tensor and case names may contain."""


class UsageError(ValueError):
    """A command line error; exit status 2."""


class _Plain(Console):
    """Console that prints text verbatim with visible control characters, and ignores a closed pipe (| head)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string as rich does, with visible control characters."""
        return super().render_str(text.translate(_VISIBLE), **options)

    def on_broken_pipe(self) -> None:
        """Discard all further output."""
        discard(self.file)


def discard(stream: IO[str]) -> None:
    """Redirect a standard stream to nowhere, so that Python does not report a write error again at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def _width(stream: IO[str] | None) -> int | None:
    """Return a width without wrapping for a pipe or file, None for a terminal's own width."""
    return None if stream is not None and stream.isatty() else 1_000_000


out = _Plain(width=_width(sys.stdout))
err = _Plain(stderr=True, width=_width(sys.stderr))


def write_json(value: Any, path: Path) -> None:
    """Write a JSON document to a file, or to standard output for ``-``."""
    text = json_text.dumps(value, indent=2) + "\n"
    if path == STDOUT:
        out.print(text, soft_wrap=True, end="")
    else:
        replace_all({path: lambda file: file.write(text.encode())})


@contextmanager
def exit_status(json: Path | None = None) -> Iterator[None]:
    """Report an error and exit: with status 2 for a usage error, 1 for any other.

    With ``--json -`` the error is also written as a JSON document.
    """
    try:
        yield
    except (AclnnError, MissingExtraError, ToolkitError, ValueError, OSError) as error:
        coded = _coded(error)
        if json == STDOUT:
            with suppress(OSError):  # the error may be one of standard output
                write_json({"error": {"code": coded.code, "name": coded.name, "message": coded.message}}, json)
        text = str(error) if isinstance(error, AclnnError) else coded.message
        err.print(f"aclnn: {text}", soft_wrap=True, style="red")
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error


@contextmanager
def usage() -> Iterator[None]:
    """Report a ValueError as a usage error."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def _coded(error: Exception) -> AclnnError:
    match error:
        case AclnnError():
            return error
        case FileError() | OSError():
            code = ACL_ERROR_INVALID_FILE
        case MissingExtraError() | ToolkitError():
            code = CODES["ACL_ERROR_API_NOT_SUPPORT"]
        case _:
            code = ACL_ERROR_INVALID_PARAM
    return AclnnError(code, text_of(error))


def text_of(error: Exception) -> str:
    """Return an error's text; system errors are formatted as ``x.npy: No such file or directory``."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@contextmanager
def progress(total: int, step: str = "") -> Iterator[Progress]:
    """Show a transient progress bar on standard error, if that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    counted = [BarColumn(), MofNCompleteColumn()] if total else []
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, *counted, TimeElapsedColumn())
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        yield Progress(bar, bar.add_task(step, total=total))


class Progress:
    """Progress bar: number of finished steps and name of the current step."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def step(self, name: str, advance: int = 1) -> None:
        """Begin the named step, after ``advance`` finished ones."""
        self._bar.update(self._task, description=name.translate(_VISIBLE), advance=advance)
