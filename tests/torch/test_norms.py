"""Norms in PyTorch: values, gradients and running statistics are PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra

import aclnn.torch  # noqa: E402
from aclnn.torch import functional as ours  # noqa: E402

theirs = torch.nn.functional


def given(*shape: int, dtype: Any = None, **options: Any) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), **options)


MODULES = [
    (torch.nn.RMSNorm(6), (4, 6)),
    (torch.nn.RMSNorm((4, 6), eps=1e-3, elementwise_affine=False), (3, 4, 6)),
    (torch.nn.GroupNorm(2, 6), (4, 6)),
    (torch.nn.GroupNorm(3, 6, affine=False), (4, 6, 5, 2)),
    (torch.nn.BatchNorm1d(6), (4, 6)),
    (torch.nn.BatchNorm1d(6, momentum=None), (4, 6, 5)),
    (torch.nn.BatchNorm2d(6, affine=False), (4, 6, 5, 2)),
    (torch.nn.BatchNorm2d(6, track_running_stats=False), (4, 6, 5, 2)),
    (torch.nn.BatchNorm3d(6), (2, 6, 3, 2, 4)),
    (torch.nn.InstanceNorm1d(6), (4, 6, 5)),
    (torch.nn.InstanceNorm1d(6, affine=True), (6, 5)),
    (torch.nn.InstanceNorm2d(6, affine=True, track_running_stats=True), (4, 6, 5, 2)),
    (torch.nn.InstanceNorm3d(6), (2, 6, 3, 2, 4)),
]


@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend950DT_9571"])
@pytest.mark.parametrize(("module", "shape"), MODULES, ids=str)
def test_a_patched_module_trains_as_pytorchs_does(module: Any, shape: tuple[int, ...], soc: str) -> None:
    aclnn.set_soc_name(soc)
    models = copy.deepcopy(module), aclnn.torch.patch(copy.deepcopy(module))
    assert type(models[1]).__module__ == "aclnn.torch.nn"
    results = []
    for model in models:
        generator = torch.Generator().manual_seed(3)
        found = []
        for training in (True, True, False):
            model.train(training)
            for parameter in model.parameters():
                parameter.grad = None
                with torch.no_grad():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
            x = torch.randn(shape, generator=generator).requires_grad_()
            y = model(x)
            y.backward(torch.randn(shape, generator=generator))
            found += [y, x.grad, *(parameter.grad for parameter in model.parameters()), *model.buffers()]
            found = [tensor.detach().clone() for tensor in found]
        results.append(found)
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("training", [False, True])
def test_second_derivatives_of_batch_norm(training: bool) -> None:
    x, w, b = given(3, 4, 5), given(4), given(4)
    mean, var = given(4), given(4).abs() + 0.5

    def second(function: Any) -> Any:
        inputs = [tensor.clone().requires_grad_() for tensor in (x, w, b)]
        y = function(inputs[0], mean.clone(), var.clone(), inputs[1], inputs[2], training)
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    for got, expected in zip(second(ours.batch_norm), second(theirs.batch_norm), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


def test_second_derivatives_of_group_norm() -> None:
    x, w, b = given(3, 4, 5), given(4), given(4)

    def second(function: Any) -> Any:
        inputs = [tensor.clone().requires_grad_() for tensor in (x, w, b)]
        y = function(inputs[0], 2, *inputs[1:])
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    for got, expected in zip(second(ours.group_norm), second(theirs.group_norm), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


def test_a_channel_of_one_value_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="more than one value a channel"):
        ours.batch_norm(given(1, 4), None, None, training=True)


def test_running_statistics_change_for_autograd_too() -> None:
    mean, var = torch.zeros(4), torch.ones(4)
    before = mean._version, var._version
    ours.batch_norm(given(3, 4), mean, var, training=True)
    assert mean._version > before[0]
    assert var._version > before[1]


def test_rms_norm_names_dimensions_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"expected trailing dimensions \[5\], got \[3, 4\]"):
        ours.rms_norm(given(3, 4), [5])
