"""The search for fitted versions: it prints the committed data, and finds columns as good as those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("flint")

from aclnn.kernels import fitted
from aclnn.kernels.fitted import Segments, ShortSegments
from tools import segments, short_segments
from tools.functions import fitted_function
from tools.segments import Column, Segment, Task

NAMES = sorted(path.stem for path in Path(fitted.__path__[0]).glob("*_*.py") if path.stem != "__init__")


def module_of(name: str) -> ModuleType:
    found = fitted.module_of(fitted_function(name))
    assert found is not None
    return found


def task_of(name: str) -> tuple[Task, Segments]:
    found = module_of(name).FLOAT
    assert isinstance(found, Segments)
    return Task(name, found.per_unit, found.bound, len(found.centre), len(found.p)), found


def column(found: Segments, i: int) -> Column:
    return Column(found.centre[i], found.c0[i], np.array([row[i] for row in found.p]))


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_modules_have_what_is_printed_of_their_data(name: str) -> None:
    module = module_of(name)
    assert module.__file__
    text = Path(module.__file__).read_text(encoding="utf-8")
    for label, version in vars(module).items():
        if isinstance(version, (Segments, ShortSegments)):
            printed = segments.printed(version) if isinstance(version, Segments) else short_segments.printed(version)
            assert f"\n{label} = " + "\n".join(printed) in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "i"), [("gelu_tanh_derivative", 7), ("gelu_tanh_forward", 15), ("mish_derivative", 3)]
)
def test_a_short_search_comes_near_the_committed_column(monkeypatch: pytest.MonkeyPatch, name: str, i: int) -> None:
    monkeypatch.setattr(segments, "TRIES", 1)
    task, found = task_of(name)
    _, units, _ = segments.best_column(task, i)
    committed, _ = segments.assess(*Segment(task, i).every, *column(found, i))
    assert units < committed + 0.15
    assert committed < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["silu_derivative", "fast_gelu_derivative", "gelu_erf_derivative", "gelu_tanh_derivative"]
)
def test_the_zero_of_a_derivative_has_the_float32_around_it_as_centres(name: str) -> None:
    task, found = task_of(name)
    i = next(i for i, c0 in enumerate(found.c0) if 0 < abs(c0) < 1e-6)
    centres = Segment(task, i).centres()
    assert (found.centre[i], found.c0[i]) in centres
    assert len(centres) == 3
    assert all(abs(float(task.g(centre))) < 1e-7 for centre, _ in centres)


def test_the_rest_of_the_slope_with_a_zero_is_the_committed_one() -> None:
    task, found = task_of("mish_derivative")
    assert task.rest == found.rest != 0.0


def test_an_unknown_function_is_rejected_with_the_known_names() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.fit", "silu"], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert "expected one of fast_gelu_derivative" in run.stderr
    assert "got 'silu'" in run.stderr


def test_a_segment_without_a_start_for_its_polynomial_is_rejected() -> None:
    task = Task("unit_elu_forward", 0.87, 17.75, 16, 7)
    with pytest.raises(ValueError, match="unit_elu_forward: expected a multiple of 1/8192 with almost a float32 from"):
        segments.best_column(task, 15)
