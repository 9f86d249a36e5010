"""The command line: ``aclnn`` and ``python -m aclnn``.

Exit status: 0 done; 1 refused or failed, with the code and text; 2 a command line that makes no sense.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

from aclnn.support.optional import MissingExtraError, require


def main() -> None:
    """Run the command that ``sys.argv`` holds, and exit."""
    try:
        require("rich", "cli")
        require("typer", "cli")
    except MissingExtraError as error:
        sys.exit(f"aclnn: {error}")
    from aclnn.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # of what the terminal's encoding has no sign for
    try:
        app(prog_name="aclnn")
    finally:
        _flush()


def _flush() -> None:
    """What cannot be written was refused when it was printed; Python would complain of it once more at its end."""
    from aclnn.cli.console import leave

    if sys.stdout is None:  # closed by whoever started the command (>&-)
        return
    try:
        sys.stdout.flush()
    except OSError:
        leave(sys.stdout)
