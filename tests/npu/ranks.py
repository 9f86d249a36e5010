"""Every function of torch.distributed over HCCL and over gloo, and models trained by several ranks, on each rank.

``aclnn torch-npu run -m torch.distributed.run --nproc-per-node 2 -m tests.npu.ranks``: fails where the two differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

Op = dist.ReduceOp
REDUCED = (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64)


def values(rank: int, dtype: torch.dtype, count: int = 12) -> torch.Tensor:
    """Return a rank's initial values: small integers, whose products and sums are exact in any data type."""
    return ((torch.arange(count) + rank) % 3 + 1).to(dtype)


def functions(rank: int, size: int) -> dict[str, Callable[[Any, str], list[torch.Tensor]]]:
    """Return collective functions by name; each takes a process group and a device and returns results."""

    def data_of_rank(device: str, dtype: torch.dtype = torch.float32, count: int = 12) -> torch.Tensor:
        return values(rank, dtype, count).to(device)

    def all_reduce(operation: Any, dtype: torch.dtype) -> Callable[[Any, str], list[torch.Tensor]]:
        def run(group: Any, device: str) -> list[torch.Tensor]:
            # 13 elements do not divide evenly
            data = data_of_rank(device, dtype, 13)
            dist.all_reduce(data, operation, group=group)
            return [data]

        return run

    def broadcast(group: Any, device: str) -> list[torch.Tensor]:
        data = data_of_rank(device, torch.bool)
        dist.broadcast(data, size - 1, group=group)
        return [data]

    def reduce(group: Any, device: str) -> list[torch.Tensor]:
        data = data_of_rank(device)
        dist.reduce(data, 0, group=group)
        return [data] if rank == 0 else []

    def all_gather(group: Any, device: str) -> list[torch.Tensor]:
        found = [torch.empty(12, device=device) for _ in range(size)]
        dist.all_gather(found, data_of_rank(device), group=group)
        return found

    def all_gather_into_tensor(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.empty(12 * size, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(found, data_of_rank(device, torch.int64), group=group)
        return [found]

    def reduce_scatter(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.empty(12, device=device)
        dist.reduce_scatter(found, [data_of_rank(device) * (part + 1) for part in range(size)], group=group)
        return [found]

    def reduce_scatter_tensor(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.empty(3, device=device)
        dist.reduce_scatter_tensor(found, data_of_rank(device, count=3 * size), group=group)
        return [found]

    def all_to_all_single(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.empty(2 * size, device=device)
        dist.all_to_all_single(found, data_of_rank(device, count=2 * size), group=group)
        lengths = [abs(rank - other) + 1 for other in range(size)]
        uneven = torch.empty(sum(lengths), device=device)
        dist.all_to_all_single(uneven, data_of_rank(device, count=sum(lengths)), lengths, lengths, group=group)
        return [found, uneven]

    def all_to_all(group: Any, device: str) -> list[torch.Tensor]:
        found = [torch.empty(rank + 1, device=device) for _ in range(size)]
        if device == "cpu":  # gloo has no list form: the same by its single one
            sent = torch.cat([data_of_rank(device, count=part + 1) for part in range(size)])
            flat = torch.empty(size * (rank + 1))
            dist.all_to_all_single(flat, sent, [rank + 1] * size, [part + 1 for part in range(size)], group=group)
            return list(flat.chunk(size))
        dist.all_to_all(found, [data_of_rank(device, count=part + 1) for part in range(size)], group=group)
        return found

    def scatter(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.empty(12, device=device)
        parts = [data_of_rank(device) * (part + 1) for part in range(size)] if rank == 0 else None
        dist.scatter(found, parts, 0, group=group)
        return [found]

    def gather(group: Any, device: str) -> list[torch.Tensor]:
        found = [torch.empty(12, device=device) for _ in range(size)] if rank == 0 else None
        dist.gather(data_of_rank(device), found, 0, group=group)
        return found or []

    def send_and_receive(group: Any, device: str) -> list[torch.Tensor]:
        found = torch.zeros(12, device=device)
        if rank == 0:
            for other in range(1, size):
                dist.send(data_of_rank(device) * other, other, group=group)
        else:
            dist.recv(found, 0, group=group)
        return [found]

    def batch_isend_irecv(group: Any, device: str) -> list[torch.Tensor]:
        if size == 1:
            return []
        found, data = torch.empty(12, device=device), data_of_rank(device)
        operations = [
            dist.P2POp(dist.isend, data, (rank + 1) % size, group),
            dist.P2POp(dist.irecv, found, (rank - 1) % size, group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return [found]

    def asynchronous(group: Any, device: str) -> list[torch.Tensor]:
        data, other = data_of_rank(device), data_of_rank(device, torch.int32)
        works = [dist.all_reduce(each, group=group, async_op=True) for each in (data, other)]
        for work in works:
            work.wait()
        dist.barrier(group=group)
        return [data, other]

    return {
        **{
            f"all_reduce {name} {dtype}": all_reduce(operation, dtype)
            for name, operation in {"sum": Op.SUM, "product": Op.PRODUCT, "max": Op.MAX, "min": Op.MIN}.items()
            for dtype in REDUCED
            if not (name == "product" and dtype == torch.bfloat16)
        },
        **{
            each.__name__: each
            for each in (
                *(broadcast, reduce, all_gather, all_gather_into_tensor, reduce_scatter, reduce_scatter_tensor),
                *(all_to_all_single, all_to_all, scatter, gather, send_and_receive, batch_isend_irecv, asynchronous),
            )
        },
    }


def model() -> nn.Module:
    """Make a small network, equal on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate="tanh"), nn.LayerNorm(32), nn.Linear(32, 4))


def losses(network: nn.Module, optimizer: Any, rank: int, device: str, steps: int = 5) -> list[float]:
    """Train on the rank's part of the data; return the losses."""
    torch.manual_seed(rank)
    inputs, targets = torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(network(inputs), targets)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Make the optimizer of all trainings."""
    return torch.optim.AdamW(parameters, 0.01)


def trainings(rank: int, device: str, gloo: Any) -> dict[str, list[float]]:
    """Return losses by the kind of parallelism."""
    found = {}
    network: Any = DistributedDataParallel(model(), process_group=gloo)
    found["gloo"] = losses(network, adam(network.parameters()), rank, "cpu")
    network = DistributedDataParallel(model().to(device), device_ids=[device])
    found["DDP"] = losses(network, adam(network.parameters()), rank, device)
    network = DistributedDataParallel(model().to(device), device_ids=[device])
    sharded = ZeroRedundancyOptimizer(network.parameters(), torch.optim.AdamW, lr=0.01)
    found["ZeRO"] = losses(network, sharded, rank, device)
    network = model().to(device)
    for layer in network:
        fully_shard(layer, mesh=init_device_mesh("npu", (dist.get_world_size(),)))
    fully_shard(network, mesh=init_device_mesh("npu", (dist.get_world_size(),)))
    found["fully_shard"] = losses(network, adam(network.parameters()), rank, device)
    network = FullyShardedDataParallel(model().to(device), device_id=torch.device(device), use_orig_params=True)
    found["FSDP"] = losses(network, adam(network.parameters()), rank, device)
    return found


def tensor_parallel(device: str) -> tuple[float, float]:
    """Return a layer's result with its weights divided among ranks, and with all on one."""
    mesh = init_device_mesh("npu", (dist.get_world_size(),))
    torch.manual_seed(1)
    inputs = torch.randn(8, 16).to(device)
    whole = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).to(device)
    expected = whole(inputs).square().sum().item()
    parallel = parallelize_module(whole, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return parallel(inputs).square().sum().item(), expected


def distributed_tensor(device: str) -> None:
    """Check the shards of a matrix and its product."""
    mesh = init_device_mesh("npu", (dist.get_world_size(),))
    torch.manual_seed(2)
    whole = torch.randn(8, 8)
    sharded: Any = distribute_tensor(whole.to(device), mesh, [Shard(0)])
    assert sharded.to_local().shape[0] < 8 or dist.get_world_size() == 1
    product = (sharded @ distribute_tensor(whole.to(device), mesh, [Replicate()])).full_tensor()
    torch.testing.assert_close(product.cpu(), whole @ whole)


def synchronised_norm(rank: int, size: int, device: str) -> None:
    """Compare SyncBatchNorm of the rank's part with BatchNorm of the whole batch on the CPU."""
    torch.manual_seed(3)
    whole, gradient = torch.randn(2 * size, 3, 5, 5), torch.randn(2 * size, 3, 5, 5)
    results = []
    for part, place in ((slice(None), "cpu"), (slice(2 * rank, 2 * rank + 2), device)):
        layer: Any = nn.BatchNorm2d(3).to(place)
        if place == device:
            layer = nn.SyncBatchNorm.convert_sync_batchnorm(layer)
        x = whole[part].to(place).requires_grad_()
        y = layer(x)
        y.backward(gradient[part].to(place))
        found = [y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var]
        results.append([each.detach().cpu() for each in found])
    expected, got = results
    for each in got[2:4]:
        total = each.to(device)
        dist.all_reduce(total)
        each.copy_(total.cpu())
    expected[:2] = [each[2 * rank : 2 * rank + 2] for each in expected[:2]]
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def main() -> None:
    """Compare on this rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"npu:{rank}"
    torch.get_device_module("npu").set_device(device)
    dist.init_process_group("hccl")
    gloo = dist.new_group(backend="gloo")
    for name, run in functions(rank, size).items():
        try:
            wanted, got = run(gloo, "cpu"), run(None, device)
            for one, other in zip(got, wanted, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0)
        except (RuntimeError, AssertionError) as error:
            raise RuntimeError(f"rank {rank}: {name}") from error
    halves = [dist.new_group([each for each in range(size) if each % 2 == part]) for part in range(min(2, size))]
    data = torch.ones(3, device=device)
    dist.all_reduce(data, group=halves[rank % 2])
    assert data[0].item() == (size + 1 - rank % 2) // 2
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]
    distributed_tensor(device)
    synchronised_norm(rank, size, device)
    parallel, whole = tensor_parallel(device)
    assert abs(parallel - whole) <= 1e-5 * abs(whole)
    found = trainings(rank, device, gloo)
    for name, got_losses in found.items():
        for loss, expected in zip(got_losses, found["gloo"], strict=True):
            assert abs(loss - expected) <= 1e-5 * expected, f"{name}: {got_losses}, gloo: {found['gloo']}"
    print(f"rank {rank} of {size}: {len(functions(rank, size))} functions, {', '.join(found)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
