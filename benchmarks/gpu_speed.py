"""``make gpu``'s measurements, beside a copy of as many bytes, PyTorch, torch.compile and Liger-Kernel."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from benchmarks.gpu_checks import SLOPES, surviving

Row = dict[str, Any]
Calls = dict[str, Callable[[], Any]]
_TENSORS = 8
"""Of one size: the operands, results, and what PyTorch's FastGELU holds between."""


def percentiles_us(at: Any, calls: Calls) -> dict[str, list[float]]:
    """20th, 50th and 80th percentile of each call, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(at.sizes.rounds):
        for name, call in calls.items():
            times[name].append(at.time_us(call))
    cuts = {name: statistics.quantiles(values, n=10) for name, values in times.items()}
    return {name: [values[1], values[4], values[7]] for name, values in cuts.items()}


def rows_of(at: Any, label: Row, nbytes: int, calls: Calls) -> Iterator[Row]:
    """A row for each call, beside a copy of ``copy_bytes``; one that fails is reported and left out."""
    able = {}
    for name, call in calls.items():
        try:
            for _ in range(3):
                call()
            at.settle()
            able[name] = call
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:500]
            yield {**label, "what": name, "passed": name not in ("copy", "aclnn"), "text": text}
    if "copy" not in able:
        return
    measured = percentiles_us(at, able)
    copy_bytes_per_us = 2 * label["copy_bytes"] / measured["copy"][1]
    for name, (p20, p50, p80) in measured.items():
        moved = 2 * label["copy_bytes"] if name == "copy" else nbytes
        yield {
            **label, "what": name, "p20_us": p20, "p50_us": p50, "p80_us": p80, "gb_per_s": moved / p50 / 1e3,
            "of_copy": moved / p50 / copy_bytes_per_us,
        }  # fmt: skip


def elementwise_speed(at: Any, name: str, dtype: Any, elements: int, compiled: bool) -> Iterator[Row]:
    """An activation's gradient of so many elements; ``compiled`` beside torch.compile, else beside PyTorch."""
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
    calls: Calls = {"copy": lambda: out.copy_(x), "aclnn": lambda: operator(dy, x, *attributes, out=out)}
    if compiled:
        graph = torch.compile(lambda dy, x: theirs(dy, x), dynamic=False)
        calls["torch.compile"] = lambda: graph(dy, x)
    else:
        calls["PyTorch"] = lambda: theirs(dy, x)
    nbytes = x.numel() * x.element_size()
    label = {"operator": name, "dtype": str(dtype), "elements": elements, "copy_bytes": nbytes}
    yield from rows_of(at, label, 3 * nbytes, calls)


def layer_norm_speed(at: Any, columns: int, dtype: Any, elements: int, compiled: bool) -> Iterator[Row]:
    """LayerNorm's three gradients; ``compiled`` beside torch.compile, else beside PyTorch and Liger-Kernel."""
    torch = at.torch
    rows = elements // columns
    dy, x = (torch.randn(rows, columns, device=at.device, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device=at.device, dtype=dtype) for _ in range(2))
    out, mean, rstd = torch.ops.aten.native_layer_norm(x, [columns], weight, bias, 1e-5)
    ours, theirs = at.operator("layer_norm_backward"), torch.ops.aten.native_layer_norm_backward
    given = (dy, x, [columns], mean, rstd, weight, bias)
    wide = (dy, x, [columns], mean.float(), rstd.float(), weight, bias)
    calls: Calls = {"copy": lambda: out.copy_(x), "aclnn": lambda: ours(*wide)}
    if compiled:
        graph = torch.compile(lambda *tensors: theirs(*tensors, [True] * 3), dynamic=False)
        calls["torch.compile"] = lambda: graph(*given)
    else:
        calls["PyTorch"] = lambda: theirs(*given, [True] * 3)
        try:
            liger = import_module("liger_kernel.ops.layer_norm").layer_norm_backward
        except ImportError:
            pass
        else:
            calls["Liger-Kernel"] = lambda: liger(dy, x, weight, bias, mean.flatten(), rstd.flatten())
    nbytes = x.numel() * x.element_size()
    label = {"operator": "layer_norm_backward", "dtype": str(dtype), "rows": rows, "columns": columns}
    yield from rows_of(at, label | {"copy_bytes": nbytes}, 3 * nbytes, calls)


def speed(at: Any, deadline: float) -> Iterator[Row]:
    """Bytes are those moved once. torch.compile comes last: each of its graphs takes seconds."""
    torch, sizes = at.torch, at.sizes
    dtypes, cuda = (torch.float32, torch.bfloat16), at.device.type == "cuda"
    plans: list[tuple[str, int, Callable[[], Iterator[Row]]]] = []
    for compiled in (False, True) if cuda else (False,):
        columns = itertools.product(sizes.layer_norm_elements[: 1 if compiled else None], sizes.layer_norm_columns)
        for (elements, count), dtype in itertools.product(columns, dtypes):
            plans.append((
                f"layer_norm_backward {elements} {count} {dtype}",
                elements * dtype.itemsize,
                lambda given=(at, count, dtype, elements, compiled): layer_norm_speed(*given),
            ))  # fmt: skip
        for elements, name, dtype in itertools.product(sizes.speed_elements[: 1 if compiled else None], SLOPES, dtypes):
            plans.append((
                f"{name} {elements} {dtype}",
                elements * dtype.itemsize,
                lambda given=(at, name, dtype, elements, compiled): elementwise_speed(*given),
            ))  # fmt: skip
    for label, nbytes, plan in plans:
        if time.monotonic() > deadline:
            return
        if cuda and _TENSORS * nbytes > torch.cuda.mem_get_info()[0]:
            yield {"check": f"speed of {label}", "passed": True, "text": "left out: more memory than is free"}
            continue
        yield from surviving(f"speed of {label}", plan())
        if cuda:
            torch.cuda.empty_cache()
