"""Run ``aclnn verify`` in this process; modules that import this are skipped without the command line's extra."""

import pytest

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("rich", reason="rich is not installed")

from typer.testing import CliRunner

from aclnn.cli.verify import app


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
