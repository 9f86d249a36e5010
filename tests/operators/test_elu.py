"""Elu and its gradient with any numbers: values, what the numbers may be, what is kept of a call with others."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.attributes import attribute
from aclnn.execution.executor import prepare
from aclnn.kernels.cpu import jit
from aclnn.operators import BY_NAME
from aclnn.operators.elu import ELU, ELU_BACKWARD
from tests.cases.elu import elu
from tests.cases.table import FLOATS, scalar
from tests.helpers.exact import BFLOAT16, NUMPY, derivatives, ulps, values

Array = np.ndarray[Any, Any]
F32 = np.float32

ORDINARY = st.floats(-5, 5, width=32) | st.integers(-5, 5).map(float)
NUMBERS = st.tuples(ORDINARY, ORDINARY, ORDINARY)
DTYPES = st.sampled_from(FLOATS)


def sample(dtype: D, seed: int, *near: float) -> Array:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=20), rng.uniform(-40, 10, 20), near, [0.0, -0.0, -200.0, 1e-20, -1e-20]])
    return np.asarray(x.astype(NUMPY[dtype]))


@given(NUMBERS, DTYPES, st.integers(0, 99))
def test_elu_is_rounded_once(numbers: tuple[float, ...], dtype: D, seed: int) -> None:
    x = sample(dtype, seed)
    exact = values(elu(*numbers), x.astype(np.float64))
    error = ulps(aclnn.elu(x, *numbers), exact, dtype)
    assert error.max() <= 0.51, (x[error.argmax()], error.max())


@given(NUMBERS, st.integers(0, 99))
def test_elu_in_float64_is_within_its_bound(numbers: tuple[float, ...], seed: int) -> None:
    """An exponent z is rounded twice, as a product and when ln 2 is taken out, and multiplies both errors."""
    x = sample(D.DOUBLE, seed)
    exact = values(elu(*numbers), x)
    error = ulps(aclnn.elu(x, *numbers), exact, D.DOUBLE)
    assert (error <= 8 + 2 * np.abs(numbers[2] * x)).all(), (x, error)


@given(NUMBERS, DTYPES, st.integers(0, 99))
def test_the_derivative_by_the_input_is_rounded_once(numbers: tuple[float, ...], dtype: D, seed: int) -> None:
    x = sample(dtype, seed)
    slope = aclnn.elu_backward(np.ones_like(x), *numbers, False, x)
    error = ulps(slope, derivatives(elu(*numbers), x.astype(np.float64)), dtype)
    assert error.max() <= 0.51, (x[error.argmax()], error.max())


@given(NUMBERS, DTYPES, st.integers(0, 99))
def test_the_gradient_by_the_result_is_rounded_once(numbers: tuple[float, ...], dtype: D, seed: int) -> None:
    """Also near the derivative's zero, where the result is nearly -alpha·scale."""
    alpha, scale, input_scale = abs(numbers[0]), *numbers[1:]
    zero = -alpha * scale
    y = sample(dtype, seed, zero, zero * (1 + 2**-7), zero * (1 - 2**-10), zero * (1 + 2**-22))
    dy = np.random.default_rng(seed).permutation(y)
    got = aclnn.elu_backward(dy, alpha, scale, input_scale, True, y)
    a, s, i = map(Fraction, (alpha, scale, input_scale))
    exact = [
        float(Fraction(float(g)) * (s if v > 0 else i * (Fraction(float(v)) + a * s)))
        for g, v in zip(dy.tolist(), y.tolist(), strict=True)
    ]
    assert ulps(got, np.array(exact), dtype).max() <= 0.51


@pytest.mark.parametrize("name", ["elu", "elu_backward"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_a_new_attribute_value_does_not_recompile(name: str, dtype: D) -> None:
    x = np.linspace(-3, 3, 100).astype(NUMPY[dtype])

    def call(alpha: float) -> Any:
        return aclnn.elu(x, alpha) if name == "elu" else aclnn.elu_backward(x, alpha, 1.0, 1.0, False, x)

    first = call(1.25)
    before = set(jit._compiled)
    assert not np.array_equal(call(1.75), first)
    assert set(jit._compiled) == before


X = np.array([-np.inf, -2.0, -0.0, 0.0, 2.0, np.inf, np.nan], F32)


@pytest.mark.parametrize(
    ("alpha", "input_scale", "below"),
    [
        (np.inf, 1.0, -np.inf),
        (-np.inf, 1.0, np.inf),
        (np.nan, 1.0, np.nan),
        (1e300, 1.0, -np.inf),
        (1.5, np.inf, -3.0),
        (1.5, -np.inf, -3.0),
        (1.5, np.nan, -3.0),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_numbers_that_are_not_finite_follow_the_formula(
    alpha: float, input_scale: float, below: float, dtype: D
) -> None:
    got = aclnn.elu(X.astype(NUMPY[dtype]), alpha, 2.0, input_scale)
    expected = [below, below, below, below, 4.0, np.inf, np.nan]
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_a_number_beyond_float32_is_infinite_for_float64_only_where_float64_ends() -> None:
    x = np.array([-1.0])
    assert aclnn.elu(x, 1e300)[0] == pytest.approx(1e300 * math.expm1(-1), rel=1e-15)
    assert aclnn.elu(x.astype(F32), 1e300)[0] == -np.inf


@pytest.mark.parametrize("dtype", [*FLOATS, D.DOUBLE], ids=lambda d: d.name)
def test_an_overflow_on_the_way_times_zero_is_zero(dtype: D) -> None:
    """An intermediate infinity times zero must not be NaN."""
    x = np.array([-200.0, -50_000.0]).astype(NUMPY[dtype])
    for numbers in ((0.0, 1.0, -5.0), (1.0, 0.0, -5.0)):
        np.testing.assert_array_equal(aclnn.elu(x, *numbers).astype(F32), [0.0, 0.0])
        if dtype != D.DOUBLE:
            np.testing.assert_array_equal(aclnn.elu_backward(x, *numbers, False, x).astype(F32), [0.0, 0.0])
    if dtype != D.DOUBLE:
        np.testing.assert_array_equal(aclnn.elu_backward(x * 0, 1.0, 1.0, -5.0, False, x).astype(F32), [0.0, 0.0])


def test_an_exponential_beyond_float64_times_a_small_number() -> None:
    x = np.array([-720.0, -1500.0])
    exact = values(elu(1e-100, 1.0, -1.0), x)
    assert np.isinf(exact[1])
    got = aclnn.elu(x, 1e-100, 1.0, -1.0)
    assert got[0] == pytest.approx(exact[0], rel=1e-12)
    assert got[1] == np.inf


def test_a_derivative_beyond_float32_times_a_small_dy_is_finite() -> None:
    """The table's float32 entry must not be clamped, so that the product with a small bfloat16 dy is right."""
    x, dy = np.array([-20.0], BFLOAT16), np.array([1e-30], BFLOAT16)
    got = aclnn.elu_backward(dy, 1.0, 1.0, -5.0, False, x)
    assert float(got[0]) == pytest.approx(-5 * float(dy[0]) * math.exp(100), rel=2**-8)


@pytest.mark.parametrize("name", ["elu", "inplace_elu"])
def test_float64_tensors_may_have_any_strides(name: str) -> None:
    storage = np.random.default_rng(1).normal(size=(70, 90))
    for x in (storage.T, storage[::-1, ::2], storage[3:, 5:50]):
        want = values(elu(1.0, 1.0, 1.0), x)
        got = getattr(aclnn, name)(x.copy() if name == "elu" else x, 1, 1, 1)
        assert ulps(got, want, D.DOUBLE).max() <= 8


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_zeros_of_either_sign_and_real_and_complex_numbers_are_distinguished(dtype: D) -> None:
    """The second call of each pair has a plan of its own, although the numbers are equal."""
    x = np.array([-1.0], NUMPY[dtype])
    assert np.signbit(aclnn.elu(x, 0.0)).all()
    assert not np.signbit(aclnn.elu(x, -0.0)).any()
    aclnn.elu(x, 1)
    with pytest.raises(AclnnError, match="alpha: expected a real number, got one of ACL_COMPLEX128"):
        aclnn.elu(x, 1 + 0j)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (True, D.BOOL),
        (np.True_, D.BOOL),
        (3, D.INT64),
        (np.int8(3), D.INT64),
        (2**63, D.DOUBLE),
        (10**30, D.DOUBLE),
        (0.5, D.DOUBLE),
        (np.float32(0.5), D.DOUBLE),
        (BFLOAT16.type(0.5), D.DOUBLE),
        (Fraction(1, 2), D.DOUBLE),
        (1j, D.COMPLEX128),
        (scalar(0.5, D.FLOAT16), D.FLOAT16),
    ],
)
def test_numbers_become_scalars(given: Any, dtype: D) -> None:
    found = attribute(ELU, ELU.attributes[0], given)
    assert found.dtype == dtype
    assert found.value == (given.value if isinstance(given, Scalar) else given)


@pytest.mark.parametrize("value", ["1", b"1", [1.0], np.ones(1), object()])
def test_attributes_that_are_not_numbers_are_rejected(value: Any) -> None:
    with pytest.raises(AclnnError, match="aclnnElu: input_scale: expected a number, got "):
        aclnn.elu(X, 1.0, 1.0, value)


@pytest.mark.parametrize("value", [2, "true", None, [True]])
def test_attributes_that_are_not_booleans_are_rejected(value: Any) -> None:
    with pytest.raises(AclnnError, match="aclnnEluBackward: is_result: expected a boolean, got "):
        aclnn.elu_backward(X, 1, 1, 1, value, X)


@pytest.mark.parametrize("alpha", [-0.0, math.nan, -1e-60])
def test_an_alpha_that_is_not_negative_in_float32_goes_with_a_result(alpha: float) -> None:
    aclnn.elu_backward(X, alpha, 1, 1, True, X)


def descriptions(name: str, dtype: D, shape: tuple[int, ...]) -> dict[str, Any]:
    operator = BY_NAME[name]
    output = operator.outputs[0].name
    tensors = {
        p.name: Tensor(dtype if p.name == output else D.FLOAT, shape) for p in operator.parameters if p.is_tensor
    }
    return {p.name: False if p.name == "isResult" else scalar(1) for p in operator.attributes} | tensors


@pytest.mark.parametrize(("operator", "output"), [(ELU, "out"), (ELU_BACKWARD, "gradInput")], ids=["elu", "backward"])
def test_an_output_without_a_kernel_passes_the_checks(operator: Any, output: str) -> None:
    with pytest.raises(AclnnError) as caught:
        prepare(operator, descriptions(operator.name, D.COMPLEX64, (2,)))
    assert caught.value.code == 561103
    assert f"{output}: expected a data type with a kernel for it, got ACL_COMPLEX64" in caught.value.message
    assert prepare(operator, descriptions(operator.name, D.COMPLEX64, (0,))).prepared.plan is None
