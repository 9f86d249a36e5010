"""The search for polynomials by segments: it prints the committed modules, and finds columns as good as theirs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmarks import fit_segments
from benchmarks.fit_segments import SLOPES, VALUES, Column, Segment, Task

from aclnn.kernels.cpu.elementwise import slopes_coefficients, values_coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Segments

KINDS = {"slopes": (slopes_coefficients, SLOPES), "values": (values_coefficients, VALUES)}


def segments_of(module: ModuleType, name: str) -> Segments:
    found = getattr(module, name.upper())
    assert isinstance(found, Segments)
    return found


def column(segments: Segments, i: int) -> Column:
    return Column(segments.centre[i], segments.c0[i], np.array([row[i] for row in segments.p]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_module_is_what_is_printed_of_its_columns(kind: str) -> None:
    module, tasks = KINDS[kind]
    columns = {
        (name, i): column(segments_of(module, name), i) for name, task in tasks.items() for i in range(task.count)
    }
    assert module.__file__
    printed = "\n".join(fit_segments.module(kind, tasks, columns))
    assert Path(module.__file__).read_text(encoding="utf-8") == f"{printed}\n"


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "i"), [("slopes", "gelu_tanh", 7), ("values", "gelu_tanh", 15)])
def test_a_short_search_comes_near_the_committed_column(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, i: int
) -> None:
    monkeypatch.setattr(fit_segments, "TRIES", 1)
    _, units, _ = fit_segments.best_column(kind, name, i)
    segment = Segment(kind, name, i)
    committed, _ = fit_segments.judge(*segment.every, *column(segments_of(KINDS[kind][0], name), i))
    assert units < committed + 0.15
    assert committed < 1.0


@pytest.mark.parametrize("name", SLOPES)
def test_the_zero_of_a_derivative_has_the_float32_around_it_as_centres(name: str) -> None:
    task: Task = SLOPES[name]
    segments = segments_of(slopes_coefficients, name)
    i = next(i for i, c0 in enumerate(segments.c0) if 0 < abs(c0) < 1e-6)
    centres = Segment("slopes", name, i).centres()
    assert (segments.centre[i], segments.c0[i]) in centres
    assert len(centres) == 3
    assert all(abs(float(task.g(centre))) < 1e-7 for centre, _ in centres)
