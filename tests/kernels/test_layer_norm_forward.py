"""LayerNorm's forward on the CPU: within its bounds, in place, and the same bits from every instruction set."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType
from tests.helpers.exact import ulp_of
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere

Array = np.ndarray[Any, Any]

DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def call(dtype: np.dtype[Any], rows: int, columns: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(rows, columns)) * 3 + 1).astype(dtype)
    return x, rng.normal(size=columns).astype(dtype), rng.normal(size=columns).astype(dtype)


@EVERY_DTYPE
def test_statistics_are_float64_sums_rounded_once(dtype: np.dtype[Any]) -> None:
    x, weight, bias = call(dtype, 300, 1000)
    x += np.asarray(50, dtype)  # a mean far from zero: nothing of the spread may be lost
    out, mean, rstd = aclnn.layer_norm(x, (1000,), weight, bias)
    wide, w, b = (array.astype(np.float64) for array in (x, weight, bias))
    exact_mean = wide.mean(1, keepdims=True)
    exact_rstd = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_array_max_ulp(mean, exact_mean.astype(np.float32), 1)
    np.testing.assert_array_max_ulp(rstd, exact_rstd.astype(np.float32), 1)
    scaled = (wide - exact_mean) * exact_rstd * w
    one = ulp_of(scaled + b, DataType.of_numpy(dtype))
    allowed = 0.501 * one + (0.0 if dtype == np.float32 else 5 * 2.0**-24 * np.abs(scaled))
    assert (np.abs(out.astype(np.float64) - (scaled + b)) <= allowed).all()


@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_without_spread_divide_by_zero(rows: int) -> None:
    out, _, rstd = aclnn.layer_norm(np.full((rows, 64), 2.5, np.float32), (64,), eps=0.0)
    assert np.isnan(out).all()
    assert np.isposinf(rstd).all()


@EVERY_DTYPE
def test_a_large_result_is_the_same_at_any_address(dtype: np.dtype[Any]) -> None:
    """Depending on the address, stores are non-temporal with whole vectors or 16 bytes, or ordinary."""
    x, weight, bias = call(dtype, 2304, 1024)
    small = np.concatenate([aclnn.layer_norm(part, (1024,), weight, bias)[0] for part in np.split(x, 9)])
    room = np.empty(x.size + 128, dtype)
    first = -room.ctypes.data % 64 // dtype.itemsize
    for shift in (0, 1, 16 // dtype.itemsize, 32 // dtype.itemsize):
        out = room[first + shift : first + shift + x.size].reshape(x.shape)
        aclnn.layer_norm(x, (1024,), weight, bias, out=(out, None, None))
        assert out.tobytes() == small.tobytes()


@pytest.mark.parametrize("columns", [256, 1000, 4096])
def test_large_results_in_place(columns: int) -> None:
    x, weight, bias = call(np.dtype(np.float32), (5 << 20) // 4 // columns, columns)
    expected, _, _ = aclnn.layer_norm(x, (columns,), weight, bias)
    aclnn.layer_norm(x, (columns,), weight, bias, out=(x, None, None))
    assert x.tobytes() == expected.tobytes()


def digest(dtypes: Sequence[str]) -> str:
    found = hashlib.sha256()
    for dtype in map(np.dtype, dtypes):
        for columns in (1, 15, 16, 50, 512):
            x, weight, bias = call(dtype, 20, columns)
            for result in (*aclnn.layer_norm(x, (columns,)), *aclnn.layer_norm(x, (columns,), weight, bias)):
                found.update(result.tobytes())
    return found.hexdigest()


@pytest.mark.long
@EVERY_OTHER_SET
@pytest.mark.parametrize("dtypes", [["float32"], ["float16", "bfloat16"]])
def test_every_instruction_set_gives_the_same_bits(dtypes: list[str], elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere(__name__, elsewhere, dtypes) == digest(dtypes)


@pytest.mark.parametrize("rows", [30, 4000])
def test_where_results_coincide_the_last_one_stays(rows: int) -> None:
    x, weight, bias = call(np.dtype(np.float32), rows, 200)
    expected = aclnn.layer_norm(x, (200,), weight, bias)
    storage = np.zeros(202, np.float32)
    whole = np.lib.stride_tricks.as_strided(storage, (rows, 200), (0, 4))
    single = [np.lib.stride_tricks.as_strided(storage[i:], (rows, 1), (0, 4)) for i in (200, 201)]
    for _ in range(20):
        storage[:] = 0
        aclnn.layer_norm(x, (200,), weight, bias, out=(whole, *single))
        assert storage.tobytes() == b"".join(result[-1].tobytes() for result in expected)


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (30, 20), (1000, 64), (3, 33000)])
def test_where_results_share_memory_the_last_one_stays(rows: int, columns: int) -> None:
    """The last output stays, not the last row."""
    x, weight, bias = call(np.dtype(np.float32), rows, columns)
    results = aclnn.layer_norm(x, (columns,), weight, bias)
    for places in ((0, 3, 5), (5, 0, 5), (1, 1, 1)):
        storage, expected = np.zeros((2, rows * (columns + 2) + 5), np.float32)
        for at, result in zip(places, results, strict=True):
            expected[at : at + result.size] = result.ravel()
        out = [storage[at : at + r.size].reshape(r.shape) for at, r in zip(places, results, strict=True)]
        aclnn.layer_norm(x, (columns,), weight, bias, out=tuple(out))
        assert storage.tobytes() == expected.tobytes()


def test_a_result_in_place_of_rows_that_overlap_is_that_of_the_rows_before() -> None:
    _, weight, bias = call(np.dtype(np.float32), 1, 64)
    storage = np.random.default_rng(4).normal(size=67).astype(np.float32)
    x = np.lib.stride_tricks.as_strided(storage, (4, 64), (4, 4))
    out = aclnn.layer_norm(x.copy(), (64,), weight, bias)[0]
    aclnn.layer_norm(x, (64,), weight, bias, out=(x, None, None))
    assert storage.tobytes() == out[:, 0][:3].tobytes() + out[3].tobytes()


def within_bounds(x: Array, eps: float) -> None:
    """Compare the results for one row with exact arithmetic and the bounds of docs/numerics-layer-norm.md."""
    n, rng, unit = x.size, np.random.default_rng(8), Fraction(1, 1 << 53)
    weight, bias = (rng.normal(size=n).astype(np.float32) for _ in range(2))
    out, mean, rstd = aclnn.layer_norm(x[None], (n,), weight, bias, eps)
    numbers = [Fraction(value) for value in x.tolist()]
    middle = sum(numbers) / n
    variance = sum((value - middle) ** 2 for value in numbers) / n
    added = variance + Fraction(eps)
    exact_rstd = Fraction(math.isqrt((added.denominator << 1200) // added.numerator), 1 << 600)
    spread = Fraction(math.isqrt((variance.numerator << 1200) // variance.denominator), 1 << 600)
    sums = unit * (n // 16 + 6) * (4 * math.isqrt(n) + 5)

    def error(got: Any, exact: Fraction) -> Fraction:
        """Return the error beyond half a unit in the last place."""
        half = Fraction(float(ulp_of(np.float64(exact), DataType.FLOAT))) / 2
        return abs(Fraction(float(got)) - exact) - half

    assert error(mean[0, 0], middle) <= sums * spread + unit * abs(middle)
    assert error(rstd[0, 0], exact_rstd) <= unit * (n // 32 + 8) * exact_rstd
    for got, value, w, b in zip(out[0], numbers, weight.tolist(), bias.tolist(), strict=True):
        scaled = (value - middle) * exact_rstd * Fraction(w)
        allowed = unit * (n // 32 + 12) * abs(scaled) + sums * abs(Fraction(w)) * spread * exact_rstd
        assert error(got, scaled + Fraction(b)) <= allowed + unit * abs(Fraction(b))


def awkward(n: int) -> dict[str, Array]:
    """Make rows of n float32 with an unusual mean, spread or range."""
    rng = np.random.default_rng(n)
    normal = rng.normal(size=n)
    single = np.full(n, 1e8)
    single[0] += 8
    huge = normal.copy()
    huge[n // 2] = 1e30
    rows = {
        "normal": normal,
        "a mean of 1e8": 1e8 + 8 * rng.integers(-2, 3, n),
        "a mean of 1e8 and one other": single,
        "a mean of 1e30": 1e30 * (1 + 1e-6 * normal),
        "at the limit of being moved": normal + 4 * np.sqrt(n),
        "one of 1e30": huge,
        "equal": np.full(n, 0.1),
        "subnormal": 1e-41 * normal,
        "subnormal, far from zero": 1e-39 + 1e-43 * normal,
        "the largest": np.finfo(np.float32).max * rng.choice([-1, 1, 1], n),
    }
    return {name: row.astype(np.float32) for name, row in rows.items()}


@pytest.mark.parametrize("eps", [1e-5, 1e-45])
@pytest.mark.parametrize("n", [1, 2, 50, 1000])
@pytest.mark.parametrize("name", awkward(2))
def test_results_with_a_large_mean_and_others_are_within_their_bounds(name: str, n: int, eps: float) -> None:
    """The mean's rounding error in float64 counts with 1e8: without it results are off by up to 28 ULP."""
    within_bounds(awkward(n)[name], eps)


@pytest.mark.parametrize("n", [3, 50, 1000])
@pytest.mark.parametrize("lanes", ["along", "across"])
def test_rows_far_from_zero_leave_those_beside_them_alone(n: int, lanes: str) -> None:
    """A row recomputed relative to its mean shares lanes with others, whose results do not change."""
    rows = np.stack([*awkward(n).values()] * 7)
    expected = [aclnn.layer_norm(row[None], (n,)) for row in rows]
    x = rows if lanes == "along" else np.asfortranarray(rows)
    out = np.empty_like(x)
    results = aclnn.layer_norm(x, (n,), out=(out, None, None))
    for got, wanted in zip(results, zip(*expected, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.concatenate(wanted))


@EVERY_DTYPE
@pytest.mark.parametrize("n", [pytest.param(40, marks=pytest.mark.long), 200, 1030])
def test_rows_of_a_task_share_weights_and_nothing_else(dtype: np.dtype[Any], n: int) -> None:
    """Weights are widened once for all rows, and rows whose results overflow are recomputed in float64."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(130, n)).astype(dtype)
    x[5, 1], x[7, 2], x[11] = np.nan, np.inf, x[11, 0]
    weight, bias, scale, shift = (rng.normal(size=n).astype(dtype) for _ in range(4))
    weight[n // 2], weight[3] = ml_dtypes.finfo(dtype).max, 0
    for norm, given in (
        (partial(aclnn.layer_norm, normalized_shape=(n,)), {"weight": weight, "bias": bias}),
        (aclnn.rms_norm, {"weight": weight}),
        (aclnn.ada_layer_norm, {"scale": scale[None], "shift": shift[None], "weight": weight, "bias": bias}),
    ):
        together, row_by_row = norm(x, **given), [norm(row, **given) for row in x[:, None]]
        if isinstance(together, np.ndarray):
            together, row_by_row = (together,), [(out,) for out in row_by_row]
        for got, expected in zip(together, zip(*row_by_row, strict=True), strict=True):
            np.testing.assert_array_equal(got.astype(np.float32), np.concatenate(expected).astype(np.float32))


@pytest.mark.parametrize("columns", [1, 16, 37])
def test_an_absent_weight_is_ones_and_an_absent_bias_zeros(columns: int) -> None:
    x = np.random.default_rng(5).normal(size=(3, columns)).astype(np.float32)
    ones, zeros = np.ones(columns, np.float32), np.zeros(columns, np.float32)
    expected, *_ = aclnn.layer_norm(x, (columns,), ones, zeros)
    for weight, bias in ((None, None), (ones, None), (None, zeros)):
        got, *_ = aclnn.layer_norm(x, (columns,), weight, bias)
        np.testing.assert_array_equal(got, expected)
