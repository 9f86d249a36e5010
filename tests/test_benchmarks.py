"""What benchmarks say of themselves: the commit they measured, and who took part."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest
from benchmarks import figures
from benchmarks.run import Result, revision


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


FILES = ("src/a.py", "benchmarks/run.py", "benchmarks/results.csv", "docs/benchmarks.md", "docs/figures/speed.svg")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree with a commit; its folder ``benchmarks``."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path / "benchmarks"


def test_the_files_that_a_run_writes_do_not_make_its_commit_dirty(tree: Path) -> None:
    clean = revision(tree)
    assert clean
    assert not clean.endswith("-dirty")
    for name in FILES[2:]:
        (tree.parent / name).write_text("second\n")
    assert revision(tree) == clean


@pytest.mark.parametrize("name", FILES[:2])
@pytest.mark.parametrize("staged", [False, True])
def test_other_files_do(tree: Path, name: str, staged: bool) -> None:
    clean = revision(tree)
    (tree.parent / name).write_text("second\n")
    if staged:
        git(tree, "add", ":/")
    assert revision(tree) == f"{clean}-dirty"


def test_without_a_repository_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(tmp_path) == "unknown"


@pytest.mark.parametrize("provider", ["jax", "torch"])
def test_the_page_says_whether_jax_took_part(tmp_path: Path, provider: str) -> None:
    row = Result("wide", "silu", "float32", "4", "contiguous", 2, provider, 1, 1, 1, 1, 1, 1, "a machine", "abc")
    with open(tmp_path / "results.csv", "w", newline="") as file:
        csv.writer(file).writerows([Result._fields, row, row._replace(section="layouts", commit="def")])
    figures.write(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert ("JAX takes part" in page) == (provider == "jax")
    assert ("JAX did not take part" in page) == (provider != "jax")
    assert "commit abc, def;" in page
