"""The polynomials of functions with f(x) + f(-x) = 1, recomputed with 200 bits: a mistyped digit shows within ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from flint import arb

from aclnn.kernels.fitted import (
    Segments,
    fast_gelu_derivative,
    gelu_erf_derivative,
    gelu_tanh_derivative,
    quick_swish_derivative,
    sigmoid_derivative,
    sigmoid_forward,
    silu_derivative,
)
from tests.helpers.constants import (
    approximation,
    assert_entries,
    assert_exact_differences,
    assert_float32,
    edges,
    nearest,
    two_hundred_bits,  # noqa: F401  (a fixture)
    ulp,
)

pytestmark = pytest.mark.usefixtures("two_hundred_bits")


def logistic(a: arb) -> arb:
    e = (-a).exp()
    return e * (1 + e - a) / (1 + e) ** 2


def erf_tail(a: arb) -> arb:
    return (a / arb(2).sqrt()).erfc() / 2 - a * (-a * a / 2).exp() / (2 * arb.pi()).sqrt()


def tanh_tail(a: arb) -> arb:
    k = 2 * (2 / arb.pi()).sqrt()
    w, slope = k * (a + arb("0.044715") * a**3), k * (1 + 3 * arb("0.044715") * a * a)
    e = (-w).exp()
    return e * (1 + e - a * slope) / (1 + e) ** 2


class Row(NamedTuple):
    segments: Segments
    g: Callable[[arb], arb]
    zero: int | None
    """The segment that holds the zero, if there is one."""


ROWS = {
    "silu": Row(silu_derivative.FLOAT, logistic, 2),
    "fast_gelu": Row(fast_gelu_derivative.FLOAT, lambda a: logistic(arb("1.702") * a), 2),
    "quick_swish": Row(quick_swish_derivative.FLOAT, lambda a: logistic(arb(float(np.float32(1.702))) * a), 2),
    "gelu_erf": Row(gelu_erf_derivative.FLOAT, erf_tail, 1),
    "gelu_tanh": Row(gelu_tanh_derivative.FLOAT, tanh_tail, 1),
    "sigmoid": Row(sigmoid_forward.FLOAT, lambda a: 1 / (1 + a.exp()), None),
    "sigmoid_derivative": Row(sigmoid_derivative.FLOAT, lambda a: a.exp() / (1 + a.exp()) ** 2, None),
}
EVERY = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@EVERY
def test_every_constant_is_a_float32(row: Row) -> None:
    assert_float32(row.segments)


@EVERY
def test_each_segment_has_its_entries(row: Row) -> None:
    assert_entries(row.segments)


@EVERY
def test_c0_is_g_at_the_centre(row: Row) -> None:
    """Centres, except near the zero, are chosen so that rounding c0 to float32 loses little."""
    for i, (centre, c0) in enumerate(zip(row.segments.centre, row.segments.c0, strict=True)):
        exact = row.g(arb(centre))
        assert c0 == nearest(exact)
        if i != row.zero:
            assert abs(float(exact - c0)) <= 0.02 * ulp(c0)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.zero is not None])
def test_the_zero_lies_within_a_float32_or_two_of_its_centre(row: Row) -> None:
    assert row.zero is not None
    centre = row.segments.centre[row.zero]
    below, above = row.g(arb(centre - 2 * ulp(centre))), row.g(arb(centre + 2 * ulp(centre)))
    assert below > 0
    assert above < 0


@EVERY
def test_differences_from_a_centre_are_exact(row: Row) -> None:
    assert_exact_differences(row.segments)


@EVERY
def test_each_polynomial_meets_g_at_its_edges_and_between(row: Row) -> None:
    for i, (low, high) in enumerate(edges(row.segments)):
        for a in (low, *np.linspace(low, high, 9)[1:-1].tolist(), high):
            g = row.g(arb(a))
            assert abs(float(approximation(row.segments, i, a) - g)) <= 0.36 * ulp(float(g)), (i, a)
