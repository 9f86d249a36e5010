"""torch.ops.aclnn.*: registration, strides, gradients, batching, tracing, errors; values are checked elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")

import aclnn  # noqa: E402
import aclnn.torch  # noqa: E402
from aclnn.core.products import Product, set_soc_name  # noqa: E402
from aclnn.operators import BY_NAME, OPERATORS  # noqa: E402
from aclnn.torch import functional, registration  # noqa: E402
from tests.helpers.calls import compiles_long  # noqa: E402

A, N = torch.ops.aclnn, torch.ops.aten
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FUNCTIONAL = [operator.name for operator in OPERATORS if registration.is_functional(operator)]

SLOPES = [name for name in FUNCTIONAL if "backward" in name and not re.match(".*norm|prelu|.*glu|.*softmax", name)]


def arguments(name: str, transposed: bool = False, dtype: Any = torch.float32, gradient: bool = False) -> list[Any]:
    """Return valid arguments: x of shape (3, 4, 5), dense but with permuted strides on request."""
    generator = torch.Generator().manual_seed(1)

    def tensor(*shape: int) -> Any:
        result = torch.randn(shape[::-1] if transposed else shape, generator=generator).to(dtype)
        return (result.permute(*range(len(shape))[::-1]) if transposed else result).requires_grad_(gradient)

    x = tensor(3, 4, 5)
    if name == "instance_norm":
        set_soc_name(Product.ATLAS_INFERENCE.example)  # the only one that has it
        return [tensor(3, 4, 5, 2), tensor(4), tensor(4)]
    if name == "group_norm_swish_grad":
        rows = [tensor(3, 2).detach(), tensor(3, 2).detach().abs() + 0.5]
        return [tensor(3, 4, 5), *rows, tensor(3, 4, 5), tensor(4), tensor(4), 2]
    if re.match("group_norm_(silu|swish)", name):
        return [tensor(3, 4, 5), tensor(4), tensor(4), 2]
    if "group_norm" in name:
        return group_norm_arguments(name, tensor)
    if "batch_norm" in name:
        return batch_norm_arguments(name, tensor)
    if "ada_layer_norm" in name:
        given = [x, tensor(3, 5), tensor(3, 1, 5), tensor(5), tensor(5)]
        if "backward" not in name:
            return given
        mean, rstd = tensor(3, 4, 1).detach(), tensor(3, 4, 1).detach().abs() + 0.5
        return [tensor(3, 4, 5), x, [5], rstd, mean, *given[1:]]
    if "add_layer_norm" in name:
        given = [tensor(3, 4, 5), x, tensor(4, 5), tensor(4, 5), tensor(4, 5)]
        if "grad" not in name:
            return given
        mean, rstd = torch.randn(3, 1, 1, generator=generator), torch.rand(3, 1, 1, generator=generator) + 0.5
        return [tensor(3, 4, 5), *given[:2], rstd, mean, given[2], tensor(3, 4, 5)]
    if name.startswith("layer_norm_backward"):
        mean, rstd = torch.randn(3, 1, 1, generator=generator), torch.rand(3, 1, 1, generator=generator) + 0.5
        return [tensor(3, 4, 5), x, [4, 5], mean, rstd, tensor(4, 5), tensor(4, 5)]
    if "clipped_swiglu" in name:
        return [*([tensor(3, 2, 5)] if "grad" in name else []), x, torch.tensor([1, 1]), 1]
    if "swi_glu" in name:
        return [x, 1] if name == "swi_glu" else [tensor(3, 2, 5), x, 1]
    if "glu" in name:
        half = tensor(3, 2, 5)
        inputs = [x] if "backward" not in name else [half, x, tensor(3, 2, 5)] if "ge" in name else [half, x]
        return [*inputs, 1, 1, True] if "v3" in name else [*inputs, 1]
    if "prelu" in name:
        return [tensor(3, 4, 5), x, tensor(4)] if "backward" in name else [x, tensor(4)]
    if "layer_norm" in name:
        return [x, [4, 5], tensor(4, 5), tensor(4, 5)]
    if "deep_norm" in name:
        if "grad" not in name:
            return [tensor(3, 4, 5), x, tensor(4, 5), tensor(4, 5), 0.5]
        mean, rstd = torch.randn(3, 1, 1, generator=generator), torch.rand(3, 1, 1, generator=generator) + 0.5
        return [tensor(3, 4, 5), tensor(3, 4, 5), x, tensor(4, 5), mean, rstd, 0.5]
    if name == "rms_norm_grad":
        return [tensor(3, 4, 5), x, torch.rand(3, 1, 1, generator=generator) + 0.5, tensor(4, 5)]
    if name in ("rms_norm", "gemma_rms_norm"):
        return [x, tensor(4, 5)]
    if "add_rms_norm" in name:
        return [tensor(3, 4, 5), x, tensor(4, 5)]
    if name == "threshold":
        return [x, 0.5, -1]
    return gradient_arguments(name, tensor(3, 4, 5), x) if "backward" in name else [x]


def group_norm_arguments(name: str, tensor: Callable[..., Any]) -> list[Any]:
    sizes = [3, 4, 5, 2]
    if name == "group_norm":
        return [tensor(3, 4, 5), tensor(4), tensor(4), *sizes]
    return [
        tensor(3, 4, 5),
        tensor(3, 4, 5),
        tensor(3, 2).detach(),
        tensor(3, 2).detach().abs() + 0.5,
        tensor(4),
        *sizes,
    ]


def batch_norm_arguments(name: str, tensor: Callable[..., Any]) -> list[Any]:
    def channels() -> Any:
        return tensor(4).detach().abs() + 0.5

    if name == "batch_norm":
        return [tensor(3, 4, 5), tensor(4), tensor(4), channels(), channels(), True]
    return [tensor(3, 4, 5), tensor(3, 4, 5), tensor(4), *(channels() for _ in range(4)), True]


def gradient_arguments(name: str, dy: Any, x: Any) -> list[Any]:
    """Return valid arguments of an elementwise gradient."""
    further = {
        "elu_backward": [dy, 1.5, 2, 0.5, False, x],
        "softplus_backward": [dy, x, 1.5, 3],
        "leaky_relu_backward": [dy, x, 0.1],
        "threshold_backward": [dy, x, 0.5],
        "hardtanh_backward": [dy, x, -1, 0.5],
        "hardshrink_backward": [dy, x, 0.5],
        "softshrink_backward": [dy, x, 0.5],
    }
    return further.get(name, [dy, x, x] if name == "log_sigmoid_backward" else [dy, x])


def swi_glu(x: Any, dim: int) -> Any:
    a, b = x.chunk(2, dim)
    return torch.nn.functional.silu(a) * b


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


#: Those of opcheck that compile nothing.
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")
WITHOUT_GRADIENT = ["inplace_add_rms_norm", "instance_norm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_opcheck_passes(name: str) -> None:
    # With gradients opcheck also compares them with those under AOTAutograd, with static and dynamic shapes.
    torch.library.opcheck(getattr(A, name).default, tuple(arguments(name, gradient=name not in WITHOUT_GRADIENT)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONAL)
@pytest.mark.parametrize(
    "checks", [CHECKS, pytest.param("test_aot_dispatch_dynamic", marks=pytest.mark.long)], ids=["eager", "compiled"]
)
def test_opcheck_passes_with_permuted_strides(name: str, checks: Any) -> None:
    torch.library.opcheck(getattr(A, name).default, tuple(arguments(name, transposed=True)), test_utils=checks)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_backward_without_a_gradient_raises(name: str) -> None:
    """An operator without a gradient raises in a backward pass."""
    given = arguments(name, gradient=True)
    in_place = name.startswith("inplace")
    with pytest.raises(RuntimeError, match=rf"^{name}\(\): {'functions' if in_place else 'expected no argument to'}"):
        main_result(getattr(A, name)(*given)).sum().backward()
    with torch.no_grad():
        assert not main_result(getattr(A, name)(*given)).requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_opcheck_passes_with_out(name: str) -> None:
    given = arguments(name)
    outs = {
        key: torch.empty_like(value)
        for key, value in zip(registration.out_names(BY_NAME[name]), results(getattr(A, name)(*given)), strict=True)
    }
    for overload in (getattr(A, name).out, getattr(A, name).into):
        torch.library.opcheck(overload, tuple(given), outs, test_utils=CHECKS)


@pytest.mark.parametrize(("name", "attributes"), [("inplace_hardswish", ()), ("inplace_elu", (1.5, 2))])
def test_opcheck_passes_in_place(name: str, attributes: tuple[float, ...]) -> None:
    for overload in (getattr(A, name).default, getattr(A, name).into):
        torch.library.opcheck(overload, (torch.randn(3, 4), *attributes), test_utils=CHECKS)


@pytest.mark.parametrize("mask", [[bool(bits & 1), bool(bits & 2), bool(bits & 4)] for bits in range(8)])
def test_output_mask_selects_gradients(mask: list[bool]) -> None:
    given = arguments("layer_norm_backward")
    whole, part = A.layer_norm_backward(*given), A.layer_norm_backward(*given, mask)
    for expected, got, wanted in zip(whole, part, mask, strict=True):
        assert got is None if not wanted else torch.equal(got, expected)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_same_bits_as_the_python_function(name: str) -> None:
    given = arguments(name)
    arrays = [value.numpy() if isinstance(value, torch.Tensor) else value for value in arguments(name)]
    for ours, theirs in zip(results(getattr(A, name)(*given)), results(getattr(aclnn, name)(*arrays)), strict=True):
        np.testing.assert_array_equal(ours.numpy().view(np.uint32), theirs.view(np.uint32))


def main_result(value: Any) -> Any:
    """Return the first of the largest results, because a norm's statistics are smaller."""
    return max(results(value), key=torch.numel)


def ada_layer_norm(x: Any, scale: Any, shift: Any, weight: Any, bias: Any) -> Any:
    normal = torch.nn.functional.layer_norm(x, weight.shape, weight, bias)
    return normal * (1.0 + scale[:, None]) + shift


def group_norm_silu(x: Any, weight: Any, bias: Any, groups: int) -> Any:
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, weight, bias))


PEERS: dict[str, Callable[..., Any]] = {
    "elu": torch.nn.functional.elu,
    "silu": torch.nn.functional.silu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_v2": torch.nn.functional.gelu,
    "hardswish": torch.nn.functional.hardswish,
    "fast_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "layer_norm": lambda x, shape, weight, bias: torch.nn.functional.layer_norm(x, shape, weight, bias),
    "swi_glu": swi_glu,
    "add_layer_norm": lambda x1, x2, weight, bias, added: torch.nn.functional.layer_norm(
        x1 + x2 + added, weight.shape, weight, bias
    ),
    "deep_norm": lambda x, gx, bias, weight, alpha: torch.nn.functional.layer_norm(
        alpha * x + gx, weight.shape, weight, bias, 1e-6
    ),
    "ada_layer_norm": ada_layer_norm,
    "ada_layer_norm_v2": ada_layer_norm,
    "group_norm_silu": group_norm_silu,
    "group_norm_silu_v2": group_norm_silu,
    "rms_norm": lambda x, weight: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(
            name,
            dtype,
            id=f"{name}-{dtype}",
            marks=[pytest.mark.long] if dtype is not torch.float32 and compiles_long(BY_NAME[name]) else [],
        )
        for name in PEERS
        for dtype in DTYPES
    ],
)
def test_first_derivatives_match_float64(name: str, dtype: Any) -> None:
    ours, theirs = arguments(name, dtype=dtype, gradient=True), arguments(name, dtype=torch.float64, gradient=True)
    with torch.no_grad():
        for actual, other in zip(ours, theirs, strict=True):
            if isinstance(actual, torch.Tensor):
                other.copy_(actual)
    value, expected = main_result(getattr(A, name)(*ours)), PEERS[name](*theirs)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert value.dtype is dtype
    (value * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    for actual, other in zip(ours, theirs, strict=True):
        if isinstance(actual, torch.Tensor):
            torch.testing.assert_close(actual.grad.double(), other.grad, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("added", [None, (5,), (12, 5)], ids=str)
def test_gradients_of_layer_norm_of_a_sum_reach_every_term(added: tuple[int, ...] | None) -> None:
    """Gradients also come through the returned sum, and reach terms of two data types."""
    generator = torch.Generator().manual_seed(5)
    half = torch.float16 if added is None else torch.float32
    given = [((3, 4, 5), torch.float32), ((3, 4, 5), half), ((5,), torch.float32), ((5,), torch.float32)]
    given += [] if added is None else [(added, torch.float32)]
    ours = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape, dtype in given]
    theirs = [tensor.detach().double().requires_grad_() for tensor in ours]
    x1, x2, weight, bias, *more = theirs
    x = sum((term.expand(12, 5).reshape(3, 4, 5) for term in more), x1 + x2)
    expected = torch.nn.functional.layer_norm(x, (5,), weight, bias), x
    y, _, _, total = A.add_layer_norm(*ours, additional_output=added is not None)
    dy, dsum = torch.randn(2, 3, 4, 5, generator=generator)
    for weights in ((dy, None), (None, dsum), (dy, dsum)) if added else ((dy, None),):
        pairs = [
            torch.autograd.grad(
                [result for result, grad in zip(results, weights, strict=True) if grad is not None],
                tensors,
                [grad.to(results[0]) for grad in weights if grad is not None],
                retain_graph=True,
                allow_unused=True,
            )
            for results, tensors in (((y, total), ours), (expected, theirs))
        ]
        for actual, got, want in zip(ours, *pairs, strict=True):
            want = torch.zeros_like(got) if want is None else want
            assert got.dtype == actual.dtype
            tolerance = 8 * torch.finfo(got.dtype).eps
            torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PEERS)
def test_second_derivatives_match_float64(name: str) -> None:
    def twice(function: Callable[..., Any], dtype: Any) -> list[Any]:
        given = arguments(name, dtype=dtype, gradient=True)
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        first = torch.autograd.grad(main_result(function(*given)).sin().sum(), tensors, create_graph=True)
        return list(torch.autograd.grad(sum((g * g).sum() for g in first), tensors, allow_unused=True))

    with torch.random.fork_rng():
        pairs = zip(twice(getattr(A, name), torch.float32), twice(PEERS[name], torch.float64), strict=True)
    for ours, theirs in pairs:
        if theirs is not None:
            torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_by_grad_output_are_the_slope(name: str) -> None:
    """PyTorch's derivative of Hardswish differs from ours at -3 and 3."""
    x, dy = torch.tensor([-4.0, -3.0, -1.0, 0.0, 3.0, 4.0]), torch.ones(6, requires_grad=True)
    slope = getattr(A, name)(*gradient_arguments(name, dy, x))
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), dy)[0], slope.detach())


@pytest.mark.parametrize("name", PEERS)
def test_nested_transforms_differentiate_twice(name: str) -> None:
    """The inner gradient must not be a constant to the outer one, or second derivatives are 0."""
    func = torch.func

    def derivatives(function: Callable[..., Any], dtype: Any) -> list[Any]:
        x, *rest = (a.to(dtype) if isinstance(a, torch.Tensor) else a for a in arguments(name))

        def first(x: Any) -> Any:
            return func.grad(lambda x: main_result(function(x, *rest)).sin().sum())(x)

        second = func.grad(lambda x: first(x).square().sum())(x)
        pull = func.vjp(first, x)[1]
        return [second, func.jacrev(first)(x), func.vmap(func.grad(lambda x: first(x).sum()))(x[None])[0], *pull(x)]

    pairs = zip(derivatives(getattr(A, name), torch.float32), derivatives(PEERS[name], torch.float64), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-4)


def test_forward_mode_is_rejected() -> None:
    """Tangents must not be dropped silently, or derivatives are 0."""
    x, out = torch.randn(3), torch.empty(3)
    calls = (A.silu, lambda x: A.silu_backward(x, x), lambda x: A.silu.out(x, out=out), A.inplace_hardswish)
    for call in calls:
        with pytest.raises(NotImplementedError, match="forward-mode differentiation is not supported"):
            torch.func.jvp(call, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        assert torch.equal(A.silu(x), torch.ops.aclnn.silu(x.clone()))  # no tangent, nothing to reject


@pytest.mark.parametrize("nesting", ["jvp", "jacfwd", "hessian", "linearize", "vmap of jvp", "jvp of vmap", "values"])
@pytest.mark.parametrize("name", ["silu", "gelu", "layer_norm"])
def test_forward_over_reverse_is_rejected(name: str, nesting: str) -> None:
    """The inner gradient's forward must not hide tangents, or its derivative is 0."""
    func, x = torch.func, torch.randn(3, 4)

    def loss(x: Any) -> Any:
        return (A.layer_norm(x, [4])[0] if name == "layer_norm" else getattr(A, name)(x)).sin().sum()

    slope, rows = func.grad(loss), func.vmap(func.grad(loss))
    calls: dict[str, Callable[[], Any]] = {
        "jvp": lambda: func.jvp(slope, (x,), (x,)),
        "jacfwd": lambda: func.jacfwd(slope)(x),
        "hessian": lambda: func.hessian(loss)(x),
        "linearize": lambda: func.linearize(slope, x)[1](x),
        "vmap of jvp": lambda: func.vmap(lambda row: func.jvp(slope, (row,), (row,)))(x),
        "jvp of vmap": lambda: func.jvp(rows, (x,), (x,)),
        "values": lambda: func.jvp(func.grad_and_value(loss), (x,), (x,)),
    }
    with pytest.raises(NotImplementedError, match="forward-mode differentiation is not supported"):
        calls[nesting]()


@pytest.mark.parametrize("dims", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)], ids=str)
def test_strides_are_pytorchs(dims: tuple[int, ...]) -> None:
    x, dy = torch.randn(3, 4, 5).permute(*dims), torch.randn(3, 4, 5).permute(*dims)
    assert A.silu(x).stride() == torch.nn.functional.silu(x).stride()
    assert A.silu_backward(dy, x).stride() == N.silu_backward(dy, x).stride()
    narrow = x[:, :1]
    assert A.gelu_backward_v2(dy, narrow).stride() == torch.mul(dy, narrow).stride()
    gapped = torch.randn(3, 4, 10).permute(*dims)[..., ::2]
    assert A.hardswish_backward(gapped, gapped).stride() == torch.mul(gapped, gapped).stride()
    for single in (torch.randn(3, 1, 5).permute(*dims), torch.randn(1, 4, 5)[..., ::2].permute(*dims)):
        assert A.silu(single).stride() == torch.nn.functional.silu(single).stride()
    empty = torch.empty(2, 0, 3).permute(*dims)
    assert A.silu(empty).stride() == torch.nn.functional.silu(empty).stride()


def test_strides_of_channels_last_images_of_one_channel_are_pytorchs() -> None:
    """Strides of extent 1 are PyTorch's, too."""
    x = torch.randn(3, 1, 5, 6).to(memory_format=torch.channels_last)
    assert A.silu(x).stride() == torch.nn.functional.silu(x).stride()
    assert A.silu_backward(x, x).stride() == N.silu_backward(x, x).stride()


def test_layer_norm_makes_permuted_inputs_row_major() -> None:
    """Results are contiguous like PyTorch's, so that ``view`` succeeds."""
    x, weight, bias = torch.randn(2, 6, 5).transpose(1, 2), torch.randn(6), torch.randn(6)
    theirs = N.native_layer_norm(x, [6], weight, bias, 1e-5)
    for ours in (A.layer_norm(x, [6], weight, bias), A.layer_norm_with_impl_mode(x, [6], weight, bias)):
        assert [result.stride() for result in ours] == [result.stride() for result in theirs]
    given = (x, x, [6], *theirs[1:], weight, bias, [True, True, True])
    expected, got = N.native_layer_norm_backward(*given), A.layer_norm_backward(*given)
    assert [result.stride() for result in got] == [result.stride() for result in expected]
    aclnn.torch.patch(torch.nn.Sequential(torch.nn.LayerNorm(6)))(x).view(10, 6)


def test_out_and_in_place_calls_write_the_given_tensors() -> None:
    x, dy = torch.randn(4, 6), torch.randn(4, 6)
    out = torch.full((4, 12), torch.nan)[:, ::2]
    assert A.silu_backward.out(dy, x, out=out) is out
    assert torch.equal(out, A.silu_backward(dy, x))
    expected, version = A.hardswish(x), x._version
    assert A.inplace_hardswish(x) is x
    assert torch.equal(x, expected)
    assert x._version > version
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        A.silu.out(torch.randn(3, requires_grad=True), out=torch.empty(3))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        A.inplace_hardswish(torch.randn(3, requires_grad=True))


def test_inference_tensors_are_written_in_inference_mode_only() -> None:
    """Outside of inference mode, PyTorch refuses to write inference tensors."""
    with torch.inference_mode():
        out = torch.zeros(3)
        A.silu.out(torch.ones(3), out=out)
        A.inplace_hardswish(out)
    expected = out.clone()
    for call in (lambda: A.silu.out(torch.zeros(3), out=out), lambda: A.silu.into(torch.zeros(3), out=out)):
        with pytest.raises(RuntimeError, match=r"silu\(\): out: expected inference mode"):
            call()
    with pytest.raises(RuntimeError, match="expected inference mode"):
        A.inplace_hardswish(out)
    assert torch.equal(out, expected)


def test_numbers_are_distinguished_by_more_than_equality() -> None:
    """Cached calls distinguish 0.0 from -0.0, and a real number from a complex one."""
    x = torch.tensor([-1.0])
    assert [bool(torch.signbit(A.elu(x, zero))) for zero in (0.0, -0.0)] == [True, False]
    A.elu(x, 1)
    with pytest.raises(RuntimeError, match="alpha: expected a real number, got one of ACL_COMPLEX128"):
        A.elu(x, 1 + 0j)


def test_inplace_elu_takes_numbers_and_negated_views() -> None:
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = A.elu(x, 1.5, input_scale=2)
    written = torch._neg_view(-x)
    A.inplace_elu(written, 1.5, input_scale=2)
    assert A.inplace_elu(x, 1.5, 1, 2) is x
    assert torch.equal(x, expected)
    assert torch.equal(written, expected)


@pytest.mark.parametrize("is_result", [False, True])
def test_second_derivatives_of_elu_match_pytorch(is_result: bool) -> None:
    dy, v = (torch.randn(40, generator=torch.Generator().manual_seed(seed), requires_grad=True) for seed in (1, 2))
    given = (1.5, 2.0, 0.5, is_result)
    ours = torch.autograd.grad(A.elu_backward(dy, *given, v).sin().sum(), (dy, v))
    theirs = torch.autograd.grad(N.elu_backward(dy, *given, v).sin().sum(), (dy, v))
    for actual, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, other)


def test_out_and_in_place_write_negated_views() -> None:
    """PyTorch's fallback for negated views fails for operators that return nothing."""
    x, numbers = torch.randn(4, 8), torch.zeros(4, 8, dtype=torch.complex64)
    out = numbers.conj().imag
    assert out.is_neg()
    assert A.silu.out(x, out=out) is out
    assert torch.equal(out, A.silu(x))
    assert torch.equal(numbers.imag, -A.silu(x))
    A.inplace_hardswish(out)
    assert torch.equal(numbers.imag, -A.hardswish(A.silu(x)))
    results = [torch._neg_view(torch.empty_like(result)) for result in A.layer_norm(-out, [8])]
    A.layer_norm.out(torch._neg_view(out), [8], out=results[0], mean=results[1], rstd=results[2])
    for actual, expected in zip(results, A.layer_norm(-out, [8]), strict=True):
        assert torch.equal(actual, expected)
    with pytest.raises(RuntimeError, match="out: expected shape"):
        A.silu.out(x, out=torch._neg_view(torch.empty(8)))


@pytest.mark.parametrize("name", ["silu", "gelu_backward_v2", "hardswish_backward"])
def test_vmap_of_elementwise_operators(name: str) -> None:
    given = arguments(name)
    whole = getattr(A, name)(*given)
    assert torch.equal(torch.func.vmap(getattr(A, name), in_dims=1, out_dims=1)(*given), whole)
    if len(given) == 2:
        dy, x = given
        once = torch.func.vmap(getattr(A, name), in_dims=(None, 0))(dy[0], x)
        assert torch.equal(once, torch.stack([getattr(A, name)(dy[0], row) for row in x]))


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_vmap_of_swi_glu(dim: int) -> None:
    x = torch.randn(3, 4, 6)
    assert torch.equal(
        torch.func.vmap(A.swi_glu, (0, None))(x, dim), torch.stack([A.swi_glu(member, dim) for member in x])
    )
    slope = torch.func.grad(lambda x: A.swi_glu(x, dim).sin().sum())
    assert torch.equal(torch.func.vmap(slope)(x), torch.stack([slope(member) for member in x]))


@pytest.mark.parametrize("dim", [2, -3])
def test_vmap_of_swi_glu_does_not_halve_the_batch(dim: int) -> None:
    with pytest.raises(RuntimeError, match=f"dim: expected from -2 to 1, got {dim}"):
        torch.func.vmap(A.swi_glu, (0, None))(torch.randn(4, 2, 6), dim)


@pytest.mark.parametrize("dim", [0, 4, -1])
def test_swi_glu_of_nine_dimensions_has_a_gradient(dim: int) -> None:
    """SwiGLU's gradient operator takes eight dimensions; nine work, too."""
    x = torch.randn(2, 1, 2, 1, 4, 1, 2, 1, 2, requires_grad=True)
    ours, theirs = (torch.autograd.grad(f(x, dim).sin().sum(), x)[0] for f in (A.swi_glu, swi_glu))
    torch.testing.assert_close(ours, theirs)


def test_vmap_of_layer_norm() -> None:
    x, weight, dy = torch.randn(6, 3, 5), torch.randn(6, 5), torch.randn(6, 3, 5)

    def loss(x: Any, weight: Any, dy: Any) -> Any:
        return (A.layer_norm(x, [5], weight)[0] * dy).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(0, None, 0))(x, weight[0], dy)
    batched = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(x, weight, dy)
    for i in range(6):
        for shared, got in ((weight[0], per_sample), (weight[i], batched)):
            expected = torch.func.grad(loss, argnums=(0, 1))(x[i], shared, dy[i])
            for actual, other in zip(got, expected, strict=True):
                torch.testing.assert_close(actual[i], other)


def test_vmap_of_rms_norm() -> None:
    x, weight, dy = torch.randn(6, 3, 5), torch.randn(6, 5), torch.randn(6, 3, 5)

    def loss(x: Any, weight: Any, dy: Any) -> Any:
        return (A.rms_norm(x, weight)[0] * dy).sum()

    gradients = torch.func.grad(loss, argnums=(0, 1))
    for dims in ((0, None, 0), (0, 0, 0), (None, 0, 0)):
        given = [t if d == 0 else t[0] for t, d in zip((x, weight, dy), dims, strict=True)]
        got = torch.func.vmap(gradients, in_dims=dims)(*given)
        for i in range(6):
            alone = gradients(*(t if d is None else t[i] for t, d in zip(given, dims, strict=True)))
            for actual, other in zip(got, alone, strict=True):
                torch.testing.assert_close(actual[i], other)


def test_vmap_over_an_empty_batch() -> None:
    """A fallback that runs member by member has no member to infer shapes from."""

    def loss(x: Any, weight: Any) -> Any:
        return A.layer_norm(x, [2], weight)[0].square().sum()

    x, weight, weights = torch.ones(0, 3, 2), torch.ones(2), torch.ones(0, 2, requires_grad=True)
    out, mean, _ = torch.func.vmap(lambda x, weight: A.layer_norm(x, [2], weight))(x, weights)
    assert (out.shape, mean.shape) == ((0, 3, 2), (0, 3, 1))
    assert torch.autograd.grad(out.sum(), weights)[0].shape == (0, 2)
    for dims, given in (((0, None), weight), ((0, 0), weights)):
        dx, dw = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=dims)(x, given)
        assert (dx.shape, dw.shape) == ((0, 3, 2), (0, 2))
    assert torch.func.vmap(A.silu)(x).shape == x.shape


@pytest.mark.slow
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_v2", "hardswish", "fast_gelu"])
def test_vmap_over_members_of_eight_dimensions(name: str) -> None:
    """The batch dimension must not exceed the operators' limit of dimensions."""
    x, operator = torch.randn(3, *[2] * 8), getattr(A, name)
    assert torch.equal(torch.func.vmap(operator)(x), torch.stack([operator(member) for member in x]))
    slope = torch.func.grad(lambda x: operator(x).sum())
    assert torch.equal(torch.func.vmap(slope)(x), torch.stack([slope(member) for member in x]))
    twice = torch.func.vmap(torch.func.vmap(operator), in_dims=1)(x.unsqueeze(1))
    assert torch.equal(twice[0], torch.func.vmap(operator)(x))


def test_vmap_layer_norm_over_members_of_eight_dimensions() -> None:
    """The batch dimension must not exceed LayerNorm's limit of dimensions."""
    x, weight = torch.randn(3, *[2] * 8), torch.randn(2)
    slope = torch.func.grad(lambda x: A.layer_norm(x, [2])[0].sin().sum())
    expected = [A.layer_norm(member, [2], weight)[0] for member in x]
    assert torch.equal(torch.func.vmap(lambda x: A.layer_norm(x, [2], weight)[0])(x), torch.stack(expected))
    assert torch.equal(torch.func.vmap(slope)(x), torch.stack([slope(member) for member in x]))


@pytest.mark.parametrize("name", ["silu", "hardswish"])
def test_gradients_in_nine_dimensions(name: str) -> None:
    """The forward operator takes nine dimensions, its gradient's does not."""
    x = torch.randn(*[2] * 9, requires_grad=True)
    flat = x.detach().flatten().requires_grad_()
    gradients = []
    for each in (x, flat):
        (first,) = torch.autograd.grad(getattr(A, name)(each).sin().sum(), each, create_graph=True)
        gradients.append((first, *torch.autograd.grad(first.square().sum(), each)))
    for actual, other in zip(*gradients, strict=True):
        assert torch.equal(actual.flatten(), other)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_graph_breaks(dynamic: bool) -> None:
    def block(x: Any, weight: Any) -> Any:
        x = A.layer_norm(x, [8], weight)[0]
        return A.gelu(A.silu(x)) + A.hardswish(A.fast_gelu(x)) + A.gelu_v2(x, 0)

    # The graph and its gradients, without Inductor's code.
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 7):
        x, weight = torch.randn(rows, 8, requires_grad=True), torch.randn(8, requires_grad=True)
        expected = torch.autograd.grad(block(x, weight).square().sum(), (x, weight))
        got = torch.autograd.grad(compiled(x, weight).square().sum(), (x, weight))
        for actual, other in zip(got, expected, strict=True):
            assert torch.equal(actual, other)


def test_compiles_with_numbers_of_rows_that_depend_on_data() -> None:
    """Checks must not guard on an unknown number of rows being 0 or 1."""

    def block(x: Any, weight: Any, mask: Any) -> Any:
        rows = A.gelu_v2(A.layer_norm(x[mask], [8], weight)[0], 0)
        return A.gelu_backward_v2(rows, weight) * A.silu(rows.t()).t()

    weight, mask = torch.randn(8, requires_grad=True), torch.tensor([True, False, True, True])
    x = torch.randn(4, 8, requires_grad=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        got = torch.autograd.grad(compiled(x, weight, mask).square().sum(), (x, weight))
    for actual, other in zip(got, torch.autograd.grad(block(x, weight, mask).square().sum(), (x, weight)), strict=True):
        torch.testing.assert_close(actual, other)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler, g++, on the CPU")
def test_inductor_compiles_every_operator(tmp_path: Path) -> None:
    """Every operator, each by its shortest call, forward and backward, in one graph with ``out=`` and in-place ones.

    An argument left out arrived twice, and memory written through ``out=`` was used again while in use.
    """

    def model(x: Any, dy: Any, weight: Any, bias: Any, mean: Any, rstd: Any) -> Any:
        y = A.silu(x * 1.5) + A.gelu(x) + A.hardswish(x) + A.fast_gelu(x) + A.gelu_v2(x) + A.gelu_v2(x, 1) + A.elu(x)
        y = A.layer_norm(y, [8], weight, bias)[0] + A.layer_norm_with_impl_mode(x, [8], weight)[0]
        written = torch.empty_like(x)
        A.gelu_v2.out(x.detach(), out=written)
        A.inplace_hardswish(written)
        A.inplace_elu(written, 1.5)
        slopes = [getattr(A, name)(*gradient_arguments(name, dy, x.detach())) for name in SLOPES]
        masked = A.layer_norm_backward(dy, x.detach(), [8], mean, rstd, None, None, [True, False, True])
        return y, written, *slopes, masked[0], masked[2]

    x, dy, mean, rstd = torch.randn(5, 8), torch.randn(5, 8).t().contiguous().t(), torch.randn(5), torch.rand(5)
    parameters = [x.requires_grad_(), torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)]
    given = (x, dy, *parameters[1:], mean, rstd)
    expected = model(*given)
    # Trying out vector instructions, processes and headers compiled ahead took longer than they save for one graph.
    quick = {"compile_threads": 1, "cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}
    with torch._inductor.utils.fresh_cache(dir=str(tmp_path)), torch._inductor.config.patch(quick):
        compiled = torch.compile(model, fullgraph=True)
        got = compiled(*given)
        gradients = torch.autograd.grad(got[0].square().sum(), parameters)
    for actual, other in zip(got, expected, strict=True):
        torch.testing.assert_close(actual, other)
        assert actual.stride() == other.stride()
    for actual, other in zip(gradients, torch.autograd.grad(expected[0].square().sum(), parameters), strict=True):
        torch.testing.assert_close(actual, other)


AUTOCAST: dict[str, Callable[..., Any]] = {
    name: lambda f, x, w, name=name, numbers=numbers: getattr(f, name)(x, *numbers)
    for name, numbers in {
        **dict.fromkeys(("celu", "elu", "glu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu"), ()),
        **dict.fromkeys(("logsigmoid", "mish", "relu", "selu", "sigmoid", "silu", "softplus", "softshrink"), ()),
        **dict.fromkeys(("softmax", "log_softmax"), (1,)),
        "threshold": (0.1, 0.2),
    }.items()
} | {
    "prelu": lambda f, x, w: f.prelu(x, w),
    "layer_norm": lambda f, x, w: f.layer_norm(x, [8], w, w),
    "rms_norm": lambda f, x, w: f.rms_norm(x, [8], w),
    "group_norm": lambda f, x, w: f.group_norm(x, 2, w, w),
    "batch_norm": lambda f, x, w: f.batch_norm(x, None, None, w, w, True),
    "instance_norm": lambda f, x, w: f.instance_norm(x.reshape(1, 8, 8), None, None, w, w),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_the_types_that_pytorch_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast casts each operator as PyTorch does, on CUDA and on the CPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    # torch.autocast itself asks for a GPU; the rules do not.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    for device, narrow in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
        for x_dtype, w_dtype in ((narrow, torch.float32), (narrow, narrow), (torch.float32, torch.float32)):
            with FakeTensorMode(), torch.autocast(device, narrow):
                x, w = (torch.empty(8, *more, device=device, dtype=d) for more, d in (((8,), x_dtype), ((), w_dtype)))
                ours, theirs = (AUTOCAST[name](f, x, w) for f in (functional, torch.nn.functional))
            assert ours.dtype is theirs.dtype, (device, x_dtype, w_dtype)


def test_prelu_under_autocast_is_differentiated() -> None:
    found = []
    for f in (functional, torch.nn.functional):
        x, w = torch.linspace(-2, 2, 8).requires_grad_(), torch.full((1,), 0.3, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y = f.prelu(x, w)
        found.append((y, *torch.autograd.grad(y.float().sum(), (x, w))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


ERRORS: list[tuple[str, Callable[[], Any], str]] = [
    ("data type", lambda: A.silu(torch.ones(3, dtype=torch.float64)), "self: expected data type .* got ACL_DOUBLE"),
    ("mixed", lambda: A.fast_gelu_backward(torch.ones(3), torch.ones(3).half()), "self: expected data type ACL_FLOAT"),
    ("shape", lambda: A.silu_backward(torch.ones(3), torch.ones(4)), "shape"),
    ("word", lambda: A.gelu_backward_v2(torch.ones(3), torch.ones(3), "Tanh"), "approximate: expected 'none' or"),
    ("sparse", lambda: A.silu(torch.ones(3).to_sparse()), "aclnn::silu"),
    ("meta", lambda: A.silu_backward(torch.ones(3, device="meta"), torch.ones(4, device="meta")), "shape"),
    ("mixed devices", lambda: A.silu_backward(torch.ones(3), torch.ones(3, device="meta")), "same device, cpu"),
    ("out", lambda: A.silu.out(torch.ones(3), out=torch.ones(4)), "out: expected shape"),
]


@pytest.mark.parametrize(("call", "text"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_invalid_calls_raise_an_error_that_names_the_reason(call: Callable[[], Any], text: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=text):
        call()


def test_an_error_carries_the_code() -> None:
    with pytest.raises(aclnn.AclnnError) as rejected:
        A.silu_backward(torch.ones(3), torch.ones(4))
    assert rejected.value.code == 161002


@pytest.mark.parametrize(
    ("version", "text"),
    [(None, r"torch is not installed: pip install .*\[torch\]'"), ("2.7.1", "torch 2.8 or newer, got 2.7.1")],
)
def test_a_missing_or_old_torch_is_reported(version: str | None, text: str) -> None:
    fake = "None" if version is None else f"types.SimpleNamespace(__version__={version!r})"
    program = f"import sys, types; sys.modules['torch'] = {fake}\nimport aclnn.torch"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert re.search(text, run.stderr)


def _swish(x: Any, beta: float) -> Any:
    return x * torch.sigmoid(beta * x)


F = torch.nn.functional
LIKE_PYTORCH = {
    "celu": (F.celu, (1.5,)),
    "hardsigmoid": (lambda x: F.relu6(x + 3.0) / 6.0, ()),
    "glu": (F.glu, ()),
    "hardshrink": (F.hardshrink, (0.75,)),
    "leaky_relu": (F.leaky_relu, (0.2,)),
    "log_sigmoid": (F.logsigmoid, ()),
    "log_sigmoid_forward": (F.logsigmoid, ()),
    "mish": (F.mish, ()),
    "relu": (F.relu, ()),
    "selu": (F.selu, ()),
    "shrink": (lambda x, *numbers: F.hardshrink(x, 0.75) - 0.25 * F.hardshrink(x, 0.75).sign(), (0.75, 0.25)),
    "sigmoid": (torch.sigmoid, ()),
    "softplus": (F.softplus, (1.5, 2.0)),
    "softshrink": (F.softshrink, (0.75,)),
    "squared_relu": (lambda x: F.relu(x).square(), ()),
    "swish": (_swish, (1.5,)),
    "threshold": (F.threshold, (0.5, -1.0)),
}


@pytest.mark.parametrize("name", LIKE_PYTORCH)
def test_activations_have_pytorchs_values_and_derivatives(name: str) -> None:
    """Compare values, first and second derivatives with PyTorch's in float64."""
    theirs, numbers = LIKE_PYTORCH[name]
    found = []
    for function, dtype in ((getattr(A, name), torch.float32), (theirs, torch.float64)):
        x = torch.linspace(-5, 5, 100).to(dtype).requires_grad_()
        y = function(x, *numbers)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append((y, first, second))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours.detach(), expected.detach().float(), rtol=2e-5, atol=2e-5)


def _ge_glu(x: Any, mode: int, left: bool) -> Any:
    p, g = x.chunk(2, 0)[:: -1 if left else 1]
    return p * F.gelu(g, approximate="tanh" if mode else "none")


@pytest.mark.slow
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("mode", [0, 1])
def test_ge_glu_has_pytorchs_values_and_derivatives(mode: int, left: bool) -> None:
    found = []
    for function, dtype in (
        (lambda x: A.ge_glu_v3(x, 0, mode, left)[0] if left else A.ge_glu(x, 0, mode)[0], torch.float32),
        (lambda x: _ge_glu(x, mode, left), torch.float64),
    ):
        x = torch.linspace(-4, 4, 100).reshape(10, 10).to(dtype).requires_grad_()
        y = function(x)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append((y, first))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours.detach(), expected.detach().float(), rtol=2e-5, atol=2e-5)
    with pytest.raises(RuntimeError, match="does not require grad"):
        A.ge_glu(torch.randn(4, requires_grad=True))[1].sum().backward()


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 4, 5), (0, 4)])
@pytest.mark.parametrize("slopes", [1, 4])
def test_prelu_has_pytorchs_values_and_derivatives(shape: tuple[int, ...], slopes: int) -> None:
    if slopes > 1 and len(shape) == 1:
        return
    found = []
    for function, dtype in ((A.prelu, torch.float32), (F.prelu, torch.float64)):
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(shape, generator=generator).to(dtype).requires_grad_()
        weight = torch.randn(slopes, generator=generator).to(dtype).requires_grad_()
        y = function(x, weight)
        first = torch.autograd.grad(y.square().sum(), (x, weight), create_graph=True)
        if y.numel():
            first += torch.autograd.grad(sum(part.square().sum() for part in first), (x, weight))
        found.append((y, *first))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours.detach(), expected.detach().float(), rtol=2e-5, atol=2e-5)


def _clipped_swiglu(x: Any, groups: Any, dim: int, interleaved: bool) -> Any:
    """Compute clipped SwiGLU by PyTorch's operations, with default attributes."""
    rows = x.shape[: dim % x.dim()].numel()
    flat = x.reshape(rows, -1)
    a, b = (flat[:, 0::2], flat[:, 1::2]) if interleaved else flat.chunk(2, 1)
    a, b = a.clamp(max=7.0), b.clamp(-7.0, 7.0)
    y = a * torch.sigmoid(float(np.float32(1.702)) * a) * (b + 1.0)
    if groups is not None:
        y = y * (torch.arange(rows) < groups.sum())[:, None]
    halved = dim % x.dim()
    return y.reshape(*x.shape[:halved], x.shape[halved] // 2, *x.shape[halved + 1 :])


@pytest.mark.parametrize("groups", [None, [1, 1]])
@pytest.mark.parametrize("dim", [-1, 1])
@pytest.mark.parametrize("interleaved", [True, False])
def test_clipped_swiglu_has_the_derivatives_of_its_formula(
    groups: list[int] | None, dim: int, interleaved: bool
) -> None:
    x = 5.0 * torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(3))
    index = None if groups is None else torch.tensor(groups)
    found = []
    for function, dtype in ((A.clipped_swiglu, torch.float32), (_clipped_swiglu, torch.float64)):
        leaf = x.to(dtype).requires_grad_()
        attributes = (1.702, 7.0, 1.0, interleaved) if dtype == torch.float32 else (interleaved,)
        y = function(leaf, index, dim, *attributes)
        (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), leaf)
        found.append((y, first, second))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-4)
