"""The examples of docs/pytorch.md, run in order, the modules and patching, and the training proof in short."""

from __future__ import annotations

import copy
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", minversion="2.8", reason="PyTorch 2.8 or newer is not installed")

import aclnn.torch  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_documented_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)


def test_every_operator_is_documented() -> None:
    text = (ROOT / "docs" / "pytorch.md").read_text()
    assert all(f"`{operator.name}`" in text for operator in aclnn.operators.OPERATORS)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", ["SiLU", "Hardswish"])
def test_modules_with_inplace_overwrite_their_argument(name: str, inplace: bool) -> None:
    theirs, ours = getattr(torch.nn, name)(inplace=inplace), getattr(aclnn.torch.nn, name)(inplace=inplace)
    leaf = torch.randn(5, requires_grad=True)
    for module in (theirs, ours):
        x = leaf * 1.0
        y = module(x)
        assert (y.data_ptr() == x.data_ptr()) == inplace
        y.sum().backward()
    expected, leaf.grad = leaf.grad, None
    (ours(leaf * 1.0)).sum().backward()
    torch.testing.assert_close(leaf.grad * 2, expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["SiLU", "Hardswish"])
def test_modules_with_inplace_under_vmap(name: str, compiled: bool) -> None:
    """A batched tensor does not show that it requires a gradient, but x must not be overwritten."""
    x, weight = torch.randn(4, 6), torch.randn(6, requires_grad=True)
    gradients = []
    for module in (getattr(torch.nn, name)(inplace=True), getattr(aclnn.torch.nn, name)(inplace=True)):

        def loss(weight: Any, module: Any = module) -> Any:
            return torch.func.vmap(lambda row: module(row * weight))(x).square().sum()

        call = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
        gradients.append((*torch.autograd.grad(call(weight), weight), torch.func.grad(loss)(weight.detach())))
    for theirs, ours in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("way", ["trace", "export"])
@pytest.mark.parametrize("name", ["SiLU", "Hardswish"])
def test_traced_modules_in_place_can_be_trained(name: str, way: str, differentiable: bool) -> None:
    """A trace must not depend on the grad mode, because ``torch.jit.trace`` traces twice and compares."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), getattr(torch.nn, name)(inplace=True))
    x, patched = torch.randn(2, 3), aclnn.torch.patch(copy.deepcopy(model))
    with torch.set_grad_enabled(differentiable):
        traced = torch.jit.trace(patched, x) if way == "trace" else torch.export.export(patched, (x,)).module()
    for each in (traced, model):
        each(x).sum().backward()
    ours, theirs = ({key: value.grad for key, value in each.named_parameters()} for each in (traced, model))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", ["SiLU", "Hardswish"])
def test_fx_traces_patched_modules_in_place(name: str, inplace: bool) -> None:
    """Tracing must not ask a proxy whether it requires a gradient."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), getattr(torch.nn, name)(inplace=inplace))
    x, patched = torch.randn(2, 3), aclnn.torch.patch(copy.deepcopy(model))
    traced = torch.fx.symbolic_trace(patched)
    assert "aclnn" in traced.code
    for each in (traced, model):
        each(x).sum().backward()
    torch.testing.assert_close(traced(x), model(x))
    torch.testing.assert_close(patched[0].weight.grad, model[0].weight.grad)


def test_modules_and_patching_keep_the_model() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 6), torch.nn.GELU("tanh"), torch.nn.LayerNorm(6, bias=False), torch.nn.SiLU()
    )
    seen = []
    model[1].register_forward_hook(lambda *_: seen.append("hook"))
    x, before = torch.randn(3, 6), {key: value.clone() for key, value in model.state_dict().items()}
    expected, modules = model(x), list(model)
    assert aclnn.torch.patch(model) is model
    assert list(model) == modules
    assert isinstance(model[2], torch.nn.LayerNorm)
    assert type(model[2]) is aclnn.torch.nn.LayerNorm
    torch.testing.assert_close(model(x), expected)
    assert seen == ["hook", "hook"]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    aclnn.torch.unpatch(model)
    assert [type(module).__module__.split(".")[0] for module in model] == ["torch"] * 4
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, got int"):
        aclnn.torch.patch(3)


def test_a_module_with_a_forward_of_its_own_is_left_alone() -> None:
    """A module with an overridden forward is not patched by its class."""
    own, other = torch.nn.GELU(), torch.nn.GELU()
    own.forward = own.forward
    model = aclnn.torch.patch(torch.nn.Sequential(own, other))
    assert [type(module) for module in model] == [torch.nn.GELU, aclnn.torch.nn.GELU]
    other.forward = other.forward
    assert type(aclnn.torch.unpatch(model)[1]) is aclnn.torch.nn.GELU


def test_fast_gelu_is_computed_and_unknown_modes_are_rejected() -> None:
    x = torch.randn(9)
    torch.testing.assert_close(aclnn.torch.nn.FastGELU()(x), x * torch.sigmoid(1.702 * x))
    with pytest.raises(RuntimeError, match="expected 'none' or 'tanh', got 'sigmoid'"):
        aclnn.torch.functional.gelu(x, "sigmoid")


@pytest.mark.parametrize("task", [pytest.param("digits", marks=pytest.mark.long), "characters"])
def test_training_gives_the_same_losses(task: str) -> None:
    if task == "digits":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    spec = importlib.util.spec_from_file_location("torch_training", ROOT / "examples" / "torch_training.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    runs = example.compare(getattr(example, task), 12)
    theirs, ours = runs["PyTorch"]["losses"], runs["aclnn"]["losses"]
    assert theirs[-1] < theirs[0] - 0.05
    assert theirs == pytest.approx(ours, rel=2e-3)


MODULES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "LeakyReLU"), ()),
    **dict.fromkeys(("LogSigmoid", "Mish", "PReLU", "ReLU", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink"), ()),
    "Threshold": (0.5, -1.0),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_compute_what_pytorchs_do(name: str) -> None:
    theirs = getattr(torch.nn, name)(*MODULES[name])
    ours = aclnn.torch.patch(copy.deepcopy(theirs))
    assert type(ours) is getattr(aclnn.torch.nn, name)
    results = []
    for module in (theirs, ours):
        x = torch.linspace(-4, 4, 50).reshape(5, 10).requires_grad_()
        y = module(x)
        y.square().sum().backward()
        results.append((y, x.grad, *(parameter.grad for parameter in module.parameters())))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert type(aclnn.torch.unpatch(ours)) is getattr(torch.nn, name)


def test_functions_take_what_pytorchs_take() -> None:
    x = torch.linspace(-4, 4, 50)
    ours, theirs = aclnn.torch.functional, torch.nn.functional
    for call in (
        lambda f: f.elu(x, 2.0),
        lambda f: f.celu(x, alpha=2.0),
        lambda f: f.leaky_relu(x, negative_slope=0.2, inplace=False),
        lambda f: f.threshold(x, 0.5, value=3.0),
        lambda f: f.relu(x.clone(), True),
        lambda f: f.softplus(input=x, beta=2),
        lambda f: f.prelu(x, weight=torch.tensor([0.2])),
        lambda f: f.glu(x, dim=0),
    ):
        torch.testing.assert_close(call(ours), call(theirs), rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="missing a required argument: 'value'"):
        ours.threshold(x, 0.5)
    with pytest.raises(TypeError, match="too many positional arguments"):
        ours.selu(x, False, 1)
