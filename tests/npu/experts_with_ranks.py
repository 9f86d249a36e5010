"""Mixtures of experts that lie on several ranks, compared with PyTorch's CPU, on each rank.

``aclnn torch-npu run -m torch.distributed.run --nproc-per-node 2 -m tests.npu.experts_with_ranks``: fails where they
differ.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch_npu
from torch import distributed as dist

ON_950 = "Ascend950" in torch_npu.npu.get_device_name(0)


def dispatch_and_combine(rank: int, size: int, device: str, name: str) -> None:
    """Tokens that go to experts on other ranks, where each is multiplied by its expert's number, and back."""
    torch.manual_seed(rank)
    each, tokens = 2, 5
    x = torch.randint(-8, 9, (tokens, 1024)).to(torch.bfloat16)
    ids = torch.stack([torch.randperm(each * size)[:2] for _ in range(tokens)]).to(torch.int32)
    weights, mask = torch.randint(1, 5, (tokens, 2)) / 4, torch.arange(tokens) < tokens - 1
    for quantized in (0, 2):
        common = {"group_ep": name, "ep_world_size": size, "ep_rank_id": rank, "moe_expert_num": each * size}
        common["x_active_mask"] = mask.to(device)
        rows, factors, whence, counts, ends, of_second, _ = torch_npu.npu_moe_distribute_dispatch_v2(
            x.to(device), ids.to(device), quant_mode=quantized, **common
        )
        answers, at = torch.zeros_like(rows, dtype=x.dtype), 0
        for expert, count in enumerate(counts.tolist()):
            part = rows[at : at + count].float() * (factors[at : at + count, None] if quantized else 1)
            answers[at : at + count] = (part * (rank * each + expert + 1)).to(x.dtype)
            at += count
        got = torch_npu.npu_moe_distribute_combine_v2(
            answers, ids.to(device), whence, ends, weights.to(device), tp_send_counts=of_second, **common
        )
        expected = x.float() * (weights * (ids + 1)).sum(1, keepdim=True) * mask[:, None]
        tolerance = {"rtol": 2**-6, "atol": 8 / 254 * 2 * each * size} if quantized else {"rtol": 2**-8, "atol": 0}
        torch.testing.assert_close(got.cpu().float(), expected, **tolerance)


def barrier(size: int, device: str, name: str) -> None:
    """Check that ranks wait for one another, and that the operand passes unchanged."""
    x = torch.arange(6, device=device)
    assert torch.equal(torch_npu._npu_distribute_barrier(x, name, size).cpu(), torch.arange(6))


def products(rank: int, size: int, device: str, name: str) -> None:
    """Rows that meet the matrices of experts on other ranks, and products that come back, with a rank's own."""
    chosen = [torch.Generator().manual_seed(each) for each in range(size)]
    matrices = [torch.randint(-4, 5, (2, 5, 6), generator=each).half() for each in chosen]
    routed = torch.stack([torch.randint(1, 4, (size, 2), generator=each) for each in chosen])
    rows = [torch.randint(-4, 5, (int(routed[each].sum()), 5), generator=chosen[each]).half() for each in range(size)]
    parts = [
        [list(each.split(to)) for each, to in zip(given.split(n.sum(1).tolist()), n.tolist(), strict=True)]
        for given, n in zip(rows, routed, strict=True)
    ]
    to, back = routed[rank].flatten().tolist(), routed[:, rank].flatten().tolist()
    got, _, permuted = torch_npu.npu_alltoallv_gmm(
        rows[rank].to(device), matrices[rank].to(device), name, size, to, back, permute_out_flag=True
    )
    own = [torch.cat([parts[source][rank][expert] for source in range(size)]) for expert in range(2)]
    assert torch.equal(permuted.cpu(), torch.cat(own))
    expected = torch.cat([each @ matrix for each, matrix in zip(own, matrices[rank], strict=True)])
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)
    got, _ = torch_npu.npu_gmm_alltoallv(permuted, matrices[rank].to(device), name, size, back, to, comm_mode="ai_cpu")
    expected = torch.cat(
        [parts[rank][other][each] @ matrices[other][each] for other in range(size) for each in range(2)]
    )
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


def instances(rank: int, size: int, device: str) -> None:
    """Experts that have several instances, of which each rank takes one."""
    ids, table = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 5, 0], [2, 3, 4]])
    got, mask = torch_npu.npu_moe_update_expert(
        ids.int().to(device), table.int().to(device), local_rank_id=rank, world_size=size
    )
    expected = torch.where(ids == 0, 5, 3 + rank)
    assert torch.equal(got.cpu().long(), expected), (got, expected, mask)


def main() -> None:
    """Compare on this rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"npu:{rank}"
    torch.get_device_module("npu").set_device(device)
    dist.init_process_group("hccl")
    world: Any = dist.distributed_c10d._get_default_group()
    name = world._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    dispatch_and_combine(rank, size, device, name)
    if ON_950:
        instances(rank, size, device)
        barrier(size, device, name)
        products(rank, size, device, name)
    print(f"rank {rank} of {size}: experts\n", end="", flush=True)  # in one piece
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
