"""The constants of the float32 derivatives, recomputed with 200 bits: a mistyped digit shows within milliseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
from flint import arb

from aclnn.kernels.cpu.elementwise import coefficients
from aclnn.kernels.cpu.elementwise.coefficients import Exponential, Segments
from constants import (
    approximation,
    assert_entries,
    assert_exact_differences,
    edges,
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
    zero: int
    """The segment that holds the derivative's zero."""


ROWS = {
    "silu": Row(coefficients.SILU, logistic, 2),
    "fast_gelu": Row(coefficients.FAST_GELU, lambda a: logistic(arb("1.702") * a), 2),
    "gelu_erf": Row(coefficients.GELU_ERF, erf_tail, 1),
    "gelu_tanh": Row(coefficients.GELU_TANH, tanh_tail, 1),
}
EVERY = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def nearest(value: arb) -> float:
    """A number rounded to float32; 53 bits on the way are enough unless they end in a tie."""
    wide = float(value)
    assert abs(abs(wide / ulp(wide)) % 1.0 - 0.5) > 1e-6
    return float(np.float32(wide))


def constants() -> Iterator[float]:
    for row in ROWS.values():
        yield from (row.segments.per_unit, row.segments.bound, *row.segments.centre, *row.segments.c0)
        for p in row.segments.p:
            yield from p
    for kappa in (coefficients.SILU_EXPONENTIAL, coefficients.FAST_GELU_EXPONENTIAL, coefficients.GELU_ERF_EXPONENTIAL):
        yield from (kappa.per_unit, kappa.step, kappa.step_low, *kappa.q, *kappa.power, *kappa.power_low)
    yield from coefficients.GELU_ERF_MILLS


def test_every_constant_is_a_float32() -> None:
    assert all(value == float(np.float32(value)) for value in constants())


@EVERY
def test_each_segment_has_its_entries(row: Row) -> None:
    assert_entries(row.segments)


@EVERY
def test_c0_is_g_at_the_centre(row: Row) -> None:
    """Rounded to float32; away from the zero the centres are chosen so that hardly anything is rounded away."""
    for i, (centre, c0) in enumerate(zip(row.segments.centre, row.segments.c0, strict=True)):
        exact = row.g(arb(centre))
        assert c0 == nearest(exact)
        if i != row.zero:
            assert abs(float(exact - c0)) <= 0.02 * ulp(c0)


@EVERY
def test_the_zero_lies_within_a_float32_or_two_of_its_centre(row: Row) -> None:
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


@pytest.mark.parametrize(
    ("kappa", "scale", "factor"),
    [
        (coefficients.SILU_EXPONENTIAL, "1", lambda: arb(1)),
        (coefficients.FAST_GELU_EXPONENTIAL, "1.702", lambda: arb(1)),
        (coefficients.GELU_ERF_EXPONENTIAL, "0.5", lambda: 1 / (2 * arb.pi()).sqrt()),
        (coefficients.GELU_TANH_EXPONENTIAL, "1", lambda: arb(1)),
    ],
    ids=["silu", "fast_gelu", "gelu_erf", "gelu_tanh"],
)
def test_the_exponentials(kappa: Exponential, scale: str, factor: Callable[[], arb]) -> None:
    k, ln2 = arb(scale), arb(2).log()
    assert kappa.per_unit == nearest(8 * k / ln2)
    step = ln2 / (8 * k)
    assert kappa.step == nearest(step)
    assert kappa.step_low == nearest(step - kappa.step)
    # n·step is exact for every n that occurs, because step ends in enough zeros beside the sum it is added to.
    for i in range(8):
        exact = arb(2) ** (arb(i) / 8) * factor()
        assert kappa.power[i] == nearest(exact)
        rest = exact - kappa.power[i]
        assert kappa.power_low[i] == (nearest(rest) if i or factor() != 1 else 0.0)
    widest = float(step) * 0.501
    for r in np.linspace(-widest, widest, 41).tolist():
        q = kappa.q
        series = arb(r) * (q[0] + arb(r) * (q[1] + arb(r) * (q[2] + arb(r) * q[3])))
        exact = (-k * r).exp()
        assert abs(float((1 + series) / exact - 1)) < 2e-9


def test_the_parts_of_constants() -> None:
    scale = arb("1.702")
    assert nearest(scale) == coefficients.FAST_GELU_SCALE
    assert nearest(scale - coefficients.FAST_GELU_SCALE) == coefficients.FAST_GELU_SCALE_LOW
    k1 = 2 * (2 / arb.pi()).sqrt()
    k3 = arb("0.044715") * k1
    assert nearest(k1) == coefficients.GELU_TANH_K1
    assert nearest(k1 - coefficients.GELU_TANH_K1) == coefficients.GELU_TANH_K1_LOW
    assert nearest(k3) == coefficients.GELU_TANH_K3
    assert nearest(k3 - coefficients.GELU_TANH_K3) == coefficients.GELU_TANH_K3_LOW


def test_the_mills_ratio() -> None:
    """As a part of a - M(a), which is what a relative error of the result comes from."""
    for a in np.linspace(2.75, 15.1, 200).tolist():
        y, z, series = 1.0 / a, 1.0 / (a * a), 0.0
        for v in reversed(coefficients.GELU_ERF_MILLS):
            series = series * z + v
        exact = (arb(a) / arb(2).sqrt()).erfc() / 2 / ((-(arb(a) ** 2) / 2).exp() / (2 * arb.pi()).sqrt())
        assert abs(y + y * z * series - float(exact)) < 3e-8 * (a - float(exact))
        assert math.isfinite(series)
