"""Trainings on torch_npu compared with PyTorch; run by test_torch_npu.py: ``aclnn torch-npu run``."""

from __future__ import annotations

import importlib.util
import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

F, nn, optim = torch.nn.functional, torch.nn, torch.optim
#: torch_npu asks for some operators by name on older products, and by C functions here.
ON_950 = pytest.mark.skipif("950" not in os.environ.get("ACLNN_SOC_NAME", ""), reason="needs Ascend 950")


def example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "torch_npu" / "training.py"
    spec = importlib.util.spec_from_file_location("torch_npu_training", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["MLP", "ResNet", "transformer"])
def test_the_example_trains_as_on_the_cpu(name: str) -> None:
    module = example()
    # PyTorch's convolutions add up in another order with each number of threads: 50 steps make 5e-5 of that.
    torch.set_num_threads(1)
    (losses, gradients), (expected, exact) = (module.train(name, device) for device in ("npu", "cpu"))
    with torch.backends.mkldnn.flags(enabled=False):
        others, _ = module.train(name, "cpu")
    assert len(losses) == module.STEPS == 50
    assert expected[-1] < 0.7 * expected[0]
    # How far PyTorch is from itself by then, which depends on the processor: 3e-4 of the ResNet's on Emerald Rapids.
    spread = itertools.accumulate((abs(one - other) for one, other in zip(expected, others, strict=True)), max)
    for loss, one, room in zip(losses, expected, spread, strict=True):
        assert abs(loss - one) <= max(1e-5 * one, room)
    assert gradients.keys() == exact.keys()
    for of, gradient in exact.items():
        difference = (gradients[of] - gradient).abs().max()
        assert difference <= 1e-5 * gradient.abs().max(), of


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD with momentum and decay": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2),
    "SGD with Nesterov's momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "SGD, fused": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, fused=True),
    "SGD, one by one": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, foreach=False),
    "Adam": lambda p: optim.Adam(p, 1e-2, weight_decay=1e-2),
    "Adam, one by one": lambda p: optim.Adam(p, 1e-2, foreach=False),
    "AdamW": lambda p: optim.AdamW(p, 1e-2),
    "AdamW, one by one": lambda p: optim.AdamW(p, 1e-2, foreach=False),
    "AdamW, fused": lambda p: optim.AdamW(p, 1e-2, fused=True),
}


def classifier() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))


def data() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator), torch.randint(0, 4, (32,), generator=generator)


def losses_of(
    device: str, optimizer: Callable[[Any], Any], loss_of: Callable[..., Any], steps: int = 10
) -> list[float]:
    model = classifier().to(device)
    chosen = optimizer(model.parameters())
    x, labels = (each.to(device) for each in data())
    found = []
    for _ in range(steps):
        chosen.zero_grad()
        loss = loss_of(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        chosen.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_take_the_same_steps_as_on_the_cpu(name: str) -> None:
    npu, cpu = (losses_of(device, OPTIMIZERS[name], F.cross_entropy) for device in ("npu", "cpu"))
    assert cpu[-1] < cpu[0]
    assert npu == pytest.approx(cpu, rel=1e-5)


@pytest.mark.skipif("950" in os.environ.get("ACLNN_SOC_NAME", ""), reason="never compiles operators")
def test_compiled_operators_train_as_on_the_cpu() -> None:
    """In this mode torch_npu calls operators by their types, and reads shapes of results from descriptions."""
    wanted = losses_of("cpu", OPTIMIZERS["AdamW"], F.cross_entropy)
    torch.npu.set_compile_mode(jit_compile=True)
    try:
        assert losses_of("npu", OPTIMIZERS["AdamW"], F.cross_entropy) == pytest.approx(wanted, rel=1e-5)
        x, image = data()[0], torch.randn(2, 3, 8, 8, requires_grad=True)
        on_npu = image.detach().npu().requires_grad_()
        for each in (image, on_npu):
            y = F.max_pool2d(each, 3, 2, 1)
            y[y > 0.5].sum().backward()
        assert torch.equal(on_npu.grad.cpu(), image.grad)
        assert x.npu().nonzero().cpu().tolist() == x.nonzero().tolist()
    finally:
        torch.npu.set_compile_mode(jit_compile=False)


LOSSES: dict[str, Callable[..., Any]] = {
    "weighted": lambda y, labels: F.cross_entropy(y, labels, weight=torch.arange(1.0, 5.0, device=y.device)),
    "sum": lambda y, labels: F.cross_entropy(y, labels, reduction="sum"),
    "without a class": lambda y, labels: F.cross_entropy(y, labels, ignore_index=2),
    "of each sample": lambda y, labels: F.cross_entropy(y, labels, reduction="none").mean(),
    "squares": lambda y, labels: F.mse_loss(y.softmax(-1), torch.eye(4).repeat(8, 1).to(y.device)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_match_the_cpu(name: str) -> None:
    npu, cpu = (losses_of(device, OPTIMIZERS["SGD"], LOSSES[name], steps=5) for device in ("npu", "cpu"))
    assert npu == pytest.approx(cpu, rel=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_npu_cross_entropy_and_its_gradient_match_pytorch(reduction: str) -> None:
    target, results = torch.tensor([3, 0, 7, 2, 7]), []
    options = {"reduction": reduction, "ignore_index": 2, "label_smoothing": 0.1}
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float64)):
        generator = torch.Generator().manual_seed(0)
        x, weight = (torch.randn(*of, generator=generator).to(device) for of in ((5, 8), (8,)))
        x, weight = x.to(dtype).requires_grad_(), weight.abs()
        if device == "npu":
            loss = torch_npu.npu_cross_entropy_loss(x, target.to(device), weight, **options)[0]
        else:
            loss = F.cross_entropy(x, target, weight.to(dtype), **options)
        loss.square().sum().backward()
        results.append([each.detach().cpu().double().flatten() for each in (loss, x.grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_npu_scaled_masked_softmax_and_its_gradient_match_pytorch() -> None:
    results = []
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float64)):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, 3, 32, 64, generator=generator).to(device, dtype).requires_grad_()
        mask = (torch.rand(2, 1, 32, 64, generator=generator) < 0.5).to(device)
        if device == "npu":
            y = torch_npu.npu_scaled_masked_softmax(x, mask, 0.5, False)
        else:
            y = (x * 0.5).masked_fill(mask, -10000).softmax(-1)
        y.square().sum().backward()
        results.append([each.detach().cpu().double() for each in (y, x.grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_npu_apply_adam_w_takes_pytorchs_step(amsgrad: bool) -> None:
    """The step equals the third one of PyTorch's optimizer."""
    generator = torch.Generator().manual_seed(0)
    var, m, v, gradient, largest = torch.rand(5, 4, generator=generator).unbind()
    state = [each.to("npu") for each in (var, m, v)]
    more = largest.to("npu") if amsgrad else None
    torch_npu.npu_apply_adam_w(
        0.9**2, 0.99**2, 0.1, 0.01, 0.9, 0.99, 1e-8, gradient.to("npu"), more, amsgrad, False, out=tuple(state)
    )
    optim._functional.adamw(
        *([each] for each in (var, gradient, m, v, largest, torch.tensor(2.0))),
        foreach=False, amsgrad=amsgrad, beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.01, eps=1e-8, maximize=False,
    )  # fmt: skip
    for got, expected in zip(state, (var, m, v), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_autocast_trains_in_bfloat16() -> None:
    x, labels = (each.to("npu") for each in data())
    model = classifier().to("npu")
    optimizer = optim.SGD(model.parameters(), 0.1)
    found = []
    for _ in range(20):
        with torch.autocast("npu", torch.bfloat16):
            y = model(x)
            loss = F.cross_entropy(y, labels)
        assert y.dtype == torch.bfloat16
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    expected = losses_of("cpu", OPTIMIZERS["SGD"], F.cross_entropy, steps=1)[0]
    assert found[0] == pytest.approx(expected, rel=2e-2)
    assert found[-1] < 0.9 * found[0]


def test_accuracy_matches_the_cpu() -> None:
    x, labels = data()
    model = classifier()
    expected = (model(x).argmax(1) == labels).float().mean().item()
    assert (model.to("npu")(x.to("npu")).argmax(1) == labels.to("npu")).float().mean().item() == expected


def test_training_resumes_from_a_checkpoint() -> None:
    x, labels = (each.to("npu") for each in data())

    def train(model: Any, optimizer: Any, steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    model = classifier().to("npu")
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    expected = train(model, optimizer, 3)
    file.seek(0)
    again = classifier().to("npu")
    resumed = optim.AdamW(again.parameters(), 1e-2)
    saved = torch.load(file)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    assert train(again, resumed, 3) == expected


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    x = torch.ones(200, 500, device="npu", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    values = y.detach().cpu()
    assert values.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (values == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(x.grad.cpu(), values)


def test_npu_swiglu_and_npu_rms_norm_match_their_definitions() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(6, 16, generator=generator), torch.rand(16, generator=generator)
    found = []
    for device in ("npu", "cpu"):
        a, w = x.to(device).requires_grad_(), weight.to(device).requires_grad_()
        if device == "npu":
            y = torch_npu.npu_swiglu(torch_npu.npu_rms_norm(a, w, 1e-6)[0])
        else:
            first, second = F.rms_norm(a, (16,), w, 1e-6).chunk(2, -1)
            y = F.silu(first) * second
        (y * y).sum().backward()
        found.append([y.detach().cpu(), a.grad.cpu(), w.grad.cpu()])
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_npu_format_cast_to_fractal_nz_and_back() -> None:
    weight = torch.randn(2, 20, 5, generator=torch.Generator().manual_seed(0)).half()
    torch.npu.config.allow_internal_format = True
    laid_out = torch_npu.npu_format_cast(weight.to("npu"), 29)
    assert torch_npu.get_npu_format(laid_out) == 29
    assert torch.equal(laid_out.cpu(), weight)
    assert torch.equal(torch_npu.npu_format_cast(laid_out, 2).cpu(), weight)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 8e-3)], ids=str)
def test_linear_layers_take_weights_in_fractal_nz(dtype: Any, tolerance: float) -> None:
    """Products with weights in fractal format have functions of their own, also with a bias."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((4, 32), (48, 32), (48,)))
    torch.npu.config.allow_internal_format = True
    laid_out = torch_npu.npu_format_cast(weight.to("npu"), 29)
    for added in (None, bias):
        exact = F.linear(x.double(), weight.double(), added if added is None else added.double())
        got = F.linear(x.to("npu"), laid_out, added if added is None else added.to("npu"))
        torch.testing.assert_close(got.cpu().double(), exact, rtol=tolerance, atol=4 * tolerance)


def test_scatter_list_updates_parts_of_listed_tensors() -> None:
    listed = [torch.zeros(3, 2).to("npu") for _ in range(2)]
    found = torch_npu.npu_scatter_list(listed, torch.tensor([0, 1]).to("npu"), torch.ones(2, 2, 2).to("npu"), None)
    assert [each[:, 0].tolist() for each in found] == [[1, 1, 0], [0, 1, 1]]


def test_matmul_takes_matrices_in_every_layout() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 4, 5, generator=generator), torch.randn(3, 6, 5, generator=generator)
    for function in (
        lambda a, b: a @ b.transpose(1, 2),
        lambda a, b: a[0] @ b[0].T,
        lambda a, b: torch.bmm(a, b.mT),
        lambda a, b: a @ b[1].T,
        lambda a, b: a[:, ::2] @ b[:, 1:].mT,
        lambda a, b: a[0] @ b[0, 0],
        lambda a, b: torch.addmm(b[0, :4], a[0, :, :4], b[0, :4], beta=0.5, alpha=2),
    ):
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
            left, right = a.to(dtype), b.to(dtype)
            exact = function(left.double(), right.double())
            got = function(left.to("npu"), right.to("npu"))
            assert got.dtype == dtype
            torch.testing.assert_close(got.cpu().double(), exact, rtol=tolerance, atol=4 * tolerance)


def test_fused_cross_entropy_of_a_vocabulary_in_two_parts() -> None:
    """all_reduce exchanges the parts' statistics in real programs."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(of, 16, generator=generator).half() for of in (5, 256))
    target, grad = torch.tensor([0, 255, 128, 127, 9]), torch.rand(5, generator=generator)
    exact = [each.double().requires_grad_() for each in (x, weight)]
    losses = F.cross_entropy(exact[0] @ exact[1].T, target, reduction="none")
    expected = torch.autograd.grad(losses, exact, grad.double())
    parts = [
        torch_npu.npu_fused_linear_online_max_sum(x.npu(), part.npu(), target.npu(), start, start + 128, True)
        for start, part in zip((0, 128), weight.split(128), strict=True)
    ]
    most = torch.maximum(*(part[0] for part in parts))
    total = sum(part[1] * (part[0] - most).exp() for part in parts)
    found = []
    for start, (own, _, predicted, mask, places, scores) in zip((0, 128), parts, strict=True):
        here = ((target >= start) & (target < start + 128)).npu()
        predicted = torch.where(here, predicted + own - most, 0.0)
        loss, shares = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
            most, total, predicted, vocab_parallel_logits=scores
        )
        torch.testing.assert_close(loss.cpu()[here.cpu()].double(), losses.detach()[here.cpu()], rtol=1e-4, atol=1e-4)
        found.append((mask, places, shares, weight.split(128)[start // 128].npu()))
    if "950" in os.environ.get("ACLNN_SOC_NAME", ""):
        return
    gradients = [
        torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
            grad.npu(), x.npu(), part, mask, places, softmax=shares
        )
        for mask, places, shares, part in found
    ]
    torch.testing.assert_close(sum(each[0].cpu().double() for each in gradients), expected[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(
        torch.cat([each[1].cpu().double() for each in gradients]), expected[1], rtol=1e-2, atol=1e-2
    )


def test_scatter_reduce_and_its_gradient_match_the_cpu() -> None:
    """torch_npu runs other reductions on the CPU."""
    index, results = torch.tensor([[0, 2, 0], [1, 1, 1]]), []
    for device in ("npu", "cpu"):
        x = torch.arange(6.0).reshape(2, 3).to(device).requires_grad_()
        found = [
            torch.ones(3, 3, device=device).scatter_reduce(0, index.to(device), x, how)
            for how in ("sum", "amax", "mean")
        ]
        torch.stack(found).square().sum().backward()
        results.append([each.detach().cpu() for each in (*found, x.grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@ON_950
@pytest.mark.parametrize("nesterov", [False, True])
def test_npu_apply_adam_takes_the_step_of_its_definition(nesterov: bool) -> None:
    var, m, grad = (torch.randn(5) for _ in range(3))
    v, state = torch.rand(5), []
    for each in (var, m, v):
        state.append(each.npu())
    torch_npu.npu_apply_adam(0.9**2, 0.5**2, 0.1, 0.9, 0.5, 1e-3, grad.npu(), False, nesterov, out=tuple(state))
    m, v = 0.9 * m + 0.1 * grad, 0.5 * v + 0.5 * grad**2
    ahead = 0.9 * m + 0.1 * grad if nesterov else m
    var = var - 0.1 * 0.75**0.5 / (1 - 0.9**2) * ahead / (v.sqrt() + 1e-3)
    for got, expected in zip(state, (var, m, v), strict=True):
        torch.testing.assert_close(got.cpu(), expected)


@ON_950
def test_npu_indexing_and_confusion_transpose_match_pytorch() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    found = torch_npu.npu_indexing(x.npu(), [0, 3, 1], [2, 0, 4], [1, -2, 2], begin_mask=1, shrink_axis_mask=4)
    wanted = [[[x[row, column, 1]] for column in (3, 1)] for row in (0, 1)]
    torch.testing.assert_close(found.cpu().reshape(2, 2, 1), torch.tensor(wanted))
    results = []
    for device in ("npu", "cpu"):
        given = x.to(device).requires_grad_()
        if device == "npu":
            y = torch_npu.npu_confusion_transpose(given, [1, 0, 2], [4, 15], True)
        else:
            y = given.transpose(0, 1).reshape(4, 15)
        (y * torch.arange(60.0, device=device).reshape(4, 15)).sum().backward()
        results.append((y.detach().cpu(), given.grad.cpu()))
    for got, expected in zip(*results, strict=True):
        assert (got == expected).all()


@pytest.mark.skipif("950" in os.environ.get("ACLNN_SOC_NAME", ""), reason="has no kernel")
@pytest.mark.parametrize("dense", [(), (5,)])
def test_sparse_tensors_are_coalesced(dense: tuple[int, ...]) -> None:
    indices, values = torch.tensor([[0, 0, 1, 0], [1, 1, 2, 0]]), torch.randn(4, *dense)
    x = torch.sparse_coo_tensor(indices, values, (2, 3, *dense), check_invariants=False)
    got, expected = x.npu().coalesce().cpu(), x.coalesce()
    assert (got.indices() == expected.indices()).all()
    torch.testing.assert_close(got.values(), expected.values())


@ON_950
@pytest.mark.parametrize("mask", [torch.uint8, torch.float32])
def test_masked_scale_scales_kept_elements(mask: Any) -> None:
    x = torch.randn(3, 5)
    got = torch._masked_scale(x.npu(), (x > 0).to(mask).npu(), 2.5)
    torch.testing.assert_close(got.cpu(), x.relu() * 2.5)


@ON_950
@pytest.mark.parametrize("groups", [1, 2])
def test_deformable_conv2d_without_offsets_is_conv2d(groups: int) -> None:
    """With a factor of 0.5 for each; the gradient of the factors is that of the planes' products."""
    x, weight = torch.randn(2, 4, 6, 5), torch.randn(6, 4 // groups, 3, 3)
    offset, results = torch.zeros(2, 27, 6, 5), []
    offset[:, 18:] = 0.5
    for device in ("npu", "cpu"):
        given = [each.to(device).requires_grad_() for each in (x, weight)]
        if device == "npu":
            options = {"kernel_size": [3, 3], "stride": [1, 1, 1, 1], "padding": [1, 1, 1, 1], "groups": groups}
            y, _ = torch_npu.npu_deformable_conv2d(given[0], given[1], offset.npu(), None, **options)
        else:
            y = F.conv2d(given[0], given[1] / 2, padding=1, groups=groups)
        y.square().sum().backward()
        results.append([each.detach().cpu() for each in (y, *(each.grad for each in given))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@ON_950
def test_mhc_pre_has_gradients() -> None:
    shapes, results = {"x": (3, 4, 64), "phi": (24, 256), "alpha": (3,), "bias": (24,), "gamma": (4, 64)}, []
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(*of, generator=generator) / 4 for of in shapes.values()]
    given[0] = given[0].half()
    for device in ("npu", "cpu"):
        tensors = [(each.npu() if device == "npu" else each.double()).requires_grad_() for each in given]
        x, phi, alpha, bias, gamma = tensors
        if device == "npu":
            found = torch_npu.npu_mhc_pre(x, phi, alpha, bias, gamma=gamma, hc_eps=0.25, out_flag=1)[:3]
        else:
            rms = (x.square().mean((-1, -2)) + 1e-6).rsqrt()
            factors = torch.cat([each.expand(n) for each, n in zip(alpha, (4, 4, 16), strict=True)])
            numbers = (x * gamma).flatten(-2) @ phi.T * rms[:, None] * factors + bias
            pre, post, res = numbers.split((4, 4, 16), -1)
            enters = ((pre.sigmoid() + 0.25)[..., None] * x).sum(-2)
            found = enters, 2 * post.sigmoid(), res.unflatten(-1, (4, 4))
        sum(each.float().square().sum() for each in found).backward()
        results.append([each.grad.cpu().double() for each in tensors])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)


@ON_950
def test_conv_tbc_and_its_gradients_match_the_cpu() -> None:
    shapes, results = ((6, 2, 3), (4, 3, 5), (5,)), []
    for device in ("npu", "cpu"):
        generator = torch.Generator().manual_seed(0)
        given = [torch.randn(*of, generator=generator).to(device).requires_grad_() for of in shapes]
        y = torch.conv_tbc(*given, 1)
        y.square().sum().backward()
        results.append([each.detach().cpu() for each in (y, *(each.grad for each in given))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
