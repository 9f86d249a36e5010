"""Gradients of norms with results of 16 bits: float32 lanes, sums in float32, and where these do not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from aclnn import kernels
from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Layout
from aclnn.kernels import Operand
from aclnn.kernels.cpu import target, threads
from aclnn.kernels.cpu.reductions.along import MOST_RUNS
from aclnn.kernels.cpu.reductions.rewrites import combined
from aclnn.kernels.trace import trace
from aclnn.operators.normalization import centred_norm_gradients, input_gradient
from tests.helpers.exact import NUMPY, ulp_of

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]

SAMPLES, ROWS, COLUMNS = 2, 20, 300
ALL, SAMPLE, ROW, COLUMN = (SAMPLES, ROWS, COLUMNS), (SAMPLES, 1, COLUMNS), (SAMPLES, ROWS, 1), (1, 1, COLUMNS)
SHAPES = {"dy": ALL, "x1": ALL, "x2": ALL, "mean": ROW, "rstd": ROW, "w": COLUMN, "b": COLUMN, "s": SAMPLE, "more": ALL}
SUMS = SAMPLE, SAMPLE, COLUMN, COLUMN
DTYPES = pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=["float16", "bfloat16"])


def gradients(dy: Any, x1: Any, x2: Any, mean: Any, rstd: Any, w: Any, b: Any, s: Any, more: Any) -> Any:
    """Return the gradient for x1 of a norm of x1 + x2 plus an addend, and the terms of those for s, t, w and b."""
    xhat, factor = (x1 + x2 - mean) * rstd, 1.0 + s
    dw = dy * xhat
    return input_gradient(dy * (factor * w), xhat, rstd) + more, dw * w + dy * b, dy, dw * factor, dy * factor


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = threads.shared().threads
    yield
    threads.set_threads(before)


def random_inputs(dtype: D) -> Inputs:
    rng = np.random.default_rng(4)
    return {name: rng.normal(size=shape).astype(NUMPY[dtype]) for name, shape in SHAPES.items()}


def scaled(inputs: Inputs, **factors: Any) -> Inputs:
    """Multiply some inputs, in float64."""
    return {
        name: (array.astype(np.float64) * factors.get(name, 1.0)).astype(array.dtype) for name, array in inputs.items()
    }


def operand(array: Array, summed: bool = False) -> Operand:
    steps = tuple(step // array.itemsize for step in array.strides)
    return Operand(Layout(D.of_numpy(array.dtype), array.shape, steps), array.shape, summed)


def run(
    inputs: Inputs,
    dtype: Any = None,
    formula: Any = gradients,
    sums: Sequence[tuple[int, ...]] = SUMS,
    dims: tuple[int, ...] = (2,),
) -> list[Array]:
    """Compute the gradient, by default in the inputs' data type, and float32 sums."""
    given = list(inputs.values())
    outputs = [np.full(given[0].shape, np.nan, dtype or given[0].dtype)]
    outputs += [np.full(shape, np.nan, np.float32) for shape in sums]
    written = [operand(array, summed=place > 0) for place, array in enumerate(outputs)]
    plan = kernels.reduction(formula, [operand(array) for array in given], written, dims)
    workspace = np.full(plan.workspace_bytes + 64, 0xA5, np.uint8)
    addresses = ([array.ctypes.data for array in arrays] for arrays in (given, outputs))
    plan.run(*addresses, workspace.ctypes.data + -workspace.ctypes.data % 64)
    return outputs


def assert_within(outputs: Sequence[Array], expected: Sequence[tuple[Any, Any]]) -> None:
    """Allow half a unit in the last place in addition to ``lost``."""
    for got, (exact, lost) in zip(outputs, expected, strict=True):
        allowed = lost + 0.5001 * ulp_of(exact.astype(np.float64), D.of_numpy(got.dtype))
        assert np.all(abs(got.astype(np.longdouble) - exact) <= allowed)


def check(inputs: Inputs, outputs: Sequence[Array]) -> None:
    """Allow half a unit in the last place, and the error of terms in float32 lanes from docs/numerics-rows.md."""
    dy, x1, x2, mean, rstd, w, b, s, more = (array.astype(np.longdouble) for array in inputs.values())
    xhat, factor = (x1 + x2 - mean) * rstd, 1 + s
    g = dy * factor * w
    first, second = (term.mean(axis=2, keepdims=True) for term in (g, g * xhat))
    sizes = [abs(term).mean(axis=2, keepdims=True) for term in (g, g * xhat)]
    size = (abs(g) + sizes[0] + abs(xhat) * sizes[1]) * abs(rstd) + abs(more)
    expected = [((g - first - xhat * second) * rstd + more, size * 2.0**-19)]
    terms = dy * xhat * w + dy * b, dy, dy * xhat * factor, dy * factor
    magnitudes = abs(dy * xhat * w) + abs(dy * b), abs(dy), abs(terms[2]), abs(terms[3])
    for term, magnitude, shape in zip(terms, magnitudes, SUMS, strict=True):
        dims = tuple(dim for dim, extent in enumerate(shape) if extent == 1)
        lost = magnitude.sum(axis=dims, keepdims=True) * 2.0**-19
        expected.append((term.sum(axis=dims, keepdims=True), lost))
    assert_within(outputs, expected[: len(outputs)])


@DTYPES
def test_results_are_within_the_bounds(dtype: D) -> None:
    inputs = random_inputs(dtype)
    outputs = run(inputs)
    check(inputs, outputs)
    wide = run({name: array.astype(np.float64) for name, array in inputs.items()}, NUMPY[dtype])
    assert np.mean(outputs[0] == wide[0]) > 0.999


@DTYPES
def test_rounding_errors_of_float32_sums_count(dtype: D) -> None:
    """The larger operand is constant, so that the difference from the mean comes from the smaller one alone."""
    inputs = scaled(random_inputs(dtype), x2=2.0**-10)
    inputs["x1"][...] = 4096.0
    x = inputs["x1"].astype(np.float64) + inputs["x2"].astype(np.float64)
    inputs["mean"], inputs["rstd"] = x.mean(axis=2, keepdims=True), 1 / x.std(axis=2, keepdims=True)
    check(inputs, run(inputs))


@pytest.mark.parametrize(
    ("dy", "w", "x"),
    [(1e-36, 1e-7, 1e-12), (1e-30, 1e-20, 1e-29), (1e25, 1e20, 1e30), (0.0, 1.0, 1.0)],
    ids=["subnormal products", "products that vanish", "products that overflow", "zeros"],
)
def test_rows_whose_products_float32_does_not_hold_are_computed_in_float64(dy: float, w: float, x: float) -> None:
    """Other rows keep their bits."""
    usual = random_inputs(D.BF16)
    usual["rstd"] = abs(usual["rstd"])
    every_second = np.where(np.arange(ROWS).reshape(1, -1, 1) % 2, 1.0, 0.0)

    def there(factor: float) -> Array:
        return every_second * factor + (1 - every_second)

    usual = scaled(usual, w=w, more=1 - every_second)
    inputs = scaled(usual, dy=there(dy), x1=there(x), x2=there(x), mean=there(x), rstd=there(1 / x))
    outputs, before = run(inputs), run(usual)
    check(inputs, outputs[:1])
    np.testing.assert_array_equal(outputs[0][:, ::2], before[0][:, ::2])
    assert np.isfinite(outputs[0].astype(np.float64)).all()
    assert dy == 0 or np.count_nonzero(outputs[0][:, 1::2]) > 0.99 * outputs[0][:, 1::2].size


def test_an_element_that_overflows_on_the_way_is_computed_in_float64() -> None:
    """Before the addend is added, the gradient overflows float32."""
    inputs = scaled(random_inputs(D.BF16), dy=2.0**90, x1=2.0**-36, x2=2.0**-36, mean=2.0**-36, more=0.0)
    inputs["rstd"] = np.full(ROW, 2.0**36, NUMPY[D.BF16])
    alone = run(inputs)[0].astype(np.float64)
    infinite = np.isinf(alone)
    assert 0.0 < np.mean(infinite) < 0.5
    inputs["more"] = np.where(infinite, -np.sign(alone) * 2.0**127, 0.0).astype(NUMPY[D.BF16])
    found = run(inputs)[0].astype(np.float64)
    assert np.mean(np.isfinite(found[infinite])) > 0.5
    np.testing.assert_array_equal(found[~infinite], alone[~infinite])


def test_sums_over_rows_do_not_overflow_on_the_way() -> None:
    """A few rows are accumulated in float32, where two of these terms would overflow."""
    inputs = scaled(random_inputs(D.BF16), dy=0.0, rstd=0.03125, w=2.0**-60, b=2.0**-10, s=0.0)
    inputs["dy"] += np.where(np.arange(ROWS) < ROWS // 2, 1e38, -0.95e38).reshape(1, -1, 1).astype(NUMPY[D.BF16])
    outputs = run(inputs)
    check(inputs, outputs)
    assert all(np.isfinite(array.astype(np.float64)).all() for array in outputs)


def run_groups(inputs: Inputs) -> list[Array]:
    """Compute GroupNorm's gradients."""
    parameter = inputs["w"].shape
    return run(inputs, formula=centred_norm_gradients, sums=(parameter, parameter), dims=(2, 3))


def random_groups(dtype: D, channels: int = 4, pixels: int = 600) -> Inputs:
    """Draw two samples of three groups."""
    shape, parameter = (2, 3, channels, pixels), (1, 3, channels, 1)
    shapes = {"dy": shape, "x": shape, "mean": (2, 3, 1, 1), "rstd": (2, 3, 1, 1), "w": parameter}
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=extents).astype(NUMPY[dtype]) for name, extents in shapes.items()}


def check_groups(inputs: Inputs, outputs: Sequence[Array]) -> None:
    """Allow the errors from docs/numerics-rows.md, also of sums of channels."""
    dy, x, mean, rstd, w = (array.astype(np.longdouble) for array in inputs.values())
    g, xhat = dy * w, (x - mean) * rstd
    first, second = (term.mean(axis=(2, 3), keepdims=True) for term in (g, g * xhat))
    sizes = [abs(term).mean(axis=(2, 3), keepdims=True) for term in (g, g * xhat)]
    size = (abs(g) + sizes[0] + abs(xhat) * sizes[1]) * abs(rstd)
    expected = [((g - first - xhat * second) * rstd, size * 2.0**-19)]
    for term in (dy * xhat, dy):
        lost = abs(term).sum(axis=(0, 3), keepdims=True) * 2.0**-19
        expected.append((term.sum(axis=(0, 3), keepdims=True), lost))
    assert_within(outputs, expected)


@DTYPES
@pytest.mark.parametrize(
    ("channels", "pixels"), [(4, 600), (40, 1), (4, 33), (MOST_RUNS + 1, 8)], ids=["blocks", "one", "short", "many"]
)
def test_sums_of_channels_are_within_the_bounds(dtype: D, channels: int, pixels: int) -> None:
    inputs = random_groups(dtype, channels, pixels)
    check_groups(inputs, run_groups(inputs))


def test_a_group_computed_in_float64_adds_to_the_sums_of_channels_once() -> None:
    """Products that overflow float32 are detected only after the channels' sums have been accumulated."""
    inputs = random_groups(D.BF16)
    usual = np.array([False, True, False, True, False, True]).reshape(2, 3, 1, 1)
    size = np.array([1e25, 1.0, 1e-30, 1.0, 0.0, 1e25]).reshape(usual.shape)
    inputs = scaled(random_groups(D.BF16), dy=size, w=np.array([1e20, 1.0, 1e-10]).reshape(1, 3, 1, 1))
    large = np.where(np.arange(6).reshape(usual.shape) == 0, 1e20, 1.0)
    inputs = scaled(inputs, x=large, mean=large, rstd=1 / large)
    outputs = run_groups(inputs)
    check_groups(inputs, outputs)
    assert all(np.isfinite(array.astype(np.float64)).all() for array in outputs)
    others = run_groups(scaled(inputs, dy=np.where(usual, 1.0, 0.0)))
    chosen = np.broadcast_to(usual, outputs[0].shape)
    np.testing.assert_array_equal(outputs[0][chosen], others[0][chosen])


@DTYPES
@pytest.mark.parametrize(
    ("make", "compute"), [(random_inputs, run), (random_groups, run_groups)], ids=["rows", "groups"]
)
def test_threads_vectors_and_layouts_change_no_bit(
    make: Callable[[D], Inputs],
    compute: Callable[[Inputs], list[Array]],
    dtype: D,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, results = make(dtype), []
    for wide, count, order in ((True, 1, "C"), (False, 2, "C"), (True, 2, "F")):
        monkeypatch.setattr(target, "has_wide_registers", lambda wide=wide: wide)
        threads.set_threads(count)
        results.append(compute({name: np.array(array, order=order) for name, array in inputs.items()}))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_sums_whose_terms_differ_by_factors_of_all_rows_are_added_up_once() -> None:
    program = trace(gradients, len(SHAPES))
    same = [f"x{place}" for place, shape in enumerate(SHAPES.values()) if shape in (SAMPLE, COLUMN)]
    found = combined(program.steps, program.results[1:], same)
    assert found is not None
    bases, steps = found
    assert len(bases) == 2
    assert "x0" in bases
    assert {step.result for step in steps} >= {*program.results[1:]} - {*bases}
    assert combined(program.steps, program.results[2:4], same) is None
