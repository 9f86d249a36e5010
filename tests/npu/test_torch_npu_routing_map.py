"""Tokens to experts by a map, on torch_npu compared with PyTorch's CPU; test_torch_npu.py runs it."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

TOKENS, HIDDEN, EXPERTS, CHOSEN, CAPACITY = 6, 8, 4, 2, 3


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def routing() -> Any:
    """Draw two experts for each token."""
    chosen = sample(TOKENS, EXPERTS, seed=5).topk(CHOSEN, -1).indices
    return torch.zeros(TOKENS, EXPERTS, dtype=torch.bool).scatter(1, chosen, True)


def permute(tokens: Any, chosen: Any, probs: Any, padded: bool) -> tuple[Any, Any, Any]:
    """Permute as Megatron does; return the rows, their weights, and the token of each."""
    if padded:
        order = chosen.T.int().argsort(dim=-1, descending=True, stable=True)[:, :CAPACITY]
        return tokens[order.flatten()], probs.T.gather(1, order).flatten(), order.flatten()
    order = torch.arange(TOKENS).expand(EXPERTS, -1).masked_select(chosen.T)
    return tokens[order], probs.T.masked_select(chosen.T), order


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_token_permute_with_routing_map_and_back_with_gradients(padded: bool, weighted: bool) -> None:
    chosen, results = routing(), []
    rows = CAPACITY * EXPERTS if padded else TOKENS * CHOSEN
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float64)):
        tokens = sample(TOKENS, HIDDEN).to(device, dtype).requires_grad_()
        probs = sample(TOKENS, EXPERTS, seed=1).softmax(-1).to(device, dtype).requires_grad_()
        if device == "npu":
            there, back = (
                torch_npu.npu_moe_token_permute_with_routing_map,
                torch_npu.npu_moe_token_unpermute_with_routing_map,
            )
            on_device = chosen.to(device)
            permuted, weights, places = there(tokens, on_device, probs=probs, num_out_tokens=rows, drop_and_pad=padded)
            given = {"probs": probs, "routing_map": on_device} if weighted else {}
            y = back(permuted.sin(), places, [TOKENS, HIDDEN], drop_and_pad=padded, **given)
        else:
            permuted, weights, order = permute(tokens, chosen, probs, padded)
            answers = permuted.sin() * weights[:, None] if weighted else permuted.sin()
            y = torch.zeros(TOKENS, HIDDEN, dtype=dtype).index_add(0, order, answers)
        ((y * y).sum() + weights.square().sum()).backward()
        results.append([each.detach().cpu().double() for each in (permuted, weights, y, tokens.grad, probs.grad)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
