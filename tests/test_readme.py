"""The documentation does as it says: blocks of README and two pages, examples, links.

Lines that begin with ``# -> `` are the output expected; … stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType
from aclnn.operators import BY_NAME
from aclnn.operators.library import elementwise
from tests.helpers import exact as exact_values

ROOT = Path(__file__).parents[1]
SHOWN = "\n".join((ROOT / page).read_text() for page in ("README.md", "docs/verify.md", "docs/custom-operators.md"))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", SHOWN, re.MULTILINE | re.DOTALL)
RUNNABLE = [(language, text) for language, text in BLOCKS if language in ("python", "sh")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def need_torch_for(program: str) -> None:
    if "import torch" in program:
        pytest.importorskip("torch")


def expect(output: str, source: str) -> None:
    expected = [line.removeprefix("# -> ") for line in source.splitlines() if line.startswith("# -> ")]
    assert expected, "a program shows what it prints"
    pattern = "\n".join(".*".join(map(re.escape, line.split("…"))) for line in expected) + "\n"
    assert re.fullmatch(pattern, output), f"printed:\n{output}"


@pytest.mark.slow
@pytest.mark.parametrize(("language", "text"), RUNNABLE, ids=[f"{i}-{block[0]}" for i, block in enumerate(RUNNABLE)])
def test_block_of_a_page(language: str, text: str, tmp_path: Path) -> None:
    need_torch_for(text)
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", text]
    expect(run(command, tmp_path), text)


def test_the_pages_have_blocks_to_run() -> None:
    assert {language for language, _ in RUNNABLE} == {"python", "sh"}


# They train for minutes; tests in tests/torch take a few of their steps.
LONG = {"torch_training", "torch_norms"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem in LONG)) for path in EXAMPLES],
)
def test_example(example: Path, tmp_path: Path) -> None:
    need_torch_for(example.read_text())
    expect(run([sys.executable, str(example)], tmp_path), example.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", text) + re.findall(r"""(?:src|srcset)="([^"]+)""", text)
    for link in links:
        target, _, heading = link.partition("#")
        found = page.parent / target if target else page
        assert found.exists(), link
        assert not heading or heading in anchors(found), link


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes for a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_tables_have_the_line_that_makes_them_tables() -> None:
    """Without dashes below its head, a table is rendered as a paragraph."""
    for page in PAGES:
        for table in re.findall(r"^\|.*(?:\n\|.*)*", page.read_text(), re.MULTILINE):
            assert re.match(r".*\n(\| ?:?-+:? ?)+\|(\n|$)", table), f"{page.name}: {table[:80]}"


def test_the_commands_named_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for page in PAGES:
        for target in re.findall(r"`make (\w+)", page.read_text()):
            assert target in targets, f"{page.name}: make {target}"


def test_every_variable_is_documented() -> None:
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    documented = set(re.findall(r"^\| `(ACLNN_[A-Z_]+)`", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE))
    read = set(re.findall(r"""(?:environ|integer\()[^#\n]*["'](ACLNN_[A-Z_]+)""", source))
    assert {"ACLNN_DEVICE_COUNT", "ACLNN_NUM_THREADS"} < read
    assert read - documented == {"ACLNN_TEST_WORKSPACE_BYTES"}, "that one is for tests"
    assert documented <= set(re.findall(r"""["'](ACLNN_[A-Z_]+)["']""", source))


def test_adding_an_operator_works_as_contributing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    file, row, *_ = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert f"{len(file.splitlines())} lines, 1 line and {len(row.splitlines())} lines" in text

    added: dict[str, Any] = {}
    exec(compile(file, "softsign.py", "exec"), added)
    operator = added["SOFTSIGN_BACKWARD"]
    assert not re.search(r"^(import|from) (numpy|numba|torch|aclnn\.kernels)", file, re.MULTILINE)

    monkeypatch.setattr(aclnn, operator.name, added[operator.name], raising=False)
    monkeypatch.setitem(BY_NAME, operator.name, operator)
    rows: dict[str, Any] = {}
    exec(compile(row, "softsign.py", "exec"), rows)
    case = rows["SOFTSIGN_BACKWARD"]
    assert {rejection.check for rejection in case.rejected} == {check.name for check in operator.checks}

    curve = case.curves["softsign"]
    x = np.linspace(-25, 25, 501, dtype=np.float32)
    exact = exact_values.derivatives(curve.forward, x.astype(np.float64))
    got = case.python(np.ones_like(x), x)
    assert np.max(np.abs(got - exact) / exact_values.ulp_of(exact, DataType.FLOAT)) <= 0.51
    assert all(abs(exact_values.derivative(curve.forward, zero)) < 1e-12 for zero in curve.zeros)
    for probe, digits in curve.probes.items():
        assert f"{case.python(np.ones(1, np.float32), np.full(1, probe, np.float32))[0]:f}" == digits


def test_adding_a_plain_operator_works_as_contributing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    text = (ROOT / "CONTRIBUTING.md").read_text()
    *_, file, tests = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    module = ModuleType("aclnn.operators.library.elementwise.hypotenuse")
    exec(compile(file, "hypotenuse.py", "exec"), vars(module))
    monkeypatch.setattr(elementwise, "hypotenuse", module, raising=False)
    added: dict[str, Any] = {}
    exec(compile(tests, "test_hypotenuse.py", "exec"), added)
    suite = added["TestHypotenuse"]()
    for row in suite.subject.rows():
        suite.test_every_check_rejects(*row.values)
    for operator in suite.subject.operators:
        suite.test_products_without_a_kernel_reject_after_all_checks(operator)
        suite.test_bfloat16_is_rejected_where_the_product_lacks_it(operator)
        suite.test_empty_tensors_are_nothing_to_do(operator)
        for layout in ("contiguous", "transposed", "reversed with holes"):
            suite.test_values_are_pytorchs(operator, layout)


def test_the_files_that_answer_questions_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| question |") :].split("\n\n")[0]
    answers = re.findall(r"`([\w/]+(?:\.py|/))`", table.replace("`src/aclnn/`", ""))
    assert len(answers) > 24
    assert [file for file in answers if not (ROOT / "src" / "aclnn" / file).exists()] == []
