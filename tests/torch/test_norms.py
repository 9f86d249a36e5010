"""Norms in PyTorch: values, gradients and running statistics are PyTorch's."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")  # an extra

import aclnn.torch  # noqa: E402
from aclnn import cann  # noqa: E402
from aclnn.demo.program import Program  # noqa: E402
from aclnn.operators.registry import C_OPERATORS  # noqa: E402
from aclnn.torch import functional as ours  # noqa: E402

OURS, theirs = torch.ops.aclnn, torch.nn.functional


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_second_derivatives_of_batch_norm_match_pytorch(training: bool) -> None:
    x, w, b = given(3, 4, 5), given(4), given(4)
    mean, var = given(4), given(4).abs() + 0.5

    def second(function: Any) -> Any:
        inputs = [tensor.clone().requires_grad_() for tensor in (x, w, b)]
        y = function(inputs[0], mean.clone(), var.clone(), inputs[1], inputs[2], training)
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    for got, expected in zip(second(ours.batch_norm), second(theirs.batch_norm), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


def test_second_derivatives_of_group_norm_match_pytorch() -> None:
    x, w, b = given(3, 4, 5), given(4), given(4)

    def second(function: Any) -> Any:
        inputs = [tensor.clone().requires_grad_() for tensor in (x, w, b)]
        y = function(inputs[0], 2, *inputs[1:])
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    for got, expected in zip(second(ours.group_norm), second(theirs.group_norm), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("activated", "scale"), [(True, 1.5), (False, 1.0)])
def test_derivatives_of_group_norm_swish_match_pytorch(activated: bool, scale: float) -> None:
    def derivatives(function: Any, dtype: Any) -> list[Any]:
        inputs = [given(*shape).to(dtype).requires_grad_() for shape in ((3, 4, 5), (4,), (4,))]
        y = function(*inputs)
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        return [y, *first, *torch.autograd.grad(sum((g**2).sum() for g in first), inputs)]

    def expected(x: Any, w: Any, b: Any) -> Any:
        z = theirs.group_norm(x, 2, w, b)
        return z * torch.sigmoid(scale * z) if activated else z

    def got(x: Any, w: Any, b: Any) -> Any:
        return torch.ops.aclnn.group_norm_swish(x, w, b, 2, activate_swish=activated, swish_scale=scale)[0]

    for ours_, theirs_ in zip(derivatives(got, torch.float32), derivatives(expected, torch.float64), strict=True):
        torch.testing.assert_close(ours_, theirs_.float(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_group_norm_swish_accepts_16_bit_inputs_with_float32_parameters() -> None:
    x, w, b = given(3, 4, 5).half().requires_grad_(), given(4).requires_grad_(), given(4)
    wide = x.detach().float().requires_grad_()
    for tensor in (x, wide):
        torch.ops.aclnn.group_norm_swish(tensor, w, b, 2)[0].float().sum().backward()
    torch.testing.assert_close(x.grad, wide.grad.half())


@pytest.mark.slow
@pytest.mark.parametrize("given_", [(True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("activated", [True, False])
def test_group_norm_silu_runs_without_weight_or_bias(activated: bool, given_: tuple[bool, bool]) -> None:
    x = given(3, 4, 5)
    w, b = (given(4) if there else None for there in given_)
    got, expected = (tensor.detach().clone().requires_grad_() for tensor in (x, x))
    torch.ops.aclnn.group_norm_silu_v2(got, w, b, 2, activate_silu=activated)[0].square().sum().backward()
    z = theirs.group_norm(expected, 2, w, b)
    (theirs.silu(z) if activated else z).square().sum().backward()
    torch.testing.assert_close(got.grad, expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_ada_layer_norm_of_16_bits_is_differentiated_in_float32(dtype: Any) -> None:
    """With statistics of 16 bits, as V2 returns them, dx would lose half of its digits."""
    narrow = [given(*shape).to(dtype).requires_grad_() for shape in ((3, 4, 64), (3, 64), (3, 64))]
    narrow[0].data += 4.0
    wide = [tensor.detach().float().requires_grad_() for tensor in narrow]
    for tensors in (narrow, wide):
        torch.ops.aclnn.ada_layer_norm_v2(*tensors)[0].float().sum().backward()
    for got, expected in zip(narrow, wide, strict=True):
        torch.testing.assert_close(got.grad, expected.grad.to(dtype), rtol=1e-2, atol=1e-3)


def rms_norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["gemma_rms_norm", "add_rms_norm", "add_rms_norm, its result", "add_rms_norm, its sum"]
)
def test_derivatives_of_gemma_and_add_rms_norm_match_pytorch(name: str, dtype: Any) -> None:
    def got(x: Any, w: Any) -> Any:
        if name == "gemma_rms_norm":
            return torch.ops.aclnn.gemma_rms_norm(x, w)[0]
        y, _, added = torch.ops.aclnn.add_rms_norm(x, 2.0 * x, w)
        return {"add_rms_norm": y * added, "add_rms_norm, its result": y}.get(name, added * w)

    def expected(x: Any, w: Any) -> Any:
        if name == "gemma_rms_norm":
            return rms_norm(x, 1.0 + w)
        y, added = rms_norm(3.0 * x, w), 3.0 * x
        return {"add_rms_norm": y * added, "add_rms_norm, its result": y}.get(name, added * w)

    def derivatives(function: Any, of: Any) -> list[Any]:
        inputs = [given(*shape).to(dtype).to(of).requires_grad_() for shape in ((3, 4, 5), (5,))]
        y = function(*inputs)
        first = torch.autograd.grad((y * y).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), inputs) if dtype == torch.float32 else ()
        return [y, *first, *second]

    tolerance = 1e-3 if dtype == torch.float32 else 0.1
    for ours_, theirs_ in zip(derivatives(got, dtype), derivatives(expected, torch.float64), strict=True):
        torch.testing.assert_close(ours_.double(), theirs_, rtol=tolerance, atol=tolerance)


FIRST = {
    "relu": (lambda f, x: f.relu(x), [(3,)]),
    "leaky_relu": (lambda f, x: f.leaky_relu(x, 0.1), [(3,)]),
    "prelu": (lambda f, x: f.prelu(x, torch.full((1,), 0.25)), [(3,)]),
    "layer_norm": (lambda f, x, w, b: f.layer_norm(x, [5], w, b), [(4, 5), (5,), (5,)]),
    "group_norm": (lambda f, x, w, b: f.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "rms_norm of a weight": (lambda f, w: f.rms_norm(given(4, 5), [5], w), [(5,)]),
}


@pytest.mark.parametrize("name", FIRST)
def test_second_derivatives_where_first_ones_depend_on_nothing(name: str) -> None:
    """First gradients that do not require grad, such as a norm's db for a constant dy, are no error."""
    function, shapes = FIRST[name]
    found = []
    for f in (ours, theirs):
        tensors = [given(*shape, requires_grad=True) for shape in shapes]
        first = torch.autograd.grad(function(f, *tensors).sum(), tensors, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first if gradient.requires_grad)
        second = torch.autograd.grad(penalty, tensors, allow_unused=True) if torch.is_tensor(penalty) else ()
        found.append([torch.zeros(()) if each is None else each for each in second])
    for actual, expected in zip(*found, strict=False):
        torch.testing.assert_close(*torch.broadcast_tensors(actual, expected), rtol=1e-5, atol=1e-5)


EMPTY = {
    "rms_norm": (lambda x, w: OURS.rms_norm(x, w)[0], [(0, 3), (3,)]),
    "gemma_rms_norm": (lambda x, w: OURS.gemma_rms_norm(x, w)[0], [(0, 3), (3,)]),
    "add_rms_norm": (lambda x, y, w: OURS.add_rms_norm(x, y, w)[0], [(0, 3), (0, 3), (3,)]),
    "add_layer_norm": (lambda x, y, w, b: OURS.add_layer_norm(x, y, w, b)[0], [(0, 3), (0, 3), (3,), (3,)]),
    "deep_norm": (lambda x, y, b, w: OURS.deep_norm(x, y, b, w)[2], [(0, 3), (0, 3), (3,), (3,)]),
    "group_norm_silu": (lambda x, w, b: OURS.group_norm_silu(x, w, b, 2, 1e-5)[0], [(2, 4, 0), (4,), (4,)]),
    "batch_norm": (lambda x, w, b: ours.batch_norm(x, None, None, w, b, True), [(0, 3, 4), (3,), (3,)]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_gradients_of_empty_batches_are_zeros(name: str) -> None:
    """Gradients of empty batches are zeros."""
    function, shapes = EMPTY[name]
    tensors = [torch.ones(shape, requires_grad=True) for shape in shapes]
    used = [torch.full((3,), 7e7) for _ in range(64)]
    del used
    function(*tensors).sum().backward()
    assert all(tensor.grad is not None and not tensor.grad.any() for tensor in tensors)


def test_a_channel_of_one_value_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="more than one value a channel"):
        ours.batch_norm(given(1, 4), None, None, training=True)


REJECTED = {
    "one value a channel": (lambda f: f.instance_norm(given(2, 3, 1)), ValueError),
    "running_mean alone": (lambda f: f.instance_norm(given(2, 3, 4), torch.zeros(3)), ValueError),
    "running_var alone": (lambda f: f.batch_norm(given(2, 3, 4), None, torch.ones(3), training=True), ValueError),
    "neither": (lambda f: f.batch_norm(given(2, 3, 4), None, None), RuntimeError),
    "of no input": (lambda f: f.instance_norm(given(2, 3, 4), use_input_stats=False), RuntimeError),
}


@pytest.mark.parametrize("name", REJECTED)
def test_statistics_that_pytorch_rejects_are_rejected(name: str) -> None:
    call, error = REJECTED[name]
    for f in (theirs, ours):
        with pytest.raises(error):
            call(f)


def test_instance_norm_without_samples_has_running_statistics() -> None:
    """Running statistics are returned for a batch without samples."""
    found = []
    for f in (theirs, ours):
        mean, var = torch.zeros(3), torch.ones(3)
        found.append((f.instance_norm(given(0, 3, 5), mean, var), mean, var))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_a_batch_without_members_leaves_running_statistics_alone() -> None:
    mean, var = torch.full((3,), 2.0), torch.full((3,), 3.0)
    torch.func.vmap(lambda x: ours.batch_norm(x, mean, var, training=True))(given(0, 2, 3, 4))
    assert (mean == 2.0).all()
    assert (var == 3.0).all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["group_norm", "instance_norm"])
def test_float32_parameters_are_accepted_with_bfloat16(name: str, autocast: bool) -> None:
    """Float32 parameters are allowed with bfloat16 inputs."""
    options = (2,) if name == "group_norm" else (None, None)
    found = []
    for f in (theirs, ours):
        tensors = [tensor.requires_grad_() for tensor in (given(3, 4, 5).bfloat16(), given(4), given(4, 1)[:, 0])]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = getattr(f, name)(tensors[0], *options, *tensors[1:])
        found.append((y, *torch.autograd.grad(y.float().square().sum(), tensors)))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("parameters", [None, "x", torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_rms_norm_of_small_numbers_has_pytorchs_eps(dtype: Any, parameters: Any) -> None:
    """The default eps is float32's, because a 16-bit type's would dominate a mean square of 10⁻⁶."""
    x = (given(4, 8) * 1e-3).to(dtype)
    weight = None if parameters is None else torch.ones(8, dtype=dtype if parameters == "x" else parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of the mixture
        expected = theirs.rms_norm(x, [8], weight)
    torch.testing.assert_close(ours.rms_norm(x, [8], weight), expected)


def test_running_statistics_change_for_autograd_too() -> None:
    mean, var = torch.zeros(4), torch.ones(4)
    before = mean._version, var._version
    ours.batch_norm(given(3, 4), mean, var, training=True)
    assert mean._version > before[0]
    assert var._version > before[1]


def test_rms_norm_names_dimensions_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"expected trailing dimensions \[5\], got \[3, 4\]"):
        ours.rms_norm(given(3, 4), [5])


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer", "resnet"])
def test_the_example_trains_with_pytorchs_losses(model: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    losses = example("torch_norms").compare(model, 12)
    assert losses["PyTorch"][-1] < losses["PyTorch"][0] - 0.05
    assert losses["PyTorch"] == pytest.approx(losses["aclnn"], rel=1e-3)


class Steps:
    """Operators by their C names: every call goes through device memory and both phases."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._operators = {operator.function: operator for operator in C_OPERATORS}

    def __call__(self, function: str, *arguments: Any) -> None:
        operator = self._operators[function]
        names = [p.name for p in operator.parameters]
        self._program.call(operator, dict(zip(names, arguments, strict=True)))


def new(like: Any) -> Any:
    return np.empty_like(like)


def resnet_step(run: Steps, x: Any, bn: list[Any], gn: list[Any], running: list[Any], dy: Any) -> tuple[Any, ...]:
    """Compute SiLU(GroupNorm(ReLU(BatchNorm(x)))) and its gradients; update the running statistics."""
    n, c, hxw, mask = x.shape[0], x.shape[1], x[0, 0].size, (True,) * 3
    saved, group = [new(bn[0]) for _ in range(2)], [np.empty((n, 2), np.float32) for _ in range(2)]
    normal, active, grouped, y = (new(x) for _ in range(4))
    run("aclnnBatchNorm", x, *bn, *running, True, 0.1, 1e-5, normal, *saved)
    run("aclnnRelu", normal, active)
    run("aclnnGroupNorm", active, *gn, n, c, hxw, 2, 1e-5, grouped, *group)
    run("aclnnSilu", grouped, y)
    gradients = [new(x) for _ in range(4)]
    parameters = [[new(bn[0]) for _ in range(2)] for _ in range(2)]
    run("aclnnSiluBackward", dy, grouped, gradients[0])
    run("aclnnGroupNormBackward", gradients[0], active, *group, gn[0], n, c, hxw, 2, mask, gradients[1], *parameters[1])
    number = np.zeros(1, np.float32)
    zero = cann.aclCreateScalar(number.ctypes.data, cann.ACL_FLOAT)
    run("aclnnThresholdBackward", gradients[1], normal, zero, gradients[2])
    assert cann.aclDestroyScalar(zero) == 0
    run(
        "aclnnBatchNormBackward",
        gradients[2],
        x,
        bn[0],
        *running,
        *saved,
        True,
        1e-5,
        mask,
        gradients[3],
        *parameters[0],
    )
    return y, gradients[3], *parameters[0], *parameters[1]


def test_two_steps_of_a_transformer_through_the_c_functions_are_pytorchs() -> None:
    steps, model = example("transformer_steps"), example("torch_norms").Transformer()
    images, labels = given(8, 1, 8, 8).abs(), torch.arange(8)
    weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), steps.RATE)
    with steps.Device() as device:
        for _ in range(2):
            loss = theirs.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert steps.step(device, weights, images.numpy(), labels.numpy()) == pytest.approx(loss.item(), rel=1e-5)
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(weights[name], tensor.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_resnets_step_through_the_c_functions_is_pytorchs() -> None:
    x, dy = given(3, 4, 5, 2), given(3, 4, 5, 2).flip(0)
    parameters = [given(4) * factor for factor in (1.0, 0.5, -1.0, 2.0)]
    running = [np.zeros(4, np.float32), np.ones(4, np.float32)]
    arrays = [tensor.numpy().copy() for tensor in parameters]
    with Program() as program:
        found = resnet_step(Steps(program), x.numpy(), arrays[:2], arrays[2:], running, dy.contiguous().numpy())
    leaves = [tensor.clone().requires_grad_() for tensor in (x, *parameters)]
    mean, var = torch.zeros(4), torch.ones(4)
    normal = theirs.batch_norm(leaves[0], mean, var, *leaves[1:3], training=True)
    y = theirs.silu(theirs.group_norm(torch.relu(normal), 2, *leaves[3:]))
    y.backward(dy)
    for got, expected in zip((*found, *running), (y, *(leaf.grad for leaf in leaves), mean, var), strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
