"""Functions of torch_npu for steps of decoding, compared with PyTorch's CPU; test_torch_npu.py runs it."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

ON_950 = "Ascend950" in torch_npu.npu.get_device_name(0)
BEFORE_950 = pytest.mark.skipif(ON_950, reason="the function has no kernel on Ascend 950")


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(found: Any, wanted: Any, tolerance: float = 2e-3) -> None:
    torch.testing.assert_close(found.cpu().double(), wanted.double(), rtol=tolerance, atol=2 * tolerance)


def normalised(rows: Any) -> Any:
    return torch.nn.functional.rms_norm(rows.double(), rows.shape[-1:], eps=1e-5)


def turned(rows: Any, cos: Any, sin: Any) -> Any:
    """Return rows whose halves are rotated by angles."""
    first, second = rows.double().chunk(2, -1)
    return rows.double() * cos.double() + torch.cat((-second, first), -1) * sin.double()


def test_moe_gating_top_k_takes_experts_from_a_table() -> None:
    scores, table, ids = sample(5, 16), torch.tensor([[0, 7, 3], [15, 2, 8], [4, 5, 6]]), torch.tensor([2, 0, 1, 1, 0])
    given = {"input_ids": ids.npu(), "tid2eid": table.int().npu(), "norm_type": 1, "routed_scaling_factor": 2.5}
    y, experts, _ = torch_npu.npu_moe_gating_top_k(scores.npu(), 3, **given)
    assert torch.equal(experts.cpu().long(), table[ids])
    chosen = scores.double().sigmoid().gather(1, table[ids])
    close(y, 2.5 * chosen / chosen.sum(-1, keepdim=True), 1e-6)


@BEFORE_950
def test_rotary_mul_takes_a_rotation_matrix() -> None:
    x, cos, sin = sample(1, 2, 3, 64), sample(1, 1, 3, 64, seed=1), sample(1, 1, 3, 64, seed=2)
    matrix = torch.zeros(64, 64)
    for pair in range(0, 64, 2):
        matrix[pair + 1, pair], matrix[pair, pair + 1] = -1, 1
    given = [each.npu() for each in (x, cos, sin)]
    by_pairs = torch_npu.npu_rotary_mul(*given, "interleave")
    assert torch.equal(torch_npu.npu_rotary_mul(*given, "interleave", rotate=matrix.npu()).cpu(), by_pairs.cpu())


@BEFORE_950
@pytest.mark.parametrize("quantised", [False, True])
def test_kv_rmsnorm_rope_cache_caches_separate_values(quantised: bool) -> None:
    keys, values, index = sample(2, 2, 3, 192).half(), sample(2, 2, 3, 128, seed=1).half(), torch.arange(3).repeat(2, 1)
    cos, sin = sample(2, 2, 3, 64, seed=2).half(), sample(2, 2, 3, 64, seed=3).half()
    caches = [torch.zeros(2, 2, 4, columns, dtype=torch.float16) for columns in (192, 128)]
    scale = {"c_kv_scale": torch.full((2, 128), 16.0).npu()} if quantised else {}
    caches[1] = caches[1].to(torch.int8) if quantised else caches[1]
    given = [each.npu() for each in (keys, torch.ones(192).half(), cos, sin, index, *caches)]
    found = torch_npu.npu_kv_rmsnorm_rope_cache(*given, v=values.npu(), is_output_kv=True, **scale)
    rows = normalised(keys)
    pairs = rows[..., :64].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    expected = torch.cat((turned(pairs, cos, sin), rows[..., 64:]), -1)
    close(found[0][:, :, :3], expected)
    close(found[2], expected)
    kept = (values.double() * 16).round().clamp(-128, 127) if quantised else values
    assert torch.equal(found[1][:, :, :3].cpu().double(), kept.double())
    assert not found[1][:, :, 3].any()


@BEFORE_950
def test_qkv_rms_norm_rope_cache_normalizes_rotates_and_caches() -> None:
    rows, cos, sin = sample(6, 7 * 128).half(), sample(6, 128, seed=1).half(), sample(6, 128, seed=2).half()
    gammas, places = [torch.ones(128).half().npu()] * 2, torch.tensor([40, 0, 1, 2, 63, 5])
    caches = [torch.zeros(2, 16, 32, 16).half().npu() for _ in range(2)]
    queries = torch.zeros(6, 3 * 128).half().npu()
    given = (rows.npu(), *gammas, cos.npu(), sin.npu(), places.npu(), queries, *caches, [2, 3, 7, 128], [3, 2, 2])
    before = torch_npu.npu_qkv_rms_norm_rope_cache(*given, epsilon=1e-5, is_output_qkv=True)
    query, key, value = rows.unflatten(-1, (7, 128)).split((3, 2, 2), 1)
    expected = [turned(normalised(each), cos[:, None], sin[:, None]).flatten(1) for each in (query, key)]
    close(queries, expected[0])
    for cache, kept, got in zip(caches, (expected[1], value.flatten(1)), before[1:], strict=True):
        close(cache.cpu().transpose(1, 2).flatten(2).flatten(0, 1)[places], kept)
        close(got, kept)


@BEFORE_950
@pytest.mark.parametrize("least", [None, 0.5])
def test_top_k_top_p_sample_chooses_among_the_most_probable(least: float | None) -> None:
    logits, counts = sample(8, 50), torch.tensor([3, 5, 1, 50, 7, 0, 2, 9])
    shares, noise = torch.linspace(0.2, 1.2, 8), torch.rand(8, 50, generator=torch.Generator().manual_seed(1)) + 0.1
    minimum = {} if least is None else {"min_ps": torch.full((8,), least).npu()}
    given = [each.npu() for each in (logits, counts.int(), shares)]
    found, left = torch_npu.npu_top_k_top_p_sample(*given, noise.npu(), is_need_logits=True, **minimum)
    for at in range(8):
        count, share = int(counts[at]) or 50, float(shares[at])
        order = logits[at].argsort(descending=True, stable=True)[:count]
        chances = logits[at][order].double().softmax(-1)
        kept = [n for n in range(len(order)) if share >= 1 or chances[:n].sum() < share]
        kept = [n for n in kept if least is None or chances[n] >= least * chances[kept[0]]]
        if counts[at] == 0 and share >= 1:
            order, chances = torch.arange(50), logits[at].double().softmax(-1)
            kept = [n for n in range(50) if least is None or chances[n] >= least * chances.max()]
        best = max(range(len(kept)), key=lambda n: chances[kept[n]] / noise[at, n])
        assert int(found[at]) == int(order[kept[best]])
        assert sorted(order[kept].tolist()) == left[at].isfinite().nonzero().flatten().tolist()


@BEFORE_950
def test_advance_step_flashattn_advances_tokens_and_slots() -> None:
    tokens, positions, slots = (torch.zeros(4, dtype=torch.int64).npu() for _ in range(3))
    lengths, tables = torch.tensor([4, 9, 2, 7]), torch.arange(32).reshape(4, 8)
    moved = lengths.npu()
    sampled = torch.tensor([[11], [12], [13]])
    torch_npu.npu_advance_step_flashattn(tokens, sampled.npu(), positions, moved, slots, tables.npu(), 4, 3, 2)
    assert tokens.tolist() == [11, 12, 13, 0]
    assert positions.tolist() == [4, 9, 2, 0]
    assert moved.tolist() == [5, 10, 3, 7]
    assert slots.tolist() == [2 * 2, (4 + 8) * 2 + 1, (1 + 16) * 2, -1]


@BEFORE_950
def test_batch_gather_matmul_adds_low_rank_products() -> None:
    y, x, indices = sample(5, 64).half(), sample(5, 48, seed=1).half(), torch.tensor([2, 0, 1, 1, 2])
    up, down = sample(3, 1, 64, 16, seed=2).half(), sample(3, 1, 16, 48, seed=3).half()
    given = [each.npu() for each in (y, x, up, indices.int(), down)]
    found = torch_npu.npu_batch_gather_matmul(*given, scale=0.125)
    expected = [
        y[at].double() + 0.125 * up[g, 0].double() @ down[g, 0].double() @ x[at].double()
        for at, g in enumerate(indices)
    ]
    close(found, torch.stack(expected), 1e-2)


def test_transform_bias_rescale_qkv_splits_projections_into_heads() -> None:
    """PyTorch's attention layer calls this operator."""
    rows, bias = sample(2, 3, 60), sample(60, seed=1)
    for found, expected in zip(
        torch._transform_bias_rescale_qkv(rows.npu(), bias.npu(), 4),
        torch._transform_bias_rescale_qkv(rows, bias, 4),
        strict=True,
    ):
        close(found, expected, 1e-6)


@BEFORE_950
@pytest.mark.parametrize("bits", [8, 4])
def test_rotate_quant_quantizes_rotated_rows(bits: int) -> None:
    x, rotation = sample(4, 64).half(), torch.linalg.qr(sample(32, 32, seed=1))[0].half()
    chosen = {} if bits == 8 else {"dst_dtype": torch.quint4x2}
    integers, scales = torch_npu.npu_rotate_quant(x.npu(), rotation.npu(), **chosen)
    rows = (x.double().unflatten(-1, (-1, 32)) @ rotation.double()).flatten(-2)
    close(scales, rows.abs().amax(-1) / (127 if bits == 8 else 7), 1e-6)
    integers = integers.cpu()
    if bits == 4:
        integers = ((integers[..., None] >> torch.arange(0, 32, 4) & 15) + 8) % 16 - 8
    assert (integers.flatten(1) - rows / scales.cpu().double()[:, None]).abs().max() < 0.51


def test_chunk_gated_delta_rule_matches_the_recurrence() -> None:
    query, key, value = (sample(5, heads, size, seed=heads).bfloat16() for heads, size in ((2, 16), (1, 16), (4, 8)))
    key = key.repeat(1, 2, 1) / 4
    beta, states, gates = sample(5, 4).sigmoid().bfloat16(), sample(2, 4, 8, 16).bfloat16(), -sample(5, 4).abs()
    lengths = torch.tensor([3, 2], dtype=torch.int32)
    given = {"beta": beta, "initial_state": states, "actual_seq_lengths": lengths, "g": gates}
    on_device = {name: each.npu() for name, each in given.items()}
    found = torch_npu.npu_chunk_gated_delta_rule(query.npu(), key.npu(), value.npu(), scale=0.25, **on_device)
    expected, left = torch.zeros(5, 4, 8).double(), states.double()
    for t, sequence in enumerate([0, 0, 0, 1, 1]):
        for head in range(4):
            k, state = key[t, head // 2].double(), left[sequence, head] * gates[t, head].double().exp()
            state = state + beta[t, head].double() * torch.outer(value[t, head].double() - state @ k, k)
            left[sequence, head] = state
            expected[t, head] = 0.25 * state @ query[t, head // 2].double()
    close(found[0], expected, 1e-2)
    close(found[1], left, 1e-2)


@pytest.mark.skipif(not ON_950, reason="the function has a kernel on Ascend 950 alone")
def test_scatter_pa_cache_puts_keys_into_slots() -> None:
    keys, slots, cache = sample(4, 2, 16).half(), torch.tensor([7, 0, 14, 3]), torch.zeros(3, 5, 2, 16).half().npu()
    torch_npu.npu_scatter_pa_cache(keys.npu(), slots.npu(), key_cache=cache)
    flat = cache.cpu().flatten(0, 1)
    assert torch.equal(flat[slots], keys)
    assert not flat[1].any()


@pytest.mark.skipif(not ON_950, reason="the function has a kernel on Ascend 950 alone")
@pytest.mark.parametrize("kind", ["", "add", "mul", "relu", "gelu_erf", "gelu_tanh"])
def test_fused_matmul_applies_an_operation_to_the_product(kind: str) -> None:
    x, weight, other = sample(3, 4).half(), sample(4, 5, seed=1).half(), sample(3, 5, seed=2).half()
    second = other.npu() if kind in ("add", "mul") else None
    found = torch_npu.npu_fused_matmul(x.npu(), weight.npu(), x3=second, fused_op_type=kind)
    product = x.double() @ weight.double()
    expected = {
        "": product,
        "add": product + other,
        "mul": product * other,
        "relu": product.relu(),
        "gelu_erf": torch.nn.functional.gelu(product),
        "gelu_tanh": torch.nn.functional.gelu(product, approximate="tanh"),
    }
    close(found, expected[kind])


@BEFORE_950
@pytest.mark.parametrize("precise", [0, 1])
def test_weight_quant_batchmatmul_scales_integer_weights(precise: int) -> None:
    x, scale = sample(4, 64).half(), (sample(32, seed=1).abs() / 50).half()
    weight = torch.randint(-100, 100, (64, 32), dtype=torch.int8, generator=torch.Generator().manual_seed(2))
    found = torch_npu.npu_weight_quant_batchmatmul(x.npu(), weight.npu(), scale.npu(), inner_precise=precise)
    close(found, x.double() @ (weight.double() * scale.double()), 5e-3)


@BEFORE_950
def test_grouped_matmul_finalize_routing_adds_4_bit_products_for_tokens() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randint(-128, 128, (5, 16), dtype=torch.int8, generator=random)
    weight = torch.randint(-8, 8, (2, 16, 256), generator=random)
    scale = torch.exp2(torch.randint(-2, 2, (2, 1, 256), generator=random).float())
    words = ((weight.unflatten(-1, (32, 8)) & 15) << torch.arange(0, 32, 4)).sum(-1).to(torch.int32)
    scaled, factors, places = weight * scale, sample(5).abs(), torch.tensor([0, 1, 0, 1, 0])
    given = {
        "scale": scale.view(torch.int32).long(),
        "bias": 8 * scaled.sum(1),
        "pertoken_scale": factors,
        "logit": factors,
        "row_index": places,
    }
    on_device = {name: each.npu() for name, each in given.items()}
    found = torch_npu.npu_grouped_matmul_finalize_routing(
        x.npu(), words.npu(), torch.tensor([2, 3]).npu(), output_bs=2, group_list_type=1, **on_device
    )
    rows = torch.cat([x[:2].double() @ scaled[0].double(), x[2:].double() @ scaled[1].double()])
    rows *= factors.double()[:, None] ** 2
    close(found, torch.zeros(2, 256).double().index_add(0, places, rows))


@pytest.mark.skipif(not ON_950, reason="the function has a kernel on Ascend 950 alone")
@pytest.mark.parametrize("masked", [False, True])
def test_masked_causal_conv1d_convolves_tokens_with_those_before(masked: bool) -> None:
    x, weight, grad = sample(5, 2, 384).half(), sample(3, 384, seed=1).half(), sample(5, 2, 384, seed=2).half()
    mask = sample(2, 5, seed=3) > 0 if masked else torch.ones(2, 5).bool()
    leaves = [each.npu().requires_grad_() for each in (x, weight)]
    found = torch_npu.npu_masked_causal_conv1d(*leaves, mask=mask.npu() if masked else None)
    exact = [each.double().requires_grad_() for each in (x, weight)]
    rows = torch.nn.functional.pad(exact[0].permute(1, 2, 0), (2, 0))
    expected = torch.nn.functional.conv1d(rows, exact[1].T[:, None], groups=384).permute(2, 0, 1) * mask.T[..., None]
    close(found, expected)
    for own, given in zip(torch.autograd.grad(found, leaves, grad.npu()), exact, strict=True):
        close(own, torch.autograd.grad(expected, given, grad.double(), retain_graph=True)[0])


@BEFORE_950
def test_quant_matmul_reduce_sum_adds_products_of_a_batch() -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randint(-128, 128, of, dtype=torch.int8, generator=random) for of in ((2, 4, 32), (2, 32, 64)))
    rows, columns = sample(2, 4).abs(), sample(64, seed=1).abs().bfloat16()
    torch.npu.config.allow_internal_format = True
    try:
        in_blocks = torch_npu.npu_format_cast(weight.npu(), 29)
    finally:
        torch.npu.config.allow_internal_format = False
    found = torch_npu.npu_quant_matmul_reduce_sum(x.npu(), in_blocks, x1_scale=rows.npu(), x2_scale=columns.npu())
    expected = ((x.double() @ weight.double()) * rows[..., None] * columns.double()).sum(0)
    close(found, expected, 5e-3)


@pytest.mark.parametrize("version", [pytest.param(2, marks=BEFORE_950), 3])
def test_mla_prolog_computes_queries_and_cached_keys(version: int) -> None:
    shapes = {"dq": (1024, 1536), "uq": (1536, 384), "uk": (2, 128, 512), "dkv": (1024, 576)}
    dq, uq, uk, dkv = (0.05 * sample(*shape, seed=seed).bfloat16() for seed, shape in enumerate(shapes.values()))
    x, angles, slots = sample(2, 1, 1024, seed=4).bfloat16(), sample(2, 1, 64, seed=5), torch.tensor([[5], [20]])
    sin, cos = angles.sin().bfloat16(), angles.cos().bfloat16()
    caches = [torch.zeros(2, 16, 1, size).bfloat16().npu() for size in (512, 64)]
    torch.npu.config.allow_internal_format = True
    try:
        blocks = [torch_npu.npu_format_cast(each.npu(), 29) for each in (dq, uq, dkv)]
    finally:
        torch.npu.config.allow_internal_format = False
    gammas = (torch.ones(1536).bfloat16().npu(), torch.ones(512).bfloat16().npu())
    given = (x.npu(), *blocks[:2], uk.npu(), blocks[2], *gammas, sin.npu(), cos.npu())
    if version == 2:
        query, rotated = torch_npu.npu_mla_prolog_v2(*given, slots.npu(), *caches)[:2]
    else:
        query, rotated = torch_npu.npu_mla_prolog_v3(*given, *caches, cache_index=slots.npu())[:2]

    def turned(pairs: Any, sin: Any, cos: Any) -> Any:
        first, second = pairs[..., ::2], pairs[..., 1::2]
        return torch.cat((first, second), -1) * cos + torch.cat((-second, first), -1) * sin

    sin, cos = sin.double(), cos.double()
    heads = (normalised(x.double() @ dq.double()) @ uq.double()).view(2, 1, 2, 192)
    keys = x.double() @ dkv.double()
    close(query, torch.einsum("bsnd,ndk->bsnk", heads[..., :128], uk.double()), 1e-2)
    close(rotated, turned(heads[..., 128:], sin[:, :, None], cos[:, :, None]), 1e-2)
    for cache, rows in zip(caches, (normalised(keys[..., :512]), turned(keys[..., 512:], sin, cos)), strict=True):
        expected = torch.zeros(32, cache.shape[-1]).double()
        expected[slots.view(-1)] = rows.view(2, -1)
        close(cache.view(32, -1), expected, 1e-2)
