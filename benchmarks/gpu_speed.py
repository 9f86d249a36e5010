"""Measurements of ``make gpu``, next to a copy of equal size, PyTorch, torch.compile and Liger-Kernel."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks import family
from benchmarks.gpu_checks import SLOPES, VALUES, failure, family_members, results_of, surviving

Row = dict[str, Any]
Calls = dict[str, Callable[[], Any]]
LEAST = dict.fromkeys(SLOPES, 0.85) | {"layer_norm_backward": 0.7}
"""Required share of the copy's speed by gradient, for tensors of at least ``_LARGE`` elements."""
_LARGE = 1 << 25
_TENSORS = 8
"""Number of tensors of equal size in memory: operands, results, and temporaries of PyTorch's FastGELU."""


def times_us(at: Any, calls: Calls) -> dict[str, tuple[list[float], float]]:
    """Measure calls in turns; return each one's 20th, 50th and 80th percentile, and the median of the host's time."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(at.sizes.rounds):
        for name, call in calls.items():
            times[name].append(at.time_us(call))
    found = {}
    for name, pairs in times.items():
        device, host = zip(*pairs, strict=True)
        cuts = statistics.quantiles(device, n=10)
        found[name] = [cuts[1], cuts[4], cuts[7]], statistics.median(host)
    return found


def rows_of(at: Any, label: Row, nbytes: int, calls: Calls) -> Iterator[Row]:
    """Yield a row for each call, relative to a copy of ``copy_bytes``, or the error of a call that fails.

    Each call first runs three times for warm-up; a device that is not ``measuring`` stops there.
    """
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
    if "copy" not in able or not at.measuring:
        return
    measured = times_us(at, able)
    copy_bytes_per_us = 2 * label["copy_bytes"] / measured["copy"][0][1]
    for name, ((p20, p50, p80), host) in measured.items():
        moved = 2 * label["copy_bytes"] if name == "copy" else nbytes
        figures = {
            "p20_us": p20, "p50_us": p50, "p80_us": p80, "gb_per_s": moved / p50 / 1e3,
            "of_copy": moved / p50 / copy_bytes_per_us, "host_us": host,
        }  # fmt: skip
        yield {**label, "what": name, **{key: float(f"{value:.4g}") for key, value in figures.items()}}


def _pytorchs(torch: Any, name: str) -> Callable[..., Any]:
    """Return PyTorch's equivalent: its own operator, or a composition for FastGELU."""
    aten = torch.ops.aten

    def fast_gelu_backward(dy: Any, x: Any) -> Any:
        s = torch.sigmoid(1.702 * x)
        return dy * (s + 1.702 * x * s * (1.0 - s))

    theirs: Callable[..., Any] = {
        "silu_backward": aten.silu_backward,
        "gelu_backward_v2": aten.gelu_backward,
        "gelu_backward_v2 tanh": lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh"),
        "hardswish_backward": aten.hardswish_backward,
        "fast_gelu_backward": fast_gelu_backward,
        "silu": aten.silu,
        "gelu_v2": aten.gelu,
        "gelu": lambda x: aten.gelu(x, approximate="tanh"),
        "hardswish": aten.hardswish,
        "fast_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    }[name]
    return theirs


def compiled_anew(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function after a reset, since torch.compile silently stops after eight graphs of the same code."""
    torch._dynamo.reset()
    graph: Callable[..., Any] = torch.compile(lambda *tensors: function(*tensors), dynamic=False, fullgraph=True)
    return graph


def elementwise_speed(at: Any, name: str, dtype: Any, elements: int, compiled: bool, sigma: float) -> Iterator[Row]:
    """Measure an activation or its gradient of x from N(0, sigma²), next to torch.compile (``compiled``) or PyTorch."""
    torch = at.torch
    x = sigma * torch.randn(elements, device=at.device, dtype=dtype)
    given = (torch.randn_like(x), x) if name in SLOPES else (x,)
    out = torch.empty_like(x)
    operator, attributes = at.operator(name.split()[0]), (SLOPES | VALUES)[name][1]
    theirs = _pytorchs(torch, name)
    calls: Calls = {"copy": lambda: out.copy_(x), "aclnn": lambda: operator(*given, *attributes, out=out)}
    if compiled:
        graph = compiled_anew(torch, theirs)
        calls["torch.compile"] = lambda: graph(*given)
    else:
        calls["PyTorch"] = lambda: theirs(*given)
    nbytes = x.numel() * x.element_size()
    label = {"operator": name, "dtype": str(dtype), "elements": elements, "sigma": sigma, "copy_bytes": nbytes}
    yield from rows_of(at, label, (len(given) + 1) * nbytes, calls)


def family_speed(at: Any, member: family.Member, dtype: Any, elements: int) -> Iterator[Row]:
    """Measure an activation of numbers from N(0, 1) next to PyTorch's; both allocate their results."""
    torch = at.torch

    def normal(shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, device=at.device, dtype=dtype)

    given = family.arguments(member, elements, normal)
    operator, theirs = at.operator(member.operator.name), family.theirs_allocating(member, given)
    x = normal((elements,))
    out, results = torch.empty_like(x), operator(*given.values())
    calls: Calls = {"copy": lambda: out.copy_(x), "aclnn": lambda: operator(*given.values())}
    if theirs is not None:
        calls["PyTorch"] = theirs
    moved = [*given.values(), *results_of(torch, results)]
    nbytes = sum(tensor.numel() * dtype.itemsize for tensor in moved if isinstance(tensor, torch.Tensor))
    label = {"operator": member.label, "dtype": str(dtype), "elements": elements, "section": "family"}
    yield from rows_of(at, label | {"copy_bytes": elements * dtype.itemsize}, nbytes, calls)


def layer_norm_forward_speed(at: Any, columns: int, dtype: Any, elements: int) -> Iterator[Row]:
    """Measure LayerNorm next to PyTorch's."""
    torch = at.torch
    rows = elements // columns
    x, out = (torch.randn(rows, columns, device=at.device, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(columns, device=at.device, dtype=dtype) for _ in range(2))
    ours, theirs = at.operator("layer_norm"), torch.ops.aten.native_layer_norm
    calls: Calls = {
        "copy": lambda: out.copy_(x),
        "aclnn": lambda: ours(x, [columns], weight, bias),
        "PyTorch": lambda: theirs(x, [columns], weight, bias, 1e-5),
    }
    nbytes = x.numel() * x.element_size()
    label = {"operator": "layer_norm", "dtype": str(dtype), "rows": rows, "columns": columns, "copy_bytes": nbytes}
    yield from rows_of(at, label, 2 * nbytes, calls)


def layer_norm_speed(at: Any, columns: int, dtype: Any, elements: int, compiled: bool) -> Iterator[Row]:
    """Measure LayerNorm's three gradients, next to torch.compile if ``compiled``, else PyTorch and Liger-Kernel."""
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
        graph = compiled_anew(torch, lambda *tensors: theirs(*tensors, [True] * 3))
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


class Plan(NamedTuple):
    """One measurement."""

    label: str
    nbytes: int
    """Size of its largest tensor."""
    rows: Callable[[], Iterator[Row]]


def plans(at: Any) -> Iterator[Plan]:
    """Yield all measurements: first next to PyTorch, then next to torch.compile, whose graphs take seconds each."""
    torch, sizes = at.torch, at.sizes
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    largest, *_ = sizes.speed_elements

    def layer_norms(function: Any, name: str, elements: int, dtypes: Sequence[Any], *rest: Any) -> Iterator[Plan]:
        for count, dtype in itertools.product(sizes.layer_norm_columns, dtypes):
            rows = partial(function, at, count, dtype, elements, *rest)
            yield Plan(f"{name} {elements} {count} {dtype}", elements * dtype.itemsize, rows)

    def activations(
        names: Iterable[str], elements: int, dtypes: Sequence[Any], compiled: bool = False, sigma: float = 1.0
    ) -> Iterator[Plan]:
        for name, dtype in itertools.product(names, dtypes):
            rows = partial(elementwise_speed, at, name, dtype, elements, compiled, sigma)
            yield Plan(f"{name} {elements} {dtype} sigma {sigma}", elements * dtype.itemsize, rows)

    for elements in sizes.layer_norm_elements:
        yield from layer_norms(layer_norm_speed, "layer_norm_backward", elements, dtypes, False)
    for elements in sizes.speed_elements:
        yield from activations(SLOPES, elements, dtypes)
    # Wide data, so that warps take both branches of a float32 derivative, the segments and the tail.
    yield from activations(SLOPES, largest, dtypes, sigma=3.0)
    yield from activations(VALUES, largest, dtypes)
    yield from layer_norms(layer_norm_forward_speed, "layer_norm", sizes.layer_norm_elements[0], dtypes)
    if at.device.type == "cuda":
        yield from layer_norms(
            layer_norm_speed, "layer_norm_backward", sizes.layer_norm_elements[0], dtypes[:2], True
        )  # fmt: skip
        yield from activations(SLOPES, largest, dtypes[:2], compiled=True)
    yield from family_plans(at)


def family_plans(at: Any) -> Iterator[Plan]:
    """Yield the measurements of the family."""
    torch, elements = at.torch, at.sizes.family_elements
    for dtype in (torch.float32, torch.bfloat16):
        for member in family_members(at, str(dtype).removeprefix("torch.")):
            rows = partial(family_speed, at, member, dtype, elements)
            yield Plan(f"{member.label} {elements} {dtype} of the family", elements * dtype.itemsize, rows)


def speed(at: Any, deadline: float) -> Iterator[Row]:
    """Run all measurements, counting each operand's bytes once; report a failure if the time is too short for all."""
    torch, cuda = at.torch, at.device.type == "cuda"
    for label, nbytes, rows in plans(at):
        if time.monotonic() > deadline:
            yield failure(f"speed of {label}", "left out: the time was up")
            continue
        if cuda and _TENSORS * nbytes > torch.cuda.mem_get_info()[0]:
            yield {"check": f"speed of {label}", "passed": True, "text": "left out: more memory than is free"}
            continue
        yield from surviving(f"speed of {label}", rows())
        if cuda:
            torch.cuda.empty_cache()


def compile_ahead(share: int, shares: int, at: Any, deadline: float) -> Iterator[Row]:
    """Run one share of the calls of ``speed`` without results, to put their compiled kernels into the disk cache.

    Tensors larger than 1 GiB would not fit for several processes; they use the kernels of smaller ones.
    """
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # the shares already run in parallel processes
    ahead = copy(at)
    ahead.measuring = False
    for plan in itertools.islice(plans(ahead), share, None, shares):
        if time.monotonic() > deadline:
            break
        if plan.nbytes <= 1 << 30:
            deque(surviving(plan.label, plan.rows()), maxlen=0)
    yield from ()


def too_slow(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the gradients of large tensors that are below their share of the copy's speed, or slower than PyTorch."""
    measured: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if "p50_us" in row and row["operator"] in LEAST:
            label = (row["operator"], row["dtype"], row.get("elements"), row.get("rows"), row.get("columns"))
            measured.setdefault((*label, row.get("sigma", 1.0)), {})[row["what"]] = row
    for label, found in measured.items():
        elements = label[2] or label[3] * label[4]
        if "aclnn" not in found or elements < _LARGE:
            continue
        share, least = found["aclnn"]["of_copy"], LEAST[label[0]]
        if share < least and label[-1] == 1.0:
            yield f"{label}: {share:.2f} of the copy's speed, {least} wanted"
        if "PyTorch" in found and found["PyTorch"]["p50_us"] < found["aclnn"]["p50_us"]:
            yield f"{label}: slower than PyTorch"
