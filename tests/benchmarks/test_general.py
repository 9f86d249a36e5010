"""Compiled bounds hold the golden values, and results that are wrong on purpose are counted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn.verify.goldens.values import Function
from benchmarks import general
from benchmarks.bounds import enclosing

Array = np.ndarray[Any, Any]
NAMES = ["elu_derivative", "log_sigmoid_derivative", "ge_glu_erf_gradient", "softplus_derivative", "threshold_gradient"]


class Off(general.Subject):
    """A formula whose results are off by a unit."""

    def run(self, operands: list[Array], numbers: tuple[float, ...]) -> list[Array]:
        return [np.nextafter(result, np.float32(np.inf)) for result in super().run(operands, numbers)]


class Infinite(general.Subject):
    """A formula without a finite result."""

    def run(self, operands: list[Array], numbers: tuple[float, ...]) -> list[Array]:
        return [np.full_like(result, np.inf) for result in super().run(operands, numbers)]


def subjects(name: str, kind: type[general.Subject] = general.Subject) -> general.Subject:
    return kind(**vars(general.subjects()[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [0, 15], ids=["random", "extreme attributes"])
def test_bounds_hold_the_exact_results(name: str, place: int) -> None:
    one = subjects(name)
    ((operands, numbers),) = general.tuples(one, place)
    finite = np.logical_and.reduce([np.isfinite(x) for x in operands])
    operands = [x[finite][:4096] for x in operands]
    ends = np.empty((one.results, 2, operands[0].size))
    enclosing(one.formula, one.operands, len(numbers))(tuple(operands), np.array(numbers), ends)
    for result, (low, high) in enumerate(ends):
        exact = Function(one.formula, numbers, result).golden(operands, general.FLOAT32).value
        unknown = np.isnan(low) | np.isnan(high)
        np.testing.assert_array_less(low[~unknown], np.nextafter(exact[~unknown], np.inf))
        np.testing.assert_array_less(np.nextafter(exact[~unknown], -np.inf), high[~unknown])
        if place == 0:
            assert np.mean(high - low <= np.abs(exact) * 2.0**-40) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_results_are_within_half_a_unit_or_what_fitted_functions_lose(name: str) -> None:
    ((operands, numbers),) = general.tuples(subjects(name), 0)
    for tally in general.assess(subjects(name), operands, numbers).values():
        assert tally.assessed > general.PART // 2
        assert tally.worst <= {"ge_glu_erf_gradient": 2.0, "log_sigmoid_derivative": 2.6}.get(name, 0.50001)
        assert not tally.broken


def test_the_rest_to_one_of_a_logistic_function_is_narrow() -> None:
    """The interval of x·(1 - s) is narrow also for an x of 1e30, so that no balls are needed."""
    one = subjects("swish_derivative")
    for row in (0x3F8, 0x420, 0x710, 0x7F7, 0xBF8, 0xC42, 0xFF7):
        ((operands, numbers),) = general.walk(one, 4096, row)
        ends = np.empty((1, 2, operands[0].size))
        enclosing(one.formula, one.operands, len(numbers))(tuple(operands), np.array(numbers), ends)
        exact = Function(one.formula, numbers, 0).golden(operands, general.FLOAT32).value
        for end in ends[0]:
            np.testing.assert_allclose(end, exact, rtol=2.0**-30, atol=2.0**-160)


def test_results_that_are_off_are_counted() -> None:
    one = subjects("softplus_derivative", Off)
    (case,) = general.walk(one, 64, 0x3F8)
    tally = general.assess(one, *case)[0]
    assert tally.assessed == tally.above_half == case[0][0].size
    assert 0.5 < tally.worst <= 1.5
    error_at = np.float32(tally.at.split()[1])
    assert error_at in case[0][1]
    wrong = general.assess(subjects("softplus_derivative", Infinite), *case)[0]
    assert (wrong.assessed, wrong.broken) == (0, case[0][0].size)


def test_a_walk_takes_every_bit_pattern_once() -> None:
    one = subjects("elu_forward")
    found = [x for (x,), _ in general.walk(one, 1, 0x7F8)]
    patterns = np.concatenate(found).view(np.uint32)
    np.testing.assert_array_equal(patterns, np.arange(0x7F8 << 20, 0x7F9 << 20, dtype=np.uint32))


def test_zeros_of_either_sign_are_numbers_of_their_own() -> None:
    one, x = general.subjects()["celu_forward"], np.float32([-1.0])
    assert np.signbit(one.run([x], (0.0,))[0]).all()
    assert np.isnan(one.run([x], (-0.0,))[0]).all()


def test_rows_of_other_formulas_and_kinds_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "FILE", tmp_path / "general.csv")

    def save(name: str, kind: str, worst: str) -> list[str]:
        general._save(name, [(name, 0, kind, 1, worst, "1", 0, 0)], general.subjects())
        return [f"{row[0]} {row[2]} {row[4]}" for row in csv.reader(general.FILE.open(newline=""))][1:]

    save("mish_forward", "every x", "0.7")
    save("mish_forward", "random", "0.8")
    save("celu_forward", "random", "0.5")
    assert save("mish_forward", "every 64th x", "0.6") == [
        "celu_forward random 0.5",
        "mish_forward random 0.8",
        "mish_forward every 64th x 0.6",
    ]
