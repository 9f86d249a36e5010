"""Sparse attention by torch_npu, compared with PyTorch's CPU; test_torch_npu.py runs it."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

ON_950 = "Ascend950" in torch_npu.npu.get_device_name(0)


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def test_lightning_indexer_chooses_keys_and_has_gradients() -> None:
    """Two packed sequences, with all keys of a query or those up to its position."""
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
    """Compute causal attention of one sample (S, N, elements)."""
    rows = []
    for q in range(len(query)):
        own = [int(at) for at in numbers[q, 0] if 0 <= at < len(key) - len(query) + q + 1]
        rows.append((query[q] @ key[own, 0].T * scale).softmax(-1) @ value[own, 0])
    return torch.stack(rows)


def test_sparse_flash_attention_with_gradients() -> None:
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


def test_sparse_attention_and_indexer_take_8_bit_keys() -> None:
    """The bytes of each key also hold 64 elements of the query's data type and four scales."""
    query, rope, scales = (
        sample(1, 3, 8, 576),
        sample(1, 5, 1, 64, seed=1),
        sample(1, 5, 1, 4, seed=2).float().abs() / 20,
    )
    elements = (sample(1, 5, 1, 512, seed=3) * 30).to(torch.int8)
    packed = torch.cat([elements, rope.view(torch.int8), scales.view(torch.int8)], -1)
    wide = (elements.double().unflatten(-1, (4, 128)) * scales.double()[..., None]).flatten(-2)
    numbers = torch.tensor([[2, 0, -1], [3, 1, 0], [4, 2, 3]], dtype=torch.int32)[None, :, None]
    expected = attention(query[0].double(), torch.cat((wide, rope.double()), -1)[0], wide[0], numbers[0], 0.04)
    tensors = [x.npu() for x in (query, packed, packed, numbers)]
    out = torch_npu.npu_kv_quant_sparse_flash_attention(*tensors, 0.04, 2, 2, attention_mode=2)
    torch.testing.assert_close(out[0].cpu().double(), expected, rtol=2e-3, atol=2e-3)
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


@pytest.mark.skipif(ON_950, reason="CANN has all keys' loss before Ascend 950 only")
def test_indexer_losses_match_their_definition() -> None:
    """Losses over all keys and over selected ones, here all that a query sees."""
    tokens, heads = 4, 32
    query, key = (sample(1, tokens, heads, 128, seed=seed) / 4 for seed in (0, 1))
    index = [
        x.double().requires_grad_() for x in (sample(1, tokens, 8, 128, seed=2), sample(1, tokens, 1, 128, seed=3))
    ]
    weights = (sample(1, tokens, 8, seed=4) / 8).double().requires_grad_()
    given = [*index, weights]
    tensors = [x.detach().half().npu() for x in given]
    top, total = torch_npu.npu_dense_lightning_indexer_softmax_lse(*tensors)
    loss: Any = 0
    one_key = sample(1, tokens, 1, 512, seed=5) / 8, sample(1, tokens, heads, 512, seed=6) / 8
    losses, statistics = [], []
    for q_of, k_of in ((query, key), (one_key[1], one_key[0].expand(-1, -1, heads, -1))):
        loss, tops, sums = 0, torch.zeros(1, heads, tokens, 1), torch.zeros(1, heads, tokens, 1)
        for q in range(tokens):
            scores = torch.einsum("nd,knd->nk", q_of[0, q].double(), k_of[0, : q + 1].double()) * 0.1
            tops[0, :, q, 0] = scores.max(1).values
            sums[0, :, q, 0] = (scores - tops[0, :, q]).exp().sum(1)
            found = weights[0, q] @ (index[0][0, q] @ index[1][0, : q + 1, 0].T).relu()
            loss = loss + torch.nn.functional.kl_div(found.log_softmax(0), scores.softmax(1).mean(0), reduction="sum")
            torch.testing.assert_close(top[0, 0, q].cpu().double(), found.detach().max(), rtol=2e-3, atol=2e-3)
        losses.append((loss, torch.autograd.grad(loss, given)))
        statistics.append((tops.npu(), sums.npu()))
    arguments = [query.npu(), key.npu(), *tensors, *statistics[0], top, total, 0.1]
    numbers = torch.arange(tokens).where(torch.arange(tokens) <= torch.arange(tokens)[:, None], -1)[None, :, None].int()
    stats = [x.permute(0, 3, 2, 1).contiguous() for x in statistics[1]]
    found_of_all = torch_npu.npu_dense_lightning_indexer_grad_kl_loss(*arguments)
    sparse = [one_key[1].npu(), one_key[0].npu(), *tensors, numbers.npu(), *stats, 0.1]
    found_of_chosen = torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*sparse)
    for found, (expected, gradients) in zip((found_of_all, found_of_chosen), losses, strict=True):
        torch.testing.assert_close(found[3].cpu().double(), expected.detach()[None], rtol=1e-3, atol=1e-4)
        for got, gradient in zip(found[:3], gradients, strict=True):
            torch.testing.assert_close(got.cpu().double(), gradient, rtol=4e-3, atol=4e-3)


@pytest.mark.skipif(ON_950, reason="CANN has it before Ascend 950 only")
def test_floyd_attention_attends_to_paths() -> None:
    """In the order of queries, keys and values of the first pairs, those of the second."""
    tensors = [sample(1, 1, *shape, 32, seed=seed) / 4 for seed, shape in enumerate([(16, 128), *[(128, 128)] * 4])]
    tensors[1:3] = [x[:, :, :16].contiguous() for x in tensors[1:3]]
    query, key1, value1, key2, value2 = given = [x.double().requires_grad_() for x in tensors]
    scores = torch.einsum("bhikc,bhijc->bhikj", query, key1) + torch.einsum("bhikc,bhjkc->bhikj", query, key2)
    shares = (scores * 0.3).softmax(-1)
    expected = torch.einsum("bhikj,bhijc->bhikc", shares, value1) + torch.einsum("bhikj,bhjkc->bhikc", shares, value2)
    leaves = [x.npu().requires_grad_() for x in tensors]
    found = torch_npu.npu_fused_floyd_attention(*leaves, scale_value=0.3)[2]
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=2e-3, atol=2e-3)
    grad = sample(*expected.shape, seed=9)
    found.backward(grad.npu())
    for leaf, gradient in zip(leaves, torch.autograd.grad((expected * grad.double()).sum(), given), strict=True):
        torch.testing.assert_close(leaf.grad.cpu().double(), gradient, rtol=4e-3, atol=4e-3)


@pytest.mark.skipif(torch_npu.npu.get_device_name(0) != "Ascend910B2", reason="CANN has it on Atlas A2 only")
def test_nsa_select_attention_takes_blocks_of_keys() -> None:
    """All blocks of a sequence are selected, so that all keys take part."""
    query, key, value = sample(6, 4, 192), sample(64, 2, 192, seed=1), sample(64, 2, 128, seed=2)
    given = [x.double().requires_grad_() for x in (query, key, value)]
    heads = [x.repeat_interleave(2, 1).transpose(0, 1) for x in given[1:]]
    expected = ((given[0].transpose(0, 1) @ heads[0].mT * 0.1).softmax(-1) @ heads[1]).transpose(0, 1)
    numbers = torch.arange(4, dtype=torch.int32).expand(6, 2, 4).contiguous().npu()
    leaves = [x.npu().requires_grad_() for x in (query, key, value)]
    lengths = {"actual_seq_qlen": [6], "actual_seq_kvlen": [64]}
    found = torch_npu.npu_nsa_select_attention(*leaves, numbers, 0.1, 4, 16, 4, **lengths)[0]
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=2e-3, atol=4e-3)
    grad = sample(*expected.shape, seed=9)
    found.backward(grad.npu())
    for leaf, gradient in zip(leaves, torch.autograd.grad((expected * grad.double()).sum(), given), strict=True):
        torch.testing.assert_close(leaf.grad.cpu().double(), gradient, rtol=4e-3, atol=2e-2)


@pytest.mark.skipif(ON_950, reason="CANN has it before Ascend 950 only")
def test_masked_softmax_with_rel_pos_bias_matches_pytorch() -> None:
    scores, mask, bias = sample(2, 2, 3, 4, 5), sample(1, 2, 1, 4, 5, seed=1), sample(1, 1, 3, 4, 5, seed=2)
    found = torch_npu.npu_masked_softmax_with_rel_pos_bias(scores.npu(), mask.npu(), bias.npu(), 0.5, 0)
    expected = (scores.double() * 0.5 + mask.double() + bias.double()).softmax(-1)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(ON_950, reason="CANN has it before Ascend 950 only")
@pytest.mark.parametrize("layout", ["TND", "BNSD"])
def test_block_sparse_attention_takes_a_mask_of_blocks(layout: str) -> None:
    """Queries of the second block see the first block of keys only."""
    shapes = ((12, 4, 64), (200, 2, 64)) if layout == "TND" else ((1, 4, 12, 64), (1, 2, 200, 64))
    tensors = [sample(*shapes[0]), sample(*shapes[1], seed=1), sample(*shapes[1], seed=2)]
    given = [x.double().requires_grad_() for x in tensors]
    query, key, value = [x.transpose(0, 1) if layout == "TND" else x[0] for x in given]
    key, value = key.repeat_interleave(2, 0), value.repeat_interleave(2, 0)
    mask = torch.ones(1, 4, 2, 2, dtype=torch.int8)
    mask[:, :, 1, 1] = 0
    hidden = (torch.arange(12)[:, None] >= 8) & (torch.arange(200) >= 128)
    scores = (query @ key.mT * 0.125).masked_fill(hidden, -torch.inf)
    wanted = scores.softmax(-1) @ value
    wanted = wanted.transpose(0, 1) if layout == "TND" else wanted[None]
    options = {"q_input_layout": layout, "kv_input_layout": layout, "num_key_value_heads": 2, "scale_value": 0.125}
    options |= {"actual_seq_lengths": [12], "actual_seq_lengths_kv": [200]}
    leaves = [x.npu() for x in tensors]
    found, sums = torch_npu.npu_block_sparse_attention(*leaves, mask.npu(), [8, 128], **options, softmax_lse_flag=1)
    torch.testing.assert_close(found.cpu().double(), wanted.detach(), rtol=2e-3, atol=2e-3)
    expected = scores.logsumexp(-1).T if layout == "TND" else scores.logsumexp(-1)[None]
    torch.testing.assert_close(sums.cpu().double(), expected.detach()[..., None], rtol=1e-3, atol=1e-3)
    grad = sample(*wanted.shape, seed=9)
    gradients = torch_npu.npu_block_sparse_attention_backward(
        grad.npu(), *leaves, found, sums, mask.npu(), [8, 128], **options
    )
    for got, gradient in zip(gradients, torch.autograd.grad((wanted * grad.double()).sum(), given), strict=True):
        torch.testing.assert_close(got.cpu().double(), gradient, rtol=4e-3, atol=1e-2)


@pytest.mark.skipif(ON_950, reason="CANN has it before Ascend 950 only")
@pytest.mark.parametrize("layout", ["BSH", "BSND"])
def test_nsa_select_attention_infer_reads_pages(layout: str) -> None:
    """All blocks of the first sample, and the last of the second, which has 20 keys."""
    query, key, value = sample(2, 1, 4, 192), sample(4, 64, 2, 192, seed=1), sample(4, 64, 2, 128, seed=2)
    table, lengths = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32), [96, 68]
    numbers = torch.tensor([[1, 0], [1, -1]], dtype=torch.int32)[:, None].expand(2, 2, 2).contiguous()
    wanted = []
    for at, places in enumerate((range(96), range(48, 68))):
        keys, values = (x[table[at].long()].flatten(0, 1)[list(places)].double() for x in (key, value))
        keys, values = (x.repeat_interleave(2, 1).transpose(0, 1) for x in (keys, values))
        shares = (query[at, 0].double()[:, None] @ keys.mT * 0.1).softmax(-1)
        wanted.append((shares @ values).transpose(0, 1))
    tensors = [x.flatten(2) if layout == "BSH" else x for x in (query, key, value)]
    found = torch_npu.npu_nsa_select_attention_infer(
        *(x.npu() for x in (*tensors, numbers)),
        *(0.1, 4, 2, 48, 2, 64),
        layout=layout,
        block_table=table.npu(),
        actual_seq_kvlen=lengths,
    )
    expected = torch.stack(wanted)
    torch.testing.assert_close(found.cpu().double().reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)
