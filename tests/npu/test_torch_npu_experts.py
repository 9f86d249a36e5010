"""Mixtures of experts on torch_npu beside PyTorch's CPU; test_torch_npu.py runs them by ``aclnn torch-npu run``."""

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
    """MindSpeed's permutation, of PyTorch's functions."""
    order = indices.flatten().argsort(stable=True)
    return tokens[order[:kept] // (indices.numel() // len(indices))], order.argsort(stable=True)


def unpermute(rows: Any, places: Any, probs: Any) -> Any:
    whole = torch.cat([rows, rows.new_zeros(len(places) - len(rows), rows.shape[1])])
    return (whole[places].unflatten(0, (len(probs), -1)) * probs[..., None]).sum(1)


@pytest.mark.parametrize("kept", [None, 9, -1])
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_tokens_go_to_experts_and_back_with_their_gradients(index: Any, kept: int | None) -> None:
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
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_tokens_with_one_expert_come_back_with_their_gradients() -> None:
    indices = chosen(TOKENS)
    tokens = sample(TOKENS, HIDDEN).to("npu").requires_grad_()
    rows, places = torch_npu.npu_moe_token_permute(tokens, indices.to("npu"))
    y = torch_npu.npu_moe_token_unpermute(rows, places)
    (y * y).sum().backward()
    assert torch.equal(y.cpu(), tokens.detach().cpu())
    assert torch.equal(tokens.grad.cpu(), 2 * tokens.detach().cpu())
