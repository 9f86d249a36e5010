"""The installed package: dependencies, contents and hints."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import aclnn
from aclnn.cli import app
from tests.helpers.lowest import LEFT_OUT, ROOT, lower_bounds

REQUIREMENTS = [Requirement(line) for line in requires("aclnn") or ()]


def test_every_lower_bound_is_one_that_is_tested() -> None:
    names = {found.name for found in REQUIREMENTS} - {"aclnn"}
    assert set(lower_bounds()) == names - LEFT_OUT


@pytest.mark.parametrize("name", ["numpy", "numba", "torch"])
def test_dependencies_with_private_imports_have_upper_bounds(name: str) -> None:
    bounds = next(found.specifier for found in REQUIREMENTS if found.name == name)
    assert {bound.operator for bound in bounds} == {">=", "<"}
    if name != "torch":
        assert bounds.contains(version(name))


def test_a_flag_that_is_the_word_false_does_not_end_a_failing_verify_with_status_0() -> None:
    """Typer 0.12.4 with Click 8.2 passes the word to --version's callback, which must not print the version."""
    app._print_version("False")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> tarfile.TarFile:
    folder = tmp_path_factory.mktemp("sdist")
    program = f"from setuptools import build_meta; print(build_meta.build_sdist({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tarfile.open(folder / done.stdout.splitlines()[-1])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no clone")
def test_an_sdist_lacks_no_file_that_the_clone_has(sdist: tarfile.TarFile) -> None:
    """Tests in an sdist need tests/cases, tests/c, examples and documentation."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(tracked) <= {name.partition("/")[2] for name in sdist.getnames()}


WITHOUT_EXTRAS = """
import sys
sys.path.insert(0, {wheel!r})
for name in ("rich", "typer", "jinja2", "cffi", "flint", "mpmath", "torch", "sklearn", "matplotlib"):
    sys.modules[name] = None
import aclnn
assert aclnn.__file__.startswith({wheel!r})
from aclnn.support.optional import MissingExtraError, import_or_raise
for module, extra in (("cffi", "toolkit"), ("jinja2", "verify"), ("torch", "torch")):
    try:
        import_or_raise(module, extra)
    except MissingExtraError as error:
        print(error)
from aclnn.cli import main
main()
"""


def test_a_wheel_names_the_package_in_its_hints_and_has_its_data(tmp_path: Path) -> None:
    """Hints must not name a clone, which users of a wheel do not have."""
    program = f"from setuptools import build_meta; print(build_meta.build_wheel({str(tmp_path)!r}))"
    shutil.copytree(ROOT, tmp_path / "clone", ignore=shutil.ignore_patterns(".*", "docs", "benchmarks", "*.egg-info"))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "clone", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(tmp_path / "site")
    data = {path.name for path in (tmp_path / "site" / "aclnn").rglob("*") if path.is_file() and path.suffix != ".py"}
    assert data == {
        "py.typed",
        "__init__.pyi",
        "cann.pyi",
        "bridge.c",
        "atb.cpp",
        "ge.cpp",
        "start.c",
        "objects.c",
        "objects.h",
        "start.h",
        "stubs.h",
        "fp16_t.h",
        "securec.h",
        "valgrind.supp",
        "template.html",
    }
    program = WITHOUT_EXTRAS.format(wheel=str(tmp_path / "site"))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "cffi is not installed: pip install 'aclnn[toolkit]'",
        "jinja2 is not installed: pip install 'aclnn[verify]'",
        "torch is not installed: pip install 'aclnn[torch]'",
    ]
    assert (done.returncode, done.stderr) == (1, "aclnn: rich is not installed: pip install 'aclnn[cli]'\n")


OPERATOR_CALL = """
import numpy as np, aclnn
x = np.linspace(-4, 4, 9, dtype=np.float32)
s = 1 / (1 + np.exp(-x.astype(np.float64)))
np.testing.assert_allclose(aclnn.silu_backward(np.ones_like(x), x), s * (1 + x * (1 - s)), rtol=1e-6)
print(aclnn.__file__, aclnn.__version__)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_built_wheel_installs_into_a_fresh_environment_and_computes(kind: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "clone", ignore=shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info"))
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "clone", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    venv.create(tmp_path / "venv", with_pip=True)
    python, package = tmp_path / "venv" / "bin" / "python", tmp_path / done.stdout.splitlines()[-1]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
    done = subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([python, "-I", "-c", OPERATOR_CALL], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(next((tmp_path / "venv").glob("lib/python*/site-packages/aclnn/__init__.py"))), aclnn.__version__
    ]  # fmt: skip


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {aclnn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
