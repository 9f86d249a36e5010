"""Run tests that use each dependency with the oldest versions that pyproject.toml allows.

    python tests/helpers/lowest.py [pytest's arguments]

The oldest releases have wheels for Python 3.10 and 3.11. Indirect dependencies are the newest that fit, as pip installs
them. PyTorch takes gigabytes and is omitted, as are tools that only read the source. Triton's oldest release interprets
and compiles the GPU's kernels with this environment's PyTorch.
"""

from __future__ import annotations

import os
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
PYTEST = "-m", "pytest", "-n", "2"
TRITON_TESTS = "test_numbers_are_float64 or (test_interpreted_kernels_match_the_cpu and (float32 or general))"


def lower_bounds() -> dict[str, str]:
    """Return the oldest version of each dependency, including those of extras."""
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
        code = subprocess.run([python, *PYTEST, *tests, *arguments], cwd=ROOT).returncode
        return code or oldest_triton(Path(folder, "triton"))


def oldest_triton(folder: Path) -> int:
    """Run tests of the GPU's kernels with the oldest Triton, if it has a wheel for this system and Python."""
    (bound,) = (line for line in requires("aclnn") or () if re.match(r"triton\b.*extra == .cuda", line))
    version = re.search(r">=([\w.]+)", bound)
    assert version is not None
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if subprocess.run([*pip, "--target", str(folder), f"triton=={version[1]}"]).returncode:
        print(f"without triton=={version[1]}, which does not install here", flush=True)
        return 0
    print(f"with triton=={version[1]}", flush=True)
    tests = ["tests/kernels/test_triton_kernels.py", "-k", TRITON_TESTS]
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run([sys.executable, *PYTEST, *tests], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
