"""RMSNorm and its gradients: against the differentiated forward and extended precision, the same bits everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.kernels.cpu import threads
from tests.cases.table import T
from tests.helpers.calls import assert_close
from tests.helpers.exact import ulps
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere
from tests.helpers.normalization import rms_backward

Array = np.ndarray[Any, Any]
F32 = np.float32
DTYPES = (np.dtype(F32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)
UNIT = 2.0**-24

#: One for each way through the rows: sets, one by one, four at a time, batches that threads share by columns.
SHAPES = [(300, 1), (300, 40), (300, 64), (300, 300), (300, 512), (257, 1030), (5, 700), (3, 33000)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = threads.shared().threads
    yield
    threads.set_threads(before)


def rows(m: int, n: int, dtype: Any = F32) -> tuple[Array, Array, Array, Array]:
    """Draw dy, x, rstd and gamma."""
    rng = np.random.default_rng(m + n)
    dy, x, gamma = (rng.normal(size=shape).astype(dtype) for shape in ((m, n), (m, n), (n,)))
    return dy, x, aclnn.rms_norm(x, gamma)[1], gamma


def bits(array: Array) -> bytes:
    """Return bit patterns, with one pattern for every NaN."""
    return np.where(np.isnan(array.astype(F32)), array.dtype.type(np.nan), array).tobytes()


def forward(x: Array, gamma: Array, eps: float) -> Array:
    """Return RMSNorm as its document defines it; takes complex arguments for complex steps."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma


def differentiated(dy: Array, x: Array, gamma: Array, eps: float) -> list[Array]:
    """Return the gradients of sum(dy·forward) by complex steps, without cancellation."""
    found = []
    for place, argument in enumerate((x, gamma)):
        gradient = np.empty(argument.shape)
        for i in np.ndindex(argument.shape):
            moved = [x.astype(complex), gamma.astype(complex)]
            moved[place][i] += 1e-100j
            gradient[i] = (dy * forward(*moved, eps)).sum().imag / 1e-100
        found.append(gradient)
    return found


@pytest.mark.parametrize(("m", "n"), [(1, 2), (5, 3), (4, 17), (3, 40)])
def test_gradients_match_the_forward(m: int, n: int) -> None:
    dy, x, _, gamma = rows(m, n)
    eps = float(F32(1e-3))
    y, rstd = aclnn.rms_norm(x, gamma, eps)
    wide = [array.astype(float) for array in (dy, x, gamma)]
    assert ulps(y, forward(*wide[1:], eps), D.FLOAT).max() <= 0.501
    for got, exact in zip(aclnn.rms_norm_grad(dy, x, rstd, gamma), differentiated(*wide, eps), strict=True):
        assert np.abs(got - exact).max() <= 1e-6 * max(1, np.abs(exact).max())


@EVERY_DTYPE
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_results_of_normal_data_are_within_the_bounds(m: int, n: int, dtype: Any) -> None:
    """The bounds are those of docs/numerics-layer-norm.md without the terms of Σ g."""
    dy, x, rstd, gamma = rows(m, n, dtype)
    y, _ = aclnn.rms_norm(x, gamma)
    wide = x.astype(float)
    exact_rstd = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + float(F32(1e-6)))
    assert ulps(rstd, exact_rstd, D.FLOAT).max() <= 0.501
    assert ulps(y, wide * exact_rstd * gamma.astype(float), D.of_numpy(dtype)).max() <= 0.501
    dx, dgamma = aclnn.rms_norm_grad(dy, x, rstd, gamma)
    y_, xhat = dy.astype(np.longdouble), x.astype(np.longdouble) * rstd
    g = y_ * gamma.astype(np.longdouble)
    scale = (abs(g) + abs(xhat) * abs(g * xhat).mean(1, keepdims=True)) * rstd
    exact = (g - xhat * (g * xhat).mean(1, keepdims=True)) * rstd
    last = {DTYPES[0]: 2.0**-24, DTYPES[1]: 2.0**-11, DTYPES[2]: 2.0**-8}[dtype]
    assert (abs(dx.astype(np.longdouble) - exact) <= 42 * UNIT * scale + last * abs(exact) * 1.001 + 2.0**-25).all()
    assert (abs(dgamma - (y_ * xhat).sum(0)) <= 6 * UNIT * abs(y_ * xhat).sum(0)).all()


@EVERY_DTYPE
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_same_bits_for_any_layout_and_thread_count(m: int, n: int, dtype: Any) -> None:
    dy, x, rstd, gamma = rows(m, n, dtype)
    threads.set_threads(1)
    expected = [bits(array) for array in (*aclnn.rms_norm(x, gamma), *aclnn.rms_norm_grad(dy, x, rstd, gamma))]
    for count, move in ((3, np.copy), (2, np.asfortranarray)):
        threads.set_threads(count)
        out = np.full((m, 2 * n), np.nan, dtype)[:, ::2]
        results = aclnn.rms_norm(move(x), gamma), aclnn.rms_norm_grad(move(dy), move(x), rstd, gamma, (out, None))
        assert [bits(array) for pair in results for array in pair] == expected


def checked(dy: Array, x: Array, rstd: Array, gamma: Array) -> None:
    """Compute gradients, and compare them with the exact ones."""
    dx, dgamma = aclnn.rms_norm_grad(dy, x, rstd, gamma)
    arguments = {"dy": dy, "x": x, "rstd": rstd, "gamma": gamma}
    outputs = {"dxOut": T(D.of_numpy(dx.dtype), dx.shape), "dgammaOut": T(D.FLOAT, dgamma.shape)}
    with np.errstate(invalid="ignore", over="ignore"):
        expected = rms_backward(arguments, outputs)
    assert_close("dxOut", dx, *expected["dxOut"])
    assert_close("dgammaOut", dgamma, *expected["dgammaOut"])


@pytest.mark.parametrize("dtype", [DTYPES[0], DTYPES[2]], ids=str)
@pytest.mark.parametrize(
    ("scale", "rstd", "gradient"),
    [
        (1e30, 1e-30, 1.0), (1e-30, 1e30, 1.0), (1.0, 1.0, 1e37), (1.0, 1e-10, 1e37), (1.0, 1.0, 1e-37),
        (1e18, 1e-18, 1e30), (1e35, 1e-36, 1e-20),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("m", "n"), [(3, 5), (300, 33), (300, 600), (2, 600)])
def test_intermediates_may_be_huge_or_tiny(
    dtype: Any, scale: float, rstd: float, gradient: float, m: int, n: int
) -> None:
    rng = np.random.default_rng(9)
    dy, x = (rng.normal(size=(m, n)) * factor for factor in (gradient, scale))
    gamma = rng.normal(size=n).astype(dtype)
    checked(dy.astype(dtype), x.astype(dtype), np.full(m, rstd, F32), gamma)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(("m", "n"), [(3, 5), (300, 33), (300, 600), (2, 600)])
def test_elements_that_are_not_finite_propagate_as_in_the_formula(value: float, place: int, m: int, n: int) -> None:
    arguments = [array.copy() for array in rows(m, n)]
    arguments[place][(1,) * arguments[place].ndim if arguments[place].shape[-1] > 1 else (1, 0)] = value
    checked(*arguments)


@pytest.mark.parametrize("n", [40, 300, 700])
def test_gradients_orthogonal_to_their_rows_are_not_lost(n: int) -> None:
    """Σ g·x̂ = 0 does not bound g, so these rows are summed in float64."""
    x, dy = np.zeros((2, 300, n), F32)
    x[:, 0] = F32(2.0**-60)
    dy[:, 1] = F32(2.0**-70 * (1 + 2.0**-20))  # whose last bits a float32 g cannot hold
    gamma = np.full(n, F32(2.0**-70))
    rstd = np.full((300, 1), F32(2.0**60))
    dx, _ = aclnn.rms_norm_grad(dy, x, rstd, gamma)
    assert (dx == dy.astype(float) * 2.0**-10).all()


def test_squares_beyond_float32_do_not_overflow() -> None:
    """Squares overflow float32, where the vendor's rstd and y are 0."""
    x = np.array([[3e38, 3e38, -1e38], [1e-30, 2e-30, -1e-30]], F32)
    y, rstd = aclnn.rms_norm(x, np.ones(3, F32), 0.0)
    exact = forward(x.astype(float), np.ones(3), 0.0)
    assert ulps(y, exact, D.FLOAT).max() <= 0.501
    assert (rstd > 0).all()


def test_rows_of_zeros_and_infinities_follow_the_formula() -> None:
    x = np.array([[0, -0.0, 0], [1, np.inf, -2], [1, np.nan, 2]], F32)
    gamma = np.array([1, 1, -1], F32)
    y, rstd = aclnn.rms_norm(x, gamma)
    assert str(y.tolist()) == "[[0.0, -0.0, -0.0], [0.0, nan, 0.0], [nan, nan, nan]]"
    assert str(rstd.ravel().tolist()) == "[1000.0, 0.0, nan]"
    y, rstd = aclnn.rms_norm(x[:1], gamma, 0.0)
    assert np.isnan(y).all()
    assert np.isposinf(rstd).all()


def test_epsilon_is_rounded_to_float32() -> None:
    x, gamma = np.full((1, 4), 1e-4, F32), np.ones(4, F32)
    eps = 1e-6
    rstd = aclnn.rms_norm(x, gamma, eps)[1]
    square = float(x[0, 0]) ** 2
    assert rstd[0, 0] == F32(1 / np.sqrt(square + float(F32(eps))))
    assert np.isposinf(aclnn.rms_norm(0 * x, gamma, 1e-50)[1]).all()
    assert aclnn.rms_norm(x, gamma, 1e300)[1] == 0


def test_no_rows_leave_nan_on_the_950_class_alone() -> None:
    empty, rstd, gamma = np.empty((0, 3), F32), np.empty((0, 1), F32), np.ones(3, F32)
    with pytest.raises(aclnn.AclnnError, match="at least one row") as caught:
        aclnn.rms_norm_grad(empty, empty, rstd, gamma)
    assert caught.value.code == 561002
    aclnn.set_soc_name("Ascend950DT_9571")
    assert np.isnan(aclnn.rms_norm_grad(empty, empty, rstd, gamma)[1]).all()


def test_memory_behind_the_rows_of_rstd_is_unchanged() -> None:
    x, gamma = np.ones((2, 3), F32), np.ones(3, F32)
    for strides in ((3, 1), (4, 1), (1, 2)):
        storage = np.full(8, F32(7))
        rstd = np.lib.stride_tricks.as_strided(storage, (2, 3), [4 * stride for stride in strides])
        aclnn.rms_norm(x, gamma, 0.0, (None, rstd))
        assert rstd.tolist() == [[1, 1, 7], [7, 7, 7]]
    storage = np.zeros(8, F32)
    inside = storage[1:7].reshape(2, 3)
    # rstd's elements replace those of y in the same places, and no others.
    aclnn.rms_norm(2 * x, 3 * gamma, 0.0, (inside, inside))
    assert storage.tolist() == [0, 0.5, 0.5, 3, 3, 3, 3, 0]


def digest(dtypes: Sequence[str]) -> str:
    found = hashlib.sha256()
    for dtype in map(np.dtype, dtypes):
        for m, n in SHAPES[:-1]:
            dy, x, rstd, gamma = rows(m, n, dtype)
            dy[m // 2] *= dtype.type(2.0**14)
            for result in (*aclnn.rms_norm(x, gamma), *aclnn.rms_norm_grad(dy, x, rstd, gamma)):
                found.update(bits(result))
    return found.hexdigest()


@pytest.mark.long
@EVERY_OTHER_SET
@pytest.mark.parametrize("dtypes", [["float32"], ["float16", "bfloat16"]])
def test_every_instruction_set_gives_the_same_bits(dtypes: list[str], elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere(__name__, elsewhere, dtypes) == digest(dtypes)


@pytest.mark.parametrize("gap", [0, 3])
def test_the_first_elements_of_a_larger_rstd_are_written_and_no_others(gap: int) -> None:
    """An rstd whose rows are not contiguous has a plan, too."""
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    storage = np.full((4, 2 + gap), 7, np.float32)
    aclnn.rms_norm(x, np.ones(2, np.float32), eps=1e-6, out=(np.empty_like(x), storage[:, :2]))
    expected = np.full((4, 2 + gap), 7, np.float32)
    expected[:2, :2] = (1 / np.sqrt((x.astype(np.float64) ** 2).mean(1) + 1e-6)).reshape(2, 2)
    np.testing.assert_array_max_ulp(storage, expected, 1)
