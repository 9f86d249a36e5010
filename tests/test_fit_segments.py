"""The search for polynomials by segments: it prints the committed modules, and finds columns as good as theirs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmarks import fit_segments
from benchmarks.fit_segments import SLOPES, VALUES, Column, Segment, Task

from aclnn.kernels.fitted import Segments

KINDS = {"slopes": SLOPES, "values": VALUES}


def module_of(kind: str, name: str) -> ModuleType:
    return import_module(f"aclnn.kernels.fitted.{name}_{kind[:-1]}")


def segments_of(kind: str, name: str) -> Segments:
    found = module_of(kind, name).FLOAT
    assert isinstance(found, Segments)
    return found


def column(segments: Segments, i: int) -> Column:
    return Column(segments.centre[i], segments.c0[i], np.array([row[i] for row in segments.p]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_modules_have_what_is_printed_of_their_columns(kind: str) -> None:
    for name, task in KINDS[kind].items():
        module, segments = module_of(kind, name), segments_of(kind, name)
        printed = "\n".join(fit_segments.printed(task, [column(segments, i) for i in range(task.count)]))
        assert module.__file__
        assert f"\n{printed}\n" in Path(module.__file__).read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name", "i"), [("slopes", "gelu_tanh", 7), ("values", "gelu_tanh", 15)])
def test_a_short_search_comes_near_the_committed_column(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, i: int
) -> None:
    monkeypatch.setattr(fit_segments, "TRIES", 1)
    _, units, _ = fit_segments.best_column(kind, name, i)
    segment = Segment(kind, name, i)
    committed, _ = fit_segments.judge(*segment.every, *column(segments_of(kind, name), i))
    assert units < committed + 0.15
    assert committed < 1.0


@pytest.mark.parametrize("name", SLOPES)
def test_the_zero_of_a_derivative_has_the_float32_around_it_as_centres(name: str) -> None:
    task: Task = SLOPES[name]
    segments = segments_of("slopes", name)
    i = next(i for i, c0 in enumerate(segments.c0) if 0 < abs(c0) < 1e-6)
    centres = Segment("slopes", name, i).centres()
    assert (segments.centre[i], segments.c0[i]) in centres
    assert len(centres) == 3
    assert all(abs(float(task.g(centre))) < 1e-7 for centre, _ in centres)
