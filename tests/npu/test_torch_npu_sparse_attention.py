"""Sparse attention by torch_npu, beside PyTorch's CPU; test_torch_npu.py runs it."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def test_an_indexer_chooses_keys_and_has_gradients() -> None:
    """Of two packed sequences, with all keys of one query or those up to its own."""
    query, key, weights, dy = (
        sample(5, 8, 128),
        sample(9, 1, 128, seed=1),
        sample(5, 8, seed=2),
        sample(5, 1, 4, seed=3),
    )
    ends = torch.tensor([2, 5], dtype=torch.int32), torch.tensor([4, 9], dtype=torch.int32)
    given = [x.double().requires_grad_() for x in (query, key, weights)]
    indices, values = torch.full((5, 1, 4), -1), torch.full((5, 1, 4), -torch.inf).double()
    starts, lengths = ([0, 2], [0, 4]), ([2, 3], [4, 5])
    for sequence in range(2):
        for row in range(lengths[0][sequence]):
            at, first = starts[0][sequence] + row, starts[1][sequence]
            seen = lengths[1][sequence] - lengths[0][sequence] + row + 1
            products = given[0][at] @ given[1][first : first + seen, 0].T
            best = (products.relu() * given[2][at][:, None]).sum(0).topk(min(4, seen))
            indices[at, 0, : len(best.indices)], values[at, 0, : len(best.values)] = best.indices, best.values
    lengths_of = {"actual_seq_lengths_query": ends[0].npu(), "actual_seq_lengths_key": ends[1].npu()}
    layouts = {"layout_query": "TND", "layout_key": "TND", "sparse_count": 4}
    tensors = [x.npu() for x in (query, key, weights)]
    chosen, scores = torch_npu.npu_lightning_indexer(*tensors, **lengths_of, **layouts, return_value=True)
    assert torch.equal(chosen.cpu().long(), indices)
    torch.testing.assert_close(scores.cpu().double(), values.detach(), rtol=2e-3, atol=2e-3)
    wanted = torch.autograd.grad(values[values.isfinite()] @ dy.double()[values.isfinite()], given)
    found = torch_npu.npu_lightning_indexer_grad(
        *tensors[:2], dy.npu(), chosen, tensors[2], *lengths_of.values(), layout="TND", sparse_mode=3
    )
    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.cpu().double(), expected, rtol=2e-3, atol=2e-2)


def attention(query: Any, key: Any, value: Any, numbers: Any, scale: float) -> Any:
    """Of one sample (S, N, elements), whose queries see keys up to their own."""
    rows = []
    for q in range(len(query)):
        own = [int(at) for at in numbers[q, 0] if 0 <= at < len(key) - len(query) + q + 1]
        rows.append((query[q] @ key[own, 0].T * scale).softmax(-1) @ value[own, 0])
    return torch.stack(rows)


def test_attention_to_chosen_keys_and_its_gradients() -> None:
    query, rope = sample(1, 3, 8, 512), sample(1, 3, 8, 64, seed=1)
    key, key_rope, value = sample(1, 5, 1, 512, seed=2), sample(1, 5, 1, 64, seed=3), sample(1, 5, 1, 512, seed=4)
    numbers = torch.tensor([[2, 0, -1], [3, 1, 0], [4, 2, 3]], dtype=torch.int32)[None, :, None]
    grad, given = (
        sample(1, 3, 8, 512, seed=5),
        [x.double().requires_grad_() for x in (query, key, value, rope, key_rope)],
    )
    wholes = [torch.cat(pair, -1)[0] for pair in zip(given[:2], given[3:], strict=True)]
    wanted = attention(*wholes, given[2][0], numbers[0], 0.04)[None]
    tensors = [x.npu() for x in (query, key, value, numbers)]
    ropes = {"query_rope": rope.npu(), "key_rope": key_rope.npu()}
    out, *statistics = torch_npu.npu_sparse_flash_attention(
        *tensors, 0.04, **ropes, attention_mode=2, return_softmax_lse=True
    )
    torch.testing.assert_close(out.cpu().double(), wanted.detach(), rtol=2e-3, atol=2e-3)
    found = torch_npu.npu_sparse_flash_attention_grad(*tensors, grad.npu(), out, *statistics, 0.04, 1, **ropes)
    gradients = torch.autograd.grad((wanted * grad.double()).sum(), given)
    for got, expected in zip(found, gradients, strict=True):
        torch.testing.assert_close(got.cpu().double(), expected, rtol=4e-3, atol=8e-3)


def test_keys_of_eight_bits() -> None:
    """Each with 64 elements of query's type and four scales in its bytes."""
    query, rope, scales = (
        sample(1, 3, 8, 576),
        sample(1, 5, 1, 64, seed=1),
        sample(1, 5, 1, 4, seed=2).float().abs() / 20,
    )
    elements = (sample(1, 5, 1, 512, seed=3) * 30).to(torch.int8)
    packed = torch.cat([elements, rope.view(torch.int8), scales.view(torch.int8)], -1)
    wide = (elements.double().unflatten(-1, (4, 128)) * scales.double()[..., None]).flatten(-2)
    numbers = torch.tensor([[2, 0, -1], [3, 1, 0], [4, 2, 3]], dtype=torch.int32)[None, :, None]
    wanted = attention(query[0].double(), torch.cat((wide, rope.double()), -1)[0], wide[0], numbers[0], 0.04)
    tensors = [x.npu() for x in (query, packed, packed, numbers)]
    out = torch_npu.npu_kv_quant_sparse_flash_attention(*tensors, 0.04, 2, 2, attention_mode=2)
    torch.testing.assert_close(out[0].cpu().double(), wanted, rtol=2e-3, atol=2e-3)
    query, key = ((sample(1, 4, n, 128, seed=n) * 30).to(torch.int8) for n in (8, 1))
    weights, scales = sample(1, 4, 8, seed=4).abs(), [sample(1, 4, n, seed=n + 1).abs() for n in (8, 1)]
    chosen = torch_npu.npu_quant_lightning_indexer(
        *(x.npu() for x in (query, key, weights, *scales)), 0, 0, sparse_count=4, sparse_mode=0
    )
    products = (query.double() * scales[0].double()[..., None]) @ (key.double() * scales[1].double()[..., None])[
        :, :, 0
    ].mT
    order = (products.relu() * weights.double()[..., None]).sum(2).argsort(-1, descending=True)
    assert torch.equal(chosen[:, :, 0].cpu().long(), order)
