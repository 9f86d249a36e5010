"""Formulas that are products with fitted functions: which are, and that outliers have the formula's own results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from aclnn.formula import absolute, times, where
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.elementwise import plans
from aclnn.kernels.products import products
from aclnn.operators.clipped_swiglu import (
    clipped_quick_swiglu_forward,
    clipped_quick_swiglu_gradient,
    clipped_swiglu_forward,
    clipped_swiglu_gradient,
)
from aclnn.operators.ge_glu import (
    ge_glu_erf_forward,
    ge_glu_erf_gradient,
    ge_glu_tanh_forward,
    ge_glu_tanh_gradient,
)
from aclnn.operators.glu import glu_forward, glu_gradient
from aclnn.operators.hardswish import hardswish_forward
from aclnn.operators.mish import mish_forward
from aclnn.operators.silu import silu_derivative, silu_forward
from aclnn.operators.swi_glu import swi_glu_forward, swi_glu_gradient
from tests.kernels.test_general import run

Array = np.ndarray[Any, Any]

GATED: dict[str, tuple[Any, int, str]] = {
    "swi_glu": (swi_glu_forward, 2, "x1 * silu_forward_x0"),
    "swi_glu_grad": (swi_glu_gradient, 3, "x0 * x2 * silu_derivative_x1, x0 * silu_forward_x1"),
    "glu": (glu_forward, 2, "x0 * sigmoid_forward_x1"),
    "glu_grad": (glu_gradient, 3, "x0 * sigmoid_forward_x2, x0 * x1 * sigmoid_derivative_x2"),
    "ge_glu_erf": (ge_glu_erf_forward, 2, "gelu_erf_forward_x1, x0 * gelu_erf_forward_x1"),
    "ge_glu_tanh": (ge_glu_tanh_forward, 2, "gelu_tanh_forward_x1, x0 * gelu_tanh_forward_x1"),
    "ge_glu_erf_grad": (ge_glu_erf_gradient, 4, "x0 * x3, x0 * x1 * gelu_erf_derivative_x2"),
    "ge_glu_tanh_grad": (ge_glu_tanh_gradient, 4, "x0 * x3, x0 * x1 * gelu_tanh_derivative_x2"),
}
CLIPPED: dict[str, tuple[Any, int, str]] = {
    "clipped_swiglu": (clipped_quick_swiglu_forward, 2, "B * quick_swish_forward_A"),
    "clipped_swiglu_grad": (
        clipped_quick_swiglu_gradient,
        3,
        "x0 * B * quick_swish_derivative_A, x0 * quick_swish_forward_A",
    ),
}
"""Products of terms with numbers, a limit and a bias: A is a limited operand, B another one plus the bias."""
ALL = {name: (*row, ()) for name, row in GATED.items()} | {
    f"{name} {numbers}": (*row, numbers)
    for name, row in CLIPPED.items()
    for numbers in ((7.0, 1.0), (0.25, -0.375), (np.inf, -0.0))
}
EVERY = pytest.mark.parametrize(("formula", "inputs", "factors", "numbers"), ALL.values(), ids=ALL)


def written(formula: Any, arity: int) -> str | None:
    found = products(formula, arity)
    if found is None:
        return None
    products_of = (" * ".join(str(getattr(factor, "variable", factor)) for factor in p) for p in found.factors.values())
    text = ", ".join(products_of)
    for value in found.values:
        text = re.sub(rf"{value.operand}(?!\d)", "A", text) if value.operand.startswith("t") else text
    return re.sub(r"t\d+", "B", text)


@EVERY
def test_a_gated_activation_is_a_product(formula: Any, inputs: int, factors: str, numbers: tuple[float, ...]) -> None:
    assert written(formula, inputs + len(numbers)) == factors


def _unless_infinite(a: Any, b: Any, c: Any) -> Any:
    return where(absolute(c) < np.inf, a * silu_forward(b), b)


OTHERS: dict[str, tuple[Any, int]] = {
    "a sum": (lambda a, b: a * silu_forward(b) + 1.0, 2),
    "a number": (lambda a, b: 2.0 * a * silu_forward(b), 2),
    "one of the results": (lambda a, b: (a * silu_forward(b), a / b), 2),
    "of a sum": (lambda a, b: silu_forward(a + b) * b, 2),
    "a sum of sums": (lambda a, b: (a + b + b) * silu_forward(b), 2),
    "a selected factor": (lambda a, b: where(a > b, a * silu_forward(b), a) * b, 2),
    "a selection of a function": (lambda a, b: where(a > b, a / b, a * silu_forward(b)), 2),
    "a condition on a sum": (lambda a, b: where(a + b > 0.0, a, a * silu_forward(b)), 2),
    "a number with more digits": (lambda a, b: where(a > 0.1, a, a * silu_forward(b)), 2),
    "of a product": (lambda a, b: silu_forward(a * b) * b, 2),
    "without functions": (lambda a, b: times(a, b), 2),
    "two functions and an operand": (lambda a, b, c: a * silu_derivative(b) * silu_derivative(c), 3),
    "large values": (lambda a, b, c: a * b * silu_forward(c), 3),
    "four factors": (lambda a, b, c, d: a * b * c * silu_derivative(d), 4),
    "a condition on another operand": (_unless_infinite, 3),
    "a condition on a value": (lambda a, b: where(a * b < 1.0, a, a * silu_forward(b)), 2),
    "operations for segments": (lambda a, b: a * hardswish_forward(b), 2),
    "a function with an attribute": (clipped_swiglu_forward, 5),
    "its gradient": (clipped_swiglu_gradient, 6),
    "not fitted": (lambda a, b: a * mish_forward(b), 2),
}


@pytest.mark.parametrize(("formula", "inputs"), OTHERS.values(), ids=OTHERS)
def test_formulas_that_are_not_products(formula: Any, inputs: int) -> None:
    assert products(formula, inputs) is None


SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-38, 1e-30, 0.25, -1.5, 9.0, -30.0, 104.0, -200.0, 1e19, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)


def both(
    monkeypatch: pytest.MonkeyPatch, formula: Any, inputs: list[Array], numbers: tuple[float, ...]
) -> tuple[list[Array], list[Array]]:
    """Return the results by products, and by the formula."""
    found = products(formula, len(inputs) + len(numbers))
    assert found is not None
    by_products = run(formula, [np.empty_like(inputs[0]) for _ in found.results], inputs, *numbers)
    with monkeypatch.context() as patched:
        patched.setattr(plans, "products", lambda *_: None)
        return by_products, run(formula, [np.empty_like(inputs[0]) for _ in found.results], inputs, *numbers)


@pytest.mark.slow
@EVERY
def test_special_numbers_in_every_combination(
    monkeypatch: pytest.MonkeyPatch, formula: Any, inputs: int, factors: str, numbers: tuple[float, ...]
) -> None:
    """Signed zeros, infinities and NaN, intermediate overflow, and subnormal products."""
    grids = [grid.reshape(-1) for grid in np.meshgrid(*[SPECIAL] * inputs)]
    for ours, exact in zip(*both(monkeypatch, formula, grids, numbers), strict=True):
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(exact))
        rest = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(ours[rest]), np.signbit(exact[rest]))
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(exact))
        finite = np.isfinite(exact)
        unit = np.spacing(np.abs(exact[finite])).astype(np.float64)
        assert np.max(np.abs(ours[finite].astype(np.float64) - exact[finite]) / unit) <= 2.6


@pytest.mark.slow
@EVERY
def test_outliers_in_any_number_have_the_formulas_results_wherever_they_lie(
    monkeypatch: pytest.MonkeyPatch, formula: Any, inputs: int, factors: str, numbers: tuple[float, ...]
) -> None:
    """In whole and partial tiles, with non-temporal stores, with one thread and several."""
    rng = np.random.default_rng(8)
    before = threads.shared().threads
    try:
        for count, streamed, size in ((1, False, 1), (1, False, 4133), (2, True, 70_001)):
            threads.set_threads(count)
            monkeypatch.setattr(plans, "STREAM_BYTES", 1 if streamed else 1 << 60)
            operands = [rng.normal(size=size).astype(np.float32) for _ in range(inputs)]
            inside = rng.random(size) < rng.choice([0.0, 0.5, 0.999], size // 64 + 1).repeat(64)[:size]
            for operand in operands:
                operand[~inside] *= 60
            ours, exact = both(monkeypatch, formula, operands, numbers)
            far = np.abs(operands[int(factors[-1]) if factors[-1] != "A" else -2]) > 11
            if numbers:
                far &= operands[-2] < numbers[0]
            for actual, other in zip(ours, exact, strict=True):
                np.testing.assert_array_equal(actual[far], other[far])
                np.testing.assert_allclose(actual, other, rtol=2.6 * 2.0**-23)
            in_place = run(formula, operands[: len(ours)], operands, *numbers)
            for actual, other in zip(in_place, ours, strict=True):
                np.testing.assert_array_equal(actual, other)
    finally:
        threads.set_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swi_glu_grad", "glu_grad"])
def test_rounding_errors_of_products_are_kept(name: str) -> None:
    """In smooth regions, results are nearly correctly rounded; a lost error would add half a unit or more."""
    formula, inputs, _ = GATED[name]
    rng = np.random.default_rng(8)
    arguments = [rng.uniform(1.0, 2.0, 1 << 18).astype(np.float32) for _ in range(inputs)]
    got = run(formula, [np.empty_like(arguments[0]) for _ in range(2)], arguments)
    wide = run(
        formula, [np.empty(arguments[0].size) for _ in range(2)], [each.astype(np.float64) for each in arguments]
    )
    units = [np.abs(one - exact) / np.spacing(np.abs(one)) for one, exact in zip(got, wide, strict=True)]
    assert np.max(units) < 1.25
