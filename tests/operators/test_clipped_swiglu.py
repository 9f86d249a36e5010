"""aclnnClippedSwiglu: its limits, its rows, and special values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.verify.testing import assert_close_to_golden

INF, NAN = math.inf, math.nan


def both(
    a: float, b: float, dy: float = 1.0, alpha: float = 1.702, limit: float = 7.0, bias: float = 1.0
) -> list[float]:
    """Return y, da and db."""
    x = np.array([[a, b]], np.float32)
    y = aclnn.clipped_swiglu(x, None, -1, alpha, limit, bias)
    return [*y[0].tolist(), *aclnn.clipped_swiglu_grad(np.float32([[dy]]), x, None, -1, alpha, limit, bias)[0].tolist()]


@pytest.mark.parametrize(
    ("a", "b", "printed"),
    [
        (-3.0, 2.0, "-0.054214 -0.073645 -0.018071"),
        (-1.0, -0.5, "-0.077102 -0.033890 -0.154204"),
        (0.0, 1.0, "0.000000 1.000000 0.000000"),
        (2.0, -3.0, "-3.871317 -2.147631 1.935659"),
        (7.0, 7.0, "55.999625 8.000585 6.999953"),
        (7.5, 1.0, "13.999906 0.000000 6.999953"),
        (1.0, -7.0, "-5.074775 -6.406678 0.845796"),
        (1.0, -7.5, "-5.074775 -6.406678 0.000000"),
        (8.0, 8.0, "55.999625 0.000000 0.000000"),
    ],
)
def test_values_match_the_documents_digits(a: float, b: float, printed: str) -> None:
    np.testing.assert_allclose(both(a, b), [float(value) for value in printed.split()], rtol=6e-8, atol=5e-7)


def test_gradients_pass_at_the_limits_and_not_beyond() -> None:
    beyond = float(np.nextafter(np.float32(7.0), np.float32(8.0)))
    within = float(np.nextafter(np.float32(7.0), np.float32(6.0)))
    for inside in (7.0, within):
        assert both(inside, 0.5)[1] != 0.0
        assert both(0.5, inside)[2] != 0.0 != both(0.5, -inside)[2]
    assert both(beyond, 0.5)[1] == 0.0
    assert both(0.5, beyond)[2] == 0.0 == both(0.5, -beyond)[2]


@pytest.mark.parametrize(
    ("a", "b", "dy", "expected"),
    [
        (INF, 2.0, 1.0, [both(7.0, 2.0)[0], 0.0, both(7.0, 2.0)[2]]),
        (-INF, 2.0, 1.0, [NAN, NAN, NAN]),
        (1.0, INF, 1.0, [*both(1.0, 7.0)[:2], 0.0]),
        (1.0, -INF, 1.0, [*both(1.0, -7.0)[:2], 0.0]),
        (8.0, 8.0, INF, [both(7.0, 7.0)[0], 0.0, 0.0]),
        (1.0, 2.0, -INF, [both(1.0, 2.0)[0], -INF, -INF]),
        (NAN, 8.0, 1.0, [NAN, NAN, NAN]),
        (8.0, NAN, 1.0, [NAN, NAN, NAN]),
        (8.0, 8.0, NAN, [both(7.0, 7.0)[0], NAN, NAN]),
    ],
)
def test_special_values_follow_the_formula(a: float, b: float, dy: float, expected: list[float]) -> None:
    np.testing.assert_array_equal(both(a, b, dy), expected)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, -1e30, -1.0, INF, -INF, NAN])
@pytest.mark.parametrize("name", ["alpha", "limit", "bias"])
def test_attributes_of_any_size_give_what_the_formula_gives(name: str, value: float) -> None:
    if name == "limit" and not value > 0.0:
        return
    numbers = {"alpha": 1.702, "limit": 7.0, "bias": 1.0} | {name: value}
    alpha, limit, bias = (float(np.float32(number)) for number in numbers.values())
    for a, b in ((1.5, -0.25), (-2.0, 3.0)):
        lower, upper = min(a, limit), min(max(b, -limit), limit)
        with np.errstate(all="ignore"):
            s = float(1.0 / (1.0 + np.exp(np.float64(-alpha * lower))))
            y = np.float32(lower * s * (upper + bias))
            db = 0.0 if abs(b) > limit else np.float32(lower * s)
        got = both(a, b, 1.0, **numbers)
        np.testing.assert_allclose([got[0], got[2]], [y, db], rtol=2e-7, atol=1e-45)


ROWS = pytest.mark.parametrize(
    ("groups", "rows"), [([1], 1), ([1, 0, 2], 3), ([0], 0), ([2**40, 1], 4), ([-5], 0), ([5, -3], 2), ([1] * 3, 3)]
)


@ROWS
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (2, 2, 6), (4, 2, 3), (4, 6, 5)])
@pytest.mark.parametrize("fortran", [False, True])
def test_rows_beyond_the_groups_are_kept_forward_and_zeroed_backward(
    groups: list[int], rows: int, interleaved: bool, shape: tuple[int, ...], fortran: bool
) -> None:
    """Rows beyond the groups are unchanged in the forward result, and zeros in the gradient."""
    dim = 1 if shape[0] == 4 else 2
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x = np.asfortranarray(x) if fortran else x
    index = np.array(groups, np.int64)
    whole = aclnn.clipped_swiglu(x, None, dim, interleaved=interleaved)
    out = np.full_like(whole, 5.0)
    out = np.asfortranarray(out) if fortran else out
    assert aclnn.clipped_swiglu(x, index, dim, interleaved=interleaved, out=out) is out
    flat, all_rows = out.reshape(4, -1), whole.reshape(4, -1)
    np.testing.assert_array_equal(flat[:rows], all_rows[:rows])
    assert (flat[rows:] == 5.0).all()
    assert (aclnn.clipped_swiglu(x, index, dim, interleaved=interleaved).reshape(4, -1)[rows:] == 0.0).all()

    dy = np.ones_like(whole)
    gradient = aclnn.clipped_swiglu_grad(dy, x, None, dim, interleaved=interleaved).reshape(4, -1)
    dx = np.full_like(x, 5.0)  # of x's strides
    aclnn.clipped_swiglu_grad(dy, x, index, dim, interleaved=interleaved, out=dx)
    np.testing.assert_array_equal(dx.reshape(4, -1)[:rows], gradient[:rows])
    assert (dx.reshape(4, -1)[rows:] == 0.0).all()


def test_the_number_of_rows_is_read_anew_in_each_call() -> None:
    x, index = np.ones((8, 4), np.float32), np.array([2], np.int64)
    for rows in (2, 7, 0, 8):
        index[0] = rows
        y = aclnn.clipped_swiglu(x, index)
        assert (y[:rows] != 0.0).all()
        assert (y[rows:] == 0.0).all()


def test_up_to_8192_groups_are_accepted_forward() -> None:
    x = np.ones((9000, 2), np.float32)
    assert np.count_nonzero(aclnn.clipped_swiglu(x, np.ones(8192, np.int64))) == 8192
    dy = np.ones((9000, 1), np.float32)
    assert np.count_nonzero(aclnn.clipped_swiglu_grad(dy, x, np.ones(8500, np.int64))[:, 0]) == 8500


def test_no_groups_are_a_sum_of_0_forwards_and_none_backwards() -> None:
    x, dy, empty = np.ones((3, 2), np.float32), np.ones((3, 1), np.float32), np.zeros(0, np.int64)
    assert not aclnn.clipped_swiglu(x, empty).any()
    assert aclnn.clipped_swiglu_grad(dy, x, empty).all()


@pytest.mark.parametrize("interleaved", [True, False])
def test_dimensions_from_dim_on_are_one_row(interleaved: bool) -> None:
    x = np.random.default_rng(2).normal(size=(3, 4, 5)).astype(np.float32)
    y = aclnn.clipped_swiglu(x, None, 1, interleaved=interleaved)
    np.testing.assert_array_equal(y.reshape(3, 10), aclnn.clipped_swiglu(x.reshape(3, 20), interleaved=interleaved))


@pytest.mark.parametrize("interleaved", [True, False])
def test_verify_covers_the_gradient(interleaved: bool) -> None:
    rng = np.random.default_rng(3)
    dy, x = (rng.normal(size=(6, n)).astype(np.float32) for n in (8, 16))
    given = {"grad_y": dy, "x": x, "group_index": np.array([2, 2], np.int64)}
    attributes = {"interleaved": interleaved}
    dx = aclnn.clipped_swiglu_grad(dy, x, given["group_index"], interleaved=interleaved)
    assert_close_to_golden("clipped_swiglu_grad", given, dx, **attributes)
    dx[5, 3] = 1.0  # in a row that is none
    with pytest.raises(AssertionError):
        assert_close_to_golden("clipped_swiglu_grad", given, dx, **attributes)


@pytest.mark.parametrize("door", ["numpy", "torch"])
def test_a_bias_of_minus_0_is_not_one_of_0(door: str) -> None:
    """-0.0 == 0.0, but calls with these biases have separate plans."""
    x = np.array([[1.0, -0.0]], np.float32)
    if door == "torch":
        torch = pytest.importorskip("torch")
        pytest.importorskip("aclnn.torch")

        def call(bias: float) -> Any:
            return torch.ops.aclnn.clipped_swiglu(torch.from_numpy(x), bias=bias).numpy()
    else:

        def call(bias: float) -> Any:
            return aclnn.clipped_swiglu(x, bias=bias)

    signs = [bool(np.signbit(call(bias)).any()) for bias in (0.0, -0.0, 0.0, -0.0)]
    assert signs == [False, True, False, True]
