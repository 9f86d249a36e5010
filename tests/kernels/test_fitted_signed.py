"""Polynomials for both signs of x, those of functions without symmetry: their constants, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from flint import arb

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Fitted, Gradient
from aclnn.kernels.fitted import Segments, mish_derivative, mish_forward
from aclnn.operators import mish
from tests.helpers.constants import (
    approximation,
    assert_float32,
    nearest,
    two_hundred_bits,  # noqa: F401  (a fixture)
    ulp,
)
from tools.functions import exact

pytestmark = pytest.mark.usefixtures("two_hundred_bits")

Array = np.ndarray[Any, Any]


def quotient(x: arb) -> arb:
    return ((1 + x.exp()).log()).tanh()


def slope(x: arb) -> arb:
    t = quotient(x)
    return t + x * (1 - t * t) / (1 + (-x).exp())


class Row(NamedTuple):
    segments: Segments
    g: Callable[[arb], arb]
    formula: Fitted
    worst: float
    """Units of the last place, as the module has it."""
    zero: float | None


ROWS = {
    "forward": Row(mish_forward.FLOAT, quotient, mish.mish_forward, 0.886, None),
    "derivative": Row(mish_derivative.FLOAT, slope, mish.mish_derivative, 0.917, -1.192404),
}
EVERY = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def edges(segments: Segments) -> dict[int, tuple[float, float]]:
    """Return the ends of each segment, in the order of the table."""
    width, bound = 1.0 / segments.per_unit, segments.bound
    middles = {(number + 4) % 16: number * width for number in range(-7, 8)}
    return {i: (max(m - width / 2, -bound), min(m + width / 2, bound)) for i, m in middles.items()}


@EVERY
def test_every_constant_is_a_float32(row: Row) -> None:
    assert_float32(row.segments)


@EVERY
def test_the_bound_lies_within_the_last_segment(row: Row) -> None:
    assert {len(entries) for entries in (row.segments.centre, row.segments.c0, *row.segments.p)} == {16}
    assert 6.5 < row.segments.bound * row.segments.per_unit < 7.5


@EVERY
def test_c0_is_g_at_the_centre(row: Row) -> None:
    """Rounding c0 to float32 loses little, except around 3, where a worked example's digits take precedence."""
    for i, (low, high) in edges(row.segments).items():
        centre, c0 = row.segments.centre[i], row.segments.c0[i]
        assert low < centre < high
        value = row.g(arb(centre))
        assert c0 == nearest(value)
        if row.zero is None or not low < row.zero < high:
            assert abs(float(value - c0)) <= (0.25 if low < 3.0 < high else 0.02) * ulp(c0)
        else:
            assert abs(c0) < 3e-8


@EVERY
def test_each_polynomial_meets_g_at_its_edges_and_between(row: Row) -> None:
    for i, (low, high) in edges(row.segments).items():
        for x in np.linspace(low, high, 16).tolist():
            g = row.g(arb(x))
            assert abs(float(approximation(row.segments, i, x) - g)) <= 0.36 * ulp(float(g)), (i, x)


def computed(row: Row, x: Array) -> Array:
    """Evaluate the kernel, a derivative for gradients of 1."""
    binary, out = row.zero is not None, np.empty_like(x)
    layouts = (Layout(DataType.FLOAT, x.shape, (1,)),) * 2
    formula = Gradient(row.formula) if binary else row.formula
    plan = kernels.elementwise(formula, layouts if binary else layouts[:1], layouts[:1])
    inputs = [np.ones_like(x), x] if binary else [x]
    plan.run([array.ctypes.data for array in inputs], [out.ctypes.data], 0)
    return out


def assert_within(row: Row, x: Array) -> None:
    """Check bounds; results with a unit of 2^-149, subnormal and the smallest normal ones, are within one unit."""
    value, got = exact(row.formula, x), computed(row, x).astype(np.float64)
    unit = np.exp2(np.maximum(np.frexp(value)[1], -125) - 24)
    assert np.all(np.abs(got - value) / unit <= np.where(unit > 2.0**-149, row.worst, 1.0))


@pytest.mark.slow
@EVERY
def test_every_5003rd_float32_is_within_the_bound(row: Row) -> None:
    x = np.arange(0, 1 << 32, 5003, dtype=np.uint32).view(np.float32)
    assert_within(row, x[np.abs(x) < np.inf])


@pytest.mark.slow
@EVERY
def test_neighbours_of_edges_and_zeros_are_within_the_bound(row: Row) -> None:
    places = [end for pair in edges(row.segments).values() for end in pair] + [row.zero or 1.0, 2.0**-126]
    patterns = np.concatenate([np.arange(-500, 500) + int(np.float32(place).view(np.uint32)) for place in places])
    assert_within(row, patterns.astype(np.uint32).view(np.float32))


def test_zeros_keep_their_sign() -> None:
    got = computed(ROWS["forward"], np.array([0.0, -0.0], np.float32))
    assert (got == 0).all()
    assert np.signbit(got).tolist() == [False, True]
