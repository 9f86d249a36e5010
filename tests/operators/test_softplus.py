"""Softplus where it becomes linear, and with numbers of every kind."""

from __future__ import annotations

import numpy as np
import pytest

import aclnn

NAN, INF = np.nan, np.inf


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_threshold_itself_takes_the_smooth_branch() -> None:
    x = f32(1.5, np.nextafter(np.float32(1.5), np.float32(2)))
    np.testing.assert_allclose(aclnn.softplus(x, 2.0, 3.0), f32(1.524294, 1.5), rtol=1e-6)
    np.testing.assert_allclose(aclnn.softplus_backward(np.ones_like(x), x, 2.0, 3.0), f32(0.952574, 1.0), rtol=1e-6)


LARGEST = 3.4028235e38


@pytest.mark.parametrize("threshold", [0.0, -0.0, 1.1, -3.3, 1e-45, -1e-45, LARGEST, -LARGEST, INF, -INF, NAN])
def test_products_are_compared_as_float32(threshold: float) -> None:
    """Near the threshold, beta·x is compared as rounded to float32."""
    rng = np.random.default_rng(4)
    beta = np.float32(1.1)
    around = f32(threshold if np.isfinite(threshold) else 1.0)
    x = np.concatenate([around / beta * (1 + np.arange(-40, 41, dtype=np.float32) * np.float32(2.0**-24)),
                        rng.normal(size=20).astype(np.float32) * 1e38, f32(0.0, -0.0, 1e-45, -1e-45)])  # fmt: skip
    with np.errstate(over="ignore"):
        linear = beta * x > np.float32(threshold)
        expected = np.where(linear, 1.0, 1.0 / (1.0 + np.exp(-np.float64(beta) * x.astype(np.float64))))
    slope = aclnn.softplus_backward(np.ones_like(x), x, beta, threshold)
    np.testing.assert_allclose(slope, expected, rtol=1e-7)
    assert (aclnn.softplus(x, beta, threshold) == x)[linear].all()


@pytest.mark.parametrize(
    ("beta", "threshold", "x", "value", "slope"),
    [
        (0.0, 0.0, 3.0, INF, 0.5),
        (-0.0, 0.0, 3.0, INF, 0.5),
        (0.0, -1.0, 3.0, 3.0, 1.0),
        (0.0, 0.0, INF, NAN, NAN),
        (1.0, NAN, 50.0, 50.0, 1.0),
        (1.0, INF, INF, INF, 1.0),
        (1.0, -INF, -3.0, -3.0, 1.0),
        (1.0, 20.0, -INF, 0.0, 0.0),
        (1.0, 20.0, NAN, NAN, NAN),
        (NAN, 20.0, 1.0, NAN, NAN),
        (-2.0, 1.0, INF, 0.0, 0.0),
        (-2.0, 1.0, -INF, -INF, 1.0),
        (INF, 1.0, 1.0, 1.0, 1.0),
        (1e-30, 20.0, 1.0, np.log(2) / np.float64(np.float32(1e-30)), 0.5),
        (1e30, 20.0, -1.0, 0.0, 0.0),
    ],
)
def test_softplus_with_unusual_beta_and_threshold(
    beta: float, threshold: float, x: float, value: float, slope: float
) -> None:
    np.testing.assert_allclose(aclnn.softplus(f32(x), beta, threshold), f32(value), rtol=1e-6)
    np.testing.assert_allclose(aclnn.softplus_backward(f32(1.0), f32(x), beta, threshold), f32(slope), rtol=1e-6)


def test_beta_1_with_a_high_threshold_is_within_one_ulp() -> None:
    """Check fitted segments, their ends, and x beyond; log_sigmoid is the mirror image, bit for bit."""
    patterns = np.arange(0, 0x42C80000, 4099, dtype=np.uint32).view(np.float32)
    x = np.concatenate([patterns, -patterns])
    wide = x.astype(np.float64)
    exact = np.maximum(wide, 0.0) + np.log1p(np.exp(-np.abs(wide)))
    found = aclnn.softplus(x)
    normal = exact >= np.finfo(np.float32).tiny
    units = np.abs(found - exact)[normal] / np.spacing(exact.astype(np.float32)[normal])
    assert units.max() <= 1.0
    np.testing.assert_array_equal(aclnn.log_sigmoid(x), -aclnn.softplus(-x))
    np.testing.assert_array_equal(aclnn.softplus(x, 1.0, 40.0), found)


def test_different_data_types_are_computed_in_float32() -> None:
    x = np.array([-3, 0, 2, 100_001], np.int64)
    dy = np.ones(4, np.float16)
    found = aclnn.softplus_backward(dy, x, 1e-5, 20.0, out=np.empty(4, np.float32))
    beta = np.float64(np.float32(1e-5))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-beta * x)), rtol=1e-7)
    # In float16, to which int64 promotes with it, the last would be infinite.
    assert found[3] < 0.74
