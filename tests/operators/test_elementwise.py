"""Values of the elementwise operators: against exact ones, at the edges of the formats, and as the documents print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.execution import arrays
from tests.cases import CASES
from tests.cases.table import FLOATS, Case, Curve
from tests.helpers.exact import NUMPY, derivatives, every_16_bit, rounded, ulps
from tests.helpers.reference import elementwise

CURVES = [
    pytest.param(case, curve, id=name)
    for case in CASES
    if len(case.operands) == 2
    for name, curve in case.curves.items()
]
F32 = np.float32

# Widening a signalling NaN, which every 16-bit pattern includes.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")


def gradient(case: Case, curve: Curve, dy: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    attributes = tuple(curve.attributes[p.name] for p in case.operator.attributes)
    unused = (x,) * len(case.unused)
    result: np.ndarray[Any, Any] = arrays.call(case.operator, (dy, x, *unused), attributes, (None,))
    return result


def near(x: float, count: int) -> np.ndarray[Any, Any]:
    """Return the neighbours of a float32, the same number on each side."""
    bits = int(np.abs(np.array(x, F32)).view(np.int32))
    around = np.arange(max(bits - count, 0), bits + count + 1, dtype=np.int32)
    return np.copysign(around.view(F32), F32(x))


def sample(curve: Curve) -> np.ndarray[Any, Any]:
    """Return float32 x of all exponents, ordinary ones, in the tails, around zeros and jumps, and at limits."""
    rng = np.random.default_rng(1)
    everywhere = rng.integers(0, 1 << 32, 6000, dtype=np.uint32).view(F32)
    edges = np.array([0.0, -0.0, 2.0**-149, 2.0**-126, 2.0**-150, 3.4028235e38, 1e-10, 1.8446744e19, 88.7, 103.9], F32)
    return np.concatenate(
        [
            everywhere[np.isfinite(everywhere)],
            rng.normal(size=4000).astype(F32) * F32(3),
            rng.uniform(-110, -4, 4000).astype(F32),
            rng.uniform(0, 30, 1000).astype(F32),
            *(near(zero, 1500) for zero in curve.zeros),
            edges,
            -edges,
        ]
    )


@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_float32_derivatives_are_within_one_ulp(case: Case, curve: Curve) -> None:
    x = sample(curve)
    slope = gradient(case, curve, np.ones_like(x), x)
    error = ulps(slope, derivatives(curve.forward, x.astype(np.float64)), D.FLOAT)
    worst = error.argmax()
    assert error[worst] <= 1.1, (x[worst], slope[worst])


@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_float32_gradients_are_within_their_bound(case: Case, curve: Curve) -> None:
    x = sample(curve)
    rng = np.random.default_rng(2)
    dy = rng.integers(0, 1 << 32, x.size, dtype=np.uint32).view(F32)
    dy = np.where(np.isfinite(dy), dy, F32(2.5))
    dy[::2] = rng.normal(size=dy[::2].size)
    result = gradient(case, curve, dy, x)
    exact = dy.astype(np.float64) * derivatives(curve.forward, x.astype(np.float64))
    error = ulps(result, exact, D.FLOAT)
    worst = error.argmax()
    assert error[worst] <= 2, (dy[worst], x[worst], result[worst], exact[worst])


@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_a_tiny_derivative_times_a_huge_gradient_keeps_its_digits(case: Case, curve: Curve) -> None:
    # The product is an ordinary number although the slope is none in float32.
    x = np.linspace(-150, -5, 4000, dtype=F32)
    exact = derivatives(curve.forward, x.astype(np.float64))
    for dy in (F32(3.4e38), F32(-1e30), F32(1e20)):
        error = ulps(gradient(case, curve, np.full_like(x, dy), x), exact * np.float64(dy), D.FLOAT)
        worst = error.argmax()
        assert error[worst] <= 2, (dy, x[worst])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=lambda d: d.name)
@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_every_16_bit_derivative_is_correctly_rounded(case: Case, curve: Curve, dtype: D) -> None:
    x = every_16_bit(dtype)
    slope = gradient(case, curve, np.ones_like(x), x)
    exact = elementwise(curve, [np.ones(x.shape), x.astype(np.float64)])
    expected = rounded(exact, dtype)
    wrong = ~((slope == expected) | (np.isnan(slope) & np.isnan(expected)))
    wrong[wrong] = ~(ulps(slope[wrong], exact[wrong], dtype) <= NEAR_A_TIE)
    assert not wrong.any(), (x[wrong], slope[wrong], expected[wrong])


NEGATIVE_TAILS = [row for row in CURVES if derivatives(row.values[1].forward, np.array([-20.0])) < 0]


@pytest.mark.parametrize("dtype", [D.FLOAT, D.FLOAT16, D.BF16], ids=lambda d: d.name)
@pytest.mark.parametrize(("case", "curve"), NEGATIVE_TAILS)
def test_derivatives_too_small_for_their_type_are_negative_zeros(case: Case, curve: Curve, dtype: D) -> None:
    """GELU's derivative is -0 below -38.6 in 16 bits."""
    x = np.array([-2, -20, -38, -39, -40, -100, -700, -3e4, -6e4]).astype(NUMPY[dtype])
    assert np.signbit(gradient(case, curve, np.ones_like(x), x)).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=lambda d: d.name)
@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_16_bit_gradients_are_within_their_bound(case: Case, curve: Curve, dtype: D) -> None:
    x = every_16_bit(dtype)
    x = x[np.isfinite(x)]
    dy = np.random.default_rng(3).permutation(x)
    result = gradient(case, curve, dy, x)
    exact = dy.astype(np.float64) * derivatives(curve.forward, x.astype(np.float64))
    error = ulps(result, exact, dtype)
    worst = error.argmax()
    assert error[worst] <= 0.51, (dy[worst], x[worst], result[worst], exact[worst])


#: In units: float64 does not know on which side of a tie a value within 2^-53 of it is.
NEAR_A_TIE = 0.5 + 2.0**-40


SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 0.5, -100.0, 100.0, -1e30, 1e30, 3.4e38, -3.4e38, 1e-40]
)
SPECIAL_DY = np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_special_values_follow_the_table(case: Case, curve: Curve, dtype: D) -> None:
    with np.errstate(over="ignore"):
        x, dy = (a.ravel().astype(NUMPY[dtype]) for a in np.meshgrid(SPECIAL, SPECIAL_DY))
    result = gradient(case, curve, dy, x)
    exact = elementwise(curve, [dy.astype(np.float64), x.astype(np.float64)])
    assert (np.isnan(result) == np.isnan(exact)).all(), (dy, x, result, exact)
    there = ~np.isnan(exact)
    assert (ulps(result[there], exact[there], dtype) <= 2).all()
    # Zeros have the sign of an IEEE product, also where the slope has vanished on its way to zero from below.
    zeros = there & (exact == 0) & (np.abs(x.astype(np.float64)) <= 1)
    # Of a derivative that is 0 at 0 exact values have no sign.
    zeros &= (x != 0) | (elementwise(curve, [np.ones(x.shape), x.astype(np.float64)]) != 0)
    assert (np.signbit(result[zeros]) == np.signbit(exact[zeros])).all()


@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_nan_in_gives_nan_out(case: Case, curve: Curve) -> None:
    # Quiet and signalling ones of either sign, with any payload.
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC0DEAD], np.uint32).view(F32)
    one = np.ones_like(nans)
    passed = next(x for x in (0.5, 4.0) if derivatives(curve.forward, np.array([x])))
    pairs = [(one, nans), (nans, one), (nans, nans), (nans, one * 4), (one * 0, nans), (nans, one * -1000)]
    if curve.selects:  # what is cut off is 0
        pairs = [(one, nans), (nans, nans), (one * 0, nans), (nans, one * F32(passed))]
    for dy, x in pairs:
        assert np.isnan(gradient(case, curve, dy, x)).all()
    for dtype in (D.FLOAT16, D.BF16):
        every = every_16_bit(dtype)
        some = every[np.isnan(every)]
        one = np.ones_like(some)
        assert np.isnan(gradient(case, curve, one, some)).all()
        assert np.isnan(gradient(case, curve, some, (one * passed).astype(one.dtype))).all()


@pytest.mark.parametrize(("case", "curve"), CURVES)
def test_derivatives_match_the_documents_digits(case: Case, curve: Curve) -> None:
    x = np.array(list(curve.probes), F32)
    slope = gradient(case, curve, np.ones_like(x), x)
    assert [f"{value:.6f}" for value in slope + 0.0] == list(curve.probes.values())


FORWARDS = [
    pytest.param(case, curve, id=f"{case.name}-{name}")
    for case in CASES
    if len(case.operands) < 2
    for name, curve in case.curves.items()
]


def value(case: Case, curve: Curve, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    unused = (x,) * len(case.unused)
    result: np.ndarray[Any, Any] = case.python(x.copy(), *unused, *curve.attributes.values())
    return result


@pytest.mark.parametrize(("case", "curve"), FORWARDS)
def test_float32_values_are_within_one_ulp(case: Case, curve: Curve) -> None:
    x = sample(curve)
    result = value(case, curve, x)
    error = ulps(result, elementwise(curve, [x.astype(np.float64)]), D.FLOAT)
    worst = error.argmax()
    assert error[worst] <= 1.1, (x[worst], result[worst])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "curve", "dtype"),
    [
        pytest.param(*row.values, dtype, id=f"{row.id}-{dtype.name}")
        for row in FORWARDS
        for dtype in (D.FLOAT16, D.BF16)
        if dtype in row.values[0].dtypes[Product.ATLAS_A2]
    ],
)
def test_every_16_bit_value_is_correctly_rounded(case: Case, curve: Curve, dtype: D) -> None:
    x = every_16_bit(dtype)
    result = value(case, curve, x)
    exact = elementwise(curve, [x.astype(np.float64)])
    wrong = ~((result == rounded(exact, dtype)) | (np.isnan(result) & np.isnan(exact)))
    wrong[wrong] = ~(ulps(result[wrong], exact[wrong], dtype) <= NEAR_A_TIE)
    assert not wrong.any(), (x[wrong], result[wrong], exact[wrong])


@pytest.mark.parametrize(("case", "curve"), FORWARDS)
def test_values_at_infinities_and_documented_points(case: Case, curve: Curve) -> None:
    x = np.array([-np.inf, np.inf, np.nan, -np.nan], F32)
    low, high = curve.at_infinity
    assert np.array_equal(value(case, curve, x), np.array([low, high, np.nan, np.nan], F32), equal_nan=True)
    probes = value(case, curve, np.array(list(curve.probes), F32))
    assert [f"{result:.6f}" for result in probes + 0.0] == list(curve.probes.values())
