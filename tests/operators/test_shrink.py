"""Hardshrink, Softshrink, Shrink, SELU: numbers beyond every range, both sides of every kink, integers."""

from __future__ import annotations

import numpy as np
import pytest

import aclnn

INF, NAN = np.inf, np.nan
F32 = np.float32
ARGUMENTS = F32([-INF, -3e38, -1.5, -1, -0.5, -1e-45, -0.0, 0, 1e-45, 0.5, 1, 1.5, 3e38, INF, NAN])
LAMBDS = [0.0, -0.0, 1e-45, 1e-30, 0.5, 1.0, 1e30, 1e300, INF]


@pytest.mark.parametrize("lambd", [*LAMBDS, -0.5, -INF, NAN])
def test_hardshrink_accepts_any_lambd(lambd: float) -> None:
    x = ARGUMENTS
    with np.errstate(over="ignore"):
        limit = max(F32(lambd), F32(0)) if lambd == lambd else F32(NAN)
    closed = np.abs(x) <= limit
    np.testing.assert_array_equal(aclnn.hardshrink(x, lambd), np.where(closed, F32(0), x))
    dy = np.arange(1, x.size + 1, dtype=F32)
    np.testing.assert_array_equal(
        aclnn.hardshrink_backward(dy, x, lambd),
        np.where(closed, F32(0), np.where(np.isnan(x), x, dy)),
    )


@pytest.mark.parametrize("lambd", [*LAMBDS, NAN, -1e-60])
@pytest.mark.parametrize("bias", [0.0, -1.0, 1e-30, 1e30, INF, -INF])
def test_shrink_accepts_any_lambd_and_bias(lambd: float, bias: float) -> None:
    x = ARGUMENTS
    with np.errstate(all="ignore"):
        limit, by = F32(lambd), np.float64(F32(bias))
        shrunk = np.where(
            x > limit,
            x - by,
            np.where(x < -limit, x + by, np.where(np.isnan(x), x, 0.0)),
        ).astype(F32)
        soft = np.where(
            np.abs(x) > limit,
            x - np.copysign(np.float64(limit), x),
            np.where(np.isnan(x), x, 0.0),
        )
    np.testing.assert_array_equal(aclnn.shrink(x, lambd, bias), shrunk)
    np.testing.assert_array_equal(aclnn.softshrink(x, lambd), soft.astype(F32))
    dy = np.arange(1, x.size + 1, dtype=F32)
    gradient = np.where(np.abs(x) > limit, dy, np.where(np.isnan(x), x, F32(0)))
    np.testing.assert_array_equal(aclnn.softshrink_backward(dy, x, lambd), gradient)


@pytest.mark.parametrize("name", ["hardshrink", "softshrink"])
def test_a_closed_gate_is_a_positive_zero_and_an_open_one_multiplies_nothing(name: str) -> None:
    dy = F32([-1, -INF, NAN, -0.0, -INF, 1e-45])
    x = F32([0.5, -0.5, 0.25, 0.75, -0.75, 3])
    found = getattr(aclnn, f"{name}_backward")(dy, x, 0.5)
    np.testing.assert_array_equal(found, F32([0, 0, 0, -0.0, -INF, 1e-45]))
    assert not np.signbit(found[:3]).any()
    assert np.signbit(found[3])
    assert not np.signbit(getattr(aclnn, name)(F32([-0.5, -0.0]), 0.5)).any()


@pytest.mark.parametrize("lambd", [0.1, 0.5, 1.2, 7.0])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_the_kinks_are_at_lambd_in_float32(lambd: float, kind: type) -> None:
    """Float16 is compared with the float32 lambd, which may be between two float16 values."""
    at = kind(lambd)
    x = np.array([np.nextafter(at, kind(0)), at, np.nextafter(at, kind(10))], kind)
    opened = x.astype(np.float64) > np.float64(F32(lambd))
    for function in (aclnn.hardshrink, aclnn.softshrink, aclnn.shrink):
        np.testing.assert_array_equal(function(x, lambd) != 0, opened)
        np.testing.assert_array_equal(function(-x, lambd) != 0, opened)
    for gradient in (aclnn.hardshrink_backward, aclnn.softshrink_backward):
        np.testing.assert_array_equal(gradient(np.ones_like(x), x, lambd), opened)


def test_selu_of_integers_wraps_int8_and_saturates_int32() -> None:
    x = np.array([-128, -3, -1, 0, 1, 2, 100, 121, 122, 123, 127], np.int8)
    np.testing.assert_array_equal(aclnn.selu(x), np.array([-1, -1, -1, 0, 1, 2, 105, 127, -128, -127, -123], np.int8))
    wide = np.array([-(2**31), -1, 0, 10, 1000, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(aclnn.selu(wide), [-1, -1, 0, 10, 1050, 2**31 - 1])
    assert aclnn.inplace_selu(wide) is wide
    assert wide[4] == 1050


@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_gradients_of_selu_of_integers_are_the_nearest(kind: type) -> None:
    dy, y = np.array([1, 2, -2, 100, 127, 1, 10, -128], kind), np.array([1, 0, 0, -1, 5, -3, -1, 1], kind)
    expected = np.clip([1, 4, -4, 76, 133, -1, 8, -134], np.iinfo(kind).min, np.iinfo(kind).max)
    np.testing.assert_array_equal(aclnn.selu_backward(dy, y), expected)


def test_positive_values_of_selu_are_rounded_once() -> None:
    x = np.arange(0x0C800000, 0x7F800000, 100003, dtype=np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(aclnn.selu(x), (1.0507009873554805 * x.astype(np.float64)).astype(np.float32))


def test_selu_at_0_and_at_values_that_are_not_finite() -> None:
    tiny = F32(1e-45)
    x = F32([-tiny, -0.0, 0.0, tiny, -INF, INF, NAN])
    found = aclnn.selu(x)
    np.testing.assert_array_equal(found, F32([-2 * tiny, 0, 0, tiny, -1.7580993408473768, INF, NAN]))
    assert np.signbit(found[1])
    slope = aclnn.selu_backward(np.ones_like(x), x)
    low, high = F32(1.7580993408473768), F32(1.0507009873554805)
    np.testing.assert_array_equal(slope, F32([low, low, low, high, -INF, high, NAN]))
