"""Softmax, its logarithm and their gradients on nasty numbers, against rational arithmetic and mpmath."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import ml_dtypes
import mpmath
import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Operator
from aclnn.core.products import Product, set_soc_name
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.formula import row_sum
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.reductions.words import float32_steps
from aclnn.kernels.trace import trace
from aclnn.operators import softmax as declared
from tests.helpers.exact import NUMPY, ulp_of
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere
from tests.helpers.subnormals import met

Array = np.ndarray[Any, Any]

LARGEST = float(np.finfo(np.float32).max)
FORWARD = [aclnn.softmax, aclnn.log_softmax]
EVERY = [*FORWARD, aclnn.softmax_backward, aclnn.log_softmax_backward]


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ROWS: dict[str, list[float]] = {
    "largest and smallest": [LARGEST, -LARGEST, 0.0, 1.0],
    "largest alone": [LARGEST] * 4,
    "smallest alone": [-LARGEST] * 4,
    "far from 0": [1e30, 1e30, 0.99999e30, -1e30],
    "subnormal": [1e-45, -1e-45, 1e-40, 0.0],
    "equal": [0.3] * 4,
    "one far above": [0.0, -40.0, -50.0, -90.0],
    "the rest far below": [0.0, *[-1e9] * 40],
    "the sum of the others in one lane": [0.0, *([-19.431133270263672] + [-80.0] * 15) * 16],
    "two far above": [7.0, 7.0, -30.0, -200.0],
    "at the end of float32": [0.0, -87.5, -103.0, -104.5],
    "minus infinity": [1.0, -math.inf, 2.0, -math.inf],
    "minus infinity and one": [-math.inf, -math.inf, -3.0, -math.inf],
}


@pytest.mark.parametrize("name", ROWS)
def test_difficult_rows_are_within_their_bound(name: str) -> None:
    """Without overflow and cancellation, errors are within 2 ULP, and 1.75 for the logarithm."""
    x = np.array([ROWS[name]], np.float32)
    with mpmath.workdps(400):
        top = mpmath.mpf(float(x.max()))
        powers = [mpmath.exp(mpmath.mpf(float(value)) - top) for value in x[0]]
        total = mpmath.fsum(powers)
        exact = [[power / total for power in powers]]
        exact += [[mpmath.mpf(float(value)) - top - mpmath.log(total) for value in x[0]]]
        for function, values, units in zip(FORWARD, exact, (2.0, 1.75), strict=True):
            expected = np.array([float(value) for value in values])
            got = function(x)[0].astype(np.float64)
            finite = np.abs(expected) <= LARGEST
            assert np.all(np.abs(got[finite] - expected[finite]) <= units * ulp_of(expected[finite], D.FLOAT))
            assert np.all(got[~finite] == -math.inf)


@pytest.mark.parametrize("dtype", [D.FLOAT, D.FLOAT16, D.BF16])
@pytest.mark.parametrize("top", [0.3, -80.0, 255.9, -257.0, 4e3, -3e4])
def test_results_are_within_their_bounds_of_balls(top: float, dtype: D) -> None:
    """Elements near the maximum, and down to where softmax is 0, in more than one block of a sum."""
    below = np.random.default_rng(7).exponential(size=(4, 1100)) * np.array([[0.01], [1.0], [10.0], [40.0]])
    x = (top - below).astype(NUMPY[dtype])
    units = [0.51, 0.51] if dtype != D.FLOAT else [2.0, 1.75]
    softmax, logarithm = (function(x).astype(np.float64) for function in FORWARD)
    with flint.ctx.workprec(200):
        for row, x_row in enumerate(x.astype(np.float64).tolist()):
            powers = [(flint.arb(value) - max(x_row)).exp() for value in x_row]
            total = sum(powers, flint.arb(0))
            for at in range(0, len(x_row), 10):
                exact = powers[at] / total, flint.arb(x_row[at]) - max(x_row) - total.log()
                for got, ball, allowed in zip((softmax, logarithm), exact, units, strict=True):
                    error = abs(float(ball - flint.arb(float(got[row, at]))))
                    assert error <= allowed * float(ulp_of(np.float64(float(ball)), dtype)), (got[row, at], ball)


@pytest.mark.parametrize("columns", [1, 2, 1000, 65_536])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, LARGEST / 8])
def test_rows_add_up_to_one(columns: int, scale: float) -> None:
    y = aclnn.softmax(normal(3, columns) * np.float32(scale))
    assert np.all(np.abs(y.sum(1, dtype=np.float64) - 1.0) <= columns * 2.0**-24)


KINDS = ["softmax", "constant dy", "any y", "cancelling"]


@pytest.mark.parametrize(("kind", "columns"), [*itertools.product(KINDS, (1, 2, 700)), ("cancelling", 65_536)])
def test_gradients_are_within_their_bound(kind: str, columns: int) -> None:
    """2^-46 + (N/16 + 8)·2^-53 of the terms, of e^y·Σ dy 2^-26, which show where they cancel, and 1.5 units."""
    dy, y = normal(columns), aclnn.softmax(3 * normal(columns, seed=2))
    if kind == "constant dy":
        dy[:] = np.float32(0.7)
    elif kind == "any y":
        y = np.exp2(np.random.default_rng(3).uniform(-60, 30, columns)).astype(np.float32)
    elif kind == "cancelling":
        dy *= np.where(np.arange(columns) % 2, 1, -1) * np.float32(1e30)
    left, right = ([Fraction(value) for value in array.tolist()] for array in (dy, y))
    products = [a * b for a, b in zip(left, right, strict=True)]
    total, size = sum(products), sum(map(abs, products))
    some = range(0, columns, max(1, columns // 50))
    lost = 2.0**-46 + (columns / 16 + 8) * 2.0**-53
    got = aclnn.softmax_backward(dy, y)
    for at in some:
        exact = products[at] - right[at] * total
        allowed = lost * float(abs(products[at]) + right[at] * size) + 1.5 * ulp_of(np.float64(exact), D.FLOAT)
        assert abs(float(exact - Fraction(float(got[at])))) <= allowed
    y = np.log(y) if kind != "any y" else -np.abs(normal(columns, seed=4)) * 30
    got, sum_, size = aclnn.log_softmax_backward(dy, y), sum(left), sum(map(abs, left))
    with mpmath.workdps(60):
        sums = [mpmath.mpf(value.numerator) / value.denominator for value in (sum_, size)]
        for at in some:
            power = mpmath.exp(mpmath.mpf(float(y[at])))
            exact = mpmath.mpf(float(dy[at])) - power * sums[0]
            allowed = lost * (abs(float(dy[at])) + float(power * sums[1])) + 2.0**-26 * float(power * abs(sums[0]))
            assert abs(exact - float(got[at])) <= allowed + 1.5 * ulp_of(np.float64(float(exact)), D.FLOAT)


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=lambda dtype: dtype.name)
def test_log_softmaxs_gradients_in_16_bits_are_within_their_bound(dtype: D) -> None:
    """Also rows whose dy cancel, and y down to where e^y underflows in the data type."""
    rng, columns = np.random.default_rng(11), 700
    dy = rng.normal(size=(40, columns)) + np.linspace(0.0, 3.0, 40)[:, np.newaxis]
    below = rng.exponential(size=(40, columns)) * np.tile([[0.001], [0.1], [3.0], [40.0]], (10, 1))
    dy, y = (array.astype(NUMPY[dtype]) for array in (dy, -below))
    got = aclnn.log_softmax_backward(dy, y).astype(np.float64)
    dy, y = dy.astype(np.float64), y.astype(np.float64)
    total, size = dy.sum(1, keepdims=True), np.abs(dy).sum(1, keepdims=True)
    exact = dy - np.exp(y) * total
    lost = np.exp(y) * (2.0**-20 * np.abs(total) + 2.0**-21 * size)
    assert np.all(np.abs(got - exact) <= 0.51 * ulp_of(exact, dtype) + lost)


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmaxs_gradients_in_16_bits_are_within_their_bound(dtype: D, axis: int) -> None:
    """Also rows that cancel, and a y that is no softmax, in more than one block of a sum."""
    rng, columns = np.random.default_rng(12), 700
    dy = rng.normal(size=(40, columns)) + np.linspace(0.0, 30.0, 40)[:, np.newaxis]
    y = rng.dirichlet(np.full(columns, 0.3), size=40)
    y[::4] = rng.uniform(-9.0, 9.0, size=(10, columns))
    dy, y = (array.astype(NUMPY[dtype]) for array in (dy, y))
    turned = [np.ascontiguousarray(array.T if axis == 0 else array) for array in (dy, y)]
    got = aclnn.softmax_backward(*turned, dim=axis).astype(np.float64)
    dy, y = dy.astype(np.float64), y.astype(np.float64)
    exact = dy * y - y * (dy * y).sum(1, keepdims=True)
    lost = 2.0**-20 * np.abs(y) * np.abs(dy * y).sum(1, keepdims=True)
    assert np.all(np.abs((got.T if axis == 0 else got) - exact) <= 0.51 * ulp_of(exact, dtype) + lost)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_that_float32_does_not_hold_are_float64(axis: int) -> None:
    """In bfloat16 products reach 10^76, and a sum of 700 of the largest numbers overflows float32."""
    rng = np.random.default_rng(13)
    dy, y = (rng.normal(size=(40, 700)).astype(ml_dtypes.bfloat16) for _ in range(2))
    dy[1::2] *= ml_dtypes.bfloat16(3e37)
    y[1::2, 5:9] *= ml_dtypes.bfloat16(1e20)
    y[1::2, 9:] *= ml_dtypes.bfloat16(1e-25)
    turned = [np.ascontiguousarray(array.T if axis == 0 else array) for array in (dy, y)]
    got = aclnn.softmax_backward(*turned, dim=axis).astype(np.float64)
    wide, of_y = dy.astype(np.float64), y.astype(np.float64)
    exact = wide * of_y - of_y * (wide * of_y).sum(1, keepdims=True)
    got = got.T if axis == 0 else got
    inside = np.abs(exact) < 3e38
    assert inside[1::2, 9:].all()
    lost = 2.0**-20 * np.abs(of_y) * np.abs(wide * of_y).sum(1, keepdims=True)
    assert np.all(np.abs(got - exact)[inside] <= (0.51 * ulp_of(exact, D.BF16) + lost)[inside])
    assert np.isinf(got[~inside]).all()
    y = -np.abs(y)
    y[1::2, 5:9] = 0.0
    turned[1] = np.ascontiguousarray(y.T if axis == 0 else y)
    got = aclnn.log_softmax_backward(*turned, dim=axis).astype(np.float64)
    exact = wide - np.exp(y.astype(np.float64)) * wide.sum(1, keepdims=True)
    got = got.T if axis == 0 else got
    inside = np.abs(exact) < 3e38
    np.testing.assert_allclose(got[inside], exact[inside], rtol=2.0**-7, atol=1e-3)


@pytest.mark.parametrize("function", FORWARD)
@pytest.mark.parametrize("spoilt", [[math.nan], [math.inf], [-math.inf] * 50], ids=["nan", "inf", "all -inf"])
def test_elements_that_are_not_finite_stay_in_their_row(function: Callable[..., Array], spoilt: list[float]) -> None:
    x = normal(4, 50)
    clean = function(x)
    x[2, : len(spoilt)] = spoilt
    got = function(x)
    assert np.isnan(got[2]).all()
    assert got[[0, 1, 3]].tobytes() == clean[[0, 1, 3]].tobytes()


INF, NAN, LEAST = math.inf, math.nan, 2.0**-149
GRADIENTS: list[tuple[Any, list[float], list[float], list[float]]] = [
    (aclnn.softmax_backward, [1, NAN, 2], [0.5, 0.25, 0.25], [NAN, NAN, NAN]),
    (aclnn.softmax_backward, [1, 3, 2], [0.5, NAN, 0.25], [NAN, NAN, NAN]),
    (aclnn.softmax_backward, [1, INF, 2], [0.5, 0.25, 0.0], [-INF, NAN, NAN]),
    (aclnn.softmax_backward, [1, -INF, 2], [0.5, 0.0, 0.5], [NAN, NAN, NAN]),
    (aclnn.softmax_backward, [LARGEST, -LARGEST], [0.75, 0.25], [0.375 * LARGEST, -0.375 * LARGEST]),
    (aclnn.log_softmax_backward, [1, NAN, 2], [-1, -1, -INF], [NAN, NAN, NAN]),
    (aclnn.log_softmax_backward, [1, 2, -3], [-1, NAN, -INF], [1, NAN, -3]),
    (aclnn.log_softmax_backward, [1, 2, 3], [INF, -INF, 88.9], [-INF, 2, -INF]),
    (aclnn.log_softmax_backward, [1, 2, -3], [INF, -INF, 0], [NAN, 2, -3]),
    (aclnn.log_softmax_backward, [1, INF, 3], [-1, 0, -INF], [-INF, NAN, NAN]),
    (aclnn.log_softmax_backward, [1, INF, -INF], [-1, 0, -2], [NAN, NAN, NAN]),
    (aclnn.log_softmax_backward, [1, 2, -3], [800, 90, 0], [1, 2, -3]),
    (aclnn.log_softmax_backward, [LEAST, 0, 0], [100, 0, -INF], [-math.exp(100) * LEAST, -LEAST, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "dy", "y", "expected"), GRADIENTS)
def test_gradients_at_values_that_are_not_finite(
    function: Callable[..., Array], dy: list[float], y: list[float], expected: list[float]
) -> None:
    """Gradients follow IEEE arithmetic, but a sum of 0 contributes nothing for any finite y."""
    got = function(np.array([dy], np.float32), np.array([y], np.float32))
    np.testing.assert_allclose(got[0], np.array(expected, np.float32), rtol=2.0**-22)


@pytest.mark.parametrize("function", EVERY)
def test_any_dimension_is_as_the_last_one(function: Callable[..., Array]) -> None:
    given = [normal(5, 40, 3, seed=seed) for seed in range(1 + ("backward" in function.__name__))]
    whole = function(*given, 1)
    moved = function(*(np.moveaxis(array, 1, 2) for array in given), -1)
    np.testing.assert_array_equal(np.moveaxis(moved, 2, 1), whole)


@pytest.mark.parametrize("columns", [3, 16, 17, 41, 56])
@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "BF16"])
@pytest.mark.parametrize("step", [1, 2])
def test_short_rows_have_the_bits_of_rows_alone(columns: int, dtype: str, step: int) -> None:
    """Short rows are computed one per lane, from tiles that are gathered and scattered."""
    x, dy = (normal(150, step * columns, seed=seed).astype(NUMPY[D[dtype]])[:, ::step] for seed in (1, 2))
    for function, inputs in (
        (aclnn.softmax, (x,)),
        (aclnn.log_softmax, (x,)),
        (aclnn.softmax_backward, (dy, aclnn.softmax(x))),
    ):
        together = function(*inputs)
        alone = [function(*(one[row : row + 1] for one in inputs)) for row in range(150)]
        np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("masked", [None, -math.inf, -1e9, -1e4])
def test_usual_rows_need_no_subnormal_numbers(masked: float | None, dim: int) -> None:
    """Subnormal numbers made softmax take five times as long as its logarithm on an Intel processor."""
    x, dy = normal(64, 80), normal(64, 80, seed=2)
    if masked is not None:
        x[normal(64, 80, seed=3) > 0.0] = masked
    y, logarithm, out = aclnn.softmax(x, dim), aclnn.log_softmax(x, dim), np.empty_like(x)
    for function, inputs in zip(EVERY, ((x,), (x,), (dy, y), (dy, logarithm)), strict=True):
        assert not met(lambda function=function, inputs=inputs: function(*inputs, dim, out)), function.__name__


def test_subnormal_numbers_set_a_flag() -> None:
    x, out = np.float32([-90.0, 0.0]), np.empty(2, np.float32)
    assert met(lambda: aclnn.softmax(x, 0, out))  # e^-90 is one


EVERYWHERE = "99499926fec0a6162cc5980b5257f96e7b9503736c4bd0387ba52bfd2c2243a4"


def digest(*dtypes: str) -> str:
    """Return a digest of results with lanes along and across rows, of short rows and several blocks of a sum."""
    found, rng = hashlib.sha256(), np.random.default_rng(8)
    for shape, dim in (((5, 300), 1), ((70, 90), 0), ((150, 7), 1), ((2, 2500), 1), ((2500, 20), 0)):
        numbers = 6 * rng.normal(size=(2, *shape)) + [[[40.0]], [[0.0]]]
        for dtype in dtypes or ("FLOAT", "FLOAT16", "BF16"):
            x, dy = numbers.astype(NUMPY[D[dtype]])
            y, logarithm = aclnn.softmax(x, dim), aclnn.log_softmax(x, dim)
            unusual = np.where(np.arange(shape[-1]) % 97 == 5, 30, logarithm).astype(x.dtype)
            results = [y, logarithm, aclnn.softmax_backward(dy, y, dim)]
            results += [aclnn.log_softmax_backward(dy, values, dim) for values in (logarithm, unusual)]
            found.update(b"".join(result.tobytes() for result in results))
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.usefixtures("usual_threads")
def test_bits_match_every_processor(count: int) -> None:
    threads.set_threads(count)
    assert digest() == EVERYWHERE


@pytest.mark.long
@EVERY_OTHER_SET
def test_bits_match_other_instructions(elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere(__name__, elsewhere, "FLOAT") == digest("FLOAT")


def test_neighbours_of_unusual_elements_keep_their_bits() -> None:
    """If one lane of a vector is recomputed in float64, the others keep their bits."""
    dy, y = normal(2, 3000), aclnn.log_softmax(normal(2, 3000, seed=2))
    dy[:, 0] -= dy.sum(1) - 1.0
    clean = aclnn.log_softmax_backward(dy, y)
    y[:, ::97] = 26.0
    got = aclnn.log_softmax_backward(dy, y)
    usual = np.arange(3000) % 97 != 0
    np.testing.assert_array_equal(got[:, usual], clean[:, usual])


def test_elements_are_float32_lanes_where_functions_are_known() -> None:
    for name, arity in (("softmax_forward", 1), ("log_softmax_forward", 1), ("softmax_gradient", 2)):
        program = trace(getattr(declared, name), arity, calls=True)
        assert float32_steps(program, ["x0", "x1"], short=False) is not None
    assert float32_steps(trace(lambda x: row_sum(x) - x, 1), ["x0"], short=False) is None


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "complex64"])
def test_a_gradient_is_converted_to_any_numbers(dtype: str) -> None:
    dy, y = np.array([[0.0, 1.0, 2.0, -3.9]], np.float32), np.zeros((1, 4), np.float32)
    got = aclnn.log_softmax_backward(dy + 100, np.full_like(y, -math.inf), out=np.empty((1, 4), dtype))
    np.testing.assert_array_equal(got, np.array([[100, 101, 102, 96.1]], np.float32).astype(dtype))
    assert not aclnn.softmax_backward(dy, y, out=np.empty((1, 4), dtype)).any()


@pytest.mark.parametrize("operator", [declared.SOFTMAX, declared.SOFTMAX_BACKWARD, declared.LOG_SOFTMAX_BACKWARD])
def test_empty_inputs_skip_all_checks(operator: Operator) -> None:
    """Empty inputs end all checks; those of the gradients do not on Ascend 950."""
    empty, out = Tensor(D.COMPLEX64, (2, 0)), Tensor(D.STRING, (1,) * 9)
    arguments = {**{p.name: empty for p in operator.inputs}, "dim": 77, "out": out}
    assert prepare(operator, arguments, Product.ATLAS_A2).prepared.plan is None


def test_products_without_bfloat16_reject_it() -> None:
    set_soc_name("Ascend310P3")
    with pytest.raises(aclnn.AclnnError, match="self: expected data type ACL_FLOAT, ACL_FLOAT16 or ACL_DOUBLE on"):
        aclnn.softmax(normal(2, 3).astype(D.BF16.numpy))
