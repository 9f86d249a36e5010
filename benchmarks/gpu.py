"""``make gpu``: check the CUDA kernels on the GPU at hand, walk every float32 input, and measure; under nine minutes.

Uses the interpreter's own PyTorch and Triton and installs nothing. Writes ``checks.json``, ``exhaustive.json`` and
``speed.json`` with the machine's name into the folder given by ``--out``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

BUDGET_S = {"checks": 60.0, "exhaustive": 240.0, "speed": 200.0}
SLOPES = {
    "silu_backward": ("silu_slope", ()),
    "fast_gelu_backward": ("fast_gelu_slope", ()),
    "gelu_backward_v2": ("gelu_erf_slope", ("none",)),
    "gelu_backward_v2 tanh": ("gelu_tanh_slope", ("tanh",)),
    "hardswish_backward": ("hardswish_slope", ()),
}
VALUES = {
    "silu": ("silu_value", ()),
    "fast_gelu": ("fast_gelu_value", ()),
    "gelu_v2": ("gelu_erf_value", (0,)),
    "gelu": ("gelu_tanh_value", ()),
    "hardswish": ("hardswish_value", ()),
}


def machine(torch: Any) -> dict[str, Any]:
    """What every results file begins with."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver_cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton"),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def references(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """The formulas in float64 by name: what aclnn.operators says, for tensors."""
    root_half, root_two_pi, bend = math.sqrt(0.5), math.sqrt(2.0 * math.pi), math.sqrt(2.0 / math.pi)

    def logistic_slope(u: Any) -> Any:
        s = torch.sigmoid(u)
        return s * (1.0 + u * (1.0 - s))

    def gelu_tanh_slope(x: Any) -> Any:
        bounded = x.clamp(-100.0, 100.0)
        u = bend * (bounded + 0.044715 * bounded**3)
        e = torch.exp(-2.0 * u.abs())
        t = 1.0 / (1.0 + e)
        slope = 2.0 * bounded * t * bend * (1.0 + 3.0 * 0.044715 * bounded**2)
        return torch.where(u > 0.0, t + e * t * slope, e * t * (1.0 + slope))

    def hardswish_slope(x: Any) -> Any:
        return torch.where(x < -3.0, 0.0, torch.where(x > 3.0, 1.0, (x + 1.5) / 3.0))

    def hardswish_value(x: Any) -> Any:
        return torch.where(x <= -3.0, 0.0, torch.where(x >= 3.0, x, x * (x + 3.0) / 6.0))

    return {
        "silu_slope": logistic_slope,
        "fast_gelu_slope": lambda x: logistic_slope(1.702 * x),
        "gelu_erf_slope": lambda x: (
            0.5 * torch.special.erfc(-x * root_half) + x * torch.exp(-0.5 * x * x) / root_two_pi
        ),
        "gelu_tanh_slope": gelu_tanh_slope,
        "hardswish_slope": hardswish_slope,
        "silu_value": lambda x: x / (1.0 + torch.exp(-x)),
        "fast_gelu_value": lambda x: x / (1.0 + torch.exp(-1.702 * x)),
        "gelu_erf_value": lambda x: 0.5 * x * torch.special.erfc(-x * root_half),
        "gelu_tanh_value": lambda x: x / (1.0 + torch.exp(-2.0 * bend * (x + 0.044715 * x**3))),
        "hardswish_value": hardswish_value,
    }


def same_bits(torch: Any, ours: Any, theirs: Any) -> Any:
    """Element by element; any NaN equals any other."""
    kind = torch.int32 if ours.element_size() == 4 else torch.int16
    return (ours.view(kind) == theirs.view(kind)) | (ours.isnan() & theirs.isnan())


def checks(torch: Any, deadline: float) -> list[dict[str, Any]]:
    """The GPU against the CPU's kernels: data types, strides, broadcasting, masks, special values, repeatability."""
    operators = torch.ops.aclnn
    found = []

    def record(name: str, passed: bool, **more: Any) -> None:
        found.append({"check": name, "passed": bool(passed), **more})

    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3.0, -3.0, 3e38, -3e38, 1e-40])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.cat([special, 4.0 * torch.randn(99_990)]).to(dtype)
        dy = torch.randn(100_000).to(dtype)
        for name, (_, attributes) in SLOPES.items():
            operator = getattr(operators, name.split()[0])
            ours, theirs = operator(dy.cuda(), x.cuda(), *attributes).cpu(), operator(dy, x, *attributes)
            equal = same_bits(torch, ours, theirs)
            record(f"{name} {dtype} bits of the CPU", equal.all(), different=int((~equal).sum()))
        for name, (_, attributes) in VALUES.items():
            ours, theirs = (
                getattr(operators, name)(x.cuda(), *attributes).cpu(),
                getattr(operators, name)(x, *attributes),
            )
            close = torch.isclose(ours, theirs, rtol=3 * torch.finfo(dtype).eps, atol=1e-37, equal_nan=True)
            record(f"{name} {dtype} close to the CPU", close.all(), different=int((~close).sum()))
    x, dy = torch.randn(300, 70, 50), torch.randn(300, 70, 50)
    for dims in itertools.permutations(range(3)):
        ours = operators.silu_backward(dy.cuda().permute(dims), x.cuda().permute(dims))
        theirs = operators.silu_backward(dy.permute(dims), x.permute(dims))
        record(f"strides {dims}", torch.equal(ours.cpu(), theirs) and ours.stride() == theirs.stride())
    record(
        "broadcast",
        torch.equal(operators.gelu_backward_v2(dy.cuda(), x[:1].cuda()).cpu(), operators.gelu_backward_v2(dy, x[:1])),
    )
    for rows, columns in ((300, 257), (4096, 1024), (33, 20_000)):
        x, dy, weight, bias = (torch.randn(*shape) for shape in ((rows, columns),) * 2 + ((columns,),) * 2)
        forward = operators.layer_norm(x, [columns], weight, bias)
        for ours, theirs in zip(
            operators.layer_norm(x.cuda(), [columns], weight.cuda(), bias.cuda()), forward, strict=True
        ):
            record(f"layer_norm {rows}x{columns}", torch.allclose(ours.cpu(), theirs, rtol=1e-5, atol=1e-5))
        arguments = (dy, x, [columns], *forward[1:], weight, bias)
        moved = [a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments]
        for mask in itertools.product([False, True], repeat=3):
            ours, again = (operators.layer_norm_backward(*moved, list(mask)) for _ in range(2))
            theirs = operators.layer_norm_backward(*arguments, list(mask))
            for mine, repeat, other in zip(ours, again, theirs, strict=True):
                if other is None:
                    record(f"layer_norm_backward {rows}x{columns} {mask} masked", mine is None)
                    continue
                close = torch.allclose(mine.cpu(), other, rtol=1e-4, atol=1e-3)
                record(f"layer_norm_backward {rows}x{columns} {mask}", close and torch.equal(mine, repeat))
        if time.monotonic() > deadline:
            record("time", False, note="stopped at the time limit")
            break
    return found


def judge(torch: Any, x: Any, ours: Any, exact: Any) -> tuple[float, float, int]:
    """The worst error in ULP with its input, and the number of wrong special values."""
    rounded = exact.to(torch.float32)
    magnitude = rounded.abs()
    unit = (torch.nextafter(magnitude, torch.full_like(magnitude, torch.inf)) - magnitude).double()
    judged = x.isfinite() & rounded.isfinite()
    error = torch.where(judged, (ours.double() - exact).abs() / unit, 0.0)
    special = ~judged & (ours.isnan() != rounded.isnan()) | ~judged & ~ours.isnan() & (ours != rounded)
    worst, place = error.nan_to_num(torch.inf).max(0)
    return float(worst), float(x[place]), int(special.sum())


def exhaustive(torch: Any, deadline: float) -> list[dict[str, Any]]:
    """Every float32 input of every elementwise operator, dy = 1, against the formula in float64 on the device."""
    chunk, known = 1 << 24, references(torch)
    results: dict[str, dict[str, Any]] = {
        name: {"operator": name, "worst_ulp": 0.0, "at": None, "wrong_special": 0, "inputs": 0}
        for name in (*SLOPES, *VALUES)
    }
    ones = torch.ones(chunk, device="cuda")
    # In an order that spreads over all magnitudes: whatever the time limit cuts off is no region of its own.
    for index in (i * 97 % 256 for i in range(256)):
        if time.monotonic() > deadline:
            break
        patterns = torch.arange(index * chunk, (index + 1) * chunk, dtype=torch.int64, device="cuda")
        x = (patterns - (patterns >= 2**31) * 2**32).to(torch.int32).view(torch.float32)
        for name, (formula, attributes) in {**SLOPES, **VALUES}.items():
            operator = getattr(torch.ops.aclnn, name.split()[0])
            ours = operator(ones, x, *attributes) if name in SLOPES else operator(x, *attributes)
            worst, at, wrong = judge(torch, x, ours, known[formula](x.double()))
            row = results[name]
            row["inputs"] += chunk
            row["wrong_special"] += wrong
            if worst > row["worst_ulp"]:
                row["worst_ulp"], row["at"] = worst, at
    return list(results.values())


def percentiles_us(torch: Any, calls: dict[str, Callable[[], Any]], rounds: int = 15) -> dict[str, list[float]]:
    """20th, 50th and 80th percentile of each call, taken in turns and timed by events on the stream."""
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3)
    found = {}
    for name, values in times.items():
        cuts = statistics.quantiles(values, n=10)
        found[name] = [cuts[1], cuts[4], cuts[7]]
    return found


def rows_of(
    torch: Any, label: dict[str, Any], nbytes: int, calls: dict[str, Callable[[], Any]]
) -> Iterator[dict[str, Any]]:
    measured = percentiles_us(torch, calls)
    copy_bytes_per_us = 2 * label["copy_bytes"] / measured["copy"][1]
    for name, (p20, p50, p80) in measured.items():
        moved = 2 * label["copy_bytes"] if name == "copy" else nbytes
        yield {
            **label, "what": name, "p20_us": p20, "p50_us": p50, "p80_us": p80, "gb_per_s": moved / p50 / 1e3,
            "of_copy": moved / p50 / copy_bytes_per_us,
        }  # fmt: skip


def elementwise_speed(torch: Any, name: str, dtype: Any, elements: int) -> Iterator[dict[str, Any]]:
    """An activation's gradient of so many elements."""
    dy, x = (torch.randn(elements, device="cuda", dtype=dtype) for _ in range(2))
    out = torch.empty_like(x)
    operator, attributes = getattr(torch.ops.aclnn, name.split()[0]).out, SLOPES[name][1]

    def fast_gelu(dy: Any, x: Any) -> Any:
        s = torch.sigmoid(1.702 * x)
        return dy * (s + 1.702 * x * s * (1.0 - s))

    aten = torch.ops.aten
    theirs = {
        "silu_backward": aten.silu_backward,
        "gelu_backward_v2": aten.gelu_backward,
        "gelu_backward_v2 tanh": lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"),
        "hardswish_backward": aten.hardswish_backward,
        "fast_gelu_backward": fast_gelu,
    }[name]
    compiled = torch.compile(lambda dy, x: theirs(dy, x), dynamic=False)
    calls = {
        "copy": lambda: out.copy_(x),
        "aclnn": lambda: operator(dy, x, *attributes, out=out),
        "PyTorch": lambda: theirs(dy, x),
        "torch.compile": lambda: compiled(dy, x),
    }
    nbytes = x.numel() * x.element_size()
    label = {"operator": name, "dtype": str(dtype), "elements": elements, "copy_bytes": nbytes}
    yield from rows_of(torch, label, 3 * nbytes, calls)


def layer_norm_speed(torch: Any, columns: int, dtype: Any) -> Iterator[dict[str, Any]]:
    """LayerNorm's three gradients over 2^27 elements."""
    rows = 2**27 // columns
    dy, x = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device="cuda", dtype=dtype) for _ in range(2))
    out, mean, rstd = torch.ops.aten.native_layer_norm(x, [columns], weight, bias, 1e-5)
    mean, rstd = mean.float(), rstd.float()
    ours, theirs = torch.ops.aclnn.layer_norm_backward, torch.ops.aten.native_layer_norm_backward
    calls = {
        "copy": lambda: out.copy_(x),
        "aclnn": lambda: ours(dy, x, [columns], mean, rstd, weight, bias),
        "PyTorch": lambda: theirs(dy, x, [columns], mean, rstd, weight, bias, [True] * 3),
    }
    nbytes = x.numel() * x.element_size()
    label = {"operator": "layer_norm_backward", "dtype": str(dtype), "rows": rows, "columns": columns}
    yield from rows_of(torch, label | {"copy_bytes": nbytes}, 3 * nbytes, calls)


def speed(torch: Any, deadline: float) -> list[dict[str, Any]]:
    """Beside a copy of as many bytes, PyTorch and torch.compile; bytes are those read and written once."""
    dtypes, found = (torch.float32, torch.bfloat16), []
    for columns, dtype in itertools.product((256, 1024, 4096, 8192, 16384), dtypes):
        found.extend(layer_norm_speed(torch, columns, dtype))
    for elements, name, dtype in itertools.product((2**28, 2**26, 2**30), SLOPES, dtypes):
        if time.monotonic() > deadline:
            break
        found.extend(elementwise_speed(torch, name, dtype, elements))
        torch.cuda.empty_cache()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the results")
    parser.add_argument("--parts", nargs="+", choices=list(BUDGET_S), default=list(BUDGET_S))
    options = parser.parse_args()
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        sys.exit(f"make gpu: {error.name} is not installed for {sys.executable}; choose another with PYTHON=")
    if not torch.cuda.is_available():
        sys.exit("make gpu: expected an NVIDIA GPU that PyTorch can use, got none (torch.cuda.is_available() is False)")
    import aclnn.torch  # noqa: F401

    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for part in options.parts:
        begun = time.monotonic()
        rows = globals()[part](torch, begun + BUDGET_S[part])
        results = {"machine": machine(torch), "seconds": time.monotonic() - begun, "results": rows}
        (options.out / f"{part}.json").write_text(json.dumps(results, indent=1) + "\n")
        wrong = [
            row for row in rows
            if not row.get("passed", True) or row.get("worst_ulp", 0.0) > 2.0 or row.get("wrong_special", 0)
        ]  # fmt: skip
        failed |= bool(wrong)
        print(f"{part}: {len(rows)} results in {results['seconds']:.0f} s, {len(wrong)} wrong")
        for row in wrong[:20]:
            print("  ", row)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
