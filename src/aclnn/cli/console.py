"""What commands print: results on standard output, progress and refusals on standard error.

Needs the extra "cli".
"""

from __future__ import annotations

import json as json_text
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from aclnn.core.status import ACL_ERROR_INVALID_FILE, ACL_ERROR_INVALID_PARAM, CODES, AclnnError
from aclnn.io import FileError
from aclnn.support.optional import MissingExtraError

_ANY_WIDTH = 1_000_000
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Instead of characters that command a terminal: files, tensors and cases may be called anything."""


def visible(text: str) -> str:
    """A text whose characters all show, but for the ends of lines and tabs."""
    return text.translate(_VISIBLE)


class _Plain(Console):
    """Prints text as it is, but for what would command the terminal.

    Once the reader has left (| head), nobody is told: the status stays the command's. Where no terminal is, in a file
    or a pipe, no line is wrapped, cut or filled up with blanks.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    @property  # type: ignore[misc]  # rich can set it; nobody does
    def size(self) -> ConsoleDimensions:
        """A terminal's, else room for any line."""
        return super().size if self.is_terminal else ConsoleDimensions(_ANY_WIDTH, super().size.height)

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints; but columns of a table, which rich fills up with blanks, end with their text."""
        if self.is_terminal or all(isinstance(item, str) for item in objects):
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        super().print("\n".join(map(str.rstrip, captured.get().split("\n"))), end="", soft_wrap=True)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string as rich does for all that is printed, with control characters made visible."""
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Write into nothing from now on."""
        leave(self.file)


def leave(stream: IO[str]) -> None:
    """Have a standard stream whose other end takes nothing more write into nothing, also when Python ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


out = _Plain()
err = _Plain(stderr=True)


def print_json(value: Any) -> None:
    """One JSON document, for programs."""
    out.print(json_text.dumps(value, indent=2), soft_wrap=True)


REFUSED = (AclnnError, MissingExtraError, ValueError, OSError)
"""What operators, files, settings and the system refuse with."""


@contextmanager
def refusals(json: bool = False) -> Iterator[None]:
    """Turn what is refused into a text (with ``json`` also a document) and exit status 1."""
    try:
        yield
    except REFUSED as error:
        if json:
            print_refusal(error)
        err.print(f"aclnn: {_coded(error)}", soft_wrap=True, style="red")
        raise typer.Exit(1) from error


def print_refusal(error: Exception) -> None:
    """A refusal as a JSON document, unless it is standard output that takes nothing more."""
    refused = _coded(error)
    with suppress(OSError):
        print_json({"error": {"code": refused.code, "name": refused.name, "message": refused.message}})


def _coded(error: Exception) -> AclnnError:
    match error:
        case AclnnError():
            return error
        case FileError() | OSError():
            code = ACL_ERROR_INVALID_FILE
        case MissingExtraError():
            code = CODES["ACL_ERROR_API_NOT_SUPPORT"]
        case _:
            code = ACL_ERROR_INVALID_PARAM
    return AclnnError(code, text_of(error))


def text_of(error: Exception) -> str:
    """What an error says; the system's as those of files do: ``x.npy: No such file or directory``."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


_PATIENCE_S = 1.0


@contextmanager
def progress(total: int, step: str = "") -> Iterator[Progress]:
    """A bar on a terminal's standard error for what takes longer than a second; it vanishes at the end."""
    bar = Progress(total, step)
    timer = threading.Timer(_PATIENCE_S, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        bar.close()


class Progress:
    """How far a command has come: steps done of ``total``, and the name of the present one."""

    def __init__(self, total: int, step: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        counted = [BarColumn(), MofNCompleteColumn()] if total else []
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *counted,
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self._task = self._bar.add_task(step, total=total)
        self._lock = threading.Lock()
        self._closed = False

    def show(self) -> None:
        """Draw from now on, where somebody looks."""
        with self._lock:
            if err.is_terminal and not self._closed:
                self._bar.start()

    def step(self, name: str, advance: int = 1) -> None:
        """The step named begins; ``advance`` more are done."""
        self._bar.update(self._task, description=visible(name), advance=advance)

    def close(self) -> None:
        """Draw no more."""
        with self._lock:
            self._closed = True
            if self._bar.live.is_started:  # stopping another prints an empty line
                self._bar.stop()
