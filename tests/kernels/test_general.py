"""Any formula over float64 lanes, or float32: any number of inputs, numbers and outputs, any layouts and data types."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn import kernels
from aclnn.core.dtypes import DataType as D
from aclnn.formula import Fitted, Gradient, absolute, exp, times, where
from aclnn.kernels.cpu import jit, threads
from aclnn.kernels.cpu.elementwise import general, lut16, plans
from aclnn.kernels.trace import trace
from aclnn.operators.fast_gelu import fast_gelu_derivative
from aclnn.operators.gelu import gelu_erf_derivative, gelu_tanh_derivative
from aclnn.operators.hardswish import hardswish_derivative
from aclnn.operators.silu import silu_derivative
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import format_of
from tests.helpers.exact import rounded
from tests.kernels.test_elementwise import DTYPES, EVERY, SHAPES, bits, layout, views

Array = np.ndarray[Any, Any]


def mixture(a: Any, b: Any, c: Any, p: Any, q: Any) -> Any:
    """Return two results of three inputs and two numbers, by operations that NumPy rounds equally."""
    return (a * p + b) / 3.0, where(c > q, a - c, b * c)


def run(formula: Any, outs: list[Array], inputs: list[Array], *numbers: float) -> list[Array]:
    plan = kernels.elementwise(formula, tuple(map(layout, inputs)), tuple(map(layout, outs)), numbers)
    plan.run([array.ctypes.data for array in inputs], [out.ctypes.data for out in outs], 0)
    return outs


def expected(dtypes: list[np.dtype[Any]], inputs: list[Array], p: float, q: float) -> list[Array]:
    a, b, c = (array.astype(np.float64) for array in inputs)
    with np.errstate(all="ignore"):
        results = (a * p + b) / 3.0, np.where(c > q, a - c, b * c)
    pairs = zip(results, dtypes, strict=True)
    return [rounded(result.reshape(-1), D.of_numpy(dtype)).reshape(result.shape) for result, dtype in pairs]


DTYPE = st.sampled_from(list(DTYPES.values()))


@given(st.data(), SHAPES, st.lists(DTYPE, min_size=5, max_size=5), st.floats(-4, 4), st.floats(-4, 4))
def test_any_layouts_and_data_types_are_rounded_once_and_nothing_else_is_touched(
    data: Any, shape: tuple[int, ...], dtypes: list[np.dtype[Any]], p: float, q: float
) -> None:
    inputs = [data.draw(views(shape, dtype)).array for dtype in dtypes[:3]]
    outs = [data.draw(views(shape, dtype, output=True)) for dtype in dtypes[3:]]
    wanted = [out.storage.copy() for out in outs]
    for storage, out, result in zip(wanted, outs, expected(dtypes[3:], inputs, p, q), strict=True):
        storage[out.positions] = result
    run(mixture, [out.array for out in outs], inputs, p, q)
    for storage, out in zip(wanted, outs, strict=True):
        np.testing.assert_array_equal(bits(out.storage), bits(storage))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 5])
@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
def test_halves_of_rows_of_any_length_and_alignment(
    monkeypatch: pytest.MonkeyPatch, dtype: np.dtype[Any], shift: int, streamed: bool
) -> None:
    """Halves as in gated activations; outputs with different offsets in cache lines take no non-temporal stores."""
    monkeypatch.setattr(plans, "STREAM_BYTES", 1 if streamed else 1 << 60)
    rng = np.random.default_rng(3)
    for columns in (7, 600, 2053):
        x, dy = (rng.normal(size=(9, width)).astype(dtype) for width in (2 * columns, columns))
        storage = np.full((9 * 2 * columns + 2 * shift + 64,), np.nan, dtype)
        out = storage[shift : shift + x.size].reshape(x.shape)
        halves = [x[:, :columns], x[:, columns:]]
        run(mixture, [out[:, :columns], out[:, columns:]], [dy, *halves], 1.5, 0.25)
        want = np.concatenate(expected([dtype] * 2, [dy, *halves], 1.5, 0.25), axis=1)
        np.testing.assert_array_equal(bits(out), bits(want))
        assert np.isnan(np.delete(storage, slice(shift, shift + x.size)).astype(np.float32)).all()


def test_outputs_over_inputs_are_as_if_the_inputs_had_been_read_before() -> None:
    rng = np.random.default_rng(4)
    base = rng.normal(size=100_000).astype(np.float32)
    for places in ((0, 1), (1, 0), (2, 2), (1, 2)):
        arrays = [base[i * 30_000 : i * 30_000 + 30_000].copy() for i in range(3)]
        want = expected([arrays[0].dtype] * 2, arrays, 2.0, 0.0)
        outs = [arrays[place] for place in places]
        if places[0] == places[1]:
            outs[1] = np.empty_like(base[:30_000])
        run(mixture, outs, arrays, 2.0, 0.0)
        for out, result in zip(outs, want, strict=True):
            np.testing.assert_array_equal(bits(out), bits(result))


def scaled(x: Any, w: Any) -> Any:
    return where(x > 0.0, x, w * x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("size", [1, 7, 40_000])
def test_a_broadcast_element_may_be_overwritten_by_the_result(dtype: np.dtype[Any], size: int) -> None:
    rng = np.random.default_rng(7)
    for place in (0, size // 2, size - 1, size):
        storage = rng.normal(size=size + 1).astype(dtype)
        x, out, w = rng.normal(size=size).astype(dtype), storage[:size], storage[place]
        for inputs in ([x, storage[place : place + 1]], [storage[place : place + 1], x]):
            storage[place] = w
            a, b = (np.broadcast_to(one, x.shape) for one in inputs)
            wide = [one.astype(np.float64) for one in (a, b)]
            want = rounded(np.where(wide[0] > 0, wide[0], wide[1] * wide[0]), D.of_numpy(dtype))
            run(scaled, [out], [a, b])
            np.testing.assert_array_equal(bits(out), bits(want))


def test_elements_that_coincide_keep_what_is_written_last() -> None:
    """Elements of several outputs, each written in logical order."""
    rng = np.random.default_rng(5)
    inputs = [rng.normal(size=(40, 50)).astype(np.float32) for _ in range(3)]
    storage = [np.zeros(89, np.float32), np.zeros(50, np.float32)]
    outs = [
        np.lib.stride_tricks.as_strided(storage[0], (40, 50), (4, 4)),
        np.lib.stride_tricks.as_strided(storage[1], (40, 50), (0, 4)),
    ]
    want = expected([storage[0].dtype] * 2, inputs, 1.0, 0.0)
    run(mixture, outs, inputs, 1.0, 0.0)
    overlaid = np.zeros(89, np.float32)
    for i in range(40):
        overlaid[i : i + 50] = want[0][i]
    np.testing.assert_array_equal(storage[0], overlaid)
    np.testing.assert_array_equal(storage[1], want[1][-1])


def operations(x: Any, y: Any, p: Any) -> Any:
    """Return the result of each operation."""
    return where(x > p, x + y, -y), absolute(x - p), x * y, where(x == x, p, y / x), times(x, -y)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("p", [0.5, 0.1])
def test_one_operation_is_rounded_once_in_lanes_of_any_type(dtype: np.dtype[Any], p: float) -> None:
    assert general.float32_suffices(trace(operations, 3), D.of_numpy(dtype), [p]) == (p == 0.5)
    rng = np.random.default_rng(6)
    x, y = (np.frombuffer(rng.bytes(dtype.itemsize << 18), dtype) for _ in range(2))
    outs = run(operations, [np.empty_like(x) for _ in range(5)], [x, y], p)
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        exact = np.where(a > p, a + b, -b), np.abs(a - p), a * b, np.where(a == a, p, b / a), a * -b
        for out, expected in zip(outs, exact, strict=True):
            np.testing.assert_array_equal(
                out.astype(np.float64), rounded(expected, D.of_numpy(dtype)).astype(np.float64)
            )


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: (x + y) * y,
        lambda x, y: where(x - y > 0.0, x, y),
        lambda x, y: where(x > 0.1, x, y),
        lambda x, y: where(x > y, 0.1, y),
        lambda x, y: x + (2.0**24 + 1.0),
        lambda x, y: where(x > y, 1.0, 0.0),
        lambda x, y: exp(where(x > y, x, y)),
    ],
)
def test_other_formulas_take_float64(formula: Any) -> None:
    assert not any(general.float32_suffices(trace(formula, 2), dtype, ()) for dtype in (D.FLOAT, D.FLOAT16, D.BF16))


def scaled_bell(x: Any, width: Any) -> Any:
    """A derivative with an attribute."""
    return exp(-(x * x) / (width * width))


@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
def test_a_new_attribute_value_does_not_recompile(dtype: np.dtype[Any]) -> None:
    gradient = Gradient(scaled_bell)
    x = np.linspace(-9, 9, 1000).astype(dtype)
    kept = None
    for width in (1.0, 2.0, 0.3):
        out = run(gradient, [np.empty_like(x)], [np.ones_like(x), x], width)[0]
        exact = rounded(np.exp(-((x.astype(np.float64) / width) ** 2)), D.of_numpy(dtype))
        np.testing.assert_array_max_ulp(out.astype(np.float32), exact.astype(np.float32), maxulp=1)
        assert kept in (None, len(jit._compiled))
        kept = len(jit._compiled)


def test_tables_of_numbers_do_not_pile_up() -> None:
    x = np.ones(16, np.float16)
    for i in range(2 * lut16._MOST):
        out = run(Gradient(scaled_bell), [np.empty_like(x)], [x, x], 1.0 + i)[0]
        assert out[0] == np.float16(np.exp(-1 / (1.0 + i) ** 2))
    assert len(lut16._tables) <= lut16._MOST


def test_threads_share_one_plan_and_change_no_bit() -> None:
    rng = np.random.default_rng(6)
    inputs = [rng.normal(size=(700, 401)).astype(np.float32) for _ in range(3)]
    want = expected([inputs[0].dtype] * 2, inputs, 0.5, 0.1)
    outs = [[np.empty_like(inputs[0]), np.empty_like(inputs[0].T).T] for _ in range(6)]
    before = threads.shared().threads
    try:
        for count in (1, 2, 5):
            threads.set_threads(count)
            callers = [threading.Thread(target=run, args=(mixture, out, inputs, 0.5, 0.1)) for out in outs]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            for out in outs:
                for got, result in zip(out, want, strict=True):
                    np.testing.assert_array_equal(bits(got), bits(result))
                    got.fill(np.nan)
    finally:
        threads.set_threads(before)


HOUSE = {
    "fast_gelu": fast_gelu_derivative,
    "gelu_erf": gelu_erf_derivative,
    "gelu_tanh": gelu_tanh_derivative,
    "hardswish": hardswish_derivative,
    "silu": silu_derivative,
}


def unfitted(derivative: Any) -> Gradient:
    """Return a gradient by operations alone, without fitted versions."""
    evaluate = derivative.function if isinstance(derivative, Fitted) else derivative

    def general(x: Any) -> Any:
        return evaluate(x)

    return Gradient(general)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOUSE)
def test_every_formula_of_the_house_is_within_half_a_unit_everywhere(name: str) -> None:
    """For dy = 1, also near the derivatives' zeros."""
    every = np.arange(0, 1 << 32, 9973, dtype=np.uint32).view(np.float32)
    near = np.concatenate([np.linspace(-6, 6, 200_001), np.linspace(-1.3, -0.7, 200_001)]).astype(np.float32)
    x = np.concatenate([every[np.isfinite(every)], near])
    ones = np.ones_like(x)
    got = run(unfitted(HOUSE[name]), [np.empty_like(x)], [ones, x])[0].astype(np.float64)
    exact = Function(HOUSE[name]).golden([x], format_of(x.dtype)).value
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - exact) / unit) <= 0.51


def stretched(x: Any, p: Any) -> Any:
    """Return a product that overflows float32."""
    return x * p


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16])
def test_values_near_ties_of_16_bit_numbers_are_rounded_once(dtype: D) -> None:
    """The difference has no digits in float32: rounding to that first would misround half of these."""
    numbers = np.arange(0x3C00, 0x4400, dtype=np.uint16).view(dtype.numpy).astype(np.float32)
    middles = (numbers[:-1] + numbers[1:]) / 2
    for factor, want in ((1 + 2.0**-45, numbers[1:]), (1 - 2.0**-45, numbers[:-1])):
        out = run(stretched, [np.empty(middles.size, dtype.numpy)], [middles], factor)[0]
        np.testing.assert_array_equal(out.astype(np.float32), want)
