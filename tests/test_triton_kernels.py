"""The GPU's kernels without a GPU: their values by Triton's interpreter, and the instructions they compile to."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")
triton: Any = pytest.importorskip("triton", reason="Triton is not installed: pip install triton")


def interpret(program: Path, part: str) -> None:
    # Whether a kernel is interpreted is decided when its module is imported: hence a process of its own.
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", program, part], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "part",
    ["float32", "16_bit", "layouts", "layer_norm", "layer_norm_overlapping", "layer_norm_outputs_overlapping",
     "layer_norm_forward"],
)  # fmt: skip
def test_interpreted(part: str) -> None:
    interpret(Path(__file__).with_name("triton_interpreted.py"), part)


@pytest.mark.parametrize("part", ["float32", "16_bit", "special"])
def test_tiny_derivatives_keep_their_digits_below_large_gradients(part: str) -> None:
    interpret(Path(__file__), part)


#: How far from 0 each derivative meets numbers below 2^-126, and how far dy = 2^127 lifts it above 0.
TINY = {"silu": (85.0, 200.0), "fast_gelu": (50.0, 117.0), "gelu_erf": (12.8, 19.9), "gelu_tanh": (9.5, 13.9)}


def check_float32() -> None:
    """Interpreted: the CPU's bits, and the exact values to 1.6 ULP, 1.1 of the derivative and half of the product."""
    from aclnn.dtypes import DataType
    from aclnn.verify.golden import elementwise as golden
    from aclnn.verify.number_formats import format_of
    from exact import ulps
    from triton_interpreted import elementwise, same

    for (name, (near, far)), gradient in itertools.product(TINY.items(), (1e-3, 1.0, -1e10, 1e30, -3e38)):
        x = -np.linspace(near, far, 999, dtype=np.float32)
        dy = np.full_like(x, gradient)
        ours = elementwise(f"{name}_slope", (dy, x), np.empty_like(x), "cuda")
        assert same(ours, elementwise(f"{name}_slope", (dy, x), np.empty_like(x), "cpu")), (name, gradient)
        exact = golden(name, dy, x, format_of(x.dtype)).value
        worst = float(ulps(ours, exact, DataType.FLOAT).max())
        assert worst <= 1.6, (name, gradient, worst)


def check_16_bit() -> None:
    """Interpreted: every x, to 0.51 ULP."""
    from aclnn.verify.golden import elementwise as golden
    from aclnn.verify.number_formats import format_of
    from exact import NUMPY, every_16_bit, ulps
    from triton_interpreted import DataType, elementwise

    for name, gradient in itertools.product(TINY, (2.0, -1e30, 3e38)):
        x = every_16_bit(DataType.BF16)
        x = x[np.isfinite(x.astype(np.float32))]
        dy = np.full(x.shape, gradient, NUMPY[DataType.BF16])
        ours = elementwise(f"{name}_slope", (dy, x), np.empty_like(x), "cuda")
        exact = golden(name, dy, x, format_of(x.dtype)).value
        worst = float(ulps(ours, exact, DataType.BF16).max())
        assert worst <= 0.51, (name, gradient, worst)


def check_special() -> None:
    """Interpreted: the CPU's bits wherever x or dy is infinite, NaN, zero or extreme, in float32 and bfloat16."""
    from exact import BFLOAT16
    from triton_interpreted import elementwise, same

    edges = [0.0, 1e-45, 1e-38, 0.999, 1.0, 1.001, 3e38, np.inf, np.nan]
    for name, (near, far) in TINY.items():
        points = np.array([*edges, near, (near + far) / 2, far, far + 2, 1e5], np.float32)
        x, dy = (a.ravel() for a in np.meshgrid(np.concatenate([points, -points]), [*edges, *np.negative(edges)]))
        for dtype in (np.dtype(np.float32), BFLOAT16):
            inputs = dy.astype(dtype), x.astype(dtype)
            cuda, cpu = (elementwise(f"{name}_slope", inputs, np.empty(x.shape, dtype), on) for on in ("cuda", "cpu"))
            assert same(cuda, cpu), (name, dtype)


def compiled(name: str, table: bool) -> str:
    """The PTX, for an H200, of the loop over contiguous float32 or, by table, bfloat16."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aclnn.kernels.cuda.elementwise import TILE, walk
    from aclnn.kernels.cuda.formulas import FORMULAS
    from aclnn.kernels.cuda.launch import tl

    kind, pointer = (tl.bfloat16, "*bf16") if table else (tl.float32, "*fp32")
    constants = {
        "rows": 1, "dy_step": 1, "x_step": 1, "out_step": 1, "DY": kind, "X": kind, "OUT": kind,
        "FORMULA": None if table else FORMULAS[name][0], "BINARY": True,
        "OUTER": 0, "ROWS": 1, "COLUMNS": TILE, "EVEN": True,
    }  # fmt: skip
    signature = dict.fromkeys(constants, "constexpr") | dict.fromkeys(("dy", "x", "out"), pointer)
    signature |= {"table": "*fp32", "axes": "*i64", "columns": "i32"}
    places = {argument: (walk.arg_names.index(argument),) for argument in signature}
    source = ASTSource(
        fn=walk,
        signature=signature,
        constexprs={places[key]: value for key, value in constants.items()},
        attrs={places[key]: [["tt.divisibility", 16]] for key in ("dy", "x", "out", "table", "columns")},
    )
    options = {"num_warps": 4, "enable_fp_fusion": False}
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


@pytest.mark.parametrize(
    ("name", "table"),
    [("silu_slope", False), ("fast_gelu_slope", False), ("gelu_erf_slope", False), ("gelu_tanh_slope", False),
     ("hardswish_slope", False), ("silu_slope", True)],
)  # fmt: skip
def test_compiles_to_wide_accesses(name: str, table: bool) -> None:
    if sys.platform != "linux" or "nvidia" not in triton.backends.backends:
        pytest.skip("this Triton has no compiler for NVIDIA GPUs")
    ptx = compiled(name, table)
    # Eight elements of each operand a thread: 16 bytes at a time.
    accesses = 1 if table else 2
    assert len(re.findall(r"ld\.global\.v4", ptx)) == 2 * accesses
    assert len(re.findall(r"st\.global\.v4", ptx)) == accesses
    assert ".f64" not in ptx
    assert "local" not in ptx, "registers are spilled"


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"]()
