"""Checks of ``make gpu``: operators on the GPU against their formulas in float64, and the interfaces of PyTorch."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

SLOPES = {
    "silu_backward": ("silu_derivative", ()),
    "fast_gelu_backward": ("fast_gelu_derivative", ()),
    "gelu_backward_v2": ("gelu_erf_derivative", ("none",)),
    "gelu_backward_v2 tanh": ("gelu_tanh_derivative", ("tanh",)),
    "hardswish_backward": ("hardswish_derivative", ()),
}
VALUES = {
    "silu": ("silu_forward", ()),
    "fast_gelu": ("fast_gelu_forward", ()),
    "gelu_v2": ("gelu_erf_forward", (0,)),
    "gelu": ("gelu_tanh_forward", ()),
    "hardswish": ("hardswish_forward", ()),
}
FAMILY_SHARES = 3
"""Sections for each data type of the family, in parallel because most of their time is compilation on the CPU."""
FAMILY_ELEMENTS = 1 << 15
Row = dict[str, Any]


def surviving(label: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, and a failure in place of an exception."""
    try:
        yield from rows
    except Exception as error:
        yield failure(label, f"{type(error).__name__}: {error}")


def failure(label: str, text: str) -> Row:
    """Return a row for a check that did not complete."""
    return {"check": label, "passed": False, "text": text[-2000:]}


def references(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the formulas of aclnn.operators by name, in float64 on tensors."""
    root_half, root_two_pi, bend = math.sqrt(0.5), math.sqrt(2.0 * math.pi), math.sqrt(2.0 / math.pi)

    def logistic_derivative(u: Any) -> Any:
        s = torch.sigmoid(u)
        return s * (1.0 + u * (1.0 - s))

    def gelu_tanh_derivative(x: Any) -> Any:
        bounded = x.clamp(-100.0, 100.0)
        u = bend * (bounded + 0.044715 * bounded**3)
        e = torch.exp(-2.0 * u.abs())
        t = 1.0 / (1.0 + e)
        slope = 2.0 * bounded * t * bend * (1.0 + 3.0 * 0.044715 * bounded**2)
        return torch.where(u > 0.0, t + e * t * slope, e * t * (1.0 + slope))

    def gelu_erf_derivative(x: Any) -> Any:
        slope = 0.5 * torch.special.erfc(-x * root_half) + x * torch.exp(-0.5 * x * x) / root_two_pi
        # Far below 0 the second term, the larger one, underflows as well, to a negative zero.
        return torch.where((x < 0.0) & (slope == 0.0), -0.0, slope)

    def hardswish_derivative(x: Any) -> Any:
        return torch.where(x < -3.0, 0.0, torch.where(x > 3.0, 1.0, (x + 1.5) / 3.0))

    def hardswish_forward(x: Any) -> Any:
        return torch.where(x <= -3.0, 0.0, torch.where(x >= 3.0, x, x * (x + 3.0) / 6.0))

    return {
        "silu_derivative": logistic_derivative,
        "fast_gelu_derivative": lambda x: logistic_derivative(1.702 * x),
        "gelu_erf_derivative": gelu_erf_derivative,
        "gelu_tanh_derivative": gelu_tanh_derivative,
        "hardswish_derivative": hardswish_derivative,
        "silu_forward": lambda x: x / (1.0 + torch.exp(-x)),
        "fast_gelu_forward": lambda x: x / (1.0 + torch.exp(-1.702 * x)),
        "gelu_erf_forward": lambda x: 0.5 * x * torch.special.erfc(-x * root_half),
        "gelu_tanh_forward": lambda x: x / (1.0 + torch.exp(-2.0 * bend * (x + 0.044715 * x**3))),
        "hardswish_forward": hardswish_forward,
    }


def assess(torch: Any, x: Any, ours: Any, exact: Any) -> tuple[float, float, int]:
    """Return the worst error in ULP of the result's type, its input, and the count of wrong special values or signs."""
    rounded = exact.to(ours.dtype)
    magnitude = rounded.abs()
    unit = (torch.nextafter(magnitude, torch.full_like(magnitude, torch.inf)) - magnitude).double()
    assessed = x.isfinite() & rounded.isfinite()
    error = torch.where(assessed, (ours.double() - exact).abs() / unit, 0.0)
    zeros = (ours == 0.0) & (rounded == 0.0) & (ours.signbit() != rounded.signbit())
    special = ~assessed & ((ours.isnan() != rounded.isnan()) | ~ours.isnan() & (ours != rounded)) | zeros
    worst, place = error.nan_to_num(torch.inf).flatten().max(0)
    return float(worst), float(x.flatten()[place]), int(special.sum())


def same_bits(torch: Any, ours: Any, theirs: Any) -> Any:
    """Compare bits element by element; any two NaN are equal."""
    kind = torch.int32 if ours.element_size() == 4 else torch.int16
    return (ours.view(kind) == theirs.view(kind)) | (ours.isnan() & theirs.isnan())


def inputs(at: Any, dtype: Any) -> Any:
    """Return numbers of all magnitudes and special values; for a 16-bit type every number."""
    torch = at.torch
    if dtype is not torch.float32 and at.device.type == "cuda":
        # Three numbers twice, so that the size is not a multiple of 16 bytes.
        return torch.arange(2**16 + 3, dtype=torch.int32).to(torch.int16).view(dtype).to(at.device)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.0, -3.0, 3e38, -3e38, 1e-40])
    generator = torch.Generator().manual_seed(0)
    spread = 4.0 * torch.randn(at.sizes.elements - len(special), generator=generator)
    return torch.cat([special, spread]).to(dtype).to(at.device)


def numba_runs() -> bool:
    """Return true if Numba is installed and works with the installed NumPy."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def elementwise(dtype_name: str, at: Any) -> Iterator[Row]:
    """Check every operator with dy = 1: new and given results, and the same bits as on the CPU."""
    dtype = getattr(at.torch, dtype_name)
    for name, (formula, attributes) in (SLOPES | VALUES).items():
        yield from surviving(f"{name} {dtype}", _one_operator(at, dtype, name, formula, attributes))


def _one_operator(at: Any, dtype: Any, name: str, formula: str, attributes: tuple[Any, ...]) -> Iterator[Row]:
    torch = at.torch
    operator, x = at.operator(name.split()[0]), inputs(at, dtype)
    given = (torch.ones_like(x), x) if name in SLOPES else (x,)
    ours = operator(*given, *attributes)
    worst, place, wrong = assess(torch, x, ours, references(torch)[formula](x.double()))
    limit = 2.0 if dtype is torch.float32 else 0.501
    yield {
        "check": f"{name} {dtype}", "passed": worst <= limit and not wrong, "worst_ulp": worst, "at": place,
        "wrong_special": wrong,
    }  # fmt: skip
    written = torch.empty_like(x)
    operator(*given, *attributes, out=written)
    yield {"check": f"{name} {dtype} out=", "passed": bool(same_bits(torch, written, ours).all())}
    if name in SLOPES and numba_runs():
        theirs = getattr(torch.ops.aclnn, name.split()[0])(*(tensor.cpu() for tensor in given), *attributes)
        yield _compared_with_cpu(torch, f"{name} {dtype}", ours.cpu(), theirs)


def family_members(at: Any, dtype_name: str) -> Iterator[Any]:
    """Yield the members of ``benchmarks.family`` that GPUs compute: all but sums over rows."""
    from aclnn.core.dtypes import DataType
    from aclnn.core.operator import Elementwise
    from benchmarks.family import members
    from tools.works import works_of

    dtype = {"float32": DataType.FLOAT, "float16": DataType.FLOAT16, "bfloat16": DataType.BF16}[dtype_name]
    computed = (m for m in members(dtype) if all(isinstance(work, Elementwise) for work in works_of(m.operator)))
    return itertools.islice(computed, 0, None, at.sizes.family_step)


def family(dtype_name: str, share: int, at: Any) -> Iterator[Row]:
    """Check a share of all activations, with gradients and gated ones, for the same bits as on the CPU."""
    if not numba_runs():
        return
    for member in itertools.islice(family_members(at, dtype_name), share, None, FAMILY_SHARES):
        yield from surviving(f"{member.label} {dtype_name} of the family", _one_member(at, dtype_name, member))


def _one_member(at: Any, dtype_name: str, member: Any) -> Iterator[Row]:
    from benchmarks.family import arguments

    torch, dtype = at.torch, getattr(at.torch, dtype_name)
    generator = torch.Generator().manual_seed(11)
    special = inputs(at, dtype).cpu()

    def numbers(shape: tuple[int, ...]) -> Any:
        spread = 4.0 * torch.randn(math.prod(shape), generator=generator)
        chosen = special[torch.randperm(len(special), generator=generator)][: min(4096, len(spread))]
        spread[: len(chosen)] = chosen
        return spread.to(dtype).reshape(shape)

    given = list(arguments(member, FAMILY_ELEMENTS, numbers).values())
    there = [value.to(at.device) if isinstance(value, torch.Tensor) else value for value in given]
    ours, theirs = at.operator(member.operator.name)(*there), getattr(torch.ops.aclnn, member.operator.name)(*given)
    for number, (mine, other) in enumerate(zip(results_of(torch, ours), results_of(torch, theirs), strict=True)):
        yield _compared_with_cpu(torch, f"{member.label} {dtype} result {number}", mine.cpu(), other)


def _compared_with_cpu(torch: Any, label: str, ours: Any, theirs: Any) -> Row:
    """Compare with the CPU's bits; in 16 bits one result in 1,000 may be adjacent, since 0.501 units are allowed."""
    different = int((~same_bits(torch, ours, theirs)).sum())
    passed = not different
    if ours.element_size() == 2:
        steps = (ours.view(torch.int16).int() - theirs.view(torch.int16).int()).abs()
        near = bool((same_bits(torch, ours, theirs) | (steps <= 1)).all())
        passed = near and different < 1e-3 * ours.numel()
    return {"check": f"{label} bits of the CPU", "passed": passed, "different": different}


def results_of(torch: Any, results: Any) -> tuple[Any, ...]:
    """Return an operator's results as a tuple of tensors, also a single one."""
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def layouts_of_all(dtype_name: str, at: Any) -> Iterator[Row]:
    """Check that every operator gives the same bits for strided as for contiguous operands."""
    torch, dtype = at.torch, getattr(at.torch, dtype_name)
    generator = torch.Generator().manual_seed(7)
    edge = max(2, round(at.sizes.elements ** (1 / 3)))
    x, dy = (torch.randn(edge, edge + 1, 2 * edge, generator=generator).to(dtype).to(at.device) for _ in range(2))
    ways: dict[str, Callable[[Any], Any]] = {
        "permuted and gapped": lambda operand: operand.permute(2, 0, 1)[..., ::2],
        "gaps between rows": lambda operand: operand[..., :-3],
        "x is a row": lambda operand: operand[:1, :1].expand(x.shape) if operand is x else operand,
        "x is a column": lambda operand: operand[:, :1, :1].expand(x.shape) if operand is x else operand,
    }
    for (name, (_, attributes)), (way, view) in itertools.product((SLOPES | VALUES).items(), ways.items()):
        operator = at.operator(name.split()[0])
        given = [view(operand) for operand in ((dy, x) if name in SLOPES else (x,))]
        plain = operator(*(operand.contiguous() for operand in given), *attributes)
        same = same_bits(torch, operator(*given, *attributes).contiguous(), plain)
        yield {"check": f"{name} {dtype} {way}", "passed": bool(same.all())}


def layouts(at: Any) -> Iterator[Row]:
    """Check every permutation, broadcasts, mixed data types, and results that overlap the inputs."""
    torch = at.torch
    generator = torch.Generator().manual_seed(1)
    edge = max(2, round(at.sizes.elements ** (1 / 3)))
    x, dy = (torch.randn(edge, edge + 1, 2 * edge, generator=generator).to(at.device) for _ in range(2))
    silu, gelu = at.operator("silu_backward"), at.operator("gelu_backward_v2")
    for dims in itertools.permutations(range(3)):
        strided = [tensor.permute(dims)[..., ::2] for tensor in (dy, x)]
        ours, plain = silu(*strided), silu(*(tensor.contiguous() for tensor in strided))
        yield {"check": f"permuted {dims} and gapped", "passed": bool(torch.equal(ours, plain))}
    for shape, other in (((1, 1, 2 * edge), "a row"), ((edge, 1, 1), "a column"), ((), "one number")):
        narrow = torch.randn(shape, generator=generator).to(at.device)
        wide = narrow.expand(x.shape).contiguous()
        yield {"check": f"x is {other}", "passed": bool(torch.equal(gelu(dy, narrow), gelu(dy, wide)))}
        yield {"check": f"dy is {other}", "passed": bool(torch.equal(gelu(narrow, x), gelu(wide, x)))}
    half = x.half()
    ours, exact = gelu(dy, half), gelu(dy, half.float())
    yield {"check": "float32 and float16", "passed": bool(torch.allclose(ours, exact, rtol=1e-3, atol=1e-6))}
    for shift in (-3, 0, 3):
        memory = x.flatten().clone()
        source, target = memory[8:-8], memory[8 + shift : memory.numel() - 8 + shift]
        expected = silu(source.clone(), source.clone())
        silu(source, source, out=target)
        yield {"check": f"written {shift} elements with the inputs", "passed": bool(torch.equal(target, expected))}


def layer_norm(dtype_name: str, at: Any) -> Iterator[Row]:
    """Check LayerNorm's gradients in both orders of memory against float64, for repeated bits, and with every mask."""
    dtype = getattr(at.torch, dtype_name)
    for number, ((rows, columns), transposed) in enumerate(itertools.product(at.sizes.rows_and_columns, (False, True))):
        label = f"{rows}x{columns} {dtype} {'columns first' if transposed else 'rows first'}"
        # Each mask has a kernel, whose compilation takes seconds.
        masks = list(itertools.product([False, True], repeat=3)) if number == 0 else [(True, True, True)]
        yield from surviving(f"layer_norm {label}", _one_layer_norm(at, rows, columns, dtype, transposed, label, masks))


def _one_layer_norm(
    at: Any, rows: int, columns: int, dtype: Any, transposed: bool, label: str, masks: list[tuple[bool, ...]]
) -> Iterator[Row]:
    torch = at.torch
    generator = torch.Generator().manual_seed(2)
    forwards, backwards = at.operator("layer_norm"), at.operator("layer_norm_backward")
    shape = (columns, rows) if transposed else (rows, columns)
    x, dy = (torch.randn(shape, generator=generator).to(dtype).to(at.device) for _ in range(2))
    x, dy = (x.t(), dy.t()) if transposed else (x, dy)
    weight, bias = (torch.randn(columns, generator=generator).to(at.device) for _ in range(2))
    wide = x.double()
    mean = wide.mean(1, keepdim=True)
    rstd = (wide.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
    product = (wide - mean) * rstd * weight
    out = forwards(x, [columns], weight, bias)[0]
    passed = within(torch, out, product + bias, product.abs() + weight.abs() + bias.abs(), 16)
    yield {"check": f"layer_norm {label}", "passed": passed}
    statistics = mean.float(), rstd.float()
    exact = layer_norm_gradients(dy, x, *statistics, weight)
    for mask in masks:
        ours, again = (backwards(dy, x, [columns], *statistics, weight, bias, list(mask)) for _ in range(2))
        passed = all(
            (mine is None) == (not wanted)
            and (mine is None or (within(torch, mine, *other) and bool(torch.equal(mine, repeat))))
            for mine, repeat, other, wanted in zip(ours, again, exact, mask, strict=True)
        )
        yield {"check": f"layer_norm_backward {label} {list(mask)}", "passed": passed}


def layer_norm_gradients(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> tuple[tuple[Any, Any], ...]:
    """Return dx, dw and db in float64, each with the scale of its errors (docs/numerics-layer-norm.md)."""
    g, scale = dy.double(), rstd.double()
    hat, h = (x.double() - mean.double()) * scale, g * weight.double()
    c1, c2 = h.mean(1, keepdim=True), (h * hat).mean(1, keepdim=True)
    size = h.abs() + h.abs().mean(1, keepdim=True) + hat.abs() * (h * hat).abs().mean(1, keepdim=True)
    return (
        ((h - c1 - hat * c2) * scale, size * scale),
        ((g * hat).sum(0), (g * hat).abs().sum(0)),
        (g.sum(0), g.abs().sum(0)),
    )


def within(torch: Any, ours: Any, exact: Any, scale: Any, factor: int = 48) -> bool:
    """Return true if errors are within ``factor`` float32 roundoffs times the scale, plus the rounding to 16 bits."""
    info = torch.finfo(ours.dtype)
    bound = factor * 2.0**-24 * scale + 2.0**-148
    if ours.dtype is not torch.float32:
        bound += 0.5 * info.eps * (exact.abs() + bound) + info.smallest_normal * info.eps
    return bool(((ours == exact.to(ours.dtype)) | ((ours.double() - exact).abs() <= bound)).all())


def beyond_float32(at: Any) -> Iterator[Row]:
    """Check LayerNorm's gradients of rows, and of column sums, that overflow or underflow in float32."""
    torch = at.torch
    generator = torch.Generator().manual_seed(5)
    backwards = at.operator("layer_norm_backward")
    for columns in (columns for _, columns in at.sizes.rows_and_columns if columns > 1):
        x, dy = (torch.randn(9, columns, generator=generator) for _ in range(2))
        weight = 0.1 * torch.randn(columns, generator=generator)
        dy[1] *= 2.0**-100
        dy[2], x[2] = dy[2] * 2.0**-130, x[2] * 2.0**-100
        dy[3] *= 2.0**110
        dy[4:8, 0] = torch.tensor([3e38, 3e38, -3e38, -3e38])
        x, dy, weight = (tensor.to(at.device) for tensor in (x, dy, weight))
        mean = x.double().mean(1, keepdim=True).float()
        rstd = x.double().var(1, keepdim=True, correction=0).rsqrt().float()
        ours = backwards(dy, x, [columns], mean, rstd, weight, weight, [True] * 3)
        exact = layer_norm_gradients(dy, x, mean, rstd, weight)
        passed = all(within(torch, mine, *other) for mine, other in zip(ours, exact, strict=True))
        yield {"check": f"layer_norm_backward beyond float32, {columns} columns", "passed": passed}


def entry_points(at: Any) -> Iterator[Row]:
    """Check gradients, batching, compiled graphs and errors on the device, and a patched model."""
    import aclnn.torch

    torch, operators = at.torch, at.torch.ops.aclnn
    torch.manual_seed(3)
    leaf = torch.randn(6, 8, device=at.device, requires_grad=True)
    for name, (formula, attributes) in VALUES.items():
        agree = _gradients_agree(torch, partial(_call, name, attributes), leaf, references(torch)[formula])
        yield {"check": f"{name} gradients", "passed": agree}
    rows = torch.func.vmap(operators.silu)(leaf.detach())
    yield {"check": "vmap", "passed": bool(torch.equal(rows, operators.silu(leaf.detach())))}
    if at.device.type == "cuda":
        # The second call records a CUDA graph; nothing of this shape has run before.
        for mode, x in (("default", leaf), ("reduce-overhead", torch.randn(5, 24, device=at.device))):
            torch._dynamo.reset()
            compiled = torch.compile(_two_layers, fullgraph=True, mode=mode)
            found = [compiled(x).clone() for _ in range(4)]
            agree = all(torch.allclose(each, _two_layers(x), atol=1e-5) for each in found)
            yield {"check": f"torch.compile, mode {mode}", "passed": agree}
        try:
            operators.silu_backward(leaf.detach(), leaf.detach().cpu())
            code = 0
        except aclnn.AclnnError as error:
            code = error.code
        yield {"check": "tensors on two devices are rejected", "passed": code == 161002}
        with torch.autocast("cuda", torch.float16):
            dtype = operators.layer_norm(leaf.half(), [8])[0].dtype
        yield {"check": "autocast", "passed": dtype is torch.float32}
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).to(at.device)
    losses = []
    for patch in (aclnn.torch.unpatch, aclnn.torch.patch):
        loss = patch(model)(leaf).square().sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        losses.append([loss, *gradients])
    agree = all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*losses, strict=True))
    yield {"check": "a patched model", "passed": agree}


def _two_layers(x: Any) -> Any:
    import torch

    return torch.ops.aclnn.layer_norm(torch.ops.aclnn.gelu(x) * 2, x.shape[1:])[0]


def _call(name: str, attributes: tuple[Any, ...], x: Any) -> Any:
    import torch

    return getattr(torch.ops.aclnn, name)(x, *attributes)


def _gradients_agree(torch: Any, ours: Callable[..., Any], leaf: Any, exact: Callable[[Any], Any]) -> bool:
    """Compare first and second derivatives with those of the formula in float64."""
    found = []
    for function, x in ((ours, leaf), (exact, leaf.detach().double().requires_grad_())):
        (first,) = torch.autograd.grad(function(x).sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append((first.double(), second.double()))
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*found, strict=True))


def timed(section: Callable[[Any], Iterator[Row]]) -> Callable[[Any, float], Iterator[Row]]:
    """Wrap a section to stop with a failure at its deadline."""

    def run(at: Any, deadline: float) -> Iterator[Row]:
        for row in section(at):
            yield row
            if time.monotonic() > deadline:
                yield {"check": "time", "passed": False, "text": f"stopped after {row['check']}"}
                return

    return run


_DTYPES = ("float32", "float16", "bfloat16")
SECTIONS = {
    **{f"elementwise {dtype}": timed(partial(elementwise, dtype)) for dtype in _DTYPES},
    **{
        f"family {dtype} {share}": timed(partial(family, dtype, share))
        for dtype, share in itertools.product(_DTYPES, range(FAMILY_SHARES))
    },
    "layouts": timed(layouts),
    **{f"layouts {dtype}": timed(partial(layouts_of_all, dtype)) for dtype in _DTYPES},
    **{f"layer_norm {dtype}": timed(partial(layer_norm, dtype)) for dtype in _DTYPES},
    "layer_norm beyond float32": timed(beyond_float32),
    "door": timed(entry_points),
}
