"""Workloads: the table of operators, and each provider's implementation."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import aclnn
from aclnn.core.dtypes import DataType
from aclnn.formula import Gradient
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.elementwise import general, plans
from aclnn.kernels.cpu.jit import kernel
from aclnn.kernels.cpu.strided import CACHED, NONTEMPORAL, Operands
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.trace import trace
from aclnn.operators import BY_NAME
from aclnn.operators.fast_gelu import fast_gelu_gradient
from aclnn.operators.gelu import gelu_erf_gradient, gelu_tanh_gradient
from aclnn.operators.hardswish import hardswish_gradient
from aclnn.operators.silu import silu_gradient
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import format_of
from benchmarks import family, norms
from benchmarks.tensors import torch_of

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]

DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


#: True to measure torch.compile in float32, which takes minutes of compilation and a C++ compiler.
COMPILE = False


def _composed_fast_gelu(dy: Any, x: Any, sigmoid: Callable[[Any], Any]) -> Any:
    s = sigmoid(1.702 * x)
    return dy * (s * (1 + 1.702 * x * (1 - s)))


@dataclass(frozen=True)
class Activation:
    """An elementwise gradient."""

    name: str
    formula: Gradient
    ours: Callable[..., Any]
    theirs: Callable[[Any, Any, Any], Any]
    in_jax: Callable[[Any], Callable[[Any], Any]]

    def aclnn(self, dy: Array, x: Array, out: Array) -> Call:
        return lambda: self.ours(dy, x, out=out)

    def torch(self, dy: Array, x: Array, out: Array) -> Call:
        tensors = [torch_of(array) for array in (dy, x, out)]
        return lambda: self.theirs(*tensors)

    def torch_compile(self, dy: Array, x: Array, out: Array) -> Call:
        """Compile the gradient: Inductor fuses a composed formula, and calls PyTorch's kernel if there is one."""
        import torch

        tensors = [torch_of(array) for array in (dy, x, out)]
        fused = torch.compile(self.theirs, fullgraph=True)
        return lambda: fused(*tensors)

    def jax(self, dy: Array, x: Array) -> Call | None:
        """Compile the gradient of JAX's own activation, which allocates its results; return None without JAX."""
        if importlib.util.find_spec("jax") is None:
            return None
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        forward = self.in_jax(jax)
        gradient = jax.jit(lambda dy, x: jax.vjp(forward, x)[1](dy)[0])
        arrays = [jax.device_put(array) for array in (dy, x)]
        return lambda: gradient(*arrays).block_until_ready()


def _activations() -> tuple[Activation, ...]:
    import torch

    aten = torch.ops.aten

    def gelu(approximate: str) -> Callable[..., Any]:
        return lambda dy, x, out: aclnn.gelu_backward_v2(dy, x, approximate, out=out)

    def torch_gelu(approximate: str) -> Callable[[Any, Any, Any], Any]:
        return lambda dy, x, out: aten.gelu_backward.grad_input(dy, x, approximate=approximate, grad_input=out)

    return (
        Activation(
            "fast_gelu_backward",
            fast_gelu_gradient,
            aclnn.fast_gelu_backward,
            lambda dy, x, out: out.copy_(_composed_fast_gelu(dy, x, torch.sigmoid)),
            lambda jax: lambda x: x * jax.nn.sigmoid(1.702 * x),
        ),
        Activation(
            "silu_backward",
            silu_gradient,
            aclnn.silu_backward,
            lambda dy, x, out: aten.silu_backward.grad_input(dy, x, grad_input=out),
            lambda jax: jax.nn.silu,
        ),
        Activation(
            "gelu_backward_v2 none",
            gelu_erf_gradient,
            gelu("none"),
            torch_gelu("none"),
            lambda jax: lambda x: jax.nn.gelu(x, approximate=False),
        ),
        Activation(
            "gelu_backward_v2 tanh",
            gelu_tanh_gradient,
            gelu("tanh"),
            torch_gelu("tanh"),
            lambda jax: lambda x: jax.nn.gelu(x, approximate=True),
        ),
        Activation(
            "hardswish_backward",
            hardswish_gradient,
            aclnn.hardswish_backward,
            lambda dy, x, out: aten.hardswish_backward.out(dy, x, out=out),
            lambda jax: jax.nn.hard_swish,
        ),
    )


def set_threads(count: int) -> None:
    """Set the number of threads for every provider."""
    import torch

    threads.set_threads(count)
    torch.set_num_threads(count)
    torch._dynamo.reset()  # it compiles for a fixed number of threads, and at most eight times in all


def limit(nbytes: int) -> Call:
    """Compute dx = dy·x over float32 with prefetch and streaming stores, moving ``nbytes`` in all."""

    def itself(x: Any) -> Any:
        return x

    types = (DataType.FLOAT,) * 2, (DataType.FLOAT,)
    run = kernel("limit", (), lambda: general.loop(trace(Gradient(itself), 2), *types, numbers=0, double=False))
    size = max(1, nbytes // 12)
    arrays = [aligned((size,), DTYPES["float32"]) for _ in range(3)]
    for array in arrays:
        array.fill(1)  # unwritten memory is a single page of zeros, which stays in the cache
    policy = NONTEMPORAL if 4 * size >= STREAM_BYTES else CACHED
    operands = Operands(policy, 0, (ctypes.c_void_p * 3)(*(array.ctypes.data for array in arrays)))

    def call() -> None:
        threads.share(run, ctypes.addressof(operands), 1 << 16, size, size // plans.PER_US)

    call.arrays = arrays  # type: ignore[attr-defined]  # keep them alive with the call
    return call


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> Array:
    """Allocate zeros at a multiple of 64 bytes plus an offset."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    storage = np.zeros(nbytes + 64 + offset, np.uint8)
    start = -storage.ctypes.data % 64 + offset
    return storage[start : start + nbytes].view(dtype).reshape(shape)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], sigma: float, offset: int) -> Array:
    array = aligned(shape, dtype, offset)
    array[...] = (rng.standard_normal(shape, np.float32) * np.float32(sigma)).astype(dtype)
    return array


@dataclass
class Workload:
    """Inputs of a row and the calls to time, the first of them aclnn's."""

    section: str
    operator: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    nbytes: int
    calls: dict[str, Call] = field(repr=False)
    check: Callable[[], str | None] = field(repr=False)
    """Function that describes an error in aclnn's result, or returns None."""


def _views(layout: str, dtype: np.dtype[Any], size: int, sigma: float) -> tuple[Array, Array, Array]:
    """Create dy, x and out in a layout, two-dimensional unless contiguous."""
    rng = np.random.default_rng(1)
    side = int(size**0.5)
    if layout in ("contiguous", "unaligned"):
        offset = dtype.itemsize if layout == "unaligned" else 0
        dy, x, out = (normal(rng, (size,), dtype, sigma, offset) for _ in range(3))
        return dy, x, out
    dy, x, out = (normal(rng, (side, side), dtype, sigma, 0) for _ in range(3))
    if layout == "x transposed":
        return dy, x.T, out
    if layout == "all transposed":
        return dy.T, x.T, out.T
    if layout == "sliced":
        dy, x, out = (normal(rng, (side, side + 64), dtype, sigma, 0)[:, 3 : side + 3] for _ in range(3))
        return dy, x, out
    if layout == "every second":
        return normal(rng, (side, 2 * side), dtype, sigma, 0)[:, ::2], x, out
    if layout == "a row for all":
        return dy, np.broadcast_to(x[0], x.shape), out
    if layout == "a column for all":
        return dy, np.broadcast_to(x[:, :1], x.shape), out
    raise ValueError(f"no layout {layout!r}")


def activation(
    section: str, row: Activation, dtype: str, size: int, layout: str = "contiguous", sigma: float = 1.0
) -> Workload:
    kind = DTYPES[dtype]
    dy, x, out = _views(layout, kind, size, sigma)
    calls = {"aclnn": row.aclnn(dy, x, out), "torch": row.torch(dy, x, out)}
    if section == "main" and dtype == "float32" and COMPILE:
        calls["torch.compile"] = row.torch_compile(dy, x, out)
    if section == "main" and (jax := row.jax(dy, x)):
        calls["jax"] = jax

    def check() -> str | None:
        out[...] = np.nan
        calls["aclnn"]()
        pick = np.random.default_rng(2).integers(0, out.size, min(out.size, 4096))
        golden = Function(row.formula).golden([dy.reshape(-1)[pick], x.reshape(-1)[pick]], format_of(kind))
        got = out.reshape(-1)[pick].astype(np.float64)
        unit = np.spacing(np.abs(golden.rounded.astype(kind))).astype(np.float64)
        worst = float(np.max(np.abs(got - golden.value) / unit))
        allowed = 2.0 if dtype == "float32" else 0.51
        return None if worst <= allowed else f"{worst:.3g} ULP, expected at most {allowed}"

    label = layout if sigma == 1.0 else f"{layout}, sigma {sigma:g}"
    return Workload(section, row.name, dtype, out.shape, label, 3 * out.size * kind.itemsize, calls, check)


def member(one: family.Member, dtype: str, size: int) -> Workload:
    """Create a row of the section family."""
    kind, rng = DTYPES[dtype], np.random.default_rng(4)
    given = family.arguments(one, size, lambda shape: normal(rng, shape, kind, 1.0, 0))
    described = family.call(one, given)
    outs = [
        aligned(tensor.shape, tensor.dtype.numpy)
        for tensor in (described[parameter.name] for parameter in one.operator.outputs)
    ]
    provider, theirs = family.theirs(one, given, outs[0])
    calls = {"aclnn": family.ours(one, given, outs), provider: theirs}
    arrays = [value for value in given.values() if isinstance(value, np.ndarray)]
    nbytes = sum(array.nbytes for array in (*arrays, *outs))

    def check() -> str | None:
        for out in outs:
            out[...] = np.nan
        calls["aclnn"]()
        return family.assessed(one, given, outs)

    return Workload("family", one.label, dtype, outs[0].shape, "contiguous", nbytes, calls, check)


def norm(name: str, rows: int, columns: int, dtype: str) -> Workload:
    """Create a row of the section norms."""
    kind, rng = DTYPES[dtype], np.random.default_rng(5)
    given = norms.arguments(name, rows, columns, lambda shape: normal(rng, shape, kind, 1.0, 0))
    function, operator = getattr(aclnn, name), BY_NAME[name]
    found = function(**given)
    results = found if isinstance(found, tuple) else (found,)
    outs = {p.python_name: aligned(r.shape, r.dtype) for p, r in zip(operator.outputs, results, strict=True)}
    positional, target = tuple(given.values()), tuple(outs.values()) if len(outs) > 1 else next(iter(outs.values()))

    def ours() -> Any:
        return function(*positional, out=target)

    def check() -> str | None:
        for out in outs.values():
            out[...] = np.nan
        calls["aclnn"]()
        return norms.assessed(name, given, outs, dtype)

    provider, theirs = norms.theirs(name, given, outs)
    calls = {"aclnn": ours, provider: theirs}
    arrays = [value for value in given.values() if isinstance(value, np.ndarray)]
    nbytes = sum(array.nbytes for array in (*arrays, *outs.values()))
    shape = max((array.shape for array in arrays), key=math.prod)
    return Workload("norms", name, dtype, shape, "contiguous", nbytes, calls, check)


ALL = (True, True, True)


def layer_norm(
    rows: int, columns: int, dtype: str, section: str = "main", mask: tuple[bool, bool, bool] = ALL
) -> Workload:
    """Create a row of LayerNorm's gradients; ``mask`` selects dx, dw and db."""
    import torch

    kind, rng, shape = DTYPES[dtype], np.random.default_rng(3), (rows, columns)
    dy, x = (normal(rng, shape, kind, 1.0, 0) for _ in range(2))
    weight, bias = (normal(rng, (columns,), kind, 1.0, 0) for _ in range(2))
    wide = x.astype(np.float64)
    mean, rstd = wide.mean(1, keepdims=True), 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    mean32, rstd32 = mean.astype(np.float32), rstd.astype(np.float32)
    sizes = (shape, (columns,), (columns,))
    outs = tuple(aligned(size, kind) if wanted else None for wanted, size in zip(mask, sizes, strict=True))
    # PyTorch requires the statistics in the input's type.
    tensors = [torch_of(array) for array in (dy, x, mean32.astype(kind), rstd32.astype(kind), weight, bias)]

    def ours() -> Any:
        return aclnn.layer_norm_backward(dy, x, [columns], mean32, rstd32, weight, bias, mask, out=outs)

    def theirs() -> Any:
        dy_, x_, mean_, rstd_, weight_, bias_ = tensors
        return torch.ops.aten.native_layer_norm_backward(dy_, x_, [columns], mean_, rstd_, weight_, bias_, list(mask))

    def check() -> str | None:
        normed, gradient = (wide - mean) * rstd, dy.astype(np.float64)
        scaled = gradient * weight.astype(np.float64)
        exact = (
            rstd * (scaled - scaled.mean(1, keepdims=True) - normed * (scaled * normed).mean(1, keepdims=True)),
            (gradient * normed).sum(0),
            gradient.sum(0),
        )
        allowed = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 5e-3}[dtype]
        for name, wanted, got, right in zip(("dx", "dw", "db"), mask, ours(), exact, strict=True):
            if wanted:
                error = float(np.linalg.norm(got.astype(np.float64) - right) / np.linalg.norm(right))
                if not error <= allowed:
                    return f"{name}: relative error {error:.3g}, expected at most {allowed:g}"
        return None

    calls = {"aclnn": ours, "torch": theirs}
    wanted = " ".join(name for name, want in zip(("dx", "dw", "db"), mask, strict=True) if want)
    label = "contiguous" if mask == ALL else f"contiguous, {wanted}"
    nbytes = (3 if mask[0] else 2) * x.nbytes
    return Workload(section, "layer_norm_backward", dtype, shape, label, nbytes, calls, check)


def _map(quick: bool) -> Iterator[Callable[[], Workload]]:
    """Yield LayerNorm from many short rows to few long ones, for three sizes and, for one of them, three masks."""
    for exponent, mask in (
        (20, ALL),
        (22, ALL),
        (24, ALL),
        (22, (True, False, False)),
        (22, (False, True, True)),
        (22, (False, False, True)),
    ):
        for columns in (1 << n for n in range(4, exponent - 1, 8 if quick else 2)):
            rows = (1 << exponent) // columns
            yield lambda m=rows, n=columns, mask=mask: layer_norm(m, n, "float32", "map", mask)


def workloads(quick: bool) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Yield sections and factories of their rows, so that only one row's arrays exist at a time."""
    rows = _activations()
    size = 1 << (20 if quick else 24)
    for dtype in DTYPES:
        for row in rows:
            yield "main", lambda row=row, dtype=dtype: activation("main", row, dtype, size)
    for row in rows:
        yield "wide", lambda row=row: activation("wide", row, "float32", size, sigma=3.0)
    shapes = ((4096, 4096), (16384, 1024), (1024, 16384), (65536, 256))
    for dtype in DTYPES:
        for m, n in shapes[:1] if quick else shapes:
            yield (
                "main",
                lambda m=m, n=n, dtype=dtype: layer_norm(m // (4 if quick else 1), n // (4 if quick else 1), dtype),
            )
    for row in (rows[1], rows[2], rows[4]):
        for layout in ("unaligned", "x transposed", "all transposed", "sliced", "every second"):
            yield "layouts", lambda row=row, layout=layout: activation("layouts", row, "float32", size // 4, layout)
    for layout in ("a row for all", "a column for all"):
        yield "layouts", lambda layout=layout: activation("layouts", rows[2], "float32", size // 4, layout)
    for columns in (24, 100, 500, 1000):
        yield "layouts", lambda n=columns: layer_norm(size // 4 // n, n, "float32", "layouts")
    for row in (rows[1], rows[4]):
        for dtype in ("float32", "bfloat16"):
            for exponent in range(0, 21 if quick else 27, 4 if quick else 2):
                yield "sizes", lambda row=row, dtype=dtype, n=1 << exponent: activation("sizes", row, dtype, n)
    for dtype in DTYPES:
        for one in family.members(DataType.of_numpy(DTYPES[dtype])):
            yield "family", lambda one=one, dtype=dtype: member(one, dtype, size)
    for dtype in DTYPES:
        for m, n in ((1 << 14, 1 << 10), (1 << 10, 1 << 10), (1 << 6, 1 << 10))[: 3 if dtype == "float32" else 1]:
            m, n = (m // 4, n // 4) if quick else (m, n)
            for name in norms.members(DataType.of_numpy(DTYPES[dtype])):
                yield "norms", lambda name=name, m=m, n=n, dtype=dtype: norm(name, m, n, dtype)
    for make in _map(quick):
        yield "map", make
