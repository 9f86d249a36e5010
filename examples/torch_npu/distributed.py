"""Train a classifier on several ranks from the same seed, by gloo on the CPU and by HCCL through torch_npu.

Run ``aclnn torch-npu run -m torch.distributed.run --nproc-per-node 2 examples/torch_npu/distributed.py``. The script
does not depend on aclnn.
"""

from __future__ import annotations

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 20, 64


def train(device: str, group: dist.ProcessGroup) -> list[float]:
    """Train on each rank's own data and return the mean loss over all ranks for each step."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 10)).to(device)
    teacher = torch.randn(32, 10)
    model = DistributedDataParallel(network, process_group=group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, 32)
        targets = (inputs @ teacher).argmax(1)
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean, group=group)
        losses.append(mean.item())
    return losses


def main() -> None:
    """Print the losses by gloo and by HCCL."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.npu.set_device(rank)
    dist.init_process_group("hccl")
    gloo = train("cpu", dist.new_group(backend="gloo"))
    hccl = train(f"npu:{rank}", dist.group.WORLD)
    if rank == 0:
        largest = max(abs(one - other) / other for one, other in zip(hccl, gloo, strict=True))
        for name, losses in (("gloo", gloo), ("hccl", hccl)):
            print(f"{name}, {dist.get_world_size()} ranks: loss {losses[0]:.6f} to {losses[-1]:.6f}")
        print(f"largest relative difference of {STEPS} losses {largest:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
