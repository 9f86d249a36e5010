"""Program of test_triton_kernels, with TRITON_INTERPRET=1: compare the GPU's kernels with the CPU's and float64."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import torch
import triton
from triton import language as tl

import aclnn
from aclnn import kernels
from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.formula import Fitted, Gradient
from aclnn.kernels.cuda import launch, norm_backward
from aclnn.kernels.cuda.rows import chunk_count, chunk_indices
from aclnn.kernels.sixteen_bit import evaluate, round_to_odd
from tests.helpers.triton_hardware import BFLOAT16

import_module("aclnn.operators")
MODULES = [
    sys.modules[f"aclnn.operators.{name}"]
    for name in (
        "elu",
        "fast_gelu",
        "gelu",
        "hardsigmoid",
        "hardswish",
        "log_sigmoid",
        "mish",
        "selu",
        "silu",
        "softplus",
        "swish",
    )
]
FORMULAS: dict[str, Callable[[float], float]] = {
    name: value for module in MODULES for name, value in vars(module).items() if isinstance(value, Fitted)
}
BOTH = "cpu", "cuda"
TYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]


def layout(array: Any) -> Layout | None:
    if array is None:
        return None
    steps = tuple(stride // array.itemsize for stride in array.strides)
    return Layout(DataType.of_numpy(array.dtype), array.shape, steps)


def address(array: Any) -> int:
    return 0 if array is None else int(array.ctypes.data)


def computed(device: str, formula: Any, inputs: Iterable[Any], outs: Iterable[Any], numbers: Any = ()) -> list[Any]:
    """Run a plan for these tensors; return the outputs."""
    inputs, outs = list(inputs), list(outs)
    plan = kernels.elementwise(formula, tuple(map(layout, inputs)), tuple(map(layout, outs)), numbers, device)  # type: ignore[arg-type]  # none is None
    plan.run(list(map(address, inputs)), list(map(address, outs)), 0)
    return outs


def elementwise(name: str, inputs: Iterable[Any], out: Any, device: str) -> Any:
    formula = Gradient(FORMULAS[name]) if name.endswith("_derivative") else FORMULAS[name]
    return computed(device, formula, inputs, [out])[0]


def same(ours: Any, theirs: Any) -> bool:
    """Return true if all bits are equal, or both numbers are NaN."""
    unsigned = np.uint32 if ours.itemsize == 4 else np.uint16
    nan = np.isnan(ours.astype(np.float32)) & np.isnan(theirs.astype(np.float32))
    return bool(np.all((ours.copy().view(unsigned) == theirs.copy().view(unsigned)) | nan))


def sample(count: int) -> Any:
    """Draw float32 of all magnitudes, from N(0, 1) and N(0, 6), and edge cases."""
    generator = np.random.default_rng(5)
    patterns = generator.integers(0, 2**32, count // 3, dtype=np.uint64).astype(np.uint32)
    edges = [0.0, -0.0, 1e-45, -1e-45, 3.0, -3.0, 1.0, 3e38, -3e38, np.inf, -np.inf, np.nan, 4.999, -5.001, -104.0]
    normal = generator.normal(size=count // 3)
    x = np.concatenate([edges, patterns.view(np.float32), normal, 6.0 * generator.normal(size=count // 3)])
    return x.astype(np.float32)


def check_float32() -> None:
    x = sample(1500)
    for name in FORMULAS:
        inputs = (np.ones_like(x), x) if name.endswith("_derivative") else (x,)
        ours = elementwise(name, inputs, np.full_like(x, np.nan), "cuda")
        assert same(ours, elementwise(name, inputs, np.empty_like(x), "cpu")), name
        exact = evaluate(FORMULAS[name], x.astype(np.float64))
        finite = np.isfinite(x)
        assert np.array_equal(np.isnan(ours), np.isnan(exact)), name
        with np.errstate(all="ignore"):
            unit = np.maximum(np.spacing(np.abs(exact.astype(np.float32))).astype(np.float64), 2.0**-149)
            worst = float(np.max((np.abs(ours.astype(np.float64) - exact) / unit)[finite]))
        assert worst <= 2.0, (name, worst)


def check_16_bit() -> None:
    """Check that results of all 16-bit inputs are correctly rounded."""
    names = "silu_derivative", "gelu_erf_derivative", "hardswish_forward", "hardsigmoid_forward"
    for name, dtype in itertools.product(names, TYPES[1:]):
        x = np.arange(0, 65536, dtype=np.uint16).view(dtype)
        inputs = (np.ones_like(x), x) if name.endswith("_derivative") else (x,)
        with np.errstate(all="ignore"):
            ours = elementwise(name, inputs, np.empty_like(x), "cuda")
            exact = round_to_odd(evaluate(FORMULAS[name], x.astype(np.float64))).astype(dtype)
        assert same(ours, exact), (name, dtype)


def check_general() -> None:
    """Compare bits with the CPU's for attributes, two results, halves of a tensor, and mixed data types."""
    elu, swi_glu = (sys.modules[f"aclnn.operators.{name}"] for name in ("elu", "swi_glu"))
    clipped = sys.modules["aclnn.operators.clipped_swiglu"]
    x, generator = sample(1200)[:1024], np.random.default_rng(6)
    dy = generator.choice(x, x.size)
    numbers = [(1.0, 1.0, 1.0), (0.0, 1.5, -3e30), (math.inf, 0.1, 1e-30)]
    mixed = [(TYPES[0], TYPES[1], TYPES[2]), (TYPES[2], TYPES[0], TYPES[1])]
    for given, (*types, out_type) in itertools.product(numbers, [(dtype,) * 3 for dtype in TYPES] + mixed):
        inputs = [a.astype(dtype) for a, dtype in zip((dy, x), types, strict=True)]
        on = [computed(d, Gradient(elu.elu_derivative), inputs, [np.empty(x.shape, out_type)], given) for d in BOTH]
        assert same(*on[0], *on[1]), (given, types, out_type)
    for dtype in TYPES:
        rows = dy.astype(dtype)[:512].reshape(8, 64)
        on = []
        for device in BOTH:
            whole, out = x.astype(dtype).reshape(8, 128), np.full((8, 128), np.nan, dtype)
            halves = (out[:, :64], out[:, 64:])
            computed(device, swi_glu.swi_glu_gradient, (rows, whole[:, :64], whole[:, 64:]), halves)
            in_place = whole[:, :64], whole[:, 64:]
            computed(device, swi_glu.swi_glu_gradient, (rows, *in_place), in_place)
            assert same(whole, out), dtype
            on.append(out)
        assert same(*on), dtype
        operands = [np.roll(x, 7 * k).astype(dtype) for k in range(3)]
        for formula, given in (
            (clipped.clipped_swiglu_gradient, (1.75, 7.0, 1.0)),
            (clipped.clipped_quick_swiglu_gradient, (7.0, 1.0)),
        ):
            outs = ([np.empty_like(operands[0]) for _ in range(2)] for _ in BOTH)
            on = [computed(d, formula, operands, out, given) for d, out in zip(BOTH, outs, strict=True)]
            assert all(map(same, *on)), (formula, dtype)


def check_tables() -> None:
    """Check that tables of functions with numbers are limited in number, and that bits without one are the same."""
    from aclnn.kernels.cuda import elementwise as kernels_of

    elu = sys.modules["aclnn.operators.elu"]
    x = np.arange(0, 65536, dtype=np.uint16).view(np.float16)
    before = len(kernels_of._tables_with_numbers)
    kernels_of._MOST = before + 2
    for alpha, tables in ((0.0, 1), (-0.0, 2), (0.9, 2), (0.0, 2)):
        on = [computed(d, elu.elu_forward, [x], [np.empty_like(x)], (alpha, 1.0, 1.0)) for d in BOTH]
        assert same(*on[0], *on[1]), alpha
        assert len(kernels_of._tables_with_numbers) == before + tables


def check_layouts() -> None:
    launch.MOST_PROGRAMS = 2  # so that grids have a third dimension, as those of 2^26 elements may
    generator = np.random.default_rng(2)

    def drawn(*shape: int, dtype: Any = TYPES[0]) -> Any:
        return generator.normal(size=shape).astype(dtype)

    cases = [
        (drawn(3, 5, 7), drawn(3, 5, 7).transpose(0, 1, 2)[:, ::-1], (3, 5, 7)),
        (drawn(70, 90).T, drawn(90, 70), (90, 70)),
        (np.broadcast_to(drawn(5, 1), (5, 130)), np.broadcast_to(drawn(130), (5, 130)), (5, 130)),
        (drawn(2, 3, 2, 5)[:, ::2], drawn(2, 4, 2, 10)[:, 1:3, :, ::2], (2, 2, 2, 5)),
        (drawn(4, 33, dtype=TYPES[1]), drawn(4, 33, dtype=BFLOAT16), (4, 33)),
        (drawn(5, 640)[:, :600], drawn(5, 608)[:, :600], (5, 600)),
        (drawn(5, 640)[:, :601], np.broadcast_to(drawn(601), (5, 601)), (5, 601)),
        (np.array(2.0, np.float32), np.array(0.5, np.float32), ()),
    ]
    for dy, x, shape in cases:
        for dtype in TYPES:
            out = np.full((*shape, 2), np.nan, dtype)[..., 0]
            ours = elementwise("silu_derivative", (dy, x), out, "cuda")
            slope = evaluate(FORMULAS["silu_derivative"], np.ascontiguousarray(x, np.float64).reshape(-1))
            exact = dy.astype(np.float64) * slope.reshape(shape)
            np.testing.assert_allclose(
                ours.astype(np.float64), exact, rtol=2 * float(ml_dtypes.finfo(dtype).eps), atol=1e-7
            )
    for shape, strides in (((4, 6), (2, 1)), ((5, 3), (1, 1)), ((2, 3, 4), (0, 3, 1)), ((3, 7), (3, -1))):
        x = drawn(*shape)
        written = []
        for device in ("cuda", "cpu"):  # elements of the output coincide: the last one stays
            memory = np.full(64, np.nan, np.float32)
            out = np.lib.stride_tricks.as_strided(memory[20:], shape, tuple(4 * step for step in strides))
            elementwise("silu_forward", (x,), out, device)
            written.append(memory)
        np.testing.assert_allclose(*written, rtol=1e-6)
    for shift in (-3, 3):  # overlapping: as if all inputs had been read before
        memory = drawn(64)
        x, out = memory[8:40], memory[8 + shift : 40 + shift]
        expected = elementwise("silu_forward", (x.copy(),), np.empty(32, np.float32), "cuda")
        assert same(elementwise("silu_forward", (x,), out, "cuda"), expected)


@triton.jit
def last_chunk(count, found, size: tl.constexpr):
    """Check the indices of the last chunk, which may exceed 32 bits."""
    tl.store(found + tl.arange(0, size), chunk_indices(chunk_count(count, size) - 1, size))


def check_chunks() -> None:
    for count in (1, 8, 9, 2**31 - 8, 2**31 - 1, 2**31, 2**33 + 1):
        found = np.zeros(8, np.int64)
        last_chunk[(1,)](count, torch.from_numpy(found), size=8)
        assert np.array_equal(found, (count - 1) // 8 * 8 + np.arange(8)), count


def check_layer_norm() -> None:
    generator = np.random.default_rng(3)
    for shape, normalized, dtype in (
        ((20, 3, 7), 1, TYPES[0]), ((3, 5, 4), 2, TYPES[1]), ((9, 40), 1, BFLOAT16),
        ((11, 8300), 1, TYPES[0]), ((3, 16500), 1, TYPES[0]),
    ):  # fmt: skip
        split = len(shape) - normalized
        m, n = math.prod(shape[:split]), math.prod(shape[split:])
        x = np.asfortranarray(generator.normal(size=shape).astype(dtype))
        dy = generator.normal(size=shape).astype(dtype)[::-1]
        weight = generator.normal(size=shape[split:]).astype(np.float32)
        wide = np.ascontiguousarray(x).reshape(m, n).astype(np.float64)
        mean = wide.mean(1).astype(np.float32)
        rstd = (1.0 / np.sqrt(wide.var(1) + 1e-5)).astype(np.float32)
        hat = (wide - mean[:, None].astype(np.float64)) * rstd[:, None]
        gradient = np.ascontiguousarray(dy).reshape(m, n).astype(np.float64)
        g = gradient * weight.reshape(-1)
        dx = (g - g.mean(1, keepdims=True) - hat * (g * hat).mean(1, keepdims=True)) * rstd[:, None]
        exact = dx, (gradient * hat).sum(0), gradient.sum(0)
        for mask in itertools.product([False, True], repeat=3) if n < 50 else [(True, True, True)]:
            if not any(mask):
                continue
            outs = [
                np.full(size, np.nan, kind) if expected else None
                for expected, size, kind in zip(mask, (shape, (n,), (n,)), (dtype, TYPES[0], TYPES[0]), strict=True)
            ]
            inputs = (dy, x, mean, rstd, weight)
            plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, outs)), normalized, "cuda")
            workspace = np.full(plan.workspace_bytes, 255, np.uint8)
            plan.run(
                list(map(address, inputs)), list(map(address, outs)), address(workspace) if plan.workspace_bytes else 0
            )
            for got, wanted_value in zip(outs, exact, strict=True):
                if got is not None:
                    tolerance = 2 * float(ml_dtypes.finfo(got.dtype).eps)
                    np.testing.assert_allclose(
                        got.reshape(wanted_value.shape).astype(np.float64), wanted_value, rtol=tolerance, atol=1e-5
                    )


def gradients(inputs: tuple[Any, ...], replaced: int | None = None) -> tuple[Any, ...]:
    """Return dx, dw and db of two-dimensional tensors; dx replaces the input with the number ``replaced``."""
    x = inputs[1]
    inputs = tuple(None if array is None else array.copy() for array in inputs)
    dx = np.full_like(x, np.nan) if replaced is None else inputs[replaced]
    outs = dx, *(np.full(x.shape[1], np.nan, x.dtype) for _ in range(2))
    plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, outs)), 1, "cuda")
    workspace = np.full(plan.workspace_bytes, 255, np.uint8)
    plan.run(list(map(address, inputs)), list(map(address, outs)), address(workspace))
    return outs


def assert_within_bounds(inputs: tuple[Any, ...], *replaced: int) -> None:
    """Check the CPU's bounds in docs/numerics-layer-norm.md, and that bits are the same if dx replaces an input."""
    from tests.kernels.test_layer_norm import assert_close, exact

    outs, reference = gradients(inputs), exact(*inputs)
    underflow = 2.0**-149 * (reference.db_scale + len(inputs[0]))
    assert_close(outs[0], reference.dx, reference.dx_scale, 48.0)
    assert_close(outs[1], reference.dw, reference.dw_scale, 8.0, underflow)
    assert_close(outs[2], reference.db, reference.db_scale, 8.0)
    for place in replaced:
        assert all(map(same, gradients(inputs, place), outs))


def check_layer_norm_beyond_float32() -> None:
    """Check rows and columns whose float32 intermediates would overflow or underflow."""
    from tests.kernels.test_layer_norm import rows

    def scaled(shape: tuple[int, int], power_dy: int, power_w: int, power_x: int) -> tuple[Any, ...]:
        dy, x, mean, rstd, weight = rows(np.random.default_rng(3), *shape)
        dy[1:4] *= np.float32(2.0**power_dy)
        with np.errstate(over="ignore", under="ignore"):
            return (
                dy, x * np.float32(2.0**power_x), mean * np.float32(2.0**power_x), rstd * np.float32(2.0**-power_x),
                weight * np.float32(2.0**power_w),
            )  # fmt: skip

    for powers in itertools.product((-140, -100, 0, 100, 125), (-100, 0, 100), (-100, 0, 120)):
        assert_within_bounds(scaled((5, 40), *powers))
    for shape, powers in itertools.product(((3, 5000), (3, 16501), (300, 40)), ((-140, 0, -100), (125, 100, 0))):
        assert_within_bounds(scaled(shape, *powers), shape[1] % 2)
    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    dy = np.full((6, 20), 3e38, np.float32)
    dy[3:] *= -1
    dx, dw, db = gradients((dy, np.ones((6, 20), np.float32), zeros, ones, None))
    assert not dw.any()
    assert not db.any()
    assert np.array_equal(dx, np.where(dy > 0, -3e38, 3e38).astype(np.float32))
    # x̂·c2 alone exceeds float32, by a large c2 or a large x̂; x - mean does, but not x̂.
    for columns in ([(29, 97)], [(60, 50)], [(40, 80)], [(67, -150), (31, 36)]):
        dy, x = np.ones((2, 33), np.float32), np.zeros((2, 33), np.float32)
        for column, (power_xhat, power_dy) in enumerate(columns):
            dy[1, column], x[1, column] = 2.0**power_dy, 2.0 ** (power_xhat + 60)
        assert_within_bounds((dy, x, zeros[:2], np.full(2, 2.0**-60, np.float32), None))
    dy, x, mean, rstd, weight = rows(np.random.default_rng(4), 40, 70)
    x[7] *= np.float32(3e37)
    x[7, 3], mean[7], rstd[7] = -3e38, 3e38, 1e-38
    assert_within_bounds((dy, x, mean, rstd, weight), 0, 1)
    # Infinities and NaN propagate as in the formulas.
    dy[2, 5], x[3, 6], dy[4, 7] = np.inf, -np.inf, np.nan
    inputs = dy, x, mean, rstd, weight
    theirs = [np.empty_like(x), np.empty(70, np.float32), np.empty(70, np.float32)]
    plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, theirs)), 1, "cpu")
    workspace = np.empty(plan.workspace_bytes, np.uint8)
    plan.run(list(map(address, inputs)), list(map(address, theirs)), address(workspace))
    for got, value in zip(gradients(inputs), theirs, strict=True):
        assert np.array_equal(np.isnan(got), np.isnan(value))
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5)


def check_layer_norm_not_finite() -> None:
    """Check that sums that are not finite are recomputed from the rows of their groups alone, until they are NaN."""
    from tests.kernels.test_layer_norm import rows

    taken: list[int] = []

    def counted(*arguments: Any) -> Any:
        begin, end = (int(number.handle.data[0]) for number in arguments[7:9])
        taken.append(end - begin)
        return sum_rows(*arguments)

    sum_rows, norm_backward.sum_rows = norm_backward.sum_rows, counted
    dy, x, mean, rstd, weight = rows(np.random.default_rng(9), 600, 40)
    plain = gradients((dy, x, mean, rstd, weight))
    assert not taken
    for number in (np.inf, np.nan):
        dy[100, 3] = number
        outs = gradients((dy, x, mean, rstd, weight))
        assert taken == [64, 64], "of dw and of db the group of row 100"
        taken.clear()
        assert not np.isfinite(outs[1][3])
        assert not np.isfinite(outs[2][3])
        others = np.arange(40) != 3
        assert all(same(got[others], value[others]) for got, value in zip(outs[1:], plain[1:], strict=True))
    dy[:] = np.nan
    assert all(np.isnan(out).all() for out in gradients((dy, x, mean, rstd, weight)))
    assert taken == [64] * 4, "both chunks of columns of both"


def check_layer_norm_overlapping() -> None:
    """Check that results are as if all inputs had been read before anything was written."""
    generator = np.random.default_rng(6)
    memory = generator.normal(size=2000).astype(np.float32)
    mean, rstd = generator.normal(size=20).astype(np.float32), np.ones(20, np.float32)

    def views() -> tuple[Any, ...]:
        fresh = memory.copy()
        x, dy, dx = (fresh[at : at + 600].reshape(20, 30) for at in (0, 700, 307))
        return fresh, (dy, x, mean, rstd, fresh[1400:1430]), (dx, fresh[1425:1455], fresh[1460:1490])

    results = []
    for apart in (False, True):
        fresh, inputs, outs = views()
        if apart:
            inputs = tuple(array.copy() for array in inputs)
        plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, outs)), 1, "cuda")
        workspace = np.empty(plan.workspace_bytes, np.uint8)
        plan.run(list(map(address, inputs)), list(map(address, outs)), address(workspace))
        out = fresh[305:905].reshape(20, 30)
        inputs, outs = (dx := outs[0], fresh[1400:1430], None), (out, None, None)
        if apart:
            inputs = (dx.copy(), fresh[1400:1430].copy(), None)
        forward = kernels.layer_norm(tuple(map(layout, inputs)), tuple(map(layout, outs)), 1, 1e-5)
        forward.run(list(map(address, inputs)), list(map(address, outs)), 0)
        results.append(fresh)
    assert np.array_equal(*results)
    assert not np.array_equal(results[0], memory)


def check_layer_norm_outputs_overlapping() -> None:
    """Check outputs that share memory, or whose elements do: dx, dw and db are written one after the other."""
    generator = np.random.default_rng(8)
    x, dy = generator.normal(size=(2, 30, 20)).astype(np.float32)
    mean, rstd = x.mean(1), 1.0 / x.std(1)
    weight = generator.normal(size=20).astype(np.float32)
    inputs = dy, x, mean, rstd, weight

    def written(device: str, *views: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Any:
        """Return memory of 900 elements after writing dx, dw and db at (place, shape, strides)."""
        memory = np.zeros(900, np.float32)
        outs = [
            np.lib.stride_tricks.as_strided(memory[place:], shape, tuple(4 * step for step in steps))
            for place, shape, steps in views
        ]
        plan = kernels.layer_norm_backward(tuple(map(layout, inputs)), tuple(map(layout, outs)), 1, device)
        workspace = np.empty(plan.workspace_bytes, np.uint8)
        plan.run(list(map(address, inputs)), list(map(address, outs)), address(workspace))
        return memory

    written_separately = written("cuda", (0, (30, 20), (20, 1)), (600, (20,), (1,)), (620, (20,), (1,)))
    dx, dw, db = written_separately[:600].reshape(30, 20), written_separately[600:620], written_separately[620:640]
    for views in (
        ((0, (30, 20), (1, 1)), (700, (20,), (0,)), (720, (20,), (1,))),
        ((0, (30, 20), (0, 1)), (10, (20,), (1,)), (25, (20,), (1,))),
        ((0, (30, 20), (20, 1)), (600, (20,), (1,)), (607, (20,), (1,))),
        ((0, (30, 20), (20, 1)), (100, (20,), (2,)), (640, (20,), (1,))),
    ):
        expected = np.zeros(900, np.float32)
        for (place, shape, steps), value in zip(views, (dx, dw, db), strict=True):
            for index in np.ndindex(shape):
                expected[place + sum(i * step for i, step in zip(index, steps, strict=True))] = value[index]
        assert np.array_equal(written("cuda", *views), expected), views
    coinciding = (0, (30, 20), (1, 1)), (700, (20,), (0,)), (720, (20,), (1,))
    np.testing.assert_allclose(written("cuda", *coinciding), written("cpu", *coinciding), rtol=1e-4, atol=1e-5)
    # Also in the forward function: statistics over the last rows of out.
    memory = np.zeros(700, np.float32)
    outs = memory[:600].reshape(30, 20), memory[560:590], memory[580:610]
    plan = kernels.layer_norm((layout(x), None, None), tuple(map(layout, outs)), 1, 1e-5)
    plan.run([address(x), 0, 0], list(map(address, outs)), 0)
    np.testing.assert_allclose(memory[560:580], mean[:20], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(memory[580:610], rstd, rtol=1e-4)


def check_layer_norm_forward() -> None:
    generator = np.random.default_rng(4)
    for shape, normalized, dtype in (((6, 3, 7), 1, TYPES[0]), ((3, 5, 4), 2, BFLOAT16), ((2, 8300), 1, TYPES[0])):
        split = len(shape) - normalized
        x = np.asfortranarray((generator.normal(size=shape) + 100.0).astype(dtype))
        weight, bias = (generator.normal(size=shape[split:]).astype(np.float32) for _ in range(2))
        wide = np.ascontiguousarray(x).reshape(math.prod(shape[:split]), -1).astype(np.float64)
        mean, rstd = wide.mean(1), 1.0 / np.sqrt(wide.var(1) + 1e-5)
        exact = (wide - mean[:, None]) * rstd[:, None] * weight.reshape(-1) + bias.reshape(-1)
        outs = [np.full(shape, np.nan, dtype), np.full(len(wide), np.nan, np.float32), np.full(len(wide), np.nan, "f4")]
        inputs = (x, weight, bias)
        plan = kernels.layer_norm(tuple(map(layout, inputs)), tuple(map(layout, outs)), normalized, 1e-5)
        plan.run(list(map(address, inputs)), list(map(address, outs)), 0)
        eps = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(outs[0].reshape(exact.shape).astype(np.float64), exact, rtol=2 * eps, atol=2e-6)
        np.testing.assert_allclose(outs[1], mean, rtol=2e-7)
        np.testing.assert_allclose(outs[2], rstd, rtol=1e-6)
    # Squares that overflow or underflow; a constant row, a row of infinities; an eps that is no float32.
    x = generator.normal(size=(6, 40)).astype(np.float32) * np.array([[1e30], [1e-30], [1e37], [1], [0], [1]], "f4")
    x[3, 5], x[5] = np.inf, 2.5
    for eps in (1e-5, 1e-50, 0.0):
        outs = np.empty_like(x), np.empty(6, np.float32), np.empty(6, np.float32)
        plan = kernels.layer_norm((layout(x), None, None), tuple(map(layout, outs)), 1, eps)
        plan.run([address(x), 0, 0], list(map(address, outs)), 0)
        for value, got in zip(aclnn.layer_norm(x, x.shape[1:], eps=eps), outs, strict=True):
            np.testing.assert_allclose(got, value.reshape(got.shape), rtol=1e-6, atol=2e-7)
    # A row's bits do not depend on the rows it is processed with, even if those need float64.
    scale = np.where(np.arange(33) % 7, 1.0, 1e30).astype(np.float32)
    x = generator.normal(size=(33, 70)).astype(np.float32) * scale[:, None]

    def forward(rows: Any) -> list[Any]:
        outs = [np.empty_like(rows), np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)]
        plan = kernels.layer_norm((layout(rows), None, None), tuple(map(layout, outs)), 1, 1e-5)
        plan.run([address(rows), 0, 0], list(map(address, outs)), 0)
        return outs

    together, row_by_row = forward(x), [forward(row) for row in x[:, None]]
    assert all(
        same(got, np.concatenate(parts)) for got, parts in zip(together, zip(*row_by_row, strict=True), strict=True)
    )
    x, mean, rstd = np.empty((3, 0), np.float32), np.full(3, 7, np.float32), np.zeros(3, np.float32)
    plan = kernels.layer_norm((layout(x), None, None), (layout(x), layout(mean), layout(rstd)), 1, 1e-5)
    plan.run([address(x), 0, 0], [address(x), address(mean), address(rstd)], 0)
    assert np.all(mean == 0)
    assert np.all(np.isnan(rstd))


def check_rms_norm() -> None:
    """Compare forward and gradient with float64: all types, row lengths, values out of range or not finite."""
    generator = np.random.default_rng(8)

    def planned(plan: Any, inputs: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        workspace = np.full(plan.workspace_bytes, 255, np.uint8)
        plan.run(list(map(address, inputs)), list(map(address, outs)), address(workspace))

    short = itertools.product(((20, 7), (4, 1), (9, 300)), TYPES)
    long = ((3, 8300), TYPES[0]), *(((2, 16500), dtype) for dtype in (TYPES[0], BFLOAT16))
    for (m, n), dtype in (*short, *long):
        weight = generator.normal(size=n).astype(dtype)
        x, dy = (generator.normal(size=(m, n)).astype(dtype) for _ in range(2))
        if dtype == TYPES[0]:
            x[0] *= np.float32(1e30)  # squares overflow
            x[1] *= np.float32(1e-30)
        y, rstd = np.full((m, n), np.nan, dtype), np.full((m, 1), np.nan, np.float32)
        given, expected = (x, weight, None), (y, None, rstd)
        plan = kernels.layer_norm(tuple(map(layout, given)), tuple(map(layout, expected)), 1, 1e-6, centred=False)
        planned(plan, given, expected)
        wide, g = x.astype(np.float64), dy.astype(np.float64) * weight.astype(np.float64)
        scale = 1.0 / np.sqrt(np.square(wide).mean(1, keepdims=True) + 1e-6)
        tolerance = 2 * float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(rstd, scale, rtol=1e-6)
        np.testing.assert_allclose(y.astype(np.float64), wide * scale * weight.astype(np.float64), rtol=tolerance)
        hat = wide * rstd
        inputs, outs = (dy, x, None, rstd, weight), (np.full_like(x, np.nan), np.full(n, np.nan, np.float32), None)
        plan = kernels.layer_norm_backward(
            tuple(map(layout, inputs)), tuple(map(layout, outs)), 1, "cuda", centred=False
        )
        planned(plan, inputs, outs)
        dx = (g - hat * (g * hat).mean(1, keepdims=True)) * rstd
        error = np.abs(outs[0].astype(np.float64) - dx) / (np.abs(dx) + rstd * np.abs(g).max(1, keepdims=True))
        assert error.max() <= 4 * tolerance, (m, n, dtype, error.max())
        terms = dy.astype(np.float64) * hat
        assert np.all(np.abs(outs[1] - terms.sum(0)) <= 1e-5 * np.abs(terms).sum(0)), (m, n, dtype)
        if n > 1000:
            continue
        dy[2 % m, 0] = np.inf
        planned(plan, inputs, outs)
        assert np.array_equal(np.isfinite(outs[0].astype(np.float32)).all(1), np.arange(m) != 2 % m)
        assert np.array_equal(np.isfinite(outs[1]), np.arange(n) != 0)


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"]()
