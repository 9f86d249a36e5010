"""Run the tests that meet every dependency with the oldest ones that pyproject.toml allows.

    python tests/helpers/lowest.py [pytest's arguments]

The oldest releases have wheels for Python 3.10 and 3.11. What they need in turn is the newest that fits, as pip would
install it. PyTorch and Triton take gigabytes and are left out, as are tools that only read the source.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = {"mkdocs", "mkdocs-material", "mkdocstrings"}
LEFT_OUT = {"torch", "triton", "ruff", "mypy", "import-linter", "grimp", "basedpyright", *DOCS}
TESTS = (
    "cli/test_cli.py",
    "verify/test_command.py",
    "io/test_files.py",
    "execution/test_arrays.py",
    "core/test_dtypes.py",
    "kernels/test_headers.py",
    "demo/test_demo.py",
    "test_packaging.py",
)


def lower_bounds() -> dict[str, str]:
    """The oldest version of each dependency, those of extras too."""
    named = ((re.match(r"[\w.-]+", line), re.search(r">=([\w.]+)", line)) for line in requires("aclnn") or ())
    return {name[0]: bound[1] for name, bound in named if bound and name[0] not in LEFT_OUT}


def main(arguments: list[str]) -> int:
    pins = [f"{name}=={version}" for name, version in lower_bounds().items()]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--only-binary", ":all:", *pins], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)
        print("with", *pins, flush=True)
        tests = [f"tests/{name}" for name in TESTS]
        return subprocess.run([python, "-m", "pytest", *tests, *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
