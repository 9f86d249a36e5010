"""The GPU's kernels without a GPU: their values by Triton's interpreter, and the instructions they compile to."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

pytestmark = pytest.mark.slow

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")
triton: Any = pytest.importorskip("triton", reason="Triton is not installed: pip install triton")


ROOT = Path(__file__).parents[2]


def interpret(module: str, part: str) -> None:
    # Whether a kernel is interpreted is decided when its module is imported: hence a process of its own.
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, part],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


SHORT = ["float32", "general", "tables", "layouts", "chunks", "layer_norm", "layer_norm_forward", "rms_norm"]
LONG = ["16_bit", "layer_norm_beyond_float32", "layer_norm_not_finite", "layer_norm_overlapping",
        "layer_norm_outputs_overlapping"]  # fmt: skip


def short_and_long(short: Iterable[Any], long: Iterable[Any]) -> list[Any]:
    """Return parameters; those that mostly repeat what others test are marked ``long``."""
    return [*short, *(pytest.param(value, marks=pytest.mark.long) for value in long)]


@pytest.mark.parametrize("part", short_and_long(SHORT, LONG))
def test_interpreted_kernels_match_the_cpu(part: str) -> None:
    interpret("tests.helpers.triton_interpreted", part)


@pytest.mark.long
@pytest.mark.parametrize("part", ["float32", "16_bit", "special"])
def test_tiny_derivatives_keep_their_digits_below_large_gradients(part: str) -> None:
    interpret(__name__, part)


#: How far from 0 each derivative meets numbers below 2^-126, and how far dy = 2^127 lifts it above 0.
TINY = {"silu": (85.0, 200.0), "fast_gelu": (50.0, 117.0), "gelu_erf": (12.8, 19.9), "gelu_tanh": (9.5, 13.9)}


def gradient_of(name: str) -> Any:
    """Return an activation's gradient by its name in the table."""
    from aclnn.formula import Gradient
    from benchmarks.references import FORMULAS

    return Gradient(FORMULAS[name])


def check_float32() -> None:
    """Interpreted: the CPU's bits, within 1.6 ULP of exact values, 1.1 for the derivative and 0.5 for the product."""
    from aclnn.core.dtypes import DataType
    from aclnn.verify.goldens.values import Function
    from aclnn.verify.number_formats import format_of
    from tests.helpers.exact import ulps
    from tests.helpers.triton_interpreted import elementwise, same

    for (name, (near, far)), gradient in itertools.product(TINY.items(), (1e-3, 1.0, -1e10, 1e30, -3e38)):
        x = -np.linspace(near, far, 999, dtype=np.float32)
        dy = np.full_like(x, gradient)
        ours = elementwise(f"{name}_derivative", (dy, x), np.empty_like(x), "cuda")
        assert same(ours, elementwise(f"{name}_derivative", (dy, x), np.empty_like(x), "cpu")), (name, gradient)
        exact = Function(gradient_of(name)).golden([dy, x], format_of(x.dtype)).value
        worst = float(ulps(ours, exact, DataType.FLOAT).max())
        assert worst <= 1.6, (name, gradient, worst)


def check_16_bit() -> None:
    """Interpreted: every x, to 0.51 ULP."""
    from aclnn.verify.goldens.values import Function
    from aclnn.verify.number_formats import format_of
    from tests.helpers.exact import NUMPY, every_16_bit, ulps
    from tests.helpers.triton_interpreted import DataType, elementwise

    for name, gradient in itertools.product(TINY, (2.0, -1e30, 3e38)):
        x = every_16_bit(DataType.BF16)
        x = x[np.isfinite(x.astype(np.float32))]
        dy = np.full(x.shape, gradient, NUMPY[DataType.BF16])
        ours = elementwise(f"{name}_derivative", (dy, x), np.empty_like(x), "cuda")
        exact = Function(gradient_of(name)).golden([dy, x], format_of(x.dtype)).value
        worst = float(ulps(ours, exact, DataType.BF16).max())
        assert worst <= 0.51, (name, gradient, worst)


def check_special() -> None:
    """Interpreted: the CPU's bits wherever x or dy is infinite, NaN, zero or extreme, in float32 and bfloat16."""
    from tests.helpers.exact import BFLOAT16
    from tests.helpers.triton_interpreted import elementwise, same

    edges = [0.0, 1e-45, 1e-38, 0.999, 1.0, 1.001, 3e38, np.inf, np.nan]
    for name, (near, far) in TINY.items():
        points = np.array([*edges, near, (near + far) / 2, far, far + 2, 1e5], np.float32)
        x, dy = (a.ravel() for a in np.meshgrid(np.concatenate([points, -points]), [*edges, *np.negative(edges)]))
        for dtype in (np.dtype(np.float32), BFLOAT16):
            inputs = dy.astype(dtype), x.astype(dtype)
            cuda, cpu = (
                elementwise(f"{name}_derivative", inputs, np.empty(x.shape, dtype), on) for on in ("cuda", "cpu")
            )
            assert same(cuda, cpu), (name, dtype)


def check_names() -> None:
    """Interpreted: two formulas of one name, one after the other."""
    from aclnn import kernels
    from aclnn.formula import Gradient
    from tests.helpers.triton_interpreted import address, layout

    def formula(factor: float) -> Any:
        def scaled(x: float) -> float:
            return factor * x

        return Gradient(scaled)

    x = np.arange(-8, 8, dtype=np.float16)
    dy, out = np.ones_like(x), np.empty_like(x)
    for factor in (2.0, 3.0):
        plan = kernels.elementwise(formula(factor), (layout(x), layout(x)), (layout(out),), (), "cuda")  # type: ignore[arg-type]  # none is None
        plan.run([address(dy), address(x)], [address(out)], 0)
        np.testing.assert_array_equal(out, factor * x)


def test_two_formulas_of_one_name_have_a_table_each() -> None:
    """The second formula must not get the first one's table."""
    interpret(__name__, "names")


#: Instructions that an H200 can issue in the time in which it moves an element of 12 or 6 bytes at 4.3 TB/s:
#: 132 multiprocessors, 4 schedulers, 32 lanes, 1.7 GHz.
ISSUED = {"FLOAT": 80, "FLOAT16": 40, "BF16": 40}
TYPES = short_and_long(["FLOAT", "BF16"], ["FLOAT16"])
MOSTLY_FLOAT32 = short_and_long(["FLOAT"], ["BF16", "FLOAT16"])
NAMES = short_and_long(["gelu_erf"], ["silu", "fast_gelu", "gelu_tanh", "hardswish"])
SOMEWHERE = 1 << 24


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    if sys.platform != "linux" or "nvidia" not in triton.backends.backends:
        pytest.skip("this Triton has no compiler for NVIDIA GPUs")
    from tests.helpers.triton_compiled import TOOLS, collect_launches

    if not all((TOOLS / tool).exists() for tool in ("nvdisasm", "cuobjdump")):
        pytest.skip("this Triton comes without NVIDIA's disassembler")
    return collect_launches(monkeypatch)


def formula(name: str) -> Any:
    import aclnn
    from aclnn.formula import Gradient

    assert aclnn.operators is not None
    stem = name.removesuffix("_derivative").removesuffix("_forward").removesuffix("_erf").removesuffix("_tanh")
    found = getattr(sys.modules[f"aclnn.operators.{stem}"], name)
    return Gradient(found) if name.endswith("_derivative") else found


def described(shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None) -> Any:
    from aclnn.core.dtypes import DataType
    from aclnn.core.tensor import Layout, contiguous_strides

    return Layout(DataType[dtype], shape, strides or contiguous_strides(shape))


def elementwise(launches: list[Any], name: str, *layouts: Any) -> Any:
    from aclnn import kernels

    *inputs, output = layouts
    kernels.elementwise(formula(name), tuple(inputs), (output,), (), "cuda").run(
        [SOMEWHERE] * len(inputs), [SOMEWHERE * 2], 0
    )
    return launches[-1]


def spilled(kernel: Any) -> int:
    """Count the spills and fills of registers outside rare branches."""
    return sum(name.startswith(("STL", "LDL")) for name in kernel.common)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_fit_the_memorys_time(name: str, dtype: str, launches: list[Any]) -> None:
    row = described((1 << 22,), dtype)
    kernel = elementwise(launches, f"{name}_derivative", row, row, row)
    elements = 8 if dtype == "FLOAT" else 16
    assert (kernel.count("LDG.E.128"), kernel.count("STG.E.128")) == (4, 2)
    assert spilled(kernel) <= 8
    assert 32 * kernel.warps * kernel.registers <= 65536 // (7 if dtype == "FLOAT" else 8)
    assert not any(name.startswith("D") and name != "DEPBAR" for name in kernel.common), "float64"
    # Triton 3.9 makes at most 0.54, of 16 bits 0.53; 3.6 a tenth more.
    assert len(kernel.common) <= 0.59 * ISSUED[dtype] * elements
    # dy and x are both asked for before anything waits for one of them.
    first = [place for place, name in enumerate(kernel.instructions) if name == "LDG.E.128"]
    assert first[-1] < 100


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*NAMES, "hardsigmoid"])
def test_values_compile_to_wide_accesses(name: str, dtype: str, launches: list[Any]) -> None:
    row = described((1 << 22,), dtype)
    kernel = elementwise(launches, f"{name}_forward", row, row)
    assert (kernel.count("LDG.E.128"), kernel.count("STG.E.128")) == (2, 2)
    assert spilled(kernel) <= 16


def test_tensors_that_meet_are_found() -> None:
    """No overlap is missed; for tensors that interleave in three dimensions there may be false ones."""
    from aclnn.core.dtypes import DataType
    from aclnn.core.tensor import Layout
    from aclnn.kernels.cuda.plans import overlap

    def places(layout: Layout) -> set[int]:
        found = np.zeros((), np.int64)
        for extent, stride in zip(layout.shape, layout.strides, strict=True):
            found = np.add.outer(found, stride * np.arange(extent))
        return set((4 * found).ravel().tolist())

    for shape, strides in (
        ((4, 3), (8, 1)),
        ((4, 3), (-8, 2)),
        ((2, 3, 2), (20, 6, 1)),
        ((3, 4), (3, 1)),
        ((5,), (0,)),
    ):
        layout = Layout(DataType.FLOAT, shape, strides)
        for distance in range(-60, 61):
            truth = any(place + 4 * distance in places(layout) for place in places(layout))
            found = overlap(layout, layout, 4 * distance)
            assert found == truth or (found and len(shape) > 2), (shape, strides, distance)
    wide, narrow = Layout(DataType.FLOAT, (4, 3), (8, 1)), Layout(DataType.FLOAT, (4, 3), (4, 1))
    assert overlap(wide, narrow, 0)
    assert not overlap(wide, narrow, 400)


@pytest.mark.parametrize("dtype", MOSTLY_FLOAT32)
def test_formulas_with_attributes_and_two_results_compile(dtype: str, launches: list[Any]) -> None:
    """Registers are spilled in rare branches only, and other numbers compile nothing."""
    from aclnn import kernels
    from aclnn.formula import Gradient
    from aclnn.kernels.cuda.elementwise import evaluate_tile

    formula("silu_derivative")
    elu, swi_glu = (sys.modules[f"aclnn.operators.{name}"] for name in ("elu", "swi_glu"))
    row, rows = described((1 << 20,), "FLOAT"), described((64, 128), dtype)
    halves, both = described((64, 128), dtype, (256, 1)), (0, 128 * (4 if dtype == "FLOAT" else 2))
    compiled = []
    for alpha in (1.0, 0.3, 2.0, -1e30):
        plan = kernels.elementwise(Gradient(elu.elu_derivative), (row, row), (row,), (alpha, 1.0, 1.0), "cuda")
        plan.run([SOMEWHERE] * 2, [SOMEWHERE * 2], 0)
        compiled.append(len(evaluate_tile.device_caches[0][0]))
    assert compiled[1:] == compiled[:-1]
    kernels.elementwise(swi_glu.swi_glu_gradient, (rows, halves, halves), (halves,) * 2, (), "cuda").run(
        [SOMEWHERE, *(SOMEWHERE * 2 + half for half in both)], [SOMEWHERE * 3 + half for half in both], 0
    )
    assert len(launches) == 5, "halves of rows share no memory"
    assert max(map(spilled, launches)) <= 12


@pytest.mark.parametrize("name", ["elu_derivative", "gelu_erf_forward", "gelu_tanh_derivative"])
def test_numbers_are_float64(name: str, launches: list[Any]) -> None:
    """Compiled, but not interpreted, a negation would round ln 2 / 8 to float32, for an error of 5 ULP."""
    from aclnn import kernels

    row = described((1 << 20,), "FLOAT")
    inputs = 2 if name.endswith("_derivative") else 1
    numbers = (1.0, 1.0, 1.0) if name == "elu_derivative" else ()
    kernels.elementwise(formula(name), (row,) * inputs, (row,), numbers, "cuda").run(
        [SOMEWHERE] * inputs, [SOMEWHERE * 2], 0
    )
    long = [number for number in launches[-1].numbers if math.isfinite(number) and float(number * 2**12) % 1.0]
    assert long
    assert not [number for number in long if number == float(np.float32(number)) and (number * 2**14) % 1.0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_look_ups_do_not_pass_through_shared_memory(name: str, dtype: str, launches: list[Any]) -> None:
    """Before Triton 3.7 each load of an entry would: 23 barriers in a float32 derivative, 12 in a 16-bit one."""
    row = described((1 << 22,), dtype)
    derivative = elementwise(launches, f"{name}_derivative", row, row, row)
    forward = elementwise(launches, f"{name}_forward", row, row)
    # What a branch of all threads takes, for at most two of them; one more between dy and x.
    assert derivative.count("STS") <= 4
    assert derivative.count("BAR") <= 6
    assert forward.count("BAR") <= (2 if dtype == "FLOAT" else 0)


@pytest.mark.parametrize("dtype", TYPES)
def test_accesses_stay_wide_whatever_the_count(dtype: str, launches: list[Any]) -> None:
    """Counts of 1 and 8 more than a multiple of 16, and rows with gaps."""
    for shape, strides in (
        (((1 << 20) + 1,), None), (((1 << 20) + 8,), None), ((256, 1024), (2048, 1)), ((256, 1001), (2048, 1)),
        ((256, 1000), (1008, 1)),
    ):  # fmt: skip
        some = described(shape, dtype, strides)
        kernel = elementwise(launches, "silu_derivative", some, some, some)
        assert kernel.count("LDG.E.128") >= 4, (shape, strides)
        assert kernel.count("STG.E.128") >= 2, (shape, strides)
        assert 32 * kernel.warps * kernel.registers <= 65536 // 7
        assert spilled(kernel) <= 8
        if strides:
            spread = described(shape, dtype, (0, 1))
            assert elementwise(launches, "silu_derivative", some, spread, some).count("LDG.E.128") >= 4, shape


@pytest.mark.parametrize("dtype", MOSTLY_FLOAT32)
def test_kernels_compile_for_other_layouts(dtype: str, launches: list[Any]) -> None:
    """Strided, broadcast, transposed and mixed operands spill registers in rare branches only."""
    shape = (96, 80, 64)
    plain = described(shape, dtype)
    for other in ((80, 1, 7680), (0, 0, 1), (0, 0, 0), (10240, 128, 2), (-5120, 64, 1)):
        kernel = elementwise(launches, "silu_derivative", plain, described(shape, dtype, other), plain)
        assert spilled(kernel) <= 8, other
    assert spilled(elementwise(launches, "silu_derivative", plain, described(shape, "FLOAT16"), plain)) <= 8


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", short_and_long([1024], [256, 4096, 8192, 16384]))
def test_layer_norm_fits_the_memorys_time(columns: int, dtype: str, launches: list[Any]) -> None:
    """Each tile of dy and x is loaded by asynchronous 16-byte copies while the previous one is processed."""
    from aclnn import kernels

    rows = 2**25 // columns
    x, row, w, g = (
        described(*given)
        for given in (((rows, columns), dtype), ((rows, 1), "FLOAT"), ((columns,), dtype), ((columns,), "FLOAT"))
    )
    plan = kernels.layer_norm_backward((x, x, row, row, w), (x, g, g), 1, "cuda")
    plan.run([SOMEWHERE * 100 * i for i in range(1, 6)], [SOMEWHERE * 100 * i for i in (6, 7, 8)], SOMEWHERE)
    main, finish = launches
    size = 4 if dtype == "FLOAT" else 2
    elements = 64 if columns == 16384 else 16
    assert main.loop.count("LDGSTS.E.BYPASS.128") >= (3 if columns == 16384 else 2) * elements * size // 16
    assert main.loop.count("STG.E.128") == elements * size // 16
    assert len(main.loop) <= 0.93 * ISSUED[dtype] * elements
    # The longest rows leave 64 columns' sums, dy and x no room in a thread.
    assert main.local_bytes <= (400 if columns == 16384 else 48)
    assert finish.local_bytes == 0
    together = min(65536 // (32 * main.warps * main.registers), 227 * 1024 // (main.shared_bytes + 1024))
    assert together == (2 if columns <= 4096 else 1)
    # All multiprocessors have work, and none of them a second turn with little in it.
    assert 0.9 <= main.grid[0] / (132 * together) <= 1.0
    assert plan.workspace_bytes <= 0.5 * rows * columns * size


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", short_and_long([1024], [1000, 8192, 16384]))
def test_layer_norm_forwards_has_wide_accesses(columns: int, dtype: str, launches: list[Any]) -> None:
    """16-bit elements are not loaded one by one, and a held row is loaded once."""
    from aclnn import kernels

    x, row, w = described((512, columns), dtype), described((512, 1), "FLOAT"), described((columns,), dtype)
    addresses = [SOMEWHERE * 100 * i for i in range(1, 7)]
    kernels.layer_norm((x, w, w), (x, row, row), 1, 1e-5).run(addresses[:3], addresses[3:], 0)
    (kernel,) = launches
    accesses = 4 if dtype == "FLOAT" and columns <= 2048 else 2
    # Of x, weight and bias, the last two for two short rows; what is left single is in the way of rows beyond float32.
    assert kernel.count("LDG.E.128") >= ((1 if columns <= 2048 else 3) + (2 if columns > 1024 else 1)) * accesses
    assert kernel.count("STG.E.128") >= accesses
    assert kernel.local_bytes <= 48
    assert 2 * 32 * kernel.warps * kernel.registers <= 65536


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", short_and_long([64], [256, 512, 1024]))
def test_short_rows_forwards_keep_the_memory_busy(columns: int, dtype: str, launches: list[Any]) -> None:
    """A multiprocessor's programs, 32 at most, hold 10,240 elements; with one row of 64 columns each, only 2,048."""
    from aclnn import kernels

    rows = 2**25 // columns
    x, row, w = described((rows, columns), dtype), described((rows, 1), "FLOAT"), described((columns,), dtype)
    addresses = [SOMEWHERE * 100 * i for i in range(1, 7)]
    kernels.layer_norm((x, w, w), (x, row, row), 1, 1e-5).run(addresses[:3], addresses[3:], 0)
    (kernel,) = launches
    together = min(32, 65536 // (32 * kernel.warps * kernel.registers))
    assert together * 2**25 // kernel.grid[0] >= 10240
    assert kernel.local_bytes <= 48


@pytest.mark.long
@pytest.mark.parametrize("columns", [1, 1000, 20000])
def test_every_other_layer_norm_compiles(columns: int, launches: list[Any]) -> None:
    """Forward functions, masks, rows of two dimensions, gaps between columns, no weight, overlapping outputs."""
    from aclnn import kernels

    rows, halves, gaps = (8, 6, columns), (8, 6, 1), (12 * columns, 2 * columns, 2)
    flat, row, w = described(rows, "BF16"), described(halves, "FLOAT"), described((columns,), "FLOAT16")
    addresses = [SOMEWHERE * i for i in range(1, 6)], [SOMEWHERE * i for i in range(6, 9)], SOMEWHERE * 9
    kernels.layer_norm((flat, w, None), (flat, row, None), 1, 1e-5).run(addresses[0][:3], *addresses[1:])
    kernels.layer_norm((flat, w, None), (flat, None, row), 1, 1e-5, False).run(addresses[0][:3], *addresses[1:])
    kernels.layer_norm_backward((flat, flat, None, row, w), (flat, w, None), 1, "cuda", False).run(*addresses)
    strided, stacked = described(rows, "FLOAT", gaps), described(rows, "BF16", (6 * columns, columns - 3, 1))
    for x, weight, outputs in (
        (flat, None, (flat, w, None)), (strided, w, (flat, None, None)), (strided, w, (None, None, w)),
        (flat, w, (stacked, w, None)),
    ):  # fmt: skip
        kernels.layer_norm_backward((flat, x, row, row, weight), outputs, 1, "cuda").run(*addresses)
    assert {"evaluate_tile", "scatter", "add_groups", "normalize"} <= {kernel.name for kernel in launches}


def test_grids_of_the_longest_and_most_rows_are_within_cudas_limits(launches: list[Any]) -> None:
    """From 2^27 columns on, chunks exceed a grid's second dimension; many rows may, too."""
    from aclnn import kernels

    x, row, w = described((2, 1 << 27), "BF16"), described((2, 1), "FLOAT"), described((1 << 27,), "FLOAT")
    plan = kernels.layer_norm_backward((x, x, row, row, w), (x, w, w), 1, "cuda")
    plan.run([SOMEWHERE * 100 * i for i in range(1, 6)], [SOMEWHERE * 100 * i for i in (6, 7, 8)], SOMEWHERE)
    assert [kernel.name for kernel in launches] == ["column_sums", "add_groups", "long_rows"]
    many = described((1 << 22, 1000), "BF16", (1 << 10, 1))
    elementwise(launches, "silu_derivative", many, many, many)
    for kernel in launches:
        assert kernel.grid[0] < 1 << 31
        assert all(extent < 1 << 16 for extent in kernel.grid[1:]), kernel


def test_runs_after_the_first_upload_nothing(launches: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload makes the host wait for the GPU, and fails while a CUDA graph is captured."""
    from aclnn import kernels

    def uploading(name: str) -> Any:
        function = getattr(torch, name)
        return lambda *given, **options: (uploads.append(name), function(*given, **options))[1]

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "__getitem__", MagicMock())
    uploads: list[str] = []
    for name in ("tensor", "as_tensor", "from_numpy"):
        monkeypatch.setattr(torch, name, uploading(name))
    flat, gaps, same = (described((64, 64), "FLOAT", strides) for strides in (None, (70, 1), (1, 1)))
    row, w = described((64, 1), "FLOAT"), described((64,), "FLOAT")
    slope, value = formula("silu_derivative"), formula("silu_forward")
    # Plans, and where their tensors are, in KiB: 64 apart, or with some shared memory.
    plans = [
        (kernels.elementwise(slope, (flat, flat), (flat,), (), "cuda"), (0, 64, 128)),
        (kernels.elementwise(slope, (flat, gaps), (flat,), (), "cuda"), (0, 64, 128)),
        (kernels.elementwise(slope, (gaps, flat), (gaps,), (), "cuda"), (0, 64, 1)),
        (kernels.elementwise(value, (flat,), (same,), (), "cuda"), (0, 64)),
    ]
    for first in (flat, gaps, same):
        plan = kernels.layer_norm_backward((flat, flat, row, row, w), (first, w, w), 1, "cuda")
        plans += [
            (plan, (0, 64, 128, 192, 256, *places))
            for places in ((320, 384, 448), (0, 384, 448), (1, 384, 448), (320, 384, 384), (320, 321, 448))
        ]
        plan = kernels.layer_norm((flat, w, w), (first, row, row), 1, 1e-5)
        plans += [
            (plan, (0, 64, 128, *places)) for places in ((192, 256, 320), (0, 256, 320), (1, 256, 320), (192, 256, 256))
        ]
    for plan, places in plans:
        addresses = [SOMEWHERE + 1024 * place for place in places]
        outputs = 1 if len(places) < 4 else 3
        given = addresses[:-outputs], addresses[-outputs:], SOMEWHERE * 9
        plan.run(*given)
        uploads.clear()
        plan.run(*given)
        assert not uploads, places


@pytest.mark.parametrize("columns", short_and_long([1], [2]))
@pytest.mark.parametrize("dtype", short_and_long(["BF16"], ["FLOAT", "FLOAT16"]))
def test_rows_of_one_column_compile(dtype: str, columns: int, launches: list[Any]) -> None:
    """bfloat16 is widened in pairs, which a single element is not."""
    from aclnn import kernels

    x, row, w = described((3, columns), dtype), described((3, 1), "FLOAT"), described((columns,), dtype)
    addresses = [SOMEWHERE * i for i in range(1, 6)], [SOMEWHERE * i for i in range(6, 9)], SOMEWHERE * 9
    kernels.layer_norm((x, w, w), (x, row, row), 1, 1e-5).run(addresses[0][:3], *addresses[1:])
    kernels.layer_norm_backward((x, x, row, row, w), (x, w, w), 1, "cuda").run(*addresses)
    assert {"normalize", "add_groups"} <= {kernel.name for kernel in launches}


def test_other_rows_and_strides_compile_nothing(launches: list[Any]) -> None:
    """Triton specializes kernels for 1, multiples of 16, and numbers beyond 32 bits."""
    from aclnn import kernels
    from aclnn.kernels.cuda.elementwise import evaluate_tile
    from aclnn.kernels.cuda.norm_forward import normalize

    distance = 1 << 44
    addresses = [distance * i for i in range(1, 4)], [distance * i for i in range(4, 7)], distance * 9
    compiled = []
    for rows, stride in ((32, 32), (64, 40), (32, 1 << 34)):
        x, row, w = (
            described((rows, 24), "FLOAT", (stride, 1)),
            described((rows, 1), "FLOAT"),
            described((24,), "FLOAT"),
        )
        kernels.elementwise(formula("silu_derivative"), (x, x), (x,), (), "cuda").run(
            addresses[0][:2], addresses[1][:1], 0
        )
        kernels.layer_norm((x, w, w), (x, row, row), 1, 1e-5).run(*addresses)
        compiled.append([len(kernel.device_caches[0][0]) for kernel in (evaluate_tile, normalize)])
    assert compiled[1:] == compiled[:-1]


def test_addresses_not_aligned_to_16_bytes_use_a_separate_kernel(launches: list[Any]) -> None:
    """A kernel for multiples of 16 bytes, which a plan keeps, faults at other addresses."""
    from aclnn import kernels

    row = described((1 << 20,), "FLOAT")
    plan = kernels.elementwise(formula("silu_derivative"), (row, row), (row,), (), "cuda")
    for shift in (0, 4, 0, 4):
        plan.run([SOMEWHERE, SOMEWHERE * 2 + shift], [SOMEWHERE * 3], 0)
    assert launches[0] != launches[1]
    assert launches[2:] == launches[:2]
    assert [kernel.count("LDG.E.128") for kernel in launches[:2]] == [4, 2]


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"]()
