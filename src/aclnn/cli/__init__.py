"""The command line: ``aclnn`` and ``python -m aclnn``.

Exit status: 0 success; 1 error or failed verdict; 2 usage error.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

from aclnn.support.optional import MissingExtraError, import_or_raise


def main() -> None:
    """Run the command given by ``sys.argv``, and exit."""
    try:
        import_or_raise("rich", "cli")
        import_or_raise("typer", "cli")
    except MissingExtraError as error:
        sys.exit(f"aclnn: {error}")
    from aclnn.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that the terminal's encoding lacks
    try:
        app(prog_name="aclnn")
    finally:
        _flush()


def _flush() -> None:
    """Redirect stdout after a write error, so that Python does not report it again at exit."""
    from aclnn.cli.console import discard

    if sys.stdout is None:  # closed by the parent (>&-)
        return
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)
