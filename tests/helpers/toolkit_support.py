"""Fixtures for tests of the C toolkit: its tree, and programs compiled against it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aclnn.support.optional import MissingExtraError
from aclnn.toolkit import compiler

SOURCES = Path(__file__).parents[1] / "c"
#: The operators' sample programs, which are not part of this repository.
SAMPLES = Path(__file__).parents[3] / "shared" / "programs"
RUN_SECONDS = 120


def _missing() -> str | None:
    try:
        compiler.check()
    except (compiler.ToolkitError, MissingExtraError) as error:
        return str(error)
    return None


MISSING = _missing()
needs_toolkit = pytest.mark.skipif(MISSING is not None, reason=f"no C toolkit here: {MISSING}")


@pytest.fixture(scope="session")
def toolkit_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the toolkit's tree, one for all of xdist's processes."""
    if MISSING is not None:
        pytest.skip(MISSING)
    from aclnn.toolkit import tree

    base = tmp_path_factory.getbasetemp()
    return tree.ensure((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "toolkit")


Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(toolkit_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Return a function that compiles a program of tests/c (or another file) once and returns the executable."""
    from aclnn.toolkit.programs import compile_program

    done: dict[tuple[Path, tuple[str, ...]], Path] = {}
    folder = tmp_path_factory.mktemp("programs")

    def compile(source: str | Path, *options: str) -> Path:
        path = SOURCES / source
        key = (path, options)
        if key not in done:
            warnings = () if path.parent != SOURCES else ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
            name = f"{path.stem}-{len(done)}"
            done[key] = compile_program(path, folder / name, toolkit_root, (*warnings, *options))
        return done[key]

    return compile


def run(
    executable: Path,
    *arguments: object,
    status: int | None = 0,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout_s: float = RUN_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; ``status`` is the expected exit status (None for any)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")} | (env or {})
    done = subprocess.run(
        [executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        env=environment,
        timeout=timeout_s,
        check=False,
    )
    if status is not None:
        assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done
