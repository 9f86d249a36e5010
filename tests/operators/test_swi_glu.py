"""SwiGLU beyond what the table's tests look at: every 16-bit value, tails, special values, the document's probes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from tests.cases.silu import silu
from tests.cases.table import FLOATS, SAMPLE_X
from tests.helpers.exact import NUMPY, UNITS_OF_PRODUCTS, derivatives, every_16_bit, ulps, values

# Widening a signalling NaN, which every 16-bit pattern includes.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in")

Array = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan
FAR = np.array([1.0, -1.0, 0.0, -0.0, -100.0, -103.0, -110.0, -1000.0, -1e30, 100.0, 1e30, INF, -INF, NAN], np.float32)


def evaluate(dy: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the result, and the gradients for a and b."""
    x = np.stack([a, b])
    return aclnn.swi_glu(x, 0)[0], *aclnn.swi_glu_grad(dy[None], x, 0)


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True], ids=["ordinary", "wide"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_results_at_every_magnitude_are_within_the_bound(dtype: D, wide: bool) -> None:
    rng, kind = np.random.default_rng(1), NUMPY[dtype]
    if dtype == D.FLOAT:
        a = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
        a[: 1 << 15] = rng.uniform(-110, 30, 1 << 15)
    else:
        a = every_16_bit(dtype)
    # A tiny slope times huge numbers is an ordinary one.
    limits = (0.01, 4) if not wide else (2e-7, 6e4) if dtype == D.FLOAT16 else (1e-38, 3e38)
    magnitudes = np.exp2(rng.uniform(*np.log2(limits), (2, a.size)))
    dy, b = (magnitudes * rng.choice([-1, 1], (2, a.size))).astype(kind)
    keep = np.isfinite(a)
    a, b, dy = a[keep], b[keep], dy[keep]
    wide_a, wide_b, wide_dy = (array.astype(np.float64) for array in (a, b, dy))
    value, slope = values(silu, wide_a), derivatives(silu, wide_a)
    for got, exact in zip(evaluate(dy, a, b), (value * wide_b, wide_dy * slope * wide_b, wide_dy * value), strict=True):
        worst = ulps(got, exact, dtype).argmax()
        assert ulps(got, exact, dtype)[worst] <= UNITS_OF_PRODUCTS[dtype], (
            a[worst],
            b[worst],
            dy[worst],
            got[worst],
            exact[worst],
        )


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=lambda d: d.name)
def test_results_do_not_depend_on_neighbouring_elements(dtype: D) -> None:
    """Elements of one vector may be computed in float32 or in float64."""
    a, b, dy = np.random.default_rng(3).normal(size=(3, 1 << 16)).astype(NUMPY[dtype])
    alone = evaluate(dy, a, b)
    a[::2] = 100
    for result, beside in zip(alone, evaluate(dy, a, b), strict=True):
        assert result[1::2].tobytes() == beside[1::2].tobytes()


def test_values_next_to_the_zero_of_the_derivative() -> None:
    """Computed as s·(1 + a·(1 - s)) in float32, the derivative would have no correct digit here."""
    a = (np.float32(-1.27846454276).view(np.int32) + np.arange(-2, 3, dtype=np.int32)).view(np.float32)
    a, b = np.repeat(a, 2000), np.random.default_rng(4).uniform(1, 2, 10_000).astype(np.float32)
    exact = derivatives(silu, a.astype(np.float64)) * b
    error = ulps(evaluate(np.ones_like(a), a, b)[1], exact, D.FLOAT)
    assert error.max() <= UNITS_OF_PRODUCTS[D.FLOAT]


def special(dy: float, b: float) -> list[Array]:
    with np.errstate(invalid="ignore"):
        return [*evaluate(np.full_like(FAR, dy), FAR, np.full_like(FAR, b))]


@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_gates_follow_the_formula(sign: int) -> None:
    # The product keeps an infinity wherever silu is not 0, the gradient where the slope is not 0 in float32.
    y, da, db = special(1, sign * INF)
    below = [-INF] * 5
    np.testing.assert_array_equal(y, sign * np.array([INF, -INF, NAN, NAN, *below, INF, INF, INF, NAN, NAN]))
    slopes = [INF, INF, INF, INF, -INF, -INF, NAN, NAN, NAN, INF, INF, NAN, NAN, NAN]
    np.testing.assert_array_equal(da, sign * np.array(slopes))
    np.testing.assert_array_equal(db, special(1, 2)[2])


@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_gradients_follow_the_formula(sign: int) -> None:
    _, da, db = special(sign * INF, 2)
    slopes = [INF, INF, INF, INF, -INF, -INF, NAN, NAN, NAN, INF, INF, NAN, NAN, NAN]
    np.testing.assert_array_equal(da, sign * np.array(slopes))
    results = [INF, -INF, NAN, NAN, -INF, -INF, NAN, NAN, NAN, INF, INF, INF, NAN, NAN]
    np.testing.assert_array_equal(db, sign * np.array(results))


def test_infinite_and_nan_inputs_follow_the_formula() -> None:
    y, da, db = special(1, -3)
    np.testing.assert_array_equal(y[-3:], [-INF, NAN, NAN])
    np.testing.assert_array_equal(da[-3:], [NAN] * 3)
    np.testing.assert_array_equal(db[-3:], [INF, NAN, NAN])
    y, da, db = special(1, NAN)
    assert np.isnan(y).all()
    assert np.isnan(da).all()
    np.testing.assert_array_equal(db, special(1, -3)[2])
    assert all(np.isnan(result).all() for result in special(NAN, 1)[1:])


def test_signs_of_zeros_are_kept() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    for b in (2.0, -2.0):
        y, da, db = evaluate(np.ones_like(zeros), zeros, np.full_like(zeros, b))
        assert np.signbit(y).tolist() == [b < 0, b > 0]
        np.testing.assert_array_equal(da, [b / 2] * 2)
        assert np.signbit(db).tolist() == [False, True]
    far = np.array([-200.0, -1e5, -3e38], np.float32)
    assert all(np.signbit(result).all() and not result.any() for result in evaluate(far * 0 + 1, far, far * 0 + 1))


def test_values_match_the_documents_digits() -> None:
    a, b = np.array(SAMPLE_X, np.float32), np.array([2, -1, 0.5, 3, 1, -2, 0, -3, 1], np.float32)
    y, da, db = (" ".join(f"{value:f}" for value in result + 0.0) for result in evaluate(np.ones_like(a), a, b))
    assert y == "-0.284555 0.238406 -0.134471 -0.566311 0.000000 -0.622459 0.000000 -5.284782 2.857722"
    assert da == "-0.176208 0.090784 0.036165 0.780116 0.500000 -1.479922 0.000000 -3.272353 1.088104"
    assert db == "-0.142278 -0.238406 -0.268941 -0.188770 0.000000 0.311230 0.731059 1.761594 2.857722"


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_the_result_may_lie_over_a_half_of_x(dtype: D, half: int) -> None:
    x = np.random.default_rng(2).normal(size=(300, 2000)).astype(NUMPY[dtype])
    separate = aclnn.swi_glu(x)
    out = x[:, 1000 * half : 1000 * (half + 1)]
    assert aclnn.swi_glu(x, out=out) is out
    np.testing.assert_array_equal(out, separate)


def test_of_outputs_that_overlap_the_last_one_stays() -> None:
    """The first output's later parts must not overwrite the last output."""
    n = 8192
    x, both = np.random.default_rng(0).standard_normal((1, 2 * n), np.float32), np.zeros(n + 1024, np.float32)
    _, gelu = aclnn.ge_glu_v3(x)
    aclnn.ge_glu_v3(x, out=(both[:n].reshape(1, n), both[1024:].reshape(1, n)))
    np.testing.assert_array_equal(both[1024:], gelu[0])
