"""The GPU's kernels without a GPU: their values by Triton's interpreter, and the instructions they compile to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")
triton: Any = pytest.importorskip("triton", reason="Triton is not installed: pip install triton")


@pytest.mark.parametrize(
    "part", ["float32", "16_bit", "layouts", "layer_norm", "layer_norm_overlapping", "layer_norm_forward"]
)
def test_interpreted(part: str) -> None:
    # Whether a kernel is interpreted is decided when its module is imported: hence a process of its own.
    program = str(Path(__file__).with_name("triton_interpreted.py"))
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", program, part], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


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
        "SLOPE": None if table else FORMULAS[name][0], "BINARY": True,
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
