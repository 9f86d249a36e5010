"""The elementwise engine by itself: any layout gives the bits of the contiguous one, whatever runs it."""

from __future__ import annotations

import math
import sys
import threading
import time
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn
from aclnn import kernels
from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Layout
from aclnn.formula import Gradient
from aclnn.kernels.cpu import strided, threads
from aclnn.kernels.cpu.elementwise import fitted, lut16
from aclnn.kernels.cpu.elementwise import plans as elementwise
from aclnn.kernels.cpu.jit import address_of, kernel, register_jitable
from aclnn.kernels.cpu.structs import call_pointer
from aclnn.kernels.sixteen_bit import round_to_odd
from aclnn.operators.fast_gelu import fast_gelu_derivative
from aclnn.operators.gelu import gelu_erf_derivative, gelu_tanh_derivative, gelu_tanh_forward
from aclnn.operators.hardswish import hardswish_derivative
from aclnn.operators.leaky_relu import leaky_relu_forward
from aclnn.operators.silu import silu_derivative, silu_forward
from tests.helpers.instruction_sets import python

Array = np.ndarray[Any, Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
EVERY = DTYPES | {"float64": np.dtype(np.float64)}
"""Data types that the general evaluation reads and writes."""
SLOPES = (fast_gelu_derivative, gelu_erf_derivative, gelu_tanh_derivative, hardswish_derivative, silu_derivative)


def bell_derivative(x: float) -> float:
    """Return 1 / (1 + x²), a formula without a fitted version."""
    return 1.0 / (1.0 + x * x)


def layout(array: Array) -> Layout:
    return Layout(D.of_numpy(array.dtype), array.shape, tuple(step // array.itemsize for step in array.strides))


gradient = cache(Gradient)


def run(formula: Any, out: Array, *inputs: Array) -> Array:
    formula = gradient(formula) if len(inputs) == 2 else formula
    plan = kernels.elementwise(formula, tuple(map(layout, inputs)), (layout(out),))
    plan.run([array.ctypes.data for array in inputs], [out.ctypes.data], 0)
    return out


def bits(array: Array) -> Array:
    """Return bit patterns, with one pattern for every NaN."""
    plain = np.where(np.isnan(array.astype(np.float64)), array.dtype.type(np.nan), array)
    return np.array(plain, order="C").view(f"u{array.itemsize}")


def expected(formula: Any, dtype: np.dtype[Any], dy: Array, x: Array) -> Array:
    """Return the result for contiguous operands; for one 16-bit type, from table entries unless operations serve it."""
    dy, x = (np.array(array, order="C") for array in (dy, x))
    operations = fitted.operations(gradient(formula), D.of_numpy(x.dtype))
    if operations or dtype.itemsize > 2 or x.dtype != dtype or dy.dtype != dtype:
        return run(formula, np.empty(x.shape, dtype), dy, x)
    entry, lifted = lut16.table(gradient(formula), D.of_numpy(x.dtype), ())[:, x.view(np.uint16)]
    wide, step = dy.astype(np.float32), np.float32(2.0**-75)
    with np.errstate(all="ignore"):
        tiny = np.where(np.isinf(wide), wide * (lifted * step * step), wide * step * lifted * step)
        return np.where((np.abs(entry) < 2.0**-100) & (np.abs(wide) > 1), tiny, wide * entry).astype(dtype)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    values = rng.normal(size=shape) * 4
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.0, -3.0, 1e-7, -100.0, 6e4])
    where = rng.random(shape) < 0.1
    with np.errstate(over="ignore"):
        return np.where(where, rng.choice(special, shape), values).astype(dtype)


class View(NamedTuple):
    """A strided view, its one-dimensional storage, and the index of each element in that."""

    array: Array
    storage: Array
    positions: Array


@st.composite
def views(draw: Any, shape: tuple[int, ...], dtype: np.dtype[Any], output: bool = False) -> View:
    """Draw views with any order of dimensions, any strides (negative and, for inputs, zero), gaps, and margins."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    strides, unit = [0] * len(shape), 1
    for axis in draw(st.permutations(range(len(shape)))):
        step = draw(st.sampled_from((1, 1, 1, 1, 2, -1, -3) if output else (1, 1, 1, 1, 2, -1, 0)))
        strides[axis] = unit * step
        unit = unit * abs(step) * shape[axis] + draw(st.sampled_from((0, 0, 0, 1, 5))) if step else unit
    positions = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        positions += (np.arange(shape[axis]) * stride).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    before, after = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    positions += before - positions.min()
    storage = numbers(rng, (int(positions.max()) + 1 + after,), dtype)
    first = int(positions.reshape(-1)[0])
    array = np.lib.stride_tricks.as_strided(storage[first:], shape, [stride * dtype.itemsize for stride in strides])
    return View(array, storage, positions)


SHAPES = st.lists(st.integers(1, 50), max_size=5).map(tuple).filter(lambda shape: math.prod(shape) <= 20_000)
MIXES = st.one_of(
    st.sampled_from(list(DTYPES.values())).map(lambda dtype: (dtype,) * 3),
    st.tuples(*[st.sampled_from(list(DTYPES.values()))] * 3),
)


@pytest.mark.slow
@given(st.data(), SHAPES, MIXES, st.sampled_from((*SLOPES, bell_derivative)))
def test_any_layout_gives_the_same_bits_and_touches_nothing_else(
    data: Any, shape: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...], formula: Any
) -> None:
    dy, x = (data.draw(views(shape, dtype)) for dtype in dtypes[:2])
    out = data.draw(views(shape, dtypes[2], output=True))
    want = out.storage.copy()
    want[out.positions] = expected(formula, dtypes[2], dy.array, x.array)
    run(formula, out.array, dy.array, x.array)
    np.testing.assert_array_equal(bits(out.storage), bits(want))


@given(st.data(), SHAPES, st.sampled_from(list(EVERY.values())), st.sampled_from((silu_forward, bell_derivative)))
def test_a_function_of_one_input_gives_the_same_bits_in_any_layout(
    data: Any, shape: tuple[int, ...], dtype: np.dtype[Any], formula: Any
) -> None:
    x, out = data.draw(views(shape, dtype)), data.draw(views(shape, dtype, output=True))
    want = out.storage.copy()
    want[out.positions] = run(formula, np.empty(shape, dtype), np.array(x.array, order="C"))
    run(formula, out.array, x.array)
    np.testing.assert_array_equal(bits(out.storage), bits(want))


@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("shift", [-700, -16, -3, -1, 0, 1, 5, 64, 999])
@pytest.mark.parametrize("size", [1000, 200_000])
def test_an_output_over_an_input_is_as_if_the_input_had_been_read_before(
    dtype: np.dtype[Any], shift: int, size: int
) -> None:
    rng = np.random.default_rng(size + shift)
    dy = numbers(rng, (size,), dtype)
    for shared in (0, 1):
        storage = numbers(rng, (size + 2000,), dtype)
        both = storage[1000 : 1000 + size], storage[1000 + shift : 1000 + shift + size]
        inputs = (both[0], dy) if shared == 0 else (dy, both[0])
        want = expected(silu_derivative, dtype, *(array.copy() for array in inputs))
        run(silu_derivative, both[1], *inputs)
        np.testing.assert_array_equal(bits(both[1]), bits(want))


@pytest.mark.parametrize("name", ["transposed", "reversed", "shifted rows", "the same view", "wider type"])
def test_an_output_over_a_strided_input(name: str) -> None:
    rng = np.random.default_rng(3)
    storage, dy = numbers(rng, (100, 100), DTYPES["float32"]), numbers(rng, (70, 70), DTYPES["float32"])
    x = storage[:70, :70]
    out = {
        "transposed": storage[:70, :70].T,
        "reversed": storage[69::-1, 69::-1],
        "shifted rows": storage[1:71, 2:72],
        "the same view": x,
        "wider type": storage.reshape(-1).view(BFLOAT16)[:4900].reshape(70, 70),
    }[name]
    want = expected(gelu_erf_derivative, out.dtype, dy, x.copy())
    run(gelu_erf_derivative, out, dy, x)
    np.testing.assert_array_equal(bits(out), bits(want))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((5, 7), (0, 1)),
        ((5, 7), (1, 0)),
        ((300, 400), (0, 0)),
        ((9, 40), (3, 1)),
        ((40, 9), (1, 1)),
        ((6, 2000), (-7, 2)),
    ],
)
def test_where_elements_of_the_output_coincide_the_last_in_logical_order_stays(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(4)
    dy, x = (numbers(rng, shape, DTYPES["float32"]) for _ in range(2))
    storage = np.full(10_000, 7.0, np.float32)
    out = np.lib.stride_tricks.as_strided(storage[1000:], shape, [4 * stride for stride in strides])
    want = storage.copy()
    for index, value in np.ndenumerate(expected(silu_derivative, out.dtype, dy, x)):
        want[1000 + sum(i * stride for i, stride in zip(index, strides, strict=True))] = value
    run(silu_derivative, out, dy, x)
    np.testing.assert_array_equal(bits(storage), bits(want))


@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
def test_every_size_and_alignment(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(5)
    dy, x = (numbers(rng, (200,), dtype) for _ in range(2))
    want = expected(fast_gelu_derivative, dtype, dy, x)
    for size in range(1, 70):
        for shift in (0, 1, 7):
            out = np.zeros(200, dtype)
            run(fast_gelu_derivative, out[shift : shift + size], dy[:size], x[:size])
            np.testing.assert_array_equal(bits(out[shift : shift + size]), bits(want[:size]))
            assert not out[:shift].any()
            assert not out[shift + size :].any()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
def test_misaligned_addresses_give_the_same_results(dtype: np.dtype[Any]) -> None:
    """Also large results, which take non-temporal stores."""
    size = elementwise.STREAM_BYTES // dtype.itemsize + 999
    rng = np.random.default_rng(6)
    dy, x = (numbers(rng, (size,), dtype) for _ in range(2))
    plan = kernels.elementwise(gradient(hardswish_derivative), (layout(dy), layout(x)), (layout(x),))
    want = expected(hardswish_derivative, dtype, dy, x)
    for shift in (0, 1, dtype.itemsize, 3 * dtype.itemsize):
        storage = np.full(size * dtype.itemsize + 128, 0xA5, np.uint8)
        plan.run([dy.ctypes.data, x.ctypes.data], [storage.ctypes.data + 64 + shift], 0)
        inside = storage[64 + shift : 64 + shift + size * dtype.itemsize].copy().view(dtype)
        np.testing.assert_array_equal(bits(inside), bits(want))
        assert (storage[: 64 + shift] == 0xA5).all()
        assert (storage[64 + shift + size * dtype.itemsize :] == 0xA5).all()


@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("columns", [strided.LONG - 1, strided.LONG, 1001, 2 * strided.PIECE + 77])
def test_long_rows_give_the_same_bits_and_touch_nothing_else(
    monkeypatch: pytest.MonkeyPatch, dtype: np.dtype[Any], streamed: bool, columns: int
) -> None:
    monkeypatch.setattr(elementwise, "STREAM_BYTES", 1 if streamed else 1 << 60)
    rng = np.random.default_rng(10)
    storage = numbers(rng, (3, 6, columns + 100), dtype)
    x, out = storage[:, :5, 13 : 13 + columns], np.zeros_like(storage)[:, 1:, 29 : 29 + columns]
    for dy in (np.broadcast_to(numbers(rng, (columns,), dtype), x.shape), numbers(rng, x.shape, dtype)[::-1]):
        want = np.zeros_like(storage)
        want[:, 1:, 29 : 29 + columns] = expected(gelu_tanh_derivative, dtype, dy, x)
        run(gelu_tanh_derivative, out, dy, x)
        np.testing.assert_array_equal(bits(out.base), bits(want))
    want = run(gelu_tanh_forward, np.empty(x.shape, dtype), np.array(x, order="C"))
    run(gelu_tanh_forward, x, x)
    np.testing.assert_array_equal(bits(x), bits(want))


@pytest.mark.slow
@pytest.mark.parametrize("formula", SLOPES)
@pytest.mark.parametrize("far", [0.002, 0.02, 0.1, 0.9, 1.0])
def test_tails_give_the_same_bits_among_any_neighbours(formula: Any, far: float) -> None:
    """Outliers are packed if there are many; a single vector of sixteen never is."""
    rng = np.random.default_rng(9)
    dy, x = (numbers(rng, (9001,), DTYPES["float32"]) for _ in range(2))
    x = np.where(rng.random(x.size) < far, x * 10, rng.uniform(-3, 3, x.size)).astype(np.float32)
    sixteens = [slice(at, at + 16) for at in range(0, x.size, 16)]
    want = np.concatenate([run(formula, np.empty_like(x[part]), dy[part], x[part]) for part in sixteens])
    for first, last in ((0, 64), (1, 1001), (5, 1029), (0, 9001)):
        part = slice(first, last)
        got = run(formula, np.empty(last - first, np.float32), dy[part], x[part])
        np.testing.assert_array_equal(bits(got), bits(want[part]))
    for shared in (dy, x):
        out = shared.copy()
        run(formula, out, *(out if array is shared else array for array in (dy, x)))
        np.testing.assert_array_equal(bits(out), bits(want))


@pytest.mark.parametrize("dtype", EVERY.values(), ids=EVERY)
@pytest.mark.usefixtures("usual_threads")
def test_the_number_of_threads_changes_no_bit(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(7)
    dy, x = (numbers(rng, (1300, 1001), dtype) for _ in range(2))
    results = []
    for count in (1, 2, 5):
        threads.set_threads(count)
        results += [run(silu_derivative, np.empty_like(x), dy, x), run(silu_derivative, np.empty_like(x.T).T, dy, x)]
    for result in results:
        np.testing.assert_array_equal(bits(result), bits(expected(silu_derivative, dtype, dy, x)))


def test_one_plan_runs_from_many_threads_at_once() -> None:
    rng = np.random.default_rng(8)
    dy, x = (numbers(rng, (300_000,), DTYPES["float32"]) for _ in range(2))
    want = expected(gelu_tanh_derivative, dy.dtype, dy, x)
    plan = kernels.elementwise(gradient(gelu_tanh_derivative), (layout(dy), layout(x)), (layout(x),))
    outs = [np.zeros_like(x) for _ in range(8)]

    def work(out: Array) -> None:
        for _ in range(5):
            plan.run([dy.ctypes.data, x.ctypes.data], [out.ctypes.data], 0)

    workers = [threading.Thread(target=work, args=(out,)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for out in outs:
        np.testing.assert_array_equal(bits(out), bits(want))


def test_empty_tensors_are_left_alone() -> None:
    empty = np.empty((3, 0), np.float32)
    plan = kernels.elementwise(gradient(silu_derivative), (layout(empty),) * 2, (layout(empty),))
    plan.run([0, 0], [0], 0)
    assert plan.workspace_bytes == 0


def reciprocal_derivative(x: float) -> float:
    """A formula that divides by zero."""
    return 1.0 / x


def test_a_formula_that_divides_by_zero_writes_all_elements() -> None:
    """Division by zero must not raise an exception, which would leave the rest of a chunk unwritten."""
    x = np.linspace(-1, 1, 100_001, dtype=np.float32)
    out = run(reciprocal_derivative, np.zeros_like(x), np.ones_like(x), x)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(out, 1 / x)
    assert np.isinf(out[50_000])


EVERY_OTHER_ELEMENT = """
import numpy as np
from ml_dtypes import bfloat16
from aclnn.operators.silu import silu_forward
from tests.helpers.pages import before_the_end
from tests.kernels.test_elementwise import bits, run

for dtype in map(np.dtype, (np.float32, np.float16, bfloat16, np.float64)):
    for n in (1, 2, 16, 17, 32, 33, 100, 3000):
        x, out = before_the_end(2 * n - 1, dtype), before_the_end(2 * n - 1, dtype)
        x[...], out[...] = np.random.default_rng(n).normal(size=x.size), 7.0
        run(silu_forward, out[::2], x[::2])
        assert np.array_equal(bits(out[::2]), bits(run(silu_forward, np.empty(n, dtype), x[::2].copy()))), (dtype, n)
        assert np.all(out[1::2] == 7.0), (dtype, n)
print("moved")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through the C library, as Linux has it")
def test_every_other_element_is_moved_and_nothing_between_or_behind_touched() -> None:
    assert python("-c", EVERY_OTHER_ELEMENT) == "moved\n"


def failing(arguments: int, counter: int, step: int, end: int) -> None:
    if end > 2:
        raise ValueError("end: expected at most 2")


@pytest.mark.parametrize("by_address", [False, True])
def test_an_exception_of_a_kernel_reaches_the_caller(by_address: bool) -> None:
    """Formulas raise no exceptions, but the code around them may."""
    raising = kernel("failing", (), lambda: failing)

    def calling(arguments: int, counter: int, step: int, end: int) -> None:
        call_pointer(arguments, arguments, counter, step, end)

    run = kernel("calling", (), lambda: calling) if by_address else raising
    for _ in range(3):
        with pytest.raises(ValueError, match="end: expected at most 2"):
            threads.share(run, address_of(raising), 1, 100, 1000)


def hurried_derivative(x: float) -> float:
    """Return a formula whose first use is in two threads at once."""
    return reciprocal_derivative(x) + 1.0


def test_two_threads_that_ask_first_for_one_formula_both_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread must wait until the first has registered the formula with the compiler."""
    begun, failures = threading.Event(), []

    def slowly(function: Any = None, **options: bool) -> Any:
        begun.set()
        time.sleep(0.2)
        return register_jitable(function, **options)

    def ask() -> None:
        x = np.ones(100, np.float32)
        try:
            np.testing.assert_array_equal(run(hurried_derivative, np.empty_like(x), x, x), 2)
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(threads, "register_jitable", slowly)
    callers = [threading.Thread(target=ask) for _ in range(2)]
    callers[0].start()
    assert begun.wait(60)
    callers[1].start()
    for thread in callers:
        thread.join(120)
    assert not failures


@pytest.mark.parametrize("narrow", [np.dtype(np.float16), BFLOAT16])
def test_a_narrow_operand_with_gaps_as_wide_as_the_other_was_read_as_contiguous(narrow: np.dtype[Any]) -> None:
    """Every second float16 has the stride of contiguous float32."""
    rng = np.random.default_rng(6)
    dy, storage = rng.normal(size=100).astype(np.float32), np.full(200, np.nan, narrow)
    x = storage[::2]
    x[...] = rng.normal(size=100)
    np.testing.assert_array_equal(aclnn.gelu_backward_v2(dy, x), aclnn.gelu_backward_v2(dy, x.copy()))


@pytest.mark.parametrize("slope", [0.01, 0.2, 1.0 / 3.0, 2.5, -1e-5, 0.0])
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_products_with_a_number_of_float32_are_correctly_rounded(dtype: np.dtype[Any], slope: float) -> None:
    """Some derivatives round twice in float32 lanes, others only for subnormal results, which take the table."""
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    wide, number = x.astype(np.float64), float(np.float32(slope))
    with np.errstate(all="ignore"):
        expected = np.where(wide > 0.0, wide, wide * number)
        rounded = round_to_odd(expected).astype(dtype)
    got, given = np.empty_like(x), Layout(D.of_numpy(dtype), x.shape, (1,))
    kernels.elementwise(leaky_relu_forward, (given,), (given,), (number,)).run([x.ctypes.data], [got.ctypes.data], 0)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(bits(got)[~nan], bits(rounded)[~nan])
    assert np.isnan(got.astype(np.float32)[nan]).all()


def test_a_slope_of_a_hundredth_takes_no_table_in_float16() -> None:
    """With the adjacent float32 as the derivative, every product is correctly rounded."""
    given = Layout(D.FLOAT16, (64,), (1,))
    lanes = elementwise._Evaluator(leaky_relu_forward, (given,), (given,), (float(np.float32(0.01)),), None)
    assert lanes.constants.size == 1
    assert lanes.constants[0] != float(np.float32(0.01))
