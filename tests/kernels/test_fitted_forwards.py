"""The constants of the float32 activations, recomputed with 200 bits: a mistyped digit shows within milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from flint import arb

from aclnn.kernels.fitted import (
    Segments,
    fast_gelu_forward,
    gelu_erf_forward,
    gelu_tanh_forward,
    quick_swish_forward,
    selu_forward,
    silu_forward,
    softplus_of_one,
    unit_elu_forward,
)
from tests.helpers.constants import (
    approximation,
    assert_entries,
    assert_exact_differences,
    assert_float32,
    edges,
    two_hundred_bits,  # noqa: F401  (a fixture)
    ulp,
)

pytestmark = pytest.mark.usefixtures("two_hundred_bits")


def tanh_exponent(a: arb) -> arb:
    return 2 * (2 / arb.pi()).sqrt() * (a + arb("0.044715") * a**3)


class Row(NamedTuple):
    segments: Segments
    h: Callable[[arb], arb]
    first: float | None = 0.5
    """The slope at zero, where h is zero."""


ALPHA = arb("1.0507009873554804934193349852946") * arb("1.6732632423543772848170429916717")
ROWS = {
    "silu": Row(silu_forward.FLOAT, lambda a: a / (1 + a.exp())),
    "fast_gelu": Row(fast_gelu_forward.FLOAT, lambda a: a / (1 + (arb("1.702") * a).exp())),
    "gelu_erf": Row(gelu_erf_forward.FLOAT, lambda a: a * (a / arb(2).sqrt()).erfc() / 2),
    "gelu_tanh": Row(gelu_tanh_forward.FLOAT, lambda a: a / (1 + tanh_exponent(a).exp())),
    "quick_swish": Row(quick_swish_forward.FLOAT, lambda a: a / (1 + (arb(float(np.float32(1.702))) * a).exp())),
    "softplus": Row(softplus_of_one.FLOAT, lambda a: -(-a).exp().log1p(), None),
    "elu": Row(unit_elu_forward.FLOAT, lambda a: -(-a).expm1(), 1.0),
    "selu": Row(selu_forward.FLOAT, lambda a: -ALPHA * (-a).expm1(), float(np.float32(float(ALPHA)))),
}
EVERY = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@EVERY
def test_every_constant_is_a_float32(row: Row) -> None:
    assert_float32(row.segments)


@EVERY
def test_each_segment_has_its_entries(row: Row) -> None:
    assert_entries(row.segments)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.first is not None])
def test_values_near_zero_are_a_multiple_of_x(row: Row) -> None:
    assert (row.segments.centre[0], row.segments.c0[0], row.segments.p[0][0]) == (0.0, 0.0, row.first)


@EVERY
def test_c0_is_h_at_the_centre(row: Row) -> None:
    """Centres are chosen so that rounding c0 to float32 loses little; ln 2 is near a float32 anyway."""
    for centre, c0 in zip(row.segments.centre, row.segments.c0, strict=True):
        assert abs(float(row.h(arb(centre)) - c0)) <= (0.02 if centre else 0.033) * ulp(c0)


@EVERY
def test_differences_from_a_centre_are_exact(row: Row) -> None:
    assert_exact_differences(row.segments)


@EVERY
def test_each_polynomial_meets_h_at_its_edges_and_between(row: Row) -> None:
    for i, (low, high) in enumerate(edges(row.segments)):
        for a in np.linspace(low, high, 17).tolist():
            h = row.h(arb(a))
            assert abs(float(approximation(row.segments, i, a) - h)) <= 0.3 * ulp(float(h)), (i, a)
