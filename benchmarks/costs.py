"""Measure the costs of a call besides its arithmetic: imports, first calls, compilation, overheads, memory.

``python -m benchmarks.costs NAME`` measures one cost in a process of its own; ``PROGRAMS`` has the names.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent


class Cost(NamedTuple):
    """A row of costs.csv; ``most`` is the project's limit, empty without one."""

    name: str
    value: float
    unit: str
    most: float | str = ""


def first_call_ms() -> float:
    import aclnn

    x = np.ones(1024, np.float32)
    begun = time.perf_counter()
    aclnn.silu_backward(x, x)
    return (time.perf_counter() - begun) * 1e3


def _layer_norm(dy: Any, x: Any, out: Any) -> Callable[[], Any]:
    import aclnn

    rows, columns = x.shape
    weight, dw, db = (np.ones(columns, x.dtype) for _ in range(3))
    statistic = np.ones((rows, 1), np.float32)
    arguments = (dy, x, [columns], statistic, statistic, weight, weight, (out is not None, True, True))
    return lambda: aclnn.layer_norm_backward(*arguments, out=(out, dw, db))


def _calls() -> Iterator[Callable[[], Any]]:
    """Yield calls that together need every kernel."""
    import ml_dtypes

    import aclnn

    x = np.ones((64, 64), np.float32)
    for gradient in (aclnn.hardswish_backward, aclnn.silu_backward, aclnn.fast_gelu_backward):
        yield lambda f=gradient: (f(x, x), f(x, x.T))
    for approximate in ("none", "tanh"):
        yield lambda a=approximate: (aclnn.gelu_backward_v2(x, x, a), aclnn.gelu_backward_v2(x, x.T, a))
    for kind in (np.float16, ml_dtypes.bfloat16):
        narrow = x.astype(kind)
        yield lambda x=narrow: (aclnn.silu_backward(x, x), aclnn.silu_backward(x, x.T))
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16):
        for shape in ((64, 64), (64, 256), (64, 16384), (1024, 64), (1024, 512), (1024, 1024)):
            yield _layer_norm(*(np.ones(shape, kind) for _ in range(3)))
        yield _layer_norm(*(np.ones((1024, 64), kind) for _ in range(2)), None)


def compile_s() -> dict[str, float]:
    """Measure the seconds to compile each kernel with an empty cache; of kernels with the same name, the longest."""
    from aclnn.kernels.cpu import jit

    around, spent = jit._symbols_of, dict[str, float]()

    @contextmanager
    def timed(name: str, key: tuple[object, ...]) -> Iterator[None]:
        begun = time.perf_counter()
        with around(name, key):
            yield
        spent[name] = max(spent.get(name, 0.0), time.perf_counter() - begun)

    jit._symbols_of = timed
    for call in _calls():
        call()
    return spent


def _interleaved_us(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the medians over 100 rounds, each with 100 calls of everything in turn."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(101):
        for name, call in calls.items():
            begun = time.perf_counter()
            for _ in range(100):
                call()
            if turn:
                spent[name].append((time.perf_counter() - begun) / 100)
    return {name: statistics.median(times) * 1e6 for name, times in spent.items()}


def call_us() -> dict[str, float]:
    """Measure calls on 1,024 float32 by every interface and PyTorch; the executor is repeatable and its stream idle."""
    import torch

    import aclnn.torch
    from aclnn import capi
    from aclnn.execution.executor import Executor
    from aclnn.runtime import devices, handles

    torch.set_num_threads(1)  # idle threads of PyTorch would take cores from the next measurement
    x, dy, out = (np.ones(1024, np.float32) for _ in range(3))
    tensors = [torch.from_numpy(array) for array in (dy, x, out)]
    capi.aclrtSetDevice(0)
    _, stream = capi.aclrtCreateStream()
    _, begin = capi.aclrtMalloc(3 * 4096, capi.ACL_MEM_MALLOC_HUGE_FIRST)
    given = [
        capi.aclCreateTensor([1024], 1, capi.ACL_FLOAT, None, 0, capi.ACL_FORMAT_ND, [1024], 1, begin + 4096 * i)
        for i in range(3)
    ]
    _, size, handle = capi.aclnnSiluBackwardGetWorkspaceSize(*given)
    assert capi.aclSetAclOpExecutorRepeatable(handle) == 0
    executor, queue = handles.get(handle, Executor), devices.stream_of(stream)
    assert executor is not None
    theirs, ours = torch.ops.aten.silu_backward, torch.ops.aclnn.silu_backward
    return _interleaved_us(
        {
            "aclnn": lambda: aclnn.silu_backward(dy, x, out=out),
            "aclnn, tensors": lambda: aclnn.silu_backward(*tensors),
            "torch": lambda: theirs.grad_input(tensors[0], tensors[1], grad_input=tensors[2]),
            "executor": lambda: executor.run(0, size, queue, queue.context.device),
            "phase two": lambda: capi.aclnnSiluBackward(0, size, handle, stream),
            "operator": lambda: ours(tensors[0], tensors[1]),
            "torch's operator": lambda: theirs(tensors[0], tensors[1]),
        }
    )


def layer_us() -> dict[str, float]:
    """Measure small layers in PyTorch, 16 rows of 64, whose time is only the overhead of calls."""
    import torch

    from aclnn.torch import functional as ours

    theirs = torch.nn.functional
    torch.set_num_threads(1)
    x, weight, bias = (torch.ones(shape, requires_grad=True) for shape in ((16, 64), (64,), (64,)))
    dy = torch.ones(16, 64)

    def trained(result: Any, *leaves: Any) -> None:
        torch.autograd.grad(result, leaves, dy)

    def inferred(layer: Callable[..., Any], *arguments: Any) -> None:
        with torch.no_grad():
            layer(*arguments)

    calls: dict[str, Callable[[], Any]] = {}
    for name, functions in (("aclnn", ours), ("torch", theirs)):
        calls[f"{name} silu"] = lambda f=functions: inferred(f.silu, x)
        calls[f"{name} layer_norm"] = lambda f=functions: inferred(f.layer_norm, x, (64,), weight, bias)
        calls[f"{name} silu and gradient"] = lambda f=functions: trained(f.silu(x), x)
        calls[f"{name} layer_norm and gradients"] = lambda f=functions: trained(
            f.layer_norm(x, (64,), weight, bias), x, weight, bias
        )
    return _interleaved_us(calls)


def _status_kib(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def memory_kib() -> dict[str, float]:
    """Measure the peak growth of the process's memory during a call whose output is allocated before."""
    import ml_dtypes

    import aclnn
    from aclnn.kernels.cpu import threads

    threads.set_threads(2)

    def risen(call: Callable[[], Any], small: Callable[[], Any]) -> float:
        small()
        Path("/proc/self/clear_refs").write_text("5")
        before = _status_kib("VmRSS")
        call()
        return max(0, _status_kib("VmHWM") - before)

    found = {}
    for kind in (np.float32, ml_dtypes.bfloat16):
        dy, x, out = (np.ones((4096, 4096), kind) for _ in range(3))
        layouts = {
            "contiguous": (dy, x, out),
            "x transposed": (dy, x.T, out),
            "sliced": (dy[:, 3:4000], x[:, 3:4000], out[:, 3:4000]),
        }
        for layout, (a, b, c) in layouts.items():
            found[f"silu {np.dtype(kind)} 4096×4096 {layout}"] = risen(
                lambda a=a, b=b, c=c: aclnn.silu_backward(a, b, out=c),
                lambda a=a, b=b, c=c: aclnn.silu_backward(a[:256, :256], b[:256, :256], out=c[:256, :256]),
            )
        found[f"layer_norm {np.dtype(kind)} 4096×4096"] = risen(
            _layer_norm(dy, x, out), _layer_norm(dy[:256], x[:256], out[:256])
        )
    return found


class Switch(NamedTuple):
    """A row of streaming.csv: microseconds of a call, and of a call followed by reading its result."""

    result_bytes: int
    streamed: int
    call_us: float
    call_and_read_us: float
    switch_bytes: int


def switch(quick: bool) -> Iterator[Switch]:
    """Measure hardswish in float32 with cached and non-temporal stores, by size of the result."""
    import aclnn
    from aclnn.kernels.cpu import threads
    from aclnn.kernels.cpu.elementwise import plans

    threads.set_threads(2)
    usual = plans.STREAM_BYTES
    for exponent in range(19, 24 if quick else 27):
        dy, x, out = (np.ones((1 << exponent) // 4, np.float32) for _ in range(3))
        spent: dict[tuple[int, int], list[float]] = {(s, r): [] for s in (0, 1) for r in (0, 1)}
        for _ in range(5 if quick else 31):
            for streamed, read in spent:
                plans.STREAM_BYTES = 0 if streamed else 1 << 62
                begun = time.perf_counter()
                aclnn.hardswish_backward(dy, x, out=out)
                if read:
                    out.sum()
                spent[streamed, read].append((time.perf_counter() - begun) * 1e6)
        plans.STREAM_BYTES = usual
        for streamed in (0, 1):
            alone, followed = (round(statistics.median(spent[streamed, read]), 1) for read in (0, 1))
            yield Switch(1 << exponent, streamed, alone, followed, usual)


def _run(*arguments: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ | environment
    )
    return json.loads(done.stdout)


def _in_a_process(program: str, **environment: str) -> Any:
    return _run("-m", "benchmarks.costs", program, **environment)


def _in_processes(program: str, count: int) -> dict[str, float]:
    """Return the medians over several processes, since one process may be disturbed throughout."""
    runs = [_in_a_process(program) for _ in range(count)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure(quick: bool) -> list[Cost]:
    """Measure all costs; all but compilations are medians over several processes."""
    times, few = (3, 1) if quick else (9, 3)
    timed_import = "import time; begun = time.perf_counter(); import aclnn; print((time.perf_counter() - begun) * 1e3)"
    with tempfile.TemporaryDirectory() as cache:
        compiled = _in_a_process("compile_s", ACLNN_CACHE_DIR=cache)
    calls, layers, memory = (_in_processes(name, few) for name in ("call_us", "layer_us", "memory_kib"))
    return [
        Cost(
            "import aclnn, NumPy included", statistics.median(_run("-c", timed_import) for _ in range(times)), "ms", 200
        ),
        Cost(
            "first call of a process, kernels on disk, Numba's import included",
            statistics.median(_in_a_process("first_call_ms") for _ in range(times)),
            "ms",
            1000,
        ),
        Cost("silu_backward, 1,024 float32, out= given", calls["aclnn"], "µs", 2.5 * calls["torch"]),
        Cost("the same on PyTorch's tensors", calls["aclnn, tensors"], "µs"),
        Cost("the same in PyTorch", calls["torch"], "µs"),
        Cost("torch.ops.aclnn.silu_backward, 1,024 float32", calls["operator"], "µs"),
        Cost("torch.ops.aten.silu_backward, the same", calls["torch's operator"], "µs"),
        Cost("a repeatable executor's run, 1,024 float32, idle stream", calls["executor"], "µs", 2),
        Cost("the same by its C name in Python", calls["phase two"], "µs"),
        *(Cost(f"layer of 16×64 float32 in PyTorch, {name}", time_us, "µs") for name, time_us in layers.items()),
        *(Cost(f"compile {name}", seconds, "s", 2) for name, seconds in compiled.items()),
        *(
            Cost(f"memory beyond the output, {name}", kib, "KiB", "" if "layer_norm" in name else 2048)
            for name, kib in memory.items()
        ),
    ]


def save(rows: list[Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0]._fields)
        writer.writerows([round(v, 3) if isinstance(v, float) else v for v in row] for row in rows)


PROGRAMS = {f.__name__: f for f in (first_call_ms, compile_s, call_us, layer_us, memory_kib)}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]]()))
