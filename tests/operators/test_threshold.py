"""ReLU and Threshold of integers, and where nothing is multiplied."""

from __future__ import annotations

import numpy as np
import pytest

import aclnn
from aclnn.core import products

INF, NAN = np.inf, np.nan
INTEGERS = [np.int8, np.uint8, np.int32, np.int64]


@pytest.mark.parametrize("kind", INTEGERS)
def test_relu_of_integers_is_exact(kind: type) -> None:
    info = np.iinfo(kind)
    x = np.array([info.min, 0, 1, 7, info.max], kind)
    np.testing.assert_array_equal(aclnn.relu(x), np.maximum(x, 0))
    view = np.tile(x, (2, 1)).T[::2]
    assert aclnn.inplace_relu(view) is view
    np.testing.assert_array_equal(view, np.maximum(np.tile(x, (2, 1)).T[::2], 0))


@pytest.mark.parametrize("kind", [*INTEGERS, np.int16])
def test_thresholds_of_integers_lose_their_fractions(kind: type) -> None:
    x = np.array([0, 2, 3, 100], kind)
    np.testing.assert_array_equal(aclnn.threshold(x, 2.9, 9.9), np.array([9, 9, 3, 100], kind))
    wide = aclnn.threshold(x, 2, 9, out=np.empty(4, np.float32))
    np.testing.assert_array_equal(wide, np.float32([9, 9, 3, 100]))
    aclnn.inplace_threshold(x, 99, 1)
    np.testing.assert_array_equal(x, np.array([1, 1, 1, 100], kind))


@pytest.mark.parametrize(
    ("threshold", "value", "expected"),
    [(0, INF, 127), (0, -INF, -128), (0, NAN, 0), (0, 300.5, 127), (0, 300, 300 - 256), (NAN, 1, 1), (-INF, 1, -5)],
)
def test_numbers_that_integers_do_not_hold_are_converted_as_by_a_cast(
    threshold: float, value: float, expected: int
) -> None:
    """Numbers out of an integer type's range must not be an OverflowError."""
    x = np.array([-5, 9], np.int8)
    np.testing.assert_array_equal(aclnn.threshold(x, threshold, value), np.array([expected, 9], np.int8))


def test_a_threshold_of_wide_integers_keeps_its_digits() -> None:
    x = np.array([2**53, 2**53 + 1, 2**53 + 2])
    np.testing.assert_array_equal(aclnn.threshold(x, 2**53 + 1, 0), [0, 0, 2**53 + 2])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32])
def test_gradients_of_integers_are_exact(kind: type) -> None:
    x, dy = np.array([0, 1, 2, 100], kind), np.array([5, 6, 7, 127], kind)
    np.testing.assert_array_equal(aclnn.threshold_backward(dy, x, 1.5), np.array([0, 0, 7, 127], kind))
    np.testing.assert_array_equal(aclnn.threshold_backward(dy, x, 0), np.array([0, 6, 7, 127], kind))


def test_gradients_of_wide_integers_on_the_newest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_selected", None)
    aclnn.set_soc_name("Ascend950DT_9571")
    x, dy = np.array([-1, 0, 1 << 62]), np.array([5, 6, (1 << 62) + 1])
    np.testing.assert_array_equal(aclnn.threshold_backward(dy, x, 0), [0, 0, (1 << 62) + 1])
    with pytest.raises(aclnn.AclnnError, match=r"threshold: expected 0 for ACL_INT64, got 1\.0"):
        aclnn.threshold_backward(dy, x, 1)


def test_relu_of_zeros_and_values_that_are_not_finite() -> None:
    x = np.float32([-0.0, 0.0, -INF, INF, NAN, -1e-45, 1e-45])
    found = aclnn.relu(x)
    np.testing.assert_array_equal(found, np.float32([0, 0, 0, INF, NAN, 0, 1e-45]))
    assert not np.signbit(found[:4]).any()
    dy = np.float32([-1, INF, NAN, -INF, 2, -INF, -3])
    gradient = aclnn.threshold_backward(dy, x, 0)
    np.testing.assert_array_equal(gradient, np.float32([0, 0, 0, -INF, NAN, 0, -3]))
    assert not np.signbit(gradient[:3]).any()
    np.testing.assert_array_equal(aclnn.threshold(x, NAN, 5), x)
    np.testing.assert_array_equal(aclnn.threshold(np.float16([0.1, 0.2]), 0.1, 1), np.float16([1, 0.2]))


def test_hardsigmoid_of_integers_and_values_that_are_not_finite() -> None:
    x = np.array([-3, 0, 2, 3, 1 << 30], np.int32)
    np.testing.assert_array_equal(aclnn.hardsigmoid(x), [0, 0, 0, 1, 1])
    assert aclnn.inplace_hardsigmoid(x) is x
    np.testing.assert_array_equal(x, [0, 0, 0, 1, 1])
    edge = np.nextafter(np.float32(3), np.float32(0))
    x = np.float32([edge, 3, -edge, -3, INF, -INF, NAN, 0, 0])
    dy = np.float32([6, 6, 6, INF, NAN, -1, 1, INF, NAN])
    found = aclnn.hardsigmoid_backward(dy, x)
    np.testing.assert_array_equal(found, np.float32([1, 0, 1, 0, 0, 0, NAN, INF, NAN]))
    assert not np.signbit(found[[1, 3, 4, 5]]).any()


@pytest.mark.parametrize(("low", "high", "open_"), [(-1, 1, 1), (1, 1, 0), (1, -1, 0), (NAN, 1, 0), (-INF, INF, 1)])
def test_hardtanh_gradients_within_and_beyond_its_bounds(low: float, high: float, open_: int) -> None:
    dy = np.float32([INF, NAN, -0.0, 5])
    found = aclnn.hardtanh_backward(dy, np.zeros(4, np.float32), low, high)
    np.testing.assert_array_equal(found, dy if open_ else np.zeros(4, np.float32))
    assert np.signbit(found[2]) == bool(open_)
    beyond = aclnn.hardtanh_backward(np.float32([INF, -1, 1]), np.float32([INF, -INF, NAN]), low, high)
    np.testing.assert_array_equal(beyond, np.float32([0, 0, NAN]))
