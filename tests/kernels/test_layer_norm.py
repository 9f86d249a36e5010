"""LayerNorm's gradients by themselves: exact references, any layout, the same bits whatever runs them."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclnn import kernels
from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Layout
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.norm import backward
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere, python

Array = np.ndarray[Any, Any]
DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
MASKS = [(dx, dw, db) for dx in (True, False) for dw in (True, False) for db in (True, False)][:-1]
UNIT = 2.0**-24
#: Half a unit of the last place relative to the value, half the smallest subnormal, and the largest number.
ROUNDING = {
    DTYPES[0]: (2.0**-24, 2.0**-150, 2.0**128),
    DTYPES[1]: (2.0**-11, 2.0**-25, 65520.0),
    DTYPES[2]: (2.0**-8, 2.0**-134, 2.0**128),
}


def types_and_masks(whole: tuple[bool, ...], *parts: tuple[bool, ...]) -> list[Any]:
    """Every data type with a mask; the others with float32, and in the long half with the rest.

    Each pair compiles kernels of its own, for seconds; how elements are read and written is the same for every mask.
    """
    return [
        *((dtype, whole) for dtype in DTYPES),
        *((DTYPES[0], mask) for mask in parts),
        *(pytest.param(dtype, mask, marks=pytest.mark.long) for dtype in DTYPES[1:] for mask in parts),
    ]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = threads.shared().threads
    yield
    threads.set_threads(before)


def layout(array: Array | None) -> Layout | None:
    if array is None:
        return None
    return Layout(D.of_numpy(array.dtype), array.shape, tuple(step // array.itemsize for step in array.strides))


class Plan:
    """A plan with a workspace of exactly its size, between guard bytes."""

    def __init__(self, inputs: tuple[Array | None, ...], outputs: tuple[Array | None, ...], dims: int) -> None:
        self.plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, outputs)), dims)
        self.addresses = [[0 if a is None else a.ctypes.data for a in arrays] for arrays in (inputs, outputs)]

    def run(self) -> None:
        size = self.plan.workspace_bytes
        memory = np.full(size + 256, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + 64
        self.plan.run(*self.addresses, memory.ctypes.data + start)
        assert (memory[:start] == 0xA5).all()
        assert (memory[start + size :] == 0xA5).all()


def gradients(
    inputs: tuple[Array | None, ...], mask: tuple[bool, ...] = (True, True, True), dims: int = 1
) -> tuple[Any, Any, Any]:
    """Compute dx, dw and db into new contiguous, poisoned arrays of x's data type."""
    x = inputs[1]
    assert x is not None
    shapes = (x.shape, x.shape[x.ndim - dims :], x.shape[x.ndim - dims :])
    outputs = tuple(
        np.full(shape, np.nan, x.dtype) if expected else None for shape, expected in zip(shapes, mask, strict=True)
    )
    Plan(inputs, outputs, dims).run()
    return outputs[0], outputs[1], outputs[2]


def bits(array: Array) -> Array:
    """Return bit patterns, with one pattern for every NaN."""
    plain = np.where(np.isnan(array.astype(np.float32)), array.dtype.type(np.nan), array)
    return np.array(plain, order="C").view(f"u{array.itemsize}")


class Exact(NamedTuple):
    """Gradients in extended precision, and the magnitudes that error bounds are relative to."""

    dx: Array
    dw: Array
    db: Array
    dx_scale: Array
    dw_scale: Array
    db_scale: Array


def exact(dy: Array, x: Array, mean: Array, rstd: Array, weight: Array | None) -> Exact:
    """Return exact gradients for dy and x of M rows and N columns, and given mean and rstd."""
    wide = [np.asarray(array).astype(np.longdouble) for array in (dy, x, mean, rstd)]
    y, mean, rstd = wide[0], wide[2].reshape(-1, 1), wide[3].reshape(-1, 1)
    xhat = (wide[1] - mean) * rstd
    g = y if weight is None else y * np.asarray(weight).astype(np.longdouble).reshape(1, -1)
    n = g.shape[1]
    with np.errstate(invalid="ignore"):
        dx = (g - g.sum(1, keepdims=True) / n - xhat * ((g * xhat).sum(1, keepdims=True) / n)) * rstd
        scale = abs(g) + abs(g).mean(1, keepdims=True) + abs(xhat) * abs(g * xhat).mean(1, keepdims=True)
        return Exact(dx, (y * xhat).sum(0), y.sum(0), scale * abs(rstd), abs(y * xhat).sum(0), abs(y).sum(0))


def assert_close(got: Array, value: Array, scale: Array, gamma: float, loss: Any = 0.0) -> None:
    """|got - value| ≤ gamma·u·scale + loss, and a rounding to got's data type; what overflows it may be infinite."""
    relative, absolute, largest = ROUNDING[got.dtype]
    found = got.astype(np.longdouble).reshape(value.shape)
    allowed = gamma * UNIT * scale + loss
    allowed = allowed + (abs(value) + allowed) * relative * 1.001 + absolute * 1.001
    with np.errstate(invalid="ignore"):
        fine = (abs(found - value) <= allowed) | (np.isnan(found) & np.isnan(value))
        fine |= np.isinf(found) & (abs(value) + allowed >= largest) & (np.sign(found) == np.sign(value))
    worst = np.argmin(fine)
    assert fine.all(), (found.flat[worst], value.flat[worst], np.max(abs(found - value) / (UNIT * scale)))


def assert_exact(got: tuple[Any, Any, Any], inputs: tuple[Any, ...], columns: int) -> None:
    """Check the bounds that docs/numerics-layer-norm.md derives."""
    dy, x, mean, rstd, weight = inputs
    flat = dy.reshape(-1, columns), x.reshape(-1, columns)
    reference = exact(*flat, mean, rstd, weight)
    if got[0] is not None:
        assert_close(got[0], reference.dx, reference.dx_scale, 48.0)
    if got[1] is not None:
        underflow = abs(flat[0].astype(np.longdouble)).sum(0) * 2.0**-149
        assert_close(got[1], reference.dw, reference.dw_scale, 7.0, underflow + flat[0].shape[0] * 2.0**-149)
    if got[2] is not None:
        assert_close(got[2], reference.db, reference.db_scale, 4.0)


def rows(rng: np.random.Generator, m: int, n: int, dtype: Any = np.float32, weighted: bool = True) -> tuple[Any, ...]:
    """Draw normal data; return it with the statistics of its rows."""
    dy, x = (rng.normal(size=(m, n)).astype(np.float32) for _ in range(2))
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    weight = rng.normal(size=n).astype(dtype) if weighted else None
    return dy.astype(dtype), x.astype(dtype), mean.astype(np.float32), rstd.astype(np.float32), weight


def loss(x: Array, weight: Array, bias: Array, dy: Array) -> Any:
    """Return Σ dy·LayerNorm(x) for an eps of 0, by definition, in the arithmetic of the arguments."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return (dy * (centred / np.sqrt(variance) * weight + bias)).sum()


def complex_step(at: tuple[Array, ...], which: int) -> Array:
    """Return the derivative of the loss by one argument to float64's last digits, by complex steps."""
    found = np.empty(at[which].shape)
    for index in np.ndindex(found.shape):
        moved = [np.array(argument, np.complex128) for argument in at]
        moved[which][index] += 1e-200j
        found[index] = loss(*moved).imag / 1e-200
    return found


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_gradients_match_the_forward(repeats: int) -> None:
    rng = np.random.default_rng(repeats)
    # Ten values ±1 and six ±3 have the mean 0 and the variance 4: mean and rstd of these rows are exact in float32.
    values = np.repeat([1.0, -1.0, 3.0, -3.0], [5, 5, 3, 3])
    n = 16 * repeats
    x = np.stack([np.tile(rng.permutation(values), repeats) for _ in range(5)])
    scale, centre = 2.0 ** np.array([0, 3, -4, 1, -2])[:, None], np.array([0, 1000, 2, -8, 0.5])[:, None]
    x = x * scale + centre
    dy, weight, bias = rng.normal(size=(5, n)), rng.normal(size=n), rng.normal(size=n)
    dy, weight = dy.astype(np.float32), weight.astype(np.float32)
    mean, rstd = centre[:, 0].astype(np.float32), (0.5 / scale[:, 0]).astype(np.float32)
    inputs = dy, x.astype(np.float32), mean, rstd, weight
    reference = exact(*inputs)
    at = x, weight.astype(float), bias, dy.astype(float)
    for which, got, magnitude in zip((0, 1, 2), gradients(inputs), reference[3:], strict=True):
        assert_close(got, complex_step(at, which), magnitude, 12.0, loss=1e-12)


def test_the_worked_example_is_reproduced() -> None:
    data = np.array([[2, 3], [4, 5]], np.float32)
    statistics = np.array([[2], [3]], np.float32), np.array([[4], [5]], np.float32)
    dx, dw, db = gradients((data, data, *statistics, np.ones(2, np.float32)))
    assert dx.tolist() == [[-2.0, -94.0], [-877.5, -1747.5]]
    assert dw.tolist() == [20.0, 62.0]
    assert db.tolist() == [6.0, 8.0]


@pytest.mark.parametrize(
    ("m", "n"),
    [(1, 1), (5, 1), (3, 15), (4, 16), (7, 17), (70, 33), (300, 511), (257, 513), (9, 4100), (3, 70000), (6, 300_000),
     (1, 1_000_000), (1_000_000, 2), (5000, 40)],
)  # fmt: skip
def test_gradients_of_normal_data_are_within_the_bounds(m: int, n: int) -> None:
    inputs = rows(np.random.default_rng(m + n), m, n)
    got = gradients(inputs)
    assert_exact(got, inputs, n)
    reference = exact(*inputs)
    for found, value in zip(got, reference[:3], strict=True):
        if m * n > 1000 and n > 2:
            assert np.linalg.norm(found - value) <= 2e-7 * np.linalg.norm(value)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize(("m", "n"), [(300, 100), (5, 1025)])
def test_sixteen_bits_are_rounded_once(dtype: Any, m: int, n: int) -> None:
    inputs = rows(np.random.default_rng(n), m, n, dtype)
    assert_exact(gradients(inputs), inputs, n)
    # dw and db in float64, rounded once.
    dy, x, mean, rstd, _ = inputs
    assert_exact(gradients((dy, x, mean.astype(dtype), rstd.astype(dtype), None)), (dy, x, mean.astype(dtype),
                 rstd.astype(dtype), None), n)  # fmt: skip


@pytest.mark.parametrize("n", [1, 7, 100, 3000, 100_000])
@pytest.mark.parametrize("centre", [0.0, 1.0, 1e4, -1e6])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e3])
def test_gradients_of_ill_conditioned_rows_are_within_the_bounds(n: int, centre: float, spread: float) -> None:
    rng = np.random.default_rng(n)
    x = (centre + spread * rng.normal(size=(6, n))).astype(np.float32)
    dy = (rng.normal(size=(6, n)) + rng.choice([0.0, 100.0])).astype(np.float32)
    wide = x.astype(np.float64)
    mean, rstd = wide.mean(1).astype(np.float32), (1 / np.sqrt(wide.var(1) + 1e-12)).astype(np.float32)
    inputs = dy, x, mean, rstd, rng.normal(size=n).astype(np.float32)
    assert_exact(gradients(inputs), inputs, n)


def test_one_column_gives_zero() -> None:
    inputs = rows(np.random.default_rng(1), 50, 1)
    assert not gradients(inputs)[0].any()


@pytest.mark.parametrize("shape", [(5, 40), (300, 40), (258, 200), (3, 33000)])
@pytest.mark.parametrize("power_dy", [-140, -100, 0, 100, 125])
@pytest.mark.parametrize("power_w", [-100, 0, 100])
@pytest.mark.parametrize("power_x", [-100, 0, 120])
def test_no_intermediate_overflows_or_vanishes(
    shape: tuple[int, int], power_dy: int, power_w: int, power_x: int
) -> None:
    if shape != (5, 40) and (power_dy + power_w) % 3:
        pytest.skip("the small shape has them all")
    rng = np.random.default_rng(3)
    dy, x, mean, rstd, weight = rows(rng, *shape)
    dy[1:4] *= np.float32(2.0**power_dy)
    with np.errstate(over="ignore", under="ignore"):
        inputs = (
            dy, x * np.float32(2.0**power_x), mean * np.float32(2.0**power_x), rstd * np.float32(2.0**-power_x),
            weight * np.float32(2.0**power_w),
        )  # fmt: skip
    dx, dw, db = gradients(inputs)
    reference = exact(*inputs)
    assert_close(dx, reference.dx, reference.dx_scale, 48.0)
    assert_close(dw, reference.dw, reference.dw_scale, 8.0, 2.0**-149 * (reference.db_scale + shape[0]))
    assert_close(db, reference.db, reference.db_scale, 4.0)


def test_sums_whose_parts_overflow_are_finite() -> None:
    dy = np.full((6, 20), 3e38, np.float32)
    dy[3:] *= -1
    inputs = dy, np.ones((6, 20), np.float32), np.zeros(6, np.float32), np.ones(6, np.float32), None
    dx, dw, db = gradients(inputs)
    assert not db.any()
    assert not dw.any()
    assert np.array_equal(dx, np.where(dy > 0, -3e38, 3e38).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(301, 40), (301, 200), (301, 700), (7, 33000)])
def test_columns_that_overflow_have_the_same_bits_for_any_mask_layout_and_thread_count(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(11)
    inputs = dy, x, mean, rstd, _ = rows(rng, *shape)
    dy[0:4, 3] = 3e38, 3e38, -3e38, -3e38  # dw and db need float64
    x[0:4, 3] = mean[0:4] + 2 / rstd[0:4]
    dy[5, 7], x[5, 7] = 1e20, 1e25  # dw does
    dy[6, 9], dy[2, 20], x[1, 30] = np.inf, np.nan, -np.inf
    threads.set_threads(1)
    whole = gradients(inputs)
    for mask in MASKS:
        for count in (1, 3):
            threads.set_threads(count)
            for moved in (inputs, (np.asfortranarray(dy), x, mean, rstd, inputs[4])):
                for got, value in zip(gradients(moved, mask), whole, strict=True):
                    assert got is None or np.array_equal(bits(got), bits(value))
    with np.errstate(invalid="ignore"):
        xhat = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
        for got, terms in ((whole[1], dy * xhat), (whole[2], dy.astype(np.float64))):
            expected, scale = terms.sum(0), abs(terms).sum(0)
            finite = abs(expected) < 3e38
            assert (abs(got - expected) <= 1e-6 * scale)[finite].all()
            assert np.array_equal(np.isfinite(got), finite)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [40, 200, 700])
def test_rows_whose_magnitudes_are_in_doubt_have_the_same_bits_in_any_layout(n: int, dtype: Any) -> None:
    dy, x, mean, rstd, weight = inputs = rows(np.random.default_rng(14), 300, n, dtype)
    dy[3] = 0
    dy[5:7], weight[1] = dtype.type(2.0**-24), dtype.type(2.0**-14)
    rstd[6:9] = 2.0**7, 2.0**12, 2.0**20
    x[9], mean[9] = dtype.type(60000), -6e4
    x[10], dy[11] = dtype.type(np.inf), dtype.type(np.nan)
    whole = gradients(inputs)
    assert not whole[0][3].any()
    for moved in ((np.asfortranarray(dy), *inputs[1:]), (dy, np.asfortranarray(x), *inputs[2:])):
        for got, value in zip(gradients(moved), whole, strict=True):
            assert np.array_equal(bits(got), bits(value))
    sound = np.r_[0:10, 12:300]
    inputs = dy[sound], x[sound], mean[sound], rstd[sound], weight
    assert_exact((whole[0][sound], *gradients(inputs)[1:]), inputs, n)


@pytest.mark.parametrize("n", [2, 16, 40, 200, 700])
@pytest.mark.parametrize("m", [1, 300])
def test_terms_that_vanish_from_c2_matter_if_xhat_is_large(m: int, n: int) -> None:
    """A g that underflows is multiplied by the large x̂ of two columns; without it dx is 14 % off."""
    dy, x, mean, rstd, weight = (array.copy() for array in rows(np.random.default_rng(1), m, n))
    dy[:], x[:], mean[:], rstd[:], weight[:] = 0.0, 0.0, 0.0, 1.0, 1.0
    dy[:, :2], x[:, 1] = (2.0**-80, 1.5 * 2.0**-75), 2.0**30 * (1 - 2.0**-10)
    weight[:2] = 2.0**-8, 2.0**-74
    inputs = dy, x, mean, rstd, weight
    assert_exact(gradients(inputs), inputs, n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "gap"), [(10, 0), (24, 0), (40, 0), (64, 0), (16, 1), (64, 1), (100, 0), (600, 0)])
def test_a_row_in_doubt_leaves_its_neighbours_alone(n: int, gap: int, dtype: Any) -> None:
    """Recomputing a row in float64 changes no address or coefficient of the rows around it."""
    inputs = dy, x, mean, rstd, weight = rows(np.random.default_rng(n), 260, n, dtype)
    dy[[1, 6, 11, 12]] = 0
    rstd[200:] = 1000.0
    alone = [gradients((dy[k : k + 1], x[k : k + 1], mean[k : k + 1], rstd[k : k + 1], weight)) for k in range(260)]
    if gap:
        strided = np.empty((2, 26, 10 + gap, n), dtype)[:, :, :10]
        strided[0], strided[1] = dy.reshape(26, 10, n), x.reshape(26, 10, n)
        inputs = (*strided, mean.reshape(26, 10), rstd.reshape(26, 10), weight)
    dx, dw, db = gradients(inputs)
    assert np.array_equal(bits(dx.reshape(260, n)), bits(np.concatenate([one[0] for one in alone])))
    assert_exact((dx.reshape(260, n), dw, db), (dy, x, mean, rstd, weight), n)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 200, 700])
def test_bfloat16_results_may_be_subnormal(n: int) -> None:
    dy, x, mean, rstd, weight = rows(np.random.default_rng(15), 300, n, DTYPES[2])
    far = np.float32(2.0**125)
    inputs = dy, (x.astype(np.float32) * far).astype(x.dtype), mean * far, rstd / far, weight
    dx = gradients(inputs)[0]
    size = abs(dx.astype(np.float64))
    assert ((size > 0) & (size < 2.0**-126)).any()
    assert_close(dx, exact(*inputs).dx, exact(*inputs).dx_scale, 48.0)


@pytest.mark.parametrize("shape", [(300, 8), (300, 200), (2, 33000)])
@pytest.mark.parametrize(("power_xhat", "power_dy"), [(29, 97), (60, 50), (40, 80)])
def test_the_product_of_xhat_and_c2_may_exceed_float32(shape: tuple[int, int], power_xhat: int, power_dy: int) -> None:
    dy, x = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    dy[1, 0], x[1, 0] = 2.0**power_dy, 2.0 ** (power_xhat + 60)
    inputs = dy, x, np.zeros(shape[0], np.float32), np.full(shape[0], 2.0**-60, np.float32), None
    dx, dw, db = gradients(inputs)
    assert np.isfinite(dx).all()
    assert_exact((dx, dw, db), inputs, shape[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", range(5))
@pytest.mark.parametrize("n", [40, 200, 700])
def test_nan_and_inf_propagate_by_the_formula(bad: float, where: int, n: int) -> None:
    inputs = rows(np.random.default_rng(9), 300, n)
    clean = gradients(inputs)
    broken = tuple(array.copy() for array in inputs)
    broken[where].flat[7] = bad
    dy, x, mean, rstd, weight = (array.astype(np.float64) for array in broken)
    with np.errstate(invalid="ignore"):
        xhat = (x - mean[:, None]) * rstd[:, None]
        g = dy * weight
        dx = (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)) * rstd[:, None]
        expected = dx, (dy * xhat).sum(0), dy.sum(0)
    for found, value, before in zip(gradients(broken), expected, clean, strict=True):
        assert np.array_equal(np.isnan(found), np.isnan(value))
        assert np.array_equal(np.isinf(found), np.isinf(value))
        finite = np.isfinite(value)
        assert np.allclose(found[finite], value[finite], rtol=1e-4, atol=1e-4)
        if value is dx and where < 4:
            untouched = np.isfinite(dx).all(1)
            assert untouched.sum() == 299
            assert np.array_equal(found[untouched], before[untouched])


class View(NamedTuple):
    """A strided view and the storage behind it."""

    array: Array
    storage: Array


def view(draw: Any, shape: tuple[int, ...], dtype: Any, values: Array | None) -> View:
    """Make a view with any order of dimensions, gaps, strides and directions; the rest of its storage is NaN."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    sizes = [shape[axis] * abs(steps[axis]) + draw(st.sampled_from([0, 0, 1])) for axis in order]
    storage = np.full([draw(st.sampled_from([1, 2])), *sizes], np.nan, np.float32).astype(dtype)
    array = storage[0, ...].transpose([order.index(axis) for axis in range(len(shape))])
    array = array[(..., *(slice(None, size * abs(step), abs(step)) for size, step in zip(shape, steps, strict=True)))]
    array = array[(..., *(slice(None, None, -1) if step < 0 else slice(None) for step in steps))]
    assert array.shape == shape
    if values is not None:
        with np.errstate(over="ignore"):
            array[...] = values.reshape(shape).astype(dtype)
    return View(array, storage)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_layout_data_type_and_mask_gives_the_same_bits(data: st.DataObject) -> None:
    draw = data.draw
    outer = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 70]), max_size=2)))
    inner = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 8, 16, 33, 520]), min_size=1, max_size=2)))
    m, n = int(np.prod(outer)), int(np.prod(inner))
    if m * n > 50_000:
        outer, m = (), 1
    mask = draw(st.sampled_from(MASKS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dy, x = rng.normal(size=(m, n)), rng.normal(size=(m, n)) * 0.1 + 1
    if draw(st.booleans()):
        dy *= 2.0 ** draw(st.sampled_from([-120, 110])) * rng.integers(0, 2, (m, 1))
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    statistics = draw(st.sampled_from([(*outer, *(1 for _ in inner)), outer, (m,)]))
    dtype = st.sampled_from(DTYPES)
    views = [
        view(draw, shape, draw(dtype), values)
        for shape, values in ((outer + inner, dy), (outer + inner, x), (statistics, mean), (statistics, rstd),
                              (inner, rng.normal(size=n)))
    ]  # fmt: skip
    inputs: list[Any] = [each.array for each in views]
    if draw(st.booleans()):
        inputs[4] = None
    columns = draw(st.sampled_from([inner, (n,)]))
    outputs = [view(draw, shape, draw(dtype), None) for shape in (outer + inner, columns, columns)]
    expected = [output.array if flag else None for output, flag in zip(outputs, mask, strict=True)]
    threads.set_threads(draw(st.integers(1, 3)))
    before = [None if array is None else bits(array) for array in inputs]
    Plan(tuple(inputs), tuple(expected), len(inner)).run()
    for array, old in zip(inputs, before, strict=True):
        assert array is None or np.array_equal(bits(array), old)
    assert_exact((expected[0], expected[1], expected[2]), tuple(inputs), n)
    # The same bits as from contiguous float32 copies of the inputs.
    plain = tuple(None if array is None else np.array(array, np.float32, order="C") for array in inputs)
    whole = gradients(plain, mask, len(inner))
    with np.errstate(over="ignore"):
        if expected[0] is not None:
            assert np.array_equal(bits(whole[0].astype(expected[0].dtype)), bits(expected[0]))
        for got, value in ((expected[1], whole[1]), (expected[2], whole[2])):
            if got is not None and got.dtype == np.float32:
                assert np.array_equal(bits(value.ravel()), bits(got.ravel()))
    for output, array in zip(outputs, expected, strict=True):
        if array is not None:
            array[...] = np.nan
        assert np.isnan(output.storage.astype(np.float32)).all()


def shifted(array: Array, elements: int) -> Array:
    """Copy an array to an address some elements after a 64-byte boundary."""
    memory = np.empty(array.nbytes + 128 + array.itemsize * elements, np.uint8)
    start = -memory.ctypes.data % 64 + elements * array.itemsize
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.slow
def test_the_same_bits_from_a_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    cases = 0
    while cases < 1000:
        m, n = int(rng.integers(1, 400)), int(rng.choice([1, 3, 16, 31, 64, 100, 512, 700]))
        dy, x, mean, rstd, weight = inputs = rows(rng, m, n)
        threads.set_threads(1)
        dx, dw, db = gradients(inputs)
        for _ in range(5):
            threads.set_threads(int(rng.integers(1, 5)))
            moved = tuple(shifted(array, int(rng.integers(0, 16))) for array in inputs)
            if rng.random() < 0.3:
                moved = (np.asfortranarray(moved[0]), *moved[1:])
            mask = MASKS[rng.integers(len(MASKS))]
            for got, value in zip(gradients(moved, mask), (dx, dw, db), strict=True):
                assert got is None or np.array_equal(bits(got), bits(value))
                cases += got is not None
            first, last = sorted(int(edge) for edge in rng.integers(0, m + 1, 2))
            if first < last:
                part = gradients((dy[first:last], x[first:last], mean[first:last], rstd[first:last], weight))
                assert np.array_equal(bits(part[0]), bits(dx[first:last]))
                cases += 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 8, 15, 16, 17, 24, 31, 48, 64, 100, 112, 250, 256, 272, 500, 512])
@pytest.mark.parametrize(
    ("dtype", "mask"),
    types_and_masks((True, True, True), (True, False, True), (False, True, True), (False, False, True)),
)
def test_short_rows_in_sets_give_the_bits_of_groups(n: int, dtype: Any, mask: tuple[bool, bool, bool]) -> None:
    """Unevenly spaced rows are processed in groups of four, others in batches unless float32 may not suffice."""
    rng = np.random.default_rng(n)
    dy, x, mean, rstd, weight = rows(rng, 310, n, dtype)
    with np.errstate(over="ignore"):
        dy[rng.integers(0, 310, 3)] *= dtype.type(2.0**120)
        dy[[70, 200]] *= dtype.type(2.0**-100)
        dy[rng.integers(0, 310, 9)] = 0.0
        dy[5, 3], x[150, 1], dy[155, :5] = np.inf, np.nan, 60000.0
    uneven = tuple(np.empty((10, 33, n), dtype)[:, :31] for _ in range(2))
    uneven[0][...], uneven[1][...] = dy.reshape(10, 31, n), x.reshape(10, 31, n)
    whole = gradients((dy, x, mean, rstd, weight), mask)
    uneven_rows = gradients((*uneven, mean.reshape(10, 31), rstd.reshape(10, 31), weight), mask)
    for got, value in zip(whole, uneven_rows, strict=True):
        assert got is None or np.array_equal(bits(got.ravel()), bits(value.ravel()))
    if mask[0]:
        few = gradients((dy[60:260:2], x[60:260:2], mean[60:260:2], rstd[60:260:2], weight), (True, False, False))[0]
        assert np.array_equal(bits(few), bits(whole[0][60:260:2]))


READ_TO_THE_END = """
import numpy as np
from ml_dtypes import bfloat16
from aclnn import kernels
from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Layout
from tests.helpers.pages import before_the_end

def normal(m, n, dtype):
    array = before_the_end(m * n, dtype).reshape(m, n)
    array[...] = np.random.default_rng(n).standard_normal((m, n))
    return array

def layout(array):
    return Layout(D.of_numpy(array.dtype), array.shape, tuple(step // array.itemsize for step in array.strides))

for dtype in map(np.dtype, (np.float32, np.float16, bfloat16)):
    for n in (1, 3, 8, 15, 17, 24, 100, 250):
        dy, x, dx = (normal(320, n, dtype) for _ in range(3))
        w = normal(1, n, np.dtype(np.float32))[0]
        arrays = dy, x, np.zeros(320, np.float32), np.ones(320, np.float32), w
        plan = kernels.layer_norm_backward(tuple(map(layout, arrays)), (layout(dx), None, None), 1)
        room = np.empty(plan.workspace_bytes + 64, np.uint8)
        plan.run([array.ctypes.data for array in arrays], [dx.ctypes.data, 0, 0], room.ctypes.data + 63 & -64)
print("read")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through the C library, as Linux has it")
def test_nothing_behind_the_last_row_is_read() -> None:
    """A row's remainder is read as a whole vector, which must not extend beyond the tensor."""
    assert python("-c", READ_TO_THE_END) == "read\n"


@pytest.mark.parametrize("n", [64, 100, 512, 700])
def test_dw_and_db_hold_what_overflows_where_tiny_weights_hide_it_from_dx(n: int) -> None:
    dy, x, mean, rstd, weight = rows(np.random.default_rng(5), 256, n)
    dy[:4, 3], x[:4, 3], mean[:4], rstd[:4] = (3e38, 3e38, -3e38, -3e38), 2.0, 1.0, 1.0
    dx, dw, db = gradients((dy, x, mean, rstd, weight * np.float32(2.0**-60)))
    exact = dy.astype(np.float64)
    xhat = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    assert np.isfinite(dx).all()
    assert np.allclose(db, exact.sum(0), rtol=1e-5, atol=1e-3)
    assert np.allclose(dw, (exact * xhat).sum(0), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("n", [15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 1023, 1024, 1030, 2080])
@pytest.mark.parametrize(
    ("dtype", "mask"), types_and_masks((False, True, True), (False, True, False), (False, False, True))
)
def test_dw_and_db_alone_have_the_bits_of_groups(n: int, dtype: Any, mask: tuple[bool, bool, bool]) -> None:
    """Sums alone have the same bits for evenly spaced rows and for others, in groups of four."""
    dy, x, mean, rstd, weight = inputs = rows(np.random.default_rng(n), 310, n, dtype)
    gaps, uneven = np.zeros((310, n + 3), dtype)[:, :n], np.empty((10, 33, n), dtype)[:, :31]
    gaps[...], uneven[...] = dy, dy.reshape(10, 31, n)
    statistics = mean.reshape(10, 31), rstd.reshape(10, 31)
    expected = gradients((uneven, x.reshape(10, 31, n), *statistics, weight), mask)
    for count in (1, 2):
        threads.set_threads(count)
        for got in (gradients(inputs, mask), gradients((gaps, *inputs[1:]), mask)):
            for one, other in zip(got, expected, strict=True):
                assert one is None or np.array_equal(bits(one), bits(other.ravel()))


@pytest.mark.parametrize("n", [17, 64, 300, 1100])
def test_four_rows_that_overflow_far_down_a_strip_are_added_one_by_one(n: int) -> None:
    """Overflow of a group's sums, in any layout, also of tiles in float32."""
    dy, x, mean, rstd, weight = rows(np.random.default_rng(7), 400, n)
    dy[390:394, [0, n // 2, n - 1]] = np.array([3e38, 3e38, -3e38, -2.9e38], np.float32)[:, None]
    expected = dy.astype(np.float64).sum(0).astype(np.float32)
    assert np.isfinite(expected).all()
    with np.errstate(over="ignore"):
        assert np.isinf(dy[390] + dy[391]).any()
    for y in (dy, np.asfortranarray(dy)):
        _, dw, db = gradients((y, x, mean, rstd, weight), (False, True, True))
        np.testing.assert_allclose(db, expected, rtol=1e-4, atol=1e-4)
        assert np.array_equal(bits(dw), bits(gradients((dy, x, mean, rstd, weight))[1]))


@pytest.mark.parametrize("top", [np.nan, np.inf, 2.0**60])
def test_weights_beyond_all_bounds_do_not_escape_in_sets_of_zeros(top: float) -> None:
    dy, x, mean, rstd, weight = rows(np.random.default_rng(3), 256, 32)
    dy[...], x[...], mean[...], weight[4] = 0.0, 0.0, 0.0, top
    with np.errstate(invalid="ignore"):
        expected = (dy * weight).sum(1, keepdims=True) * np.ones_like(dy)
    assert np.array_equal(np.isnan(gradients((dy, x, mean, rstd, weight))[0]), np.isnan(expected))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_short_rows_are_streamed_to_the_same_bits(offset: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = rows(np.random.default_rng(4), 300, 64, dtype)
    expected = gradients(inputs)
    monkeypatch.setattr(backward, "STREAM_BYTES", 0)
    dx = shifted(np.full((300, 64), np.nan, np.float32).astype(dtype), offset)
    Plan(inputs, (dx, None, None), 1).run()
    assert np.array_equal(bits(dx), bits(expected[0]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "pitch"), [(40, 40), (72, 72), (200, 200), (520, 520), (5000, 5000), (5003, 5008)])
def test_rows_that_end_within_a_line_are_streamed_to_the_same_bits(
    n: int, pitch: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = rows(np.random.default_rng(4), 300, n, dtype)
    expected = gradients(inputs, (True, False, False))[0]
    monkeypatch.setattr(backward, "STREAM_BYTES", 0)
    storage = np.full((302, pitch), 7, np.float32).astype(dtype)
    dx = storage[1:301, :n]
    plan = Plan(inputs, (dx, None, None), 1)
    plan.run()
    assert plan.plan._streams
    assert np.array_equal(bits(dx), bits(expected))
    storage[1:301, :n] = 7
    assert (storage == 7).all()


def test_short_rows_with_gaps_are_not_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache line that is written partly by non-temporal stores goes to memory in parts, four times as slow."""
    monkeypatch.setattr(backward, "STREAM_BYTES", 0)
    inputs = rows(np.random.default_rng(4), 300, 100)
    for pitch, streamed in ((100, True), (104, False), (112, False), (128, False)):
        plan = Plan(inputs, (np.empty((300, pitch), np.float32)[:, :100], None, None), 1)
        assert plan.plan._streams == streamed
    tiny = rows(np.random.default_rng(4), 600, 8)
    assert not Plan(tiny, (np.empty((600, 8), np.float32), None, None), 1).plan._streams


def digest(masks: Sequence[tuple[bool, ...]], dtypes: Sequence[str]) -> str:
    """Return a digest of up to a thousand results, of ordinary, huge and tiny rows."""
    rng = np.random.default_rng(12)
    found = hashlib.sha256()
    for case in range(340):
        dtype = np.dtype(dtypes[case % len(dtypes)])
        m, n = int(rng.integers(1, 300)), int(rng.choice([1, 3, 16, 31, 64, 100, 256, 512, 700]))
        inputs = rows(rng, m + 256 * (case % 5 == 0), n, dtype)
        if case % 4 == 0:
            with np.errstate(over="ignore"):
                inputs[0][m // 2] *= dtype.type(2.0 ** rng.choice([-100, 14, 120]))
        for result in gradients(inputs, masks[case % len(masks)]):
            if result is not None:
                found.update(bits(result).tobytes())
    return found.hexdigest()


@pytest.mark.slow
@EVERY_OTHER_SET
@pytest.mark.parametrize(
    ("masks", "dtypes"),
    [
        pytest.param(MASKS[:1], ["float32"], id="all three"),
        pytest.param(MASKS[:1], ["float16", "bfloat16"], marks=pytest.mark.long, id="all three of 16 bits"),
        pytest.param(MASKS[1:], ["float32", "float16", "bfloat16"], marks=pytest.mark.long, id="one or two"),
    ],
)
def test_every_instruction_set_gives_the_same_bits(
    masks: list[tuple[bool, ...]], dtypes: list[str], elsewhere: dict[str, str]
) -> None:
    assert digest_elsewhere(__name__, elsewhere, masks, dtypes) == digest(masks, dtypes)


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_large_results_are_streamed_to_the_same_bits(offset: int) -> None:
    rng = np.random.default_rng(4)
    inputs = rows(rng, 1100, 1024)
    dx = shifted(np.full((1100, 1024), np.nan, np.float32), offset)
    Plan(inputs, (dx, None, None), 1).run()
    for first in range(0, 1100, 100):
        part = tuple(array[first : first + 100] for array in inputs[:4])
        assert np.array_equal(dx[first : first + 100], gradients((*part, inputs[4]), (True, False, False))[0])


@pytest.mark.parametrize("shape", [(9, 50), (300, 50), (300, 200), (3, 33000)])
@pytest.mark.parametrize("which", [0, 1])
def test_dx_may_be_an_input(shape: tuple[int, int], which: int) -> None:
    inputs = rows(np.random.default_rng(5), *shape)
    inputs[0][2] *= np.float32(1e35)
    expected = gradients(inputs)
    outputs = inputs[which], np.empty(shape[1], np.float32), np.empty(shape[1], np.float32)
    Plan(inputs, outputs, 1).run()
    for got, value in zip(outputs, expected, strict=True):
        assert np.array_equal(got, value)


@pytest.mark.parametrize("distance", [-3, 1, 60])
@pytest.mark.parametrize("which", range(5))
def test_overlaps_act_as_if_all_were_read_first(which: int, distance: int) -> None:
    m, n = 280, 50
    inputs = list(rows(np.random.default_rng(6), m, n))
    expected = gradients(tuple(inputs))
    memory = np.zeros(2 * m * n + 200, np.float32)
    place = memory[100 : 100 + inputs[which].size].reshape(inputs[which].shape)
    place[...] = inputs[which]
    inputs[which] = place
    dx = memory[100 + distance : 100 + distance + m * n].reshape(m, n)
    outputs = dx, np.empty(n, np.float32), np.empty(n, np.float32)
    Plan(tuple(inputs), outputs, 1).run()
    for got, value in zip(outputs, expected, strict=True):
        assert np.array_equal(got, value)


def test_where_results_coincide_the_last_one_stays() -> None:
    inputs = rows(np.random.default_rng(7), 30, 20)
    dx, dw, _ = gradients(inputs)
    storage = np.zeros(100, np.float32)
    stacked = np.lib.stride_tricks.as_strided(storage, (30, 20), (4, 4))
    single = np.lib.stride_tricks.as_strided(storage[60:], (20,), (0,))
    Plan(inputs, (stacked, single, None), 1).run()
    expected = np.zeros(49, np.float32)
    for row in range(30):
        expected[row : row + 20] = dx[row]
    assert np.array_equal(storage[:49], expected)
    assert storage[60] == dw[-1]


def test_of_dw_and_db_that_overlap_db_stays() -> None:
    """Beyond 16,384 columns, threads share the columns of dw and db."""
    inputs = rows(np.random.default_rng(9), 4, 32768)
    _, _, db = gradients(inputs, (False, True, True))
    both = np.zeros(32768 + 1024, np.float32)
    Plan(inputs, (None, both[:32768], both[1024:]), 1).run()
    assert np.array_equal(both[1024:], db)


@pytest.mark.parametrize("shape", [(300, 20), (30, 20)])
def test_where_dx_and_db_coincide_db_stays(shape: tuple[int, int]) -> None:
    """With few rows, dx is written in batches after the sums."""
    inputs = rows(np.random.default_rng(8), *shape)
    _, _, db = gradients(inputs)
    dx = np.zeros(shape, np.float32)
    Plan(inputs, (dx, None, dx[0]), 1).run()
    assert np.array_equal(dx[0], db)


@pytest.mark.parametrize("mask", MASKS)
def test_no_rows_give_zeros(mask: tuple[bool, bool, bool]) -> None:
    empty, none = np.empty((0, 5), np.float32), np.empty(0, np.float32)
    dx, dw, db = gradients((empty, empty, none, none, np.ones(5, np.float32)), mask)
    assert all(got is None or not got.any() for got in (dw, db))
    assert dx is None or dx.shape == (0, 5)


def test_no_columns_write_nothing() -> None:
    empty, two = np.empty((2, 0), np.float32), np.ones(2, np.float32)
    assert gradients((empty, empty, two, two, np.empty(0, np.float32)))[1].shape == (0,)


def test_a_plan_runs_from_several_threads_at_once() -> None:
    inputs = rows(np.random.default_rng(8), 300, 200)
    expected = gradients(inputs)
    results: list[Any] = []

    def work() -> None:
        for _ in range(5):
            results.append(gradients(inputs))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for got in results:
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("m", "n", "mask", "dtype", "expected"),
    [
        (4096, 4096, (True, True, True), np.float32, 64 * (2 * 8 * 4096 + 2176)),
        (4096, 4096, (True, False, True), np.float16, 64 * 8 * 4096 + 4 * 4096),
        (4096, 4096, (True, False, False), np.float32, 0),
        (4096, 100, (True, False, False), np.float32, 448),
        (128, 1024, (False, True, True), np.float32, 2 * 8 * 1024 + 2176 + 128 * (16 * 2 + 40)),
    ],
)
def test_the_workspace_is_what_the_partial_sums_need(
    m: int, n: int, mask: tuple[bool, ...], dtype: Any, expected: int
) -> None:
    element = D.of_numpy(np.dtype(dtype))
    matrix, statistics, vector = (Layout(element, shape, strides) for shape, strides in (
        ((m, n), (n, 1)), ((m,), (1,)), ((n,), (1,))))  # fmt: skip
    outputs = tuple(x if wanted else None for x, wanted in zip((matrix, vector, vector), mask, strict=True))
    plan = kernels.layer_norm_backward((matrix, matrix, statistics, statistics, vector), outputs, 1)
    assert plan.workspace_bytes == expected


_PHASES = """
import sys
import ml_dtypes, numpy as np
from aclnn import kernels
from aclnn.kernels.cpu import jit, target, threads
from aclnn.core.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.core.tensor import Layout
from aclnn.operators.normalization import centred_norm

threads.set_threads(2)
dtype = DataType.of_numpy(np.dtype(getattr(np, sys.argv[1], None) or ml_dtypes.bfloat16))

def tensor(*shape, shift=0, dtype=dtype):
    memory = np.zeros(int(np.prod(shape)) * dtype.itemsize + 128, np.uint8)
    kept.append(memory)
    strides = tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape)))
    return Layout(dtype, shape, strides), memory.ctypes.data + -memory.ctypes.data % 64 + shift

def run(make, inputs, outputs):
    addresses = [[address for _, address in tensors] for tensors in (inputs, outputs)]
    plan = make(*(tuple(layout for layout, _ in tensors) for tensors in (inputs, outputs)))
    workspace = np.zeros(plan.workspace_bytes + 64, np.uint8)
    before = set(jit._compiled)
    plan.run(*addresses, workspace.ctypes.data + -workspace.ctypes.data % 64)
    return {name for name, _ in set(jit._compiled) - before}

def forward(inputs, outputs):
    operands = [[kernels.Operand(one, one.shape) for one in layouts] for layouts in (inputs, outputs)]
    operands[1][1:] = [one._replace(shape=(*one.shape, 1)) for one in operands[1][1:]]
    return kernels.reduction(centred_norm, *operands, (1,), (1e-5,))

kept, made = [], set()
for rows in (64, target.STREAM_BYTES // 256 // dtype.itemsize + 1):
    for shift in (0, 16):
        x, out, row = tensor(rows, 256), tensor(rows, 256, shift=shift), tensor(256)
        statistics = [tensor(rows, dtype=DataType.FLOAT) for _ in range(2)]
        made |= run(
            lambda i, o: kernels.layer_norm_backward(i, o, 1), [x, x, *statistics, row], [out, tensor(256), tensor(256)]
        )
        made |= run(forward, [x, row, row], [out, *statistics])
        formula = Gradient(lambda x: x)
        made |= run(lambda i, o: kernels.elementwise(formula, tuple(i), tuple(o)), [x, x], [out])
        turned = Layout(dtype, (256, rows), (1, 256)), x[1]
        statistics = [tensor(256, dtype=DataType.FLOAT) for _ in range(2)]
        made |= run(
            lambda i, o: kernels.layer_norm_backward(i, o, 1),
            [turned, turned, *statistics, tensor(rows)],
            [tensor(256, rows, shift=shift), tensor(rows), tensor(rows)],
        )
print(*sorted(made))
"""


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_phase_two_compiles_nothing(dtype: str) -> None:
    """Kernels with non-temporal stores for large results are compiled in phase one, too."""
    assert python("-c", _PHASES, dtype).split() == []
