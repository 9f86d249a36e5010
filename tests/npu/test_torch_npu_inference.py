"""Functions of torch_npu for inference and mixtures, compared with PyTorch's CPU; test_torch_npu.py runs it."""

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
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_quant_scatter_replaces_a_part_of_a_cache() -> None:
    """npu_quant_scatter replaces a part of a cache by what npu_quantize returns."""
    cache, places, rows = (
        torch.zeros(2, 3, 64, dtype=torch.int8),
        torch.tensor([2, 0], dtype=torch.int32),
        sample(2, 1, 64),
    )
    scales = sample(64, seed=1).abs() + 0.1
    integers = torch_npu.npu_quantize(rows.half().npu(), scales.npu(), None, torch.qint8, -1).to(torch.int8)
    expected = cache.clone()
    for at, place in enumerate(places.tolist()):
        expected[at, place] = integers[at, 0].cpu()
    updated = torch_npu.scatter_update(cache.npu(), places.npu(), integers, -2)
    assert torch.equal(updated.cpu(), expected)
    given = (cache.npu(), places.npu(), rows.half().npu(), scales.view(1, 1, 64).npu())
    assert torch.equal(torch_npu.npu_quant_scatter(*given, None, -2, -1, "update").cpu(), expected)


@pytest.mark.parametrize("mode", ["default", "interleave"])
def test_mrope_takes_angles_by_rows_of_positions(mode: str) -> None:
    tokens, size, section = 5, 128, [16, 24, 24]
    positions = torch.randint(0, 7, (3, tokens), generator=torch.Generator().manual_seed(2))
    query, key, cache = sample(tokens, 2 * size), sample(tokens, size, seed=1), sample(7, size, seed=3)
    chosen = []
    for numbers in cache[positions].chunk(2, -1):
        if mode == "default":
            found = torch.cat([part[row] for row, part in enumerate(numbers.split(section, -1))], -1)
        else:
            found = numbers[0].clone()
            for row in (1, 2):
                found[:, row:72:3] = numbers[row][:, row:72:3]
        chosen.append(found[:, None])
    cos, sin = chosen
    arguments = {"mrope_section": section, "rotary_mode": "half", "cache_mode": mode}
    given = (each.npu() for each in (positions, query, key, cache))
    for got, whole in zip(torch_npu.npu_mrope(*given, size, **arguments), (query, key), strict=True):
        first, second = whole.unflatten(-1, (-1, size)).chunk(2, -1)
        expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_moe_init_routing_v2_quantizes_tokens() -> None:
    """Tokens are also put into the order of experts again, as after an exchange between ranks."""
    tokens, experts = sample(6, 16), torch.tensor([[3, 0], [1, 3], [2, 2], [0, 1], [3, 2], [1, 0]], dtype=torch.int32)
    order = experts.flatten().argsort(stable=True)
    scales = tokens.abs().amax(-1)[order // 2] / 127
    integers = (tokens[order // 2] / scales[:, None]).round().to(torch.int8)
    limits = {"active_num": 12, "expert_capacity": -1, "expert_num": 4, "drop_pad_mode": 0}
    counts = {"expert_tokens_num_type": 1, "expert_tokens_num_flag": True}
    kinds = {"quant_mode": 1, "row_idx_type": 1, "active_expert_range": [0, 4]}
    found = torch_npu.npu_moe_init_routing_v2(tokens.npu(), experts.npu(), **limits, **counts, **kinds)
    for got, expected in zip(found, (integers, order.int(), torch.tensor([3] * 4), scales), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-6, atol=0)
    per_rank = torch.tensor([[1, 2, 0], [3, 0, 1]])
    moved, _, places, numbers = torch_npu.npu_moe_re_routing(
        tokens[:, :1].half().repeat(2, 1)[:7].npu(), per_rank.npu()
    )
    assert places.tolist() == [0, 3, 4, 5, 1, 2, 6]
    assert numbers.tolist() == [4, 2, 1]
    assert torch.equal(moved.cpu(), tokens[[0, 3, 4, 5, 1, 2, 0], :1].half())


@pytest.mark.parametrize("mixed", [True, False])
def test_mhc_post_and_its_gradients_match_the_cpu(mixed: bool) -> None:
    if not (mixed or ON_950):
        pytest.skip("h_res may be None on Ascend 950 alone")
    x, out, post = sample(3, 4, 128).half(), sample(3, 128, seed=1).half(), sample(3, 4, seed=2)
    res = sample(3, 4, 4, seed=3) if mixed else None
    gradient, results = sample(3, 4, 128, seed=4).half(), []
    for device, wide in (("npu", False), ("cpu", True)):
        given = [None if each is None else each.detach().to(device) for each in (x, res, out, post)]
        given = [each if each is None else (each.double() if wide else each).requires_grad_() for each in given]
        if wide:
            streams, matrix, answer, weights = given
            mixture = streams if matrix is None else matrix.transpose(-1, -2) @ streams
            y = mixture + weights[..., None] * answer[:, None]
        else:
            y = torch_npu.npu_mhc_post(*given)
        y.backward(gradient.to(device, y.dtype))
        results.append([each.detach().cpu().double() for each in (y, *(one.grad for one in given if one is not None))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.skipif(not ON_950, reason="Sinkhorn's scaling has a kernel on Ascend 950 alone")
def test_mhc_sinkhorn_has_a_gradient() -> None:
    x, gradient, results = sample(2, 5, 6, 6), sample(2, 5, 6, 6, seed=1), []
    for device in ("npu", "cpu"):
        given = x.to(device).double() if device == "cpu" else x.to(device)
        given.requires_grad_()
        if device == "npu":
            y = torch_npu.npu_mhc_sinkhorn(given, eps=1e-6, num_iters=3, out_flag=1)[0]
        else:
            y = given.softmax(-1) + 1e-6
            for along in (-2, -1, -2, -1, -2):
                y = y / (y.sum(along, keepdim=True) + 1e-6)
        y.backward(gradient.to(device, y.dtype))
        results.append([y.detach().cpu().double(), given.grad.cpu().double()])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(ON_950, reason="windows have a kernel on Atlas A2 alone")
def test_nsa_compress_has_gradients() -> None:
    ends, block, stride, results = [40, 47, 90], 32, 16, []
    rows, weight, gradient = sample(90, 3, 16).half(), sample(block, 3, seed=1).half(), sample(2, 3, 16, seed=2).half()
    for device in ("npu", "cpu"):
        given = [each.detach().to(device) for each in (rows, weight)]
        given = [(each.double() if device == "cpu" else each).requires_grad_() for each in given]
        if device == "npu":
            y = torch_npu.npu_nsa_compress(*given, block, stride, actual_seq_len=ends)
        else:
            windows = [given[0][at : at + block] * given[1][..., None] for at in (0, 47)]
            y = torch.stack(windows).sum(1)
        y.backward(gradient.to(device, y.dtype))
        results.append([each.detach().cpu().double() for each in (y, *(one.grad for one in given))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=5e-3, atol=2e-2)


@pytest.mark.skipif(ON_950, reason="ATB is for products before Ascend 950")
@pytest.mark.parametrize("interleaved", [False, True])
def test_operations_of_atb_rotate_cache_and_accumulate(interleaved: bool) -> None:
    tokens, size, block = 5, 16, 4
    query, key, table = sample(tokens, 2 * size), sample(tokens, size, seed=1), sample(9, size, seed=2)
    places = torch.tensor([3, 0, 8, 1, 2])
    rotated = [each.half().npu() for each in (query, key)]
    torch_npu._npu_rotary_embedding(places.npu(), *rotated, size, table.half().npu(), not interleaved)
    cos, sin = table.half().float()[places][:, None].chunk(2, -1)
    for got, whole in zip(rotated, (query, key), strict=True):
        heads = whole.half().float().unflatten(-1, (-1, size))
        first, second = heads.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else heads.chunk(2, -1)
        turned = first * cos - second * sin, second * cos + first * sin
        expected = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
        torch.testing.assert_close(got.cpu().float(), expected.flatten(-2), rtol=2**-8, atol=2**-8)
    slots = torch.tensor([0, 5, 6, 11, 2], dtype=torch.int32)
    rows, caches = sample(2, tokens, 1, size).half(), torch.zeros(2, 3, block, 1, size).half()
    stored = caches.npu()
    torch_npu._npu_reshape_and_cache(*rows.npu(), *stored, slots.npu())
    caches.view(2, -1, 1, size)[:, slots] = rows
    assert torch.equal(stored.cpu(), caches)
    x, weight, total = sample(2, 4).half(), sample(2, 6, seed=1).half(), sample(4, 6, seed=2)
    accumulated = total.npu()
    torch_npu._npu_matmul_add_fp32(x.npu(), weight.npu(), accumulated)
    torch.testing.assert_close(accumulated.cpu(), total + x.float().T @ weight.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(ON_950, reason="ATB is for products before Ascend 950")
def test_an_operation_of_atb_that_is_not_implemented_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    query, cache, numbers = torch.zeros(1, 1, 16).half().npu(), torch.zeros(1, 4, 1, 16).half().npu(), torch.ones(1, 1)
    with pytest.raises(RuntimeError, match="PagedAttentionOperation"):
        torch_npu._npu_paged_attention(query, cache, cache, 1, 1, 1.0, numbers.int().npu(), numbers[0].int(), query)
    assert "got PagedAttentionParam" in capfd.readouterr().err
