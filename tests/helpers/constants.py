"""Helpers for tests of the kernels' constants: 200-bit arithmetic, and segments as the documents define them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from flint import arb, ctx

from aclnn.kernels.fitted import Segments


@pytest.fixture
def two_hundred_bits() -> Iterator[None]:
    before = ctx.prec
    ctx.prec = 200
    yield
    ctx.prec = before


def ulp(value: float) -> float:
    """Return the unit in the last place of a float32."""
    return float(np.spacing(np.float32(abs(value))))


def nearest(value: arb) -> float:
    """Round a number to float32, by way of 53 bits, which is exact unless these are nearly a tie."""
    wide = float(value)
    assert abs(abs(wide / ulp(wide)) % 1.0 - 0.5) > 1e-6
    return float(np.float32(wide))


def edges(segments: Segments) -> list[tuple[float, float]]:
    """Return the begin and end of each segment."""
    width, count = 1.0 / segments.per_unit, len(segments.centre)
    return [(max(0.0, (i - 0.5) * width), min((i + 0.5) * width, segments.bound)) for i in range(count)]


def approximation(segments: Segments, i: int, a: float) -> arb:
    """Evaluate the polynomial of segment i in exact arithmetic."""
    r, polynomial = arb(a) - arb(segments.centre[i]), arb(0)
    for p in reversed(segments.p):
        polynomial = polynomial * r + arb(p[i])
    polynomial += arb(segments.rest)
    return arb(segments.c0[i]) + r * polynomial


def assert_float32(segments: Segments) -> None:
    constants = np.array([segments.per_unit, segments.bound, *segments.centre, *segments.c0, *np.ravel(segments.p)])
    np.testing.assert_array_equal(constants, constants.astype(np.float32))


def assert_entries(segments: Segments) -> None:
    """Check that there are eight or sixteen entries of each kind, and that the bound is in the last segment."""
    count = len(segments.centre)
    assert count in (8, 16)
    assert {len(entries) for entries in (segments.c0, *segments.p)} == {count}
    assert count - 1.5 < segments.bound * segments.per_unit < count - 0.5


def assert_exact_differences(segments: Segments) -> None:
    """Check that a - centre is exact around every edge: by Sterbenz's lemma, or as both have few digits."""
    for centre, segment in zip(segments.centre, edges(segments), strict=True):
        for edge in segment:
            first = int(np.float32(edge).view(np.int32))
            a = np.arange(max(0, first - 300), first + 300, dtype=np.int32).view(np.float32)
            difference = (a - np.float32(centre)).astype(np.float64)
            np.testing.assert_array_equal(difference, a.astype(np.float64) - centre)
