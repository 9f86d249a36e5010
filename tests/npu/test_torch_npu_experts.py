"""Mixtures of experts on torch_npu compared with PyTorch; run by test_torch_npu.py: ``aclnn torch-npu run``."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

TOKENS, HIDDEN, EXPERTS, CHOSEN = 6, 16, 4, 2


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def chosen(*shape: int, most: int = EXPERTS) -> Any:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(3))


def permute(tokens: Any, indices: Any, kept: int | None = None) -> tuple[Any, Any]:
    """Permute tokens as MindSpeed does, by PyTorch's functions."""
    order = indices.flatten().argsort(stable=True)
    return tokens[order[:kept] // (indices.numel() // len(indices))], order.argsort(stable=True)


def unpermute(rows: Any, places: Any, probs: Any) -> Any:
    whole = torch.cat([rows, rows.new_zeros(len(places) - len(rows), rows.shape[1])])
    return (whole[places].unflatten(0, (len(probs), -1)) * probs[..., None]).sum(1)


@pytest.mark.parametrize("kept", [None, 9, -1])
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_moe_token_permute_and_unpermute_with_gradients(index: Any, kept: int | None) -> None:
    indices, results = chosen(TOKENS, CHOSEN), []
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float64)):
        tokens = sample(TOKENS, HIDDEN).to(device, dtype).requires_grad_()
        probs = sample(TOKENS, CHOSEN, seed=1).softmax(-1).to(device, dtype).requires_grad_()
        if device == "npu":
            rows, places = torch_npu.npu_moe_token_permute(tokens, indices.to(device, index), kept)
            y = torch_npu.npu_moe_token_unpermute(rows.sin(), places, probs)
        else:
            rows, places = permute(tokens, indices, kept)
            y = unpermute(rows.sin(), places, probs)
        (y * y).sum().backward()
        results.append([each.detach().cpu().double() for each in (rows, places, y, tokens.grad, probs.grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_moe_token_permute_of_one_expert_with_gradients() -> None:
    indices = chosen(TOKENS)
    tokens = sample(TOKENS, HIDDEN).to("npu").requires_grad_()
    rows, places = torch_npu.npu_moe_token_permute(tokens, indices.to("npu"))
    y = torch_npu.npu_moe_token_unpermute(rows, places)
    (y * y).sum().backward()
    assert torch.equal(y.cpu(), tokens.detach().cpu())
    assert torch.equal(tokens.grad.cpu(), 2 * tokens.detach().cpu())


class Grouped(torch.autograd.Function):  # type: ignore[misc]
    """Grouped matrix products, with gradients as MindSpeed computes them."""

    @staticmethod
    def forward(context: Any, x: Any, weight: Any, ends: Any) -> Any:
        context.save_for_backward(x, weight, ends)
        return torch_npu.npu_grouped_matmul([x], [weight], group_list=ends, split_item=3, group_type=0)[0]

    @staticmethod
    def backward(context: Any, grad: Any) -> tuple[Any, Any, None]:
        x, weight, ends = context.saved_tensors
        of_x = torch_npu.npu_grouped_matmul([grad], [weight.mT], group_list=ends, split_item=3, group_type=0)[0]
        of_weight = torch_npu.npu_grouped_matmul([x.T], [grad], group_list=ends, split_item=3, group_type=2)[0]
        return of_x, of_weight, None


def grouped(x: Any, weight: Any, ends: Any) -> Any:
    if x.device.type == "npu":
        return Grouped.apply(x, weight, ends)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
    return torch.cat([part @ factor for part, factor in zip(x.split(sizes), weight, strict=True)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_grouped_matmul_with_gradients(dtype: Any) -> None:
    ends, results = torch.tensor([2, 2, 7, 10]), []
    for device in ("npu", "cpu"):
        kind = dtype if device == "npu" else torch.float64
        x, weight = (
            sample(*of, seed=of[0]).to(dtype).to(device, kind).requires_grad_()
            for of in ((10, HIDDEN), (EXPERTS, HIDDEN, 8))
        )
        y = grouped(x, weight, ends.to(device))
        y.backward(sample(10, 8).to(dtype).to(device, kind))
        results.append([each.detach().cpu().double() for each in (y, x.grad, weight.grad)])
    tolerance = 4 * torch.finfo(dtype).eps
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=4 * tolerance)


def test_grouped_matmul_takes_group_lists_of_numbers() -> None:
    x, weight = sample(6, HIDDEN).half(), [sample(HIDDEN, 8, seed=seed).half() for seed in (1, 2)]
    expected = [x[:4].double() @ weight[0].double(), x[4:].double() @ weight[1].double()]
    on_device, factors = x.to("npu"), [each.to("npu") for each in weight]
    product = torch_npu.npu_grouped_matmul
    for found in (
        product([on_device], factors, group_list=[4, 6], split_item=1),
        product([on_device[:4], on_device[4:]], factors, split_item=0, group_type=-1),
        product([on_device], factors, group_list=[4, 6], split_item=3)[0].split([4, 2]),
        product([on_device[:4], on_device[4:]], factors, group_list=[4, 6], split_item=2)[0].split([4, 2]),
    ):
        for got, one in zip(found, expected, strict=True):
            torch.testing.assert_close(got.cpu().double(), one, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("of_integers", [False, True])
def test_grouped_matmul_takes_weights_in_fractal_nz(of_integers: bool) -> None:
    """vLLM's expert layers call these products after npu_format_cast."""
    x, weight, ends = sample(10, 32).half(), sample(EXPERTS, 32, 64, seed=1).half(), torch.tensor([2, 2, 7, 10])
    scales: dict[str, Any] = {}
    if of_integers:
        x, weight = (each.mul(16).clamp(-127, 127).to(torch.int8) for each in (x, weight))
        scales = {"scale": [torch.full((EXPERTS, 64), 2.0**-8)], "per_token_scale": [torch.ones(10)]}
    laid_out = torch_npu.npu_format_cast(weight.npu(), 29)
    on_device = {name: [each.npu() for each in given] for name, given in scales.items()}
    how = {"split_item": 3, "group_type": 0, "group_list": ends.npu(), "output_dtype": torch.float16}
    found = torch_npu.npu_grouped_matmul([x.npu()], [laid_out], **on_device, **how)[0]
    expected = grouped(x.double(), weight.double(), ends) * (2.0**-8 if of_integers else 1)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-3, atol=4e-3)


@pytest.mark.skipif("950" in os.environ.get("ACLNN_SOC_NAME", ""), reason="the function has no kernel on Ascend 950")
@pytest.mark.parametrize("four_bits", [False, True])
def test_grouped_matmul_swiglu_quant_of_integers(four_bits: bool) -> None:
    """Weights of four bits lie in INT32, and bring what programs compute of them."""
    random, ends = torch.Generator().manual_seed(0), torch.tensor([2, 6])
    x = torch.randint(-128, 128, (6, 32), generator=random, dtype=torch.int8)
    weight = torch.randint(-8, 8, (2, 32, 128), generator=random, dtype=torch.int8)
    factors, rows, bias = torch.full((2, 128), 2.0**-5), torch.full((6,), 0.01), None
    stored, scale = weight, factors
    if four_bits:
        pairs = weight[..., ::2] & 15 | weight[..., 1::2] << 4
        stored, scale = pairs.view(torch.int32), factors.view(torch.int32).long()
        bias = (8 * factors * weight.sum(1)).npu()
    operands = (torch_npu.npu_format_cast(stored.npu(), 29), ends.npu(), scale.npu(), rows.npu())
    found, scales, _ = torch_npu.npu_grouped_matmul_swiglu_quant(x.npu(), *operands, bias=bias)
    in_lists = {"weight_assist_matrix": None if bias is None else [bias], "group_list_type": 1}
    sizes = torch.diff(ends, prepend=ends.new_zeros(1)).npu()
    torch.npu.config.allow_internal_format = True
    try:  # The second version takes INT8 in blocks alone.
        in_blocks = torch_npu.npu_format_cast(stored.npu(), 29)
    finally:
        torch.npu.config.allow_internal_format = False
    again = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
        *(x.npu(), [in_blocks], [operands[2]], operands[3], sizes), **in_lists
    )
    assert torch.equal(again[0].cpu(), found.cpu())
    assert torch.equal(again[1].cpu(), scales.cpu())
    left, right = (grouped(x.double(), weight.double(), ends) * 2.0**-5 * rows[:, None]).chunk(2, -1)
    expected = torch.nn.functional.silu(left) * right
    torch.testing.assert_close(scales.cpu().double(), expected.abs().amax(-1) / 127, rtol=1e-5, atol=0)
    assert (found.cpu().double() - expected / scales.cpu().double()[:, None]).abs().max() < 0.51


def test_a_mixture_of_experts_layer_trains_as_on_the_cpu() -> None:
    """Compare a layer of gates, permutation, grouped products and SwiGLU with explicit code on the CPU."""
    losses = []
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float32), ("cpu", torch.float64)):
        x, target = (sample(32, HIDDEN, seed=seed).to(device, dtype) for seed in (0, 1))
        shapes = ((HIDDEN, EXPERTS), (EXPERTS, HIDDEN, 2 * HIDDEN), (EXPERTS, HIDDEN, HIDDEN))
        parameters = [
            (sample(*of, seed=2 + at) / HIDDEN**0.5).to(device, dtype).requires_grad_() for at, of in enumerate(shapes)
        ]
        optimizer = torch.optim.AdamW(parameters, 1e-2)
        losses.append([])
        for _ in range(20):
            loss = (_experts(x, *parameters) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    npu, cpu, exact = losses
    assert exact[-1] < 0.8 * exact[0]
    assert npu == pytest.approx(exact, rel=1e-5)
    assert cpu == pytest.approx(exact, rel=1e-5)


def _experts(x: Any, gate: Any, first: Any, second: Any) -> Any:
    probs, indices = (x @ gate).softmax(-1).topk(CHOSEN)
    ends = (indices.flatten()[:, None] == torch.arange(EXPERTS, device=x.device)).sum(0).cumsum(0)
    if x.device.type == "npu":
        rows, places = torch_npu.npu_moe_token_permute(x, indices)
        hidden = torch_npu.npu_swiglu(grouped(rows, first, ends))
        return torch_npu.npu_moe_token_unpermute(grouped(hidden, second, ends), places, probs)
    rows, places = permute(x, indices)
    left, right = grouped(rows, first, ends).chunk(2, -1)
    return unpermute(grouped(torch.nn.functional.silu(left) * right, second, ends), places, probs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_moe_gating_top_k_chooses_experts_as_deepseek_does(dtype: Any) -> None:
    x, bias = sample(TOKENS, 16).to(dtype), sample(16, seed=1).to(dtype)
    y, experts, scores = torch_npu.npu_moe_gating_top_k(
        x.to("npu"), 4, bias=bias.to("npu"), k_group=2, group_count=4, group_select_mode=1, norm_type=1, out_flag=True
    )
    expected = x.double().sigmoid()
    groups = (expected + bias.double()).unflatten(-1, (4, 4))
    kept = torch.zeros(TOKENS, 4).scatter(-1, groups.topk(2).values.sum(-1).topk(2).indices, 1.0).bool()
    chosen_first = groups.masked_fill(~kept[..., None], -torch.inf).flatten(-2).topk(4).indices
    shares = expected.gather(-1, chosen_first)
    tolerance = torch.finfo(dtype).eps
    assert torch.equal(experts.cpu().long(), chosen_first)
    torch.testing.assert_close(scores.cpu().double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(y.cpu().double(), shares / shares.sum(-1, keepdim=True), rtol=tolerance, atol=0)


@pytest.mark.parametrize("renorm", [0, 1])
def test_moe_gating_top_k_softmax_v2_takes_softmax_before_or_after(renorm: int) -> None:
    x = sample(TOKENS, 8)
    y, experts, shares = torch_npu.npu_moe_gating_top_k_softmax_v2(x.to("npu"), k=3, renorm=renorm, output_softmax=True)
    values, expected = x.topk(3)
    assert torch.equal(experts.cpu().long(), expected)
    exact = x.softmax(-1)
    torch.testing.assert_close(y.cpu(), values.softmax(-1) if renorm else exact.gather(-1, expected))
    if not renorm:
        torch.testing.assert_close(shares.cpu(), exact)


@pytest.mark.parametrize("experts", [[0, EXPERTS], [1, 3]], ids=str)
def test_moe_init_routing_v2_and_finalize_routing_of_a_range_of_experts(experts: list[int]) -> None:
    """vLLM-Ascend computes a layer so whose experts are distributed over devices."""
    x, indices = sample(TOKENS, HIDDEN), chosen(TOKENS, CHOSEN).int()
    probs = sample(TOKENS, CHOSEN, seed=1).softmax(-1)
    here = (indices >= experts[0]) & (indices < experts[1])
    rows, places, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x.to("npu"),
        indices.to("npu"),
        active_num=TOKENS * CHOSEN,
        expert_num=EXPERTS,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=experts,
        quant_mode=-1,
        row_idx_type=0,
    )
    expected = torch.bincount(indices.flatten(), minlength=EXPERTS)[slice(*experts)]
    assert counts.cpu().tolist() == expected.tolist()
    first = int(expected[0])
    assert torch.equal(rows[:first].cpu(), x[(indices == experts[0]).nonzero()[:, 0]])
    added = torch_npu.npu_moe_finalize_routing(rows, None, None, None, probs.to("npu"), places, None, drop_pad_mode=2)
    torch.testing.assert_close(added.cpu(), x * (probs * here).sum(-1, keepdim=True))


def test_moe_init_routing_and_finalize_routing_of_the_first_version() -> None:
    x, indices = sample(TOKENS, HIDDEN), chosen(TOKENS, CHOSEN).int()
    probs, bias, skip = sample(TOKENS, CHOSEN, seed=1), sample(EXPERTS, HIDDEN, seed=2), sample(TOKENS, HIDDEN, seed=3)
    numbers = torch.arange(TOKENS * CHOSEN, dtype=torch.int32).view(CHOSEN, TOKENS).T.contiguous()
    rows, places, experts = torch_npu.npu_moe_init_routing(x.to("npu"), numbers.to("npu"), indices.to("npu"), TOKENS)
    assert torch.equal(experts.cpu(), indices.flatten().sort().values)
    ends = torch_npu.npu_moe_compute_expert_tokens(experts, EXPERTS)
    assert ends.cpu().tolist() == torch.bincount(indices.flatten(), minlength=EXPERTS).cumsum(0).tolist()
    on_device = (each.to("npu") for each in (bias, probs))
    found = torch_npu.npu_moe_finalize_routing(rows, skip.to("npu"), None, *on_device, places, indices.to("npu"))
    expected = skip + (probs[..., None] * (x[:, None] + bias[indices.long()])).sum(1)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
