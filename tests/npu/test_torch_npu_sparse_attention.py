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
