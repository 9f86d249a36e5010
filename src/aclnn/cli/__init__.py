"""The command line: ``aclnn`` and ``python -m aclnn``.

Exit status: 0 done; 1 refused or failed, with the code and text; 2 a command line that makes no sense.
"""

from __future__ import annotations

import sys

from aclnn.extras import MissingExtraError, require


def main() -> None:
    """Run the command that ``sys.argv`` holds, and exit."""
    try:
        require("rich", "cli")
        require("typer", "cli")
    except MissingExtraError as error:
        sys.exit(f"aclnn: {error}")
    from aclnn.cli.app import app

    app(prog_name="aclnn")
