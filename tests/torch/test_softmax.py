"""Softmax and its logarithm in PyTorch: values, gradients, transformations and modules are PyTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra

import aclnn.torch  # noqa: E402
from aclnn.torch import functional as ours  # noqa: E402

theirs = torch.nn.functional
NAMES = ["softmax", "log_softmax"]


def given(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def gradients(function: Callable[[Any], Any], x: Any) -> list[Any]:
    """Return the result, its gradient, and the gradient of that."""
    x = x.clone().requires_grad_()
    y = function(x)
    (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return [y.detach(), first.detach(), second]


@pytest.mark.parametrize(("shape", "dim"), [((3, 4, 5), 1), ((3, 4, 5), -1), ((), 0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives_match_pytorch(name: str, shape: tuple[int, ...], dim: int) -> None:
    x = given(*shape)
    found = gradients(lambda x: getattr(ours, name)(x, dim), x)
    for got, expected in zip(found, gradients(lambda x: getattr(theirs, name)(x, dim), x.double()), strict=True):
        torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-6)


def test_masked_positions_have_no_weight_and_no_gradient() -> None:
    """In causal attention, later positions have no weight and no gradient."""
    scores = given(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    got, expected = (gradients(lambda x, f=f: f(x, -1), scores) for f in (ours.softmax, theirs.softmax))
    for actual, other in zip(got, expected, strict=True):
        torch.testing.assert_close(actual, other)
    assert torch.equal(got[0].triu(1), torch.zeros(6, 6))


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", NAMES)
def test_vmap_sums_within_each_member(name: str, dim: int) -> None:
    x, function = given(3, 4, 6), getattr(torch.ops.aclnn, name)
    slope = torch.func.grad(lambda x: function(x, dim).sin().sum())
    for mapped in (lambda x: function(x, dim), slope):
        assert torch.equal(torch.func.vmap(mapped, 1, 1)(x), torch.stack([mapped(member) for member in x.unbind(1)], 1))
    with pytest.raises(RuntimeError, match="dim: expected from -2 to 1, got 2"):
        torch.func.vmap(function, (0, None))(x, 2)
    assert torch.equal(torch.func.vmap(function, (0, None))(x[0, 0], 0), torch.full((6,), float(name == "softmax")))


@pytest.mark.parametrize("name", NAMES)
def test_arguments_match_pytorchs(name: str) -> None:
    x = given(3, 4, 5)
    halves = getattr(ours, name)(x.bfloat16(), 2, dtype=torch.float32)
    assert halves.dtype is torch.float32
    torch.testing.assert_close(halves, getattr(theirs, name)(x.bfloat16(), 2, dtype=torch.float32))
    for function in (getattr(ours, name), getattr(theirs, name)):
        with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name}") as told:
            assert torch.allclose(function(x), getattr(theirs, name)(x, 0))
        assert told[0].filename == __file__


@pytest.mark.parametrize("module", [torch.nn.Softmax(1), torch.nn.LogSoftmax(-1), torch.nn.Softmax()], ids=str)
@pytest.mark.filterwarnings("ignore:Implicit dimension")
def test_a_patched_module_matches_pytorchs(module: Any) -> None:
    model = aclnn.torch.patch(copy.deepcopy(module))
    assert type(model).__module__ == "aclnn.torch.nn"
    assert repr(model) == repr(module)
    for got, expected in zip(*(gradients(each, given(3, 4, 5)) for each in (model, module)), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    assert type(aclnn.torch.unpatch(model)) is type(module)


def test_float64_has_no_gradient() -> None:
    """The gradient's operator does not take float64."""
    x = given(3, 4).double().requires_grad_()
    y = ours.softmax(x, -1)
    torch.testing.assert_close(y, theirs.softmax(x, -1), rtol=1e-12, atol=0)
    with pytest.raises(RuntimeError, match="gradOutput: expected data type ACL_FLOAT"):
        y.sum().backward()
