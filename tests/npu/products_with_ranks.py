"""Products of matrices whose factors or results ranks exchange, compared with PyTorch's CPU, on each rank.

``aclnn torch-npu run -m torch.distributed.run --nproc-per-node 2 -m tests.npu.products_with_ranks``: fails where they
differ.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch_npu
from torch import distributed as dist

ON_950 = "Ascend950" in torch_npu.npu.get_device_name(0)
M, K, N = 8, 256, 6


def factors(rank: int) -> tuple[Any, ...]:
    """Return a rank's x1, x2, bias and x3."""
    chosen = torch.Generator().manual_seed(rank)
    return tuple(torch.randn(*shape, generator=chosen).half() for shape in ((M, K), (K, N), (N,), (M, N)))


def expect(got: Any, wanted: Any) -> None:
    """Compare with float64."""
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=2.0**-10, atol=2.0**-6)


def quantized(rank: int, size: int, group: str) -> None:
    """Compare products of integers and of weights of eight bits."""
    device, reduce = f"npu:{rank}", torch_npu.npu_mm_all_reduce_base
    chosen = torch.Generator().manual_seed(3)
    x1 = [torch.randint(-128, 128, (M, 64), generator=chosen, dtype=torch.int8) for _ in range(size)]
    halves = [torch.randn(M, 64, generator=chosen).half() for _ in range(size)]
    x2, bias = (torch.randint(-128, 128, of, generator=chosen, dtype=torch.int8) for of in ((64, 32), (32,)))
    columns, rows = torch.full((32,), 2.0**-7), torch.rand(M, generator=chosen) / 16
    left, right, of_columns, of_rows = (each.to(device) for each in (x1[rank], x2, columns, rows))
    total = sum(each.double() for each in x1) @ x2.double()
    bits = torch_npu.npu_trans_quant_param(of_columns)
    scaled = (total + size * bias.double()) * 2.0**-7
    added = {"bias": bias.int().to(device)}
    expect(reduce(left, right, group, dequant_scale=bits, **added), scaled)
    got = reduce(left, right, group, dequant_scale=of_columns, pertoken_scale=of_rows, **added)
    expect(got, scaled * rows[:, None].double())
    got = reduce(left, right, group, dequant_scale=of_columns, pertoken_scale=of_rows, comm_mode="ai_cpu", **added)
    expect(got, scaled * rows[:, None].double())
    sent = torch.full((32,), 0.5).half().to(device)
    factors = {"dequant_scale": of_columns, "pertoken_scale": of_rows}
    got = reduce(left, right, group, comm_quant_scale_1=sent, comm_quant_scale_2=sent * 2, **factors)
    expected = (total * 2.0**-7 * rows[:, None].double()).clamp(-128, 127)
    torch.testing.assert_close(got.cpu().double(), expected, rtol=0, atol=0.25 * size + 0.5)
    scale, offset = torch.full((32,), 2.0**-7).half(), torch.randn(32, generator=chosen).half()
    given = {"antiquant_scale": scale.to(device), "antiquant_offset": offset.to(device)}
    for mode in ({}, {"comm_mode": "ai_cpu"}):
        got = reduce(halves[rank].to(device), right, group, **given, **mode)
        expect(got, sum(each.double() for each in halves) @ ((x2.double() + offset.double()) * 2.0**-7))


def experts(rank: int, size: int, group: str, **engine: str) -> None:
    """Compare products of two experts on each rank, whose rows ranks exchange, and bring them back."""
    device, of_each = f"npu:{rank}", 2
    chosen = torch.Generator().manual_seed(4)
    counts = torch.randint(0, 4, (size, size, of_each), generator=chosen) + 1
    rows = [torch.randn(int(counts[each].sum()), 16, generator=chosen).half() for each in range(size)]
    weights = [torch.randn(of_each, 16, 8, generator=chosen).half() for _ in range(size)]
    sent, received = counts[rank].flatten().tolist(), counts[:, rank].flatten().tolist()
    given = (rows[rank].to(device), weights[rank].to(device), group, size, sent, received)
    shared = {"mm_x": given[0], "mm_weight": given[1][0]}
    y, beside, permuted = torch_npu.npu_alltoallv_gmm(*given, permute_out_flag=True, **shared, **engine)
    blocks = [torch.split(each.double(), counts[source].flatten().tolist()) for source, each in enumerate(rows)]
    parts = [[blocks[source][rank * of_each + at] for source in range(size)] for at in range(of_each)]
    assert torch.equal(permuted.cpu().double(), torch.cat([part for each in parts for part in each]))
    expect(y, torch.cat([torch.cat(each) @ weights[rank][at].double() for at, each in enumerate(parts)]))
    expect(beside, rows[rank].double() @ weights[rank][0].double())
    back, _ = torch_npu.npu_gmm_alltoallv(permuted, given[1], group, size, received, sent, **engine)
    owners = [weights[to][at].double() for to in range(size) for at in range(of_each)]
    expect(back, torch.cat([block @ weight for block, weight in zip(blocks[rank], owners, strict=True)]))


def main() -> None:
    """Compare on this rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"npu:{rank}"
    torch.get_device_module("npu").set_device(device)
    dist.init_process_group("hccl")
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    given = [factors(each) for each in range(size)]
    wide = [tuple(part.double() for part in each) for each in given]
    x1, x2, bias, x3 = (part.to(device) for part in given[rank])
    turned = x2.t().contiguous().t()

    total = sum(a @ b for a, b, _, _ in wide)
    expect(torch_npu.npu_mm_all_reduce_base(x1, x2, group), total)
    got = torch_npu.npu_mm_all_reduce_base(x1, turned, group, reduce_op="sum", bias=bias, x3=x3)
    expect(got, total + sum(c + d for _, _, c, d in wide))
    expect(torch_npu.npu_mm_all_reduce_base(x1, x2, group, comm_mode="ai_cpu"), total)
    whole = torch.cat([a for a, *_ in wide])
    output, gathered = torch_npu.npu_all_gather_base_mm(x1, turned, group, size)
    expect(output, whole @ wide[rank][1])
    assert torch.equal(gathered.cpu().double(), whole)
    output, gathered = torch_npu.npu_all_gather_base_mm(x1, x2, group, size, gather_output=False)
    expect(output, whole @ wide[rank][1])
    assert not gathered.numel()
    expect(torch_npu.npu_mm_reduce_scatter_base(x1, x2, group, size), total.chunk(size)[rank])
    parts = [a.chunk(size)[rank] for a, *_ in wide]
    beside = torch.randn(size * K, N, generator=torch.Generator().manual_seed(7)).half()
    output, crossed = torch_npu.npu_all_to_all_matmul(x1, beside.to(device), group, size, bias=bias)
    expect(output, torch.cat(parts, 1) @ beside.double() + wide[rank][2])
    assert torch.equal(crossed.cpu().double(), torch.cat(parts, 1))
    output = torch_npu.npu_matmul_all_to_all(x1, x2, group, size, bias=bias)
    expect(output, torch.cat([(a @ b + c).chunk(size, 1)[rank] for a, b, c, _ in wide]))
    quantized(rank, size, group)
    if ON_950:
        experts(rank, size, group)
    experts(rank, size, group, comm_mode="ai_cpu" if ON_950 else "aiv")
    if not ON_950:
        integers = [(a.clamp(-1, 1) * 127).round().to(torch.int8) for a, *_ in given]
        others = (x2.cpu().clamp(-1, 1) * 127).round().to(torch.int8)
        of_rows, of_columns = torch.full((M, 1), 2.0**-6), torch.full((1, N), 2.0**-7)
        scales = {"x1_scale": of_rows.to(device), "x2_scale": of_columns.to(device), "output_dtype": torch.float16}
        output, _ = torch_npu.npu_all_gather_base_mm(
            integers[rank].to(device), others.to(device), group, size, comm_mode="aiv", **scales
        )
        expect(output, torch.cat(integers).double() @ others.double() * 2.0**-13)
    print(f"rank {rank} of {size}: products\n", end="", flush=True)  # in one piece
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
