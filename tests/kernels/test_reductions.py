"""Formulas over rows: values against long double, the same bits for any layout, threads and instruction set."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclnn import formula, kernels
from aclnn.core.dtypes import DataType as D
from aclnn.core.tensor import Layout
from aclnn.formula import exp, log, row_max, row_mean, row_sum, sqrt
from aclnn.kernels import Operand
from aclnn.kernels.cpu import target, threads
from aclnn.kernels.cpu.reductions import plans
from aclnn.kernels.cpu.reductions.rewrites import MOMENTS, PRODUCT_SUM, fused, with_moments
from aclnn.kernels.numpy_plans import ReductionPlan
from aclnn.kernels.trace import trace
from aclnn.operators import softmax as operators
from aclnn.operators.normalization import centred_norm
from tests.helpers.exact import NUMPY, rounded
from tests.helpers.guarded import Guarded, strides
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

EVERYWHERE = "f6b6f4248767931e949d5fcbf29b4d32b8e335adf2bd953fc16b3cabfa829a11"


def softmax(x: Any) -> Any:
    """Compute softmax: two reductions, of which one depends on the other."""
    powers = exp(x - row_max(x))
    return powers / row_sum(powers)


def softmax_gradient(dy: Any, y: Any) -> Any:
    """Compute softmax's gradient: a single reduction."""
    return y * (dy - row_sum(dy * y))


def norm(x: Any, w: Any, b: Any, eps: Any) -> Any:
    """Compute LayerNorm: two row-constant results, and two inputs for columns."""
    centred = x - row_mean(x)
    rstd = 1.0 / sqrt(row_mean(centred * centred) + eps)
    return centred * rstd * w + b, row_mean(x), rstd


def norm_gradients(dy: Any, x: Any, mean: Any, rstd: Any, w: Any) -> Any:
    """Compute LayerNorm's gradients: two sums over rows, and row-constant inputs."""
    xhat, g = (x - mean) * rstd, dy * w
    dw = dy * xhat
    return (g - row_mean(g) - xhat * row_mean(g * xhat)) * rstd, dw, dy


def entropy(x: Any) -> Any:
    """Compute an entropy: a row-constant result only, from the logarithm of a sum."""
    top = row_max(x)
    total = row_sum(exp(x - top))
    return row_sum(exp(x - top) / total * (log(total) - (x - top)))


class Case(NamedTuple):
    """A formula with the shapes of its operands, which broadcast to a common one."""

    formula: Callable[..., Any]
    dims: tuple[int, ...]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    summed: tuple[int, ...] = ()
    """The outputs that are sums."""
    numbers: tuple[float, ...] = ()


def rows_of(formula: Callable[..., Any], shape: Shape, dims: tuple[int, ...], weights: Shape | None = None) -> Case:
    """Make a case over a shape; a norm's weights have the shape of a row, or another one."""
    row = tuple(1 if axis in dims else extent for axis, extent in enumerate(shape))
    column = weights or tuple(extent if axis in dims else 1 for axis, extent in enumerate(shape))
    if formula is norm:
        return Case(formula, dims, (shape, column, column), (shape, row, row), (), (1e-5,))
    if formula is norm_gradients:
        return Case(formula, dims, (shape, shape, row, row, column), (shape, column, column), (1, 2))
    if formula is softmax_gradient:
        return Case(formula, dims, (shape, shape), (shape,))
    return Case(formula, dims, (shape,), (row if formula is entropy else shape,))


CASES = {
    "softmax": rows_of(softmax, (9, 300), (1,)),
    "softmax dim 0": rows_of(softmax, (70, 90), (0,)),
    "softmax dim 1": rows_of(softmax, (3, 20, 70), (1,)),
    "softmax of short rows": rows_of(softmax, (150, 7), (1,)),
    "softmax of one column": rows_of(softmax, (40, 1), (1,)),
    "softmax of one row": rows_of(softmax, (1, 40), (1,)),
    "softmax of two dims apart": rows_of(softmax, (3, 5, 2, 4, 40), (1, 3)),
    "softmax of three dims apart": rows_of(softmax, (3, 4, 5, 2, 70), (0, 2, 4)),
    "softmax of all": rows_of(softmax, (5, 6, 50), (0, 1, 2)),
    "softmax gradient": rows_of(softmax_gradient, (9, 300), (1,)),
    "entropy": rows_of(entropy, (9, 300), (1,)),
    "layer norm": rows_of(norm, (4, 5, 129), (2,)),
    "layer norm gradients": rows_of(norm_gradients, (4, 5, 129), (2,)),
    "gradients of short rows": rows_of(norm_gradients, (130, 6), (1,)),
    "group norm": rows_of(norm, (3, 4, 5, 70), (2, 3), (1, 4, 5, 1)),
    "group norm gradients": rows_of(norm_gradients, (3, 4, 5, 70), (2, 3), (1, 4, 5, 1)),
    "group norm gradients of short runs": rows_of(norm_gradients, (33, 2, 3, 4), (2, 3), (1, 2, 3, 1)),
    "group norm gradients of one channel": rows_of(norm_gradients, (3, 4, 1, 70), (2, 3), (1, 4, 1, 1)),
    "batch norm": rows_of(norm, (5, 6, 70), (0, 2), (1, 6, 1)),
    "batch norm of columns": rows_of(norm, (70, 90), (0,), (1, 90)),
    "adaptive norm gradients": rows_of(norm_gradients, (3, 20, 50), (2,), (3, 1, 50)),
    "gradients of two shapes": rows_of(norm_gradients, (3, 4, 5, 70), (2, 3), (1, 4, 5, 1))._replace(
        outputs=((3, 4, 5, 70), (1, 4, 5, 1), (1, 4, 5, 70))
    ),
}


def layout(array: Array) -> Layout:
    steps = tuple(step // array.itemsize for step in array.strides)
    return Layout(D.of_numpy(array.dtype), array.shape, steps)


def planned(case: Case, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> Any:
    return kernels.reduction(
        case.formula,
        [Operand(layout(array), shape) for array, shape in zip(inputs, case.inputs, strict=True)],
        [
            None if array is None else Operand(layout(array), shape, place in case.summed)
            for place, (array, shape) in enumerate(zip(outputs, case.outputs, strict=True))
        ],
        case.dims,
        case.numbers,
    )


def run(case: Case, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> None:
    plan = planned(case, inputs, outputs)
    assert not isinstance(plan, ReductionPlan)
    workspace = np.full(plan.workspace_bytes + 64, 0xA5, np.uint8)
    aligned = workspace.ctypes.data + -workspace.ctypes.data % 64
    expected = [array.ctypes.data for array in outputs if array is not None]
    plan.run([array.ctypes.data for array in inputs], expected, aligned)


def random_inputs(case: Case, dtype: np.dtype[Any], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in case.inputs]


def fresh(case: Case, dtype: np.dtype[Any]) -> list[Array]:
    return [np.full(shape, np.nan, dtype) for shape in case.outputs]


def exact(case: Case, inputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return the outputs in long double, and the magnitudes of their terms."""
    wide = [array.astype(np.longdouble) for array in inputs]
    mean = {"axis": case.dims, "keepdims": True}
    if case.formula in (softmax, entropy):
        (x,) = wide
        shifted = x - x.max(**mean)
        powers = np.exp(shifted)
        y = powers / powers.sum(**mean)
        found = y if case.formula is softmax else (y * (np.log(powers.sum(**mean)) - shifted)).sum(**mean)
        return [found], [np.abs(found)]
    if case.formula is softmax_gradient:
        dy, y = wide
        size = np.abs(dy * y).sum(**mean)
        return [y * (dy - (dy * y).sum(**mean))], [np.abs(y) * (np.abs(dy) + size)]
    if case.formula is norm:
        x, w, b = wide
        average = x.mean(**mean)
        rstd = 1 / np.sqrt(((x - average) ** 2).mean(**mean) + np.longdouble(case.numbers[0]))
        size = np.abs(x).mean(**mean)
        return [(x - average) * rstd * w + b, average, rstd], [
            (np.abs(x) + size) * rstd * np.abs(w) + np.abs(b),
            size,
            rstd,
        ]
    dy, x, average, rstd, w = wide
    xhat, g = (x - average) * rstd, dy * w
    one, two = g.mean(**mean), (g * xhat).mean(**mean)
    dx = (g - one - xhat * two) * rstd
    sizes = [np.abs(g).mean(**mean), np.abs(g * xhat).mean(**mean)]
    results, magnitudes = [dx], [(np.abs(g) + sizes[0] + np.abs(xhat) * sizes[1]) * np.abs(rstd)]
    for term, shape in zip((dy * xhat, dy), case.outputs[1:], strict=True):
        axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
        results.append(np.broadcast_to(term, case.outputs[0]).sum(axis=axes, keepdims=True))
        magnitudes.append(np.abs(np.broadcast_to(term, case.outputs[0])).sum(axis=axes, keepdims=True))
    return results, magnitudes


def assert_close(case: Case, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Allow half a unit in the last place and float64's error of the largest terms."""
    with np.errstate(all="ignore"):
        for got, want, size in zip(outputs, *exact(case, inputs), strict=True):
            near = rounded(want.astype(np.float64).reshape(-1), D.of_numpy(got.dtype)).reshape(want.shape)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(near))
            spacing = np.spacing(np.abs(near).astype(np.float32 if got.itemsize == 4 else got.dtype)).astype(np.float64)
            error = np.abs(got.astype(np.longdouble) - want)
            finite = np.isfinite(near.astype(np.float64))
            assert np.all((error <= 0.501 * spacing + 2.0**-44 * size)[finite])
            np.testing.assert_array_equal(got[~finite], near[~finite])


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_exact_ones_rounded_once(name: str) -> None:
    case, dtype = CASES[name], np.dtype(np.float32)
    inputs, outputs = random_inputs(case, dtype), fresh(case, dtype)
    run(case, inputs, outputs)
    assert_close(case, inputs, outputs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    ["softmax", "softmax of short rows", "group norm", "group norm gradients", "group norm gradients of short runs"],
)
def test_16_bit_results_are_rounded_once(name: str, dtype: D) -> None:
    """Inputs of every data type: elements, weights and row-constant ones."""
    case = CASES[name]
    inputs, outputs = random_inputs(case, NUMPY[dtype]), fresh(case, NUMPY[dtype])
    run(case, inputs, outputs)
    for got, want, size in zip(outputs, *exact(case, inputs), strict=True):
        near = rounded(want.astype(np.float64).reshape(-1), dtype).reshape(want.shape).astype(np.float64)
        assert np.all(np.abs(got.astype(np.float64) - near) <= 2.0**-7 * np.abs(near) * (got != near) + 2.0**-44 * size)
        assert np.count_nonzero(got.astype(np.float64) != near) <= 1 + got.size // 1000


MOST_BITS = ("softmax", "softmax dim 1", "layer norm gradients", "gradients of short rows")
"""The cases whose results are taken in float64."""


FORMS = ("softmax", "softmax dim 1", "gradients of two shapes", "group norm gradients of short runs")
"""Cases that have every part of a kernel: lanes along and across, maxima and sums of rows, both kinds over rows."""


def digest(*names: str) -> str:
    """Return a digest of one case's results, or of all cases', from float32."""
    found = hashlib.sha256()
    for name in names or CASES:
        case = CASES[name]
        outputs = fresh(case, np.dtype(np.float64 if name in MOST_BITS else np.float32))
        run(case, random_inputs(case, np.dtype(np.float32)), outputs)
        for output in outputs:
            found.update(output.tobytes())
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("usual_threads")
def test_bits_match_every_processor(count: int) -> None:
    threads.set_threads(count)
    assert digest() == EVERYWHERE


@pytest.mark.slow
@EVERY_OTHER_SET
def test_bits_match_other_instructions(elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere(__name__, elsewhere, *FORMS) == digest(*FORMS)


MORE_FORMS = ("softmax of short rows", "gradients of short rows", "group norm gradients of one channel")
WIDE = {name: CASES[name] for name in (*FORMS, *MORE_FORMS)} | {
    f"{formula.__name__} of {columns} columns": rows_of(formula, (150, columns), (1,))
    for formula in (operators.softmax_forward, operators.log_softmax_forward)
    for columns in (41, 300)
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_wide_vectors_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide vectors, chosen for 512-bit registers, are compiled for this processor."""
    case, results = WIDE[name], []
    for wide in (False, True):
        monkeypatch.setattr(target, "has_wide_registers", lambda wide=wide: wide)
        results.append(fresh(case, np.dtype(np.float32)))
        run(case, random_inputs(case, np.dtype(np.float32)), results[-1])
    for narrow, other in zip(*results, strict=True):
        np.testing.assert_array_equal(narrow.view(np.uint32), other.view(np.uint32))


VARIED = ["softmax", "softmax dim 1", "softmax of short rows", "layer norm gradients", "group norm gradients"]


@settings(max_examples=60)
@given(st.data(), st.sampled_from(VARIED))
def test_every_layout_gives_the_same_bits_and_touches_nothing_else(data: Any, name: str) -> None:
    case, dtype = CASES[name], np.dtype(np.float32)
    given_, expected = random_inputs(case, dtype), fresh(case, dtype)
    run(case, given_, expected)
    inputs, outputs = [], []
    for array in given_:
        inputs.append(Guarded(D.FLOAT, array.shape, data.draw(strides(array.shape, overlap=False))).fill(array))
    for array in expected:
        outputs.append(Guarded(D.FLOAT, array.shape, data.draw(strides(array.shape, overlap=False))))
    run(case, [view.array for view in inputs], [view.array for view in outputs])
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got.array, want)
        assert got.unchanged_outside()
    assert all(view.unchanged() for view in inputs)


@pytest.mark.parametrize("name", ["softmax gradient", "softmax dim 1", "layer norm gradients", "batch norm"])
@pytest.mark.parametrize("shift", [0, 1, -3])
def test_outputs_over_inputs_are_as_if_the_inputs_had_been_read_before(name: str, shift: int) -> None:
    case, dtype = CASES[name], np.dtype(np.float32)
    inputs, expected = random_inputs(case, dtype), fresh(case, dtype)
    run(case, inputs, expected)
    storage = np.zeros(inputs[0].size + 8, dtype)
    inputs[0] = storage[4 : 4 + inputs[0].size].reshape(inputs[0].shape)
    inputs[0][...] = random_inputs(case, dtype)[0]
    outputs = fresh(case, dtype)
    outputs[0] = storage[4 + shift : 4 + shift + inputs[0].size].reshape(inputs[0].shape)
    run(case, inputs, outputs)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["softmax", "softmax dim 1", "layer norm gradients", "batch norm"])
@pytest.mark.parametrize("spoilt", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_does_not_affect_others(name: str, spoilt: float) -> None:
    case, dtype = CASES[name], np.dtype(np.float32)
    inputs, expected, outputs = random_inputs(case, dtype), fresh(case, dtype), fresh(case, dtype)
    run(case, inputs, expected)
    inputs[0][(0,) * inputs[0].ndim] = spoilt
    run(case, inputs, outputs)
    first = tuple(slice(None) if axis in case.dims else 0 for axis in range(inputs[0].ndim))
    others = np.ones(inputs[0].shape, bool)
    others[first] = False
    np.testing.assert_array_equal(outputs[0][others], expected[0][others])
    assert not np.array_equal(outputs[0][first], expected[0][first], equal_nan=False)


@pytest.mark.parametrize("values", ["large", "shifted", "equal", "subnormal", "wide"])
@pytest.mark.parametrize("name", ["softmax", "softmax gradient", "layer norm", "layer norm gradients", "batch norm"])
def test_special_numbers_propagate_as_in_the_formula(name: str, values: str) -> None:
    case, dtype = CASES[name], np.dtype(np.float32)
    inputs, outputs = random_inputs(case, dtype), fresh(case, dtype)
    x = inputs[0]
    if values == "large":
        x[(0,) * x.ndim] = 1e30
    elif values == "shifted":
        x += np.float32(1e4)
    elif values == "equal":
        x[...] = 0.3
    elif values == "subnormal":
        x *= np.float32(1e-41)
    else:
        x *= np.exp2(np.random.default_rng(1).uniform(-60, 60, x.shape)).astype(dtype)
    run(case, inputs, outputs)
    assert_close(case, inputs, outputs)


def test_long_rows_add_up_to_one() -> None:
    x = np.random.default_rng(2).normal(size=(3, 65_536)).astype(np.float32) * 4
    case, y = rows_of(softmax, x.shape, (1,)), np.empty_like(x)
    run(case, [x], [y])
    assert_close(case, [x], [y])
    assert np.all(np.abs(y.sum(1, dtype=np.float64) - 1) <= 65_536 * 2.0**-24)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_rows_without_columns_add_up_to_zero(shape: Shape) -> None:
    case = rows_of(entropy, shape, (1,))
    out = np.full((shape[0], 1), np.nan, np.float32)
    plan = planned(case, [np.empty(shape, np.float32)], [out])
    plan.run([0], [out.ctypes.data], 0)
    np.testing.assert_array_equal(out, np.zeros_like(out))


def test_large_results_go_around_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Non-temporal stores from any address on, and with gaps between rows."""
    x = np.random.default_rng(3).normal(size=(5, 4000)).astype(np.float32)
    case, want = rows_of(softmax, x.shape, (1,)), np.empty_like(x)
    run(case, [x], [want])
    monkeypatch.setattr(plans, "STREAM_BYTES", 1)
    for shift in (0, 1, 7):
        for pitch in (4000, 4013):
            storage = np.full(5 * pitch + 64, np.nan, np.float32)
            out = np.lib.stride_tricks.as_strided(storage[shift:], x.shape, (4 * pitch, 4))
            run(case, [x], [out])
            np.testing.assert_array_equal(out, want)
            assert np.isnan(storage).sum() == storage.size - x.size


@pytest.mark.parametrize("summed", [(1, 4000), (5, 1)], ids=["sums of columns", "totals"])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16)], ids=str)
def test_large_results_go_around_the_cache_with_sums_too(
    summed: Shape, dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums need element i in lane i modulo 16, so that non-temporal stores begin at whole cache lines."""

    def centred(dy: Any, x: Any) -> Any:
        return dy - row_mean(dy), dy * x

    case = Case(centred, (1,), ((5, 4000),) * 2, ((5, 4000), summed), (1,))
    inputs, (_, *sums) = random_inputs(case, dtype), fresh(case, np.dtype(np.float64))
    outputs = [np.empty((5, 4000), dtype), *sums]
    run(case, inputs, outputs)
    monkeypatch.setattr(plans, "STREAM_BYTES", 1)
    for shift in (0, 1, 7):
        for pitch in (4000, 4032, 4013):
            storage = np.full(5 * pitch + 128, np.nan, dtype)
            first = shift + (-storage.ctypes.data % 64) // dtype.itemsize
            step = dtype.itemsize
            dx = np.lib.stride_tricks.as_strided(storage[first:], (5, 4000), (step * pitch, step))
            found = [dx, *(np.full_like(output, np.nan) for output in outputs[1:])]
            run(case, inputs, found)
            for one, other in zip(found, outputs, strict=True):
                np.testing.assert_array_equal(one, other)
            assert np.isnan(storage).sum() == storage.size - dx.size


def test_results_may_be_omitted_and_numbers_given_for_tensors() -> None:
    x = np.random.default_rng(4).normal(size=(20, 200)).astype(np.float32)
    rstd = np.empty((20, 1), np.float32)
    plan = kernels.reduction(
        norm, [Operand(layout(x), x.shape), 1.0, 0.0], [None, None, Operand(layout(rstd), (20, 1))], (1,), (0.5,)
    )
    plan.run([x.ctypes.data], [rstd.ctypes.data], 0)
    want = 1 / np.sqrt(x.astype(np.float64).var(axis=1, keepdims=True) + 0.5)
    np.testing.assert_allclose(rstd, want, rtol=2.0**-24)


@pytest.mark.parametrize(("x", "out", "outputs"), [(D.DOUBLE, D.DOUBLE, "rows"), (D.FLOAT, D.BF16, "elements")])
def test_a_common_offset_of_all_rows_keeps_its_digits(x: D, out: D, outputs: str) -> None:
    """A float64 operand common to all rows, with row-constant results alone or 16-bit results."""
    shape, row = (4096, 64), (1, 64)
    of_rows = outputs == "rows"
    case = Case(
        (lambda x, w: row_sum(x * w)) if of_rows else (lambda x, w: (x * w - x) * 2.0**40 + 0.0 * row_sum(x)),
        (1,),
        (shape, row),
        ((4096, 1) if of_rows else shape,),
    )
    rng = np.random.default_rng(6)
    inputs = [rng.normal(size=shape).astype(NUMPY[x]), 1.0 + rng.normal(size=row) * 2.0**-40]
    results = [np.full(case.outputs[0], np.nan, NUMPY[out])]
    run(case, inputs, results)
    wide = inputs[0].astype(np.longdouble)
    expected = (
        (wide * inputs[1]).sum(1, keepdims=True)
        if of_rows
        else (wide * (inputs[1].astype(np.longdouble) - 1)) * 2.0**40
    )
    error = abs(results[0].astype(np.longdouble) - expected)
    assert np.max(error) <= (2.0**-40 if of_rows else 2.0**-8 * np.max(abs(expected)))


def test_a_mean_and_a_variance_are_found_in_one_pass() -> None:
    """A second pass for the variance would change only the time."""
    for one in (norm, centred_norm):
        moments = [step for step in with_moments(trace(one, 4).steps) if step.template in MOMENTS]
        assert len(moments) == len(MOMENTS)
        assert {step.operands[0] for step in moments} == {"x0"}


def test_a_product_that_is_taken_twice_is_rounded() -> None:
    def once(x: Any, y: Any, z: Any) -> Any:
        return x * y + z, row_sum(x * z)

    def twice(x: Any, y: Any, z: Any) -> Any:
        return x * y + z, x * y, row_sum(x * z) - x * z

    for one, templates in ((once, {"fma({}, {}, {})", PRODUCT_SUM}), (twice, {"{} + {}", "row_sum({})"})):
        program = trace(one, 3)
        steps = fused(program.steps, program.results, only_sums=False)
        assert {step.template for step in steps} >= templates
        assert not {step.template for step in steps} & ({"{} + {}", "row_sum({})"} - templates)


def test_a_term_may_be_multiplied_with_two_numbers_of_each_run() -> None:
    def both(x: Any, a: Any, b: Any) -> Any:
        return x - row_sum(x * a) * row_sum(x * b), x

    shape, factors = (3, 4, 5, 70), (1, 4, 5, 1)
    case = Case(both, (2, 3), (shape, factors, factors), (shape, factors), (1,))
    x, a, b = inputs = random_inputs(case, np.dtype(np.float64))
    out, total = outputs = fresh(case, np.dtype(np.float64))
    run(case, inputs, outputs)
    sums = ((x * factor).sum(axis=(2, 3), keepdims=True) for factor in (a, b))
    np.testing.assert_allclose(out, x - math.prod(sums), rtol=1e-9)
    np.testing.assert_allclose(total, x.sum(axis=(0, 3), keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("wide", [False, True])
def test_sums_of_runs_have_the_same_bits_across_rows_and_without_totals(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are factored out of row sums, whose partial sums of runs also serve as totals."""
    monkeypatch.setattr(target, "has_wide_registers", lambda: wide)
    case = rows_of(norm_gradients, (40, 3, 5, 19), (2, 3), (1, 3, 5, 1))
    inputs, outputs = random_inputs(case, np.dtype(np.float32)), fresh(case, np.dtype(np.float64))
    run(case, inputs, outputs)
    for order in ("C", "F"):  # lanes run along rows, and across them
        dx = np.empty(case.outputs[0], order=order)
        run(case, [np.array(array, order=order) for array in inputs], [dx, None, None])
        np.testing.assert_array_equal(dx, outputs[0])


def test_a_new_attribute_value_does_not_recompile() -> None:
    from aclnn.kernels.cpu import jit

    case = CASES["layer norm"]
    inputs, outputs = random_inputs(case, np.dtype(np.float32)), fresh(case, np.dtype(np.float32))
    run(case, inputs, outputs)
    kept = len(jit._compiled)
    run(case._replace(numbers=(0.25,)), inputs, outputs)
    assert len(jit._compiled) == kept
    assert_close(case._replace(numbers=(0.25,)), inputs, outputs)


@pytest.mark.parametrize(
    "word", ["exp", "expm1", "log", "log1p", "log1pexp", "tanh", "erf", "erfc", "sqrt", "absolute"]
)
def test_numpy_has_every_word(word: str) -> None:
    """NumPy's plans, for rows of integers, define every function of a formula."""
    function = getattr(formula, word)
    x, y = np.array([[1, 2, 3]], np.int32), np.zeros((1, 1), np.float64)
    operands = [Operand(layout(array), array.shape) for array in (x, y)]
    plan = ReductionPlan(lambda x: formula.row_sum(function(x)), operands[:1], operands[1:], (1,), ())
    plan.run((x.ctypes.data,), (y.ctypes.data,), 0)
    assert y[0, 0] == pytest.approx(sum(function(float(value)) for value in x[0]), rel=1e-14)
