"""Separable formulas in 16 bits: which are, and that tables and float32 give what the formula gives in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.formula import absolute, exp, where
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.elementwise import plans, separable
from aclnn.kernels.separable import separate
from aclnn.kernels.sixteen_bit import all_inputs
from aclnn.kernels.trace import trace
from aclnn.operators.clipped_swiglu import clipped_swiglu_forward, clipped_swiglu_gradient
from aclnn.operators.silu import silu_derivative, silu_forward
from tests.helpers.exact import ulps
from tests.kernels.test_general import run
from tests.kernels.test_products import GATED

Array = np.ndarray[Any, Any]

#: Formula, operands, results, numbers, and the operand of each table.
SEPARABLE: dict[str, tuple[Any, int, int, tuple[float, ...], list[int]]] = {
    "swi_glu": (*GATED["swi_glu"][:2], 1, (), [0]),
    "swi_glu_grad": (*GATED["swi_glu_grad"][:2], 2, (), [1, 1]),
    "glu": (*GATED["glu"][:2], 1, (), [1]),
    "glu_grad": (*GATED["glu_grad"][:2], 2, (), [2, 2]),
    "ge_glu_erf": (*GATED["ge_glu_erf"][:2], 2, (), [1]),
    "ge_glu_tanh": (*GATED["ge_glu_tanh"][:2], 2, (), [1]),
    "ge_glu_erf_grad": (*GATED["ge_glu_erf_grad"][:2], 2, (), [2]),
    "ge_glu_tanh_grad": (*GATED["ge_glu_tanh_grad"][:2], 2, (), [2]),
    "clipped_swiglu": (clipped_swiglu_forward, 2, 1, (1.75, 7.0, 1.0), [0]),
    "clipped_swiglu_grad": (clipped_swiglu_gradient, 3, 2, (1.75, 7.0, 1.0), [1, 1]),
    "steep": (clipped_swiglu_gradient, 3, 2, (1e30, 2.0**120, -1e-30), [1, 1, 2]),
}
EVERY = pytest.mark.parametrize("name", SEPARABLE)
DTYPE = pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)


@EVERY
def test_a_gated_activation_is_separable(name: str) -> None:
    formula, inputs, _, numbers, operands = SEPARABLE[name]
    found = separate(trace(formula, inputs + len(numbers)), numbers)
    assert found is not None
    assert sorted(found.operands) == operands


def in_float64(formula: Any, results: int, operands: list[Array], numbers: tuple[float, ...]) -> list[Array]:
    with np.errstate(invalid="ignore"):
        wide = [operand.astype(np.float64) for operand in operands]
    return run(formula, [np.empty(wide[0].shape) for _ in range(results)], wide, *numbers)


def agree(got: Array, exact: Array, units: float) -> None:
    """Compare with exact results: NaN, infinities and signs, and errors in ULP."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = got.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(exact))
    wide, exact = wide[~np.isnan(exact)], exact[~np.isnan(exact)]
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(exact))
    assert np.max(ulps(wide, exact, D.of_numpy(got.dtype)), initial=0.0) <= units
    np.testing.assert_array_equal(np.isinf(wide[np.isinf(exact)]), True)


def bits(values: Array) -> Array:
    """Return bit patterns of 16-bit numbers, with one pattern for every NaN."""
    return np.where(np.isnan(values), 0xFFFF, values.view(np.uint16))


def any_numbers(dtype: np.dtype[Any], count: int, size: int) -> list[Array]:
    """Draw numbers with any bits, ordinary numbers, and extreme ones more often."""
    rng = np.random.default_rng(8)
    extremes = np.array([0, 0x8000, 1, 0x8001, 0x7C00, 0x7F80, 0xFF80, 0x3C00, 0x3F80, 0x7BFF, 0x7F7F], np.uint16)
    operands = []
    for _ in range(count):
        kinds = rng.integers(0, 8, size)
        patterns = np.where(kinds == 0, rng.choice(extremes, size), rng.integers(0, 65536, size)).astype(np.uint16)
        normal = (rng.normal(size=size) * rng.choice([0.1, 1.0, 9.0], size)).astype(dtype)
        operands.append(np.where(kinds < 4, patterns.view(dtype), normal))
    return operands


@EVERY
@DTYPE
def test_any_operands_are_within_half_a_unit_and_a_thousandth(dtype: np.dtype[Any], name: str) -> None:
    formula, inputs, results, numbers, _ = SEPARABLE[name]
    assert separable.plan(formula, inputs, D.of_numpy(dtype), np.array(numbers).tobytes()) is not None
    operands = any_numbers(dtype, inputs, 1 << 18)
    got = run(formula, [np.empty(1 << 18, dtype) for _ in range(results)], operands, *numbers)
    for actual, exact in zip(got, in_float64(formula, results, operands, numbers), strict=True):
        agree(actual, exact, 0.501)


@pytest.mark.parametrize("name", [name for name, (*_, operands) in SEPARABLE.items() if len({*operands}) == 1])
@DTYPE
def test_functions_are_rounded_correctly_where_other_operands_are_1(dtype: np.dtype[Any], name: str) -> None:
    formula, inputs, results, numbers, tabled = SEPARABLE[name]
    every, one = np.arange(65536, dtype=np.uint16).view(dtype), np.ones(65536, dtype)
    operands = [every if k == tabled[0] else one for k in range(inputs)]
    got = run(formula, [np.empty(65536, dtype) for _ in range(results)], operands, *numbers)
    for actual, exact in zip(got, in_float64(formula, results, operands, numbers), strict=True):
        agree(actual, exact, 0.5)


def test_a_product_that_loses_digits_before_a_large_operand_restores_it() -> None:
    """A subnormal a·sigmoid'(b) has too few digits to be multiplied by a dy of 2^100."""
    formula, *_ = GATED["glu_grad"]
    dy, a, b = (np.full(64, value, ml_dtypes.bfloat16) for value in (2.0**100, 1.3e-37, 9.0))
    _, got = run(formula, [np.empty_like(dy) for _ in range(2)], [dy, a, b])
    _, exact = in_float64(formula, 2, [dy, a, b], ())
    assert 0 < exact[0] / 2.0**100 < 2.0**-126
    agree(got, exact, 0.5)


@DTYPE
def test_sizes_threads_and_ways_to_memory_do_not_matter(monkeypatch: pytest.MonkeyPatch, dtype: np.dtype[Any]) -> None:
    formula, inputs, results, numbers, _ = SEPARABLE["clipped_swiglu_grad"]
    operands = any_numbers(dtype, inputs, 70_001)
    expected = run(formula, [np.empty(70_001, dtype) for _ in range(results)], operands, *numbers)
    before = threads.shared().threads
    try:
        for count, streamed, size in ((1, False, 1), (1, False, 4133), (2, True, 70_001)):
            threads.set_threads(count)
            monkeypatch.setattr(plans, "STREAM_BYTES", 1 if streamed else 1 << 60)
            part = [operand[-size:].copy() for operand in operands]
            for outs in ([np.empty(size, dtype) for _ in range(results)], part[:results]):
                for actual, other in zip(run(formula, outs, part, *numbers), expected, strict=True):
                    np.testing.assert_array_equal(bits(actual), bits(other[-size:]))
    finally:
        threads.set_threads(before)


OTHERS: dict[str, tuple[Any, int, tuple[float, ...]]] = {
    "a sum": (lambda a, b: a * silu_forward(b) + 1.0, 2, ()),
    "a number": (lambda a, b: 2.0 * (a * silu_forward(b)), 2, ()),
    "one of the results": (lambda a, b: (a * silu_forward(b), exp(a) + b), 2, ()),
    "of a product": (lambda a, b: silu_forward(a * b) * b, 2, ()),
    "a condition on a product": (lambda a, b: where(a * b < 1.0, a, a * silu_forward(b)), 2, ()),
    "a product that may be 0": (lambda a, b: where(a * b == 0.0, a, a * silu_forward(b)), 2, ()),
    "a condition on a value": (lambda a, b: where(silu_forward(b) < 1.0, a, a * silu_forward(b)), 2, ()),
    "a condition with a number of more digits": (lambda a, b, p: where(b < p, a, a * exp(b)), 2, (0.1,)),
    "a choice of a number of more digits": (lambda a, b, p: where(b < a, p, a * exp(b)), 2, (0.1,)),
    "without functions": (lambda a, b: a * b, 2, ()),
}


@pytest.mark.parametrize(("formula", "inputs", "numbers"), OTHERS.values(), ids=OTHERS)
def test_formulas_that_are_not_separable(formula: Any, inputs: int, numbers: tuple[float, ...]) -> None:
    assert separate(trace(formula, inputs + len(numbers)), numbers) is None


def test_more_products_than_gated_activations_have() -> None:
    """Several functions of several operands, selected by conditions on operands and by zero values."""

    def formula(a: Any, b: Any, c: Any, p: Any) -> Any:
        value = silu_derivative(b) * p
        return where((absolute(a) <= p) & (value != 0.0), -(a * value), value * silu_forward(c))

    rng = np.random.default_rng(8)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        operands = [(4 * rng.normal(size=5000)).astype(dtype) for _ in range(3)]
        operands[1][::5] = -np.inf
        found = separate(trace(formula, 4), (3.0,))
        assert found is not None
        assert len(found.names) == 2
        (got,) = run(formula, [np.empty(5000, dtype)], operands, 3.0)
        agree(got, in_float64(formula, 1, operands, (3.0,))[0], 0.501)


@DTYPE
def test_tables_lack_what_float32_does(dtype: np.dtype[Any]) -> None:
    """Values that are subnormal or too large in float32 are evaluated: e^x·b for a large or a small b."""
    kind = D.of_numpy(dtype)
    x = all_inputs(kind)
    x = x[(np.abs(x) > 80) & (np.abs(x) < 110)].astype(dtype)
    for b in (1.0, 2.0 ** (14 if dtype == np.float16 else 120), -(2.0 ** (-14 if dtype == np.float16 else -120))):
        operands = [np.full_like(x, b), x]
        (got,) = run(_scaled_exponential, [np.empty_like(x)], operands)
        agree(got, in_float64(_scaled_exponential, 1, operands, ())[0], 0.501)


def _scaled_exponential(b: Any, x: Any) -> Any:
    return b * exp(x)
