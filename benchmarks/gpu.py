"""``make gpu``: check the CUDA kernels on the GPU at hand, walk every float32 input, and measure; under nine minutes.

Uses the interpreter's own PyTorch, Triton and NumPy and installs nothing; compares with the CPU's kernels where Numba
is there too, and with Liger-Kernel where that is. Writes ``checks.json``, ``exhaustive.json`` and ``speed.json`` with
the machine's name into the folder given by ``--out``. ``--dry-run`` does the same on a CPU with tiny sizes, by Triton's
interpreter.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu_checks import ROOT, SLOPES, VALUES, checks, judge, references
from benchmarks.gpu_machine import Gpu, Interpreter

NEEDED = ("numpy", "torch", "triton")
BUDGET_S = {"checks": 110.0, "exhaustive": 200.0, "speed": 190.0}
WORST_ULP = 2.0
Row = dict[str, Any]


def machine(at: Any) -> Row:
    """What every results file begins with."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "gpu": at.name,
        "driver_cuda": at.torch.version.cuda,
        "torch": at.torch.__version__,
        "triton": importlib.metadata.version("triton"),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def exhaustive(at: Any, deadline: float) -> list[Row]:
    """Every float32 input of every elementwise operator, dy = 1, against the formula in float64 on the device."""
    torch, known, sizes = at.torch, references(at.torch), at.sizes
    results: dict[str, Row] = {
        name: {"operator": name, "worst_ulp": 0.0, "at": None, "wrong_special": 0, "inputs": 0}
        for name in (*SLOPES, *VALUES)
    }
    ones = torch.ones(sizes.chunk, device=at.device)
    # In an order that spreads over all magnitudes: whatever the time limit cuts off is no region of its own.
    for index in (i * 97 % sizes.chunks for i in range(sizes.chunks)):
        if time.monotonic() > deadline:
            break
        first = index * (2**32 // sizes.chunks)
        patterns = torch.arange(first, first + sizes.chunk, dtype=torch.int64, device=at.device)
        x = (patterns - (patterns >= 2**31) * 2**32).to(torch.int32).view(torch.float32)
        for name, (formula, attributes) in (SLOPES | VALUES).items():
            operator = at.operator(name.split()[0])
            ours = operator(ones, x, *attributes) if name in SLOPES else operator(x, *attributes)
            worst, place, wrong = judge(torch, x, ours, known[formula](x.double()))
            row = results[name]
            row["inputs"] += sizes.chunk
            row["wrong_special"] += wrong
            if worst > row["worst_ulp"]:
                row["worst_ulp"], row["at"] = worst, place
    return list(results.values())


def percentiles_us(at: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """20th, 50th and 80th percentile of each call, taken in turns."""
    for call in calls.values():
        for _ in range(3):
            call()
    at.settle()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(at.sizes.rounds):
        for name, call in calls.items():
            times[name].append(at.time_us(call))
    cuts = {name: statistics.quantiles(values, n=10) for name, values in times.items()}
    return {name: [values[1], values[4], values[7]] for name, values in cuts.items()}


def rows_of(at: Any, label: Row, nbytes: int, calls: dict[str, Callable[[], Any]]) -> Iterator[Row]:
    """A row for each call, beside a copy of ``copy_bytes``."""
    measured = percentiles_us(at, calls)
    copy_bytes_per_us = 2 * label["copy_bytes"] / measured["copy"][1]
    for name, (p20, p50, p80) in measured.items():
        moved = 2 * label["copy_bytes"] if name == "copy" else nbytes
        yield {
            **label, "what": name, "p20_us": p20, "p50_us": p50, "p80_us": p80, "gb_per_s": moved / p50 / 1e3,
            "of_copy": moved / p50 / copy_bytes_per_us,
        }  # fmt: skip


def elementwise_speed(at: Any, name: str, dtype: Any, elements: int, compiled: bool) -> Iterator[Row]:
    """An activation's gradient of so many elements."""
    torch, aten = at.torch, at.torch.ops.aten
    dy, x = (torch.randn(elements, device=at.device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(x)
    operator, attributes = at.operator(name.split()[0]), SLOPES[name][1]

    def fast_gelu(dy: Any, x: Any) -> Any:
        s = torch.sigmoid(1.702 * x)
        return dy * (s + 1.702 * x * s * (1.0 - s))

    theirs = {
        "silu_backward": aten.silu_backward,
        "gelu_backward_v2": aten.gelu_backward,
        "gelu_backward_v2 tanh": lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"),
        "hardswish_backward": aten.hardswish_backward,
        "fast_gelu_backward": fast_gelu,
    }[name]
    calls = {
        "copy": lambda: out.copy_(x),
        "aclnn": lambda: operator(dy, x, *attributes, out=out),
        "PyTorch": lambda: theirs(dy, x),
    }
    if compiled:
        graph = torch.compile(lambda dy, x: theirs(dy, x), dynamic=False)
        calls["torch.compile"] = lambda: graph(dy, x)
    nbytes = x.numel() * x.element_size()
    label = {"operator": name, "dtype": str(dtype), "elements": elements, "copy_bytes": nbytes}
    yield from rows_of(at, label, 3 * nbytes, calls)


def layer_norm_speed(at: Any, columns: int, dtype: Any, compiled: bool) -> Iterator[Row]:
    """LayerNorm's three gradients."""
    torch = at.torch
    rows = at.sizes.layer_norm_elements // columns
    dy, x = (torch.randn(rows, columns, device=at.device, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device=at.device, dtype=dtype) for _ in range(2))
    out, mean, rstd = torch.ops.aten.native_layer_norm(x, [columns], weight, bias, 1e-5)
    ours, theirs = at.operator("layer_norm_backward"), torch.ops.aten.native_layer_norm_backward
    given = (dy, x, [columns], mean, rstd, weight, bias)
    wide = (dy, x, [columns], mean.float(), rstd.float(), weight, bias)
    calls = {
        "copy": lambda: out.copy_(x),
        "aclnn": lambda: ours(*wide),
        "PyTorch": lambda: theirs(*given, [True] * 3),
    }
    if compiled:
        graph = torch.compile(lambda *tensors: theirs(*tensors, [True] * 3), dynamic=False)
        calls["torch.compile"] = lambda: graph(*given)
    try:
        liger = import_module("liger_kernel.ops.layer_norm").layer_norm_backward
    except ImportError:
        pass
    else:
        calls["Liger-Kernel"] = lambda: liger(dy, x, weight, bias, mean.flatten(), rstd.flatten())
    nbytes = x.numel() * x.element_size()
    label = {"operator": "layer_norm_backward", "dtype": str(dtype), "rows": rows, "columns": columns}
    yield from rows_of(at, label | {"copy_bytes": nbytes}, 3 * nbytes, calls)


def speed(at: Any, deadline: float) -> list[Row]:
    """Beside a copy of as many bytes, PyTorch, torch.compile and Liger-Kernel; bytes are those moved once."""
    torch, sizes, found = at.torch, at.sizes, []
    dtypes, compiled = (torch.float32, torch.bfloat16), at.device.type == "cuda"
    for columns, dtype in itertools.product(sizes.layer_norm_columns, dtypes):
        found.extend(layer_norm_speed(at, columns, dtype, compiled))
    for elements, name, dtype in itertools.product(sizes.speed_elements, SLOPES, dtypes):
        if time.monotonic() > deadline:
            break
        # A graph for each size would cost more time than there is.
        found.extend(elementwise_speed(at, name, dtype, elements, compiled and elements == sizes.speed_elements[0]))
        if compiled:
            torch.cuda.empty_cache()
    return found


PARTS = {"checks": checks, "exhaustive": exhaustive, "speed": speed}


def is_wrong(row: Row) -> bool:
    """Whether a row of the results is a failure."""
    if "passed" in row:
        return not row["passed"]
    return row.get("worst_ulp", 0.0) > WORST_ULP or row.get("wrong_special", 0) > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the results")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--dry-run", action="store_true", help="by Triton's interpreter, with tiny sizes")
    options = parser.parse_args()
    try:
        for package in NEEDED:
            import_module(package)
    except ImportError as error:
        sys.exit(f"make gpu: {error.name} is not installed for {sys.executable}; choose another with PYTHON=")
    torch: Any = import_module("torch")
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("make gpu: expected an NVIDIA GPU that PyTorch can use, got none (torch.cuda.is_available() is False)")
    import_module("aclnn.torch")
    at = Interpreter(torch) if options.dry_run else Gpu(torch)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for part in options.parts:
        begun = time.monotonic()
        rows = PARTS[part](at, begun + BUDGET_S[part])
        results = {"machine": machine(at), "seconds": time.monotonic() - begun, "results": rows}
        (options.out / f"{part}.json").write_text(json.dumps(results, indent=1) + "\n")
        wrong = [row for row in rows if is_wrong(row)]
        failed |= bool(wrong)
        print(f"{part}: {len(rows)} results in {results['seconds']:.0f} s, {len(wrong)} wrong")
        for row in wrong[:20]:
            print("  ", row)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
