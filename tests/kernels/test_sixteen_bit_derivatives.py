"""The derivatives of 16-bit x: their constants, every x they serve, and wide vectors with the table."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels.cpu.elementwise import lut16
from aclnn.kernels.cpu.elementwise.fitted import fast
from aclnn.kernels.fitted import SHORT, ShortSegments, version
from aclnn.kernels.sixteen_bit import all_inputs, evaluate, round_to_odd
from aclnn.operators.fast_gelu import fast_gelu_derivative
from aclnn.operators.gelu import gelu_erf_derivative, gelu_tanh_derivative
from aclnn.operators.hardswish import hardswish_derivative, hardswish_v2_derivative
from aclnn.operators.mish import mish_derivative
from aclnn.operators.sigmoid import sigmoid_derivative_of_result, sigmoid_forward
from aclnn.operators.silu import silu_derivative
from aclnn.operators.swish import quick_swish_derivative

FORMULAS = {
    f.__name__: f
    for f in (
        fast_gelu_derivative,
        gelu_erf_derivative,
        gelu_tanh_derivative,
        hardswish_derivative,
        hardswish_v2_derivative,
        mish_derivative,
        quick_swish_derivative,
        sigmoid_derivative_of_result,
        sigmoid_forward,
        silu_derivative,
    )
}
FORMS: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.BF16: np.dtype(ml_dtypes.bfloat16),
}
ALLOWED = {DataType.FLOAT16: 2.0**-17.7, DataType.BF16: 2.0**-14.7}
"""Relative error of a derivative, 0.01 units of the 16-bit type: with half a unit of rounding, 0.51."""

PAIRS = [(name, dtype) for name in FORMULAS for dtype in FORMS if version(FORMULAS[name], dtype) is not None]
OF_SOME = [(name, dtype) for name, dtype in PAIRS if fast(FORMULAS[name], dtype)]
"""Those whose versions serve some x; of others the operations serve every one."""
SERVING = pytest.mark.parametrize(("name", "dtype"), OF_SOME, ids=lambda value: getattr(value, "name", value))
BOTH = pytest.mark.parametrize("dtype", FORMS, ids=lambda dtype: dtype.name)


def test_most_have_versions_for_both() -> None:
    missing = {
        ("mish_derivative", DataType.FLOAT16),
        ("quick_swish_derivative", DataType.FLOAT16),
    }
    assert {(name, dtype) for name in FORMULAS for dtype in FORMS} - {*PAIRS} == missing


@pytest.mark.parametrize(
    "segments",
    [found for name, dtype in PAIRS if isinstance(found := version(FORMULAS[name], dtype), ShortSegments)],
)
def test_every_constant_is_a_float32(segments: ShortSegments) -> None:
    rows = (segments.centre, *segments.c)
    assert all(len(row) == SHORT for row in rows)
    constants = (segments.per_unit, segments.shift, *(value for row in rows for value in row))
    assert all(value == float(np.float32(value)) for value in constants)


def served(name: str, dtype: DataType) -> NDArray[np.bool_]:
    found = fast(FORMULAS[name], dtype)
    assert found is not None
    return np.abs(all_inputs(dtype)) <= found.bound


@pytest.mark.slow
@SERVING
def test_every_derivative_rounds_to_the_nearest_and_is_close(name: str, dtype: DataType) -> None:
    among = served(name, dtype) & np.isfinite(all_inputs(dtype))
    x = all_inputs(dtype)[among]
    exact = evaluate(FORMULAS[name], x)
    got = lut16.table(Gradient(FORMULAS[name]), dtype, ())[0][among]
    form = FORMS[dtype]
    with np.errstate(over="ignore"):
        wrong = got.astype(form) != round_to_odd(exact).astype(form)
    assert not x[wrong].size
    assert np.all(np.abs(got - exact) <= ALLOWED[dtype] * np.abs(exact))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), sorted({*PAIRS} - {*OF_SOME}), ids=str)
def test_operations_for_every_x_round_to_the_nearest(name: str, dtype: DataType) -> None:
    x = np.arange(65536, dtype=np.uint16).view(FORMS[dtype])
    with np.errstate(over="ignore"):
        expected = round_to_odd(evaluate(FORMULAS[name], all_inputs(dtype))).astype(FORMS[dtype])
    compared = np.isfinite(all_inputs(dtype))
    np.testing.assert_array_equal(bits(gradients(name, np.ones_like(x), x))[compared], bits(expected)[compared])


def gradients(name: str, dy: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    layout, out = Layout(DataType.of_numpy(x.dtype), x.shape, (1,)), np.empty_like(x)
    plan = kernels.elementwise(Gradient(FORMULAS[name]), (layout, layout), (layout,))
    plan.run([dy.ctypes.data, x.ctypes.data], [out.ctypes.data], 0)
    return out


@SERVING
def test_wide_vectors_give_the_bits_of_the_table(name: str, dtype: DataType) -> None:
    """Every x with gradients of all sizes: vectors wholly, partly and not at all near, whole lines and what is left.

    Of a function that exceeds float32 the table is not used: what is near is computed as its entries are.
    """
    form, formula = FORMS[dtype], FORMULAS[name]
    found = fast(formula, dtype)
    compared = served(name, dtype) if found and found.overflows else np.full(65536, True)
    x = np.arange(65536, dtype=np.uint16).view(form)
    for dy in (x[::-1], np.roll(x, 77), np.full_like(x, 1), np.random.default_rng(3).permutation(x)):
        for count in (65536, 64 * 3 + 17):
            inputs = [np.ascontiguousarray(array[:count]) for array in (dy, x)]
            out = gradients(name, *inputs)
            expected, near = by_table(formula, dtype, *inputs), compared[inputs[1].view(np.uint16)]
            np.testing.assert_array_equal(bits(out)[near], bits(expected)[near])


def by_table(formula: Any, dtype: DataType, dy: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    entry, lifted = lut16.table(Gradient(formula), dtype, ())[:, x.view(np.uint16)]
    wide, step = dy.astype(np.float32), np.float32(2.0**-75)
    with np.errstate(all="ignore"):
        tiny = np.where(np.isinf(wide), wide * (lifted * step * step), wide * step * lifted * step)
        product = np.where((np.abs(entry) < 2.0**-100) & (entry != 0) & (np.abs(wide) > 1), tiny, wide * entry)
        return product.astype(FORMS[dtype])


def bits(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Return bit patterns, with one pattern for every NaN."""
    patterns: NDArray[np.uint16] = array.view(np.uint16).copy()
    patterns[np.isnan(array.astype(np.float32))] = 0x7FFF
    return patterns


@BOTH
def test_fitted_entries_are_not_taken_for_those_of_the_formula_itself(dtype: DataType) -> None:
    """Equal formulas with and without fitted functions have entries of their own."""

    def unfitted(x: Any) -> Any:
        return silu_derivative(x)

    exact = round_to_odd(evaluate(silu_derivative, all_inputs(dtype)))
    for order in ((unfitted, silu_derivative), (silu_derivative, unfitted)):
        lut16._tables.clear()
        tables = {formula: lut16.table(Gradient(formula), dtype, ())[0] for formula in order}
        np.testing.assert_array_max_ulp(tables[unfitted], exact, maxulp=1)
        assert (tables[silu_derivative] != tables[unfitted]).any()
