"""MX formats of torch_npu on Ascend 950, compared with blocks of PyTorch's numbers; test_torch_npu.py runs it."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)
if not os.environ.get("ACLNN_SOC_NAME", "").startswith("Ascend950"):
    pytest.skip("MX formats have kernels on Ascend 950 alone", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch_npu.float8_e8m0fnu
EMAX = {E4M3: 8, E5M2: 15}


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def factors(scales: Any, columns: int) -> Any:
    """Return powers of two for rows."""
    exponents = scales.cpu().view(torch.uint8).float().flatten(-2) - 127
    return exponents.exp2().repeat_interleave(32, -1)[..., :columns]


def restored(y: Any, scales: Any) -> Any:
    return y.cpu().float() * factors(scales, y.shape[-1])


@pytest.mark.parametrize("of", [E4M3, E5M2])
def test_dynamic_mx_quant_scales_blocks_of_rows(of: Any) -> None:
    x = sample(3, 70)
    y, scales = torch_npu.npu_dynamic_mx_quant(x.npu(), dst_type=of)
    blocks = torch.nn.functional.pad(x.float(), (0, 58)).view(3, 4, 32)
    largest = blocks.abs().amax(-1)
    expected = largest.log2().floor() - EMAX[of]
    assert torch.equal(scales.cpu().view(3, 4)[:, :3].int() - 127, expected[:, :3].int())
    most = torch.finfo(of).max
    wanted = (x.float() / factors(scales, 70)).clamp(-most, most).to(of)
    assert torch.equal(y.cpu().float(), wanted.float())
    back = torch_npu.npu_anti_mx_quant(y, scales, dst_type=torch.float32, src_type=of)
    assert torch.equal(back.cpu(), restored(y, scales))


def test_rms_norm_and_swiglu_quantize_to_mx_formats() -> None:
    x, gamma = sample(3, 128), sample(128, seed=1)
    norm = x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gamma.float()
    y, scales, _ = torch_npu.npu_rms_norm_dynamic_mx_quant(x.npu(), gamma.npu(), dst_type=E4M3)
    torch.testing.assert_close(restored(y, scales), norm, rtol=0.07, atol=0.02)
    gate, up = x.float().chunk(2, -1)
    y, scales = torch_npu.npu_swiglu_mx_quant(x.npu(), activate_left=True, dst_type=E4M3)
    torch.testing.assert_close(restored(y, scales), torch.nn.functional.silu(gate) * up, rtol=0.07, atol=0.02)


@pytest.mark.parametrize("of", [E4M3, torch_npu.float4_e2m1fn_x2])
def test_quant_matmul_takes_mx_formats(of: Any) -> None:
    x, weight = sample(5, 128), sample(6, 128, seed=1)
    (a, rows), (b, columns) = (torch_npu.npu_dynamic_mx_quant(each.npu(), dst_type=of) for each in (x, weight))
    kinds = {} if of == E4M3 else {"x1_dtype": of, "x2_dtype": of}
    found = torch_npu.npu_quant_matmul(
        a,
        b.t(),
        columns.transpose(0, 1),
        pertoken_scale=rows,
        output_dtype=torch.float32,
        scale_dtype=E8M0,
        pertoken_scale_dtype=E8M0,
        group_sizes=[1, 1, 32],
        **kinds,
    )
    left, right = (
        torch_npu.npu_anti_mx_quant(y, scales, dst_type=torch.float32, src_type=of).cpu()
        for y, scales in ((a, rows), (b, columns))
    )
    torch.testing.assert_close(found.cpu(), left @ right.T, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found.cpu(), x.float() @ weight.float().T, rtol=0.3, atol=6)


def test_add_quant_matmul_and_add_quant_gmm_add_mx_products() -> None:
    """Two groups of rows, whose scales begin in separate rows."""
    x, weight, ends, of = (
        sample(70, 3),
        sample(70, 4, seed=1),
        [33, 70],
        {"x1_scale_dtype": E8M0, "x2_scale_dtype": E8M0},
    )
    x1, x2 = x.to(E4M3), weight.to(E5M2)
    scales = [torch.full((3, size, 2), 128, dtype=torch.uint8) for size in (3, 4)]
    products = [x1[part].float().T @ x2[part].float() * 4 for part in (slice(33), slice(33, 70))]
    sums, total = torch.ones(2, 3, 4), torch.ones(3, 4)
    given = (x1.npu().t(), x2.npu(), scales[1].npu(), torch.tensor(ends).npu())
    found = torch_npu.npu_add_quant_gmm_(sums.npu(), *given, x1_scale=scales[0].npu(), **of)
    torch.testing.assert_close(found.cpu(), sums + torch.stack(products), rtol=1e-5, atol=1e-4)
    left, right = (each[:2].npu() for each in scales)
    further = {"x1_scale": left.transpose(0, 1), "group_sizes": [1, 1, 32], **of}
    found = torch_npu.npu_add_quant_matmul_(total.npu(), x1.npu().t(), x2.npu(), right, **further)
    torch.testing.assert_close(found.cpu(), total + sum(products), rtol=1e-5, atol=1e-4)
