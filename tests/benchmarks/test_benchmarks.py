"""Statements of benchmarks about themselves: the commit measured, and the participants."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import figures
from benchmarks.costs import ROOT
from benchmarks.run import Result, revision, shared

pytestmark = pytest.mark.slow


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


FILES = (
    "src/a.py",
    "benchmarks/run.py",
    "benchmarks/exhaustive.csv",
    "benchmarks/results/a-machine/results.csv",
    "docs/benchmarks.md",
    "docs/benchmarks/a-machine.md",
    "docs/figures/speed.svg",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a working tree with a commit; return its folder ``benchmarks``."""
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


ROW = Result("main", "silu", "float32", "4", "contiguous", 2, "aclnn", 1, 1, 1, 1, 0.75, 1.5, "a machine", "abc")


def written(folder: Path, *rows: Result) -> Path:
    """Return the paths of the pages of these measurements."""
    for row in rows:
        path = folder / "results" / figures.folder_of(row.machine) / "results.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", newline="") as file:
            csv.writer(file).writerows([row] if file.tell() else [Result._fields, row])
    figures.write(folder / "results", folder / "page.md")
    return folder / "page.md"


@pytest.mark.parametrize("provider", ["jax", "torch"])
def test_the_page_states_whether_jax_was_measured(tmp_path: Path, provider: str) -> None:
    row = ROW._replace(section="wide", provider=provider)
    written(tmp_path, row, row._replace(section="layouts", commit="def"))
    page = (tmp_path / "page" / "a-machine.md").read_text()
    assert ("JAX takes part" in page) == (provider == "jax")
    assert ("JAX did not take part" in page) == (provider != "jax")
    assert "commit abc, def." in page


def test_each_machine_has_its_page_and_all_stand_side_by_side(tmp_path: Path) -> None:
    other = ROW._replace(machine="Another (R), 2 cores", share_of_limit=0.5, times_torch=3.0)
    page = written(tmp_path, ROW, other, other._replace(threads=1, share_of_limit=0.25)).read_text()
    assert "| silu | float32 | 0.75; 1.5 × | 0.25, 0.50; 3.0 × |" in page
    for name in ("a-machine", "another-r-2-cores"):
        assert f"(page/{name}.md)" in page
        assert "silu" in (tmp_path / "page" / f"{name}.md").read_text()
    assert {path.name for path in (tmp_path / "figures").iterdir()} >= {"speed.svg", "shares.svg"}


def test_bars_compared_with_a_composition_are_labelled(tmp_path: Path) -> None:
    written(tmp_path, ROW, ROW._replace(operator="fast_gelu_backward", times_torch=40.0))
    labels = set(re.findall(r">([^<]*)</text>", (tmp_path / "figures" / "speed.svg").read_text()))
    assert {"1.5×", "40.0× a composition"} <= labels


def test_committed_figures_are_small_and_well_formed() -> None:
    lines = 0
    for path in (ROOT / "docs").rglob("*.svg"):
        text = path.read_text()
        ElementTree.fromstring(text)
        assert len(text.encode()) <= 60_000, path
        lines += text.count("\n")
    assert 0 < lines <= 12_000


def test_the_committed_pages_match_the_committed_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.pictures.save", lambda *arguments: None)
    figures.write(figures.RESULTS, tmp_path / "benchmarks.md")
    pages = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")}
    assert len(pages) > 1
    for page in pages:
        assert (tmp_path / page).read_text() == (figures.PAGE.parent / page).read_text()


@pytest.mark.parametrize("program", ["first_call_ms", "call_us", pytest.param("layer_us", marks=pytest.mark.long)])
def test_costs_are_measured(program: str) -> None:
    """Each cost is measured, also the executor's, which needs memory of its own."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = subprocess.run([sys.executable, "-m", "benchmarks.costs", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    times = found.values() if isinstance(found, dict) else [found]
    assert all(0 < time < 1e6 for time in times)


def where(place: int) -> list[tuple[int, set[int]]]:
    """Return a workload's place, and the processors that it is measured on."""
    return [(place, os.sched_getaffinity(0))]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on processors here")
def test_processes_that_share_the_work_have_processors_of_their_own() -> None:
    before = os.sched_getaffinity(0)
    found = list(shared(where, range(3), 1))  # type: ignore[arg-type]  # any rows
    assert found == [[(place, {*sorted(before)[:2]})] for place in range(3)]
    assert os.sched_getaffinity(0) == before
