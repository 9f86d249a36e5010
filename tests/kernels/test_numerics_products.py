"""dy·f'(x) for random dy in every data type: a million pairs each, of the 10^8 that ``make exhaustive`` checks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress

from aclnn.verify.number_formats import FORMATS, NumberFormat
from benchmarks import hardest, tables
from benchmarks.candidates import ours
from benchmarks.products import Pairs, Tally, pairs, score
from benchmarks.references import FORMULAS, Array, reference

pytestmark = pytest.mark.long

FAMILY = pytest.mark.parametrize("name", FORMULAS)
FORMAT = pytest.mark.parametrize("target", FORMATS.values(), ids=FORMATS)
WORST = {"float32": 2.0, "float16": 0.51, "bfloat16": 0.51}


@FAMILY
@FORMAT
def test_products_with_random_gradients_are_within_the_bound(name: str, target: NumberFormat) -> None:
    found = Tally()
    found.take(ours(name), pairs(name, target, 0), target)
    count, _, _, broken = found.counts
    assert count > 900_000
    assert broken == 0
    assert found.worst[0] <= WORST[target.name]


@FAMILY
def test_the_hardest_products_stay_within_what_is_said_of_them(name: str) -> None:
    """The x with the worst known derivative, and the worst of a sample, times every 64th significand of dy."""
    with open(Path(hardest.__file__).with_name("exhaustive_hardest.csv"), newline="") as file:
        (known,) = (row for row in csv.DictReader(file) if row["operator"] == name)
    x, dy = (np.array([float(known[column])], np.float32) for column in ("worst_x", "worst_dy"))
    found, exact = Tally(), reference(name, x)
    found.take(ours(name), Pairs(x, dy, exact), FORMATS["float32"])
    assert f"{found.worst[0]:.5g}" == known["worst_ulp"]
    assert found.worst[0] <= float(known["worst_relative"]) + 1 <= 2.6

    sampled = hardest.find(name, 64, 1, Progress(disable=True))
    assert sampled.inputs > 4_000_000
    relative, x_there = sampled.worst[0]
    assert relative <= float(known["worst_relative"])
    assert hardest.times_every_significand(name, x_there, 64).worst[0] <= relative + 1


@FAMILY
@FORMAT
def test_nan_results_come_from_nan_and_undefined_products_alone(name: str, target: NumberFormat) -> None:
    """NaN comes from NaN, from f' at an infinity without a limit, and from 0·inf with f' rounded to float32."""
    kind, rng = target.dtype.numpy, np.random.default_rng(1)
    x, dy = (np.frombuffer(rng.bytes(kind.itemsize << 20), kind).copy() for _ in range(2))
    dy[:128:2], dy[1:128:2], x[128:256:2], x[129:256:2] = np.inf, -np.inf, np.inf, -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        special = ~(np.isfinite(x.astype(np.float64)) & np.isfinite(dy.astype(np.float64)))
        exact = reference(name, x[special])
        expected = dy[special].astype(np.float64) * exact.astype(np.float32)
        got = ours(name)(x, dy).astype(np.float64)[special]
    unbounded = np.isinf(expected)
    assert unbounded.sum() > 32
    assert (~np.isnan(expected)).sum() > 64
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(got[unbounded], expected[unbounded])


def checked(target: NumberFormat, exact: float, dy: float, got: float) -> Tally:
    found = Tally()
    one = np.ones(1)
    form = target.digits, target.least_exponent, target.greatest_exponent
    score(dy * one, exact * one, got * one, one, form, found.counts, found.worst)
    return found


@FORMAT
def test_errors_are_measured_in_units_of_the_exact_product(target: NumberFormat) -> None:
    """Errors are in ULP of the exact product, also for subnormal numbers; infinity counts as the next power of two."""
    unit, largest = 2.0 ** (1 - target.digits), target.largest
    smallest = target.smallest_normal * unit
    top = 2.0 ** (target.greatest_exponent + 1) - largest  # the largest number's unit

    def error(product: float, got: float) -> float:
        return float(checked(target, product, 1.0, got).worst[0])

    assert error(1.0, 1.0 + 2 * unit) == 2.0
    assert error(-1.25 * smallest, -smallest) == 0.25
    assert error(0.75 * smallest, 0.0) == 0.75
    assert error(largest + 0.25 * top, largest) == 0.25
    assert error(largest + 0.25 * top, np.inf) == 0.75
    assert error(largest + 1.25 * top, np.inf) == 0.0
    assert error(4 * largest, np.inf) == 0.0
    assert error(4 * largest, largest) == 1.0
    assert error(1.0, -1.0) == 2 / unit
    assert checked(target, 1.0, 1.0, np.nan).counts.tolist() == [1, 0, 0, 1]
    assert checked(target, 1.0, np.inf, np.nan).counts.tolist() == [0, 0, 0, 0]


def test_a_block_is_the_same_whenever_it_is_drawn() -> None:
    first, second, other = (pairs("silu", FORMATS["float32"], block) for block in (2, 2, 3))
    assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(bits(first.dy), bits(other.dy))


def bits(array: Array) -> Array:
    return array.view(np.uint8)


def test_the_page_shows_the_committed_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text()
    assert tables.page(page) == page
